//! pathlab: a laboratory for network data paths.
//!
//! This file is the story: read the command line, do the one thing it asks for, end with one sentence and the right
//! exit code if that could not be done.

mod cli;
mod cmd;
mod documents;
mod log;
mod output;
mod progress;
mod shim;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Without the first everything works but the sentence about a file that is too long, without the second what needs few files.
    let _ = linux::sys::process::report_file_limit();
    let _ = linux::sys::process::raise_open_files();
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
