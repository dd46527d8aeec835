//! `pathlab bench switch`: what a switch carries over wires, by ports and engine, beside the kernel's bridge and Open vSwitch.
//!
//! **What.** In a lab a — s — b something stands in s ([`arm`]). Frames of many flows are offered at `a` by the kernel's live-frame generator,
//! faster than anything can take them, and counted where they come to `b`: at the interface, so that no socket's buffer ends first. Besides, a
//! TCP stream with the offloads of both hosts on and off, and ping. All of that for 2, 100 and 10,000 rules ([`rules`]).
//!
//! **How.** Everything of one number of rules is up at once. A round measures every arm once, in an order that rotates; programs that are not
//! measured are stopped (SIGSTOP), because some poll for ever. Ratios are of the same round; medians and ranges are over the rounds.
//!
//! **Price.** Generator, switch and receiver share the host's CPUs: the figures say what this host carries with all of it, and only the ratios
//! mean anything elsewhere.

pub mod arm;
pub(super) mod measure;
pub(super) mod rules;

use super::contest::{median, range};
use super::flow::Spread;
use crate::notices::{Notices, down};
use arm::{ARMS, Arm, Standing};
use record::{Problem, ProblemKind, Result};
use rules::WireRules;
use serde::Serialize;

/// Different flows that frames are of.
pub const FLOWS: usize = 512;

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Rounds; each measures every arm once.
    pub rounds: u32,
    /// Milliseconds of each measurement.
    pub milliseconds: u64,
    /// Numbers of rules, each at least 2.
    pub rules: Vec<usize>,
    /// Only the arms whose names begin with one of these; all when empty.
    pub only: Vec<String>,
    /// Only frames: neither TCP nor ping.
    pub only_frames: bool,
    /// Seed of the rules.
    pub seed: u64,
}

/// What was measured, and where.
#[derive(Debug, Serialize)]
pub struct SwitchBenchDocument {
    /// `pathlab/bench-switch/1`.
    pub schema: &'static str,
    /// How often each arm was measured.
    pub rounds: u32,
    /// Milliseconds of each measurement.
    pub milliseconds: u64,
    /// Seed of the rules.
    pub seed: u64,
    /// Bytes of a frame, without FCS.
    pub frame_bytes: usize,
    /// Different flows that frames were of.
    pub flows: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu_model: String,
    /// How many of these.
    pub cpus: u32,
    /// Which process ran where, in words.
    pub placement: &'static str,
    /// By number of rules, then in the order of the arms.
    pub results: Vec<ArmResult>,
    /// What could not be measured, and why.
    pub absent: Vec<String>,
}

/// All rounds of one arm with so many rules.
#[derive(Debug, Serialize)]
pub struct ArmResult {
    /// Its name.
    pub arm: &'static str,
    /// Rules of the switch.
    pub rules: usize,
    /// Frames per second at the far interface.
    pub frames_per_s: Spread,
    /// That, divided by what the kernel's bridge carried in the same round.
    pub of_bridge: Option<Spread>,
    /// The same for the smallest forwarder over the same kind of ports.
    pub of_null: Option<Spread>,
    /// The same for Open vSwitch over AF_PACKET.
    pub of_ovs: Option<Spread>,
    /// CPU of the program in the middle by delivered frame, nanoseconds; none where the kernel forwards.
    pub program_ns_per_frame: Option<f64>,
    /// Busy CPU of the whole host, generator included, by delivered frame, nanoseconds.
    pub host_ns_per_frame: f64,
    /// Resident memory of the program, bytes.
    pub ram_bytes: Option<f64>,
    /// TCP payload, bits per second, as the kernel gives the offloads.
    pub tcp_bps: Option<Spread>,
    /// The same with all offloads of the two hosts off.
    pub tcp_bps_without_offloads: Option<Spread>,
    /// Median round trip of ping, each request behind the reply before, nanoseconds.
    pub ping_ns: Option<Spread>,
    /// Every round.
    pub scores: Vec<Score>,
}

