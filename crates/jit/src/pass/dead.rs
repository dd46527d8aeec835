//! Leaves out what nobody sees: edits, queues and registers behind the last output of a body after which nothing comes.
//!
//! Counting down a TTL stays: a TTL that runs out is told to the controllers even of a frame that is dropped.

use crate::ir::{Body, End, Ir, Op};
use flow::action::Action;

pub(super) fn run(ir: &mut Ir) {
    let rules = ir.tables.iter_mut().flat_map(|table| &mut table.rules).map(|rule| &mut rule.body);
    rules.chain(&mut ir.sets).for_each(cut);
}

pub(super) fn cut(body: &mut Body) {
    while body.end == End::Done && body.ops.last().is_some_and(is_unseen) {
        body.ops.pop();
    }
}

fn is_unseen(op: &Op) -> bool {
    !matches!(op, Op::Output(_) | Op::Edit(Action::DecNwTtl | Action::DecMplsTtl))
}
