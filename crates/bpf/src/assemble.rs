//! A builder of programs, with labels: jumps name a label, and [`Assembler::finish`] turns labels into distances.

use crate::Constant::{Map, MapValue};
use crate::Instruction as I;
use crate::{Instruction, Op, Operand, Order, Reg, When, Width};
use std::collections::HashMap;

/// A place in the program that is jumped to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// Why a program could not be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssembleError {
    /// A label is jumped to but was never placed.
    Unplaced,
    /// A jump is farther than 32767 instructions.
    TooFar,
}

/// The program so far.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<u64>,
    places: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Any instruction, as it is.
    pub fn push(&mut self, instruction: Instruction) {
        let (first, second) = instruction.encode();
        self.code.extend([Some(first), second].into_iter().flatten());
    }

    /// How many words there are.
    pub fn position(&self) -> usize {
        self.code.len()
    }

    /// A label that is not placed yet.
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Places the label here.
    pub fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.code.len());
    }

    /// `dst op= immediate`.
    pub fn op(&mut self, op: Op, dst: Reg, immediate: i32) {
        self.push(I::Arithmetic { wide: true, op, dst, operand: Operand::Imm(immediate) });
    }

    /// `dst op= immediate` on the low 32 bits; the high half becomes 0.
    pub fn op_u32(&mut self, op: Op, dst: Reg, immediate: i32) {
        self.push(I::Arithmetic { wide: false, op, dst, operand: Operand::Imm(immediate) });
    }

    /// `dst op= src`.
    pub fn op_reg(&mut self, op: Op, dst: Reg, src: Reg) {
        self.push(I::Arithmetic { wide: true, op, dst, operand: Operand::Reg(src) });
    }

    /// Reads big-endian bytes of that width into the host's order, in place.
    pub fn from_big_endian(&mut self, dst: Reg, width: Width) {
        if width != Width::B1 {
            self.push(I::Reorder { order: Order::Big, dst, bits: width.bytes() as u8 * 8 });
        }
    }

    /// `dst = *(base + offset)`.
    pub fn load(&mut self, width: Width, dst: Reg, base: Reg, offset: i16) {
        self.push(I::Load { width, dst, base, offset });
    }

    /// `*(base + offset) = src`.
    pub fn store(&mut self, width: Width, base: Reg, offset: i16, src: Reg) {
        self.push(I::Store { width, base, offset, value: Operand::Reg(src) });
    }

    /// `*(base + offset) = immediate`.
    pub fn store_imm(&mut self, width: Width, base: Reg, offset: i16, immediate: i32) {
        self.push(I::Store { width, base, offset, value: Operand::Imm(immediate) });
    }

    /// `dst = the map of that descriptor`.
    pub fn load_map(&mut self, dst: Reg, fd: i32) {
        self.push(I::LoadConstant { dst, constant: Map(fd) });
    }

    /// `dst = a pointer to the first value of the array map of that descriptor`.
    pub fn load_map_value(&mut self, dst: Reg, fd: i32) {
        self.push(I::LoadConstant { dst, constant: MapValue(fd, 0) });
    }

    fn push_jump(&mut self, to: Label, instruction: Instruction) {
        self.jumps.push((self.code.len(), to));
        self.push(instruction);
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) {
        self.push_jump(to, I::Jump { distance: 0 });
    }

    /// Jumps if `left when immediate` (the immediate is sign-extended to 64 bits).
    pub fn jump_if(&mut self, left: Reg, when: When, immediate: i32, to: Label) {
        let right = Operand::Imm(immediate);
        self.push_jump(to, I::JumpIf { wide: true, when, left, right, distance: 0 });
    }

    /// Jumps if `left when right`.
    pub fn jump_if_reg(&mut self, left: Reg, when: When, right: Reg, to: Label) {
        let right = Operand::Reg(right);
        self.push_jump(to, I::JumpIf { wide: true, when, left, right, distance: 0 });
    }

    /// Jumps if the low 32 bits of `left` are `when immediate`.
    pub fn jump_if_u32(&mut self, left: Reg, when: When, immediate: u32, to: Label) {
        let right = Operand::Imm(immediate as i32);
        self.push_jump(to, I::JumpIf { wide: false, when, left, right, distance: 0 });
    }

    /// Calls a kernel function by its number; the result is in `R0`.
    pub fn call(&mut self, function: i32) {
        self.push(I::Call { function });
    }

    /// Ends the program with the result in `R0`.
    pub fn exit(&mut self) {
        self.push(I::Exit);
    }

    /// The finished program without the instructions that nothing leads to, which the kernel's verifier refuses; and for each word, and the
    /// end, where it went: for one that is gone, where the next one went.
    ///
    /// # Errors
    /// As [`Assembler::finish`].
    pub fn finish_reached(mut self) -> Result<(Vec<u64>, Vec<usize>), AssembleError> {
        let reached = self.reached()?;
        let mut moved = Vec::with_capacity(reached.len() + 1);
        let mut kept = 0;
        for is_reached in &reached {
            moved.push(kept);
            kept += usize::from(*is_reached);
        }
        moved.push(kept);
        let mut number = 0;
        self.code.retain(|_| {
            number += 1;
            reached[number - 1]
        });
        self.jumps.retain(|(at, _)| reached[*at]);
        self.jumps.iter_mut().for_each(|(at, _)| *at = moved[*at]);
        self.places.iter_mut().flatten().for_each(|place| *place = moved[*place]);
        Ok((self.finish()?, moved))
    }

    /// Which words can be come to from the first one.
    fn reached(&self) -> Result<Vec<bool>, AssembleError> {
        let targets: HashMap<usize, Label> = self.jumps.iter().copied().collect();
        let mut reached = vec![false; self.code.len()];
        let mut open = vec![0];
        while let Some(at) = open.pop() {
            if at >= reached.len() || std::mem::replace(&mut reached[at], true) {
                continue;
            }
            let (instruction, words) = Instruction::decode(&self.code[at..]).unwrap_or((I::Exit, 1));
            reached[at..at + words].fill(true);
            if let Some(label) = targets.get(&at) {
                open.push(self.places[label.0].ok_or(AssembleError::Unplaced)?);
            }
            if !matches!(instruction, I::Exit | I::Jump { .. }) {
                open.push(at + words);
            }
        }
        Ok(reached)
    }

    /// The finished program, eight bytes per instruction.
    ///
    /// # Errors
    /// [`AssembleError`] when a label was never placed or a jump is too far.
    pub fn finish(mut self) -> Result<Vec<u64>, AssembleError> {
        for &(at, label) in &self.jumps {
            let target = self.places[label.0].ok_or(AssembleError::Unplaced)?;
            // A distance counts from the instruction after the jump.
            let distance = target as i64 - at as i64 - 1;
            let distance = i16::try_from(distance).map_err(|_| AssembleError::TooFar)?.to_le_bytes();
            let mut bytes = self.code[at].to_le_bytes();
            bytes[2..4].copy_from_slice(&distance);
            self.code[at] = u64::from_le_bytes(bytes);
        }
        Ok(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(program: &[u64]) -> Vec<[u8; 8]> {
        program.iter().map(|instruction| instruction.to_le_bytes()).collect()
    }

    #[test]
    fn instructions_have_the_bytes_of_the_standard() {
        let mut a = Assembler::new();
        a.op(Op::Move, Reg::R0, 7);
        a.op_reg(Op::Add, Reg::R1, Reg::R6);
        a.load(Width::B8, Reg::R6, Reg::R1, 16);
        a.store(Width::B4, Reg::R10, -4, Reg::R2);
        a.from_big_endian(Reg::R3, Width::B2);
        a.call(113);
        a.exit();
        let expected: Vec<[u8; 8]> = vec![
            [0xb7, 0x00, 0, 0, 7, 0, 0, 0],
            [0x0f, 0x61, 0, 0, 0, 0, 0, 0],
            [0x79, 0x16, 16, 0, 0, 0, 0, 0],
            [0x63, 0x2a, 0xfc, 0xff, 0, 0, 0, 0],
            [0xdc, 0x03, 0, 0, 16, 0, 0, 0],
            [0x85, 0x00, 0, 0, 113, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes(&a.finish().expect("no jumps")), expected);
    }

    #[test]
    fn labels_become_distances_in_both_directions() {
        let mut a = Assembler::new();
        let (back, ahead) = (a.label(), a.label());
        a.place(back);
        a.jump_if(Reg::R1, When::Equal, 5, ahead); // 0 → 3
        a.load_map(Reg::R1, 9); // takes two
        a.place(ahead);
        a.jump(back); // 3 → 0
        let code = bytes(&a.finish().expect("both placed"));
        assert_eq!(code[0], [0x15, 0x01, 2, 0, 5, 0, 0, 0]);
        assert_eq!(code[1], [0x18, 0x11, 0, 0, 9, 0, 0, 0]);
        assert_eq!(code[3], [0x05, 0x00, 0xfc, 0xff, 0, 0, 0, 0]);
    }

    #[test]
    fn what_nothing_leads_to_is_left_out() {
        let mut a = Assembler::new();
        let (out, dead) = (a.label(), a.label());
        a.jump_if(Reg::R1, When::Equal, 5, out); // 0
        a.load_map(Reg::R0, 9); // 1, 2
        a.jump(out); // 3
        a.place(dead);
        a.load_map(Reg::R2, 9); // 4, 5: gone
        a.jump_if(Reg::R1, When::Equal, 6, dead); // 6: gone
        a.place(out);
        a.exit(); // 7
        let (code, moved) = a.finish_reached().expect("all placed");
        assert_eq!(moved, [0, 1, 2, 3, 4, 4, 4, 4, 5]);
        let text: Vec<String> =
            crate::disassemble(&code).lines().map(|line| line.trim().to_owned()).collect();
        assert_eq!(text, ["0: if r1 == 5 goto +3", "1: r0 = map[fd 9]", "3: goto +0", "4: exit"]);
    }

    #[test]
    fn what_cannot_be_reached_is_an_error() {
        let mut a = Assembler::new();
        let nowhere = a.label();
        a.jump(nowhere);
        assert_eq!(a.finish(), Err(AssembleError::Unplaced));
        let mut a = Assembler::new();
        let far = a.label();
        a.jump(far);
        (0..40_000).for_each(|_| a.op(Op::Move, Reg::R0, 0));
        a.place(far);
        assert_eq!(a.finish(), Err(AssembleError::TooFar));
    }
}
