//! `pathlab bench flow`: what a pipeline alone costs a frame, from memory, on one core.
//!
//! **What.** For each pipeline and each number of flows, interpreter, compiled code and programs of the kernel ([`kernel`]) take the same frames of
//! 64 bytes; every round measures the making of the headers alone and each engine, one after the other. Figures are nanoseconds of the thread's CPU per frame, the
//! making of the headers taken off: median, lowest and highest round.
//!
//! **Why.** No port, no lock, no copy: what remains is parse, tables and actions, and whether it depends on rules or on flows.
//!
//! **Price.** One frame is rewritten in place, so the frame is always in the first cache; on a wire it is not. Runs of some
//! milliseconds: on a busy machine compare engines within a run, not runs.

pub mod classbench;
pub mod kernel;
pub mod pipelines;
mod workers;

use crate::notices::Notices;
use ::switch::kernel::LoadedProgram;
use flow::interpret::{InputFrame, Verdict, receive};
use flow::{Pipeline, PortNo};
use jit::kernel::Hook;
use jit::{Compiler, Frame, Outcome, Outputs, Program, Worker};
use kernel::Interfaces;
use linux::sys::{clock, process};
use pipelines::{FRAME, FlowHeader, Named, PIPELINES, Workload};
use record::{HostFacts, Problem, Result};
use serde::Serialize;
use wire::offload::Offload;

/// Bytes of room before the frame.
const HEADROOM: usize = 64;
/// Frames between two looks at the clock.
const CHUNK: u64 = 256;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The interpreter.
    Interpreter,
    /// Machine code.
    Native,
    /// A program of the kernel.
    Kernel(Hook),
}

impl Engine {
    /// All, with the words for them.
    pub const NAMES: [(&'static str, Engine); 4] = [
        ("interpreter", Engine::Interpreter),
        ("native", Engine::Native),
        ("xdp", Engine::Kernel(Hook::Xdp)),
        ("tcx", Engine::Kernel(Hook::Tcx)),
    ];

    fn name(self) -> &'static str {
        Engine::NAMES.iter().find(|(_, engine)| *engine == self).map_or("", |(name, _)| name)
    }
}

/// What is wanted.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The short list of pipelines, and fewer flows.
    pub is_quick: bool,
    /// Only these pipelines.
    pub only: Vec<String>,
    /// Only these engines, by name.
    pub engines: Vec<String>,
    /// Rounds of each measurement.
    pub rounds: u32,
    /// Milliseconds of each run.
    pub milliseconds: u64,
    /// Seed of the rule sets.
    pub seed: u64,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct FlowBenchDocument {
    /// `pathlab/bench-flow/1`.
    pub schema: &'static str,
    /// Rounds of each measurement.
    pub rounds: u32,
    /// Milliseconds of each run.
    pub milliseconds: u64,
    /// Seed of the rule sets.
    pub seed: u64,
    /// Bytes of a frame, without FCS.
    pub frame_bytes: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu_model: String,
    /// How many of these.
    pub cpus: u32,
    /// One line for each pipeline, number of flows and engine.
    pub results: Vec<Measured>,
    /// Engines that were not measured.
    pub skipped: Vec<Skipped>,
}

/// An engine that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its name.
    pub engine: &'static str,
    /// The pipeline; none for all.
    pub pipeline: Option<&'static str>,
    /// Why.
    pub why: String,
}

/// One engine on one pipeline.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// The pipeline.
    pub pipeline: &'static str,
    /// What it is.
    pub what: &'static str,
    /// Its rules.
    pub rules: usize,
    /// Different flows.
    pub flows: u64,
    /// `interpreter`, `native`, `xdp` or `tcx`.
    pub engine: &'static str,
    /// Nanoseconds per frame, without the making of the header.
    pub ns_per_frame: Spread,
    /// Million frames per second of one core, from the median.
    pub mframes_per_s: f64,
    /// Frames per second of two workers at once, each with counters of its own, ÷ those of one; native only, where there are two CPUs.
    pub two_workers: Option<Spread>,
    /// Milliseconds from pipeline to program, of the kernel's until it is loaded; not of the interpreter.
    pub compile_ms: Option<f64>,
    /// Microseconds to bring one rule up to date (median over some of each pipeline's rules, taken out and put in again); native only.
    pub update_us: Option<f64>,
    /// Bytes of code; not of the interpreter.
    pub code_bytes: Option<usize>,
    /// Bytes of tables and records, of the kernel's all maps; not of the interpreter.
    pub data_bytes: Option<usize>,
    /// Part of the frames that the program left to the interpreter, whose time is in the figure of native code, and not in those of the kernel.
    pub exits: Option<f64>,
}

