//! `pathlab llstat`: what it counts against bpftrace's counts of the same events, and against the interface's own counters.

use crate::routing::lab;
use crate::support::{
    Kept, PATHLAB, TestLab, again, command, finish, installed, pathlab, run, skip, start, until_it_says,
};
use crate::{alone, beside};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// Two nodes whose interfaces have names that no other lab has: bpftrace tells interfaces by their names.
const PAIR: &str = "node a b\nlink a:llsa -- b:llsb\n\
                    interface a:llsa address 10.0.0.1/24\ninterface b:llsb address 10.0.0.2/24\n";

/// Counts everything that is compared. The last probe says that all others are in place.
const SCRIPT: &str = r#"
tracepoint:napi:napi_poll /str(args->dev_name) == "llsb"/ { @polls = count(); @polled = sum(args->work);
  @full = sum(args->work == args->budget); @run = args->work == args->budget ? @run + 1 : 0; @longest = max(@run); }
tracepoint:napi:napi_poll /str(args->dev_name) == "(no_device)"/ { @backlog = count(); @backlogged = sum(args->work); }
tracepoint:net:netif_receive_skb /str(args->name) == "llsb"/ { @received = count(); }
tracepoint:net:net_dev_xmit /str(args->name) == "llsb" && args->rc == 0/ { @sent = count(); }
tracepoint:irq:softirq_entry /args->vec == 3/ { @netrx = count(); }
interval:ms:100 { printf("ready\n"); }
"#;

/// bpftrace at work; none where it cannot run, which is said.
fn bpftrace(label: &str) -> Option<Kept> {
    if !installed("bpftrace") {
        skip(label, "bpftrace is not installed");
        return None;
    }
    let mut tool = command("unshare");
    let script = "{ [ -d /sys/kernel/tracing/events ] || mount -t tracefs none /sys/kernel/tracing; } && exec bpftrace -B line -f json -e \"$0\"";
    tool.args(["--mount", "--propagation", "private", "sh", "-c", script, SCRIPT]);
    let mut child = start(tool);
    let stdout = child.stdout.as_mut().expect("captured");
    let (mut said, mut byte) = (vec![], [0]);
    while !String::from_utf8_lossy(&said).contains("ready") {
        if std::io::Read::read(stdout, &mut byte).unwrap_or(0) == 0 {
            let output = finish(child, Duration::from_secs(10));
            skip(label, &format!("bpftrace does not run here: {}", String::from_utf8_lossy(&output.stderr)));
            return None;
        }
        said.push(byte[0]);
    }
    // The rest is read at the end, from the same pipe.
    Some(Kept::new(child))
}

