//! The program that makes live frames.
//!
//! Every template is a record in one map: how long it is, where its message and its checksum are, the sum of all that
//! does not change, then its bytes. The program writes number, time and checksum into the record, copies the head of it
//! over the frame (the kernel gives a frame back as its last receiver left it, so what stacks rewrite must be written
//! again: Ethernet, IP and transport headers; a single template's payload is still there), cuts the frame to length and
//! redirects it.

use super::LiveFrame;
use crate::port::sink;
use crate::sys::bpf::{self, Map};
use ::bpf::{AssembleError, Assembler, Label, Op, Reg::*, When, Width};
use record::{Problem, Result};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use wire::checksum::Sum;
use wire::frame::{ICMP, ICMPV6, TCP, UDP};
use wire::layers::{Fragment, Layers};

/// The longest frame: a page without the kernel's own header (256 bytes) and `struct skb_shared_info` (320 and more).
pub(super) const LONGEST: usize = 3400;
/// How much of a frame that is alone is written anew: more than Ethernet, tag, IPv6, TCP with options and a message.
const HEAD: usize = 144;

// The record of a template.
const LENGTH: i16 = 0;
// Read only where there are several; the bytes of one alone are counted when the program is assembled.
const WRITTEN: i16 = 4;
const MESSAGE: i16 = 8;
const CHECKSUM: i16 = 12;
const REST: i16 = 16;
const PREFIX: i16 = 24;
const BYTES: usize = 32;

// The state: the number of the next frame, which template it has, whether to send.
const SEQUENCE: i16 = 0;
const TURN: i16 = 8;
const STATE_BYTES: u32 = 16;

// Where `struct xdp_md` has the frame.
const XDP_MD_DATA: i16 = 0;
const XDP_MD_DATA_END: i16 = 4;

// Functions of the kernel (`enum bpf_func_id`) and what an XDP program may answer.
const KTIME_GET_NS: i32 = 5;
const REDIRECT_MAP: i32 = 51;
const XDP_ADJUST_TAIL: i32 = 65;
const XDP_STORE_BYTES: i32 = 190;
const XDP_ABORTED: i32 = 0;
const XDP_DROP: i32 = 1;
const XDP_REDIRECT: i32 = 4;

/// The loaded program and its maps.
#[derive(Debug)]
pub(super) struct Generator {
    program: OwnedFd,
    state: Map,
    /// The frame that the kernel starts from: as long as the longest template.
    frame: Vec<u8>,
    _maps: [Map; 2],
}

impl Generator {
    pub fn new(frames: &[LiveFrame], first_sequence: u64, interface: u32) -> Result<Generator> {
        let refused = |e: io::Error| {
            let problem = Problem::host(format!("cannot load a program for live frames: {e}"));
            match e.raw_os_error() {
                Some(libc::EPERM) => problem.help("this needs root, or CAP_BPF and CAP_NET_ADMIN"),
                _ => problem,
            }
        };
        let longest = frames.iter().map(|frame| frame.bytes.len()).max().unwrap_or(0);
        let stride = (BYTES + longest).next_power_of_two();
        let records = records(frames, stride)?;
        let state = Map::create(bpf::MAP_ARRAY, 4, STATE_BYTES, 1, "pathlab_live").map_err(refused)?;
        let maps = (|| {
            let map = Map::create(bpf::MAP_ARRAY, 4, records.len() as u32, 1, "pathlab_frames")?;
            map.update(&[0; 4], &records)?;
            let devices = Map::create(bpf::MAP_DEVICES, 4, 4, 1, "pathlab_out")?;
            devices.update(&[0; 4], &interface.to_ne_bytes())?;
            let mut begin = [0; STATE_BYTES as usize];
            begin[..8].copy_from_slice(&first_sequence.to_ne_bytes());
            state.update(&[0; 4], &begin)?;
            Ok([map, devices])
        })()
        .map_err(refused)?;
        let plan = Plan {
            state: state.raw_fd(),
            records: maps[0].raw_fd(),
            devices: maps[1].raw_fd(),
            count: frames.len() as i32,
            stride: stride as i32,
            longest: longest as i32,
            one_length: frames.iter().all(|frame| frame.bytes.len() == longest),
            messages: frames.iter().any(|frame| frame.message.is_some()),
            written: if let [frame] = frames { Some(head(frame)) } else { None },
        };
        let code = assemble(&plan).map_err(|e| Problem::host(format!("cannot assemble: {e:?}")))?;
        let program =
            bpf::load_program(bpf::PROG_XDP, &code, c"GPL", "pathlab_live").map_err(|rejected| {
                let last = rejected.log.lines().rev().find(|line| !line.is_empty()).unwrap_or_default();
                let problem = refused(rejected.error);
                if last.is_empty() { problem } else { problem.help(format!("the verifier says: {last}")) }
            })?;
        let frame = frames.iter().find(|frame| frame.bytes.len() == longest);
        let frame = frame.map(|frame| frame.bytes.clone()).unwrap_or_default();
        Ok(Generator { program, state, frame, _maps: maps })
    }

