//! Rules as they travel: flow-mod, statistics, removal and monitors.

use super::action::{Action, Instruction};
use super::bytes::{Bytes, Hex, Part, Reader, Tagged, Version, Writer, codes, flag_sets, layout, tagged};
use super::extension::{Always, MatchLength, MatchOfEitherForm};
use super::fault::Fault;
use super::forms::{In14, LengthBefore};
use super::oxm::Match;
use super::tree::Tree;
use crate::error::BadRequest;
use crate::rule::ANY_GROUP;

flag_sets! { MonitorFlags, FlowFlags }

codes! {
    /// What a flow-mod does.
    pub FlowCommand(u8) { ADD = 0 "add", MODIFY = 1 "modify", MODIFY_STRICT = 2 "modify_strict", DELETE = 3 "delete", DELETE_STRICT = 4 "delete_strict" }
    /// Why a rule is gone. Group and meter: 1.4 (1.3 has group only).
    pub RemovedReason(u8) { IDLE_TIMEOUT = 0 "idle_timeout", HARD_TIMEOUT = 1 "hard_timeout", DELETE = 2 "delete", GROUP_DELETE = 3 "group_delete", METER_DELETE = 4 "meter_delete", EVICTION = 5 "eviction" }
    /// What happened to a monitored rule.
    pub MonitorEvent(u16) { INITIAL = 0 "initial", ADDED = 1 "added", REMOVED = 2 "removed", MODIFIED = 3 "modified", ABBREV = 4 "abbrev", PAUSED = 5 "paused", RESUMED = 6 "resumed" }
    /// What a monitor request does.
    pub MonitorCommand(u8) { ADD = 0 "add", MODIFY = 1 "modify", DELETE = 2 "delete" }
}

pub use crate::event::MonitorFlags;
pub use crate::rule::RuleFlags as FlowFlags;

layout! {
    /// `flow_mod`.
    pub struct FlowMod "flow_mod" {
        /// The controller's own number.
        cookie: Hex<u64>;
        /// Which bits of it choose rules to modify or delete.
        cookie_mask: Hex<u64>;
        /// Which table; 255 means all, to delete.
        table_id: u8;
        /// What to do.
        command: FlowCommand;
        /// Seconds without a frame until it goes.
        idle_timeout: u16;
        /// Seconds until it goes.
        hard_timeout: u16;
        /// Higher wins.
        priority: u16;
        /// A buffered frame to send through it; all ones means none.
        buffer_id: Hex<u32>;
        /// Deletes only rules that output here.
        out_port: u32;
        /// Deletes only rules that use this group.
        out_group: u32;
        /// Flags.
        flags: FlowFlags;
        /// What survives eviction (1.4).
        importance: u16 as In14;
        /// Which frames.
        matching: Match;
        /// What to do with them.
        instructions: Vec<Instruction>;
    }
    /// Which rules to report: body of the requests for rules and for sums.
    pub struct FlowStatsRequest "flow_stats_request" {
        /// Which table; 255 means all.
        table_id: u8;
        _ 3;
        /// Only rules that output here.
        out_port: u32;
        /// Only rules that use this group.
        out_group: u32;
        _ 4;
        /// Only rules with this cookie.
        cookie: Hex<u64>;
        /// Which bits of it.
        cookie_mask: Hex<u64>;
        /// Only rules that are as narrow or narrower.
        matching: Match;
    }
    /// A rule and its counters.
    pub struct FlowStats "flow_stats" [length at 0] {
        _ 2;
        /// In which table.
        table_id: u8;
        _ 1;
        /// How long it has been there.
        duration_sec: u32;
        /// And nanoseconds.
        duration_nsec: u32;
        /// Higher wins.
        priority: u16;
        /// Seconds without a frame until it goes.
        idle_timeout: u16;
        /// Seconds until it goes.
        hard_timeout: u16;
        /// Flags.
        flags: FlowFlags;
        /// What survives eviction (1.4).
        importance: u16 as In14;
        _ 2;
        /// The controller's own number.
        cookie: Hex<u64>;
        /// Frames.
        packet_count: u64;
        /// Their bytes.
        byte_count: u64;
        /// Which frames.
        matching: Match;
        /// What to do with them.
        instructions: Vec<Instruction>;
    }
    /// Sums over rules.
    pub struct AggregateStats "aggregate_stats" {
        /// Frames.
        packet_count: u64;
        /// Their bytes.
        byte_count: u64;
        /// Rules.
        flow_count: u32;
        _ 4;
    }
    /// `flow_removed`.
    pub struct FlowRemoved "flow_removed" {
        /// The controller's own number.
        cookie: Hex<u64>;
        /// As it was.
        priority: u16;
        /// Why.
        reason: RemovedReason;
        /// Where it was.
        table_id: u8;
        /// How long it was there.
        duration_sec: u32;
        /// And nanoseconds.
        duration_nsec: u32;
        /// As it was.
        idle_timeout: u16;
        /// As it was.
        hard_timeout: u16;
        /// Frames.
        packet_count: u64;
        /// Their bytes.
        byte_count: u64;
        /// Which frames.
        matching: Match;
    }
    /// A monitor that is wanted, changed or given up (1.4; in 1.3 an extension has it).
    pub struct MonitorRequest "flow_monitor_request" {
        /// The controller's number for it.
        monitor_id: u32;
        /// Only rules that output here.
        out_port: u32;
        /// Only rules that use this group.
        out_group: u32;
        /// What is wanted.
        flags: MonitorFlags;
        /// Which table; 255 means all.
        table_id: u8;
        /// What to do.
        command: MonitorCommand;
        /// Only rules that are as narrow or narrower.
        matching: Match;
    } in 1.3 {
        // There it cannot be changed, and a message of its own cancels it.
        monitor_id; flags; matching as MatchLength; out_port; table_id; _ 3; matching as MatchOfEitherForm(10);
        out_group as Always(ANY_GROUP);
    }
    /// A change of a rule, in full.
    pub struct UpdateFull "update" {
        /// In which table.
        table_id: u8;
        /// Why it is gone.
        reason: RemovedReason;
        /// Seconds.
        idle_timeout: u16;
        /// Seconds.
        hard_timeout: u16;
        /// Higher wins.
        priority: u16;
        _ 4;
        /// The controller's own number.
        cookie: Hex<u64>;
        /// Which frames.
        matching: Match;
        /// What to do with them, if asked for.
        instructions: Vec<Instruction>;
    } in 1.3 {
        _ 1; reason; priority; idle_timeout; hard_timeout; matching as MatchLength; table_id; _ 1; cookie; matching; instructions;
    }
    /// A change that the receiver caused itself, by the transaction number of its request.
    pub struct UpdateAbbrev "abbrev" {
        /// The number.
        xid: Hex<u32>;
    }
    /// Nothing more, padded.
    pub struct UpdatePause "pause" {
        _ 4;
    }
}

