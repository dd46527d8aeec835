//! `pathlab doctor`: a fault that is planted in a lab is named first with its number, and is gone when it is put right; facts of another host are judged
//! as those of this one.

use crate::routing::lab;
use crate::runs::first_line;
use crate::support::again::play;
use crate::support::{
    Kept, PATHLAB, TestLab, command, finish, installed, is_root, run, skip, start, until_it_says,
};
use crate::{alone, beside, loud};
use serde_json::Value;
use std::process::{Output, Stdio};
use std::time::Duration;

const PAIR: &str = "node a b\nlink a:eth0 -- b:eth0\n\
                    interface a:eth0 address 10.0.0.1/24\ninterface b:eth0 address 10.0.0.2/24\n";

/// What it says of a lab for a goal; the exit code must fit.
fn examined(lab: &TestLab, goal: &str, window: &str) -> Value {
    let arguments = ["doctor", "--lab", &lab.name, "--goal", goal, "--duration", window, "--json"];
    let output = run(&arguments);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!(report["rules"].as_array().unwrap().len(), 123);
    let findings = report["counts"]["finding"].as_u64().unwrap_or(0);
    assert_eq!(output.status.code(), Some(i32::from(findings > 0)), "{output:?}");
    report
}

/// Findings about the lab in their order: rule, place, evidence. What the host itself suffers is not planted here.
fn findings(report: &Value) -> Vec<(String, String, String)> {
    let rules = report["rules"].as_array().unwrap().iter().filter(|rule| rule["status"] == "finding");
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    rules
        .map(|rule| (word(&rule["id"]), word(&rule["places"][0]["place"]), word(&rule["evidence"])))
        .filter(|(_, place, _)| !place.is_empty())
        .collect()
}

/// A fault: the rule that names it, the goal, where, what plants it, what puts it right, a part of the evidence.
const FAULTS: [[&str; 6]; 8] = [
    [
        "OFF-01",
        "throughput",
        "a:eth0",
        "ethtool -K eth0 tso off",
        "ethtool -K eth0 tso on",
        "tx-tcp-segmentation is off",
    ],
    [
        "TCP-04",
        "throughput",
        "node a",
        "sysctl -qw net.ipv4.tcp_window_scaling=0",
        "sysctl -qw net.ipv4.tcp_window_scaling=1",
        "tcp_window_scaling is 0",
    ],
    [
        "MTU-02",
        "throughput",
        "a:eth0",
        "ip link set eth0 mtu 1400",
        "ip link set eth0 mtu 1500",
        "MTU 1400, the other end of the link has 1500",
    ],
    [
        "RPS-01",
        "throughput",
        "a:eth0",
        "echo 1 > /sys/class/net/eth0/queues/rx-0/rps_cpus",
        "echo 0 > /sys/class/net/eth0/queues/rx-0/rps_cpus",
        "RPS to 1 CPU",
    ],
    [
        "TCP-05",
        "throughput",
        "node a",
        "sysctl -qw net.ipv4.tcp_sack=0",
        "sysctl -qw net.ipv4.tcp_sack=1",
        "tcp_sack 0",
    ],
    [
        "QD-07",
        "measurement",
        "a:eth0",
        "tc qdisc add dev eth0 root tbf rate 1gbit burst 64kb latency 50ms",
        "tc qdisc del dev eth0 root",
        "tbf",
    ],
    ["OFF-04", "capture", "a:eth0", "ethtool -K eth0 gro on", "ethtool -K eth0 gro off", "rx-gro on"],
    // The last: a namespace may not go back to what its host does not allow.
    [
        "TCP-06",
        "throughput",
        "node a",
        "sysctl -qw net.ipv4.tcp_congestion_control=reno",
        "true",
        "reno is set",
    ],
];

#[test]
fn faults_that_are_planted_are_named_first_and_gone_when_they_are_put_right() {
    let _turn = beside();
    let Some(lab) = lab(PAIR, "doctor") else { return };
    for tool in ["ethtool", "tc"] {
        if !installed(tool) {
            return skip("doctor of planted faults", &format!("{tool} is not installed"));
        }
    }
    let clean = findings(&examined(&lab, "throughput", "50ms"));
    assert_eq!(clean, [], "nothing is planted");
    for [rule, goal, place, plant, heal, evidence] in FAULTS {
        if rule == "RPS-01" && std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
            skip("doctor of RPS", "there is one CPU");
            continue;
        }
        let node = &place.trim_start_matches("node ")[..1];
        lab.must(node, plant);
        let found = findings(&examined(&lab, goal, "50ms"));
        let first = found.first().unwrap_or_else(|| panic!("{rule} is not found"));
        assert_eq!((first.0.as_str(), first.1.as_str()), (rule, place), "{found:#?}");
        assert!(first.2.contains(evidence), "{first:?}");
        lab.must(node, heal);
    }
    // All but the last are gone.
    let left: Vec<String> =
        findings(&examined(&lab, "throughput", "50ms")).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(left, ["TCP-06"]);
}

