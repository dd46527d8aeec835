//! Programs of the classic packet filter (cBPF), the language that capture filters are compiled to.
//!
//! **What.** [`Program::new`] checks instructions as the kernel does (`bpf_check_classic` of `net/core/filter.c`): known
//! operations, jumps that go forward and stay inside, scratch memory that is written before it is read, a return at the
//! end. After that [`Program::run`] cannot fail, loop or panic, whatever the frame holds.
//!
//! **Why.** The kernel runs a filter where it can (`SO_ATTACH_FILTER`), and this interpreter where no kernel is asked:
//! files, memory, AF_XDP. One difference is built in. The kernel takes the VLAN tag out of a received frame before its
//! filters run, so a program that was compiled for whole frames would judge other bytes there: the packet sockets let
//! every frame with such a tag pass, put the tag back and ask [`Program::run`] (`linux::port::packet`).
//!
//! **Price.** One match per instruction, not measured. What only the kernel knows of a frame (its mark, its queue, …)
//! is refused by name when the program is made. Where libpcap and the kernel differ over senseless programs (an index
//! that wraps round 2³²), this follows libpcap: such a load is outside the frame. The slow twin is libpcap's own
//! `pcap_offline_filter` (`linux::sys::libpcap`).

use std::fmt;

/// One instruction, as `struct sock_filter` of `linux/filter.h` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterInstruction {
    /// Operation code.
    pub code: u16,
    /// Instructions to skip when a test holds.
    pub if_true: u8,
    /// Instructions to skip when it does not.
    pub if_false: u8,
    /// The constant.
    pub k: u32,
}

impl FilterInstruction {
    /// An instruction that does not test.
    const fn plain(code: u16, k: u32) -> Self {
        FilterInstruction { code, if_true: 0, if_false: 0, k }
    }
}

/// Why instructions are not a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The instruction, from 0.
    pub at: usize,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {} {}", self.at, self.what)
    }
}

impl std::error::Error for Refused {}

/// The most instructions of a program (`BPF_MAXINSNS` of `linux/bpf_common.h`).
pub const MOST: usize = 4096;

/// Words of scratch memory (`BPF_MEMWORDS`).
const WORDS: usize = 16;

// Operation codes: class | size | mode, or class | operation | source (linux/bpf_common.h).
const LD_IMM: u16 = 0x00;
const LDX_IMM: u16 = 0x01;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const LD_W_ABS: u16 = 0x20;
const LD_H_ABS: u16 = 0x28;
const LD_B_ABS: u16 = 0x30;
const LD_W_IND: u16 = 0x40;
const LD_H_IND: u16 = 0x48;
const LD_B_IND: u16 = 0x50;
const LD_MEM: u16 = 0x60;
const LDX_MEM: u16 = 0x61;
const LD_LEN: u16 = 0x80;
const LDX_LEN: u16 = 0x81;
const LDX_MSH: u16 = 0xb1;
const ALU: u16 = 0x04;
const NEG: u16 = ALU | 0x80;
const JA: u16 = 0x05;
const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
const JSET: u16 = 0x45;
/// Source of an ALU operation or a test: X instead of the constant.
const X: u16 = 0x08;
const RET_K: u16 = 0x06;
const RET_A: u16 = 0x16;
const TAX: u16 = 0x07;
const TXA: u16 = 0x87;

/// Loads from here on ask the kernel what it noted beside the frame (`SKF_AD_OFF` of `linux/filter.h`).
const NOTES: u32 = 0xffff_f000;
const NOTE_PROTOCOL: u32 = NOTES;
const NOTE_XOR_X: u32 = NOTES + 40;
const NOTE_TAG: u32 = NOTES + 44;
const NOTE_TAG_PRESENT: u32 = NOTES + 48;
const NOTE_TAG_PROTOCOL: u32 = NOTES + 60;
/// The names of all notes, in steps of four.
const NOTE_NAMES: [&str; 16] = [
    "protocol",
    "packet type",
    "interface",
    "netlink attribute",
    "nested netlink attribute",
    "mark",
    "queue",
    "hardware type",
    "receive hash",
    "CPU",
    "xor",
    "VLAN tag",
    "VLAN tag present",
    "payload offset",
    "random number",
    "VLAN protocol",
];

/// A program that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    instructions: Vec<FilterInstruction>,
}

