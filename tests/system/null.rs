//! `pathlab null` from outside: a path that works through it, its own report, wrong input.

use crate::alone;
use crate::support::{PATHLAB, TestLab, command, finish, is_root, run, skip, start};
use linux::sys::process;
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
    let _turn = alone();
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

#[test]
fn ports_that_cannot_be_opened_are_explained() {
    let output = run(&["null", "ring:nowhere0", "pcap:x.pcap"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(2 | 3)) && words.contains("nowhere0"), "{words}");
    let output = run(&["null", "eth0", "mem:a"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("KIND:NAME"));
}