/// iperf3 from a to b while `work` goes on.
fn streaming<T>(lab: &TestLab, work: impl FnOnce() -> T) -> T {
    let inside = |node: &str, line: &str| {
        let mut tool = command("ip");
        tool.args(["netns", "exec", &lab.netns(node), "sh", "-c", line]);
        start(tool)
    };
    let mut server = inside("b", "exec iperf3 -s -1 --forceflush 1>&2");
    until_it_says(&mut server, "listening");
    let server = Kept::new(server);
    let mut client = inside("a", "exec iperf3 -c 10.0.0.2 -t 20 -i 0.1 --forceflush 1>&2");
    // It has sent for a while.
    until_it_says(&mut client, "bits/sec");
    let client = Kept::new(client);
    let done = work();
    drop((client, server));
    done
}

/// 2,000 rules that each datagram is compared with: where they are, the time that they take is a share of the soft interrupts and not of the sender.
#[test]
fn rules_of_a_firewall_are_named_with_their_share_and_gone_when_they_are_flushed() {
    let _turn = beside();
    let Some(lab) = lab(PAIR, "doctor") else { return };
    if !installed("iperf3") || !installed("nft") {
        return skip("doctor of a firewall", "iperf3 or nft is not installed");
    }
    let rules: String = (0..2000).map(|n| format!("ip saddr 192.0.{}.{} drop; ", n / 250, n % 250)).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.nft");
    std::fs::write(
        &file,
        format!("table ip t {{ chain c {{ type filter hook input priority 0; {rules} }}; }}"),
    )
    .unwrap();
    lab.must("b", &format!("nft -f {}", file.display()));
    let firewall = |report: &Value| {
        let rules = report["rules"].as_array().unwrap();
        rules.iter().find(|rule| rule["id"] == "IP-05").expect("a rule of the doctor").clone()
    };
    let [with, without] = streaming(&lab, || {
        let with = firewall(&examined(&lab, "throughput", "1s"));
        lab.must("b", "nft flush ruleset");
        [with, firewall(&examined(&lab, "throughput", "1s"))]
    });
    if with["status"] == "unknown" {
        return skip("doctor of a firewall", with["evidence"].as_str().unwrap_or_default());
    }
    assert!(with["status"] == "finding" && with["loss"].as_f64() > Some(0.1), "{with}");
    assert_ne!(without["status"], "finding", "{without}");
}

