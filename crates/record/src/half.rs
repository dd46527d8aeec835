//! What one of two commands in two places writes down, and what both give together.
//!
//! **What.** `pathlab send --record` and `pathlab capture --record` write a [`Half`] each: what they did, with every
//! counter of their namespace before and after, and enough about the host to tell whether the two belong together.
//! `pathlab join` makes one ledger of both, a [`JoinReport`].
//!
//! **Why with all counters.** The ledger is closed by the same code as that of a run, which reads snapshots; and a file
//! that was carried from another host must answer questions that are asked only later.
//!
//! **Price.** Some tens of kilobytes each.

use crate::capture::CaptureReport;
use crate::histogram::Latency;
use crate::host::HostFacts;
use crate::port::PlaceDrop;
use crate::run::RunRecord;
use crate::send::SendReport;
use crate::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

/// The version of a half.
pub const SCHEMA: &str = "pathlab/half/1";

/// The version of what two halves give.
pub const JOIN_SCHEMA: &str = "pathlab/join/1";

/// One end of a path, as `pathlab send` or `pathlab capture` saw it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Half {
    /// `pathlab/half/1`.
    pub schema: String,
    /// The name of this end in the ledger: as it was given, else the host's name.
    pub node: String,
    /// The machine.
    pub host: HostFacts,
    /// Whose clock and whose interfaces the numbers are of.
    pub identity: Identity,
    /// The command line.
    pub command: Vec<String>,
    /// When it began, RFC 3339 in UTC.
    pub begun: String,
    /// `CLOCK_MONOTONIC` of the first frame that was offered; of a capture: when it was surely open.
    pub begun_ns: u64,
    /// `CLOCK_MONOTONIC` of the last frame that was dealt with; of a capture: when it was to end.
    pub ended_ns: u64,
    /// The interface of the port; empty for a port without one.
    #[serde(default)]
    pub interface: String,
    /// Every counter of the namespace (node `host`) before the first frame; empty for a port without an interface.
    pub before: Snapshot,
    /// The same when all was quiet again, or the capture was over.
    pub after: Snapshot,
    /// What was sent; only in the half of a sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentHalf>,
    /// What was captured; only in the half of a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured: Option<CaptureReport>,
}

/// Whose clock and whose interfaces numbers are of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// `/proc/sys/kernel/random/boot_id`: who has the same one shares the clock. Empty if unknown.
    pub boot_id: String,
    /// Number of the time namespace, which may shift `CLOCK_MONOTONIC`; 0 if unknown.
    pub time_namespace: u64,
    /// Number of the network namespace; 0 if unknown.
    pub network_namespace: u64,
    /// What `CLOCK_REALTIME` shows more than `CLOCK_MONOTONIC`, in nanoseconds.
    pub realtime_offset_ns: u64,
}

impl Identity {
    /// True when both read the same `CLOCK_MONOTONIC`.
    pub fn shares_clock(&self, other: &Identity) -> bool {
        !self.boot_id.is_empty()
            && self.boot_id == other.boot_id
            && self.time_namespace == other.time_namespace
    }
}

/// What a sender knows beyond its report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SentHalf {
    /// The document of `pathlab send --json`.
    pub report: SendReport,
    /// How the frames are numbered.
    pub numbering: Numbering,
    /// Length of every frame without FCS; 0 when they differ, or have more headers than Ethernet, IP and UDP.
    pub frame_bytes: u32,
    /// 4 or 6: the version of IP.
    pub family: u8,
    /// Frames that the port refused or lost, by place and reason, as it counted them itself.
    pub port_drops: Vec<PlaceDrop>,
    /// True when its frames go to the driver without the queueing discipline.
    pub bypasses_qdisc: bool,
}

/// How frames carry their number and time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbering {
    /// `message` (pathlab's header) or `pktgen`.
    pub header: String,
    /// The stream number of the header; 0 for pktgen, which has none.
    pub stream: u8,
    /// The number of the first frame.
    pub first: u64,
}

/// The document of `pathlab join --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinReport {
    /// `pathlab/join/1`.
    pub schema: String,
    /// The sending end.
    pub sending: JoinEnd,
    /// The capturing end.
    pub capturing: JoinEnd,
    /// How the frames are numbered.
    pub numbering: Numbering,
    /// From how many address and port pairs messages of the stream were captured.
    pub flows: u64,
    /// True when both ends share one clock.
    pub one_clock: bool,
    /// Frames that were offered and not captured.
    pub missing: u64,
    /// Messages behind a higher number; null when the capture's threads shared the stream.
    pub reordered: Option<u64>,
    /// From the time in the header to the time of the frame at the capture; null when that is unknown.
    pub delay_ns: Option<Latency>,
    /// Why the delay is unknown; empty when it is known.
    pub delay_unknown: String,
    /// Every frame that did not arrive has a name, and no more are missing than the criterion allows.
    pub passed: bool,
    /// Why it did not pass; empty when it did.
    pub why: String,
    /// The directory that the record is kept in.
    pub record: String,
    /// The record: one test of kind `frames`, as a run has it.
    pub run: RunRecord,
}

/// One end of a join.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinEnd {
    /// The file that the half was read from.
    pub file: String,
    /// The node in the ledger.
    pub node: String,
    /// The interface; empty for a port without one.
    pub interface: String,
    /// The port.
    pub port: String,
    /// The boot of the host.
    pub boot_id: String,
    /// Frames offered to the port; of a capture: frames captured, others' included.
    pub frames: u64,
}
