//! The IR of a pipeline as a program of the kernel can carry it out.
//!
//! **What.** [`lowered`] takes the IR behind its passes and turns each body that the program cannot do into an exit, with a [`Reason`]; outputs
//! name ports by their index. The passes that let rules exit early run once more.
//!
//! **Why.** What is decided here is decided once and can be said in words; the emitter has no case that it cannot do.

use super::{ByUserspace, Hook, Reason, Surroundings};
use crate::ir::{Body, End, Exit, Ir, Op};
use crate::pass;
use flow::PortNo;
use flow::action::Action;
use flow::field::{Field, VLAN_PRESENT, Value};
use flow::text::action::show;

/// The operand of an output to the port by which the frame came in.
pub const IN_PORT: u32 = u32::MAX;

/// Rewrites the IR; the rules that were left to user space.
pub fn lowered(ir: &mut Ir, around: &Surroundings) -> Vec<ByUserspace> {
    let mut userspace = vec![];
    for table in &mut ir.tables {
        for rule in &mut table.rules {
            if let Some(reason) = rewrite(&mut rule.body, around) {
                userspace.push(ByUserspace { table: table.number, at: rule.at, reason });
            }
        }
    }
    for set in &mut ir.sets {
        rewrite(set, around);
    }
    pass::exit_early(ir);
    let is_known = |table: u8, at| userspace.iter().any(|known| known.table == table && known.at == at);
    let mut early = vec![];
    for table in &ir.tables {
        for rule in &table.rules {
            if let End::Exit(exit) = rule.body.end
                && !is_known(table.number, rule.at)
            {
                early.push(ByUserspace { table: table.number, at: rule.at, reason: Reason::Exit(exit) });
            }
        }
    }
    userspace.extend(early);
    userspace.sort_by_key(|one| (one.table, one.at));
    userspace
}

/// Makes a body one that the program can do, or an exit.
fn rewrite(body: &mut Body, around: &Surroundings) -> Option<Reason> {
    let mut ops = vec![];
    let reason = match body.end {
        End::Exit(exit) => Some(Reason::Exit(exit)),
        _ => body.ops.iter().find_map(|op| match rewritten(op, around) {
            Ok(op) => {
                ops.extend(op);
                None
            }
            Err(reason) => Some(reason),
        }),
    };
    let outputs = ops.iter().filter(|op| matches!(op, Op::Output(_))).count();
    let reason = reason.or_else(|| (outputs > 1).then_some(Reason::Outputs));
    let exit = match &reason {
        Some(Reason::Exit(exit)) => Some(*exit),
        Some(_) => Some(Exit::Kernel),
        None => None,
    };
    *body = match exit {
        Some(exit) => Body { ops: vec![], end: End::Exit(exit) },
        None => Body { ops, end: body.end },
    };
    reason
}

/// An op as the program does it; none for one that does nothing.
fn rewritten(op: &Op, around: &Surroundings) -> Result<Option<Op>, Reason> {
    match op {
        Op::Output(port) => output(*port, around),
        Op::Queue(_) => Err(Reason::Queue),
        Op::Edit(action) if !is_made(action, around.hook) => Err(Reason::Edit(show(action))),
        op => Ok(Some(op.clone())),
    }
}

fn output(port: PortNo, around: &Surroundings) -> Result<Option<Op>, Reason> {
    let index = around.ports.iter().position(|one| one.number == port);
    match (port, index) {
        (PortNo::IN_PORT, _) => Ok(Some(Op::Output(PortNo(IN_PORT)))),
        (PortNo::ALL | PortNo::FLOOD, _) => Err(Reason::Spread(port)),
        (_, Some(index)) => Ok(Some(Op::Output(PortNo(index as u32)))),
        // Also one that is not there: user space counts what was for it.
        _ => Err(Reason::Port(port)),
    }
}

/// The edits that programs make.
fn is_made(action: &Action, _hook: Hook) -> bool {
    use Field::*;
    match action {
        Action::DecNwTtl | Action::PopVlan | Action::PushVlan(0x8100 | 0x88a8) => true,
        Action::SetField { field: VlanVid, value } => value & Value::from(VLAN_PRESENT) != 0,
        Action::SetField { field, .. } => {
            matches!(field, EthDst | EthSrc | VlanPcp | Ipv4Src | Ipv4Dst | TcpSrc | TcpDst | UdpSrc | UdpDst)
        }
        _ => false,
    }
}
