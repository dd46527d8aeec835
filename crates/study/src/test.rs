//! What the two ends and the snapshots say of one test: the one reckoning for `pathlab run`, `test` and `join`.
//!
//! **What.** [`figures`] are the rates, from what both ends saw; [`conclude`] is everything else beside them: ledger, limit, CPU,
//! validity, criteria.
//!
//! **Why one.** Two reckonings would sooner or later say two figures for the same traffic. The time of a stream is the case in
//! point: by the receiver's clock alone, a stream whose tail is lost would be faster than one that arrives whole.
//!
//! **Price.** None: it is arithmetic over records.

use crate::criteria::Criteria;
use crate::ledger::{Arrival, LedgerInput, Ports, WitnessInput};
use record::kind::Shape;
use record::ledger::WitnessDrop;
use record::run::{Offered, Received, Sent};
use record::snapshot::ProcessSample;
use record::{ActorUsage, Delta, EndReport, Ledger, Snapshot, TestRecord, TestSpec, Trust};

/// What is known of a test besides what its record holds.
pub struct Evidence<'a> {
    /// Two snapshots without traffic between them.
    pub idle: Option<(&'a Snapshot, &'a Snapshot)>,
    /// The kernel's own word on drops.
    pub witness: WitnessInput,
    /// Ports of the traffic.
    pub ports: Ports,
    /// What arrived, where that is known in another way than from the counters.
    pub arrival: Option<&'a Arrival>,
    /// How many messages the plan had; none without a plan.
    pub planned: Option<u64>,
    /// How long traffic flowed, where that is known better than from the two ends.
    pub seconds: Option<f64>,
    /// What it must reach.
    pub criteria: Criteria,
}

/// Concludes from a test whose record has its name and place, what was asked, the path, what both ends saw, both snapshots, and
/// where both ends are on one host what its CPUs and processes ([`actors`]) did meanwhile.
pub fn conclude(test: &mut TestRecord, evidence: Evidence<'_>) {
    let TestRecord { ref spec, ref sender, ref receiver, .. } = *test;
    let figures = figures(spec, sender, receiver, evidence.seconds);
    test.latency_kind = latency_kind(spec).into();
    test.latency_ns = if spec.kind.is_one_way() { &receiver.latency } else { &sender.latency }.clone();
    test.offered = offered(evidence.planned, sender);
    test.sent = Sent { datagrams: sender.sent, bytes: sender.sent_bytes };
    test.tcp = crate::tcp::decompose(&sender.tcp);
    (test.kind, test.seconds, test.received) = (test.spec.kind, figures.seconds, figures.received);
    (test.throughput_bps, test.messages_per_second) = (figures.throughput_bps, figures.messages_per_second);
    test.observer_cpu_ns = test.before.cost_cpu_ns.saturating_add(test.after.cost_cpu_ns);
    let criteria = evidence.criteria;
    (test.ledger, test.kernel_drops) = losses(test, evidence);
    if let Some(path) = crate::way::path_of_frames(test) {
        test.path = path;
    }
    if let Some(time) = &mut test.time {
        crate::time::of_traffic(time, &test.sender, &test.receiver);
    }
    if let Some(layers) = &mut test.layers {
        // The stamps of a connection begin with the call that sends; what waited before that has its own figure.
        let from_send = test.sender.latency_from_send.as_ref().filter(|_| spec.kind.is_tcp());
        layers.split = crate::layers::split(layers, from_send.or(test.latency_ns.as_ref()));
    }
    test.limit = crate::verdict::limit(test);
    let validity = crate::validity::judge(test);
    let invalid = validity.reasons.iter().filter(|one| one.verdict == Trust::Invalid);
    test.invalid = invalid.map(|one| one.reason.clone()).collect();
    test.validity = Some(validity);
    test.criteria = crate::criteria::judge(criteria, test);
}

