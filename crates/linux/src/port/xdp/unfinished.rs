//! Frames whose checksum their sender left to the hardware, told by their content.
//!
//! **What.** Instructions that find frames of TCP or UDP in whose checksum field the sum of the pseudo header stands alone.
//!
//! **Why.** XDP is not told of an unfinished checksum (every local sender behind a veth leaves one), and a frame that is redirected to
//! another interface leaves with what stands in the field: the receiver would drop it. So a program that redirects must not get it; the
//! port completes it.
//!
//! **Price.** Some forty instructions a frame. One right checksum in 65,536 looks the same; such a frame goes to user space, too. The decision is
//! made twice, here and by [`wire::offload::pseudo_only`]; a test runs both over the same frames.

use ::bpf::{Assembler, Label, Op, Reg, Reg::*, When, Width};
use wire::layers::VLAN_TAGS;

const IPV4: i32 = 0x0800;
const IPV6: i32 = 0x86dd;
/// Tags that are looked behind.
const MOST_TAGS: usize = 2;
/// Protocol, bytes of the header that are looked at, and where the checksum stands.
const PROTOCOLS: [(i32, i32, i16); 2] = [(6, 18, 16), (17, 8, 6)];
/// More fragments, and the offset (RFC 791, section 3.1).
const FRAGMENT: i32 = 0x3fff;

/// Jumps to `unfinished` for such a frame, and goes on for every other. `R6` is the context (`struct xdp_md`) and stays; all others are
/// used.
pub fn select(a: &mut Assembler, unfinished: Label) {
    let (v4, v6, transport, whole) = (a.label(), a.label(), a.label(), a.label());
    a.load(Width::B4, R7, R6, 0); // data
    a.load(Width::B4, R8, R6, 4); // data_end
    a.op_reg(Op::Move, R9, R7);
    reaches(a, 14, whole);
    load_word(a, R3, 12);
    a.op(Op::Add, R9, 14);
    for _ in 0..MOST_TAGS {
        let (tagged, next) = (a.label(), a.label());
        VLAN_TAGS.iter().for_each(|&tag| a.jump_if(R3, When::Equal, i32::from(tag), tagged));
        a.jump(next);
        a.place(tagged);
        reaches(a, 4, whole);
        load_word(a, R3, 2);
        a.op(Op::Add, R9, 4);
        a.place(next);
    }
    a.jump_if(R3, When::Equal, IPV4, v4);
    a.jump_if(R3, When::Equal, IPV6, v6);
    a.jump(whole);

    // R0: the sum of the addresses. R1: the protocol. R5: bytes behind the header. R9: where that ends.
    a.place(v4);
    reaches(a, 20, whole);
    load_word(a, R3, 6);
    a.op(Op::And, R3, FRAGMENT);
    a.jump_if(R3, When::NotEqual, 0, whole);
    sum_of(a, [12, 16]);
    a.load(Width::B1, R1, R9, 9);
    a.load(Width::B1, R4, R9, 0);
    a.op(Op::And, R4, 15);
    a.op(Op::ShiftLeft, R4, 2);
    a.jump_if(R4, When::Below, 20, whole);
    load_word(a, R5, 2);
    a.op_reg(Op::Subtract, R5, R4);
    a.op_reg(Op::Add, R9, R4);
    a.jump(transport);

    a.place(v6);
    reaches(a, 40, whole);
    sum_of(a, [8, 12, 16, 20, 24, 28, 32, 36]);
    a.load(Width::B1, R1, R9, 6);
    load_word(a, R5, 4);
    a.op(Op::Add, R9, 40);

    a.place(transport);
    for (protocol, bytes, field) in PROTOCOLS {
        let other = a.label();
        a.jump_if(R1, When::NotEqual, protocol, other);
        reaches(a, bytes, whole);
        a.load(Width::B2, R2, R9, field);
        equals_pseudo(a, unfinished);
        a.jump(whole);
        a.place(other);
    }
    a.place(whole);
}

/// Adds the protocol and the length to the sum, and compares it with the field in `R2`. All as the host reads big-endian words: a sum
/// of ones' complement does not mind.
fn equals_pseudo(a: &mut Assembler, unfinished: Label) {
    for part in [R1, R5] {
        a.from_big_endian(part, Width::B2);
        a.op_reg(Op::Add, R0, part);
    }
    for bits in [32, 16, 16, 16] {
        a.op_reg(Op::Move, R3, R0);
        a.op(Op::ShiftRight, R3, bits);
        a.op(Op::ShiftLeft, R0, 64 - bits);
        a.op(Op::ShiftRight, R0, 64 - bits);
        a.op_reg(Op::Add, R0, R3);
    }
    a.jump_if_reg(R0, When::Equal, R2, unfinished);
}

