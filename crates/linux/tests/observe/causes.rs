//! One way to die at a time.
use crate::world::*;
use linux::sys::bpf;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

fn study(name: &str, world: Option<World>, to: &str, size: usize, plant: impl FnOnce(&World), mid: impl FnOnce(&World)) {
    let Some(world) = world else { return };
    world.introduce("a", ("b", to));
    let receiver = world.udp("b", to, PORT);
    receiver.set_nonblocking(true).unwrap();
    let any = if to.contains(':') { "::" } else { "0.0.0.0" };
    let sender = world.udp("a", any, 40000);
    plant(&world);
    let mut observer = world.observer();
    let Some(witness) = world.witness() else { return };
    settle(&mut observer, 5);
    let before = observer.snapshot(&[]).unwrap();
    let wb = witness.read().unwrap();
    let (mut ok, mut errors) = (0, std::collections::BTreeMap::new());
    let data = vec![7u8; size];
    let mut got = 0;
    let mut buf = [0u8; 65536];
    let mut send = |n: usize| {
        for _ in 0..n {
            while receiver.recv(&mut buf).is_ok() { got += 1; }
            match sender.send_to(&data, (to, PORT)) {
                Ok(_) => ok += 1,
                Err(e) => *errors.entry(e.to_string()).or_insert(0) += 1,
            }
        }
    };
    send(50);
    mid(&world);
    send(50);
    settle(&mut observer, 8);
    while receiver.recv(&mut buf).is_ok() {
        got += 1;
    }
    let after = observer.snapshot(&[]).unwrap();
    let w = witness.read().unwrap().since(&wb);
    println!("=== {name}: sent ok {ok}, errors {errors:?}, got {got}; lost {} unparsed {} {:?}", w.lost, w.unparsed, w.unparsed_details);
    for d in &w.details {
        println!("   W {} {} {:?} {:?} frames {} skbs {}", d.reason, d.node, d.interface, d.location, d.frames, d.skbs);
    }
    let c: Vec<_> = changes(&before, &after).into_iter().filter(|(n, _)| !n.contains("Octets") && !n.contains("bytes")).map(|(n, v)| format!("{n} {v:+}")).collect();
    println!("   C {}", c.join(", "));
    println!("   N {:?}", after.nodes.iter().map(|(n, s)| (n.clone(), s.neighbours.iter().map(|x| format!("{} {}", x.address, x.state)).collect::<Vec<_>>())).collect::<Vec<_>>());
    println!("   cost {} us cpu, {} us; missing {:?}", after.cost_cpu_ns / 1000, (after.ended_ns - after.begun_ns) / 1000, after.missing);
}

fn no(_: &World) {}
const P: &str = "10.0.0.2";
const R: &str = "10.0.1.2";
const V6: &str = "fd00::2";

