//! Which of many settings is the best, with so many measurements.
//!
//! **What.** Sequential halving (Karnin, Koren, Somekh, "Almost optimal exploration in multi-armed bandits", ICML 2013): all settings are measured
//! equally often, the worse half is left behind, and what is left of the measurements goes to the others, until one is left. So
//! the measurements go where settings are close to each other. Settings are measured in blocks, each once beside the lab as it is, so
//! what changes on the machine from block to block meets all alike.
//!
//! **Why combinations.** Two knobs may help only together (a buffer and what limits it), so each combination is a setting of its own where
//! there is time for all; else each change alone, and combinations that are drawn.
//!
//! **Price.** The figure of the best is the best of many, so it is too good by chance; only a trial with new measurements tells its effect.

use crate::stats::{SplitMix64, median};
use std::cmp::Reverse;
use std::collections::HashSet;

/// Which value each knob has: 0 as it is, n its n-th.
pub type Setting = Vec<usize>;

/// A setting that takes part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Candidate {
    /// Its values.
    pub setting: Setting,
    /// How much better it was than what it was measured beside, as a logarithm, of each block that could be used.
    pub scores: Vec<f64>,
    /// The round after which it was left behind, from 1.
    pub left_in: Option<u32>,
}

impl Candidate {
    /// Nothing is measured yet.
    pub fn new(setting: Setting) -> Candidate {
        Candidate { setting, ..Candidate::default() }
    }

    /// The median of its scores; none without one.
    pub fn score(&self) -> Option<f64> {
        median(&self.scores)
    }

    /// How many knobs it changes.
    pub fn changes(&self) -> usize {
        self.setting.iter().filter(|value| **value > 0).count()
    }

    /// What sorts the best first: measured before not measured, the better score, fewer changes.
    fn place(&self) -> (bool, Reverse<i64>, usize) {
        // A millionth of a difference is none.
        let score = self.score().map_or(i64::MIN, |score| (score * 1e6) as i64);
        (self.scores.is_empty(), Reverse(score), self.changes())
    }
}

/// How many settings the knobs have, of which each has so many values beside the one that it has.
pub fn possible(values: &[usize]) -> u64 {
    values.iter().fold(1, |all, values| all.saturating_mul(*values as u64 + 1))
}

/// How many settings there are at least: the lab as it is, and each change alone.
pub fn fewest(values: &[usize]) -> usize {
    1 + values.iter().sum::<usize>()
}

/// How many rounds of halving leave one of so many.
pub fn rounds(settings: usize) -> u32 {
    settings.max(1).next_power_of_two().ilog2()
}

/// The most settings that can each be measured once in a first round that has its share of so many measurements.
pub fn most_settings(measurements: usize) -> usize {
    let fits = |settings: &usize| settings * (rounds(*settings).max(1) as usize) <= measurements;
    (1..=measurements).take_while(fits).last().unwrap_or(0)
}

/// Settings to try, at most so many but [`fewest`] of them: the one as it is, each change alone, then combinations, drawn where there are too many.
pub fn settings(values: &[usize], most: usize, random: &mut SplitMix64) -> Vec<Setting> {
    let mut all = vec![vec![0; values.len()]];
    for (knob, count) in values.iter().enumerate() {
        all.extend((1..=*count).map(|value| {
            let mut alone = vec![0; values.len()];
            alone[knob] = value;
            alone
        }));
    }
    let most = most.min(usize::try_from(possible(values)).unwrap_or(usize::MAX));
    let mut known: HashSet<Setting> = all.iter().cloned().collect();
    if known.len() < most && most as u64 == possible(values) {
        all.extend((0..most).map(|number| numbered(number, values)).filter(|one| known.insert(one.clone())));
    }
    while known.len() < most {
        let drawn: Setting = values.iter().map(|count| random.below(count + 1)).collect();
        all.extend(known.insert(drawn.clone()).then_some(drawn));
    }
    all
}

/// The setting of that number, counting all of them.
fn numbered(mut number: usize, values: &[usize]) -> Setting {
    let mut digit = |count: &usize| {
        let value = number % (count + 1);
        number /= count + 1;
        value
    };
    values.iter().map(&mut digit).collect()
}

