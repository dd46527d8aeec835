//! The river: frames from ports through the pipeline to ports.
//!
//! **What.** One thread for each port receives a batch, takes it through the interpreter under one lock, lets the lock go
//! and hands the frames to the other ports. Packet-ins and the news of a port go to the thread that talks with the
//! controllers.
//!
//! **Why one lock.** Whoever changes rules holds it, too. So a change is whole (no frame sees half of a bundle, or old
//! rules in one table and new ones in another), and when a barrier is answered, every frame that comes after it meets
//! the new rules. Caches that are refreshed later cannot promise that.
//!
//! **Price.** Ports do not work in parallel inside the pipeline. A frame that finds its port full waits a little and is
//! then dropped and counted.

use flow::action::Action;
use flow::interpret::{self, InputFrame, OutputFrame, PacketIn, Verdict};
use flow::pipeline::Pipeline;
use flow::port::{Port as PortRow, PortNo};
use linux::netlink::{LinkState, Netlink};
use linux::port::{
    ALL, Batch, Frames, Hand, MAX_BATCH, Meta, PortError, PortOptions, Receiver, Transmitter, Wait, open,
};
use linux::sys::{clock, process};
use record::{PortKind, PortSetting, Problem, Result, Through};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::offload::Pieces;

/// How long a sleeping port waits before it looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(50);
/// The same after many looks without a frame, so that hundreds of quiet ports cost nothing.
const LONG_PATIENCE: Duration = Duration::from_millis(250);
/// After this many (a second) a port is quiet. Until then what it lost is counted soon.
const LOOKS_UNTIL_QUIET: u32 = 20;
/// The memory that the rings of a switch's ports share when their settings say nothing, and what each gets at least and at most.
const RINGS: u64 = 256 << 20;
const RING: std::ops::RangeInclusive<u64> = 1 << 20..=8 << 20;
/// Threads that close ports.
const CLOSERS: usize = 16;
/// So many rules are megabytes.
const MANY_RULES: usize = 10_000;
/// Frames of one batch: what one turn of the lock carries.
const BATCH: usize = 64;
/// The longest frame that a port is handed: a super-frame.
const LONGEST: usize = 65_535 + 14 + 8;
/// How often a full port is asked again, and how long it is given each time.
const FULL_LOOKS: u32 = 5;
const FULL_WAIT: Duration = Duration::from_micros(200);

/// Where the ports report what happens; the implementation wakes the thread that talks to the controllers.
pub trait PortEvents: Send + Sync {
    /// Takes frames for the controllers, and leaves none.
    fn packet_ins(&self, frames: &mut Vec<PacketIn>);
    /// The interface of a port is gone; nothing comes from it any more.
    fn gone(&self, port: PortNo);
}

/// One port, on its way out.
struct OutputPort {
    out: Mutex<Out>,
    /// Frames dropped because the port was full or broken, or refused them.
    dropped: AtomicU64,
    /// It leads to an interface that is no longer there.
    is_dead: AtomicBool,
    /// The thread that receives here is to end: another one was opened instead.
    is_over: Mutex<Arc<AtomicBool>>,
}

struct Out {
    transmitter: Box<dyn Transmitter>,
    frames: Frames,
    /// How often it is asked again when it is full.
    looks: u32,
    /// Frames and bytes that were to leave, and of these the ones that are known to be lost.
    wanted: (u64, u64),
    lost: (u64, u64),
    /// What the segments of super-frames that were not taken are more than these: ports count a super-frame as one.
    more: (u64, u64),
}

/// The state that frames and controllers share, and the way out of every port.
pub struct Datapath {
    pipeline: Mutex<Pipeline>,
    /// Who comes next into the pipeline; see [`Datapath::pipeline`].
    next: Mutex<()>,
    /// Which of the ports' threads asks for its turn.
    frames: Mutex<()>,
    /// The ways out, by port and queue.
    outputs: BTreeMap<(PortNo, Option<u32>), OutputPort>,
    /// No controller is there, and that means to be a bridge.
    bridging: AtomicBool,
    stop: AtomicBool,
    /// Batches that were worked on.
    batches: AtomicU64,
    /// The most rules since memory was given back.
    most_rules: AtomicUsize,
}

