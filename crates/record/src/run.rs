//! A run: the host, the plan, every test with its raw numbers, and the findings.

use crate::conditions::Conditions;
use crate::drops::DropsReport;
use crate::facts::Facts;
use crate::finding::{Finding, Limit};
use crate::flow::FlowObservation;
use crate::histogram::Latency;
use crate::host::HostFacts;
use crate::kind::TrafficKind;
use crate::layers::LayerObservation;
use crate::ledger::{Ledger, WitnessDrop};
use crate::observation::ViaHost;
use crate::path::Path;
use crate::snapshot::{CpuTime, Snapshot};
use crate::spec::TestSpec;
use crate::tcp::TcpDecomposition;
use crate::time::TimeObservation;
use crate::traffic::EndReport;
use crate::validity::Validity;
use serde::{Deserialize, Serialize};

/// The version of the JSON that `run --json` prints and `run.json.zst` holds.
pub const SCHEMA: &str = "pathlab/run/2";

/// The version before: `run.json`, not compressed. Every record of it is one of [`SCHEMA`] in which fields are absent that
/// were added since.
pub const SCHEMA_1: &str = "pathlab/run/1";

/// A whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the run's directory: UTC time and a short random id.
    pub id: String,
    /// When it began, RFC 3339 in UTC.
    pub begun: String,
    /// When it ended; none while it runs (or if it was killed).
    #[serde(default)]
    pub ended: Option<String>,
    /// What the user called it (`run --label`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The machine.
    pub host: HostFacts,
    /// The name of the plan: `default`, or its file as it was given; empty when there was none, or in a record of version 1.
    #[serde(default)]
    pub plan_name: String,
    /// The name of the topology as the plan has it, or `lab NAME` for a lab that was already up; empty when there was none, or
    /// in a record of version 1.
    #[serde(default)]
    pub topology_name: String,
    /// The plan as text, as it was read.
    pub plan: String,
    /// The topology as text, as it was read; for a lab that was already up, as it was built.
    pub topology: String,
    /// The seed of the order of the tests.
    pub seed: u64,
    /// The command line.
    pub command: Vec<String>,
    /// Which of several ways was measured, when they were measured in turn (`run --path`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<PathVariant>,
    /// The tests in the order in which they ran.
    pub tests: Vec<TestRecord>,
    /// What should be known about the run.
    pub findings: Vec<Finding>,
    /// Why the run is not to be trusted; empty if it is.
    #[serde(default)]
    pub invalid: Vec<String>,
}

/// One of several ways between the same two hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathVariant {
    /// What is between the hosts: `direct`, `bridge`, `null`, `switch`, `ovs`, with the kind of ports if one was chosen
    /// (`switch:xdp`).
    pub name: String,
    /// The same in the runs over all these ways: when they began, RFC 3339 in UTC.
    pub group: String,
    /// What was asked of the offloads of the two hosts' interfaces: `on` or `off`, all of them; none left them as the kernel
    /// gives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offload: Option<String>,
}

/// What was asked of the path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    /// Messages that the schedule planned; none without a plan.
    pub planned: Option<u64>,
    /// Messages that the sender tried to send.
    pub datagrams: u64,
    /// Requested messages per second; none means as fast as possible or closed loop.
    pub requested_per_second: Option<f64>,
    /// Messages per second that the sender really offered.
    pub achieved_per_second: f64,
    /// The sender could not keep the schedule.
    pub generator_limited: bool,
}

/// What the kernel accepted from the sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Messages.
    pub datagrams: u64,
    /// Payload bytes.
    pub bytes: u64,
}

/// What arrived: at the receiver for streams, replies at the sender for round trips.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Messages, duplicates included.
    pub datagrams: u64,
    /// Different messages.
    pub unique: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Messages that came more than once.
    pub duplicates: u64,
    /// Messages that came after a later one.
    pub reordered: u64,
}

/// CPU time and memory of one of the processes that made the traffic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ActorUsage {
    /// `sender`, `receiver`, or what a forwarder is: `null`, `switch`, `ovs`, `ovsdb`, `controller`.
    pub role: String,
    /// The node.
    pub node: String,
    /// CPU use in percent of one CPU.
    pub cpu_percent: f64,
    /// Share of the time runnable but waiting for a CPU, in percent.
    pub wait_percent: f64,
    /// Share of the time that it was stopped (state `T`), in percent.
    #[serde(default)]
    pub stopped_percent: f64,
    /// Highest resident memory in bytes.
    pub rss_bytes: u64,
}

/// A process of the host that had no part in the test and used a CPU meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OtherWork {
    /// Process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its nice value.
    pub nice: i32,
    /// The CPU that it last ran on.
    pub cpu: u32,
    /// CPU use in percent of one CPU.
    pub cpu_percent: f64,
}

/// Threads of the kernel that work for whoever sends and receives.
const FOR_THE_TEST: [&str; 3] = ["ksoftirqd/", "kworker/", "napi/"];

impl OtherWork {
    /// A thread of the kernel that may have done the test's own work: nobody can end it.
    pub fn is_for_the_test(&self) -> bool {
        FOR_THE_TEST.iter().any(|thread| self.name.starts_with(thread))
    }
}

