//! Raw frames, one direction: from a port of the sending node to a port of the receiving node.
//!
//! **What.** Each frame is a UDP datagram from the one node's address to the other's, with right checksums and the test's
//! message ([`wire::message`]) in its payload, so bridges and routers carry it as they carry any other. The sender
//! ([`Sender`]) hands it to a port instead of a socket; the receiver ([`Receiver`]) reads it from a port on the last
//! interface. Schedule, numbers, latency and reports are those of [`crate::kind::udp_stream`].
//!
//! **Why.** Sockets cost more than the path: a port offers and counts several times as many frames, and the station that
//! is measured is the interface, not the UDP layer of two hosts.
//!
//! **What the two hosts do besides.** Both ends hold their UDP port with an ordinary socket. The sender's probes leave by
//! it before the test, so its kernel resolves the next node's hardware address and the bridges learn; the receiver
//! answers them by its own. Otherwise the receiver's socket throws away everything: the kernel of the receiving node sees
//! a copy of every frame behind the port, and without a socket it would answer each with "port unreachable". These
//! copies are no part of the path; the ledger ends at the port.
//!
//! **Price.** Needs the right to open packet sockets. The hardware address is looked up once: a next node that changes it
//! during a test loses the rest.

mod receiver;
mod sender;
mod template;

pub use receiver::Receiver;
pub use sender::Sender;
pub use template::{Template, shortest};

use std::net::{IpAddr, SocketAddr};
use wire::frame::{self, Ethernet, Ipv4, Ipv6, Udp};

/// The whole name of a port: its kind and settings as the test has them, with the interface between.
fn uri(port: &str, interface: &str) -> String {
    match port.split_once('?') {
        Some((kind, settings)) => format!("{kind}:{interface}?{settings}"),
        None => format!("{port}:{interface}"),
    }
}

/// What a frame must be addressed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flow {
    address: IpAddr,
    port: u16,
}

impl Flow {
    /// Who sent the frame, and its UDP payload; none for every frame that is not of this flow.
    #[inline]
    fn payload<'a>(&self, bytes: &'a [u8]) -> Option<(SocketAddr, &'a [u8])> {
        let ethernet = Ethernet::parse(bytes).ok()?;
        let (from, to, protocol, inside): (IpAddr, IpAddr, u8, &[u8]) = match ethernet.ethertype() {
            frame::IPV4 => {
                let ip = Ipv4::parse(ethernet.payload()).ok()?;
                let whole = !ip.is_later_fragment();
                let protocol = if whole { ip.protocol() } else { 0 };
                (ip.source().into(), ip.destination().into(), protocol, ip.payload())
            }
            frame::IPV6 => {
                let ip = Ipv6::parse(ethernet.payload()).ok()?;
                (ip.source().into(), ip.destination().into(), ip.next_header(), ip.payload())
            }
            _ => return None,
        };
        if protocol != frame::UDP || to != self.address {
            return None;
        }
        let udp = Udp::parse(inside).ok()?;
        (udp.destination() == self.port).then(|| (SocketAddr::new(from, udp.source()), udp.payload()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::frame::{Ends, build_echo, build_udp};

    fn ends(to: &str, port: u16) -> Ends {
        let from = if to.contains(':') { "fd00::1" } else { "10.0.0.1" };
        let addresses = (from.parse().unwrap(), to.parse().unwrap());
        Ends { macs: ([2; 6], [4; 6]), addresses, ports: (7, port) }
    }

    #[test]
    fn only_frames_of_the_flow_have_a_payload() {
        for address in ["10.0.0.2", "fd00::2"] {
            let flow = Flow { address: address.parse().unwrap(), port: 9 };
            let frame = build_udp(&ends(address, 9), b"hello").unwrap();
            let (from, payload) = flow.payload(&frame).unwrap();
            assert_eq!((from.port(), payload), (7, &b"hello"[..]));
            assert_eq!(flow.payload(&build_udp(&ends(address, 8), b"hello").unwrap()), None, "another port");
            assert_eq!(flow.payload(&build_echo(&ends(address, 9), 1, 2, b"x").unwrap()), None, "an echo");
        }
        let flow = Flow { address: "10.0.0.3".parse().unwrap(), port: 9 };
        assert_eq!(flow.payload(&build_udp(&ends("10.0.0.2", 9), b"hello").unwrap()), None, "another host");
        assert_eq!(uri("ring?frames=8", "eth0"), "ring:eth0?frames=8");
        assert_eq!(uri("xdp", "eth0"), "xdp:eth0");
    }

    proptest! {
        #[test]
        fn no_frame_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), v6: bool) {
            let to = if v6 { "fd00::2" } else { "10.0.0.2" };
            let flow = Flow { address: to.parse().unwrap(), port: 9 };
            let _ = flow.payload(&bytes);
            let mut ours = build_udp(&ends(to, 9), &[0; 18]).unwrap();
            for (at, byte) in bytes.iter().enumerate().take(ours.len()) {
                ours[at] ^= byte & (byte >> 3) & (byte << 2);
            }
            let _ = flow.payload(&ours);
        }
    }
}
