//! The small messages: hello, errors, features, configuration, roles, tables, asynchronous masks, bundles.

use super::action::KindId;
use super::bytes::{
    Bytes, Hex, Name, Padding, Part, Reader, Tagged, Tlv, Version, Writer, codes, flag_sets, layout, tagged,
    tlv,
};
use super::extension;
use super::fault::{self, Fault};
use super::forms::Fixed;
use super::oxm::{ExperimenterKind, OnlyExperimenter, OxmId};
use super::tree::Tree;
use crate::error::{HelloFailed, TableFeaturesFailed};
use crate::flags::flags;

pub use crate::table::{EvictionFlags, TableFlags};

flag_sets! { Capabilities, ConfigFlags, TableFlags, BundleFlags, EvictionFlags }

/// An element of a hello (1.3.5 section 7.5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelloElement {
    /// Bit n of the words: version number n.
    Versions(Vec<u32>),
    /// Of a kind that is ignored, as the standard asks.
    Unknown(u16, Bytes),
}

impl Hello {
    /// A hello with a bitmap of these version numbers.
    pub fn with(numbers: &[u8]) -> Hello {
        let mut words = vec![0u32; 1];
        for number in numbers {
            let word = usize::from(number / 32);
            words.resize(words.len().max(word + 1), 0);
            words[word] |= 1 << (number % 32);
        }
        Hello { elements: vec![HelloElement::Versions(words)] }
    }

    /// Whether the sender speaks the version with this number; `None` when there is no bitmap.
    pub fn speaks(&self, number: u8) -> Option<bool> {
        let words = self.elements.iter().find_map(|element| match element {
            HelloElement::Versions(words) => Some(words),
            HelloElement::Unknown(..) => None,
        })?;
        let word = words.get(usize::from(number / 32)).copied().unwrap_or(0);
        Some(word >> (number % 32) & 1 == 1)
    }
}

impl Part for HelloElement {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let (number, mut body) = Tlv::property(Version::V13).open(r)?;
        match number {
            1 => Part::read(&mut body).map(HelloElement::Versions),
            _ => Ok(HelloElement::Unknown(number, Part::read(&mut body)?)),
        }
    }
    fn write(&self, w: &mut Writer) {
        // In all versions as in 1.3.
        let tlv = Tlv::property(Version::V13);
        match self {
            HelloElement::Versions(words) => tlv.write(1, w, |w| words.write(w)),
            HelloElement::Unknown(number, bytes) => tlv.write(*number, w, |w| bytes.write(w)),
        }
    }
    fn tree(&self) -> Tree {
        match self {
            HelloElement::Versions(words) => {
                let bits = (0..words.len() * 32).filter(|bit| words[bit / 32] >> (bit % 32) & 1 == 1);
                let numbers = bits.map(|bit| Tree::Number(bit as u64)).collect();
                Tree::Part("versionbitmap", vec![("versions", Tree::List(numbers))])
            }
            HelloElement::Unknown(number, bytes) => {
                let number = Tree::Number(u64::from(*number));
                Tree::Part("element", vec![("type", number), ("data", bytes.tree())])
            }
        }
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        match s.below(4) {
            0 => HelloElement::Unknown(2 + s.below(9) as u16, Part::sample(s)),
            _ => HelloElement::Versions(vec![s.number(32) as u32]),
        }
    }
}

/// `error`: what was refused, and the beginning of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorMessage {
    /// Why.
    pub fault: Fault,
    /// Who defined it, for the type of experimenters.
    pub experimenter: Option<u32>,
    /// At least 64 bytes of the refused message; text for hello.
    pub data: Bytes,
}

