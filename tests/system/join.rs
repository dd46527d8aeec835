//! `send --record` here, `capture --record` there, and one ledger of both: each command a process of its own.

use crate::beside;
use crate::support::{
    PATHLAB, TestLab, command, finish, installed, is_root, run, skip, start, until_it_says,
};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Output};
use std::time::Duration;

pub const FRAME: &str = "eth / ip dst=10.0.0.2 / udp dport=9 / stamp";

pub fn lab(topology: &str, label: &str) -> Option<TestLab> {
    if !is_root() {
        skip(label, "needs root");
        return None;
    }
    Some(TestLab::up(topology, label))
}

fn pathlab_in(lab: &TestLab, node: &str, arguments: &[&str]) -> Child {
    let mut tool = command("ip");
    tool.args(["netns", "exec", &lab.netns(node), PATHLAB]).args(arguments);
    start(tool)
}

/// What two commands wrote.
pub struct Halves {
    pub sent: String,
    pub captured: String,
    runs: String,
    sending: Output,
}

/// Captures at b while a sends; the capture is interrupted when the sender is done.
pub fn both(lab: &TestLab, folder: &Path, ports: (&str, &str), frame: &str, more: &[&str]) -> Halves {
    let name = |name: &str| folder.join(name).display().to_string();
    let (sent, captured, runs) = (name("sent.json"), name("captured.json"), name("runs"));
    let capture = ["capture", ports.1, "--quiet", "--record", &captured, "--node", "b"];
    let mut capture = pathlab_in(lab, "b", &capture);
    until_it_says(&mut capture, "capturing");
    let send = ["send", ports.0, "--frame", frame, "--record", &sent, "--node", "a"];
    let sending = finish(pathlab_in(lab, "a", &[&send, more].concat()), Duration::from_secs(60));
    // A ring hands over its last block when it is retired.
    std::thread::sleep(Duration::from_millis(300));
    let pid = capture.id().to_string();
    assert!(command("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = finish(capture, Duration::from_secs(60));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Halves { sent, captured, runs, sending }
}

/// `pathlab join --json` and the code that it ended with.
pub fn join(halves: &Halves, more: &[&str]) -> (Value, Option<i32>) {
    let arguments = ["--json", "join", &halves.sent, &halves.captured, "--dir", &halves.runs];
    let output = run(&[&arguments, more].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {words}"));
    (report, output.status.code())
}

pub fn ledger(report: &Value) -> &Value {
    &report["run"]["tests"][0]["ledger"]
}

/// The residual of a station.
fn residual(report: &Value, station: &str) -> i64 {
    let stations = ledger(report)["stations"].as_array().unwrap();
    let found = stations.iter().find(|s| s["station"] == station);
    found.unwrap_or_else(|| panic!("no {station} in {stations:?}"))["residual"].as_i64().unwrap()
}

/// Frames that were dropped under a name.
fn dropped(report: &Value, name: &str) -> u64 {
    let stations = ledger(report)["stations"].as_array().unwrap();
    let drops = stations.iter().flat_map(|s| s["drops"].as_array().unwrap());
    drops.filter(|drop| drop["name"] == name).map(|drop| drop["count"].as_u64().unwrap()).sum()
}

#[test]
fn two_commands_in_two_places_give_one_ledger_without_a_residual() {
    let _turn = beside();
    let Some(lab) = lab("pair", "joinclean") else { return };
    for (ports, size) in [(("int:eth0", "ring:eth0"), "60"), (("ring:eth0", "int:eth0"), "imix")] {
        let folder = tempfile::tempdir().unwrap();
        let more = ["--count", "5000", "--rate", "20kpps", "--size", size];
        let halves = both(&lab, folder.path(), ports, FRAME, &more);
        assert!(halves.sending.status.success());
        let (report, code) = join(&halves, &["--max-loss", "0"]);
        assert_eq!((code, &report["schema"]), (Some(0), &"pathlab/join/1".into()), "{}", ledger(&report));
        assert_eq!((&ledger(&report)["sent"], &ledger(&report)["received"]), (&5000.into(), &5000.into()));
        assert_eq!((&ledger(&report)["unexplained"], &report["missing"]), (&0.into(), &0.into()));
        let stations = ledger(&report)["stations"].as_array().unwrap();
        assert!(stations.iter().all(|s| s["unknown"].is_null() && s["residual"] == 0), "{stations:?}");
        assert_eq!(residual(&report, "path to eth0"), 0);
        assert_eq!((&report["one_clock"], &report["reordered"]), (&true.into(), &0.into()));
        assert_eq!(report["delay_ns"]["count"], 5000, "{}", report["delay_unknown"]);
        // It is a record like every other.
        let shown = run(&["show", "latest", "--dir", &halves.runs]);
        assert!(String::from_utf8_lossy(&shown.stdout).contains("sent 5,000, received 5,000, unexplained 0"));
        let page = folder.path().join("page.html").display().to_string();
        assert!(run(&["report", "latest", "--dir", &halves.runs, "-o", &page]).status.success());
    }
}

#[test]
fn pktgens_header_counts_the_same_way() {
    let _turn = beside();
    let Some(lab) = lab("pair", "joinpktgen") else { return };
    let frame = "eth / ip dst=10.0.0.2 / udp dport=9 / pktgen";
    let through = |port: &str| {
        let folder = tempfile::tempdir().unwrap();
        let more = ["--count", "3000", "--rate", "20kpps"];
        let halves = both(&lab, folder.path(), (port, "ring:eth0"), frame, &more);
        join(&halves, &[])
    };
    let (report, code) = through("fault:int:eth0?lose=2%&seed=3");
    let lost = dropped(&report, "send_fault_lost");
    assert!((20..150).contains(&lost), "{}", ledger(&report));
    assert_eq!((&report["missing"], code), (&lost.into(), Some(0)), "{}", ledger(&report));
    assert_eq!(
        (&report["numbering"]["header"], &report["numbering"]["first"]),
        (&"pktgen".into(), &1.into())
    );
    assert_eq!(report["delay_ns"]["count"], 3000 - lost, "{}", report["delay_unknown"]);
    // Copies that the sender made come twice; they are no messages more, and nothing is missing or unexplained.
    let (report, code) = through("fault:int:eth0?duplicate=1%&seed=3");
    let twice = report["run"]["tests"][0]["received"]["duplicates"].as_i64().unwrap();
    assert!(twice > 10 && report["missing"] == 0 && code == Some(0), "{}", ledger(&report));
    let told =
        (&ledger(&report)["sent"], &ledger(&report)["unexplained"], dropped(&report, "duplicate") as i64);
    assert_eq!(told, (&3000.into(), &0.into(), twice), "{}", ledger(&report));
    assert_eq!(ledger(&report)["stations"][0]["made"], twice, "{}", ledger(&report));
}

#[test]
fn frames_that_a_filter_of_the_sender_drops_are_counted_by_name() {
    let _turn = beside();
    let Some(lab) = lab("pair", "joinnft") else { return };
    if !installed("nft") {
        return skip("join with a filter", "nft is not installed");
    }
    lab.must(
        "a",
        "nft 'add table netdev t; add chain netdev t c { type filter hook egress device eth0 priority 0; }; \
         add rule netdev t c udp dport 9 numgen inc mod 50 == 7 counter drop'",
    );
    let folder = tempfile::tempdir().unwrap();
    let more = ["--count", "5000", "--rate", "20kpps"];
    let halves = both(&lab, folder.path(), ("int:eth0", "ring:eth0"), FRAME, &more);
    let (report, code) = join(&halves, &[]);
    assert_eq!(dropped(&report, "filter_egress"), 100, "{}", ledger(&report));
    assert_eq!(
        (&ledger(&report)["unexplained"], &report["missing"], code),
        (&0.into(), &100.into(), Some(0))
    );
    let (report, code) = join(&halves, &["--max-loss", "1%"]);
    assert_eq!((code, &report["passed"]), (Some(1), &false.into()));
}

#[test]
fn what_is_lost_between_two_ends_is_the_residual_of_the_path() {
    let _turn = beside();
    let Some(lab) = lab("bridge", "joinbetween") else { return };
    if !installed("nft") {
        return skip("join with a loss between", "nft is not installed");
    }
    lab.must(
        "s",
        "nft 'add table bridge t; add chain bridge t c { type filter hook forward priority 0; }; \
         add rule bridge t c ether type ip udp dport 9 numgen inc mod 100 == 3 drop'",
    );
    let folder = tempfile::tempdir().unwrap();
    let more = ["--count", "5000", "--rate", "20kpps"];
    let halves = both(&lab, folder.path(), ("int:eth0", "int:eth0"), FRAME, &more);
    let (report, code) = join(&halves, &[]);
    assert_eq!((code, &report["missing"]), (Some(1), &50.into()), "{}", ledger(&report));
    assert_eq!(ledger(&report)["unexplained"], 50);
    assert_eq!(residual(&report, "path to eth0"), 50, "{}", ledger(&report));
    let why = report["why"].as_str().unwrap();
    assert!(why.starts_with("50 of 5,000 frames are missing and nothing names them"), "{why}");
}

#[test]
fn halves_that_do_not_belong_together_and_names_that_are_taken_are_refused() {
    let _turn = beside();
    let Some(lab) = lab("pair", "joinwrong") else { return };
    let folder = tempfile::tempdir().unwrap();
    let halves = both(&lab, folder.path(), ("int:eth0", "int:eth0"), FRAME, &["--count", "50"]);
    let refused = |arguments: &[&str], word: &str| {
        let output = run(arguments);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
        assert!(words.contains(word) && words.trim().lines().count() == 1, "{arguments:?}: {words}");
    };
    // The same template again, when the capture was over.
    let again = folder.path().join("again.json").display().to_string();
    let send = ["send", "int:eth0", "--frame", FRAME, "--count", "50", "--record", &again];
    assert!(finish(pathlab_in(&lab, "a", &send), Duration::from_secs(60)).status.success());
    refused(&["join", &again, &halves.captured, "--dir", &halves.runs], "when this sender did not send");
    refused(&["join", &again, &halves.sent, "--dir", &halves.runs], "both halves are of senders");
    let output = finish(pathlab_in(&lab, "a", &send), Duration::from_secs(60));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && words.contains("never written over"), "{words}");
    // What failed leaves no record, and what cannot be found again is not recorded.
    let none = folder.path().join("none.json");
    let name = none.display().to_string();
    refused(&["send", "int:no-such-interface", "--record", &name], "no-such-interface");
    refused(&["send", "mem:x", "--frame", "eth / ip / udp", "--record", &name], "without a number");
    refused(&["capture", "int:lo", "--only-count", "--record", &name], "does not see the frames' numbers");
    assert!(!none.exists());
    std::fs::write(&none, "{\"schema\": 3}").unwrap();
    refused(&["join", &name, &halves.captured], "not a half of a path");
}
