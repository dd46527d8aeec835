//! Carries a program out, over memory and functions that the caller gives.
//!
//! **What.** [`run`] follows the instructions as RFC 9669 says them (division by 0 gives 0, the rest of it leaves its
//! operand, shifts count modulo the width). What the verifier would forbid ends the run with a [`ExecutionError`]: a load outside the
//! memory, a jump out of the program, a program without end.
//!
//! **Why.** So that a program can be compared with a plain description of it on thousands of inputs, in a test, without a kernel.
//!
//! **Price.** A descriptor stands for its map: what a [`Host`] is given where the kernel's function gets a map is the number of its
//! descriptor. Registers that a call or the start leaves undefined are 0, which the verifier would not let a program read.

use std::collections::BTreeMap;

use crate::{Constant, Instruction, Op, Operand, Order, Reg, When};

/// Bytes of a program's stack; its end is in `R10`.
pub const STACK_BYTES: usize = 512;
/// Where the stack begins.
pub const STACK: u64 = 0xffff_0000_0000;

/// Why a program could not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionError {
    /// There is no instruction that this machine knows at that word.
    NoInstruction(usize),
    /// A load or store of bytes that are not there.
    Memory(u64),
    /// The host does not have that function.
    Function(i32),
    /// The host has no array map of that descriptor.
    Map(i32),
    /// It did not end within the given number of instructions.
    Endless,
}

/// Memory in pieces; nothing is between them.
#[derive(Debug, Clone, Default)]
pub struct Memory(BTreeMap<u64, Vec<u8>>);

impl Memory {
    /// Puts a piece at an address.
    pub fn insert(&mut self, address: u64, bytes: Vec<u8>) {
        self.0.insert(address, bytes);
    }

    /// So many bytes at an address.
    ///
    /// # Errors
    /// [`ExecutionError::Memory`] when they are not in one piece.
    pub fn bytes(&mut self, address: u64, length: usize) -> Result<&mut [u8], ExecutionError> {
        let piece = self.0.range_mut(..=address).next_back();
        let found = piece.and_then(|(base, bytes)| {
            let at = usize::try_from(address - base).ok()?;
            bytes.get_mut(at..at.checked_add(length)?)
        });
        found.ok_or(ExecutionError::Memory(address))
    }

    /// The number in up to eight bytes.
    ///
    /// # Errors
    /// [`ExecutionError::Memory`].
    pub fn read(&mut self, address: u64, length: usize) -> Result<u64, ExecutionError> {
        let mut word = [0; 8];
        word[..length].copy_from_slice(self.bytes(address, length)?);
        Ok(u64::from_le_bytes(word))
    }

    fn write(&mut self, address: u64, length: usize, value: u64) -> Result<(), ExecutionError> {
        self.bytes(address, length)?.copy_from_slice(&value.to_le_bytes()[..length]);
        Ok(())
    }
}

/// What a program or a function gives.
pub type Execution = Result<u64, ExecutionError>;

/// What a program can call.
pub trait Host {
    /// Calls a function with `R1` to `R5`; the result goes to `R0`.
    ///
    /// # Errors
    /// [`ExecutionError::Function`] for one that is not there, or what became of its memory.
    fn call(&mut self, memory: &mut Memory, function: i32, arguments: [u64; 5]) -> Execution {
        let _ = (memory, arguments);
        Err(ExecutionError::Function(function))
    }

    /// Where the first value of an array map is.
    fn map_value(&self, fd: i32) -> Option<u64> {
        let _ = fd;
        None
    }
}

/// A host without functions and maps.
impl Host for () {}

/// Runs a program with `context` in `R1`; gives the result.
///
/// # Errors
/// A [`ExecutionError`], at the latest after that many instructions.
pub fn run(
    program: &[u64],
    memory: &mut Memory,
    host: &mut dyn Host,
    context: u64,
    instructions: usize,
) -> Result<u64, ExecutionError> {
    memory.insert(STACK, vec![0; STACK_BYTES]);
    let mut machine = Machine { registers: [0; 11], memory, host };
    machine.registers[Reg::R1 as usize] = context;
    machine.registers[Reg::R10 as usize] = STACK + STACK_BYTES as u64;
    let mut at = 0usize;
    for _ in 0..instructions {
        let rest = program.get(at..).unwrap_or_default();
        let (instruction, length) = Instruction::decode(rest).ok_or(ExecutionError::NoInstruction(at))?;
        match machine.step(instruction)? {
            Next::Exit => return Ok(machine.registers[0]),
            Next::After(distance) => {
                at = (at + length)
                    .checked_add_signed(distance.into())
                    .ok_or(ExecutionError::NoInstruction(at))?;
            }
        }
    }
    Err(ExecutionError::Endless)
}

