//! Whether figures are valid: what is done to a path while a test goes on is said with its reason, and what is done beside it is not.

use crate::beside;
use crate::capture::{capture, until};
use crate::support::{
    Kept, TestLab, command, finish, installed, is_root, pathlab, skip, start, until_it_says,
};
use serde_json::Value;
use std::process::Output;
use std::time::Duration;

/// Rows that speak of the machine that the tests run on, whatever is done here.
const OF_THE_HOST: [&str; 2] = ["other_work", "steal"];

/// A run over a bridge of 1,500 datagrams in a second and a half; `disturb` is called in the middle of them, and what it returns is kept until the run
/// has ended.
fn run_disturbed<T>(label: &str, flags: &[&str], disturb: impl FnOnce(&TestLab) -> T) -> Option<Output> {
    if !is_root() {
        skip(&format!("validity: {label}"), "needs root, to enter a node of the lab");
        return None;
    }
    let lab = TestLab::up("bridge", label);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (plan, records) = (at("one.plan"), at("runs"));
    std::fs::write(&plan, "topology bridge\nrepetitions 1\ntest udp-stream count 1500 rate 1kpps\n").unwrap();
    let before = lab.datagrams("b");
    let arguments = [&["run", &plan, "--lab", &lab.name, "--dir", &records, "--json"], flags].concat();
    let child = start(pathlab(&arguments));
    lab.until_datagrams("b", before + 200);
    let kept = disturb(&lab);
    let output = finish(child, Duration::from_secs(60));
    drop(kept);
    Some(output)
}

/// The test of such a run.
fn disturbed<T>(label: &str, disturb: impl FnOnce(&TestLab) -> T) -> Option<Value> {
    let output = run_disturbed(label, &[], disturb)?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {words}"));
    Some(json["tests"][0].take())
}

/// The reason of a row; that is has a verdict, and that the verdict of the whole is no better.
fn reason(test: &Value, what: &str, verdict: &str) -> Value {
    let validity = &test["validity"];
    let reasons = validity["reasons"].as_array().unwrap();
    let found = reasons.iter().find(|one| one["what"] == what);
    let found = found
        .unwrap_or_else(|| panic!("{what} is silent: {validity:#} {:#}", test["conditions"][0]["changes"]));
    assert_eq!(found["verdict"], verdict, "{found}");
    assert!(validity["verdict"] == verdict || validity["verdict"] == "invalid", "{validity}");
    found.clone()
}

/// The rows that spoke, those of the host apart.
fn spoken(test: &Value) -> Vec<String> {
    let reasons = test["validity"]["reasons"].as_array().unwrap().iter();
    let words = reasons.map(|one| one["what"].as_str().unwrap().to_owned());
    words.filter(|what| !OF_THE_HOST.contains(&what.as_str())).collect()
}

#[test]
fn a_quiet_run_is_valid_whatever_strangers_do_beside_the_path() {
    let _turn = beside();
    let stranger = format!("stranger{}", std::process::id());
    let Some(test) = disturbed("quiet", |lab| {
        let ip = |line: &str| {
            finish(
                start({
                    let mut tool = command("ip");
                    tool.args(line.split(' '));
                    tool
                }),
                Duration::from_secs(20),
            )
        };
        assert!(ip(&format!("netns add {stranger}")).status.success());
        let other = TestLab::up("pair", "next");
        // In nodes of the path, but not on it.
        lab.must("b", "ip link add x0 type veth peer name x1 && ip link set x0 mtu 1400 up");
        lab.must("b", "ip address add 10.77.0.1/24 dev x0 && ip route add 10.78.0.0/24 dev x0");
        lab.must("s", "ip link add y0 type veth peer name y1 && tc qdisc add dev y0 root pfifo");
        drop(other);
        assert!(ip(&format!("netns delete {stranger}")).status.success());
    }) else {
        return;
    };
    assert_eq!(spoken(&test), Vec::<String>::new(), "{:#}", test["validity"]);
    let conditions = &test["conditions"][0];
    let changes = conditions["changes"].as_array().expect("the changes beside the path were told");
    assert!(
        changes.iter().any(|one| one["message"] == "RTM_NEWROUTE" && one["about"] == "10.78.0.0/24"),
        "{changes:#?}"
    );
    // What it cost is measured, and its own programs are nobody else's.
    let cost = &conditions["cost"];
    assert!(cost["driver_cpu_ns"].as_u64().unwrap() > 0 && cost["wall_ns"].as_u64().unwrap() > 1_000_000_000);
    assert!(
        cost["program_runs"].as_u64().unwrap() > 0 && cost["programs_ns"].as_u64().unwrap() > 0,
        "{cost}"
    );
    // What this machine does not show is said, and what it shows is not.
    let unwatched: Vec<&str> = test["validity"]["unwatched"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["what"].as_str().unwrap())
        .collect();
    let shown = |path: &str| std::path::Path::new("/sys/devices/system/cpu/cpu0").join(path).exists();
    assert_eq!(unwatched.contains(&"governor"), !shown("cpufreq/scaling_governor"), "{unwatched:?}");
    assert_eq!(
        unwatched.contains(&"throttled"),
        !shown("thermal_throttle/core_throttle_count"),
        "{unwatched:?}"
    );
    assert!(
        unwatched.iter().all(|what| ["governor", "throttled", "idle_state"].contains(what)),
        "{unwatched:?}"
    );
}

