use crate::world::*;
use linux::observe::*;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use nix::sys::socket::{setsockopt, sockopt};

type Drive<'a> = &'a dyn Fn(&World, &UdpSocket, &UdpSocket) -> (u64, u64);

fn study(name: &str, world: Option<World>, to: &str, plant: &dyn Fn(&World), drive: Drive) {
    let Some(world) = world else { return };
    world.introduce("a", ("b", to));
    let receiver = world.udp("b", to, PORT);
    receiver.set_nonblocking(true).unwrap();
    let sender = world.udp("a", "0.0.0.0", 40000);
    plant(&world);
    let mut observer = world.observer();
    let Some(witness) = world.witness() else { return };
    settle(&mut observer, 5);
    let before = observer.snapshot(&[]).unwrap();
    let wb = witness.read().unwrap();
    let (ok, mut got) = drive(&world, &sender, &receiver);
    settle(&mut observer, 8);
    let mut buf = [0u8; 65536];
    while receiver.recv(&mut buf).is_ok() { got += 1; }
    let after = observer.snapshot(&[]).unwrap();
    let w: WitnessCount = witness.read().unwrap().since(&wb);
    println!("=== {name}: ok {ok}, got {got}; lost {} unparsed {} {:?}", w.lost, w.unparsed, w.unparsed_details);
    for d in &w.details {
        println!("   W {} {} {:?} {:?} frames {} skbs {}", d.reason, d.node, d.interface, d.location, d.frames, d.skbs);
    }
    let c: Vec<_> = changes(&before, &after).into_iter().filter(|(n, _)| !n.contains("Octets") && !n.contains("bytes")).map(|(n, v)| format!("{n} {v:+}")).collect();
    println!("   C {}", c.join(", "));
}

fn gso(s: &UdpSocket, to: &str, n: usize, segs: usize, size: usize) -> u64 {
    setsockopt(&s.as_fd(), sockopt::UdpGsoSegment, &(size as i32)).unwrap();
    let data = vec![1u8; segs * size];
    (0..n).filter(|_| s.send_to(&data, (to, PORT)).map_err(|e| println!("send {e}")).is_ok()).count() as u64
}

fn plain(s: &UdpSocket, to: &str, n: usize, size: usize) -> u64 {
    let data = vec![1u8; size];
    (0..n).filter(|_| s.send_to(&data, (to, PORT)).is_ok()).count() as u64
}

const P: &str = "10.0.0.2";
const R: &str = "10.0.1.2";
fn no(_: &World) {}
fn off(w: &World, node: &str, dev: &str, what: &str) {
    w.run(node, &format!("python3 /tmp/pl-observe-off.py {dev} {what}"));
}

#[test]
fn explore2() {
    study("bridge gso off p1? a seg off", World::bridge(), P, &|w| off(w, "s", "p2", "tso=0 gso=0 sg=0 txcsum=0"), &|_, s, _| (gso(s, P, 10, 10, 1000), 0));
    study("gro b, seg off at a", World::pair(), P, &|w| { off(w, "a", "eth0", "tso=0 gso=0 sg=0 txcsum=0"); off(w, "b", "eth0", "gro=1") }, &|_, s, r| { setsockopt(&r.as_fd(), sockopt::UdpGroSegment, &true).unwrap(); (gso(s, P, 10, 10, 1000), 0) });
    study("backlog", World::pair(), P, &|w| off(w, "a", "eth0", "tso=0 gso=0 sg=0 txcsum=0"), &|_, s, _| {
        let path = "/proc/sys/net/core/netdev_max_backlog";
        let old = std::fs::read_to_string(path).unwrap();
        std::fs::write(path, "30").unwrap();
        let n = gso(s, P, 5, 60, 1000);
        std::fs::write(path, old.trim()).unwrap();
        (n, 0)
    });
}
