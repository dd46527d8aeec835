//! A place for a program of the kernel that meets the frames of several ports before the ports do.
//!
//! **What.** A [`ProgramSlot`] is a `BPF_MAP_TYPE_PROG_ARRAY` of one entry. The small program that stands at each interface goes on with what is in
//! it; when it is empty, the frame goes the port's way to user space. So one update puts a program into use for all ports at once, and one
//! takes it out.
//!
//! **Why.** Attaching and detaching at every interface would take a step for each, and a frame could meet the old program at one and the new
//! one at another.
//!
//! **Price.** A lookup and a jump for each frame. Taking a program out does not end its runs that are under way:
//! [`ProgramSlot::empty`] waits for these, which is a grace period of the kernel.

use crate::sys::bpf::{self, Map};
use ::bpf::{Assembler, Op, Reg::*};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `bpf_tail_call`.
const TAIL_CALL: i32 = 12;
/// The only entry.
const ENTRY: [u8; 4] = [0; 4];

/// A place for a program.
#[derive(Debug)]
pub struct ProgramSlot {
    map: Map,
}

impl PartialEq for ProgramSlot {
    fn eq(&self, other: &Self) -> bool {
        self.map.raw_fd() == other.map.raw_fd()
    }
}

impl ProgramSlot {
    /// An empty one.
    ///
    /// # Errors
    /// As [`Map::create`]; `EINVAL` where a grace period cannot be waited for.
    pub fn new() -> io::Result<ProgramSlot> {
        let map = Map::create(bpf::MAP_PROGRAMS, 4, 4, 1, "pathlab_slot")?;
        // Found out now, and not when rules change.
        bpf::wait_for_running_programs()?;
        Ok(ProgramSlot { map })
    }

    /// Puts a program into use, instead of the one that is there. It must be of the kind of those that go on with it.
    ///
    /// # Errors
    /// `EINVAL` for another kind of program.
    pub fn fill(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.map.update(&ENTRY, &(program.as_raw_fd() as u32).to_ne_bytes())
    }

    /// Takes the program out, and waits until no run of it is under way.
    ///
    /// # Errors
    /// What the kernel says; the program may go on running then.
    pub fn empty(&self) -> io::Result<()> {
        if self.map.delete(&ENTRY)? {
            bpf::wait_for_running_programs()?;
        }
        Ok(())
    }

    /// Instructions that go on with the program, and behind them if there is none; `R1` is the context, and R1 to R5 are gone then.
    pub(in crate::port) fn go_on(&self, a: &mut Assembler) {
        a.load_map(R2, self.map.raw_fd());
        a.op(Op::Move, R3, 0);
        a.call(TAIL_CALL);
    }
}
