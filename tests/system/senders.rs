//! `pathlab send` through the less common ports, at a rate, interrupted, and on a terminal.

use crate::send::{FRAME, drop_of, drops, number, pair, send};
use crate::support::{PATHLAB, TestLab, command, finish, installed, is_root, run_ok, skip, start};
use crate::{alone, beside};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// Counts the test's datagrams where they come in to node b, before everything else in the kernel; false: it cannot.
fn count_at_b(lab: &TestLab) -> bool {
    let table = "table netdev seen { counter datagrams { }; chain in { type filter hook ingress device eth0 priority 0; \
                 udp dport 9 counter name datagrams; }; }";
    installed("nft") && lab.inside("b", &format!("nft '{table}'")).is_ok()
}

/// The count so far.
fn seen_by_b(lab: &TestLab) -> i64 {
    let words = lab.must("b", "nft list counter netdev seen datagrams");
    let mut words = words.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).and_then(|count| count.parse().ok()).expect("a counter")
}

/// What left has come in: a busy machine takes a while to bring it across.
fn assert_seen(lab: &TestLab, wanted: i64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while seen_by_b(lab) < wanted && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(seen_by_b(lab), wanted, "what left is what arrived");
}

#[test]
fn frames_through_xdp_arrive_and_are_counted() {
    let _turn = beside();
    let Some(lab) = pair("sendxdp") else { return };
    if !count_at_b(&lab) {
        return skip("send through xdp:", "needs nft with the netdev family");
    }
    let (report, output) = send(&lab, &["xdp:eth0", "--frame", FRAME, "--count", "5000"]);
    assert!(output.status.success(), "{report}");
    assert_eq!((number(&report, "transmitted"), number(&report, "residual"), drops(&report)), (5000, 0, 0));
    assert_eq!(number(&report, "completed"), 5000, "the kernel gave every descriptor back: {report}");
    assert_seen(&lab, 5000);
    let mode = report["settings"].as_array().unwrap().iter().find(|setting| setting["name"] == "copy");
    assert_eq!(mode.unwrap()["effective"], "copy", "{report}");
}

#[test]
fn what_a_fault_takes_is_a_named_drop_and_the_rest_arrives() {
    let _turn = beside();
    let Some(lab) = pair("sendfault") else { return };
    if !count_at_b(&lab) {
        return skip("send through fault:", "needs nft with the netdev family");
    }
    let lossy = "fault:int:eth0?lose=10%&seed=1";
    let (report, output) = send(&lab, &[lossy, "--frame", FRAME, "--count", "5000"]);
    assert_eq!(output.status.code(), Some(1), "fewer left than were asked for: {report}");
    let (left, lost) = (number(&report, "transmitted"), drop_of(&report, "fault_lost"));
    assert!((300..700).contains(&lost), "{report}");
    assert_eq!((left + lost, drops(&report), number(&report, "residual")), (5000, lost, 0), "{report}");
    assert_seen(&lab, left);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains(&format!(
        "{} of 5,000 frames were transmitted, most of the others fault_lost at port",
        record::unit::signed(left)
    )));
    let (again, _) = send(&lab, &[lossy, "--frame", FRAME, "--count", "5000"]);
    assert_eq!(drop_of(&again, "fault_lost"), lost, "the same seed, the same fate");

    let double = "fault:int:eth0?duplicate=10%&seed=1";
    let (report, output) = send(&lab, &[double, "--frame", FRAME, "--count", "5000"]);
    assert!(output.status.success(), "{report}");
    let more = number(&report, "transmitted") - 5000;
    assert!((300..700).contains(&more), "{report}");
    assert_seen(&lab, 2 * left + 5000 + more);
    assert_eq!((number(&report, "duplicated"), number(&report, "residual")), (more, 0), "{report}");
}

/// A counter of an interface, as the kernel shows it to everybody.
fn counter(lab: &TestLab, node: &str, interface: &str, name: &str) -> i64 {
    let text = lab.must(node, &format!("cat /sys/class/net/{interface}/statistics/{name}"));
    text.trim().parse().unwrap_or_else(|e| panic!("{node} {interface} {name}: {e}: {text}"))
}

