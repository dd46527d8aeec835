//! Runs of the same cases beside each other: on several kernels, drivers or hosts.

use super::earlier::{change_words, compare};
use super::{arrow, test, words};
use crate::table::Table;
use crate::text::printable;
use crate::trial::text::percent;
use record::case::{
    CaseChange, CaseMatrix, CaseVerdict, CasesRecord, ChangeVerdict, MATRIX_SCHEMA, MatrixCase, MatrixCell,
    MatrixRun,
};

/// Puts runs beside each other, each with its file's name. The first is what the others are compared with.
pub fn matrix(runs: &[(String, CasesRecord)]) -> CaseMatrix {
    let mut names: Vec<&str> = vec![];
    for case in runs.iter().flat_map(|(_, run)| &run.cases) {
        if !names.contains(&case.about.name.as_str()) {
            names.push(&case.about.name);
        }
    }
    let row = |name: &&str| MatrixCase { name: (*name).into(), cells: cells(name, runs) };
    CaseMatrix {
        schema: MATRIX_SCHEMA.into(),
        runs: runs.iter().map(|(file, run)| about(file, run, runs)).collect(),
        cases: names.iter().map(row).collect(),
    }
}

fn about(file: &str, run: &CasesRecord, all: &[(String, CasesRecord)]) -> MatrixRun {
    let to =
        |run: &CasesRecord| run.to.as_ref().map_or(String::new(), |to| format!(" {} {}", arrow(to), to.name));
    let name = |run: &CasesRecord| run.label.clone().unwrap_or_else(|| format!("{}{}", run.kernel, to(run)));
    let is_unique = all.iter().filter(|(_, other)| name(other) == name(run)).count() == 1;
    MatrixRun {
        file: file.into(),
        name: if is_unique { name(run) } else { file.into() },
        begun: run.begun.clone(),
        kernel: run.kernel.clone(),
        cpu_model: run.host.cpu_model.clone(),
        to: run.to.as_ref().map(|to| to.name.clone()),
    }
}

/// A case in each of the runs.
fn cells(name: &str, runs: &[(String, CasesRecord)]) -> Vec<Option<MatrixCell>> {
    let Some((_, first)) = runs.first() else { return vec![] };
    let cell = |(number, (_, run)): (usize, &(String, CasesRecord))| {
        let case = run.cases.iter().find(|case| case.about.name == name)?;
        Some(MatrixCell {
            verdict: case.verdict,
            effect: test(case).and_then(|test| test.effect),
            change: (number > 0).then(|| compare(case, first)),
        })
    };
    runs.iter().enumerate().map(cell).collect()
}

/// The regressions of a matrix, as a sentence; none when there are none.
pub fn regressions(matrix: &CaseMatrix) -> Option<String> {
    super::earlier::regressions(matrix.cases.iter().flat_map(changes))
}

/// What is said of a case beside the first run, for each of the others.
fn changes(case: &MatrixCase) -> impl Iterator<Item = (&str, &CaseChange)> {
    case.cells.iter().flatten().filter_map(|cell| Some((case.name.as_str(), cell.change.as_ref()?)))
}

/// A matrix, as the command prints it: the effect of each case in each run.
pub fn text(matrix: &CaseMatrix) -> String {
    // A label may have several lines.
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let heads = matrix.runs.iter().map(|run| one_line(&run.name));
    let table = Table {
        headers: std::iter::once("case".to_owned()).chain(heads).collect(),
        rows: matrix.cases.iter().map(row).collect(),
        words: 1 + matrix.runs.len(),
    };
    let mut text = table.text() + "\n";
    for (number, run) in matrix.runs.iter().enumerate() {
        let first = if number == 0 { "; the others are compared with it" } else { "" };
        let name = one_line(&run.name);
        text += &format!("{name}: {}, Linux {}, {}{first}\n", run.file, run.kernel, run.begun);
    }
    for case in &matrix.cases {
        for (name, change) in changes(case) {
            text += &match change.verdict {
                ChangeVerdict::Same | ChangeVerdict::CannotTell => continue,
                verdict => format!("{name}: {}: {}\n", change_words(verdict), change.why),
            };
        }
    }
    printable(&text)
}

fn row(case: &MatrixCase) -> Vec<String> {
    std::iter::once(case.name.clone()).chain(case.cells.iter().map(cell)).collect()
}

/// The effect, and the verdict where it is not what was hoped for.
fn cell(cell: &Option<MatrixCell>) -> String {
    let Some(cell) = cell else { return "–".into() };
    let effect = cell.effect.map(percent);
    let verdict = Some(words(cell.verdict)).filter(|_| cell.verdict != CaseVerdict::AsExpected);
    let change = cell.change.as_ref().filter(|change| change.verdict == ChangeVerdict::Worse);
    let change = change.map(|change| change_words(change.verdict));
    let parts = [effect.as_deref(), verdict, change];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::case::{CaseAbout, CaseResult, Expectation};
    use record::trial::{Effect, TrialRecord, TrialTest};

    fn case(name: &str, effect: f64) -> CaseResult {
        let test = TrialTest {
            figure: "rate".into(),
            higher_is_better: true,
            effect: Some(Effect { value: effect, low: Some(effect * 0.99), high: Some(effect * 1.01) }),
            ..TrialTest::default()
        };
        let expected = Expectation::Same { within: 0.05 };
        let about = CaseAbout { name: name.into(), arms: vec!["x".into()], expected, ..CaseAbout::default() };
        let trial = Some(TrialRecord { tests: vec![test], ..TrialRecord::default() });
        CaseResult { about, verdict: CaseVerdict::AsExpected, trial, ..CaseResult::default() }
    }

    fn run(kernel: &str, cases: Vec<CaseResult>) -> (String, CasesRecord) {
        (format!("{kernel}.json"), CasesRecord { kernel: kernel.into(), cases, ..CasesRecord::default() })
    }

    #[test]
    fn runs_on_one_kernel_without_labels_are_called_by_their_files() {
        let run = |file: &str| (file.to_owned(), run("6.6", vec![]).1);
        let names: Vec<String> = matrix(&[run("a"), run("b")]).runs.into_iter().map(|run| run.name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_label_of_several_lines_heads_one_column() {
        let mut labelled = run("6.6", vec![case("tso", 2.0)]);
        labelled.1.label = Some("igb,\n  new".into());
        let text = text(&matrix(&[run("6.1", vec![case("tso", 2.0)]), labelled]));
        assert!(text.starts_with("case") && text.lines().next().unwrap().contains("igb, new"), "{text}");
        assert!(text.contains("\nigb, new: 6.6.json"), "{text}");
    }

    #[test]
    fn every_case_of_every_run_has_a_row_and_a_worse_one_is_a_regression() {
        let runs = [
            run("6.1", vec![case("tso", 4.0), case("gro", 1.5)]),
            run("6.6", vec![case("vlan", 1.0), case("tso", 2.0)]),
        ];
        let matrix = matrix(&runs);
        let names: Vec<&str> = matrix.cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["tso", "gro", "vlan"]);
        assert_eq!(matrix.cases[1].cells[1], None);
        assert_eq!((matrix.runs[0].name.as_str(), matrix.runs[1].name.as_str()), ("6.1", "6.6"));
        let text = text(&matrix);
        assert!(text.contains("+100.0 % (+98.0 … +102.0 %), regression"), "{text}");
        assert!(text.contains("vlan: not comparable: the earlier run has no such case"), "{text}");
        assert!(regressions(&matrix).unwrap().starts_with("1 regression: tso: "));
    }
}
