//! `pathlab prove`: a planted slow path is found to be slow, its cure is kept, and what does not help is put back.

use crate::support::steal::Steal;
use crate::support::turn::at_once;
use crate::support::{TestLab, again, installed, is_root, pathlab, run, run_ok, skip, start};
use crate::tcp_verdicts::{WIRE, wire};
use crate::{alone, beside};
use serde_json::Value;
use std::time::{Duration, Instant};

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

    // It changes nothing that this test could feel. One proof in forty finds that it helps all the same, two of two hardly ever.
    let before = inside(&lab, "b", "sysctl net.ipv4.ip_default_ttl");
    let once = || {
        let (code, nothing) = prove("b/net.ipv4.ip_default_ttl=65");
        let is_better = nothing["proofs"][0]["is_better"] == true;
        if is_better {
            run_ok(&["tune", "undo", "--all"]);
        }
        let why = is_better.then(|| nothing["proofs"][0]["decision"].to_string());
        ((code, nothing), why)
    };
    let (code, nothing) = again::play("proofs of what does not help", "ip_default_ttl", 2, once);
    assert!(code == Some(1) && nothing["proofs"][0]["is_better"] == false, "{nothing:#}");
    assert!(nothing["kept"].as_array().unwrap().is_empty());
    assert_eq!(inside(&lab, "b", "sysctl net.ipv4.ip_default_ttl"), before, "it is put back");

    // It goes with its lab, and so does what would undo it.
    let changes = || -> usize {
        let diff: Value = serde_json::from_str(&run_ok(&["tune", "diff", "--json"])).unwrap();
        let of_ours =
            |change: &&Value| change["name"] == "sysctl net.ipv4.tcp_rmem" && change["now"].is_null();
        diff["changes"].as_array().unwrap().iter().filter(of_ours).count()
    };
    // Behind one that can be made, too, before anything is measured.
    let refused =
        run(&["prove", "a/eth0:txqueuelen=99", "a/eth0:no.such=1", "--lab", &lab.name, "--plan", &plan]);
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && !words.contains("records: "), "{words}");
    drop(lab);
    assert_eq!(changes(), 0, "a change of a lab that is gone");
}

/// One thing that is wrong in a lab, and what the doctor must advise.
struct Slow {
    /// A name, or its text.
    topology: &'static str,
    /// What carries the frames of node s, where there is one.
    wire: Option<&'static str>,
    /// The congestion control that the cure wants.
    congestion: Option<&'static str>,
    test: &'static str,
    node: &'static str,
    plant: &'static str,
    /// Tells what is planted, by another tool.
    state: &'static str,
    rule: &'static str,
    /// The beginning of the change.
    change: &'static str,
    /// Of six pairs each must be better, of ten one need not.
    pairs: &'static str,
}

/// A router with a short queue before a slow link, a long way behind: what is lost there says nothing of how much the path carries.
const LONG: &str = "node a b s
router r
link a:eth0 -- s:p1 offload off
link s:p2 -- r:eth0 offload off
link r:eth1 -- b:eth0
bridge br0 on s ports p1 p2
interface a:eth0 address 10.0.1.2/24
interface r:eth0 address 10.0.1.1/24
interface r:eth1 rate 100mbit limit 60kB burst 5kB address 10.0.2.1/24
interface b:eth0 address 10.0.2.2/24
route on a default via 10.0.1.1
route on b default via 10.0.2.1
";

