//! Which frames the XDP program takes; all others go on into the kernel.
//!
//! **What.** `?only=udp:PORT`: whole UDP datagrams to that port, over IPv4 or IPv6, behind up to two VLAN tags. ARP,
//! neighbour discovery, ping, every fragment and every IPv6 packet with extension headers stay the host's.
//!
//! **Why.** A program that takes everything takes ARP, too: the host could not say who it is any more, and the next node
//! would send nothing. A test takes its own stream and leaves the host alone.
//!
//! **Price.** Some twenty instructions a frame. The decision is made twice, here ([`Only::takes`]) and as instructions
//! ([`Only::select`]); a test runs both over the same frames.

use ::bpf::{Assembler, Label, Op, Reg::*, When, Width};

const IPV4: i32 = 0x0800;
const IPV6: i32 = 0x86dd;
/// 802.1Q and 802.1ad.
const TAGS: [i32; 2] = [0x8100, 0x88a8];
/// Tags that are looked behind.
const MOST_TAGS: usize = 2;
const UDP: i32 = 17;
/// More fragments, and the offset (RFC 791, section 3.1); "don't fragment" is not among them.
const FRAGMENT: i32 = 0x3fff;

/// UDP datagrams to one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Only {
    /// The destination port.
    pub udp: u16,
}

impl Only {
    /// Reads `udp:PORT`; none for anything else.
    pub fn read(text: &str) -> Option<Only> {
        let port = text.strip_prefix("udp:")?.parse().ok().filter(|port| *port > 0)?;
        Some(Only { udp: port })
    }

    /// As it is written.
    pub fn text(self) -> String {
        format!("udp:{}", self.udp)
    }

    /// Whether a frame is one of them: the slow twin of the program.
    #[cfg(test)]
    fn takes(self, frame: &[u8]) -> bool {
        let word = |at: usize| {
            frame.get(at..at + 2).map(|bytes| i32::from(u16::from_be_bytes([bytes[0], bytes[1]])))
        };
        let decide = || {
            let (mut kind, mut at) = (word(12)?, 14);
            for _ in 0..MOST_TAGS {
                if TAGS.contains(&kind) {
                    (kind, at) = (word(at + 2)?, at + 4);
                }
            }
            let udp = match kind {
                IPV4 => {
                    let header = frame.get(at..at + 20)?;
                    let length = usize::from(header[0] & 15) * 4;
                    let whole = word(at + 6)? & FRAGMENT == 0;
                    (i32::from(header[9]) == UDP && whole && length >= 20).then_some(at + length)?
                }
                IPV6 => (i32::from(*frame.get(at + 6)?) == UDP).then_some(at + 40)?,
                _ => return None,
            };
            frame.get(udp..udp + 8)?;
            Some(word(udp + 2)? == i32::from(self.udp))
        };
        decide().unwrap_or(false)
    }

    /// Instructions that jump to `pass` for every other frame and go on for these. `R1` is the context (`struct xdp_md`);
    /// `R6` has it afterwards.
    pub fn select(self, a: &mut Assembler, pass: Label) {
        let (v4, v6, udp) = (a.label(), a.label(), a.label());
        a.op_reg(Op::Move, R6, R1);
        a.load(Width::B4, R7, R1, 0); // data
        a.load(Width::B4, R8, R1, 4); // data_end
        a.op_reg(Op::Move, R2, R7);
        a.op(Op::Add, R2, 14);
        a.jump_if_reg(R2, When::Above, R8, pass);
        load_word(a, 12, R7);
        for _ in 0..MOST_TAGS {
            let (tagged, next) = (a.label(), a.label());
            TAGS.iter().for_each(|&tag| a.jump_if(R3, When::Equal, tag, tagged));
            a.jump(next);
            a.place(tagged);
            reaches(a, 4, pass);
            load_word(a, 2, R2);
            a.op(Op::Add, R2, 4);
            a.place(next);
        }
        a.jump_if(R3, When::Equal, IPV4, v4);
        a.jump_if(R3, When::Equal, IPV6, v6);
        a.jump(pass);

        a.place(v4);
        reaches(a, 20, pass);
        a.load(Width::B1, R5, R2, 9);
        a.jump_if(R5, When::NotEqual, UDP, pass);
        load_word(a, 6, R2);
        a.op(Op::And, R3, FRAGMENT);
        a.jump_if(R3, When::NotEqual, 0, pass);
        a.load(Width::B1, R5, R2, 0);
        a.op(Op::And, R5, 15);
        a.op(Op::ShiftLeft, R5, 2);
        a.jump_if(R5, When::Below, 20, pass);
        a.op_reg(Op::Add, R2, R5);
        a.jump(udp);

        a.place(v6);
        reaches(a, 40, pass);
        a.load(Width::B1, R5, R2, 6);
        a.jump_if(R5, When::NotEqual, UDP, pass);
        a.op(Op::Add, R2, 40);

        a.place(udp);
        reaches(a, 8, pass);
        load_word(a, 2, R2);
        a.jump_if(R3, When::NotEqual, i32::from(self.udp), pass);
    }
}

