//! Templates: frames as text.
//!
//! **What.** A [`Template`] is a list of layers with fields by name, a size, and how many flows there are:
//!
//! ```text
//! size imix
//! flows 250
//! eth
//! ip  src=10.0.0.1..10.0.0.250 dst=10.0.0.2
//! udp sport=random dport=9
//! stamp
//! ```
//!
//! On one line a `/` between spaces stands for the end of a line: `eth / ip dst=10.0.0.2 / udp dport=9 / size 64`.
//! Lengths, checksums and the numbers that name the layer above are computed unless they are set.
//!
//! **Why a language.** A frame that a person can read can be kept next to its result and said to others; what it does not
//! say is found from the interface and said aloud ([`super::fill`]).
//!
//! **Price.** Values are functions of the frame's number alone (see [`value`]): what depends on an answer (a TCP
//! handshake) cannot be written.

pub mod fields;
mod parse;
mod size;
#[cfg(test)]
mod tests;
pub mod value;

pub use fields::{Form, HeaderField, LayerKind};
pub use size::{Size, random_offset};
pub use value::{Bytes, Choice, Value, VaryBy};

use std::fmt;

/// One layer with what the template says about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Its kind.
    pub kind: LayerKind,
    /// The fields that are set, in the order of the text.
    pub fields: Vec<(&'static HeaderField, Value)>,
    /// Options behind the header (IPv4, TCP): a multiple of four bytes.
    pub options: Vec<u8>,
    /// What a payload layer holds.
    pub bytes: Option<Bytes>,
}

impl Layer {
    /// A layer of which nothing is said.
    pub fn new(kind: LayerKind) -> Layer {
        Layer { kind, fields: vec![], options: vec![], bytes: None }
    }

    /// The value of a field, if it is set.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(field, _)| field.name == name).map(|(_, value)| value)
    }

    /// Sets a field to a constant.
    ///
    /// # Panics
    /// When the layer has no such field.
    pub fn set(&mut self, name: &str, number: u128) {
        let field = self.kind.field(name).expect("a field of this layer");
        self.fields.retain(|(other, _)| other.name != name);
        self.fields.push((field, Value::constant(number)));
    }

    /// Bytes that the layer has whatever the size of the frame.
    pub fn length(&self) -> usize {
        self.kind.facts().bytes
            + self.options.len()
            + self.bytes.as_ref().map_or(0, |bytes| bytes.fixed().len())
    }
}

/// Frames as text says them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Template {
    /// Sizes of the frames; none: as short as the layers are, padded to the shortest Ethernet frame.
    pub size: Option<Size>,
    /// How many flows there are; 0: every value simply goes on with every frame.
    pub flows: u64,
    /// The seed of everything random.
    pub seed: u64,
    /// The layers, outermost first.
    pub layers: Vec<Layer>,
}

/// The shortest Ethernet frame, without FCS (IEEE 802.3: 64 bytes with it).
pub const SHORTEST: usize = 60;

/// The longest frame that a template may ask for: what IPv4 can say in an Ethernet frame.
pub const LONGEST: usize = 65535 + 14;

impl Template {
    /// Reads a template; `place` is the name of the file or flag, for messages.
    ///
    /// # Errors
    /// Input: `place:line:column`, what is wrong there and what could be written instead.
    pub fn parse(text: &str, place: &str) -> record::Result<Template> {
        parse::parse(text, place)
    }

    /// Bytes of all layers: the shortest frame that can carry them.
    pub fn shortest(&self) -> usize {
        self.layers.iter().map(Layer::length).sum()
    }

    /// The seed of one field.
    pub fn seed_of(&self, layer: usize, field: usize) -> u64 {
        value::mix(self.seed ^ value::mix((layer as u64) << 32 | field as u64))
    }
}

impl fmt::Display for Template {
    /// The template as it would be written in a file; read again it is the same template.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(size) = &self.size {
            writeln!(f, "size {size}")?;
        }
        if self.flows != 0 {
            writeln!(f, "flows {}", self.flows)?;
        }
        if self.seed != 0 {
            writeln!(f, "seed {}", self.seed)?;
        }
        for layer in &self.layers {
            f.write_str(layer.kind.name())?;
            for (field, value) in &layer.fields {
                write!(f, " {}={}", field.name, value.text(field.form))?;
            }
            if !layer.options.is_empty() {
                write!(f, " options={}", value::hex_text(&layer.options))?;
            }
            if let Some(bytes) = &layer.bytes {
                write!(f, " {bytes}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