const SLOW: [Slow; 5] = [
    // Window by window, each loss halves it; segmentation is off as well, which costs nothing here.
    Slow {
        topology: LONG,
        wire: Some("fault:int:p1?delay=60ms&side=rx"),
        congestion: Some("bbr"),
        test: "tcp-stream duration 500ms",
        node: "a",
        plant: "sysctl -qw net.ipv4.tcp_congestion_control=reno",
        state: "sysctl -n net.ipv4.tcp_congestion_control",
        rule: "TCP-06",
        change: "a/net.ipv4.tcp_congestion_control=",
        pairs: "6",
    },
    Slow {
        topology: "pair",
        wire: None,
        congestion: None,
        test: "tcp-stream duration 150ms",
        node: "a",
        plant: "ethtool -K eth0 tso off gso off",
        state: "ethtool -k eth0 | grep -e ^tcp-seg -e ^generic-seg",
        rule: "OFF-01",
        change: "a/eth0:feature.",
        pairs: "6",
    },
    // A window that belongs to the other end.
    Slow {
        topology: "pair",
        wire: None,
        congestion: None,
        test: "tcp-stream duration 150ms",
        node: "b",
        plant: "sysctl -qw net.ipv4.tcp_rmem='4096 8192 16384'",
        state: "sysctl -n net.ipv4.tcp_rmem",
        rule: "TCP-01",
        change: "b/net.ipv4.tcp_rmem=4096 ",
        pairs: "6",
    },
    // 64 KiB in 10 ms; no buffer helps, which is what TCP-01 would turn.
    Slow {
        topology: WIRE,
        wire: Some("fault:int:p1?delay=10ms&side=rx"),
        congestion: None,
        test: "tcp-stream duration 400ms",
        node: "b",
        plant: "sysctl -qw net.ipv4.tcp_window_scaling=0",
        state: "sysctl -n net.ipv4.tcp_window_scaling",
        rule: "TCP-04",
        change: "b/net.ipv4.tcp_window_scaling=1",
        pairs: "6",
    },
    // Behind a shaper headers cost what they weigh: 7 % more arrives in full frames.
    Slow {
        topology: "bottleneck",
        wire: None,
        congestion: None,
        test: "tcp-stream duration 200ms",
        node: "b",
        plant: "ip link set eth0 mtu 576",
        state: "ip link show eth0",
        rule: "MTU-02",
        change: "b/eth0:mtu=1500",
        pairs: "10",
    },
];

/// From the slow path to the kept cure in one command, and back to the exact state.
#[test]
fn what_the_doctor_advises_is_tried_and_kept_and_undone() {
    let _turn = alone();
    if !is_root() || !installed("sysctl") || !installed("ethtool") {
        return skip("proofs of what the doctor advises", "needs root, sysctl and ethtool");
    }
    // Those whose rate is that of a delay or a shaper need no CPU to themselves, but more than two would fill the CPUs when they begin.
    let (others, alone): (Vec<&Slow>, Vec<_>) = SLOW.iter().partition(|slow| slow.topology != "pair");
    for (most, cases) in [(2, others), (1, alone)] {
        let planted = at_once(most, &cases, |slow| advised(slow));
        run_ok(&["tune", "undo", "--all"]);
        for (slow, planted) in cases.iter().zip(&planted) {
            let Some((lab, planted)) = planted else { continue };
            assert_eq!(&inside(lab, slow.node, slow.state), planted, "{} is undone", slow.rule);
        }
    }
}

/// Plants what is slow and lets the doctor cure it: the lab, and what another tool said before the cure. Nothing where the kernel cannot.
fn advised(slow: &Slow) -> Option<(TestLab, String)> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (plan, records, mut topology) = (at("one.plan"), at("runs"), slow.topology.to_owned());
    if topology.contains('\n') {
        topology = at("planted.lab");
        std::fs::write(&topology, slow.topology).unwrap();
    }
    std::fs::write(&plan, format!("topology {topology}\ntest {}\n", slow.test)).unwrap();
    let lab = TestLab::up(&topology, "advised");
    let there = inside(&lab, slow.node, "sysctl -n net.ipv4.tcp_available_congestion_control");
    if let Some(wanted) = slow.congestion.filter(|wanted| !there.split_whitespace().any(|one| one == *wanted))
    {
        skip(&format!("the proof of {}", slow.rule), &format!("this kernel has no {wanted}"));
        return None;
    }
    let _wire = slow.wire.map(|port| wire(&lab, port));
    inside(&lab, slow.node, slow.plant);
    let planted = inside(&lab, slow.node, slow.state);
    let flags = ["--lab", &lab.name, "--plan", &plan, "--dir", &records, "--pairs", slow.pairs, "--json"];
    let steal = Steal::begin();
    // One pair of ten that stood still leaves a gain of a few per cent open.
    let what = format!("the proof of {}", slow.rule);
    let (proof, said) = again::play("proofs of what the doctor advises", slow.rule, 2, || {
        let (proof, said) = proven(slow, &flags);
        let why = if proof.is_null() { "something else is named first" } else { "it is not shown to help" };
        let open = (proof["is_better"] != true).then(|| format!("{why}: {said}"));
        ((proof, said), open)
    });
    if steal.holds(&what, proof["is_better"] == true, format_args!("{proof:#} {said}")) {
        assert_ne!(inside(&lab, slow.node, slow.state), planted, "it is kept");
    }
    Some((lab, planted))
}

