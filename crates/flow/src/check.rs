//! What a switch refuses in actions and instructions, before it changes anything.
//!
//! **What.** Every reason of §7.5.4.3 and §7.5.4.4 that the model can see: unknown outputs and groups, tags that do not
//! exist, fields that cannot be set, prerequisites that the match does not promise, tables that are not later ones.
//!
//! **Why.** A rule that was accepted can be carried out; an engine needs no errors.
//!
//! **Price.** §7.2.5 wants a set-field's prerequisite promised by the match or by earlier actions; of the action set, which
//! is carried out after all tables, either promise will do. After a pop nobody
//! knows what is there, and what nobody knows is allowed; the edit does nothing where there is no such header.

use crate::action::{Action, Instruction};
use crate::action_set::slot;
use crate::error::{BadAction, BadInstruction, Error, MeterModFailed};
use crate::field::{Field, Prerequisite, VLAN_PRESENT, Value};
use crate::group::Groups;
use crate::matching::Match;
use crate::meter::{MAX_METER, Meters};
use crate::port::PortNo;
use crate::rule::Rule;
use crate::table::LAST_TABLE;
use wire::refuse_if;
use wire::{frame, headers};

/// Where actions stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionContext {
    /// In a rule.
    Rule,
    /// In a bucket of a group.
    Bucket,
    /// In a packet-out: the only place for an output to TABLE.
    PacketOut,
}

/// What is known about a header field before an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fact {
    /// Nothing promises it.
    Open,
    /// It has this value.
    Is(u16),
    /// It may have any value: something was popped.
    Any,
}

impl Fact {
    fn may_be(self, allowed: &[u16]) -> bool {
        match self {
            Fact::Open => false,
            Fact::Is(value) => allowed.contains(&value),
            Fact::Any => true,
        }
    }
}

/// What is known about the frame while actions are read in the order in which they will be carried out.
#[derive(Debug, Clone, Copy)]
struct Known {
    eth_type: Fact,
    vlan: Fact,
    ip_proto: Fact,
    icmpv6_type: Fact,
}

impl Known {
    const NOTHING_SURE: Known =
        Known { eth_type: Fact::Any, vlan: Fact::Any, ip_proto: Fact::Any, icmpv6_type: Fact::Any };

    fn from_match(matching: &Match) -> Known {
        let fact = |field| matching.exact(field).map_or(Fact::Open, |value| Fact::Is(value as u16));
        let has_tag = matching.satisfies(Prerequisite::VlanPresent);
        Known {
            eth_type: fact(Field::EthType),
            vlan: if has_tag { Fact::Is(VLAN_PRESENT) } else { Fact::Open },
            ip_proto: fact(Field::IpProto),
            icmpv6_type: fact(Field::Icmpv6Type),
        }
    }

    fn may_satisfy(&self, prerequisite: Prerequisite) -> bool {
        prerequisite.holds(|field, allowed| match field {
            Field::VlanVid => self.vlan.may_be(allowed),
            Field::EthType => self.eth_type.may_be(allowed),
            Field::IpProto => self.ip_proto.may_be(allowed),
            Field::Icmpv6Type => self.icmpv6_type.may_be(allowed),
            // The port is always known.
            _ => true,
        })
    }

    /// What is known after the action.
    fn after(&mut self, action: &Action) {
        match action {
            Action::PushVlan(_) => self.vlan = Fact::Is(VLAN_PRESENT),
            Action::PopVlan => self.vlan = Fact::Any,
            Action::PushMpls(eth_type) | Action::PushPbb(eth_type) => {
                *self = Known { eth_type: Fact::Is(*eth_type), ..Known::NOTHING_SURE };
            }
            Action::PopMpls(eth_type) => {
                *self = Known { eth_type: Fact::Is(*eth_type), vlan: self.vlan, ..Known::NOTHING_SURE };
            }
            Action::PopPbb => *self = Known::NOTHING_SURE,
            Action::SetField { field: Field::EthType, value } => self.eth_type = Fact::Is(*value as u16),
            Action::SetField { field: Field::IpProto, value } => self.ip_proto = Fact::Is(*value as u16),
            Action::SetField { field: Field::Icmpv6Type, value } => {
                self.icmpv6_type = Fact::Is(*value as u16)
            }
            _ => {}
        }
    }
}

/// Checks the actions of a bucket or of a packet-out, of which no match promises anything.
pub fn free_actions(actions: &[Action], home: ActionContext, groups: &Groups) -> Result<(), Error> {
    list(actions.iter(), Known::NOTHING_SURE, None, home, groups)
}

