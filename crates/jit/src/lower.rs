//! From a pipeline to the IR.
//!
//! **What.** Instructions in the order of §5.9, actions as [`Op`]s, and an [`End`]; a rule with anything that code does not do is one
//! exit and nothing else.
//!
//! **Why.** The exit stands before the rule's first op, so that a frame that has to be interpreted has not been touched by it.
//!
//! **Price.** A rule that sends to a port and to the controllers is interpreted whole.

use crate::ir::{Body, End, Exit, Ir, IrRule, IrTable, Op, Test};
use crate::tally::Slots;
use flow::action::{Action, Instruction};
use flow::entry::Entry;
use flow::pipeline::Fragments;
use flow::rule::{Rule, RulePosition};
use flow::table::Table;
use flow::{Field, Pipeline, PortNo};

/// The whole pipeline, before any pass.
pub fn pipeline(pipeline: &Pipeline, slots: &mut Slots) -> Ir {
    let filled = pipeline.tables().filter(|table| !table.is_empty());
    Ir {
        tables: filled.map(|one| table(one, slots)).collect(),
        sets: vec![Body { ops: vec![], end: End::Done }],
        exits_fragments: pipeline.config.fragments == Fragments::Drop,
        ..Ir::default()
    }
}

/// One table.
pub fn table(table: &Table, slots: &mut Slots) -> IrTable {
    let rules = table.rules().map(|(at, entry)| rule(at, slots.of(table.number, at), entry)).collect();
    IrTable { number: table.number, rules, ..IrTable::default() }
}

/// One rule at its place.
pub fn rule(at: RulePosition, slot: u32, entry: &Entry) -> IrRule {
    let fields = entry.rule.matching.fields().iter().filter(|field| field.bits() != 0);
    let tests = fields.map(|f| Test { field: f.field, value: f.value, mask: f.bits() }).collect();
    IrRule { at, slot, tests, body: body(&entry.rule) }
}

/// What a rule does.
fn body(rule: &Rule) -> Body {
    let mut ordered: Vec<&Instruction> = rule.instructions.iter().collect();
    ordered.sort_by_key(|instruction| instruction.place());
    let mut body = Body { ops: vec![], end: End::Finish };
    for instruction in ordered {
        if let Err(exit) = lower_instruction(instruction, &mut body) {
            return Body { ops: vec![], end: End::Exit(exit) };
        }
    }
    body
}

fn lower_instruction(instruction: &Instruction, body: &mut Body) -> Result<(), Exit> {
    match instruction {
        Instruction::Meter(_) => return Err(Exit::Meter),
        Instruction::ApplyActions(actions) => {
            for action in actions {
                body.ops.extend(op(action)?);
            }
        }
        Instruction::ClearActions => body.ops.push(Op::Clear),
        Instruction::WriteActions(actions) => body.ops.push(Op::Write(actions.clone())),
        Instruction::WriteMetadata { metadata, mask } => {
            let (value, mask) = (metadata & mask, *mask);
            body.ops.push(Op::Register { field: Field::Metadata, value, mask });
        }
        Instruction::GotoTable(table) => body.end = End::Goto(*table),
        Instruction::Experimenter { .. } => {}
    }
    Ok(())
}

/// One action; nothing for one that does nothing.
fn op(action: &Action) -> Result<Option<Op>, Exit> {
    Ok(Some(match action {
        Action::Output { port: PortNo::CONTROLLER, .. } => return Err(Exit::Controller),
        Action::Output { port: PortNo::NORMAL, .. } => return Err(Exit::Normal),
        Action::Output { port, .. } => Op::Output(*port),
        Action::Group(_) => return Err(Exit::Group),
        Action::SetQueue(queue) => Op::Queue(*queue),
        Action::SetField { field: Field::TunnelId, value } => {
            Op::Register { field: Field::TunnelId, value: *value as u64, mask: u64::MAX }
        }
        Action::Experimenter { .. } => return Ok(None),
        edit => Op::Edit(edit.clone()),
    }))
}

/// The actions of an action set in their order (§5.10).
pub fn actions<'a>(actions: impl Iterator<Item = &'a Action>) -> Body {
    let ops: Result<Vec<Option<Op>>, Exit> = actions.map(op).collect();
    match ops {
        Ok(ops) => Body { ops: ops.into_iter().flatten().collect(), end: End::Done },
        Err(exit) => Body { ops: vec![], end: End::Exit(exit) },
    }
}
