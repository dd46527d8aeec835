//! Which frames are a test's: its protocol and ports.

/// The test's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowProtocol {
    /// UDP over IPv4 or IPv6.
    Udp,
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// ICMP echo over IPv4.
    Icmp,
    /// ICMPv6 echo.
    Icmp6,
}

impl FlowProtocol {
    /// The protocol's number in an IP header of that version, if it exists there.
    pub(super) fn number(self, version: u8) -> Option<u8> {
        match (self, version) {
            (FlowProtocol::Udp, _) => Some(17),
            (FlowProtocol::Tcp, _) => Some(6),
            (FlowProtocol::Icmp, 4) => Some(1),
            (FlowProtocol::Icmp6, 6) => Some(58),
            _ => None,
        }
    }

    /// The types of echo request and reply, for protocols that have an id instead of ports.
    pub(super) fn echo_types(self, version: u8) -> Option<(u8, u8)> {
        match (self, version) {
            (FlowProtocol::Icmp, 4) => Some((8, 0)),
            (FlowProtocol::Icmp6, 6) => Some((128, 129)),
            _ => None,
        }
    }
}

/// The frames that belong to the test, in both directions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The protocol.
    pub protocol: FlowProtocol,
    /// Source or destination is any of these ports; for ICMP the id is any of these. The destination's is the receiver's.
    pub ports: Vec<u16>,
    /// The stream of its test messages, where it carries such.
    pub stream: Option<u8>,
}
