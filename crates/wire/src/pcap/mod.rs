//! Capture files: pcap and pcapng, bytes ↔ frames and what is said about them.
//!
//! **What.** A [`Reader`] that is fed bytes and says where in them the next frame lies; functions that append to a
//! buffer what a file consists of ([`write`]). Both formats, both byte orders, several sections and interfaces.
//! The formats are described in draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; where programs differ from the
//! drafts (the old `pcap` variants), what libpcap reads is read here.
//!
//! **Why so.** No I/O: who calls holds the buffer, so a frame is used where the file's bytes were read to, and the
//! same code reads a file, a pipe, a decompressor and a fuzzer's bytes. An error names the byte where it is
//! ([`Damage`]), because whoever has a damaged capture wants to cut it there; everything before it was delivered.
//! `docs/decisions/0008-capture-files.md` says why this is not somebody else's library.
//!
//! **Price.** A record must lie in one piece in the caller's buffer. Lengths are refused before anyone allocates for
//! them: frames above [`MAX_FRAME`] (what libpcap takes), blocks above [`MAX_BLOCK`].

mod blocks;
mod read;
pub mod write;

#[cfg(test)]
mod build;
#[cfg(test)]
mod tests;

pub use read::{Item, Reader, Step};

use std::fmt;
use std::ops::Range;

/// The type of the block that every pcapng file begins with; its bytes read alike in both orders.
const SECTION: u32 = 0x0a0d_0d0a;

/// The most bytes of a frame (`MAXIMUM_SNAPLEN` of libpcap).
pub const MAX_FRAME: u32 = 262_144;
/// The most bytes of a pcapng block (libpcap's limit, too).
pub const MAX_BLOCK: u32 = 16 << 20;

/// The two formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// The old one: one interface, frames and nothing else.
    Pcap,
    /// The new one: sections, interfaces, frames, statistics.
    #[default]
    Pcapng,
}

impl Format {
    /// `pcap` or `pcapng`.
    pub fn name(self) -> &'static str {
        match self {
            Format::Pcap => "pcap",
            Format::Pcapng => "pcapng",
        }
    }
}

/// What the frames of an interface begin with (a `LINKTYPE_` value).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Link(pub u16);

impl Link {
    /// Ethernet, without FCS unless the interface says so.
    pub const ETHERNET: Link = Link(1);
    /// Linux cooked capture.
    pub const LINUX_SLL: Link = Link(113);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: Link = Link(276);
}

impl Default for Link {
    fn default() -> Self {
        Link::ETHERNET
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "BSD loopback",
            1 => "Ethernet",
            9 => "PPP",
            // 12 and 14 are what raw IP is called in files of some BSDs.
            12 | 14 | 101 => "raw IP",
            105 => "IEEE 802.11",
            108 => "OpenBSD loopback",
            113 => "Linux cooked (SLL)",
            127 => "radiotap",
            228 => "raw IPv4",
            229 => "raw IPv6",
            276 => "Linux cooked (SLL2)",
            other => return write!(f, "link type {other}"),
        })
    }
}

/// What one tick of a time is: `if_tsresol` of pcapng. 10⁻ⁿ s, or 2⁻ⁿ s when the highest bit is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolution(pub u8);

impl Resolution {
    /// Microseconds.
    pub const MICRO: Resolution = Resolution(6);
    /// Nanoseconds.
    pub const NANO: Resolution = Resolution(9);

    /// Nanoseconds since 1970 for a count of ticks that begins `offset_s` seconds after 1970; none when that is not
    /// within 1970 to 2554. Finer ticks than nanoseconds are rounded down.
    #[inline]
    pub fn to_ns(self, ticks: u64, offset_s: i64) -> Option<u64> {
        // Nanoseconds without offset are what most files have.
        if self == Self::NANO && offset_s == 0 {
            return Some(ticks);
        }
        let power = u32::from(self.0 & 0x7f);
        let ns = if self.0 & 0x80 != 0 {
            // Below 2⁹⁴, so it cannot overflow.
            (u128::from(ticks) * 1_000_000_000) >> power
        } else if power <= 9 {
            u128::from(ticks) * 10u128.pow(9 - power)
        } else {
            // A divisor beyond 128 bits leaves nothing.
            10u128.checked_pow(power - 9).map_or(0, |divisor| u128::from(ticks) / divisor)
        };
        let ns = i128::try_from(ns).ok()? + i128::from(offset_s) * 1_000_000_000;
        u64::try_from(ns).ok()
    }

    /// Ticks for nanoseconds since 1970, rounded down; the most that 64 bits hold where they do not suffice.
    #[inline]
    pub fn from_ns(self, ns: u64) -> u64 {
        let power = u32::from(self.0 & 0x7f);
        let ticks = if self.0 & 0x80 != 0 {
            // A power above 64 cannot fit for any time but 0.
            (u128::from(ns) << power.min(64)) / 1_000_000_000
        } else if power <= 9 {
            u128::from(ns) / 10u128.pow(9 - power)
        } else {
            u128::from(ns).saturating_mul(10u128.saturating_pow(power - 9))
        };
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

impl Default for Resolution {
    /// Microseconds: what pcapng means when it says nothing.
    fn default() -> Self {
        Resolution::MICRO
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 & 0x80 != 0, self.0 & 0x7f) {
            (false, 0) => f.write_str("s"),
            (false, 3) => f.write_str("ms"),
            (false, 6) => f.write_str("us"),
            (false, 9) => f.write_str("ns"),
            (false, power) => write!(f, "10^-{power} s"),
            (true, power) => write!(f, "2^-{power} s"),
        }
    }
}

/// Who wrote a section, and how. Texts are empty when they are not there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Section {
    /// The format.
    pub format: Format,
    /// Numbers have their highest byte first.
    pub big_endian: bool,
    /// The machine.
    pub hardware: String,
    /// The operating system.
    pub os: String,
    /// The program.
    pub application: String,
    /// What somebody wrote beside it.
    pub comment: String,
}

