//! Explanations as text.

use super::Explanation;
use crate::table;

/// The column in which the text of a fact begins.
const INDENT: usize = 17;

/// Explanations below each other.
pub fn explanations(all: &[Explanation], width: usize) -> String {
    all.iter().map(|one| explanation(one, width)).collect::<Vec<_>>().join("\n")
}

fn explanation(one: &Explanation, width: usize) -> String {
    let mut text = format!("{}  ({})\n", one.name, one.kind.words());
    text += &wrapped(&one.meaning, 2, width);
    for fact in &one.facts {
        let name = fact.name.replace('_', " ");
        let lines = wrapped(&fact.text, INDENT, width);
        text += &format!("  {name:<0$}{1}", INDENT - 2, lines.trim_start());
    }
    text
}

/// Lines of a width, each behind so many blanks.
fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let lines = table::wrapped(text, width.saturating_sub(indent));
    lines.iter().map(|line| format!("{:indent$}{line}\n", "")).collect()
}

/// A line for each name: what it is, and the first sentence of what it means.
pub fn list(all: &[Explanation]) -> String {
    let line = |one: &Explanation| {
        let first = one.meaning.split_inclusive(". ").next().unwrap_or_default();
        format!("{:<44} {:<16} {}\n", one.name, one.kind.words(), first.trim_end())
    };
    all.iter().map(line).collect()
}
