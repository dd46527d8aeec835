//! Rules as a program of the kernel.
//!
//! **What.** [`compile`] turns a pipeline into a [`KernelProgram`]: instructions of eBPF for XDP or tcx, and the maps that they read and count
//! in. What it cannot do for a frame is an exit: the frame goes to user space as it came, and no rule and no port has counted it.
//!
//! **Why.** A frame that the kernel forwards or drops never wakes a process. Rules are data: the tables, probes and records that machine
//! code reads ([`crate::table`], [`crate::record`]) lie in arrays of the kernel, page by page, so that 10,000 rules are the same few hundred
//! instructions as ten, and one planner serves both.
//!
//! **How.** Two walks. The first one goes through the tables, changes nothing but a copy of the key, and exits whenever it has
//! to; the second one counts, edits and sends. So an exit never has to take anything back.
//!
//! **Price.** No in-place updates: rules that change are a new program and new maps. One output per frame.

mod act;
mod edit;
mod emit;
mod lower;
mod maps;
mod parse;
mod search;
mod tags;
mod walk;

use crate::compile::{self, Refused};
use crate::ir::{Ir, Op, Test};
use crate::key::words;
use crate::needs::Needs;
use crate::record::{Records, rank};
use crate::table::{Probe, TableRule};
use crate::tally::{SlotPlaces, Slots, Tally};
use crate::{lower as rules, pass};
use flow::action::Action;
use flow::drop::Drop;
use flow::rule::RulePosition;
use flow::{Field, Pipeline, PortNo};
use std::collections::BTreeSet;
use std::fmt;

/// Where the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// In the driver, before there is a socket buffer.
    Xdp,
    /// On socket buffers, at the ingress of an interface: super-frames and unfinished checksums stay what they are.
    Tcx,
}

/// A port of the pipeline that is an interface of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelPort {
    /// Its number in the pipeline.
    pub number: PortNo,
    /// The index of the interface.
    pub interface: u32,
}

/// What a program is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// Where it runs.
    pub hook: Hook,
    /// The ports that it may send to and that it serves. The place in this list is the port's *index*, which maps have for key.
    pub ports: Vec<KernelPort>,
    /// Receive queues of a port that may have a socket in user space; XDP only.
    pub queues: u32,
}

/// What a map is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapRole {
    /// The key of the frame in hand, and what was decided; one per CPU.
    Scratch,
    /// The ports by index: [`KernelProgram::port_states`] says what to write when a port opens or closes.
    Ports,
    /// Where frames leave (`BPF_MAP_TYPE_DEVMAP`); XDP only.
    Devices,
    /// The way to user space, empty at first. XDP: `BPF_MAP_TYPE_XSKMAP` by index · queues + queue. tcx: an array by index of the index of
    /// the interface that user space reads (a tap), 0 for none.
    Userspace,
    /// Records of rules.
    Records,
    /// Action sets: the record of each, then the rows of numbers.
    Sets,
    /// Data of a table.
    Table(u8),
    /// Counters of rules by slot; per CPU.
    RuleCounters,
    /// Counters of ports by index; per CPU.
    PortCounters,
    /// Frames that no rule of a table matched, by table; per CPU.
    MissCounters,
}

/// A map that the loader makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelMap {
    /// What for.
    pub role: MapRole,
    /// `BPF_MAP_TYPE_*`.
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value; of one CPU.
    pub value_size: u32,
    /// How many there may be.
    pub entries: u32,
    /// `BPF_F_*`.
    pub flags: u32,
    /// What is written before the program runs.
    pub contents: Vec<(Vec<u8>, Vec<u8>)>,
}

