//! Distributions that the kernel counts for us: buckets in an array, read as they stand.
//!
//! **What.** [`index`] says in which of [`BUCKETS`] buckets a value is counted, [`range`] which values a bucket holds, and
//! [`Buckets`] is such an array with the exact sum, from which [`Buckets::summary`] makes a [`Distribution`].
//!
//! **Why not [`crate::Histogram`].** A program in the kernel counts with a few shifts and one addition, and gives an array. The
//! buckets are those of a log-linear histogram: single values up to 127, then 64 for each doubling.
//!
//! **Price.** Beyond 127 a percentile is the upper end of its bucket, at most 1/64 (1.6 %) above the true value; minimum and maximum
//! are the ends of theirs. The mean is exact. Values of 2^36 (69 s, in nanoseconds) and more are counted in the last bucket.

use crate::Delta;
use serde::{Deserialize, Serialize};

/// Buckets for each doubling, as a power of 2.
pub const SUB_BITS: u32 = 6;
/// The first value that is not counted as it is, as a power of 2.
pub const MOST_BITS: u32 = 36;
/// How many buckets there are.
pub const BUCKETS: usize = ((MOST_BITS - SUB_BITS + 1) as usize) << SUB_BITS;

/// The bucket of a value.
pub fn index(value: u64) -> usize {
    let value = value.min((1 << MOST_BITS) - 1);
    if value < 1 << SUB_BITS {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

/// The lowest and the highest value of a bucket.
pub fn range(index: usize) -> (u64, u64) {
    let shift = (index >> SUB_BITS).saturating_sub(1) as u32;
    let low = (index as u64 - (u64::from(shift) << SUB_BITS)) << shift;
    (low, low + (1 << shift) - 1)
}

/// Counts by bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Buckets {
    /// How many values each bucket has; buckets at the end may be left out.
    pub counts: Vec<u64>,
    /// The sum of the values.
    pub sum: u64,
    /// How many values the sum has. Where counting goes on while it is read, that may be a few others than the buckets have.
    pub summed: u64,
}

impl Buckets {
    /// Counts a value.
    pub fn record(&mut self, value: u64) {
        let index = index(value);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
        self.sum = self.sum.saturating_add(value);
        self.summed += 1;
    }

    /// What was counted after an earlier reading; none when a count ran backwards.
    pub fn since(&self, before: &Buckets) -> Option<Buckets> {
        let earlier = |index: usize| before.counts.get(index).copied().unwrap_or(0);
        let moved = |(index, &now): (usize, &u64)| Delta::of(earlier(index), now).known();
        let counts = self.counts.iter().enumerate().map(moved).collect::<Option<_>>()?;
        let summed = Delta::of(before.summed, self.summed).known()?;
        Some(Buckets { counts, sum: self.sum.checked_sub(before.sum)?, summed })
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        crate::delta::sum(self.counts.iter().copied())
    }

    /// The part of the values that are in buckets between these two, which count as a whole; none when nothing was counted.
    pub fn share_between(&self, low: u64, high: u64) -> Option<f64> {
        let (low, high) = (index(low), index(high));
        let within = self.counts.iter().take(high + 1).skip(low);
        let all = self.count();
        (all > 0).then(|| crate::delta::sum(within.copied()) as f64 / all as f64)
    }

    fn mean(&self) -> f64 {
        if self.summed == 0 { 0.0 } else { self.sum as f64 / self.summed as f64 }
    }

    /// The summary; none when nothing was counted.
    pub fn summary(&self) -> Option<Distribution> {
        let count = self.count();
        let first = self.counts.iter().position(|&count| count > 0)?;
        let last = self.counts.iter().rposition(|&count| count > 0)?;
        let at = |quantile: f64| {
            let rank = ((quantile * count as f64).ceil() as u64).clamp(1, count);
            let mut seen = 0u64;
            let reached = self.counts.iter().position(|&count| {
                seen = seen.saturating_add(count);
                seen >= rank
            });
            range(reached.unwrap_or(last)).1
        };
        Some(Distribution {
            count,
            min: range(first).0,
            mean: self.mean().clamp(range(first).0 as f64, range(last).1 as f64),
            p50: at(0.50),
            p99: at(0.99),
            max: range(last).1,
        })
    }
}

/// The summary of a distribution, in the unit of its values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many values there were.
    pub count: u64,
    /// The lowest; exact up to 127, else the lower end of its bucket.
    pub min: u64,
    /// The arithmetic mean, exact.
    pub mean: f64,
    /// Half of the values do not exceed this.
    pub p50: u64,
    /// 99 of 100 values do not exceed this.
    pub p99: u64,
    /// The highest; exact up to 127, else the upper end of its bucket.
    pub max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        assert_eq!(range(0), (0, 0));
        for index in 1..BUCKETS {
            assert_eq!(range(index).0, range(index - 1).1 + 1, "bucket {index}");
        }
        assert_eq!(range(BUCKETS - 1).1, (1 << MOST_BITS) - 1);
        assert_eq!((index(64), range(index(64))), (64, (64, 64)), "a full poll of 64 is one");
        assert_eq!((index(128), range(index(128))), (128, (128, 129)));
        assert_eq!(index(u64::MAX), BUCKETS - 1);
        assert_eq!(Buckets::default().summary(), None);
    }

    #[test]
    fn a_share_is_of_the_values_between_two() {
        let mut counted = Buckets::default();
        assert_eq!(counted.share_between(0, 5), None);
        [3, 5, 100, 5000].into_iter().for_each(|value| counted.record(value));
        let shares = [(0, 4), (0, 5), (6, 99), (100, u64::MAX), (9, 3)];
        let shares = shares.map(|(low, high)| counted.share_between(low, high).unwrap());
        assert_eq!(shares, [0.25, 0.5, 0.0, 0.5, 0.0]);
    }

    #[test]
    fn what_came_later_is_the_difference_and_nothing_runs_backwards() {
        let mut before = Buckets::default();
        before.record(7);
        let mut now = before.clone();
        now.record(7);
        now.record(100);
        let later = now.since(&before).unwrap();
        assert_eq!((later.count(), later.sum), (2, 107));
        assert_eq!(before.since(&now), None);
    }

    /// Defect B10 of other tools: a minimum that begins at 0 and stays there, and counting that ends after 500,000 values.
    #[test]
    fn b10_the_minimum_is_a_value_that_was_seen_and_counting_has_no_end() {
        let mut buckets = Buckets::default();
        for value in 0..600_000u64 {
            buckets.record(40 + value % 3);
        }
        let found = buckets.summary().unwrap();
        assert_eq!((found.count, found.min, found.max), (600_000, 40, 42));
    }

    proptest! {
        #[test]
        fn every_value_is_in_its_bucket(value in prop_oneof![0u64..5_000, 0..1u64 << MOST_BITS]) {
            let (low, high) = range(index(value));
            prop_assert!(low <= value && value <= high);
            prop_assert!((high - low) as f64 <= low as f64 / 64.0, "{low}..{high}");
        }

        /// The slow twin: sort all values and take the nearest rank.
        #[test]
        fn the_summary_agrees_with_sorting(
            mut values in prop::collection::vec(prop_oneof![0u64..64, 0u64..3_000_000], 1..300),
        ) {
            let mut buckets = Buckets::default();
            values.iter().for_each(|&value| buckets.record(value));
            let found = buckets.summary().unwrap();
            values.sort_unstable();
            let rank = |quantile: f64| values[(quantile * values.len() as f64).ceil() as usize - 1];
            prop_assert_eq!(found.count as usize, values.len());
            prop_assert_eq!(found.min, range(index(values[0])).0);
            prop_assert_eq!(found.max, range(index(values[values.len() - 1])).1);
            prop_assert_eq!((found.p50, found.p99), (range(index(rank(0.5))).1, range(index(rank(0.99))).1));
            let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
            prop_assert!((found.mean - mean).abs() < 1e-6 * mean.max(1.0));
        }
    }
}
