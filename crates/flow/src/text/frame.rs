//! Frames as text: layers, from the outside in.
//!
//! **What.** `eth dst=02:00:00:00:00:02 / vlan vid=5 / ip dst=10.0.0.9 ttl=3 / udp dport=53 / raw 0102` is a frame. Types,
//! protocols, lengths and checksums follow from what comes next unless a layer says them; `/ fill 60` at the end adds
//! zeros after all headers until the frame has that length. [`of_match`] makes a frame
//! from the fields of a match, as `ofproto/trace` does.
//!
//! **Why.** Cases and traces say what goes in and what comes out; bytes made here have nothing to do with those that the
//! edits make: every length and checksum is computed from scratch.
//!
//! **Price.** Only headers that OpenFlow 1.3 and 1.4 know. A layer that says `sum=` keeps that transport checksum.

use super::{Piece, Result, value};
use crate::field::{Field, VLAN_PRESENT, Value};
use crate::matching::Match;
use wire::checksum::write_ipv4;
use wire::repair::repair;

/// An ethertype for local experiments (IEEE 802), and a protocol for experiments (RFC 3692).
const LOCAL: u16 = 0x88b5;
const TRIAL: u8 = 253;
/// IPv6's protocol for "no next header".
const NO_NEXT: u8 = 59;

/// The layers: a name, the ethertype and the protocol by which the header before calls it, and its parts in their order,
/// each `KEY:KIND=USUAL`. The kind is a number of bits or that of an address; `_` are bits that are always the same. Without
/// a kind it is no part of the header as it is laid out.
const LAYERS: &[(&str, u16, u8, &str)] = &[
    ("eth", LOCAL, TRIAL, "dst:mac=02:00:00:00:00:02 src:mac=02:00:00:00:00:01 type:16=ethertype"),
    ("vlan", 0x8100, TRIAL, "tag pcp:3=0 dei:1=0 vid:12=1 type:16=ethertype"),
    ("pbb", 0x88e7, TRIAL, "pcp:3=0 _:1=0 uca:1=0 _:3=0 isid:24=0"),
    ("mpls", 0x8847, TRIAL, "tag label:20=16 tc:3=0 bos:1=last ttl:8=64"),
    (
        "arp",
        0x806,
        TRIAL,
        "_:48=0x000108000604 op:16=1 sha:mac=02:00:00:00:00:01 spa:ip4=10.0.0.1 tha:mac=00:00:00:00:00:00 \
         tpa:ip4=10.0.0.2",
    ),
    (
        "ip",
        0x800,
        TRIAL,
        "_:8=0x45 tos:8=0 _:16=0 id:16=1 _:2=0 mf:1=0 offset:13=0 ttl:8=64 proto:8=protocol _:16=0 \
         src:ip4=10.0.0.1 dst:ip4=10.0.0.2 options",
    ),
    (
        "ip6",
        0x86dd,
        TRIAL,
        "_:4=6 tc:8=0 label:20=0 _:16=0 next:8=header ttl:8=64 src:ip6=fd00::1 dst:ip6=fd00::2",
    ),
    // An option that pads six bytes (RFC 8200 §4.2).
    ("hop", LOCAL, 0, "next:8=header _:56=0x00010400000000"),
    ("dest", LOCAL, 60, "next:8=header _:56=0x00010400000000"),
    // Type 4, segment routing (RFC 8754), with one segment.
    ("routing", LOCAL, 43, "next:8=header _:16=0x0204 left:8=0 _:32=0 last:ip6=fd00::9"),
    ("frag", LOCAL, 44, "next:8=header _:8=0 offset:13=0 _:2=0 mf:1=0 _:32=1"),
    // Ten bytes fewer than the sixteen of a header with one word of authentication data: 4 words, less 2.
    ("auth", LOCAL, 51, "next:8=header _:8=2 _:112=0"),
    ("tcp", LOCAL, 6, "sport:16=1000 dport:16=2000 _:96=0x000000010000000050182000 sum:16=0 _:16=0"),
    // A sum of 0 would mean that none is wanted.
    ("udp", LOCAL, 17, "sport:16=1000 dport:16=2000 _:16=0 sum:16=1"),
    ("sctp", LOCAL, 132, "sport:16=1000 dport:16=2000 _:32=7 _:32=0"),
    ("icmp", LOCAL, 1, "type:8=8 code:8=0 _:48=0x10001"),
    ("icmp6", LOCAL, 58, "type:8=128 code:8=0 _:48=0x10001"),
    ("ns", LOCAL, 58, "_:64=0x8700000000000000 target:ip6=fd00::2 _:16=0x0101 sll:mac=02:00:00:00:00:01"),
    ("na", LOCAL, 58, "_:64=0x8800000000000000 target:ip6=fd00::2 _:16=0x0201 tll:mac=02:00:00:00:00:01"),
    ("raw", LOCAL, TRIAL, ""),
    ("pad", LOCAL, TRIAL, ""),
    ("fill", LOCAL, TRIAL, ""),
];

