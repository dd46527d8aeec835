//! `pathlab capture` from outside: against counters, tcpdump, wrong input and trouble.

use crate::beside;
use crate::support::{
    PATHLAB, TestLab, finish, installed, is_root, pathlab, run, run_ok, skip, start, until_it_says,
};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Waits for a condition, long enough for a busy machine.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `pathlab capture` inside a node; returns when it sees every frame.
pub fn capture(lab: &TestLab, node: &str, arguments: &[&str]) -> Child {
    let mut tool = crate::support::command("ip");
    tool.args(["netns", "exec", &lab.netns(node), PATHLAB, "--json", "capture"]).args(arguments);
    let mut child = start(tool);
    until_it_says(&mut child, "capturing");
    child
}

/// `pathlab capture ring:lo | head -1`: it went on for ever.
#[test]
fn a_capture_that_nobody_reads_ends_unless_it_is_kept() {
    let _turn = beside();
    if !able("a capture without a reader") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept.pcapng").display().to_string();
    let begun = |arguments: &[&str]| {
        let mut child = start(pathlab(&[&["capture", "ring:lo"], arguments].concat()));
        until_it_says(&mut child, "capturing");
        drop(child.stdout.take());
        child
    };
    let kept = begun(&["-w", &file]);
    let output = finish(begun(&[]), Duration::from_secs(30));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    std::thread::sleep(Duration::from_secs(1));
    interrupt(&kept);
    let output = finish(kept, Duration::from_secs(30));
    assert!(output.status.success() && Path::new(&file).exists(), "{output:?}");
}

/// The line `N packets received by filter` of tcpdump.
fn reached(words: &str) -> u64 {
    let line = words.lines().find(|line| line.contains("received by filter"));
    line.and_then(|line| line.split(' ').next()).and_then(|count| count.parse().ok()).unwrap_or(0)
}

pub fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

/// The lines of JSON, all of which must be such; the last one is the report.
pub fn report(child: Child) -> Value {
    let output = finish(child, Duration::from_secs(60));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let last = lines.last().unwrap_or_else(|| panic!("nothing was told: {words}")).clone();
    assert!(last["captured"].is_u64(), "{last}");
    let (end, seconds) = lines.split_last().unwrap();
    assert_eq!(end["schema"], "pathlab/capture/1");
    assert!(seconds.iter().all(|line| line["schema"] == "pathlab/capture-second/1"));
    last
}

pub fn able(what: &str) -> bool {
    let able = is_root() && installed("ping") && installed("ip");
    if !able {
        skip(what, "needs root, ip and ping");
    }
    able
}

#[test]
fn the_account_closes_against_the_interface_and_tcpdump() {
    let _turn = beside();
    if !able("a capture against tcpdump") || !installed("tcpdump") {
        return;
    }
    let lab = TestLab::up("pair", "cap");
    let folder = tempfile::tempdir().unwrap();
    lab.must("a", "ping -c 1 -W 30 10.0.0.2");
    for kind in ["int", "ring"] {
        let file = folder.path().join(format!("{kind}.pcapng"));
        let theirs = folder.path().join(format!("{kind}-tcpdump.pcap"));
        let child = capture(&lab, "b", &[&format!("{kind}:eth0"), "-w", file.to_str().unwrap()]);
        let mut peer = crate::support::command("ip");
        peer.args([
            "netns",
            "exec",
            &lab.netns("b"),
            "tcpdump",
            "-i",
            "eth0",
            "-w",
            theirs.to_str().unwrap(),
        ]);
        peer.args(["-Z", "root", "-U", "--immediate-mode", "-B", "16384"]);
        let peer = start(peer);
        // tcpdump opens its file when its filter stands, the last thing before it reads.
        until("tcpdump's file", || theirs.exists());
        // An echo that is answered has been shown to everybody who captures, and so has what b said then; what is in
        // their buffers they take at the end.
        lab.must("a", "ping -q -f -c 2000 -W 30 10.0.0.2");
        interrupt(&child);
        let report = report(child);
        interrupt(&peer);
        let tcpdump = finish(peer, Duration::from_secs(60)).stderr;
        let tcpdump = String::from_utf8_lossy(&tcpdump).into_owned();
        let captured = report["captured"].as_u64().unwrap();
        assert!(captured >= 4000, "{report}");
        let account = &report["account"];
        assert_eq!(account["residual"], 0, "{account}");
        assert_eq!(report["written"]["frames"], report["captured"]);
        let read = run_ok(&["--json", "capture", &format!("pcap:{}", theirs.display()), "-f", "icmp"]);
        let echoes: Value = serde_json::from_str(read.lines().last().unwrap()).unwrap();
        let ours = run_ok(&["--json", "capture", &format!("pcap:{}", file.display()), "-f", "icmp"]);
        let ours: Value = serde_json::from_str(ours.lines().last().unwrap()).unwrap();
        assert_eq!(ours["captured"], 4000, "{ours}");
        // tcpdump leaves in its ring what it had not read when it was interrupted; what reached its socket it says.
        let (theirs, reached) = (echoes["captured"].as_u64().unwrap(), reached(&tcpdump));
        assert!(
            theirs <= 4000 && (4000..=captured).contains(&reached),
            "{captured} here; {theirs}: {tcpdump}"
        );
        if theirs == 4000 {
            assert_eq!(ours["bytes"], echoes["bytes"]);
        }
        assert_eq!(ours["filtered"].as_u64().unwrap(), captured - 4000);
        lab.must("b", &format!("tcpdump -r {} -c 1 2>/dev/null", file.display()));
    }
}

