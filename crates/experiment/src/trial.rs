//! A trial carried out: two arms measured in pairs until each test has its verdict.
//!
//! **What.** Each pair measures every test of the plan once in A and once in B, in an order that is drawn for the pair, and is judged by
//! [`study::trial`]. A pair of which a test could not be run or is not valid is passed over, and measured again.
//!
//! **Why in pairs.** What changes on the machine in the minutes of a trial meets both arms of a pair alike, and which of them it meets
//! first is chance.
//!
//! **Price.** A record for each arm with every test in full, as any run has.

use crate::change::{Changed, Settings};
use crate::notices::Notices;
use crate::plan::{Plan, Planned};
use crate::process::now;
use crate::session::{Closed, Course};
use linux::journal::Journals;
use record::trial::{TrialArm, TrialPair, TrialRecord, TrialTest};
use record::{Problem, Result, TestRecord};
use study::stats::{CONFIDENCE, SplitMix64};
use study::trial::StoppingRule;
use study::trial::aspects::{self, Observed};
use study::trial::figures::{Figure, usual};

/// One side of a trial.
pub struct Arm<'lab> {
    /// What it is.
    pub title: String,
    /// Where it is measured.
    pub course: Course<'lab>,
    /// What is measured: as many tests as the other arm has, each compared with the one in its place.
    pub plan: Plan,
}

/// Which of the two arms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialSide {
    /// What is compared with.
    A,
    /// What is tried.
    B,
}

/// What knobs of the two arms are set to, each while its arm is measured.
pub struct ArmSettings<'a> {
    journals: &'a Journals,
    arms: [Settings<'a>; 2],
    may_flap: bool,
    held: Option<(TrialSide, Changed)>,
}

impl<'a> ArmSettings<'a> {
    /// Nothing is set yet.
    pub fn new(journals: &'a Journals, arms: [Settings<'a>; 2], may_flap: bool) -> Self {
        ArmSettings { journals, arms, may_flap, held: None }
    }

    /// Looks whether there is what either arm wants to set, before anything is measured.
    ///
    /// # Errors
    /// Input: no such node, interface or knob, or a value that it cannot have.
    pub fn look(&self) -> Result<()> {
        let all =
            self.arms.iter().flat_map(|(place, changes)| changes.iter().map(move |change| (place, change)));
        all.into_iter().try_for_each(|(place, change)| place.compare(change).map(drop))
    }

    /// Puts back what is set for the other arm, and sets what this one wants; what is so already stays.
    ///
    /// # Errors
    /// As [`Changed::make`] and [`Changed::put_back`].
    pub fn enter(&mut self, side: TrialSide) -> Result<()> {
        if self.held.as_ref().is_some_and(|(held, _)| *held == side) {
            return Ok(());
        }
        self.leave()?;
        let (place, changes) = self.arms[side as usize];
        self.held = Some((side, Changed::make(self.journals, place, changes, self.may_flap)?));
        Ok(())
    }

    /// Puts back what is set.
    ///
    /// # Errors
    /// As [`Changed::put_back`].
    pub fn leave(&mut self) -> Result<()> {
        let put_back = |(side, changed): (TrialSide, Changed)| changed.put_back(self.arms[side as usize].0);
        self.held.take().map_or(Ok(()), put_back)
    }
}

/// How a trial is made.
pub struct TrialSetup<'a> {
    /// When it is judged.
    pub rule: StoppingRule,
    /// The figure of every test; none for the one that each is for.
    pub figure: Option<&'static Figure>,
    /// Seed of the order.
    pub seed: u64,
    /// Makes the machine what the arm needs, before it is measured.
    pub enter: &'a mut dyn FnMut(TrialSide) -> Result<()>,
}

/// The most that may be measured for nothing, as a multiple of the pairs.
const MOST_PASSED_OVER: u64 = 2;

/// What a trial found, the records of its arms (A, B), and what ended it before its verdict.
pub struct TrialEnd {
    /// The trial.
    pub trial: TrialRecord,
    /// A and B.
    pub closed: [Closed; 2],
    /// What ended it early, else why a record of it could not be written: no other trial can follow. The trial itself says only the former.
    pub stopped: Option<Problem>,
    /// That was no more than too many pairs that could not be used: nothing is broken, and another trial can follow.
    pub unusable: bool,
}

