//! The benchmarks of ports, with grids of seconds: that they run, are written down, go on after a kill, and parse.
//! What they measure is not judged here.

use crate::capture::until;
use crate::support::again::play;
use crate::support::{finish, installed, is_root, pathlab, run, run_ok, skip, start};
use crate::{alone, loud, loud_for_long};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Flags of the smallest grid of `bench capture`.
const SMALL: [&str; 12] = [
    "bench",
    "capture",
    "--only",
    "int,ring,ring-v2",
    "--sizes",
    "64",
    "--rings",
    "32,64",
    "--rates",
    "20k",
    "--seconds",
    "0.1",
];

fn permitted(what: &str) -> bool {
    let two = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2);
    if !is_root() {
        skip(what, "it needs root");
    } else if !two {
        skip(what, "it needs two CPUs");
    }
    is_root() && two
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn only_directory(root: &Path) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(root).ok()?.flatten();
    Some(entries.next()?.path())
}

fn lines(directory: &Path) -> usize {
    std::fs::read_to_string(directory.join("cells.jsonl")).unwrap_or_default().lines().count()
}

#[test]
fn a_capture_benchmark_goes_on_after_a_kill() {
    let _turn = loud();
    if !permitted("a benchmark that was killed") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let mut child = start(pathlab(&[&SMALL[..], &["--dir", &root, "--json"]].concat()));
    let deadline = Instant::now() + Duration::from_secs(90);
    let directory = loop {
        if let Some(directory) = only_directory(folder.path())
            && lines(&directory) >= 2
        {
            break directory;
        }
        assert!(Instant::now() < deadline, "no cell was written");
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(5));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    run_ok(&["undo"]);
    let kept = std::fs::read_to_string(directory.join("cells.jsonl")).unwrap();
    // As a kill in the middle of a line leaves it.
    std::fs::write(directory.join("cells.jsonl"), format!("{kept}{{\"cell\":")).unwrap();

    let path = directory.display().to_string();
    let page = folder.path().join("page.html").display().to_string();
    let text = run_ok(&["bench", "capture", "--resume", &path, "--json", "--report", &page]);
    let document = json(&text);
    assert_eq!(document["schema"], "pathlab/bench-capture/1");
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 6, "three ports, two rings");
    assert!(std::fs::read_to_string(directory.join("cells.jsonl")).unwrap().starts_with(&kept));
    for result in results {
        assert!(result["problem"].is_null(), "{result}");
        assert!(result["offered"].as_u64() > Some(0) && result["captured"].as_u64() > Some(0), "{result}");
        let drops = result["drops"].as_array().unwrap();
        let lost: u64 = drops.iter().map(|drop| drop["count"].as_u64().unwrap()).sum();
        let sum = result["captured"].as_u64().unwrap() + lost;
        let residual = result["arrived"].as_i64().unwrap() - sum as i64;
        assert_eq!(result["residual"].as_i64(), Some(residual));
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("Loss over ring size"));
    run_ok(&["report", &path, "-o", &page]);
}

#[test]
fn a_send_benchmark_counts_what_left() {
    let _turn = loud();
    if !permitted("a benchmark of senders") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let flags = ["bench", "send", "--sizes", "64", "--seconds", "0.1", "--dir", &root, "--json"];
    let document = json(&run_ok(&flags));
    let results = document["results"].as_array().unwrap();
    assert_eq!((results.len(), document["schema"].as_str()), (9, Some("pathlab/bench-send/1")));
    for result in results {
        assert!(result["problem"].is_null(), "{result}");
        assert!(
            result["transmitted"].as_u64() >= result["claimed"].as_u64(),
            "more claimed than sent: {result}"
        );
    }
}

#[test]
fn rivals_are_started_stopped_and_read() {
    let _turn = loud_for_long();
    if !permitted("benchmarks against rivals") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let small = ["--rounds", "1", "--seconds", "0.2", "--dir", &root, "--json"];
    let capture = [&["bench", "capture", "--peers", "--rates", "20k"], &small[..]].concat();
    let send = [&["bench", "send", "--peers"], &small[..]].concat();
    for (command, programs) in
        [(capture, &["tcpdump", "tracestats", "netsniff-ng"][..]), (send, &["trafgen"][..])]
    {
        let output = finish(start(pathlab(&command)), Duration::from_secs(180));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let document = json(&String::from_utf8_lossy(&output.stdout));
        let results = document["results"].as_array().unwrap();
        let absent = document["head"]["absent"].to_string();
        for program in programs {
            let name =
                |result: &&serde_json::Value| result["cell"]["tool"].as_str().unwrap().starts_with(program);
            let found: Vec<_> = results.iter().filter(name).collect();
            if !installed(program) {
                skip(program, "it is not installed");
                assert!(absent.contains(program) && found.is_empty(), "{absent}");
                continue;
            }
            assert!(!found.is_empty());
            assert!(found.iter().all(|result| result["problem"].is_null()), "{found:?}");
        }
    }
}

