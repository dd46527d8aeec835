//! `pathlab bench updates`: what changes of rules cost the frames that go through meanwhile, and how fast they are.
//!
//! **What.** In a lab a — s — b with a large table in s, datagrams go from a to b at a rate, and their one-way times are taken. Meanwhile nothing
//! changes; or rules are deleted and added one by one, as fast as the switch takes them, with a barrier behind every [`BETWEEN_BARRIERS`]; or
//! bundles replace all rules. The longest time of a datagram is the longest pause.
//!
//! **Why datagrams at a rate.** Their times are those from the planned moment, so a pause is seen with its whole length, and by every datagram
//! that it met.
//!
//! **Price.** Ends, switch and client share the host's CPUs. What the first phase says is what the host itself costs.

use super::contest::{median, range};
use super::flow::Spread;
use super::flow::classbench::Random;
use super::switch::arm::{ARMS, Arm, Standing};
use super::switch::measure::outcome;
use super::switch::rules;
use crate::notices::{Notices, down};
use ::switch::client::Client;
use ::switch::config::Remote;
use flow::client;
use flow::openflow::bytes::Version;
use flow::openflow::message::Body;
use flow::rule::FlowModCommand;
use flow::text::rule::flow_mod;
use record::{Problem, Rate, Result, TestSpec, TrafficKind};
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Changes of rules between two barriers.
pub const BETWEEN_BARRIERS: usize = 500;
/// How long the switch may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a datagram.
const SIZE: u32 = 64;

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Rounds; each measures every arm once.
    pub rounds: u32,
    /// Seconds of each phase.
    pub seconds: u64,
    /// Rules of the table, at least 3.
    pub rules: usize,
    /// Datagrams per second.
    pub rate: f64,
    /// The arms whose names begin with one of these.
    pub only: Vec<String>,
    /// Seed of the rules.
    pub seed: u64,
}

/// What was measured, and where.
#[derive(Debug, Serialize)]
pub struct UpdatesBenchDocument {
    /// `pathlab/bench-updates/1`.
    pub schema: &'static str,
    /// How often each arm was measured.
    pub rounds: u32,
    /// Seconds of each phase.
    pub seconds: u64,
    /// Rules of the table.
    pub rules: usize,
    /// Datagrams per second.
    pub rate: f64,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu_model: String,
    /// How many of these.
    pub cpus: u32,
    /// By arm, then by phase.
    pub results: Vec<UpdatesResult>,
    /// What could not be measured, and why.
    pub absent: Vec<String>,
}

/// All rounds of one arm in one phase.
#[derive(Debug, Serialize)]
pub struct UpdatesResult {
    /// The arm, as in `bench switch`.
    pub arm: &'static str,
    /// `quiet`, `one by one` or `bundles`.
    pub phase: &'static str,
    /// Changes of rules per second that the switch had carried out, by its barriers; none while nothing changes.
    pub updates_per_s: Option<Spread>,
    /// Median one-way time of a datagram, nanoseconds.
    pub p50_ns: Spread,
    /// 99.9th percentile.
    pub p999_ns: Spread,
    /// The longest: the longest pause.
    pub max_ns: Spread,
    /// Datagrams that did not arrive.
    pub lost: Spread,
    /// Resident memory of the program by rule, bytes.
    pub ram_per_rule: f64,
}

/// What changes meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Quiet,
    OneByOne,
    Bundles,
}

const PHASES: [Phase; 3] = [Phase::Quiet, Phase::OneByOne, Phase::Bundles];

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Quiet => "quiet",
            Phase::OneByOne => "one by one",
            Phase::Bundles => "bundles",
        }
    }
}

/// One round of one phase.
#[derive(Debug, Clone, Copy)]
struct Score {
    phase: Phase,
    updates_per_s: f64,
    p50: u64,
    p999: u64,
    max: u64,
    lost: u64,
    ram: u64,
}

