//! `pathlab test`: one kind of traffic to a host that runs `pathlab serve`.
//!
//! The sender is a child process of this one, so that its CPU time is its own; the receiver is the other host's, or the other way round
//! (`--reverse`). What is printed is what the receiver saw, next to what the sender planned and did. Ctrl-C ends the test early, and what was
//! sent until then is its result; a second one ends the program.

use super::timing::{ns, punctuality};
use crate::output::{Output, when_any};
use crate::progress;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use experiment::hosts::{Examined, HostEnds, HostsObserver, examined, remote};
use load::Outcome;
use load::protocol::setup::EndRole;
use load::send::pace;
use record::kind::{KINDS, Shape, TrafficKind};
use record::ledger::WitnessDrop;
use record::traffic::EndReport;
use record::unit::{self, bits_per_s, count, duration_ms, many, messages_per_s, scaled, time_ns};
use record::{
    Delta, Finding, FlowObservation, HostFacts, Latency, Ledger, Path, Problem, Rate, Result, TestRecord,
    TestSpec, Validity, ViaHost,
};
use serde::Serialize;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use study::doctor::{self, Goal};
use study::table::facts;
use study::text::printable;

/// How long a test without a count sends by default.
const DURATION_MS: u64 = 5_000;

/// How long the rates of the progress bar are measured.
const METER_TURN: Duration = Duration::from_millis(500);

/// Flags of `pathlab test`.
#[derive(Args)]
pub struct TestArgs {
    #[arg(value_parser = kinds(), hide_possible_values = true, help = TrafficKind::names_where(|_| true, "or"))]
    kind: TrafficKind,
    /// The host that runs `pathlab serve`: name or address, with :PORT if it is not 5300.
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
    /// Traffic goes from that host to this one.
    #[arg(long, short = 'R')]
    reverse: bool,
    /// A host on the way to that one, where 'pathlab serve --observe' runs, too: what becomes of frames there is in the ledger. Several times for
    /// several, in the order from this host; with NAME= before it that is its name in the ledger.
    #[arg(long, value_name = "[NAME=]HOST[:PORT]")]
    via: Vec<String>,
    #[arg(long, help = size_help(), value_parser = super::bytes::<u32>(0..=u32::MAX.into()))]
    size: Option<u32>,
    /// Payload of the response in bytes (request/response kinds) [default: as the request].
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = super::bytes::<u32>(0..=u32::MAX.into()))]
    response: u32,
    /// Send at this rate: 200pps, 50kpps, 100mbit, 1.5gbit, or max [default: ping 10pps; the others max: as fast as possible,
    /// or one request after the other].
    #[arg(long, value_parser = pace::read_rate)]
    rate: Option<pace::AskedRate>,
    /// Send N messages; without --duration, however long that takes.
    #[arg(long, value_parser = super::amounts::<u64>(0..=u64::MAX))]
    count: Option<u64>,
    /// How long to send: 5s, 500ms, 2m [default: 5s; with --count no limit].
    #[arg(long, value_parser = duration_ms)]
    duration: Option<u64>,
    /// Parallel connections (tcp-stream).
    #[arg(long, default_value_t = 1, value_parser = super::amounts::<u32>(0..=u32::MAX.into()))]
    streams: u32,
    /// Datagrams per system call.
    #[arg(long, default_value_t = 32, value_parser = super::amounts::<u32>(0..=u32::MAX.into()))]
    batch: u32,
    /// Datagrams per UDP segmentation-offload send (udp-stream); 0 is off.
    #[arg(long, default_value_t = 0)]
    gso: u32,
    /// Receive merged datagrams (udp-stream).
    #[arg(long)]
    gro: bool,
    /// Ask for a send buffer of this size.
    #[arg(long, value_name = "BYTES", value_parser = super::bytes::<u32>(0..=u32::MAX.into()))]
    send_buffer: Option<u32>,
    /// Ask for a receive buffer of this size, or keep the system's [default: 67108864 for datagrams, beyond
    /// net.core.rmem_max where permitted; system for TCP].
    #[arg(long, value_name = "BYTES|system", value_parser = buffer)]
    receive_buffer: Option<Buffer>,
    /// Ports of a frames test: KIND for both ends or SENDER/RECEIVER, of int, ring, xdp [default: int].
    #[arg(long, default_value = "", hide_default_value = true, value_name = "PORTS")]
    port: String,
    /// TCP congestion control by name.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Count the test in this network namespace of this host, too: a name of 'ip netns', a path, pid:N; none that the other host observes. Several times for
    /// several.
    #[arg(long = "in", value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// Say what the doctor finds at both ends, and at hosts of --via, while the test's frames flow (docs/doctor.md); other hosts want 'pathlab serve --observe'.
    #[arg(long)]
    doctor: bool,
    /// End with code 1 when a figure is suspect or invalid, or nobody could tell (docs/validity.md).
    #[arg(long)]
    require_valid: bool,
    /// Use IPv6.
    #[arg(short = '6', long = "ipv6")]
    ipv6: bool,
    /// Use IPv4.
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    ipv4: bool,
    /// Pin the sending thread to this CPU of its host.
    #[arg(long, value_name = "CPU")]
    sender_cpu: Option<u32>,
    /// Pin the receiving thread to this CPU of its host.
    #[arg(long, value_name = "CPU")]
    receiver_cpu: Option<u32>,
}

