//! `pathlab follow`: the flows of ordinary programs of another user, between three namespaces, beside strangers, against what nft
//! counts of them.

use crate::routing::lab;
use crate::support::{
    Kept, TestLab, command, finish, installed, is_root, pathlab, run, skip, start, until_it_says,
};
use crate::{alone, beside};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Counters of both directions where frames come into a node, by protocol and port.
const COUNTERS: &str = "table inet truth {
    counter came { }
    counter back { }
    counter through { }
    counter lost { }
    chain into {
        type filter hook prerouting priority -300;
        PROTO dport PORT counter name came
        PROTO sport PORT counter name back
    }
    chain out { type filter hook postrouting priority 300; PROTO dport PORT counter name through; }
    chain lose { type filter hook forward priority 0; LOSE; }
}";

/// The lab with a router, without offloads, so that what nft counts are frames; none where the tools are missing.
fn world(label: &str, tools: &[&str]) -> Option<TestLab> {
    if let Some(tool) = ["nft", "ethtool", "setpriv"].iter().chain(tools).find(|tool| !installed(tool)) {
        skip(label, &format!("{tool} is not installed"));
        return None;
    }
    let lab = lab("router", label)?;
    for (node, interface) in [("a", "eth0"), ("r", "eth0"), ("r", "eth1"), ("b", "eth0")] {
        lab.must(node, &format!("ethtool -K {interface} tso off gso off gro off"));
    }
    Some(lab)
}

/// Counts the flow to that port in every node, and loses what the rule says in the router.
fn count(lab: &TestLab, protocol: &str, port: u16, lose: &str) {
    for node in ["a", "r", "b"] {
        let rules = COUNTERS.replace("PROTO", protocol).replace("PORT", &port.to_string());
        let rules = rules.replace("LOSE", if node == "r" { lose } else { "" });
        lab.must(node, &format!("nft '{rules}'"));
    }
}

/// What a counter of a node says.
fn truth(lab: &TestLab, node: &str, name: &str) -> u64 {
    let text = lab.must(node, &format!("nft -j list counter inet truth {name}"));
    let json: Value = serde_json::from_str(&text).unwrap();
    json["nftables"][1]["counter"]["packets"].as_u64().unwrap()
}

/// A program of another user inside a node.
fn nobody(lab: &TestLab, node: &str, line: &str) -> Command {
    let mut tool = command("ip");
    tool.args([
        "netns",
        "exec",
        &lab.netns(node),
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ]);
    tool.args(["sh", "-c", &format!("exec {line}")]);
    tool
}

/// Waits until somebody listens at that port of `b`.
fn until_served(lab: &TestLab, port: u16) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !lab.must("b", "ss -Hltn").contains(&format!(":{port} ")) {
        assert!(Instant::now() < deadline, "nobody listens at port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a program of another user in `a`, which must succeed.
fn must(lab: &TestLab, line: &str) {
    let output = finish(start(nobody(lab, "a", line)), Duration::from_secs(60));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Follows a flow while `work` goes on, in all three nodes; the exit code and the documents.
fn followed(lab: &TestLab, flow: &str, more: &[&str], work: impl FnOnce()) -> (i32, Vec<Value>) {
    let nodes = ["a", "r", "b"].map(|node| lab.netns(node));
    let mut arguments = vec!["follow", flow, "--json", "--interval", "200ms"];
    arguments.extend(more);
    arguments.push("--in");
    arguments.extend(nodes.iter().map(String::as_str));
    let mut child = start(pathlab(&arguments));
    until_it_says(&mut child, "following");
    let child = Kept::new(child);
    work();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = finish(child.take(), Duration::from_secs(60));
    let text = String::from_utf8_lossy(&output.stdout);
    let documents = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code().unwrap(), documents)
}

fn leg<'a>(report: &'a Value, leg: &str) -> &'a Value {
    report["legs"].as_array().unwrap().iter().find(|found| found["leg"] == leg).unwrap_or(&Value::Null)
}

/// `in` of the first link and `out` of the last one.
fn first_and_last(leg: &Value) -> (u64, u64) {
    let links = leg["links"].as_array().unwrap();
    assert_eq!(links.len(), 2, "{leg:#}");
    (links[0]["in"].as_u64().unwrap(), links[1]["out"].as_u64().unwrap())
}

