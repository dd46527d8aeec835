//! Frames that reach packet sockets, and those that their receive rings lose, counted from outside of the program that owns the socket.
//!
//! **What.** Programs at the beginning of the kernel's two functions that hand a frame to a packet socket (`packet_rcv`, and `tpacket_rcv` for one
//! with a ring, net/packet/af_packet.c) count it for the socket, before the socket's own filter; another at the end of `tpacket_rcv` counts a loss
//! where the ring's own count of losses (`packet_sock.tp_drops`) rose meanwhile. **Why so.** The kernel tells that count, and how many frames a socket
//! of a fanout group was given, to the owner of the socket alone, and sets both to zero when it asks.
//!
//! **What it cannot see.** Two CPUs that give frames to one ring at one time may count a loss of the other one, too. Sockets are known by their cookies:
//! those that had none when counting began (opened later) are not counted.
//!
//! **Price.** Some 0.1 µs for each frame and socket, of all packet sockets of the host: an estimate from other programs of as many steps, not measured. Needs the kernel's BTF with `af_packet` built in, Linux 5.12,
//! `CAP_BPF` and `CAP_PERFMON`. Nothing is pinned: all ends with the process.

use std::io;
use std::os::fd::OwnedFd;

use ::bpf::{AssembleError, Assembler, Label, Op, Reg::*, When, Width::*};

use super::btf::{self, Btf};
use super::tracepoints::{Counting, attach_to_function, refused, words};
use crate::netlink::u64_at;
use crate::sys::bpf::{self, Edge};

// Places on the stack, as distances from the frame pointer.
const COOKIE: i16 = -8;
const POINTER: i16 = -16;
const LOST: i16 = -24;
const FIRST: i16 = -32;
/// The third argument of both functions: `struct packet_type *pt`.
const PACKET_TYPE: i16 = 16;

words! {
    /// What is counted for a socket.
    Word {
        /// Frames that it was given.
        Frames,
        /// Of these, those for which its ring had no room.
        Lost,
    }
}

/// Offsets from the kernel's BTF.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// `packet_type.af_packet_priv`: the socket.
    socket: u32,
    /// `sock.__sk_common.skc_cookie`
    cookie: u32,
    /// `packet_sock.tp_drops`
    drops: u32,
}

impl Layout {
    fn find(btf: &Btf<'_>) -> Result<Layout, String> {
        Ok(Layout {
            socket: btf.offset("packet_type", "af_packet_priv", 8)?,
            cookie: btf.offset("sock", "__sk_common.skc_cookie", 8)?,
            drops: btf.offset("packet_sock", "tp_drops", 4)?,
        })
    }
}

/// The maps as the programs name them.
#[derive(Debug, Clone, Copy)]
struct MapFds {
    /// [`Word`]s by cookie, on each CPU.
    counts: i32,
    /// What the ring had lost when the function began, on each CPU.
    before: i32,
}

/// The programs, in the order in which they are attached: an end without its beginning would compare with nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hook {
    Plain,
    RingBegins,
    RingEnds,
}

impl Hook {
    const ALL: [Hook; 3] = [Hook::Plain, Hook::RingBegins, Hook::RingEnds];

