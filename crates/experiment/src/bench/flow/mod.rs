//! `pathlab bench flow`: what a pipeline alone costs a frame, from memory, on one core.
//!
//! **What.** For each pipeline and each number of flows, interpreter and compiled code take the same frames of 64 bytes; every round measures
//! the making of the headers alone, the code, and the interpreter, one after the other. Figures are nanoseconds of the thread's CPU per frame, the
//! making of the headers taken off: median, lowest and highest round.
//!
//! **Why.** No port, no lock, no copy: what remains is parse, tables and actions, and whether it depends on rules or on flows.
//!
//! **Price.** One frame is rewritten in place, so the frame is always in the first cache; on a wire it is not. Runs of some
//! milliseconds: on a busy machine compare engines within a run, not runs.

pub mod classbench;
pub mod pipelines;

use crate::notices::Notices;
use flow::interpret::{InputFrame, Verdict, receive};
use flow::{Pipeline, PortNo};
use jit::{Compiler, Frame, Outcome, Outputs, Program, Worker};
use linux::sys::clock;
use pipelines::{FRAME, FlowHeader, Named, PIPELINES, Workload};
use record::{Problem, Result};
use serde::Serialize;
use wire::offload::Offload;

/// Bytes of room before the frame.
const HEADROOM: usize = 64;
/// Frames between two looks at the clock.
const CHUNK: u64 = 256;

/// What is wanted.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The short list of pipelines, and fewer flows.
    pub is_quick: bool,
    /// Only these pipelines.
    pub only: Vec<String>,
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
    /// One line for each pipeline, number of flows and engine.
    pub results: Vec<Measured>,
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
    /// `interpreter` or `native`.
    pub engine: &'static str,
    /// Nanoseconds per frame, without the making of the header.
    pub ns_per_frame: Spread,
    /// Million frames per second of one core, from the median.
    pub mframes_per_s: f64,
    /// Milliseconds from pipeline to program; native only.
    pub compile_ms: Option<f64>,
    /// Microseconds to bring one rule up to date (median over some of each pipeline's rules, taken out and put in again); native only.
    pub update_us: Option<f64>,
    /// Bytes of code; native only.
    pub code_bytes: Option<usize>,
    /// Bytes of tables and records; native only.
    pub data_bytes: Option<usize>,
    /// Part of the frames that the code left to the interpreter, whose time is in the figure; native only.
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
    let mut results = vec![];
    for named in chosen(wanted)? {
        let workload = named.make(wanted.seed)?;
        let flows: &[u64] = match (wanted.is_quick, workload.headers.len()) {
            (true, _) => &[1, 10_000],
            (false, 0..100_000) => &[1, 100, 10_000, 100_000, 1_000_000],
            _ => &[1, 10_000, 1_000_000],
        };
        let built = Built::new(&workload)?;
        for flows in flows {
            notices.part(&format!("{}: {flows} flows", named.name), 0, 0);
            results.extend(measure(named, &workload, &built, *flows, wanted));
        }
    }
    let Wanted { rounds, milliseconds, seed, .. } = *wanted;
    Ok(FlowBenchDocument {
        schema: "pathlab/bench-flow/1",
        rounds,
        milliseconds,
        seed,
        frame_bytes: FRAME,
        results,
    })
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

fn measure(
    named: &'static Named,
    workload: &Workload,
    built: &Built,
    flows: u64,
    wanted: &Wanted,
) -> [Measured; 2] {
    let mut engines = Engines::new(workload, &built.program);
    let (mut native, mut interpreter) = (vec![], vec![]);
    let run = |each: &mut dyn FnMut(&mut Memory, PortNo)| {
        loaded(&workload.headers, flows, wanted.milliseconds, each)
    };
    for round in 0..=wanted.rounds {
        let alone = run(&mut |memory, port| _ = std::hint::black_box((&memory.room, port)));
        let compiled = run(&mut |memory, port| engines.compiled(memory, port));
        let interpreted = run(&mut |memory, port| engines.interpreted(memory, port));
        // The first round warms up.
        if round > 0 {
            native.push(compiled - alone);
            interpreter.push(interpreted - alone);
        }
    }
    let rules = workload.pipeline.len();
    [
        Measured::new(named, rules, flows, "interpreter", &interpreter),
        Measured {
            compile_ms: Some(built.compile_ms),
            update_us: Some(built.update_us),
            code_bytes: Some(built.program.code_bytes()),
            data_bytes: Some(built.program.data_bytes()),
            exits: Some(engines.exits()),
            ..Measured::new(named, rules, flows, "native", &native)
        },
    ]
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
