//! Builders of whole UDP and echo frames with right checksums.

use crate::frame::{ICMP, ICMPV6, IPV4, IPV6, Ipv4, Mac, UDP, Udp};
use crate::icmp;
use crate::repair::repair;
use std::net::IpAddr;

/// Both ends of a frame, for the builders.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// Hardware addresses: from, to.
    pub macs: (Mac, Mac),
    /// IP addresses: from, to; both of one family.
    pub addresses: (IpAddr, IpAddr),
    /// Ports: from, to.
    pub ports: (u16, u16),
}

/// A whole UDP frame with right checksums; none when the addresses mix families or the payload does not fit.
pub fn build_udp(ends: &Ends, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(Udp::LENGTH + payload.len()).ok()?;
    // A checksum of zero would mean that there is to be none (RFC 768).
    let header = [ends.ports.0, ends.ports.1, length, 1].map(u16::to_be_bytes);
    build_ip(ends, UDP, &[header.as_flattened(), payload].concat())
}

/// A whole echo request frame; none when the addresses mix families or the data does not fit.
pub fn build_echo(ends: &Ends, identifier: u16, sequence: u16, data: &[u8]) -> Option<Vec<u8>> {
    let mut message = [&[0; icmp::HEADER], data].concat();
    let (protocol, kind) = match ends.addresses.0 {
        IpAddr::V4(_) => (ICMP, icmp::V4_REQUEST),
        IpAddr::V6(_) => (ICMPV6, icmp::V6_REQUEST),
    };
    icmp::write_echo(&mut message, kind, identifier, sequence);
    build_ip(ends, protocol, &message)
}

fn build_ip(ends: &Ends, protocol: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let mut frame = [ends.macs.1, ends.macs.0].concat();
    match ends.addresses {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend(IPV4.to_be_bytes());
            let [a, b] = u16::try_from(Ipv4::LENGTH + payload.len()).ok()?.to_be_bytes();
            frame.extend([0x45, 0, a, b, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
            frame.extend([from.octets(), to.octets()].as_flattened());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend(IPV6.to_be_bytes());
            let [a, b] = u16::try_from(payload.len()).ok()?.to_be_bytes();
            frame.extend([0x60, 0, 0, 0, a, b, protocol, 64]);
            frame.extend([from.octets(), to.octets()].as_flattened());
        }
        _ => return None,
    }
    frame.extend(payload);
    repair(&mut frame);
    Some(frame)
}
