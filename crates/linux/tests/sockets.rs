//! `int:` and `ring:` on a veth in a namespace of its own: same frames in, same frames out; what is lost is counted.
//!
//! Needs root; otherwise every test prints why it is skipped. Nothing is left behind: a namespace that nobody holds
//! vanishes with its interfaces.

mod support;

use linux::port::{
    Batch, Direction, FrameDirection, Frames, Hand, MAX_BATCH, Member, Meta, Port, PortError, PortOptions,
    Receiver, StampSource, Transmitted, Transmitter, Wait, open,
};
use linux::sys::netns;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};
use wire::offload::{Offload, SegmentKind, Segments};

/// Every way to receive and to transmit that this file knows.
const RECEIVERS: &[&str] = &[
    "int:b",
    "int:b?vnet=off",
    "int:b?batch=1",
    "ring:b",
    "ring:b?vnet=off",
    "ring:b?frames=2000&retire_ms=1",
    "ring:b?version=2",
    "ring:b?version=2&vnet=off&frames=1000",
];
const TRANSMITTERS: &[&str] = &[
    "int:a",
    "int:a?vnet=off",
    "int:a?bypass=on",
    "ring:a",
    "ring:a?vnet=off&tx_frames=2",
    "ring:a?bypass=on",
];

/// For what must come.
const SOON: Wait = Wait::For(Duration::from_secs(60));
/// Nothing comes any more.
const QUIET: Wait = Wait::For(Duration::from_secs(1));