    /// Sends so many frames.
    pub fn run(&self, count: u32, batch: u32) -> io::Result<()> {
        bpf::run_live_frames(self.program.as_fd(), &self.frame, count, batch)
    }

    /// Lets the kernel make one frame that is thrown away at once, to see whether it can.
    pub fn rehearse(&self) -> io::Result<()> {
        let drop_it = sink::program(XDP_DROP, "pathlab_rehearse")?;
        bpf::run_live_frames(drop_it.as_fd(), &self.frame, 1, 1)
    }

    /// The number of the next frame.
    pub fn sequence(&self) -> io::Result<u64> {
        let state = self.state.lookup(&[0; 4])?.unwrap_or_default();
        state
            .first_chunk()
            .map(|bytes| u64::from_ne_bytes(*bytes))
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// How much of a frame that is alone is written anew: its headers, its message, and no more than there is.
fn head(frame: &LiveFrame) -> usize {
    frame.bytes.len().min(HEAD.max(frame.message.unwrap_or(0) + 24))
}

/// All templates, one behind the other.
fn records(frames: &[LiveFrame], stride: usize) -> Result<Vec<u8>> {
    // A message may begin at the last byte as far as the verifier can see, so there is room behind the last record.
    let mut records = vec![0; frames.len() * stride + 64];
    for (number, (frame, record)) in frames.iter().zip(records.chunks_mut(stride)).enumerate() {
        let mut put = |at: i16, bytes: &[u8]| record[at as usize..][..bytes.len()].copy_from_slice(bytes);
        let length = frame.bytes.len();
        put(LENGTH, &(length as u32).to_ne_bytes());
        put(WRITTEN, &(length as u32).to_ne_bytes());
        if let Some(at) = frame.message {
            put(MESSAGE, &((BYTES + at) as u32).to_ne_bytes());
            put(PREFIX, &(u64::from(be16(&frame.bytes, at + 2)) << 48).to_ne_bytes());
            if let Some(field) = checksum_field(&frame.bytes, at) {
                let rest = sum_without(&frame.bytes, &field, at);
                if (at - field.start) % 2 == 1 {
                    return Err(Problem::input(format!(
                        "template {} has its message at an odd place behind its checksum",
                        number + 1
                    ))
                    .help("move it by one byte"));
                }
                put(CHECKSUM, &((BYTES + field.at) as u32).to_ne_bytes());
                put(REST, &u64::from(rest).to_ne_bytes());
            }
        }
        put(BYTES as i16, &frame.bytes);
    }
    Ok(records)
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// A checksum that covers the message: where it is, where its sum begins and ends, and what the pseudo header adds.
struct Field {
    at: usize,
    start: usize,
    end: usize,
    pseudo: Sum,
}

/// The transport checksum of a frame, if it has one that covers the message.
fn checksum_field(frame: &[u8], message: usize) -> Option<Field> {
    let layers = Layers::of(frame)?;
    let Layers { transport: start, end, protocol, fragment, .. } = layers;
    if fragment != Fragment::Whole || layers.is_cut(frame) {
        return None;
    }
    let pseudo = layers.pseudo(frame, protocol, end - start);
    let (offset, pseudo) = match protocol {
        TCP => (16, pseudo),
        // 0 means that there is none.
        UDP if be16(frame, start + 6) != 0 => (6, pseudo),
        ICMP => (2, Sum::new()),
        ICMPV6 => (2, pseudo),
        _ => return None,
    };
    (message >= start + offset + 2 && message + wire::message::LENGTH <= end).then_some(Field {
        at: start + offset,
        start,
        end,
        pseudo,
    })
}

/// The sum of everything that the checksum covers, with 0 for the checksum, the number and the time.
fn sum_without(frame: &[u8], field: &Field, message: usize) -> u16 {
    let mut bytes = frame[field.start..field.end].to_vec();
    let (checksum, message) = (field.at - field.start, message - field.start);
    bytes[checksum..checksum + 2].fill(0);
    bytes[message + 4..message + wire::message::LENGTH].fill(0);
    !field.pseudo.add_bytes(&bytes).finish()
}

struct Plan {
    state: i32,
    records: i32,
    devices: i32,
    count: i32,
    stride: i32,
    longest: i32,
    one_length: bool,
    messages: bool,
    /// How many bytes of every frame are written, where that is known beforehand.
    written: Option<usize>,
}

/// R6 context, R7 state, R8 the record of this frame, R9 its number.
fn assemble(plan: &Plan) -> std::result::Result<Vec<u64>, AssembleError> {
    let mut a = Assembler::new();
    let fail = a.label();
    a.op_reg(Op::Move, R6, R1);
    a.load_map_value(R7, plan.state);
    a.load(Width::B8, R9, R7, SEQUENCE);
    a.load_map_value(R8, plan.records);
    if plan.count > 1 {
        take_turn(&mut a, plan);
    }
    if plan.messages {
        write_message(&mut a, plan);
    }
    if !plan.one_length {
        a.load(Width::B4, R2, R8, LENGTH);
        a.op(Op::Subtract, R2, plan.longest);
        a.op_reg(Op::Move, R1, R6);
        a.call(XDP_ADJUST_TAIL);
        a.jump_if(R0, When::NotEqual, 0, fail);
    }
    match plan.written {
        Some(bytes) => write_known(&mut a, bytes, fail),
        None => write_any(&mut a, plan, fail),
    }
    a.load_map(R1, plan.devices);
    a.op(Op::Move, R2, 0);
    a.op(Op::Move, R3, XDP_ABORTED);
    a.call(REDIRECT_MAP);
    a.jump_if(R0, When::NotEqual, XDP_REDIRECT, fail);
    a.op(Op::Add, R9, 1);
    a.store(Width::B8, R7, SEQUENCE, R9);
    a.exit();
    a.place(fail);
    a.op(Op::Move, R0, XDP_ABORTED);
    a.exit();
    a.finish()
}

/// Writes so many bytes of the record into the frame, word by word: a tenth cheaper than the kernel's function.
fn write_known(a: &mut Assembler, bytes: usize, fail: Label) {
    a.load(Width::B4, R2, R6, XDP_MD_DATA);
    a.load(Width::B4, R3, R6, XDP_MD_DATA_END);
    a.op_reg(Op::Move, R4, R2);
    a.op(Op::Add, R4, bytes as i32);
    a.jump_if_reg(R4, When::Above, R3, fail);
    let mut at = 0;
    for (width, step) in [(Width::B8, 8), (Width::B4, 4), (Width::B2, 2), (Width::B1, 1)] {
        while at + step <= bytes {
            a.load(width, R1, R8, (BYTES + at) as i16);
            a.store(width, R2, at as i16, R1);
            at += step;
        }
    }
}

/// Writes as many bytes as the record says.
fn write_any(a: &mut Assembler, plan: &Plan, fail: Label) {
    a.load(Width::B4, R4, R8, WRITTEN);
    a.jump_if(R4, When::Equal, 0, fail);
    a.jump_if(R4, When::Above, plan.stride - BYTES as i32, fail);
    a.op_reg(Op::Move, R3, R8);
    a.op(Op::Add, R3, BYTES as i32);
    a.op(Op::Move, R2, 0);
    a.op_reg(Op::Move, R1, R6);
    a.call(XDP_STORE_BYTES);
    a.jump_if(R0, When::NotEqual, 0, fail);
}

/// Moves R8 to the template whose turn it is, and the turn on.
fn take_turn(a: &mut Assembler, plan: &Plan) {
    let (sound, more) = (a.label(), a.label());
    a.load(Width::B8, R1, R7, TURN);
    a.jump_if(R1, When::Below, plan.count, sound);
    a.op(Op::Move, R1, 0);
    a.place(sound);
    a.op_reg(Op::Move, R2, R1);
    a.op(Op::Add, R2, 1);
    a.jump_if(R2, When::Below, plan.count, more);
    a.op(Op::Move, R2, 0);
    a.place(more);
    a.store(Width::B8, R7, TURN, R2);
    a.op(Op::ShiftLeft, R1, plan.stride.trailing_zeros() as i32);
    a.op_reg(Op::Add, R8, R1);
}

/// Writes number, time and checksum into the record, if it has a message.
fn write_message(a: &mut Assembler, plan: &Plan) {
    let (done, not_zero) = (a.label(), a.label());
    a.load(Width::B4, R1, R8, MESSAGE);
    a.jump_if(R1, When::Equal, 0, done);
    a.call(KTIME_GET_NS);
    a.load(Width::B4, R1, R8, MESSAGE);
    a.op(Op::And, R1, plan.stride - 1);
    a.op_reg(Op::Add, R1, R8);
    // Stream, flags and number are eight bytes: the number keeps its low 48 bits.
    a.op_reg(Op::Move, R2, R9);
    a.op(Op::ShiftLeft, R2, 16);
    a.op(Op::ShiftRight, R2, 16);
    a.op_reg(Op::Move, R3, R2);
    a.load(Width::B8, R4, R8, PREFIX);
    a.op_reg(Op::Add, R2, R4);
    a.from_big_endian(R2, Width::B8);
    a.store(Width::B8, R1, 2, R2);
    a.op_reg(Op::Move, R4, R0);
    a.from_big_endian(R4, Width::B8);
    a.store(Width::B8, R1, 10, R4);

    a.load(Width::B4, R1, R8, CHECKSUM);
    a.jump_if(R1, When::Equal, 0, done);
    a.op(Op::And, R1, plan.stride - 1);
    a.op_reg(Op::Add, R1, R8);
    // 2^16 ≡ 1 in one's complement arithmetic, so halves of 32 bits are added and folded together.
    a.load(Width::B8, R5, R8, REST);
    for register in [R3, R0] {
        a.op_reg(Op::Move, R4, register);
        a.op(Op::ShiftLeft, R4, 32);
        a.op(Op::ShiftRight, R4, 32);
        a.op_reg(Op::Add, R5, R4);
        a.op(Op::ShiftRight, register, 32);
        a.op_reg(Op::Add, R5, register);
    }
    for _ in 0..3 {
        a.op_reg(Op::Move, R4, R5);
        a.op(Op::ShiftRight, R4, 16);
        a.op(Op::And, R5, 0xffff);
        a.op_reg(Op::Add, R5, R4);
    }
    a.op(Op::Xor, R5, 0xffff);
    a.op(Op::And, R5, 0xffff);
    a.jump_if(R5, When::NotEqual, 0, not_zero);
    // 0 would say "none" under UDP; everywhere else ffff is the same number.
    a.op(Op::Move, R5, 0xffff);
    a.place(not_zero);
    a.from_big_endian(R5, Width::B2);
    a.store(Width::B2, R1, 0, R5);
    a.place(done);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a header of destination options between IPv6 and UDP; any other frame as it is.
    fn with_options(mut frame: Vec<u8>) -> Vec<u8> {
        if frame[12..14] == [0x86, 0xdd] {
            frame[19] += 8;
            frame[20] = 60;
            frame.splice(54..54, [UDP, 0, 1, 4, 0, 0, 0, 0]);
        }
        frame
    }

    #[test]
    fn the_sum_of_what_stays_completes_to_the_checksum() {
        use std::net::IpAddr;
        let ends = |source: &str, destination: &str| wire::build::Ends {
            macs: ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]),
            addresses: (source.parse::<IpAddr>().unwrap(), destination.parse().unwrap()),
            ports: (1000, 2000),
        };
        for ends in [ends("10.0.0.1", "10.0.0.2"), ends("fd00::1", "fd00::2")] {
            let mut payload = vec![7; 31];
            let message =
                wire::message::Message { stream: 1, flags: Default::default(), sequence: 0, planned_ns: 0 };
            message.write(&mut payload[2..]);
            let plain = wire::build::build_udp(&ends, &payload).unwrap();
            // The checksum does not count extension headers (RFC 8200 section 8.1).
            for frame in [plain.clone(), with_options(plain)] {
                let at = frame.len() - 29;
                let field = checksum_field(&frame, at).unwrap();
                let rest = sum_without(&frame, &field, at);
                let found = be16(&frame, field.at);
                assert_eq!(found, !rest, "number and time are 0 here");
                assert!(
                    checksum_field(&frame, field.at).is_none(),
                    "a message over the checksum is not covered"
                );
            }
        }
    }
}
