//! One table of rules.
//!
//! **What.** Rules by priority, the changes of §6.4 (add, modify, delete, strict or not, with their filters), timeouts
//! (§6.6), eviction and vacancy (1.4 §6.5, §7.3.4.1), and the counters of §5.8.
//!
//! **Why.** This is the meaning, so a lookup is a walk from the highest priority down. What changes ask has an index, because a
//! controller that writes n rules should not cost n²: which rule has this match and priority, which rule overlaps it, which rules
//! are within a match ([`crate::shapes`]). So has "which rule goes away by itself next" ([`crate::deadlines`]), because whoever has
//! the clock asks it all the time.
//!
//! **Price.** Among overlapping rules of one priority the standard leaves the choice open; here the one that came first
//! wins, and a rule that replaces another takes its place.

use crate::changed::NOTED;
use crate::deadlines::Deadlines;
use crate::entry::Entry;
use crate::event::{Event, Removed};
use crate::field::{Field, Value};
use crate::flags::flags;
use crate::rule::{FlowMod, RemovedReason, Rule, RuleFlags, RulePosition};
use crate::selection::Selection;
use crate::shapes::Shapes;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The highest number of a table: 254, because 255 means all.
pub const LAST_TABLE: u8 = 254;

flags! {
    /// By what a full table chooses the rule that makes place (1.4, `ofp_table_mod_prop_eviction_flag`).
    pub EvictionFlags(u32) {
        /// By something of the switch's own; here the age.
        OTHER = 1 "other",
        /// The least important first.
        IMPORTANCE = 2 "importance",
        /// The one that would go soonest first.
        LIFETIME = 4 "lifetime",
    }
    /// What a table does beside looking up (1.4, `ofp_table_config`).
    pub TableFlags(u32) {
        /// A full table throws a rule out instead of refusing one.
        EVICTION = 4 "eviction",
        /// Tell when the table fills up.
        VACANCY_EVENTS = 8 "vacancy_events",
    }
}

/// What a controller may set of a table (1.4 §7.3.4.1; 1.3 has nothing that may be set).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableConfig {
    /// What it does beside looking up.
    pub flags: TableFlags,
    /// By what to evict.
    pub eviction_flags: EvictionFlags,
    /// Per cent of room under which the table reports that it fills up.
    pub vacancy_down: u8,
    /// Per cent of room above which it reports that it has room again.
    pub vacancy_up: u8,
}

/// A table.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Its number.
    pub number: u8,
    /// Its name.
    pub name: String,
    /// Rules that it may hold.
    pub max_rules: usize,
    /// What controllers set.
    pub config: TableConfig,
    /// Frames that were looked up.
    pub lookups: u64,
    /// Frames that a rule matched.
    pub matched: u64,
    /// Rules that changes were compared with: the work that changes make.
    pub looked: u64,
    rules: BTreeMap<RulePosition, Entry>,
    pub(crate) shapes: Shapes,
    next: u64,
    /// Rules with a timeout, the soonest first.
    deadlines: Deadlines,
    /// The last vacancy event said that the table is full.
    is_tight: bool,
    /// Rules that came, changed or went since they were asked for; at most one more than [`NOTED`].
    changed: Vec<RulePosition>,
}

impl Table {
    /// An empty table.
    pub fn new(number: u8, max_rules: usize) -> Table {
        Table { number, name: format!("table{number}"), max_rules, ..Table::default() }
    }

