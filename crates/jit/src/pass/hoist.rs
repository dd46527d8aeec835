//! Counts a TTL down before Ethernet addresses and VLAN fields are written.
//!
//! **Why.** A TTL that runs out is an exit. When it is found before the frame is changed, nothing has to be put back, and routers write
//! addresses first in their rules.

use crate::ir::{Body, Ir, Op};
use flow::action::Action;
use flow::field::Field;

pub(super) fn run(ir: &mut Ir) {
    let rules = ir.tables.iter_mut().flat_map(|table| &mut table.rules).map(|rule| &mut rule.body);
    rules.chain(&mut ir.sets).for_each(body);
}

pub(super) fn body(body: &mut Body) {
    for at in 1..body.ops.len() {
        let mut at = at;
        while at > 0 && is_countdown(&body.ops[at]) && lets_pass(&body.ops[at - 1]) {
            body.ops.swap(at, at - 1);
            at -= 1;
        }
    }
}

fn is_countdown(op: &Op) -> bool {
    matches!(op, Op::Edit(Action::DecNwTtl))
}

/// Edits that neither move nor change what counting down reads.
fn lets_pass(op: &Op) -> bool {
    use Field::{EthDst, EthSrc, VlanPcp, VlanVid};
    match op {
        Op::Edit(Action::SetField { field, .. }) => matches!(field, EthDst | EthSrc | VlanVid | VlanPcp),
        Op::Register { .. } | Op::SetTo(_) => true,
        _ => false,
    }
}
