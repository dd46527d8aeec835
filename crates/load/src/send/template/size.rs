//! Sizes of frames: bytes from the destination address to the last byte before the FCS.
//!
//! **One convention everywhere in pathlab: without FCS.** The shortest Ethernet frame is 60, the longest of a link with
//! MTU 1500 is 1514. RFC 2544 counts the FCS (64 … 1518): write `size 64 fcs` for its sizes; they become 60 … 1514.

use super::value::mix;
use std::fmt;

/// How sizes are chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Size {
    /// All the same.
    Fixed(usize),
    /// One after the other, both included, then from the start again.
    Range(usize, usize),
    /// Any of them, by the seed.
    Random(usize, usize),
    /// Sizes with their weights, mixed evenly: every run of (sum of weights) frames has each size as often as its weight
    /// says.
    Mix(Vec<(usize, usize)>),
}

/// "Simple IMIX" as test equipment has it: 7 : 4 : 1 of 64, 570 and 1518 bytes with FCS, here without. RFC 6985 (IMIX
/// Genome) tells why a mix must be written down with its sizes: there are several of that name.
pub const IMIX: [(usize, usize); 3] = [(60, 7), (566, 4), (1514, 1)];

/// More weights than this would be no mix that anybody can look at.
pub const MAX_WEIGHTS: usize = 4096;

impl Size {
    /// The mix named `imix`.
    pub fn imix() -> Size {
        Size::Mix(IMIX.to_vec())
    }

    /// Every different size, ascending.
    pub fn all(&self) -> Vec<usize> {
        match self {
            Size::Fixed(size) => vec![*size],
            Size::Range(from, to) | Size::Random(from, to) => (*from..=*to).collect(),
            Size::Mix(mix) => {
                let mut all: Vec<usize> = mix.iter().map(|(size, _)| *size).collect();
                all.sort_unstable();
                all.dedup();
                all
            }
        }
    }

    /// The same sizes, those below `shortest` made as long as that.
    pub fn at_least(&self, shortest: usize) -> Size {
        match self {
            Size::Fixed(size) => Size::Fixed(*size.max(&shortest)),
            Size::Range(from, to) => Size::Range(*from.max(&shortest), *to.max(&shortest)),
            Size::Random(from, to) => Size::Random(*from.max(&shortest), *to.max(&shortest)),
            Size::Mix(mix) => {
                let mut longer: Vec<(usize, usize)> = vec![];
                for &(size, weight) in mix {
                    match longer.iter_mut().find(|(other, _)| *other == size.max(shortest)) {
                        Some((_, sum)) => *sum += weight,
                        None => longer.push((size.max(shortest), weight)),
                    }
                }
                Size::Mix(longer)
            }
        }
    }

    /// The sizes in the order of one round; none for random sizes.
    pub fn round(&self) -> Option<Vec<usize>> {
        match self {
            Size::Fixed(size) => Some(vec![*size]),
            Size::Range(from, to) => Some((*from..=*to).collect()),
            Size::Random(..) => None,
            Size::Mix(mix) => Some(spread(mix)),
        }
    }

    /// The size of frame `n`: the slow way, by the definition.
    pub fn at(&self, n: u64, seed: u64) -> usize {
        match self {
            Size::Random(from, to) => from + random_offset(n, seed, to - from),
            _ => {
                let round = self.round().expect("only random sizes have none");
                round[(n % round.len() as u64) as usize]
            }
        }
    }

    /// The mean size over many frames.
    pub fn mean(&self) -> f64 {
        match self {
            Size::Fixed(size) => *size as f64,
            Size::Range(from, to) | Size::Random(from, to) => (from + to) as f64 / 2.0,
            Size::Mix(mix) => {
                let frames: usize = mix.iter().map(|(_, weight)| weight).sum();
                mix.iter().map(|(size, weight)| size * weight).sum::<usize>() as f64 / frames as f64
            }
        }
    }
}

/// Which of `0..=span` frame `n` takes.
#[inline]
pub fn random_offset(n: u64, seed: u64, span: usize) -> usize {
    let wide = u128::from(mix(mix(seed ^ 0x7369_7a65) ^ mix(n))) * (span as u128 + 1);
    (wide >> 64) as usize
}

/// Spreads sizes over one round so that no size comes in a block: each step the size that is most behind its share.
fn spread(mix: &[(usize, usize)]) -> Vec<usize> {
    let total: usize = mix.iter().map(|(_, weight)| weight).sum();
    let mut credit = vec![0i64; mix.len()];
    let mut round = Vec::with_capacity(total);
    for _ in 0..total {
        for (credit, (_, weight)) in credit.iter_mut().zip(mix) {
            *credit += *weight as i64;
        }
        let best = (0..mix.len()).max_by_key(|&i| (credit[i], std::cmp::Reverse(i))).unwrap_or(0);
        credit[best] -= total as i64;
        round.push(mix[best].0);
    }
    round
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Fixed(size) => write!(f, "{size}"),
            Size::Range(from, to) => write!(f, "{from}..{to}"),
            Size::Random(from, to) => write!(f, "random({from}..{to})"),
            Size::Mix(mix) if *mix == IMIX => f.write_str("imix"),
            Size::Mix(mix) => {
                let all: Vec<String> = mix.iter().map(|(size, weight)| format!("{size}:{weight}")).collect();
                write!(f, "{{{}}}", all.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn imix_is_seven_four_one_and_not_in_blocks() {
        let round = Size::imix().round().unwrap();
        let count = |size| round.iter().filter(|other| **other == size).count();
        assert_eq!((count(60), count(566), count(1514), round.len()), (7, 4, 1, 12));
        assert!(!round.windows(3).any(|w| w == [566, 566, 566]), "{round:?}");
        assert!((Size::imix().mean() - 349.833).abs() < 0.001);
    }

    #[test]
    fn sizes_that_are_too_short_become_long_enough() {
        assert_eq!(Size::imix().at_least(78).to_string(), "{78:7,566:4,1514:1}");
        assert_eq!(Size::imix().at_least(600).to_string(), "{600:11,1514:1}");
        assert_eq!(Size::imix().at_least(60), Size::imix());
        assert_eq!(Size::Random(60, 64).at_least(62).to_string(), "random(62..64)");
    }

    proptest! {
        #[test]
        fn a_round_keeps_the_weights(mix in prop::collection::vec((1usize..2000, 1usize..9), 1..6)) {
            let round = Size::Mix(mix.clone()).round().unwrap();
            for (size, _) in &mix {
                let wanted: usize = mix.iter().filter(|(other, _)| other == size).map(|(_, w)| w).sum();
                prop_assert_eq!(round.iter().filter(|other| *other == size).count(), wanted);
            }
        }

        #[test]
        fn random_sizes_stay_inside(from in 14usize..100, more in 0usize..2000, n: u64, seed: u64) {
            let size = Size::Random(from, from + more).at(n, seed);
            prop_assert!((from..=from + more).contains(&size));
        }
    }
}
