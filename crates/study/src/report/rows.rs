//! The results of all runs as rows of one table: each test of each run is a row, with its repetitions as points.
//!
//! **What.** Rows of one test stand together, in the order of the plan and of the runs, so that courses are compared down a column.
//! A row whose ledger is open, whose host did other work or whose numbers are not to be trusted is marked, with the reason.
//!
//! **Why points.** Three repetitions have no meaningful interval, and a median hides the one that was different; the points of
//! all rows of a test have one scale, from 0.
//!
//! **Price.** The numbers of less interest (tails, CPU of each end, memory) are in a second table.

use super::{SameName, of_run, svg};
use crate::table::{self, SharedColumn, Table, number, over, told};
use crate::{findings, validity};
use record::unit::bits_per_s;
use record::validity::OTHER_WORK;
use record::{Ledger, RunRecord, TestRecord, Trust};
use serde_json::{Value, json};

/// Columns of [`table::RESULTS`] in the first table, behind the points.
const FIRST: [&str; 7] = ["bit/s", "[interval]", "messages/s", "loss %", "p50", "p99", "host %"];

/// Columns of the results that are in the first table, or those that are not.
fn columns(of_first: bool) -> impl Iterator<Item = &'static SharedColumn<TestRecord>> {
    let is_name = |header: &str| header == "test";
    table::RESULTS.iter().filter(move |(header, _)| !is_name(header) && FIRST.contains(header) == of_first)
}

/// The tests of one name by run, of the runs that made some.
fn by_run<'r, 't>(runs: &'r [RunRecord], tests: &SameName<'t>) -> Vec<(&'r RunRecord, Vec<&'t TestRecord>)> {
    let mine = runs.iter().enumerate().map(|(place, run)| (run, of_run(tests, place)));
    mine.filter(|(_, tests)| !tests.is_empty()).collect()
}

/// The columns that name a row.
fn names(runs: &[RunRecord]) -> &'static [&'static str] {
    if runs.len() > 1 { &["test", "run"] } else { &["test"] }
}

/// The first table: `headers`, and of each row its `names`, `points` (SVG, and the same for a CSV), `cells` and `marks`.
pub fn results(runs: &[RunRecord], groups: &[SameName]) -> Value {
    let several = runs.len() > 1;
    let mut rows = vec![];
    for tests in groups {
        let top = tests.iter().filter_map(|(_, test)| test.throughput()).fold(0.0, f64::max);
        let by_run = by_run(runs, tests);
        let first = by_run.first().and_then(|(_, tests)| rate(tests));
        for (place, (run, tests)) in by_run.iter().enumerate() {
            let points = points(tests);
            let mut cells: Vec<String> = columns(true).map(|(_, cell)| cell(tests)).collect();
            if several {
                let ratio = rate(tests).zip(first).filter(|(_, first)| *first > 0.0);
                cells.insert(2, told(ratio.map(|(rate, first)| rate / first), number));
            }
            let named = [&tests[0].name, &run.id];
            rows.push(json!({
                "names": &named[..names(runs).len()],
                "begins": place == 0,
                "points": svg::points(&points, top),
                "csv": points.iter().map(|(_, rate)| format!("{rate:.0}")).collect::<Vec<_>>().join(" "),
                "cells": cells,
                "marks": marks(run, tests),
            }));
        }
    }
    let mut headers: Vec<&str> = columns(true).map(|(header, _)| *header).collect();
    if several {
        headers.insert(2, "× first");
    }
    json!({ "names": names(runs), "headers": headers, "rows": rows })
}

fn rate(tests: &[&TestRecord]) -> Option<f64> {
    over(tests, TestRecord::throughput)
}

/// Each repetition whose rate is known, in words, and where it stands.
fn points(tests: &[&TestRecord]) -> Vec<(String, f64)> {
    let point = |test: &&TestRecord| {
        let rate = test.throughput()?;
        Some((format!("#{}: {}", test.repetition, bits_per_s(rate)), rate))
    };
    tests.iter().filter_map(point).collect()
}

/// The second table: what the first has not.
pub fn more(runs: &[RunRecord], groups: &[SameName]) -> Table {
    let names = names(runs);
    let headers = names.iter().chain(columns(false).map(|(header, _)| header));
    let row = |(run, tests): (&RunRecord, Vec<&TestRecord>)| {
        let mut row = vec![tests[0].name.clone(), run.id.clone()];
        row.truncate(names.len());
        row.extend(columns(false).map(|(_, cell)| cell(&tests)));
        row
    };
    Table {
        headers: headers.map(|header| (*header).to_owned()).collect(),
        rows: groups.iter().flat_map(|tests| by_run(runs, tests)).map(row).collect(),
        words: names.len(),
    }
}

/// Whether the ledger leaves more than its uncertainty, or a station that nobody could read; in words.
fn open(ledger: &Ledger) -> Option<String> {
    let unread = ledger.stations.iter().find(|station| station.unknown.is_some());
    let is_more = ledger.unexplained.unsigned_abs() > ledger.uncertainty;
    let said = unread.map(|station| format!("{} of node {} is unknown", station.station, station.node));
    if is_more { Some(table::sums_words(ledger)) } else { said }
}

/// The reasons of such rows with such a verdict.
fn reasons(test: &TestRecord, verdict: Trust, is: &dyn Fn(&str) -> bool) -> Option<String> {
    let validity = validity::of(test);
    let reasons = validity.reasons.iter().filter(|one| one.verdict == verdict && is(&one.what));
    let said: Vec<&str> = reasons.map(|one| one.reason.as_str()).collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// What makes a row doubtful, with the reason: `class`, `words`, `why`.
fn marks(run: &RunRecord, tests: &[&TestRecord]) -> Vec<Value> {
    let each = |why: &dyn Fn(&TestRecord) -> Option<String>| -> Option<String> {
        let said = tests.iter().filter_map(|test| Some(format!("#{}: {}", test.repetition, why(test)?)));
        let said: Vec<String> = said.collect();
        (!said.is_empty()).then(|| said.join("; "))
    };
    let others = |test: &TestRecord| reasons(test, Trust::Suspect, &|what| what == OTHER_WORK);
    let suspect = |test: &TestRecord| reasons(test, Trust::Suspect, &|what| what != OTHER_WORK);
    let marks = [
        ("bad", "not valid", each(&|test| reasons(test, Trust::Invalid, &|_| true))),
        ("bad", "open ledger", each(&|test| open(test.ledger.as_ref()?))),
        ("doubt", "suspect", each(&suspect)),
        ("doubt", "busy host", each(&others).or_else(|| findings::busy(run))),
    ];
    let said = marks.into_iter().filter_map(|(class, words, why)| Some((class, words, why?)));
    said.map(|(class, words, why)| json!({ "class": class, "words": words, "why": why })).collect()
}
