//! The river: frames from ports through the pipeline to ports.
//!
//! **What.** One thread for each port receives a batch, asks its [`Engine`] what becomes of the frames, and
//! hands these to the other ports where they lie. Packet-ins and the news of a port go to the thread that
//! talks with the controllers.
//!
//! **Why one lock.** Whoever changes rules holds the lock of the pipeline, and the interpreter, too. So a
//! change is whole (no frame sees half of a bundle, or old rules in one table and new ones in another), and
//! when a barrier is answered, every frame that comes after it meets the new rules. Caches that are refreshed
//! later cannot promise that.
//!
//! **Price.** Ports do not work in parallel inside the interpreter.

use crate::engine::Engine;
use crate::kernel::KernelEngine;
use crate::output_port::{FULL_LOOKS, OutputPort};
use crate::outputs::Outputs;
use crate::programs::{EngineKind, Programs};
use crate::shadow::ShadowRate;
use crate::shared::{MANY_RULES, SharedPipeline, locked};
use flow::interpret::{OutputFrame, PacketIn};
use flow::pipeline::Pipeline;
use flow::port::{Port as PortRow, PortCounters, PortNo};
use linux::netlink::{LinkState, Netlink};
use linux::port::{
    Area, Batch, Frames, MAX_BATCH, PortError, PortOptions, Receiver, Transmitter, Wait, areas, open,
};
use linux::sys::{clock, process};
use record::{PortKind, PortSetting, Problem, Result, Through};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How long a sleeping port waits before it looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(50);
/// The same after many looks without a frame, so that hundreds of quiet ports cost nothing.
const LONG_PATIENCE: Duration = Duration::from_millis(250);
/// After this many (a second) a port is quiet. Until then what it lost is counted soon.
const LOOKS_UNTIL_QUIET: u32 = 20;
/// The memory that the rings of a switch's ports share when their settings say nothing, and what each gets at
/// least and at most.
const RINGS: u64 = 256 << 20;
const RING: std::ops::RangeInclusive<u64> = 1 << 20..=8 << 20;
/// Threads that close ports.
const CLOSERS: usize = 16;
/// Frames of one batch: what one turn of the lock carries.
const BATCH: usize = 64;

/// Where the ports report what happens; the implementation wakes the thread that talks to the controllers.
pub trait PortEvents: Send + Sync {
    /// Takes frames for the controllers, and leaves none.
    fn packet_ins(&self, frames: &mut Vec<PacketIn>);
    /// The interface of a port is gone; nothing comes from it any more.
    fn gone(&self, port: PortNo);
}

/// The state that frames and controllers share, and the way out of every port.
pub struct Datapath {
    shared: Arc<SharedPipeline>,
    programs: Arc<Programs>,
    /// The ways out, by port and queue.
    outputs: BTreeMap<(PortNo, Option<u32>), OutputPort>,
    /// The memory of the ports that share some.
    areas: BTreeMap<PortNo, Arc<Area>>,
    /// What leaves by packet-outs.
    packet_outs: Mutex<Outputs>,
    stop: AtomicBool,
    /// Batches that were worked on.
    batches: AtomicU64,
    /// The most rules since memory was given back.
    most_rules: AtomicUsize,
    /// What is to be said of the kernel's part.
    notes: Vec<String>,
}

/// A port that was opened, before its thread runs.
pub struct OpenedPort {
    number: PortNo,
    receiver: Box<dyn Receiver>,
    is_over: Arc<AtomicBool>,
}

