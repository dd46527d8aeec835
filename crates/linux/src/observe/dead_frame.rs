//! What a record of a dying frame says.
//!
//! **What.** [`decode`] turns the bytes of a record ([`super::frames_program`]) into a [`DeadFrame`]: where the frame begins, what its
//! first header is, and its bytes, with the VLAN tag that the kernel keeps beside the buffer put back.
//!
//! **Why judged here.** The kernel's marks of headers may be stale. An Ethernet header is believed only if its type is the protocol that
//! the buffer says, or that of a tag; else the frame is shown from its network header on, and its link layer is gone.
//!
//! **Price.** The frame is copied once.

use super::frames_program::{
    AT_COPIED, AT_DATA, AT_KEY, AT_MAC, AT_NAME, AT_NETWORK, AT_PAGES, AT_PROTOCOL, AT_SEGMENTS, AT_START,
    AT_TAG, AT_TAG_PROTOCOL, AT_TAIL, RECORD_BYTES,
};
use crate::netlink::{u16_at, u32_at, u64_at};

const ETHERNET: usize = 14;
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Buffers say this of frames whose type is a length (`ETH_P_802_3`, `ETH_P_802_2`).
const BY_LENGTH: [u16; 2] = [0x0001, 0x0004];

/// What the frame's bytes begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadLink {
    /// An Ethernet header.
    Ethernet,
    /// An IP header: the link layer was gone, or not there yet.
    Ip,
    /// The header of some other protocol, by its Ethernet type.
    Other(u16),
}

/// Where and why a frame died, in the kernel's numbers: what counts are kept by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadKey {
    /// The reason.
    pub reason: u32,
    /// The number of the namespace, which the next one may have when it is gone.
    pub namespace: u32,
    /// The interface; 0: none.
    pub interface: u32,
    /// How the namespace was told, or at which event.
    pub kind: u32,
    /// The address of the call that dropped.
    pub location: u64,
    /// The namespace's cookie, which no other one ever has; 0: not known.
    pub cookie: u64,
}

impl DeadKey {
    /// Reads a key.
    pub fn decode(bytes: &[u8]) -> Option<DeadKey> {
        Some(DeadKey {
            reason: u32_at(bytes, 0)?,
            namespace: u32_at(bytes, 4)?,
            interface: u32_at(bytes, 8)?,
            kind: u32_at(bytes, 12)?,
            location: u64_at(bytes, 16)?,
            cookie: u64_at(bytes, 24)?,
        })
    }
}

/// A frame that died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadFrame {
    /// When, on `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Where and why.
    pub key: DeadKey,
    /// The interface's name, if the interface itself told the namespace.
    pub interface: Option<String>,
    /// Frames: the segments of a super-frame, or one.
    pub segments: u32,
    /// What its bytes begin with.
    pub link: DeadLink,
    /// Its bytes, as far as they were copied.
    pub bytes: Vec<u8>,
    /// Its length from where its bytes begin.
    pub length: u32,
}

/// Reads a record; none if it is cut.
pub fn decode(record: &[u8]) -> Option<DeadFrame> {
    let key = DeadKey::decode(record.get(AT_KEY..)?)?;
    let word = |at: usize| u32_at(record, at).map(|value| value as usize);
    let half = |at: usize| u16_at(record, at).map(usize::from);
    let big = |at: usize| Some(u16::from_be_bytes(*record.get(at..)?.first_chunk()?));
    let copied = record.get(RECORD_BYTES as usize..)?;
    let copied = copied.get(..word(AT_COPIED)?)?;
    let (start, data) = (word(AT_START)?, word(AT_DATA)?);
    let whole = (word(AT_TAIL)?.saturating_sub(start)) as u64 + word(AT_PAGES)? as u64;
    let protocol = big(AT_PROTOCOL)?;
    let begin = Begin {
        has_mac: start == half(AT_MAC)?,
        network: half(AT_NETWORK)?.checked_sub(start),
        data: data.saturating_sub(start),
    };
    let (skipped, link) = begin.judge(copied, protocol);
    let mut bytes = copied.get(skipped..).unwrap_or_default().to_vec();
    let mut length = whole.saturating_sub(skipped as u64).max(bytes.len() as u64);
    let tag = (big(AT_TAG_PROTOCOL)?, u16_at(record, AT_TAG)?);
    if link == DeadLink::Ethernet && TAGS.contains(&tag.0) && bytes.len() >= 12 {
        let tag = [tag.0.to_be_bytes(), tag.1.to_be_bytes()].concat();
        bytes.splice(12..12, tag);
        length += 4;
    }
    Some(DeadFrame {
        at_ns: u64_at(record, 0)?,
        key,
        interface: name(record.get(AT_NAME..AT_NAME + 16)?),
        segments: u32_at(record, AT_SEGMENTS)?,
        link,
        bytes,
        length: u32::try_from(length).unwrap_or(u32::MAX),
    })
}

