//! `pathlab drops`: planted faults against the counters that the kernel keeps of them, the file against what the receiver is missing.

use crate::beside;
use crate::routing::lab;
use crate::support::{
    Kept, PATHLAB, TestLab, again, command, finish, installed, is_root, pathlab, run_ok, skip, start,
    until_it_says,
};
use linux::sys::{bpf, netns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Where the datagrams of a test go.
const TO: &str = "10.0.2.2:7777";
/// Plays of a case whose drops the kernel did not show to programs (docs/counters.md: what happens on top of process 1).
const PLAYS: usize = 4;

/// Runs in a node, on a thread of its own.
fn within<T: Send>(lab: &TestLab, node: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{}", lab.netns(node))).unwrap();
    netns::within(file.as_fd(), work).unwrap()
}

/// Sends numbered datagrams of that many bytes from `a`; how many the kernel took.
fn send(lab: &TestLab, count: u32, bytes: usize) -> u32 {
    within(lab, "a", || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let one = |number: u32| {
            let mut payload = vec![0x5a; bytes];
            payload[..4].copy_from_slice(&number.to_be_bytes());
            socket.send_to(&payload, TO).is_ok()
        };
        (0..count).filter(|number| one(*number)).count() as u32
    })
}

/// Watches while `work` goes on, until it is interrupted; the documents.
fn watched(arguments: &[&str], work: impl FnOnce()) -> Vec<Value> {
    let mut child = start(pathlab(&[&["drops"], arguments, &["--json"]].concat()));
    until_it_says(&mut child, "watching");
    let child = Kept::new(child);
    work();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = finish(child.take(), Duration::from_secs(60));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn frames_by(report: &Value, reason: &str, node: &str) -> u64 {
    let rows = report["rows"].as_array().unwrap().iter();
    let wanted = rows.filter(|row| row["reason"] == reason && row["node"] == node);
    wanted.map(|row| row["frames"].as_u64().unwrap()).sum()
}

fn hidden(report: &Value) -> u64 {
    report["hidden"].as_u64().unwrap()
}

/// Why a case is to be played again: events were hidden, and something is missing.
fn why(report: &Value, seen: u64, truth: u64) -> Option<String> {
    (seen != truth && hidden(report) > 0).then(|| format!("{} events were hidden", hidden(report)))
}

/// What was dropped is neither waited for nor taken for more than it is.
fn closes(report: &Value) {
    assert_eq!(report["unaccounted"], 0, "{report:#}");
    assert_eq!(report["no_room"], 0, "{report:#}");
}

/// A number in a file of counters in two lines (`/proc/net/snmp`, `/proc/net/netstat`) of a node.
fn counter(lab: &TestLab, node: &str, file: &str, group: &str, name: &str) -> u64 {
    let text = lab.must(node, &format!("cat /proc/net/{file}"));
    let mut lines =
        text.lines().filter(|line| line.starts_with(&format!("{group}: "))).map(str::split_whitespace);
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    names.zip(values).find(|(found, _)| *found == name).unwrap().1.parse().unwrap()
}

fn nft_counter(lab: &TestLab, node: &str) -> u64 {
    let text = lab.must(node, "nft -j list counter inet fault dropped");
    let json: Value = serde_json::from_str(&text).unwrap();
    json["nftables"][1]["counter"]["packets"].as_u64().unwrap()
}

/// Loses datagrams in the router and counts them.
fn plant_filter(lab: &TestLab, what: &str) {
    let chain = "chain f { type filter hook forward priority 0;";
    let rules = format!(
        "table inet fault {{ counter dropped {{ }}\n{chain} {what} counter name dropped drop; }}; }}"
    );
    lab.must("r", &format!("nft '{rules}'"));
}

/// The lab with a router whose neighbours know each other; none where tools are missing.
fn world(label: &str, tools: &[&str]) -> Option<TestLab> {
    if let Some(tool) = tools.iter().find(|tool| !installed(tool)) {
        skip(label, &format!("{tool} is not installed"));
        return None;
    }
    let lab = lab("router", label)?;
    lab.must("a", "ping -c 1 -W 2 10.0.2.2");
    Some(lab)
}

/// One planted fault: what plants it, what counts it, and how the kernel calls it.
struct Fault {
    name: &'static str,
    node: &'static str,
    reason: &'static str,
    word: &'static str,
    place: &'static str,
    plant: fn(&TestLab),
    truth: fn(&TestLab) -> u64,
}

fn qdisc_drops(lab: &TestLab) -> u64 {
    let json: Value = serde_json::from_str(&lab.must("r", "tc -s -j qdisc show dev eth1 root")).unwrap();
    json[0]["drops"].as_u64().unwrap()
}

const FAULTS: [Fault; 5] = [
    Fault {
        name: "filter",
        node: "r",
        reason: "NETFILTER_DROP",
        word: "filter",
        place: "nft_do_chain",
        plant: |lab| plant_filter(lab, "udp dport 7777 numgen inc mod 3 == 0"),
        truth: |lab| nft_counter(lab, "r"),
    },
    Fault {
        name: "shaper",
        node: "r",
        reason: "QDISC_DROP",
        word: "qdisc_full",
        place: "__dev_queue_xmit",
        plant: |lab| drop(lab.must("r", "tc qdisc add dev eth1 root tbf rate 100kbit burst 2000 limit 3000")),
        truth: qdisc_drops,
    },
    Fault {
        name: "no route",
        node: "r",
        reason: "IP_INNOROUTES",
        word: "no_route",
        place: "ip_error",
        plant: |lab| drop(lab.must("r", "ip route del 10.0.2.0/24")),
        truth: |lab| counter(lab, "r", "netstat", "IpExt", "InNoRoutes"),
    },
    Fault {
        name: "reverse path",
        node: "b",
        reason: "IP_RPFILTER",
        word: "rp_filter",
        place: "ip_rcv_finish_core",
        plant: |lab| {
            lab.must("b", "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1");
            lab.must("b", "ip route add 10.0.1.0/24 dev lo");
        },
        truth: |lab| counter(lab, "b", "netstat", "TcpExt", "IPReversePathFilter"),
    },
    Fault {
        name: "socket buffer",
        node: "b",
        reason: "SOCKET_RCVBUFF",
        word: "socket_buffer_full",
        place: "udp_queue_rcv_one_skb",
        // The socket that nobody reads is there in every case.
        plant: |_| (),
        truth: |lab| counter(lab, "b", "snmp", "Udp", "RcvbufErrors"),
    },
];

/// Waits until the counter stands still and is not zero: the datagrams have come to their end.
fn until_still(truth: impl Fn() -> u64) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut before = truth();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = truth();
        if now == before && now > 0 {
            return now;
        }
        assert!(Instant::now() < deadline, "the planted fault dropped nothing, or does not end: {now}");
        before = now;
    }
}