/// What a port's thread works with.
struct Worker {
    engine: Box<dyn Engine>,
    outputs: Outputs,
    /// Numbers of frames that leave together.
    which: Vec<u16>,
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
pub fn build(
    mut pipeline: Pipeline,
    ports: &[(PortNo, String)],
    local: Option<&str>,
    engine: EngineKind,
    shadow: ShadowRate,
) -> Result<Built> {
    let local = local.map(|uri| (PortNo::LOCAL, uri.to_owned()));
    let all: Vec<&(PortNo, String)> = ports.iter().chain(&local).collect();
    let uris: Vec<&str> = all.iter().map(|(_, uri)| uri.as_str()).collect();
    let areas = areas(&uris)?;
    let (mut outputs, mut inlets, mut said, mut notes) = (BTreeMap::new(), vec![], vec![], vec![]);
    let kernel = engine.kernel.map(|wish| KernelEngine::new(wish, all.len())).transpose();
    let kernel = kernel.unwrap_or_else(|problem| {
        notes.push(problem.to_string());
        None
    });
    for (port, area) in all.iter().zip(&areas) {
        let (number, uri) = *port;
        let opening = Opening { number: *number, uri, ports: all.len(), area: area.as_ref() };
        let (receiver, transmitter, settings) = opening.both_ways(kernel.as_ref(), &mut notes)?;
        said.push(Opened { number: *number, uri: uri.clone(), settings });
        let output = OutputPort::new(transmitter, FULL_LOOKS);
        inlets.push(OpenedPort { number: *number, receiver, is_over: output.is_over() });
        outputs.insert((*number, None), output);
    }
    // Asked once, and after all ports were opened: a tap is there only then.
    let links = Netlink::open().links().unwrap_or_default();
    for port in &said {
        let name = name_of(&port.uri);
        let address = address_of(&links, &name, port.number);
        pipeline.add_port(PortRow::new(port.number, &name, address));
    }
    notes.extend(kernel.as_ref().and_then(|kernel| not_served(kernel, &all)));
    let shared = Arc::new(SharedPipeline::new(pipeline));
    let programs = Programs::new(shared.clone(), engine, shadow).with_kernel(kernel);
    let datapath = Datapath {
        programs: Arc::new(programs),
        shared,
        outputs,
        areas: all.iter().zip(areas).filter_map(|((number, _), area)| Some((*number, area?))).collect(),
        packet_outs: Mutex::default(),
        stop: AtomicBool::new(false),
        batches: AtomicU64::new(0),
        most_rules: AtomicUsize::new(0),
        notes,
    };
    Ok((datapath, inlets, said))
}

/// Both ends of a port, and what took effect.
type BothWays = (Box<dyn Receiver>, Box<dyn Transmitter>, Vec<PortSetting>);

/// Which ports are not of a kind that the kernel serves, if there are such.
fn not_served(kernel: &KernelEngine, ports: &[&(PortNo, String)]) -> Option<String> {
    let others = ports.iter().filter(|(_, uri)| !kernel.serves(uri));
    let others: Vec<String> = others.map(|(number, uri)| format!("{number} ({uri})")).collect();
    (!others.is_empty()).then(|| {
        let (kinds, hook) = (kernel.kinds(), kernel.hook());
        format!("user space does all for port {}: the kernel serves {kinds} at {hook}", others.join(", "))
    })
}

/// One of the ports of a switch that has this many, over memory that it shares with others if there is some.
#[derive(Clone, Copy)]
struct Opening<'a> {
    number: PortNo,
    uri: &'a str,
    ports: usize,
    area: Option<&'a Arc<Area>>,
}