enum Next {
    Exit,
    /// So many instructions after the next.
    After(i16),
}

struct Machine<'a> {
    registers: [u64; 11],
    memory: &'a mut Memory,
    host: &'a mut dyn Host,
}

impl Machine<'_> {
    fn get(&self, operand: Operand) -> u64 {
        match operand {
            Operand::Reg(reg) => self.registers[reg as usize],
            Operand::Imm(immediate) => i64::from(immediate) as u64,
        }
    }

    fn set(&mut self, reg: Reg, value: u64) {
        self.registers[reg as usize] = value;
    }

    fn address(&self, base: Reg, offset: i16) -> u64 {
        self.registers[base as usize].wrapping_add_signed(offset.into())
    }

    fn step(&mut self, instruction: Instruction) -> Result<Next, ExecutionError> {
        match instruction {
            Instruction::Exit => return Ok(Next::Exit),
            Instruction::Jump { distance } => return Ok(Next::After(distance)),
            Instruction::JumpIf { wide, when, left, right, distance } => {
                let (left, right) = (self.get(Operand::Reg(left)), self.get(right));
                return Ok(Next::After(if holds(wide, when, left, right) { distance } else { 0 }));
            }
            Instruction::Arithmetic { wide, op, dst, operand } => {
                let (left, right) = (self.get(Operand::Reg(dst)), self.get(operand));
                self.set(dst, if wide { compute(op, left, right) } else { compute32(op, left, right) });
            }
            Instruction::Negate { wide, dst } => {
                let negative = self.registers[dst as usize].wrapping_neg();
                self.set(dst, if wide { negative } else { low(negative) });
            }
            Instruction::Reorder { order, dst, bits } => {
                self.set(dst, reorder(order, bits, self.registers[dst as usize]));
            }
            Instruction::Load { width, dst, base, offset } => {
                let value = self.memory.read(self.address(base, offset), width.bytes())?;
                self.set(dst, value);
            }
            Instruction::Store { width, base, offset, value } => {
                let (address, value) = (self.address(base, offset), self.get(value));
                self.memory.write(address, width.bytes(), value)?;
            }
            Instruction::LoadConstant { dst, constant } => {
                let value = self.constant(constant)?;
                self.set(dst, value);
            }
            Instruction::Call { function } => self.call(function)?,
        }
        Ok(Next::After(0))
    }

    fn constant(&self, constant: Constant) -> Result<u64, ExecutionError> {
        match constant {
            Constant::Number(number) => Ok(number),
            Constant::Map(fd) => Ok(fd as u32 as u64),
            Constant::MapValue(fd, after) => {
                let first = self.host.map_value(fd).ok_or(ExecutionError::Map(fd))?;
                Ok(first.wrapping_add(after.into()))
            }
        }
    }

    fn call(&mut self, function: i32) -> Result<(), ExecutionError> {
        let [_, a, b, c, d, e, ..] = self.registers;
        let result = self.host.call(self.memory, function, [a, b, c, d, e])?;
        self.registers[..6].fill(0);
        self.set(Reg::R0, result);
        Ok(())
    }
}

fn low(value: u64) -> u64 {
    value & 0xffff_ffff
}

fn holds(wide: bool, when: When, left: u64, right: u64) -> bool {
    let (left, right) = if wide { (left, right) } else { (low(left), low(right)) };
    let signed = |value: u64| if wide { value as i64 } else { i64::from(value as u32 as i32) };
    match when {
        When::Equal => left == right,
        When::NotEqual => left != right,
        When::Above => left > right,
        When::AtLeast => left >= right,
        When::Below => left < right,
        When::AtMost => left <= right,
        When::AnyBit => left & right != 0,
        When::SignedAbove => signed(left) > signed(right),
        When::SignedAtLeast => signed(left) >= signed(right),
        When::SignedBelow => signed(left) < signed(right),
        When::SignedAtMost => signed(left) <= signed(right),
    }
}

