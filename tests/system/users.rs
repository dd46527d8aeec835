//! What users hit first: advice that works as written, files that are not whole, times that are kept, words.

use crate::capture::interrupt;
use crate::support::{PATHLAB, command, finish, installed, is_root, pathlab, run, run_ok, skip, start};
use crate::{alone, beside};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A pcap file by hand: frames of 60 bytes, one a second from 1,000 s on.
fn pcap(frames: u32) -> Vec<u8> {
    let mut file = vec![];
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(u32::to_le_bytes(word));
    }
    for number in 0..frames {
        for word in [1000 + number, 0, 60, 60] {
            file.extend(u32::to_le_bytes(word));
        }
        file.extend([0xff; 12]);
        file.extend([0x88, 0xb5]);
        file.extend([0; 46]);
    }
    file
}

fn write(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> String {
    let path: PathBuf = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    text(&path)
}

fn json(arguments: &[&str]) -> (Value, Output) {
    let output = run(arguments);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", words(&output)));
    (report, output)
}

#[test]
fn the_advice_for_a_file_that_exists_works_as_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let from = write(&folder, "in.pcap", &pcap(3));
    let to = text(&folder.path().join("out.pcapng"));
    let capture = ["capture", &format!("pcap:{from}"), "-w", &to];
    run_ok(&capture);
    let refused = run(&capture);
    assert_eq!(refused.status.code(), Some(2), "{}", words(&refused));
    assert!(words(&refused).contains("add --overwrite"), "{}", words(&refused));
    run_ok(&[&capture[..], &["--overwrite"]].concat());

    let refused = run(&["send", &format!("pcap:{to}"), "--count", "1"]);
    let said = words(&refused);
    let advice = said.split('\'').nth(1).unwrap_or_else(|| panic!("no advice: {said}")).to_owned();
    run_ok(&["send", &advice, "--count", "1"]);
    let files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
}

#[test]
fn a_full_disk_leaves_a_file_whose_length_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let from = write(&folder, "in.pcap", &pcap(20_000));
    let to = folder.path().join("out.pcap");
    // A limit of the file's size fails as a full disk does: a part of what was written gets there.
    let line = format!(
        "trap '' XFSZ; ulimit -f 1024; exec {PATHLAB} --json capture pcap:{from} -q -w {}",
        text(&to)
    );
    let mut shell = command("sh");
    shell.args(["-c", &line]);
    let output = finish(start(shell), Duration::from_secs(60));
    assert_eq!(output.status.code(), Some(3), "{}", words(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (frames, bytes) =
        (report["written"]["frames"].as_u64().unwrap(), report["written"]["bytes"].as_u64());
    let there = std::fs::metadata(&to).unwrap().len();
    assert_eq!((bytes, there), (Some(24 + frames * 76), 24 + frames * 76), "{report}");
    assert!((1..20_000).contains(&frames), "{report}");
    assert!(
        words(&output).contains(&format!("{} frames are safely in it", record::unit::count(frames))),
        "{}",
        words(&output)
    );
}

#[test]
fn a_capture_file_is_told_by_its_own_times() {
    let folder = tempfile::tempdir().unwrap();
    let from = format!("pcap:{}", write(&folder, "in.pcap", &pcap(3)));
    let (report, _) = json(&["--json", "capture", "-q", &from]);
    let recorded = &report["recorded"];
    assert_eq!(
        (recorded["first_ns"].as_u64(), recorded["last_ns"].as_u64()),
        (Some(1_000_000_000_000), Some(1_002_000_000_000))
    );
    assert_eq!((recorded["frames_per_s"].as_f64(), recorded["rate_bps"].as_f64()), (Some(1.5), Some(720.0)));
    let told = run_ok(&["capture", "-q", &from]);
    assert!(
        told.contains("recorded from 1970-01-01T00:16:40Z on in 2.00 s (1.50 frames/s, 720 bit/s)"),
        "{told}"
    );
}

#[test]
fn a_file_that_is_cut_off_is_read_as_far_as_it_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let whole = pcap(3);
    for less in [1, 60, 61, 75] {
        let cut = write(&folder, &format!("cut{less}.pcap"), &whole[..whole.len() - less]);
        let (report, output) = json(&["--json", "capture", "-q", &format!("pcap:{cut}")]);
        assert_eq!((output.status.code(), report["captured"].as_u64()), (Some(0), Some(2)), "{report}");
        let notes = report["notes"].to_string();
        assert!(notes.contains("2 frames are good before it"), "{report}");
        let to = text(&folder.path().join(format!("sent{less}.pcap")));
        let sent = run(&["send", &format!("pcap:{to}"), "--from", &cut, "--speed", "max"]);
        assert_eq!(sent.status.code(), Some(0), "{}", words(&sent));
        assert!(words(&sent).contains("2 frames are good before it"), "{}", words(&sent));
        assert_eq!(std::fs::metadata(&to).unwrap().len(), 24 + 2 * 76);
    }
    // A file that is wrong rather than short is not read on.
    let mut wrong = whole.clone();
    wrong[24 + 76 + 11] = 0xff;
    let wrong = write(&folder, "wrong.pcap", &wrong);
    let output = run(&["capture", &format!("pcap:{wrong}")]);
    assert_eq!(output.status.code(), Some(2), "{}", words(&output));
}

