//! Counters of nodes and of the host, and the independent witness of drops.
//!
//! **What.** [`Observer`] reads every node of a lab in one pass from one thread: interfaces, qdiscs, protocol counters,
//! sockets, neighbours and filters of each, then softnet, CPU time and the actors once for the host. [`witness`] counts
//! drops by another way altogether. What each counter really means is written in `docs/counters.md`.
//!
//! **Why one pass.** Counters that are read at different instants differ by what flowed in between; a snapshot tells
//! its own begin and end, and is taken when [`Observer::settle`] found nothing moving.
//!
//! **Price.** Nothing is written, and reading costs CPU time of the caller, which every snapshot states
//! (`cost_cpu_ns`). A source that cannot be read becomes an entry in `missing`, never a zero.

pub mod btf;
pub mod clocks;
pub mod conditions;
pub mod config_changes;
pub mod cpus;
pub mod dead_frame;
mod devlink;
pub mod driver_counters;
pub mod drop_watch;
pub mod drops_program;
mod ends_program;
pub mod facts;
pub mod filters;
pub mod flow;
pub mod flow_counters;
mod flow_newcomers;
pub mod flow_program;
pub mod flow_watch;
pub mod foreign;
mod frames_program;
pub mod function_shares;
pub mod interrupts;
pub mod irq_targets;
mod kernel_messages;
pub mod known;
pub mod layers;
pub mod links;
pub mod llstat;
pub mod napi;
pub mod neighbours;
pub mod next_hop;
mod node;
mod packet_frames;
pub mod packet_sockets;
mod page_pools;
pub mod pause;
pub mod polls;
pub mod power;
pub mod processes;
pub mod profile;
pub mod protocols;
pub mod qdiscs;
pub mod queues;
pub mod quick;
pub mod rest;
pub mod scheduler;
pub mod sockets;
pub mod symbols;
pub mod tcp_sockets;
mod time_watch;
mod tracepoints;
pub mod traffic;
mod udp_calls;
pub mod waits;
pub mod watch;
pub mod witness;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use record::snapshot::{NodeSnapshot, Snapshot};
use record::{Problem, Result};

pub use conditions::ConditionWatch;
pub use dead_frame::{DeadFrame, DeadKey, DeadLink};
pub use drop_watch::{DropCount, DropLosses, DropWatch};
pub use facts::{host_facts, interfaces_of};
pub use flow::{Flow, FlowEnd, FlowEnds, FlowProtocol};
pub use flow_counters::{FlowCounters, FlowLinks};
pub use flow_watch::FlowWatch;
pub use frames_program::MOST_BYTES;
pub use layers::{LayerWatch, check_layers};
pub use quick::Quick;
pub use tcp_sockets::TcpSockets;
pub use time_watch::{TimeDepth, TimeWatch, check_profile};
pub use witness::{Witness, WitnessCount};

use crate::sys::clock;
use node::{Node, Source};
use packet_sockets::Owners;
use rest::Threads;

/// Time between two quick reads: longer than one tick of any kernel (10 ms at `HZ=100`).
const BETWEEN: Duration = Duration::from_millis(15);

/// A process that makes traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Its process id as this process sees it.
    pub pid: u32,
    /// What it does in the test: `sender`, `receiver`.
    pub role: String,
    /// The node that it runs in.
    pub node: String,
}

impl Actor {
    /// True for a program of the lab that hands frames on, false for the two ends of a test.
    pub fn is_program(&self) -> bool {
        !matches!(self.role.as_str(), "" | "sender" | "receiver")
    }
}

/// How long to wait for quiet, on `CLOCK_MONOTONIC` in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Until then for counters that move and queues that empty by themselves.
    pub queues_ns: u64,
    /// Until then for programs that are at work or get no CPU; not before `queues_ns`.
    pub programs_ns: u64,
}

impl Patience {
    /// The same for all.
    pub fn until(deadline_ns: u64) -> Patience {
        Patience { queues_ns: deadline_ns, programs_ns: deadline_ns }
    }
}

/// How waiting for quiet ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Nothing moved any more.
    pub quiet: bool,
    /// How long it was waited, in nanoseconds.
    pub waited_ns: u64,
    /// What still moved at the end, one short line each; empty if it is quiet.
    pub moving: Vec<String>,
}

/// Reads counters of nodes and of the host. Keeps the nodes' namespaces alive while it lives.
#[derive(Debug)]
pub struct Observer {
    /// Where flows are counted, kept from one test to the next.
    pub flow_links: FlowLinks,
    nodes: Vec<Node>,
    stat: Source,
    softnet: Source,
    tick_hz: u64,
    owners: Owners,
}

