//! Which probes of a table can hold a rule for a frame, before any of them is looked into.
//!
//! **What.** A [`Pruning`] has, for some parts of the key (addresses, ports, the protocol, a VLAN), small tables from a prefix of the part to a
//! set of probes: those that have a rule with that prefix. The sets of a part are united, with that of the probes that have a rule
//! which does not ask the part; those of all parts are intersected. What is left are the probes worth a look ("tuple pruning",
//! Srinivasan, Suri and Varghese, SIGCOMM 1999).
//!
//! **Why.** A firewall has hundreds of kinds of masks, and a frame can meet rules of a few of them only. The sets come from independent loads, which
//! overlap; a probe is a hash, a load, a comparison and jumps that nobody can predict, one after the other.
//!
//! **Price.** A probe may stand in a set in vain (two prefixes with one place, a rule that has gone): that costs a look and is never wrong.
//! For each rule and part a set, which is one to four words.

use crate::hash::MULTIPLIER;
use crate::key::{ETH_DST, ETH_SRC, IPV6_DST, IPV6_SRC, Key, NETWORK, PORTS, SUMMARY, VLAN_SHIFT, WordTest};
use crate::pages::Pages;
use std::collections::HashSet;

/// Probes from which on it is worth it.
const PROBES: usize = 6;
/// Words of the largest set. Probes behind the last bit share it.
pub const SET: usize = 4;
/// Places of the largest table, as a power of two.
const LARGEST: u32 = 15;
/// Bits of a prefix whose table has a place for each value; what is shorter stands in all places that it covers.
const SMALL: u32 = 8;

/// Parts of the key that can be asked: the word, and the prefixes of the part that have tables, the longest first.
const PARTS: &[(u8, &[u64])] = &[
    (NETWORK, &[0xffff_ffff << 32, 0xffff_ff00 << 32, 0xffff_0000 << 32]),
    (NETWORK, &[0xffff_ffff, 0xffff_ff00, 0xffff_0000]),
    (PORTS, &[0xffff << 16, 0xff00 << 16]),
    (PORTS, &[0xffff, 0xff00]),
    (PORTS, &[0xffff_ffff << 32]),
    (SUMMARY, &[0xff << 8]),
    (SUMMARY, &[0x1fff << VLAN_SHIFT]),
    (ETH_DST, &[u64::MAX >> 16]),
    (ETH_SRC, &[u64::MAX >> 16]),
    (IPV6_SRC, &[u64::MAX, u64::MAX << 16, u64::MAX << 32]),
    (IPV6_DST, &[u64::MAX, u64::MAX << 16, u64::MAX << 32]),
];

/// The parts that are looked at; none: every probe is looked into.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruning {
    /// In the order of [`PARTS`].
    pub parts: Vec<Part>,
    /// Words of a set: 1, 2 or 4.
    pub width: usize,
}

/// A part of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The word of the key.
    pub word: u8,
    /// Where the set is of the probes that have a rule which asks none of the prefixes.
    pub any: usize,
    /// A table for each prefix.
    pub tables: Vec<PrefixTable>,
}

/// The table of a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixTable {
    /// The bits of the word that choose a place.
    pub mask: u64,
    /// Where its first word is.
    pub at: usize,
    /// Its places are two to this power.
    pub bits: u32,
}

/// A set of probes, one bit each.
pub type Candidates = [u64; SET];

impl PrefixTable {
    /// Each value has a place of its own; else they are hashed.
    pub fn is_small(&self) -> bool {
        self.mask.count_ones() <= SMALL
    }

    fn place(&self, word: u64) -> u64 {
        let value = word & self.mask;
        if self.is_small() {
            value >> self.mask.trailing_zeros()
        } else {
            value.wrapping_mul(MULTIPLIER) >> (64 - self.bits)
        }
    }

    /// The places of a rule that asks these bits of the word; none when it asks too little.
    fn places(&self, test: &WordTest) -> Vec<u64> {
        let open = self.mask & !test.mask;
        if open == 0 {
            return vec![self.place(test.value)];
        }
        let is_prefix = open != self.mask && open >> open.trailing_zeros() == low(open.count_ones());
        let covered = 0..1u64 << if self.is_small() && is_prefix { open.count_ones() } else { 0 };
        let is_open = covered.end > 1 && open.trailing_zeros() == self.mask.trailing_zeros();
        let place = |value: u64| self.place(test.value | value << open.trailing_zeros());
        if is_open { covered.map(place).collect() } else { vec![] }
    }
}