/// How much better the figures of a setting are than those of another, as a logarithm: the mean over the tests. `higher` says of which more
/// is better. None where one is missing.
pub fn goodness(than: &[Option<f64>], here: &[Option<f64>], higher: &[bool]) -> Option<f64> {
    let of = |((than, here), higher): ((&Option<f64>, &Option<f64>), &bool)| {
        let ratio = than.zip(*here).map(|(than, here)| (here / than).ln());
        ratio.filter(|ratio| ratio.is_finite()).map(|ratio| if *higher { ratio } else { -ratio })
    };
    let sum: Option<f64> = than.iter().zip(here).zip(higher).map(of).sum();
    sum.filter(|_| !higher.is_empty()).map(|sum| sum / higher.len() as f64)
}

/// Leaves the worse half of those that are still in behind; what was never measured first.
pub fn halve(candidates: &mut [Candidate], round: u32) {
    let mut left: Vec<&mut Candidate> = candidates.iter_mut().filter(|one| one.left_in.is_none()).collect();
    left.sort_by_key(|one| one.place());
    let half = left.len().div_ceil(2);
    left.into_iter().skip(half).for_each(|one| one.left_in = Some(round));
}

/// Sorts the best first: those that stayed longest, and of these the better.
pub fn rank(candidates: &mut [Candidate]) {
    candidates.sort_by_key(|one| (Reverse(one.left_in.unwrap_or(u32::MAX)), one.place()));
}

/// The setting with each of its changes taken out, one at a time.
pub fn without_each(setting: &Setting) -> Vec<Setting> {
    let changed = setting.iter().enumerate().filter(|(_, value)| **value > 0);
    let without = |(knob, _): (usize, &usize)| {
        let mut less = setting.clone();
        less[knob] = 0;
        less
    };
    changed.map(without).collect()
}

