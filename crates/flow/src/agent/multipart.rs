//! Questions of several parts (OpenFlow 1.3.5 section 7.3.5, 1.4.1 section 7.3.5), each with its answer.

use super::{Answer, Conn, OpenFlowAgent, Scene, queues, translate};
use crate::action::Instruction;
use crate::entry::Entry;
use crate::error::{BadRequest, FlowMonitorFailed, MeterModFailed, TableFeaturesFailed};
use crate::event::{Event, Monitor, MonitorFlags};
use crate::field::{Field, TABLE};
use crate::group::{ALL_GROUPS, GROUP_LIMIT, GroupEntry};
use crate::meter::{ALL_METERS, BAND_LIMIT, METER_LIMIT, MeterEntry};
use crate::numbered::Counters;
use crate::openflow::action::{Action as WireAction, Instruction as WireInstruction, KindId};
use crate::openflow::bytes::{HardwareAddress, Hex, Name, Tagged, Version, duration};
use crate::openflow::drops::{self, DropRow};
use crate::openflow::fault::Fault;
use crate::openflow::group as wire_group;
use crate::openflow::message::Body;
use crate::openflow::misc::{self as wire, TableModProperty, TableProperty};
use crate::openflow::multipart::{Multipart, Reply, Request};
use crate::openflow::oxm::OxmId;
use crate::openflow::port::{self as wire_port, PortFeatures, PortState};
use crate::openflow::rule::{self as wire_rule, MonitorCommand, MonitorRequest, Update, UpdateFull};
use crate::pipeline::Pipeline;
use crate::port::{Port, PortNo};
use crate::rule::{ALL_TABLES, Rule, RuleFlags};
use crate::selection::Selection;
use crate::table::LAST_TABLE;
use crate::table::Table;
use ::wire::refuse_if;

impl OpenFlowAgent {
    /// Answers a question that is whole.
    pub(super) fn question(&mut self, scene: &mut Scene<'_>, request: &Request) -> Result<(), Fault> {
        let (now, version) = (scene.now, scene.from.version);
        let pipeline = &*scene.pipeline;
        let body = match request {
            Request::Desc(_) => Reply::Desc(Box::new(self.desc())),
            Request::Flow(wish) => {
                let stats = |(table, entry): (u8, &Entry)| flow_stats(now, table, entry);
                Reply::Flow(chosen(version, wish, scene.pipeline)?.map(stats).collect())
            }
            Request::Aggregate(wish) => Reply::Aggregate(aggregate(chosen(version, wish, scene.pipeline)?)),
            Request::Table(_) => Reply::Table(pipeline.tables().map(table_stats).collect()),
            Request::PortStats(wish) => {
                let ports = ports(pipeline, wish.port_no)?;
                Reply::PortStats(ports.map(|port| self.port_stats(now, port)).collect())
            }
            Request::QueueStats(wish) => Reply::QueueStats(queues::stats(now, pipeline, wish)?),
            Request::Group(wish) => Reply::Group(group_stats(now, wish.group_id, pipeline)),
            Request::GroupDesc(_) => Reply::GroupDesc(pipeline.groups().iter().map(group_desc).collect()),
            Request::GroupFeatures(_) => Reply::GroupFeatures(group_features()),
            Request::Meter(wish) => Reply::Meter(meter_stats(now, wish.meter_id, pipeline)?),
            Request::MeterConfig(wish) => Reply::MeterConfig(meter_config(wish.meter_id, pipeline)?),
            Request::MeterFeatures(_) => Reply::MeterFeatures(meter_features()),
            Request::TableFeatures(wish) => {
                let events = shape_tables(wish, scene.pipeline)?;
                self.publish(&events, Some(scene.from), scene.pipeline, scene.effects);
                Reply::TableFeatures(
                    scene.pipeline.tables().map(|table| table_features(version, table)).collect(),
                )
            }
            Request::PortDesc(_) => Reply::PortDesc(pipeline.ports.values().map(write_port).collect()),
            Request::TableDesc(_) => Reply::TableDesc(pipeline.tables().map(table_desc).collect()),
            Request::QueueDesc(wish) => Reply::QueueDesc(queues::describe(pipeline, wish)?),
            Request::FlowMonitor(wishes) => Reply::FlowMonitor(self.monitor(scene, wishes)?),
            Request::Experimenter(wish) => {
                let first = drops::first_port(wish)?;
                Reply::Experimenter(drops::reply(&drop_rows(pipeline, first)))
            }
        };
        scene.reply(Body::MultipartReply(Multipart::whole(body)));
        Ok(())
    }

