//! The names and values of a message, as data, and as one line of text.
//!
//! **Why.** Logs, `snoop` and the comparison with other implementations all need "which field has which value". A tree made by
//! the same table as the bytes cannot forget a field. **Price.** Making one allocates; only what is shown is made.

use crate::text::hex;
use std::fmt;

/// A value with its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    /// A plain number.
    Number(u64),
    /// A number that has a better text.
    Code(u64, String),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Values in order.
    List(Vec<Tree>),
    /// Named values.
    Part(&'static str, Vec<(&'static str, Tree)>),
}

impl Tree {
    /// The same under another name; what has no fields yet gets one.
    pub fn named(self, name: &'static str) -> Tree {
        match self {
            Tree::Part(_, fields) => Tree::Part(name, fields),
            other => Tree::Part(name, vec![("body", other)]),
        }
    }

    /// A field of a part.
    pub fn field(&self, name: &str) -> Option<&Tree> {
        match self {
            Tree::Part(_, fields) => fields.iter().find(|(field, _)| *field == name).map(|(_, tree)| tree),
            _ => None,
        }
    }

    /// Whether there is nothing to say: such fields are left out of the line.
    fn is_empty(&self) -> bool {
        match self {
            Tree::Bytes(bytes) => bytes.is_empty(),
            Tree::List(all) => all.is_empty(),
            Tree::Text(text) => text.is_empty(),
            _ => false,
        }
    }
}

/// Bytes of a frame or of data that one line shows; the rest is counted.
const SHOWN: usize = 64;

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Number(number) => write!(f, "{number}"),
            Tree::Code(_, text) => f.write_str(text),
            // A line stays a line, whatever a peer calls its ports.
            Tree::Text(text)
                if text.contains(|c: char| c.is_control() || c.is_whitespace() || "\"',()[]".contains(c)) =>
            {
                write!(f, "{text:?}")
            }
            Tree::Text(text) => f.write_str(text),
            Tree::Bytes(bytes) if bytes.len() > SHOWN => {
                write!(f, "{}…({} bytes)", hex(&bytes[..SHOWN]), bytes.len())
            }
            Tree::Bytes(bytes) => f.write_str(&hex(bytes)),
            Tree::List(all) => {
                f.write_str("[")?;
                for (index, one) in all.iter().enumerate() {
                    write!(f, "{}{one}", if index == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Tree::Part(name, fields) => {
                f.write_str(name)?;
                let mut shown = fields.iter().filter(|(_, value)| !value.is_empty()).peekable();
                if shown.peek().is_none() {
                    return Ok(());
                }
                for (index, (field, value)) in shown.enumerate() {
                    write!(f, "{}{field}={value}", if index == 0 { "(" } else { " " })?;
                }
                f.write_str(")")
            }
        }
    }
}
