//! `pathlab bench trial`: how often a trial is right.

use crate::output::{Output, table};
use clap::Args;
use experiment::bench::trials::{self, TrialBenchDocument, TrialsResult, TrialsWanted};
use record::Result;
use record::unit::{many, number};

/// Flags of `pathlab bench trial`.
#[derive(Args)]
pub struct TrialBenchArgs {
    /// Trials of each question.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trials: u32,
    /// The most pairs of a trial.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(6..=1000))]
    pairs: u16,
    /// Milliseconds of each test.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    milliseconds: u64,
    /// Seed of the first trial.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the questions that begin with this.
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
}

/// Runs the benchmark.
pub fn run(args: TrialBenchArgs, output: &Output) -> Result<()> {
    let TrialBenchArgs { trials, pairs, milliseconds, seed, only } = args;
    linux::lab::enter_user_namespace()?;
    experiment::interruptible()?;
    let wanted = TrialsWanted { trials, pairs, milliseconds, same_within: 0.02, seed, only };
    output.result(&trials::run(&wanted, &crate::progress::Screen::new(output))?, people)
}

fn people(document: &TrialBenchDocument) -> String {
    let head = format!(
        "{} of each question, of at most {}, tests of {} ms; Linux {}, {}, {}; not pinned\n\n",
        many(document.trials.into(), "trial"),
        many(document.pairs.into(), "pair"),
        document.milliseconds,
        document.kernel,
        document.cpu_model,
        many(document.cpus.into(), "CPU"),
    );
    let headers = ["", "test", "better", "worse", "same", "cannot tell", "interval holds", "pairs", "B / A"];
    head + &table(2, &headers, document.results.iter().map(row).collect()).text()
}

fn row(one: &TrialsResult) -> Vec<String> {
    let mut cells = vec![one.name.to_owned(), one.test.to_owned()];
    cells.extend([one.better, one.worse, one.same, one.unknown].map(|trials| trials.to_string()));
    let held = one.held_percent.map(|percent| format!("{} %", number(percent)));
    let effect = one.effect.map(|effect| format!("{effect:.3}"));
    cells.extend([held, one.pairs.map(number), effect].map(|cell| cell.unwrap_or_else(|| "–".into())));
    cells
}