impl Program {
    /// Checks the instructions.
    ///
    /// # Errors
    /// The first instruction that the kernel would refuse, or that needs what a frame alone does not tell.
    pub fn new(instructions: Vec<FilterInstruction>) -> Result<Program, Refused> {
        let count = instructions.len();
        if count == 0 || count > MOST {
            return Err(Refused { at: 0, what: format!("is one of {count}, and a program has 1 to {MOST}") });
        }
        for (at, instruction) in instructions.iter().enumerate() {
            check(instruction, count - at - 1).map_err(|what| Refused { at, what })?;
        }
        if !matches!(instructions[count - 1].code, RET_K | RET_A) {
            return Err(Refused { at: count - 1, what: "is the last one and not a return".into() });
        }
        check_memory(&instructions)?;
        Ok(Program { instructions })
    }

    /// The program that says yes to every frame.
    pub fn everything() -> Program {
        Program { instructions: vec![FilterInstruction::plain(RET_K, u32::MAX)] }
    }

    /// The instructions.
    pub fn instructions(&self) -> &[FilterInstruction] {
        &self.instructions
    }

    /// How many bytes of the frame the program wants; 0: none of it. `wire_length` is what the frame had before it was
    /// cut.
    pub fn run(&self, frame: &[u8], wire_length: u32) -> u32 {
        let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; WORDS]);
        let mut at = 0;
        // Jumps only go forward and the last instruction returns, both checked when the program was made.
        while let Some(&FilterInstruction { code, if_true, if_false, k }) = self.instructions.get(at) {
            at += 1;
            match code {
                LD_IMM => a = k,
                LDX_IMM => x = k,
                LD_W_ABS | LD_H_ABS | LD_B_ABS if k >= NOTES => a = note(k, a, x, frame),
                LD_W_ABS | LD_H_ABS | LD_B_ABS | LD_W_IND | LD_H_IND | LD_B_IND => {
                    let Some(value) = load(frame, code, k, x) else { return 0 };
                    a = value;
                }
                LDX_MSH => {
                    let Some(byte) = frame.get(k as usize) else { return 0 };
                    x = u32::from(byte & 15) * 4;
                }
                LD_MEM => a = memory[k as usize % WORDS],
                LDX_MEM => x = memory[k as usize % WORDS],
                ST => memory[k as usize % WORDS] = a,
                STX => memory[k as usize % WORDS] = x,
                LD_LEN => a = wire_length,
                LDX_LEN => x = wire_length,
                TAX => x = a,
                TXA => a = x,
                JA => at += k as usize,
                RET_K => return k,
                RET_A => return a,
                _ => {
                    let operand = if code & X != 0 { x } else { k };
                    if code & 7 == ALU {
                        let Some(result) = compute(code, a, operand) else { return 0 };
                        a = result;
                    } else {
                        at += usize::from(if test(code, a, operand) { if_true } else { if_false });
                    }
                }
            }
        }
        0
    }
}

/// The word, half-word or byte that a load finds in the frame; none outside of it.
#[inline]
fn load(frame: &[u8], code: u16, k: u32, x: u32) -> Option<u32> {
    let index = if code & 0xe0 == LD_W_IND & 0xe0 { x } else { 0 };
    let bytes = frame.get(k as usize + index as usize..)?;
    match code & 0x18 {
        0x00 => bytes.first_chunk().map(|word| u32::from_be_bytes(*word)),
        0x08 => bytes.first_chunk().map(|half| u32::from(u16::from_be_bytes(*half))),
        _ => bytes.first().map(|&byte| u32::from(byte)),
    }
}

/// What the kernel would have noted beside a frame whose bytes are all here: there is no tag beside it.
fn note(k: u32, a: u32, x: u32, frame: &[u8]) -> u32 {
    match k {
        NOTE_PROTOCOL => load(frame, LD_H_ABS, 12, 0).unwrap_or(0),
        NOTE_XOR_X => a ^ x,
        _ => 0,
    }
}

/// An ALU operation; none when it divides by zero, which ends a program with 0.
#[inline]
fn compute(code: u16, a: u32, b: u32) -> Option<u32> {
    Some(match code & 0xf0 {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 => return a.checked_div(b),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a.checked_shl(b).unwrap_or(0),
        0x70 => a.checked_shr(b).unwrap_or(0),
        0x80 => a.wrapping_neg(),
        0x90 => return a.checked_rem(b),
        _ => a ^ b,
    })
}

#[inline]
fn test(code: u16, a: u32, b: u32) -> bool {
    match code & !X {
        JEQ => a == b,
        JGT => a > b,
        JGE => a >= b,
        _ => a & b != 0,
    }
}