    fn desc(&self) -> wire::Desc {
        wire::Desc {
            mfr_desc: Name::new("pathlab"),
            hw_desc: Name::new(&self.identity.hardware),
            sw_desc: Name::new(&self.identity.software),
            serial_num: Name::new("none"),
            dp_desc: Name::new(&self.identity.name),
        }
    }

    fn port_stats(&self, now: u64, port: &Port) -> wire_port::PortStats {
        let (duration_sec, duration_nsec) = duration(now.saturating_sub(self.begun_ns));
        let counters = &port.counters;
        wire_port::PortStats {
            port_no: port.number.0,
            duration_sec,
            duration_nsec,
            rx_packets: counters.rx_frames,
            tx_packets: counters.tx_frames,
            rx_bytes: counters.rx_bytes,
            tx_bytes: counters.tx_bytes,
            rx_dropped: counters.rx_dropped,
            tx_dropped: counters.tx_dropped,
            ..Default::default()
        }
    }

    /// Adds, changes and removes monitors, all or none; what those get that asked for the existing rules.
    fn monitor(&mut self, scene: &Scene<'_>, wishes: &[MonitorRequest]) -> Result<Vec<Update>, Fault> {
        let Some(peer) = self.peers.get_mut(&scene.from.connection) else { return Ok(vec![]) };
        let (mut updates, mut monitors) = (vec![], peer.monitors.clone());
        for wish in wishes {
            let id = wish.monitor_id;
            let is_there = monitors.contains_key(&id);
            match wish.command {
                MonitorCommand::ADD => refuse_if(is_there, FlowMonitorFailed::MonitorExists)?,
                MonitorCommand::MODIFY => refuse_if(!is_there, FlowMonitorFailed::UnknownMonitor)?,
                MonitorCommand::DELETE => {
                    monitors.remove(&id).ok_or(FlowMonitorFailed::UnknownMonitor)?;
                    continue;
                }
                _ => return Err(FlowMonitorFailed::BadCommand.into()),
            }
            // 1.3 does not have the last one.
            let known = wish.flags.known();
            let flags = known
                .filter(|flags| scene.from.version == Version::V14 || !flags.has(MonitorFlags::ONLY_OWN))
                .ok_or(FlowMonitorFailed::BadFlags)?;
            let is_table = wish.table_id <= LAST_TABLE || wish.table_id == ALL_TABLES;
            refuse_if(!is_table, FlowMonitorFailed::BadTableId)?;
            let monitor = Monitor {
                id,
                flags,
                table: wish.table_id,
                matching: translate::read_match(scene.from.version, &wish.matching)?,
                out_port: PortNo(wish.out_port),
                out_group: wish.out_group,
            };
            if flags.has(MonitorFlags::INITIAL) {
                let instructions = flags.has(MonitorFlags::INSTRUCTIONS);
                for table in scene.pipeline.tables() {
                    let rules = table.rules().map(|(_, entry)| &entry.rule);
                    let meant = rules.filter(|rule| monitor.concerns(table.number, rule));
                    updates.extend(meant.map(|rule| Update::Initial(full(table.number, rule, instructions))));
                }
            }
            monitors.insert(id, monitor);
        }
        peer.monitors = monitors;
        Ok(updates)
    }

    /// Ends a monitor.
    pub(super) fn cancel(&mut self, connection: Conn, id: u32) -> Result<(), Fault> {
        let Some(peer) = self.peers.get_mut(&connection) else { return Ok(()) };
        peer.monitors.remove(&id).map(drop).ok_or(FlowMonitorFailed::UnknownMonitor.into())
    }
}

/// What a monitor reports of an event; nothing for events that are not about rules.
pub(super) fn update(version: Version, event: &Event, instructions: bool) -> Option<Update> {
    match event {
        Event::RuleAdded { table, rule, .. } => Some(Update::Added(full(*table, rule, instructions))),
        Event::RuleModified { table, rule, .. } => Some(Update::Modified(full(*table, rule, instructions))),
        Event::RuleRemoved(gone) => {
            let reason = translate::removed_reason(version, gone.reason);
            Some(Update::Removed(UpdateFull { reason, ..full(gone.table, &gone.rule, instructions) }))
        }
        Event::Vacancy { .. } | Event::PortChanged { .. } => None,
    }
}

fn full(table: u8, rule: &Rule, instructions: bool) -> UpdateFull {
    let told: &[Instruction] = if instructions { &rule.instructions } else { &[] };
    UpdateFull {
        table_id: table,
        reason: wire_rule::RemovedReason::default(),
        idle_timeout: rule.idle_timeout,
        hard_timeout: rule.hard_timeout,
        priority: rule.priority,
        cookie: Hex(rule.cookie),
        matching: translate::write_match(&rule.matching),
        instructions: translate::write_instructions(told),
    }
}

