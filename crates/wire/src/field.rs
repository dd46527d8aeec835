//! The fields of OpenFlow: THE table.
//!
//! **What.** One row per field of OpenFlow 1.3.5 section 7.2.3.7 (and 1.4 section 7.2.3.7): names, OXM number, width, whether
//! it takes a mask, what must stand before it, whether set-field may write it. Headers, edits, codec, text, checks, documents
//! and tests read this table.
//!
//! **Why.** A field that is known in one place only cannot disagree with itself.
//!
//! **Price.** A value is a `u128` whatever the width: 16 bytes for a bit. Four fields are in no frame: in_port, in_phy_port,
//! metadata and tunnel_id, which only a switch knows. "§" in this module is a section of OpenFlow Switch Specification 1.3.5.

use crate::frame;
use std::fmt;

/// The value of a field, in host order, right-aligned: an IPv6 address needs all of it, a VLAN priority three bits.
pub type Value = u128;

/// What must stand in a match before a field (§7.2.3.8, table 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prerequisite {
    /// Nothing.
    None,
    /// An in_port.
    InPort,
    /// A vlan_vid that says that there is a tag.
    VlanPresent,
    /// An eth_type of these.
    EthType(&'static [u16]),
    /// An ip_proto, which itself needs an eth_type of these.
    IpProto(u8, &'static [u16]),
    /// An icmpv6_type of these.
    Icmpv6Type(&'static [u16]),
}

impl Prerequisite {
    /// Whether all that it asks for is there, by `one_of`: whether a field has one of these values.
    pub fn holds(self, one_of: impl Fn(Field, &[u16]) -> bool) -> bool {
        match self {
            Prerequisite::None => true,
            Prerequisite::InPort => one_of(Field::InPort, &[]),
            Prerequisite::VlanPresent => one_of(Field::VlanVid, &[VLAN_PRESENT]),
            Prerequisite::EthType(types) => one_of(Field::EthType, types),
            Prerequisite::IpProto(proto, types) => {
                one_of(Field::IpProto, &[proto.into()]) && one_of(Field::EthType, types)
            }
            Prerequisite::Icmpv6Type(types) => one_of(Field::Icmpv6Type, types),
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The field.
    pub field: Field,
    /// The standard's name in lower case, e.g. `ipv4_src`; ovs-ofctl takes it, too.
    pub name: &'static str,
    /// ovs-ofctl's own name, which it prints, e.g. `nw_src`.
    pub ovs: &'static str,
    /// The number of the field in OXM class `OPENFLOW_BASIC`.
    pub oxm: u8,
    /// Bits of the value.
    pub bits: u8,
    /// Whether a match may give a mask.
    pub maskable: bool,
    /// Whether set-field may write it (§7.2.5).
    pub settable: bool,
    /// What must stand before it.
    pub prerequisite: Prerequisite,
    /// How its value is written.
    pub form: Form,
}

/// How a value is written in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A decimal number.
    Decimal,
    /// A hexadecimal number.
    Hex,
    /// The number or the name of a port.
    Port,
    /// An Ethernet address.
    Ethernet,
    /// An IPv4 address; the mask as a length where it is one.
    Ipv4,
    /// An IPv6 address; the mask as a length where it is one.
    Ipv6,
}

/// OXM class `OFPXMC_OPENFLOW_BASIC`: all fields of the table are of it.
pub const OXM_CLASS: u16 = 0x8000;
/// The bit of [`Field::VlanVid`] that says that there is a tag (`OFPVID_PRESENT`).
pub const VLAN_PRESENT: u16 = 0x1000;

const IPV4: Prerequisite = Prerequisite::EthType(&[frame::IPV4]);
const IPV6: Prerequisite = Prerequisite::EthType(&[frame::IPV6]);
const IP_TYPES: &[u16] = &[frame::IPV4, frame::IPV6];
const IP: Prerequisite = Prerequisite::EthType(IP_TYPES);
const ARP: Prerequisite = Prerequisite::EthType(&[frame::ARP]);
const MPLS: Prerequisite = Prerequisite::EthType(&[frame::MPLS, frame::MPLS_MULTICAST]);
const PBB: Prerequisite = Prerequisite::EthType(&[frame::PBB]);
const TCP: Prerequisite = Prerequisite::IpProto(6, IP_TYPES);
const UDP: Prerequisite = Prerequisite::IpProto(17, IP_TYPES);
const SCTP: Prerequisite = Prerequisite::IpProto(132, IP_TYPES);
const ICMPV4: Prerequisite = Prerequisite::IpProto(1, &[frame::IPV4]);
const ICMPV6: Prerequisite = Prerequisite::IpProto(58, &[frame::IPV6]);
const ND: Prerequisite = Prerequisite::Icmpv6Type(&[135, 136]);
const ND_SOLICIT: Prerequisite = Prerequisite::Icmpv6Type(&[135]);
const ND_ADVERT: Prerequisite = Prerequisite::Icmpv6Type(&[136]);
const NONE: Prerequisite = Prerequisite::None;
const VLAN: Prerequisite = Prerequisite::VlanPresent;

/// Declares the enum and the table together, one line a field. Transport ports take masks, though table 12 of §7.2.3.7 says no:
/// Open vSwitch has them, and controllers write ranges of ports with them.
macro_rules! fields {
    ($($field:ident $name:literal $ovs:literal $oxm:literal $bits:literal $mask:ident $set:ident $pre:expr, $form:ident, $doc:literal;)+) => {
        /// A field of a frame, or of what the switch knows about it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Field {
            $(#[doc = $doc] $field = $oxm,)+
        }

        /// All fields in the order of their OXM numbers.
        pub const TABLE: &[Row] = &[$(Row {
            field: Field::$field, name: $name, ovs: $ovs, oxm: $oxm, bits: $bits, maskable: yes_no!($mask),
            settable: yes_no!($set), prerequisite: $pre, form: Form::$form,
        },)+];
    };
}

macro_rules! yes_no {
    (mask) => {
        true
    };
    (exact) => {
        false
    };
    (set) => {
        true
    };
    (fixed) => {
        false
    };
}

#[rustfmt::skip]
fields! {
    InPort     "in_port"      "in_port"      0  32  exact fixed NONE,       Port,     "The port by which the frame came in.";
    InPhyPort  "in_phy_port"  "in_phy_port"  1  32  exact fixed Prerequisite::InPort, Port, "The physical port under a logical one.";
    Metadata   "metadata"     "metadata"     2  64  mask  fixed NONE,       Hex,      "What tables hand on to later tables.";
    EthDst     "eth_dst"      "dl_dst"       3  48  mask  set   NONE,       Ethernet, "Ethernet destination; behind a PBB header the backbone's.";
    EthSrc     "eth_src"      "dl_src"       4  48  mask  set   NONE,       Ethernet, "Ethernet source.";
    EthType    "eth_type"     "dl_type"      5  16  exact set   NONE,       Hex,      "Ethertype behind all VLAN tags, in an 802.3 frame that of SNAP, or 0x05ff without one.";
    VlanVid    "vlan_vid"     "vlan_vid"     6  13  mask  set   NONE,       Hex,      "Number of the outermost VLAN, and 0x1000; 0 without a tag.";
    VlanPcp    "vlan_pcp"     "vlan_pcp"     7  3   exact set   VLAN,       Decimal,  "Priority of the outermost VLAN tag.";
    IpDscp     "ip_dscp"      "ip_dscp"      8  6   exact set   IP,         Decimal,  "Differentiated services code point.";
    IpEcn      "ip_ecn"       "nw_ecn"       9  2   exact set   IP,         Decimal,  "Explicit congestion notification.";
    IpProto    "ip_proto"     "nw_proto"     10 8   exact set   IP,         Decimal,  "Protocol of IPv4; of IPv6 what the chain of extension headers ends in.";
    Ipv4Src    "ipv4_src"     "nw_src"       11 32  mask  set   IPV4,       Ipv4,     "IPv4 source.";
    Ipv4Dst    "ipv4_dst"     "nw_dst"       12 32  mask  set   IPV4,       Ipv4,     "IPv4 destination.";
    TcpSrc     "tcp_src"      "tcp_src"      13 16  mask  set   TCP,        Decimal,  "TCP source port.";
    TcpDst     "tcp_dst"      "tcp_dst"      14 16  mask  set   TCP,        Decimal,  "TCP destination port.";
    UdpSrc     "udp_src"      "udp_src"      15 16  mask  set   UDP,        Decimal,  "UDP source port.";
    UdpDst     "udp_dst"      "udp_dst"      16 16  mask  set   UDP,        Decimal,  "UDP destination port.";
    SctpSrc    "sctp_src"     "sctp_src"     17 16  mask  set   SCTP,       Decimal,  "SCTP source port.";
    SctpDst    "sctp_dst"     "sctp_dst"     18 16  mask  set   SCTP,       Decimal,  "SCTP destination port.";
    Icmpv4Type "icmpv4_type"  "icmp_type"    19 8   exact set   ICMPV4,     Decimal,  "ICMP type.";
    Icmpv4Code "icmpv4_code"  "icmp_code"    20 8   exact set   ICMPV4,     Decimal,  "ICMP code.";
    ArpOp      "arp_op"       "arp_op"       21 16  exact set   ARP,        Decimal,  "ARP operation.";
    ArpSpa     "arp_spa"      "arp_spa"      22 32  mask  set   ARP,        Ipv4,     "ARP sender, IPv4.";
    ArpTpa     "arp_tpa"      "arp_tpa"      23 32  mask  set   ARP,        Ipv4,     "ARP target, IPv4.";
    ArpSha     "arp_sha"      "arp_sha"      24 48  mask  set   ARP,        Ethernet, "ARP sender, Ethernet.";
    ArpTha     "arp_tha"      "arp_tha"      25 48  mask  set   ARP,        Ethernet, "ARP target, Ethernet.";
    Ipv6Src    "ipv6_src"     "ipv6_src"     26 128 mask  set   IPV6,       Ipv6,     "IPv6 source.";
    Ipv6Dst    "ipv6_dst"     "ipv6_dst"     27 128 mask  set   IPV6,       Ipv6,     "IPv6 destination, as it stands in the fixed header.";
    Ipv6Flabel "ipv6_flabel"  "ipv6_label"   28 20  mask  set   IPV6,       Hex,      "IPv6 flow label.";
    Icmpv6Type "icmpv6_type"  "icmpv6_type"   29 8   exact set   ICMPV6,     Decimal,  "ICMPv6 type.";
    Icmpv6Code "icmpv6_code"  "icmpv6_code"   30 8   exact set   ICMPV6,     Decimal,  "ICMPv6 code.";
    NdTarget   "ipv6_nd_target" "nd_target"  31 128 exact set   ND,         Ipv6,     "Target of neighbour discovery.";
    NdSll      "ipv6_nd_sll"  "nd_sll"       32 48  exact set   ND_SOLICIT, Ethernet, "Source link-layer option of neighbour solicitation.";
    NdTll      "ipv6_nd_tll"  "nd_tll"       33 48  exact set   ND_ADVERT,  Ethernet, "Target link-layer option of neighbour advertisement.";
    MplsLabel  "mpls_label"   "mpls_label"   34 20  exact set   MPLS,       Decimal,  "Label of the outermost MPLS entry.";
    MplsTc     "mpls_tc"      "mpls_tc"      35 3   exact set   MPLS,       Decimal,  "Traffic class of the outermost MPLS entry.";
    MplsBos    "mpls_bos"     "mpls_bos"     36 1   exact set   MPLS,       Decimal,  "Whether the outermost MPLS entry is the last one.";
    PbbIsid    "pbb_isid"     "pbb_isid"     37 24  mask  set   PBB,        Hex,      "Service of the backbone (802.1ah).";
    TunnelId   "tunnel_id"    "tun_id"       38 64  mask  set   NONE,       Hex,      "What a logical port says about its tunnel.";
    Ipv6Exthdr "ipv6_exthdr"  "ipv6_exthdr"  39 9   mask  fixed IPV6,       Hex,      "Which IPv6 extension headers there are, and how: see [`extension`](crate::layers::extension). Read only.";
    PbbUca     "pbb_uca"      "pbb_uca"      41 1   exact set   PBB,        Decimal,  "Use-customer-address bit of the backbone (1.4).";
}

impl Field {
    /// Its row.
    pub fn row(self) -> &'static Row {
        let number = self as usize;
        // The numbers have no gap but 40, which 1.4 left out.
        &TABLE[if number > 40 { number - 1 } else { number }]
    }

    /// The field with this number in class `OPENFLOW_BASIC`.
    pub fn from_oxm(number: u8) -> Option<Field> {
        TABLE.iter().find(|row| row.oxm == number).map(|row| row.field)
    }

    /// The field with this name of the standard or of ovs-ofctl (whose `icmp_type` is ICMP's of IPv4 here).
    pub fn from_name(name: &str) -> Option<Field> {
        // ovs-ofctl has more than one name for some.
        let name = match name {
            "dl_vlan_pcp" => "vlan_pcp",
            "ip_src" => "ipv4_src",
            "ip_dst" => "ipv4_dst",
            other => other,
        };
        TABLE.iter().find(|row| row.name == name || row.ovs == name).map(|row| row.field)
    }

    /// Bits of its value.
    pub fn bits(self) -> u8 {
        self.row().bits
    }

    /// Bytes of its value as OXM carries it: enough for its bits, but labels of 20 bits are 32-bit integers (§7.2.3.7).
    pub fn bytes(self) -> usize {
        match self.bits() {
            20 => 4,
            bits => usize::from(bits).div_ceil(8),
        }
    }

    /// The mask that asks for every bit.
    pub fn full_mask(self) -> Value {
        u128::MAX >> (128 - u32::from(self.bits()))
    }

    /// Whether it stands in a frame, and is not known to the switch only.
    pub fn is_in_frame(self) -> bool {
        !matches!(self, Field::InPort | Field::InPhyPort | Field::Metadata | Field::TunnelId)
    }

    /// Whether it is of 1.4 and unknown to 1.3.
    pub fn is_new_in_1_4(self) -> bool {
        self == Field::PbbUca
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_finds_its_rows() {
        assert_eq!(TABLE.len(), 41);
        for pair in TABLE.windows(2) {
            assert!(pair[0].oxm < pair[1].oxm, "{} after {}", pair[1].name, pair[0].name);
        }
        for row in TABLE {
            assert_eq!(row.field.row(), row);
            assert_eq!(Field::from_oxm(row.oxm), Some(row.field));
            assert_eq!(Field::from_name(row.name), Some(row.field));
        }
        assert_eq!(Field::from_oxm(40), None);
        assert_eq!(TABLE.iter().filter(|row| row.field.is_in_frame()).count(), 37);
        assert_eq!(Field::Ipv6Src.full_mask(), u128::MAX);
        assert_eq!(Field::VlanVid.full_mask(), 0x1fff);
        assert_eq!((Field::Ipv6Flabel.bytes(), Field::MplsLabel.bytes(), Field::PbbIsid.bytes()), (4, 4, 3));
    }

    #[test]
    fn masks_are_allowed_where_the_standard_allows_them_and_on_ports() {
        let maskable: Vec<_> = TABLE.iter().filter(|row| row.maskable).map(|row| row.name).collect();
        let expected = "metadata eth_dst eth_src vlan_vid ipv4_src ipv4_dst tcp_src tcp_dst udp_src udp_dst sctp_src \
                        sctp_dst arp_spa arp_tpa arp_sha arp_tha ipv6_src ipv6_dst ipv6_flabel pbb_isid tunnel_id ipv6_exthdr";
        assert_eq!(maskable.join(" "), expected);
    }
}
