//! How the frames of one interface meet the CPUs: all sources of `pathlab llstat`, opened once and read together.
//!
//! **What.** [`Llstat::open`] finds the interface with its interrupts and NAPI instances and starts the programs
//! ([`super::polls`]); [`Llstat::read`] reads everything cumulative: the interface's counters, `/proc/interrupts`, softnet, the byte
//! limits of transmit queues, and what the programs counted.
//!
//! **Why read again.** The counters of the interface and those of the programs are not of one moment. They are read until the
//! interface's did not move meanwhile, at most [`TRIES`] times; after that it is said that they moved.
//!
//! **Price.** Without permission for programs what remains are the counters, and the reason is kept.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use record::llstat::{
    InterruptCount, InterruptRole, LlstatFacts, Napi, Pairing, PollCounts, QueueLimit, Reading,
};
use record::snapshot::{Counters, LinkSample};
use record::{Delta, Problem, Result};

use super::polls::{PollCounters, SLOT_OTHER, SLOT_TRANSMIT, Wanted, slot_of};
use super::{cpus, interrupts, links, napi};
use crate::netlink::{Family, Netlink};
use crate::sys::{clock, mount, netns};

/// How often everything is read for a reading in which the interface did not move.
const TRIES: usize = 8;

/// Everything that is read of an interface.
#[derive(Debug)]
pub struct Llstat {
    /// What does not change.
    pub facts: LlstatFacts,
    index: u32,
    netlink: Netlink,
    /// A `/sys` of the interface's namespace.
    sysfs: Option<OwnedFd>,
    counters: Option<PollCounters>,
}

/// What is asked inside the namespace.
struct Found {
    link: LinkSample,
    netlink: Netlink,
    sysfs: std::io::Result<OwnedFd>,
    napis: std::result::Result<Vec<Napi>, String>,
}

impl Llstat {
    /// Finds the interface in that namespace and begins to count.
    ///
    /// # Errors
    /// An input problem when there is no such interface, a host problem when the namespace cannot be entered.
    pub fn open(node: &str, namespace: BorrowedFd<'_>, interface: &str) -> Result<Llstat> {
        let found = netns::within(namespace, || find(interface)).and_then(|found| found);
        Self::of(node, namespace, interface, found)
    }

    /// The same in the namespace of the calling thread, which needs no permission to be entered.
    ///
    /// # Errors
    /// An input problem when there is no such interface.
    pub fn here(interface: &str) -> Result<Llstat> {
        let namespace = netns::current().map_err(|error| Problem::host(format!("no namespace: {error}")))?;
        Self::of("host", namespace.as_fd(), interface, find(interface))
    }

    fn of(
        node: &str,
        namespace: BorrowedFd<'_>,
        interface: &str,
        found: std::io::Result<Option<Found>>,
    ) -> Result<Llstat> {
        let place = || format!("{node}:{interface}");
        let broken = |error: std::io::Error| Problem::host(format!("cannot be read: {error}")).at(place());
        let inode = netns::inode(namespace).map_err(broken)? as u32;
        let found = found.map_err(broken)?;
        let found = found.ok_or_else(|| Problem::input("there is no such interface").at(place()))?;
        let mut facts = LlstatFacts {
            node: node.to_owned(),
            interface: interface.to_owned(),
            kind: found.link.kind.clone(),
            ..LlstatFacts::default()
        };
        facts.napis = found.napis.unwrap_or_else(|why| {
            facts.missing.push(why);
            vec![]
        });
        if let Err(error) = &found.sysfs {
            facts.missing.push(format!("transmit queues: no /sys of the namespace ({error})"));
        }
        let (index, netlink, sysfs) = (found.link.index, found.netlink, found.sysfs.ok());
        let mut llstat = Llstat { facts, index, netlink, sysfs, counters: None };
        llstat.find_interrupts();
        llstat.begin(inode);
        Ok(llstat)
    }

    fn begin(&mut self, namespace: u32) {
        let napis: Vec<u32> = self.facts.napis.iter().map(|napi| napi.id).collect();
        let irqs: Vec<(u32, u32)> =
            self.facts.roles.iter().filter_map(|(irq, role)| Some((*irq, self.slot(*irq, *role)?))).collect();
        let wanted = Wanted { interface: self.index, namespace, napis: &napis, irqs: &irqs };
        match PollCounters::start(&wanted) {
            Ok(counters) => self.counters = Some(counters),
            Err(why) => self.facts.no_programs = Some(why),
        }
    }

