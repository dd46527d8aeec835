//! Between the wire and the model, both ways.
//!
//! **What.** What a message says becomes what the model means, or the error that the standard has for it; what the model
//! holds becomes what a reply says. A rule, group or meter that went in comes out with the same fields in the same order.
//!
//! **Why.** The wire's types can say nonsense and the model's cannot: this is the only place where one turns into the
//! other. **Price.** Every list is copied.

use crate::action::{Action, Instruction};
use crate::error::{BadAction, BadMatch, Error, FlowModFailed, GroupModFailed, MeterModFailed};
use crate::field::{Field, Value};
use crate::group::{Bucket, Group, GroupMod, GroupModCommand, GroupType};
use crate::matching::{Match, MatchField};
use crate::meter::{Band, BandKind, Meter, MeterMod, MeterModCommand};
use crate::openflow::action as wire;
use crate::openflow::bytes::{Bytes, Hex, Version};
use crate::openflow::group as wire_group;
use crate::openflow::oxm;
use crate::openflow::rule as wire_rule;
use crate::port::PortNo;
use crate::rule::{FlowMod, FlowModCommand, RemovedReason, Rule};

type Answer<T> = Result<T, Error>;

/// `OFP_NO_BUFFER`.
pub const NO_BUFFER: u32 = 0xffff_ffff;

fn number(bytes: &[u8]) -> Value {
    bytes.iter().fold(0, |sum, byte| sum << 8 | Value::from(*byte))
}

fn bytes(field: Field, value: Value) -> Vec<u8> {
    value.to_be_bytes()[16 - field.bytes()..].to_vec()
}

/// The field of an OXM, if this version has it.
fn field_of(version: Version, one: &oxm::Oxm) -> Option<Field> {
    let field = (one.class == oxm::BASIC).then(|| Field::from_oxm(one.field)).flatten()?;
    (version == Version::V14 || !field.is_new_in_1_4()).then_some(field)
}

/// A match of the wire as the model's, checked.
///
/// # Errors
/// `BadMatch`, with the code that the standard has for it.
pub fn read_match(version: Version, from: &oxm::Match) -> Answer<Match> {
    let mut made = Match::all();
    for one in &from.fields {
        let field = field_of(version, one).ok_or(BadMatch::BadField)?;
        let fits = |bytes: &[u8]| bytes.len() == field.bytes();
        if !fits(&one.value) || !one.mask.as_deref().is_none_or(fits) {
            return Err(BadMatch::BadLen.into());
        }
        let mask = one.mask.as_deref().map(number);
        made.push(MatchField { field, value: number(&one.value), mask })?;
    }
    Ok(made)
}

/// The model's match as the wire's, in its own order.
pub fn write_match(from: &Match) -> oxm::Match {
    let one = |entry: &MatchField| {
        let mask = entry.mask.map(|mask| bytes(entry.field, mask));
        oxm::Oxm::basic(entry.field as u8, &bytes(entry.field, entry.value), mask.as_deref())
    };
    oxm::Match { fields: from.fields().iter().map(one).collect() }
}

fn read_action(version: Version, from: &wire::Action) -> Answer<Action> {
    Ok(match from {
        wire::Action::Output(to) => Action::Output { port: PortNo(to.port), max_len: to.max_len },
        wire::Action::CopyTtlOut(_) => Action::CopyTtlOut,
        wire::Action::CopyTtlIn(_) => Action::CopyTtlIn,
        wire::Action::SetMplsTtl(to) => Action::SetMplsTtl(to.ttl),
        wire::Action::DecMplsTtl(_) => Action::DecMplsTtl,
        wire::Action::PushVlan(tag) => Action::PushVlan(tag.ethertype.0),
        wire::Action::PopVlan(_) => Action::PopVlan,
        wire::Action::PushMpls(tag) => Action::PushMpls(tag.ethertype.0),
        wire::Action::PopMpls(tag) => Action::PopMpls(tag.ethertype.0),
        wire::Action::SetQueue(queue) => Action::SetQueue(queue.queue_id),
        wire::Action::Group(group) => Action::Group(group.group_id),
        wire::Action::SetNwTtl(to) => Action::SetNwTtl(to.ttl),
        wire::Action::DecNwTtl(_) => Action::DecNwTtl,
        wire::Action::SetField(set) => read_set_field(version, &set.field)?,
        wire::Action::PushPbb(tag) => Action::PushPbb(tag.ethertype.0),
        wire::Action::PopPbb(_) => Action::PopPbb,
        wire::Action::Experimenter(other) => {
            Action::Experimenter { experimenter: other.experimenter.0, data: other.data.0.clone() }
        }
    })
}