/// Checks the instructions of a rule for a table.
pub fn instructions(rule: &Rule, table: u8, groups: &Groups, meters: &Meters) -> Result<(), Error> {
    let mut seen = [false; 7];
    for instruction in &rule.instructions {
        let seen = &mut seen[usize::from(instruction.place())];
        refuse_if(std::mem::replace(seen, true), BadInstruction::DupInst)?;
    }
    let known = Known::from_match(&rule.matching);
    // Actions that are applied come before the action set (§5.9): what they put there, the set may write.
    let mut applied = known;
    for instruction in &rule.instructions {
        if let Instruction::ApplyActions(actions) = instruction {
            actions.iter().for_each(|action| applied.after(action));
        }
    }
    for instruction in &rule.instructions {
        match instruction {
            // §5.9: "the next table must be greater than the current table".
            Instruction::GotoTable(next) if *next <= table || *next > LAST_TABLE => {
                return Err(BadInstruction::BadTableId.into());
            }
            Instruction::Meter(id) if !(1..=MAX_METER).contains(id) || meters.get(*id).is_none() => {
                return Err(MeterModFailed::UnknownMeter.into());
            }
            Instruction::Experimenter { .. } => return Err(BadInstruction::BadExperimenter.into()),
            Instruction::ApplyActions(actions) => {
                list(actions.iter(), known, None, ActionContext::Rule, groups)?
            }
            Instruction::WriteActions(actions) => {
                // The set is carried out in its own order, so that is the order in which facts arise.
                let mut ordered: Vec<&Action> = actions.iter().collect();
                ordered.sort_by_key(|action| slot(action));
                list(ordered.into_iter(), applied, Some(known), ActionContext::Rule, groups)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks actions that are carried out one after the other; what `promised` says holds for all of them.
fn list<'a>(
    actions: impl Iterator<Item = &'a Action>,
    mut known: Known,
    promised: Option<Known>,
    home: ActionContext,
    groups: &Groups,
) -> Result<(), Error> {
    for action in actions {
        let done = one(action, &known, home, groups);
        match promised {
            Some(promised) if done == Err(BadAction::MatchInconsistent) => {
                one(action, &promised, home, groups)?
            }
            _ => done?,
        }
        known.after(action);
    }
    Ok(())
}

fn one(action: &Action, known: &Known, home: ActionContext, groups: &Groups) -> Result<(), BadAction> {
    match action {
        Action::Output { port, .. } => refuse_if(!is_output(*port, home), BadAction::BadOutPort),
        Action::Group(id) => refuse_if(groups.get(*id).is_none(), BadAction::BadOutGroup),
        Action::PushVlan(tag) => {
            refuse_if(![headers::VLAN, headers::SERVICE_VLAN].contains(tag), BadAction::BadTag)
        }
        Action::PushMpls(tag) => {
            refuse_if(![frame::MPLS, frame::MPLS_MULTICAST].contains(tag), BadAction::BadTag)
        }
        Action::PushPbb(tag) => refuse_if(*tag != frame::PBB, BadAction::BadTag),
        Action::SetField { field, value } => set_field(*field, *value, known),
        Action::Experimenter { .. } => Err(BadAction::BadExperimenter),
        _ => Ok(()),
    }
}

/// Whether an output may name the port. A port that does not exist (yet) may be named (§6.4).
fn is_output(port: PortNo, home: ActionContext) -> bool {
    match port {
        PortNo::TABLE => home == ActionContext::PacketOut,
        PortNo::ANY => false,
        _ => port.is_ordinary() || PortNo::RESERVED.iter().any(|(one, _)| *one == port),
    }
}

fn set_field(field: Field, value: Value, known: &Known) -> Result<(), BadAction> {
    refuse_if(!field.row().settable, BadAction::BadSetType)?;
    // §7.2.5: the OFPVID_PRESENT bit must be set in a set-field of vlan_vid.
    let lacks_tag = field == Field::VlanVid && value & Value::from(VLAN_PRESENT) == 0;
    refuse_if(value & !field.full_mask() != 0 || lacks_tag, BadAction::BadSetArgument)?;
    refuse_if(!known.may_satisfy(field.row().prerequisite), BadAction::MatchInconsistent)
}

#[cfg(test)]
mod tests {
    use crate::error::{BadAction, Error};
    use crate::pipeline::Pipeline;
    use crate::rule::FlowModCommand;
    use crate::text::rule::flow_mod;

    #[test]
    fn what_is_applied_first_may_be_written_by_the_action_set() {
        let add = |text: &str| {
            Pipeline::default().flow_mod(0, &flow_mod(FlowModCommand::Add, text).unwrap()).map(drop)
        };
        let inconsistent = Err(Error::from(BadAction::MatchInconsistent));
        assert_eq!(add("actions=push_vlan:0x8100,write_actions(set_field:5->vlan_pcp)"), Ok(()));
        assert_eq!(add("actions=write_actions(set_field:5->vlan_pcp)"), inconsistent);
        // What the match promises may be there again, or still, when the action set is carried out.
        assert_eq!(add("mpls actions=write_actions(set_field:5->mpls_label,pop_mpls:0x0800)"), Ok(()));
        assert_eq!(add("ip actions=push_mpls:0x8847,set_field:10.0.0.1->nw_dst"), inconsistent);
    }
}