/// What to ask of a socket buffer: bytes, or nothing.
#[derive(Debug, Clone, Copy)]
struct Buffer(Option<u32>);

fn buffer(text: &str) -> std::result::Result<Buffer, String> {
    if text == "system" {
        return Ok(Buffer(None));
    }
    let bytes = unit::bytes(text).map_err(|what| format!("{what}, or system"))?;
    let bytes = u32::try_from(bytes).map_err(|_| format!("'{text}' is 4 GiB or more"))?;
    Ok(Buffer(Some(bytes)))
}

/// The document of `--json`.
#[derive(Serialize)]
struct TestDocument<'a> {
    schema: &'static str,
    host: &'a str,
    spec: &'a TestSpec,
    interrupted: bool,
    #[serde(flatten)]
    outcome: &'a Outcome,
    summary: Summary,
    #[serde(flatten)]
    observed: Option<Observed<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_ledger: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    doctor: Vec<Examined>,
}

/// What both hosts saw, where they were observed.
#[derive(Serialize)]
struct Observed<'a> {
    path: &'a Path,
    flow: &'a Option<FlowObservation>,
    ledger: &'a Option<Ledger>,
    kernel_drops: &'a [WitnessDrop],
    validity: &'a Option<Validity>,
    hosts: &'a [HostFacts],
    via: &'a [ViaHost],
    findings: Vec<Finding>,
}

impl<'a> From<&'a TestRecord> for Observed<'a> {
    fn from(test: &'a TestRecord) -> Self {
        Observed {
            path: &test.path,
            flow: &test.flow,
            ledger: &test.ledger,
            kernel_drops: &test.kernel_drops,
            validity: &test.validity,
            hosts: &test.hosts,
            via: &test.via,
            findings: study::findings::of_hosts(test),
        }
    }
}

/// The numbers that count.
#[derive(Serialize)]
struct Summary {
    /// Payload bits per second at the receiver.
    throughput_bps: f64,
    /// Messages per second at the receiver (replies at the sender of a round-trip test).
    messages_per_second: f64,
    /// Messages that the kernel accepted and no receiver read; `None` for TCP.
    lost: Option<u64>,
}

