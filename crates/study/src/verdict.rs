//! What limited a test: one sentence, with the number that convicts.
//!
//! The order of suspicion, most certain evidence first:
//! 1. nothing was sent or nothing is known: `unknown`;
//! 2. connections that the accept queue refused;
//! 3. frames that were lost, if they are more than one in a thousand and more than what the generator did not even offer
//!    (unlimited streams from a full CPU: one in twenty): the place that lost most (a full queue of a shaper is the
//!    shaper; a full socket whose reader stood still is the reader); behind a station that could not be read the place
//!    is unknown;
//! 4. a schedule that the generator did not keep: its CPU, or the host's, or the generator itself;
//! 5. a schedule that was kept: the schedule is the limit, the path is not;
//! 6. TCP streams: the largest share of the sender's time, explained further by shapers and CPUs;
//! 7. closed loops: a shaper, retransmissions, else the round trip;
//! 8. streams as fast as possible without loss: sender's CPU, shaper, receiver's CPU, the host's CPUs;
//! 9. else `unknown`, and what was looked at.

use record::drop::{self, Fate};
use record::kind::Transport;
use record::ledger::{Station, StationKind};
use record::snapshot::Snapshot;
use record::tcp::TcpDecomposition;
use record::unit::{self, bits_per_s, messages_per_s, time_ns};
use record::{ActorUsage, Delta, EndReport, Ledger, Limit, Path, TestSpec};

/// Everything that the verdict looks at.
#[derive(Debug, Clone, Copy)]
pub struct VerdictInput<'a> {
    /// What was asked.
    pub spec: &'a TestSpec,
    /// The way of the frames.
    pub path: &'a Path,
    /// What the sending end saw.
    pub sender: &'a EndReport,
    /// What the receiving end saw.
    pub receiver: &'a EndReport,
    /// Counters before the test.
    pub before: &'a Snapshot,
    /// Counters after the test.
    pub after: &'a Snapshot,
    /// Where every frame went, for kinds that have a ledger.
    pub ledger: Option<&'a Ledger>,
    /// What held TCP back.
    pub tcp: Option<&'a TcpDecomposition>,
    /// The processes that made the traffic.
    pub actors: &'a [ActorUsage],
}

/// Loss below this share does not limit a test.
const WORTH_A_VERDICT: f64 = 0.001;
/// Loss below this share does not limit a stream that is sent as fast as a full CPU can.
const WORTH_MORE_THAN_A_FULL_CPU: f64 = 0.05;
/// Share of the bytes that TCP had to send again from which that is what limits it.
const WORTH_OF_RETRANSMISSIONS: f64 = 0.01;
/// Use of one CPU, in percent, from which a thread has no time left.
const BUSY: f64 = 95.0;

/// What waited in a queue at the end, beside the names of drops.
const QUEUED: &str = "queued";
/// What has no name.
const UNEXPLAINED: &str = "unexplained";

/// What limited the test.
pub fn limit(test: &VerdictInput) -> Limit {
    let suspects: [fn(&VerdictInput) -> Option<Limit>; 8] =
        [nothing_sent, accept_queue, lost, schedule_missed, schedule_kept, tcp_share, round_trip, fastest];
    suspects.iter().find_map(|suspect| suspect(test)).unwrap_or_else(|| {
        let looked = "no loss, no full CPU, no shaper at its rate and no schedule explain the rate";
        let looked = unread(test).iter().fold(looked.to_owned(), |text, what| format!("{text}; {what}"));
        convict("unknown", "", &looked, format!("What limited it is unknown: {looked}."))
    })
}

fn convict(what: &str, place: &str, evidence: &str, sentence: String) -> Limit {
    Limit { what: what.into(), place: place.into(), evidence: evidence.into(), sentence }
}

