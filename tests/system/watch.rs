//! `pathlab watch`: a path with a planted loss against the kernel's own counts, and what every interval has to have.

use crate::beside;
use crate::routing::{lab, told};
use crate::support::{
    Kept, TestLab, command, finish, installed, is_root, pathlab, run, run_ok, skip, start, until_it_says,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::process::{Child, ChildStdin};
use std::time::Duration;

/// Watches a lab while `work` goes on, in one interval.
fn watched(lab: &TestLab, work: impl FnOnce()) -> Value {
    let arguments =
        ["watch", "--lab", &lab.name, "--path", "a", "b", "--once", "--interval", "120s", "--json"];
    let mut child = start(pathlab(&arguments));
    until_it_says(&mut child, "watching");
    let child = Kept::new(child);
    work();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = finish(child.take(), Duration::from_secs(60));
    serde_json::from_slice(&output.stdout).expect("one document")
}

/// Frames of an interface in a direction, by iproute2.
fn frames(lab: &TestLab, node: &str, interface: &str, way: &str) -> u64 {
    let found = &told(lab, node, &format!("ip -s -j link show {interface}"))[0];
    found["stats64"][way]["packets"].as_u64().unwrap()
}

/// A CPU's parts are all of it.
fn cpus_are_whole(report: &Value) {
    let roles = ["user", "nice", "system", "irq", "softirq", "steal", "idle"];
    let cpus = report["cpus"].as_array().unwrap();
    assert!(!cpus.is_empty(), "{report:#}");
    for cpu in cpus {
        let sum: f64 = roles.iter().map(|role| cpu[role].as_f64().unwrap()).sum();
        assert!((sum - 100.0).abs() < 1e-6, "{cpu}");
    }
}

#[test]
fn one_sentence_says_where_a_path_loses_frames() {
    let _turn = beside();
    let Some(lab) = lab("bridge", "watch") else { return };
    if !installed("tc") {
        return skip("watch of a loss", "tc is not installed");
    }
    // Frames wait for a shaper with hardly any room: most are dropped before they leave the bridge.
    lab.must("s", "tc qdisc add dev p2 root tbf rate 64kbit burst 1600 limit 2000");
    let places = [("a", "eth0", "tx"), ("s", "p1", "rx"), ("s", "p2", "tx"), ("b", "eth0", "rx")];
    let read = || places.map(|(node, interface, way)| frames(&lab, node, interface, way));
    let before = read();
    let report = watched(&lab, || {
        // Most of the answers never come: ping ends with code 1.
        let _ = lab.inside("a", "ping -q -c 300 -i 0.002 -s 400 -W 1 10.0.0.2");
        let waiting = || told(&lab, "s", "tc -s -j qdisc show dev p2")[0]["qlen"].as_u64().unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while waiting() > 0 {
            assert!(std::time::Instant::now() < deadline, "the shaper never gets empty");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let truth = read();
    let path = report["path"].as_array().unwrap();
    assert_eq!(path.len(), 4, "{report:#}");
    for (place, (hop, expected)) in path.iter().zip(truth.iter().zip(before)).enumerate() {
        let (node, interface, _) = places[place];
        assert_eq!((hop["node"].as_str(), hop["interface"].as_str()), (Some(node), Some(interface)));
        assert_eq!(hop["frames"].as_u64(), Some(expected.0 - expected.1), "{node}:{interface}: {report:#}");
    }
    let dropped = told(&lab, "s", "tc -s -j qdisc show dev p2")[0]["drops"].as_u64().unwrap();
    assert!(dropped > 100, "the shaper dropped {dropped}");
    assert_eq!(path[2]["lost"].as_u64(), Some(dropped), "{report:#}");
    assert_eq!(path[2]["drops"]["qdisc_full"].as_u64(), Some(dropped), "{report:#}");
    let said = report["said"].as_str().unwrap_or_default();
    assert!(said.starts_with("Most frames are dropped before leaving by s:p2:"), "{said}");
    cpus_are_whole(&report);
}

#[test]
fn an_interval_of_this_host_has_its_interfaces_and_fits_80_columns() {
    let _turn = beside();
    let report: Value =
        serde_json::from_str(&run_ok(&["watch", "--once", "--interval", "200ms", "--json"])).unwrap();
    let interfaces = report["interfaces"].as_array().unwrap();
    assert!(interfaces.iter().any(|one| one["interface"] == "lo" && one["node"] == "host"), "{report:#}");
    cpus_are_whole(&report);
    assert!(report["cost_cpu_ns"].as_u64().unwrap() > 0);
    // Where programs are not permitted it is said, and is not zero.
    let is_split = report["squeezed_budget"].is_u64() && report["squeezed_time"].is_u64();
    let missing = report["missing"].to_string();
    assert!(is_split || missing.contains("squeezed"), "{missing}");
    let mut narrow = pathlab(&["watch", "--once", "--interval", "200ms"]);
    narrow.env("COLUMNS", "80");
    let output = finish(start(narrow), Duration::from_secs(60));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(output.status.success() && longest <= 80 && text.contains("host:lo"), "{longest}: {text}");
    for wrong in
        [&["watch", "--path", "a", "b"][..], &["watch", "--sort", "luck"], &["watch", "--interval", "0s"]]
    {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// A watch on a terminal of its own, with its screen: the terminal, what is typed there, the watch, and what it showed.
fn begun() -> (Child, ChildStdin, Pid, String) {
    let program = crate::support::PATHLAB;
    let line = format!(
        "stty rows 24 cols 80; sh -c 'echo pid $$.; exec {program} watch --interval 100ms'; echo ended with $?; stty -a; \
         {program} watch --once --interval 100ms"
    );
    let mut tool = command("script");
    tool.args(["-q", "-e", "-c", &line, "/dev/null"]).env("TERM", "xterm").env_remove("COLUMNS");
    tool.stdin(std::process::Stdio::piped());
    let mut child = start(tool);
    let stdin = child.stdin.take().expect("piped");
    let stdout = child.stdout.as_mut().expect("captured");
    let (mut said, mut byte) = (vec![], [0]);
    while !String::from_utf8_lossy(&said).contains("quit") {
        let read = std::io::Read::read(stdout, &mut byte).unwrap_or(0);
        assert_eq!(read, 1, "no screen: {}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    let said = String::from_utf8_lossy(&said).into_owned();
    let pid = said.split(['.', ' ']).find_map(|word| word.parse().ok()).expect("the shell told it");
    (child, stdin, Pid::from_raw(pid), said)
}

/// A watch that ends by `how`: what its terminal showed until then and after.
fn ended(how: impl FnOnce(Pid, &mut ChildStdin)) -> [String; 2] {
    let (terminal, mut keys, watch, said) = begun();
    how(watch, &mut keys);
    let output = finish(terminal, Duration::from_secs(60));
    [said, String::from_utf8_lossy(&output.stdout).into_owned()]
}

#[test]
fn a_terminal_that_hangs_up_ends_a_watch() {
    let _turn = beside();
    if !installed("script") || !is_root() {
        return skip("a watch whose terminal hangs up", "it needs root and script");
    }
    let (mut terminal, _keys, watch, _) = begun();
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    // One that ended and that nobody has asked yet has no command line.
    while std::fs::read(format!("/proc/{watch}/cmdline")).is_ok_and(|line| !line.is_empty()) {
        if std::time::Instant::now() > deadline {
            kill(watch, Signal::SIGKILL).unwrap();
            panic!("it goes on without a terminal");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_screen_takes_the_terminal_and_gives_it_back() {
    let _turn = beside();
    if !installed("script") || !is_root() {
        return skip("the screen of watch", "it needs root and script");
    }
    let by_key = ended(|_, keys| std::io::Write::write_all(keys, b"q").unwrap());
    let by_signal = ended(|watch, _| kill(watch, Signal::SIGTERM).unwrap());
    for [said, rest] in [by_key, by_signal] {
        // The alternate screen was entered, and left; what is typed is shown again.
        assert!(said.contains("\x1b[?1049h") && rest.contains("\x1b[?1049l"), "{rest}");
        let (_, after) = rest.split_once("ended with 0").expect("the end of a watch is no failure");
        assert!(after.contains(" icanon") && after.contains(" echo "), "{after}");
        // Text is as wide as the terminal.
        let (_, text) = after.split_once("pathlab watch  ").expect("a text");
        let longest = text.lines().map(|line| line.trim_end().chars().count()).max();
        assert!(longest <= Some(80), "{longest:?}: {text}");
    }
}
