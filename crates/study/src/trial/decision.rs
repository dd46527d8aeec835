//! Whether a change is to be kept.

use super::text::verdict;
use record::trial::TrialRecord;

/// True when B is better in a test and worse in none; and why, as a sentence.
pub fn decide(trial: &TrialRecord) -> (bool, String) {
    let of = |outcome: &str| -> Vec<String> {
        let such = trial.tests.iter().filter(|test| test.outcome() == outcome);
        such.map(|test| verdict(test, trial.same_within)).collect()
    };
    let (better, worse) = (of("better"), of("worse"));
    match (better.is_empty(), worse.is_empty()) {
        _ if trial.stopped.is_some() => (false, "the trial ended early".into()),
        (_, false) => (false, worse.join("; ")),
        (false, true) => (true, better.join("; ")),
        (true, true) => (false, "no test is shown to be better".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::trial::{Effect, TrialTest, TrialVerdict};

    #[test]
    fn better_in_one_and_worse_in_none_is_kept() {
        let test = |name: &str, value: Option<f64>| TrialTest {
            name: name.into(),
            figure: "rate".into(),
            higher_is_better: true,
            effect: Some(Effect { value: value.unwrap_or(1.0), ..Effect::default() }),
            verdict: Some(value.map_or(TrialVerdict::Same, |_| TrialVerdict::Changed)),
            ..TrialTest::default()
        };
        let of = |tests: Vec<TrialTest>| decide(&TrialRecord { tests, ..TrialRecord::default() });
        assert!(of(vec![test("x", Some(1.1)), test("y", None)]).0);
        assert!(!of(vec![test("x", None)]).0);
        let (kept, why) = of(vec![test("x", Some(1.1)), test("y", Some(0.9))]);
        assert!(!kept && why.starts_with("y: B is worse"), "{why}");
        let early = TrialRecord {
            tests: vec![test("x", Some(1.1))],
            stopped: Some("interrupted".into()),
            ..TrialRecord::default()
        };
        assert!(!decide(&early).0);
    }
}