impl Observer {
    /// Opens the sources of these nodes, each inside its namespace.
    ///
    /// # Errors
    /// A `Host` problem when a namespace cannot be entered or has no netlink.
    pub fn new(nodes: &[(String, BorrowedFd<'_>)]) -> Result<Observer> {
        let enter = |(name, namespace): &(String, BorrowedFd<'_>)| {
            Node::enter(name, *namespace).map_err(|error| unobservable(name, &error))
        };
        Ok(Self::of(nodes.iter().map(enter).collect::<Result<_>>()?))
    }

    /// Opens the sources of the namespace of the calling thread, as one node named `host`.
    ///
    /// # Errors
    /// A `Host` problem when there is no netlink.
    pub fn host() -> Result<Observer> {
        Ok(Self::of(vec![Node::here("host").map_err(|error| unobservable("host", &error))?]))
    }

    fn of(nodes: Vec<Node>) -> Observer {
        Observer {
            flow_links: FlowLinks::default(),
            nodes,
            stat: Source::open("/proc/stat", "/proc/stat"),
            softnet: Source::net("softnet_stat"),
            tick_hz: facts::tick_hz(),
            owners: Owners::default(),
        }
    }

    /// Opens the sources of one more node, and reads it once.
    ///
    /// # Errors
    /// As [`Observer::new`].
    pub fn enter(&mut self, name: &str, namespace: BorrowedFd<'_>) -> Result<NodeSnapshot> {
        let mut node = Node::enter(name, namespace).map_err(|error| unobservable(name, &error))?;
        let found = node.snapshot(&mut vec![]);
        self.nodes.push(node);
        Ok(found)
    }

    /// Reads a node for the last time and lets go of its namespace; none when there is no such node.
    pub fn leave(&mut self, name: &str) -> Option<NodeSnapshot> {
        let index = self.nodes.iter().position(|node| node.name == name)?;
        Some(self.nodes.remove(index).snapshot(&mut vec![]))
    }

    /// Reads everything once. Actors that have ended are listed in `missing`.
    ///
    /// # Errors
    /// None at present: what cannot be read is named in `missing`.
    pub fn snapshot(&mut self, actors: &[Actor]) -> Result<Snapshot> {
        let cpu = clock::thread_cpu_ns();
        let mut snapshot =
            Snapshot { begun_ns: clock::monotonic_ns(), tick_hz: self.tick_hz, ..Snapshot::default() };
        let mut first = vec![];
        self.softnet.read(&mut snapshot.missing, |text| first = cpus::parse_softnet(text));
        for node in &mut self.nodes {
            let mut found = node.snapshot(&mut snapshot.missing);
            self.owners.name(&node.name, &mut found.packet_sockets, actors);
            snapshot.nodes.insert(node.name.clone(), found);
        }
        self.softnet.read(&mut snapshot.missing, |text| snapshot.softnet = cpus::parse_softnet(text));
        cpus::longest_backlog(&mut snapshot.softnet, &first);
        self.stat.read(&mut snapshot.missing, |text| snapshot.cpus = cpus::parse_stat(text));
        for actor in actors {
            match processes::read(actor.pid, &actor.role, &actor.node) {
                Some(process) => snapshot.processes.push(process),
                None => {
                    snapshot.missing.push(format!("{} (process {}): it has ended", actor.role, actor.pid))
                }
            }
        }
        snapshot.ended_ns = clock::monotonic_ns();
        snapshot.cost_cpu_ns = clock::thread_cpu_ns() - cpu;
        Ok(snapshot)
    }

    /// Reads only what tells whether anything moves.
    ///
    /// # Errors
    /// A `Host` problem when a source that was there before cannot be read: then nobody can say that it is quiet.
    pub fn quick(&mut self) -> Result<Quick> {
        let (mut quick, mut missing) = (Quick::default(), Vec::new());
        for node in &mut self.nodes {
            node.quick(&self.owners, &mut quick, &mut missing);
        }
        let softnet = |text: &str| cpus::parse_softnet(text).iter().for_each(|row| quick.add_softnet(row));
        self.softnet.read(&mut missing, softnet);
        match missing.first() {
            Some(why) => Err(Problem::host(format!("counters cannot be read: {why}"))),
            None => Ok(quick),
        }
    }

    /// Waits until two successive quick reads agree, no frame waits where it will leave by itself, and every program among
    /// the actors has looked at its ports between them ([`rest`]), or until the patience ends. At least two reads are made,
    /// whatever the patience.
    ///
    /// # Errors
    /// As [`Observer::quick`].
    pub fn settle(&mut self, actors: &[Actor], patience: Patience) -> Result<Settled> {
        let begun = clock::monotonic_ns();
        let mut before = (self.quick()?, Threads::read(actors));
        loop {
            std::thread::sleep(BETWEEN);
            let now = (self.quick()?, Threads::read(actors));
            let mut moving = now.0.moving(&before.0);
            moving.extend(now.1.unseen(&before.1));
            let time = clock::monotonic_ns();
            let at_work = now.1.is_awake() && time < patience.programs_ns;
            if moving.is_empty() || (time >= patience.queues_ns && !at_work) {
                return Ok(Settled { quiet: moving.is_empty(), waited_ns: time - begun, moving });
            }
            before = now;
        }
    }
}

fn unobservable(node: &str, error: &std::io::Error) -> Problem {
    Problem::host(format!("the counters of node {node} cannot be opened: {error}"))
        .help("run as root, or inside the user namespace that owns the lab")
        .remedy(error)
}

/// The running kernel's reasons for drops, by name.
///
/// # Errors
/// Why it does not tell them.
pub fn drop_reasons() -> std::result::Result<Vec<String>, String> {
    drops_program::reason_names(btf::of_kernel()?)
}

/// Busy CPU time of all CPUs since boot, in seconds: user, system and interrupts (resolution one tick).
///
/// # Errors
/// A `Host` problem when `/proc/stat` cannot be read.
pub fn busy_seconds() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/stat")
        .map_err(|error| Problem::host(format!("CPU time cannot be read: {error}")).at("/proc/stat"))?;
    let ticks: u64 =
        cpus::parse_stat(&text).iter().map(|cpu| cpu.user + cpu.system + cpu.irq + cpu.softirq).sum();
    Ok(ticks as f64 / facts::tick_hz() as f64)
}
