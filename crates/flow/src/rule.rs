//! Rules, and what changes them.
//!
//! **What.** A [`Rule`] (§5.2) and a [`FlowMod`] (§7.3.4.2), with the commands and flags of both.
//!
//! **Why.** The standard says "flow entry"; this project says rule, one word for one thing.
//!
//! **Price.** A flow-mod carries a buffer's number, though the switch has no buffers, so that it can be refused.

use crate::action::{Action, Instruction};
use crate::flags::flags;
use crate::matching::Match;
use crate::port::PortNo;
use std::cmp::Reverse;

/// The table number that means every table (`OFPTT_ALL`), for deletes and for requests.
pub const ALL_TABLES: u8 = 255;
/// The group number that means any group (`OFPG_ANY`).
pub const ANY_GROUP: u32 = 0xffff_ffff;

/// Where a rule stands in its table: the highest priority first, then the oldest.
pub type RulePosition = (Reverse<u16>, u64);

flags! {
    /// Flags of a rule (`ofp_flow_mod_flags`).
    pub RuleFlags(u16) {
        /// Tell the controllers when the rule goes away.
        SEND_FLOW_REM = 1 "send_flow_rem",
        /// Refuse the rule when another of the same priority overlaps it.
        CHECK_OVERLAP = 2 "check_overlap",
        /// Reset the counters of the rules that are modified or replaced.
        RESET_COUNTS = 4 "reset_counts",
        /// Do not count frames.
        NO_PKT_COUNTS = 8 "no_pkt_counts",
        /// Do not count bytes.
        NO_BYT_COUNTS = 16 "no_byt_counts",
    }
}

/// A rule, as a controller wrote it; by default one for all frames that does nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// The highest one of those that match wins.
    pub priority: u16,
    /// The controller's own number.
    pub cookie: u64,
    /// Seconds without a frame after which the rule goes away; 0 for never.
    pub idle_timeout: u16,
    /// Seconds after which the rule goes away; 0 for never.
    pub hard_timeout: u16,
    /// Flags.
    pub flags: RuleFlags,
    /// The lower, the sooner the rule is evicted from a full table (1.4).
    pub importance: u16,
    /// Which frames it is for.
    pub matching: Match,
    /// What is done with them, in the order in which it was sent.
    pub instructions: Vec<Instruction>,
}

impl Rule {
    /// A rule that never goes away by itself, with cookie 0 and no flags.
    pub fn new(priority: u16, matching: Match, instructions: Vec<Instruction>) -> Rule {
        Rule { priority, matching, instructions, ..Rule::default() }
    }

    /// The groups that it sends to itself, each as often as it is named.
    pub fn groups(&self) -> impl Iterator<Item = u32> + '_ {
        self.instructions.iter().flat_map(Instruction::actions).filter_map(|action| match action {
            Action::Group(id) => Some(*id),
            _ => None,
        })
    }

    /// The meters that it uses.
    pub fn meters(&self) -> impl Iterator<Item = u32> + '_ {
        self.instructions.iter().filter_map(|instruction| match instruction {
            Instruction::Meter(id) => Some(*id),
            _ => None,
        })
    }

    /// Whether this is a table-miss rule: priority 0 for all frames (§5.4).
    pub fn is_table_miss(&self) -> bool {
        self.priority == 0 && self.matching.meaning().is_empty()
    }
}

/// What a flow-mod does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowModCommand {
    /// Add a rule, in the place of one with the same match and priority.
    Add = 0,
    /// Change the instructions of all rules within the match.
    Modify = 1,
    /// Change the instructions of the rule with this match and priority.
    ModifyStrict = 2,
    /// Delete all rules within the match.
    Delete = 3,
    /// Delete the rule with this match and priority.
    DeleteStrict = 4,
}

/// A change of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowMod {
    /// What to do.
    pub command: FlowModCommand,
    /// In which table; [`ALL_TABLES`] for deletes.
    pub table: u8,
    /// The rule. Deletes use its match, priority and cookie.
    pub rule: Rule,
    /// The bits of the cookie that modify and delete compare; 0 for none.
    pub cookie_mask: u64,
    /// Deletes take only rules that send there; [`PortNo::ANY`] for no such condition.
    pub out_port: PortNo,
    /// Deletes take only rules that send to this group; [`ANY_GROUP`] for no such condition.
    pub out_group: u32,
    /// The buffered frame to which the rule is to be applied, too.
    pub buffer: Option<u32>,
}

impl FlowMod {
    /// A flow-mod without filters and buffer.
    pub fn new(command: FlowModCommand, table: u8, rule: Rule) -> FlowMod {
        let (out_port, out_group) = (PortNo::ANY, ANY_GROUP);
        FlowMod { command, table, rule, cookie_mask: 0, out_port, out_group, buffer: None }
    }
}

/// Why a rule went away (`ofp_flow_removed_reason`; the last three are of 1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RemovedReason {
    /// No frame for as long as its idle timeout.
    IdleTimeout = 0,
    /// Its hard timeout.
    HardTimeout = 1,
    /// A flow-mod deleted it.
    Delete = 2,
    /// Its group was deleted.
    GroupDelete = 3,
    /// Its meter was deleted.
    MeterDelete = 4,
    /// It made place for another.
    Eviction = 5,
}

/// Why a frame goes to the controllers (`ofp_packet_in_reason`). 1.4 splits what 1.3 calls "action": a codec for 1.3
/// writes the last three as [`PacketInReason::Action`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketInReason {
    /// A table-miss rule sent it (1.3: no_match).
    TableMiss = 0,
    /// An action of a rule sent it (1.4: apply_action).
    Action = 1,
    /// A TTL that cannot be decremented.
    InvalidTtl = 2,
    /// The action set sent it (1.4).
    ActionSet = 3,
    /// A bucket of a group sent it (1.4).
    Group = 4,
    /// A packet-out sent it (1.4).
    PacketOut = 5,
}
