//! The reader: which format, and the records of the old one.

use super::{
    Damage, Direction, Fault, Format, Frame, Interface, Link, MAX_FRAME, Order, Resolution, SECTION, Section,
    Statistics, Words,
};

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Come again with at least so many bytes; when there are no more, say so with [`Reader::end`].
    Need(usize),
    /// Something was read.
    Item {
        /// Bytes that it took; the next call begins behind them.
        length: usize,
        /// What it is.
        item: Item,
    },
}

/// Something that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A section begins. The only interface of a pcap file is known with it.
    Section(Box<Section>),
    /// An interface became known: its index in [`Reader::interfaces`].
    Interface(u32),
    /// A frame.
    Frame(Frame),
    /// What was counted at an interface.
    Statistics(Box<Statistics>),
    /// A block that says nothing about frames: names, secrets, another program's own. Its type.
    Skipped(u32),
}

/// What kind of file it turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing was read.
    Unknown,
    Old(Old),
    /// The byte order of the section.
    Blocks(Order),
}

/// A file of the old format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Old {
    order: Order,
    nano: bool,
    /// Bytes of a record's header: 16, or 24 in the format of a patch of 1999 that added the interface and the kind.
    header: usize,
    lengths: Lengths,
}

/// The order of the two lengths of a record (`fix_caplen`/"swapped" of libpcap's `sf-pcap.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    WireFirst,
    /// Files of version 2.3 were written both ways: the shorter one is what was captured.
    ShorterCaptured,
}

const FILE_HEADER: usize = 24;
pub(super) const MICRO: u32 = 0xa1b2_c3d4;
pub(super) const NANO: u32 = 0xa1b2_3c4d;
const MODIFIED: u32 = 0xa1b2_cd34;

/// Reads a capture file that it is fed.
#[derive(Debug, Clone)]
pub struct Reader {
    kind: Kind,
    offset: u64,
    pub(super) interfaces: Vec<Interface>,
    /// Index of the first interface of this section.
    pub(super) base: usize,
    frames: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// A reader at the beginning of a file.
    pub fn new() -> Self {
        Reader { kind: Kind::Unknown, offset: 0, interfaces: vec![], base: 0, frames: 0 }
    }

    /// The interfaces of all sections so far.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// How many frames were read.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Where in the file the next record begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads one record, which begins with the first of the bytes.
    ///
    /// # Errors
    /// [`Damage`]; nothing behind it can be read.
    #[inline]
    pub fn step(&mut self, bytes: &[u8]) -> Result<Step, Damage> {
        let step = match self.kind {
            Kind::Old(old) => self.record(old, bytes),
            Kind::Blocks(order) => self.block(order, bytes),
            Kind::Unknown => self.begin(bytes),
        }?;
        if let Step::Item { length, item } = &step {
            self.offset += *length as u64;
            self.frames += u64::from(matches!(item, Item::Frame(_)));
        }
        Ok(step)
    }

    /// Says that the bytes that are left, fewer than the reader wanted, are the last.
    ///
    /// # Errors
    /// [`Damage`] when a record is cut off there, or nothing was there at all.
    pub fn end(&mut self, rest: &[u8]) -> Result<(), Damage> {
        if rest.is_empty() && self.kind != Kind::Unknown {
            return Ok(());
        }
        let what = if self.kind == Kind::Unknown { "file header" } else { "last record" };
        let need = match self.step(rest)? {
            Step::Need(need) => need as u64,
            // Nobody asks for the end before the last record was read; one that was is no damage.
            Step::Item { .. } => return Ok(()),
        };
        Err(self.damage(what, Fault::Truncated { need, have: rest.len() as u64 }))
    }

    /// A damage of the record that is being read.
    pub(super) fn damage(&self, what: Words, fault: Fault) -> Damage {
        Damage { offset: self.offset, what, fault }
    }

    /// A number that is none of those that it can be.
    pub(super) fn wrong(&self, what: Words, field: Words, value: impl Into<u64>, wanted: Words) -> Damage {
        self.damage(what, Fault::Value { field, value: value.into(), wanted })
    }

    /// A number that is larger than it can be.
    pub(super) fn too_large(&self, what: Words, field: Words, value: u32, limit: u64) -> Damage {
        self.damage(what, Fault::TooLarge { field, value: value.into(), limit })
    }

