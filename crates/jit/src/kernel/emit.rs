//! Instructions of eBPF for a whole pipeline.
//!
//! **What.** [`emit`] writes one program: which port the frame came in by, its headers ([`super::parse`]), the tables ([`super::search`]) with
//! what rules do to the key ([`super::walk`]), and at the end what is counted and sent ([`super::act`], [`super::edit`]).
//!
//! **Registers.** R6 the kernel's context, R7 the scratch memory, R8 a table's data or the frame, R9 the record in hand.
//!
//! **Why the scratch memory is a map.** The verifier walks all paths and joins two of them where it knows the same of both. Of a map's
//! content it knows nothing, so the paths of the parser are one again before the first table; on the stack they would be looked at
//! separately to the end of the program. It looks at a program of a few hundred instructions in a millisecond.
//!
//! **Why one map entry per table.** The address of the only entry of an array stands in the program, so a look into a table is a bound and a load, and
//! no call.

use super::lower::IN_PORT;
use super::{Hook, KernelPort, Surroundings};
use crate::compile::TableState;
use crate::ir::Ir;
use crate::key::{self, WordTest};
use crate::needs::Needs;
use crate::record::Records;
use crate::table::Probe;
use bpf::{AssembleError, Assembler, Constant, Instruction, Label, Op, Reg, Reg::*, When, Width::*};
use std::collections::BTreeMap;

/// Places in the scratch memory: the key first.
pub(super) const KEY: i16 = 0;
/// Bytes of the frame as it would be now.
pub(super) const LENGTH: i16 = 128;
/// Where the network header begins, from the first byte of the frame in memory.
pub(super) const NETWORK: i16 = 136;
pub(super) const TRANSPORT: i16 = 144;
/// The number of the action set.
pub(super) const SET: i16 = 152;
/// Entries of the list.
pub(super) const PASSED: i16 = 160;
/// The index of the port by which the frame leaves.
pub(super) const OUT: i16 = 168;
/// Whether the frame is to be changed.
pub(super) const EDITS: i16 = 176;
/// Frames on a wire, and bytes that each of them has a part of.
pub(super) const PIECES: i16 = 184;
pub(super) const PAYLOAD: i16 = 192;
/// The index of the port by which it came in.
pub(super) const IN: i16 = 200;
/// The best rule of a search so far.
pub(super) const BEST: i16 = 208;
pub(super) const FOUND: i16 = 216;
/// The table without a rule for the frame, and one.
pub(super) const MISSED: i16 = 224;
/// Bytes of the frame when it came.
pub(super) const ARRIVED: i16 = 232;
pub(super) const TTL: i16 = 240;
/// Bytes of the frame when it is sent.
pub(super) const LEAVES: i16 = 248;
/// Outputs that led back to the port by which it came in.
pub(super) const RETURNED: i16 = 256;
/// The kernel's clock.
pub(super) const NOW: i16 = 264;
/// What the walk passed: the record, and the length of the frame then; halves of a word.
pub(super) const LIST: i16 = 512;
/// Most entries of the list: tables, and one action set.
pub(super) const MOST_PASSED: i32 = 257;
/// All of it.
pub(super) const SCRATCH: u32 = 512 + 8 * (MOST_PASSED as u32 + 1);

/// No port.
pub(super) const NO_PORT: i32 = -1;
/// The slot of a record that counts nothing: an action set's.
pub(super) const NO_SLOT: u32 = u32::MAX;

// Functions of the kernel.
pub(super) const MAP_LOOKUP: i32 = 1;

/// Maps in the order in which the loader makes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    Scratch,
    Ports,
    Userspace,
    Records,
    Sets,
    RuleCounters,
    PortCounters,
    MissCounters,
    Devices,
    /// By its place among the tables that have data.
    Table(usize),
}

/// The first map that is a table's.
pub(super) fn first_table(hook: Hook) -> usize {
    match hook {
        Hook::Xdp => 9,
        Hook::Tcx => 8,
    }
}

/// What a program is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub ir: &'a Ir,
    pub needs: Needs,
    pub tables: &'a [TableState],
    pub records: &'a Records,
    pub sets: &'a [u32],
    pub around: &'a Surroundings,
}

/// What came out.
#[derive(Debug, Default)]
pub(super) struct Emitted {
    pub words: Vec<u64>,
    pub references: Vec<(usize, usize)>,
    pub pieces: Vec<(String, usize)>,
    pub lists: Vec<(u8, Probe, usize)>,
}

pub(super) struct Emit<'a> {
    pub a: Assembler,
    pub source: Source<'a>,
    pub tables: BTreeMap<u8, Label>,
    pub exit: Label,
    pub act: Label,
    pub finish: Label,
    /// What the verifier may still be asked to look at.
    pub turns: usize,
    /// Probes that were given up, with the longest chain.
    pub lists: Vec<(Probe, usize)>,
    references: Vec<(usize, usize)>,
    pieces: Vec<(String, usize)>,
}

