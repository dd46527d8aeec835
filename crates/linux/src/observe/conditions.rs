//! Watches, while a test runs, what of the machine changes the meaning of its figures.
//!
//! **What.** [`ConditionWatch::start`] reads clocks, governors, idle states, throttling, interrupts and pause frames; a thread then waits for
//! notices of the nodes' configuration, and looks now and then who else has packet sockets and programs there; [`ConditionWatch::end`] reads
//! everything again.
//!
//! **What it costs** is part of what it says: CPU time of this process while traffic flows, and the run time of its programs, which the kernel
//! measures for a tenth of a second ([`MEASURED_NS`]), because measuring costs, too.
//!
//! **Price.** Two sockets for each node and a thread that sleeps; a look takes some 30 µs a node, every half second, and waits
//! at least twenty times as long as it took.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use record::conditions::{
    ConditionReading, Conditions, ConfigChange, InterruptTarget, ObserverCost, PauseCount,
};
use record::flow::FlowPlace;
use record::validity::{self, Unwatched};

use super::config_changes::{NEIGHBOURS, Neighbour, NodeConfig};
use super::foreign::{Foreign, Present, programs_of};
use super::{clocks, irq_targets, pause, power, processes};
use crate::netlink::{ConfigNotices, Family, Netlink};
use crate::sys::notice::{Waker, wait};
use crate::sys::{bpf, clock, netns};

/// How often others' sockets and programs are looked for.
const LOOK_NS: u64 = 500_000_000;
/// A look may take this part of the time.
const LOOK_SHARE: u64 = 20;
/// When the kernel begins to measure the programs, and for how long.
const MEASURED_FROM_NS: u64 = 50_000_000;
const MEASURED_NS: u64 = 100_000_000;
/// More programs than these are not measured: each needs a descriptor.
const MOST_PROGRAMS: usize = 256;
/// More changes than these are only counted.
const MOST_CHANGES: usize = 64;

/// Watches one test.
#[derive(Debug)]
pub struct ConditionWatch {
    begun_ns: u64,
    before: ConditionReading,
    missing: Vec<Unwatched>,
    /// The nodes that are watched.
    nodes: Vec<String>,
    /// Physical interfaces, whose interrupts and pause frames are read.
    wires: Vec<Wire>,
    listening: Option<(Arc<Shared>, JoinHandle<Told>)>,
    /// This process makes traffic itself.
    is_end: bool,
    /// CPU time of this process at the start, and wall and CPU time when traffic had ended.
    cpu_ns: u64,
    traffic: Option<(u64, u64)>,
}

/// What the thread and the watch share.
#[derive(Debug)]
struct Shared {
    waker: Waker,
    done: AtomicBool,
}

/// What the thread was told.
#[derive(Debug, Default)]
struct Told {
    changes: Vec<ConfigChange>,
    more: u64,
    foreign: Foreign,
    missing: Vec<Unwatched>,
    cost: ObserverCost,
}

/// An interface with a wire.
#[derive(Debug)]
struct Wire {
    node: String,
    interface: String,
    index: u32,
    /// The `/sys` of its namespace, where one could be had.
    sysfs: Option<OwnedFd>,
    netns: OwnedFd,
}

impl Wire {
    /// Where the `/sys` of its namespace can be read.
    fn sysfs(&self) -> Option<PathBuf> {
        self.sysfs.as_ref().map(|fd| PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())))
    }
}

/// A node that is listened to.
struct NodeWatch {
    name: String,
    netns: OwnedFd,
    netlink: Netlink,
    notices: ConfigNotices,
    config: NodeConfig,
}

fn unwatched(what: &str, why: impl Into<String>) -> Unwatched {
    Unwatched { what: what.to_owned(), why: why.into(), at: None }
}

/// The rows that notices of rtnetlink decide.
const BY_NOTICES: [&str; 5] = [
    validity::LINK_CHANGED,
    validity::QDISC_CHANGED,
    validity::ROUTE_CHANGED,
    validity::RULE_CHANGED,
    validity::NEIGHBOUR_CHANGED,
];

