//! Pipelines that were made into something faster, and how they come and go.
//!
//! **What.** A [`Compiler`] makes a [`CompiledPipeline`] of a pipeline. Its [`RuleProgram`] is immutable, and each port's thread works
//! with a [`ProgramWorker`] of its own that has the counters. Frames that the program leaves over are
//! interpreted. [`Programs`] hands programs out and takes them back.
//!
//! **How it stays true.** A program holds for one state of the rules. Whoever changes these
//! ([`Programs::change`]) first takes the program back from every worker: each has a lock that it holds while
//! it decides about a batch, so who had all of them once knows that no batch is under way that began with the
//! old program. Only then is the pipeline changed. So the next frame meets the new rules, no frame meets a mixture, and a barrier
//! needs no waiting of its own.
//!
//! **How it stays fast.** A change that is small is brought into the program before anybody else gets the pipeline; workers wait for
//! that, microseconds, instead of interpreting. After any other change all is interpreted until a new program is there: it is compiled
//! from a copy, and what changed meanwhile is brought into it at the end.
//!
//! **Why a lock for each worker** and no epochs. Nobody else wants it while nothing changes, so it costs a
//! worker two uncontended exchanges a batch; counters can be collected under it; and there is nothing subtle
//! in it. `docs/decisions/0013-engines.md` has more.
//!
//! **Price.** The compiler gets a copy of the pipeline; while
//! that lives, the first frame and the first change that touch a table copy it. So it is made only after a
//! pause in the changes ([`PAUSE`]).
//!
//! Locks are taken in this order: `published`, a worker's, the pipeline's.

use crate::engine::{Engine, InterpretingEngine};
use crate::kernel::{KernelEngine, KernelWish, LoadedProgram, Refusal, Residence};
use crate::outputs::Outputs;
use crate::shadow::{Divergence, Shadow, ShadowRate, rules_text};
use crate::shared::{MANY_RULES, SharedPipeline, Turns, locked};
use flow::changed::Changed;
use flow::interpret::{InputFrame, OutputFrame, Verdict};
use flow::pipeline::Pipeline;
use flow::port::PortNo;
use linux::port::{Batch, MAX_BATCH};
use linux::sys::process;
use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Rules are compiled when they did not change for so long, and for twice as long as the last compilation took.
pub const PAUSE: Duration = Duration::from_millis(5);

/// Where frames are kept about which engines disagree, from the directory that the switch was started in.
const DIVERGENCES: &str = "divergences";

/// A pipeline in one state of its rules, made into something faster.
pub trait RuleProgram: Send + Sync {
    /// The program in the hands of one worker, with all its counters at zero. A former worker of the same engine, which has told its counts,
    /// may give its memory.
    fn worker(self: Arc<Self>, former: Option<Box<dyn ProgramWorker>>) -> Box<dyn ProgramWorker>;
}

/// A program in the hands of one worker, with what it counted.
pub trait ProgramWorker: Send {
    /// Decides about these frames of a batch. The numbers of those that are to be interpreted go to `left`: nothing was
    /// changed, sent or counted of them.
    fn batch(
        &mut self,
        now: u64,
        port: PortNo,
        batch: &mut Batch<'_>,
        which: &[u16],
        outputs: &mut Outputs,
        left: &mut Vec<u16>,
    );

