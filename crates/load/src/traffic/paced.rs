//! Senders of one way: by plan, or as fast as the way out takes it.

use super::datagram::{Outgoing, SenderCounts};
use super::intervals::Intervals;
use super::schedule::{self, OpenLoopPlan, Share};
use super::sent_times::SentTimes;
use super::threads::joined;
use linux::sys::clock;
use record::spec::TestSpec;
use record::traffic::EndReport;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Sends by plan: what is due leaves at once, at most one burst at a time. `left` is told of every burst: its numbers
/// and when it was due to leave the hands of the sender.
pub fn send_planned(
    out: &mut impl Outgoing,
    plan: &OpenLoopPlan,
    stop: &AtomicBool,
    mut left: impl FnMut(std::ops::Range<u64>, u64),
) -> SenderCounts {
    let mut sent = SenderCounts::default();
    let mut next = 0;
    while next < plan.total() && !out.is_closed() {
        let Some(now) = schedule::wait_until(plan.planned(next), stop) else { break };
        if plan.is_over(now) {
            break;
        }
        let until = plan.due(now).clamp(next + 1, next + out.capacity());
        left(next..until, now);
        out.send(next..until, |number| plan.planned(number), &mut sent);
        for number in next..sent.attempted {
            sent.lateness.record(now - plan.planned(number).min(now));
        }
        sent.begun_ns = if sent.begun_ns == 0 { now } else { sent.begun_ns };
        sent.ended_ns = now;
        next = sent.attempted;
    }
    sent
}

/// Sends as fast as the kernel takes it.
pub fn send_freely(
    out: &mut impl Outgoing,
    spec: &TestSpec,
    stop: &AtomicBool,
    over: &mut Intervals,
) -> SenderCounts {
    let mut sent = SenderCounts { begun_ns: clock::monotonic_ns(), ..SenderCounts::default() };
    let end = schedule::deadline_of(spec, sent.begun_ns);
    let total = spec.count.unwrap_or(u64::MAX);
    let mut next = 0;
    let mut now = sent.begun_ns;
    while next < total && now < end && !stop.load(Relaxed) {
        let until = next + out.capacity().min(total - next);
        let before = (sent.sent, sent.bytes);
        out.send(next..until, |_| now, &mut sent);
        over.add(now, sent.sent - before.0, sent.bytes - before.1);
        next = sent.attempted;
        sent.ended_ns = now;
        now = clock::monotonic_ns();
    }
    sent
}

/// Sends a whole test one way, by its plan or as fast as the way out takes it, and reports the sending half.
pub fn send(out: &mut impl Outgoing, spec: &TestSpec, stop: &AtomicBool) -> EndReport {
    let mut report = EndReport::default();
    let mut over = Intervals::for_duration(spec.duration_ms);
    clock::precise_timers();
    let cpu = clock::thread_cpu_ns();
    let plan = OpenLoopPlan::of(spec, clock::monotonic_ns(), spec.size, Share::ALL);
    let sent = match &plan {
        Some(plan) => send_planned(out, plan, stop, |numbers, now| {
            let many = numbers.end - numbers.start;
            over.add(now, many, many * u64::from(spec.size));
        }),
        None => send_freely(out, spec, stop, &mut over),
    };
    sent.report(sent.schedule(plan.as_ref()), &mut report);
    report.intervals = over.finish();
    report.thread_cpu_ns = clock::thread_cpu_ns() - cpu;
    report
}

/// Sends requests by plan while `read` takes the responses on a thread of its own; the sending half of the report, and what was
/// read.
pub fn ask<R: Send>(
    out: &mut impl Outgoing,
    plan: &OpenLoopPlan,
    stop: &AtomicBool,
    read: impl FnOnce(&SentTimes) -> R + Send,
) -> (EndReport, R) {
    let times = SentTimes::new();
    let cpu = clock::thread_cpu_ns();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&times));
        let sent = send_planned(out, plan, stop, |numbers, now| {
            numbers.for_each(|number| times.leaves(number, now));
        });
        times.finish(sent.sent);
        let read = joined(reader);
        let mut report = EndReport { thread_cpu_ns: clock::thread_cpu_ns() - cpu, ..EndReport::default() };
        sent.report(sent.schedule(Some(plan)), &mut report);
        (report, read)
    })
}
