//! What limited a test: one sentence, with the number that convicts.
//!
//! The order of suspicion, most certain evidence first:
//! 1. nothing was sent or nothing is known: `unknown`;
//! 2. connections that the accept queue refused;
//! 3. frames that were lost, if they are more than one in a thousand and more than what the generator did not even offer
//!    (unlimited streams from a full CPU: one in twenty): the place that lost most (a full queue of a shaper is the
//!    shaper; a full socket whose reader stood still is the reader); behind a station that could not be read the place
//!    is unknown; requests over TCP of which none was answered: the place where the kernel dropped segments, else unknown;
//! 4. a schedule that the generator did not keep: its CPU, or the host's, or the generator itself;
//! 5. a schedule that was kept: the schedule is the limit, the path is not;
//! 6. TCP streams: the causes of [`tcp`], in their order;
//! 7. closed loops: a shaper, retransmissions, else the round trip;
//! 8. streams as fast as possible without loss: sender's CPU, shaper, receiver's CPU, the host's CPUs;
//! 9. else `unknown`, and what was looked at.

mod tcp;

pub use tcp::connection;

use crate::time;

use record::delta::sum;
use record::drop::{self, Fate};
use record::ledger::{Station, StationKind};
use record::snapshot::{CpuTime, QdiscSample};
use record::traffic::Schedule;
use record::unit::{self, bits_per_s, messages_per_s, time_ns};
use record::{Conditions, Delta, Hop, Ledger, Limit, TestRecord, verdict};

/// Loss below this share does not limit a test.
const WORTH_A_VERDICT: f64 = 0.001;
/// Loss below this share does not limit a stream that is sent as fast as a full CPU can.
const WORTH_MORE_THAN_A_FULL_CPU: f64 = 0.05;
/// Use of one CPU, in percent, from which a thread has no time left.
const BUSY: f64 = 95.0;

/// A wait for a CPU that is at least that share of the time is worth a word.
const WAITED: f64 = 0.1;

/// What waited in a queue at the end, beside the names of drops.
const QUEUED: &str = "queued";
/// What has no name.
const UNEXPLAINED: &str = "unexplained";
/// The claim of a verdict that names nobody.
const UNKNOWN: &str = "What limited it is unknown";

/// What may have limited a test: the verdict, if it did.
type Suspect = fn(&TestRecord) -> Option<Limit>;

/// What limited the test.
pub fn limit(test: &TestRecord) -> Limit {
    let suspects = [
        nothing_sent,
        accept_queue,
        lost,
        tcp::unanswered,
        schedule_missed,
        schedule_kept,
        tcp::stream,
        round_trip,
        fastest,
    ];
    let looked = "no loss, no full CPU, no shaper at its rate and no schedule explain the rate";
    with_waits(test, first(test, &suspects).unwrap_or_else(|| unknown(test, looked)))
}

/// Verdicts that a wait for a CPU explains.
const OF_CPUS: [&str; 10] = [
    verdict::GENERATOR_CPU,
    verdict::RECEIVER_CPU,
    verdict::FORWARDER_CPU,
    verdict::CPU,
    verdict::OTHER_WORK,
    verdict::HOST_CPU,
    verdict::RECEIVER_STALLED,
    verdict::GENERATOR,
    verdict::ROUND_TRIP,
    verdict::UNKNOWN,
];

/// The verdict with who waited for a CPU and who ran there meanwhile, where that was measured (`run --profile`).
fn with_waits(test: &TestRecord, limit: Limit) -> Limit {
    let full_socket = drop::verdict(drop::SOCKET_BUFFER_FULL);
    if limit.what != full_socket && !OF_CPUS.contains(&limit.what.as_str()) {
        return limit;
    }
    let waits = test.time.iter().flat_map(|time| time.waits.iter().map(move |wait| (time, wait)));
    let told: Vec<String> = waits.filter_map(|(time, wait)| time::taken(time, wait, WAITED)).collect();
    if told.is_empty() {
        return limit;
    }
    let told = told.join("; ");
    let evidence = format!("{}; {told}", limit.evidence);
    let sentence = format!("{}; {told}.", limit.sentence.trim_end_matches('.'));
    Limit { evidence, sentence, ..limit }
}

/// The first of these that did it.
fn first(test: &TestRecord, suspects: &[Suspect]) -> Option<Limit> {
    suspects.iter().find_map(|suspect| suspect(test))
}

