//! What the two ends of a test agree on before it, and what comes of it.
//!
//! The words that the protocol carries and every end reads: which end it is, how the clocks relate, the test with its
//! address and token; afterwards the ports and the two reports. How long a test lasts is here too, because each side waits
//! for the other by it.

use record::spec::TestSpec;
use record::traffic::EndReport;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndRole {
    /// The end that starts the traffic.
    Sender,
    /// The end that it goes to.
    Receiver,
}

impl EndRole {
    /// Both ends.
    pub const ALL: [EndRole; 2] = [EndRole::Sender, EndRole::Receiver];

    /// `sender` or `receiver`.
    pub fn name(self) -> &'static str {
        match self {
            EndRole::Sender => "sender",
            EndRole::Receiver => "receiver",
        }
    }

    /// The CPU that a test asks for at this end.
    pub fn cpu(self, spec: &TestSpec) -> Option<u32> {
        match self {
            EndRole::Sender => spec.sender_cpu,
            EndRole::Receiver => spec.receiver_cpu,
        }
    }
}

/// How the sender's clock reads on the receiver's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockRelation {
    /// Both ends are on one host: one clock, no error.
    #[default]
    Shared,
    /// Estimated over the control connection.
    Estimated {
        /// Receiver's clock minus sender's clock, in nanoseconds.
        offset_ns: i64,
        /// The true offset is at most so far from it.
        error_ns: u64,
    },
}

impl ClockRelation {
    /// What to add to the sender's time to get the receiver's.
    pub fn offset_ns(self) -> i64 {
        match self {
            ClockRelation::Shared => 0,
            ClockRelation::Estimated { offset_ns, .. } => offset_ns,
        }
    }

    /// What a person must know about one-way latencies.
    pub fn note(self) -> Option<String> {
        match self {
            ClockRelation::Shared => None,
            ClockRelation::Estimated { error_ns, .. } => Some(format!(
                "the ends have different clocks: one-way latency is known to ±{:.1} µs and no better",
                error_ns as f64 / 1e3
            )),
        }
    }
}

/// Everything that one end must know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Which end.
    pub role: EndRole,
    /// The test.
    pub spec: TestSpec,
    /// The address of the receiver.
    pub address: IpAddr,
    /// The receiver's port; 0 for the receiver itself, which chooses it, and for ping.
    pub port: u16,
    /// Marks the messages of this test.
    pub token: u8,
    /// How the clocks relate (used by the receiver).
    pub clock: ClockRelation,
}

/// Where the test's frames come from and go to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataPorts {
    /// The sender's UDP or TCP ports (one per connection); none for ping.
    pub sender: Vec<u16>,
    /// The receiver's UDP or TCP port; none for ping.
    pub receiver: Option<u16>,
    /// The identifier of the echo requests, ping only.
    pub icmp_id: Option<u16>,
}

/// What came of a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What the sender saw.
    pub sender: EndReport,
    /// What the receiver saw.
    pub receiver: EndReport,
    /// True when the path answered before the test.
    pub warm: bool,
    /// Where the frames came from and went to.
    pub ports: DataPorts,
    /// How the clocks of the ends relate.
    pub clock: ClockRelation,
}

/// How long a test should take at most, in nanoseconds: its duration, or as long as its count needs by the rate (with
/// `each_s` for every message of a closed loop), whichever is less.
fn count_ns(spec: &TestSpec, each_s: f64) -> u64 {
    let duration = spec.duration_ms.saturating_mul(1_000_000);
    let Some(count) = spec.count else { return duration };
    let each = spec.rate.map_or(each_s, |r| 1.0 / r.messages_per_second(spec.message_size()));
    let counted = (count as f64 * each * 1e9).min(86_400e9) as u64;
    if duration > 0 { counted.min(duration) } else { counted }
}

/// How long a test is expected to take, in milliseconds, for a progress bar: a closed loop with a count as if every
/// message took a tenth of a millisecond.
pub fn length_ms(spec: &TestSpec) -> u64 {
    (count_ns(spec, 1e-4) / 1_000_000).max(1)
}

/// How long a test may take, in nanoseconds: by its duration, its count and its rate, or with every reply lost.
pub fn longest_ns(spec: &TestSpec) -> u64 {
    const SLOWEST_S: f64 = 0.25;
    count_ns(spec, SLOWEST_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_the_most_that_a_count_may_take() {
        let spec = TestSpec { count: Some(10), duration_ms: 500, ..TestSpec::default() };
        assert_eq!(count_ns(&spec, 0.1), 500_000_000);
        assert_eq!(count_ns(&TestSpec { duration_ms: 0, ..spec.clone() }, 0.1), 1_000_000_000);
        assert_eq!(count_ns(&TestSpec { count: None, ..spec }, 0.1), 500_000_000);
    }
}
