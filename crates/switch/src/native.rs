//! Rules as machine code: the programs of the crate `jit`, for batches.
//!
//! **What.** [`NATIVE`] compiles a pipeline; a worker takes each frame of a batch through the code where it lies, in the memory of
//! the port that received it. What code cannot do for a frame is left over, as it came.
//!
//! **Price.** As `docs/compiled.md` says.

use crate::outputs::Outputs;
use crate::programs::{Compiler, EngineKind, ProgramWorker, RuleProgram};
use flow::pipeline::Pipeline;
use flow::port::PortNo;
use jit::{Frame, Ingress, Outcome, Slots, Worker};
use linux::port::Batch;
use std::sync::Arc;

/// Rules are compiled to machine code.
pub const NATIVE: EngineKind = EngineKind { name: "native", compiler: Some(&NativeCompiler) };

struct NativeCompiler;

impl Compiler for NativeCompiler {
    fn compile(&self, pipeline: &Pipeline) -> Result<Arc<dyn RuleProgram>, String> {
        let compiler = jit::Compiler::new(pipeline).map_err(|refused| refused.to_string())?;
        Ok(Arc::new(NativeProgram { code: compiler.program(), slots: compiler.slots }))
    }
}

/// Code, and which rule each of its counters is of.
struct NativeProgram {
    code: jit::Program,
    slots: Slots,
}

impl RuleProgram for NativeProgram {
    fn worker(self: Arc<Self>) -> Box<dyn ProgramWorker> {
        Box::new(NativeWorker { program: self, worker: Worker::default(), leaving: jit::Outputs::default() })
    }
}

struct NativeWorker {
    program: Arc<NativeProgram>,
    worker: Worker,
    leaving: jit::Outputs,
}

impl ProgramWorker for NativeWorker {
    fn batch(
        &mut self,
        now: u64,
        port: PortNo,
        batch: &mut Batch<'_>,
        outputs: &mut Outputs,
        left: &mut Vec<u16>,
    ) {
        let NativeWorker { program, worker, leaving } = self;
        for &index in batch.all() {
            let offload = batch.meta(index.into()).offload;
            let (room, place) = batch.room_mut(index.into());
            let mut frame = Frame { room, start: place.start, end: place.end, offload };
            if program.code.frame(worker, now, Ingress::from(port), &mut frame, leaving) == Outcome::Interpret
            {
                left.push(index);
                continue;
            }
            let (lies, offload) = (frame.start..frame.end, frame.offload);
            outputs.begin(index);
            for output in &leaving.list {
                match output.copy.and_then(|number| leaving.copy(number)) {
                    None => outputs.forward(output.port, output.queue),
                    Some((bytes, offload)) => outputs.copy(output.port, output.queue, bytes, offload),
                }
            }
            // It lies in the memory that it was given.
            let fits = batch.lies_at(index.into(), lies, offload);
            debug_assert!(fits, "a frame leaves its memory");
        }
    }

    fn settle(&mut self, pipeline: &mut Pipeline) {
        self.worker.tally.credit(&self.program.slots, pipeline);
    }
}