impl Part for ErrorMessage {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let fault = Fault { kind: Part::read(r)?, code: Part::read(r)? };
        let experimenter = if fault.kind == fault::EXPERIMENTER { Some(u32::read(r)?) } else { None };
        let (fault, experimenter) = match extension::error_inside(fault, experimenter) {
            Some(fault) => (fault, None),
            None => (fault, experimenter),
        };
        Ok(ErrorMessage { fault, experimenter, data: Part::read(r)? })
    }
    fn write(&self, w: &mut Writer) {
        let outside = extension::error_outside(w.version, self.fault);
        let (experimenter, fault) = outside.map_or((None, self.fault), |(who, fault)| (Some(who), fault));
        fault.kind.write(w);
        fault.code.write(w);
        if let Some(experimenter) = experimenter.or(self.experimenter) {
            experimenter.write(w);
        }
        self.data.write(w);
    }
    fn tree(&self) -> Tree {
        let code = |number: u16, name: Option<String>| {
            Tree::Code(u64::from(number), name.unwrap_or_else(|| number.to_string()))
        };
        let (kind, detail) = self.fault.names();
        let mut fields = vec![("type", code(self.fault.kind, kind)), ("code", code(self.fault.code, detail))];
        fields.extend(self.experimenter.map(|who| ("experimenter", Hex(who).tree())));
        let text = [HelloFailed::Incompatible, HelloFailed::Eperm].map(Fault::from).contains(&self.fault);
        fields.push((
            "data",
            match std::str::from_utf8(&self.data.0) {
                Ok(words) if text => Tree::Text(words.trim_end_matches('\0').to_owned()),
                _ => self.data.tree(),
            },
        ));
        Tree::Part("error", fields)
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        // Errors of monitors and bundles are an experimenter's in 1.3, and other implementations show them as such.
        let kinds = if s.version() == super::bytes::Version::V13 { 16 } else { 18 };
        let (kind, code) = (s.below(kinds) as u16, s.below(16) as u16);
        match s.below(8) {
            0 => ErrorMessage {
                fault: Fault { kind: fault::EXPERIMENTER, code },
                experimenter: Some(s.number(32) as u32),
                data: Part::sample(s),
            },
            _ => ErrorMessage { fault: Fault { kind, code }, experimenter: None, data: Part::sample(s) },
        }
    }
}

codes! {
    /// What a controller is to the switch.
    pub RoleCode(u32) { NOCHANGE = 0 "nochange", EQUAL = 1 "equal", MASTER = 2 "master", SLAVE = 3 "slave" }
    /// Why a role changed without being asked for (1.4).
    pub RoleReason(u8) { MASTER_REQUEST = 0 "master_request", CONFIG = 1 "config", EXPERIMENTER = 2 "experimenter" }
    /// What happened to a table (1.4).
    pub TableReason(u8) { VACANCY_DOWN = 3 "vacancy_down", VACANCY_UP = 4 "vacancy_up" }
    /// What a bundle message does (1.4): requests are even, their replies odd.
    pub BundleCommand(u16) {
        OPEN_REQUEST = 0 "open_request", OPEN_REPLY = 1 "open_reply", CLOSE_REQUEST = 2 "close_request", CLOSE_REPLY = 3 "close_reply",
        COMMIT_REQUEST = 4 "commit_request", COMMIT_REPLY = 5 "commit_reply", DISCARD_REQUEST = 6 "discard_request", DISCARD_REPLY = 7 "discard_reply",
    }
}

flags! {
    /// What the switch can do.
    pub Capabilities(u32) {
        FLOW_STATS = 1 "flow_stats", TABLE_STATS = 2 "table_stats", PORT_STATS = 4 "port_stats", GROUP_STATS = 8 "group_stats",
        IP_REASM = 32 "ip_reasm", QUEUE_STATS = 64 "queue_stats", PORT_BLOCKED = 256 "port_blocked",
    }
    /// What happens to fragments of IP.
    pub ConfigFlags(u16) { FRAG_DROP = 1 "frag_drop", FRAG_REASM = 2 "frag_reasm" }
    /// How a bundle is applied (1.4).
    pub BundleFlags(u16) { ATOMIC = 1 "atomic", ORDERED = 2 "ordered" }
}

