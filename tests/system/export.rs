//! `pathlab export`: what Prometheus and OpenTelemetry get, read with their own parsers, against what the kernel counts.

use crate::beside;
use crate::routing::told;
use crate::support::{
    Kept, TestLab, command, finish, is_root, pathlab, run, run_ok, skip, start, until_it_says,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A Python with the official parsers (`tests/peers.sh`).
fn python() -> Option<PathBuf> {
    let python = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/peers/metrics/bin/python");
    python.is_file().then_some(python)
}

/// `pathlab export --prometheus` at a port that the system chooses.
struct Exporter {
    child: Kept,
    out: BufReader<ChildStdout>,
    address: String,
}

impl Exporter {
    fn start(arguments: &[&str]) -> Exporter {
        let mut child =
            start(pathlab(&[&["export", "--prometheus", "127.0.0.1:0", "--json"], arguments].concat()));
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let child = Kept::new(child);
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let begun: Value = serde_json::from_str(&line).unwrap();
        let url = begun["listening"].as_str().unwrap().to_owned();
        let address = url.strip_prefix("http://").and_then(|url| url.strip_suffix("/metrics")).unwrap();
        Exporter { child, out, address: address.to_owned() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// The whole answer to a request.
    fn ask(&self, request: &str) -> String {
        let (mut stream, mut answer) = (self.connect(), vec![]);
        stream.write_all(request.as_bytes()).unwrap();
        // A server that refuses may close before everything was read.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn scrape(&self) -> String {
        let answer = self.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(
            head.starts_with("HTTP/1.1 200 OK") && head.contains("application/openmetrics-text"),
            "{head}"
        );
        assert!(head.contains(&format!("Content-Length: {}", body.len())) && body.ends_with("# EOF\n"));
        body.to_owned()
    }

    /// Interrupts it; what it says at its end.
    fn end(mut self) -> Value {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT).unwrap();
        let mut last = String::new();
        self.out.read_line(&mut last).unwrap();
        let output = finish(self.child.take(), LIMIT);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(TcpStream::connect(&self.address).is_err(), "something listens after the end");
        serde_json::from_str(&last).unwrap()
    }
}

/// Samples as the parsers of Prometheus read them.
fn parsed(python: &Path, text: &str) -> Vec<Value> {
    let mut tool = command(python.to_str().unwrap());
    tool.arg("tests/metrics/samples.py").stdin(Stdio::piped());
    let mut child = start(tool);
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_owned();
    let feeder = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = finish(child, LIMIT);
    feeder.join().unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn value(samples: &[Value], name: &str, labels: &[(&str, &str)]) -> Option<u64> {
    let is = |sample: &&Value| {
        sample["name"] == name && labels.iter().all(|(key, label)| sample["labels"][key] == *label)
    };
    let found: Vec<&Value> = samples.iter().filter(is).collect();
    assert!(found.len() < 2, "{name} {labels:?}: {found:?}");
    found.first().and_then(|one| one["value"].as_f64()).map(|value| value as u64)
}

/// A lab with a qdisc that dropped, and nothing that moves any more.
fn lab() -> TestLab {
    let lab = TestLab::up("pair", "export");
    lab.must("a", "tc qdisc add dev eth0 root tbf rate 64kbit burst 1600 limit 2000");
    // Nobody listens: what is not dropped makes other counters move.
    let datagrams = "for i in $(seq 200); do printf %0400d 1 > /dev/udp/10.0.0.2/9; done";
    lab.must("a", &format!("bash -c '{datagrams}'"));
    let deadline = std::time::Instant::now() + LIMIT;
    while told(&lab, "a", "tc -s -j qdisc show dev eth0")[0]["qlen"].as_u64() != Some(0) {
        assert!(std::time::Instant::now() < deadline, "the shaper never gets empty");
        std::thread::sleep(Duration::from_millis(20));
    }
    lab
}

/// A name in Prometheus, labels and a count.
type Count = (&'static str, Vec<(&'static str, String)>, u64);

/// Every counter is what the kernel said before, or after: an interface that came up sends a frame by itself now and then.
fn is_between(before: &[Count], after: &[Count], told: impl Fn(&str, &[(&str, &str)]) -> Option<u64>) {
    assert!(before.len() > 70 && after.len() >= before.len(), "{}", before.len());
    let mut same = 0;
    for (name, labels, least) in before {
        let is = |(other, others, _): &&Count| other == name && others == labels;
        let (.., most) = after.iter().find(is).expect("it was there before");
        let labels: Vec<(&str, &str)> = labels.iter().map(|(key, label)| (*key, label.as_str())).collect();
        let found = told(name, &labels);
        assert!(
            found >= Some(*least) && found <= Some(*most),
            "{name} {labels:?}: {found:?}, {least} to {most}"
        );
        same += usize::from(least == most);
    }
    assert!(same > 60, "only {same} counters stood still");
}

/// What the kernel says of node a, by iproute2 and `/proc`.
fn truth(lab: &TestLab) -> Vec<Count> {
    let link = told(lab, "a", "ip -s -j link show eth0");
    let of = |way: &str, what: &str| link[0]["stats64"][way][what].as_u64().unwrap();
    let qdisc = told(lab, "a", "tc -s -j qdisc show dev eth0");
    let here = || vec![("node", "a".to_owned()), ("interface", "eth0".to_owned())];
    let mut all = vec![
        ("pathlab_interface_receive_frames_total", here(), of("rx", "packets")),
        ("pathlab_interface_receive_bytes_total", here(), of("rx", "bytes")),
        ("pathlab_interface_transmit_frames_total", here(), of("tx", "packets")),
        ("pathlab_interface_transmit_bytes_total", here(), of("tx", "bytes")),
        ("pathlab_qdisc_sent_frames_total", here(), qdisc[0]["packets"].as_u64().unwrap()),
        ("pathlab_qdisc_drops_frames_total", here(), qdisc[0]["drops"].as_u64().unwrap()),
        ("pathlab_qdisc_overlimits_total", here(), qdisc[0]["overlimits"].as_u64().unwrap()),
    ];
    let text = lab.must("a", "cat /proc/net/snmp");
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks(2) {
        let (group, names) = pair[0].split_once(':').unwrap();
        let values = pair[1].split_once(':').unwrap().1.split_whitespace();
        for (name, value) in names.split_whitespace().zip(values) {
            let is_state =
                ["Ip.Forwarding", "Ip.DefaultTTL", "Tcp.CurrEstab"].contains(&&*format!("{group}.{name}"));
            if !is_state && !name.starts_with("Rto") && name != "MaxConn" {
                let labels = vec![("node", "a".to_owned()), ("counter", format!("{group}.{name}"))];
                all.push(("pathlab_protocol_total", labels, value.parse().unwrap()));
            }
        }
    }
    all
}

#[test]
fn a_scrape_says_what_the_kernel_says() {
    let _turn = beside();
    let Some(python) = python() else {
        return skip("scrapes", "target/peers/metrics is not there (tests/peers.sh)");
    };
    if !is_root() {
        return skip("scrapes", "it needs root");
    }
    let lab = lab();
    let exporter = Exporter::start(&["--lab", &lab.name]);
    let before = truth(&lab);
    let samples = parsed(&python, &exporter.scrape());
    is_between(&before, &truth(&lab), |name, labels| value(&samples, name, labels));
    let drops = |name, counter| {
        let labels = [("node", "a"), ("interface", "eth0"), ("name", name), ("counter", counter)];
        value(&samples, "pathlab_drops_frames_total", &labels)
    };
    let dropped = told(&lab, "a", "tc -s -j qdisc show dev eth0")[0]["drops"].as_u64();
    assert!(dropped > Some(50) && drops("qdisc_full", "qdisc:drops") == dropped, "{dropped:?}");
    let one = samples.iter().find(|one| one["name"] == "pathlab_qdisc_drops_frames_total").unwrap();
    assert_eq!((one["kind"].as_str(), one["unit"].as_str()), (Some("counter"), Some("frames")));
    assert!(one["help"].as_str().unwrap().contains("Udp.SndbufErrors"), "the help has the trap: {one}");
    let ended = exporter.end();
    assert_eq!((ended["scrapes"].as_u64(), ended["refused"].as_u64()), (Some(1), Some(0)));
}

#[test]
fn clients_of_any_kind_cannot_stop_it() {
    let _turn = beside();
    let exporter = Exporter::start(&[]);
    let scrapes = 8;
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..scrapes).map(|_| scope.spawn(|| exporter.scrape())).collect();
        all.into_iter().for_each(|one| assert!(one.join().unwrap().contains("pathlab_build{")));
    });
    // They say nothing, half of a request, or never read; and stay.
    let silent = exporter.connect();
    let mut half = exporter.connect();
    half.write_all(b"GET /metr").unwrap();
    let mut deaf = exporter.connect();
    deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    for (request, status) in [
        ("\u{1}\u{2}\u{3}\u{4}\r\n\r\n", "HTTP/1.1 400"),
        ("DELETE /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405"),
        ("GET /etc/passwd HTTP/1.1\r\n\r\n", "HTTP/1.1 404"),
        ("HEAD /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200"),
    ] {
        let answer = exporter.ask(request);
        assert!(answer.starts_with(status), "{request:?}: {answer}");
    }
    let long = exporter.ask(&format!("GET /metrics HTTP/1.1\r\nA: {}", "b".repeat(20_000)));
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 431"), "{long}");
    exporter.scrape();
    // 32 have a place each; the next one is told so.
    let crowd: Vec<TcpStream> = (0..32).map(|_| exporter.connect()).collect();
    let busy = exporter.ask("GET /metrics HTTP/1.1\r\n\r\n");
    assert!(busy.starts_with("HTTP/1.1 503") && busy.contains("32 connections"), "{busy}");
    drop(crowd);
    // The silent one is sent away in the end.
    let mut answer = vec![];
    let _ = (&silent).read_to_end(&mut answer);
    assert!(answer.is_empty());
    let ended = exporter.end();
    assert!(ended["scrapes"].as_u64() >= Some(scrapes + 2), "{ended}");
    assert!(ended["refused"].as_u64() >= Some(4), "{ended}");
    drop((half, deaf));
}

