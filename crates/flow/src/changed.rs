//! Which rules changed since somebody asked.
//!
//! **What.** Tables note the places of rules that come, change or go; [`crate::pipeline::Pipeline::take_changed`] hands them out as [`Changed`].
//!
//! **Why.** An engine that compiles rules brings those up to date, and not all of them.
//!
//! **Price.** A push for each change, also where nobody asks: then a table stops noting after [`NOTED`].

use crate::rule::RulePosition;

/// The most rules that are listed; of more it is not known which.
pub const NOTED: usize = 4096;

/// What changed of a pipeline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// Rules that came, changed or went, by table and place; some more than once.
    pub rules: Vec<(u8, RulePosition)>,
    /// A port came, or does something else with frames.
    pub ports: bool,
    /// Something else changed, or too many rules to list.
    pub everything: bool,
}

impl Changed {
    /// Adds what changed later.
    pub fn add(&mut self, later: &Changed) {
        self.rules.extend(&later.rules);
        self.ports |= later.ports;
        self.everything |= later.everything || self.rules.len() > NOTED;
        if self.everything {
            self.rules.clear();
        }
    }
}
