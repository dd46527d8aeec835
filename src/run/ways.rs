//! Several ways between the same two hosts, measured in turn: the experiment of the switch journals.
//!
//! **What.** One lab for each way, all up from begin to end; each test of the plan runs over every way before the next
//! begins, in an order drawn anew each time. Every way gets a record of its own, which `show` and `report` know like any
//! other; together they make the journal's table.
//!
//! **Why in turn.** What changes on the machine in the minutes of a comparison (its clock, its neighbours) then meets all
//! ways alike.
//!
//! **Offloads.** As the kernel gives them, TCP crosses a veth in super-frames of up to 64 KiB and no checksum is computed: what is
//! in the middle then sees a twentieth of the frames that a wire would bring. So a way can also be measured with all
//! offloads of the two hosts' interfaces off, or on, or both; what was asked and what was found is in every record.
//!
//! **Price.** The programs of all labs wait beside the one that works; an idle one wakes some 20 times a second.

use super::{About, Place, Session, progress::Progress};
use crate::output::Output;
use crate::plan::Plan;
use crate::tenants;
use linux::lab::{ForwarderKind, Lab, Lifetime, Topology};
use record::run::Criterion;
use record::{Finding, Problem, ProblemKind, Result, RunRecord, Severity, TestRecord, Way};
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

/// What is done with all offloads of the two hosts' interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Offload {
    /// On.
    On,
    /// Off: frames of wire size, with their checksums.
    Off,
    /// Every way is measured with either.
    Both,
}

impl Offload {
    /// The words of a topology, for each time that a way is measured.
    fn states(choice: Option<Offload>) -> &'static [Option<&'static str>] {
        match choice {
            None => &[None],
            Some(Offload::On) => &[Some("on")],
            Some(Offload::Off) => &[Some("off")],
            Some(Offload::Both) => &[Some("on"), Some("off")],
        }
    }
}

/// A way that is to be measured.
#[derive(Debug)]
pub struct Chosen {
    way: String,
    offload: Option<&'static str>,
    topology: Topology,
}

impl Chosen {
    fn title(&self) -> String {
        study::ways::title(&self.way, self.offload)
    }
}

/// The ways of these names, each with every asked state of the offloads.
///
/// # Errors
/// Input: there is no such way, or it is there twice.
pub fn choose(ways: &[String], offload: Option<Offload>) -> Result<Vec<Chosen>> {
    if let Some(twice) = ways.iter().enumerate().find(|(index, way)| ways[..*index].contains(way)) {
        return Err(Problem::input(format!("'{}' is there twice", twice.1)).at("--path"));
    }
    let states = |way| Offload::states(offload).iter().map(move |state| (way, *state));
    let chosen = ways
        .iter()
        .flat_map(states)
        .map(|(way, offload)| Ok(Chosen { way: way.clone(), offload, topology: topology(way, offload)? }));
    chosen.collect()
}

/// One way under measurement.
struct Course<'lab, 'way> {
    chosen: &'way Chosen,
    session: Session<'lab>,
    writer: RunWriter,
    not_made: Vec<Finding>,
}

/// The topology of a way: `direct`, `bridge`, or a forwarder with the kind of its ports behind a colon. The two hosts of all
/// these are `a` and `b`, with one interface `eth0` each.
///
/// # Errors
/// Input: there is no such way.
fn topology(way: &str, offload: Option<&str>) -> Result<Topology> {
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
    for host in offload.iter().flat_map(|_| ["a", "b"]) {
        text += &format!("interface {host}:eth0 offload {}\n", offload.unwrap_or("on"));
    }
    Topology::parse(&text, way).map_err(|problem| match ports {
        Some(_) => unknown(),
        None => problem,
    })
}

/// Measures the plan over every way.
///
/// # Errors
/// What every way refuses; measured when a test could not be made.
pub fn run(
    ways: Vec<Chosen>,
    plan: &Plan,
    about: &About,
    seed: u64,
    dir: &Path,
    output: &Output,
) -> Result<()> {
    linux::lab::enter_user_namespace()?;
    crate::interruptible()?;
    let Built { labs, mut absent } = build(&ways)?;
    if labs.is_empty() && !absent.is_empty() {
        return Err(absent.swap_remove(0).1);
    }
    let group = super::now();
    let mut courses = vec![];
    for &(chosen, ref lab) in &labs {
        let session = Session::begin(lab, plan)?;
        let mut header = session.header(about, seed);
        let offload = chosen.offload.map(Into::into);
        header.topology_name = chosen.way.clone();
        header.way = Some(Way { name: chosen.way.clone(), group: group.clone(), offload });
        let writer = RunWriter::create(dir, header)?;
        courses.push(Course { chosen, session, writer, not_made: vec![] });
    }
    let ended = measure(&mut courses, plan, seed, output);
    let (mut runs, mut failed, mut written, mut unwritten) = (vec![], 0, vec![], vec![]);
    for course in courses {
        failed += course.not_made.len();
        let chosen = course.chosen;
        let (run, kept) = close(course, ended.as_ref().err());
        match kept {
            Ok(()) => written.push(run.id.clone()),
            Err(problem) => unwritten.push(problem),
        }
        runs.push((chosen, run));
    }
    if !written.is_empty() {
        output.note(&format!("records: {}", written.join(" ")));
    }
    let told = match ended.is_ok() || runs.iter().any(|(_, run)| !run.tests.is_empty()) {
        true => tell(&conclude(&ways, &runs, &absent, group, seed), &runs, unwritten.is_empty(), output),
        false => Ok(()),
    };
    labs.into_iter().for_each(|(_, lab)| output.warn(lab.down()));
    told?;
    if ended.is_err() {
        unwritten.drain(..).for_each(|problem| output.problem(&problem));
    }
    ended?;
    unwritten.into_iter().next().map_or(Ok(()), Err)?;
    let over = |(chosen, run): &(&Chosen, RunRecord)| {
        let failed = study::criteria::failed(run).into_iter();
        failed.map(|sentence| format!("over {}, {sentence}", chosen.title())).collect::<Vec<_>>()
    };
    let missed: Vec<String> = runs.iter().flat_map(over).collect();
    let tests = plan.schedule(seed).len() * runs.len();
    study::criteria::verdict(&missed, failed, tests)
}

