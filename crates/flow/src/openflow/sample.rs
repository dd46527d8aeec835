//! Random messages from a string of random bytes: proptest shrinks the bytes, and where they end everything is zero, so what it
//! reports is small.

use super::bytes::{Tagged, Version};
use super::message::{Body, Message};

/// Turns bytes into choices.
#[derive(Debug)]
pub struct Sampler<'a> {
    bytes: std::slice::Iter<'a, u8>,
    version: Version,
}

impl<'a> Sampler<'a> {
    /// Choices for messages of a version.
    pub fn new(bytes: &'a [u8], version: Version) -> Self {
        Sampler { bytes: bytes.iter(), version }
    }

    /// Of the messages.
    pub fn version(&self) -> Version {
        self.version
    }

    fn byte(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    /// A number of this many bits; small, large and special ones more often than chance has them.
    pub fn number(&mut self, bits: usize) -> u64 {
        let all = u64::MAX >> (64 - bits);
        match self.byte() % 4 {
            0 => u64::from(self.byte()) & all,
            1 => all - (u64::from(self.byte() % 8) & all),
            _ => (0..bits.div_ceil(8)).fold(0, |sum, _| sum << 8 | u64::from(self.byte())) & all,
        }
    }

    /// A number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        match limit {
            0 => 0,
            limit if limit <= 256 => u64::from(self.byte()) % limit,
            limit => self.number(32) % limit,
        }
    }

    /// A message.
    pub fn message(&mut self) -> Message {
        let xid = self.number(32) as u32;
        Message { version: self.version, xid, body: Body::sample_body(self) }
    }
}
