//! When each message should leave, and how late it really left.
//!
//! Open loop: message *n* is planned at `start + n / rate`, whatever happened to the messages before it. A late sender
//! sends what is overdue at once and never skips a number, so a stall of the sender shows as lateness and not as a
//! quiet pause (coordinated omission: see the README of wrk2). Waiting is a sleep until shortly before the time and a
//! spin for the rest, because timers wake late by tens of microseconds; the price is up to [`SPIN_NS`] of CPU per
//! message, all of one CPU above some 12,000 messages per second.

use linux::sys::clock;
use record::spec::TestSpec;
use record::traffic::Schedule;
use record::{Histogram, Latency};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The last part of a wait is spun, not slept.
pub const SPIN_NS: u64 = 80_000;

/// A sender that is late gives the rest of its plan up so long after the end of the test.
pub const GRACE_NS: u64 = 10_000_000;

/// A test ends at most so late before its sender counts as too slow.
const SLACK_NS: u64 = 1_000_000;

/// Longest sleep before looking whether the test was stopped.
const NAP_NS: u64 = 100_000_000;

/// Lateness at the 99th percentile that deserves a warning, in nanoseconds.
const LATE_NS: u64 = 200_000;

/// The plan of an open loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpenLoopPlan {
    start_ns: u64,
    gap_ns: f64,
    total: u64,
    /// When what is overdue is given up, `CLOCK_MONOTONIC` in nanoseconds.
    pub give_up_ns: u64,
}

impl OpenLoopPlan {
    /// A plan from `start_ns` on: `rate` messages per second for `duration_ms`, at most `count`. A duration of 0 with a
    /// count is no limit.
    pub fn new(start_ns: u64, rate: f64, duration_ms: u64, count: Option<u64>) -> Self {
        let in_time = || (duration_ms as f64 / 1e3 * rate).floor().max(1.0) as u64;
        let total = match count {
            Some(count) if duration_ms == 0 => count,
            Some(count) => count.min(in_time()),
            None => in_time(),
        };
        let give_up_ns = deadline_ns(start_ns, duration_ms, count).saturating_add(GRACE_NS);
        OpenLoopPlan { start_ns, gap_ns: 1e9 / rate, total, give_up_ns }
    }

    /// The plan that `spec` asks for, from `start_ns` on; none without a rate. `share` is the part of the rate and the count that
    /// this sender has of all.
    pub fn of(spec: &TestSpec, start_ns: u64, share: Share) -> Option<Self> {
        let rate = spec.rate?.messages_per_second(spec.message_size()) / f64::from(share.of.max(1));
        Some(OpenLoopPlan::new(start_ns, rate, spec.duration_ms, share.count(spec.count)))
    }

    /// The part of it that was to be kept by then: what was planned for later is nobody's failure when a sender is told to end early.
    pub fn until(self, now_ns: u64) -> Self {
        OpenLoopPlan { total: self.due(now_ns.saturating_sub(GRACE_NS)), ..self }
    }

    /// How many messages are planned before the time is over.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// When message `n` should leave.
    #[inline]
    pub fn planned(&self, n: u64) -> u64 {
        self.start_ns + (n as f64 * self.gap_ns) as u64
    }

    /// How many messages should have left at `now_ns`.
    #[inline]
    pub fn due(&self, now_ns: u64) -> u64 {
        let Some(since) = now_ns.checked_sub(self.start_ns) else { return 0 };
        let mut due = ((since as f64 / self.gap_ns) as u64).saturating_add(1).min(self.total);
        // The division may be off by one against `planned`, which is the meaning.
        while due > 0 && self.planned(due - 1) > now_ns {
            due -= 1;
        }
        while due < self.total && self.planned(due) <= now_ns {
            due += 1;
        }
        due
    }

    /// True when the test is over and the rest of the plan is given up.
    #[inline]
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns > self.give_up_ns
    }

    /// What was asked against what `attempted` messages between `begun_ns` and `ended_ns` made of it.
    pub fn outcome(&self, attempted: u64, begun_ns: u64, ended_ns: u64, lateness: &Histogram) -> Schedule {
        let span = ended_ns.saturating_sub(begun_ns) as f64;
        let planned_span = attempted.saturating_sub(1) as f64 * self.gap_ns;
        let window = span.max(planned_span) + self.gap_ns;
        let too_few = (attempted as f64) < 0.99 * self.total as f64;
        let too_long = span > planned_span * 1.01 + SLACK_NS as f64;
        Schedule {
            requested_per_second: Some(1e9 / self.gap_ns),
            achieved_per_second: attempted as f64 * 1e9 / window,
            lateness: lateness.summary(),
            generator_limited: too_few || too_long,
        }
    }
}

