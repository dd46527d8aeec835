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

use crate::doctor;
use crate::measure::{self, Measured};
use crate::notices::Notices;
use crate::plan::{Extra, Plan, Planned};
use crate::process::now;
use crate::watch::{self, Depth, TestObservation};
use linux::lab::{Lab, Node};
use linux::observe::Observer;
use load::Outcome;
use load::protocol::setup::EndRole;
use record::facts::Facts;
use record::{
    ActorUsage, Conditions, Finding, HostFacts, PathVariant, Problem, ProblemKind, Result, RunRecord,
    Snapshot, TestRecord, TestSpec, Witness, WitnessStatus,
};
use std::path::{Path, PathBuf};
use std::time::Duration;
use study::ledger::{Ports, WitnessInput};
use study::stats::SplitMix64;
use study::store::{self, RunWriter};
use study::test::{self, Evidence};

/// How long the lab is watched without traffic, to know its background.
const IDLE_WINDOW: Duration = Duration::from_millis(200);

/// The interfaces of nodes in a record at most.
const MOST_INTERFACES: usize = 256;

/// Facts of this host, with the interfaces of the lab's nodes.
fn host(lab: &Lab) -> HostFacts {
    let mut host = linux::observe::host_facts();
    let of = |node: &Node| node.within(|| linux::observe::interfaces_of(node.name())).unwrap_or_default();
    host.interfaces.extend(lab.nodes().iter().flat_map(of).take(MOST_INTERFACES));
    host
}

/// The conditions of a test, with what of the lab ended or did not come to rest.
fn conditions(lab: &Lab, spec: &TestSpec, seen: &mut TestObservation) -> Vec<Conditions> {
    let address = |node: &String| lab.address_of(node, spec.family).map(|address| address.to_string());
    let unsettled = seen.settled.as_ref().filter(|settled| !settled.quiet).map(|settled| {
        let (waited_ms, moving) = (settled.waited_ns / 1_000_000, settled.moving.join(", "));
        format!("counters still moved {waited_ms} ms after the last message: {moving}")
    });
    let ended = std::mem::take(&mut seen.ended);
    let ends = [&spec.from, &spec.to].into_iter().filter_map(address).collect();
    let watched = seen.conditions.take().map(|watched| Conditions { ends, ended, unsettled, ..watched });
    watched.into_iter().collect()
}

/// How long each end was stopped.
fn mark_stopped(actors: &mut [ActorUsage], seen: &TestObservation) {
    for process in &seen.after.processes {
        let stopped = seen.beside.stopped.iter().find(|(pid, _)| *pid == process.pid);
        let is_same = |actor: &&mut ActorUsage| actor.role == process.role && actor.node == process.node;
        if let Some((actor, (_, percent))) = actors.iter_mut().find(is_same).zip(stopped) {
            actor.stopped_percent = *percent;
        }
    }
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
    lab: &'lab Lab,
    observer: Observer,
    /// Counters while nothing happened.
    idle: (Snapshot, Snapshot),
    extra: Extra,
    writer: RunWriter,
    not_made: Vec<Finding>,
    /// What switches said of tests that could not be run.
    told: Vec<Finding>,
}