/// Measures pairs until every test has a verdict.
///
/// # Errors
/// Bad input when the tests of the two plans are not alike in number, or have no such figure.
pub fn carry_out(
    mut arms: [Arm<'_>; 2],
    mut setup: TrialSetup<'_>,
    notices: &dyn Notices,
) -> Result<TrialEnd> {
    let mut trial = begin(&arms, &setup)?;
    let mut seen = vec![vec![]; trial.tests.len()];
    let measured = measure_all(&mut arms, (&mut trial, &mut seen), &mut setup, notices);
    let unusable = matches!(measured, Ok(Some(_)));
    let stopped = measured.unwrap_or_else(Some);
    let back = (setup.enter)(TrialSide::A).err();
    let unusable = unusable && back.is_none();
    let stopped = stopped.or(back);
    for (test, pairs) in trial.tests.iter_mut().zip(&seen) {
        setup.rule.conclude(test);
        aspects::explain(test, pairs);
    }
    trial.stopped = stopped.as_ref().map(ToString::to_string);
    trial.ended = now();
    let closed = arms.map(|arm| arm.course.close(stopped.as_ref()));
    // What is in memory is told all the same.
    let unwritten = closed.iter().find_map(|closed| closed.kept.as_ref().err()).cloned();
    Ok(match unwritten.filter(|_| unusable || stopped.is_none()) {
        Some(problem) => TrialEnd { trial, closed, stopped: Some(problem), unusable: false },
        None => TrialEnd { trial, closed, stopped, unusable },
    })
}

/// The record of a trial of which nothing is measured.
fn begin(arms: &[Arm<'_>; 2], setup: &TrialSetup<'_>) -> Result<TrialRecord> {
    let [a, b] = arms.each_ref().map(Arm::described);
    Ok(TrialRecord {
        schema: record::trial::SCHEMA.into(),
        begun: now(),
        seed: setup.seed,
        a,
        b,
        looks: setup.rule.looks.iter().map(|look| *look as u64).collect(),
        confidence: CONFIDENCE,
        same_within: setup.rule.same_within,
        tests: tests_of(arms, setup.figure)?,
        ..TrialRecord::default()
    })
}

impl Arm<'_> {
    fn described(&self) -> TrialArm {
        TrialArm { title: self.title.clone(), run: self.course.id().to_owned() }
    }

    fn length_ms(&self) -> u64 {
        self.plan.tests.iter().map(|test| load::length_ms(&test.spec)).sum()
    }
}

/// The tests that are compared, nothing measured.
fn tests_of(arms: &[Arm<'_>; 2], figure: Option<&'static Figure>) -> Result<Vec<TrialTest>> {
    let [a, b] = arms.each_ref().map(|arm| &arm.plan.tests);
    if a.len() != b.len() {
        let what = format!("A has {} and B has {}", tests(a.len()), tests(b.len()));
        return Err(
            Problem::input(what).help("give both as many: each is compared with the one in its place")
        );
    }
    a.iter().zip(b).map(|(a, b)| compared(a, b, figure.unwrap_or_else(|| usual(&a.spec)))).collect()
}

/// The figure of each test of a plan: this one, or that which each is for.
///
/// # Errors
/// Input: a test has no such figure.
pub fn figures_of(plan: &Plan, figure: Option<&'static Figure>) -> Result<Vec<&'static Figure>> {
    let of = |test: &Planned| {
        let figure = figure.unwrap_or_else(|| usual(&test.spec));
        compared(test, test, figure).map(|_| figure)
    };
    plan.tests.iter().map(of).collect()
}

/// A test of A and the one of B that it is compared with.
fn compared(a: &Planned, b: &Planned, figure: &Figure) -> Result<TrialTest> {
    if let Some(test) = [a, b].into_iter().find(|test| !(figure.fits)(test.spec.kind)) {
        let what = format!("the test '{}' has no {}", test.name, figure.name);
        return Err(Problem::input(what).help("choose another --figure, or leave the test out with --only"));
    }
    let (figure, higher_is_better) = (figure.name.into(), figure.higher_is_better);
    Ok(TrialTest { name: both_names(a, b), figure, higher_is_better, ..TrialTest::default() })
}

fn both_names(a: &Planned, b: &Planned) -> String {
    if a.name == b.name { a.name.clone() } else { format!("{} / {}", a.name, b.name) }
}

fn tests(count: usize) -> String {
    record::unit::many(count as u64, "test")
}

/// What was observed in each pair of a test beside its figure.
type Seen = Vec<[Observed; 2]>;

/// Until no test wants another pair, or too many pairs of one could not be used, which is told.
fn measure_all(
    arms: &mut [Arm<'_>; 2],
    (trial, seen): (&mut TrialRecord, &mut [Seen]),
    setup: &mut TrialSetup<'_>,
    notices: &dyn Notices,
) -> Result<Option<Problem>> {
    let mut generator = SplitMix64::new(setup.seed);
    let most = *setup.rule.looks.last().expect("a rule has a look") as u64;
    let length: u64 = arms.iter().map(Arm::length_ms).sum();
    for round in 1.. {
        let Some(test) = trial.tests.iter().find(|test| test.verdict.is_none()) else { break };
        if test.passed_over > MOST_PASSED_OVER * most {
            return Ok(Some(too_many_passed_over(test)));
        }
        let mut order = [TrialSide::A, TrialSide::B];
        generator.shuffle(&mut order);
        let line = format!("pair {round} of at most {most}");
        notices.part(&line, (u64::from(round) - 1) * length, most * length);
        measure_pair(arms, (trial, seen), setup, Turn { round, order, notices })?;
    }
    Ok(None)
}

/// When and in which order a pair is measured.
struct Turn<'a> {
    round: u32,
    order: [TrialSide; 2],
    notices: &'a dyn Notices,
}

fn measure_pair(
    arms: &mut [Arm<'_>; 2],
    (trial, seen): (&mut TrialRecord, &mut [Seen]),
    setup: &mut TrialSetup<'_>,
    turn: Turn<'_>,
) -> Result<()> {
    let mut measured = [vec![], vec![]];
    for side in turn.order {
        (setup.enter)(side)?;
        measured[side as usize] =
            measure_arm(&mut arms[side as usize], &trial.tests, turn.round, turn.notices)?;
    }
    let [a, b] = measured;
    let b_first = turn.order[0] == TrialSide::B;
    for ((place, a), b) in a.into_iter().enumerate().zip(b) {
        let test = &mut trial.tests[place];
        match a.zip(b) {
            _ if test.verdict.is_some() => {}
            Some(((a, seen_a), (b, seen_b))) => {
                test.pairs.push(TrialPair { a, b, b_first });
                seen[place].push([seen_a, seen_b]);
                setup.rule.conclude(test);
            }
            None => test.passed_over += 1,
        }
    }
    Ok(())
}

/// What an arm shows: the figure of each test that has no verdict yet, if it could be run and is valid, and what was observed beside it.
fn measure_arm(
    arm: &mut Arm<'_>,
    tests: &[TrialTest],
    round: u32,
    notices: &dyn Notices,
) -> Result<Vec<Option<(f64, Observed)>>> {
    let mut all = vec![None; tests.len()];
    for (place, test) in tests.iter().enumerate().filter(|(_, test)| test.verdict.is_none()) {
        let order = (round - 1) * tests.len() as u32 + place as u32 + 1;
        let measured = arm.course.measure(&arm.plan, place, round, order, notices)?;
        let figure = figure_of(measured, &test.figure);
        all[place] = figure.zip(measured).map(|(figure, measured)| (figure, Observed::of(measured)));
    }
    Ok(all)
}

/// The figure of a test that was measured and is valid.
pub(crate) fn figure_of(measured: Option<&TestRecord>, name: &str) -> Option<f64> {
    let valid = measured.filter(|test| test.invalid.is_empty());
    valid.zip(study::trial::figures::named(name)).and_then(|(test, figure)| (figure.of)(test))
}

fn too_many_passed_over(test: &TrialTest) -> Problem {
    let pairs = record::unit::many(test.passed_over, "pair");
    Problem::measured(format!("{}: {pairs} could not be used: no such figure, or not valid", test.name))
        .help("look at the findings of the two records ('pathlab show'), or choose another --figure")
}
