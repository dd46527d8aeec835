//! The cheapest end of a wire: an XDP program that drops every frame where the driver hands it over.
//!
//! **What.** While a [`Sink`] lives, frames that the interface receives are counted in its `rx_packets` and dropped.
//!
//! **Why.** A benchmark of senders needs a far end that is the same for all and costs as little as possible, because on
//! a veth the far end's work is done by the sender's CPU. A veth also takes redirected frames (live frames, XDP
//! forwarding) only while its peer has such a program.
//!
//! **Price.** A frame that came as a socket buffer is turned into an XDP buffer first (`veth_xdp_rcv_skb`), which costs
//! such frames more than a live frame: a sink that is the same for all is not equally cheap for all.

use super::interface::Interface;
use crate::sys::bpf::{self, Attachment};
use ::bpf::{Assembler, Op, Reg};
use record::{Problem, Result};
use std::os::fd::{AsFd, OwnedFd};

/// `XDP_DROP` of linux/bpf.h.
const XDP_DROP: i32 = 1;

/// Drops what an interface receives, as long as it lives.
#[derive(Debug)]
pub struct Sink {
    _link: Attachment,
}

impl Sink {
    /// Attaches to an interface of the calling thread's namespace.
    ///
    /// # Errors
    /// Input when there is no such interface; host when the driver or this user cannot, or another program is there.
    pub fn open(interface: &str) -> Result<Sink> {
        let found = Interface::find(interface, interface)?;
        let refused = |error: std::io::Error| {
            Problem::host(format!("no XDP program that drops can be attached: {error}"))
                .at(interface)
                .help("run as root, and detach another XDP program if there is one")
        };
        let link = answer(found.link.index, XDP_DROP, "pathlab_drop").map_err(refused)?;
        Ok(Sink { _link: link })
    }
}

/// Attaches a program that says the same of every frame to an interface of the calling thread's namespace.
pub(super) fn answer(index: u32, verdict: i32, name: &str) -> std::io::Result<Attachment> {
    let loaded = program(verdict, name)?;
    bpf::attach_xdp(loaded.as_fd(), index, bpf::XDP_NATIVE)
}

/// Loads a program that says the same of every frame.
pub(super) fn program(verdict: i32, name: &str) -> std::io::Result<OwnedFd> {
    let mut program = Assembler::new();
    program.op(Op::Move, Reg::R0, verdict);
    program.exit();
    let code = program.finish().expect("no jumps");
    bpf::load_program(bpf::PROG_XDP, &code, c"GPL", name).map_err(|rejected| rejected.error)
}
