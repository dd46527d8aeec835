//! Ports: their numbers, what a controller may set, and what they count.
//!
//! **What.** A [`PortNo`] with the reserved numbers of §4.5, the [`PortConfig`] bits of §7.2.1 and the counters of
//! table 5 (§5.8).
//!
//! **Why.** Reserved ports are part of the meaning of a rule ("output to IN_PORT"), so they belong to the model and not
//! to the codec.
//!
//! **Price.** A port number is a plain `u32` inside: a rule may name a port that does not exist (yet), as §6.4 allows.

use crate::drop::DropCounters;
use crate::flags::flags;
use std::collections::BTreeMap;
use std::fmt;

/// The number of a port: an ordinary one, 1 … [`PortNo::MAX`], or one of the reserved ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PortNo(pub u32);

impl PortNo {
    /// The largest number of an ordinary port.
    pub const MAX: PortNo = PortNo(0xffff_ff00);
    /// The port by which the frame came in; the only way to send it back there.
    pub const IN_PORT: PortNo = PortNo(0xffff_fff8);
    /// The first table of the pipeline; only in the actions of a packet-out.
    pub const TABLE: PortNo = PortNo(0xffff_fff9);
    /// The switch as a switch without OpenFlow (here: a learning bridge).
    pub const NORMAL: PortNo = PortNo(0xffff_fffa);
    /// All ports of the spanning tree, without the one by which the frame came in.
    pub const FLOOD: PortNo = PortNo(0xffff_fffb);
    /// All ports, without the one by which the frame came in.
    pub const ALL: PortNo = PortNo(0xffff_fffc);
    /// The controllers, as a packet-in.
    pub const CONTROLLER: PortNo = PortNo(0xffff_fffd);
    /// The network stack of the host of the switch.
    pub const LOCAL: PortNo = PortNo(0xffff_fffe);
    /// No port: a wildcard of requests, never a place to send a frame to.
    pub const ANY: PortNo = PortNo(0xffff_ffff);

    /// The reserved ports with their names in ovs-ofctl's spelling.
    pub const RESERVED: [(PortNo, &'static str); 8] = [
        (PortNo::IN_PORT, "IN_PORT"),
        (PortNo::TABLE, "TABLE"),
        (PortNo::NORMAL, "NORMAL"),
        (PortNo::FLOOD, "FLOOD"),
        (PortNo::ALL, "ALL"),
        (PortNo::CONTROLLER, "CONTROLLER"),
        (PortNo::LOCAL, "LOCAL"),
        (PortNo::ANY, "ANY"),
    ];

    /// Whether this is the number of an ordinary port, one that can have a cable.
    pub fn is_ordinary(self) -> bool {
        self.0 != 0 && self <= PortNo::MAX
    }
}

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PortNo::RESERVED.iter().find(|(port, _)| port == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

flags! {
    /// What a controller may set on a port (§7.2.1, `ofp_port_config`).
    pub PortConfig(u32) {
        /// The port is administratively down.
        PORT_DOWN = 1 "port_down",
        /// Drop all frames that come in by it.
        NO_RECV = 4 "no_recv",
        /// Drop all frames that should go out by it.
        NO_FWD = 32 "no_fwd",
        /// Send no packet-in for frames that came in by it.
        NO_PACKET_IN = 64 "no_packet_in",
    }
    /// What is known about the link of a port (§7.2.1, `ofp_port_state`).
    pub PortState(u32) {
        /// There is no link.
        LINK_DOWN = 1 "link_down",
        /// The port is blocked (spanning tree); the standard's bit, set by the owner of the port.
        BLOCKED = 2 "blocked",
        /// Live for fast-failover groups: said to controllers, found by [`Port::is_live`].
        LIVE = 4 "live",
    }
}

/// What a port counts (§5.8, table 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounters {
    /// Frames that came in.
    pub rx_frames: u64,
    /// Frames that went out.
    pub tx_frames: u64,
    /// Bytes that came in.
    pub rx_bytes: u64,
    /// Bytes that went out.
    pub tx_bytes: u64,
    /// Frames that came in and were dropped by the port (no_recv, port_down).
    pub rx_dropped: u64,
    /// Frames that should have gone out and were dropped by the port (no_fwd, port_down).
    pub tx_dropped: u64,
    /// Frames that ended, by reason: of those that came in by the port; what it does not send, of those that should have left by it.
    pub drops: DropCounters,
}

impl PortCounters {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &PortCounters) {
        self.rx_frames += other.rx_frames;
        self.tx_frames += other.tx_frames;
        self.rx_bytes += other.rx_bytes;
        self.tx_bytes += other.tx_bytes;
        self.rx_dropped += other.rx_dropped;
        self.tx_dropped += other.tx_dropped;
        self.drops.add(&other.drops);
    }
}

/// What a queue counts (§5.8, table 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueCounters {
    /// Frames that went out.
    pub tx_frames: u64,
    /// Bytes that went out.
    pub tx_bytes: u64,
    /// Frames that found it full.
    pub tx_errors: u64,
}

/// A queue of a port. What it is made of, and what it does to frames, is the business of the port's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queue {
    /// What it gets in any case, in bits per second.
    pub min_bps: Option<u64>,
    /// What it never exceeds, in bits per second.
    pub max_bps: Option<u64>,
    /// What it counted.
    pub counters: QueueCounters,
    /// When it was first seen.
    pub created_ns: u64,
}

/// One port of the switch, as the model sees it. What the port is made of (an interface, a file) is not its business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its number.
    pub number: PortNo,
    /// Its name.
    pub name: String,
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// What controllers set.
    pub config: PortConfig,
    /// What its link says.
    pub state: PortState,
    /// What it counted.
    pub counters: PortCounters,
    /// What it carries, in thousands of bits per second; rates of queues are given as parts of it.
    pub speed_kbps: u64,
    /// Its queues by number.
    pub queues: BTreeMap<u32, Queue>,
}

/// What a port is taken to carry when nothing is known about it: a veth, a tap and a wire in memory have no speed.
pub const SPEED_KBPS: u64 = 10_000_000;

impl Port {
    /// A port that is up, has a link and counted nothing.
    pub fn new(number: PortNo, name: &str, address: [u8; 6]) -> Port {
        let (config, state, counters) = Default::default();
        let (speed_kbps, queues) = (SPEED_KBPS, BTreeMap::new());
        Port { number, name: name.to_owned(), address, config, state, counters, speed_kbps, queues }
    }

    /// Whether a bucket that watches this port may be used (§6.5: up, with a link and not blocked).
    pub fn is_live(&self) -> bool {
        !self.config.has(PortConfig::PORT_DOWN)
            && !self.state.has(PortState::LINK_DOWN)
            && !self.state.has(PortState::BLOCKED)
    }
}

/// A port-mod (§7.3.4.3): the bits of `mask` take the value that they have in `config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortMod {
    /// Which port.
    pub port: PortNo,
    /// The address that the port must have: a check against mistakes.
    pub address: [u8; 6],
    /// The new values.
    pub config: PortConfig,
    /// Which of them to take.
    pub mask: PortConfig,
}
