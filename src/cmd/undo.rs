//! `pathlab undo`: removes what killed commands left behind.

use crate::output::{Output, object};

/// Runs the command.
pub fn run(output: &Output) -> record::Result<()> {
    let undone = linux::undo::open()?.clean()?;
    let document = object! { schema: linux::journal::SCHEMA, undone };
    output.result(&document, |document| match document.undone.is_empty() {
        true => "nothing was left behind".into(),
        false => format!("undone: {}", document.undone.join(", ")),
    })
}
