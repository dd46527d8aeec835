//! `pathlab show`: a run again, as it was printed when it was made.

use crate::output::Output;
use clap::Args;
use std::path::PathBuf;

/// Flags of `pathlab show`.
#[derive(Args)]
pub struct ShowArgs {
    /// The run: its name, the beginning of its name, `latest`, or a path.
    #[arg(value_name = "RUN", default_value = "latest")]
    pub run: String,
    /// The directory of runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
}

/// Prints the run.
pub fn run(args: ShowArgs, output: &Output) -> record::Result<()> {
    let record = study::store::open(&args.dir, &args.run)?;
    output.result(&record, |record| study::text::run(record, output.colour))
}
