//! What OpenFlow's actions do to the bytes of a frame: set any field, push and pop tags, count down and copy TTLs.
//!
//! **What.** A [`FrameBuf`] has room in front, and keeps its headers and its [`Offload`] true after each edit; fields and TTLs
//! are written in place. Every edit is made whole or [`Refused`]; refused, the bytes are as they were.
//!
//! **Why.** Checksums stay right without being summed again: RFC 1624 computes the new one from the old one and the words
//! that changed. This is not only faster. A frame whose checksum was wrong leaves with a checksum that is wrong by the
//! same amount, so a damaged frame is never made to look whole; and the first fragment of a datagram, whose checksum
//! covers bytes of other frames, can be edited like any other. The slow twin in the tests sums everything from scratch.
//!
//! **The standards.** OpenFlow 1.3.5 section 5.12 says what an action does, table 6 there which fields a push copies. New
//! tags go directly behind the Ethernet addresses, MPLS too, in front of VLAN tags ("immediately after the Ethernet
//! header and before other tags"). RFC 768: a UDP checksum of zero means none and stays; a sum that comes out as zero is
//! sent as ones. RFC 8200 section 8.1: with a routing header that has still to be travelled the checksum counts the last
//! address of that header, so a change of the IPv6 destination does not touch it. A later fragment has no transport
//! header, and none is seen or changed. Setting the IP protocol changes the pseudo header of the checksum that was there,
//! at the place where the former protocol has it: the bytes stay what they were, only their name changes.
//!
//! **What the hardware was to do.** A checksum that its sender left unfinished ([`Partial`]) holds the sum of the pseudo
//! header, not complemented: it follows the addresses, and leaves ports to who finishes it.
//!
//! **Price.** SCTP's CRC covers everything and has no such algebra without the distance to the end: the packet is summed
//! twice per edit (so that here, too, wrong stays wrong), and ports in the first fragment, or in a cut frame, cannot be
//! set ([`Refused::Checksum`]). What an authentication header signs is not looked at: no switch can sign it again. The
//! final destination of an IPv4 source route is not followed into the pseudo header; nobody forwards these.

mod buffer;
mod sum;

pub use buffer::{FrameBuf, HEADROOM, LONGEST, SHORTEST};

use crate::checksum::Sum;
use crate::headers::{Field, Headers, Spot, TAG, VLAN_PRESENT};
use crate::layers::Layers;
use crate::offload::Partial;
use crate::refuse_if;
use std::fmt;
use std::ops::Range;

#[cfg(doc)]
use crate::offload::Offload;

/// Why an edit was not made. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The frame has no such header, or it is cut.
    Absent,
    /// The field cannot be written: [`Field::Ipv6Exthdr`].
    ReadOnly,
    /// The value has more bits than the field, or a VLAN without the bit 0x1000.
    Value,
    /// Not an ethertype of such a tag.
    Ethertype,
    /// The TTL is 0, or would be: the frame is to be dropped or handed to the controller (OpenFlow 1.3.5 section 5.12).
    Expired,
    /// The frame would be longer than [`LONGEST`].
    TooLong,
    /// The checksum covers bytes that are not in this frame, and cannot follow the change: SCTP in a fragment.
    Checksum,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Absent => "the frame has no such header",
            Refused::ReadOnly => "the field cannot be written",
            Refused::Value => "the value does not fit the field",
            Refused::Ethertype => "not an ethertype of such a tag",
            Refused::Expired => "the TTL has expired",
            Refused::TooLong => "the frame would be longer than 65535 bytes",
            Refused::Checksum => "the checksum covers bytes that are not in this frame",
        })
    }
}

impl std::error::Error for Refused {}

impl Spot {
    /// Writes the field; the bits around it stay. The caller has checked value and place.
    fn write(self, frame: &mut [u8], value: u128) {
        let bytes = &mut frame[self.at..self.at + usize::from(self.bytes)];
        let word = bytes.iter().fold(0, |word, byte| word << 8 | u128::from(*byte));
        let new = word & !(self.mask() << self.shift) | value << self.shift;
        bytes.iter_mut().rev().enumerate().for_each(|(i, byte)| *byte = (new >> (8 * i)) as u8);
    }
}

/// Writes a field and mends every checksum that covers it. `headers` are those of this frame, `partial` the checksum
/// that was left to the hardware. After [`Field::EthType`], [`Field::IpProto`] or [`Field::Icmpv6Type`] the frame has
/// other headers: parse again.
fn set(
    frame: &mut [u8],
    headers: &Headers,
    partial: Option<Partial>,
    field: Field,
    value: u128,
) -> Result<(), Refused> {
    let nowhere = if field == Field::Ipv6Exthdr { Refused::ReadOnly } else { Refused::Absent };
    let spot = headers.spot(field).ok_or(nowhere)?;
    let value = match field {
        Field::VlanVid => value.checked_sub(u128::from(VLAN_PRESENT)).ok_or(Refused::Value)?,
        _ => value,
    };
    refuse_if(value & !spot.mask() != 0, Refused::Value)?;
    match headers.ip() {
        Some(ip) => set_in_ip(frame, headers, ip, partial, field, spot, value),
        None => {
            spot.write(frame, value);
            Ok(())
        }
    }
}