/// Measures.
///
/// # Errors
/// Input: an unknown arm, one that follows no rules, too few of these; host: a lab cannot be built, a switch refuses a change; an interrupt.
pub fn run(wanted: &Wanted, notices: &dyn Notices) -> Result<UpdatesBenchDocument> {
    let arms = super::switch::chosen(&wanted.only)?;
    if let Some(arm) = arms.iter().find(|arm| !arm.has_rules) {
        return Err(Problem::input(format!("'{}' follows no rules", arm.name)).at("--only"));
    }
    if wanted.rules < 3 {
        return Err(Problem::input(format!("{} rules: there are at least three", wanted.rules)).at("--rules"));
    }
    crate::process::interruptible()?;
    let rules = rules::make(wanted.rules, 1, wanted.seed)?;
    let mut absent = vec![];
    let mut standing: Vec<(Standing, Vec<Score>)> =
        super::switch::standing(&arms, &rules, &mut absent)?.into_iter().map(|up| (up, vec![])).collect();
    for round in 0..wanted.rounds as usize {
        for turn in 0..standing.len() {
            let index = (turn + round) % standing.len();
            let (up, scores) = &mut standing[index];
            notices.part(&format!("round {} of {}: {}", round + 1, wanted.rounds, up.arm.name), 0, 0);
            for phase in PHASES {
                scores.push(up.awake(|| score(up, phase, &rules.lines, wanted))?);
            }
        }
    }
    let results = standing.iter().flat_map(|(up, scores)| summed(up.arm, scores, wanted.rules)).collect();
    standing.into_iter().for_each(|(up, _)| down(up.down(), notices));
    let facts = linux::observe::host_facts();
    Ok(UpdatesBenchDocument {
        schema: "pathlab/bench-updates/1",
        rounds: wanted.rounds,
        seconds: wanted.seconds,
        rules: wanted.rules,
        rate: wanted.rate,
        kernel: facts.kernel,
        cpu_model: facts.cpu_model,
        cpus: facts.cpus,
        results,
        absent,
    })
}

/// Traffic for so long, and changes beside it.
fn score(standing: &Standing, phase: Phase, lines: &[String], wanted: &Wanted) -> Result<Score> {
    if linux::sys::process::interrupted() {
        return Err(Problem::host("interrupted"));
    }
    let spec = TestSpec {
        kind: TrafficKind::UdpStream,
        from: "a".into(),
        to: "b".into(),
        duration_ms: wanted.seconds * 1000,
        size: SIZE,
        rate: Some(Rate::MessagesPerSecond(wanted.rate)),
        receive_buffer: TestSpec::default_receive_buffer(TrafficKind::UdpStream),
        ..TestSpec::default()
    };
    let stop = AtomicBool::new(false);
    let (outcome, updates_per_s) = std::thread::scope(|scope| -> Result<_> {
        let changing = scope.spawn(|| changes(standing, phase, lines, wanted.seed, &stop));
        let outcome = outcome(standing.lab()?, &spec);
        stop.store(true, Relaxed);
        Ok((outcome?, load::traffic::threads::joined(changing)?))
    })?;
    let latency = outcome.receiver.latency.ok_or_else(|| Problem::measured("no datagram arrived"))?;
    Ok(Score {
        phase,
        updates_per_s,
        p50: latency.p50,
        p999: latency.p999,
        max: latency.max,
        lost: outcome.sender.sent.saturating_sub(outcome.receiver.unique),
        ram: standing.sample().map_or(0, |sample| sample.rss_bytes),
    })
}