/// What is wrong with one instruction that has `behind` others behind it.
fn check(instruction: &FilterInstruction, behind: usize) -> Result<(), String> {
    let &FilterInstruction { code, if_true, if_false, k } = instruction;
    let inside = |skip: u64| {
        if skip < behind as u64 { Ok(()) } else { Err("jumps out of the program".to_owned()) }
    };
    match code {
        LD_IMM | LDX_IMM | LD_LEN | LDX_LEN | LDX_MSH | TAX | TXA | RET_K | RET_A | NEG => Ok(()),
        LD_W_IND | LD_H_IND | LD_B_IND => Ok(()),
        LD_W_ABS | LD_H_ABS | LD_B_ABS => check_load(k),
        LD_MEM | LDX_MEM | ST | STX if k as usize >= WORDS => {
            Err(format!("uses word {k} of the scratch memory, which has {WORDS}"))
        }
        LD_MEM | LDX_MEM | ST | STX => Ok(()),
        JA => inside(k.into()),
        _ if code & 7 == ALU && code & !0xff == 0 && code & 0xf0 <= 0xa0 && code & !X != NEG => {
            match (code & X != 0, code & 0xf0) {
                (false, 0x30 | 0x90) if k == 0 => Err("divides by 0".into()),
                (false, 0x60 | 0x70) if k >= 32 => Err(format!("shifts by {k} of 32 bits")),
                _ => Ok(()),
            }
        }
        _ if matches!(code & !X, JEQ | JGT | JGE | JSET) => {
            inside(if_true.into()).and_then(|()| inside(if_false.into()))
        }
        _ => Err(format!("has the unknown operation {code:#04x}")),
    }
}

/// Loads at fixed places: inside any frame, or a note that can be told from a frame alone.
fn check_load(k: u32) -> Result<(), String> {
    match k {
        0..0x8000_0000 | NOTE_PROTOCOL | NOTE_XOR_X | NOTE_TAG | NOTE_TAG_PRESENT | NOTE_TAG_PROTOCOL => {
            Ok(())
        }
        NOTES.. if k.is_multiple_of(4) && (k - NOTES) / 4 < 16 => {
            let name = NOTE_NAMES[((k - NOTES) / 4) as usize];
            Err(format!("asks for the kernel's note '{name}', which a frame alone does not tell"))
        }
        _ => Err(format!("loads from {k:#x}, which is not inside a frame")),
    }
}