    /// What would become of a frame, without counting; none when it is to be interpreted.
    fn rehearse(&mut self, now: u64, frame: InputFrame<'_>) -> Option<Vec<OutputFrame>>;

    /// Adds what was counted to the pipeline that the program was made of, and begins anew. Rules and ports
    /// are still those.
    fn settle(&mut self, pipeline: &mut Pipeline);

    /// This worker, for a program that knows what it is.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// A pipeline as its compiler keeps it.
pub trait CompiledPipeline: Send {
    /// The program for the rules as they are.
    fn program(&self) -> Arc<dyn RuleProgram>;

    /// Brings what changed up to date, if that takes less than a millisecond or so; else false, and this is of no more use.
    fn update(&mut self, pipeline: &Pipeline, changed: &Changed) -> bool;

    /// Whether updates have left so much behind that compiling anew is worth it.
    fn is_worn(&self) -> bool {
        false
    }
}

/// Makes programs.
pub trait Compiler: Send + Sync {
    /// Compiles a pipeline.
    ///
    /// # Errors
    /// Why it cannot be, in words: everything is interpreted then.
    fn compile(&self, pipeline: &Pipeline) -> Result<Box<dyn CompiledPipeline>, String>;
}

/// A kind of engine, as in a switch's configuration.
#[derive(Clone, Copy)]
pub struct EngineKind {
    /// Its name.
    pub name: &'static str,
    /// What makes its programs; none: everything is interpreted.
    pub compiler: Option<&'static dyn Compiler>,
    /// Where in the kernel rules run besides, if they are to.
    pub kernel: Option<KernelWish>,
}

/// Everything is interpreted.
pub const INTERPRETER: EngineKind = EngineKind { name: "interpreter", compiler: None, kernel: None };

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
struct Hands {
    worker: Option<Box<dyn ProgramWorker>>,
    /// Whether its program is that of the rules.
    is_current: bool,
}

impl Hands {
    /// Tells what was counted, and lets the program be until there is one again.
    fn give_back(&mut self, shared: &SharedPipeline) {
        if let Some(worker) = self.worker.as_mut().filter(|_| std::mem::take(&mut self.is_current)) {
            worker.settle(&mut shared.lock());
        }
    }

    fn take(&mut self, program: Arc<dyn RuleProgram>) {
        self.worker = Some(program.worker(self.worker.take()));
        self.is_current = true;
    }
}

/// What holds now, and who works with it.
#[derive(Default)]
struct Published {
    compiled: Option<Box<dyn CompiledPipeline>>,
    /// None while all is interpreted.
    program: Option<Arc<dyn RuleProgram>>,
    workers: Vec<Arc<Turns<Hands>>>,
    /// What changed since the copy was made that is being compiled; none while nothing is.
    since: Option<Changed>,
    /// The program that the kernel runs.
    in_kernel: Option<LoadedProgram>,
    /// Nothing changed since the copy was made that a program for the kernel is made of.
    is_copy_current: bool,
}

/// What the thread that compiles is to do.
#[derive(Default)]
struct Request {
    is_changed: bool,
    has_diverged: bool,
    is_over: bool,
    /// What went wrong with the kernel, to be said.
    trouble: Option<String>,
}

/// What there is to say of programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramNews {
    /// The rules are interpreted: why.
    Interpreted(String),
    /// What the kernel does, or why it does not.
    Kernel(String),
}

/// The programs of a switch.
pub struct Programs {
    shared: Arc<SharedPipeline>,
    compiler: Option<&'static dyn Compiler>,
    published: Turns<Published>,
    /// Somebody changes rules that there was a program for.
    is_updating: AtomicBool,
    shadow: ShadowRate,
    /// Frames about which a program and the interpreter disagreed.
    divergences: AtomicU64,
    /// The first of them, until it is kept, and where.
    divergence: Mutex<Option<Divergence>>,
    divergences_in: PathBuf,
    request: Mutex<Request>,
    requested: Condvar,
    /// What stands before the ports, if anything does.
    kernel: Option<KernelEngine>,
    /// Programs that the kernel was given.
    installed: AtomicU64,
}

impl Programs {
    /// Of a switch with this engine. Nothing is compiled before [`Programs::run`].
    pub fn new(shared: Arc<SharedPipeline>, engine: EngineKind, shadow: ShadowRate) -> Programs {
        Programs {
            kernel: None,
            installed: AtomicU64::new(0),
            shared,
            compiler: engine.compiler,
            published: Turns::default(),
            is_updating: AtomicBool::new(false),
            shadow,
            divergences: AtomicU64::new(0),
            divergence: Mutex::default(),
            divergences_in: DIVERGENCES.into(),
            request: Mutex::default(),
            requested: Condvar::new(),
        }
    }

    /// With this before the ports.
    pub(crate) fn with_kernel(self, kernel: Option<KernelEngine>) -> Programs {
        Programs { kernel, ..self }
    }

    /// What stands before the ports.
    pub(crate) fn kernel(&self) -> Option<&KernelEngine> {
        self.kernel.as_ref()
    }

    /// How often a program was given to the kernel, and whether one is in use there now.
    pub fn in_kernel(&self) -> (u64, bool) {
        let published = self.published.enter();
        (self.installed.load(SeqCst), published.in_kernel.is_some())
    }

    /// Whether there is anything to compile.
    pub fn compiles(&self) -> bool {
        self.compiler.is_some()
    }

    /// Whether a program is in use.
    pub fn has_program(&self) -> bool {
        self.published.enter().program.is_some()
    }