fn nothing_sent(test: &VerdictInput) -> Option<Limit> {
    let silent = test.sender.attempted == 0 && test.sender.sent_bytes == 0;
    let refused = delta(test, &test.spec.to, "TcpExt.ListenDrops").known().is_some_and(|drops| drops > 0);
    (silent && !refused).then(|| {
        let evidence = unread(test)
            .iter()
            .fold("the sender sent nothing".to_owned(), |text, what| format!("{text}; {what}"));
        convict("unknown", "", &evidence, format!("What limited it is unknown: {evidence}."))
    })
}

fn delta(test: &VerdictInput, node: &str, counter: &str) -> Delta {
    Delta::of_protocol(test.before, test.after, node, counter)
}

/// What cannot be ruled out because it was not read, as clauses: unknown is not zero.
fn unread(test: &VerdictInput) -> Vec<String> {
    let mut clauses = vec![];
    if test.spec.kind.facts().transport == Transport::Tcp {
        let overflows = delta(test, &test.spec.to, "TcpExt.ListenOverflows");
        if overflows.known().is_none() {
            let node = &test.spec.to;
            clauses.push(format!("how often the accept queue of node {node} was full is {overflows}"));
        }
    }
    clauses
}

fn accept_queue(test: &VerdictInput) -> Option<Limit> {
    let node = &test.spec.to;
    let (overflows, drops) =
        (delta(test, node, "TcpExt.ListenOverflows"), delta(test, node, "TcpExt.ListenDrops"));
    overflows.known().filter(|&overflows| overflows > 0).map(|_| {
        let place = format!("node {node}");
        let evidence = format!("ListenOverflows {overflows}, ListenDrops {drops}");
        let sentence = format!("The accept queue of a listening socket on {place} was full: {evidence}.");
        convict("accept_queue", &place, &evidence, sentence)
    })
}

/// What the generator did not offer, as a share of what was asked; 0 without a plan.
fn shortfall(test: &VerdictInput) -> f64 {
    let schedule = test.sender.schedule.as_ref().filter(|schedule| schedule.generator_limited);
    let asked = schedule.and_then(|schedule| schedule.requested_per_second).filter(|asked| *asked > 0.0);
    schedule.zip(asked).map_or(0.0, |(schedule, asked)| (1.0 - schedule.achieved_per_second / asked).max(0.0))
}

/// A loss that shows at a station behind one that could not be read happened somewhere between the two.
fn behind_unknown(ledger: &Ledger, found: &Station, count: u64) -> Option<Limit> {
    let at = ledger.stations.iter().position(|station| std::ptr::eq(station, found))?;
    let blind = ledger.stations[..at].iter().find(|station| station.unknown.is_some())?;
    let why = blind.unknown.as_deref().unwrap_or_default();
    let saw: Vec<String> =
        ledger.witness.by_reason.iter().map(|reason| format!("{} {}", reason.name, reason.count)).collect();
    let saw = if saw.is_empty() { String::new() } else { format!("; the witness saw {}", saw.join(", ")) };
    let place =
        format!("between node {}, {} and node {}, {}", blind.node, blind.station, found.node, found.station);
    let (missing, sent) = (unit::count(count), unit::count(ledger.sent));
    let evidence = format!("{missing} of {sent} frames are missing {place}; {why}{saw}");
    let sentence = format!("What limited it is unknown: {evidence}.");
    Some(convict("unknown", &place, &evidence, sentence))
}

/// The station and drop (or residual) that lost most.
fn worst(ledger: &Ledger) -> Option<(&Station, &str, u64, &str)> {
    let named = ledger.stations.iter().flat_map(|station| {
        station
            .drops
            .iter()
            .map(move |drop| (station, drop.name.as_str(), drop.count, drop.evidence.as_str()))
    });
    let waiting = ledger.stations.iter().map(|s| (s, QUEUED, u64::try_from(s.queued).unwrap_or(0), ""));
    let unnamed = ledger.stations.iter().map(|s| {
        let noise = i64::try_from(s.uncertainty).unwrap_or(i64::MAX);
        (s, UNEXPLAINED, if s.residual > noise { s.residual.unsigned_abs() } else { 0 }, "")
    });
    named
        .chain(waiting)
        .chain(unnamed)
        .filter(|(_, name, count, _)| *count > 0 && drop::fate(name) != Fate::Surplus)
        .max_by_key(|w| w.2)
}

