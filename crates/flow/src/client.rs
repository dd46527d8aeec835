//! What a client says to a switch, and what it reads in the answers.
//!
//! **What.** [`flow_mod`], [`group_mod`] and [`meter_mod`] make messages of changes, [`packet_out`] one of a frame; [`rule`], [`group`] and [`meter`] read
//! what a switch says that it has. The other direction of what the [`agent`](crate::agent) does, with the same tables
//! ([`translate`]).
//!
//! **Why.** A rule that is written here, read by a switch and dumped again is the same rule: commands can compare what is
//! there with what should be.
//!
//! **Price.** Only what OpenFlow 1.3 and 1.4 name: a rule with a field of somebody's own is an error that says so.

use crate::action::{Action, Instruction};
use crate::agent::translate::{self, NO_BUFFER};
use crate::error::Error;
use crate::field::Field;
use crate::group::{Group, GroupMod};
use crate::matching::{Match, MatchField};
use crate::meter::{Meter, MeterMod};
use crate::openflow::bytes::{Bytes, Hex, Version};
use crate::openflow::group as wire_group;
use crate::openflow::message::Body;
use crate::openflow::rule as wire_rule;
use crate::port::PortNo;
use crate::rule::{ALL_TABLES, FlowMod, FlowModCommand, Rule};

/// The change that deletes every rule of every table.
pub fn delete_all() -> FlowMod {
    FlowMod::new(FlowModCommand::Delete, ALL_TABLES, Rule::new(0, Match::all(), vec![]))
}

/// The message that makes a change of rules.
pub fn flow_mod(change: &FlowMod) -> Body {
    let rule = &change.rule;
    Body::FlowMod(wire_rule::FlowMod {
        cookie: Hex(rule.cookie),
        cookie_mask: Hex(change.cookie_mask),
        table_id: change.table,
        command: wire_rule::FlowCommand(change.command as u8),
        idle_timeout: rule.idle_timeout,
        hard_timeout: rule.hard_timeout,
        priority: rule.priority,
        buffer_id: Hex(change.buffer.unwrap_or(NO_BUFFER)),
        out_port: change.out_port.0,
        out_group: change.out_group,
        flags: rule.flags,
        importance: rule.importance,
        matching: translate::write_match(&rule.matching),
        instructions: translate::write_instructions(&rule.instructions),
    })
}

/// The message that makes a change of groups.
pub fn group_mod(change: &GroupMod) -> Body {
    Body::GroupMod(wire_group::GroupMod {
        command: wire_group::GroupCommand(change.command as u16),
        kind: wire_group::GroupType(change.group.kind as u8),
        group_id: change.group.id,
        buckets: translate::write_buckets(&change.group.buckets),
    })
}

/// The message that makes a change of meters.
pub fn meter_mod(change: &MeterMod) -> Body {
    Body::MeterMod(wire_group::MeterMod {
        command: wire_group::MeterCommand(change.command as u16),
        flags: change.meter.flags,
        meter_id: change.meter.id,
        bands: translate::write_bands(&change.meter.bands),
    })
}

/// The message that sends a frame.
pub fn packet_out(in_port: PortNo, actions: &[Action], frame: &[u8]) -> Body {
    Body::PacketOut(wire_rule::PacketOut {
        buffer_id: Hex(NO_BUFFER),
        in_port: in_port.0,
        actions: translate::write_actions(actions),
        data: Bytes(frame.to_vec()),
    })
}

/// The request for the rules within the match of this change, with its table, cookie and filters.
pub fn flow_request(which: &FlowMod) -> wire_rule::FlowStatsRequest {
    wire_rule::FlowStatsRequest {
        table_id: which.table,
        out_port: which.out_port.0,
        out_group: which.out_group,
        cookie: Hex(which.rule.cookie),
        cookie_mask: Hex(which.cookie_mask),
        matching: translate::write_match(&which.rule.matching),
    }
}

/// A rule that a switch reported, with its table.
///
/// # Errors
/// It says something that these versions have no word for.
pub fn rule(version: Version, from: &wire_rule::FlowStats) -> Result<(u8, Rule), Error> {
    let change = wire_rule::FlowMod {
        cookie: from.cookie,
        table_id: from.table_id,
        idle_timeout: from.idle_timeout,
        hard_timeout: from.hard_timeout,
        priority: from.priority,
        flags: from.flags,
        importance: from.importance,
        matching: from.matching.clone(),
        instructions: from.instructions.clone(),
        // It adds, and has no filters.
        ..Default::default()
    };
    let change = translate::read_flow_mod(version, &change)?;
    Ok((change.table, change.rule))
}

/// A group that a switch reported.
///
/// # Errors
/// It says something that these versions have no word for.
pub fn group(version: Version, from: &wire_group::GroupDesc) -> Result<Group, Error> {
    let change = wire_group::GroupMod {
        command: wire_group::GroupCommand::ADD,
        kind: from.kind,
        group_id: from.group_id,
        buckets: from.buckets.clone(),
    };
    Ok(translate::read_group_mod(version, &change)?.group)
}

