//! The second walk: edits, then counters, then the way out. Nothing behind this point exits.
//!
//! **Registers.** In loops R8 is how far, which the verifier has to know: it looks at every turn.

use super::edit::Walked;
use super::emit::{
    ARRIVED, EDITS, Emit, IN, LEAVES, LIST, MISSED, Map, NO_PORT, NOW, OUT, PASSED, PAYLOAD, PIECES, RETURNED,
};
use super::{Hook, PORT_WORDS, PortWord, RULE_WORDS};
use bpf::{Label, Op, Reg, Reg::*, When, Width::*};

/// Flags of a port in the map of ports.
pub(super) const RECEIVES: u32 = 1;
pub(super) const SENDS: u32 = 2;
/// Bytes of a port in the map of ports: flags, interface.
pub(super) const PORT_BYTES: u32 = 8;

const REDIRECT: i32 = 23;
const REDIRECT_MAP: i32 = 51;
const KTIME_COARSE: i32 = 160;
/// `XDP_DROP`, also as what redirecting gives when there is no socket.
const XDP_DROP: i32 = 1;
const XDP_REDIRECT: i32 = 4;
const TC_ACT_SHOT: i32 = 2;
/// `rx_queue_index` in `struct xdp_md`.
const QUEUE: i16 = 16;

