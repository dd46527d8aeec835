//! Forwarders that get no CPU for a while: what they lose meanwhile has a name, and what they hold is waited for.

use crate::forwarders::{Bench, CROSS, drops, has_ovs, lab_text, list, measured, station};
use crate::support::{Kept, PATHLAB, TestLab, command, is_root, skip, start};
use crate::{beside, beside_for_long};
use std::time::{Duration, Instant};

/// A process that is stopped, and goes on when the test does, however that ends.
struct Stopped(u64);

impl Stopped {
    fn new(pid: u64) -> Stopped {
        signal("-STOP", pid);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("-CONT", self.0);
    }
}

fn signal(which: &str, pid: u64) {
    let status = command("kill").args([which, &pid.to_string()]).status().expect("kill");
    assert!(status.success(), "kill {which} {pid}");
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The process that forwards in node `s`.
fn forwarder(lab: &TestLab, role: &str) -> u64 {
    let programs = list(&lab.name)["programs"].clone();
    let found = programs.as_array().unwrap().iter().find(|program| program["role"] == role);
    found.and_then(|program| program["pid"].as_u64()).unwrap_or_else(|| panic!("no {role}: {programs}"))
}

/// What the kernel says that the packet sockets of a process on `p1` of node `s` have dropped; none when there are none.
/// `ss -0 -m`: `p_raw UNCONN 0 0 *:p1 * users:(("ovs-vswitchd",pid=7,fd=9)) skmem:(r0,rb212992,…,d69444)`.
fn dropped_at_sockets(lab: &TestLab, pid: u64) -> Option<u64> {
    let shown = lab.must("s", "ss -0 -m -n -p -O -H");
    let own = shown.lines().filter(|line| line.contains(":p1 ") && line.contains(&format!("pid={pid},")));
    let dropped = own.filter_map(|line| line.rsplit_once(",d")?.1.split(')').next()?.parse::<u64>().ok());
    dropped.reduce(|a, b| a + b)
}

#[test]
fn what_a_switch_did_not_read_is_named_as_the_kernel_counts_it() {
    let _turn = beside_for_long();
    if !is_root() || !has_ovs("losses in front of Open vSwitch") {
        return skip("losses in front of Open vSwitch", "it needs root and Open vSwitch");
    }
    let bench = Bench::new();
    let lab = TestLab::up(&bench.file("x.lab", &lab_text("ovs", CROSS)), "stp");
    let switch = forwarder(&lab, "ovs");
    assert_eq!(dropped_at_sockets(&lab, switch), Some(0));
    // A capture that does not read: what it loses is no loss of the path.
    let mut capture = command("ip");
    let words = ["netns", "exec", &lab.netns("s"), PATHLAB, "capture", "int:p1?buffer=2048"];
    let capture = Kept::new(start({
        capture.args(words);
        capture
    }));
    let stranger = u64::from(capture.id());
    until("the capture listens", || dropped_at_sockets(&lab, stranger).is_some());
    let _stranger = Stopped::new(stranger);

    let (before, sent) = (lab.datagrams("b"), 5000);
    let test = format!("duration 60s\ntest udp-stream size 64 count {sent} rate 500pps");
    let (record, _) = std::thread::scope(|scope| {
        let run = scope.spawn(|| measured(&bench, &lab.name, &test));
        lab.until_datagrams("b", before + 200);
        let stopped = Stopped::new(switch);
        until("the socket is full", || dropped_at_sockets(&lab, switch) >= Some(100));
        drop(stopped);
        run.join().unwrap()
    });
    let by_kernel = dropped_at_sockets(&lab, switch).unwrap();
    assert!(dropped_at_sockets(&lab, stranger) >= Some(1000), "the capture read, although it is stopped");
    let ledger = &record["tests"][0]["ledger"];
    assert_eq!(ledger["unexplained"], 0, "{ledger:#}");
    // Beside the test's frames only a few ARP requests can have come.
    let into = station(&record, "switch in p1");
    let named = drops(into);
    assert!(named.len() == 1 && (named[0].0, named[0].2) == ("socket_buffer_full", "counter"), "{into}");
    assert!((named[0].1..=named[0].1 + 10).contains(&by_kernel), "the kernel counted {by_kernel}: {into}");
    // The receiver's own socket may have had no room for what came at once.
    let lost: u64 = ledger["stations"].as_array().unwrap().iter().flat_map(drops).map(|drop| drop.1).sum();
    assert_eq!(ledger["received"].as_u64().unwrap() + lost, sent, "{ledger:#}");
    let sockets = record["tests"][0]["after"]["nodes"]["s"]["packet_sockets"].as_array().unwrap();
    let own = sockets.iter().filter(|socket| socket["owner"] == "ovs" && socket["interface"] == "p1");
    let told: u64 = own.map(|socket| socket["drops"].as_u64().unwrap()).sum();
    assert_eq!(told, by_kernel, "{sockets:?}");
}

#[test]
fn a_test_waits_for_what_a_forwarder_still_holds() {
    let _turn = beside_for_long();
    if !is_root() {
        return skip("frames held by a forwarder", "it needs root");
    }
    let bench = Bench::new();
    for (kind, ports) in [("null", "int"), ("null", "ring"), ("switch", "int"), ("switch", "ring")] {
        let ports_line = if kind == "switch" { CROSS } else { "" };
        let text = lab_text(kind, &format!("ports on s {ports}\n{ports_line}"));
        let lab = TestLab::up(&bench.file("x.lab", &text), "hld");
        let program = forwarder(&lab, kind);
        let (before, sent, count) = (lab.datagrams("b"), transmitted(&lab), 1000);
        let test = format!("duration 60s\ntest udp-stream size 64 count {count} rate 500pps");
        let (record, code) = std::thread::scope(|scope| {
            let run = scope.spawn(|| measured(&bench, &lab.name, &test));
            lab.until_datagrams("b", before + 100);
            let stopped = Stopped::new(program);
            until("all was sent", || transmitted(&lab) >= sent + count);
            // Nothing moves now, and much longer than two readings are apart; the forwarder holds hundreds of frames.
            std::thread::sleep(Duration::from_millis(1500));
            drop(stopped);
            run.join().unwrap()
        });
        let ledger = &record["tests"][0]["ledger"];
        assert_eq!(ledger["unexplained"], 0, "{kind} {ports}: {ledger:#}");
        let lost: Vec<_> = ledger["stations"].as_array().unwrap().iter().flat_map(drops).collect();
        assert!(lost.iter().all(|(name, ..)| *name != "after_end"), "{kind} {ports}: {lost:?}");
        // All came, but for what the receiver's socket had no room for when they came at once.
        let named: u64 = lost.iter().map(|(_, count, _)| count).sum();
        assert_eq!(ledger["received"].as_u64().unwrap() + named, count, "{kind} {ports}: {lost:?} {ledger}");
        assert_eq!(code, Some(0), "{kind} {ports}: {:#}", record["tests"][0]["invalid"]);
    }
}

/// A forwarder hands super-frames to the kernel without the number of their datagrams: those that die behind it are counted all the same.
#[test]
fn super_frames_of_a_forwarder_die_as_datagrams() {
    let _turn = beside();
    if !is_root() {
        return skip("super-frames behind a forwarder", "it needs root");
    }
    let bench = Bench::new();
    let text = lab_text("null", "interface s:p2 rate 5mbit limit 60kB burst 60kB\n");
    let lab = TestLab::up(&bench.file("x.lab", &text), "super");
    let test = "duration 1s\ntest udp-stream size 500 gso 20 rate 3000pps";
    let (record, _) = measured(&bench, &lab.name, test);
    let ledger = &record["tests"][0]["ledger"];
    assert_eq!(ledger["unexplained"], 0, "{ledger:#}");
    let (sent, received) = (ledger["sent"].as_u64().unwrap(), ledger["received"].as_u64().unwrap());
    let named = drops(station(&record, "qdisc p2"));
    assert!(named.len() == 1 && named[0].0 == "qdisc_full" && named[0].1 > 100, "{named:?}");
    // A forwarder that gets no CPU loses some, too.
    let lost: u64 = ledger["stations"].as_array().unwrap().iter().flat_map(drops).map(|drop| drop.1).sum();
    assert_eq!(lost, sent - received, "{ledger:#}");
    assert_eq!(ledger["witness"]["status"], "agrees", "{ledger:#}");
}

/// Frames that node `a` has put on its wire.
fn transmitted(lab: &TestLab) -> u64 {
    let text = lab.must("a", "cat /sys/class/net/eth0/statistics/tx_packets");
    text.trim().parse().expect("a counter")
}
