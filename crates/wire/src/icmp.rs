//! ICMP echo (RFC 792) and ICMPv6 echo (RFC 4443 section 4): the same eight bytes with other type numbers.

use crate::checksum::checksum;
use crate::{Malformed, at_least, be16};

/// Bytes before the echo data.
pub const HEADER: usize = 8;

/// ICMP type of an echo reply.
pub const V4_REPLY: u8 = 0;
/// ICMP type of an echo request.
pub const V4_REQUEST: u8 = 8;
/// ICMPv6 type of an echo request.
pub const V6_REQUEST: u8 = 128;
/// ICMPv6 type of an echo reply.
pub const V6_REPLY: u8 = 129;

/// A checked view of an ICMP or ICMPv6 message with an echo header.
#[derive(Debug, Clone, Copy)]
pub struct Echo<'a>(&'a [u8]);

impl<'a> Echo<'a> {
    /// Checks that the eight bytes are there. The type is not judged: see [`Echo::kind`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        at_least("ICMP", bytes, HEADER).map(|()| Echo(bytes))
    }

    /// The type: [`V4_REQUEST`], [`V4_REPLY`], [`V6_REQUEST`], [`V6_REPLY`] or another message altogether.
    pub fn kind(&self) -> u8 {
        self.0[0]
    }

    /// The code; 0 for echo.
    pub fn code(&self) -> u8 {
        self.0[1]
    }

    /// The identifier: which ping it belongs to.
    pub fn identifier(&self) -> u16 {
        be16(self.0, 4)
    }

    /// The sequence number.
    pub fn sequence(&self) -> u16 {
        be16(self.0, 6)
    }

    /// The echo data.
    pub fn data(&self) -> &'a [u8] {
        &self.0[HEADER..]
    }

    /// True when the ICMP checksum is right (IPv4; that of ICMPv6 includes the addresses).
    pub fn is_intact(&self) -> bool {
        checksum(self.0) == 0
    }
}

/// Writes the eight bytes over the start of `message`, whose rest is the echo data, and for ICMP the checksum.
/// For ICMPv6 the checksum is left 0: the kernel fills it in for raw and ping sockets (RFC 3542 section 3.1).
/// A message shorter than eight bytes is left as it is.
pub fn write_echo(message: &mut [u8], kind: u8, identifier: u16, sequence: u16) {
    let Some(header) = message.first_chunk_mut::<HEADER>() else { return };
    let [i, j] = identifier.to_be_bytes();
    let [s, t] = sequence.to_be_bytes();
    *header = [kind, 0, 0, 0, i, j, s, t];
    if matches!(kind, V4_REQUEST | V4_REPLY) {
        let sum = checksum(message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_echo_reads_back_intact(id: u16, sequence: u16, data in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut message = vec![0; HEADER];
            message.extend(&data);
            write_echo(&mut message, V4_REQUEST, id, sequence);
            let echo = Echo::parse(&message).unwrap();
            prop_assert!(echo.is_intact());
            prop_assert_eq!((echo.kind(), echo.code()), (V4_REQUEST, 0));
            prop_assert_eq!((echo.identifier(), echo.sequence(), echo.data()), (id, sequence, &data[..]));
        }

        #[test]
        fn short_bytes_are_refused_and_left_alone(mut bytes in prop::collection::vec(any::<u8>(), 0..HEADER)) {
            let before = bytes.clone();
            write_echo(&mut bytes, V6_REQUEST, 1, 2);
            prop_assert_eq!(&bytes, &before);
            prop_assert!(Echo::parse(&bytes).is_err());
        }
    }
}
