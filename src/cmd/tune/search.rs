//! `pathlab tune search`: the best of many settings within a time, shown by a trial.

use crate::cmd::doctor::GoalWord;
use crate::cmd::prove::{ProofArgs, Proving};
use crate::output::{Notices, Output};
use crate::progress::Screen;
use clap::Args;
use experiment::change::LabChange;
use experiment::prove::search::{Alternatives, Search, SearchSetup, alternatives};
use experiment::prove::usual;
use experiment::side::Described;
use experiment::trial::figures_of;
use record::search::{LeftOut, SEARCH_SCHEMA, SearchRecord, TriedSetting};
use record::{Problem, Result};
use std::time::Duration;
use study::doctor::Goal;
use study::trial::search::Candidate;

/// With fewer pairs nothing can be shown.
const FEWEST_PAIRS: usize = 6;

/// Flags of `pathlab tune search`.
#[derive(Args)]
pub struct SearchArgs {
    /// What to try: NODE/NAME=VALUE or NODE/IF:NAME=VALUE. Changes of the same knob are alternatives, beside the value that it has; those of
    /// several knobs are combined.
    #[arg(required_unless_present = "goal", value_name = "CHANGE")]
    changes: Vec<String>,
    /// Try what is usually tried for this (throughput, latency) at the ends of the tests, and run only the tests that show it.
    #[arg(long, value_name = "GOAL")]
    goal: Option<GoalWord>,
    /// The time for all of it: half to explore, the last third for the proof.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = record::unit::duration)]
    budget: Duration,
    #[command(flatten)]
    proof: ProofArgs,
}

/// Runs the command.
pub fn run(args: SearchArgs, output: &Output) -> Result<()> {
    let changes: Vec<LabChange> =
        args.changes.iter().map(|text| LabChange::parse(text)).collect::<Result<_>>()?;
    let goal = args.goal.map(Goal::from);
    let mut side = args.proof.trial.side_of_plan()?;
    goal.map_or(Ok(()), |goal| only_for(goal, &mut side))?;
    let (record, stopped) = args.proof.on(side, output, |proving| search(&args, proving, &changes, goal))?;
    output.result(&record, study::trial::text::search)?;
    stopped.map_or(Ok(()), Err)?;
    match record.proof.is_some_and(|proof| proof.is_better) {
        true => Ok(()),
        false => Err(Problem::measured("no setting was shown to be better")),
    }
}

/// Leaves the tests that show what the goal is about.
fn only_for(goal: Goal, side: &mut Described) -> Result<()> {
    let round_trips = match goal {
        Goal::Throughput => false,
        Goal::Latency => true,
        _ => {
            let what = format!("nothing is usually tried for the goal {}", goal.word());
            return Err(Problem::input(what).at("--goal").help("throughput, latency; or name changes"));
        }
    };
    let tests = &mut side.plan.tests;
    tests.retain(|test| test.spec.kind.is_round_trip() == round_trips);
    match tests.is_empty() {
        true => Err(Problem::input(format!("no test of the plan is about {}", goal.word()))
            .at("--goal")
            .help("give another --plan, or name changes in place of the goal")),
        false => Ok(()),
    }
}

/// The knobs with their values, and what is not tried.
fn knobs(
    proving: &Proving<'_>,
    named: &[LabChange],
    goal: Option<Goal>,
) -> Result<(Vec<Alternatives>, Vec<LeftOut>)> {
    let (target, plan, output) = (proving.target, &proving.side.plan, proving.output);
    let usual = goal.map_or(Ok(vec![]), |goal| usual::changes(target, plan, goal, output))?;
    let (journals, may_flap) = (proving.journals, proving.args.allow_link_flap);
    let (knobs, left_out) = alternatives(journals, target.tunable(), named, &usual, may_flap)?;
    match knobs.is_empty() {
        true => Err(Problem::input("nothing is left to try: all of it is so already, or cannot be")
            .help("name other changes, or see 'pathlab tune show' for the knobs of a node")),
        false => Ok((knobs, left_out)),
    }
}