/// Instructions that the verifier looks at in all loops (its limit is a million for the program).
const TURNS: usize = 500_000;

/// Writes the program.
///
/// # Errors
/// A jump is too far: the pipeline has too many tables and shapes.
pub(super) fn emit(source: Source<'_>) -> Result<Emitted, AssembleError> {
    let mut a = Assembler::new();
    let tables = source.ir.tables.iter().map(|table| (table.number, a.label())).collect();
    let (exit, act, finish) = (a.label(), a.label(), a.label());
    let (turns, references, pieces) = (TURNS, vec![], vec![]);
    let mut emit = Emit { a, source, tables, exit, act, finish, turns, lists: vec![], references, pieces };
    emit.entry();
    emit.parse();
    emit.prepare();
    let (mut data, mut lists) = (0, vec![]);
    for table in source.tables {
        emit.table(table, data);
        data += usize::from(!table.probes().is_empty());
        lists.extend(emit.lists.drain(..).map(|(probe, longest)| (table.number, probe, longest)));
    }
    emit.finish();
    emit.act();
    emit.exit();
    let Emit { a, mut references, mut pieces, .. } = emit;
    let end = a.position();
    let (words, moved) = a.finish_reached()?;
    let is_kept = |at: usize| at < end && moved[at] != moved[at + 1];
    references.retain(|(at, _)| is_kept(*at));
    references.iter_mut().for_each(|(at, _)| *at = moved[*at]);
    pieces.iter_mut().for_each(|(_, at)| *at = moved[*at]);
    pieces.dedup_by(|later, before| later.1 == before.1);
    Ok(Emitted { words, references, pieces, lists })
}