/// Whether an end of a test is to end before its time, and how.
#[derive(Debug, Default)]
pub struct Ending(AtomicU8);

impl Ending {
    /// Sends no more, and reads what is still on its way, as at the end of its time.
    pub fn finish(&self) {
        self.0.fetch_max(1, Relaxed);
    }

    /// Ends what runs, for good.
    pub fn stop(&self) {
        self.0.fetch_max(2, Relaxed);
    }

    /// Nothing more is to be sent.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.0.load(Relaxed) >= 1
    }

    /// Nothing more is to be done.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Relaxed) >= 2
    }
}

/// Which part of a test one of several senders does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Which one, from 0.
    pub index: u32,
    /// Of how many.
    pub of: u32,
}

impl Share {
    /// The only sender.
    pub const ALL: Share = Share { index: 0, of: 1 };

    /// Its part of a count: the parts of all add up exactly.
    pub fn count(self, count: Option<u64>) -> Option<u64> {
        let of = u64::from(self.of.max(1));
        count.map(|count| count / of + u64::from(u64::from(self.index) < count % of))
    }
}

/// When a test that begins at `start_ns` must end: a duration is the most that it may take, a count ends it earlier.
/// A count alone (duration 0) takes as long as it takes.
pub fn deadline_ns(start_ns: u64, duration_ms: u64, count: Option<u64>) -> u64 {
    match (count, duration_ms) {
        (Some(_), 0) => u64::MAX,
        _ => start_ns.saturating_add(duration_ms.saturating_mul(1_000_000)),
    }
}

/// A test while it runs.
#[derive(Debug, Clone, Copy)]
pub struct Running<'a> {
    /// What was asked for.
    pub spec: &'a TestSpec,
    /// When it began, `CLOCK_MONOTONIC` in nanoseconds.
    pub start_ns: u64,
    /// Set when it is to end early.
    pub stop: &'a Ending,
}

impl Running<'_> {
    /// When it must end ([`deadline_ns`]).
    pub fn deadline_ns(&self) -> u64 {
        deadline_ns(self.start_ns, self.spec.duration_ms, self.spec.count)
    }
}

/// The earlier of two times, of which 0 is none.
pub fn earlier(a_ns: u64, b_ns: u64) -> u64 {
    if a_ns == 0 || b_ns == 0 { a_ns.max(b_ns) } else { a_ns.min(b_ns) }
}

/// What must be said of a count that the time did not suffice for; none when nothing is missing.
pub fn shortfall_note(spec: &TestSpec, attempted: u64) -> Option<String> {
    let count = spec.count.filter(|count| attempted < *count && spec.duration_ms > 0)?;
    Some(format!(
        "{} of {count} messages were not sent within the duration of {} ms",
        count - attempted,
        spec.duration_ms
    ))
}

/// What came of a plan, or of sending without one: only what was done.
pub fn outcome(
    plan: Option<&OpenLoopPlan>,
    attempted: u64,
    (begun_ns, ended_ns): (u64, u64),
    lateness: &Histogram,
) -> Schedule {
    if let Some(plan) = plan {
        return plan.outcome(attempted, begun_ns, ended_ns, lateness);
    }
    let span = ended_ns.saturating_sub(begun_ns).max(1) as f64;
    let achieved_per_second = attempted as f64 * 1e9 / span;
    Schedule { achieved_per_second, lateness: lateness.summary(), ..Schedule::default() }
}

