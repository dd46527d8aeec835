//! `pathlab bench`: pathlab measured against its peers, as ratios in one run.

use crate::bench::peers;
use crate::output::Output;
use clap::{Args, Subcommand};

/// Flags of `pathlab bench`.
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Against netperf and iperf3 in one lab, interleaved: TCP stream, small datagrams, TCP request/response.
    Peers(peers::PeersArgs),
}

/// Runs the command.
pub fn run(args: BenchArgs, output: &Output) -> record::Result<()> {
    match args.what {
        What::Peers(args) => peers::run(args, output),
    }
}