/// What was asked of a number of a test, and whether it held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Criterion {
    /// `max-loss`, `min-rate`, `max-p99`, `valid`, or `arrives` for a test of which nothing arrived.
    pub name: String,
    /// The limit, with its unit.
    pub wanted: String,
    /// What was measured, with its unit.
    pub found: String,
    /// It held. A number that could not be measured does not hold.
    pub passed: bool,
}

/// One test with everything that is known about it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TestRecord {
    /// The kind of traffic.
    pub kind: TrafficKind,
    /// The test's name in the plan, e.g. `udp-stream 64 B`; repetitions share it.
    pub name: String,
    /// Which repetition, from 1.
    pub repetition: u32,
    /// Its place in the randomised order, from 1.
    pub order: u32,
    /// The place of the test in the plan, from 1: the order in which tables list it.
    #[serde(default)]
    pub place: u32,
    /// What was asked.
    pub spec: TestSpec,
    /// When it began, RFC 3339 in UTC.
    pub begun: String,
    /// How long traffic flowed, in seconds, at the end that counts (the receiver; the sender for round trips).
    pub seconds: f64,
    /// What was asked of the path and what the sender offered.
    pub offered: Offered,
    /// What the kernel accepted.
    pub sent: Sent,
    /// What arrived.
    pub received: Received,
    /// Latency in nanoseconds; none for TCP streams.
    pub latency_ns: Option<Latency>,
    /// What the latency is: `round trip`, `round trip from planned time`, `one way from planned time`…
    pub latency_kind: String,
    /// Payload bits per second that arrived; 0 also where that is not known ([`Self::throughput`]).
    pub throughput_bps: f64,
    /// Messages per second that arrived (datagrams, transactions, replies); 0 also where that is not known ([`Self::message_rate`]).
    pub messages_per_second: f64,
    /// Where every frame went; none for TCP kinds.
    pub ledger: Option<Ledger>,
    /// Segments of a TCP test that the kernel's drop event told of (root only): TCP repairs the loss, so there is no ledger,
    /// but the drops are real. Empty for kinds with a ledger, which has its own witness.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_drops: Vec<WitnessDrop>,
    /// The frames of the test that died, and the file of them beside the record; none where it was not wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_frames: Option<DropsReport>,
    /// Facts of all nodes over a window in which its frames flowed; none where they were not wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
    /// The same of the other host, of a test between two; `facts` are then of the sender's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_facts: Option<Facts>,
    /// What limited it.
    pub limit: Limit,
    /// What held TCP back; none for other kinds.
    pub tcp: Option<TcpDecomposition>,
    /// CPU time by role during the test, per CPU, in ticks.
    pub cpu: Vec<CpuTime>,
    /// The processes that made the traffic.
    pub actors: Vec<ActorUsage>,
    /// Processes of the host that had no part in the test and used more than 5 % of a CPU, most first. What began or ended meanwhile is not
    /// among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherWork>,
    /// Where the time went; none in records of before it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeObservation>,
    /// When messages passed the layers of the path; none without `run --layers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<LayerObservation>,
    /// CPU time that both snapshots together cost the observer, in nanoseconds.
    pub observer_cpu_ns: u64,
    /// The way of the frames.
    pub path: Path,
    /// The flow itself, as it was counted at every interface; none in records of before it was, and where it cannot be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<FlowObservation>,
    /// The machines of both ends, the sender's first, and those between them that were observed, of a test between hosts that observe; empty in
    /// a lab.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostFacts>,
    /// The hosts between the two ends that were asked to observe it, in the order from the sender.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<ViaHost>,
    /// Offload states of the interfaces on the path, e.g. `a:eth0 tso on, gro off`.
    #[serde(default)]
    pub offloads: Vec<String>,
    /// What the sending end saw.
    pub sender: EndReport,
    /// What the receiving end saw.
    pub receiver: EndReport,
    /// Counters before the test.
    pub before: Snapshot,
    /// Counters after the test, when all queues were quiet.
    pub after: Snapshot,
    /// Whether it reached what was asked of it; empty when nothing was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<Criterion>,
    /// The conditions under which it was made, of each host that was watched; empty in records of before they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Conditions>,
    /// Whether its figures are valid; none in records of before that was concluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<Validity>,
    /// Why this result is not to be trusted, in sentences (the invalid ones of `validity.reasons`); empty if it is.
    #[serde(default)]
    pub invalid: Vec<String>,
}

impl TestRecord {
    /// Payload bits per second that arrived; none where what arrived, arrived at one time: a rate wants a length of time.
    pub fn throughput(&self) -> Option<f64> {
        (self.throughput_bps > 0.0 || self.received.bytes == 0).then_some(self.throughput_bps)
    }

    /// Messages per second that arrived; none as in [`Self::throughput`].
    pub fn message_rate(&self) -> Option<f64> {
        (self.messages_per_second > 0.0 || self.received.unique == 0).then_some(self.messages_per_second)
    }
}