fn interrupt(child: Kept) -> String {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = finish(child.take(), Duration::from_secs(60));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The maps that bpftrace prints at its end.
fn counted(text: &str) -> BTreeMap<String, u64> {
    let documents = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let maps = documents.filter(|document| document["type"] == "map");
    let data = maps.flat_map(|map| map["data"].as_object().cloned().unwrap_or_default());
    data.filter_map(|(name, value)| Some((name, value.as_u64()?))).collect()
}

fn begun(arguments: &[&str]) -> Kept {
    let mut child = start(pathlab(&[&["llstat", "--json", "--quiet"], arguments].concat()));
    until_it_says(&mut child, "counting");
    Kept::new(child)
}

fn ended(child: Kept) -> Value {
    serde_json::from_str(&interrupt(child)).expect("one document")
}

/// Counts `llsb` of a lab with both programs while `work` goes on.
fn both(lab: &TestLab, label: &str, work: impl FnOnce()) -> Option<(Value, BTreeMap<String, u64>)> {
    let truth = bpftrace(label)?;
    let child = begun(&["b:llsb", "--lab", &lab.name]);
    work();
    let report = ended(child);
    Some((report, counted(&interrupt(truth))))
}

/// Events that a program was not shown.
fn lost(report: &Value, event: &str) -> u64 {
    let programs = report["cost"]["programs"].as_array().unwrap();
    let found = programs.iter().find(|one| one["event"] == event).unwrap_or_else(|| panic!("{event}"));
    found["lost"].as_u64().unwrap_or_else(|| panic!("it is not known what {event} lost"))
}

/// What differs by more than one in a hundred.
fn differing(pairs: &[(&str, u64, u64)]) -> Option<String> {
    let differs = |(_, ours, truth): &&(&str, u64, u64)| ours.abs_diff(*truth) * 100 > *truth;
    let found: Vec<String> = pairs
        .iter()
        .filter(differs)
        .map(|(what, ours, truth)| format!("{what}: {ours} of {truth}"))
        .collect();
    (!found.is_empty()).then(|| found.join(", "))
}

/// The frames that were counted are those of the interface's counters, but for events that the programs were not shown.
fn frames_are_the_counters(report: &Value, polls: &str) {
    let difference = |way: &str| report["events"][format!("{way}_difference")].as_i64().unwrap();
    assert_eq!(report["uncertainty"], 0, "all traffic is over");
    assert!(difference("receive").unsigned_abs() <= lost(report, polls), "{report:#}");
    assert!(difference("transmit").unsigned_abs() <= lost(report, "net_dev_xmit"), "{report:#}");
}

fn poller<'a>(report: &'a Value, what: &str) -> &'a Value {
    let found = report["pollers"].as_array().unwrap().iter().find(|one| one["what"] == what);
    found.unwrap_or_else(|| panic!("nobody polls as {what}: {report:#}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// A machine on which something else receives much counts its soft interrupts, too, before and after ours.
const PLAYS: usize = 3;

#[test]
fn polls_of_the_backlog_and_soft_interrupts_are_those_that_bpftrace_counts() {
    let _turn = alone();
    let Some(lab) = lab(PAIR, "llstat") else { return };
    let agreed = again::play("llstat", "backlog", PLAYS, || {
        let work = || drop(lab.must("a", "ping -q -f -c 20000 -w 50 10.0.0.2"));
        let Some((report, truth)) = both(&lab, "llstat against bpftrace, backlog", work) else {
            return (None, None);
        };
        frames_are_the_counters(&report, "netif_receive_skb");
        let softnet = &report["softnet"];
        let own = differing(&[
            ("received", number(&report["events"]["received"]), truth["@received"]),
            ("sent", number(&report["events"]["sent"]), truth["@sent"]),
        ]);
        assert_eq!(own, None, "{report:#}");
        let why = differing(&[
            ("backlog polls", number(&softnet["backlog_polls"]), truth["@backlog"]),
            ("backlog frames", number(&softnet["backlog_frames"]), truth["@backlogged"]),
            ("NET_RX", number(&softnet["net_rx"]), truth["@netrx"]),
        ]);
        // bpftrace counts before and after us, too: others' frames come then. Ours are there and back.
        let others = truth["@backlogged"] > number(&report["receive"]["frames"]) * 2 * 21 / 20;
        let why = why.map(|why| (others, why));
        let reason = why.clone().map(|(_, why)| why);
        (Some((report, why)), reason)
    });
    let Some((report, why)) = agreed else { return };
    match why {
        Some((true, why)) => skip("llstat of the whole host", &format!("others receive meanwhile: {why}")),
        why => assert_eq!(why, None, "{report:#}"),
    }
    assert!(number(&report["receive"]["frames"]) >= 20_000, "{report:#}");
    let backlog = poller(&report, "backlog");
    assert_eq!(number(&backlog["frames"]), number(&report["events"]["polled"]));
    assert_eq!(report["distributions"]["poll_frames"]["count"], backlog["polls"]);
    assert!(report["absent"]["interrupt_period_ns"].as_str().unwrap().contains("veth has no interrupt"));
    let cost = &report["cost"];
    let share = |name: &str| cost[name].as_f64().unwrap();
    // An empty program takes less than those that count, and what it takes is not theirs.
    assert!(share("empty_ns_per_run") > 0.0 && share("own_cpu_share") > 0.0, "{cost:#}");
    assert!(share("own_cpu_share") < share("cpu_share"), "{cost:#}");
}

#[test]
fn polls_of_an_interface_are_those_that_bpftrace_counts() {
    let _turn = alone();
    let Some(lab) = lab(PAIR, "llstat") else { return };
    if !installed("ethtool") || !installed("python3") {
        return skip("llstat of NAPI", "ethtool or python3 is not installed");
    }
    // Then a veth takes frames by NAPI of its own (veth_skb_is_eligible_for_gro).
    lab.must("a", "ethtool -K llsa tso off");
    lab.must("b", "ethtool -K llsb gro on");
    lab.must("a", "ethtool -K llsa tx-udp-segmentation off");
    // Datagrams of 128 segments, which the kernel cuts and hands over at once: two full polls each, on the sender's CPU.
    let bursts = "import os,socket,time\nos.sched_setaffinity(0,{0})\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
                  s.setsockopt(17,103,40)\nfor _ in range(50): s.sendto(b'x'*5120,('10.0.0.2',9)); time.sleep(0.001)";
    let work = || {
        lab.must("a", "ping -q -f -c 10000 -w 50 10.0.0.2");
        lab.must("a", &format!("python3 -c \"{bursts}\""));
    };
    let Some((report, truth)) = both(&lab, "llstat against bpftrace, NAPI", work) else { return };
    frames_are_the_counters(&report, "napi_poll");
    let napi = poller(&report, "napi");
    let sum = |word: &str| {
        let pollers = report["pollers"].as_array().unwrap().iter();
        pollers.filter(|one| one["what"] == "napi").map(|one| number(&one[word])).sum::<u64>()
    };
    let why = differing(&[
        ("polls", sum("polls"), truth["@polls"]),
        ("polled frames", sum("frames"), truth["@polled"]),
        ("received", number(&report["events"]["received"]), truth["@received"]),
        ("full polls", sum("full"), truth["@full"]),
        (
            "full polls in a row",
            number(&report["distributions"]["full_polls_in_a_row"]["max"]),
            truth["@longest"],
        ),
        ("arrivals", number(&report["distributions"]["arrival_period_ns"]["count"]), truth["@received"]),
    ]);
    assert_eq!(why, None, "{report:#}");
    assert!(truth["@longest"] >= 2, "{report:#}");
    assert!(sum("frames") >= 10_000 && napi["napi"].is_u64(), "{report:#}");
    assert_eq!(number(&report["distributions"]["poll_frames"]["count"]), sum("polls"));
}

/// Cards of this machine: nothing is sent by them for this test, so what there is may be little.
#[test]
fn interrupts_of_a_card_are_those_of_the_kernel() {
    let _turn = beside();
    if !crate::support::is_root() {
        return skip("llstat of a card", "it needs root");
    }
    let cards = std::fs::read_dir("/sys/class/net").unwrap().flatten();
    let card = cards.filter(|entry| entry.path().join("device").exists()).find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let output = run(&["llstat", &name, "--duration", "2s", "--json", "--quiet"]);
        let report: Value = serde_json::from_slice(&output.stdout).ok()?;
        (!report["interrupts"].as_array()?.is_empty()).then_some(report)
    });
    let Some(report) = card else { return skip("llstat of a card", "there is no card with interrupts") };
    let of_kernel = report["interrupts"].as_array().unwrap().iter();
    let of_kernel: u64 =
        of_kernel.filter(|one| one["role"] != "other").map(|one| number(&one["count"])).sum();
    let ours: u64 = report["pollers"].as_array().unwrap().iter().map(|one| number(&one["interrupts"])).sum();
    // The file and the programs are not read at the same time.
    let allowed = lost(&report, "irq_handler_entry") + 2 + of_kernel / 100;
    assert!(ours.abs_diff(of_kernel) <= allowed, "{ours} of {of_kernel}: {report:#}");
    let difference = report["events"]["receive_difference"].as_i64().unwrap().unsigned_abs();
    assert!(difference <= number(&report["uncertainty"]) + lost(&report, "napi_poll"), "{report:#}");
}

