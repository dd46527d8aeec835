//! Which extension headers an IPv6 packet has, in the words of OpenFlow.
//!
//! **What.** Nine bits, the pseudo field `OXM_OF_IPV6_EXTHDR` (OpenFlow 1.3.5 section 7.2.3.7, `enum
//! ofp_ipv6exthdr_flags`): six kinds of headers, "no next header", and two remarks about the chain.
//!
//! **Why.** A rule may let packets with hop-by-hop options pass and drop chains that no host sends.
//!
//! **Price.** The remarks need a reading of RFC 2460 section 4.1, to which OpenFlow refers. The order there is hop-by-hop,
//! destination, routing, fragment, authentication, ESP, destination, upper layer; each at most once, destination twice.
//! A destination header counts as the first of the two as long as nothing but hop-by-hop options stands before it.
//! [`UNSEQ`] says that a header stands behind one that belongs behind it; [`UNREP`] that a kind other than destination
//! came twice, or destination three times. [`HOP`] is only the hop-by-hop header that comes first, where it belongs; at
//! another place it is the remark, not the bit. Behind ESP everything is encrypted, and the walk ends.

use super::{AUTHENTICATION, DESTINATION, ESP, FRAGMENT, HOP_BY_HOP, NO_NEXT, ROUTING};

/// The chain says that nothing follows (next header 59).
pub const NONEXT: u16 = 1;
/// Encapsulating security payload.
pub const ESP_HEADER: u16 = 1 << 1;
/// Authentication header.
pub const AUTH: u16 = 1 << 2;
/// One or more destination options headers.
pub const DEST: u16 = 1 << 3;
/// Fragment header.
pub const FRAG: u16 = 1 << 4;
/// Routing header.
pub const ROUTER: u16 = 1 << 5;
/// Hop-by-hop options, as the first header.
pub const HOP: u16 = 1 << 6;
/// A header came more often than it should.
pub const UNREP: u16 = 1 << 7;
/// Headers are not in the preferred order.
pub const UNSEQ: u16 = 1 << 8;

/// The chain so far: its bits, and the rank of the header that belongs farthest back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extensions {
    bits: u16,
    seen: u16,
    rank: u8,
    destinations: u8,
}

impl Extensions {
    /// The pseudo field.
    pub(crate) fn bits(self) -> u16 {
        self.bits
    }

    /// One more header that was entered.
    pub(crate) fn add(&mut self, protocol: u8) {
        let (bit, rank) = match protocol {
            HOP_BY_HOP => (HOP, 1),
            DESTINATION if self.rank <= 1 => (DEST, 2),
            ROUTING => (ROUTER, 3),
            FRAGMENT => (FRAG, 4),
            AUTHENTICATION => (AUTH, 5),
            ESP => (ESP_HEADER, 6),
            DESTINATION => (DEST, 7),
            _ => return,
        };
        self.destinations += u8::from(bit == DEST && self.destinations < 3);
        let is_repeated = if bit == DEST { self.destinations > 2 } else { self.seen & bit != 0 };
        let is_late = rank < self.rank;
        if bit != HOP || self.seen == 0 {
            self.bits |= bit;
        }
        self.bits |= if is_repeated { UNREP } else { 0 } | if is_late { UNSEQ } else { 0 };
        self.seen |= bit;
        self.rank = self.rank.max(rank);
    }

    /// What the chain ends in: the kinds that have no inside.
    pub(crate) fn end(&mut self, protocol: u8) {
        match protocol {
            ESP => self.add(ESP),
            NO_NEXT => self.bits |= NONEXT,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(chain: &[u8]) -> u16 {
        let mut extensions = Extensions::default();
        chain.iter().for_each(|protocol| extensions.add(*protocol));
        extensions.bits()
    }

    #[test]
    fn the_chains_of_the_rfc_and_their_opposites() {
        assert_eq!(bits(&[0, 51]), HOP | AUTH);
        assert_eq!(bits(&[0, 60, 43, 44, 51, 60]), HOP | DEST | ROUTER | FRAG | AUTH);
        assert_eq!(bits(&[60]), DEST);
        assert_eq!(bits(&[60, 60]), DEST);
        assert_eq!(bits(&[60, 60, 60]), DEST | UNREP);
        assert_eq!(bits(&[60, 43]), DEST | ROUTER);
        assert_eq!(bits(&[43, 60]), DEST | ROUTER);
        assert_eq!(bits(&[60, 60, 43]), DEST | ROUTER | UNSEQ);
        assert_eq!(bits(&[44, 60, 43]), DEST | ROUTER | FRAG | UNSEQ);
        assert_eq!(bits(&[43, 43]), ROUTER | UNREP);
        assert_eq!(bits(&[43, 0]), ROUTER | UNSEQ);
        assert_eq!(bits(&[0, 0]), HOP | UNREP);
        assert_eq!(bits(&[0, 43, 0]), HOP | ROUTER | UNREP | UNSEQ);
        let mut closed = Extensions::default();
        closed.end(NO_NEXT);
        assert_eq!(closed.bits(), NONEXT);
        closed.end(ESP);
        assert_eq!(closed.bits(), NONEXT | ESP_HEADER);
    }

    /// The slow twin: tries every reading of the destination headers as the first or the last kind, and asks whether one
    /// of them is in order.
    fn slow(chain: &[u8]) -> u16 {
        let count = |protocol: u8| chain.iter().filter(|p| **p == protocol).count();
        let mut bits = 0;
        for (protocol, bit) in [(60, DEST), (44, FRAG), (43, ROUTER), (51, AUTH)] {
            bits |= if count(protocol) > 0 { bit } else { 0 };
            bits |= if count(protocol) > if protocol == 60 { 2 } else { 1 } { UNREP } else { 0 };
        }
        bits |= if chain.first() == Some(&0) { HOP } else { 0 };
        bits |= if count(0) > 1 { UNREP } else { 0 };
        let destinations = count(60);
        let in_order = (0u32..1 << destinations).any(|firsts| {
            let mut nth = 0;
            let ranks: Vec<u32> = chain
                .iter()
                .map(|protocol| match protocol {
                    0 => 1,
                    43 => 3,
                    44 => 4,
                    51 => 5,
                    _ => {
                        nth += 1;
                        if firsts >> (nth - 1) & 1 != 0 { 2 } else { 7 }
                    }
                })
                .collect();
            // At most one of them is the first kind: "once before a routing header".
            firsts.count_ones() <= 1 && ranks.is_sorted()
        });
        bits | if in_order { 0 } else { UNSEQ }
    }

    proptest! {
        #[test]
        fn fast_is_slow(chain in prop::collection::vec(prop::sample::select(vec![0u8, 60, 43, 44, 51]), 0..8)) {
            prop_assert_eq!(bits(&chain), slow(&chain));
        }
    }
}
