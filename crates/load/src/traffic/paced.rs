//! Senders of one way: by plan, or as fast as the way out takes it.

use super::datagram::{Outgoing, SenderCounts};
use super::intervals::Intervals;
use super::schedule::{self, Ending, OpenLoopPlan, Running, Share};
use super::sent_times::SentTimes;
use super::threads::joined;
use linux::sys::clock::{self, ThreadTime};
use record::spec::TestSpec;
use record::traffic::{EndReport, Schedule};
use std::ops::Range;

/// What one sender did.
pub struct Paced {
    sent: SenderCounts,
    over: Intervals,
    plan: Option<OpenLoopPlan>,
}

/// Sends a share of a test. By plan, what is due leaves at once, at most one burst at a time;
/// without one, a burst leaves as soon as the one before has. `leaves` is told of every burst: its numbers and the time.
pub fn send_share(
    out: &mut impl Outgoing,
    Running { spec, start_ns, stop }: Running<'_>,
    share: Share,
    mut leaves: impl FnMut(Range<u64>, u64),
) -> Paced {
    clock::precise_timers();
    let plan = OpenLoopPlan::of(spec, start_ns, share);
    let (total, end) = match &plan {
        Some(plan) => (plan.total(), plan.give_up_ns.saturating_add(1)),
        None => (
            share.count(spec.count).unwrap_or(u64::MAX),
            schedule::deadline_ns(start_ns, spec.duration_ms, spec.count),
        ),
    };
    let mut over = Intervals::for_duration(spec.duration_ms);
    over.begin(start_ns);
    let mut sent = SenderCounts::default();
    let mut next = 0;
    let begun = ThreadTime::now();
    while next < total && !out.is_closed() && !stop.is_over() {
        let now = match &plan {
            Some(plan) => schedule::wait_until(plan.planned(next), || stop.is_over()),
            None => Some(clock::monotonic_ns()),
        };
        let Some(now) = now.filter(|&now| now < end) else { break };
        let due = plan.as_ref().map_or(total, |plan| plan.due(now).max(next + 1));
        let until = due.min(next.saturating_add(out.capacity()));
        leaves(next..until, now);
        let before = (sent.report.sent, sent.report.sent_bytes);
        sent.report.begun_ns = if sent.report.begun_ns == 0 { now } else { sent.report.begun_ns };
        sent.report.ended_ns = now;
        out.send(next..until, |number| plan.as_ref().map_or(now, |plan| plan.planned(number)), &mut sent);
        over.add(sent.report.ended_ns, sent.report.sent - before.0, sent.report.sent_bytes - before.1);
        if let Some(plan) = &plan {
            (next..sent.report.attempted)
                .for_each(|number| sent.lateness.record(now - plan.planned(number).min(now)));
        }
        next = sent.report.attempted;
    }
    // Who had nothing to send had no part in the time between the first message and the last.
    let time = if next > 0 { ThreadTime::since(begun) } else { ThreadTime::default() };
    (sent.report.thread_cpu_ns, sent.report.thread_wait_ns) = (time.cpu_ns, time.wait_ns);
    // What was planned for later than its end is nobody's failure.
    let plan = if stop.is_over() { plan.map(|plan| plan.until(clock::monotonic_ns())) } else { plan };
    Paced { sent, over, plan }
}

/// The sending half of a report of all who sent at the same time.
pub fn report(all: impl IntoIterator<Item = Paced>) -> EndReport {
    let (mut sent, mut schedule) = (SenderCounts::default(), Schedule::default());
    let mut over: Option<Intervals> = None;
    for one in all {
        let times = (one.sent.report.begun_ns, one.sent.report.ended_ns);
        let own = schedule::outcome(one.plan.as_ref(), one.sent.report.attempted, times, &one.sent.lateness);
        schedule.achieved_per_second += own.achieved_per_second;
        schedule.generator_limited |= own.generator_limited;
        if let Some(requested) = own.requested_per_second {
            *schedule.requested_per_second.get_or_insert(0.0) += requested;
        }
        sent.merge(&one.sent);
        match &mut over {
            Some(over) => over.merge(one.over),
            None => over = Some(one.over),
        }
    }
    schedule.lateness = sent.lateness.summary();
    let mut report = sent.into_report(schedule);
    report.intervals = over.map(Intervals::finish).unwrap_or_default();
    report
}

/// Sends a whole test one way and reports the sending half.
pub fn send(out: &mut impl Outgoing, spec: &TestSpec, stop: &Ending) -> EndReport {
    let test = Running { spec, start_ns: clock::monotonic_ns(), stop };
    report([send_share(out, test, Share::ALL, |_, _| {})])
}

/// Sends the requests of a test by plan while `read` takes the responses on a thread of its own; the
/// sending half of the report, and what was read.
pub fn ask<R: Send>(
    out: &mut impl Outgoing,
    test: Running<'_>,
    read: impl FnOnce(&SentTimes) -> R + Send,
) -> (EndReport, R) {
    let times = SentTimes::default();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&times));
        let paced = send_share(out, test, Share::ALL, |numbers, now| {
            numbers.for_each(|number| times.leaves(number, now));
        });
        times.finish(paced.sent.report.sent);
        (report([paced]), joined(reader))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A way out that takes everything.
    struct Open;

    impl Outgoing for Open {
        fn send(&mut self, numbers: Range<u64>, _: impl Fn(u64) -> u64, sent: &mut SenderCounts) {
            sent.report.attempted = numbers.end;
        }
    }

    #[test]
    fn a_sender_without_a_message_used_no_cpu_for_the_test() {
        let spec = TestSpec { count: Some(1), duration_ms: 0, ..TestSpec::default() };
        let stop = Ending::default();
        let test = || Running { spec: &spec, start_ns: clock::monotonic_ns(), stop: &stop };
        let share = |index| send_share(&mut Open, test(), Share { index, of: 2 }, |_, _| {}).sent.report;
        assert_eq!((share(1).attempted, share(1).thread_cpu_ns, share(1).thread_wait_ns), (0, 0, 0));
        assert!(share(0).attempted == 1 && share(0).thread_cpu_ns > 0);
    }
}
