//! What ethtool's netlink family cannot set on every kernel: the hash of received frames (`ioctl(SIOCETHTOOL)`).

use std::io;
use std::os::fd::AsFd;

use super::packet::ask_words;

/// `ETHTOOL_GRXFH`, `ETHTOOL_SRXFH`, `ETHTOOL_SRSSH` of linux/ethtool.h.
const GET_FIELDS: u32 = 0x29;
const SET_FIELDS: u32 = 0x2a;
const SET_HASH: u32 = 0x47;
/// `ETH_RXFH_INDIR_NO_CHANGE`, and `RXH_XFRM_NO_CHANGE` after a hash function of 0, which is no change either.
const SAME_TABLE: u32 = u32::MAX;
const SAME_FUNCTION: u32 = u32::from_ne_bytes([0, 0xff, 0, 0]);
/// Words of `struct ethtool_rxnfc`, with room behind it.
const RULE_WORDS: usize = 32;

fn word(first: u32, second: u32) -> u64 {
    let (a, b) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
}

/// Which fields of frames of a flow type (`TCP_V4_FLOW`, …) are hashed, as `RXH_…` bits.
///
/// # Errors
/// `EOPNOTSUPP`, `ENODEV` in the namespace of the socket.
pub fn hashed_fields(socket: impl AsFd, name: &str, flow: u32) -> io::Result<u64> {
    let mut rule = [0; RULE_WORDS];
    rule[0] = word(GET_FIELDS, flow);
    ask_words(socket, name, &mut rule)?;
    Ok(rule[1])
}

/// Sets them.
///
/// # Errors
/// As [`hashed_fields`]; `EINVAL` for fields that the driver cannot hash.
pub fn set_hashed_fields(socket: impl AsFd, name: &str, flow: u32, fields: u64) -> io::Result<()> {
    let mut rule = [0; RULE_WORDS];
    (rule[0], rule[1]) = (word(SET_FIELDS, flow), fields);
    ask_words(socket, name, &mut rule)
}

/// Sets the table of queues, or the key, of the hash of received frames; what is none stays.
///
/// # Errors
/// As [`hashed_fields`]; `EINVAL` for another size than the driver's.
pub fn set_hash(socket: impl AsFd, name: &str, table: Option<&[u32]>, key: &[u8]) -> io::Result<()> {
    ask_words(socket, name, &mut hash_words(table, key))
}

/// `struct ethtool_rxfh` and what follows it.
fn hash_words(table: Option<&[u32]>, key: &[u8]) -> Vec<u64> {
    let size = table.map_or(SAME_TABLE, |table| table.len() as u32);
    let head = [SET_HASH, 0, size, key.len() as u32, SAME_FUNCTION, 0];
    let numbers = head.iter().chain(table.unwrap_or_default());
    let mut bytes: Vec<u8> = numbers.flat_map(|number| number.to_ne_bytes()).collect();
    bytes.extend(key);
    let whole = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    };
    bytes.chunks(8).map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// `struct ethtool_rxfh`: command, context, sizes of table and key, function, transformation, reserved; then the table and the key.
    #[test]
    fn the_hash_is_set_as_the_header_says() {
        let table = bytes(&hash_words(Some(&[0, 1, 2]), &[]));
        let head = [0x47u32, 0, 3, 0].map(u32::to_ne_bytes).concat();
        let expected = [&head[..], &[0, 0xff, 0, 0], &[0; 4], &[0; 4], &[1, 0, 0, 0], &[2, 0, 0, 0], &[0; 4]];
        assert_eq!(table, expected.concat());
        let key = bytes(&hash_words(None, &[0x6d, 0x5a]));
        let head = [0x47u32, 0, u32::MAX, 2].map(u32::to_ne_bytes).concat();
        let expected = [&head[..], &[0, 0xff, 0, 0], &[0; 4], &[0x6d, 0x5a, 0, 0, 0, 0, 0, 0]];
        assert_eq!(key, expected.concat());
    }

    #[test]
    fn an_interface_without_hash_says_so() {
        let socket = crate::sys::packet::open();
        let Ok(socket) = socket else { return println!("SKIP: hashed fields: no packet socket") };
        let refused = hashed_fields(&socket, "lo", 2).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
