//! The blocks of pcapng.

use super::read::{Item, Reader, Step, without_fcs};
use super::{
    Damage, Direction, Fault, Format, Frame, Interface, Link, MAX_BLOCK, MAX_FRAME, Order, Resolution,
    SECTION, Section, Statistics,
};
use std::ops::Range;

pub(super) const INTERFACE: u32 = 1;
pub(super) const OLD_PACKET: u32 = 2;
pub(super) const SIMPLE: u32 = 3;
pub(super) const STATISTICS: u32 = 5;
pub(super) const ENHANCED: u32 = 6;
pub(super) const MAGIC: u32 = 0x1a2b_3c4d;

/// Bytes around a block's body: type and length before it, the length again behind it.
const HEAD: usize = 8;
const TAIL: usize = 4;

/// The name of a block for people, and the bytes that its body has at least.
fn named(kind: u32) -> (&'static str, usize) {
    match kind {
        SECTION => ("section header block", 16),
        INTERFACE => ("interface description block", 8),
        OLD_PACKET => ("packet block", 20),
        SIMPLE => ("simple packet block", 4),
        STATISTICS => ("interface statistics block", 12),
        ENHANCED => ("enhanced packet block", 20),
        _ => ("block", 0),
    }
}

fn padded(length: u32) -> u64 {
    u64::from(length).next_multiple_of(4)
}

/// What a frame's block says before the bytes.
struct Before {
    what: &'static str,
    interface: u32,
    time: Option<u64>,
    captured: u32,
    wire: u32,
    lost: Option<u64>,
    /// Where the bytes begin.
    from: usize,
}

impl Reader {
    #[inline]
    pub(super) fn block(&mut self, order: Order, bytes: &[u8]) -> Result<Step, Damage> {
        if bytes.len() < HEAD + TAIL {
            return Ok(Step::Need(HEAD + TAIL));
        }
        let mut order = order;
        let kind = order.u32(bytes, 0);
        if kind == SECTION {
            order = self.section_order(bytes)?;
        }
        let (what, least) = named(kind);
        let length = order.u32(bytes, 4);
        if length > MAX_BLOCK {
            return Err(self.too_large(what, "length", length, MAX_BLOCK.into()));
        }
        let length = length as usize;
        if length < HEAD + least + TAIL || !length.is_multiple_of(4) {
            let wanted = "a multiple of 4 that its fields fit into";
            return Err(self.wrong(what, "length", length as u64, wanted));
        }
        if bytes.len() < length {
            return Ok(Step::Need(length));
        }
        let again = order.u32(bytes, length - TAIL);
        if again as usize != length {
            return Err(self.wrong(what, "length at its end", again, "the length at its beginning"));
        }
        let item = self.body(order, kind, &bytes[..length - TAIL])?;
        Ok(Step::Item { length, item })
    }

    fn section_order(&self, bytes: &[u8]) -> Result<Order, Damage> {
        match (Order { big: false }).u32(bytes, 8) {
            MAGIC => Ok(Order { big: false }),
            magic if magic.swap_bytes() == MAGIC => Ok(Order { big: true }),
            magic => Err(self.wrong("section header block", "byte order", magic, "0x1a2b3c4d either way")),
        }
    }

    /// Reads a block without its last length; it is at least as long as `named` says.
    #[inline]
    fn body(&mut self, order: Order, kind: u32, bytes: &[u8]) -> Result<Item, Damage> {
        let what = named(kind).0;
        match kind {
            ENHANCED | OLD_PACKET => {
                let (interface, lost) = match kind {
                    ENHANCED => (order.u32(bytes, 8), None),
                    // All ones: not known.
                    _ => (
                        order.u16(bytes, 8).into(),
                        Some(order.u16(bytes, 10)).filter(|lost| *lost != u16::MAX),
                    ),
                };
                let (captured, wire) = (order.u32(bytes, 20), order.u32(bytes, 24));
                let (time, lost) = (Some(order.time(bytes, 12)), lost.map(u64::from));
                self.frame(order, bytes, &Before { what, interface, time, captured, wire, lost, from: 28 })
            }
            SIMPLE => {
                let wire = order.u32(bytes, 8);
                let snap = self.interfaces.get(self.base).map_or(0, |interface| interface.snap);
                let captured = if snap == 0 { wire } else { wire.min(snap) };
                let before = Before { what, interface: 0, time: None, captured, wire, lost: None, from: 12 };
                self.frame(order, bytes, &before)
            }
            SECTION => self.section(order, bytes),
            INTERFACE => self.interface(order, bytes),
            STATISTICS => self.statistics(order, bytes),
            other => Ok(Item::Skipped(other)),
        }
    }

