//! One instruction as a value, and its eight bytes (RFC 9669, section 3; sixteen bytes for a wide constant).
//!
//! **Why a value between bytes and everything else.** Assembler, interpreter and disassembler agree on what an instruction
//! is, and one test (decoding what was encoded) holds all three to the standard's numbers.

/// A register. `R0` holds results, `R1`–`R5` arguments (lost by a call), `R6`–`R9` survive calls, `R10` is the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

impl Reg {
    /// All of them, by number.
    pub const ALL: [Reg; 11] = {
        use Reg::*;
        [R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10]
    };

    fn decode(number: u8) -> Option<Reg> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// An enum with its bits in the opcode and its symbol in text, a row a variant.
macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $bits:literal $symbol:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum $name { $($variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            fn bits(self) -> u8 {
                match self { $($name::$variant => $bits,)* }
            }

            pub(crate) fn symbol(self) -> &'static str {
                match self { $($name::$variant => $symbol,)* }
            }

            fn decode(bits: u8) -> Option<$name> {
                Self::ALL.iter().copied().find(|one| one.bits() == bits)
            }
        }
    };
}

coded! {
    /// Width of a load or store.
    Width { B4 = 0x00 "u32", B2 = 0x08 "u16", B1 = 0x10 "u8", B8 = 0x18 "u64", }
}

impl Width {
    /// How many bytes it has.
    pub fn bytes(self) -> usize {
        match self {
            Width::B1 => 1,
            Width::B2 => 2,
            Width::B4 => 4,
            Width::B8 => 8,
        }
    }
}

coded! {
    /// When a conditional jump is taken; the unsigned comparisons have no prefix.
    When {
        Equal = 0x10 "==", Above = 0x20 ">", AtLeast = 0x30 ">=", AnyBit = 0x40 "&", NotEqual = 0x50 "!=",
        SignedAbove = 0x60 "s>", SignedAtLeast = 0x70 "s>=",
        Below = 0xa0 "<", AtMost = 0xb0 "<=", SignedBelow = 0xc0 "s<", SignedAtMost = 0xd0 "s<=",
    }
}

coded! {
    /// Arithmetic with two operands; the result replaces the first.
    Op {
        Add = 0x00 "+=", Subtract = 0x10 "-=", Multiply = 0x20 "*=", Divide = 0x30 "/=", Or = 0x40 "|=",
        And = 0x50 "&=", ShiftLeft = 0x60 "<<=", ShiftRight = 0x70 ">>=", Modulo = 0x90 "%=", Xor = 0xa0 "^=",
        Move = 0xb0 "=", SignedShiftRight = 0xc0 "s>>=",
    }
}

coded! {
    /// How the bytes of a register are put into an order.
    Order { Little = 0xd4 "le", Big = 0xdc "be", Swap = 0xd7 "bswap", }
}

/// The second operand of arithmetic, a comparison or a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A constant, sign-extended to 64 bits.
    Imm(i32),
}

