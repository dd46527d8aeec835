//! CRC-32C (Castagnoli), the checksum of SCTP (RFC 9260 section 6.8 and appendix A).
//!
//! Eight tables ("slicing by 8", Kounavis and Berry 2005) take eight bytes at a time; they are made by the compiler from
//! the polynomial alone. The slow twin in the tests shifts bit by bit.

/// The polynomial, lowest bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][i] = crc;
        i += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[table - 1][i];
            tables[table][i] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            i += 1;
        }
        table += 1;
    }
    tables
}

/// A running CRC over pieces of any length.
#[derive(Debug, Clone, Copy)]
pub struct Crc(u32);

impl Default for Crc {
    fn default() -> Self {
        Crc(!0)
    }
}

impl Crc {
    /// Adds the bytes.
    #[must_use]
    pub fn add_bytes(mut self, bytes: &[u8]) -> Self {
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            let word = u64::from_le_bytes(*eight) ^ u64::from(self.0);
            let entry = |i: usize| TABLES[7 - i][(word >> (8 * i) & 0xff) as usize];
            self.0 = (0..8).fold(0, |crc, i| crc ^ entry(i));
        }
        for byte in rest {
            self.0 = self.0 >> 8 ^ TABLES[0][((self.0 ^ u32::from(*byte)) & 0xff) as usize];
        }
        self
    }

    /// The CRC of everything added.
    pub fn finish(self) -> u32 {
        !self.0
    }
}

/// The checksum field of an SCTP packet as it stands there, its present content taken as zero. The packet must have its
/// header of 12 bytes.
pub fn sctp(packet: &[u8]) -> [u8; 4] {
    Crc::default().add_bytes(&packet[..8]).add_bytes(&[0; 4]).add_bytes(&packet[12..]).finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow(bytes: &[u8]) -> u32 {
        let mut crc = !0u32;
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 != 0 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            }
        }
        !crc
    }

    #[test]
    fn the_examples_of_the_standards() {
        assert_eq!(Crc::default().add_bytes(b"123456789").finish(), 0xe306_9283);
        // RFC 3720 appendix B.4: 32 bytes of zeros.
        assert_eq!(Crc::default().add_bytes(&[0; 32]).finish(), 0x8a91_36aa);
    }

    proptest! {
        #[test]
        fn fast_is_slow(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let cut = cut.min(bytes.len());
            let pieces = Crc::default().add_bytes(&bytes[..cut]).add_bytes(&bytes[cut..]);
            prop_assert_eq!(pieces.finish(), slow(&bytes));
        }
    }
}
