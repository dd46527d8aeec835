//! Leaves out the rules that never win: one before them matches every frame that they match.
//!
//! **How.** Rules before it are kept by their masks. A rule can only be shadowed by one whose masks are within its own, and then its
//! values under those masks are that rule's values: one look into a set for each kind of mask. Only the [`KINDS`] kinds with the fewest
//! bits are looked at: they shadow most. What is not found is only slower.

use crate::ir::Ir;
use crate::key::{WordTest, words};
use std::collections::HashSet;

/// Kinds of masks that are compared; each costs one look per rule.
const KINDS: usize = 48;

type Masks = Vec<(u8, u64)>;

pub(super) fn run(ir: &mut Ir) {
    for table in &mut ir.tables {
        let own: Vec<Option<Vec<WordTest>>> = table.rules.iter().map(|rule| words(&rule.tests)).collect();
        let mut seen: Vec<(Masks, HashSet<Vec<u64>>)> =
            widest(own.iter().flatten()).into_iter().map(|masks| (masks, HashSet::new())).collect();
        let before = table.rules.len();
        let mut own = own.into_iter();
        table.rules.retain(|_| {
            let Some(own) = own.next().flatten() else { return true };
            let is_shadowed = seen.iter().any(|(masks, values)| {
                !values.is_empty()
                    && projected(&own, masks).is_some_and(|projected| values.contains(&projected))
            });
            if !is_shadowed && let Some((_, values)) = seen.iter_mut().find(|(masks, _)| *masks == of(&own)) {
                values.insert(own.iter().map(|word| word.value).collect());
            }
            !is_shadowed
        });
        table.dropped += before - table.rules.len();
    }
}

fn of(own: &[WordTest]) -> Masks {
    own.iter().map(|word| (word.word, word.mask)).collect()
}

/// The kinds of masks that ask the fewest bits.
fn widest<'a>(rules: impl Iterator<Item = &'a Vec<WordTest>>) -> Vec<Masks> {
    let kinds: HashSet<Masks> = rules.map(|own| of(own)).collect();
    let mut kinds: Vec<Masks> = kinds.into_iter().collect();
    kinds.sort_by_key(|masks| (masks.iter().map(|(_, mask)| mask.count_ones()).sum::<u32>(), masks.clone()));
    kinds.truncate(KINDS);
    kinds
}

/// The values of a rule under masks that are within its own.
fn projected(own: &[WordTest], masks: &Masks) -> Option<Vec<u64>> {
    let of = |(word, mask): &(u8, u64)| {
        let test = own.iter().find(|test| test.word == *word)?;
        (test.mask & mask == *mask).then_some(test.value & mask)
    };
    masks.iter().map(of).collect()
}
