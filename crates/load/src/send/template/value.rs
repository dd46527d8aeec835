//! Values of fields: how they are written, and which one a frame gets.
//!
//! A value is a pure function of the frame's number (and of the seed, for random ones), never of the frame before. So
//! any frame can be rendered alone, threads share the numbers without talking, and a slow twin can check every one.

use super::fields::Form;
use std::fmt::{self, Write};

/// What a field holds over many frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Always this.
    Constant(u128),
    /// From, to (included), step; then from the start again.
    Range(u128, u128, u128),
    /// Any number from, to (included), by the seed.
    Random(u128, u128),
    /// One after the other.
    List(Vec<u128>),
    /// Start and step, without end (it wraps with the field's width).
    Counter(u128, u128),
}

/// What a varying value varies with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VaryBy {
    /// Every frame takes the next.
    Frame,
    /// Every flow has its own; it stays the same within a flow.
    Flow,
    /// Every flow counts its own frames.
    Turn,
}

impl VaryBy {
    /// How each is written behind an `@`, in their order.
    pub const WORDS: [(VaryBy, &str); 3] =
        [(VaryBy::Frame, "frame"), (VaryBy::Flow, "flow"), (VaryBy::Turn, "turn")];
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// What it holds.
    pub choice: Choice,
    /// What it varies with, when that was said: `@frame`, `@flow`, `@turn`.
    pub by: Option<VaryBy>,
}

impl Value {
    /// Always this number.
    pub fn constant(number: u128) -> Value {
        Value { choice: Choice::Constant(number), by: None }
    }

    /// The number, if it is always the same.
    pub fn as_constant(&self) -> Option<u128> {
        match self.choice {
            Choice::Constant(number) => Some(number),
            Choice::Range(from, to, step) if to - from < step => Some(from),
            Choice::Random(from, to) if from == to => Some(from),
            Choice::List(ref list) if list.len() == 1 => Some(list[0]),
            _ => None,
        }
    }

    /// The largest number that it can be before it is cut to the field's width (counters wrap, so they have none).
    pub fn largest(&self) -> u128 {
        match self.choice {
            Choice::Constant(number) => number,
            Choice::Range(_, to, _) | Choice::Random(_, to) => to,
            Choice::List(ref list) => list.iter().copied().max().unwrap_or(0),
            Choice::Counter(start, _) => start,
        }
    }

    /// The first number, for a look at the template.
    pub fn first(&self) -> u128 {
        match self.choice {
            Choice::Constant(number) => number,
            Choice::Range(from, _, _) | Choice::Random(from, _) => from,
            Choice::List(ref list) => list.first().copied().unwrap_or(0),
            Choice::Counter(start, _) => start,
        }
    }

    /// The number of frame `n`, with so many flows (0: none) and a seed that no other field has.
    #[inline]
    pub fn at(&self, n: u64, flows: u64, seed: u64) -> u128 {
        let by = match (self.by, &self.choice) {
            (Some(by), _) => by,
            (None, Choice::Counter(..)) => VaryBy::Turn,
            (None, _) => VaryBy::Flow,
        };
        let index = match by {
            _ if flows == 0 => n,
            VaryBy::Frame => n,
            VaryBy::Flow => n % flows,
            VaryBy::Turn => n / flows,
        };
        match self.choice {
            Choice::Constant(number) => number,
            Choice::Range(from, to, step) => {
                // More values than 2^64 are never used up by 64-bit frame numbers.
                let last = u64::try_from((to - from) / step).unwrap_or(u64::MAX);
                let index = last.checked_add(1).map_or(index, |count| index % count);
                from + step * u128::from(index)
            }
            Choice::Random(from, to) => random(seed, index, from, to),
            Choice::List(ref list) => list[(index % list.len() as u64) as usize],
            Choice::Counter(start, step) => start.wrapping_add(step.wrapping_mul(u128::from(index))),
        }
    }