    fn place(self) -> (&'static str, Edge) {
        match self {
            Hook::Plain => ("packet_rcv", Edge::Begin),
            Hook::RingBegins => ("tpacket_rcv", Edge::Begin),
            Hook::RingEnds => ("tpacket_rcv", Edge::End),
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
    /// The socket to `R6`, its counts to `R7`; it leaves where they are not asked for.
    fn socket(&mut self, layout: &Layout, maps: &MapFds, out: Label) {
        self.0.load(B8, R3, R1, PACKET_TYPE);
        self.read(POINTER, 8, layout.socket, out);
        self.0.load(B8, R6, R10, POINTER);
        self.0.op_reg(Op::Move, R3, R6);
        self.read(COOKIE, 8, layout.cookie, out);
        self.look_up(maps.counts, COOKIE, out);
        self.0.op_reg(Op::Move, R7, R0);
    }

    /// What the ring has lost to the stack, the place of what it had lost before to `R0`.
    fn losses(&mut self, layout: &Layout, maps: &MapFds, out: Label) {
        self.0.op_reg(Op::Move, R3, R6);
        self.read(LOST, 4, layout.drops, out);
        self.0.store_imm(B4, R10, FIRST, 0);
        self.look_up(maps.before, FIRST, out);
    }

    fn count(&mut self, word: Word) {
        self.0.op(Op::Move, R2, 1);
        self.add(R7, word.offset(), R2);
    }
}

fn assemble(hook: Hook, layout: &Layout, maps: &MapFds) -> Result<Vec<u64>, AssembleError> {
    let mut builder = Builder(Assembler::new());
    let out = builder.0.label();
    builder.socket(layout, maps, out);
    match hook {
        Hook::Plain => builder.count(Word::Frames),
        Hook::RingBegins => {
            builder.count(Word::Frames);
            builder.losses(layout, maps, out);
            builder.0.load(B4, R1, R10, LOST);
            builder.0.store(B4, R0, 0, R1);
        }
        Hook::RingEnds => {
            builder.losses(layout, maps, out);
            builder.0.load(B4, R1, R10, LOST);
            builder.0.load(B4, R2, R0, 0);
            builder.0.jump_if_reg(R1, When::Equal, R2, out);
            // The program has just asked, and nothing was lost since.
            builder.0.jump_if(R1, When::Equal, 0, out);
            builder.count(Word::Lost);
        }
    }
    builder.0.place(out);
    builder.0.op(Op::Move, R0, 0);
    builder.0.exit();
    builder.0.finish()
}

/// What one socket was given since counting began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketCount {
    /// Frames, before the socket's filter.
    pub frames: u64,
    /// Frames that its ring had no room for; 0 for a socket without.
    pub lost: u64,
}

/// Counts, until it is dropped.
#[derive(Debug)]
pub struct PacketFrames {
    /// The functions with their programs.
    _running: Vec<(OwnedFd, OwnedFd)>,
    _before: bpf::Map,
    counts: bpf::Map,
}

impl PacketFrames {
    /// Begins to count for these sockets, by their cookies.
    ///
    /// # Errors
    /// The sentence why nothing can be counted here.
    pub fn start(cookies: &[u64]) -> Result<PacketFrames, String> {
        let layout = Layout::find(btf::of_kernel()?)?;
        let (counts, before) = maps(cookies).map_err(|error| refused("bpf(BPF_MAP_CREATE)", &error))?;
        let fds = MapFds { counts: counts.raw_fd(), before: before.raw_fd() };
        let running = Hook::ALL.iter().map(|hook| {
            let (function, edge) = hook.place();
            attach_to_function(function, edge, assemble(*hook, &layout, &fds))
        });
        let running = running.collect::<Result<_, String>>()?;
        Ok(PacketFrames { _running: running, _before: before, counts })
    }

    /// What a socket was given. Counting goes on.
    ///
    /// # Errors
    /// What the kernel says; `NotFound` for a socket that was not among those that were given.
    pub fn read(&self, cookie: u64) -> io::Result<PacketCount> {
        let value = self.counts.lookup(&cookie.to_ne_bytes())?.ok_or(io::ErrorKind::NotFound)?;
        let sum = |word: Word| {
            let of_cpu = |words: &[u8]| u64_at(words, word.offset() as usize).unwrap_or(0);
            value.chunks_exact(Word::COUNT * 8).map(of_cpu).fold(0, u64::wrapping_add)
        };
        Ok(PacketCount { frames: sum(Word::Frames), lost: sum(Word::Lost) })
    }
}

/// Counts by cookie, and losses before, on each CPU.
fn maps(cookies: &[u64]) -> io::Result<(bpf::Map, bpf::Map)> {
    let (room, bytes) = (cookies.len().max(1) as u32, Word::COUNT as u32 * 8);
    let counts = bpf::Map::create(bpf::MAP_PERCPU_HASH, 8, bytes, room, "pathlab_sockets")?;
    let before = bpf::Map::create(bpf::MAP_PERCPU_ARRAY, 4, 4, 1, "pathlab_before")?;
    let nothing = vec![0; counts.value_bytes()];
    for cookie in cookies {
        counts.update(&cookie.to_ne_bytes(), &nothing)?;
    }
    Ok((counts, before))
}

#[cfg(test)]
#[path = "packet_frames_tests.rs"]
mod tests;
