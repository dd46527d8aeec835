//! Latency distributions: recorded exactly enough, summarised honestly, mergeable.
//!
//! A thin owner of `hdrhistogram` (3 significant digits, 1 ns to about 73 minutes): it keeps every sample's bucket,
//! so a percentile is never a mean of percentiles. Recording costs some 10 ns.

use hdrhistogram::Histogram as Hdr;
use serde::{Deserialize, Serialize};

/// The highest latency that keeps its value, in nanoseconds; longer ones are counted as this one.
pub const MAX_NS: u64 = 1 << 42;

/// A distribution of latencies in nanoseconds.
#[derive(Debug, Clone)]
pub struct Histogram {
    hdr: Hdr<u64>,
    sum_ns: f64,
    sum_squared: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty distribution.
    pub fn new() -> Self {
        let hdr = Hdr::new_with_bounds(1, MAX_NS, 3).expect("constant bounds are valid");
        Histogram { hdr, sum_ns: 0.0, sum_squared: 0.0 }
    }

    /// Counts one latency.
    pub fn record(&mut self, latency_ns: u64) {
        self.hdr.saturating_record(latency_ns);
        let value = latency_ns as f64;
        self.sum_ns += value;
        self.sum_squared += value * value;
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        self.hdr.add(&other.hdr).expect("same bounds");
        self.sum_ns += other.sum_ns;
        self.sum_squared += other.sum_squared;
    }

    /// How many latencies were counted.
    pub fn count(&self) -> u64 {
        self.hdr.len()
    }

    /// The summary, or none when nothing was counted.
    pub fn summary(&self) -> Option<Latency> {
        let count = self.hdr.len();
        if count == 0 {
            return None;
        }
        let n = count as f64;
        let mean = self.sum_ns / n;
        let quantile = |q: f64| self.hdr.value_at_quantile(q).min(self.hdr.max());
        Some(Latency {
            count,
            min: self.hdr.min(),
            mean,
            mdev: (self.sum_squared / n - mean * mean).max(0.0).sqrt(),
            p50: quantile(0.50),
            p90: quantile(0.90),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: self.hdr.max(),
            buckets: self.buckets(),
        })
    }

    /// Non-empty buckets at about 2 % width: enough for a plot and small enough to keep in every record.
    fn buckets(&self) -> Vec<Bucket> {
        let mut buckets: Vec<Bucket> = Vec::new();
        for step in self.hdr.iter_recorded() {
            let (value, count) = (step.value_iterated_to(), step.count_at_value());
            match buckets.last_mut() {
                Some(last) if value as f64 <= last.from_ns as f64 * 1.02 => last.count += count,
                _ => buckets.push(Bucket { from_ns: value, count }),
            }
        }
        buckets
    }
}

/// One bucket of a distribution: from this latency to the next bucket's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Lower edge in nanoseconds.
    pub from_ns: u64,
    /// How many latencies fell into it.
    pub count: u64,
}

/// Summary of a latency distribution; every value in nanoseconds.
///
/// A percentile is the value that so many of the samples do not exceed (nearest rank, 3 significant digits).
/// `mdev` is the standard deviation, as ping prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many messages were timed.
    pub count: u64,
    /// Shortest.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile; with fewer than 1,000 samples it equals the maximum.
    pub p999: u64,
    /// Longest.
    pub max: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation.
    pub mdev: f64,
    /// The distribution, for plots.
    #[serde(default)]
    pub buckets: Vec<Bucket>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_recorded_has_no_summary() {
        assert_eq!(Histogram::new().summary(), None);
    }

    #[test]
    fn a_latency_beyond_the_range_is_kept_as_the_longest() {
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        assert_eq!(histogram.count(), 1);
    }

    proptest! {
        /// The slow twin: sort all samples and take the nearest rank.
        #[test]
        fn percentiles_agree_with_sorting(mut samples in prop::collection::vec(1u64..10_000_000_000, 1..400)) {
            let mut histogram = Histogram::new();
            samples.iter().for_each(|&sample| histogram.record(sample));
            let summary = histogram.summary().unwrap();
            samples.sort_unstable();
            for (quantile, got) in [(0.5, summary.p50), (0.9, summary.p90), (0.99, summary.p99)] {
                let rank = (quantile * samples.len() as f64).ceil().max(1.0) as usize - 1;
                let exact = samples[rank] as f64;
                prop_assert!((got as f64 - exact).abs() <= exact * 0.002, "{quantile}: {got} against {exact}");
            }
            prop_assert_eq!(summary.buckets.iter().map(|b| b.count).sum::<u64>(), samples.len() as u64);
        }

        #[test]
        fn merging_is_recording_both(a in prop::collection::vec(1u64..1_000_000, 0..50),
                                     b in prop::collection::vec(1u64..1_000_000, 1..50)) {
            let (mut left, mut right, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
            a.iter().for_each(|&v| { left.record(v); both.record(v) });
            b.iter().for_each(|&v| { right.record(v); both.record(v) });
            left.merge(&right);
            let (left, both) = (left.summary().unwrap(), both.summary().unwrap());
            prop_assert_eq!(left.p90, both.p90);
            prop_assert!((left.mean - both.mean).abs() < 1e-6 * both.mean);
        }
    }
}
