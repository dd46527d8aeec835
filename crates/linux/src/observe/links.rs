//! Interfaces: `RTM_GETLINK`.
//!
//! `IFLA_STATS64` is read instead of `/proc/net/dev`, which folds `rx_missed_errors` into the drop column and so hides
//! who dropped. `rx_packets` includes frames that the host dropped later; `tx_packets` are frames handed to the device.

use std::collections::BTreeMap;

use record::snapshot::{Counters, LinkSample};

use crate::netlink::{Dump, Family, LinkState, after, u32_at, u64_at};

/// `RTM_GETLINK` with `struct ifinfomsg`, and `IFLA_EXT_MASK` with `RTEXT_FILTER_SKIP_STATS` *not* set: statistics are wanted.
pub const DUMP: Dump<'static> = Dump { family: Family::Route, kind: 18, body: &[0; HEADER_BYTES] };

const HEADER_BYTES: usize = 16;
const IFLA_STATS64: u16 = 23;
const IFLA_CARRIER_CHANGES: u16 = 35;

/// `struct rtnl_link_stats64`, in its order; older kernels have fewer.
pub const STATS64: [&str; 25] = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "multicast",
    "collisions",
    "rx_length_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
    "rx_compressed",
    "tx_compressed",
    "rx_nohandler",
    "rx_otherhost_dropped",
];

/// Decodes one reply; none if it has no name.
pub fn parse(message: &[u8]) -> Option<LinkSample> {
    let link = LinkState::parse(message);
    let attributes = after(message, HEADER_BYTES);
    let changes = attributes.get(IFLA_CARRIER_CHANGES).and_then(|content| u32_at(content, 0));
    (!link.name.is_empty()).then(|| LinkSample {
        index: link.index,
        name: link.name,
        kind: link.kind,
        up: link.up,
        carrier: link.carrier,
        carrier_changes: changes.map_or(0, u64::from),
        mtu: link.mtu,
        tx_queue_len: link.tx_queue_len,
        qdisc: link.qdisc,
        master: link.master,
        bridge_state: link.port_state,
        bridge_flags: link.port_flags.into_iter().map(str::to_owned).collect(),
        counters: attributes.get(IFLA_STATS64).map(counters).unwrap_or_default(),
    })
}

/// The name of an interface, or its number.
pub(super) fn name_of(index: u32, names: &BTreeMap<u32, String>) -> String {
    names.get(&index).cloned().unwrap_or_else(|| format!("interface {index}"))
}

fn counters(content: &[u8]) -> Counters {
    let value = |(i, name): (usize, &&str)| Some(((*name).to_owned(), u64_at(content, i * 8)?));
    STATS64.iter().enumerate().map_while(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    // include/uapi/linux/if_link.h
    const IFF_UP: u32 = 1;
    const IFF_LOWER_UP: u32 = 1 << 16;
    const IFLA_IFNAME: u16 = 3;
    const IFLA_MTU: u16 = 4;
    const IFLA_QDISC: u16 = 6;
    const IFLA_MASTER: u16 = 10;
    const IFLA_TXQLEN: u16 = 13;
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_INFO_KIND: u16 = 1;
    const IFLA_INFO_SLAVE_KIND: u16 = 4;
    const IFLA_INFO_SLAVE_DATA: u16 = 5;
    const IFLA_BRPORT_STATE: u16 = 1;

    fn sample() -> Vec<u8> {
        let mut header = [0u8; 16];
        header[4..8].copy_from_slice(&7u32.to_ne_bytes());
        header[8..12].copy_from_slice(&(IFF_UP | IFF_LOWER_UP).to_ne_bytes());
        let statistics: Vec<u8> = (100u64..125).flat_map(u64::to_ne_bytes).collect();
        let port = attribute(IFLA_BRPORT_STATE, &[3]);
        let information = join(&[
            &attribute(IFLA_INFO_KIND, b"veth\0"),
            &attribute(IFLA_INFO_SLAVE_KIND, b"bridge\0"),
            &attribute(IFLA_INFO_SLAVE_DATA | 0x8000, &port),
        ]);
        join(&[
            &header,
            &attribute(IFLA_IFNAME, b"a0\0"),
            &attribute(IFLA_MTU, &1500u32.to_ne_bytes()),
            &attribute(IFLA_QDISC, b"tbf\0"),
            &attribute(IFLA_MASTER, &3u32.to_ne_bytes()),
            &attribute(IFLA_TXQLEN, &1000u32.to_ne_bytes()),
            &attribute(IFLA_CARRIER_CHANGES, &2u32.to_ne_bytes()),
            &attribute(IFLA_STATS64, &statistics),
            &attribute(IFLA_LINKINFO, &information),
        ])
    }

    #[test]
    fn a_link_is_read_whole() {
        let link = parse(&sample()).expect("well formed");
        assert_eq!((link.name.as_str(), link.index, link.mtu, link.master), ("a0", 7, 1500, 3));
        assert_eq!((link.up, link.carrier, link.carrier_changes, link.tx_queue_len), (true, true, 2, 1000));
        assert_eq!((link.kind.as_str(), link.bridge_state, link.qdisc.as_str()), ("veth", Some(3), "tbf"));
        assert_eq!(link.counters.len(), 25);
        assert_eq!((link.counters["rx_packets"], link.counters["rx_otherhost_dropped"]), (100, 124));
    }

    #[test]
    fn an_older_kernel_has_fewer_counters_not_zeros() {
        let short: Vec<u8> = (1u64..4).flat_map(u64::to_ne_bytes).collect();
        let message = join(&[&[0; 16], &attribute(IFLA_IFNAME, b"x\0"), &attribute(IFLA_STATS64, &short)]);
        let link = parse(&message).expect("named");
        assert_eq!(link.counters.len(), 3);
        assert!(!link.counters.contains_key("rx_dropped"));
    }

    #[test]
    fn every_counter_has_a_meaning() {
        for name in STATS64.iter().chain(&["carrier_changes"]) {
            assert!(
                record::counter::of("interface", name).is_some(),
                "{name} has no row in docs/counters/host.md"
            );
        }
    }

    proptest! {
        #[test]
        fn damage_never_panics(cut in 0usize..500, at in 0usize..500, byte: u8) {
            let mut bytes = sample();
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
            bytes.truncate(cut);
            let _ = parse(&bytes);
        }
    }
}
