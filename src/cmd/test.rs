//! `pathlab test`: one kind of traffic to a host that runs `pathlab serve`.
//!
//! The sender is a child process of this one, so that its CPU time is its own; the receiver is the other host's. What
//! is printed is what the receiver saw, next to what the sender planned and did.

use crate::cmd::serve::PORT;
use crate::output::Output;
use clap::Args;
use load::agent::{self, AgentLink};
use load::controller::{self, Nobody, Outcome};
use record::ledger::NamedCount;
use record::spec::{Kind, Rate, TestSpec};
use record::traffic::EndReport;
use record::{Latency, Problem, Result};
use serde::Serialize;
use std::fmt::Write;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a control connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Tests so long have a progress line on a terminal.
const SHOW_FROM_MS: u64 = 2_001;

/// Flags of `pathlab test`.
#[derive(Args)]
pub struct TestArgs {
    /// tcp-stream, udp-stream, tcp-rr, udp-rr, ping or frames.
    kind: Kind,
    /// The host that runs `pathlab serve`: name or address, with :PORT if it is not 5300.
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
    /// Payload of one message in bytes [default: 64; ping 56; tcp-stream 131072; frames the
    /// shortest].
    #[arg(long)]
    size: Option<u32>,
    /// Payload of the response in bytes (request/response kinds) [default: as the request].
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    response: u32,
    /// Send by plan: 200pps, 50kpps, 100mbit, 1.5gbit [default: as fast as possible, closed loop, flood].
    #[arg(long)]
    rate: Option<Rate>,
    /// Send exactly so many messages, however long that takes.
    #[arg(long)]
    count: Option<u64>,
    /// How long to send: 5s, 500ms, 2m.
    #[arg(long, default_value = "5s", value_parser = duration_ms)]
    duration: u64,
    /// Parallel connections (tcp-stream).
    #[arg(long, default_value_t = 1)]
    streams: u32,
    /// Datagrams per system call; 1 is one call each.
    #[arg(long, default_value_t = 32)]
    batch: u32,
    /// Datagrams per UDP segmentation-offload send (udp-stream); 0 is off.
    #[arg(long, default_value_t = 0)]
    gso: u32,
    /// Receive merged datagrams (udp-stream).
    #[arg(long)]
    gro: bool,
    /// Ask for a send buffer of so many bytes.
    #[arg(long, value_name = "BYTES")]
    send_buffer: Option<u32>,
    /// Ask for a receive buffer of so many bytes.
    #[arg(long, value_name = "BYTES")]
    receive_buffer: Option<u32>,
    /// Ports of a frames test: KIND for both ends or SENDER/RECEIVER, of int, ring, xdp [default: int].
    #[arg(long, default_value = "", hide_default_value = true, value_name = "PORTS")]
    port: String,
    /// TCP congestion control by name.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Use IPv6.
    #[arg(short = '6', long = "ipv6")]
    ipv6: bool,
    /// Use IPv4.
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    ipv4: bool,
    /// Pin the sending thread to this CPU.
    #[arg(long, value_name = "CPU")]
    sender_cpu: Option<u32>,
    /// Pin the receiving thread to this CPU of the other host.
    #[arg(long, value_name = "CPU")]
    receiver_cpu: Option<u32>,
}

/// A duration as people write it, in milliseconds.
pub(super) fn duration_ms(text: &str) -> std::result::Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let bad = || format!("'{text}' is not a duration (examples: 5s, 500ms, 2m)");
    let number: f64 = number.parse().map_err(|_| bad())?;
    let ms = match unit {
        "ms" => number,
        "s" | "" => number * 1e3,
        "m" => number * 60e3,
        "h" => number * 3600e3,
        _ => return Err(bad()),
    };
    if ms >= 1.0 { Ok(ms as u64) } else { Err(format!("the duration '{text}' must be at least 1ms")) }
}

/// The document of `--json`.
#[derive(Serialize)]
struct TestDocument<'a> {
    schema: &'static str,
    host: &'a str,
    spec: &'a TestSpec,
    #[serde(flatten)]
    outcome: &'a Outcome,
    summary: Summary,
}

/// The numbers that count.
#[derive(Serialize)]
struct Summary {
    /// Payload bits per second at the receiver.
    throughput_bps: f64,
    /// Messages per second at the receiver (replies at the sender of a round-trip test).
    messages_per_second: f64,
    /// Messages that the kernel accepted and that nobody read; none for TCP.
    lost: Option<u64>,
}

