//! What a lab says about routing, as the kernel tells it to iproute2.

use crate::beside;
use crate::support::{TestLab, is_root, run, skip};
use serde_json::Value;

/// A lab of this text or name; none where none can be built.
pub fn lab(text: &str, label: &str) -> Option<TestLab> {
    if !is_root() {
        skip(label, "it needs root");
        return None;
    }
    if !text.contains('\n') {
        return Some(TestLab::up(text, label));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.lab");
    std::fs::write(&file, text).unwrap();
    Some(TestLab::up(&file.display().to_string(), label))
}

/// What a tool of iproute2 prints as JSON inside a node.
pub fn told(lab: &TestLab, node: &str, line: &str) -> Vec<Value> {
    serde_json::from_str(&lab.must(node, line)).unwrap()
}

/// Every address answers, each within a second.
pub fn answers(lab: &TestLab, from: &str, addresses: &[&str]) {
    addresses.iter().for_each(|address| drop(lab.must(from, &format!("ping -c 1 -W 1 {address}"))));
}

/// `lab check` with its exit code.
pub fn check(lab: &TestLab) -> (i32, Value) {
    let output = run(&["lab", "check", &lab.name, "--json"]);
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

/// `lab check` finds nothing; takes the lab down and looks whether something is left.
pub fn as_said_and_gone(lab: TestLab) {
    let (code, found) = check(&lab);
    assert_eq!(code, 0, "{found}");
    let name = lab.name.clone();
    drop(lab);
    let left = |folder: &str| {
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).any(|file| file.contains(&name))
    };
    assert!(!left("/run/netns") && !left("/run/pathlab"), "something is left of {name}");
}

/// The interfaces that a router takes for thirty flows that differ in their source port.
fn ways(lab: &TestLab, destination: &str, source: &str) -> Vec<String> {
    let way = |port: u16| {
        let line =
            format!("ip -j route get {destination} from {source} iif eth0 ipproto udp sport {port} dport 9");
        told(lab, "r1", &line)[0]["dev"].as_str().unwrap().to_owned()
    };
    let mut ways: Vec<String> = (2000..2030).map(way).collect();
    ways.sort();
    ways.dedup();
    ways
}

#[test]
fn a_flow_takes_one_of_two_ways_by_its_ports() {
    let _turn = beside();
    let Some(lab) = lab("ecmp", "ecmp") else { return };
    for (routes, to, hops) in [
        ("ip -j route show table all", "10.0.4.0/24", ["10.0.2.2", "10.0.3.2"]),
        ("ip -6 -j route show table all", "fd00:4::/64", ["fd00:2::2", "fd00:3::2"]),
    ] {
        let routes = told(&lab, "r1", routes);
        let route = routes.iter().find(|route| route["dst"] == to).unwrap();
        let found: Vec<_> = route["nexthops"]
            .as_array()
            .unwrap()
            .iter()
            .map(|hop| (&hop["gateway"], &hop["weight"]))
            .collect();
        let wanted: Vec<_> = hops.iter().map(|hop| (Value::from(*hop), Value::from(1))).collect();
        assert_eq!(found, wanted.iter().map(|(hop, weight)| (hop, weight)).collect::<Vec<_>>());
    }
    answers(&lab, "a", &["10.0.4.2", "fd00:4::2"]);
    for (destination, source, version) in [("10.0.4.2", "10.0.1.2", 4), ("fd00:4::2", "fd00:1::2", 6)] {
        assert_eq!(ways(&lab, destination, source), ["eth1", "eth2"]);
        lab.must("r1", &format!("sysctl -w net.ipv{version}.fib_multipath_hash_policy=0"));
        assert_eq!(
            ways(&lab, destination, source).len(),
            1,
            "by addresses alone a pair of hosts has one way"
        );
        lab.must("r1", &format!("sysctl -w net.ipv{version}.fib_multipath_hash_policy=1"));
    }
    as_said_and_gone(lab);
}

const ROUTES: &str = "node a\nrouter r\nlink a:eth0 -- r:eth0\n\
    interface a:eth0 address 10.0.0.2/24 fd00::2/64\ninterface r:eth0 address 10.0.0.1/24 fd00::1/64\n\
    route on a default via 10.0.0.1\nroute on a default via fd00::1\n\
    route on a 10.4.0.0/16 via 10.0.0.1 weight 200 via 10.0.0.3 table 70000\nroute on a fd04::/64 via fd00::1 table 7\n\
    route on a 10.5.0.0/16 blackhole\nroute on a fd05::/64 blackhole\nroute on a 10.6.0.0/16 unreachable table 7\n\
    route on r 10.7.0.0/16 prohibit\nroute on r fd07::/64 prohibit\nroute on r 10.8.0.0/16 unreachable\n";

#[test]
fn tables_and_routes_that_refuse_are_the_kernels() {
    let _turn = beside();
    let Some(lab) = lab(ROUTES, "refuse") else { return };
    let four = told(&lab, "a", "ip -j route show table all");
    let six = told(&lab, "a", "ip -6 -j route show table all");
    let find = |routes: &[Value], to: &str, key: &str| {
        routes.iter().find(|route| route["dst"] == to).unwrap_or_else(|| panic!("{to}: {routes:?}"))[key]
            .clone()
    };
    assert_eq!(find(&four, "10.4.0.0/16", "table"), "70000");
    assert_eq!(find(&four, "10.4.0.0/16", "nexthops")[0]["weight"], 200);
    assert_eq!(
        (find(&four, "10.6.0.0/16", "type"), find(&four, "10.6.0.0/16", "table")),
        ("unreachable".into(), "7".into())
    );
    assert_eq!(
        (find(&four, "10.5.0.0/16", "type"), find(&six, "fd05::/64", "type")),
        ("blackhole".into(), "blackhole".into())
    );
    assert_eq!(
        (find(&six, "fd04::/64", "gateway"), find(&six, "fd04::/64", "table")),
        ("fd00::1".into(), "7".into())
    );
    answers(&lab, "a", &["10.0.0.1", "fd00::1"]);
    // The router says why it does not forward; what a blackhole swallowed nobody does.
    for (address, said) in [
        ("10.7.0.1", "Packet filtered"),
        ("fd07::1", "Administratively prohibited"),
        ("10.8.0.1", "Destination Host Unreachable"),
    ] {
        let ping = lab.must("a", &format!("ping -c 1 -W 1 {address} || true"));
        assert!(ping.contains(said), "{address}: {ping}");
    }
    as_said_and_gone(lab);
}

const RULES: &str = "node a\nrouter r\nlink a:eth0 -- r:eth0\n\
    interface a:eth0 address 10.0.0.2/24 fd00::2/64\ninterface r:eth0 address 10.0.0.1/24 fd00::1/64\n\
    route on r 10.7.0.0/16 via 10.0.0.2 table 70000\n\
    policy on r from 10.0.0.0/24 to 10.7.0.0/16 iif eth0 fwmark 0x10/0xff table 70000 priority 5\n\
    policy on r from fd00:9::/64 prohibit priority 5\npolicy on r iif lo fwmark 7 table main priority 6\n\
    policy on r to 10.8.0.0/16 unreachable priority 7\npolicy on r to 10.9.0.0/16 blackhole priority 8\n";

#[test]
fn policy_rules_are_the_kernels() {
    let _turn = beside();
    let Some(lab) = lab(RULES, "policy") else { return };
    let (four, six) = (told(&lab, "r", "ip -j rule"), told(&lab, "r", "ip -6 -j rule"));
    let own = |rules: Vec<Value>| -> Vec<Value> {
        let mine = rules.into_iter().filter(|rule| (1..32766).contains(&rule["priority"].as_u64().unwrap()));
        mine.map(|mut rule| {
            rule.as_object_mut().unwrap().remove("protocol");
            rule
        })
        .collect()
    };
    let both =
        serde_json::json!({"priority": 6, "src": "all", "fwmark": "0x7", "iif": "lo", "table": "main"});
    let mut wanted = vec![
        serde_json::json!({"priority": 5, "src": "10.0.0.0", "srclen": 24, "dst": "10.7.0.0", "dstlen": 16,
            "fwmark": "0x10", "fwmask": "0xff", "iif": "eth0", "table": "70000"}),
        both.clone(),
        serde_json::json!({"priority": 7, "src": "all", "dst": "10.8.0.0", "dstlen": 16, "action": "unreachable"}),
        serde_json::json!({"priority": 8, "src": "all", "dst": "10.9.0.0", "dstlen": 16, "action": "blackhole"}),
    ];
    assert_eq!(own(four), wanted);
    wanted =
        vec![serde_json::json!({"priority": 5, "src": "fd00:9::", "srclen": 64, "action": "prohibit"}), both];
    assert_eq!(own(six), wanted);
    lab.must("r", "ip rule del priority 7; ip -6 rule add from fd00:1::/64 table 9 priority 9");
    let (code, found) = check(&lab);
    let differences = serde_json::json!([
        "IPv4 policy to 10.8.0.0/16 unreachable priority 7 is missing",
        "IPv6 policy from fd00:1::/64 table 9 priority 9 was added",
    ]);
    assert_eq!((code, &found["routing"][1]["differences"]), (1, &differences));
}

/// The hops of `traceroute`, or what `ping` says when the time to live ends, one hop after the other.
fn hops(lab: &TestLab, from: &str, to: &str) -> Vec<String> {
    let hop = |ttl: u32| {
        let said = lab.must(from, &format!("ping -n -c 1 -W 1 -t {ttl} {to} || true"));
        let line = said
            .lines()
            .find(|line| line.to_lowercase().contains("from "))
            .unwrap_or_default()
            .to_lowercase();
        let after = line.split("from ").nth(1).unwrap_or_default().to_owned();
        after.split([' ']).next().unwrap_or_default().trim_end_matches(':').to_owned()
    };
    (1..=3).map(hop).collect()
}

#[test]
fn a_policy_rule_sends_one_host_another_way() {
    let _turn = beside();
    let Some(lab) = lab("rule", "rule") else { return };
    for (from, four, six) in [
        ("a", ["10.0.1.1", "10.0.3.2", "10.0.5.2"], ["fd00:1::1", "fd00:3::2", "fd00:5::2"]),
        ("c", ["10.0.2.1", "10.0.4.2", "10.0.5.2"], ["fd00:2::1", "fd00:4::2", "fd00:5::2"]),
    ] {
        assert_eq!(hops(&lab, from, "10.0.5.2"), four);
        assert_eq!(hops(&lab, from, "fd00:5::2"), six);
        let source = if from == "a" { "10.0.1.2" } else { "10.0.2.2" };
        let back = told(&lab, "b", &format!("ip -j route get {source}"));
        assert_eq!(back[0]["dev"], if from == "a" { "eth0" } else { "eth1" });
    }
    as_said_and_gone(lab);
}

#[test]
fn a_changed_route_is_found_by_lab_check() {
    let _turn = beside();
    let Some(lab) = lab("ecmp", "astray") else { return };
    lab.must("r1", "ip route replace 10.0.4.0/24 via 10.0.2.2; ip route add blackhole 10.9.0.0/16 table 5");
    let (code, found) = check(&lab);
    let wanted = serde_json::json!([
        "route 10.0.4.0/24 via 10.0.2.2 via 10.0.3.2 is missing",
        "route 10.0.4.0/24 via 10.0.2.2 was added",
        "route 10.9.0.0/16 blackhole table 5 was added",
    ]);
    let mut differences = found["routing"][1]["differences"].clone();
    differences
        .as_array_mut()
        .unwrap()
        .sort_by_key(|one| wanted.as_array().unwrap().iter().position(|w| w == one));
    assert_eq!((code, differences), (1, wanted));
    assert_eq!(found["routing"][0]["differences"], serde_json::json!([]));
    let output = run(&["lab", "check", &lab.name]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("ROUTING DIFFERS") && err.contains("the routing of node r1 differs"), "{out}{err}");
}
