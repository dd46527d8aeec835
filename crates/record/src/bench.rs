//! What a benchmark of ports writes down: its head once, then one line for each cell.
//!
//! **What.** A *cell* is one measurement: a tool, a frame size, a ring size, a rate, a round. The head
//! ([`BenchHead`], `bench.json`) lists every cell in the order in which they run; `cells.jsonl` gets one line as each
//! ends. So a benchmark that was killed goes on where it stopped, and a report can be made at any time.
//!
//! **Why not a [`RunRecord`](crate::RunRecord).** A run is a few tests with everything about each; a benchmark is
//! hundreds of cells with a few numbers each.

use crate::HostFacts;
use crate::port::{PlaceDrop, PortSetting};
use serde::{Deserialize, Serialize};

/// The version of `pathlab bench capture`'s documents.
pub const CAPTURE: &str = "pathlab/bench-capture/1";
/// The version of `pathlab bench send`'s documents.
pub const SEND: &str = "pathlab/bench-send/1";

/// What is known before the first cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BenchHead {
    /// [`CAPTURE`] or [`SEND`].
    pub schema: String,
    /// The name of its directory.
    pub id: String,
    /// When it began, RFC 3339 in UTC.
    pub begun: String,
    /// The command line.
    pub command: Vec<String>,
    /// The machine.
    pub host: HostFacts,
    /// Offloads of the interfaces that the frames crossed.
    pub offloads: Vec<String>,
    /// Which process ran on which CPU, in words.
    pub placement: String,
    /// Where frames came from (capture) or went (send), in words.
    pub other_end: String,
    /// For how long frames are sent in each cell, in milliseconds.
    pub duration_ms: u64,
    /// How often every cell is repeated.
    pub rounds: u32,
    /// Seed of the order.
    pub seed: u64,
    /// Tools that could not take part, each with the reason.
    pub absent: Vec<String>,
    /// Every cell, in the order in which they run.
    pub cells: Vec<Cell>,
}

/// One measurement of a capture or of a sender.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Who captures or sends: a name of ours, e.g. `int`, `ring-v2`, `int-bypass`, or a rival's name.
    pub tool: String,
    /// Bytes of each frame without FCS; 0 stands for sizes drawn at random from 60 to 1514.
    pub frame_bytes: u32,
    /// Frames that the ring (or the socket's buffer) of a capture shall hold; 0 leaves it as the tool has it. None for a sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_frames: Option<u32>,
    /// Frames each second; 0 is as fast as possible.
    pub rate: u64,
    /// Which repetition, from 1.
    pub round: u32,
}

/// What a capturing or sending process used of the CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessCpu {
    /// Nanoseconds on a CPU while the frames came: from when it was ready until the counters were quiet (the
    /// process's CPU clock).
    pub flow_ns: u64,
    /// In user mode, from its start to its end (rusage).
    pub user_ns: u64,
    /// In the kernel, from its start to its end (rusage).
    pub system_ns: u64,
}

impl ProcessCpu {
    /// Nanoseconds outside the time in which frames came: its start, and its end.
    pub fn around_ns(&self) -> u64 {
        (self.user_ns + self.system_ns).saturating_sub(self.flow_ns)
    }

    /// The share of user mode in its whole life, in percent; none when it used no time.
    pub fn user_percent(&self) -> Option<f64> {
        let all = self.user_ns + self.system_ns;
        (all > 0).then(|| 100.0 * self.user_ns as f64 / all as f64)
    }
}

/// What interrupts used on all CPUs while the frames came, in nanoseconds; the kernel counts them in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCpu {
    /// Soft interrupts.
    pub softirq_ns: u64,
    /// Hard interrupts.
    pub irq_ns: u64,
    /// Time that the hypervisor gave to somebody else.
    pub steal_ns: u64,
    /// The length of a tick: what the numbers above are counted in.
    pub tick_ns: u64,
}

/// How much later than planned frames were stamped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampError {
    /// Whose clock stamped them, e.g. `software`.
    pub source: String,
    /// Frames that were compared.
    pub count: u64,
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// What one cell of `pathlab bench capture` gave.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptureResult {
    /// The cell.
    pub cell: Cell,
    /// When it began, RFC 3339.
    pub begun: String,
    /// Why it could not be measured; everything below is then empty.
    pub problem: Option<String>,
    /// Frames that the generator's interface transmitted, as the generator reports it.
    pub offered: u64,
    /// For how long it sent, in seconds.
    pub seconds: f64,
    /// Frames that the capturing side's interface received.
    pub arrived: u64,
    /// Frames that the tool counted.
    pub captured: u64,
    /// Frames that the tool says were lost, by place.
    pub drops: Vec<PlaceDrop>,
    /// Drops that the kernel counted beside the capture: at the interface (not among the arrived), or of frames that the
    /// capture may have got all the same. Only those that are not 0.
    pub beside: Vec<PlaceDrop>,
    /// Times that a ring was so full that the kernel stopped using it.
    pub freezes: u64,
    /// Arrived − captured − lost: what the tool does not explain.
    pub residual: i64,
    /// CPU time of the tool.
    pub cpu: ProcessCpu,
    /// CPU time of interrupts.
    pub host: HostCpu,
    /// Planned time in the frame against the capture's stamp; none where the tool does not tell.
    pub stamp: Option<StampError>,
    /// What took effect at the port.
    pub settings: Vec<PortSetting>,
    /// Share of the last ten seconds in which somebody waited for a CPU, in percent.
    pub cpu_pressure: Option<f64>,
}

