//! Edits whose outcome is written down byte by byte.

use super::*;
use crate::build::{Ends, build_udp};

const TO: [u8; 6] = [0x22; 6];
const FROM: [u8; 6] = [0x12, 0x11, 0x11, 0x11, 0x11, 0x11];

fn datagram(v6: bool) -> Vec<u8> {
    let addresses = if v6 {
        ("10::10".parse().unwrap(), "20::20".parse().unwrap())
    } else {
        ("192.168.10.10".parse().unwrap(), "192.168.20.20".parse().unwrap())
    };
    build_udp(&Ends { macs: (FROM, TO), addresses, ports: (11111, 2222) }, b"journal").unwrap()
}

/// The frame behind its addresses.
fn rest(frame: &FrameBuf) -> &[u8] {
    assert_eq!(frame.bytes()[..12], [TO, FROM].concat());
    &frame.bytes()[12..]
}

#[test]
fn a_pushed_vlan_tag_copies_vlan_and_priority_but_not_the_drop_bit() {
    let mut frame = loaded(&datagram(false));
    frame.push_vlan(VLAN).unwrap();
    assert_eq!(rest(&frame)[..6], [0x81, 0, 0, 0, 8, 0]);
    frame.set(Field::VlanVid, 0x1064).unwrap();
    frame.set(Field::VlanPcp, 3).unwrap();
    let mut with_drop_bit = frame.bytes().to_vec();
    with_drop_bit[14] |= 0x10;
    let mut frame = loaded(&with_drop_bit);
    frame.push_vlan(SERVICE_VLAN).unwrap();
    assert_eq!(rest(&frame)[..10], [0x88, 0xa8, 0x60, 0x64, 0x81, 0, 0x70, 0x64, 8, 0]);
    assert_eq!(frame.get(Field::EthType), Some(0x0800));
}

#[test]
fn a_pushed_mpls_entry_takes_the_ttl_of_ip_or_everything_of_the_entry_below() {
    for v6 in [false, true] {
        let mut frame = loaded(&datagram(v6));
        frame.push_mpls(MPLS).unwrap();
        assert_eq!(rest(&frame)[..6], [0x88, 0x47, 0, 0, 1, 64]);
        frame.set(Field::MplsLabel, 100).unwrap();
        frame.set(Field::MplsTc, 3).unwrap();
        frame.set_mpls_ttl(32).unwrap();
        frame.push_mpls(MPLS_MULTICAST).unwrap();
        assert_eq!(rest(&frame)[..10], [0x88, 0x48, 0, 6, 0x46, 32, 0, 6, 0x47, 32]);
        frame.pop_mpls(MPLS).unwrap();
        frame.pop_mpls(if v6 { 0x86dd } else { 0x0800 }).unwrap();
        assert!(is_filled(&datagram(v6), 8, frame.bytes()));
    }
    let mut arp = [&TO[..], &FROM, &[8, 6], &[0; 46]].concat();
    arp[14..20].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
    let mut frame = loaded(&arp);
    frame.push_mpls(MPLS).unwrap();
    assert_eq!(rest(&frame)[..6], [0x88, 0x47, 0, 0, 1, 0], "ARP has no TTL");
}

#[test]
fn an_mpls_entry_goes_in_front_of_vlan_tags_and_is_then_the_bottom() {
    let mut frame = loaded(&datagram(false));
    frame.push_mpls(MPLS).unwrap();
    frame.push_vlan(VLAN).unwrap();
    frame.set(Field::VlanVid, 0x1007).unwrap();
    frame.set(Field::MplsLabel, 5).unwrap();
    frame.push_mpls(MPLS).unwrap();
    let expected = [0x88, 0x47, 0, 0, 0x51, 64, 0, 7, 0x88, 0x47, 0, 0, 0x51, 64];
    assert_eq!(rest(&frame)[..14], expected);
    assert_eq!(frame.get(Field::VlanVid), Some(0));
    frame.pop_mpls(VLAN).unwrap();
    assert_eq!(frame.get(Field::VlanVid), Some(0x1007));
}

