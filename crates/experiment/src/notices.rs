//! What is said while an experiment goes on.

use linux::lab::Lab;
use record::Problem;

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

/// Takes a lab down. What is left behind is said; the results are there.
pub fn down(lab: Lab, notices: &dyn Notices) {
    if let Err(problem) = lab.down() {
        notices.warn(&problem);
    }
}
