//! Leaves out the rules that no frame can match: their tests want two values of one bit.

use crate::ir::Ir;
use crate::key::words;

pub(super) fn run(ir: &mut Ir) {
    for table in &mut ir.tables {
        let before = table.rules.len();
        table.rules.retain(|rule| words(&rule.tests).is_some());
        table.dropped += before - table.rules.len();
    }
}
