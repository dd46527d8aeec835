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
use crate::group::{Bucket, Group, GroupMod, GroupType};
use crate::matching::{Match, MatchField};
use crate::meter::{Band, BandKind, Meter, MeterMod};
use crate::numbered::ModCommand;
use crate::openflow::action as wire;
use crate::openflow::bytes::{Bytes, Hex, Version};
use crate::openflow::group as wire_group;
use crate::openflow::oxm::{self, Experimenter};
use crate::openflow::rule as wire_rule;
use crate::port::PortNo;
use crate::rule::{FlowMod, FlowModCommand, RemovedReason, Rule};
use ::wire::refuse_if;

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
        refuse_if(!fits(&one.value) || !one.mask.as_deref().is_none_or(fits), BadMatch::BadLen)?;
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

/// Two functions, from the wire and to it, made of one table: each row has the same thing in the words of both, with the same variables
/// for its values. What differs by more than words has an arm of its own in each direction.
macro_rules! both_ways {
    (
        fn $read:ident($version:ident) <=> fn $write:ident, $Wire:ty, $Model:ty;
        $([$($wire:tt)+] <=> [$($model:tt)+])+
        read { $($read_arms:tt)* }
        write { $($write_arms:tt)* }
    ) => {
        fn $read($version: Version, from: $Wire) -> Answer<$Model> {
            Ok(match from { $($($wire)+ => $($model)+,)+ $($read_arms)* })
        }

        fn $write(from: $Model) -> $Wire {
            match from { $($($model)+ => $($wire)+,)+ $($write_arms)* }
        }
    };
    (fn $read:ident <=> fn $write:ident, $Wire:ty, $Model:ty; $([$($wire:tt)+] <=> [$($model:tt)+])+) => {
        fn $read(from: $Wire) -> $Model {
            match from { $($($wire)+ => $($model)+,)+ }
        }

        fn $write(from: $Model) -> $Wire {
            match from { $($($model)+ => $($wire)+,)+ }
        }
    };
}

both_ways! {
    fn read_action(version) <=> fn write_action, wire::Action, Action;
    [wire::Action::Output(wire::Output { port, max_len })] <=> [Action::Output { port: PortNo(port), max_len }]
    [wire::Action::CopyTtlOut(wire::Nothing {})] <=> [Action::CopyTtlOut]
    [wire::Action::CopyTtlIn(wire::Nothing {})] <=> [Action::CopyTtlIn]
    [wire::Action::SetMplsTtl(wire::Ttl { ttl })] <=> [Action::SetMplsTtl(ttl)]
    [wire::Action::DecMplsTtl(wire::Nothing {})] <=> [Action::DecMplsTtl]
    [wire::Action::PushVlan(wire::Ethertype { ethertype: Hex(tag) })] <=> [Action::PushVlan(tag)]
    [wire::Action::PopVlan(wire::Nothing {})] <=> [Action::PopVlan]
    [wire::Action::PushMpls(wire::Ethertype { ethertype: Hex(tag) })] <=> [Action::PushMpls(tag)]
    [wire::Action::PopMpls(wire::Ethertype { ethertype: Hex(tag) })] <=> [Action::PopMpls(tag)]
    [wire::Action::SetQueue(wire::SetQueue { queue_id })] <=> [Action::SetQueue(queue_id)]
    [wire::Action::Group(wire::ToGroup { group_id })] <=> [Action::Group(group_id)]
    [wire::Action::SetNwTtl(wire::Ttl { ttl })] <=> [Action::SetNwTtl(ttl)]
    [wire::Action::DecNwTtl(wire::Nothing {})] <=> [Action::DecNwTtl]
    [wire::Action::PushPbb(wire::Ethertype { ethertype: Hex(tag) })] <=> [Action::PushPbb(tag)]
    [wire::Action::PopPbb(wire::Nothing {})] <=> [Action::PopPbb]
    [wire::Action::Experimenter(Experimenter { experimenter: Hex(experimenter), data: Bytes(data) })]
        <=> [Action::Experimenter { experimenter, data }]
    read {
        wire::Action::SetField(set) => read_set_field(version, &set.field)?,
    }
    write {
        Action::SetField { field, value } => {
            let field = oxm::Oxm::basic(field as u8, &bytes(field, value), None);
            wire::Action::SetField(wire::SetField { field })
        }
    }
}

fn read_set_field(version: Version, one: &oxm::Oxm) -> Answer<Action> {
    let field = field_of(version, one).ok_or(BadAction::BadSetType)?;
    refuse_if(one.value.len() != field.bytes(), BadAction::BadSetLen)?;
    // §7.2.5: "the oxm_hasmask bit must be zero".
    refuse_if(one.mask.is_some(), BadAction::BadSetType)?;
    Ok(Action::SetField { field, value: number(&one.value) })
}

