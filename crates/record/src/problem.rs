//! One sentence for people when something cannot be done, and the exit code that goes with it.
//!
//! Every error that reaches a person is a [`Problem`]: what was wrong, where, and what to do. The kind decides the
//! exit code, so no caller invents its own.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// The result of anything that may end in a sentence to the user.
pub type Result<T, E = Problem> = std::result::Result<T, E>;

/// Whose turn it is to act; decides the exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The measured thing failed its criterion, or went away in the middle (exit code 1).
    Measured,
    /// A file, flag, frame or peer gave something that cannot be used (exit code 2).
    Input,
    /// This host cannot do it: a capability, a kernel feature or space is missing (exit code 3).
    Host,
}

impl ProblemKind {
    /// The exit code of the process: 1 measured, 2 input, 3 host.
    pub fn exit_code(self) -> u8 {
        match self {
            ProblemKind::Measured => 1,
            ProblemKind::Input => 2,
            ProblemKind::Host => 3,
        }
    }
}

/// What was wrong, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Who has to act.
    pub kind: ProblemKind,
    /// Where it was seen: `file:line:column`, a flag, a node, a peer's address. Empty if there is no place.
    pub place: String,
    /// What was wrong, in one clause without a full stop.
    pub what: String,
    /// What to do, in one clause without a full stop. Empty if `what` already says it.
    pub advice: String,
}

impl Problem {
    /// Bad input: a file, a flag, a frame, a peer that lies.
    pub fn input(what: impl Into<String>) -> Self {
        Self::new(ProblemKind::Input, what)
    }

    /// This host cannot do it.
    pub fn host(what: impl Into<String>) -> Self {
        Self::new(ProblemKind::Host, what)
    }

    /// The measured thing failed its criterion, or a peer vanished in the middle.
    pub fn measured(what: impl Into<String>) -> Self {
        Self::new(ProblemKind::Measured, what)
    }

    fn new(kind: ProblemKind, what: impl Into<String>) -> Self {
        Problem { kind, place: String::new(), what: plain(what.into()), advice: String::new() }
    }

    /// Says where it was seen. An outer place is put before an inner one.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        let place = place.into();
        self.place = if self.place.is_empty() { place } else { format!("{place}: {}", self.place) };
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn help(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}

/// The system's errors without the number that Rust puts behind them: `No such file or directory`, not
/// `No such file or directory (os error 2)`.
fn plain(mut what: String) -> String {
    while let Some(at) = what.find(" (os error ") {
        let Some(length) = what[at..].find(')') else { break };
        what.replace_range(at..=at + length, "");
    }
    what
}

/// What an error of the system says, without its number.
pub fn system_words(error: &std::io::Error) -> String {
    plain(error.to_string())
}

/// What is wrong with JSON, in words that need no knowledge of its reader.
pub fn json_words(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        Category::Eof if line <= 1 && column == 0 => "it is empty".into(),
        Category::Eof => format!("it ends too early, in line {line}"),
        Category::Syntax => format!("line {line}, column {column} is not JSON"),
        Category::Io => format!("it cannot be read: {error}"),
        Category::Data => {
            let text = error.to_string();
            let what = text.split(" at line ").next().unwrap_or_default().replace('`', "'");
            if line == 0 { what } else { format!("line {line}, column {column}: {what}") }
        }
    }
}

/// EMFILE of errno(3), on every architecture of Linux.
const TOO_MANY_OPEN_FILES: i32 = 24;

/// What helps against an error of the system that has one remedy wherever it is met.
pub fn remedy_of(error: &std::io::Error) -> Option<&'static str> {
    (error.raw_os_error() == Some(TOO_MANY_OPEN_FILES)).then_some("raise the limit of open files (ulimit -n)")
}

impl Problem {
    /// Says what [`remedy_of`] the error knows; what was said stays for others.
    #[must_use]
    pub fn remedy(self, error: &std::io::Error) -> Self {
        match remedy_of(error) {
            Some(remedy) => self.help(remedy),
            None => self,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", shortened(&self.place))?;
        }
        f.write_str(&shortened(&self.what))?;
        if !self.advice.is_empty() {
            write!(f, "; {}", shortened(&self.advice))?;
        }
        Ok(())
    }
}

/// Most characters of a part of a sentence: a word of a file may be the whole file.
const LONGEST: usize = 2_000;

/// The begin of what is too long for a sentence.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_without_end_is_cut() {
        let long = Problem::input("ä".repeat(3_000)).to_string();
        assert!(long.chars().count() == LONGEST + 1 && long.ends_with("ä…"), "{}", long.len());
        assert_eq!(Problem::input("ä".repeat(LONGEST)).to_string(), "ä".repeat(LONGEST));
    }

    #[test]
    fn the_systems_words_have_no_number() {
        let error = std::io::Error::from_raw_os_error(2);
        let problem = Problem::input(format!("cannot read the plan: {error}")).at("x.plan");
        assert_eq!(problem.to_string(), "x.plan: cannot read the plan: No such file or directory");
        assert_eq!(system_words(&error), "No such file or directory");
        let two = Problem::host(format!("{error}; a: {error}"));
        assert_eq!(two.what, "No such file or directory; a: No such file or directory");
        assert_eq!(Problem::host("RTNETLINK says (os error 95").what, "RTNETLINK says (os error 95");
    }

    #[test]
    fn json_is_told_without_the_words_of_its_reader() {
        let words = |text: &str| json_words(&serde_json::from_str::<crate::Latency>(text).unwrap_err());
        assert_eq!(words(""), "it is empty");
        assert_eq!(words("{\"min\":1,\n"), "it ends too early, in line 2");
        assert_eq!(words("hello"), "line 1, column 1 is not JSON");
        let missing = words("{}");
        assert!(missing.contains("missing field '") && !missing.contains('`'), "{missing}");
    }

    #[test]
    fn a_problem_reads_as_one_sentence() {
        let problem = Problem::input("unknown node 'c'").help("the nodes are a, b").at("labs/pair.lab:3:6");
        assert_eq!(problem.to_string(), "labs/pair.lab:3:6: unknown node 'c'; the nodes are a, b");
        assert_eq!(problem.kind.exit_code(), 2);
    }

    #[test]
    fn only_a_known_error_changes_the_advice() {
        let of = |errno| {
            Problem::host("cannot").help("do").remedy(&std::io::Error::from_raw_os_error(errno)).advice
        };
        assert_eq!((of(24).as_str(), of(2).as_str()), ("raise the limit of open files (ulimit -n)", "do"));
    }
}