/// So many ones.
fn low(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// The word of a set that a probe stands in, and its bit there.
pub fn bit(probe: usize, width: usize) -> (usize, u32) {
    let probe = probe.min(64 * width - 1);
    (probe / 64, probe as u32 % 64)
}

impl Pruning {
    /// For probes with rules that have these tests; its tables are taken from `pages`.
    pub fn build(probes: &[Vec<&[WordTest]>], pages: &mut Pages) -> Pruning {
        if probes.len() < PROBES {
            return Pruning::default();
        }
        let width = probes.len().div_ceil(64).next_power_of_two().min(SET);
        let useful = PARTS.iter().filter_map(|part| Part::new(part, probes, width, pages));
        let pruning = Pruning { parts: useful.collect(), width };
        for (index, rules) in probes.iter().enumerate() {
            rules.iter().for_each(|tests| pruning.note(index, tests, pages));
        }
        pruning
    }

    /// Notes that a probe has a rule with these tests.
    pub fn note(&self, probe: usize, tests: &[WordTest], pages: &mut Pages) {
        let (word, bit) = bit(probe, self.width.max(1));
        for part in &self.parts {
            for set in part.sets(tests, self.width) {
                let (old, new) = (pages.get(set + word), pages.get(set + word) | 1 << bit);
                // A page that programs share is copied when it is written.
                if new != old {
                    pages.set(set + word, new);
                }
            }
        }
    }

    /// The probes that can have a rule for the key; in plain Rust. The twin of the code.
    pub fn candidates(&self, key: &Key, pages: &Pages) -> Candidates {
        let mut all = [u64::MAX; SET];
        for part in &self.parts {
            let word = key[usize::from(part.word)];
            for (index, all) in all.iter_mut().enumerate().take(self.width) {
                let set = |table: &PrefixTable| {
                    pages.get(table.at + table.place(word) as usize * self.width + index)
                };
                *all &= part.tables.iter().fold(pages.get(part.any + index), |sets, table| sets | set(table));
            }
        }
        all
    }

    /// Whether a probe is among them.
    pub fn has(&self, candidates: &Candidates, probe: usize) -> bool {
        let (word, bit) = bit(probe, self.width.max(1));
        self.parts.is_empty() || candidates[word] >> bit & 1 == 1
    }
}

impl Part {
    /// The part, if enough probes have no rule but such that ask it.
    fn new(
        &(word, prefixes): &(u8, &[u64]),
        probes: &[Vec<&[WordTest]>],
        width: usize,
        pages: &mut Pages,
    ) -> Option<Part> {
        let tables: Vec<PrefixTable> =
            prefixes.iter().map(|&mask| PrefixTable { mask, at: 0, bits: LARGEST }).collect();
        let mut part = Part { word, any: 0, tables };
        let (count, mut used, mut asking) = (probes.len(), vec![HashSet::new(); prefixes.len()], 0);
        for rules in probes {
            let asked = rules.iter().map(|tests| part.longest(tests));
            let all_ask = asked.fold(true, |all, table| {
                table.iter().for_each(|(table, places)| used[*table].extend(places.iter().copied()));
                all & table.is_some()
            });
            asking += usize::from(all_ask);
        }
        let used = used.iter().map(HashSet::len);
        if 4 * asking < count {
            return None;
        }
        part.any = pages.take(width);
        for (table, used) in part.tables.iter_mut().zip(used) {
            let wanted = if table.is_small() { 1 << table.mask.count_ones() } else { 2 * used };
            table.bits = if used == 0 { 0 } else { wanted.next_power_of_two().ilog2().clamp(3, LARGEST) };
        }
        part.tables.retain(|table| table.bits > 0);
        part.tables.iter_mut().for_each(|table| table.at = pages.take(width << table.bits));
        Some(part)
    }

    /// The longest prefix that a rule asks, by its number, and the places where it stands.
    fn longest(&self, tests: &[WordTest]) -> Option<(usize, Vec<u64>)> {
        let test = tests.iter().find(|test| test.word == self.word)?;
        let places = self.tables.iter().map(|table| table.places(test)).enumerate();
        places.into_iter().find(|(_, places)| !places.is_empty())
    }

    /// The sets in which a rule's probe stands.
    fn sets(&self, tests: &[WordTest], width: usize) -> Vec<usize> {
        let of = |(table, places): (usize, Vec<u64>)| {
            let at = self.tables[table].at;
            places.into_iter().map(|place| at + place as usize * width).collect()
        };
        self.longest(tests).map_or_else(|| vec![self.any], of)
    }
}
