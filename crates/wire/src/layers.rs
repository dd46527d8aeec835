//! Where the headers of a frame begin: VLAN tags, IPv4 with options, IPv6 with extension headers, then the transport.
//!
//! **What.** [`Layers::of`] walks a frame once and remembers offsets; it looks at lengths and types only, never at
//! addresses or ports. [`Headers`](crate::headers::Headers) walks an IP packet with the same steps.
//!
//! **Why.** Checksums, super-frames, repairs and the switch all need the same numbers, of frames that may be cut,
//! fragmented or nonsense.
//!
//! **Price.** Tunnels are not entered, except by who knows the offset; [`Layers::inside`] alone knows MPLS and PBB, PPPoE is not known. IPv6 extension
//! headers are those of RFC 8200 and the authentication header, as in the kernel (`ipv6_ext_hdr`): mobility, HIP and
//! shim6 headers are protocols of their own.

use crate::be16;
use crate::checksum::Sum;
use crate::frame::{IPV4, IPV6, MPLS, MPLS_MULTICAST, PBB};

pub mod extension;

use extension::Extensions;

/// IP protocol number of SCTP.
pub const SCTP: u8 = 132;
/// Ethertypes of VLAN tags: customer, service (802.1ad), and the one before there was a standard.
pub const VLAN_TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ESP: u8 = 50;
const AUTHENTICATION: u8 = 51;
const NO_NEXT: u8 = 59;
const DESTINATION: u8 = 60;

/// Which part of an IP packet a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragment {
    /// All of it.
    Whole,
    /// Its beginning: there is a transport header, but not all that it sums.
    First,
    /// Another part: no transport header.
    Later,
}

/// The headers of an IP frame, as offsets from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layers {
    /// The IP header.
    pub network: usize,
    /// True for IPv6.
    pub is_v6: bool,
    /// What follows the IP header and its extensions; a place inside the frame or its very end.
    pub transport: usize,
    /// The protocol there (IP protocol number).
    pub protocol: u8,
    /// Where the IP packet ends by its own length, which may be behind the bytes that are here. A length of 0 (a
    /// super-frame beyond 64 KiB) means all bytes that are here.
    pub end: usize,
    /// Whole, or which fragment.
    pub fragment: Fragment,
    /// The place of the byte that says `protocol`: in IPv6 inside the last extension header.
    pub(crate) protocol_at: usize,
    /// Where the destination stands that checksums count: with a routing header that has still to be travelled, its
    /// last address (RFC 8200 section 8.1).
    pub(crate) destination: usize,
    /// Which extension headers there are, IPv6.
    pub(crate) extensions: Extensions,
    /// False when the chain of extension headers is cut: then `protocol` is the one of the header that is not here.
    pub(crate) is_complete: bool,
}

impl Layers {
    /// Walks the frame; none when it is not IP, or when it ends before the transport header begins.
    pub fn of(frame: &[u8]) -> Option<Layers> {
        let mut at = 12;
        let mut ethertype = word(frame, at)?;
        while VLAN_TAGS.contains(&ethertype) {
            at += 4;
            ethertype = word(frame, at)?;
        }
        Self::of_ip(frame, at + 2, ethertype).filter(|layers| layers.is_complete)
    }

    /// The same, and looks behind MPLS labels and into the frame that PBB carries: for who was told that a packet is there, because what
    /// follows the last label is not written in it.
    pub fn inside(frame: &[u8]) -> Option<Layers> {
        let (mut at, mut ethertype) = (14, word(frame, 12)?);
        loop {
            (at, ethertype) = match ethertype {
                MPLS | MPLS_MULTICAST => {
                    let is_last = |entry: &[u8]| entry[2] & 1 == 1;
                    let behind = at + 4 * (frame.get(at..)?.chunks_exact(4).position(is_last)? + 1);
                    (behind, if frame.get(behind)? >> 4 == 4 { IPV4 } else { IPV6 })
                }
                // The tag has four bytes, then come the addresses of the frame inside.
                PBB => (at + 18, word(frame, at + 16)?),
                tag if VLAN_TAGS.contains(&tag) => (at + 4, word(frame, at + 2)?),
                _ => return Self::of_ip(frame, at, ethertype).filter(|layers| layers.is_complete),
            };
        }
    }

    /// Whether IP follows the Ethernet header or its VLAN tags by its ethertype.
    pub fn begin_with_ip(frame: &[u8]) -> bool {
        let mut at = 12;
        while word(frame, at).is_some_and(|ethertype| VLAN_TAGS.contains(&ethertype)) {
            at += 4;
        }
        word(frame, at).is_some_and(|ethertype| matches!(ethertype, IPV4 | IPV6))
    }

