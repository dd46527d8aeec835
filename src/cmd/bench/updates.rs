//! `pathlab bench updates`: what changes of rules cost the frames that go through meanwhile.

use crate::cmd::amounts;
use crate::output::{Output, table};
use clap::Args;
use experiment::bench::updates::{self, UpdatesBenchDocument, UpdatesResult, Wanted};
use record::Result;
use record::unit::{count, many, number, prefixed, time_ns};

/// Flags of `pathlab bench updates`.
#[derive(Args)]
pub struct UpdatesArgs {
    /// Rounds; each measures everything once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of each phase.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Rules of the table.
    #[arg(long, default_value_t = 100_000, value_parser = amounts::<usize>(0..=u64::MAX))]
    rules: usize,
    /// Datagrams that go through meanwhile, per second.
    #[arg(long, default_value_t = 10_000.0)]
    rate: f64,
    /// Only the switches that begin with one of these, as in `bench switch`.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = updates::usual().map(String::from))]
    only: Vec<String>,
    /// Seed of the rules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the benchmark.
pub fn run(args: UpdatesArgs, output: &Output) -> Result<()> {
    let UpdatesArgs { rounds, seconds, rules, rate, only, seed } = args;
    output.result(&updates::run(&Wanted { rounds, seconds, rules, rate, only, seed }, output)?, people)
}

fn people(document: &UpdatesBenchDocument) -> String {
    let head = format!(
        "{} of {} in turn; {}, {} datagrams/s; Linux {}, {}, {}; not pinned\n\n",
        many(document.rounds.into(), "round"),
        time_ns(document.seconds as f64 * 1e9),
        many(document.rules as u64, "rule"),
        number(document.rate),
        document.kernel,
        document.cpu_model,
        many(document.cpus.into(), "CPU"),
    );
    let headers = ["", "meanwhile", "changes/s", "p50", "p99.9", "longest", "range", "lost", "RAM/rule"];
    let absent: String = document.absent.iter().map(|absent| format!("not measured: {absent}\n")).collect();
    head + &table(2, &headers, document.results.iter().map(row).collect()).text() + &absent
}

fn row(one: &UpdatesResult) -> Vec<String> {
    vec![
        one.arm.to_owned(),
        one.phase.to_owned(),
        one.updates_per_s.map_or("–".into(), |rate| prefixed(rate.median)),
        time_ns(one.p50_ns.median),
        time_ns(one.p999_ns.median),
        time_ns(one.max_ns.median),
        format!("{} … {}", time_ns(one.max_ns.low), time_ns(one.max_ns.high)),
        count(one.lost.median as u64),
        format!("{}B", prefixed(one.ram_per_rule)),
    ]
}
