//! One line of text for any frame, for people who look at captures and failed tests.

use crate::frame::{self, Ethernet, Ipv4, Ipv6, Mac, Tcp, Udp};
use crate::icmp::{self, Echo};
use crate::layers::VLAN_TAGS;
use crate::message::Message;
use crate::pktgen::Pktgen;
use crate::{Malformed, be16};
use std::fmt::{Display, Write};

/// The frame in one line, e.g. `02:00:00:00:00:01 > 02:00:00:00:00:02 10.0.0.1:7 > 10.0.0.2:9 UDP 64 seq 3`. Damaged
/// headers are said, never guessed.
pub fn line(bytes: &[u8]) -> String {
    let ethernet = match Ethernet::parse(bytes) {
        Ok(ethernet) => ethernet,
        Err(malformed) => return malformed.to_string(),
    };
    let mut text = format!("{} > {} ", mac(ethernet.source()), mac(ethernet.destination()));
    let (mut ethertype, mut payload) = (ethernet.ethertype(), ethernet.payload());
    while VLAN_TAGS.contains(&ethertype) {
        let Some((tag, rest)) = payload.split_at_checked(4) else {
            add(&mut text, format_args!("VLAN tag cut short: {} of 4 bytes", payload.len()));
            return text;
        };
        vlan(&mut text, be16(tag, 0));
        (ethertype, payload) = (be16(tag, 2), rest);
    }
    if let Err(malformed) = network(&mut text, ethertype, payload) {
        add(&mut text, format_args!("{malformed}"));
    }
    text
}

/// What stands behind an Ethernet header of that type, in one line: a packet whose link layer is gone.
pub fn packet(ethertype: u16, bytes: &[u8]) -> String {
    let mut text = String::new();
    if let Err(malformed) = network(&mut text, ethertype, bytes) {
        add(&mut text, format_args!("{malformed}"));
    }
    text
}

/// A tag: its VLAN, and what is set of priority and drop eligibility (IEEE 802.1Q clause 9.6).
fn vlan(text: &mut String, control: u16) {
    add(text, format_args!("vlan {} ", control & 0x0fff));
    if control >> 13 > 0 {
        add(text, format_args!("pcp {} ", control >> 13));
    }
    if control & 0x1000 != 0 {
        text.push_str("dei ");
    }
}

/// What stands behind the Ethernet header and its tags.
fn network(text: &mut String, ethertype: u16, payload: &[u8]) -> Result<(), Malformed> {
    match ethertype {
        frame::IPV4 => return ipv4(text, payload),
        frame::IPV6 => {
            let ip = Ipv6::parse(payload)?;
            transport(text, ip.next_header(), &ip.source(), &ip.destination(), ip.payload());
        }
        frame::ARP if payload.len() >= 8 => add(text, format_args!("ARP operation {}", be16(payload, 6))),
        other => add(text, format_args!("ethertype {other:#06x} {}", payload.len())),
    }
    Ok(())
}

fn ipv4(text: &mut String, payload: &[u8]) -> Result<(), Malformed> {
    let ip = Ipv4::parse(payload)?;
    if ip.is_later_fragment() {
        add(text, format_args!("{} > {} fragment {}", ip.source(), ip.destination(), ip.payload().len()));
    } else {
        transport(text, ip.protocol(), &ip.source(), &ip.destination(), ip.payload());
    }
    if !ip.is_intact() {
        text.push_str(" (wrong IPv4 checksum)");
    }
    Ok(())
}

fn transport(text: &mut String, protocol: u8, from: &dyn Display, to: &dyn Display, payload: &[u8]) {
    let said = match protocol {
        frame::UDP => Udp::parse(payload).map(|udp| {
            let (source, destination) = (udp.source(), udp.destination());
            add(text, format_args!("{from}:{source} > {to}:{destination} UDP {}", udp.payload().len()));
            test_message(text, udp.payload());
        }),
        frame::TCP => Tcp::parse(payload).map(|tcp| {
            let (source, destination, flags) = (tcp.source(), tcp.destination(), tcp.flags());
            let length = tcp.payload().len();
            add(text, format_args!("{from}:{source} > {to}:{destination} TCP {length} flags {flags:#04x}"));
        }),
        frame::ICMP | frame::ICMPV6 => Echo::parse(payload).map(|echo| {
            let name = match echo.kind() {
                icmp::V4_REQUEST | icmp::V6_REQUEST => "echo request",
                icmp::V4_REPLY | icmp::V6_REPLY => "echo reply",
                _ => "ICMP",
            };
            add(text, format_args!("{from} > {to} {name} type {} id {}", echo.kind(), echo.identifier()));
            test_message(text, echo.data());
        }),
        other => {
            add(text, format_args!("{from} > {to} protocol {other} {}", payload.len()));
            Ok(())
        }
    };
    if let Err(malformed) = said {
        add(text, format_args!("{from} > {to} {malformed}"));
    }
}