/// Runs a test in a namespace of its own with the veth pair `a`, `b`; both are up and say nothing of their own.
fn alone(test: &str, body: impl FnOnce() + Send) {
    if !support::may_run(test) {
        return;
    }
    let space = netns::create().unwrap();
    netns::within(std::os::fd::AsFd::as_fd(&space), || {
        ip("link add name a type veth peer name b");
        for end in ["a", "b"] {
            ip(&format!("link set dev {end} addrgenmode none"));
            ip(&format!("link set dev {end} up"));
        }
        settle(["a", "b"]);
        body();
    })
    .unwrap();
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Waits until the kernel has switched the qdiscs on, which it does some time after both ends are up; before that every
/// frame is dropped without a word.
fn settle(ends: [&str; 2]) {
    let up = |end: &str| {
        let said = Command::new("ip").args(["-o", "link", "show", "dev", end]).output().unwrap();
        String::from_utf8_lossy(&said.stdout).contains("state UP")
    };
    while !ends.iter().all(|end| up(end)) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn receiving(uri: &str, wish: PortOptions) -> Port {
    open(uri, &PortOptions { direction: Direction::Receive, ..wish }).unwrap_or_else(|e| panic!("{e}"))
}

fn receiver(uri: &str, wish: PortOptions) -> Box<dyn Receiver> {
    receiving(uri, wish).receiver.unwrap()
}

fn transmitter(uri: &str) -> Box<dyn Transmitter> {
    let port: Port =
        open(uri, &PortOptions { direction: Direction::Transmit, ..PortOptions::default() }).unwrap();
    port.transmitter.unwrap()
}

/// A frame to everybody with an ethertype that no kernel answers, and bytes by its number.
fn frame(number: usize, length: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..length).map(|i| (number.wrapping_mul(31) + i) as u8).collect();
    let head = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    let head = &head[..length.min(14)];
    frame[..head.len()].copy_from_slice(head);
    frame
}

fn tagged(number: usize, tags: &[(u16, u16)]) -> Vec<u8> {
    let plain = frame(number, 60);
    let mut frame = plain[..12].to_vec();
    for (tpid, tci) in tags {
        frame.extend(tpid.to_be_bytes());
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(&plain[12..]);
    frame
}

/// Sends all, waiting when it is full; how many were refused.
fn send(to: &mut dyn Transmitter, frames: &[Vec<u8>]) -> usize {
    let mut refused = 0;
    for some in frames.chunks(100) {
        let mut memory = Frames::new(some.len(), 2000);
        for frame in some {
            assert!(memory.push(frame, Meta::default()));
        }
        let mut batch = memory.batch();
        let all = batch.all();
        let mut done = 0;
        while done < all.len() {
            let sent = to.transmit(&mut batch, &all[done..], Hand::Over).unwrap();
            refused += sent.refused;
            done += sent.dealt;
            if sent.dealt == 0 {
                to.flush(Duration::from_secs(1)).unwrap();
            }
        }
    }
    assert_eq!(to.flush(Duration::from_secs(60)).unwrap(), 0, "everything left");
    refused
}

/// Receives until `count` frames came or nothing more comes.
fn collect(from: &mut dyn Receiver, count: usize) -> Vec<(Vec<u8>, Meta)> {
    collect_within(from, count, SOON)
}

/// So many frames, or as many as come without such a pause.
fn collect_within(from: &mut dyn Receiver, count: usize, pause: Wait) -> Vec<(Vec<u8>, Meta)> {
    let mut got = vec![];
    while got.len() < count {
        let batch = from.receive(MAX_BATCH, pause).unwrap();
        if batch.is_empty() {
            break;
        }
        got.extend((0..batch.len()).map(|i| (batch.bytes(i).to_vec(), *batch.meta(i))));
    }
    got
}

fn drops(counters: &[record::PlaceDrop], name: &str) -> u64 {
    counters.iter().filter(|drop| drop.name == name).map(|drop| drop.count).sum()
}

#[test]
fn the_same_frames_come_out_in_order() {
    alone("same frames", || {
        let frames: Vec<Vec<u8>> = (0..700).map(|i| frame(i, 14 + i * 37 % 1501)).collect();
        for to in TRANSMITTERS {
            for from in RECEIVERS {
                let mut from_port = receiver(from, PortOptions::default());
                let mut to_port = transmitter(to);
                assert_eq!(send(to_port.as_mut(), &frames), 0);
                let got = collect(from_port.as_mut(), frames.len());
                assert_eq!(got.len(), frames.len(), "{to} to {from}");
                for (sent, (bytes, meta)) in frames.iter().zip(&got) {
                    assert_eq!(sent, bytes, "{to} to {from}");
                    assert_eq!((meta.wire_length as usize, meta.way), (sent.len(), FrameDirection::In));
                    assert!(meta.offload.is_complete() && meta.stamp.ns > 0);
                }
                let bytes: usize = frames.iter().map(Vec::len).sum();
                let (out, into) = (to_port.counters(), from_port.counters());
                assert_eq!((out.offered, out.accepted, out.bytes), (700, 700, bytes as u64), "{to}");
                assert_eq!((into.frames, into.bytes, into.cut), (700, bytes as u64, 0), "{from}");
                assert!(out.drops.iter().chain(&into.drops).all(|drop| drop.count == 0));
                assert!(from_port.receive(9, Wait::Poll).unwrap().is_empty());
            }
        }
    });
}

#[test]
fn tags_are_put_back_whatever_they_are() {
    alone("tags", || {
        let frames = [
            tagged(1, &[(0x8100, 5)]),
            tagged(2, &[(0x88a8, 0xe123)]),
            tagged(3, &[(0x88a8, 7), (0x8100, 8)]),
            frame(4, 60),
            tagged(5, &[(0x8100, 0)]),
        ];
        for to in TRANSMITTERS {
            for from in RECEIVERS {
                let mut from = receiver(from, PortOptions::default());
                assert_eq!(send(transmitter(to).as_mut(), &frames), 0);
                let got = collect(from.as_mut(), frames.len());
                for (sent, (bytes, meta)) in frames.iter().zip(&got) {
                    assert_eq!((sent, sent.len()), (bytes, meta.wire_length as usize), "{to}");
                }
                assert_eq!(got.len(), frames.len());
            }
        }
    });
}

#[test]
fn a_snap_length_cuts_and_tells_the_whole_length() {
    alone("snap", || {
        let frames = [frame(1, 1000), tagged(2, &[(0x8100, 5)]), frame(3, 40)];
        for from in RECEIVERS {
            let mut from = receiver(from, PortOptions { snap: Some(50), ..PortOptions::default() });
            send(transmitter("int:a").as_mut(), &frames);
            let got = collect(from.as_mut(), 3);
            assert_eq!(got.len(), 3);
            for (sent, (bytes, meta)) in frames.iter().zip(&got) {
                assert_eq!(
                    (&sent[..sent.len().min(50)], sent.len()),
                    (&bytes[..], meta.wire_length as usize)
                );
            }
            assert_eq!(from.counters().cut, 2);
        }
    });
}

#[test]
fn what_cannot_be_sent_is_refused_by_name_and_stops_nothing() {
    alone("refusals", || {
        let long_tag: Vec<u8> = [&tagged(2, &[(0x8100, 5)])[..], &[0; 1454]].concat();
        assert_eq!(long_tag.len(), 1518);
        let frames =
            [frame(1, 60), frame(2, 1515), frame(3, 13), frame(4, 0), frame(5, 1514), long_tag, frame(6, 61)];
        for to in TRANSMITTERS {
            let mut from = receiver("int:b", PortOptions::default());
            let mut to = transmitter(to);
            assert_eq!(to.longest(), 1514);
            assert_eq!(send(to.as_mut(), &frames), 3);
            let lengths: Vec<usize> =
                collect(from.as_mut(), 4).iter().map(|(bytes, _)| bytes.len()).collect();
            assert_eq!(lengths, [60, 1514, 1518, 61]);
            let out = to.counters();
            assert_eq!((out.offered, out.accepted), (7, 4));
            assert_eq!((drops(&out.drops, "oversize"), drops(&out.drops, "runt")), (1, 2));
        }
    });
}

#[test]
fn what_only_the_kernel_finds_wrong_is_refused_by_name_and_stops_nothing() {
    alone("wrong for the kernel", || {
        // A super-frame that is said to be IPv4 and is IPv6 by its ethertype: it looks right here (a ring's slot says
        // TP_STATUS_WRONG_FORMAT then, a message EINVAL).
        let segments = Segments { kind: SegmentKind::Tcp4, size: 10, header: 54, ecn: false };
        let wrong = Offload { segments: Some(segments), ..Offload::NONE };
        for to in ["int:a", "ring:a", "ring:a?bypass=on"] {
            let (mut from_port, mut to_port) = (receiver("int:b", PortOptions::default()), transmitter(to));
            let mut memory = Frames::new(5, 2000);
            for number in 0..5 {
                let (mut bytes, mut offload) = (frame(number, 200), Offload::NONE);
                if number % 2 == 1 {
                    bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
                    offload = wrong;
                }
                assert!(memory.push(&bytes, Meta { offload, ..Meta::default() }));
            }
            let mut batch = memory.batch();
            let all = batch.all();
            let sent = to_port.transmit(&mut batch, all, Hand::Copy).unwrap();
            assert_eq!(sent, Transmitted { dealt: 5, refused: 2 }, "{to}");
            let got = collect(from_port.as_mut(), 3);
            let bytes: Vec<_> = got.iter().map(|(bytes, _)| bytes).collect();
            assert_eq!(bytes, [&frame(0, 200), &frame(2, 200), &frame(4, 200)], "{to}: in order");
            let counters = to_port.counters();
            assert_eq!((counters.offered, counters.accepted), (5, 3), "{to}");
            assert_eq!(drops(&counters.drops, "invalid_offload"), 2, "{to}: {:?}", counters.drops);
            // The slots that were wrong are used again.
            assert_eq!(send(to_port.as_mut(), &vec![frame(9, 60); 2000]), 0, "{to}");
        }
    });
}

#[test]
fn a_frame_that_became_too_long_meanwhile_is_oversize() {
    alone("a smaller MTU", || {
        // (Below 1280 IPv6 would go, and come back with frames of its own.)
        // A ring with virtio headers takes any length (`tpacket_snd`): there the interface drops what is too long.
        for to in ["int:a", "int:a?vnet=off", "ring:a?vnet=off"] {
            ip("link set dev a mtu 1500");
            let (mut from_port, mut to_port) = (receiver("int:b", PortOptions::default()), transmitter(to));
            ip("link set dev a mtu 1300");
            let frames = [frame(1, 60), frame(2, 1400), frame(3, 1314), frame(4, 1315), frame(5, 60)];
            assert_eq!(send(to_port.as_mut(), &frames), 2, "{to}");
            let got = collect(from_port.as_mut(), 3);
            let lengths: Vec<_> = got.iter().map(|(bytes, _)| bytes.len()).collect();
            assert_eq!(lengths, [60, 1314, 60], "{to}");
            let drops = to_port.counters().drops;
            let named: Vec<_> = drops.iter().filter(|drop| drop.count > 0).collect();
            assert!(
                named.len() == 1 && named[0].name == "oversize" && named[0].count == 2,
                "{to}: {named:?}"
            );
        }
    });
}

#[test]
fn stamps_stay_with_their_frames_when_the_kernel_refuses_some() {
    alone("stamps and a smaller MTU", || {
        // A frame that might have had a tag is refused when the kernel has numbered it, a longer one before.
        for (long, one_by_one) in [(1400, true), (1316, true), (1400, false), (1316, false)] {
            ip("link set dev a mtu 1500");
            let _from = receiver("int:b", PortOptions::default());
            let stamps = StampSource::Software;
            let wish = PortOptions { direction: Direction::Transmit, stamps, ..PortOptions::default() };
            let mut to = open("int:a", &wish).unwrap().transmitter.unwrap();
            ip("link set dev a mtu 1300");
            let frames = [60, long, 60, 61, 62].map(|length| frame(1, length));
            let refused: usize = match one_by_one {
                true => frames.iter().map(|one| send(to.as_mut(), std::slice::from_ref(one))).sum(),
                false => send(to.as_mut(), &frames),
            };
            assert_eq!(refused, 1);
            let until = Instant::now() + Duration::from_secs(60);
            let mut left = vec![];
            while left.len() < 4 && Instant::now() < until {
                to.departures(&mut left);
            }
            let numbers: Vec<u64> = left.iter().map(|departure| departure.number).collect();
            assert_eq!(numbers, [0, 2, 3, 4], "{long} bytes, one by one: {one_by_one}");
        }
    });
}

#[test]
fn a_full_buffer_is_counted_and_nothing_else_is_missing() {
    alone("full buffer", || {
        let mut from = receiver("int:b?buffer=8Ki", PortOptions::default());
        let frames: Vec<Vec<u8>> = (0..1000).map(|i| frame(i, 60)).collect();
        send(transmitter("int:a").as_mut(), &frames);
        let got = collect_within(from.as_mut(), 1000, QUIET);
        let counters = from.counters();
        assert!(!got.is_empty() && got.len() < 1000);
        assert_eq!(got.len() as u64 + drops(&counters.drops, "buffer_full"), 1000);
        assert_eq!(from.counters(), counters, "reading twice adds nothing");
    });
}

#[test]
fn outgoing_frames_are_seen_only_when_wished() {
    alone("outgoing", || {
        for uri in RECEIVERS {
            let uri = uri.replace(":b", ":a");
            let mut without = receiver(&uri, PortOptions::default());
            let mut with = receiver(&uri, PortOptions { outgoing: true, ..PortOptions::default() });
            send(transmitter("int:a").as_mut(), &[frame(1, 60)]);
            let got = collect(with.as_mut(), 1);
            assert_eq!((got.len(), got[0].1.way), (1, FrameDirection::Out), "{uri}");
            assert!(without.receive(1, Wait::For(Duration::from_millis(30))).unwrap().is_empty());
        }
    });
}

#[test]
fn a_link_that_goes_down_is_said_once_and_comes_back_and_a_removed_one_is_gone() {
    alone("down and gone", || {
        for uri in RECEIVERS {
            let mut from = receiver(uri, PortOptions::default());
            let mut to = transmitter("int:b");
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| from.receive(9, SOON).map(|b| b.len()));
                std::thread::sleep(Duration::from_millis(20));
                ip("link set dev b down");
                assert!(matches!(waiting.join().unwrap(), Err(PortError::Down)), "{uri}");
            });
            let begun = Instant::now();
            let waited = from.receive(9, Wait::For(Duration::from_millis(120))).unwrap().len();
            assert!(waited == 0 && begun.elapsed() >= Duration::from_millis(120), "said once");

            let mut memory = Frames::new(2, 100);
            memory.push(&frame(1, 60), Meta::default());
            let mut batch = memory.batch();
            assert!(matches!(to.transmit(&mut batch, &[0], Hand::Copy), Err(PortError::Down)));
            assert_eq!(
                to.transmit(&mut batch, &[0], Hand::Copy).unwrap(),
                Transmitted { dealt: 1, refused: 1 }
            );
            assert_eq!(drops(&to.counters().drops, "link_down"), 1);

            ip("link set dev b up");
            settle(["a", "b"]);
            send(transmitter("int:a").as_mut(), &[frame(1, 60)]);
            assert_eq!(collect(from.as_mut(), 1).len(), 1, "{uri} after the link came back");
            assert_eq!(
                to.transmit(&mut batch, &[0], Hand::Copy).unwrap(),
                Transmitted { dealt: 1, refused: 0 }
            );
        }
        let mut from: Vec<_> = RECEIVERS.iter().map(|uri| receiver(uri, PortOptions::default())).collect();
        let mut to: Vec<_> = TRANSMITTERS.iter().map(|uri| transmitter(uri)).collect();
        ip("link del dev a");
        for from in &mut from {
            let end = |result: Result<Batch<'_>, PortError>| result.unwrap_err();
            let mut said = end(from.receive(9, SOON));
            if matches!(said, PortError::Down) {
                said = end(from.receive(9, SOON));
            }
            assert!(matches!(said, PortError::Gone), "{said:?}");
            assert!(matches!(end(from.receive(9, SOON)), PortError::Gone));
        }
        for to in &mut to {
            let mut memory = Frames::new(2, 100);
            memory.push(&frame(1, 60), Meta::default());
            let said = to.transmit(&mut memory.batch(), &[0], Hand::Copy);
            assert!(matches!(said, Err(PortError::Gone)), "{said:?}");
        }
    });
}