fn name(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    (end > 0).then(|| String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// What the kernel's marks say of the bytes that were copied, as distances from their begin.
struct Begin {
    has_mac: bool,
    /// None: in front of them.
    network: Option<usize>,
    data: usize,
}

impl Begin {
    /// How many bytes to skip, and what follows them.
    fn judge(&self, bytes: &[u8], protocol: u16) -> (usize, DeadLink) {
        if self.has_mac && is_ethernet(bytes, protocol) {
            return (0, DeadLink::Ethernet);
        }
        // The network header may be behind data that a tunnel has in front of it, never behind nothing.
        let network =
            if self.has_mac { self.network.unwrap_or(self.data) } else { self.network.unwrap_or(0) };
        let at = [network, self.data, 0].into_iter().find(|&at| is_ip(bytes.get(at..), protocol));
        match at {
            Some(at) => (at, DeadLink::Ip),
            None => (network.min(bytes.len()), DeadLink::Other(protocol)),
        }
    }
}

/// Whether an Ethernet header stands there that leads to this protocol.
fn is_ethernet(bytes: &[u8], protocol: u16) -> bool {
    let Some(header) = bytes.get(..ETHERNET) else { return false };
    let kind = u16::from_be_bytes([header[12], header[13]]);
    let fits = kind == protocol || (BY_LENGTH.contains(&protocol) && kind < 0x0600);
    let unknown = protocol == 0 && (kind == IPV4 || kind == IPV6) && is_ip(bytes.get(ETHERNET..), kind);
    fits || TAGS.contains(&kind) || unknown
}

fn is_ip(bytes: Option<&[u8]>, protocol: u16) -> bool {
    let Some(bytes) = bytes else { return false };
    match (bytes.first().map(|byte| byte >> 4), protocol) {
        (Some(4), 0 | IPV4) => bytes.len() >= 20,
        (Some(6), 0 | IPV6) => bytes.len() >= 40,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A record of that many header bytes of memory, with the marks set so.
    #[allow(clippy::too_many_arguments)]
    fn record(
        start: u32,
        mac: u16,
        network: u16,
        data: u32,
        protocol: u16,
        tag: Option<u16>,
        bytes: &[u8],
        pages: u32,
    ) -> Vec<u8> {
        let mut record = vec![0; RECORD_BYTES as usize];
        let mut put = |at: usize, value: &[u8]| record[at..at + value.len()].copy_from_slice(value);
        put(0, &7u64.to_ne_bytes());
        put(AT_KEY, &6u32.to_ne_bytes());
        put(AT_KEY + 4, &0xf000_0001u32.to_ne_bytes());
        put(AT_KEY + 8, &3u32.to_ne_bytes());
        put(AT_SEGMENTS, &1u32.to_ne_bytes());
        put(AT_START, &start.to_ne_bytes());
        put(AT_DATA, &data.to_ne_bytes());
        put(AT_TAIL, &(start + bytes.len() as u32).to_ne_bytes());
        put(AT_PAGES, &pages.to_ne_bytes());
        put(AT_MAC, &mac.to_ne_bytes());
        put(AT_NETWORK, &network.to_ne_bytes());
        put(AT_PROTOCOL, &protocol.to_be_bytes());
        if let Some(tag) = tag {
            put(AT_TAG_PROTOCOL, &0x8100u16.to_be_bytes());
            put(AT_TAG, &tag.to_ne_bytes());
        }
        put(AT_COPIED, &(bytes.len() as u32).to_ne_bytes());
        put(AT_NAME, b"eth0");
        record.extend_from_slice(bytes);
        record
    }

    fn packet() -> Vec<u8> {
        let mut packet = vec![0; 60];
        packet[0] = 0x45;
        packet
    }

    fn frame(kind: u16) -> Vec<u8> {
        [vec![2; 12], kind.to_be_bytes().to_vec(), packet()].concat()
    }

    #[test]
    fn a_received_frame_begins_at_its_ethernet_header() {
        let found = decode(&record(64, 64, 78, 98, IPV4, None, &frame(IPV4), 0)).unwrap();
        assert_eq!((found.link, &found.bytes, found.length), (DeadLink::Ethernet, &frame(IPV4), 74));
        assert_eq!((found.interface.as_deref(), found.key.interface), (Some("eth0"), 3));
        let paged = decode(&record(64, 64, 78, 98, IPV4, None, &frame(IPV4), 1000)).unwrap();
        assert_eq!((paged.bytes.len(), paged.length), (74, 1074), "bytes in pages are not here");
    }

    #[test]
    fn a_tag_beside_the_buffer_is_put_back() {
        let found = decode(&record(64, 64, 78, 78, IPV4, Some(0x2005), &frame(IPV4), 0)).unwrap();
        assert_eq!((&found.bytes[12..18], found.length), (&[0x81, 0, 0x20, 5, 8, 0][..], 78));
    }

    #[test]
    fn without_a_link_layer_it_begins_at_the_network_header() {
        let made = decode(&record(100, 0xffff, 100, 100, IPV4, None, &packet(), 0)).unwrap();
        assert_eq!((made.link, made.bytes.len(), made.length), (DeadLink::Ip, 60, 60));
        // The mark is set, but what stands there is no such header.
        let stale = [vec![9; 20], packet()].concat();
        let found = decode(&record(80, 80, 100, 100, IPV4, None, &stale, 0)).unwrap();
        assert_eq!((found.link, found.bytes.len(), found.length), (DeadLink::Ip, 60, 60));
        let arp = decode(&record(80, 0xffff, 80, 80, 0x0806, None, &[0; 28], 0)).unwrap();
        assert_eq!((arp.link, arp.length), (DeadLink::Other(0x0806), 28));
    }

    proptest! {
        #[test]
        fn noise_never_panics_and_never_makes_bytes(noise in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(found) = decode(&noise) {
                prop_assert!(found.bytes.len() <= noise.len() + 4 && found.length as usize >= found.bytes.len());
            }
        }
    }
}