/// `BPF_MAP_TYPE_ARRAY`.
pub const ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_PERCPU_ARRAY`.
pub const PER_CPU_ARRAY: u32 = 6;
/// `BPF_MAP_TYPE_DEVMAP`.
pub const DEVMAP: u32 = 14;
/// `BPF_MAP_TYPE_XSKMAP`.
pub const XSKMAP: u32 = 17;

/// A rule that user space carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByUserspace {
    /// Its table.
    pub table: u8,
    /// Its place.
    pub at: RulePosition,
    /// Why.
    pub reason: Reason,
}

/// Why user space has to carry a rule out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Machine code does not do it, either.
    Exit(crate::ir::Exit),
    /// It sends to a port that is not an interface of the kernel.
    Port(PortNo),
    /// It sends to many ports.
    Spread(PortNo),
    /// It may send to more than one port.
    Outputs,
    /// It chooses a queue.
    Queue,
    /// An edit that the program does not make: its words.
    Edit(String),
    /// It belongs to a list that is too long to be searched.
    List(usize),
}

/// A program, and what the loader needs.
#[derive(Debug, Clone)]
pub struct KernelProgram {
    /// Where it runs.
    pub hook: Hook,
    /// The ports by index.
    pub ports: Vec<KernelPort>,
    /// To be made by the loader, in this order.
    pub maps: Vec<KernelMap>,
    /// Rules that user space does.
    pub userspace: Vec<ByUserspace>,
    /// Rules that the kernel does.
    pub kernel_rules: usize,
    /// Names of pieces and the instructions that they begin at, in order.
    pub pieces: Vec<(String, usize)>,
    /// Which rule each slot is of; what [`Tally::credit`] takes.
    pub places: SlotPlaces,
    words: Vec<u64>,
    references: Vec<(usize, usize)>,
}

/// Compiles a pipeline.
///
/// # Errors
/// [`Refused`]: user space carries all of it out.
pub fn compile(pipeline: &Pipeline, around: &Surroundings) -> Result<KernelProgram, Refused> {
    let mut slots = Slots::default();
    let mut ir = rules::pipeline(pipeline, &mut slots);
    pass::run(&mut ir, |_, _| {}).map_err(Refused::Broken)?;
    let mut userspace = lower::lowered(&mut ir, around);
    let needs = Needs::of(&ir);
    let mut records = Records::default();
    let width = ir.sets.len();
    let sets: Vec<u32> = ir.sets.iter().map(|set| records.add(emit::NO_SLOT, 0, set, width)).collect();
    let tables: Vec<_> =
        ir.tables.iter().map(|table| compile::table_state(table, width, &mut records, false)).collect();
    let source = emit::Source { ir: &ir, needs, tables: &tables, records: &records, sets: &sets, around };
    let emitted = emit::emit(source).map_err(|_| Refused::Jumps)?;
    userspace.extend(lists(&emitted.lists, &ir));
    userspace.sort_by_key(|one| (one.table, one.at));
    userspace.dedup_by_key(|one| (one.table, one.at));
    let kernel_rules = ir.len() - userspace.len();
    Ok(KernelProgram {
        hook: around.hook,
        ports: around.ports.clone(),
        maps: maps::maps(&source, pipeline, slots.places.len()),
        userspace,
        kernel_rules,
        pieces: emitted.pieces,
        places: slots.places,
        words: emitted.words,
        references: emitted.references,
    })
}

/// Surroundings in which every port that the pipeline has, or that a rule names, is an interface: to look at programs.
pub fn supposed(pipeline: &Pipeline, hook: Hook) -> Surroundings {
    let ir = rules::pipeline(pipeline, &mut Slots::default());
    let mut numbers: BTreeSet<PortNo> = pipeline.ports.keys().copied().collect();
    for rule in ir.tables.iter().flat_map(|table| &table.rules) {
        let tests = rule.tests.iter().filter(|test| test.field == Field::InPort);
        numbers.extend(tests.map(|test| PortNo(test.value as u32)));
        numbers.extend(rule.body.ops.iter().flat_map(outputs));
    }
    let numbers = numbers.into_iter().filter(|number| *number <= PortNo::MAX);
    let ports = (1..).zip(numbers).map(|(interface, number)| KernelPort { number, interface });
    Surroundings { hook, ports: ports.collect(), queues: 1 }
}

/// The ports that an op names.
fn outputs(op: &Op) -> Vec<PortNo> {
    let of = |action: &Action| match action {
        Action::Output { port, .. } => Some(*port),
        _ => None,
    };
    match op {
        Op::Output(port) => vec![*port],
        Op::Write(actions) => actions.iter().filter_map(of).collect(),
        _ => vec![],
    }
}

/// The rules whose chains are too long.
fn lists(given_up: &[(u8, Probe, usize)], ir: &Ir) -> Vec<ByUserspace> {
    let of = |(table, probe, longest): &(u8, Probe, usize)| {
        let rules = ir.table(*table).into_iter().flat_map(|table| &table.rules);
        let is_in = |at: RulePosition, tests: &[Test]| {
            let tests = words(tests).unwrap_or_default();
            probe.takes(&TableRule { tests, rank: rank(at), record: 0 })
        };
        let inside = rules.filter(|rule| is_in(rule.at, &rule.tests));
        let by = |at| ByUserspace { table: *table, at, reason: Reason::List(*longest) };
        inside.map(|rule| by(rule.at)).collect::<Vec<_>>()
    };
    given_up.iter().flat_map(of).collect()
}

/// What a program counted, summed over CPUs. Words of a map in a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelCounters {
    rules: Vec<u64>,
    ports: Vec<u64>,
    misses: Vec<u64>,
}

/// Words of a rule's counters: frames, bytes, and when the last frame came (`CLOCK_MONOTONIC`, coarse).
pub const RULE_WORDS: usize = 3;
/// Words of a port's counters.
pub const PORT_WORDS: usize = 10;

/// The place of a counter among those of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortWord {
    /// Frames that came in and were dealt with.
    RxFrames,
    /// Their bytes.
    RxBytes,
    /// Frames that a port which does not receive dropped.
    RxDropped,
    /// Frames that were sent.
    TxFrames,
    /// Their bytes.
    TxBytes,
    /// Frames for a port that does not send.
    TxDropped,
    /// Buffers that came in and were dealt with.
    Done,
    /// Buffers that went to user space.
    Exits,
    /// Of these, how many found no way to it.
    Lost,
    /// Frames that came in by it and were to leave by it.
    Returned,
}

impl KernelProgram {
    /// The instructions, with the descriptors of the maps in their places.
    pub fn words(&self, descriptors: &[i32]) -> Vec<u64> {
        let mut words = self.words.clone();
        for (at, map) in &self.references {
            words[*at] |= u64::from(descriptors[*map] as u32) << 32;
        }
        words
    }

    /// The program as text: its maps, then its instructions piece by piece; maps have their places for descriptors.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (number, map) in self.maps.iter().enumerate() {
            let KernelMap { role, kind, value_size, entries, .. } = map;
            text += &format!("map {number}: {role:?}, type {kind}, {entries} of {value_size} bytes\n");
        }
        let places: Vec<i32> = (0..self.maps.len() as i32).collect();
        let mut pieces = self.pieces.iter().peekable();
        for (line, at) in bpf::disassemble(&self.words(&places))
            .lines()
            .filter_map(|line| Some((line, line.split(':').next()?.trim().parse::<usize>().ok()?)))
        {
            while let Some((name, _)) = pieces.next_if(|(_, begin)| *begin <= at) {
                text += &format!("{name}:\n");
            }
            text += &format!("{line}\n");
        }
        text
    }

    /// How many instructions there are.
    pub fn instructions(&self) -> usize {
        self.words.len()
    }

    /// Bytes of all maps, of one CPU.
    pub fn data_bytes(&self) -> usize {
        self.maps.iter().map(|map| map.value_size as usize * map.entries as usize).sum()
    }

    /// The index of the first map of this role.
    pub fn map(&self, role: MapRole) -> Option<usize> {
        self.maps.iter().position(|map| map.role == role)
    }

    /// What to write into the map of ports when a port has opened or closed. A port that comes or goes is a new program.
    pub fn port_states(&self, pipeline: &Pipeline) -> Vec<(Vec<u8>, Vec<u8>)> {
        vec![(vec![0; 4], maps::port_states(&self.ports, pipeline))]
    }

    /// The counters. `read` gives keys and values of the map with that index, each value with those of all CPUs behind one another.
    ///
    /// # Errors
    /// What `read` says.
    pub fn counters<E>(
        &self,
        mut read: impl FnMut(usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>, E>,
    ) -> Result<KernelCounters, E> {
        let mut words = |role| match self.map(role) {
            Some(index) => Ok(summed(&self.maps[index], &read(index)?)),
            None => Ok(vec![]),
        };
        Ok(KernelCounters {
            rules: words(MapRole::RuleCounters)?,
            ports: words(MapRole::PortCounters)?,
            misses: words(MapRole::MissCounters)?,
        })
    }

    /// What was counted since `before` (the default for: since the program was loaded). `clock` turns the time of the kernel's monotonic
    /// clock into the pipeline's.
    pub fn tally(&self, before: &KernelCounters, now: &KernelCounters, clock: impl Fn(u64) -> u64) -> Tally {
        let mut tally = Tally::default();
        let since =
            |all: &[u64], old: &[u64], at: usize| all[at].wrapping_sub(old.get(at).copied().unwrap_or(0));
        for (slot, chunk) in (0u32..).zip(now.rules.chunks_exact(RULE_WORDS)) {
            let of = |word: usize| since(&now.rules, &before.rules, slot as usize * RULE_WORDS + word);
            if of(0) != 0 {
                tally.rule(slot, clock(chunk[2]), of(0), of(1));
            }
        }
        for (table, _) in now.misses.iter().enumerate() {
            match since(&now.misses, &before.misses, table) {
                0 => {}
                frames => tally.miss(table as u8, frames),
            }
        }
        for (index, port) in self.ports.iter().enumerate() {
            if (index + 1) * PORT_WORDS > now.ports.len() {
                break;
            }
            let of = |word: PortWord| since(&now.ports, &before.ports, index * PORT_WORDS + word as usize);
            let counters = tally.port(port.number);
            counters.rx_frames += of(PortWord::RxFrames);
            counters.rx_bytes += of(PortWord::RxBytes);
            counters.rx_dropped += of(PortWord::RxDropped);
            counters.tx_frames += of(PortWord::TxFrames);
            counters.tx_bytes += of(PortWord::TxBytes);
            counters.tx_dropped += of(PortWord::TxDropped);
            counters.drops.count(Drop::NotReceived, of(PortWord::RxDropped));
            counters.drops.count(Drop::NotSent, of(PortWord::TxDropped));
            counters.drops.count(Drop::InPort, of(PortWord::Returned));
            tally.done += of(PortWord::Done);
            tally.exits += of(PortWord::Exits);
        }
        tally
    }
}

impl KernelCounters {
    /// A counter of the port with this index; 0 for one that is not there.
    pub fn port(&self, index: usize, word: PortWord) -> u64 {
        self.ports.get(index * PORT_WORDS + word as usize).copied().unwrap_or(0)
    }
}

/// The words of all values in the order of their keys, summed over CPUs; of times the latest.
fn summed(map: &KernelMap, entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u64> {
    let words = map.value_size as usize / 8;
    let mut sums = vec![0u64; words * map.entries as usize];
    for (key, value) in entries {
        let Some(index) = key.first_chunk().map(|key| u32::from_ne_bytes(*key) as usize) else { continue };
        let Some(own) = sums.get_mut(index * words..(index + 1) * words) else { continue };
        for (at, word) in value.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            let sum = &mut own[at % words];
            let is_time = map.role == MapRole::RuleCounters && at % words == RULE_WORDS - 1;
            *sum = if is_time { word.max(*sum) } else { sum.wrapping_add(word) };
        }
    }
    sums
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hook::Xdp => "xdp",
            Hook::Tcx => "tcx",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Exit(exit) => exit.fmt(f),
            Reason::Port(port) => write!(f, "port {port} is no interface of the kernel"),
            Reason::Spread(port) => write!(f, "output to {port}"),
            Reason::Outputs => f.write_str("more than one output"),
            Reason::Queue => f.write_str("a queue"),
            Reason::Edit(action) => f.write_str(action),
            Reason::List(rules) => write!(f, "one of {rules} rules that can only be searched one by one"),
        }
    }
}