/// What a wide constant stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constant {
    /// Itself.
    Number(u64),
    /// The map of that descriptor.
    Map(i32),
    /// The first value of the array map of that descriptor, and bytes after it.
    MapValue(i32, u32),
}

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// `dst op= operand` on 64 bits, or on the low 32 (the high half becomes 0).
    Arithmetic {
        /// 64 bits.
        wide: bool,
        /// What is computed.
        op: Op,
        /// First operand and result.
        dst: Reg,
        /// Second operand.
        operand: Operand,
    },
    /// `dst = -dst`.
    Negate {
        /// 64 bits.
        wide: bool,
        /// Operand and result.
        dst: Reg,
    },
    /// The low 16, 32 or 64 bits of `dst` in another byte order; the rest becomes 0.
    Reorder {
        /// Which order.
        order: Order,
        /// Operand and result.
        dst: Reg,
        /// 16, 32 or 64.
        bits: u8,
    },
    /// `dst = *(base + offset)`.
    Load {
        /// Bytes read; the rest becomes 0.
        width: Width,
        /// Result.
        dst: Reg,
        /// Address.
        base: Reg,
        /// Added to the address.
        offset: i16,
    },
    /// `*(base + offset) = value`.
    Store {
        /// Bytes written.
        width: Width,
        /// Address.
        base: Reg,
        /// Added to the address.
        offset: i16,
        /// What is written.
        value: Operand,
    },
    /// `dst = a constant of 64 bits`; takes the room of two instructions.
    LoadConstant {
        /// Result.
        dst: Reg,
        /// What.
        constant: Constant,
    },
    /// Goes on so many instructions after the next.
    Jump {
        /// Distance.
        distance: i16,
    },
    /// The same if a comparison holds, on 64 bits or on the low 32.
    JumpIf {
        /// 64 bits.
        wide: bool,
        /// The comparison.
        when: When,
        /// First operand.
        left: Reg,
        /// Second operand.
        right: Operand,
        /// Distance.
        distance: i16,
    },
    /// Calls a function of the kernel by its number.
    Call {
        /// The number (`enum bpf_func_id`).
        function: i32,
    },
    /// Ends the program with the result in `R0`.
    Exit,
}

// Classes (the low three bits of an opcode) and the bit that says that the second operand is a register.
const LOAD_CONSTANT: u8 = 0x18;
const LDX: u8 = 0x61;
const ST: u8 = 0x62;
const STX: u8 = 0x63;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
const FROM_REGISTER: u8 = 0x08;
const NEGATE: u8 = 0x80;
const JUMP: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

// What the source register of a wide constant says about it.
const PSEUDO_MAP: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;

/// The parts of an instruction as they lie in its bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Parts {
    opcode: u8,
    dst: u8,
    src: u8,
    offset: i16,
    immediate: i32,
}

impl Parts {
    fn of(word: u64) -> Parts {
        let [opcode, registers, low, high, immediate @ ..] = word.to_le_bytes();
        Parts {
            opcode,
            dst: registers & 15,
            src: registers >> 4,
            offset: i16::from_le_bytes([low, high]),
            immediate: i32::from_le_bytes(immediate),
        }
    }

    fn word(self) -> u64 {
        let [low, high] = self.offset.to_le_bytes();
        let [a, b, c, d] = self.immediate.to_le_bytes();
        u64::from_le_bytes([self.opcode, self.dst | self.src << 4, low, high, a, b, c, d])
    }

    /// With the second operand, and its bit in the opcode.
    fn with(self, operand: Operand) -> Parts {
        match operand {
            Operand::Reg(reg) => Parts { opcode: self.opcode | FROM_REGISTER, src: reg as u8, ..self },
            Operand::Imm(immediate) => Parts { immediate, ..self },
        }
    }

    /// The second operand; none where a field that it leaves alone is not 0.
    fn operand(self) -> Option<Operand> {
        match (self.opcode & FROM_REGISTER != 0, self.src, self.immediate) {
            (true, src, 0) => Reg::decode(src).map(Operand::Reg),
            (false, 0, immediate) => Some(Operand::Imm(immediate)),
            _ => None,
        }
    }
}

impl Instruction {
    /// Its words, the second one for a wide constant only.
    pub fn encode(self) -> (u64, Option<u64>) {
        let of = |opcode: u8, dst: Reg| Parts { opcode, dst: dst as u8, ..Parts::default() };
        let parts = match self {
            Self::LoadConstant { dst, constant } => return encode_constant(dst, constant),
            Self::Arithmetic { wide, op, dst, operand } => {
                of(op.bits() | if wide { ALU64 } else { ALU }, dst).with(operand)
            }
            Self::Negate { wide, dst } => of(NEGATE | if wide { ALU64 } else { ALU }, dst),
            Self::Reorder { order, dst, bits } => Parts { immediate: bits.into(), ..of(order.bits(), dst) },
            Self::Load { width, dst, base, offset } => {
                Parts { src: base as u8, offset, ..of(LDX | width.bits(), dst) }
            }
            Self::Store { width, base, offset, value: Operand::Reg(reg) } => {
                Parts { src: reg as u8, offset, ..of(STX | width.bits(), base) }
            }
            Self::Store { width, base, offset, value: Operand::Imm(immediate) } => {
                Parts { immediate, offset, ..of(ST | width.bits(), base) }
            }
            Self::Jump { distance } => Parts { opcode: JUMP, offset: distance, ..Parts::default() },
            Self::JumpIf { wide, when, left, right, distance } => {
                let opcode = when.bits() | if wide { JMP } else { JMP32 };
                Parts { offset: distance, ..of(opcode, left) }.with(right)
            }
            Self::Call { function } => Parts { opcode: CALL, immediate: function, ..Parts::default() },
            Self::Exit => Parts { opcode: EXIT, ..Parts::default() },
        };
        (parts.word(), None)
    }

