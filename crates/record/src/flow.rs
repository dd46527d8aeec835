//! Where a flow was counted: every interface that it may cross, and how these hang together.

use crate::Delta;
use serde::{Deserialize, Serialize};

/// An interface of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FlowPlace {
    /// The node.
    pub node: String,
    /// The interface.
    pub interface: String,
}

/// Where at an interface frames pass, in the kernel's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// From the link, or from what is below, into the node.
    Ingress,
    /// Out of the node.
    Egress,
}

/// What was counted of the flow at an interface, at one hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCount {
    /// Where they passed.
    pub hook: Hook,
    /// `forward` or `back`.
    pub leg: String,
    /// Frames (segments of a super-frame counted each; of a fragmented datagram the first fragment only).
    pub frames: u64,
    /// Socket buffers.
    pub buffers: u64,
    /// Bytes of these buffers, with the Ethernet header.
    pub bytes: u64,
    /// Fragments behind the first ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub later_fragments: u64,
    /// When the first one passed, `CLOCK_MONOTONIC` in nanoseconds.
    pub first_ns: u64,
}

/// True for a count that a record leaves out.
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// An interface, what is at its other side, and what was counted there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowInterface {
    /// The node.
    pub node: String,
    /// Its name there.
    pub interface: String,
    /// Kind, e.g. `veth`, `bridge`, `vxlan`; empty if the kernel tells none.
    pub kind: String,
    /// The bridge that it is a port of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// The other end of a veth, or the interface below one that stands on another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<FlowPlace>,
    /// Where it was not there when counting began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<LateInterface>,
    /// What passed; a hook and leg where nothing did is not there.
    pub counts: Vec<FlowCount>,
}

/// What is known of an interface that came while the flow was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateInterface {
    /// When it was counted from, nanoseconds after the beginning.
    pub after_ns: u64,
    /// Socket buffers of anybody that it had received by then and nobody counted: at most so many of the flow.
    pub received: u64,
    /// The same of what it had sent.
    pub sent: u64,
}

impl LateInterface {
    /// Socket buffers that may have passed that hook before it was counted.
    pub fn uncounted(&self, hook: Hook) -> u64 {
        if hook == Hook::Ingress { self.received } else { self.sent }
    }
}

impl FlowInterface {
    /// What passed at that hook on that leg; none when nothing did.
    pub fn count(&self, hook: Hook, leg: &str) -> Option<&FlowCount> {
        self.counts.iter().find(|count| count.hook == hook && count.leg == leg)
    }
}

/// The flow of a test as it was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowObservation {
    /// Every interface of every node.
    pub interfaces: Vec<FlowInterface>,
    /// Interfaces that could not be counted, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Nanoseconds that the program at one interface takes for one frame of the flow, on frames in the CPU's cache; without what
    /// the kernel needs to call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_ns: Option<u32>,
    /// Why nothing was counted, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

impl FlowObservation {
    /// What was counted since `before`, of the same counters; interfaces that came since are behind those that were there.
    #[must_use]
    pub fn since(&self, before: &FlowObservation) -> FlowObservation {
        let one = |(index, now): (usize, &FlowInterface)| {
            let old = before.interfaces.get(index);
            let old = |count: &FlowCount| old.and_then(|old| old.count(count.hook, &count.leg));
            let counts = now.counts.iter().filter_map(|count| count.since(old(count)));
            FlowInterface { counts: counts.collect(), ..now.clone() }
        };
        let interfaces = self.interfaces.iter().enumerate().map(one).collect();
        FlowObservation { interfaces, ..self.clone() }
    }
}

impl FlowCount {
    /// What was counted since then; none when nothing was.
    fn since(&self, before: Option<&FlowCount>) -> Option<FlowCount> {
        let grown = |of: fn(&FlowCount) -> u64| match before {
            Some(before) => Delta::of(of(before), of(self)).known(),
            None => Some(of(self)),
        };
        let count = FlowCount {
            frames: grown(|count| count.frames)?,
            buffers: grown(|count| count.buffers)?,
            bytes: grown(|count| count.bytes)?,
            later_fragments: grown(|count| count.later_fragments)?,
            ..self.clone()
        };
        (count.buffers + count.later_fragments > 0).then_some(count)
    }
}