#[test]
fn what_cannot_be_opened_says_why() {
    alone("refused ports", || {
        let said = |uri: &str| open(uri, &PortOptions::default()).unwrap_err().to_string();
        assert!(said("int:nothing").contains("no interface 'nothing'"));
        assert!(said("int:averyveryverylongname").contains("no interface"));
        assert!(said("int:a?fanout=all").contains("hash, lb, cpu"));
        assert!(said("int:a?vnet=maybe").contains("on or off"));
        assert!(said("int:a?batch=0").contains("1 to 512"));
        assert!(said("int:a?colour=red").contains("no setting 'colour'"));
        let port = open("int:a?buffer=1Mi", &PortOptions::default()).unwrap();
        let buffer = port.settings.iter().find(|setting| setting.name == "buffer").unwrap();
        assert_eq!((buffer.asked.as_str(), buffer.effective.as_str()), ("1048576 B", "2097152 B"));
    });
}

#[test]
fn a_lent_block_is_not_written_to_however_full_the_ring_is() {
    alone("loan", || {
        for uri in ["ring:b?frames=8&retire_ms=1", "ring:b?version=2&frames=8", "ring:b?block=4096&blocks=2"]
        {
            let mut from = receiver(uri, PortOptions::default());
            let mut to = transmitter("int:a");
            let (first, flood): (Vec<_>, Vec<_>) =
                ((0..3).map(|i| frame(i, 300)).collect(), (3..2003).map(|i| frame(i, 300)).collect());
            send(to.as_mut(), &first);
            let batch = from.receive(2, SOON).unwrap();
            assert!(!batch.is_empty());
            send(to.as_mut(), &flood);
            for (i, sent) in first.iter().enumerate().take(batch.len()) {
                assert_eq!(batch.bytes(i), &sent[..], "{uri}: the kernel wrote into what was lent");
            }
            let held = batch.len();
            let rest = collect_within(from.as_mut(), usize::MAX, QUIET);
            let counters = from.counters();
            let lost = drops(&counters.drops, "ring_full");
            assert!(lost > 0, "{uri}");
            assert_eq!(counters.frames, (held + rest.len()) as u64);
            assert_eq!(counters.frames + lost, 2003, "{uri}: every frame was lent or counted as lost");
            let shown = rest.windows(2).all(|two| two[0].0[14..] != two[1].0[14..]);
            assert!(shown, "{uri}: a frame was lent twice");
            if !uri.contains("version=2") {
                assert!(counters.freezes > 0, "{uri}");
            }
            // The ring works on after it was full.
            send(to.as_mut(), &first);
            assert_eq!(collect(from.as_mut(), 3).len(), 3, "{uri}");
        }
    });
}

