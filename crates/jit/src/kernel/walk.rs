//! The first walk: what a rule does to the key, to the action set, and to where the frame will leave.
//!
//! Nothing is changed and nothing is counted here, so every piece may exit. An edit writes its value where later tables look for it, a TTL that runs
//! out exits, and so does a second output.
//!
//! **Registers.** R9 the record.

use super::emit::{
    EDITS, Emit, IN, LEAVES, LENGTH, MISSED, Map, NO_PORT, NO_SLOT, OUT, PASSED, RETURNED, SET, TTL, of_key,
};
use crate::compile::TableState;
use crate::ir::End;
use crate::key::{
    self, ETH_DST, ETH_SRC, FRAGMENT, IP, METADATA, NETWORK, PHY_PORT, PORTS, TCP, TUNNEL, TYPE_SHIFT, UDP,
};
use crate::record::{BodyShape, OPERANDS, ShapeStep};
use bpf::{Label, Op, Reg::*, When, Width::*};
use flow::field::Field;
use std::collections::BTreeSet;

/// IPv4 in the summary: mask and value.
pub(super) const IPV4: (u64, u64) = (IP | 0xffff << TYPE_SHIFT, IP | 0x800 << TYPE_SHIFT);

impl Emit<'_> {
    /// Before the first table.
    pub fn prepare(&mut self) {
        self.piece("prepare");
        if self.source.ir.exits_fragments {
            self.exit_if(FRAGMENT);
        }
        for place in [PASSED, SET, EDITS, MISSED, RETURNED, of_key(METADATA), of_key(TUNNEL)] {
            self.put_constant(place, 0);
        }
        self.put_constant(OUT, NO_PORT);
        self.prepare_tags();
        self.a.load(B4, R1, R7, of_key(PORTS) + 4);
        self.put(of_key(PHY_PORT), R1);
        self.unless_receives();
        self.a.jump(self.tables[&0]);
    }

    fn exit_if(&mut self, bit: u64) {
        self.get(R1, of_key(key::SUMMARY));
        self.constant(R2, bit);
        self.a.jump_if_reg(R1, When::AnyBit, R2, self.exit);
    }

    /// The record in R1 matched: note it, go to its shape.
    pub fn hit(&mut self, table: &TableState) {
        let records = table.rules.values().map(|rule| rule.record);
        self.bodies(records.collect(), &format!("table {}", table.number));
    }

    /// The action set. Its record counts nothing.
    pub fn finish(&mut self) {
        self.piece("finish");
        self.a.place(self.finish);
        self.get(R1, SET);
        self.number_of_set();
        self.bodies(self.source.sets.to_vec(), "set");
    }

    /// `R1 = the number among those of sets at R1`, or exits. Changes R2.
    fn number_of_set(&mut self) {
        let most = self.source.sets.len() + self.source.ir.maps.iter().map(Vec::len).sum::<usize>();
        self.a.jump_if(R1, When::AtLeast, most as i32, self.exit);
        self.a.op(Op::ShiftLeft, R1, 2);
        self.value(R2, Map::Sets);
        self.a.op_reg(Op::Add, R2, R1);
        self.a.load(B4, R1, R2, 0);
    }

    /// Goes to the shape of the record in R1, which is one of these, and emits the shapes.
    fn bodies(&mut self, records: Vec<u32>, of: &str) {
        self.note();
        self.record();
        self.a.load(B4, R1, R9, 4);
        let shapes: BTreeSet<u32> =
            records.iter().map(|record| self.source.records.shape_of(*record)).collect();
        let labels: Vec<(u32, Label)> = shapes.iter().map(|shape| (*shape, self.a.label())).collect();
        self.branch(R1, &labels, self.exit);
        for (number, label) in labels {
            self.piece(format!("{of}, shape {number}"));
            self.a.place(label);
            let records = self.source.records;
            self.body(&records.shapes[number as usize]);
        }
    }

    fn body(&mut self, shape: &BodyShape) {
        let mut at = 8 * OPERANDS as i16;
        for step in &shape.steps {
            let next = self.a.label();
            if step.is_edit() {
                self.put_constant(EDITS, 1);
            }
            self.step(*step, at, next);
            self.a.place(next);
            at += 8 * step.operands() as i16;
        }
        match shape.end {
            End::Goto(table) => self.a.jump(self.tables[&table]),
            End::Finish => self.a.jump(self.finish),
            End::Done => self.a.jump(self.act),
            End::Exit(_) => self.a.jump(self.exit),
        }
    }

    fn step(&mut self, step: ShapeStep, at: i16, next: Label) {
        match step {
            ShapeStep::Output => self.output(at, next),
            ShapeStep::Register(field) => self.register(field, at),
            ShapeStep::SetTo => {
                self.a.load(B8, R1, R9, at);
                self.put(SET, R1);
            }
            ShapeStep::SetMap => self.set_map(at),
            ShapeStep::Address(field) => self.address(field, at),
            ShapeStep::Ipv4(field) => self.ipv4(field, at, next),
            ShapeStep::Port(field) => self.port(field, at, next),
            ShapeStep::DecTtl => self.dec_ttl(next),
            ShapeStep::Tag(_) => self.set_tag(at, next),
            ShapeStep::PushVlan => self.push_tag(at),
            ShapeStep::PopVlan => self.pop_tag(next),
            ShapeStep::Queue | ShapeStep::Call => self.a.jump(self.exit),
        }
    }

    fn output(&mut self, at: i16, next: Label) {
        let (named, sent) = (self.a.label(), self.a.label());
        self.a.load(B8, R1, R9, at);
        self.get(R2, IN);
        self.is_in_port(R1, named);
        self.a.jump_if_reg(R1, When::NotEqual, R2, sent);
        // §5.12: back to where it came from only by the name IN_PORT.
        self.get(R1, RETURNED);
        self.a.op(Op::Add, R1, 1);
        self.put(RETURNED, R1);
        self.a.jump(next);
        self.a.place(named);
        self.a.op_reg(Op::Move, R1, R2);
        self.a.place(sent);
        self.get(R2, OUT);
        self.a.jump_if(R2, When::NotEqual, NO_PORT, self.exit);
        self.put(OUT, R1);
        self.get(R1, LENGTH);
        self.put(LEAVES, R1);
        self.note_stack();
    }

    fn register(&mut self, field: Field, at: i16) {
        let word = of_key(if field == Field::Metadata { METADATA } else { TUNNEL });
        self.get(R1, word);
        self.a.load(B8, R2, R9, at + 8);
        self.a.op_reg(Op::And, R1, R2);
        self.a.load(B8, R2, R9, at);
        self.a.op_reg(Op::Or, R1, R2);
        self.put(word, R1);
    }

    /// Rows stand behind the records of the sets.
    fn set_map(&mut self, at: i16) {
        self.a.load(B8, R1, R9, at);
        self.get(R2, SET);
        self.a.op_reg(Op::Add, R1, R2);
        self.a.op(Op::Add, R1, self.source.sets.len() as i32);
        self.number_of_set();
        self.put(SET, R1);
    }

    fn address(&mut self, field: Field, at: i16) {
        let word = if field == Field::EthDst { ETH_DST } else { ETH_SRC };
        if self.source.needs.asks(word) {
            self.a.load(B8, R1, R9, at + 8);
            self.a.from_big_endian(R1, B8);
            self.a.op(Op::ShiftRight, R1, 16);
            self.put(of_key(word), R1);
        }
    }

    /// Jumps unless the frame is IPv4. Leaves the summary in R2; changes R1 and R3.
    pub fn unless_ipv4(&mut self, to: Label) {
        self.get(R2, of_key(key::SUMMARY));
        self.constant(R1, IPV4.0);
        self.a.op_reg(Op::And, R1, R2);
        self.constant(R3, IPV4.1);
        self.a.jump_if_reg(R1, When::NotEqual, R3, to);
    }

    fn ipv4(&mut self, field: Field, at: i16, next: Label) {
        if !self.source.needs.asks(NETWORK) {
            return;
        }
        self.unless_ipv4(next);
        self.a.load(B4, R1, R9, at + 8);
        self.a.from_big_endian(R1, B4);
        self.a.store(B4, R7, of_key(NETWORK) + if field == Field::Ipv4Src { 4 } else { 0 }, R1);
    }

    fn port(&mut self, field: Field, at: i16, next: Label) {
        if !self.source.needs.asks(PORTS) {
            return;
        }
        let bit = if matches!(field, Field::TcpSrc | Field::TcpDst) { TCP } else { UDP };
        let is_source = matches!(field, Field::TcpSrc | Field::UdpSrc);
        self.unless_any(bit, next);
        self.a.load(B2, R1, R9, at + 8);
        self.a.from_big_endian(R1, B2);
        self.a.store(B2, R7, of_key(PORTS) + if is_source { 2 } else { 0 }, R1);
    }

    fn dec_ttl(&mut self, next: Label) {
        self.unless_any(IP, next);
        self.get(R1, TTL);
        self.a.jump_if(R1, When::AtMost, 1, self.exit);
        self.a.op(Op::Subtract, R1, 1);
        self.put(TTL, R1);
    }

    /// The slot of the record at R9 in R1; jumps when it counts nothing.
    pub fn slot(&mut self, none: Label) {
        self.a.load(B4, R1, R9, 0);
        self.a.jump_if_u32(R1, When::Equal, NO_SLOT, none);
    }
}