/// The rules that a question is about, each with its table.
fn chosen<'a>(
    version: Version,
    wish: &wire_rule::FlowStatsRequest,
    pipeline: &'a mut Pipeline,
) -> Answer<impl Iterator<Item = (u8, &'a Entry)> + use<'a>> {
    refuse_if(wish.table_id != ALL_TABLES && wish.table_id > LAST_TABLE, BadRequest::BadTableId)?;
    let matching = translate::read_match(version, &wish.matching)?;
    let rule = Rule { cookie: wish.cookie.0, ..Rule::new(0, matching, vec![]) };
    let (cookie_mask, out_port) = (wish.cookie_mask.0, PortNo(wish.out_port));
    let selection =
        Selection { cookie_mask, out_port, out_group: wish.out_group, ..Selection::within(&rule) };
    Ok(pipeline.select(wish.table_id, &selection).map(|(table, _, entry)| (table, entry)))
}

fn flow_stats(now: u64, table_id: u8, entry: &Entry) -> wire_rule::FlowStats {
    let rule = &entry.rule;
    let (duration_sec, duration_nsec) = duration(now.saturating_sub(entry.created_ns));
    wire_rule::FlowStats {
        table_id,
        duration_sec,
        duration_nsec,
        priority: rule.priority,
        idle_timeout: rule.idle_timeout,
        hard_timeout: rule.hard_timeout,
        flags: rule.flags,
        importance: rule.importance,
        cookie: Hex(rule.cookie),
        // §7.3.5.2: a counter that the rule does not want is all ones.
        packet_count: if rule.flags.has(RuleFlags::NO_PKT_COUNTS) { u64::MAX } else { entry.frames },
        byte_count: if rule.flags.has(RuleFlags::NO_BYT_COUNTS) { u64::MAX } else { entry.bytes },
        matching: translate::write_match(&rule.matching),
        instructions: translate::write_instructions(&rule.instructions),
    }
}

fn aggregate<'a>(rules: impl Iterator<Item = (u8, &'a Entry)>) -> wire_rule::AggregateStats {
    let mut sum = wire_rule::AggregateStats::default();
    for (_, entry) in rules {
        sum.packet_count += entry.frames;
        sum.byte_count += entry.bytes;
        sum.flow_count += 1;
    }
    sum
}

fn table_stats(table: &Table) -> wire::TableStats {
    wire::TableStats {
        table_id: table.number,
        active_count: table.len() as u32,
        lookup_count: table.lookups,
        matched_count: table.matched,
    }
}

fn ports(pipeline: &Pipeline, wish: u32) -> Result<impl Iterator<Item = &Port>, Fault> {
    refuse_if(wish != PortNo::ANY.0 && !pipeline.ports.contains_key(&PortNo(wish)), BadRequest::BadPort)?;
    Ok(pipeline.ports.values().filter(move |port| wish == PortNo::ANY.0 || port.number.0 == wish))
}

/// Frames that ended, by port from this one on and by reason.
fn drop_rows(pipeline: &Pipeline, first: u32) -> Vec<DropRow> {
    let of = |(number, port): (&PortNo, &Port)| {
        let port_no = number.0;
        let row = move |(why, frames)| DropRow { port: port_no, why, frames };
        port.counters.drops.moved().map(row).collect::<Vec<_>>()
    };
    pipeline.ports.range(PortNo(first)..).flat_map(of).collect()
}

fn group_stats(now: u64, wish: u32, pipeline: &Pipeline) -> Vec<wire_group::GroupStats> {
    let chosen = pipeline.groups().iter().filter(|entry| wish == ALL_GROUPS || entry.group.id == wish);
    // Counted in one pass over all rules, not in one for each group.
    let references = pipeline.group_references();
    let stats = |entry: &GroupEntry| {
        let (duration_sec, duration_nsec) = duration(now.saturating_sub(entry.created_ns));
        let bucket = |counters: &Counters| wire_group::BucketStats {
            packet_count: counters.frames,
            byte_count: counters.bytes,
        };
        wire_group::GroupStats {
            group_id: entry.group.id,
            ref_count: references.get(&entry.group.id).map_or(0, |count| *count as u32),
            packet_count: entry.counters.frames,
            byte_count: entry.counters.bytes,
            duration_sec,
            duration_nsec,
            bucket_stats: entry.buckets.iter().map(bucket).collect(),
        }
    };
    chosen.map(stats).collect()
}

