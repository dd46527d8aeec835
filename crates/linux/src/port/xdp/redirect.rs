//! The program that hands an interface's frames to our sockets.
//!
//! Frames of a queue that has a socket go there (with [`Only`], only those that are wanted), all others go on into the
//! kernel. One program serves all sockets of an interface in this process; it is attached by a link, so it goes when the last
//! of them is closed, or the process dies.
//!
//! **After a close** the program may stay for a moment: a child that is started just then holds copies of our descriptors
//! until it executes its program. So "another program is attached" is believed only after [`PATIENCE`].

use super::{only::Only, unfinished};
use crate::port::live::give_way;
use crate::port::slot::ProgramSlot;
use crate::port::uri::word;
use crate::sys::bpf::{self, Attachment, Map};
use crate::sys::netns;
use ::bpf::{Assembler, Op, Reg::*, When, Width};
use record::{Problem, Result};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;
/// `rx_queue_index` in `struct xdp_md`.
const QUEUE: i16 = 16;
/// Queues that the map has room for.
pub const QUEUES: u32 = 1024;

/// How long a program of somebody else may take to go.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long to wait before it is looked for again.
const A_LITTLE: Duration = Duration::from_millis(5);

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
    /// All of them, with the words for them.
    pub const NAMES: [(&'static str, Mode); 3] =
        [("auto", Mode::Auto), ("native", Mode::Native), ("generic", Mode::Generic)];
}

/// A program that is attached.
#[derive(Debug)]
pub struct Redirect {
    map: Map,
    /// Where it runs.
    pub mode: Mode,
    /// Which frames it takes; none: all.
    pub only: Option<Only>,
    /// What meets frames before our sockets do, and of which queue.
    first: Option<(Arc<ProgramSlot>, u32)>,
    /// Why it does not run in the driver; empty when it does or nobody wanted that.
    pub why_generic: String,
    _link: Attachment,
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
    pub fn attach(
        interface: u32,
        name: &str,
        wanted: Mode,
        only: Option<Only>,
        first: Option<(Arc<ProgramSlot>, u32)>,
    ) -> Result<Arc<Redirect>> {
        let namespace = netns::current().and_then(|namespace| netns::inode(namespace.as_fd()));
        let key = (namespace.unwrap_or(0), interface);
        let mut attached = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
        attached.retain(|(_, redirect)| redirect.strong_count() > 0);
        let known = attached.iter().find(|(other, _)| *other == key).and_then(|(_, there)| there.upgrade());
        if let Some(there) = known {
            if there.only != only {
                let which = |only: Option<Only>| only.map_or("every frame".to_owned(), Only::text);
                return Err(Problem::input(format!(
                    "this process takes {} of {name}, so it cannot be opened to take {}",
                    which(there.only),
                    which(only)
                ))
                .help("give both ports the same only="));
            }
            if first.is_some() && there.first != first {
                return Err(Problem::input(format!(
                    "this process has another port at {name}, which no program serves"
                )));
            }
            return match wanted == Mode::Auto || wanted == there.mode {
                true => Ok(there),
                false => Err(Problem::input(format!(
                    "this process has {name} open in {} mode, so it cannot be opened in {} mode",
                    word(&Mode::NAMES, there.mode),
                    word(&Mode::NAMES, wanted)
                ))),
            };
        }
        // What this process put there for the other end of a veth is not in its own way.
        give_way(key);
        let redirect = Arc::new(new(interface, name, wanted, only, first)?);
        attached.push((key, Arc::downgrade(&redirect)));
        Ok(redirect)
    }

    /// Sends the frames of a queue to a socket.
    pub fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.map.update(&queue.to_ne_bytes(), &(socket.as_raw_fd() as u32).to_ne_bytes())
    }
}

fn new(
    interface: u32,
    name: &str,
    wanted: Mode,
    only: Option<Only>,
    first: Option<(Arc<ProgramSlot>, u32)>,
) -> Result<Redirect> {
    let refused = |what: &str, e: io::Error| {
        let problem = Problem::host(format!("cannot {what}: {e}"));
        match e.raw_os_error() {
            Some(libc::EPERM) => problem.help("this needs root, or CAP_BPF and CAP_NET_ADMIN"),
            _ => problem,
        }
    };
    let map = Map::create(bpf::MAP_XSK, 4, 4, QUEUES, "pathlab_xsk")
        .map_err(|e| refused("make a map of AF_XDP sockets", e))?;
    let program =
        bpf::load_program(bpf::PROG_XDP, &code(map.raw_fd(), only, first.as_ref()), c"GPL", "pathlab_xdp")
            .map_err(|rejected| refused("load the XDP program", rejected.error))?;
    let (link, mode, why_generic) = patiently(|| attach(program.as_fd(), interface, wanted));
    let link = link.map_err(|e| match e.raw_os_error() {
        _ if taken(&e) => Problem::host(format!("another XDP program is attached to {name}"))
            .help(format!(
                "end the process that holds it; where none does, 'ip link set dev {name} xdp off' removes it ('ip link show dev {name}' tells its number)"
            )),
        Some(libc::ERANGE | libc::EINVAL | libc::EOPNOTSUPP) => {
            let mode = word(&Mode::NAMES, mode);
            Problem::host(format!("{name} takes no {mode} XDP program as it is set up: {e}"))
                .help("native XDP wants an MTU that fits into a page (a veth: 3520 at both ends); or use mode=generic")
        }
        _ => refused(&format!("attach an XDP program to {name}"), e),
    })?;
    Ok(Redirect { map, mode, only, first, why_generic, _link: link })
}

