//! `pathlab undo`: what killed commands left behind goes.

use crate::output::Output;
use clap::Args;
use serde_json::json;

/// Flags of `pathlab undo`.
#[derive(Args)]
pub struct UndoArgs {}

/// Runs the command.
pub fn run(_args: UndoArgs, output: &Output) -> record::Result<()> {
    let undone = linux::undo::open()?.clean()?;
    output.result(&json!({"schema": linux::undo::SCHEMA, "undone": undone}), |_| match undone.is_empty() {
        true => "nothing was left behind".into(),
        false => format!("undone: {}", undone.join(", ")),
    })
}