fn group_desc(entry: &GroupEntry) -> wire_group::GroupDesc {
    wire_group::GroupDesc {
        kind: wire_group::GroupType(entry.group.kind as u8),
        group_id: entry.group.id,
        buckets: translate::write_buckets(&entry.group.buckets),
    }
}

/// Bits of the actions that this switch has (§7.2.5): all.
fn action_bits() -> u32 {
    ACTIONS.iter().map(|kind| 1 << kind).sum()
}

const ACTIONS: [u16; 16] = [0, 11, 12, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27];
const INSTRUCTIONS: [u16; 6] = [1, 2, 3, 4, 5, 6];

fn group_features() -> wire_group::GroupFeatures {
    wire_group::GroupFeatures {
        types: 0b1111,
        capabilities: wire_group::GroupCapabilities::ALL,
        max_groups: [GROUP_LIMIT as u32; 4],
        actions: [action_bits(); 4],
    }
}

fn chosen_meters(wish: u32, pipeline: &Pipeline) -> Result<impl Iterator<Item = &MeterEntry>, Fault> {
    refuse_if(wish != ALL_METERS && pipeline.meters().get(wish).is_none(), MeterModFailed::UnknownMeter)?;
    Ok(pipeline.meters().iter().filter(move |entry| wish == ALL_METERS || entry.meter.id == wish))
}

fn meter_stats(now: u64, wish: u32, pipeline: &Pipeline) -> Result<Vec<wire_group::MeterStats>, Fault> {
    let references = pipeline.meter_references();
    let stats = |entry: &MeterEntry| {
        let (duration_sec, duration_nsec) = duration(now.saturating_sub(entry.created_ns));
        let band = |counters: &Counters| wire_group::BandStats {
            packet_band_count: counters.frames,
            byte_band_count: counters.bytes,
        };
        wire_group::MeterStats {
            meter_id: entry.meter.id,
            flow_count: references.get(&entry.meter.id).map_or(0, |count| *count as u32),
            packet_in_count: entry.counters.frames,
            byte_in_count: entry.counters.bytes,
            duration_sec,
            duration_nsec,
            band_stats: entry.bands.iter().map(band).collect(),
        }
    };
    Ok(chosen_meters(wish, pipeline)?.map(stats).collect())
}

fn meter_config(wish: u32, pipeline: &Pipeline) -> Result<Vec<wire_group::MeterConfig>, Fault> {
    let config = |entry: &MeterEntry| wire_group::MeterConfig {
        flags: entry.meter.flags,
        meter_id: entry.meter.id,
        bands: translate::write_bands(&entry.meter.bands),
    };
    Ok(chosen_meters(wish, pipeline)?.map(config).collect())
}

fn meter_features() -> wire_group::MeterFeatures {
    wire_group::MeterFeatures {
        max_meter: METER_LIMIT as u32,
        // Drop and dscp_remark.
        band_types: 1 << 1 | 1 << 2,
        capabilities: wire_group::MeterFlags::ALL.0.into(),
        max_bands: BAND_LIMIT as u8,
        max_color: 0,
    }
}

/// The port as the wire has it.
pub(super) fn write_port(port: &Port) -> wire_port::Port {
    let state = if port.is_live() { port.state.with(PortState::LIVE) } else { port.state };
    let curr_speed = u32::try_from(port.speed_kbps).unwrap_or(u32::MAX);
    let rate = match port.speed_kbps {
        10_000 => PortFeatures::FD_10MB,
        100_000 => PortFeatures::FD_100MB,
        1_000_000 => PortFeatures::FD_1GB,
        10_000_000 => PortFeatures::FD_10GB,
        40_000_000 => PortFeatures::FD_40GB,
        100_000_000 => PortFeatures::FD_100GB,
        _ => PortFeatures::OTHER,
    };
    let curr = rate.with(PortFeatures::COPPER);
    let ethernet = wire_port::PortEthernet { curr, curr_speed, ..Default::default() };
    wire_port::Port {
        port_no: port.number.0,
        hw_addr: HardwareAddress(port.address),
        name: Name::new(&port.name),
        config: port.config,
        state,
        properties: vec![wire_port::PortProperty::Ethernet(ethernet)],
    }
}

/// A table as 1.4 describes it.
pub(super) fn table_desc(table: &Table) -> wire::TableDesc {
    let (vacancy_down, vacancy_up) = (table.config.vacancy_down, table.config.vacancy_up);
    wire::TableDesc {
        table_id: table.number,
        config: table.config.flags,
        properties: vec![
            TableModProperty::Eviction(wire::Eviction { flags: table.config.eviction_flags }),
            TableModProperty::Vacancy(wire::Vacancy { vacancy_down, vacancy_up, vacancy: table.vacancy() }),
        ],
    }
}

