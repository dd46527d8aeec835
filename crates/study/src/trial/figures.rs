//! The figures of a test that a trial can compare.

use record::unit::{bits_per_s, messages_per_s, number, time_ns};
use record::{TestRecord, TestSpec, TrafficKind};

/// A figure of a test.
#[derive(Debug)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// What it is, in words.
    pub about: &'static str,
    /// The tests of which kinds have it.
    pub fits: fn(TrafficKind) -> bool,
    /// More of it is better.
    pub higher_is_better: bool,
    /// What a test has of it; none when it has none.
    pub of: fn(&TestRecord) -> Option<f64>,
    /// A value with its unit.
    pub text: fn(f64) -> String,
}

/// All of them.
pub const FIGURES: [Figure; 5] = [
    Figure {
        name: "throughput",
        about: "payload bits per second that arrived",
        fits: |_| true,
        higher_is_better: true,
        of: TestRecord::throughput,
        text: bits_per_s,
    },
    Figure {
        name: "rate",
        about: "messages per second that arrived",
        fits: |kind| !kind.is_bytes(),
        higher_is_better: true,
        of: TestRecord::message_rate,
        text: messages_per_s,
    },
    Figure {
        name: "p50",
        about: "the median of the latency",
        fits: |kind| !kind.is_bytes(),
        higher_is_better: false,
        of: |test| test.latency_ns.as_ref().map(|latency| latency.p50 as f64),
        text: time_ns,
    },
    Figure {
        name: "p99",
        about: "the 99th percentile of the latency",
        fits: |kind| !kind.is_bytes(),
        higher_is_better: false,
        of: |test| test.latency_ns.as_ref().map(|latency| latency.p99 as f64),
        text: time_ns,
    },
    Figure {
        name: "delivered",
        about: "the part of the offered messages that arrived",
        fits: TrafficKind::has_ledger,
        higher_is_better: true,
        of: |test| {
            let offered = test.offered.datagrams.max(test.offered.planned.unwrap_or(0));
            (offered > 0).then(|| test.received.unique as f64 / offered as f64)
        },
        text: |share| format!("{} %", number(share * 100.0)),
    },
];

/// The figure of that name.
pub fn named(name: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.name == name)
}

/// The figure that a test is for: the bits of a stream of bytes, the messages of a stream of messages (those that arrive, where it is asked
/// for no more than it can send), the time of a round trip.
pub fn usual(spec: &TestSpec) -> &'static Figure {
    let name = match spec.kind {
        kind if kind.is_bytes() => "throughput",
        kind if kind.is_round_trip() => "p50",
        _ if spec.rate.is_some() => "delivered",
        _ => "rate",
    };
    named(name).expect("it stands in the table")
}
