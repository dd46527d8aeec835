//! Which strategy a table gets, and why.
//!
//! **What.** [`strategy`] looks at the rules of a table: few of them are compared one by one in code; many prefixes of one IPv4
//! address with the same rest become a trie; what remains is sorted by masks, and masks are merged into as few hash tables as chains of
//! [`CHAIN`] entries allow. The probes stand in the order of their best rules.
//!
//! **Why.** The cost of a look is the number of probes, so merging is where the time is: ACLs have hundreds of masks, and a hash over the
//! bits that many of them share finds a chain of a few entries (TupleMerge, Daly et al., IEEE/ACM ToN 2019). As the probe of the
//! best rules comes first, most searches end early. A probe is a jump that cannot be predicted, a hash and a load that waits for it; an entry of
//! its chain is behind the one before it in memory and almost never the right one, which can. So one probe costs as much as [`PROBE_STEPS`]
//! entries, and from [`MANY_PROBES`] on tables are made by bits that rules of all kinds have ([`COMMON`]), with longer chains.
//!
//! **Price.** The search is greedy: groups of rules by size, each into the first table that holds it; what some searches cost decides between two
//! or three ways to do it. [`Plan`] says what came out.

use crate::hash::hash;
use crate::key::{NETWORK, PORTS, WordTest};
use crate::table::{Average, Compared, Masks, PROBES, Probe, TableData, TableRule, is_within, masked, masks};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Rules that are compared one by one.
pub const DIRECT: usize = 8;
/// Entries of a chain in a table of merged masks, at most.
pub const CHAIN: u32 = 8;
/// The same, of a table of common bits.
pub const LONG_CHAIN: u32 = 64;
/// Prefixes from which on a trie is worth its root of 256 KiB.
const TRIE_RULES: usize = 128;
/// Bits of IPv4 addresses that tell rules apart by themselves.
const NETWORK_BITS: u32 = 24;
/// Probes from which on it is asked whether a table for each kind of masks is cheaper.
const MANY_PROBES: usize = 6;
/// Kinds of masks that may have a table each; the set of all probes has 256 bits.
const ALONE: usize = 200;
/// Rules of a table up to which that is asked: the sets of so many probes for more rules leave the second cache.
const CACHED_RULES: usize = 4000;
/// Entries that a probe costs as much as. Measured with acl10k, fw10k and ipc10k, the chains up to 8, 16, 32 and 64 entries long.
const PROBE_STEPS: f64 = 16.0;
/// Kinds of masks from which on tables are made with fewer bits than their first rules have.
const MANY_MASKS: usize = 4;

/// Bits that rules of many kinds have, by which tables are made before there are any: both networks, one of them, or a port; the one in which
/// most rules will have a chain of their own comes first.
const COMMON: &[(u8, u64)] = &[
    (NETWORK, 0xffff_ff00_ffff_ff00),
    (NETWORK, 0xffff_ff00 << 32),
    (NETWORK, 0xffff_ff00),
    (NETWORK, 0xffff_0000_ffff_0000),
    (NETWORK, 0xffff_0000 << 32),
    (NETWORK, 0xffff_0000),
    (PORTS, 0xffff),
    (PORTS, 0xfff0),
    (PORTS, 0xffff << 16),
];

/// How a table is looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy {
    /// Rule by rule, in code.
    Direct,
    /// By these, in their order.
    Probes(Vec<Probe>),
}

/// What was decided about a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The table.
    pub table: u8,
    /// How many rules it has, without those that were dropped.
    pub rules: usize,
    /// One word for the strategy.
    pub strategy: &'static str,
    /// Why.
    pub why: String,
    /// What a look costs on a machine of 3 GHz with the table in its second cache, in nanoseconds; the worst case, without pruning.
    pub estimate_ns: f64,
    /// What would change the strategy.
    pub change: String,
}

/// A part of a strategy with its rules.
pub type Part = (Probe, Vec<TableRule>);

