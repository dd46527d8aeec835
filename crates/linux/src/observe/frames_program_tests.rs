//! The programs in an interpreter, on random buffers: what a record says against a plain description of the buffer.

use ::bpf::interpret::{self, ExecutionError, Host, Memory};
use proptest::prelude::*;
use std::collections::BTreeMap;

use super::super::dead_frame::{DeadKey, decode};
use super::super::drops_program::{KIND_BY_SOCKET, LOST_EVENTS};
use super::*;
use crate::netlink::{u16_at, u32_at};

const SKB: u64 = 0x1_0000;
const DEVICE: u64 = 0x2_0000;
const STALE: u64 = 0x2_1000;
const NET: u64 = 0x3_0000;
const WRONG_NET: u64 = 0x3_1000;
const SOCK: u64 = 0x4_0000;
const HEAD: u64 = 0x5_0000;
const CONTEXT: u64 = 0x7_0000;
const VALUES: u64 = 0x8_0000;
const RECORD: u64 = 0x9_0000;
const HEAD_BYTES: usize = 256;
const OURS: u32 = 0xf000_0123;
const COOKIE: u64 = 0x1_0000_0007;
const COUNTS: MapFds = MapFds { counts: 3, lost: 4 };
const MAPS: FrameMaps = FrameMaps { counts: COUNTS, record: 5, ring: 6 };

/// Where this kernel has the members of `struct sk_buff`, with their bytes.
const SKB_MEMBERS: [(&str, u32); 16] = [
    ("dev", 16),
    ("sk", 24),
    ("len", 112),
    ("data_len", 116),
    ("skb_iif", 140),
    ("vlan_proto", 160),
    ("vlan_tci", 162),
    ("protocol", 180),
    ("transport_header", 182),
    ("network_header", 184),
    ("mac_header", 186),
    ("tail", 188),
    ("end", 192),
    ("head", 200),
    ("data", 208),
    ("unused", 216),
];

fn layout() -> Layout {
    let rest = [
        (("net_device", "nd_net.net"), 8),
        (("net_device", "name"), 24),
        (("net_device", "ifindex"), 40),
        (("net", "ns.inum"), 4),
        (("net", "net_cookie"), 8),
        (("sock", "__sk_common.skc_net.net"), 48),
        (("sock", "__sk_common.skc_family"), 16),
        (("skb_shared_info", "gso_segs"), 6),
        (("skb_shared_info", "gso_size"), 4),
        (("skb_shared_info", "gso_type"), 24),
    ];
    let skb = SKB_MEMBERS.map(|(field, offset)| (("sk_buff", field), offset));
    Layout {
        offsets: skb.into_iter().chain(rest).collect::<BTreeMap<_, _>>(),
        reasons: vec![(6, "SOCKET_RCVBUFF".into())],
        arguments: 4,
    }
}

/// The functions of the kernel that the programs call.
#[derive(Default)]
struct Kernel {
    keys: Vec<Vec<u8>>,
    shown: Vec<Vec<u8>>,
    ring_lost: u64,
    ring_is_full: bool,
}

impl Host for Kernel {
    fn call(&mut self, memory: &mut Memory, function: i32, r: [u64; 5]) -> Result<u64, ExecutionError> {
        match (function, r[0] as i32) {
            (KTIME_GET_NS, _) => Ok(4711),
            (PROBE_READ_KERNEL, _) => {
                let Ok(bytes) = memory.bytes(r[2], r[1] as usize).map(|bytes| bytes.to_vec()) else {
                    return Ok(u64::MAX);
                };
                memory.bytes(r[0], bytes.len())?.copy_from_slice(&bytes);
                Ok(0)
            }
            (1, 5) => Ok(RECORD),
            (1, 4) => {
                let which = memory.read(r[1], 4)? as i32;
                assert!(which == LOST_RING || which == LOST_EVENTS);
                self.ring_lost += u64::from(which == LOST_RING);
                Ok(0)
            }
            (1, 3) => {
                let key = memory.bytes(r[1], KEY_BYTES as usize)?;
                let found = self.keys.iter().position(|known| known == key);
                Ok(found.map_or(0, |index| VALUES + 16 * index as u64))
            }
            (2, 3) => {
                self.keys.push(memory.bytes(r[1], KEY_BYTES as usize)?.to_vec());
                Ok(0)
            }
            (RING_OUTPUT, 6) if self.ring_is_full => Ok(u64::MAX),
            (RING_OUTPUT, 6) => {
                self.shown.push(memory.bytes(r[1], r[2] as usize)?.to_vec());
                Ok(0)
            }
            (other, _) => Err(ExecutionError::Function(other)),
        }
    }
}