/// Addresses on both ends and no need to ask for neighbours.
fn with_addresses() {
    ip("address add 10.9.8.1/24 dev a");
    ip("neighbour add 10.9.8.2 lladdr 02:00:00:00:00:02 dev a");
}

#[test]
fn unfinished_checksums_and_super_frames_are_told_and_carried_on() {
    alone("offloads", || {
        with_addresses();
        ip("link add name c type veth peer name d");
        for end in ["c", "d"] {
            ip(&format!("link set dev {end} addrgenmode none"));
            ip(&format!("link set dev {end} up"));
        }
        settle(["c", "d"]);
        let socket = UdpSocket::bind("10.9.8.1:0").unwrap();
        let payload: Vec<u8> = (0..30_000u32).map(|i| (i * 7) as u8).collect();
        for (from, to, into) in [
            ("int:b", "int:c", "int:d"),
            ("ring:b", "ring:c", "ring:d"),
            ("ring:b?version=2", "int:c?bypass=on", "ring:d?version=2"),
            ("int:b", "ring:c?bypass=on", "ring:d"),
        ] {
            let (mut from_port, mut into_port) =
                (receiver(from, PortOptions::default()), receiver(into, PortOptions::default()));
            let mut to_port = transmitter(to);
            linux::sys::udp::set_segment(&socket, 0).unwrap();
            socket.send_to(&payload[..100], "10.9.8.2:9").unwrap();
            linux::sys::udp::set_segment(&socket, 1000).unwrap();
            socket.send_to(&payload, "10.9.8.2:9").unwrap();
            let mut seen = vec![];
            while seen.len() < 2 {
                let mut batch = from_port.receive(MAX_BATCH, SOON).unwrap();
                assert!(!batch.is_empty(), "{from}");
                seen.extend((0..batch.len()).map(|i| (batch.bytes(i).to_vec(), *batch.meta(i))));
                let all = batch.all();
                let sent = to_port.transmit(&mut batch, all, Hand::Over).unwrap();
                assert_eq!(
                    sent,
                    Transmitted { dealt: all.len(), refused: 0 },
                    "{to}: {:?}",
                    to_port.counters()
                );
            }
            let (small, large) = (&seen[0], &seen[1]);
            let partial = small.1.offload.partial.unwrap();
            assert_eq!((partial.start, partial.offset, small.1.offload.segments), (34, 6, None), "{from}");
            let segments = large.1.offload.segments.unwrap();
            assert_eq!((segments.kind, segments.size), (SegmentKind::Udp, 1000), "{from}");
            assert_eq!(large.0[42..], payload[..], "{from}");
            let got = collect(into_port.as_mut(), 2);
            for ((sent, meta), (bytes, came)) in seen.iter().zip(&got) {
                assert_eq!(sent, bytes, "{to} to {into}");
                assert_eq!(meta.offload.partial, came.offload.partial);
                assert_eq!(meta.offload.segments.map(|s| s.size), came.offload.segments.map(|s| s.size));
            }
            assert_eq!((got.len(), from_port.counters().cut), (2, 0), "{from}");
        }
    });
}

