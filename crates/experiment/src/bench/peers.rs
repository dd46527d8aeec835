//! `pathlab bench peers`: the same lab, the same seconds, in turn.
//!
//! Every round runs all contestants once, in an order that rotates, so that a machine that changes speed changes it
//! for all. CPU is the busy time of the whole host, because softirq work belongs to nobody's process.

use super::contest::{Score, ToolComparison, ToolRounds, comparisons};
use super::job::Job;
use super::rivals;
use crate::measure::{address, carry_out, start};
use crate::notices::{Notices, down};
use crate::watch::{self, Depth, TestObserver};
use linux::lab::{Lab, Topology};
use linux::observe::{Actor, FlowCounters, Observer, TimeDepth, TimeWatch};
use load::conversation::controller::NoObserver;
use load::conversation::observation::flow;
use record::{Problem, Result, TestSpec, TrafficKind};
use serde::Serialize;
use std::net::IpAddr;
use std::time::Instant;
use study::test::Figures;

/// What was measured, and where.
#[derive(Serialize)]
pub struct PeersBenchDocument {
    /// `pathlab/bench-peers/1`.
    pub schema: &'static str,
    /// The lab.
    pub topology: String,
    /// How often everybody was measured.
    pub rounds: u32,
    /// Seconds of each measurement.
    pub seconds: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu_model: String,
    /// Offloads of the lab's interfaces.
    pub offloads: Vec<String>,
    /// Which process ran where, in words.
    pub placement: &'static str,
    /// One for each job.
    pub contests: Vec<ToolComparison>,
}

/// Runs the benchmark: so many rounds of so many seconds in a lab (a built-in topology or a file) with traffic from a to b; only
/// the contests whose names begin with `only`.
///
/// # Errors
/// Input: there is no such topology or contest; host: the lab cannot be built, a tool fails.
pub fn run(
    rounds: u32,
    seconds: u64,
    topology: String,
    only: &str,
    notices: &dyn Notices,
) -> Result<PeersBenchDocument> {
    let wanted = wanted(only)?;
    linux::lab::enter_user_namespace()?;
    crate::process::interruptible()?;
    let lab = super::lab(&Topology::load(&topology)?, "")?;
    let ring = Ring::new(&lab, seconds)?;
    let contests =
        wanted.into_iter().map(|contest| ring.contest(contest, rounds, notices)).collect::<Result<_>>()?;
    let facts = linux::observe::host_facts();
    let document = PeersBenchDocument {
        schema: "pathlab/bench-peers/1",
        topology,
        rounds,
        seconds,
        kernel: facts.kernel,
        cpu_model: facts.cpu_model,
        offloads: lab.offloads(),
        placement: "not pinned",
        contests,
    };
    drop(ring);
    down(lab, notices);
    Ok(document)
}

/// The contests whose names begin so.
fn wanted(only: &str) -> Result<Vec<&'static PeersJob>> {
    let wanted: Vec<_> = JOBS.iter().filter(|contest| contest.name.starts_with(only)).collect();
    if wanted.is_empty() {
        let names: Vec<_> = JOBS.iter().map(|contest| contest.name).collect();
        return Err(Problem::input(format!("no contest begins with '{only}'")).help(names.join("; ")));
    }
    Ok(wanted)
}

/// What is done in a contest.
struct PeersJob {
    name: &'static str,
    /// Unit of the rate.
    unit: &'static str,
    /// What must hold.
    claim: &'static str,
    /// Ours first.
    contestants: &'static [(&'static str, Tool)],
    /// Our test: its kind, the size of its messages, and the rate of its figures.
    ours: (TrafficKind, u32, fn(&Figures) -> f64),
    /// netperf's test, what it takes besides, its figures, and the rate that they make.
    netperf: Netperf,
}

