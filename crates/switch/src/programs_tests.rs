//! Workers that never pause, rules that change all the time, a compiler beside them: no batch meets rules
//! that are no longer, and every frame is counted once.

use super::*;
use flow::port::Port;
use linux::port::{Frames, Meta};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    fn compile(&self, pipeline: &Pipeline) -> Result<Box<dyn CompiledPipeline>, String> {
        match number(pipeline) {
            // Now and then it cannot be.
            number if number % 7 == 3 => Err(format!("{number} cannot be compiled")),
            number => Ok(Box::new(Numbered(number))),
        }
    }
}

impl CompiledPipeline for Numbered {
    fn program(&self) -> Arc<dyn RuleProgram> {
        Arc::new(Numbered(self.0))
    }

    /// Half of the changes are small.
    fn update(&mut self, pipeline: &Pipeline, _: &Changed) -> bool {
        self.0 = number(pipeline);
        self.0.is_multiple_of(2)
    }

    fn is_worn(&self) -> bool {
        self.0.is_multiple_of(10)
    }
}

impl RuleProgram for Numbered {
    fn worker(self: Arc<Self>, former: Option<Box<dyn ProgramWorker>>) -> Box<dyn ProgramWorker> {
        let former = former.and_then(|former| former.into_any().downcast::<NumberedWorker>().ok());
        assert!(former.is_none_or(|former| former.counted == 0), "who gives back has told its counts");
        Box::new(NumberedWorker { program: self, counted: 0 })
    }
}

