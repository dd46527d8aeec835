//! Facts of a host, of namespaces and of their interfaces, read twice: what `pathlab doctor` judges.
//!
//! **What.** [`FactSources::read`] reads everything once; [`FactSources::window`] makes facts of two readings: counters with both values,
//! settings as they are at the end, and what changed in between.
//!
//! **Why two whole readings.** Settings are read twice, too: a ring that was changed meanwhile spoils the figures, and only the second
//! reading shows it.
//!
//! **Price.** Some thousand small files (each thread of each process has one), and some requests for each interface; the facts state the
//! CPU time. Nothing is written. Why a soft interrupt ended, which system calls carried datagrams, and what packet sockets were given,
//! is counted by programs of the kernel, while the window lasts.

mod device;
mod files;
mod host;
mod interface;
mod node;
mod packet_sockets;
mod window;

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use record::Result;
use record::facts::{Fact, Facts, Known};

use super::packet_frames::PacketFrames;
use super::polls::PollCounters;
use super::udp_calls::UdpCalls;
use super::{interrupts, llstat, processes, qdiscs};
use crate::netlink::{Family, Netlink};
use crate::sys::{clock, netns};
use files::count;

/// The host, and nodes on it.
#[derive(Debug)]
pub struct FactSources {
    /// Names and namespaces; none is that of the calling thread.
    nodes: Vec<(String, Option<OwnedFd>)>,
    /// The only interface that is asked for.
    only: Option<String>,
    polls: std::result::Result<PollCounters, String>,
    udp_calls: std::result::Result<UdpCalls, String>,
    /// From the first reading on.
    packet_frames: OnceLock<std::result::Result<PacketFrames, String>>,
}

/// Everything at one time.
#[derive(Debug)]
pub struct FactReading {
    at_ns: u64,
    cost_ns: u64,
    host: Known,
    nodes: BTreeMap<String, NodeReading>,
}

impl FactReading {
    /// Interfaces that have a device, with their nodes.
    pub fn cards(&self) -> Vec<(String, String)> {
        let is_card = |known: &Known| known.get("kind") == Some(&Fact::Text("card".into()));
        let of = |(node, reading): (&String, &NodeReading)| {
            let cards = reading.interfaces.iter().filter(|(_, known)| is_card(known));
            cards.map(|(name, _)| (node.clone(), name.clone())).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of).collect()
    }
}

/// Of one namespace.
#[derive(Debug, Default)]
struct NodeReading {
    known: Known,
    interfaces: BTreeMap<String, Known>,
    texts: BTreeMap<String, String>,
}

impl FactSources {
    /// Our own namespace, called `host`.
    pub fn here(only: Option<&str>) -> FactSources {
        Self::of(vec![("host".into(), None)], only)
    }

    /// Namespaces by name.
    pub fn open(nodes: Vec<(String, OwnedFd)>, only: Option<&str>) -> FactSources {
        Self::of(nodes.into_iter().map(|(name, space)| (name, Some(space))).collect(), only)
    }

    fn of(nodes: Vec<(String, Option<OwnedFd>)>, only: Option<&str>) -> FactSources {
        let inode = |(_, space): &(String, Option<OwnedFd>)| match space {
            Some(space) => netns::inode(space.as_fd()),
            None => netns::current().and_then(|own| netns::inode(own.as_fd())),
        };
        let namespaces: Vec<u32> =
            nodes.iter().filter_map(|node| inode(node).ok()).map(|n| n as u32).collect();
        FactSources {
            packet_frames: OnceLock::new(),
            nodes,
            only: only.map(str::to_owned),
            polls: PollCounters::softirqs(),
            udp_calls: UdpCalls::start(&namespaces),
        }
    }

    /// Reads everything.
    ///
    /// # Errors
    /// A host problem when a namespace cannot be entered or has no netlink.
    pub fn read(&self) -> Result<FactReading> {
        let cpu = clock::thread_cpu_ns();
        let root = Path::new("/");
        let mut host = host::read(root);
        host.extend(host::processes(&processes::host_processes(), &threads()));
        host.extend(self.squeezes(&host));
        host.extend(clocks());
        let frames = self.packet_frames.get_or_init(|| packet_frames(&self.nodes));
        let frames = frames.as_ref().map_err(String::as_str);
        let mut nodes = BTreeMap::new();
        for (name, space) in &self.nodes {
            let read = || self.node(frames);
            let reading = match space {
                Some(space) => netns::within(space.as_fd(), read).and_then(|read| read),
                None => read(),
            };
            let reading = reading.map_err(|error| super::unobservable(name, &error))?;
            nodes.insert(name.clone(), reading);
        }
        Ok(FactReading { at_ns: clock::monotonic_ns(), cost_ns: clock::thread_cpu_ns() - cpu, host, nodes })
    }

    /// Where a reading lacks the only interface that is asked for.
    pub fn lacks(&self, reading: &FactReading) -> Option<String> {
        let only = self.only.as_ref()?;
        let lacking = |(_, node): &(&String, &NodeReading)| !node.interfaces.contains_key(only);
        reading.nodes.iter().find(lacking).map(|(name, _)| format!("{name}:{only}"))
    }

