//! Strategies against a walk over the rules.

use super::*;
use crate::plan::{Strategy as Chosen, strategy};
use proptest::prelude::*;
use std::collections::HashMap;

/// Few words with few values, so that rules and keys meet; prefixes in word 2 for tries.
fn some_test() -> impl Strategy<Value = WordTest> {
    let word = prop_oneof![Just(0u8), Just(1), Just(2), Just(3), Just(6)];
    let mask = prop_oneof![
        (0u32..33).prop_map(|length| u64::from(u32::MAX.checked_shl(32 - length).unwrap_or(0))),
        (1u32..33).prop_map(|length| u64::from(u32::MAX.checked_shl(32 - length).unwrap_or(0)) << 32),
        Just(u64::MAX),
        Just(0xff),
        Just(0xffff << 48),
    ];
    (word, mask, some_word()).prop_map(|(word, mask, value)| WordTest { word, mask, value: value & mask })
}

fn some_word() -> impl Strategy<Value = u64> {
    let half =
        prop_oneof![Just(0u64), Just(0x0a00_0001), Just(0x0a00_0101), Just(0x0a01_0001), Just(0xffff_ffff)];
    (half.clone(), half).prop_map(|(high, low)| high << 32 | low)
}

fn some_rules(prefixes: usize) -> impl Strategy<Value = Vec<TableRule>> {
    let tests = prop::collection::vec(some_test(), 0..4);
    let prefix = (0u32..33, any::<u32>()).prop_map(|(length, address)| {
        let mask = u64::from(u32::MAX.checked_shl(32 - length).unwrap_or(0));
        let value = u64::from(address & 0x0a03_0303) & mask;
        let base = WordTest { word: 0, mask: 7, value: 5 };
        [vec![base], if mask == 0 { vec![] } else { vec![WordTest { word: 2, mask, value }] }].concat()
    });
    let lists = (prop::collection::vec(tests, 1..60), prop::collection::vec(prefix, prefixes));
    (lists, any::<u64>()).prop_map(|((tests, prefixes), seed)| {
        let mut all: Vec<Vec<WordTest>> = tests.into_iter().chain(prefixes).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut all);
        let rule = |(index, mut tests): (usize, Vec<WordTest>)| {
            tests.retain(|test| test.mask != 0);
            tests.sort_by_key(|test| test.word);
            tests.dedup_by_key(|test| test.word);
            TableRule { tests, rank: index as u64 + 1, record: 1000 + index as u32 }
        };
        all.into_iter().enumerate().map(rule).collect()
    })
}

fn walk(rules: &[TableRule], key: &[u64; WORDS]) -> Option<u32> {
    let accepts = |rule: &&TableRule| {
        rule.tests.iter().all(|test| key[usize::from(test.word)] & test.mask == test.value)
    };
    rules.iter().filter(accepts).max_by_key(|rule| rule.rank).map(|rule| rule.record)
}

fn some_keys() -> impl Strategy<Value = Vec<[u64; WORDS]>> {
    let word = prop_oneof![some_word(), Just(5u64), any::<u32>().prop_map(|a| u64::from(a & 0x0a03_0303))];
    prop::collection::vec(prop::array::uniform16(word), 1..40)
}

fn check(rules: Vec<TableRule>, keys: Vec<[u64; WORDS]>, later: usize) -> Result<(), TestCaseError> {
    let ranks: HashMap<u32, u64> = rules.iter().map(|rule| (rule.record, rule.rank)).collect();
    let rank_of = |record: u32| ranks[&record];
    let (begin, rest) = rules.split_at(rules.len() - later.min(rules.len() / 2));
    let (Chosen::Probes(probes), parts) = strategy(begin, true) else { return Ok(()) };
    let mut data = TableData::build(&parts, &rank_of);
    let mut there = begin.to_vec();
    let shared = data.clone();
    for rule in rest {
        let Some(place) = probes.iter().position(|probe| probe.takes(rule)) else { continue };
        data.insert(place, &probes[place], rule, &rank_of);
        there.push(rule.clone());
    }
    let gone: Vec<TableRule> = there.iter().step_by(5).cloned().collect();
    for rule in gone {
        let removed = probes
            .iter()
            .enumerate()
            .any(|(index, probe)| probe.takes(&rule) && data.remove(index, probe, &rule.tests, rule.rank));
        if removed {
            there.retain(|other| other.rank != rule.rank);
        }
    }
    for key in &keys {
        prop_assert_eq!(data.find(&probes, key, &rank_of), walk(&there, key));
        prop_assert_eq!(shared.find(&probes, key, &rank_of), walk(begin, key), "a clone stays as it was");
    }
    Ok(())
}

proptest! {
    #[test]
    fn hash_tables_find_what_a_walk_finds(rules in some_rules(0), keys in some_keys(), later in 0usize..9) {
        check(rules, keys, later)?;
    }

}

proptest! {
    // A trie has a root of 256 KiB.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn tries_find_what_a_walk_finds(rules in some_rules(200), keys in some_keys(), later in 0usize..9) {
        check(rules, keys, later)?;
    }
}

#[test]
fn strategies_are_those_that_the_rules_suggest() {
    let rule = |index: u32, tests: Vec<WordTest>| TableRule { tests, rank: index.into(), record: index };
    let exact = |index: u32| rule(index, vec![WordTest { word: 3, mask: u64::MAX, value: index.into() }]);
    let (Chosen::Probes(probes), _) = strategy(&(1..1000).map(exact).collect::<Vec<_>>(), true) else {
        panic!()
    };
    assert!(matches!(&probes[..], [Probe::Hash { compared: Compared::Same(_), .. }]));
    let prefix = |index: u32| {
        let mask = u64::from(u32::MAX << (32 - 8 - index % 20));
        rule(index, vec![WordTest { word: 2, mask, value: u64::from(index << 13) & mask }])
    };
    let (Chosen::Probes(probes), _) = strategy(&(1..1000).map(prefix).collect::<Vec<_>>(), true) else {
        panic!()
    };
    assert!(matches!(&probes[..], [Probe::Trie { .. }]));
    assert_eq!(strategy(&(1..5).map(exact).collect::<Vec<_>>(), true).0, Chosen::Direct);
}
