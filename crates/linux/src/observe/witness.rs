//! The witness: the test's own drops, counted by the kernel's `skb:kfree_skb` event.
//!
//! **What.** A program at the raw tracepoint ([`super::drops_program`]) counts by reason, namespace, interface and the
//! place in the kernel that dropped. It shares nothing with the counters of [`super::Observer`]: when both say the same,
//! that is two independent voices.
//!
//! **Why filtered in the kernel.** Unfiltered totals are worthless: in one measurement the same event also counted
//! 310 359 + 120 840 drops of other traffic. Only the lab's namespaces and the test's ports (or ICMP id) count.
//!
//! **What it cannot see.** Frames that never become a socket buffer (the ring of a card, native XDP), and ICMP errors
//! that carry the test's header inside. A frame whose header is not readable counts as *unparsed*, an event that the
//! program could not count as *lost*; neither is ever silent.
//!
//! **Price.** Nothing for frames that pass; for a dropped frame see `docs/counters.md`. Needs `CAP_BPF` and
//! `CAP_PERFMON`. Nothing is pinned: dropping the [`Witness`] releases everything, the events a moment later.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock};

use record::Delta;
use record::ledger::{NamedCount, WitnessDrop, WitnessStatus};

use super::drops_program::{
    KEY_BYTES, KIND_BACK, KIND_UNPARSED, LOST_EVENTS, LOST_NO_ROOM, Layout, MapFds, VALUE_BYTES, assemble,
};
use super::flow::Flow;
use super::{links, symbols};
use crate::netlink::{Family, Netlink, u32_at, u64_at};
use crate::sys::perf::EventCount;
use crate::sys::{bpf, netns};

/// Different reasons at different places that fit; a real test has a handful.
const ENTRIES: u32 = 1024;
/// Ports of a flow, and namespaces, that are compared one by one.
pub(super) const MOST: usize = 256;

/// What was counted so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WitnessCount {
    /// The test's drops by reason, node, interface and location.
    pub details: Vec<WitnessDrop>,
    /// Of a flow with two ends those of frames on their way back; `details` has the others then.
    pub back: Vec<WitnessDrop>,
    /// Events that could not be counted: no room, the program was already running on that CPU, or the kernel did not show
    /// them to the program (some sandboxed kernels hide what happens on top of process 1). They need not have been the
    /// test's. While the counts were read drops went on, so this is the most that they may be.
    pub lost: u64,
    /// The least that they may be.
    pub least_lost: u64,
    /// Dropped frames of the lab's namespaces whose header could not be read; they may have been the test's.
    pub unparsed: u64,
    /// Where the unparsed were dropped.
    pub unparsed_details: Vec<WitnessDrop>,
}

impl WitnessCount {
    /// What was counted since `before`; none when a count ran backwards.
    pub fn since(&self, before: &WitnessCount) -> Option<WitnessCount> {
        Some(WitnessCount {
            details: difference(&self.details, &before.details)?,
            back: difference(&self.back, &before.back)?,
            lost: Delta::of(before.least_lost, self.lost).known()?,
            least_lost: self.least_lost.saturating_sub(before.lost),
            unparsed: Delta::of(before.unparsed, self.unparsed).known()?,
            unparsed_details: difference(&self.unparsed_details, &before.unparsed_details)?,
        })
    }

    /// Frames by reason over all places.
    pub fn by_reason(&self) -> Vec<NamedCount> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for drop in &self.details {
            *sums.entry(&drop.reason).or_default() += drop.frames;
        }
        sums.into_iter().map(|(name, count)| NamedCount { name: name.to_owned(), count }).collect()
    }

    /// Frames dropped for that reason over all places.
    pub fn frames(&self, reason: &str) -> u64 {
        self.details.iter().filter(|drop| drop.reason == reason).map(|drop| drop.frames).sum()
    }
}

fn place(drop: &WitnessDrop) -> (&str, &str, Option<&str>, Option<&str>) {
    (&drop.node, &drop.reason, drop.interface.as_deref(), drop.location.as_deref())
}