/// The ledger, for kinds that have one; for the others what the kernel told of their drops.
fn losses(test: &TestRecord, evidence: Evidence<'_>) -> (Option<Ledger>, Vec<WitnessDrop>) {
    let Evidence { idle, witness, ports, arrival, .. } = evidence;
    let TestRecord { spec, path, sender, receiver, before, after, flow, .. } = test;
    let flow = flow.as_ref();
    match witness {
        witness if spec.kind.has_ledger() => {
            let input = LedgerInput {
                spec,
                path,
                sender,
                receiver,
                before,
                after,
                idle,
                witness,
                ports,
                flow,
                arrival,
            };
            (Some(crate::ledger::close(&input)), vec![])
        }
        WitnessInput::Counted { details, .. } => (None, crate::ledger::without_copies(path, &details)),
        WitnessInput::Absent(_) => (None, vec![]),
    }
}

/// What arrived, and how fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// How long traffic flowed.
    pub seconds: f64,
    /// What the end counted whose count is the result.
    pub received: Received,
    /// Payload bits per second.
    pub throughput_bps: f64,
    /// Messages per second, each counted once.
    pub messages_per_second: f64,
}

/// What arrived, and how fast; `seconds` where that is known better than from the two ends.
pub fn figures(spec: &TestSpec, sender: &EndReport, receiver: &EndReport, seconds: Option<f64>) -> Figures {
    let received = received(spec, sender, receiver);
    let seconds = seconds.unwrap_or_else(|| length(spec, sender, receiver));
    Figures {
        seconds,
        received,
        throughput_bps: per_second(received.bytes as f64 * 8.0, seconds),
        messages_per_second: per_second(received.unique as f64, seconds),
    }
}

fn per_second(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}

fn offered(planned: Option<u64>, sender: &EndReport) -> Offered {
    let schedule = sender.schedule.clone().unwrap_or_default();
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
fn length(spec: &TestSpec, sender: &EndReport, receiver: &EndReport) -> f64 {
    let span = |end: &EndReport| end.ended_ns.saturating_sub(end.begun_ns) as f64 / 1e9;
    let gaps = sender.attempted.saturating_sub(1).max(1) as f64;
    let of_plan = if spec.rate.is_some() { sender.attempted.max(1) as f64 / gaps } else { 1.0 };
    match spec.kind.facts().shape {
        Shape::OneWay => (span(sender) * of_plan).max(span(receiver)),
        Shape::Bytes => span(receiver),
        Shape::RoundTrip => span(sender) * of_plan,
    }
}

fn latency_kind(spec: &TestSpec) -> &'static str {
    match (spec.kind.facts().shape, spec.rate.is_some()) {
        (Shape::Bytes, _) => "none",
        (Shape::OneWay, true) => "one way from planned time",
        (Shape::OneWay, false) => "one way from send time",
        (Shape::RoundTrip, true) => "round trip from planned time",
        (Shape::RoundTrip, false) => "round trip from send time",
    }
}

/// How long the traffic threads of an end waited for a CPU, in percent of the time of its traffic; none for a process that is not an end.
/// The threads have ended by the second snapshot, so their process does not tell.
fn waited(role: &str, [sender, receiver]: [&EndReport; 2]) -> Option<f64> {
    let end = [("sender", sender), ("receiver", receiver)].into_iter().find(|(name, _)| *name == role)?.1;
    let span = end.ended_ns.saturating_sub(end.begun_ns);
    Some(per_second(end.thread_wait_ns as f64 * 100.0, span as f64))
}

