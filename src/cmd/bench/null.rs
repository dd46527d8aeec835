//! `pathlab bench null`: what each pairing of ports costs a forwarder that does nothing.

use crate::output::{Output, table};
use clap::Args;
use experiment::bench::null::{self, Contract, NullBenchDocument, Pairing};
use record::Result;
use record::unit::{count, many, number, prefixed, time_ns};

/// Flags of `pathlab bench null`.
#[derive(Args)]
pub struct NullArgs {
    /// Rounds; each measures every pairing once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Milliseconds for each measurement.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    milliseconds: u64,
    /// Only these kinds, e.g. xdp,ring.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    /// Bytes of a frame, without FCS.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(60..=1514))]
    size: u64,
}

/// Runs the benchmark.
pub fn run(args: NullArgs, output: &Output) -> Result<()> {
    output.result(&null::run(args.rounds, args.milliseconds, &args.kinds, args.size, output)?, people)
}

fn people(document: &NullBenchDocument) -> String {
    let head = format!(
        "{} of {}, interleaved; frames of {} B; Linux {}, {}, {}; {}\n\n",
        many(document.rounds.into(), "round"),
        time_ns(document.milliseconds as f64 * 1e6),
        document.frame_bytes,
        document.kernel,
        document.cpu_model,
        many(document.cpus.into(), "CPU"),
        document.placement
    );
    let contract: String = document.contract.iter().map(contract_line).collect();
    let absent = document.absent.iter().map(|absent| format!("not measured: {absent}\n"));
    head + "the contract alone, from memory to memory in one thread\n"
        + &contract
        + "\n"
        + &pairings(&document.pairings)
        + &absent.collect::<String>()
}

fn contract_line(job: &Contract) -> String {
    format!(
        "  {:>5} B  {:<10} copies {}   {:>6} ns a frame   range {} … {}\n",
        count(job.frame_bytes as u64),
        if job.one_area { "one area" } else { "two areas" },
        job.copies_per_frame,
        number(job.ns_per_frame),
        number(job.range.0),
        number(job.range.1)
    )
}

/// The pairings as a table, each compared with the kernel's bridge.
fn pairings(all: &[Pairing]) -> String {
    let bridge = all.iter().find(|pairing| pairing.to.is_empty()).map_or(f64::NAN, |p| p.mfps);
    let headers = ["from", "to", "frames/s", "range", "of bridge", "copies", "CPU/frame", "host/frame"];
    table(2, &headers, all.iter().map(|pairing| pairing_row(pairing, bridge)).collect()).text()
}

fn pairing_row(pairing: &Pairing, bridge: f64) -> Vec<String> {
    let frames = |mfps: f64| prefixed(mfps * 1e6);
    vec![
        pairing.from.clone(),
        pairing.to.clone(),
        frames(pairing.mfps),
        format!("{} … {}", frames(pairing.range.0), frames(pairing.range.1)),
        number(pairing.mfps / bridge),
        number(pairing.copies_per_frame),
        pairing.cpu_ns_per_frame.map_or("–".into(), time_ns),
        time_ns(pairing.host_ns_per_frame),
    ]
}
