//! `pathlab bench flow`: what pipelines cost a frame.

use crate::output::{Output, table};
use clap::Args;
use experiment::bench::flow::{self, FlowBenchDocument, Measured, Skipped, Wanted};
use record::unit::{count, many, number, time_ns};
use record::{Problem, Result};

/// Flags of `pathlab bench flow`.
#[derive(Args)]
pub struct FlowArgs {
    /// Fewer pipelines, and 1 and 10,000 flows only.
    #[arg(long)]
    quick: bool,
    /// Only these pipelines, e.g. rules10,acl10k.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these engines: interpreter, native, xdp, tcx. The last two are programs of the kernel and need root.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    engine: Vec<String>,
    /// Rounds; each measures every engine once.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Milliseconds of each run.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    milliseconds: u64,
    /// Seed of the rule sets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the benchmark.
pub fn run(args: FlowArgs, output: &Output) -> Result<()> {
    let FlowArgs { quick: is_quick, only, engine: engines, rounds, milliseconds, seed } = args;
    let wanted = Wanted { is_quick, only, engines, rounds, milliseconds, seed };
    let document = flow::run(&wanted, output)?;
    output.result(&document, people)?;
    match document.results.is_empty() {
        true => {
            Err(Problem::host("no engine could be measured here")
                .help("run as root for programs of the kernel"))
        }
        false => Ok(()),
    }
}

fn people(document: &FlowBenchDocument) -> String {
    let head = format!(
        "{} of {}, engines in turn; frames of {} B; seed {}; Linux {}, {}, {}; the making of headers is taken off\n\n",
        many(document.rounds.into(), "round"),
        time_ns(document.milliseconds as f64 * 1e6),
        document.frame_bytes,
        document.seed,
        document.kernel,
        document.cpu_model,
        many(document.cpus.into(), "CPU"),
    );
    let headers = [
        "pipeline",
        "rules",
        "flows",
        "engine",
        "ns/frame",
        "range",
        "2 workers",
        "compile",
        "update",
        "code kB",
        "data kB",
        "exits %",
    ];
    let skipped: String = document.skipped.iter().map(skipped).collect();
    let rows: Vec<Vec<String>> = document.results.iter().map(row).collect();
    let measured = if rows.is_empty() { String::new() } else { table(1, &headers, rows).text() };
    head + &measured + &skipped
}

fn skipped(one: &Skipped) -> String {
    let of = one.pipeline.map_or(String::new(), |pipeline| format!(" of {pipeline}"));
    format!("not measured: {}{of}: {}\n", one.engine, one.why)
}

fn row(one: &Measured) -> Vec<String> {
    let spread = one.ns_per_frame;
    let kilobytes = |bytes: Option<usize>| bytes.map_or(String::new(), |bytes| number(bytes as f64 / 1e3));
    vec![
        one.pipeline.to_owned(),
        count(one.rules as u64),
        count(one.flows),
        one.engine.to_owned(),
        number(spread.median),
        format!("{} … {}", number(spread.low), number(spread.high)),
        one.two_workers.map_or(String::new(), |ratio| format!("{:.2} ×", ratio.median)),
        one.compile_ms.map_or(String::new(), |ms| time_ns(ms * 1e6)),
        one.update_us.map_or(String::new(), |us| time_ns(us * 1e3)),
        kilobytes(one.code_bytes),
        kilobytes(one.data_bytes),
        one.exits.map_or(String::new(), |part| number(part * 100.0)),
    ]
}
