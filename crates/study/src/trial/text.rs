//! A trial in words.

use super::{MOST_LOG, figures};
use crate::stats::median;
use crate::table::{Column, Table, WIDTH};
use crate::text::printable;
use record::knob::KnobChange;
use record::line::quoted;
use record::search::{LeftOut, SearchRecord, TriedSetting};
use record::trial::{
    ArmDifference, ArmLimit, Effect, Proof, ProofRecord, Suspect, TrialRecord, TrialTest, TrialVerdict,
};
use record::unit::{many, number, time_ns};

const COLUMNS: [Column<TrialTest>; 7] = [
    ("test", |test| test.name.clone()),
    ("figure", |test| test.figure.clone()),
    ("A", |test| middle(test, |pair| pair.a)),
    ("B", |test| middle(test, |pair| pair.b)),
    ("B / A", |test| test.effect.map_or("–".into(), |effect| times(effect.value))),
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
        (Some(low), Some(high)) => format!("{}…{}", times(low), times(high)),
        _ => "unbounded".into(),
    }
}

/// A multiple; what something is of nothing has no number.
fn times(value: f64) -> String {
    if is_of_nothing(value) { "∞".into() } else { format!("{value:.3}") }
}

fn is_of_nothing(value: f64) -> bool {
    value.ln() > MOST_LOG - 1.0
}

/// An effect as a change in percent.
pub fn percent(effect: Effect) -> String {
    let of = |value: f64| match is_of_nothing(value) {
        true => "+∞".into(),
        false => format!("{:+.1}", (value - 1.0) * 100.0),
    };
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
        text += &explained(test);
        if test.passed_over > 0 {
            text += &format!(
                "  {} passed over: a test could not be run, has no such figure, or is not valid\n",
                many(test.passed_over, "pair")
            );
        }
    }
    if let Some(why) = &trial.stopped {
        text += &format!("ended early: {why}\n");
    }
    printable(&text)
}

/// So many differences are printed.
const TOLD: usize = 8;

const DIFFERENCES: [Column<ArmDifference>; 6] = [
    ("also differs", |one| one.what.clone()),
    ("where", |one| one.place.clone()),
    ("A", |one| with_unit(one.a, &one.unit)),
    ("B", |one| with_unit(one.b, &one.unit)),
    ("B / A", |one| multiple(one.effect.value)),
    ("interval", |one| {
        let Effect { low, high, .. } = one.effect;
        low.zip(high)
            .map_or("unbounded".into(), |(low, high)| format!("{}…{}", multiple(low), multiple(high)))
    }),
];

fn multiple(value: f64) -> String {
    if is_of_nothing(value) { "∞".into() } else { number(value) }
}

fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "ns" => time_ns(value),
        "" => number(value),
        unit => format!("{} {unit}", number(value)),
    }
}

/// What else differs between the arms of a test, the layer of the difference, and what limited each; nothing where they do not differ.
pub fn explained(test: &TrialTest) -> String {
    let mut text = String::new();
    if let Some(layer) = &test.layer {
        let (slower, longer, all) =
            (if layer.in_b { "B" } else { "A" }, time_ns(layer.longer_ns), time_ns(layer.of_ns));
        text +=
            &format!("  {slower} is slower in {}: {longer} longer there, {all} in all layers\n", layer.layer);
    }
    let limited = |arm: &str, of: fn(&ArmLimit) -> u64| {
        let those = test.limits.iter().filter(|limit| of(limit) > 0);
        let those: Vec<String> =
            those.map(|limit| format!("{} ({})", limit.limit, many(of(limit), "time"))).collect();
        format!("  {arm} is limited by {}\n", those.join(", "))
    };
    if !test.limits.is_empty() {
        text += &(limited("A", |limit| limit.a) + &limited("B", |limit| limit.b));
    }
    if !test.differences.is_empty() {
        let table =
            Table::of(2, &DIFFERENCES, test.differences.iter().take(TOLD)).text_within(WIDTH - 2, &[]);
        text.extend(table.lines().map(|line| format!("  {line}\n")));
        if test.differences.len() > TOLD {
            text += &format!("  and {} more, in the JSON\n", test.differences.len() - TOLD);
        }
    }
    text
}

