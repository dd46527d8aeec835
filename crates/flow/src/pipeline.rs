//! The state of a switch, and every change of it.
//!
//! **What.** A [`Pipeline`] holds 255 tables, the groups, the meters, the ports and the bridge that NORMAL uses; the
//! functions here are the controller's changes (§6.4 to §6.8). Frames go through it in [`crate::interpret`].
//!
//! **Why.** Every change is checked completely before it changes anything, and answers the standard's error, so a
//! change that failed has left no trace. A bundle is a copy that takes the original's place when all went well: tables
//! are shared until one is written, so the copy is cheap.
//!
//! **Price.** Time is an argument; whoever has a clock calls [`Pipeline::expire`] when [`Pipeline::next_deadline`] has
//! passed, before the next frame.

use crate::action::Action;
use crate::bridge::Bridge;
use crate::changed::{Changed, NOTED};
use crate::check::{self, ActionContext};
use crate::entry::Entry;
use crate::error::{
    BadAction, BadRequest, Error, FlowModFailed, GroupModFailed, PortModFailed, SwitchConfigFailed,
    TableModFailed,
};
use crate::event::Event;
use crate::group::{ALL_GROUPS, GroupMod, Groups};
use crate::matching::Match;
use crate::meter::{ALL_METERS, MeterMod, Meters};
use crate::numbered::ModCommand;
use crate::port::{Port, PortCounters, PortMod, PortNo, PortState, Queue};
use crate::rule::{ALL_TABLES, FlowMod, FlowModCommand, RemovedReason, Rule, RuleFlags, RulePosition};
use crate::selection::{Refers, Selection};
use crate::table::{EvictionFlags, LAST_TABLE, Table, TableFlags};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::refuse_if;

/// Rules of one table, unless the switch is made with another number.
pub const RULE_LIMIT: usize = 1 << 20;

/// What to do with fragments of IP (§7.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fragments {
    /// Through the tables; what follows the header of a later one is not there.
    #[default]
    Normal,
    /// Drop them.
    Drop,
    /// Put them together: refused.
    Reassemble,
}

/// The configuration of a switch (§7.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// What to do with fragments.
    pub fragments: Fragments,
    /// Bytes of a buffered frame that a packet-in without an action carries (invalid TTL): reported back, and without effect where nothing is buffered.
    pub miss_send_len: u16,
}

/// A change of a table (§7.3.4.1): what is not said stays as it is, in each table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableMod {
    /// Which, or [`ALL_TABLES`].
    pub table: u8,
    /// What it does beside looking up.
    pub flags: Option<TableFlags>,
    /// By what to evict.
    pub eviction_flags: Option<EvictionFlags>,
    /// [`crate::table::TableConfig::vacancy_down`] and `vacancy_up`.
    pub vacancy: Option<(u8, u8)>,
}

/// Any change, for bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Of rules.
    Flow(FlowMod),
    /// Of groups.
    Group(GroupMod),
    /// Of meters.
    Meter(MeterMod),
    /// Of a port.
    Port(PortMod),
    /// Of a table.
    Table(TableMod),
}

/// The state of a switch.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// What controllers configured.
    pub config: Config,
    /// The ports.
    pub ports: BTreeMap<PortNo, Port>,
    /// The queues of packet-ins, by the port that the frames came in by; whoever talks to the controllers keeps their counters.
    pub packet_in_queues: BTreeMap<u32, Queue>,
    tables: Vec<Arc<Table>>,
    /// Rules that a controller may let a table hold.
    most_rules: usize,
    pub(crate) groups: Groups,
    pub(crate) meters: Meters,
    pub(crate) bridge: Bridge,
    /// What changed beside rules since it was asked for.
    changed: Changed,
}

impl Default for Pipeline {
    fn default() -> Pipeline {
        Pipeline::new(RULE_LIMIT)
    }
}

impl Pipeline {
    /// A switch without ports, rules, groups and meters, whose tables hold at most this many rules each.
    pub fn new(max_rules: usize) -> Pipeline {
        Pipeline {
            config: Config { fragments: Fragments::Normal, miss_send_len: 128 },
            ports: BTreeMap::new(),
            packet_in_queues: BTreeMap::new(),
            tables: (0..=LAST_TABLE).map(|number| Arc::new(Table::new(number, max_rules))).collect(),
            most_rules: max_rules,
            groups: Groups::default(),
            meters: Meters::default(),
            bridge: Bridge::default(),
            changed: Changed::default(),
        }
    }

    /// Adds a port, or gives a port that is there another face.
    pub fn add_port(&mut self, port: Port) {
        self.ports.insert(port.number, port);
        self.changed.ports = true;
    }