fn difference(now: &[WitnessDrop], before: &[WitnessDrop]) -> Option<Vec<WitnessDrop>> {
    let grown = |drop: &WitnessDrop| {
        let old = before.iter().find(|old| place(old) == place(drop));
        let (frames, skbs) = old.map_or((0, 0), |old| (old.frames, old.skbs));
        let (frames, skbs) = (Delta::of(frames, drop.frames).known()?, Delta::of(skbs, drop.skbs).known()?);
        Some(WitnessDrop { frames, skbs, ..drop.clone() })
    };
    let all: Option<Vec<WitnessDrop>> = now.iter().map(grown).collect();
    Some(all?.into_iter().filter(|drop| drop.skbs > 0 || drop.frames > 0).collect())
}

/// A node as the witness knows it.
#[derive(Debug)]
struct Place {
    inode: u32,
    name: String,
    netlink: Mutex<Netlink>,
}

/// A running count.
#[derive(Debug)]
pub struct Witness {
    /// The program at the event; there until the end.
    link: Option<OwnedFd>,
    program: OwnedFd,
    /// All events of the host, counted without a program; none where that is not permitted.
    all: Option<EventCount>,
    /// Events that the program had seen when they began to be counted.
    seen_alone: u64,
    counts: bpf::Map,
    lost: bpf::Map,
    places: Vec<Place>,
    layout: &'static Layout,
}

/// Each event that is closed waits for two periods of RCU, 55 ms together: a thread waits, and not the next test, whose traffic begins
/// later than that.
impl Drop for Witness {
    fn drop(&mut self) {
        let closed = (self.link.take(), self.all.take());
        // Where no thread can be had, they are closed here.
        let _ = std::thread::Builder::new().name("close".into()).spawn(move || drop(closed));
    }
}