/// So many settings of a search are printed.
const SHOWN: usize = 10;

const SETTINGS: [Column<TriedSetting>; 4] = [
    ("setting", |one| if one.changes.is_empty() { "as it is".into() } else { one.changes.join(" ") }),
    ("better", |one| one.better.map_or("–".into(), |better| format!("{better:.3}"))),
    ("measured", |one| one.measured.to_string()),
    ("left in round", |one| one.left_in.map_or("–".into(), |round| round.to_string())),
];

/// A search, as `pathlab tune search` prints it.
pub fn search(record: &SearchRecord) -> String {
    let (measured, possible) = (record.settings.len(), many(record.possible, "setting"));
    let (spent, budget) = (seconds(record.spent_ms), seconds(record.budget_ms));
    let mut text =
        format!("{measured} of {possible} measured; {spent} of {budget} s; seed {}\n", record.seed);
    text += &left_out(&record.left_out);
    text.push('\n');
    text += &Table::of(1, &SETTINGS, &record.settings[..measured.min(SHOWN)]).text();
    if measured > SHOWN {
        text += &format!("and {} more, in the JSON and in the record\n", measured - SHOWN);
    }
    for change in &record.unneeded {
        text += &format!("\nThe best is no worse without {change}.\n");
    }
    if !record.is_minimal {
        text += "\nIt was not seen that each change of the best is needed: the time was over, or a measurement could not be used.\n";
    }
    let proven = match &record.proof {
        None => "nothing seemed better than what is there\n".into(),
        Some(one) => proof(one),
    };
    [printable(&text), proven, printable(&kept(&record.kept))].join("\n")
}

/// What was not tried, once for each reason.
fn left_out(all: &[LeftOut]) -> String {
    let mut reasons: Vec<&str> = vec![];
    all.iter().for_each(|one| reasons.extend((!reasons.contains(&&*one.why)).then_some(&*one.why)));
    let line = |why: &str| {
        let changes: Vec<&str> =
            all.iter().filter(|one| one.why == why).map(|one| one.change.as_str()).collect();
        format!("not tried ({why}): {}\n", changes.join(", "))
    };
    reasons.into_iter().map(line).collect()
}

fn seconds(ms: u64) -> String {
    format!("{:.0}", ms as f64 / 1000.0)
}

/// Changes that were tried, as `pathlab prove` prints them.
pub fn proofs(record: &ProofRecord) -> String {
    let advised: String = record.suspects.iter().map(suspect).collect();
    let mut parts: Vec<String> = (!advised.is_empty()).then(|| printable(&advised)).into_iter().collect();
    parts.extend(record.proofs.iter().map(proof));
    parts.extend(record.together.iter().map(proof));
    parts.push(printable(&kept(&record.kept)));
    parts.join("\n")
}

