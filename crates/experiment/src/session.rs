//! A measured run: everything between "the lab is up" and "the record is written".
//!
//! **What.** A [`Course`] measures tests on its testbed ([`crate::testbed`]) and writes them down.
//! [`carry_out`] is the one loop: every test of a plan over every course, whether there is one course or several.
//!
//! **Why in turn.** What changes on the machine in the minutes of a comparison (its clock, its neighbours) then meets all
//! courses alike; so each test runs over every course before the next begins, in an order drawn anew each time.
//!
//! **Price.** The programs of all labs wait beside the one that works; an idle one wakes some 20 times a second.

use crate::notices::Notices;
use crate::plan::{Extra, Plan, Planned};
use crate::process::now;
use crate::testbed::lab::LabBed;
use crate::testbed::{Testbed, Tried, Wanted};
use crate::watch::Depth;
use linux::lab::Lab;
use record::{Finding, PathVariant, Problem, Result, RunRecord, TestRecord};
use std::path::{Path, PathBuf};
use study::stats::SplitMix64;
use study::store::{self, RunWriter};

/// One way between the two ends under measurement, with a record of its own.
pub struct Course<'lab> {
    /// What it is called beside others; empty when it is the only one.
    title: String,
    testbed: Box<dyn Testbed + 'lab>,
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
        Course::on(Box::new(LabBed::open(lab, plan)?), plan, about, way, dir)
    }

    /// The same on any testbed.
    ///
    /// # Errors
    /// Host: the record cannot be made.
    pub fn on(
        testbed: Box<dyn Testbed + 'lab>,
        plan: &Plan,
        about: &RunRecord,
        way: Option<PathVariant>,
        dir: &Path,
    ) -> Result<Course<'lab>> {
        let of =
            |way: &PathVariant| (way.name.clone(), study::ways::title(&way.name, way.offload.as_deref()));
        let (topology_name, title) = way.as_ref().map_or((about.topology_name.clone(), String::new()), of);
        let mut header = RunRecord {
            schema: record::run::SCHEMA.into(),
            begun: now(),
            topology_name,
            command: std::env::args().collect(),
            way,
            ..about.clone()
        };
        testbed.describe(&mut header);
        let writer = RunWriter::create(dir, header)?;
        let extra = plan.extra;
        Ok(Course { title, testbed, extra, writer, not_made: vec![], told: vec![] })
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
        let facts = self.extra.facts && repetition == 1;
        let wanted = Wanted { depth: self.depth(test.order), facts };
        match self.testbed.measure(planned, test, wanted, notices)? {
            Tried::Measured(test) => keep(&mut self.writer, *test, notices),
            Tried::NotMade { why, told } => {
                self.told.extend(told);
                self.not_made.push(study::findings::not_made(&planned.name, repetition, &why));
            }
        }
        Ok(())
    }

    /// What is looked at of the test that is the `order`-th of the run.
    fn depth(&self, order: u32) -> Depth {
        let file = || store::dead_frames(self.writer.directory(), order);
        let Extra { profile_hz, layers_every, dead_frames, facts: _ } = self.extra;
        Depth { profile_hz, layers_every, dead_frames: dead_frames.then(file) }
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
