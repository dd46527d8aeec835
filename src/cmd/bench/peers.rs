//! `pathlab bench peers`: pathlab against its peers in one lab, interleaved.

use crate::output::Output;
use clap::Args;
use experiment::bench::contest::{Score, ToolComparison, median, range};
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
    /// Only the contest whose name begins with this (tcp-stream, udp-stream, tcp-rr).
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
    head + &table(&document.contests)
}

fn ratio(median: f64, (low, high): (f64, f64)) -> String {
    format!("{median:.2} ({low:.2} … {high:.2})")
}

/// The contests as a table for people: the median of the rounds and their range.
fn table(contests: &[ToolComparison]) -> String {
    let mut text = String::new();
    for contest in contests {
        text.push_str(&format!("{}  ({}; claim: {})\n", contest.name, contest.unit, contest.claim));
        for contestant in &contest.contestants {
            let rates: Vec<f64> = contestant.scores.iter().map(|s| s.rate).collect();
            let busy: Vec<f64> = contestant.scores.iter().map(Score::busy_percent).collect();
            let (low, high) = range(&rates);
            text.push_str(&format!(
                "  {:<31} {:>7}  range {:<17}  host CPU {:>3.0} %\n",
                contestant.name,
                number(median(&rates)),
                format!("{} … {}", number(low), number(high)),
                median(&busy)
            ));
        }
        for c in &contest.comparisons {
            text.push_str(&format!(
                "  pathlab ÷ {:<10} rate {}  CPU per unit {}\n",
                c.rival,
                ratio(c.rate_ratio, c.rate_range),
                ratio(c.cost_ratio, c.cost_range)
            ));
        }
        for absent in &contest.absent {
            text.push_str(&format!("  not compared: {absent}\n"));
        }
        text.push('\n');
    }
    text
}
