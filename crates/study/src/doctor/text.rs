//! What `pathlab doctor` says to people: suspects with the number that convicts, conflicts, counts.

use super::{DoctorReport, RuleReport, RuleStatus, word};
use crate::table::folded;
use record::TestRecord;
use record::unit::many;
use std::fmt::Write as _;

/// What was found while frames of a test flowed; nothing where facts were not wanted.
pub fn of_test(test: &TestRecord) -> String {
    let of = |(host, report): &(Option<String>, DoctorReport)| {
        let host = host.as_ref().map_or(String::new(), |host| format!("at {host}:\n"));
        host + &in_short(report)
    };
    super::measured::of_test(test).iter().map(of).collect()
}

/// The findings and how many rules had none.
pub fn in_short(report: &DoctorReport) -> String {
    folded(&format!("{}{}\n", suspects(report), counts(report)), 2)
}

/// All findings, the worst first.
fn suspects(report: &DoctorReport) -> String {
    let findings = of(report, RuleStatus::Finding);
    if findings.is_empty() {
        return "nothing found\n".into();
    }
    findings.iter().enumerate().map(|(number, rule)| suspect(number + 1, rule)).collect()
}

/// All of it; with `all` also the rules without a finding.
pub fn report(report: &DoctorReport, all: bool) -> String {
    let mut text = suspects(report);
    text.push_str(&conflicts(report, all));
    let _ = writeln!(text, "\n{}", counts(report));
    if all {
        for status in [RuleStatus::Unknown, RuleStatus::Ok, RuleStatus::NotApplicable] {
            text.push_str(&listed(status, &of(report, status)));
        }
    }
    folded(&text, 2)
}

fn of(report: &DoctorReport, status: RuleStatus) -> Vec<&RuleReport> {
    report.rules.iter().filter(|rule| rule.status == status).collect()
}

/// A finding: where, the numbers, what it means, what to do.
fn suspect(number: usize, rule: &RuleReport) -> String {
    let place = rule.places.first().map_or("", |place| place.place.as_str());
    let at = if place.is_empty() { String::new() } else { format!("{place}: ") };
    let mut text = format!("{number:>2}. {} {at}{}\n", rule.id, rule.evidence);
    let loss = meaning(rule);
    let lines =
        [("", loss.as_str()), ("do: ", &rule.command), ("undo: ", &rule.undo), ("risk: ", &rule.risk)];
    for (head, words) in lines.iter().filter(|(_, words)| !words.is_empty()) {
        let _ = writeln!(text, "    {head}{words}");
    }
    let others = rule.places.iter().skip(1).filter(|place| place.status == RuleStatus::Finding);
    for other in others {
        let _ = writeln!(text, "    also {}: {}", other.place, other.evidence);
    }
    text
}

/// What a finding means, and what it costs.
pub fn meaning(rule: &RuleReport) -> String {
    format!("{}; estimated cost {:.0} % for {}", rule.meaning, rule.loss * 100.0, rule.goals.join(", "))
}

fn conflicts(report: &DoctorReport, all: bool) -> String {
    let shown = disagreements(report, all);
    if shown.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nGoals disagree about\n");
    for words in shown {
        let _ = writeln!(text, "  {words}");
    }
    text
}

/// Settings about which goals disagree: those that a command would change, or all.
pub fn disagreements(report: &DoctorReport, all: bool) -> Vec<String> {
    let findings = of(report, RuleStatus::Finding);
    let is_changed =
        |knob: &str| findings.iter().any(|rule| rule.command.contains(knob.trim_start_matches("sysctl ")));
    let shown = report.conflicts.iter().filter(|one| all || is_changed(&one.knob));
    let words = |conflict: &super::DoctorConflict| {
        format!(
            "{}: now {}; {}; {}. Here: {}",
            conflict.title, conflict.now, conflict.one, conflict.other, conflict.resolution
        )
    };
    shown.map(words).collect()
}

/// How many rules ended how.
pub fn counts(report: &DoctorReport) -> String {
    let of = |status| report.counts.get(word(status)).copied().unwrap_or(0);
    let others = [RuleStatus::Ok, RuleStatus::Unknown, RuleStatus::NotApplicable]
        .map(|status| format!(", {} {}", of(status), word(status)));
    let shown = many(of(RuleStatus::Finding), "finding") + &others.concat();
    format!("{} rules over {:.1} s: {}", report.rules.len(), report.seconds, shown)
}

fn listed(status: RuleStatus, rules: &[&RuleReport]) -> String {
    let mut text = format!("\n{}\n", word(status));
    let mut sorted = rules.to_vec();
    sorted.sort_by(|a, b| a.id.cmp(&b.id));
    for rule in sorted {
        let _ = writeln!(text, "  {} {}", rule.id, rule.evidence);
    }
    text
}