/// What is planted is named first, and only that is tried: its proof, and what was said. No proof where other work made a CPU so busy in the
/// window (other cases, which begin at the same time) that offloads which are off are estimated to cost more.
fn proven(slow: &Slow, flags: &[&str]) -> (Value, String) {
    let output = run(&[&["prove", "--doctor", "--most", "1", "--allow-link-flap"], flags].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    let suspects = document["suspects"].as_array().unwrap_or_else(|| panic!("{document:#} {said}"));
    // Each change is listed once, whatever rule it is of; what is so already, as at the end where nothing is planted, is not tried.
    let tried: Vec<&Value> = suspects.iter().filter(|one| one["left_out"].is_null()).collect();
    let of_rule = |one: &&&Value| one["rule"] == slow.rule;
    let Some(suspect) = tried.iter().find(of_rule) else {
        return (Value::Null, format!("{suspects:?}"));
    };
    assert!(suspect["change"].as_str().unwrap().starts_with(slow.change), "{suspect:#}");
    let proofs = document["proofs"].as_array().unwrap();
    let proof = proofs.iter().find(|one| one["change"] == suspect["change"]).unwrap();
    assert_eq!(output.status.code() == Some(0), proof["is_better"] == true, "{proof:#} {said}");
    (proof.clone(), said)
}

/// They hold while its tests run, for both arms of a trial, and no longer.
#[test]
fn settings_of_a_plan_hold_for_its_tests_and_are_put_back() {
    let _turn = beside();
    if !is_root() || !installed("sysctl") || !installed("ethtool") {
        return skip("settings of a plan", "needs root, sysctl and ethtool");
    }
    let lab = TestLab::up("pair", "settings");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (plan, dir) = (at("one.plan"), at("runs"));
    let text = "topology pair\nset a/net.ipv4.tcp_congestion_control=reno\nset a/eth0:mtu=1300+eth0:txqueuelen=77\n\
                set b/eth0:mtu=1300\ntest tcp-stream duration 100ms\n";
    std::fs::write(&plan, text).unwrap();
    let state = || {
        let line = "sysctl -n net.ipv4.tcp_congestion_control; ip -o link show eth0; ethtool -k eth0";
        ["a", "b"].map(|node| inside(&lab, node, line))
    };
    let before = state();
    let flags = ["--lab", &lab.name, "--dir", &dir, "--json"];
    let run_of = |plan: &str| run(&[&["run", plan, "--repetitions", "1"], &flags[..]].concat());
    let output = run_of(&plan);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    // What the connection itself says: its algorithm, and the segments that the MTU leaves.
    let sender = &document["tests"][0]["sender"];
    assert_eq!(sender["settings"]["congestion"], "reno", "{}", sender["settings"]);
    assert_eq!(sender["tcp"][0]["snd_mss"], 1248, "{}", sender["tcp"]);
    assert_eq!(state(), before, "it is put back");

    // One that cannot be set is refused, and those before it are put back.
    std::fs::write(at("wrong.plan"), text.replace("txqueuelen=77", "no.such=1")).unwrap();
    let refused = run_of(&at("wrong.plan"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("no.such"), "{said}");
    assert_eq!(state(), before);

    // Killed while its tests run.
    std::fs::write(at("long.plan"), text.replace("100ms", "20s")).unwrap();
    let mut long = start(pathlab(&[&["run", &at("long.plan")], &flags[..]].concat()));
    let since = Instant::now();
    while state()[1] == before[1] {
        assert!(since.elapsed() < Duration::from_secs(60), "it was never set");
    }
    long.kill().unwrap();
    long.wait().unwrap();
    run_ok(&["undo"]);
    assert_eq!(state(), before, "the next command puts it back");
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
        // Half of them at some moment, and half when the knob has been set, however long a loaded machine takes for that.
        if moment % 2 == 0 {
            std::thread::sleep(Duration::from_millis(200 + 130 * u64::from(moment)));
        } else {
            let ends = Instant::now() + Duration::from_secs(60);
            while ttl() == before {
                assert!(Instant::now() < ends, "it was never set");
            }
        }
        proof.kill().unwrap();
        proof.wait().unwrap();
        changed += u32::from(ttl() != before);
        run_ok(&["undo"]);
        assert_eq!(ttl(), before, "killed at moment {moment}");
    }
    assert!(changed > 0, "no kill found the knob changed");
}
