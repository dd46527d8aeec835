//! Programs as text, an instruction a line with its number, as the tools of LLVM write them.
//!
//! **Why.** A program that the verifier refuses is read beside the verifier's log, which names instructions by their number.

use std::fmt;

use crate::{Constant, Instruction, Op, Operand, Order, Reg};

/// The program as text; what is no instruction is written as its word.
pub fn disassemble(program: &[u64]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while let Some(rest) = program.get(at..).filter(|rest| !rest.is_empty()) {
        let (said, length) = match Instruction::decode(rest) {
            Some((instruction, length)) => (instruction.to_string(), length),
            None => (format!(".quad {:#018x}", rest[0]), 1),
        };
        text += &format!("{at:4}: {said}\n");
        at += length;
    }
    text
}

/// A register as the half of it that an instruction works on.
fn register(reg: Reg, wide: bool) -> String {
    format!("{}{}", if wide { 'r' } else { 'w' }, reg as u8)
}

fn operand_text(operand: Operand, wide: bool) -> String {
    match operand {
        Operand::Reg(reg) => register(reg, wide),
        Operand::Imm(immediate) => immediate.to_string(),
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |reg| register(reg, true);
        match *self {
            Self::Arithmetic { wide, op, dst, operand } => {
                write!(f, "{} {} {}", register(dst, wide), Op::symbol(op), operand_text(operand, wide))
            }
            Self::Negate { wide, dst } => write!(f, "{0} = -{0}", register(dst, wide)),
            Self::Reorder { order, dst, bits } => {
                write!(f, "{0} = {1}{bits} {0}", whole(dst), Order::symbol(order))
            }
            Self::Load { width, dst, base, offset } => {
                write!(f, "{} = *({} *)({} {offset:+})", whole(dst), width.symbol(), whole(base))
            }
            Self::Store { width, base, offset, value } => {
                let value = operand_text(value, true);
                write!(f, "*({} *)({} {offset:+}) = {value}", width.symbol(), whole(base))
            }
            Self::LoadConstant { dst, constant: Constant::Number(number) } => {
                write!(f, "{} = {number:#x} ll", whole(dst))
            }
            Self::LoadConstant { dst, constant: Constant::Map(fd) } => {
                write!(f, "{} = map[fd {fd}]", whole(dst))
            }
            Self::LoadConstant { dst, constant: Constant::MapValue(fd, after) } => {
                write!(f, "{} = map[fd {fd}][0] +{after}", whole(dst))
            }
            Self::Jump { distance } => write!(f, "goto {distance:+}"),
            Self::JumpIf { wide, when, left, right, distance } => {
                let (left, right) = (register(left, wide), operand_text(right, wide));
                write!(f, "if {left} {} {right} goto {distance:+}", when.symbol())
            }
            Self::Call { function } => write!(f, "call {function}"),
            Self::Exit => f.write_str("exit"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::tests::{instruction, words};
    use crate::{Assembler, When, Width};
    use proptest::prelude::*;

    #[test]
    fn a_program_is_written_as_it_was_assembled() {
        use Reg::*;
        let mut a = Assembler::new();
        let out = a.label();
        a.load(Width::B4, R2, R1, 4);
        a.jump_if_reg(R2, When::Above, R3, out);
        a.load_map(R1, 9);
        a.op_reg(Op::Move, R2, R10);
        a.op(Op::Add, R2, -8);
        a.store_imm(Width::B8, R10, -8, 1);
        a.call(1);
        a.jump_if_u32(R0, When::Equal, 5, out);
        a.from_big_endian(R0, Width::B2);
        a.push(Instruction::Arithmetic { wide: false, op: Op::Xor, dst: R0, operand: Operand::Reg(R6) });
        a.push(Instruction::Negate { wide: false, dst: R4 });
        a.store(Width::B1, R10, -1, R0);
        a.load_map_value(R5, 7);
        a.jump(out);
        a.place(out);
        a.push(Instruction::LoadConstant { dst: R0, constant: Constant::Number(0x1_0000_0000) });
        a.exit();
        let mut code = a.finish().unwrap();
        code.push(0xdb);
        let text = "   0: r2 = *(u32 *)(r1 +4)
   1: if r2 > r3 goto +14
   2: r1 = map[fd 9]
   4: r2 = r10
   5: r2 += -8
   6: *(u64 *)(r10 -8) = 1
   7: call 1
   8: if w0 == 5 goto +7
   9: r0 = be16 r0
  10: w0 ^= w6
  11: w4 = -w4
  12: *(u8 *)(r10 -1) = r0
  13: r5 = map[fd 7][0] +0
  15: goto +0
  16: r0 = 0x100000000 ll
  18: exit
  19: .quad 0x00000000000000db
";
        assert_eq!(disassemble(&code), text);
    }

    proptest! {
        #[test]
        fn every_instruction_has_a_line_of_its_own(a in instruction(), b in instruction()) {
            let text = disassemble(&words(&[a, b]));
            prop_assert_eq!(text.lines().count(), 2);
            prop_assert!(!text.contains("quad"));
            prop_assert_eq!(a == b, a.to_string() == b.to_string(), "{} and {}", a, b);
        }

        #[test]
        fn noise_is_written_too(noise in prop::collection::vec(any::<u64>(), 0..50)) {
            prop_assert!(disassemble(&noise).lines().count() <= noise.len());
        }
    }
}