/// A port that was opened, before its thread runs.
pub struct OpenedPort {
    number: PortNo,
    receiver: Box<dyn Receiver>,
    is_over: Arc<AtomicBool>,
}

/// What is said of a port that was opened.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Its number.
    pub number: PortNo,
    /// Its name as it was asked for.
    pub uri: String,
    /// What took effect.
    pub settings: Vec<PortSetting>,
}

/// The ports with their pipeline, and what was opened.
type Built = (Datapath, Vec<OpenedPort>, Vec<Opened>);

/// Opens the ports and puts them into the pipeline.
///
/// # Errors
/// As [`open`]; input for a port that cannot do both ways.
pub fn build(mut pipeline: Pipeline, ports: &[(PortNo, String)], local: Option<&str>) -> Result<Built> {
    let local = local.map(|uri| (PortNo::LOCAL, uri.to_owned()));
    let (mut outputs, mut inlets, mut said) = (BTreeMap::new(), vec![], vec![]);
    for (number, uri) in ports.iter().chain(&local) {
        let (receiver, transmitter, settings) = both_ways(uri, ports.len() + 1)?;
        said.push(Opened { number: *number, uri: uri.clone(), settings });
        let output = OutputPort::new(transmitter, FULL_LOOKS);
        inlets.push(OpenedPort { number: *number, receiver, is_over: locked(&output.is_over).clone() });
        outputs.insert((*number, None), output);
    }
    // Asked once, and after all ports were opened: a tap is there only then.
    let links = Netlink::open().links().unwrap_or_default();
    for port in &said {
        let name = name_of(&port.uri);
        let address = address_of(&links, &name, port.number);
        pipeline.add_port(PortRow::new(port.number, &name, address));
    }
    let datapath = Datapath {
        pipeline: Mutex::new(pipeline),
        next: Mutex::new(()),
        frames: Mutex::new(()),
        outputs,
        bridging: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        batches: AtomicU64::new(0),
        most_rules: AtomicUsize::new(0),
    };
    Ok((datapath, inlets, said))
}

/// Both ends of a port, and what took effect.
type BothWays = (Box<dyn Receiver>, Box<dyn Transmitter>, Vec<PortSetting>);

/// Opens both directions of one of the ports of a switch that has this many.
fn both_ways(uri: &str, ports: usize) -> Result<BothWays> {
    let ring_bytes = Some((RINGS / ports.max(1) as u64).clamp(*RING.start(), *RING.end()));
    let port = open(uri, &PortOptions { promiscuous: true, ring_bytes, ..PortOptions::default() })?;
    match (port.receiver, port.transmitter) {
        (Some(receiver), Some(transmitter)) => Ok((receiver, transmitter, port.settings)),
        _ => Err(Problem::input("this port cannot both receive and transmit")
            .at(uri)
            .help("the ports of a switch are int:, ring:, xdp:, tap: and mem:")),
    }
}

impl OutputPort {
    fn new(transmitter: Box<dyn Transmitter>, looks: u32) -> OutputPort {
        OutputPort {
            out: Mutex::new(Out::new(transmitter, looks)),
            dropped: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
            is_over: Mutex::default(),
        }
    }
}

/// Whether a port is an interface of the kernel, and neither a wire in memory nor a file.
pub fn has_interface(uri: &str) -> bool {
    !PortKind::of(uri).is_some_and(|kind| matches!(kind.through, Through::Memory | Through::File))
}

/// The port inside of faults.
fn without_faults(uri: &str) -> &str {
    uri.strip_prefix("fault:").map_or(uri, without_faults)
}

/// The interface or wire inside a port's name: `eth1` of `fault:int:eth1?lose=1%`.
pub fn name_of(uri: &str) -> String {
    let rest = without_faults(uri);
    let name = rest.split_once(':').map_or(rest, |(_, name)| name);
    name.split('?').next().unwrap_or(name).to_owned()
}

/// The Ethernet address of an interface; a locally administered one made of the number for everything else.
fn address_of(links: &[LinkState], name: &str, number: PortNo) -> [u8; 6] {
    let [a, b, c, d] = number.0.to_be_bytes();
    let made_up = [2, 0, a, b, c, d];
    links.iter().find(|link| link.name == name).and_then(|link| link.address).unwrap_or(made_up)
}

