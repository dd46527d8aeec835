//! A case beside an earlier run of it: on another kernel, driver or host, or before a change.
//!
//! **What.** Compared is the effect (B beside A), and not what either arm measured: the two runs were not made in one sitting, and a host that is faster today
//! makes both arms faster. The ratio of the two effects has an interval from the least of one over the most of the other to the contrary.
//!
//! **Why that interval holds.** Each of the two holds with 95 % at whichever look its trial ended, and the trials are independent. The ratio lies outside
//! only if one of them errs by more than the other has to spare: with normal errors it is inside in 95 % (one interval is far wider) to 99 % (both are
//! alike) of comparisons, and in 90 % whatever the errors are. It is wider than one from all pairs at once, and needs nothing of how the pairs vary.
//!
//! **Price.** What changes both arms alike is not seen.

use super::{test, words};
use crate::trial::expected::{goodness, shown};
use crate::trial::text::{change, middle, percent};
use record::case::{CaseChange, CaseResult, CaseVerdict, CasesRecord, ChangeVerdict, Expectation};
use record::trial::{Effect, TrialPair, TrialTest};

/// Where and when a run of cases was made, in a few words.
fn than(record: &CasesRecord) -> String {
    let label = record.label.as_ref().map_or(String::new(), |label| format!("{label}, "));
    format!("{label}{}, {}", super::place(record), record.begun)
}

/// Compares each case with what an earlier run found of it.
pub fn compare_all(now: &mut CasesRecord, then: &CasesRecord) {
    now.cases.iter_mut().for_each(|case| case.earlier = Some(compare(case, then)));
}

/// What is said of a case beside an earlier run.
pub fn compare(now: &CaseResult, then: &CasesRecord) -> CaseChange {
    let than = than(then);
    let earlier = then.cases.iter().find(|case| case.about.name == now.about.name);
    match earlier.ok_or_else(|| "the earlier run has no such case".into()).and_then(|then| both(now, then)) {
        Ok((verdict, ratio, why)) => CaseChange { than, verdict, ratio: Some(ratio), why },
        Err(why) => CaseChange { than, verdict: ChangeVerdict::NotComparable, ratio: None, why },
    }
}

type Compared = (ChangeVerdict, Effect, String);

fn both(now: &CaseResult, then: &CaseResult) -> Result<Compared, String> {
    if now.about.arms != then.about.arms || now.about.arms.is_empty() {
        return Err("the case was another one then (its text, the length of its tests, a lab in place of two hosts, or the version of IP between them)".into());
    }
    let (new, old) = (measured(now, "now")?, measured(then, "then")?);
    if new.figure != old.figure {
        return Err(format!("{} was compared then, and {} now", old.figure, new.figure));
    }
    let ratio = ratio(new.effect.unwrap_or_default(), old.effect.unwrap_or_default());
    let verdict = judged(ratio, new.higher_is_better, now.about.expected.bound());
    Ok((verdict, ratio, sentence(new, old, ratio)))
}

/// The test of a case, with an effect.
fn measured<'a>(case: &'a CaseResult, when: &str) -> Result<&'a TrialTest, String> {
    let found = test(case).filter(|test| test.effect.is_some() && case.verdict != CaseVerdict::CannotRun);
    found.ok_or_else(|| format!("it has no effect {when}: {}: {}", words(case.verdict), case.why))
}

/// One effect as a multiple of another. Without a bound in one of the two, it has none either.
fn ratio(now: Effect, then: Effect) -> Effect {
    let over = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    Effect { value: now.value / then.value, low: over(now.low, then.high), high: over(now.high, then.low) }
}

fn judged(ratio: Effect, higher_is_better: bool, within: f64) -> ChangeVerdict {
    match shown(Expectation::Same { within }, ratio, higher_is_better) {
        None => ChangeVerdict::CannotTell,
        Some(true) => ChangeVerdict::Same,
        Some(false) if goodness(ratio, higher_is_better).0 > 1.0 => ChangeVerdict::Better,
        Some(false) => ChangeVerdict::Worse,
    }
}

/// The two effects, what lies between them, and what A was each time: a change of the effect may be one of A.
fn sentence(now: &TrialTest, then: &TrialTest, ratio: Effect) -> String {
    let a = |test: &TrialTest| middle(test, |pair: &TrialPair| pair.a);
    let effect = then.effect.map_or(String::new(), percent);
    format!(
        "{}, and {effect} then: B beside A {} (A: {}, and {} then)",
        change(now),
        percent(ratio),
        a(now),
        a(then)
    )
}

/// The cases that became worse, as a sentence; none when there are none.
pub fn regressions<'a>(changes: impl Iterator<Item = (&'a str, &'a CaseChange)>) -> Option<String> {
    let those = changes.filter(|(_, change)| change.verdict == ChangeVerdict::Worse);
    let those: Vec<String> =
        those.map(|(name, change)| format!("{name}: {}, on {}", change.why, change.than)).collect();
    let head = record::unit::many(those.len() as u64, "regression");
    (!those.is_empty()).then(|| format!("{head}: {}", those.join("; ")))
}

