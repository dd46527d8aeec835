//! Queues of an interface: classes of the kernel's HTB (hierarchical token bucket), made, read and taken away.
//!
//! **What.** [`read`] finds the HTB at the root of an interface: its leaf classes with rates and counters, whoever made them.
//! [`install`] makes one, with a class for each [`Wanted`] queue; what would undo it is in an undo journal by then
//! ([`crate::journal`]). A socket whose frames are to go into a class has the class's handle as its priority (`SO_PRIORITY`;
//! `htb_classify` of net/sched/sch_htb.c looks at it first).
//!
//! **Why these numbers.** Queue N is the class whose minor number is N, so that `tc class show` and OpenFlow mean the same.
//! The major number 706c is ours alone: an undo deletes a root with exactly this handle and nothing else, and the kernel
//! itself refuses to put it where another one is.
//!
//! **Price.** An HTB takes a lock for every frame of the interface, those of others included. Frames without a queue go into
//! a class of their own, which gets what the guaranteed rates leave over.

use std::collections::BTreeMap;
use std::io;

use netlink_bindings::tc;
use netlink_bindings::traits::NetlinkRequest;
use record::snapshot::TC_ROOT;
use record::{Problem, Result};

use super::row::{Row, for_a_while};
use super::{Change, Knob, Place, Wish, change, put_back_from};
use crate::journal::Journals;
use crate::netlink::{Answer, Dump, Family, Netlink, Refusal};
use crate::observe::qdiscs;

/// The handle of the roots that are made here.
pub const HANDLE: u32 = 0x706c_0000;
/// The class above all others, and the one of frames without a queue.
const WHOLE: u32 = HANDLE | 0xffff;
const OTHERS: u32 = HANDLE | 0xfffe;
/// The largest number of a queue.
pub const HIGHEST: u16 = 0xfffd;

/// `RTM_GETTCLASS` of include/uapi/linux/rtnetlink.h.
const GET_CLASS: u16 = 42;
/// A leaf is at level 0.
const LEAF: u32 = 0;

/// A tick of the kernel's packet scheduler in nanoseconds (include/net/pkt_sched.h, `PSCHED_SHIFT` 6).
const TICK_NS: u128 = 64;
/// What a class may send at once: 4 ms of its rate and one frame.
const BURST_PARTS: u64 = 250;
const BURST_LEAST: u64 = 1600;
/// What a class that borrows sends in its turn, in bytes; the kernel's own guess is too large for fast ones.
const QUANTUM: u32 = 15_140;

/// A queue that is to be made. Rates are bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Its number, 1 to [`HIGHEST`].
    pub id: u16,
    /// What it gets in any case.
    pub min_bps: Option<u64>,
    /// What it never exceeds.
    pub max_bps: Option<u64>,
}

/// A class as the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Class {
    /// Its handle: what a frame's priority must be.
    pub handle: u32,
    /// The class or qdisc above it.
    pub parent: u32,
    /// 0 for a leaf.
    pub level: u32,
    /// Its rate in bits per second.
    pub min_bps: u64,
    /// Its ceiling in bits per second.
    pub max_bps: u64,
    /// Frames that left.
    pub frames: u64,
    /// Bytes that left.
    pub bytes: u64,
    /// Frames that found it full.
    pub dropped: u64,
}

impl Class {
    /// The number of the queue that it is.
    pub fn id(&self) -> u16 {
        self.handle as u16
    }
}

/// The HTB of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Htb {
    /// Its handle.
    pub handle: u32,
    /// The ceiling of the class above all others, if there is exactly one: what the interface is taken to carry.
    pub speed_bps: Option<u64>,
    /// The leaves that frames can be put into, without the one that was made here for frames without a queue.
    pub queues: Vec<Class>,
}

/// The root qdisc of an interface: kind and handle.
type Root = Option<(String, u32)>;

/// The HTB at the root of an interface of the namespace of the calling thread; none when there is another qdisc.
///
/// # Errors
/// What the kernel answers.
pub fn read(index: u32) -> io::Result<Option<Htb>> {
    let mut netlink = Netlink::open();
    let root = root(&mut netlink, index)?.filter(|(kind, _)| kind == "htb");
    let Some((_, handle)) = root else { return Ok(None) };
    let header = at(index, 0, 0);
    let dump = Dump { family: Family::Route, kind: GET_CLASS, body: header.as_slice() };
    let classes = netlink.dump(&dump, |message| parse_class(message, index))?;
    Ok(Some(htb(handle, &classes)))
}

fn root(netlink: &mut Netlink, index: u32) -> io::Result<Root> {
    let header = at(index, 0, 0);
    let dump = Dump { body: header.as_slice(), ..qdiscs::DUMP };
    Ok(netlink.dump(&dump, |message| parse_root(message, index))?.pop())
}