impl ConditionWatch {
    /// Begins to watch these nodes; `pids` are the processes of the test, whose sockets and programs are its own. What cannot be watched is said
    /// at the end.
    pub fn start(nodes: &[(String, BorrowedFd<'_>)], pids: &[u32]) -> ConditionWatch {
        let is_end = pids.contains(&std::process::id());
        let pids: Vec<u32> = pids.iter().copied().chain([std::process::id()]).collect();
        let (mut watched, mut wires, mut told) = (vec![], vec![], Told::default());
        for (name, namespace) in nodes {
            match NodeWatch::open(name, *namespace) {
                Ok((mut node, present)) => {
                    wires.extend(node.wires());
                    told.missing.extend(node.deaf());
                    told.look(&mut node, present, &pids, true);
                    watched.push(node);
                }
                Err(error) => {
                    let why = |what: &&str| unwatched(what, format!("node {name}: {error}"));
                    told.missing.extend(BY_NOTICES.iter().map(why));
                }
            }
        }
        let mut missing = absent(Path::new("/"));
        let before = reading(&wires, &mut missing);
        let (begun_ns, cpu_ns) = (before.clock.monotonic_ns, clock::process_cpu_ns());
        let nodes = watched.iter().map(|node| node.name.clone()).collect();
        let listening = listen_to(watched, told, pids, begun_ns);
        let mut watch = ConditionWatch {
            begun_ns,
            before,
            missing,
            nodes,
            wires,
            listening: None,
            is_end,
            cpu_ns,
            traffic: None,
        };
        match listening {
            Ok(listening) => watch.listening = Some(listening),
            Err(error) => {
                let why = |what: &&str| unwatched(what, format!("nobody can listen: {error}"));
                watch.missing.extend(BY_NOTICES.iter().map(why));
            }
        }
        watch
    }

    /// The traffic has ended: what this process does from now on costs it nothing.
    pub fn settle(&mut self) {
        let wall_ns = clock::monotonic_ns().saturating_sub(self.begun_ns);
        let cpu_ns = clock::process_cpu_ns().saturating_sub(self.cpu_ns);
        self.traffic.get_or_insert((wall_ns, cpu_ns));
    }

    /// Reads everything again; what was seen.
    pub fn end(mut self) -> Conditions {
        self.settle();
        let mut told = self.stop();
        let after = reading(&self.wires, &mut vec![]);
        let (wall_ns, cpu_ns) = self.traffic.unwrap_or_default();
        let driver_cpu_ns = (!self.is_end).then_some(cpu_ns);
        let mut missing = std::mem::take(&mut self.missing);
        missing.append(&mut told.missing);
        missing.sort();
        missing.dedup();
        Conditions {
            before: self.before.clone(),
            after,
            nodes: std::mem::take(&mut self.nodes),
            changes: told.changes,
            more_changes: told.more,
            taps: told.foreign.taps,
            programs: told.foreign.programs,
            cost: ObserverCost { wall_ns, driver_cpu_ns, ..told.cost },
            missing,
            ..Conditions::default()
        }
    }

    /// Ends the thread; what it was told.
    fn stop(&mut self) -> Told {
        let Some((shared, thread)) = self.listening.take() else { return Told::default() };
        shared.done.store(true, Relaxed);
        shared.waker.wake();
        thread.join().unwrap_or_default()
    }
}

impl Drop for ConditionWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

impl NodeWatch {
    /// Listens in that namespace, and looks who else is there.
    fn open(name: &str, namespace: BorrowedFd<'_>) -> std::io::Result<(NodeWatch, Present)> {
        let netns = namespace.try_clone_to_owned()?;
        netns::within(namespace, || {
            // First the notices, then the state: what changes in between is told.
            let notices = ConfigNotices::new()?;
            let mut netlink = Netlink::open();
            netlink.prepare(Family::Route)?;
            let _ = netlink.prepare(Family::SockDiag);
            let links = netlink.links().map_err(|refusal| std::io::Error::other(refusal.text))?;
            let config = NodeConfig::new(links, netlink.dump(&NEIGHBOURS, Neighbour::parse)?);
            let present = Present::look(&mut netlink, &config.names());
            let name = name.to_owned();
            Ok((NodeWatch { name, netns, netlink, notices, config }, present))
        })?
    }

    /// Its interfaces with a wire: those that no driver of virtual ones made.
    fn wires(&self) -> Vec<Wire> {
        let physical =
            self.config.links().filter(|link| link.kind.is_empty() && link.name != "lo" && link.ethernet);
        let wire = |link: &crate::netlink::LinkState| {
            let netns = self.netns.try_clone().ok()?;
            let sysfs = netns::within(netns.as_fd(), super::llstat::sysfs).and_then(|sysfs| sysfs).ok();
            let (node, interface) = (self.name.clone(), link.name.clone());
            Some(Wire { node, interface, index: link.index, sysfs, netns })
        };
        physical.filter_map(wire).collect()
    }

    fn deaf(&self) -> Option<Unwatched> {
        let why = self.notices.deaf()?;
        Some(unwatched(validity::DRIVER_CHANGED, format!("node {}: {why}", self.name)))
    }
}

/// What this host does not show at all.
fn absent(root: &Path) -> Vec<Unwatched> {
    let mut missing = vec![];
    let mut say = |is_so: bool, what, why: &str| missing.extend(is_so.then(|| unwatched(what, why)));
    say(
        power::governors(root).is_empty(),
        validity::GOVERNOR,
        "this host shows no frequency governor (no cpufreq)",
    );
    say(
        power::idle_states(root).is_empty(),
        validity::IDLE_STATE,
        "this host shows no idle states (no cpuidle)",
    );
    say(
        power::throttled(root).is_none(),
        validity::THROTTLED,
        "this host does not count throttling by temperature (no thermal_throttle)",
    );
    missing
}

/// Everything that is read twice; `missing` gets what of the wires cannot be.
fn reading(wires: &[Wire], missing: &mut Vec<Unwatched>) -> ConditionReading {
    let root = Path::new("/");
    let interrupts: Vec<InterruptTarget> = wires
        .iter()
        .flat_map(|wire| irq_targets::of(root, wire.sysfs().as_deref(), &wire.node, &wire.interface))
        .collect();
    let pauses = wires.iter().filter_map(|wire| pauses(wire, missing)).collect();
    ConditionReading {
        governors: power::governors(root),
        idle: power::idle_states(root),
        throttled: power::throttled(root),
        emulated: power::is_emulated(root),
        irqbalance: !wires.is_empty() && processes::is_running("irqbalance"),
        interrupts,
        pauses,
        // Last, so that it is near to the traffic.
        clock: clocks::read(),
    }
}

fn pauses(wire: &Wire, missing: &mut Vec<Unwatched>) -> Option<PauseCount> {
    let read = || pause::read(&mut Netlink::open(), wire.index, &wire.interface);
    let counts = netns::within(wire.netns.as_fd(), read).unwrap_or_else(|error| Err(error.to_string()));
    match counts {
        Ok((received, sent)) => {
            let (node, interface) = (wire.node.clone(), wire.interface.clone());
            Some(PauseCount { node, interface, received, sent })
        }
        Err(why) => {
            let at = FlowPlace { node: wire.node.clone(), interface: wire.interface.clone() };
            missing.push(Unwatched { at: Some(at), ..unwatched(validity::PAUSE, why) });
            None
        }
    }
}

/// Starts the thread.
fn listen_to(
    nodes: Vec<NodeWatch>,
    told: Told,
    pids: Vec<u32>,
    begun_ns: u64,
) -> std::io::Result<(Arc<Shared>, JoinHandle<Told>)> {
    let shared = Arc::new(Shared { waker: Waker::new()?, done: AtomicBool::new(false) });
    let theirs = Arc::clone(&shared);
    let listens = move || listen(nodes, told, &pids, &theirs, begun_ns);
    Ok((shared, std::thread::Builder::new().spawn(listens)?))
}

/// The thread: until the watch is done.
fn listen(mut nodes: Vec<NodeWatch>, mut told: Told, pids: &[u32], shared: &Shared, begun_ns: u64) -> Told {
    let mut look_ns = clock::monotonic_ns() + LOOK_NS;
    let mut measure = Measure::default();
    loop {
        let until_ns = look_ns.min(measure.next_ns(begun_ns));
        let time = Duration::from_nanos(until_ns.saturating_sub(clock::monotonic_ns()));
        let sources = nodes.iter().flat_map(|node| node.notices.sources()).map(|fd| (fd, false));
        let sources: Vec<_> = std::iter::once((shared.waker.as_fd(), false)).chain(sources).collect();
        let waited = wait(&sources, time);
        let done = waited.is_err() || shared.done.load(Relaxed);
        nodes.iter_mut().for_each(|node| told.take(node, begun_ns));
        measure.turn(begun_ns, done, &mut told);
        let now = clock::monotonic_ns();
        if done || now >= look_ns {
            nodes.iter_mut().for_each(|node| told.look_again(node, pids));
            look_ns = now + LOOK_NS.max((clock::monotonic_ns() - now) * LOOK_SHARE);
        }
        if done {
            return told;
        }
    }
}

impl Told {
    /// Takes what a node was told.
    fn take(&mut self, node: &mut NodeWatch, begun_ns: u64) {
        let NodeWatch { name, notices, config, .. } = node;
        let (mut found, after_ns) = (vec![], clock::monotonic_ns().saturating_sub(begun_ns));
        let taken = notices.take(&mut |notice| found.extend(config.read(notice)));
        if !matches!(taken, Ok(false)) {
            let why =
                taken.map_or_else(|error| error.to_string(), |_| "more was told than could be kept".into());
            self.missing.extend(BY_NOTICES.iter().map(|what| unwatched(what, format!("node {name}: {why}"))));
        }
        for one in found {
            if self.changes.len() == MOST_CHANGES {
                self.more += 1;
                continue;
            }
            let (node, message) = (name.clone(), one.message.to_owned());
            let (interface, about, what) = (one.interface, one.about, one.what);
            self.changes.push(ConfigChange { after_ns, node, interface, message, about, what });
        }
    }

    /// Looks who else is at a node, from inside it. The calling thread stays there.
    fn look_again(&mut self, node: &mut NodeWatch, pids: &[u32]) {
        let present = match netns::enter(node.netns.as_fd()) {
            Ok(()) => Present::look(&mut node.netlink, &node.config.names()),
            Err(error) => {
                let why = Some(error.to_string());
                Present { no_sockets: why.clone(), no_programs: why, ..Present::default() }
            }
        };
        self.look(node, present, pids, false);
    }

    fn look(&mut self, node: &mut NodeWatch, present: Present, pids: &[u32], was_there: bool) {
        let absent = [(validity::TAP, &present.no_sockets), (validity::PROGRAM, &present.no_programs)];
        for (what, why) in absent {
            let said = why.as_ref().map(|why| unwatched(what, format!("node {}: {why}", node.name)));
            self.missing.extend(said.filter(|said| !self.missing.contains(said)));
        }
        self.foreign.add(&node.name, present, pids, was_there);
    }
}

/// Lets the kernel measure this process's programs for a while.
#[derive(Default)]
enum Measure {
    /// Not yet.
    #[default]
    Waits,
    /// Since then, these programs with what they had run before.
    Runs { since_ns: u64, programs: BTreeMap<u32, (OwnedFd, (u64, u64))>, _stats: OwnedFd },
    /// It has been, or cannot be.
    Over,
}

impl Measure {
    fn next_ns(&self, begun_ns: u64) -> u64 {
        match self {
            Measure::Waits => begun_ns + MEASURED_FROM_NS,
            Measure::Runs { since_ns, .. } => since_ns + MEASURED_NS,
            Measure::Over => u64::MAX,
        }
    }

    /// Begins or ends what is due.
    fn turn(&mut self, begun_ns: u64, done: bool, told: &mut Told) {
        let is_due = clock::monotonic_ns() >= self.next_ns(begun_ns);
        match self {
            Measure::Waits if is_due && !done => {
                *self = Measure::begin().unwrap_or_else(|why| {
                    told.missing.push(unwatched(validity::OBSERVER, format!("run time of programs: {why}")));
                    Measure::Over
                });
            }
            Measure::Runs { since_ns, programs, .. } if is_due || done => {
                told.cost.measured_ns = clock::monotonic_ns() - *since_ns;
                for (program, before) in programs.values() {
                    let Ok(Some(now)) = bpf::run_time(program.as_fd()) else { continue };
                    told.cost.programs_ns += now.0.saturating_sub(before.0);
                    told.cost.program_runs += now.1.saturating_sub(before.1);
                }
                *self = Measure::Over;
            }
            _ => {}
        }
    }

    fn begin() -> Result<Measure, String> {
        let ids = programs_of(std::process::id());
        if ids.len() > MOST_PROGRAMS {
            return Err(format!("{} programs are too many to measure", ids.len()));
        }
        let refused = |error: std::io::Error| error.to_string();
        let stats = bpf::measure_programs().map_err(refused)?;
        let since_ns = clock::monotonic_ns();
        let open = |id: u32| {
            let program = bpf::program_by_id(id).map_err(refused)?;
            let before = bpf::run_time(program.as_fd()).map_err(refused)?.unwrap_or_default();
            Ok((id, (program, before)))
        };
        let programs = ids.into_iter().map(open).collect::<Result<_, String>>()?;
        Ok(Measure::Runs { since_ns, programs, _stats: stats })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_files_says_what_it_does_not_show() {
        let empty = tempfile::tempdir().unwrap();
        let missing = absent(empty.path());
        let what: Vec<_> = missing.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(what, ["governor", "idle_state", "throttled"]);
    }

    #[test]
    fn a_watch_over_this_namespace_reads_twice_and_ends() {
        let own = netns::current().unwrap();
        let mut watch = ConditionWatch::start(&[("host".into(), own.as_fd())], &[]);
        watch.settle();
        let seen = watch.end();
        assert!(seen.after.clock.monotonic_ns > seen.before.clock.monotonic_ns);
        assert!(seen.cost.wall_ns > 0, "{seen:?}");
        // An interface with interrupts of its own has them, and counts pause frames or says why not.
        let has_interrupts = |name: &str| {
            let device = Path::new("/sys/class/net").join(name).join("device");
            device.join("msi_irqs").exists() || device.join("../msi_irqs").exists()
        };
        let names = std::fs::read_dir("/sys/class/net")
            .unwrap()
            .flatten()
            .filter_map(|one| one.file_name().into_string().ok());
        for name in names.filter(|name| has_interrupts(name)) {
            assert!(seen.before.interrupts.iter().any(|one| one.interface == name), "{name}: {seen:?}");
            let counted = seen.before.pauses.iter().any(|one| one.interface == name);
            let is_of_it = |at: &FlowPlace| at.interface == name;
            let said =
                seen.missing.iter().any(|one| one.what == "pause" && one.at.as_ref().is_some_and(is_of_it));
            assert!(counted != said, "{name}: {seen:?}");
        }
    }

    /// The MTU of the loopback of a namespace that only this test has.
    #[test]
    fn a_change_in_a_node_is_told_with_its_message() {
        let inside = nix::unistd::geteuid().is_root().then(netns::create);
        let Some(Ok(inside)) = inside else {
            return println!("SKIP: notices of a node: needs root (network namespaces)");
        };
        let watch = ConditionWatch::start(&[("a".into(), inside.as_fd())], &[]);
        netns::within(inside.as_fd(), || Netlink::open().set_mtu(1, 1400).unwrap()).unwrap();
        let seen = watch.end();
        let said: Vec<_> = seen.changes.iter().map(|one| (one.message.as_str(), one.what.as_str())).collect();
        assert_eq!(said, [("RTM_NEWLINK", "MTU 65536 → 1400")], "{:?}", seen.missing);
        assert_eq!((seen.changes[0].node.as_str(), seen.changes[0].interface.as_str()), ("a", "lo"));
    }
}
