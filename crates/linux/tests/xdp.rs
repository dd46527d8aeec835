//! AF_XDP and live frames on a veth inside namespaces of the test's own.
//!
//! Needs root; otherwise every test prints why it is skipped.

mod support;

use linux::lab::{Lab, Lifetime, Node, Topology};
use linux::port::live::{Live, LiveFrame, LiveOptions, Pace};
use linux::port::{
    Area, Direction, Frames, Hand, Member, Meta, Port, PortError, PortOptions, Receiver, Transmitter, Wait,
    forward, open, xdp,
};
use linux::sys::bpf;
use nix::ifaddrs::getifaddrs;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{may_run, skip};
use wire::build::{Ends, build_udp};
use wire::frame::Mac;
use wire::message::{Flags, Message};
use wire::offload::{Offload, Partial, SegmentKind, Segments};

fn pair(test: &str) -> Lab {
    let name = format!("x{}-{test}", std::process::id());
    Lab::up(&linux::undo::journals().unwrap(), &Topology::load("pair").unwrap(), &name, Lifetime::Ephemeral)
        .unwrap()
}

fn mac(node: &Node, interface: &str) -> Mac {
    let find = || {
        let mut all = getifaddrs().unwrap().filter(|entry| entry.interface_name == interface);
        all.find_map(|entry| entry.address?.as_link_addr()?.addr()).unwrap()
    };
    node.within(find).unwrap()
}

