//! What a port says of itself: what was asked of it, what took effect, where its frames were lost.

use serde::{Deserialize, Serialize};

/// One setting of a port, read back after it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSetting {
    /// Its name, e.g. `buffer`, `block`, `mode`.
    pub name: String,
    /// What was asked for; empty when nothing was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub asked: String,
    /// What took effect, with its unit.
    pub effective: String,
    /// What the reader should know about it; empty when there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Frames lost at one place for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceDrop {
    /// Where: `nic`, `kernel`, `ring`, `socket`, `queue`, `disk`, `port`.
    pub place: String,
    /// Why, e.g. `ring_full`, `buffer_full`, `oversize`, `link_down`.
    pub name: String,
    /// How many frames.
    pub count: u64,
}

/// What a transmitting port tells as its own loss although the kernel counts it once more below the port: the name at the
/// port, and who counts the same frame again. One such frame is one loss.
///
/// Whether anybody below counted it depends on where it died: `ENOBUFS` of a packet socket is a drop of the queueing
/// discipline or, without one, of the device, but a device that was merely busy counts nothing. So a reckoning takes the
/// counters below as they are and from the port only what exceeds them.
pub const COUNTED_BELOW: [(&str, &str); 3] = [
    // ENOBUFS through the qdisc (`packet_snd`, `tpacket_snd`: NET_XMIT_DROP, net/packet/af_packet.c).
    ("qdisc_full", "`drops` of the queueing discipline, or `tx_dropped` where there is none"),
    // ENOBUFS past the qdisc (`__dev_direct_xmit`, net/core/dev.c).
    ("driver_busy", "`tx_dropped`, unless the driver was only busy"),
    // EBUSY of AF_XDP in copy mode (`__xsk_generic_xmit`: NET_XMIT_DROP, net/xdp/xsk.c).
    ("driver_dropped", "`tx_dropped`"),
];

impl PlaceDrop {
    /// Whether the kernel may have counted these frames below the port, too ([`COUNTED_BELOW`]).
    pub fn is_counted_below(&self) -> bool {
        COUNTED_BELOW.iter().any(|(name, _)| *name == self.name)
    }
}

/// Which time stamps an interface really delivers, by probing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampReport {
    /// The interface.
    pub interface: String,
    /// The source that was wanted: `software`, `hardware_raw`, `hardware_system`.
    pub wanted: String,
    /// True when a stamp of that source was seen on a frame.
    pub delivered: bool,
    /// What the driver says it can do; a claim, not a proof.
    pub claims: Vec<String>,
    /// Number of the interface's own clock (`/dev/ptpN`); none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_index: Option<u32>,
    /// What frames that came in carried: source and how many.
    pub receive: Vec<StampSeen>,
    /// What frames that were sent carried: step or source and how many.
    pub transmit: Vec<StampSeen>,
    /// Frames that were sent to find out.
    pub probes: u32,
    /// The clock of the stamps that were seen.
    pub clock: String,
    /// The greatest step that all stamps seen are multiples of, in nanoseconds; none without stamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_ns: Option<u64>,
    /// What the reader should know: one sentence each.
    pub notes: Vec<String>,
}

/// How many stamps of one source were seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampSeen {
    /// `none`, `software`, `hardware_raw`, `hardware_system`; on the way out also `scheduled`.
    pub source: String,
    /// How many.
    pub count: u32,
}
