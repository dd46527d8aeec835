//! Bodies as shapes and records: the part that is code, and the part that is data.
//!
//! **What.** The [`BodyShape`] of a body is its list of steps without their values; a *record* has the values. Rules with the same shape share
//! code. A record is words: slot and number of the shape, rank, then the operands of the steps in order.
//!
//! **Why.** A rule that comes needs no new code as long as one of its shape was there before: a table of 64k next hops has one shape.
//! (ESwitch shares action templates for the same reason, SIGCOMM 2016.)
//!
//! **Price.** Operands are loaded instead of standing in the code: one load from a line that is there already.

use crate::ir::{Body, End, Exit, Op};
use crate::pages::{PAGE, Pages};
use crate::path::NO_QUEUE;
use flow::action::Action;
use flow::field::{Field, VLAN_PRESENT, Value};
use flow::rule::RulePosition;
use std::collections::HashMap;
use std::sync::Arc;
use wire::checksum::checksum;

/// One step of a shape, with the operands that it takes from the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShapeStep {
    /// Ask for an output: the port.
    Output,
    /// The queue.
    Queue,
    /// Metadata or tunnel: the bits, and the mask of what stays.
    Register(Field),
    /// An Ethernet address: its six bytes as they stand in memory.
    Address(Field),
    /// vlan_vid or vlan_pcp: the bits of the tag as they stand in memory, and which of them stay.
    Tag(Field),
    /// An IPv4 address: its bytes as they stand in memory, and above them their folded sum.
    Ipv4(Field),
    /// A port of TCP or UDP: the same.
    Port(Field),
    /// Count down TTL or hop limit.
    DecTtl,
    /// Put a VLAN tag in front: the ethertype as it stands in memory.
    PushVlan,
    /// Take a VLAN tag off.
    PopVlan,
    /// Any other edit, by `wire`: its number among the edits.
    Call,
    /// The action set: its number.
    SetTo,
    /// The action set: the index of the row.
    SetMap,
}

/// What comes behind the steps.
pub type Ending = End;

/// The part of a body that is code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BodyShape {
    /// The steps.
    pub steps: Vec<ShapeStep>,
    /// And then.
    pub end: Ending,
}

/// Words of a record before its operands: slot and shape, rank.
pub const OPERANDS: usize = 2;

/// Words of a row of action sets are halves; the index of a row is this many halves each.
pub type RowWidth = usize;

/// All shapes, records and edits of a program, and of those that follow it.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// The records.
    pub pages: Pages,
    /// The edits that code calls `wire` for.
    pub edits: Arc<Vec<Action>>,
    /// The shapes by number.
    pub shapes: Vec<BodyShape>,
    numbers: HashMap<BodyShape, u32>,
    edit_numbers: HashMap<Action, u32>,
}

/// A rule's rank: a larger one wins. Priorities first, then the older rule; never 0.
pub fn rank(at: RulePosition) -> u64 {
    u64::from(at.0.0) << 48 | ((1 << 48) - 1 - at.1)
}

impl ShapeStep {
    /// Words of its operands.
    pub fn operands(self) -> usize {
        match self {
            ShapeStep::Output | ShapeStep::Queue | ShapeStep::SetTo | ShapeStep::SetMap => 1,
            ShapeStep::DecTtl | ShapeStep::PopVlan | ShapeStep::Call => 1,
            ShapeStep::Register(_)
            | ShapeStep::Address(_)
            | ShapeStep::Ipv4(_)
            | ShapeStep::Port(_)
            | ShapeStep::PushVlan => 2,
            ShapeStep::Tag(_) => 3,
        }
    }

    /// Whether it changes the frame.
    pub fn is_edit(self) -> bool {
        !matches!(
            self,
            ShapeStep::Output
                | ShapeStep::Queue
                | ShapeStep::SetTo
                | ShapeStep::SetMap
                | ShapeStep::Register(_)
        )
    }
}

impl Records {
    /// The rank of the record there.
    pub fn rank_of(&self, record: u32) -> u64 {
        self.pages.get(record as usize + 1)
    }

    /// Writes a record; its index in words.
    pub fn add(&mut self, slot: u32, rank: u64, body: &Body, width: RowWidth) -> u32 {
        let (mut shape, mut operands) = self.encode(body, width);
        if operands.len() + OPERANDS > PAGE {
            (shape, operands) = (BodyShape { steps: vec![], end: End::Exit(Exit::Long) }, vec![]);
        }
        let number = self.shape(shape);
        if self.pages.bytes() == 0 {
            // Record 0 is none.
            self.pages.take(1);
        }
        let at = self.pages.take(OPERANDS + operands.len());
        self.pages.set(at, u64::from(slot) | u64::from(number) << 32);
        self.pages.set(at + 1, rank);
        for (index, operand) in operands.into_iter().enumerate() {
            self.pages.set(at + OPERANDS + index, operand);
        }
        at as u32
    }

