//! `pathlab bench peers`: the same lab, the same seconds, in turn.
//!
//! Every round runs all contestants once, in an order that rotates, so that a machine that changes speed changes it
//! for all. CPU is the busy time of the whole host, because softirq work belongs to nobody's process.

use super::contest::{Contest, Contestant, Score};
use super::rivals;
use crate::{Notices, down};
use linux::lab::{Lab, Lifetime, Topology};
use record::{Kind, Result, TestSpec};
use serde::Serialize;
use std::net::IpAddr;
use std::time::Instant;

/// What is measured.
pub struct Parameters {
    /// Rounds; each gives one ratio for each rival.
    pub rounds: u32,
    /// Seconds for each measurement.
    pub seconds: u64,
    /// The lab to measure in (a built-in topology or a file); traffic goes from a to b.
    pub topology: String,
    /// Only the contest whose name begins so.
    pub only: Option<String>,
}

/// What was measured, and where.
#[derive(Serialize)]
pub struct Document {
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
    pub contests: Vec<Contest>,
}

/// Runs the benchmark.
///
/// # Errors
/// Input: there is no such topology; host: the lab cannot be built, a tool fails.
pub fn run(parameters: &Parameters, notices: &dyn Notices) -> Result<Document> {
    linux::lab::enter_user_namespace()?;
    crate::interruptible()?;
    let topology = Topology::load(&parameters.topology)?;
    let lab = Lab::up(
        &linux::undo::door()?,
        &topology,
        &format!("bench-{}", std::process::id()),
        Lifetime::Ephemeral,
    )?;
    let ring = Ring::new(&lab, parameters.seconds)?;
    let mut contests = vec![];
    for job in Job::ALL {
        if parameters.only.as_ref().is_none_or(|only| job.name().starts_with(only.as_str())) {
            contests.push(ring.contest(job, parameters.rounds, notices)?);
        }
    }
    let facts = linux::observe::host_facts();
    let document = Document {
        schema: "pathlab/bench-peers/1",
        topology: parameters.topology.clone(),
        rounds: parameters.rounds,
        seconds: parameters.seconds,
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

/// What is done in a contest.
#[derive(Clone, Copy)]
enum Job {
    TcpStream,
    SmallDatagrams,
    TcpRr,
}

impl Job {
    const ALL: [Job; 3] = [Job::TcpStream, Job::SmallDatagrams, Job::TcpRr];

    fn name(self) -> &'static str {
        match self {
            Job::TcpStream => "tcp-stream",
            Job::SmallDatagrams => "udp-stream 64 B",
            Job::TcpRr => "tcp-rr 1 B",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Job::TcpStream => "Mbit/s received",
            Job::SmallDatagrams => "thousand datagrams/s received",
            Job::TcpRr => "transactions/s",
        }
    }

    fn claim(self) -> &'static str {
        match self {
            Job::TcpStream => "at least 0.95 of each rival, no more CPU per byte",
            Job::SmallDatagrams => "with segmentation offload at least 3 times netperf",
            Job::TcpRr => "within 5 % of netperf",
        }
    }

    fn contestants(self) -> Vec<Tool> {
        match self {
            Job::TcpStream => vec![Tool::Pathlab { gso: 0 }, Tool::Netperf, Tool::Iperf3],
            Job::SmallDatagrams => vec![Tool::Pathlab { gso: 32 }, Tool::Pathlab { gso: 0 }, Tool::Netperf],
            Job::TcpRr => vec![Tool::Pathlab { gso: 0 }, Tool::Netperf],
        }
    }
}

/// Who does it.
#[derive(Clone, Copy)]
enum Tool {
    Pathlab { gso: u32 },
    Netperf,
    Iperf3,
}

impl Tool {
    fn name(self, job: Job) -> String {
        match (self, job) {
            (Tool::Pathlab { gso: 0 }, Job::SmallDatagrams) => "pathlab sendmmsg ×32".into(),
            (Tool::Pathlab { gso }, Job::SmallDatagrams) => format!("pathlab UDP_SEGMENT ×{gso}, GRO"),
            (Tool::Pathlab { .. }, _) => "pathlab".into(),
            (Tool::Netperf, _) => "netperf".into(),
            (Tool::Iperf3, _) => "iperf3".into(),
        }
    }

    fn missing(self) -> Option<&'static str> {
        let program = match self {
            Tool::Pathlab { .. } => return None,
            Tool::Netperf => "netperf",
            Tool::Iperf3 => "iperf3",
        };
        (!rivals::installed(program)).then_some(program)
    }
}