fn run(node: &Node, program: &str, arguments: &[&str]) {
    let output = node.command(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Addresses of a frame from a to b.
fn ends(lab: &Lab, family: u8) -> Ends {
    let [a, b] = ["a", "b"].map(|name| lab.node(name).unwrap());
    Ends {
        macs: (mac(a, "eth0"), mac(b, "eth0")),
        addresses: (lab.address_of("a", family).unwrap(), lab.address_of("b", family).unwrap()),
        ports: (7001, 7002),
    }
}

/// A UDP frame whose payload begins with our message.
fn with_message(ends: &Ends, payload: usize) -> LiveFrame {
    let mut bytes = vec![0x5a; payload];
    Message { stream: 9, flags: Flags::DATA, sequence: 0, planned_ns: 0 }.write(&mut bytes);
    let bytes = build_udp(ends, &bytes).unwrap();
    LiveFrame { message: Some(bytes.len() - payload), bytes }
}

/// Long enough for a busy machine; what takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether something becomes so.
fn within_patience(mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
    }
}

fn receiver(node: &Node, to: IpAddr) -> UdpSocket {
    let socket = node.within(|| UdpSocket::bind((to, 7002)).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[test]
fn live_frames_are_counted_numbered_and_have_right_checksums() {
    if !may_run("live frames") {
        return;
    }
    let lab = pair("live");
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    for family in [4, 6] {
        let ends = ends(&lab, family);
        let socket = receiver(b, ends.addresses.1);
        let frames: Vec<LiveFrame> = [18, 100, 1400, 41].map(|payload| with_message(&ends, payload)).into();
        let wish = LiveOptions { frames, first_sequence: 1000, open_peer: true, ..LiveOptions::default() };
        let mut live = a.within(|| Live::open("eth0", "live:eth0", &wish)).unwrap().unwrap();
        let before = linux::sys::clock::monotonic_ns();
        assert_eq!(live.run(33).unwrap(), 33);
        assert_eq!(live.sent().unwrap(), 33);
        let mut buffer = [0; 2048];
        for i in 0..33 {
            let length = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("frame {i} of IPv{family}: {e}"));
            let message = Message::read(&buffer[..length]).unwrap();
            assert_eq!(length, [18, 100, 1400, 41][i % 4], "templates in turn");
            assert_eq!((message.stream, message.sequence), (9, 1000 + i as u64));
            assert!((before..linux::sys::clock::monotonic_ns()).contains(&message.planned_ns));
            assert!(buffer[18..length].iter().all(|&byte| byte == 0x5a));
        }
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(socket.recv(&mut buffer).is_err(), "not one more");
    }
}

#[test]
fn a_veth_that_takes_no_live_frames_is_refused_with_advice() {
    if !may_run("live refusals") {
        return;
    }
    let lab = pair("refuse");
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    let wish = LiveOptions { frames: vec![with_message(&ends(&lab, 4), 18)], ..LiveOptions::default() };
    let open = |uri: &str| a.within(|| Live::open_uri(uri, wish.clone())).unwrap();
    let refusal = open("live:eth0").unwrap_err().to_string();
    assert!(refusal.contains("neither an XDP program nor GRO") && refusal.contains("gro on"), "{refusal}");
    assert!(open("live:eth7").unwrap_err().to_string().contains("no interface 'eth7'"));
    assert!(open("live:eth0?speed=1").unwrap_err().to_string().contains("no setting 'speed'"));
    drop(open("live:eth0?peer=open").unwrap());
    assert!(open("live:eth0").is_err(), "the program at the other end went with the generator");
    // Somebody listens, so nobody complains (and nothing else comes in).
    let _socket = receiver(b, lab.address_of("b", 4).unwrap());
    run(b, "ethtool", &["-K", "eth0", "gro", "on"]);
    let mut live = open("live:eth0?batch=8").unwrap();
    let frames = |node: &Node| node.links().unwrap().iter().find(|l| l.name == "eth0").unwrap().frames;
    let before = frames(b).1;
    assert_eq!(live.run(5000).unwrap(), 5000);
    assert_eq!(frames(b).1 - before, 5000);
    run(a, "ip", &["link", "del", "eth0"]);
    assert!(matches!(live.run(10), Err(linux::port::PortError::Gone)));
}

#[test]
fn a_pace_is_kept_and_ends() {
    if !may_run("live pace") {
        return;
    }
    let lab = pair("pace");
    let wish = LiveOptions {
        frames: vec![with_message(&ends(&lab, 4), 18)],
        open_peer: true,
        ..LiveOptions::default()
    };
    let mut live = lab.node("a").unwrap().within(|| Live::open("eth0", "live:eth0", &wish)).unwrap().unwrap();
    let (mut last, mut counted) = (0, 0);
    let pace = Pace { count: Some(2500), rate: Some(100_000.0), ..Pace::default() };
    let begin = linux::sys::clock::monotonic_ns();
    let sent = live.pace(&pace, |burst| {
        assert_eq!((burst.before, burst.planned_ns <= burst.begun_ns), (counted, true));
        assert!(burst.planned_ns > last, "each burst has its own time");
        last = burst.planned_ns;
        counted += burst.frames;
        true
    });
    let took = linux::sys::clock::monotonic_ns() - begin;
    assert_eq!((sent.unwrap(), counted, live.sent().unwrap()), (2500, 2500, 2500));
    assert!(took >= 24_000_000, "never faster than asked: {took}");
    let soon = Pace { until_ns: Some(linux::sys::clock::monotonic_ns() + 5_000_000), ..Pace::default() };
    assert!(live.pace(&soon, |_| true).unwrap() > 0);
    let once = live.pace(&Pace { rate: Some(1e6), ..Pace::default() }, |_| false).unwrap();
    assert!((1000..=1 << 21).contains(&once), "one burst, with what fell due before it: {once}");
}

/// a:eth0 ── p1:x:p2 ── b:eth0, with nothing in x that forwards.
const WIRE: &str = "node a x b\nlink a:eth0 -- x:p1 OFFLOAD\nlink b:eth0 -- x:p2 OFFLOAD\n\
                    interface a:eth0 address 10.0.0.1/24 fd00::1/64\n\
                    interface b:eth0 address 10.0.0.2/24 fd00::2/64\n";

fn wire_of(test: &str, offload: &str) -> Lab {
    let text = WIRE.replace("OFFLOAD", offload);
    let name = format!("x{}-{test}", std::process::id());
    Lab::up(
        &linux::undo::journals().unwrap(),
        &Topology::parse(&text, "test").unwrap(),
        &name,
        Lifetime::Ephemeral,
    )
    .unwrap()
}

fn open_in(node: &Node, uri: &str, wish: &PortOptions) -> record::Result<Port> {
    node.within(|| open(uri, wish)).unwrap()
}

/// Frames of many lengths, in no protocol that anybody would answer.
fn odd_frames(count: usize, longest: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|i| {
            let mut frame = vec![i as u8; 14 + (i * 97) % (longest - 13)];
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
            frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 8]);
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            frame
        })
        .collect()
}