    /// The rules, the highest priority first.
    pub fn rules(&self) -> impl Iterator<Item = (RulePosition, &Entry)> {
        self.rules.iter().map(|(place, entry)| (*place, entry))
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// One rule.
    pub fn get(&self, place: RulePosition) -> Option<&Entry> {
        self.rules.get(&place)
    }

    /// Counts this many frames with this many bytes altogether on a rule; returns the rule.
    pub fn count(&mut self, now: u64, place: RulePosition, frames: u64, bytes: u64) -> Option<Arc<Rule>> {
        let entry = self.rules.get_mut(&place)?;
        entry.count(now, frames, bytes);
        Some(entry.rule.clone())
    }

    /// Adds what another engine counted: frames that were looked up here, and how many of them matched.
    pub fn credit(&mut self, lookups: u64, matched: u64) {
        self.lookups += lookups;
        self.matched += matched;
    }

    /// The first rule that matches a frame with these fields (§5.3): for each field of the match the frame has a value,
    /// and the one that is asked for.
    pub fn lookup(&self, value_of: impl Fn(Field) -> Option<Value>) -> Option<RulePosition> {
        let accepts = |entry: &Entry| {
            let mut fields = entry.rule.matching.fields().iter();
            fields.all(|field| {
                field.bits() == 0 || value_of(field.field).is_some_and(|value| field.accepts(value))
            })
        };
        self.rules.iter().find(|(_, entry)| accepts(entry)).map(|(place, _)| *place)
    }

    /// Whether a rule of the same priority can match a frame that `rule` matches (§6.4). The same match overlaps, too.
    pub fn has_overlap(&mut self, rule: &Rule) -> bool {
        let (found, looked) = self.shapes.overlap(&self.rules, rule);
        self.looked += looked as u64;
        found
    }

    /// The place of the rule with this priority and match.
    pub fn find(&self, rule: &Rule) -> Option<RulePosition> {
        self.shapes.find(&self.rules, rule)
    }

    /// What would go to make room for a rule: `Ok(None)` when there is room, an error when nothing may go.
    pub fn room_for(&self, rule: &Rule) -> Result<Option<RulePosition>, NoRoom> {
        if self.rules.len() < self.max_rules || self.find(rule).is_some() {
            return Ok(None);
        }
        if !self.config.flags.has(TableFlags::EVICTION) {
            // The usual case: a controller that goes on adding costs no walk over the full table for each rule.
            return Err(NoRoom);
        }
        let flags = self.config.eviction_flags;
        let by_importance = flags.has(EvictionFlags::IMPORTANCE);
        let worth = |place: &RulePosition, entry: &Entry| {
            let importance = if by_importance { entry.rule.importance } else { 0 };
            let end = entry.deadline().map_or(u64::MAX, |(end, _)| end);
            (importance, if flags.has(EvictionFlags::LIFETIME) { end } else { 0 }, entry.created_ns, place.1)
        };
        let least = self.rules.iter().min_by_key(|(place, entry)| worth(place, entry));
        match least {
            // A rule does not make place for a less important one.
            Some((place, entry)) if !(by_importance && entry.rule.importance > rule.importance) => {
                Ok(Some(*place))
            }
            _ => Err(NoRoom),
        }
    }

    /// Adds a rule, in the place of one with its match and priority (§6.4); the caller has made room.
    pub fn add(&mut self, now: u64, rule: &Rule, events: &mut Vec<Event>) {
        let replaced = self.find(rule);
        let place = replaced.unwrap_or((Reverse(rule.priority), self.next));
        let old = replaced.and_then(|place| self.take(place));
        let mut entry = Entry::new(now, rule);
        if let Some(old) = old.as_ref().filter(|_| !rule.flags.has(RuleFlags::RESET_COUNTS)) {
            // §6.4: counters "should be copied from the replaced flow entry"; the duration begins anew.
            (entry.frames, entry.bytes) = (old.frames, old.bytes);
        }
        self.next += u64::from(replaced.is_none());
        entry.filed_ns = self.deadlines.file(place, entry.deadline());
        let old = old.map(|old| old.rule);
        events.push(Event::RuleAdded { table: self.number, rule: entry.rule.clone(), old });
        self.shapes.file(place, rule);
        self.rules.insert(place, entry);
        self.note(place);
    }

    /// Notes that a rule changed.
    fn note(&mut self, place: RulePosition) {
        if self.changed.len() <= NOTED {
            self.changed.push(place);
        }
    }

    /// Rules that came, changed or went; of more than [`NOTED`] not all.
    pub(crate) fn changed(&self) -> &[RulePosition] {
        &self.changed
    }

    /// Forgets which rules changed.
    pub(crate) fn forget_changed(&mut self) {
        self.changed.clear();
    }

    /// Makes room in the index for a selection that comes again and again. Changes nothing that can be seen.
    pub(crate) fn prepare(&mut self, selection: &Selection<'_>) {
        self.looked += self.shapes.prepare(&self.rules, selection) as u64;
    }

    /// The places of the rules that a selection takes, and how many rules were looked at to find them.
    pub fn select(&self, selection: &Selection<'_>) -> (Vec<RulePosition>, usize) {
        if selection.strict {
            let place = self.find(selection.rule);
            let taken = place.filter(|place| selection.filters(&self.rules[place].rule));
            return (taken.into_iter().collect(), 1);
        }
        self.shapes.select(&self.rules, selection)
    }

    /// Gives rules other instructions; cookie, timeouts, flags, duration and, unless asked for, counters stay (§6.4).
    pub fn modify(&mut self, change: &FlowMod, strict: bool, events: &mut Vec<Event>) {
        let selection = Selection::of_modify(change, strict);
        self.prepare(&selection);
        let (taken, looked) = self.select(&selection);
        self.looked += looked as u64;
        for place in taken {
            let Some(entry) = self.rules.get_mut(&place) else { continue };
            let old = entry.rule.clone();
            self.shapes.forget_columns(place, &old);
            Arc::make_mut(&mut entry.rule).instructions.clone_from(&change.rule.instructions);
            self.shapes.file_columns(place, &entry.rule);
            if change.rule.flags.has(RuleFlags::RESET_COUNTS) {
                entry.reset();
            }
            events.push(Event::RuleModified { table: self.number, rule: entry.rule.clone(), old });
            self.note(place);
        }
    }

    /// Takes a rule out without a word.
    fn take(&mut self, place: RulePosition) -> Option<Entry> {
        let entry = self.rules.remove(&place)?;
        self.shapes.forget(place, &entry.rule);
        self.deadlines.forget(place, entry.filed_ns);
        self.note(place);
        Some(entry)
    }

    /// Removes a rule for a reason.
    pub fn remove(&mut self, now: u64, place: RulePosition, reason: RemovedReason, events: &mut Vec<Event>) {
        let Some(entry) = self.take(place) else { return };
        events.push(Event::RuleRemoved(Removed {
            table: self.number,
            rule: entry.rule,
            reason,
            duration_ns: now.saturating_sub(entry.created_ns),
            frames: entry.frames,
            bytes: entry.bytes,
        }));
    }

    /// Removes the rules whose time is over, in the order of the table. Looks at no others but those that a frame has used since
    /// they were last looked at.
    pub fn expire(&mut self, now: u64, events: &mut Vec<Event>) {
        let mut over = vec![];
        while let Some(place) = self.deadlines.pop_due(now) {
            let Some(entry) = self.rules.get_mut(&place) else { continue };
            entry.filed_ns = None;
            match entry.deadline() {
                Some((at, reason)) if at <= now => over.push((place, reason)),
                later => entry.filed_ns = self.deadlines.file(place, later),
            }
        }
        over.sort_unstable_by_key(|(place, _)| *place);
        for (place, reason) in over {
            self.remove(now, place, reason, events);
        }
    }

    /// Files rules anew that a frame has used since they were looked at; whether the time of one is over.
    pub fn is_any_over(&mut self, now: u64) -> bool {
        while let Some(place) = self.deadlines.pop_due(now) {
            let Some(entry) = self.rules.get_mut(&place) else { continue };
            let deadline = entry.deadline();
            entry.filed_ns = self.deadlines.file(place, deadline);
            if deadline.is_some_and(|(at, _)| at <= now) {
                return true;
            }
        }
        false
    }

    /// When to look next whether a rule's time is over: never too late; too early when a frame has used the rule in the meantime.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.next()
    }

