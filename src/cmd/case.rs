//! `pathlab case`: test cases, each with two arms and what is expected of the second.

use crate::output::Output;
use crate::progress::Screen;
use clap::{Args, Subcommand};
use experiment::case::carry::{self, CaseSetup};
use experiment::case::needs::NeedsLab;
use experiment::case::{self, Case};
use record::case::{CaseAbout, CaseList, CaseVerdict, CasesRecord, LIST_SCHEMA};
use record::{Problem, Result};
use std::path::PathBuf;

/// Flags of `pathlab case`.
#[derive(Args)]
pub struct CaseArgs {
    #[command(subcommand)]
    command: CaseCommand,
}

#[derive(Subcommand)]
enum CaseCommand {
    /// List the cases: what their arms differ in, what is expected, whether they can be run here.
    List(ListArgs),
    /// Run cases: both arms in pairs, and whether the second is what was expected.
    Run(RunArgs),
}

#[derive(Args)]
struct ListArgs {
    /// Names of cases, or files that end with .case; all that are built in when none is given.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Args)]
struct RunArgs {
    /// Names of cases, files that end with .case, or 'all'.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Run each test for half a second.
    #[arg(long)]
    quick: bool,
    /// Measure at most so many pairs; what is clear earlier ends earlier.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(6..=1000))]
    pairs: u16,
    /// Where B has several settings and is a bug candidate, try each of them alone and name the one that makes the difference.
    #[arg(long)]
    bisect: bool,
    /// Seed of the order within the pairs (recorded).
    #[arg(long)]
    seed: Option<u64>,
    /// Where records are kept.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    dir: PathBuf,
}

/// Runs the command.
pub fn run(args: CaseArgs, output: &Output) -> Result<()> {
    match args.command {
        CaseCommand::List(args) => list(&args, output),
        CaseCommand::Run(args) => run_cases(&args, output),
    }
}

fn list(args: &ListArgs, output: &Output) -> Result<()> {
    let cases = case::select(&args.names)?;
    linux::lab::enter_user_namespace()?;
    let place = NeedsLab::build()?;
    let about = |case: &Case| -> Result<CaseAbout> { Ok(case.about(place.lacking(&case.needs)?)) };
    let all: Result<Vec<CaseAbout>> = cases.iter().map(about).collect();
    place.leave(output);
    let list = CaseList { schema: LIST_SCHEMA.into(), cases: all? };
    output.result(&list, study::case::list)
}

fn run_cases(args: &RunArgs, output: &Output) -> Result<()> {
    let mut cases = case::select(&args.names)?;
    if args.quick {
        cases.iter_mut().for_each(Case::quick);
    }
    linux::lab::enter_user_namespace()?;
    experiment::interruptible()?;
    let screen = Screen::new(output);
    let setup = CaseSetup {
        pairs: args.pairs.into(),
        seed: args.seed.unwrap_or_else(|| linux::sys::clock::realtime_ns() % 1_000_000),
        bisect: args.bisect,
        dir: &args.dir,
        notices: &screen,
    };
    let (record, stopped) = carry::run(&cases, &setup)?;
    output.result(&record, study::case::run)?;
    stopped.map_or(Ok(()), Err)?;
    judged(&record)
}

/// A bug candidate is what the command failed for; that no case could be run is what this host cannot.
fn judged(record: &CasesRecord) -> Result<()> {
    if let Some(sentence) = study::case::candidates(record) {
        return Err(Problem::measured(sentence));
    }
    match record.cases.iter().all(|case| case.verdict == CaseVerdict::CannotRun) {
        true => {
            Err(Problem::host("no case could be run here").help("'pathlab case list' says what each lacks"))
        }
        false => Ok(()),
    }
}