impl<'lab> Course<'lab> {
    /// Opens the counters of every node, looks at the lab while nothing happens, and begins a record below `dir`. `about` is what
    /// is known of the run before: its label, its plan and its seed.
    ///
    /// # Errors
    /// Bad input when the plan names a node that the lab does not have; host problems when counters cannot be read, or the record
    /// cannot be made.
    pub fn begin(
        lab: &'lab Lab,
        plan: &Plan,
        about: &RunRecord,
        way: Option<PathVariant>,
        dir: &Path,
    ) -> Result<Course<'lab>> {
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
        let idle = (first, observer.snapshot(&[])?);
        let of =
            |way: &PathVariant| (way.name.clone(), study::ways::title(&way.name, way.offload.as_deref()));
        let (topology_name, title) = way.as_ref().map_or((about.topology_name.clone(), String::new()), of);
        let header = RunRecord {
            schema: record::run::SCHEMA.into(),
            begun: now(),
            host: host(lab),
            topology_name,
            topology: lab.topology().to_string(),
            command: std::env::args().collect(),
            way,
            ..about.clone()
        };
        let writer = RunWriter::create(dir, header)?;
        let extra = plan.extra;
        Ok(Course { title, lab, observer, idle, extra, writer, not_made: vec![], told: vec![] })
    }

    /// What is measured, in words.
    fn name(&self, planned: &Planned, repetition: u32) -> String {
        match self.title.is_empty() {
            true => format!("{} #{repetition}", planned.name),
            false => format!("{} over {} #{repetition}", planned.name, self.title),
        }
    }

    /// Measures one test of the plan (by its place there) as the `order`-th of the run: what came of it. None when it could not be run, which is a
    /// finding.
    ///
    /// # Errors
    /// What ends a run: an interrupt, a host that cannot go on.
    pub fn measure(
        &mut self,
        plan: &Plan,
        test: usize,
        repetition: u32,
        order: u32,
        notices: &dyn Notices,
    ) -> Result<Option<&TestRecord>> {
        let planned = &plan.tests[test];
        let record = TestRecord {
            name: planned.name.clone(),
            repetition,
            order,
            place: test as u32 + 1,
            begun: now(),
            spec: planned.spec.clone(),
            ..TestRecord::default()
        };
        let before = self.writer.record().tests.len();
        self.test(planned, record, notices)?;
        Ok(self.writer.record().tests[before..].first())
    }

    /// Makes one test and writes it down; one that could not be run is a finding.
    fn test(&mut self, planned: &Planned, test: TestRecord, notices: &dyn Notices) -> Result<()> {
        let repetition = test.repetition;
        // For a test that cannot begin: what a switch did with its first frames may say why.
        let glanced = watch::glance(self.lab);
        let (measured, facts) = self.watched(&planned.spec, &test, notices)?;
        match measured {
            Ok((path, outcome, seen)) => {
                let test = self.conclude(planned, TestRecord { path, facts, ..test }, outcome, seen);
                keep(&mut self.writer, test, notices);
            }
            Err(problem) if problem.kind == ProblemKind::Measured => {
                if !glanced.is_empty() {
                    let (mut before, mut after) = (Snapshot::default(), Snapshot::default());
                    watch::put(&mut before, glanced);
                    watch::put(&mut after, watch::ask(self.lab));
                    let title = format!("{} #{repetition}", planned.name);
                    self.told.extend(study::switches::findings(&title, &before, &after));
                }
                self.not_made.push(study::findings::not_made(&planned.name, repetition, &problem));
            }
            Err(problem) => return Err(problem),
        }
        Ok(())
    }

    /// What came of the frames of a test, and the facts of all nodes meanwhile where they are wanted: those that cannot be taken are said to be
    /// missing.
    fn watched(
        &mut self,
        spec: &TestSpec,
        test: &TestRecord,
        notices: &dyn Notices,
    ) -> Result<(Result<Measured>, Option<Facts>)> {
        let depth = self.depth(test.order);
        let (lab, observer) = (self.lab, &mut self.observer);
        let work = || measure::test(lab, observer, spec, depth);
        if !self.extra.facts || test.repetition > 1 {
            return Ok((work(), None));
        }
        let window = Duration::from_millis(doctor::window_ms(load::length_ms(spec)));
        let (measured, taken) = doctor::beside::facts(lab, &spec.from, window, work)?;
        let missing = |problem: Problem| {
            // Whoever ended the run knows why.
            if !linux::sys::process::interrupted() {
                notices.warn(&problem);
                notices.note(&format!("{}: the doctor sees no facts", test.name));
            }
        };
        let facts = taken.map_err(missing).ok();
        if facts.as_ref().is_some_and(|taken| !taken.flowed) && measured.is_ok() {
            notices.note(&format!(
                "{}: no frames flowed, or few; the doctor looked at the lab after it",
                test.name
            ));
        }
        Ok((measured, facts.map(|taken| taken.facts)))
    }

    /// What is looked at of the test that is the `order`-th of the run.
    fn depth(&self, order: u32) -> Depth {
        let file = || store::dead_frames(self.writer.directory(), order);
        let Extra { profile_hz, layers_every, dead_frames, facts: _ } = self.extra;
        Depth { profile_hz, layers_every, dead_frames: dead_frames.then(file) }
    }

    /// Concludes from a measured test, of which the record says where it stands in the run, what was asked, and the path.
    fn conclude(
        &self,
        planned: &Planned,
        mut test: TestRecord,
        outcome: Outcome,
        mut seen: TestObservation,
    ) -> TestRecord {
        let ports = Ports {
            sender: seen.ports.sender.first().copied().or(seen.ports.icmp_id).unwrap_or(0),
            receiver: seen.ports.receiver.unwrap_or(0),
        };
        test.conditions = conditions(self.lab, &planned.spec, &mut seen);
        test.cpu = seen.after.cpus_since(&seen.before);
        test.actors = test::actors(&seen.before, &seen.after, [&outcome.sender, &outcome.receiver]);
        mark_stopped(&mut test.actors, &seen);
        test.others = seen.beside.others;
        test.time = seen.time;
        test.dead_frames = seen.dead_frames;
        test.layers = seen.layers;
        test.offloads = self.lab.offloads();
        (test.sender, test.receiver) = (outcome.sender, outcome.receiver);
        (test.before, test.after, test.flow) = (seen.before, seen.after, Some(seen.flow));
        let evidence = Evidence {
            idle: Some((&self.idle.0, &self.idle.1)),
            witness: seen.witness.unwrap_or_else(|| {
                WitnessInput::Absent(Witness::absent(WitnessStatus::Unavailable, "the test never began"))
            }),
            ports,
            arrival: None,
            planned: planned_messages(&planned.spec),
            seconds: None,
            criteria: planned.criteria,
        };
        test::conclude(&mut test, evidence);
        test
    }

    /// The id of its record.
    pub fn id(&self) -> &str {
        &self.writer.record().id
    }

    /// Ends the record, whether or not all of it was measured.
    pub fn close(self, stopped: Option<&Problem>) -> Closed {
        let (directory, not_made) = (self.writer.directory().to_owned(), self.not_made.len());
        let mut findings = self.not_made;
        findings.extend(self.told);
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
            course.measure(plan, test, repetition, order, notices)?;
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
    [&spec.from, &spec.to].into_iter().try_for_each(|node| measure::address(lab, node, spec.family).map(drop))
}