/// A UDP frame with right checksums; `id` is its IPv4 identification.
fn datagram(flow: u16, id: u16, payload: &[u8]) -> Vec<u8> {
    let ends = wire::build::Ends {
        macs: ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]),
        addresses: ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()),
        ports: (1000 + flow, 2000),
    };
    let mut frame = wire::build::build_udp(&ends, payload).unwrap();
    frame[18..20].copy_from_slice(&id.to_be_bytes());
    frame[24..26].fill(0);
    let sum = wire::checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn joined_frames_arrive_one_by_one_and_are_counted_one_by_one() {
    alone("joined frames", || {
        let Err(problem) =
            open("int:a?join=64", &PortOptions { direction: Direction::Transmit, ..PortOptions::default() })
        else {
            panic!("a veth would pass the super-frames on")
        };
        assert!(problem.to_string().contains("tx-udp-segmentation off"), "{problem}");
        let mut netlink = linux::netlink::Netlink::open();
        let index = netlink.links().unwrap().iter().find(|link| link.name == "a").unwrap().index;
        let off = [(linux::lab::topology::OffloadFeature::Uso, false)].into_iter().collect();
        netlink.set_offloads(index, &off).unwrap();
        // Runs of one flow, strangers between them, a frame whose checksum is wrong and stays so, long ones.
        let mut frames = vec![];
        for i in 0..600u16 {
            let length = if i % 200 < 150 { 18 } else { 1400 };
            frames.push(datagram(i / 70, i, &vec![i as u8; length]));
            if i % 33 == 0 {
                frames.push(frame(usize::from(i), 60));
            }
        }
        frames[300][41] ^= 1;
        for to in ["int:a?join=64", "int:a?join=7", "int:a?join=1"] {
            let mut from_port = receiver("ring:b", PortOptions::default());
            let mut to_port = transmitter(to);
            assert_eq!(send(to_port.as_mut(), &frames), 0);
            let got = collect(from_port.as_mut(), frames.len());
            assert_eq!(got.len(), frames.len(), "{to}");
            for (number, (sent, (mut bytes, meta))) in frames.iter().zip(got).enumerate() {
                // A veth passes the pieces on with checksums that the hardware should complete.
                if let Some(partial) = meta.offload.partial {
                    wire::offload::complete(&mut bytes, partial).unwrap();
                }
                assert_eq!((sent, meta.offload.segments), (&bytes, None), "{to}: frame {number}");
            }
            let bytes: usize = frames.iter().map(Vec::len).sum();
            let out = to_port.counters();
            let all = frames.len() as u64;
            assert_eq!((out.offered, out.accepted, out.bytes), (all, all, bytes as u64), "{to}");
        }
    });
}