/// Over the rounds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

/// Measures.
///
/// # Errors
/// Input: an unknown pipeline. Interruption.
pub fn run(wanted: &Wanted, notices: &dyn Notices) -> Result<FlowBenchDocument> {
    crate::process::interruptible()?;
    let (mut results, mut skipped) = (vec![], vec![]);
    let engines = engines(wanted)?;
    let place = place(&engines, &mut skipped);
    for named in chosen(wanted)? {
        let workload = named.make(wanted.seed)?;
        let flows: &[u64] = match (wanted.is_quick, workload.headers.len()) {
            (true, _) => &[1, 10_000],
            (false, 0..100_000) => &[1, 100, 10_000, 100_000, 1_000_000],
            _ => &[1, 10_000, 1_000_000],
        };
        let built = Built::new(&workload)?;
        let kernel = kernels(named, &workload, &engines, place.as_ref(), &mut skipped);
        let bench = Bench { named, workload: &workload, built: &built, kernel: &kernel, engines: &engines };
        for flows in flows {
            notices.part(&format!("{}: {flows} flows", named.name), 0, 0);
            results.extend(bench.measure(*flows, wanted)?);
        }
    }
    let Wanted { rounds, milliseconds, seed, .. } = *wanted;
    let HostFacts { kernel, cpu_model, cpus, .. } = linux::observe::host_facts();
    Ok(FlowBenchDocument {
        schema: "pathlab/bench-flow/1",
        rounds,
        milliseconds,
        seed,
        frame_bytes: FRAME,
        kernel,
        cpu_model,
        cpus,
        results,
        skipped,
    })
}

fn engines(wanted: &Wanted) -> Result<Vec<Engine>> {
    let find = |word: &String| {
        let found = Engine::NAMES.iter().find(|(name, _)| name == word);
        let names = || Engine::NAMES.map(|(name, _)| name).join(", ");
        found.map(|(_, engine)| *engine).ok_or_else(|| {
            Problem::input(format!("there is no engine `{word}` to measure; there are {}", names()))
        })
    };
    match wanted.engines.is_empty() {
        true => Ok(Engine::NAMES.iter().map(|(_, engine)| *engine).collect()),
        false => wanted.engines.iter().map(find).collect(),
    }
}

/// Ports of the pipelines.
const PORTS: u32 = 8;

/// Interfaces for programs of the kernel, if any are wanted.
fn place(engines: &[Engine], skipped: &mut Vec<Skipped>) -> Option<Interfaces> {
    let mut hooks = engines.iter().filter(|engine| matches!(engine, Engine::Kernel(_))).peekable();
    hooks.peek()?;
    // One more, for frames that pass.
    match Interfaces::make(PORTS as usize + 1) {
        Ok(interfaces) => Some(interfaces),
        Err(problem) => {
            let skip =
                |engine: &Engine| Skipped { engine: engine.name(), pipeline: None, why: problem.to_string() };
            skipped.extend(hooks.map(skip));
            None
        }
    }
}

/// A program of the kernel, and what it cost to make.
struct InKernel<'a> {
    engine: Engine,
    loaded: LoadedProgram,
    compile_ms: f64,
    place: &'a Interfaces,
}

fn kernels<'a>(
    named: &Named,
    workload: &Workload,
    engines: &[Engine],
    place: Option<&'a Interfaces>,
    skipped: &mut Vec<Skipped>,
) -> Vec<InKernel<'a>> {
    let mut made = vec![];
    for engine in engines {
        let (Engine::Kernel(hook), Some(place)) = (*engine, place) else { continue };
        match in_kernel(*engine, hook, workload, place) {
            Ok(one) => made.push(one),
            Err(problem) => skipped.push(Skipped {
                engine: engine.name(),
                pipeline: Some(named.name),
                why: problem.to_string(),
            }),
        }
    }
    made
}

fn in_kernel<'a>(
    engine: Engine,
    hook: Hook,
    workload: &Workload,
    place: &'a Interfaces,
) -> Result<InKernel<'a>> {
    let numbers: Vec<u32> = (1..=PORTS).collect();
    let begun = clock::monotonic_ns();
    let make = || kernel::loaded(kernel::compiled(&workload.pipeline, hook, &numbers, &place.indices)?);
    let loaded =
        place.within(make).map_err(|error| Problem::host(error.to_string())).and_then(|made| made)?;
    let compile_ms = (clock::monotonic_ns() - begun) as f64 / 1e6;
    Ok(InKernel { engine, loaded, compile_ms, place })
}

