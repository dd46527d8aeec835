//! Pools of pages of an interface's receive queues: `NETDEV_CMD_PAGE_POOL_STATS_GET` of the generic netlink family `netdev` (Linux 6.8).
//!
//! **What.** How many pages its drivers took from what comes back to the pool, and how many from the kernel's allocator, which takes longer. **What is
//! not there.** Only kernels built with `CONFIG_PAGE_POOL_STATS` count, and only some drivers have pools (mlx5, bnxt, ena, veth with XDP, …). A pool that is
//! given up takes its counters with it.
//!
//! Numbers are those of `include/uapi/linux/netdev.h`.

use netlink_bindings::netdev;
use netlink_bindings::traits::NetlinkRequest;

use super::queues::unsigned;
use crate::netlink::{Attributes, Dump, Family, Netlink, after, u32_at};

/// `struct genlmsghdr`: command, version, two bytes for nothing.
const GENERIC_HEADER: usize = 4;

const INFO: u16 = 1;
const INFO_IFINDEX: u16 = 2;
const ALLOC_FAST: u16 = 8;
const ALLOC_SLOW: [u16; 2] = [9, 10];

/// Pages that all pools of an interface gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolPages {
    /// From what came back.
    pub fast: u64,
    /// From the kernel's allocator, single pages and larger ones.
    pub slow: u64,
}

/// Reads the sum over the pools of an interface of the calling thread's namespace.
///
/// # Errors
/// Why it cannot be told, e.g. that there is no pool.
pub fn read(netlink: &mut Netlink, interface: u32) -> Result<PoolPages, String> {
    let family = netlink.generic_family(b"netdev").map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => "this kernel does not tell of pools of pages (Linux 6.8 does)".to_owned(),
        _ => format!("generic netlink cannot be asked: {error}"),
    })?;
    let request = netdev::Request::new().op_page_pool_stats_get_dump();
    let dump = Dump { family: Family::Generic, kind: family, body: request.payload() };
    let pools = netlink.dump(&dump, |message| parse(message, interface));
    let pools = pools.map_err(|error| match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => {
            "this kernel does not count what pools of pages do (CONFIG_PAGE_POOL_STATS)".into()
        }
        _ => format!("pools of pages cannot be read: {error}"),
    })?;
    let add = |sum: PoolPages, one: PoolPages| PoolPages {
        fast: sum.fast.saturating_add(one.fast),
        slow: sum.slow.saturating_add(one.slow),
    };
    pools.into_iter().reduce(add).ok_or_else(|| "the driver has no pool of pages".into())
}

/// Decodes one reply; none unless it is about a pool of that interface.
fn parse(message: &[u8], interface: u32) -> Option<PoolPages> {
    let attributes = after(message, GENERIC_HEADER);
    let about = Attributes(attributes.get(INFO)?);
    (u32_at(about.get(INFO_IFINDEX)?, 0)? == interface).then_some(())?;
    let count = |number| unsigned(attributes.get(number)?);
    let [slow, large] = ALLOC_SLOW.map(count);
    Some(PoolPages { fast: count(ALLOC_FAST)?, slow: slow?.saturating_add(large?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    fn reply(interface: u32, counts: &[(u16, u64)]) -> Vec<u8> {
        let about = attribute(INFO_IFINDEX, &interface.to_ne_bytes());
        let counts: Vec<u8> =
            counts.iter().flat_map(|(number, count)| attribute(*number, &count.to_ne_bytes())).collect();
        join(&[&[9, 1, 0, 0], &attribute(INFO, &about), &counts])
    }

    #[test]
    fn pages_of_one_interface_are_read() {
        let message = reply(4, &[(8, 900), (9, 5), (10, 2), (11, 77)]);
        assert_eq!(parse(&message, 4), Some(PoolPages { fast: 900, slow: 7 }));
        assert_eq!(parse(&message, 5), None);
        assert_eq!(parse(&reply(4, &[(8, 900)]), 4), None, "what is missing is not zero");
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&noise, 1);
        }
    }

    #[test]
    fn loopback_has_no_pool() {
        let why = read(&mut Netlink::open(), 1).unwrap_err();
        assert!(why.contains("pool"), "{why}");
    }
}