/// Scratch memory must be written on every way to where it is read (`check_load_and_stores` of `net/core/filter.c`).
fn check_memory(instructions: &[FilterInstruction]) -> Result<(), Refused> {
    // For each instruction: the words that every jump to it found written.
    let mut written = vec![u16::MAX; instructions.len()];
    let mut now = 0u16;
    for (at, instruction) in instructions.iter().enumerate() {
        now &= written[at];
        let FilterInstruction { code, if_true, if_false, k } = *instruction;
        match code {
            ST | STX => now |= 1 << k,
            LD_MEM | LDX_MEM if now & (1 << k) == 0 => {
                let what = format!("reads word {k} of the scratch memory, which may not be written yet");
                return Err(Refused { at, what });
            }
            JA => {
                written[at + 1 + k as usize] &= now;
                now = u16::MAX;
            }
            _ if code & 7 == JA => {
                written[at + 1 + usize::from(if_true)] &= now;
                written[at + 1 + usize::from(if_false)] &= now;
                now = u16::MAX;
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Code, jumps, constant, as `tcpdump -dd` prints them.
    type Raw = (u16, u8, u8, u32);

    fn program(instructions: &[Raw]) -> Result<Program, Refused> {
        let make = |&(code, if_true, if_false, k)| FilterInstruction { code, if_true, if_false, k };
        Program::new(instructions.iter().map(make).collect())
    }

    /// What `tcpdump -dd 'udp port 53'` prints for IPv4 alone (`ip and udp port 53`, snap length 262144).
    fn dns() -> Program {
        program(&[
            (0x28, 0, 0, 12),
            (0x15, 0, 10, 0x800),
            (0x30, 0, 0, 23),
            (0x15, 0, 8, 0x11),
            (0x28, 0, 0, 20),
            (0x45, 6, 0, 0x1fff),
            (0xb1, 0, 0, 14),
            (0x48, 0, 0, 14),
            (0x15, 2, 0, 53),
            (0x48, 0, 0, 16),
            (0x15, 0, 1, 53),
            (0x06, 0, 0, 262144),
            (0x06, 0, 0, 0),
        ])
        .unwrap()
    }

    fn datagram(port: u16) -> Vec<u8> {
        let addresses = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let ends = crate::build::Ends { macs: ([2; 6], [4; 6]), addresses, ports: (4000, port) };
        crate::build::build_udp(&ends, b"question").unwrap()
    }

    #[test]
    fn a_real_filter_says_yes_and_no() {
        let frame = datagram(53);
        assert_eq!(dns().run(&frame, frame.len() as u32), 262144);
        assert_eq!(dns().run(&datagram(54), 50), 0);
        for cut in 0..frame.len() {
            assert_eq!(dns().run(&frame[..cut], 50) > 0, cut >= 38, "cut to {cut}");
        }
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        let ret = (0x06, 0, 0, 1);
        let cases: [(&[Raw], &str); 14] = [
            (&[], "one of 0"),
            (&[(0, 0, 0, 5)], "not a return"),
            (&[(0x05, 0, 0, 1), ret], "jumps out"),
            (&[(0x05, 0, 0, u32::MAX), ret], "jumps out"),
            (&[(0x15, 0, 1, 0), ret], "jumps out"),
            (&[(0x15, 1, 0, 0), ret], "jumps out"),
            (&[(0x34, 0, 0, 0), ret], "divides by 0"),
            (&[(0x94, 0, 0, 0), ret], "divides by 0"),
            (&[(0x64, 0, 0, 32), ret], "shifts by 32"),
            (&[(0x02, 0, 0, 16), ret], "word 16"),
            (&[(0x60, 0, 0, 3), ret], "not be written"),
            (&[(0x15, 0, 1, 0), (0x02, 0, 0, 3), (0x60, 0, 0, 3), ret], "not be written"),
            (&[(0x0e, 0, 0, 0), ret], "unknown operation 0x0e"),
            (&[(0x20, 0, 0, 0xffff_f014), ret], "note 'mark'"),
        ];
        for (instructions, expected) in cases {
            let refused = program(instructions).unwrap_err().to_string();
            assert!(refused.contains(expected), "{instructions:?}: {refused}");
        }
        assert!(program(&[(0x15, 1, 0, 0), (0x02, 0, 0, 3), ret]).is_ok());
    }

    #[test]
    fn arithmetic_ends_where_it_has_no_answer() {
        let run = |code, a: u32, x: u32| {
            program(&[(1, 0, 0, x), (0, 0, 0, a), (code, 0, 0, 7), (0x16, 0, 0, 0)]).unwrap().run(&[], 0)
        };
        assert_eq!((run(0x3c, 9, 0), run(0x9c, 9, 0)), (0, 0), "division by zero");
        assert_eq!((run(0x3c, 9, 2), run(0x9c, 9, 2), run(0x94, 9, 0)), (4, 1, 2));
        assert_eq!((run(0x6c, 1, 31), run(0x6c, 1, 32), run(0x7c, 8, 2)), (1 << 31, 0, 2));
        assert_eq!((run(0x84, 1, 0), run(0xac, 5, 3), run(0x1c, 0, 1)), (u32::MAX, 6, u32::MAX));
    }

    fn any_instruction() -> impl Strategy<Value = FilterInstruction> {
        let codes = vec![
            0x00, 0x01, 0x02, 0x03, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x61, 0x80, 0x81, 0xb1, 0x04,
            0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84,
            0x94, 0x9c, 0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x06, 0x16, 0x07,
            0x87,
        ];
        let code = prop_oneof![40 => prop::sample::select(codes), 1 => any::<u16>()];
        let k = prop_oneof![6 => 0u32..20, 1 => 0u32..300, 1 => any::<u32>()];
        (code, 0u8..6, 0u8..6, k).prop_map(|(code, if_true, if_false, k)| FilterInstruction {
            code,
            if_true,
            if_false,
            k,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_instructions_are_refused_or_run_to_an_end(
            mut instructions in prop::collection::vec(any_instruction(), 1..40),
            frame in prop::collection::vec(any::<u8>(), 0..100),
            wire_length: u32,
        ) {
            // Most random programs are wrong somewhere: what is refused is cut out, until the rest is a program.
            instructions.push(FilterInstruction::plain(RET_A, 0));
            loop {
                match Program::new(instructions.clone()) {
                    Ok(program) => {
                        program.run(&frame, wire_length);
                        break;
                    }
                    Err(refused) => { instructions.remove(refused.at); }
                }
            }
        }
    }
}
