//! A table as code will look into it: strategies, and the data that they read.
//!
//! **What.** A table is *direct* (compared rule by rule, in code) or a list of [`Probe`]s, each of which gives the best of its rules or
//! nothing: a hash table under one mask whose chains hold the rest of the comparison, or a trie over IPv4 prefixes.
//!
//! **Why.** A hash table whose entries all have its mask is exact match; with entries of more masks it is TupleMerge's merged tuple; with
//! no bits to hash at all it is a linear list, the last resort. One mechanism, and one to update. Every probe knows the highest rank
//! that it and those behind it hold, so a search ends as soon as it has found better ("priority pruning").
//!
//! **Price.** Each probe that is not pruned is a hash and a load. How rules are put into probes is the business of [`crate::plan`].

use crate::hash::hash;
use crate::key::{WORDS, WordTest};
use crate::pages::{PAGE, Pages};
use crate::prune::Pruning;
use std::cmp::Reverse;

/// What a rule is to a table: what it asks of the key, how it ranks, and its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRule {
    /// What the key must be, by word.
    pub tests: Vec<WordTest>,
    /// The larger one wins.
    pub rank: u64,
    /// Index of its record.
    pub record: u32,
}

/// Masks by word.
pub type Masks = Vec<(u8, u64)>;

/// A part of a table that is looked into at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Probe {
    /// A hash table with chains.
    Hash {
        /// What is hashed.
        hashed: Masks,
        /// What entries compare.
        compared: Compared,
    },
    /// A trie over the 32 bits of an IPv4 address.
    Trie {
        /// What all its rules ask of other words.
        base: Vec<WordTest>,
        /// The address stands in the upper half of its word.
        is_upper: bool,
        /// The word that the address stands in.
        word: u8,
    },
}

/// What the entries of a chain compare.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Compared {
    /// The same masks for all.
    Same(Masks),
    /// Masks of their own, of these words.
    Own(Vec<u8>),
}

impl Compared {
    /// Words that an entry compares.
    pub fn words(&self) -> usize {
        match self {
            Compared::Same(masks) => masks.len(),
            Compared::Own(words) => words.len(),
        }
    }

    /// Words of an entry.
    pub fn entry_words(&self) -> usize {
        ENTRY + self.words() * if matches!(self, Compared::Own(_)) { 2 } else { 1 }
    }

    /// The words in their order, with the mask where it is the same for all.
    pub fn same_or_own(&self) -> Vec<(u8, Option<u64>)> {
        match self {
            Compared::Same(masks) => masks.iter().map(|(word, mask)| (*word, Some(*mask))).collect(),
            Compared::Own(words) => words.iter().map(|word| (*word, None)).collect(),
        }
    }

    /// These words, in their order.
    fn order(&self) -> Vec<u8> {
        match self {
            Compared::Same(masks) => masks.iter().map(|(word, _)| *word).collect(),
            Compared::Own(words) => words.clone(),
        }
    }

    /// Whether an entry can compare these masks.
    fn takes(&self, own: &Masks) -> bool {
        match self {
            Compared::Same(same) => own == same,
            Compared::Own(words) => own.iter().all(|(word, _)| words.contains(word)),
        }
    }
}

/// Words of a probe's head: the highest rank from here on; where the heads of chains begin (in bytes); how many there are, less one.
pub const HEAD: usize = 4;
/// Most probes of a table: their heads stand in the first page.
pub const PROBES: usize = 512;
/// Rules that are searched for to know what a search costs.
const SAMPLE: usize = 128;
/// Entries of a probe that hashes nothing, when rules come, before the table is made anew.
const LIST: usize = 16;
/// Words of an entry before its values: its rank; its record and, in the upper half, the next entry, with [`BEHIND`].
pub const ENTRY: usize = 2;
/// The next entry stands right behind this one, in the same page.
pub const BEHIND: u32 = 1 << 31;

/// Bits of a trie's steps: the root, then two blocks.
const ROOT_BITS: u32 = 16;
/// Halves of a word in a block.
const BLOCK: usize = 256;
/// A cell of a trie that leads to a block.
pub const TO_BLOCK: u32 = 1 << 31;

/// The data of a table with probes.
#[derive(Debug, Clone, Default)]
pub struct TableData {
    /// The words.
    pub pages: Pages,
    /// What tells which probes are worth a look.
    pub pruning: Pruning,
    /// What the search for one of the first rules looks at, on average over some of them.
    pub sample: Average,
    entries: Vec<usize>,
}

