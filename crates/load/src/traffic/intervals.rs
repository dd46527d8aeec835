//! Traffic over time, in bounded memory and without allocation.
//!
//! The list of intervals is made once. When a test outlives it, neighbours are merged and every interval is twice as
//! long from then on: a long test is told more coarsely, never wrongly. The median of an interval comes from buckets
//! of 1/8 of a power of two, so it is good to ±6 %; the median of merged intervals is the mean of theirs, weighted by
//! messages. The exact distribution of the whole test is kept elsewhere.

use record::Interval;

/// The most intervals that are kept.
const CAPACITY: usize = 4096;

/// The intervals of one end, or of one of its threads.
#[derive(Default)]
pub struct Intervals {
    begun: bool,
    start_ns: u64,
    length_ns: u64,
    done: Vec<Interval>,
    current: Interval,
    latencies: Buckets,
}

impl Intervals {
    /// Intervals for a test of `duration_ms`: 100 ms each, or 10 ms when the test is shorter than a second.
    pub fn for_duration(duration_ms: u64) -> Self {
        Self::new(if duration_ms < 1000 { 10_000_000 } else { 100_000_000 })
    }

    /// Intervals of `length_ns`.
    pub fn new(length_ns: u64) -> Self {
        Intervals { length_ns: length_ns.max(1), done: Vec::with_capacity(CAPACITY), ..Intervals::default() }
    }

    /// Sets the time that the first interval begins at; without it, that is the first message.
    pub fn begin(&mut self, at_ns: u64) {
        if !self.begun {
            self.begun = true;
            self.start_ns = at_ns;
        }
    }

    /// Counts messages at `now_ns`, which should not be before the last one (if it is, they count into the current
    /// interval).
    #[inline]
    pub fn add(&mut self, now_ns: u64, messages: u64, bytes: u64) {
        if !self.begun {
            self.begin(now_ns);
        }
        let at = now_ns.saturating_sub(self.start_ns);
        if at.saturating_sub(self.current.from_ns) >= self.length_ns {
            self.advance(at);
        }
        self.current.messages += messages;
        self.current.bytes += bytes;
    }

    /// Counts one message and its latency.
    #[inline]
    pub fn add_timed(&mut self, now_ns: u64, bytes: u64, latency_ns: u64) {
        self.add(now_ns, 1, bytes);
        self.latencies.record(latency_ns);
        self.current.latency_max_ns = self.current.latency_max_ns.max(latency_ns);
    }

    fn close(&mut self) {
        self.current.length_ns = self.length_ns;
        self.current.latency_p50_ns = self.latencies.median();
        self.latencies = Buckets::default();
        let next = Interval { from_ns: self.current.from_ns + self.length_ns, ..Interval::default() };
        self.done.push(std::mem::replace(&mut self.current, next));
    }

    #[cold]
    fn advance(&mut self, at: u64) {
        while at - self.current.from_ns >= self.length_ns {
            if self.done.len() == CAPACITY {
                self.coarsen();
                continue;
            }
            self.close();
            // Skip a silence longer than the list at once: it is all zeros and will be merged anyway.
            while (at - self.current.from_ns) / self.length_ns > (CAPACITY as u64) * 2 {
                self.coarsen();
            }
        }
    }

    /// Makes every interval twice as long. The current one, if it begins in the middle, takes its neighbour in.
    fn coarsen(&mut self) {
        if self.done.len() % 2 == 1 {
            self.current.latency_p50_ns = self.latencies.median();
            let last = self.done.pop().unwrap_or_default();
            self.current = merge(&last, &self.current);
        }
        for at in 0..self.done.len() / 2 {
            self.done[at] = merge(&self.done[2 * at], &self.done[2 * at + 1]);
        }
        self.done.truncate(self.done.len() / 2);
        self.length_ns *= 2;
        for interval in &mut self.done {
            interval.length_ns = self.length_ns;
        }
    }

    /// Adds the intervals of another thread that began at the same time.
    pub fn merge(&mut self, mut other: Intervals) {
        while self.length_ns < other.length_ns {
            self.coarsen();
        }
        while other.length_ns < self.length_ns {
            other.coarsen();
        }
        for interval in other.finish() {
            let at = (interval.from_ns / self.length_ns) as usize;
            let from_ns = self.current.from_ns;
            let mine = if interval.from_ns < from_ns { self.done.get_mut(at) } else { None };
            match mine {
                Some(mine) => *mine = merge(mine, &interval),
                None => {
                    self.add(self.start_ns + interval.from_ns, interval.messages, interval.bytes);
                    self.current.latency_max_ns = self.current.latency_max_ns.max(interval.latency_max_ns);
                }
            }
        }
    }