type Netperf = (&'static str, &'static [&'static str], &'static str, fn(&[f64]) -> f64);

/// Who does it.
#[derive(Clone, Copy)]
enum Tool {
    Pathlab { gso: u32, seen: Seen },
    Netperf,
    Iperf3,
}

/// What looks at our traffic meanwhile.
#[derive(Clone, Copy, PartialEq)]
enum Seen {
    Nothing,
    /// Counters of the flow at every interface.
    Flow,
    Time(TimeDepth),
    /// Everything that a run observes by itself.
    Run,
}

const fn seen(seen: Seen) -> Tool {
    Tool::Pathlab { gso: 0, seen }
}

const ALONE: Tool = seen(Seen::Nothing);
const PATHLAB: (&str, Tool) = ("pathlab", ALONE);
const NETPERF: (&str, Tool) = ("netperf", Tool::Netperf);

/// Ourselves, with the counters of the flow at every interface and without.
const COUNTED: &[(&str, Tool)] = &[("pathlab counting the flow", seen(Seen::Flow)), PATHLAB];

/// Ourselves, as in a run and alone.
const OBSERVED: &[(&str, Tool)] = &[("pathlab run", seen(Seen::Run)), ("watching nothing", ALONE)];

/// Ourselves, with each depth of watching where the time goes and without.
const TIMED: &[(&str, Tool)] = &[
    ("with the accounts of a run", seen(Seen::Time(TimeDepth::Accounts))),
    ("with the scheduler's events", seen(Seen::Time(TimeDepth::Scheduler))),
    ("with a profile of 997 Hz", seen(Seen::Time(TimeDepth::Profile(997)))),
    ("watching nothing", ALONE),
];
const NO_PEER: Netperf = ("", &[], "", |_| f64::NAN);

const JOBS: &[PeersJob] = &[
    PeersJob {
        name: "tcp-stream",
        unit: "Mbit/s received",
        claim: "at least 0.95 of each rival, no more CPU per byte",
        contestants: &[PATHLAB, NETPERF, ("iperf3", Tool::Iperf3)],
        ours: (TrafficKind::TcpStream, 0, |figures| figures.throughput_bps / 1e6),
        netperf: ("TCP_STREAM", &[], "THROUGHPUT", |values| values[0]),
    },
    PeersJob {
        name: "udp-stream 64 B",
        unit: "thousand datagrams/s received",
        claim: "with segmentation offload at least 3 times netperf",
        contestants: &[
            ("pathlab UDP_SEGMENT ×32, GRO", Tool::Pathlab { gso: 32, seen: Seen::Nothing }),
            ("pathlab sendmmsg ×32", ALONE),
            NETPERF,
        ],
        ours: (TrafficKind::UdpStream, 64, |figures| figures.messages_per_second / 1e3),
        netperf: ("UDP_STREAM", &["-m", "64"], "REMOTE_RECV_CALLS,ELAPSED_TIME", |values| {
            values[0] / values[1] / 1e3
        }),
    },
    PeersJob {
        name: "tcp-rr 1 B",
        unit: "transactions/s",
        claim: "within 5 % of netperf",
        contestants: &[PATHLAB, NETPERF],
        ours: (TrafficKind::TcpRr, 1, |figures| figures.messages_per_second),
        netperf: ("TCP_RR", &["-r", "1,1"], "TRANSACTION_RATE", |values| values[0]),
    },
    PeersJob {
        name: "counting udp-stream 64 B",
        unit: "thousand datagrams/s received",
        claim: "at least 0.97 of the same without counters of the flow",
        contestants: COUNTED,
        ours: (TrafficKind::UdpStream, 64, |figures| figures.messages_per_second / 1e3),
        netperf: NO_PEER,
    },
    PeersJob {
        name: "counting tcp-stream",
        unit: "Mbit/s received",
        claim: "at least 0.99 of the same without counters of the flow",
        contestants: COUNTED,
        ours: (TrafficKind::TcpStream, 0, |figures| figures.throughput_bps / 1e6),
        netperf: NO_PEER,
    },
    PeersJob {
        name: "observing tcp-stream",
        unit: "Mbit/s received",
        claim: "at least 0.98 of the same that nothing watches",
        contestants: OBSERVED,
        ours: (TrafficKind::TcpStream, 0, |figures| figures.throughput_bps / 1e6),
        netperf: NO_PEER,
    },
    PeersJob {
        name: "observing udp-stream 64 B",
        unit: "thousand datagrams/s received",
        claim: "at least 0.95 of the same that nothing watches; the counters of the flow have about half of it",
        contestants: OBSERVED,
        ours: (TrafficKind::UdpStream, 64, |figures| figures.messages_per_second / 1e3),
        netperf: NO_PEER,
    },
    PeersJob {
        name: "time tcp-stream",
        unit: "Mbit/s received",
        claim: "without a profile at least 0.98 of the same unwatched",
        contestants: TIMED,
        ours: (TrafficKind::TcpStream, 0, |figures| figures.throughput_bps / 1e6),
        netperf: NO_PEER,
    },
    PeersJob {
        name: "time tcp-rr 1 B",
        unit: "transactions/s",
        claim: "without a profile at least 0.98 of the same unwatched",
        contestants: TIMED,
        ours: (TrafficKind::TcpRr, 1, |figures| figures.messages_per_second),
        netperf: NO_PEER,
    },
];

/// Where the contests are held.
struct Ring<'a> {
    lab: &'a Lab,
    to: IpAddr,
    seconds: u64,
    _servers: Vec<Job>,
}