/// Connects, runs the test, prints the result.
pub fn run(args: TestArgs, output: &Output) -> Result<()> {
    let (control, host) = resolve(&args)?;
    let spec = spec_of(&args, control.ip());
    load::check_spec(&spec)?;
    let mut receiver = connect(control, &host)?;
    let (mut sender, child) = local_agent()?;
    let _child = Reaped(child);
    let progress = Progress::begin(output.progress && spec.duration_ms >= SHOW_FROM_MS, &spec);
    let outcome = controller::run(&spec, &mut sender, &mut receiver, control.ip(), &mut Nobody);
    drop(progress);
    drop(sender);
    let outcome = outcome?;
    let summary = Summary::of(&spec, &outcome);
    let document =
        TestDocument { schema: "pathlab/test/1", host: &host, spec: &spec, outcome: &outcome, summary };
    output.result(&document, |document| table(document))
}

fn spec_of(args: &TestArgs, address: IpAddr) -> TestSpec {
    let default_size = match args.kind {
        Kind::TcpStream => 0,
        Kind::Ping => 56,
        Kind::Frames => load::frames::shortest(if address.is_ipv6() { 6 } else { 4 }) as u32,
        _ => 64,
    };
    TestSpec {
        kind: args.kind,
        from: "local".into(),
        to: args.host.clone(),
        family: if address.is_ipv6() { 6 } else { 4 },
        duration_ms: args.duration,
        size: args.size.unwrap_or(default_size),
        response: args.response,
        rate: args.rate,
        count: args.count,
        streams: args.streams,
        batch: args.batch,
        gso: args.gso,
        gro: args.gro,
        send_buffer: args.send_buffer,
        receive_buffer: args.receive_buffer,
        sender_cpu: args.sender_cpu,
        receiver_cpu: args.receiver_cpu,
        congestion: args.congestion.clone(),
        port: args.port.clone(),
    }
}

/// Splits HOST[:PORT]; an IPv6 address with a port has brackets.
fn split_host(text: &str) -> Result<(&str, u16)> {
    if text.parse::<IpAddr>().is_ok() {
        return Ok((text, PORT));
    }
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => return Ok((host, PORT)),
        Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or(rest)),
        None => match text.rsplit_once(':') {
            Some(split) => split,
            None => return Ok((text, PORT)),
        },
    };
    let port = port.parse().map_err(|_| {
        Problem::input(format!("'{port}' in '{text}' is not a port"))
            .help("write HOST, HOST:PORT or [IPV6]:PORT")
    })?;
    Ok((host, port))
}

fn resolve(args: &TestArgs) -> Result<(SocketAddr, String)> {
    let (host, port) = split_host(&args.host)?;
    let fits = |address: &SocketAddr| (!args.ipv6 || address.is_ipv6()) && (!args.ipv4 || address.is_ipv4());
    let addresses = (host, port).to_socket_addrs().map_err(|error| {
        Problem::input(format!("cannot find the host '{host}': {error}")).help("check the name")
    })?;
    let family = if args.ipv6 {
        " with IPv6"
    } else if args.ipv4 {
        " with IPv4"
    } else {
        ""
    };
    let address = addresses
        .into_iter()
        .find(fits)
        .ok_or_else(|| Problem::input(format!("the host '{host}' has no address{family}")))?;
    Ok((address, args.host.clone()))
}

fn connect(address: SocketAddr, host: &str) -> Result<AgentLink> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(|error| {
        Problem::host(format!("cannot reach {address}: {error}"))
            .help(format!("start 'pathlab serve' on {} and let its port through", address.ip()))
    })?;
    let _ = stream.set_nodelay(true);
    AgentLink::from_stream(stream, host)
}

fn local_agent() -> Result<(AgentLink, Child)> {
    let own =
        std::env::current_exe().map_err(|e| Problem::host(format!("cannot find my own program: {e}")))?;
    let mut command = Command::new(own);
    command.arg("agent");
    agent::spawn(command)
}

