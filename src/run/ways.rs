//! Several ways between the same two hosts, measured in turn: the experiment of the switch journals.
//!
//! **What.** One lab for each way, all up from begin to end; each test of the plan runs over every way before the next
//! begins, in an order drawn anew each time. Every way gets a record of its own, which `show` and `report` know like any
//! other; together they make the journal's table.
//!
//! **Why in turn.** What changes on the machine in the minutes of a comparison (its clock, its neighbours) then meets all
//! ways alike.
//!
//! **Price.** The programs of all labs wait beside the one that works; an idle one wakes some 20 times a second.

use super::{Place, Session, progress::Progress};
use crate::output::Output;
use crate::plan::Plan;
use crate::tenants;
use linux::lab::{ForwarderKind, Lab, Lifetime, Topology};
use record::{Finding, Problem, ProblemKind, Result, RunRecord, Severity, Way};
use serde::Serialize;
use std::path::Path;
use study::stats::Generator;
use study::store::RunWriter;
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
    findings: Vec<OfWay>,
}

/// A finding and the way that it is of.
#[derive(Serialize)]
struct OfWay {
    way: String,
    #[serde(flatten)]
    finding: Finding,
}

/// One way under measurement.
struct Course<'a> {
    way: String,
    session: Session<'a>,
    writer: RunWriter,
    not_made: Vec<Finding>,
}

/// The topology of a way: `direct`, `bridge`, or a forwarder with the kind of its ports behind a colon.
///
/// # Errors
/// Input: there is no such way.
fn topology(way: &str) -> Result<Topology> {
    let (name, ports) = way.split_once(':').map_or((way, None), |(name, ports)| (name, Some(ports)));
    let unknown = || {
        Problem::input(format!("there is no way '{way}'"))
            .at("--path")
            .help("direct, bridge, null, switch, ovs; null and switch also with a kind of ports: switch:xdp")
    };
    let builtin = match (name, ports) {
        ("direct", None) => "pair",
        ("bridge", None) => "bridge",
        (name, _) if ForwarderKind::of(name).is_some() => name,
        _ => return Err(unknown()),
    };
    let mut text = Topology::builtin(builtin).ok_or_else(unknown)?.to_owned();
    if let Some(ports) = ports {
        text += &format!("ports on s {ports}\n");
    }
    Topology::parse(&text, way).map_err(|problem| match ports {
        Some(_) => unknown(),
        None => problem,
    })
}

/// Measures the plan over every way.
///
/// # Errors
/// Input for an unknown way; what every way refuses; measured when a test could not be made.
pub fn run(ways: &[String], plan: &Plan, text: &str, seed: u64, dir: &Path, output: &Output) -> Result<()> {
    if let Some(twice) = ways.iter().enumerate().find(|(index, way)| ways[..*index].contains(way)) {
        return Err(Problem::input(format!("'{}' is there twice", twice.1)).at("--path"));
    }
    let topologies = ways.iter().map(|way| topology(way)).collect::<Result<Vec<_>>>()?;
    linux::lab::enter_user_namespace()?;
    crate::interruptible()?;
    let mut built: Vec<(String, Lab)> = vec![];
    let mut absent: Vec<(String, Problem)> = vec![];
    for (number, (way, topology)) in ways.iter().zip(&topologies).enumerate() {
        let name = format!("run-{}-{number}", std::process::id());
        match tenants::up(topology, &name, Lifetime::Ephemeral) {
            Ok(lab) => built.push((way.clone(), lab)),
            // What this host cannot is said in the table; what is wrong is wrong.
            Err(problem) if problem.kind == ProblemKind::Host && !linux::sys::process::interrupted() => {
                absent.push((way.clone(), problem));
            }
            Err(problem) => return Err(problem),
        }
    }
    if built.is_empty() && !absent.is_empty() {
        return Err(absent.swap_remove(0).1);
    }
    let group = super::now();
    let mut courses = vec![];
    for (way, lab) in &built {
        let session = Session::begin(lab, plan)?;
        let mut header = session.header(text, seed);
        header.way = Some(Way { name: way.clone(), group: group.clone() });
        let writer = RunWriter::create(dir, header)?;
        courses.push(Course { way: way.clone(), session, writer, not_made: vec![] });
    }
    let ended = measure(&mut courses, plan, seed, output);
    let (mut runs, mut failed, mut unclosed) = (vec![], 0, None);
    for course in courses {
        failed += course.not_made.len();
        match close(course, ended.as_ref().err()) {
            Ok(run) => runs.push(run),
            Err(problem) => unclosed = Some(problem),
        }
    }
    ended?;
    unclosed.map_or(Ok(()), Err)?;
    built.into_iter().try_for_each(|(_, lab)| lab.down())?;
    tell(&conclude(ways, &runs, &absent, group, seed), &runs, output)?;
    match failed {
        0 => Ok(()),
        _ => Err(Problem::measured(format!("{failed} tests could not be made")).help("the findings say why")),
    }
}

