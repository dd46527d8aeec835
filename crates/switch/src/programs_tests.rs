//! Workers that never pause, rules that change all the time, a compiler beside them: no batch meets rules
//! that are no longer, and every frame is counted once.

use super::*;
use flow::port::Port;
use linux::port::{Frames, Meta};
use std::sync::atomic::AtomicBool;

/// The number that the "rules" are: a port's speed, which nothing here looks at.
fn number(pipeline: &Pipeline) -> u64 {
    pipeline.ports[&PortNo(1)].speed_kbps
}

/// What the pipeline says now, for everybody to see without a lock.
static NOW: AtomicU64 = AtomicU64::new(0);
/// Frames that programs decided about.
static DECIDED: AtomicU64 = AtomicU64::new(0);

/// A program that knows of which rules it was made, and sends every second frame.
struct Numbered(u64);

struct NumberedWorker {
    program: Arc<Numbered>,
    counted: u64,
}

struct NumberedCompiler;

impl Compiler for NumberedCompiler {
    fn compile(&self, pipeline: &Pipeline) -> Result<Arc<dyn RuleProgram>, String> {
        match number(pipeline) {
            // Now and then it cannot be.
            number if number % 7 == 3 => Err(format!("{number} cannot be compiled")),
            number => Ok(Arc::new(Numbered(number))),
        }
    }
}

impl RuleProgram for Numbered {
    fn worker(self: Arc<Self>) -> Box<dyn ProgramWorker> {
        Box::new(NumberedWorker { program: self, counted: 0 })
    }
}

impl ProgramWorker for NumberedWorker {
    fn batch(
        &mut self,
        _: u64,
        _: PortNo,
        batch: &mut Batch<'_>,
        outputs: &mut Outputs,
        left: &mut Vec<u16>,
    ) {
        assert_eq!(NOW.load(Relaxed), self.program.0, "the rules at the begin of a batch");
        for &index in batch.all() {
            if index % 2 == 0 {
                outputs.begin(index);
                outputs.forward(PortNo(2), None);
                self.counted += 1;
            } else {
                left.push(index);
            }
        }
        DECIDED.fetch_add(1, Relaxed);
        assert_eq!(NOW.load(Relaxed), self.program.0, "the rules at the end of a batch");
    }

    fn settle(&mut self, pipeline: &mut Pipeline) {
        assert_eq!(number(pipeline), self.program.0, "counters are added to the rules that they are of");
        let port = pipeline.ports.get_mut(&PortNo(1)).unwrap();
        port.counters.rx_frames += std::mem::take(&mut self.counted);
    }
}

fn pipeline() -> Pipeline {
    let mut pipeline = Pipeline::new(10);
    (1..=2).for_each(|number| pipeline.add_port(Port::new(PortNo(number), "p", [2; 6])));
    pipeline
}

/// Works on batches until it is told to stop; how many frames.
fn work(programs: &Arc<Programs>, stop: &AtomicBool) -> u64 {
    let (mut engine, mut outputs) = (programs.engine(), Outputs::default());
    let mut frames = Frames::new(8, 64);
    while frames.push(&[0; 60], Meta::default()) {}
    let mut sum = 0;
    while !stop.load(Relaxed) {
        let mut batch = frames.batch();
        outputs.clear(batch.len());
        engine.batch(0, PortNo(1), &mut batch, &mut outputs);
        sum += batch.len() as u64;
    }
    sum
}

#[test]
fn no_batch_meets_rules_that_are_no_longer_and_every_frame_is_counted() {
    static COMPILER: NumberedCompiler = NumberedCompiler;
    let shared = Arc::new(SharedPipeline::new(pipeline()));
    let engine = EngineKind { name: "numbered", compiler: Some(&COMPILER) };
    let programs = Arc::new(Programs::new(shared, engine));
    NOW.store(number(&programs.counted()), Relaxed);
    let (stop, failed) = (AtomicBool::new(false), Mutex::new(0));
    let frames: u64 = std::thread::scope(|scope| {
        scope.spawn(|| programs.run(|_| *locked(&failed) += 1));
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(|| work(&programs, &stop))).collect();
        for turn in 0..400u64 {
            let vain = *locked(&failed);
            let mut change = programs.change();
            // While the pipeline is in hand no worker may look at a program.
            NOW.store(u64::MAX, Relaxed);
            std::thread::yield_now();
            change.ports.get_mut(&PortNo(1)).unwrap().speed_kbps = turn;
            NOW.store(turn, Relaxed);
            drop(change);
            if turn % 4 == 0 {
                // Until a program works again, or could not be made.
                let decided = DECIDED.load(Relaxed);
                while DECIDED.load(Relaxed) == decided && *locked(&failed) == vain {
                    std::thread::yield_now();
                }
            }
            if turn % 3 == 0 {
                drop(programs.counted());
            }
        }
        stop.store(true, Relaxed);
        let frames = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        programs.stop();
        frames
    });
    assert_eq!(programs.counted().ports[&PortNo(1)].counters.rx_frames, frames);
    assert!(DECIDED.load(Relaxed) > 0 && *locked(&failed) > 0);
    // The threads that ended are no longer waited for.
    assert!(locked(&programs.published).workers.is_empty());
}

#[test]
fn without_a_compiler_there_is_no_program_and_nothing_to_run() {
    let programs = Arc::new(Programs::new(Arc::new(SharedPipeline::new(pipeline())), INTERPRETER));
    programs.run(|what| panic!("{what}"));
    drop(programs.change());
    let (mut engine, mut outputs) = (programs.engine(), Outputs::default());
    let mut frames = Frames::new(1, 64);
    assert!(frames.push(&[0; 60], Meta::default()));
    let mut batch = frames.batch();
    outputs.clear(1);
    engine.batch(0, PortNo(1), &mut batch, &mut outputs);
    // No rule: dropped, and counted.
    assert!(outputs.is_empty());
    assert_eq!(programs.counted().ports[&PortNo(1)].counters.rx_frames, 1);
}
