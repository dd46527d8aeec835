//! The only place that touches the machine.
//!
//! **What.** Namespaces and links ([`lab`]), counters and the drop witness ([`observe`]), the one door through which
//! everything that changes the machine is undone ([`undo`]), all over one floor of system calls ([`sys`]).
//!
//! **Why.** `unsafe`, `/proc`, netlink and `bpf(2)` live here and nowhere else, so the rest of pathlab can be read
//! and tested without a kernel.
//!
//! **Price.** Linux only, 5.10 or later; what a host lacks is found out at run time and said.

pub mod assembler;
pub mod down;
pub mod filter;
pub mod htb;
pub mod lab;
pub mod observe;
pub mod port;
pub mod stamping;
pub mod sys;
pub mod undo;