#[test]
fn a_port_without_virtio_headers_finds_unfinished_checksums_and_finishes_what_it_sends() {
    alone("no virtio headers", || {
        with_addresses();
        let socket = UdpSocket::bind("10.9.8.1:0").unwrap();
        for from in ["int:b?vnet=off", "ring:b?vnet=off", "ring:b?vnet=off&version=2"] {
            let mut from_port = receiver(from, PortOptions::default());
            socket.send_to(&[7; 100], "10.9.8.2:9").unwrap();
            let batch = from_port.receive(1, SOON).unwrap();
            let partial = batch.meta(0).offload.partial.unwrap();
            assert_eq!((partial.start, partial.offset), (34, 6), "{from}");
            let unfinished = (batch.bytes(0).to_vec(), *batch.meta(0));
            for to in ["int:b?vnet=off", "ring:b?vnet=off"] {
                let (mut to_port, mut into) = (transmitter(to), receiver("int:a", PortOptions::default()));
                let mut memory = Frames::new(1, 2000);
                assert!(memory.push(&unfinished.0, unfinished.1));
                let sent = to_port.transmit(&mut memory.batch(), &[0], Hand::Copy).unwrap();
                assert_eq!(sent, Transmitted { dealt: 1, refused: 0 });
                let got = collect(into.as_mut(), 1);
                let mut whole = unfinished.0.clone();
                wire::offload::complete(&mut whole, partial).unwrap();
                assert!(got[0].0 == whole && got[0].1.offload.is_complete(), "{to}");
                assert_eq!(to_port.counters().completed_checksums, 1, "{to}");
            }
        }
        let payload: Vec<u8> = (0..30_000u32).map(|i| (i * 7) as u8).collect();
        linux::sys::udp::set_segment(&socket, 1000).unwrap();
        for to in ["int:b?vnet=off", "ring:b?vnet=off"] {
            let (mut from, mut into) =
                (receiver("int:b", PortOptions::default()), receiver("int:a", PortOptions::default()));
            socket.send_to(&payload, "10.9.8.2:9").unwrap();
            let mut to_port = transmitter(to);
            let mut batch = from.receive(1, SOON).unwrap();
            assert!(batch.meta(0).offload.segments.is_some());
            assert_eq!(
                to_port.transmit(&mut batch, &[0], Hand::Copy).unwrap(),
                Transmitted { dealt: 1, refused: 0 }
            );
            let got = collect(into.as_mut(), 30);
            let bytes: Vec<u8> = got.iter().flat_map(|(bytes, _)| bytes[42..].to_vec()).collect();
            assert!(bytes == payload, "{to}: {} pieces", got.len());
            let out = to_port.counters();
            assert_eq!((out.segments, out.accepted, out.offered), (30, 1, 1), "{to}");
        }
    });
}

