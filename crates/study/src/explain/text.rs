//! Explanations as text.

use super::Explanation;
use crate::table::{self, Table};

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

/// A line for each name.
pub fn list(all: &[Explanation]) -> Table {
    let rows = all.iter().map(|one| vec![one.name.clone(), one.kind.words().to_owned(), first(&one.meaning)]);
    Table { headers: ["NAME", "IS", "MEANS"].map(str::to_owned).to_vec(), rows: rows.collect(), words: 3 }
}

/// The first sentence.
fn first(meaning: &str) -> String {
    meaning.split_inclusive(". ").next().unwrap_or_default().trim_end().to_owned()
}
