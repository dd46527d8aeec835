//! From what counters count to datagrams of the test.
//!
//! **What.** A device counts socket buffers: one datagram each as a rule, a super-frame of many with segmentation
//! offload, or only a piece of one when it is fragmented; and it counts other frames (ARP) too. Its *byte* counter
//! resolves all of that: every buffer carries one set of headers, and what remains is payload, so
//! `datagrams = (bytes − headers × buffers) / payload`.
//!
//! **Why it is exact.** An ARP frame is 42 bytes, which is just as long as the headers of UDP or ICMP echo over IPv4
//! over Ethernet; it contributes no payload and drops out. A neighbour solicitation contributes 24 bytes over IPv6.
//!
//! **Where it is not exact.** The bytes of a few such messages together can pass for a small datagram of the test: two reports
//! of multicast listeners, which every link sends that comes up, are 96 to 176 bytes beyond the headers. How many bytes of
//! this kind there were at the most the nodes' own counters of sent ICMPv6 messages say ([`Discovery`]); that is then the
//! doubt.
//!
//! **Without the Ethernet header.** A veth that polls (its GRO is on, or a program is attached to it by XDP) counts the bytes of a
//! frame behind `eth_type_trans` (`veth_xdp_rcv` in `drivers/net/veth.c`), 14 fewer for each buffer, at both ends of the
//! wire. Nothing in the counters says so, but only one of the two readings leaves whole datagrams.
//!
//! **Price.** Frames with other headers (VLAN tags) or much other traffic make the division meaningless; the buffers
//! are then taken as they are, and the difference goes into the doubt.

use record::{EndReport, TestSpec};

const ETHERNET: u64 = 14;
const UDP_OR_ICMP: u64 = 8;
/// What a frame of neighbour discovery has beyond the headers of the test's frames, at the most.
const SMALL: u64 = 48;

/// Messages of neighbour and group discovery that nodes sent, by their counters in `Ip6.`, and the bytes that one has beyond
/// the headers of UDP over IPv4 over Ethernet; a report is of up to three groups (RFC 4861, RFC 2710, RFC 3810).
pub const DISCOVERY: [(&str, u64); 6] = [
    ("Ip6.Icmp6OutRouterSolicits", 28),
    ("Ip6.Icmp6OutNeighborSolicits", 44),
    ("Ip6.Icmp6OutNeighborAdvertisements", 44),
    ("Ip6.Icmp6OutGroupMembResponses", 44),
    ("Ip6.Icmp6OutGroupMembReductions", 44),
    ("Ip6.Icmp6OutMLDv2Reports", 88),
];

/// What all nodes together sent of [`DISCOVERY`]: as much of it may have passed any interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Discovery {
    /// How many messages.
    pub frames: u64,
    /// Their bytes beyond the headers of UDP over IPv4 over Ethernet.
    pub bytes: u64,
}

/// What a datagram of one leg looks like on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Bytes of headers on each socket buffer.
    header: u64,
    /// Bytes that one datagram adds beyond them.
    payload: u64,
    /// Length of one datagram from the IP header on.
    pub ip_length: u64,
    /// How many datagrams a socket buffer may hold.
    pub per_buffer: u64,
    /// In how many buffers a datagram travels; 1 when it is whole.
    pub fragments: u64,
    /// What else may be among the counted buffers.
    discovery: Discovery,
}

/// A count of datagrams and how far it may be off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub count: u64,
    pub doubt: u64,
}

impl Unit {
    /// Datagrams with this payload, in super-frames of up to `per_buffer`, or in so many fragments each.
    pub fn new(family: u8, payload: u64, per_buffer: u64, fragments: u64) -> Self {
        let ip = if family == 6 { 40 } else { 20 };
        let fragment_header = if family == 6 { 8 } else { 0 };
        let fragments = fragments.max(1);
        let (header, unit) = if fragments > 1 {
            (ETHERNET + ip + fragment_header, payload + UDP_OR_ICMP)
        } else {
            (ETHERNET + ip + UDP_OR_ICMP, payload)
        };
        let ip_length = ip + UDP_OR_ICMP + payload;
        let discovery = Discovery::default();
        Unit { header, payload: unit, ip_length, per_buffer: per_buffer.max(1), fragments, discovery }
    }

    /// The same, where the nodes sent such messages meanwhile.
    pub fn beside(self, discovery: Discovery) -> Self {
        Unit { discovery, ..self }
    }

    /// How many datagrams the bytes of discovery can pass for, when `rest` of these bytes did not.
    pub fn disguised(&self, rest: u64) -> u64 {
        let Discovery { frames, bytes } = self.discovery;
        let longer_headers = self.header.saturating_sub(ETHERNET + 20 + UDP_OR_ICMP).saturating_mul(frames);
        bytes.saturating_sub(longer_headers).saturating_sub(rest).checked_div(self.payload).unwrap_or(0)
    }

