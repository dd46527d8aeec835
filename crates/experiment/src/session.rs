//! A measured run: everything between "the lab is up" and "the record is written".
//!
//! **What.** For each test: two agents are started inside their nodes, a witness is set to their ports, counters are
//! read on every node, traffic flows, counters are read again when the queues are quiet, and the ledger is closed.
//! [`carry_out`] is the one loop: every test of a plan over every course, whether there is one course or several.
//!
//! **Why in turn.** What changes on the machine in the minutes of a comparison (its clock, its neighbours) then meets all
//! courses alike; so each test runs over every course before the next begins, in an order drawn anew each time.
//!
//! **Price.** The programs of all labs wait beside the one that works; an idle one wakes some 20 times a second.

use crate::measure::{self, Measured};
use crate::notices::Notices;
use crate::plan::{Plan, Planned};
use crate::process::now;
use crate::programs;
use crate::watch::{self, TestObservation};
use linux::lab::Lab;
use linux::observe::Observer;
use load::protocol::setup::EndRole;
use record::{
    Finding, PathVariant, Problem, ProblemKind, Result, RunRecord, Snapshot, TestRecord, TestSpec, Witness,
    WitnessStatus,
};
use std::path::{Path, PathBuf};
use std::time::Duration;
use study::ledger::{Ports, WitnessInput};
use study::stats::SplitMix64;
use study::store::RunWriter;
use study::test::{self, Evidence};

/// How long the lab is watched without traffic, to know its background.
const IDLE_WINDOW: Duration = Duration::from_millis(200);

/// What the record says of a run before anything is measured.
pub struct About {
    /// What the user calls it.
    pub label: Option<String>,
    /// The name of the plan: `default` or its file.
    pub plan: String,
    /// The name of the topology, or `lab NAME`.
    pub topology: String,
    /// The plan as text.
    pub text: String,
}

/// What all tests of a run share.
struct Session<'a> {
    lab: &'a Lab,
    observer: Observer,
    idle: (Snapshot, Snapshot),
    /// What switches said of tests that could not be run.
    told: Vec<Finding>,
}

