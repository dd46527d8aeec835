//! Rules as machine code: the programs of the crate `jit`, for batches.
//!
//! **What.** [`NATIVE`] compiles a pipeline; a worker takes each frame of a batch through the code where it lies, in the memory of
//! the port that received it. What code cannot do for a frame is left over, as it came.
//!
//! **Price.** As `docs/compiled.md` says.

use crate::outputs::Outputs;
use crate::programs::{CompiledPipeline, Compiler, EngineKind, ProgramWorker, RuleProgram};
use flow::changed::Changed;
use flow::interpret::{InputFrame, OutputFrame};
use flow::pipeline::Pipeline;
use flow::port::PortNo;
use jit::{Frame, Ingress, Outcome, SlotPlaces, Worker};
use linux::port::Batch;
use std::any::Any;
use std::sync::Arc;
use wire::edit::SHORTEST;

/// Rules are compiled to machine code.
pub const NATIVE: EngineKind = EngineKind { name: "native", compiler: Some(&NativeCompiler), kernel: None };

struct NativeCompiler;

impl Compiler for NativeCompiler {
    fn compile(&self, pipeline: &Pipeline) -> Result<Box<dyn CompiledPipeline>, String> {
        let compiler = jit::Compiler::new(pipeline).map_err(|refused| refused.to_string())?;
        Ok(Box::new(NativePipeline { compiler }))
    }
}

/// The compiler of a pipeline, with all that it knows of it.
struct NativePipeline {
    compiler: jit::Compiler,
}

impl CompiledPipeline for NativePipeline {
    fn program(&self) -> Arc<dyn RuleProgram> {
        Arc::new(NativeProgram { code: self.compiler.program(), places: self.compiler.slots.places.clone() })
    }

    fn update(&mut self, pipeline: &Pipeline, changed: &Changed) -> bool {
        if changed.ports {
            self.compiler.update_ports(pipeline);
        }
        self.compiler.update_quickly(pipeline, &changed.rules).unwrap_or(false)
    }

    fn is_worn(&self) -> bool {
        self.compiler.is_worn()
    }
}

/// Code, and which rule each of its counters is of.
struct NativeProgram {
    code: jit::Program,
    places: SlotPlaces,
}

impl RuleProgram for NativeProgram {
    fn worker(self: Arc<Self>, former: Option<Box<dyn ProgramWorker>>) -> Box<dyn ProgramWorker> {
        match former.and_then(|former| former.into_any().downcast::<NativeWorker>().ok()) {
            Some(mut former) => {
                former.program = self;
                former
            }
            None => Box::new(NativeWorker {
                program: self,
                worker: Worker::default(),
                leaving: jit::Outputs::default(),
                rehearsing: Worker::default(),
                room: vec![],
            }),
        }
    }
}

struct NativeWorker {
    program: Arc<NativeProgram>,
    worker: Worker,
    leaving: jit::Outputs,
    /// Counts what does not count, and the memory of a frame that does not leave.
    rehearsing: Worker,
    room: Vec<u8>,
}

/// Bytes in front of a frame that does not leave, for tags.
const HEADROOM: usize = 128;

impl ProgramWorker for NativeWorker {
    fn batch(
        &mut self,
        now: u64,
        port: PortNo,
        batch: &mut Batch<'_>,
        which: &[u16],
        outputs: &mut Outputs,
        left: &mut Vec<u16>,
    ) {
        let NativeWorker { program, worker, leaving, .. } = self;
        for &index in which {
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

    fn rehearse(&mut self, now: u64, frame: InputFrame<'_>) -> Option<Vec<OutputFrame>> {
        let NativeWorker { program, rehearsing, room, leaving, .. } = self;
        room.clear();
        room.resize(HEADROOM, 0);
        room.extend_from_slice(frame.frame);
        let (start, end) = (HEADROOM, room.len());
        // As long as the shortest frame of a wire, in case that a tag is taken off.
        room.resize(end.max(HEADROOM + SHORTEST), 0);
        let mut own = Frame { room, start, end, offload: frame.offload };
        let outcome = program.code.frame(rehearsing, now, Ingress::from(frame.port), &mut own, leaving);
        rehearsing.tally.forget();
        let sent = leaving.frames(&own).map(|(port, queue, bytes, offload)| OutputFrame {
            port,
            queue,
            frame: bytes.to_vec(),
            offload,
        });
        (outcome == Outcome::Done).then(|| sent.collect())
    }

    fn settle(&mut self, pipeline: &mut Pipeline) {
        self.worker.tally.credit(&self.program.places, pipeline);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