fn read_set_field(version: Version, one: &oxm::Oxm) -> Answer<Action> {
    let field = field_of(version, one).ok_or(BadAction::BadSetType)?;
    if one.value.len() != field.bytes() {
        return Err(BadAction::BadSetLen.into());
    }
    // §7.2.5: "the oxm_hasmask bit must be zero".
    if one.mask.is_some() {
        return Err(BadAction::BadSetType.into());
    }
    Ok(Action::SetField { field, value: number(&one.value) })
}

/// Actions of the wire as the model's.
///
/// # Errors
/// `BadAction`: a set-field that names no field, or has a wrong length. What the actions do is checked by the model.
pub fn read_actions(version: Version, from: &[wire::Action]) -> Answer<Vec<Action>> {
    from.iter().map(|action| read_action(version, action)).collect()
}

fn write_action(from: &Action) -> wire::Action {
    let tag = |ethertype: u16| wire::Ethertype { ethertype: Hex(ethertype) };
    let nothing = wire::Nothing::default();
    match from {
        Action::Output { port, max_len } => {
            wire::Action::Output(wire::Output { port: port.0, max_len: *max_len })
        }
        Action::CopyTtlOut => wire::Action::CopyTtlOut(nothing),
        Action::CopyTtlIn => wire::Action::CopyTtlIn(nothing),
        Action::SetMplsTtl(ttl) => wire::Action::SetMplsTtl(wire::Ttl { ttl: *ttl }),
        Action::DecMplsTtl => wire::Action::DecMplsTtl(nothing),
        Action::PushVlan(ethertype) => wire::Action::PushVlan(tag(*ethertype)),
        Action::PopVlan => wire::Action::PopVlan(nothing),
        Action::PushMpls(ethertype) => wire::Action::PushMpls(tag(*ethertype)),
        Action::PopMpls(ethertype) => wire::Action::PopMpls(tag(*ethertype)),
        Action::SetQueue(queue_id) => wire::Action::SetQueue(wire::SetQueue { queue_id: *queue_id }),
        Action::Group(group_id) => wire::Action::Group(wire::ToGroup { group_id: *group_id }),
        Action::SetNwTtl(ttl) => wire::Action::SetNwTtl(wire::Ttl { ttl: *ttl }),
        Action::DecNwTtl => wire::Action::DecNwTtl(nothing),
        Action::SetField { field, value } => {
            let field = oxm::Oxm::basic(*field as u8, &bytes(*field, *value), None);
            wire::Action::SetField(wire::SetField { field })
        }
        Action::PushPbb(ethertype) => wire::Action::PushPbb(tag(*ethertype)),
        Action::PopPbb => wire::Action::PopPbb(nothing),
        Action::Experimenter { experimenter, data } => {
            let (experimenter, data) = (Hex(*experimenter), Bytes(data.clone()));
            wire::Action::Experimenter(oxm::Experimenter { experimenter, data })
        }
    }
}

/// The model's actions as the wire's.
pub fn write_actions(from: &[Action]) -> Vec<wire::Action> {
    from.iter().map(write_action).collect()
}