/// Decides; no parts for [`Strategy::Direct`]. Where a search does not prune, it looks into all probes, and few are better.
pub fn strategy(rules: &[TableRule], prunes: bool) -> (Strategy, Vec<Part>) {
    if rules.len() <= DIRECT {
        return (Strategy::Direct, vec![]);
    }
    let (trie, rest) = trie(rules);
    let with_trie = |parts: Vec<Part>| {
        let mut all = [trie.clone(), parts].concat();
        all.sort_by_key(|(_, rules)| std::cmp::Reverse(rules.iter().map(|rule| rule.rank).max()));
        all
    };
    let groups = by_masks(rest);
    let mut parts = with_trie(merge(&groups));
    if prunes && parts.len() > MANY_PROBES {
        let mut ways = vec![parts, with_trie(merge_by_common(&groups))];
        ways.extend((rules.len() <= CACHED_RULES).then(|| with_trie(alone(&groups))));
        parts = cheapest(ways, rules);
    }
    (Strategy::Probes(parts.iter().map(|(probe, _)| probe.clone()).collect()), parts)
}

/// That of these ways in which searches cost least.
fn cheapest(ways: Vec<Vec<Part>>, rules: &[TableRule]) -> Vec<Part> {
    let costs = ways.into_iter().map(|parts| (steps(&parts, rules), parts));
    costs.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, parts)| parts).unwrap_or_default()
}

/// What searches for some of the rules cost, in entries.
fn steps(parts: &[Part], rules: &[TableRule]) -> f64 {
    let ranks: HashMap<u32, u64> = rules.iter().map(|rule| (rule.record, rule.rank)).collect();
    let data = TableData::build(parts, &|record| ranks.get(&record).copied().unwrap_or(0));
    PROBE_STEPS * data.sample.probes + data.sample.entries
}

/// Takes the largest set of prefixes out, if it is large enough for a trie.
fn trie(rules: &[TableRule]) -> (Vec<Part>, Vec<&TableRule>) {
    let candidate = [false, true].into_iter().filter_map(|is_upper| largest_prefixes(rules, is_upper));
    let Some((probe, count, lengths)) = candidate.max_by_key(|(_, count, _)| *count) else {
        return (vec![], rules.iter().collect());
    };
    // One or two lengths are as many hashes.
    if count < TRIE_RULES || lengths <= 2 {
        return (vec![], rules.iter().collect());
    }
    let (inside, rest): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| probe.prefix(rule).is_some());
    (vec![(probe, inside.into_iter().cloned().collect())], rest)
}

/// The base that most prefixes of an address have in common, how many, and of how many lengths.
fn largest_prefixes(rules: &[TableRule], is_upper: bool) -> Option<(Probe, usize, usize)> {
    let mut groups: HashMap<Vec<WordTest>, (usize, u64)> = HashMap::new();
    for rule in rules {
        if let Some((base, length)) = split(rule, is_upper) {
            let (count, lengths) = groups.entry(base).or_default();
            (*count, *lengths) = (*count + 1, *lengths | 1 << length);
        }
    }
    let (base, (count, lengths)) = groups.into_iter().max_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)))?;
    Some((Probe::Trie { base, is_upper, word: NETWORK }, count, lengths.count_ones() as usize))
}

/// What a rule asks beside a prefix of the address, and its length.
fn split(rule: &TableRule, is_upper: bool) -> Option<(Vec<WordTest>, u32)> {
    let shift = if is_upper { 32 } else { 0 };
    let mut base = rule.tests.clone();
    let test = base.iter_mut().find(|test| test.word == NETWORK)?;
    let mask = (test.mask >> shift) as u32;
    test.mask &= !(0xffff_ffff << shift);
    test.value &= !(0xffff_ffff << shift);
    base.retain(|test| test.mask != 0);
    (mask != 0 && mask.leading_ones() == mask.count_ones()).then(|| (base, mask.leading_ones()))
}

/// A hash table in the making.
struct Tuple<'a> {
    hashed: Masks,
    rules: Vec<&'a TableRule>,
    kinds: Vec<Masks>,
    chains: HashMap<u64, u32>,
}

/// The rules of one kind of masks.
type Group<'a> = (Masks, Vec<&'a TableRule>);

/// Rules by their masks, the largest group first.
fn by_masks(rules: Vec<&TableRule>) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<Masks, Vec<&TableRule>> = BTreeMap::new();
    rules.into_iter().for_each(|rule| groups.entry(masks(&rule.tests)).or_default().push(rule));
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, rules)| std::cmp::Reverse(rules.len()));
    groups
}