/// Frames that are missing at a station of the router, and how many of them have that name.
fn missing(leg: &Value, station: &str, name: &str) -> (u64, u64) {
    let found = leg["stations"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["station"] == station && one["node"].as_str().unwrap().ends_with("-r"));
    let of_station = |one: &Value| {
        let drops = one["drops"].as_array().unwrap().iter();
        let named = drops.filter(|drop| drop["name"] == name).map(|drop| drop["count"].as_u64().unwrap());
        (one["in"].as_u64().unwrap() - one["out"].as_u64().unwrap(), named.sum())
    };
    found.map(of_station).fold((0, 0), |sum, one: (u64, u64)| (sum.0 + one.0, sum.1 + one.1))
}

/// Every frame of both directions has its place.
fn closes(report: &Value) {
    assert_eq!(report["rests"], true, "{report:#}");
    // What the kernel did not show to the witness has no name.
    let hidden = report["witness"]["lost"].as_u64().unwrap() as i64;
    for leg in report["legs"].as_array().unwrap() {
        let (unexplained, uncertainty) = (leg["unexplained"].as_i64().unwrap(), &leg["uncertainty"]);
        assert!((0..=hidden).contains(&unexplained) && *uncertainty == 0, "{leg:#}");
    }
}

#[test]
fn tcp_of_another_user_closes_to_the_frame_beside_strangers() {
    let _turn = alone();
    let Some(lab) = world("followtcp", &["iperf3", "curl"]) else { return };
    count(&lab, "tcp", 5201, "tcp dport 5201 numgen inc mod 400 == 7 counter name lost drop");
    let _server = Kept::new(start(nobody(&lab, "b", "iperf3 -s -p 5201")));
    let _stranger = Kept::new(start(nobody(&lab, "b", "iperf3 -s -p 5202")));
    until_served(&lab, 5201);
    until_served(&lab, 5202);
    let (code, documents) = followed(&lab, "tcp 10.0.1.2 > 10.0.2.2:5201", &[], || {
        let others = Kept::new(start(nobody(&lab, "a", "iperf3 -c 10.0.2.2 -p 5202 -u -b 20M -t 2")));
        must(&lab, "iperf3 -c 10.0.2.2 -p 5201 -n 8M");
        finish(others.take(), Duration::from_secs(60));
    });
    let report = documents.last().unwrap();
    assert_eq!((code, report["schema"].as_str()), (0, Some("pathlab/follow/1")));
    assert!(documents.len() > 1 && documents[0]["schema"] == "pathlab/follow-second/1");
    closes(report);
    let (forward, back) = (leg(report, "forward"), leg(report, "back"));
    let of_nft = |node, name| truth(&lab, node, name);
    assert_eq!(first_and_last(forward), (of_nft("r", "came"), of_nft("b", "came")), "{forward:#}");
    assert_eq!(first_and_last(back), (of_nft("r", "back"), of_nft("a", "back")), "{back:#}");
    let dropped = of_nft("r", "lost");
    let (lost, named) = missing(forward, "ip forward", "filter_forward");
    assert!(dropped > 0 && lost == dropped, "{lost} and not {dropped}: {forward:#}");
    assert!(named + report["witness"]["lost"].as_u64().unwrap() >= dropped, "{forward:#}");
    assert!(forward["from"]["node"].as_str().unwrap().ends_with("-a"), "{forward:#}");
    assert!(forward["to"]["node"].as_str().unwrap().ends_with("-b"), "{forward:#}");
}

#[test]
fn a_fetch_of_another_user_is_known_by_the_port_alone() {
    let _turn = beside();
    let Some(lab) = world("followcurl", &["curl"]) else { return };
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return skip("following a fetch", "/usr/bin/python3 is not there");
    }
    count(&lab, "tcp", 8080, "");
    let _server = Kept::new(start(nobody(&lab, "b", "/usr/bin/python3 -m http.server 8080 -d /usr/share")));
    until_served(&lab, 8080);
    let (code, documents) = followed(&lab, "tcp > :8080", &["--quiet", "--max-loss", "0"], || {
        (0..5).for_each(|_| must(&lab, "curl -sf -o /dev/null http://10.0.2.2:8080/"));
    });
    assert_eq!(
        (code, documents.len()),
        (0, 1),
        "only what is known at the end, and nothing was lost: {documents:#?}"
    );
    closes(&documents[0]);
    for (name, counter, last) in [("forward", "came", "b"), ("back", "back", "a")] {
        let counted = (truth(&lab, "r", counter), truth(&lab, last, counter));
        assert!(
            counted.0 > 10 && first_and_last(leg(&documents[0], name)) == counted,
            "{counted:?} {documents:#?}"
        );
    }
}

