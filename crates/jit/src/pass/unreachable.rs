//! Leaves out the tables that no frame comes to.

use crate::ir::{Ir, IrTable};
use std::collections::BTreeSet;

pub(super) fn run(ir: &mut Ir) {
    let mut reached = BTreeSet::from([0]);
    // A goto leads to a later table only (§5.9), so one walk in order finds all.
    for table in &ir.tables {
        if reached.contains(&table.number) {
            reached.extend(table.next());
        }
    }
    ir.tables.retain(|table| reached.contains(&table.number));
    for number in reached {
        if ir.table(number).is_none() {
            ir.tables.push(IrTable { number, ..IrTable::default() });
        }
    }
    ir.tables.sort_by_key(|table| table.number);
}
