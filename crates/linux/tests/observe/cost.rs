//! What observing costs. Times are printed, never judged: the machine may be busy with other things.

use linux::observe::{Actor, Observer};
use linux::sys::clock;

use crate::world::*;

fn median(mut samples: Vec<u64>) -> u64 {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

#[test]
fn a_snapshot_of_three_nodes_is_one_short_pass() {
    let Some(world) = World::bridge() else { return };
    world.introduce("a", ("b", "10.0.0.2"));
    let begun = clock::monotonic_ns();
    let mut observer = world.observer();
    let opened = clock::monotonic_ns() - begun;
    let actor = Actor { pid: std::process::id(), role: "sender".into(), node: "a".into() };
    let snapshots: Vec<_> =
        (0..50).map(|_| observer.snapshot(std::slice::from_ref(&actor)).expect("readable")).collect();
    let quick: Vec<_> = (0..50).map(|_| cpu_of(|| drop(observer.quick().expect("readable")))).collect();
    let wall = median(snapshots.iter().map(|s| s.ended_ns - s.begun_ns).collect());
    let cpu = median(snapshots.iter().map(|s| s.cost_cpu_ns).collect());
    println!(
        "3 nodes: opened in {} us; snapshot {} us ({} us CPU); quick {} us CPU",
        opened / 1000,
        wall / 1000,
        cpu / 1000,
        median(quick) / 1000
    );
    let last = snapshots.last().expect("fifty");
    assert_eq!(last.missing, Vec::<String>::new());
    assert_eq!(last.nodes.keys().collect::<Vec<_>>(), ["a", "b", "s"]);
    assert!(last.cost_cpu_ns > 0 && last.softnet.len() == last.cpus.len() && last.processes.len() == 1);
    let port = last.nodes["s"].link("p1").expect("a port");
    let bridge = last.nodes["s"].link("br0").expect("a bridge");
    assert_eq!((port.master, port.bridge_state, port.kind.as_str()), (bridge.index, Some(3), "veth"));
    assert_eq!(
        (bridge.kind.as_str(), last.nodes["a"].neighbours[0].address.as_str()),
        ("bridge", "10.0.0.2")
    );
}

#[test]
fn a_qdisc_is_read_with_its_settings() {
    let Some(world) = World::pair() else { return };
    world.run("a", "tc qdisc add dev eth0 root tbf rate 10mbit burst 3000 limit 5000");
    world.run("b", "tc qdisc add dev eth0 root pfifo limit 7");
    let snapshot = world.observer().snapshot(&[]).expect("readable");
    let tbf = snapshot.nodes["a"].root_qdisc("eth0").expect("a root");
    assert_eq!(
        (tbf.kind.as_str(), tbf.rate_bytes_per_second, tbf.limit),
        ("tbf", Some(1_250_000), Some(5000))
    );
    let pfifo = snapshot.nodes["b"].root_qdisc("eth0").expect("a root");
    assert_eq!((pfifo.kind.as_str(), pfifo.limit), ("pfifo", Some(7)));
    assert_eq!(snapshot.nodes["a"].link("eth0").map(|link| link.qdisc.as_str()), Some("tbf"));
}

#[test]
fn a_big_namespace_is_read_whole() {
    let Some(world) = World::new(&["a"]) else { return };
    world.run("a", "ip link add br0 type bridge");
    for i in 0..60 {
        world.run("a", &format!("ip link add v{i} type veth peer name w{i}"));
        world.run("a", &format!("ip link set v{i} master br0"));
    }
    let snapshot = world.observer().snapshot(&[]).expect("readable");
    let links = &snapshot.nodes["a"].links;
    assert_eq!(links.len(), 122, "loopback, bridge, sixty pairs: more than one reply holds");
    assert!(links.iter().all(|link| link.counters.len() >= 24));
}

#[test]
fn the_host_itself_is_one_node() {
    let mut observer = Observer::host().expect("this namespace");
    let snapshot = observer.snapshot(&[]).expect("readable");
    assert!(
        snapshot.nodes["host"].link("lo").is_some()
            && snapshot.nodes["host"].protocol("Ip.InReceives").is_some()
    );
}

#[test]
fn the_witness_costs_only_where_frames_die() {
    let Some(world) = World::pair() else { return };
    world.introduce("a", ("b", "10.0.0.2"));
    let receiver = world.udp("b", "10.0.0.2", PORT);
    receiver.set_nonblocking(true).expect("a socket");
    let sender = world.udp("a", "0.0.0.0", 40000);
    let send = |port: u16| {
        (0..2000).for_each(|i| {
            let _ = sender.send_to(&[7; 64], ("10.0.0.2", port));
            if i % 50 == 0 {
                drain(&receiver);
            }
        })
    };
    let rounds = |port: u16| -> Option<(u64, u64)> {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..15 {
            without.push(cpu_of(|| send(port)));
            let _witness = world.witness()?;
            with.push(cpu_of(|| send(port)));
        }
        Some((median(without) / 2000, median(with) / 2000))
    };
    let Some((without, with)) = rounds(PORT) else { return };
    println!(
        "delivered: {without} ns per send without the witness, {with} ns with it ({:.3})",
        with as f64 / without as f64
    );
    world.nft("b", "table ip t { chain c { type filter hook input priority 0; udp dport 5201 drop; }; }");
    let Some((without, with)) = rounds(PORT) else { return };
    println!(
        "dropped, counted: {without} ns per send without, {with} ns with ({:.3})",
        with as f64 / without as f64
    );
    world.nft("b", "add rule ip t c udp dport 5202 drop");
    let Some((without, with)) = rounds(5202) else { return };
    println!(
        "dropped, not the flow: {without} ns without, {with} ns with ({:.3})",
        with as f64 / without as f64
    );
}

fn cpu_of(work: impl FnOnce()) -> u64 {
    let before = clock::thread_cpu_ns();
    work();
    clock::thread_cpu_ns() - before
}
