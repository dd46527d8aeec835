//! From raw numbers to the record of a test: rates, ledger, limit.

use super::measure::Measured;
use super::watch::Seen;
use crate::plan::Planned;
use record::ledger::WitnessDrop;
use record::run::{Offered, Received, Sent};
use record::snapshot::{CpuTime, ProcessSample};
use record::{
    ActorUsage, EndReport, Kind, Ledger, Path, Snapshot, TestRecord, TestSpec, Witness, WitnessStatus,
};
use study::ledger::{LedgerInput, Ports, WitnessInput};
use study::verdict::VerdictInput;

/// Where a test stands in its run.
pub struct Place {
    /// Which repetition, from 1.
    pub repetition: u32,
    /// Place in the order, from 1.
    pub order: u32,
    /// Place in the plan, from 1.
    pub place: u32,
    /// When it began, RFC 3339.
    pub begun: String,
}

/// Concludes from a measured test.
pub fn record(
    planned: &Planned,
    place: Place,
    measured: Measured,
    idle: (&Snapshot, &Snapshot),
) -> TestRecord {
    let spec = &planned.spec;
    let Measured { path, outcome, seen, offloads } = measured;
    let (sender, receiver) = (outcome.sender, outcome.receiver);
    let (ledger, kernel_drops) = losses(spec, &path, (&sender, &receiver), &seen, idle);
    let received = received(spec, &sender, &receiver);
    let seconds = seconds(spec, &sender, &receiver);
    let tcp = study::tcp::decompose(&sender.tcp);
    let actors = actors(&seen.before, &seen.after);
    let limit = study::verdict::limit(&VerdictInput {
        spec,
        path: &path,
        sender: &sender,
        receiver: &receiver,
        before: &seen.before,
        after: &seen.after,
        ledger: ledger.as_ref(),
        tcp: tcp.as_ref(),
        actors: &actors,
    });
    let mut test = TestRecord {
        kind: spec.kind,
        name: planned.name.clone(),
        repetition: place.repetition,
        order: place.order,
        place: place.place,
        spec: spec.clone(),
        begun: place.begun,
        seconds,
        offered: offered(spec, &sender),
        sent: Sent { datagrams: sender.sent, bytes: sender.sent_bytes },
        received,
        latency_ns: if spec.kind.is_one_way() { receiver.latency.clone() } else { sender.latency.clone() },
        latency_kind: latency_kind(spec).into(),
        throughput_bps: per_second(received.bytes as f64 * 8.0, seconds),
        messages_per_second: per_second(received.unique as f64, seconds),
        ledger,
        kernel_drops,
        limit,
        tcp,
        cpu: cpu_delta(&seen.before, &seen.after),
        actors,
        invalid: invalid(&sender, &seen),
        observer_cpu_ns: seen.before.cost_cpu_ns + seen.after.cost_cpu_ns,
        path,
        offloads,
        sender,
        receiver,
        before: seen.before,
        after: seen.after,
        criteria: vec![],
    };
    test.criteria = study::criteria::judge(planned.criteria, &test);
    test
}

/// The ledger, for kinds that have one; for the others what the kernel told of their drops.
fn losses(
    spec: &TestSpec,
    path: &Path,
    (sender, receiver): (&EndReport, &EndReport),
    seen: &Seen,
    idle: (&Snapshot, &Snapshot),
) -> (Option<Ledger>, Vec<WitnessDrop>) {
    let witness = match &seen.witness {
        Some(Ok(count)) if !spec.kind.has_ledger() => {
            return (None, study::ledger::without_copies(path, &count.details));
        }
        _ if !spec.kind.has_ledger() => return (None, vec![]),
        Some(Ok(count)) => WitnessInput::Counted { details: count.details.clone(), lost: count.lost },
        Some(Err(absent)) => WitnessInput::Absent(absent.clone()),
        None => WitnessInput::Absent(Witness::absent(WitnessStatus::Unavailable, "the test never began")),
    };
    let ports = Ports {
        sender: seen.ports.sender.first().copied().or(seen.ports.icmp_id).unwrap_or(0),
        receiver: seen.ports.receiver.unwrap_or(0),
    };
    let (before, after) = (&seen.before, &seen.after);
    let idle = Some(idle);
    let arrival = None;
    let input = LedgerInput { spec, path, sender, receiver, before, after, idle, witness, ports, arrival };
    (Some(study::ledger::close(&input)), vec![])
}

fn per_second(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}