impl<'a> Ring<'a> {
    fn new(lab: &'a Lab, seconds: u64) -> Result<Ring<'a>> {
        let receiver = lab.node("b")?;
        let to = address(lab, "b", 4)?;
        Ok(Ring { lab, to, seconds, _servers: rivals::servers(receiver)? })
    }

    fn contest(&self, job: &PeersJob, rounds: u32, notices: &dyn Notices) -> Result<ToolComparison> {
        let absences =
            job.contestants.iter().map(|(name, tool)| (*name, *tool, self.why_absent(name, *tool)));
        let (missing, present): (Vec<_>, Vec<_>) = absences.partition(|(.., why)| why.is_some());
        let tools: Vec<(&str, Tool)> = present.into_iter().map(|(name, tool, _)| (name, tool)).collect();
        let absent = missing.into_iter().filter_map(|(.., why)| why).collect();
        let mut contestants: Vec<ToolRounds> =
            tools.iter().map(|(name, _)| ToolRounds { name, scores: vec![] }).collect();
        for round in 0..rounds as usize {
            notices.part(&format!("{}: round {} of {rounds}", job.name, round + 1), 0, 0);
            for turn in 0..tools.len() {
                let index = (turn + round) % tools.len();
                contestants[index].scores.push(self.measure(job, tools[index].1)?);
            }
        }
        let (name, unit, claim) = (job.name, job.unit, job.claim);
        let comparisons = comparisons(&contestants);
        Ok(ToolComparison { name, unit, claim, contestants, comparisons, absent })
    }

    /// Why a contestant cannot take part here. A rival's program has its name.
    fn why_absent(&self, name: &str, tool: Tool) -> Option<String> {
        match tool {
            Tool::Pathlab { seen: Seen::Nothing | Seen::Run, .. } => None,
            Tool::Pathlab { seen: Seen::Time(depth), .. } => {
                TimeWatch::start(&[], depth).err().map(|problem| format!("{name}: {problem}"))
            }
            Tool::Pathlab { seen: Seen::Flow, .. } => {
                let any = flow(
                    &TestSpec::default(),
                    &load::DataPorts { receiver: Some(9), ..Default::default() },
                    0,
                );
                FlowCounters::start(&watch::namespaces(self.lab), &any)
                    .err()
                    .map(|why| format!("{name}: {why}"))
            }
            _ => (!rivals::installed(name)).then(|| format!("{name} is not installed")),
        }
    }

    fn measure(&self, job: &PeersJob, tool: Tool) -> Result<Score> {
        if linux::sys::process::interrupted() {
            return Err(Problem::host("interrupted"));
        }
        let (begun, before) = (Instant::now(), linux::observe::busy_seconds()?);
        let nominal = self.seconds as f64;
        let from = self.lab.node("a")?;
        let (rate, seconds) = match tool {
            Tool::Pathlab { gso, seen } => self.ours(job, gso, seen)?,
            Tool::Netperf => {
                let (test, own, fields, rate) = job.netperf;
                (rate(&rivals::netperf(from, self.to, self.seconds, test, own, fields)?), nominal)
            }
            Tool::Iperf3 => (rivals::iperf3_tcp(from, self.to, self.seconds)? / 1e6, nominal),
        };
        let busy_seconds = linux::observe::busy_seconds()? - before;
        Ok(Score { rate, busy_seconds, elapsed_seconds: begun.elapsed().as_secs_f64(), seconds })
    }

    /// Our rate, and how long the traffic flowed.
    fn ours(&self, job: &PeersJob, gso: u32, seen: Seen) -> Result<(f64, f64)> {
        let (kind, size, rate) = job.ours;
        let duration_ms = self.seconds * 1000;
        let spec = TestSpec { kind, duration_ms, size, gso, gro: gso > 0, ..TestSpec::default() };
        let mut sender = start(self.lab.node("a")?)?;
        let mut receiver = start(self.lab.node("b")?)?;
        let actors = [("sender", "a", &sender), ("receiver", "b", &receiver)];
        let actors = actors.map(|(role, node, agent)| Actor {
            pid: agent.pid(),
            role: role.into(),
            node: node.into(),
        });
        let (mut counting, mut timing) = (
            Counting { lab: self.lab, spec: &spec, counters: None },
            Timing { actors, depth: None, watch: None },
        );
        let mut nobody = NoObserver;
        let (mut counters, mut run);
        let observer: &mut dyn load::Observer = match seen {
            Seen::Nothing => &mut nobody,
            Seen::Run => {
                counters = Observer::new(&watch::namespaces(self.lab))?;
                let actors = timing.actors.to_vec();
                run = TestObserver::new(self.lab, &spec, &mut counters, actors, Depth::default())?;
                &mut run
            }
            Seen::Flow => &mut counting,
            Seen::Time(depth) => {
                timing.depth = Some(depth);
                &mut timing
            }
        };
        let outcome = carry_out(&spec, [&mut sender, &mut receiver], self.to, observer)?;
        let figures = study::test::figures(&spec, &outcome.sender, &outcome.receiver, None);
        Ok((rate(&figures), figures.seconds))
    }
}

/// Counts the flow of a test, and reads nothing else.
struct Counting<'a> {
    lab: &'a Lab,
    spec: &'a TestSpec,
    counters: Option<FlowCounters>,
}