layout! {
    /// No body.
    pub struct Empty "" {
    }
    /// `hello`: which versions the sender speaks.
    pub struct Hello "hello" {
        /// Elements, unknown ones included.
        elements: Vec<HelloElement>;
    }
    /// `echo_request` and `echo_reply`.
    pub struct Echo "echo" {
        /// Anything; comes back.
        data: Bytes;
    }
    /// `features_reply`.
    pub struct Features "features" {
        /// The number of the switch: 48 bits of address, 16 free.
        datapath_id: Hex<u64>;
        /// Frames that it keeps.
        n_buffers: u32;
        /// Its tables.
        n_tables: u8;
        /// Which connection this is; 0 is the main one.
        auxiliary_id: u8;
        _ 2;
        /// What it can do.
        capabilities: Capabilities;
        _ 4;
    }
    /// `set_config` and `get_config_reply`.
    pub struct SwitchConfig "switch_config" {
        /// Fragments.
        flags: ConfigFlags;
        /// Bytes of a frame that a controller gets.
        miss_send_len: u16;
    }
    /// `role_request` and `role_reply`.
    pub struct Role "role" {
        /// What the controller wants to be, or is.
        role: RoleCode;
        _ 4;
        /// Grows with every election of a master.
        generation_id: Hex<u64>;
    }
    /// `role_status` (1.4).
    pub struct RoleStatus "role_status" {
        /// What the controller is now.
        role: RoleCode;
        /// Why.
        reason: RoleReason;
        _ 3;
        /// Of the master that took over.
        generation_id: Hex<u64>;
        /// Of experimenters.
        properties: Vec<OnlyExperimenter>;
    }
    /// `table_mod`.
    pub struct TableMod "table_mod" {
        /// Which; 255 means all.
        table_id: u8;
        _ 3;
        /// The new bits; in 1.3 all of them are deprecated.
        config: TableFlags;
        /// Details.
        properties: Vec<TableModProperty>;
    } in 1.3 {
        table_id; _ 3; config;
    }
    /// How a table is configured (1.4).
    pub struct TableDesc "table_desc" [length at 0] {
        _ 2;
        /// Which.
        table_id: u8;
        _ 1;
        /// Its bits.
        config: TableFlags;
        /// Details.
        properties: Vec<TableModProperty>;
    }
    /// `table_status` (1.4).
    pub struct TableStatus "table_status" {
        /// What happened.
        reason: TableReason;
        _ 7;
        /// The table now.
        table: TableDesc;
    }
    /// What is evicted first.
    pub struct Eviction "eviction" {
        /// By which of these.
        flags: EvictionFlags;
    }
    /// When to tell that a table fills.
    pub struct Vacancy "vacancy" {
        /// Percent free below which to tell.
        vacancy_down: u8;
        /// Percent free above which to tell.
        vacancy_up: u8;
        /// Percent free now.
        vacancy: u8;
        _ 1;
    }
    /// Counters of a table.
    pub struct TableStats "table_stats" {
        /// Which.
        table_id: u8;
        _ 3;
        /// Rules in it.
        active_count: u32;
        /// Frames that were looked up.
        lookup_count: u64;
        /// Frames that matched.
        matched_count: u64;
    }
    /// What a table can do.
    pub struct TableFeatures "table_features" [length at 0] {
        _ 2;
        /// Which.
        table_id: u8;
        _ 5;
        /// Its name.
        name: Name<32>;
        /// Metadata bits that it matches.
        metadata_match: Hex<u64>;
        /// Metadata bits that it writes.
        metadata_write: Hex<u64>;
        /// Its bits.
        config: TableFlags;
        /// Rules at most.
        max_entries: u32;
        /// Lists of what it can do.
        properties: Vec<TableProperty>;
    }
    /// The words about the switch.
    pub struct Desc "desc" {
        /// Who made it.
        mfr_desc: Name<256>;
        /// On what it runs.
        hw_desc: Name<256>;
        /// What it is.
        sw_desc: Name<256>;
        /// Which one.
        serial_num: Name<32>;
        /// What its owner calls it.
        dp_desc: Name<256>;
    }
    /// `set_async`, and the reply that reports it.
    pub struct AsyncConfig "async" {
        /// One for each kind of message and role.
        properties: Vec<AsyncProperty>;
    } in 1.3 {
        properties as Fixed(&[1, 0, 3, 2, 5, 4], &[0; 4]);
    }
    /// `bundle_control` (1.4).
    pub struct BundleControl "bundle_control" {
        /// The controller's number for it.
        bundle_id: u32;
        /// What to do.
        kind: BundleCommand;
        /// How it is applied.
        flags: BundleFlags;
        /// Of experimenters.
        properties: Vec<OnlyExperimenter>;
    }
}

tagged! {
    /// A detail of a table's configuration (1.4).
    pub enum TableModProperty {
        /// Eviction.
        2 "eviction" => Eviction(Eviction);
        /// Vacancy.
        3 "vacancy" => Vacancy(Vacancy);
        /// An experimenter's.
        0xffff "experimenter" => Experimenter(ExperimenterKind);
    }
}
tlv!(TableModProperty, Tlv::property);