tagged! {
    /// What a monitor reports (1.4; in 1.3 an extension has it, with numbers that are one less).
    pub enum Update {
        /// Was there when the monitor began.
        0 "initial" => Initial(UpdateFull) in V14;
        /// Added.
        1 "added" => Added(UpdateFull);
        /// Removed.
        2 "removed" => Removed(UpdateFull);
        /// Changed.
        3 "modified" => Modified(UpdateFull);
        /// The receiver's own change.
        4 "abbrev" => Abbrev(UpdateAbbrev);
        /// Too many changes: some will be missing.
        5 "paused" => Paused(UpdatePause) in V14;
        /// Complete again.
        6 "resumed" => Resumed(UpdatePause) in V14;
    }
}

/// By how much the numbers of updates are less than 1.4's.
fn less(version: Version) -> u16 {
    u16::from(version == Version::V13)
}

impl Part for Update {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut body = r.measured(0)?;
        body.skip(2)?;
        let event = u16::read(&mut body)?.saturating_add(less(r.version));
        let update = Update::read_body(event, &mut body, BadRequest::BadType)?;
        body.end()?;
        Ok(update)
    }
    fn write(&self, w: &mut Writer) {
        let start = w.at();
        w.zeros(2);
        self.number().saturating_sub(less(w.version)).write(w);
        self.write_body(w);
        w.measure(start, 0);
    }
    fn tree(&self) -> Tree {
        self.body_tree()
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        Self::sample_body(s)
    }
}

codes! {
    /// Why a frame comes to a controller. 1.3 ends at invalid TTL; 1.4 split `action`.
    pub PacketInReason(u8) { TABLE_MISS = 0 "table_miss", APPLY_ACTION = 1 "apply_action", INVALID_TTL = 2 "invalid_ttl", ACTION_SET = 3 "action_set", GROUP = 4 "group", PACKET_OUT = 5 "packet_out" }
}

layout! {
    /// `packet_in`.
    pub struct PacketIn "packet_in" {
        /// Where the switch keeps the frame; all ones means nowhere.
        buffer_id: Hex<u32>;
        /// Bytes of the whole frame.
        total_len: u16;
        /// Why.
        reason: PacketInReason;
        /// Which table.
        table_id: u8;
        /// Of the rule.
        cookie: Hex<u64>;
        /// Port, metadata and the like.
        matching: Match;
        _ 2;
        /// The frame, or its beginning.
        data: Bytes;
    }
    /// `packet_out`.
    pub struct PacketOut "packet_out" {
        /// A frame that the switch keeps; all ones means the data.
        buffer_id: Hex<u32>;
        /// Where it is to appear to come from.
        in_port: u32;
        _ 8;
        /// What to do with it.
        actions: Vec<Action> as LengthBefore(8);
        /// The frame.
        data: Bytes;
    }
}