#[test]
fn a_pushed_pbb_header_copies_addresses_instance_and_priority() {
    let mut frame = loaded(&datagram(false));
    let original = frame.bytes().to_vec();
    frame.push_pbb(PBB).unwrap();
    assert_eq!(rest(&frame)[..6], [0x88, 0xe7, 0, 0, 0, 0]);
    assert_eq!(rest(&frame)[6..], original);
    frame.set(Field::PbbIsid, 0x00ab_cdef).unwrap();
    frame.push_vlan(SERVICE_VLAN).unwrap();
    frame.set(Field::VlanPcp, 5).unwrap();
    frame.set(Field::EthDst, 7).unwrap();
    frame.push_pbb(PBB).unwrap();
    assert_eq!(
        frame.bytes()[..18],
        [&[0, 0, 0, 0, 0, 7], &FROM[..], &[0x88, 0xe7, 0xa0, 0xab, 0xcd, 0xef]].concat()
    );
    frame.pop_pbb().unwrap();
    // The backbone's VLAN tag stays, the customer's addresses come back.
    frame.pop_pbb().unwrap();
    assert_eq!(rest(&frame)[..6], [0x88, 0xa8, 0xa0, 0, 8, 0]);
    let (same, filling) = frame.bytes()[16..].split_at(original.len() - 12);
    assert_eq!((same, filling), (&original[12..], &[0; 7][..]));
}

#[test]
fn ttls_count_down_to_one() {
    for v6 in [false, true] {
        let mut frame = loaded(&datagram(v6));
        frame.set_nw_ttl(2).unwrap();
        frame.dec_nw_ttl().unwrap();
        assert_eq!(frame.dec_nw_ttl(), Err(Refused::Expired));
        assert!(!check(frame.bytes()).wants_repair());
        frame.set_nw_ttl(0).unwrap();
        assert_eq!(frame.dec_nw_ttl(), Err(Refused::Expired));
        assert_eq!(frame.dec_mpls_ttl(), Err(Refused::Absent));
        frame.push_mpls(MPLS).unwrap();
        assert_eq!(frame.dec_mpls_ttl(), Err(Refused::Expired));
        frame.set_mpls_ttl(64).unwrap();
        frame.dec_mpls_ttl().unwrap();
        assert_eq!(frame.bytes()[17], 63);
        assert_eq!(frame.dec_nw_ttl(), Err(Refused::Absent), "hidden behind the label");
    }
}

#[test]
fn ttls_are_copied_between_all_that_have_one() {
    for (v6, ethertype) in [(false, 0x0800), (true, 0x86dd)] {
        let mut frame = loaded(&datagram(v6));
        assert_eq!(frame.copy_ttl_in(), Err(Refused::Absent));
        frame.set_nw_ttl(32).unwrap();
        frame.push_mpls(MPLS).unwrap();
        frame.set_mpls_ttl(64).unwrap();
        frame.push_mpls(MPLS).unwrap();
        frame.set_mpls_ttl(7).unwrap();
        frame.copy_ttl_out().unwrap();
        assert_eq!(frame.bytes()[17], 64);
        frame.set_mpls_ttl(7).unwrap();
        frame.copy_ttl_in().unwrap();
        assert_eq!(frame.bytes()[21], 7);
        frame.pop_mpls(MPLS).unwrap();
        frame.set_mpls_ttl(99).unwrap();
        frame.copy_ttl_in().unwrap();
        frame.pop_mpls(ethertype).unwrap();
        assert_eq!(check(frame.bytes()), check(&datagram(v6)), "right again");
        frame.push_mpls(MPLS).unwrap();
        assert_eq!(frame.bytes()[17], 99);
    }
}