/// Connects, runs the test, prints the result.
pub fn run(args: TestArgs, output: &Output) -> Result<()> {
    let family = args.ipv6.then_some(6).or(args.ipv4.then_some(4));
    let control = remote::resolve(&args.host, family)?;
    let spec = spec_of(&args, control.ip());
    load::check_spec(&spec)?;
    let near = if args.reverse { EndRole::Receiver } else { EndRole::Sender };
    let ends = HostEnds { near, far: control.ip() };
    remote::named_apart(&args.via, [&spec.from, &spec.to])?;
    let mut other = remote::connect(control, &args.host)?;
    let via = remote::via(&args.via)?;
    experiment::interruptible()?;
    let mut agent = experiment::measure::start_here()?;
    let (begun, length_ms) = (Instant::now(), load::length_ms(&spec));
    let interface = linux::observe::next_hop::interface_to(control.ip()).ok().filter(|_| output.progress);
    let mut meter = interface.map(|interface| Meter { interface, last: None, said: String::new() });
    let look = || {
        let done = (begun.elapsed().as_millis() as u64).min(length_ms);
        let (seconds, total) = (done as f64 / 1e3, length_ms as f64 / 1e3);
        let rates = meter.as_mut().map(Meter::words).unwrap_or_default();
        (done, format!("{}: {seconds:.0} of {total:.0} s{rates}", spec.kind))
    };
    let nodes = match super::namespaces::with_own("--in", &args.namespaces) {
        // Who may not look into the own namespace can test all the same.
        Err(problem) if args.namespaces.is_empty() => Err(problem.to_string()),
        nodes => Ok(nodes?),
    };
    let observer = HostsObserver::new(&spec, ends, agent.pid(), nodes, args.doctor);
    let mut observer = observer.through(via);
    let outcome = progress::watched(output, length_ms, look, || {
        ends.run(&spec, &mut agent.link, &mut other, &mut observer)
    });
    drop(agent);
    let outcome = outcome?;
    observer.observes_apart().map_err(|problem| problem.at("--in"))?;
    let summary = Summary::of(&spec, &outcome);
    let facts = observer.facts();
    let observed = observer.conclude(&outcome);
    let doctor = examined(facts, observed.as_ref().ok(), Goal::of(spec.kind));
    let document = TestDocument {
        schema: "pathlab/test/1",
        host: &args.host,
        spec: &spec,
        interrupted: linux::sys::process::interrupted(),
        outcome: &outcome,
        summary,
        observed: observed.as_ref().ok().map(Observed::from),
        no_ledger: observed.as_ref().err().map(String::as_str),
        doctor,
    };
    output
        .result(&document, |document| table(document) + &ledger(&observed) + &findings(&document.doctor))?;
    if document.interrupted {
        return Err(Problem::input("interrupted").help("the figures are those of what was sent until then"));
    }
    let (end, what) = match spec.kind.is_round_trip() {
        true => (&outcome.sender, "no reply came back"),
        false => (&outcome.receiver, "nothing arrived at the receiver"),
    };
    if end.unique == 0 && end.received_bytes == 0 {
        return Err(nothing_came(what, observed.as_ref().ok()));
    }
    if args.require_valid { required_valid(&observed) } else { Ok(()) }
}

/// Where it ended, as far as the ledger or the kernel's word on drops tells.
fn nothing_came(what: &str, observed: Option<&TestRecord>) -> Problem {
    match observed.map(|test| &test.limit).filter(|limit| !limit.place.is_empty()) {
        Some(limit) => {
            Problem::measured(format!("{what}: {}: {}", limit.place, limit.evidence)).help(&limit.advice)
        }
        None => {
            Problem::measured(what).help("find where it is dropped with 'pathlab capture' along the path")
        }
    }
}

/// The figures are valid, and somebody could tell.
fn required_valid(observed: &std::result::Result<TestRecord, String>) -> Result<()> {
    let unknown =
        |why: &String| Problem::measured(format!("nobody can tell whether the figures are valid: {why}"));
    study::criteria::required_valid(observed.as_ref().map_err(unknown)?)
}

