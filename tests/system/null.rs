//! `pathlab null` from outside: a path that works through it, its own report, wrong input.

use crate::beside;
use crate::support::{Kept, PATHLAB, TestLab, command, finish, is_root, run, skip, start};
use linux::sys::process;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Two hosts and a node between them that forwards nothing by itself.
const WIRE: &str = "node a x b\nlink a:eth0 -- x:p1\nlink b:eth0 -- x:p2\n\
                    interface a:eth0 address 10.0.0.1/24\ninterface b:eth0 address 10.0.0.2/24\n";

fn through(lab: &TestLab, from: &str, to: &str) -> serde_json::Value {
    let mut null = command("ip");
    null.args(["netns", "exec", &lab.netns("x"), PATHLAB, "null", from, to, "--json"]);
    let null = start(null);
    let deadline = Instant::now() + Duration::from_secs(60);
    while lab.inside("a", "ping -c 1 -W 1 10.0.0.2").is_err() {
        assert!(Instant::now() < deadline, "{from} to {to}: no echo came back");
    }
    let words = lab.must("a", "ping -q -c 100 -i 0.005 -W 30 10.0.0.2");
    assert!(words.contains("100 received"), "{from} to {to}: {words}");
    // `ip netns exec` has become it.
    process::interrupt(&null).unwrap();
    let output = finish(null, Duration::from_secs(60));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one document")
}

#[test]
fn a_path_works_through_the_smallest_forwarder() {
    let _turn = beside();
    if !is_root() {
        return skip("null between ports", "it needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let topology = folder.path().join("wire.lab");
    std::fs::write(&topology, WIRE).unwrap();
    let lab = TestLab::up(&topology.display().to_string(), "null");
    for (from, to, copies) in
        [("xdp:p1", "xdp:p2", false), ("ring:p1", "ring:p2", true), ("int:p1", "int:p2", false)]
    {
        let document = through(&lab, from, to);
        assert_eq!(document["schema"], "pathlab/null/1");
        assert_eq!(document["ports"][0]["uri"], from);
        for way in document["ways"].as_array().unwrap() {
            let (received, sent) = (way["received"].as_u64().unwrap(), way["sent"].as_u64().unwrap());
            assert!(received >= 101 && sent == received, "{from} to {to}: {way}");
            assert_eq!(way["copies_per_frame"].as_f64().unwrap() > 0.0, copies, "{from} to {to}: {way}");
        }
    }
}

/// Calls the socket of a forwarder that is at work.
fn ask(path: &std::path::Path) -> serde_json::Value {
    let mut text = vec![];
    let mut stream = UnixStream::connect(path).expect("somebody listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.read_to_end(&mut text).expect("a whole answer");
    serde_json::from_slice(&text).expect("one document")
}

#[test]
fn a_forwarder_tells_its_counters_while_it_works() {
    let _turn = beside();
    if !is_root() {
        return skip("counters of null while it works", "it needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let (topology, socket) = (folder.path().join("wire.lab"), folder.path().join("counters"));
    std::fs::write(&topology, WIRE).unwrap();
    let lab = TestLab::up(&topology.display().to_string(), "nullask");
    let mut null = command("ip");
    null.args(["netns", "exec", &lab.netns("x"), PATHLAB, "null", "int:p1", "int:p2", "--counters"]);
    null.arg(&socket);
    let null = Kept::new(start(null));
    let deadline = Instant::now() + Duration::from_secs(60);
    while lab.inside("a", "ping -c 1 -W 1 10.0.0.2").is_err() {
        assert!(Instant::now() < deadline, "no echo came back");
    }
    let first = ask(&socket);
    assert_eq!((&first["schema"], &first["ways"][0]["from"]), (&"pathlab/null/1".into(), &"int:p1".into()));
    let words = lab.must("a", "ping -q -c 100 -i 0.005 -W 30 10.0.0.2");
    assert!(words.contains("100 received"), "{words}");
    let second = ask(&socket);
    for way in 0..2 {
        let moved = |field: &str| {
            let count = |document: &serde_json::Value| document["ways"][way][field].as_u64().unwrap();
            count(&second) - count(&first)
        };
        // Beside the 100 there may be ARP.
        assert!((100..110).contains(&moved("received")), "{first} {second}");
        assert_eq!(moved("received"), moved("sent"), "{first} {second}");
        assert!(moved("received_bytes") >= 100 * 98, "{first} {second}");
    }
    // A second forwarder does not take the socket of one that answers.
    let other = run(&["null", "mem:x", "mem:y", "--counters", &socket.display().to_string()]);
    assert_eq!(other.status.code(), Some(2), "{}", String::from_utf8_lossy(&other.stderr));
    process::interrupt(&null).unwrap();
    let output = finish(null.take(), Duration::from_secs(60));
    assert!(output.status.success() && !socket.exists(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn ports_that_cannot_be_opened_are_explained() {
    let output = run(&["null", "ring:nowhere0", "pcap:x.pcap"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(2 | 3)) && words.contains("nowhere0"), "{words}");
    let output = run(&["null", "eth0", "mem:a"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("KIND:NAME"));
}
