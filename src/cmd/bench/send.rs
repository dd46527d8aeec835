//! `pathlab bench send`: port kind × frame size, frames that were really transmitted.

use super::flags::{GridArgs, KeepArgs};
use crate::output::Output;
use clap::Args;
use experiment::bench::grid::Wanted;
use experiment::bench::send;
use record::Result;

/// Flags of `pathlab bench send`.
#[derive(Args)]
pub struct SendArgs {
    #[command(flatten)]
    grid: GridArgs,
    /// Only these: int, int-bypass, int-join, ring, ring-bypass, xdp, xdp-stamp, live, live-stamp, or rivals by name.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// What drops the frames at the far end: an XDP program (xdp), or its kernel, as frames for another host (plain; live
    /// frames do not arrive there).
    #[arg(long, default_value = "xdp", value_parser = ["xdp", "plain"])]
    sink: String,
    #[command(flatten)]
    keep: KeepArgs,
}

/// Runs the command.
pub fn run(args: SendArgs, output: &Output) -> Result<()> {
    let SendArgs { grid, only, sink, keep } = args;
    let GridArgs { full, peers, sizes, rates, seconds: ms, rounds } = grid;
    let wanted = Wanted { full, peers, only, sizes, rings: vec![], rates, ms, rounds };
    let kept = send::run(&wanted, sink == "xdp", &keep.kept()?, output)?;
    keep.finish(kept, record::bench::SEND, output)
}