fn read_instruction(version: Version, from: &wire::Instruction) -> Answer<Instruction> {
    Ok(match from {
        wire::Instruction::GotoTable(to) => Instruction::GotoTable(to.table_id),
        wire::Instruction::WriteMetadata(write) => {
            Instruction::WriteMetadata { metadata: write.metadata.0, mask: write.metadata_mask.0 }
        }
        wire::Instruction::WriteActions(write) => {
            Instruction::WriteActions(read_actions(version, &write.actions)?)
        }
        wire::Instruction::ApplyActions(apply) => {
            Instruction::ApplyActions(read_actions(version, &apply.actions)?)
        }
        wire::Instruction::ClearActions(_) => Instruction::ClearActions,
        wire::Instruction::Meter(to) => Instruction::Meter(to.meter_id),
        wire::Instruction::Experimenter(other) => {
            Instruction::Experimenter { experimenter: other.experimenter.0, data: other.data.0.clone() }
        }
    })
}

/// The model's instructions as the wire's.
pub fn write_instructions(from: &[Instruction]) -> Vec<wire::Instruction> {
    let actions = |actions: &[Action]| wire::Actions { actions: write_actions(actions) };
    let one = |from: &Instruction| match from {
        Instruction::GotoTable(table_id) => {
            wire::Instruction::GotoTable(wire::GotoTable { table_id: *table_id })
        }
        Instruction::WriteMetadata { metadata, mask } => {
            let (metadata, metadata_mask) = (Hex(*metadata), Hex(*mask));
            wire::Instruction::WriteMetadata(wire::WriteMetadata { metadata, metadata_mask })
        }
        Instruction::WriteActions(write) => wire::Instruction::WriteActions(actions(write)),
        Instruction::ApplyActions(apply) => wire::Instruction::ApplyActions(actions(apply)),
        Instruction::ClearActions => wire::Instruction::ClearActions(wire::Nothing::default()),
        Instruction::Meter(meter_id) => wire::Instruction::Meter(wire::ToMeter { meter_id: *meter_id }),
        Instruction::Experimenter { experimenter, data } => {
            let (experimenter, data) = (Hex(*experimenter), Bytes(data.clone()));
            wire::Instruction::Experimenter(oxm::Experimenter { experimenter, data })
        }
    };
    from.iter().map(one).collect()
}

/// A flow-mod of the wire as the model's.
///
/// # Errors
/// What the standard has for it.
pub fn read_flow_mod(version: Version, from: &wire_rule::FlowMod) -> Answer<FlowMod> {
    let command = match from.command {
        wire_rule::FlowCommand::ADD => FlowModCommand::Add,
        wire_rule::FlowCommand::MODIFY => FlowModCommand::Modify,
        wire_rule::FlowCommand::MODIFY_STRICT => FlowModCommand::ModifyStrict,
        wire_rule::FlowCommand::DELETE => FlowModCommand::Delete,
        wire_rule::FlowCommand::DELETE_STRICT => FlowModCommand::DeleteStrict,
        _ => return Err(FlowModFailed::BadCommand.into()),
    };
    let instructions = from.instructions.iter().map(|one| read_instruction(version, one));
    let rule = Rule {
        priority: from.priority,
        cookie: from.cookie.0,
        idle_timeout: from.idle_timeout,
        hard_timeout: from.hard_timeout,
        flags: from.flags.known().ok_or(FlowModFailed::BadFlags)?,
        importance: from.importance,
        matching: read_match(version, &from.matching)?,
        instructions: instructions.collect::<Answer<_>>()?,
    };
    Ok(FlowMod {
        command,
        table: from.table_id,
        rule,
        cookie_mask: from.cookie_mask.0,
        out_port: PortNo(from.out_port),
        out_group: from.out_group,
        buffer: (from.buffer_id.0 != NO_BUFFER).then_some(from.buffer_id.0),
    })
}

