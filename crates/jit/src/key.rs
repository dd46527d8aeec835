//! The key of a frame: what rules ask, in sixteen words at fixed places.
//!
//! **What.** [`place`] says in which word and at which bits a field stands, and which bits of word 0 say that the frame has it.
//! [`words`] turns the tests of a rule into masks and values of words; [`fill`] makes the key of a frame from its [`Headers`].
//!
//! **Why.** A rule is then a few `key & mask == value` on 64 bits, whatever its fields are; a field that is not there fails because
//! its bits of presence are compared, too, as §7.2.3.8 has it. Fields that no frame has together share places.
//!
//! **Price.** 128 bytes per frame. Words that a pipeline does not ask are not written, and what is left in a word whose
//! field is absent is never looked at: the bits of presence say so first.

use crate::ir::Test;
use wire::field::{Field, VLAN_PRESENT};
use wire::frame::{IPV4, IPV6};
use wire::headers::Headers;
use wire::layers::Fragment;
use wire::repair::Protocol;

/// Words of a key.
pub const WORDS: usize = 16;
/// A key.
pub type Key = [u64; WORDS];

/// Word 0: presence, ethertype, VLAN, IP protocol, DSCP and ECN.
pub const SUMMARY: u8 = 0;
/// Word 1: in_port, and two numbers of 16 bits of the transport (ports; type and code) or ARP's operation.
pub const PORTS: u8 = 1;
/// Word 2: two IPv4 addresses (of IP or ARP), or an MPLS entry, or a PBB service.
pub const NETWORK: u8 = 2;
/// Word 3.
pub const ETH_DST: u8 = 3;
/// Word 4.
pub const ETH_SRC: u8 = 4;
/// Word 5.
pub const METADATA: u8 = 5;
/// Words 6 and 7: IPv6 source; ARP's sender shares word 7.
pub const IPV6_SRC: u8 = 6;
/// Words 8 and 9: IPv6 destination; ARP's target shares word 9.
pub const IPV6_DST: u8 = 8;
/// Word 10: flow label and extension headers.
pub const IPV6_REST: u8 = 10;
/// Words 11 and 12: neighbour discovery's target.
pub const ND_TARGET: u8 = 11;
/// Word 13: neighbour discovery's Ethernet address.
pub const ND_LINK: u8 = 13;
/// Word 14.
pub const TUNNEL: u8 = 14;
/// Word 15.
pub const PHY_PORT: u8 = 15;

/// Word 0: there is an Ethernet header.
pub const ETH: u64 = 1 << 48;
/// Word 0: an MPLS entry.
pub const MPLS: u64 = 1 << 49;
/// Word 0: a PBB tag.
pub const PBB: u64 = 1 << 50;
/// Word 0: ARP, at least its operation.
pub const ARP_OP: u64 = 1 << 51;
/// Word 0: ARP for Ethernet and IPv4.
pub const ARP: u64 = 1 << 52;
/// Word 0: IPv4 or IPv6; the ethertype says which.
pub const IP: u64 = 1 << 53;
/// Word 0: the IP protocol is known.
pub const PROTO: u64 = 1 << 54;
/// Word 0: TCP.
pub const TCP: u64 = 1 << 55;
/// Word 0: UDP.
pub const UDP: u64 = 1 << 56;
/// Word 0: SCTP.
pub const SCTP: u64 = 1 << 57;
/// Word 0: ICMP of IPv4.
pub const ICMP4: u64 = 1 << 58;
/// Word 0: ICMPv6.
pub const ICMP6: u64 = 1 << 59;
/// Word 0: neighbour discovery.
pub const ND: u64 = 1 << 60;
/// Word 0: neighbour discovery with the option that belongs to it.
pub const LINK: u64 = 1 << 61;
/// Word 0: a fragment of IP, the first or a later one.
pub const FRAGMENT: u64 = 1 << 62;
/// Word 0: a VLAN tag (the bit 0x1000 of vlan_vid).
pub const TAGGED: u64 = (VLAN_PRESENT as u64) << VLAN_SHIFT;
/// Where vlan_vid stands in word 0.
pub const VLAN_SHIFT: u8 = 16;
/// Where the ethertype stands in word 0.
pub const TYPE_SHIFT: u8 = 32;

/// Where a field stands in the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPlace {
    /// The word; of a field of 128 bits the upper one, and the next has the rest.
    pub word: u8,
    /// Bits of the word right of the field.
    pub shift: u8,
    /// Bits of other words that say that there is such a field: word, mask, value.
    pub needs: [(u8, u64, u64); 2],
}

const NOTHING: (u8, u64, u64) = (0, 0, 0);

const fn bit(bits: u64) -> (u8, u64, u64) {
    (SUMMARY, bits, bits)
}

