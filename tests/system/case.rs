//! `pathlab case`: what is planted is a bug candidate and its setting is named; what this kernel cannot is no pass.

use crate::alone;
use crate::support::steal::Steal;
use crate::support::{is_root, run, run_ok, skip};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Two settings, of which one makes the window of a connection a segment or two: a slow path whatever else goes on.
pub const PLANTED: &str = "case planted\n\
    question Are two settings harmless?\n\
    source this test\n\
    topology pair\n\
    test tcp-stream duration 25ms\n\
    set-b b/net.ipv4.tcp_rmem=4096 4096 4096\n\
    set-b a/net.ipv4.ip_default_ttl=66\n\
    expect not-worse by 50%\n";

#[test]
fn a_planted_slow_down_is_a_bug_candidate_and_its_setting_is_named() {
    let _turn = alone();
    if !is_root() {
        return skip("a case with a planted slow-down", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("planted.case").display().to_string();
    std::fs::write(&file, PLANTED).unwrap();
    let records = folder.path().join("runs").display().to_string();
    let flags = ["case", "run", &file, "--bisect", "--pairs", "6", "--seed", "5", "--dir", &records];
    let steal = Steal::begin();
    let output = run(&[&flags[..], &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let document = json(&String::from_utf8_lossy(&output.stdout));
    let case = &document["cases"][0];
    let ended = (output.status.code(), case["verdict"].as_str());
    let is_candidate = ended == (Some(1), Some("bug_candidate"));
    if !steal.holds("a case with a planted slow-down", is_candidate, format_args!("{ended:?} {said}")) {
        return;
    }
    assert!(said.contains("1 bug candidate: planted: throughput -"), "{said}");
    // Stated with an interval that lies where it was not expected.
    assert!(case["trial"]["tests"][0]["effect"]["high"].as_f64().unwrap() < 1.0 / 1.5, "{case:#}");
    let alone: Vec<(&str, bool)> = case["alone"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["change"].as_str().unwrap(), one["makes_it"].as_bool().unwrap()))
        .collect();
    let wanted = [("b/net.ipv4.tcp_rmem=4096 4096 4096", true), ("a/net.ipv4.ip_default_ttl=66", false)];
    steal.holds("the changes of a case alone", alone == wanted, format_args!("{case:#}"));
    // Each arm has a record like any run.
    let id = case["trial"]["b"]["run"].as_str().unwrap();
    let record = json(&run_ok(&["show", id, "--dir", &records, "--json"]));
    // Pairs that cannot be used (not valid, on a busy host) are measured again and stay in the record.
    let test = &case["trial"]["tests"][0];
    let pairs = test["pairs"].as_array().unwrap().len() as u64 + test["passed_over"].as_u64().unwrap();
    assert_eq!(record["tests"].as_array().unwrap().len() as u64, pairs, "{test:#}");
}

/// Two paths that differ in their topology alone: one has a shaper at its end, the other frames that are cut before they leave.
const TOPOLOGIES: [(&str, &str); 2] =
    [("shaped", "rate 4mbit limit 30000 burst 2000"), ("cut", "tso off gso off")];

/// Cases without a setting, so that no knob can be named.
fn case_of_topologies(folder: &std::path::Path, name: &str, test: &str) -> String {
    let text = |end: &str| {
        format!(
            "node a b\nlink a:eth0 -- b:eth0\ninterface a:eth0 address 10.0.0.1/24 {end}\n\
            interface b:eth0 address 10.0.0.2/24\n"
        )
    };
    let plain = folder.join("plain.lab").display().to_string();
    std::fs::write(&plain, text("")).unwrap();
    let other = folder.join(format!("{name}.lab")).display().to_string();
    let end = TOPOLOGIES.iter().find(|(known, _)| *known == name).unwrap().1;
    std::fs::write(&other, text(end)).unwrap();
    let file = folder.join(format!("{name}.case")).display().to_string();
    let case = format!(
        "case {name}\nquestion Is that path as fast?\nsource this test\ntopology {plain}\ntopology-b {other}\n\
        test {test}\nexpect same within 5%\n"
    );
    std::fs::write(&file, case).unwrap();
    file
}

#[test]
fn a_slow_down_without_a_setting_is_named_by_its_layer() {
    let _turn = alone();
    if !is_root() {
        return skip("the layer of a slow-down", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs").display().to_string();
    let shaped = case_of_topologies(folder.path(), "shaped", "tcp-rr size 1400 duration 200ms");
    let cut = case_of_topologies(folder.path(), "cut", "tcp-stream duration 50ms");
    let steal = Steal::begin();
    let flags = ["case", "run", &shaped, &cut, "--layers=1", "--pairs", "6", "--dir", &records, "--json"];
    let output = run(&flags);
    let document = json(&String::from_utf8_lossy(&output.stdout));
    let [shaped, cut] = [0, 1].map(|case| &document["cases"][case]);
    let test = &shaped["trial"]["tests"][0];
    // A request of 1,466 bytes waits some 2.9 ms for its turn at 4 Mbit/s; a round trip without takes a few tens of microseconds.
    let layer = &test["layer"];
    let is_named = shaped["verdict"] == "bug_candidate" && layer["layer"] == "qdisc a:eth0";
    if !steal.holds("the layer of a slow-down", is_named, format_args!("{shaped:#}")) {
        return;
    }
    let [longer_ns, of_ns] = ["longer_ns", "of_ns"].map(|name| layer[name].as_f64().unwrap());
    assert!((1e6..4e6).contains(&longer_ns) && layer["in_b"] == true && of_ns > 0.0, "{layer}");
    let differs = |test: &Value, what: &str, place: &str| -> Vec<(f64, f64)> {
        let all = test["differences"].as_array().unwrap().iter();
        let those = all.filter(|one| one["what"] == what && one["where"] == place);
        those.map(|one| (one["a"].as_f64().unwrap(), one["b"].as_f64().unwrap())).collect()
    };
    assert_eq!(differs(test, "time in a layer", "qdisc a:eth0").len(), 1, "{test:#}");
    // Super-frames, which hold up to 44 segments, are cut between the hook of the sender's end and that of the receiver's.
    let segments = differs(&cut["trial"]["tests"][0], "segments per frame", "b:eth0 in");
    assert!(matches!(segments[..], [(a, b)] if a > 4.0 && b == 1.0), "{cut:#}");
    // It ends like any bug candidate.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("bug candidate"), "{said}");
}

#[test]
fn what_holds_is_as_expected_and_what_cannot_be_run_is_no_pass() {
    let _turn = alone();
    if !is_root() {
        return skip("a case that holds", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("good.case").display().to_string();
    let good = PLANTED.replace("set-b b/net.ipv4.tcp_rmem", "set-a b/net.ipv4.tcp_rmem");
    std::fs::write(&file, good.replace("not-worse by 50%", "better by 50%")).unwrap();
    let records = folder.path().join("runs").display().to_string();
    let steal = Steal::begin();
    let output = run(&["case", "run", &file, "rx-coalescing", "--pairs", "6", "--dir", &records]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdicts = |wanted: &str| table.lines().filter(|line| line.trim_end().ends_with(wanted)).count();
    assert_eq!(verdicts("cannot be run here"), 1, "{table}");
    let is_expected = output.status.code() == Some(0) && verdicts("as expected") == 1;
    steal.holds("a case that holds", is_expected, &table);
    // A lab's interfaces have no coalescing, says ethtool of them, too (tests of `tune`); so no case was run.
    let output = run(&["case", "run", "rx-coalescing", "--dir", &records]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(3) && said.contains("no case could be run here"), "{said}");
}

fn has_effect(file: &str) -> bool {
    let run = json(&std::fs::read_to_string(file).unwrap());
    run["cases"][0]["trial"]["tests"][0]["effect"].is_object()
}

/// Multiplies every effect that a file of results has.
fn multiplied(file: &str, by: f64, into: &str) {
    let mut run = json(&std::fs::read_to_string(file).unwrap());
    let effect = run["cases"][0]["trial"]["tests"][0]["effect"].as_object_mut().unwrap();
    effect.values_mut().for_each(|value| *value = Value::from(value.as_f64().unwrap() * by));
    run["label"] = Value::from("planted");
    std::fs::write(into, run.to_string()).unwrap();
}

#[test]
fn an_effect_that_was_better_before_is_a_regression() {
    let _turn = alone();
    if !is_root() {
        return skip("a case beside an earlier run", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (file, first, planted) = (path("planted.case"), path("first.json"), path("planted.json"));
    // A gain of many times, so that no moment of a busy host is as large.
    let text = PLANTED.replace("set-b b/net.ipv4.tcp_rmem", "set-a b/net.ipv4.tcp_rmem");
    std::fs::write(&file, text).unwrap();
    let flags = ["case", "run", &file, "--pairs", "6", "--dir", &path("runs")];
    let steal = Steal::begin();
    let before = run(&[&flags[..], &["-o", &first]].concat());
    let said = String::from_utf8_lossy(&before.stdout).into_owned();
    let has_effect = before.status.success() && has_effect(&first);
    if !steal.holds("a case beside an earlier run", has_effect, said) {
        return;
    }
    multiplied(&first, 100.0, &planted);

    let output = run(&[&flags[..], &["--against", &planted, "--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let change = json(&String::from_utf8_lossy(&output.stdout))["cases"][0]["earlier"].clone();
    let is_worse = output.status.code() == Some(1) && change["verdict"] == "worse";
    if !steal.holds("a case beside an earlier run", is_worse, format_args!("{change:#} {said}")) {
        return;
    }
    assert!(
        said.contains("1 regression: planted: throughput +") && said.contains("on planted, Linux"),
        "{said}"
    );
    assert!(change["ratio"]["high"].as_f64().unwrap() < 1.0 / 1.5, "{change:#}");

    // The same beside each other; what did not get worse is none.
    let output = run(&["case", "matrix", &planted, &first]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(1) && table.contains("regression: throughput +"), "{table}");
    assert!(run_ok(&["case", "matrix", &first, &planted]).contains("planted: better than then: throughput"));
    assert!(run_ok(&["case", "matrix", &first, &first]).contains("planted"));

    // One with shorter tests is another case, and what is there is not written over.
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap().replace("25ms", "20ms")).unwrap();
    let other = run(&[&flags[..], &["--against", &first]].concat());
    let other = String::from_utf8_lossy(&other.stdout).into_owned();
    assert!(other.contains("not comparable: the case was another one then"), "{other}");
    let output = run(&[&flags[..], &["-o", &first]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("first.json: this file exists"), "{said}");
}

/// Truth from outside: what iproute2 says when it is asked to make such an interface.
#[test]
fn what_a_kernel_lacks_is_what_ip_cannot_make() {
    if !is_root() || !crate::support::installed("ip") || !crate::support::installed("unshare") {
        return skip("what this kernel lacks", "needs root, ip and unshare");
    }
    let list = json(&run_ok(&["case", "list", "bonding", "bonding-vlan", "tso", "--json"]));
    let cannot = |at: usize| list["cases"][at]["cannot"].as_str().map(str::to_owned);
    assert_eq!(cannot(2), None, "{list:#}");
    let made = std::process::Command::new("unshare")
        .args(["-n", "ip", "link", "add", "bond7", "type", "bond"])
        .output()
        .unwrap();
    let wanted =
        if made.status.success() { "the topologies of pathlab have no bonds" } else { "CONFIG_BONDING" };
    for at in [0, 1] {
        assert!(cannot(at).unwrap().contains(wanted), "{list:#}");
    }
}

#[test]
fn a_wrong_case_is_one_sentence() {
    let refused = |arguments: &[&str], expected: &str| {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(expected), "{arguments:?}: {said}");
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.case").display().to_string();
    std::fs::write(&file, PLANTED.replace("expect", "wants")).unwrap();
    refused(&["case", "run", &file], "x.case:8:1: unknown statement 'wants'");
    refused(&["case", "list", "air"], "there is no case 'air'");
    refused(&["case", "run", "no-such.case"], "no-such.case: cannot read the case");
    refused(&["case", "run", "tso", "--against", &file], "x.case: this is no run of cases");
    std::fs::write(&file, r#"{"schema": "pathlab/trial/1", "host": {}}"#).unwrap();
    refused(&["case", "matrix", &file, &file], "this is 'pathlab/trial/1', and pathlab/cases/1 is read here");
    refused(&["case", "matrix", &file], "2 values required");
    refused(
        &["doctor", "--facts", "/dev/zero"],
        "/dev/zero: the facts cannot be read: it is longer than 1 GiB",
    );
    if is_root() {
        std::fs::write(&file, PLANTED.replace("ip_default_ttl=66", "no_such_knob=1")).unwrap();
        refused(&["case", "run", &file], "no_such_knob");
    }
}
