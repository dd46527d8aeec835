//! Facts of the packet sockets of a namespace: what each was given and lost, how long a block of its ring is held.

use std::collections::BTreeMap;

use record::facts::{Fact, Known};

use super::files::count;
use crate::netlink::{Dump, Netlink, after, u32_at, u64_at};
use crate::observe::packet_frames::{PacketCount, PacketFrames};
use crate::observe::packet_sockets::{
    AF_PACKET, COOKIE, DROPS, FANOUT, HEADER_BYTES, INFO, INODE, MEMINFO, RECEIVE_RING, SHOW_FANOUT,
    SHOW_INFO, SHOW_MEMINFO, SHOW_RINGS, dump, request,
};

/// What is asked of each.
const DUMP: Dump<'static> = dump(&request(SHOW_INFO | SHOW_RINGS | SHOW_FANOUT | SHOW_MEMINFO));
/// `pdr_retire_tmo` in milliseconds, in `struct packet_diag_ring`.
const RETIRE_AT: usize = 16;
/// How a group shares its frames out, by number (`PACKET_FANOUT_…`, `include/uapi/linux/if_packet.h`).
const MODES: [&str; 8] = ["hash", "lb", "cpu", "rollover", "random", "qm", "cbpf", "ebpf"];
/// What is told of each.
const FACTS: [&str; 5] = [
    "packet_socket.drops",
    "packet_socket.block_ms",
    "packet_socket.fanout_group",
    "packet_socket.fanout_mode",
    "packet_socket.fanout_frames",
];

/// One of them.
#[derive(Debug)]
struct PacketSocket {
    /// Its number and where it is bound.
    place: String,
    cookie: u64,
    /// What it lost, if the kernel tells everybody.
    drops: Option<u32>,
    /// How long a block of its ring is held.
    block_ms: Option<f64>,
    /// The fanout group that it is in: number and mode.
    group: Option<(u32, &'static str)>,
}

fn parse(message: &[u8], names: &BTreeMap<u32, String>) -> Option<PacketSocket> {
    (*message.first()? == AF_PACKET).then_some(())?;
    let attributes = after(message, HEADER_BYTES);
    let index = u32_at(attributes.get(INFO)?, 0)?;
    let interface = names.get(&index).map_or("any interface", String::as_str);
    let ring = attributes.get(RECEIVE_RING);
    let drops = attributes.get(MEMINFO).and_then(|memory| u32_at(memory, DROPS));
    Some(PacketSocket {
        place: format!("socket {} at {interface}", u32_at(message, INODE)?),
        cookie: u64_at(message, COOKIE)?,
        drops: drops.filter(|_| ring.is_none()),
        block_ms: ring.and_then(|ring| u32_at(ring, RETIRE_AT)).map(f64::from),
        group: attributes.get(FANOUT).and_then(|group| u32_at(group, 0)).map(group),
    })
}

/// The number of a group, and its mode: the byte above the number, without flags.
fn group(word: u32) -> (u32, &'static str) {
    (word & 0xffff, MODES.get((word >> 16 & 0xff) as usize).unwrap_or(&"unknown"))
}

/// The cookies of the packet sockets of the calling thread's namespace; they get theirs by being listed. None if they cannot be listed.
pub(super) fn cookies() -> Vec<u64> {
    let found = Netlink::open().dump(&DUMP, |message| parse(message, &BTreeMap::new()));
    found.unwrap_or_default().into_iter().map(|one| one.cookie).collect()
}

/// Reads them in the namespace of the calling thread.
pub(super) fn read(
    netlink: &mut Netlink,
    names: &BTreeMap<u32, String>,
    frames: Result<&PacketFrames, &str>,
) -> Known {
    match netlink.dump(&DUMP, |message| parse(message, names)) {
        Ok(all) => facts(&all, |cookie| {
            let told = frames?.read(cookie);
            told.map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => "it was opened within the window".to_owned(),
                _ => error.to_string(),
            })
        }),
        Err(error) => {
            let why = || Fact::unknown(format!("packet sockets cannot be listed: {error}"));
            FACTS.iter().map(|name| ((*name).to_owned(), why())).collect()
        }
    }
}

