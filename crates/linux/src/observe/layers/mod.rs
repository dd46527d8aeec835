//! When chosen messages of a test passed the layers of its path: programs at the kernel's events of frames, sockets and system calls.
//!
//! **What.** [`LayerWatch`] runs the programs of [`program`] while a test goes on, empties their ring, and has at its end a
//! [`record::LayerObservation`]. **Why events and not `SO_TIMESTAMPING`.** A socket's stamps tell of its own host's queue and driver; events tell of every interface
//! of every node on the way, of the socket's queue, and need nothing of the application.
//!
//! **What it cannot see.** Frames without a buffer (XDP, AF_XDP), datagrams behind a first one in a buffer (segmentation offload), several
//! requests in one segment. What was not stamped is missing in its message, and counted by whoever concludes.
//!
//! **Price.** `docs/layers.md`. Needs `CAP_BPF` and `CAP_PERFMON`. Nothing is pinned: all ends with the process.

mod gather;
mod layout;
pub mod program;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use record::delta::sum;
use record::layers::{LayerObservation, StampPlace};
use record::snapshot::Snapshot;
use record::{PortKind, Problem, Result, TestSpec};

use self::gather::{Gathered, RawPlace, Stamp};
use self::layout::{Cell, LayerEvent, Layout};
use self::program::connection::Place;
use self::program::{Choice, Exchange, MapFds, Numbering, Writes, assemble};
use super::Actor;
use super::btf;
use super::flow::Flow;
use super::tracepoints::{attach, refused};
use crate::netlink::u64_at;
use crate::sys::bpf;
use crate::sys::bpf_ring::EventRing;
use crate::sys::netns;

/// So many runs are measured, and no more: the measurement costs more than most programs.
const ENOUGH_RUNS: u64 = 20_000;
/// Threads of the two ends.
const MOST_THREADS: u32 = 1024;
/// Nodes whose interfaces are compared one by one.
const MOST_NODES: usize = 64;
/// Bytes of the ring: some 30,000 stamps.
const RING_BYTES: u32 = 2 << 20;
/// How often it is emptied.
const PERIOD: Duration = Duration::from_millis(20);
/// Stamps that are taken out of the ring at once.
const AT_ONCE: usize = 8192;
/// The namespace of process ids that the kernel's own numbers are of (`PROC_PID_INIT_INO`).
const FIRST_PIDS: &str = "pid:[4026531836]";

/// Watches the layers during one test.
#[derive(Debug)]
pub struct LayerWatch {
    done: Arc<AtomicBool>,
    worker: Option<JoinHandle<Ended>>,
    processes: BTreeMap<u32, String>,
}

/// What the worker has when it ends.
#[derive(Debug)]
struct Ended {
    gathered: Gathered,
    counts: io::Result<LayerObservation>,
}

/// Whether stamps can be taken on this host.
///
/// # Errors
/// A host problem with what forbids it.
pub fn check_layers() -> Result<()> {
    let nowhere = Choice {
        family: 4,
        protocol: 17,
        numbering: Numbering::InHeader(0),
        is_of_frames: false,
        every: 1,
        namespaces: vec![1],
        processes: vec![1],
    };
    // Each plan of a trial asks.
    static CHECKED: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    CHECKED.get_or_init(|| Programs::start(&nowhere).map(drop)).clone().map_err(|why| {
        Problem::host(format!("the layers of a path cannot be watched: {why}"))
            .at("--layers")
            .help("run as root on the host, or without --layers")
    })
}

/// Why the messages of such a test have no stamps.
fn unfit(spec: &TestSpec) -> Option<&'static str> {
    match () {
        () if spec.kind.is_by_port() && !is(spec.receiver_port(), |kind| kind.in_messages) => {
            Some("the receiver's port takes them without a system call; those of 'port int' can be followed")
        }
        () if spec.kind.is_by_port() && is(spec.sender_port(), |kind| kind.in_pages) => Some(
            "those of the sender's port lie in pages, where no event finds them; those of 'port int' can be followed",
        ),
        () if spec.gso > 1 || spec.gro => {
            Some("a super-frame has many messages, and its event shows the first")
        }
        () if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) => {
            Some("not known where this CPU has arguments")
        }
        () => None,
    }
}

/// Whether the port of a test is of such a kind.
fn is(port: &str, of: impl Fn(&PortKind) -> bool) -> bool {
    PortKind::named(port.split('?').next().unwrap_or_default()).is_some_and(of)
}

/// Datagrams have a token of the test; of a connection there is the receiver's port.
fn numbering(spec: &TestSpec, flow: &Flow) -> Option<Numbering> {
    if !spec.kind.is_tcp() {
        return flow.stream.map(Numbering::InHeader);
    }
    let port = *flow.ports.first()?;
    let fits = |size: u32| (1..=i32::MAX as u32).contains(&size);
    if !spec.kind.is_round_trip() {
        let writes = Writes { port, size: spec.message_size(), connections: spec.streams };
        return fits(writes.size).then_some(Numbering::OfStream(writes));
    }
    let (request, response) = (spec.size, spec.response_size() as u32);
    let exchange = Exchange { port, request, response };
    (fits(request) && fits(response)).then_some(Numbering::ByPosition(exchange))
}