fn spec_of(args: &TestArgs, address: IpAddr) -> TestSpec {
    let family = if address.is_ipv6() { 6 } else { 4 };
    let (mut from, mut to) = ("local".to_owned(), args.host.clone());
    if args.reverse {
        std::mem::swap(&mut from, &mut to);
    }
    TestSpec {
        kind: args.kind,
        from,
        to,
        family,
        duration_ms: args.duration.unwrap_or(if args.count.is_some() { 0 } else { DURATION_MS }),
        size: args.size.unwrap_or_else(|| args.kind.default_size(family)),
        response: args.response,
        // A flood must be asked for.
        rate: args.rate.unwrap_or(args.kind.facts().gentle_rate),
        count: args.count,
        streams: args.streams,
        batch: args.batch,
        gso: args.gso,
        gro: args.gro,
        send_buffer: args.send_buffer,
        receive_buffer: match args.receive_buffer {
            Some(Buffer(asked)) => asked,
            None => TestSpec::default_receive_buffer(args.kind),
        },
        sender_cpu: args.sender_cpu,
        receiver_cpu: args.receiver_cpu,
        congestion: args.congestion.clone(),
        port: args.port.clone(),
    }
}

/// The kinds of tests by name, so that a shell can complete them.
pub(super) fn kinds() -> impl TypedValueParser<Value = TrafficKind> {
    let names = KINDS.iter().map(|row| PossibleValue::new(row.name).help(row.about));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<TrafficKind>())
}

fn size_help() -> String {
    let usual = TestSpec::default().size;
    let size = |kind: TrafficKind, family| {
        TestSpec { kind, size: kind.default_size(family), ..TestSpec::default() }.message_size()
    };
    let unusual = TrafficKind::ALL.into_iter().filter(|&kind| size(kind, 4) != usual).map(|kind| {
        match (size(kind, 4), size(kind, 6)) {
            (v4, v6) if v4 == v6 => format!("; {kind} {v4}"),
            (v4, v6) => format!("; {kind} {v4}, over IPv6 {v6}"),
        }
    });
    format!("Payload of one message in bytes [default: {usual}{}]", unusual.collect::<String>())
}

/// What the interface towards the other host moves: the ends of a test report when it is over, the kernel at once.
struct Meter {
    interface: String,
    last: Option<(Instant, (u64, u64))>,
    said: String,
}

impl Meter {
    /// Its rates, measured anew every half second.
    fn words(&mut self) -> String {
        if self.last.is_none_or(|(then, _)| then.elapsed() >= METER_TURN) {
            self.said = self.measure().unwrap_or_default();
        }
        self.said.clone()
    }

    /// Its rates since the last call.
    fn measure(&mut self) -> Option<String> {
        let now = (Instant::now(), linux::observe::traffic::bytes(&self.interface)?);
        let (then, before) = self.last.replace(now)?;
        let seconds = (now.0 - then).as_secs_f64().max(1e-3);
        let rate = |before, now| Some(bits_per_s(Delta::of(before, now).known()? as f64 * 8.0 / seconds));
        let (received, sent) = (rate(before.0, now.1.0)?, rate(before.1, now.1.1)?);
        Some(format!(", {} sends {sent}, receives {received}", self.interface))
    }
}

impl Summary {
    fn of(spec: &TestSpec, outcome: &Outcome) -> Summary {
        let figures = study::test::figures(spec, &outcome.sender, &outcome.receiver, None);
        let unique = figures.received.unique;
        let lost = spec.kind.has_ledger().then(|| outcome.sender.sent.saturating_sub(unique));
        Summary {
            throughput_bps: figures.throughput_bps,
            messages_per_second: figures.messages_per_second,
            lost,
        }
    }
}

/// The result for people: one line per fact, the names in one column.
fn table(document: &TestDocument<'_>) -> String {
    let TestDocument { spec, outcome, summary, .. } = document;
    let (sender, receiver) = (&outcome.sender, &outcome.receiver);
    let mut rows = vec![
        ("test", describe(spec, document.host, spec.to != document.host)),
        ("throughput", throughput(spec, outcome, summary)),
        ("sent", sent(sender)),
        ("received", received(spec, outcome, summary)),
    ];
    rows.extend(schedule(sender).map(|text| ("schedule", text)));
    let (measured, way) =
        if spec.kind.is_round_trip() { (sender, "round trip") } else { (receiver, "one way") };
    rows.extend(measured.latency.as_ref().map(|l| ("latency", format!("{way}: {}", latency(l)))));
    rows.extend(sender.latency_from_send.as_ref().map(|l| ("from send", latency(l))));
    rows.push(("CPU", format!("sender {}, receiver {}", cpu(sender), cpu(receiver))));
    rows.push(("method", format!("{}; {}", sender.settings.method, receiver.settings.method)));
    if !outcome.warm {
        rows.push(("note", "the path did not answer before the test".into()));
    }
    for (end, report) in [("sender", sender), ("receiver", receiver)] {
        rows.extend(report.settings.refused.iter().map(|what| ("note", format!("{end}: refused: {what}"))));
        rows.extend(report.notes.iter().map(|note| ("note", format!("{end}: {note}"))));
    }
    facts(&rows)
}