/// A part of a header, as [`LAYERS`] has it.
struct Part {
    key: &'static str,
    kind: &'static str,
    usual: &'static str,
}

/// The parts of a kind of layer.
fn parts(layout: &'static str) -> impl Iterator<Item = Part> {
    layout.split_whitespace().map(|text| {
        let (key, rest) = text.split_once(':').unwrap_or((text, ""));
        let (kind, usual) = rest.split_once('=').unwrap_or_default();
        Part { key, kind, usual }
    })
}

/// One layer: its name, and what it says.
struct Layer<'a> {
    name: Piece<'a>,
    /// By which ethertype and by which protocol the header before calls it.
    eth_type: u16,
    protocol: u8,
    layout: &'static str,
    said: Vec<(&'a str, Piece<'a>)>,
    body: Piece<'a>,
}

impl<'a> Layer<'a> {
    fn parse(text: Piece<'a>) -> Result<Layer<'a>> {
        let text = text.trimmed();
        let (name, body) = text.split(&[' ']);
        let body = body.unwrap_or(text.after(text.text.len())).trimmed();
        let Some(&(_, eth_type, protocol, layout)) = LAYERS.iter().find(|(known, ..)| *known == name.text)
        else {
            let known: Vec<&str> = LAYERS.iter().map(|(known, ..)| *known).collect();
            return name.error(format!("`{}` is not a layer; there are {}", name.text, known.join(", ")));
        };
        let keys: Vec<&str> = parts(layout).map(|part| part.key).filter(|key| *key != "_").collect();
        let mut said = vec![];
        for item in if keys.is_empty() { vec![] } else { body.items() } {
            match item.split(&['=']) {
                (key, Some(value)) if keys.contains(&key.text) => said.push((key.text, value)),
                _ => {
                    let keys = keys.join(", ");
                    return item.error(format!("{} says {keys}, not `{}`", name.text, item.text));
                }
            }
        }
        let mut layer = Layer { name, eth_type, protocol, layout, said, body };
        layer.eth_type = layer.get("tag").map_or(Ok(eth_type), Piece::int)?;
        Ok(layer)
    }

    fn get(&self, key: &str) -> Option<Piece<'a>> {
        self.said.iter().find(|(one, _)| *one == key).map(|(_, value)| *value)
    }

    /// The header, but for lengths and checksums.
    fn head(&self, next: Option<&Layer<'_>>) -> Result<Vec<u8>> {
        let mut bits: Vec<bool> = vec![];
        for part in parts(self.layout) {
            let (width, value) = self.value(&part, next)?;
            bits.extend((0..width).rev().map(|bit| value >> bit & 1 != 0));
        }
        let byte = |eight: &[bool]| eight.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        Ok(bits.chunks(8).map(byte).collect())
    }

