//! Receive queues of an interface: `NETDEV_CMD_QSTATS_GET` of the generic netlink family `netdev` (Linux 6.8).
//!
//! **What.** For each receive queue what its driver counts: frames, and those lost for want of memory or of descriptors.
//! **Why.** `rx_missed_errors` says that a card was overrun, not which queue: one busy queue beside idle ones is cured
//! by spreading flows, all of them full by a larger ring. **Price.** Only drivers with `netdev_stat_ops` answer
//! (mlx5, bnxt, virtio_net, …); veth, tap and loopback have none, and that is said: missing is not zero. What a queue
//! lost may be in the interface's `rx_missed_errors`, too, so the two are never added up.
//!
//! Numbers are those of `include/uapi/linux/netdev.h`.

use netlink_bindings::netdev;
use netlink_bindings::traits::NetlinkRequest;
use record::snapshot::Counters;

use crate::netlink::{Dump, Family, Netlink, after, u32_at, u64_at};

/// `struct genlmsghdr`: command, version, two bytes for nothing.
const GENERIC_HEADER: usize = 4;

const NETDEV_A_QSTATS_IFINDEX: u16 = 1;
const NETDEV_A_QSTATS_QUEUE_TYPE: u16 = 2;
const NETDEV_A_QSTATS_QUEUE_ID: u16 = 3;
const SCOPE_QUEUE: u32 = 1;
const RECEIVE: u32 = 0;

/// The counters that are read, by attribute.
const COUNTERS: [(u16, &str); 5] = [
    (8, "rx_packets"),
    (12, "rx_alloc_fail"),
    (13, "rx_hw_drops"),
    (14, "rx_hw_drop_overruns"),
    (23, "rx_hw_drop_ratelimits"),
];

/// One receive queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceiveQueue {
    /// Its number.
    pub number: u32,
    /// What its driver counts; what it does not count is not there.
    pub counters: Counters,
}

/// Reads the queues of interfaces of the namespace in which it was opened.
#[derive(Debug)]
pub struct Queues {
    netlink: Netlink,
    family: u16,
}

impl Queues {
    /// Opens it in the namespace of the calling thread.
    ///
    /// # Errors
    /// Why nobody can tell: this kernel has no such family.
    pub fn open() -> Result<Queues, String> {
        let mut netlink = Netlink::open();
        let family = netlink.generic_family(b"netdev").map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => "this kernel does not count by queue (Linux 6.8 does)".to_owned(),
            _ => format!("generic netlink cannot be asked: {error}"),
        })?;
        Ok(Queues { netlink, family })
    }

    /// Reads the receive queues of an interface, in their order.
    ///
    /// # Errors
    /// Why it cannot be told, e.g. that the driver does not count by queue.
    pub fn read(&mut self, interface: u32) -> Result<Vec<ReceiveQueue>, String> {
        let mut request = netdev::Request::new().op_qstats_get_dump();
        request.encode().push_ifindex(interface).push_scope(SCOPE_QUEUE);
        let dump = Dump { family: Family::Generic, kind: self.family, body: request.payload() };
        let read = self.netlink.dump(&dump, |message| parse(message, interface));
        let mut queues = read.map_err(|error| match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => "the driver does not count by queue".to_owned(),
            _ => format!("the queues cannot be read: {error}"),
        })?;
        queues.sort_by_key(|queue| queue.number);
        Ok(queues)
    }
}

/// Decodes one reply; none unless it is about a receive queue of that interface.
fn parse(message: &[u8], interface: u32) -> Option<ReceiveQueue> {
    let attributes = after(message, GENERIC_HEADER);
    let number = |wanted| attributes.get(wanted).and_then(|content| u32_at(content, 0));
    if number(NETDEV_A_QSTATS_IFINDEX)? != interface || number(NETDEV_A_QSTATS_QUEUE_TYPE)? != RECEIVE {
        return None;
    }
    let counter =
        |(wanted, name): &(u16, &str)| Some(((*name).to_owned(), unsigned(attributes.get(*wanted)?)?));
    Some(ReceiveQueue {
        number: number(NETDEV_A_QSTATS_QUEUE_ID)?,
        counters: COUNTERS.iter().filter_map(counter).collect(),
    })
}

/// A number that takes four bytes where it fits into them, else eight (`nla_put_uint`).
pub(super) fn unsigned(content: &[u8]) -> Option<u64> {
    match content.len() {
        4 => u32_at(content, 0).map(u64::from),
        _ => u64_at(content, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    const NETDEV_CMD_QSTATS_GET: u8 = 12;

    fn word(number: u16, value: u32) -> Vec<u8> {
        attribute(number, &value.to_ne_bytes())
    }

    /// A reply as `netdev_nl_stats_queue` of the kernel builds it.
    fn reply(interface: u32, queue: u32, kind: u32, counters: &[Vec<u8>]) -> Vec<u8> {
        let head = [word(1, interface), word(3, queue), word(2, kind)].concat();
        join(&[&[NETDEV_CMD_QSTATS_GET, 1, 0, 0], &head, &counters.concat()])
    }

    #[test]
    fn counters_of_both_widths_are_read_and_missing_ones_stay_missing() {
        let counters = [word(8, 17), attribute(13, &(5u64 << 32).to_ne_bytes()), word(14, 3), word(20, 9)];
        let queue = parse(&reply(4, 2, RECEIVE, &counters), 4).unwrap();
        assert_eq!(queue.number, 2);
        let told: Vec<_> = queue.counters.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(told, [("rx_hw_drop_overruns", 3), ("rx_hw_drops", 5 << 32), ("rx_packets", 17)]);
    }

    #[test]
    fn every_counter_has_a_meaning() {
        for (_, name) in COUNTERS {
            assert!(
                record::counter::of("queue", name).is_some(),
                "{name} has no row in docs/counters/host.md"
            );
        }
    }

    #[test]
    fn other_interfaces_and_transmit_queues_are_left_out() {
        assert!(parse(&reply(4, 0, RECEIVE, &[]), 5).is_none());
        assert!(parse(&reply(4, 0, 1, &[]), 4).is_none());
        assert!(parse(&reply(4, 0, RECEIVE, &[])[..12], 4).is_none(), "cut short");
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = (parse(&noise, 1), unsigned(&noise));
        }
    }

    #[test]
    fn loopback_says_that_it_does_not_count_by_queue() {
        let Ok(mut queues) = Queues::open() else {
            return println!("SKIP: counters of queues: this kernel has no netdev family");
        };
        assert_eq!(queues.read(1).unwrap_err(), "the driver does not count by queue");
        assert!(queues.read(0x7fff_ffff).unwrap_err().contains("cannot be read"));
    }
}
