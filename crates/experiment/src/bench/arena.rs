//! Where ports are measured: two nodes, one wire, a process on each CPU, counters around.
//!
//! **What.** The lab `pair`, built for the benchmark and gone with it. The sender runs in `a`, the capture in `b`, each a
//! process of its own (so that its CPU time is its own, `wait4`), each on one CPU. On a veth the receiving side's
//! soft interrupt runs on the *sender's* CPU: what the capture's CPU does is the capture.

use super::tools::{Capturer, STAMPED, Sender, cpu, our_send, read_send};
use crate::notices::Notices;
use linux::lab::{Lab, Node, Topology};
use linux::observe::{Actor, Observer, Patience};
use linux::port::sink::Sink;
use linux::sys::process::{self, Ended};
use linux::sys::{clock, cpu as pinning};
use record::bench::{CaptureCell, CaptureResult, HostCpu, SendCell, SendResult};
use record::{Delta, Problem, ProblemKind, Result, Snapshot};
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interface of both nodes.
pub const INTERFACE: &str = "eth0";
/// How long a tool may take until it listens, and until it has ended.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often to look.
const LOOK: Duration = Duration::from_millis(10);

/// The lab with its counters.
pub struct BenchLab {
    lab: Lab,
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

    /// Offloads of both ends, in words.
    pub fn offloads(&self) -> Vec<String> {
        self.lab.offloads()
    }

    /// Which process runs where, in words.
    pub fn placement(&self, receiver: &str) -> String {
        let (sender, capture) = self.cpus;
        format!("sender in node a on CPU {sender} (with its soft interrupts), {receiver} {capture}")
    }

    /// Takes the lab down.
    pub fn down(self, notices: &dyn Notices) {
        crate::notices::down(self.lab, notices);
    }

    /// Attaches the sink to the far end.
    pub fn sink(&self) -> Result<Sink> {
        self.lab.node("b")?.within(|| Sink::open(INTERFACE))?
    }

    /// Measures a capture. A tool that cannot is a result with its reason; only an interrupt (or a host that fails)
    /// ends the benchmark.
    pub fn capture(&mut self, cell: &CaptureCell, wish: &FrameGenerator) -> Result<CaptureResult> {
        let empty = CaptureResult { cell: cell.clone(), begun: crate::process::now(), ..Default::default() };
        let measured = self.captured(cell, wish, empty.clone());
        or_problem(measured, |problem| CaptureResult { problem: Some(problem), ..empty })
    }

    fn captured(
        &mut self,
        cell: &CaptureCell,
        wish: &FrameGenerator,
        mut result: CaptureResult,
    ) -> Result<CaptureResult> {
        result.cpu_pressure = linux::observe::host_facts().cpu_pressure;
        let tool = Capturer::named(&cell.tool).ok_or_else(|| unknown(&cell.tool))?;
        let arguments = tool.arguments(INTERFACE, cell.frame_bytes, cell.ring_frames);
        let mut job = Job::start(self.lab.node("b")?, tool.program(), &arguments, self.cpus.1)?;
        if !job.listens()? {
            let (_, stdout, stderr) = job.end()?;
            tool.read(&stdout, &stderr)?;
            return Err(Problem::measured(format!("{} did not listen in time", cell.tool)));
        }
        let actor = Actor { pid: job.pid(), role: "receiver".into(), node: "b".into() };
        let before = self.observer.snapshot(std::slice::from_ref(&actor))?;
        let sent = self.generate(cell, wish)?;
        std::thread::sleep(wish.linger);
        self.observer.settle(&[], Patience::until(clock::monotonic_ns() + 2_000_000_000))?;
        let after = self.observer.snapshot(std::slice::from_ref(&actor))?;
        job.interrupt()?;
        let (ended, stdout, stderr) = job.end()?;
        let counted = tool.read(&stdout, &stderr)?;
        let used = |snapshot: &Snapshot| snapshot.processes.first().map(|process| process.cpu_ns);
        let flow_ns = known("CPU time of the tool", Delta::between(used(&before), used(&after)))?;
        result.cpu = cpu(flow_ns, ended.usage);
        result.host = host(&before, &after)?;
        (result.offered, result.seconds) = (sent.frames, sent.seconds);
        result.arrived = moved(&before, &after, "b", "rx_packets")?;
        result.captured = counted.captured;
        let lost: u64 = counted.drops.iter().map(|drop| drop.count).sum();
        result.residual = result.arrived as i64 - counted.captured as i64 - lost as i64;
        (result.drops, result.beside, result.freezes) = (counted.drops, counted.beside, counted.freezes);
        (result.stamp, result.settings) = (counted.stamp, counted.settings);
        Ok(result)
    }

    /// Sends the frames of a capture's cell.
    fn generate(&self, cell: &CaptureCell, wish: &FrameGenerator) -> Result<super::tools::Claimed> {
        let arguments = our_send(&wish.uri, STAMPED, cell.frame_bytes, cell.rate, wish.duration_ms);
        let mut job = Job::start(self.lab.node("a")?, None, &arguments, self.cpus.0)?;
        job.wait(Duration::from_millis(wish.duration_ms) + PATIENCE)?;
        let (_, stdout, stderr) = job.end()?;
        read_send(&stdout).ok_or_else(|| {
            let words = stderr.lines().last().unwrap_or("nothing").to_owned();
            Problem::measured(format!("the generator {} printed no result but: {words}", wish.uri))
        })
    }