    /// The bits of a part, and their value: what was said, or what is usual.
    fn value(&self, part: &Part, next: Option<&Layer<'_>>) -> Result<(u32, Value)> {
        let said = self.get(part.key);
        let piece = said.unwrap_or(Piece { text: part.usual, at: self.name.at });
        let of = |field: Field| Ok((field.bits().into(), value::value(field, piece)?));
        let width = match part.kind {
            "mac" => return of(Field::EthDst),
            "ip4" => return of(Field::Ipv4Src),
            "ip6" => return of(Field::Ipv6Src),
            bits => bits.parse().unwrap_or(0),
        };
        let value = match (said, part.usual) {
            (None, "ethertype") => next.map_or(LOCAL, |next| next.eth_type).into(),
            (None, "protocol") => next.map_or(TRIAL, |next| next.protocol).into(),
            (None, "header") => next.map_or(NO_NEXT, |next| next.protocol).into(),
            (None, "last") => next.is_none_or(|next| next.name.text != "mpls").into(),
            _ if width == 0 => 0,
            _ => piece.number((1 << width) - 1)?,
        };
        Ok((width, value))
    }
}

/// Reads a frame: layers between slashes, or its bytes as hexadecimal digits.
pub fn parse(line: &str) -> Result<Vec<u8>> {
    let line = Piece::line(line).trimmed();
    if !line.text.is_empty() && line.text.chars().all(|letter| letter.is_ascii_hexdigit()) {
        return line.hex();
    }
    let mut layers = vec![];
    let mut rest = Some(line);
    while let Some(text) = rest {
        let (one, next) = text.split(&['/']);
        layers.push(Layer::parse(one)?);
        rest = next;
    }
    let keeps_sum = layers.iter().any(|layer| layer.get("sum").is_some());
    let length = match layers.pop_if(|last| last.name.text == "fill") {
        Some(fill) => fill.body.number(9000)? as usize,
        None => 0,
    };
    let mut bytes = vec![];
    for (index, layer) in layers.iter().enumerate().rev() {
        bytes = wrap(layer, layers.get(index + 1), bytes, keeps_sum)?;
    }
    let length = length.max(bytes.len());
    bytes.resize(length, 0);
    Ok(bytes)
}

/// Puts a layer around what is inside of it.
fn wrap(layer: &Layer<'_>, next: Option<&Layer<'_>>, inner: Vec<u8>, keeps_sum: bool) -> Result<Vec<u8>> {
    let mut head = match layer.name.text {
        "raw" => layer.body.hex()?,
        "pad" => vec![0; layer.body.number(9000)? as usize],
        "fill" => return layer.name.error("fill must come last: it pads the frame to this length"),
        _ => layer.head(next)?,
    };
    match layer.name.text {
        "ip" => {
            head.extend(layer.get("options").map_or(Ok(vec![]), Piece::hex)?);
            head.resize(head.len().next_multiple_of(4), 0);
            if head.len() > 60 {
                return layer.name.error("options of IPv4 are at most 40 bytes");
            }
            head[0] = 0x40 | (head.len() / 4) as u8;
            let length = (head.len() + inner.len()) as u16;
            head[2..4].copy_from_slice(&length.to_be_bytes());
            write_ipv4(&mut head);
        }
        "ip6" => head[4..6].copy_from_slice(&(inner.len() as u16).to_be_bytes()),
        "udp" => head[4..6].copy_from_slice(&((8 + inner.len()) as u16).to_be_bytes()),
        _ => {}
    }
    let bytes = [head, inner].concat();
    Ok(match layer.name.text {
        "ip" | "ip6" if !keeps_sum => with_sums(layer.eth_type, bytes),
        _ => bytes,
    })
}

/// Gives the transport in an IP packet its checksum.
fn with_sums(eth_type: u16, packet: Vec<u8>) -> Vec<u8> {
    let mut frame = [&[0; 12], &eth_type.to_be_bytes()[..], &packet].concat();
    repair(&mut frame);
    frame.split_off(14)
}

