//! Where the time of a test went: who waited for a CPU, who had it meanwhile, what soft interrupts took, and a profile by function.
//!
//! **What.** [`TimeObservation`] is what was read of one test. **Why.** A share of a CPU tells that it was full; not who waited for it,
//! nor how long, nor which function had it.
//!
//! **Price.** Waiting (`/proc/PID/schedstat`) and stalls (`/proc/pressure`) are read for every test; the rest needs programs at the
//! scheduler's events and samples, and is there with `run --profile` only ([docs/profile.md](../../../docs/profile.md) has the cost).

use crate::buckets::Distribution;
use serde::{Deserialize, Serialize};

/// Where the time of one test went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeObservation {
    /// How long it was looked, in nanoseconds: the test, and what little lies around it.
    pub window_ns: u64,
    /// Who waited for a CPU: the processes of the test, and the kernel's threads of soft interrupts and of NAPI.
    pub waits: Vec<CpuWait>,
    /// Tasks that stood still for want of something, where the kernel tells (`/proc/pressure`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<Stall>,
    /// What programs at the scheduler's events counted; none without `--profile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerCounts>,
    /// The samples; none without `--profile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<CpuProfile>,
    /// What could not be read, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// How long the threads of one process ran, and how long they could have run and had no CPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuWait {
    /// `sender`, `receiver`, what a forwarder is, or `kernel` for the kernel's own threads.
    pub role: String,
    /// The node; empty for the kernel's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Time on a CPU in nanoseconds, by the kernel's own account (`/proc/PID/task/*/schedstat`, of a traffic thread its own reading); none
    /// where it is not known, as of threads that ended.
    #[serde(default)]
    pub ran_ns: Option<u64>,
    /// Time runnable without a CPU in nanoseconds, by the same account.
    #[serde(default)]
    pub waited_ns: Option<u64>,
    /// How often it gave the CPU up by itself; none where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<u64>,
    /// How often the CPU was taken from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_preempted: Option<u64>,
    /// What the programs saw of it; none without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<SeenWait>,
}

/// What programs at the scheduler's events saw of one process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SeenWait {
    /// Time on a CPU, in nanoseconds.
    pub ran_ns: u64,
    /// Time runnable without a CPU, in nanoseconds.
    pub waited_ns: u64,
    /// From being woken to running, in nanoseconds; none if it never was woken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken: Option<Distribution>,
    /// From being preempted to running again, in nanoseconds; none if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Distribution>,
    /// Who ran on its CPU while it waited, most time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takers: Vec<Taker>,
    /// Time in which it had to wait for a lock of the kernel, in nanoseconds.
    pub lock_ns: u64,
    /// How often.
    pub locks: u64,
}

/// Who ran on a CPU that another waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taker {
    /// Process id; 0 is nobody: the CPU was idle, and had yet to be woken. None for what ran too long ago to be remembered.
    pub pid: Option<u32>,
    /// The name of the thread that was seen first.
    pub name: String,
    /// The CPU where it took most.
    pub cpu: u32,
    /// How long, in nanoseconds.
    pub ns: u64,
}

/// What was missing while the whole host waited for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// `cpu`, `memory` or `io`.
    pub of: String,
    /// Time in which at least one task waited for it, in microseconds.
    pub some_us: u64,
    /// Time in which all tasks did; none where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_us: Option<u64>,
}

/// What programs counted of the whole host, and what they themselves missed and cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SchedulerCounts {
    /// Task switches on all CPUs.
    pub switches: u64,
    /// Task switches that were not shown to the program: the task that gave a CPU up was not the one that had got it.
    pub missed_switches: u64,
    /// Waits whose begin was not seen; they are in no distribution.
    pub unseen_begins: u64,
    /// Threads, takers or places for which there was no room.
    pub no_room: u64,
    /// Time in NET_RX soft interrupts on all CPUs, in nanoseconds.
    pub net_rx_ns: u64,
    /// Polls by interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub polls: Vec<PollTime>,
    /// How long the programs themselves ran, in nanoseconds, by what the kernel measured of some runs; none where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<u64>,
    /// How often they ran.
    pub runs: u64,
}

/// What the polls of one interface took, in soft interrupts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollTime {
    /// `NODE:INTERFACE`, or `backlog` for frames of any interface that wait in a CPU's backlog, as those of a veth do.
    pub place: String,
    /// Polls.
    pub polls: u64,
    /// Frames that they took.
    pub frames: u64,
    /// Time in polls whose begin was seen, in nanoseconds.
    pub ns: u64,
}

/// Samples of what all CPUs did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuProfile {
    /// Samples in a second of a CPU, as asked.
    pub hz: u32,
    /// CPUs that were sampled.
    pub cpus: u32,
    /// Samples that were read.
    pub samples: u64,
    /// Samples that found no room.
    pub lost: u64,
    /// How often the kernel held sampling back, because it took too much time.
    pub throttled: u64,
    /// What limits the names, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Names of functions, in the order of their first use.
    pub functions: Vec<String>,
    /// Each way through functions that was seen.
    pub stacks: Vec<ProfileStack>,
}

/// One way through functions, and how often it was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileStack {
    /// `sender`, `receiver`, what a forwarder is, `softirq`, `idle` or `other`.
    pub role: String,
    /// The thread's name; of soft interrupts that in which they ran.
    pub thread: String,
    /// Places in [`CpuProfile::functions`], the outermost first.
    pub functions: Vec<u32>,
    /// Samples.
    pub count: u64,
}