/// A child that is waited for when it goes out of sight; its link is closed by then, so it ends.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A line on standard error while a test runs, gone afterwards.
struct Progress {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Progress {
    fn begin(wanted: bool, spec: &TestSpec) -> Progress {
        if !wanted {
            return Progress { stop: None, thread: None };
        }
        let (stop, stopped) = mpsc::channel();
        let (kind, total) = (spec.kind, spec.duration_ms as f64 / 1e3);
        let thread = std::thread::spawn(move || {
            let begun = Instant::now();
            while stopped.recv_timeout(Duration::from_millis(250)) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprint!("\r{kind}: {:.0} of {total:.0} s ", begun.elapsed().as_secs_f64().min(total));
                let _ = std::io::stderr().flush();
            }
            eprint!("\r\x1b[K");
        });
        Progress { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Summary {
    fn of(spec: &TestSpec, outcome: &Outcome) -> Summary {
        // Of a round trip the end that counts is the one that the replies come back to.
        let end = if spec.kind.is_round_trip() { &outcome.sender } else { &outcome.receiver };
        let seconds = end.ended_ns.saturating_sub(end.begun_ns).max(1) as f64 / 1e9;
        let lost = match spec.kind {
            Kind::TcpStream | Kind::TcpRr => None,
            _ => Some(outcome.sender.sent.saturating_sub(end.unique)),
        };
        Summary {
            throughput_bps: end.received_bytes as f64 * 8.0 / seconds,
            messages_per_second: end.received as f64 / seconds,
            lost,
        }
    }
}

/// The result for people: one line per fact, the names in one column.
fn table(document: &TestDocument<'_>) -> String {
    let TestDocument { spec, outcome, summary, .. } = document;
    let (sender, receiver) = (&outcome.sender, &outcome.receiver);
    let mut rows = vec![
        ("test", describe(spec, document.host)),
        ("throughput", throughput(spec, summary)),
        ("sent", sent(sender)),
        ("received", received(spec, outcome, summary)),
    ];
    rows.extend(schedule(sender).map(|text| ("schedule", text)));
    let measured = if spec.kind.is_round_trip() { sender } else { receiver };
    let way = if spec.kind.is_round_trip() { "round trip" } else { "one way" };
    rows.extend(measured.latency.as_ref().map(|l| ("latency", format!("{way}: {}", latency(l)))));
    rows.extend(sender.latency_from_send.as_ref().map(|l| ("from send", latency(l))));
    rows.push(("CPU", format!("sender {}, receiver {}", cpu(sender), cpu(receiver))));
    rows.push(("method", format!("{}; {}", sender.settings.method, receiver.settings.method)));
    if !outcome.warm {
        rows.push(("note", "the path did not answer before the test".into()));
    }
    for (end, report) in [("sender", sender), ("receiver", receiver)] {
        let notes = report.settings.refused.iter().map(|what| format!("{end}: refused: {what}"));
        let notes = notes.chain(report.notes.iter().map(|note| format!("{end}: {note}")));
        rows.extend(notes.map(|note| ("note", note)));
    }
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<11} {value}");
    }
    text
}

fn describe(spec: &TestSpec, host: &str) -> String {
    let size = load::message_size(spec);
    let asked = match (spec.rate, spec.kind) {
        (Some(rate), _) => format!("at {rate}"),
        (None, Kind::TcpStream | Kind::UdpStream | Kind::Frames) => "as fast as possible".to_owned(),
        (None, Kind::Ping) => "flood".to_owned(),
        (None, _) => "one at a time".to_owned(),
    };
    let length = match spec.count {
        Some(count) => format!("{count} messages"),
        None => format!("{:.1} s", spec.duration_ms as f64 / 1e3),
    };
    format!("{} to {host}, {size} B, {asked}, {length}", spec.kind)
}

/// A number with a decimal prefix.
pub(super) fn scaled(value: f64, unit: &str) -> String {
    let (value, prefix) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    format!("{value:.2} {prefix}{unit}")
}

fn throughput(spec: &TestSpec, summary: &Summary) -> String {
    let bits = scaled(summary.throughput_bps, "bit/s");
    let messages =
        scaled(summary.messages_per_second, if spec.kind.is_round_trip() { "round trips/s" } else { "pps" });
    match spec.kind {
        Kind::TcpStream => format!("{bits} of payload at the receiver"),
        Kind::UdpStream => format!("{messages}, {bits} of payload at the receiver"),
        Kind::Frames => format!("{messages}, {bits} of frames at the receiver"),
        _ => messages,
    }
}

fn errors(errors: &[NamedCount]) -> String {
    errors.iter().fold(String::new(), |text, e| format!("{text}, {} refused with {}", e.count, e.name))
}

fn sent(sender: &EndReport) -> String {
    format!(
        "{} of {} messages, {} bytes{}",
        sender.sent,
        sender.attempted,
        sender.sent_bytes,
        errors(&sender.send_errors)
    )
}

fn received(spec: &TestSpec, outcome: &Outcome, summary: &Summary) -> String {
    let end = if spec.kind.is_round_trip() { &outcome.sender } else { &outcome.receiver };
    let Some(lost) = summary.lost else { return format!("{} bytes", end.received_bytes) };
    let share = 100.0 * lost as f64 / outcome.sender.sent.max(1) as f64;
    let mut text = format!("{} messages, {lost} lost ({share:.3} %)", end.unique);
    let more = [
        (end.duplicates, "twice"),
        (end.reordered, "out of order"),
        (end.late, "late"),
        (end.foreign, "foreign"),
        (end.left_in_socket, "left in the socket"),
    ];
    for (count, what) in more.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(text, ", {count} {what}");
    }
    match end.socket_drops {
        Some(drops) if drops > 0 => text + &format!(", {drops} dropped by the receiving socket"),
        _ => text,
    }
}