/// What stays, and how to undo it.
fn kept(changes: &[KnobChange]) -> String {
    let kept = changes.iter().map(|knob| {
        let place = [knob.namespace.as_deref(), knob.interface.as_deref()];
        let place: Vec<&str> = place.into_iter().flatten().collect();
        format!("kept: {} {} is {} (was {})\n", place.join(" "), knob.name, knob.set, knob.was)
    });
    let mut kept: String = kept.collect();
    if kept.is_empty() {
        return "nothing was kept\n".into();
    }
    let named = |knob: &KnobChange| {
        let name = knob.name.strip_prefix("sysctl ").unwrap_or(&knob.name);
        let place = knob.interface.as_ref().map_or(String::new(), |interface| format!("{interface}:"));
        quoted(&format!("{place}{name}"))
    };
    let mut names: Vec<String> = changes.iter().rev().map(named).collect();
    names.dedup();
    kept += &format!("where it was set, this puts back what was: pathlab tune undo {}\n", names.join(" "));
    kept
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
    use record::trial::{ArmLayer, TrialPair};

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
    fn what_else_differs_is_a_layer_the_limits_and_a_table() {
        let one = |what: &str, unit: &str, a: f64, b: f64| ArmDifference {
            what: what.into(),
            place: "a:eth0 out".into(),
            unit: unit.into(),
            a,
            b,
            effect: Effect { value: b / a, low: Some(0.9 * b / a), high: Some(1.1 * b / a) },
        };
        let limit = |limit: &str, a, b| ArmLimit { limit: limit.into(), a, b };
        let layer = ArmLayer { layer: "qdisc a:eth0".into(), longer_ns: 2.75e6, of_ns: 2.85e6, in_b: true };
        let told = explained(&TrialTest {
            layer: Some(layer),
            limits: vec![limit("round trip", 7, 1), limit("shaper at node a", 0, 6)],
            differences: vec![
                one("segments per frame", "", 40.0, 1.0),
                one("sent again", "%", 0.5, 2.0),
                one("lost", "%", 1e-12, 3.0),
            ],
            ..test(Some(TrialVerdict::Changed), 60.0)
        });
        let lines: Vec<String> =
            told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines[..3],
            [
                "B is slower in qdisc a:eth0: 2.75 ms longer there, 2.85 ms in all layers",
                "A is limited by round trip (7 times)",
                "B is limited by round trip (1 time), shaper at node a (6 times)",
            ]
        );
        assert_eq!(lines[4], "segments per frame a:eth0 out 40.0 1.00 0.025 0.022…0.028");
        assert!(lines[5].starts_with("sent again a:eth0 out 0.500 % 2.00 % 4.00 "), "{told}");
        assert!(lines[6].contains(" ∞ "), "{told}");
        assert!(told.lines().all(|line| line.chars().count() <= 82), "{told}");
        assert_eq!(explained(&test(Some(TrialVerdict::Changed), 60.0)), "");
    }

    #[test]
    fn a_search_is_a_table_of_settings_and_what_came_of_the_best() {
        let setting = |n: u64| TriedSetting {
            changes: (0..n).map(|k| format!("a/eth0:knob{k}=1")).collect(),
            measured: 3,
            better: (n > 0).then_some(1.5),
            left_in: (n > 1).then_some(2),
        };
        let out = |change: &str| LeftOut { change: change.into(), why: "it is so already".into() };
        let record = SearchRecord {
            possible: 96,
            left_out: vec![out("a/x=1"), LeftOut { change: "a/y=1".into(), why: "no".into() }, out("a/z=1")],
            settings: (0..12).map(setting).collect(),
            unneeded: vec!["a/eth0:knob7=1".into()],
            ..SearchRecord::default()
        };
        let text = search(&record);
        for part in [
            "12 of 96 settings measured",
            "not tried (it is so already): a/x=1, a/z=1\nnot tried (no): a/y=1\n",
            "as it is",
            "and 2 more",
            "The best is no worse without a/eth0:knob7=1.",
            "It was not seen that each change",
            "nothing seemed better",
            "nothing was kept",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("knob10"), "{text}");
    }

    #[test]
    fn what_is_kept_is_undone_by_its_names() {
        let change = |interface: Option<&str>, name: &str| KnobChange {
            name: name.into(),
            interface: interface.map(Into::into),
            namespace: Some("pathlab-demo-a".into()),
            was: "1".into(),
            wanted: "2".into(),
            set: "2".into(),
            now: None,
            state: record::knob::ChangeState::Set,
        };
        let text = kept(&[change(Some("eth0"), "rps_cpus@rx-0"), change(None, "sysctl net.core.rmem_max")]);
        assert!(text.ends_with(": pathlab tune undo net.core.rmem_max eth0:rps_cpus@rx-0\n"), "{text}");
        assert_eq!(kept(&[]), "nothing was kept\n");
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
