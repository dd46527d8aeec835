//! THE table of layers and fields: name, place in the header, form of its values, and what it is when nobody says.
//!
//! The parser, the printer, both renderers and the document's test read this table; a new field is one line here.

use LayerKind::*;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What a field is when the template does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// This number.
    Number(u128),
    /// An address that is found from the interface, or this one where there is none.
    Address(u128),
    /// What names the layer above: ethertype or protocol number.
    Next,
    /// Bytes from the start of this header to the end of the data, less this many.
    Length(u16),
    /// Bytes of this header in words of four.
    HeaderWords,
    /// The checksum that belongs here.
    Checksum,
    /// 1 when no further label follows.
    Bottom,
    /// The number of the frame, the first of which is this one.
    Sequence(u8),
    /// The planned time of the frame, `CLOCK_MONOTONIC` in nanoseconds.
    PlannedNs,
    /// The planned time of the frame in UTC, whole seconds.
    Seconds,
    /// The planned time of the frame in UTC, microseconds within the second.
    Microseconds,
}

/// How values of a field are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Decimal, or hexadecimal with `0x`.
    Number,
    /// The same, printed in hexadecimal.
    Hex,
    /// `02:00:00:00:00:01`.
    Mac,
    /// `10.0.0.1`.
    Ipv4,
    /// `fd00::1`.
    Ipv6,
    /// A number or the name of a layer.
    Ethertype,
    /// A number or the name of a layer.
    Protocol,
    /// A number or one of these names.
    Names(&'static [(&'static str, u128)]),
    /// A number or some of these names, joined by `+`.
    Flags(&'static [(&'static str, u128)]),
}

impl Form {
    /// Reads one constant.
    pub fn read(self, text: &str) -> Option<u128> {
        match self {
            Form::Mac => read_mac(text),
            Form::Ipv4 => text.parse::<Ipv4Addr>().ok().map(|a| u128::from(a.to_bits())),
            Form::Ipv6 => text.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
            Form::Number | Form::Hex => read_number(text),
            Form::Ethertype => {
                read_number(text).or_else(|| LayerKind::named(text).map(|k| k.facts().ethertype.into()))
            }
            Form::Protocol => {
                read_number(text).or_else(|| LayerKind::named(text).map(|k| k.facts().protocol.into()))
            }
            Form::Names(names) => read_number(text).or_else(|| lookup(names, text)),
            Form::Flags(names) => read_number(text)
                .or_else(|| text.split('+').try_fold(0, |sum, name| Some(sum | lookup(names, name)?))),
        }
    }

    /// Writes one constant.
    pub fn write(self, value: u128) -> String {
        match self {
            Form::Mac => {
                let bytes = &value.to_be_bytes()[10..];
                bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
            }
            Form::Ipv4 => Ipv4Addr::from_bits(value as u32).to_string(),
            Form::Ipv6 => Ipv6Addr::from_bits(value).to_string(),
            Form::Hex | Form::Ethertype => format!("{value:#06x}"),
            Form::Number | Form::Protocol => value.to_string(),
            Form::Names(names) => {
                let name = names.iter().find(|(_, number)| *number == value);
                name.map_or_else(|| value.to_string(), |(name, _)| (*name).to_owned())
            }
            Form::Flags(names) => {
                let set: Vec<&str> =
                    names.iter().filter(|(_, bit)| value & bit != 0).map(|(n, _)| *n).collect();
                let known = names.iter().fold(0, |sum, (_, bit)| sum | bit);
                if set.is_empty() || value & !known != 0 { value.to_string() } else { set.join("+") }
            }
        }
    }

    /// What such a constant looks like, for messages.
    pub fn example(self) -> String {
        match self {
            Form::Number | Form::Hex => "a number such as 9 or 0x1f".into(),
            Form::Mac => "an address such as 02:00:00:00:00:01".into(),
            Form::Ipv4 => "an address such as 10.0.0.1".into(),
            Form::Ipv6 => "an address such as fd00::1".into(),
            Form::Ethertype => "a number such as 0x0800 or a layer such as ip".into(),
            Form::Protocol => "a number such as 17 or a layer such as udp".into(),
            Form::Names(names) => format!("a number or one of {}", list(names, ", ")),
            Form::Flags(names) => format!("a number or some of {} joined by '+'", list(names, ", ")),
        }
    }
}

fn list(names: &[(&str, u128)], between: &str) -> String {
    names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(between)
}

