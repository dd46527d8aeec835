//! `pathlab serve`.

use crate::output::Output;
use clap::Args;

/// Flags of `pathlab serve`.
#[derive(Args)]
pub struct ServeArgs {}

/// Runs the command.
pub fn run(_args: ServeArgs, _output: &Output) -> record::Result<()> {
    Err(record::Problem::host("'serve' is not part of this build yet"))
}
