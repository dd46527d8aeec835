//! The program that hands an interface's frames to our sockets.
//!
//! Frames of a queue that has a socket go there, all others go on into the kernel. One program serves all sockets of an
//! interface in this process; it is attached by a link, so it goes when the last of them is closed, or the process dies.

use crate::assembler::{Assembler, Op, Reg::*, Width};
use crate::sys::bpf::{self, Map};
use crate::sys::netns;
use record::{Problem, Result};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;
/// `rx_queue_index` in `struct xdp_md`.
const QUEUE: i16 = 16;
/// Queues that the map has room for.
const QUEUES: u32 = 1024;

/// Where the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// What goes best: native, else generic.
    Auto,
    /// In the driver, before a socket buffer is made.
    Native,
    /// On socket buffers, which every interface can.
    Generic,
}

impl Mode {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Auto => "auto",
            Mode::Native => "native",
            Mode::Generic => "generic",
        }
    }
}

/// A program that is attached.
#[derive(Debug)]
pub struct Redirect {
    map: Map,
    /// Where it runs.
    pub mode: Mode,
    /// Why it does not run in the driver; empty when it does or nobody wanted that.
    pub why_generic: String,
    _link: OwnedFd,
}

/// Namespace and index of an interface, and its program.
type Entry = ((u64, u32), Weak<Redirect>);
static ATTACHED: Mutex<Vec<Entry>> = Mutex::new(vec![]);

impl Redirect {
    /// The program of an interface of the calling thread's namespace; the one that is there when this process
    /// attached it.
    ///
    /// # Errors
    /// Host: another program is there, the driver cannot, this user may not.
    pub fn attach(interface: u32, name: &str, wanted: Mode) -> Result<Arc<Redirect>> {
        let namespace = netns::current().and_then(|namespace| netns::inode(namespace.as_fd()));
        let key = (namespace.unwrap_or(0), interface);
        let mut attached = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
        attached.retain(|(_, redirect)| redirect.strong_count() > 0);
        let known = attached.iter().find(|(other, _)| *other == key).and_then(|(_, there)| there.upgrade());
        if let Some(there) = known {
            return match wanted == Mode::Auto || wanted == there.mode {
                true => Ok(there),
                false => Err(Problem::input(format!(
                    "this process has {name} open in {} mode, so it cannot be opened in {} mode",
                    there.mode.name(),
                    wanted.name()
                ))),
            };
        }
        let redirect = Arc::new(new(interface, name, wanted)?);
        attached.push((key, Arc::downgrade(&redirect)));
        Ok(redirect)
    }

    /// Sends the frames of a queue to a socket.
    pub fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.map.update(&queue.to_ne_bytes(), &(socket.as_raw_fd() as u32).to_ne_bytes())
    }
}

fn new(interface: u32, name: &str, wanted: Mode) -> Result<Redirect> {
    let refused = |what: &str, e: io::Error| {
        let problem = Problem::host(format!("cannot {what}: {e}"));
        match e.raw_os_error() {
            Some(libc::EPERM) => problem.help("this needs root, or CAP_BPF and CAP_NET_ADMIN"),
            _ => problem,
        }
    };
    let map = Map::create(bpf::MAP_XSK, 4, 4, QUEUES, "pathlab_xsk")
        .map_err(|e| refused("make a map of AF_XDP sockets", e))?;
    let program = bpf::load_program(bpf::PROG_XDP, &code(map.raw_fd()), c"GPL", "pathlab_xdp")
        .map_err(|rejected| refused("load the XDP program", rejected.error))?;
    let attach = |mode| bpf::attach_xdp(program.as_fd(), interface, mode);
    let native = match wanted {
        Mode::Generic => None,
        _ => Some(attach(bpf::XDP_NATIVE)),
    };
    let (link, mode, why_generic) = match native {
        Some(Ok(link)) => (Ok(link), Mode::Native, String::new()),
        Some(Err(e)) if wanted == Mode::Native || taken(&e) || e.raw_os_error() == Some(libc::EPERM) => {
            (Err(e), Mode::Native, String::new())
        }
        Some(Err(e)) => (attach(bpf::XDP_GENERIC), Mode::Generic, format!("the driver refused: {e}")),
        None => (attach(bpf::XDP_GENERIC), Mode::Generic, String::new()),
    };
    let link = link.map_err(|e| match e.raw_os_error() {
        _ if taken(&e) => Problem::host(format!("another XDP program is attached to {name}"))
            .help(format!("see 'ip link show dev {name}'; 'ip link set dev {name} xdp off' removes it")),
        Some(libc::ERANGE | libc::EINVAL | libc::EOPNOTSUPP) => {
            let mode = mode.name();
            Problem::host(format!("{name} takes no {mode} XDP program as it is set up: {e}"))
                .help("native XDP wants an MTU that fits into a page (a veth: 3520 at both ends); or use mode=generic")
        }
        _ => refused(&format!("attach an XDP program to {name}"), e),
    })?;
    Ok(Redirect { map, mode, why_generic, _link: link })
}

/// Another program is there already (the same mode: `EBUSY`, the other one: `EEXIST`).
fn taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// `return bpf_redirect_map(map, ctx->rx_queue_index, XDP_PASS)`: what is not in the map passes.
fn code(map: i32) -> Vec<u64> {
    let mut a = Assembler::new();
    a.load(Width::B4, R2, R1, QUEUE);
    a.load_map(R1, map);
    a.op(Op::Move, R3, XDP_PASS);
    a.call(REDIRECT_MAP);
    a.exit();
    a.finish().expect("no jumps")
}
