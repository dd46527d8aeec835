//! What files are made of, appended to a buffer. Numbers have their lowest byte first.

use super::blocks::{ENHANCED, INTERFACE, MAGIC, SECTION, STATISTICS};
use super::{Direction, Interface, Link, Resolution, Section, Statistics};

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

fn put32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
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

fn time(out: &mut Vec<u8>, ticks: u64) {
    put32(out, (ticks >> 32) as u32);
    put32(out, ticks as u32);
}

/// Writes a block of pcapng around what `body` writes; options are closed when there are any.
fn block(out: &mut Vec<u8>, kind: u32, fixed: impl FnOnce(&mut Vec<u8>), options: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put32(out, kind);
    put32(out, 0);
    fixed(out);
    let before = out.len();
    options(out);
    if out.len() > before {
        put32(out, 0);
    }
    let length = (out.len() + 4 - start) as u32;
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    put32(out, length);
}

/// Begins a section of pcapng (whose length is left open, so that it can grow).
pub fn section(out: &mut Vec<u8>, section: &Section) {
    let fixed = |out: &mut Vec<u8>| {
        put32(out, MAGIC);
        put32(out, 1); // version 1.0
        out.extend_from_slice(&u64::MAX.to_le_bytes());
    };
    block(out, SECTION, fixed, |out| {
        text(out, 1, &section.comment);
        text(out, 2, &section.hardware);
        text(out, 3, &section.os);
        text(out, 4, &section.application);
    });
}

/// Describes an interface of pcapng.
pub fn interface(out: &mut Vec<u8>, interface: &Interface) {
    let fixed = |out: &mut Vec<u8>| {
        put32(out, interface.link.0.into());
        put32(out, interface.snap);
    };
    block(out, INTERFACE, fixed, |out| {
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
    let length = frame.bytes.len();
    debug_assert!(length <= super::MAX_FRAME as usize);
    let comment = &frame.comment.as_bytes()[..frame.comment.floor_char_boundary(MAX_TEXT)];
    let some = frame.direction != Direction::Unknown || frame.lost.is_some() || !comment.is_empty();
    let options = if some { options_length(frame, comment) } else { 0 };
    let total = (28 + length.next_multiple_of(4) + options + 4) as u32;
    let ticks = resolution.from_ns(frame.time_ns);
    let mut head = [0; 28];
    let fields = [
        ENHANCED,
        total,
        frame.interface,
        (ticks >> 32) as u32,
        ticks as u32,
        length as u32,
        frame.wire_length.max(length as u32),
    ];
    for (place, field) in head.chunks_exact_mut(4).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&head);
    out.extend_from_slice(frame.bytes);
    pad(out, length);
    if some {
        frame_options(out, frame, comment);
    }
    put32(out, total);
}

/// Bytes of the options of a frame, their end included.
fn options_length(frame: &NewFrame<'_>, comment: &[u8]) -> usize {
    let flags = if frame.direction == Direction::Unknown { 0 } else { 8 };
    let lost = if frame.lost.is_some() { 12 } else { 0 };
    let comment = if comment.is_empty() { 0 } else { 4 + comment.len().next_multiple_of(4) };
    flags + lost + comment + 4
}

fn frame_options(out: &mut Vec<u8>, frame: &NewFrame<'_>, comment: &[u8]) {
    if !comment.is_empty() {
        option(out, 1, comment);
    }
    match frame.direction {
        Direction::Unknown => {}
        Direction::In => option(out, 2, &1u32.to_le_bytes()),
        Direction::Out => option(out, 2, &2u32.to_le_bytes()),
    }
    number(out, 4, frame.lost);
    put32(out, 0);
}

/// Writes what was counted at an interface of pcapng. `resolution` is that of the interface.
pub fn statistics(out: &mut Vec<u8>, statistics: &Statistics, resolution: Resolution) {
    let ticks = |ns| resolution.from_ns(ns);
    let fixed = |out: &mut Vec<u8>| {
        put32(out, statistics.interface);
        time(out, ticks(statistics.time_ns.unwrap_or(0)));
    };
    let moment = |out: &mut Vec<u8>, code, ns: Option<u64>| {
        if let Some(ns) = ns {
            let mut value = Vec::with_capacity(8);
            time(&mut value, ticks(ns));
            option(out, code, &value);
        }
    };
    block(out, STATISTICS, fixed, |out| {
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
    let magic: u32 = if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    // Version 2.4, then two fields that nobody uses.
    for field in [magic, 2 | 4 << 16, 0, 0, snap, link.0.into()] {
        put32(out, field);
    }
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
    let fields = [
        (time / 1_000_000_000) as u32,
        if nano { part } else { part / 1000 },
        length,
        frame.wire_length.max(length),
    ];
    let mut head = [0; 16];
    for (place, field) in head.chunks_exact_mut(4).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&head);
    out.extend_from_slice(frame.bytes);
}
