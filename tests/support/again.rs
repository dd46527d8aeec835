//! Cases that are played again when they missed their moment, e.g. because a loaded machine gave them no CPU.
//!
//! A second play can hide a test that fails one time in three. So each is bounded, has its reason, and is reported: one line for
//! each case and one for each further play go to the file that `PATHLAB_RETRIES` names, and `make test` prints the rate of each
//! kind at its end and fails above its bound.

use std::io::Write;

/// Appends a line to the file that an environment variable names, if it does. One write for each line: tests run side by side.
pub fn append(variable: &str, line: &str) {
    if let Some(list) = std::env::var_os(variable)
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(list)
    {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

/// Counts a case that may be played again.
pub fn first(kind: &str, case: &str) {
    append("PATHLAB_RETRIES", &format!("first\t{kind}\t{case}"));
}

/// Counts a further play of a case, and says why.
pub fn again(kind: &str, case: &str, why: &str) {
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    println!("again: {kind}: {case}: {why}");
    append("PATHLAB_RETRIES", &format!("again\t{kind}\t{case}\t{why}"));
}

/// Plays a case until it gives no reason to play it again, a bounded number of times; returns the last result.
pub fn play<T>(kind: &str, case: &str, most: usize, mut once: impl FnMut() -> (T, Option<String>)) -> T {
    first(kind, case);
    let mut last = once();
    for _ in 1..most {
        let Some(why) = &last.1 else { break };
        again(kind, case, why);
        last = once();
    }
    last.0
}