    /// The instruction at the head of a program and how many words it has; none when it is not one of ours.
    pub fn decode(program: &[u64]) -> Option<(Instruction, usize)> {
        let parts = Parts::of(*program.first()?);
        if parts.opcode == LOAD_CONSTANT {
            return Some((decode_constant(parts, Parts::of(*program.get(1)?))?, 2));
        }
        let dst = Reg::decode(parts.dst)?;
        let found = match parts.opcode {
            EXIT => Self::Exit,
            CALL => Self::Call { function: parts.immediate },
            JUMP => Self::Jump { distance: parts.offset },
            opcode => match opcode & 7 {
                class @ (ALU | ALU64) => decode_arithmetic(parts, class == ALU64, dst)?,
                class @ (JMP | JMP32) => Self::JumpIf {
                    wide: class == JMP,
                    when: When::decode(opcode & 0xf0)?,
                    left: dst,
                    right: parts.operand()?,
                    distance: parts.offset,
                },
                _ => decode_memory(parts, dst)?,
            },
        };
        // A field that means nothing here must be 0: what is written again is what was read.
        (found.encode().0 == parts.word()).then_some((found, 1))
    }
}

fn encode_constant(dst: Reg, constant: Constant) -> (u64, Option<u64>) {
    let (src, low, high) = match constant {
        Constant::Number(number) => (0, number as u32 as i32, (number >> 32) as u32 as i32),
        Constant::Map(fd) => (PSEUDO_MAP, fd, 0),
        Constant::MapValue(fd, after) => (PSEUDO_MAP_VALUE, fd, after as i32),
    };
    let first = Parts { opcode: LOAD_CONSTANT, dst: dst as u8, src, offset: 0, immediate: low };
    (first.word(), Some(Parts { immediate: high, ..Parts::default() }.word()))
}

fn decode_constant(first: Parts, second: Parts) -> Option<Instruction> {
    let (low, high) = (first.immediate, second.immediate);
    let constant = match first.src {
        0 => Constant::Number(u64::from(low as u32) | u64::from(high as u32) << 32),
        PSEUDO_MAP if high == 0 => Constant::Map(low),
        PSEUDO_MAP_VALUE => Constant::MapValue(low, high as u32),
        _ => return None,
    };
    let rest_is_zero = first.offset == 0 && Parts { immediate: 0, ..second } == Parts::default();
    let dst = Reg::decode(first.dst)?;
    rest_is_zero.then_some(Instruction::LoadConstant { dst, constant })
}

fn decode_arithmetic(parts: Parts, wide: bool, dst: Reg) -> Option<Instruction> {
    if let Some(order) = Order::decode(parts.opcode) {
        let bits = u8::try_from(parts.immediate).ok().filter(|bits| [16, 32, 64].contains(bits))?;
        return Some(Instruction::Reorder { order, dst, bits });
    }
    match parts.opcode & 0xf8 {
        NEGATE => Some(Instruction::Negate { wide, dst }),
        _ => {
            let op = Op::decode(parts.opcode & 0xf0)?;
            Some(Instruction::Arithmetic { wide, op, dst, operand: parts.operand()? })
        }
    }
}

