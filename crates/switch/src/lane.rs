//! Which of several connections a packet-in takes.
//!
//! **What.** [`flow_of`] makes a number of the fields by which frames belong together: addresses, VLAN, protocol and ports.
//!
//! **Why.** Auxiliary connections have no order among each other, so frames of one flow must stay on one of them, or a controller would see them
//! in another order than they came.
//!
//! **Price.** Headers that are not hashed (tunnels, labels of IPv6) put many flows on one connection.

use wire::headers::{Field, Headers};

/// What makes frames belong together.
const FIELDS: [Field; 19] = [
    Field::EthDst,
    Field::EthSrc,
    Field::EthType,
    Field::VlanVid,
    Field::IpProto,
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::TcpSrc,
    Field::TcpDst,
    Field::UdpSrc,
    Field::UdpDst,
    Field::SctpSrc,
    Field::SctpDst,
    Field::ArpSpa,
    Field::ArpTpa,
    Field::MplsLabel,
    Field::PbbIsid,
];

/// The same number for all frames of a flow, whole or only their beginning.
pub fn flow_of(frame: &[u8]) -> u64 {
    let headers = Headers::parse(frame);
    let values = FIELDS.iter().filter_map(|field| headers.get(frame, *field));
    values.fold(0, |sum, value| mix(mix(sum, value as u64), (value >> 64) as u64))
}

/// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn mix(sum: u64, word: u64) -> u64 {
    let mut mixed = (sum ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn frame(text: &str) -> Vec<u8> {
        flow::text::frame::parse(text).unwrap()
    }

    #[test]
    fn frames_of_a_flow_are_one_number_and_flows_are_many() {
        let one = "eth / ip dst=10.0.0.1 / udp dport=7";
        let number = flow_of(&frame(one));
        assert_eq!(number, flow_of(&frame(&format!("{one} / raw 0102"))));
        assert_eq!(number, flow_of(&frame(&format!("{one} / raw {}", "00".repeat(900)))[..128]));
        let many = (0..64).map(|port| flow_of(&frame(&format!("eth / ip / tcp dport={port}"))) % 4);
        assert_eq!(many.collect::<BTreeSet<_>>().len(), 4);
        for cut in 0..60 {
            flow_of(&frame(one)[..cut.min(frame(one).len())]);
        }
    }
}