impl Witness {
    /// Starts to count the drops of that flow in the namespaces of these nodes.
    ///
    /// # Errors
    /// The witness that could not be: `NotPermitted` or `Unavailable`, and why.
    pub fn start(nodes: &[(String, BorrowedFd<'_>)], flow: &Flow) -> Result<Witness, record::Witness> {
        let is_known = !flow.ports.is_empty() || flow.ends.is_some();
        if nodes.is_empty() || !is_known || nodes.len() > MOST || flow.ports.len() > MOST {
            return Err(unavailable(format!("it takes 1 to {MOST} nodes and 1 to {MOST} ports")));
        }
        let counts = bpf::Map::create(bpf::MAP_PERCPU_HASH, KEY_BYTES, VALUE_BYTES, ENTRIES, "pathlab_drops")
            .map_err(|error| refused("bpf(BPF_MAP_CREATE)", &error))?;
        let lost = bpf::Map::create(bpf::MAP_PERCPU_ARRAY, 4, 8, 2, "pathlab_lost")
            .map_err(|error| refused("bpf(BPF_MAP_CREATE)", &error))?;
        let layout = layout().map_err(unavailable)?;
        let places = nodes.iter().map(place_of).collect::<io::Result<Vec<_>>>();
        let places =
            places.map_err(|error| unavailable(format!("a namespace cannot be entered: {error}")))?;
        let namespaces: Vec<u32> = places.iter().map(|place| place.inode).collect();
        let maps = MapFds { counts: counts.raw_fd(), lost: lost.raw_fd() };
        let code = assemble(layout, &namespaces, flow, maps)
            .map_err(|error| unavailable(format!("the program cannot be assembled: {error:?}")))?;
        let program = bpf::load_program(bpf::PROG_RAW_TRACEPOINT, &code, c"Dual MIT/GPL", "pathlab_drops")
            .map_err(|rejected| rejection(&rejected))?;
        let link = bpf::open_raw_tracepoint(c"kfree_skb", program.as_fd())
            .map_err(|error| refused("bpf(BPF_RAW_TRACEPOINT_OPEN)", &error))?;
        let all = EventCount::start("events/skb/kfree_skb").ok();
        let mut witness =
            Witness { link: Some(link), program, all, seen_alone: 0, counts, lost, places, layout };
        witness.seen_alone =
            witness.own_count(LOST_EVENTS).map_err(|error| refused("bpf(BPF_MAP_LOOKUP_ELEM)", &error))?;
        Ok(witness)
    }

    /// What was counted since the start. Counting goes on.
    ///
    /// # Errors
    /// When the counts cannot be read; that is a problem of the host.
    pub fn read(&self) -> record::Result<WitnessCount> {
        let broken =
            |error: io::Error| record::Problem::host(format!("the drop witness cannot be read: {error}"));
        let mut count = WitnessCount::default();
        (count.least_lost, count.lost) = self.lost().map_err(broken)?;
        let names: Vec<_> = self.places.iter().map(interface_names).collect();
        for (key, value) in self.counts.entries().map_err(broken)? {
            let Some((kind, drop)) = self.decode(&key, &value, &names) else { continue };
            if counted_before(&drop.reason, drop.location.as_deref()) {
                continue;
            }
            let sums = match kind {
                KIND_UNPARSED => &mut count.unparsed_details,
                KIND_BACK => &mut count.back,
                _ => &mut count.details,
            };
            add(sums, drop);
        }
        for drops in [&mut count.details, &mut count.back, &mut count.unparsed_details] {
            drops.sort_by(|a, b| place(a).cmp(&place(b)));
        }
        count.unparsed = count.unparsed_details.iter().map(|drop| drop.frames).sum();
        Ok(count)
    }

    /// Events that the program did not count: the least and the most that they may be. All events of the host and those that the program saw are
    /// read one after the other, while others drop frames.
    fn lost(&self) -> io::Result<(u64, u64)> {
        let seen_first = self.own_count(LOST_EVENTS)?;
        let all = self.all.as_ref().map(EventCount::read).transpose()?;
        let seen_last = self.own_count(LOST_EVENTS)?;
        let not_run = bpf::recursion_misses(self.program.as_fd())?.unwrap_or(0);
        let no_room = self.own_count(LOST_NO_ROOM)?;
        // Not shown contains not run, where all events are known.
        let not_shown = |seen: u64| no_room + not_run.max(all.map_or(0, |all| all.saturating_sub(seen)));
        Ok((not_shown(seen_last), not_shown(seen_first.saturating_sub(self.seen_alone))))
    }

    /// One of the program's own counts, over all CPUs.
    fn own_count(&self, which: i32) -> io::Result<u64> {
        let values = self.lost.lookup(&which.to_ne_bytes())?.unwrap_or_default();
        Ok(values.chunks_exact(8).filter_map(|value| u64_at(value, 0)).sum())
    }

    fn decode(
        &self,
        key: &[u8],
        value: &[u8],
        names: &[BTreeMap<u32, String>],
    ) -> Option<(u32, WitnessDrop)> {
        let (inode, index) = (u32_at(key, 4)?, u32_at(key, 8)?);
        let node = self.places.iter().position(|place| place.inode == inode)?;
        let sum =
            |offset: usize| value.chunks_exact(VALUE_BYTES as usize).filter_map(|v| u64_at(v, offset)).sum();
        let interface = names[node].get(&index).cloned();
        let drop = WitnessDrop {
            reason: self.layout.reason(u32_at(key, 0)?),
            node: self.places[node].name.clone(),
            interface: interface.or_else(|| (index != 0).then(|| format!("interface {index}"))),
            location: symbols::running().function(u64_at(key, 16)?).map(str::to_owned),
            frames: sum(0),
            skbs: sum(8),
        };
        // An entry that was just made and not yet added to has counted nothing.
        (drop.skbs > 0).then_some((u32_at(key, 12)?, drop))
    }
}

/// Buffers that are freed as parts of one that was counted, or whose parts were counted: the list behind a merged
/// buffer, and a super-frame that tbf cut up and lost whole (Linux 6.18; `tbf_segment` where it is not inlined).
pub(super) fn counted_before(reason: &str, function: Option<&str>) -> bool {
    match function {
        Some("skb_release_data") => true,
        Some("tbf_enqueue" | "tbf_segment") => reason == "NOT_SPECIFIED",
        _ => false,
    }
}

/// Several calls in one function are one place.
fn add(sums: &mut Vec<WitnessDrop>, drop: WitnessDrop) {
    match sums.iter_mut().find(|sum| place(sum) == place(&drop)) {
        Some(sum) => {
            sum.frames += drop.frames;
            sum.skbs += drop.skbs;
        }
        None => sums.push(drop),
    }
}

fn place_of((name, namespace): &(String, BorrowedFd<'_>)) -> io::Result<Place> {
    let inode = netns::inode(*namespace)? as u32;
    let mut netlink = Netlink::open();
    netns::within(*namespace, || netlink.prepare(Family::Route))??;
    Ok(Place { inode, name: name.clone(), netlink: Mutex::new(netlink) })
}

/// Interface names of a node now; empty if they cannot be read, numbers then stand for names.
fn interface_names(place: &Place) -> BTreeMap<u32, String> {
    let Ok(mut netlink) = place.netlink.lock() else { return BTreeMap::new() };
    let links = netlink.dump(&links::DUMP, links::parse).unwrap_or_default();
    links.into_iter().map(|link| (link.index, link.name)).collect()
}

pub(super) fn layout() -> Result<&'static Layout, String> {
    static LAYOUT: OnceLock<Result<Layout, String>> = OnceLock::new();
    let found = LAYOUT.get_or_init(|| {
        let blob = std::fs::read("/sys/kernel/btf/vmlinux").map_err(|error| {
            format!("the kernel's own types cannot be read (/sys/kernel/btf/vmlinux: {error})")
        })?;
        let layout = Layout::find(&blob)?;
        if layout.fits() {
            Ok(layout)
        } else {
            Err("struct sk_buff of this kernel is spread too wide".into())
        }
    });
    found.as_ref().map_err(Clone::clone)
}

pub(super) fn unavailable(why: impl Into<String>) -> record::Witness {
    record::Witness::absent(WitnessStatus::Unavailable, why)
}

pub(super) fn refused(call: &str, error: &io::Error) -> record::Witness {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => record::Witness::absent(
            WitnessStatus::NotPermitted,
            format!("{call}: {error}; it needs root on the host (CAP_BPF and CAP_PERFMON)"),
        ),
        Some(libc::ENOSYS) => record::Witness::absent(
            WitnessStatus::NotPermitted,
            format!("{call}: this kernel has no BPF ({error})"),
        ),
        _ => unavailable(format!("{call}: {error}")),
    }
}

pub(super) fn rejection(rejected: &bpf::Rejected) -> record::Witness {
    let absent = refused("bpf(BPF_PROG_LOAD)", &rejected.error);
    let last = rejected.log.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed"));
    match last {
        Some(line) => record::Witness { why: format!("{}; the verifier says: {line}", absent.why), ..absent },
        None => absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drop(reason: &str, location: &str, frames: u64, skbs: u64) -> WitnessDrop {
        WitnessDrop {
            reason: reason.into(),
            node: "a".into(),
            interface: Some("eth0".into()),
            location: Some(location.into()),
            frames,
            skbs,
        }
    }

    #[test]
    fn the_difference_has_only_what_grew() {
        let before = WitnessCount {
            details: vec![drop("A", "f", 3, 2), drop("B", "g", 1, 1)],
            lost: 2,
            least_lost: 1,
            ..Default::default()
        };
        let now = WitnessCount {
            details: vec![drop("A", "f", 10, 4), drop("B", "g", 1, 1), drop("A", "h", 5, 5)],
            lost: 4,
            ..Default::default()
        };
        let grown = now.since(&before).unwrap();
        assert_eq!(grown.details, [drop("A", "f", 7, 2), drop("A", "h", 5, 5)]);
        assert_eq!((grown.lost, grown.frames("A"), grown.frames("B")), (3, 12, 0));
        assert_eq!(grown.by_reason(), [NamedCount { name: "A".into(), count: 12 }]);
        assert_eq!(before.since(&now), None, "it ran backwards");
    }

    #[test]
    fn parts_of_a_counted_buffer_are_not_counted_again() {
        assert!(counted_before("NOT_SPECIFIED", Some("skb_release_data")));
        assert!(counted_before("NOT_SPECIFIED", Some("tbf_enqueue")));
        assert!(!counted_before("QDISC_DROP", Some("tbf_enqueue")));
        assert!(!counted_before("NOT_SPECIFIED", None));
    }

    #[test]
    fn a_refusal_is_never_a_pass() {
        let absent = refused("bpf(BPF_MAP_CREATE)", &io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(absent.status, WitnessStatus::NotPermitted);
        assert!(!absent.counted() && absent.why.contains("CAP_BPF"), "{}", absent.why);
        let broken = refused("bpf(BPF_PROG_LOAD)", &io::Error::from_raw_os_error(libc::EINVAL));
        assert_eq!(broken.status, WitnessStatus::Unavailable);
    }
}
