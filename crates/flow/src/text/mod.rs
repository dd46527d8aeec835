//! Rules, groups and meters as text, in the syntax of ovs-ofctl(8).
//!
//! **What.** One line is one thing. [`rule`] reads and writes `table=0,priority=9,tcp,nw_dst=10.0.0.0/8,actions=output:2`,
//! [`group`] and [`meter`] the same for the other two. What is written reads back as what it was, exactly: order and
//! masks of a match and the order of instructions, too.
//!
//! **Why.** People know this syntax, and files of it exist. Fields have ovs-ofctl's names and the standard's.
//!
//! **Price.** Extensions of Open vSwitch that OpenFlow does not have (registers, `resubmit`, `ct`) are refused by name. What
//! OpenFlow has and ovs-ofctl has not gets names here: `push_pbb`, `pop_pbb`, `copy_ttl_in`, `copy_ttl_out`,
//! `pbb_isid`, `ipv6_exthdr`, `in_phy_port`, `apply_actions()` for an instruction without actions, `experimenter(…)`.

pub mod action;
pub mod file;
pub mod frame;
pub mod group;
pub mod meter;
mod old;
pub mod rule;
pub mod value;

use std::fmt;

/// What is wrong with a text, and in which column (from 1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError {
    /// The column.
    pub column: usize,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.what)
    }
}

impl std::error::Error for TextError {}

/// A result of reading text.
pub type Result<T> = std::result::Result<T, TextError>;

/// A piece of a line that knows where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The text.
    pub text: &'a str,
    /// Bytes of the line before it.
    pub at: usize,
}

impl<'a> Piece<'a> {
    /// A whole line.
    pub fn line(text: &'a str) -> Piece<'a> {
        Piece { text, at: 0 }
    }

    /// The complaint that stands here.
    pub fn error<T>(self, what: impl Into<String>) -> Result<T> {
        Err(TextError { column: self.at + 1, what: what.into() })
    }

    /// The rest after this number of bytes.
    fn after(self, bytes: usize) -> Piece<'a> {
        Piece { text: &self.text[bytes..], at: self.at + bytes }
    }

    /// Without the white space around it.
    fn trimmed(self) -> Piece<'a> {
        let begin = self.text.len() - self.text.trim_start().len();
        Piece { text: self.text.trim(), at: self.at + begin }
    }

    /// What stands before and after the first of these characters.
    fn split(self, marks: &[char]) -> (Piece<'a>, Option<Piece<'a>>) {
        match self.text.find(marks) {
            Some(found) => {
                let width = self.text[found..].chars().next().map_or(1, char::len_utf8);
                (Piece { text: &self.text[..found], ..self }, Some(self.after(found + width)))
            }
            None => (self, None),
        }
    }

    /// What stands between the parentheses that end the piece.
    fn inside(self) -> Option<(Piece<'a>, Piece<'a>)> {
        let open = self.text.find('(')?;
        let body = self.after(open + 1);
        let text = body.text.strip_suffix(')')?;
        Some((Piece { text: &self.text[..open], ..self }, Piece { text, ..body }))
    }

    /// The items between commas and white space that stand outside of parentheses; empty ones are left out.
    pub fn items(self) -> Vec<Piece<'a>> {
        let mut found = vec![];
        let (mut begin, mut depth) = (0, 0usize);
        for (at, letter) in self.text.char_indices() {
            match letter {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && (letter == ',' || letter.is_whitespace()) {
                found.push(Piece { text: &self.text[begin..at], at: self.at + begin });
                begin = at + letter.len_utf8();
            }
        }
        found.push(self.after(begin));
        found.retain(|piece| !piece.text.is_empty());
        found
    }

    /// The piece up to the item that begins with this, and the piece after it.
    fn cut(self, begin: &str) -> (Piece<'a>, Option<Piece<'a>>) {
        let found = self.items().into_iter().find(|item| item.text.starts_with(begin));
        match found {
            Some(item) => {
                let at = item.at - self.at;
                (Piece { text: &self.text[..at], ..self }, Some(self.after(at + begin.len())))
            }
            None => (self, None),
        }
    }

    /// A number, decimal or hexadecimal, of at most this value.
    pub fn number(self, most: u128) -> Result<u128> {
        let read = match self.text.strip_prefix("0x").or(self.text.strip_prefix("0X")) {
            Some(digits) if !digits.starts_with('+') => u128::from_str_radix(digits, 16).ok(),
            _ if self.text.starts_with('+') => None,
            _ => self.text.parse().ok(),
        };
        match read {
            Some(number) if number <= most => Ok(number),
            Some(_) => self.error(format!("{} is more than {most}", self.text)),
            None => self.error(format!("`{}` is not a number", self.text)),
        }
    }

    /// A number that an unsigned type can have.
    fn int<T: TryFrom<u128>>(self) -> Result<T> {
        let most = u128::MAX >> (128 - 8 * size_of::<T>());
        T::try_from(self.number(most)?).or_else(|_| self.error(format!("{} is more than {most}", self.text)))
    }

    /// Bytes as pairs of hexadecimal digits.
    pub fn hex(self) -> Result<Vec<u8>> {
        let digits: Option<Vec<u8>> =
            self.text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
        match digits {
            Some(digits) if digits.len() % 2 == 0 => {
                Ok(digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect())
            }
            _ => self.error("bytes are pairs of hexadecimal digits"),
        }
    }
}

/// Writes bytes as pairs of hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