#[test]
fn explore() {
    let _: Option<UdpSocket> = None;
    let _ = std::io::stdin().as_raw_fd();
    study("nothing", World::pair(), P, 100, no, no);
    study("rx mtu small (veth peer)", World::pair(), P, 1400, |w| w.run("b", "ip link set eth0 mtu 1000"), no);
    study("rx mtu small v6", World::pair6(), V6, 1400, |w| w.run("b", "ip link set eth0 mtu 1280"), no);
    study("bridge egress port mtu", World::bridge(), P, 1400, |w| w.run("s", "ip link set p2 mtu 1000"), no);
    study("bridge: receiver mtu", World::bridge(), P, 1400, |w| w.run("b", "ip link set eth0 mtu 1000"), no);
    study("bridge: ingress port p1 mtu", World::bridge(), P, 1400, |w| w.run("s", "ip link set p1 mtu 1000"), no);
    study("router egress mtu DF", World::router(), R, 1400, |w| w.run("r", "ip link set eth1 mtu 1000"), no);
    study("router egress mtu no DF", World::router(), R, 1400, |w| { w.run("r", "ip link set eth1 mtu 1000"); w.run("a", "sysctl -qw net.ipv4.ip_no_pmtu_disc=1") }, no);
    study("peer down", World::pair(), P, 100, no, |w| w.run("b", "ip link set eth0 down"));
    study("own down", World::pair(), P, 100, no, |w| w.run("a", "ip link set eth0 down"));
    study("bridge port p2 down", World::bridge(), P, 100, no, |w| w.run("s", "ip link set p2 down"));
    study("bridge port p1 down", World::bridge(), P, 100, no, |w| w.run("s", "ip link set p1 down"));
    study("bridge: b eth0 down", World::bridge(), P, 100, no, |w| w.run("b", "ip link set eth0 down"));
    study("bridge br0 down", World::bridge(), P, 100, no, |w| w.run("s", "ip link set br0 down"));
    study("router eth1 down", World::router(), R, 100, no, |w| w.run("r", "ip link set eth1 down"));
    study("router b eth0 down", World::router(), R, 100, no, |w| w.run("b", "ip link set eth0 down"));
    study("neigh unresolved", World::pair(), P, 100, |w| { w.run("b", "ip link set eth0 arp off"); w.run("a", "ip neigh flush all"); }, no);
    study("neigh unresolved v6", World::pair6(), V6, 100, |w| { w.run("b", "ip addr flush dev eth0"); w.run("a", "ip neigh flush all"); }, no);
    study("neigh unresolved at router", World::router(), R, 100, |w| { w.run("b", "ip link set eth0 arp off"); w.run("r", "ip neigh flush dev eth1"); }, no);
    study("rp_filter", World::pair(), P, 100, |w| {
        w.run("b", "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1");
        w.run("b", "ip route del 10.0.0.0/24 dev eth0");
    }, no);
    for (hook, topo) in [("input", 0), ("prerouting", 0), ("output", 1), ("postrouting", 1), ("forward", 2)] {
        let (world, to, node) = match topo { 0 => (World::pair(), P, "b"), 1 => (World::pair(), P, "a"), _ => (World::router(), R, "r") };
        study(&format!("nft {hook}"), world, to, 100, |w| {
            w.nft(node, &format!("table ip t {{ chain c {{ type filter hook {hook} priority 0; udp dport 5201 counter drop; }}; }}"));
        }, no);
    }
    study("nft reject input", World::pair(), P, 100, |w| w.nft("b", "table ip t { chain c { type filter hook input priority 0; udp dport 5201 counter reject; }; }"), no);
    study("nft bridge forward", World::bridge(), P, 100, |w| w.nft("s", "table bridge t { chain c { type filter hook forward priority 0; udp dport 5201 counter drop; }; }"), no);
    study("nft netdev ingress", World::pair(), P, 100, |w| w.nft("b", "table netdev t { chain c { type filter hook ingress device eth0 priority 0; udp dport 5201 counter drop; }; }"), no);
    for (node, place) in [("b", bpf::TCX_INGRESS), ("a", bpf::TCX_EGRESS)] {
        let mut link = None;
        study(&format!("tcx drop {node}"), World::pair(), P, 100, |w| link = Some(w.shoot(node, place)), no);
    }
    study("tbf limit", World::pair(), P, 1000, |w| w.run("a", "tc qdisc add dev eth0 root tbf rate 10mbit burst 3000 limit 5000"), no);
    study("tbf big frames", World::pair(), P, 1400, |w| w.run("a", "tc qdisc add dev eth0 root tbf rate 10mbit burst 1000 limit 50000"), no);
    study("bridge tbf p2", World::bridge(), P, 1000, |w| w.run("s", "tc qdisc add dev p2 root tbf rate 10mbit burst 3000 limit 5000"), no);
    study("router tbf eth1", World::router(), R, 1000, |w| w.run("r", "tc qdisc add dev eth1 root tbf rate 10mbit burst 3000 limit 5000"), no);
    study("pfifo txqueuelen", World::pair(), P, 1000, |w| {
        w.run("a", "tc qdisc add dev eth0 root handle 1: tbf rate 10mbit burst 3000 limit 500000");
        w.run("a", "tc qdisc add dev eth0 parent 1:1 pfifo limit 2");
    }, no);
    study("TTL", World::router(), R, 100, |w| w.run("a", "sysctl -qw net.ipv4.ip_default_ttl=1"), no);
    study("no route at router", World::router(), R, 100, |w| w.run("r", "ip route del 10.0.1.0/24 dev eth1"), no);
    study("blackhole at router", World::router(), R, 100, |w| w.run("r", "ip route replace blackhole 10.0.1.2/32"), no);
    study("unreachable at router", World::router(), R, 100, |w| w.run("r", "ip route replace unreachable 10.0.1.2/32"), no);
    study("no forwarding at router", World::router(), R, 100, |w| w.run("r", "sysctl -qw net.ipv4.ip_forward=0"), no);
    study("addr gone at receiver", World::pair(), P, 100, |w| w.run("b", "ip addr del 10.0.0.2/24 dev eth0"), no);
    study("wrong mac (neighbour)", World::pair(), P, 100, |w| w.run("a", "ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:99 dev eth0"), no);
    study("bridge wrong mac (neighbour)", World::bridge(), P, 100, |w| w.run("a", "ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:99 dev eth0"), no);
    study("small mtu at sender (frag)", World::pair(), P, 3000, no, no);
}
