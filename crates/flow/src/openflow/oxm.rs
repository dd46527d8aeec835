//! Matches as they travel: OpenFlow extensible match (1.3.5 section 7.2.3, 1.4.1 section 7.2.2).
//!
//! **What.** [`Oxm`] is one field with value and mask, of any class; [`Match`] is a list of them in the order of the sender;
//! [`OxmId`] is the header alone, for table features. **Why.** Everything that arrives can be shown and sent back unchanged, also
//! fields of experimenters; what a *switch* makes of it (which fields it knows, prerequisites, masks) is the model's. **Price.** A
//! second step from here to the model's match.

use super::bytes::{Bytes, Part, Reader, Tagged, Tlv, Writer, layout, tagged, tlv};
use super::fault::Fault;
use super::tree::Tree;
use crate::error::BadMatch;
use crate::field::{Field, Form, Row};
use crate::text::hex;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::refuse_if;

/// The class of the standard's fields.
pub const BASIC: u16 = crate::field::OXM_CLASS;
/// The class of fields that an experimenter defines.
pub const EXPERIMENTER: u16 = 0xffff;

fn known_field(class: u16, field: u8) -> Option<&'static Row> {
    (class == BASIC).then(|| Field::from_oxm(field).map(Field::row)).flatten()
}

/// The name that the standard has for a field, or what numbers say.
fn name(class: u16, field: u8, experimenter: Option<u32>) -> String {
    match (known_field(class, field), experimenter) {
        (Some(known), _) => known.name.to_owned(),
        (None, Some(experimenter)) => format!("experimenter_{experimenter:#x}_{field}"),
        (None, None) => format!("class_{class:#x}_{field}"),
    }
}

/// One field of a match.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Oxm {
    /// [`BASIC`], [`EXPERIMENTER`] or a class that another implementation uses.
    pub class: u16,
    /// Seven bits.
    pub field: u8,
    /// Who defined the field, for class [`EXPERIMENTER`].
    pub experimenter: Option<u32>,
    /// The value, as many bytes as were sent.
    pub value: Vec<u8>,
    /// The mask, as long as the value.
    pub mask: Option<Vec<u8>>,
}

impl Oxm {
    /// A field of the standard with this number.
    pub fn basic(field: u8, value: &[u8], mask: Option<&[u8]>) -> Oxm {
        let mask = mask.map(<[u8]>::to_vec);
        Oxm { class: BASIC, field, experimenter: None, value: value.to_vec(), mask }
    }

    /// The name that the standard has for the field.
    pub fn name(&self) -> Option<&'static str> {
        known_field(self.class, self.field).map(|known| known.name)
    }

    fn show(&self, bytes: &[u8]) -> String {
        let form = known_field(self.class, self.field).map_or(Form::Hex, |known| known.form);
        let number = bytes.iter().take(16).fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
        match (form, bytes.len()) {
            (Form::Decimal | Form::Port, 1..=8) => number.to_string(),
            (Form::Ethernet, 6) => {
                bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
            }
            (Form::Ipv4, 4) => Ipv4Addr::from_bits(number as u32).to_string(),
            (Form::Ipv6, 16) => Ipv6Addr::from_bits(number).to_string(),
            (_, 1..=8) => format!("{number:#x}"),
            _ => format!("0x{}", hex(bytes)),
        }
    }
}

impl Part for Oxm {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let OxmId { class, field, has_mask, length, experimenter } = OxmId::read(r)?;
        let length = usize::from(length).checked_sub(experimenter.map_or(0, |_| 4)).ok_or(r.short)?;
        refuse_if(has_mask && length % 2 != 0, r.short)?;
        let value = r.take(if has_mask { length / 2 } else { length })?.to_vec();
        let mask = if has_mask { Some(r.take(length / 2)?.to_vec()) } else { None };
        Ok(Oxm { class, field, experimenter, value, mask })
    }

    fn write(&self, w: &mut Writer) {
        let Oxm { class, field, experimenter, .. } = *self;
        let mask = self.mask.as_deref().unwrap_or_default();
        let length = (experimenter.map_or(0, |_| 4) + self.value.len() + mask.len()) as u8;
        OxmId { class, field, has_mask: self.mask.is_some(), length, experimenter }.write(w);
        w.put(&self.value);
        w.put(mask);
    }

    fn tree(&self) -> Tree {
        let name = name(self.class, self.field, self.experimenter);
        let mut fields = vec![("field", Tree::Text(name)), ("value", Tree::Text(self.show(&self.value)))];
        fields.extend(self.mask.as_ref().map(|mask| ("mask", Tree::Text(self.show(mask)))));
        Tree::Part("oxm", fields)
    }

    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        if s.below(8) == 0 {
            let value: Vec<u8> = (0..1 + s.below(6)).map(|_| s.number(8) as u8).collect();
            let mask = (s.below(2) == 0).then(|| value.clone());
            let experimenter = Some(s.number(32) as u32);
            return Oxm { class: EXPERIMENTER, field: s.below(128) as u8, experimenter, value, mask };
        }
        Self::sample_basic(s)
    }
}

