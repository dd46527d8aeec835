//! One traffic, one loss, five commands: `run`, `test`, `send`, `capture` and `join` tell the same figures as the kernel.

use crate::beside;
use crate::join::{FRAME, both, join, lab, ledger};
use crate::runs::first_line;
use crate::support::{Kept, PATHLAB, TestLab, command, finish, installed, run_ok, skip, start};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Datagrams of 64 bytes: 72 with the header of UDP, 106 in a frame.
const TRAFFIC: [&str; 6] = ["--count", "2000", "--rate", "20kpps", "--size", "64"];

/// A loss at the interface of node a.
struct Loss {
    /// Its name in the ledger.
    name: &'static str,
    plant: &'static str,
    /// What the kernel counted since it was planted.
    truth: fn(&TestLab) -> u64,
    /// The exact number that each command must lose, if that is known.
    exactly: Option<u64>,
}

/// The word behind another in the output of a tool.
fn behind(text: &str, word: &str) -> u64 {
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.find(|found| *found == word);
    words.next().and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no {word} in {text}"))
}

const LOSSES: [Loss; 2] = [
    Loss {
        name: "filter_egress",
        plant: "nft 'add table netdev t; add chain netdev t c { type filter hook egress device eth0 priority 0; }; \
                add rule netdev t c udp length 72 numgen inc mod 20 == 7 counter drop'",
        truth: |lab| behind(&lab.must("a", "nft list table netdev t"), "packets"),
        exactly: Some(100),
    },
    Loss {
        name: "qdisc_full",
        plant: "tc qdisc add dev eth0 root tbf rate 10mbit burst 5kb limit 10kb",
        truth: |lab| behind(&lab.must("a", "tc -s qdisc show dev eth0"), "dropped"),
        exactly: None,
    },
];

/// Counts the datagrams that come in to node b, before everything else in its kernel but a capture.
const ARRIVALS: &str = "nft 'add table netdev seen; add chain netdev seen c { type filter hook ingress device eth0 priority 0; }; \
                        add rule netdev seen c udp length 72 counter'";

/// What a command says became of the datagrams.
#[derive(Debug, PartialEq)]
struct Figures {
    sent: u64,
    arrived: u64,
    drops: BTreeMap<String, u64>,
    residual: i64,
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value:#}"))
}

fn drops<'a>(told: impl Iterator<Item = &'a Value>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for drop in told.filter(|drop| drop["count"] != 0) {
        *sums.entry(drop["name"].as_str().unwrap().to_owned()).or_default() += number(drop, "count");
    }
    sums
}

fn of_ledger(ledger: &Value) -> Figures {
    let stations = ledger["stations"].as_array().unwrap();
    let residuals = stations.iter().map(|station| station["residual"].as_i64().unwrap().abs());
    Figures {
        sent: number(ledger, "sent"),
        arrived: number(ledger, "received"),
        drops: drops(stations.iter().flat_map(|station| station["drops"].as_array().unwrap())),
        residual: residuals.sum(),
    }
}

/// What a command tells of 2,000 datagrams, and what the kernel counted meanwhile.
fn measured<T>(lab: &TestLab, loss: &Loss, measure: impl FnOnce() -> T) -> (T, Figures) {
    let count = || ((loss.truth)(lab), behind(&lab.must("b", "nft list table netdev seen"), "packets"));
    let before = count();
    let told = measure();
    let after = count();
    let (lost, arrived) = (after.0 - before.0, after.1 - before.1);
    assert!(loss.exactly.is_none_or(|exactly| arrived == 2000 - exactly), "{}: {arrived}", loss.name);
    assert!(lost > 0, "nothing was lost: {}", loss.name);
    (told, Figures { sent: 2000, arrived, drops: [(loss.name.to_owned(), lost)].into(), residual: 0 })
}

fn of_run(lab: &TestLab, folder: &Path) -> Figures {
    let (plan, runs) = (folder.join("one.plan"), folder.join("runs").display().to_string());
    let test = "test udp-stream size 64 rate 20kpps count 2000";
    std::fs::write(&plan, format!("topology pair\npath a b\nrepetitions 1\n{test}\n")).unwrap();
    let text = run_ok(&["run", plan.to_str().unwrap(), "--lab", &lab.name, "--json", "--dir", &runs]);
    let run: Value = serde_json::from_str(&text).unwrap();
    let test = &run["tests"][0];
    assert_eq!(number(&test["sender"], "attempted"), number(&test["ledger"], "sent"));
    assert_eq!(number(&test["receiver"], "unique"), number(&test["ledger"], "received"));
    of_ledger(&test["ledger"])
}