impl ProgramWorker for NumberedWorker {
    fn batch(
        &mut self,
        _: u64,
        _: PortNo,
        _: &mut Batch<'_>,
        which: &[u16],
        outputs: &mut Outputs,
        left: &mut Vec<u16>,
    ) {
        assert_eq!(NOW.load(Relaxed), self.program.0, "the rules at the begin of a batch");
        for &index in which {
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

    fn rehearse(&mut self, _: u64, _: InputFrame<'_>) -> Option<Vec<OutputFrame>> {
        None
    }

    fn settle(&mut self, pipeline: &mut Pipeline) {
        assert_eq!(number(pipeline), self.program.0, "counters are added to the rules that they are of");
        let port = pipeline.ports.get_mut(&PortNo(1)).unwrap();
        port.counters.rx_frames += std::mem::take(&mut self.counted);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
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
    let engine = EngineKind { name: "numbered", compiler: Some(&COMPILER), kernel: None };
    let programs = Arc::new(Programs::new(shared, engine, ShadowRate::OneOf(5)));
    NOW.store(number(&programs.counted()), Relaxed);
    let (stop, failed) = (AtomicBool::new(false), Mutex::new(0));
    let frames: u64 = std::thread::scope(|scope| {
        scope.spawn(|| programs.run(|_| *locked(&failed) += 1));
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(|| work(&programs, &stop))).collect();
        for turn in 0..400u64 {
            let vain = *locked(&failed);
            let had_program = programs.has_program();
            programs.change(|pipeline| {
                // While the pipeline is in hand no worker may look at a program.
                NOW.store(u64::MAX, Relaxed);
                std::thread::yield_now();
                pipeline.ports.get_mut(&PortNo(1)).unwrap().speed_kbps = turn;
                NOW.store(turn, Relaxed);
            });
            // Small changes leave no gap in which all is interpreted.
            let is_small = had_program && turn % 2 == 0;
            assert!(!is_small || programs.has_program(), "turn {turn}");
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
    assert!(programs.published.enter().workers.is_empty());
}

#[test]
fn without_a_compiler_there_is_no_program_and_nothing_to_run() {
    let programs =
        Arc::new(Programs::new(Arc::new(SharedPipeline::new(pipeline())), INTERPRETER, ShadowRate::Auto));
    programs.run(|what| panic!("{what:?}"));
    programs.change(|_| ());
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

/// A program that sends frames which begin with 1 by the wrong port.
struct WrongCompiler;

impl Compiler for WrongCompiler {
    fn compile(&self, _: &Pipeline) -> Result<Box<dyn CompiledPipeline>, String> {
        Ok(Box::new(WrongCompiler))
    }
}

impl CompiledPipeline for WrongCompiler {
    fn program(&self) -> Arc<dyn RuleProgram> {
        Arc::new(WrongCompiler)
    }

    fn update(&mut self, _: &Pipeline, _: &Changed) -> bool {
        true
    }
}

impl RuleProgram for WrongCompiler {
    fn worker(self: Arc<Self>, _: Option<Box<dyn ProgramWorker>>) -> Box<dyn ProgramWorker> {
        Box::new(WrongCompiler)
    }
}

impl ProgramWorker for WrongCompiler {
    fn batch(
        &mut self,
        _: u64,
        _: PortNo,
        batch: &mut Batch<'_>,
        which: &[u16],
        outputs: &mut Outputs,
        _: &mut Vec<u16>,
    ) {
        for &index in which {
            outputs.begin(index);
            outputs.forward(PortNo(2 + u32::from(batch.bytes(index.into())[0])), None);
        }
    }

    fn rehearse(&mut self, _: u64, frame: InputFrame<'_>) -> Option<Vec<OutputFrame>> {
        let port = PortNo(2 + u32::from(frame.frame[0]));
        Some(vec![OutputFrame { port, queue: None, frame: frame.frame.to_vec(), offload: frame.offload }])
    }

    fn settle(&mut self, _: &mut Pipeline) {}

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// A batch of frames that all begin with this byte; by which ports they leave.
fn ports_of(engine: &mut dyn Engine, first: u8) -> Vec<PortNo> {
    let mut frames = Frames::new(8, 64);
    let mut frame = [0; 60];
    frame[0] = first;
    while frames.push(&frame, Meta::default()) {}
    let (mut outputs, mut batch, mut which) = (Outputs::default(), frames.batch(), vec![]);
    outputs.clear(batch.len());
    engine.batch(0, PortNo(1), &mut batch, &mut outputs);
    outputs.sort();
    let (mut ports, mut last) = (vec![], None);
    while let Some(run) = outputs.next_run(last.as_ref(), 64, &mut which) {
        ports.extend(which.iter().map(|_| run.port));
        last = Some(run);
    }
    ports
}

#[test]
fn a_program_that_is_wrong_is_found_kept_and_used_no_more() {
    static COMPILER: WrongCompiler = WrongCompiler;
    let folder = tempfile::tempdir().unwrap();
    let engine = EngineKind { name: "wrong", compiler: Some(&COMPILER), kernel: None };
    let mut programs = Programs::new(Arc::new(SharedPipeline::new(pipeline())), engine, ShadowRate::OneOf(8));
    programs.divergences_in = folder.path().to_owned();
    let programs = Arc::new(programs);
    let rule = "in_port=1 actions=output:2";
    programs.change(|rules| flow::text::file::load(rules, rule)).unwrap();
    let said = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let mut said = vec![];
            programs.run(|what| said.push(what));
            said
        });
        let mut engine = programs.engine();
        while !programs.has_program() {
            std::thread::yield_now();
        }
        assert_eq!(ports_of(engine.as_mut(), 0), [PortNo(2); 8], "a program that is right");
        assert_eq!((programs.divergences(), programs.has_program()), (0, true));
        let mut wrong = ports_of(engine.as_mut(), 1);
        wrong.sort();
        assert_eq!(wrong, [&[PortNo(2)][..], &[PortNo(3); 7]].concat(), "one of eight is the interpreter's");
        assert_eq!(programs.divergences(), 1);
        assert_eq!(ports_of(engine.as_mut(), 1), [PortNo(2); 8], "from now on the interpreter's");
        running.join().unwrap()
    });
    assert!(!programs.has_program());
    let path = folder.path().join("divergence-1.rules");
    assert_eq!(said.len(), 1);
    let is_named = |news: &ProgramNews| matches!(news, ProgramNews::Interpreted(what) if what.contains(&path.display().to_string()));
    assert!(is_named(&said[0]), "{said:?}");
    // What was kept can be played again.
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("in_port=1 frame=0100") && text.contains("port=3"), "{text}");
    let mut again = Pipeline::new(10);
    flow::text::file::load(&mut again, &text).unwrap();
    assert_eq!(again.len(), 1);
    // A second one does not overwrite it.
    let divergence = Divergence::of(PortNo(1), &[], &Verdict::default(), &[], String::new);
    assert_eq!(divergence, None);
}
