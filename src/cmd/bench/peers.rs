//! `pathlab bench peers`: pathlab against its peers in one lab, interleaved.

use crate::output::Output;
use clap::Args;
use experiment::bench::contest::{Comparison, Score, ToolComparison, ToolRounds, median, range};
use experiment::bench::peers::{self, PeersBenchDocument};
use record::Result;
use record::unit::{many, number};

/// Flags of `pathlab bench peers`.
#[derive(Args)]
pub struct PeersArgs {
    /// Rounds; each gives one ratio for each rival.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// The lab to measure in (a built-in topology or a file); traffic goes from a to b.
    #[arg(long, default_value = "bridge")]
    topology: String,
    /// Only contests whose names begin with this (tcp-stream, udp-stream, tcp-rr, counting, observing, time).
    #[arg(long)]
    only: Option<String>,
}

/// Runs the benchmark.
pub fn run(args: PeersArgs, output: &Output) -> Result<()> {
    let only = args.only.unwrap_or_default();
    output.result(&peers::run(args.rounds, args.seconds, args.topology, &only, output)?, people)
}

fn people(document: &PeersBenchDocument) -> String {
    let head = format!(
        "{} of {} s in '{}', interleaved; Linux {}, {}; {}\noffloads: {}\n\n",
        many(document.rounds.into(), "round"),
        document.seconds,
        document.topology,
        document.kernel,
        document.cpu_model,
        document.placement,
        document.offloads.join("; ")
    );
    head + &document.contests.iter().map(contest_text).collect::<String>()
}

fn ratio(median: f64, (low, high): (f64, f64)) -> String {
    format!("{median:.3} ({low:.3} … {high:.3})")
}

/// A contest for people: the range of the rates, the median of their ratios with its interval.
fn contest_text(contest: &ToolComparison) -> String {
    let head = format!("{}  ({}; claim: {})\n", contest.name, contest.unit, contest.claim);
    let scores = contest.contestants.iter().map(score_line);
    let ratios = contest.comparisons.iter().map(ratio_line);
    let absent = contest.absent.iter().map(|absent| format!("  not compared: {absent}\n"));
    head + &scores.chain(ratios).chain(absent).collect::<String>() + "\n"
}

fn score_line(contestant: &ToolRounds) -> String {
    let rates: Vec<f64> = contestant.scores.iter().map(|s| s.rate).collect();
    let busy: Vec<f64> = contestant.scores.iter().map(Score::busy_percent).collect();
    let (low, high) = range(&rates);
    let range = format!("{} … {}", number(low), number(high));
    let (name, rate, busy) = (&contestant.name, number(median(&rates)), median(&busy));
    format!("  {name:<31} {rate:>7}  range {range:<17}  host CPU {busy:>3.0} %\n")
}

fn ratio_line(c: &Comparison) -> String {
    let (rate, cost) = (ratio(c.rate_ratio, c.rate_interval), ratio(c.cost_ratio, c.cost_interval));
    format!("  pathlab ÷ {:<10} rate {rate}  CPU per unit {cost}\n", c.rival)
}
