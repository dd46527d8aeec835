//! Interrupts, polls and buffers of one interface, counted where the kernel tells of them.
//!
//! **What.** [`PollCounters`] has a program at each of nine raw tracepoints ([`program`]) and reads what they counted. **Why.** No
//! driver tells how many frames an interrupt or a poll brought; the kernel's own events do, for all drivers alike.
//!
//! **What it cannot see.** Frames that never become a buffer (XDP that drops or redirects, AF_XDP) are in the polls' sums but not
//! among the received; frames sent around `dev_hard_start_xmit` (AF_XDP, `PACKET_QDISC_BYPASS`) are not among the sent. What a
//! program was not shown is counted beside it and is part of the result.
//!
//! **Price.** The kernel measures how long the first [`ENOUGH_RUNS`] runs take ([`crate::sys::bpf::measure_programs`]), and that is part
//! of the result; an empty program beside them tells what the measurement itself takes; `docs/llstat.md` has the cost for a whole path. Needs `CAP_BPF`, `CAP_PERFMON`, and for the measurement `CAP_SYS_ADMIN`. Nothing is pinned: all ends with the process.

mod layout;
pub mod program;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ::bpf::{Assembler, Op, Reg};
use record::buckets::{BUCKETS, Buckets};
use record::llstat::{PollCounts, ProgramCount};
use record::snapshot::Counters;

use self::layout::{Cell, Layout, Measure, SLOT_FIRST, Slot, Tracepoint};
use self::program::{MapFds, Target, assemble};
use super::btf;
use super::tracepoints::{attach, refused};
use crate::netlink::u64_at;
use crate::sys::bpf;
use crate::sys::perf::EventCount;

pub use self::layout::{SLOT_OTHER, SLOT_TRANSMIT};

/// The counts of a cell that only grow, by name.
const WORDS: [(&str, Cell); 14] = [
    ("net_rx", Cell::NetRx),
    ("net_tx", Cell::NetTx),
    ("net_rx_ns", Cell::NetRxNs),
    ("budget_ends", Cell::BudgetEnds),
    ("backlog_polls", Cell::BacklogPolls),
    ("backlog_frames", Cell::BacklogFrames),
    ("received", Cell::Received),
    ("received_bytes", Cell::ReceivedBytes),
    ("sent", Cell::Sent),
    ("sent_bytes", Cell::SentBytes),
    ("busy", Cell::Busy),
    ("refused", Cell::Refused),
    ("freed", Cell::Freed),
    ("freed_in_polls", Cell::FreedInPolls),
];

/// The counts of a slot that only grow, by name.
const SLOT_WORDS: [(&str, Slot); 8] = [
    ("irqs", Slot::Irqs),
    ("polls", Slot::Polls),
    ("frames", Slot::Frames),
    ("full", Slot::Full),
    ("empty", Slot::Empty),
    ("poll_ns", Slot::PollNs),
    ("timed_polls", Slot::TimedPolls),
    ("timed_frames", Slot::TimedFrames),
];

/// So many runs are measured, and no more: the measurement costs more than most programs.
const ENOUGH_RUNS: u64 = 20_000;

/// What is to be counted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The interface's number.
    pub interface: u32,
    /// The number of its namespace.
    pub namespace: u32,
    /// NAPI instances by their numbers; the first gets the first slot.
    pub napis: &'a [u32],
    /// Interrupts with the slots that they belong to.
    pub irqs: &'a [(u32, u32)],
}

/// The slot of the NAPI instance of that place in [`Wanted::napis`].
pub fn slot_of(place: usize) -> u32 {
    SLOT_FIRST + place as u32
}

/// A running program.
#[derive(Debug)]
struct Running {
    event: Tracepoint,
    // The order of fields is the order of release: first the event, then the program.
    _link: OwnedFd,
    program: OwnedFd,
    /// The event's own count; none where that is not permitted.
    all: Option<EventCount>,
}

/// Running programs and what they count.
#[derive(Debug)]
pub struct PollCounters {
    running: Vec<Running>,
    maps: Maps,
    slots: u32,
    /// While it is open the kernel measures the programs.
    measuring: Option<OwnedFd>,
    /// Runs beside them while they are measured.
    empty: Option<Empty>,
}

/// A program that does nothing: what the kernel measures of it is the measurement.
#[derive(Debug)]
struct Empty {
    link: Option<OwnedFd>,
    program: OwnedFd,
}

