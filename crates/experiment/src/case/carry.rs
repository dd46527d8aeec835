//! A case carried out: its two arms in pairs, and where the second is a bug candidate, each of its settings alone.
//!
//! **What.** The labs of the arms are built (one, when both have the same topology; none between two hosts), the settings of an arm are made before each of its
//! measurements and put back after it ([`Changed`]), and the trial goes on until what was expected is shown, or the contrary.
//!
//! **Price.** A setting that is tried alone is a trial of its own, as long as the first.

use super::needs::NeedsLab;
use super::{Case, between};
use crate::change::{Changed, LabChange, Settings, Tunable};
use crate::hosts::HostPair;
use crate::notices::{Notices, down};
use crate::plan::Plan;
use crate::process::now;
use crate::programs;
use crate::session::Course;
use crate::testbed::UnderTest;
use crate::trial::{self, Arm, ArmSettings, TrialEnd, TrialSetup, TrialSide};
use linux::journal::Journals;
use linux::lab::{Lab, Lifetime, Topology};
use record::case::{
    CaseAbout, CaseHosts, CaseResult, CaseSuspect, CaseVerdict, CasesRecord, Expectation, SCHEMA,
};
use record::trial::TrialRecord;
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
    /// The other host of cases between two hosts; none for cases in labs.
    pub to: Option<&'a str>,
    /// Traffic goes from that host to this one.
    pub reverse: bool,
    /// Hosts between the two that are to observe.
    pub via: &'a [String],
    /// Settings of the two hosts may take a link down for a moment; those of labs always may.
    pub may_flap: bool,
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
    let to =
        setup.to.map(|name| between::hosts(name, setup.reverse, setup.via, setup.notices)).transpose()?;
    let lacking = lacking(cases, to.as_ref(), setup)?;
    let host = linux::observe::host_facts();
    let (kernel, label) = (host.kernel.clone(), setup.label.map(str::to_owned));
    let mut record = CasesRecord {
        schema: SCHEMA.into(),
        begun: now(),
        kernel,
        label,
        host,
        to,
        ..CasesRecord::default()
    };
    let mut stopped = None;
    for (case, cannot) in cases.iter().zip(lacking) {
        let measured = || measured(case, record.to.as_ref(), setup);
        let done = cannot.map_or_else(measured, |cannot| Ok((not_run(case, cannot), None)));
        let (result, problem) =
            done.map_or_else(|problem| (None, Some(problem)), |(one, end)| (Some(one), end));
        record.cases.extend(result);
        stopped = problem.map(|problem| problem.at(format!("case {}", case.name)));
        if stopped.is_some() {
            break;
        }
    }
    record.stopped = stopped.as_ref().map(ToString::to_string);
    record.ended = now();
    Ok((record, stopped))
}

/// What each case needs and this place has not.
fn lacking(cases: &[Case], to: Option<&CaseHosts>, setup: &CaseSetup<'_>) -> Result<Vec<Option<String>>> {
    if let Some(hosts) = to {
        return Ok(cases.iter().map(|case| between::lacking(&case.needs, hosts)).collect());
    }
    // Gone before anything is measured: what it is made of may be what the labs of the cases want.
    let place = NeedsLab::build()?;
    let lacking: Result<Vec<_>> = cases.iter().map(|case| place.lacking(&case.needs)).collect();
    place.leave(setup.notices);
    lacking
}

/// What came of a case, and why none can follow although it was measured: a record that could not be written, or what ended its bisection.
type Measured = (CaseResult, Option<Problem>);

fn measured(case: &Case, to: Option<&CaseHosts>, setup: &CaseSetup<'_>) -> Result<Measured> {
    let spec = &case.plans[0].tests[0].spec;
    let pair = |hosts: &CaseHosts| HostPair::of(&hosts.name, spec, hosts.reverse).through(&hosts.via);
    let pair = to.map(|hosts| Ok::<_, Problem>((hosts, pair(hosts)?))).transpose()?;
    let arms = case.arms(pair.as_ref().map(|(_, pair)| pair));
    let prepared = match pair {
        None => build(case).map(|labs| (case.clone(), Place::Labs(labs))),
        Some((hosts, pair)) => between::at_hosts(case, &pair, hosts).map(|case| (case, Place::Hosts(pair))),
    };
    let (case, place) = match prepared {
        Ok(prepared) => prepared,
        Err(problem) if is_cannot(&problem, to.is_some()) => {
            return Ok((not_run(case, problem.to_string()), None));
        }
        Err(problem) => return Err(problem),
    };
    let bench = Bench { case: &case, arms, setup, journals: linux::undo::journals()?, place };
    let result = bench.result();
    bench.place.leave(setup.notices);
    result
}

