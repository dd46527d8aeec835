//! The programs against a plain description on random events, in an interpreter; and in the kernel, on calls whose number is known.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::AsFd;

use ::bpf::interpret::{self, ExecutionError, Host, Memory};
use proptest::prelude::*;

use super::*;
use crate::observe::tracepoints::{MAP_LOOKUP, PROBE_READ_KERNEL};
use crate::sys::netns;
use crate::sys::udp::{ReceiveBatch, Wait};

const MAPS: MapFds = MapFds { threads: 3, calls: 4 };
const LAYOUT: Layout = Layout { protocol: 20, net: 8, inum: 4 };
const CONTEXT: u64 = 0x1_0000;
const SOCKET: u64 = 0x2_0000;
const NET: u64 = 0x3_0000;
const THREADS: u64 = 0x4_0000;
const CALLS: u64 = 0x5_0000;
/// The last one is nobody's.
const NAMESPACES: [u32; 3] = [4_026_532_001, 4_026_532_002, 4_026_532_003];

/// The kernel's functions and maps.
struct Kernel {
    thread: u32,
    known: Vec<u32>,
}

impl Host for Kernel {
    fn call(&mut self, memory: &mut Memory, function: i32, r: [u64; 5]) -> Result<u64, ExecutionError> {
        match function {
            CURRENT_PID => Ok(u64::from(self.thread) | 77 << 32),
            PROBE_READ_KERNEL => {
                let bytes = memory.bytes(r[2], r[1] as usize)?.to_vec();
                memory.bytes(r[0], bytes.len())?.copy_from_slice(&bytes);
                Ok(0)
            }
            MAP_LOOKUP => {
                let key = memory.read(r[1], 4)? as u32;
                Ok(match r[0] as i32 {
                    fd if fd == MAPS.threads && self.known.contains(&key) => THREADS + u64::from(key) * 8,
                    fd if fd == MAPS.calls => {
                        let place = NAMESPACES[..2].iter().position(|one| *one == key);
                        place.map_or(0, |place| CALLS + place as u64 * 8)
                    }
                    _ => 0,
                })
            }
            MAP_UPDATE => {
                let (key, value) = (memory.read(r[1], 4)? as u32, memory.bytes(r[2], 4)?.to_vec());
                memory.bytes(THREADS + u64::from(key) * 8, 4)?.copy_from_slice(&value);
                self.known.push(key);
                Ok(0)
            }
            other => Err(ExecutionError::Function(other)),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Happens {
    Message { namespace: usize, protocol: u16, sent: bool },
    CallEnds,
}

fn what() -> impl Strategy<Value = Happens> {
    let protocol = prop::sample::select(vec![17u16, 17, 17, 6, 0]);
    prop_oneof![
        (0..NAMESPACES.len(), protocol, any::<bool>())
            .prop_map(|(namespace, protocol, sent)| Happens::Message { namespace, protocol, sent }),
        Just(Happens::CallEnds),
    ]
}

proptest! {
    #[test]
    fn calls_with_a_message_of_udp_are_counted_once(events in prop::collection::vec((0u32..4, what()), 0..120)) {
        let mut memory = Memory::default();
        for (at, length) in [(CONTEXT, 24), (SOCKET, 32), (NET, 16), (THREADS, 64), (CALLS, 16)] {
            memory.insert(at, vec![0; length]);
        }
        memory.bytes(CONTEXT, 8).unwrap().copy_from_slice(&SOCKET.to_le_bytes());
        memory.bytes(SOCKET + 8, 8).unwrap().copy_from_slice(&NET.to_le_bytes());
        let mut kernel = Kernel { thread: 0, known: vec![] };
        let mut pending: BTreeMap<u32, usize> = BTreeMap::new();
        let mut expected = [0; 3];
        for (thread, happens) in events {
            kernel.thread = thread;
            let event = match happens {
                Happens::Message { namespace, protocol, sent } => {
                    memory.bytes(SOCKET + 20, 2).unwrap().copy_from_slice(&protocol.to_le_bytes());
                    memory.bytes(NET + 4, 4).unwrap().copy_from_slice(&NAMESPACES[namespace].to_le_bytes());
                    if protocol == 17 && namespace < 2 {
                        pending.insert(thread, namespace);
                    }
                    if sent { Event::Sent } else { Event::Received }
                }
                Happens::CallEnds => {
                    pending.remove(&thread).into_iter().for_each(|namespace| expected[namespace] += 1);
                    Event::CallEnds
                }
            };
            let code = assemble(event, &LAYOUT, &MAPS).unwrap();
            interpret::run(&code, &mut memory, &mut kernel, CONTEXT, 1_000).unwrap();
        }
        let counted = [0, 1].map(|place| memory.read(CALLS + place * 8, 8).unwrap());
        prop_assert_eq!(&counted[..], &expected[..2]);
    }
}

#[test]
fn the_kernel_counts_calls_and_not_messages() {
    let inside = nix::unistd::geteuid().is_root().then(netns::create);
    let Some(Ok(inside)) = inside else {
        return println!("SKIP: system calls of UDP: needs root (network namespaces)");
    };
    let namespace = netns::inode(inside.as_fd()).unwrap() as u32;
    let calls = match UdpCalls::start(&[namespace]) {
        Ok(calls) => calls,
        Err(why) => return println!("SKIP: system calls of UDP: {why}"),
    };
    assert!(calls.read(namespace + 1).is_err(), "another namespace is not known");
    let elsewhere = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (ours, other) = netns::within(inside.as_fd(), || {
        crate::netlink::Netlink::open().set_up(1).unwrap();
        (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap())
    })
    .unwrap();
    ours.connect(other.local_addr().unwrap()).unwrap();
    for _ in 0..7 {
        ours.send(b"x").unwrap();
        elsewhere.send_to(b"x", elsewhere.local_addr().unwrap()).unwrap();
    }
    assert_eq!(calls.read(namespace).unwrap(), 7);
    // One call takes all of them.
    let taken = ReceiveBatch::new(8, 64).receive(&other, Wait::No).unwrap();
    assert_eq!((taken, calls.read(namespace).unwrap()), (7, 8));
}