fn lost(test: &VerdictInput) -> Option<Limit> {
    let ledger = test.ledger?;
    let missing = ledger.sent.saturating_sub(ledger.received);
    if missing == 0 || (missing as f64) < ledger.sent as f64 * WORTH_A_VERDICT {
        return None;
    }
    let share = missing as f64 / ledger.sent as f64;
    let full_sender = test.spec.rate.is_none() && busy_actor(test, "sender", "generator_cpu").is_some();
    if share < shortfall(test) || (full_sender && share < WORTH_MORE_THAN_A_FULL_CPU) {
        return None;
    }
    let (station, name, count, why) = worst(ledger)?;
    if name == UNEXPLAINED
        && let Some(limit) = behind_unknown(ledger, station, count)
    {
        return Some(limit);
    }
    // What a program in between did not read says nothing about the receiver.
    let at_end = station.kind != StationKind::Program;
    let what = match name {
        drop::QDISC_FULL | QUEUED if station.kind == StationKind::Qdisc && has_rate(test, station) => {
            "shaper"
        }
        drop::SOCKET_BUFFER_FULL | drop::RING_FULL | QUEUED if at_end && stalled(test).is_some() => {
            "receiver_stalled"
        }
        name => drop::verdict(name),
    };
    let place = format!("node {}, {}", station.node, station.station);
    let mut evidence = format!("{} of {} frames: {name}", unit::count(count), unit::count(ledger.sent));
    if !why.is_empty() {
        evidence.push_str(&format!(" ({why})"));
    }
    if let Some(stall) = stalled(test).filter(|_| what == "receiver_stalled") {
        evidence.push_str(&format!("; {stall}"));
    }
    let sentence = format!("Loss at {place} limited it: {evidence}.");
    Some(convict(what, &place, &evidence, sentence))
}

fn has_rate(test: &VerdictInput, station: &Station) -> bool {
    let node = test.after.nodes.get(&station.node);
    node.zip(station.interface.as_ref()).is_some_and(|(node, interface)| {
        node.qdiscs.iter().any(|q| q.interface == *interface && q.rate_bytes_per_second.is_some())
    })
}

/// The receiver did not read for long, in words.
fn stalled(test: &VerdictInput) -> Option<String> {
    let stopped = test
        .after
        .processes
        .iter()
        .any(|process| process.role == "receiver" && matches!(process.state, 'T' | 't'));
    let gap = test.receiver.longest_read_gap_ns;
    let long = gap > (test.spec.duration_ms.saturating_mul(200_000)).max(100_000_000);
    let state = if stopped { ", it is stopped (state T)" } else { "" };
    (stopped || long).then(|| format!("the receiver did not read for {}{state}", time_ns(gap as f64)))
}

fn actor<'a>(test: &VerdictInput<'a>, role: &str) -> Option<&'a ActorUsage> {
    test.actors.iter().find(|actor| actor.role == role)
}

fn busy_actor(test: &VerdictInput, role: &str, what: &str) -> Option<Limit> {
    let actor = actor(test, role).filter(|actor| actor.cpu_percent >= BUSY)?;
    let place = format!("node {}", actor.node);
    let evidence = format!("the {role} used {:.0} % of a CPU", actor.cpu_percent);
    let sentence = format!("The CPU of the {role} on {place} limited it: {evidence}.");
    Some(convict(what, &place, &evidence, sentence))
}

