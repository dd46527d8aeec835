//! How an interface's frames meet the CPUs: interrupts, polls, completions, queues; what `pathlab llstat` reads and says.
//!
//! A [`Reading`] holds everything cumulative at one time; two of them make a report ([`LlstatReport`]).

use crate::buckets::{Buckets, Distribution};
use crate::snapshot::{Counters, SoftnetRow};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an interrupt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterruptRole {
    /// Frames that came, or both directions.
    Receive,
    /// Frames that were sent, alone.
    Transmit,
    /// The device's configuration, a link that changed.
    Other,
}

/// The count of an interrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptCount {
    /// Its number.
    pub irq: u32,
    /// Its handlers.
    pub name: String,
    /// Its count by CPU, in the order of the file.
    pub cpus: Vec<u64>,
}

/// How it is known which interrupt a NAPI instance answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pairing {
    /// The kernel says so.
    Kernel,
    /// By the order of the queues that the interrupts are named after.
    Name,
}

/// A NAPI instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Napi {
    /// Its number.
    pub id: u32,
    /// Its interrupt.
    pub irq: Option<u32>,
    /// How that is known.
    pub paired_by: Option<Pairing>,
    /// The thread that polls it, if there is one.
    pub thread: Option<u32>,
    /// The receive queues that it polls.
    pub receive_queues: Vec<u32>,
    /// The transmit queues whose sent buffers it frees.
    pub transmit_queues: Vec<u32>,
}

/// The limit of bytes in a transmit queue of the device (byte queue limits).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueLimit {
    /// The queue.
    pub queue: u32,
    /// The limit now, in bytes.
    pub limit_bytes: u64,
    /// Bytes that the device has now.
    pub inflight_bytes: u64,
}

/// One of the programs that count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProgramCount {
    /// The event that it runs at.
    pub event: String,
    /// How often it ran, by its own count.
    pub runs: u64,
    /// How often the event was, counted without a program; none where that is not permitted.
    pub events: Option<u64>,
    /// How long it ran in the runs that the kernel measured, in nanoseconds, and how many those were; none where the kernel does
    /// not tell. Measuring costs more than the programs, so it ends once there is enough to know.
    pub measured: Option<(u64, u64)>,
}

/// All that the programs counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PollCounts {
    /// Each program.
    pub programs: Vec<ProgramCount>,
    /// How long a program without an instruction of its own ran beside them, in nanoseconds, and how often, while the kernel measured: what the measurement
    /// itself takes. None where it does not tell.
    pub empty: Option<(u64, u64)>,
    /// Counts of the interface and of soft interrupts, by name.
    pub words: Counters,
    /// Counts by slot: other receive, transmit, backlog, and then the NAPI instances in their order.
    pub slots: Vec<Counters>,
    /// Distributions by name.
    pub buckets: BTreeMap<String, Buckets>,
}

/// Everything at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// The interface's counters.
    pub counters: Counters,
    /// Frames by which they moved while the rest was read, so that sums may differ by as many.
    pub moved: u64,
    /// The interface's interrupts.
    pub interrupts: Vec<InterruptCount>,
    /// Softnet by CPU, of the whole host.
    pub softnet: Vec<SoftnetRow>,
    /// Transmit queues with a limit.
    pub queues: Vec<QueueLimit>,
    /// What the programs counted; none without them.
    pub polls: Option<PollCounts>,
}

/// What does not change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LlstatFacts {
    /// The namespace, as it was named.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// What kind of link it is; empty for a card.
    pub kind: String,
    /// The roles of its interrupts, by number.
    pub roles: BTreeMap<u32, InterruptRole>,
    /// Its NAPI instances.
    pub napis: Vec<Napi>,
    /// Why there are no programs; none when they run.
    pub no_programs: Option<String>,
    /// What cannot be told, each with its reason.
    pub missing: Vec<String>,
}

/// Frames of one direction, by the interface's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Frames; none when the counter is unknown.
    pub frames: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// Frames per second.
    pub frames_per_s: Option<f64>,
    /// Bits per second.
    pub rate_bps: Option<f64>,
    /// Bytes per frame; none when there was no frame.
    pub mean_bytes: Option<f64>,
}

/// An interrupt in a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LlstatInterrupt {
    /// Its number.
    pub irq: u32,
    /// Its handlers.
    pub name: String,
    /// What it is for.
    pub role: InterruptRole,
    /// How often it came; none when unknown.
    pub count: Option<u64>,
    /// How often in a second.
    pub per_s: Option<f64>,
    /// The CPUs on which it came, each with its count.
    pub cpus: Vec<(u32, u64)>,
}