impl Emit<'_> {
    fn drop_frame(&mut self) {
        let drop = if self.source.around.hook == Hook::Xdp { XDP_DROP } else { TC_ACT_SHOT };
        self.a.op(Op::Move, R0, drop);
        self.a.exit();
    }

    /// `R2 = the state of the port whose index is in R1`, or exits. Changes R1.
    fn port_state(&mut self) {
        let ports = self.source.around.ports.len() as i32;
        self.a.jump_if(R1, When::AtLeast, ports, self.exit);
        self.a.op(Op::ShiftLeft, R1, 3);
        self.value(R2, Map::Ports);
        self.a.op_reg(Op::Add, R2, R1);
    }

    /// Drops what comes in by a port that does not receive.
    pub fn unless_receives(&mut self) {
        let receives = self.a.label();
        self.get(R1, IN);
        self.port_state();
        self.a.load(B4, R1, R2, 0);
        self.a.jump_if_u32(R1, When::AnyBit, RECEIVES, receives);
        self.get(R1, IN);
        self.count_at_port(&[(PortWord::RxDropped, PIECES)]);
        self.drop_frame();
        self.a.place(receives);
    }

    /// Adds what stands in the scratch memory to counters of the port whose index is in R1.
    fn count_at_port(&mut self, what: &[(PortWord, i16)]) {
        let absent = self.a.label();
        self.lookup(Map::PortCounters, absent);
        for (word, from) in what {
            self.get(R2, *from);
            self.add(R0, 8 * *word as i16, R2);
        }
        self.a.place(absent);
    }

    /// `*(base + offset) += of`. Changes R1.
    fn add(&mut self, base: Reg, offset: i16, of: Reg) {
        self.a.load(B8, R1, base, offset);
        self.a.op_reg(Op::Add, R1, of);
        self.a.store(B8, base, offset, R1);
    }

    pub fn act(&mut self) {
        self.piece("act");
        self.a.place(self.act);
        let (count, send, unsent) = (self.a.label(), self.a.label(), self.a.label());
        self.get(R1, OUT);
        self.a.jump_if(R1, When::Equal, NO_PORT, count);
        self.port_state();
        self.a.load(B4, R1, R2, 0);
        let sends = self.a.label();
        self.a.jump_if_u32(R1, When::AnyBit, SENDS, sends);
        self.a.jump(count);
        self.a.place(sends);
        self.get(R1, EDITS);
        self.a.jump_if(R1, When::Equal, 0, count);
        self.retag();
        self.edits(count);
        self.piece("count");
        self.a.place(count);
        self.count();
        self.piece("send");
        self.a.place(send);
        self.send(unsent);
        self.a.place(unsent);
        self.drop_frame();
    }

    /// Begins a loop over what the first walk passed: at `turn`, R9 is the record; R2 its place in the list.
    fn begin_turns(&mut self, turn: Label, done: Label) {
        let most = self.source.ir.tables.len() as i32 + 1;
        self.a.op(Op::Move, R8, 0);
        self.a.place(turn);
        self.get(R1, PASSED);
        self.a.jump_if_reg(R8, When::AtLeast, R1, done);
        self.a.jump_if(R8, When::AtLeast, most, done);
        self.a.op_reg(Op::Move, R2, R8);
        self.a.op(Op::ShiftLeft, R2, 3);
        self.a.op_reg(Op::Add, R2, R7);
    }

    /// Carries out the edits in front of the output.
    fn edits(&mut self, done: Label) {
        self.piece("edits");
        let (turn, again) = (self.a.label(), self.a.label());
        self.begin_turns(turn, done);
        self.a.load(B4, R1, R2, LIST);
        self.a.op(Op::Add, R8, 1);
        self.record();
        self.walked_shapes(Walked { again, done });
        self.a.place(again);
        self.turn_again();
        self.a.jump(turn);
    }

    fn count(&mut self) {
        self.misses();
        self.a.call(KTIME_COARSE);
        self.put(NOW, R0);
        let (turn, next, done) = (self.a.label(), self.a.label(), self.a.label());
        self.begin_turns(turn, done);
        self.a.load(B4, R1, R2, LIST);
        self.record();
        self.slot(next);
        self.lookup(Map::RuleCounters, next);
        self.a.op_reg(Op::Move, R2, R8);
        self.a.op(Op::ShiftLeft, R2, 3);
        self.a.op_reg(Op::Add, R2, R7);
        self.a.load(B4, R2, R2, LIST + 4);
        self.bytes();
        self.add(R0, 8, R2);
        self.get(R2, PIECES);
        self.add(R0, 0, R2);
        self.get(R2, NOW);
        self.a.store(B8, R0, 8 * (RULE_WORDS as i16 - 1), R2);
        self.a.place(next);
        self.a.op(Op::Add, R8, 1);
        self.a.jump(turn);
        self.a.place(done);
        self.arrived();
    }

    fn misses(&mut self) {
        let none = self.a.label();
        self.get(R1, MISSED);
        self.a.jump_if(R1, When::Equal, 0, none);
        self.a.op(Op::Subtract, R1, 1);
        self.lookup(Map::MissCounters, none);
        self.get(R2, PIECES);
        self.add(R0, 0, R2);
        self.a.place(none);
    }

    /// What a frame of so many bytes, in R2, is on a wire. Changes R3 to R5.
    fn bytes(&mut self) {
        if self.source.around.hook == Hook::Xdp {
            return;
        }
        let (all, bare) = (self.a.label(), self.a.label());
        self.get(R4, PIECES);
        self.a.jump_if(R4, When::AtMost, 1, all);
        self.a.op(Op::Subtract, R4, 1);
        self.get(R3, PAYLOAD);
        self.a.op_reg(Op::Move, R5, R2);
        self.a.jump_if_reg(R5, When::AtLeast, R3, bare);
        self.a.op_reg(Op::Move, R5, R3);
        self.a.place(bare);
        self.a.op_reg(Op::Subtract, R5, R3);
        self.a.op_reg(Op::Multiply, R4, R5);
        self.a.op_reg(Op::Add, R2, R4);
        self.a.place(all);
    }

    fn arrived(&mut self) {
        let absent = self.a.label();
        self.get(R1, IN);
        self.lookup(Map::PortCounters, absent);
        self.get(R2, ARRIVED);
        self.bytes();
        self.add(R0, 8 * PortWord::RxBytes as i16, R2);
        self.get(R2, PIECES);
        self.add(R0, 8 * PortWord::RxFrames as i16, R2);
        self.a.op(Op::Move, R2, 1);
        self.add(R0, 8 * PortWord::Done as i16, R2);
        self.get(R2, PIECES);
        self.get(R1, RETURNED);
        self.a.op_reg(Op::Multiply, R2, R1);
        self.add(R0, 8 * PortWord::Returned as i16, R2);
        self.a.place(absent);
    }

    fn send(&mut self, dropped: Label) {
        let (sends, absent) = (self.a.label(), self.a.label());
        self.get(R1, OUT);
        self.a.jump_if(R1, When::Equal, NO_PORT, dropped);
        self.port_state();
        self.a.load(B4, R1, R2, 0);
        self.a.load(B4, R9, R2, 4);
        self.a.jump_if_u32(R1, When::AnyBit, SENDS, sends);
        self.get(R1, OUT);
        self.count_at_port(&[(PortWord::TxDropped, PIECES)]);
        self.a.jump(dropped);
        self.a.place(sends);
        self.get(R1, OUT);
        self.lookup(Map::PortCounters, absent);
        self.get(R2, LEAVES);
        self.bytes();
        self.add(R0, 8 * PortWord::TxBytes as i16, R2);
        self.get(R2, PIECES);
        self.add(R0, 8 * PortWord::TxFrames as i16, R2);
        self.a.place(absent);
        self.redirect();
    }

    /// To the interface in R9.
    fn redirect(&mut self) {
        if self.source.around.hook == Hook::Xdp {
            self.map(R1, Map::Devices);
            self.get(R2, OUT);
            self.a.op(Op::Move, R3, 0);
            self.a.call(REDIRECT_MAP);
        } else {
            self.a.op_reg(Op::Move, R1, R9);
            self.a.op(Op::Move, R2, 0);
            self.a.call(REDIRECT);
        }
        self.a.exit();
    }

    /// To user space, as it came.
    pub fn exit(&mut self) {
        self.piece("exit");
        self.a.place(self.exit);
        let lost = self.a.label();
        self.put_constant(PIECES, 1);
        self.get(R1, IN);
        self.count_at_port(&[(PortWord::Exits, PIECES)]);
        match self.source.around.hook {
            Hook::Xdp => self.by_socket(lost),
            Hook::Tcx => self.by_tap(lost),
        }
        self.a.place(lost);
        self.get(R1, IN);
        self.count_at_port(&[(PortWord::Lost, PIECES)]);
        self.drop_frame();
    }

    fn by_socket(&mut self, lost: Label) {
        let queues = self.source.around.queues;
        self.a.load(B4, R1, R6, QUEUE);
        self.a.jump_if_u32(R1, When::AtLeast, queues, lost);
        self.get(R2, IN);
        self.a.op(Op::Multiply, R2, queues as i32);
        self.a.op_reg(Op::Add, R2, R1);
        self.map(R1, Map::Userspace);
        self.a.op(Op::Move, R3, XDP_DROP);
        self.a.call(REDIRECT_MAP);
        self.a.jump_if(R0, When::NotEqual, XDP_REDIRECT, lost);
        self.a.exit();
    }

    fn by_tap(&mut self, lost: Label) {
        self.get(R1, IN);
        self.lookup(Map::Userspace, lost);
        self.a.load(B4, R1, R0, 0);
        self.a.jump_if(R1, When::Equal, 0, lost);
        self.a.op(Op::Move, R2, 0);
        self.a.call(REDIRECT);
        self.a.exit();
    }
}

/// Bytes of the counters of a port and of a rule.
pub(super) const PORT_COUNTER_BYTES: u32 = 8 * PORT_WORDS as u32;
pub(super) const RULE_COUNTER_BYTES: u32 = 8 * RULE_WORDS as u32;