impl Empty {
    /// Runs it at an event that every host has all the time; none where that cannot be.
    fn start() -> Option<Empty> {
        let mut a = Assembler::new();
        a.op(Op::Move, Reg::R0, 0);
        a.exit();
        let code = a.finish().ok()?;
        let program = bpf::load_program(bpf::PROG_RAW_TRACEPOINT, &code, c"Dual MIT/GPL", "pl_empty").ok()?;
        let link = bpf::open_raw_tracepoint(c"softirq_entry", program.as_fd()).ok()?;
        Some(Empty { link: Some(link), program })
    }
}

#[derive(Debug)]
struct Maps {
    cell: bpf::Map,
    slots: bpf::Map,
    buckets: bpf::Map,
    napis: bpf::Map,
    irqs: bpf::Map,
}

impl Maps {
    fn create(slots: u32, wanted: &Wanted<'_>) -> io::Result<Maps> {
        let words = |count: usize| count as u32 * 8;
        let buckets = (Measure::ALL.len() * BUCKETS) as u32;
        let table = |entries: usize, name| bpf::Map::create(bpf::MAP_HASH, 4, 4, entries.max(1) as u32, name);
        let maps = Maps {
            cell: bpf::Map::create(bpf::MAP_PERCPU_ARRAY, 4, words(Cell::COUNT), 1, "pathlab_cell")?,
            slots: bpf::Map::create(bpf::MAP_PERCPU_ARRAY, 4, words(Slot::COUNT), slots, "pathlab_slots")?,
            buckets: bpf::Map::create(bpf::MAP_PERCPU_ARRAY, 4, 8, buckets, "pathlab_buckets")?,
            napis: table(wanted.napis.len(), "pathlab_napis")?,
            irqs: table(wanted.irqs.len(), "pathlab_irqs")?,
        };
        for (place, napi) in wanted.napis.iter().enumerate() {
            maps.napis.update(&napi.to_ne_bytes(), &slot_of(place).to_ne_bytes())?;
        }
        for (irq, slot) in wanted.irqs {
            maps.irqs.update(&irq.to_ne_bytes(), &slot.to_ne_bytes())?;
        }
        Ok(maps)
    }

    fn fds(&self) -> MapFds {
        MapFds {
            cell: self.cell.raw_fd(),
            slots: self.slots.raw_fd(),
            buckets: self.buckets.raw_fd(),
            napis: self.napis.raw_fd(),
            irqs: self.irqs.raw_fd(),
        }
    }
}

impl PollCounters {
    /// Begins to count.
    ///
    /// # Errors
    /// The sentence why nothing can be counted here.
    pub fn start(wanted: &Wanted<'_>) -> Result<PollCounters, String> {
        let no_irqs = wanted.irqs.is_empty();
        let is_wanted =
            |event: &Tracepoint| !no_irqs || !matches!(event, Tracepoint::IrqEntry | Tracepoint::IrqExit);
        let mut counters =
            Self::of(wanted, &Tracepoint::ALL.into_iter().filter(is_wanted).collect::<Vec<_>>())?;
        counters.empty = counters.measuring.as_ref().and_then(|_| Empty::start());
        Ok(counters)
    }

    /// Begins to count soft interrupts and why they ended, and of no interface.
    ///
    /// # Errors
    /// The sentence why nothing can be counted here.
    pub fn softirqs() -> Result<PollCounters, String> {
        let nothing = Wanted { interface: 0, namespace: 0, napis: &[], irqs: &[] };
        Self::of(&nothing, &[Tracepoint::Poll, Tracepoint::SoftirqExit, Tracepoint::SoftirqEntry])
    }

    fn of(wanted: &Wanted<'_>, events: &[Tracepoint]) -> Result<PollCounters, String> {
        let slots = slot_of(wanted.napis.len());
        let maps = Maps::create(slots, wanted).map_err(|error| refused("bpf(BPF_MAP_CREATE)", &error))?;
        let layout = Layout::find(btf::of_kernel()?)?;
        let (interface, namespace) = (wanted.interface, wanted.namespace);
        let target = Target { interface, namespace, budget: budget().unwrap_or(i32::MAX), maps: maps.fds() };
        let measuring = bpf::measure_programs().ok();
        let running =
            events.iter().map(|event| run(*event, &layout, &target)).collect::<Result<_, String>>()?;
        Ok(PollCounters { running, maps, slots, measuring, empty: None })
    }