/// The link, the mode that was tried last, and why it is not the driver's.
type Attached = (io::Result<Attachment>, Mode, String);

fn attach(program: BorrowedFd<'_>, interface: u32, wanted: Mode) -> Attached {
    let attach = |mode| bpf::attach_xdp(program, interface, mode);
    let native = match wanted {
        Mode::Generic => None,
        _ => Some(attach(bpf::XDP_NATIVE)),
    };
    match native {
        Some(Ok(link)) => (Ok(link), Mode::Native, String::new()),
        Some(Err(e)) if wanted == Mode::Native || taken(&e) || e.raw_os_error() == Some(libc::EPERM) => {
            (Err(e), Mode::Native, String::new())
        }
        Some(Err(e)) => (attach(bpf::XDP_GENERIC), Mode::Generic, format!("the driver refused: {e}")),
        None => (attach(bpf::XDP_GENERIC), Mode::Generic, String::new()),
    }
}

/// Tries again, for a while, as long as another program is there.
fn patiently(mut attach: impl FnMut() -> Attached) -> Attached {
    let until = Instant::now() + PATIENCE;
    loop {
        let attached = attach();
        let there = attached.0.as_ref().is_err_and(taken);
        if !there || Instant::now() > until {
            return attached;
        }
        std::thread::sleep(A_LITTLE);
    }
}

/// Another program is there already (the same mode: `EBUSY`, the other one: `EEXIST`).
fn taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// `return bpf_redirect_map(map, ctx->rx_queue_index, XDP_PASS)`, for the frames that are wanted: what is not in the map
/// passes. Frames of the queue that a slot serves go through the program in that first, if there is one; but not those that
/// only the port can complete.
fn code(map: i32, only: Option<Only>, first: Option<&(Arc<ProgramSlot>, u32)>) -> Vec<u64> {
    let mut a = Assembler::new();
    let pass = a.label();
    match only {
        Some(only) => only.select(&mut a, pass),
        None => a.op_reg(Op::Move, R6, R1),
    }
    if let Some((slot, queue)) = first {
        let other = a.label();
        a.load(Width::B4, R2, R6, QUEUE);
        a.jump_if_u32(R2, When::NotEqual, *queue, other);
        unfinished::select(&mut a, other);
        a.op_reg(Op::Move, R1, R6);
        slot.go_on(&mut a);
        a.place(other);
    }
    a.load(Width::B4, R2, R6, QUEUE);
    a.load_map(R1, map);
    a.op(Op::Move, R3, XDP_PASS);
    a.call(REDIRECT_MAP);
    a.exit();
    a.place(pass);
    if only.is_some() {
        a.op(Op::Move, R0, XDP_PASS);
        a.exit();
    }
    a.finish().expect("every label is placed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_goes_in_time_is_waited_for_and_one_that_stays_is_not() {
        let gone = || (Err(io::Error::from_raw_os_error(libc::ENODEV)), Mode::Native, String::new());
        let there = || (Err(io::Error::from_raw_os_error(libc::EBUSY)), Mode::Native, String::new());
        let mut looks = 0;
        let (error, ..) = patiently(|| {
            looks += 1;
            if looks < 4 { there() } else { gone() }
        });
        assert_eq!((looks, error.unwrap_err().raw_os_error()), (4, Some(libc::ENODEV)));
        let mut looks = 0;
        let (error, ..) = patiently(|| {
            looks += 1;
            there()
        });
        assert!(looks > 1 && taken(&error.unwrap_err()));
    }

    #[test]
    fn a_program_that_a_process_holds_is_not_said_to_go_by_ip_link() {
        let inside = nix::unistd::geteuid().is_root().then(netns::create);
        let Some(Ok(inside)) = inside else {
            return println!("SKIP: a second XDP program: needs root (network namespaces)");
        };
        let ip = |arguments: &str| {
            std::process::Command::new("ip").args(arguments.split(' ')).output().unwrap().status.success()
        };
        netns::within(inside.as_fd(), || {
            assert!(ip("link add h0 type veth peer name h1") && ip("link set h0 up"));
            let open = || crate::port::open("xdp:h0", &Default::default());
            let first = crate::port::sink::Sink::open("h0").unwrap();
            let refused = open().unwrap_err().to_string();
            assert!(
                refused.contains("another XDP program is attached to h0; end the process that holds it"),
                "{refused}"
            );
            assert!(!ip("link set dev h0 xdp off"), "a program that is held stays");
            drop(first);
            open().unwrap();
        })
        .unwrap();
    }
}