impl CaptureResult {
    /// Frames a second that the generator transmitted.
    pub fn offered_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.offered as f64 / self.seconds } else { 0.0 }
    }

    /// The share of arrived frames that the tool did not count, in percent; none when none arrived.
    pub fn loss_percent(&self) -> Option<f64> {
        let lost = self.arrived.saturating_sub(self.captured);
        (self.arrived > 0).then(|| 100.0 * lost as f64 / self.arrived as f64)
    }

    /// CPU nanoseconds of the tool for each frame that it counted; none when it counted none.
    pub fn cpu_ns_per_frame(&self) -> Option<f64> {
        (self.captured > 0).then(|| self.cpu.flow_ns as f64 / self.captured as f64)
    }
}

/// What one cell of `pathlab bench send` gave.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SendResult {
    /// The cell.
    pub cell: Cell,
    /// When it began, RFC 3339.
    pub begun: String,
    /// Why it could not be measured; everything below is then empty.
    pub problem: Option<String>,
    /// Frames that the tool says it sent.
    pub claimed: u64,
    /// Frames that its interface transmitted (`tx_packets`).
    pub transmitted: u64,
    /// Frames that the far end's interface received.
    pub received: u64,
    /// For how long the tool says it sent, in seconds.
    pub seconds: f64,
    /// CPU time of the tool.
    pub cpu: ProcessCpu,
    /// CPU time of interrupts.
    pub host: HostCpu,
    /// How late frames left, where there was a rate and the tool tells.
    pub late: Option<StampError>,
    /// What took effect at the port.
    pub settings: Vec<PortSetting>,
    /// Share of the last ten seconds in which somebody waited for a CPU, in percent.
    pub cpu_pressure: Option<f64>,
}

impl SendResult {
    /// Frames a second that were transmitted.
    pub fn per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.transmitted as f64 / self.seconds)
    }

    /// CPU nanoseconds of the tool for each transmitted frame, its start and end included.
    pub fn cpu_ns_per_frame(&self) -> Option<f64> {
        let used = self.cpu.user_ns + self.cpu.system_ns;
        (self.transmitted > 0).then(|| used as f64 / self.transmitted as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_senders_cell_has_no_ring_and_a_captures_has_one_even_of_0() {
        let cell = Cell { tool: "int".into(), frame_bytes: 60, ring_frames: None, rate: 0, round: 1 };
        let of_send = r#"{"tool":"int","frame_bytes":60,"rate":0,"round":1}"#;
        let of_capture = r#"{"tool":"int","frame_bytes":60,"ring_frames":0,"rate":0,"round":1}"#;
        for (cell, json) in [(cell.clone(), of_send), (Cell { ring_frames: Some(0), ..cell }, of_capture)] {
            assert_eq!(serde_json::to_string(&cell).unwrap(), json);
            assert_eq!(serde_json::from_str::<Cell>(json).unwrap(), cell);
        }
    }

    #[test]
    fn shares_are_of_what_arrived_and_nothing_divides_by_zero() {
        let mut result = CaptureResult { arrived: 200, captured: 150, ..CaptureResult::default() };
        result.cpu = ProcessCpu { flow_ns: 300, user_ns: 100, system_ns: 400 };
        assert_eq!((result.cpu.around_ns(), result.cpu.user_percent()), (200, Some(20.0)));
        result.cpu.user_ns = 0; // the kernel counts the three with different clocks
        result.cpu.system_ns = 0;
        assert_eq!((result.cpu.around_ns(), result.cpu.user_percent()), (0, None));
        assert_eq!((result.loss_percent(), result.cpu_ns_per_frame()), (Some(25.0), Some(2.0)));
        let none = CaptureResult::default();
        assert_eq!(
            (none.loss_percent(), none.cpu_ns_per_frame(), none.offered_per_second()),
            (None, None, 0.0)
        );
        let more = CaptureResult { arrived: 1, captured: 2, ..CaptureResult::default() };
        assert_eq!(more.loss_percent(), Some(0.0));
    }
}