/// A socket at `b` that nobody reads, with the smallest buffer.
fn unread(lab: &TestLab) -> UdpSocket {
    within(lab, "b", || {
        let socket = UdpSocket::bind(TO).unwrap();
        linux::sys::socket::set_buffers(&socket, None, Some(2048)).unwrap();
        socket
    })
}

fn play(fault: &Fault, filter: &[&str]) -> Option<(Value, u64, Option<String>)> {
    let lab = world("dropsums", &["nft", "tc"])?;
    let _socket = unread(&lab);
    (fault.plant)(&lab);
    let (before, mut truth) = ((fault.truth)(&lab), 0);
    let documents = watched(&[&["--lab", lab.name.as_str()], filter].concat(), || {
        send(&lab, 90, 700);
        truth = until_still(|| (fault.truth)(&lab) - before);
    });
    let report = documents.last().unwrap().clone();
    let seen = frames_by(&report, fault.reason, fault.node);
    let again = why(&report, seen, truth);
    Some((report, truth, again))
}

#[test]
fn sums_are_those_of_the_planted_counters() {
    let _turn = beside();
    for fault in &FAULTS {
        for filter in [&[][..], &["udp dst port 7777"]] {
            let once = || match play(fault, filter) {
                None => (None, None),
                Some((report, truth, again)) => (Some((report, truth)), again),
            };
            let Some((report, truth)) = again::play("drops hidden from programs", fault.name, PLAYS, once)
            else {
                return;
            };
            closes(&report);
            let rows = report["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| row["reason"] == fault.reason && row["node"] == fault.node);
            let row = row.unwrap_or_else(|| panic!("{}: {report:#}", fault.name));
            assert_eq!(row["frames"], truth, "{} {filter:?}: {report:#}", fault.name);
            assert_eq!((&row["name"], &row["place"]), (&fault.word.into(), &fault.place.into()), "{row:#}");
            let meanings = report["meanings"].as_array().unwrap();
            assert!(
                meanings.iter().any(|one| one["name"] == fault.word && one["advice"] != ""),
                "{report:#}"
            );
        }
    }
}

/// The numbers of the datagrams and the comments that tshark reads.
fn read_by_tshark(file: &str) -> Vec<(u32, String, String)> {
    let mut tool = command("tshark");
    tool.args(["-r", file, "-T", "fields", "-E", "separator=|", "-e", "udp.payload"]);
    tool.args(["-e", "frame.interface_name", "-e", "frame.comment"]);
    let output = finish(start(tool), Duration::from_secs(60));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let one = |line: &str| {
        let mut fields = line.splitn(3, '|').map(str::to_owned);
        let payload = fields.next().unwrap();
        assert_eq!(payload.len(), 2 * 200, "the whole datagram: {line}");
        (u32::from_str_radix(&payload[..8], 16).unwrap(), fields.next().unwrap(), fields.next().unwrap())
    };
    text.lines().map(one).collect()
}

#[test]
fn the_file_has_exactly_the_frames_that_did_not_arrive() {
    let _turn = beside();
    let once = || {
        let Some(lab) = world("dropsfile", &["nft", "tshark"]) else { return (None, None) };
        plant_filter(&lab, "udp dport 7777 numgen inc mod 3 == 0");
        let receiver = within(&lab, "b", || UdpSocket::bind(TO).unwrap());
        receiver.set_nonblocking(true).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dead.pcapng").display().to_string();
        let arguments = ["--lab", &lab.name, "--frames", "-w", &file, "udp", "dst", "port", "7777"];
        let mut arrived = BTreeSet::new();
        let documents = watched(&arguments, || {
            assert_eq!(send(&lab, 60, 200), 60);
            assert_eq!(until_still(|| nft_counter(&lab, "r")), 20);
            let mut payload = [0; 2048];
            while let Ok(length) = receiver.recv(&mut payload) {
                assert_eq!(length, 200);
                arrived.insert(u32::from_be_bytes(payload[..4].try_into().unwrap()));
            }
        });
        let report = documents.last().unwrap().clone();
        let read = read_by_tshark(&file);
        let again = why(&report, read.len() as u64, 20);
        (Some((documents, arrived, read)), again)
    };
    let played = again::play("drops hidden from programs", "file", PLAYS, once);
    let Some((documents, arrived, read)) = played else { return };
    let report = documents.last().unwrap();
    closes(report);
    let missing: BTreeSet<u32> = (0..60).filter(|number| !arrived.contains(number)).collect();
    let dead: Vec<u32> = read.iter().map(|(number, ..)| *number).collect();
    assert_eq!(dead, missing.into_iter().collect::<Vec<_>>(), "each once, in its order");
    for (_, interface, comment) in &read {
        assert_eq!(interface, "r:eth0");
        let wanted = "dropped: NETFILTER_DROP at nft_do_chain, interface eth0, node r; filter: ";
        assert!(comment.starts_with(wanted), "{comment}");
    }
    assert_eq!(
        (&report["written"]["frames"], &report["cut"], &report["frames"]),
        (&20.into(), &0.into(), &20.into())
    );
    let told: Vec<&Value> = documents.iter().filter(|one| one["schema"] == "pathlab/dead-frame/1").collect();
    assert_eq!(told.len(), 20);
    for frame in told {
        assert_eq!((&frame["source"], &frame["destination"]), (&"10.0.1.2".into(), &"10.0.2.2".into()));
        assert_eq!((&frame["destination_port"], &frame["protocol"]), (&7777.into(), &17.into()));
        assert_eq!((&frame["length"], &frame["link"]), (&242.into(), &"ethernet".into()));
    }
}

/// A datagram a millisecond to a port whose datagrams all die, until it is dropped: not of the test that goes on meanwhile.
fn stranger(lab: &TestLab) -> Kept {
    let mut tool = command("ip");
    let script = "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nwhile True:\n    s.sendto(b'x' * 200, ('10.0.2.2', 7777)); time.sleep(.001)";
    tool.args(["netns", "exec", &lab.netns("a"), "python3", "-c", script]);
    Kept::new(start(tool))
}

/// The sequence numbers of the test messages in a file (docs/nutshell.md: behind magic 2, stream 1, flags 1), by their payload, and the comments.
fn messages(file: &Path) -> Vec<(u64, String)> {
    let mut tool = command("tshark");
    tool.arg("-r").arg(file).args([
        "-T",
        "fields",
        "-E",
        "separator=|",
        "-e",
        "udp.payload",
        "-e",
        "frame.comment",
    ]);
    let output = finish(start(tool), Duration::from_secs(60));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let one = |line: &str| {
        let (payload, comment) = line.split_once('|').unwrap();
        (u64::from_str_radix(&payload[8..20], 16).unwrap(), comment.to_owned())
    };
    String::from_utf8_lossy(&output.stdout).lines().map(one).collect()
}

/// The frames of a test that died are in a file beside its record, each once, as many as the ledger names; those of others are not.
#[test]
fn a_run_keeps_the_frames_of_its_tests_that_died() {
    let _turn = beside();
    let once = || {
        let Some(lab) = world("dropsrun", &["nft", "tshark", "python3"]) else { return (None, None) };
        plant_filter(&lab, "udp dport 7777 drop; meta l4proto udp numgen inc mod 3 == 0");
        let folder = tempfile::tempdir().unwrap();
        let (plan, records) = (folder.path().join("x.plan"), folder.path().join("runs"));
        let tests = "test udp-stream size 64 count 300 rate 3kpps\ntest ping size 56 count 10";
        std::fs::write(&plan, format!("topology router\nrepetitions 1\norder listed\n{tests}\n")).unwrap();
        let (plan, records) = (plan.display().to_string(), records.display().to_string());
        let stranger = stranger(&lab);
        let text = run_ok(&["run", &plan, "--lab", &lab.name, "--drops", "--dir", &records, "--json"]);
        drop(stranger);
        let record: Value = serde_json::from_str(&text).unwrap();
        let dead = record["tests"][0]["dead_frames"].clone();
        let again = why(&dead, dead["frames"].as_u64().unwrap(), named(&record));
        (Some((record, records, folder)), again)
    };
    let played = again::play("drops hidden from programs", "run", PLAYS, once);
    let Some((record, records, folder)) = played else { return };
    let (test, id) = (&record["tests"][0], record["id"].as_str().unwrap());
    let (dead, lost) = (&test["dead_frames"], named(&record));
    let received = test["ledger"]["received"].as_u64().unwrap();
    closes(dead);
    assert_eq!((lost, lost + received, dead["frames"].as_u64()), (100, 300, Some(lost)), "{dead:#}");
    assert!(dead["filtered"].as_u64().unwrap() > 0, "the stranger's frames died, too: {dead:#}");
    assert_eq!((&dead["ended"], &dead["written"]["file"]), (&"over".into(), &"dead-1.pcapng".into()));
    let mut found = messages(&Path::new(&records).join(id).join("dead-1.pcapng"));
    found.sort();
    found.dedup_by_key(|(number, _)| *number);
    assert_eq!(found.len() as u64, lost, "each message once");
    let why = "dropped: NETFILTER_DROP at nft_do_chain, interface eth0, node r; filter: ";
    assert!(found.iter().all(|(number, comment)| *number < 300 && comment.starts_with(why)), "{found:?}");
    // Of a test of which nothing died there is no file.
    assert_eq!((&record["tests"][1]["dead_frames"]["frames"], dead_files(&records, id)), (&0.into(), 1));
    the_texts_name_the_file(&records, id, folder.path());
}

/// What the ledger of the first test names as dropped.
fn named(record: &Value) -> u64 {
    let stations = record["tests"][0]["ledger"]["stations"].as_array().unwrap().iter();
    let drops = stations.flat_map(|station| station["drops"].as_array().unwrap());
    drops.map(|drop| drop["count"].as_u64().unwrap()).sum()
}

fn dead_files(records: &str, id: &str) -> usize {
    let files = std::fs::read_dir(Path::new(records).join(id)).unwrap();
    files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().ends_with(".pcapng")).count()
}

