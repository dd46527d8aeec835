//! Who talks most: a table of fixed size that never forgets a big one.
//!
//! **What.** Space-Saving (Metwally, Agrawal, El Abbadi 2005) in sets: an address pair belongs to one set of
//! [`WAYS`] entries; a pair that finds its set full takes over the entry with the fewest bytes and starts with its count
//! as its error. **Why.** Memory and time are bounded whatever the traffic. **Why columns.** A set keeps its hashes, bytes,
//! frames and addresses each side by side: looking for a pair reads one line of hashes and the one pair that fits, and
//! looking for the smallest entry reads one line of bytes, where entries behind one another would be ten lines.
//! **Price.** A count may be too high, never too low, and each entry knows by how much at most; a pair that sent more than
//! the smallest entry of its set is in the table. The slow twin counts exactly.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SETS: usize = 512;
const WAYS: usize = 8;

/// Kind of IPv4 addresses.
pub const V4: u8 = 4;
/// Kind of IPv6 addresses.
pub const V6: u8 = 6;
/// Kind of hardware addresses.
pub const HARDWARE: u8 = 2;

/// 0 for equal ones.
#[inline]
pub fn unlike(a: u128, b: u128) -> u64 {
    (a ^ b) as u64 | ((a ^ b) >> 64) as u64
}

/// Both halves in one word, to make a hash of.
#[inline]
pub fn fold(address: u128) -> u64 {
    address as u64 ^ (address >> 64) as u64
}

/// Two addresses of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// [`V4`], [`V6`] or [`HARDWARE`].
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
            V4 | V6 => self.ip(address).to_string(),
            _ => address.to_be_bytes()[10..].iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":"),
        };
        (text(self.from), text(self.to))
    }

    /// One of both as an address of IP.
    pub fn ip(&self, address: u128) -> IpAddr {
        if self.kind == V4 { Ipv4Addr::from(address as u32).into() } else { Ipv6Addr::from(address).into() }
    }

    /// `==` in registers: comparing as memory what was just written as words stalls the processor.
    #[inline]
    pub fn is(&self, other: &Pair) -> bool {
        let kinds = u64::from(self.kind ^ other.kind);
        unlike(self.from, other.from) | unlike(self.to, other.to) | kinds == 0
    }

    /// Its set, and what tells it from most others there; never 0.
    #[inline]
    fn place(&self) -> (usize, u32) {
        let mixed = (fold(self.from) ^ fold(self.to).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed >> 40) as usize % SETS, (mixed >> 32) as u32 | 1)
    }
}

/// What is known of a pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TalkerEntry {
    /// Who.
    pub pair: Pair,
    /// Frames since it took its entry.
    pub frames: u64,
    /// At least its bytes.
    pub bytes: u64,
    /// By how much `bytes` may be too high.
    pub error: u64,
}

/// The entries of one set, by columns. An entry whose hash is 0 is free.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Set {
    hashes: [u32; WAYS],
    bytes: [u64; WAYS],
    frames: [u64; WAYS],
    errors: [u64; WAYS],
    pairs: [Pair; WAYS],
}

impl Set {
    /// All hashes are compared, whatever the first ones say: that is a few vector instructions and no guess.
    #[inline]
    fn find(&self, pair: &Pair, hash: u32) -> Option<usize> {
        let same = self.hashes.map(|known| u8::from(known == hash));
        let mut same = u64::from_le_bytes(same);
        while same != 0 {
            let way = same.trailing_zeros() as usize / 8 % WAYS;
            if self.pairs[way].is(pair) {
                return Some(way);
            }
            same &= same - 1;
        }
        None
    }

    fn entry(&self, way: usize) -> TalkerEntry {
        let (pair, frames) = (self.pairs[way], self.frames[way]);
        TalkerEntry { pair, frames, bytes: self.bytes[way], error: self.errors[way] }
    }

    /// The fewest bytes of an entry: what a pair that is not there may have sent.
    fn floor(&self) -> u64 {
        self.bytes.iter().copied().min().unwrap_or(0)
    }

    /// Gives the smallest entry to a pair that has none.
    fn take_over(&mut self, pair: Pair, hash: u32) -> usize {
        let (mut way, mut bytes) = (0, self.bytes[0]);
        for (other, &its) in self.bytes.iter().enumerate() {
            // Both are moved, nothing is jumped over.
            (way, bytes) = if its < bytes { (other, its) } else { (way, bytes) };
        }
        self.hashes[way] = hash;
        self.pairs[way] = pair;
        self.frames[way] = 0;
        self.errors[way] = bytes;
        way
    }
}

/// The table.
#[derive(Debug, Clone)]
pub struct Talkers {
    sets: Box<[Set]>,
}

impl Default for Talkers {
    fn default() -> Self {
        Talkers { sets: vec![Set::default(); SETS].into_boxed_slice() }
    }
}

impl Talkers {
    /// Counts frames of a pair.
    pub fn add(&mut self, pair: &Pair, frames: u64, bytes: u64) {
        let (place, hash) = pair.place();
        let set = &mut self.sets[place];
        let way = set.find(pair, hash).unwrap_or_else(|| set.take_over(*pair, hash));
        set.frames[way] += frames;
        set.bytes[way] += bytes;
    }

    fn set_of(&self, pair: &Pair) -> &Set {
        &self.sets[pair.place().0]
    }

    fn find(&self, pair: &Pair) -> Option<TalkerEntry> {
        let set = self.set_of(pair);
        set.find(pair, pair.place().1).map(|way| set.entry(way))
    }

    fn known(&self) -> impl Iterator<Item = Pair> {
        self.sets.iter().flat_map(|set| set.pairs).filter(|pair| pair.kind != 0)
    }

    /// The biggest of several tables together, biggest first.
    pub fn top(tables: &[&Talkers], count: usize) -> Vec<TalkerEntry> {
        let mut pairs: Vec<Pair> = tables.iter().flat_map(|table| table.known()).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut all: Vec<TalkerEntry> = pairs
            .into_iter()
            .map(|pair| {
                let mut sum = TalkerEntry { pair, ..TalkerEntry::default() };
                for table in tables {
                    // A pair that one table does not know may have sent there what the smallest of its set did.
                    let unknown = table.set_of(&pair).floor();
                    let entry = table.find(&pair);
                    let entry =
                        entry.unwrap_or(TalkerEntry { pair, frames: 0, bytes: unknown, error: unknown });
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
                all[random.usize(..tables)].add(&pair, 1, bytes);
            }
            let views: Vec<&Talkers> = all.iter().collect();
            let top = Talkers::top(&views, usize::MAX);
            for entry in &top {
                let truth = exact[&entry.pair];
                prop_assert!(entry.bytes >= truth && entry.bytes - entry.error <= truth, "{entry:?} {truth}");
            }
            let (biggest, bytes) = exact.iter().max_by_key(|(_, bytes)| **bytes).unwrap();
            let floor: u64 = views.iter().map(|table| table.set_of(biggest).floor()).sum();
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
