//! What is the limit, and what should be known about a run.

use serde::{Deserialize, Serialize};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Changes what the number means.
    Warning,
    /// Frames were lost here, or a measurement is invalid.
    Loss,
}

/// A claim, the number that supports it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The test it belongs to, e.g. `udp-stream 64 B #2`; empty for the whole run.
    pub test: String,
    /// What is claimed, one sentence.
    pub claim: String,
    /// The numbers that support it.
    pub evidence: String,
    /// What to do.
    pub advice: String,
}

/// What limited a test, in one sentence with its evidence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// A word that tools can compare: one of [`crate::verdict::VERDICTS`], or for a loss that of the drop (`qdisc`,
    /// `backlog`, `socket_buffer`, `filter`, `mtu`…).
    pub what: String,
    /// Where: `node a, qdisc eth0`, `CPU 1`; empty when the word says it.
    #[serde(rename = "where")]
    pub place: String,
    /// The number that convicts it.
    pub evidence: String,
    /// All of it as one sentence for people.
    #[serde(default)]
    pub sentence: String,
    /// What to do about it, in one clause; empty when nothing is known.
    #[serde(default)]
    pub advice: String,
}