#[test]
fn what_cannot_be_is_one_sentence() {
    let _turn = beside();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let gone = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", free.local_addr().unwrap())
    };
    for (arguments, code) in [
        (&["export", "--prometheus", &port][..], 3),
        (&["export", "--prometheus", "localhost"], 2),
        (&["export", "--otlp", "https://x"], 2),
        (&["export", "--otlp", &gone, "--once"], 3),
        (&["export", "--once"], 2),
        (&["export", "--prometheus", "0", "--interval", "0s"], 2),
    ] {
        let output = run(arguments);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {words}");
        assert!(words.starts_with("pathlab: ") && words.lines().count() == 1 || code == 2, "{words}");
    }
    let open = Exporter::start(&["--sockets", "0"]);
    assert!(!open.scrape().contains("pathlab_tcp_"));
    open.end();
    let mut warned = start(pathlab(&["export", "--prometheus", "0.0.0.0:0"]));
    until_it_says(&mut warned, "everybody who reaches this address");
    drop(Kept::new(warned));
}

/// A stand-in collector that gives these answers.
fn collector(python: &Path, answers: &[&str]) -> (Kept, String, BufReader<ChildStdout>) {
    let mut tool = command(python.to_str().unwrap());
    tool.arg("tests/metrics/collector.py").args(answers);
    let mut child = start(tool);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut port = String::new();
    out.read_line(&mut port).unwrap();
    (Kept::new(child), format!("http://127.0.0.1:{}", port.trim()), out)
}

