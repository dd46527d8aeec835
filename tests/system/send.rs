//! `pathlab send` from outside: peers count what arrives, the report says where the rest went.

use crate::capture::until;
use crate::support::{PATHLAB, TestLab, command, finish, installed, is_root, run, run_ok, skip, start};
use crate::{alone, beside};
use serde_json::Value;
use std::process::Output;
use std::time::{Duration, Instant};

/// Runs `pathlab send … --json` inside node a.
pub fn send(lab: &TestLab, arguments: &[&str]) -> (Value, Output) {
    let mut tool = command("ip");
    tool.args(["netns", "exec", &lab.netns("a"), PATHLAB, "send", "--json"]).args(arguments);
    let output = finish(start(tool), Duration::from_secs(60));
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text).unwrap_or_else(|e| {
        panic!("{arguments:?}: {e}: {text}: {}", String::from_utf8_lossy(&output.stderr));
    });
    (report, output)
}

/// A pair of nodes that say nothing by themselves.
pub fn pair(label: &str) -> Option<TestLab> {
    if !is_root() {
        skip(label, "needs root");
        return None;
    }
    Some(TestLab::up("pair", label))
}

pub fn number(report: &Value, name: &str) -> i64 {
    report["frames"][name].as_i64().unwrap_or_else(|| panic!("no {name} in {report}"))
}

pub fn drops(report: &Value) -> i64 {
    let all = report["frames"]["drops"].as_array().expect("a list");
    all.iter().map(|drop| drop["count"].as_i64().unwrap()).sum()
}

pub fn drop_of(report: &Value, name: &str) -> i64 {
    let all = report["frames"]["drops"].as_array().expect("a list");
    all.iter().filter(|drop| drop["name"] == name).map(|drop| drop["count"].as_i64().unwrap()).sum()
}

pub const FRAME: &str = "eth / ip dst=10.0.0.2 / udp dport=9 / stamp";