tagged! {
    /// What a table can do. `…_miss` is for its rule of priority 0 that matches all.
    pub enum TableProperty {
        /// Instructions.
        0 "instructions" => Instructions(Vec<KindId>);
        /// Instructions.
        1 "instructions_miss" => InstructionsMiss(Vec<KindId>);
        /// Tables to go to.
        2 "next_tables" => NextTables(Vec<u8>);
        /// Tables to go to.
        3 "next_tables_miss" => NextTablesMiss(Vec<u8>);
        /// Actions to write.
        4 "write_actions" => WriteActions(Vec<KindId>);
        /// Actions to write.
        5 "write_actions_miss" => WriteActionsMiss(Vec<KindId>);
        /// Actions to apply.
        6 "apply_actions" => ApplyActions(Vec<KindId>);
        /// Actions to apply.
        7 "apply_actions_miss" => ApplyActionsMiss(Vec<KindId>);
        /// Fields to match.
        8 "match" => Match(Vec<OxmId>);
        /// Fields that may be left out.
        10 "wildcards" => Wildcards(Vec<OxmId>);
        /// Fields to set by written actions.
        12 "write_setfield" => WriteSetField(Vec<OxmId>);
        /// Fields to set by written actions.
        13 "write_setfield_miss" => WriteSetFieldMiss(Vec<OxmId>);
        /// Fields to set at once.
        14 "apply_setfield" => ApplySetField(Vec<OxmId>);
        /// Fields to set at once.
        15 "apply_setfield_miss" => ApplySetFieldMiss(Vec<OxmId>);
        /// Tables that it copies rules from (1.4).
        16 "table_sync_from" => TableSyncFrom(Vec<u8>) in V14;
        /// An experimenter's.
        0xfffe "experimenter" => Experimenter(ExperimenterKind);
        /// An experimenter's.
        0xffff "experimenter_miss" => ExperimenterMiss(ExperimenterKind);
    }
}
tlv!(TableProperty, table_property);

/// OpenFlow 1.4 moved the codes of these properties to properties in general.
fn table_property(version: Version) -> Tlv {
    match version {
        Version::V13 => Tlv::new(Padding::Outside, TableFeaturesFailed::BadType, TableFeaturesFailed::BadLen),
        Version::V14 => Tlv::property(version),
    }
}

tagged! {
    /// Which reasons of one kind of message one role gets, as bits.
    pub enum AsyncProperty {
        /// `packet_in` for slaves.
        0 "packet_in_slave" => PacketInSlave(Hex<u32>);
        /// `packet_in` for masters and equals.
        1 "packet_in_master" => PacketInMaster(Hex<u32>);
        /// `port_status` for slaves.
        2 "port_status_slave" => PortStatusSlave(Hex<u32>);
        /// `port_status` for masters and equals.
        3 "port_status_master" => PortStatusMaster(Hex<u32>);
        /// `flow_removed` for slaves.
        4 "flow_removed_slave" => FlowRemovedSlave(Hex<u32>);
        /// `flow_removed` for masters and equals.
        5 "flow_removed_master" => FlowRemovedMaster(Hex<u32>);
        /// `role_status` for slaves.
        6 "role_status_slave" => RoleStatusSlave(Hex<u32>);
        /// `role_status` for masters and equals.
        7 "role_status_master" => RoleStatusMaster(Hex<u32>);
        /// `table_status` for slaves.
        8 "table_status_slave" => TableStatusSlave(Hex<u32>);
        /// `table_status` for masters and equals.
        9 "table_status_master" => TableStatusMaster(Hex<u32>);
        /// `requestforward` for slaves.
        10 "requestforward_slave" => RequestForwardSlave(Hex<u32>);
        /// `requestforward` for masters and equals.
        11 "requestforward_master" => RequestForwardMaster(Hex<u32>);
        /// An experimenter's for slaves.
        0xfffe "experimenter_slave" => ExperimenterSlave(ExperimenterKind);
        /// An experimenter's for masters and equals.
        0xffff "experimenter_master" => ExperimenterMaster(ExperimenterKind);
    }
}
tlv!(AsyncProperty, Tlv::property);
