//! Programs of the classic packet filter.

use wire::filter::{FilterInstruction, Program};

/// Any bytes as a program and a frame: what is no program is refused with its place and a reason; what was accepted ends,
/// never reads scratch memory that it did not write, and gives what the slow twin gives.
///
/// The bytes: one for the number of instructions, eight for each of them (code, two skips, constant, little endian as
/// `struct sock_filter` has them), one for what the frame had more on the wire, then the frame.
pub fn filter(bytes: &[u8]) {
    let Some((&count, rest)) = bytes.split_first() else { return };
    let (code, rest) = rest.split_at((usize::from(count % 64) * 8).min(rest.len() & !7));
    let (cut, frame) = rest.split_first().map_or((0, rest), |(cut, frame)| (u32::from(*cut), frame));
    let wire_length = frame.len() as u32 + cut;
    let mut instructions: Vec<FilterInstruction> = code.chunks_exact(8).map(instruction).collect();
    let program = loop {
        match Program::new(instructions.clone()) {
            Ok(program) => break program,
            Err(refused) => {
                assert!(!refused.to_string().is_empty());
                if instructions.is_empty() {
                    return;
                }
                assert!(refused.at < instructions.len(), "{refused}");
                // Most of what a fuzzer makes is wrong somewhere: what is refused is taken out until the rest is one.
                instructions.remove(refused.at);
            }
        }
    };
    assert_eq!(program.instructions(), instructions);
    assert_eq!(program.run(frame, wire_length), twin(&instructions, frame, wire_length), "{instructions:?}");
}

fn instruction(bytes: &[u8]) -> FilterInstruction {
    FilterInstruction {
        code: u16::from_le_bytes([bytes[0], bytes[1] & 1]),
        if_true: bytes[2],
        if_false: bytes[3],
        k: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    }
}

/// The machine of McCanne and Jacobson's paper taken apart bit by bit: class, size and mode, operation and source of an
/// instruction each for itself, in numbers that cannot wrap. It panics where a checked program must never come.
fn twin(program: &[FilterInstruction], frame: &[u8], wire_length: u32) -> u32 {
    let (mut a, mut x, mut memory) = (0u64, 0u64, [None::<u64>; 16]);
    let mut at = 0;
    loop {
        let FilterInstruction { code, if_true, if_false, k } = program[at];
        let (k, source) = (u64::from(k), if code & 8 == 0 { u64::from(k) } else { x });
        at += 1;
        match code & 7 {
            class @ (0 | 1) => {
                let value = match code & 0xe0 {
                    0x00 => Some(k),
                    0x20 if k >= 0xffff_f000 => Some(note(k - 0xffff_f000, a, x, frame)),
                    0x20 => bytes(frame, k, code),
                    0x40 => bytes(frame, k + x, code),
                    0x60 => Some(memory[k as usize].expect("read after it was written")),
                    0x80 => Some(u64::from(wire_length)),
                    _ => bytes(frame, k, 0x10).map(|byte| (byte & 15) << 2),
                };
                let Some(value) = value else { return 0 };
                *(if class == 0 { &mut a } else { &mut x }) = value;
            }
            2 => memory[k as usize] = Some(a),
            3 => memory[k as usize] = Some(x),
            4 => match arithmetic(code & 0xf0, a, source) {
                Some(result) => a = result & 0xffff_ffff,
                None => return 0,
            },
            5 => {
                let holds = match code & 0xf0 {
                    0x00 => {
                        at += k as usize;
                        continue;
                    }
                    0x10 => a == source,
                    0x20 => a > source,
                    0x30 => a >= source,
                    _ => a & source != 0,
                };
                at += usize::from(if holds { if_true } else { if_false });
            }
            6 => return (if code & 0x18 == 0x10 { a } else { k }) as u32,
            _ if code & 0xf8 == 0 => x = a,
            _ => a = x,
        }
    }
}

/// A word, half-word or byte, most significant byte first; none if one of them is not there.
fn bytes(frame: &[u8], from: u64, code: u16) -> Option<u64> {
    let length = match code & 0x18 {
        0x00 => 4,
        0x08 => 2,
        _ => 1,
    };
    (from..from + length).try_fold(0, |value, at| {
        let byte = usize::try_from(at).ok().and_then(|at| frame.get(at))?;
        Some(value * 256 + u64::from(*byte))
    })
}

/// What the kernel notes beside a frame, as far as the frame alone tells it: its Ethertype; and a XOR X.
fn note(number: u64, a: u64, x: u64, frame: &[u8]) -> u64 {
    match number {
        0 => bytes(frame, 12, 0x08).unwrap_or(0),
        40 => a ^ x,
        44 | 48 | 60 => 0,
        other => panic!("note {other} is the kernel's secret"),
    }
}

fn arithmetic(operation: u16, a: u64, b: u64) -> Option<u64> {
    const TWO_32: u64 = 1 << 32;
    Some(match operation {
        0x00 => a + b,
        0x10 => a + TWO_32 - b,
        0x20 => a.wrapping_mul(b),
        0x30 => return a.checked_div(b),
        0x40 => a | b,
        0x50 => a & b,
        0x60 if b < 32 => a << b,
        0x70 if b < 32 => a >> b,
        0x60 | 0x70 => 0,
        0x80 => TWO_32 - a,
        0x90 => return a.checked_rem(b),
        _ => a ^ b,
    })
}
