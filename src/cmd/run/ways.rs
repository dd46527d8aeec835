//! What `pathlab run --path` prints: several ways between the same two hosts beside each other.

use crate::output::{Notices, Output, object};
use experiment::session::Closed;
use linux::lab::Lab;
use record::run::Criterion;
use record::{Finding, PathVariant, Result, RunRecord, Severity};
use serde::Serialize;
use study::findings::is_of_validity;
use study::ways::PathRow;

/// A way that was asked for; one that could not be built has the reason.
type Built = (PathVariant, Result<Lab>);

/// Something and the way that it is of.
#[derive(Serialize)]
struct OfWay<'a, T> {
    way: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    offload: Option<&'a str>,
    #[serde(flatten)]
    what: T,
}

/// A criterion and its test.
#[derive(Serialize)]
struct OfTest<'a> {
    test: String,
    #[serde(flatten)]
    criterion: &'a Criterion,
}

impl<'a, T> OfWay<'a, T> {
    fn new(way: &'a PathVariant, what: T) -> Self {
        OfWay { way: &way.name, offload: way.offload.as_deref(), what }
    }
}

/// The name of a way, with the state of the offloads.
pub fn title(way: &PathVariant) -> String {
    study::ways::title(&way.name, way.offload.as_deref())
}

/// The runs that were measured, each with its way.
pub fn runs(closed: &[Closed]) -> impl Iterator<Item = (&PathVariant, &RunRecord)> {
    closed.iter().filter_map(|closed| Some((closed.run.way.as_ref()?, &closed.run)))
}

fn row((way, lab): &Built, closed: &[Closed]) -> PathRow {
    match runs(closed).find(|(of, _)| *of == way) {
        Some((_, run)) => study::ways::row(&way.name, run),
        None => {
            let not_measured = lab.as_ref().err().map(ToString::to_string);
            let (way, offload) = (way.name.clone(), way.offload.clone());
            PathRow { way, offload, not_measured, ..PathRow::default() }
        }
    }
}

/// Prints what was measured with this seed, and where the records are; nothing where it was not `whole` and ended before the first
/// test.
pub fn tell(ways: &[Built], closed: &[Closed], seed: u64, whole: bool, output: &Output) -> Result<()> {
    let kept = closed.iter().filter(|closed| closed.kept.is_ok());
    let kept: Vec<&str> = kept.map(|closed| closed.run.id.as_str()).collect();
    if !kept.is_empty() {
        output.note(&format!("records: {}", kept.join(" ")));
    }
    if !whole && closed.iter().all(|closed| closed.run.tests.is_empty()) {
        return Ok(());
    }
    result(ways, closed, seed, output)?;
    if kept.len() == closed.len() {
        output.note(&format!("as a page: pathlab report {} -o ways.html", kept.join(" ")));
    }
    Ok(())
}

fn result(ways: &[Built], closed: &[Closed], seed: u64, output: &Output) -> Result<()> {
    let rows: Vec<PathRow> = ways.iter().map(|way| row(way, closed)).collect();
    let tests = runs(closed).flat_map(|(way, run)| run.tests.iter().map(move |test| (way, test)));
    let criteria = tests.flat_map(|(way, test)| {
        let title = study::findings::title(test);
        let of = move |criterion| OfWay::new(way, OfTest { test: title.clone(), criterion });
        test.criteria.iter().map(of)
    });
    let findings =
        runs(closed).flat_map(|(way, run)| run.findings.iter().map(|finding| OfWay::new(way, finding)));
    let document = object! {
        schema: "pathlab/ways/1",
        group: ways.first().map(|(way, _)| &way.group),
        seed,
        ways: &rows,
        notes: study::ways::notes(&rows),
        criteria: criteria.collect::<Vec<_>>(),
        findings: findings.collect::<Vec<OfWay<&Finding>>>(),
    };
    output.result(&document, |document| text(closed, &rows, &document.notes, &document.findings))
}

fn text(closed: &[Closed], rows: &[PathRow], notes: &[String], findings: &[OfWay<&Finding>]) -> String {
    let mut text = study::ways::table(rows).text();
    for note in notes {
        text += &format!("{note}\n");
    }
    for (way, run) in runs(closed) {
        let table = study::criteria::table(run);
        if !table.rows.is_empty() {
            text += &format!("Criteria over {}\n{}", title(way), table.text());
        }
    }
    // What makes figures doubtful is in the notes.
    let told = |of: &&OfWay<&Finding>| of.what.severity >= Severity::Warning && !is_of_validity(of.what);
    for OfWay { way, offload, what } in findings.iter().filter(told) {
        let way = study::ways::title(way, *offload);
        let test = if what.test.is_empty() { "run" } else { &what.test };
        text += &format!("{way}, {test}: {} ({})\n", what.claim, what.evidence);
    }
    study::text::printable(&text)
}