/// Of settings that were measured beside one with a change more, the one that is missed least. A change is missed where the setting was
/// worse without it by more than this difference in every block: noise alone does that in one of `2^blocks` cases at most.
pub fn least_missed(without: &[Candidate], same_within: f64) -> Option<&Candidate> {
    let is_missed = |one: &&Candidate| one.scores.iter().all(|score| *score <= -same_within.ln_1p());
    let not_missed = without.iter().filter(|one| !is_missed(one));
    not_missed.max_by(|a, b| a.score().unwrap_or(f64::MIN).total_cmp(&b.score().unwrap_or(f64::MIN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_settings_where_there_is_time_and_each_change_alone_in_any_case() {
        let mut random = SplitMix64::new(3);
        let all = settings(&[1, 2], 100, &mut random);
        assert_eq!(all[..4], [vec![0, 0], vec![1, 0], vec![0, 1], vec![0, 2]]);
        assert_eq!((all.len() as u64, all.iter().collect::<HashSet<_>>().len()), (possible(&[1, 2]), 6));
        let few = settings(&[3, 3, 3, 3], 20, &mut random);
        assert_eq!((few.len(), few.iter().collect::<HashSet<_>>().len()), (20, 20));
        assert!(few.iter().flatten().all(|value| *value <= 3));
        assert_eq!(settings(&[3, 3], 2, &mut random).len(), fewest(&[3, 3]));
        assert_eq!(settings(&[], 9, &mut random), [Setting::new()]);
        assert_eq!(possible(&[usize::MAX - 1; 3]), u64::MAX);
    }

    #[test]
    fn rounds_halve_until_one_is_left() {
        assert_eq!([1, 2, 3, 4, 5, 8, 9].map(rounds), [0, 1, 2, 2, 3, 3, 4]);
        for (measurements, most) in [(0, 0), (1, 1), (2, 2), (5, 2), (6, 3), (24, 8), (400, 64)] {
            assert_eq!(most_settings(measurements), most, "{measurements}");
        }
        let mut all: Vec<Candidate> = (0..5).map(|value| Candidate::new(vec![value])).collect();
        for round in 1..=rounds(5) {
            let left = all.iter_mut().filter(|one| one.left_in.is_none());
            left.for_each(|one| one.scores.push([0.0, 0.1, 0.3, -0.1, 0.2][one.setting[0]]));
            halve(&mut all, round);
        }
        rank(&mut all);
        let order: Vec<(usize, Option<u32>)> = all.iter().map(|one| (one.setting[0], one.left_in)).collect();
        assert_eq!(order, [(2, None), (4, Some(3)), (1, Some(2)), (0, Some(1)), (3, Some(1))]);
    }

    #[test]
    fn what_cannot_be_measured_is_left_behind_and_fewer_changes_win_a_tie() {
        let of = |setting: &[usize], scores: &[f64]| Candidate {
            setting: setting.to_vec(),
            scores: scores.to_vec(),
            left_in: None,
        };
        let mut all = [of(&[1, 1], &[0.5]), of(&[0, 1], &[0.5]), of(&[1, 0], &[]), of(&[0, 0], &[0.0])];
        halve(&mut all, 1);
        assert_eq!(all.each_ref().map(|one| one.left_in), [None, None, Some(1), Some(1)]);
        halve(&mut all, 2);
        assert_eq!(all[1].left_in, None);
    }

    #[test]
    fn more_bits_and_less_time_are_better() {
        let good = goodness(&[Some(100.0), Some(8.0)], &[Some(200.0), Some(4.0)], &[true, false]).unwrap();
        assert!((good - 2.0f64.ln()).abs() < 1e-12);
        assert_eq!(goodness(&[Some(1.0), None], &[Some(1.0), Some(1.0)], &[true, true]), None);
        assert_eq!(goodness(&[Some(0.0)], &[Some(1.0)], &[true]), None);
        assert_eq!(goodness(&[], &[], &[]), None);
    }

    #[test]
    fn a_change_that_is_not_missed_is_found() {
        assert_eq!(without_each(&vec![2, 0, 1]), [[0, 0, 1], [2, 0, 0]]);
        let of = |score: f64| Candidate { scores: vec![score], ..Candidate::default() };
        let [missed, hardly, unmeasured] = [of(-0.3), of(-0.01), Candidate::default()];
        assert_eq!(least_missed(&[missed.clone(), hardly.clone(), unmeasured.clone()], 0.02), Some(&hardly));
        assert_eq!(least_missed(&[missed.clone(), unmeasured], 0.02), None);
        let noisy = Candidate { scores: vec![-0.4, -0.2, 0.1, -0.3], ..Candidate::default() };
        assert_eq!(least_missed(&[missed, noisy.clone()], 0.02), Some(&noisy), "worse, but not each time");
    }

    /// A machine of which the truth is known: each knob has a factor, and one pair helps only together.
    struct Machine {
        factors: Vec<Vec<f64>>,
        noise: f64,
        random: SplitMix64,
    }

    impl Machine {
        fn truth(&self, setting: &Setting) -> f64 {
            let each = setting.iter().zip(&self.factors).map(|(value, factors)| factors[*value]);
            let together = if setting[0] == 1 && setting[1] == 1 { 1.4 } else { 1.0 };
            each.product::<f64>() * together
        }

        fn measured(&mut self, setting: &Setting, drift: f64) -> f64 {
            let uniform = self.random.below(2001) as f64 / 1000.0 - 1.0;
            self.truth(setting) * drift * (1.0 + self.noise * uniform)
        }
    }

    /// The search beside its slow twin, which knows the truth of every setting.
    #[test]
    fn the_best_of_all_settings_is_found_amid_noise() {
        let mut found = 0;
        for seed in 0..40 {
            let mut random = SplitMix64::new(seed);
            let values = [1, 1, 2, 2];
            let factors = vec![vec![1.0, 0.9], vec![1.0, 0.95], vec![1.0, 1.1, 0.7], vec![1.0, 1.0, 1.0]];
            let mut machine = Machine { factors, noise: 0.04, random: SplitMix64::new(seed + 1000) };
            let mut all: Vec<Candidate> =
                settings(&values, 1000, &mut random).into_iter().map(Candidate::new).collect();
            let rounds = rounds(all.len());
            let mut drift = 1.0;
            for round in 1..=rounds {
                for _ in 0..1 << (round - 1) {
                    drift *= 0.97;
                    let than = machine.measured(&vec![0; 4], drift);
                    for one in all.iter_mut().filter(|one| one.left_in.is_none()) {
                        let here = machine.measured(&one.setting, drift);
                        one.scores.extend(goodness(&[Some(than)], &[Some(here)], &[true]));
                    }
                }
                halve(&mut all, round);
            }
            rank(&mut all);
            let best = all.iter().map(|one| machine.truth(&one.setting)).fold(0.0, f64::max);
            found += u32::from(machine.truth(&all[0].setting) > best * 0.999);
        }
        assert!(found >= 36, "the best was found in {found} of 40 searches");
    }
}
