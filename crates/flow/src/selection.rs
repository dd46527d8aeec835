//! Which rules a request is about.
//!
//! **What.** [`Selection`]: a match, strict or not, and the filters of §6.4 beside it; for groups and meters that go, what a
//! rule must refer to.
//!
//! **Why.** Changes, questions and the index of a table ask in the same words; the slow answer is [`Selection::takes`] for
//! each rule.
//!
//! **Price.** It borrows a whole rule for its match, priority and cookie.

use crate::event::{sends_to_group, sends_to_port};
use crate::port::PortNo;
use crate::rule::{ANY_GROUP, FlowMod, Rule};

/// What a rule must refer to: groups or meters whose numbers are from one to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refers {
    /// No condition.
    Anywhere,
    /// It sends to one of these groups itself.
    ToGroups(u32, u32),
    /// It uses one of these meters.
    ToMeters(u32, u32),
}

/// Which rules a request is about (flow-stats, deletes, modifies, groups and meters that go): all conditions have to hold.
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    /// Rules within this match, or with exactly it when `strict`.
    pub rule: &'a Rule,
    /// Compare match and priority exactly.
    pub strict: bool,
    /// Bits of the cookie that must be those of `rule`.
    pub cookie_mask: u64,
    /// Rules that send there; [`PortNo::ANY`] for no condition.
    pub out_port: PortNo,
    /// Rules that send to this group; [`ANY_GROUP`] for no condition.
    pub out_group: u32,
    /// Rules that refer there.
    pub refers: Refers,
}

impl Selection<'_> {
    /// The rules within a match.
    pub fn within(rule: &Rule) -> Selection<'_> {
        let (out_port, out_group, refers) = (PortNo::ANY, ANY_GROUP, Refers::Anywhere);
        Selection { rule, strict: false, cookie_mask: 0, out_port, out_group, refers }
    }

    /// The conditions of a delete.
    pub fn of_delete(change: &FlowMod, strict: bool) -> Selection<'_> {
        let (out_port, out_group) = (change.out_port, change.out_group);
        Selection { out_port, out_group, ..Selection::of_modify(change, strict) }
    }

    /// The conditions of a modify: out_port and out_group count for deletes only (§6.4).
    pub fn of_modify(change: &FlowMod, strict: bool) -> Selection<'_> {
        Selection { strict, cookie_mask: change.cookie_mask, ..Selection::within(&change.rule) }
    }

    /// Whether all conditions but the match hold.
    pub(crate) fn filters(&self, rule: &Rule) -> bool {
        (rule.cookie ^ self.rule.cookie) & self.cookie_mask == 0
            && sends_to_port(rule, self.out_port)
            && sends_to_group(rule, self.out_group)
            && match self.refers {
                Refers::Anywhere => true,
                Refers::ToGroups(from, to) => rule.groups().any(|id| (from..=to).contains(&id)),
                Refers::ToMeters(from, to) => rule.meters().any(|id| (from..=to).contains(&id)),
            }
    }

    /// Whether every rule is taken, whatever it is.
    pub fn is_all(&self) -> bool {
        let whole = self.rule.matching.fields().iter().all(|field| field.bits() == 0);
        let anywhere = (PortNo::ANY, ANY_GROUP, Refers::Anywhere);
        whole
            && !self.strict
            && self.cookie_mask == 0
            && (self.out_port, self.out_group, self.refers) == anywhere
    }

    /// Whether all conditions hold.
    pub fn takes(&self, rule: &Rule) -> bool {
        let is_meant = match self.strict {
            true => rule.priority == self.rule.priority && rule.matching.same(&self.rule.matching),
            false => rule.matching.is_within(&self.rule.matching),
        };
        is_meant && self.filters(rule)
    }
}
