//! Fields and their values as text.

use super::{Piece, Result};
use crate::field::{Field, Form, VLAN_PRESENT, Value};
use crate::matching::{Match, MatchField};
use crate::port::PortNo;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The short names of ovs-ofctl for an eth_type, and maybe an ip_proto.
const SHORTHANDS: &[(&str, u16, Option<u8>)] = &[
    ("tcp", 0x800, Some(6)),
    ("udp", 0x800, Some(17)),
    ("sctp", 0x800, Some(132)),
    ("icmp", 0x800, Some(1)),
    ("tcp6", 0x86dd, Some(6)),
    ("udp6", 0x86dd, Some(17)),
    ("sctp6", 0x86dd, Some(132)),
    ("icmp6", 0x86dd, Some(58)),
    ("ip", 0x800, None),
    ("ipv6", 0x86dd, None),
    ("arp", 0x806, None),
    ("mpls", 0x8847, None),
    ("mplsm", 0x8848, None),
    ("rarp", 0x8035, None),
    ("ip6", 0x86dd, None),
];

/// Fields that ovs-ofctl has and OpenFlow has not.
const FOREIGN: &[&str] = &[
    "nw_ttl",
    "nw_frag",
    "ip_frag",
    "tcp_flags",
    "metadata_mask",
    "pkt_mark",
    "ct_state",
    "ct_zone",
    "ct_mark",
    "reg0",
];

/// The type of ARP.
const ARP: u16 = 0x806;

/// The field that ovs-ofctl means by another one where the frames are of ARP.
fn of_arp(field: Field) -> Field {
    match field {
        Field::Ipv4Src => Field::ArpSpa,
        Field::Ipv4Dst => Field::ArpTpa,
        Field::IpProto => Field::ArpOp,
        other => other,
    }
}

/// Reads the number or the name of a port.
pub fn port(piece: Piece<'_>) -> Result<PortNo> {
    let named = PortNo::RESERVED.iter().find(|(_, name)| name.eq_ignore_ascii_case(piece.text));
    match named {
        Some((port, _)) => Ok(*port),
        None => Ok(PortNo(piece.int()?)),
    }
}

fn ethernet(piece: Piece<'_>) -> Result<Value> {
    let parts: Vec<&str> = piece.text.split(':').collect();
    let read =
        |part: &&str| (1..=2).contains(&part.len()).then(|| u8::from_str_radix(part, 16).ok()).flatten();
    let bytes: Option<Vec<u8>> = parts.iter().map(read).collect();
    match bytes {
        Some(bytes) if bytes.len() == 6 => {
            Ok(bytes.iter().fold(0, |value, byte| value << 8 | Value::from(*byte)))
        }
        _ => piece.error(format!("`{}` is not an Ethernet address like 02:00:00:00:00:01", piece.text)),
    }
}

fn ip<T: FromStr>(piece: Piece<'_>, family: &str) -> Result<T> {
    let wrong = |_| piece.error(format!("`{}` is not an {family} address", piece.text));
    piece.text.parse().or_else(wrong)
}

/// Reads the value of a field.
pub fn value(field: Field, piece: Piece<'_>) -> Result<Value> {
    match field.row().form {
        Form::Port => Ok(port(piece)?.0.into()),
        Form::Ethernet => ethernet(piece),
        Form::Ipv4 => Ok(u32::from(ip::<Ipv4Addr>(piece, "IPv4")?).into()),
        Form::Ipv6 => Ok(ip::<Ipv6Addr>(piece, "IPv6")?.into()),
        Form::Decimal | Form::Hex => piece.number(field.full_mask()),
    }
}

/// Reads the mask of a field: a value, or the length of a prefix.
fn mask(field: Field, piece: Piece<'_>) -> Result<Value> {
    let is_address = matches!(field.row().form, Form::Ipv4 | Form::Ipv6);
    if !is_address || piece.text.contains(['.', ':']) {
        return value(field, piece);
    }
    let length = piece.number(field.bits().into())? as u32;
    Ok(prefix(field, length))
}

/// The mask whose first bits, of this number, are ones.
fn prefix(field: Field, length: u32) -> Value {
    let below = u32::from(field.bits()) - length;
    field.full_mask() & u128::MAX.checked_shl(below).unwrap_or(0)
}

