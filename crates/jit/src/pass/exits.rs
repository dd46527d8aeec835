//! Exits as early as possible, and says whether a frame may have been changed before one.
//!
//! **What.** A table all of whose rules exit, the last one for all frames, is an exit itself; what leads there exits at once.
//! [`Ir::restores`] says that some path changes a frame and may exit afterwards: then the frame is kept before it is changed.

use crate::ir::{Body, End, Exit, Ir, IrRule, IrTable, Op};
use flow::action::Action;
use std::collections::BTreeMap;

pub(super) fn run(ir: &mut Ir) {
    early(ir);
    ir.restores = restores(ir);
}

fn early(ir: &mut Ir) {
    let mut always: BTreeMap<u8, Exit> = BTreeMap::new();
    for table in ir.tables.iter_mut().rev() {
        table.rules.iter_mut().for_each(|rule| exit_at_once(rule, &always));
        always.extend(always_exits(table).map(|exit| (table.number, exit)));
    }
}

/// Lets a rule exit itself when its next table always exits.
fn exit_at_once(rule: &mut IrRule, always: &BTreeMap<u8, Exit>) {
    if let End::Goto(next) = rule.body.end
        && let Some(exit) = always.get(&next)
    {
        rule.body = Body { ops: vec![], end: End::Exit(*exit) };
    }
}

fn always_exits(table: &IrTable) -> Option<Exit> {
    let last = table.rules.last().filter(|rule| rule.tests.is_empty())?;
    let exit = |body: &Body| match body.end {
        End::Exit(exit) => Some(exit),
        _ => None,
    };
    table.rules.iter().all(|rule| exit(&rule.body).is_some()).then(|| exit(&last.body)).flatten()
}

fn restores(ir: &Ir) -> bool {
    let mut found = false;
    let mut after_sets = false;
    for set in &ir.sets {
        after_sets |= may_exit(set, false, &mut found);
    }
    let mut may: BTreeMap<u8, bool> = BTreeMap::new();
    for table in ir.tables.iter().rev() {
        let mut any = false;
        for rule in &table.rules {
            let after = match rule.body.end {
                End::Goto(next) => may.get(&next).copied().unwrap_or(false),
                End::Finish => after_sets,
                End::Done | End::Exit(_) => false,
            };
            any |= may_exit(&rule.body, after, &mut found);
        }
        may.insert(table.number, any);
    }
    found
}

/// Whether a body may exit, itself or `after` it; `found` when an edit of it comes before that.
fn may_exit(body: &Body, after: bool, found: &mut bool) -> bool {
    let mut may = after || matches!(body.end, End::Exit(_));
    for op in body.ops.iter().rev() {
        if let Op::Edit(action) = op {
            *found |= may;
            may |= matches!(action, Action::DecNwTtl | Action::DecMplsTtl);
        }
    }
    may
}
