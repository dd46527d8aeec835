//! What drivers count of frames that programs of XDP threw away (`ethtool -S`).
//!
//! **Why.** `XDP_DROP` frees a frame before it is a buffer, and the kernel has no event there: only the driver can count it, under a name of
//! its own (veth: `rx_queue_0_xdp_drops`). **Price.** Two requests for each interface; a driver that keeps no such counter says nothing,
//! which is not zero.

use std::io;

use crate::sys::packet;

/// The counters of an interface of the calling thread's namespace that are about frames lost at XDP.
///
/// # Errors
/// What the kernel says; `EOPNOTSUPP` where the driver keeps no counters of its own.
pub fn of_xdp(interface: &str) -> io::Result<Vec<(String, u64)>> {
    let socket = packet::any_socket()?;
    let mut found = packet::driver_counters(&socket, interface)?;
    found.retain(|(name, _)| is_of_lost_frames(name));
    Ok(found)
}

fn is_of_lost_frames(name: &str) -> bool {
    const LOST: [&str; 5] = ["drop", "err", "exception", "abort", "invalid"];
    (name.contains("xdp") || name.contains("xsk")) && LOST.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_drivers_are_sorted_by_what_they_say() {
        for name in
            ["rx_queue_0_xdp_drops", "rx_xdp_drop", "tx_queue_1_xdp_xmit_errors", "rx_xsk_buff_alloc_err"]
        {
            assert!(is_of_lost_frames(name), "{name}");
        }
        for name in ["rx_queue_0_xdp_packets", "rx_dropped", "xdp_redirect", "peer_ifindex"] {
            assert!(!is_of_lost_frames(name), "{name}");
        }
    }

    /// What `ethtool -S` prints of drivers, and which of it is about frames lost at XDP.
    const FORMATS: [(&str, &str, usize); 9] = [
        ("ixgbe", include_str!("../../tests/fixtures/ethtool/ixgbe"), 0),
        ("i40e", include_str!("../../tests/fixtures/ethtool/i40e"), 0),
        ("ice", include_str!("../../tests/fixtures/ethtool/ice"), 0),
        ("mlx5", include_str!("../../tests/fixtures/ethtool/mlx5"), 5),
        ("virtio_net", include_str!("../../tests/fixtures/ethtool/virtio_net-5.15"), 4),
        ("virtio_net", include_str!("../../tests/fixtures/ethtool/virtio_net-6.18"), 4),
        ("ena", include_str!("../../tests/fixtures/ethtool/ena"), 2),
        ("veth", include_str!("../../tests/fixtures/ethtool/veth"), 3),
        ("bnxt", include_str!("../../tests/fixtures/ethtool/bnxt"), 0),
    ];

    #[test]
    fn strings_of_drivers_have_a_meaning_and_those_about_xdp_are_found() {
        for (driver, text, lost) in FORMATS {
            let lines = text.lines().skip(1);
            let names: Vec<&str> = lines.map(|line| line.trim().rsplit_once(": ").unwrap().0).collect();
            assert!(names.len() > 9, "{driver}");
            for name in &names {
                assert!(
                    record::counter::of(driver, name).is_some(),
                    "{driver}:{name} has no row in docs/counters/drivers.md"
                );
            }
            let found: Vec<_> = names.iter().filter(|name| is_of_lost_frames(name)).collect();
            assert_eq!(found.len(), lost, "{driver}: {found:?}");
        }
    }

    #[test]
    fn an_interface_without_such_counters_has_none() {
        assert!(of_xdp("lo").map_or(true, |found| found.is_empty()));
        assert!(of_xdp("nosuch0").is_err());
    }
}