#[test]
fn a_planted_filter_and_a_full_queue_are_named_with_the_count_of_the_flow_alone() {
    let _turn = alone();
    let Some(lab) = world("followudp", &["iperf3", "tc"]) else { return };
    count(&lab, "udp", 5201, "udp dport 5201 numgen inc mod 10 == 3 counter name lost drop");
    let _server = Kept::new(start(nobody(&lab, "b", "iperf3 -s -p 5201")));
    let _stranger = Kept::new(start(nobody(&lab, "b", "iperf3 -s -p 5202")));
    until_served(&lab, 5201);
    until_served(&lab, 5202);
    lab.must("r", "tc qdisc add dev eth1 root tbf rate 10mbit burst 5kb limit 20kb");
    let (code, documents) = followed(&lab, "udp 10.0.1.2 > 10.0.2.2:5201", &["--max-loss", "5"], || {
        let line = |port| format!("iperf3 -c 10.0.2.2 -p {port} -u -b 8M -l 1000 -t 2");
        let others = Kept::new(start(nobody(&lab, "a", &line(5202))));
        must(&lab, &line(5201));
        finish(others.take(), Duration::from_secs(60));
    });
    let report = documents.last().unwrap();
    closes(report);
    let forward = leg(report, "forward");
    let of_nft = |node, name| truth(&lab, node, name);
    let (came, filtered, queued, arrived) =
        (of_nft("r", "came"), of_nft("r", "lost"), of_nft("r", "through"), of_nft("b", "came"));
    assert_eq!(came, filtered + queued);
    assert_eq!(first_and_last(forward), (came, arrived), "{forward:#}");
    let hidden = report["witness"]["lost"].as_u64().unwrap();
    let (lost, named) = missing(forward, "ip forward", "filter_forward");
    assert!(filtered > 0 && lost == filtered && named + hidden >= filtered, "{filtered}: {forward:#}");
    let (in_queue, in_link) =
        (missing(forward, "qdisc eth1", "qdisc_full"), missing(forward, "link eth1", "qdisc_full"));
    assert_eq!(in_queue.0 + in_link.0, queued - arrived, "{forward:#}");
    assert!(queued > arrived && in_queue.1 + hidden >= queued - arrived, "{forward:#}");
    assert_eq!((code, &report["passed"]), (1, &Value::Bool(false)), "more than five were lost");
}

#[test]
fn what_cannot_be_followed_is_refused_with_a_reason() {
    let _turn = beside();
    let said = |arguments: &[&str]| {
        let output = run(arguments);
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (arguments, why) in [
        (&["follow", "tcp 10.0.0.1", "--in", "."][..], "needs a '>'"),
        (&["follow", "tcp > *", "--in", "."], "an address or a port"),
        (&["follow", "tcp > :9"], "--in"),
        (&["follow", "tcp > :9", "--in", "no-such-namespace"], "there is no namespace no-such-namespace"),
        (&["follow", "tcp > :9", "--in", "pid:x"], "the number of a process"),
        (&["follow", "tcp > :9", "--in", ".", "--max-loss", "x"], "is not a loss"),
    ] {
        let (code, words) = said(arguments);
        assert!(code == 2 && words.contains(why), "{arguments:?}: {code}: {words}");
    }
    let Some(lab) = lab("router", "followbad") else { return };
    let (a, path) = (lab.netns("a"), format!("/run/netns/{}", lab.netns("a")));
    let (code, words) = said(&["follow", "tcp > :9", "--in", &a, &path]);
    assert!(code == 2 && words.contains("the same namespace"), "{code}: {words}");
    let (code, words) = said(&["follow", "tcp > :9", "--in", "/etc/passwd"]);
    assert!(code == 2 && words.contains("no network namespace"), "{code}: {words}");
    let output = run(&["follow", "tcp > :9", "--duration", "300ms", "--in", &a]);
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && words.contains("no frame of the flow was seen"), "{words}");
    if installed("setpriv") {
        let mut poor = command("setpriv");
        poor.args(["--bounding-set=-all", "--inh-caps=-all", "--", crate::support::PATHLAB]);
        poor.args(["follow", "tcp > :9", "--in", "."]);
        let output = finish(start(poor), Duration::from_secs(60));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && words.contains("needs root"), "{words}");
    }
}

/// Reads datagrams at a port until none comes for a second, and says how many; and sends some, of some bytes, to an address.
const DATAGRAMS: &str = r#"
import socket, sys, time
port, sends = int(sys.argv[1]), [one.split("/") for one in sys.argv[2:]]
inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
inside.bind(("", port)); inside.settimeout(1.5)
print("bound", flush=True)
sys.stdin.readline()
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for address, count, size in sends:
    for _ in range(int(count)):
        out.sendto(b"x" * int(size), (address, port)); time.sleep(0.002)
