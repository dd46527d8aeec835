//! `pathlab agent`.

use crate::output::Output;
use clap::Args;

/// Flags of `pathlab agent`.
#[derive(Args)]
pub struct AgentArgs {}

/// Runs the command.
pub fn run(_args: AgentArgs, _output: &Output) -> record::Result<()> {
    Err(record::Problem::host("'agent' is not part of this build yet"))
}
