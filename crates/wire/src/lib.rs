//! Bytes and headers.
//!
//! **What.** Checked views over the headers that pathlab meets ([`frame`]), whole frames ([`mod@build`]), the headers of any frame as a switch sees
//! them ([`headers`]), their fields ([`field`]) and as its actions change them ([`edit`]), ICMP echo ([`icmp`]), the internet checksum
//! ([`checksum`]), SCTP's ([`crc32c`]), what a sender left to the hardware ([`offload`]), one line of text for any frame
//! ([`text`]), capture files ([`pcap`]), the header that every test message carries ([`message`]) and the one of the
//! kernel's packet generator ([`pktgen`]).
//!
//! **Why.** A view checks lengths once, when it is made; after that no accessor can fail. So the code above it reads
//! as if frames were never damaged, and bytes from outside cannot cause a panic.
//!
//! **Price.** Views borrow the bytes and decode a field each time it is asked for. No I/O, no clock, no `unsafe`,
//! no dependencies.

pub mod build;
pub mod checksum;
pub mod crc32c;
pub mod edit;
pub mod field;
pub mod filter;
pub mod frame;
pub mod headers;
pub mod icmp;
pub mod layers;
pub mod message;
pub mod offload;
pub mod pcap;
pub mod pktgen;
pub mod repair;
pub mod text;

use std::fmt;

/// Why bytes are not the header that they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than the header needs.
    Truncated {
        /// The header, e.g. `IPv4`.
        header: &'static str,
        /// Bytes that it needs.
        need: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// A field has a value that the header cannot have.
    Field {
        /// The header, e.g. `IPv4`.
        header: &'static str,
        /// The field, e.g. `version`.
        field: &'static str,
        /// What it says.
        value: u32,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Malformed::Truncated { header, need, have } => {
                write!(f, "{header} cut short: {have} of {need} bytes")
            }
            Malformed::Field { header, field, value } => write!(f, "{header} with {field} {value}"),
        }
    }
}

impl std::error::Error for Malformed {}

/// Refuses with this error what is so; checks stand below each other, one a line.
pub fn refuse_if<E>(is_so: bool, error: E) -> Result<(), E> {
    if is_so { Err(error) } else { Ok(()) }
}

/// `Ok` when `bytes` holds at least `need` bytes.
fn at_least(header: &'static str, bytes: &[u8], need: usize) -> Result<(), Malformed> {
    refuse_if(bytes.len() < need, Malformed::Truncated { header, need, have: bytes.len() })
}

/// The big-endian 16-bit word at `at`; the caller has checked the length.
fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