/// A hash table for each kind of masks, but for the smallest ones when there are too many; and a list, empty now, for rules of kinds that
/// come later.
fn alone(groups: &[Group<'_>]) -> Vec<Part> {
    let (large, small) = groups.split_at(groups.len().min(ALONE));
    let exact = |(masks, rules): &Group<'_>| {
        let probe = Probe::Hash { hashed: masks.clone(), compared: Compared::Same(masks.clone()) };
        (probe, rules.iter().copied().cloned().collect())
    };
    let mut words: Vec<u8> = groups.iter().flat_map(|(masks, _)| masks).map(|(word, _)| *word).collect();
    words.sort_unstable();
    words.dedup();
    let later = (Probe::Hash { hashed: vec![], compared: Compared::Own(words) }, vec![]);
    large.iter().map(exact).chain(merge(small)).chain([later]).collect()
}

/// Sorts rules into as few hash tables as chains allow.
fn merge(groups: &[Group<'_>]) -> Vec<Part> {
    merge_into(vec![], groups, CHAIN)
}

/// The same, with a table for each of the common bits first, and longer chains.
fn merge_by_common(groups: &[Group<'_>]) -> Vec<Part> {
    merge_into(COMMON.iter().map(|bits| Tuple::of(vec![*bits])).collect(), groups, LONG_CHAIN)
}

/// Sorts rules into these tables, in their order, and where they do not fit into as few others as chains allow.
fn merge_into<'a>(mut tuples: Vec<Tuple<'a>>, groups: &[Group<'a>], limit: u32) -> Vec<Part> {
    let (is_varied, given) = (groups.len() > MANY_MASKS, tuples.len());
    for (masks, rules) in groups.iter().cloned() {
        // The table with the most bits has the shortest chains.
        tuples[given..].sort_by_key(|tuple| std::cmp::Reverse(bits(&tuple.hashed)));
        let is_taken = tuples.iter_mut().any(|tuple| tuple.take(&masks, &rules, limit));
        if !is_taken {
            let relaxed = is_varied.then_some(limit / 2);
            tuples.push(Tuple::new(masks, rules, relaxed, tuples.len() + 1 < PROBES));
        }
    }
    tuples.into_iter().filter(|tuple| !tuple.rules.is_empty()).map(Tuple::finish).collect()
}

fn bits(masks: &Masks) -> u32 {
    masks.iter().map(|(_, mask)| mask.count_ones()).sum()
}

impl<'a> Tuple<'a> {
    /// An empty one that hashes these bits.
    fn of(hashed: Masks) -> Tuple<'a> {
        Tuple { hashed, rules: vec![], kinds: vec![], chains: HashMap::new() }
    }

    /// A table that begins with these rules: of fewer bits than they have when their chains stay within this limit, so that others fit, too. The
    /// last one that there is room for hashes nothing and takes all.
    fn new(masks: Masks, rules: Vec<&'a TableRule>, relaxed: Option<u32>, has_room: bool) -> Tuple<'a> {
        if !has_room {
            let mut linear = Tuple::of(vec![]);
            linear.take(&masks, &rules, u32::MAX);
            return linear;
        }
        let mut wide = Tuple::of(relax(&masks));
        if relaxed.is_some_and(|limit| wide.take(&masks, &rules, limit)) {
            return wide;
        }
        let mut exact = Tuple::of(masks.clone());
        exact.take(&masks, &rules, u32::MAX);
        exact
    }

    /// Takes the rules, all of these masks, if chains stay within the limit.
    fn take(&mut self, masks: &Masks, rules: &[&'a TableRule], limit: u32) -> bool {
        let limit =
            if self.hashed.is_empty() && self.rules.len() > CHAIN as usize { u32::MAX } else { limit };
        if !is_within(&self.hashed, masks) {
            return false;
        }
        let chains: Vec<u64> =
            rules.iter().map(|rule| hash(masked(&rule.tests, &self.hashed).into_iter())).collect();
        let mut longest = 0;
        for chain in &chains {
            let length = self.chains.entry(*chain).or_default();
            *length += 1;
            longest = longest.max(*length);
        }
        if longest > limit {
            chains.iter().for_each(|chain| *self.chains.entry(*chain).or_default() -= 1);
            return false;
        }
        self.rules.extend(rules);
        self.kinds.push(masks.clone());
        true
    }

    fn finish(self) -> Part {
        let mut words: Vec<u8> = self.kinds.iter().flatten().map(|(word, _)| *word).collect();
        words.sort_unstable();
        words.dedup();
        let compared = match self.kinds.as_slice() {
            [one] => Compared::Same(one.clone()),
            _ => Compared::Own(words),
        };
        let rules = self.rules.into_iter().cloned().collect();
        (Probe::Hash { hashed: self.hashed, compared }, rules)
    }
}

/// The bits that rules of other masks are likely to have, too: whole bytes of prefixes, alone where there are enough of them; else
/// also whole ports, and all that is matched exactly.
fn relax(masks: &Masks) -> Masks {
    let relaxed = masks.iter().map(|&(word, mask)| {
        let mask = match word {
            NETWORK => u64::from(bytes_of((mask >> 32) as u32)) << 32 | u64::from(bytes_of(mask as u32)),
            PORTS => {
                let parts = [0xffff_ffff << 32, 0xffff << 16, 0xffff];
                parts.into_iter().filter(|part| mask & part == *part).sum()
            }
            6..=9 => mask & u64::MAX.checked_shl(64 - mask.leading_ones() / 16 * 16).unwrap_or(0),
            _ => mask,
        };
        (word, mask)
    });
    let relaxed: Masks = relaxed.filter(|(_, mask)| *mask != 0).collect();
    let network: Masks = relaxed.iter().copied().filter(|(word, _)| *word == NETWORK).collect();
    if bits(&network) >= NETWORK_BITS { network } else { relaxed }
}

/// The whole bytes of a prefix; of another mask, nothing.
fn bytes_of(mask: u32) -> u32 {
    let length = mask.leading_ones();
    match length == mask.count_ones() {
        true => u32::MAX.checked_shl(32 - length / 8 * 8).unwrap_or(0),
        false => 0,
    }
}

impl Plan {
    /// Puts a decision into words.
    pub fn of(table: u8, rules: usize, strategy: &Strategy, data: &TableData) -> Plan {
        let plan =
            |word, why, estimate_ns, change| Plan { table, rules, strategy: word, why, estimate_ns, change };
        match strategy {
            Strategy::Direct => plan(
                "direct",
                format!("compared in code; a hash costs as much as {DIRECT} comparisons"),
                1.0 + rules as f64,
                format!("more than {DIRECT} rules: hash tables"),
            ),
            Strategy::Probes(probes) => {
                let parts: Vec<String> = (0..).zip(probes).map(|(i, probe)| part(probe, i, data)).collect();
                let loads = data.pruning.parts.iter().map(|part| part.tables.len() + 1).sum::<usize>();
                let Average { probes: looked, entries } = data.sample;
                let estimate = 2.0 + 1.5 * loads as f64 + 12.0 * looked + 0.8 * entries;
                let pruned = match loads {
                    0 => String::new(),
                    _ => {
                        format!("; of {} probes {looked:.1} are looked into, the others pruned", probes.len())
                    }
                };
                plan(word(probes), parts.join("; ") + &pruned, estimate, change(probes))
            }
        }
    }
}

fn word(probes: &[Probe]) -> &'static str {
    match probes {
        [Probe::Hash { hashed, .. }] if hashed.is_empty() => "linear",
        [Probe::Hash { compared: Compared::Same(_), .. }] => "exact hash",
        probes if probes.iter().any(|probe| matches!(probe, Probe::Trie { .. })) => "longest prefix",
        _ => "tuples",
    }
}

fn part(probe: &Probe, index: usize, data: &TableData) -> String {
    match probe {
        Probe::Trie { .. } => format!("a trie of {} KiB", data.pages.bytes() / 1024),
        Probe::Hash { hashed, compared } => {
            let kind = if matches!(compared, Compared::Same(_)) { "one mask" } else { "merged masks" };
            format!("a hash of {} bits, {kind}, chains up to {}", bits(hashed), data.longest_chain(index))
        }
    }
}

fn change(probes: &[Probe]) -> String {
    match word(probes) {
        "exact hash" => "rules with another mask add a probe each, until masks are merged".to_owned(),
        "longest prefix" => "rules that ask more than the prefix add probes".to_owned(),
        "linear" => "masks that have bits in common could be hashed".to_owned(),
        _ => format!(
            "fewer kinds of masks: each of the {} probes costs some 12 ns where it is not pruned",
            probes.len()
        ),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { table, rules, strategy, why, estimate_ns, change } = self;
        let plural = if *rules == 1 { "" } else { "s" };
        write!(
            f,
            "table {table}: {rules} rule{plural}, {strategy}, about {estimate_ns:.0} ns: {why} (otherwise: {change})"
        )
    }
}