/// A verdict in words.
pub fn change_words(verdict: ChangeVerdict) -> &'static str {
    match verdict {
        ChangeVerdict::Worse => "regression",
        ChangeVerdict::Better => "better than then",
        ChangeVerdict::Same => "as then",
        ChangeVerdict::CannotTell => "cannot tell",
        ChangeVerdict::NotComparable => "not comparable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::case::CaseAbout;
    use record::trial::TrialRecord;

    fn case(low: f64, high: f64, is_more_better: bool) -> CaseResult {
        let effect = Some(Effect { value: (low * high).sqrt(), low: Some(low), high: Some(high) });
        let test = TrialTest {
            figure: "rate".into(),
            higher_is_better: is_more_better,
            effect,
            pairs: vec![TrialPair { a: 1e6, b: 2e6, b_first: false }],
            ..TrialTest::default()
        };
        let about = CaseAbout {
            name: "c".into(),
            arms: vec!["test a".into(), "test b".into()],
            expected: Expectation::Same { within: 0.05 },
            ..CaseAbout::default()
        };
        let trial = Some(TrialRecord { tests: vec![test], ..TrialRecord::default() });
        CaseResult { about, verdict: CaseVerdict::AsExpected, trial, ..CaseResult::default() }
    }

    fn run_of(case: CaseResult) -> CasesRecord {
        CasesRecord {
            kernel: "6.6".into(),
            begun: "then".into(),
            cases: vec![case],
            ..CasesRecord::default()
        }
    }

    #[test]
    fn the_effect_is_compared_and_not_the_figures() {
        let of = |now: (f64, f64), then: (f64, f64), is_more: bool| {
            compare(&case(now.0, now.1, is_more), &run_of(case(then.0, then.1, is_more))).verdict
        };
        assert_eq!(of((0.70, 0.75), (0.98, 1.02), true), ChangeVerdict::Worse);
        assert_eq!(of((0.70, 0.75), (0.98, 1.02), false), ChangeVerdict::Better, "a latency");
        assert_eq!(of((1.30, 1.35), (0.98, 1.02), true), ChangeVerdict::Better);
        assert_eq!(of((0.99, 1.01), (0.99, 1.01), true), ChangeVerdict::Same);
        // They overlap, and both are wide.
        assert_eq!(of((0.80, 1.02), (0.95, 1.10), true), ChangeVerdict::CannotTell);
        // Apart, but by less than what counts.
        assert_eq!(of((0.97, 0.98), (0.99, 1.00), true), ChangeVerdict::Same);
    }

    #[test]
    fn a_change_says_both_effects_and_what_a_was() {
        let change = compare(&case(0.49, 0.51, true), &run_of(case(0.98, 1.02, true)));
        assert!(change.than.contains("Linux 6.6, then"), "{change:?}");
        assert!(
            change.why.contains("-50.0 % (-52.0 … -48.0 %)") && change.why.contains("(A: "),
            "{change:?}"
        );
        let said = regressions([("c", &change)].into_iter()).unwrap();
        assert!(said.starts_with("1 regression: c: rate -50.0 %"), "{said}");
        let same = compare(&case(1.0, 1.0, true), &run_of(case(1.0, 1.0, true)));
        assert_eq!(regressions([("c", &same)].into_iter()), None);
    }

    #[test]
    fn what_cannot_be_compared_says_why() {
        let why = |now: &CaseResult, then: CaseResult| {
            let change = compare(now, &run_of(then));
            assert!(change.verdict == ChangeVerdict::NotComparable && change.ratio.is_none(), "{change:?}");
            change.why
        };
        let now = case(1.0, 1.0, true);
        let mut other = now.clone();
        other.about.arms[1] = "test c".into();
        assert!(why(&now, other).contains("another one then"));
        let mut other = now.clone();
        other.about.name = "d".into();
        assert!(why(&now, other).contains("no such case"));
        let (mut other, mut old) = (now.clone(), now.clone());
        (other.verdict, other.trial, other.why) = (CaseVerdict::CannotRun, None, "no bonds".into());
        assert!(why(&now, other).contains("no effect then: cannot be run here: no bonds"));
        // Of a version that did not say what its arms were.
        old.about.arms.clear();
        assert!(why(&old.clone(), old).contains("another one then"));
    }

    #[test]
    fn an_effect_without_bounds_shows_nothing() {
        let mut few = case(1.0, 1.0, true);
        let tests = &mut few.trial.as_mut().unwrap().tests;
        tests[0].effect = Some(Effect { value: 0.1, low: None, high: None });
        assert_eq!(compare(&few, &run_of(case(1.0, 1.0, true))).verdict, ChangeVerdict::CannotTell);
    }
}