#[test]
fn ttls_are_copied_from_ip_to_ip() {
    for (outer, inner, protocol) in [(false, true, 41), (true, false, 4), (false, false, 4)] {
        let (outside, inside) = (datagram(outer), datagram(inner));
        let header = if outer { 40 } else { 20 };
        let mut bytes = [&outside[..14 + header], &inside[14..]].concat();
        let length = (bytes.len() - 14) as u16;
        if outer {
            bytes[18..20].copy_from_slice(&(length - 40).to_be_bytes());
            bytes[20] = protocol;
        } else {
            bytes[16..18].copy_from_slice(&length.to_be_bytes());
            bytes[23] = protocol;
        }
        repair(&mut bytes);
        let mut frame = loaded(&bytes);
        frame.set_nw_ttl(9).unwrap();
        frame.copy_ttl_in().unwrap();
        let packet = &frame.bytes()[14 + header..];
        assert_eq!(packet[if inner { 7 } else { 8 }], 9);
        assert!(inner || checksum(&packet[..20]) == 0);
        frame.set_nw_ttl(200).unwrap();
        frame.copy_ttl_out().unwrap();
        assert_eq!(frame.bytes()[14 + if outer { 7 } else { 8 }], 9);
        assert!(outer || checksum(&frame.bytes()[14..34]) == 0);
    }
}

#[test]
fn a_udp_datagram_without_a_checksum_stays_without() {
    let mut bytes = datagram(false);
    bytes[40..42].fill(0);
    for (field, value) in [(Field::Ipv4Src, 1), (Field::UdpDst, 9), (Field::IpDscp, 9)] {
        bytes = set_alone(&bytes, field, value);
        assert_eq!(bytes[40..42], [0, 0]);
        assert_eq!(check(&bytes).ipv4, Some(Check::Right));
    }
}

#[test]
fn a_udp_sum_of_zero_is_sent_as_ones() {
    let frame = datagram(false);
    // The port that takes the checksum to zero.
    let port = be16(&frame, 36);
    let sum = be16(&frame, 40);
    let (to_zero, carry) = port.overflowing_add(sum);
    let frame = set_alone(&frame, Field::UdpDst, u128::from(to_zero + u16::from(carry)));
    assert_eq!(be16(&frame, 40), 0xffff);
    assert_eq!(check(&frame).transport, Some((Protocol::Udp, Check::Right)));
    let back = set_alone(&frame, Field::UdpDst, u128::from(port));
    assert_eq!(back, datagram(false));
}

#[test]
fn an_echo_of_zeros_gets_the_complement_of_zero() {
    let mut frame = datagram(false);
    frame[34..].fill(0);
    (frame[23], frame[34]) = (1, 8);
    repair(&mut frame);
    let reply = set_alone(&frame, Field::Icmpv4Type, 0);
    assert_eq!(reply[36..38], [0xff, 0xff]);
    assert_eq!(check(&reply).transport, Some((Protocol::Icmp, Check::Right)));
}

#[test]
fn with_a_routing_header_the_destination_is_not_in_the_checksum() {
    let mut frame = datagram(true);
    let udp = frame.split_off(54);
    let length = udp.len() as u16 + 24;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame[20] = 43;
    frame.extend([17, 2, 0, 1, 0, 0, 0, 0]);
    frame.extend([0xfd; 16]);
    frame.extend(&udp);
    repair(&mut frame);
    let sum = be16(&frame, 84);
    let moved = set_alone(&frame, Field::Ipv6Dst, 1);
    assert_eq!(be16(&moved, 84), sum);
    assert_eq!(check(&moved).transport, Some((Protocol::Udp, Check::Right)));
    frame[57] = 0; // travelled
    repair(&mut frame);
    let sum = be16(&frame, 84);
    let moved = set_alone(&frame, Field::Ipv6Dst, 1);
    assert_ne!(be16(&moved, 84), sum);
    assert_eq!(check(&moved).transport, Some((Protocol::Udp, Check::Right)));
}

