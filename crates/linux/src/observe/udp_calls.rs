//! System calls that carry datagrams, counted in some namespaces.
//!
//! **What.** A program at each of the kernel's events of sent and received messages (`sock_send_length`, `sock_recv_length`, Linux 6.3) notes for
//! the thread in which namespace it has dealt with a message of UDP; a third at the end of every system call (`sys_exit`) counts the call if the
//! thread has. **Why so.** A call may carry many messages (`sendmmsg`, `recvmmsg`, `io_uring_enter`) or none, and its number does not tell which
//! protocol its socket speaks.
//!
//! **What it cannot see.** Messages of io_uring's own threads, which make no calls, and more than [`MOST_THREADS`] threads.
//!
//! **Price.** While it counts, each system call of the host takes the kernel's slow way out, with one look-up: some 0.1 µs. Needs `CAP_BPF` and
//! `CAP_PERFMON`. Nothing is pinned: all ends with the process.

use std::io;
use std::os::fd::OwnedFd;

use ::bpf::{AssembleError, Assembler, Op, Reg::*, When, Width::*};
use record::delta::sum;

use super::btf::{self, Btf};
use super::tracepoints::{Counting, attach, refused};
use crate::netlink::u64_at;
use crate::sys::bpf;

/// Threads that deal with datagrams.
const MOST_THREADS: u32 = 16_384;
/// UDP (IANA), as `struct sock` has it.
const UDP: i32 = 17;

// Kernel functions by number (include/uapi/linux/bpf.h).
const MAP_UPDATE: i32 = 2;
const CURRENT_PID: i32 = 14;

// Places on the stack, as distances from the frame pointer.
const THREAD: i16 = -8;
const NAMESPACE: i16 = -16;
const POINTER: i16 = -24;
const PROTOCOL: i16 = -32;

/// Offsets from the kernel's BTF.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// `sock.sk_protocol`
    protocol: u32,
    /// `sock.__sk_common.skc_net`
    net: u32,
    /// `net.ns.inum`
    inum: u32,
}

impl Layout {
    fn find(btf: &Btf<'_>) -> Result<Layout, String> {
        Ok(Layout {
            protocol: btf.offset("sock", "sk_protocol", 2)?,
            net: btf.offset("sock", "__sk_common.skc_net.net", 8)?,
            inum: btf.offset("net", "ns.inum", 4)?,
        })
    }
}

/// The maps as the programs name them.
#[derive(Debug, Clone, Copy)]
struct MapFds {
    /// The namespace of the message that a thread has dealt with in this call, by its id; 0: none.
    threads: i32,
    /// Calls by the number of a namespace.
    calls: i32,
}

/// The programs, in the order in which they are attached: what ends something comes before what begins it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    CallEnds,
    Sent,
    Received,
}

impl Event {
    const ALL: [Event; 3] = [Event::CallEnds, Event::Sent, Event::Received];

    /// The raw tracepoint.
    fn name(self) -> &'static str {
        match self {
            Event::CallEnds => "sys_exit",
            Event::Sent => "sock_send_length",
            Event::Received => "sock_recv_length",
        }
    }
}

struct Builder(Assembler);

impl Counting for Builder {
    fn assembler(&mut self) -> &mut Assembler {
        &mut self.0
    }
}

impl Builder {
    /// The current thread's id, to `THREAD`.
    fn thread(&mut self) {
        self.0.call(CURRENT_PID);
        self.0.store(B4, R10, THREAD, R0);
    }