/// Changes rules until it is over; how many per second.
fn changes(standing: &Standing, phase: Phase, lines: &[String], seed: u64, stop: &AtomicBool) -> Result<f64> {
    let socket = standing.program().and_then(|program| program.openflow.as_ref());
    let socket = socket.ok_or_else(|| Problem::host("the switch has no socket"))?;
    if phase == Phase::Quiet {
        return Ok(0.0);
    }
    // Those of the access list, not the two that carry the traffic.
    let changes = pairs(&lines[..lines.len() - 2])?;
    let adding: Vec<Body> = changes.iter().map(|(_, add)| add.clone()).collect();
    let version = if phase == Phase::Bundles { Version::V14 } else { Version::V13 };
    let mut client = call(socket, version)?;
    let mut random = Random(seed);
    let (begun, mut count) = (Instant::now(), 0);
    while !stop.load(Relaxed) {
        let some = if phase == Phase::OneByOne { some(&changes, &mut random) } else { vec![] };
        let bodies = if phase == Phase::OneByOne { &some } else { &adding };
        if let Some(refusal) = client.change(bodies)?.first() {
            return Err(Problem::host(format!("the switch refuses a change: {}", refusal.fault)));
        }
        count += bodies.len();
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// What deletes a rule, and what adds it again.
type Pair = (Body, Body);

fn pairs(lines: &[String]) -> Result<Vec<Pair>> {
    let pair = |line: &String| {
        let matching = line.split(" actions=").next().unwrap_or_default();
        Ok((body(FlowModCommand::DeleteStrict, matching)?, body(FlowModCommand::Add, line)?))
    };
    lines.iter().map(pair).collect()
}

/// Deletes and adds rules, one after the other.
fn some(pairs: &[Pair], random: &mut Random) -> Vec<Body> {
    let mut draw = || &pairs[random.below(pairs.len() as u64) as usize];
    (0..BETWEEN_BARRIERS / 2).map(|_| draw().clone()).flat_map(|(delete, add)| [delete, add]).collect()
}

fn call(socket: &Path, version: Version) -> Result<Client> {
    Client::call(&Remote::Unix(socket.into()), None, &[version], PATIENCE)
}

fn body(command: FlowModCommand, line: &str) -> Result<Body> {
    let change = flow_mod(command, line);
    change
        .map(|change| client::flow_mod(&change))
        .map_err(|error| Problem::host(format!("{error} in '{line}'")))
}

fn summed(arm: &'static Arm, scores: &[Score], rules: usize) -> Vec<UpdatesResult> {
    let of_phase = |phase: Phase| {
        let of = |figure: &dyn Fn(&Score) -> f64| {
            let values: Vec<f64> = scores.iter().filter(|score| score.phase == phase).map(figure).collect();
            let (low, high) = range(&values);
            Spread { median: median(&values), low, high }
        };
        UpdatesResult {
            arm: arm.name,
            phase: phase.name(),
            updates_per_s: (phase != Phase::Quiet).then(|| of(&|score| score.updates_per_s)),
            p50_ns: of(&|score| score.p50 as f64),
            p999_ns: of(&|score| score.p999 as f64),
            max_ns: of(&|score| score.max as f64),
            lost: of(&|score| score.lost as f64),
            ram_per_rule: of(&|score| score.ram as f64).median / rules as f64,
        }
    };
    PHASES.into_iter().map(of_phase).collect()
}

/// What is measured when nothing is said.
pub fn usual() -> impl Iterator<Item = &'static str> {
    ARMS.iter()
        .filter(|arm| arm.has_rules && arm.name.ends_with("ring") || arm.name == super::switch::arm::OVS)
        .map(|arm| arm.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_leave_the_rules_as_they_were() {
        let lines = rules::make(50, 1, 3).unwrap().lines;
        let bodies = some(&pairs(&lines[..48]).unwrap(), &mut Random(1));
        assert_eq!(bodies.len(), BETWEEN_BARRIERS);
        for pair in bodies.chunks(2) {
            let [Body::FlowMod(delete), Body::FlowMod(add)] = pair else { panic!("{pair:?}") };
            assert_eq!((delete.priority, &delete.matching), (add.priority, &add.matching));
        }
    }

    #[test]
    fn what_is_usual_follows_rules() {
        let names: Vec<_> = usual().collect();
        assert_eq!(names, ["interpreter ring", "native ring", "Open vSwitch AF_PACKET"]);
    }
}