/// Busy share of all CPUs together, in percent; none when the time of one of them is unknown.
fn host_busy(test: &VerdictInput) -> Option<f64> {
    let (mut busy, mut all) = (0u64, 0u64);
    for after in &test.after.cpus {
        let before = test.before.cpus.iter().find(|before| before.cpu == after.cpu)?;
        let spent = after.since(before)?;
        let worked = spent.user + spent.system + spent.irq + spent.softirq + spent.steal;
        busy = busy.saturating_add(worked);
        all = all.saturating_add(worked).saturating_add(spent.idle);
    }
    (all > 0).then(|| busy as f64 * 100.0 / all as f64)
}

fn busy_host(test: &VerdictInput) -> Option<Limit> {
    let busy = host_busy(test).filter(|&busy| busy >= BUSY)?;
    let waited = test.actors.iter().map(|actor| actor.wait_percent).fold(0.0, f64::max);
    let cpus = test.after.cpus.len();
    let evidence = format!("{cpus} CPUs {busy:.0} % busy, an actor waited {waited:.0} % of the time for one");
    let sentence = format!("The CPUs of the host limited it: {evidence}.");
    Some(convict("host_cpu", "host", &evidence, sentence))
}

/// A shaper on the path that sent at (nearly) its rate, or held frames back.
fn shaper(test: &VerdictInput) -> Option<Limit> {
    let seconds = test.after.begun_ns.saturating_sub(test.before.ended_ns) as f64 / 1e9;
    let traffic = test.receiver.ended_ns.saturating_sub(test.receiver.begun_ns) as f64 / 1e9;
    let seconds = if traffic > 0.0 { traffic.min(seconds.max(1e-9)) } else { seconds };
    for hop in test.path.forward.iter().chain(&test.path.back) {
        let Some((node, interface)) = test.after.nodes.get(&hop.node).zip(hop.egress.as_deref()) else {
            continue;
        };
        let earlier = test.before.nodes.get(&hop.node);
        for after in node.qdiscs.iter().filter(|qdisc| qdisc.interface == interface) {
            let before = earlier.and_then(|node| {
                node.qdiscs.iter().find(|b| b.interface == interface && b.handle == after.handle)
            });
            let (Some(before), Some(rate)) = (before, after.rate_bytes_per_second) else { continue };
            let moved = |before, after| Delta::of(before, after).known();
            let sent = moved(before.bytes, after.bytes);
            let held = moved(before.overlimits, after.overlimits);
            let (Some(sent), Some(held)) = (sent, held) else { continue };
            let sent = sent as f64 / seconds.max(1e-9);
            if held > 0 && sent >= 0.8 * rate as f64 {
                let place = format!("node {}, {} on {interface}", hop.node, after.kind);
                let evidence = format!(
                    "it sent {} of {} and had to wait {}",
                    bits_per_s(sent * 8.0),
                    bits_per_s(rate as f64 * 8.0),
                    unit::many(held, "time")
                );
                let sentence = format!("The shaper at {place} limited it: {evidence}.");
                return Some(convict("shaper", &place, &evidence, sentence));
            }
        }
    }
    None
}

fn schedule_missed(test: &VerdictInput) -> Option<Limit> {
    let schedule = test.sender.schedule.as_ref().filter(|schedule| schedule.generator_limited)?;
    let asked = schedule.requested_per_second?;
    let late = schedule
        .lateness
        .as_ref()
        .map_or(String::new(), |late| format!(", p99 {} late", time_ns(late.p99 as f64)));
    let offered = schedule.achieved_per_second;
    let evidence = format!("asked {}, offered {}{late}", messages_per_s(asked), messages_per_s(offered));
    let cause =
        busy_actor(test, "sender", "generator_cpu").or_else(|| shaper(test)).or_else(|| busy_host(test));
    let (what, place, why) = match cause {
        Some(cause) => (cause.what, cause.place, format!("; {}", cause.evidence)),
        None => ("generator".into(), format!("node {}", test.spec.from), String::new()),
    };
    let evidence = format!("{evidence}{why}");
    let who = if what == "shaper" { format!("the shaper at {place}") } else { "the generator".into() };
    let sentence = format!("The schedule was not kept, and {who} limited it: {evidence}.");
    Some(convict(&what, &place, &evidence, sentence))
}