fn send_all(port: &mut Port, frames: &[Vec<u8>]) {
    let transmitter = port.transmitter.as_mut().unwrap();
    for some in frames.chunks(64) {
        let mut batch_of = Frames::new(64, 4096);
        some.iter().for_each(|frame| assert!(batch_of.push(frame, Meta::default())));
        let mut batch = batch_of.batch();
        let (all, mut done) = (batch.all(), 0);
        let all_left = within_patience(|| {
            let sent = transmitter.transmit(&mut batch, &all[done..], Hand::Copy).unwrap();
            assert_eq!(sent.refused, 0);
            done += sent.dealt;
            done == all.len() || transmitter.flush(Duration::from_millis(10)).is_err()
        });
        assert!(all_left && done == all.len());
    }
    assert_eq!(transmitter.flush(PATIENCE).unwrap(), 0);
}

/// Everything that comes: so many frames (with those that the port lost, as it says), and then nothing for a while.
fn receive_all(port: &mut Port, wanted: usize) -> Vec<Vec<u8>> {
    let receiver = port.receiver.as_mut().unwrap();
    let mut frames = vec![];
    let is_all = within_patience(|| {
        let batch = receiver.receive(32, Wait::For(Duration::from_millis(100))).unwrap();
        let count = batch.len();
        frames.extend((0..count).map(|i| batch.bytes(i).to_vec()));
        let lost: u64 = receiver.counters().drops.iter().map(|drop| drop.count).sum();
        count == 0 && frames.len() + lost as usize >= wanted
    });
    assert!(is_all, "{} of {wanted} frames came: {:?}", frames.len(), receiver.counters());
    frames
}

fn effective(settings: &[record::PortSetting], name: &str) -> String {
    settings.iter().find(|setting| setting.name == name).unwrap().effective.clone()
}

#[test]
fn same_frames_in_same_frames_out_in_both_modes() {
    if !may_run("xdp ports") {
        return;
    }
    let lab = pair("same");
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    for mode in ["native", "generic"] {
        let area = Area::new(xdp::chunks(256), 2048).unwrap();
        let wish = PortOptions { area: Some(area.clone()), ..PortOptions::default() };
        let uri = format!("xdp:eth0?mode={mode}&frames=256");
        let mut from = open_in(
            a,
            "xdp:eth0?frames=256",
            &PortOptions { direction: Direction::Transmit, ..PortOptions::default() },
        )
        .unwrap();
        let mut to = open_in(b, &uri, &wish).unwrap();
        assert_eq!(effective(&to.settings, "mode"), mode);
        assert_eq!(effective(&to.settings, "copy"), "copy");
        let frames = odd_frames(200, 1514);
        for round in 1..=5u64 {
            send_all(&mut from, &frames);
            assert_eq!(receive_all(&mut to, frames.len()), frames, "{mode}, round {round}");
            let (sent, came) =
                (from.transmitter.as_mut().unwrap().counters(), to.receiver.as_mut().unwrap().counters());
            assert_eq!(
                (sent.accepted, sent.completed, sent.copied),
                (200 * round, Some(200 * round), 200 * round)
            );
            assert_eq!((came.frames, came.bytes, came.copied), (200 * round, sent.bytes, 0));
            assert!(came.drops.iter().chain(&sent.drops).all(|drop| drop.count == 0), "{came:?} {sent:?}");
        }
        drop(to);
        assert_eq!(area.free(), area.chunks() as usize, "every chunk came back");
    }
}