/// What a message about a qdisc or class begins with.
fn at(index: u32, handle: u32, parent: u32) -> tc::Tcmsg {
    tc::Tcmsg { ifindex: index as i32, handle, parent, ..Default::default() }
}

/// Kind and handle, if it is the root of that interface.
fn parse_root(message: &[u8], index: u32) -> Root {
    let (header, attributes) = tc::OpGetqdiscDump::decode_reply(message);
    let is_root = header.ifindex == index as i32 && header.parent == TC_ROOT;
    let kind = attributes.get_kind().ok().filter(|_| is_root)?;
    Some((kind.to_string_lossy().into_owned(), header.handle))
}

/// A class of an HTB of that interface.
fn parse_class(message: &[u8], index: u32) -> Option<Class> {
    let (header, attributes) = tc::OpGettclassDo::decode_reply(message);
    let Ok(tc::OptionsMsg::Htb(options)) = attributes.get_options() else { return None };
    let parameters = options.get_parms().unwrap_or_default();
    // Rates of 4 GiB/s and more do not fit into the parameters.
    let rate = options.get_rate64().unwrap_or(parameters.rate.rate.into());
    let ceil = options.get_ceil64().unwrap_or(parameters.ceil.rate.into());
    let counted = attributes.get_stats2().ok();
    let counted = counted.as_ref();
    let basic = counted.and_then(|counted| counted.get_basic().ok()).unwrap_or_default();
    let wide = counted.and_then(|counted| counted.get_pkt64().ok());
    let queue = counted.and_then(|counted| counted.get_queue().ok()).unwrap_or_default();
    let class = Class {
        handle: header.handle,
        parent: header.parent,
        level: parameters.level,
        min_bps: rate.saturating_mul(8),
        max_bps: ceil.saturating_mul(8),
        frames: wide.unwrap_or(basic.packets.into()),
        bytes: basic.bytes,
        dropped: queue.drops.into(),
    };
    (header.ifindex == index as i32).then_some(class)
}

/// What the classes of a root are.
fn htb(handle: u32, classes: &[Class]) -> Htb {
    let is_inner = |class: &Class| class.handle == OTHERS || class.level != LEAF;
    let mut queues: Vec<Class> = classes.iter().filter(|class| !is_inner(class)).copied().collect();
    queues.sort_by_key(|class| class.handle);
    let mut tops = classes.iter().filter(|class| class.parent == TC_ROOT || class.parent == handle);
    let speed_bps = match (tops.next(), tops.next()) {
        // A single leaf says what it may use, not what the interface carries.
        (Some(top), None) if top.level != LEAF => Some(top.max_bps),
        _ => None,
    };
    Htb { handle, speed_bps, queues }
}

/// The queues of one interface of the namespace of the calling thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePlan {
    /// Its name.
    pub interface: String,
    /// Its number.
    pub index: u32,
    /// What it carries, in bits per second.
    pub speed_bps: u64,
    /// What is to be made.
    pub queues: Vec<Wanted>,
}

impl QueuePlan {
    /// What all queues together get in any case.
    pub fn guaranteed_bps(&self) -> u64 {
        self.queues.iter().filter_map(|queue| queue.min_bps).fold(0, u64::saturating_add)
    }
}

impl QueuePlan {
    fn wish(&self) -> Result<Wish<Ours<'_>>> {
        let at = Place::here(self.index, &self.interface)
            .map_err(|e| Problem::host(format!("cannot tell the network namespace: {e}")))?;
        let mut knob = Ours { index: self.index, plan: Some(self) };
        let was = knob.read().map_err(|refusal| refused(&self.interface, &refusal))?;
        Ok(Wish { at, knob, was, wanted: true })
    }
}

/// Makes queues, on all interfaces or on none; `name` is the journal's.
///
/// # Errors
/// Input: an interface has a qdisc already that somebody made. Host: the kernel has no HTB, or this user may not.
pub fn install(journals: &Journals, name: &str, plans: &[QueuePlan]) -> Result<Change> {
    let mut wishes: Vec<_> = plans.iter().map(QueuePlan::wish).collect::<Result<_>>()?;
    let journal = journals
        .begin(name, false)?
        .ok_or_else(|| Problem::host("this process is making its queues already").at(name.to_owned()))?;
    let made = change(journal, &KNOB, &mut wishes, |wish, refusal| refused(&wish.at.name, refusal));
    made.map(|(change, _)| change)
}