/// One round of one arm.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Score {
    /// Frames per second at the far interface.
    pub frames_per_s: f64,
    /// CPU of the program by delivered frame, nanoseconds.
    pub program_ns_per_frame: Option<f64>,
    /// Busy CPU of the host by delivered frame, nanoseconds.
    pub host_ns_per_frame: f64,
    /// Resident memory of the program, bytes.
    pub ram_bytes: Option<f64>,
    /// TCP payload, bits per second.
    pub tcp_bps: Option<f64>,
    /// Without offloads.
    pub tcp_bps_without_offloads: Option<f64>,
    /// Median round trip, nanoseconds.
    pub ping_ns: Option<f64>,
    /// What did not get through, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_carried: Vec<String>,
}

/// Measures.
///
/// # Errors
/// Input: an unknown arm, a number of rules that there cannot be; host: a lab cannot be built; an interrupt.
pub fn run(wanted: &Wanted, notices: &dyn Notices) -> Result<SwitchBenchDocument> {
    let arms = chosen(&wanted.only)?;
    wanted.rules.iter().try_for_each(|&count| rules::checked(count).map(drop))?;
    crate::process::interruptible()?;
    let (mut results, mut absent) = (vec![], vec![]);
    for &count in &wanted.rules {
        results.extend(measured(&arms, count, wanted, &mut absent, notices)?);
    }
    absent.dedup();
    let facts = linux::observe::host_facts();
    Ok(SwitchBenchDocument {
        schema: "pathlab/bench-switch/1",
        rounds: wanted.rounds,
        milliseconds: wanted.milliseconds,
        seed: wanted.seed,
        frame_bytes: super::flow::pipelines::FRAME,
        flows: FLOWS,
        kernel: facts.kernel,
        cpu_model: facts.cpu_model,
        cpus: facts.cpus,
        placement: "not pinned; programs that are not measured are stopped",
        results,
        absent,
    })
}

/// The arms whose names begin with one of these; all when none is named.
pub(super) fn chosen(only: &[String]) -> Result<Vec<&'static Arm>> {
    let unknown = only.iter().find(|wish| !ARMS.iter().any(|arm| arm.name.starts_with(wish.as_str())));
    if let Some(unknown) = unknown {
        let names: Vec<&str> = ARMS.iter().map(|arm| arm.name).collect();
        let what = format!("nothing that is measured begins with '{unknown}'");
        return Err(Problem::input(what).at("--only").help(names.join(", ")));
    }
    let is_wanted =
        |arm: &&Arm| only.is_empty() || only.iter().any(|wish| arm.name.starts_with(wish.as_str()));
    Ok(ARMS.iter().filter(is_wanted).collect())
}

