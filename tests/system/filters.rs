//! What a capture keeps: filters and VLAN tags against tcpdump, several threads in one file, clocks that are not there,
//! a reader that goes away.

use crate::beside;
use crate::capture::{able, capture, interrupt, report, until};
use crate::support::{PATHLAB, TestLab, command, finish, installed, skip, start, until_it_says};
use serde_json::Value;
use std::path::Path;
use std::process::Child;
use std::time::Duration;
use wire::pcap::{Item, Reader, Step};

/// Runs `pathlab send` in node a, which must send all of it.
fn send(lab: &TestLab, frame: &str, arguments: &str) {
    lab.must("a", &format!("{PATHLAB} --json send int:eth0 --frame '{frame}' {arguments}"));
}

/// tcpdump inside node b, writing to a file; returns when it sees every frame.
fn tcpdump(lab: &TestLab, file: &Path, filter: &str) -> Child {
    let mut tool = command("ip");
    tool.args(["netns", "exec", &lab.netns("b"), "tcpdump", "-i", "eth0", "-Z", "root", "-B", "16384", "-U"]);
    tool.args(["--immediate-mode", "-Q", "in", "-w"]).arg(file).arg(filter);
    let child = start(tool);
    // The last thing before it reads.
    until("tcpdump's file", || file.exists());
    child
}

