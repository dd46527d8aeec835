//! Neighbour entries (ARP and ND): `RTM_GETNEIGH`.
//!
//! An `incomplete` entry holds frames back (three by default for each entry, `unres_qlen_bytes`) until it is resolved
//! or, after three probes a second apart, `failed`; then they are dropped with `NEIGH_FAILED`.

use std::collections::BTreeMap;

use netlink_bindings::rt_neigh;
use netlink_bindings::traits::NetlinkRequest;
use record::snapshot::NeighbourSample;

use super::links::name_of;
use crate::netlink::{Dump, Family};

/// `RTM_GETNEIGH` with `struct ndmsg`, all zero: every family and interface.
pub const DUMP: Dump<'static> = Dump { family: Family::Route, kind: 30, body: &[0; HEADER_BYTES] };

const HEADER_BYTES: usize = 12;
const AF_BRIDGE: u8 = 7;

/// The states of `include/uapi/linux/neighbour.h`, by bit.
const STATES: [(u16, &str); 8] = [
    (0x01, "incomplete"),
    (0x02, "reachable"),
    (0x04, "stale"),
    (0x08, "delay"),
    (0x10, "probe"),
    (0x20, "failed"),
    (0x40, "noarp"),
    (0x80, "permanent"),
];

/// Decodes one reply; none for bridge forwarding entries and entries without an IP address.
pub fn parse(message: &[u8], names: &BTreeMap<u32, String>) -> Option<NeighbourSample> {
    let (header, attributes) = rt_neigh::OpGetneighDump::decode_reply(message);
    let address = attributes.get_dst().ok().filter(|_| header.ndm_family != AF_BRIDGE)?;
    let state = STATES.iter().find(|(bit, _)| header.ndm_state & bit != 0).map_or("none", |(_, name)| name);
    Some(NeighbourSample {
        interface: name_of(header.ndm_ifindex as u32, names),
        address: address.to_string(),
        state: state.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    const NDA_DST: u16 = 1;

    fn sample(family: u8, state: u16, address: &[u8]) -> Vec<u8> {
        let mut header = [0u8; 12];
        header[0] = family;
        header[4..8].copy_from_slice(&2u32.to_ne_bytes());
        header[8..10].copy_from_slice(&state.to_ne_bytes());
        join(&[&header, &attribute(NDA_DST, address)])
    }

    #[test]
    fn entries_have_address_and_state() {
        let names = BTreeMap::from([(2, "eth0".to_owned())]);
        let entry = parse(&sample(2, 0x20, &[10, 0, 0, 2]), &names).expect("IPv4");
        assert_eq!(
            (entry.interface.as_str(), entry.address.as_str(), entry.state.as_str()),
            ("eth0", "10.0.0.2", "failed")
        );
        let entry = parse(&sample(10, 0, &[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), &names)
            .expect("IPv6");
        assert_eq!((entry.address.as_str(), entry.state.as_str()), ("fe80::1", "none"));
        assert_eq!(parse(&sample(AF_BRIDGE, 0x80, &[1, 2, 3, 4]), &names), None);
        assert_eq!(parse(&sample(2, 2, &[1, 2, 3]), &names), None, "not an address");
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&noise, &BTreeMap::new());
        }
    }
}
