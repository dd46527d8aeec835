//! Whose frames a test's are, and the ports that they go through.

use linux::port::MAX_BATCH;
use std::net::{IpAddr, SocketAddr};
use wire::frame::{self, Ethernet, Ipv4, Ipv6, Udp};
use wire::layers::Layers;
use wire::message::{Flags, Message};

/// The whole name of a port: its kind and settings as the test has them, with the interface between.
pub fn uri(port: &str, interface: &str) -> String {
    match port.split_once('?') {
        Some((kind, settings)) => format!("{kind}:{interface}?{settings}"),
        None => format!("{port}:{interface}"),
    }
}

/// Frames of one call, at most.
pub fn burst(batch: u32) -> usize {
    (batch.max(1) as usize).min(MAX_BATCH)
}

/// What a frame must be addressed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The receiver's address.
    pub address: IpAddr,
    /// Its UDP port.
    pub port: u16,
}

impl Flow {
    /// Who sent the frame, and its UDP payload; none for every frame that is not of this flow.
    #[inline]
    pub fn payload<'a>(&self, bytes: &'a [u8]) -> Option<(SocketAddr, &'a [u8])> {
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

/// The payload of a datagram with a message of that stream, whatever its addresses, ports and tags: what is on the way may have rewritten
/// them. Never a probe, which wants an answer from where it was sent to.
pub fn rewritten(bytes: &[u8], stream: u8) -> Option<&[u8]> {
    let layers =
        Layers::of(bytes).filter(|layers| layers.protocol == frame::UDP && !layers.is_later_fragment())?;
    let payload = Udp::parse(bytes.get(layers.transport..layers.end.min(bytes.len()))?).ok()?.payload();
    let message = Message::read(payload)?;
    (message.stream == stream && !message.flags.has(Flags::PROBE)).then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::build::{Ends, build_echo, build_udp};

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
        let message = Message { flags: Flags::DATA, stream: 7, sequence: 1, planned_ns: 0 };
        let (mut payload, mut probe) = ([0; 60], [0; 60]);
        message.write(&mut payload);
        Message { flags: Flags::PROBE, ..message }.write(&mut probe);
        for address in ["10.0.0.9", "fd00::9"] {
            let moved = build_udp(&ends(address, 99), &payload).unwrap();
            let tagged = [&moved[..12], &[0x81, 0, 0, 5], &moved[12..]].concat();
            assert_eq!(rewritten(&moved, 7), Some(&payload[..]), "a rule gave it another address and port");
            assert_eq!(rewritten(&tagged, 7), Some(&payload[..]), "a bridge gave it a tag");
            assert_eq!(rewritten(&moved, 8), None, "another test's");
            assert_eq!(rewritten(&build_udp(&ends(address, 99), &probe).unwrap(), 7), None, "a probe");
            assert_eq!(rewritten(&build_udp(&ends(address, 99), b"hello").unwrap(), 7), None, "a stranger's");
        }
        assert_eq!(uri("ring?frames=8", "eth0"), "ring:eth0?frames=8");
        assert_eq!(uri("xdp", "eth0"), "xdp:eth0");
    }

    proptest! {
        #[test]
        fn no_frame_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), v6: bool) {
            let to = if v6 { "fd00::2" } else { "10.0.0.2" };
            let flow = Flow { address: to.parse().unwrap(), port: 9 };
            let _ = (flow.payload(&bytes), rewritten(&bytes, 7));
            let mut ours = build_udp(&ends(to, 9), &[0; 18]).unwrap();
            for (at, byte) in bytes.iter().enumerate().take(ours.len()) {
                ours[at] ^= byte & (byte >> 3) & (byte << 2);
            }
            let _ = flow.payload(&ours);
        }
    }
}