/// What a table can do: everything, and the same with a table-miss rule (so the properties for misses are left out,
/// §7.3.5.5.2).
fn table_features(version: Version, table: &Table) -> wire::TableFeatures {
    let ids = |kinds: &[u16]| kinds.iter().map(|kind| KindId::standard(*kind)).collect::<Vec<_>>();
    let fields = |choose: fn(&Field) -> Option<bool>| -> Vec<OxmId> {
        let known = TABLE.iter().map(|row| row.field);
        let spoken = known.filter(|field| version == Version::V14 || !field.is_new_in_1_4());
        spoken.filter_map(|field| OxmId::basic(field as u8, choose(&field)?)).collect()
    };
    let matched = fields(|field| Some(field.row().maskable));
    let wild = fields(|_| Some(false));
    let set = fields(|field| field.row().settable.then_some(false));
    let instructions: Vec<u16> =
        INSTRUCTIONS.into_iter().filter(|kind| *kind != 1 || table.number < LAST_TABLE).collect();
    wire::TableFeatures {
        table_id: table.number,
        name: Name::new(&table.name),
        metadata_match: Hex(u64::MAX),
        metadata_write: Hex(u64::MAX),
        config: if version == Version::V14 { wire::TableFlags::ALL } else { wire::TableFlags::default() },
        max_entries: table.max_rules.min(u32::MAX as usize) as u32,
        properties: vec![
            TableProperty::Instructions(ids(&instructions)),
            TableProperty::NextTables((table.number..LAST_TABLE).map(|number| number + 1).collect()),
            TableProperty::WriteActions(ids(&ACTIONS)),
            TableProperty::ApplyActions(ids(&ACTIONS)),
            TableProperty::Match(matched),
            TableProperty::Wildcards(wild),
            TableProperty::WriteSetField(set.clone()),
            TableProperty::ApplySetField(set),
        ],
    }
}

/// A controller says what tables it wants (§7.3.5.5). This switch's tables can do everything, so what is asked for is a
/// part of what they do: they take the name and the size.
fn shape_tables(wish: &[wire::TableFeatures], pipeline: &mut Pipeline) -> Result<Vec<Event>, Fault> {
    let mut seen = [false; 256];
    for table in wish {
        let is_again = std::mem::replace(&mut seen[usize::from(table.table_id)], true);
        refuse_if(is_again || table.table_id > LAST_TABLE, TableFeaturesFailed::BadTable)?;
        let held = pipeline.table(table.table_id).map_or(0, Table::len);
        refuse_if((table.max_entries as usize) < held, TableFeaturesFailed::BadArgument)?;
        refuse_if(!table.properties.iter().all(is_ours), TableFeaturesFailed::BadArgument)?;
    }
    let shape = |table: &wire::TableFeatures| {
        pipeline.shape_table(table.table_id, &table.name.text(), table.max_entries as usize)
    };
    Ok(wish.iter().flat_map(shape).collect())
}

/// Whether every table can do what a property lists.
fn is_ours(property: &TableProperty) -> bool {
    let actions = |ids: &[KindId]| ids.iter().all(|id| WireAction::knows(id.kind, Version::V14));
    let fields = |ids: &[OxmId]| {
        ids.iter().all(|id| OxmId::basic(id.field, id.has_mask).is_some_and(|own| own.class == id.class))
    };
    match property {
        TableProperty::Instructions(ids) | TableProperty::InstructionsMiss(ids) => {
            ids.iter().all(|id| WireInstruction::knows(id.kind, Version::V14))
        }
        TableProperty::WriteActions(ids)
        | TableProperty::WriteActionsMiss(ids)
        | TableProperty::ApplyActions(ids)
        | TableProperty::ApplyActionsMiss(ids) => actions(ids),
        TableProperty::Match(ids)
        | TableProperty::Wildcards(ids)
        | TableProperty::WriteSetField(ids)
        | TableProperty::WriteSetFieldMiss(ids)
        | TableProperty::ApplySetField(ids)
        | TableProperty::ApplySetFieldMiss(ids) => fields(ids),
        TableProperty::NextTables(_) | TableProperty::NextTablesMiss(_) => true,
        TableProperty::TableSyncFrom(tables) => tables.is_empty(),
        TableProperty::Experimenter(_) | TableProperty::ExperimenterMiss(_) => false,
    }
}