fn lookup(names: &[(&str, u128)], wanted: &str) -> Option<u128> {
    names.iter().find(|(name, _)| *name == wanted).map(|(_, number)| *number)
}

/// A number, decimal or hexadecimal with `0x`; no sign.
pub fn read_number(text: &str) -> Option<u128> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain { u128::from_str_radix(digits, radix).ok() } else { None }
}

fn read_mac(text: &str) -> Option<u128> {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |part: &str| u8::from_str_radix(part, 16).ok().filter(|_| part.len() <= 2 && digits(part));
    let bytes = text.split(':').map(byte).collect::<Option<Vec<u8>>>().filter(|bytes| bytes.len() == 6)?;
    Some(bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
}

/// One field of a header.
#[derive(Debug, PartialEq, Eq)]
pub struct HeaderField {
    /// Its name in templates.
    pub name: &'static str,
    /// Its first bit, counted from the first bit of the header.
    pub bit: usize,
    /// How many bits it has.
    pub bits: usize,
    /// How its values are written.
    pub form: Form,
    /// What it is when the template does not say.
    pub default: Default,
}

/// The kind of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// Ethernet.
    Ethernet,
    /// An 802.1Q tag.
    Vlan,
    /// An MPLS label.
    Mpls,
    /// ARP.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmpv6,
    /// Bytes.
    Payload,
    /// pathlab's test message.
    Stamp,
    /// The header of the kernel's packet generator.
    Pktgen,
}

/// Everything about a kind of layer.
#[derive(Debug)]
pub struct LayerFacts {
    /// Which kind.
    pub kind: LayerKind,
    /// Its name in templates, then other names for it.
    pub names: &'static [&'static str],
    /// Bytes of its header without options.
    pub bytes: usize,
    /// Its fields.
    pub fields: &'static [HeaderField],
    /// Its ethertype; for data the one for local experiments (IEEE 802, 88-B5).
    pub ethertype: u16,
    /// Its IP protocol number; for data the one for experiments (RFC 3692).
    pub protocol: u8,
    /// What it may stand on.
    below: &'static [LayerKind],
    /// The same in words.
    place: &'static str,
}

const fn layer(
    kind: LayerKind,
    names: &'static [&'static str],
    bytes: usize,
    fields: &'static [HeaderField],
    (ethertype, protocol): (u16, u8),
    (below, place): (&'static [LayerKind], &'static str),
) -> LayerFacts {
    LayerFacts { kind, names, bytes, fields, ethertype, protocol, below, place }
}

const fn field(name: &'static str, bit: usize, bits: usize, form: Form, default: Default) -> HeaderField {
    HeaderField { name, bit, bits, form, default }
}

const fn number(name: &'static str, bit: usize, bits: usize, default: u128) -> HeaderField {
    field(name, bit, bits, Form::Number, Default::Number(default))
}

const fn hex(name: &'static str, bit: usize, default: Default) -> HeaderField {
    field(name, bit, 16, Form::Hex, default)
}

/// Locally administered, so no vendor's; used where no interface has one.
const SOURCE_MAC: u128 = 0x0200_0000_0001;
/// Everybody on the link.
const BROADCAST: u128 = 0xffff_ffff_ffff;
/// 198.18.0.0/15 is for benchmarks (RFC 2544 appendix C, RFC 6890).
const IPV4_SOURCE: u128 = 0xc612_0001;
const IPV4_DESTINATION: u128 = 0xc613_0001;
/// 2001:2::/48 is for benchmarks (RFC 5180).
const IPV6_SOURCE: u128 = 0x2001_0002_0000_0000_0000_0000_0000_0001;
const IPV6_DESTINATION: u128 = 0x2001_0002_0000_0000_0000_0000_0000_0002;