/// Ports are closed side by side: the kernel waits some 20 ms for each socket until nobody looks at it any more (`synchronize_net`), and
/// hundreds of ports, two sockets each, would end in many seconds.
impl Drop for Datapath {
    fn drop(&mut self) {
        let mut outputs: Vec<OutputPort> = std::mem::take(&mut self.outputs).into_values().collect();
        let each = outputs.len().div_ceil(CLOSERS).max(1);
        std::thread::scope(|scope| {
            while !outputs.is_empty() {
                let some = outputs.split_off(outputs.len().saturating_sub(each));
                scope.spawn(move || drop(some));
            }
        });
    }
}

impl Datapath {
    /// The state, for changing or reading it. A thread that panicked while it held the lock has not left half a
    /// change behind: every change is checked before it begins.
    ///
    /// It waits for one batch of frames at most. A mutex of the standard library is not fair: a port's thread that has always the next batch takes it
    /// again before a thread that was woken for it runs. So whoever wants the pipeline takes `next` first, and gives it back when he has it; and of the
    /// ports' threads only one at a time may ask for `next`.
    pub fn pipeline(&self) -> MutexGuard<'_, Pipeline> {
        let _next = locked(&self.next);
        locked(&self.pipeline)
    }

    /// Be a learning bridge, or follow the rules.
    pub fn set_bridging(&self, on: bool) {
        self.bridging.store(on, Relaxed);
    }

    /// Ends the threads of the ports.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Frames that were dropped because their port was full or broken.
    pub fn dropped(&self, port: PortNo) -> u64 {
        let of_port = self.outputs.range((port, None)..=(port, Some(u32::MAX)));
        of_port.map(|(_, output)| output.dropped.load(Relaxed)).sum()
    }

    /// Gives a queue a transmitter of its own. A full one is not asked again: it is a buffer itself, and nothing waits for it.
    pub fn add_queue(&mut self, port: PortNo, queue: u32, transmitter: Box<dyn Transmitter>) {
        self.outputs.insert((port, Some(queue)), OutputPort::new(transmitter, 0));
    }

    /// Frames that found this queue full.
    pub fn queue_dropped(&self, port: PortNo, queue: u32) -> u64 {
        self.outputs.get(&(port, Some(queue))).map_or(0, |output| output.dropped.load(Relaxed))
    }

    /// The way out for frames of a queue, that of its port where there is no such queue; `None` for a port that does not exist.
    fn output(&self, port: PortNo, queue: Option<u32>) -> Option<&OutputPort> {
        let of_queue = self.outputs.get(&(port, queue)).filter(|output| !output.is_dead.load(Relaxed));
        of_queue.or_else(|| self.outputs.get(&(port, None)))
    }

    /// Opens a port again, whose interface was deleted and made again; whether it had queues, which went with the old one.
    ///
    /// # Errors
    /// As [`open`]; the port is as it was then.
    pub fn open_again(&self, number: PortNo, uri: &str, links: &[LinkState]) -> Result<(OpenedPort, bool)> {
        let (receiver, transmitter, _) = both_ways(uri, self.pipeline().ports.len())?;
        let name = name_of(uri);
        let address = address_of(links, &name, number);
        let queues = self.outputs.range((number, Some(0))..=(number, Some(u32::MAX)));
        let had_queues = queues.map(|(_, output)| output.is_dead.store(true, Relaxed)).count() > 0;
        let is_over = Arc::default();
        if let Some(output) = self.outputs.get(&(number, None)) {
            *locked(&output.out) = Out::new(transmitter, FULL_LOOKS);
            std::mem::replace(&mut *locked(&output.is_over), Arc::clone(&is_over)).store(true, Relaxed);
        }
        if let Some(port) = self.pipeline().ports.get_mut(&number) {
            port.address = address;
            port.queues.clear();
        }
        Ok((OpenedPort { number, receiver, is_over }, had_queues))
    }

    /// Hears how many rules there are. When half of many are gone, the memory that they took goes back to the kernel: once for each
    /// halving, because the allocator looks through all that it has, and never under the lock that frames wait for.
    pub fn note_rules(&self, rules: usize) {
        let most = self.most_rules.fetch_max(rules, Relaxed).max(rules);
        if most >= MANY_RULES && rules <= most / 2 {
            self.most_rules.store(rules, Relaxed);
            process::return_freed_memory();
        }
    }

    /// Sends frames, in order for each port and queue.
    pub fn send(&self, sent: &mut Vec<OutputFrame>) {
        // Stable: frames of one queue keep their order.
        sent.sort_by_key(|frame| (frame.port, frame.queue));
        let mut lost: Vec<(PortNo, u64, u64)> = vec![];
        for of_port in sent.chunk_by(|a, b| (a.port, a.queue) == (b.port, b.queue)) {
            let port = of_port[0].port;
            let Some(output) = self.output(port, of_port[0].queue) else { continue };
            let mut out = locked(&output.out);
            let mut all_left = true;
            for some in of_port.chunks(BATCH) {
                all_left &= out.push(some);
            }
            if !all_left {
                let (frames, bytes) = out.newly_lost();
                output.dropped.fetch_add(frames, Relaxed);
                lost.push((port, frames, bytes));
            }
        }
        sent.clear();
        if !lost.is_empty() {
            self.take_back(&lost);
        }
    }

    /// Frames that a port could not take were not transmitted, whatever the pipeline counted (§5.8, table 5).
    fn take_back(&self, lost: &[(PortNo, u64, u64)]) {
        let mut pipeline = self.pipeline();
        for &(port, frames, bytes) in lost {
            if let Some(port) = pipeline.ports.get_mut(&port) {
                let counters = &mut port.counters;
                counters.tx_frames = counters.tx_frames.saturating_sub(frames);
                counters.tx_bytes = counters.tx_bytes.saturating_sub(bytes);
                counters.tx_dropped += frames;
            }
        }
    }

    /// Works on one batch: under the lock into the verdict, then out.
    fn batch(&self, number: PortNo, batch: Batch<'_>, verdict: &mut Verdict) {
        verdict.clear();
        let now = clock::monotonic_ns();
        let turn = locked(&self.frames);
        let mut pipeline = self.pipeline();
        for index in 0..batch.len() {
            let offload = batch.meta(index).offload;
            let arrival = InputFrame { offload, ..InputFrame::new(number, batch.bytes(index)) };
            self.one(&mut pipeline, now, arrival, verdict);
        }
        drop(pipeline);
        drop(turn);
        self.batches.fetch_add(1, Relaxed);
        self.send(&mut verdict.sent);
    }

    /// Works on what comes in by a port until it is to end, or the port is gone.
    pub fn work(&self, inlet: OpenedPort, tell: &dyn PortEvents) {
        let OpenedPort { number, mut receiver, is_over } = inlet;
        let mut verdict = Verdict::default();
        let (mut lost, mut quiet) = (0, 0u32);
        while !self.stop.load(Relaxed) && !is_over.load(Relaxed) {
            let mut idle = false;
            let patience = if quiet < LOOKS_UNTIL_QUIET { PATIENCE } else { LONG_PATIENCE };
            match receiver.receive(BATCH.min(MAX_BATCH), Wait::For(patience)) {
                Ok(batch) if batch.is_empty() => idle = true,
                Ok(batch) => {
                    self.batch(number, batch, &mut verdict);
                    if !verdict.packet_ins.is_empty() {
                        tell.packet_ins(&mut verdict.packet_ins);
                    }
                }
                // The link is watched elsewhere; frames may come again.
                Err(PortError::Down) => {}
                Err(PortError::Gone | PortError::Ended) if is_over.load(Relaxed) => return,
                Err(PortError::Gone | PortError::Ended) => return tell.gone(number),
                // Anything else may pass: a receiver that always errs must not burn a CPU.
                Err(_) => std::thread::sleep(PATIENCE),
            }
            quiet = if idle { quiet.saturating_add(1) } else { 0 };
            if idle {
                self.lost_before(number, receiver.as_mut(), &mut lost);
            }
        }
    }

    /// Counts what the port lost before this program got it. Asked for only when nothing comes: it costs a system call.
    fn lost_before(&self, number: PortNo, receiver: &mut dyn Receiver, known: &mut u64) {
        let now = receiver.counters().drops.iter().fold(0u64, |sum, drop| sum.saturating_add(drop.count));
        let more = now.saturating_sub(*known);
        if more > 0 {
            *known = now;
            if let Some(port) = self.pipeline().ports.get_mut(&number) {
                port.counters.rx_dropped += more;
            }
        }
    }

    fn one(&self, pipeline: &mut Pipeline, now: u64, arrival: InputFrame<'_>, verdict: &mut Verdict) {
        if self.bridging.load(Relaxed) {
            let normal = [Action::Output { port: PortNo::NORMAL, max_len: 0 }];
            interpret::packet_out(pipeline, now, arrival, &normal, verdict);
        } else {
            interpret::receive(pipeline, now, arrival, verdict);
        }
    }
}