    /// The first argument of the event is the socket.
    fn message(&mut self, layout: &Layout, maps: &MapFds) {
        let (out, new) = (self.0.label(), self.0.label());
        self.0.load(B8, R6, R1, 0);
        self.0.op_reg(Op::Move, R3, R6);
        self.read(PROTOCOL, 2, layout.protocol, out);
        self.0.load(B2, R1, R10, PROTOCOL);
        self.0.jump_if(R1, When::NotEqual, UDP, out);
        self.0.op_reg(Op::Move, R3, R6);
        self.read(POINTER, 8, layout.net, out);
        self.0.load(B8, R3, R10, POINTER);
        self.read(NAMESPACE, 4, layout.inum, out);
        self.look_up(maps.calls, NAMESPACE, out);
        self.thread();
        self.look_up(maps.threads, THREAD, new);
        self.0.load(B4, R1, R10, NAMESPACE);
        self.0.store(B4, R0, 0, R1);
        self.0.jump(out);
        self.0.place(new);
        self.0.load_map(R1, maps.threads);
        self.stack(R2, THREAD);
        self.stack(R3, NAMESPACE);
        self.0.op(Op::Move, R4, 0);
        self.0.call(MAP_UPDATE);
        self.0.place(out);
    }

    fn call_ends(&mut self, maps: &MapFds) {
        let out = self.0.label();
        self.thread();
        self.look_up(maps.threads, THREAD, out);
        self.0.load(B4, R1, R0, 0);
        self.0.jump_if(R1, When::Equal, 0, out);
        self.0.store(B4, R10, NAMESPACE, R1);
        self.0.store_imm(B4, R0, 0, 0);
        self.look_up(maps.calls, NAMESPACE, out);
        self.0.load(B8, R1, R0, 0);
        self.0.op(Op::Add, R1, 1);
        self.0.store(B8, R0, 0, R1);
        self.0.place(out);
    }
}

fn assemble(event: Event, layout: &Layout, maps: &MapFds) -> Result<Vec<u64>, AssembleError> {
    let mut builder = Builder(Assembler::new());
    match event {
        Event::CallEnds => builder.call_ends(maps),
        Event::Sent | Event::Received => builder.message(layout, maps),
    }
    builder.0.op(Op::Move, R0, 0);
    builder.0.exit();
    builder.0.finish()
}

/// Counts, until it is dropped.
#[derive(Debug)]
pub struct UdpCalls {
    /// The events with their programs.
    _running: Vec<(OwnedFd, OwnedFd)>,
    _threads: bpf::Map,
    calls: bpf::Map,
}

impl UdpCalls {
    /// Begins to count in these namespaces, by their numbers.
    ///
    /// # Errors
    /// The sentence why nothing can be counted here.
    pub fn start(namespaces: &[u32]) -> Result<UdpCalls, String> {
        let layout = Layout::find(btf::of_kernel()?)?;
        let (threads, calls) = maps(namespaces).map_err(|error| refused("bpf(BPF_MAP_CREATE)", &error))?;
        let fds = MapFds { threads: threads.raw_fd(), calls: calls.raw_fd() };
        let running = Event::ALL.iter().map(|event| attach(event.name(), assemble(*event, &layout, &fds)));
        let running = running.collect::<Result<_, String>>()?;
        Ok(UdpCalls { _running: running, _threads: threads, calls })
    }

    /// Calls in that namespace since the start. Counting goes on.
    ///
    /// # Errors
    /// What the kernel says; that namespace is not among those that were given.
    pub fn read(&self, namespace: u32) -> io::Result<u64> {
        let value = self.calls.lookup(&namespace.to_ne_bytes())?.ok_or(io::ErrorKind::NotFound)?;
        let of_cpus = value.chunks_exact(8).map(|of_cpu| u64_at(of_cpu, 0).unwrap_or(0));
        Ok(sum(of_cpus))
    }
}

/// Threads, and calls by namespace on each CPU.
fn maps(namespaces: &[u32]) -> io::Result<(bpf::Map, bpf::Map)> {
    let room = namespaces.len().max(1) as u32;
    let threads = bpf::Map::create(bpf::MAP_HASH, 4, 4, MOST_THREADS, "pathlab_threads")?;
    let calls = bpf::Map::create(bpf::MAP_PERCPU_HASH, 4, 8, room, "pathlab_calls")?;
    let nothing = vec![0; 8 * bpf::possible_cpus()?];
    for namespace in namespaces {
        calls.update(&namespace.to_ne_bytes(), &nothing)?;
    }
    Ok((threads, calls))
}

#[cfg(test)]
#[path = "udp_calls_tests.rs"]
mod tests;
