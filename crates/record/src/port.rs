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
