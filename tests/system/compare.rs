//! `pathlab compare`: what is planted is found, what is not there is not.

use crate::alone;
use crate::support::steal::Steal;
use crate::support::{finish, is_root, pathlab, run, run_ok, skip, start};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A slow way of so many Mbit/s, as a topology.
fn shaped(folder: &Path, mbit: u32) -> String {
    let text = include_str!("../../labs/bottleneck.lab").replace("rate 100mbit", &format!("rate {mbit}mbit"));
    let path = folder.join(format!("{mbit}.lab"));
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_tenth_is_found_and_nothing_is_not() {
    let _turn = alone();
    if !is_root() {
        return skip("a trial of two shapers", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let (slow, fast) = (shaped(folder.path(), 40), shaped(folder.path(), 44));
    let plan = folder.path().join("one.plan");
    std::fs::write(&plan, "topology pair\ntest udp-stream size 1472 duration 200ms\n").unwrap();
    let (plan, records) = (plan.display().to_string(), folder.path().join("runs").display().to_string());
    let flags = ["--plan", &plan, "--seed", "5", "--dir", &records, "--json", "--fail-if-worse"];
    let trial = |a: &str, b: &str, pairs: &str| {
        let output = run(&[&["compare", a, b, "--pairs", pairs], &flags[..]].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), json(&text(&output.stdout)), text(&output.stderr))
    };
    let steal = Steal::begin();
    let (code, found, said) = trial(&fast, &slow, "6");
    let test = &found["tests"][0];
    let is_changed = test["verdict"]["is"] == "changed";
    if !steal.holds("a trial of two shapers", is_changed, format_args!("{found:#}")) {
        return;
    }
    let effect = test["effect"]["value"].as_f64().unwrap();
    assert!((effect * 1.1 - 1.0).abs() < 0.04, "{effect}: the shapers say 1 / 1.1");
    assert!(code == Some(1) && said.contains("B is worse: rate -"), "{code:?}: {said}");
    let pairs = test["pairs"].as_array().unwrap();
    let b_first = pairs.iter().filter(|pair| pair["b_first"] == true).count();
    assert!(b_first > 0 && b_first < pairs.len(), "the order is drawn: {pairs:?}");
    // Each arm has a record of its own, and every test in it, also those of pairs that were passed over because somebody took the CPU.
    let measured = pairs.len() as u64 + test["passed_over"].as_u64().unwrap_or(0);
    for arm in ["a", "b"] {
        let id = found[arm]["run"].as_str().unwrap();
        let record = json(&run_ok(&["show", id, "--dir", &records, "--json"]));
        assert_eq!(record["tests"].as_array().unwrap().len() as u64, measured);
    }
    // Of six pairs none may be apart by more than 2 %, of eight one small one.
    let (code, nothing, _) = trial(&slow, &slow, "8");
    let is_same = code == Some(0) && nothing["tests"][0]["verdict"]["is"] == "same";
    steal.holds("a trial of a shaper with itself", is_same, format_args!("{nothing:#}"));
}

/// The short form of what `docs/compare.md` has the table of.
#[test]
fn the_benchmark_of_trials_counts_verdicts() {
    let _turn = alone();
    if !is_root() {
        return skip("the benchmark of trials", "needs root");
    }
    let flags =
        ["bench", "trial", "--trials", "1", "--pairs", "6", "--milliseconds", "50", "--only", "a ", "--json"];
    let steal = Steal::begin();
    let output = run(&flags);
    let said = String::from_utf8_lossy(&output.stderr);
    if !steal.holds("the benchmark of trials", output.status.success(), said) {
        return;
    }
    let document = json(&String::from_utf8_lossy(&output.stdout));
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 3, "two of a shaper, and a knob");
    for result in results {
        let of = |verdict: &str| result[verdict].as_u64().unwrap();
        assert_eq!(of("better") + of("worse") + of("same") + of("unknown"), 1, "{result}");
        assert_eq!(result["pairs"], 6.0, "{result}");
    }
    let planted = results.iter().find(|result| result["is_better"] == true).unwrap();
    steal.holds("the benchmark of trials", planted["better"] == 1, planted);
}

#[test]
fn what_cannot_be_compared_is_one_sentence() {
    let refused = |arguments: &[&str], expected: &str| {
        let output = finish(start(pathlab(arguments)), Duration::from_secs(60));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(expected), "{arguments:?}: {said}");
    };
    refused(&["compare", "bridge", "airship"], "'airship' is no way, no topology and no plan");
    refused(&["compare", "bridge", "no-such.plan"], "no-such.plan");
    refused(&["compare", "bridge", "direct", "--same-within", "2"], "is not a share");
    refused(&["compare", "bridge", "direct", "--figure", "speed"], "the figures are throughput");
    if is_root() {
        refused(&["compare", "bridge", "direct", "--only", "tcp-stream", "--figure", "p99"], "has no p99");
        refused(&["compare", "bridge", "plans/exact.plan"], "A has 6 tests and B has 4 tests");
    }
}