/// Actions of the wire as the model's.
///
/// # Errors
/// `BadAction`: a set-field that names no field, or has a wrong length. What the actions do is checked by the model.
pub fn read_actions(version: Version, from: &[wire::Action]) -> Answer<Vec<Action>> {
    from.iter().map(|action| read_action(version, action.clone())).collect()
}

/// The model's actions as the wire's.
pub fn write_actions(from: &[Action]) -> Vec<wire::Action> {
    from.iter().cloned().map(write_action).collect()
}

both_ways! {
    fn read_instruction(version) <=> fn write_instruction, wire::Instruction, Instruction;
    [wire::Instruction::GotoTable(wire::GotoTable { table_id })] <=> [Instruction::GotoTable(table_id)]
    [wire::Instruction::WriteMetadata(wire::WriteMetadata { metadata: Hex(metadata), metadata_mask: Hex(mask) })]
        <=> [Instruction::WriteMetadata { metadata, mask }]
    [wire::Instruction::ClearActions(wire::Nothing {})] <=> [Instruction::ClearActions]
    [wire::Instruction::Meter(wire::ToMeter { meter_id })] <=> [Instruction::Meter(meter_id)]
    [wire::Instruction::Experimenter(Experimenter { experimenter: Hex(experimenter), data: Bytes(data) })]
        <=> [Instruction::Experimenter { experimenter, data }]
    read {
        wire::Instruction::WriteActions(write) => Instruction::WriteActions(read_actions(version, &write.actions)?),
        wire::Instruction::ApplyActions(apply) => Instruction::ApplyActions(read_actions(version, &apply.actions)?),
    }
    write {
        Instruction::WriteActions(write) => {
            wire::Instruction::WriteActions(wire::Actions { actions: write_actions(&write) })
        }
        Instruction::ApplyActions(apply) => {
            wire::Instruction::ApplyActions(wire::Actions { actions: write_actions(&apply) })
        }
    }
}

/// The model's instructions as the wire's.
pub fn write_instructions(from: &[Instruction]) -> Vec<wire::Instruction> {
    from.iter().cloned().map(write_instruction).collect()
}

/// A flow-mod of the wire as the model's.
///
/// # Errors
/// What the standard has for it.
pub fn read_flow_mod(version: Version, from: &wire_rule::FlowMod) -> Answer<FlowMod> {
    use FlowModCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
    let mut commands = [Add, Modify, ModifyStrict, Delete, DeleteStrict].into_iter();
    let command = commands.find(|one| *one as u8 == from.command.0).ok_or(FlowModFailed::BadCommand)?;
    let instructions = from.instructions.iter().map(|one| read_instruction(version, one.clone()));
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

fn mod_command(number: u16) -> Option<ModCommand> {
    [ModCommand::Add, ModCommand::Modify, ModCommand::Delete].into_iter().find(|one| *one as u16 == number)
}

/// A group-mod of the wire as the model's.
///
/// # Errors
/// What the standard has for it.
pub fn read_group_mod(version: Version, from: &wire_group::GroupMod) -> Answer<GroupMod> {
    use GroupType::{All, FastFailover, Indirect, Select};
    let command = mod_command(from.command.0).ok_or(GroupModFailed::BadCommand)?;
    let kind = [All, Select, Indirect, FastFailover].into_iter().find(|one| *one as u8 == from.kind.0);
    // A delete names no type.
    let kind = kind.or((command == ModCommand::Delete).then_some(All)).ok_or(GroupModFailed::BadType)?;
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

both_ways! {
    fn read_band <=> fn write_band, wire_group::Band, Band;
    [wire_group::Band::Drop(wire_group::BandDrop { rate, burst_size })]
        <=> [Band { rate, burst_size, kind: BandKind::Drop }]
    [wire_group::Band::Remark(wire_group::BandRemark { rate, burst_size, prec_level })]
        <=> [Band { rate, burst_size, kind: BandKind::DscpRemark { prec_level } }]
    [wire_group::Band::Experimenter(wire_group::BandExperimenter {
        rate, burst_size, body: Experimenter { experimenter: Hex(experimenter), data: Bytes(data) },
    })] <=> [Band { rate, burst_size, kind: BandKind::Experimenter { experimenter, data } }]
}

/// A meter-mod of the wire as the model's.
///
/// # Errors
/// What the standard has for it.
pub fn read_meter_mod(from: &wire_group::MeterMod) -> Answer<MeterMod> {
    let command = mod_command(from.command.0).ok_or(MeterModFailed::BadCommand)?;
    let flags = from.flags.known().ok_or(MeterModFailed::BadFlags)?;
    let bands = from.bands.iter().cloned().map(read_band).collect();
    Ok(MeterMod { command, meter: Meter { id: from.meter_id, flags, bands } })
}

/// The bands of a meter as the wire's.
pub fn write_bands(from: &[Band]) -> Vec<wire_group::Band> {
    from.iter().cloned().map(write_band).collect()
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