impl load::Observer for Counting<'_> {
    fn before(&mut self, ports: &load::DataPorts, stream: u8) -> Result<()> {
        let flow = flow(self.spec, ports, stream);
        let counters = FlowCounters::start(&watch::namespaces(self.lab), &flow);
        self.counters = Some(counters.map_err(Problem::host)?);
        Ok(())
    }
}

/// Watches where the time goes, and names nothing.
struct Timing {
    actors: [Actor; 2],
    depth: Option<TimeDepth>,
    watch: Option<TimeWatch>,
}

impl load::Observer for Timing {
    fn before(&mut self, _: &load::DataPorts, _: u8) -> Result<()> {
        self.watch = self.depth.map(|depth| TimeWatch::start(&self.actors, depth)).transpose()?;
        Ok(())
    }

    fn settled(&mut self) -> Result<()> {
        self.watch.iter_mut().for_each(TimeWatch::stop);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contests_that_are_none_are_refused_with_those_that_are() {
        assert_eq!((wanted("").unwrap().len(), wanted("tcp-").unwrap().len()), (JOBS.len(), 2));
        let Err(refusal) = wanted("snabb") else { panic!("nothing is measured, silently") };
        assert!(refusal.to_string().contains("udp-stream 64 B"), "{refusal}");
    }
}
