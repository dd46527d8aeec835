//! The frames of a test as `send` makes them: laid out once, and for every further one only the message and the checksum.

use crate::send::program::CompiledTemplate;
use crate::send::template::{LONGEST, Layer, LayerKind, SHORTEST, Size, Template};
use std::net::IpAddr;
use wire::build::Ends;
use wire::frame::{Ethernet, Ipv4, Ipv6, Udp};
use wire::message;

/// Bytes of the headers of a frame over this version of IP.
pub fn headers(family: u8) -> usize {
    let ip = if family == 6 { Ipv6::LENGTH } else { Ipv4::LENGTH };
    Ethernet::LENGTH + ip + Udp::LENGTH
}

/// The shortest frame that carries a message of the test over this version of IP, without FCS.
pub fn shortest(family: u8) -> usize {
    (headers(family) + message::LENGTH).max(SHORTEST)
}

/// Frames of `length` bytes (without FCS) between these ends, with messages of this stream; none when they are too short or too
/// long for that, or the addresses mix families.
pub fn program(ends: &Ends, length: usize, stream: u8) -> Option<CompiledTemplate> {
    let (ip, from, to) = match ends.addresses {
        (IpAddr::V4(from), IpAddr::V4(to)) => (LayerKind::Ipv4, from.to_bits().into(), to.to_bits().into()),
        (IpAddr::V6(from), IpAddr::V6(to)) => (LayerKind::Ipv6, from.to_bits(), to.to_bits()),
        _ => return None,
    };
    let mac = |mac: [u8; 6]| mac.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte));
    let layer = |kind, fields: &[(&str, u128)]| {
        let mut layer = Layer::new(kind);
        fields.iter().for_each(|(name, number)| layer.set(name, *number));
        layer
    };
    let layers = vec![
        layer(LayerKind::Ethernet, &[("src", mac(ends.macs.0)), ("dst", mac(ends.macs.1))]),
        layer(ip, &[("src", from), ("dst", to)]),
        layer(LayerKind::Udp, &[("sport", ends.ports.0.into()), ("dport", ends.ports.1.into())]),
        layer(LayerKind::Stamp, &[("stream", stream.into())]),
    ];
    let template = Template { size: Some(Size::Fixed(length)), layers, ..Template::default() };
    (template.shortest()..=LONGEST).contains(&length).then(|| CompiledTemplate::new(&template))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::build::Moment;
    use proptest::prelude::*;
    use wire::build;
    use wire::message::{Flags, Message};

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

    #[test]
    fn the_shortest_frames_carry_a_message_and_no_byte_less_would() {
        assert_eq!((shortest(4), shortest(6)), (60, 80));
        for (v6, family) in [(false, 4), (true, 6)] {
            let ends = ends(v6, (7, 9), (1, 2));
            assert_eq!(program(&ends, shortest(family), 1).unwrap().mean as usize, shortest(family));
            assert!(program(&ends, shortest(family) - 1, 1).is_none());
            assert!(program(&ends, 70_000, 1).is_none());
        }
    }

    proptest! {
        /// The slow twin: the frame with its message, built from nothing.
        #[test]
        fn a_written_frame_is_a_built_one(v6: bool, ports: (u16, u16), hosts: (u8, u8), more in 0usize..1500,
                                          stream: u8, sequence in 0..=message::MAX_SEQUENCE, planned_ns: u64) {
            let ends = ends(v6, ports, hosts);
            let length = shortest(if v6 { 6 } else { 4 }) + more;
            let program = program(&ends, length, stream).unwrap();
            for sequence in [sequence / 2, sequence] {
                let message = Message { stream, flags: Flags::DATA, sequence, planned_ns };
                let mut payload = vec![0; length - if v6 { 62 } else { 42 }];
                message.write(&mut payload);
                let moment = Moment { planned_ns, utc_ns: 0 };
                prop_assert_eq!(&program.frame(sequence, moment), &build::build_udp(&ends, &payload).unwrap());
            }
        }
    }
}