/// The ledger between the two hosts, or for TCP the way and what the kernels dropped; or why there is none.
fn ledger(observed: &std::result::Result<TestRecord, String>) -> String {
    let test = match observed {
        Ok(test) => test,
        Err(why) => return format!("\nno ledger: {}", printable(why)),
    };
    let lines = study::text::ledger(test).unwrap_or_else(|| study::text::way(test));
    let validity = study::text::validity(test);
    format!("\n{}\n{}\n{}", lines.trim_end(), validity.trim_end(), study::text::of_hosts(test))
}

/// What was found at each end, for people.
fn findings(ends: &[Examined]) -> String {
    let of = |end: &Examined| {
        let told = match &end.report {
            Some(report) => doctor::text::in_short(report),
            None => format!("nothing is known: {}\n", end.unknown.as_deref().unwrap_or_default()),
        };
        format!("\nThe doctor, at {}\n{told}", end.host)
    };
    printable(&ends.iter().map(of).collect::<String>())
}

fn describe(spec: &TestSpec, host: &str, comes_here: bool) -> String {
    let (size, lasts) = (count(spec.message_size().into()), spec.duration_ms as f64 * 1e6);
    let asked = match spec.rate {
        Some(Rate::MessagesPerSecond(rate)) => format!("at {}", messages_per_s(rate)),
        Some(Rate::BitsPerSecond(rate)) => format!("at {}", bits_per_s(rate)),
        None => spec.kind.facts().unpaced.to_owned(),
    };
    let length = match spec.count {
        Some(messages) if spec.duration_ms == 0 => many(messages, "message"),
        Some(messages) => format!("{}, at most {}", many(messages, "message"), time_ns(lasts)),
        None => time_ns(lasts),
    };
    let way = if comes_here { "from" } else { "to" };
    format!("{} {way} {host}, {size} B, {asked}, {length}", spec.kind)
}

fn throughput(spec: &TestSpec, outcome: &Outcome, summary: &Summary) -> String {
    let end = if spec.kind.is_round_trip() { &outcome.sender } else { &outcome.receiver };
    // A rate wants a length of time.
    if summary.messages_per_second == 0.0 && end.unique > 0 {
        return "not known: what arrived, arrived at one time".into();
    }
    let (bits, messages) = (bits_per_s(summary.throughput_bps), summary.messages_per_second);
    let (what, of) = if spec.kind.is_by_port() { ("frames/s", "frames") } else { ("datagrams/s", "payload") };
    match spec.kind.facts().shape {
        Shape::Bytes => format!("{bits} of {of} at the receiver"),
        Shape::OneWay => format!("{}, {bits} of {of} at the receiver", scaled(messages, what)),
        Shape::RoundTrip => scaled(messages, "round trips/s"),
    }
}

fn sent(sender: &EndReport) -> String {
    let (sent, messages) = (count(sender.sent), many(sender.attempted, "message"));
    let text = format!("{sent} of {messages}, {} B", count(sender.sent_bytes));
    let errors = sender.send_errors.iter();
    errors.fold(text, |text, e| format!("{text}, {} refused with {}", count(e.count), e.name))
}

