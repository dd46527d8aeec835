//! A frame of the test, made once; every further one only writes its message and its checksum.
//!
//! The checksum of UDP is a sum, so the part that never changes is added up once and the 18 bytes of the message for
//! every frame. The slow twin in the tests builds each frame anew.

use std::net::IpAddr;
use wire::checksum::Sum;
use wire::frame::{self, Ends, Ethernet, Ipv4, Ipv6, Udp};
use wire::message::{self, Message};

/// The smallest Ethernet frame without its FCS.
const SMALLEST: usize = 60;

/// The shortest frame that carries a message of the test over this version of IP, without FCS.
pub fn shortest(family: u8) -> usize {
    headers(family == 6).saturating_add(message::LENGTH).max(SMALLEST)
}

fn headers(v6: bool) -> usize {
    Ethernet::LENGTH + if v6 { Ipv6::LENGTH } else { Ipv4::LENGTH } + Udp::LENGTH
}

/// The frames of a test but for their messages.
#[derive(Debug, Clone)]
pub struct Template {
    bytes: Vec<u8>,
    payload: usize,
    /// Pseudo header, UDP header and all of the payload behind the message.
    constant: Sum,
}

impl Template {
    /// Frames of `length` bytes (without FCS) between these ends; none when they are too short or too long for that, or
    /// the addresses mix families.
    pub fn new(ends: &Ends, length: usize) -> Option<Template> {
        let payload = headers(ends.addresses.1.is_ipv6());
        let carried = length.checked_sub(payload).filter(|&carried| carried >= message::LENGTH)?;
        let bytes = frame::build_udp(ends, &vec![0; carried])?;
        let datagram = u16::try_from(Udp::LENGTH + carried).ok()?;
        let pseudo = match ends.addresses {
            (IpAddr::V4(from), IpAddr::V4(to)) => Sum::new().add_pseudo_v4(from, to, frame::UDP, datagram),
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Sum::new().add_pseudo_v6(from, to, frame::UDP, u32::from(datagram))
            }
            _ => return None,
        };
        let constant = pseudo.add_word(ends.ports.0).add_word(ends.ports.1).add_word(datagram);
        Some(Template { bytes, payload, constant })
    }

    /// The frame without a message.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes a message into a frame that began as [`Self::bytes`].
    ///
    /// # Panics
    /// When the frame is shorter than the template.
    #[inline]
    pub fn write(&self, frame: &mut [u8], message: &Message) {
        message.write(&mut frame[self.payload..]);
        let carried = &frame[self.payload..self.payload + message::LENGTH];
        // RFC 768: a checksum of zero is sent as all ones, because zero means that there is none.
        let sum = match self.constant.add_bytes(carried).finish() {
            0 => 0xffff,
            sum => sum,
        };
        frame[self.payload - 2..self.payload].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::message::Flags;

    fn ends(v6: bool, ports: (u16, u16), hosts: (u8, u8)) -> Ends {
        let address = |host: u8| -> IpAddr {
            if v6 {
                [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host].into()
            } else {
                [10, 0, 0, host].into()
            }
        };
        Ends { macs: ([2; 6], [4; 6]), addresses: (address(hosts.0), address(hosts.1)), ports }
    }

    fn carried(template: &Template) -> usize {
        template.bytes.len() - template.payload
    }

    #[test]
    fn the_shortest_frames_carry_a_message_and_no_byte_less_would() {
        assert_eq!((shortest(4), shortest(6)), (60, 80));
        for (v6, family) in [(false, 4), (true, 6)] {
            let ends = ends(v6, (7, 9), (1, 2));
            assert_eq!(carried(&Template::new(&ends, shortest(family)).unwrap()), 18);
            assert!(Template::new(&ends, shortest(family) - 1).is_none());
            assert!(Template::new(&ends, 70_000).is_none());
        }
    }

    proptest! {
        /// The slow twin: the frame with its message, built from nothing.
        #[test]
        fn a_written_frame_is_a_built_one(v6: bool, ports: (u16, u16), hosts: (u8, u8), more in 0usize..1500,
                                          stream: u8, sequence in 0..=message::MAX_SEQUENCE, planned_ns: u64) {
            let ends = ends(v6, ports, hosts);
            let template = Template::new(&ends, shortest(if v6 { 6 } else { 4 }) + more).unwrap();
            let mut frame = template.bytes().to_vec();
            for sequence in [sequence / 2, sequence] {
                let message = Message { stream, flags: Flags::DATA, sequence, planned_ns };
                template.write(&mut frame, &message);
                let mut payload = vec![0; carried(&template)];
                message.write(&mut payload);
                prop_assert_eq!(&frame, &frame::build_udp(&ends, &payload).unwrap());
            }
        }
    }
}
