//! Pipelines that were made into something faster, and how they come and go.
//!
//! **What.** A [`Compiler`] makes a [`RuleProgram`] of a pipeline; it is immutable, and each port's thread works
//! with a [`ProgramWorker`] of its own that has the counters. Frames that the program leaves over are
//! interpreted. [`Programs`] hands programs out and takes them back.
//!
//! **How it stays true.** A program holds for one state of the rules. Whoever changes these
//! ([`Programs::change`]) first takes the program back from every worker: each has a lock that it holds while
//! it decides about a batch, so who had all of them once knows that no batch is under way that began with the
//! old program. Only then is the pipeline changed. Until a new program is there, all is interpreted. So the
//! next frame meets the new rules, no frame meets a mixture, and a barrier needs no waiting of its own. A
//! program that was made of rules that changed meanwhile is thrown away (the generation tells).
//!
//! **Why a lock for each worker** and no epochs. Nobody else wants it while nothing changes, so it costs a
//! worker two uncontended exchanges a batch; counters can be collected under it; and there is nothing subtle
//! in it. `docs/decisions/0013-engines.md` has more.
//!
//! **Price.** While rules change, frames are interpreted. The compiler gets a copy of the pipeline; while
//! that lives, the first frame and the first change that touch a table copy it. So it is made only after a
//! pause in the changes ([`PAUSE`]).
//!
//! Locks are taken in this order: `published`, a worker's, the pipeline's.

use crate::engine::{Engine, InterpretingEngine};
use crate::outputs::Outputs;
use crate::shared::{SharedPipeline, locked};
use flow::pipeline::Pipeline;
use flow::port::PortNo;
use linux::port::{Batch, MAX_BATCH};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Rules are compiled when they did not change for so long, and for twice as long as the last compilation took.
pub const PAUSE: Duration = Duration::from_millis(5);

/// A pipeline in one state of its rules, made into something faster.
pub trait RuleProgram: Send + Sync {
    /// The program in the hands of one worker, with all its counters at zero.
    fn worker(self: Arc<Self>) -> Box<dyn ProgramWorker>;
}

/// A program in the hands of one worker, with what it counted.
pub trait ProgramWorker: Send {
    /// Decides about a batch. The numbers of frames that are to be interpreted go to `left`: nothing was
    /// changed, sent or counted of them.
    fn batch(
        &mut self,
        now: u64,
        port: PortNo,
        batch: &mut Batch<'_>,
        outputs: &mut Outputs,
        left: &mut Vec<u16>,
    );

    /// Adds what was counted to the pipeline that the program was made of, and begins anew. Rules and ports
    /// are still those.
    fn settle(&mut self, pipeline: &mut Pipeline);
}

/// Makes programs.
pub trait Compiler: Send + Sync {
    /// Makes a program of a pipeline.
    ///
    /// # Errors
    /// Why it cannot be, in words: everything is interpreted then.
    fn compile(&self, pipeline: &Pipeline) -> Result<Arc<dyn RuleProgram>, String>;
}

/// A kind of engine, as in a switch's configuration.
#[derive(Clone, Copy)]
pub struct EngineKind {
    /// Its name.
    pub name: &'static str,
    /// What makes its programs; none: everything is interpreted.
    pub compiler: Option<&'static dyn Compiler>,
}

/// Everything is interpreted.
pub const INTERPRETER: EngineKind = EngineKind { name: "interpreter", compiler: None };

impl Default for EngineKind {
    fn default() -> Self {
        INTERPRETER
    }
}

impl PartialEq for EngineKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for EngineKind {}

impl fmt::Debug for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What a worker has, behind its lock.
#[derive(Default)]
struct WorkerSlot {
    /// Who comes next: a mutex of the standard library is not fair, and a worker has always the next batch.
    next: Mutex<()>,
    held: Mutex<Option<Box<dyn ProgramWorker>>>,
}

impl WorkerSlot {
    fn enter(&self) -> MutexGuard<'_, Option<Box<dyn ProgramWorker>>> {
        let _next = locked(&self.next);
        locked(&self.held)
    }
}

/// The program that holds now, and who works with it.
#[derive(Default)]
struct Published {
    program: Option<Arc<dyn RuleProgram>>,
    workers: Vec<Arc<WorkerSlot>>,
}

/// What the thread that compiles is to do.
#[derive(Default)]
struct Request {
    is_changed: bool,
    is_over: bool,
}

/// The programs of a switch.
pub struct Programs {
    shared: Arc<SharedPipeline>,
    compiler: Option<&'static dyn Compiler>,
    published: Mutex<Published>,
    /// Goes up with each change, under the lock of the pipeline.
    generation: AtomicU64,
    request: Mutex<Request>,
    requested: Condvar,
}

/// The pipeline, to be changed: no program is in use.
pub struct PipelineChange<'a> {
    // Given back in this order.
    pipeline: MutexGuard<'a, Pipeline>,
    published: Option<MutexGuard<'a, Published>>,
    programs: &'a Programs,
}

impl Deref for PipelineChange<'_> {
    type Target = Pipeline;

    fn deref(&self) -> &Pipeline {
        &self.pipeline
    }
}

impl DerefMut for PipelineChange<'_> {
    fn deref_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }
}

impl Drop for PipelineChange<'_> {
    fn drop(&mut self) {
        if self.published.is_some() {
            self.programs.ask(|request| request.is_changed = true);
        }
    }
}

impl Programs {
    /// Of a switch with this engine. Nothing is compiled before [`Programs::run`].
    pub fn new(shared: Arc<SharedPipeline>, engine: EngineKind) -> Programs {
        Programs {
            shared,
            compiler: engine.compiler,
            published: Mutex::default(),
            generation: AtomicU64::new(0),
            request: Mutex::default(),
            requested: Condvar::new(),
        }
    }

