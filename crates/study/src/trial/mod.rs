//! Whether B is better than A: pairs that are judged as they come.
//!
//! **What.** A trial measures A and B in pairs, each pair in an order that is drawn. After some numbers of pairs that are fixed before
//! ([`StoppingRule::looks`]) the effect, B's figure as a multiple of A's, gets an interval ([`ranks`]). The trial ends when the interval leaves out 1
//! (*changed*), when all of it lies within the difference that nobody minds (*same*), or with the last pair (*cannot tell*, and how
//! many more pairs would).
//!
//! **Why it may stop early.** Who looks again and again and stops at the first finding finds something in the end. Each look therefore has
//! its own share of the 5 % (Bonferroni's inequality: however the looks hang together, one of their intervals misses the true effect
//! with a probability of at most the sum of the shares), so the interval that is printed holds at whichever look the trial ended.
//!
//! **Price.** Wider intervals than those of one look: at 40 pairs by a fifth. The effect is the same for all of a run: an arm that is better in its
//! first minute and worse later has no such effect.

pub mod aspects;
pub mod decision;
pub mod expected;
pub mod figures;
pub mod ranks;
pub mod search;
pub mod text;

use crate::stats::{CONFIDENCE, Estimate};
use record::case::Expectation;
use record::trial::{Effect, TrialPair, TrialTest, TrialVerdict};

/// Each look comes when there are so many times the pairs of the one before.
const STEP: f64 = 1.5;
/// The logarithm of a larger ratio is this one: a part of 2e-9, which no test has messages enough for.
const MOST_LOG: f64 = 20.0;
/// The most looks.
const MOST_LOOKS: usize = 5;

/// When a trial is looked at, and what is the same.
#[derive(Debug, Clone, PartialEq)]
pub struct StoppingRule {
    /// Numbers of pairs at which it is judged, rising; the last one ends it.
    pub looks: Vec<usize>,
    /// Effects from `1 / (1 + same_within)` to `1 + same_within` are no difference.
    pub same_within: f64,
    /// What the trial is to show, or the contrary; none: whether there is a difference.
    pub expected: Option<Expectation>,
}

impl StoppingRule {
    /// The rule for at most so many pairs. The first look is where a finding is possible at all.
    pub fn new(most_pairs: usize, same_within: f64) -> StoppingRule {
        let looks = |many: usize| -> Vec<usize> {
            let back = |look: u32| (most_pairs as f64 / STEP.powi(look as i32)).round() as usize;
            (0..many as u32).rev().map(back).collect()
        };
        let possible = |looks: &Vec<usize>| {
            let first = i32::try_from(looks[0]).unwrap_or(i32::MAX);
            2.0 * 0.5f64.powi(first) <= (1.0 - CONFIDENCE) / looks.len() as f64
        };
        let all = (1..=MOST_LOOKS).rev().map(looks).find(possible);
        let looks = all.unwrap_or_else(|| vec![most_pairs]);
        StoppingRule { looks, same_within, expected: None }
    }

    /// The rule that goes on until this is shown, or the contrary.
    #[must_use]
    pub fn until(self, expected: Expectation) -> StoppingRule {
        StoppingRule { expected: Some(expected), ..self }
    }

    /// The share of the error of each look.
    fn alpha(&self) -> f64 {
        (1.0 - CONFIDENCE) / self.looks.len() as f64
    }

    /// The effect of these pairs with the interval of one look; none without a pair of which a figure is positive.
    pub fn effect(&self, pairs: &[TrialPair]) -> Option<Estimate> {
        let logs = logs(pairs);
        let (low, value, high) = ranks::centre(&logs, self.alpha())?;
        Some(Estimate { value: value.exp(), low: low.exp(), high: high.exp(), samples: logs.len() })
    }