/// True for what this host cannot, or two hosts cannot or do not let us, and not for an interrupt.
fn is_cannot(problem: &Problem, is_between: bool) -> bool {
    (problem.kind == ProblemKind::Host || is_between) && !linux::sys::process::interrupted()
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

/// Where the arms of a case are measured.
enum Place {
    Labs(Vec<Lab>),
    Hosts(HostPair),
}

impl Place {
    fn of_arm(&self, side: TrialSide) -> UnderTest<'_> {
        match self {
            Place::Labs(labs) => UnderTest::Lab(labs.get(side as usize).unwrap_or(&labs[0])),
            Place::Hosts(pair) => UnderTest::Hosts(pair),
        }
    }

    fn is_between(&self) -> bool {
        matches!(self, Place::Hosts(_))
    }

    fn leave(self, notices: &dyn Notices) {
        if let Place::Labs(labs) = self {
            labs.into_iter().for_each(|lab| down(lab, notices));
        }
    }
}

/// A case where it is measured.
struct Bench<'a> {
    case: &'a Case,
    /// What its arms are, for a comparison with another run.
    arms: Vec<String>,
    setup: &'a CaseSetup<'a>,
    journals: Journals,
    place: Place,
}

/// One arm of a trial of a case.
struct CaseArm<'a> {
    side: TrialSide,
    title: String,
    changes: Vec<LabChange>,
    plan: &'a Plan,
}

impl Bench<'_> {
    fn result(&self) -> Result<Measured> {
        let (a, b) = (self.arm_a(), self.arm_b());
        for arm in [&a, &b] {
            // Refused before anything is measured.
            let made = self.make(arm.side, &arm.changes);
            match made.and_then(|made| made.put_back(self.tunable(arm.side))) {
                Err(problem) if is_cannot(&problem, self.place.is_between()) => {
                    return Ok((not_run(self.case, problem.to_string()), None));
                }
                made => made?,
            }
        }
        let (trial, mut ended) = self.trial([a, b], self.case.expected)?;
        let (verdict, why) = verdict(&trial, self.case.expected);
        let mut result = CaseResult {
            about: CaseAbout { arms: self.arms.clone(), ..self.case.about(None) },
            verdict,
            why,
            trial: Some(trial),
            ..CaseResult::default()
        };
        if self.is_to_bisect(verdict) && ended.is_none() {
            match self.bisect() {
                Ok(alone) => result.alone = alone,
                Err(problem) => ended = Some(problem),
            }
        }
        Ok((result, ended))
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
        let (trial, unwritten) = self.trial([self.arm_a(), with], expected)?;
        unwritten.map_or(Ok(()), Err)?;
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
        Changed::make(&self.journals, self.tunable(side), changes, self.may_flap())
    }

    fn tunable(&self, side: TrialSide) -> &dyn Tunable {
        self.place.of_arm(side).tunable()
    }

    fn may_flap(&self) -> bool {
        self.setup.may_flap || !self.place.is_between()
    }

    /// A trial of two arms until this is shown, or the contrary; and why its records could not be written.
    fn trial(&self, arms: [CaseArm<'_>; 2], expected: Expectation) -> Result<(TrialRecord, Option<Problem>)> {
        let settings: [Settings<'_>; 2] =
            arms.each_ref().map(|arm| (self.tunable(arm.side), &arm.changes[..]));
        let mut settings = ArmSettings::new(&self.journals, settings, self.may_flap());
        let mut enter = |side| settings.enter(side);
        let rule = StoppingRule::new(self.setup.pairs, expected.bound()).until(expected);
        let (figure, seed) = (self.case.figure, self.setup.seed);
        let both = [self.arm(&arms[0])?, self.arm(&arms[1])?];
        let setup = TrialSetup { rule, figure, seed, enter: &mut enter };
        let ended = trial::carry_out(both, setup, self.setup.notices);
        let back = settings.leave();
        let ended = ended?;
        back?;
        // One that ended early because its pairs could not be used is one that cannot tell.
        let TrialEnd { trial, stopped, unusable, .. } = ended;
        match stopped.filter(|_| !unusable) {
            Some(problem) if trial.stopped.is_some() => Err(problem),
            unwritten => Ok((trial, unwritten)),
        }
    }

    fn arm(&self, arm: &CaseArm<'_>) -> Result<Arm<'_>> {
        let way = if self.setup.reverse { "from" } else { "to" };
        let topology = self.setup.to.map_or(arm.plan.topology.clone(), |host| format!("{way} {host}"));
        let about = RunRecord {
            label: Some(arm.title.clone()),
            plan_name: self.case.name.clone(),
            topology_name: topology,
            plan: self.case.texts[arm.side as usize].trim().to_owned(),
            seed: self.setup.seed,
            ..RunRecord::default()
        };
        let testbed = self.place.of_arm(arm.side).testbed(arm.plan)?;
        let course = Course::on(testbed, arm.plan, &about, None, self.setup.dir)?;
        Ok(Arm { title: arm.title.clone(), course, plan: arm.plan.clone() })
    }
}