/// A buffer as the test describes it.
#[derive(Debug, Clone)]
struct Buffer {
    device: u64,
    sk: u64,
    family: u16,
    mac: u16,
    network: u16,
    data: u32,
    tail: u32,
    pages: u32,
    segments: u16,
    head: Vec<u8>,
}

fn machine(buffer: &Buffer) -> Memory {
    let mut memory = Memory::default();
    let mut piece = |base: u64, length: usize, words: &[(usize, &[u8])]| {
        let mut bytes = vec![0; length];
        words.iter().for_each(|(at, word)| bytes[*at..at + word.len()].copy_from_slice(word));
        memory.insert(base, bytes);
    };
    piece(
        SKB,
        232,
        &[
            (16, &buffer.device.to_le_bytes()),
            (24, &buffer.sk.to_le_bytes()),
            (116, &buffer.pages.to_le_bytes()),
            (140, &77u32.to_le_bytes()),
            (160, &0x8100u16.to_be_bytes()),
            (162, &5u16.to_le_bytes()),
            (180, &0x0800u16.to_be_bytes()),
            (184, &buffer.network.to_le_bytes()),
            (186, &buffer.mac.to_le_bytes()),
            (188, &buffer.tail.to_le_bytes()),
            (192, &(HEAD_BYTES as u32).to_le_bytes()),
            (200, &HEAD.to_le_bytes()),
            (208, &(HEAD + u64::from(buffer.data)).to_le_bytes()),
        ],
    );
    piece(DEVICE, 64, &[(8, &NET.to_le_bytes()), (24, b"eth0"), (40, &5u32.to_le_bytes())]);
    piece(STALE, 64, &[(8, &WRONG_NET.to_le_bytes()), (40, &6u32.to_le_bytes())]);
    piece(NET, 16, &[(4, &OURS.to_le_bytes()), (8, &COOKIE.to_le_bytes())]);
    piece(WRONG_NET, 16, &[(4, &17u32.to_le_bytes())]);
    piece(SOCK, 64, &[(16, &buffer.family.to_le_bytes()), (48, &NET.to_le_bytes())]);
    piece(HEAD, HEAD_BYTES + 16, &[(0, &buffer.head), (HEAD_BYTES + 6, &buffer.segments.to_le_bytes())]);
    let place = 0xffff_ffff_8100_1234u64.to_le_bytes();
    piece(CONTEXT, 40, &[(0, &SKB.to_le_bytes()), (8, &place), (16, &6u64.to_le_bytes())]);
    piece(VALUES, 64, &[]);
    // What an earlier frame left behind must not show through.
    memory.insert(RECORD, vec![0xee; record_room() as usize]);
    memory
}

fn run(code: &[u64], memory: &mut Memory, kernel: &mut Kernel) {
    interpret::run(code, memory, kernel, CONTEXT, 10_000).expect("programs end, and stay in their memory");
}

fn buffer() -> impl Strategy<Value = Buffer> {
    let device =
        prop_oneof![4 => Just(DEVICE), 1 => Just(STALE), 1 => Just(0u64), 1 => Just(0x0101_0500_0000_0300)];
    let sk = prop_oneof![Just(0u64), Just(SOCK), Just(0xdead_0000)];
    let family = prop_oneof![Just(2u16), Just(1), Just(16)];
    let mac = prop_oneof![Just(0xffffu16), Just(0), Just(16), 0u16..300];
    let place = (mac, 0u16..300, 0u32..200, 0u32..256, prop_oneof![Just(0u32), 0u32..100_000]);
    let head = prop::collection::vec(any::<u8>(), HEAD_BYTES);
    (device, sk, family, place, 0u16..50, head).prop_map(
        |(device, sk, family, (mac, network, data, tail, pages), segments, head)| Buffer {
            device,
            sk,
            family,
            mac,
            network,
            data,
            tail,
            pages,
            segments,
            head,
        },
    )
}

