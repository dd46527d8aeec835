//! Leaves out the rules that never win: one before them matches every frame that they match.
//!
//! **How.** Rules before it are kept by their masks. A rule can only be shadowed by one whose masks are within its own, and then its
//! values under those masks are that rule's values: one look into a set for each kind of mask. The search stops at
//! [`KINDS`] kinds; what is not found is only slower.

use crate::ir::Ir;
use crate::key::{WordTest, words};
use std::collections::{HashMap, HashSet};

/// Kinds of masks that are compared; each costs one look per rule.
const KINDS: usize = 48;

type Masks = Vec<(u8, u64)>;

pub(super) fn run(ir: &mut Ir) {
    for table in &mut ir.tables {
        let mut seen: HashMap<Masks, HashSet<Vec<u64>>> = HashMap::new();
        let before = table.rules.len();
        table.rules.retain(|rule| {
            let Some(own) = words(&rule.tests) else { return true };
            let is_shadowed = seen.iter().any(|(masks, values)| {
                projected(&own, masks).is_some_and(|projected| values.contains(&projected))
            });
            if !is_shadowed {
                let masks: Masks = own.iter().map(|word| (word.word, word.mask)).collect();
                if seen.len() < KINDS || seen.contains_key(&masks) {
                    seen.entry(masks).or_default().insert(own.iter().map(|word| word.value).collect());
                }
            }
            !is_shadowed
        });
        table.dropped += before - table.rules.len();
    }
}

/// The values of a rule under masks that are within its own.
fn projected(own: &[WordTest], masks: &Masks) -> Option<Vec<u64>> {
    let of = |(word, mask): &(u8, u64)| {
        let test = own.iter().find(|test| test.word == *word)?;
        (test.mask & mask == *mask).then_some(test.value & mask)
    };
    masks.iter().map(of).collect()
}
