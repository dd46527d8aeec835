//! `pathlab bench send`: port kind × frame size, frames that were really transmitted.

use super::flags::{GridArgs, KeepArgs, Shown};
use crate::output::Output;
use clap::{Args, ValueEnum};
use experiment::bench::send::{self, Far, Parameters};
use record::Result;

/// Flags of `pathlab bench send`.
#[derive(Args)]
pub struct SendArgs {
    #[command(flatten)]
    grid: GridArgs,
    /// Only these: int, int-bypass, int-join, ring, ring-bypass, xdp, xdp-stamp, live, live-stamp, or rivals by name.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
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

/// Runs the command.
pub fn run(args: SendArgs, output: &Output) -> Result<()> {
    let SendArgs { grid, only, sink, keep } = args;
    let GridArgs { full, peers, sizes, rates, seconds: ms, rounds } = grid;
    let far = match sink {
        Sink::Xdp => Far::Xdp,
        Sink::Plain => Far::Plain,
    };
    let parameters = Parameters { full, peers, only, sizes, rates, ms, rounds, far };
    let kept = send::run(&parameters, &keep.kept()?, output)?;
    let shown = Shown {
        schema: record::bench::SEND,
        page: study::report::bench::send_html,
        versus: study::bench::send_versus,
        text: study::bench::send_text,
    };
    keep.finish(kept, shown, output)
}