    /// The engine of one more port's thread.
    pub fn engine(self: &Arc<Self>) -> Box<dyn Engine> {
        let interpreter = InterpretingEngine::new(self.shared.clone());
        if self.compiler.is_none() {
            return Box::new(interpreter);
        }
        let slot = Arc::new(Turns::<Hands>::default());
        let mut published = self.published.enter();
        published.program.iter().for_each(|program| slot.enter().take(program.clone()));
        published.workers.push(slot.clone());
        Box::new(ProgramEngine {
            programs: self.clone(),
            slot,
            interpreter,
            left: Vec::with_capacity(MAX_BATCH),
            shadow: Shadow::new(self.shadow),
            chosen: vec![],
            rest: vec![],
            verdict: Verdict::default(),
        })
    }

    /// Frames about which a program and the interpreter disagreed. After the first of them all is interpreted.
    pub fn divergences(&self) -> u64 {
        self.divergences.load(SeqCst)
    }

    /// Changes what becomes of frames. Waits for the batches that are under way.
    pub fn change<T>(&self, act: impl FnOnce(&mut Pipeline) -> T) -> T {
        if self.compiler.is_none() {
            return act(&mut self.shared.lock());
        }
        let mut published = self.published.enter();
        self.withdraw(&mut published);
        self.is_updating.store(published.program.is_some(), SeqCst);
        published.workers.iter().for_each(|slot| slot.enter().give_back(&self.shared));
        let mut pipeline = self.shared.lock();
        let value = act(&mut pipeline);
        let changed = pipeline.take_changed();
        let program = published.updated(&pipeline, &changed);
        drop(pipeline);
        if let Some(since) = &mut published.since {
            since.add(&changed);
        }
        let is_worn = published.compiled.as_ref().is_none_or(|compiled| compiled.is_worn());
        published.hand_out(program);
        self.is_updating.store(false, SeqCst);
        if is_worn || self.kernel.is_some() {
            self.ask(|request| request.is_changed = true);
        }
        value
    }

    /// Takes the program out of the kernel and adds what it counted to the pipeline. Afterwards every frame comes to user space.
    fn withdraw(&self, published: &mut Published) {
        published.is_copy_current = false;
        let (Some(kernel), Some(mut program)) = (&self.kernel, published.in_kernel.take()) else { return };
        if let Err(error) = kernel.withdraw().and_then(|()| program.settle(&mut self.shared.lock())) {
            let what =
                format!("a program cannot be taken out of the kernel, or its counters are lost: {error}");
            locked(&self.request).trouble = Some(what);
        }
    }

    /// Be a learning bridge, or follow the rules.
    pub fn set_bridging(&self, on: bool) {
        if self.shared.is_bridging() == on {
            return;
        }
        let mut published = self.published.enter();
        // A bridge is no rule: the kernel follows none while it is one.
        self.withdraw(&mut published);
        self.shared.set_bridging(on);
        drop(published);
        self.ask(|request| request.is_changed = true);
    }

    /// The pipeline with all that was counted until now, to read it.
    pub fn counted(&self) -> MutexGuard<'_, Pipeline> {
        if self.compiler.is_some() {
            let mut published = self.published.enter();
            if let Some(program) = &mut published.in_kernel {
                // What cannot be read now is read the next time.
                let _ = program.settle(&mut self.shared.lock());
            }
            for slot in &published.workers {
                let mut hands = slot.enter();
                if hands.is_current {
                    hands.worker.iter_mut().for_each(|worker| worker.settle(&mut self.shared.lock()));
                }
            }
        }
        self.shared.lock()
    }

    fn ask(&self, what: impl FnOnce(&mut Request)) {
        what(&mut locked(&self.request));
        self.requested.notify_all();
    }

    /// Compiles after each change that was not small, until [`Programs::stop`]: for a thread of its own. `say` hears why a
    /// pipeline could not be compiled.
    pub fn run(&self, mut say: impl FnMut(ProgramNews)) {
        let Some(compiler) = self.compiler else { return };
        let (mut pause, mut residence, mut most) = (PAUSE, Residence::default(), 0);
        while self.waits_for_change(pause.max(residence.pause())) {
            if locked(&self.request).has_diverged {
                return say(ProgramNews::Interpreted(self.distrust()));
            }
            let begun = Instant::now();
            if self.is_worn() {
                let copy = self.copy();
                let compiled = compiler.compile(&copy);
                let rules = copy.len();
                drop(copy);
                pause = PAUSE.max(2 * begun.elapsed());
                match compiled {
                    Ok(compiled) => self.publish(compiled),
                    Err(what) => say(ProgramNews::Interpreted(what)),
                }
                // The program of the rules that are gone was in use until now.
                if most >= MANY_RULES && rules <= most / 2 {
                    process::return_freed_memory();
                    most = 0;
                }
                most = rules.max(most);
            }
            let trouble = locked(&self.request).trouble.take();
            trouble.into_iter().for_each(|what| say(ProgramNews::Kernel(what)));
            self.give_to_kernel(&mut residence, &mut say);
        }
    }

