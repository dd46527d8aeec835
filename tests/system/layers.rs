//! Latency by layer: a delay that is planted in one layer is in the part of that layer and in no other, and the parts add up.

use crate::alone;
use crate::support::{Kept, TestLab, again, command, finish, is_root, run, run_ok, skip, start};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Messages of a test: each is stamped and kept.
const MESSAGES: f64 = 1_000.0;

fn plan(folder: &Path) -> String {
    let plan = folder.join("layers.plan").display().to_string();
    let test = "test udp-stream size 1472 rate 2kpps count 1000 sender-cpu 1 receiver-cpu 0";
    std::fs::write(&plan, format!("topology bridge\nrepetitions 1\nduration 2s\n{test}\n")).unwrap();
    plan
}

/// Requests of 1,466 bytes on the wire, and short responses.
fn plan_of_requests(folder: &Path) -> String {
    let plan = folder.join("requests.plan").display().to_string();
    let test = "test tcp-rr size 1400 response 64 count 301 sender-cpu 1 receiver-cpu 0";
    std::fs::write(&plan, format!("topology bridge\nrepetitions 1\nduration 5s\n{test}\n")).unwrap();
    plan
}

/// The layers of a run of datagrams in the lab.
fn measure(lab: &TestLab, folder: &Path) -> Value {
    measure_plan(lab, folder, &plan(folder))
}

fn measure_plan(lab: &TestLab, folder: &Path, plan: &str) -> Value {
    let records = folder.join("runs").display().to_string();
    let printed = run_ok(&["run", plan, "--lab", &lab.name, "--layers=1", "--dir", &records, "--json"]);
    let record: Value = serde_json::from_str(&printed).unwrap();
    record["tests"][0]["layers"].clone()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number, not {value}"))
}

/// Medians of the parts by layer and place, in milliseconds.
fn parts_ms(layers: &Value) -> BTreeMap<String, f64> {
    let name =
        |part: &Value| format!("{} {}", part["layer"].as_str().unwrap(), part["place"].as_str().unwrap());
    let parts = layers["split"]["parts"].as_array().unwrap_or_else(|| panic!("no parts: {layers}"));
    parts.iter().map(|part| (name(part), number(&part["p50_ns"]) / 1e6)).collect()
}

/// The parts are all of what the application measured, by the figures themselves.
fn adds_up(layers: &Value) {
    let split = &layers["split"];
    let sum: f64 = split["parts"].as_array().unwrap().iter().map(|part| number(&part["mean_ns"])).sum();
    assert!((sum - number(&split["sum_ns"])).abs() < 1.0, "{split}");
    let apart = (number(&split["measured_ns"]) - sum).abs();
    assert!(apart <= number(&split["error_ns"]), "{apart} ns apart: {split}");
    let messages = number(&split["complete"]) + number(&split["incomplete"]);
    assert!(number(&layers["cost_ns"]) > 0.0 && number(&layers["runs"]) > messages, "its own cost");
    assert_eq!(layers["lost"], 0);
}

/// Why that part does not have a delay, in milliseconds, or another part has more than a little; none when all is as planted.
fn misplaced(layers: &Value, wanted: &str, from: f64, to: f64) -> Option<String> {
    let parts = parts_ms(layers);
    let own = *parts.get(wanted).unwrap_or_else(|| panic!("no part '{wanted}': {parts:?}"));
    let is_little = |(name, ms): (&String, &f64)| name == wanted || *ms < 0.3;
    let is_right = (from..to).contains(&own) && parts.iter().all(is_little);
    (!is_right).then(|| format!("{parts:?}"))
}

/// A delay of that much in that part, when all is as planted: other work on the machine delays other parts.
fn planted(lab: &TestLab, folder: &Path, wanted: &str, from: f64, to: f64) -> Value {
    planted_in(|| measure(lab, folder), wanted, from, to)
}

fn planted_in(measure: impl Fn() -> Value, wanted: &str, from: f64, to: f64) -> Value {
    let once = || {
        let layers = measure();
        let why = misplaced(&layers, wanted, from, to);
        ((layers, why.clone()), why)
    };
    let (layers, why) = again::play("latency by layer", wanted, 3, once);
    assert_eq!(why, None, "{wanted}");
    adds_up(&layers);
    layers
}

/// What `tc` says that the interface's qdisc dropped.
fn dropped(lab: &TestLab, node: &str, interface: &str) -> f64 {
    let said: Value =
        serde_json::from_str(&lab.must(node, &format!("tc -j -s qdisc show dev {interface}"))).unwrap();
    number(&said[0]["drops"])
}