#[test]
fn what_the_ring_loses_is_counted() {
    if !may_run("xdp loss") {
        return;
    }
    let lab = pair("loss");
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    for mode in ["native", "generic"] {
        let mut from =
            open_in(a, "xdp:eth0", &PortOptions { direction: Direction::Transmit, ..PortOptions::default() })
                .unwrap();
        let mut to = open_in(b, &format!("xdp:eth0?mode={mode}&frames=64"), &PortOptions::default()).unwrap();
        send_all(&mut from, &odd_frames(500, 1000));
        let came = receive_all(&mut to, 500).len() as u64;
        let counters = to.receiver.as_mut().unwrap().counters();
        let dropped: u64 = counters.drops.iter().map(|drop| drop.count).sum();
        assert!(came >= 64 && dropped > 0, "{came} {counters:?}");
        assert_eq!(came + dropped, 500, "{mode}: {counters:?}");
    }
}

/// A child that is between `fork` and `exec` has a copy of each descriptor: no frame may go where nobody reads any more for it.
#[test]
fn a_program_is_detached_although_its_link_is_still_held() {
    if !may_run("xdp detach") {
        return;
    }
    let lab = pair("held");
    // `r0 = XDP_PASS; exit`
    let program = bpf::load_program(bpf::PROG_XDP, &[0x0000_0002_0000_00b7, 0x95], c"GPL", "pathlab_test")
        .expect("it is two instructions");
    lab.node("b")
        .unwrap()
        .within(|| {
            let index = nix::net::if_::if_nametoindex("eth0").unwrap();
            let attach = || bpf::attach_xdp(program.as_fd(), index, bpf::XDP_NATIVE);
            let link = attach().unwrap();
            let held = link.as_fd().try_clone_to_owned().unwrap();
            assert!(attach().is_err(), "there is one");
            drop(link);
            drop(attach().expect("there is none"));
            drop(held);
        })
        .unwrap();
}

#[test]
fn unfinished_checksums_are_completed_or_described() {
    if !may_run("xdp checksums") {
        return;
    }
    let lab = pair("sums");
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    for family in [4, 6] {
        let (from, to) = (lab.address_of("a", family).unwrap(), lab.address_of("b", family).unwrap());
        let mut frames = vec![];
        for keep in [false, true] {
            let uri = if keep { "xdp:eth0?checksums=keep" } else { "xdp:eth0" };
            // Neighbours must be known before the receiver takes their frames away.
            let socket = a.within(|| UdpSocket::bind((from, 0)).unwrap()).unwrap();
            let greeted = b.within(|| UdpSocket::bind((to, 0)).unwrap()).unwrap();
            greeted.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send_to(b"hello", greeted.local_addr().unwrap()).unwrap();
            greeted.recv(&mut [0; 9]).unwrap();
            let mut port = open_in(b, uri, &PortOptions::default()).unwrap();
            socket.send_to(b"the checksum of this is left to the hardware", (to, 7002)).unwrap();
            let receiver = port.receiver.as_mut().unwrap();
            within_patience(|| {
                let batch = receiver.receive(32, Wait::For(Duration::from_millis(100))).unwrap();
                for i in (0..batch.len()).filter(|&i| batch.bytes(i).ends_with(b"hardware")) {
                    frames.push((batch.bytes(i).to_vec(), batch.meta(i).offload));
                }
                frames.len() > usize::from(keep)
            });
        }
        let [(completed, nothing), (kept, described)] = &frames[..] else { panic!("{frames:?}") };
        assert!(nothing.is_complete() && !wire::repair::check(completed).wants_repair());
        let partial = described.partial.expect("described");
        assert!(wire::repair::check(kept).wants_repair());
        let mut again = kept.clone();
        wire::offload::complete(&mut again, partial).unwrap();
        assert_eq!(again.len(), completed.len());
        assert!(!wire::repair::check(&again).wants_repair());
    }
}

