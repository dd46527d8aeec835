//! What `pathlab run --path` prints: several ways between the same two hosts beside each other.

use crate::output::{Output, object};
use experiment::course::Chosen;
use record::run::Criterion;
use record::{Finding, Problem, Result, RunRecord, Severity};
use serde::Serialize;
use study::ways::PathRow;

/// The runs over all ways.
pub struct Compared<'a> {
    /// The ways that were asked for.
    pub ways: &'a [Chosen],
    /// The runs of those that were measured.
    pub runs: &'a [(&'a Chosen, RunRecord)],
    /// Why the others could not be built.
    pub absent: &'a [(&'a Chosen, Problem)],
    /// What these runs have in common.
    pub group: String,
    /// The seed of the order of the tests.
    pub seed: u64,
}

/// Something and the way that it is of.
#[derive(Serialize)]
struct OfWay<T> {
    way: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    offload: Option<&'static str>,
    #[serde(flatten)]
    what: T,
}

impl<T> OfWay<T> {
    fn new(chosen: &Chosen, what: T) -> OfWay<T> {
        OfWay { way: chosen.way.clone(), offload: chosen.offload, what }
    }
}

/// A criterion and its test.
#[derive(Serialize)]
struct OfTest<'a> {
    test: String,
    #[serde(flatten)]
    criterion: &'a Criterion,
}

impl Compared<'_> {
    fn row(&self, chosen: &Chosen) -> PathRow {
        let is = |other: &Chosen| std::ptr::eq(other, chosen);
        let why = self.absent.iter().find(|(other, _)| is(other)).map(|(_, problem)| problem.to_string());
        match self.runs.iter().find(|(other, _)| is(other)) {
            Some((_, run)) => study::ways::row(&chosen.way, run),
            None => {
                let (way, offload) = (chosen.way.clone(), chosen.offload.map(Into::into));
                PathRow { way, offload, not_measured: why, ..PathRow::default() }
            }
        }
    }

    /// Prints it.
    pub fn tell(&self, kept: bool, output: &Output) -> Result<()> {
        let rows: Vec<PathRow> = self.ways.iter().map(|chosen| self.row(chosen)).collect();
        let tests =
            self.runs.iter().flat_map(|(chosen, run)| run.tests.iter().map(move |test| (chosen, test)));
        let criteria = tests.flat_map(|(chosen, test)| {
            let title = study::findings::title(test);
            let of = move |criterion| OfWay::new(chosen, OfTest { test: title.clone(), criterion });
            test.criteria.iter().map(of)
        });
        let findings = self
            .runs
            .iter()
            .flat_map(|(chosen, run)| run.findings.iter().map(|finding| OfWay::new(chosen, finding)));
        let document = object! {
            schema: "pathlab/ways/1",
            group: &self.group,
            seed: self.seed,
            ways: &rows,
            notes: study::ways::notes(&rows),
            criteria: criteria.collect::<Vec<_>>(),
            findings: findings.collect::<Vec<OfWay<&Finding>>>(),
        };
        output.result(&document, |document| self.text(&rows, &document.notes, &document.findings))?;
        if kept {
            let ids: Vec<&str> = self.runs.iter().map(|(_, run)| run.id.as_str()).collect();
            output.note(&format!("as a page: pathlab report {} -o ways.html", ids.join(" ")));
        }
        Ok(())
    }

    fn text(&self, rows: &[PathRow], notes: &[String], findings: &[OfWay<&Finding>]) -> String {
        let mut text = study::ways::table(rows).text();
        for note in notes {
            text += &format!("{note}\n");
        }
        for (chosen, run) in self.runs {
            let table = study::criteria::table(run);
            if !table.rows.is_empty() {
                text += &format!("Criteria over {}\n{}", chosen.title(), table.text());
            }
        }
        for OfWay { way, offload, what } in findings.iter().filter(|of| of.what.severity >= Severity::Warning)
        {
            let way = study::ways::title(way, *offload);
            let test = if what.test.is_empty() { "run" } else { &what.test };
            text += &format!("{way}, {test}: {} ({})\n", what.claim, what.evidence);
        }
        study::text::printable(&text)
    }
}
