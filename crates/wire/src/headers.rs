//! The headers of a frame as an OpenFlow switch sees them: one parse to offsets, then every field on demand.
//!
//! **What.** [`Headers::parse`] walks a frame once: Ethernet, VLAN tags, then one of PBB, MPLS, ARP, IPv4 with options,
//! IPv6 with extension headers; behind IP one of TCP, UDP, SCTP, ICMP, ICMPv6, and the options of neighbour discovery.
//! [`Headers::get`] reads the value of a [`Field`], [`Headers::spot`] says where it stands, for those who compile it into
//! loads or write it. Fields mean what OpenFlow 1.3.5 section 7.2.3.7 says: the ethertype is the one *behind* VLAN tags,
//! VLAN fields are of the outermost tag, MPLS fields of the outermost entry.
//!
//! **Why.** Parsing never fails: what is truncated or malformed is *absent*, the rest is there, as a switch must forward
//! what it does not understand. What hides behind MPLS, PBB, ESP or in a later fragment is absent too: OpenFlow says that
//! a switch sees it only after the header in front was popped. The walk over IP is [`Layers`], the same as for checksums.
//!
//! **Price.** [`Headers`] belongs to the bytes that were parsed: after a push, a pop, or a change of a type field parse
//! again ([`FrameBuf`](crate::edit::FrameBuf) does). Given other bytes, `get` returns none or nonsense; it never panics.
//! A header that is cut counts as absent whole, although some of its fields may be there: what is one header in the
//! standards is either understood or not. An 802.3 length is no ethertype: of such a frame the ethertype is the one of SNAP when
//! there is one, else 0x05ff, and what is behind SNAP is entered when it is ARP or IP (OpenFlow 1.0.0 table 3, "dl_type"; later
//! versions say nothing, and Open vSwitch, `parse_ethertype` in lib/flow.c, does the same).

pub use crate::field::{Field, VLAN_PRESENT};

use crate::be16;
use crate::frame::{ARP, Ethernet, IPV4, MPLS, MPLS_MULTICAST, PBB};
use crate::layers::{Fragment, Layers};
use crate::repair::Protocol;

/// Ethertype of an 802.1Q tag.
pub const VLAN: u16 = 0x8100;
/// Ethertype of an 802.1ad service tag; of a backbone tag too.
pub const SERVICE_VLAN: u16 = 0x88a8;
/// The ethertype of an 802.3 frame that has none: LLC without SNAP (`OFP_DL_TYPE_NOT_ETH_TYPE` of OpenFlow 1.0).
pub const NO_ETHERTYPE: u16 = 0x05ff;

/// ICMPv6 type of a neighbour solicitation (RFC 4861).
pub const NEIGHBOUR_SOLICITATION: u8 = 135;
/// ICMPv6 type of a neighbour advertisement (RFC 4861).
pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// Bytes of a VLAN tag, of an MPLS entry, and of a PBB tag without the customer's Ethernet header.
pub(crate) const TAG: usize = 4;
/// The smallest ethertype; what is smaller is a length (IEEE 802.3 section 3.2.6).
const FIRST_ETHERTYPE: u16 = 0x0600;
/// LLC and SNAP before an ethertype: both service access points 0xaa, unnumbered information, the organisation 0 (RFC 1042).
const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];
/// Bytes of LLC and SNAP with the ethertype.
const SNAP_LENGTH: usize = 8;
/// Bytes of an ARP message for Ethernet and IPv4 (RFC 826).
const ARP_LENGTH: usize = 28;
/// Bytes of a neighbour message before its options (RFC 4861 section 4.3).
const NEIGHBOUR_LENGTH: usize = 24;

/// What stands behind the Ethernet header and its tags, and is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Payload {
    /// Nothing that is known here, or it is cut.
    #[default]
    Other,
    /// A PBB tag.
    Pbb,
    /// An MPLS entry.
    Mpls,
    /// ARP whose addresses are of other kinds than Ethernet and IPv4, or cut: its operation only.
    ArpOperation,
    /// ARP for Ethernet and IPv4.
    Arp,
    /// IPv4 or IPv6.
    Ip(Layers),
}

/// Where the headers of a frame stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers {
    /// First byte behind the ethertype; 0 when there is no Ethernet header.
    payload: usize,
    eth_type: u16,
    tags: usize,
    kind: Payload,
    /// The ethertype stands in SNAP.
    is_snap: bool,
    transport: Option<Protocol>,
    /// The ICMPv6 type when it is one of the two with neighbour fields, and all of those are here.
    neighbour: Option<u8>,
    /// The address in the option that belongs to that type; 0 when there is none.
    link_layer: usize,
}

