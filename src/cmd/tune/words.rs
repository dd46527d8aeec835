//! What `pathlab tune` says to people.

use crate::output::table;
use linux::tune::row;
use record::knob::{ChangeState, KnobChange, KnobReading};

/// Letters of a value that a table shows.
const SHOWN: usize = 40;

/// A table of knobs.
pub fn knobs(knobs: &[KnobReading]) -> String {
    if knobs.is_empty() {
        return "nothing can be read here".into();
    }
    let rows = knobs.iter().map(knob_row).collect();
    table(6, &["knob", "value", "at most", "", "risk", "meaning"], rows).text().trim_end().to_owned()
}

fn knob_row(knob: &KnobReading) -> Vec<String> {
    let found = row(&knob.name).map(|(row, _)| row);
    let most = knob.most.map(|most| most.to_string()).unwrap_or_default();
    let fixed = if knob.fixed { "fixed" } else { "" };
    let risk = found.map_or("", |row| row.risk.word());
    let meaning = found.filter(|row| !row.name.ends_with('*')).map_or("", |row| row.meaning);
    [&full_name(&knob.interface, &knob.name), &shortened(&knob.value), &most, fixed, risk, meaning]
        .map(|text: &str| text.to_owned())
        .to_vec()
}

fn full_name(interface: &Option<String>, name: &str) -> String {
    interface.as_ref().map_or(name.to_owned(), |interface| format!("{interface}:{name}"))
}

fn shortened(value: &str) -> String {
    let short: String = value.chars().take(SHOWN).collect();
    if short.len() < value.len() { short + "…" } else { short }
}

/// The name of a knob in the namespace that the command is about.
fn here(change: &KnobChange) -> String {
    full_name(&change.interface, &change.name)
}

/// The same, with a namespace that is not ours in front: two may have interfaces of one name.
fn anywhere(change: &KnobChange) -> String {
    let other = change.namespace.as_ref().filter(|namespace| *namespace != "host");
    other.map_or(String::new(), |namespace| format!("{namespace}: ")) + &here(change)
}

fn lines(
    changes: &[KnobChange],
    none: &str,
    name: fn(&KnobChange) -> String,
    line: impl Fn(&KnobChange) -> String,
) -> String {
    if changes.is_empty() {
        return none.to_owned();
    }
    changes.iter().map(|change| name(change) + ": " + &line(change)).collect::<Vec<_>>().join("\n")
}

/// What was set.
pub fn set(changes: &[KnobChange]) -> String {
    lines(changes, "nothing is to be set", here, |change| {
        let made = format!("{} → {}", shortened(&change.was), shortened(&change.set));
        match change.state {
            ChangeState::Already => format!("is {} already", shortened(&change.was)),
            _ if is_rounded(change) => format!("{made} (what the kernel made of {})", change.wanted),
            _ => made,
        }
    })
}

/// A number became another one.
fn is_rounded(change: &KnobChange) -> bool {
    change.set != change.wanted && !change.set.starts_with(&format!("{} ", change.wanted))
}

/// What was put back.
pub fn undone(changes: &[KnobChange]) -> String {
    lines(changes, "nothing was changed", anywhere, |change| match change.state {
        ChangeState::Gone => "left: it is gone, or has another name now".into(),
        ChangeState::Set => format!("still {}: it could not be put back", shortened(&change.set)),
        ChangeState::Undone => format!("{} → {}", shortened(&change.set), shortened(&change.was)),
        _ => foreign(change),
    })
}

fn foreign(change: &KnobChange) -> String {
    let now = change.now.as_deref().unwrap_or_default();
    format!("left at {}: somebody else has set it since it was {}", shortened(now), shortened(&change.set))
}

/// What is changed.
pub fn changes(changes: &[KnobChange]) -> String {
    lines(changes, "nothing is changed", anywhere, |change| match change.state {
        ChangeState::Gone => format!("{} → {}, and gone now", shortened(&change.was), shortened(&change.set)),
        ChangeState::Foreign => {
            let now = change.now.as_deref().unwrap_or_default();
            let made = format!("{} → {}", shortened(&change.was), shortened(&change.set));
            format!("{made}, and {} now, which somebody else has set", shortened(now))
        }
        _ => format!("{} → {}", shortened(&change.was), shortened(&change.set)),
    })
}

/// Where a profile differs.
pub fn differing(changes: &[KnobChange]) -> String {
    lines(changes, "all is as the profile says", here, |change| {
        format!("{}, and {} in the profile", shortened(&change.was), shortened(&change.wanted))
    })
}
