//! `pathlab tcp`: what it reads against `ss -tin`, and the limit that was planted against the one that it names.

use crate::routing::lab;
use crate::support::{Kept, TestLab, finish, pathlab, run, skip, start, until_it_says};
use crate::{alone, beside};
use linux::sys::{netns, socket};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const AT: &str = "10.0.2.2:5201";

fn within<T: Send>(lab: &TestLab, node: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{}", lab.netns(node))).unwrap();
    netns::within(file.as_fd(), work).unwrap()
}

/// A connection from `a` to `b`; the receive buffer of `b` if it is not the kernel's.
fn connected(lab: &TestLab, receive_buffer: Option<u32>) -> (TcpStream, TcpStream) {
    let listener = within(lab, "b", || {
        let listener = TcpListener::bind(AT).unwrap();
        socket::set_buffers(&listener, None, receive_buffer).unwrap();
        listener
    });
    let client = within(lab, "a", || TcpStream::connect(AT).unwrap());
    (client, listener.accept().unwrap().0)
}

/// What goes on at both ends until it is told to end; each gets a stream that is done with within 50 ms at most.
fn meanwhile<T>(
    (client, server): (TcpStream, TcpStream),
    send: impl Fn(&mut TcpStream) -> bool + Send + Sync,
    receive: impl Fn(&mut TcpStream) -> bool + Send + Sync,
    work: impl FnOnce() -> T,
) -> T {
    let ended = AtomicBool::new(false);
    let patience = Some(Duration::from_millis(50));
    let until_ended = |mut stream: TcpStream, once: &dyn Fn(&mut TcpStream) -> bool| {
        stream.set_write_timeout(patience).unwrap();
        stream.set_read_timeout(patience).unwrap();
        let mut goes_on = true;
        while goes_on {
            goes_on = once(&mut stream) && !ended.load(Ordering::Relaxed);
        }
        stream
    };
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| until_ended(client, &send));
        let receiving = scope.spawn(|| until_ended(server, &receive));
        let done = work();
        ended.store(true, Ordering::Relaxed);
        drop((sending.join(), receiving.join()));
        done
    })
}

/// Reads or writes as it goes: a time-out is no end.
fn goes_on(result: std::io::Result<usize>) -> bool {
    match result {
        Ok(bytes) => bytes > 0,
        Err(error) => matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    }
}

fn full_speed(stream: &mut TcpStream) -> bool {
    goes_on(stream.write(&[7; 65_536]))
}

fn eager(stream: &mut TcpStream) -> bool {
    goes_on(stream.read(&mut [0; 65_536]))
}