    #[inline]
    fn frame(&mut self, order: Order, bytes: &[u8], before: &Before) -> Result<Item, Damage> {
        let &Before { what, captured, from, .. } = before;
        let index = self.known(what, before.interface)?;
        let room = (bytes.len() - from) as u64;
        // A cut-off block cannot hold the frame; a frame above the limit is refused whatever its block holds.
        let limit = u64::from(MAX_FRAME).min(room);
        if u64::from(captured) > limit || padded(captured) > room {
            return Err(self.too_large(what, "captured length", captured, limit));
        }
        let interface = &self.interfaces[index];
        let mut fcs = interface.fcs;
        let to_ns = |ticks| interface.resolution.to_ns(ticks, interface.offset_s);
        let mut frame = Frame {
            bytes: from..from + captured as usize,
            wire_length: before.wire.max(captured),
            time_ns: before.time.and_then(to_ns),
            interface: index as u32,
            direction: Direction::Unknown,
            lost: before.lost,
            // A simple block has no options; what is behind its bytes is padding.
            options: if before.time.is_some() { from + padded(captured) as usize..bytes.len() } else { 0..0 },
        };
        if !frame.options.is_empty() {
            self.frame_options(order, bytes, what, &mut frame, &mut fcs)?;
        }
        Ok(Item::Frame(without_fcs(frame, fcs)))
    }

    fn frame_options(
        &self,
        order: Order,
        bytes: &[u8],
        what: &'static str,
        frame: &mut Frame,
        fcs: &mut u8,
    ) -> Result<(), Damage> {
        self.options(what, order, &bytes[frame.options.clone()], |code, value| match (code, value.len()) {
            (2, 4) => {
                let flags = order.u32(value, 0);
                frame.direction = match flags & 3 {
                    1 => Direction::In,
                    2 => Direction::Out,
                    _ => Direction::Unknown,
                };
                // Bits 5 to 8: bytes of FCS; 0 says nothing.
                let length = (flags >> 5 & 15) as u8;
                *fcs = if length > 0 { length } else { *fcs };
            }
            (4, 8) => frame.lost = Some(order.u64(value, 0)),
            _ => {}
        })
    }