    /// Measures a sender; see [`BenchLab::capture`] for what ends the benchmark.
    pub fn send(&mut self, cell: &SendCell, duration_ms: u64) -> Result<SendResult> {
        let empty = SendResult { cell: cell.clone(), begun: crate::process::now(), ..Default::default() };
        let measured = self.sent(cell, duration_ms, empty.clone());
        or_problem(measured, |problem| SendResult { problem: Some(problem), ..empty })
    }

    fn sent(&mut self, cell: &SendCell, duration_ms: u64, mut result: SendResult) -> Result<SendResult> {
        result.cpu_pressure = linux::observe::host_facts().cpu_pressure;
        let tool = Sender::named(&cell.tool).ok_or_else(|| unknown(&cell.tool))?;
        let arguments = tool.arguments(INTERFACE, cell.frame_bytes, cell.rate, duration_ms);
        let before = self.observer.snapshot(&[])?;
        let mut job = Job::start(self.lab.node("a")?, tool.program(), &arguments, self.cpus.0)?;
        let duration = Duration::from_millis(duration_ms);
        job.wait(duration + PATIENCE)?;
        let (ended, stdout, stderr) = job.end()?;
        self.observer.settle(&[], Patience::until(clock::monotonic_ns() + 2_000_000_000))?;
        let after = self.observer.snapshot(&[])?;
        let claimed = tool.read(&stdout, &stderr)?;
        result.cpu = cpu(ended.usage.user_ns + ended.usage.system_ns, ended.usage);
        result.host = host(&before, &after)?;
        (result.claimed, result.seconds) = (claimed.frames, claimed.seconds);
        result.transmitted = moved(&before, &after, "a", "tx_packets")?;
        result.received = moved(&before, &after, "b", "rx_packets")?;
        (result.late, result.settings) = (claimed.late, claimed.settings);
        Ok(result)
    }
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

fn unknown(tool: &str) -> Problem {
    Problem::input(format!("'{tool}' is not a tool of this benchmark"))
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

/// A tool that runs; it ends with this value.
struct Job {
    child: Option<Child>,
    words: [Option<JoinHandle<String>>; 2],
}

impl Job {
    /// Starts a program (this one when none is named) in a node on a CPU.
    fn start(node: &Node, program: Option<&str>, arguments: &[String], cpu: u32) -> Result<Job> {
        let mut command = match program {
            Some(program) => node.command(program),
            None => node.command(crate::process::this_program()?),
        };
        process::on_cpu(&mut command, cpu);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/bin")).args(arguments);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Result<Job> {
        // A group of its own, so that a tool that forks (trafgen) can be ended whole.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|e| Problem::host(format!("cannot start {:?}: {e}", command.get_program())))?;
        let words = [
            child.stdout.take().map(|pipe| std::thread::spawn(move || all(pipe))),
            child.stderr.take().map(|pipe| std::thread::spawn(move || all(pipe))),
        ];
        Ok(Job { child: Some(child), words })
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// True as soon as the process has an open packet socket that is bound, or an XDP program on an interface; false
    /// when it ended or took too long.
    fn listens(&mut self) -> Result<bool> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && self.lives()? {
            if has_bound_socket(self.pid()) || has_xdp_link(self.pid()) {
                // What it does between the binding and its loop.
                std::thread::sleep(Duration::from_millis(100));
                return self.lives();
            }
            std::thread::sleep(LOOK);
        }
        Ok(false)
    }

    /// False when it has ended (it is not waited for). An interrupt of this process is a problem.
    fn lives(&self) -> Result<bool> {
        if process::interrupted() {
            return Err(Problem::input("interrupted"));
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        Ok(!matches!(state, None | Some('Z' | 'X')))
    }

    /// Waits so long, or until it has ended.
    fn wait_alive(&mut self, time: Duration) -> Result<()> {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline && self.lives()? {
            std::thread::sleep(LOOK.min(deadline.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Waits until it has ended.
    fn wait(&mut self, limit: Duration) -> Result<()> {
        self.wait_alive(limit)?;
        if self.lives()? { Err(Problem::measured("it did not end in time")) } else { Ok(()) }
    }

    fn interrupt(&self) -> Result<()> {
        match &self.child {
            Some(child) => {
                process::interrupt(child).map_err(|e| Problem::host(format!("cannot end a tool: {e}")))
            }
            None => Ok(()),
        }
    }

    /// Waits for its end and takes its words.
    fn end(mut self) -> Result<(Ended, String, String)> {
        let child = self.child.take().ok_or_else(|| Problem::host("the tool has ended before"))?;
        let ended = process::end_of(child, PATIENCE)
            .map_err(|e| Problem::host(format!("cannot wait for a tool: {e}")))?;
        let [stdout, stderr] = self
            .words
            .each_mut()
            .map(|words| words.take().and_then(|reader| reader.join().ok()).unwrap_or_default());
        if ended.killed {
            return Err(Problem::measured(format!("it did not end within {} s", PATIENCE.as_secs())));
        }
        Ok((ended, stdout, stderr))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::kill_group(&child);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn all(mut pipe: impl Read) -> String {
    let mut bytes = vec![];
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Looks at `/proc/PID/net/packet`, where the kernel lists the packet sockets of the process's namespace; column `R` is 1
/// for one that is bound to an interface that runs. The benchmark's node has no other listener.
fn has_bound_socket(pid: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/net/packet")).unwrap_or_default();
    text.lines().skip(1).any(|line| line.split_whitespace().nth(5) == Some("1"))
}

/// True when the process holds a BPF link: an AF_XDP port has attached its program.
fn has_xdp_link(pid: u32) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|to| to.to_string_lossy().contains("bpf_link"))
}
