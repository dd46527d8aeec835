//! Delays of the frames of a stream, counted in a few instructions.
//!
//! **What.** Buckets of three significant digits, as those of [`record::Histogram`], which they become in the end; sums are
//! exact. **Why.** A capture records one delay for each frame. Here that is a shift and an addition, in the caller's loop;
//! there it is two calls with checks for what cannot happen here (some 20 ns, a third of what a frame cost). Delays of a
//! busy path lie all over the buckets, so most of them are far from the processor: delays wait until there are
//! [`TOGETHER`], and are then fetched together instead of one after the other.
//! **Price.** 200 KiB for a stream, of which the kernel gives what is touched.

use record::{Histogram, Latency};

/// A delay is believed up to ten seconds: what is longer are two clocks.
pub const BELIEVED_NS: u64 = 10_000_000_000;

/// Values below `2 * HALF` have a bucket each; each power of two above is cut into `HALF` buckets.
const HALF: usize = 1024;
/// Bits of the largest value that has a bucket of its own.
const BITS: u32 = HALF.trailing_zeros() + 1;
const BUCKETS: usize = bucket(BELIEVED_NS) + 1;

/// Delays that are counted at once.
const TOGETHER: usize = 64;

/// The bucket of a value.
#[inline]
const fn bucket(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(BITS);
    shift as usize * HALF + (ns >> shift) as usize
}

/// The smallest value of a bucket.
const fn lowest(bucket: usize) -> u64 {
    let shift = (bucket / HALF).saturating_sub(1);
    ((bucket - shift * HALF) as u64) << shift
}

/// The delays of one stream.
#[derive(Debug, Clone)]
pub struct Delays {
    buckets: Box<[u64]>,
    sum_ns: u128,
    sum_squared: u128,
    /// Those that are not counted yet.
    waiting: [u64; TOGETHER],
    waits: usize,
}

impl Default for Delays {
    fn default() -> Self {
        let buckets = vec![0; BUCKETS].into_boxed_slice();
        Delays { buckets, sum_ns: 0, sum_squared: 0, waiting: [0; TOGETHER], waits: 0 }
    }
}

impl Delays {
    /// Counts a delay; false for one that is not believed.
    #[inline]
    pub fn record(&mut self, ns: u64) -> bool {
        if ns > BELIEVED_NS {
            return false;
        }
        self.waiting[self.waits % TOGETHER] = ns;
        self.waits += 1;
        if self.waits == TOGETHER {
            self.count();
        }
        true
    }

    /// Counts those that wait.
    #[inline(never)]
    fn count(&mut self) {
        for &ns in &self.waiting[..self.waits] {
            self.buckets[bucket(ns)] += 1;
        }
        for ns in self.waiting[..self.waits].iter().map(|&ns| u128::from(ns)) {
            self.sum_ns += ns;
            self.sum_squared += ns * ns;
        }
        self.waits = 0;
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Delays) {
        self.count();
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(ours, theirs)| *ours += theirs);
        self.sum_ns += other.sum_ns;
        self.sum_squared += other.sum_squared;
        (self.waiting, self.waits) = (other.waiting, other.waits);
    }

    /// What is written down; none when nothing was counted.
    pub fn summary(&mut self) -> Option<Latency> {
        self.count();
        let n = self.buckets.iter().sum::<u64>() as f64;
        let summary = self.histogram().summary()?;
        let mean = self.sum_ns as f64 / n;
        let mdev = (self.sum_squared as f64 / n - mean * mean).max(0.0).sqrt();
        // The histogram knows a delay by its bucket, the sums know it as it was.
        Some(Latency { mean, mdev, ..summary })
    }

    /// The same buckets with the same counts. A histogram takes one value at a time or another histogram, so the counts
    /// are made from their highest bit down: double everything, add those that have the bit.
    fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::new();
        let most = self.buckets.iter().copied().max().unwrap_or(0);
        for bit in (0..u64::BITS - most.leading_zeros()).rev() {
            histogram.merge(&histogram.clone());
            let with = self.buckets.iter().enumerate().filter(|(_, count)| *count >> bit & 1 == 1);
            with.for_each(|(bucket, _)| histogram.record(lowest(bucket)));
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_bucket_begins_where_the_one_before_ends() {
        for at in 0..BUCKETS {
            assert_eq!(bucket(lowest(at)), at);
            assert!(at == 0 || bucket(lowest(at) - 1) == at - 1);
        }
    }

    #[test]
    fn what_is_not_believed_is_not_counted() {
        let mut delays = Delays::default();
        assert!(delays.record(BELIEVED_NS) && !delays.record(BELIEVED_NS + 1) && !delays.record(u64::MAX));
        assert_eq!(delays.summary().map(|delays| delays.count), Some(1));
    }

    proptest! {
        /// The slow twin is the histogram itself.
        #[test]
        fn it_is_the_histogram_that_would_have_been(
            delays in prop::collection::vec((0u32..34, any::<u64>()), 0..300), split in 0usize..300
        ) {
            let values = delays.iter().map(|(bits, value)| (value % (1 << bits)).min(BELIEVED_NS));
            let (mut slow, mut parts) = (Histogram::new(), [Delays::default(), Delays::default()]);
            for (at, value) in values.enumerate() {
                slow.record(value);
                prop_assert!(parts[usize::from(at < split)].record(value));
            }
            let [mut quick, other] = parts;
            quick.merge(&other);
            match (quick.summary(), slow.summary()) {
                (Some(quick), Some(slow)) => {
                    prop_assert!((quick.mean - slow.mean).abs() <= 1e-9 * slow.mean);
                    prop_assert!((quick.mdev - slow.mdev).abs() <= 1e-6 * slow.mean.max(1.0));
                    let (mean, mdev) = (slow.mean, slow.mdev);
                    prop_assert_eq!(Latency { mean, mdev, ..quick }, slow);
                }
                (quick, slow) => prop_assert_eq!(quick, slow),
            }
        }
    }
}
