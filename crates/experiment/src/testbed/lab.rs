//! A lab as a testbed: both ends, the path between them, and everything on it are on this host.
//!
//! **What.** Two agents are started inside their nodes, a witness is set to their ports, counters are read on every node, traffic flows, counters are
//! read again when the queues are quiet, and the ledger is closed.
//!
//! **Price.** One process per end and per test; the counters of every node twice.

use super::{Testbed, Tried, Wanted, planned_messages};
use crate::doctor;
use crate::measure::{self, Measured};
use crate::notices::Notices;
use crate::plan::{Plan, Planned};
use crate::watch::{self, TestObservation};
use linux::lab::{Lab, Node};
use linux::observe::Observer;
use load::Outcome;
use load::protocol::setup::EndRole;
use record::facts::Facts;
use record::{
    ActorUsage, Conditions, HostFacts, Problem, ProblemKind, Result, RunRecord, Snapshot, TestRecord,
    TestSpec, Witness, WitnessStatus,
};
use std::time::Duration;
use study::ledger::{Ports, WitnessInput};
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

/// A lab under measurement.
pub struct LabBed<'lab> {
    lab: &'lab Lab,
    observer: Observer,
    /// Counters while nothing happened.
    idle: (Snapshot, Snapshot),
}

impl<'lab> LabBed<'lab> {
    /// Opens the counters of every node, and looks at the lab while nothing happens.
    ///
    /// # Errors
    /// Bad input when the plan names a node that the lab does not have; host problems when counters cannot be read.
    pub fn open(lab: &'lab Lab, plan: &Plan) -> Result<LabBed<'lab>> {
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
        Ok(LabBed { lab, observer, idle })
    }

    /// What came of the frames of a test, and the facts of all nodes meanwhile where they are wanted: those that cannot be taken are said to be
    /// missing.
    fn watched(
        &mut self,
        spec: &TestSpec,
        test: &TestRecord,
        wanted: Wanted,
        notices: &dyn Notices,
    ) -> Result<(Result<Measured>, Option<Facts>)> {
        let (lab, observer) = (self.lab, &mut self.observer);
        let work = || measure::test(lab, observer, spec, wanted.depth);
        if !wanted.facts {
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
}

impl Testbed for LabBed<'_> {
    fn describe(&self, header: &mut RunRecord) {
        header.host = host(self.lab);
        header.topology = self.lab.topology().to_string();
    }

    fn measure(
        &mut self,
        planned: &Planned,
        test: TestRecord,
        wanted: Wanted,
        notices: &dyn Notices,
    ) -> Result<Tried> {
        // For a test that cannot begin: what a switch did with its first frames may say why.
        let glanced = watch::glance(self.lab);
        let (measured, facts) = self.watched(&planned.spec, &test, wanted, notices)?;
        match measured {
            Ok((path, outcome, seen)) => {
                let test = self.conclude(planned, TestRecord { path, facts, ..test }, outcome, seen);
                Ok(Tried::Measured(Box::new(test)))
            }
            Err(why) if why.kind == ProblemKind::Measured => {
                let mut told = vec![];
                if !glanced.is_empty() {
                    let (mut before, mut after) = (Snapshot::default(), Snapshot::default());
                    watch::put(&mut before, glanced);
                    watch::put(&mut after, watch::ask(self.lab));
                    let title = format!("{} #{}", planned.name, test.repetition);
                    told = study::switches::findings(&title, &before, &after);
                }
                Ok(Tried::NotMade { why, told })
            }
            Err(problem) => Err(problem),
        }
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
