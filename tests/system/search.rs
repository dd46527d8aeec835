//! `pathlab tune search`: of many settings the one that cures a planted slow path, without what does not help, and nothing else.

use crate::alone;
use crate::support::steal::Steal;
use crate::support::{TestLab, installed, is_root, pathlab, run, run_ok, skip, start};
use serde_json::Value;
use std::time::Duration;

const WINDOW: &str = "b/net.ipv4.tcp_rmem=4096 131072 6291456";
const NOTHING: &str = "b/net.ipv4.ip_default_ttl=65";

/// What an independent tool says of a node.
fn inside(lab: &TestLab, node: &str, line: &str) -> String {
    lab.inside(node, line).unwrap_or_else(|why| panic!("{line}: {why}"))
}

/// All that is searched, as other tools see it.
fn state(lab: &TestLab) -> String {
    let sysctls = inside(lab, "b", "sysctl net.ipv4.tcp_rmem net.ipv4.ip_default_ttl");
    sysctls + &inside(lab, "a", "ethtool -k eth0")
}

#[test]
fn the_cure_is_found_among_others_and_kept_and_undone() {
    let _turn = alone();
    if !is_root() || !installed("sysctl") || !installed("ethtool") {
        return skip("searches of settings", "needs root, sysctl and ethtool");
    }
    let lab = TestLab::up("pair", "search");
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("one.plan");
    std::fs::write(&plan, "topology pair\ntest tcp-stream duration 100ms\n").unwrap();
    let (plan, records) = (plan.display().to_string(), folder.path().join("runs").display().to_string());
    // A window of one segment: a slow path whatever else goes on.
    inside(&lab, "b", "sysctl -qw net.ipv4.tcp_rmem='4096 4096 4096'");
    let planted = state(&lab);
    let flags = ["--lab", &lab.name, "--plan", &plan, "--dir", &records];
    let asked = |changes: &[&'static str]| [&["tune", "search"], changes, &flags].concat();
    let searched = |changes: &[&'static str], more: &[&str]| {
        let output = run(&[&asked(changes), more].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).ok(), said)
    };
    // With the time that it asks for, however fast this machine is.
    let given_time = |changes: &[&'static str], most_pairs: &str| {
        let mut budget = "10s".to_owned();
        for _ in 0..4 {
            let ended = searched(changes, &["--budget", &budget, "--pairs", most_pairs, "--json"]);
            let advised = ended.2.split_once("give at least --budget ").filter(|_| ended.0 == Some(2));
            let Some((_, advice)) = advised else { return ended };
            budget = advice.split(',').next().unwrap().to_owned();
        }
        panic!("the time that it asked for was too short three times, at last {budget}")
    };

    let already = "b/net.ipv4.tcp_rmem=4096 4096 4096";
    let steal = Steal::begin();
    let (code, found, said) = given_time(&[WINDOW, already, NOTHING], "8");
    let found = found.unwrap_or(Value::Null);
    let proof = &found["proof"];
    let is_found = code == Some(0) && proof["is_better"] == true;
    if !steal.holds("searches of settings", is_found, format_args!("{found:#} {said}")) {
        run_ok(&["tune", "undo", "--all"]);
        assert_eq!(state(&lab), planted, "it is undone");
        return;
    }
    assert_eq!((found["possible"].as_u64(), found["settings"].as_array().unwrap().len()), (Some(4), 4));
    assert_eq!(found["left_out"][0]["change"], already, "{found:#}");
    assert!(proof["change"].as_str().unwrap().starts_with(WINDOW), "{proof:#}");
    let kept = found["kept"].as_array().unwrap();
    assert!(kept.iter().any(|knob| knob["name"] == "sysctl net.ipv4.tcp_rmem"), "{found:#}");
    let window = inside(&lab, "b", "sysctl -n net.ipv4.tcp_rmem");
    assert_eq!(window.split_whitespace().collect::<Vec<_>>(), ["4096", "131072", "6291456"]);
    // Every measurement is in the record, with its setting in its name.
    let shown = run_ok(&["show", found["run"].as_str().unwrap(), "--dir", &records, "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let tests = shown["tests"].as_array().unwrap();
    assert!(tests.iter().any(|test| test["name"].as_str().unwrap().contains(NOTHING)), "{shown:#}");
    run_ok(&["tune", "undo", "--all"]);
    assert_eq!(state(&lab), planted, "it is undone");

    // Nothing here can help: nothing is kept. One trial in some sixty finds it better by chance (six pairs alike), two on end hardly.
    let is_seen = (0..2).any(|_| {
        let (code, none, said) = given_time(&[NOTHING], "6");
        let none = none.unwrap_or_else(|| panic!("{said}"));
        let is_better = none["proof"]["is_better"] == true;
        assert_eq!(
            (code, none["kept"].as_array().unwrap().is_empty()),
            (Some(i32::from(!is_better)), !is_better)
        );
        run_ok(&["tune", "undo", "--all"]);
        assert_eq!(state(&lab), planted, "nothing is left");
        !is_better
    });
    let what = "a search among changes that do nothing";
    if !steal.holds(what, is_seen, "a change that does nothing is found to be better") {
        return;
    }

    // Too little time is said before the search begins, and so is what cannot be.
    let (code, _, said) = searched(&[WINDOW, NOTHING], &["--budget", "500ms"]);
    assert!(code == Some(2) && said.contains("give at least --budget"), "{said}");
    let (code, _, said) = searched(&["--goal", "throughput"], &["--budget", "500ms"]);
    assert!(code == Some(2) && said.contains("give at least --budget"), "{said}");
    let (code, _, said) = searched(&["--goal", "latency"], &[]);
    assert!(code == Some(2) && said.contains("no test of the plan is about latency"), "{said}");
    let (code, _, said) = searched(&[already], &[]);
    assert!(code == Some(2) && said.contains("nothing is left to try"), "{said}");
    let (code, _, said) = searched(&["b/eth0:no.such=1"], &[]);
    assert!(code == Some(2) && said.contains("no.such"), "{said}");

    // Whatever is being measured when it is killed.
    let words = asked(&[WINDOW, NOTHING]);
    for moment in 0..3u64 {
        let mut search = start(pathlab(&words));
        std::thread::sleep(Duration::from_millis(900 + 370 * moment));
        search.kill().unwrap();
        search.wait().unwrap();
        run_ok(&["undo"]);
        assert_eq!(state(&lab), planted, "killed at moment {moment}");
    }
}
