//! A measured run: everything between "the lab is up" and "the record is written".
//!
//! **What.** For each test: two agents are started inside their nodes, a witness is set to their ports, counters are
//! read on every node, traffic flows, counters are read again when the queues are quiet, and the ledger is closed.
//! **Why here.** This is the only place that knows both the machine (`linux`, `load`) and the conclusions (`study`).
//! **Price.** One process per end and per test (about 5 ms), so that CPU time and memory belong to one test only.

pub mod assemble;
pub mod measure;
pub mod progress;
pub mod watch;
pub mod ways;

use crate::output::Output;
use crate::plan::{Plan, Planned};
use crate::tenants;
pub use assemble::Place;
use jiff::Timestamp;
use linux::lab::Lab;
use linux::observe::Observer;
use load::end::Role;
use record::{Finding, Problem, ProblemKind, Result, RunRecord, Snapshot, TestRecord, TestSpec};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use study::store::RunWriter;

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
pub struct Session<'a> {
    lab: &'a Lab,
    observer: Observer,
    idle: (Snapshot, Snapshot),
    /// What switches said of tests that could not be made.
    told: Vec<Finding>,
}

impl<'a> Session<'a> {
    /// Opens the counters of every node and looks at the lab while nothing happens.
    ///
    /// # Errors
    /// Bad input when the plan names a node that the lab does not have; host problems when counters cannot be read.
    pub fn begin(lab: &'a Lab, plan: &Plan) -> Result<Session<'a>> {
        for test in &plan.tests {
            check_ends(lab, &test.spec)?;
            // Both ends are on this host.
            for role in [Role::Sender, Role::Receiver] {
                load::check_host(&test.spec, role).map_err(|problem| problem.at(&test.name))?;
            }
        }
        let mut observer = Observer::new(&namespaces(lab))?;
        let first = observer.snapshot(&[])?;
        std::thread::sleep(IDLE_WINDOW);
        let second = observer.snapshot(&[])?;
        Ok(Session { lab, observer, idle: (first, second), told: vec![] })
    }

    /// The record before its first test.
    pub fn header(&self, about: &About, seed: u64) -> RunRecord {
        RunRecord {
            schema: record::run::SCHEMA.into(),
            begun: self.now(),
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
    pub fn measure(&mut self, planned: &Planned, place: Place) -> Result<TestRecord> {
        let programs = tenants::asked(self.lab);
        // For a test that cannot begin: what a switch did with its first frames may say why.
        let before = watch::glance(&programs);
        let measured = match measure::test(self.lab, &mut self.observer, &planned.spec) {
            Err(problem) if problem.kind == ProblemKind::Measured && !programs.is_empty() => {
                let mut after = Snapshot::default();
                watch::put(&mut after, watch::ask(&programs));
                let title = format!("{} #{}", planned.name, place.repetition);
                self.told.extend(study::switches::findings(&title, &before, &after));
                return Err(problem);
            }
            other => other?,
        };
        let idle = (&self.idle.0, &self.idle.1);
        Ok(assemble::record(planned, place, measured, idle))
    }

    /// What is known of tests that could not be made.
    pub fn take_told(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.told)
    }

    /// Now, in RFC 3339, UTC.
    pub fn now(&self) -> String {
        now()
    }
}

/// Writes a test down. What cannot be written is said, and stays in memory: a disk that is full does not end what can be
/// measured, and the results are printed at the end.
pub fn keep(writer: &mut RunWriter, test: TestRecord, output: &Output) {
    let written = writer.add(test);
    // Said once, until something could be written again.
    if written.is_err() && writer.record().tests.len() == writer.kept() + 1 {
        output.warn(written);
        output.note("the run goes on, and its results are printed at the end");
    }
}

/// Now, in RFC 3339, UTC.
pub fn now() -> String {
    let ns = linux::sys::clock::realtime_ns();
    Timestamp::from_nanosecond(i128::from(ns)).map(|t| format!("{t:.3}")).unwrap_or_default()
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

/// The nodes of a lab as the observing parts want them.
pub fn namespaces(lab: &Lab) -> Vec<(String, BorrowedFd<'_>)> {
    lab.nodes().iter().map(|node| (node.name().to_owned(), node.netns())).collect()
}
