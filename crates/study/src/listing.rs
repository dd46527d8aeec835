//! The list of runs as plain text: one line each.

use crate::store::RunSummary;
use crate::table::Table;
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
    let mut headers = vec!["run", "label", "path", "plan", "tests", "findings", "state"];
    let mut rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    // A column in which nobody has anything says nothing.
    for column in (1..headers.len()).rev() {
        if rows.iter().all(|row| row[column].is_empty()) {
            headers.remove(column);
            rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
    let headers: Vec<String> = headers.into_iter().map(Into::into).collect();
    printable(&Table { words: headers.len(), headers, rows }.text())
}

fn row(run: &RunSummary) -> Vec<String> {
    let state = match (&run.broken, &run.ended) {
        (Some(why), _) => format!("damaged: {why}"),
        (None, None) => "not finished".into(),
        (None, Some(_)) => String::new(),
    };
    let number = |number: usize| if run.broken.is_some() { String::new() } else { number.to_string() };
    let label = run.label.as_deref().unwrap_or_default();
    vec![
        run.id.clone(),
        short(label),
        short(&run.path),
        short(&run.plan),
        number(run.tests),
        number(run.findings),
        state,
    ]
}

fn short(text: &str) -> String {
    match text.char_indices().nth(WIDEST) {
        None => text.into(),
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
    }
}
