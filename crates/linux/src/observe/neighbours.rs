//! Neighbour entries (ARP and ND): `RTM_GETNEIGH`.
//!
//! An `incomplete` entry holds frames back (three by default for each entry, `unres_qlen_bytes`) until it is resolved
//! or, after three probes a second apart, `failed`; then they are dropped with `NEIGH_FAILED`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use record::snapshot::NeighbourSample;

use super::links::name_of;
use crate::netlink::{Dump, Family, after, u16_at, u32_at};

/// `RTM_GETNEIGH` with `struct ndmsg`, all zero: every family and interface.
pub const DUMP: Dump<'static> = Dump { family: Family::Route, kind: 30, body: &[0; HEADER_BYTES] };

const HEADER_BYTES: usize = 12;
const NDA_DST: u16 = 1;
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
    if *message.first()? == AF_BRIDGE {
        return None;
    }
    let (index, state) = (u32_at(message, 4)?, u16_at(message, 8)?);
    let address = after(message, HEADER_BYTES).get(NDA_DST)?;
    let state = STATES.iter().find(|(bit, _)| state & bit != 0).map_or("none", |(_, name)| name);
    Some(NeighbourSample {
        interface: name_of(index, names),
        address: ip_address(address)?.to_string(),
        state: state.to_owned(),
    })
}

/// An address of either length.
pub(super) fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

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
