//! Are the checksums of a frame right, and if not: make them so.
//!
//! **What.** [`check`] judges the IPv4 header's checksum and the one of TCP, UDP, ICMP, ICMPv6 or SCTP; [`repair`]
//! rewrites what is wrong, missing or unfinished.
//!
//! **Why.** A frame from a file whose checksum is wrong is dropped by the first host that looks, without a word; so what
//! is sent again is checked first. Frames captured on the host that sent them look wrong when the hardware was to finish
//! them: that is told apart ([`Check::Unfinished`]), because it is no fault of anyone.
//!
//! **Price.** Each frame is summed once. A checksum over bytes that are not here (fragments, frames cut to a snap
//! length) cannot be judged, and is left alone. Headers inside tunnels are not looked at.

use crate::checksum::checksum;
use crate::frame::{ICMP, ICMPV6, TCP, UDP};
use crate::layers::{Fragment, Layers, SCTP};
use crate::{be16, crc32c};

/// What can be said of one checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Check {
    /// It is right.
    Right,
    /// It is wrong.
    Wrong,
    /// Its sender did not want one: zero in UDP over IPv4 (RFC 768).
    Unused,
    /// It is zero where there must be one.
    Missing,
    /// Only the pseudo header is summed: left to the hardware.
    Unfinished,
    /// The frame carries a fragment; the sum covers bytes of other frames.
    Fragment,
    /// The frame was cut; the sum covers bytes that are not here.
    Cut,
    /// A length in the header is impossible.
    Impossible,
}

impl Check {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Check::Right => "right",
            Check::Wrong => "wrong",
            Check::Unused => "unused",
            Check::Missing => "missing",
            Check::Unfinished => "unfinished",
            Check::Fragment => "fragment",
            Check::Cut => "cut",
            Check::Impossible => "impossible",
        }
    }

    /// True when a host that looks would refuse the frame, and [`repair`] would rewrite it.
    pub fn wants_repair(self) -> bool {
        matches!(self, Check::Wrong | Check::Missing | Check::Unfinished)
    }
}

/// The protocols whose checksum is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP, of IPv4.
    Icmp,
    /// ICMPv6.
    Icmpv6,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Its name, lower case.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Icmp => "icmp",
            Protocol::Icmpv6 => "icmpv6",
            Protocol::Sctp => "sctp",
        }
    }

    pub(crate) fn of(layers: &Layers) -> Option<Protocol> {
        Some(match layers.protocol {
            TCP => Protocol::Tcp,
            UDP => Protocol::Udp,
            ICMP if !layers.is_v6 => Protocol::Icmp,
            ICMPV6 if layers.is_v6 => Protocol::Icmpv6,
            SCTP => Protocol::Sctp,
            _ => return None,
        })
    }

    /// Bytes of its header, and where in it the checksum stands.
    pub(crate) fn shape(self) -> (usize, usize) {
        match self {
            Protocol::Tcp => (20, 16),
            Protocol::Udp => (8, 6),
            Protocol::Icmp | Protocol::Icmpv6 => (4, 2),
            Protocol::Sctp => (12, 8),
        }
    }
}

/// What can be said of the checksums of a frame; none where it has none that is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checks {
    /// The IPv4 header.
    pub ipv4: Option<Check>,
    /// The transport.
    pub transport: Option<(Protocol, Check)>,
}

impl Checks {
    /// True when a host that looks would refuse the frame.
    pub fn wants_repair(&self) -> bool {
        self.ipv4.is_some_and(Check::wants_repair)
            || self.transport.is_some_and(|(_, check)| check.wants_repair())
    }
}

/// Judges the checksums of a frame.
pub fn check(frame: &[u8]) -> Checks {
    let Some(layers) = Layers::of(frame) else { return Checks::default() };
    let (ipv4, transport) = (ipv4(frame, &layers), Protocol::of(&layers));
    Checks {
        ipv4: ipv4.map(|(check, _)| check),
        transport: transport.map(|protocol| (protocol, judge(frame, &layers, protocol).0)),
    }
}

/// Whether the checksum of what is inside of IP is not wrong; one that is left to the hardware is not.
pub fn is_intact(frame: &[u8]) -> bool {
    !matches!(check(frame).transport, Some((_, Check::Wrong)))
}

/// Rewrites every checksum that [`check`] finds wrong, missing or unfinished; says what they were.
pub fn repair(frame: &mut [u8]) -> Checks {
    let mut repaired = Checks::default();
    let Some(layers) = Layers::of(frame) else { return repaired };
    if let Some((check, right)) = ipv4(frame, &layers)
        && check.wants_repair()
    {
        frame[layers.network + 10..layers.network + 12].copy_from_slice(&right.to_be_bytes());
        repaired.ipv4 = Some(check);
    }
    if let Some(protocol) = Protocol::of(&layers)
        && let (check, right) = judge(frame, &layers, protocol)
        && check.wants_repair()
    {
        let field = layers.transport + protocol.shape().1;
        let width = if protocol == Protocol::Sctp { 4 } else { 2 };
        frame[field..field + width].copy_from_slice(&right[..width]);
        repaired.transport = Some((protocol, check));
    }
    repaired
}

