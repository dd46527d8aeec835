//! Pause frames (802.3x flow control) of an interface.
//!
//! **What.** ethtool's own statistics (`ETHTOOL_MSG_PAUSE_GET` with statistics, Linux 5.10), else the counters that the driver names itself
//! (`ethtool -S`). **Why.** A frame that waits because the other side asked for it is not lost, only late: the rate is then that of the other side.
//! **Price.** Two requests. An interface without a wire has no such frames, and is not asked.

use crate::netlink::Netlink;
use crate::sys::packet;

/// Names that drivers have for received and sent pause frames of the whole link (ixgbe and igb, i40e, ice, mlx5, bnxt, tg3, others).
const RECEIVED: [&str; 8] = [
    "rx_flow_control_xoff",
    "port.link_xoff_rx",
    "link_xoff_rx.nic",
    "rx_pause_ctrl_phy",
    "rx_pause_frames",
    "rx_xoff_pause_rcvd",
    "rx_pause",
    "rx_global_pause",
];
const SENT: [&str; 8] = [
    "tx_flow_control_xoff",
    "port.link_xoff_tx",
    "link_xoff_tx.nic",
    "tx_pause_ctrl_phy",
    "tx_pause_frames",
    "tx_xoff_sent",
    "tx_pause",
    "tx_global_pause",
];

/// Received and sent, by the names of drivers; none when neither is there.
fn by_names(counters: &[(String, u64)]) -> Option<(u64, u64)> {
    let first = |names: [&str; 8]| {
        names
            .iter()
            .find_map(|name| counters.iter().find(|(found, _)| found == name).map(|(_, count)| *count))
    };
    let (received, sent) = (first(RECEIVED), first(SENT));
    received.or(sent).map(|_| (received.unwrap_or(0), sent.unwrap_or(0)))
}

/// Received and sent pause frames of an interface of the calling thread's namespace.
///
/// # Errors
/// Why they are not known.
pub fn read(netlink: &mut Netlink, index: u32, interface: &str) -> Result<(u64, u64), String> {
    match netlink.pause_frames(index) {
        Ok(Some(counts)) => return Ok(counts),
        Ok(None) => {}
        Err(refusal) => return Err(refusal.text),
    }
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").map_err(|error| error.to_string())?;
    let counters = packet::driver_counters(&socket, interface).unwrap_or_default();
    by_names(&counters).ok_or_else(|| "the driver does not count them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(all: &[(&str, u64)]) -> Vec<(String, u64)> {
        all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn several_drivers_name_them() {
        let i40e = [("rx_packets", 9), ("port.link_xoff_rx", 4), ("port.link_xoff_tx", 5)];
        assert_eq!(by_names(&counters(&i40e)), Some((4, 5)));
        assert_eq!(by_names(&counters(&[("rx_pause_ctrl_phy", 7)])), Some((7, 0)));
        assert_eq!(
            by_names(&counters(&[("rx_flow_control_xoff", 1), ("tx_flow_control_xoff", 2)])),
            Some((1, 2))
        );
        assert_eq!(by_names(&counters(&[("rx_prio0_pause", 7), ("peer_ifindex", 3)])), None);
    }

    #[test]
    fn the_loopback_has_none_and_says_so() {
        assert!(read(&mut Netlink::open(), 1, "lo").is_err());
    }
}
