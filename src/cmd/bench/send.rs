//! `pathlab bench send`: port kind × frame size, frames that were really transmitted.

use super::flags::{self, KeepArgs};
use crate::output::Output;
use clap::{Args, ValueEnum};
use experiment::bench::send::{self, Far, Parameters};
use record::Result;
use record::bench::{BenchHead, SEND, SendCell, SendResult};
use serde::Serialize;
use std::path::PathBuf;
use study::bench::{Bench, Versus};

/// Flags of `pathlab bench send`.
#[derive(Args)]
pub struct SendArgs {
    /// Every size, five rounds.
    #[arg(long, conflicts_with = "peers")]
    full: bool,
    /// Against trafgen, interleaved.
    #[arg(long)]
    peers: bool,
    /// Only these: int, int-bypass, int-join, ring, ring-bypass, xdp, xdp-stamp, live, live-stamp, or rivals by name.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Frame sizes as the field names them, with FCS: 64 to 1518.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = flags::size)]
    sizes: Vec<u32>,
    /// Frames per second: 50k, 1M, max. With a rate the lateness counts.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = flags::rate)]
    rates: Vec<u64>,
    /// For how long each cell sends.
    #[arg(long, value_parser = flags::seconds)]
    seconds: Option<u64>,
    /// How often every cell is repeated.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// What is at the far end; the same for every sender.
    #[arg(long, value_enum, default_value_t = Sink::Xdp)]
    sink: Sink,
    #[command(flatten)]
    keep: KeepArgs,
}

/// What drops the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sink {
    /// An XDP program at the far end.
    Xdp,
    /// The far end's kernel, as frames for another host (live frames do not arrive there).
    Plain,
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    directory: PathBuf,
    head: BenchHead<SendCell>,
    results: Vec<SendResult>,
    versus: Vec<Versus>,
}

/// Runs the command.
pub fn run(args: SendArgs, output: &Output) -> Result<()> {
    args.keep.check()?;
    let SendArgs { full, peers, only, sizes, rates, seconds: ms, rounds, sink, keep } = args;
    let far = match sink {
        Sink::Xdp => Far::Xdp,
        Sink::Plain => Far::Plain,
    };
    let parameters = Parameters { full, peers, only, sizes, rates, ms, rounds, far };
    let (directory, bench) = send::run(&parameters, &keep.kept()?, output)?;
    keep.report(|| study::report::bench::send_html(&bench))?;
    let versus = study::bench::send_versus(&bench);
    let Bench { head, results } = bench;
    let document = Document { schema: SEND, directory, head, results, versus };
    output.result(&document, |document| {
        let (head, results) = (document.head.clone(), document.results.clone());
        study::bench::send_text(&Bench { head, results })
    })
}