#[test]
fn what_the_kernel_drops_behind_the_call_is_one_loss_at_every_port() {
    let _turn = beside();
    let Some(lab) = pair("twice") else { return };
    // The peer refuses what is longer than its MTU: the call fails, and the device counts the frame.
    lab.must("b", "ip link set eth0 mtu 1000");
    for port in ["xdp:eth0", "int:eth0", "int:eth0?bypass=on", "ring:eth0", "fault:xdp:eth0?delay=0ms"] {
        let (dropped, left) =
            (counter(&lab, "a", "eth0", "tx_dropped"), counter(&lab, "a", "eth0", "tx_packets"));
        let (report, output) = send(&lab, &[port, "--frame", FRAME, "--size", "1400", "--count", "300"]);
        let dropped = counter(&lab, "a", "eth0", "tx_dropped") - dropped;
        let left = counter(&lab, "a", "eth0", "tx_packets") - left;
        assert_eq!(output.status.code(), Some(1), "{port}: {report:#}");
        assert_eq!((dropped, left), (300, 0), "{port}: the kernel counts otherwise");
        assert_eq!(
            (drop_of(&report, "tx_dropped"), drops(&report)),
            (dropped, dropped),
            "{port}: {report:#}"
        );
        assert_eq!(
            (number(&report, "residual"), number(&report, "transmitted")),
            (0, left),
            "{port}: {report:#}"
        );
        assert!(!report["notes"].to_string().contains("other traffic"), "{port}: {report:#}");
    }
}

/// What the queueing discipline of an interface dropped, as `tc` shows it.
fn dropped_by_qdisc(lab: &TestLab, node: &str, interface: &str) -> i64 {
    let text = lab.must(node, &format!("tc -s qdisc show dev {interface}"));
    let count = text.split_once("(dropped ").and_then(|(_, rest)| rest.split(',').next()?.parse().ok());
    count.unwrap_or_else(|| panic!("no drops in {text}"))
}

#[test]
fn a_full_queue_is_one_loss_and_none_of_a_port_that_passes_it_by() {
    let _turn = alone();
    let Some(lab) = pair("fullqueue") else { return };
    lab.must("a", "tc qdisc add dev eth0 root tbf rate 1mbit burst 5kb limit 10kb");
    let ports = [("int:eth0", true), ("ring:eth0", true), ("xdp:eth0", false), ("int:eth0?bypass=on", false)];
    for (port, through) in ports {
        let (dropped, left) = (dropped_by_qdisc(&lab, "a", "eth0"), counter(&lab, "a", "eth0", "tx_packets"));
        let (report, _) = send(&lab, &[port, "--frame", FRAME, "--size", "500", "--count", "1000"]);
        let dropped = dropped_by_qdisc(&lab, "a", "eth0") - dropped;
        let left = counter(&lab, "a", "eth0", "tx_packets") - left;
        assert_eq!(dropped > 0, through, "{port}: {report:#}");
        assert_eq!(
            (drop_of(&report, "qdisc_full"), drops(&report)),
            (dropped, dropped),
            "{port}: {report:#}"
        );
        assert_eq!((number(&report, "transmitted"), left + dropped), (left, 1000), "{port}: {report:#}");
        assert_eq!((number(&report, "residual"), number(&report, "queued")), (0, 0), "{port}: {report:#}");
    }
}

#[test]
fn copies_that_a_fault_makes_are_a_line_of_their_own() {
    let _turn = beside();
    let Some(lab) = pair("copies") else { return };
    for (port, loses) in
        [("fault:int:eth0?duplicate=5%", false), ("fault:xdp:eth0?duplicate=5%&lose=10%", true)]
    {
        let left = counter(&lab, "a", "eth0", "tx_packets");
        let (report, output) = send(&lab, &[port, "--frame", FRAME, "--count", "2000"]);
        let left = counter(&lab, "a", "eth0", "tx_packets") - left;
        let (copies, lost) = (number(&report, "duplicated"), drop_of(&report, "fault_lost"));
        assert!(copies > 0 && (lost > 0) == loses, "{port}: {report:#}");
        assert_eq!(
            (left, number(&report, "transmitted")),
            (2000 + copies - lost, left),
            "{port}: {report:#}"
        );
        assert_eq!(number(&report, "residual"), 0, "{port}: {report:#}");
        // Copies do not make up for frames that are missing.
        assert_eq!(output.status.code(), Some(i32::from(loses)), "{port}: {report:#}");
    }
    let said = lab.must("a", &format!("{PATHLAB} send 'fault:int:eth0?duplicate=50%' --size 60 --count 200"));
    assert!(
        said.contains("of 200 frames and ") && said.contains(" copies that fault: made through"),
        "{said}"
    );
}

