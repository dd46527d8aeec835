//! `pathlab bench capture`: the libtrace diary's experiment of 2012 as one command.

use super::flags::{self, KeepArgs};
use crate::output::Output;
use clap::Args;
use experiment::bench::capture::{self, Parameters};
use record::Result;
use record::bench::{BenchHead, CAPTURE, CaptureCell, CaptureResult};
use serde::Serialize;
use std::path::PathBuf;
use study::bench::{Bench, Versus};

/// Flags of `pathlab bench capture`.
#[derive(Args)]
pub struct CaptureArgs {
    /// Every size, ring and rate, three rounds: more than an hour.
    #[arg(long, conflicts_with = "peers")]
    full: bool,
    /// Our ports against tcpdump, tracestats and netsniff-ng, with their own rings.
    #[arg(long)]
    peers: bool,
    /// Only these tools: int, ring, ring-count (blocks wait as with libpcap, frames are only counted), ring-v2, xdp, or rivals by name.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Frame sizes as the field names them, with FCS: 64 to 1518, or random.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = flags::size)]
    sizes: Vec<u32>,
    /// Frames that the ring holds; 0 leaves each port's own default.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    rings: Vec<u32>,
    /// Offered frames per second: 50k, 1M, max.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = flags::rate)]
    rates: Vec<u64>,
    /// For how long each cell sends.
    #[arg(long, value_parser = flags::seconds)]
    seconds: Option<u64>,
    /// How often every cell is repeated.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// What sends the frames in node a: a port of 'pathlab send'.
    #[arg(long, value_name = "PORT", default_value = "ring:eth0?bypass=on")]
    generator: String,
    #[command(flatten)]
    keep: KeepArgs,
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    directory: PathBuf,
    head: BenchHead<CaptureCell>,
    results: Vec<CaptureResult>,
    versus: Vec<Versus>,
}

/// Runs the command.
pub fn run(args: CaptureArgs, output: &Output) -> Result<()> {
    args.keep.check()?;
    let CaptureArgs { full, peers, only, sizes, rings, rates, seconds: ms, rounds, generator, keep } = args;
    let parameters = Parameters { full, peers, only, sizes, rings, rates, ms, rounds, generator };
    let (directory, bench) = capture::run(&parameters, &keep.kept()?, output)?;
    keep.report(|| study::report::bench::capture_html(&bench))?;
    let versus = study::bench::capture_versus(&bench);
    let Bench { head, results } = bench;
    let document = Document { schema: CAPTURE, directory, head, results, versus };
    output.result(&document, |document| {
        let (head, results) = (document.head.clone(), document.results.clone());
        study::bench::capture_text(&Bench { head, results })
    })
}
