//! Where the tests of a course are measured: a lab that this program built, or this host and another one.
//!
//! **Why a seam.** A plan, its record, its criteria and its trials are the same wherever the frames go; only who starts the two ends and who reads which
//! counters differs.
//!
//! **Price.** A call through a table for each test.

pub mod hosts;
pub mod lab;

use crate::change::Tunable;
use crate::hosts::HostPair;
use crate::notices::Notices;
use crate::plan::{Plan, Planned};
use crate::watch::Depth;
use linux::lab::Lab;
use record::{Finding, Problem, Result, RunRecord, TestRecord, TestSpec};

/// What is measured, and whose knobs are changed.
#[derive(Clone, Copy)]
pub enum UnderTest<'a> {
    /// A lab that is up.
    Lab(&'a Lab),
    /// This host and another one.
    Hosts(&'a HostPair),
}

impl<'a> UnderTest<'a> {
    /// Gets it ready for the tests of a plan.
    ///
    /// # Errors
    /// As [`lab::LabBed::open`] and [`hosts::HostsBed::open`].
    pub fn testbed(self, plan: &Plan) -> Result<Box<dyn Testbed + 'a>> {
        Ok(match self {
            UnderTest::Lab(lab) => Box::new(lab::LabBed::open(lab, plan)?),
            UnderTest::Hosts(pair) => Box::new(hosts::HostsBed::open(pair, plan)?),
        })
    }

    /// The interfaces of a node that tests may cross: those that the topology has; between hosts the one that leads to the other host.
    ///
    /// # Errors
    /// Input: no such node. Host: there is no route, or the other host does not tell.
    pub fn interfaces(self, node: &str) -> Result<Vec<String>> {
        match self {
            UnderTest::Lab(lab) => {
                lab.node(node)?;
                Ok(lab.topology().interfaces(node).map(|one| one.name.clone()).collect())
            }
            UnderTest::Hosts(pair) => Ok(vec![pair.interface(node)?]),
        }
    }

    /// What has its knobs.
    pub fn tunable(self) -> &'a dyn Tunable {
        match self {
            UnderTest::Lab(lab) => lab,
            UnderTest::Hosts(pair) => pair,
        }
    }
}

/// What can measure a test.
pub trait Testbed {
    /// Writes into the header of a record where it was measured: the host, the topology.
    fn describe(&self, header: &mut RunRecord);

    /// Measures a test, of which the record says where it stands in the run and what was asked.
    ///
    /// # Errors
    /// What ends a run: an interrupt, a host that cannot go on.
    fn measure(
        &mut self,
        planned: &Planned,
        test: TestRecord,
        wanted: Wanted,
        notices: &dyn Notices,
    ) -> Result<Tried>;
}

/// What is wanted of a test beside its figures.
#[derive(Debug)]
pub struct Wanted {
    /// How deep.
    pub depth: Depth,
    /// Whether facts are taken for the doctor.
    pub facts: bool,
}

/// What came of a test.
pub enum Tried {
    /// It was measured.
    Measured(Box<TestRecord>),
    /// It could not be run.
    NotMade {
        /// Why.
        why: Problem,
        /// What switches on the path said of it.
        told: Vec<Finding>,
    },
}

/// How many messages the plan of a test has.
fn planned_messages(spec: &TestSpec) -> Option<u64> {
    let rate = spec.rate?.messages_per_second(spec.message_size());
    Some(load::traffic::schedule::OpenLoopPlan::new(0, rate, spec.duration_ms, spec.count).total())
}