/// What a search looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Steps {
    /// Probes.
    pub probes: usize,
    /// Entries of their chains.
    pub entries: usize,
}

/// [`Steps`] of some searches, on average.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Average {
    /// Probes.
    pub probes: f64,
    /// Entries of their chains.
    pub entries: f64,
}

/// The bits of a rule under masks; the masks are within the rule's.
pub fn masked(tests: &[WordTest], masks: &Masks) -> Vec<u64> {
    let value = |word: u8| tests.iter().find(|test| test.word == word).map_or(0, |test| test.value);
    masks.iter().map(|(word, mask)| value(*word) & mask).collect()
}

/// The masks of a rule.
pub fn masks(tests: &[WordTest]) -> Masks {
    tests.iter().map(|test| (test.word, test.mask)).collect()
}

/// Whether all bits of the one are bits of the other.
pub fn is_within(part: &Masks, whole: &Masks) -> bool {
    part.iter().all(|(word, mask)| whole.iter().any(|(other, wide)| other == word && wide & mask == *mask))
}

impl Probe {
    /// Whether a rule can stand here as the probe is.
    pub fn takes(&self, rule: &TableRule) -> bool {
        let own = masks(&rule.tests);
        match self {
            Probe::Hash { hashed, compared } => is_within(hashed, &own) && compared.takes(&own),
            Probe::Trie { .. } => self.prefix(rule).is_some(),
        }
    }

    /// Heads of chains, or cells of the root, for so many rules.
    fn heads(&self, rules: usize) -> usize {
        match self {
            Probe::Hash { hashed, .. } if hashed.is_empty() => 1,
            Probe::Hash { .. } => (2 * rules).next_power_of_two().max(16),
            Probe::Trie { .. } => 1 << ROOT_BITS,
        }
    }

    /// The prefix of a rule that stands in this trie: address and length.
    pub fn prefix(&self, rule: &TableRule) -> Option<(u32, u32)> {
        let Probe::Trie { base, is_upper, word } = self else { return None };
        let shift = if *is_upper { 32 } else { 0 };
        let mut rest = rule.tests.clone();
        let test = rest.iter_mut().find(|test| test.word == *word);
        let (mut address, mut mask) = (0, 0);
        if let Some(test) = test {
            (address, mask) = ((test.value >> shift) as u32, (test.mask >> shift) as u32);
            test.mask &= !(0xffff_ffff << shift);
            test.value &= !(0xffff_ffff << shift);
        }
        rest.retain(|test| test.mask != 0);
        let length = mask.leading_ones();
        (rest == *base && mask.count_ones() == length).then_some((address, length))
    }
}

impl TableData {
    /// Data for these probes, each with its rules in any order. `rank_of` gives the rank of a record.
    pub fn build(probes: &[(Probe, Vec<TableRule>)], rank_of: &dyn Fn(u32) -> u64) -> TableData {
        let mut data = TableData { entries: vec![0; probes.len()], ..TableData::default() };
        data.pages.take(HEAD * probes.len().max(1));
        let numbered = probes.iter().enumerate();
        numbered.for_each(|(index, (probe, rules))| data.add(index, probe, rules, rank_of));
        data.rank_probes(probes);
        let tests: Vec<Vec<&[WordTest]>> =
            probes.iter().map(|(_, rules)| rules.iter().map(|rule| &rule.tests[..]).collect()).collect();
        data.pruning = Pruning::build(&tests, &mut data.pages);
        data.sample = data.sampled(probes, rank_of);
        data
    }

    /// Searches for some of the rules.
    fn sampled(&self, parts: &[(Probe, Vec<TableRule>)], rank_of: &dyn Fn(u32) -> u64) -> Average {
        let probes: Vec<Probe> = parts.iter().map(|(probe, _)| probe.clone()).collect();
        let rules: Vec<&TableRule> = parts.iter().flat_map(|(_, rules)| rules).collect();
        let every = rules.len().div_ceil(SAMPLE).max(1);
        let mut sum = Average::default();
        for (place, rule) in rules.iter().enumerate().step_by(every) {
            // What the rule leaves open is as another one has it.
            let other = rules[place.wrapping_mul(7919) % rules.len()];
            let mut key = [0; WORDS];
            for WordTest { word, mask, value } in other.tests.iter().chain(&rule.tests) {
                let word = &mut key[usize::from(*word)];
                *word = *word & !mask | value;
            }
            let (_, steps) = self.search(&probes, &key, rank_of);
            sum.probes += steps.probes as f64;
            sum.entries += steps.entries as f64;
        }
        let searches = rules.len().div_ceil(every).max(1) as f64;
        Average { probes: sum.probes / searches, entries: sum.entries / searches }
    }

