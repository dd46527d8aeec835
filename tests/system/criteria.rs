//! What a run must reach, what it needs of the host, and a receive buffer that does not bound: with exit codes that a script reads.

use crate::alone;
use crate::support::{TestLab, finish, installed, is_root, pathlab, run, run_ok, skip, start};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// The exit code, standard output and standard error.
fn text(output: &Output) -> (Option<i32>, String, String) {
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), words(&output.stdout), words(&output.stderr))
}

fn plan(folder: &Path, topology: &str, tests: &str) -> String {
    let file = folder.join("criteria.plan");
    std::fs::write(&file, format!("topology {topology}\nrepetitions 1\norder listed\n{tests}\n")).unwrap();
    file.display().to_string()
}

/// The names, whether they passed, of the criteria of all tests.
fn verdicts(json: &str) -> Vec<(String, bool)> {
    let run: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}"));
    let tests = run["tests"].as_array().unwrap().iter();
    let criteria = tests.flat_map(|test| test["criteria"].as_array().cloned().unwrap_or_default());
    criteria.map(|c| (c["name"].as_str().unwrap().into(), c["passed"].as_bool().unwrap())).collect()
}

#[test]
fn a_criterion_that_is_missed_is_exit_code_1_and_one_that_holds_is_0() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs").display().to_string();
    let counted = "test udp-stream count 300 rate 1kpps\ntest tcp-stream duration 100ms";
    let plan = plan(folder.path(), "pair", counted);
    let made = |flags: &[&str]| text(&run(&[&["run", &plan, "--dir", &records], flags].concat()));
    let (code, _, said) = made(&["--max-loss", "50%", "--min-rate", "1pps", "--max-p99", "60s"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, printed, said) = made(&["--max-p99", "1ns", "--min-rate", "1bit"]);
    assert!(code == Some(1) && said.contains("max-p99 is 1 ns"), "{said}");
    assert!(
        printed.contains("Criteria") && printed.contains("failed") && printed.contains("passed"),
        "{printed}"
    );
    let shown = run_ok(&["show", "latest", "--dir", &records, "--json"]);
    let expected = [("min-rate", true), ("max-p99", false), ("min-rate", true)];
    assert_eq!(verdicts(&shown), expected.map(|(name, passed)| (name.to_owned(), passed)));
    let (code, ..) = made(&["--min-rate", "900gbit", "--json"]);
    assert_eq!(code, Some(1));
    // What no test of the plan has cannot be asked.
    let (code, printed, said) = made(&["--only", "tcp-stream", "--max-loss", "0"]);
    assert!(code == Some(2) && printed.is_empty() && said.contains("--max-loss"), "{said}");
    let (code, ..) = made(&["--max-p99", "soon"]);
    assert_eq!(code, Some(2));
}

#[test]
fn a_plan_holds_its_tests_to_criteria_and_names_a_wrong_one() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs").display().to_string();
    let tests = "test udp-rr count 20 max-p99 1ns\ntest ping count 20 max-loss 100% min-rate 1pps";
    let made = text(&run(&["run", &plan(folder.path(), "pair", tests), "--dir", &records, "--json"]));
    assert_eq!(made.0, Some(1), "{}", made.2);
    let expected = [("max-p99", false), ("max-loss", true), ("min-rate", true)];
    assert_eq!(verdicts(&made.1), expected.map(|(name, passed)| (name.to_owned(), passed)));
    let wrong = plan(folder.path(), "pair", "test tcp-stream max-loss 0");
    let (code, _, said) = text(&run(&["run", &wrong, "--dir", &records]));
    assert!(code == Some(2) && said.contains("criteria.plan:4:17") && said.contains("max-loss"), "{said}");
}

#[test]
fn ways_are_held_to_criteria_too() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs").display().to_string();
    let plan = plan(folder.path(), "pair", "test udp-rr count 20");
    let flags = ["--path", "direct,bridge", "--max-p99", "1ns", "--json"];
    let (code, json, said) = text(&run(&[&["run", &plan, "--dir", &records], &flags[..]].concat()));
    assert!(code == Some(1) && said.contains("over direct, udp-rr"), "{said}");
    let document: Value = serde_json::from_str(&json).unwrap();
    let criteria = document["criteria"].as_array().unwrap();
    assert_eq!(criteria.len(), 2, "{document:#}");
    assert!(criteria.iter().all(|criterion| criterion["passed"] == false), "{document:#}");
}

/// Every datagram of the test is dropped by a filter, its shorter probes are not: a test that carries nothing.
#[test]
fn a_test_that_carries_nothing_is_exit_code_1() {
    let _turn = alone();
    if !is_root() || !installed("nft") {
        return skip("a test that carries nothing", "needs root and nft");
    }
    let lab = TestLab::up("pair", "nothing");
    lab.must("b", "nft 'add table ip t; add chain ip t c { type filter hook input priority 0; }; add rule ip t c udp length > 100 drop'");
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs").display().to_string();
    let plan = plan(folder.path(), "pair", "test udp-stream size 200 count 100 rate 1kpps");
    let made = |flags: &[&str]| {
        text(&run(&[&["run", &plan, "--lab", &lab.name, "--dir", &records, "--json"], flags].concat()))
    };
    let (code, json, said) = made(&[]);
    assert!(code == Some(1) && said.contains("nothing of 100 messages arrived"), "{said}");
    assert_eq!(verdicts(&json), [("arrives".to_owned(), false)]);
    let (code, json, said) = made(&["--max-loss", "100%"]);
    assert_eq!((code, verdicts(&json)), (Some(0), vec![("max-loss".to_owned(), true)]), "{said}");
}

