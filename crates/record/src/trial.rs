//! A trial: two arms measured in pairs, and what came of it.

use crate::knob::KnobChange;
use serde::{Deserialize, Serialize};

/// The version of the JSON that `prove` and `compare` print.
pub const SCHEMA: &str = "pathlab/trial/1";

/// One pair of measurements.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialPair {
    /// The figure of A.
    pub a: f64,
    /// The figure of B.
    pub b: f64,
    /// B was measured first.
    pub b_first: bool,
}

/// What a trial says of its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum TrialVerdict {
    /// B differs from A.
    Changed,
    /// They differ by less than what was called the same.
    Same,
    /// Neither was shown.
    CannotTell {
        /// How many more pairs would tell, if they vary as these; none when that cannot be said.
        more_pairs: Option<u64>,
    },
}

/// A trial as it is kept and printed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339 in UTC.
    pub begun: String,
    /// When it ended.
    pub ended: String,
    /// The seed of the order within the pairs.
    pub seed: u64,
    /// What is compared with.
    pub a: TrialArm,
    /// What is tried.
    pub b: TrialArm,
    /// The numbers of pairs at which it was looked at, as they were fixed before.
    pub looks: Vec<u64>,
    /// The probability with which the interval of an effect holds the true one.
    pub confidence: f64,
    /// Effects within `1 / (1 + same_within)` to `1 + same_within` count as none.
    pub same_within: f64,
    /// What was measured.
    pub tests: Vec<TrialTest>,
    /// Why it ended before each test had its verdict; none when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// One of the two arms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialArm {
    /// What it is.
    pub title: String,
    /// The id of its record, with every test in full.
    pub run: String,
}

/// One test of a trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialTest {
    /// Its name in the plan.
    pub name: String,
    /// The figure that is compared: `throughput`, `rate`, `p50`, `p99`, `delivered`.
    pub figure: String,
    /// More of it is better.
    pub higher_is_better: bool,
    /// The pairs, in the order in which they were measured.
    pub pairs: Vec<TrialPair>,
    /// Pairs that were measured and are not among them: one of their tests could not be run, has no such figure, or is not valid.
    pub passed_over: u64,
    /// B's figure as a multiple of A's; none without a pair.
    pub effect: Option<Effect>,
    /// None when the trial ended early.
    pub verdict: Option<TrialVerdict>,
    /// What limited the test, by the number of pairs in which it did in A and in B, most first; empty where they do not differ.
    #[serde(default)]
    pub limits: Vec<ArmLimit>,
    /// What else differs between the arms; empty where they do not.
    #[serde(default)]
    pub differences: Vec<ArmDifference>,
    /// The layer of the path in which most of the difference lies; none where no latency was split by layer, or none was longer.
    #[serde(default)]
    pub layer: Option<ArmLayer>,
}

/// What limited a test, and in how many pairs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmLimit {
    /// The verdict of the tests (docs/verdicts.md) and its place.
    pub limit: String,
    /// In so many pairs it limited A.
    pub a: u64,
    /// In so many pairs it limited B.
    pub b: u64,
}

/// Something that was observed of a test beside its figure and differs between the arms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArmDifference {
    /// What it is, e.g. `segments per frame`.
    pub what: String,
    /// Where; empty when the name says it.
    #[serde(rename = "where")]
    pub place: String,
    /// The unit of its values: `ns`, `%`, or empty for a plain number.
    pub unit: String,
    /// The median of A.
    pub a: f64,
    /// The median of B.
    pub b: f64,
    /// B as a multiple of A, with the interval of this difference alone.
    pub effect: Effect,
}

/// The layer in which most of the difference lies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArmLayer {
    /// The layer, as `run --layers` calls it, and where.
    pub layer: String,
    /// How much longer a message is there in the slower arm, in nanoseconds: the median of the pairs.
    pub longer_ns: f64,
    /// How much longer all layers together are.
    pub of_ns: f64,
    /// B is the slower arm.
    pub in_b: bool,
}

/// B's figure as a multiple of A's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The centre.
    pub value: f64,
    /// Lower end of the interval; none when there are too few pairs for one.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

impl TrialTest {
    /// What B is beside A, in one word: `better`, `worse`, `same`, `unknown`.
    pub fn outcome(&self) -> &'static str {
        let is_more = self.effect.is_some_and(|effect| effect.value > 1.0);
        match self.verdict {
            Some(TrialVerdict::Changed) if is_more == self.higher_is_better => "better",
            Some(TrialVerdict::Changed) => "worse",
            Some(TrialVerdict::Same) => "same",
            Some(TrialVerdict::CannotTell { .. }) | None => "unknown",
        }
    }
}

/// The version of the JSON that `prove` prints.
pub const PROOF_SCHEMA: &str = "pathlab/prove/1";

/// Changes of knobs that were tried.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProofRecord {
    /// [`PROOF_SCHEMA`].
    pub schema: String,
    /// The lab; empty when one was built for this alone, or between hosts.
    pub lab: String,
    /// The other host, of a proof between two hosts; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// Traffic goes from that host to this one.
    #[serde(default)]
    pub reverse: bool,
    /// Hosts between the two that were to observe, in the order from this one.
    #[serde(default)]
    pub via: Vec<String>,
    /// What the doctor advised to try, by the loss that it estimated; empty when it was not asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<Suspect>,
    /// Each change by itself, on top of those that were found better before.
    pub proofs: Vec<Proof>,
    /// All that were found better against none of them, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<Proof>,
    /// The changes that stay until 'pathlab tune undo'.
    pub kept: Vec<KnobChange>,
}

/// A change that a rule of the doctor advises.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Suspect {
    /// The rule.
    pub rule: String,
    /// The node, and the interface.
    pub place: String,
    /// The numbers that convict.
    pub evidence: String,
    /// The part of the goal's quantity that it costs, estimated, 0 to 1.
    pub loss: f64,
    /// The change.
    pub change: String,
    /// Why it was not tried; none when it was to be.
    pub left_out: Option<String>,
}

/// One change that was tried.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// What was changed, as it was asked for.
    pub change: String,
    /// The trial: A without the change, B with it.
    pub trial: TrialRecord,
    /// B is better in a test and worse in none.
    pub is_better: bool,
    /// Why it is, or is not, as a sentence.
    pub decision: String,
}
