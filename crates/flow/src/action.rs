//! Actions and instructions.
//!
//! **What.** The sixteen actions of §5.12 and the six instructions of §5.9, each with what it carries.
//!
//! **Why.** Plain data: a codec makes them, the text makes them, an engine reads them.
//!
//! **Price.** Experimenters' actions and instructions are carried as bytes, so that a client can show them; a switch
//! refuses them.

use crate::field::{Field, Value};
use crate::port::PortNo;

/// The `max_len` of an output to the controller that asks for the whole frame (`OFPCML_NO_BUFFER`).
pub const WHOLE_FRAME: u16 = 0xffff;

/// What to do with a frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send it.
    Output {
        /// Where.
        port: PortNo,
        /// How many bytes of a frame that is buffered go to a controller; of no meaning for other ports, and where nothing is buffered.
        max_len: u16,
    },
    /// Copy the TTL from the next-to-outermost header that has one to the outermost.
    CopyTtlOut,
    /// Copy the TTL from the outermost header that has one to the next-to-outermost.
    CopyTtlIn,
    /// Write the TTL of the outermost MPLS entry.
    SetMplsTtl(u8),
    /// Take one from the TTL of the outermost MPLS entry.
    DecMplsTtl,
    /// Put a VLAN tag of this ethertype before all others.
    PushVlan(u16),
    /// Take the outermost VLAN tag off.
    PopVlan,
    /// Put an MPLS entry of this ethertype before all others.
    PushMpls(u16),
    /// Take the outermost MPLS entry off; this is the ethertype of what follows it.
    PopMpls(u16),
    /// Let outputs use this queue.
    SetQueue(u32),
    /// Let a group decide.
    Group(u32),
    /// Write the TTL of IPv4, the hop limit of IPv6.
    SetNwTtl(u8),
    /// Take one from the TTL of IPv4, the hop limit of IPv6.
    DecNwTtl,
    /// Write a field.
    SetField {
        /// Which.
        field: Field,
        /// What.
        value: Value,
    },
    /// Put a backbone header of this ethertype before all others.
    PushPbb(u16),
    /// Take the outermost backbone header off.
    PopPbb,
    /// Something that the standard leaves to others.
    Experimenter {
        /// Whose.
        experimenter: u32,
        /// What.
        data: Vec<u8>,
    },
}

/// What a rule does with the frames that it matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// Go on with a later table.
    GotoTable(u8),
    /// Write the bits of the mask into the metadata.
    WriteMetadata {
        /// The bits.
        metadata: u64,
        /// Which of them.
        mask: u64,
    },
    /// Merge into the action set.
    WriteActions(Vec<Action>),
    /// Do now, in this order.
    ApplyActions(Vec<Action>),
    /// Empty the action set.
    ClearActions,
    /// Let a meter drop or mark the frame first.
    Meter(u32),
    /// Something that the standard leaves to others.
    Experimenter {
        /// Whose.
        experimenter: u32,
        /// What.
        data: Vec<u8>,
    },
}

impl Instruction {
    /// The highest [`Instruction::place`].
    pub const LAST_PLACE: u8 = 6;

    /// Its place in the order in which instructions are carried out (§5.9); also distinguishes kinds.
    pub fn place(&self) -> u8 {
        match self {
            Instruction::Meter(_) => 0,
            Instruction::ApplyActions(_) => 1,
            Instruction::ClearActions => 2,
            Instruction::WriteActions(_) => 3,
            Instruction::WriteMetadata { .. } => 4,
            Instruction::GotoTable(_) => 5,
            Instruction::Experimenter { .. } => 6,
        }
    }

    /// The actions in it.
    pub fn actions(&self) -> &[Action] {
        match self {
            Instruction::WriteActions(actions) | Instruction::ApplyActions(actions) => actions,
            _ => &[],
        }
    }
}
