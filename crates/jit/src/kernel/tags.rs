//! VLAN tags.
//!
//! **First walk.** The tags of a frame are a stack in the scratch memory, the innermost first, four bytes each as they stand in a frame. Pushes, pops and new
//! values change the stack, the key and the length; an output notes the stack as it is then.
//!
//! **Second walk.** The tags are written once, before all other edits, as the output found them. At XDP the frame gets a new beginning; at tcx
//! the kernel pops what changed and pushes what is to be there, as it keeps the outermost tag beside the frame.
//!
//! **Price.** Frames with more than four tags exit.

use super::Hook;
use super::emit::{Emit, LENGTH, NETWORK, TRANSPORT, of_key};
use crate::key::{SUMMARY, TAGGED};
use crate::record::ShapeStep;
use bpf::{Label, Op, Reg::*, When, Width::*};
use wire::edit::LONGEST;

/// The stack, and what it is made from when the frame has two tags.
const STACK: i16 = 320;
/// How many tags the frame had.
const CAME: i16 = 336;
/// What is known of a stack: how many tags, how many of the innermost nobody touched, zeros behind the frame, whether anything changed.
const TAGS: i16 = 344;
const KEPT: i16 = 352;
const PADS: i16 = 360;
const CHANGED: i16 = 368;
/// The same as the output found it: so many bytes on.
const AT_OUTPUT: i16 = 64;
const OUT_STACK: i16 = 376;
/// Most tags of a frame.
const MOST: i32 = 4;
/// What is longer, a push leaves as it is: user space does that. TCP's super-frames (65,281 bytes at most) all stay here; where some
/// exit, the others overtake them.
const LONGEST_TO_PUSH: i32 = LONGEST as i32 - 4;

const VLAN_PUSH: i32 = 18;
const VLAN_POP: i32 = 19;
const CHANGE_TAIL: i32 = 38;
const ADJUST_HEAD: i32 = 44;
const ADJUST_TAIL: i32 = 65;
const SKB_LENGTH: i16 = 0;
const SKB_VLAN_PROTOCOL: i16 = 28;
const SKB_VLAN_TCI: i16 = 24;
// Ethernet addresses on the stack.
const ADDRESSES: i16 = -56;
/// The drop-eligible bit of a tag in memory.
const ELIGIBLE: i32 = 0x0010_0000;

