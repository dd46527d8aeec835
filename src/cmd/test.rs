//! `pathlab test`.

use crate::output::Output;
use clap::Args;

/// Flags of `pathlab test`.
#[derive(Args)]
pub struct TestArgs {}

/// Runs the command.
pub fn run(_args: TestArgs, _output: &Output) -> record::Result<()> {
    Err(record::Problem::host("'test' is not part of this build yet"))
}