    /// The way there: what the sender really wrote decides, then what was asked.
    pub fn forward(spec: &TestSpec, sender: &EndReport, fragments: u64) -> Self {
        if spec.kind.is_by_port() {
            return Self::of_frames(spec);
        }
        let asked = u64::from(spec.size);
        let even = sender.sent > 0 && sender.sent_bytes.is_multiple_of(sender.sent) && sender.sent_bytes > 0;
        let payload = if even && !spec.kind.is_echo() { sender.sent_bytes / sender.sent } else { asked };
        Self::new(spec.family, payload.min(1 << 20), u64::from(spec.gso), fragments)
    }

    /// Whole frames: what is not headers is payload.
    fn of_frames(spec: &TestSpec) -> Self {
        let empty = Self::new(spec.family, 0, 1, 1);
        Self::new(spec.family, u64::from(spec.size).saturating_sub(empty.header), 1, 1)
    }

    /// The way back: the size of the response.
    pub fn back(spec: &TestSpec, fragments: u64) -> Self {
        let size = if spec.kind.is_echo() || spec.response == 0 { spec.size } else { spec.response };
        Self::new(spec.family, u64::from(size), 1, fragments)
    }

    /// True when one buffer is one datagram.
    pub fn is_plain(&self) -> bool {
        self.per_buffer == 1 && !self.is_fragmented()
    }

    /// True when a datagram travels in several buffers.
    pub fn is_fragmented(&self) -> bool {
        self.fragments > 1
    }

    /// Datagrams in so many buffers with so many bytes altogether.
    pub fn seen(&self, buffers: u64, bytes: Option<u64>) -> Option<Seen> {
        let as_they_are = |doubt| Some(Seen { count: buffers, doubt });
        let carried = bytes.map(|bytes| self.carried(buffers, bytes));
        match carried {
            Some(carried) if self.payload > 0 => {
                let count = carried / self.payload;
                let others = buffers.saturating_sub(count);
                let small = self.is_plain() && others.saturating_mul(SMALL) < self.payload;
                // Pieces of datagrams that are not whole are no doubt about those that are.
                let even = carried.is_multiple_of(self.payload) || self.is_fragmented();
                let doubt = u64::from(!even && !small).max(self.disguised(carried % self.payload));
                if !self.is_plain() {
                    Some(Seen { count, doubt })
                } else if count >= buffers {
                    // The bytes beyond the test's can only be others'.
                    let beyond = carried - buffers.saturating_mul(self.payload).min(carried);
                    as_they_are(if beyond > 0 { self.disguised(beyond).min(buffers) } else { 0 })
                } else if others > 64 + buffers / 20 {
                    as_they_are(others)
                } else {
                    Some(Seen { count, doubt })
                }
            }
            _ if self.is_plain() => as_they_are(0),
            _ => None,
        }
    }

    /// Payload in so many buffers with so many bytes, whether or not their Ethernet headers were counted.
    fn carried(&self, buffers: u64, bytes: u64) -> u64 {
        let without = |header: u64| bytes.saturating_sub(buffers.saturating_mul(header));
        let (whole, bare) = (without(self.header), without(self.header - ETHERNET));
        if self.is_fragmented() || self.payload == 0 || bytes == 0 {
            return whole; // pieces of datagrams are no whole datagrams in either reading
        }
        let all = buffers.saturating_mul(self.payload);
        let even = |carried: u64| carried.is_multiple_of(self.payload);
        let bare_is_all = self.is_plain() && bare == all;
        let bare_fits = bare <= all.saturating_mul(self.per_buffer) && even(bare) && !even(whole);
        if bare_is_all || bare_fits { bare } else { whole }
    }