fn test_message(text: &mut String, payload: &[u8]) {
    if let Some(message) = Message::read(payload) {
        add(text, format_args!(" seq {}", message.sequence));
    } else if let Some(header) = Pktgen::read(payload) {
        add(text, format_args!(" pktgen seq {}", header.sequence));
    }
}

fn mac(mac: Mac) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn add(text: &mut String, piece: std::fmt::Arguments<'_>) {
    text.write_fmt(piece).expect("a String takes all text");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Ends, build_echo, build_udp};
    use crate::message::Flags;
    use proptest::prelude::*;

    fn ends() -> Ends {
        Ends {
            macs: ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]),
            addresses: ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()),
            ports: (7, 9),
        }
    }

    #[test]
    fn a_test_datagram_in_one_line() {
        let mut payload = [0; 64];
        Message { stream: 1, flags: Flags::DATA, sequence: 3, planned_ns: 5 }.write(&mut payload);
        let frame = build_udp(&ends(), &payload).unwrap();
        assert_eq!(
            line(&frame),
            "02:00:00:00:00:01 > 02:00:00:00:00:02 10.0.0.1:7 > 10.0.0.2:9 UDP 64 seq 3"
        );
        assert!(line(&frame[..40]).ends_with("IPv4 cut short: 26 of 92 bytes"));
    }

    #[test]
    fn what_is_behind_vlan_tags_is_told_too() {
        let frame = build_udp(&ends(), &[0; 20]).unwrap();
        let tagged = |tags: &[u8]| [&frame[..12], tags, &frame[12..]].concat();
        let text = line(&tagged(&[0x81, 0, 0x60, 5]));
        assert!(text.ends_with("02 vlan 5 pcp 3 10.0.0.1:7 > 10.0.0.2:9 UDP 20"), "{text}");
        let text = line(&tagged(&[0x88, 0xa8, 0x10, 7, 0x81, 0, 0, 5]));
        assert!(text.ends_with("02 vlan 7 dei vlan 5 10.0.0.1:7 > 10.0.0.2:9 UDP 20"), "{text}");
        assert!(line(&tagged(&[0x81, 0, 0, 5])[..16]).ends_with("VLAN tag cut short: 2 of 4 bytes"));
    }

    #[test]
    fn a_frame_of_pktgen_in_one_line() {
        let mut payload = [0; 18];
        Pktgen { sequence: 4_000_000_000, seconds: 1, microseconds: 2 }.write(&mut payload);
        let text = line(&build_udp(&ends(), &payload).unwrap());
        assert!(text.ends_with("10.0.0.1:7 > 10.0.0.2:9 UDP 18 pktgen seq 4000000000"), "{text}");
    }

    #[test]
    fn an_echo_in_one_line() {
        let text = line(&build_echo(&ends(), 77, 1, b"x").unwrap());
        assert!(text.ends_with("10.0.0.1 > 10.0.0.2 echo request type 8 id 77"), "{text}");
    }

    proptest! {
        #[test]
        fn damaged_frames_still_have_a_line(at in 0usize..80, value: u8, cut in 0usize..100) {
            let mut frame = build_udp(&ends(), &[0; 40]).unwrap();
            let at = at % frame.len();
            frame[at] = value;
            frame.truncate(cut);
            prop_assert!(!line(&frame).contains('\n'));
        }

        #[test]
        fn any_bytes_have_a_line(bytes in prop::collection::vec(any::<u8>(), 0..90)) {
            prop_assert!(!line(&bytes).is_empty());
        }
    }
}