/// All arms with so many rules.
fn measured(
    arms: &[&'static Arm],
    count: usize,
    wanted: &Wanted,
    absent: &mut Vec<String>,
    notices: &dyn Notices,
) -> Result<Vec<ArmResult>> {
    let rules = rules::make(count, FLOWS, wanted.seed)?;
    let mut standing: Vec<(Standing, Vec<Score>)> =
        self::standing(arms, &rules, absent)?.into_iter().map(|up| (up, vec![])).collect();
    for round in 0..wanted.rounds as usize {
        for turn in 0..standing.len() {
            let index = (turn + round) % standing.len();
            let (up, scores) = &mut standing[index];
            let (name, round) = (up.arm.name, round + 1);
            notices.part(&format!("{count} rules, round {round} of {}: {name}", wanted.rounds), 0, 0);
            let score = up.awake(|| measure::score(up, &rules, wanted, scores.last()));
            let score = score.map_err(|problem| problem.at(up.arm.name))?;
            absent.extend(
                score.not_carried.iter().map(|what| format!("{}, {count} rules, {what}", up.arm.name)),
            );
            scores.push(score);
        }
    }
    let all: Vec<(&Arm, Vec<Score>)> =
        standing.iter_mut().map(|(up, scores)| (up.arm, std::mem::take(scores))).collect();
    let results = all.iter().map(|(arm, scores)| summed(arm, count, scores, &all)).collect();
    standing.into_iter().for_each(|(up, _)| down(up.down(), notices));
    Ok(results)
}

/// Builds arms with these rules; one that this host cannot build has its reason in `absent` instead.
pub(super) fn standing(
    arms: &[&'static Arm],
    rules: &WireRules,
    absent: &mut Vec<String>,
) -> Result<Vec<Standing>> {
    let mut standing = vec![];
    for arm in arms {
        match Standing::up(arm, rules) {
            Ok(up) => standing.push(up),
            // What is wrong is wrong.
            Err(problem) if problem.kind == ProblemKind::Host && !linux::sys::process::interrupted() => {
                absent.push(format!("{}: {problem}", arm.name));
            }
            Err(problem) => return Err(problem),
        }
    }
    Ok(standing)
}

/// Puts the rounds of an arm together, and compares it with others.
fn summed(
    arm: &'static Arm,
    rules: usize,
    scores: &[Score],
    all: &[(&'static Arm, Vec<Score>)],
) -> ArmResult {
    let of = |figure: fn(&Score) -> Option<f64>| scores.iter().filter_map(figure).collect::<Vec<f64>>();
    let some = |values: Vec<f64>| (!values.is_empty()).then(|| median(&values));
    let versus = |name: Option<&str>| {
        let other = all.iter().find(|(other, _)| Some(other.name) == name)?;
        let pairs = scores.iter().zip(&other.1);
        spread(&pairs.map(|(a, b)| a.frames_per_s / b.frames_per_s).collect::<Vec<_>>())
    };
    ArmResult {
        arm: arm.name,
        rules,
        frames_per_s: spread(&of(|score| Some(score.frames_per_s))).unwrap_or_default(),
        of_bridge: versus(Some(arm::BRIDGE)),
        of_null: versus(arm.null_twin),
        of_ovs: versus(Some(arm::OVS)),
        program_ns_per_frame: some(of(|score| score.program_ns_per_frame)),
        host_ns_per_frame: median(&of(|score| Some(score.host_ns_per_frame))),
        ram_bytes: some(of(|score| score.ram_bytes)),
        tcp_bps: spread(&of(|score| score.tcp_bps)),
        tcp_bps_without_offloads: spread(&of(|score| score.tcp_bps_without_offloads)),
        ping_ns: spread(&of(|score| score.ping_ns)),
        scores: scores.to_vec(),
    }
}

/// Median and range; none of nothing.
fn spread(values: &[f64]) -> Option<Spread> {
    let (low, high) = range(values);
    (!values.is_empty()).then(|| Spread { median: median(values), low, high })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_is_compared_round_by_round() {
        let arm = |name: &str| ARMS.iter().find(|arm| arm.name == name).unwrap();
        let score = |&frames_per_s: &f64| Score { frames_per_s, ..Score::default() };
        let scores = |rates: &[f64]| rates.iter().map(score).collect::<Vec<_>>();
        let ours = scores(&[50.0, 200.0, 50.0]);
        // The machine was four times as fast in the second round: the ratio does not notice.
        let all = [
            (arm("native ring"), ours.clone()),
            (arm("null ring"), scores(&[100.0, 400.0, 100.0])),
            (arm(arm::BRIDGE), scores(&[25.0, 100.0, 25.0])),
        ];
        let result = summed(arm("native ring"), 2, &ours, &all);
        let ratio = |spread: Option<Spread>| spread.map(|spread| (spread.median, spread.low, spread.high));
        assert_eq!(ratio(result.of_null), Some((0.5, 0.5, 0.5)));
        assert_eq!(ratio(result.of_bridge), Some((2.0, 2.0, 2.0)));
        assert_eq!((result.of_ovs.is_none(), result.ping_ns.is_none()), (true, true));
        assert_eq!(result.frames_per_s.high, 200.0);
    }

    #[test]
    fn arms_are_chosen_by_the_beginning_of_their_names() {
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|one| (*one).to_owned()).collect();
            chosen(&only).map(|arms| arms.iter().map(|arm| arm.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), ARMS.len());
        assert_eq!(names(&["native x", "kernel"]).unwrap(), ["kernel bridge", "native xdp"]);
        assert!(names(&["snabb"]).unwrap_err().to_string().contains("begins with 'snabb'"));
    }
}