#[test]
fn a_super_frame_is_cut_and_an_unfinished_checksum_completed_on_the_way_out() {
    if !may_run("xdp super-frames") {
        return;
    }
    let lab = pair("super");
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    let ends = ends(&lab, 4);
    let socket = receiver(b, ends.addresses.1);
    let mut port =
        open_in(a, "xdp:eth0", &PortOptions { direction: Direction::Transmit, ..PortOptions::default() })
            .unwrap();
    let payload: Vec<u8> = (0..3000).map(|i| i as u8).collect();
    let whole = build_udp(&ends, &payload).unwrap();
    let partial = Partial { start: 34, offset: 6 };
    let segments = Segments { kind: SegmentKind::Udp, size: 1000, header: 42, ecn: false };
    let offload = Offload { partial: Some(partial), segments: Some(segments), verified: false };
    let mut frames = Frames::new(8, 4096);
    assert!(frames.push(&whole, Meta { offload, ..Meta::default() }));
    assert!(frames.push(&whole, Meta::default()), "too long");
    assert!(frames.push(&whole[..9], Meta::default()), "no frame");
    let mut unfinished = build_udp(&ends, b"unfinished").unwrap();
    let layers = wire::layers::Layers::of(&unfinished).unwrap();
    let sum = !layers.pseudo(&unfinished, 17, layers.end - 34).finish();
    unfinished[40..42].copy_from_slice(&sum.to_be_bytes());
    let offload = Offload { partial: Some(partial), ..Offload::NONE };
    assert!(frames.push(&unfinished, Meta { offload, ..Meta::default() }));
    let transmitter = port.transmitter.as_mut().unwrap();
    let mut batch = frames.batch();
    let sent = transmitter.transmit(&mut batch, &linux::port::ALL[..4], Hand::Over).unwrap();
    assert_eq!((sent.dealt, sent.refused), (4, 2));
    assert_eq!(transmitter.flush(PATIENCE).unwrap(), 0);
    let mut buffer = [0; 4096];
    for expected in payload.chunks(1000).chain([&b"unfinished"[..]]) {
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], expected);
    }
    let counters = transmitter.counters();
    assert_eq!((counters.offered, counters.accepted, counters.segments), (4, 2, 3));
    assert_eq!(counters.completed_checksums, 1);
    let drop = |name: &str| counters.drops.iter().find(|drop| drop.name == name).unwrap().count;
    assert_eq!((drop("oversize"), drop("runt")), (1, 1));
}

/// Forwards both ways until told to stop; what the transmitters counted, and of the area how much is free.
fn forwarder(lab: &Lab, uris: [&str; 2], stop: &AtomicBool) -> [linux::port::TransmitCounters; 2] {
    let x = lab.node("x").unwrap();
    let area = Area::new(2 * xdp::chunks(2048), 2048).unwrap();
    let wish = PortOptions { area: Some(area.clone()), promiscuous: true, ..PortOptions::default() };
    let [mut left, mut right] = uris.map(|uri| open_in(x, uri, &wish).unwrap());
    let (lr, lt) = (left.receiver.as_mut().unwrap(), left.transmitter.as_mut().unwrap());
    let (rr, rt) = (right.receiver.as_mut().unwrap(), right.transmitter.as_mut().unwrap());
    let one = |from: &mut dyn Receiver, to: &mut dyn Transmitter| {
        while !stop.load(Ordering::Relaxed) {
            forward(from, to, Wait::For(Duration::from_millis(10))).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| one(lr.as_mut(), rt.as_mut()));
        one(rr.as_mut(), lt.as_mut());
    });
    let counters = [lt.counters(), rt.counters()];
    drop((left, right));
    assert_eq!(area.free(), area.chunks() as usize, "every chunk came back");
    counters
}

