//! The dead frames as a capture file.
//!
//! pcapng only, because each frame has a comment. There is an interface for every node, interface and kind of first header that frames died
//! with: frames whose link layer was gone are raw IP, what is neither goes behind the header of a cooked capture.

use super::describe::RAW;
use linux::observe::{DeadFrame, DeadLink};
use linux::port::pcap::{Extra, Options, Writer};
use linux::port::{FrameDirection, Meta, Stamp, StampSource};
use record::drop;
use record::drops::{DropRow, DropsWritten};
use record::{Problem, Result};
use std::collections::BTreeMap;
use wire::pcap::{Format, Interface, Link};

/// Bytes of the header of a cooked capture (`LINKTYPE_LINUX_SLL`).
const COOKED: usize = 16;

/// A file of dead frames.
pub(super) struct DeadFile {
    path: String,
    writer: Writer,
    filter: String,
    interfaces: BTreeMap<(String, Option<String>, u16), u32>,
}

impl DeadFile {
    /// Makes the file.
    pub(super) fn create(path: &str, overwrite: bool, filter: Option<String>) -> Result<DeadFile> {
        let stem = path.trim_end_matches(".gz").trim_end_matches(".zst");
        if [".pcap", ".cap", ".dmp"].iter().any(|ending| stem.ends_with(ending)) {
            let problem = Problem::input("a pcap file has no place for why a frame died").at(path);
            return Err(problem.help("call it .pcapng"));
        }
        let options = Options {
            format: Some(Format::Pcapng),
            overwrite,
            overwrite_by: "add --overwrite".into(),
            comment: "frames that the kernel dropped; each has its reason, place and node as its comment"
                .into(),
            ..Options::default()
        };
        let writer = Writer::create(path, options)?;
        let filter = filter.unwrap_or_default();
        Ok(DeadFile { path: path.into(), writer, filter, interfaces: BTreeMap::new() })
    }

    /// Writes a frame with why it died.
    pub(super) fn write(&mut self, frame: &DeadFrame, at_ns: u64, row: &DropRow) -> Result<()> {
        let link = link_of(frame.link);
        let interface = self.interface(row, link)?;
        let cooked;
        let (bytes, length) = match frame.link {
            DeadLink::Other(kind) => {
                cooked = [&cooked_header(kind)[..], &frame.bytes].concat();
                (&cooked, frame.length + COOKED as u32)
            }
            _ => (&frame.bytes, frame.length),
        };
        let meta = Meta {
            wire_length: length,
            stamp: Stamp { ns: at_ns, source: StampSource::Software },
            offload: Default::default(),
            way: FrameDirection::In,
            interface,
            link,
        };
        let comment = comment(frame, row);
        self.writer.write_with(bytes, &meta, Extra { lost: None, comment: &comment })
    }

    fn interface(&mut self, row: &DropRow, link: Link) -> Result<u32> {
        let key = (row.node.clone(), row.interface.clone(), link.0);
        if let Some(&known) = self.interfaces.get(&key) {
            return Ok(known);
        }
        let interface = row.interface.as_deref();
        let new = Interface {
            link,
            name: interface.map_or_else(|| row.node.clone(), |interface| format!("{}:{interface}", row.node)),
            description: format!(
                "frames that died at {} of node {}",
                interface.unwrap_or("no interface"),
                row.node
            ),
            filter: self.filter.clone(),
            ..Interface::default()
        };
        let number = self.writer.interface(new)?;
        self.interfaces.insert(key, number);
        Ok(number)
    }

    /// Hands everything to the kernel.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.writer.flush()
    }

    /// Closes the file.
    pub(super) fn finish(self) -> Result<DropsWritten> {
        let summary = self.writer.finish()?;
        Ok(DropsWritten { file: self.path, frames: summary.frames, bytes: summary.bytes })
    }
}

fn link_of(link: DeadLink) -> Link {
    match link {
        DeadLink::Ethernet => Link::ETHERNET,
        DeadLink::Ip => Link(RAW),
        DeadLink::Other(_) => Link::LINUX_SLL,
    }
}

/// A cooked header without an address: to us, of no hardware, this protocol.
fn cooked_header(kind: u16) -> [u8; COOKED] {
    const NO_HARDWARE: u16 = 0xfffe;
    let mut header = [0; COOKED];
    header[2..4].copy_from_slice(&NO_HARDWARE.to_be_bytes());
    header[14..].copy_from_slice(&kind.to_be_bytes());
    header
}

/// Why it died: reason, function, interface, node; what that means.
fn comment(frame: &DeadFrame, row: &DropRow) -> String {
    let unknown = "unknown";
    let mut text = format!(
        "dropped: {} at {}, interface {}, node {}",
        row.reason,
        row.place.as_deref().unwrap_or(unknown),
        row.interface.as_deref().unwrap_or("none"),
        row.node
    );
    if let Some(name) = &row.name {
        let meaning = drop::find(name).map(|row| row.meaning()).unwrap_or_default();
        text += &format!("; {name}: {meaning}");
    }
    if !row.may_be.is_empty() {
        text += &format!("; one of {}", row.may_be.join(", "));
    }
    if frame.segments > 1 {
        text += &format!(" A super-frame of {} frames.", frame.segments);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cooked_header_leads_to_its_protocol() {
        let header = cooked_header(0x0806);
        assert_eq!((header.len(), &header[14..], &header[2..4]), (16, &[8, 6][..], &[0xff, 0xfe][..]));
    }
}