/// Every arm carries frames with few rules and with many, or says why it cannot; what was stopped between its turns is gone at the end.
#[test]
fn switches_are_measured_beside_each_other() {
    // Each is asked to carry some frames, in 50 ms, within which a switch that gets no CPU carries none.
    let _turn = alone();
    if !permitted("a benchmark of switches") {
        return;
    }
    let flags = ["bench", "switch", "--rounds", "1", "--milliseconds", "50", "--rules", "2,50", "--frames"];
    let once = || {
        let output = finish(start(pathlab(&[&flags[..], &["--json"]].concat())), Duration::from_secs(180));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let document = json(&String::from_utf8_lossy(&output.stdout));
        let nothing = |result: &&serde_json::Value| result["frames_per_s"]["median"] == 0.0;
        let idle = document["results"].as_array().unwrap().iter().find(nothing);
        let why = idle.map(|result| format!("{} carried nothing", result["arm"]));
        (document, why)
    };
    let document = play("benchmarks of switches", "of 50 ms", 2, once);
    let (results, absent) = (document["results"].as_array().unwrap(), document["absent"].as_array().unwrap());
    assert_eq!(results.len() + absent.len(), 22, "{document}");
    for result in results {
        let is_switch = !result["of_null"].is_null();
        assert!(result["frames_per_s"]["median"].as_f64().unwrap() > 1000.0, "{result}");
        assert!(result["of_bridge"]["median"].as_f64().unwrap() > 0.0, "{result}");
        assert_eq!(
            is_switch,
            !["kernel bridge", "null ring", "null xdp"].map(Into::into).contains(&result["arm"])
        );
        assert_eq!(result["program_ns_per_frame"].is_null(), result["arm"] == "kernel bridge", "{result}");
    }
    absent.iter().for_each(|why| assert!(why.as_str().unwrap().starts_with("Open vSwitch"), "{why}"));

    let mut killed = start(pathlab(&flags));
    let own = format!("-{}", killed.id());
    let programs = || {
        let labs = json(&run_ok(&["lab", "list", "--json"]));
        labs["labs"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|lab| lab["name"].as_str().unwrap().ends_with(&own))
            .count()
    };
    until("labs of the benchmark", || programs() > 3);
    killed.kill().unwrap();
    killed.wait().unwrap();
    run_ok(&["lab", "list"]);
    assert_eq!(programs(), 0, "labs with stopped programs go, too");
}

#[test]
fn changes_of_rules_are_measured_beside_traffic() {
    let _turn = loud();
    if !permitted("a benchmark of changes") {
        return;
    }
    let flags =
        ["bench", "updates", "--rounds", "1", "--seconds", "1", "--rules", "300", "--only", "native ring"];
    let document = json(&run_ok(&[&flags[..], &["--json"]].concat()));
    let results = document["results"].as_array().unwrap();
    let phases: Vec<_> = results.iter().map(|result| result["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["quiet", "one by one", "bundles"]);
    for result in results {
        assert_eq!(result["updates_per_s"].is_null(), result["phase"] == "quiet", "{result}");
        assert!(
            result["updates_per_s"].is_null() || result["updates_per_s"]["low"].as_f64().unwrap() > 100.0
        );
        assert!(result["max_ns"]["high"].as_f64() >= result["p50_ns"]["low"].as_f64(), "{result}");
    }
}

/// The signal of a `kill`, which does not reach the agents as that of a terminal does.
#[test]
fn an_interrupt_ends_a_benchmark_between_its_agents() {
    let _turn = loud();
    if !permitted("an interrupted benchmark") {
        return;
    }
    let arguments = ["bench", "peers", "--only", "counting udp", "--seconds", "60", "--rounds", "1"];
    let child = start(pathlab(&arguments));
    let pid = child.id();
    until("both agents run", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children =
            tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
        children.map(|line| line.split_whitespace().count()).sum::<usize>() >= 2
    });
    let status = crate::support::command("kill").args(["-INT", &pid.to_string()]).status().unwrap();
    assert!(status.success());
    let output = finish(child, Duration::from_secs(40));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), words.contains("interrupted")), (Some(130), true), "{words}");
}

/// It has no lab and no agents, and ends as the others do when a supervisor ends it.
#[test]
fn a_benchmark_of_pipelines_ends_by_a_signal_as_the_others_do() {
    let _turn = loud();
    let arguments = ["bench", "flow", "--only", "seed2", "--engine", "interpreter", "--rounds", "1000"];
    let child = start(pathlab(&arguments));
    let pid = child.id();
    until("the signal is caught", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        // SIGTERM is 15, and the lowest bit is that of 1.
        caught.is_some_and(|mask| mask >> 14 & 1 == 1)
    });
    let status = crate::support::command("kill").args(["-TERM", &pid.to_string()]).status().unwrap();
    assert!(status.success());
    let output = finish(child, Duration::from_secs(40));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), words.contains("interrupted")), (Some(130), true), "{words}");
}

#[test]
fn a_grid_that_cannot_be_is_refused_before_anything_is_built() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("none").display().to_string();
    let cases: [(&[&str], &str); 10] = [
        (&["bench", "capture", "--only", "nobody"], "'nobody' is not a tool"),
        (&["bench", "peers", "--only", "snabb"], "no contest begins with 'snabb'"),
        (&["bench", "switch", "--only", "snabb"], "begins with 'snabb'"),
        (&["bench", "switch", "--rules", "1"], "there are 2 to 1000000"),
        (&["bench", "updates", "--only", "kernel"], "follows no rules"),
        (&["bench", "updates", "--rules", "2"], "at least three"),
        (&["bench", "capture", "--sizes", "63"], "64 to 1518"),
        (&["bench", "send", "--rates", "fast"], "50k"),
        (&["bench", "capture", "--resume", &nothing], "cannot read the benchmark"),
        (&["bench", "capture", "--cpus", "0,100000"], "CPU 100000"),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.contains(expected), "{arguments:?}: {words}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
    }
}