fn refused(interface: &str, refusal: &Refusal) -> Problem {
    let problem = match refusal.errno {
        Some(libc::EEXIST) => Problem::input("the interface has a qdisc that somebody made")
            .help("make it an HTB with a class for each queue, or take it away (tc qdisc del dev IF root)"),
        Some(libc::EPERM) => {
            Problem::host("queues may not be made").help("it needs CAP_NET_ADMIN (run as root)")
        }
        Some(libc::ENOENT) => Problem::host("this kernel has no HTB").help("modprobe sch_htb"),
        _ => Problem::host(format!("queues cannot be made: {refusal}")),
    };
    problem.at(interface.to_owned())
}

fn make(plan: &QueuePlan) -> Answer {
    let mut netlink = Netlink::open();
    let create = || tc::Request::new().set_create().set_excl();
    let mut request = create().op_newqdisc_do(&at(plan.index, HANDLE, TC_ROOT));
    // Version 3 is the only one that the kernel takes (`HTB_VER`).
    let init = tc::TcHtbGlob { version: 3, rate2quantum: 10, defcls: OTHERS & 0xffff, ..Default::default() };
    request.encode().nested_options_htb().push_init(init);
    netlink.acknowledged(&request)?;
    let speed = plan.speed_bps;
    let guaranteed = plan.guaranteed_bps();
    // A rate of nothing cannot be said: a thousandth of the whole.
    let least = (speed / 1000).max(8000);
    let others = speed.saturating_sub(guaranteed).max(least);
    let queue = |queue: &Wanted| {
        let max = queue.max_bps.unwrap_or(speed);
        (HANDLE | u32::from(queue.id), WHOLE, queue.min_bps.unwrap_or(least).min(max), max)
    };
    let first = [(WHOLE, HANDLE, speed, speed), (OTHERS, WHOLE, others, speed)];
    for (handle, parent, rate, ceil) in first.into_iter().chain(plan.queues.iter().map(queue)) {
        let mut request = create().op_newtclass_do(&at(plan.index, handle, parent));
        request
            .encode()
            .nested_options_htb()
            .push_parms(parameters(rate / 8, ceil / 8))
            .push_rate64(rate / 8)
            .push_ceil64(ceil / 8);
        netlink.acknowledged(&request)?;
    }
    Ok(())
}

/// Rates in bytes per second, as the kernel wants them.
fn parameters(rate: u64, ceil: u64) -> tc::TcHtbOpt {
    let ticks = |rate: u64| {
        let burst = rate / BURST_PARTS + BURST_LEAST;
        let ns = u128::from(burst) * 1_000_000_000 / u128::from(rate.max(1));
        u32::try_from(ns / TICK_NS).unwrap_or(u32::MAX)
    };
    let mut parameters =
        tc::TcHtbOpt { buffer: ticks(rate), cbuffer: ticks(ceil), quantum: QUANTUM, ..Default::default() };
    for (spec, rate) in [(&mut parameters.rate, rate), (&mut parameters.ceil, ceil)] {
        // TC_LINKLAYER_ETHERNET: no rate table is needed.
        spec.linklayer = 1;
        spec.rate = u32::try_from(rate).unwrap_or(u32::MAX);
    }
    parameters
}

/// Whether the HTB at the root of an interface is of our making.
pub(super) const KNOB: Row = for_a_while(
    "queues",
    "the queues of a switch's port (an HTB)",
    "cannot take away the queues of IF",
    |at, was| put_back_from(Ours { index: at.index, plan: None }, was),
);

struct Ours<'a> {
    index: u32,
    /// What is to be made.
    plan: Option<&'a QueuePlan>,
}

impl Knob for Ours<'_> {
    type Value = bool;

    fn read(&mut self) -> Answer<bool> {
        let root = root(&mut Netlink::open(), self.index)?;
        Ok(root.is_some_and(|(_, handle)| handle == HANDLE))
    }

    fn write(&mut self, ours: bool) -> Answer {
        match self.plan {
            Some(plan) if ours => make(plan),
            _ => take_away(self.index),
        }
    }
}

/// Where another qdisc is now, nothing is done.
fn take_away(index: u32) -> Answer {
    let header = at(index, HANDLE, TC_ROOT);
    // The kernel compares the handle: `qdisc_get_by_parent` of tc_get_qdisc answers EINVAL or ENOENT for another one.
    match Netlink::open().acknowledged(&tc::Request::new().op_delqdisc_do(&header)) {
        Err(refusal) if !matches!(refusal.errno, Some(libc::EINVAL | libc::ENOENT | libc::ENODEV)) => {
            Err(refusal)
        }
        _ => Ok(()),
    }
}

/// The counters of the queues by number, for whoever asks again and again.
///
/// # Errors
/// As [`read`].
pub fn counters(index: u32) -> io::Result<BTreeMap<u16, Class>> {
    let found = read(index)?;
    Ok(found.into_iter().flat_map(|htb| htb.queues).map(|class| (class.id(), class)).collect())
}

#[cfg(test)]
#[path = "queues_tests.rs"]
mod tests;
