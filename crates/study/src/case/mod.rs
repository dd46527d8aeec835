//! What came of test cases: the verdict of each, and the table; what an earlier run found, and runs beside each other.

pub mod earlier;
pub mod matrix;

use crate::table::{Column, Table};
use crate::text::printable;
use crate::trial::expected::shown;
use crate::trial::text::{change, explained as differences, middle};
use record::case::{
    CaseAbout, CaseChange, CaseHosts, CaseList, CaseResult, CaseSuspect, CaseVerdict, CasesRecord,
    Expectation,
};
use record::trial::{TrialPair, TrialRecord, TrialTest};
use record::unit::many;

/// The verdict of a case's trial, and why, as a sentence.
pub fn verdict(trial: &TrialRecord, expected: Expectation) -> (CaseVerdict, String) {
    let Some(test) = trial.tests.first().filter(|_| trial.stopped.is_none()) else {
        let why = trial.stopped.clone().unwrap_or_else(|| "nothing was measured".into());
        return (CaseVerdict::CannotTell, why);
    };
    let is_shown = test.effect.and_then(|effect| shown(expected, effect, test.higher_is_better));
    let change = change(test);
    match is_shown {
        Some(true) => (CaseVerdict::AsExpected, change),
        Some(false) => (CaseVerdict::BugCandidate, format!("{change}, and {expected} was expected")),
        None => {
            let pairs = many(test.pairs.len() as u64, "pair");
            (CaseVerdict::CannotTell, format!("{change}: {pairs} show neither {expected} nor the contrary"))
        }
    }
}

/// What a setting of B must fail alone to be the one that makes the difference: where a gain was expected, a setting that brings none is no fault yet.
pub fn harmful(expected: Expectation) -> Expectation {
    match expected {
        Expectation::Better { by } => Expectation::NotWorse { within: by },
        other => other,
    }
}

/// The settings that make the difference by themselves.
pub fn named(result: &CaseResult) -> Vec<&str> {
    let those = result.alone.iter().filter(|suspect| suspect.makes_it);
    those.map(|suspect| suspect.change.as_str()).collect()
}

/// The bug candidates, as a sentence; none when there are none.
pub fn candidates(record: &CasesRecord) -> Option<String> {
    let those = record.cases.iter().filter(|case| case.verdict == CaseVerdict::BugCandidate);
    let those: Vec<String> = those.map(|case| format!("{}: {}", case.about.name, case.why)).collect();
    let head = many(those.len() as u64, "bug candidate");
    (!those.is_empty()).then(|| format!("{head}: {}", those.join("; ")))
}

const LISTED: [Column<CaseAbout>; 4] = [
    ("case", |case| case.name.clone()),
    ("A → B", differs),
    ("expected of B", |case| case.expected.to_string()),
    ("here", |case| if case.cannot.is_some() { "cannot be run".into() } else { "can be run".into() }),
];

const RUN: [Column<CaseResult>; 8] = [
    ("case", |case| case.about.name.clone()),
    ("A → B", |case| differs(&case.about)),
    ("figure", |case| test(case).map_or(nothing(), |test| test.figure.clone())),
    ("A", |case| test(case).map_or(nothing(), |test| middle(test, |pair: &TrialPair| pair.a))),
    ("B", |case| test(case).map_or(nothing(), |test| middle(test, |pair: &TrialPair| pair.b))),
    ("effect", |case| {
        test(case).map_or(nothing(), |test| change(test).replacen(&format!("{} ", test.figure), "", 1))
    }),
    ("expected", |case| case.about.expected.to_string()),
    ("verdict", |case| words(case.verdict).into()),
];

fn nothing() -> String {
    "–".into()
}

fn test(case: &CaseResult) -> Option<&TrialTest> {
    case.trial.as_ref().and_then(|trial| trial.tests.first())
}

/// What the two arms differ in: settings that both have by name and their two values.
fn differs(case: &CaseAbout) -> String {
    let of = |all: &[String]| if all.is_empty() { "as it is".into() } else { all.join(" ") };
    let pairs = case.a.iter().zip(&case.b).map(|(a, b)| values(a, b));
    match pairs.collect::<Option<Vec<String>>>().filter(|_| case.a.len() == case.b.len()) {
        Some(pairs) if !pairs.is_empty() => pairs.join(", "),
        _ => format!("{} → {}", of(&case.a), of(&case.b)),
    }
}

/// The two values of one setting; none when these are two settings, or none.
fn values(a: &str, b: &str) -> Option<String> {
    let ((name, a), (other, b)) = (a.split_once('=')?, b.split_once('=')?);
    (name == other && !name.contains(' ')).then(|| format!("{name} {a} → {b}"))
}

/// A verdict in words.
pub fn words(verdict: CaseVerdict) -> &'static str {
    match verdict {
        CaseVerdict::AsExpected => "as expected",
        CaseVerdict::BugCandidate => "bug candidate",
        CaseVerdict::CannotTell => "cannot tell",
        CaseVerdict::CannotRun => "cannot be run here",
    }
}

/// The cases that there are, as the command prints them.
pub fn list(list: &CaseList) -> String {
    let mut text = Table::of(4, &LISTED, &list.cases).text();
    for case in list.cases.iter().filter(|case| case.cannot.is_some()) {
        text +=
            &format!("{} cannot be run here: {}\n", case.name, case.cannot.as_deref().unwrap_or_default());
    }
    printable(&text)
}