/// A group-mod of the wire as the model's.
///
/// # Errors
/// What the standard has for it.
pub fn read_group_mod(version: Version, from: &wire_group::GroupMod) -> Answer<GroupMod> {
    let command = match from.command {
        wire_group::GroupCommand::ADD => GroupModCommand::Add,
        wire_group::GroupCommand::MODIFY => GroupModCommand::Modify,
        wire_group::GroupCommand::DELETE => GroupModCommand::Delete,
        _ => return Err(GroupModFailed::BadCommand.into()),
    };
    let kind = match from.kind {
        wire_group::GroupType::ALL => GroupType::All,
        wire_group::GroupType::SELECT => GroupType::Select,
        wire_group::GroupType::INDIRECT => GroupType::Indirect,
        wire_group::GroupType::FF => GroupType::FastFailover,
        // A delete names no type.
        _ if command == GroupModCommand::Delete => GroupType::All,
        _ => return Err(GroupModFailed::BadType.into()),
    };
    let bucket = |from: &wire_group::Bucket| {
        Ok(Bucket {
            weight: from.weight,
            watch_port: PortNo(from.watch_port),
            watch_group: from.watch_group,
            actions: read_actions(version, &from.actions)?,
        })
    };
    let buckets = from.buckets.iter().map(bucket).collect::<Answer<_>>()?;
    Ok(GroupMod { command, group: Group { id: from.group_id, kind, buckets } })
}

/// The buckets of a group as the wire's.
pub fn write_buckets(from: &[Bucket]) -> Vec<wire_group::Bucket> {
    let bucket = |from: &Bucket| wire_group::Bucket {
        weight: from.weight,
        watch_port: from.watch_port.0,
        watch_group: from.watch_group,
        actions: write_actions(&from.actions),
    };
    from.iter().map(bucket).collect()
}

/// A meter-mod of the wire as the model's.
///
/// # Errors
/// What the standard has for it.
pub fn read_meter_mod(from: &wire_group::MeterMod) -> Answer<MeterMod> {
    let command = match from.command {
        wire_group::MeterCommand::ADD => MeterModCommand::Add,
        wire_group::MeterCommand::MODIFY => MeterModCommand::Modify,
        wire_group::MeterCommand::DELETE => MeterModCommand::Delete,
        _ => return Err(MeterModFailed::BadCommand.into()),
    };
    let band = |from: &wire_group::Band| match from {
        wire_group::Band::Drop(band) => {
            Band { rate: band.rate, burst_size: band.burst_size, kind: BandKind::Drop }
        }
        wire_group::Band::Remark(band) => {
            let kind = BandKind::DscpRemark { prec_level: band.prec_level };
            Band { rate: band.rate, burst_size: band.burst_size, kind }
        }
        wire_group::Band::Experimenter(band) => {
            let (experimenter, data) = (band.body.experimenter.0, band.body.data.0.clone());
            let kind = BandKind::Experimenter { experimenter, data };
            Band { rate: band.rate, burst_size: band.burst_size, kind }
        }
    };
    let flags = from.flags.known().ok_or(MeterModFailed::BadFlags)?;
    let bands = from.bands.iter().map(band).collect();
    Ok(MeterMod { command, meter: Meter { id: from.meter_id, flags, bands } })
}

/// The bands of a meter as the wire's.
pub fn write_bands(from: &[Band]) -> Vec<wire_group::Band> {
    let band = |from: &Band| {
        let (rate, burst_size) = (from.rate, from.burst_size);
        match &from.kind {
            BandKind::Drop => wire_group::Band::Drop(wire_group::BandDrop { rate, burst_size }),
            BandKind::DscpRemark { prec_level } => {
                let prec_level = *prec_level;
                wire_group::Band::Remark(wire_group::BandRemark { rate, burst_size, prec_level })
            }
            BandKind::Experimenter { experimenter, data } => {
                let (experimenter, data) = (Hex(*experimenter), Bytes(data.clone()));
                let body = oxm::Experimenter { experimenter, data };
                wire_group::Band::Experimenter(wire_group::BandExperimenter { rate, burst_size, body })
            }
        }
    };
    from.iter().map(band).collect()
}

/// 1.3 ends at group_delete (§7.4.2): what made room or lost its meter was deleted.
pub(super) fn removed_reason(version: Version, reason: RemovedReason) -> wire_rule::RemovedReason {
    match (version, reason) {
        (Version::V13, RemovedReason::MeterDelete | RemovedReason::Eviction) => {
            wire_rule::RemovedReason::DELETE
        }
        _ => wire_rule::RemovedReason(reason as u8),
    }
}