#[test]
fn tcpdump_reads_exactly_the_frames_that_were_sent() {
    let _turn = beside();
    let Some(lab) = pair("sendcount") else { return };
    if !installed("tcpdump") {
        return skip("send against tcpdump", "tcpdump is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("got.pcap");
    let mut tool = command("ip");
    tool.args([
        "netns",
        "exec",
        &lab.netns("b"),
        "tcpdump",
        "-i",
        "eth0",
        "-n",
        "-Z",
        "root",
        "-B",
        "65536",
        "-c",
        "10000",
    ]);
    tool.arg("-w").arg(&file).args(["udp", "port", "9"]);
    let mut dump = start(tool);
    // It opens its file when its filter stands: the last thing before it reads.
    until("tcpdump's file", || file.exists());
    let (report, output) =
        send(&lab, &["int:eth0", "--frame", FRAME, "--count", "10000", "--rate", "50kpps"]);
    assert!(output.status.success(), "{report}");
    let until = Instant::now() + Duration::from_secs(60);
    while dump.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            let _ = dump.kill();
            panic!("tcpdump did not see all frames: {report}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((number(&report, "asked"), number(&report, "transmitted")), (10000, 10000), "{report}");
    assert_eq!((number(&report, "residual"), drops(&report)), (0, 0), "{report}");
    assert_eq!(report["schedule"]["lateness"]["count"], 10000);
    let bytes = std::fs::read(&file).unwrap();
    // A pcap file: 24 bytes, then 16 bytes before each frame of 60.
    assert_eq!(bytes.len(), 24 + 10000 * (16 + 60));
    for n in 0..10000u64 {
        let frame = &bytes[24 + n as usize * 76 + 16..][..60];
        let message = wire::message::Message::read(&frame[42..]).expect("a test message");
        assert_eq!(message.sequence, n);
        assert!(!wire::repair::check(frame).wants_repair());
    }

    // What tcpdump wrote is sent again, and the interface counts it.
    let again = file.display().to_string();
    let (report, output) = send(&lab, &["int:eth0", "--from", &again, "--speed", "max", "--loop", "2"]);
    assert!(output.status.success(), "{report}");
    assert_eq!(
        (number(&report, "transmitted"), report["replay"]["wrong_checksums"].as_i64()),
        (20000, Some(0))
    );
}

#[test]
fn a_ping_with_checksum_0_is_warned_about_and_repaired() {
    let _turn = beside();
    let Some(lab) = pair("sendping") else { return };
    let folder = tempfile::tempdir().unwrap();
    let ping = "eth / ip dst=10.0.0.2 / icmp checksum=0 id=1 / payload text=\"0123456789012345678901234567890123456789\"";
    let frame = run_ok(&["send", "mem:x", "--json", "--frame", ping, "--print", "1"]);
    let frame: Value = serde_json::from_str(&frame).unwrap();
    let frame = frame["hex"].as_str().unwrap();
    let bytes: Vec<u8> =
        (0..frame.len() / 2).map(|i| u8::from_str_radix(&frame[2 * i..2 * i + 2], 16).unwrap()).collect();
    // The journal's ping.pcap, by hand: little endian, microseconds, Ethernet, two frames 10 ms apart.
    let mut file =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    for us in [0u32, 10_000] {
        for word in [1000, us, bytes.len() as u32, bytes.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(&bytes);
    }
    let path = folder.path().join("ping.pcap");
    std::fs::write(&path, file).unwrap();
    let path = path.display().to_string();
    let (report, output) = send(&lab, &["int:eth0", "--from", &path]);
    assert!(output.status.success(), "{report}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("frame 1: ICMP checksum is 0; --fix-checksums repairs"), "{notes}");
    assert_eq!(report["replay"]["span_ns"], 10_000_000);
    let (report, output) = send(&lab, &["int:eth0", "--from", &path, "--fix-checksums"]);
    assert!(output.status.success() && report["replay"]["repaired"] == 2, "{report}");
    assert_eq!(number(&report, "transmitted"), 2);
}

#[test]
fn what_a_shaper_drops_is_explained_to_the_last_frame() {
    let _turn = beside();
    let Some(lab) = pair("sendtbf") else { return };
    lab.must("a", "tc qdisc add dev eth0 root tbf rate 10mbit burst 5kb limit 10kb");
    for port in ["int:eth0", "ring:eth0"] {
        let (report, output) = send(&lab, &[port, "--frame", FRAME, "--size", "500", "--count", "2000"]);
        assert_eq!(output.status.code(), Some(1), "{report}");
        assert!(drop_of(&report, "qdisc_full") > 0, "{report}");
        let sum = number(&report, "transmitted") + drops(&report) + number(&report, "queued");
        assert_eq!((sum, number(&report, "residual")), (2000, 0), "{report}");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            words.contains("of 2,000 frames were transmitted, most of the others qdisc_full at qdisc"),
            "{words}"
        );
    }
}

/// The stamps of one clock in a report.
fn stamps_of<'a>(report: &'a Value, source: &str) -> &'a Value {
    let all = report["stamps"]["sources"].as_array().expect("a list");
    let found = all.iter().find(|one| one["source"] == source);
    found.unwrap_or_else(|| panic!("no {source} stamps in {report}"))
}

#[test]
fn every_frame_has_the_stamp_of_its_own_departure() {
    let _turn = alone();
    let Some(lab) = pair("sendstamps") else { return };
    let (report, output) = send(
        &lab,
        &["int:eth0", "--frame", FRAME, "--count", "2000", "--rate", "20kpps", "--timestamps", "software"],
    );
    assert!(output.status.success(), "{report}");
    let stamps = &report["stamps"];
    assert_eq!(
        (stamps["wanted"].as_str(), stamps["expected"].as_u64()),
        (Some("software"), Some(2000)),
        "{stamps}"
    );
    assert_eq!(
        (stamps["missing"].as_u64(), stamps["sources"].as_array().map(Vec::len)),
        (Some(0), Some(1)),
        "{stamps}"
    );
    let software = stamps_of(&report, "software");
    let counts = ["since_call", "lateness", "gap"].map(|name| software[name]["count"].as_u64());
    assert_eq!(counts, [Some(2000), Some(2000), Some(1999)], "{software}");
    // What left was planned, then handed over, then stamped.
    let (call, plan) = (software["since_call"]["min"].as_u64(), software["lateness"]["min"].as_u64());
    assert!(call > Some(1) && plan >= call, "{software}");

    // A shaper drops most frames. The kernel's numbers of frames go on over those that it drops; ours must, too:
    // a frame that was taken for a later one would have left before it was sent.
    lab.must("a", "tc qdisc add dev eth0 root tbf rate 10mbit burst 5kb limit 10kb");
    let (report, output) = send(
        &lab,
        &[
            "int:eth0",
            "--frame",
            FRAME,
            "--size",
            "500",
            "--count",
            "5000",
            "--rate",
            "10kpps",
            "--timestamps",
            "software",
        ],
    );
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(drop_of(&report, "qdisc_full") > 1000, "{report}");
    let software = stamps_of(&report, "software");
    assert_eq!(report["stamps"]["missing"].as_u64(), Some(0), "{report}");
    assert_eq!(software["count"].as_i64(), Some(number(&report, "transmitted")), "{report}");
    assert!(software["since_call"]["min"].as_u64() > Some(1), "{software}");
}

#[test]
fn stamps_that_cannot_be_had_are_said() {
    let _turn = beside();
    let Some(lab) = pair("sendnostamps") else { return };
    let one = ["--frame", FRAME, "--timestamps", "hardware"];
    let (report, output) = send(&lab, &[&["int:eth0"], &one[..]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && words.contains("no hardware stamps to be switched on"), "{words}");
    assert!(words.contains("hardware_raw is NOT delivered") && words.contains("their stamps: "), "{words}");
    assert_eq!(
        stamps_of(&report, "software")["count"].as_u64(),
        Some(1),
        "the kernel's own stamp, said to be so"
    );
    for (port, words) in [
        ("ring:eth0", "a ring: port does not tell when its frames left"),
        ("xdp:eth0", "a xdp: port does not tell when its frames left"),
        ("live:eth0", "live: does not tell when its frames left"),
        ("int:eth0?join=64", "1 where every frame is to have a stamp"),
        ("int:eth0?vnet=off", "on where every frame is to have a stamp"),
    ] {
        let mut tool = command("ip");
        tool.args(["netns", "exec", &lab.netns("a"), PATHLAB, "send", port, "--frame", FRAME]);
        let output = finish(
            start({
                tool.args(["--timestamps", "software"]);
                tool
            }),
            Duration::from_secs(60),
        );
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), told.contains(words)), (Some(2), true), "{port}: {told}");
    }
}

