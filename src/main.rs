//! pathlab: a laboratory for network data paths.
//!
//! This file is the story: read the command line, do the one thing it asks for, end with one sentence and the right
//! exit code if that could not be done.

mod bench;
mod cli;
mod cmd;
mod documents;
mod output;
mod plan;
mod run;
mod shim;
mod tenants;

use clap::Parser;
use record::{Problem, Result};
use std::process::ExitCode;

fn main() -> ExitCode {
    let (output, done) = match shim::called_as() {
        Some(name) => {
            let output = output::Output::new(false);
            let done = shim::run(name, &output);
            (output, done)
        }
        None => {
            let command_line = cli::Cli::parse();
            let output = output::Output::new(command_line.json);
            let done = cli::dispatch(command_line.command, &output);
            (output, done)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            output.problem(&problem);
            // A shell knows a program that was interrupted by this code.
            let interrupted = linux::sys::process::interrupted();
            ExitCode::from(if interrupted { 130 } else { problem.kind.exit_code() })
        }
    }
}

/// From now on an interrupt ends what is going on in order: what was built is taken down.
fn interruptible() -> Result<()> {
    linux::sys::process::install_interrupt_handler()
        .map_err(|e| Problem::host(format!("cannot listen for interrupts: {e}")))
}