fn decode_memory(parts: Parts, dst: Reg) -> Option<Instruction> {
    let width = Width::decode(parts.opcode & 0x18)?;
    let offset = parts.offset;
    match parts.opcode & !0x18 {
        LDX => Some(Instruction::Load { width, dst, base: Reg::decode(parts.src)?, offset }),
        ST => Some(Instruction::Store { width, base: dst, offset, value: Operand::Imm(parts.immediate) }),
        STX => {
            let value = Operand::Reg(Reg::decode(parts.src)?);
            Some(Instruction::Store { width, base: dst, offset, value })
        }
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn operand() -> impl Strategy<Value = Operand> {
        prop_oneof![select(&Reg::ALL[..]).prop_map(Operand::Reg), any::<i32>().prop_map(Operand::Imm)]
    }

    /// Any instruction.
    pub fn instruction() -> impl Strategy<Value = Instruction> {
        let reg = || select(&Reg::ALL[..]);
        let constant = prop_oneof![
            any::<u64>().prop_map(Constant::Number),
            any::<i32>().prop_map(Constant::Map),
            any::<(i32, u32)>().prop_map(|(fd, after)| Constant::MapValue(fd, after)),
        ];
        prop_oneof![
            (any::<bool>(), select(Op::ALL), reg(), operand())
                .prop_map(|(wide, op, dst, operand)| Instruction::Arithmetic { wide, op, dst, operand }),
            (any::<bool>(), reg()).prop_map(|(wide, dst)| Instruction::Negate { wide, dst }),
            (select(Order::ALL), reg(), select(vec![16, 32, 64]))
                .prop_map(|(order, dst, bits)| Instruction::Reorder { order, dst, bits }),
            (select(Width::ALL), reg(), reg(), any::<i16>())
                .prop_map(|(width, dst, base, offset)| Instruction::Load { width, dst, base, offset }),
            (select(Width::ALL), reg(), any::<i16>(), operand())
                .prop_map(|(width, base, offset, value)| Instruction::Store { width, base, offset, value }),
            (reg(), constant).prop_map(|(dst, constant)| Instruction::LoadConstant { dst, constant }),
            (-9i16..9).prop_map(|distance| Instruction::Jump { distance }),
            (any::<bool>(), select(When::ALL), reg(), operand(), -9i16..9).prop_map(
                |(wide, when, left, right, distance)| Instruction::JumpIf {
                    wide,
                    when,
                    left,
                    right,
                    distance
                }
            ),
            any::<i32>().prop_map(|function| Instruction::Call { function }),
            Just(Instruction::Exit),
        ]
    }

    /// The words of several.
    pub fn words(instructions: &[Instruction]) -> Vec<u64> {
        let encoded = instructions.iter().map(|one| one.encode());
        encoded.flat_map(|(first, second)| [Some(first), second]).flatten().collect()
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(instruction in instruction()) {
            let words = words(&[instruction]);
            prop_assert_eq!(Instruction::decode(&words), Some((instruction, words.len())));
        }

        #[test]
        fn what_was_decoded_is_encoded_to_the_same_words(opcode: u8, dst in 0u8..16, src in 0u8..3, immediate in 0i32..70, offset in -1i16..2, second in prop_oneof![Just(0u64), any::<u64>()]) {
            let program = [Parts { opcode, dst, src, offset, immediate }.word(), second];
            if let Some((found, length)) = Instruction::decode(&program) {
                prop_assert_eq!(words(&[found]), &program[..length]);
            }
        }
    }

    #[test]
    fn what_is_none_is_not_decoded() {
        let cut = words(&[Instruction::LoadConstant { dst: Reg::R1, constant: Constant::Map(9) }]);
        assert_eq!(Instruction::decode(&cut[..1]), None, "half a wide constant");
        for word in [0u64, 0x0b07, 0xdb, 0x0000_0011_0000_00dc, 0x00e7, 0x8d, 0x0a95] {
            assert_eq!(Instruction::decode(&[word, 0]), None, "{word:#x}");
        }
        assert_eq!(Instruction::decode(&[]), None);
    }
}
