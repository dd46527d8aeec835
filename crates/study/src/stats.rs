//! Medians with honest intervals.
//!
//! **What.** The median of a few repetitions, with the interval that the order statistics give for it: for `n` samples
//! the true median lies between the `k`-th smallest and the `k`-th largest with a probability that the binomial
//! distribution tells exactly, whatever the distribution of the samples. With fewer than six samples no such pair
//! reaches 95 %, so the interval is the range. Ratios of pairs are treated in logarithms.
//!
//! **Price.** Wide intervals for few samples; that is the point.

/// The probability that an [`Estimate`]'s interval is meant to have.
pub const CONFIDENCE: f64 = 0.95;

/// A value with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The median.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// How many samples.
    pub samples: usize,
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|sample| sample.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[half]),
        _ => Some(sorted[half - 1] / 2.0 + sorted[half] / 2.0),
    }
}

/// The middle of the finite samples; none when there are none.
pub fn median(samples: &[f64]) -> Option<f64> {
    middle(&sorted(samples))
}

/// Probability that the true median is between the `k`-th smallest and the `k`-th largest of `n` samples (`k` from 1):
/// `1 − 2·P(Binomial(n, ½) < k)`.
fn coverage(n: usize, k: usize) -> f64 {
    let mut term = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX)); // P(X = 0)
    let mut below = 0.0;
    for x in 0..k {
        below += term;
        term *= (n - x) as f64 / (x + 1) as f64;
    }
    1.0 - 2.0 * below
}

/// How far from either end of `n` samples the interval begins: 1, the range, where no rank reaches [`CONFIDENCE`].
fn rank(n: usize) -> usize {
    (1..=n.div_ceil(2)).rev().find(|&k| coverage(n, k) >= CONFIDENCE).unwrap_or(1)
}

/// The median with its interval by order statistics; none without samples.
pub fn estimate(samples: &[f64]) -> Option<Estimate> {
    let sorted = sorted(&samples[..samples.len().min(1000)]);
    let n = sorted.len();
    let value = middle(&sorted)?;
    let at = rank(n);
    Some(Estimate { value, low: sorted[at - 1], high: sorted[n - at], samples: n })
}

/// How much larger `b` is than `a`, pair by pair: the median ratio with its interval. Pairs that are not both
/// positive are left out.
pub fn ratio(pairs: &[(f64, f64)]) -> Option<Estimate> {
    let logs: Vec<f64> =
        pairs.iter().filter(|(a, b)| *a > 0.0 && *b > 0.0).map(|(a, b)| (b / a).ln()).collect();
    let logs = estimate(&logs)?;
    Some(Estimate { value: logs.value.exp(), low: logs.low.exp(), high: logs.high.exp(), ..logs })
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, good enough to draw pairs and to shuffle tests.
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator of that seed: the same seed gives the same draws on every machine.
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// Puts the values into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last + 1));
        }
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_coverages() {
        // Conover, Practical Nonparametric Statistics: n = 6 range 96.9 %, n = 10 second to ninth 97.9 %.
        assert!((coverage(6, 1) - 0.96875).abs() < 1e-12);
        assert!((coverage(10, 2) - 0.978_515_625).abs() < 1e-12);
    }

    #[test]
    fn few_samples_give_the_range() {
        let three = estimate(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((three.value, three.low, three.high), (2.0, 1.0, 3.0));
        assert!(coverage(5, rank(5)) < CONFIDENCE && coverage(6, rank(6)) >= CONFIDENCE);
        assert_eq!(estimate(&[]), None);
        assert_eq!(estimate(&[f64::NAN]), None);
    }

    /// The slow twin of the coverage: draw samples from a known distribution and count how often it holds.
    #[test]
    fn the_interval_holds_the_median_as_often_as_it_says() {
        let mut random = SplitMix64::new(1);
        for n in [6, 9, 15] {
            let mut held = 0;
            let promised = coverage(n, rank(n));
            for _ in 0..4000 {
                let samples: Vec<f64> =
                    (0..n).map(|_| (random.below(1 << 30) as f64 / f64::from(1 << 30)).powi(3)).collect();
                let found = estimate(&samples).unwrap();
                held += u32::from((found.low..=found.high).contains(&0.125));
            }
            assert!(
                (f64::from(held) / 4000.0 - promised).abs() < 0.02,
                "n {n}: {held} of 4000, promised {promised}"
            );
        }
    }

    proptest! {
        #[test]
        fn half_of_the_samples_are_on_each_side(samples in prop::collection::vec(-1e9f64..1e9, 1..80)) {
            let found = estimate(&samples).unwrap();
            let below = samples.iter().filter(|&&s| s < found.value).count();
            let above = samples.iter().filter(|&&s| s > found.value).count();
            prop_assert!(below * 2 <= samples.len() && above * 2 <= samples.len());
            prop_assert!(found.low <= found.value && found.value <= found.high);
            let outside = samples.iter().filter(|&&s| s < found.low).count();
            let exact: f64 = (0..=outside).map(|k| choose(samples.len(), k)).sum::<f64>() * 0.5f64.powi(samples.len() as i32);
            if samples.len() >= 6 && samples.iter().all(|s| samples.iter().filter(|t| *t == s).count() == 1) {
                let promised = coverage(samples.len(), rank(samples.len()));
                prop_assert!((1.0 - 2.0 * exact - promised).abs() < 1e-9);
                prop_assert!(promised >= CONFIDENCE);
            }
        }

        #[test]
        fn a_constant_factor_is_found(samples in prop::collection::vec(1e-3f64..1e6, 1..30), factor in 0.01f64..100.0) {
            let pairs: Vec<_> = samples.iter().map(|&s| (s, s * factor)).collect();
            let found = ratio(&pairs).unwrap();
            for value in [found.value, found.low, found.high] {
                prop_assert!((value / factor - 1.0).abs() < 1e-9);
            }
        }
    }

    fn choose(n: usize, k: usize) -> f64 {
        (0..k).fold(1.0, |value, i| value * (n - i) as f64 / (i + 1) as f64)
    }
}