/// Where frames were captured. Texts are empty when they are not there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    /// What its frames begin with.
    pub link: Link,
    /// Bytes after which frames were cut; 0: not limited.
    pub snap: u32,
    /// Its name.
    pub name: String,
    /// What it is; pathlab says here which clock stamped the frames.
    pub description: String,
    /// Its hardware.
    pub hardware: String,
    /// The filter that frames had to pass.
    pub filter: String,
    /// The operating system that it belonged to.
    pub os: String,
    /// What one tick of its times is.
    pub resolution: Resolution,
    /// Seconds to add to every time.
    pub offset_s: i64,
    /// Bytes of the frame check sequence behind every frame; a [`Frame`] does not include them.
    pub fcs: u8,
}

/// Which way a frame passed the interface, with the numbers of `epb_flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// The file does not say.
    #[default]
    Unknown = 0,
    /// It came in.
    In = 1,
    /// The host sent it.
    Out = 2,
}

/// One frame of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// Where its bytes lie in the bytes that the reader was given.
    pub bytes: Range<usize>,
    /// Bytes that it had on the wire, without FCS; at least the bytes that are here.
    pub wire_length: u32,
    /// When it passed, in nanoseconds since 1970; none when the file does not say, or nothing that 64 bits hold.
    pub time_ns: Option<u64>,
    /// Which interface, as an index into [`Reader::interfaces`].
    pub interface: u32,
    /// Which way.
    pub direction: Direction,
    /// Frames lost between the one before (on this interface) and this one, if the file says so.
    pub lost: Option<u64>,
    /// Where its options lie.
    pub(crate) options: Range<usize>,
}

/// What was counted at an interface until some time. What the file does not say is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Which interface, as an index into [`Reader::interfaces`].
    pub interface: u32,
    /// When these were counted, in nanoseconds since 1970.
    pub time_ns: Option<u64>,
    /// When the capture began.
    pub start_ns: Option<u64>,
    /// When the capture ended.
    pub end_ns: Option<u64>,
    /// Frames that the interface received (`isb_ifrecv`).
    pub received: Option<u64>,
    /// Frames that the interface dropped for want of room (`isb_ifdrop`).
    pub dropped: Option<u64>,
    /// Frames that the filter let pass (`isb_filteraccept`).
    pub accepted: Option<u64>,
    /// Frames that the operating system dropped (`isb_osdrop`).
    pub os_dropped: Option<u64>,
    /// Frames that were handed to the program (`isb_usrdeliv`).
    pub delivered: Option<u64>,
    /// What somebody wrote beside it.
    pub comment: String,
}

/// What something is called.
type Words = &'static str;

/// Why bytes are not the file that they should be, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// First byte of the damaged thing, counted from the beginning of the (uncompressed) file.
    pub offset: u64,
    /// What it is, e.g. `enhanced packet block`.
    pub what: Words,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The file ends within it.
    Truncated {
        /// Bytes that it needs (as far as that is known).
        need: u64,
        /// Bytes that there are.
        have: u64,
    },
    /// A number is larger than it can be.
    TooLarge {
        /// The number's name.
        field: &'static str,
        /// The number.
        value: u64,
        /// The most that it can be.
        limit: u64,
    },
    /// A number is none of those that it can be.
    Value {
        /// The number's name.
        field: &'static str,
        /// The number.
        value: u64,
        /// What it should be.
        wanted: &'static str,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { offset, what, fault } = self;
        match fault {
            Fault::Truncated { need, have } => {
                write!(
                    f,
                    "the file ends within the {what} at byte {offset}: {have} of at least {need} bytes are there"
                )
            }
            Fault::TooLarge { field, value, limit } => {
                write!(f, "the {what} at byte {offset} is damaged: its {field} is {value}, more than {limit}")
            }
            Fault::Value { field, value, wanted } => {
                write!(f, "the {what} at byte {offset} is damaged: its {field} is {value:#x}, not {wanted}")
            }
        }
    }
}

impl std::error::Error for Damage {}

/// Numbers in the byte order of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub big: bool,
}

impl Order {
    /// The 16-bit number at `at`; the caller has checked the length, as for the others.
    #[inline]
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let word = [bytes[at], bytes[at + 1]];
        if self.big { u16::from_be_bytes(word) } else { u16::from_le_bytes(word) }
    }

    #[inline]
    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let (first, second) = (u64::from(self.u32(bytes, at)), u64::from(self.u32(bytes, at + 4)));
        if self.big { first << 32 | second } else { second << 32 | first }
    }

    /// A time of pcapng: its high half first in both byte orders.
    #[inline]
    fn time(self, bytes: &[u8], at: usize) -> u64 {
        u64::from(self.u32(bytes, at)) << 32 | u64::from(self.u32(bytes, at + 4))
    }
}