/// What the processes that took part used between two snapshots; one whose time is unknown is left out.
pub fn actors(before: &Snapshot, after: &Snapshot, ends: [&EndReport; 2]) -> Vec<ActorUsage> {
    let wall_ns = after.begun_ns.saturating_sub(before.begun_ns);
    // Two hosts may have the same number for their ends.
    let is_same = |then: &ProcessSample, now: &ProcessSample| (then.pid, &then.role) == (now.pid, &now.role);
    let usage = |now: &ProcessSample| {
        let then = before.processes.iter().find(|process| is_same(process, now))?;
        let percent = |then: u64, now: u64| {
            Some(per_second(Delta::of(then, now).known()? as f64 * 100.0, wall_ns as f64))
        };
        Some(ActorUsage {
            role: now.role.clone(),
            node: now.node.clone(),
            cpu_percent: percent(then.cpu_ns, now.cpu_ns)?,
            wait_percent: match waited(&now.role, ends) {
                Some(waited) => waited,
                None => percent(then.wait_ns, now.wait_ns)?,
            },
            rss_bytes: now.peak_rss_bytes,
            stopped_percent: 0.0,
        })
    };
    after.processes.iter().filter_map(usage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::snapshot::CpuTime;
    use record::{Rate, TrafficKind};

    fn end(seconds: f64) -> EndReport {
        EndReport { ended_ns: (seconds * 1e9) as u64, ..EndReport::default() }
    }

    /// 1,000 datagrams of 100 bytes in a second, of which the last 900 are lost: the receiver's traffic took a tenth.
    #[test]
    fn a_stream_whose_tail_is_lost_is_not_faster() {
        let spec = TestSpec { kind: TrafficKind::UdpStream, size: 100, ..TestSpec::default() };
        let sender = EndReport { attempted: 1000, sent: 1000, ..end(1.0) };
        let receiver =
            EndReport { received: 110, unique: 100, duplicates: 10, received_bytes: 10_000, ..end(0.1) };
        let figures = figures(&spec, &sender, &receiver, None);
        assert_eq!((figures.seconds, figures.throughput_bps), (1.0, 80_000.0));
        assert_eq!(figures.messages_per_second, 100.0, "a message that came twice counts once");
    }

    #[test]
    fn a_plan_of_n_messages_covers_n_gaps() {
        let spec = TestSpec {
            kind: TrafficKind::UdpStream,
            rate: Some(Rate::MessagesPerSecond(10.0)),
            ..TestSpec::default()
        };
        // From the first to the last of ten messages.
        let sender = EndReport { attempted: 10, sent: 10, ..end(0.9) };
        let receiver = EndReport { received: 10, unique: 10, ..end(0.9) };
        assert_eq!(figures(&spec, &sender, &receiver, None).messages_per_second, 10.0);
    }

    #[test]
    fn a_known_time_is_taken_and_none_is_no_rate() {
        let spec = TestSpec { kind: TrafficKind::Frames, ..TestSpec::default() };
        let receiver = EndReport { received: 6, unique: 6, received_bytes: 600, ..end(0.5) };
        let of = |seconds| figures(&spec, &end(1.0), &receiver, seconds).messages_per_second;
        assert_eq!((of(Some(2.0)), of(None), of(Some(0.0))), (3.0, 6.0, 0.0));
    }

    #[test]
    fn a_time_that_is_unknown_is_no_idle_cpu_and_no_idle_process() {
        let at = |user, cpu_ns| Snapshot {
            cpus: vec![
                CpuTime { user, ..CpuTime::default() },
                CpuTime { cpu: 1, user: 50, ..CpuTime::default() },
            ],
            processes: vec![ProcessSample { pid: 1, cpu_ns, ..ProcessSample::default() }],
            begun_ns: user * 1_000_000_000,
            ..Snapshot::default()
        };
        assert_eq!(at(3, 0).cpus_since(&at(1, 0))[0].user, 2);
        assert!(at(1, 0).cpus_since(&at(3, 0)).is_empty());
        let ends = [&end(1.0), &end(1.0)];
        assert_eq!(actors(&at(1, 0), &at(3, 1_000_000_000), ends)[0].cpu_percent, 50.0);
        assert!(actors(&at(1, 9), &at(3, 0), ends).is_empty());
    }
}