/// A frame has one transport at most, so all bits are compared: rules for TCP and for UDP then have the same mask.
const fn transport(bits: u64) -> (u8, u64, u64) {
    (SUMMARY, TCP | UDP | SCTP | ICMP4 | ICMP6, bits)
}

const fn typed(bits: u64, eth_type: u16) -> (u8, u64, u64) {
    (SUMMARY, bits | 0xffff << TYPE_SHIFT, bits | (eth_type as u64) << TYPE_SHIFT)
}

const fn message(kind: u64) -> (u8, u64, u64) {
    (PORTS, 0xffff << 16, kind << 16)
}

/// Where a field stands.
pub fn place(field: Field) -> KeyPlace {
    use Field::*;
    let (word, shift, needs) = match field {
        InPort => (PORTS, 32, NOTHING),
        InPhyPort => (PHY_PORT, 0, NOTHING),
        Metadata => (METADATA, 0, NOTHING),
        TunnelId => (TUNNEL, 0, NOTHING),
        EthDst => (ETH_DST, 0, bit(ETH)),
        EthSrc => (ETH_SRC, 0, bit(ETH)),
        EthType => (SUMMARY, TYPE_SHIFT, bit(ETH)),
        VlanVid => (SUMMARY, VLAN_SHIFT, bit(ETH)),
        VlanPcp => (SUMMARY, 29, bit(ETH | TAGGED)),
        IpDscp => (SUMMARY, 2, bit(IP)),
        IpEcn => (SUMMARY, 0, bit(IP)),
        IpProto => (SUMMARY, 8, bit(IP | PROTO)),
        Ipv4Src => (NETWORK, 32, typed(IP, IPV4)),
        Ipv4Dst => (NETWORK, 0, typed(IP, IPV4)),
        TcpSrc => (PORTS, 16, transport(TCP)),
        TcpDst => (PORTS, 0, transport(TCP)),
        UdpSrc => (PORTS, 16, transport(UDP)),
        UdpDst => (PORTS, 0, transport(UDP)),
        SctpSrc => (PORTS, 16, transport(SCTP)),
        SctpDst => (PORTS, 0, transport(SCTP)),
        Icmpv4Type => (PORTS, 16, transport(ICMP4)),
        Icmpv4Code => (PORTS, 0, transport(ICMP4)),
        Icmpv6Type => (PORTS, 16, transport(ICMP6)),
        Icmpv6Code => (PORTS, 0, transport(ICMP6)),
        ArpOp => (PORTS, 16, bit(ARP_OP)),
        ArpSpa => (NETWORK, 32, bit(ARP)),
        ArpTpa => (NETWORK, 0, bit(ARP)),
        ArpSha => (IPV6_SRC + 1, 0, bit(ARP)),
        ArpTha => (IPV6_DST + 1, 0, bit(ARP)),
        Ipv6Src => (IPV6_SRC, 0, typed(IP, IPV6)),
        Ipv6Dst => (IPV6_DST, 0, typed(IP, IPV6)),
        Ipv6Flabel => (IPV6_REST, 0, typed(IP, IPV6)),
        Ipv6Exthdr => (IPV6_REST, 32, typed(IP | PROTO, IPV6)),
        NdTarget => (ND_TARGET, 0, bit(ND)),
        NdSll => return KeyPlace { word: ND_LINK, shift: 0, needs: [bit(LINK), message(135)] },
        NdTll => return KeyPlace { word: ND_LINK, shift: 0, needs: [bit(LINK), message(136)] },
        MplsLabel => (NETWORK, 12, bit(MPLS)),
        MplsTc => (NETWORK, 9, bit(MPLS)),
        MplsBos => (NETWORK, 8, bit(MPLS)),
        PbbIsid => (NETWORK, 0, bit(PBB)),
        PbbUca => (NETWORK, 24, bit(PBB)),
    };
    KeyPlace { word, shift, needs: [needs, NOTHING] }
}

/// A condition on one word: `key[word] & mask == value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WordTest {
    /// Which word.
    pub word: u8,
    /// The bits that count; not 0.
    pub mask: u64,
    /// What they must be.
    pub value: u64,
}

/// The tests as conditions on words, by word; none when they contradict each other.
pub fn words(tests: &[Test]) -> Option<Vec<WordTest>> {
    let mut merged = [(0u64, 0u64); WORDS];
    for (word, mask, value) in tests.iter().flat_map(parts) {
        let (known, old) = &mut merged[usize::from(word)];
        if *known & mask & (*old ^ value) != 0 {
            return None;
        }
        (*known, *old) = (*known | mask, *old | value);
    }
    let words = merged.iter().zip(0u8..).filter(|((mask, _), _)| *mask != 0);
    Some(words.map(|(&(mask, value), word)| WordTest { word, mask, value }).collect())
}

fn parts(test: &Test) -> Vec<(u8, u64, u64)> {
    let place = place(test.field);
    let mut parts: Vec<_> = place.needs.into_iter().filter(|(_, mask, _)| *mask != 0).collect();
    parts.extend(own_parts(test, place));
    parts
}

