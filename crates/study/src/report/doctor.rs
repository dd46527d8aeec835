//! The page's section of the doctor: the findings with what convicts them and what to do, what is unknown, the counts.

use crate::doctor::measured::of_test;
use crate::doctor::{DoctorPlace, DoctorReport, RuleReport, RuleStatus, text};
use crate::findings::title;
use crate::table::in_plan_order;
use record::RunRecord;
use serde_json::{Value, json};

/// What the doctor says of the facts of a host or of a test.
pub struct Examined {
    /// What they are called on the page: the name of their file or of the test.
    pub name: String,
    /// What the rules say.
    pub report: DoctorReport,
}

/// Of each test that has facts.
pub fn of_tests(runs: &[RunRecord]) -> Vec<Examined> {
    let mut all = vec![];
    for run in runs {
        for test in in_plan_order(run) {
            let name = if runs.len() > 1 { format!("{} of {}", title(test), run.id) } else { title(test) };
            for (host, report) in of_test(test) {
                let host = host.map_or(String::new(), |host| format!(", at {host}"));
                all.push(Examined { name: format!("{name}{host}"), report });
            }
        }
    }
    all
}

/// The template's values.
pub fn section(examined: &Examined) -> Value {
    let report = &examined.report;
    let of = |status| report.rules.iter().filter(move |rule| rule.status == status);
    let unknown = of(RuleStatus::Unknown).map(|rule| (&rule.id, &rule.evidence));
    json!({
        "name": examined.name,
        "findings": of(RuleStatus::Finding).map(finding).collect::<Vec<_>>(),
        "conflicts": text::disagreements(report, false),
        "unknown": unknown.collect::<Vec<_>>(),
        "counts": text::counts(report),
    })
}

/// A rule that fired, at each of its places.
fn finding(rule: &RuleReport) -> Value {
    let places = rule.places.iter().filter(|place| place.status == RuleStatus::Finding);
    let said = |place: &DoctorPlace| match place.place.as_str() {
        "" => place.evidence.clone(),
        name => format!("{name}: {}", place.evidence),
    };
    json!({
        "id": rule.id,
        "places": places.map(said).collect::<Vec<_>>(),
        "meaning": text::meaning(rule),
        "command": rule.command,
        "undo": rule.undo,
        "risk": rule.risk,
    })
}
