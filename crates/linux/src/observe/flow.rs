//! Which frames are a flow's: a test's by what it sends, somebody else's by protocol, addresses and ports.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use wire::layers::Layers;
use wire::message::MAGIC;

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
    /// What it is called in the words of a flow.
    pub fn name(self) -> &'static str {
        match self {
            FlowProtocol::Udp => "udp",
            FlowProtocol::Tcp => "tcp",
            FlowProtocol::Icmp => "icmp",
            FlowProtocol::Icmp6 => "icmp6",
        }
    }

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
    /// The ends of somebody else's flow; they alone then say which frames are its.
    pub ends: Option<FlowEnds>,
}

impl Flow {
    /// The protocol's number in an IP header of that version, if frames of the flow can have it.
    pub(super) fn number(&self, version: u8) -> Option<u8> {
        let family = self.ends.and_then(FlowEnds::version).unwrap_or(version);
        self.protocol.number(version).filter(|_| family == version)
    }

    /// Whether a frame that begins with an Ethernet header is of a test, by the rule of the witness: its message, or where that is not there its ports
    /// or the id of an echo. A later fragment has neither, and is not. A flow that is known by its ends has no such frame.
    pub fn takes(&self, frame: &[u8]) -> bool {
        let Some(layers) = Layers::of(frame).filter(|layers| !layers.is_later_fragment()) else {
            return false;
        };
        let (version, header) = (if layers.is_v6 { 6 } else { 4 }, &frame[layers.transport..]);
        let has = |at: usize| {
            let port = header.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
            port.is_some_and(|port| self.ports.contains(&port))
        };
        let (may_be, of_ports) = match self.protocol.echo_types(version) {
            Some((request, reply)) => {
                (header.first().is_some_and(|one| [request, reply].contains(one)), has(4))
            }
            None => (true, has(0) || has(2)),
        };
        let message = self.stream.zip(header.get(8..12));
        let is_message =
            |(stream, message): (u8, &[u8])| message[..2] == MAGIC.to_be_bytes() && message[2] == stream;
        let is_known = self.ends.is_none() && self.number(version) == Some(layers.protocol);
        is_known && may_be && message.map_or(of_ports, is_message)
    }
}

/// One end of a flow; what it does not say is any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowEnd {
    /// The address.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: Option<u16>,
}

/// The two ends of a flow: frames from the source to the destination go forward, those from the destination to the source
/// back. Of an echo the requests go forward.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowEnds {
    /// Where the flow begins.
    pub source: FlowEnd,
    /// Where it goes.
    pub destination: FlowEnd,
}

impl FlowEnds {
    /// The IP version of the addresses, if there is one.
    pub fn version(self) -> Option<u8> {
        let address = self.source.address.or(self.destination.address)?;
        Some(if address.is_ipv4() { 4 } else { 6 })
    }
}

const EXAMPLES: &str = "examples: 'tcp 10.0.0.1 > 10.0.1.2:5201', 'udp > :53', 'icmp6 [fd00::1] > *'";

/// `tcp 10.0.0.1:40000 > 10.0.1.2:5201`: a protocol and two ends, each an address, a port, both, or `*` for any; IPv6 in brackets.
impl FromStr for Flow {
    type Err = String;

