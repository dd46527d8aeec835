//! What `pathlab send` reports: asked against sent, frame by frame.
//!
//! The books close: `asked + duplicated = transmitted + drops + queued + residual`, and what could not be read is missing,
//! not 0.

use crate::histogram::Latency;
use crate::port::{PlaceDrop, PortSetting};
use crate::snapshot::Snapshot;
use crate::traffic::Schedule;
use serde::{Deserialize, Serialize};

/// The version of the document.
pub const SCHEMA: &str = "pathlab/send/1";

/// Where every frame went that was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendLedger {
    /// Frames that were asked for: the count; with a rate and a duration their product; else what was offered.
    pub asked: u64,
    /// Copies of frames that a `fault:` port made on purpose; they leave, or are lost, besides those that were asked for.
    #[serde(default)]
    pub duplicated: u64,
    /// Frames that the port was given.
    pub offered: u64,
    /// Frames that the kernel (or the file, or the other end) accepted.
    pub accepted: u64,
    /// Frames whose transmission the port reported complete; none where it has no such report.
    pub completed: Option<u64>,
    /// Frames that left.
    pub transmitted: u64,
    /// Who counted those that left, e.g. `tx_packets of a0`, `the port`.
    pub counted_by: String,
    /// Frames that did not leave, by place and reason.
    pub drops: Vec<PlaceDrop>,
    /// Frames that still waited in a queue when the counters were read.
    pub queued: u64,
    /// What nothing of this explains.
    pub residual: i64,
    /// Up to how many frames of others may be among these, or have hidden a loss.
    #[serde(default)]
    pub uncertainty: u64,
}

/// What a sending saw of its surroundings: all that its books are closed with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SendSeen {
    /// The interface of the port; empty for a port without one.
    pub interface: String,
    /// True when the port's frames go to the driver without the queueing discipline.
    pub bypasses_qdisc: bool,
    /// Why frames were not offered: a name of [`crate::drop`].
    pub not_offered: String,
    /// Frames that the port had not finished when it was closed.
    pub under_way: u64,
    /// Frames that the port refused or lost, as it counted them itself.
    pub port_drops: Vec<PlaceDrop>,
    /// Every counter before the first frame; empty for a port without an interface.
    pub before: Snapshot,
    /// Every counter when the queues were quiet.
    pub after: Snapshot,
}

impl SendLedger {
    /// Sum of all named drops.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|drop| drop.count).sum()
    }
}

/// What was found in the frames of a capture file before they were sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayFacts {
    /// Frames in the file.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The time from the first to the last frame, in nanoseconds.
    pub span_ns: u64,
    /// Frames with a checksum that the first host that looks would refuse.
    pub wrong_checksums: u64,
    /// The number (from 1) of the first such frame; none when there is none.
    pub first_wrong: Option<u64>,
    /// What is wrong there, in words; empty when nothing is.
    pub first_wrong_what: String,
    /// Frames whose checksums were repaired (`--fix-checksums`).
    pub repaired: u64,
    /// Frames that are shorter in the file than they were on the wire; they are sent as short as they are.
    pub cut: u64,
    /// Frames that are earlier than one before; they are sent at once.
    pub backwards: u64,
    /// Bytes of the longest frame.
    pub longest: u64,
}

/// The document of `pathlab send --json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SendReport {
    /// `pathlab/send/1`.
    pub schema: String,
    /// The port, as it was named.
    pub port: String,
    /// What was sent: the template as text with everything that was filled in, or the name of the capture file.
    pub source: String,
    /// What was filled in because the template did not say it, one sentence each.
    pub filled: Vec<String>,
    /// The capture file, when frames came from one.
    pub replay: Option<ReplayFacts>,
    /// The rate as it was asked for; `max` for as fast as possible.
    pub rate: String,
    /// How many threads sent.
    pub threads: u32,
    /// What took effect at the port.
    pub settings: Vec<PortSetting>,
    /// Where every frame went.
    pub frames: SendLedger,
    /// Bytes of the accepted frames, without FCS.
    pub bytes: u64,
    /// From the first frame to the last, in seconds.
    pub seconds: f64,
    /// Frames per second that were transmitted in this time.
    pub frames_per_second: f64,
    /// Bits per second that were transmitted in this time, by the mean size of the accepted frames, without FCS, preamble and gap.
    pub bits_per_second: f64,
    /// Asked against done, and how late frames left.
    pub schedule: Schedule,
    /// How often the port was full and the sender had to wait.
    pub full_waits: u64,
    /// CPU time of the sending threads, in nanoseconds: user and kernel.
    pub thread_cpu_ns: u64,
    /// When the frames left by the kernel's or the interface's clock; none when that was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamps: Option<SentStamps>,
    /// The sending was interrupted.
    pub interrupted: bool,
    /// What must be known about these numbers.
    pub notes: Vec<String>,
}

/// When frames left, told by whoever sent them out last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SentStamps {
    /// Whose clock was asked for: `software`, `hardware_raw`, `hardware_system`.
    pub wanted: String,
    /// Frames that the kernel accepted: each should have a stamp.
    pub expected: u64,
    /// Frames among them without one: a queue dropped them, or their stamp was lost.
    pub missing: u64,
    /// The stamps by whose clock made them; never mixed.
    pub sources: Vec<SentStampSource>,
}

/// The stamps of one clock; times in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SentStampSource {
    /// `software` (CLOCK_REALTIME when the driver took the frame), `hardware_raw` (the interface's own clock) or
    /// `hardware_system`.
    pub source: String,
    /// How many frames have such a stamp.
    pub count: u64,
    /// From the beginning of the system call with the frame to its stamp; none for a clock that is not the system's.
    pub since_call: Option<Latency>,
    /// How late the frame left against its plan; none without a plan, or for a clock that is not the system's.
    pub lateness: Option<Latency>,
    /// From the stamp of one frame to that of the next of the same sender, where both are known.
    pub gap: Option<Latency>,
}

/// The document of `pathlab send --calibrate`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// `pathlab/calibration/1`.
    pub schema: String,
    /// The template.
    pub source: String,
    /// The kind of port, with its settings.
    pub port: String,
    /// Frames per second of the program alone: made, and given to a wire in memory.
    pub program_per_second: f64,
    /// Frames per second through the port into a veth whose far end knows nobody of that address.
    pub port_per_second: f64,
    /// Which of the two is the ceiling.
    pub limit: String,
    /// What took effect at the port.
    pub settings: Vec<PortSetting>,
}