fn sampled(lab: &TestLab, more: &[&str]) -> Vec<Value> {
    let output = run(&[&["tcp", "--json", "--lab", lab.name.as_str()], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The report's connection of that node.
fn of<'a>(report: &'a Value, node: &str) -> &'a Value {
    let found = report["connections"].as_array().unwrap().iter().find(|one| one["node"] == node);
    found.unwrap_or_else(|| panic!("no connection of {node}: {report:#}"))
}

/// What `ss -tin` says of the connection of `a`: words of the form `name:value`, and the congestion control.
fn by_ss(lab: &TestLab) -> (String, Vec<(String, String)>) {
    let text = lab.must("a", "ss -tinH dst 10.0.2.2");
    let mut words = text.lines().nth(1).expect("two lines").split_whitespace();
    let control = words.next().unwrap().to_owned();
    let pair = |word: &str| word.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    (control, words.filter_map(pair).collect())
}

#[test]
fn a_resting_connection_is_what_ss_says() {
    let _turn = beside();
    let Some(lab) = lab("router", "tcpss") else { return };
    let (mut client, mut server) = connected(&lab, None);
    client.write_all(&[1; 100_000]).unwrap();
    server.read_exact(&mut [0; 100_000]).unwrap();
    server.write_all(&[2; 500]).unwrap();
    client.read_exact(&mut [0; 500]).unwrap();
    // Until nothing is left to be acknowledged both see the same.
    let deadline = Instant::now() + Duration::from_secs(20);
    let (before, report, after) = loop {
        let before = by_ss(&lab);
        let report = sampled(&lab, &["--once", "peer", "10.0.2.2"]).pop().unwrap();
        let after = by_ss(&lab);
        let still = |words: &[(String, String)]| -> Vec<(String, String)> {
            words.iter().filter(|(name, _)| !name.starts_with("last")).cloned().collect()
        };
        if still(&before.1) == still(&after.1) {
            break (before, report, after);
        }
        assert!(Instant::now() < deadline, "the connection never rests");
    };
    let found = of(&report, "a");
    assert_eq!((&found["congestion"], &found["state"]), (&before.0.as_str().into(), &"established".into()));
    assert_eq!(found["peer"], AT);
    let info = &found["info"];
    let number = |name: &str| info[name].as_u64().unwrap_or_else(|| panic!("no {name}: {info:#}"));
    let mut compared = 0;
    for (name, value) in &after.1 {
        let ours = match name.as_str() {
            "rto" => number("rto") / 1000,
            "mss" => number("snd_mss"),
            "cwnd" => number("snd_cwnd"),
            "rcvmss" => number("rcv_mss"),
            "pmtu" | "advmss" | "bytes_sent" | "bytes_acked" | "bytes_received" | "segs_out" | "segs_in"
            | "data_segs_out" | "data_segs_in" | "delivered" | "rcv_space" | "rcv_ssthresh" | "snd_wnd"
            | "rcv_wnd" => number(name),
            _ => continue,
        };
        assert_eq!(*value, ours.to_string(), "{name}: {info:#}");
        compared += 1;
    }
    assert!(compared > 12, "ss says too little: {after:?}");
    assert_eq!((number("bytes_sent"), number("bytes_received")), (100_000, 500));
    let rtt =
        after.1.iter().find(|(name, _)| name == "rtt").map(|(_, value)| value.split('/').next().unwrap());
    assert_eq!(rtt.unwrap().parse::<f64>().unwrap(), number("rtt") as f64 / 1000.0);
    assert!(found["raw"]["2"].as_str().unwrap().len() >= 2 * 104, "{found:#}");
}

/// What is done while it is sampled, and what it says of the sender: at least one such limit holds for most of the time.
fn limited(
    label: &str,
    buffer: Option<u32>,
    shaped: bool,
    send: fn(&mut TcpStream) -> bool,
    receive: fn(&mut TcpStream) -> bool,
) -> Option<Value> {
    let lab = lab("router", label)?;
    if shaped {
        lab.must("r", "tc qdisc add dev eth1 root tbf rate 20mbit burst 20000 limit 60000");
    }
    let connection = connected(&lab, buffer);
    let documents = meanwhile(connection, send, receive, || {
        sampled(&lab, &["--interval", "5ms", "--duration", "1500ms", "--samples", "peer-port", "5201"])
    });
    let report = documents.last().unwrap().clone();
    let samples =
        documents.iter().filter(|one| one["schema"] == "pathlab/tcp-sample/1" && one["node"] == "a").count();
    let sender = of(&report, "a");
    assert_eq!(sender["samples"], samples, "every reading is told");
    // Every time of a sample was kept or is told to be missed.
    let (taken, missed) = (report["samples"].as_u64().unwrap(), report["missed"].as_u64().unwrap());
    assert_eq!(taken + missed, 300, "{taken} + {missed}");
    let time = &sender["time"];
    let part = |name: &str| time[name].as_u64().unwrap();
    let parts =
        part("application_us") + part("receiver_window_us") + part("send_buffer_us") + part("network_us");
    assert_eq!(parts, part("wall_us"), "{time:#}");
    assert_eq!(sender["rtt_ns"]["count"], samples, "{sender:#}");
    Some(sender.clone())
}

fn has_most(sender: &Value, wanted: &str, word: &str) {
    let time = sender["time"].as_object().unwrap();
    let parts = ["application_us", "receiver_window_us", "send_buffer_us", "network_us"];
    let most = parts.into_iter().max_by_key(|part| time[*part].as_u64().unwrap()).unwrap();
    assert_eq!((most, &sender["limit"]["what"]), (wanted, &word.into()), "{sender:#}");
    let name = wanted.trim_end_matches("_us");
    assert!(sender["changes"][name].as_u64().unwrap() > 0, "{sender:#}");
}

#[test]
fn a_slow_reader_is_the_receivers_window() {
    let _turn = alone();
    let slow = |stream: &mut TcpStream| {
        std::thread::sleep(Duration::from_millis(10));
        goes_on(stream.read(&mut [0; 2000]))
    };
    let Some(sender) = limited("tcpslow", Some(8192), false, full_speed, slow) else { return };
    has_most(&sender, "receiver_window_us", "receiver_window");
}

#[test]
fn a_shaped_link_is_the_network() {
    let _turn = alone();
    let Some(sender) = limited("tcpshaped", None, true, full_speed, eager) else { return };
    has_most(&sender, "network_us", "network");
    assert!(sender["bytes_sent"].as_u64().unwrap() > 1_000_000, "{sender:#}");
}

#[test]
fn a_sender_that_has_little_to_send_is_the_application() {
    let _turn = alone();
    let seldom = |stream: &mut TcpStream| {
        std::thread::sleep(Duration::from_millis(40));
        goes_on(stream.write(&[7; 100]))
    };
    let Some(sender) = limited("tcpseldom", None, false, seldom, eager) else { return };
    has_most(&sender, "application_us", "generator");
}

#[test]
fn filters_choose_and_what_is_gone_is_told() {
    let _turn = beside();
    let Some(lab) = lab("router", "tcpgone") else { return };
    let (client, server) = connected(&lab, None);
    let nodes = |words: &[&str]| -> Vec<String> {
        let report = sampled(&lab, &[&["--once"], words].concat()).pop().unwrap();
        let found = report["connections"].as_array().unwrap().iter();
        found.map(|one| one["node"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(nodes(&[]), ["a", "b"]);
    assert_eq!(nodes(&["peer-port", "5201"]), ["a"]);
    assert_eq!(nodes(&["local", "10.0.2.0/24", "state", "established"]), ["b"]);
    assert_eq!(nodes(&["state", "listening"]), [""; 0], "the listener is closed");
    assert_eq!(nodes(&["port", "1"]), [""; 0]);

    let mut child = start(pathlab(&[
        "tcp",
        "--json",
        "--lab",
        &lab.name,
        "--interval",
        "20ms",
        "--duration",
        "3s",
        "peer-port",
        "5201",
    ]));
    until_it_says(&mut child, "sampling");
    let child = Kept::new(child);
    // An end with a reset leaves nothing that waits.
    for stream in [&client, &server] {
        let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        nix::sys::socket::setsockopt(stream, nix::sys::socket::sockopt::Linger, &linger).unwrap();
    }
    drop((client, server));
    let output = finish(child.take(), Duration::from_secs(30));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let gone = of(&report, "a");
    assert_eq!((&gone["is_gone"], &gone["limit"]), (&true.into(), &Value::Null), "{gone:#}");

    for words in [&["prot", "5"][..], &["port"], &["state", "awake"]] {
        let output = run(&[&["tcp", "--once"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.trim().lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("filter:1:"), "{said}");
    }
    let words = String::from_utf8(run(&["tcp", "--once", "port", "1"]).stdout).unwrap();
    assert!(words.contains("0 connections") && words.contains("1 sample"), "{words}");
}

#[test]
fn any_user_may_look_at_its_own_namespace() {
    let _turn = beside();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).unwrap();
    let _server = listener.accept().unwrap();
    let port = address.port().to_string();
    let output = run(&["tcp", "--once", "--json", "peer-port", &port]);
    if !output.status.success() {
        return skip("tcp of our own namespace", &String::from_utf8_lossy(&output.stderr));
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = of(&report, "host");
    assert_eq!(found["local"], client.local_addr().unwrap().to_string());
    assert_eq!((&found["samples"], &found["time"], &report["samples"]), (&1.into(), &Value::Null, &1.into()));
}
