//! What one host saw around a test: its counters before and after, the flow where it was counted, and the drops that its kernel told.

use crate::ledger::WitnessDrop;
use crate::{Conditions, Facts, FlowObservation, HostFacts, Snapshot, Witness};
use serde::{Deserialize, Serialize};

/// A host between the two ends of a test, which was asked to observe it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ViaHost {
    /// As it was named; that of its own namespace in the ledger.
    pub name: String,
    /// Why the ledger has nothing of it, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<String>,
    /// Facts of it over a window in which frames of the test flowed; none where they were not wanted, or it told none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
}

/// Everything that one host saw of a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostObservation {
    /// The inode of its own network namespace: on one host two of them tell whether two ends are in the same one.
    pub namespace: u64,
    /// Those of all namespaces that it observes, its own among them; empty from an older pathlab.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<u64>,
    /// The machine, and the interfaces of its own namespace; empty from an older pathlab.
    #[serde(default)]
    pub host: HostFacts,
    /// Where it sends: its interface that leads to the receiver; none from a receiver, where there is no route, and from an older pathlab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Counters before the first message.
    pub before: Snapshot,
    /// Counters after the last one.
    pub after: Snapshot,
    /// The flow at every interface of the host's nodes, or why it was not counted.
    pub flow: FlowObservation,
    /// What the kernel dropped of the flow.
    pub drops: Vec<WitnessDrop>,
    /// Drops that the kernel did not show.
    pub lost: u64,
    /// Why the kernel's drops were not seen, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_witness: Option<Witness>,
    /// The conditions of the host meanwhile; empty from a host whose pathlab does not watch them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Conditions>,
    /// What the doctor judges, taken while the traffic flowed; none where it was not asked for, or by an older pathlab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
    /// Why they could not be taken, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_facts: Option<String>,
}
