//! `pathlab bench trial`: how often a trial is right, where the truth is known.
//!
//! **What.** Whole trials ([`crate::trial`]), again and again: of two labs that are built alike, and of one lab in which B changes a knob that
//! nothing feels, where nothing may be found; of two shapers of which B's lets a tenth more through, which must be found.
//!
//! **Why real ones.** That the arithmetic is right is tested with noise that was made up ([`study::trial`]); whether it holds for the noise of a
//! machine, with its moments and its drift, only the machine can say.
//!
//! **Price.** 16 to 80 tests a trial.

use crate::change::LabChange;
use crate::notices::{Notices, down};
use crate::plan::Plan;
use crate::session::Course;
use crate::trial::{Arm, ArmSettings, TrialSetup, TrialSide, carry_out};
use linux::lab::{Lab, Topology};
use linux::sys::process;
use record::trial::{TrialRecord, TrialTest};
use record::{Problem, ProblemKind, Result, RunRecord};
use serde::Serialize;
use study::stats::median;
use study::trial::StoppingRule;

/// What a trial is of: its name, the topologies of both arms, the test, and whether B is better.
struct Question {
    name: &'static str,
    topologies: fn() -> [String; 2],
    test: &'static str,
    is_better: bool,
    /// What B changes in the lab of A; none where each arm has a lab of its own.
    change: Option<&'static str>,
}

const QUESTIONS: [Question; 5] = [
    Question {
        name: "round trips, alike",
        topologies: || ["bridge", "bridge"].map(builtin),
        test: "tcp-rr",
        is_better: false,
        change: None,
    },
    Question {
        name: "small datagrams, alike",
        topologies: || ["bridge", "bridge"].map(builtin),
        test: "udp-stream size 64",
        is_better: false,
        change: None,
    },
    Question {
        name: "a shaper, alike",
        topologies: || [100, 100].map(shaped),
        test: "udp-stream size 1472",
        is_better: false,
        change: None,
    },
    Question {
        name: "a shaper, a tenth more",
        topologies: || [100, 110].map(shaped),
        test: "udp-stream size 1472",
        is_better: true,
        change: None,
    },
    Question {
        name: "a knob that nothing feels",
        topologies: || ["pair", "pair"].map(builtin),
        test: "tcp-rr",
        is_better: false,
        // Hops that a packet may have: there are none on the way.
        change: Some("b/net.ipv4.ip_default_ttl=65"),
    },
];

fn builtin(name: &str) -> String {
    Topology::builtin(name).expect("it is built in").to_owned()
}

/// The bottleneck with so many Mbit/s.
fn shaped(mbit: u32) -> String {
    builtin("bottleneck").replace("rate 100mbit", &format!("rate {mbit}mbit"))
}

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct TrialsWanted {
    /// Trials of each question.
    pub trials: u32,
    /// The most pairs of a trial.
    pub pairs: u16,
    /// Milliseconds of each test.
    pub milliseconds: u64,
    /// Differences of less are none.
    pub same_within: f64,
    /// Seed of the first trial; each has its own.
    pub seed: u64,
    /// The questions whose names begin so.
    pub only: String,
}

/// What was found, and where.
#[derive(Debug, Serialize)]
pub struct TrialBenchDocument {
    /// `pathlab/bench-trial/1`.
    pub schema: &'static str,
    /// Trials of each question.
    pub trials: u32,
    /// The most pairs of a trial.
    pub pairs: u16,
    /// Milliseconds of each test.
    pub milliseconds: u64,
    /// Differences of less were none.
    pub same_within: f64,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu_model: String,
    /// How many of these.
    pub cpus: u32,
    /// By question.
    pub results: Vec<TrialsResult>,
}

/// What trials of one question said.
#[derive(Debug, Default, Serialize)]
pub struct TrialsResult {
    /// The question.
    pub name: &'static str,
    /// The test.
    pub test: &'static str,
    /// B is better.
    pub is_better: bool,
    /// Trials that said better.
    pub better: u32,
    /// Trials that said worse.
    pub worse: u32,
    /// Trials that said the same.
    pub same: u32,
    /// Trials that could not tell.
    pub unknown: u32,
    /// Intervals that hold the true effect, in percent; none where no trial has one.
    pub held_percent: Option<f64>,
    /// Pairs of a trial, median; none without any trial.
    pub pairs: Option<f64>,
    /// The effect, median; none where no trial has one.
    pub effect: Option<f64>,
}

/// Runs the benchmark.
///
/// # Errors
/// A host problem when a lab cannot be built or a trial ends early.
pub fn run(wanted: &TrialsWanted, notices: &dyn Notices) -> Result<TrialBenchDocument> {
    let host = linux::observe::host_facts();
    let asked: Vec<&Question> = QUESTIONS.iter().filter(|one| one.name.starts_with(&wanted.only)).collect();
    if asked.is_empty() {
        let names = QUESTIONS.map(|question| question.name).join("; ");
        return Err(Problem::input(format!("no question begins with '{}'", wanted.only)).help(names));
    }
    let results = asked.into_iter().map(|question| ask(question, wanted, notices)).collect::<Result<_>>()?;
    Ok(TrialBenchDocument {
        schema: "pathlab/bench-trial/1",
        trials: wanted.trials,
        pairs: wanted.pairs,
        milliseconds: wanted.milliseconds,
        same_within: wanted.same_within,
        kernel: host.kernel,
        cpu_model: host.cpu_model,
        cpus: host.cpus,
        results,
    })
}