/// The verdict on the IPv4 header, and what would be right there.
fn ipv4(frame: &[u8], layers: &Layers) -> Option<(Check, u16)> {
    if layers.is_v6 {
        return None;
    }
    // The transport begins behind the options.
    let header = &frame[layers.network..layers.transport];
    let right = !fold(!checksum(header), !be16(header, 10));
    Some(match (checksum(header), be16(header, 10)) {
        (0, _) => (Check::Right, right),
        (_, 0) => (Check::Missing, right),
        _ => (Check::Wrong, right),
    })
}

/// The one's complement sum of two words (RFC 1071).
fn fold(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

/// The verdict on a transport checksum, and the bytes that would be right there (two, SCTP's four).
fn judge(frame: &[u8], layers: &Layers, protocol: Protocol) -> (Check, [u8; 4]) {
    let unknown = |check| (check, [0; 4]);
    if layers.fragment != Fragment::Whole {
        return unknown(Check::Fragment);
    }
    let (header, offset) = protocol.shape();
    let start = layers.transport;
    if start + header > layers.end {
        return unknown(Check::Impossible);
    }
    if layers.is_cut(frame) || start + header > frame.len() {
        return unknown(Check::Cut);
    }
    let end = match protocol {
        Protocol::Udp => start + usize::from(be16(frame, start + 4)),
        _ => layers.end,
    };
    if end > layers.end || end < start + header {
        return unknown(Check::Impossible);
    }
    let packet = &frame[start..end];
    if protocol == Protocol::Sctp {
        return judge_sctp(packet);
    }
    let pseudo = match protocol {
        Protocol::Icmp => Default::default(),
        _ => layers.pseudo(frame, layers.protocol, packet.len()),
    };
    let field = be16(packet, offset);
    let sum = pseudo.add_bytes(packet).finish();
    let right = match !fold(!sum, !field) {
        0 if protocol == Protocol::Udp => 0xffff,
        right => right,
    };
    let check = match field {
        0 if protocol == Protocol::Udp && !layers.is_v6 => Check::Unused,
        // RFC 8200 section 8.1: UDP over IPv6 must have one, and so zero is never right there.
        0 if protocol == Protocol::Udp => Check::Missing,
        _ if sum == 0 => Check::Right,
        0 => Check::Missing,
        _ if protocol != Protocol::Icmp && field == !pseudo.finish() => Check::Unfinished,
        _ => Check::Wrong,
    };
    let [high, low] = right.to_be_bytes();
    (check, [high, low, 0, 0])
}

fn judge_sctp(packet: &[u8]) -> (Check, [u8; 4]) {
    let right = crc32c::sctp(packet);
    let check = match &packet[8..12] {
        field if field == right => Check::Right,
        [0, 0, 0, 0] => Check::Missing,
        _ => Check::Wrong,
    };
    (check, right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::tests::build;
    use crate::offload::{complete, partial_of};
    use proptest::prelude::*;

    const PROTOCOLS: [(u8, Protocol); 5] = [
        (TCP, Protocol::Tcp),
        (UDP, Protocol::Udp),
        (ICMP, Protocol::Icmp),
        (ICMPV6, Protocol::Icmpv6),
        (SCTP, Protocol::Sctp),
    ];

    fn transport(protocol: Protocol, field: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let (header, offset) = protocol.shape();
        let mut bytes = vec![0x50; header];
        if protocol == Protocol::Udp {
            bytes[4..6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        }
        let width = if protocol == Protocol::Sctp { 4 } else { 2 };
        bytes[offset..offset + width].copy_from_slice(&field[..width]);
        bytes.extend(payload);
        bytes
    }

    fn frame(
        which: usize,
        (tags, v6, extra): (usize, bool, usize),
        field: [u8; 4],
        payload: &[u8],
    ) -> Vec<u8> {
        let (number, protocol) = PROTOCOLS[which];
        let v6 = match protocol {
            Protocol::Icmp => false,
            Protocol::Icmpv6 => true,
            _ => v6,
        };
        build(tags, v6, extra, number, &transport(protocol, field, payload))
    }

    #[test]
    fn the_zero_of_the_journal_is_missing_and_a_datagram_without_one_is_left_alone() {
        let mut ping = frame(2, (0, false, 0), [0; 4], b"ping");
        let missing =
            Checks { ipv4: Some(Check::Missing), transport: Some((Protocol::Icmp, Check::Missing)) };
        assert_eq!(check(&ping), missing);
        assert_eq!(repair(&mut ping), missing);
        assert_eq!(check(&ping).transport, Some((Protocol::Icmp, Check::Right)));

        let mut datagram = frame(1, (0, false, 0), [0; 4], b"data");
        repair(&mut datagram);
        assert_eq!(check(&datagram).transport, Some((Protocol::Udp, Check::Unused)));
        assert_eq!(datagram[40..42], [0, 0]);
        assert_eq!(
            check(&frame(1, (0, true, 0), [0; 4], b"data")).transport,
            Some((Protocol::Udp, Check::Missing))
        );
    }

    #[test]
    fn what_cannot_be_judged_is_said_and_not_touched() {
        let whole = frame(0, (0, false, 0), [7; 4], &[1; 50]);
        let of = |frame: &[u8]| check(frame).transport.unwrap().1;
        let cut = whole[..80].to_vec();
        let mut fragment = whole.clone();
        fragment[20] = 0x20;
        let mut short = whole.clone();
        short[16..18].copy_from_slice(&30u16.to_be_bytes());
        let mut lying = frame(1, (0, false, 0), [7; 4], &[1; 50]);
        lying[38..40].copy_from_slice(&70u16.to_be_bytes());
        for (mut frame, verdict) in [
            (cut, Check::Cut),
            (fragment, Check::Fragment),
            (short, Check::Impossible),
            (lying, Check::Impossible),
        ] {
            assert_eq!(of(&frame), verdict);
            let before = frame[34..].to_vec();
            assert_eq!(repair(&mut frame).transport, None);
            assert_eq!(frame[34..], before);
        }
        assert_eq!(check(&[0; 60]), Checks::default());
    }

    #[test]
    fn an_unfinished_checksum_is_not_called_wrong() {
        for which in [0, 1, 3] {
            let mut frame = frame(which, (1, true, 1), [0; 4], b"something");
            let layers = Layers::of(&frame).unwrap();
            let length = layers.end - layers.transport;
            let pseudo = !layers.pseudo(&frame, layers.protocol, length).finish();
            let field = layers.transport + PROTOCOLS[which].1.shape().1;
            frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
            assert_eq!(check(&frame).transport.unwrap().1, Check::Unfinished);
            let mut twin = frame.clone();
            complete(&mut twin, partial_of(&frame).unwrap()).unwrap();
            repair(&mut frame);
            assert_eq!(frame, twin);
        }
    }

    proptest! {
        #[test]
        fn repaired_is_right_and_stays(which in 0usize..5, shape in (0usize..3, any::<bool>(), 0usize..4), field: [u8; 4],
                                       payload in prop::collection::vec(any::<u8>(), 0..300), padding in 0usize..10) {
            let mut frame = frame(which, shape, field, &payload);
            frame.extend(vec![0xee; padding]);
            let (before, old) = (check(&frame), frame.clone());
            let repaired = repair(&mut frame);
            prop_assert_eq!(repaired.ipv4.is_some(), before.ipv4.is_some_and(Check::wants_repair));
            let after = check(&frame);
            prop_assert!(!after.wants_repair());
            prop_assert!(matches!(after.ipv4, None | Some(Check::Right)));
            prop_assert!(matches!(after.transport, Some((_, Check::Right | Check::Unused))));
            let differing = frame.iter().zip(&old).filter(|(a, b)| a != b).count();
            prop_assert!(differing <= 6, "only the fields");
            let right = frame.clone();
            prop_assert_eq!(repair(&mut frame), Checks::default());
            prop_assert_eq!(frame, right);
        }

        #[test]
        fn one_wrong_bit_is_seen(which in 0usize..5, v6: bool, payload in prop::collection::vec(any::<u8>(), 1..100), at: prop::sample::Index, bit in 0u32..8) {
            let mut frame = frame(which, (0, v6, 0), [0x11; 4], &payload);
            repair(&mut frame);
            let at = frame.len() - 1 - at.index(payload.len());
            frame[at] ^= 1 << bit;
            prop_assert!(check(&frame).transport.unwrap().1.wants_repair());
        }

        #[test]
        fn no_bytes_panic(which in 0usize..5, shape in (0usize..3, any::<bool>(), 0usize..4), at in 0usize..100, byte: u8,
                          payload in prop::collection::vec(any::<u8>(), 0..60), cut in 0usize..200) {
            let mut damaged = frame(which, shape, [0; 4], &payload);
            if let Some(place) = damaged.get_mut(at) { *place = byte; }
            damaged.truncate(cut);
            let _ = (check(&damaged), repair(&mut damaged));
            prop_assert!(!check(&damaged).wants_repair());
            let mut payload = payload;
            let _ = repair(&mut payload);
        }
    }
}
