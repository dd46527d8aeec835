//! Queues of ports: classes of the kernel's HTB that this switch makes, or that `tc` made before.

use crate::client::{ANY, Client, add};
use crate::site::{Site, needs_root, within};
use crate::support;
use crate::vswitch;
use flow::openflow::bytes::Version;
use flow::openflow::multipart::{Reply, Request};
use flow::openflow::port::{QueueProperty, QueueRate, QueueRequest, QueueStats};
use linux::netlink::Netlink;
use linux::tune::queues as htb;
use std::net::UdpSocket;

/// Bytes of Ethernet, IPv4 and UDP before the payload.
const HEADERS: u64 = 14 + 20 + 8;

/// Two hosts that know each other; the switch keeps its journal in a folder of the test.
fn site() -> Site {
    let site = Site::build(2);
    site.ip(1, "neighbour add 10.0.0.2 lladdr 02:00:00:00:00:02 dev eth0");
    site
}

/// `pathlab` with words in the middle, and the folder for undo journals.
fn pathlab(site: &Site, words: &[&str]) -> std::process::Command {
    let mut command = site.command(0, support::PATHLAB);
    command.env("PATHLAB_STATE", site.folder.path().join("state")).args(words);
    command
}

/// The usual switch with more words.
fn start(site: &mut Site, more: &[&str]) {
    let socket = format!("punix:{}", site.socket().display());
    let mut command =
        pathlab(site, &["switch", "--port", "1=int:p1", "--port", "2=int:p2", "--listen", &socket]);
    command.args(more);
    site.start(command);
    site.wait_for("the switch's socket", |site| site.socket().exists());
}

/// Frames to UDP port 1010 go into queue 10, to 1050 into queue 50, all others into none.
fn rules(client: &mut Client) {
    client.must([
        add("priority=9,udp,in_port=1,tp_dst=1010 actions=set_queue:10,output:2"),
        add("priority=9,udp,in_port=1,tp_dst=1050 actions=write_actions(set_queue:50,output:2)"),
        add("priority=1,in_port=1 actions=output:2"),
    ]);
}

/// Sends datagrams from host 1 to host 2.
fn send(site: &Site, port: u16, count: u64, bytes: usize) {
    within(&site.netns(1), || {
        let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
        for _ in 0..count {
            assert_eq!(socket.send_to(&vec![7; bytes], ("10.0.0.2", port)).unwrap(), bytes);
        }
    });
}

/// The leaves of p2's HTB with what they counted: number of the class, frames, bytes.
fn classes(site: &Site) -> Vec<(u16, u64, u64)> {
    within(&site.netns(0), || {
        let links = Netlink::open().links().unwrap();
        let index = links.iter().find(|link| link.name == "p2").unwrap().index;
        let found = htb::read(index).unwrap().map_or(vec![], |htb| htb.queues);
        found.iter().map(|class| (class.id(), class.frames, class.bytes)).collect()
    })
}

fn stats(client: &mut Client) -> Vec<QueueStats> {
    let question = Request::QueueStats(QueueRequest { port_no: ANY, queue_id: ANY });
    let parts = client.question(question).into_iter();
    parts
        .flat_map(|part| if let Reply::QueueStats(rows) = part { rows } else { panic!("{part:?}") })
        .collect()
}

fn ovs_ofctl(site: &Site, version: &str, words: &str) -> String {
    let (ok, text) = site.try_run(0, &format!("ovs-ofctl -O {version} {words}"));
    assert!(ok, "{words}: {text}");
    text
}

/// What `tc` shows of p2's root.
fn root(site: &Site) -> String {
    site.try_run(0, "tc qdisc show dev p2 root").1
}

