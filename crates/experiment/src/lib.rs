//! A plan carried out and recorded.
//!
//! **What.** [`plan`] reads an experiment that is written as text; [`session`] carries it out over one course or several: labs are
//! built with [`programs`] in their nodes, each test is made ([`measure`]) while counters and the witness are read around it
//! ([`watch`]), and what came of it is written down. [`null`] is the smallest forwarder, [`bench`] are the benchmarks.
//!
//! **Why here.** This is the only crate that knows both the machine (`linux`, `load`, `switch`) and the conclusions (`study`). Words for
//! people and exit codes are the binary's: whatever is said while an experiment goes on is said through [`Notices`].
//!
//! **Price.** One process per end and per test (about 5 ms), so that CPU time and memory belong to one test only.

pub mod bench;
pub mod course;
pub mod measure;
pub mod null;
pub mod plan;
pub mod programs;
pub mod session;
pub mod watch;

use record::{Problem, Result};

/// What an experiment says while it goes on; where it is shown is the business of whoever started it.
pub trait Notices {
    /// A sentence that matters whether or not anybody watches.
    fn note(&self, line: &str);
    /// What went wrong and ends nothing.
    fn warn(&self, problem: &Problem);
    /// A part of the work begins (a test, a cell, a round), with so much of it done, in milliseconds of traffic; for those
    /// who watch. A total of 0 is unknown.
    fn part(&self, line: &str, done_ms: u64, total_ms: u64);
}

/// Now, in RFC 3339, UTC, with milliseconds.
pub fn now() -> String {
    let ns = linux::sys::clock::realtime_ns();
    jiff::Timestamp::from_nanosecond(i128::from(ns)).map(|t| format!("{t:.3}")).unwrap_or_default()
}

/// From now on an interrupt ends what is going on in order: what was built is taken down.
///
/// # Errors
/// Host: there can be no handler.
pub fn interruptible() -> Result<()> {
    linux::sys::process::install_interrupt_handler()
        .map_err(|e| Problem::host(format!("cannot listen for interrupts: {e}")))
}

/// Takes a lab down. What is left behind is said; the results are there.
fn down(lab: linux::lab::Lab, notices: &dyn Notices) {
    if let Err(problem) = lab.down() {
        notices.warn(&problem);
    }
}

/// The file of the program that is running now: what is measured is what is installed.
fn this_program() -> Result<std::path::PathBuf> {
    std::env::current_exe().map_err(|e| Problem::host(format!("cannot find this program: {e}")))
}