/// The text and the page of the run; and the file goes with the run.
fn the_texts_name_the_file(records: &str, id: &str, folder: &Path) {
    let page = folder.join("page.html").display().to_string();
    run_ok(&["report", "latest", "--dir", records, "-o", &page]);
    for text in [run_ok(&["show", "latest", "--dir", records]), std::fs::read_to_string(&page).unwrap()] {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ").replace("&#x2f;", "/");
        let line = format!("dead frames: 100 in {id}/dead-1.pcapng: 100 filter at r");
        assert!(words.contains(&line), "a text does not name the file: {line}");
        assert!(!words.contains("by the drop witness of the ledger"), "the witness counted others: {words}");
    }
    run_ok(&["runs", "delete", "latest", "--dir", records]);
    assert!(!Path::new(records).join(id).exists());
}

#[test]
fn a_frame_without_a_link_layer_is_raw_ip_and_filters_see_it() {
    let _turn = beside();
    let once = || {
        let Some(lab) = world("dropsraw", &["nft", "tshark"]) else {
            return (None, None);
        };
        let chain =
            "chain o { type filter hook output priority 0; udp dport 7777 counter name dropped drop; }";
        lab.must("a", &format!("nft 'table inet fault {{ counter dropped {{ }}; {chain}; }}'"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dead.pcapng").display().to_string();
        let documents = watched(&["--lab", &lab.name, "-w", &file, "udp and port 7777"], || {
            assert_eq!(send(&lab, 5, 200), 0, "the filter refuses the call");
        });
        assert_eq!(nft_counter(&lab, "a"), 5);
        let report = documents.last().unwrap().clone();
        let again = why(&report, report["frames"].as_u64().unwrap(), 5);
        (Some((report, read_by_tshark(&file))), again)
    };
    let played = again::play("drops hidden from programs", "raw", PLAYS, once);
    let Some((report, read)) = played else { return };
    closes(&report);
    assert_eq!((frames_by(&report, "NETFILTER_DROP", "a"), read.len()), (5, 5), "{report:#}");
    assert!(read.iter().all(|(.., comment)| comment.contains("interface none, node a")), "{read:?}");
}

#[test]
fn under_a_flood_what_is_seen_and_what_is_lost_are_what_was_dropped() {
    let _turn = beside();
    let once = || {
        let Some(lab) = world("dropsflood", &["nft"]) else { return (None, None) };
        plant_filter(&lab, "udp dport 7777");
        // Room for a few frames only, so that most find none.
        let documents = watched(&["--lab", &lab.name, "--buffer", "8Ki"], || {
            let sent = u64::from(send(&lab, 20_000, 1000));
            let deadline = Instant::now() + Duration::from_secs(60);
            while nft_counter(&lab, "r") < sent {
                assert!(Instant::now() < deadline, "{sent} datagrams never came");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let (report, truth) = (documents.last().unwrap().clone(), nft_counter(&lab, "r"));
        let again = why(&report, frames_by(&report, "NETFILTER_DROP", "r"), truth);
        (Some((report, truth)), again)
    };
    let Some((report, truth)) = again::play("drops hidden from programs", "flood", PLAYS, once) else {
        return;
    };
    closes(&report);
    let number = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(frames_by(&report, "NETFILTER_DROP", "r"), truth, "{report:#}");
    assert!(number("lost") > 0 && number("seen") > 0, "{report:#}");
    assert_eq!(number("seen") + number("lost"), number("buffers"), "{report:#}");
}

#[test]
fn native_xdp_counts_by_its_event_or_by_the_driver() {
    let _turn = beside();
    let Some(lab) = world("dropsxdp", &[]) else { return };
    // r0 = action; exit
    let attach = |action: u64| {
        let code = [0xb7 | action << 32, 0x95];
        within(&lab, "b", || {
            let program =
                bpf::load_program(bpf::PROG_XDP, &code, c"GPL", "planted").map_err(|no| no.error)?;
            let index = nix::net::if_::if_nametoindex("eth0")?;
            bpf::attach_xdp(program.as_fd(), index, bpf::XDP_NATIVE)
        })
    };
    for (action, reason) in [(0, Some("XDP_ABORTED")), (1, None)] {
        let link = match attach(action) {
            Ok(link) => link,
            Err(error) => return skip("drops of XDP", &format!("no native XDP here: {error}")),
        };
        let once = || {
            let mut sent = 0;
            let documents = watched(&["--lab", &lab.name], || {
                sent = u64::from(send(&lab, 40, 300));
                // The polling of a veth is a soft interrupt that may come later.
                std::thread::sleep(Duration::from_millis(500));
            });
            let report = documents.last().unwrap().clone();
            let found = match reason {
                Some(reason) => frames_by(&report, reason, "b"),
                None => {
                    let drivers = report["drivers"].as_array().unwrap().iter();
                    let ours = drivers.filter(|one| one["node"] == "b" && one["interface"] == "eth0");
                    let drops = ours.filter(|one| one["counter"].as_str().unwrap().ends_with("xdp_drops"));
                    drops.map(|one| one["count"].as_u64().unwrap()).sum()
                }
            };
            let again = (found != sent).then(|| format!("{found} of {sent}"));
            ((report, found, sent), again)
        };
        let (report, found, sent) = again::play("drops hidden from programs", "xdp", PLAYS, once);
        assert_eq!(found, sent, "{report:#}");
        closes(&report);
        drop(link);
    }
}

#[test]
fn what_an_af_xdp_socket_has_no_room_for_is_a_failed_redirect() {
    let _turn = beside();
    let once = || {
        let Some(lab) = world("dropsxsk", &[]) else { return (None, None) };
        let mut capture = command("ip");
        capture.args(["netns", "exec", &lab.netns("b"), PATHLAB, "capture", "xdp:eth0", "--json", "--quiet"]);
        let mut capture = start(capture);
        until_it_says(&mut capture, "capturing");
        let capture = Kept::new(capture);
        let pid = Pid::from_raw(capture.id() as i32);
        // A reader that stands still: its rings fill.
        kill(pid, Signal::SIGSTOP).unwrap();
        let documents = watched(&["--lab", &lab.name], || {
            send(&lab, 6000, 100);
            std::thread::sleep(Duration::from_millis(500));
        });
        kill(pid, Signal::SIGCONT).unwrap();
        kill(pid, Signal::SIGINT).unwrap();
        let output = finish(capture.take(), Duration::from_secs(30));
        let captured: Value = serde_json::from_slice(&output.stdout).unwrap();
        let drops = captured["drops"].as_array().unwrap().iter().filter(|one| one["place"] == "ring");
        let truth: u64 = drops.map(|one| one["count"].as_u64().unwrap()).sum();
        let report = documents.last().unwrap().clone();
        let rows = report["rows"].as_array().unwrap().iter().filter(|row| row["place"] == "xdp_redirect_err");
        let rows: Vec<Value> = rows.cloned().collect();
        let seen: u64 = rows.iter().map(|row| row["frames"].as_u64().unwrap()).sum();
        (Some((rows, seen, truth)), (seen != truth || truth == 0).then(|| format!("{seen} of {truth}")))
    };
    let played = again::play("drops hidden from programs", "AF_XDP", PLAYS, once);
    let Some((rows, seen, truth)) = played else { return };
    assert!(seen == truth && truth > 0, "{seen} of {truth}: {rows:#?}");
    assert!(rows.iter().all(|row| row["name"] == "ring_full"), "{rows:#?}");
}

#[test]
fn a_quiet_namespace_has_an_empty_table() {
    let _turn = beside();
    if !is_root() {
        return skip("drops in a quiet namespace", "it needs root");
    }
    let mut quiet = command("unshare");
    quiet.args(["--net", "sleep", "60"]);
    let quiet = Kept::new(start(quiet));
    let namespace = format!("pid:{}", quiet.id());
    let is_inside = || {
        let of = |pid: String| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        of(quiet.id().to_string()) != of("self".into())
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_inside() {
        assert!(Instant::now() < deadline, "unshare made no namespace");
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = |more: &[&str]| {
        let output = finish(
            start(pathlab(&[&["drops", "--in", &namespace, "--duration", "300ms"], more].concat())),
            Duration::from_secs(30),
        );
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let words = said(&[]);
    assert!(words.contains("no frame was dropped") && words.contains("0 buffers shown"), "{words}");
    let report: Value = serde_json::from_str(&said(&["--json", "--quiet"])).unwrap();
    assert_eq!(
        (&report["rows"], &report["frames"], &report["ended"]),
        (&Value::Array(vec![]), &0.into(), &"duration".into())
    );
}

#[test]
fn a_count_ends_it_and_what_may_not_be_is_refused() {
    let _turn = beside();
    let Some(lab) = world("dropsend", &["nft", "setpriv"]) else { return };
    plant_filter(&lab, "udp dport 7777");
    let mut child =
        start(pathlab(&["drops", "--lab", &lab.name, "--count", "7", "--json", "--frames", "udp port 7777"]));
    until_it_says(&mut child, "watching");
    let child = Kept::new(child);
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::fs::read_to_string(format!("/proc/{}/stat", child.id()))
        .is_ok_and(|stat| !stat.contains(") Z "))
    {
        assert!(Instant::now() < deadline, "it never ended");
        send(&lab, 5, 100);
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = finish(child.take(), Duration::from_secs(30));
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().filter(|line| line.contains("pathlab/dead-frame/1")).count(), 7);
    let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&report["ended"], &report["buffers"]), (&"count".into(), &7.into()), "{report:#}");

    let code = |arguments: &[&str]| {
        let output = finish(start(pathlab(arguments)), Duration::from_secs(30));
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (bad, words) = code(&["drops", "--lab", &lab.name, "udp prot 7"]);
    assert!(bad == 2 && words.contains("cannot be compiled"), "{words}");
    let (bad, words) = code(&["drops", "--lab", &lab.name, "-w", "x.pcap"]);
    assert!(bad == 2 && words.contains(".pcapng"), "{words}");
    let (bad, words) = code(&["drops", "--lab", "no-such-lab"]);
    assert_eq!(bad, 2, "{words}");
    let mut without = command("setpriv");
    without.args(["--bounding-set", "-all", PATHLAB, "drops", "--duration", "100ms"]);
    let output = finish(start(without), Duration::from_secs(30));
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), words.trim().lines().count()), (Some(3), 1), "{words}");
    assert!(words.contains("CAP_BPF"), "{words}");
    let mut without = command("setpriv");
    without.args(["--bounding-set", "-all", PATHLAB, "run", "--drops", "--dir", "/nowhere"]);
    let output = finish(start(without), Duration::from_secs(30));
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("--drops") && words.contains("CAP_BPF"), "{words}");
}