fn set_in_ip(
    frame: &mut [u8],
    headers: &Headers,
    ip: &Layers,
    partial: Option<Partial>,
    field: Field,
    spot: Spot,
    value: u128,
) -> Result<(), Refused> {
    let transport = sum::Transport::of(headers, partial);
    let is_transport = headers.transport().is_some_and(|(_, at)| spot.at >= at);
    let crc = match &transport {
        Some(transport) if is_transport => transport.crc_before(frame, ip)?,
        _ => None,
    };
    let words = words(headers, spot);
    let old = frame.get(words.clone()).map_or(Sum::new(), |old| Sum::new().add_bytes(old));
    let old_protocol = frame[ip.protocol_at];
    spot.write(frame, value);
    if spot.at < headers.payload() {
        return Ok(());
    }
    // RFC 1624 equation 3: the complement of a sum is the sum with its sign turned.
    let change = Sum::new().add_word(old.finish()).add_bytes(&frame[words]);
    if !ip.is_v6 && spot.at < ip.transport {
        sum::mend_header(frame, ip.network, change);
    }
    let Some(transport) = transport else { return Ok(()) };
    match field {
        Field::IpProto => {
            let change = Sum::new().add_word(!u16::from(old_protocol)).add_word(value as u16);
            transport.follow_pseudo(frame, ip, change);
        }
        Field::Ipv4Src | Field::Ipv4Dst | Field::Ipv6Src => transport.follow_pseudo(frame, ip, change),
        Field::Ipv6Dst if ip.destination == spot.at => transport.follow_pseudo(frame, ip, change),
        _ if is_transport => transport.follow_bytes(frame, ip, change, crc),
        _ => {}
    }
    Ok(())
}

/// The whole 16-bit words that a field is part of. All headers behind the Ethernet header are even in length, so one
/// parity fits all.
fn words(headers: &Headers, spot: Spot) -> Range<usize> {
    let base = headers.payload();
    if spot.at < base {
        return 0..0;
    }
    let start = spot.at - (spot.at - base) % 2;
    let length = spot.at + usize::from(spot.bytes) - start;
    start..start + length.next_multiple_of(2)
}

/// A header with a TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ttl {
    /// An MPLS entry.
    Mpls(usize),
    /// An IPv4 header.
    V4(usize),
    /// An IPv6 header, with its hop limit.
    V6(usize),
}

impl Ttl {
    fn of_ip(ip: &Layers) -> Ttl {
        if ip.is_v6 { Ttl::V6(ip.network) } else { Ttl::V4(ip.network) }
    }

    /// The one of IP, unless it is hidden behind a tag.
    fn nw(headers: &Headers) -> Result<Ttl, Refused> {
        headers.ip().map(Ttl::of_ip).ok_or(Refused::Absent)
    }

    /// The one of the outermost MPLS entry.
    fn mpls(headers: &Headers) -> Result<Ttl, Refused> {
        headers.mpls().map(Ttl::Mpls).ok_or(Refused::Absent)
    }

    /// The outermost one of a frame.
    fn outermost(headers: &Headers) -> Result<Ttl, Refused> {
        Ttl::mpls(headers).or_else(|_| Ttl::nw(headers))
    }

    /// The outermost one, and the one behind it.
    fn outer_and_inner(frame: &[u8], headers: &Headers) -> Result<(Ttl, Ttl), Refused> {
        let outer = Ttl::outermost(headers)?;
        Ok((outer, outer.next(frame, headers).ok_or(Refused::Absent)?))
    }

    /// The one behind it. Nothing says what a label carries: behind the last entry the first four bits tell IPv4 from
    /// IPv6, as routers do (RFC 4928). IP in IP is told by the protocol (RFC 2003, RFC 2473).
    fn next(self, frame: &[u8], headers: &Headers) -> Option<Ttl> {
        let (at, is_v6) = match self {
            Ttl::Mpls(entry) if frame.get(entry + 2)? & 1 == 0 => {
                let next = entry + TAG;
                return (next + TAG <= frame.len()).then_some(Ttl::Mpls(next));
            }
            Ttl::Mpls(entry) => (entry + TAG, frame.get(entry + TAG)? >> 4 == 6),
            Ttl::V4(_) | Ttl::V6(_) => {
                let ip = headers.ip().filter(|ip| ip.is_complete && !ip.is_later_fragment())?;
                match ip.protocol {
                    4 => (ip.transport, false),
                    41 => (ip.transport, true),
                    _ => return None,
                }
            }
        };
        let ethertype = if is_v6 { crate::frame::IPV6 } else { crate::frame::IPV4 };
        Layers::of_ip(frame, at, ethertype).map(|ip| Ttl::of_ip(&ip))
    }

    fn at(self) -> usize {
        match self {
            Ttl::Mpls(at) => at + 3,
            Ttl::V4(at) => at + 8,
            Ttl::V6(at) => at + 7,
        }
    }

    fn write(self, frame: &mut [u8], ttl: u8) {
        let old = std::mem::replace(&mut frame[self.at()], ttl);
        if let Ttl::V4(network) = self {
            // The TTL is the upper half of its word.
            let change = Sum::new().add_word(!(u16::from(old) << 8)).add_word(u16::from(ttl) << 8);
            sum::mend_header(frame, network, change);
        }
    }

    fn decrement(self, frame: &mut [u8]) -> Result<(), Refused> {
        match frame[self.at()] {
            0 | 1 => Err(Refused::Expired),
            ttl => {
                self.write(frame, ttl - 1);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