    pub(super) fn set_order(&mut self, order: Order) {
        self.kind = Kind::Blocks(order);
    }

    pub(super) fn order(&self) -> Order {
        match self.kind {
            Kind::Blocks(order) => order,
            Kind::Old(old) => old.order,
            Kind::Unknown => Order { big: false },
        }
    }

    fn begin(&mut self, bytes: &[u8]) -> Result<Step, Damage> {
        if bytes.len() < 4 {
            return Ok(Step::Need(4));
        }
        let little = Order { big: false }.u32(bytes, 0);
        if little == SECTION {
            return self.block(Order { big: false }, bytes);
        }
        let order = Order { big: little.swap_bytes() & 0xffff_0000 == 0xa1b2_0000 };
        let (nano, header) = match order.u32(bytes, 0) {
            MICRO => (false, 16),
            NANO => (true, 16),
            MODIFIED => (false, 24),
            _ => {
                let wanted = "that of a pcap or pcapng file";
                return Err(self.wrong("file header", "magic number", little.swap_bytes(), wanted));
            }
        };
        if bytes.len() < FILE_HEADER {
            return Ok(Step::Need(FILE_HEADER));
        }
        let (major, minor) = (order.u16(bytes, 4), order.u16(bytes, 6));
        let lengths = match (major, minor) {
            (2, 3) => Lengths::ShorterCaptured,
            (2, 0..=2) | (543, _) => Lengths::WireFirst,
            (2, _) => Lengths::CapturedFirst,
            _ => return Err(self.wrong("file header", "version", major, "2")),
        };
        let network = order.u32(bytes, 20);
        // Bit 26 says that the upper four bits tell the FCS's length, in units of 16 bits (draft-ietf-opsawg-pcap 4).
        let fcs = if network & 1 << 26 != 0 { (network >> 28) as u8 * 2 } else { 0 };
        let resolution = if nano { Resolution::NANO } else { Resolution::MICRO };
        let (link, snap) = (Link(network as u16), order.u32(bytes, 16));
        self.interfaces.push(Interface { link, snap, resolution, fcs, ..Interface::default() });
        self.kind = Kind::Old(Old { order, nano, header, lengths });
        let section = Section { format: Format::Pcap, big_endian: order.big, ..Section::default() };
        Ok(Step::Item { length: FILE_HEADER, item: Item::Section(Box::new(section)) })
    }

    #[inline]
    fn record(&mut self, old: Old, bytes: &[u8]) -> Result<Step, Damage> {
        if bytes.len() < old.header {
            return Ok(Step::Need(old.header));
        }
        let order = old.order;
        let (first, second) = (order.u32(bytes, 8), order.u32(bytes, 12));
        let (captured, wire) = match old.lengths {
            Lengths::CapturedFirst => (first, second),
            Lengths::WireFirst => (second, first),
            Lengths::ShorterCaptured => (first.min(second), first.max(second)),
        };
        if captured > MAX_FRAME {
            return Err(self.too_large("record", "captured length", captured, MAX_FRAME.into()));
        }
        let length = old.header + captured as usize;
        if bytes.len() < length {
            return Ok(Step::Need(length));
        }
        let scale = if old.nano { 1 } else { 1000 };
        let time = u64::from(order.u32(bytes, 0)) * 1_000_000_000 + u64::from(order.u32(bytes, 4)) * scale;
        // `PACKET_OUTGOING` of linux/if_packet.h, behind the interface's index and the protocol.
        let out = old.header == 24 && bytes[22] == 4;
        let frame = Frame {
            bytes: old.header..length,
            wire_length: wire.max(captured),
            time_ns: Some(time),
            direction: if out { Direction::Out } else { Direction::Unknown },
            ..Frame::default()
        };
        let item = Item::Frame(without_fcs(frame, self.interfaces[0].fcs));
        Ok(Step::Item { length, item })
    }
}

/// Takes the frame check sequence off a frame: as much of it as was captured.
#[inline]
pub(super) fn without_fcs(mut frame: Frame, fcs: u8) -> Frame {
    if fcs > 0 {
        frame.wire_length = frame.wire_length.saturating_sub(fcs.into());
        let captured = frame.bytes.len().min(frame.wire_length as usize);
        frame.bytes.end = frame.bytes.start + captured;
    }
    frame
}