    /// The slot that an interrupt belongs to; none if it brings no frames.
    fn slot(&self, irq: u32, role: InterruptRole) -> Option<u32> {
        let place = self.facts.napis.iter().position(|napi| napi.irq == Some(irq));
        match (place, role) {
            (Some(place), _) => Some(slot_of(place)),
            (None, InterruptRole::Receive) => Some(SLOT_OTHER),
            (None, InterruptRole::Transmit) => Some(SLOT_TRANSMIT),
            (None, InterruptRole::Other) => None,
        }
    }

    /// Which interrupts are the interface's, and which NAPI instances they belong to.
    fn find_interrupts(&mut self) {
        let numbers = self.folder("device").map(|device| interrupts::of_device(&device)).unwrap_or_default();
        let told: Vec<u32> = self.facts.napis.iter().filter_map(|napi| napi.irq).collect();
        let is_ours = |one: &InterruptCount| {
            told.contains(&one.irq) || interrupts::is_of(one, &numbers, &self.facts.interface)
        };
        let mut ours = all_interrupts(&mut self.facts.missing);
        ours.retain(is_ours);
        self.facts.roles = ours.iter().map(|one| (one.irq, interrupts::role(one, &ours))).collect();
        pair(&mut self.facts.napis, &ours);
    }

    /// A folder of the interface in sysfs.
    fn folder(&self, below: &str) -> Option<PathBuf> {
        let root = self.sysfs.as_ref()?.as_raw_fd();
        Some(PathBuf::from(format!("/proc/self/fd/{root}/class/net/{}/{below}", self.facts.interface)))
    }

    /// What the programs counted, also of an interface that is gone.
    ///
    /// # Errors
    /// A host problem when it cannot be read.
    pub fn polls(&self) -> Result<Option<PollCounts>> {
        self.counters
            .as_ref()
            .map(PollCounters::read)
            .transpose()
            .map_err(|error| Problem::host(format!("what the programs counted cannot be read: {error}")))
    }

    /// Everything cumulative, now; none when the interface is gone.
    ///
    /// # Errors
    /// A host problem when the programs' counts cannot be read.
    pub fn read(&mut self) -> Result<Option<Reading>> {
        let Some(mut before) = self.counters() else { return Ok(None) };
        for attempt in 1.. {
            let polls = self.polls()?;
            let at_ns = clock::monotonic_ns();
            let Some(after) = self.counters() else { return Ok(None) };
            let moved = frames_moved(&before, &after);
            if moved > 0 && attempt < TRIES {
                before = after;
                continue;
            }
            let softnet = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
            let mut interrupts = all_interrupts(&mut vec![]);
            interrupts.retain(|one| self.facts.roles.contains_key(&one.irq));
            return Ok(Some(Reading {
                at_ns,
                counters: after,
                moved,
                interrupts,
                softnet: cpus::parse_softnet(&softnet),
                queues: self.folder("queues").map(|folder| queue_limits(&folder)).unwrap_or_default(),
                polls,
            }));
        }
        Ok(None)
    }

    /// To be called now and then: ends the measurement of the programs once it has seen enough.
    pub fn turn(&mut self) {
        if let Some(counters) = &mut self.counters {
            counters.end_measuring();
        }
    }

    /// The interface's counters; none when it is gone.
    fn counters(&mut self) -> Option<Counters> {
        let index = self.index;
        let found = self
            .netlink
            .dump(&links::DUMP, |message| links::parse(message).filter(|link| link.index == index));
        Some(found.ok()?.pop()?.counters)
    }
}

/// Transmit queues whose driver says how many bytes it has, from the folder of an interface's queues.
pub(super) fn queue_limits(folder: &Path) -> Vec<QueueLimit> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<QueueLimit> = names.filter_map(|entry| queue_limit(&entry.path())).collect();
    found.sort_by_key(|one| one.queue);
    found
}

/// The most frames of one direction.
fn frames_moved(before: &Counters, after: &Counters) -> u64 {
    let moved =
        |name| Delta::between(before.get(name).copied(), after.get(name).copied()).known().unwrap_or(0);
    moved("rx_packets").max(moved("tx_packets"))
}

