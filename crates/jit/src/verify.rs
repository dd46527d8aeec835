//! The verifier of the IR: on in every build, before the first pass, after each, and before code is made.
//!
//! **What.** [`lowered`] holds for every IR: values fit fields, gotos lead to later tables, rules stand in their order, an exit does nothing
//! first. [`ready`] holds for what becomes code: no write is left, every number is in range, no path changes a frame and exits unless
//! [`Ir::restores`] says so.
//!
//! **Why.** A mistake in a pass becomes a sentence and an interpreted pipeline, not a frame that is treated wrongly.
//!
//! **Price.** One walk over the rules; it trusts that tests and ops say what the rules said, which is what the random trials are for.

use crate::ir::{Body, End, Ir, IrRule, IrTable, Op, Test};
use flow::action::Action;
use flow::field::Field;
use std::collections::BTreeMap;
use std::fmt;

/// What is wrong with an IR, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The table.
    pub table: u8,
    /// The rule, or the set, in words.
    pub place: String,
    /// What is wrong.
    pub what: &'static str,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { table, place, what } = self;
        write!(
            f,
            "table {table}, {place}: {what}; this pipeline stays with the interpreter; please report it"
        )
    }
}

impl std::error::Error for Broken {}

/// What has to hold for any IR.
///
/// # Errors
/// The first thing that does not.
pub fn lowered(ir: &Ir) -> Result<(), Broken> {
    for table in &ir.tables {
        in_order(table)?;
        table.rules.iter().try_for_each(|rule| rule_is_sound(table.number, rule))?;
    }
    let set = |body| {
        body_is_sound(body).map_err(|what| Broken { table: 0, place: "an action set".to_owned(), what })
    };
    ir.sets.iter().try_for_each(set)
}

/// What has to hold for an IR that becomes code.
///
/// # Errors
/// The first thing that does not.
pub fn ready(ir: &Ir) -> Result<(), Broken> {
    lowered(ir)?;
    for table in &ir.tables {
        for rule in &table.rules {
            let broken = |what| Broken { table: table.number, place: rule.to_string(), what };
            body_is_ready(ir, &rule.body).map_err(broken)?;
            if let End::Goto(next) = rule.body.end
                && ir.table(next).is_none()
            {
                return Err(broken("the next table was left out"));
            }
        }
    }
    let broken = |what| Broken { table: 0, place: "an action set".to_owned(), what };
    if ir.sets.is_empty() || ir.sets.iter().any(|set| matches!(set.end, End::Goto(_) | End::Finish)) {
        return Err(broken("it leads on"));
    }
    ir.sets.iter().try_for_each(|set| body_is_ready(ir, set).map_err(broken))?;
    if ir.maps.iter().flatten().any(|set| *set as usize >= ir.sets.len()) {
        return Err(broken("a row names a set that is not there"));
    }
    if !ir.restores && changes_before_exit(ir) {
        Err(broken("a frame is changed before an exit"))
    } else {
        Ok(())
    }
}

fn in_order(table: &IrTable) -> Result<(), Broken> {
    match table.rules.windows(2).find(|pair| pair[0].at >= pair[1].at) {
        None => Ok(()),
        Some(pair) => Err(Broken {
            table: table.number,
            place: pair[1].to_string(),
            what: "it stands behind a later rule",
        }),
    }
}

fn rule_is_sound(table: u8, rule: &IrRule) -> Result<(), Broken> {
    let broken = |what| Broken { table, place: rule.to_string(), what };
    if !rule.tests.iter().all(test_is_sound) {
        return Err(broken("a test has bits outside of its field or its mask, or asks nothing"));
    }
    if matches!(rule.body.end, End::Goto(next) if next <= table) {
        return Err(broken("it leads backwards"));
    }
    body_is_sound(&rule.body).map_err(broken)
}

fn test_is_sound(test: &Test) -> bool {
    test.mask != 0 && test.mask & !test.field.full_mask() == 0 && test.value & !test.mask == 0
}

fn body_is_sound(body: &Body) -> Result<(), &'static str> {
    if matches!(body.end, End::Exit(_)) && !body.ops.is_empty() {
        return Err("something is done before an exit");
    }
    body.ops.iter().try_for_each(op_is_sound)
}

fn op_is_sound(op: &Op) -> Result<(), &'static str> {
    match op {
        Op::Register { field, value, mask } => {
            let is_register = matches!(field, Field::Metadata | Field::TunnelId);
            if is_register && value & !mask == 0 { Ok(()) } else { Err("a register has no such bits") }
        }
        Op::Edit(Action::SetField { field, value })
            if value & !field.full_mask() != 0 || !field.is_in_frame() =>
        {
            Err("a value does not fit its field")
        }
        Op::Edit(
            Action::Output { .. } | Action::Group(_) | Action::SetQueue(_) | Action::Experimenter { .. },
        ) => Err("an action that changes no frame is taken for an edit"),
        _ => Ok(()),
    }
}

fn body_is_ready(ir: &Ir, body: &Body) -> Result<(), &'static str> {
    for op in &body.ops {
        match op {
            Op::Clear | Op::Write(_) => return Err("the action set was not numbered"),
            Op::SetTo(set) if *set as usize >= ir.sets.len() => return Err("no such action set"),
            Op::SetMap(row) if ir.maps.get(*row as usize).is_none_or(|row| row.len() != ir.sets.len()) => {
                return Err("no such row of action sets");
            }
            _ => {}
        }
    }
    Ok(())
}

/// The obvious twin of the analysis in the pass `exits`: forwards, with a flag for "was changed".
fn changes_before_exit(ir: &Ir) -> bool {
    let mut changed: BTreeMap<u8, bool> = BTreeMap::new();
    let mut set_changed = false;
    for table in &ir.tables {
        let before = changed.get(&table.number).copied().unwrap_or(false);
        for rule in &table.rules {
            let Some(after) = walk(&rule.body, before) else { return true };
            match rule.body.end {
                End::Goto(next) => *changed.entry(next).or_default() |= after,
                End::Finish => set_changed |= after,
                End::Done | End::Exit(_) => {}
            }
        }
    }
    ir.sets.iter().any(|set| walk(set, set_changed).is_none())
}

/// Whether the frame was changed after a body; none when it may exit changed.
fn walk(body: &Body, mut changed: bool) -> Option<bool> {
    for op in &body.ops {
        if let Op::Edit(action) = op {
            if changed && matches!(action, Action::DecNwTtl | Action::DecMplsTtl) {
                return None;
            }
            changed = true;
        }
    }
    (!(changed && matches!(body.end, End::Exit(_)))).then_some(changed)
}