/// Where the contests are held.
struct Ring<'a> {
    lab: &'a Lab,
    to: IpAddr,
    seconds: u64,
    _servers: Vec<rivals::Server>,
}

impl<'a> Ring<'a> {
    fn new(lab: &'a Lab, seconds: u64) -> Result<Ring<'a>> {
        let receiver = lab.node("b")?;
        let to =
            lab.address_of("b", 4).ok_or_else(|| record::Problem::input("node 'b' has no IPv4 address"))?;
        let mut servers = vec![];
        if rivals::installed("netserver") {
            servers.push(rivals::netserver(receiver)?);
        }
        if rivals::installed("iperf3") {
            servers.push(rivals::iperf3_server(receiver)?);
        }
        Ok(Ring { lab, to, seconds, _servers: servers })
    }

    fn contest(&self, job: Job, rounds: u32, notices: &dyn Notices) -> Result<Contest> {
        let (mut tools, mut absent) = (vec![], vec![]);
        for tool in job.contestants() {
            match tool.missing() {
                None => tools.push(tool),
                Some(program) => absent.push(format!("{program} is not installed")),
            }
        }
        let mut contestants: Vec<Contestant> =
            tools.iter().map(|tool| Contestant { name: tool.name(job), scores: vec![] }).collect();
        for round in 0..rounds as usize {
            notices.part(&format!("{}: round {} of {rounds}", job.name(), round + 1), 0, 0);
            for turn in 0..tools.len() {
                let index = (turn + round) % tools.len();
                contestants[index].scores.push(self.measure(job, tools[index])?);
            }
        }
        let (name, unit, claim) = (job.name().into(), job.unit().into(), job.claim().into());
        let mut contest = Contest { name, unit, claim, contestants, comparisons: vec![], absent };
        contest.compare();
        Ok(contest)
    }

    fn measure(&self, job: Job, tool: Tool) -> Result<Score> {
        let (begun, before) = (Instant::now(), linux::observe::busy_seconds()?);
        let nominal = self.seconds as f64;
        let (rate, seconds) = match tool {
            Tool::Pathlab { gso } => self.ours(job, gso)?,
            Tool::Netperf => (self.netperf(job)?, nominal),
            Tool::Iperf3 => (rivals::iperf3_tcp(self.lab.node("a")?, self.to, self.seconds)? / 1e6, nominal),
        };
        let busy_seconds = linux::observe::busy_seconds()? - before;
        Ok(Score { rate, busy_seconds, elapsed_seconds: begun.elapsed().as_secs_f64(), seconds })
    }

    fn netperf(&self, job: Job) -> Result<f64> {
        let (node, to, seconds) = (self.lab.node("a")?, self.to, self.seconds);
        match job {
            Job::TcpStream => Ok(rivals::netperf(node, to, seconds, "TCP_STREAM", &[], "THROUGHPUT")?[0]),
            Job::SmallDatagrams => {
                let fields = "REMOTE_RECV_CALLS,ELAPSED_TIME";
                let values = rivals::netperf(node, to, seconds, "UDP_STREAM", &["-m", "64"], fields)?;
                Ok(values[0] / values[1] / 1e3)
            }
            Job::TcpRr => {
                Ok(rivals::netperf(node, to, seconds, "TCP_RR", &["-r", "1,1"], "TRANSACTION_RATE")?[0])
            }
        }
    }

    /// Our rate, and how long the traffic flowed.
    fn ours(&self, job: Job, gso: u32) -> Result<(f64, f64)> {
        let base =
            TestSpec { duration_ms: self.seconds * 1000, size: 0, gso, gro: gso > 0, ..TestSpec::default() };
        let spec = match job {
            Job::TcpStream => TestSpec { kind: Kind::TcpStream, ..base },
            Job::SmallDatagrams => TestSpec { kind: Kind::UdpStream, size: 64, ..base },
            Job::TcpRr => TestSpec { kind: Kind::TcpRr, size: 1, response: 1, ..base },
        };
        let mut sender = crate::measure::start(self.lab.node("a")?)?;
        let mut receiver = crate::measure::start(self.lab.node("b")?)?;
        let outcome = load::conversation::controller::run(
            &spec,
            &mut sender.link,
            &mut receiver.link,
            self.to,
            &mut load::conversation::controller::Nobody,
        )?;
        let figures = study::test::figures(&spec, &outcome.sender, &outcome.receiver, None);
        let rate = match job {
            Job::TcpStream => figures.throughput_bps / 1e6,
            Job::SmallDatagrams => figures.messages_per_second / 1e3,
            Job::TcpRr => figures.messages_per_second,
        };
        Ok((rate, figures.seconds))
    }
}
