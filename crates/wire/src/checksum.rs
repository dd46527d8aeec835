//! The internet checksum (RFC 1071): the one's complement of the one's complement sum of 16-bit words.
//!
//! The sum is associative and 2^16 ≡ 1 in one's complement arithmetic, so four bytes are added at a time into 64
//! bits and folded once at the end. The slow twin in the tests adds word by word as the RFC writes it.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A running sum over pieces. Every piece but the last must have an even length.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    /// Nothing added yet.
    pub fn new() -> Self {
        Sum(0)
    }

    /// Adds the bytes, as big-endian 16-bit words; an odd last byte is padded with zero.
    #[must_use]
    pub fn add_bytes(mut self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        // 2^32 words of 2^32 fit into 64 bits: no frame is so long, so no carry is lost.
        self.0 += words.iter().map(|&word| u64::from(u32::from_be_bytes(word))).sum::<u64>();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        self.0 += u64::from(u32::from_be_bytes(last));
        self.0 = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        self
    }

    /// Adds one 16-bit word.
    #[must_use]
    pub fn add_word(mut self, word: u16) -> Self {
        self.0 += u64::from(word);
        self
    }

    /// Adds the pseudo header of an IPv4 payload (RFC 768).
    #[must_use]
    pub fn add_pseudo_v4(self, source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: u16) -> Self {
        self.add_bytes(&source.octets())
            .add_bytes(&destination.octets())
            .add_word(u16::from(protocol))
            .add_word(length)
    }

    /// Adds the pseudo header of an IPv6 payload (RFC 8200 section 8.1).
    #[must_use]
    pub fn add_pseudo_v6(self, source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, length: u32) -> Self {
        self.add_bytes(&source.octets())
            .add_bytes(&destination.octets())
            .add_bytes(&length.to_be_bytes())
            .add_word(u16::from(protocol))
    }

    /// The checksum of everything added. Over bytes that contain their own right checksum it is 0.
    pub fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

/// The checksum of one run of bytes.
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::new().add_bytes(bytes).finish()
}

/// Writes the checksum of an IPv4 header, all of whose bytes these are.
pub fn write_ipv4(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The slow twin: one word at a time, carry added at once (RFC 1071 section 4.1).
    fn slow(bytes: &[u8]) -> u16 {
        let mut sum: u32 = 0;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            if sum > 0xffff {
                sum -= 0xffff;
            }
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 1071 section 3: the sum is ddf2, so the checksum is its complement.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    proptest! {
        #[test]
        fn fast_is_slow(bytes in prop::collection::vec(any::<u8>(), 0..3000), cut in 0usize..1500) {
            prop_assert_eq!(checksum(&bytes), slow(&bytes));
            let cut = (cut * 2).min(bytes.len());
            let cut = cut - cut % 2;
            let pieces = Sum::new().add_bytes(&bytes[..cut]).add_bytes(&bytes[cut..]).finish();
            prop_assert_eq!(pieces, slow(&bytes));
        }

        #[test]
        fn right_bytes_sum_to_zero(mut bytes in prop::collection::vec(any::<u8>(), 2..200)) {
            bytes[0] = 0;
            bytes[1] = 0;
            let right = checksum(&bytes).to_be_bytes();
            bytes[..2].copy_from_slice(&right);
            prop_assert_eq!(checksum(&bytes), 0);
        }
    }
}