    /// Whether there is anything to compile.
    pub fn compiles(&self) -> bool {
        self.compiler.is_some()
    }

    /// Whether a program is in use.
    pub fn has_program(&self) -> bool {
        locked(&self.published).program.is_some()
    }

    /// The engine of one more port's thread.
    pub fn engine(self: &Arc<Self>) -> Box<dyn Engine> {
        let interpreter = InterpretingEngine::new(self.shared.clone());
        if self.compiler.is_none() {
            return Box::new(interpreter);
        }
        let slot = Arc::new(WorkerSlot::default());
        let mut published = locked(&self.published);
        *slot.enter() = published.program.clone().map(|program| program.worker());
        published.workers.push(slot.clone());
        let left = Vec::with_capacity(MAX_BATCH);
        Box::new(ProgramEngine { programs: self.clone(), slot, interpreter, left })
    }

    /// The pipeline, to change what becomes of frames. It waits for the batches that are under way.
    pub fn change(&self) -> PipelineChange<'_> {
        let published = self.compiler.map(|_| {
            let mut published = locked(&self.published);
            self.swap(&mut published, None);
            published
        });
        let pipeline = self.shared.lock();
        self.generation.fetch_add(1, Relaxed);
        PipelineChange { pipeline, published, programs: self }
    }

    /// The pipeline with all that was counted until now, to read it.
    pub fn counted(&self) -> MutexGuard<'_, Pipeline> {
        if self.compiler.is_some() {
            for slot in &locked(&self.published).workers {
                if let Some(worker) = slot.enter().as_mut() {
                    worker.settle(&mut self.shared.lock());
                }
            }
        }
        self.shared.lock()
    }

    /// Gives every worker another program, or none, and adds what was counted with the former one to the
    /// pipeline. When this returns no batch is under way with the former one.
    fn swap(&self, published: &mut Published, program: Option<Arc<dyn RuleProgram>>) {
        if published.program.is_none() && program.is_none() {
            return;
        }
        for slot in &published.workers {
            let mut held = slot.enter();
            let former = std::mem::replace(&mut *held, program.clone().map(|program| program.worker()));
            if let Some(mut former) = former {
                former.settle(&mut self.shared.lock());
            }
        }
        published.program = program;
    }

    fn ask(&self, what: impl FnOnce(&mut Request)) {
        what(&mut locked(&self.request));
        self.requested.notify_all();
    }

    /// Compiles after each change, until [`Programs::stop`]: for a thread of its own. `say` hears why a
    /// pipeline could not be compiled.
    pub fn run(&self, mut say: impl FnMut(String)) {
        let Some(compiler) = self.compiler else { return };
        let mut pause = PAUSE;
        while self.waits_for_change(pause) {
            let begun = Instant::now();
            let pipeline = self.shared.lock();
            let (generation, copy) = (self.generation.load(Relaxed), pipeline.clone());
            drop(pipeline);
            let compiled = compiler.compile(&copy);
            drop(copy);
            pause = PAUSE.max(2 * begun.elapsed());
            match compiled {
                Ok(program) => self.publish(generation, program),
                Err(what) => say(what),
            }
        }
    }

    /// Sleeps until there was a change, and then none for so long; false: it is over.
    fn waits_for_change(&self, pause: Duration) -> bool {
        let mut request = locked(&self.request);
        loop {
            let wait = if request.is_changed { pause } else { Duration::MAX };
            request.is_changed = false;
            let asked = |request: &mut Request| !request.is_changed && !request.is_over;
            let waited = self.requested.wait_timeout_while(request, wait, asked);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if now.is_over {
                return false;
            }
            if timeout.timed_out() {
                return true;
            }
            request = now;
        }
    }

    /// Puts a program into use, unless the rules are no longer those that it was made of.
    fn publish(&self, generation: u64, program: Arc<dyn RuleProgram>) {
        let mut published = locked(&self.published);
        // Nobody changes rules while this lock is held.
        if self.generation.load(Relaxed) == generation {
            self.swap(&mut published, Some(program));
        }
    }

    /// Ends [`Programs::run`].
    pub fn stop(&self) {
        self.ask(|request| request.is_over = true);
    }
}

/// A program where there is one, and the interpreter for all else.
struct ProgramEngine {
    programs: Arc<Programs>,
    slot: Arc<WorkerSlot>,
    interpreter: InterpretingEngine,
    /// Frames that are to be interpreted.
    left: Vec<u16>,
}

impl Engine for ProgramEngine {
    fn batch(&mut self, now: u64, port: PortNo, batch: &mut Batch<'_>, outputs: &mut Outputs) {
        self.left.clear();
        let mut held = self.slot.enter();
        match held.as_mut().filter(|_| !self.programs.shared.is_bridging()) {
            Some(worker) => worker.batch(now, port, batch, outputs, &mut self.left),
            None => self.left.extend(batch.all()),
        }
        if !self.left.is_empty() {
            // Still with the worker's lock: the rules are those of the program.
            self.interpreter.some(now, port, batch, self.left.iter().copied(), outputs);
        }
    }
}

/// A port's thread that ends leaves what it counted.
impl Drop for ProgramEngine {
    fn drop(&mut self) {
        let mut published = locked(&self.programs.published);
        published.workers.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
        if let Some(mut worker) = self.slot.enter().take() {
            worker.settle(&mut self.programs.shared.lock());
        }
    }
}

#[cfg(test)]
#[path = "programs_tests.rs"]
mod tests;