    /// The verdict of the pairs so far, of a figure of which more is better or not; none when it is no time to look, or to go on.
    pub fn judge(&self, pairs: &[TrialPair], higher_is_better: bool) -> Option<TrialVerdict> {
        let usable = logs(pairs).len();
        let last = pairs.len() >= self.looks.last().copied().unwrap_or(0);
        if !last && !self.looks.contains(&pairs.len()) {
            return None;
        }
        let Some(effect) = self.effect(pairs) else {
            return last.then_some(TrialVerdict::CannotTell { more_pairs: None });
        };
        let difference = self.difference(effect);
        let is_settled = match self.expected {
            None => difference.is_some(),
            Some(expected) => expected::shown(expected, bounded(effect), higher_is_better).is_some(),
        };
        let open = || TrialVerdict::CannotTell { more_pairs: self.more_pairs(effect, usable) };
        (is_settled || last).then(|| difference.unwrap_or_else(open))
    }

    /// Whether there is a difference; none when neither is shown.
    fn difference(&self, effect: Estimate) -> Option<TrialVerdict> {
        let bound = 1.0 + self.same_within;
        match () {
            () if effect.low > 1.0 / bound && effect.high < bound => Some(TrialVerdict::Same),
            () if effect.low > 1.0 || effect.high < 1.0 => Some(TrialVerdict::Changed),
            () => None,
        }
    }

    /// Puts the effect of a test's pairs, and the verdict, where it is time for one, into its record.
    pub fn conclude(&self, test: &mut TrialTest) {
        test.effect = self.effect(&test.pairs).map(bounded);
        test.verdict = self.judge(&test.pairs, test.higher_is_better);
    }

    /// How many more pairs would tell, if they vary as these: an interval narrows with the square root of their number. None when nothing
    /// is known of its width.
    fn more_pairs(&self, effect: Estimate, pairs: usize) -> Option<u64> {
        let half = (effect.high.ln() - effect.low.ln()) / 2.0;
        let (away, bound) = (effect.value.ln().abs(), self.same_within.ln_1p());
        let wanted = away.max(bound - away);
        let all = pairs as f64 * (half / wanted).powi(2);
        (half.is_finite() && wanted > 0.0).then(|| (all.ceil() as u64).saturating_sub(pairs as u64).max(1))
    }
}

/// An effect with the bounds that it has.
fn bounded(effect: Estimate) -> Effect {
    let bound = |value: f64| value.is_finite().then_some(value).filter(|value| *value > 0.0);
    Effect { value: effect.value, low: bound(effect.low), high: bound(effect.high) }
}