impl Opening<'_> {
    /// Opens both directions, with the kernel before it if that can; why it cannot is noted.
    fn both_ways(&self, kernel: Option<&KernelEngine>, notes: &mut Vec<String>) -> Result<BothWays> {
        let Some(kernel) = kernel.filter(|kernel| kernel.serves(self.uri)) else { return self.alone() };
        let enter = |wish: &PortOptions| kernel.enter(self.number, self.uri, &name_of(self.uri), wish);
        self.first_over_shared(enter).or_else(|problem| {
            let alone = self.alone()?;
            notes.push(format!("user space does all for port {}: {problem}", self.number));
            Ok(alone)
        })
    }

    fn alone(&self) -> Result<BothWays> {
        let port = self.first_over_shared(|wish| open(self.uri, wish))?;
        match (port.receiver, port.transmitter) {
            (Some(receiver), Some(transmitter)) => Ok((receiver, transmitter, port.settings)),
            _ => Err(Problem::input("this port cannot both receive and transmit")
                .at(self.uri)
                .help("the ports of a switch are int:, ring:, xdp:, tap: and mem:")),
        }
    }

    /// A driver may use memory for itself, and not share it with one that copies. Alone each of them works.
    fn first_over_shared<T>(&self, open: impl Fn(&PortOptions) -> Result<T>) -> Result<T> {
        let ring_bytes = Some((RINGS / self.ports.max(1) as u64).clamp(*RING.start(), *RING.end()));
        let wish =
            PortOptions { promiscuous: true, ring_bytes, area: self.area.cloned(), ..PortOptions::default() };
        match open(&wish) {
            Err(_) if self.area.is_some() => open(&PortOptions { area: None, ..wish }),
            opened => opened,
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

/// Ports are closed side by side: the kernel waits some 20 ms for each socket until nobody looks at it any
/// more (`synchronize_net`), and hundreds of ports, two sockets each, would end in many seconds.
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
    /// The state, to look at it, or to change what has no part in what becomes of frames.
    pub fn pipeline(&self) -> MutexGuard<'_, Pipeline> {
        self.shared.lock()
    }

    /// The state with all that was counted until now.
    pub fn counted(&self) -> MutexGuard<'_, Pipeline> {
        self.programs.counted()
    }

    /// Changes what becomes of frames.
    pub fn change<T>(&self, act: impl FnOnce(&mut Pipeline) -> T) -> T {
        self.programs.change(act)
    }

    /// What makes rules faster.
    pub fn programs(&self) -> &Arc<Programs> {
        &self.programs
    }

    /// Be a learning bridge, or follow the rules.
    pub fn set_bridging(&self, on: bool) {
        self.programs.set_bridging(on);
    }

    /// What is to be said of the kernel's part at the start.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Batches that ports' threads worked on: what the kernel deals with is not among them.
    pub fn batches(&self) -> u64 {
        self.batches.load(Relaxed)
    }

    /// Ends the threads of the ports, and the one that compiles.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
        self.programs.stop();
    }

    /// Frames that were dropped because their port was full or broken.
    pub fn dropped(&self, port: PortNo) -> u64 {
        let of_port = self.outputs.range((port, None)..=(port, Some(u32::MAX)));
        of_port.map(|(_, output)| output.dropped.load(Relaxed)).sum()
    }

    /// Gives a queue a transmitter of its own. A full one is not asked again: it is a buffer itself, and
    /// nothing waits for it.
    pub fn add_queue(&mut self, port: PortNo, queue: u32, transmitter: Box<dyn Transmitter>) {
        self.outputs.insert((port, Some(queue)), OutputPort::new(transmitter, 0));
    }

    /// Frames that found this queue full.
    pub fn queue_dropped(&self, port: PortNo, queue: u32) -> u64 {
        self.outputs.get(&(port, Some(queue))).map_or(0, |output| output.dropped.load(Relaxed))
    }

    /// The way out for frames of a queue, that of its port where there is no such queue; `None` for a port
    /// that does not exist.
    fn output(&self, port: PortNo, queue: Option<u32>) -> Option<&OutputPort> {
        let of_queue = self.outputs.get(&(port, queue)).filter(|output| !output.is_dead.load(Relaxed));
        of_queue.or_else(|| self.outputs.get(&(port, None)))
    }

    /// Opens a port again, whose interface was deleted and made again; whether it had queues, which went with
    /// the old one.
    ///
    /// # Errors
    /// As [`open`]; nothing goes by the port then until it was opened.
    pub fn open_again(&self, number: PortNo, uri: &str, links: &[LinkState]) -> Result<(OpenedPort, bool)> {
        let opening =
            Opening { number, uri, ports: self.pipeline().ports.len(), area: self.areas.get(&number) };
        let kernel = self.programs.kernel();
        let output = self.outputs.get(&(number, None));
        output.iter().for_each(|output| output.close());
        // A program that knows the interface as it was must not meet a frame of the new one.
        self.programs.change(|_| ());
        let (receiver, transmitter, _) = opening.both_ways(kernel, &mut vec![])?;
        self.programs.change(|_| ());
        let name = name_of(uri);
        let address = address_of(links, &name, number);
        let queues = self.outputs.range((number, Some(0))..=(number, Some(u32::MAX)));
        let had_queues = queues.map(|(_, output)| output.is_dead.store(true, Relaxed)).count() > 0;
        let is_over = output.map_or_else(Arc::default, |output| output.replace(transmitter));
        if let Some(port) = self.pipeline().ports.get_mut(&number) {
            port.address = address;
            port.queues.clear();
        }
        Ok((OpenedPort { number, receiver, is_over }, had_queues))
    }

    /// Hears how many rules there are. When half of many are gone, the memory that they took goes back to the
    /// kernel: once for each halving, because the allocator looks through all that it has, and never under
    /// the lock that frames wait for.
    pub fn note_rules(&self, rules: usize) {
        let most = self.most_rules.fetch_max(rules, Relaxed).max(rules);
        if most >= MANY_RULES && rules <= most / 2 {
            self.most_rules.store(rules, Relaxed);
            process::return_freed_memory();
        }
    }

    /// Sends the frames of a packet-out, in order for each port and queue.
    pub fn send(&self, sent: &mut Vec<OutputFrame>) {
        let (mut outputs, mut none) = (locked(&self.packet_outs), Frames::new(0, 0));
        outputs.clear(0);
        for frame in sent.drain(..) {
            outputs.copy(frame.port, frame.queue, &frame.frame, frame.offload);
        }
        self.send_outputs(&mut outputs, &mut none.batch(), &mut vec![]);
    }

    /// Sends what leaves of a batch; `which` is memory.
    fn send_outputs(&self, outputs: &mut Outputs, batch: &mut Batch<'_>, which: &mut Vec<u16>) {
        outputs.sort();
        let mut last = None;
        while let Some(run) = outputs.next_run(last.as_ref(), BATCH, which) {
            if let Some(output) = self.output(run.port, run.queue) {
                let send = |memory: &mut Batch<'_>| output.send(memory, which, run.hand);
                if let Some((frames, bytes)) = outputs.with_memory(&run, batch, send) {
                    self.take_back(run.port, frames, bytes);
                }
            }
            last = Some(run);
        }
    }

    /// Frames that a port could not take were not transmitted, whatever the pipeline counted (§5.8, table 5). A program that
    /// decided about them may not have told its counts yet: it is asked when the port's are too small to take from.
    fn take_back(&self, port: PortNo, frames: u64, bytes: u64) {
        let mut pipeline = self.pipeline();
        let has = |counters: &PortCounters| counters.tx_frames >= frames && counters.tx_bytes >= bytes;
        if pipeline.ports.get(&port).is_some_and(|port| !has(&port.counters)) {
            drop(pipeline);
            pipeline = self.counted();
        }
        if let Some(port) = pipeline.ports.get_mut(&port) {
            let counters = &mut port.counters;
            counters.tx_frames = counters.tx_frames.saturating_sub(frames);
            counters.tx_bytes = counters.tx_bytes.saturating_sub(bytes);
            counters.tx_dropped += frames;
        }
    }

    /// Works on one batch: what becomes of the frames, then out with them.
    fn batch(&self, number: PortNo, batch: &mut Batch<'_>, worker: &mut Worker) {
        worker.outputs.clear(batch.len());
        worker.engine.batch(clock::monotonic_ns(), number, batch, &mut worker.outputs);
        self.batches.fetch_add(1, Relaxed);
        self.send_outputs(&mut worker.outputs, batch, &mut worker.which);
    }

    /// What a port's thread works with.
    fn worker(&self) -> Worker {
        Worker {
            engine: self.programs.engine(),
            outputs: Outputs::default(),
            which: Vec::with_capacity(BATCH),
        }
    }

    /// Works on what comes in by a port until it is to end, or the port is gone.
    pub fn work(&self, inlet: OpenedPort, tell: &dyn PortEvents) {
        let OpenedPort { number, mut receiver, is_over } = inlet;
        let mut worker = self.worker();
        let (mut lost, mut quiet) = (0, 0u32);
        while !self.stop.load(Relaxed) && !is_over.load(Relaxed) {
            let mut idle = false;
            let patience = if quiet < LOOKS_UNTIL_QUIET { PATIENCE } else { LONG_PATIENCE };
            match receiver.receive(BATCH.min(MAX_BATCH), Wait::For(patience)) {
                Ok(batch) if batch.is_empty() => idle = true,
                Ok(mut batch) => {
                    self.batch(number, &mut batch, &mut worker);
                    if !worker.outputs.packet_ins.is_empty() {
                        tell.packet_ins(&mut worker.outputs.packet_ins);
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

    /// Counts what the port lost before this program got it. Asked for only when nothing comes: it costs a
    /// system call.
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
}

#[cfg(test)]
#[path = "datapath_tests.rs"]
mod tests;