/// The place of a field: a few bits of a few bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Its first byte.
    pub at: usize,
    /// Bytes that hold it, read as one big-endian number.
    pub bytes: u8,
    /// Bits of that number right of the field.
    pub shift: u8,
    /// Bits of the field.
    pub bits: u8,
}

impl Spot {
    const fn whole(at: usize, bytes: u8) -> Spot {
        Spot { at, bytes, shift: 0, bits: bytes * 8 }
    }

    const fn part(at: usize, bytes: u8, shift: u8, bits: u8) -> Spot {
        Spot { at, bytes, shift, bits }
    }

    /// The number of the bits that the field may have, shifted to the right end.
    pub const fn mask(self) -> u128 {
        if self.bits == 128 { u128::MAX } else { (1 << self.bits) - 1 }
    }

    /// Reads the field; none when the frame is shorter than the one that was parsed.
    pub fn read(self, frame: &[u8]) -> Option<u128> {
        let bytes = frame.get(self.at..self.at + usize::from(self.bytes))?;
        let word = bytes.iter().fold(0, |word, byte| word << 8 | u128::from(*byte));
        Some(word >> self.shift & self.mask())
    }
}

impl Headers {
    /// Walks the frame.
    pub fn parse(frame: &[u8]) -> Headers {
        let mut headers = Headers::default();
        if frame.len() < Ethernet::LENGTH {
            return headers;
        }
        headers.payload = Ethernet::LENGTH;
        headers.eth_type = be16(frame, 12);
        // A tag that is cut is none: its ethertype is then the frame's.
        while is_vlan(headers.eth_type) && frame.len() >= headers.payload + TAG {
            headers.eth_type = be16(frame, headers.payload + 2);
            headers.payload += TAG;
            headers.tags += 1;
        }
        headers.enter_llc(frame);
        headers.enter_payload(frame);
        headers
    }

    /// What stands where an ethertype would may be a length.
    fn enter_llc(&mut self, frame: &[u8]) {
        if self.eth_type >= FIRST_ETHERTYPE {
            return;
        }
        let behind = frame.get(self.payload..self.payload + SNAP_LENGTH).filter(|llc| llc.starts_with(&SNAP));
        self.eth_type = match behind.map(|llc| be16(llc, SNAP.len())) {
            Some(eth_type) if eth_type >= FIRST_ETHERTYPE => {
                self.payload += SNAP_LENGTH;
                self.is_snap = true;
                eth_type
            }
            _ => NO_ETHERTYPE,
        };
    }

    fn enter_payload(&mut self, frame: &[u8]) {
        let at = self.payload;
        let rest = &frame[at..];
        self.kind = match self.eth_type {
            // Not in SNAP: to push and pop there would be to change the length of 802.3.
            MPLS | MPLS_MULTICAST if rest.len() >= TAG && !self.is_snap => Payload::Mpls,
            PBB if rest.len() >= TAG && !self.is_snap => Payload::Pbb,
            ARP if is_arp_of_ethernet(rest) => Payload::Arp,
            ARP if rest.len() >= 8 => Payload::ArpOperation,
            _ => match Layers::of_ip(frame, at, self.eth_type) {
                Some(layers) => Payload::Ip(layers),
                None => Payload::Other,
            },
        };
        if let Payload::Ip(layers) = self.kind {
            self.enter_transport(frame, &layers);
        }
    }

    fn enter_transport(&mut self, frame: &[u8], layers: &Layers) {
        let end = layers.end.min(frame.len());
        let Some(protocol) = Protocol::of(layers) else { return };
        let is_here = layers.is_complete && layers.transport + protocol.shape().0 <= end;
        if layers.fragment == Fragment::Later || !is_here {
            return;
        }
        self.transport = Some(protocol);
        let message = &frame[layers.transport..end];
        if protocol != Protocol::Icmpv6 || message.len() < NEIGHBOUR_LENGTH {
            return;
        }
        let option = match message[0] {
            NEIGHBOUR_SOLICITATION => 1,
            NEIGHBOUR_ADVERTISEMENT => 2,
            _ => return,
        };
        self.neighbour = Some(message[0]);
        self.link_layer = link_layer(message, option).map_or(0, |at| layers.transport + at);
    }