fn received(spec: &TestSpec, outcome: &Outcome, summary: &Summary) -> String {
    let end = if spec.kind.is_round_trip() { &outcome.sender } else { &outcome.receiver };
    let Some(lost) = summary.lost else { return format!("{} B", count(end.received_bytes)) };
    let share = 100.0 * lost as f64 / outcome.sender.sent.max(1) as f64;
    let more = [
        (end.duplicates, "twice"),
        (end.reordered, "out of order"),
        (end.late, "late"),
        (end.foreign, "foreign"),
        (end.damaged, "damaged"),
        (end.left_in_socket, "left in the socket"),
        (end.socket_drops.unwrap_or(0), "dropped by the receiving socket"),
    ];
    let more = more.map(|(times, what)| when_any(times, |times| format!(", {} {what}", count(times))));
    format!("{}, {} lost ({share:.3} %){}", many(end.unique, "message"), count(lost), more.concat())
}

fn schedule(sender: &EndReport) -> Option<String> {
    let schedule = sender.schedule.as_ref()?;
    if schedule.requested_per_second.is_none() && sender.ended_ns <= sender.begun_ns {
        return Some("none; offered at one time".into());
    }
    let achieved = messages_per_s(schedule.achieved_per_second);
    let Some(requested) = schedule.requested_per_second else {
        return Some(format!("none; {achieved} offered"));
    };
    let asked = messages_per_s(requested);
    Some(format!("{asked} asked, {achieved} offered") + &punctuality(schedule))
}

fn latency(l: &Latency) -> String {
    let [min, max, p50, p90, p99, p999] = [l.min, l.max, l.p50, l.p90, l.p99, l.p999].map(ns);
    let (mean, mdev) = (time_ns(l.mean), time_ns(l.mdev));
    format!("min {min} avg {mean} max {max} mdev {mdev}, p50 {p50} p90 {p90} p99 {p99} p99.9 {p999}")
}

/// CPU time of an end's traffic threads as a share of one CPU.
fn cpu(report: &EndReport) -> String {
    let share = |span| format!("{:.0} %", 100.0 * report.thread_cpu_ns as f64 / span as f64);
    report.cpu_span_ns().map_or("–".to_owned(), share)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two datagrams over loopback were read by a thread that said '753 %'.
    #[test]
    fn of_a_short_time_no_cpu_time_is_told() {
        let end = |lasted: u64| EndReport {
            begun_ns: 1,
            ended_ns: 1 + lasted,
            thread_cpu_ns: 5_000_000,
            ..EndReport::default()
        };
        assert_eq!(
            [0, 663_000, 10_000_000, 20_000_000].map(|lasted| cpu(&end(lasted))),
            ["–", "–", "50 %", "25 %"]
        );
    }

    #[test]
    fn the_help_says_the_size_of_every_kind() {
        let sizes = size_help();
        for said in ["[default: 64;", "; tcp-stream 131072;", "; ping 56;", "; frames 60, over IPv6 80"] {
            assert!(sizes.contains(said), "{sizes}");
        }
    }

    #[test]
    fn a_result_reads_in_one_column() {
        let spec = TestSpec { kind: TrafficKind::UdpStream, ..TestSpec::default() };
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
        let (schema, observed, no_ledger, doctor) = ("", None, None, vec![]);
        let text = table(&TestDocument {
            interrupted: false,
            schema,
            host: "b",
            spec: &spec,
            outcome: &outcome,
            summary,
            observed,
            no_ledger,
            doctor,
        });
        assert!(text.contains("received    9 messages, 1 lost (10.000 %), 2 out of order\n"), "{text}");
        assert!(text.contains("throughput  9.00 datagrams/s, 4.61 kbit/s"), "{text}");
        let limit = record::Limit {
            place: "node b, ip in".into(),
            evidence: "5 of 5 frames: filter_input".into(),
            advice: "look at it".into(),
            ..record::Limit::default()
        };
        let observed = TestRecord { limit, ..TestRecord::default() };
        let said = nothing_came("no reply came back", Some(&observed)).to_string();
        assert_eq!(said, "no reply came back: node b, ip in: 5 of 5 frames: filter_input; look at it");
        assert!(nothing_came("no reply came back", None).to_string().contains("pathlab capture"));
        let at_once = Summary { messages_per_second: 0.0, throughput_bps: 0.0, lost: Some(0) };
        assert!(throughput(&spec, &outcome, &at_once).starts_with("not known"));
    }
}
