//! An engine for tests: a copy of the pipeline for each port's thread, which goes through it without a lock.
//! It stands for every engine that makes something of the rules beforehand, and is as old as the rules that
//! it was made of.

use flow::changed::Changed;
use flow::interpret::{InputFrame, Interpreter, OutputFrame};
use flow::pipeline::Pipeline;
use flow::port::PortNo;
use linux::port::Batch;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use switch::outputs::Outputs;
use switch::programs::{CompiledPipeline, Compiler, EngineKind, ProgramWorker, RuleProgram};

/// Batches of copies that decided, in all switches of this process.
static BATCHES: AtomicU64 = AtomicU64::new(0);

const COPIES: EngineKind = EngineKind { name: "copies", compiler: Some(&Copier), kernel: None };

/// How long machine code may take to be there for the rules of one probe: it does not tell when it is.
const COMPILED: Duration = Duration::from_millis(30);

/// Every engine whose promises are tested on wires in memory: those of the switch that work in user space alone (`kernel.rs` has the
/// others, at interfaces), and copies.
pub fn all() -> Vec<EngineKind> {
    let of_user_space = |engine: &&EngineKind| engine.kernel.is_none();
    switch::engines::ENGINES.iter().filter(of_user_space).copied().chain([COPIES]).collect()
}

/// An engine of the switch.
pub fn named(name: &str) -> EngineKind {
    switch::engines::ENGINES.iter().find(|engine| engine.name == name).copied().expect("an engine")
}

/// Waits until copies of a switch with traffic decide again; at most a second, because a compiler may be
/// behind. False for an engine without a compiler, or in vain.
pub fn wait_for_program(engine: EngineKind) -> bool {
    if engine.compiler.is_some() && engine != COPIES {
        std::thread::sleep(COMPILED);
        return true;
    }
    let (before, until) = (BATCHES.load(Relaxed), Instant::now() + Duration::from_secs(1));
    while engine.compiler.is_some() && Instant::now() < until {
        if BATCHES.load(Relaxed) != before {
            return true;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    false
}

struct Copier;

struct CopiedPipeline(Arc<Copy>);

/// A pipeline as it was.
struct Copy(Pipeline);

struct CopyWorker {
    pipeline: Pipeline,
    interpreter: Interpreter,
}

impl Compiler for Copier {
    fn compile(&self, pipeline: &Pipeline) -> Result<Box<dyn CompiledPipeline>, String> {
        Ok(Box::new(CopiedPipeline(Arc::new(Copy(pipeline.clone())))))
    }
}

impl CompiledPipeline for CopiedPipeline {
    fn program(&self) -> Arc<dyn RuleProgram> {
        self.0.clone()
    }

    /// Every change is a large one.
    fn update(&mut self, _: &Pipeline, changed: &Changed) -> bool {
        *changed == Changed::default()
    }
}

impl RuleProgram for Copy {
    fn worker(self: Arc<Self>, _: Option<Box<dyn ProgramWorker>>) -> Box<dyn ProgramWorker> {
        let mut pipeline = self.0.clone();
        // A worker begins with nothing counted.
        pipeline.ports.values_mut().for_each(|port| port.counters = Default::default());
        Box::new(CopyWorker { pipeline, interpreter: Interpreter::default() })
    }
}

impl ProgramWorker for CopyWorker {
    fn batch(
        &mut self,
        now: u64,
        port: PortNo,
        batch: &mut Batch<'_>,
        which: &[u16],
        outputs: &mut Outputs,
        left: &mut Vec<u16>,
    ) {
        BATCHES.fetch_add(1, Relaxed);
        for &index in which {
            // Some are left to the interpreter, whose rules have to be the same.
            if index % 4 == 3 {
                left.push(index);
                continue;
            }
            outputs.begin(index);
            let (bytes, offload) = (batch.bytes(index.into()), batch.meta(index.into()).offload);
            let arrival = InputFrame { offload, ..InputFrame::new(port, bytes) };
            self.interpreter.carry(&mut self.pipeline, now, arrival, None, outputs, &mut ());
        }
    }

    /// Never: a copy has meters of its own.
    fn rehearse(&mut self, _: u64, _: InputFrame<'_>) -> Option<Vec<OutputFrame>> {
        None
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    /// Ports are all that a test of this engine reads.
    fn settle(&mut self, pipeline: &mut Pipeline) {
        for (number, port) in &mut pipeline.ports {
            let Some(mine) = self.pipeline.ports.get_mut(number) else { continue };
            let counted = std::mem::take(&mut mine.counters);
            port.counters.rx_frames += counted.rx_frames;
            port.counters.tx_frames += counted.tx_frames;
        }
    }
}