    fn from_str(text: &str) -> Result<Flow, String> {
        let wrong = |what: &str| format!("'{text}' is no flow: {what} ({EXAMPLES})");
        let (protocol, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let protocol = match protocol {
            "udp" => FlowProtocol::Udp,
            "tcp" => FlowProtocol::Tcp,
            "icmp" => FlowProtocol::Icmp,
            "icmp6" => FlowProtocol::Icmp6,
            other => return Err(wrong(&format!("'{other}' is none of tcp, udp, icmp, icmp6"))),
        };
        let (source, destination) =
            rest.split_once('>').ok_or_else(|| wrong("it needs a '>' between its ends, in quotes"))?;
        let end = |words: &str| words.trim().parse::<FlowEnd>().map_err(|why| wrong(&why));
        let flow = Flow {
            protocol,
            ports: vec![],
            stream: None,
            ends: Some(FlowEnds { source: end(source)?, destination: end(destination)? }),
        };
        flow.fault().map_or(Ok(flow), |what| Err(wrong(what)))
    }
}

impl Flow {
    /// What is wrong with it as a whole.
    fn fault(&self) -> Option<&'static str> {
        let FlowEnds { source, destination } = self.ends.unwrap_or_default();
        let is_v4 = |end: FlowEnd| end.address.map(|address| address.is_ipv4());
        let both = is_v4(source).zip(is_v4(destination));
        let is_echo = matches!(self.protocol, FlowProtocol::Icmp | FlowProtocol::Icmp6);
        let has_port = source.port.or(destination.port).is_some();
        if both.is_some_and(|(one, other)| one != other) {
            Some("its addresses are of two families")
        } else if is_echo && has_port {
            Some("echoes have no ports")
        } else if [4, 6].into_iter().all(|version| self.number(version).is_none()) {
            Some("there is no such protocol over addresses of this family")
        } else if !is_echo && !has_port && is_v4(source).or(is_v4(destination)).is_none() {
            Some("it needs an address or a port")
        } else {
            None
        }
    }
}

impl FromStr for FlowEnd {
    type Err = String;

    fn from_str(text: &str) -> Result<FlowEnd, String> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Ok(FlowEnd { address: Some(address), port: None });
        }
        let (address, port) = match text.rsplit_once(':') {
            _ if text.ends_with(']') => (text, "*"),
            Some(split) => split,
            None => (text, "*"),
        };
        let bare = address.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(address);
        let address = match bare {
            "" | "*" => None,
            words => Some(words.parse().map_err(|_| format!("'{words}' is not an address"))?),
        };
        let port = match port {
            "" | "*" => None,
            words => match words.parse() {
                Ok(0) | Err(_) => return Err(format!("'{words}' is not a port from 1 to 65535")),
                Ok(port) => Some(port),
            },
        };
        Ok(FlowEnd { address, port })
    }
}