fn chosen(wanted: &Wanted) -> Result<Vec<&'static Named>> {
    let find = |name: &String| {
        let names = || PIPELINES.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
        let found = PIPELINES.iter().find(|one| one.name == name);
        found.ok_or_else(|| Problem::input(format!("there is no pipeline `{name}`; there are {}", names())))
    };
    if wanted.only.is_empty() {
        return Ok(PIPELINES.iter().filter(|one| one.is_quick || !wanted.is_quick).collect());
    }
    wanted.only.iter().map(find).collect()
}

/// A program, and what it cost to make.
struct Built {
    program: Program,
    compile_ms: f64,
    update_us: f64,
}

impl Built {
    fn new(workload: &Workload) -> Result<Built> {
        let refused = |refused: jit::Refused| Problem::host(refused.to_string());
        let begun = clock::monotonic_ns();
        let mut compiler = Compiler::new(&workload.pipeline).map_err(refused)?;
        let compile_ms = (clock::monotonic_ns() - begun) as f64 / 1e6;
        let program = compiler.program();
        let update_us = updates(&mut compiler, &workload.pipeline).map_err(refused)?;
        Ok(Built { program, compile_ms, update_us })
    }
}

/// The median cost of bringing a rule up to date that did not change: it is taken out and put in, and a program is made each time.
fn updates(compiler: &mut Compiler, pipeline: &Pipeline) -> std::result::Result<f64, jit::Refused> {
    let rules: Vec<_> =
        pipeline.tables().flat_map(|table| table.rules().map(|(at, _)| (table.number, at))).collect();
    let mut costs = vec![];
    for (table, at) in rules.iter().step_by((rules.len() / 15).max(1)) {
        let begun = clock::monotonic_ns();
        compiler.update(pipeline, *table, *at)?;
        let program = compiler.program();
        costs.push((clock::monotonic_ns() - begun) as f64 / 1e3);
        drop(program);
    }
    Ok(spread(&costs).median)
}

/// The frame that is rewritten.
struct Memory {
    room: [u8; HEADROOM + FRAME],
    now: u64,
}

impl Memory {
    /// The next header of these flows into the frame; the port by which it comes in.
    fn next(&mut self, headers: &[FlowHeader], at: &mut usize, flow: u64) -> PortNo {
        let mut frame = [0; FRAME];
        let port = headers[*at].write(flow, &mut frame);
        *at = if *at + 1 == headers.len() { 0 } else { *at + 1 };
        self.room[HEADROOM..].copy_from_slice(&frame);
        self.now += 1;
        PortNo(port)
    }
}

/// Makes headers for some milliseconds and hands each frame on; nanoseconds per frame.
fn loaded(
    headers: &[FlowHeader],
    flows: u64,
    milliseconds: u64,
    each: &mut dyn FnMut(&mut Memory, PortNo),
) -> f64 {
    let mut memory = Memory { room: [0; HEADROOM + FRAME], now: 0 };
    // Fewer flows than rules meet only so many rules.
    let headers = &headers[..headers.len().min(flows as usize)];
    let (mut at, mut flow, mut frames) = (0, 0, 0);
    let begun = clock::thread_cpu_ns();
    loop {
        for _ in 0..CHUNK {
            let port = memory.next(headers, &mut at, flow);
            flow = if flow + 1 == flows { 0 } else { flow + 1 };
            each(&mut memory, port);
        }
        frames += CHUNK;
        let passed = clock::thread_cpu_ns() - begun;
        if passed > milliseconds * 1_000_000 {
            return passed as f64 / frames as f64;
        }
    }
}

/// A pipeline with all that was made of it.
struct Bench<'a> {
    named: &'static Named,
    workload: &'a Workload,
    built: &'a Built,
    kernel: &'a [InKernel<'a>],
    engines: &'a [Engine],
}