/// A file may be larger than memory: with a count, no more of it is read than that.
#[test]
fn only_as_many_frames_of_a_file_are_read_as_are_sent() {
    let folder = tempfile::tempdir().unwrap();
    let to = text(&folder.path().join("ten.pcap"));
    let mut send =
        pathlab(&["send", &format!("pcap:{to}"), "--from", "-", "--count", "10", "--speed", "max"]);
    send.stdin(Stdio::piped());
    let mut child = start(send);
    let mut pipe = child.stdin.take().unwrap();
    // Enough for several reads, and then neither more frames nor an end: who wants more than ten waits for ever.
    let feeder = std::thread::spawn(move || {
        let _ = pipe.write_all(&pcap(60_000));
        pipe
    });
    let output = finish(child, Duration::from_secs(60));
    drop(feeder.join());
    assert!(output.status.success(), "{}", words(&output));
    assert_eq!(std::fs::metadata(&to).unwrap().len(), 24 + 10 * 76);
}

#[test]
fn a_mix_that_does_not_fit_is_refused_with_one_that_does() {
    let folder = tempfile::tempdir().unwrap();
    let to = format!("pcap:{}", text(&folder.path().join("mix.pcap")));
    let send =
        ["send", &to, "--frame", "eth / vlan id=5 / ipv6 dst=fd00::1 / tcp", "--count", "12", "--size"];
    let refused = run(&[&send[..], &["imix"]].concat());
    let said = words(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    let fits = said.trim().rsplit("size ").next().unwrap();
    assert_eq!(fits, "{78:7,566:4,1514:1}", "{said}");
    run_ok(&[&send[..], &[fits]].concat());
}

#[test]
fn a_printed_frame_is_told_beyond_its_vlan_tags() {
    let frame = "eth / vlan id=7 / vlan id=5 pcp=3 / ip src=10.0.0.1 dst=10.0.0.2 / udp sport=7 dport=9";
    let told = run_ok(&["send", "mem:x", "--frame", frame, "--print", "1"]);
    assert!(told.contains("vlan 7 vlan 5 pcp 3 10.0.0.1:7 > 10.0.0.2:9 UDP"), "{told}");
}

/// Every frame is in the file that it was sent into, and no more than were planned before the end.
#[test]
fn a_duration_is_the_most_that_a_sending_may_take() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("out.pcap");
    let port = format!("pcap:{}", text(&to));
    let send = [
        "send",
        "--json",
        &port,
        "--rate",
        "1kpps",
        "--count",
        "100000",
        "--duration",
        "100ms",
        "--size",
        "60",
    ];
    let (report, output) = json(&send);
    let frames = &report["frames"];
    let sent = frames["transmitted"].as_u64().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert_eq!((frames["asked"].as_u64(), frames["residual"].as_i64()), (Some(100_000), Some(0)), "{frames}");
    assert!((1..=100).contains(&sent), "{frames}");
    assert_eq!(frames["drops"][0]["name"], "time_over", "{frames}");
    assert_eq!(frames["drops"][0]["count"].as_u64(), Some(100_000 - sent), "{frames}");
    assert!(words(&output).contains("the time was over before the others"), "{}", words(&output));
    assert_eq!(std::fs::metadata(&to).unwrap().len(), 24 + sent * 76);
}

