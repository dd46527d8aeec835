//! What is done to the bytes of a frame, a step at a time, as far as the output.
//!
//! **XDP.** The frame is written where it lies; checksums follow by the same sums as everywhere (RFC 1624, [`wire::edit`]).
//!
//! **tcx.** By functions of the kernel, which know whether a buffer is shared and whether its checksum is still to be finished.
//!
//! **Registers.** R9 the record, also at [`RECORD`] on the stack, as the header takes its register.

use super::Hook;
use super::emit::{Emit, IN, NETWORK, TRANSPORT, of_key};
use super::walk::IPV4;
use crate::key::{SUMMARY, TCP, UDP};
use crate::record::{BodyShape, OPERANDS, ShapeStep};
use bpf::{Label, Op, Reg, Reg::*, When, Width::*};
use flow::field::Field;

/// Where a piece of edits goes on.
#[derive(Clone, Copy)]
pub(super) struct Walked {
    /// With the next record.
    pub again: Label,
    /// With the output.
    pub done: Label,
}

// Places on the stack.
const TURN: i16 = -16;
const RECORD: i16 = -24;
const OLD: i16 = -32;
const NEW: i16 = -40;

const STORE_BYTES: i32 = 9;
const L3_CHECKSUM: i32 = 10;
const L4_CHECKSUM: i32 = 11;
/// `BPF_F_PSEUDO_HDR`, `BPF_F_MARK_MANGLED_0`.
const PSEUDO: i32 = 0x10;
const NEVER_ZERO: i32 = 0x20;

/// Offsets of checksums in their headers.
const OF_IP: i16 = 10;
const OF_TCP: i16 = 16;
const OF_UDP: i16 = 6;