#[test]
fn tcp_passes_a_forwarder_that_copies_nothing_with_offloads_on_and_off() {
    if !may_run("xdp forwarder") {
        return;
    }
    if std::process::Command::new("iperf3").arg("-v").output().is_err() {
        skip("xdp forwarder", "iperf3 is not installed");
        return;
    }
    for (offload, mode) in [("", "native"), ("offload off", "native"), ("offload off", "generic")] {
        let lab = wire_of(&format!("tcp{}{mode}", offload.len()), offload);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let uris = [format!("xdp:p1?mode={mode}"), format!("xdp:p2?mode={mode}")];
            let (lab, stop) = (&lab, &stop);
            let forwarding = scope.spawn(move || forwarder(lab, [&uris[0], &uris[1]], stop));
            let mut server = lab.node("b").unwrap().command("iperf3");
            let mut server = server.args(["-s", "-1"]).stdout(std::process::Stdio::null()).spawn().unwrap();
            // Port 5201 (0x1451), state 0A: it listens.
            let is_ready = within_patience(|| {
                std::thread::sleep(Duration::from_millis(5));
                let sockets = ["tcp", "tcp6"].map(|kind| {
                    let read = || std::fs::read_to_string(format!("/proc/thread-self/net/{kind}"));
                    lab.node("b").unwrap().within(read).unwrap().unwrap_or_default()
                });
                sockets.iter().flat_map(|text| text.lines()).any(|line| {
                    let words: Vec<&str> = line.split_whitespace().take(4).collect();
                    words.len() == 4 && words[1].ends_with(":1451") && words[3] == "0A"
                })
            });
            assert!(is_ready, "iperf3 does not listen");
            let mut client = lab.node("a").unwrap().command("iperf3");
            let output = client.args(["-J", "-n", "20M", "-c", "10.0.0.2"]).output().unwrap();
            let _ = server.kill();
            server.wait().unwrap();
            stop.store(true, Ordering::Relaxed);
            let [back, there] = forwarding.join().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{offload} {mode}: {text}");
            assert!(there.bytes > 15 << 20 && there.accepted > 10_000 && back.accepted > 100, "{there:?}");
            assert_eq!((there.copied, back.copied), (0, 0), "two ports over one area copy nothing");
        });
    }
}

#[test]
fn a_port_that_takes_one_stream_leaves_the_host_its_own() {
    if !may_run("only=") {
        return;
    }
    for mode in ["native", "generic"] {
        let lab = pair("only");
        let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
        let wish = PortOptions { direction: Direction::Receive, ..PortOptions::default() };
        let mut port = open_in(b, &format!("xdp:eth0?only=udp:7002&mode={mode}"), &wish).unwrap();
        assert_eq!(effective(&port.settings, "takes"), "incoming UDP datagrams to port 7002");
        let receiver = port.receiver.as_mut().unwrap();
        // Neither knows the other's address yet, so ARP and neighbour discovery must pass, then echo requests.
        let [v4, v6] = [4, 6].map(|family| lab.address_of("b", family).unwrap().to_string());
        run(a, "ping", &["-q", "-c", "2", "-i", "0.2", "-W", "5", &v4]);
        run(a, "ping", &["-6", "-q", "-c", "2", "-i", "0.2", "-W", "5", &v6]);
        for family in [4, 6] {
            let to = lab.address_of("b", family).unwrap();
            let beside = b.within(|| UdpSocket::bind((to, 7003)).unwrap()).unwrap();
            beside.set_read_timeout(Some(PATIENCE)).unwrap();
            let from =
                a.within(|| UdpSocket::bind((lab.address_of("a", family).unwrap(), 0)).unwrap()).unwrap();
            from.send_to(b"ours", (to, 7002)).unwrap();
            from.send_to(b"the host's", (to, 7003)).unwrap();
            let mut buffer = [0; 64];
            assert_eq!(beside.recv(&mut buffer).unwrap(), 10);
            let batch = receiver.receive(16, Wait::For(PATIENCE)).unwrap();
            assert_eq!(batch.len(), 1, "the datagram to 7002 and nothing else, IPv{family}");
            let bytes = batch.bytes(0);
            assert!(bytes.ends_with(b"ours") || bytes.windows(4).any(|four| four == b"ours"));
        }
        let other = open_in(b, "xdp:eth0?only=udp:7004", &wish).unwrap_err().to_string();
        assert!(other.contains("udp:7002") && other.contains("udp:7004"), "{other}");
    }
    let lab = pair("onlybad");
    let b = lab.node("b").unwrap();
    let wrong = open_in(b, "xdp:eth0?only=tcp:9", &PortOptions::default()).unwrap_err().to_string();
    assert!(wrong.contains("only=tcp:9") && wrong.contains("udp:PORT"), "{wrong}");
}

