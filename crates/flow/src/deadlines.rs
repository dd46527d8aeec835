//! Which rules of a table go away by themselves, and the next of them.
//!
//! **What.** The places of all rules with a timeout (§5.5), ordered by the time under which each was filed.
//!
//! **Why.** The switch asks for the next deadline on every turn of its loop, and a walk over a million rules for the answer
//! is milliseconds under the lock that frames wait for. Here it is the first item of an ordered set. A hard timeout stays where it
//! is; an idle timeout moves with every frame, and a frame must not pay for that. So a rule stays filed under an old deadline,
//! which is never later than the true one, and is filed anew when the old one comes.
//!
//! **Price.** A rule with an idle timeout that is used all the time is looked at once in each of its timeouts, and a rule with a
//! timeout takes some 40 bytes more. The walk over all rules is the twin in `tests/timeouts.rs`.

use crate::entry::Deadline;
use crate::rule::RulePosition;
use std::collections::BTreeSet;

/// The places of rules with a timeout, the soonest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deadlines(BTreeSet<(u64, RulePosition)>);

impl Deadlines {
    /// Files the rule under its deadline, if it has one; the time under which it will be found.
    pub(crate) fn file(&mut self, place: RulePosition, deadline: Option<Deadline>) -> Option<u64> {
        let (at, _) = deadline?;
        self.0.insert((at, place));
        Some(at)
    }

    /// Forgets a rule that was filed under this time.
    pub(crate) fn forget(&mut self, place: RulePosition, filed: Option<u64>) {
        if let Some(at) = filed {
            self.0.remove(&(at, place));
        }
    }

    /// Takes out a rule that was filed under a time that has come.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<RulePosition> {
        let first = self.0.first().filter(|(at, _)| *at <= now)?;
        let place = first.1;
        self.0.pop_first();
        Some(place)
    }

    /// The soonest time under which a rule is filed.
    pub(crate) fn next(&self) -> Option<u64> {
        self.0.first().map(|(at, _)| *at)
    }
}
