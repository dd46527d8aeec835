//! When messages of a test passed the layers of its path: stamps as they were taken.
//!
//! **What.** [`LayerObservation`] has the messages that were chosen, each with its stamps in the order of time. What they mean (which layer took
//! how long, and whether the parts add up to what the application measured) is concluded elsewhere.
//!
//! **Why stamps and not durations.** A message whose stamps are not all there is seen to be so, and the same record makes a table, a figure and a
//! trace.
//!
//! **Price.** There with `run --layers` only ([docs/layers.md](../../../docs/layers.md) has the cost); at most [`MOST_MESSAGES`] are kept.

use serde::{Deserialize, Serialize};

/// Messages that are kept of a test. When there are more, about every second one is thrown away.
pub const MOST_MESSAGES: usize = 2_000;

/// 2³² divided by the golden ratio: multiples of it are spread evenly over 32 bits, and those of any period in the numbers, too.
pub const SPREAD: u32 = 0x9e37_79b1;

/// The largest 32-bit product of number and [`SPREAD`] of a message that is chosen when one of `every` is.
pub fn highest_chosen(every: u64) -> u32 {
    (u64::from(u32::MAX) / every.max(1)) as u32
}

/// Whether a message is chosen when one of `every` is. Not each whose number is a multiple: messages are sent in batches, and the first of
/// a batch waits for less than the others. What is chosen of `2 × every` is chosen of `every`.
pub fn is_chosen(sequence: u64, every: u64) -> bool {
    (sequence as u32).wrapping_mul(SPREAD) <= highest_chosen(every)
}

/// Where a message was when it got a stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StampPoint {
    /// The application made the system call that sends it.
    Called,
    /// Its frame was given to the queueing discipline of an interface.
    Queued,
    /// The driver of an interface took its frame.
    Started,
    /// The driver of an interface handed its frame on: to the backlog of a CPU, or to GRO.
    Arrived,
    /// A soft interrupt began to give its frame to the protocols.
    Polled,
    /// A socket told that it can be read.
    Delivered,
    /// The system call that received it returned.
    Returned,
}

/// A point of a node, and of an interface where the point is one of an interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StampPlace {
    /// The point.
    pub point: StampPoint,
    /// The node.
    pub node: String,
    /// The interface; empty for points of sockets and applications.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub interface: String,
}

/// One message and its stamps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampedMessage {
    /// Its number; of a stream over several connections the sender's port is above the lowest 32 bits.
    pub sequence: u64,
    /// When it was to leave, `CLOCK_MONOTONIC` in nanoseconds: what the application measures latency from. On a connection, whose messages do not say that, the
    /// begin of the system call that sent it.
    pub planned_ns: u64,
    /// Each stamp: the number of its place in [`LayerObservation::places`], and nanoseconds since `planned_ns`, in the order of time.
    pub stamps: Vec<(u32, i64)>,
}

/// What was seen of the layers in one test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerObservation {
    /// One of so many messages is in `messages`, by [`is_chosen`].
    pub every: u64,
    /// All places, in the order in which they were first seen.
    pub places: Vec<StampPlace>,
    /// The messages, in the order of their numbers.
    pub messages: Vec<StampedMessage>,
    /// Stamps that found no room.
    pub lost: u64,
    /// How often the programs ran that take the stamps.
    pub runs: u64,
    /// How long they ran, in nanoseconds, by what the kernel measured of some runs; none where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<u64>,
    /// How long the programs were there, in nanoseconds: longer than the traffic flowed. 0 in records that did not say it yet.
    #[serde(default)]
    pub window_ns: u64,
    /// What could not be seen, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// What was concluded: the latency by layer; none where no message had all its stamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<LayerSplit>,
}

/// The latency of a test by layer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerSplit {
    /// The parts in the order of the way; each begins where the one before it ends.
    pub parts: Vec<LayerPart>,
    /// Messages that have every stamp of the way.
    pub complete: u64,
    /// Chosen messages that have not, or went another way.
    pub incomplete: u64,
    /// The mean of the sums of the parts, in nanoseconds.
    pub sum_ns: f64,
    /// The mean that the application measured by itself, over all messages of the test, in nanoseconds; none where it measured none.
    pub measured_ns: Option<f64>,
    /// How far the two means may be apart without meaning anything, in nanoseconds.
    pub error_ns: f64,
}

/// The time between two stamps that follow each other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerPart {
    /// The layer: `application`, `send`, `qdisc`, `driver`, `softirq`, `forwarding`, `protocols`, `socket`, or several of them joined by `+` where
    /// a stamp between them does not exist.
    pub layer: String,
    /// Where: a node, an interface, or from one to the other.
    pub place: String,
    /// Mean over the complete messages, in nanoseconds; the means of all parts add up to `sum_ns`.
    pub mean_ns: f64,
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

impl LayerSplit {
    /// What the application measured beyond the parts, in nanoseconds: the way from the last stamp to its own clock, and what the choice of
    /// messages does.
    pub fn difference_ns(&self) -> Option<f64> {
        Some(self.measured_ns? - self.sum_ns)
    }

    /// Whether the parts are all of it, within the stated error; none where nothing was measured beside.
    pub fn adds_up(&self) -> Option<bool> {
        Some(self.difference_ns()?.abs() <= self.error_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// One of so many, at every place of a batch of any size; and half as many are some of them. The farthest of all: one of 20 at
        /// every 61st number is 133 of 100.
        #[test]
        fn as_many_are_chosen_as_were_asked_for_at_every_place_of_a_batch(every in 1u64..64, batch in 1u64..65, from in 0u64..1 << 40) {
            let batches = 200 * every;
            for place in 0..batch {
                let numbers = (0..batches).map(|number| from + number * batch + place);
                let (mut chosen, mut half) = (0, 0);
                for number in numbers.filter(|number| is_chosen(*number, every)) {
                    chosen += 1;
                    half += u32::from(is_chosen(number, 2 * every));
                }
                prop_assert!((150..=250).contains(&chosen), "{chosen} of {batches}");
                prop_assert!((60..=140).contains(&half), "{half} of {batches}");
            }
            prop_assert!((from..from + 9).all(|number| is_chosen(number, every) || !is_chosen(number, 2 * every)));
        }
    }
}
