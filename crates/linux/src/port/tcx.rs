//! The ingress of an interface as a port's way in, with a program of the kernel before it (tcx, Linux 6.6).
//!
//! **What.** [`open`] takes over what an interface receives: a frame goes through the program of a [`ProgramSlot`], and without
//! one, or where that says so, into a tap of ours, whose reader is an ordinary [`Receiver`]. Both are socket buffers, so a super-frame
//! stays one, and an unfinished checksum is described.
//!
//! **Why a tap.** A packet socket sees a frame before tcx does, whatever becomes of it there: each frame would be handled twice. What is
//! redirected into a tap is seen by its reader alone, and neither the tap nor the programs outlive the process.
//!
//! **What must not come in by it.** The host may send into the tap (neighbour discovery, a daemon on every interface), which nobody received. A
//! program at the tap's egress drops all that did not come in by the interface.
//!
//! **Price.** The host's stack does not get the interface's frames any more, as with `xdp:`. Reading costs a system call for each
//! frame. An interface more is seen in the namespace, `plx` and the index of the other one.

use super::interface::{Interface, Probe};
use super::slot::ProgramSlot;
use super::told::setting;
use super::uri::Uri;
use super::{Batch, Direction, Port, PortOptions, PortResult, ReceiveCounters, Receiver, Wait, tap};
use crate::netlink::Netlink;
use crate::sys::bpf::{self, Attachment};
use crate::sys::packet;
use ::bpf::{Assembler, Op, Reg::*, When, Width};
use record::{PortSetting, Problem, Result};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a tap that is there already may take to go.
const PATIENCE: Duration = Duration::from_millis(300);
const A_LITTLE: Duration = Duration::from_millis(5);
/// `bpf_redirect`.
const REDIRECT: i32 = 23;
/// `TCX_NEXT` and `TCX_DROP`.
const NEXT: i32 = -1;
const DROP: i32 = 2;
/// `ingress_ifindex` in `struct __sk_buff`.
const CAME_IN: i16 = 36;

/// An interface whose ingress is ours.
pub struct TcxEntrance {
    /// What the kernel does not deal with.
    pub receiver: Box<dyn Receiver>,
    /// The index of the interface.
    pub interface: u32,
    /// That of the tap: where a program redirects what user space is to have.
    pub tap: u32,
    /// What took effect.
    pub settings: Vec<PortSetting>,
}

/// Takes over what an interface of the calling thread's namespace receives.
///
/// # Errors
/// Input: no such interface. Host: no permission, no tcx in the kernel, no taps.
pub fn open(name: &str, place: &str, slot: &ProgramSlot, wish: &PortOptions) -> Result<TcxEntrance> {
    let link = Interface::find(name, place)?.link;
    let own = format!("plx{}", link.index);
    let opened = own_tap(name, &own, wish).map_err(|problem| problem.at(place))?;
    let Some(inner) = opened.receiver else { return Err(Problem::host("a tap without a reader").at(place)) };
    let tap = Interface::find(&own, place)?.link.index;
    let refused = |what: &str, error: io::Error| {
        let problem = Problem::host(format!("cannot {what}: {error}")).at(place);
        match error.raw_os_error() {
            Some(libc::EPERM) => problem.help("this needs root, or CAP_BPF and CAP_NET_ADMIN"),
            Some(libc::EINVAL) => problem.help("tcx needs Linux 6.6"),
            _ => problem,
        }
    };
    let guard =
        attach(&guard(link.index), tap, bpf::TCX_EGRESS).map_err(|e| refused(&format!("guard {own}"), e))?;
    Netlink::open()
        .set_up(tap)
        .map_err(|e| Problem::host(format!("cannot switch {own} on: {e}")).at(place))?;
    let promiscuous = packet::open()
        .and_then(|fd| packet::set_promiscuous(&fd, link.index as i32).map(|()| fd))
        .map_err(|e| refused(&format!("make {name} promiscuous"), e))?;
    let entrance = attach(&entrance(slot, tap), link.index, bpf::TCX_INGRESS)
        .map_err(|e| refused(&format!("attach a program to the ingress of {name}"), e))?;
    let settings = vec![
        setting("entrance", "", "tcx", "before all others; goes with this process"),
        setting("exit", "", own, "what the kernel does not do is read here"),
    ];
    let probe = Probe::open(link.index)?;
    let receiver =
        TcxReceiver { _entrance: entrance, _promiscuous: promiscuous, inner, probe, _guard: guard };
    Ok(TcxEntrance { receiver: Box::new(receiver), interface: link.index, tap, settings })
}