impl fmt::Display for FlowEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            None => f.write_str("*"),
            Some(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Some(address) => write!(f, "{address}"),
        }?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FlowEnds { source, destination } = self.ends.unwrap_or_default();
        write!(f, "{} {source} > {destination}", self.protocol.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        text.parse::<Flow>().map(|flow| flow.to_string())
    }

    #[test]
    fn a_flow_reads_as_it_is_written() {
        for same in [
            "tcp 10.0.0.1:40000 > 10.0.1.2:5201",
            "udp 10.0.0.1 > *:53",
            "icmp 10.0.0.1 > *",
            "icmp6 [fd00::1] > [fd00::2]",
            "tcp [fd00::1]:80 > *",
            "icmp * > *",
        ] {
            assert_eq!(read(same).as_deref(), Ok(same));
        }
        assert_eq!(read(" udp > :53 ").as_deref(), Ok("udp * > *:53"));
        assert_eq!(read("tcp 10.0.0.1:*>10.0.1.2").as_deref(), Ok("tcp 10.0.0.1 > 10.0.1.2"));
        assert_eq!(read("udp fd00::1 > [fd00::2]:*").as_deref(), Ok("udp [fd00::1] > [fd00::2]"));
    }

    /// An IPv4 frame from port 9 to port 53, as bytes by hand; what is in front of the type, the flags and offset of its fragment, its protocol and what it carries.
    fn frame(tag: &[u8], fragment: u16, protocol: u8, carried: &[u8]) -> Vec<u8> {
        let [high, low] = fragment.to_be_bytes();
        let length = 20 + carried.len() as u8;
        let header = [0x45, 0, 0, length, 0, 0, high, low, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [&[0; 12][..], tag, &[8, 0], &header, carried].concat()
    }

    #[test]
    fn a_frame_is_taken_by_its_ports_or_its_id() {
        let of = |protocol, port| Flow { protocol, ports: vec![port], stream: None, ends: None };
        let udp = [0, 9, 0, 53, 0, 8, 0, 0];
        let plain = frame(&[], 0, 17, &udp);
        for (flow, frame, taken) in [
            (of(FlowProtocol::Udp, 53), &plain, true),
            (of(FlowProtocol::Udp, 9), &plain, true),
            (of(FlowProtocol::Udp, 8), &plain, false),
            (of(FlowProtocol::Tcp, 53), &plain, false),
            (of(FlowProtocol::Udp, 53), &frame(&[0x81, 0, 0, 7], 0, 17, &udp), true),
            (of(FlowProtocol::Udp, 53), &frame(&[], 0x2000, 17, &udp), true),
            (of(FlowProtocol::Udp, 53), &frame(&[], 0x00b9, 17, &udp), false),
            (of(FlowProtocol::Icmp, 7), &frame(&[], 0, 1, &[8, 0, 0, 0, 0, 7, 0, 1]), true),
            (of(FlowProtocol::Icmp, 7), &frame(&[], 0, 1, &[0, 0, 0, 0, 0, 7, 0, 1]), true),
            (of(FlowProtocol::Icmp, 7), &frame(&[], 0, 1, &[3, 0, 0, 0, 0, 7, 0, 1]), false),
            (of(FlowProtocol::Icmp6, 7), &frame(&[], 0, 1, &[8, 0, 0, 0, 0, 7, 0, 1]), false),
        ] {
            assert_eq!(flow.takes(frame), taken, "{flow:?} {frame:x?}");
        }
        let of_stream = Flow { stream: Some(7), ..of(FlowProtocol::Udp, 53) };
        for (message, taken) in
            [(&[0x70, 0x4c, 7, 0][..], true), (&[0x70, 0x4c, 8, 0], false), (b"xxxx", false), (b"xxx", true)]
        {
            assert_eq!(of_stream.takes(&frame(&[], 0, 17, &[&udp, message].concat())), taken, "{message:x?}");
        }
        let rewritten = [&[0, 9, 0, 99, 0, 8, 0, 0][..], &[0x70, 0x4c, 7, 0]].concat();
        assert!(of_stream.takes(&frame(&[], 0, 17, &rewritten)), "a firewall gave it another port");
        let by_ends = Flow { ends: Some(FlowEnds::default()), ..of(FlowProtocol::Udp, 53) };
        assert!(!by_ends.takes(&plain));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_taken_or_not(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..100), cut in 0usize..50) {
            let flow = Flow { protocol: FlowProtocol::Udp, ports: vec![53], stream: Some(7), ends: None };
            flow.takes(&bytes);
            let whole = frame(&[], 0, 17, &[0, 9, 0, 53, 0, 8, 0, 0]);
            flow.takes(&whole[..cut.min(whole.len())]);
        }
    }

    #[test]
    fn what_is_no_flow_is_told_why() {
        for (text, why) in [
            ("", "none of tcp"),
            ("sctp 10.0.0.1 > *", "'sctp' is none of tcp"),
            ("tcp 10.0.0.1", "needs a '>'"),
            ("tcp > ", "an address or a port"),
            ("tcp 10.0.0.300 > *", "'10.0.0.300' is not an address"),
            ("tcp 10.0.0.1:99999 > *", "'99999' is not a port"),
            ("tcp 10.0.0.1:0 > *", "'0' is not a port"),
            ("udp 10.0.0.1 > fd00::1", "two families"),
            ("icmp fd00::1 > *", "no such protocol"),
            ("icmp 10.0.0.1:7 > *", "no ports"),
            ("tcp a b > *", "'a b' is not an address"),
        ] {
            let said = read(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