    /// What changed since this was asked last.
    pub fn take_changed(&mut self) -> Changed {
        let mut changed = std::mem::take(&mut self.changed);
        for table in self.tables.iter_mut().filter(|table| !table.changed().is_empty()) {
            changed.rules.extend(table.changed().iter().map(|place| (table.number, *place)));
            changed.everything |= table.changed().len() > NOTED;
            Arc::make_mut(table).forget_changed();
        }
        changed
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().map(|table| &**table)
    }

    /// One table; `None` for 255.
    pub fn table(&self, number: u8) -> Option<&Table> {
        self.tables.get(usize::from(number)).map(|table| &**table)
    }

    pub(crate) fn table_mut(&mut self, number: u8) -> Option<&mut Table> {
        self.tables.get_mut(usize::from(number)).map(Arc::make_mut)
    }

    /// The rules of all tables.
    pub fn len(&self) -> usize {
        self.tables().map(Table::len).sum()
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.tables().all(Table::is_empty)
    }

    /// Names a table, and says how many rules it may hold (table-features), of as many as the switch lets a table have.
    pub fn shape_table(&mut self, number: u8, name: &str, max_rules: usize) -> Vec<Event> {
        let (mut events, max_rules) = (vec![], max_rules.min(self.most_rules));
        if let Some(table) = self.table_mut(number) {
            name.clone_into(&mut table.name);
            table.max_rules = max_rules;
            table.tell_vacancy(&mut events);
        }
        events
    }

