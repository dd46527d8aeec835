//! The header at the start of every datagram of a test.
//!
//! ```text
//!  0               2       3       4                                       10                              18
//! +---------------+-------+-------+---------------------------------------+-------------------------------+
//! | magic 0x704c  | stream| flags | sequence number (48 bits)             | planned time (64 bits, ns)    |
//! +---------------+-------+-------+---------------------------------------+-------------------------------+
//! ```
//!
//! All fields are big endian. 18 bytes is what the smallest Ethernet frame has left under UDP and IPv4
//! (64 − 14 Ethernet − 4 FCS − 20 IPv4 − 8 UDP), so a test can use the smallest frames there are. 48 bits of sequence
//! last for 9 years at a million messages per second, so no counter ever wraps within a test.
//!
//! The planned time is `CLOCK_MONOTONIC` of the sender at which the message *should* have left; a late sender cannot
//! hide behind it.

/// Bytes of the header.
pub const LENGTH: usize = 18;

/// The first two bytes, `pL`.
pub const MAGIC: u16 = 0x704c;

/// The largest sequence number.
pub const MAX_SEQUENCE: u64 = (1 << 48) - 1;

/// What a message is, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// A message of a one-way stream.
    pub const DATA: Flags = Flags(0);
    /// Asks whether the path works; never counted.
    pub const PROBE: Flags = Flags(1);
    /// Wants a response.
    pub const REQUEST: Flags = Flags(2);
    /// Answers the message with the same sequence number.
    pub const RESPONSE: Flags = Flags(4);

    /// The flags in a byte; bits without a meaning are kept, so that they make a message foreign.
    pub const fn from_bits(bits: u8) -> Self {
        Flags(bits)
    }

    /// The byte.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Flags) -> Self {
        Flags(self.0 | other.0)
    }

    /// True when every flag of `other` is set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The header of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Which test (a token that both ends agreed on); tells late datagrams of an earlier test from this one's.
    pub stream: u8,
    /// What it is.
    pub flags: Flags,
    /// Its number, from 0, without gaps at the sender.
    pub sequence: u64,
    /// When it should have left, in nanoseconds of the sender's `CLOCK_MONOTONIC`.
    pub planned_ns: u64,
}

impl Message {
    /// Reads the header; none when the bytes are too short or not one of ours.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Message> {
        let header = bytes.first_chunk::<LENGTH>()?;
        if u16::from_be_bytes([header[0], header[1]]) != MAGIC {
            return None;
        }
        let [_, _, _, _, a, b, c, d, e, f, planned @ ..] = *header;
        Some(Message {
            stream: header[2],
            flags: Flags(header[3]),
            sequence: u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
            planned_ns: u64::from_be_bytes(planned),
        })
    }

    /// Writes the header over the first 18 bytes; shorter bytes are left as they are. The sequence number keeps its
    /// low 48 bits.
    #[inline]
    pub fn write(&self, bytes: &mut [u8]) {
        if let Some(header) = bytes.first_chunk_mut::<LENGTH>() {
            header[2..10].copy_from_slice(&self.sequence.to_be_bytes());
            header[..2].copy_from_slice(&MAGIC.to_be_bytes());
            header[2] = self.stream;
            header[3] = self.flags.0;
            header[10..].copy_from_slice(&self.planned_ns.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_documented_layout() {
        let message = Message {
            stream: 0xaa,
            flags: Flags::REQUEST.with(Flags::PROBE),
            sequence: 0x0102_0304_0506,
            planned_ns: 0x1112_1314_1516_1718,
        };
        let mut bytes = [0xff; LENGTH + 1];
        message.write(&mut bytes);
        let expected =
            [0x70, 0x4c, 0xaa, 0x03, 1, 2, 3, 4, 5, 6, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0xff];
        assert_eq!(bytes, expected);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(stream: u8, flags: u8, sequence in 0..=MAX_SEQUENCE, planned_ns: u64) {
            let message = Message { stream, flags: Flags(flags), sequence, planned_ns };
            let mut bytes = [0; 64];
            message.write(&mut bytes);
            prop_assert_eq!(Message::read(&bytes), Some(message));
            prop_assert_eq!(Message::read(&bytes[..LENGTH - 1]), None);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(message) = Message::read(&bytes) {
                let mut again = bytes.clone();
                message.write(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
