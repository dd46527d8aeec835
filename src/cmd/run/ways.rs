//! What `pathlab run --path` prints: several ways between the same two hosts beside each other.

use crate::output::Output;
use experiment::course::Chosen;
use record::run::Criterion;
use record::{Finding, Problem, Result, RunRecord, Severity, TestRecord};
use serde::Serialize;
use study::ways::WayRow;

/// The version of what `run --path --json` prints.
const SCHEMA: &str = "pathlab/ways/1";

/// What was found out.
#[derive(Serialize)]
pub struct Document {
    schema: &'static str,
    group: String,
    seed: u64,
    ways: Vec<WayRow>,
    notes: Vec<String>,
    criteria: Vec<CriterionOfWay>,
    findings: Vec<OfWay>,
}

/// A criterion of a test over a way.
#[derive(Serialize)]
struct CriterionOfWay {
    way: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    offload: Option<&'static str>,
    test: String,
    #[serde(flatten)]
    criterion: Criterion,
}

/// A finding and the way that it is of.
#[derive(Serialize)]
struct OfWay {
    way: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    offload: Option<&'static str>,
    #[serde(flatten)]
    finding: Finding,
}

/// Puts the runs of all ways together, and the reasons of those that this host cannot build.
pub fn conclude(
    ways: &[Chosen],
    runs: &[(&Chosen, RunRecord)],
    absent: &[(&Chosen, Problem)],
    group: String,
    seed: u64,
) -> Document {
    let row = |chosen: &Chosen| {
        let is = |other: &Chosen| std::ptr::eq(other, chosen);
        let why = absent.iter().find(|(other, _)| is(other)).map(|(_, problem)| problem.to_string());
        match runs.iter().find(|(other, _)| is(other)) {
            Some((_, run)) => study::ways::row(&chosen.way, run),
            None => WayRow {
                way: chosen.way.clone(),
                offload: chosen.offload.map(Into::into),
                not_measured: why,
                ..WayRow::default()
            },
        }
    };
    let rows: Vec<WayRow> = ways.iter().map(row).collect();
    let criteria =
        runs.iter().flat_map(|(chosen, run)| run.tests.iter().flat_map(|test| criteria_of(chosen, test)));
    let findings = runs.iter().flat_map(|(chosen, run)| {
        let of = |finding: &Finding| OfWay {
            way: chosen.way.clone(),
            offload: chosen.offload,
            finding: finding.clone(),
        };
        run.findings.iter().map(of)
    });
    Document {
        schema: SCHEMA,
        group,
        seed,
        notes: study::ways::notes(&rows),
        criteria: criteria.collect(),
        findings: findings.collect(),
        ways: rows,
    }
}

fn criteria_of(chosen: &Chosen, test: &TestRecord) -> Vec<CriterionOfWay> {
    let of = |criterion: &Criterion| CriterionOfWay {
        way: chosen.way.clone(),
        offload: chosen.offload,
        test: study::findings::title(test),
        criterion: criterion.clone(),
    };
    test.criteria.iter().map(of).collect()
}

/// Prints it.
pub fn tell(document: &Document, runs: &[(&Chosen, RunRecord)], kept: bool, output: &Output) -> Result<()> {
    let ids: Vec<&str> = runs.iter().map(|(_, run)| run.id.as_str()).collect();
    output.result(document, |document| {
        let mut text = study::ways::table(&document.ways).text();
        for note in &document.notes {
            text += &format!("{note}\n");
        }
        for (chosen, run) in runs {
            let table = study::criteria::table(run);
            if !table.rows.is_empty() {
                text += &format!("Criteria over {}\n{}", chosen.title(), table.text());
            }
        }
        let told = document.findings.iter().filter(|of| of.finding.severity >= Severity::Warning);
        for OfWay { way, offload, finding } in told {
            let way = study::ways::title(way, *offload);
            let test = if finding.test.is_empty() { "run" } else { &finding.test };
            text += &format!("{way}, {test}: {} ({})\n", finding.claim, finding.evidence);
        }
        study::text::printable(&text)
    })?;
    if kept {
        output.note(&format!("as a page: pathlab report {} -o ways.html", ids.join(" ")));
    }
    Ok(())
}