/// Another congestion control, or another CPU, than the name of a test says is no result.
#[test]
fn what_the_host_does_not_have_is_refused_before_anything_is_measured() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs");
    for (setting, said) in [
        ("test tcp-stream congestion no_such", "'no_such'"),
        ("test udp-stream count 10 sender-cpu 4095", "CPU 4095"),
        ("test udp-rr count 10 receiver-cpu 4095", "CPU 4095"),
    ] {
        let plan = plan(folder.path(), "pair", &format!("test ping count 1\n{setting}"));
        let (code, printed, problem) = text(&run(&["run", &plan, "--dir", records.to_str().unwrap()]));
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{setting}: {problem}");
        assert!(problem.contains(said), "{problem}");
        assert!(!records.exists(), "{setting}: something was recorded");
    }
}

#[test]
fn a_test_between_hosts_is_refused_what_either_of_them_does_not_have() {
    let _turn = alone();
    let mut server = pathlab(&["serve", "--bind", "127.0.0.1", "--port", "0", "--json"]);
    server.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut server = crate::support::Kept::new(server.spawn().unwrap());
    let mut line = String::new();
    let pipe = server.stdout_pipe().expect("started with its output captured");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(pipe), &mut line).unwrap();
    let address = serde_json::from_str::<Value>(&line).unwrap()["listening"].as_str().unwrap().to_owned();
    for flags in [
        ["tcp-stream", "--congestion", "no_such"],
        ["udp-stream", "--sender-cpu", "4095"],
        ["udp-stream", "--receiver-cpu", "4095"],
    ] {
        let [kind, flag, value] = flags;
        let ask = || text(&run(&["test", kind, &address, "--duration", "100ms", flag, value]));
        // It serves the one before until it has seen that it is gone.
        let answers = &mut std::iter::repeat_with(ask);
        let (code, printed, said) = answers.find(|(_, _, said)| !said.contains("busy with a test")).unwrap();
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{flags:?}: {said}");
        assert!(said.contains(value), "{said}");
    }
}

/// While its receiver does not run, four thousand datagrams arrive: more than the system's buffer holds, and none is lost.
#[test]
fn a_receiver_that_does_not_run_for_a_while_loses_nothing_at_its_socket() {
    let _turn = alone();
    if !is_root() {
        return skip("a receiver that does not run", "needs root, to find the agent in its node");
    }
    let lab = TestLab::up("bridge", "pausing");
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs").display().to_string();
    let plan = plan(folder.path(), "bridge", "test udp-stream size 64 count 8000 rate 4kpps");
    let child = start(pathlab(&["run", &plan, "--lab", &lab.name, "--dir", &records, "--json"]));
    let before = lab.datagrams("b");
    lab.until_datagrams("b", before + 500);
    let receiver = lab.pids("b")[0].to_string();
    let tell =
        |signal: &str| assert!(Command::new("kill").args([signal, &receiver]).status().unwrap().success());
    tell("-STOP");
    let stopped_at = lab.datagrams("b");
    lab.until_datagrams("b", stopped_at + 4000);
    tell("-CONT");
    let (code, json, said) = text(&finish(child, Duration::from_secs(120)));
    assert_eq!(code, Some(0), "{said}");
    let run: Value = serde_json::from_str(&json).unwrap();
    let test = &run["tests"][0];
    assert_eq!(test["received"]["unique"], 8000, "{:#}", test["ledger"]);
    assert_eq!(test["receiver"]["socket_drops"], 0);
    assert!(
        test["receiver"]["settings"]["receive_buffer"].as_u64() >= Some(128 << 20),
        "{:#}",
        test["receiver"]["settings"]
    );
}

/// No host is busier than it has CPUs.
#[test]
fn the_busy_time_of_a_contest_fits_into_its_time() {
    let _turn = alone();
    let json =
        run_ok(&["bench", "peers", "--rounds", "1", "--seconds", "1", "--only", "tcp-stream", "--json"]);
    let document: Value = serde_json::from_str(&json).unwrap();
    let cpus = std::fs::read_to_string("/proc/stat").unwrap();
    let cpus =
        cpus.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count() as f64;
    for contestant in document["contests"][0]["contestants"].as_array().unwrap() {
        let score = &contestant["scores"][0];
        let number = |name: &str| score[name].as_f64().unwrap_or_else(|| panic!("no {name}: {score:#}"));
        // The kernel counts in ticks of 10 ms on each CPU, begun ones included.
        let most = cpus * (number("elapsed_seconds") + 0.04);
        assert!(number("busy_seconds") <= most, "{contestant:#}");
        assert!(number("elapsed_seconds") >= number("seconds") * 0.9, "{contestant:#}");
    }
}