const ETHERNET: &[HeaderField] = &[
    field("dst", 0, 48, Form::Mac, Default::Address(BROADCAST)),
    field("src", 48, 48, Form::Mac, Default::Address(SOURCE_MAC)),
    field("type", 96, 16, Form::Ethertype, Default::Next),
];
const VLAN: &[HeaderField] = &[
    number("pcp", 0, 3, 0),
    number("dei", 3, 1, 0),
    number("id", 4, 12, 1),
    field("type", 16, 16, Form::Ethertype, Default::Next),
];
const MPLS: &[HeaderField] = &[
    number("label", 0, 20, 16),
    number("tc", 20, 3, 0),
    field("bottom", 23, 1, Form::Number, Default::Bottom),
    number("ttl", 24, 8, 64),
];
const ARP: &[HeaderField] = &[
    number("hardware", 0, 16, 1),
    hex("protocol", 16, Default::Number(0x0800)),
    number("hardware-bytes", 32, 8, 6),
    number("protocol-bytes", 40, 8, 4),
    field("op", 48, 16, Form::Names(&[("request", 1), ("reply", 2)]), Default::Number(1)),
    field("sender-mac", 64, 48, Form::Mac, Default::Address(SOURCE_MAC)),
    field("sender", 112, 32, Form::Ipv4, Default::Address(IPV4_SOURCE)),
    field("target-mac", 144, 48, Form::Mac, Default::Number(0)),
    field("target", 192, 32, Form::Ipv4, Default::Address(IPV4_DESTINATION)),
];
const IPV4: &[HeaderField] = &[
    number("version", 0, 4, 4),
    field("header", 4, 4, Form::Number, Default::HeaderWords),
    number("tos", 8, 8, 0),
    number("dscp", 8, 6, 0),
    number("ecn", 14, 2, 0),
    field("length", 16, 16, Form::Number, Default::Length(0)),
    number("id", 32, 16, 0),
    field("flags", 48, 3, Form::Flags(&[("mf", 1), ("df", 2), ("evil", 4)]), Default::Number(2)),
    number("frag", 51, 13, 0),
    number("ttl", 64, 8, 64),
    field("proto", 72, 8, Form::Protocol, Default::Next),
    hex("checksum", 80, Default::Checksum),
    field("src", 96, 32, Form::Ipv4, Default::Address(IPV4_SOURCE)),
    field("dst", 128, 32, Form::Ipv4, Default::Address(IPV4_DESTINATION)),
];
const IPV6: &[HeaderField] = &[
    number("version", 0, 4, 6),
    number("class", 4, 8, 0),
    number("flow", 12, 20, 0),
    field("length", 32, 16, Form::Number, Default::Length(40)),
    field("next", 48, 8, Form::Protocol, Default::Next),
    number("hop", 56, 8, 64),
    field("src", 64, 128, Form::Ipv6, Default::Address(IPV6_SOURCE)),
    field("dst", 192, 128, Form::Ipv6, Default::Address(IPV6_DESTINATION)),
];
const UDP: &[HeaderField] = &[
    number("sport", 0, 16, 1024),
    number("dport", 16, 16, 9),
    field("length", 32, 16, Form::Number, Default::Length(0)),
    hex("checksum", 48, Default::Checksum),
];
/// RFC 9293 section 3.1, with the ECN bits of RFC 3168.
const TCP_FLAGS: &[(&str, u128)] =
    &[("fin", 1), ("syn", 2), ("rst", 4), ("psh", 8), ("ack", 16), ("urg", 32), ("ece", 64), ("cwr", 128)];
const TCP: &[HeaderField] = &[
    number("sport", 0, 16, 1024),
    number("dport", 16, 16, 9),
    number("seq", 32, 32, 0),
    number("ack", 64, 32, 0),
    field("offset", 96, 4, Form::Number, Default::HeaderWords),
    field("flags", 104, 8, Form::Flags(TCP_FLAGS), Default::Number(2)),
    number("window", 112, 16, 65535),
    hex("checksum", 128, Default::Checksum),
    number("urgent", 144, 16, 0),
];
const ICMP: &[HeaderField] = &[
    field("type", 0, 8, Form::Names(&[("reply", 0), ("request", 8)]), Default::Number(8)),
    number("code", 8, 8, 0),
    hex("checksum", 16, Default::Checksum),
    number("id", 32, 16, 0),
    number("seq", 48, 16, 0),
];
const ICMPV6: &[HeaderField] = &[
    field("type", 0, 8, Form::Names(&[("request", 128), ("reply", 129)]), Default::Number(128)),
    number("code", 8, 8, 0),
    hex("checksum", 16, Default::Checksum),
    number("id", 32, 16, 0),
    number("seq", 48, 16, 0),
];
/// `wire::message`.
const STAMP: &[HeaderField] = &[
    hex("magic", 0, Default::Number(wire::message::MAGIC as u128)),
    number("stream", 16, 8, 0),
    number("flags", 24, 8, 0),
    field("seq", 32, 48, Form::Number, Default::Sequence(0)),
    field("time", 80, 64, Form::Number, Default::PlannedNs),
];
/// `wire::pktgen`; the kernel numbers from 1.
const PKTGEN: &[HeaderField] = &[
    field("magic", 0, 32, Form::Hex, Default::Number(wire::pktgen::MAGIC as u128)),
    field("seq", 32, 32, Form::Number, Default::Sequence(1)),
    field("sec", 64, 32, Form::Number, Default::Seconds),
    field("usec", 96, 32, Form::Number, Default::Microseconds),
];