/// The field itself, without what says that it is there.
fn own_parts(test: &Test, place: KeyPlace) -> Vec<(u8, u64, u64)> {
    if test.field.bits() == 128 {
        let half = |word: u8, shift: u32| (word, (test.mask >> shift) as u64, (test.value >> shift) as u64);
        vec![half(place.word, 64), half(place.word + 1, 0)]
    } else {
        vec![(place.word, (test.mask as u64) << place.shift, (test.value as u64) << place.shift)]
    }
}

/// Writes a value of a field into a key.
pub fn put(key: &mut Key, field: Field, value: u128) {
    let place = place(field);
    let word = usize::from(place.word);
    if field.bits() == 128 {
        (key[word], key[word + 1]) = ((value >> 64) as u64, value as u64);
    } else {
        let mask = (field.full_mask() as u64) << place.shift;
        key[word] = key[word] & !mask | (value as u64) << place.shift & mask;
    }
}

/// The fields that [`fill`] takes out of a frame.
const IN_FRAME: &[Field] = {
    use Field::*;
    &[
        EthDst, EthSrc, EthType, VlanVid, VlanPcp, IpDscp, IpEcn, IpProto, Ipv4Src, Ipv4Dst, TcpSrc, TcpDst,
        UdpSrc, UdpDst, SctpSrc, SctpDst, Icmpv4Type, Icmpv4Code, ArpOp, ArpSpa, ArpTpa, ArpSha, ArpTha,
        Ipv6Src, Ipv6Dst, Ipv6Flabel, Ipv6Exthdr, Icmpv6Type, Icmpv6Code, NdTarget, NdSll, NdTll, MplsLabel,
        MplsTc, MplsBos, PbbIsid, PbbUca,
    ]
};

/// Writes all words but those that stand in no frame.
pub fn fill(key: &mut Key, frame: &[u8], headers: &Headers) {
    key[usize::from(SUMMARY)] = 0;
    key[usize::from(PORTS)] &= 0xffff_ffff << 32;
    let found = IN_FRAME.iter().filter_map(|field| Some((*field, headers.get(frame, *field)?)));
    found.for_each(|(field, value)| put(key, field, value));
    key[usize::from(SUMMARY)] |= presence(frame, headers);
}

fn presence(frame: &[u8], headers: &Headers) -> u64 {
    let has = |field| headers.get(frame, field).is_some();
    let fragment = headers.ip().map(|ip| ip.fragment);
    let transport = match headers.transport() {
        Some((Protocol::Tcp, _)) => TCP,
        Some((Protocol::Udp, _)) => UDP,
        Some((Protocol::Sctp, _)) => SCTP,
        Some((Protocol::Icmp, _)) => ICMP4,
        Some((Protocol::Icmpv6, _)) => ICMP6,
        None => 0,
    };
    let bits = [
        (headers.is_ethernet(), ETH),
        (headers.mpls().is_some(), MPLS),
        (headers.pbb().is_some(), PBB),
        (has(Field::ArpOp), ARP_OP),
        (has(Field::ArpSpa), ARP),
        (headers.ip().is_some(), IP),
        (has(Field::IpProto), PROTO),
        (has(Field::NdTarget), ND),
        (has(Field::NdSll) || has(Field::NdTll), LINK),
        (matches!(fragment, Some(Fragment::First | Fragment::Later)), FRAGMENT),
    ];
    bits.iter().filter(|(is_there, _)| *is_there).fold(transport, |all, (_, bit)| all | bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::field::TABLE;

    #[test]
    fn every_field_fits_its_place_and_shares_no_bit_with_one_it_can_meet() {
        for row in TABLE {
            let place = place(row.field);
            let bits = if row.bits == 128 { 64 } else { row.bits };
            assert!(place.shift + bits <= 64, "{}", row.name);
            let mut key = [0; WORDS];
            put(&mut key, row.field, row.field.full_mask());
            let whole = Test { field: row.field, value: row.field.full_mask(), mask: row.field.full_mask() };
            for word in words(&[whole]).unwrap() {
                let own = word.word == place.word || row.bits == 128 && word.word == place.word + 1;
                assert!(!own || key[usize::from(word.word)] & word.mask == key[usize::from(word.word)]);
            }
        }
    }

    #[test]
    fn tests_that_contradict_each_other_are_none() {
        let test = |field: Field, value: u128| Test { field, value, mask: field.full_mask() };
        assert!(words(&[test(Field::Ipv4Src, 1), test(Field::Ipv6Src, 1)]).is_none());
        assert!(words(&[test(Field::EthType, 0x806), test(Field::Ipv4Src, 1)]).is_none());
        assert_eq!(words(&[test(Field::EthType, 0x800), test(Field::Ipv4Src, 1)]).unwrap().len(), 2);
    }
}
