//! What files are made of, appended to a buffer. Numbers have their lowest byte first.

use super::blocks::{ENHANCED, INTERFACE, MAGIC, STATISTICS};
use super::read::{MICRO, NANO};
use super::{Direction, Interface, Link, Resolution, SECTION, Section, Statistics};

/// A frame to be written.
#[derive(Debug, Clone, Copy, Default)]
pub struct NewFrame<'a> {
    /// Its bytes, at most [`super::MAX_FRAME`].
    pub bytes: &'a [u8],
    /// Bytes that it had on the wire, without FCS.
    pub wire_length: u32,
    /// When it passed, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Which interface, in the order in which they were written (pcapng).
    pub interface: u32,
    /// Which way (pcapng).
    pub direction: Direction,
    /// Frames lost between the one before and this one (pcapng).
    pub lost: Option<u64>,
    /// Something for people (pcapng); empty: nothing.
    pub comment: &'a str,
}

/// Most bytes of a text: what fits into the 16-bit length of an option, padding included.
const MAX_TEXT: usize = 65_532;

fn put<const N: usize>(out: &mut Vec<u8>, words: [u32; N]) {
    out.extend_from_slice(words.map(u32::to_le_bytes).as_flattened());
}

fn pad(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&[0; 3][..length.next_multiple_of(4) - length]);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

/// A text; one that is empty is not written, one that is too long is cut (between two characters).
fn text(out: &mut Vec<u8>, code: u16, text: &str) {
    if !text.is_empty() {
        option(out, code, &text.as_bytes()[..text.floor_char_boundary(MAX_TEXT)]);
    }
}

fn number(out: &mut Vec<u8>, code: u16, number: Option<u64>) {
    if let Some(number) = number {
        option(out, code, &number.to_le_bytes());
    }
}

/// A time of pcapng: its high half first.
fn halves(ticks: u64) -> [u32; 2] {
    [(ticks >> 32) as u32, ticks as u32]
}

/// Writes a block of pcapng: its first words, the second of which becomes its length, bytes, and options, which are closed
/// when there are any.
#[inline]
fn block<const N: usize>(out: &mut Vec<u8>, head: [u32; N], body: &[u8], options: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put(out, head);
    out.extend_from_slice(body);
    pad(out, body.len());
    let before = out.len();
    options(out);
    if out.len() > before {
        put(out, [0]);
    }
    let length = (out.len() + 4 - start) as u32;
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    put(out, [length]);
}

/// Begins a section of pcapng (whose length is left open, so that it can grow).
pub fn section(out: &mut Vec<u8>, section: &Section) {
    let version = 1; // 1.0
    block(out, [SECTION, 0, MAGIC, version, u32::MAX, u32::MAX], &[], |out| {
        text(out, 1, &section.comment);
        text(out, 2, &section.hardware);
        text(out, 3, &section.os);
        text(out, 4, &section.application);
    });
}

/// Describes an interface of pcapng.
pub fn interface(out: &mut Vec<u8>, interface: &Interface) {
    block(out, [INTERFACE, 0, interface.link.0.into(), interface.snap], &[], |out| {
        text(out, 2, &interface.name);
        text(out, 3, &interface.description);
        option(out, 9, &[interface.resolution.0]);
        if !interface.filter.is_empty() {
            let filter = &interface.filter.as_bytes()[..interface.filter.floor_char_boundary(MAX_TEXT - 1)];
            option(out, 11, &[&[0], filter].concat());
        }
        text(out, 12, &interface.os);
        if interface.offset_s != 0 {
            option(out, 14, &interface.offset_s.to_le_bytes());
        }
        text(out, 15, &interface.hardware);
    });
}

/// Writes a frame of pcapng (an enhanced packet block). `resolution` is that of its interface.
///
/// # Panics
/// In debug builds, when the frame is longer than [`super::MAX_FRAME`].
#[inline]
pub fn frame(out: &mut Vec<u8>, frame: &NewFrame<'_>, resolution: Resolution) {
    let length = frame.bytes.len() as u32;
    debug_assert!(length <= super::MAX_FRAME);
    let [high, low] = halves(resolution.from_ns(frame.time_ns));
    let wire_length = frame.wire_length.max(length);
    block(out, [ENHANCED, 0, frame.interface, high, low, length, wire_length], frame.bytes, |out| {
        text(out, 1, frame.comment);
        if frame.direction != Direction::Unknown {
            option(out, 2, &(frame.direction as u32).to_le_bytes());
        }
        number(out, 4, frame.lost);
    });
}

/// Writes what was counted at an interface of pcapng. `resolution` is that of the interface.
pub fn statistics(out: &mut Vec<u8>, statistics: &Statistics, resolution: Resolution) {
    let ticks = |ns| halves(resolution.from_ns(ns));
    let moment = |out: &mut Vec<u8>, code, ns: Option<u64>| {
        if let Some(ns) = ns {
            option(out, code, ticks(ns).map(u32::to_le_bytes).as_flattened());
        }
    };
    let [high, low] = ticks(statistics.time_ns.unwrap_or(0));
    block(out, [STATISTICS, 0, statistics.interface, high, low], &[], |out| {
        text(out, 1, &statistics.comment);
        moment(out, 2, statistics.start_ns);
        moment(out, 3, statistics.end_ns);
        number(out, 4, statistics.received);
        number(out, 5, statistics.dropped);
        number(out, 6, statistics.accepted);
        number(out, 7, statistics.os_dropped);
        number(out, 8, statistics.delivered);
    });
}

/// Begins a pcap file. `nano`: times are in nanoseconds, else microseconds.
pub fn pcap_header(out: &mut Vec<u8>, link: Link, snap: u32, nano: bool) {
    // Version 2.4, then two fields that nobody uses.
    put(out, [if nano { NANO } else { MICRO }, 2 | 4 << 16, 0, 0, snap, link.0.into()]);
}

/// Writes a frame of pcap. Its seconds have 32 bits: a time after the year 2106 becomes the last one that fits.
///
/// # Panics
/// In debug builds, when the frame is longer than [`super::MAX_FRAME`].
#[inline]
pub fn pcap_frame(out: &mut Vec<u8>, frame: &NewFrame<'_>, nano: bool) {
    let length = frame.bytes.len() as u32;
    debug_assert!(length <= super::MAX_FRAME);
    let latest = u64::from(u32::MAX) * 1_000_000_000 + 999_999_999;
    let time = frame.time_ns.min(latest);
    let part = (time % 1_000_000_000) as u32;
    let part = if nano { part } else { part / 1000 };
    put(out, [(time / 1_000_000_000) as u32, part, length, frame.wire_length.max(length)]);
    out.extend_from_slice(frame.bytes);
}