fn compute(op: Op, left: u64, right: u64) -> u64 {
    match op {
        Op::Add => left.wrapping_add(right),
        Op::Subtract => left.wrapping_sub(right),
        Op::Multiply => left.wrapping_mul(right),
        Op::Divide => left.checked_div(right).unwrap_or(0),
        Op::Modulo => left.checked_rem(right).unwrap_or(left),
        Op::Or => left | right,
        Op::And => left & right,
        Op::Xor => left ^ right,
        Op::ShiftLeft => left.wrapping_shl(right as u32),
        Op::ShiftRight => left.wrapping_shr(right as u32),
        Op::SignedShiftRight => (left as i64).wrapping_shr(right as u32) as u64,
        Op::Move => right,
    }
}

/// On the low halves; the high half of the result is 0.
fn compute32(op: Op, left: u64, right: u64) -> u64 {
    match op {
        Op::ShiftLeft => low(low(left) << (right & 31)),
        Op::ShiftRight => low(left) >> (right & 31),
        Op::SignedShiftRight => ((left as u32 as i32) >> (right & 31)) as u32 as u64,
        _ => low(compute(op, low(left), low(right))),
    }
}

fn reorder(order: Order, bits: u8, value: u64) -> u64 {
    let bits = u32::from(bits).clamp(8, 64);
    match order {
        Order::Little => value & (u64::MAX >> (64 - bits)),
        Order::Big | Order::Swap => value.swap_bytes() >> (64 - bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::tests::{instruction, words};
    use crate::{Assembler, Reg::*, Width};
    use proptest::prelude::*;

    fn result(program: &[u64], context: u64) -> Result<u64, ExecutionError> {
        run(program, &mut Memory::default(), &mut (), context, 1000)
    }

    /// 1 × 2 × … × n by a loop.
    #[test]
    fn a_loop_computes_a_factorial() {
        let mut a = Assembler::new();
        let (again, out) = (a.label(), a.label());
        a.op(Op::Move, R0, 1);
        a.place(again);
        a.jump_if(R1, When::AtMost, 1, out);
        a.op_reg(Op::Multiply, R0, R1);
        a.op(Op::Subtract, R1, 1);
        a.jump(again);
        a.place(out);
        a.exit();
        let code = a.finish().unwrap();
        assert_eq!(result(&code, 10), Ok(3_628_800));
        assert_eq!(result(&code, 0), Ok(1));
        assert_eq!(result(&code, u64::MAX), Err(ExecutionError::Endless));
    }

    #[test]
    fn arithmetic_is_that_of_the_standard() {
        let minus = |value: i64| value as u64;
        // Operation, operands, result on 64 bits, result on 32.
        let table = [
            (Op::Add, minus(-1), 2, 1, 1),
            (Op::Subtract, 1, 2, minus(-1), 0xffff_ffff),
            (Op::Multiply, 1 << 33, 3, 3 << 33, 0),
            (Op::Divide, minus(-2), 2, 0x7fff_ffff_ffff_ffff, 0x7fff_ffff),
            (Op::Divide, 7, 0, 0, 0),
            (Op::Modulo, 7, 4, 3, 3),
            (Op::Modulo, 0x1_0000_0007, 0, 0x1_0000_0007, 7),
            (Op::Or, 0x1_0000_0001, 2, 0x1_0000_0003, 3),
            (Op::And, minus(-1), 0xf_0000_000f, 0xf_0000_000f, 15),
            (Op::Xor, 5, 3, 6, 6),
            (Op::Move, 1, minus(-1), minus(-1), 0xffff_ffff),
            (Op::ShiftLeft, 1, 33, 1 << 33, 2),
            (Op::ShiftRight, 1 << 63, 63, 1, 0),
            (Op::SignedShiftRight, 1 << 63, 62, minus(-2), 0),
            (Op::SignedShiftRight, 0x8000_0000, 4, 0x0800_0000, 0xf800_0000),
        ];
        for (op, left, right, wide, narrow) in table {
            assert_eq!(compute(op, left, right), wide, "{op:?} {left:#x} {right:#x}");
            assert_eq!(compute32(op, left, right), narrow, "{op:?} {left:#x} {right:#x}");
        }
        assert_eq!(reorder(Order::Big, 16, 0xaabb_1234), 0x3412);
        assert_eq!(reorder(Order::Little, 32, 0xff_aabb_ccdd), 0xaabb_ccdd);
        assert_eq!(reorder(Order::Swap, 64, 1), 1 << 56);
    }

    #[test]
    fn comparisons_are_signed_or_not_and_wide_or_not() {
        let minus_one = u64::MAX;
        let table = [
            (When::Above, minus_one, 1, true, true),
            (When::SignedAbove, minus_one, 1, false, false),
            (When::SignedBelow, 0xffff_ffff, 1, false, true),
            (When::AtLeast, 3, 3, true, true),
            (When::SignedAtLeast, 3, minus_one, true, true),
            (When::SignedAtMost, minus_one, minus_one, true, true),
            (When::AnyBit, 1 << 40, 1 << 40, true, false),
            (When::Equal, 0x1_0000_0005, 5, false, true),
            (When::NotEqual, 0x1_0000_0005, 5, true, false),
            (When::Below, 4, 5, true, true),
            (When::AtMost, 6, 5, false, false),
        ];
        for (when, left, right, wide, narrow) in table {
            assert_eq!(holds(true, when, left, right), wide, "{when:?} {left:#x} {right:#x}");
            assert_eq!(holds(false, when, left, right), narrow, "{when:?} {left:#x} {right:#x}");
        }
    }

    /// A host with one function, which adds its arguments, and one map.
    struct Adder;

    impl Host for Adder {
        fn call(
            &mut self,
            _: &mut Memory,
            function: i32,
            arguments: [u64; 5],
        ) -> Result<u64, ExecutionError> {
            if function == 7 { Ok(arguments.iter().sum()) } else { Err(ExecutionError::Function(function)) }
        }

        fn map_value(&self, fd: i32) -> Option<u64> {
            (fd == 3).then_some(0x1000)
        }
    }

    #[test]
    fn memory_functions_and_maps_are_those_that_were_given() {
        let mut memory = Memory::default();
        memory.insert(0x1000, vec![1, 2, 3, 4, 5, 6, 7, 8]);
        let mut a = Assembler::new();
        a.load_map_value(R6, 3);
        a.load(Width::B2, R1, R6, 2); // 0x0403
        a.store(Width::B8, R10, -8, R1);
        a.store_imm(Width::B1, R6, 0, -1);
        a.load(Width::B8, R2, R10, -8);
        a.load_map(R3, 40);
        a.call(7);
        a.exit();
        let code = a.finish().unwrap();
        assert_eq!(run(&code, &mut memory, &mut Adder, 0, 100), Ok(2 * 0x0403 + 40));
        assert_eq!(memory.read(0x1000, 1), Ok(0xff));
        assert_eq!(memory.read(0x1001, 8), Err(ExecutionError::Memory(0x1001)));
        assert_eq!(run(&code, &mut memory, &mut (), 0, 100), Err(ExecutionError::Map(3)));
        let call = words(&[Instruction::Call { function: 1 }]);
        assert_eq!(result(&call, 0), Err(ExecutionError::Function(1)));
        let outside = words(&[Instruction::Load { width: Width::B8, dst: R0, base: R10, offset: -7 }]);
        assert_eq!(result(&outside, 0), Err(ExecutionError::Memory(STACK + 505)));
        assert_eq!(
            result(&words(&[Instruction::Jump { distance: -2 }]), 0),
            Err(ExecutionError::NoInstruction(0))
        );
        assert_eq!(result(&[], 0), Err(ExecutionError::NoInstruction(0)));
    }

    proptest! {
        #[test]
        fn no_program_panics(program in prop::collection::vec(instruction(), 0..40), context: u64) {
            let _ = result(&words(&program), context);
        }

        #[test]
        fn nor_does_noise(noise in prop::collection::vec(any::<u64>(), 0..40), context: u64) {
            let _ = result(&noise, context);
        }
    }
}
