//! `pathlab bench switch`: what a switch carries over wires, beside the kernel's bridge and Open vSwitch.

use crate::cmd::amounts;
use crate::output::{Output, table};
use clap::Args;
use experiment::bench::flow::Spread;
use experiment::bench::switch::{self, ArmResult, SwitchBenchDocument, Wanted};
use record::Result;
use record::unit::{count, many, number, prefixed, time_ns};

/// Flags of `pathlab bench switch`.
#[derive(Args)]
pub struct SwitchBenchArgs {
    /// Rounds; each measures everything once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Milliseconds for each measurement.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    milliseconds: u64,
    /// Numbers of rules.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [2, 100, 10_000], value_parser = amounts::<usize>(0..=u64::MAX))]
    rules: Vec<usize>,
    /// Only what begins with one of these, e.g. "native,null,Open vSwitch".
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Frames alone, without TCP and ping.
    #[arg(long)]
    frames: bool,
    /// Seed of the rules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the benchmark.
pub fn run(args: SwitchBenchArgs, output: &Output) -> Result<()> {
    let SwitchBenchArgs { rounds, milliseconds, rules, only, frames: only_frames, seed } = args;
    let wanted = Wanted { rounds, milliseconds, rules, only, only_frames, seed };
    output.result(&switch::run(&wanted, output)?, people)
}

fn people(document: &SwitchBenchDocument) -> String {
    let head = format!(
        "{} of {}, interleaved; frames of {} B of {}; seed {}; Linux {}, {}, {}; {}\n\n",
        many(document.rounds.into(), "round"),
        time_ns(document.milliseconds as f64 * 1e6),
        document.frame_bytes,
        many(document.flows as u64, "flow"),
        document.seed,
        document.kernel,
        document.cpu_model,
        many(document.cpus.into(), "CPU"),
        document.placement,
    );
    let headers = [
        "",
        "rules",
        "frames/s",
        "range",
        "of bridge",
        "of null",
        "of OVS",
        "CPU/frame",
        "host/frame",
        "RAM",
        "TCP",
        "no offloads",
        "ping",
    ];
    let absent: String = document.absent.iter().map(|absent| format!("not measured: {absent}\n")).collect();
    head + &table(1, &headers, document.results.iter().map(row).collect()).text() + &absent
}

fn row(one: &ArmResult) -> Vec<String> {
    let frames = one.frames_per_s;
    let told = |spread: Option<Spread>, show: fn(f64) -> String| {
        spread.map_or("–".into(), |spread| show(spread.median))
    };
    let bits = |bps: f64| format!("{}bit/s", prefixed(bps));
    vec![
        one.arm.to_owned(),
        count(one.rules as u64),
        prefixed(frames.median),
        format!("{} … {}", prefixed(frames.low), prefixed(frames.high)),
        told(one.of_bridge, number),
        told(one.of_null, number),
        told(one.of_ovs, number),
        one.program_ns_per_frame.map_or("–".into(), time_ns),
        time_ns(one.host_ns_per_frame),
        one.ram_bytes.map_or("–".into(), |bytes| format!("{}B", prefixed(bytes))),
        told(one.tcp_bps, bits),
        told(one.tcp_bps_without_offloads, bits),
        told(one.ping_ns, time_ns),
    ]
}
