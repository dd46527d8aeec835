//! Who talks most: a table of fixed size that never forgets a big one.
//!
//! **What.** Space-Saving (Metwally, Agrawal, El Abbadi 2005) in sets: an address pair belongs to one set of
//! [`WAYS`] entries; a pair that finds its set full takes over the entry with the fewest bytes and starts with its count
//! as its error. **Why.** Memory and time are bounded whatever the traffic. **Price.** A count may be too high, never too
//! low, and each entry knows by how much at most; a pair that sent more than the smallest entry of its set is in the
//! table. The slow twin counts exactly.

use std::net::{Ipv4Addr, Ipv6Addr};

const SETS: usize = 512;
const WAYS: usize = 8;

/// Two addresses of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// 4 and 6: IP; 2: hardware addresses.
    pub kind: u8,
    /// Who sends.
    pub from: u128,
    /// To whom.
    pub to: u128,
}

impl Pair {
    /// Both addresses as text.
    pub fn texts(&self) -> (String, String) {
        let text = |address: u128| match self.kind {
            4 => Ipv4Addr::from(address as u32).to_string(),
            6 => Ipv6Addr::from(address).to_string(),
            _ => address.to_be_bytes()[10..].iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":"),
        };
        (text(self.from), text(self.to))
    }

    fn set(&self) -> usize {
        let fold = |address: u128| (address as u64) ^ ((address >> 64) as u64);
        let mixed = (fold(self.from) ^ fold(self.to).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize % SETS
    }
}

/// What is known of a pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry {
    /// Who.
    pub pair: Pair,
    /// Frames since it took its entry.
    pub frames: u64,
    /// At least its bytes.
    pub bytes: u64,
    /// By how much `bytes` may be too high.
    pub error: u64,
}

/// The table.
#[derive(Debug, Clone)]
pub struct Talkers {
    entries: Box<[Entry]>,
    /// Where the pair of the frame before is: frames come in trains.
    last: usize,
}

impl Default for Talkers {
    fn default() -> Self {
        Talkers { entries: vec![Entry::default(); SETS * WAYS].into_boxed_slice(), last: 0 }
    }
}

impl Talkers {
    /// Counts a frame of a pair.
    #[inline]
    pub fn add(&mut self, pair: Pair, bytes: u64) {
        if self.entries[self.last].pair != pair {
            self.last = self.place(pair);
        }
        let entry = &mut self.entries[self.last];
        entry.frames += 1;
        entry.bytes += bytes;
    }

    /// The entry of a pair, which takes over the smallest one if it has none.
    fn place(&mut self, pair: Pair) -> usize {
        let first = pair.set() * WAYS;
        let set = &mut self.entries[first..first + WAYS];
        if let Some(way) = set.iter().position(|entry| entry.pair == pair) {
            return first + way;
        }
        let way = (0..WAYS).min_by_key(|&way| set[way].bytes).unwrap_or(0);
        let bytes = set[way].bytes;
        set[way] = Entry { pair, frames: 0, bytes, error: bytes };
        first + way
    }

    /// The smallest count of a pair's set: what a pair that is not there may have sent.
    fn floor(&self, pair: Pair) -> u64 {
        let first = pair.set() * WAYS;
        self.entries[first..first + WAYS].iter().map(|entry| entry.bytes).min().unwrap_or(0)
    }

    fn find(&self, pair: Pair) -> Option<&Entry> {
        let first = pair.set() * WAYS;
        self.entries[first..first + WAYS].iter().find(|entry| entry.pair == pair)
    }

    fn known(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.pair.kind != 0)
    }

    /// The biggest of several tables together, biggest first.
    pub fn top(tables: &[&Talkers], count: usize) -> Vec<Entry> {
        let mut pairs: Vec<Pair> = tables.iter().flat_map(|table| table.known()).map(|e| e.pair).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut all: Vec<Entry> = pairs
            .into_iter()
            .map(|pair| {
                let mut sum = Entry { pair, ..Entry::default() };
                for table in tables {
                    // A pair that one table does not know may have sent there what the smallest of its set did.
                    let unknown = table.floor(pair);
                    let entry = table.find(pair).copied();
                    let entry = entry.unwrap_or(Entry { pair, frames: 0, bytes: unknown, error: unknown });
                    sum.frames += entry.frames;
                    sum.bytes += entry.bytes;
                    sum.error += entry.error;
                }
                sum
            })
            .collect();
        all.sort_by_key(|entry| (std::cmp::Reverse(entry.bytes), entry.pair));
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn counts_bracket_the_exact_ones(seed: u64, pairs in 1u64..60_000, tables in 1usize..4) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut exact: HashMap<Pair, u64> = HashMap::new();
            let mut all = vec![Talkers::default(); tables];
            for _ in 0..20_000 {
                // Few talk much, many a little.
                let which = (random.f64().powi(4) * pairs as f64) as u128;
                let pair = Pair { kind: 4, from: which & 0xfff, to: which };
                let bytes = random.u64(60..1514);
                *exact.entry(pair).or_default() += bytes;
                all[random.usize(..tables)].add(pair, bytes);
            }
            let views: Vec<&Talkers> = all.iter().collect();
            let top = Talkers::top(&views, usize::MAX);
            for entry in &top {
                let truth = exact[&entry.pair];
                prop_assert!(entry.bytes >= truth && entry.bytes - entry.error <= truth, "{entry:?} {truth}");
            }
            let (biggest, bytes) = exact.iter().max_by_key(|(_, bytes)| **bytes).unwrap();
            let floor: u64 = views.iter().map(|table| table.floor(*biggest)).sum();
            prop_assert!(*bytes <= floor || top.iter().any(|entry| entry.pair == *biggest));
        }
    }

    #[test]
    fn addresses_are_readable() {
        let pair = Pair { kind: 2, from: 0x0200_0000_0001, to: 0xffff_ffff_ffff };
        assert_eq!(pair.texts(), ("02:00:00:00:00:01".into(), "ff:ff:ff:ff:ff:ff".into()));
        assert_eq!(Pair { kind: 4, from: 0x0a00_0001, to: 1 }.texts().0, "10.0.0.1");
    }
}
