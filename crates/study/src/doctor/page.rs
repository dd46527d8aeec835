//! The table of rules in `docs/doctor.md`, made from the rows.

use super::{Advice, CONFLICTS, DoctorRule, SECTIONS};
use std::fmt::Write as _;

/// The tables, as Markdown.
pub fn tables() -> String {
    let mut page = String::new();
    for (title, tables) in SECTIONS {
        let _ = writeln!(
            page,
            "### {title}\n\n| rule | goals | fires when | it means | do | risk | source |\n|---|---|---|---|---|---|---|"
        );
        for rule in tables.iter().flat_map(|table| table.iter()) {
            let _ = writeln!(page, "{}", row(rule));
        }
        page.push('\n');
    }
    page
}

/// The table of conflicts.
pub fn conflicts() -> String {
    let mut page = String::from("| setting | one says | another says | here |\n|---|---|---|---|\n");
    for conflict in CONFLICTS {
        let [one, other] =
            [conflict.one, conflict.other].map(|(value, goals, who)| format!("{value} ({goals}: {who})"));
        let _ = writeln!(page, "| {} | {one} | {other} | {} |", conflict.title, conflict.resolution);
    }
    page
}

fn row(rule: &DoctorRule) -> String {
    let advice = match rule.advice {
        Advice::Knob(knob, "NEW") => format!("set `{knob}` to the value that it works out"),
        Advice::Knob(knob, value) => format!("set `{knob}` to `{value}`"),
        Advice::Knobs(knobs) => {
            let one = |(knob, value): &(&str, &str)| match *value {
                "NEW" => format!("`{knob}` to the value that it works out"),
                value => format!("`{knob}` to `{value}`"),
            };
            format!("set {}", knobs.iter().map(one).collect::<Vec<_>>().join(" and "))
        }
        Advice::PeerKnob(knob, _) => format!("at the other end, set `{knob}` to the value that it works out"),
        Advice::Run(command, _) => format!("`{command}`"),
        Advice::Say(text) => text.to_owned(),
    };
    let cells = [rule.id, rule.goals, rule.condition, rule.meaning, &advice, rule.risk, rule.source];
    format!("| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}
