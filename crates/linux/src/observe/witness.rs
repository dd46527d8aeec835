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
    KEY_BYTES, KIND_BACK, KIND_UNPARSED, LOST_EVENTS, LOST_NO_ROOM, Layout, MapFds, Scope, VALUE_BYTES,
    assemble,
};
use super::flow::Flow;
use super::{btf, links, symbols};
use crate::netlink::{Family, Netlink, u32_at, u64_at};
use crate::sys::perf::EventCount;
use crate::sys::{bpf, netns};

/// Different reasons at different places that fit; a real test has a handful.
const ENTRIES: u32 = 1024;
/// How often two counts are read at most, until nothing moved in between.
const READINGS: usize = 4;
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
            // Both are bounds: an event may be counted by one of the two ways a moment before the other one does.
            lost: self.lost.saturating_sub(before.least_lost),
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
    /// Which no namespace had before it, unlike the number; 0: not known.
    cookie: u64,
    name: String,
    netlink: Mutex<Netlink>,
}

impl Place {
    /// The key is of this namespace, and not of one that had its number before.
    fn is_of(&self, key: &[u8]) -> bool {
        let is_same = |cookie: u64| cookie == self.cookie || cookie == 0 || self.cookie == 0;
        u32_at(key, 4) == Some(self.inode) && u64_at(key, 24).is_some_and(is_same)
    }
}