#[test]
fn a_duration_is_the_most_that_a_test_of_a_plan_may_take() {
    let _turn = beside();
    if !is_root() {
        return skip("durations of plans", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let kinds = ["udp-stream", "udp-rr", "tcp-rr", "ping", "frames"];
    let tests: String = kinds.map(|kind| format!("test {kind} rate 1kpps count 100000\n")).concat();
    let plan = format!("topology pair\nrepetitions 1\nduration 200ms\n{tests}");
    let plan = write(&folder, "short.plan", plan.as_bytes());
    let (record, _) = json(&["--json", "run", &plan, "--dir", &text(&folder.path().join("runs"))]);
    let tests = record["tests"].as_array().unwrap();
    assert_eq!(tests.len(), kinds.len(), "{record}");
    for test in tests {
        let offered = &test["offered"];
        assert_eq!(offered["planned"].as_u64(), Some(200), "{offered}");
        let sent = offered["datagrams"].as_u64().unwrap();
        assert!((1..=200).contains(&sent), "{offered}");
        let note =
            format!("{} of 100000 messages were not sent within the duration of 200 ms", 100_000 - sent);
        assert!(test["sender"]["notes"].to_string().contains(&note), "{}", test["sender"]["notes"]);
    }
}

#[test]
fn every_duration_is_read_alike() {
    for time in ["200ms", "0.2s", "0.2"] {
        run_ok(&["switch", "--port", "mem:users1", "--duration", time]);
        run_ok(&["null", "mem:users2", "mem:users3", "--duration", time]);
    }
    let folder = tempfile::tempdir().unwrap();
    let nobody = format!("unix:{}", text(&folder.path().join("nobody")));
    for (arguments, code) in [
        (vec!["switch", "--port", "mem:x", "--duration", "soon"], "soon"),
        (vec!["flow", "monitor", &nobody, "--duration", "soon"], "soon"),
        (vec!["flow", "dump", &nobody, "--timeout", "soon"], "soon"),
        (vec!["flow", "monitor", &nobody, "--duration", "1m", "--timeout", "500ms"], "cannot be called"),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", words(&output));
        assert!(words(&output).contains(code), "{arguments:?}: {}", words(&output));
    }
}

#[test]
fn ports_that_are_joined_are_refused() {
    for (first, second) in
        [("ring:lo", "ring:lo"), ("int:lo", "ring:lo"), ("mem:users4", "fault:mem:users4?lose=1%")]
    {
        let output = run(&["null", first, second, "--duration", "100ms"]);
        assert_eq!(output.status.code(), Some(2), "{first} {second}: {}", words(&output));
        assert!(words(&output).contains("would come back"), "{}", words(&output));
    }
    if !is_root() {
        return skip("both ends of a veth pair", "needs root");
    }
    // In a network namespace of its own, which ends with the shell.
    let line = "ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up && ";
    let line = format!("{line} exec {PATHLAB} null ring:v0 int:v1 --duration 100ms");
    let mut shell = command("unshare");
    shell.args(["-n", "sh", "-c", &line]);
    let output = finish(start(shell), Duration::from_secs(60));
    assert_eq!(output.status.code(), Some(2), "{}", words(&output));
    assert!(words(&output).contains("the two ends of one veth pair"), "{}", words(&output));
}

#[test]
fn an_interrupted_server_ends_with_130() {
    let mut child = start(pathlab(&["serve", "--port", "0", "--bind", "127.0.0.1"]));
    let mut said = [0; 1];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    interrupt(&child);
    let output = finish(child, Duration::from_secs(30));
    assert_eq!(output.status.code(), Some(130), "{}", words(&output));
}

#[test]
fn a_switch_says_why_a_controller_cannot_be_reached_without_a_number() {
    let folder = tempfile::tempdir().unwrap();
    let none = text(&folder.path().join("none"));
    let output = run(&["switch", "--controller", &format!("unix:{none}"), "--duration", "500ms"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!("cannot reach unix:{none}: No such file or directory; trying again");
    assert!(output.status.success() && said.contains(&expected), "{said}");
}

#[test]
fn errors_have_no_words_of_the_system_and_name_a_file_once() {
    let folder = tempfile::tempdir().unwrap();
    let none = text(&folder.path().join("none"));
    let json = write(&folder, "half.json", b"{\"schema\":\n");
    let wrong = write(&folder, "wrong.pcap", &{
        let mut file = pcap(3);
        file[24 + 76 + 11] = 0xff;
        file
    });
    let from = format!("pcap:{wrong}");
    let cases: [(&[&str], &str, &str); 8] = [
        (&["run", &none], &none, "No such file or directory"),
        (&["switch", &none], &none, "No such file or directory"),
        (&["send", "mem:x", &none], &none, "No such file or directory"),
        (&["capture", &format!("pcap:{none}")], &none, "No such file or directory"),
        (&["join", &json, &json], &json, "it ends too early, in line"),
        (&["test", "ping", "127.0.0.1:1"], "127.0.0.1:1", "Connection refused"),
        (&["capture", "-q", &from], &wrong, "one frame is good before it"),
        (&["send", "mem:x", "--from", &wrong], &wrong, "one frame is good before it"),
    ];
    for (arguments, place, expected) in cases {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = said.lines().last().unwrap_or_default();
        assert!(!output.status.success() && last.contains(expected), "{arguments:?}: {said}");
        assert!(!last.contains("os error") && !last.contains("EOF"), "{arguments:?}: {said}");
        assert_eq!(last.matches(place).count(), 1, "{arguments:?}: {said}");
    }
}

#[test]
fn several_kinds_of_tests_can_be_kept_and_are_completed() {
    let script = run_ok(&["completions", "bash"]);
    let run_alone = script.split("pathlab__subcmd__run)").nth(1).expect("run is completed");
    let only = run_alone.split("--only)").nth(1).expect("--only is completed").split(";;").next().unwrap();
    assert!(only.contains("udp-rr") && !only.contains("compgen -f"), "{only}");
    assert_eq!(run(&["run", "--only", "nothing"]).status.code(), Some(2));
    let _turn = beside();
    if !is_root() {
        return skip("--only", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = "topology pair\nrepetitions 1\norder listed\ntest udp-rr count 3\ntest tcp-rr count 3\ntest ping count 3\n";
    let plan = write(&folder, "three.plan", plan.as_bytes());
    let runs = text(&folder.path().join("runs"));
    for only in [&["--only", "ping,udp-rr"][..], &["--only", "ping", "--only", "udp-rr"]] {
        let (record, _) = json(&[&["--json", "run", &plan, "--dir", &runs], only].concat());
        let names: Vec<_> =
            record["tests"].as_array().unwrap().iter().map(|test| test["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["udp-rr 64 B ×3", "ping 56 B ×3"]);
    }
}

/// A server for the tests below; its address.
fn server() -> (crate::support::Kept, String) {
    let mut child = start(pathlab(&["--json", "serve", "--port", "0", "--bind", "127.0.0.1"]));
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    (crate::support::Kept::new(child), told["listening"].as_str().unwrap().to_owned())
}

#[test]
fn a_server_hangs_up_on_who_speaks_something_else() {
    use std::io::{Read, Write};
    let (_kept, address) = server();
    let mut browser = std::net::TcpStream::connect(address).unwrap();
    browser.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    browser.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    // What was not read is thrown away with the connection, which the kernel may tell as a reset.
    match browser.read(&mut [0; 64]) {
        Ok(many) => assert_eq!(many, 0),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn a_ping_of_another_host_is_paced() {
    let _turn = alone();
    let (_kept, address) = server();
    let output = run(&["--json", "test", "ping", &address, "--duration", "500ms"]);
    if words(&output).contains("CAP_NET_RAW") {
        return skip("a ping of another host", "needs ping sockets");
    }
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", words(&output)));
    assert_eq!(report["spec"]["rate"]["messages_per_second"].as_f64(), Some(10.0), "{report}");
    assert!((1..=5).contains(&report["sender"]["attempted"].as_u64().unwrap()), "{}", report["sender"]);
}

#[test]
fn a_terminal_sees_the_rate_while_a_test_runs() {
    if !installed("script") {
        return skip("the rate while a test runs", "script is not installed");
    }
    let _turn = beside();
    let (_kept, address) = server();
    let line = format!("{PATHLAB} test udp-stream {address} --rate 1kpps --count 5000");
    let mut script = command("script");
    script.env("TERM", "xterm").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
    let output = finish(start(script), Duration::from_secs(60));
    let told = words(&output);
    assert!(told.contains("udp-stream: ") && told.contains(", lo sends "), "{told}");
    assert!(told.contains("throughput  "), "{told}");
}