fn queue_limit(queue: &Path) -> Option<QueueLimit> {
    let number = queue.file_name()?.to_str()?.strip_prefix("tx-")?.parse().ok()?;
    let read = |name: &str| {
        let text = fs::read_to_string(queue.join("byte_queue_limits").join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let limit = QueueLimit { queue: number, limit_bytes: read("limit")?, inflight_bytes: read("inflight")? };
    // Drivers that do not count bytes have the files, too: their limit never leaves 0.
    (limit.limit_bytes + limit.inflight_bytes > 0).then_some(limit)
}

fn find(interface: &str) -> std::io::Result<Option<Found>> {
    let mut netlink = Netlink::open();
    netlink.prepare(Family::Route)?;
    let all = netlink.dump(&links::DUMP, links::parse)?;
    let Some(link) = all.into_iter().find(|link| link.name == interface) else { return Ok(None) };
    let napis = napi::list(link.index);
    Ok(Some(Found { link, netlink, sysfs: sysfs(), napis }))
}

/// A `/sys` of the calling thread's namespace. Where it may not be mounted, the one that is there fits the namespace in which the
/// process began.
///
/// # Errors
/// The system's error: no permission.
pub fn sysfs() -> std::io::Result<OwnedFd> {
    mount::detached_mount(c"sysfs").or_else(|error| {
        let is_first = netns::same(netns::current()?, fs::File::open("/proc/self/ns/net")?)?;
        if is_first { Ok(fs::File::open("/sys")?.into()) } else { Err(error) }
    })
}

fn all_interrupts(missing: &mut Vec<String>) -> Vec<InterruptCount> {
    match fs::read_to_string("/proc/interrupts") {
        Ok(text) => interrupts::parse(&text),
        Err(error) => {
            missing.push(format!("interrupts: /proc/interrupts: {error}"));
            vec![]
        }
    }
}

/// Where the kernel does not tell: instances and receive interrupts belong together in the order of their queues, if there are as
/// many of the one as of the other.
fn pair(napis: &mut [Napi], ours: &[InterruptCount]) {
    let told: Vec<u32> = napis.iter().filter_map(|napi| napi.irq).collect();
    let mut free: BTreeMap<(Option<u32>, u32), u32> = BTreeMap::new();
    for one in ours.iter().filter(|one| !told.contains(&one.irq)) {
        if interrupts::role(one, ours) == InterruptRole::Receive {
            free.insert((interrupts::queue(&one.name), one.irq), one.irq);
        }
    }
    let mut alone: Vec<&mut Napi> = napis.iter_mut().filter(|napi| napi.irq.is_none()).collect();
    alone.retain(|napi| !napi.receive_queues.is_empty());
    alone.sort_by_key(|napi| napi.receive_queues.iter().min().copied());
    if alone.len() == free.len() {
        for (napi, irq) in alone.into_iter().zip(free.into_values()) {
            (napi.irq, napi.paired_by) = (Some(irq), Some(Pairing::Name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupt(irq: u32, name: &str) -> InterruptCount {
        InterruptCount { irq, name: name.into(), cpus: vec![] }
    }

    fn napi(id: u32, queue: u32) -> Napi {
        Napi { id, receive_queues: vec![queue], ..Napi::default() }
    }

    #[test]
    fn instances_are_paired_in_the_order_of_queues_or_not_at_all() {
        let ours = [
            interrupt(40, "virtio2-input.1"),
            interrupt(41, "virtio2-input.0"),
            interrupt(42, "virtio2-output.0"),
        ];
        let mut napis = [napi(8200, 1), napi(8201, 0)];
        pair(&mut napis, &ours);
        assert_eq!(napis.clone().map(|napi| napi.irq), [Some(40), Some(41)]);
        assert_eq!(napis[0].paired_by, Some(Pairing::Name));
        let mut more = [napi(1, 0), napi(2, 1), napi(3, 2)];
        pair(&mut more, &ours);
        assert!(more.iter().all(|napi| napi.irq.is_none()));
        let mut told = [Napi { irq: Some(41), paired_by: Some(Pairing::Kernel), ..napi(1, 0) }, napi(2, 1)];
        pair(&mut told, &ours);
        assert_eq!((told[0].irq, told[1].irq), (Some(41), Some(40)));
    }
}
