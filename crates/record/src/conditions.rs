//! The conditions of a test: what of the machine changes the meaning of its figures, read before, during and after.
//!
//! **What.** Clocks, governors, idle states, throttling, interrupts and pause frames at two instants; the notices of netlink, packet sockets and
//! programs of others in between; what observing cost. What it means is concluded in `study::validity`.
//!
//! **Unknown is not quiet.** What could not be watched is in [`Conditions::missing`], with the reason.

use crate::snapshot::CpuTime;
use crate::validity::Unwatched;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The clocks of a host at one instant, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// `CLOCK_MONOTONIC`: the clock of every figure.
    pub monotonic_ns: u64,
    /// `CLOCK_MONOTONIC_RAW`: the same counter without the corrections of NTP.
    pub raw_ns: u64,
    /// `CLOCK_REALTIME`: the time of day.
    pub realtime_ns: u64,
    /// `CLOCK_BOOTTIME`: the first with the time that the host slept.
    pub boot_ns: u64,
    /// How far apart the first and the last of them were read.
    pub width_ns: u64,
}

/// An idle state of the CPUs (`cpuidle`), all CPUs together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleState {
    /// Its name, e.g. `POLL`, `C6`.
    pub name: String,
    /// How long leaving it takes by the driver's table, in nanoseconds.
    pub exit_ns: u64,
    /// How often it was entered.
    pub entered: u64,
}

/// Where an interrupt of an interface goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptTarget {
    /// The node of the interface.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// Its number.
    pub irq: u32,
    /// The names of its handlers.
    pub name: String,
    /// `effective_affinity_list`: the CPUs that it fires on.
    pub cpus: String,
}

/// Pause frames (802.3x) of an interface since it came up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseCount {
    /// The node of the interface.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// Received: the other side asked this one to wait.
    pub received: u64,
    /// Sent: this side asked the other one to wait.
    pub sent: u64,
}

/// Everything that is read twice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionReading {
    /// The clocks.
    pub clock: ClockReading,
    /// How many CPUs each frequency governor has; empty without `cpufreq`.
    pub governors: BTreeMap<String, u32>,
    /// Idle states; empty without `cpuidle`.
    pub idle: Vec<IdleState>,
    /// How often CPUs were throttled by their temperature since boot, all together; none where it is not counted.
    pub throttled: Option<u64>,
    /// Interrupts of the interfaces.
    pub interrupts: Vec<InterruptTarget>,
    /// Pause frames of interfaces that count them.
    pub pauses: Vec<PauseCount>,
    /// `irqbalance` runs.
    pub irqbalance: bool,
    /// The CPUs are emulated in software.
    #[serde(default)]
    pub emulated: bool,
}

/// What of a node was changed, by the message in which the kernel told it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigChange {
    /// When it was read, in nanoseconds since the watch began.
    pub after_ns: u64,
    /// The node.
    pub node: String,
    /// The interface; empty for what belongs to none.
    pub interface: String,
    /// `RTM_NEWLINK`, `ETHTOOL_MSG_FEATURES_NTF`…
    pub message: String,
    /// Which prefix or address it is about, if it is about one: `10.0.0.0/24`, `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// What changed, in words: `MTU 1500 → 1400`.
    pub what: String,
}

/// A packet socket of somebody else, which gets a copy of frames.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tap {
    /// The node.
    pub node: String,
    /// The interface that it takes frames from; empty for all of the node.
    pub interface: String,
    /// Inode, which tells one socket from another.
    pub inode: u64,
    /// Who has it open: `tcpdump (4711)`; empty when that cannot be told.
    pub process: String,
    /// It was there before the test began.
    pub was_there: bool,
}

/// A program or a filter of somebody else at an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignProgram {
    /// The node.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// `xdp`, `tcx ingress`, `tcx egress`, `tc ingress`, `tc egress`.
    pub hook: String,
    /// The kernel's number of the program; 0 for a filter without one.
    pub id: u32,
    /// Its name, or the kind of the filter.
    pub name: String,
    /// It was there before the test began.
    pub was_there: bool,
}

/// What observing cost while traffic flowed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ObserverCost {
    /// How long it was watched, in nanoseconds.
    pub wall_ns: u64,
    /// CPU time of the driving process in it; none where that process makes traffic itself.
    pub driver_cpu_ns: Option<u64>,
    /// Nanoseconds of the part of it in which the kernel measured this process's programs; 0 when it did not.
    pub measured_ns: u64,
    /// How long these programs ran in that part, all CPUs together.
    pub programs_ns: u64,
    /// How often they ran in that part.
    pub program_runs: u64,
}

impl ObserverCost {
    /// CPU time of the driving process in percent of one CPU; none where it is not known.
    pub fn driver_percent(&self) -> Option<f64> {
        self.driver_cpu_ns.map(|cpu_ns| percent(cpu_ns, self.wall_ns))
    }

    /// Time of the programs in percent of one CPU; none where it was not measured.
    pub fn programs_percent(&self) -> Option<f64> {
        (self.measured_ns > 0).then(|| percent(self.programs_ns, self.measured_ns))
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// The conditions of one host during one test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// The host; empty for the host of a run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Before the first message.
    pub before: ConditionReading,
    /// After the last one.
    pub after: ConditionReading,
    /// The nodes that were watched.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// What was changed meanwhile in the nodes, in the order in which it was told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ConfigChange>,
    /// How many changes there were beyond these.
    #[serde(default, skip_serializing_if = "crate::flow::is_zero")]
    pub more_changes: u64,
    /// Packet sockets of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taps: Vec<Tap>,
    /// Programs and filters of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ForeignProgram>,
    /// What observing cost.
    pub cost: ObserverCost,
    /// CPU time by role meanwhile, where the test does not have it ([`crate::TestRecord::cpu`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu: Vec<CpuTime>,
    /// The addresses of the two ends, as far as they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<String>,
    /// Programs of the lab that ended meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<String>,
    /// What still moved when the test had to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<String>,
    /// What could not be watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Unwatched>,
}
