//! A case carried out: its two arms in pairs, and where the second is a bug candidate, each of its settings alone.
//!
//! **What.** The labs of the arms are built (one, when both have the same topology), the settings of an arm are made before each of its
//! measurements and put back after it ([`Changed`]), and the trial goes on until what was expected is shown, or the contrary.
//!
//! **Price.** A setting that is tried alone is a trial of its own, as long as the first.

use super::Case;
use super::needs::NeedsLab;
use crate::change::{Changed, LabChange, Settings};
use crate::notices::{Notices, down};
use crate::plan::Plan;
use crate::process::now;
use crate::programs;
use crate::session::Course;
use crate::trial::{self, Arm, ArmSettings, TrialEnd, TrialSetup, TrialSide};
use linux::journal::Journals;
use linux::lab::{Lab, Lifetime, Topology};
use record::case::{CaseResult, CaseSuspect, CaseVerdict, CasesRecord, Expectation, SCHEMA};
use record::{Problem, ProblemKind, Result, RunRecord};
use std::path::Path;
use study::case::{harmful, verdict};
use study::trial::StoppingRule;

/// How cases are run.
pub struct CaseSetup<'a> {
    /// The most pairs of each trial.
    pub pairs: usize,
    /// Seed of the order within the pairs.
    pub seed: u64,
    /// Try the settings of a bug candidate alone.
    pub bisect: bool,
    /// The user's words for the run.
    pub label: Option<&'a str>,
    /// Where records are kept.
    pub dir: &'a Path,
    /// What is said meanwhile.
    pub notices: &'a dyn Notices,
}

/// Runs cases in turn. What ended it early is in the record and beside it.
///
/// # Errors
/// Host: nothing could be begun.
pub fn run(cases: &[Case], setup: &CaseSetup<'_>) -> Result<(CasesRecord, Option<Problem>)> {
    // Gone before anything is measured: what it is made of may be what the labs of the cases want.
    let place = NeedsLab::build()?;
    let lacking: Result<Vec<_>> = cases.iter().map(|case| place.lacking(&case.needs)).collect();
    place.leave(setup.notices);
    let lacking = lacking?;
    let host = linux::observe::host_facts();
    let (kernel, label) = (host.kernel.clone(), setup.label.map(str::to_owned));
    let mut record =
        CasesRecord { schema: SCHEMA.into(), begun: now(), kernel, label, host, ..CasesRecord::default() };
    let mut stopped = None;
    for (case, cannot) in cases.iter().zip(lacking) {
        match cannot.map_or_else(|| measured(case, setup), |cannot| Ok(not_run(case, cannot))) {
            Ok(result) => record.cases.push(result),
            Err(problem) => {
                stopped = Some(problem.at(format!("case {}", case.name)));
                break;
            }
        }
    }
    record.stopped = stopped.as_ref().map(ToString::to_string);
    record.ended = now();
    Ok((record, stopped))
}

fn measured(case: &Case, setup: &CaseSetup<'_>) -> Result<CaseResult> {
    let labs = match build(case) {
        Ok(labs) => labs,
        Err(problem) if is_of_host(&problem) => return Ok(not_run(case, problem.to_string())),
        Err(problem) => return Err(problem),
    };
    let bench = Bench { case, setup, journals: linux::undo::journals()?, labs };
    let result = bench.result();
    bench.labs.into_iter().for_each(|lab| down(lab, setup.notices));
    result
}

/// True for what this host cannot, and not for an interrupt.
fn is_of_host(problem: &Problem) -> bool {
    problem.kind == ProblemKind::Host && !linux::sys::process::interrupted()
}

fn not_run(case: &Case, cannot: String) -> CaseResult {
    let (about, verdict) = (case.about(Some(cannot.clone())), CaseVerdict::CannotRun);
    CaseResult { about, verdict, why: cannot, ..CaseResult::default() }
}

/// The labs of the two arms, one when they have the same topology. One that cannot be built leaves none.
fn build(case: &Case) -> Result<Vec<Lab>> {
    let [a, b] = [&case.plans[0].topology, &case.plans[1].topology];
    let names = if a == b { vec![a] } else { vec![a, b] };
    let build = |(number, name): (usize, &String)| {
        let lab = format!("case-{}-{number}", std::process::id());
        programs::up(&Topology::load(name)?, &lab, Lifetime::Ephemeral)
    };
    names.into_iter().enumerate().map(build).collect()
}

/// A case in its labs.
struct Bench<'a> {
    case: &'a Case,
    setup: &'a CaseSetup<'a>,
    journals: Journals,
    labs: Vec<Lab>,
}

/// One arm of a trial of a case.
struct CaseArm<'a> {
    side: TrialSide,
    title: String,
    changes: Vec<LabChange>,
    plan: &'a Plan,
}

