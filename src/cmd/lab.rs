//! `pathlab lab`.

use crate::output::Output;
use clap::Args;

/// Flags of `pathlab lab`.
#[derive(Args)]
pub struct LabArgs {}

/// Runs the command.
pub fn run(_args: LabArgs, _output: &Output) -> record::Result<()> {
    Err(record::Problem::host("'lab' is not part of this build yet"))
}