/// Sent, arrived and lost: `test` sees no counters of the other host, and has no ledger.
fn of_test(lab: &TestLab) -> [u64; 3] {
    let in_node = |node: &str| {
        let mut tool = command("ip");
        tool.args(["netns", "exec", &lab.netns(node), PATHLAB, "--json"]);
        tool
    };
    let mut server = in_node("b");
    server.args(["serve", "--bind", "10.0.0.2"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Kept::new(server.spawn().unwrap());
    first_line(server.stdout_pipe().unwrap());
    let mut test = in_node("a");
    test.args(["test", "udp-stream", "10.0.0.2"]).args(TRAFFIC);
    let output = finish(start(test), Duration::from_secs(60));
    let words = String::from_utf8_lossy(&output.stderr);
    let tested: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {words}"));
    let (sent, arrived) = (number(&tested["sender"], "attempted"), number(&tested["receiver"], "unique"));
    [sent, arrived, number(&tested["summary"], "lost")]
}

/// What `send` and `capture` wrote, and the ledger that `join` makes of it.
fn of_halves(lab: &TestLab, folder: &Path) -> (Value, Value, Value) {
    let more = ["--count", "2000", "--rate", "20kpps", "--size", "106"];
    let halves = both(lab, folder, ("int:eth0", "ring:eth0"), FRAME, &more);
    let half = |file: &str| serde_json::from_slice::<Value>(&std::fs::read(file).unwrap()).unwrap();
    let (sent, captured) =
        (half(&halves.sent)["sent"]["report"].clone(), half(&halves.captured)["captured"].clone());
    (sent, captured, join(&halves, &[]).0)
}

fn received_by_b(lab: &TestLab) -> u64 {
    let text = lab.must("b", "cat /sys/class/net/eth0/statistics/rx_packets");
    text.trim().parse().unwrap()
}

#[test]
fn five_commands_tell_the_same_figures_of_the_same_loss() {
    let _turn = beside();
    for loss in LOSSES {
        let Some(lab) = lab("pair", "figures") else { return };
        if !installed("nft") || !installed("tc") {
            return skip("the same figures", "needs nft and tc");
        }
        lab.must("a", loss.plant);
        lab.must("b", ARRIVALS);
        let folder = tempfile::tempdir().unwrap();
        let (run, expected) = measured(&lab, &loss, || of_run(&lab, folder.path()));
        assert_eq!(run, expected, "run");
        // Its own connection passes the loss, too: only the datagrams are compared.
        let (tested, expected) = measured(&lab, &loss, || of_test(&lab));
        let Figures { sent, arrived, .. } = expected;
        assert_eq!(tested, [sent, arrived, sent - arrived], "test");

        let came = received_by_b(&lab);
        let ((sent, captured, joined), expected) = measured(&lab, &loss, || of_halves(&lab, folder.path()));
        let came = received_by_b(&lab) - came;
        assert_eq!(of_ledger(ledger(&joined)), expected, "join: {:#}", ledger(&joined));
        assert_eq!(number(&joined, "missing"), 2000 - expected.arrived);
        let frames = &sent["frames"];
        let send = Figures {
            sent: number(frames, "asked"),
            arrived: number(frames, "transmitted"),
            drops: drops(frames["drops"].as_array().unwrap().iter()),
            residual: frames["residual"].as_i64().unwrap(),
        };
        assert_eq!(send, expected, "send: {frames:#}");
        let account = &captured["account"];
        // Node b answers some that nobody listens to: a capture sees what its host sends, too.
        let both_ways = number(account, "received") + number(account, "sent");
        assert_eq!(
            (number(account, "received"), number(account, "captured")),
            (came, both_ways),
            "{account:#}"
        );
        assert_eq!((&account["residual"], number(account, "lost")), (&0.into(), 0), "{account:#}");
        let stream = &captured["census"]["streams"][0];
        let seen = ["unique", "missing"].map(|name| number(stream, name));
        assert_eq!((seen[0], came), (expected.arrived, expected.arrived), "capture: {captured:#}");
        assert!(seen[1] <= 2000 - expected.arrived, "what is lost at an end of a stream it cannot miss");
    }
}