/// Goes to `pass` when the frame ends before `R2 + bytes`.
fn reaches(a: &mut Assembler, bytes: i32, pass: Label) {
    a.op_reg(Op::Move, R4, R2);
    a.op(Op::Add, R4, bytes);
    a.jump_if_reg(R4, When::Above, R8, pass);
}

/// `R3` = the big-endian 16 bits at `base + offset`.
fn load_word(a: &mut Assembler, offset: i16, base: ::bpf::Reg) {
    a.load(Width::B2, R3, base, offset);
    a.from_big_endian(R3, Width::B2);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::bpf;
    use proptest::prelude::*;
    use std::os::fd::{AsFd, OwnedFd};
    use wire::build::{Ends, build_echo, build_udp};

    const PORT: u16 = 7002;
    const TAKEN: u32 = 1;
    const PASSED: u32 = 2;

    /// The program with an ending that tells its decision.
    fn program() -> Option<OwnedFd> {
        let mut a = Assembler::new();
        let pass = a.label();
        Only { udp: PORT }.select(&mut a, pass);
        for (label, told) in [(None, TAKEN), (Some(pass), PASSED)] {
            label.into_iter().for_each(|label| a.place(label));
            a.op(Op::Move, R0, told as i32);
            a.exit();
        }
        let code = a.finish().expect("every label is placed");
        match bpf::load_program(bpf::PROG_XDP, &code, c"GPL", "pathlab_only") {
            Ok(program) => Some(program),
            Err(rejected) if rejected.error.raw_os_error() == Some(libc::EPERM) => {
                println!("SKIP: the program of only=: {}", rejected.error);
                None
            }
            Err(rejected) => panic!("{}: {}", rejected.error, rejected.log),
        }
    }

    fn ends(v6: bool, port: u16) -> Ends {
        let address = |host: u8| if v6 { format!("fd00::{host}") } else { format!("10.0.0.{host}") };
        Ends {
            macs: ([2; 6], [4; 6]),
            addresses: (address(1).parse().unwrap(), address(2).parse().unwrap()),
            ports: (9, port),
        }
    }

    fn tagged(frame: &[u8], tags: usize) -> Vec<u8> {
        let mut frame = frame.to_vec();
        for tag in 0..tags {
            let kind = if tag == 1 { [0x88, 0xa8] } else { [0x81, 0] };
            let tag = [kind[0], kind[1], 0, 5];
            frame.splice(12..12, tag);
        }
        frame
    }

    #[test]
    fn a_name_is_read_or_not() {
        assert_eq!(Only::read("udp:9"), Some(Only { udp: 9 }));
        assert_eq!(Only { udp: 9 }.text(), "udp:9");
        for wrong in ["udp:0", "udp:65536", "udp", "tcp:9", "", "udp:x"] {
            assert_eq!(Only::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn datagrams_to_the_port_are_taken_and_nothing_else() {
        let only = Only { udp: PORT };
        for v6 in [false, true] {
            let ours = build_udp(&ends(v6, PORT), b"hello, this is long enough").unwrap();
            for tags in 0..3 {
                assert!(only.takes(&tagged(&ours, tags)), "{tags} tags");
            }
            assert!(!only.takes(&tagged(&ours, 3)));
            assert!(!only.takes(&build_udp(&ends(v6, PORT + 1), b"x").unwrap()));
            assert!(!only.takes(&build_echo(&ends(v6, PORT), 1, 2, b"x").unwrap()));
            assert!(!only.takes(&ours[..ours.len().min(30)]));
        }
        let mut fragment = build_udp(&ends(false, PORT), b"hello").unwrap();
        fragment[20] = 0x20;
        assert!(!only.takes(&fragment), "the host puts fragments together");
        let mut arp = vec![0xff; 42];
        arp[12..14].copy_from_slice(&[8, 6]);
        assert!(!only.takes(&arp));
    }

    #[test]
    fn the_kernel_runs_what_the_twin_says() {
        let Some(program) = program() else { return };
        let only = Only { udp: PORT };
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2000));
        let shape = (any::<bool>(), 0usize..4, prop_oneof![Just(PORT), any::<u16>()], 0usize..40);
        // Bytes that are changed, mostly in the headers, and how much of the frame is cut off.
        let damage = (prop::collection::vec((0usize..60, any::<u8>()), 0..3), 0usize..70);
        let taken = std::cell::Cell::new(0);
        let run = runner.run(&(shape, damage), |((v6, tags, port, more), (changes, cut))| {
            let mut frame = tagged(&build_udp(&ends(v6, port), &vec![0x5a; more]).unwrap(), tags);
            changes.into_iter().for_each(|(at, byte)| {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            });
            frame.truncate(frame.len().saturating_sub(cut.saturating_sub(40)).max(14));
            let told = bpf::test_run(program.as_fd(), &frame, 1).unwrap().0;
            taken.set(taken.get() + u32::from(told == TAKEN));
            prop_assert_eq!(told == TAKEN, only.takes(&frame), "{:02x?}", frame);
            Ok(())
        });
        run.unwrap();
        assert!(taken.get() > 200, "only {} of 2000 frames were taken", taken.get());
    }
}