#[test]
fn a_probe_proves_which_stamps_come() {
    alone("probe", || {
        let report = linux::port::stamps::probe("a", StampSource::HardwareRaw).unwrap();
        println!("{report:?}");
        assert!(!report.delivered && report.clock_index.is_none());
        assert!(report.notes.iter().any(|note| note.contains("no hardware stamps")), "{report:?}");
        assert!(report.claims.iter().all(|claim| !claim.starts_with("hardware")));
        assert!(report.transmit.iter().any(|seen| seen.source == "software" && seen.count > 0), "{report:?}");
        assert!(report.resolution_ns.is_some());
        let report = linux::port::stamps::probe("a", StampSource::Software).unwrap();
        assert!(report.delivered, "{report:?}");
        assert!(linux::port::stamps::probe("nothing", StampSource::Software).is_err());
    });
}

#[test]
fn members_of_a_group_share_the_frames() {
    alone("fanout", || {
        for uri in ["int:b?fanout=lb", "ring:b?fanout=lb&retire_ms=1", "ring:b?version=2&fanout=hash"] {
            let member = |index| Some(Member { index, count: 2, group: 7 });
            let mut members: Vec<_> = (0..2)
                .map(|index| receiver(uri, PortOptions { member: member(index), ..PortOptions::default() }))
                .collect();
            let frames: Vec<Vec<u8>> = (0..200).map(|i| frame(i, 60)).collect();
            send(transmitter("int:a").as_mut(), &frames);
            let (mut got, until) = ([0; 2], Instant::now() + Duration::from_secs(60));
            while got.iter().sum::<usize>() < 200 && Instant::now() < until {
                for (from, got) in members.iter_mut().zip(&mut got) {
                    *got += collect_within(from.as_mut(), 200, Wait::For(Duration::from_millis(50))).len();
                }
            }
            assert_eq!(got.iter().sum::<usize>(), 200, "{uri} {got:?}");
            if uri.contains("lb") {
                assert!(got.iter().all(|&some| some > 0), "{uri} {got:?}");
            }
        }
    });
}