/// The tap of this entrance alone: of one that two share, either gets some of the other's frames. That of this process's former entrance goes
/// with the thread that reads it.
fn own_tap(name: &str, own: &str, wish: &PortOptions) -> Result<Port> {
    let wish = PortOptions { direction: Direction::Receive, ..wish.clone() };
    let until = Instant::now() + PATIENCE;
    loop {
        // Down until it is guarded: what the kernel itself sends into it (IPv6's own reports) would have come in by the interface.
        let made = tap::make(&mut Uri::parse(&format!("tap:{own}?up=no"))?, &wish);
        let is_there = made.is_err() && Interface::find(own, own).is_ok();
        match made {
            Err(_) if is_there && Instant::now() < until => std::thread::sleep(A_LITTLE),
            Err(_) if is_there => {
                let what = format!("another switch has the ingress of {name} (its tap is {own})");
                return Err(Problem::host(what).help("end that one, or both forward each frame"));
            }
            made => return made,
        }
    }
}

fn attach(code: &[u64], interface: u32, place: u32) -> io::Result<Attachment> {
    let program = bpf::load_program(bpf::PROG_SCHED_CLS, code, c"GPL", "pathlab_tcx")
        .map_err(|rejected| rejected.error)?;
    bpf::attach_to_interface(program.as_fd(), interface, place)
}

/// Goes on with the program of the slot; without one, `return bpf_redirect(tap, 0)`.
fn entrance(slot: &ProgramSlot, tap: u32) -> Vec<u64> {
    let mut a = Assembler::new();
    slot.go_on(&mut a);
    a.op(Op::Move, R1, tap as i32);
    a.op(Op::Move, R2, 0);
    a.call(REDIRECT);
    a.exit();
    a.finish().expect("no jumps")
}

/// Drops what did not come in by the interface.
fn guard(interface: u32) -> Vec<u64> {
    let mut a = Assembler::new();
    let ours = a.label();
    a.load(Width::B4, R2, R1, CAME_IN);
    a.op(Op::Move, R0, NEXT);
    a.jump_if_u32(R2, When::Equal, interface, ours);
    a.op(Op::Move, R0, DROP);
    a.place(ours);
    a.exit();
    a.finish().expect("the label is placed")
}

/// The reader of the tap. Dropped in this order: first nothing comes any more.
struct TcxReceiver {
    _entrance: Attachment,
    /// Holds the interface promiscuous.
    _promiscuous: OwnedFd,
    inner: Box<dyn Receiver>,
    /// Of the interface: the tap is always there.
    probe: Probe,
    _guard: Attachment,
}

impl Receiver for TcxReceiver {
    fn receive(&mut self, limit: usize, wait: Wait) -> PortResult<Batch<'_>> {
        let TcxReceiver { inner, probe, .. } = self;
        let batch = inner.receive(limit, wait)?;
        if batch.is_empty() {
            probe.check()?;
        }
        Ok(batch)
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.inner.counters()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netns;

    #[test]
    fn an_ingress_that_another_switch_has_is_refused_and_taken_when_that_has_gone() {
        let inside = nix::unistd::geteuid().is_root().then(netns::create);
        let Some(Ok(inside)) = inside else {
            return println!("SKIP: an ingress with an owner: needs root (network namespaces)");
        };
        netns::within(inside.as_fd(), || {
            let mut ip = std::process::Command::new("ip");
            assert!(ip.args("link add h0 type veth peer name h1".split(' ')).status().unwrap().success());
            let slot = ProgramSlot::new().unwrap();
            let enter = || open("h0", "int:h0", &slot, &PortOptions::default());
            let first = match enter() {
                Ok(first) => first,
                Err(problem) => return println!("SKIP: an ingress with an owner: {problem}"),
            };
            let refused = enter().map(|_| ()).unwrap_err().to_string();
            assert!(
                refused.starts_with("int:h0: another switch has the ingress of h0 (its tap is plx"),
                "{refused}"
            );
            // It goes while the next one waits for it.
            let going = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                drop(first);
            });
            enter().unwrap();
            going.join().unwrap();
        })
        .unwrap();
    }
}