    /// Ends the kernel's measurement of the programs once it has seen enough runs.
    pub fn end_measuring(&mut self) {
        let runs =
            |one: &Running| bpf::run_time(one.program.as_fd()).ok().flatten().map_or(0, |(_, runs)| runs);
        if self.measuring.is_some() && self.running.iter().map(runs).sum::<u64>() >= ENOUGH_RUNS {
            self.measuring = None;
            self.empty.iter_mut().for_each(|empty| empty.link = None);
        }
    }

    /// What was counted since the start. Counting goes on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read(&self) -> io::Result<PollCounts> {
        // What the events count beyond the programs was surely not shown to them: so they are read first.
        let all: Vec<Option<u64>> = self.running.iter().map(|one| one.all.as_ref()?.read().ok()).collect();
        let cell = self.maps.cell.lookup(&0u32.to_ne_bytes())?.unwrap_or_default();
        let cell = summed(&cell, Cell::COUNT);
        let program = |(one, events): (&Running, Option<u64>)| ProgramCount {
            event: one.event.in_tracefs().1.to_owned(),
            runs: word(&cell, Cell::Runs0 as usize + place(one.event)),
            events,
            measured: bpf::run_time(one.program.as_fd()).ok().flatten(),
        };
        Ok(PollCounts {
            programs: self.running.iter().zip(all).map(program).collect(),
            empty: self.empty.as_ref().and_then(|empty| bpf::run_time(empty.program.as_fd()).ok().flatten()),
            words: WORDS.iter().map(|(name, at)| ((*name).to_owned(), word(&cell, *at as usize))).collect(),
            slots: (0..self.slots).map(|slot| self.slot(slot)).collect::<io::Result<_>>()?,
            buckets: self.distributions(&cell)?,
        })
    }

    fn slot(&self, slot: u32) -> io::Result<Counters> {
        let value = self.maps.slots.lookup(&slot.to_ne_bytes())?.unwrap_or_default();
        let words = summed(&value, Slot::COUNT);
        Ok(SLOT_WORDS.iter().map(|(name, at)| ((*name).to_owned(), word(&words, *at as usize))).collect())
    }

    fn distributions(&self, cell: &[u64]) -> io::Result<BTreeMap<String, Buckets>> {
        let mut found: Vec<Buckets> =
            vec![Buckets { counts: vec![0; BUCKETS], sum: 0, summed: 0 }; Measure::ALL.len()];
        for (key, value) in self.maps.buckets.entries()? {
            let key = key.try_into().map_or(u32::MAX, u32::from_ne_bytes) as usize;
            let count = found.get_mut(key / BUCKETS).map(|one| &mut one.counts[key % BUCKETS]);
            if let Some(count) = count {
                *count = summed(&value, 1)[0];
            }
        }
        let named = Measure::ALL.iter().zip(found).enumerate().map(|(number, (measure, mut one))| {
            one.sum = word(cell, Cell::Sum0 as usize + number);
            one.summed = word(cell, Cell::Count0 as usize + number);
            (measure.name().to_owned(), one)
        });
        Ok(named.collect())
    }
}

/// The place of an event among all.
fn place(event: Tracepoint) -> usize {
    Tracepoint::ALL.iter().position(|&one| one == event).unwrap_or(0)
}

/// The words of a per-CPU value, added up over the CPUs.
fn summed(value: &[u8], words: usize) -> Vec<u64> {
    let mut sums = vec![0u64; words];
    for of_cpu in value.chunks_exact(words * 8) {
        for (place, sum) in sums.iter_mut().enumerate() {
            *sum = sum.wrapping_add(u64_at(of_cpu, place * 8).unwrap_or(0));
        }
    }
    sums
}

fn word(words: &[u64], place: usize) -> u64 {
    words.get(place).copied().unwrap_or(0)
}

/// `net.core.netdev_budget`; only the first namespace has it.
fn budget() -> Option<i32> {
    std::fs::read_to_string("/proc/sys/net/core/netdev_budget").ok()?.trim().parse().ok()
}

fn run(event: Tracepoint, layout: &Layout, target: &Target) -> Result<Running, String> {
    let (folder, name) = event.in_tracefs();
    let (link, program) = attach(name, assemble(event, layout, target))?;
    // The count begins after the program, so that what it has more was surely not shown to the program.
    let all = EventCount::start(&format!("events/{folder}/{name}")).ok();
    Ok(Running { event, _link: link, program, all })
}
