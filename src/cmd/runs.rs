//! `pathlab runs`: which runs there are.

use crate::output::Output;
use clap::Args;
use std::path::PathBuf;

/// Flags of `pathlab runs`.
#[derive(Args)]
pub struct RunsArgs {
    /// The directory of runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
}

/// Lists the runs; a damaged one is listed with the reason and does not hide the others.
pub fn run(args: RunsArgs, output: &Output) -> record::Result<()> {
    let runs = study::store::list(&args.dir)?;
    output.result(&runs, |runs| study::text::list(runs))
}
