//! `pathlab prove`: a planted slow path is found to be slow, its cure is kept, and what does not help is put back.

use crate::support::steal::Steal;
use crate::support::{TestLab, installed, is_root, pathlab, run, run_ok, skip, start};
use crate::{alone, beside};
use serde_json::Value;
use std::time::Duration;

/// What an independent tool says of a node.
fn inside(lab: &TestLab, node: &str, line: &str) -> String {
    lab.inside(node, line).unwrap_or_else(|why| panic!("{line}: {why}"))
}

#[test]
fn a_cure_is_kept_and_what_does_not_help_is_put_back() {
    let _turn = alone();
    if !is_root() || !installed("sysctl") {
        return skip("proofs of knobs", "needs root and sysctl");
    }
    let lab = TestLab::up("pair", "prove");
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("one.plan");
    std::fs::write(&plan, "topology pair\ntest tcp-stream duration 150ms\n").unwrap();
    let (plan, records) = (plan.display().to_string(), folder.path().join("runs").display().to_string());
    // A window of one segment: a slow path whatever else goes on.
    inside(&lab, "b", "sysctl -w net.ipv4.tcp_rmem='4096 4096 4096'");
    let prove = |change: &str| {
        let flags = ["--lab", &lab.name, "--plan", &plan, "--dir", &records, "--pairs", "6", "--json"];
        let output = run(&[&["prove", change], &flags[..]].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let document: Value = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("{e}: {text}{}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code(), document)
    };
    let steal = Steal::begin();
    let (code, cure) = prove("b/net.ipv4.tcp_rmem=4096 131072 6291456");
    let proof = &cure["proofs"][0];
    let is_better = code == Some(0) && proof["is_better"] == true;
    if !steal.holds("proofs of knobs", is_better, format_args!("{proof:#}")) {
        return;
    }
    assert_eq!(cure["kept"].as_array().unwrap().len(), 1, "{cure:#}");
    let now = inside(&lab, "b", "sysctl -n net.ipv4.tcp_rmem");
    assert_eq!(now.split_whitespace().collect::<Vec<_>>(), ["4096", "131072", "6291456"], "it is kept");

    // It changes nothing that this test could feel.
    let before = inside(&lab, "b", "sysctl net.ipv4.ip_default_ttl");
    let (code, nothing) = prove("b/net.ipv4.ip_default_ttl=65");
    assert!(code == Some(1) && nothing["proofs"][0]["is_better"] == false, "{nothing:#}");
    assert!(nothing["kept"].as_array().unwrap().is_empty());
    assert_eq!(inside(&lab, "b", "sysctl net.ipv4.ip_default_ttl"), before, "it is put back");

    // It goes with its lab, and so does what would undo it.
    let changes = || -> usize {
        let diff: Value = serde_json::from_str(&crate::support::run_ok(&["tune", "diff", "--json"])).unwrap();
        let of_ours =
            |change: &&Value| change["name"] == "sysctl net.ipv4.tcp_rmem" && change["now"].is_null();
        diff["changes"].as_array().unwrap().iter().filter(of_ours).count()
    };
    let refused = run(&["prove", "a/eth0:no.such=1", "--lab", &lab.name, "--plan", &plan]);
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
    drop(lab);
    assert_eq!(changes(), 0, "a change of a lab that is gone");
}

/// From the slow path to the kept cure in one command, and back to the exact state.
#[test]
fn what_the_doctor_advises_is_tried_and_kept_and_undone() {
    let _turn = alone();
    if !is_root() || !installed("sysctl") || !installed("ethtool") {
        return skip("proofs of what the doctor advises", "needs root, sysctl and ethtool");
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("one.plan");
    std::fs::write(&plan, "topology pair\ntest tcp-stream duration 150ms\n").unwrap();
    let (plan, records) = (plan.display().to_string(), folder.path().join("runs").display().to_string());
    let segmentation = "ethtool -k eth0 | grep -e ^tcp-seg -e ^generic-seg";
    // What the rule looks at, and a window that belongs to the other end.
    for (node, plant, state, rule, change) in [
        ("a", "ethtool -K eth0 tso off gso off", segmentation, "OFF-01", "a/eth0:feature."),
        (
            "b",
            "sysctl -qw net.ipv4.tcp_rmem='4096 8192 16384'",
            "sysctl -n net.ipv4.tcp_rmem",
            "TCP-01",
            "b/net.ipv4.tcp_rmem=4096 ",
        ),
    ] {
        let lab = TestLab::up("pair", "advised");
        inside(&lab, node, plant);
        let planted = inside(&lab, node, state);
        let flags = ["--lab", &lab.name, "--plan", &plan, "--dir", &records, "--pairs", "6", "--json"];
        let steal = Steal::begin();
        let output = run(&[&["prove", "--doctor"], &flags[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let document: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
        let suspects = document["suspects"].as_array().unwrap_or_else(|| panic!("{document:#} {said}"));
        let of_rule = |one: &&Value| one["rule"] == rule && one["left_out"].is_null();
        let suspect = suspects.iter().find(of_rule).unwrap_or_else(|| panic!("{suspects:#?}"));
        assert!(suspect["change"].as_str().unwrap().starts_with(change), "{suspect:#}");
        let proofs = document["proofs"].as_array().unwrap();
        let proof = proofs.iter().find(|one| one["change"] == suspect["change"]).unwrap();
        let is_better = output.status.code() == Some(0) && proof["is_better"] == true;
        if steal.holds(&format!("the proof of {rule}"), is_better, format_args!("{proof:#} {said}")) {
            assert_ne!(inside(&lab, node, state), planted, "it is kept");
        }
        crate::support::run_ok(&["tune", "undo", "--all"]);
        assert_eq!(inside(&lab, node, state), planted, "it is undone");
    }
}

/// Whatever arm is being measured, and whether a knob is being set or put back: the next command leaves the lab as it was.
#[test]
fn a_proof_that_is_killed_leaves_the_lab_as_it_was() {
    const KILLS: u32 = 12;
    let _turn = beside();
    if !is_root() || !installed("sysctl") {
        return skip("proofs that are killed", "needs root and sysctl");
    }
    let lab = TestLab::up("pair", "killed");
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("one.plan");
    std::fs::write(&plan, "topology pair\ntest udp-rr duration 50ms\n").unwrap();
    let (plan, records) = (plan.display().to_string(), folder.path().join("runs").display().to_string());
    let ttl = || inside(&lab, "b", "sysctl -n net.ipv4.ip_default_ttl");
    let before = ttl();
    let mut changed = 0;
    for moment in 0..KILLS {
        let flags = ["b/net.ipv4.ip_default_ttl=65", "--lab", &lab.name, "--plan", &plan, "--dir", &records];
        let mut proof = start(pathlab(&[&["prove"], &flags[..]].concat()));
        std::thread::sleep(Duration::from_millis(200 + 130 * u64::from(moment)));
        proof.kill().unwrap();
        proof.wait().unwrap();
        changed += u32::from(ttl() != before);
        run_ok(&["undo"]);
        assert_eq!(ttl(), before, "killed at moment {moment}");
    }
    assert!(changed > 0, "no kill found the knob changed");
}
