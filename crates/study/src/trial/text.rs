//! A trial in words.

use super::figures;
use crate::stats::median;
use crate::table::{Column, Table};
use crate::text::printable;
use record::trial::{Effect, Proof, ProofRecord, Suspect, TrialRecord, TrialTest, TrialVerdict};
use record::unit::many;

const COLUMNS: [Column<TrialTest>; 7] = [
    ("test", |test| test.name.clone()),
    ("figure", |test| test.figure.clone()),
    ("A", |test| middle(test, |pair| pair.a)),
    ("B", |test| middle(test, |pair| pair.b)),
    ("B / A", |test| test.effect.map_or("–".into(), |effect| format!("{:.3}", effect.value))),
    ("interval", |test| test.effect.map_or("–".into(), interval)),
    ("pairs", |test| test.pairs.len().to_string()),
];

/// The median of a side, with its unit.
pub fn middle(test: &TrialTest, of: fn(&record::trial::TrialPair) -> f64) -> String {
    let values: Vec<f64> = test.pairs.iter().map(of).collect();
    let text = figures::named(&test.figure).map(|figure| figure.text);
    median(&values).zip(text).map_or("–".into(), |(value, text)| text(value))
}

fn interval(effect: Effect) -> String {
    match (effect.low, effect.high) {
        (Some(low), Some(high)) => format!("{low:.3}…{high:.3}"),
        _ => "unbounded".into(),
    }
}

/// An effect as a change in percent.
pub fn percent(effect: Effect) -> String {
    let of = |value: f64| format!("{:+.1}", (value - 1.0) * 100.0);
    let bounds = effect.low.zip(effect.high);
    let interval = bounds.map_or(String::new(), |(low, high)| format!(" ({} … {} %)", of(low), of(high)));
    format!("{} %{interval}", of(effect.value))
}

/// The effect on the figure of a test, in words.
pub fn change(test: &TrialTest) -> String {
    let effect = test.effect.map_or("unknown".into(), percent);
    format!("{} {effect}", test.figure)
}

/// What came of one test, as a sentence.
pub fn verdict(test: &TrialTest, same_within: f64) -> String {
    let (name, figure) = (&test.name, &test.figure);
    let change = test.effect.map_or(String::new(), |effect| format!(": {figure} {}", percent(effect)));
    let within = format!("{:.3} %", same_within * 100.0);
    let within = within.replace(".000", "");
    match (test.verdict, test.outcome()) {
        (Some(TrialVerdict::Changed), outcome) => format!("{name}: B is {outcome}{change}"),
        (Some(TrialVerdict::Same), _) => format!("{name}: the same within {within}{change}"),
        (Some(TrialVerdict::CannotTell { more_pairs }), _) => {
            let more =
                more_pairs.map_or(String::new(), |more| format!("; about {} would", many(more, "more pair")));
            format!("{name}: no difference shown, and none of {within} ruled out{change}{more}")
        }
        (None, _) => format!("{name}: it ended before there was a verdict{change}"),
    }
}

/// A trial, as the commands print it.
pub fn trial(trial: &TrialRecord) -> String {
    let looks: Vec<String> = trial.looks.iter().map(u64::to_string).collect();
    let mut text = format!(
        "A: {}\nB: {}\nPairs in an order that was drawn (seed {}), looked at after {}; the intervals hold together with {} %.\n\n",
        trial.a.title,
        trial.b.title,
        trial.seed,
        looks.join(", "),
        trial.confidence * 100.0
    );
    text += &Table::of(2, &COLUMNS, &trial.tests).text();
    text.push('\n');
    for test in &trial.tests {
        text += &format!("{}\n", verdict(test, trial.same_within));
        if test.passed_over > 0 {
            text += &format!(
                "  {} passed over: a test could not be run, or is not valid\n",
                many(test.passed_over, "pair")
            );
        }
    }
    if let Some(why) = &trial.stopped {
        text += &format!("ended early: {why}\n");
    }
    printable(&text)
}

/// Changes that were tried, as `pathlab prove` prints them.
pub fn proofs(record: &ProofRecord) -> String {
    let advised: String = record.suspects.iter().map(suspect).collect();
    let mut parts: Vec<String> = (!advised.is_empty()).then(|| printable(&advised)).into_iter().collect();
    parts.extend(record.proofs.iter().map(proof));
    parts.extend(record.together.iter().map(proof));
    let kept = record.kept.iter().map(|knob| {
        let place = [knob.namespace.as_deref(), knob.interface.as_deref()];
        let place: Vec<&str> = place.into_iter().flatten().collect();
        format!("kept: {} {} is {} (was {})\n", place.join(" "), knob.name, knob.set, knob.was)
    });
    let mut kept: String = kept.collect();
    kept += if kept.is_empty() { "nothing was kept\n" } else { "'pathlab tune undo' puts back what was\n" };
    parts.push(printable(&kept));
    parts.join("\n")
}

/// What the doctor advised, and whether it is tried.
fn suspect(suspect: &Suspect) -> String {
    let Suspect { rule, place, evidence, change, .. } = suspect;
    let tried = match &suspect.left_out {
        None => "to be tried".into(),
        Some(why) => format!("not tried: {why}"),
    };
    format!("doctor: {rule} {place}: {evidence}\n  {change}: {tried}\n")
}

fn proof(proof: &Proof) -> String {
    let decision = if proof.is_better { "better" } else { "not kept" };
    format!("{}{decision}: {}\n", trial(&proof.trial), printable(&proof.decision))
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::trial::TrialPair;

    fn test(verdict: Option<TrialVerdict>, value: f64) -> TrialTest {
        TrialTest {
            name: "ping".into(),
            figure: "p50".into(),
            pairs: vec![TrialPair { a: 1000.0, b: 1000.0 * value, b_first: true }],
            effect: Some(Effect { value, low: Some(value - 0.1), high: Some(value + 0.1) }),
            verdict,
            ..TrialTest::default()
        }
    }

    #[test]
    fn each_verdict_has_its_sentence() {
        let changed = Some(TrialVerdict::Changed);
        assert_eq!(verdict(&test(changed, 0.8), 0.02), "ping: B is better: p50 -20.0 % (-30.0 … -10.0 %)");
        assert_eq!(verdict(&test(changed, 1.2), 0.02), "ping: B is worse: p50 +20.0 % (+10.0 … +30.0 %)");
        assert!(
            verdict(&test(Some(TrialVerdict::Same), 1.0), 0.02).starts_with("ping: the same within 2 %: ")
        );
        let cannot = Some(TrialVerdict::CannotTell { more_pairs: Some(1) });
        let words = verdict(&test(cannot, 1.0), 0.025);
        assert!(
            words.contains("none of 2.500 % ruled out") && words.ends_with("about 1 more pair would"),
            "{words}"
        );
        assert!(verdict(&test(None, 1.0), 0.02).contains("before there was a verdict"));
    }

    #[test]
    fn a_trial_is_a_table_and_a_sentence_for_each_test() {
        let record = TrialRecord {
            tests: vec![test(Some(TrialVerdict::Same), 1.0)],
            looks: vec![8, 12],
            confidence: 0.95,
            same_within: 0.02,
            ..TrialRecord::default()
        };
        let text = trial(&record);
        assert!(
            text.contains("looked at after 8, 12") && text.contains("µs") && text.contains("0.900…1.100"),
            "{text}"
        );
    }
}
