//! `pathlab bench`.

use crate::output::Output;
use clap::Args;

/// Flags of `pathlab bench`.
#[derive(Args)]
pub struct BenchArgs {}

/// Runs the command.
pub fn run(_args: BenchArgs, _output: &Output) -> record::Result<()> {
    Err(record::Problem::host("'bench' is not part of this build yet"))
}