#[test]
fn a_link_that_flaps_makes_the_figure_invalid() {
    let _turn = beside();
    let flap = |lab: &TestLab| lab.must("b", "ip link set eth0 down && ip link set eth0 up");
    let Some(test) = disturbed("flap", flap) else { return };
    let found = reason(&test, "link_flap", "invalid");
    assert!(found["reason"].as_str().unwrap().contains("RTM_NEWLINK"), "{found}");
    let places: Vec<&str> = test["validity"]["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["what"] == "link_flap")
        .filter_map(|one| one["where"].as_str())
        .collect();
    assert!(places.contains(&"node b, eth0") && places.contains(&"node s, p2"), "{places:?}");
    // The sentences of before are those of the rows.
    assert!(
        test["invalid"].as_array().unwrap().iter().any(|why| *why == found["reason"]),
        "{}",
        test["invalid"]
    );
}

#[test]
fn a_setting_of_a_link_that_changed_names_the_message() {
    let _turn = beside();
    let Some(test) = disturbed("mtu", |lab| lab.must("s", "ip link set p1 mtu 1400")) else { return };
    let found = reason(&test, "link_changed", "invalid");
    let said = found["reason"].as_str().unwrap();
    assert!(said.starts_with("node s, p1: MTU 1500 → 1400") && said.ends_with("(RTM_NEWLINK)"), "{said}");
    // The bridge takes the least MTU of its ports.
    let mut words = spoken(&test);
    words.dedup();
    assert_eq!(words, ["link_changed"], "{:#}", test["validity"]);
}

#[test]
fn a_qdisc_and_an_offload_that_changed_make_the_figure_invalid() {
    let _turn = beside();
    if !installed("ethtool") {
        return skip("validity: an offload", "ethtool is not installed");
    }
    let change = |lab: &TestLab| {
        lab.must("s", "tc qdisc add dev p2 root pfifo limit 500");
        lab.must("a", "ethtool -K eth0 tso off");
    };
    let Some(test) = disturbed("qdisc", change) else { return };
    let found = reason(&test, "qdisc_changed", "invalid");
    assert!(found["reason"].as_str().unwrap().contains("pfifo was added"), "{found}");
    let found = reason(&test, "driver_changed", "invalid");
    assert_eq!(
        (found["where"].as_str(), found["value"].as_str()),
        (Some("node a, eth0"), Some("offloads changed"))
    );
    assert!(found["reason"].as_str().unwrap().contains("ETHTOOL_MSG_FEATURES_NTF"), "{found}");
}

#[test]
fn a_route_to_an_end_that_changed_makes_the_figure_invalid() {
    let _turn = beside();
    let route = |lab: &TestLab| {
        lab.must("a", "ip route add 10.0.0.2/32 dev eth0 && ip rule add priority 77 table main")
    };
    let Some(test) = disturbed("route", route) else { return };
    let found = reason(&test, "route_changed", "invalid");
    let said = found["reason"].as_str().unwrap();
    assert!(said.contains("10.0.0.2/32") && said.contains("RTM_NEWROUTE"), "{said}");
    let found = reason(&test, "rule_changed", "suspect");
    assert!(found["reason"].as_str().unwrap().contains("priority 77"), "{found}");
}

#[test]
fn a_capture_on_the_path_is_a_tap_with_a_name_and_a_criterion_fails() {
    let _turn = beside();
    if !installed("tcpdump") {
        return skip("validity: a tap", "tcpdump is not installed");
    }
    let mut pid = 0;
    let tap = |lab: &TestLab| {
        let mut tool = command("ip");
        tool.args(["netns", "exec", &lab.netns("s"), "tcpdump", "-Z", "root", "-i", "p2", "-w", "/dev/null"]);
        let mut child = start(tool);
        until_it_says(&mut child, "listening on");
        pid = child.id();
        Kept::new(child)
    };
    let Some(output) = run_disturbed("tap", &["--require-valid"], tap) else { return };
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("its figures are"), "{words}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let test = &json["tests"][0];
    let found = reason(test, "tap", "suspect");
    assert_eq!(
        (found["where"].as_str(), &found["value"]),
        (Some("node s, p2"), &Value::from(format!("tcpdump ({pid})")))
    );
    let criterion = test["criteria"].as_array().unwrap().iter().find(|one| one["name"] == "valid").unwrap();
    assert_eq!(criterion["passed"], false, "{criterion}");
}

#[test]
fn a_program_and_a_filter_of_somebody_else_are_said() {
    let _turn = beside();
    let attach = |lab: &TestLab| {
        lab.must(
            "s",
            "tc qdisc add dev p1 clsact && tc filter add dev p1 ingress bpf bytecode '1,6 0 0 4294967295,'",
        );
        // Another pathlab that counts is somebody else.
        let netns = lab.netns("b");
        let mut child =
            start(pathlab(&["follow", "udp > 10.0.0.2:7", "--in", &netns, "--json", "--interval", "100ms"]));
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).expect("a first line");
        // At the sender's interface by XDP, where no frame of the test comes in.
        (Kept::new(child), Kept::new(capture(lab, "a", &["xdp:eth0"])))
    };
    let Some(test) = disturbed("program", attach) else { return };
    reason(&test, "qdisc_changed", "invalid");
    let programs =
        test["conditions"][0]["programs"].as_array().unwrap_or_else(|| panic!("{:#}", test["validity"]));
    let at = |node: &str, interface: &str, hook: &str| {
        programs.iter().any(|one| one["node"] == node && one["interface"] == interface && one["hook"] == hook)
    };
    let expected = [
        ("s", "p1", "tc ingress"),
        ("b", "eth0", "tcx ingress"),
        ("b", "eth0", "tcx egress"),
        ("a", "eth0", "xdp"),
    ];
    for (node, interface, hook) in expected {
        assert!(at(node, interface, hook), "{hook} of {interface} of {node}: {programs:#?}");
    }
    let on_the_path = programs.iter().filter(|one| one["interface"] != "lo").count();
    assert_eq!(on_the_path, expected.len(), "pathlab's own are not among them: {programs:#?}");
    let found = reason(&test, "program", "suspect");
    assert!(found["reason"].as_str().unwrap().contains("during the test"), "{found}");
}