    /// Whether the program of user space has to be compiled anew.
    fn is_worn(&self) -> bool {
        let published = self.published.enter();
        published.program.is_none() || published.compiled.as_ref().is_none_or(|compiled| compiled.is_worn())
    }

    /// Gives the kernel a program of the rules as they are, if they stay so long enough.
    fn give_to_kernel(&self, residence: &mut Residence, say: &mut impl FnMut(ProgramNews)) {
        let Some(kernel) = self.kernel.as_ref().filter(|kernel| kernel.has_ports()) else { return };
        let begun = Instant::now();
        let mut published = self.published.enter();
        if self.shared.is_bridging() || published.in_kernel.is_some() {
            return;
        }
        published.is_copy_current = true;
        let copy = self.shared.lock().clone();
        drop(published);
        let made = kernel.make(&copy);
        drop(copy);
        let mut published = self.published.enter();
        if !published.is_copy_current || self.shared.is_bridging() {
            return self.ask(|request| request.is_changed = true);
        }
        let program = made.and_then(|program| match kernel.fill(&program) {
            Ok(()) => Ok(program),
            Err(error) => Err(Refusal::Cannot(format!("the kernel does not take the program: {error}"))),
        });
        let news = match program {
            Ok(program) => {
                let news = residence.begun(begun.elapsed(), &program);
                published.in_kernel = Some(program);
                self.installed.fetch_add(1, SeqCst);
                news
            }
            Err(Refusal::Cannot(what)) => residence.refused(what),
            Err(Refusal::Diverged(divergence)) => {
                self.diverged(divergence);
                None
            }
        };
        drop(published);
        news.into_iter().for_each(|what| say(ProgramNews::Kernel(what)));
    }

    /// Ends the use of programs after a divergence: what is to be said of it.
    fn distrust(&self) -> String {
        let mut published = self.published.enter();
        self.withdraw(&mut published);
        published.workers.iter().for_each(|slot| slot.enter().give_back(&self.shared));
        published.compiled = None;
        published.hand_out(None);
        drop(published);
        let Some(divergence) = locked(&self.divergence).take() else { return String::new() };
        let kept = match divergence.save(&self.divergences_in) {
            Ok(path) => format!("the frame and the rules are in {}, please report them", path.display()),
            Err(problem) => problem.to_string(),
        };
        format!("their code and the interpreter disagree about a frame from port {}; {kept}", divergence.port)
    }

    fn diverged(&self, divergence: Divergence) {
        locked(&self.divergence).get_or_insert(divergence);
        self.divergences.fetch_add(1, SeqCst);
        self.ask(|request| request.has_diverged = true);
    }

    /// A copy to compile. From now on it is noted what changes.
    fn copy(&self) -> Pipeline {
        let mut published = self.published.enter();
        published.since = Some(Changed::default());
        let pipeline = self.shared.lock();
        pipeline.clone()
    }

    /// Sleeps until there was a change, and then none for so long, or a divergence; false: it is over.
    fn waits_for_change(&self, pause: Duration) -> bool {
        let mut request = locked(&self.request);
        loop {
            let wait = if request.is_changed { pause } else { Duration::MAX };
            request.is_changed = false;
            let asked = |now: &mut Request| !now.is_changed && !now.has_diverged && !now.is_over;
            let waited = self.requested.wait_timeout_while(request, wait, asked);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if now.is_over || now.has_diverged || timeout.timed_out() {
                return !now.is_over;
            }
            request = now;
        }
    }

    /// Puts a program into use, with what changed since it was begun; unless that is too much.
    fn publish(&self, compiled: Box<dyn CompiledPipeline>) {
        let mut published = self.published.enter();
        let since = published.since.take().unwrap_or_default();
        let former = published.compiled.replace(compiled);
        let program = published.updated(&self.shared.lock(), &since);
        if program.is_none() {
            // The former one, if there is one, is still up to date.
            published.compiled = former;
            return self.ask(|request| request.is_changed = true);
        }
        published.workers.iter().for_each(|slot| slot.enter().give_back(&self.shared));
        published.hand_out(program);
    }