/// A verdict; the sentence is the claim with its evidence.
fn convict(what: &str, place: &str, evidence: &str, claim: &str) -> Limit {
    let sentence = format!("{claim}: {evidence}.");
    let advice = verdict::advice(what).to_owned();
    Limit { what: what.into(), place: place.into(), evidence: evidence.into(), sentence, advice }
}

/// No verdict, with what cannot be ruled out because it was not read: unknown is not zero.
fn unknown(test: &TestRecord, looked: &str) -> Limit {
    let node = &test.spec.to;
    let overflows = delta(test, node, "TcpExt.ListenOverflows");
    let unread = test.spec.kind.is_tcp() && overflows.known().is_none();
    let evidence = match unread {
        true => format!("{looked}; how often the accept queue of node {node} was full is {overflows}"),
        false => looked.into(),
    };
    convict("unknown", "", &evidence, UNKNOWN)
}

fn nothing_sent(test: &TestRecord) -> Option<Limit> {
    let silent = test.sender.attempted == 0 && test.sender.sent_bytes == 0;
    let refused = delta(test, &test.spec.to, "TcpExt.ListenDrops").known().is_some_and(|drops| drops > 0);
    (silent && !refused).then(|| unknown(test, "the sender sent nothing"))
}

fn delta(test: &TestRecord, node: &str, counter: &str) -> Delta {
    Delta::of_protocol(&test.before, &test.after, node, counter)
}

fn accept_queue(test: &TestRecord) -> Option<Limit> {
    let node = &test.spec.to;
    let (overflows, drops) =
        (delta(test, node, "TcpExt.ListenOverflows"), delta(test, node, "TcpExt.ListenDrops"));
    overflows.known().filter(|&overflows| overflows > 0)?;
    let place = format!("node {node}");
    let evidence = format!("ListenOverflows {overflows}, ListenDrops {drops}");
    let claim = format!("The accept queue of a listening socket on {place} was full");
    Some(convict("accept_queue", &place, &evidence, &claim))
}

/// What the generator did not offer, as a share of what was asked; 0 without a plan.
fn shortfall(test: &TestRecord) -> f64 {
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
    Some(convict("unknown", &place, &evidence, UNKNOWN))
}