    /// Walks the IP packet that begins there; none when it is not IP or its fixed header (with the options of IPv4) is
    /// not here. What follows an IPv6 header may be cut: see `is_complete`.
    pub(crate) fn of_ip(frame: &[u8], network: usize, ethertype: u16) -> Option<Layers> {
        match ethertype {
            IPV4 => Self::v4(frame, network),
            IPV6 => Self::v6(frame, network),
            _ => None,
        }
    }

    fn v4(frame: &[u8], network: usize) -> Option<Layers> {
        let header = frame.get(network..network + 20)?;
        let length = usize::from(header[0] & 15) * 4;
        let total = usize::from(be16(header, 2));
        let transport = network + length;
        if header[0] >> 4 != 4 || length < 20 || transport > frame.len() || (total != 0 && total < length) {
            return None;
        }
        let place = be16(header, 6);
        let fragment = match (place & 0x1fff, place & 0x2000 != 0) {
            (0, false) => Fragment::Whole,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        };
        Some(Layers {
            network,
            is_v6: false,
            transport,
            protocol: header[9],
            end: if total == 0 { frame.len() } else { network + total },
            fragment,
            protocol_at: network + 9,
            destination: network + 16,
            extensions: Extensions::default(),
            is_complete: true,
        })
    }

    fn v6(frame: &[u8], network: usize) -> Option<Layers> {
        let header = frame.get(network..network + 40)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let payload = usize::from(be16(header, 4));
        let mut layers = Layers {
            network,
            is_v6: true,
            transport: network + 40,
            protocol: header[6],
            end: if payload == 0 { frame.len() } else { network + 40 + payload },
            fragment: Fragment::Whole,
            protocol_at: network + 6,
            destination: network + 24,
            extensions: Extensions::default(),
            is_complete: true,
        };
        while layers.fragment != Fragment::Later && layers.is_complete && layers.enters_extension(frame) {}
        layers.is_complete &= layers.transport <= layers.end;
        layers.extensions.end(layers.protocol);
        Some(layers)
    }

    /// Steps over one extension header; false when there is none, or it is cut.
    fn enters_extension(&mut self, frame: &[u8]) -> bool {
        let at = self.transport;
        let unit = match self.protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => 8,
            AUTHENTICATION => 4,
            FRAGMENT => 0,
            _ => return false,
        };
        let length = frame.get(at..at + 8).map(|header| 8 + unit * usize::from(header[1]));
        let Some(header) = length.and_then(|length| frame.get(at..at + length)) else {
            self.is_complete = false;
            return false;
        };
        if self.protocol == FRAGMENT {
            let place = be16(header, 2);
            self.fragment = match (place >> 3, place & 1) {
                (0, 0) => Fragment::Whole, // RFC 6946: an atomic fragment is a whole packet
                (0, _) => Fragment::First,
                _ => Fragment::Later,
            };
        }
        if self.protocol == ROUTING && header[3] > 0 && header.len() >= 24 {
            // Segment routing lists the last station first (RFC 8754), the older kinds last.
            self.destination = if header[2] == 4 { at + 8 } else { at + header.len() - 16 };
        }
        self.extensions.add(self.protocol);
        (self.protocol, self.protocol_at, self.transport) = (header[0], at, at + header.len());
        true
    }

    /// True when bytes are missing that the IP length promises.
    pub fn is_cut(&self, frame: &[u8]) -> bool {
        self.end > frame.len()
    }

    /// True for every fragment but a first one: there is no transport header.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment == Fragment::Later
    }

    /// The sum of the pseudo header of so many bytes of a protocol (RFC 9293 section 3.1, RFC 8200 section 8.1). The
    /// frame must be the one that was walked.
    pub fn pseudo(&self, frame: &[u8], protocol: u8, length: usize) -> Sum {
        let n = self.network;
        let sum = if self.is_v6 {
            let to = self.destination;
            Sum::new().add_bytes(&frame[n + 8..n + 24]).add_bytes(&frame[to..to + 16])
        } else {
            Sum::new().add_bytes(&frame[n + 12..n + 20])
        };
        sum.add_word(u16::from(protocol)).add_bytes(&(length as u32).to_be_bytes())
    }
}

