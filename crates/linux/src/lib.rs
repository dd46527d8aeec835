//! The only place that touches the machine.
//!
//! **What.** Namespaces and links ([`lab`]), counters and the drop witness ([`observe`]), ports ([`port`]), settings of interfaces ([`tune`]), the undo
//! of everything that changes the machine ([`undo`]), all virtual machines to do all that in ([`vm`]), over one floor of system calls ([`sys`]).
//!
//! **Why.** `unsafe`, `/proc`, netlink and `bpf(2)` live here and nowhere else, so the rest of pathlab can be read
//! and tested without a kernel.
//!
//! **Price.** Linux only, 5.10 or later; what a host lacks is found out at run time and said.

pub mod filter;
pub mod journal;
pub mod lab;
pub mod namespace;
pub mod netlink;
pub mod observe;
pub mod port;
pub mod sys;
pub mod tune;
pub mod undo;
pub mod vm;