    /// The comment of a frame that [`Reader::step`] just found in these bytes.
    pub fn comment<'a>(&self, bytes: &'a [u8], frame: &Frame) -> Option<&'a [u8]> {
        let mut options = Options { order: self.order(), bytes: bytes.get(frame.options.clone())? };
        while let Ok(Some((code, value))) = options.next() {
            if code == 1 {
                return Some(value);
            }
        }
        None
    }

    fn known(&self, what: &'static str, number: u32) -> Result<usize, Damage> {
        let count = self.interfaces.len() - self.base;
        if (number as usize) < count {
            return Ok(self.base + number as usize);
        }
        Err(self.wrong(what, "interface", number, "one of the section's interfaces"))
    }

    /// Hands every option to `take`, with its code.
    fn options<'a>(
        &self,
        what: &'static str,
        order: Order,
        bytes: &'a [u8],
        mut take: impl FnMut(u16, &'a [u8]),
    ) -> Result<(), Damage> {
        let mut options = Options { order, bytes };
        while let Some((code, value)) = options.next().map_err(|fault| self.damage(what, fault))? {
            take(code, value);
        }
        Ok(())
    }

    fn section(&mut self, order: Order, bytes: &[u8]) -> Result<Item, Damage> {
        let what = "section header block";
        let major = order.u16(bytes, 12);
        if major != 1 {
            return Err(self.wrong(what, "version", major, "1"));
        }
        let mut section = Section { format: Format::Pcapng, big_endian: order.big, ..Section::default() };
        self.options(what, order, &bytes[24..], |code, value| match code {
            1 => section.comment = text(value),
            2 => section.hardware = text(value),
            3 => section.os = text(value),
            4 => section.application = text(value),
            _ => {}
        })?;
        self.set_order(order);
        self.base = self.interfaces.len();
        Ok(Item::Section(Box::new(section)))
    }

    fn interface(&mut self, order: Order, bytes: &[u8]) -> Result<Item, Damage> {
        let mut new =
            Interface { link: Link(order.u16(bytes, 8)), snap: order.u32(bytes, 12), ..Interface::default() };
        self.options("interface description block", order, &bytes[16..], |code, value| {
            match (code, value) {
                (2, _) => new.name = text(value),
                (3, _) => new.description = text(value),
                (9, &[resolution]) => new.resolution = Resolution(resolution),
                // A filter's first byte says what it is: 0 is text.
                (11, [0, filter @ ..]) => new.filter = text(filter),
                (12, _) => new.os = text(value),
                // The draft says bits and gives 4 as its example; Wireshark takes bytes. No FCS has 4 bits.
                (13, &[length]) => new.fcs = if length >= 8 { length / 8 } else { length },
                (14, value) if value.len() == 8 => new.offset_s = order.u64(value, 0) as i64,
                (15, _) => new.hardware = text(value),
                _ => {}
            }
        })?;
        self.interfaces.push(new);
        Ok(Item::Interface(self.interfaces.len() as u32 - 1))
    }

    fn statistics(&mut self, order: Order, bytes: &[u8]) -> Result<Item, Damage> {
        let what = "interface statistics block";
        let index = self.known(what, order.u32(bytes, 8))?;
        let interface = &self.interfaces[index];
        let ns = |ticks| interface.resolution.to_ns(ticks, interface.offset_s);
        let time_ns = ns(order.time(bytes, 12));
        let mut new = Statistics { interface: index as u32, time_ns, ..Statistics::default() };
        self.options(what, order, &bytes[20..], |code, value| {
            if code == 1 {
                new.comment = text(value);
            }
            if value.len() != 8 {
                return;
            }
            let number = Some(order.u64(value, 0));
            match code {
                2 => new.start_ns = ns(order.time(value, 0)),
                3 => new.end_ns = ns(order.time(value, 0)),
                4 => new.received = number,
                5 => new.dropped = number,
                6 => new.accepted = number,
                7 => new.os_dropped = number,
                8 => new.delivered = number,
                _ => {}
            }
        })?;
        Ok(Item::Statistics(Box::new(new)))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

/// The options behind the fields of a block.
struct Options<'a> {
    order: Order,
    bytes: &'a [u8],
}

impl<'a> Options<'a> {
    /// The next option, none behind the last.
    fn next(&mut self) -> Result<Option<(u16, &'a [u8])>, Fault> {
        if self.bytes.len() < 4 {
            return Ok(None);
        }
        let (code, length) = (self.order.u16(self.bytes, 0), self.order.u16(self.bytes, 2));
        if code == 0 {
            self.bytes = &[];
            return Ok(None);
        }
        let value: Range<usize> = 4..4 + usize::from(length);
        let Some(found) = self.bytes.get(value.clone()) else {
            let limit = self.bytes.len() as u64 - 4;
            return Err(Fault::TooLarge { field: "option's length", value: length.into(), limit });
        };
        // The body is a multiple of 4, so the padding is there when the value is; `get` holds without that, too.
        self.bytes = self.bytes.get(value.end.next_multiple_of(4)..).unwrap_or_default();
        Ok(Some((code, found)))
    }
}