#[test]
fn without_permission_counters_remain_and_one_sentence_says_what_does_not() {
    let _turn = beside();
    if !installed("setpriv") || !crate::support::is_root() {
        return skip("llstat without permission", "it needs root and setpriv");
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("pathlab");
    std::fs::copy(PATHLAB, &copy).unwrap();
    for path in [folder.path(), copy.as_path()] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    }
    let mut tool = command("setpriv");
    tool.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&copy);
    tool.args(["llstat", "lo", "--duration", "300ms", "--quiet", "--json"]);
    let output = finish(start(tool), Duration::from_secs(60));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    let said: Vec<&str> = words.lines().filter(|line| line.contains("only counters")).collect();
    assert!(said.len() == 1 && said[0].contains("CAP_BPF"), "{words}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["events"].is_null() && report["cost"].is_null(), "{report:#}");
    assert!(report["receive"]["frames"].is_u64() && report["softnet"]["processed"].is_u64());
}

#[test]
fn an_interface_that_vanishes_ends_it_and_one_that_never_was_is_wrong_input() {
    let _turn = beside();
    let output = run(&["llstat", "no-such-interface"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
    let Some(lab) = lab(PAIR, "llstat") else { return };
    assert_eq!(run(&["llstat", "llsb", "--lab", &lab.name]).status.code(), Some(2));
    let child = begun(&["b:llsb", "--lab", &lab.name, "--duration", "60s", "--interval", "100ms"]);
    lab.must("b", "ip link delete llsb");
    // It looks at its end, or when it is interrupted.
    let report = ended(child);
    assert_eq!(report["ended"], "gone", "{report:#}");
    let mut words = Command::new(PATHLAB);
    words.args(["llstat", "lo", "--duration", "300ms", "--interval", "100ms"]).env("NO_COLOR", "1");
    let output = finish(start(words), Duration::from_secs(60));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("Whole host:"), "{text}");
    let wide: Vec<&str> =
        text.lines().filter(|line| line.starts_with("frames/poll") && line.len() > 80).collect();
    assert!(wide.is_empty(), "{text}");
}
