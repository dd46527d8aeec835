//! What programs at tracepoints and functions of the kernel share that count words and distributions there ([`super::polls`], [`super::scheduler`],
//! [`super::packet_frames`]).

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ::bpf::{AssembleError, Assembler, Label, Op, Reg, Reg::*, When, Width::*};
use record::buckets::{MOST_BITS, SUB_BITS};

use super::btf;
use crate::sys::bpf::{self, Edge};

// Numbers of helpers (`___BPF_FUNC_MAPPER` in include/uapi/linux/bpf.h).
pub(super) const MAP_LOOKUP: i32 = 1;
pub(super) const TIME: i32 = 5;
pub(super) const PROBE_READ_KERNEL: i32 = 113;

/// An enumeration of 64-bit words of a value, each with its place.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $word:ident),* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $word),* }

        impl $name {
            /// How many there are.
            pub const COUNT: usize = [$($name::$word),*].len();

            /// Where it is in the value.
            pub fn offset(self) -> i16 {
                self as i16 * 8
            }
        }
    };
}
pub(super) use words;

/// What every such program does.
pub(super) trait Counting {
    /// Where its instructions go.
    fn assembler(&mut self) -> &mut Assembler;

    /// The address of a place on the stack, to a register.
    fn stack(&mut self, register: Reg, offset: i16) {
        self.assembler().op_reg(Op::Move, register, R10);
        self.assembler().op(Op::Add, register, i32::from(offset));
    }

    /// The value of a key on the stack, in `R0`; it jumps where the map has none.
    fn look_up(&mut self, map: i32, key: i16, absent: Label) {
        self.assembler().load_map(R1, map);
        self.stack(R2, key);
        self.assembler().call(MAP_LOOKUP);
        self.assembler().jump_if(R0, When::Equal, 0, absent);
    }

    /// Adds a register to a word; uses `R1`.
    fn add(&mut self, base: Reg, offset: i16, by: Reg) {
        self.assembler().load(B8, R1, base, offset);
        self.assembler().op_reg(Op::Add, R1, by);
        self.assembler().store(B8, base, offset, R1);
    }

    /// The time, to `R9`.
    fn now(&mut self) {
        self.assembler().call(TIME);
        self.assembler().op_reg(Op::Move, R9, R0);
    }

    /// Copies `bytes` at `R3` (+ `offset`) to the stack and jumps if they cannot be read.
    fn read(&mut self, to: i16, bytes: u32, offset: u32, unreadable: Label) {
        if offset != 0 {
            self.assembler().op(Op::Add, R3, offset as i32);
        }
        self.stack(R1, to);
        self.assembler().op(Op::Move, R2, bytes as i32);
        self.assembler().call(PROBE_READ_KERNEL);
        self.assembler().jump_if(R0, When::NotEqual, 0, unreadable);
    }
}

/// From the value in `R2` to the number of its bucket, as [`record::buckets::index`].
pub(super) fn bucket(a: &mut Assembler) {
    let (fits, done) = (a.label(), a.label());
    a.op(Op::Move, R3, 1);
    a.op(Op::ShiftLeft, R3, MOST_BITS as i32);
    a.jump_if_reg(R2, When::Below, R3, fits);
    a.op_reg(Op::Move, R2, R3);
    a.op(Op::Subtract, R2, 1);
    a.place(fits);
    a.jump_if(R2, When::Below, 1 << SUB_BITS, done);
    // R4 becomes the logarithm: the highest bit that is set.
    a.op_reg(Op::Move, R3, R2);
    a.op(Op::Move, R4, 0);
    for bits in [32, 16, 8, 4, 2, 1] {
        let low = a.label();
        a.op_reg(Op::Move, R5, R3);
        a.op(Op::ShiftRight, R5, bits);
        a.jump_if(R5, When::Equal, 0, low);
        a.op_reg(Op::Move, R3, R5);
        a.op(Op::Add, R4, bits);
        a.place(low);
    }
    a.op(Op::Subtract, R4, SUB_BITS as i32);
    a.op_reg(Op::ShiftRight, R2, R4);
    a.op(Op::ShiftLeft, R4, SUB_BITS as i32);
    a.op_reg(Op::Add, R2, R4);
    a.place(done);
}

/// Loads the program of an event and attaches it there, until what is returned goes: the event and the program.
///
/// # Errors
/// The sentence why it cannot run.
pub(super) fn attach(
    event: &str,
    code: Result<Vec<u64>, AssembleError>,
) -> Result<(OwnedFd, OwnedFd), String> {
    let load = |code: &[u64], name: &str| bpf::load_program(bpf::PROG_RAW_TRACEPOINT, code, LICENSE, name);
    let program = loaded(event, code, load)?;
    let name = CString::new(event).map_err(|error| error.to_string())?;
    let link =
        bpf::open_raw_tracepoint(&name, program.as_fd()).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => format!("this kernel has no event {event}"),
            _ => refused(&format!("the event {event}"), &error),
        })?;
    Ok((link, program))
}

/// Loads the program of a function of the kernel and attaches it there, as [`attach`].
///
/// # Errors
/// The sentence why it cannot run.
pub(super) fn attach_to_function(
    function: &str,
    edge: Edge,
    code: Result<Vec<u64>, AssembleError>,
) -> Result<(OwnedFd, OwnedFd), String> {
    let number = btf::of_kernel()?.function(function);
    let number = number.ok_or_else(|| format!("the types of this kernel have no function {function}"))?;
    let load = |code: &[u64], name: &str| bpf::load_for_function((number, edge), code, LICENSE, name);
    let program = loaded(function, code, load)?;
    let link = bpf::open_function(program.as_fd());
    let link = link.map_err(|error| refused(&format!("the function {function}"), &error))?;
    Ok((link, program))
}

/// The licence of the programs, which use functions for GPL only.
const LICENSE: &CStr = c"Dual MIT/GPL";

/// Loads a program for a place.
fn loaded(
    place: &str,
    code: Result<Vec<u64>, AssembleError>,
    load: impl FnOnce(&[u64], &str) -> Result<OwnedFd, bpf::Rejected>,
) -> Result<OwnedFd, String> {
    let code = code.map_err(|error| format!("the program of {place} cannot be assembled: {error:?}"))?;
    load(&code, &format!("pl_{place}")).map_err(|rejected| rejection(place, &rejected))
}

/// What the kernel refused, and what helps.
pub(super) fn refused(call: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            format!("{call}: {error}; it needs root on the host (CAP_BPF and CAP_PERFMON)")
        }
        Some(libc::ENOSYS) => format!("{call}: this kernel has no BPF ({error})"),
        _ => format!("{call}: {error}"),
    }
}

/// What the verifier says of the program of an event.
fn rejection(event: &str, rejected: &bpf::Rejected) -> String {
    let why = refused(&format!("the program of {event}"), &rejected.error);
    let last = rejected.log.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed"));
    last.map_or(why.clone(), |line| format!("{why}; the verifier says: {line}"))
}
