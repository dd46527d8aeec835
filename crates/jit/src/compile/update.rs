//! One rule up to date, without compiling everything.
//!
//! **What.** A rule that came, changed or went is taken out of its table and put in again. What the code has assumed is asked first:
//! that it parses deep enough, that there is room for what the rule pushes, that no frame is changed before an exit, that the action set
//! is known, and that the next table was made for it. Where the answer is no, everything is compiled anew.
//!
//! **Why.** A flow-mod has to be carried out in well under a millisecond, whatever the size of the table.
//!
//! **Price.** Passes over the whole pipeline do not see the rule: it may be one that they would have left out, which costs time and no
//! frame.

use super::{Compiler, extent, leads_on, table_rule};
use crate::ir::{Body, End, Ir, IrRule, Op};
use crate::key;
use crate::lower;
use crate::pass;
use crate::plan::{DIRECT, Strategy};
use crate::record::{Records, rank};
use crate::table::{Probe, TableRule};
use flow::Pipeline;
use flow::action::Action;
use flow::action_set::ActionSet;
use flow::rule::RulePosition;
use std::sync::Arc;

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Words of data.
    Data,
    /// Shapes, or rules that stand in code: there is new code to make.
    Code,
    /// The strategy of a table, which the caller makes: the same.
    Table,
}

impl Compiler {
    /// None when everything has to be compiled anew.
    pub(crate) fn update_in_place(
        &mut self,
        pipeline: &Pipeline,
        number: u8,
        at: RulePosition,
    ) -> Option<Change> {
        let index = self.tables.iter().position(|table| table.number == number)?;
        let new = match pipeline.table(number).and_then(|table| table.get(at)) {
            Some(entry) => Some(lower::rule(at, self.slots.of(number, at), entry)),
            None => None,
        };
        let new = match new {
            Some(rule) => Some(self.fitting(index, rule)?),
            None => None,
        };
        let old = self.tables[index].rules.get(&rank(at));
        let tests = new.as_ref().map(|rule| key::words(&rule.tests));
        let is_same = old.is_some_and(|old| tests == Some(Some(old.tests.clone())));
        // A rule that goes may uncover one that was left out; and a rule that was left out may be the one that goes.
        if !is_same && self.tables[index].dropped > 0 && (old.is_some() || new.is_none()) {
            return None;
        }
        let is_there = old.is_some() && !(is_same && self.is_in_trie(index, rank(at)));
        let shapes = self.records.shapes.len();
        let mut change = Change::Data;
        if is_there {
            change = change.or(self.take_out(index, rank(at)));
        }
        if let Some(rule) = new {
            let width = self.ir.sets.len();
            let rule = table_rule(&rule, width, &mut self.records)?;
            change = change.or(self.put_in(index, rule));
        }
        Some(if shapes != self.records.shapes.len() { change.or(Change::Code) } else { change })
    }

    /// The rule as passes would have left it, if the code's assumptions hold for it.
    fn fitting(&self, index: usize, mut rule: IrRule) -> Option<IrRule> {
        let table = &self.tables[index];
        rule.body = resolved(rule.body, self.ir.sets.len() == 1 || table.number == 0)?;
        pass::tidy_body(&mut rule.body);
        let (pushed, outputs) = extent(&rule.body);
        let fits = self.needs.is_deep_enough(&rule)
            && pushed <= table.most.0
            && outputs <= table.most.1
            && leads_on(&rule.body, &self.ir)
            && is_expected(&rule.body, table.number, &self.ir)
            && (self.ir.restores || is_harmless(&rule.body, table.number));
        fits.then_some(rule)
    }

    /// In a trie a rule takes the place of one with its prefix and rank by itself.
    fn is_in_trie(&self, index: usize, rank: u64) -> bool {
        let table = &self.tables[index];
        let rule = table.rules.get(&rank);
        let place = rule.and_then(|rule| table.probes().iter().find(|probe| probe.takes(rule)));
        matches!(place, Some(Probe::Trie { .. }))
    }

    fn take_out(&mut self, index: usize, rank: u64) -> Change {
        let table = &mut self.tables[index];
        let Some(rule) = table.rules.remove(&rank) else { return Change::Data };
        let Strategy::Probes(probes) = &table.strategy else { return Change::Code };
        let data = Arc::make_mut(&mut table.data);
        let holds = |(number, probe): (usize, &Probe)| {
            probe.takes(&rule) && data.remove(number, probe, &rule.tests, rank)
        };
        if probes.iter().enumerate().any(holds) { Change::Data } else { Change::Table }
    }

    fn put_in(&mut self, index: usize, rule: TableRule) -> Change {
        let table = &mut self.tables[index];
        table.rules.insert(rule.rank, rule.clone());
        let place = table.probes().iter().position(|probe| probe.takes(&rule));
        match (&table.strategy, place) {
            (Strategy::Direct, _) if table.rules.len() <= DIRECT => Change::Code,
            (Strategy::Probes(probes), Some(place)) => {
                let records: &Records = &self.records;
                let data = Arc::make_mut(&mut table.data);
                let rank_of = |record| records.rank_of(record);
                if data.insert(place, &probes[place], &rule, &rank_of) { Change::Data } else { Change::Table }
            }
            _ => Change::Table,
        }
    }
}

impl Change {
    /// The larger one.
    fn or(self, other: Change) -> Change {
        if other as u8 > self as u8 { other } else { self }
    }
}

/// The body with its writes carried out, when the action set before it is empty for sure; one that ends without writes may wait for
/// the set of the moment.
fn resolved(mut body: Body, is_empty_before: bool) -> Option<Body> {
    let mut set = ActionSet::default();
    let mut writes = false;
    for op in &body.ops {
        match op {
            Op::Clear => set.clear(),
            Op::Write(actions) => set.write(actions),
            _ => continue,
        }
        writes = true;
    }
    if !writes && (body.end != End::Finish || !is_empty_before) {
        return Some(body);
    }
    if !is_empty_before || body.end != End::Finish {
        return None;
    }
    body.ops.retain(|op| !matches!(op, Op::Clear | Op::Write(_)));
    let last = lower::actions(set.in_order());
    if matches!(last.end, End::Exit(_)) {
        return Some(last);
    }
    body.ops.extend(last.ops);
    body.end = End::Done;
    Some(body)
}

/// Whether the next table, if any, was made for all action sets that a frame can have behind the body, which writes none: where only one was
/// possible, the table's rules carry it out themselves.
fn is_expected(body: &Body, table: u8, ir: &Ir) -> bool {
    let before = |number| ir.table(number).map(|table| &table.before);
    match body.end {
        End::Goto(next) => before(table).zip(before(next)).is_some_and(|(here, next)| here.is_subset(next)),
        _ => true,
    }
}

/// Whether the body neither changes a frame that may exit later nor exits with a frame that may have been changed.
fn is_harmless(body: &Body, table: u8) -> bool {
    let edits = body.ops.iter().filter(|op| matches!(op, Op::Edit(_)));
    let counts_down = |op: &&Op| matches!(op, Op::Edit(Action::DecNwTtl | Action::DecMplsTtl));
    let may_exit = matches!(body.end, End::Exit(_)) || edits.clone().any(|op| counts_down(&op));
    let is_first = edits.clone().skip(1).all(|op| !counts_down(&op));
    let leads_on = matches!(body.end, End::Goto(_) | End::Finish);
    (table == 0 || !may_exit) && is_first && !(leads_on && edits.count() > 0)
}
