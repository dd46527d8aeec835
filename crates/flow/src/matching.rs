//! Matches: which frames a rule is for.
//!
//! **What.** A [`Match`] is a list of fields with a value and maybe a mask, checked when it is made: each field once,
//! values that the field can have, masks where they are allowed, prerequisites before what needs them (§7.2.3).
//!
//! **Why.** A match that exists is a valid one; everything after relies on it. The list stays in the order and the form
//! in which it was sent, so that what a controller reads back is what it wrote; two matches that mean the same compare
//! by [`Match::meaning`].
//!
//! **Price.** A lookup by field is a walk over a handful of entries.

use crate::error::BadMatch;
use crate::field::{Field, Prerequisite, VLAN_PRESENT, Value};
use wire::refuse_if;

/// One field of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatchField {
    /// Which field.
    pub field: Field,
    /// The value; no bit outside of the mask.
    pub value: Value,
    /// The mask, when one was given; without it every bit counts.
    pub mask: Option<Value>,
}

impl MatchField {
    /// The field must have exactly this value.
    pub fn exact(field: Field, value: impl Into<Value>) -> MatchField {
        MatchField { field, value: value.into(), mask: None }
    }

    /// The field must have this value where the mask has ones.
    pub fn masked(field: Field, value: impl Into<Value>, mask: impl Into<Value>) -> MatchField {
        MatchField { field, value: value.into(), mask: Some(mask.into()) }
    }

    /// The bits that count.
    pub fn bits(&self) -> Value {
        self.mask.unwrap_or(self.field.full_mask())
    }

    /// Whether a frame with this value of the field is meant.
    pub fn accepts(&self, value: Value) -> bool {
        value & self.bits() == self.value
    }

    /// What is wrong with this field alone.
    fn check(&self) -> Result<(), BadMatch> {
        let full = self.field.full_mask();
        refuse_if(self.value & !full != 0, BadMatch::BadValue)?;
        if let Some(mask) = self.mask {
            refuse_if(!self.field.row().maskable && mask != full || mask & !full != 0, BadMatch::BadMask)?;
            refuse_if(self.value & !mask != 0, BadMatch::BadWildcards)?;
        }
        // §7.2.3.7, table 13: a number of a VLAN comes with the bit that says that there is one.
        let present = Value::from(VLAN_PRESENT);
        let demands_tag = self.bits() & present != 0 && self.value & present == 0 && self.value != 0;
        refuse_if(self.field == Field::VlanVid && demands_tag, BadMatch::BadValue)?;
        Ok(())
    }
}

/// Which frames a rule is for. The empty match is for all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Match {
    fields: Vec<MatchField>,
}

impl Match {
    /// The match for all frames.
    pub fn all() -> Match {
        Match::default()
    }

    /// Checks the fields in their order and keeps them.
    pub fn new(fields: impl IntoIterator<Item = MatchField>) -> Result<Match, BadMatch> {
        let mut made = Match::default();
        for field in fields {
            made.push(field)?;
        }
        Ok(made)
    }

    /// Adds a field after those that are there.
    pub fn push(&mut self, field: MatchField) -> Result<(), BadMatch> {
        field.check()?;
        refuse_if(self.get(field.field).is_some(), BadMatch::DupField)?;
        refuse_if(!self.satisfies(field.field.row().prerequisite), BadMatch::BadPrereq)?;
        self.fields.push(field);
        Ok(())
    }

    /// Takes fields as they are, without the checks: what a client received may be wrong, and still has to be shown.
    pub fn unchecked(fields: Vec<MatchField>) -> Match {
        Match { fields }
    }

    /// The fields in their order.
    pub fn fields(&self) -> &[MatchField] {
        &self.fields
    }

    /// The entry of one field.
    pub fn get(&self, field: Field) -> Option<&MatchField> {
        self.fields.iter().find(|entry| entry.field == field)
    }

    /// The value of a field that is matched exactly.
    pub fn exact(&self, field: Field) -> Option<Value> {
        self.get(field).filter(|entry| entry.bits() == field.full_mask()).map(|entry| entry.value)
    }

    /// Whether the match says what a field needs to have said (§7.2.3.8).
    pub fn satisfies(&self, prerequisite: Prerequisite) -> bool {
        prerequisite.holds(|field, allowed| match field {
            Field::InPort => self.get(field).is_some(),
            Field::VlanVid => self.get(field).is_some_and(|vid| vid.value & Value::from(VLAN_PRESENT) != 0),
            _ => self.exact(field).is_some_and(|value| allowed.iter().any(|one| Value::from(*one) == value)),
        })
    }

    /// What the match means, whatever its spelling: each field that has bits that count, in the table's order.
    pub fn meaning(&self) -> Vec<(Field, Value, Value)> {
        let mut meaning: Vec<_> = self.fields.iter().map(|e| (e.field, e.value, e.bits())).collect();
        meaning.retain(|(_, _, bits)| *bits != 0);
        meaning.sort();
        meaning
    }

    /// Whether both matches mean the same frames, field by field: what the strict commands ask (§6.4).
    pub fn same(&self, other: &Match) -> bool {
        self.meaning() == other.meaning()
    }

    /// Whether every frame of `self` is one of `other`: what the non-strict commands ask ("more specific or equal").
    pub fn is_within(&self, other: &Match) -> bool {
        other.fields.iter().all(|wide| {
            let bits = wide.bits();
            bits == 0
                || self
                    .get(wide.field)
                    .is_some_and(|own| own.bits() & bits == bits && own.value & bits == wide.value)
        })
    }

    /// Whether one frame can be meant by both: no bit that counts in both differs (§6.4, "overlap").
    pub fn overlaps(&self, other: &Match) -> bool {
        self.fields.iter().all(|own| {
            other.get(own.field).is_none_or(|theirs| {
                let common = own.bits() & theirs.bits();
                own.value & common == theirs.value & common
            })
        })
    }
}