#[test]
fn stamps_are_what_each_frame_says() {
    alone("stamps", || {
        for uri in RECEIVERS {
            for wish in [StampSource::None, StampSource::Software, StampSource::HardwareRaw] {
                let port = receiving(uri, PortOptions { stamps: wish, ..PortOptions::default() });
                let mut from = port.receiver.unwrap();
                let before = linux::sys::clock::realtime_ns();
                let mut to = transmitter("int:a");
                let mut next = || {
                    send(to.as_mut(), &[frame(1, 60)]);
                    collect(from.as_mut(), 1)[0].1.stamp
                };
                let mut stamp = next();
                // The kernel switches its clock readings on some time after it was asked (`netstamp_work`); frames before
                // that have none, and say so.
                while wish != StampSource::None && stamp.source == StampSource::User {
                    stamp = next();
                }
                let after = linux::sys::clock::realtime_ns();
                let user = wish == StampSource::None && uri.starts_with("int");
                let source = if user { StampSource::User } else { StampSource::Software };
                assert_eq!(stamp.source, source, "{uri} {wish:?}: a veth has no clock");
                assert!((before..=after).contains(&stamp.ns), "{uri} {wish:?}");
                assert!(port.settings.iter().any(|setting| setting.name == "stamps"));
            }
        }
    });
}

/// A fact about the kernel, printed and not judged: how long a lone frame waits in each kind of receiver.
#[test]
fn a_block_that_fills_slowly_adds_latency_and_the_port_says_so() {
    alone("latency", || {
        for uri in ["int:b", "ring:b?version=2", "ring:b?retire_ms=1", "ring:b", "ring:b?retire_ms=20"] {
            let port =
                receiving(uri, PortOptions { stamps: StampSource::Software, ..PortOptions::default() });
            let mut from = port.receiver.unwrap();
            let mut to = transmitter("int:a");
            let mut late = vec![];
            for i in 0..20 {
                std::thread::scope(|scope| {
                    let sender = scope.spawn(|| {
                        std::thread::sleep(Duration::from_millis(2));
                        send(to.as_mut(), &[frame(i, 60)]);
                    });
                    let batch = from.receive(1, SOON).unwrap();
                    late.push(linux::sys::clock::realtime_ns().saturating_sub(batch.meta(0).stamp.ns));
                    sender.join().unwrap();
                });
            }
            late.sort_unstable();
            println!("{uri}: median {:.3} ms, most {:.3} ms", late[10] as f64 / 1e6, late[19] as f64 / 1e6);
            let says =
                port.settings.iter().any(|setting| setting.name == "retire" && setting.note.contains("late"));
            assert_eq!(says, uri.starts_with("ring") && !uri.contains("version=2"));
        }
    });
}

#[test]
fn a_ring_that_cannot_be_says_why() {
    alone("refused rings", || {
        let said = |uri: &str| open(uri, &PortOptions::default()).unwrap_err().to_string();
        assert!(said("ring:a?version=1").contains("2 to 3"));
        assert!(said("ring:a?version=2&retire_ms=1").contains("version=3"));
        assert!(said("ring:a?frames=8&block=4096").contains("block or blocks"));
        assert!(said("ring:a?block=64Mi&blocks=1000").contains("1 GiB"));
        assert!(said("ring:a?retire_ms=0").contains("1 to 10000"));
        let port = receiving("ring:a?block=5000&blocks=3", PortOptions::default());
        let mut from = port.receiver.unwrap();
        let ring = port.settings.iter().find(|setting| setting.name == "ring").unwrap();
        assert_eq!(ring.effective, "3 blocks of 8192 B");
        assert!(ring.asked.contains("block=5000"));
        assert!(from.receive(0, Wait::Poll).unwrap().is_empty());
    });
}
