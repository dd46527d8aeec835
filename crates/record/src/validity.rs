//! Whether the figures of a test are valid, and the words of everything that can make them doubtful.
//!
//! The rows with their thresholds are in `study::validity`; `docs/validity.md` is made of them.

use crate::flow::FlowPlace;
use serde::{Deserialize, Serialize};

/// May a figure be used?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Nothing that was watched disturbed it.
    #[default]
    Valid,
    /// Something may have changed it.
    Suspect,
    /// Something did: it is not a figure of what was to be measured.
    Invalid,
}

impl Trust {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Trust::Valid => "valid",
            Trust::Suspect => "suspect",
            Trust::Invalid => "invalid",
        }
    }
}

/// One thing that disturbed a test.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbance {
    /// The word of its row, e.g. `steal`, `link_flap`.
    pub what: String,
    /// Where: `node b, eth0`, `host`.
    #[serde(rename = "where")]
    pub place: String,
    /// What was seen, with its unit.
    pub value: String,
    /// What it makes of the figures: suspect or invalid.
    pub verdict: Trust,
    /// All of it as one sentence for people.
    pub reason: String,
}

/// Something that would have been looked at, and could not.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unwatched {
    /// The word of the row that is unknown.
    pub what: String,
    /// Why.
    pub why: String,
    /// The interface that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<FlowPlace>,
}

/// Whether the figures of a test are valid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// The worst of the reasons; valid without any.
    pub verdict: Trust,
    /// What disturbed it, worst first.
    pub reasons: Vec<Disturbance>,
    /// What nobody could tell.
    pub unwatched: Vec<Unwatched>,
}

/// The frequency governor of CPUs.
pub const GOVERNOR: &str = "governor";
/// Idle states that take long to leave.
pub const IDLE_STATE: &str = "idle_state";
/// CPUs throttled by their temperature.
pub const THROTTLED: &str = "throttled";
/// CPU time that the hypervisor gave to others.
pub const STEAL: &str = "steal";
/// CPUs that are emulated in software.
pub const EMULATED: &str = "emulated";
/// Interrupts that were moved to other CPUs.
pub const IRQ_MOVED: &str = "irq_moved";
/// A daemon that moves interrupts.
pub const IRQBALANCE: &str = "irqbalance";
/// A link that went down or came up.
pub const LINK_FLAP: &str = "link_flap";
/// Pause frames.
pub const PAUSE: &str = "pause";
/// Settings of an interface.
pub const LINK_CHANGED: &str = "link_changed";
/// Queueing disciplines.
pub const QDISC_CHANGED: &str = "qdisc_changed";
/// Routes.
pub const ROUTE_CHANGED: &str = "route_changed";
/// Addresses of the ends.
pub const ADDRESS_CHANGED: &str = "address_changed";
/// Policy rules.
pub const RULE_CHANGED: &str = "rule_changed";
/// Neighbour entries.
pub const NEIGHBOUR_CHANGED: &str = "neighbour_changed";
/// Settings of a driver.
pub const DRIVER_CHANGED: &str = "driver_changed";
/// The time of day was set.
pub const CLOCK_STEP: &str = "clock_step";
/// The clock of the figures ran fast or slow.
pub const CLOCK_RATE: &str = "clock_rate";
/// The host slept.
pub const SUSPENDED: &str = "suspended";
/// Packet sockets of others.
pub const TAP: &str = "tap";
/// Programs and filters of others.
pub const PROGRAM: &str = "program";
/// What observing cost.
pub const OBSERVER: &str = "observer";
/// Counters that ran backwards.
pub const COUNTER_RESET: &str = "counter_reset";
/// Processes that are not of the test.
pub const OTHER_WORK: &str = "other_work";
/// Programs of the lab that ended.
pub const ENDED: &str = "ended";
/// Queues that did not empty.
pub const UNSETTLED: &str = "unsettled";
/// A sender that sent nothing.
pub const NOTHING_SENT: &str = "nothing_sent";