fn schedule_kept(test: &VerdictInput) -> Option<Limit> {
    let schedule = test.sender.schedule.as_ref()?;
    let asked = schedule.requested_per_second?;
    let offered = schedule.achieved_per_second;
    let mut evidence = format!("asked {}, offered {}", messages_per_s(asked), messages_per_s(offered));
    let end = if test.spec.kind.is_one_way() { test.receiver } else { test.sender };
    if let Some(latency) = &end.latency {
        let (p50, p99) = (time_ns(latency.p50 as f64), time_ns(latency.p99 as f64));
        evidence.push_str(&format!("; latency p50 {p50}, p99 {p99}"));
    }
    if let Some(again) = sent_again(test) {
        evidence.push_str(&format!("; {again}"));
    }
    let sentence = format!("The requested rate itself limited it: {evidence}.");
    Some(convict("schedule", "", &evidence, sentence))
}

/// TCP had to send much again, in words.
fn sent_again(test: &VerdictInput) -> Option<String> {
    let bytes = test.tcp?.retransmitted_bytes;
    let share = bytes as f64 / test.sender.sent_bytes.max(1) as f64;
    (share >= WORTH_OF_RETRANSMISSIONS)
        .then(|| format!("TCP sent {:.1} % of its bytes again ({bytes} bytes)", share * 100.0))
}

fn retransmissions(test: &VerdictInput) -> Option<Limit> {
    let evidence = sent_again(test)?;
    let sentence = format!("Lost segments limited it: {evidence}.");
    Some(convict("retransmissions", "", &evidence, sentence))
}

/// Who limited it, as the subject of a sentence.
fn subject(cause: &Limit) -> String {
    match cause.what.as_str() {
        "generator_cpu" => "The sender's CPU".into(),
        "receiver_cpu" => "The receiver's CPU".into(),
        "host_cpu" => "The CPUs of the host".into(),
        "receiver_stalled" => "A receiver that stood still".into(),
        "shaper" => format!("The shaper at {}", cause.place),
        "retransmissions" => "Lost segments".into(),
        other => other.replace('_', " "),
    }
}

fn tcp_share(test: &VerdictInput) -> Option<Limit> {
    let parts = test.tcp.filter(|parts| parts.wall_us > 0 && test.spec.kind.is_bytes())?;
    let share = |part: u64| part as f64 * 100.0 / parts.wall_us as f64;
    let shares = format!(
        "application {:.0} %, receiver window {:.0} %, send buffer {:.0} %, network {:.0} % of the sender's time",
        share(parts.application_us),
        share(parts.receiver_window_us),
        share(parts.send_buffer_us),
        share(parts.network_us)
    );
    let because = |cause: Option<Limit>, what: &str, place: String, word: &str| {
        let Some(cause) = cause else {
            let sentence = format!("TCP was held back by {word}: {shares}.");
            return Some(convict(what, &place, &shares, sentence));
        };
        let evidence = format!("{}; {shares}", cause.evidence);
        let sentence = format!("{} limited it while TCP waited for {word}: {evidence}.", subject(&cause));
        Some(convict(&cause.what, &cause.place, &evidence, sentence))
    };
    let sender = format!("node {}", test.spec.from);
    let receiver = format!("node {}", test.spec.to);
    let most = [parts.application_us, parts.receiver_window_us, parts.send_buffer_us, parts.network_us];
    match (0..4).max_by_key(|&part| most[part])? {
        0 => {
            let cause = busy_actor(test, "sender", "generator_cpu").or_else(|| busy_host(test));
            because(cause, "generator", sender, "the sending application")
        }
        1 => {
            let still = stalled(test).map(|why| convict("receiver_stalled", &receiver, &why, String::new()));
            let cause =
                still.or_else(|| busy_actor(test, "receiver", "receiver_cpu")).or_else(|| busy_host(test));
            because(cause, "receiver_window", receiver, "the receiver")
        }
        2 => because(shaper(test), "send_buffer", sender, "the send buffer"),
        _ => {
            let cause = shaper(test)
                .or_else(|| retransmissions(test))
                .or_else(|| busy_actor(test, "receiver", "receiver_cpu"))
                .or_else(|| busy_actor(test, "sender", "generator_cpu"))
                .or_else(|| busy_host(test));
            because(cause, "network", String::new(), "the network")
        }
    }
}