/// What the kinds of layers stand on.
const LINK: &[LayerKind] = &[Ethernet, Vlan];
const NETWORK: &[LayerKind] = &[Ethernet, Vlan, Mpls, Ipv4, Ipv6];
const IP: (&[LayerKind], &str) = (&[Ipv4, Ipv6], "behind ip or ipv6");
const HEADER: (&[LayerKind], &str) = (
    &[Ethernet, Vlan, Mpls, Arp, Ipv4, Ipv6, Udp, Tcp, Icmp, Icmpv6, Payload, Stamp, Pktgen],
    "behind a header",
);

/// Every kind of layer, in the order of [`LayerKind`].
pub const LAYERS: &[LayerFacts] = &[
    layer(Ethernet, &["eth", "ethernet"], 14, ETHERNET, DATA, (&[Udp, Mpls], "first (or over udp or mpls)")),
    layer(Vlan, &["vlan"], 4, VLAN, (0x8100, 253), (LINK, "behind eth or vlan")),
    layer(Mpls, &["mpls"], 4, MPLS, (0x8847, 137), (NETWORK, "behind eth, vlan, mpls or ip")),
    layer(Arp, &["arp"], 28, ARP, (0x0806, 253), (LINK, "behind eth or vlan")),
    layer(Ipv4, &["ip", "ipv4"], 20, IPV4, (0x0800, 4), (NETWORK, "behind eth, vlan, mpls, ip or ipv6")),
    layer(Ipv6, &["ipv6"], 40, IPV6, (0x86dd, 41), (NETWORK, "behind eth, vlan, mpls, ip or ipv6")),
    layer(Udp, &["udp"], 8, UDP, (0x88b5, 17), IP),
    layer(Tcp, &["tcp"], 20, TCP, (0x88b5, 6), IP),
    layer(Icmp, &["icmp"], 8, ICMP, (0x88b5, 1), (&[Ipv4], "behind ip")),
    layer(Icmpv6, &["icmpv6"], 8, ICMPV6, (0x88b5, 58), (&[Ipv6], "behind ipv6")),
    layer(Payload, &["payload"], 0, &[], DATA, HEADER),
    layer(Stamp, &["stamp"], wire::message::LENGTH, STAMP, DATA, HEADER),
    layer(Pktgen, &["pktgen"], wire::pktgen::LENGTH, PKTGEN, DATA, HEADER),
];
/// The numbers of what has none.
const DATA: (u16, u8) = (0x88b5, 253);

impl LayerKind {
    /// Everything about it.
    pub fn facts(self) -> &'static LayerFacts {
        &LAYERS[self as usize]
    }

    /// Its name in templates.
    pub fn name(self) -> &'static str {
        self.facts().names[0]
    }

    /// The kind with that name.
    pub fn named(name: &str) -> Option<LayerKind> {
        LAYERS.iter().find(|facts| facts.names.contains(&name)).map(|facts| facts.kind)
    }

    /// The field with that name.
    pub fn field(self, name: &str) -> Option<&'static HeaderField> {
        self.facts().fields.iter().find(|field| field.name == name)
    }

    /// True for layers that are only data: nothing but data may follow them.
    pub fn is_data(self) -> bool {
        matches!(self, LayerKind::Payload | LayerKind::Stamp | LayerKind::Pktgen)
    }

    /// True for layers that may have options behind their header.
    pub fn has_options(self) -> bool {
        matches!(self, LayerKind::Ipv4 | LayerKind::Tcp)
    }

    /// Refuses a layer below that this one cannot stand on, with the words for what it stands on.
    pub fn stands_on(self, below: Option<LayerKind>) -> Result<(), &'static str> {
        let facts = self.facts();
        let fits = below.map_or(self == Ethernet, |below| facts.below.contains(&below));
        if fits { Ok(()) } else { Err(facts.place) }
    }
}