    /// As it is written in a template.
    pub fn text(&self, form: Form) -> String {
        // The '+' of a step and the '+' between flags would be taken for each other.
        let form = match (form, &self.choice) {
            (Form::Flags(_), Choice::Range(..) | Choice::Counter(..)) => Form::Number,
            (form, _) => form,
        };
        let mut text = match self.choice {
            Choice::Constant(number) => form.write(number),
            Choice::Range(from, to, 1) => format!("{}..{}", form.write(from), form.write(to)),
            Choice::Range(from, to, step) => format!("{}..{}+{step}", form.write(from), form.write(to)),
            Choice::Random(from, to) => format!("random({}..{})", form.write(from), form.write(to)),
            Choice::List(ref list) => {
                let all: Vec<String> = list.iter().map(|&number| form.write(number)).collect();
                format!("{{{}}}", all.join(","))
            }
            Choice::Counter(start, 1) => format!("counter({})", form.write(start)),
            Choice::Counter(start, step) => format!("counter({}+{step})", form.write(start)),
        };
        if let Some(by) = self.by {
            let (_, word) = VaryBy::WORDS[by as usize];
            text += &format!("@{word}");
        }
        text
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): a good 64-bit mixture of its input, without state.
#[inline]
pub fn mix(input: u64) -> u64 {
    let mut z = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number from `from` to `to`, both included.
#[inline]
fn random(seed: u64, index: u64, from: u128, to: u128) -> u128 {
    let first = mix(seed ^ mix(index));
    let span = to - from;
    if let Ok(span) = u64::try_from(span) {
        // The high half of a product is an even spread without a division (Lemire 2019; the bias is below 2^-32 here
        // for every field up to 32 bits).
        let wide = u128::from(first) * (u128::from(span) + 1);
        return from + (wide >> 64);
    }
    let wide = u128::from(first) << 64 | u128::from(mix(first));
    from + span.checked_add(1).map_or(wide, |count| wide % count)
}

/// Bytes of a payload layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bytes {
    /// Zeros up to the size of the frame.
    Zero,
    /// Random bytes up to the size of the frame: drawn once from the seed, the same in every frame.
    Random,
    /// 0, 1, 2, … 255, 0, … up to the size of the frame.
    Counter,
    /// This text.
    Text(Vec<u8>),
    /// These bytes.
    Hex(Vec<u8>),
}

impl Bytes {
    /// The bytes that are there whatever the size of the frame.
    pub fn fixed(&self) -> &[u8] {
        match self {
            Bytes::Text(bytes) | Bytes::Hex(bytes) => bytes,
            _ => &[],
        }
    }

    /// Fills `room` as this payload asks for: its own bytes first, zeros behind.
    pub fn fill(&self, room: &mut [u8], seed: u64) {
        match self {
            Bytes::Zero => room.fill(0),
            Bytes::Counter => room.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8),
            Bytes::Random => {
                room.iter_mut().enumerate().for_each(|(i, byte)| *byte = mix(seed ^ mix(i as u64)) as u8)
            }
            Bytes::Text(bytes) | Bytes::Hex(bytes) => {
                room[..bytes.len()].copy_from_slice(bytes);
                room[bytes.len()..].fill(0);
            }
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bytes::Zero => f.write_str("zero"),
            Bytes::Random => f.write_str("random"),
            Bytes::Counter => f.write_str("counter"),
            Bytes::Hex(bytes) => write!(f, "hex={}", hex_text(bytes)),
            Bytes::Text(bytes) => {
                f.write_str("text=\"")?;
                for &byte in bytes {
                    match byte {
                        b'"' | b'\\' => write!(f, "\\{}", byte as char)?,
                        b' '..=b'~' => f.write_char(byte as char)?,
                        _ => write!(f, "\\x{byte:02x}")?,
                    }
                }
                f.write_char('"')
            }
        }
    }
}

/// Bytes in hexadecimal.
pub fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
