//! Whether a change of knobs helps: what is worth trying, what of many is best, and the arm of a trial that has a change.
//!
//! **Price.** Both arms are the same lab, so every measurement of the other arm changes the knobs first.

pub mod search;
pub mod suspects;
pub mod usual;

use crate::change::{Changed, LabChange, Tunable};
use crate::trial::TrialSide;
use linux::journal::Journals;
use record::Result;

/// The changes that arm B of a trial has and arm A has not: made before B is measured, put back before A is.
pub struct ChangedArm<'a> {
    journals: &'a Journals,
    place: &'a dyn Tunable,
    changes: &'a [LabChange],
    may_flap: bool,
    held: Option<Changed>,
}

impl<'a> ChangedArm<'a> {
    /// Nothing is changed yet.
    pub fn new(
        journals: &'a Journals,
        place: &'a dyn Tunable,
        changes: &'a [LabChange],
        may_flap: bool,
    ) -> Self {
        ChangedArm { journals, place, changes, may_flap, held: None }
    }

    /// Makes the lab or the hosts what that arm needs; what it is already stays.
    ///
    /// # Errors
    /// As [`Changed::make`] and [`Changed::put_back`].
    pub fn enter(&mut self, side: TrialSide) -> Result<()> {
        match (side, self.held.take()) {
            (TrialSide::B, None) => {
                self.held = Some(Changed::make(self.journals, self.place, self.changes, self.may_flap)?);
            }
            (TrialSide::A, Some(changed)) => changed.put_back(self.place)?,
            (_, as_before) => self.held = as_before,
        }
        Ok(())
    }
}