fn search(
    args: &SearchArgs,
    proving: &Proving<'_>,
    changes: &[LabChange],
    goal: Option<Goal>,
) -> Result<(SearchRecord, Option<Problem>)> {
    let (knobs, left_out) = knobs(proving, changes, goal)?;
    let (trial, plan) = (&args.proof.trial, &proving.side.plan);
    let seed = trial.chosen_seed();
    let setup = SearchSetup {
        journals: proving.journals,
        place: proving.target.tunable(),
        knobs: &knobs,
        plan,
        figures: figures_of(plan, trial.figure)?,
        may_flap: args.proof.allow_link_flap,
        budget: args.budget,
        same_within: trial.same_within,
        seed,
    };
    let course = trial.course(&proving.titled("search"), proving.target, seed)?;
    let screen = Screen::new(proving.output);
    let mut search = Search::new(setup, course, &screen);
    let values: Vec<usize> = knobs.iter().map(Vec::len).collect();
    let mut record = SearchRecord {
        schema: SEARCH_SCHEMA.into(),
        lab: args.proof.lab.clone().unwrap_or_default(),
        to: args.proof.between.to.clone().unwrap_or_default(),
        reverse: args.proof.between.reverse,
        via: args.proof.between.via.clone(),
        budget_ms: args.budget.as_millis() as u64,
        seed,
        left_out,
        possible: study::trial::search::possible(&values),
        ..SearchRecord::default()
    };
    let explored = explored(&mut search, &mut record);
    let (pairs, begun) = (search.pairs_left(), std::time::Instant::now());
    record.spent_ms = search.elapsed().as_millis() as u64;
    let closed = search.course.close(explored.as_ref().err());
    record.run = closed.run.id;
    let best = explored?;
    // What was found is told, whatever comes of its record and of the proof.
    let stopped = match closed.kept {
        Err(unwritten) => Some(unwritten),
        Ok(()) => {
            proving.output.note(&format!("record: {}", record.run));
            let proven = if best.is_empty() { Ok(None) } else { proven(proving, &best, pairs, &mut record) };
            proven.unwrap_or_else(Some)
        }
    };
    record.spent_ms += begun.elapsed().as_millis() as u64;
    Ok((record, stopped))
}

/// The changes of the best setting without those that it is no worse without; none when nothing seems better than the lab as it is.
fn explored(search: &mut Search<'_>, record: &mut SearchRecord) -> Result<Vec<LabChange>> {
    let candidates = search.explore()?;
    record.settings = candidates.iter().map(|one| tried(search, one)).collect();
    let (best, unneeded, is_minimal) = search.prune(&candidates[0].setting)?;
    record.unneeded = unneeded.into_iter().map(|change| change.text).collect();
    record.is_minimal = is_minimal;
    Ok(search.changes(&best))
}

fn tried(search: &Search<'_>, candidate: &Candidate) -> TriedSetting {
    TriedSetting {
        changes: search.changes(&candidate.setting).into_iter().map(|change| change.text).collect(),
        measured: candidate.scores.len() as u64,
        better: candidate.score().map(f64::exp),
        left_in: candidate.left_in,
    }
}

/// The trial of the best setting against the lab as it is, and what it makes stay.
fn proven(
    proving: &Proving<'_>,
    best: &[LabChange],
    pairs: usize,
    record: &mut SearchRecord,
) -> Result<Option<Problem>> {
    let args = ProofArgs {
        trial: proving.args.trial.at_most(pairs.max(FEWEST_PAIRS), record.seed),
        ..proving.args.clone()
    };
    let proving = Proving { args: &args, side: proving.side.clone(), ..*proving };
    let (proof, stopped) = proving.proof(&[], best)?;
    if proof.is_better && stopped.is_none() {
        record.kept = proving.keep(best)?;
    }
    record.proof = Some(proof);
    Ok(stopped)
}