impl Bench<'_> {
    fn measure(&self, flows: u64, wanted: &Wanted) -> Result<Vec<Measured>> {
        let mut engines = Engines::new(self.workload, &self.built.program);
        let (mut native, mut interpreter, mut workers) = (vec![], vec![], vec![]);
        let are_two = linux::observe::host_facts().cpus >= 2;
        let mut kernel = vec![(vec![], 0.0); self.kernel.len()];
        let run = |each: &mut dyn FnMut(&mut Memory, PortNo)| {
            loaded(&self.workload.headers, flows, wanted.milliseconds, each)
        };
        let wants = |engine| self.engines.contains(&engine);
        for round in 0..=wanted.rounds {
            if process::interrupted() {
                return Err(Problem::host("interrupted"));
            }
            let alone = run(&mut |memory, port| _ = std::hint::black_box((&memory.room, port)));
            let compiled =
                wants(Engine::Native).then(|| run(&mut |memory, port| engines.compiled(memory, port)));
            let interpreted = wants(Engine::Interpreter)
                .then(|| run(&mut |memory, port| engines.interpreted(memory, port)));
            for (one, costs) in self.kernel.iter().zip(&mut kernel) {
                let (cost, exits) = one.cost(&self.workload.headers, flows, wanted.milliseconds)?;
                costs.1 = exits;
                costs.0.extend((round > 0).then_some(cost));
            }
            // The first round warms up.
            if round > 0 {
                native.extend(compiled.map(|cost| cost - alone));
                workers.extend((compiled.is_some() && are_two).then(|| {
                    let headers = &self.workload.headers;
                    workers::ratio(&self.built.program, headers, flows, wanted.milliseconds)
                }));
                interpreter.extend(interpreted.map(|cost| cost - alone));
            }
        }
        let rules = self.workload.pipeline.len();
        let new =
            |engine: Engine, costs: &[f64]| Measured::new(self.named, rules, flows, engine.name(), costs);
        let mut all = vec![];
        all.extend(wants(Engine::Interpreter).then(|| new(Engine::Interpreter, &interpreter)));
        all.extend(wants(Engine::Native).then(|| Measured {
            two_workers: (!workers.is_empty()).then(|| spread(&workers)),
            compile_ms: Some(self.built.compile_ms),
            update_us: Some(self.built.update_us),
            code_bytes: Some(self.built.program.code_bytes()),
            data_bytes: Some(self.built.program.data_bytes()),
            exits: Some(engines.exits()),
            ..new(Engine::Native, &native)
        }));
        all.extend(self.kernel.iter().zip(&kernel).map(|(one, (costs, exits))| Measured {
            compile_ms: Some(one.compile_ms),
            code_bytes: Some(8 * one.loaded.program.instructions()),
            data_bytes: Some(one.loaded.program.data_bytes()),
            exits: Some(*exits),
            ..new(one.engine, costs)
        }));
        Ok(all)
    }
}

impl InKernel<'_> {
    /// What a frame costs, and the part of frames that went to user space.
    fn cost(&self, headers: &[FlowHeader], flows: u64, milliseconds: u64) -> Result<(f64, f64)> {
        let cost = || kernel::cost(&self.loaded, headers, flows, milliseconds);
        self.place.within(cost).and_then(|cost| cost).map_err(|error| {
            Problem::host(format!("the kernel did not run the program for {}: {error}", self.engine.name()))
        })
    }
}

/// What a frame is given to, in turn.
struct Engines<'a> {
    program: &'a Program,
    worker: Worker,
    outputs: Outputs,
    pipeline: Pipeline,
    verdict: Verdict,
}

impl<'a> Engines<'a> {
    fn new(workload: &Workload, program: &'a Program) -> Engines<'a> {
        Engines {
            program,
            worker: Worker::default(),
            outputs: Outputs::default(),
            pipeline: workload.pipeline.clone(),
            verdict: Verdict::default(),
        }
    }

    /// Through the code, and through the interpreter when the code leaves the frame to it.
    fn compiled(&mut self, memory: &mut Memory, port: PortNo) {
        let (start, end, offload) = (HEADROOM, HEADROOM + FRAME, Offload::NONE);
        let mut frame = Frame { room: &mut memory.room, start, end, offload };
        let Engines { program, worker, outputs, .. } = self;
        if program.frame(worker, memory.now, port.into(), &mut frame, outputs) == Outcome::Interpret {
            self.interpreted(memory, port);
        }
    }

    fn interpreted(&mut self, memory: &mut Memory, port: PortNo) {
        self.verdict.clear();
        let frame = InputFrame::new(port, &memory.room[HEADROOM..]);
        receive(&mut self.pipeline, memory.now, frame, &mut self.verdict);
    }

    /// Part of the frames that the code left to the interpreter.
    fn exits(&self) -> f64 {
        let tally = &self.worker.tally;
        tally.exits as f64 / (tally.exits + tally.done).max(1) as f64
    }
}

impl Measured {
    /// What both engines have.
    fn new(named: &'static Named, rules: usize, flows: u64, engine: &'static str, costs: &[f64]) -> Measured {
        let ns_per_frame = spread(costs);
        Measured {
            pipeline: named.name,
            what: named.what,
            rules,
            flows,
            engine,
            ns_per_frame,
            mframes_per_s: 1e3 / ns_per_frame.median,
            two_workers: None,
            compile_ms: None,
            update_us: None,
            code_bytes: None,
            data_bytes: None,
            exits: None,
        }
    }
}

fn spread(costs: &[f64]) -> Spread {
    let mut sorted = costs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    Spread { median: at(sorted.len() / 2), low: at(0), high: at(sorted.len().saturating_sub(1)) }
}