/// Two hosts that both watch: the reason names the host.
#[test]
fn a_test_between_two_namespaces_says_what_either_saw() {
    let _turn = beside();
    if !is_root() {
        return skip("validity: pathlab test", "needs root, to enter a node of the lab");
    }
    let lab = TestLab::up("pair", "hosts");
    let inside = |node: &str, arguments: &[&str]| {
        let mut tool = command("ip");
        tool.args(["netns", "exec", &lab.netns(node), crate::support::PATHLAB]).args(arguments);
        tool
    };
    let _serve = Kept::new(start(inside("b", &["serve", "--bind", "10.0.0.2", "--once", "--observe"])));
    until("the server", || lab.inside("b", "ss -ltn | grep -q 10.0.0.2").is_ok());
    let before = lab.datagrams("b");
    let test = start(inside(
        "a",
        &["test", "udp-stream", "10.0.0.2", "--rate", "1kpps", "--count", "1500", "--json"],
    ));
    lab.until_datagrams("b", before + 200);
    lab.must("b", "ip link set eth0 mtu 1400");
    let output = finish(test, Duration::from_secs(60));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let reasons = json["validity"]["reasons"].as_array().unwrap_or_else(|| panic!("{}", json["no_ledger"]));
    let found =
        reasons.iter().find(|one| one["what"] == "link_changed").unwrap_or_else(|| panic!("{reasons:#?}"));
    assert_eq!(found["where"], "node 10.0.0.2, eth0", "{found}");
    assert!(found["reason"].as_str().unwrap().contains("MTU 1500 → 1400"), "{found}");
}