fn offered(spec: &TestSpec, sender: &EndReport) -> Offered {
    let schedule = sender.schedule.clone().unwrap_or_default();
    let planned = spec.rate.map(|rate| {
        let rate = rate.messages_per_second(load::message_size(spec) as u32);
        load::schedule::Plan::new(0, rate, spec.duration_ms, spec.count).total()
    });
    Offered {
        planned,
        datagrams: sender.attempted,
        requested_per_second: schedule.requested_per_second,
        achieved_per_second: schedule.achieved_per_second,
        generator_limited: schedule.generator_limited,
    }
}

/// The end whose count is the result: the receiver of a stream, the sender (of requests) of a round trip.
fn counting_end<'a>(spec: &TestSpec, sender: &'a EndReport, receiver: &'a EndReport) -> &'a EndReport {
    if spec.kind.is_round_trip() { sender } else { receiver }
}

fn received(spec: &TestSpec, sender: &EndReport, receiver: &EndReport) -> Received {
    let end = counting_end(spec, sender, receiver);
    Received {
        datagrams: end.received,
        unique: end.unique,
        bytes: end.received_bytes,
        duplicates: end.duplicates,
        reordered: end.reordered,
    }
}

/// How long traffic flowed. A stream whose tail was lost did not end with its last arrival: for datagrams it is the longer
/// of what the sender and the receiver saw. A plan of n messages covers n gaps, not the n − 1 between them.
fn seconds(spec: &TestSpec, sender: &EndReport, receiver: &EndReport) -> f64 {
    let length = |end: &EndReport| end.ended_ns.saturating_sub(end.begun_ns) as f64 / 1e9;
    let gaps = sender.attempted.saturating_sub(1).max(1) as f64;
    let of_plan = if spec.rate.is_some() { sender.attempted.max(1) as f64 / gaps } else { 1.0 };
    match spec.kind {
        Kind::UdpStream | Kind::Frames => (length(sender) * of_plan).max(length(receiver)),
        Kind::TcpStream => length(receiver),
        _ => length(sender) * of_plan,
    }
}

fn latency_kind(spec: &TestSpec) -> &'static str {
    match (spec.kind, spec.rate.is_some()) {
        (Kind::TcpStream, _) => "none",
        (Kind::UdpStream | Kind::Frames, true) => "one way from planned time",
        (Kind::UdpStream | Kind::Frames, false) => "one way from send time",
        (_, true) => "round trip from planned time",
        (_, false) => "round trip from send time",
    }
}

/// Why a test is not to be trusted.
fn invalid(sender: &EndReport, seen: &Seen) -> Vec<String> {
    let mut reasons = seen.ended.clone();
    if sender.attempted == 0 && sender.sent_bytes == 0 {
        reasons.push("the sender sent nothing".to_owned());
    }
    if let Some(settled) = &seen.settled
        && !settled.quiet
    {
        let waited_ms = settled.waited_ns / 1_000_000;
        let moving = settled.moving.join(", ");
        reasons.push(format!("counters still moved {waited_ms} ms after the last message: {moving}"));
    }
    reasons
}

fn cpu_delta(before: &Snapshot, after: &Snapshot) -> Vec<CpuTime> {
    let earlier = |cpu: u32| before.cpus.iter().find(|row| row.cpu == cpu).copied();
    let delta = |now: &CpuTime| {
        let then = earlier(now.cpu)?;
        Some(CpuTime {
            cpu: now.cpu,
            user: now.user.saturating_sub(then.user),
            system: now.system.saturating_sub(then.system),
            irq: now.irq.saturating_sub(then.irq),
            softirq: now.softirq.saturating_sub(then.softirq),
            steal: now.steal.saturating_sub(then.steal),
            idle: now.idle.saturating_sub(then.idle),
        })
    };
    after.cpus.iter().filter_map(delta).collect()
}

fn actors(before: &Snapshot, after: &Snapshot) -> Vec<ActorUsage> {
    let wall_ns = after.begun_ns.saturating_sub(before.begun_ns);
    let usage = |now: &ProcessSample| {
        let then = before.processes.iter().find(|process| process.pid == now.pid)?;
        let percent =
            |now: u64, then: u64| per_second(now.saturating_sub(then) as f64 * 100.0, wall_ns as f64);
        Some(ActorUsage {
            role: now.role.clone(),
            node: now.node.clone(),
            cpu_percent: percent(now.cpu_ns, then.cpu_ns),
            wait_percent: percent(now.wait_ns, then.wait_ns),
            rss_bytes: now.peak_rss_bytes,
        })
    };
    after.processes.iter().filter_map(usage).collect()
}