/// Cases that were run, as the command prints them.
pub fn run(record: &CasesRecord) -> String {
    let mut text = format!("{}\n\n{}\n", place(record), Table::of(2, &RUN, &record.cases).text());
    record.cases.iter().for_each(|case| text += &explained(case));
    record.cases.iter().for_each(|case| text += &beside_earlier(case));
    if let Some(why) = &record.stopped {
        text += &format!("ended early: {why}\n");
    }
    printable(&text)
}

/// Where cases were run: the kernel; between two hosts those of both, with the interfaces between them.
pub(crate) fn place(record: &CasesRecord) -> String {
    let here = format!("Linux {}", record.kernel);
    let Some(hosts) = &record.to else { return here };
    let there = hosts.host.as_ref().map(|host| format!("Linux {}", host.kernel));
    let interface = hosts.far_interface.as_ref().map(|name| format!(", {name}"));
    let there = format!("{}{}", there.unwrap_or_else(|| "not known".into()), interface.unwrap_or_default());
    format!("{here}, {} {} {} ({there})", hosts.interface, arrow(hosts), hosts.name)
}

/// Where traffic goes, between this host on the left and the other one.
fn arrow(hosts: &CaseHosts) -> char {
    if hosts.reverse { '←' } else { '→' }
}

/// What must be said of a case below the table.
fn explained(case: &CaseResult) -> String {
    let mut text = match case.verdict {
        CaseVerdict::AsExpected => return String::new(),
        verdict => format!("{}: {}: {}\n", case.about.name, words(verdict), case.why),
    };
    let is_to_explain = case.verdict == CaseVerdict::BugCandidate;
    text.extend(test(case).filter(|_| is_to_explain).map(differences));
    text.extend(case.alone.iter().map(alone));
    if !case.alone.is_empty() {
        text += &match named(case)[..] {
            [] => "  none of them makes the difference alone\n".into(),
            ref those => format!("  it is {}\n", those.join(" and ")),
        };
    }
    text
}

/// What is said of a case beside an earlier run, if it was compared with one.
fn beside_earlier(case: &CaseResult) -> String {
    let line = |change: &CaseChange| {
        let verdict = earlier::change_words(change.verdict);
        format!("{}, beside {}: {verdict}: {}\n", case.about.name, change.than, change.why)
    };
    case.earlier.as_ref().map_or(String::new(), line)
}

fn alone(suspect: &CaseSuspect) -> String {
    let effect = suspect.trial.tests.first().map_or(nothing(), change);
    let makes_it = if suspect.makes_it { "makes the difference" } else { "does not" };
    format!("  {} alone: {effect}: {makes_it}\n", suspect.change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::trial::Effect;

    fn trial(low: f64, high: f64) -> TrialRecord {
        let effect = Some(Effect { value: (low * high).sqrt(), low: Some(low), high: Some(high) });
        let test =
            TrialTest { figure: "rate".into(), higher_is_better: true, effect, ..TrialTest::default() };
        TrialRecord { tests: vec![test], ..TrialRecord::default() }
    }

    #[test]
    fn a_trial_is_held_against_what_was_expected() {
        let same = Expectation::Same { within: 0.05 };
        let of = |trial: &TrialRecord| verdict(trial, same);
        assert_eq!(of(&trial(0.98, 1.03)).0, CaseVerdict::AsExpected);
        let (found, why) = of(&trial(0.3, 0.4));
        assert_eq!(found, CaseVerdict::BugCandidate);
        assert!(why.contains("(-70.0 … -60.0 %), and same within 5 % was expected"), "{why}");
        assert_eq!(of(&trial(0.9, 1.1)).0, CaseVerdict::CannotTell);
        // Pairs that could not be used, or none at all, show nothing, whatever the effect of the others is.
        let stopped = TrialRecord { stopped: Some("no connection".into()), ..trial(0.98, 1.03) };
        assert_eq!(of(&stopped), (CaseVerdict::CannotTell, "no connection".into()));
        assert_eq!(of(&TrialRecord::default()).0, CaseVerdict::CannotTell);
    }

    #[test]
    fn only_bug_candidates_are_a_failure() {
        let case = |name: &str, verdict| CaseResult {
            about: CaseAbout { name: name.into(), ..CaseAbout::default() },
            verdict,
            why: "why".into(),
            ..CaseResult::default()
        };
        let mut record = CasesRecord {
            cases: vec![case("a", CaseVerdict::CannotRun), case("b", CaseVerdict::CannotTell)],
            ..CasesRecord::default()
        };
        assert_eq!(candidates(&record), None);
        record.cases.push(case("c", CaseVerdict::BugCandidate));
        assert_eq!(candidates(&record).unwrap(), "1 bug candidate: c: why");
        let text = run(&record);
        assert!(
            text.contains("a: cannot be run here: why") && text.contains("b: cannot tell: why"),
            "{text}"
        );
    }

    #[test]
    fn arms_that_differ_in_a_value_are_shown_by_it() {
        let of = |a: &[&str], b: &[&str]| {
            let own = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
            differs(&CaseAbout { a: own(a), b: own(b), ..CaseAbout::default() })
        };
        assert_eq!(of(&["a/eth0:mtu=1500"], &["a/eth0:mtu=9000"]), "a/eth0:mtu 1500 → 9000");
        assert_eq!(of(&[], &["a/eth0:mtu=9000"]), "as it is → a/eth0:mtu=9000");
        assert_eq!(of(&["a/x=1"], &["b/x=1"]), "a/x=1 → b/x=1");
    }
}
