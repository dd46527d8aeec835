//! One sentence for people when something cannot be done, and the exit code that goes with it.
//!
//! Every error that reaches a person is a [`Problem`]: what was wrong, where, and what to do. The kind decides the
//! exit code, so no caller invents its own.

use std::fmt;

/// The result of anything that may end in a sentence to the user.
pub type Result<T, E = Problem> = std::result::Result<T, E>;

/// Whose turn it is to act; decides the exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// The measured thing failed its criterion (exit code 1).
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Bad input: a file, a flag, a frame, a peer that lies or vanishes.
    pub fn input(what: impl Into<String>) -> Self {
        Self::new(ProblemKind::Input, what)
    }

    /// This host cannot do it.
    pub fn host(what: impl Into<String>) -> Self {
        Self::new(ProblemKind::Host, what)
    }

    /// The measured thing failed its criterion.
    pub fn measured(what: impl Into<String>) -> Self {
        Self::new(ProblemKind::Measured, what)
    }

    fn new(kind: ProblemKind, what: impl Into<String>) -> Self {
        Problem { kind, place: String::new(), what: what.into(), advice: String::new() }
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

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.what)?;
        if !self.advice.is_empty() {
            write!(f, "; {}", self.advice)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_one_sentence() {
        let problem = Problem::input("unknown node 'c'").help("the nodes are a, b").at("labs/pair.lab:3:6");
        assert_eq!(problem.to_string(), "labs/pair.lab:3:6: unknown node 'c'; the nodes are a, b");
        assert_eq!(problem.kind.exit_code(), 2);
    }
}