    /// True when there is an Ethernet header.
    pub fn is_ethernet(&self) -> bool {
        self.payload != 0
    }

    /// The ethertype behind all tags, [`NO_ETHERTYPE`] for LLC; 0 when there is no Ethernet header.
    pub fn eth_type(&self) -> u16 {
        self.eth_type
    }

    /// First byte behind the Ethernet header, all VLAN tags and SNAP; 0 when there is no Ethernet header.
    pub fn payload(&self) -> usize {
        self.payload
    }

    /// VLAN tags.
    pub fn tags(&self) -> usize {
        self.tags
    }

    /// The IP packet, unless it stands behind MPLS or PBB.
    pub fn ip(&self) -> Option<&Layers> {
        match &self.kind {
            Payload::Ip(layers) => Some(layers),
            _ => None,
        }
    }

    /// The transport and where it begins. None in a later fragment, or when its header is cut.
    pub fn transport(&self) -> Option<(Protocol, usize)> {
        Some((self.transport?, self.ip()?.transport))
    }

    /// The outermost MPLS entry.
    pub fn mpls(&self) -> Option<usize> {
        (self.kind == Payload::Mpls).then_some(self.payload)
    }

    /// The PBB tag: four bytes, then the customer's Ethernet header.
    pub fn pbb(&self) -> Option<usize> {
        (self.kind == Payload::Pbb).then_some(self.payload)
    }

    /// The value of a field in the frame that was parsed; none when the frame has no such header. A VLAN is 0 without a
    /// tag, and 0x1000 more than its number with one.
    pub fn get(&self, frame: &[u8], field: Field) -> Option<u128> {
        match field {
            Field::EthType => self.is_ethernet().then_some(u128::from(self.eth_type)),
            Field::VlanVid if self.tags == 0 => self.is_ethernet().then_some(0),
            Field::VlanVid => Some(self.spot(field)?.read(frame)? | u128::from(VLAN_PRESENT)),
            Field::Ipv6Exthdr => {
                let layers = self.ip().filter(|layers| layers.is_v6 && layers.is_complete)?;
                Some(u128::from(layers.extensions.bits()))
            }
            _ => self.spot(field)?.read(frame),
        }
    }

    /// A hash of what makes frames belong together: addresses, VLAN, protocol and ports; other fields may change within
    /// a conversation. Different salts give independent hashes.
    pub fn flow(&self, frame: &[u8], salt: u32) -> u64 {
        use Field::*;
        let fields = [
            EthDst, EthSrc, EthType, VlanVid, IpProto, Ipv4Src, Ipv4Dst, Ipv6Src, Ipv6Dst, TcpSrc, TcpDst,
            UdpSrc, UdpDst, SctpSrc, SctpDst, ArpSpa, ArpTpa, MplsLabel, PbbIsid,
        ];
        let values = fields.iter().filter_map(|field| self.get(frame, *field));
        values.fold(mix(0, salt.into()), |hash, value| mix(mix(hash, value as u64), (value >> 64) as u64))
    }

    /// Where a field stands; none when the frame has no such header. [`Field::Ipv6Exthdr`] and the ethertype of LLC stand nowhere,
    /// and of [`Field::VlanVid`] only the 12 bits of the number do.
    pub fn spot(&self, field: Field) -> Option<Spot> {
        use Field::*;
        let at = self.payload;
        let (is_tagged, has_ethertype) = (self.tags > 0, self.eth_type != NO_ETHERTYPE);
        Some(match (field, &self.kind) {
            _ if !self.is_ethernet() => return None,
            (EthDst, _) => Spot::whole(0, 6),
            (EthSrc, _) => Spot::whole(6, 6),
            (EthType, _) if has_ethertype => Spot::whole(at - 2, 2),
            (VlanVid, _) if is_tagged => Spot::part(Ethernet::LENGTH, 2, 0, 12),
            (VlanPcp, _) if is_tagged => Spot::part(Ethernet::LENGTH, 1, 5, 3),
            (MplsLabel, Payload::Mpls) => Spot::part(at, 3, 4, 20),
            (MplsTc, Payload::Mpls) => Spot::part(at + 2, 1, 1, 3),
            (MplsBos, Payload::Mpls) => Spot::part(at + 2, 1, 0, 1),
            (PbbIsid, Payload::Pbb) => Spot::whole(at + 1, 3),
            (PbbUca, Payload::Pbb) => Spot::part(at, 1, 3, 1),
            (ArpOp, Payload::Arp | Payload::ArpOperation) => Spot::whole(at + 6, 2),
            (ArpSha, Payload::Arp) => Spot::whole(at + 8, 6),
            (ArpSpa, Payload::Arp) => Spot::whole(at + 14, 4),
            (ArpTha, Payload::Arp) => Spot::whole(at + 18, 6),
            (ArpTpa, Payload::Arp) => Spot::whole(at + 24, 4),
            (_, Payload::Ip(ip)) => return self.spot_of_ip(ip, field),
            _ => return None,
        })
    }

