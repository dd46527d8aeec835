//! Undo of every change to the machine: what each module's steps mean, and where journals are.
//!
//! **What.** [`journals`] opens the journals of this user, and undoes first what killed commands left behind; [`open`] only opens them. Every `pathlab lab`
//! command begins so, and `pathlab undo` does nothing else than clean. How a journal is written and read is told in [`crate::journal`].
//!
//! **Why on top.** A module that changes something gets the journals as an argument and writes steps of its own. So one more module with steps is one more
//! variant here, and no module sees another.
//!
//! **Price.** A journal with a step that this version does not know is damaged for it: it is kept and listed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::journal::{self, Journals};
use crate::{lab, tune};
use record::Result;

/// The steps of all modules. The variants of a module stand in a journal as they are, whichever module they are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RecordedStep {
    /// A part of a lab.
    Lab(lab::LabStep),
    /// A setting of an interface.
    Tune(tune::TuneStep),
}

/// What an entry of a journal stands for.
fn dispatch(entry: &Value) -> Option<Box<dyn journal::UndoStep>> {
    Some(match RecordedStep::deserialize(entry).ok()? {
        RecordedStep::Lab(step) => Box::new(step),
        RecordedStep::Tune(step) => Box::new(step),
    })
}

/// Opens the journals of this user; what killed commands left behind is undone first.
///
/// # Errors
/// As [`open`]. What cannot be undone is no reason to refuse other work: 'pathlab undo' says what it is.
pub fn journals() -> Result<Journals> {
    let journals = open()?;
    let _ = journals.clean();
    Ok(journals)
}

/// Opens the journals of this user ([`Journals::open`]).
///
/// # Errors
/// A host problem when the directory of journals cannot be made, or somebody else could write in it.
pub fn open() -> Result<Journals> {
    Journals::open(dispatch)
}

/// Opens the journals of a directory.
///
/// # Errors
/// As [`open`].
pub fn open_at(path: &std::path::Path) -> Result<Journals> {
    Journals::at(path, dispatch)
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod tests;
