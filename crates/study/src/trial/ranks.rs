//! Wilcoxon's signed ranks, exactly.
//!
//! **What.** An interval for the centre of differences that are symmetric about it: the averages of all pairs of differences (Walsh
//! averages) in order, cut at the rank that the exact distribution of the signed-rank sum gives (Hollander, Wolfe and Chicken,
//! *Nonparametric Statistical Methods*, 3.1 to 3.3).
//!
//! **Why.** Which of two arms went first in a pair is drawn, so under no effect either sign of a difference is as likely as the other,
//! whatever the noise is: a moment in which the machine was busy widens the interval and cannot make a finding. A mean and its
//! t interval promise that of normal noise only.
//!
//! **Price.** n²/2 averages, and a table of n²/2 probabilities; below six pairs nothing can be said at 95 %.

/// The probability of each sum of the ranks 1 … n of which every one is taken with probability ½.
fn distribution(n: usize) -> Vec<f64> {
    let mut chance = vec![1.0];
    for rank in 1..=n {
        let mut next = vec![0.0; chance.len() + rank];
        for (sum, p) in chance.iter().enumerate() {
            next[sum] += p / 2.0;
            next[sum + rank] += p / 2.0;
        }
        chance = next;
    }
    chance
}

/// How many averages are cut off at either end, so that the interval holds the centre with a probability of at least `1 − alpha`;
/// none when n differences cannot say so much.
fn cut(n: usize, alpha: f64) -> Option<usize> {
    let mut below = 0.0;
    let mut within = |p: &f64| {
        below += p;
        2.0 * below <= alpha
    };
    distribution(n).iter().take_while(|p| within(p)).count().checked_sub(1)
}

/// The averages of every difference with itself and every other, in order.
fn averages(differences: &[f64]) -> Vec<f64> {
    let with_rest = |(index, a): (usize, &f64)| {
        let a = *a;
        differences[index..].iter().map(move |b| f64::midpoint(a, *b)).collect::<Vec<_>>()
    };
    let mut all: Vec<f64> = differences.iter().enumerate().flat_map(with_rest).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The centre of the differences (Hodges and Lehmann) with the interval that misses it with a probability of at most `alpha`: low,
/// centre, high. Without bounds when they are too few to say so much; none without differences.
pub fn centre(differences: &[f64], alpha: f64) -> Option<(f64, f64, f64)> {
    let all = averages(differences);
    let half = all.len() / 2;
    let middle = match all.len() {
        0 => return None,
        n if n % 2 == 1 => all[half],
        _ => f64::midpoint(all[half - 1], all[half]),
    };
    Some(match cut(differences.len(), alpha) {
        Some(cut) => (all[cut], middle, all[all.len() - 1 - cut]),
        None => (f64::NEG_INFINITY, middle, f64::INFINITY),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_probabilities() {
        // Hollander, Wolfe and Chicken, table A.4: n = 8, P(T+ >= 33) = 0.020; n = 10, P(T+ >= 47) = 0.024.
        let upper = |n: usize, from: usize| distribution(n)[from..].iter().sum::<f64>();
        assert!((upper(8, 33) - 0.0195).abs() < 5e-4 && (upper(10, 47) - 0.0244).abs() < 5e-4);
        assert_eq!((cut(5, 0.05), cut(6, 0.05), cut(8, 0.01), cut(7, 0.01)), (None, Some(0), Some(0), None));
    }

    /// The slow twin: every way to give the ranks their signs.
    #[test]
    fn the_distribution_is_that_of_all_signs() {
        for n in 1..=12usize {
            let mut counted = vec![0u32; n * (n + 1) / 2 + 1];
            for signs in 0..1u32 << n {
                counted[(1..=n).filter(|rank| signs >> (rank - 1) & 1 == 1).sum::<usize>()] += 1;
            }
            for (sum, p) in distribution(n).iter().enumerate() {
                assert!((f64::from(counted[sum]) / f64::from(1u32 << n) - p).abs() < 1e-12);
            }
        }
    }

    proptest! {
        /// The interval leaves out 0 exactly when the signed-rank sum of the differences is too small or too large.
        #[test]
        fn the_interval_is_the_test_turned_round(
            differences in prop::collection::hash_set(-1000i32..1000, 6..14), shift in -500.25f64..500.25,
        ) {
            let shifted: Vec<f64> = differences.iter().map(|d| f64::from(*d) + shift.round() + 0.25).collect();
            let mut by_size = shifted.clone();
            by_size.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
            // Ties have no ranks; such draws are passed over.
            prop_assume!(by_size.windows(2).all(|two| two[0].abs() != two[1].abs()));
            let sum: usize = (1..).zip(&by_size).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
            let chance = distribution(shifted.len());
            let tail = |from: usize| chance[..=from].iter().sum::<f64>();
            let p = 2.0 * tail(sum).min(tail(chance.len() - 1 - sum));
            let (low, middle, high) = centre(&shifted, 0.05).unwrap();
            prop_assert!(low <= middle && middle <= high);
            prop_assert_eq!(p <= 0.05, low > 0.0 || high < 0.0, "p {}, {} to {}", p, low, high);
        }

        #[test]
        fn a_shift_of_all_shifts_the_interval(
            differences in prop::collection::vec(-100i32..100, 1..30), shift in -50i32..50,
        ) {
            let plain: Vec<f64> = differences.iter().map(|d| f64::from(*d)).collect();
            let moved: Vec<f64> = plain.iter().map(|d| d + f64::from(shift)).collect();
            let (a, b) = (centre(&plain, 0.05).unwrap(), centre(&moved, 0.05).unwrap());
            let same = |x: f64, y: f64| x == y || (x + f64::from(shift) - y).abs() < 1e-9;
            prop_assert!(same(a.0, b.0) && same(a.1, b.1) && same(a.2, b.2));
        }
    }
}
