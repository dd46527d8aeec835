//! This very process: its clock, its interrupts, its program.

use linux::sys::{clock, process};
use record::{Problem, Result};
use std::path::PathBuf;

/// Now, in RFC 3339, UTC, with milliseconds.
pub fn now() -> String {
    let ns = clock::realtime_ns();
    jiff::Timestamp::from_nanosecond(i128::from(ns)).map(|t| format!("{t:.3}")).unwrap_or_default()
}

/// From now on an interrupt ends what is going on in order: what was built is taken down.
///
/// # Errors
/// Host: there can be no handler.
pub fn interruptible() -> Result<()> {
    process::install_interrupt_handler()
        .map_err(|e| Problem::host(format!("cannot listen for interrupts: {e}")))
}

/// The file of the program that is running now: what is measured is what is installed. Where another version was installed over it since, or
/// it was removed, what the kernel still runs of it: both ends of a test are of one version.
pub fn this_program() -> Result<PathBuf> {
    let file =
        std::env::current_exe().map_err(|e| Problem::host(format!("cannot find this program: {e}")))?;
    Ok(if file.exists() { file } else { RUNNING.into() })
}

/// The program of whoever opens it: of the child that is about to become another one, still this.
const RUNNING: &str = "/proc/self/exe";