/// `R0` = the sum of the 32 bits at these places behind `R9`.
fn sum_of<const N: usize>(a: &mut Assembler, places: [i16; N]) {
    a.op(Op::Move, R0, 0);
    for place in places {
        a.load(Width::B4, R3, R9, place);
        a.op_reg(Op::Add, R0, R3);
    }
}

/// Goes to `short` when the frame ends before `R9 + bytes`.
fn reaches(a: &mut Assembler, bytes: i32, short: Label) {
    a.op_reg(Op::Move, R4, R9);
    a.op(Op::Add, R4, bytes);
    a.jump_if_reg(R4, When::Above, R8, short);
}

/// A register = the big-endian 16 bits at `R9 + offset`.
fn load_word(a: &mut Assembler, to: Reg, offset: i16) {
    a.load(Width::B2, to, R9, offset);
    a.from_big_endian(to, Width::B2);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::bpf;
    use proptest::prelude::*;
    use std::os::fd::{AsFd, OwnedFd};
    use wire::build::{Ends, build_echo, build_udp};
    use wire::offload::pseudo_only;

    const FOUND: u32 = 1;
    const WHOLE: u32 = 2;

    fn program() -> Option<OwnedFd> {
        let mut a = Assembler::new();
        let unfinished = a.label();
        a.op_reg(Op::Move, R6, R1);
        select(&mut a, unfinished);
        a.op(Op::Move, R0, WHOLE as i32);
        a.exit();
        a.place(unfinished);
        a.op(Op::Move, R0, FOUND as i32);
        a.exit();
        let code = a.finish().expect("every label is placed");
        match bpf::load_program(bpf::PROG_XDP, &code, c"GPL", "pathlab_whole") {
            Ok(program) => Some(program),
            Err(rejected) if rejected.error.raw_os_error() == Some(libc::EPERM) => {
                println!("SKIP: unfinished checksums: {}", rejected.error);
                None
            }
            Err(rejected) => panic!("{}: {}", rejected.error, rejected.log),
        }
    }

    fn frame(v6: bool, tcp: bool, payload: &[u8], tags: usize) -> Vec<u8> {
        let address = |host: u8| if v6 { format!("fd00::{host}") } else { format!("10.0.0.{host}") };
        let ends = Ends {
            macs: ([2; 6], [4; 6]),
            addresses: (address(1).parse().unwrap(), address(2).parse().unwrap()),
            ports: (9, 10),
        };
        let mut frame = build_udp(&ends, payload).unwrap();
        if tcp {
            frame[if v6 { 20 } else { 23 }] = 6;
        }
        for kind in VLAN_TAGS.iter().cycle().skip(payload.len() % VLAN_TAGS.len()).take(tags) {
            let [high, low] = kind.to_be_bytes();
            frame.splice(12..12, [high, low, 0, 7]);
        }
        frame
    }

    /// The sum of the pseudo header, where the checksum belongs: tries all, as nobody would do it twice.
    fn leave_open(frame: &mut [u8], field: usize) {
        for sum in 0..=u16::MAX {
            frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            if pseudo_only(frame).is_some() {
                return;
            }
        }
        panic!("no sum is that of the pseudo header");
    }

    #[test]
    fn the_program_finds_what_the_port_completes() {
        let Some(program) = program() else { return };
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(300));
        let shape = (any::<bool>(), any::<bool>(), 12usize..80, 0usize..3, any::<bool>());
        let damage = (prop::collection::vec((0usize..80, any::<u8>()), 0..2), any::<bool>());
        let found = std::cell::Cell::new(0);
        let run = runner.run(&(shape, damage), |((v6, tcp, more, tags, open), (changes, damaged))| {
            let mut frame = frame(v6, tcp, &vec![0x5a; more], tags);
            if open {
                let transport = 14 + 4 * tags + if v6 { 40 } else { 20 };
                leave_open(&mut frame, transport + if tcp { 16 } else { 6 });
            }
            for (at, byte) in changes.into_iter().filter(|_| damaged) {
                frame[at % 54] = byte;
            }
            let told = bpf::test_run(program.as_fd(), &frame, 1).unwrap().0 == FOUND;
            found.set(found.get() + u32::from(told));
            // A frame that only one of them looks at (an IP version that is none) is whole for the other.
            let twin = pseudo_only(&frame).is_some_and(|partial| [6, 16].contains(&partial.offset));
            prop_assert!(told || !twin, "missed {:02x?}", frame);
            prop_assert!(damaged || told == twin, "{:02x?}", frame);
            Ok(())
        });
        run.unwrap();
        assert!(found.get() > 60, "only {} of 300 were found", found.get());
        let echo = bpf::test_run(program.as_fd(), &build_echo_frame(), 1).unwrap().0;
        assert_eq!(echo, WHOLE);
    }

    fn build_echo_frame() -> Vec<u8> {
        let ends = Ends {
            macs: ([2; 6], [4; 6]),
            addresses: ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()),
            ports: (0, 0),
        };
        build_echo(&ends, 1, 1, &[0; 40]).unwrap()
    }
}