fn ask(question: &Question, wanted: &TrialsWanted, notices: &dyn Notices) -> Result<TrialsResult> {
    let [a, b] = (question.topologies)();
    let labs = [lab(&a, "a")?, lab(&b, "b")?];
    let journals = linux::undo::journals()?;
    let changes = question.change.map(LabChange::parse).transpose()?.into_iter().collect::<Vec<_>>();
    let text = format!("topology pair\ntest {} duration {}ms\n", question.test, wanted.milliseconds);
    let plan = Plan::parse(&text, "bench trial")?;
    let trials = (0..wanted.trials).map(|number| {
        notices.part(
            &format!("{} {number}/{}", question.name, wanted.trials),
            number.into(),
            wanted.trials.into(),
        );
        let sides = [&labs[0], &labs[usize::from(changes.is_empty())]];
        let mut arms = ArmSettings::new(&journals, [(sides[0], &[]), (sides[1], &changes[..])], false);
        let seed = wanted.seed + u64::from(number);
        once(sides, &plan, wanted, (seed, &mut |side| arms.enter(side)), &Quiet(notices))
    });
    let trials: Result<Vec<TrialTest>> = trials.collect();
    labs.into_iter().for_each(|lab| down(lab, notices));
    Ok(count(question, &trials?))
}

fn lab(text: &str, side: &str) -> Result<Lab> {
    super::lab(&Topology::parse(text, "bench trial")?, &format!("trial-{side}"))
}

/// One trial, whose records nobody needs.
fn once(
    labs: [&Lab; 2],
    plan: &Plan,
    wanted: &TrialsWanted,
    (seed, enter): (u64, &mut dyn FnMut(TrialSide) -> Result<()>),
    notices: &dyn Notices,
) -> Result<TrialTest> {
    let folder = tempfile::tempdir().map_err(|error| {
        Problem::host(format!("cannot make a folder for records: {error}")).remedy(&error)
    })?;
    let arm = |lab| -> Result<Arm<'_>> {
        let course = Course::begin(lab, plan, &RunRecord::default(), None, folder.path())?;
        Ok(Arm { title: String::new(), course, plan: plan.clone() })
    };
    let rule = StoppingRule::new(wanted.pairs.into(), wanted.same_within);
    let setup = TrialSetup { rule, figure: None, seed, enter };
    let [a, b] = labs;
    let ended = carry_out([arm(a)?, arm(b)?], setup, notices)?;
    let TrialRecord { mut tests, .. } = ended.trial;
    match ended.stopped {
        // A trial whose pairs could not be used could not tell; it does not end the others.
        Some(problem) if problem.kind == ProblemKind::Measured && !process::interrupted() => {
            notices.warn(&problem);
            Ok(tests.remove(0))
        }
        stopped => stopped.map_or_else(|| Ok(tests.remove(0)), Err),
    }
}

/// Notices of a trial among many: its parts are not told.
struct Quiet<'a>(&'a dyn Notices);

impl Notices for Quiet<'_> {
    fn note(&self, line: &str) {
        self.0.note(line);
    }

    fn warn(&self, problem: &Problem) {
        self.0.warn(problem);
    }

    fn part(&self, _: &str, _: u64, _: u64) {}
}

fn count(question: &Question, trials: &[TrialTest]) -> TrialsResult {
    let of = |outcome: &str| trials.iter().filter(|test| test.outcome() == outcome).count() as u32;
    let truth = if question.is_better { 1.1 } else { 1.0 };
    let held = trials.iter().filter(|test| holds(test, truth)).count();
    let effects: Vec<f64> = trials.iter().filter_map(|test| Some(test.effect?.value)).collect();
    let pairs: Vec<f64> = trials.iter().map(|test| test.pairs.len() as f64).collect();
    TrialsResult {
        name: question.name,
        test: question.test,
        is_better: question.is_better,
        better: of("better"),
        worse: of("worse"),
        same: of("same"),
        unknown: of("unknown"),
        held_percent: (!effects.is_empty()).then(|| 100.0 * held as f64 / effects.len() as f64),
        pairs: median(&pairs),
        effect: median(&effects),
    }
}

/// Whether the interval of a trial holds this effect.
fn holds(test: &TrialTest, effect: f64) -> bool {
    let bounds = test.effect.map(|found| (found.low.unwrap_or(0.0), found.high.unwrap_or(f64::INFINITY)));
    bounds.is_some_and(|(low, high)| (low..=high).contains(&effect))
}
