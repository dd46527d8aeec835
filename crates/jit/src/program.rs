//! A program: what threads run.
//!
//! **What.** A [`Program`] is immutable and cheap to clone; [`Program::frame`] takes one frame through it. Each thread has a [`Worker`]: its
//! counters and its scratch memory.
//!
//! **Why.** A thread takes the newest program before a batch and needs no lock for a frame. An exit leaves frame and counters as they were,
//! so "interpret this frame" is all that the caller has to do.
//!
//! **Price.** The pipeline knows what frames counted only after [`Tally::credit`].

use crate::context::{Aside, CALLS, Context};
use crate::eval;
use crate::exec::{Data, Machine};
use crate::frame::{Frame, Outputs};
use crate::ir::Ir;
use crate::key::{METADATA, PHY_PORT, PORTS, TUNNEL};
use crate::pages::Pages;
use crate::path::{Arrived, Faces, Ingress, NO_QUEUE, Path};
use crate::table::TableData;
use crate::tally::Tally;
use flow::action::Action;
use std::sync::Arc;
use wire::edit::LONGEST;

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was counted; the outputs say where it leaves, if anywhere.
    Done,
    /// The interpreter has to take it. It is as it came, and nothing was counted.
    Interpret,
}

/// What one thread has for itself.
#[derive(Debug)]
pub struct Worker {
    /// What it counted.
    pub tally: Tally,
    context: Box<Context>,
    aside: Aside,
}

impl Default for Worker {
    fn default() -> Worker {
        Worker { tally: Tally::default(), context: Context::new(), aside: Aside::default() }
    }
}

/// What carries a program out.
#[derive(Debug, Clone)]
pub(crate) enum Engine {
    /// Machine code, and the data that it reads.
    Native(Arc<Machine>, NativeData),
    /// The evaluator, where there is no code for the machine.
    Evaluator(Arc<Ir>),
}

/// What machine code reads.
#[derive(Debug, Clone)]
pub(crate) struct NativeData {
    pub(crate) tables: Vec<Arc<TableData>>,
    pub(crate) directories: Vec<usize>,
    pub(crate) records: Pages,
    pub(crate) sets: Arc<Vec<u32>>,
    pub(crate) maps: Arc<Vec<u32>>,
    pub(crate) edits: Arc<Vec<Action>>,
    pub(crate) restores: bool,
}

impl NativeData {
    fn addresses(&self) -> Data<'_> {
        Data {
            tables: &self.directories,
            records: self.records.directory(),
            sets: &self.sets,
            maps: &self.maps,
            edits: &self.edits,
            restores: self.restores,
        }
    }
}

/// A compiled pipeline.
#[derive(Debug, Clone)]
pub struct Program {
    pub(crate) engine: Engine,
    pub(crate) faces: Arc<Faces>,
    pub(crate) grows: usize,
}

impl Program {
    /// Takes a frame through the pipeline. `outputs` is emptied first.
    pub fn frame(
        &self,
        worker: &mut Worker,
        now: u64,
        ingress: Ingress,
        frame: &mut Frame<'_>,
        outputs: &mut Outputs,
    ) -> Outcome {
        outputs.clear();
        let length = frame.bytes().len();
        let arrived = Arrived::new(now, ingress.port, frame);
        let bytes = arrived.pieces.bytes(length);
        if !self.faces.receives(ingress.port) {
            self.faces.enter(ingress.port, arrived.pieces.count, bytes, &mut worker.tally);
            return Outcome::Done;
        }
        let has_room = frame.start >= self.grows && length + self.grows <= LONGEST;
        if !has_room || !self.run(worker, arrived, ingress, frame, outputs) {
            worker.tally.exits += 1;
            outputs.clear();
            return Outcome::Interpret;
        }
        self.faces.enter(ingress.port, arrived.pieces.count, bytes, &mut worker.tally);
        worker.tally.done += 1;
        Outcome::Done
    }

    fn run(
        &self,
        worker: &mut Worker,
        arrived: Arrived,
        ingress: Ingress,
        frame: &mut Frame<'_>,
        outputs: &mut Outputs,
    ) -> bool {
        match &self.engine {
            Engine::Native(machine, data) => {
                let Worker { tally, context, aside } = worker;
                prepare(context, ingress, frame);
                if !machine.run(data.addresses(), context, aside, frame, outputs) {
                    return false;
                }
                let path = Path {
                    passed: &context.passed_list[..context.passed as usize],
                    asked: &context.asked_list[..context.asked as usize],
                    kept: &aside.kept,
                };
                self.faces.settle(&path, arrived, tally, outputs);
                true
            }
            Engine::Evaluator(ir) => {
                let Ok(walked) = eval::walk(ir, ingress, frame.bytes(), frame.offload) else { return false };
                let asked: Vec<_> = walked.sent.iter().map(|(asked, ..)| *asked).collect();
                let keep = |(index, (_, bytes, offload)): (usize, &(_, Vec<u8>, _))| {
                    (index + 1, outputs.keep(bytes, *offload))
                };
                let kept: Vec<_> = walked.sent.iter().enumerate().map(keep).collect();
                let path = Path { passed: &walked.passed, asked: &asked, kept: &kept };
                self.faces.settle(&path, arrived, &mut worker.tally, outputs);
                true
            }
        }
    }

    /// Bytes of machine code; 0 where the evaluator runs.
    pub fn code_bytes(&self) -> usize {
        match &self.engine {
            Engine::Native(machine, _) => machine.len(),
            Engine::Evaluator(_) => 0,
        }
    }

    /// Bytes of tables and records.
    pub fn data_bytes(&self) -> usize {
        match &self.engine {
            Engine::Native(_, data) => {
                data.records.bytes() + data.tables.iter().map(|table| table.pages.bytes()).sum::<usize>()
            }
            Engine::Evaluator(_) => 0,
        }
    }
}

/// What is known before the frame is parsed.
fn prepare(context: &mut Context, ingress: Ingress, frame: &Frame<'_>) {
    context.key[usize::from(PORTS)] = u64::from(ingress.port.0) << 32;
    context.key[usize::from(METADATA)] = 0;
    context.key[usize::from(TUNNEL)] = ingress.tunnel_id;
    context.key[usize::from(PHY_PORT)] = ingress.phy_port.0.into();
    (context.set, context.queue) = (0, NO_QUEUE);
    context.flags = if frame.offload.partial.is_some() { CALLS } else { 0 };
    (context.passed, context.asked, context.kept) = (0, 0, 0);
}