    /// Ends [`Programs::run`].
    pub fn stop(&self) {
        self.ask(|request| request.is_over = true);
    }
}

impl Published {
    /// The program of the pipeline after what changed, if that could be brought up to date.
    fn updated(&mut self, pipeline: &Pipeline, changed: &Changed) -> Option<Arc<dyn RuleProgram>> {
        let mut compiled = self.compiled.take()?;
        (!changed.everything && compiled.update(pipeline, changed)).then(|| {
            let program = compiled.program();
            self.compiled = Some(compiled);
            program
        })
    }

    /// Gives every worker a program, or none. They have given the former one back.
    fn hand_out(&mut self, program: Option<Arc<dyn RuleProgram>>) {
        if let Some(program) = &program {
            self.workers.iter().for_each(|slot| slot.enter().take(program.clone()));
        }
        self.program = program;
    }
}

/// A program where there is one, and the interpreter for all else.
struct ProgramEngine {
    programs: Arc<Programs>,
    slot: Arc<Turns<Hands>>,
    interpreter: InterpretingEngine,
    /// Frames that are to be interpreted.
    left: Vec<u16>,
    shadow: Shadow,
    /// Frames that both engines decide about, and the others.
    chosen: Vec<u16>,
    rest: Vec<u16>,
    verdict: Verdict,
}

impl Engine for ProgramEngine {
    fn batch(&mut self, now: u64, port: PortNo, batch: &mut Batch<'_>, outputs: &mut Outputs) {
        self.left.clear();
        let programs = self.programs.clone();
        let slot = self.slot.clone();
        let mut hands = slot.enter();
        if !hands.is_current && programs.is_updating.load(SeqCst) {
            drop(hands);
            // Who changes the rules has it until the program is up to date.
            let _turn = programs.published.enter();
            hands = slot.enter();
        }
        let is_used = hands.is_current && !programs.shared.is_bridging() && programs.divergences() == 0;
        match hands.worker.as_deref_mut().filter(|_| is_used) {
            Some(worker) => self.compiled(worker, now, port, batch, outputs),
            None => self.left.extend(batch.all()),
        }
        if !self.left.is_empty() {
            // Still with the worker's lock: the rules are those of the program.
            self.interpreter.some(now, port, batch, self.left.iter().copied(), outputs);
        }
    }
}

impl ProgramEngine {
    fn compiled(
        &mut self,
        worker: &mut dyn ProgramWorker,
        now: u64,
        port: PortNo,
        batch: &mut Batch<'_>,
        outputs: &mut Outputs,
    ) {
        let all = batch.all();
        if !self.shadow.choose(all, now, &mut self.chosen, &mut self.rest) {
            return worker.batch(now, port, batch, all, outputs, &mut self.left);
        }
        worker.batch(now, port, batch, &self.rest, outputs, &mut self.left);
        for index in std::mem::take(&mut self.chosen) {
            self.shadowed(worker, now, port, batch, index, outputs);
        }
        self.shadow.spent(now);
    }

    /// Lets the interpreter decide about a frame, and compares what the program would have done.
    fn shadowed(
        &mut self,
        worker: &mut dyn ProgramWorker,
        now: u64,
        port: PortNo,
        batch: &Batch<'_>,
        index: u16,
        outputs: &mut Outputs,
    ) {
        let (bytes, offload) = (batch.bytes(index.into()), batch.meta(index.into()).offload);
        let arrival = InputFrame { offload, ..InputFrame::new(port, bytes) };
        let said = worker.rehearse(now, arrival);
        self.interpreter.one(now, arrival, &mut self.verdict);
        if let Some(said) = said {
            let rules = || rules_text(&self.programs.shared.lock());
            let divergence = Divergence::of(port, bytes, &self.verdict, &said, rules);
            divergence.into_iter().for_each(|divergence| self.programs.diverged(divergence));
        }
        outputs.begin(index);
        for OutputFrame { port, queue, frame, offload } in &self.verdict.sent {
            outputs.copy(*port, *queue, frame, *offload);
        }
        outputs.packet_ins.append(&mut self.verdict.packet_ins);
    }
}

/// A port's thread that ends leaves what it counted.
impl Drop for ProgramEngine {
    fn drop(&mut self) {
        let mut published = self.programs.published.enter();
        published.workers.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
        self.slot.enter().give_back(&self.programs.shared);
    }
}

#[cfg(test)]
#[path = "programs_tests.rs"]
mod tests;
