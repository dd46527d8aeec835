//! What happened to the state of the switch that controllers may want to hear.
//!
//! **What.** An [`Event`] for each rule that came, changed or went, and for tables that fill up. Who hears of it, as a
//! flow-removed (§7.4.2), a flow monitor's update (1.4 §7.3.5.17) or a table-status (1.4 §7.4.4), is the business of
//! whoever knows the controllers; [`Monitor`] says what a monitor selects.
//!
//! **Why.** One list of facts serves all three.
//!
//! **Price.** An event keeps its rule alive after the table forgot it.

use crate::action::Action;
use crate::flags::flags;
use crate::matching::Match;
use crate::port::PortNo;
use crate::rule::{ALL_TABLES, ANY_GROUP, RemovedReason, Rule};
use std::sync::Arc;

/// A rule that went away, as a flow-removed message tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The table.
    pub table: u8,
    /// The rule; its flags say whether its controller wants to know.
    pub rule: Arc<Rule>,
    /// Why.
    pub reason: RemovedReason,
    /// How long it was there.
    pub duration_ns: u64,
    /// Frames that it matched.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A rule came.
    RuleAdded {
        /// The table.
        table: u8,
        /// The rule.
        rule: Arc<Rule>,
        /// The one whose place it took.
        old: Option<Arc<Rule>>,
    },
    /// The instructions of a rule changed.
    RuleModified {
        /// The table.
        table: u8,
        /// The rule as it is now.
        rule: Arc<Rule>,
        /// The rule as it was.
        old: Arc<Rule>,
    },
    /// A rule went.
    RuleRemoved(Removed),
    /// A table has less room than its vacancy_down, or again more than its vacancy_up (1.4 §7.3.4.1).
    Vacancy {
        /// The table.
        table: u8,
        /// Whether it has room again.
        up: bool,
        /// Per cent of the table that are free.
        vacancy: u8,
    },
    /// The configuration or the state of a port changed.
    PortChanged {
        /// The port.
        port: PortNo,
    },
}

flags! {
    /// What a flow monitor wants to hear (`ofp_flow_monitor_flags`, 1.4).
    pub MonitorFlags(u16) {
        /// The rules that are there when the monitor comes.
        INITIAL = 1 "initial",
        /// Rules that come.
        ADD = 2 "add",
        /// Rules that go.
        REMOVED = 4 "removed",
        /// Rules that change.
        MODIFY = 8 "modify",
        /// Tell the instructions, too.
        INSTRUCTIONS = 16 "instructions",
        /// Do not abbreviate the monitor's own changes.
        NO_ABBREV = 32 "no_abbrev",
        /// Only the monitor's own changes.
        ONLY_OWN = 64 "only_own",
    }
}

/// A flow monitor (1.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Monitor {
    /// The controller's number for it.
    pub id: u32,
    /// What it wants to hear.
    pub flags: MonitorFlags,
    /// The table, or [`ALL_TABLES`].
    pub table: u8,
    /// Only rules within this match.
    pub matching: Match,
    /// Only rules that send there; [`PortNo::ANY`] for no such condition.
    pub out_port: PortNo,
    /// Only rules that send to this group; [`ANY_GROUP`] for no such condition.
    pub out_group: u32,
}

impl Monitor {
    /// Whether a rule is one of those that the monitor is about.
    pub fn concerns(&self, table: u8, rule: &Rule) -> bool {
        (self.table == ALL_TABLES || self.table == table)
            && rule.matching.is_within(&self.matching)
            && sends_to_port(rule, self.out_port)
            && sends_to_group(rule, self.out_group)
    }

    /// Whether the monitor wants to hear of the event. It is about a rule that was one of its rules, too: who keeps a copy would go on
    /// believing in it.
    pub fn wants(&self, event: &Event) -> bool {
        let (flag, table, rule, old) = match event {
            Event::RuleAdded { table, rule, old } => (MonitorFlags::ADD, *table, rule, old.as_ref()),
            Event::RuleModified { table, rule, old } => (MonitorFlags::MODIFY, *table, rule, Some(old)),
            Event::RuleRemoved(gone) => (MonitorFlags::REMOVED, gone.table, &gone.rule, None),
            Event::Vacancy { .. } | Event::PortChanged { .. } => return false,
        };
        let is_meant = |rule: &Arc<Rule>| self.concerns(table, rule);
        self.flags.has(flag) && (is_meant(rule) || old.is_some_and(is_meant))
    }
}

/// Whether the rule itself sends to the port: in apply-actions or write-actions, not by its groups (§6.4). True for
/// [`PortNo::ANY`].
pub fn sends_to_port(rule: &Rule, port: PortNo) -> bool {
    let is_it = |action: &Action| matches!(action, Action::Output { port: to, .. } if *to == port);
    port == PortNo::ANY || rule.instructions.iter().flat_map(|i| i.actions()).any(is_it)
}

/// Whether the rule itself sends to the group. True for [`ANY_GROUP`].
pub fn sends_to_group(rule: &Rule, group: u32) -> bool {
    group == ANY_GROUP || rule.groups().any(|to| to == group)
}