#[test]
fn the_program_that_opens_a_veth_gives_way_to_a_port_of_its_process() {
    if !may_run("both ends of a veth") {
        return;
    }
    let lab = pair("ends");
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    let (passing, note) = a.within(|| xdp::takes_redirected("eth0", "xdp:eth0")).unwrap().unwrap();
    assert!(passing.is_some(), "{note}");
    // Two switches of one process may have a cable between them.
    open_in(b, "xdp:eth0", &PortOptions::default()).unwrap();
}

#[test]
fn a_port_can_be_opened_again_at_once() {
    if !may_run("open again") {
        return;
    }
    let lab = pair("again");
    let b = lab.node("b").unwrap();
    for round in 0..20 {
        let port =
            open_in(b, "xdp:eth0", &PortOptions { direction: Direction::Receive, ..PortOptions::default() });
        port.unwrap_or_else(|problem| panic!("round {round}: {problem}"));
        // A child that is being started holds copies of descriptors that were just closed.
        drop(b.command("true").spawn().unwrap().wait());
    }
}

#[test]
fn what_cannot_be_opened_is_said_in_one_sentence() {
    if !may_run("xdp refusals") {
        return;
    }
    let lab = wire_of("refusals", "");
    let x = lab.node("x").unwrap();
    let refusal = |uri: &str| open_in(x, uri, &PortOptions::default()).unwrap_err().to_string();
    let has = |uri: &str, part: &str| {
        let text = refusal(uri);
        assert!(text.contains(part) && !text.contains('\n'), "{uri}: {text}");
    };
    has("xdp:eth9", "no interface 'eth9'");
    has("xdp:p1?queue=3", "has no receive queue 3");
    has("xdp:p1?mode=fast", "auto, native or generic");
    has("xdp:p1?frames=100", "power of two");
    has("xdp:p1?speed=9", "no setting 'speed'");
    has("xdp:p1?copy=zero", "no zero-copy");
    let held = open_in(x, "xdp:p1", &PortOptions::default()).unwrap();
    has("xdp:p1", "another AF_XDP socket has queue 0");
    drop(held);
    run(x, "ip", &["link", "set", "p1", "mtu", "3000"]);
    has("xdp:p1?chunk=2048", "chunk=4096");
    run(x, "ip", &["link", "set", "p1", "mtu", "9000"]);
    has("xdp:p1?chunk=4096", "mtu 3822");
    run(x, "ip", &["link", "set", "p1", "mtu", "1500"]);
    run(x, "ip", &["link", "set", "p1", "down"]);
    has("xdp:p1", "is down");
    run(x, "ip", &["link", "set", "p1", "up"]);
    drop(open_in(x, "xdp:p1", &PortOptions::default()).unwrap());
}