    /// The shape of the record there.
    pub fn shape_of(&self, record: u32) -> u32 {
        (self.pages.get(record as usize) >> 32) as u32
    }

    fn shape(&mut self, shape: BodyShape) -> u32 {
        let next = self.shapes.len() as u32;
        *self.numbers.entry(shape).or_insert_with_key(|shape| {
            self.shapes.push(shape.clone());
            next
        })
    }

    fn edit(&mut self, action: &Action) -> u32 {
        let next = self.edits.len() as u32;
        *self.edit_numbers.entry(action.clone()).or_insert_with(|| {
            Arc::make_mut(&mut self.edits).push(action.clone());
            next
        })
    }

    fn encode(&mut self, body: &Body, width: RowWidth) -> (BodyShape, Vec<u64>) {
        let mut operands = vec![];
        let steps = body.ops.iter().map(|op| self.step(op, width, &mut operands)).collect();
        (BodyShape { steps, end: body.end }, operands)
    }

    fn step(&mut self, op: &Op, width: RowWidth, operands: &mut Vec<u64>) -> ShapeStep {
        let Op::Edit(action) = op else { return plain_step(op, width, operands) };
        operands.push(u64::from(self.edit(action)));
        edit_step(action, operands)
    }
}

/// The step of an edit. Its first operand is the number of the edit: of a frame that code does not know well enough, `wire` does it.
fn edit_step(action: &Action, operands: &mut Vec<u64>) -> ShapeStep {
    match action {
        Action::DecNwTtl => ShapeStep::DecTtl,
        Action::PopVlan => ShapeStep::PopVlan,
        Action::PushVlan(tag) if matches!(tag, 0x8100 | 0x88a8) => {
            operands.push(u64::from(tag.swap_bytes()));
            ShapeStep::PushVlan
        }
        Action::SetField { field, value } => set_step(*field, *value, operands).unwrap_or(ShapeStep::Call),
        _ => ShapeStep::Call,
    }
}

fn plain_step(op: &Op, width: RowWidth, operands: &mut Vec<u64>) -> ShapeStep {
    match op {
        Op::Output(port) => {
            operands.push(u64::from(port.0));
            ShapeStep::Output
        }
        Op::Queue(queue) => {
            debug_assert!(u64::from(*queue) != NO_QUEUE);
            operands.push(u64::from(*queue));
            ShapeStep::Queue
        }
        Op::Register { field, value, mask } => {
            operands.extend([*value, !mask]);
            ShapeStep::Register(*field)
        }
        Op::SetTo(set) => {
            operands.push(u64::from(*set));
            ShapeStep::SetTo
        }
        Op::SetMap(row) => {
            operands.push(u64::from(*row) * width as u64);
            ShapeStep::SetMap
        }
        Op::Edit(_) | Op::Clear | Op::Write(_) => unreachable!("the verifier lets no write through"),
    }
}

/// The fields that code writes itself.
fn set_step(field: Field, value: Value, operands: &mut Vec<u64>) -> Option<ShapeStep> {
    use Field::*;
    Some(match field {
        EthDst | EthSrc => {
            operands.push((value as u64).to_be() >> 16);
            ShapeStep::Address(field)
        }
        VlanVid if value & Value::from(VLAN_PRESENT) != 0 => {
            let bits = value as u16 & 0xfff;
            operands.extend([u64::from(bits.to_be()), u64::from(0xf000u16.to_be())]);
            ShapeStep::Tag(field)
        }
        VlanPcp => {
            operands.extend([u64::from(((value as u16) << 13).to_be()), u64::from(0x1fffu16.to_be())]);
            ShapeStep::Tag(field)
        }
        Ipv4Src | Ipv4Dst => {
            let bytes = (value as u32).to_be_bytes();
            operands.push(u64::from((value as u32).to_be()) | u64::from(!checksum(&bytes)) << 32);
            ShapeStep::Ipv4(field)
        }
        TcpSrc | TcpDst | UdpSrc | UdpDst => {
            operands.push(u64::from((value as u16).to_be()) | u64::from(value as u16) << 32);
            ShapeStep::Port(field)
        }
        _ => return None,
    })
}