    /// Reads the namespace of the calling thread.
    fn node(&self, frames: std::result::Result<&PacketFrames, &str>) -> std::io::Result<NodeReading> {
        let mut netlink = Netlink::open();
        netlink.prepare(Family::Route)?;
        let links = interface::list(&mut netlink)?;
        let names = interface::names(&links);
        let qdiscs = netlink.dump(&qdiscs::DUMP, |message| qdiscs::parse(message, &names))?;
        let sysfs = llstat::sysfs().map_err(|error| error.to_string());
        let all = fs::read_to_string("/proc/interrupts").unwrap_or_default();
        let around = interface::Around {
            links: &links,
            qdiscs: &qdiscs,
            sysfs: sysfs
                .as_ref()
                .map(|fd| PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())))
                .map_err(Clone::clone),
            taps: files::text(Path::new("/proc/thread-self/net/ptype")),
            addresses: netlink.addresses().map_err(|refusal| refusal.to_string()),
            interrupts: &interrupts::parse(&all),
        };
        let wanted = |link: &&interface::Link| match &self.only {
            Some(only) => link.sample.name == *only,
            None => link.sample.up && link.sample.name != "lo",
        };
        let mut interfaces = BTreeMap::new();
        for link in links.iter().filter(wanted) {
            interfaces.insert(link.sample.name.clone(), interface::read(&mut netlink, link, &around));
        }
        let text = |name: &&str| {
            let path = format!("/proc/thread-self/net/{name}");
            Some((format!("/proc/net/{name}"), fs::read_to_string(path).ok()?))
        };
        let texts = node::TEXTS.iter().filter_map(text).collect();
        let mut known = node::read(&mut netlink, &names);
        known.extend(packet_sockets::read(&mut netlink, &names, frames));
        let inode = netns::inode(netns::current()?.as_fd())?;
        known.insert("netns".into(), Fact::Number(inode as f64));
        known.insert("udp.syscalls".into(), self.udp_calls(inode as u32));
        Ok(NodeReading { known, interfaces, texts })
    }

    /// System calls that carried datagrams in a namespace.
    fn udp_calls(&self, namespace: u32) -> Fact {
        let told = self.udp_calls.as_ref().map_err(Clone::clone);
        let told = told.and_then(|calls| calls.read(namespace).map_err(|error| error.to_string()));
        let unknown = |why| Fact::unknown(format!("no program of the kernel counts system calls: {why}"));
        told.map_or_else(unknown, count)
    }

    /// How often soft interrupts ended because of their budget, and because of their time.
    fn squeezes(&self, host: &Known) -> Known {
        let told = self
            .polls
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|polls| polls.read().map_err(|error| error.to_string()));
        let budget = told.map(|polls| polls.words.get("budget_ends").copied().unwrap_or(0));
        let all = match host.get("softnet.squeezed") {
            Some(Fact::Each { each }) => each.values().filter_map(last).sum(),
            _ => 0,
        };
        let of = |part: fn(u64, u64) -> u64| match &budget {
            Ok(budget) => count(part(all, *budget)),
            Err(why) => {
                Fact::unknown(format!("no program of the kernel counts why soft interrupts end: {why}"))
            }
        };
        Known::from([
            ("squeezed.budget".into(), of(|_, budget| budget)),
            ("squeezed.time".into(), of(u64::saturating_sub)),
        ])
    }

    /// Facts of the time between two readings.
    pub fn window(&self, before: FactReading, after: FactReading) -> Facts {
        window::facts(before, after)
    }
}

/// Counts for the packet sockets of the nodes, where there are some.
fn packet_frames(nodes: &[(String, Option<OwnedFd>)]) -> std::result::Result<PacketFrames, String> {
    let of = |(_, space): &(String, Option<OwnedFd>)| match space {
        Some(space) => netns::within(space.as_fd(), packet_sockets::cookies).unwrap_or_default(),
        None => packet_sockets::cookies(),
    };
    match &nodes.iter().flat_map(of).collect::<Vec<_>>()[..] {
        [] => Err("it was opened within the window".into()),
        cookies => {
            PacketFrames::start(cookies).map_err(|why| format!("no program of the kernel counts it: {why}"))
        }
    }
}

/// What a counter said last.
fn last(fact: &Fact) -> Option<u64> {
    match fact {
        Fact::Counter { after, .. } => Some(*after),
        _ => None,
    }
}

/// Every thread of every process.
fn threads() -> Vec<processes::HostProcess> {
    let all = processes::host_processes();
    let of = |process: &processes::HostProcess| {
        let tasks = fs::read_dir(format!("/proc/{}/task", process.pid)).into_iter().flatten().flatten();
        let stat = |task: fs::DirEntry| fs::read_to_string(task.path().join("stat")).ok();
        tasks.filter_map(|task| processes::parse_host_process(&stat(task)?)).collect::<Vec<_>>()
    };
    all.iter().flat_map(of).collect()
}

/// How far the clocks are from each other, in nanoseconds: the window shows what moved.
fn clocks() -> Known {
    let apart = |other: fn() -> u64| Fact::Number(ahead(other));
    Known::from([
        ("clock.wall_ahead_ns".into(), apart(clock::realtime_ns)),
        ("clock.raw_ahead_ns".into(), apart(clock::monotonic_raw_ns)),
    ])
}

/// How far a clock is ahead of the steady one, by the reading of several that took least time.
fn ahead(other: fn() -> u64) -> f64 {
    let reading = || {
        let (before, value, after) = (clock::monotonic_ns(), other(), clock::monotonic_ns());
        (after - before, value as f64 - before as f64)
    };
    let best = (0..16).map(|_| reading()).min_by_key(|(took, _)| *took);
    best.map_or(0.0, |(_, ahead)| ahead)
}