#[cfg(test)]
impl Oxm {
    /// A field of the standard, without a mask half of the time.
    pub(crate) fn sample_basic(s: &mut super::sample::Sampler) -> Self {
        let field = s.below(40) as u8;
        let bits = known_field(BASIC, field).map_or(8, |row| usize::from(row.bits));
        let length = known_field(BASIC, field).map_or(1, |row| row.field.bytes());
        let number = |s: &mut super::sample::Sampler| {
            let mut bytes: Vec<u8> = (0..length).map(|_| s.number(8) as u8).collect();
            let spare = length * 8 - bits;
            bytes[0] &= if spare < 8 { 0xff >> spare } else { 0 };
            bytes[length - bits.div_ceil(8)] &= 0xff >> (spare % 8);
            bytes
        };
        let value = number(s);
        let mask = (s.below(2) == 0).then(|| number(s));
        Oxm { class: BASIC, field, experimenter: None, value, mask }
    }
}

/// The header of a field, as table features list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OxmId {
    /// As in [`Oxm`].
    pub class: u16,
    /// As in [`Oxm`].
    pub field: u8,
    /// Whether it may have a mask.
    pub has_mask: bool,
    /// Bytes of the payload, as the sender has them.
    pub length: u8,
    /// As in [`Oxm`].
    pub experimenter: Option<u32>,
}

impl OxmId {
    /// The header of a field of the standard; `None` for a number that it does not have.
    pub fn basic(field: u8, has_mask: bool) -> Option<OxmId> {
        let bytes = known_field(BASIC, field)?.field.bytes() as u8;
        let length = if has_mask { bytes * 2 } else { bytes };
        Some(OxmId { class: BASIC, field, has_mask, length, experimenter: None })
    }
}

impl Part for OxmId {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let (class, field, length) = (u16::read(r)?, u8::read(r)?, u8::read(r)?);
        let experimenter = if class == EXPERIMENTER { Some(u32::read(r)?) } else { None };
        Ok(OxmId { class, field: field >> 1, has_mask: field & 1 != 0, length, experimenter })
    }
    fn write(&self, w: &mut Writer) {
        self.class.write(w);
        (self.field << 1 | u8::from(self.has_mask)).write(w);
        self.length.write(w);
        if let Some(experimenter) = self.experimenter {
            experimenter.write(w);
        }
    }
    fn tree(&self) -> Tree {
        let name = name(self.class, self.field, self.experimenter);
        Tree::Text(if self.has_mask { name + "/mask" } else { name })
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        OxmId::basic(s.below(40) as u8, s.below(2) == 0).unwrap_or_default()
    }
}

/// A match: `ofp_match` of type OXM. Its length does not count the padding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Match {
    /// In the order of the sender.
    pub fields: Vec<Oxm>,
}

impl Part for Match {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let number = r.peek16();
        let left = r.left();
        let mut whole = r.clone().part(left, BadMatch::BadLen)?;
        let mut body = whole.measured(2)?;
        // OFPMT_STANDARD is 0 and deprecated, OFPMT_OXM is 1.
        refuse_if(number != Some(1), BadMatch::BadType)?;
        body.skip(4)?;
        let length = left - whole.left();
        let fields = Part::read(&mut body)?;
        r.skip(length)?;
        r.part(length.next_multiple_of(8) - length, BadMatch::BadLen)?;
        Ok(Match { fields })
    }
    fn write(&self, w: &mut Writer) {
        let start = w.at();
        w.put(&1u16.to_be_bytes());
        w.zeros(2);
        self.fields.write(w);
        w.measure(start, 2);
        w.align(start);
    }
    fn tree(&self) -> Tree {
        Tree::Part("match", vec![("oxm_fields", self.fields.tree())])
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        Match { fields: Part::sample(s) }
    }
}

layout! {
    /// An experimenter's own part of a message: who, and what they say.
    pub struct Experimenter "experimenter" {
        /// Who.
        experimenter: super::bytes::Hex<u32>;
        /// What, until the end.
        data: Bytes;
    }
    /// The same with a kind in between.
    pub struct ExperimenterKind "experimenter" {
        /// Who.
        experimenter: super::bytes::Hex<u32>;
        /// Which of their kinds.
        exp_type: u32;
        /// What, until the end.
        data: Bytes;
    }
}

tagged! {
    /// A property of which the standard has none but experimenters'.
    pub enum OnlyExperimenter {
        /// An experimenter's.
        0xffff "experimenter" => Experimenter(ExperimenterKind);
    }
}
tlv!(OnlyExperimenter, Tlv::property);
