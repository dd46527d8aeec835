//! Where ports are measured: two nodes, one wire, a process on each CPU, counters around.
//!
//! **What.** The lab `pair`, built for the benchmark and gone with it. The sender runs in `a`, the capture in `b`, each a
//! process of its own (so that its CPU time is its own, `wait4`), each on one CPU. On a veth the receiving side's
//! soft interrupt runs on the *sender's* CPU: what the capture's CPU does is the capture.

use super::job::{Job, PATIENCE};
use super::tools::{CAPTURERS, SENDERS, STAMPED, Tool, our_send, read_send};
use linux::lab::{Lab, Topology};
use linux::observe::{Actor, Observer, Patience};
use linux::port::sink::Sink;
use linux::sys::process::{self, Ended};
use linux::sys::{clock, cpu as pinning};
use record::bench::{CaptureResult, Cell, HostCpu, ProcessCpu, SendResult};
use record::{Delta, Problem, ProblemKind, Result, Snapshot};
use std::time::Duration;

/// The interface of both nodes.
pub const INTERFACE: &str = "eth0";

/// The lab with its counters.
pub struct BenchLab {
    /// Two nodes on one wire.
    pub lab: Lab,
    observer: Observer,
    /// CPUs of the sender and of the capture.
    cpus: (u32, u32),
}

impl BenchLab {
    /// Builds it. CPUs that are not there are refused.
    pub fn build(cpus: (u32, u32)) -> Result<BenchLab> {
        for cpu in [cpus.0, cpus.1] {
            // Asked on a thread that ends, so that this process stays where it is.
            let pinned = std::thread::spawn(move || pinning::pin_thread(cpu)).join();
            if !matches!(pinned, Ok(Ok(()))) {
                let what = format!("CPU {cpu} is not there or not allowed");
                return Err(Problem::input(what).at("--cpus").help("name two CPUs of this machine, as 0,1"));
            }
        }
        linux::lab::enter_user_namespace()?;
        crate::process::interruptible()?;
        let lab = super::lab(&Topology::load("pair")?, "")?;
        let nodes: Vec<_> = lab.nodes().iter().map(|node| (node.name().to_owned(), node.netns())).collect();
        let observer = Observer::new(&nodes)?;
        Ok(BenchLab { lab, observer, cpus })
    }

    /// Which process runs where, in words.
    pub fn placement(&self, receiver: &str) -> String {
        let (sender, capture) = self.cpus;
        format!("sender in node a on CPU {sender} (with its soft interrupts), {receiver} {capture}")
    }

    /// Attaches the sink to the far end.
    pub fn sink(&self) -> Result<Sink> {
        self.lab.node("b")?.within(|| Sink::open(INTERFACE))?
    }

    /// Measures a capture. A tool that cannot is a result with its reason; only an interrupt (or a host that fails)
    /// ends the benchmark.
    pub fn capture(&mut self, cell: &Cell, wish: &FrameGenerator) -> Result<CaptureResult> {
        let begun = crate::process::now();
        let cannot = |problem| CaptureResult { problem: Some(problem), ..CaptureResult::default() };
        let measured = or_problem(self.captured(cell, wish), cannot)?;
        Ok(CaptureResult { cell: cell.clone(), begun, ..measured })
    }

    fn captured(&mut self, cell: &Cell, wish: &FrameGenerator) -> Result<CaptureResult> {
        let cpu_pressure = linux::observe::host_facts().cpu_pressure;
        let tool = Tool::named(CAPTURERS, &cell.tool)?;
        let arguments = tool.arguments(INTERFACE, cell);
        let mut job = Job::start(self.lab.node("b")?, tool.rival(), &arguments, self.cpus.1)?;
        if !job.listens()? {
            let (_, stdout, stderr) = job.end()?;
            tool.read(&stdout, &stderr)?;
            return Err(Problem::measured(format!("{} did not listen in time", cell.tool)));
        }
        let actor = [Actor { pid: job.pid(), role: "receiver".into(), node: "b".into() }];
        let before = self.observer.snapshot(&actor)?;
        let sent = self.generate(cell, wish)?;
        std::thread::sleep(wish.linger);
        let after = self.settled(&actor)?;
        job.interrupt()?;
        let (ended, stdout, stderr) = job.end()?;
        let counted = tool.read(&stdout, &stderr)?;
        let used = |snapshot: &Snapshot| snapshot.processes.first().map(|process| process.cpu_ns);
        let flow_ns = known("CPU time of the tool", Delta::between(used(&before), used(&after)))?;
        let arrived = moved(&before, &after, "b", "rx_packets")?;
        let lost: u64 = counted.drops.iter().map(|drop| drop.count).sum();
        Ok(CaptureResult {
            offered: sent.claimed,
            seconds: sent.seconds,
            arrived,
            residual: arrived as i64 - counted.captured as i64 - lost as i64,
            cpu: cpu(Some(flow_ns), ended),
            host: host(&before, &after)?,
            cpu_pressure,
            ..counted
        })
    }