    /// Per cent of the table that are free.
    pub fn vacancy(&self) -> u8 {
        let free = self.max_rules.saturating_sub(self.rules.len());
        (free * 100).checked_div(self.max_rules).unwrap_or(0) as u8
    }

    /// Begins to watch the vacancy anew: when there is less room than vacancy_up now, the next event can only be that
    /// there is room again (1.4 §7.3.4.1).
    pub fn watch_vacancy(&mut self) {
        self.is_tight = self.vacancy() < self.config.vacancy_up;
    }

    /// Tells when a limit of vacancy was passed; the two events alternate.
    pub fn tell_vacancy(&mut self, events: &mut Vec<Event>) {
        if !self.config.flags.has(TableFlags::VACANCY_EVENTS) {
            return;
        }
        let vacancy = self.vacancy();
        let up = match self.is_tight {
            false if vacancy < self.config.vacancy_down => false,
            true if vacancy > self.config.vacancy_up => true,
            _ => return,
        };
        self.is_tight = !up;
        events.push(Event::Vacancy { table: self.number, up, vacancy });
    }

    /// The groups that rules send to, each as often as it is named.
    pub fn groups(&self) -> impl Iterator<Item = u32> + '_ {
        self.rules.values().flat_map(|entry| entry.rule.groups())
    }
}

/// A full table from which nothing may be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;