/// Where the frame begins, in plain words.
fn begin(buffer: &Buffer) -> u32 {
    let is_behind_nothing = |place: u16| u32::from(place) <= buffer.data;
    if buffer.mac != 0xffff && is_behind_nothing(buffer.mac) {
        u32::from(buffer.mac)
    } else if buffer.network != 0 && is_behind_nothing(buffer.network) {
        u32::from(buffer.network)
    } else {
        buffer.data
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn a_record_says_what_the_buffer_is(buffer in buffer(), any_namespace: bool, snap in 16u32..300) {
        let scope = if any_namespace { Scope::Any } else { Scope::These(&[1, OURS]) };
        let code = assemble(&layout(), scope, snap, MAPS).expect("assembled");
        let (mut memory, mut kernel) = (machine(&buffer), Kernel::default());
        run(&code, &mut memory, &mut kernel);
        let is_known = buffer.device == DEVICE || buffer.sk == SOCK;
        prop_assert_eq!((kernel.keys.len(), kernel.shown.len()), (usize::from(is_known), usize::from(is_known)));
        let Some(record) = kernel.shown.first() else { return Ok(()) };
        let key = DeadKey::decode(&record[AT_KEY..]).expect("whole");
        let by_device = buffer.device == DEVICE;
        let kind = if by_device { 0 } else { KIND_BY_SOCKET | u32::from(buffer.family) };
        let interface = if by_device { 5 } else { 77 };
        let location = 0xffff_ffff_8100_1234;
        prop_assert_eq!(key, DeadKey { reason: 6, namespace: OURS, interface, kind, location, cookie: COOKIE });
        prop_assert_eq!(&kernel.keys[0][..], &record[AT_KEY..AT_KEY + KEY_BYTES as usize]);
        prop_assert_eq!(memory.read(VALUES, 8), Ok(u64::from(buffer.segments.max(1))));
        prop_assert_eq!(u32_at(record, AT_SEGMENTS), Some(u32::from(buffer.segments.max(1))));
        let start = begin(&buffer);
        let linear = buffer.head.get(start as usize..buffer.tail as usize).unwrap_or_default();
        let kept = &linear[..linear.len().min(snap as usize)];
        prop_assert_eq!((u32_at(record, AT_START), u16_at(record, AT_TAG)), (Some(start), Some(5)));
        prop_assert_eq!(&record[RECORD_BYTES as usize..], kept);
        let frame = decode(record).expect("whole");
        prop_assert_eq!((frame.at_ns, frame.interface), (4711, by_device.then(|| "eth0".to_owned())));
        prop_assert!(frame.length as usize >= frame.bytes.len());
    }
}

fn plain(device: u64) -> Buffer {
    let head = vec![1; HEAD_BYTES];
    Buffer { device, sk: 0, family: 2, mac: 16, network: 30, data: 16, tail: 90, pages: 0, segments: 0, head }
}

#[test]
fn a_full_ring_is_counted_and_the_frame_too() {
    let code = assemble(&layout(), Scope::Any, 100, MAPS).expect("assembled");
    let (mut memory, mut kernel) =
        (machine(&plain(DEVICE)), Kernel { ring_is_full: true, ..Kernel::default() });
    run(&code, &mut memory, &mut kernel);
    run(&code, &mut memory, &mut kernel);
    assert_eq!((kernel.ring_lost, kernel.keys.len()), (2, 1));
    assert_eq!(memory.read(VALUES + 8, 8), Ok(2), "both buffers are counted");
}

#[test]
fn events_of_xdp_count_as_many_frames_as_they_say() {
    for (number, event) in XDP_EVENTS.iter().enumerate() {
        let code = assemble_xdp(&layout(), Scope::Any, number, COUNTS).expect("assembled");
        for (device, frames, wanted) in
            [(DEVICE, 3u32, true), (STALE, 3, false), (DEVICE, 0, event.frames.is_none())]
        {
            let mut memory = machine(&plain(DEVICE));
            let mut context = vec![0; 64];
            let mut put = |argument: i16, bytes: &[u8]| {
                let at = argument as usize * 8;
                context[at..at + bytes.len()].copy_from_slice(bytes);
            };
            put(event.device, &device.to_le_bytes());
            put(event.code, &(-28i32).to_le_bytes());
            if let Some(argument) = event.frames {
                put(argument, &frames.to_le_bytes());
            }
            memory.insert(0xa_0000, context);
            let mut kernel = Kernel::default();
            interpret::run(&code, &mut memory, &mut kernel, 0xa_0000, 10_000).expect("it ends");
            assert_eq!(kernel.keys.len(), usize::from(wanted), "{event:?}");
            if let Some(key) = kernel.keys.first() {
                let key = DeadKey::decode(key).expect("whole");
                let kind = KIND_XDP + number as u32;
                let (reason, cookie) = (-28i32 as u32, COOKIE);
                let wanted = DeadKey { reason, namespace: OURS, interface: 5, kind, location: 0, cookie };
                assert_eq!(key, wanted);
                let counted = if event.frames.is_some() { 3 } else { 1 };
                assert_eq!(memory.read(VALUES, 8), Ok(counted));
            }
        }
    }
}