impl<'a> Session<'a> {
    /// Opens the counters of every node and looks at the lab while nothing happens.
    ///
    /// # Errors
    /// Bad input when the plan names a node that the lab does not have; host problems when counters cannot be read.
    fn begin(lab: &'a Lab, plan: &Plan) -> Result<Session<'a>> {
        for test in &plan.tests {
            check_ends(lab, &test.spec)?;
            // Both ends are on this host.
            for role in [EndRole::Sender, EndRole::Receiver] {
                load::check_host(&test.spec, role).map_err(|problem| problem.at(&test.name))?;
            }
        }
        let mut observer = Observer::new(&watch::namespaces(lab))?;
        let first = observer.snapshot(&[])?;
        std::thread::sleep(IDLE_WINDOW);
        let second = observer.snapshot(&[])?;
        Ok(Session { lab, observer, idle: (first, second), told: vec![] })
    }

    /// Concludes from a measured test, of which the record says where it stands in the run and what was asked.
    fn conclude(&self, planned: &Planned, mut test: TestRecord, measured: Measured) -> TestRecord {
        let Measured { path, outcome, seen, offloads } = measured;
        let ports = Ports {
            sender: seen.ports.sender.first().copied().or(seen.ports.icmp_id).unwrap_or(0),
            receiver: seen.ports.receiver.unwrap_or(0),
        };
        test.invalid = doubts(&seen);
        test.cpu = seen.after.cpus_since(&seen.before);
        test.actors = test::actors(&seen.before, &seen.after);
        (test.path, test.offloads) = (path, offloads);
        (test.sender, test.receiver) = (outcome.sender, outcome.receiver);
        (test.before, test.after) = (seen.before, seen.after);
        let evidence = Evidence {
            idle: Some((&self.idle.0, &self.idle.1)),
            witness: match seen.witness {
                Some(Ok(count)) => WitnessInput::Counted { details: count.details, lost: count.lost },
                Some(Err(absent)) => WitnessInput::Absent(absent),
                None => {
                    WitnessInput::Absent(Witness::absent(WitnessStatus::Unavailable, "the test never began"))
                }
            },
            ports,
            arrival: None,
            planned: planned_messages(&planned.spec),
            seconds: None,
            criteria: planned.criteria,
        };
        test::conclude(&mut test, evidence);
        test
    }

    /// The record before its first test.
    fn header(&self, about: &About, seed: u64) -> RunRecord {
        RunRecord {
            schema: record::run::SCHEMA.into(),
            begun: now(),
            label: about.label.clone(),
            host: linux::observe::host_facts(),
            plan_name: about.plan.clone(),
            topology_name: about.topology.clone(),
            plan: about.text.clone(),
            topology: self.lab.topology().to_string(),
            seed,
            command: std::env::args().collect(),
            ..RunRecord::default()
        }
    }

    /// Runs one test and concludes from it.
    ///
    /// # Errors
    /// What stopped it: a dead agent, a host that cannot, an interrupt.
    fn measure(&mut self, planned: &Planned, test: TestRecord) -> Result<TestRecord> {
        let programs = programs::asked(self.lab);
        // For a test that cannot begin: what a switch did with its first frames may say why.
        let before = watch::glance(&programs);
        let measured = match measure::test(self.lab, &mut self.observer, &planned.spec) {
            Err(problem) if problem.kind == ProblemKind::Measured && !programs.is_empty() => {
                let mut after = Snapshot::default();
                watch::put(&mut after, watch::ask(&programs));
                let title = format!("{} #{}", planned.name, test.repetition);
                self.told.extend(study::switches::findings(&title, &before, &after));
                return Err(problem);
            }
            other => other?,
        };
        Ok(self.conclude(planned, test, measured))
    }
}

/// Why a test is not to be trusted, as far as what was read around it says so.
fn doubts(seen: &TestObservation) -> Vec<String> {
    let mut reasons = seen.ended.clone();
    if let Some(settled) = seen.settled.as_ref().filter(|settled| !settled.quiet) {
        let (waited_ms, moving) = (settled.waited_ns / 1_000_000, settled.moving.join(", "));
        reasons.push(format!("counters still moved {waited_ms} ms after the last message: {moving}"));
    }
    reasons
}

/// How many messages the plan of a test has.
fn planned_messages(spec: &TestSpec) -> Option<u64> {
    let rate = spec.rate?.messages_per_second(spec.message_size());
    Some(load::traffic::schedule::OpenLoopPlan::new(0, rate, spec.duration_ms, spec.count).total())
}

/// One way between the two ends under measurement, with a record of its own.
pub struct Course<'lab> {
    /// What it is called beside others; empty when it is the only one.
    title: String,
    session: Session<'lab>,
    writer: RunWriter,
    not_made: Vec<Finding>,
}

impl<'lab> Course<'lab> {
    /// Looks at a lab and begins a record below `dir`.
    ///
    /// # Errors
    /// As [`Session::begin`]; host: the record cannot be made.
    pub fn begin(
        lab: &'lab Lab,
        plan: &Plan,
        (about, seed): (&About, u64),
        way: Option<PathVariant>,
        dir: &Path,
    ) -> Result<Course<'lab>> {
        let session = Session::begin(lab, plan)?;
        let mut header = session.header(about, seed);
        let mut title = String::new();
        if let Some(way) = &way {
            header.topology_name = way.name.clone();
            title = study::ways::title(&way.name, way.offload.as_deref());
        }
        header.way = way;
        Ok(Course { title, session, writer: RunWriter::create(dir, header)?, not_made: vec![] })
    }

    /// What is measured, in words.
    fn name(&self, planned: &Planned, repetition: u32) -> String {
        match self.title.is_empty() {
            true => format!("{} #{repetition}", planned.name),
            false => format!("{} over {} #{repetition}", planned.name, self.title),
        }
    }

    /// Makes one test and writes it down; one that could not be run is a finding.
    fn test(&mut self, planned: &Planned, test: TestRecord, notices: &dyn Notices) -> Result<()> {
        let repetition = test.repetition;
        match self.session.measure(planned, test) {
            Ok(test) => keep(&mut self.writer, test, notices),
            Err(problem) if problem.kind == ProblemKind::Measured => {
                self.not_made.push(study::findings::not_made(&planned.name, repetition, &problem));
            }
            Err(problem) => return Err(problem),
        }
        Ok(())
    }

    /// Ends the record, whether or not all of it was measured.
    fn close(self, stopped: Option<&Problem>) -> Closed {
        let (directory, not_made) = (self.writer.directory().to_owned(), self.not_made.len());
        let mut findings = self.not_made;
        findings.extend(self.session.told);
        findings.extend(study::findings::findings(self.writer.record()));
        let invalid = stopped.map(|problem| format!("the run ended early: {problem}"));
        let (run, kept) = self.writer.finish(findings, now(), invalid.into_iter().collect());
        Closed { run, directory, kept, not_made }
    }
}