fn word(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..at + 2).map(|bytes| be16(bytes, 0))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame from parts: VLAN tags, IPv6 or not, IPv4 options or IPv6 extension headers, protocol, transport bytes.
    /// Lengths are right, checksums are not there.
    pub(crate) fn build(tags: usize, v6: bool, extra: usize, protocol: u8, transport: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for tag in 0..tags {
            frame.extend([0x81 + 7 * u8::from(tag == 0 && tags > 1), 0xa8 * u8::from(tag == 0 && tags > 1)]);
            frame.extend([0, 100 + tag as u8]);
        }
        if v6 {
            let payload = (transport.len() + 8 * extra) as u16;
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(payload.to_be_bytes());
            let kinds: Vec<u8> = [0, 60, 60].into_iter().cycle().take(extra).chain([protocol]).collect();
            frame.extend([kinds[0], 64]);
            frame.extend((1..=32).map(|i| i * 7));
            for next in &kinds[1..] {
                frame.extend([*next, 0, 1, 4, 0, 0, 0, 0]); // PadN
            }
        } else {
            let total = (20 + 4 * extra + transport.len()) as u16;
            frame.extend([8, 0, 0x45 + extra as u8, 0]);
            frame.extend(total.to_be_bytes());
            frame.extend([0x12, 0xfe, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            frame.extend(std::iter::repeat_n(1, 4 * extra)); // no operation
        }
        frame.extend(transport);
        frame
    }

    #[test]
    fn headers_are_found_behind_tags_options_and_extensions() {
        for (tags, extra) in [(0, 0), (1, 0), (2, 3), (0, 2)] {
            for v6 in [false, true] {
                let mut frame = build(tags, v6, extra, 17, &[9; 20]);
                let layers = Layers::of(&frame).unwrap();
                assert_eq!(layers.network, 14 + 4 * tags);
                assert_eq!((layers.protocol, layers.fragment, layers.is_v6), (17, Fragment::Whole, v6));
                assert_eq!((layers.transport, layers.end), (frame.len() - 20, frame.len()));
                frame.truncate(frame.len() - 1);
                assert!(Layers::of(&frame).unwrap().is_cut(&frame));
                frame.extend([0; 9]);
                assert_eq!(
                    Layers::of(&frame).unwrap().end,
                    frame.len() - 8,
                    "padding is no part of the packet"
                );
            }
        }
    }

    #[test]
    fn fragments_are_told_apart() {
        let mut frame = build(0, false, 0, 17, &[0; 16]);
        let mut of = |high, low| {
            frame[20..22].copy_from_slice(&[high, low]);
            Layers::of(&frame).unwrap().fragment
        };
        assert_eq!((of(0x40, 0), of(0x20, 0), of(0, 9)), (Fragment::Whole, Fragment::First, Fragment::Later));
        let mut frame = build(0, true, 0, 44, &[17, 0, 0, 1, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8]);
        let layers = Layers::of(&frame).unwrap();
        assert_eq!((layers.fragment, layers.protocol, layers.transport), (Fragment::First, 17, 62));
        frame[56..58].copy_from_slice(&[0, 8]);
        assert_eq!(Layers::of(&frame).unwrap().fragment, Fragment::Later);
        frame[56..58].copy_from_slice(&[0, 0]);
        assert_eq!(Layers::of(&frame).unwrap().fragment, Fragment::Whole);
    }

    #[test]
    fn checksums_count_the_last_station_of_a_routing_header() {
        let mut transport = vec![17, 2, 2, 1, 0, 0, 0, 0];
        transport.extend([0xab; 16]);
        transport.extend([0; 8]);
        let frame = build(0, true, 0, 43, &transport);
        let layers = Layers::of(&frame).unwrap();
        let right = Sum::new().add_bytes(&frame[22..38]).add_bytes(&[0xab; 16]).add_word(17).add_word(8);
        assert_eq!(layers.pseudo(&frame, 17, 8).finish(), right.finish());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(tags in 0usize..3, v6: bool, extra in 0usize..4, protocol: u8,
                          rest in prop::collection::vec(any::<u8>(), 0..80), at in 0usize..120, byte: u8, cut in 0usize..200) {
            let mut frame = build(tags, v6, extra, protocol, &rest);
            if let Some(place) = frame.get_mut(at) { *place = byte; }
            frame.truncate(cut);
            if let Some(layers) = Layers::of(&frame) {
                prop_assert!(layers.transport <= frame.len() && layers.transport <= layers.end);
                let _ = layers.pseudo(&frame, layers.protocol, 8);
            }
            let _ = Layers::of(&rest);
        }
    }
}
