//! Times of messages in words, for the commands that send.

use record::Latency;
use record::traffic::Schedule;
use record::unit::time_ns;

/// Whole nanoseconds in a unit that suits their size.
pub fn ns(ns: u64) -> String {
    time_ns(ns as f64)
}

/// How long something took, as one clause more.
pub fn spread(name: &str, times: &Latency) -> String {
    format!(", {name} p50 {} p99 {} max {}", ns(times.p50), ns(times.p99), ns(times.max))
}

/// How well a sender kept to its schedule, as clauses behind what it offered.
pub fn punctuality(schedule: &Schedule) -> String {
    let late = schedule.lateness.as_ref().map_or_else(String::new, |late| spread("late by", late));
    let limited = " (generator-limited: the sender could not keep to its schedule)";
    late + if schedule.generator_limited { limited } else { "" }
}