#[test]
fn a_filter_a_count_and_several_threads_hold() {
    let _turn = beside();
    if !able("filters and threads") {
        return;
    }
    let lab = TestLab::up("pair", "capf");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("merged.pcapng");
    let child = capture(
        &lab,
        "b",
        &["ring:eth0", "-f", "icmp[icmptype] == icmp-echo", "--count", "500", "-w", file.to_str().unwrap()],
    );
    lab.must("a", "ping -q -f -c 700 -W 30 10.0.0.2");
    let told = report(child);
    assert_eq!((&told["captured"], &told["ended"]), (&Value::from(500), &Value::from("count")), "{told}");
    assert!(told["filtered"].is_null() && told["account"]["residual"].is_null(), "the kernel does not tell");
    assert_eq!(told["written"]["frames"], 500);

    let child = capture(&lab, "b", &["int:eth0", "--threads", "2", "--incoming"]);
    lab.must("a", "ping -q -f -c 1000 -W 30 10.0.0.2");
    interrupt(&child);
    let told = report(child);
    assert_eq!(told["threads"].as_array().unwrap().len(), 2);
    assert_eq!(told["account"]["residual"], 0, "{}", told["account"]);
    assert!(told["captured"].as_u64().unwrap() >= 1000 && told["account"]["sent"].is_null());
}

