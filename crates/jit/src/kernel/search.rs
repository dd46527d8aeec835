//! The search of a table.
//!
//! The same as in machine code ([`crate::emit`]), over the same data, flat: an index of a word is its place. Chains are walked by loops whose
//! bound is the longest chain there is. The verifier looks at every turn and has a limit: where a chain is too long, frames that need it exit.
//!
//! **Registers.** R8 the table's data. No function is called.

use super::emit::{BEST, Emit, FOUND, MISSED, Map, of_key};
use crate::compile::TableState;
use crate::hash::MULTIPLIER;
use crate::key::WordTest;
use crate::plan::Strategy;
use crate::table::{Compared, ENTRY, HEAD, Masks, Probe, TO_BLOCK, TableData, TableRule};
use bpf::{Label, Op, Reg::*, When, Width::*};

/// Jumps of one loop that the verifier remembers (its limit is 8192 for a path).
const JUMPS: usize = 6000;

/// A probe in its table.
#[derive(Clone, Copy)]
struct Here<'a> {
    index: usize,
    data: &'a TableData,
    /// The next probe.
    next: Label,
}

impl Emit<'_> {
    pub fn table(&mut self, table: &TableState, data: usize) {
        self.piece(format!("table {}", table.number));
        let (label, hit) = (self.tables[&table.number], self.a.label());
        self.a.place(label);
        match &table.strategy {
            Strategy::Direct => table.rules.values().rev().for_each(|rule| self.direct(rule, hit)),
            Strategy::Probes(probes) => self.probes(probes, &table.data, data, hit),
        }
        self.put_constant(MISSED, i32::from(table.number) + 1);
        self.a.jump(self.act);
        self.a.place(hit);
        self.hit(table);
    }

    fn direct(&mut self, rule: &TableRule, hit: Label) {
        let next = self.a.label();
        rule.tests.iter().for_each(|test| self.unless(test, next));
        self.constant(R1, u64::from(rule.record));
        self.a.jump(hit);
        self.a.place(next);
    }

    /// At `hit` the record is in R1.
    fn probes(&mut self, probes: &[Probe], data: &TableData, number: usize, hit: Label) {
        let (found, none) = (self.a.label(), self.a.label());
        self.value(R8, Map::Table(number));
        self.put_constant(BEST, 0);
        self.put_constant(FOUND, 0);
        for (index, probe) in probes.iter().enumerate() {
            let next = self.a.label();
            self.constant(R1, data.pages.get(HEAD * index));
            self.get(R2, BEST);
            self.a.jump_if_reg(R2, When::AtLeast, R1, found);
            let here = Here { index, data, next };
            match probe {
                Probe::Hash { compared, .. } if !self.affords(data.longest_chain(index), compared) => {
                    self.lists.push((probe.clone(), data.longest_chain(index)));
                    self.a.jump(self.exit);
                }
                Probe::Hash { hashed, compared } => self.hash(here, hashed, compared),
                Probe::Trie { base, is_upper, word } => self.trie(here, base, *is_upper, *word),
            }
            self.a.place(next);
        }
        self.a.place(found);
        self.get(R1, FOUND);
        self.a.jump_if(R1, When::Equal, 0, none);
        self.a.jump(hit);
        self.a.place(none);
    }

    /// Whether the verifier will look at so long a chain.
    fn affords(&mut self, longest: usize, compared: &Compared) -> bool {
        let words = compared.words();
        let cost = longest * (16 + 5 * words);
        let is_affordable = longest * (4 + words) <= JUMPS && cost <= self.turns;
        self.turns -= if is_affordable { cost } else { 0 };
        is_affordable
    }

    /// A chain, found by a hash; the first entry that is right is the best of the chain.
    fn hash(&mut self, here: Here<'_>, hashed: &Masks, compared: &Compared) {
        let longest = here.data.longest_chain(here.index);
        self.hash_of_key(hashed);
        self.a.op(Op::And, R1, here.data.pages.get(HEAD * here.index + 2) as i32);
        self.a.op(Op::ShiftLeft, R1, 2);
        self.cell(here);
        let (entry, other) = (self.a.label(), self.a.label());
        self.a.op(Op::Move, R9, longest as i32);
        self.a.place(entry);
        self.a.jump_if(R1, When::Equal, 0, here.next);
        // On 32 bits, of which the highest says where the entry stands (`table::BEHIND`).
        self.a.op_u32(Op::ShiftLeft, R1, 3);
        self.a.jump_if(R1, When::Above, 8 * here.data.pages.used() as i32, self.exit);
        self.a.op_reg(Op::Add, R1, R8);
        self.a.load(B8, R3, R1, 0);
        self.get(R4, BEST);
        self.a.jump_if_reg(R3, When::AtMost, R4, here.next);
        self.compare(compared, other);
        self.put(BEST, R3);
        self.a.load(B4, R4, R1, 8);
        self.put(FOUND, R4);
        self.a.jump(here.next);
        self.a.place(other);
        self.a.load(B4, R1, R1, 12);
        self.a.op(Op::Subtract, R9, 1);
        self.a.jump_if(R9, When::NotEqual, 0, entry);
    }

    /// The hash of the masked key in R1.
    fn hash_of_key(&mut self, hashed: &Masks) {
        self.a.op(Op::Move, R1, 0);
        if !hashed.is_empty() {
            self.constant(R4, MULTIPLIER);
        }
        for (word, mask) in hashed {
            self.masked(R2, *word, *mask, R3);
            self.a.op_reg(Op::Xor, R1, R2);
            self.a.op_reg(Op::Multiply, R1, R4);
            // On a machine that has the low byte first: its bytes are turned round.
            self.a.from_big_endian(R1, B8);
        }
    }

    /// Turns the place of a cell among those that the probe begins with, in R1, into the cell.
    fn cell(&mut self, here: Here<'_>) {
        self.a.op(Op::Add, R1, here.data.pages.get(HEAD * here.index + 1) as i32);
        self.a.op_reg(Op::Add, R1, R8);
        self.a.load(B4, R1, R1, 0);
    }

    /// Compares the entry at R1 with the key; keeps R3.
    fn compare(&mut self, compared: &Compared, other: Label) {
        let values = 8 * ENTRY as i16;
        match compared {
            Compared::Same(masks) => {
                for (index, (word, mask)) in (0i16..).zip(masks) {
                    self.masked(R4, *word, *mask, R5);
                    self.a.load(B8, R5, R1, values + 8 * index);
                    self.a.jump_if_reg(R4, When::NotEqual, R5, other);
                }
            }
            Compared::Own(words) => {
                let own = values + 8 * words.len() as i16;
                for (index, word) in (0i16..).zip(words) {
                    self.get(R4, of_key(*word));
                    self.a.load(B8, R5, R1, own + 8 * index);
                    self.a.op_reg(Op::And, R4, R5);
                    self.a.load(B8, R5, R1, values + 8 * index);
                    self.a.jump_if_reg(R4, When::NotEqual, R5, other);
                }
            }
        }
    }

    /// Sixteen bits, then eight, then eight: a cell is a record, or leads to a block.
    fn trie(&mut self, here: Here<'_>, base: &[WordTest], is_upper: bool, word: u8) {
        base.iter().for_each(|test| self.unless(test, here.next));
        self.a.load(B4, R5, R7, of_key(word) + if is_upper { 4 } else { 0 });
        self.a.op_reg(Op::Move, R1, R5);
        self.a.op(Op::ShiftRight, R1, 16);
        self.a.op(Op::ShiftLeft, R1, 2);
        self.cell(here);
        let leaf = self.a.label();
        self.step_into_block(here, 8, leaf);
        self.step_into_block(here, 0, leaf);
        self.a.place(leaf);
        self.a.jump_if(R1, When::Equal, 0, here.next);
        self.a.op_reg(Op::Move, R5, R1);
        // The record knows its rank.
        self.record();
        self.a.load(B8, R3, R9, 8);
        self.get(R4, BEST);
        self.a.jump_if_reg(R3, When::AtMost, R4, here.next);
        self.put(BEST, R3);
        self.put(FOUND, R5);
    }

    /// If the cell in R1 leads to a block, the cell in it that the address in R5, shifted, selects.
    fn step_into_block(&mut self, here: Here<'_>, shift: i32, leaf: Label) {
        let into = self.a.label();
        self.a.jump_if_u32(R1, When::AnyBit, TO_BLOCK, into);
        self.a.jump(leaf);
        self.a.place(into);
        self.a.op(Op::And, R1, !TO_BLOCK as i32);
        self.a.jump_if(R1, When::Above, here.data.pages.used() as i32 / 128, self.exit);
        self.a.op(Op::ShiftLeft, R1, 10);
        self.a.op_reg(Op::Move, R2, R5);
        self.a.op(Op::ShiftRight, R2, shift);
        self.a.op(Op::And, R2, 0xff);
        self.a.op(Op::ShiftLeft, R2, 2);
        self.a.op_reg(Op::Add, R1, R2);
        self.a.op_reg(Op::Add, R1, R8);
        self.a.load(B4, R1, R1, 0);
    }
}