/// The labs that are up, and the ways that this host cannot build.
struct Built<'a> {
    labs: Vec<(&'a Chosen, Lab)>,
    absent: Vec<(&'a Chosen, Problem)>,
}

/// Builds a lab for every way.
fn build(ways: &[Chosen]) -> Result<Built<'_>> {
    let mut built = Built { labs: vec![], absent: vec![] };
    for (number, chosen) in ways.iter().enumerate() {
        let name = format!("run-{}-{number}", std::process::id());
        match tenants::up(&chosen.topology, &name, Lifetime::Ephemeral) {
            Ok(lab) => built.labs.push((chosen, lab)),
            // What this host cannot is said in the table; what is wrong is wrong.
            Err(problem) if problem.kind == ProblemKind::Host && !linux::sys::process::interrupted() => {
                built.absent.push((chosen, problem));
            }
            Err(problem) => return Err(problem),
        }
    }
    Ok(built)
}

/// Every test and repetition over every way.
fn measure(courses: &mut [Course<'_, '_>], plan: &Plan, seed: u64, output: &Output) -> Result<()> {
    let schedule = plan.schedule(seed);
    let length = |test: usize| load::length_ms(&plan.tests[test].spec);
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
            progress.test(
                &format!("{} over {}", planned.name, course.chosen.title()),
                repetition,
                order,
                all,
            );
            let begun = course.session.now();
            let place = Place { repetition, order: order as u32, place: test as u32 + 1, begun };
            match course.session.measure(planned, place) {
                Ok(test) => super::keep(&mut course.writer, test, output),
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
fn close(mut course: Course<'_, '_>, why: Option<&Problem>) -> (RunRecord, Result<()>) {
    let mut findings = course.not_made;
    findings.extend(course.session.take_told());
    findings.extend(study::findings::findings(course.writer.record()));
    let invalid = why.map(|problem| format!("the run ended early: {problem}"));
    course.writer.finish(findings, super::now(), invalid.into_iter().collect())
}

fn conclude(
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

fn tell(document: &Document, runs: &[(&Chosen, RunRecord)], kept: bool, output: &Output) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_has_a_topology_or_is_refused() {
        for way in ["direct", "bridge", "null", "null:ring", "switch", "switch:xdp?queue=0", "ovs"] {
            for offload in [None, Some("on"), Some("off")] {
                let topology = topology(way, offload).unwrap_or_else(|e| panic!("{way}: {e}"));
                assert!(topology.node("a").is_some() && topology.node("b").is_some());
                let hosts = ["a", "b"].map(|node| topology.interfaces(node).next().unwrap().offloads.clone());
                for offloads in hosts {
                    assert_eq!(offloads.len(), if offload.is_some() { 7 } else { 0 }, "{way}");
                    assert!(offloads.values().all(|&on| Some(on) == offload.map(|state| state == "on")));
                }
                assert!(topology.interfaces("s").all(|between| between.offloads.is_empty()), "{way}");
            }
        }
        assert_eq!(topology("switch:xdp", None).unwrap().forwarder("s").unwrap().ports, "xdp");
        for way in ["", "router", "direct:int", "switch:pcap", "ovs:int", "switch:", "null:int int"] {
            assert_eq!(topology(way, Some("off")).unwrap_err().kind, ProblemKind::Input, "{way}");
        }
    }

    #[test]
    fn both_is_every_way_twice() {
        let ways = ["direct".to_owned(), "null".to_owned()];
        let titles =
            |offload| -> Vec<String> { choose(&ways, offload).unwrap().iter().map(Chosen::title).collect() };
        assert_eq!(titles(None), ["direct", "null"]);
        assert_eq!(titles(Some(Offload::Off)), ["direct, offload off", "null, offload off"]);
        let both = ["direct, offload on", "direct, offload off", "null, offload on", "null, offload off"];
        assert_eq!(titles(Some(Offload::Both)), both);
        let twice = choose(&["null".to_owned(), "null".to_owned()], None).unwrap_err();
        assert!(twice.kind == ProblemKind::Input && twice.to_string().contains("twice"));
    }
}
