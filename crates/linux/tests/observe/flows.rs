//! Counters of a flow against the running kernel: exact to the frame, beside strangers, on any path.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use linux::netlink::Netlink;
use linux::observe::{Flow, FlowCounters, FlowProtocol, Witness};
use linux::sys::bpf;
use nix::sys::socket::{setsockopt, sockopt};
use record::flow::{FlowObservation, Hook, LateInterface};
use wire::message::{Flags, LENGTH, Message};

use crate::support::skip;
use crate::world::*;

const STREAM: u8 = 0xa7;

fn messages() -> Flow {
    Flow { protocol: FlowProtocol::Udp, ports: vec![PORT], stream: Some(STREAM), ends: None }
}

/// Counters of that flow; none (and a visible line) where they are not permitted.
fn counters(world: &World, flow: &Flow) -> Option<FlowCounters> {
    match FlowCounters::start(&world.borrowed(), flow) {
        Ok(counters) => Some(counters),
        Err(why) => {
            assert!(why.contains("it needs"), "{why}");
            skip("counters of a flow", &why);
            None
        }
    }
}

fn message(flags: Flags, sequence: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Message { stream: STREAM, flags, sequence, planned_ns: 0 }.write(&mut bytes);
    bytes
}

/// `a:eth0 out 100`, for all places that counted frames of that leg.
fn seen(counters: &FlowCounters, leg: &str) -> Vec<String> {
    let observation = counters.read().expect("readable");
    assert!(observation.missing.is_empty(), "{:?}", observation.missing);
    let of_interface = |one: &record::FlowInterface| {
        let word = |count: &record::FlowCount| {
            let way = if count.hook == Hook::Ingress { "in" } else { "out" };
            (count.first_ns, format!("{}:{} {way} {}", one.node, one.interface, count.frames))
        };
        one.counts.iter().filter(|count| count.leg == leg && count.frames > 0).map(word).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = observation.interfaces.iter().flat_map(of_interface).collect();
    // In the order in which the first frame passed.
    all.sort();
    all.into_iter().map(|(_, word)| word).collect()
}

fn send(socket: &UdpSocket, to: &str, port: u16, bytes: &[u8], times: usize) {
    (0..times).for_each(|_| assert_eq!(socket.send_to(bytes, (to, port)).expect("sent"), bytes.len()));
}

#[test]
fn every_place_counts_the_flow_and_no_stranger() {
    let Some(world) = World::bridge() else { return };
    world.introduce("a", ("b", "10.0.0.2"));
    let receiver = world.udp("b", "10.0.0.2", PORT);
    let sender = world.udp("a", "0.0.0.0", 40000);
    let Some(counters) = counters(&world, &messages()) else { return };
    assert_eq!(seen(&counters, "forward"), [""; 0]);
    for sequence in 0..500 {
        send(&sender, "10.0.0.2", PORT, &message(Flags::DATA, sequence, LENGTH), 1);
        // Strangers on the same way: other bytes to the same port, the same bytes of another stream, a probe.
        send(&sender, "10.0.0.2", PORT, b"foreign words, longer than a header", 1);
        let mut other = message(Flags::DATA, sequence, 64);
        other[2] ^= 1;
        send(&sender, "10.0.0.2", PORT, &other, 1);
        send(&sender, "10.0.0.2", PORT, &message(Flags::PROBE, sequence, 64), 1);
        // And the flow to another port, as a filter that rewrites it would make.
        send(&sender, "10.0.0.2", 777, &message(Flags::DATA, sequence, 100), 1);
    }
    let to_a = world.udp("b", "10.0.0.2", 40001);
    send(&to_a, "10.0.0.1", 40000, &message(Flags::RESPONSE, 0, 64), 70);
    let all = ["a:eth0 out 1000", "s:p1 in 1000", "s:p2 out 1000", "b:eth0 in 1000"];
    assert_eq!(seen(&counters, "forward"), all);
    assert_eq!(seen(&counters, "back"), ["b:eth0 out 70", "s:p2 in 70", "s:p1 out 70", "a:eth0 in 70"]);
    drop(receiver);
}

/// How many programs are at tcx ingress and egress of `eth0`.
fn programs(world: &World, node: &str) -> usize {
    let count = || {
        let index = Netlink::open().links().unwrap().iter().find(|link| link.name == "eth0").unwrap().index;
        let at = |place| bpf::programs_at(index, place).unwrap().len();
        at(bpf::TCX_INGRESS) + at(bpf::TCX_EGRESS)
    };
    world.inside(node, count)
}

/// A child that is between `fork` and `exec` has a copy of each descriptor: nothing may stay attached for it.
#[test]
fn a_program_is_detached_although_its_link_is_still_held() {
    let Some(world) = World::bridge() else { return };
    if counters(&world, &messages()).is_none() {
        return;
    }
    // `r0 = TCX_NEXT; exit`
    let program =
        bpf::load_program(bpf::PROG_SCHED_CLS, &[0xffff_ffff_0000_00b7, 0x95], c"GPL", "pathlab_test");
    let program = program.expect("it is two instructions");
    let held = world.inside("a", || {
        let index = Netlink::open().links().unwrap().iter().find(|link| link.name == "eth0").unwrap().index;
        let link = bpf::attach_to_interface(program.as_fd(), index, bpf::TCX_INGRESS).unwrap();
        let held = link.as_fd().try_clone_to_owned().unwrap();
        assert_eq!(programs(&world, "a"), 1);
        drop(link);
        held
    });
    assert_eq!(programs(&world, "a"), 0);
    drop(held);
}

#[test]
fn the_next_flow_is_counted_by_what_the_one_before_left_attached() {
    let Some(world) = World::bridge() else { return };
    world.introduce("a", ("b", "10.0.0.2"));
    let receiver = world.udp("b", "10.0.0.2", PORT);
    let sender = world.udp("a", "0.0.0.0", 40000);
    let Some(first) = counters(&world, &messages()) else { return };
    send(&sender, "10.0.0.2", PORT, &message(Flags::DATA, 0, LENGTH), 30);
    let links = first.into_links();
    // One link leads nowhere now: b's interface is another one of the same name.
    world.run("s", "ip link delete p2");
    world.veth(("s", "p2"), ("b", "eth0"));
    world.run("s", "ip link set p2 master br0");
    world.address("b", "eth0", "10.0.0.2/24");
    world.run("a", "ip neigh flush dev eth0");
    world.introduce("a", ("b", "10.0.0.2"));
    let other = Flow { stream: Some(STREAM + 1), ..messages() };
    let next = FlowCounters::start_at(&world.borrowed(), &other, links).expect("permitted a moment ago");
    send(&sender, "10.0.0.2", PORT, &message(Flags::DATA, 1, LENGTH), 40);
    let mut of_other = message(Flags::DATA, 2, LENGTH);
    Message { stream: STREAM + 1, flags: Flags::DATA, sequence: 2, planned_ns: 0 }.write(&mut of_other);
    send(&sender, "10.0.0.2", PORT, &of_other, 50);
    let all = ["a:eth0 out 50", "s:p1 in 50", "s:p2 out 50", "b:eth0 in 50"];
    assert_eq!(seen(&next, "forward"), all, "of the other flow, and nothing twice");
    assert_eq!((programs(&world, "a"), programs(&world, "b")), (2, 2), "one each way");
    drop((next, receiver));
    assert_eq!((programs(&world, "a"), programs(&world, "b")), (0, 0));
}

/// Waits until what the counters know of an interface is so; what they say of it.
fn known(
    counters: &FlowCounters,
    (node, name): (&str, &str),
    is_so: impl Fn(&record::FlowInterface, &LateInterface) -> bool,
) -> (record::FlowInterface, LateInterface) {
    for _ in 0..500 {
        let interfaces = counters.read().expect("readable").interfaces;
        let found = interfaces.into_iter().find(|one| one.node == node && one.interface == name);
        let late = found.and_then(|found| Some((found.late.clone()?, found)));
        if let Some((late, found)) = late.filter(|(late, found)| is_so(found, late)) {
            return (found, late);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{node}:{name} was not counted within five seconds");
}

#[test]
fn interfaces_that_come_later_are_counted_and_known() {
    let Some(world) = World::bridge() else { return };
    world.introduce("a", ("b", "10.0.0.2"));
    let _receiver = world.udp("b", "0.0.0.0", PORT);
    let Some(counters) = counters(&world, &messages()) else { return };
    let sender = world.udp("a", "0.0.0.0", 40000);
    send(&sender, "10.0.0.2", PORT, &message(Flags::DATA, 0, 64), 5);
    // A bridge, and two links to it.
    world.run("s", "ip link add br1 type bridge mcast_snooping 0");
    world.run("s", "ip link set br1 up");
    for (node, port, address) in [("a", "q1", "10.9.0.1/24"), ("b", "q2", "10.9.0.2/24")] {
        world.veth((node, "new"), ("s", port));
        world.run("s", &format!("ip link set {port} master br1"));
        world.address(node, "new", address);
    }
    for at in [("a", "new"), ("b", "new")] {
        known(&counters, at, |_, _| true);
    }
    for at in [("s", "q1"), ("s", "q2")] {
        // It was put there after it came.
        known(&counters, at, |one, _| one.master.as_deref() == Some("br1"));
    }
    world.introduce("a", ("b", "10.9.0.2"));
    send(&sender, "10.9.0.2", PORT, &message(Flags::DATA, 0, 64), 70);
    let old = ["a:eth0 out 5", "s:p1 in 5", "s:p2 out 5", "b:eth0 in 5"];
    let new = ["a:new out 70", "s:q1 in 70", "s:q2 out 70", "b:new in 70"];
    assert_eq!(seen(&counters, "forward"), [old, new].concat());
    let (q2, late) = known(&counters, ("s", "q2"), |_, _| true);
    assert_eq!(q2.other.map(|other| other.node), Some("b".into()));
    assert!(late.after_ns > 0 && late.sent < 70 && late.received < 70, "{late:?}");
    // One of the same name goes on where the one before ended.
    let before = [("s", "q2"), ("b", "new")].map(|at| (at, known(&counters, at, |_, _| true).1.after_ns));
    world.run("b", "ip link delete new");
    world.veth(("b", "new"), ("s", "q2"));
    world.run("s", "ip link set q2 master br1");
    world.address("b", "new", "10.9.0.2/24");
    world.run("a", "ip neigh flush dev new");
    for (at, before_ns) in before {
        known(&counters, at, |one, now| now.after_ns > before_ns && (at.0 == "b" || one.master.is_some()));
    }
    world.introduce("a", ("b", "10.9.0.2"));
    send(&sender, "10.9.0.2", PORT, &message(Flags::DATA, 0, 64), 30);
    let sum = ["a:new out 100", "s:q1 in 100", "s:q2 out 100", "b:new in 100"];
    assert_eq!(seen(&counters, "forward"), [old, sum].concat());
    // The next flow is counted there, too, by what is attached already.
    let next =
        FlowCounters::start_at(&world.borrowed(), &messages(), counters.into_links()).expect("permitted");
    send(&sender, "10.9.0.2", PORT, &message(Flags::DATA, 0, 64), 3);
    assert_eq!(seen(&next, "forward"), ["a:new out 3", "s:q1 in 3", "s:q2 out 3", "b:new in 3"]);
    assert_eq!(programs(&world, "a"), 2);
}

/// Nobody waits for the counters: what passed before they were there is no more than they say.
#[test]
fn what_passed_before_an_interface_was_counted_is_bounded() {
    let Some(world) = World::pair() else { return };
    world.introduce("a", ("b", "10.0.0.2"));
    for round in 0..5 {
        let Some(counters) = counters(&world, &messages()) else { return };
        world.veth(("a", "new"), ("b", "new"));
        world.address("a", "new", "10.9.0.1/24");
        world.address("b", "new", "10.9.0.2/24");
        let _receiver = world.udp("b", "10.9.0.2", PORT);
        let sender = world.udp("a", "0.0.0.0", 40000);
        send(&sender, "10.9.0.2", PORT, &message(Flags::DATA, 0, 64), 40);
        let [(a, late_a), (b, late_b)] = ["a", "b"].map(|node| known(&counters, (node, "new"), |_, _| true));
        let counted =
            |one: &record::FlowInterface, hook| one.count(hook, "forward").map_or(0, |count| count.frames);
        let (sent, received) = (counted(&a, Hook::Egress), counted(&b, Hook::Ingress));
        assert!(sent <= 40 && 40 - sent <= late_a.sent, "round {round}: {sent} {late_a:?}");
        assert!(received <= 40 && 40 - received <= late_b.received, "round {round}: {received} {late_b:?}");
        drop(counters);
        world.run("a", "ip link delete new");
    }
}

/// Interfaces of containers come and go under ever new names, for as long as a flow is followed.
#[test]
fn interfaces_that_come_and_go_use_up_no_room() {
    let Some(world) = World::pair() else { return };
    let Some(counters) = counters(&world, &messages()) else { return };
    for round in 0..3 {
        let all: Vec<String> = (0..30).map(|number| format!("c{round}x{number}")).collect();
        all.iter().for_each(|name| world.run("a", &format!("ip link add {name} type bridge")));
        known(&counters, ("a", &all[29]), |_, _| true);
        all.iter().for_each(|name| world.run("a", &format!("ip link delete {name}")));
    }
    let seen = counters.read().expect("readable");
    assert!(seen.missing.is_empty(), "{:?}", seen.missing);
    assert_eq!(seen.interfaces.len(), 4 + 64, "loopback and eth0 of both nodes, and the room");
}

#[test]
fn the_other_end_and_the_bridge_of_every_interface_are_known() {
    let Some(world) = World::bridge() else { return };
    let Some(counters) = counters(&world, &messages()) else { return };
    let FlowObservation { interfaces, .. } = counters.read().expect("readable");
    let at = |node: &str, name: &str| {
        interfaces.iter().find(|one| one.node == node && one.interface == name).expect("it is there").clone()
    };
    let other = |node: &str, name: &str| {
        at(node, name).other.map(|other| format!("{}:{}", other.node, other.interface))
    };
    assert_eq!(other("a", "eth0").as_deref(), Some("s:p1"));
    assert_eq!(other("s", "p2").as_deref(), Some("b:eth0"));
    assert_eq!((at("s", "p1").master.as_deref(), at("s", "p1").kind.as_str()), (Some("br0"), "veth"));
    assert_eq!(
        (at("s", "br0").master, other("s", "br0"), at("s", "br0").kind.as_str()),
        (None, None, "bridge")
    );
}

#[test]
fn drops_of_filters_and_of_other_programs_lie_between_two_counters() {
    let Some(world) = World::bridge() else { return };
    world.introduce("a", ("b", "10.0.0.2"));
    world.udp("b", "10.0.0.2", PORT);
    world.nft(
        "s",
        "table netdev t { chain c { type filter hook ingress device p1 priority 0; udp length 108 drop; }; }",
    );
    let Some(counters) = counters(&world, &messages()) else { return };
    let sender = world.udp("a", "0.0.0.0", 40000);
    send(&sender, "10.0.0.2", PORT, &message(Flags::DATA, 0, 100), 30);
    send(&sender, "10.0.0.2", PORT, &message(Flags::DATA, 0, 50), 70);
    assert_eq!(seen(&counters, "forward"), ["a:eth0 out 100", "s:p1 in 100", "s:p2 out 70", "b:eth0 in 70"]);
    // Another program at the same hook was there before, and yet stands behind ours.
    let _shot = world.shoot("b", linux::sys::bpf::TCX_INGRESS);
    let Some(counters) = self::counters(&world, &messages()) else { return };
    send(&sender, "10.0.0.2", PORT, &message(Flags::DATA, 0, 50), 11);
    assert_eq!(seen(&counters, "forward"), ["a:eth0 out 11", "s:p1 in 11", "s:p2 out 11", "b:eth0 in 11"]);
}

#[test]
fn segments_of_super_frames_are_counted_each() {
    let Some(world) = World::router() else { return };
    world.introduce("a", ("b", "10.0.1.2"));
    let _receiver = world.udp("b", "10.0.1.2", PORT);
    let sender = world.udp("a", "0.0.0.0", 40000);
    setsockopt(&sender.as_fd(), sockopt::UdpGsoSegment, &1000).expect("Linux 4.18");
    let Some(counters) = counters(&world, &messages()) else { return };
    let ten: Vec<u8> = (0..10).flat_map(|sequence| message(Flags::DATA, sequence, 1000)).collect();
    send(&sender, "10.0.1.2", PORT, &ten, 7);
    let expected = ["a:eth0 out 70", "r:eth0 in 70", "r:eth1 out 70", "b:eth0 in 70"];
    assert_eq!(seen(&counters, "forward"), expected);
    let observation = counters.read().expect("readable");
    let buffers: u64 =
        observation.interfaces.iter().flat_map(|one| &one.counts).map(|count| count.buffers).sum();
    assert_eq!(buffers, 28, "seven buffers at four places");
}

#[test]
fn fragments_are_counted_behind_their_datagram() {
    let Some(world) = World::router() else { return };
    world.introduce("a", ("b", "10.0.1.2"));
    let _receiver = world.udp("b", "10.0.1.2", PORT);
    let sender = world.udp("a", "0.0.0.0", 40000);
    let Some(counters) = counters(&world, &messages()) else { return };
    send(&sender, "10.0.1.2", PORT, &message(Flags::DATA, 0, 4000), 20);
    let stranger = world.udp("a", "0.0.0.0", 40001);
    send(&stranger, "10.0.1.2", PORT, &[1; 4000], 9);
    assert_eq!(
        seen(&counters, "forward"),
        ["a:eth0 out 20", "r:eth0 in 20", "r:eth1 out 20", "b:eth0 in 20"]
    );
    let observation = counters.read().expect("readable");
    let later: Vec<u64> = observation
        .interfaces
        .iter()
        .flat_map(|one| &one.counts)
        .map(|count| count.later_fragments)
        .collect();
    assert_eq!(later, [40; 4], "two behind each first one");
}

#[test]
fn a_flow_is_known_inside_a_tunnel_and_behind_address_translation() {
    let Some(world) = World::router() else { return };
    world.introduce("a", ("b", "10.0.1.2"));
    for (node, local, remote, inner) in
        [("a", "10.0.0.1", "10.0.1.2", "10.9.0.1/24"), ("b", "10.0.1.2", "10.0.0.1", "10.9.0.2/24")]
    {
        world.run(
            node,
            &format!("ip link add vx type vxlan id 7 local {local} remote {remote} dstport 4789 dev eth0"),
        );
        world.run(node, "ip link set vx up");
        world.address(node, "vx", inner);
    }
    world.introduce("a", ("b", "10.9.0.2"));
    world.nft(
        "b",
        "table ip t { chain c { type nat hook prerouting priority -100; udp dport 600 redirect to :601; }; }",
    );
    let _receiver = world.udp("b", "10.9.0.2", PORT);
    let sender = world.udp("a", "0.0.0.0", 40000);
    let Some(counters) = counters(&world, &messages()) else { return };
    send(&sender, "10.9.0.2", PORT, &message(Flags::DATA, 0, 64), 40);
    let expected =
        ["a:vx out 40", "a:eth0 out 40", "r:eth0 in 40", "r:eth1 out 40", "b:eth0 in 40", "b:vx in 40"];
    assert_eq!(seen(&counters, "forward"), expected);
    send(&sender, "10.0.1.2", 600, &message(Flags::DATA, 0, 64), 2);
    assert!(seen(&counters, "forward").contains(&"b:eth0 in 42".to_owned()));
}

#[test]
fn a_flow_without_messages_is_known_by_its_ports() {
    let Some(world) = World::pair6() else { return };
    world.introduce("a", ("b", "fd00::2"));
    let _receiver = world.udp("b", "fd00::2", PORT);
    let sender = world.udp("a", "::", 40000);
    let flow = Flow { protocol: FlowProtocol::Udp, ports: vec![PORT], stream: None, ends: None };
    let Some(counters) = counters(&world, &flow) else { return };
    send(&sender, "fd00::2", PORT, b"x", 5);
    send(&sender, "fd00::2", PORT + 1, b"x", 3);
    assert_eq!(seen(&counters, "forward"), ["a:eth0 out 5", "b:eth0 in 5"]);
    let back = world.udp("b", "fd00::2", 0);
    send(&back, "fd00::1", 40000, b"x", 3);
    assert_eq!(seen(&counters, "back"), [""; 0], "another port of the receiver");
}

#[test]
fn the_kernel_accepts_the_program_of_every_kind_of_flow_and_interface() {
    let Some(world) = World::pair6() else { return };
    // Frames without an Ethernet header.
    world.run("a", "ip tuntap add tun0 mode tun");
    world.run("a", "ip link set tun0 up");
    for protocol in [FlowProtocol::Udp, FlowProtocol::Tcp, FlowProtocol::Icmp, FlowProtocol::Icmp6] {
        for stream in [None, Some(STREAM)] {
            let flow = Flow { protocol, ports: vec![PORT, 9], stream, ends: None };
            let Some(counters) = counters(&world, &flow) else { return };
            assert_eq!(counters.read().expect("readable").missing, [""; 0], "{flow:?}");
        }
    }
    for words in ["udp 10.0.0.1:9 > 10.0.0.2:5201", "udp fd00::1 > [fd00::2]:9", "udp > :53", "tcp :9 > *"]
        .into_iter()
        .chain([
            "tcp 10.0.0.1 > *",
            "tcp > [fd00::2]:80",
            "icmp * > *",
            "icmp > 10.0.0.2",
            "icmp6 fd00::1 > *",
        ])
    {
        let flow: Flow = words.parse().expect(words);
        let Some(counters) = counters(&world, &flow) else { return };
        assert_eq!(counters.read().expect("readable").missing, [""; 0], "{flow}");
        assert!(Witness::start(&world.borrowed(), &flow).is_ok_and(|one| one.read().is_ok()), "{flow}");
    }
}

#[test]
fn a_flow_between_two_ends_is_neither_its_reverse_nor_that_of_a_neighbour() {
    let Some(world) = World::pair6() else { return };
    world.introduce("a", ("b", "fd00::2"));
    world.run("a", "ip addr add fd00::7/64 dev eth0 nodad");
    let _receiver = world.udp("b", "fd00::2", PORT);
    let flow = |words: &str| words.parse::<Flow>().expect("a flow");
    let Some(both) = counters(&world, &flow(&format!("udp [fd00::1]:40000 > [fd00::2]:{PORT}"))) else {
        return;
    };
    let Some(reverse) = counters(&world, &flow("udp fd00::2 > fd00::1")) else { return };
    for (from, times) in [("fd00::1", 5), ("fd00::7", 3)] {
        let sender = world.udp("a", from, 40000);
        send(&sender, "fd00::2", PORT, b"x", times);
        send(&sender, "fd00::2", PORT + 1, b"x", 2);
    }
    assert_eq!(seen(&both, "forward"), ["a:eth0 out 5", "b:eth0 in 5"]);
    assert_eq!(seen(&both, "back"), [""; 0]);
    assert_eq!(seen(&reverse, "back"), ["a:eth0 out 7", "b:eth0 in 7"]);
}

#[test]
fn echoes_are_counted_by_their_messages_and_by_their_identifier() {
    let Some(world) = World::pair() else { return };
    world.introduce("a", ("b", "10.0.0.2"));
    let flow = Flow { protocol: FlowProtocol::Icmp, ports: vec![77], stream: None, ends: None };
    let Some(by_identifier) = counters(&world, &flow) else { return };
    let flow = Flow { protocol: FlowProtocol::Icmp, ports: vec![], stream: Some(STREAM), ends: None };
    let Some(by_message) = counters(&world, &flow) else { return };
    world.run("a", "ping -q -c 3 -i 0.01 -e 77 10.0.0.2");
    world.run("a", "ping -q -c 2 -i 0.01 -e 78 -p 704ca700 -s 40 10.0.0.2");
    for leg in ["forward", "back"] {
        assert_eq!(seen(&by_identifier, leg).len(), 2, "{leg}");
        assert!(seen(&by_identifier, leg).iter().all(|place| place.ends_with(" 3")));
    }
    // What ping repeats behind its own time stamp is no message: that begins with the first byte.
    assert_eq!(seen(&by_message, "forward"), [""; 0]);
}

#[test]
fn connections_are_counted_by_the_port_of_their_receiver() {
    use std::io::{Read, Write};
    let Some(world) = World::pair() else { return };
    world.introduce("a", ("b", "10.0.0.2"));
    let flow = Flow { protocol: FlowProtocol::Tcp, ports: vec![PORT], stream: None, ends: None };
    let Some(counters) = counters(&world, &flow) else { return };
    let listener =
        world.inside("b", || std::net::TcpListener::bind(("10.0.0.2", PORT))).expect("the port is free");
    let mut sender =
        world.inside("a", || std::net::TcpStream::connect(("10.0.0.2", PORT))).expect("a way there");
    let (mut receiver, _) = listener.accept().expect("somebody connects");
    sender.write_all(&[1; 100_000]).expect("sent");
    drop(sender);
    receiver.read_to_end(&mut vec![]).expect("whole");
    let forward = seen(&counters, "forward");
    let count = |place: &str| place.rsplit(' ').next().expect("a count").parse::<u64>().expect("a number");
    assert_eq!(forward.len(), 2, "{forward:?}");
    assert_eq!(count(&forward[0]), count(&forward[1]));
    assert!(count(&forward[0]) >= 100_000 / 1460, "{forward:?}");
    let bytes: u64 =
        counters.read().expect("readable").interfaces[1].counts.iter().map(|count| count.bytes).sum();
    assert!(bytes > 100_000, "{bytes}");
}