    /// The most datagrams that so many dropped or queued buffers can be.
    pub fn at_most(&self, buffers: u64) -> u64 {
        buffers.saturating_mul(self.per_buffer).min(super::window::MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_bytes_buffers_are_datagrams_unless_they_are_super_frames() {
        assert_eq!(Unit::new(4, 64, 1, 1).seen(7, None), Some(Seen { count: 7, doubt: 0 }));
        assert_eq!(Unit::new(4, 64, 16, 1).seen(7, None), None);
        assert_eq!(Unit::new(4, 0, 1, 1).seen(7, Some(7 * 42)), Some(Seen { count: 7, doubt: 0 }));
    }

    #[test]
    fn two_listener_reports_that_pass_for_a_datagram_are_doubt() {
        // As measured: a link that came up carried 17,845 datagrams of 64 B, one ARP request and two reports of two groups.
        let (frames, bytes) = (17_845 + 3, 17_845 * (42 + 64) + 42 + 2 * (42 + 68));
        let quiet = Unit::new(4, 64, 1, 1);
        assert_eq!(quiet.seen(frames, Some(bytes)), Some(Seen { count: 17_847, doubt: 0 }), "nobody said so");
        let unit = quiet.beside(Discovery { frames: 2, bytes: 2 * 88 });
        let seen = unit.seen(frames, Some(bytes)).unwrap();
        assert!(seen.count - 17_845 <= seen.doubt && seen.doubt <= 2, "{seen:?}");
        // Where the datagrams are longer than all of it together nothing can hide.
        let seen = Unit::new(4, 1472, 1, 1).beside(Discovery { frames: 2, bytes: 176 });
        let bytes = 1000 * (42 + 1472) + 42 + 2 * (42 + 68);
        assert_eq!(seen.seen(1003, Some(bytes)), Some(Seen { count: 1000, doubt: 0 }));
    }

    proptest! {
        /// Any messages of the table beside the test's frames: the count is right within its doubt.
        #[test]
        fn what_passes_for_datagrams_is_within_the_doubt(
            payload in 1u64..1473, datagrams in 0u64..1000, arps in 0u64..3, v6: bool,
            sent in prop::collection::vec((0usize..6, 1u64..4), 0..5),
        ) {
            let header = if v6 { 62 } else { 42 };
            let mut found = Discovery::default();
            let (mut buffers, mut all) = (datagrams + arps, datagrams * (header + payload) + arps * 42);
            for (kind, groups) in sent {
                let (name, most) = DISCOVERY[kind];
                let beyond = if name.ends_with("Reports") { 28 + 20 * groups } else { most };
                (found.frames, found.bytes) = (found.frames + 1, found.bytes + most);
                (buffers, all) = (buffers + 1, all + 42 + beyond);
            }
            prop_assume!(found.frames > 0 && (!v6 || arps == 0));
            let seen = Unit::new(if v6 { 6 } else { 4 }, payload, 1, 1).beside(found).seen(buffers, Some(all)).unwrap();
            // Frames exactly as long as the test's, and headers that nobody counted, cannot be told apart.
            let bare = all - buffers * (header - 14);
            prop_assume!(all - buffers * header != buffers * payload && !bare.is_multiple_of(payload));
            prop_assert!(seen.count.abs_diff(datagrams) <= seen.doubt, "{seen:?} for {datagrams}");
        }

        /// The slow twin adds up one frame after the other.
        #[test]
        fn arp_and_super_frames_drop_out(payload in 1u64..1473, arps in 0u64..30,
                                         supers in prop::collection::vec(1u64..45, 0..200)) {
            let (mut buffers, mut bytes, mut datagrams) = (arps, arps * 42, 0);
            for segments in &supers {
                buffers += 1;
                bytes += 14 + 20 + 8 + segments * payload;
                datagrams += segments;
            }
            let seen = Unit::new(4, payload, 64, 1).seen(buffers, Some(bytes)).unwrap();
            prop_assert_eq!(seen, Seen { count: datagrams, doubt: 0 });
        }

        /// A veth that polls leaves the Ethernet headers out, those of ARP too.
        #[test]
        fn bytes_without_ethernet_headers_are_the_same_datagrams(
            payload in 15u64..1473, arps in 0u64..3, supers in prop::collection::vec(1u64..45, 1..200),
        ) {
            let datagrams: u64 = supers.iter().sum();
            let buffers = arps + supers.len() as u64;
            let bytes = arps * 28 + supers.iter().map(|segments| 28 + segments * payload).sum::<u64>();
            // Where both readings leave whole datagrams nobody can tell.
            prop_assume!(!(14 * buffers).is_multiple_of(payload));
            let seen = Unit::new(4, payload, 64, 1).seen(buffers, Some(bytes)).unwrap();
            prop_assert_eq!(seen, Seen { count: datagrams, doubt: 0 });
        }

        #[test]
        fn plain_frames_without_ethernet_headers_are_all_there(payload in 1u64..1473, frames in 0u64..100_000, v6: bool) {
            let (family, ip) = if v6 { (6, 40) } else { (4, 20) };
            let seen = Unit::new(family, payload, 1, 1).seen(frames, Some(frames * (ip + 8 + payload))).unwrap();
            prop_assert_eq!(seen, Seen { count: frames, doubt: 0 });
        }

        #[test]
        fn whole_fragmented_datagrams_are_counted(payload in 1473u64..60_000, datagrams in 0u64..100, v6: bool) {
            let (family, ip, extra, room) = if v6 { (6, 40, 8, 1448) } else { (4, 20, 0, 1480) };
            let (mut buffers, mut bytes) = (0, 0);
            for _ in 0..datagrams {
                let mut left = payload + 8;
                while left > 0 {
                    let piece = left.min(room);
                    buffers += 1;
                    bytes += 14 + ip + extra + piece;
                    left -= piece;
                }
            }
            let seen = Unit::new(family, payload, 1, 2).seen(buffers, Some(bytes)).unwrap();
            prop_assert_eq!(seen, Seen { count: datagrams, doubt: 0 });
        }

        #[test]
        fn garbage_never_panics(payload: u32, per_buffer: u32, buffers: u64, bytes: Option<u64>, fragments: u64) {
            let unit = Unit::new(6, u64::from(payload), u64::from(per_buffer), fragments);
            let _ = unit.seen(buffers, bytes);
            let _ = unit.at_most(buffers);
        }
    }
}