fn schedule(sender: &EndReport) -> Option<String> {
    let schedule = sender.schedule.as_ref()?;
    let achieved = scaled(schedule.achieved_per_second, "messages/s");
    let Some(requested) = schedule.requested_per_second else {
        return Some(format!("none; {achieved} offered"));
    };
    let mut text = format!("{} asked, {achieved} offered", scaled(requested, "messages/s"));
    if let Some(late) = &schedule.lateness {
        let _ =
            write!(text, ", late by p50 {} p99 {} max {}", time(late.p50), time(late.p99), time(late.max));
    }
    if schedule.generator_limited {
        text.push_str(" (generator-limited: the sender could not keep the plan)");
    }
    Some(text)
}

/// Nanoseconds as people read them.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

fn latency(l: &Latency) -> String {
    format!(
        "min {} avg {} max {} mdev {}, p50 {} p90 {} p99 {} p99.9 {}",
        time(l.min),
        time(l.mean as u64),
        time(l.max),
        time(l.mdev as u64),
        time(l.p50),
        time(l.p90),
        time(l.p99),
        time(l.p999)
    )
}

/// CPU time of an end's traffic threads as a share of one CPU.
fn cpu(report: &EndReport) -> String {
    let span = report.ended_ns.saturating_sub(report.begun_ns);
    if span == 0 {
        return "–".to_owned();
    }
    format!("{:.0} %", 100.0 * report.thread_cpu_ns as f64 / span as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_ports() {
        for (text, host, port) in [
            ("b", "b", PORT),
            ("b:1", "b", 1),
            ("10.0.0.1:2", "10.0.0.1", 2),
            ("fd00::1", "fd00::1", PORT),
            ("[fd00::1]", "fd00::1", PORT),
            ("[fd00::1]:3", "fd00::1", 3),
        ] {
            assert_eq!(split_host(text).unwrap(), (host, port), "{text}");
        }
        assert!(split_host("b:x").unwrap_err().to_string().contains("'x'"));
    }

    #[test]
    fn durations_are_read_and_wrong_ones_explained() {
        assert_eq!(duration_ms("5s"), Ok(5_000));
        assert_eq!(duration_ms("1.5"), Ok(1_500));
        assert_eq!(duration_ms("20ms"), Ok(20));
        for wrong in ["", "s", "5 parsecs", "-1s", "0s"] {
            assert!(duration_ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_result_reads_in_one_column() {
        let spec = TestSpec { kind: Kind::UdpStream, ..TestSpec::default() };
        let sender = EndReport { sent: 10, attempted: 11, ended_ns: 1_000_000_000, ..EndReport::default() };
        let receiver = EndReport {
            received: 9,
            unique: 9,
            received_bytes: 576,
            reordered: 2,
            ended_ns: 1_000_000_000,
            ..EndReport::default()
        };
        let outcome = Outcome { sender, receiver, warm: true, ..Outcome::default() };
        let summary = Summary::of(&spec, &outcome);
        let text = table(&TestDocument { schema: "", host: "b", spec: &spec, outcome: &outcome, summary });
        assert!(text.contains("received    9 messages, 1 lost (10.000 %), 2 out of order\n"), "{text}");
        assert!(text.contains("throughput  9.00 pps, 4.61 kbit/s"), "{text}");
    }
}