#[test]
fn a_link_that_goes_down_or_away_is_said() {
    if !may_run("xdp link down") {
        return;
    }
    let lab = wire_of("down", "");
    let x = lab.node("x").unwrap();
    let mut port = open_in(x, "xdp:p1", &PortOptions::default()).unwrap();
    let wait = Wait::For(Duration::from_millis(50));
    let mut until = |wanted: &str| {
        let receiver = port.receiver.as_mut().unwrap();
        let mut found = None;
        within_patience(|| {
            found = match receiver.receive(8, wait) {
                Ok(batch) => (!batch.is_empty() && wanted == "frame").then_some(String::new()),
                Err(error) => Some(error.to_string()),
            };
            found.is_some()
        });
        found.unwrap_or_else(|| panic!("never said: {wanted}"))
    };
    run(x, "ip", &["link", "set", "p1", "down"]);
    assert!(until("down").contains("down"));
    run(x, "ip", &["link", "set", "p1", "up"]);
    let mut from = open_in(
        lab.node("a").unwrap(),
        "xdp:eth0",
        &PortOptions { direction: Direction::Transmit, ..PortOptions::default() },
    )
    .unwrap();
    // Until the kernel has noticed the carrier it drops what is sent: somebody goes on sending.
    let came = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            while !came.load(Ordering::Relaxed) {
                send_all(&mut from, &odd_frames(3, 100));
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let said = until("frame");
        came.store(true, Ordering::Relaxed);
        sending.join().unwrap();
        assert_eq!(said, "", "frames come again");
    });
    let transmitter = port.transmitter.as_mut().unwrap();
    let mut frames = Frames::new(1, 100);
    assert!(frames.push(&odd_frames(1, 100)[0], Meta::default()));
    run(lab.node("a").unwrap(), "ip", &["link", "set", "eth0", "down"]);
    // The kernel tells the state of a link some time after it changed, so frames may be taken at first.
    let mut send =
        |transmitter: &mut dyn Transmitter| match transmitter.transmit(&mut frames.batch(), &[0], Hand::Copy)
        {
            Ok(sent) => {
                assert_eq!(sent.dealt, 1);
                false
            }
            Err(PortError::Down) => true,
            Err(other) => panic!("{other}"),
        };
    let lost = |transmitter: &mut dyn Transmitter| {
        let counters = transmitter.counters();
        (counters.offered, counters.drops.iter().map(|drop| drop.count).sum::<u64>())
    };
    let is_said = within_patience(|| {
        std::thread::sleep(Duration::from_millis(1));
        send(transmitter.as_mut())
    });
    assert!(is_said, "a link that is down is never said");
    let before = lost(transmitter.as_mut());
    assert_eq!((0..99).filter(|_| send(transmitter.as_mut())).count(), 0, "said once");
    let after = lost(transmitter.as_mut());
    assert_eq!((after.0 - before.0, after.1 - before.1), (99, 99), "offered, and lost");
    run(x, "ip", &["link", "del", "p1"]);
    let receiver = port.receiver.as_mut().unwrap();
    let gone = |receiver: &mut dyn Receiver| {
        within_patience(|| matches!(receiver.receive(8, wait), Err(PortError::Gone)))
    };
    assert!(gone(receiver.as_mut()));
    assert!(matches!(receiver.receive(8, wait), Err(PortError::Gone)));
    let gone = within_patience(|| {
        let sent = port.transmitter.as_mut().unwrap().transmit(&mut frames.batch(), &[0], Hand::Copy);
        matches!(sent, Err(PortError::Gone))
    });
    assert!(gone);
}

#[test]
fn several_receivers_share_the_queues() {
    if !may_run("xdp queues") {
        return;
    }
    let text = "node a b\nlink a:eth0 -- b:eth0 queues 2\ninterface a:eth0 address 10.0.0.1/24\n\
                interface b:eth0 address 10.0.0.2/24\n";
    let name = format!("x{}-queues", std::process::id());
    let lab = Lab::up(
        &linux::undo::journals().unwrap(),
        &Topology::parse(text, "test").unwrap(),
        &name,
        Lifetime::Ephemeral,
    )
    .unwrap();
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    let member = |index| Some(Member { index, count: 2, group: 1 });
    let mut ports = [0, 1].map(|index| {
        open_in(b, "xdp:eth0", &PortOptions { member: member(index), ..PortOptions::default() }).unwrap()
    });
    for queue in [0u32, 1] {
        let uri = format!("xdp:eth0?queue={queue}");
        let mut from =
            open_in(a, &uri, &PortOptions { direction: Direction::Transmit, ..PortOptions::default() })
                .unwrap();
        send_all(&mut from, &odd_frames(50, 500));
        let came = receive_all(&mut ports[queue as usize], 50).len();
        assert_eq!(came, 50, "queue {queue}");
    }
    let three =
        PortOptions { member: Some(Member { index: 2, count: 3, group: 1 }), ..PortOptions::default() };
    assert!(open_in(b, "xdp:eth0", &three).unwrap_err().to_string().contains("too few"));
}