/// What polled the interface's frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LlstatPoller {
    /// `napi`, `transmit` (instances without a number), `backlog`, or `other`.
    pub what: String,
    /// The number of a NAPI instance.
    pub napi: Option<u32>,
    /// Its interrupt.
    pub irq: Option<u32>,
    /// How that is known.
    pub paired_by: Option<Pairing>,
    /// The thread that polls it.
    pub thread: Option<u32>,
    /// Receive queues that it polls.
    pub receive_queues: Vec<u32>,
    /// Transmit queues that it polls.
    pub transmit_queues: Vec<u32>,
    /// Interrupts.
    pub interrupts: u64,
    /// Polls.
    pub polls: u64,
    /// Frames that they took.
    pub frames: u64,
    /// Polls that took as many as they may.
    pub full: u64,
    /// Polls that took none.
    pub empty: u64,
    /// Polls whose begin was not seen: by a thread, or by a socket that busy-polls.
    pub untimed: u64,
    /// Nanoseconds of polling for each frame; of the backlog for each frame of any interface in those polls.
    pub ns_per_frame: Option<f64>,
}

/// Soft interrupts and the backlog, of the whole host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
pub struct LlstatSoftnet {
    /// Frames that were taken from the backlog or by NAPI.
    pub processed: Option<u64>,
    /// Frames that a full backlog dropped.
    pub dropped: Option<u64>,
    /// NET_RX that ended with work left.
    pub squeezed: Option<u64>,
    /// Of those, because of the budget of frames.
    pub squeezed_budget: Option<u64>,
    /// Of those, because of the time.
    pub squeezed_time: Option<u64>,
    /// Soft interrupts NET_RX.
    pub net_rx: Option<u64>,
    /// Soft interrupts NET_TX.
    pub net_tx: Option<u64>,
    /// Time in NET_RX, in nanoseconds.
    pub net_rx_ns: Option<u64>,
    /// Polls of CPUs' backlogs, whatever they carried.
    pub backlog_polls: Option<u64>,
    /// Frames of those.
    pub backlog_frames: Option<u64>,
}

/// What the events of the interface say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct LlstatEvents {
    /// Buffers that were given to the protocols.
    pub received: u64,
    /// Buffers that the driver took.
    pub sent: u64,
    /// Buffers that the driver gave back, because its queue was full.
    pub busy: u64,
    /// Buffers that the driver dropped.
    pub refused: u64,
    /// Sent buffers that were freed.
    pub freed: u64,
    /// Of those, in polls of the interface.
    pub freed_in_polls: u64,
    /// Frames that polls took.
    pub polled: u64,
    /// Frames of the counter less those that polls took; none when unknown.
    pub receive_difference: Option<i64>,
    /// Frames of the counter less those that the driver took.
    pub transmit_difference: Option<i64>,
}

/// What a program cost, and missed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LlstatProgram {
    /// The event that it runs at.
    pub event: String,
    /// How often it ran.
    pub runs: u64,
    /// Nanoseconds of one run; none when unknown.
    pub ns_per_run: Option<f64>,
    /// Events that were not shown to it; none when unknown.
    pub lost: Option<u64>,
}

/// What the programs cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LlstatCost {
    /// Their share of one CPU's time, as the kernel measures them; none when unknown.
    pub cpu_share: Option<f64>,
    /// The same without what the measurement takes, which ends soon after the beginning; none when unknown.
    #[serde(default)]
    pub own_cpu_share: Option<f64>,
    /// Nanoseconds that the kernel measures of a program that does nothing; none when unknown.
    #[serde(default)]
    pub empty_ns_per_run: Option<f64>,
    /// Events that were not shown to them; none when unknown.
    pub lost: Option<u64>,
    /// Each program.
    pub programs: Vec<LlstatProgram>,
}

/// What `pathlab llstat` says of a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LlstatReport {
    /// `pathlab/llstat/1`, or `pathlab/llstat-interval/1` for an interval.
    pub schema: String,
    /// The namespace, as it was named.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// What kind of link it is; empty for a card.
    pub kind: String,
    /// Seconds since the beginning, at the end of this time.
    pub seconds: f64,
    /// How long this time was.
    pub lasted_s: f64,
    /// Why it ended: `duration`, `interrupted`, or `gone`; `interval` for an interval.
    pub ended: String,
    /// Frames that came.
    pub receive: Throughput,
    /// Frames that were sent.
    pub transmit: Throughput,
    /// Counters of errors and drops that moved, by name.
    pub drops: Counters,
    /// Interrupts.
    pub interrupts: Vec<LlstatInterrupt>,
    /// What polled the frames.
    pub pollers: Vec<LlstatPoller>,
    /// Distributions by name: `interrupt_period_ns`, `interrupt_handler_ns`, `interrupt_to_poll_ns`, `interrupt_frames`,
    /// `poll_frames`, `poll_ns`, `full_polls_in_a_row`, `completion_buffers`, `transmit_ns`, `arrival_period_ns`, `receive_bytes`,
    /// `transmit_bytes`.
    pub distributions: BTreeMap<String, Distribution>,
    /// Why a distribution is not there.
    pub absent: BTreeMap<String, String>,
    /// Transmit queues with a limit of bytes.
    pub queues: Vec<QueueLimit>,
    /// What the events say; none without programs.
    pub events: Option<LlstatEvents>,
    /// Soft interrupts and the backlog, of the whole host.
    pub softnet: LlstatSoftnet,
    /// What the programs cost; none without them.
    pub cost: Option<LlstatCost>,
    /// Frames that moved while the counters were read: differences may be as many frames on their way.
    pub uncertainty: u64,
    /// What cannot be told, each with its reason.
    pub missing: Vec<String>,
}