fn facts(all: &[PacketSocket], counted: impl Fn(u64) -> Result<PacketCount, String>) -> Known {
    let of = |one: &PacketSocket, part: fn(PacketCount) -> u64| match counted(one.cookie) {
        Ok(counts) => count(part(counts)),
        Err(why) => Fact::unknown(format!(
            "what a ring loses and a group shares out is told to its program alone, and {why}"
        )),
    };
    let drops = |one: &PacketSocket| match one.drops {
        Some(drops) => count(drops.into()),
        None => of(one, |counts| counts.lost),
    };
    let each = |of: &dyn Fn(&PacketSocket) -> Option<Fact>| {
        Fact::each(all.iter().filter_map(|one| Some((one.place.clone(), of(one)?))).collect::<Vec<_>>())
    };
    let told = [
        each(&|one| Some(drops(one))),
        each(&|one| one.block_ms.map(Fact::Number)),
        each(&|one| one.group.map(|(number, _)| Fact::Number(number.into()))),
        each(&|one| one.group.map(|(_, mode)| Fact::Text(mode.into()))),
        each(&|one| one.group.map(|_| of(one, |counts| counts.frames))),
    ];
    FACTS.map(str::to_owned).into_iter().zip(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use crate::sys::{netns, packet, socket};
    use proptest::prelude::*;
    use std::os::fd::AsFd;

    fn message(more: &[u8]) -> Vec<u8> {
        let head = [17, 3, 3, 0, 9, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0];
        let info: Vec<u8> = [2u32, 0, 0, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
        let memory: Vec<u8> = (0u32..9).flat_map(u32::to_ne_bytes).collect();
        join(&[&head, &attribute(INFO, &info), more, &attribute(MEMINFO, &memory)])
    }

    fn one(more: &[u8]) -> PacketSocket {
        parse(&message(more), &BTreeMap::from([(2, "eth0".to_owned())])).unwrap()
    }

    #[test]
    fn a_ring_s_losses_are_what_is_counted_else_unknown_and_not_none() {
        let words = |words: &[u32]| words.iter().copied().flat_map(u32::to_ne_bytes).collect::<Vec<u8>>();
        let ring = attribute(RECEIVE_RING, &words(&[4096, 64, 2048, 128, 60, 0, 0]));
        let grouped = join(&[&ring, &attribute(FANOUT, &words(&[0x8002 << 16 | 12]))]);
        let all = [one(&[]), one(&grouped)];
        assert_eq!((all[0].cookie, all[1].group, all[1].block_ms), (77, Some((12, "cpu")), Some(60.0)));
        let counts = |counted: Result<PacketCount, String>| {
            let known = facts(&all[1..], |_| counted.clone());
            (known["packet_socket.drops"].clone(), known["packet_socket.fanout_frames"].clone())
        };
        let (drops, frames) = counts(Ok(PacketCount { frames: 90, lost: 4 }));
        assert_eq!(drops, Fact::each([("socket 9 at eth0".to_owned(), count(4))]));
        assert_eq!(frames, Fact::each([("socket 9 at eth0".to_owned(), count(90))]));
        let (drops, _) = counts(Err("nobody counts".into()));
        assert!(drops.why_unknown().is_some_and(|why| why.ends_with("and nobody counts")), "{drops:?}");
        let plain = facts(&all[..1], |_| Err("nobody counts".into()));
        assert_eq!(plain["packet_socket.drops"], Fact::each([("socket 9 at eth0".to_owned(), count(8))]));
        assert_eq!(plain["packet_socket.fanout_frames"], Fact::each([]));
    }

    /// The numbers of the attributes are the kernel's own.
    #[test]
    fn the_kernel_tells_of_a_ring_and_of_a_group() {
        let inside = nix::unistd::geteuid().is_root().then(netns::create);
        let Some(Ok(inside)) = inside else {
            return println!("SKIP: facts of packet sockets: needs root (network namespaces)");
        };
        let known = netns::within(inside.as_fd(), || {
            let mut netlink = Netlink::open();
            netlink.set_up(1).unwrap();
            let (ring, plain) = (packet::open().unwrap(), packet::open().unwrap());
            packet::set(&ring, libc::PACKET_VERSION, 2).unwrap();
            let wanted = libc::tpacket_req3 {
                tp_block_size: 4096,
                tp_block_nr: 1,
                tp_frame_size: 2048,
                tp_frame_nr: 2,
                tp_retire_blk_tov: 60,
                tp_sizeof_priv: 0,
                tp_feature_req_word: 0,
            };
            socket::set(&ring, libc::SOL_PACKET, libc::PACKET_RX_RING, &wanted).unwrap();
            packet::bind(&ring, 1, packet::EVERYTHING).unwrap();
            packet::bind(&plain, 1, packet::EVERYTHING).unwrap();
            packet::set(&plain, libc::PACKET_FANOUT, 12 | (libc::PACKET_FANOUT_CPU as i32) << 16).unwrap();
            assert_eq!(cookies().len(), 2);
            read(&mut netlink, &BTreeMap::from([(1, "lo".to_owned())]), Err("nobody counts"))
        })
        .unwrap();
        let told = |name: &str| match &known[name] {
            Fact::Each { each } => each.values().cloned().collect::<Vec<_>>(),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(told("packet_socket.block_ms"), [Fact::Number(60.0)]);
        assert_eq!(told("packet_socket.fanout_group"), [Fact::Number(12.0)]);
        assert_eq!(told("packet_socket.fanout_mode"), [Fact::Text("cpu".into())]);
        let drops = told("packet_socket.drops");
        let unknown = drops.iter().filter(|fact| fact.why_unknown().is_some());
        assert_eq!((drops.len(), unknown.count(), drops.contains(&count(0))), (2, 1, true), "{drops:?}");
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&noise, &BTreeMap::new());
        }
    }
}