impl Emit<'_> {
    /// Goes to the edits of the record at R9; R8 is the next turn.
    pub fn walked_shapes(&mut self, ways: Walked) {
        self.a.store(B8, R10, TURN, R8);
        self.a.store(B8, R10, RECORD, R9);
        self.a.load(B4, R1, R9, 4);
        let matters =
            |shape: &BodyShape| shape.steps.iter().any(|step| step.is_edit() || *step == ShapeStep::Output);
        let records = self.source.records;
        let shapes = (0u32..).zip(&records.shapes).filter(|(_, shape)| matters(shape));
        let shapes: Vec<(u32, &BodyShape, Label)> =
            shapes.map(|(number, shape)| (number, shape, self.a.label())).collect();
        let labels: Vec<(u32, Label)> = shapes.iter().map(|(number, _, label)| (*number, *label)).collect();
        self.branch(R1, &labels, ways.again);
        for (number, shape, label) in shapes {
            self.piece(format!("edits of shape {number}"));
            self.a.place(label);
            self.walked_shape(shape, ways);
        }
    }

    /// The next turn, back in its register.
    pub fn turn_again(&mut self) {
        self.a.load(B8, R8, R10, TURN);
    }

    fn walked_shape(&mut self, shape: &BodyShape, ways: Walked) {
        let mut at = 8 * OPERANDS as i16;
        for step in &shape.steps {
            let next = self.a.label();
            self.edit_step(*step, at, next, ways);
            self.a.place(next);
            at += 8 * step.operands() as i16;
        }
        self.a.jump(ways.again);
    }

    fn edit_step(&mut self, step: ShapeStep, at: i16, next: Label, ways: Walked) {
        match step {
            ShapeStep::Output => self.stops(at, next, ways),
            ShapeStep::Address(field) => self.set_address(field, at, next),
            ShapeStep::Ipv4(field) => self.set_ipv4(field, at, next),
            ShapeStep::Port(field) => self.set_port(field, at, next),
            ShapeStep::DecTtl => self.count_down(next),
            _ => {}
        }
    }

    fn is_xdp(&self) -> bool {
        self.source.around.hook == Hook::Xdp
    }

    /// An output, unless it is to where the frame came from, ends the edits.
    fn stops(&mut self, at: i16, next: Label, ways: Walked) {
        self.a.load(B8, R1, R9, at);
        self.is_in_port(R1, ways.done);
        self.get(R2, IN);
        self.a.jump_if_reg(R1, When::NotEqual, R2, ways.done);
        self.a.jump(next);
    }

    /// The record, back in its register.
    fn record_again(&mut self) {
        self.a.load(B8, R9, R10, RECORD);
    }

    /// The frame at R8, for so many bytes from the offset that stands there; what is never so goes on. Changes R1.
    fn reach(&mut self, offset: i16, bytes: i32, otherwise: Label) {
        let (there, not) = (self.a.label(), self.a.label());
        self.header(offset, bytes, not);
        self.record_again();
        self.a.jump(there);
        self.a.place(not);
        self.record_again();
        self.a.jump(otherwise);
        self.a.place(there);
    }

    fn set_address(&mut self, field: Field, at: i16, next: Label) {
        let offset = if field == Field::EthDst { 0 } else { 6 };
        if self.is_xdp() {
            self.start_of_frame(14, next);
            self.a.load(B8, R1, R9, at + 8);
            self.a.store(B4, R8, offset, R1);
            self.a.op(Op::ShiftRight, R1, 32);
            self.a.store(B2, R8, offset + 4, R1);
        } else {
            self.a.op_reg(Op::Move, R3, R9);
            self.a.op(Op::Add, R3, i32::from(at) + 8);
            self.a.op(Op::Move, R2, i32::from(offset));
            self.store_bytes(6);
        }
    }

    /// `R8 = the frame`, of at least so many bytes. Changes R1.
    pub fn start_of_frame(&mut self, bytes: i32, otherwise: Label) {
        self.a.load(B4, R8, R6, 0);
        self.a.load(B4, R2, R6, 4);
        self.a.op_reg(Op::Move, R1, R8);
        self.a.op(Op::Add, R1, bytes);
        self.a.jump_if_reg(R1, When::Above, R2, otherwise);
    }

    /// Writes bytes at R3 to the offset in R2.
    fn store_bytes(&mut self, bytes: i32) {
        self.a.op_reg(Op::Move, R1, R6);
        self.a.op(Op::Move, R4, bytes);
        self.a.op(Op::Move, R5, 0);
        self.a.call(STORE_BYTES);
    }

    fn set_ipv4(&mut self, field: Field, at: i16, next: Label) {
        let offset = if field == Field::Ipv4Src { 12 } else { 16 };
        self.unless_ipv4(next);
        self.reach(NETWORK, 20, next);
        self.a.load(B4, R1, R8, offset);
        self.a.load(B4, R2, R9, at + 8);
        if !self.is_xdp() {
            self.a.store(B8, R10, OLD, R1);
            self.a.store(B8, R10, NEW, R2);
            self.checksum_by_kernel(L3_CHECKSUM, NETWORK, OF_IP, 4);
            self.transports_by_kernel(4);
            return self.write_new(NETWORK, offset, 4);
        }
        self.a.store(B4, R8, offset, R2);
        // The folded old words, turned; and the folded new ones.
        self.a.from_big_endian(R1, B4);
        self.a.op_reg(Op::Move, R2, R1);
        self.a.op(Op::ShiftRight, R2, 16);
        self.a.op(Op::And, R1, 0xffff);
        self.a.op_reg(Op::Add, R1, R2);
        self.fold(R1, R2);
        self.a.op(Op::Xor, R1, 0xffff);
        self.a.load(B4, R2, R9, at + 12);
        self.a.op_reg(Op::Add, R1, R2);
        self.a.store(B8, R10, OLD, R1);
        self.follow(OF_IP);
        self.a.store(B2, R8, OF_IP, R1);
        self.transports(next);
    }

    fn set_port(&mut self, field: Field, at: i16, next: Label) {
        let bit = if matches!(field, Field::TcpSrc | Field::TcpDst) { TCP } else { UDP };
        let offset = if matches!(field, Field::TcpSrc | Field::UdpSrc) { 0 } else { 2 };
        self.unless_any(bit, next);
        self.reach(TRANSPORT, 8, next);
        self.a.load(B2, R1, R8, offset);
        self.a.load(B2, R2, R9, at + 8);
        if !self.is_xdp() {
            self.a.store(B8, R10, OLD, R1);
            self.a.store(B8, R10, NEW, R2);
            let (place, flags) = if bit == TCP { (OF_TCP, 2) } else { (OF_UDP, 2 | NEVER_ZERO) };
            self.checksum_by_kernel(L4_CHECKSUM, TRANSPORT, place, flags);
            return self.write_new(TRANSPORT, offset, 2);
        }
        self.a.store(B2, R8, offset, R2);
        self.a.from_big_endian(R1, B2);
        self.a.op(Op::Xor, R1, 0xffff);
        self.a.from_big_endian(R2, B2);
        self.a.op_reg(Op::Add, R1, R2);
        self.a.store(B8, R10, OLD, R1);
        self.transports(next);
    }

    fn count_down(&mut self, next: Label) {
        let v4 = self.a.label();
        self.unless_any(crate::key::IP, next);
        self.reach(NETWORK, 20, next);
        self.unless_ipv4_then(v4);
        self.a.load(B1, R1, R8, 7);
        self.a.op(Op::Subtract, R1, 1);
        self.write_byte(7, R1);
        self.a.jump(next);
        self.a.place(v4);
        if self.is_xdp() {
            self.a.load(B1, R1, R8, 8);
            self.a.op(Op::Subtract, R1, 1);
            self.a.store(B1, R8, 8, R1);
            // Whatever the TTL was: the complement of the old word and the new one are 0xfeff together.
            self.a.store_imm(B8, R10, OLD, 0xfeff);
            self.follow(OF_IP);
            self.a.store(B2, R8, OF_IP, R1);
            return;
        }
        self.a.load(B2, R1, R8, 8);
        self.a.store(B8, R10, OLD, R1);
        self.a.from_big_endian(R1, B2);
        self.a.op(Op::Subtract, R1, 0x100);
        self.a.from_big_endian(R1, B2);
        self.a.store(B8, R10, NEW, R1);
        self.checksum_by_kernel(L3_CHECKSUM, NETWORK, OF_IP, 2);
        self.write_new(NETWORK, 8, 2);
    }

    /// Jumps when the frame is IPv4. Changes R1 to R3.
    fn unless_ipv4_then(&mut self, v4: Label) {
        self.get(R1, of_key(SUMMARY));
        self.constant(R2, IPV4.0);
        self.a.op_reg(Op::And, R1, R2);
        self.constant(R2, IPV4.1);
        self.a.jump_if_reg(R1, When::Equal, R2, v4);
    }

    /// A byte of the network header at R8.
    fn write_byte(&mut self, offset: i16, byte: Reg) {
        if self.is_xdp() {
            return self.a.store(B1, R8, offset, byte);
        }
        self.a.store(B8, R10, NEW, byte);
        self.write_new(NETWORK, offset, 1);
    }

    /// Folds a sum of less than 2^18 into 16 bits.
    fn fold(&mut self, sum: Reg, free: Reg) {
        for _ in 0..2 {
            self.a.op_reg(Op::Move, free, sum);
            self.a.op(Op::ShiftRight, free, 16);
            self.a.op(Op::And, sum, 0xffff);
            self.a.op_reg(Op::Add, sum, free);
        }
    }

    /// `R1` = the checksum at R8 + `at` after the change that stands at `OLD`, as it stands in memory. Changes R2.
    fn follow(&mut self, at: i16) {
        self.a.load(B2, R1, R8, at);
        self.a.from_big_endian(R1, B2);
        self.a.op(Op::Xor, R1, 0xffff);
        self.a.load(B8, R2, R10, OLD);
        self.a.op_reg(Op::Add, R1, R2);
        self.fold(R1, R2);
        self.a.op(Op::Xor, R1, 0xffff);
        self.a.from_big_endian(R1, B2);
    }

    /// Lets the checksum of TCP or UDP follow the change that stands at `OLD`.
    fn transports(&mut self, next: Label) {
        let (tcp, udp, sent) = (self.a.label(), self.a.label(), self.a.label());
        self.which_transport(tcp, udp, next);
        self.a.place(tcp);
        self.reach(TRANSPORT, 20, next);
        self.follow(OF_TCP);
        self.a.store(B2, R8, OF_TCP, R1);
        self.a.jump(next);
        self.a.place(udp);
        self.reach(TRANSPORT, 8, next);
        // RFC 768: none is none, and a sum of zero is sent as ones.
        self.a.load(B2, R1, R8, OF_UDP);
        self.a.jump_if(R1, When::Equal, 0, next);
        self.follow(OF_UDP);
        self.a.jump_if(R1, When::NotEqual, 0, sent);
        self.a.op(Op::Move, R1, 0xffff);
        self.a.place(sent);
        self.a.store(B2, R8, OF_UDP, R1);
    }

    fn which_transport(&mut self, tcp: Label, udp: Label, none: Label) {
        self.get(R1, of_key(SUMMARY));
        self.constant(R2, TCP);
        self.a.jump_if_reg(R1, When::AnyBit, R2, tcp);
        self.constant(R2, UDP);
        self.a.jump_if_reg(R1, When::AnyBit, R2, udp);
        self.a.jump(none);
    }

    /// The same for a buffer of the kernel: a change of addresses that the transport's checksum covers.
    fn transports_by_kernel(&mut self, bytes: i32) {
        let (tcp, udp, done) = (self.a.label(), self.a.label(), self.a.label());
        self.which_transport(tcp, udp, done);
        self.a.place(tcp);
        self.checksum_by_kernel(L4_CHECKSUM, TRANSPORT, OF_TCP, bytes | PSEUDO);
        self.a.jump(done);
        self.a.place(udp);
        self.checksum_by_kernel(L4_CHECKSUM, TRANSPORT, OF_UDP, bytes | PSEUDO | NEVER_ZERO);
        self.a.place(done);
    }

    /// Lets the kernel mend a checksum for a change from what stands at `OLD` to what stands at `NEW`.
    fn checksum_by_kernel(&mut self, function: i32, header: i16, at: i16, flags: i32) {
        self.a.op_reg(Op::Move, R1, R6);
        self.get(R2, header);
        self.a.op(Op::Add, R2, i32::from(at));
        self.a.load(B8, R3, R10, OLD);
        self.a.load(B8, R4, R10, NEW);
        self.a.op(Op::Move, R5, flags);
        self.a.call(function);
    }

    /// Lets the kernel write what stands at `NEW`.
    fn write_new(&mut self, header: i16, at: i16, bytes: i32) {
        self.get(R2, header);
        self.a.op(Op::Add, R2, i32::from(at));
        self.a.op_reg(Op::Move, R3, R10);
        self.a.op(Op::Add, R3, i32::from(NEW));
        self.store_bytes(bytes);
    }
}
