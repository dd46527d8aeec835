//! pathlab: a laboratory for network data paths.
//!
//! This file is the story: read the command line, do the one thing it asks for, end with one sentence and the right
//! exit code if that could not be done.

mod cli;
mod cmd;
mod output;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let command_line = cli::Cli::parse();
    let output = output::Output::new(command_line.json);
    match cli::dispatch(command_line.command, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            output.problem(&problem);
            ExitCode::from(problem.kind.exit_code())
        }
    }
}