got = 0
try:
    while True: inside.recv(65535); got += 1
except socket.timeout: pass
print(got)
"#;

/// Such a program in a node, bound; it begins when it is told to.
fn datagrams(lab: &TestLab, node: &str, sends: &str) -> Child {
    let mut tool = command("ip");
    tool.args(["netns", "exec", &lab.netns(node), "/usr/bin/python3", "-c", DATAGRAMS, "5000"]);
    tool.args(sends.split_whitespace()).stdin(Stdio::piped());
    let mut child = start(tool);
    let mut bound = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut bound).unwrap();
    child
}

/// What each of these programs got, while the flow to their port is followed everywhere: of `a`, `r` and `b`.
fn got(lab: &TestLab, flow: &str, sends: [&str; 3]) -> (Vec<u64>, i32, Value) {
    let mut got = vec![];
    let (code, documents) = followed(lab, flow, &["--quiet", "--max-loss", "0"], || {
        let programs: Vec<Child> =
            ["a", "r", "b"].iter().zip(sends).map(|(node, sends)| datagrams(lab, node, sends)).collect();
        let told = programs.into_iter().map(|mut child| {
            child.stdin.take().unwrap().write_all(b"go\n").unwrap();
            child
        });
        let told: Vec<Child> = told.collect();
        let read =
            |child| String::from_utf8_lossy(&finish(child, Duration::from_secs(60)).stdout).trim().parse();
        got = told.into_iter().map(|child| read(child).unwrap()).collect();
    });
    (got, code, documents.into_iter().next_back().unwrap())
}

#[test]
fn datagrams_that_nobody_answers_are_what_their_readers_got() {
    let _turn = beside();
    let Some(lab) = world("followmany", &["nft"]) else { return };
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return skip("following datagrams", "/usr/bin/python3 is not there");
    }
    let sums = |report: &Value| {
        let forward = leg(report, "forward");
        ["sent", "received", "unexplained"].map(|key| forward[key].as_i64().unwrap())
    };
    // To itself, over the loopback interface.
    let (read, code, report) = got(&lab, "udp > 127.0.0.1:5000", ["127.0.0.1/30/100", "", ""]);
    assert_eq!((read, code, sums(&report)), (vec![30, 0, 0], 0, [30, 30, 0]), "{report:#}");
    // To two nodes, one of them on the way to the other, and from the one in the middle.
    let sends = ["10.0.2.2/30/100 10.0.1.1/40/100", "10.0.2.2/20/100", ""];
    let (read, code, report) = got(&lab, "udp > :5000", sends);
    assert_eq!((read, code), (vec![0, 40, 50], 0), "{report:#}");
    let [sent, received, unexplained] = sums(&report);
    // The router got 40 and sent 20: what is known is that 20 more came to it than went on.
    assert_eq!((received - sent, unexplained), (0, 0), "{report:#}");
    assert!((70..=90).contains(&sent), "{report:#}");
    // A datagram without its last fragment.
    lab.must("r", "nft 'table ip t { chain c { type filter hook prerouting priority -450; ip frag-off & 0x1fff == 0x172 counter drop; }; }'");
    let (read, code, report) = got(&lab, "udp 10.0.1.2 > 10.0.2.2:5000", ["10.0.2.2/30/4000", "", ""]);
    assert_eq!((read, code, sums(&report)), (vec![0, 0, 0], 1, [30, 0, 30]), "{report:#}");
    lab.must("r", "nft flush ruleset");
    // To a neighbour that there is not.
    let (_, code, report) = got(&lab, "udp 10.0.1.2 > 10.0.2.99:5000", ["10.0.2.99/30/100", "", ""]);
    let hidden = report["witness"]["lost"].as_i64().unwrap();
    let [sent, received, unexplained] = sums(&report);
    assert_eq!((code, sent, received), (1, 30, 0), "{report:#}");
    assert!((0..=hidden).contains(&unexplained), "{report:#}");
    assert!(report.to_string().contains("neighbour_unresolved"), "{report:#}");
}

/// Seen with `pathlab follow … | head -1`, which had to be ended by hand.
#[test]
fn it_ends_when_nobody_reads_it_any_more() {
    let _turn = beside();
    if !is_root() {
        return skip("a follower without a reader", "needs root");
    }
    let mut child = start(pathlab(&["follow", "udp > :9", "--in", ".", "--interval", "50ms"]));
    until_it_says(&mut child, "following");
    drop(child.stdout.take());
    let output = finish(child, Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(0), "nothing was asked of it");
}
