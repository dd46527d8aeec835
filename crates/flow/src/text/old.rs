//! Actions of OpenFlow 1.0, which ovs-ofctl(8) still reads, in words of OpenFlow 1.3.
//!
//! **What.** `mod_tp_dst:80` is a set-field whose field depends on the protocol of the match, `mod_vlan_vid:5` pushes a tag first when the
//! frame has none, `enqueue:2:1` is a queue and an output. [`Frames`] knows as much of the frames as that needs.
//!
//! **Price.** They are printed as what they become. OpenFlow 1.3 cannot take a frame out of a queue again, as an `enqueue` that is
//! followed by another output asks for: that is refused.

use super::{Piece, Result, value};
use crate::action::Action;
use crate::field::{Field, Prerequisite, VLAN_PRESENT, Value};
use crate::matching::Match;

/// The type of a tag that nobody names.
const TAG: u16 = 0x8100;

/// What is known of the frames that an action meets.
pub struct Frames {
    protocol: Option<Value>,
    has_tag: bool,
    /// They are in a queue that they were put into for one output alone.
    is_queued: bool,
}

impl Frames {
    /// Those of a match.
    pub fn of(matching: &Match) -> Frames {
        let protocol = matching.exact(Field::IpProto);
        let present = Value::from(VLAN_PRESENT);
        let has_tag = matching.get(Field::VlanVid).is_some_and(|vid| vid.value & present != 0);
        Frames { protocol, has_tag, is_queued: false }
    }

    /// The actions of OpenFlow 1.3 for one of 1.0; nothing when it is none.
    pub fn translate(&mut self, item: Piece<'_>) -> Result<Option<Vec<Action>>> {
        let (name, Some(argument)) = item.inside().map_or_else(|| item.split(&[':']), |(n, a)| (n, Some(a)))
        else {
            return Ok(None);
        };
        let set = |field: Field, value: Value| Action::SetField { field, value };
        let read = |field| Ok(set(field, value::value(field, argument)?));
        Ok(Some(match name.text {
            "mod_tp_src" => vec![read(self.port(name, [Field::TcpSrc, Field::UdpSrc, Field::SctpSrc])?)?],
            "mod_tp_dst" => vec![read(self.port(name, [Field::TcpDst, Field::UdpDst, Field::SctpDst])?)?],
            "mod_nw_tos" => vec![set(Field::IpDscp, value::dscp_of_tos(argument)?)],
            "mod_nw_ecn" => vec![read(Field::IpEcn)?],
            "mod_vlan_vid" => {
                let vid = argument.number(0xfff)? | Value::from(VLAN_PRESENT);
                self.tagged(set(Field::VlanVid, vid))
            }
            "mod_vlan_pcp" => self.tagged(read(Field::VlanPcp)?),
            "enqueue" => {
                let (port, Some(queue)) = argument.split(&[':', ',']) else {
                    return argument.error("enqueue is written enqueue:PORT:QUEUE");
                };
                let output = Action::Output { port: value::port(port)?, max_len: 0 };
                vec![Action::SetQueue(queue.int()?), output]
            }
            _ => return Ok(None),
        }))
    }

    /// What the frames are after an action that was written as this.
    pub fn follow(&mut self, item: Piece<'_>, actions: &[Action]) -> Result<()> {
        let is_enqueue = item.text.starts_with("enqueue");
        for action in actions {
            match action {
                Action::PushVlan(_) => self.has_tag = true,
                Action::PopVlan => self.has_tag = false,
                Action::SetQueue(_) => self.is_queued = false,
                Action::Output { .. } | Action::Group(_) if self.is_queued => {
                    return item.error(
                        "what follows an enqueue would get into its queue, too: put it in front, or set_queue between them",
                    );
                }
                _ => {}
            }
        }
        self.is_queued |= is_enqueue;
        Ok(())
    }

    fn port(&self, name: Piece<'_>, fields: [Field; 3]) -> Result<Field> {
        let needs = |field: &Field| match field.row().prerequisite {
            Prerequisite::IpProto(needed, _) => Some(Value::from(needed)) == self.protocol,
            _ => false,
        };
        let needed = || name.error(format!("{} needs tcp, udp or sctp in the match", name.text));
        fields.into_iter().find(needs).map_or_else(needed, Ok)
    }

    fn tagged(&self, set: Action) -> Vec<Action> {
        let push = (!self.has_tag).then_some(Action::PushVlan(TAG));
        push.into_iter().chain([set]).collect()
    }
}
