//! Actions and instructions (OpenFlow 1.3.5 sections 7.2.4 and 7.2.5, 1.4.1 sections 7.2.3 and 7.2.4).
//!
//! Both have a type, a length that is a multiple of eight and counts the padding, and a body of exactly that length: an output
//! of 24 bytes is refused, not read as 16.

use super::bytes::{Hex, Padding, Part, Reader, Tagged, Tlv, Writer, layout, tagged, tlv};
use super::fault::Fault;
use super::forms::Padded;
use super::oxm::{Experimenter, Oxm};
use super::tree::Tree;
use crate::error::{BadAction, BadInstruction};

layout! {
    /// The body of an action without arguments.
    pub struct Nothing "" {
        _ 4;
    }
    /// `output`.
    pub struct Output "output" {
        /// To which port.
        port: u32;
        /// How many bytes of the frame a controller gets; 0xffff means all of it.
        max_len: u16;
        _ 6;
    }
    /// One byte and padding: a time to live.
    pub struct Ttl "ttl" {
        /// The new value.
        ttl: u8;
        _ 3;
    }
    /// The Ethernet type of a header that comes or becomes visible.
    pub struct Ethertype "ethertype" {
        /// The Ethernet type.
        ethertype: Hex<u16>;
        _ 2;
    }
    /// `group`.
    pub struct ToGroup "group" {
        /// Which.
        group_id: u32;
    }
    /// `set_field`.
    pub struct SetField "set_field" {
        /// The field and its new value, without mask.
        field: Oxm as Padded;
    }
    /// `set_queue`.
    pub struct SetQueue "set_queue" {
        /// Which.
        queue_id: u32;
    }
    /// `goto_table`.
    pub struct GotoTable "goto_table" {
        /// Which, after this one.
        table_id: u8;
        _ 3;
    }
    /// `write_metadata`.
    pub struct WriteMetadata "write_metadata" {
        _ 4;
        /// The bits.
        metadata: Hex<u64>;
        /// Which of them.
        metadata_mask: Hex<u64>;
    }
    /// `write_actions` and `apply_actions`.
    pub struct Actions "actions" {
        _ 4;
        /// In order.
        actions: Vec<Action>;
    }
    /// `meter`.
    pub struct ToMeter "meter" {
        /// Which.
        meter_id: u32;
    }
}

tagged! {
    /// An action.
    pub enum Action {
        /// To a port.
        0 "output" => Output(Output);
        /// Time to live outwards.
        11 "copy_ttl_out" => CopyTtlOut(Nothing);
        /// Time to live inwards.
        12 "copy_ttl_in" => CopyTtlIn(Nothing);
        /// MPLS time to live.
        15 "set_mpls_ttl" => SetMplsTtl(Ttl);
        /// MPLS time to live, one less.
        16 "dec_mpls_ttl" => DecMplsTtl(Nothing);
        /// A new VLAN tag.
        17 "push_vlan" => PushVlan(Ethertype);
        /// The outer VLAN tag away.
        18 "pop_vlan" => PopVlan(Nothing);
        /// A new MPLS header.
        19 "push_mpls" => PushMpls(Ethertype);
        /// The outer MPLS header away.
        20 "pop_mpls" => PopMpls(Ethertype);
        /// For frames that go to a port after this.
        21 "set_queue" => SetQueue(SetQueue);
        /// To a group.
        22 "group" => Group(ToGroup);
        /// IP time to live.
        23 "set_nw_ttl" => SetNwTtl(Ttl);
        /// IP time to live, one less.
        24 "dec_nw_ttl" => DecNwTtl(Nothing);
        /// A header field.
        25 "set_field" => SetField(SetField);
        /// A new PBB service tag.
        26 "push_pbb" => PushPbb(Ethertype);
        /// The PBB service tag away.
        27 "pop_pbb" => PopPbb(Nothing);
        /// An experimenter's.
        0xffff "experimenter" => Experimenter(Experimenter);
    }
}
tlv!(Action, |_| Tlv::new(Padding::Inside, BadAction::BadType, BadAction::BadLen));

tagged! {
    /// An instruction.
    pub enum Instruction {
        /// Which table is next.
        1 "goto_table" => GotoTable(GotoTable);
        /// Bits for later tables.
        2 "write_metadata" => WriteMetadata(WriteMetadata);
        /// Into the action set.
        3 "write_actions" => WriteActions(Actions);
        /// Now.
        4 "apply_actions" => ApplyActions(Actions);
        /// Empties the action set.
        5 "clear_actions" => ClearActions(Nothing);
        /// Through a meter.
        6 "meter" => Meter(ToMeter);
        /// An experimenter's.
        0xffff "experimenter" => Experimenter(Experimenter);
    }
}
tlv!(Instruction, |_| Tlv::new(Padding::Inside, BadInstruction::UnknownInst, BadInstruction::BadLen));

/// The type of an action or an instruction alone, as table features list them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KindId {
    /// The type.
    pub kind: u16,
    /// Who defined it and what they add, for type 0xffff.
    pub experimenter: Option<Experimenter>,
}

impl KindId {
    /// A type of the standard.
    pub fn standard(kind: u16) -> KindId {
        KindId { kind, experimenter: None }
    }
}

impl Part for KindId {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let (kind, mut body) = Tlv::new(Padding::Absent, r.short, r.short).open(r)?;
        let experimenter = if kind == 0xffff { Some(Experimenter::read(&mut body)?) } else { None };
        body.end()?;
        Ok(KindId { kind, experimenter })
    }
    fn write(&self, w: &mut Writer) {
        let start = w.at();
        self.kind.write(w);
        w.zeros(2);
        if let Some(experimenter) = &self.experimenter {
            experimenter.write(w);
        }
        w.measure(start, 2);
    }
    fn tree(&self) -> Tree {
        let mut fields = vec![("type", Tree::Number(u64::from(self.kind)))];
        fields.extend(self.experimenter.as_ref().map(|one| ("experimenter", one.tree())));
        Tree::Part("id", fields)
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        KindId::standard([0, 1, 2, 3, 4, 5, 6][s.below(7) as usize])
    }
}
