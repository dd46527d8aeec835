//! The port NORMAL: a learning bridge.
//!
//! **What.** Which ports a frame goes to in a switch without OpenFlow (§4.5 leaves it open): sources are learned per
//! VLAN and forgotten after five minutes (IEEE 802.1D-2004 §7.9.2), a known destination gets the frame alone, all else
//! is flooded; what is addressed to the bridge group (01-80-C2-00-00-0x, §7.12.6) is not forwarded.
//!
//! **Why.** "NORMAL" in one rule is what people write to see traffic flow; it should behave like the bridge that it
//! replaces.
//!
//! **Price.** Every port is a member of every VLAN; tags are carried as they are.

use crate::entry::SECOND;
use crate::port::PortNo;
use std::collections::HashMap;

/// How long an address is remembered.
pub const AGEING_NS: u64 = 300 * SECOND;
/// Addresses that are remembered at most; more are not learned until some are forgotten.
pub const CAPACITY: usize = 8192;

/// Where addresses were seen.
#[derive(Debug, Clone, Default)]
pub struct Bridge {
    seen: HashMap<(u16, [u8; 6]), (PortNo, u64)>,
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BridgeOutput {
    /// To this port.
    Port(PortNo),
    /// To all ports but the one it came from.
    Flood,
    /// Nowhere.
    Nowhere,
}

impl Bridge {
    /// Learns the source of a frame and says where the frame goes. `vlan` is the number of its outermost tag, 0 without.
    pub fn pass(&mut self, now: u64, in_port: PortNo, vlan: u16, dst: [u8; 6], src: [u8; 6]) -> BridgeOutput {
        let is_group = |address: [u8; 6]| address[0] & 1 != 0;
        if dst[..5] == [1, 0x80, 0xc2, 0, 0] && dst[5] & 0xf0 == 0 {
            return BridgeOutput::Nowhere;
        }
        if !is_group(src) && src != [0; 6] {
            self.learn(now, in_port, (vlan, src));
        }
        match self.seen.get(&(vlan, dst)) {
            Some((port, at)) if !is_group(dst) && now.saturating_sub(*at) < AGEING_NS => {
                match *port == in_port {
                    true => BridgeOutput::Nowhere,
                    false => BridgeOutput::Port(*port),
                }
            }
            _ => BridgeOutput::Flood,
        }
    }

    fn learn(&mut self, now: u64, port: PortNo, address: (u16, [u8; 6])) {
        if self.seen.len() >= CAPACITY && !self.seen.contains_key(&address) {
            self.seen.retain(|_, (_, at)| now.saturating_sub(*at) < AGEING_NS);
        }
        if self.seen.len() < CAPACITY || self.seen.contains_key(&address) {
            self.seen.insert(address, (port, now));
        }
    }

    /// Forgets what was seen on a port that went down.
    pub fn forget(&mut self, port: PortNo) {
        self.seen.retain(|_, (at, _)| *at != port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

    #[test]
    fn a_source_is_learned_per_vlan_and_forgotten_after_five_minutes() {
        let mut bridge = Bridge::default();
        assert_eq!(bridge.pass(0, PortNo(1), 0, B, A), BridgeOutput::Flood);
        assert_eq!(bridge.pass(1, PortNo(2), 0, A, B), BridgeOutput::Port(PortNo(1)));
        assert_eq!(bridge.pass(1, PortNo(2), 7, A, B), BridgeOutput::Flood);
        assert_eq!(bridge.pass(AGEING_NS - 1, PortNo(2), 0, A, B), BridgeOutput::Port(PortNo(1)));
        assert_eq!(bridge.pass(AGEING_NS, PortNo(2), 0, A, B), BridgeOutput::Flood);
    }

    #[test]
    fn a_station_that_moves_is_found_again_and_frames_do_not_go_back() {
        let mut bridge = Bridge::default();
        bridge.pass(0, PortNo(1), 0, B, A);
        assert_eq!(bridge.pass(1, PortNo(1), 0, A, B), BridgeOutput::Nowhere);
        bridge.pass(2, PortNo(3), 0, B, A);
        assert_eq!(bridge.pass(3, PortNo(1), 0, A, B), BridgeOutput::Port(PortNo(3)));
        bridge.forget(PortNo(3));
        assert_eq!(bridge.pass(4, PortNo(1), 0, A, B), BridgeOutput::Flood);
    }

    #[test]
    fn the_bridge_group_is_not_forwarded_and_group_sources_are_not_learned() {
        let mut bridge = Bridge::default();
        assert_eq!(bridge.pass(0, PortNo(1), 0, [1, 0x80, 0xc2, 0, 0, 0xe], A), BridgeOutput::Nowhere);
        bridge.pass(0, PortNo(1), 0, A, [0xff; 6]);
        assert_eq!(bridge.pass(0, PortNo(2), 0, [0xff; 6], A), BridgeOutput::Flood);
    }

    #[test]
    fn a_flood_of_sources_takes_bounded_memory() {
        let mut bridge = Bridge::default();
        for number in 0..20_000u32 {
            let [a, b, c, d] = number.to_be_bytes();
            bridge.pass(0, PortNo(1), 0, B, [2, a, b, c, d, 9]);
        }
        assert_eq!(bridge.seen.len(), CAPACITY);
        bridge.pass(AGEING_NS, PortNo(1), 0, B, A);
        assert_eq!(bridge.seen.len(), 1);
    }
}