/// Every test and repetition over every way.
fn measure(courses: &mut [Course<'_>], plan: &Plan, seed: u64, output: &Output) -> Result<()> {
    let schedule = plan.schedule(seed);
    let length = |test: usize| plan.tests[test].spec.duration_ms;
    let total = schedule.iter().map(|&(test, _)| length(test)).sum::<u64>() * courses.len() as u64;
    let mut progress = Progress::new(output, total);
    let mut generator = Generator::new(seed);
    let all = schedule.len() * courses.len();
    let mut order = 0;
    for (test, repetition) in schedule {
        let planned = &plan.tests[test];
        let mut turns: Vec<usize> = (0..courses.len()).collect();
        generator.shuffle(&mut turns);
        for turn in turns {
            let course = &mut courses[turn];
            order += 1;
            progress.test(&format!("{} over {}", planned.name, course.way), repetition, order, all);
            let begun = course.session.now();
            let place = Place { repetition, order: order as u32, place: test as u32 + 1, begun };
            match course.session.measure(planned, place) {
                Ok(test) => course.writer.add(test)?,
                Err(problem) if problem.kind == ProblemKind::Measured => {
                    let finding = study::findings::not_made(&planned.name, repetition, &problem);
                    course.not_made.push(finding);
                }
                Err(problem) => return Err(problem),
            }
            progress.done(length(test));
        }
    }
    Ok(())
}

/// Ends the record of a way, whether or not all of it was measured.
fn close(mut course: Course<'_>, why: Option<&Problem>) -> Result<RunRecord> {
    let mut findings = course.not_made;
    findings.extend(course.session.take_told());
    findings.extend(study::findings::findings(course.writer.record()));
    let invalid = why.map(|problem| format!("the run ended early: {problem}"));
    course.writer.finish(findings, super::now(), invalid.into_iter().collect())
}

fn conclude(
    ways: &[String],
    runs: &[RunRecord],
    absent: &[(String, Problem)],
    group: String,
    seed: u64,
) -> Document {
    let row = |way: &String| {
        let run = runs.iter().find(|run| run.way.as_ref().is_some_and(|known| known.name == *way));
        let why = absent.iter().find(|(name, _)| name == way).map(|(_, problem)| problem.to_string());
        match run {
            Some(run) => study::ways::row(way, run),
            None => WayRow { way: way.clone(), not_measured: why, ..WayRow::default() },
        }
    };
    let rows: Vec<WayRow> = ways.iter().map(row).collect();
    let findings = runs.iter().flat_map(|run| {
        let way = run.way.as_ref().map(|way| way.name.clone()).unwrap_or_default();
        run.findings.iter().map(move |finding| OfWay { way: way.clone(), finding: finding.clone() })
    });
    Document {
        schema: SCHEMA,
        group,
        seed,
        notes: study::ways::notes(&rows),
        findings: findings.collect(),
        ways: rows,
    }
}

fn tell(document: &Document, runs: &[RunRecord], output: &Output) -> Result<()> {
    let ids: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    output.note(&format!("records: {}", ids.join(" ")));
    output.result(document, |document| {
        let mut text = study::ways::table(&document.ways).text();
        for note in &document.notes {
            text += &format!("{note}\n");
        }
        let told = document.findings.iter().filter(|of| of.finding.severity >= Severity::Warning);
        for OfWay { way, finding } in told {
            let test = if finding.test.is_empty() { "run" } else { &finding.test };
            text += &format!("{way}, {test}: {} ({})\n", finding.claim, finding.evidence);
        }
        study::text::printable(&text)
    })?;
    output.note(&format!("as a page: pathlab report {} -o ways.html", ids.join(" ")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_has_a_topology_or_is_refused() {
        for way in ["direct", "bridge", "null", "null:ring", "switch", "switch:xdp?queue=0", "ovs"] {
            let topology = topology(way).unwrap_or_else(|e| panic!("{way}: {e}"));
            assert!(topology.node("a").is_some() && topology.node("b").is_some());
        }
        assert_eq!(topology("switch:xdp").unwrap().forwarder("s").unwrap().ports, "xdp");
        for way in ["", "router", "direct:int", "switch:pcap", "ovs:int", "switch:", "null:int int"] {
            assert_eq!(topology(way).unwrap_err().kind, ProblemKind::Input, "{way}");
        }
    }
}
