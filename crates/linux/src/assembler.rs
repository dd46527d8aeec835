//! Instructions of the kernel's virtual machine, with labels.
//!
//! **What.** A builder for the few eBPF instructions that programs here need; jumps name a label, and [`Assembler::finish`]
//! turns labels into distances (RFC 9669 is the instruction set).
//!
//! **Why.** A program is assembled for the kernel that runs, with its structure offsets and the test's ports as plain
//! constants, so it needs no compiler, no relocation and no configuration map.
//!
//! **Price.** No register allocation and no checks beyond what the verifier does anyway.

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

/// Width of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Width {
    B1,
    B2,
    B4,
    B8,
}

impl Width {
    fn bits(self) -> u8 {
        match self {
            Width::B4 => 0x00,
            Width::B2 => 0x08,
            Width::B1 => 0x10,
            Width::B8 => 0x18,
        }
    }
}

/// When a conditional jump is taken (unsigned comparison of 64 bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum When {
    Equal,
    NotEqual,
    Above,
    Below,
    AtMost,
}

impl When {
    fn bits(self) -> u8 {
        match self {
            When::Equal => 0x10,
            When::Above => 0x20,
            When::NotEqual => 0x50,
            When::Below => 0xa0,
            When::AtMost => 0xb0,
        }
    }
}

/// Arithmetic on 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Add,
    And,
    ShiftLeft,
    ShiftRight,
    Xor,
    Subtract,
    Move,
}

impl Op {
    fn bits(self) -> u8 {
        match self {
            Op::Add => 0x00,
            Op::And => 0x50,
            Op::ShiftLeft => 0x60,
            Op::ShiftRight => 0x70,
            Op::Xor => 0xa0,
            Op::Subtract => 0x10,
            Op::Move => 0xb0,
        }
    }
}

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

    fn emit(&mut self, opcode: u8, dst: Reg, src: u8, offset: i16, immediate: i32) {
        let registers = dst as u8 | src << 4;
        let bytes = offset.to_le_bytes();
        let immediate = immediate.to_le_bytes();
        self.code.push(u64::from_ne_bytes([
            opcode,
            registers,
            bytes[0],
            bytes[1],
            immediate[0],
            immediate[1],
            immediate[2],
            immediate[3],
        ]));
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
        self.emit(0x07 | op.bits(), dst, 0, 0, immediate);
    }

    /// `dst op= src`.
    pub fn op_reg(&mut self, op: Op, dst: Reg, src: Reg) {
        self.emit(0x0f | op.bits(), dst, src as u8, 0, 0);
    }

    /// Reads big-endian bytes of that width into the host's order, in place.
    pub fn from_big_endian(&mut self, dst: Reg, width: Width) {
        let bits = match width {
            Width::B1 => return,
            Width::B2 => 16,
            Width::B4 => 32,
            Width::B8 => 64,
        };
        self.emit(0xdc, dst, 0, 0, bits);
    }

    /// `dst = *(base + offset)`.
    pub fn load(&mut self, width: Width, dst: Reg, base: Reg, offset: i16) {
        self.emit(0x61 | width.bits(), dst, base as u8, offset, 0);
    }

    /// `*(base + offset) = src`.
    pub fn store(&mut self, width: Width, base: Reg, offset: i16, src: Reg) {
        self.emit(0x63 | width.bits(), base, src as u8, offset, 0);
    }

    /// `*(base + offset) = immediate`.
    pub fn store_imm(&mut self, width: Width, base: Reg, offset: i16, immediate: i32) {
        self.emit(0x62 | width.bits(), base, 0, offset, immediate);
    }

    /// `dst = the map of that descriptor`.
    pub fn load_map(&mut self, dst: Reg, fd: i32) {
        const PSEUDO_MAP_FD: u8 = 1;
        self.emit(0x18, dst, PSEUDO_MAP_FD, 0, fd);
        self.code.push(0);
    }

    /// `dst = a pointer to the first value of the array map of that descriptor`.
    pub fn load_map_value(&mut self, dst: Reg, fd: i32) {
        const PSEUDO_MAP_VALUE: u8 = 2;
        self.emit(0x18, dst, PSEUDO_MAP_VALUE, 0, fd);
        self.code.push(0);
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x05, Reg::R0, 0, 0, 0);
    }

    /// Jumps if `left when immediate` (the immediate is sign-extended to 64 bits).
    pub fn jump_if(&mut self, left: Reg, when: When, immediate: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x05 | when.bits(), left, 0, 0, immediate);
    }

    /// Jumps if `left when right`.
    pub fn jump_if_reg(&mut self, left: Reg, when: When, right: Reg, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x0d | when.bits(), left, right as u8, 0, 0);
    }

    /// Jumps if the low 32 bits of `left` are `when immediate`.
    pub fn jump_if_u32(&mut self, left: Reg, when: When, immediate: u32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x06 | when.bits(), left, 0, 0, immediate as i32);
    }

    /// Calls a kernel function by its number; the result is in `R0`.
    pub fn call(&mut self, function: i32) {
        self.emit(0x85, Reg::R0, 0, 0, function);
    }

    /// Ends the program with the result in `R0`.
    pub fn exit(&mut self) {
        self.emit(0x95, Reg::R0, 0, 0, 0);
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
            let mut bytes = self.code[at].to_ne_bytes();
            bytes[2..4].copy_from_slice(&distance);
            self.code[at] = u64::from_ne_bytes(bytes);
        }
        Ok(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(program: &[u64]) -> Vec<[u8; 8]> {
        program.iter().map(|instruction| instruction.to_ne_bytes()).collect()
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