    /// Adds a probe with its rules.
    fn add(&mut self, index: usize, probe: &Probe, rules: &[TableRule], rank_of: &dyn Fn(u32) -> u64) {
        self.open(index, probe, rules.len());
        if let Probe::Hash { hashed, compared } = probe {
            return self.chain_all(index, hashed, compared, rules);
        }
        let mut sorted: Vec<&TableRule> = rules.iter().collect();
        sorted.sort_by_key(|rule| rule.rank);
        sorted.into_iter().for_each(|rule| self.place(index, probe, rule, rank_of));
    }

    /// Fills an empty hash table. The entries of a chain stand one behind the other, in the order in which they are looked at: code then
    /// need not wait for where the next one is.
    fn chain_all(&mut self, index: usize, hashed: &Masks, compared: &Compared, rules: &[TableRule]) {
        let chained = rules.iter().map(|rule| (self.head(index, hashed, &rule.tests), rule));
        let mut chained: Vec<(usize, &TableRule)> = chained.collect();
        chained.sort_by_key(|(head, rule)| (*head, Reverse(rule.rank)));
        for chain in chained.chunk_by(|a, b| a.0 == b.0) {
            let mut before = None;
            for (head, rule) in chain {
                let entry = self.entry(compared, rule);
                let is_behind = before.is_some_and(|before| is_behind(before, entry, compared));
                self.link(*head, before, if is_behind { entry | BEHIND } else { entry });
                before = Some(entry);
            }
        }
        self.entries[index] += rules.len();
    }

    /// Writes the highest rank from each probe on.
    fn rank_probes(&mut self, probes: &[(Probe, Vec<TableRule>)]) {
        let mut best = 0;
        for (index, (_, rules)) in probes.iter().enumerate().rev() {
            best = rules.iter().map(|rule| rule.rank).max().unwrap_or(0).max(best);
            self.pages.set(HEAD * index, best);
        }
    }

    /// Adds a rule to a probe that takes it; false when the probe has become too full and should be built anew.
    pub fn insert(
        &mut self,
        index: usize,
        probe: &Probe,
        rule: &TableRule,
        rank_of: &dyn Fn(u32) -> u64,
    ) -> bool {
        for before in 0..=index {
            if self.pages.get(HEAD * before) < rule.rank {
                self.pages.set(HEAD * before, rule.rank);
            }
        }
        self.pruning.note(index, &rule.tests, &mut self.pages);
        self.place(index, probe, rule, rank_of);
        let heads = self.pages.get(HEAD * index + 2) as usize + 1;
        matches!(probe, Probe::Trie { .. }) || self.entries[index] <= (2 * heads).max(LIST)
    }

    /// Takes the rule of this rank out of a hash probe; false when it is not there.
    pub fn remove(&mut self, index: usize, probe: &Probe, tests: &[WordTest], rank: u64) -> bool {
        let Probe::Hash { hashed, .. } = probe else { return false };
        let head = self.head(index, hashed, tests);
        let (before, at) = self.seek(head, rank);
        if at == 0 || self.pages.get(at as usize) != rank {
            return false;
        }
        let next = self.next(at);
        self.link(head, before, next);
        self.entries[index] -= 1;
        true
    }

    fn open(&mut self, index: usize, probe: &Probe, rules: usize) {
        let heads = probe.heads(rules);
        let at = self.pages.take(heads.div_ceil(2));
        self.pages.set(HEAD * index + 1, 8 * at as u64);
        self.pages.set(HEAD * index + 2, heads as u64 - 1);
    }

    fn place(&mut self, index: usize, probe: &Probe, rule: &TableRule, rank_of: &dyn Fn(u32) -> u64) {
        self.entries[index] += 1;
        match probe {
            Probe::Hash { hashed, compared } => self.chain(index, hashed, compared, rule),
            Probe::Trie { .. } => self.place_prefix(index, probe, rule, rank_of),
        }
    }