#[test]
fn frames_that_are_too_long_are_refused_by_name_and_the_others_leave() {
    let _turn = beside();
    let Some(lab) = pair("sendlong") else { return };
    let (report, output) =
        send(&lab, &["int:eth0", "--frame", FRAME, "--size", "{60,3000}", "--count", "100"]);
    assert_eq!(output.status.code(), Some(1), "{report}");
    let left = (number(&report, "transmitted"), drop_of(&report, "oversize"), number(&report, "residual"));
    assert_eq!(left, (50, 50, 0), "{report}");
}

#[test]
fn an_interface_that_goes_down_ends_in_a_closed_report() {
    let _turn = beside();
    let Some(lab) = pair("senddown") else { return };
    let mut tool = command("ip");
    tool.args(["netns", "exec", &lab.netns("a"), PATHLAB, "send", "--json", "int:eth0", "--frame", FRAME]);
    tool.args(["--rate", "5kpps", "--duration", "10s"]);
    let sender = start(tool);
    let left =
        || lab.must("a", "cat /sys/class/net/eth0/statistics/tx_packets").trim().parse::<u64>().unwrap();
    until("some frames", || left() > 1000);
    lab.must("a", "ip link set eth0 down");
    let output = finish(sender, Duration::from_secs(60));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), number(&report, "asked")), (Some(1), 50000), "{report}");
    let sum = number(&report, "transmitted")
        + drops(&report)
        + number(&report, "queued")
        + number(&report, "residual");
    assert_eq!(sum, 50000, "{report}");
    assert!(number(&report, "transmitted") > 0 && drop_of(&report, "link_down") > 0, "{report}");
}

#[test]
fn live_frames_leave_or_it_is_said_what_to_use() {
    let _turn = beside();
    let Some(lab) = pair("sendlive") else { return };
    lab.must("b", "ip link set eth0 up");
    let Err(why) = lab.inside("b", "ethtool -K eth0 gro on") else {
        let (report, output) = send(&lab, &["live:eth0", "--frame", FRAME, "--count", "20000"]);
        assert!(output.status.success(), "{report}");
        assert_eq!((number(&report, "asked"), number(&report, "transmitted")), (20000, 20000), "{report}");
        return;
    };
    skip("live frames", &why);
}

#[test]
fn wrong_templates_and_flags_are_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.frame");
    std::fs::write(&file, "eth\nip dst=10.0.0.300\n").unwrap();
    let file = file.display().to_string();
    let cases: [(&[&str], &str); 5] = [
        (&["send", "mem:x", &file], "bad.frame:2:4: '10.0.0.300' is not a value of dst"),
        (&["send", "mem:x", "--frame", "eth / ipx"], "--frame:1:7: there is no layer 'ipx'"),
        (&["send", "mem:x", "--size", "20"], "too short for its layers"),
        (&["send", "int:no-such-interface"], "no-such-interface"),
        (&["send", "mem:x", "--rate", "5kpps"], "--count or --duration"),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
        assert!(words.contains(expected) && words.trim().lines().count() == 1, "{arguments:?}: {words}");
    }
}