    fn spot_of_ip(&self, ip: &Layers, field: Field) -> Option<Spot> {
        use Field::*;
        let at = ip.network;
        Some(match (field, ip.is_v6) {
            (IpDscp, false) => Spot::part(at + 1, 1, 2, 6),
            (IpEcn, false) => Spot::part(at + 1, 1, 0, 2),
            (Ipv4Src, false) => Spot::whole(at + 12, 4),
            (Ipv4Dst, false) => Spot::whole(at + 16, 4),
            (IpDscp, true) => Spot::part(at, 2, 6, 6),
            (IpEcn, true) => Spot::part(at, 2, 4, 2),
            (Ipv6Flabel, true) => Spot::part(at + 1, 3, 0, 20),
            (Ipv6Src, true) => Spot::whole(at + 8, 16),
            (Ipv6Dst, true) => Spot::whole(at + 24, 16),
            (IpProto, _) if ip.is_complete => Spot::whole(ip.protocol_at, 1),
            _ => return self.spot_of_transport(ip.transport, field),
        })
    }

    fn spot_of_transport(&self, at: usize, field: Field) -> Option<Spot> {
        use Field::*;
        use Protocol::*;
        Some(match (self.transport?, field) {
            (Tcp, TcpSrc) | (Udp, UdpSrc) | (Sctp, SctpSrc) => Spot::whole(at, 2),
            (Tcp, TcpDst) | (Udp, UdpDst) | (Sctp, SctpDst) => Spot::whole(at + 2, 2),
            (Icmp, Icmpv4Type) | (Icmpv6, Icmpv6Type) => Spot::whole(at, 1),
            (Icmp, Icmpv4Code) | (Icmpv6, Icmpv6Code) => Spot::whole(at + 1, 1),
            (Icmpv6, _) => return self.spot_of_neighbour(at, field),
            _ => return None,
        })
    }

    fn spot_of_neighbour(&self, at: usize, field: Field) -> Option<Spot> {
        match (field, self.neighbour?) {
            (Field::NdTarget, _) => Some(Spot::whole(at + 8, 16)),
            (Field::NdSll, NEIGHBOUR_SOLICITATION) | (Field::NdTll, NEIGHBOUR_ADVERTISEMENT) => {
                (self.link_layer != 0).then_some(Spot::whole(self.link_layer, 6))
            }
            _ => None,
        }
    }
}

/// One step of a hash: all bits of `word` reach all bits of the state (the finaliser of MurmurHash3).
fn mix(state: u64, word: u64) -> u64 {
    let mut mixed = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}

/// True for the ethertypes of the tags that OpenFlow knows (section 5.12: 0x8100 and 0x88a8).
pub(crate) fn is_vlan(ethertype: u16) -> bool {
    matches!(ethertype, VLAN | SERVICE_VLAN)
}

/// True when the ARP message is whole and its addresses are of Ethernet and IPv4. The hardware type is not looked at:
/// others than 1 use these addresses, too (802 networks say 6).
fn is_arp_of_ethernet(message: &[u8]) -> bool {
    message.len() >= ARP_LENGTH && be16(message, 2) == IPV4 && message[4..6] == [6, 4]
}

/// The address in the first option of that type in a neighbour message. An option of length 0 makes what follows
/// unreadable (RFC 4861 section 4.6); on Ethernet the length is 1, eight bytes (RFC 2464 section 6).
fn link_layer(message: &[u8], option: u8) -> Option<usize> {
    let mut at = NEIGHBOUR_LENGTH;
    while let Some(header) = message.get(at..at + 2) {
        let length = 8 * usize::from(header[1]);
        if length == 0 || at + length > message.len() {
            return None;
        }
        if header[0] == option {
            return (length == 8).then_some(at + 2);
        }
        at += length;
    }
    None
}

#[cfg(test)]
pub(crate) mod tests;