#[test]
fn a_killed_capture_leaves_a_file_that_can_be_read() {
    let _turn = beside();
    if !able("kill -9 of a capture") {
        return;
    }
    let lab = TestLab::up("pair", "capk");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("killed.pcapng");
    let mut child = capture(&lab, "b", &["int:eth0", "-w", file.to_str().unwrap(), "--quiet"]);
    lab.must("a", "ping -q -f -c 300 -W 30 10.0.0.2");
    let read = || run(&["--json", "capture", &format!("pcap:{}", file.display()), "-f", "icmp"]);
    let in_file = |text: &[u8]| {
        let last = text.split(|&byte| byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
        serde_json::from_slice::<Value>(last).unwrap_or_default()["captured"].as_u64()
    };
    // It writes what it has twice a second.
    until("all frames in the file", || in_file(&read().stdout) == Some(600));
    child.kill().unwrap();
    child.wait().unwrap();
    let output = read();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(in_file(&output.stdout), Some(600));
    if installed("capinfos") {
        lab.must("b", &format!("capinfos {}", file.display()));
    }
}

#[test]
fn an_interface_that_is_removed_ends_the_capture_with_what_it_had() {
    let _turn = beside();
    if !able("an interface that is removed") {
        return;
    }
    let lab = TestLab::up("pair", "capg");
    for kind in ["int", "ring"] {
        lab.must(
            "b",
            "ip link add gone0 type veth peer name gone1 && ip link set gone0 up && ip link set gone1 up",
        );
        let child = capture(&lab, "b", &[&format!("{kind}:gone0")]);
        lab.must("b", "ip link del gone0");
        let output = finish(child, Duration::from_secs(60));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{words}");
        assert!(words.contains("removed") && words.trim().lines().count() == 1, "{words}");
        let text = String::from_utf8(output.stdout).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert!(last["captured"].is_u64() && last["account"]["residual"].is_null(), "{last}");
    }
}

#[test]
fn a_full_disk_loses_nothing_silently() {
    let _turn = beside();
    if !able("a full disk") || !installed("mount") {
        return;
    }
    let lab = TestLab::up("pair", "capd");
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let (file, read) = (small.join("full.pcapng"), folder.path().join("read.json"));
    let sent = folder.path().join("sent.json");
    // ip netns exec gives every command a mount namespace of its own, which does not tell the host of its mounts; what
    // the disk holds is therefore read in there, too.
    let script = format!(
        "mount -t tmpfs -o size=64k none {small} && \
         {PATHLAB} --json capture int:eth0 -w {file} --record {small}/captured; code=$?; \
         {PATHLAB} --json capture pcap:{file} > {read}; cat /dev/zero 2>/dev/null > {small}/rest; \
         {PATHLAB} --json send int:eth0 --frame 'eth / ip dst=10.0.0.1 / udp dport=9 / stamp' \
         --record {small}/sent > {sent}; exit $code",
        small = small.display(),
        file = file.display(),
        read = read.display(),
        sent = sent.display()
    );
    let mut tool = crate::support::command("ip");
    tool.args(["netns", "exec", &lab.netns("b"), "sh", "-c", &script]);
    let mut child = start(tool);
    until_it_says(&mut child, "capturing");
    lab.must("a", "ping -q -f -c 3000 -W 30 10.0.0.2");
    let output = finish(child, Duration::from_secs(60));
    let text = String::from_utf8(output.stdout).unwrap();
    let told: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(std::fs::read_dir(&small).unwrap().count(), 0, "the host saw the disk");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{words}");
    for name in ["full.pcapng", "captured: cannot write the record", "sent: cannot write the record"] {
        assert!(words.contains(name), "{name}: {words}");
    }
    let sent: Value = serde_json::from_slice(&std::fs::read(&sent).unwrap()).unwrap_or_default();
    assert_eq!(sent["frames"]["asked"], 1, "what was sent is told although no record is kept: {sent}");
    let drops = told["drops"].as_array().unwrap();
    let at =
        |place: &str| drops.iter().find(|drop| drop["place"] == place).unwrap()["count"].as_u64().unwrap();
    let written = told["written"]["frames"].as_u64().unwrap();
    assert!(at("disk") > 0 && written > 0, "{told}");
    assert_eq!(told["captured"].as_u64().unwrap(), written + at("queue") + at("disk"), "{told}");
    let read = std::fs::read_to_string(&read).unwrap();
    let read: Value = serde_json::from_str(read.lines().last().unwrap_or_default()).unwrap_or_default();
    assert_eq!(read["captured"].as_u64(), Some(written), "the file holds what was said");
}

#[test]
fn wrong_input_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there.pcap");
    std::fs::write(&there, "precious").unwrap();
    let there = there.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["capture", "eth0"], 2, "KIND:NAME"),
        (&["capture", "mem:x", "-f", "udp prot 5"], 2, "syntax error"),
        (&["capture", "mem:x", "-w", there, "--count", "1"], 2, "there.pcap"),
        (&["capture", "mem:x", "-w", "x.pcap", "--files", "3"], 2, "--rotate"),
        (&["capture", "mem:x", "--threads", "2"], 2, "cannot be shared"),
        (&["capture", "pcap:no/such/file"], 2, "no/such/file"),
    ];
    for (arguments, code, expected) in cases {
        let output = finish(start(pathlab(arguments)), Duration::from_secs(60));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {words}");
        assert!(words.contains(expected) && words.trim().lines().count() == 1, "{arguments:?}: {words}");
    }
    assert_eq!(std::fs::read_to_string(there).unwrap(), "precious");
    assert!(!Path::new("x.pcap").exists());
}