fn messages(collector: Kept, mut out: BufReader<ChildStdout>) -> Vec<Value> {
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    let output = finish(collector.take(), LIMIT);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_collector_gets_what_the_kernel_says() {
    let _turn = beside();
    let Some(python) = python() else {
        return skip("pushes", "target/peers/metrics is not there (tests/peers.sh)");
    };
    if !is_root() {
        return skip("pushes", "it needs root");
    }
    let lab = lab();
    let (child, url, out) = collector(&python, &["partial"]);
    let before = truth(&lab);
    let ended: Value =
        serde_json::from_str(&run_ok(&["export", "--otlp", &url, "--once", "--lab", &lab.name, "--json"]))
            .unwrap();
    assert_eq!((ended["pushed"].as_u64(), ended["rejected"].as_u64()), (Some(1), Some(3)), "{ended}");
    let after = truth(&lab);
    let samples = messages(child, out);
    is_between(&before, &after, |name, labels| {
        let base = name.strip_suffix("_total").unwrap();
        let is = |sample: &&Value| {
            sample["name"].as_str().unwrap().replace('.', "_") == base
                && labels.iter().all(|(key, label)| sample["labels"][key] == *label)
        };
        let found: Vec<&Value> = samples.iter().filter(is).collect();
        assert!(found.len() < 2, "{name} {labels:?}");
        found.first()?["value"].as_u64()
    });
}

#[test]
fn a_collector_that_fails_for_a_while_loses_nothing() {
    let _turn = beside();
    let Some(python) = python() else {
        return skip("pushes to a failing collector", "target/peers/metrics is not there (tests/peers.sh)");
    };
    let (child, url, out) = collector(&python, &["503", "503", "200"]);
    let mut exporting = start(pathlab(&["export", "--otlp", &url, "--interval", "50ms", "--json"]));
    until_it_says(&mut exporting, "503");
    until_it_says(&mut exporting, "takes the counters again");
    let exporting = Kept::new(exporting);
    kill(Pid::from_raw(exporting.id() as i32), Signal::SIGTERM).unwrap();
    let output = finish(exporting.take(), LIMIT);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let last = String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned();
    let ended: Value = serde_json::from_str(&last).unwrap();
    assert!(ended["pushed"].as_u64() >= Some(1) && ended["failed"].as_u64() >= Some(2), "{ended}");
    assert!(messages(child, out).iter().any(|one| one["name"] == "pathlab.interface.receive.frames"));
}

/// A finished run under the same names: what the counters say is what nftables counted while it ran.
#[test]
fn a_finished_run_has_the_names_of_the_live_counters() {
    let _turn = beside();
    let Some(python) = python() else {
        return skip("runs for Prometheus", "target/peers/metrics is not there (tests/peers.sh)");
    };
    if !is_root() {
        return skip("runs for Prometheus", "it needs root");
    }
    let lab = TestLab::up("pair", "exportrun");
    lab.must("b", "nft 'table ip t { chain c { type filter hook input priority 0; udp length 72 numgen inc mod 3 0 counter drop; }; }'");
    let folder = tempfile::tempdir().unwrap();
    let (plan, records) = (folder.path().join("a.plan"), folder.path().join("runs"));
    let records = records.to_str().unwrap();
    let tests = "test udp-stream size 64 count 3000 rate 10kpps\ntest ping size 56 count 20\n";
    std::fs::write(&plan, format!("topology pair\npath a b\nrepetitions 1\norder listed\n{tests}")).unwrap();
    run_ok(&["run", plan.to_str().unwrap(), "--lab", &lab.name, "--dir", records]);
    let rules = lab.must("b", "nft list ruleset");
    let counted = rules.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next());
    let dropped: u64 = counted.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{rules}"));
    assert!((900..=1000).contains(&dropped), "{dropped}");

    let text = run_ok(&["export", "latest", "--dir", records]);
    let samples = parsed(&python, &text);
    let of = |name: &str, labels: &[(&str, &str)]| {
        value(&samples, name, &[&[("test", "udp-stream 64 B ×3000 10kpps")], labels].concat())
    };
    assert_eq!(of("pathlab_test_sent_messages_total", &[]), Some(3000));
    let lost = [("node", "b"), ("station", "ip in"), ("name", "filter_input")];
    assert_eq!(of("pathlab_ledger_drops_frames_total", &lost), Some(dropped));
    assert_eq!(of("pathlab_ledger_unexplained_frames", &[]), Some(0));
    // Counters of the kernel moved by what the test sent, and not by what the interface ever saw.
    let received = of("pathlab_interface_receive_frames_total", &[("node", "b"), ("interface", "eth0")]);
    assert!((3000..3100).contains(&received.unwrap()), "{received:?}");
    let echoes = [("test", "ping 56 B ×20"), ("node", "b"), ("counter", "Icmp.InEchos")];
    assert_eq!(value(&samples, "pathlab_protocol_total", &echoes), Some(20));

    let (child, url, out) = collector(&python, &["200"]);
    let ended: Value =
        serde_json::from_str(&run_ok(&["export", "latest", "--dir", records, "--otlp", &url, "--json"]))
            .unwrap();
    assert_eq!(ended["pushed"].as_u64(), Some(1), "{ended}");
    let pushed = messages(child, out);
    assert_eq!(pushed.len(), samples.len());
    let sent = pushed.iter().find(|one| one["name"] == "pathlab.test.sent.messages").unwrap();
    assert_eq!(
        (sent["value"].as_u64(), sent["labels"]["repetition"].as_str()),
        (Some(3000), Some("1")),
        "{sent}"
    );
    for (arguments, words) in [
        (&["export", "latest", "--dir", records, "--prometheus", "0"][..], "cannot be used with"),
        (&["export", "nosuch", "--dir", records], "nosuch"),
    ] {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(words), "{said}");
    }
}
