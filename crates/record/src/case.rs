//! Test cases: two arms, what is expected of the second, and what came of it.

use crate::host::HostFacts;
use crate::trial::{Effect, TrialRecord};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of the JSON that `case run` prints.
pub const SCHEMA: &str = "pathlab/cases/1";
/// The version of the JSON that `case list` prints.
pub const LIST_SCHEMA: &str = "pathlab/case-list/1";
/// The version of the JSON that `case matrix` prints.
pub const MATRIX_SCHEMA: &str = "pathlab/case-matrix/1";

/// What is expected of B beside A. All bounds are shares of the figure: 0.02 is 2 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Expectation {
    /// B is better, and by no less than this.
    Better {
        /// A gain that is smaller than this is none.
        by: f64,
    },
    /// They differ by less than this, either way.
    Same {
        /// The bound.
        within: f64,
    },
    /// B is not worse by this or more; it may be better.
    NotWorse {
        /// The bound.
        within: f64,
    },
}

impl Expectation {
    /// Its bound, as a share.
    pub fn bound(self) -> f64 {
        match self {
            Expectation::Better { by: bound }
            | Expectation::Same { within: bound }
            | Expectation::NotWorse { within: bound } => bound,
        }
    }
}

impl Default for Expectation {
    fn default() -> Self {
        Expectation::NotWorse { within: 0.02 }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = format!("{:.2}", self.bound() * 100.0);
        let percent = percent.trim_end_matches('0').trim_end_matches('.');
        match self {
            Expectation::Better { .. } => write!(f, "better by {percent} %"),
            Expectation::Same { .. } => write!(f, "same within {percent} %"),
            Expectation::NotWorse { .. } => write!(f, "not worse by {percent} %"),
        }
    }
}

/// What came of a case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseVerdict {
    /// What was expected was shown.
    AsExpected,
    /// The contrary of what was expected was shown.
    BugCandidate,
    /// Neither was shown.
    #[default]
    CannotTell,
    /// Nothing was measured: this host cannot.
    CannotRun,
}

/// A case, nothing measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseAbout {
    /// Its name.
    pub name: String,
    /// What it asks.
    pub question: String,
    /// Where it comes from, with the figures found there.
    pub source: String,
    /// What A has that B does not have.
    pub a: Vec<String>,
    /// What B has that A does not have.
    pub b: Vec<String>,
    /// What is expected of B.
    pub expected: Expectation,
    /// All that A and B are (plan, settings, length of a test in ms), as text. Results of two runs are those of one case when it is the same.
    #[serde(default)]
    pub arms: Vec<String>,
    /// Why it cannot be run here, and what helps; none when it can.
    pub cannot: Option<String>,
}

/// A case that was run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The case.
    #[serde(flatten)]
    pub about: CaseAbout,
    /// What came of it.
    pub verdict: CaseVerdict,
    /// Why, as a sentence.
    pub why: String,
    /// The trial; none when it cannot be run here.
    pub trial: Option<TrialRecord>,
    /// The settings of B that were tried alone.
    pub alone: Vec<CaseSuspect>,
    /// What an earlier run found; none when it was compared with none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<CaseChange>,
}

/// What is said of the effect of a case beside the one that an earlier run found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeVerdict {
    /// B was better then, beside A, by the bound of what is expected or more.
    Worse,
    /// B is better now, by as much.
    Better,
    /// They differ by less.
    Same,
    /// None of these was shown.
    #[default]
    CannotTell,
    /// There is nothing to compare: the case was another one then, or was not measured in both runs.
    NotComparable,
}

/// The effect of a case beside the one that an earlier run found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseChange {
    /// Where and when that was measured.
    pub than: String,
    /// What is said.
    pub verdict: ChangeVerdict,
    /// The effect now as a multiple of the effect then; none when they cannot be compared.
    pub ratio: Option<Effect>,
    /// Why, as a sentence.
    pub why: String,
}

/// A setting of B that was tried alone, because B with all of them is a bug candidate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseSuspect {
    /// The setting.
    pub change: String,
    /// It makes the difference by itself.
    pub makes_it: bool,
    /// The trial: A, and A with this setting.
    pub trial: TrialRecord,
}

/// Cases that were run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CasesRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339 in UTC.
    pub begun: String,
    /// When it ended.
    pub ended: String,
    /// The kernel's release.
    pub kernel: String,
    /// The user's words for it; none when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The host.
    #[serde(default)]
    pub host: HostFacts,
    /// The other host and the interfaces between the two; none of cases in labs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<CaseHosts>,
    /// The cases, in the order in which they were run.
    pub cases: Vec<CaseResult>,
    /// Why it ended before all were run; none when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// The two hosts between which cases were run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseHosts {
    /// The other host as it was named.
    pub name: String,
    /// The interface of this host that leads there.
    pub interface: String,
    /// The one of the other host that leads here; none where it is not known.
    pub far_interface: Option<String>,
    /// The other host; none where it does not tell.
    pub host: Option<HostFacts>,
    /// The first node of a case's path is the other host, and the second this one.
    #[serde(default)]
    pub reverse: bool,
    /// Hosts between the two that were to observe, in the order from this one.
    #[serde(default)]
    pub via: Vec<String>,
}

/// Cases that there are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseList {
    /// [`LIST_SCHEMA`].
    pub schema: String,
    /// The cases.
    pub cases: Vec<CaseAbout>,
}

/// Runs of cases beside each other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseMatrix {
    /// [`MATRIX_SCHEMA`].
    pub schema: String,
    /// The runs, in the order in which they were given. The others are compared with the first.
    pub runs: Vec<MatrixRun>,
    /// The cases, in the order in which they are met.
    pub cases: Vec<MatrixCase>,
}

/// A run of cases among others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MatrixRun {
    /// The file.
    pub file: String,
    /// What it is called in the table: its label, or its kernel; its file where that is the name of another one, too.
    pub name: String,
    /// When it began.
    pub begun: String,
    /// The kernel's release.
    pub kernel: String,
    /// The CPU.
    pub cpu_model: String,
    /// The other host; none of cases in labs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// A case in several runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MatrixCase {
    /// Its name.
    pub name: String,
    /// A cell for each run; none where the case was not run.
    pub cells: Vec<Option<MatrixCell>>,
}

/// What one run found of a case.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MatrixCell {
    /// What came of it.
    pub verdict: CaseVerdict,
    /// B's figure as a multiple of A's; none when nothing was measured.
    pub effect: Option<Effect>,
    /// Beside the first run; none in the first.
    pub change: Option<CaseChange>,
}