#[test]
fn frames_go_into_the_queues_that_rules_name_and_controllers_see_their_counters() {
    let what = "queues that the switch makes";
    if needs_root(what) {
        return;
    }
    let mut site = site();
    let more = [
        "--queue",
        "2:10,min=10mbit,max=10mbit",
        "--queue",
        "2:50,min=50mbit",
        "--speed",
        "2=1gbit",
        "--json",
    ];
    start(&mut site, &more);
    let mut client = Client::connect(&site.socket(), Version::V13);
    rules(&mut client);
    for (port, count, bytes) in [(1010, 30, 100), (1050, 50, 200), (1099, 20, 300)] {
        send(&site, port, count, bytes);
    }
    let expected = vec![(10, 30, 30 * (HEADERS + 100)), (50, 50, 50 * (HEADERS + 200))];
    site.wait_for("the counters of the classes", |site| classes(site) == expected);
    // The same by OpenFlow, with the rates as parts of 1 Gbit/s.
    let rows: Vec<_> = stats(&mut client)
        .iter()
        .map(|row| (row.port_no, row.queue_id, row.tx_packets, row.tx_bytes, row.tx_errors))
        .collect();
    assert_eq!(rows, [(2, 10, 30, expected[0].2, 0), (2, 50, 50, expected[1].2, 0)]);
    let mut newer = Client::connect(&site.socket(), Version::V14);
    let Reply::QueueDesc(queues) =
        &newer.question(Request::QueueDesc(QueueRequest { port_no: 2, queue_id: ANY }))[0]
    else {
        panic!()
    };
    let rates = |min, max| {
        [QueueProperty::MinRate(QueueRate { rate: min }), QueueProperty::MaxRate(QueueRate { rate: max })]
    };
    assert_eq!(queues[0].properties, rates(10, 10));
    assert_eq!(queues[1].properties, rates(50, 1000));
    // The frames without a queue went out, too: everything arrived.
    let ports = |site: &Site| {
        let line = format!("{} flow ports unix:{} --json", support::PATHLAB, site.socket().display());
        let (ok, ports) = site.try_run(0, &line);
        assert!(ok, "{ports}");
        ports
    };
    site.wait_for("the frames without a queue", |site| ports(site).contains("\"tx_frames\": 100"));
    assert!(ports(&site).contains("\"speed_kbps\": 1000000"), "{}", ports(&site));
    if support::installed("ovs-ofctl") {
        let switch = format!("unix:{}", site.socket().display());
        let text = ovs_ofctl(&site, "OpenFlow13", &format!("queue-stats {switch}"));
        assert!(text.contains("queue 10: bytes=4260, pkts=30, errors=0"), "{text}");
        assert!(text.contains("queue 50: bytes=12100, pkts=50, errors=0"), "{text}");
        for version in ["OpenFlow13", "OpenFlow14"] {
            let text = ovs_ofctl(&site, version, &format!("queue-get-config {switch} 2"));
            assert!(
                text.contains("10") && text.contains("min_rate:1.0%") && text.contains("max_rate:1.0%"),
                "{text}"
            );
            assert!(text.contains("50") && text.contains("min_rate:5.0%"), "{text}");
        }
    } else {
        support::skip("ovs-ofctl queue-stats", "ovs-ofctl is not installed");
    }
    flow_queues_tells_the_same(&site, expected[0].2, expected[1].2);
    drop(client);
    drop(newer);
    site.end();
    assert!(!root(&site).contains("htb"), "the queues go with the switch: {}", root(&site));
    // What it said at last: the queues and their counters.
    let said = std::fs::read_to_string(site.folder.path().join("log0")).unwrap();
    assert!(said.contains("queues of port 2: 10, 50 (made"), "{said}");
    for expected in ["\"queue\": 10", "\"min_bps\": 10000000", "\"frames\": 30", "\"bytes\": 12100"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

/// `pathlab flow queues` with words behind the switch, in JSON.
fn flow_queues(site: &Site, socket: &std::path::Path, words: &str) -> serde_json::Value {
    let line = format!("{} --json flow queues unix:{}{words}", support::PATHLAB, socket.display());
    let (ok, text) = site.try_run(0, &line);
    assert!(ok, "{line}: {text}");
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn flow_queues_tells_the_same(site: &Site, ten: u64, fifty: u64) {
    for words in [" --openflow 1.3", " --openflow 1.4", " p2 --openflow 1.3", " 2"] {
        let told = flow_queues(site, &site.socket(), words);
        assert_eq!(told["schema"], "pathlab/flow-queues/1");
        let rows: Vec<serde_json::Value> = told["queues"].as_array().unwrap().clone();
        let line = include_str!("../../docs/json.md")
            .lines()
            .find(|line| line.starts_with("| `pathlab/flow-queues/1`"));
        for name in rows[0].as_object().unwrap().keys() {
            assert!(line.unwrap().contains(&format!("`{name}`")), "docs/json.md does not mention {name}");
        }
        let ages: Vec<u64> = rows.iter().map(|row| row["age_ns"].as_u64().unwrap()).collect();
        assert!(ages.iter().all(|age| *age > 0), "{ages:?}");
        let row = |queue: u32, permille: [u32; 2], bps: [u64; 2], frames: u64, bytes: u64, age_ns: u64| {
            serde_json::json!({
                "port": "2", "name": "p2", "queue": queue, "min_permille": permille[0], "max_permille": permille[1],
                "min_bps": bps[0], "max_bps": bps[1], "frames": frames, "bytes": bytes, "dropped": 0, "age_ns": age_ns,
            })
        };
        let expected = [
            row(10, [10, 10], [10_000_000, 10_000_000], 30, ten, ages[0]),
            row(50, [50, 1000], [50_000_000, 1_000_000_000], 50, fifty, ages[1]),
        ];
        assert_eq!(rows, expected, "{words}");
    }
    assert_eq!(flow_queues(site, &site.socket(), " 1")["queues"], serde_json::json!([]));
    let line = |words: &str| {
        site.try_run(0, &format!("{} flow queues unix:{}{words}", support::PATHLAB, site.socket().display()))
    };
    let (_, text) = line("");
    assert!(text.contains("2 p2") && text.contains("1.0 % = 10 Mbit/s"), "{text}");
    assert!(text.contains("100.0 % = 1 Gbit/s"), "{text}");
    let (ok, text) = line(" p7");
    assert!(!ok && text.contains("no port 'p7'") && text.contains("1 p1, 2 p2"), "{text}");
    let (ok, text) = line(" 9");
    assert!(!ok && text.contains("BadPort"), "{text}");
}

#[test]
fn queues_of_open_vswitch_are_told() {
    let what = "pathlab flow queues of Open vSwitch";
    if needs_root(what) || vswitch::is_missing(what) {
        return;
    }
    let site = site();
    let vswitch = vswitch::Vswitch::in_site(&site);
    vswitch.set(
        &site,
        "set port p2 qos=@new -- --id=@new create qos type=linux-htb other-config:max-rate=1000000000 \
         queues:10=@ten queues:50=@fifty -- --id=@ten create queue other-config:min-rate=10000000 \
         other-config:max-rate=20000000 -- --id=@fifty create queue other-config:min-rate=50000000",
    );
    for words in [" --openflow 1.3", " --openflow 1.4", " p2"] {
        let told = flow_queues(&site, &vswitch.socket(), words);
        let rows = told["queues"].as_array().unwrap();
        let queues: Vec<u64> = rows.iter().map(|row| row["queue"].as_u64().unwrap()).collect();
        // It has a queue 0 where nothing else is said, and tells no rates, whatever its database has.
        assert_eq!(queues, [0, 10, 50], "{told}");
        for row in rows {
            assert_eq!((&row["port"], &row["name"]), (&"2".into(), &"p2".into()), "{told}");
            for rate in ["min_permille", "max_permille", "min_bps", "max_bps"] {
                assert!(row[rate].is_null(), "{told}");
            }
            // Its datapath in user space puts no frame into a queue; that they are counted is seen.
            for counter in ["frames", "bytes", "dropped"] {
                assert_eq!(row[counter], 0, "{told}");
            }
        }
    }
}

#[test]
fn queues_that_tc_made_before_are_used_and_stay() {
    if needs_root("queues that tc made") {
        return;
    }
    let mut site = site();
    for line in [
        "qdisc add dev p2 root handle 1: htb default 1",
        "class add dev p2 parent 1: classid 1:ffff htb rate 100mbit",
        "class add dev p2 parent 1:ffff classid 1:1 htb rate 10mbit ceil 100mbit",
        "class add dev p2 parent 1:ffff classid 1:a htb rate 20mbit ceil 50mbit",
    ] {
        let (ok, text) = site.try_run(0, &format!("tc {line}"));
        assert!(ok, "tc {line}: {text}");
    }
    start(&mut site, &[]);
    let mut client = Client::connect(&site.socket(), Version::V13);
    rules(&mut client);
    // There is no queue 50: its frames go where those without a queue go, into tc's default class.
    for (port, count) in [(1010, 7), (1050, 5), (1099, 3)] {
        send(&site, port, count, 58);
    }
    site.wait_for("the counters of the classes", |site| classes(site) == [(1, 8, 800), (10, 7, 700)]);
    let rows: Vec<_> = stats(&mut client).iter().map(|row| (row.queue_id, row.tx_packets)).collect();
    assert_eq!(rows, [(1, 8), (10, 7)]);
    // A class that goes away is no queue any more.
    let (ok, text) = site.try_run(0, "tc class delete dev p2 classid 1:1");
    assert!(ok, "{text}");
    let rows: Vec<_> = stats(&mut client).iter().map(|row| row.queue_id).collect();
    assert_eq!(rows, [10]);
    drop(client);
    site.end();
    assert!(root(&site).contains("htb 1:"), "what tc made stays: {}", root(&site));
}

#[test]
fn a_switch_that_was_killed_leaves_queues_only_until_the_next_command() {
    if needs_root("queues after kill -9") {
        return;
    }
    let mut site = site();
    let queue = ["--queue", "2:10,min=10mbit"];
    // The socket is there before the queues are.
    let has_queues = |site: &Site| root(site).contains("htb 706c:");
    start(&mut site, &queue);
    site.wait_for("the queues", has_queues);
    site.kill();
    assert!(root(&site).contains("htb 706c:"), "nobody had the time: {}", root(&site));
    let output =
        support::finish(support::start(pathlab(&site, &["undo"])), std::time::Duration::from_secs(60));
    assert!(output.status.success());
    assert!(!root(&site).contains("htb"), "{}", root(&site));
    // And a switch that starts undoes it itself: its own queues are fresh.
    std::fs::remove_file(site.socket()).unwrap();
    start(&mut site, &queue);
    site.wait_for("the queues again", has_queues);
    site.kill();
    std::fs::remove_file(site.socket()).unwrap();
    start(&mut site, &["--queue", "2:11"]);
    site.wait_for("queues of its own", |site| classes(site) == [(11, 0, 0)]);
}

#[test]
fn what_cannot_have_queues_is_said() {
    if needs_root("queues that cannot be") {
        return;
    }
    let site = Site::build(3);
    let (ok, text) = site.try_run(0, "tc qdisc add dev p1 root tbf rate 1mbit burst 5kb latency 50ms");
    assert!(ok, "{text}");
    let (ok, text) = site.try_run(0, "tc qdisc add dev p2 root handle 5: htb");
    assert!(ok, "{text}");
    for (words, expected, code) in [
        ("--port ring:p2?bypass=on --queue 1:2", "this port has no queues", 2),
        ("--port int:p1 --queue 1:2", "a qdisc that somebody made", 2),
        ("--port int:p2 --queue 1:2", "without a class for queue 2", 2),
        ("--port int:p1 --queue 2:2", "there is no port 2", 2),
        ("--port int:p1 --queue 1:0", "from 1 to", 2),
        ("--port int:p3 --queue 1:2,min=2gbit --speed 1=1gbit", "2000000000 bit/s in any case", 2),
    ] {
        let words: Vec<&str> = ["switch"].into_iter().chain(words.split(' ')).collect();
        let output =
            support::finish(support::start(pathlab(&site, &words)), std::time::Duration::from_secs(60));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(expected), "{words:?}: {text}");
        assert_eq!(output.status.code(), Some(code), "{text}");
    }
    assert!(site.try_run(0, "tc qdisc show dev p1").1.contains("tbf"), "and nothing was changed");
}