#[test]
fn an_interrupt_ends_in_time_with_the_exact_shortfall() {
    let _turn = beside();
    let Some(lab) = pair("sendint") else { return };
    if !count_at_b(&lab) {
        return skip("an interrupted send", "needs nft with the netdev family");
    }
    let mut before = 0;
    for (port, rate) in [("int:eth0", "2kpps"), ("ring:eth0", "max"), ("int:eth0", "0.5kpps")] {
        let mut tool = command("ip");
        tool.args(["netns", "exec", &lab.netns("a"), PATHLAB, "send", "--json", port, "--frame", FRAME]);
        tool.args(["--rate", rate, "--count", "1000000000"]);
        let child = start(tool);
        let begun = Instant::now();
        while seen_by_b(&lab) == before {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing was sent");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Somewhere in the middle, wherever that is.
        std::thread::sleep(Duration::from_millis(300));
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        // `finish` fails the test if it does not end in time.
        let output = finish(child, Duration::from_secs(60));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{words}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let left = number(&report, "transmitted");
        assert_eq!(
            drop_of(&report, "interrupted"),
            1_000_000_000 - left - (drops(&report) - drop_of(&report, "interrupted"))
        );
        assert_eq!((number(&report, "asked"), number(&report, "residual")), (1_000_000_000, 0), "{report}");
        assert_eq!(report["interrupted"], true);
        before += left;
        assert_seen(&lab, before);
        let left = record::unit::signed(left);
        let sentence = format!(
            "pathlab: {left} of 1,000,000,000 frames were transmitted, most of the others interrupted"
        );
        assert!(words.lines().count() == 1 && words.starts_with(&sentence), "no bar, one sentence: {words}");
    }
}

#[test]
fn a_bar_is_drawn_on_a_terminal_only() {
    let _turn = beside();
    let Some(lab) = pair("sendbar") else { return };
    if !installed("script") {
        return skip("a progress bar", "needs script (util-linux)");
    }
    let line = format!(
        "ip netns exec {} {PATHLAB} send int:eth0 --size 60 --rate 1kpps --count 3500",
        lab.netns("a")
    );
    let mut tool = command("script");
    tool.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("TERM", "xterm");
    let output = finish(start(tool), Duration::from_secs(60));
    let terminal = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{terminal}");
    assert!(terminal.contains(" % ") && terminal.contains(" left"), "no bar on a terminal: {terminal}");
    let mut tool = command("sh");
    tool.args(["-c", &line]).env("TERM", "xterm");
    let output = finish(start(tool), Duration::from_secs(60));
    let (text, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("3,500 of 3,500 frames"), "{text}{words}");
    assert!(words.is_empty() && !text.contains('\u{1b}'), "a bar where nobody looks: {words}");
}

#[test]
fn a_send_benchmark_at_a_rate_tells_how_late_frames_were() {
    let _turn = alone();
    if !is_root() || std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return skip("a benchmark of senders at a rate", "it needs root and two CPUs");
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let flags =
        ["bench", "send", "--sizes", "64", "--rates", "20k", "--seconds", "0.2", "--dir", &root, "--json"];
    let document: Value = serde_json::from_str(&run_ok(&flags)).unwrap();
    let results = document["results"].as_array().unwrap();
    let mut with_schedule = 0;
    for result in results {
        assert!(result["problem"].is_null(), "{result}");
        // Live frames know no schedule.
        let late = &result["late"];
        if late.is_null() {
            continue;
        }
        with_schedule += 1;
        assert!(late["count"].as_u64() > Some(0), "{result}");
        let quantiles = ["p50_ns", "p99_ns", "max_ns"].map(|name| late[name].as_u64().unwrap());
        assert!(quantiles.is_sorted(), "{result}");
    }
    assert!(with_schedule >= 3, "{document}");
}
