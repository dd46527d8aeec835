//! The fields of a frame that OpenFlow can match and set: THE table of their numbers and widths.

/// A field that is read from the bytes of a frame. Its number is that of `enum oxm_ofb_match_fields` (OpenFlow 1.3.5
/// section 7.2.3.7, and 41 of OpenFlow 1.4). What OpenFlow matches beside the frame has no place here: in_port (0),
/// in_phy_port (1), metadata (2), tunnel_id (38).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Field {
    /// Ethernet destination; behind a PBB header the backbone's.
    EthDst = 3,
    /// Ethernet source.
    EthSrc = 4,
    /// Ethertype behind all VLAN tags, in an 802.3 frame that of SNAP, or 0x05ff without one.
    EthType = 5,
    /// 0x1000 and the VLAN of the outermost tag; 0 without a tag.
    VlanVid = 6,
    /// Priority of the outermost tag.
    VlanPcp = 7,
    /// DiffServ code point of IPv4 or IPv6.
    IpDscp = 8,
    /// Congestion bits of IPv4 or IPv6.
    IpEcn = 9,
    /// Protocol of IPv4; of IPv6 what the chain of extension headers ends in.
    IpProto = 10,
    /// IPv4 source.
    Ipv4Src = 11,
    /// IPv4 destination.
    Ipv4Dst = 12,
    /// TCP source port.
    TcpSrc = 13,
    /// TCP destination port.
    TcpDst = 14,
    /// UDP source port.
    UdpSrc = 15,
    /// UDP destination port.
    UdpDst = 16,
    /// SCTP source port.
    SctpSrc = 17,
    /// SCTP destination port.
    SctpDst = 18,
    /// ICMP type.
    Icmpv4Type = 19,
    /// ICMP code.
    Icmpv4Code = 20,
    /// ARP operation.
    ArpOp = 21,
    /// IPv4 address of the ARP sender.
    ArpSpa = 22,
    /// IPv4 address of the ARP target.
    ArpTpa = 23,
    /// Hardware address of the ARP sender.
    ArpSha = 24,
    /// Hardware address of the ARP target.
    ArpTha = 25,
    /// IPv6 source.
    Ipv6Src = 26,
    /// IPv6 destination, as it stands in the fixed header.
    Ipv6Dst = 27,
    /// IPv6 flow label.
    Ipv6Flabel = 28,
    /// ICMPv6 type.
    Icmpv6Type = 29,
    /// ICMPv6 code.
    Icmpv6Code = 30,
    /// Target address of a neighbour solicitation or advertisement.
    Ipv6NdTarget = 31,
    /// Source link-layer address option of a neighbour solicitation.
    Ipv6NdSll = 32,
    /// Target link-layer address option of a neighbour advertisement.
    Ipv6NdTll = 33,
    /// Label of the outermost MPLS entry.
    MplsLabel = 34,
    /// Traffic class of the outermost MPLS entry.
    MplsTc = 35,
    /// Bottom-of-stack bit of the outermost MPLS entry.
    MplsBos = 36,
    /// Service instance of the PBB header.
    PbbIsid = 37,
    /// Which IPv6 extension headers there are: see [`extension`](crate::layers::extension). Read only.
    Ipv6Exthdr = 39,
    /// Use-customer-address bit of the PBB header (OpenFlow 1.4).
    PbbUca = 41,
}

impl Field {
    /// All fields with their widths in bits, by number.
    pub const ALL: [(Field, u8); 37] = [
        (Field::EthDst, 48),
        (Field::EthSrc, 48),
        (Field::EthType, 16),
        (Field::VlanVid, 13),
        (Field::VlanPcp, 3),
        (Field::IpDscp, 6),
        (Field::IpEcn, 2),
        (Field::IpProto, 8),
        (Field::Ipv4Src, 32),
        (Field::Ipv4Dst, 32),
        (Field::TcpSrc, 16),
        (Field::TcpDst, 16),
        (Field::UdpSrc, 16),
        (Field::UdpDst, 16),
        (Field::SctpSrc, 16),
        (Field::SctpDst, 16),
        (Field::Icmpv4Type, 8),
        (Field::Icmpv4Code, 8),
        (Field::ArpOp, 16),
        (Field::ArpSpa, 32),
        (Field::ArpTpa, 32),
        (Field::ArpSha, 48),
        (Field::ArpTha, 48),
        (Field::Ipv6Src, 128),
        (Field::Ipv6Dst, 128),
        (Field::Ipv6Flabel, 20),
        (Field::Icmpv6Type, 8),
        (Field::Icmpv6Code, 8),
        (Field::Ipv6NdTarget, 128),
        (Field::Ipv6NdSll, 48),
        (Field::Ipv6NdTll, 48),
        (Field::MplsLabel, 20),
        (Field::MplsTc, 3),
        (Field::MplsBos, 1),
        (Field::PbbIsid, 24),
        (Field::Ipv6Exthdr, 9),
        (Field::PbbUca, 1),
    ];

    /// Its number among the OXM fields.
    pub const fn oxm(self) -> u8 {
        self as u8
    }

    /// The field of that number; none for what is not in the frame.
    pub fn from_oxm(number: u8) -> Option<Field> {
        Self::ALL.iter().map(|(field, _)| *field).find(|field| field.oxm() == number)
    }

    /// Its width in bits, as a value of [`Headers::get`](super::Headers::get): 13 for the VLAN.
    pub fn bits(self) -> u8 {
        Self::ALL.iter().find(|(field, _)| *field == self).map_or(0, |(_, bits)| *bits)
    }
}
