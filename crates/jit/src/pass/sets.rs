//! Numbers the action sets.
//!
//! **What.** Which sets a frame may have at a table is known from the rules before it, table by table. Where it can only be one, a write
//! becomes "the set is number n" and a rule that ends gets the actions of its set; else a write is a row of a table: from each
//! set to the one that it becomes.
//!
//! **Why.** An action set then is a number, and nothing is merged or sorted for a frame (§5.10 was done here).
//!
//! **Price.** A pipeline can ask for more sets than fit ([`SETS`], [`CELLS`]); the rules that would make more of them exit.

use crate::ir::{Body, End, Exit, Ir, IrRule, Op};
use crate::lower;
use flow::action::Action;
use flow::action_set::ActionSet;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The most sets.
const SETS: usize = 1 << 16;
/// The most numbers in all rows together.
const CELLS: usize = 1 << 20;

#[derive(Default)]
struct Numbering {
    sets: Vec<Vec<Action>>,
    numbers: HashMap<Vec<Action>, u32>,
    rows: HashMap<Vec<Op>, u32>,
    maps: Vec<BTreeMap<u32, u32>>,
    cells: usize,
}

pub(super) fn run(ir: &mut Ir) {
    let mut numbering = Numbering::default();
    numbering.number(vec![]);
    let mut possible: BTreeMap<u8, BTreeSet<u32>> = BTreeMap::from([(0, BTreeSet::from([0]))]);
    for table in &mut ir.tables {
        let before = possible.remove(&table.number).unwrap_or_default();
        for rule in &mut table.rules {
            let after = numbering.rule(rule, &before);
            if let End::Goto(next) = rule.body.end {
                possible.entry(next).or_default().extend(after);
            }
        }
        table.before = before;
    }
    ir.sets = numbering.sets.iter().map(|set| lower::actions(set.iter())).collect();
    let width = ir.sets.len();
    let row =
        |map: &BTreeMap<u32, u32>| (0..width as u32).map(|old| map.get(&old).copied().unwrap_or(0)).collect();
    ir.maps = numbering.maps.iter().map(row).collect();
}

fn is_write(op: &Op) -> bool {
    matches!(op, Op::Clear | Op::Write(_))
}

/// What a write makes of a set.
fn write(set: &mut ActionSet, op: &Op) {
    match op {
        Op::Clear => set.clear(),
        Op::Write(actions) => set.write(actions),
        _ => {}
    }
}

impl Numbering {
    fn number(&mut self, set: Vec<Action>) -> u32 {
        let next = self.sets.len() as u32;
        *self.numbers.entry(set).or_insert_with_key(|set| {
            self.sets.push(set.clone());
            next
        })
    }

    /// Turns the writes of a rule into numbers; the sets that are possible behind it.
    fn rule(&mut self, rule: &mut IrRule, before: &BTreeSet<u32>) -> BTreeSet<u32> {
        let writes: Vec<Op> = rule.body.ops.iter().filter(|op| is_write(op)).cloned().collect();
        let moves: BTreeMap<u32, u32> = before
            .iter()
            .map(|old| (*old, if writes.is_empty() { *old } else { self.written(*old, &writes) }))
            .collect();
        if self.sets.len() > SETS || self.cells + moves.len() > CELLS {
            rule.body = Body { ops: vec![], end: End::Exit(Exit::Sets) };
            return BTreeSet::new();
        }
        rule.body.ops.retain(|op| !is_write(op));
        let after: BTreeSet<u32> = moves.values().copied().collect();
        let sole = after.first().copied().filter(|_| after.len() == 1);
        match (rule.body.end, sole) {
            (End::Finish, Some(set)) => self.carry_out(set, &mut rule.body),
            (End::Exit(_), _) => {}
            _ if writes.is_empty() => {}
            (_, Some(set)) => rule.body.ops.push(Op::SetTo(set)),
            (_, None) => {
                let row = self.row(writes, moves);
                rule.body.ops.push(Op::SetMap(row));
            }
        }
        after
    }

    fn written(&mut self, old: u32, writes: &[Op]) -> u32 {
        let mut set = ActionSet::of(&self.sets[old as usize]);
        writes.iter().for_each(|op| write(&mut set, op));
        self.number(set.in_order().cloned().collect())
    }

    /// The row of these writes; a new one has no moves.
    fn row_of(&mut self, writes: Vec<Op>) -> u32 {
        let next = self.maps.len() as u32;
        *self.rows.entry(writes).or_insert_with(|| {
            self.maps.push(BTreeMap::new());
            next
        })
    }

    fn row(&mut self, writes: Vec<Op>, moves: BTreeMap<u32, u32>) -> u32 {
        let row = self.row_of(writes);
        let map = &mut self.maps[row as usize];
        let known = map.len();
        map.extend(moves);
        self.cells += map.len() - known;
        row
    }

    /// The actions of the set, at the end of a body.
    fn carry_out(&self, set: u32, body: &mut Body) {
        let actions = lower::actions(self.sets[set as usize].iter());
        match actions.end {
            End::Exit(_) => *body = actions,
            _ => {
                body.ops.extend(actions.ops);
                body.end = End::Done;
            }
        }
    }
}
