//! What `pathlab follow` says of a flow that somebody else sends.

use crate::flow::FlowPlace;
use crate::ledger::{Drop, Station, Witness};
use serde::{Deserialize, Serialize};

/// Where a leg begins or ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowEnd {
    /// The node: the namespace as it was named.
    pub node: String,
    /// The end is not in the node but beyond this interface of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<String>,
}

/// A link that frames crossed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowLink {
    /// The interface that they went out by; none where they came from outside.
    pub from: Option<FlowPlace>,
    /// The interface that they came in by; none where they went outside.
    pub to: Option<FlowPlace>,
    /// Frames that went in.
    #[serde(rename = "in")]
    pub entered: u64,
    /// Frames that came out.
    #[serde(rename = "out")]
    pub left: u64,
    /// No frame from here went on to the receiver.
    pub is_off_the_way: bool,
}

/// Counters that moved where frames are missing without a name; others' frames move them, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowCandidate {
    /// The node.
    pub node: String,
    /// The station.
    pub station: String,
    /// What it may have been.
    pub drop: Drop,
}

/// One direction of a followed flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowLeg {
    /// `forward` or `back`.
    pub leg: String,
    /// Where its frames came from; none when there were none.
    pub from: Option<FollowEnd>,
    /// Where they went to; none when none of them arrived anywhere.
    pub to: Option<FollowEnd>,
    /// Frames that left the sender's node, or came in from outside, and those that the witness saw die before.
    pub sent: u64,
    /// Frames that came in at the receiver's node, or went outside, less those that the witness saw die behind.
    pub received: u64,
    /// The links in the order of the way.
    pub links: Vec<FollowLink>,
    /// The stations, as in the ledger of a test.
    pub stations: Vec<Station>,
    /// Frames that no drop and no queue explains.
    pub unexplained: i64,
    /// Frames that may still have been on their way.
    pub uncertainty: u64,
    /// What the unexplained may be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<FollowCandidate>,
    /// What a reader must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl FollowLeg {
    /// Frames that did not arrive.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }
}

/// A line while it goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FollowSecond {
    /// `pathlab/follow-second/1`.
    pub schema: String,
    /// Seconds since the beginning.
    pub seconds: f64,
    /// Both directions, as far as there were frames.
    pub legs: Vec<FollowCount>,
}

/// One direction in such a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FollowCount {
    /// `forward` or `back`.
    pub leg: String,
    /// Frames since the beginning.
    pub sent: u64,
    /// Frames that arrived since the beginning.
    pub received: u64,
    /// Drops with a name since the beginning.
    pub dropped: u64,
    /// Frames that are on their way, or lost without a name.
    pub open: i64,
    /// Frames that were sent in each second since the line before.
    pub frames_per_s: f64,
}

/// A namespace that came, or went, while the flow was followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FollowChange {
    /// The namespace.
    pub node: String,
    /// It came; else it went.
    pub came: bool,
    /// Seconds since the beginning.
    pub seconds: f64,
}

/// All that is known at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FollowReport {
    /// `pathlab/follow/1`.
    pub schema: String,
    /// The flow, as it was understood.
    pub flow: String,
    /// The nodes, by the names that were given.
    pub nodes: Vec<String>,
    /// Which of them came or went meanwhile.
    #[serde(default)]
    pub changes: Vec<FollowChange>,
    /// How long it was followed.
    pub seconds: f64,
    /// Why it ended: `duration` or `interrupted`.
    pub ended: String,
    /// No frame moved any more when the counters were read.
    pub rests: bool,
    /// Both directions, as far as there were frames.
    pub legs: Vec<FollowLeg>,
    /// The independent count of drops.
    pub witness: Witness,
    /// Interfaces that were not counted, each with the reason.
    pub missing: Vec<String>,
    /// Nanoseconds that the counter at one interface takes for a frame.
    pub program_ns: Option<u32>,
    /// False when more was lost than was allowed.
    pub passed: bool,
    /// Why it did not pass; empty if it did.
    pub why: String,
}