/// A meter that a switch reported.
///
/// # Errors
/// It says something that these versions have no word for.
pub fn meter(from: &wire_group::MeterConfig) -> Result<Meter, Error> {
    let change = wire_group::MeterMod {
        command: wire_group::MeterCommand::ADD,
        flags: from.flags,
        meter_id: from.meter_id,
        bands: from.bands.clone(),
    };
    Ok(translate::read_meter_mod(&change)?.meter)
}

/// The one of the rules that mean the same: fields in the order of the table, instructions in the order in which they are carried
/// out. Switches report both in orders of their own.
pub fn normal(rule: &Rule) -> Rule {
    let field = |(field, value, mask): (Field, u128, u128)| MatchField {
        field,
        value,
        mask: (mask != field.full_mask()).then_some(mask),
    };
    let mut normal = rule.clone();
    let mut fields: Vec<MatchField> = rule.matching.meaning().into_iter().map(field).collect();
    fields.sort_by_key(|one| one.field);
    normal.matching = Match::unchecked(fields);
    normal.instructions.sort_by_key(Instruction::place);
    normal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbered::ModCommand;
    use crate::openflow::message::Message;
    use crate::pipeline::Change;
    use crate::text;

    /// Through the bytes and back, as a switch reads it.
    fn travelled(version: Version, change: &Change) -> Change {
        let body = match change {
            Change::Flow(change) => flow_mod(change),
            Change::Group(change) => group_mod(change),
            Change::Meter(change) => meter_mod(change),
            other => panic!("{other:?}"),
        };
        let bytes = Message { version, xid: 7, body }.encode().unwrap();
        match Message::decode(&bytes).unwrap().body {
            Body::FlowMod(wire) => Change::Flow(translate::read_flow_mod(version, &wire).unwrap()),
            Body::GroupMod(wire) => Change::Group(translate::read_group_mod(version, &wire).unwrap()),
            Body::MeterMod(wire) => Change::Meter(translate::read_meter_mod(&wire).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_client_says_is_what_a_switch_reads() {
        let rules = [
            "actions=drop",
            "cookie=0x7,table=3,priority=9,idle_timeout=5,send_flow_rem,tcp,nw_dst=10.0.0.0/8,tp_dst=80 \
             actions=dec_ttl,set_field:02:00:00:00:00:01->eth_dst,output:2,goto_table:4",
            "in_port=1,dl_vlan=5,actions=pop_vlan,CONTROLLER:128",
            "ipv6,ipv6_src=fe80::/10,actions=write_actions(group:3),write_metadata:0x1/0xff,meter:9",
        ];
        let commands = [FlowModCommand::Add, FlowModCommand::ModifyStrict, FlowModCommand::Delete];
        for version in Version::ALL {
            for (rule, command) in rules.iter().flat_map(|rule| commands.map(|command| (rule, command))) {
                let added = text::rule::flow_mod(FlowModCommand::Add, rule).unwrap();
                let change = Change::Flow(FlowMod { command, ..added });
                assert_eq!(travelled(version, &change), change, "{rule}");
            }
            let group = text::group::parse(
                "group_id=5,type=ff,bucket=watch_port:1,output:1,bucket=watch_port:2,output:2",
            );
            let change = Change::Group(GroupMod { command: ModCommand::Modify, group: group.unwrap() });
            assert_eq!(travelled(version, &change), change);
            let meter = text::meter::parse(
                "meter=6,kbps,burst,band=type=dscp_remark,rate=9,burst_size=2,prec_level=1",
            );
            let change = Change::Meter(MeterMod { command: ModCommand::Add, meter: meter.unwrap() });
            assert_eq!(travelled(version, &change), change);
        }
    }

    #[test]
    fn rules_that_mean_the_same_have_one_normal_form() {
        let normal = |line: &str| text::rule::show(0, &normal(&text::rule::parse(line).unwrap().1));
        let one = normal("nw_dst=10.0.0.1/255.255.255.255,tcp,in_port=1,actions=goto_table:2,output:1");
        assert_eq!(one, normal("in_port=1,tcp,nw_dst=10.0.0.1,actions=output:1,goto_table:2"));
        assert_ne!(one, normal("in_port=1,tcp,nw_dst=10.0.0.2,actions=output:1,goto_table:2"));
    }

    #[test]
    fn a_field_of_somebody_else_is_an_error() {
        let mut stats = wire_rule::FlowStats::default();
        stats.matching.fields = vec![crate::openflow::oxm::Oxm {
            class: 1,
            field: 30,
            experimenter: None,
            value: vec![0; 4],
            mask: None,
        }];
        assert!(rule(Version::V13, &stats).is_err());
    }
}