/// A course that was measured, as far as it went.
pub struct Closed {
    /// Its record.
    pub run: RunRecord,
    /// Where it is kept.
    pub directory: PathBuf,
    /// Whether it could be written.
    pub kept: Result<()>,
    /// How many of its tests could not be run.
    pub not_made: usize,
}

/// Every test and repetition of a plan over every course; and what ended that before the last test. A record that cannot be
/// written ends nothing.
pub fn carry_out(
    mut courses: Vec<Course<'_>>,
    plan: &Plan,
    seed: u64,
    notices: &dyn Notices,
) -> (Vec<Closed>, Option<Problem>) {
    let stopped = measure_all(&mut courses, plan, seed, notices).err();
    (courses.into_iter().map(|course| course.close(stopped.as_ref())).collect(), stopped)
}

fn measure_all(courses: &mut [Course<'_>], plan: &Plan, seed: u64, notices: &dyn Notices) -> Result<()> {
    let schedule = plan.schedule(seed);
    let length = |test: usize| load::length_ms(&plan.tests[test].spec);
    let total_ms = schedule.iter().map(|&(test, _)| length(test)).sum::<u64>() * courses.len() as u64;
    let all = schedule.len() * courses.len();
    let mut generator = SplitMix64::new(seed);
    let (mut order, mut done_ms) = (0, 0);
    for (test, repetition) in schedule {
        let planned = &plan.tests[test];
        let mut turns: Vec<usize> = (0..courses.len()).collect();
        generator.shuffle(&mut turns);
        for turn in turns {
            let course = &mut courses[turn];
            order += 1;
            notices.part(&format!("{order}/{all}  {}", course.name(planned, repetition)), done_ms, total_ms);
            let record = TestRecord {
                name: planned.name.clone(),
                repetition,
                order,
                place: test as u32 + 1,
                begun: now(),
                spec: planned.spec.clone(),
                ..TestRecord::default()
            };
            course.test(planned, record, notices)?;
            done_ms += length(test);
        }
    }
    Ok(())
}

/// Writes a test down. What cannot be written is said, and stays in memory: a disk that is full does not end what can be
/// measured, and the results are printed at the end.
fn keep(writer: &mut RunWriter, test: TestRecord, notices: &dyn Notices) {
    let Err(problem) = writer.add(test) else { return };
    // Said once, until something could be written again.
    if writer.record().tests.len() == writer.kept() + 1 {
        notices.warn(&problem);
        notices.note("the run goes on, and its results are printed at the end");
    }
}

/// Both ends are there, they are two, and they have addresses.
fn check_ends(lab: &Lab, spec: &TestSpec) -> Result<()> {
    lab.node(&spec.from)?;
    lab.node(&spec.to)?;
    if spec.from == spec.to {
        let what = format!("the path goes from node '{}' to itself", spec.from);
        return Err(Problem::input(what).help("name two nodes, e.g. 'path a b'"));
    }
    for node in [&spec.from, &spec.to] {
        if lab.address_of(node, spec.family).is_none() {
            let what = format!("node '{node}' has no IPv{} address", spec.family);
            return Err(Problem::input(what).help("give one of its interfaces an address in the topology"));
        }
    }
    Ok(())
}
