//! The page's section of the doctor: the findings with what convicts them and what to do, what is unknown, the counts.

use crate::doctor::{DoctorReport, RuleReport, RuleStatus, word};
use serde_json::{Value, json};

/// What the doctor says of one host's facts.
pub struct Examined {
    /// What they are called on the page: the name of their file.
    pub name: String,
    /// What the rules say.
    pub report: DoctorReport,
}

/// The template's values.
pub fn section(examined: &Examined) -> Value {
    let report = &examined.report;
    let of = |status| report.rules.iter().filter(move |rule| rule.status == status);
    let count = |status| report.counts.get(word(status)).copied().unwrap_or(0);
    let shown = [RuleStatus::Finding, RuleStatus::Ok, RuleStatus::Unknown, RuleStatus::NotApplicable]
        .map(|status| format!("{} {}", count(status), word(status)));
    let unknown = of(RuleStatus::Unknown).map(|rule| (&rule.id, &rule.evidence));
    json!({
        "name": examined.name,
        "findings": of(RuleStatus::Finding).map(finding).collect::<Vec<_>>(),
        "unknown": unknown.collect::<Vec<_>>(),
        "sums": format!("{} rules over {:.1} s: {}", report.rules.len(), report.seconds, shown.join(", ")),
    })
}

/// A rule that fired, at each of its places.
fn finding(rule: &RuleReport) -> Value {
    let places = rule.places.iter().filter(|place| place.status == RuleStatus::Finding);
    let said = |place: &crate::doctor::DoctorPlace| match place.place.as_str() {
        "" => place.evidence.clone(),
        name => format!("{name}: {}", place.evidence),
    };
    let cost = format!("estimated cost {:.0} % for {}", rule.loss * 100.0, rule.goals.join(", "));
    json!({
        "id": rule.id,
        "places": places.map(said).collect::<Vec<_>>(),
        "meaning": format!("{}; {cost}", rule.meaning),
        "command": rule.command,
        "undo": rule.undo,
        "risk": rule.risk,
    })
}