#[test]
fn small_socket_buffers_are_named_first_with_the_connection_that_waits() {
    let _turn = beside();
    let Some(lab) = lab(PAIR, "doctor") else { return };
    if !installed("iperf3") {
        return skip("doctor of socket buffers", "iperf3 is not installed");
    }
    for (node, setting, planted, rule, words) in [
        ("b", "net.ipv4.tcp_rmem", "4096 8192 16384", "TCP-01", "the receiver's window held it back"),
        ("a", "net.ipv4.tcp_wmem", "4096 8192 16384", "TCP-02", "its send buffer"),
        // So small that the kernel counts no waiting for it.
        ("a", "net.ipv4.tcp_wmem", "4096 4096 4096", "TCP-02", "its send buffer"),
    ] {
        let was = lab.must(node, &format!("sysctl -n {setting}"));
        lab.must(node, &format!("sysctl -qw {setting}='{planted}'"));
        // Other tests run beside it: an iperf3 that gets no CPU has nothing to send, or does not read, and no buffer is small.
        let found = play("doctor of socket buffers", &format!("{setting}={planted}"), 3, || {
            let found = findings(&streaming(&lab, || examined(&lab, "throughput", "500ms")));
            let is_it = found.first().is_some_and(|first| first.0 == rule && first.1 == "node a");
            let other = (!is_it).then(|| format!("{rule} is not the first: {found:?}"));
            (found, other)
        });
        lab.must(node, &format!("sysctl -qw {setting}='{}'", was.trim()));
        let first = found.first().unwrap_or_else(|| panic!("{rule} is not found"));
        assert_eq!((first.0.as_str(), first.1.as_str()), (rule, "node a"), "{found:#?}");
        assert!(first.2.contains("10.0.0.1:") && first.2.contains(words), "{first:?}");
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

#[test]
fn facts_of_another_host_are_judged_as_those_of_this_one() {
    let _turn = beside();
    let Some(lab) = lab(PAIR, "doctor") else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    lab.must("a", "sysctl -qw net.ipv4.tcp_window_scaling=0");
    let (file, node) = (at("facts.json"), format!("{}/a", lab.name));
    let written = run(&["facts", "-o", &file, "--lab", &node, "--duration", "50ms", "--json"]);
    assert_eq!(code(&written), 0, "{written:?}");
    let written: Value = serde_json::from_slice(&written.stdout).unwrap();
    assert!(
        written["known"].as_u64().unwrap() > 200 && written["unknown"].as_u64().unwrap() > 0,
        "{written}"
    );
    let judged = run(&["doctor", "--facts", &file, "--peer", &file, "--goal", "throughput"]);
    let text = String::from_utf8_lossy(&judged.stdout).into_owned();
    assert_eq!(code(&judged), 1, "{judged:?}");
    assert!(
        text.contains("TCP-04 node a: tcp_window_scaling is 0") && text.contains("pathlab tune set"),
        "{text}"
    );
    // With the same host as the other end nothing differs; without it nobody knows.
    let rule = |report: &Output| -> Value {
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        report["rules"].as_array().unwrap().iter().find(|rule| rule["id"] == "CPU-13").unwrap().clone()
    };
    let with = rule(&run(&["doctor", "--facts", &file, "--peer", &file, "--json"]));
    assert_eq!(with["status"], "ok", "{with}");
    let without = rule(&run(&["doctor", "--facts", &file, "--json"]));
    assert_eq!(without["status"], "unknown");
    assert!(without["evidence"].as_str().unwrap().contains("--peer"), "{without}");
    // A host is asked for there, where the node is: by the interface that leads to it.
    let towards = run(&["doctor", "10.0.0.2", "--lab", &node, "--duration", "10ms", "--json"]);
    let judged = String::from_utf8_lossy(&towards.stdout);
    assert!(judged.contains("\"a:eth0\"") && !judged.contains("\"a:lo\""), "{}", code(&towards));
    // What is no file of facts, and what is not there, is said in one sentence.
    std::fs::write(at("other.json"), "{\"schema\":\"x\"}").unwrap();
    for arguments in [
        vec!["doctor", "--facts", "/nonexistent"],
        vec!["doctor", "--facts", &at("other.json")],
        vec!["doctor", "nosuch0", "--lab", &node, "--duration", "10ms"],
        vec!["doctor", "--lab", &format!("{}/z", lab.name)],
    ] {
        let refused = run(&arguments);
        assert_eq!(code(&refused), 2, "{arguments:?}: {refused:?}");
    }
}

/// What can be switched, and what a driver has for good.
#[test]
fn features_of_an_interface_are_those_of_ethtool() {
    let _turn = beside();
    let Some(lab) = lab(PAIR, "doctor") else { return };
    if !installed("ethtool") {
        return skip("features of an interface", "ethtool is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, node) = (folder.path().join("facts.json").display().to_string(), format!("{}/a", lab.name));
    let written = run(&["facts", "-o", &file, "--lab", &node, "--duration", "50ms"]);
    assert_eq!(code(&written), 0, "{written:?}");
    let facts: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let known = &facts["nodes"]["a"]["interfaces"]["eth0"];
    let said = lab.must("a", "ethtool -k eth0");
    let (mut switched, mut fixed) = (0, 0);
    for (name, state) in said.lines().filter_map(|line| line.trim().split_once(": ")) {
        let fact = match &known[format!("feature.{name}")] {
            Value::Null => continue, // a group of features, or a name of ethtool's own
            Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
            text => text.as_str().unwrap_or_else(|| panic!("{name}: {text}")).to_owned(),
        };
        assert_eq!(fact.replace("(fixed)", "[fixed]"), state.replace(" [requested on]", ""), "{name}");
        *if state.contains("fixed") { &mut fixed } else { &mut switched } += 1;
    }
    assert!(switched > 5 && fixed > 5, "{switched} and {fixed} of {said}");
    let about = lab.must("a", "ethtool -i eth0");
    let driver = about.lines().find_map(|line| line.strip_prefix("driver: "));
    assert_eq!(known["driver"].as_str(), driver, "{about}");
}

/// A run that takes facts keeps them, and each reader of its record is told the same; repetitions have none.
#[test]
fn a_run_tells_what_the_doctor_finds_in_each_of_its_tests() {
    // Its stream takes what CPU time there is.
    let _turn = loud();
    let Some(lab) = lab(PAIR, "doctor-of-run") else { return };
    if !installed("ethtool") {
        return skip("the doctor of a run", "ethtool is not installed");
    }
    lab.must("a", "ethtool -K eth0 tso off");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(
        at("two.plan"),
        "topology pair\nrepetitions 2\ntest tcp-stream duration 800ms\ntest udp-rr count 400 rate 500pps\n\
         test frames count 400 rate 500pps\n",
    )
    .unwrap();
    let (plan, runs) = (at("two.plan"), at("runs"));
    let output = run(&["run", &plan, "--lab", &lab.name, "--doctor", "--dir", &runs, "--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let record: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    let tests = record["tests"].as_array().unwrap();
    assert_eq!(tests.len(), 6, "{said}");
    for test in tests {
        let has_facts = test["facts"]["nodes"]["a"]["interfaces"]["eth0"].is_object();
        assert_eq!(has_facts, test["repetition"] == 1, "{} #{}: {said}", test["name"], test["repetition"]);
    }
    // A test that has a count and no duration has a window, too.
    let windows = tests
        .iter()
        .filter(|test| test["repetition"] == 1)
        .map(|test| test["facts"]["seconds"].as_f64().unwrap());
    assert!(windows.clone().all(|seconds| seconds >= 0.1), "{:?}", windows.collect::<Vec<_>>());
    // They were taken while frames flowed, those of no protocol of the kernel, too: counters moved.
    let is_tcp = |test: &Value| test["spec"]["kind"] == "tcp-stream";
    let of_tcp = tests.iter().find(|test| is_tcp(test) && test["repetition"] == 1).unwrap();
    let sent = &of_tcp["facts"]["nodes"]["a"]["interfaces"]["eth0"]["stats.tx_packets"];
    assert!(sent["after"].as_u64().unwrap() > sent["before"].as_u64().unwrap() + 50, "{sent}");
    assert!(!said.contains("no frames flowed"), "{said}");
    let shown = String::from_utf8(run(&["show", "latest", "--dir", &runs]).stdout).unwrap();
    let section = shown.split("What the doctor finds").nth(1).unwrap_or_else(|| panic!("{shown}"));
    assert!(section.contains("OFF-01 a:eth0: tx-tcp-segmentation is off"), "{section}");
    assert!(section.contains("do: pathlab tune set eth0 feature.tx-tcp-segmentation=on"), "{section}");
    assert_eq!(section.matches("123 rules over").count(), 3, "of each test once: {section}");
    let page = at("page.html");
    let written = run(&["report", "latest", "--dir", &runs, "-o", &page]);
    assert!(written.status.success(), "{written:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("What the doctor found in tcp-stream duration 800ms #1") && page.contains("OFF-01")
    );
}

/// A document of facts as of a card, with this fact beside what it needs.
fn card(facts: &[(&str, &str)]) -> String {
    let known = facts.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect::<Vec<_>>().join(",");
    format!(
        "{{\"schema\":\"pathlab/facts/1\",\"pathlab\":\"\",\"seconds\":1,\"host\":{{}},\"cost_cpu_ns\":0,\
         \"nodes\":{{\"host\":{{\"known\":{{}},\"interfaces\":{{\"eth0\":{{\"kind\":\"card\",{known}}}}}}}}}}}"
    )
}

/// Faults that no namespace has, by facts of a card as its host would write them.
#[test]
fn faults_of_cards_are_named_first_from_facts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("card.json").display().to_string();
    let counter = "{\"before\":100,\"after\":5100}";
    let frames = "{\"before\":0,\"after\":900000}";
    let bytes = "{\"before\":0,\"after\":1300000000}";
    let coalescing = [("coalesce.rx-usecs", "500"), ("coalesce.adaptive-rx", "false")];
    let ring = [
        ("ring.rx", "256"),
        ("ring.rx-max", "4096"),
        ("stats.rx_missed_errors", counter),
        ("stats.rx_packets", frames),
        ("stats.rx_bytes", bytes),
        ("speed_mbps", "10000"),
        ("stall.most_us", "1200"),
    ];
    let queue = [("driver", "\"virtio_net\""), ("queues.rx", "1"), ("cpus", "8")];
    for (rule, goal, facts, command) in [
        ("IRQ-01", "latency", &coalescing[..], "coalesce.rx-usecs=0"),
        ("RNG-01", "throughput", &ring[..], "pathlab tune set eth0 ring.rx=2048 --allow-link-flap"),
        ("VM-01", "throughput", &queue[..], "channels.combined=8"),
    ] {
        std::fs::write(&file, card(facts)).unwrap();
        let output = finish(
            start(crate::support::pathlab(&["doctor", "--facts", &file, "--goal", goal, "--json"])),
            Duration::from_secs(20),
        );
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        let first = &report["rules"][0];
        assert_eq!((&first["id"], &first["status"]), (&rule.into(), &"finding".into()), "{first}");
        assert!(first["command"].as_str().unwrap().contains(command), "{first}");
    }
}

/// A test between two hosts: each end is examined while the frames flow, beside strangers, and knows the other one. Where the other host does
/// not tell what it sees, this one is examined alone.
#[test]
fn both_ends_of_a_test_between_two_hosts_are_examined() {
    let _turn = alone();
    if !is_root() || !installed("ethtool") || !installed("sysctl") {
        return skip("the doctor at both ends of a test", "needs root, ethtool and sysctl");
    }
    let lab = TestLab::up("pair", "ends");
    lab.must("a", "ethtool -K eth0 tso off gso off");
    lab.must("b", "sysctl -qw net.ipv4.tcp_window_scaling=0");
    lab.must("b", "ip link set eth0 mtu 1400");
    // No frame of the test goes there.
    lab.must("a", "ip link add beside type veth peer name other");
    lab.must("a", "ip link set beside up");
    let mut stranger = command("ip");
    let others = "import socket,time\no=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\nwhile True:\n  o.sendto(b'x'*64,('10.0.0.1',9)); time.sleep(0.001)";
    stranger.args(["netns", "exec", &lab.netns("b"), "python3", "-c", others]);
    let _stranger = Kept::new(start(stranger));
    let in_node = |node: &str, arguments: &[&str]| {
        let mut program = command("ip");
        program.args(["netns", "exec", &lab.netns(node), PATHLAB]).args(arguments);
        program
    };
    let examined = |serve: &[&str], test: &[&str]| -> Vec<Value> {
        let mut server = in_node("b", &[&["serve", "--json"], serve].concat());
        server.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = Kept::new(server.spawn().unwrap());
        first_line(server.stdout_pipe().unwrap());
        let flags = ["test", "tcp-stream", "10.0.0.2", "--doctor", "--json"];
        let output = finish(start(in_node("a", &[&flags, test].concat())), Duration::from_secs(60));
        let document: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        document["doctor"].as_array().unwrap().clone()
    };
    let found = |end: &Value| -> Vec<String> {
        let rules = end["report"]["rules"].as_array().unwrap().iter();
        let found = rules.filter(|rule| rule["status"] == "finding");
        found
            .map(|rule| format!("{} {}", rule["id"].as_str().unwrap(), rule["evidence"].as_str().unwrap()))
            .collect()
    };

    let ends = examined(&["--observe"], &["--duration", "2s"]);
    let names: Vec<&str> = ends.iter().map(|end| end["host"].as_str().unwrap()).collect();
    assert_eq!(names, ["local", "10.0.0.2"]);
    let [near, far] = [found(&ends[0]), found(&ends[1])];
    let told = |end: &[String], rule: &str| end.iter().any(|one| one.starts_with(rule));
    assert!(told(&near, "OFF-01 tx-tcp-segmentation is off"), "{near:?}");
    assert!(!told(&far, "OFF-01"), "{far:?}");
    // Without it at one end neither may scale: the connection shows it at both.
    assert!([&near, &far].iter().all(|end| told(end, "TCP-04 10.0.0.")), "{near:?} {far:?}");
    let odd = |end: &[String], own: u32, other: u32| {
        told(end, &format!("MTU-02 MTU {own}, the other end of the link has {other}"))
    };
    assert!(odd(&near, 1500, 1400) && odd(&far, 1400, 1500), "{near:?} {far:?}");
    // The frames of the test were in the window: of 1 s, in the middle of 2 s, and as much longer as a busy machine was late.
    for end in &ends {
        let seconds = end["report"]["seconds"].as_f64().unwrap();
        assert!((1.0..5.0).contains(&seconds), "{seconds}");
        let moved = &end["facts"]["nodes"]["host"]["interfaces"]["eth0"];
        let counter = |name: &str| {
            let one = &moved[name];
            one["after"].as_u64().unwrap() - one["before"].as_u64().unwrap()
        };
        assert!(counter("stats.tx_packets") + counter("stats.rx_packets") > 10_000, "{moved:#}");
        let report = end["report"]["rules"].to_string();
        assert!(!report.contains("no facts of the other end were given"), "{report}");
        assert!(!report.contains("beside\""), "{report}");
    }

    let alone = examined(&[], &["--duration", "300ms"]);
    assert!(told(&found(&alone[0]), "OFF-01"), "{:#}", alone[0]);
    let why = alone[1]["unknown"].as_str().unwrap();
    assert!(why.contains("serve --observe") && alone[1]["report"].is_null(), "{why}");
}