/// How many frames of a file tcpdump lets pass.
fn counted(file: &Path, filter: &str) -> u64 {
    let mut tool = command("tcpdump");
    tool.args(["-nn", "-r"]).arg(file).arg(filter);
    let output = finish(start(tool), Duration::from_secs(60));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// How many frames a file has by now that is being written.
fn so_far(file: &Path) -> u64 {
    let bytes = std::fs::read(file).unwrap();
    let (mut reader, mut at, mut frames) = (Reader::new(), 0, 0);
    while let Ok(Step::Item { length, item }) = reader.step(&bytes[at..]) {
        frames += u64::from(matches!(item, Item::Frame(_)));
        at += length;
    }
    frames
}

/// Frames by tag: template, how many.
const TAGGED: [(&str, u64); 5] = [
    ("eth / ip dst=10.0.0.2 / udp dport=9", 30),
    ("eth / vlan id=5 / ip dst=10.0.0.2 / udp dport=9", 40),
    ("eth / vlan id=6 / ip dst=10.0.0.2 / udp dport=9", 20),
    ("eth / vlan id=5 / ip dst=10.0.0.2 / tcp dport=9", 10),
    ("eth type=0x88a8 / vlan id=7 type=0x8100 / vlan id=5 / ip dst=10.0.0.2 / udp dport=9", 7),
];

/// Filters, and how many of the frames above they want: as they are on the wire, tags included.
const WANTED: [(&str, u64); 6] = [
    ("vlan 5 and udp", 40),
    ("udp", 30),
    ("vlan", 77),
    ("vlan 5 and tcp", 10),
    ("vlan 7 and vlan 5 and udp", 7),
    ("udp or (vlan 5 and tcp)", 40),
];

#[test]
fn filters_judge_tagged_frames_as_they_are_on_the_wire() {
    let _turn = beside();
    if !able("filters and VLAN tags") || !installed("tcpdump") {
        return;
    }
    let lab = TestLab::up("pair", "vlan");
    let folder = tempfile::tempdir().unwrap();
    let (all, live) = (folder.path().join("all.pcap"), folder.path().join("live.pcap"));
    let peers = [tcpdump(&lab, &all, ""), tcpdump(&lab, &live, "vlan 5 and udp")];
    // The kernel takes the tag out before its filters run; the port puts it back. Both kinds of socket, all filters.
    let mut captures = vec![];
    for kind in ["int", "ring"] {
        for (filter, expected) in WANTED {
            let arguments = [&format!("{kind}:eth0"), "--incoming", "--quiet", "-f", filter];
            captures.push((kind, filter, expected, capture(&lab, "b", &arguments)));
        }
    }
    for (frame, count) in TAGGED {
        send(&lab, frame, &format!("--count {count} --rate 1kpps"));
    }
    // tcpdump loses what it has not read when it is interrupted, and it is the last to have read everything: what it
    // has, the sockets of the others have.
    let sum: u64 = TAGGED.iter().map(|(_, count)| count).sum();
    until("tcpdump has all frames", || so_far(&all) >= sum && so_far(&live) >= 40);
    captures.iter().for_each(|(.., child)| interrupt(child));
    peers.iter().for_each(interrupt);
    for peer in peers {
        finish(peer, Duration::from_secs(60));
    }
    assert_eq!(counted(&live, ""), 40, "tcpdump itself, live");
    for (kind, filter, expected, child) in captures {
        let told = report(child);
        assert_eq!(told["captured"], expected, "{kind}: '{filter}': {told}");
        assert_eq!(counted(&all, filter), expected, "tcpdump over the same frames: '{filter}'");
    }
}

/// Time and bytes of every frame of a file, in its order.
fn frames_of(file: &Path) -> Vec<(u64, Vec<u8>)> {
    let bytes = std::fs::read(file).unwrap();
    let (mut reader, mut at, mut frames) = (Reader::new(), 0, vec![]);
    while let Step::Item { length, item } = reader.step(&bytes[at..]).unwrap() {
        if let Item::Frame(frame) = item {
            frames.push((frame.time_ns.unwrap(), bytes[at..at + length][frame.bytes.clone()].to_vec()));
        }
        at += length;
    }
    assert_eq!(at, bytes.len());
    frames
}

#[test]
fn frames_of_several_threads_are_merged_into_one_file_by_time() {
    let _turn = beside();
    if !able("a merged capture") {
        return;
    }
    let lab = TestLab::up("pair", "merge");
    let folder = tempfile::tempdir().unwrap();
    for kind in ["int", "ring"] {
        let file = folder.path().join(format!("{kind}.pcapng"));
        let uri = format!("{kind}:eth0?fanout=lb");
        let file_text = file.display().to_string();
        let arguments =
            [&uri, "--threads", "2", "--incoming", "--quiet", "-f", "udp port 9", "-w", &file_text];
        let child = capture(&lab, "b", &arguments);
        let before = lab.datagrams("b");
        send(&lab, "eth / ip dst=10.0.0.2 / udp dport=9 / stamp", "--count 20000 --rate 20kpps");
        lab.until_datagrams("b", before + 20_000);
        interrupt(&child);
        let told = report(child);
        assert_eq!((&told["captured"], &told["written"]["frames"]), (&20000.into(), &20000.into()), "{told}");
        let shares = told["threads"].as_array().unwrap();
        // In turn: neither thread has all of it.
        assert!(shares.len() == 2 && shares.iter().all(|share| share.as_u64() > Some(5000)), "{shares:?}");
        let frames = frames_of(&file);
        let mut sequences: Vec<u64> = frames
            .iter()
            .map(|(_, bytes)| wire::message::Message::read(&bytes[42..]).expect("a test message").sequence)
            .collect();
        let (mut newest, mut late) = (0, 0);
        for (time, _) in &frames {
            late += u64::from(*time < newest);
            newest = newest.max(*time);
        }
        assert_eq!(told["written"]["disordered"], late, "what came too late is counted: {told}");
        assert!(late < 5000, "{late} of 20000 frames out of order: nothing was merged");
        if late == 0 {
            assert!(sequences.is_sorted(), "{kind}: one sender, one order");
        }
        sequences.sort_unstable();
        assert!(sequences.iter().copied().eq(0..20000), "{kind}: every frame once");
    }
}

#[test]
fn every_rotated_file_ends_with_statistics_that_peers_read() {
    let _turn = beside();
    if !able("rotated files") {
        return;
    }
    let lab = TestLab::up("pair", "rotate");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("part.pcapng").display().to_string();
    let arguments =
        ["ring:eth0", "--incoming", "--quiet", "-f", "udp port 9", "-w", &path, "--rotate-size", "50k"];
    let child = capture(&lab, "b", &arguments);
    let before = lab.datagrams("b");
    send(&lab, "eth / ip dst=10.0.0.2 / udp dport=9 / stamp", "--count 3000 --rate 10kpps --size 200");
    lab.until_datagrams("b", before + 3000);
    interrupt(&child);
    let told = report(child);
    let files: Vec<&str> =
        told["written"]["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    assert!(files.len() > 5 && told["written"]["frames"] == 3000, "{told}");
    if !installed("capinfos") {
        return skip("statistics of rotated files", "capinfos is not installed");
    }
    let mut sum = 0;
    for file in files {
        let mut tool = command("capinfos");
        tool.args(["-M", file]);
        let output = finish(start(tool), Duration::from_secs(60));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = |name: &str| {
            let found = text.lines().map(str::trim).find_map(|line| line.strip_prefix(name));
            found.and_then(|rest| rest.trim_start_matches([' ', '=', ':']).trim().parse::<u64>().ok())
        };
        assert_eq!(line("Number of stat entries"), Some(1), "{file}: {text}");
        sum += line("Number of packets").unwrap_or_else(|| panic!("{file}: {text}"));
    }
    assert_eq!(sum, 3000);
}

#[test]
fn a_veth_says_that_it_has_no_hardware_clock() {
    let _turn = beside();
    if !able("hardware stamps on a veth") {
        return;
    }
    // The kernel stamps frames while somebody asks for stamps, and begins a moment after the first has asked (net_enable_timestamp
    // leaves it to a work queue): this socket asks long before the frames.
    let stamps = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    nix::sys::socket::setsockopt(&stamps, nix::sys::socket::sockopt::ReceiveTimestampns, &true).unwrap();
    let lab = TestLab::up("pair", "clock");
    for clock in ["hardware", "hardware-system"] {
        let mut tool = command("ip");
        tool.args(["netns", "exec", &lab.netns("b"), PATHLAB, "--json", "capture", "int:eth0", "--quiet"]);
        tool.args(["-f", "icmp", "--timestamps", clock, "--count", "5"]);
        let child = start(tool);
        lab.must("a", "ping -q -c 30 -i 0.1 -W 30 10.0.0.2");
        let output = finish(child, Duration::from_secs(60));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words}");
        assert!(words.contains("has no hardware stamps to be switched on"), "{words}");
        assert!(words.contains("eth0: hardware_") && words.contains("is NOT delivered"), "{words}");
        assert!(words.contains("interface eth0 has no hardware stamps: software stamps are used"), "{words}");
        let text = String::from_utf8(output.stdout).unwrap();
        let told: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let expected = serde_json::json!([{ "name": "software", "count": 5 }]);
        assert_eq!(told["census"]["stamps"], expected, "{told}");
        let unknown = told["account"]["queues_unknown"].as_str();
        assert!(unknown.is_some_and(|why| !why.is_empty()), "a veth has no queue counters: {told}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_capture_with_one_sentence() {
    let _turn = beside();
    if !able("a broken pipe") {
        return;
    }
    let lab = TestLab::up("pair", "pipe");
    let folder = tempfile::tempdir().unwrap();
    let code = folder.path().join("code");
    let script = format!(
        "{{ {PATHLAB} --json capture int:eth0 --quiet -w -; echo $? > {}; }} | head -c 100 > /dev/null",
        code.display()
    );
    let mut tool = command("ip");
    tool.args(["netns", "exec", &lab.netns("b"), "sh", "-c", &script]);
    let mut child = start(tool);
    until_it_says(&mut child, "capturing");
    let pinged = lab.inside("a", "ping -q -f -c 3000 -W 1 10.0.0.2");
    let output = finish(child, Duration::from_secs(60));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(std::fs::read_to_string(&code).unwrap().trim(), "3", "{words}; {pinged:?}");
    let lines: Vec<&str> = words.trim().lines().collect();
    // The report, which cannot go where the frames go, then one sentence.
    assert_eq!(lines.len(), 2, "{words}");
    let told: Value = serde_json::from_str(lines[0]).unwrap();
    let lost = told["drops"].as_array().unwrap().iter().find(|drop| drop["place"] == "disk").unwrap();
    let sum = told["written"]["frames"].as_u64().unwrap() + lost["count"].as_u64().unwrap();
    assert_eq!(told["captured"].as_u64(), Some(sum), "{told}");
    assert!(lines[1].starts_with("pathlab: standard output: nobody reads it any more"), "{words}");
    assert!(!words.contains("panicked"), "{words}");
}