    fn place_prefix(&mut self, index: usize, probe: &Probe, rule: &TableRule, rank_of: &dyn Fn(u32) -> u64) {
        let Some((address, length)) = probe.prefix(rule) else { return };
        let root = self.first_head(index);
        self.fill(root, ROOT_BITS, address, length, (rule.record, rule.rank), rank_of);
    }

    /// The half of a word that the heads of a probe begin with.
    fn first_head(&self, index: usize) -> usize {
        self.pages.get(HEAD * index + 1) as usize / 4
    }

    /// The half of a word that heads the chain of a rule.
    fn head(&self, index: usize, hashed: &Masks, tests: &[WordTest]) -> usize {
        let chain = hash(masked(tests, hashed).into_iter()) & self.pages.get(HEAD * index + 2);
        self.first_head(index) + chain as usize
    }

    fn next(&self, entry: u32) -> u32 {
        (self.pages.get(entry as usize + 1) >> 32) as u32 & !BEHIND
    }

    /// The first entry of a chain with at most this rank, or 0; and the entry before it.
    fn seek(&self, head: usize, rank: u64) -> (Option<u32>, u32) {
        let (mut before, mut at) = (None, self.pages.half(head));
        while at != 0 && self.pages.get(at as usize) > rank {
            (before, at) = (Some(at), self.next(at));
        }
        (before, at)
    }

    fn link(&mut self, head: usize, before: Option<u32>, next: u32) {
        match before {
            Some(before) => self.pages.set_half(2 * (before as usize + 1) + 1, next),
            None => self.pages.set_half(head, next),
        }
    }

    /// Puts a rule into its chain, the highest rank first.
    fn chain(&mut self, index: usize, hashed: &Masks, compared: &Compared, rule: &TableRule) {
        let head = self.head(index, hashed, &rule.tests);
        let (before, at) = self.seek(head, rule.rank);
        let entry = self.entry(compared, rule);
        self.pages.set_half(2 * (entry as usize + 1) + 1, at);
        self.link(head, before, entry);
    }

    fn entry(&mut self, compared: &Compared, rule: &TableRule) -> u32 {
        let words = compared.words();
        let own = matches!(compared, Compared::Own(_));
        let at = self.pages.take(compared.entry_words());
        self.pages.set(at, rule.rank);
        self.pages.set(at + 1, u64::from(rule.record));
        for (index, word) in compared.order().iter().enumerate() {
            let Some(test) = rule.tests.iter().find(|test| test.word == *word) else { continue };
            self.pages.set(at + ENTRY + index, test.value);
            if own {
                self.pages.set(at + ENTRY + words + index, test.mask);
            }
        }
        at as u32
    }

    /// Writes a prefix into the cells of a trie from `cells` on, `bits` of the address deep: a rule of higher rank stays.
    fn fill(
        &mut self,
        cells: usize,
        bits: u32,
        address: u32,
        length: u32,
        rule: (u32, u64),
        rank_of: &dyn Fn(u32) -> u64,
    ) {
        let width = if bits == ROOT_BITS { ROOT_BITS } else { 8 };
        let index = (address >> (32 - bits)) as usize & ((1 << width) - 1);
        if length > bits {
            let block = self.block(cells + index);
            return self.fill(block, bits + 8, address, length, rule, rank_of);
        }
        let covered = 1 << (bits - length).min(width);
        let first = index & !(covered - 1);
        for cell in cells + first..cells + first + covered {
            let old = self.pages.half(cell);
            if old & TO_BLOCK != 0 {
                let block = self.block(cell);
                // All of the block is within the prefix.
                self.fill(block, bits + 8, 0, bits, rule, rank_of);
            } else if old == 0 || rank_of(old) <= rule.1 {
                self.pages.set_half(cell, rule.0);
            }
        }
    }

    /// The block that a cell leads to; a new one holds what the cell held.
    fn block(&mut self, cell: usize) -> usize {
        let old = self.pages.half(cell);
        if old & TO_BLOCK != 0 {
            return (old & !TO_BLOCK) as usize * BLOCK;
        }
        let words = BLOCK / 2;
        let at = self.pages.take(words);
        // Blocks begin at multiples of their size, and so do pages.
        let skipped = at.next_multiple_of(words) - at;
        self.pages.take(skipped);
        let at = at + skipped;
        for half in 0..BLOCK {
            self.pages.set_half(2 * at + half, old);
        }
        self.pages.set_half(cell, TO_BLOCK | (2 * at / BLOCK) as u32);
        2 * at
    }

