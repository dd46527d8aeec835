//! The best of many settings of the knobs of a lab or of two hosts, looked for within a time.
//!
//! **What.** [`Search::explore`] measures settings and halves them ([`study::trial::search`]), [`Search::prune`] takes out what the best is no worse without. What
//! is left is to be shown by a trial, with new measurements.
//!
//! **Price.** Knobs are changed before each measurement and put back after it, so what a change leaves in its wake (a cold cache, a
//! learned metric) meets the setting that is measured next; the order is drawn anew for each block.

use crate::change::{Changed, LabChange, Tunable};
use crate::notices::Notices;
use crate::plan::Plan;
use crate::session::Course;
use crate::trial::figure_of;
use linux::journal::Journals;
use linux::sys::process;
use record::search::LeftOut;
use record::{Problem, Result};
use std::time::{Duration, Instant};
use study::stats::SplitMix64;
use study::trial::figures::Figure;
use study::trial::search::{self, Candidate, Setting};

/// The part of the time for the exploration.
const EXPLORE: f64 = 0.5;
/// The part of the time for exploring and taking out; the rest is for the trial.
const PRUNE: f64 = 0.65;
/// A trial is left no more than so many measurements: most end earlier.
const MOST_TRIAL: u32 = 40;
/// How often a setting without one of its changes is measured before it is judged.
const PRUNE_BLOCKS: u32 = 5;
/// How often the setting beside which all are measured is measured again when it could not be used.
const TRIES: u32 = 3;
/// The fewest measurements with which a trial can show anything, with some to spare.
const TRIAL: u32 = 16;

/// Why a change that changes nothing is left out.
pub(super) const ALREADY: &str = "it is so already";

/// Values of one knob.
pub type Alternatives = Vec<LabChange>;

/// The changes that are worth a measurement, those of the same knob as alternatives. What is so already is left out with the reason, and
/// so are the `usual` ones, which nobody named, that a node cannot.
///
/// # Errors
/// Input: no such node, knob or value in a change that was `named`. Host: the kernel refuses it.
pub fn alternatives(
    journals: &Journals,
    place: &dyn Tunable,
    named: &[LabChange],
    usual: &[LabChange],
    may_flap: bool,
) -> Result<(Vec<Alternatives>, Vec<LeftOut>)> {
    let (mut knobs, mut left_out): (Vec<Alternatives>, Vec<LeftOut>) = (vec![], vec![]);
    for (number, change) in named.iter().chain(usual).enumerate() {
        match why_not(journals, place, change, may_flap) {
            Ok(None) => add(&mut knobs, change),
            Ok(Some(why)) => left_out.push(LeftOut { change: change.text.clone(), why: why.into() }),
            Err(problem) if number < named.len() || process::interrupted() => return Err(problem),
            Err(problem) => {
                let why = Problem { place: String::new(), ..problem }.to_string();
                left_out.push(LeftOut { change: change.text.clone(), why });
            }
        }
    }
    Ok((knobs, left_out))
}

fn add(knobs: &mut Vec<Alternatives>, change: &LabChange) {
    match knobs.iter_mut().find(|knob| knob[0].is_same_knob(change)) {
        Some(knob) if knob.iter().any(|other| other.asks == change.asks) => {}
        Some(knob) => knob.push(change.clone()),
        None => knobs.push(vec![change.clone()]),
    }
}

/// Why a change that can be made is not worth a measurement.
fn why_not(
    journals: &Journals,
    place: &dyn Tunable,
    change: &LabChange,
    may_flap: bool,
) -> Result<Option<&'static str>> {
    match is_so(place, change)? {
        true => Ok(Some(ALREADY)),
        false => try_out(journals, place, change, may_flap).map(|()| None),
    }
}

/// Makes a change and puts it back.
fn try_out(journals: &Journals, place: &dyn Tunable, change: &LabChange, may_flap: bool) -> Result<()> {
    Changed::make(journals, place, std::slice::from_ref(change), may_flap)?.put_back(place)
}

/// Whether the lab, or the hosts, are what a change would make them.
pub(super) fn is_so(place: &dyn Tunable, change: &LabChange) -> Result<bool> {
    Ok(place.compare(change)?.is_empty())
}

impl LabChange {
    fn is_same_knob(&self, other: &LabChange) -> bool {
        let knobs = |change: &LabChange| -> Vec<_> {
            change.asks.iter().map(|ask| (ask.interface.clone(), ask.name.clone())).collect()
        };
        self.node == other.node && knobs(self) == knobs(other)
    }
}