impl LayerWatch {
    /// From now on, one of `every` messages of that flow.
    ///
    /// # Errors
    /// The sentence why nothing can be seen here.
    pub fn start(
        nodes: &[(String, BorrowedFd<'_>)],
        actors: &[Actor],
        (spec, flow): (&TestSpec, &Flow),
        every: u32,
    ) -> std::result::Result<LayerWatch, String> {
        if let Some(why) = unfit(spec) {
            return Err(format!("{}: {why}", spec.kind));
        }
        if nodes.len() > MOST_NODES {
            return Err(format!("more than {MOST_NODES} nodes"));
        }
        let inode =
            |(_, namespace): &(String, BorrowedFd<'_>)| netns::inode(*namespace).map(|one| one as u32);
        let namespaces = nodes.iter().map(inode).collect::<io::Result<_>>();
        let ends: Vec<&Actor> = actors.iter().filter(|actor| !actor.is_program()).collect();
        let choice = Choice {
            family: spec.family,
            protocol: flow.number(spec.family).ok_or("no protocol of this IP version")?,
            numbering: numbering(spec, flow).ok_or("its messages cannot be told apart")?,
            is_of_frames: spec.kind.is_by_port(),
            every: every.max(1),
            namespaces: namespaces.map_err(|error| format!("a namespace cannot be entered: {error}"))?,
            processes: ends.iter().map(|actor| actor.pid).collect(),
        };
        let programs = Programs::start(&choice)?;
        let done = Arc::new(AtomicBool::new(false));
        let ends_then = Arc::clone(&done);
        let worker = std::thread::Builder::new()
            .name("layers".into())
            .spawn(move || collect(programs, Gathered::new(every.into()), &ends_then))
            .map_err(|error| format!("no thread for the stamps: {error}"))?;
        let processes = ends.iter().map(|actor| (actor.pid, actor.node.clone())).collect();
        Ok(LayerWatch { done, worker: Some(worker), processes })
    }

    /// What was seen, with names. Nodes have their namespaces, and the snapshot their interfaces.
    pub fn end(mut self, nodes: &[(String, BorrowedFd<'_>)], snapshot: &Snapshot) -> LayerObservation {
        let Some(Ended { gathered, counts }) = self.join() else { return LayerObservation::default() };
        let unread = |error| LayerObservation {
            missing: vec![format!("what the programs counted cannot be read: {error}")],
            ..LayerObservation::default()
        };
        let mut seen = counts.unwrap_or_else(unread);
        seen.every = gathered.every;
        let names = Names::read(nodes, snapshot);
        let name = |place: &RawPlace| names.of(place, &self.processes);
        (seen.places, seen.messages) = gathered.named(name);
        seen
    }

    fn join(&mut self) -> Option<Ended> {
        self.done.store(true, Relaxed);
        let worker = self.worker.take()?;
        worker.thread().unpark();
        worker.join().ok()
    }
}

impl Drop for LayerWatch {
    fn drop(&mut self) {
        self.join();
    }
}

fn collect(mut programs: Programs, mut gathered: Gathered, done: &AtomicBool) -> Ended {
    loop {
        let last = done.load(Relaxed);
        if last {
            programs.running.iter_mut().for_each(|one| one.link = None);
        }
        while programs.ring.read(AT_ONCE, |bytes| take(&mut gathered, bytes)) > 0 {}
        programs.turn();
        if last {
            return Ended { counts: programs.counts(), gathered };
        }
        std::thread::park_timeout(PERIOD);
    }
}

fn take(gathered: &mut Gathered, bytes: &[u8]) -> bool {
    Stamp::decode(bytes).into_iter().for_each(|stamp| gathered.take(stamp));
    true
}

/// Names of nodes by their namespaces, and of interfaces by their numbers.
struct Names {
    nodes: BTreeMap<u32, String>,
    interfaces: BTreeMap<[u32; 2], String>,
}

impl Names {
    fn read(nodes: &[(String, BorrowedFd<'_>)], snapshot: &Snapshot) -> Names {
        let mut names = Names { nodes: BTreeMap::new(), interfaces: BTreeMap::new() };
        for (node, namespace) in nodes {
            let Ok(inode) = netns::inode(*namespace).map(|inode| inode as u32) else { continue };
            names.nodes.insert(inode, node.clone());
            for link in snapshot.nodes.get(node).into_iter().flat_map(|found| &found.links) {
                names.interfaces.insert([inode, link.index], link.name.clone());
            }
        }
        names
    }

    fn of(&self, place: &RawPlace, processes: &BTreeMap<u32, String>) -> StampPlace {
        let node = match place.process {
            0 => self.nodes.get(&place.namespace),
            process => processes.get(&process),
        };
        let number = || format!("interface {}", place.interface);
        let name =
            || self.interfaces.get(&[place.namespace, place.interface]).cloned().unwrap_or_else(number);
        StampPlace {
            point: place.point,
            node: node.cloned().unwrap_or_else(|| "unknown".into()),
            interface: if place.interface == 0 { String::new() } else { name() },
        }
    }
}

/// Running programs and where they put what they see.
#[derive(Debug)]
struct Programs {
    running: Vec<Running>,
    cell: bpf::Map,
    _calls: bpf::Map,
    _takes: bpf::Map,
    _places: bpf::Map,
    ring: EventRing,
    /// While it is open the kernel measures the programs.
    measuring: Option<OwnedFd>,
    missing: Vec<String>,
    begun: Instant,
}

#[derive(Debug)]
struct Running {
    event: LayerEvent,
    // The order of fields is the order of release: first the event, then the program.
    link: Option<OwnedFd>,
    program: OwnedFd,
}

impl Programs {
    fn start(choice: &Choice) -> std::result::Result<Programs, String> {
        let own = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        if own.as_os_str() != FIRST_PIDS {
            return Err(
                "process ids here are not those of the kernel's events (a namespace of processes)".into()
            );
        }
        let made = |error: io::Error| refused("bpf(BPF_MAP_CREATE)", &error);
        let map =
            |kind, key, value, entries, name| bpf::Map::create(kind, key, value, entries, name).map_err(made);
        let mut programs = Programs {
            running: vec![],
            cell: map(bpf::MAP_PERCPU_ARRAY, 4, Cell::COUNT as u32 * 8, 1, "pathlab_cell")?,
            _calls: map(bpf::MAP_HASH, 4, 8, MOST_THREADS, "pathlab_calls")?,
            _takes: map(bpf::MAP_HASH, 4, 8, MOST_THREADS, "pathlab_takes")?,
            _places: map(bpf::MAP_HASH, 4, Place::BYTES, choice.places(), "pathlab_places")?,
            ring: EventRing::create(RING_BYTES, "pathlab_stamps").map_err(made)?,
            measuring: bpf::measure_programs().ok(),
            missing: vec![],
            begun: Instant::now(),
        };
        programs.run_all(choice)?;
        Ok(programs)
    }

    fn run_all(&mut self, choice: &Choice) -> std::result::Result<(), String> {
        let layout = Layout::find(btf::of_kernel()?)?;
        let maps = MapFds {
            cell: self.cell.raw_fd(),
            calls: self._calls.raw_fd(),
            takes: self._takes.raw_fd(),
            places: self._places.raw_fd(),
            ring: self.ring.raw_fd(),
        };
        for event in LayerEvent::ALL.into_iter().filter(|event| choice.asks(*event)) {
            match run(event, &layout, choice, &maps) {
                Ok(one) => self.running.push(one),
                Err(why) if event.is_needed() => return Err(why),
                Err(why) => self.missing.push(why),
            }
        }
        Ok(())
    }

    /// Ends the kernel's measurement of the programs once it has seen enough runs.
    fn turn(&mut self) {
        let runs = |one: &Running| measured(one).map_or(0, |(_, runs)| runs);
        if self.measuring.is_some() && sum(self.running.iter().map(runs)) >= ENOUGH_RUNS {
            self.measuring = None;
        }
    }

    fn counts(&self) -> io::Result<LayerObservation> {
        let value = self.cell.lookup(&0u32.to_ne_bytes())?.unwrap_or_default();
        let word = |word: usize| {
            let of_cpus = value.chunks_exact(Cell::COUNT * 8);
            sum(of_cpus.map(|of_cpu| u64_at(of_cpu, word * 8).unwrap_or(0)))
        };
        let runs =
            |event: LayerEvent| word(LayerEvent::ALL.iter().position(|&one| one == event).unwrap_or(0));
        let cost = |one: &Running| {
            let (ns, seen) = measured(one).filter(|(_, seen)| *seen > 0)?;
            Some((ns as f64 / seen as f64 * runs(one.event) as f64) as u64)
        };
        let costs: Vec<u64> = self.running.iter().filter_map(cost).collect();
        Ok(LayerObservation {
            lost: word(Cell::Lost as usize),
            runs: sum(LayerEvent::ALL.into_iter().map(runs)),
            cost_ns: (!costs.is_empty()).then(|| sum(costs)),
            window_ns: self.begun.elapsed().as_nanos() as u64,
            missing: self.missing.clone(),
            ..LayerObservation::default()
        })
    }
}

/// Nanoseconds and runs that the kernel measured.
fn measured(one: &Running) -> Option<(u64, u64)> {
    bpf::run_time(one.program.as_fd()).ok().flatten()
}

fn run(
    event: LayerEvent,
    layout: &Layout,
    choice: &Choice,
    maps: &MapFds,
) -> std::result::Result<Running, String> {
    let (link, program) = attach(event.name(), assemble(event, layout, choice, maps))?;
    Ok(Running { event, link: Some(link), program })
}
