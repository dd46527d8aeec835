//! When each frame should leave.
//!
//! Three paces: as fast as the port takes them, evenly by a rate (optionally in bursts), or at the times of a capture. The
//! planned time of a frame never depends on the frames before it (open loop): who is late sends what is overdue at
//! once, and the lateness is recorded.

use crate::traffic::schedule::OpenLoopPlan;
use record::Rate;
use std::sync::Arc;

/// Bytes that a frame takes on the wire besides itself: preamble and start 8, FCS 4, gap 12 (IEEE 802.3).
pub const ON_THE_WIRE: usize = 24;

/// A rate as a flag takes it; none for as fast as possible.
pub type AskedRate = Option<Rate>;

/// Reads `max`, `100kpps`, `1gbit`.
///
/// # Errors
/// A sentence with examples.
pub fn read_rate(text: &str) -> Result<AskedRate, String> {
    if text == "max" { Ok(None) } else { text.parse().map(Some).map_err(|e| format!("{e}; or max")) }
}

/// Frames per second for frames of that mean length (without FCS).
pub fn frames_per_second(rate: Rate, mean: f64, on_the_wire: bool) -> f64 {
    match rate {
        Rate::MessagesPerSecond(rate) => rate,
        Rate::BitsPerSecond(rate) => {
            // A link pads what is shorter than the shortest frame.
            let bytes = if on_the_wire { mean.max(60.0) + ON_THE_WIRE as f64 } else { mean };
            rate / (8.0 * bytes.max(1.0))
        }
    }
}

/// The pace of one sender. Frames are its own, counted from 0.
#[derive(Debug, Clone)]
pub enum Pace {
    /// As fast as possible: so many frames, at most until then.
    Max {
        /// How many; none: until the time alone ends it.
        total: Option<u64>,
        /// When to stop, `CLOCK_MONOTONIC` in nanoseconds.
        until_ns: u64,
    },
    /// Bursts of so many frames, evenly.
    Even {
        /// The plan of the bursts.
        plan: OpenLoopPlan,
        /// Frames of each burst.
        burst: u64,
        /// How many frames.
        total: u64,
    },
    /// At these times.
    Times {
        /// When it begins.
        start_ns: u64,
        /// Nanoseconds from the begin, ascending: one round.
        offsets: Arc<Vec<u64>>,
        /// Nanoseconds from one round to the next.
        round_ns: u64,
        /// How many frames.
        total: u64,
        /// Time runs so many times as fast.
        speed: f64,
        /// When what is overdue is given up, `CLOCK_MONOTONIC` in nanoseconds.
        until_ns: u64,
    },
}

impl Pace {
    /// How many frames are planned before the time is over; none when only the time ends it.
    pub fn total(&self) -> Option<u64> {
        match self {
            Pace::Max { total, .. } => *total,
            Pace::Even { total, .. } | Pace::Times { total, .. } => Some(*total),
        }
    }

    /// When frame `k` should leave; none when there is no plan.
    #[inline]
    pub fn planned(&self, k: u64) -> Option<u64> {
        match self {
            Pace::Max { .. } => None,
            Pace::Even { plan, burst, .. } => Some(plan.planned(k / burst)),
            Pace::Times { start_ns, offsets, round_ns, speed, .. } => {
                let (round, place) = (k / offsets.len() as u64, k % offsets.len() as u64);
                let offset = round as f64 * *round_ns as f64 + offsets[place as usize] as f64;
                Some(start_ns + (offset / speed) as u64)
            }
        }
    }

    /// How many frames should have left at `now_ns`, of which `sent` have: at least that, and looking no further than
    /// `most` ahead.
    #[inline]
    pub fn due(&self, now_ns: u64, sent: u64, most: u64) -> u64 {
        match self {
            Pace::Max { .. } if self.is_over(now_ns) => sent,
            Pace::Max { total, .. } => (sent + most).min(total.unwrap_or(u64::MAX)),
            Pace::Even { plan, burst, total } => {
                (plan.due(now_ns) * burst).min(*total).min(sent + most).max(sent)
            }
            Pace::Times { total, .. } => {
                let mut due = sent;
                let end = (sent + most).min(*total);
                while due < end && self.planned(due).is_some_and(|at| at <= now_ns) {
                    due += 1;
                }
                due
            }
        }
    }

    /// True when the time is over, however many frames are left.
    #[inline]
    pub fn is_over(&self, now_ns: u64) -> bool {
        match self {
            Pace::Max { until_ns, .. } => now_ns >= *until_ns,
            Pace::Even { plan, .. } => plan.is_over(now_ns),
            Pace::Times { until_ns, .. } => now_ns > *until_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bits_are_counted_without_fcs_or_as_on_the_wire() {
        let rate = read_rate("1gbit").unwrap().unwrap();
        // The classic figure: 1 Gbit/s carries 1.488 million of the shortest frames (60 + 24 bytes).
        let wire = frames_per_second(rate, 60.0, true);
        assert!((wire - 1_488_095.2).abs() < 0.1, "{wire}");
        assert!((frames_per_second(rate, 125.0, false) - 1e6).abs() < 1e-6);
        assert_eq!(read_rate("max"), Ok(None));
        assert!(read_rate("fast").unwrap_err().contains("or max"));
    }

    #[test]
    fn rounds_of_a_capture_follow_each_other() {
        let offsets = Arc::new(vec![0, 10, 10, 40]);
        let pace =
            Pace::Times { start_ns: 1000, offsets, round_ns: 50, total: 8, speed: 0.5, until_ns: 2000 };
        let planned: Vec<u64> = (0..8).map(|k| pace.planned(k).unwrap()).collect();
        assert_eq!(planned, [1000, 1020, 1020, 1080, 1100, 1120, 1120, 1180]);
        assert_eq!((pace.due(1019, 0, 64), pace.due(1020, 1, 64), pace.due(9999, 0, 2)), (1, 3, 2));
        assert_eq!((pace.is_over(2000), pace.is_over(2001)), (false, true));
    }

    proptest! {
        #[test]
        fn due_counts_planned_times(rate in 10f64..1e7, burst in 1u64..9, total in 1u64..3000, after in 0u64..2_000_000, sent in 0u64..100) {
            let plan = OpenLoopPlan::new(500, rate / burst as f64, 0, Some(total.div_ceil(burst)));
            let pace = Pace::Even { plan, burst, total };
            let counted = (0..total).take_while(|&k| pace.planned(k).unwrap() <= 500 + after).count() as u64;
            let sent = sent.min(counted);
            prop_assert_eq!(pace.due(500 + after, sent, u64::MAX / 2), counted);
            prop_assert!(pace.due(500 + after, sent, 7) <= sent + 7);
        }
    }
}
