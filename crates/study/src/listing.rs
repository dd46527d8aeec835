//! The list of runs as plain text: one line each.

use crate::store::RunSummary;
use crate::table::{Column, Table};
use crate::text::printable;

/// The most characters of a cell; the whole of it is in the JSON.
const WIDEST: usize = 32;

/// The list; `all` is how many runs there are, those that were not asked for included.
pub fn list(runs: &[RunSummary], all: usize) -> String {
    if runs.is_empty() {
        return match all {
            0 => "No runs yet.\n".into(),
            _ => format!("None of the runs ({all}) is like that.\n"),
        };
    }
    // A column in which nobody has anything says nothing.
    let says = |(_, cell): &Column<RunSummary>| runs.iter().any(|run| !cell(run).is_empty());
    let columns: Vec<Column<RunSummary>> = COLUMNS.into_iter().filter(says).collect();
    printable(&Table::of(columns.len(), &columns, runs).text())
}

const COLUMNS: [Column<RunSummary>; 7] = [
    ("run", |run| run.id.clone()),
    ("label", |run| short(run.label.as_deref().unwrap_or_default())),
    ("path", |run| short(&run.path)),
    ("plan", |run| short(&run.plan)),
    ("tests", |run| known(run, run.tests)),
    ("findings", |run| known(run, run.findings)),
    ("state", |run| match (&run.broken, &run.ended) {
        (Some(why), _) => format!("unreadable: {why}"),
        (None, None) => "not finished".into(),
        (None, Some(_)) => String::new(),
    }),
];

fn known(run: &RunSummary, number: usize) -> String {
    if run.broken.is_some() { String::new() } else { number.to_string() }
}

/// A cell is one line, whatever somebody called a run.
fn short(text: &str) -> String {
    let text = text.replace(['\n', '\t'], " ");
    match text.char_indices().nth(WIDEST) {
        None => text,
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_is_a_sentence() {
        assert_eq!(list(&[], 0), "No runs yet.\n");
        assert_eq!(list(&[], 3), "None of the runs (3) is like that.\n");
    }

    #[test]
    fn columns_that_nobody_fills_are_left_out_and_long_words_are_cut() {
        let old = RunSummary {
            id: "20260102T030405Z-abc123".into(),
            tests: 3,
            ended: Some("x".into()),
            ..RunSummary::default()
        };
        assert_eq!(
            list(std::slice::from_ref(&old), 1).lines().next(),
            Some("run                      tests  findings")
        );
        let new = RunSummary {
            path: "bridge".into(),
            plan: "default".into(),
            label: Some("é".repeat(40)),
            ..old.clone()
        };
        let text = list(&[old, new], 2);
        assert!(text.contains(&format!("{}…  bridge  default", "é".repeat(WIDEST))), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert_eq!(short("before\nthe\tpatch"), "before the patch");
    }
}