    /// The groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The meters.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// The rules that a request for statistics is about, table by table (§7.3.5.2). Only the index of a table may change.
    pub fn select<'a>(
        &'a mut self,
        table: u8,
        selection: &Selection<'_>,
    ) -> impl Iterator<Item = (u8, RulePosition, &'a Entry)> + use<'a> {
        let is_meant = move |one: &Arc<Table>| table == ALL_TABLES || one.number == table;
        let meant = self.tables.iter_mut().filter(|one| is_meant(one));
        // A question about all rules walks; there is no list of them to make first.
        let lists: Vec<Option<Vec<RulePosition>>> =
            meant.map(|table| (!selection.is_all()).then(|| chosen(table, selection))).collect();
        let tables = self.tables.iter().filter(move |one| is_meant(one));
        tables.zip(lists).flat_map(|(table, list)| {
            let rules: Box<dyn Iterator<Item = (RulePosition, &Entry)>> = match list {
                None => Box::new(table.rules()),
                Some(places) => Box::new(places.into_iter().filter_map(|at| Some((at, table.get(at)?)))),
            };
            rules.map(|(place, entry)| (table.number, place, entry))
        })
    }

    /// How many rules and buckets send to each group: its reference count; groups that have none are left out.
    pub fn group_references(&self) -> BTreeMap<u32, usize> {
        counted(self.groups.targets().chain(self.tables().flat_map(Table::groups)))
    }

    /// How many rules use each meter; meters that have none are left out.
    pub fn meter_references(&self) -> BTreeMap<u32, usize> {
        counted(self.tables().flat_map(Table::rules).flat_map(|(_, entry)| entry.rule.meters()))
    }

    /// Any change.
    pub fn apply(&mut self, now: u64, change: &Change) -> Result<Vec<Event>, Error> {
        match change {
            Change::Flow(change) => self.flow_mod(now, change),
            Change::Group(change) => self.group_mod(now, change),
            Change::Meter(change) => self.meter_mod(now, change),
            Change::Port(change) => self.port_mod(change),
            Change::Table(change) => self.table_mod(change),
        }
    }

    /// All changes, or none: then which one failed, and how (1.4 §6.9, atomic and ordered).
    pub fn bundle(&mut self, now: u64, changes: &[Change]) -> Result<Vec<Event>, (usize, Error)> {
        let mut copy = self.clone();
        let mut events = vec![];
        for (index, change) in changes.iter().enumerate() {
            events.extend(copy.apply(now, change).map_err(|error| (index, error))?);
        }
        *self = copy;
        Ok(events)
    }

    /// A change of rules (§6.4).
    pub fn flow_mod(&mut self, now: u64, change: &FlowMod) -> Result<Vec<Event>, Error> {
        use FlowModCommand::*;
        let is_delete = matches!(change.command, Delete | DeleteStrict);
        refuse_if(change.table == ALL_TABLES && !is_delete, FlowModFailed::BadTableId)?;
        if !is_delete {
            check::instructions(&change.rule, change.table, &self.groups, &self.meters)?;
            // This switch has no buffers; a delete has no use for one (§7.3.4.2).
            refuse_if(change.buffer.is_some(), BadRequest::BufferUnknown)?;
        }
        let mut events = vec![];
        match change.command {
            Add => self.add(now, change, &mut events)?,
            Modify | ModifyStrict => {
                let strict = change.command == ModifyStrict;
                if let Some(table) = self.table_mut(change.table) {
                    table.modify(change, strict, &mut events);
                }
            }
            Delete | DeleteStrict => {
                let selection = Selection::of_delete(change, change.command == DeleteStrict);
                events = self.remove_rules(now, change.table, &selection, RemovedReason::Delete);
            }
        }
        Ok(events)
    }

    fn add(&mut self, now: u64, change: &FlowMod, events: &mut Vec<Event>) -> Result<(), Error> {
        let rule = &change.rule;
        let table = self.table_mut(change.table).ok_or(FlowModFailed::BadTableId)?;
        if rule.flags.has(RuleFlags::CHECK_OVERLAP) && table.has_overlap(rule) {
            return Err(FlowModFailed::Overlap.into());
        }
        if let Some(place) = table.room_for(rule).map_err(|_| FlowModFailed::TableFull)? {
            table.remove(now, place, RemovedReason::Eviction, events);
        }
        table.add(now, rule, events);
        table.tell_vacancy(events);
        Ok(())
    }

    /// Removes the rules of a table, or of all, that a selection takes.
    fn remove_rules(&mut self, now: u64, table: u8, which: &Selection<'_>, why: RemovedReason) -> Vec<Event> {
        let mut events = vec![];
        for one in self.tables.iter_mut().filter(|one| table == ALL_TABLES || table == one.number) {
            let taken = chosen(one, which);
            if taken.is_empty() {
                continue;
            }
            let one = Arc::make_mut(one);
            for place in taken {
                one.remove(now, place, why, &mut events);
            }
            one.tell_vacancy(&mut events);
        }
        events
    }

    /// Removes the rules that refer to what is gone.
    fn remove_referring(&mut self, now: u64, refers: Refers, reason: RemovedReason) -> Vec<Event> {
        let any = Rule::new(0, Match::all(), vec![]);
        let selection = Selection { refers, ..Selection::within(&any) };
        self.remove_rules(now, ALL_TABLES, &selection, reason)
    }

    /// A change of groups (§6.5). A group that goes takes the rules along that send to it.
    pub fn group_mod(&mut self, now: u64, change: &GroupMod) -> Result<Vec<Event>, Error> {
        self.groups.check(change)?;
        if change.command != ModCommand::Delete {
            for bucket in &change.group.buckets {
                let port = bucket.watch_port;
                let is_unknown = port != PortNo::ANY && !self.ports.contains_key(&port);
                refuse_if(is_unknown, GroupModFailed::BadWatch)?;
                check::free_actions(&bucket.actions, ActionContext::Bucket, &self.groups)?;
            }
        }
        self.groups.apply(now, change);
        self.changed.everything = true;
        if change.command != ModCommand::Delete {
            return Ok(vec![]);
        }
        let refers = match change.group.id {
            ALL_GROUPS => Refers::ToGroups(0, u32::MAX),
            id => Refers::ToGroups(id, id),
        };
        Ok(self.remove_referring(now, refers, RemovedReason::GroupDelete))
    }

    /// A change of meters (§6.8). A meter that goes takes the rules along that use it.
    pub fn meter_mod(&mut self, now: u64, change: &MeterMod) -> Result<Vec<Event>, Error> {
        self.meters.check(change)?;
        self.meters.apply(now, change);
        self.changed.everything = true;
        if change.command != ModCommand::Delete {
            return Ok(vec![]);
        }
        let refers = match change.meter.id {
            ALL_METERS => Refers::ToMeters(0, u32::MAX),
            id => Refers::ToMeters(id, id),
        };
        Ok(self.remove_referring(now, refers, RemovedReason::MeterDelete))
    }

    /// A change of a port (§7.3.4.3).
    pub fn port_mod(&mut self, change: &PortMod) -> Result<Vec<Event>, Error> {
        let port = self.ports.get_mut(&change.port).ok_or(PortModFailed::BadPort)?;
        refuse_if(port.address != change.address, PortModFailed::BadHwAddr)?;
        let before = port.config;
        port.config.0 = before.0 & !change.mask.0 | change.config.0 & change.mask.0;
        self.changed.ports = true;
        let event = Event::PortChanged { port: change.port };
        Ok(if port.config == before { vec![] } else { vec![event] })
    }

    /// What the link of a port says now; whoever runs the ports calls this.
    pub fn set_port_state(&mut self, number: PortNo, state: PortState) -> Vec<Event> {
        let changed = self.ports.get_mut(&number).filter(|port| port.state != state);
        let Some(port) = changed else { return vec![] };
        port.state = state;
        self.changed.ports = true;
        if !port.is_live() {
            self.bridge.forget(number);
        }
        vec![Event::PortChanged { port: number }]
    }

    /// A change of a table (§7.3.4.1, 1.4).
    pub fn table_mod(&mut self, change: &TableMod) -> Result<Vec<Event>, Error> {
        refuse_if(change.vacancy.is_some_and(|(down, up)| down > up || up > 100), TableModFailed::BadConfig)?;
        for table in &mut self.tables {
            if change.table == ALL_TABLES || change.table == table.number {
                let table = Arc::make_mut(table);
                let config = &mut table.config;
                config.flags = change.flags.unwrap_or(config.flags);
                config.eviction_flags = change.eviction_flags.unwrap_or(config.eviction_flags);
                let old = (config.vacancy_down, config.vacancy_up);
                (config.vacancy_down, config.vacancy_up) = change.vacancy.unwrap_or(old);
                table.watch_vacancy();
            }
        }
        Ok(vec![])
    }

    /// A change of the configuration (§7.3.2).
    pub fn set_config(&mut self, config: Config) -> Result<(), Error> {
        refuse_if(config.fragments == Fragments::Reassemble, SwitchConfigFailed::BadFlags)?;
        self.config = config;
        self.changed.everything = true;
        Ok(())
    }

    /// Checks a packet-out: where it says that the frame came from, and its actions (§7.3.7). The standard has "a valid standard
    /// switch port or OFPP_CONTROLLER"; controllers write ANY for none (OpenFlow 1.0's OFPP_NONE) and LOCAL where there is no
    /// such port, and Open vSwitch takes both (`ofputil_decode_packet_out`).
    pub fn check_packet_out(&self, in_port: PortNo, actions: &[Action]) -> Result<(), Error> {
        let is_there = self.ports.contains_key(&in_port);
        if !is_there && ![PortNo::CONTROLLER, PortNo::ANY, PortNo::LOCAL].contains(&in_port) {
            return Err(BadRequest::BadPort.into());
        }
        let sends_back = |action: &Action| matches!(action, Action::Output { port: PortNo::IN_PORT, .. });
        refuse_if(!is_there && actions.iter().any(sends_back), BadAction::BadOutPort)?;
        check::free_actions(actions, ActionContext::PacketOut, &self.groups)
    }

    /// Removes the rules whose time is over (§5.5).
    pub fn expire(&mut self, now: u64) -> Vec<Event> {
        let mut events = vec![];
        for table in &mut self.tables {
            if table.next_deadline().is_some_and(|at| at <= now) {
                let table = Arc::make_mut(table);
                table.expire(now, &mut events);
                table.tell_vacancy(&mut events);
            }
        }
        events
    }

    /// Whether [`Pipeline::expire`] would find a rule whose time is over. What was used meanwhile has a later deadline then.
    pub fn is_any_over(&mut self, now: u64) -> bool {
        let mut due =
            self.tables.iter_mut().filter(|table| table.next_deadline().is_some_and(|at| at <= now));
        due.any(|table| Arc::make_mut(table).is_any_over(now))
    }

    /// Adds what another engine counted for a rule and its table; `used_ns` is when the last of the frames came. Of a rule that is gone
    /// the table counts.
    pub fn credit_rule(&mut self, table: u8, place: RulePosition, used_ns: u64, frames: u64, bytes: u64) {
        if let Some(table) = self.table_mut(table) {
            table.credit(frames, frames);
            table.count(used_ns, place, frames, bytes);
        }
    }

    /// Adds frames that another engine looked up in a table and that matched no rule.
    pub fn credit_misses(&mut self, table: u8, frames: u64) {
        if let Some(table) = self.table_mut(table) {
            table.credit(frames, 0);
        }
    }

    /// Adds what another engine counted at a port.
    pub fn credit_port(&mut self, number: PortNo, counters: &PortCounters) {
        if let Some(port) = self.ports.get_mut(&number) {
            port.counters.add(counters);
        }
    }

    /// When [`Pipeline::expire`] is to be called next: no rule goes away before. It may find that the rule was used meanwhile, and
    /// then there is a later time here.
    pub fn next_deadline(&self) -> Option<u64> {
        self.tables().filter_map(Table::next_deadline).min()
    }
}

/// How often each number is there.
fn counted(numbers: impl Iterator<Item = u32>) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    numbers.for_each(|number| *counts.entry(number).or_default() += 1);
    counts
}

/// The places of the rules of a table that a selection takes.
fn chosen(table: &mut Arc<Table>, selection: &Selection<'_>) -> Vec<RulePosition> {
    if table.is_empty() {
        return vec![];
    }
    // A table that a bundle shares with the original is not copied for a better index.
    if let Some(own) = Arc::get_mut(table) {
        own.prepare(selection);
    }
    let (taken, looked) = table.select(selection);
    if let Some(own) = Arc::get_mut(table) {
        own.looked += looked as u64;
    }
    taken
}