#[test]
fn another_protocol_is_another_pseudo_header_at_the_same_place() {
    for v6 in [false, true] {
        let before = datagram(v6);
        let field = if v6 { 60 } else { 40 };
        let after = set_alone(&before, Field::IpProto, 6);
        let start = field - 6;
        let layers = Layers::of(&before).unwrap();
        let sum = layers.pseudo(&after, 6, after.len() - start).add_bytes(&after[start..]).finish();
        assert_eq!(sum, 0);
        assert_eq!(set_alone(&after, Field::EthSrc, 1)[field..], after[field..]);
        assert_eq!(loaded(&after).get(Field::UdpDst), None);
    }
}

#[test]
fn a_later_fragment_has_no_transport_to_change() {
    let mut frame = datagram(false);
    frame[20..22].copy_from_slice(&[0, 3]);
    repair(&mut frame);
    let transport = frame[34..].to_vec();
    let mut buffer = loaded(&frame);
    assert_eq!(buffer.set(Field::UdpDst, 1), Err(Refused::Absent));
    buffer.set(Field::Ipv4Dst, 1).unwrap();
    buffer.set(Field::IpProto, 6).unwrap();
    assert_eq!(buffer.bytes()[34..], transport);
    assert_eq!(check(buffer.bytes()).ipv4, Some(Check::Right));
}

#[test]
fn what_does_not_fit_is_refused() {
    let frame = datagram(false);
    let mut buffer = loaded(&frame);
    assert_eq!(buffer.set(Field::Ipv4Dst, 1 << 32), Err(Refused::Value));
    assert_eq!(buffer.set(Field::Ipv6Exthdr, 0), Err(Refused::ReadOnly));
    assert_eq!(buffer.set(Field::VlanVid, 0x1001), Err(Refused::Absent));
    assert_eq!(buffer.push_vlan(0x9100), Err(Refused::Ethertype));
    assert_eq!(buffer.push_mpls(0x0800), Err(Refused::Ethertype));
    assert_eq!(buffer.push_pbb(VLAN), Err(Refused::Ethertype));
    assert_eq!(buffer.pop_vlan(), Err(Refused::Absent));
    assert_eq!(buffer.bytes(), frame);
    buffer.push_vlan(VLAN).unwrap();
    assert_eq!(buffer.set(Field::VlanVid, 5), Err(Refused::Value), "OFPVID_PRESENT is missing");
    let mut longest = vec![0; LONGEST - 4];
    longest[12] = 8;
    buffer.load(&longest, Offload::NONE);
    assert_eq!(buffer.push_pbb(PBB), Err(Refused::TooLong));
    buffer.push_vlan(VLAN).unwrap();
    assert_eq!(buffer.push_mpls(MPLS), Err(Refused::TooLong));
    assert_eq!(buffer.bytes().len(), LONGEST);
}

#[test]
fn a_pop_fills_the_frame_up_to_what_a_wire_carries() {
    let mut minimal = [&[7; 12][..], &[0x81, 0, 0, 5, 0x88, 0xcc], &[9; 42]].concat();
    let mut frame = loaded(&minimal);
    frame.pop_vlan().unwrap();
    assert_eq!(frame.bytes(), [&[7; 12][..], &[0x88, 0xcc], &[9; 42], &[0; 4]].concat());
    // Too short already: nothing to preserve.
    minimal.pop();
    let mut frame = loaded(&minimal);
    frame.pop_vlan().unwrap();
    assert_eq!(frame.bytes().len(), 55);
}

#[test]
fn loading_and_copying_take_no_new_memory() {
    let mut frame = loaded(&[1; 1500]);
    let mut copy = frame.clone();
    let places = (frame.bytes().as_ptr(), copy.bytes().as_ptr());
    frame.push_pbb(PBB).unwrap();
    frame.load(&datagram(true), Offload::NONE);
    copy.clone_from(&frame);
    assert_eq!((frame.bytes().as_ptr(), copy.bytes().as_ptr()), places);
    assert_eq!((copy.bytes(), copy.headers()), (frame.bytes(), frame.headers()));
}
