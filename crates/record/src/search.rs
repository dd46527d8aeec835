//! A search among settings: what was tried, and what came of the best.

use crate::knob::KnobChange;
use crate::trial::Proof;
use serde::{Deserialize, Serialize};

/// The version of the JSON that `tune search` prints.
pub const SEARCH_SCHEMA: &str = "pathlab/tune-search/1";

/// A search as it is printed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchRecord {
    /// [`SEARCH_SCHEMA`].
    pub schema: String,
    /// The lab; empty when one was built for this alone, or between hosts.
    pub lab: String,
    /// The other host, of a search between two hosts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// Traffic goes from that host to this one.
    #[serde(default)]
    pub reverse: bool,
    /// Hosts between the two that were to observe, in the order from this one.
    #[serde(default)]
    pub via: Vec<String>,
    /// The time that it was given, in milliseconds.
    pub budget_ms: u64,
    /// The time that it took.
    pub spent_ms: u64,
    /// The seed of the order, and of the settings that were drawn.
    pub seed: u64,
    /// The id of the record of the exploration, in which each test has its setting in its name.
    pub run: String,
    /// Changes that were not tried.
    pub left_out: Vec<LeftOut>,
    /// How many settings there are: each combination of the values.
    pub possible: u64,
    /// Those that were measured, the best first.
    pub settings: Vec<TriedSetting>,
    /// Changes of the best setting that it is no worse without, in the order in which they were dropped.
    pub unneeded: Vec<String>,
    /// The rest was worse without each of its changes whenever that was measured. False when the time was over before, or a measurement could not
    /// be used. A single change is not looked at again: the proof is about it.
    pub is_minimal: bool,
    /// The rest against the lab as it is; none when nothing seemed better than that.
    pub proof: Option<Proof>,
    /// The changes that stay until 'pathlab tune undo'.
    pub kept: Vec<KnobChange>,
    /// Why it ended early; none when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// A change that was not tried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The change.
    pub change: String,
    /// Why.
    pub why: String,
}

/// A setting that was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TriedSetting {
    /// Its changes; none for the lab as it is.
    pub changes: Vec<String>,
    /// How often it was measured beside the lab as it is, each time with all tests and valid.
    pub measured: u64,
    /// How much better it seemed than the lab as it is: the median over those times of the geometric mean over the tests; 1.1 is a
    /// tenth more of a figure of which more is better, or a tenth less of time. None when it was never measured.
    pub better: Option<f64>,
    /// The round after which it was no longer measured, from 1; none for the best.
    pub left_in: Option<u32>,
}
