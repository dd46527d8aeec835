//! `pcap:FILE`: capture files as ports. `-` is standard input and output.
//!
//! **What.** [`open`] reads or writes a file of either format ([`wire::pcap`]), plain or compressed; [`Writer`] is what a
//! capture writes with: several interfaces, statistics, how much of it is safe.
//!
//! **Why so.** A frame of a file is lent from the buffer that the file was read into, so a replay copies nothing before
//! the transmitter. Nothing recorded is ever lost: no file that exists is overwritten unasked, what was flushed is
//! readable after `kill -9`, and a full disk leaves a whole file with a number of frames that is said.
//!
//! **Price.** What was flushed survives this process, not a power failure: `fsync` in a capture is loss at its ring, so
//! it is done only when asked for (`sync=yes`), at the end.

mod receive;
mod source;
mod transmit;
mod writer;

pub use source::Compression;
pub use writer::{Extra, Options, Summary, Writer};

use super::{Direction, Port, PortOptions, Uri};
use record::{Problem, Result};
use wire::pcap::{Format, Interface, Resolution};

/// Opens a file: `pcap:FILE?format=pcap|pcapng&resolution=ns|us&compress=gz|zst|none&overwrite=yes&sync=yes`. The
/// settings are for writing (by default by the file's name: `.pcap`, `.pcapng`, `.gz`, `.zst`; nanoseconds); when
/// reading, the file says all that itself.
///
/// # Errors
/// Input: no such file, one that exists already, one that is no capture file, settings that cannot be used.
pub fn open(uri: &mut Uri, wish: &PortOptions) -> Result<Port> {
    let options = options(uri, wish)?;
    let path = uri.rest.clone();
    if path.is_empty() {
        return Err(Problem::input("no file is named").at(&uri.text).help("write pcap:FILE"));
    }
    if wish.direction == Direction::Both && path != "-" {
        return Err(Problem::input("a capture file is read or written, not both at once").at(&uri.text));
    }
    // A setting that nobody knows must not cost a file, so it is refused before one is made.
    uri.finish()?;
    let mut port = Port { uri: uri.text.clone(), receiver: None, transmitter: None };
    if wish.direction.receives() {
        port.receiver = Some(Box::new(receive::PcapReceiver::open(&path, wish)?));
    }
    if wish.direction.transmits() {
        port.transmitter = Some(Box::new(transmit::PcapTransmitter::create(&path, options)?));
    }
    Ok(port)
}

fn options(uri: &mut Uri, wish: &PortOptions) -> Result<Options> {
    let mut options = Options::default();
    if let Some(format) = uri.take("format") {
        options.format = Some(match format.as_str() {
            "pcap" => Format::Pcap,
            "pcapng" => Format::Pcapng,
            other => return Err(uri.bad("format", other, "pcap or pcapng")),
        });
    }
    if let Some(resolution) = uri.take("resolution") {
        options.resolution = match resolution.as_str() {
            "ns" => Resolution::NANO,
            "us" => Resolution::MICRO,
            other => return Err(uri.bad("resolution", other, "ns or us")),
        };
    }
    if let Some(compress) = uri.take("compress") {
        let found = Compression::ALL.into_iter().find(|compression| compression.name() == compress);
        options.compression = Some(found.ok_or_else(|| uri.bad("compress", &compress, "gz, zst or none"))?);
    }
    options.overwrite = yes(uri, "overwrite")?;
    let joint = if uri.text.contains('?') { '&' } else { '?' };
    options.overwrite_by = format!("write '{}{joint}overwrite=yes'", uri.text);
    options.sync = yes(uri, "sync")?;
    let snap = wish.snap.unwrap_or(0);
    options.interfaces = vec![Interface { snap, ..Interface::default() }];
    Ok(options)
}

fn yes(uri: &mut Uri, key: &'static str) -> Result<bool> {
    match uri.take(key).as_deref() {
        None | Some("no") => Ok(false),
        Some("yes") => Ok(true),
        Some(other) => Err(uri.bad(key, other, "yes or no")),
    }
}