/// Waits until `at_ns`; returns the time it then is, or none when the test was over before.
#[inline]
pub fn wait_until(at_ns: u64, is_over: impl Fn() -> bool) -> Option<u64> {
    loop {
        let now = clock::monotonic_ns();
        if now >= at_ns {
            return Some(now);
        }
        if is_over() {
            return None;
        }
        if at_ns - now > SPIN_NS {
            clock::sleep_until((at_ns - SPIN_NS).min(now + NAP_NS));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// What a person must know about the lateness of a sender, if anything.
pub fn lateness_note(lateness: Option<&Latency>) -> Option<String> {
    let lateness = lateness.filter(|lateness| lateness.p99 > LATE_NS)?;
    let late = record::unit::time_ns(lateness.p99 as f64);
    // Of fewer than a hundred one is more than 1 %.
    let (who, its) = match lateness.count {
        ..100 => (format!("one of {} left {late}", record::unit::many(lateness.count, "message")), "its"),
        _ => (format!("1 % of the messages left {late} or more"), "their"),
    };
    Some(format!(
        "{who} after {its} time (timers and scheduling of the sending host); latency counts from the planned time and \
         contains it",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of three messages it said '1 %'.
    #[test]
    fn of_a_few_messages_one_is_late_and_of_many_a_part() {
        let note = |messages| {
            let mut lateness = Histogram::new();
            (0..messages).for_each(|_| lateness.record(2_000_000));
            lateness_note(lateness.summary().as_ref()).unwrap()
        };
        let (few, many) = (note(3), note(100));
        assert!(few.starts_with("one of 3 messages left ") && few.contains(" ms after its time ("), "{few}");
        assert!(many.starts_with("1 % of the messages left ") && many.contains(" ms or more after their "));
    }

    #[test]
    fn a_sender_in_time_is_not_limited_and_a_slow_one_is() {
        let plan = OpenLoopPlan::new(1_000, 10_000.0, 1_000, None);
        assert_eq!(plan.total(), 10_000);
        let none = Histogram::new();
        let good = plan.outcome(10_000, 1_000, plan.planned(9_999), &none);
        assert!(!good.generator_limited);
        assert!((good.achieved_per_second - 10_000.0).abs() < 1e-6);
        let few = plan.outcome(9_800, 1_000, plan.planned(9_999), &none);
        assert!(few.generator_limited && few.achieved_per_second < 9_900.0);
        let long = plan.outcome(10_000, 1_000, plan.planned(9_999) + 50_000_000, &none);
        assert!(long.generator_limited);
    }

    #[test]
    fn a_sender_that_was_told_to_end_kept_what_was_planned_until_then() {
        let plan = OpenLoopPlan::new(1_000, 1_000.0, 20_000, None);
        let limited = |attempted: u64, last: u64, end_ns: u64| {
            plan.until(end_ns)
                .outcome(attempted, 1_000, plan.planned(last), &Histogram::new())
                .generator_limited
        };
        assert!(!limited(2_010, 2_009, 2_012_000_000));
        assert!(!limited(1, 0, 50), "before the second was planned");
        assert!(limited(500, 499, 2_012_000_000), "it stood still when it was told");
    }

    #[test]
    fn a_short_count_with_a_jittery_timer_is_not_limited() {
        let plan = OpenLoopPlan::new(0, 10_000.0, 0, Some(10));
        assert!(!plan.outcome(10, 60_000, plan.planned(9) + 300_000, &Histogram::new()).generator_limited);
    }

    #[test]
    fn a_duration_is_the_most_that_a_count_may_take() {
        let plan = OpenLoopPlan::new(7, 1000.0, 500, Some(100_000));
        assert_eq!(plan.total(), 500);
        assert!(plan.planned(plan.total() - 1) < 7 + 500_000_000, "the last one leaves in time");
        assert!(plan.is_over(7 + 500_000_000 + GRACE_NS + 1));
        assert_eq!(OpenLoopPlan::new(0, 1000.0, 500, Some(20)).total(), 20, "the count ends it earlier");
        let endless = OpenLoopPlan::new(0, 1000.0, 0, Some(100_000));
        assert_eq!((endless.total(), endless.is_over(u64::MAX - 1)), (100_000, false));
        let spec = TestSpec { count: Some(10), duration_ms: 500, ..TestSpec::default() };
        assert!(shortfall_note(&spec, 4).unwrap().starts_with("6 of 10 messages were not sent"));
        assert_eq!(shortfall_note(&spec, 10), None);
    }

    #[test]
    fn a_stopped_wait_ends() {
        assert_eq!(wait_until(u64::MAX, || true), None);
        let at = clock::monotonic_ns() + 200_000;
        assert!(wait_until(at, || false).unwrap() >= at);
    }

    proptest! {
        /// The slow twin of `due`: count the planned times.
        #[test]
        fn due_counts_planned_times(start in 0u64..1_000_000, rate in 0.5f64..5e6, after in 0u64..3_000_000) {
            let plan = OpenLoopPlan::new(start, rate, 1, None);
            let now = start + after;
            let counted = (0..plan.total()).take_while(|&n| plan.planned(n) <= now).count() as u64;
            prop_assert_eq!(plan.due(now), counted);
        }

        #[test]
        fn shares_add_up(count in 0u64..1000, of in 1u32..65) {
            let sum: u64 = (0..of).map(|index| Share { index, of }.count(Some(count)).unwrap()).sum();
            prop_assert_eq!(sum, count);
        }
    }
}