/// Writes the value of a field.
pub fn show(field: Field, value: Value) -> String {
    let ethernet = || {
        let bytes = value.to_be_bytes();
        bytes[10..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
    };
    match field.row().form {
        Form::Port => PortNo(value as u32).to_string(),
        Form::Ethernet => ethernet(),
        Form::Ipv4 => Ipv4Addr::from(value as u32).to_string(),
        Form::Ipv6 => Ipv6Addr::from(value).to_string(),
        Form::Decimal => value.to_string(),
        Form::Hex if field == Field::EthType => format!("{value:#06x}"),
        Form::Hex => format!("{value:#x}"),
    }
}

fn show_mask(field: Field, mask: Value) -> String {
    let length = (0..=u32::from(field.bits())).find(|length| prefix(field, *length) == mask);
    match (field.row().form, length) {
        (Form::Ipv4 | Form::Ipv6, Some(length)) => length.to_string(),
        _ => show(field, mask),
    }
}

/// Writes a match; the empty one is the empty text.
pub fn show_match(matching: &Match) -> String {
    let mut parts = vec![];
    let mut fields = matching.fields();
    while let [first, rest @ ..] = fields {
        let (text, used) = show_first(first, rest.first());
        parts.push(text);
        fields = &fields[used..];
    }
    parts.join(",")
}

/// Writes the first field, or the first two by their shorthand; says how many.
fn show_first(first: &MatchField, second: Option<&MatchField>) -> (String, usize) {
    let plain =
        |entry: &MatchField, field| (entry.field == field && entry.mask.is_none()).then_some(entry.value);
    let proto = second.and_then(|entry| plain(entry, Field::IpProto));
    if let Some(eth_type) = plain(first, Field::EthType) {
        let short = |wanted: Option<Value>| {
            let is_it =
                |s: &&(&str, u16, Option<u8>)| Value::from(s.1) == eth_type && s.2.map(Value::from) == wanted;
            SHORTHANDS.iter().find(is_it).map(|(name, _, _)| name.to_string())
        };
        if let Some(name) = proto.and_then(|proto| short(Some(proto))) {
            return (name, 2);
        }
        if let Some(name) = short(None) {
            return (name, 1);
        }
    }
    let present = Value::from(VLAN_PRESENT);
    let text = match (first.field, first.value, first.mask) {
        // ovs-ofctl's dl_vlan: the number alone, or 0xffff for none.
        (Field::VlanVid, 0, None) => "dl_vlan=0xffff".to_owned(),
        (Field::VlanVid, vid, None) if vid & present != 0 => format!("dl_vlan={}", vid & 0xfff),
        (field, value, None) => format!("{}={}", field.row().ovs, show(field, value)),
        // Bits are read in hexadecimal digits: ovs-ofctl, too, writes tp_dst=0x50/0xfff0.
        (field, value, Some(mask)) if field.row().form == Form::Decimal => {
            format!("{}={value:#x}/{mask:#x}", field.row().ovs)
        }
        (field, value, Some(mask)) => {
            format!("{}={}/{}", field.row().ovs, show(field, value), show_mask(field, mask))
        }
    };
    (text, 1)
}

/// Fields as they are read, one item after the other.
#[derive(Default)]
pub struct MatchReader<'a> {
    fields: Vec<(MatchField, Piece<'a>)>,
    /// `tp_src`, `icmp_type` and the like: which field they mean depends on the protocol, which may stand later.
    later: Vec<(&'static [Field], Piece<'a>, usize)>,
}

impl<'a> MatchReader<'a> {
    /// Takes an item when it is one of a match; `false` when it is not.
    pub fn take(&mut self, item: Piece<'a>) -> Result<bool> {
        if let Some((_, eth_type, proto)) = SHORTHANDS.iter().find(|(name, _, _)| *name == item.text) {
            self.fields.push((MatchField::exact(Field::EthType, *eth_type), item));
            let proto = proto.map(|proto| (MatchField::exact(Field::IpProto, proto), item));
            self.fields.extend(proto);
            return Ok(true);
        }
        let (name, Some(text)) = item.split(&['=']) else { return Ok(false) };
        if FOREIGN.contains(&name.text) {
            return name.error(format!("OpenFlow 1.3 and 1.4 have no field {}", name.text));
        }
        let text = text.trimmed();
        let entry = match name.text {
            "vlan_tci" => {
                let fields = vlan_tci(text)?;
                self.fields.extend(fields.map(|entry| (entry, item)));
                return Ok(true);
            }
            "dl_vlan" => dl_vlan(text)?,
            "nw_tos" => MatchField::exact(Field::IpDscp, dscp_of_tos(text)?),
            "icmp_type" => return self.wait(&[Field::Icmpv4Type, Field::Icmpv6Type], text),
            "icmp_code" => return self.wait(&[Field::Icmpv4Code, Field::Icmpv6Code], text),
            "tp_src" => return self.wait(&[Field::TcpSrc, Field::UdpSrc, Field::SctpSrc], text),
            "tp_dst" => return self.wait(&[Field::TcpDst, Field::UdpDst, Field::SctpDst], text),
            other => match Field::from_name(other) {
                Some(field) => one_field(field, text)?,
                None => return Ok(false),
            },
        };
        self.fields.push((entry, item));
        Ok(true)
    }

    fn wait(&mut self, fields: &'static [Field], text: Piece<'a>) -> Result<bool> {
        self.later.push((fields, text, self.fields.len() + self.later.len()));
        Ok(true)
    }

    /// The match of all items: in their order if the prerequisites allow it, else in the order of the table.
    pub fn finish(mut self) -> Result<Match> {
        let arp = MatchField::exact(Field::EthType, ARP);
        if self.fields.iter().any(|(entry, _)| *entry == arp) {
            self.fields.iter_mut().for_each(|(entry, _)| entry.field = of_arp(entry.field));
        }
        for (fields, text, place) in std::mem::take(&mut self.later) {
            let proto =
                self.fields.iter().find(|(entry, _)| entry.field == Field::IpProto).map(|(e, _)| e.value);
            let needs = |field: &&Field| match field.row().prerequisite {
                crate::field::Prerequisite::IpProto(needed, _) => Some(Value::from(needed)) == proto,
                _ => false,
            };
            let Some(field) = fields.iter().find(needs) else {
                return text.error(format!(
                    "{} needs a protocol that has it, such as tcp or icmp",
                    fields[0].row().ovs
                ));
            };
            let entry = (one_field(*field, text)?, text);
            self.fields.insert(place.min(self.fields.len()), entry);
        }
        let made = Match::new(self.fields.iter().map(|(entry, _)| *entry));
        match made {
            Ok(made) => return Ok(made),
            Err(crate::error::BadMatch::BadPrereq) => self.fields.sort_by_key(|(entry, _)| entry.field),
            Err(_) => {}
        }
        let mut made = Match::default();
        for (entry, piece) in self.fields {
            if let Err(error) = made.push(entry) {
                return piece.error(format!("{}: {error}", entry.field));
            }
        }
        Ok(made)
    }
}

/// The 16 bits of a tag, as ovs-ofctl prints matches that it has no better word for: the bit 0x1000 says that there is
/// a tag, 0 that there is none.
fn vlan_tci(text: Piece<'_>) -> Result<impl Iterator<Item = MatchField>> {
    let (value, mask) = text.split(&['/']);
    let (value, mask): (u16, u16) = (value.int()?, mask.map_or(Ok(u16::MAX), Piece::int)?);
    let value = value & mask;
    let vid = match (value & 0x1fff, mask & 0x1fff) {
        (0, bits) if bits & VLAN_PRESENT != 0 => Some(MatchField::exact(Field::VlanVid, 0u8)),
        (vid, 0x1fff) => Some(MatchField::exact(Field::VlanVid, vid)),
        (_, 0) => None,
        (vid, bits) => Some(MatchField::masked(Field::VlanVid, vid, bits)),
    };
    let pcp = match (value >> 13, mask >> 13) {
        (0, _) if value & VLAN_PRESENT == 0 => None,
        (_, 0) => None,
        (pcp, 7) => Some(MatchField::exact(Field::VlanPcp, pcp)),
        _ => return text.error("OpenFlow matches the priority of a VLAN wholly or not at all"),
    };
    Ok(vid.into_iter().chain(pcp))
}

/// The DSCP of a whole byte of service.
pub(super) fn dscp_of_tos(text: Piece<'_>) -> Result<Value> {
    match text.number(255)? {
        tos if tos & 3 == 0 => Ok(tos >> 2),
        _ => text.error("the two lowest bits of nw_tos are 0: they are nw_ecn"),
    }
}

fn dl_vlan(text: Piece<'_>) -> Result<MatchField> {
    let vid = text.number(0xffff)? as u16;
    match vid {
        0xffff => Ok(MatchField::exact(Field::VlanVid, 0u8)),
        0..0x1000 => Ok(MatchField::exact(Field::VlanVid, VLAN_PRESENT | vid)),
        _ => text.error("a VLAN is 0 to 4095, or 0xffff for none"),
    }
}

fn one_field(field: Field, text: Piece<'_>) -> Result<MatchField> {
    let (value_text, mask_text) = text.split(&['/']);
    let wanted = value(field, value_text)?;
    let Some(mask_text) = mask_text else { return Ok(MatchField::exact(field, wanted)) };
    let mask = mask(field, mask_text)?;
    if !field.row().maskable {
        return mask_text.error(format!("{} takes no mask", field.row().ovs));
    }
    // ovs-ofctl, too, takes 10.0.0.1/8 and forgets what the mask leaves out.
    Ok(MatchField::masked(field, wanted & mask, mask))
}
