//! Checked views of Ethernet, IPv4, IPv6, UDP and TCP headers.
//!
//! A view is made by `parse`, which checks every length once; its accessors cannot fail. Trailing bytes after an IP
//! packet (Ethernet padding) are cut off by the IP length.

use crate::checksum::checksum;
use crate::{Malformed, at_least, be16};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Ethertype of IPv4.
pub const IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Ethertype of MPLS, unicast.
pub const MPLS: u16 = 0x8847;
/// Ethertype of MPLS with upstream-assigned labels, once "multicast" (RFC 5332).
pub const MPLS_MULTICAST: u16 = 0x8848;
/// Ethertype of the service instance tag of provider backbone bridges (802.1ah).
pub const PBB: u16 = 0x88e7;
/// Ethertype of ARP.
pub const ARP: u16 = 0x0806;
/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// A hardware address.
pub type Mac = [u8; 6];

/// An Ethernet frame without FCS.
#[derive(Debug, Clone, Copy)]
pub struct Ethernet<'a>(&'a [u8]);

impl<'a> Ethernet<'a> {
    /// Bytes of the header.
    pub const LENGTH: usize = 14;

    /// Checks that the header is there.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        at_least("Ethernet", bytes, Self::LENGTH).map(|()| Ethernet(bytes))
    }

    /// Where it goes.
    pub fn destination(&self) -> Mac {
        std::array::from_fn(|i| self.0[i])
    }

    /// Where it comes from.
    pub fn source(&self) -> Mac {
        std::array::from_fn(|i| self.0[6 + i])
    }

    /// What it carries.
    pub fn ethertype(&self) -> u16 {
        be16(self.0, 12)
    }

    /// Everything after the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[Self::LENGTH..]
    }
}

/// An IPv4 packet: header with options, and payload by its total length.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4<'a> {
    bytes: &'a [u8],
    header: usize,
}

impl<'a> Ipv4<'a> {
    /// Bytes of a header without options.
    pub const LENGTH: usize = 20;

    /// Checks version, header length and total length (RFC 791).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        at_least("IPv4", bytes, Self::LENGTH)?;
        let field = |field, value| Err(Malformed::Field { header: "IPv4", field, value });
        if bytes[0] >> 4 != 4 {
            return field("version", u32::from(bytes[0] >> 4));
        }
        let header = usize::from(bytes[0] & 15) * 4;
        let total = usize::from(be16(bytes, 2));
        if header < Self::LENGTH {
            return field("header length", header as u32);
        }
        if total < header {
            return field("total length", total as u32);
        }
        at_least("IPv4", bytes, total)?;
        Ok(Ipv4 { bytes: &bytes[..total], header })
    }

    /// Where it comes from.
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(std::array::from_fn(|i| self.bytes[12 + i]))
    }

    /// Where it goes.
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(std::array::from_fn(|i| self.bytes[16 + i]))
    }

    /// The protocol of the payload.
    pub fn protocol(&self) -> u8 {
        self.bytes[9]
    }

    /// Hops that are left.
    pub fn ttl(&self) -> u8 {
        self.bytes[8]
    }

    /// True for every fragment but a first one: its payload does not begin with a header.
    pub fn is_later_fragment(&self) -> bool {
        be16(self.bytes, 6) & 0x1fff != 0
    }

    /// True when the header's checksum is right.
    pub fn is_intact(&self) -> bool {
        checksum(&self.bytes[..self.header]) == 0
    }

    /// What it carries.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header..]
    }
}

/// An IPv6 packet without a look into extension headers.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6<'a>(&'a [u8]);

impl<'a> Ipv6<'a> {
    /// Bytes of the header.
    pub const LENGTH: usize = 40;

    /// Checks version and payload length (RFC 8200; jumbograms are not known here).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        at_least("IPv6", bytes, Self::LENGTH)?;
        if bytes[0] >> 4 != 6 {
            let value = u32::from(bytes[0] >> 4);
            return Err(Malformed::Field { header: "IPv6", field: "version", value });
        }
        let total = Self::LENGTH + usize::from(be16(bytes, 4));
        at_least("IPv6", bytes, total)?;
        Ok(Ipv6(&bytes[..total]))
    }

    /// Where it comes from.
    pub fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(std::array::from_fn(|i| self.0[8 + i]))
    }

    /// Where it goes.
    pub fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(std::array::from_fn(|i| self.0[24 + i]))
    }

    /// The header that follows.
    pub fn next_header(&self) -> u8 {
        self.0[6]
    }

    /// What it carries.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[Self::LENGTH..]
    }
}

/// A UDP datagram.
#[derive(Debug, Clone, Copy)]
pub struct Udp<'a>(&'a [u8]);

impl<'a> Udp<'a> {
    /// Bytes of the header.
    pub const LENGTH: usize = 8;

