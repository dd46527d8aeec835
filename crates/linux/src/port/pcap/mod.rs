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
    let receiver = || {
        let receiver = receive::PcapReceiver::open(&path, wish)?;
        let settings = receiver.settings();
        Ok((Box::new(receiver) as _, settings))
    };
    let transmitter = || {
        let (transmitter, settings) = transmit::PcapTransmitter::create(&path, options)?;
        Ok((Box::new(transmitter) as _, settings))
    };
    Port::with_ends(uri, wish, receiver, transmitter)
}

fn options(uri: &mut Uri, wish: &PortOptions) -> Result<Options> {
    let formats = [("pcap", Format::Pcap), ("pcapng", Format::Pcapng)];
    let resolutions = [("ns", Resolution::NANO), ("us", Resolution::MICRO)];
    let joint = if uri.text.contains('?') { '&' } else { '?' };
    Ok(Options {
        format: uri.take_word("format", &formats)?,
        resolution: uri.take_word("resolution", &resolutions)?.unwrap_or(Resolution::NANO),
        compression: uri.take_word("compress", &Compression::NAMES)?,
        overwrite: uri.take_switch("overwrite", false)?,
        overwrite_by: format!("write '{}{joint}overwrite=yes'", uri.text),
        sync: uri.take_switch("sync", false)?,
        interfaces: vec![Interface { snap: wish.snap.unwrap_or(0), ..Interface::default() }],
        ..Options::default()
    })
}
