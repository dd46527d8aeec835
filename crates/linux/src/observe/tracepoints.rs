//! What programs at tracepoints share that count words and distributions in the kernel ([`super::polls`], [`super::scheduler`]).

use std::io;

use ::bpf::{Assembler, Op, Reg::*, When};
use record::buckets::{MOST_BITS, SUB_BITS};

use crate::sys::bpf;

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
pub(super) fn rejection(event: &str, rejected: &bpf::Rejected) -> String {
    let why = refused(&format!("the program of {event}"), &rejected.error);
    let last = rejected.log.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed"));
    last.map_or(why.clone(), |line| format!("{why}; the verifier says: {line}"))
}
