//! A rule in its table.
//!
//! **What.** [`Entry`]: the rule, when it came, when a frame last matched it, and what it counted (§5.8); when it goes away
//! by itself (§5.5).
//!
//! **Why.** The table and its indices need it, and it needs neither.
//!
//! **Price.** The time under which it waits for its deadline is kept here, for the keeper of the deadlines.

use crate::rule::{RemovedReason, Rule, RuleFlags};
use std::sync::Arc;

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// When a rule goes away by itself, and why.
pub type Deadline = (u64, RemovedReason);

/// A rule in its table, with what happened to it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The rule.
    pub rule: Arc<Rule>,
    /// When it came.
    pub created_ns: u64,
    /// When it last matched a frame, or came.
    pub used_ns: u64,
    /// Frames that it matched.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Under which time [`crate::deadlines`] has it: never later than its deadline. None for a rule without a timeout.
    pub(crate) filed_ns: Option<u64>,
}

impl Entry {
    pub(crate) fn new(now: u64, rule: &Rule) -> Entry {
        let rule = Arc::new(rule.clone());
        Entry { rule, created_ns: now, used_ns: now, frames: 0, bytes: 0, filed_ns: None }
    }

    /// When the rule goes away by itself if no frame comes, and why.
    pub fn deadline(&self) -> Option<Deadline> {
        let after = |from: u64, seconds: u16| from.saturating_add(u64::from(seconds) * SECOND);
        let (idle, hard) = (self.rule.idle_timeout, self.rule.hard_timeout);
        let idle = (idle != 0).then(|| (after(self.used_ns, idle), RemovedReason::IdleTimeout));
        let hard = (hard != 0).then(|| (after(self.created_ns, hard), RemovedReason::HardTimeout));
        [hard, idle].into_iter().flatten().min_by_key(|(deadline, _)| *deadline)
    }

    /// Counts this many frames and bytes, unless the rule does not want it. Threads read the clock before they take their turn, so a
    /// frame may be older than the last one; a deadline only ever moves away.
    pub(crate) fn count(&mut self, now: u64, frames: u64, bytes: u64) {
        self.used_ns = self.used_ns.max(now);
        self.frames += if self.rule.flags.has(RuleFlags::NO_PKT_COUNTS) { 0 } else { frames };
        self.bytes += if self.rule.flags.has(RuleFlags::NO_BYT_COUNTS) { 0 } else { bytes };
    }

    pub(crate) fn reset(&mut self) {
        (self.frames, self.bytes) = (0, 0);
    }
}
