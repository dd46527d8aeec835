//! `pathlab bench capture`: the libtrace diary's experiment of 2012 as one command.

use super::flags::{GridArgs, KeepArgs};
use crate::output::Output;
use clap::Args;
use experiment::bench::capture;
use experiment::bench::grid::Wanted;
use record::Result;

/// Flags of `pathlab bench capture`.
#[derive(Args)]
pub struct CaptureArgs {
    #[command(flatten)]
    grid: GridArgs,
    /// Only these tools: int, ring, ring-count (blocks wait as with libpcap, frames are only counted), ring-v2, xdp, or rivals by name.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Frames that the ring holds; 0 leaves each port's own default.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    rings: Vec<u32>,
    /// What sends the frames in node a: a port of 'pathlab send'.
    #[arg(long, value_name = "PORT", default_value = "ring:eth0?bypass=on")]
    generator: String,
    #[command(flatten)]
    keep: KeepArgs,
}

/// Runs the command.
pub fn run(args: CaptureArgs, output: &Output) -> Result<()> {
    let CaptureArgs { grid, only, rings, generator, keep } = args;
    let GridArgs { full, peers, sizes, rates, seconds: ms, rounds } = grid;
    let wanted = Wanted { full, peers, only, sizes, rings, rates, ms, rounds };
    let kept = capture::run(&wanted, &generator, &keep.kept()?, output)?;
    keep.finish(kept, record::bench::CAPTURE, output)
}