/// The ratios of pairs as logarithms. One in which nothing arrived in one arm is as extreme as can be, for ranks need no more; one in which
/// nothing arrived in either tells nothing.
fn logs(pairs: &[TrialPair]) -> Vec<f64> {
    let usable = pairs.iter().filter(|pair| pair.a > 0.0 || pair.b > 0.0);
    usable.map(|pair| (pair.b / pair.a).ln().clamp(-MOST_LOG, MOST_LOG)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::SplitMix64;

    fn pair(a: f64, b: f64) -> TrialPair {
        TrialPair { a, b, ..TrialPair::default() }
    }

    #[test]
    fn looks_begin_where_a_finding_is_possible() {
        assert_eq!(StoppingRule::new(40, 0.02).looks, [8, 12, 18, 27, 40]);
        assert_eq!(StoppingRule::new(20, 0.02).looks, [9, 13, 20]);
        assert_eq!(StoppingRule::new(6, 0.02).looks, [6]);
        assert_eq!(StoppingRule::new(5, 0.02).looks, [5], "five pairs can tell nothing at 95 %");
    }

    #[test]
    fn each_verdict_is_given() {
        let rule = StoppingRule::new(12, 0.05);
        assert_eq!(rule.looks, [8, 12]);
        let noisy = |factor: f64, spread: f64, pairs: u32| -> Vec<TrialPair> {
            (0..pairs)
                .map(|n| pair(100.0, 100.0 * factor * (1.0 + spread * f64::from(n % 5) - 2.0 * spread)))
                .collect()
        };
        assert_eq!(rule.judge(&noisy(1.1, 0.01, 7), true), None, "no time to look");
        assert_eq!(rule.judge(&noisy(1.1, 0.01, 8), true), Some(TrialVerdict::Changed));
        assert_eq!(rule.judge(&noisy(0.9, 0.01, 8), true), Some(TrialVerdict::Changed));
        assert_eq!(rule.judge(&noisy(1.0, 0.01, 8), true), Some(TrialVerdict::Same));
        assert_eq!(
            rule.judge(&noisy(1.01, 0.0, 8), true),
            Some(TrialVerdict::Same),
            "a difference that nobody minds"
        );
        assert_eq!(rule.judge(&noisy(1.0, 0.1, 8), true), None);
        let Some(TrialVerdict::CannotTell { more_pairs: Some(more) }) =
            rule.judge(&noisy(1.0, 0.1, 12), true)
        else {
            panic!("{:?}", rule.judge(&noisy(1.0, 0.1, 12), true))
        };
        assert!((10..2000).contains(&more), "{more}");
        let nothing = vec![pair(0.0, 0.0); 12];
        assert_eq!(rule.judge(&nothing, true), Some(TrialVerdict::CannotTell { more_pairs: None }));
        assert_eq!(rule.effect(&nothing), None);
    }

    #[test]
    fn an_arm_in_which_nothing_arrives_is_worse_and_not_left_out() {
        let rule = StoppingRule::new(12, 0.05);
        let of = |lost: usize| -> Vec<TrialPair> {
            (0..12).map(|n| pair(1.0, if n < lost { 0.0 } else { 1.0 })).collect()
        };
        let all = rule.effect(&of(12)).unwrap();
        assert!(all.high < 1e-8 && all.low > 0.0, "{all:?}");
        assert_eq!(rule.judge(&of(12), true), Some(TrialVerdict::Changed));
        assert!(matches!(rule.judge(&of(4), true), Some(TrialVerdict::CannotTell { .. })), "not the same");
        let gained: Vec<TrialPair> = of(12).iter().map(|one| pair(one.b, one.a)).collect();
        let gained = rule.effect(&gained).unwrap();
        assert!(gained.low > 1e8);
        let words = [all, gained].map(|effect| text::percent(bounded(effect)));
        assert_eq!(words, ["-100.0 % (-100.0 … -100.0 %)", "+∞ % (+∞ … +∞ %)"]);
    }

    /// Trials with noise as machines have it: a factor that drifts and is common to both, noise of each, and moments of much noise.
    fn verdicts(trials: u32, factor: f64, rule: &StoppingRule) -> [u32; 3] {
        let mut random = SplitMix64::new(7);
        let mut uniform = || {
            let mut values: Vec<u32> = (0..100).collect();
            random.shuffle(&mut values);
            f64::from(values[0]) / 100.0
        };
        let mut found = [0; 3];
        for _ in 0..trials {
            let mut pairs = vec![];
            let verdict = loop {
                let drift = 1.0 + pairs.len() as f64 * 0.01;
                let mut one = |factor: f64| {
                    let burst = if uniform() < 0.05 { 0.5 } else { 1.0 };
                    factor * drift * burst * (1.0 + 0.1 * (uniform() - 0.5))
                };
                pairs.push(pair(one(1.0), one(factor)));
                if let Some(verdict) = rule.judge(&pairs, true) {
                    break verdict;
                }
            };
            found[match verdict {
                TrialVerdict::Changed => 0,
                TrialVerdict::Same => 1,
                TrialVerdict::CannotTell { .. } => 2,
            }] += 1;
        }
        found
    }

    #[test]
    fn nothing_is_found_where_nothing_is_and_a_tenth_is() {
        let rule = StoppingRule::new(40, 0.02);
        let [changed, ..] = verdicts(200, 1.0, &rule);
        assert!(changed <= 10, "{changed} of 200 trials without an effect");
        let [changed, same, _] = verdicts(100, 1.1, &rule);
        assert!(changed >= 90 && same == 0, "{changed} of 100 trials with one of a tenth");
    }
}
