//! The programs against a plain description on random events, in an interpreter; and in the kernel, against what it tells the owner of a ring.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use ::bpf::interpret::{self, ExecutionError, Host, Memory};
use proptest::prelude::*;

use super::*;
use crate::netlink::{Netlink, u32_at};
use crate::observe::tracepoints::{MAP_LOOKUP, PROBE_READ_KERNEL};
use crate::sys::{netns, packet, socket};

const MAPS: MapFds = MapFds { counts: 3, before: 4 };
const LAYOUT: Layout = Layout { socket: 40, cookie: 8, drops: 20 };
const CONTEXT: u64 = 0x1_0000;
const KIND: u64 = 0x2_0000;
const SOCKETS: [u64; 3] = [0x3_0000, 0x3_1000, 0x3_2000];
const COUNTS: u64 = 0x4_0000;
const BEFORE: u64 = 0x5_0000;

/// The kernel's functions and maps: the last socket is not asked for.
struct Kernel;

impl Host for Kernel {
    fn call(&mut self, memory: &mut Memory, function: i32, r: [u64; 5]) -> Result<u64, ExecutionError> {
        match function {
            PROBE_READ_KERNEL => {
                let bytes = memory.bytes(r[2], r[1] as usize)?.to_vec();
                memory.bytes(r[0], bytes.len())?.copy_from_slice(&bytes);
                Ok(0)
            }
            MAP_LOOKUP if r[0] as i32 == MAPS.before => {
                Ok(if memory.read(r[1], 4)? == 0 { BEFORE } else { 0 })
            }
            MAP_LOOKUP => Ok(match memory.read(r[1], 8)? {
                cookie @ 1..=2 => COUNTS + (cookie - 1) * 16,
                _ => 0,
            }),
            other => Err(ExecutionError::Function(other)),
        }
    }
}

proptest! {
    // Of each frame: the socket, whether that has a ring, whether it lost the frame, whether its owner asked for its losses meanwhile.
    #[test]
    fn each_frame_is_counted_once_and_each_loss_of_a_ring(
        frames in prop::collection::vec((0..SOCKETS.len(), any::<bool>(), any::<bool>(), any::<bool>()), 0..60)
    ) {
        let mut memory = Memory::default();
        for (at, length) in [(CONTEXT, 40), (KIND, 48), (COUNTS, 32), (BEFORE, 4)] {
            memory.insert(at, vec![0; length]);
        }
        memory.bytes(CONTEXT + 16, 8).unwrap().copy_from_slice(&KIND.to_le_bytes());
        for (place, at) in SOCKETS.into_iter().enumerate() {
            memory.insert(at, vec![0; 24]);
            memory.bytes(at + 8, 8).unwrap().copy_from_slice(&(place as u64 + 1).to_le_bytes());
        }
        let mut expected = [PacketCount::default(); 3];
        for (place, has_ring, is_lost, asks) in frames {
            let drops = SOCKETS[place] + 20;
            memory.bytes(KIND + 40, 8).unwrap().copy_from_slice(&SOCKETS[place].to_le_bytes());
            let run = |memory: &mut Memory, hook| {
                let code = assemble(hook, &LAYOUT, &MAPS).unwrap();
                interpret::run(&code, memory, &mut Kernel, CONTEXT, 1_000).unwrap();
            };
            expected[place].frames += 1;
            if !has_ring {
                run(&mut memory, Hook::Plain);
                continue;
            }
            run(&mut memory, Hook::RingBegins);
            let before = if asks { 0 } else { memory.read(drops, 4).unwrap() as u32 };
            let after = before + u32::from(is_lost);
            // Set to zero and back to what it was: nobody can tell that from no loss.
            let is_same = u64::from(after) == memory.read(BEFORE, 4).unwrap();
            expected[place].lost += u64::from(is_lost && !is_same);
            memory.bytes(drops, 4).unwrap().copy_from_slice(&after.to_le_bytes());
            run(&mut memory, Hook::RingEnds);
        }
        for (place, expected) in expected.iter().take(2).enumerate() {
            let at = COUNTS + place as u64 * 16;
            let mut word = |word: Word| memory.read(at + word.offset() as u64, 8).unwrap();
            let counted = PacketCount { frames: word(Word::Frames), lost: word(Word::Lost) };
            prop_assert_eq!(&counted, expected);
        }
    }
}

/// A packet socket with a ring of two slots, and its cookie.
fn ring() -> io::Result<(OwnedFd, u64)> {
    let fd = packet::open()?;
    let wanted =
        libc::tpacket_req { tp_block_size: 4096, tp_block_nr: 1, tp_frame_size: 2048, tp_frame_nr: 2 };
    socket::set(&fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &wanted)?;
    let cookie = cookie(&fd)?;
    Ok((fd, cookie))
}

fn cookie(fd: &OwnedFd) -> io::Result<u64> {
    let mut bytes = [0; 8];
    socket::get(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Frames and losses, as the kernel tells the owner; it begins anew.
fn told(fd: &OwnedFd) -> PacketCount {
    let mut bytes = [0; 8];
    socket::get(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut bytes).unwrap();
    let word = |at| u64::from(u32_at(&bytes, at).unwrap());
    PacketCount { frames: word(0), lost: word(4) }
}

#[test]
fn the_kernel_s_own_counts_are_reached_though_the_owner_asks() {
    let inside = nix::unistd::geteuid().is_root().then(netns::create);
    let Some(Ok(inside)) = inside else {
        return println!("SKIP: frames of packet sockets: needs root (network namespaces)");
    };
    let (full, plain, other) = netns::within(inside.as_fd(), || {
        Netlink::open().set_up(1).unwrap();
        (ring().unwrap(), packet::open().unwrap(), ring().unwrap())
    })
    .unwrap();
    let plain_cookie = cookie(&plain).unwrap();
    let counts = match PacketFrames::start(&[full.1, plain_cookie]) {
        Ok(counts) => counts,
        Err(why) => return println!("SKIP: frames of packet sockets: {why}"),
    };
    let mut all = PacketCount::default();
    netns::within(inside.as_fd(), || {
        for fd in [&full.0, &plain, &other.0] {
            packet::bind(fd, 1, packet::EVERYTHING).unwrap();
        }
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        for turn in 1..=3 {
            for _ in 0..turn * 10 {
                to.send_to(b"x", to.local_addr().unwrap()).unwrap();
            }
            let now = told(&full.0);
            all = PacketCount { frames: all.frames + now.frames, lost: all.lost + now.lost };
        }
    })
    .unwrap();
    // Each datagram passes a socket at `lo` twice: sent and received.
    assert_eq!((all.frames, all.lost), (120, 118));
    assert_eq!(counts.read(full.1).unwrap(), all);
    assert_eq!(counts.read(plain_cookie).unwrap(), PacketCount { frames: 120, lost: 0 });
    assert!(counts.read(other.1).is_err(), "another socket is not known");
}