/// Takes a mutex, even if a thread panicked with it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Out {
    fn new(transmitter: Box<dyn Transmitter>, looks: u32) -> Out {
        Out { transmitter, frames: Frames::new(1, 0), looks, wanted: (0, 0), lost: (0, 0), more: (0, 0) }
    }

    /// Sends up to [`BATCH`] frames; true when all of them were taken.
    fn push(&mut self, some: &[OutputFrame]) -> bool {
        let longest = some.iter().map(|sent| sent.frame.len()).max().unwrap_or(0).min(LONGEST);
        self.make_room(longest);
        self.frames.clear();
        self.wanted.0 += some.len() as u64;
        let mut all = true;
        for sent in some {
            self.wanted.1 += sent.frame.len() as u64;
            let meta = Meta { offload: sent.offload, ..Meta::default() };
            // What is longer than any port takes is not even offered.
            all &= self.frames.push(&sent.frame, meta);
        }
        let mut batch = self.frames.batch();
        let (mut done, mut looks) = (0, 0);
        while done < batch.len() {
            let given = &ALL[done..batch.len()];
            let Ok(sent) = self.transmitter.transmit(&mut batch, given, Hand::Over) else { break };
            done += sent.dealt;
            all &= sent.refused == 0;
            if done < batch.len() {
                looks += 1;
                if looks > self.looks || self.transmitter.flush(FULL_WAIT).is_err() {
                    break;
                }
            }
        }
        all &= done == batch.len();
        if !all {
            self.count_segments(some, done);
        }
        all
    }

    /// Counts the segments of what was not taken: of the frames that fit, those after the first `done`. Which of the others a port
    /// refused it does not say; it refuses super-frames before all, and these are counted as one each.
    fn count_segments(&mut self, some: &[OutputFrame], done: usize) {
        let longest = self.frames.capacity();
        let (fit, unfit): (Vec<&OutputFrame>, Vec<&OutputFrame>) =
            some.iter().partition(|sent| sent.frame.len() <= longest);
        for sent in fit.into_iter().skip(done).chain(unfit) {
            let pieces = Pieces::of(&sent.frame, &sent.offload);
            self.more.0 += pieces.count - 1;
            self.more.1 += pieces.bytes(sent.frame.len()) - sent.frame.len() as u64;
        }
    }

    /// Frames and bytes that were to leave and did not, since this was asked last. The port itself knows what it took.
    fn newly_lost(&mut self) -> (u64, u64) {
        let taken = self.transmitter.counters();
        let lost = (self.wanted.0.saturating_sub(taken.accepted), self.wanted.1.saturating_sub(taken.bytes));
        let before = std::mem::replace(&mut self.lost, lost);
        let more = std::mem::take(&mut self.more);
        (lost.0.saturating_sub(before.0) + more.0, lost.1.saturating_sub(before.1) + more.1)
    }

    /// Grows the memory for frames, rarely: to 2 KiB at first, to super-frames when one comes.
    fn make_room(&mut self, longest: usize) {
        let capacity = if longest <= 2048 { 2048 } else { LONGEST };
        if self.frames.capacity() < capacity {
            self.frames = Frames::new(BATCH, capacity);
        }
    }
}