    /// Checks header and length (RFC 768).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        at_least("UDP", bytes, Self::LENGTH)?;
        let total = usize::from(be16(bytes, 4));
        if total < Self::LENGTH {
            return Err(Malformed::Field { header: "UDP", field: "length", value: total as u32 });
        }
        at_least("UDP", bytes, total)?;
        Ok(Udp(&bytes[..total]))
    }

    /// Port that it comes from.
    pub fn source(&self) -> u16 {
        be16(self.0, 0)
    }

    /// Port that it goes to.
    pub fn destination(&self) -> u16 {
        be16(self.0, 2)
    }

    /// The checksum as it stands; 0 means none (IPv4 only). With offload on it covers the pseudo header alone.
    pub fn checksum(&self) -> u16 {
        be16(self.0, 6)
    }

    /// What it carries.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[Self::LENGTH..]
    }
}

/// A TCP segment.
#[derive(Debug, Clone, Copy)]
pub struct Tcp<'a> {
    bytes: &'a [u8],
    header: usize,
}

impl<'a> Tcp<'a> {
    /// Bytes of a header without options.
    pub const LENGTH: usize = 20;

    /// Checks the data offset (RFC 9293 section 3.1).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        at_least("TCP", bytes, Self::LENGTH)?;
        let header = usize::from(bytes[12] >> 4) * 4;
        if header < Self::LENGTH {
            return Err(Malformed::Field { header: "TCP", field: "data offset", value: header as u32 });
        }
        at_least("TCP", bytes, header)?;
        Ok(Tcp { bytes, header })
    }

    /// Port that it comes from.
    pub fn source(&self) -> u16 {
        be16(self.bytes, 0)
    }

    /// Port that it goes to.
    pub fn destination(&self) -> u16 {
        be16(self.bytes, 2)
    }

    /// The flag byte: FIN 1, SYN 2, RST 4, PSH 8, ACK 16.
    pub fn flags(&self) -> u8 {
        self.bytes[13]
    }

    /// What it carries.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Ends, build_echo, build_udp};
    use crate::checksum::Sum;
    use crate::icmp::Echo;
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn ends(v6: bool, ports: (u16, u16)) -> Ends {
        let addresses: (IpAddr, IpAddr) = if v6 {
            ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())
        } else {
            ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())
        };
        Ends { macs: ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]), addresses, ports }
    }

    proptest! {
        #[test]
        fn a_built_datagram_reads_back(v6: bool, from: u16, to: u16,
                                       payload in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut frame = build_udp(&ends(v6, (from, to)), &payload).unwrap();
            frame.extend([0; 9]); // padding
            let ethernet = Ethernet::parse(&frame).unwrap();
            prop_assert_eq!(ethernet.source(), [2, 0, 0, 0, 0, 1]);
            prop_assert_eq!(ethernet.destination(), [2, 0, 0, 0, 0, 2]);
            let (inner, sum) = if v6 {
                let ip = Ipv6::parse(ethernet.payload()).unwrap();
                let length = ip.payload().len() as u32;
                (ip.payload(), Sum::new().add_pseudo_v6(ip.source(), ip.destination(), ip.next_header(), length))
            } else {
                let ip = Ipv4::parse(ethernet.payload()).unwrap();
                prop_assert!(ip.is_intact());
                let length = ip.payload().len() as u16;
                (ip.payload(), Sum::new().add_pseudo_v4(ip.source(), ip.destination(), ip.protocol(), length))
            };
            prop_assert_eq!(sum.add_bytes(inner).finish(), 0);
            let udp = Udp::parse(inner).unwrap();
            prop_assert_eq!((udp.source(), udp.destination(), udp.payload()), (from, to, &payload[..]));
        }

        #[test]
        fn a_built_echo_reads_back(v6: bool, id: u16, sequence: u16,
                                   data in prop::collection::vec(any::<u8>(), 0..100)) {
            let ends = ends(v6, (0, 0));
            let frame = build_echo(&ends, id, sequence, &data).unwrap();
            let payload = Ethernet::parse(&frame).unwrap().payload();
            let message = if v6 {
                let ip = Ipv6::parse(payload).unwrap();
                let sum = Sum::new().add_pseudo_v6(ip.source(), ip.destination(), ICMPV6, ip.payload().len() as u32);
                prop_assert_eq!(sum.add_bytes(ip.payload()).finish(), 0);
                ip.payload()
            } else {
                let message = Ipv4::parse(payload).unwrap().payload();
                prop_assert!(Echo::parse(message).unwrap().is_intact());
                message
            };
            let echo = Echo::parse(message).unwrap();
            prop_assert_eq!((echo.identifier(), echo.sequence(), echo.data()), (id, sequence, &data[..]));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), first in prop::option::of(0x40u8..0x70)) {
            let mut bytes = bytes;
            if let (Some(byte), Some(first)) = (bytes.first_mut(), first) {
                *byte = first;
            }
            if let Ok(e) = Ethernet::parse(&bytes) { let _ = (e.source(), e.ethertype(), e.payload()); }
            if let Ok(p) = Ipv4::parse(&bytes) {
                let _ = (p.source(), p.destination(), p.is_intact(), p.ttl(), p.payload(), p.is_later_fragment());
            }
            if let Ok(p) = Ipv6::parse(&bytes) { let _ = (p.source(), p.destination(), p.payload()); }
            if let Ok(u) = Udp::parse(&bytes) { let _ = (u.checksum(), u.payload()); }
            if let Ok(t) = Tcp::parse(&bytes) { let _ = (t.source(), t.flags(), t.payload()); }
        }
    }
}