impl Emit<'_> {
    pub fn piece(&mut self, name: impl Into<String>) {
        self.pieces.push((name.into(), self.a.position()));
    }

    fn index_of(&self, map: Map) -> usize {
        match map {
            Map::Table(data) => first_table(self.source.around.hook) + data,
            Map::Scratch => 0,
            Map::Ports => 1,
            Map::Userspace => 2,
            Map::Records => 3,
            Map::Sets => 4,
            Map::RuleCounters => 5,
            Map::PortCounters => 6,
            Map::MissCounters => 7,
            Map::Devices => 8,
        }
    }

    /// `dst = the map`.
    pub fn map(&mut self, dst: Reg, map: Map) {
        self.references.push((self.a.position(), self.index_of(map)));
        self.a.load_map(dst, 0);
    }

    /// `dst = the only value of the map`.
    pub fn value(&mut self, dst: Reg, map: Map) {
        self.references.push((self.a.position(), self.index_of(map)));
        self.a.load_map_value(dst, 0);
    }

    /// `R0 = the value of the map whose key is in R1`, or jumps. Changes R1 to R5.
    pub fn lookup(&mut self, map: Map, absent: Label) {
        self.a.store(B4, R10, -4, R1);
        self.map(R1, map);
        self.a.op_reg(Op::Move, R2, R10);
        self.a.op(Op::Add, R2, -4);
        self.a.call(MAP_LOOKUP);
        self.a.jump_if(R0, When::Equal, 0, absent);
    }

    pub fn constant(&mut self, dst: Reg, value: u64) {
        match i32::try_from(value as i64) {
            Ok(small) => self.a.op(Op::Move, dst, small),
            Err(_) => {
                self.a.push(Instruction::LoadConstant { dst, constant: Constant::Number(value) });
            }
        }
    }

    /// `dst op= value`; `free` may be changed.
    pub fn op_constant(&mut self, op: Op, dst: Reg, value: u64, free: Reg) {
        match i32::try_from(value as i64) {
            Ok(small) => self.a.op(op, dst, small),
            Err(_) => {
                self.constant(free, value);
                self.a.op_reg(op, dst, free);
            }
        }
    }

    pub fn get(&mut self, dst: Reg, place: i16) {
        self.a.load(B8, dst, R7, place);
    }

    pub fn put(&mut self, place: i16, src: Reg) {
        self.a.store(B8, R7, place, src);
    }

    pub fn put_constant(&mut self, place: i16, value: i32) {
        self.a.store_imm(B8, R7, place, value);
    }

    /// `dst` = a word of the key, masked; `free` may be changed.
    pub fn masked(&mut self, dst: Reg, word: u8, mask: u64, free: Reg) {
        self.get(dst, of_key(word));
        if mask != u64::MAX {
            self.op_constant(Op::And, dst, mask, free);
        }
    }

    /// Jumps unless a word of the key is right. Changes R1 and R2.
    pub fn unless(&mut self, test: &WordTest, to: Label) {
        self.masked(R1, test.word, test.mask, R2);
        match i32::try_from(test.value as i64) {
            Ok(small) => self.a.jump_if(R1, When::NotEqual, small, to),
            Err(_) => {
                self.constant(R2, test.value);
                self.a.jump_if_reg(R1, When::NotEqual, R2, to);
            }
        }
    }

    /// Jumps unless the summary has one of the bits. Leaves the summary in R1; changes R2.
    pub fn unless_any(&mut self, bits: u64, to: Label) {
        self.get(R1, of_key(key::SUMMARY));
        self.constant(R2, bits);
        let there = self.a.label();
        self.a.jump_if_reg(R1, When::AnyBit, R2, there);
        self.a.jump(to);
        self.a.place(there);
    }

    /// Finds the port, or lets the frame pass.
    fn entry(&mut self) {
        self.piece("entry");
        let (pass, found) = (self.a.label(), self.a.label());
        let interface = match self.source.around.hook {
            Hook::Xdp => 12,
            Hook::Tcx => 40,
        };
        self.a.op_reg(Op::Move, R6, R1);
        self.a.load(B4, R8, R6, interface);
        let mut ports: Vec<(u32, u32, KernelPort)> = (0..)
            .zip(&self.source.around.ports)
            .map(|(index, port)| (port.interface, index, *port))
            .collect();
        ports.sort_by_key(|(interface, ..)| *interface);
        self.port_of(&ports, found, pass);
        self.a.place(pass);
        let next = if self.source.around.hook == Hook::Xdp { 2 } else { -1 };
        self.a.op(Op::Move, R0, next);
        self.a.exit();
        self.a.place(found);
        self.a.op(Op::Move, R1, 0);
        self.lookup(Map::Scratch, pass);
        self.a.op_reg(Op::Move, R7, R0);
        self.put(IN, R8);
        self.put(of_key(key::PORTS), R9);
    }

    /// By halves: the interface in R8 becomes the index of its port, and R9 its number in the upper half of a word.
    fn port_of(&mut self, ports: &[(u32, u32, KernelPort)], found: Label, pass: Label) {
        match ports {
            [] => self.a.jump(pass),
            [(interface, index, port)] => {
                self.a.jump_if_u32(R8, When::NotEqual, *interface, pass);
                self.constant(R8, u64::from(*index));
                self.constant(R9, u64::from(port.number.0) << 32);
                self.a.jump(found);
            }
            _ => {
                let (low, high) = ports.split_at(ports.len() / 2);
                let upper = self.a.label();
                self.a.jump_if_u32(R8, When::AtLeast, high[0].0, upper);
                self.port_of(low, found, pass);
                self.a.place(upper);
                self.port_of(high, found, pass);
            }
        }
    }

    /// Jumps by a small number in `by` to one of these labels, which are sorted; to `otherwise` for all others.
    pub fn branch(&mut self, by: Reg, to: &[(u32, Label)], otherwise: Label) {
        match to {
            [] => self.a.jump(otherwise),
            [(number, label)] => {
                self.a.jump_if_u32(by, When::Equal, *number, *label);
                self.a.jump(otherwise);
            }
            _ => {
                let (low, high) = to.split_at(to.len() / 2);
                let upper = self.a.label();
                self.a.jump_if_u32(by, When::AtLeast, high[0].0, upper);
                self.branch(by, low, otherwise);
                self.a.place(upper);
                self.branch(by, high, otherwise);
            }
        }
    }

    /// `R9 = the record whose index is in R1`, or exits. Changes R1.
    pub fn record(&mut self) {
        let most = self.source.records.pages.used() as i32;
        self.a.jump_if(R1, When::Above, most, self.exit);
        self.a.op(Op::ShiftLeft, R1, 3);
        self.value(R9, Map::Records);
        self.a.op_reg(Op::Add, R9, R1);
    }

    /// Puts the record in R1 into the list. Changes R2 to R4.
    pub fn note(&mut self) {
        self.get(R2, PASSED);
        self.a.jump_if(R2, When::AtLeast, MOST_PASSED, self.exit);
        self.a.op_reg(Op::Move, R3, R2);
        self.a.op(Op::ShiftLeft, R3, 3);
        self.a.op_reg(Op::Add, R3, R7);
        self.a.store(B4, R3, LIST, R1);
        self.get(R4, LENGTH);
        self.a.store(B4, R3, LIST + 4, R4);
        self.a.op(Op::Add, R2, 1);
        self.put(PASSED, R2);
    }

    /// The port by which the frame came in stands for the one that an output names so.
    pub fn is_in_port(&mut self, operand: Reg, to: Label) {
        self.a.jump_if_u32(operand, When::Equal, IN_PORT, to);
    }
}

/// The place of a word of the key.
pub(super) fn of_key(word: u8) -> i16 {
    KEY + 8 * i16::from(word)
}