/// A running count.
#[derive(Debug)]
pub struct Witness {
    /// The program at the event; there until the end.
    link: Option<OwnedFd>,
    program: OwnedFd,
    /// All events of the host, counted without a program; none where that is not permitted.
    all: Option<EventCount>,
    /// What both had counted apart when both did.
    apart: Apart,
    counts: bpf::Map,
    lost: bpf::Map,
    places: Vec<Place>,
    /// What was counted in namespaces that were left, each with its kind.
    left: Vec<(u32, WitnessDrop)>,
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
        if nodes.is_empty() || nodes.len() > MOST {
            return Err(unavailable(format!("it takes 1 to {MOST} nodes")));
        }
        let inodes = nodes.iter().map(|(_, namespace)| netns::inode(*namespace).map(|inode| inode as u32));
        let inodes = inodes.collect::<io::Result<Vec<_>>>().map_err(|error| not_entered(&error))?;
        Self::begin(nodes, Scope::These(&inodes), flow)
    }

    /// The same, of which nodes may be added ([`Witness::enter`]) and left: the drops of all namespaces are counted, and those of the nodes told.
    ///
    /// # Errors
    /// As [`Witness::start`].
    pub fn start_for_all(
        nodes: &[(String, BorrowedFd<'_>)],
        flow: &Flow,
    ) -> Result<Witness, record::Witness> {
        Self::begin(nodes, Scope::Any, flow)
    }

    fn begin(
        nodes: &[(String, BorrowedFd<'_>)],
        scope: Scope<'_>,
        flow: &Flow,
    ) -> Result<Witness, record::Witness> {
        let is_known = !flow.ports.is_empty() || flow.ends.is_some();
        if !is_known || flow.ports.len() > MOST {
            return Err(unavailable(format!("it takes 1 to {MOST} ports")));
        }
        let counts = bpf::Map::create(bpf::MAP_PERCPU_HASH, KEY_BYTES, VALUE_BYTES, ENTRIES, "pathlab_drops")
            .map_err(|error| refused("bpf(BPF_MAP_CREATE)", &error))?;
        let lost = bpf::Map::create(bpf::MAP_PERCPU_ARRAY, 4, 8, 2, "pathlab_lost")
            .map_err(|error| refused("bpf(BPF_MAP_CREATE)", &error))?;
        let layout = layout().map_err(unavailable)?;
        let places = nodes.iter().map(place_of).collect::<io::Result<Vec<_>>>();
        let places = places.map_err(|error| not_entered(&error))?;
        let maps = MapFds { counts: counts.raw_fd(), lost: lost.raw_fd() };
        let code = assemble(layout, scope, flow, maps)
            .map_err(|error| unavailable(format!("the program cannot be assembled: {error:?}")))?;
        let program = bpf::load_program(bpf::PROG_RAW_TRACEPOINT, &code, c"Dual MIT/GPL", "pathlab_drops")
            .map_err(|rejected| rejection(&rejected))?;
        let link = bpf::open_raw_tracepoint(c"kfree_skb", program.as_fd())
            .map_err(|error| refused("bpf(BPF_RAW_TRACEPOINT_OPEN)", &error))?;
        let all = EventCount::start("events/skb/kfree_skb").ok();
        let apart = Apart::default();
        let mut witness =
            Witness { link: Some(link), program, all, apart, counts, lost, places, left: vec![], layout };
        witness.apart = witness.apart().map_err(|error| refused("bpf(BPF_MAP_LOOKUP_ELEM)", &error))?;
        Ok(witness)
    }

    /// Tells the drops of one more node, also those since the start ([`Witness::start_for_all`]).
    ///
    /// # Errors
    /// The system's, when its namespace cannot be entered.
    pub fn enter(&mut self, node: &str, namespace: BorrowedFd<'_>) -> io::Result<()> {
        self.places.push(place_of(&(node.to_owned(), namespace))?);
        Ok(())
    }

    /// Lets go of the namespace of a node. Its drops are told as they are now: its number may soon be that of another namespace.
    ///
    /// # Errors
    /// As [`Witness::read`].
    pub fn leave(&mut self, node: &str) -> record::Result<()> {
        let Some(index) = self.places.iter().position(|place| place.name == node) else { return Ok(()) };
        for (key, value) in self.counts.entries().map_err(|error| broken(&error))? {
            if self.places[index].is_of(&key) {
                let names: Vec<_> = self.places.iter().map(interface_names).collect();
                self.left.extend(self.decode(&key, &value, &names));
                // Nobody sends there any more.
                self.counts.delete(&key).map_err(|error| broken(&error))?;
            }
        }
        self.places.remove(index);
        Ok(())
    }

    /// What was counted since the start. Counting goes on.
    ///
    /// # Errors
    /// When the counts cannot be read; that is a problem of the host.
    pub fn read(&self) -> record::Result<WitnessCount> {
        let mut count = WitnessCount::default();
        (count.least_lost, count.lost) = self.lost().map_err(|error| broken(&error))?;
        let names: Vec<_> = self.places.iter().map(interface_names).collect();
        let entries = self.counts.entries().map_err(|error| broken(&error))?;
        let here = entries.iter().filter_map(|(key, value)| self.decode(key, value, &names));
        for (kind, drop) in self.left.iter().cloned().chain(here) {
            if is_no_loss(&drop.reason, drop.location.as_deref()) {
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

    /// Events that the program did not count: the least and the most that they may be.
    fn lost(&self) -> io::Result<(u64, u64)> {
        let (least, most) = self.apart()?.since(self.apart);
        let not_run = bpf::recursion_misses(self.program.as_fd())?.unwrap_or(0);
        let no_room = self.own_count(LOST_NO_ROOM)?;
        // Not shown contains not run, where all events are known.
        Ok((no_room + not_run.max(least), no_room + not_run.max(most)))
    }

    /// By how many all events of the host are ahead of those that the program saw. Both are read one after the other, while others drop
    /// frames, and whoever reads may be held up in between: of some readings the one counts in which least happened.
    fn apart(&self) -> io::Result<Apart> {
        let Some(all) = &self.all else { return Ok(Apart::default()) };
        let mut closest: Option<Apart> = None;
        for _ in 0..READINGS {
            let seen_first = self.own_count(LOST_EVENTS)?;
            let all = all.read()?;
            let reading = Apart::of(all, [seen_first, self.own_count(LOST_EVENTS)?]);
            closest = Some(closest.map_or(reading, |closest| closest.closer(reading)));
            if reading.is_exact() {
                break;
            }
        }
        Ok(closest.unwrap_or_default())
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
        let index = u32_at(key, 8)?;
        let node = self.places.iter().position(|place| place.is_of(key))?;
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

/// How far one count of events is ahead of another: the least and the most. It is negative while the other has more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Apart {
    least: i64,
    most: i64,
}

impl Apart {
    /// The other count was read before and after the one.
    fn of(one: u64, [first, last]: [u64; 2]) -> Apart {
        let ahead = |other: u64| (one as i64).saturating_sub(other as i64);
        Apart { least: ahead(last), most: ahead(first) }
    }

    fn is_exact(self) -> bool {
        self.least == self.most
    }

    fn closer(self, other: Apart) -> Apart {
        let width = |one: Apart| one.most.saturating_sub(one.least);
        if width(other) < width(self) { other } else { self }
    }

    /// By how much further it is ahead than it was: the least and the most.
    fn since(self, before: Apart) -> (u64, u64) {
        let grown = |now: i64, then: i64| now.saturating_sub(then).max(0) as u64;
        (grown(self.least, before.most), grown(self.most, before.least))
    }
}

/// Buffers that are freed as parts of one that was counted, or whose parts were counted: the list behind a merged
/// buffer, and a super-frame that tbf cut up and lost whole (Linux 6.18; `tbf_segment` where it is not inlined). And those that
/// never were on a path: what a program is tried on, and what the kernel tries with each new NAPI instance (`napi_get_frags_check`, which
/// is inlined).
pub(super) fn is_no_loss(reason: &str, function: Option<&str>) -> bool {
    match function {
        Some("skb_release_data" | "bpf_prog_test_run_skb") => true,
        Some("netif_napi_add_weight_locked" | "netif_napi_add_weight") => true,
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
    let cookie = netns::cookie(*namespace).unwrap_or(0);
    Ok(Place { inode, cookie, name: name.clone(), netlink: Mutex::new(netlink) })
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
        let layout = Layout::find(btf::of_kernel()?)?;
        if layout.fits() {
            Ok(layout)
        } else {
            Err("struct sk_buff of this kernel is spread too wide".into())
        }
    });
    found.as_ref().map_err(Clone::clone)
}

fn broken(error: &io::Error) -> record::Problem {
    record::Problem::host(format!("the drop witness cannot be read: {error}"))
}

fn not_entered(error: &io::Error) -> record::Witness {
    unavailable(format!("a namespace cannot be entered: {error}"))
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
    fn a_number_that_another_namespace_had_before_is_told_apart() {
        let place =
            |cookie| Place { inode: 7, cookie, name: "a".into(), netlink: Mutex::new(Netlink::open()) };
        let key = |inode: u32, cookie: u64| {
            [&[0; 4][..], &inode.to_ne_bytes(), &[0; 16], &cookie.to_ne_bytes()].concat()
        };
        assert!(
            place(41).is_of(&key(7, 41)) && !place(41).is_of(&key(7, 40)) && !place(41).is_of(&key(8, 41))
        );
        assert!(place(0).is_of(&key(7, 40)) && place(41).is_of(&key(7, 0)), "a kernel that tells no cookies");
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
    fn what_others_dropped_between_two_readings_is_not_taken_for_lost() {
        // The program saw 50 events alone; then nothing was lost.
        let begun = Apart::of(0, [50, 50]);
        assert!(begun.is_exact());
        assert_eq!(Apart::of(1000, [1050, 1050]).since(begun), (0, 0));
        // Held up between the readings: 3,000 of others, or seven that the program did not see.
        let held_up = Apart::of(4007, [1050, 4050]);
        assert_eq!(held_up.since(begun), (7, 3007));
        let close = Apart::of(4010, [4052, 4054]);
        assert_eq!(close.since(begun), (6, 8));
        assert_eq!((held_up.closer(close), close.closer(held_up)), (close, close));
        // Held up at the beginning.
        assert_eq!(Apart::of(900, [900, 900]).since(Apart::of(30, [10, 40])), (0, 10));
    }

    #[test]
    fn parts_of_a_counted_buffer_and_what_programs_are_tried_on_are_no_losses() {
        assert!(is_no_loss("NOT_SPECIFIED", Some("skb_release_data")));
        assert!(is_no_loss("NOT_SPECIFIED", Some("tbf_enqueue")));
        assert!(is_no_loss("NOT_SPECIFIED", Some("bpf_prog_test_run_skb")));
        assert!(is_no_loss("NOT_SPECIFIED", Some("netif_napi_add_weight_locked")));
        assert!(!is_no_loss("QDISC_DROP", Some("tbf_enqueue")));
        assert!(!is_no_loss("NOT_SPECIFIED", None));
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