/// What is searched, and how.
pub struct SearchSetup<'a> {
    /// Where undos are kept.
    pub journals: &'a Journals,
    /// Whose knobs are changed.
    pub place: &'a dyn Tunable,
    /// The knobs with their values.
    pub knobs: &'a [Alternatives],
    /// The tests.
    pub plan: &'a Plan,
    /// The figure of each test.
    pub figures: Vec<&'static Figure>,
    /// Changes may take a link down.
    pub may_flap: bool,
    /// The time for all of it, the trial included.
    pub budget: Duration,
    /// Differences of less than this are none.
    pub same_within: f64,
    /// Seed of the order and of the settings that are drawn.
    pub seed: u64,
}

/// A search under way.
pub struct Search<'a> {
    setup: SearchSetup<'a>,
    notices: &'a dyn Notices,
    /// The record of what is measured.
    pub course: Course<'a>,
    random: SplitMix64,
    begun: Instant,
    /// Of one setting.
    each: Duration,
    blocks: u32,
    measured: u32,
}

impl<'a> Search<'a> {
    /// Nothing is measured yet.
    pub fn new(setup: SearchSetup<'a>, course: Course<'a>, notices: &'a dyn Notices) -> Search<'a> {
        let (random, begun) = (SplitMix64::new(setup.seed), Instant::now());
        Search { setup, notices, course, random, begun, each: Duration::ZERO, blocks: 0, measured: 0 }
    }

    /// The changes of a setting.
    pub fn changes(&self, setting: &Setting) -> Vec<LabChange> {
        let chosen = setting.iter().zip(self.setup.knobs).filter(|(value, _)| **value > 0);
        chosen.map(|(value, knob)| knob[value - 1].clone()).collect()
    }

    /// The most pairs for which there is time.
    pub fn pairs_left(&self) -> usize {
        let left = self.setup.budget.saturating_sub(self.begun.elapsed());
        (left.as_secs_f64() / (2.0 * self.each.as_secs_f64())) as usize
    }

    /// How long it has gone on.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The settings that were measured, the best first.
    ///
    /// # Errors
    /// Input: the time is too short for the settings. What ends a run.
    pub fn explore(&mut self) -> Result<Vec<Candidate>> {
        let mut all = self.candidates()?;
        let (rounds, end) = (search::rounds(all.len()), self.setup.budget.mul_f64(EXPLORE));
        let as_it_is = all[0].setting.clone();
        for round in 1..=rounds {
            let now = self.begun.elapsed();
            let until = now + end.saturating_sub(now) / (rounds - round + 1);
            let label = format!("round {round} of {rounds}");
            loop {
                let begun = self.begun.elapsed();
                self.block(&as_it_is, &mut all, &label)?;
                let ended = self.begun.elapsed();
                if ended + (ended - begun) > until {
                    break;
                }
            }
            search::halve(&mut all, round);
        }
        search::rank(&mut all);
        Ok(all)
    }

    /// All settings for which there is time. What is there is measured as it is, twice for that: what is first has caches to fill.
    fn candidates(&mut self) -> Result<Vec<Candidate>> {
        let values: Vec<usize> = self.setup.knobs.iter().map(Vec::len).collect();
        let as_it_is = vec![0; values.len()];
        self.notices.part("as it is", 0, 0);
        for _ in 0..2 {
            let begun = Instant::now();
            self.measure(&as_it_is)?;
            self.each = begun.elapsed();
        }
        let measurements = self.setup.budget.mul_f64(EXPLORE).as_secs_f64() / self.each.as_secs_f64();
        let most = search::most_settings(measurements as usize);
        let fewest = search::fewest(&values);
        let for_trial = self.each * TRIAL > self.setup.budget.mul_f64(1.0 - PRUNE);
        if most < fewest || for_trial {
            return Err(self.too_short(fewest));
        }
        let settings = search::settings(&values, most, &mut self.random);
        Ok(settings.into_iter().map(Candidate::new).collect())
    }

    fn too_short(&self, settings: usize) -> Problem {
        let explored = self.each * settings as u32 * search::rounds(settings).max(1);
        let wanted = explored.div_f64(EXPLORE).max((self.each * TRIAL).div_f64(1.0 - PRUNE));
        let each = record::unit::time_ns(self.each.as_nanos() as f64);
        let settings = record::unit::many(settings as u64, "setting");
        let what = format!("the time is too short for {settings}: one measurement of all tests takes {each}");
        Problem::input(what).at("--budget").help(format!(
            "give at least --budget {}s, or fewer changes, or fewer or shorter tests (--only, --quick)",
            wanted.mul_f64(1.1).as_secs() + 1
        ))
    }

    /// The best without the changes that it is no worse without; these, in the order in which they were taken out; and whether all of the
    /// rest were seen to be needed.
    ///
    /// # Errors
    /// What ends a run.
    pub fn prune(&mut self, best: &Setting) -> Result<(Setting, Vec<LabChange>, bool)> {
        let (mut best, mut unneeded) = (best.clone(), vec![]);
        let budget = self.setup.budget;
        let end = budget.mul_f64(PRUNE).max(budget.saturating_sub(self.each * MOST_TRIAL));
        loop {
            let mut without: Vec<Candidate> =
                search::without_each(&best).into_iter().map(Candidate::new).collect();
            let time = self.each * PRUNE_BLOCKS * (without.len() as u32 + 1);
            if without.len() < 2 || self.begun.elapsed() + time > end {
                return Ok((best, unneeded, without.len() < 2));
            }
            for _ in 0..PRUNE_BLOCKS {
                self.block(&best, &mut without, "what the best setting needs")?;
            }
            let Some(less) = search::least_missed(&without, self.setup.same_within) else {
                let is_minimal = without.iter().all(|one| one.scores.len() == PRUNE_BLOCKS as usize);
                return Ok((best, unneeded, is_minimal));
            };
            let (before, after) = (self.changes(&best), self.changes(&less.setting));
            unneeded.extend(before.into_iter().filter(|change| !after.contains(change)));
            best = less.setting.clone();
        }
    }

    /// Each setting that is still in once, and the one that they are compared with, in an order that is drawn.
    fn block(&mut self, beside: &Setting, all: &mut [Candidate], label: &str) -> Result<()> {
        self.blocks += 1;
        let mut order: Vec<Option<usize>> = (0..all.len())
            .filter(|place| all[*place].left_in.is_none() && all[*place].setting != *beside)
            .map(Some)
            .collect();
        order.push(None);
        self.random.shuffle(&mut order);
        let mut figures = vec![];
        for (number, place) in order.iter().enumerate() {
            let (done, total) = (self.begun.elapsed().as_millis(), self.setup.budget.as_millis());
            let line = format!("{label}, setting {} of {}", number + 1, order.len());
            self.notices.part(&line, done as u64, total as u64);
            let setting = place.map_or(beside, |place| &all[place].setting).clone();
            figures.push(if place.is_none() { self.reference(&setting)? } else { self.measure(&setting)? });
        }
        let higher: Vec<bool> = self.setup.figures.iter().map(|figure| figure.higher_is_better).collect();
        let than = order.iter().position(Option::is_none).map_or(vec![], |place| figures[place].clone());
        for (place, here) in order.into_iter().zip(&figures) {
            let good = search::goodness(&than, here, &higher);
            let candidate = place.or_else(|| all.iter().position(|one| one.setting == *beside));
            if let Some(candidate) = candidate {
                all[candidate].scores.extend(good);
            }
        }
        Ok(())
    }

    /// The figures of the setting that others are compared with: without them the whole block is lost.
    fn reference(&mut self, setting: &Setting) -> Result<Vec<Option<f64>>> {
        let mut figures = vec![];
        for _ in 0..TRIES {
            figures = self.measure(setting)?;
            if figures.iter().all(Option::is_some) {
                break;
            }
        }
        Ok(figures)
    }

    /// The figures of all tests with a setting; none of a test that could not be run or is not valid.
    fn measure(&mut self, setting: &Setting) -> Result<Vec<Option<f64>>> {
        let changes = self.changes(setting);
        let changed =
            match Changed::make(self.setup.journals, self.setup.place, &changes, self.setup.may_flap) {
                // Alone each change can be made: this is of the combination.
                Err(problem) if !process::interrupted() => {
                    self.notices.warn(&problem);
                    return Ok(vec![None; self.setup.figures.len()]);
                }
                changed => changed?,
            };
        let figures = self.figures(&titled(self.setup.plan, &changes));
        changed.put_back(self.setup.place)?;
        figures
    }

    fn figures(&mut self, plan: &Plan) -> Result<Vec<Option<f64>>> {
        let of = |(test, figure): (usize, &&'static Figure)| {
            self.measured += 1;
            let measured =
                self.course.measure(plan, test, self.blocks.max(1), self.measured, self.notices)?;
            Ok(figure_of(measured, figure.name))
        };
        self.setup.figures.iter().enumerate().map(of).collect()
    }
}

/// The plan with the setting in the names of its tests.
fn titled(plan: &Plan, changes: &[LabChange]) -> Plan {
    let mut plan = plan.clone();
    let texts: Vec<&str> = changes.iter().map(|change| change.text.as_str()).collect();
    for test in plan.tests.iter_mut().filter(|_| !texts.is_empty()) {
        test.name = format!("{} with {}", test.name, texts.join(" "));
    }
    plan
}