#[test]
fn a_delay_is_in_the_part_where_it_was_planted() {
    let _turn = alone();
    if !is_root() {
        return skip("latency by layer", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = TestLab::up("bridge", "layers");

    // A queue that delays.
    match lab.inside("a", "tc qdisc add dev eth0 root netem delay 5ms limit 10000") {
        Err(why) => skip("latency by layer, netem", &why),
        Ok(_) => {
            let layers = planted(&lab, folder.path(), "qdisc a:eth0", 4.99, 5.5);
            assert_eq!(
                (number(&layers["split"]["complete"]), number(&layers["split"]["incomplete"])),
                (MESSAGES, 0.0)
            );
            lab.must("a", "tc qdisc del dev eth0 root");
        }
    }

    // A full queue holds a frame for as long as its bytes take: 30,000 B at 20 Mbit/s are 12 ms. What it drops is incomplete.
    lab.must("s", "tc qdisc add dev p2 root tbf rate 20mbit burst 3000 limit 30000");
    let before = dropped(&lab, "s", "p2");
    let layers = planted(&lab, folder.path(), "qdisc s:p2", 9.0, 12.5);
    let lost = dropped(&lab, "s", "p2") - before;
    let split = &layers["split"];
    assert_eq!(number(&split["complete"]) + number(&split["incomplete"]), MESSAGES);
    // Some kernels run no program at events while certain processes have the CPU (docs/counters.md): such frames lack stamps, too.
    let without = number(&split["incomplete"]);
    assert!(lost > 20.0 && without >= lost && without <= lost + 0.03 * MESSAGES, "{lost} dropped: {split}");
    lab.must("s", "tc qdisc del dev p2 root");

    // Nothing is planted: no part has much. Then the page and the trace.
    let plain = planted(&lab, folder.path(), "qdisc s:p2", 0.0, 0.1);
    shown(folder.path(), &plain);
}

/// Two ends of another connection: one gives back what comes, the other sends a message and waits for it, for ever.
const ECHO: &str = "
import socket
server = socket.create_server(('', 7007))
stream = server.accept()[0]
while (data := stream.recv(4096)): stream.sendall(data)";
const ASK: &str = "
import socket, time
while True:
    try:
        stream = socket.create_connection(('10.0.0.2', 7007))
        break
    except OSError: time.sleep(0.05)
while True:
    stream.sendall(b'x' * 100)
    stream.recv(4096)
    time.sleep(0.002)";

/// Both ends of that connection, until they are dropped.
fn strangers(lab: &TestLab) -> [Kept; 2] {
    [("b", ECHO), ("a", ASK)].map(|(node, program)| {
        let mut stranger = command("ip");
        stranger.args(["netns", "exec", &lab.netns(node), "python3", "-c", program]);
        Kept::new(start(stranger))
    })
}

/// Requests and responses of a connection, whose messages say nothing of themselves: each has the stamps of its bytes, also beside another connection and where
/// segments are lost and sent again.
#[test]
fn a_delay_of_a_connection_is_in_the_part_where_it_was_planted() {
    let _turn = alone();
    if !is_root() {
        return skip("latency of a connection by layer", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = TestLab::up("bridge", "layers");
    let plan = plan_of_requests(folder.path());
    let measure = || measure_plan(&lab, folder.path(), &plan);

    // 1,466 B at 4 Mbit/s are 2.93 ms, and each request waits for the response to the one before. The first message has no stamps.
    lab.must("s", "tc qdisc add dev p2 root tbf rate 4mbit burst 1600 limit 30000");
    let layers = planted_in(measure, "qdisc s:p2", 2.3, 2.94);
    let split = &layers["split"];
    assert_eq!(number(&split["complete"]) + number(&split["incomplete"]), 300.0);
    assert!(number(&split["complete"]) > 285.0, "{split}");
    lab.must("s", "tc qdisc del dev p2 root");

    // Nothing is planted, but somebody else's connection is there.
    let strangers = strangers(&lab);
    let plain = planted_in(measure, "qdisc s:p2", 0.0, 0.1);
    assert!(number(&plain["split"]["complete"]) > 285.0, "{}", plain["split"]);
    drop(strangers);

    // Every 20th segment with data is lost: what was sent again is in no part, and no other message suffers.
    lab.must("b", "nft add table inet t");
    lab.must("b", "nft add chain inet t i '{ type filter hook input priority 0; }'");
    lab.must("b", "nft add rule inet t i meta length gt 1000 numgen inc mod 20 == 0 counter drop");
    let layers = measure();
    let split = &layers["split"];
    let without = number(&split["incomplete"]);
    assert!((10.0..40.0).contains(&without), "{split}");
    assert_eq!(number(&split["complete"]) + without, 300.0);
    assert!(parts_ms(&layers).values().all(|ms| *ms < 0.3), "{split}");
}

/// What an application writes at once has the stamps of the frame with its first byte: in a full queue, and over several connections at the same time beside
/// another one.
#[test]
fn a_delay_of_a_stream_is_in_the_part_where_it_was_planted() {
    let _turn = alone();
    if !is_root() {
        return skip("latency of a stream by layer", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = TestLab::up("bridge", "layers");
    let plan = |test: &str| {
        let plan = folder.path().join("stream.plan").display().to_string();
        let text =
            format!("topology bridge\nrepetitions 1\nduration 2s\ntest tcp-stream size 14480 {test}\n");
        std::fs::write(&plan, text).unwrap();
        plan
    };

    // TCP fills a queue of 30,000 B, which are 12 ms at 20 Mbit/s, and what is in front of that waits in the socket.
    lab.must("s", "tc qdisc add dev p2 root tbf rate 20mbit burst 3000 limit 30000");
    let bulk = plan("");
    let once = || {
        let parts = parts_ms(&measure_plan(&lab, folder.path(), &bulk));
        let [queue, send] = ["qdisc s:p2", "send a"].map(|name| parts[name]);
        let little = |(name, ms): (&String, &f64)| ["qdisc s:p2", "send a"].contains(&&**name) || *ms < 0.3;
        let is_right = (3.0..12.5).contains(&queue) && send > 20.0 && parts.iter().all(little);
        let why = (!is_right).then(|| format!("{parts:?}"));
        (why.clone(), why)
    };
    assert_eq!(again::play("latency by layer", "a stream in a full queue", 3, once), None);
    lab.must("s", "tc qdisc del dev p2 root");

    // Nothing is planted: three connections, each with a first message that has no stamps, and a stranger's.
    let strangers = strangers(&lab);
    let layers = measure_plan(&lab, folder.path(), &plan("streams 3 count 600 rate 600pps"));
    drop(strangers);
    let split = &layers["split"];
    let (complete, incomplete) = (number(&split["complete"]), number(&split["incomplete"]));
    assert!(complete > 560.0 && complete + incomplete <= 597.0, "{split}");
    let sum: f64 = split["parts"].as_array().unwrap().iter().map(|part| number(&part["mean_ns"])).sum();
    assert!((sum - number(&split["sum_ns"])).abs() < 1.0 && split["measured_ns"].is_null(), "{split}");
    assert!(parts_ms(&layers)["qdisc s:p2"] < 0.1, "{split}");
}

/// Frames that ports send and take have the stamps of their messages; a port without system calls says why there are none.
#[test]
fn frames_of_a_packet_socket_are_followed() {
    let _turn = alone();
    if !is_root() {
        return skip("latency of frames by layer", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = TestLab::up("bridge", "layers");
    let plan = folder.path().join("frames.plan").display().to_string();
    let test = "test frames size 1000 rate 500pps count 300";
    let text = format!("topology bridge\nrepetitions 1\nduration 2s\n{test}\n{test} port int/ring\n");
    std::fs::write(&plan, text).unwrap();
    let records = folder.path().join("runs").display().to_string();
    let of_port = |record: &Value, port: &str| {
        let tests = record["tests"].as_array().unwrap();
        tests.iter().find(|test| test["spec"]["port"] == port).unwrap()["layers"].clone()
    };
    // An end that loses its CPU between its last stamp and its own clock is beyond the error.
    let once = || {
        let printed = run_ok(&["run", &plan, "--lab", &lab.name, "--layers=1", "--dir", &records, "--json"]);
        let record: Value = serde_json::from_str(&printed).unwrap();
        let split = of_port(&record, "")["split"].clone();
        let apart = (number(&split["measured_ns"]) - number(&split["sum_ns"])).abs();
        let why = (apart > number(&split["error_ns"])).then(|| format!("{apart} ns apart: {split}"));
        ((record, why.clone()), why)
    };
    let (record, why) = again::play("latency by layer", "frames of a packet socket", 3, once);
    assert_eq!(why, None);
    let layers = of_port(&record, "");
    adds_up(&layers);
    let split = &layers["split"];
    assert_eq!(number(&split["complete"]) + number(&split["incomplete"]), 300.0);
    assert!(number(&split["complete"]) > 285.0, "{split}");
    let places: Vec<String> = parts_ms(&layers).into_keys().collect();
    let expected = ["application a", "send a", "qdisc a:eth0", "forwarding s:p1 → p2", "protocols+socket b"];
    assert!(expected.iter().all(|name| places.iter().any(|place| place == name)), "{places:?}");
    let missing = of_port(&record, "int/ring")["missing"].clone();
    let why = missing[0].as_str().unwrap();
    assert!(why.contains("without a system call"), "{why}");
}

/// The page has the section; the events of each row of the trace do not cross, and no row has the number of a process: Perfetto takes them
/// for one, and drops events that cross.
fn shown(folder: &Path, layers: &Value) {
    let records = folder.join("runs").display().to_string();
    let [page, trace] = ["page.html", "trace.json"].map(|name| folder.join(name).display().to_string());
    run_ok(&["report", "latest", "--dir", &records, "-o", &page]);
    assert!(std::fs::read_to_string(&page).unwrap().contains("atency by layer"));
    run_ok(&["report", "latest", "--trace", "--dir", &records, "-o", &trace]);
    let read: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    let mut rows: BTreeMap<[i64; 2], Vec<[i64; 2]>> = BTreeMap::new();
    for event in read["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X") {
        let row = ["pid", "tid"].map(|name| event[name].as_i64().unwrap());
        let [ts, duration] = ["ts", "dur"].map(|name| (number(&event[name]) * 1000.0).round() as i64);
        rows.entry(row).or_default().push([ts, ts + duration]);
    }
    let processes: BTreeSet<i64> = rows.keys().map(|[process, _]| *process).collect();
    for (row, mut events) in rows {
        assert!(!processes.contains(&row[1]) && row[1] > 0, "{row:?}");
        // Of two that begin together the longer one is the outer one.
        events.sort_by_key(|[begin, end]| (*begin, -end));
        let mut open: Vec<i64> = vec![];
        for [begin, end] in events {
            open.retain(|last| *last > begin);
            assert!(open.iter().all(|last| end <= *last), "{row:?}: crossing at {begin}");
            open.push(end);
        }
    }
    let stamps = layers["messages"].as_array().unwrap().len();
    assert_eq!(stamps as f64, MESSAGES);
    // What is there and is no trace is not replaced.
    std::fs::write(&trace, "mine").unwrap();
    let refused = run(&["report", "latest", "--trace", "--dir", &records, "-o", &trace]);
    assert_eq!(refused.status.code(), Some(2));
}

/// Burns for 15 ms and sleeps for 5.
const BUSY: &str = "
import time
while True:
    until = time.monotonic() + 0.015
    while time.monotonic() < until: pass
    time.sleep(0.005)";

/// A process that is nearly always ready on the receiver's CPU, and before it: what was delivered waits in the socket.
#[test]
fn a_busy_cpu_is_a_wait_in_the_socket() {
    let _turn = alone();
    if !is_root() {
        return skip("a wait in the socket", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = TestLab::up("bridge", "layers");
    let quiet = parts_ms(&measure(&lab, folder.path()));
    // In front of all threads of the ordinary class for 15 ms of each 20: half of all messages come 4 to 15 ms before it ends.
    let mut busy = command("chrt");
    busy.args(["-f", "10", "taskset", "-c", "0", "python3", "-c", BUSY]);
    let busy = Kept::new(start(busy));
    let layers = measure(&lab, folder.path());
    drop(busy);
    let of = |parts: &BTreeMap<String, f64>, name: &str| parts[name];
    let loaded = parts_ms(&layers);
    assert!(
        of(&quiet, "socket b") < 1.0 && (2.0..12.0).contains(&of(&loaded, "socket b")),
        "{quiet:?} {loaded:?}"
    );
    for name in ["qdisc a:eth0", "driver a:eth0 → s:p1", "qdisc s:p2", "protocols b"] {
        assert!(of(&loaded, name) < 0.3, "{name}: {quiet:?} {loaded:?}");
    }
    adds_up(&layers);
}

/// Who may not load programs is told so before anything is built.
#[test]
fn without_permission_layers_are_refused() {
    let _turn = alone();
    if !is_root() {
        return skip("layers without permission", "needs root that can give it up");
    }
    let mut denied = command("setpriv");
    denied.args(["--bounding-set", "-all", "--inh-caps", "-all", "--reuid", "65534", "--clear-groups"]);
    denied.arg(crate::support::PATHLAB).args(["run", "--layers", "--dir", "/nowhere"]);
    let output = finish(start(denied), Duration::from_secs(20));
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(127) || said.contains("setpriv:") {
        return skip("layers without permission", "setpriv cannot run the program");
    }
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("the layers of a path cannot be watched: "), "{said}");
}