    /// What a search finds: the record, in plain Rust. The twin of the code.
    pub fn find(&self, probes: &[Probe], key: &[u64; WORDS], rank_of: &dyn Fn(u32) -> u64) -> Option<u32> {
        self.search(probes, key, rank_of).0
    }

    /// What a search finds, and what it looks at.
    pub fn search(
        &self,
        probes: &[Probe],
        key: &[u64; WORDS],
        rank_of: &dyn Fn(u32) -> u64,
    ) -> (Option<u32>, Steps) {
        let (mut best, mut steps): (Option<(u64, u32)>, _) = (None, Steps::default());
        let candidates = self.pruning.candidates(key, &self.pages);
        for (index, probe) in
            probes.iter().enumerate().filter(|(index, _)| self.pruning.has(&candidates, *index))
        {
            if best.is_some_and(|(rank, _)| rank >= self.pages.get(HEAD * index)) {
                break;
            }
            steps.probes += 1;
            let found = match probe {
                Probe::Hash { hashed, compared } => {
                    self.find_chained(index, hashed, compared, key, &mut steps.entries)
                }
                Probe::Trie { base, is_upper, word } => {
                    let fits = base.iter().all(|test| key[usize::from(test.word)] & test.mask == test.value);
                    let address = (key[usize::from(*word)] >> if *is_upper { 32 } else { 0 }) as u32;
                    self.find_prefix(index, address).filter(|_| fits)
                }
            };
            best = best.max(found.map(|record| (rank_of(record), record)));
        }
        (best.map(|(_, record)| record), steps)
    }

    fn find_prefix(&self, index: usize, address: u32) -> Option<u32> {
        let mut cell = self.pages.half(self.first_head(index) + (address >> 16) as usize);
        for shift in [8, 0] {
            if cell & TO_BLOCK != 0 {
                let block = (cell & !TO_BLOCK) as usize * BLOCK;
                cell = self.pages.half(block + (address >> shift) as usize % BLOCK);
            }
        }
        (cell != 0).then_some(cell)
    }

    fn find_chained(
        &self,
        index: usize,
        hashed: &Masks,
        compared: &Compared,
        key: &[u64; WORDS],
        entries: &mut usize,
    ) -> Option<u32> {
        let words = hashed.iter().map(|(word, mask)| key[usize::from(*word)] & mask);
        let chain = hash(words) & self.pages.get(HEAD * index + 2);
        let mut at = self.pages.half(self.first_head(index) + chain as usize);
        while at != 0 {
            *entries += 1;
            if self.accepts(at as usize, compared, key) {
                return Some(self.pages.get(at as usize + 1) as u32);
            }
            at = self.next(at);
        }
        None
    }

    fn accepts(&self, entry: usize, compared: &Compared, key: &[u64; WORDS]) -> bool {
        let value = |index: usize| self.pages.get(entry + ENTRY + index);
        let fits = |i: usize, word: u8, mask: u64| key[usize::from(word)] & mask == value(i);
        match compared {
            Compared::Same(masks) => masks.iter().zip(0..).all(|((word, mask), i)| fits(i, *word, *mask)),
            Compared::Own(words) => {
                words.iter().zip(0..).all(|(word, i)| fits(i, *word, value(words.len() + i)))
            }
        }
    }

    /// The longest chain.
    pub fn longest_chain(&self, index: usize) -> usize {
        let first = self.first_head(index);
        let chains = 0..=self.pages.get(HEAD * index + 2) as usize;
        chains.map(|chain| self.chain_length(first + chain)).max().unwrap_or(0)
    }

    fn chain_length(&self, head: usize) -> usize {
        let entries = std::iter::successors(Some(self.pages.half(head)), |at| Some(self.next(*at)));
        entries.take_while(|at| *at != 0).count()
    }
}

/// Whether an entry stands right behind another one, in its page.
fn is_behind(before: u32, entry: u32, compared: &Compared) -> bool {
    entry as usize == before as usize + compared.entry_words() && !(entry as usize).is_multiple_of(PAGE)
}

#[cfg(test)]
mod tests;