impl Emit<'_> {
    /// Whether any rule changes tags.
    pub fn changes_tags(&self) -> bool {
        let steps = self.source.records.shapes.iter().flat_map(|shape| &shape.steps);
        let is_of_tags =
            |step: &ShapeStep| matches!(step, ShapeStep::Tag(_) | ShapeStep::PushVlan | ShapeStep::PopVlan);
        steps.into_iter().any(is_of_tags)
    }

    /// Notes the tag that the header at R8 is behind, the `number`th. Changes R1.
    pub fn note_tag(&mut self, number: i32) {
        if !self.changes_tags() {
            return;
        }
        if number == 2 {
            self.a.load(B4, R1, R7, STACK);
            self.a.store(B4, R7, STACK + 4, R1);
        }
        self.a.load(B4, R1, R8, -2);
        self.a.store(B4, R7, STACK, R1);
        self.put_constant(CAME, number);
    }

    /// Notes the tag that the kernel keeps beside the frame. Changes R1 and R2.
    pub fn note_tag_beside(&mut self) {
        if !self.changes_tags() {
            return;
        }
        self.a.load(B4, R1, R6, SKB_VLAN_TCI);
        self.a.from_big_endian(R1, B2);
        self.a.store(B2, R7, STACK + 2, R1);
        self.a.load(B4, R1, R6, SKB_VLAN_PROTOCOL);
        self.a.store(B2, R7, STACK, R1);
        self.put_constant(CAME, 1);
    }

    /// Before the parser.
    pub fn no_tags(&mut self) {
        if self.changes_tags() {
            self.put_constant(CAME, 0);
        }
    }

    /// Behind the parser. Changes R1.
    pub fn prepare_tags(&mut self) {
        if !self.changes_tags() {
            return;
        }
        self.get(R1, CAME);
        self.put(TAGS, R1);
        self.put(KEPT, R1);
        self.put_constant(PADS, 0);
        self.put_constant(CHANGED, 0);
        self.put_constant(CHANGED + AT_OUTPUT, 0);
    }

    /// An output finds the stack like this. Changes R1.
    pub fn note_stack(&mut self) {
        if !self.changes_tags() {
            return;
        }
        for place in [TAGS, KEPT, PADS, CHANGED] {
            self.get(R1, place);
            self.put(place + AT_OUTPUT, R1);
        }
        for half in [0, 8] {
            self.get(R1, STACK + half);
            self.put(OUT_STACK + half, R1);
        }
    }

    /// `R3` = where the tag above R2 tags stands, without the offset of the stack; exits when there is no room. Changes R3.
    fn tag_above(&mut self) {
        self.a.jump_if(R2, When::AtLeast, MOST, self.exit);
        self.a.op_reg(Op::Move, R3, R2);
        self.a.op(Op::ShiftLeft, R3, 2);
        self.a.op_reg(Op::Add, R3, R7);
    }

    /// Of the tags below R2 none was touched, at most. Changes R1.
    fn touch(&mut self) {
        let is_less = self.a.label();
        self.put_constant(CHANGED, 1);
        self.get(R1, KEPT);
        self.a.jump_if_reg(R1, When::AtMost, R2, is_less);
        self.put(KEPT, R2);
        self.a.place(is_less);
    }

    pub fn push_tag(&mut self, at: i16) {
        let bare = self.a.label();
        self.get(R1, LENGTH);
        self.a.jump_if(R1, When::Above, LONGEST_TO_PUSH, self.exit);
        self.a.op(Op::Add, R1, 4);
        self.put(LENGTH, R1);
        self.get(R2, TAGS);
        self.tag_above();
        self.a.op(Op::Move, R4, 0);
        self.a.jump_if(R2, When::Equal, 0, bare);
        self.a.load(B4, R4, R3, STACK - 4);
        // The drop-eligible bit is not copied.
        self.a.op(Op::ShiftRight, R4, 16);
        self.a.op(Op::ShiftLeft, R4, 16);
        self.a.op(Op::And, R4, !ELIGIBLE);
        self.a.place(bare);
        self.a.load(B8, R1, R9, at + 8);
        self.a.op_reg(Op::Or, R4, R1);
        self.a.store(B4, R3, STACK, R4);
        self.a.op(Op::Add, R2, 1);
        self.put(TAGS, R2);
        self.put_constant(CHANGED, 1);
        self.get(R1, of_key(SUMMARY));
        self.a.op(Op::Or, R1, TAGGED as i32);
        self.put(of_key(SUMMARY), R1);
    }

    pub fn pop_tag(&mut self, next: Label) {
        let (long, popped, bare) = (self.a.label(), self.a.label(), self.a.label());
        self.unless_any(TAGGED, next);
        self.get(R1, LENGTH);
        self.a.jump_if(R1, When::Below, 60, long);
        self.a.jump_if(R1, When::Above, 63, long);
        // 60 to 63 bytes would be too short: zeros follow (IEEE 802.3 section 3.2.8).
        self.a.op(Op::Move, R3, 64);
        self.a.op_reg(Op::Subtract, R3, R1);
        self.get(R4, PADS);
        self.a.op_reg(Op::Add, R4, R3);
        self.put(PADS, R4);
        self.put_constant(LENGTH, 60);
        self.a.jump(popped);
        self.a.place(long);
        self.a.op(Op::Subtract, R1, 4);
        self.put(LENGTH, R1);
        self.a.place(popped);
        self.get(R2, TAGS);
        self.a.jump_if(R2, When::Equal, 0, self.exit);
        self.a.op(Op::Subtract, R2, 1);
        self.put(TAGS, R2);
        self.touch();
        self.a.op(Op::Move, R4, 0);
        self.a.jump_if(R2, When::Equal, 0, bare);
        self.tag_above();
        self.a.load(B2, R4, R3, STACK - 2);
        self.tag_in_key();
        self.a.place(bare);
        self.key_has_tag();
    }

    /// The tag in R4, as it stands in memory, becomes what the key has of it. Changes R4.
    fn tag_in_key(&mut self) {
        self.a.from_big_endian(R4, B2);
        self.a.op(Op::ShiftLeft, R4, 16);
        self.a.op(Op::Or, R4, TAGGED as i32);
    }

    /// What the key has of its tag is R4 now. Changes R1 and R3.
    fn key_has_tag(&mut self) {
        self.get(R1, of_key(SUMMARY));
        self.constant(R3, !0xffff_0000);
        self.a.op_reg(Op::And, R1, R3);
        self.a.op_reg(Op::Or, R1, R4);
        self.put(of_key(SUMMARY), R1);
    }

    pub fn set_tag(&mut self, at: i16, next: Label) {
        self.unless_any(TAGGED, next);
        self.get(R2, TAGS);
        self.a.jump_if(R2, When::Equal, 0, self.exit);
        self.a.op(Op::Subtract, R2, 1);
        self.tag_above();
        self.touch();
        self.a.load(B2, R4, R3, STACK + 2);
        self.a.load(B8, R1, R9, at + 16);
        self.a.op_reg(Op::And, R4, R1);
        self.a.load(B8, R1, R9, at + 8);
        self.a.op_reg(Op::Or, R4, R1);
        self.a.store(B2, R3, STACK + 2, R4);
        self.tag_in_key();
        self.key_has_tag();
    }

    /// Writes the tags as the output found them.
    pub fn retag(&mut self) {
        if !self.changes_tags() {
            return;
        }
        self.piece("tags");
        let same = self.a.label();
        self.get(R1, CHANGED + AT_OUTPUT);
        self.a.jump_if(R1, When::Equal, 0, same);
        match self.source.around.hook {
            Hook::Xdp => self.retag_frame(),
            Hook::Tcx => self.retag_buffer(),
        }
        self.a.place(same);
    }

    fn retag_frame(&mut self) {
        let (unpadded, moved, failed, done) =
            (self.a.label(), self.a.label(), self.a.label(), self.a.label());
        self.get(R2, PADS + AT_OUTPUT);
        self.a.jump_if(R2, When::Equal, 0, unpadded);
        self.a.op_reg(Op::Move, R1, R6);
        self.a.call(ADJUST_TAIL);
        self.a.jump_if(R0, When::NotEqual, 0, self.exit);
        self.a.place(unpadded);
        self.start_of_frame(14, self.exit);
        self.a.load(B8, R1, R8, 0);
        self.a.store(B8, R10, ADDRESSES, R1);
        self.a.load(B4, R1, R8, 8);
        self.a.store(B8, R10, ADDRESSES + 8, R1);
        self.get(R2, CAME);
        self.get(R1, TAGS + AT_OUTPUT);
        self.a.op_reg(Op::Subtract, R2, R1);
        self.a.op(Op::ShiftLeft, R2, 2);
        self.shift_headers();
        self.a.jump_if(R2, When::Equal, 0, moved);
        self.a.op_reg(Op::Move, R1, R6);
        self.a.call(ADJUST_HEAD);
        self.a.jump_if(R0, When::NotEqual, 0, failed);
        self.a.place(moved);
        self.start_of_frame(14, self.exit);
        self.a.load(B8, R1, R10, ADDRESSES);
        self.a.store(B8, R8, 0, R1);
        self.a.load(B8, R1, R10, ADDRESSES + 8);
        self.a.store(B4, R8, 8, R1);
        (0..MOST).for_each(|turn| self.write_tag(turn, done));
        self.a.jump(done);
        self.a.place(failed);
        // No room in front: as it came.
        self.get(R2, PADS + AT_OUTPUT);
        self.a.push(bpf::Instruction::Negate { wide: true, dst: R2 });
        self.a.op_reg(Op::Move, R1, R6);
        self.a.call(ADJUST_TAIL);
        self.a.jump(self.exit);
        self.a.place(done);
    }

    /// The headers begin R2 bytes earlier. Changes R1.
    fn shift_headers(&mut self) {
        for place in [NETWORK, TRANSPORT] {
            self.get(R1, place);
            self.a.op_reg(Op::Subtract, R1, R2);
            self.put(place, R1);
        }
    }

    /// Writes the tag that so many are outside of, into the frame at R8. Changes R1 and R2.
    fn write_tag(&mut self, turn: i32, done: Label) {
        self.get(R1, TAGS + AT_OUTPUT);
        self.a.jump_if(R1, When::AtMost, turn, done);
        self.a.jump_if(R1, When::Above, MOST, done);
        self.a.op(Op::ShiftLeft, R1, 2);
        self.a.op_reg(Op::Add, R1, R7);
        let at = 12 + 4 * turn as i16;
        self.a.load(B4, R3, R1, OUT_STACK - 4 * (turn as i16 + 1));
        self.a.load(B4, R2, R6, 4);
        self.a.op_reg(Op::Move, R1, R8);
        self.a.op(Op::Add, R1, i32::from(at) + 4);
        self.a.jump_if_reg(R1, When::Above, R2, done);
        self.a.store(B4, R8, at, R3);
    }

    fn retag_buffer(&mut self) {
        let (pushed, unpadded, inside) = (self.a.label(), self.a.label(), self.a.label());
        // Where headers begin when the outermost tag stands beside the frame.
        let same = self.a.label();
        self.get(R3, KEPT + AT_OUTPUT);
        self.get(R1, CAME);
        self.get(R2, TAGS + AT_OUTPUT);
        let changed = self.a.label();
        self.a.jump_if_reg(R1, When::NotEqual, R3, changed);
        self.a.jump_if_reg(R2, When::Equal, R3, same);
        self.a.place(changed);
        self.a.jump_if(R2, When::Equal, 0, inside);
        self.a.op(Op::Subtract, R2, 1);
        self.a.place(inside);
        self.a.op(Op::ShiftLeft, R2, 2);
        self.a.op(Op::Add, R2, 14);
        self.get(R1, NETWORK);
        self.a.op_reg(Op::Subtract, R1, R2);
        self.a.op_reg(Op::Move, R2, R1);
        self.shift_headers();
        (0..MOST).for_each(|turn| self.pop_one(turn));
        (0..MOST).for_each(|turn| self.push_one(turn, pushed));
        self.a.place(pushed);
        self.a.place(same);
        self.get(R3, PADS + AT_OUTPUT);
        self.a.jump_if(R3, When::Equal, 0, unpadded);
        self.a.load(B4, R2, R6, SKB_LENGTH);
        self.a.op_reg(Op::Add, R2, R3);
        self.a.op_reg(Op::Move, R1, R6);
        self.a.op(Op::Move, R3, 0);
        self.a.call(CHANGE_TAIL);
        self.a.place(unpadded);
    }

    fn pop_one(&mut self, turn: i32) {
        let enough = self.a.label();
        self.get(R1, CAME);
        self.get(R2, KEPT + AT_OUTPUT);
        self.a.op_reg(Op::Subtract, R1, R2);
        self.a.jump_if(R1, When::AtMost, turn, enough);
        self.a.op_reg(Op::Move, R1, R6);
        self.a.call(VLAN_POP);
        self.a.jump_if(R0, When::NotEqual, 0, self.exit);
        self.a.place(enough);
    }

    fn push_one(&mut self, turn: i32, enough: Label) {
        self.get(R1, KEPT + AT_OUTPUT);
        self.a.op(Op::Add, R1, turn);
        self.get(R2, TAGS + AT_OUTPUT);
        self.a.jump_if_reg(R1, When::AtLeast, R2, enough);
        self.a.jump_if(R1, When::AtLeast, MOST, enough);
        self.a.op(Op::ShiftLeft, R1, 2);
        self.a.op_reg(Op::Add, R1, R7);
        self.a.load(B2, R2, R1, OUT_STACK);
        self.a.load(B2, R3, R1, OUT_STACK + 2);
        self.a.from_big_endian(R3, B2);
        self.a.op_reg(Op::Move, R1, R6);
        self.a.call(VLAN_PUSH);
        self.a.jump_if(R0, When::NotEqual, 0, self.exit);
    }
}