    /// Counters when no queue moves any more.
    fn settled(&mut self, actors: &[Actor]) -> Result<Snapshot> {
        self.observer.settle(&[], Patience::until(clock::monotonic_ns() + 2_000_000_000))?;
        self.observer.snapshot(actors)
    }

    /// Sends the frames of a capture's cell.
    fn generate(&self, cell: &Cell, wish: &FrameGenerator) -> Result<SendResult> {
        let arguments = our_send(&wish.uri, STAMPED, cell.frame_bytes, cell.rate, wish.duration_ms);
        let (_, stdout, stderr) = self.run_sender(None, &arguments, wish.duration_ms)?;
        read_send(&stdout, "").ok_or_else(|| {
            let words = stderr.lines().last().unwrap_or("nothing").to_owned();
            Problem::measured(format!("the generator {} printed no result but: {words}", wish.uri))
        })
    }

    /// Runs what sends for that time to its end.
    fn run_sender(
        &self,
        program: Option<&str>,
        arguments: &[String],
        duration_ms: u64,
    ) -> Result<(Ended, String, String)> {
        let job = Job::start(self.lab.node("a")?, program, arguments, self.cpus.0)?;
        match job.ends_within(Duration::from_millis(duration_ms) + PATIENCE)? {
            true => job.end(),
            false => Err(Problem::measured("it did not end in time")),
        }
    }

    /// Measures a sender; see [`BenchLab::capture`] for what ends the benchmark.
    pub fn send(&mut self, cell: &Cell, duration_ms: u64) -> Result<SendResult> {
        let begun = crate::process::now();
        let cannot = |problem| SendResult { problem: Some(problem), ..SendResult::default() };
        let measured = or_problem(self.sent(cell, duration_ms), cannot)?;
        Ok(SendResult { cell: cell.clone(), begun, ..measured })
    }

    fn sent(&mut self, cell: &Cell, duration_ms: u64) -> Result<SendResult> {
        let cpu_pressure = linux::observe::host_facts().cpu_pressure;
        let tool = Tool::named(SENDERS, &cell.tool)?;
        let arguments = tool.arguments(INTERFACE, cell, duration_ms);
        let before = self.observer.snapshot(&[])?;
        let (ended, stdout, stderr) = self.run_sender(tool.rival(), &arguments, duration_ms)?;
        let after = self.settled(&[])?;
        Ok(SendResult {
            transmitted: moved(&before, &after, "a", "tx_packets")?,
            received: moved(&before, &after, "b", "rx_packets")?,
            cpu: cpu(None, ended),
            host: host(&before, &after)?,
            cpu_pressure,
            ..tool.read(&stdout, &stderr)?
        })
    }
}

/// What a process used in its whole life, and while frames flowed; the same when nobody looked.
fn cpu(flow_ns: Option<u64>, ended: Ended) -> ProcessCpu {
    let (user_ns, system_ns) = (ended.usage.user_ns, ended.usage.system_ns);
    ProcessCpu { flow_ns: flow_ns.unwrap_or(user_ns + system_ns), user_ns, system_ns }
}

/// How frames are made for captures.
pub struct FrameGenerator {
    /// The port of `pathlab send`.
    pub uri: String,
    /// For how long.
    pub duration_ms: u64,
    /// How long to wait behind the last frame, so that the slowest tool has taken it.
    pub linger: Duration,
}

/// What one cell's tool or settings cannot is a result; an interrupt and what concerns every cell is not.
fn or_problem<R>(measured: Result<R>, cannot: impl FnOnce(String) -> R) -> Result<R> {
    match measured {
        Err(problem) if problem.kind == ProblemKind::Measured && !process::interrupted() => {
            Ok(cannot(problem.to_string()))
        }
        other => other,
    }
}

/// How far a counter of a node's interface moved.
fn moved(before: &Snapshot, after: &Snapshot, node: &str, counter: &str) -> Result<u64> {
    let value =
        |snapshot: &Snapshot| snapshot.nodes.get(node)?.link(INTERFACE)?.counters.get(counter).copied();
    known(&format!("{counter} of {INTERFACE} in node {node}"), Delta::between(value(before), value(after)))
}

/// A figure of a cell; without it there is none, for 0 would be another.
fn known(what: &str, delta: Delta) -> Result<u64> {
    delta.known().ok_or_else(|| Problem::measured(format!("{what}: {delta}")))
}

/// What interrupts used on all CPUs.
fn host(before: &Snapshot, after: &Snapshot) -> Result<HostCpu> {
    let tick_ns = 1_000_000_000 / after.tick_hz.max(1);
    let sum = |snapshot: &Snapshot, part: fn(&record::snapshot::CpuTime) -> u64| {
        snapshot.cpus.iter().map(part).sum::<u64>()
    };
    let spent = |what, part| -> Result<u64> {
        Ok(known(what, Delta::of(sum(before, part), sum(after, part)))? * tick_ns)
    };
    Ok(HostCpu {
        softirq_ns: spent("time of soft interrupts", |cpu| cpu.softirq)?,
        irq_ns: spent("time of hard interrupts", |cpu| cpu.irq)?,
        steal_ns: spent("stolen time", |cpu| cpu.steal)?,
        tick_ns,
    })
}
