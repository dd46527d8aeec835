//! The header that the kernel's packet generator (pktgen) puts at the start of every UDP payload.
//!
//! ```text
//!  0                               4                               8                              12                              16
//! +-------------------------------+-------------------------------+-------------------------------+-------------------------------+
//! | magic 0xbe9be955              | sequence number (32 bits)     | seconds since 1970            | microseconds                  |
//! +-------------------------------+-------------------------------+-------------------------------+-------------------------------+
//! ```
//!
//! All fields are big endian (`struct pktgen_hdr` and `pktgen_finalize_skb` of `net/core/pktgen.c`). What the kernel
//! does with them:
//! * Numbers start at **1** and wrap after 2³². With `clone_skb N` the same bytes leave N times while the counter goes
//!   on, so every number comes N times and the next one is N higher: that is how it was sent, not loss and duplication.
//! * The time is `CLOCK_REALTIME` when the frame was *built*, a little before it leaves; 0 and 0 with flag
//!   `NO_TIMESTAMP`. The seconds are unsigned here (they wrap in 2106); signed readers fail in 2038.
//! * The header is always there in full: a `pkt_size` that is too small for it is raised by the kernel.

/// Bytes of the header.
pub const LENGTH: usize = 16;

/// The first four bytes.
pub const MAGIC: u32 = 0xbe9b_e955;

/// The header of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pktgen {
    /// Its number; the first one is 1.
    pub sequence: u32,
    /// Seconds since 1970.
    pub seconds: u32,
    /// And microseconds.
    pub microseconds: u32,
}

impl Pktgen {
    /// A header with a time in nanoseconds since 1970, cut to microseconds and, in 2106, to 32 bits of seconds.
    pub fn at(sequence: u32, time_ns: u64) -> Pktgen {
        let (seconds, rest) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        Pktgen { sequence, seconds: seconds as u32, microseconds: (rest / 1000) as u32 }
    }

    /// Reads the header; none when the bytes are too short or not pktgen's.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Pktgen> {
        let header = bytes.first_chunk::<LENGTH>()?;
        let word =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        (word(0) == MAGIC).then(|| Pktgen { sequence: word(4), seconds: word(8), microseconds: word(12) })
    }

    /// Writes the header over the first 16 bytes; shorter bytes are left as they are.
    #[inline]
    pub fn write(&self, bytes: &mut [u8]) {
        if let Some(header) = bytes.first_chunk_mut::<LENGTH>() {
            header[..4].copy_from_slice(&MAGIC.to_be_bytes());
            header[4..8].copy_from_slice(&self.sequence.to_be_bytes());
            header[8..12].copy_from_slice(&self.seconds.to_be_bytes());
            header[12..].copy_from_slice(&self.microseconds.to_be_bytes());
        }
    }

    /// The time in nanoseconds since 1970; none when the sender left it out, or when the microseconds are no such.
    #[inline]
    pub fn time_ns(&self) -> Option<u64> {
        let is_there = (self.seconds, self.microseconds) != (0, 0) && self.microseconds < 1_000_000;
        is_there.then(|| u64::from(self.seconds) * 1_000_000_000 + u64::from(self.microseconds) * 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_documented_layout() {
        let header = Pktgen { sequence: 0x0102_0304, seconds: 0x1112_1314, microseconds: 0x000f_4240 - 1 };
        let mut bytes = [0xff; LENGTH + 1];
        header.write(&mut bytes);
        let expected =
            [0xbe, 0x9b, 0xe9, 0x55, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x00, 0x0f, 0x42, 0x3f, 0xff];
        assert_eq!(bytes, expected);
        assert_eq!(header.time_ns(), Some(0x1112_1314 * 1_000_000_000 + 999_999_000));
    }

    #[test]
    fn a_time_that_is_not_there_is_none() {
        let header = |seconds, microseconds| Pktgen { sequence: 1, seconds, microseconds };
        assert_eq!(header(0, 0).time_ns(), None);
        assert_eq!(header(7, 1_000_000).time_ns(), None);
        assert_eq!(header(0, 1).time_ns(), Some(1000));
        assert_eq!(Pktgen::at(5, 7_001_234_567).time_ns(), Some(7_001_234_000));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(sequence: u32, seconds: u32, microseconds: u32) {
            let header = Pktgen { sequence, seconds, microseconds };
            let mut bytes = [0; 64];
            header.write(&mut bytes);
            prop_assert_eq!(Pktgen::read(&bytes), Some(header));
            prop_assert_eq!(Pktgen::read(&bytes[..LENGTH - 1]), None);
            prop_assert_eq!(crate::message::Message::read(&bytes), None, "it is no message of ours");
            let _ = header.time_ns();
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40), ours: bool) {
            let mut bytes = bytes;
            if let (true, Some(start)) = (ours, bytes.first_chunk_mut::<4>()) {
                *start = MAGIC.to_be_bytes();
            }
            let is_ours = bytes.len() >= LENGTH && bytes[..4] == MAGIC.to_be_bytes();
            prop_assert_eq!(Pktgen::read(&bytes).is_some(), is_ours);
            if let Some(header) = Pktgen::read(&bytes) {
                let mut again = bytes.clone();
                header.write(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