fn round_trip(test: &VerdictInput) -> Option<Limit> {
    let latency = test.sender.latency.as_ref().filter(|_| test.spec.kind.is_round_trip())?;
    if let Some(cause) = shaper(test).or_else(|| retransmissions(test)) {
        return Some(cause);
    }
    let evidence =
        format!("one message at a time, mean {}, p99 {}", time_ns(latency.mean), time_ns(latency.p99 as f64));
    let sentence = format!("The round trip limited it: {evidence}.");
    Some(convict("round_trip", "", &evidence, sentence))
}

fn fastest(test: &VerdictInput) -> Option<Limit> {
    shaper(test)
        .or_else(|| busy_actor(test, "sender", "generator_cpu"))
        .or_else(|| busy_actor(test, "receiver", "receiver_cpu"))
        .or_else(|| busy_host(test))
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::TrafficKind;
    use record::ledger::{Drop, DropSource};
    use record::snapshot::{CpuTime, NodeSnapshot, ProcessSample, QdiscSample, TC_ROOT};
    use record::traffic::Schedule;
    use record::{Hop, NodeRole, Witness, WitnessStatus};

    #[test]
    fn a_schedule_that_was_missed_by_far_is_the_limit_and_not_a_small_loss() {
        let mut case = Case::new(TrafficKind::UdpStream).drop("socket", "socket_buffer_full", 20);
        case.sender.schedule = Some(Schedule {
            requested_per_second: Some(5e6),
            achieved_per_second: 2e5,
            generator_limited: true,
            ..Schedule::default()
        });
        assert_eq!(case.what(), "generator");
        case.sender.schedule.as_mut().unwrap().achieved_per_second = 4.99e6;
        assert_eq!(case.what(), "socket_buffer");
    }

    #[test]
    fn a_little_loss_does_not_acquit_a_full_cpu() {
        let case = |lost| {
            Case::new(TrafficKind::UdpStream).drop("socket", "socket_buffer_full", lost).actor("sender", 99.0)
        };
        assert_eq!(case(4).what(), "generator_cpu");
        assert_eq!(case(100).what(), "socket_buffer");
    }

    #[test]
    fn a_loss_behind_a_station_that_could_not_be_read_has_no_place() {
        let mut case = Case::new(TrafficKind::UdpStream).drop("ip in", "nothing", 0);
        let ledger = case.ledger.as_mut().unwrap();
        ledger.received = 500;
        ledger.stations[0].drops.clear();
        (ledger.stations[0].residual, ledger.stations[0].left) = (500, 500);
        let blind =
            Station { unknown: Some("no counters".into()), residual: 0, ..ledger.stations[0].clone() };
        ledger.stations.insert(0, blind);
        assert_eq!(case.what(), "unknown");
    }

    #[test]
    fn a_round_trip_that_a_shaper_or_lost_segments_made_long_is_not_called_a_round_trip() {
        let mut case = Case::new(TrafficKind::TcpRr);
        case.sender.latency = crate::sample::latency(30_000, 12);
        assert_eq!(case.what(), "round_trip");
        case.sender.sent_bytes = 1000;
        case.tcp = Some(TcpDecomposition { retransmitted_bytes: 480, ..TcpDecomposition::default() });
        assert_eq!(case.what(), "retransmissions");
        assert_eq!(case.shaped(990_000).what(), "shaper");
    }

    /// An accept queue whose counter was not read, or ran backwards, is not acquitted by a 0.
    #[test]
    fn a_listen_counter_that_was_not_read_is_said() {
        let read = |overflows| {
            let mut snapshot = Snapshot::default();
            let node = snapshot.nodes.entry("b".into()).or_default();
            node.protocols.insert("TcpExt.ListenOverflows".into(), overflows);
            snapshot
        };
        let case = |before, after| {
            let case = Case::new(TrafficKind::TcpStream);
            let case =
                Case { spec: TestSpec { to: "b".into(), ..case.spec }, sender: EndReport::default(), ..case };
            Case { before, after, ..case }.limit()
        };
        assert_eq!(case(read(4), read(4)).evidence, "the sender sent nothing");
        for (before, after) in
            [(Snapshot::default(), read(4)), (read(4), Snapshot::default()), (read(4), read(3))]
        {
            let limit = case(before, after);
            assert!(limit.evidence.contains("accept queue of node b was full is unknown ("), "{limit:?}");
        }
    }

    #[derive(Default)]
    struct Case {
        spec: TestSpec,
        path: Path,
        sender: EndReport,
        receiver: EndReport,
        before: Snapshot,
        after: Snapshot,
        ledger: Option<Ledger>,
        tcp: Option<TcpDecomposition>,
        actors: Vec<ActorUsage>,
    }

    impl Case {
        fn new(kind: TrafficKind) -> Self {
            let sender = EndReport { attempted: 1000, sent: 1000, ..EndReport::default() };
            Case { spec: TestSpec { kind, ..TestSpec::default() }, sender, ..Case::default() }
        }

        fn drop(mut self, station: &str, name: &str, count: u64) -> Self {
            let drops =
                vec![Drop { name: name.into(), count, source: DropSource::Counter, evidence: String::new() }];
            let station = Station {
                node: "s".into(),
                leg: "forward".into(),
                entered: 1000,
                left: 1000 - count,
                drops,
                ..crate::sample::labelled(station)
            };
            self.ledger = Some(Ledger {
                sent: 1000,
                received: 1000 - count,
                stations: vec![station],
                unexplained: 0,
                uncertainty: 0,
                witness: Witness::absent(WitnessStatus::NotPermitted, ""),
                notes: vec![],
            });
            self
        }

        fn shaped(mut self, sent: u64) -> Self {
            let qdisc = QdiscSample {
                interface: "eth1".into(),
                kind: "tbf".into(),
                parent: TC_ROOT,
                rate_bytes_per_second: Some(1_000_000),
                ..QdiscSample::default()
            };
            let node = |qdisc| NodeSnapshot { qdiscs: vec![qdisc], ..NodeSnapshot::default() };
            self.before.nodes.insert("s".into(), node(qdisc.clone()));
            self.after.nodes.insert("s".into(), node(QdiscSample { bytes: sent, overlimits: 9, ..qdisc }));
            self.after.begun_ns = 1_000_000_000;
            self.path.forward = vec![Hop {
                node: "s".into(),
                role: NodeRole::Bridge,
                ingress: Some("eth0".into()),
                egress: Some("eth1".into()),
                bridge: Some("br0".into()),
            }];
            self
        }

        fn actor(mut self, role: &str, cpu_percent: f64) -> Self {
            self.actors.push(ActorUsage {
                role: role.into(),
                node: "n".into(),
                cpu_percent,
                ..ActorUsage::default()
            });
            self
        }

        fn what(&self) -> String {
            self.limit().what
        }

        fn limit(&self) -> Limit {
            let limit = limit(&VerdictInput {
                spec: &self.spec,
                path: &self.path,
                sender: &self.sender,
                receiver: &self.receiver,
                before: &self.before,
                after: &self.after,
                ledger: self.ledger.as_ref(),
                tcp: self.tcp.as_ref(),
                actors: &self.actors,
            });
            assert!(limit.sentence.ends_with('.') && limit.sentence.contains(&limit.evidence), "{limit:?}");
            limit
        }
    }

    #[test]
    fn the_place_that_lost_most_is_convicted() {
        let udp = || Case::new(TrafficKind::UdpStream);
        assert_eq!(udp().drop("qdisc eth1", "qdisc_full", 100).what(), "qdisc");
        assert_eq!(udp().drop("qdisc eth1", "qdisc_full", 100).shaped(0).what(), "shaper");
        assert_eq!(udp().drop("link eth1", "backlog_full", 2).what(), "backlog");
        assert_eq!(udp().drop("socket", "socket_buffer_full", 900).what(), "socket_buffer");
        assert_eq!(udp().drop("ip in", "filter_input", 900).what(), "filter");
        assert_eq!(udp().drop("ip out", "neighbour_unresolved", 900).what(), "neighbour");
        let mut stopped = udp().drop("socket", "socket_buffer_full", 900);
        stopped.after.processes =
            vec![ProcessSample { role: "receiver".into(), state: 'T', ..ProcessSample::default() }];
        assert_eq!(stopped.what(), "receiver_stalled");
        let mut waited = udp().drop("socket", "socket_buffer_full", 900);
        waited.receiver.longest_read_gap_ns = 1_500_000_000;
        assert_eq!(waited.what(), "receiver_stalled");
    }

    #[test]
    fn schedules_are_kept_or_missed() {
        let mut case = Case::new(TrafficKind::UdpStream).actor("sender", 99.0);
        let schedule =
            Schedule { requested_per_second: Some(1e6), achieved_per_second: 4e5, ..Schedule::default() };
        case.sender.schedule = Some(Schedule { generator_limited: true, ..schedule.clone() });
        assert_eq!(case.what(), "generator_cpu");
        case.actors.clear();
        assert_eq!(case.what(), "generator");
        case.sender.schedule = Some(schedule);
        assert_eq!(case.what(), "schedule");
    }

    #[test]
    fn tcp_is_explained_by_its_largest_share() {
        let mut case = Case::new(TrafficKind::TcpStream);
        case.tcp = Some(TcpDecomposition {
            wall_us: 10,
            receiver_window_us: 9,
            network_us: 1,
            ..TcpDecomposition::default()
        });
        assert_eq!(case.what(), "receiver_window");
        case.receiver.longest_read_gap_ns = 1 << 40;
        assert_eq!(case.what(), "receiver_stalled");
        case.tcp = Some(TcpDecomposition {
            wall_us: 10,
            network_us: 9,
            application_us: 1,
            ..TcpDecomposition::default()
        });
        assert_eq!(case.what(), "network");
        assert_eq!(case.shaped(950_000).what(), "shaper");
    }

    #[test]
    fn a_full_accept_queue_is_found_even_when_nothing_was_sent() {
        let mut case = Case::new(TrafficKind::TcpRr);
        (case.sender.attempted, case.sender.sent) = (0, 0);
        for (snapshot, count) in [(&mut case.before, 0), (&mut case.after, 3)] {
            let node = snapshot.nodes.entry("b".into()).or_default();
            node.protocols.insert("TcpExt.ListenOverflows".into(), count);
            node.protocols.insert("TcpExt.ListenDrops".into(), count);
        }
        assert_eq!(case.what(), "accept_queue");
    }

    #[test]
    fn without_evidence_it_is_unknown() {
        assert_eq!(Case::new(TrafficKind::UdpStream).what(), "unknown");
        assert_eq!(
            Case::new(TrafficKind::UdpStream).shaped(100).what(),
            "unknown",
            "a shaper far below its rate is innocent"
        );
        assert_eq!(Case { sender: EndReport::default(), ..Case::new(TrafficKind::Ping) }.what(), "unknown");
        let mut busy = Case::new(TrafficKind::UdpStream);
        busy.before.cpus = vec![CpuTime::default()];
        busy.after.cpus = vec![CpuTime { system: 99, idle: 1, ..CpuTime::default() }];
        assert_eq!(busy.what(), "host_cpu");
    }
}