/// The station and drop (or residual) that lost most; a drop of a station that is doubtful itself is none.
fn worst(ledger: &Ledger) -> Option<(&Station, &str, u64, &str)> {
    let is_sure = |station: &Station, count: u64| station.residual == 0 || count > station.uncertainty;
    let named = ledger.stations.iter().flat_map(|station| {
        station
            .drops
            .iter()
            .filter(move |drop| is_sure(station, drop.count))
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

/// Frames are missing, and no station is sure of any.
fn nowhere(ledger: &Ledger) -> Option<Limit> {
    let is_doubtful = |station: &&Station| station.residual > 0 || !station.drops.is_empty();
    let doubtful = ledger.stations.iter().filter(is_doubtful).max_by_key(|station| station.uncertainty)?;
    let Station { node, station, uncertainty, .. } = doubtful;
    let missing = ledger.sent.saturating_sub(ledger.received);
    let [missing, sent, doubt] = [missing, ledger.sent, *uncertainty].map(unit::count);
    let evidence = format!(
        "{missing} of {sent} frames are missing, and no station is sure of them (± {doubt} at node {node}, {station})"
    );
    Some(convict("unknown", "", &evidence, UNKNOWN))
}

/// What was lost, if it is enough to be what limited the test.
fn worth_a_verdict(test: &TestRecord) -> Option<&Ledger> {
    let ledger = test.ledger.as_ref()?;
    let missing = ledger.sent.saturating_sub(ledger.received);
    let share = missing as f64 / ledger.sent as f64;
    let full_sender = test.spec.rate.is_none() && sender_cpu(test).is_some();
    let least = if full_sender { WORTH_MORE_THAN_A_FULL_CPU } else { WORTH_A_VERDICT };
    (missing > 0 && share >= least.max(shortfall(test))).then_some(ledger)
}

fn lost(test: &TestRecord) -> Option<Limit> {
    let ledger = worth_a_verdict(test)?;
    let Some((station, name, count, why)) = worst(ledger) else { return nowhere(ledger) };
    if name == UNEXPLAINED
        && let Some(limit) = behind_unknown(ledger, station, count)
    {
        return Some(limit);
    }
    // What a program in between did not read says nothing about the receiver.
    let stall = stalled(test).filter(|_| station.kind != StationKind::Program);
    let in_shaper = station.kind == StationKind::Qdisc && has_rate(test, station);
    let (what, stall) = match name {
        drop::QDISC_FULL | QUEUED if in_shaper => ("shaper", None),
        drop::SOCKET_BUFFER_FULL | drop::RING_FULL | QUEUED if stall.is_some() => ("receiver_stalled", stall),
        name => (drop::verdict(name), None),
    };
    let place = format!("node {}, {}", station.node, station.station);
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    let stall = stall.map_or(String::new(), |stall| format!("; {stall}"));
    let (count, sent) = (unit::count(count), unit::count(ledger.sent));
    let evidence = format!("{count} of {sent} frames: {name}{why}{stall}");
    Some(convict(what, &place, &evidence, &format!("Loss at {place} limited it")))
}

fn has_rate(test: &TestRecord, station: &Station) -> bool {
    let node = test.after.nodes.get(&station.node);
    node.zip(station.interface.as_ref()).is_some_and(|(node, interface)| {
        node.qdiscs.iter().any(|q| q.interface == *interface && q.rate_bytes_per_second.is_some())
    })
}

/// The receiver did not read for long, in words.
fn stalled(test: &TestRecord) -> Option<String> {
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

fn busy_actor(test: &TestRecord, role: &str, what: &str) -> Option<Limit> {
    let actor = test.actors.iter().find(|actor| actor.role == role && actor.cpu_percent >= BUSY)?;
    let place = format!("node {}", actor.node);
    let evidence = format!("the {role} used {:.0} % of a CPU", actor.cpu_percent);
    Some(convict(what, &place, &evidence, &format!("The CPU of the {role} on {place} limited it")))
}

fn sender_cpu(test: &TestRecord) -> Option<Limit> {
    busy_actor(test, "sender", "generator_cpu")
}

fn receiver_cpu(test: &TestRecord) -> Option<Limit> {
    busy_actor(test, "receiver", "receiver_cpu")
}

/// Ticks of all CPUs together below which their times say nothing of a test.
const LEAST_TICKS: u64 = 10;

/// Both ends are on one host, whose CPUs and processes are known; of two hosts that do not observe, nobody's are.
fn has_one_host(test: &TestRecord) -> bool {
    !test.cpu.is_empty() || test.conditions.iter().any(|host| host.host.is_empty())
}

/// Each of two hosts that observe.
fn watched(test: &TestRecord) -> impl Iterator<Item = &Conditions> {
    test.conditions.iter().filter(|host| !host.host.is_empty())
}

/// All CPUs of a host together, without work of low priority; not when the time of one of them is unknown.
fn busy_host(test: &TestRecord) -> Option<Limit> {
    if !has_one_host(test) {
        return watched(test).find_map(|host| full_cpus(&host.host, &host.cpu, ""));
    }
    let waited = test.actors.iter().map(|actor| actor.wait_percent).fold(0.0, f64::max);
    let waited = (waited >= 1.0).then(|| format!("an actor waited {waited:.0} % of the time for one"));
    full_cpus("", &test.after.cpus_since(&test.before), &waited.unwrap_or_default())
}

/// All CPUs of that host, if there are two, were full; and what that did to an end.
fn full_cpus(host: &str, spent: &[CpuTime], end: &str) -> Option<Limit> {
    let spare = |cpu: &CpuTime| cpu.idle.saturating_add(cpu.nice);
    let (all, idle) = (sum(spent.iter().map(CpuTime::total)), sum(spent.iter().map(spare)));
    let busy = (all >= LEAST_TICKS)
        .then(|| all.saturating_sub(idle) as f64 * 100.0 / all as f64)
        .filter(|&busy| busy >= BUSY)?;
    let (place, whose) = match host {
        "" => ("host".to_owned(), "the host".to_owned()),
        name => (format!("host {name}"), format!("host {name}")),
    };
    let mut evidence = format!("{} {busy:.0} % busy", record::unit::many(spent.len() as u64, "CPU"));
    if !end.is_empty() {
        evidence += &format!(", {end}");
    }
    Some(convict(verdict::HOST_CPU, &place, &evidence, &format!("The CPUs of {whose} limited it")))
}

/// A shaper on the path that sent at (nearly) its rate, or held frames back.
fn shaper(test: &TestRecord) -> Option<Limit> {
    let found = shaper_of(test, &test.path.forward).or_else(|| shaper_of(test, &test.path.back));
    let (place, evidence) = found?;
    Some(convict(verdict::SHAPER, &place, &evidence, &format!("The shaper at {place} limited it")))
}

/// The first shaper of one leg that was at its rate, and the evidence.
fn shaper_of(test: &TestRecord, leg: &[Hop]) -> Option<(String, String)> {
    leg.iter().find_map(|hop| {
        let (before, after) = (test.before.nodes.get(&hop.node)?, test.after.nodes.get(&hop.node)?);
        let interface = hop.egress.as_deref()?;
        after.qdiscs.iter().filter(|qdisc| qdisc.interface == interface).find_map(|after| {
            let is_same = |b: &&QdiscSample| b.interface == interface && b.handle == after.handle;
            let evidence = held_back(test, before.qdiscs.iter().find(is_same)?, after)?;
            Some((format!("node {}, {} on {interface}", hop.node, after.kind), evidence))
        })
    })
}

/// What a queueing discipline sent, in words, where it had to hold frames back for its rate.
fn held_back(test: &TestRecord, before: &QdiscSample, after: &QdiscSample) -> Option<String> {
    let seconds = test.after.begun_ns.saturating_sub(test.before.ended_ns) as f64 / 1e9;
    let traffic = test.receiver.ended_ns.saturating_sub(test.receiver.begun_ns) as f64 / 1e9;
    let seconds = if traffic > 0.0 { traffic.min(seconds.max(1e-9)) } else { seconds };
    let rate = after.rate_bytes_per_second? as f64;
    let sent = Delta::of(before.bytes, after.bytes).known()? as f64 / seconds.max(1e-9);
    let held = Delta::of(before.overlimits, after.overlimits).known()?;
    let (sends, may) = (bits_per_s(sent * 8.0), bits_per_s(rate * 8.0));
    let evidence = || format!("it sent {sends} of {may} and had to wait {}", unit::many(held, "time"));
    (held > 0 && sent >= 0.8 * rate).then(evidence)
}

/// The schedule of the sender, with what it asked for and offered in words; none without a plan.
fn schedule(test: &TestRecord) -> Option<(&Schedule, String)> {
    let schedule = test.sender.schedule.as_ref()?;
    let (asked, offered) = (schedule.requested_per_second?, schedule.achieved_per_second);
    Some((schedule, format!("asked {}, offered {}", messages_per_s(asked), messages_per_s(offered))))
}

fn schedule_missed(test: &TestRecord) -> Option<Limit> {
    let (schedule, mut evidence) = schedule(test).filter(|(schedule, _)| schedule.generator_limited)?;
    if let Some(late) = &schedule.lateness {
        evidence += &format!(", p99 {} late", time_ns(late.p99 as f64));
    }
    let cause = match test.spec.kind.is_bytes() {
        true => tcp::cause(test),
        false => first(test, &[sender_cpu, shaper, busy_host]),
    };
    let (what, place) = match cause {
        Some(cause) => {
            evidence += &format!("; {}", cause.evidence);
            (cause.what, cause.place)
        }
        None => ("generator".into(), format!("node {}", test.spec.from)),
    };
    let who = if what == "shaper" { format!("the shaper at {place}") } else { "the generator".into() };
    let claim = format!("The schedule was not kept, and {who} limited it");
    Some(convict(&what, &place, &evidence, &claim))
}

fn schedule_kept(test: &TestRecord) -> Option<Limit> {
    let (_, mut evidence) = schedule(test)?;
    let end = if test.spec.kind.is_one_way() { &test.receiver } else { &test.sender };
    if let Some(latency) = &end.latency {
        let (p50, p99) = (time_ns(latency.p50 as f64), time_ns(latency.p99 as f64));
        evidence += &format!("; latency p50 {p50}, p99 {p99}");
    }
    if let Some(again) = tcp::sent_again(test) {
        evidence += &format!("; {again}");
    }
    Some(convict("schedule", "", &evidence, "The requested rate itself limited it"))
}

fn round_trip(test: &TestRecord) -> Option<Limit> {
    let latency = test.sender.latency.as_ref().filter(|_| test.spec.kind.is_round_trip())?;
    first(test, &[shaper, tcp::black_hole, tcp::many_lost]).or_else(|| {
        let (mean, p99) = (time_ns(latency.mean), time_ns(latency.p99 as f64));
        let evidence = format!("one message at a time, mean {mean}, p99 {p99}");
        Some(convict("round_trip", "", &evidence, "The round trip limited it"))
    })
}

fn fastest(test: &TestRecord) -> Option<Limit> {
    first(test, &[shaper, sender_cpu, receiver_cpu, busy_host])
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::TrafficKind;
    use record::ledger::{Drop, DropSource};
    use record::snapshot::{NodeSnapshot, ProcessSample, Snapshot, TC_ROOT};
    use record::tcp::TcpDecomposition;
    use record::{ActorUsage, EndReport, Hop, NodeRole, TestSpec, Witness, WitnessStatus};

    #[test]
    fn a_schedule_that_was_missed_by_far_is_the_limit_and_not_a_small_loss() {
        let mut case = case(TrafficKind::UdpStream).drop("socket", "socket_buffer_full", 20);
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
            case(TrafficKind::UdpStream).drop("socket", "socket_buffer_full", lost).actor("sender", 99.0)
        };
        assert_eq!(case(4).what(), "generator_cpu");
        assert_eq!(case(100).what(), "socket_buffer");
    }

    #[test]
    fn a_loss_behind_a_station_that_could_not_be_read_has_no_place() {
        let mut case = case(TrafficKind::UdpStream).drop("ip in", "nothing", 0);
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
        let mut case = case(TrafficKind::TcpRr);
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
            let case = case(TrafficKind::TcpStream);
            let case = TestRecord {
                spec: TestSpec { to: "b".into(), ..case.spec },
                sender: EndReport::default(),
                ..case
            };
            TestRecord { before, after, ..case }.limit()
        };
        assert_eq!(case(read(4), read(4)).evidence, "the sender sent nothing");
        for (before, after) in
            [(Snapshot::default(), read(4)), (read(4), Snapshot::default()), (read(4), read(3))]
        {
            let limit = case(before, after);
            assert!(limit.evidence.contains("accept queue of node b was full is unknown ("), "{limit:?}");
        }
    }

    fn case(kind: TrafficKind) -> TestRecord {
        let sender = EndReport { attempted: 1000, sent: 1000, ..EndReport::default() };
        TestRecord { spec: TestSpec { kind, ..TestSpec::default() }, sender, ..TestRecord::default() }
    }

    /// What a case is made of, and what is found of it.
    trait Case: Sized {
        fn drop(self, station: &str, name: &str, count: u64) -> Self;
        fn shaped(self, sent: u64) -> Self;
        fn actor(self, role: &str, cpu_percent: f64) -> Self;
        fn what(&self) -> String;
        fn limit(&self) -> Limit;
    }

    impl Case for TestRecord {
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
            let limit = limit(self);
            assert!(limit.sentence.ends_with('.') && limit.sentence.contains(&limit.evidence), "{limit:?}");
            limit
        }
    }

    #[test]
    fn the_place_that_lost_most_is_convicted() {
        let udp = || case(TrafficKind::UdpStream);
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
        let mut case = case(TrafficKind::UdpStream).actor("sender", 99.0);
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
        let mut case = case(TrafficKind::TcpStream);
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
        let mut case = case(TrafficKind::TcpRr);
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
        assert_eq!(case(TrafficKind::UdpStream).what(), "unknown");
        assert_eq!(
            case(TrafficKind::UdpStream).shaped(100).what(),
            "unknown",
            "a shaper far below its rate is innocent"
        );
        assert_eq!(TestRecord { sender: EndReport::default(), ..case(TrafficKind::Ping) }.what(), "unknown");
        let mut busy = case(TrafficKind::UdpStream);
        busy.before.cpus = vec![CpuTime::default()];
        busy.after.cpus = vec![CpuTime { system: 99, idle: 1, ..CpuTime::default() }];
        busy.cpu = busy.after.cpus_since(&busy.before);
        assert_eq!(busy.what(), "host_cpu");
        busy.conditions =
            ["a", "b"].map(|host| Conditions { host: host.into(), ..Conditions::default() }).into();
        busy.conditions[1].cpu = std::mem::take(&mut busy.cpu);
        let found = limit(&busy);
        assert_eq!((found.what.as_str(), found.place.as_str()), ("host_cpu", "host b"), "{found:?}");
    }
}