impl Bench<'_> {
    fn result(&self) -> Result<CaseResult> {
        let (a, b) = (self.arm_a(), self.arm_b());
        for arm in [&a, &b] {
            // Refused before anything is measured.
            match self.make(arm.side, &arm.changes).and_then(|made| made.put_back(self.lab(arm.side))) {
                Err(problem) if is_of_host(&problem) => return Ok(not_run(self.case, problem.to_string())),
                made => made?,
            }
        }
        let trial = self.trial([a, b], self.case.expected)?.trial;
        let (verdict, why) = verdict(&trial, self.case.expected);
        let mut result = CaseResult {
            about: self.case.about(None),
            verdict,
            why,
            trial: Some(trial),
            ..CaseResult::default()
        };
        if self.is_to_bisect(verdict) {
            result.alone = self.bisect()?;
        }
        Ok(result)
    }

    fn is_to_bisect(&self, verdict: CaseVerdict) -> bool {
        self.setup.bisect && verdict == CaseVerdict::BugCandidate && self.case.only_b.len() > 1
    }

    /// Each setting of B on top of A.
    fn bisect(&self) -> Result<Vec<CaseSuspect>> {
        self.case.only_b.iter().map(|change| self.suspect(change)).collect()
    }

    fn suspect(&self, change: &LabChange) -> Result<CaseSuspect> {
        let expected = harmful(self.case.expected);
        let mut with = self.arm_a();
        with.side = TrialSide::B;
        with.changes.push(change.clone());
        with.title = format!("{}, A with {}", self.case.name, change.text);
        let trial = self.trial([self.arm_a(), with], expected)?.trial;
        let makes_it = verdict(&trial, expected).0 == CaseVerdict::BugCandidate;
        Ok(CaseSuspect { change: change.text.clone(), makes_it, trial })
    }

    fn arm_a(&self) -> CaseArm<'_> {
        let changes = [&self.case.both[..], &self.case.only_a].concat();
        let title = format!("{}, A", self.case.name);
        CaseArm { side: TrialSide::A, title, changes, plan: &self.case.plans[0] }
    }

    fn arm_b(&self) -> CaseArm<'_> {
        let changes = [&self.case.both[..], &self.case.only_b].concat();
        let title = format!("{}, B", self.case.name);
        CaseArm { side: TrialSide::B, title, changes, plan: &self.case.plans[1] }
    }

    fn make(&self, side: TrialSide, changes: &[LabChange]) -> Result<Changed> {
        Changed::make(&self.journals, self.lab(side), changes, true)
    }

    fn lab(&self, side: TrialSide) -> &Lab {
        self.labs.get(side as usize).unwrap_or(&self.labs[0])
    }

    /// A trial of two arms until this is shown, or the contrary.
    fn trial(&self, arms: [CaseArm<'_>; 2], expected: Expectation) -> Result<TrialEnd> {
        let settings: [Settings<'_>; 2] =
            arms.each_ref().map(|arm| (self.lab(arm.side) as _, &arm.changes[..]));
        let mut settings = ArmSettings::new(&self.journals, settings, true);
        let mut enter = |side| settings.enter(side);
        let rule = StoppingRule::new(self.setup.pairs, expected.bound()).until(expected);
        let (figure, seed) = (self.case.figure, self.setup.seed);
        let both = [self.arm(&arms[0])?, self.arm(&arms[1])?];
        let setup = TrialSetup { rule, figure, seed, enter: &mut enter };
        let ended = trial::carry_out(both, setup, self.setup.notices);
        let back = settings.leave();
        let ended = ended?;
        back?;
        self.told(ended)
    }

    /// What came of a trial: one that ended early because its pairs could not be used is one that cannot tell.
    fn told(&self, ended: TrialEnd) -> Result<TrialEnd> {
        ended.closed.iter().try_for_each(|closed| closed.kept.clone())?;
        match &ended.stopped {
            Some(problem) if !ended.unusable => Err(problem.clone()),
            _ => Ok(ended),
        }
    }

    fn arm(&self, arm: &CaseArm<'_>) -> Result<Arm<'_>> {
        let about = RunRecord {
            label: Some(arm.title.clone()),
            plan_name: self.case.name.clone(),
            topology_name: arm.plan.topology.clone(),
            plan: self.case.texts[arm.side as usize].trim().to_owned(),
            seed: self.setup.seed,
            ..RunRecord::default()
        };
        let course = Course::begin(self.lab(arm.side), arm.plan, &about, None, self.setup.dir)?;
        Ok(Arm { title: arm.title.clone(), course, plan: arm.plan.clone() })
    }
}