/// The frame of the fields of a match, with usual values for what it leaves open; masks are not looked at. What is not
/// in a frame (in_port, metadata, tunnel_id) is left to the caller.
pub fn of_match(matching: &Match) -> std::result::Result<Vec<u8>, String> {
    let text = layers_of(matching);
    let mut frame = wire::edit::FrameBuf::new();
    frame.load(&parse(&text).map_err(|error| format!("`{text}`: {error}"))?, wire::offload::Offload::NONE);
    for entry in matching.fields() {
        if entry.field.is_in_frame() && frame.get(entry.field) != Some(entry.value) {
            frame
                .set(entry.field, entry.value)
                .map_err(|why| format!("a frame cannot have this {}: {why}", entry.field))?;
        }
    }
    let mut bytes = frame.bytes().to_vec();
    repair(&mut bytes);
    Ok(bytes)
}

/// The layers that a match speaks of.
fn layers_of(matching: &Match) -> String {
    let is = |field: Field, value: Value| matching.exact(field) == Some(value);
    let has_tag = matching.get(Field::VlanVid).is_some_and(|vid| vid.value & Value::from(VLAN_PRESENT) != 0);
    let proto = matching.exact(Field::IpProto).unwrap_or(253);
    let transport = match proto {
        6 => " / tcp",
        17 => " / udp",
        132 => " / sctp",
        1 => " / icmp",
        58 if is(Field::Icmpv6Type, 135) => " / ns",
        58 if is(Field::Icmpv6Type, 136) => " / na",
        58 => " / icmp6",
        _ => "",
    };
    let network = match matching.exact(Field::EthType) {
        Some(0x800) => format!(" / ip proto={proto}{transport}"),
        Some(0x86dd) => format!(" / ip6 next={proto}{transport}"),
        Some(0x806) => " / arp".to_owned(),
        Some(tag @ (0x8847 | 0x8848)) => format!(" / mpls tag={tag} / pad 20"),
        Some(0x88e7) => " / pbb / eth / pad 20".to_owned(),
        _ => " / pad 46".to_owned(),
    };
    format!("eth{}{network}", if has_tag { " / vlan" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::rule::parse_match;
    use proptest::prelude::*;
    use wire::repair::check;

    #[test]
    fn a_frame_has_the_fields_of_its_match_and_right_checksums() {
        let matches = [
            "dl_vlan=7,vlan_pcp=3,tcp,nw_src=1.2.3.4,tcp_dst=80",
            "icmp6,icmpv6_type=136,nd_target=fe80::7,nd_tll=02:00:00:00:00:07",
            "sctp6,ipv6_label=0x12345,ip_dscp=9,sctp_src=7",
            "udp,nw_ecn=3,udp_src=9",
            "mpls,mpls_label=77,mpls_tc=2,mpls_bos=1",
            "dl_type=0x88e7,pbb_isid=0x123456,pbb_uca=1",
            "arp,arp_op=2,arp_spa=1.2.3.4,arp_tha=02:00:00:00:00:09",
            "icmp,icmp_type=3,icmp_code=4",
            "dl_type=0x9999,dl_src=02:02:02:02:02:02",
        ];
        for text in matches {
            let matching = parse_match(text).unwrap();
            let bytes = of_match(&matching).unwrap();
            let headers = wire::headers::Headers::parse(&bytes);
            for entry in matching.fields() {
                assert_eq!(headers.get(&bytes, entry.field), Some(entry.value), "{text}: {}", entry.field);
            }
            assert!(!check(&bytes).wants_repair(), "{text}");
        }
    }

    #[test]
    fn errors_name_the_layer() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert!(error("eth / ipx").starts_with("column 7: `ipx` is not a layer; there are eth, vlan"));
        assert_eq!(error("eth / vlan vid=4096"), "column 16: 4096 is more than 4095");
        assert_eq!(error("eth / udp port=7"), "column 11: udp says sport, dport, sum, not `port=7`");
        assert_eq!(parse("0102ff").unwrap(), [1, 2, 255]);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(eth|vlan|ip|ip6|raw|pad|ns|mpls|[a-z=0-9:./ ]| / ){0,12}") {
            let _ = parse(&text);
        }
    }
}