    /// All intervals, the last one as long as the others.
    pub fn finish(mut self) -> Vec<Interval> {
        if self.current.messages > 0 {
            self.close();
        }
        self.done
    }
}

/// One interval out of two; begin and length are the first's.
fn merge(a: &Interval, b: &Interval) -> Interval {
    let messages = a.messages + b.messages;
    let weighted = a.latency_p50_ns as f64 * a.messages as f64 + b.latency_p50_ns as f64 * b.messages as f64;
    Interval {
        from_ns: a.from_ns,
        length_ns: a.length_ns,
        bytes: a.bytes + b.bytes,
        messages,
        latency_p50_ns: (weighted / messages.max(1) as f64) as u64,
        latency_max_ns: a.latency_max_ns.max(b.latency_max_ns),
    }
}

/// Latencies of one interval: 8 buckets per power of two.
struct Buckets {
    counts: [u32; 512],
    total: u32,
}

impl Default for Buckets {
    fn default() -> Self {
        Buckets { counts: [0; 512], total: 0 }
    }
}

impl Buckets {
    #[inline]
    fn record(&mut self, value: u64) {
        let value = value.max(8);
        let exponent = 63 - value.leading_zeros();
        let mantissa = (value >> (exponent - 3)) & 7;
        self.counts[(exponent * 8) as usize + mantissa as usize] += 1;
        self.total += 1;
    }

    /// The middle of the bucket that the median is in; 0 when there is none.
    fn median(&self) -> u64 {
        let mut below = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            below += count;
            if count > 0 && below >= self.total.div_ceil(2) {
                let (exponent, mantissa) = (index as u32 / 8, index as u64 % 8);
                let edge = (8 + mantissa) << (exponent - 3);
                return edge + (1u64 << (exponent - 3)) / 2;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn silence_is_told_as_empty_intervals() {
        let mut intervals = Intervals::new(100);
        intervals.add(1_000, 1, 10);
        intervals.add(1_350, 2, 20);
        let told: Vec<_> = intervals.finish().iter().map(|i| (i.from_ns, i.messages, i.bytes)).collect();
        assert_eq!(told, [(0, 1, 10), (100, 0, 0), (200, 0, 0), (300, 2, 20)]);
    }

    #[test]
    fn a_long_test_is_told_coarsely_and_completely() {
        let mut intervals = Intervals::new(10);
        for at in 0..20_000u64 {
            intervals.add_timed(at * 10, 3, 100);
        }
        intervals.add(u64::MAX / 2, 1, 3);
        let told = intervals.finish();
        assert!(told.len() <= CAPACITY + 1);
        assert_eq!(told.iter().map(|i| i.messages).sum::<u64>(), 20_001);
        assert!(told.windows(2).all(|pair| pair[0].from_ns + pair[0].length_ns == pair[1].from_ns));
    }

    proptest! {
        #[test]
        fn two_threads_add_up(a in prop::collection::vec(0u64..5_000, 0..60),
                              b in prop::collection::vec(0u64..5_000, 0..60)) {
            let fill = |mut times: Vec<u64>| {
                times.sort_unstable();
                let mut intervals = Intervals::new(100);
                intervals.begin(0);
                times.iter().for_each(|&at| intervals.add(at, 1, at));
                intervals
            };
            let both = fill([a.clone(), b.clone()].concat()).finish();
            let mut merged = fill(a);
            merged.merge(fill(b));
            let plain = |list: Vec<Interval>| -> Vec<_> {
                list.iter().filter(|i| i.messages > 0).map(|i| (i.from_ns, i.messages, i.bytes)).collect()
            };
            prop_assert_eq!(plain(merged.finish()), plain(both));
        }

        #[test]
        fn the_median_is_within_a_bucket(mut values in prop::collection::vec(8u64..1_000_000_000_000, 1..100)) {
            let mut buckets = Buckets::default();
            values.iter().for_each(|&value| buckets.record(value));
            values.sort_unstable();
            let exact = values[values.len().div_ceil(2) - 1] as f64;
            prop_assert!((buckets.median() as f64 - exact).abs() <= exact * 0.07 + 1.0);
        }
    }
}
