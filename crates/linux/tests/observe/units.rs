//! What counts a super-frame once and what counts its datagrams: the second table of `docs/counters.md`.

use std::os::fd::AsFd;

use linux::observe::WitnessCount;
use nix::sys::socket::{setsockopt, sockopt};

use crate::world::*;

/// Ten buffers of ten datagrams each.
fn send_super_frames(
    world: &World,
    plant: impl FnOnce(&World),
    merged: bool,
    buffer: usize,
) -> Option<Outcome> {
    world.introduce("a", ("b", "10.0.0.2"));
    let receiver = world.udp("b", "10.0.0.2", PORT);
    receiver.set_nonblocking(true).expect("a socket");
    if buffer > 0 {
        setsockopt(&receiver.as_fd(), sockopt::RcvBuf, &buffer).expect("a socket");
    }
    if merged {
        setsockopt(&receiver.as_fd(), sockopt::UdpGroSegment, &true).expect("Linux 5.0");
    }
    let sender = world.udp("a", "0.0.0.0", 40000);
    setsockopt(&sender.as_fd(), sockopt::UdpGsoSegment, &1000).expect("Linux 4.18");
    plant(world);
    let mut observer = world.observer();
    let witness = world.witness()?;
    settle(&mut observer);
    let before = observer.snapshot(&[]).expect("readable");
    (0..10).for_each(|_| assert_eq!(sender.send_to(&[1; 10_000], ("10.0.0.2", PORT)).expect("sent"), 10_000));
    settle(&mut observer);
    let read = drain(&receiver);
    let after = observer.snapshot(&[]).expect("readable");
    Some(Outcome { read, changes: changes(&before, &after), count: witness.read().expect("readable") })
}

struct Outcome {
    read: i64,
    changes: Vec<(String, i64)>,
    count: WitnessCount,
}

impl Outcome {
    fn all(&self, names: &[&str], expected: i64) {
        for name in names {
            assert_eq!(grew(&self.changes, name), expected, "{name} of {:?}", self.changes);
        }
    }
}

#[test]
fn a_super_frame_is_one_on_the_way_and_ten_at_the_socket() {
    let Some(world) = World::bridge() else { return };
    let pfifo = |world: &World| world.run("a", "tc qdisc add dev eth0 root pfifo");
    let Some(outcome) = send_super_frames(&world, pfifo, false, 0) else { return };
    outcome.all(&["a Udp.OutDatagrams", "a Ip.OutRequests", "a Ip.OutTransmits", "a eth0 tx_packets"], 10);
    outcome.all(
        &["s p1 rx_packets", "s p2 tx_packets", "b eth0 rx_packets", "b Ip.InReceives", "b Ip.InDelivers"],
        10,
    );
    outcome.all(&["a eth0 pfifo packets", "b IpExt.InNoECTPkts", "b Udp.InDatagrams"], 100);
    assert_eq!(outcome.read, 100);
}

#[test]
fn a_merging_socket_counts_super_frames() {
    let Some(world) = World::pair() else { return };
    let Some(outcome) = send_super_frames(&world, |_| (), true, 2304) else { return };
    outcome.all(&["b Ip.InReceives"], 10);
    let drops = grew(&outcome.changes, "b udp 5201 drops");
    assert!(drops > 0 && drops + outcome.read == 10);
    assert_eq!(outcome.count.frames("SOCKET_RCVBUFF"), 10 * drops as u64);
    assert_eq!(outcome.count.details.iter().map(|drop| drop.skbs).sum::<u64>(), drops as u64);
}

#[test]
fn a_qdisc_drops_buffers_but_the_witness_counts_datagrams() {
    let Some(world) = World::pair() else { return };
    let tbf =
        |world: &World| world.run("a", "tc qdisc add dev eth0 root tbf rate 100mbit burst 20000 limit 30000");
    let Some(outcome) = send_super_frames(&world, tbf, false, 0) else { return };
    let drops = grew(&outcome.changes, "a eth0 tbf drops");
    assert!(drops > 0);
    assert_eq!(outcome.count.frames("QDISC_DROP"), 10 * drops as u64);
    assert_eq!(grew(&outcome.changes, "a eth0 tbf packets") + 10 * drops, 100);
}

#[test]
fn a_tbf_that_cuts_super_frames_up_is_not_counted_twice() {
    let Some(world) = World::pair() else { return };
    let tbf =
        |world: &World| world.run("a", "tc qdisc add dev eth0 root tbf rate 100mbit burst 3000 limit 5000");
    let Some(outcome) = send_super_frames(&world, tbf, false, 0) else { return };
    let drops = grew(&outcome.changes, "a eth0 tbf drops");
    assert_eq!(drops + outcome.read, 100);
    assert_eq!(outcome.count.by_reason().len(), 1, "{:?}", outcome.count);
    assert_eq!(outcome.count.frames("QDISC_DROP"), drops as u64);
}

#[test]
fn a_super_frame_passes_an_mtu_that_its_datagrams_do_not_fit() {
    let Some(world) = World::pair() else { return };
    let small = |world: &World| world.run("b", "ip link set eth0 mtu 900");
    let Some(outcome) = send_super_frames(&world, small, false, 0) else { return };
    assert_eq!((outcome.read, outcome.count.details.len()), (100, 0));
}
