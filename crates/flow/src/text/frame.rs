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
use wire::checksum::checksum;
use wire::repair::repair;

/// One layer: its name, and what it says.
struct Layer<'a> {
    name: Piece<'a>,
    said: Vec<(&'a str, Piece<'a>)>,
    body: Piece<'a>,
}

/// What every kind of layer may say.
const KEYS: &[(&str, &[&str])] = &[
    ("eth", &["dst", "src", "type"]),
    ("vlan", &["tag", "vid", "pcp", "dei", "type"]),
    ("pbb", &["isid", "pcp", "uca"]),
    ("mpls", &["tag", "label", "tc", "bos", "ttl"]),
    ("arp", &["op", "sha", "spa", "tha", "tpa"]),
    ("ip", &["src", "dst", "ttl", "tos", "proto", "id", "mf", "offset", "options"]),
    ("ip6", &["src", "dst", "ttl", "tc", "label", "next"]),
    ("hop", &["next"]),
    ("dest", &["next"]),
    ("routing", &["next", "left", "last"]),
    ("frag", &["next", "offset", "mf"]),
    ("auth", &["next"]),
    ("tcp", &["sport", "dport", "sum"]),
    ("udp", &["sport", "dport", "sum"]),
    ("sctp", &["sport", "dport"]),
    ("icmp", &["type", "code"]),
    ("icmp6", &["type", "code"]),
    ("ns", &["target", "sll"]),
    ("na", &["target", "tll"]),
    ("raw", &[]),
    ("pad", &[]),
    ("fill", &[]),
];

impl<'a> Layer<'a> {
    fn parse(text: Piece<'a>) -> Result<Layer<'a>> {
        let text = text.trimmed();
        let (name, body) = text.split(&[' ']);
        let body = body.unwrap_or(text.after(text.text.len())).trimmed();
        let Some((_, keys)) = KEYS.iter().find(|(known, _)| *known == name.text) else {
            let known: Vec<&str> = KEYS.iter().map(|(known, _)| *known).collect();
            return name.error(format!("`{}` is not a layer; there are {}", name.text, known.join(", ")));
        };
        let mut said = vec![];
        for item in if keys.is_empty() { vec![] } else { body.items() } {
            match item.split(&['=']) {
                (key, Some(value)) if keys.contains(&key.text) => said.push((key.text, value)),
                _ => {
                    return item.error(format!(
                        "{} says {}, not `{}`",
                        name.text,
                        keys.join(", "),
                        item.text
                    ));
                }
            }
        }
        Ok(Layer { name, said, body })
    }

    fn get(&self, key: &str) -> Option<Piece<'a>> {
        self.said.iter().find(|(one, _)| *one == key).map(|(_, value)| *value)
    }

    /// A number, or what it is when nothing is said.
    fn number(&self, key: &str, usual: u128, most: u128) -> Result<u128> {
        self.get(key).map_or(Ok(usual), |piece| piece.number(most))
    }

    fn u8(&self, key: &str, usual: u8) -> Result<u8> {
        Ok(self.number(key, usual.into(), 0xff)? as u8)
    }

    fn u16(&self, key: &str, usual: u16) -> Result<[u8; 2]> {
        Ok((self.number(key, usual.into(), 0xffff)? as u16).to_be_bytes())
    }

    /// The last bytes, of this number, of a field's value.
    fn address<const N: usize>(&self, key: &str, field: Field, usual: &str) -> Result<[u8; N]> {
        let piece = self.get(key).unwrap_or(Piece { text: usual, at: self.name.at });
        let bytes = value::value(field, piece)?.to_be_bytes();
        let mut address = [0; N];
        address.copy_from_slice(&bytes[16 - N..]);
        Ok(address)
    }

    /// The ethertype by which the header before calls this layer.
    fn eth_type(&self) -> Result<u16> {
        Ok(match self.name.text {
            "vlan" => self.number("tag", 0x8100, 0xffff)? as u16,
            "mpls" => self.number("tag", 0x8847, 0xffff)? as u16,
            "pbb" => 0x88e7,
            "arp" => 0x806,
            "ip" => 0x800,
            "ip6" => 0x86dd,
            // For local experiments (IEEE 802).
            _ => 0x88b5,
        })
    }

    /// The protocol by which the header before calls this layer.
    fn protocol(&self) -> u8 {
        match self.name.text {
            "hop" => 0,
            "icmp" => 1,
            "tcp" => 6,
            "udp" => 17,
            "routing" => 43,
            "frag" => 44,
            "auth" => 51,
            "icmp6" | "ns" | "na" => 58,
            "dest" => 60,
            "sctp" => 132,
            // For experiments (RFC 3692).
            _ => 253,
        }
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
    let head = match layer.name.text {
        "eth" | "vlan" | "pbb" | "mpls" | "arp" => link(layer, next)?,
        "ip" => return ip(layer, next, inner, keeps_sum),
        "ip6" => return ip6(layer, next, inner, keeps_sum),
        "hop" | "dest" | "routing" | "frag" | "auth" => extension(layer, next)?,
        "raw" => layer.body.hex()?,
        "pad" => vec![0; layer.body.number(9000)? as usize],
        "fill" => return layer.name.error("fill stands at the end: it makes the frame so long"),
        _ => transport(layer, inner.len())?,
    };
    Ok([head, inner].concat())
}

fn link(layer: &Layer<'_>, next: Option<&Layer<'_>>) -> Result<Vec<u8>> {
    let of_next = next.map_or(Ok(0x88b5), Layer::eth_type)?;
    let word = |high: u128, low: u128, shift: u32| (high << shift | low) as u32;
    Ok(match layer.name.text {
        "eth" => {
            let dst: [u8; 6] = layer.address("dst", Field::EthDst, "02:00:00:00:00:02")?;
            let src: [u8; 6] = layer.address("src", Field::EthSrc, "02:00:00:00:00:01")?;
            [&dst[..], &src, &layer.u16("type", of_next)?].concat()
        }
        "vlan" => {
            let (pcp, dei) = (layer.number("pcp", 0, 7)?, layer.number("dei", 0, 1)?);
            let tag = word(pcp << 1 | dei, layer.number("vid", 1, 0xfff)?, 12) as u16;
            [tag.to_be_bytes(), layer.u16("type", of_next)?].concat()
        }
        "pbb" => {
            let (pcp, uca) = (layer.number("pcp", 0, 7)?, layer.number("uca", 0, 1)?);
            word(pcp << 5 | uca << 3, layer.number("isid", 0, 0xff_ffff)?, 24).to_be_bytes().to_vec()
        }
        "mpls" => {
            let is_last = next.is_none_or(|next| next.name.text != "mpls");
            let (label, tc) = (layer.number("label", 16, 0xf_ffff)?, layer.number("tc", 0, 7)?);
            let bos = layer.number("bos", is_last.into(), 1)?;
            word(label << 4 | tc << 1 | bos, layer.number("ttl", 64, 255)?, 8).to_be_bytes().to_vec()
        }
        _ => {
            let sha: [u8; 6] = layer.address("sha", Field::ArpSha, "02:00:00:00:00:01")?;
            let spa: [u8; 4] = layer.address("spa", Field::ArpSpa, "10.0.0.1")?;
            let tha: [u8; 6] = layer.address("tha", Field::ArpTha, "00:00:00:00:00:00")?;
            let tpa: [u8; 4] = layer.address("tpa", Field::ArpTpa, "10.0.0.2")?;
            [&[0, 1, 8, 0, 6, 4], &layer.u16("op", 1)?[..], &sha, &spa, &tha, &tpa].concat()
        }
    })
}

fn ip(layer: &Layer<'_>, next: Option<&Layer<'_>>, inner: Vec<u8>, keeps_sum: bool) -> Result<Vec<u8>> {
    let options = layer.get("options").map_or(Ok(vec![]), Piece::hex)?;
    let words = options.len().div_ceil(4);
    if words > 10 {
        return layer.name.error("options of IPv4 are at most 40 bytes");
    }
    let length = (20 + 4 * words + inner.len()) as u16;
    let fragment = (layer.number("mf", 0, 1)? << 13 | layer.number("offset", 0, 0x1fff)?) as u16;
    let (src, dst): ([u8; 4], [u8; 4]) = (
        layer.address("src", Field::Ipv4Src, "10.0.0.1")?,
        layer.address("dst", Field::Ipv4Dst, "10.0.0.2")?,
    );
    let first = [0x45 + words as u8, layer.u8("tos", 0)?];
    let life = [layer.u8("ttl", 64)?, layer.u8("proto", next.map_or(253, Layer::protocol))?, 0, 0];
    let mut head =
        [&first, &length.to_be_bytes(), &layer.u16("id", 1)?, &fragment.to_be_bytes(), &life[..], &src, &dst]
            .concat();
    head.extend(options);
    head.resize(20 + 4 * words, 0);
    let sum = checksum(&head);
    head[10..12].copy_from_slice(&sum.to_be_bytes());
    Ok(with_sums(0x800, [head, inner].concat(), keeps_sum))
}

fn ip6(layer: &Layer<'_>, next: Option<&Layer<'_>>, inner: Vec<u8>, keeps_sum: bool) -> Result<Vec<u8>> {
    let (class, label) = (layer.number("tc", 0, 255)?, layer.number("label", 0, 0xf_ffff)?);
    let first = (6 << 28 | class << 20 | label) as u32;
    let (src, dst): ([u8; 16], [u8; 16]) =
        (layer.address("src", Field::Ipv6Src, "fd00::1")?, layer.address("dst", Field::Ipv6Dst, "fd00::2")?);
    let life = [layer.u8("next", next.map_or(59, Layer::protocol))?, layer.u8("ttl", 64)?];
    let head = [&first.to_be_bytes(), &(inner.len() as u16).to_be_bytes()[..], &life, &src, &dst].concat();
    Ok(with_sums(0x86dd, [head, inner].concat(), keeps_sum))
}

/// Gives the transport in an IP packet its checksum.
fn with_sums(eth_type: u16, packet: Vec<u8>, keeps_sum: bool) -> Vec<u8> {
    if keeps_sum {
        return packet;
    }
    let mut frame = [&[0; 12], &eth_type.to_be_bytes()[..], &packet].concat();
    repair(&mut frame);
    frame.split_off(14)
}

fn extension(layer: &Layer<'_>, next: Option<&Layer<'_>>) -> Result<Vec<u8>> {
    let next = layer.u8("next", next.map_or(59, Layer::protocol))?;
    Ok(match layer.name.text {
        "frag" => {
            let place = (layer.number("offset", 0, 0x1fff)? << 3 | layer.number("mf", 0, 1)?) as u16;
            [&[next, 0], &place.to_be_bytes()[..], &[0, 0, 0, 1]].concat()
        }
        "routing" => {
            // Type 4, segment routing (RFC 8754), with one segment.
            let last: [u8; 16] = layer.address("last", Field::Ipv6Dst, "fd00::9")?;
            [&[next, 2, 4, layer.u8("left", 0)?, 0, 0, 0, 0][..], &last].concat()
        }
        // Ten bytes fewer than the sixteen of a header with one word of authentication data: 4 words, less 2.
        "auth" => [&[next, 2][..], &[0; 14]].concat(),
        // An option that pads six bytes (RFC 8200 §4.2).
        _ => vec![next, 0, 1, 4, 0, 0, 0, 0],
    })
}

fn transport(layer: &Layer<'_>, inner: usize) -> Result<Vec<u8>> {
    let ports = || Ok([layer.u16("sport", 1000)?, layer.u16("dport", 2000)?].concat());
    Ok(match layer.name.text {
        "tcp" => {
            let rest = [0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 0x20, 0];
            [&ports()?[..], &rest, &layer.u16("sum", 0)?, &[0, 0]].concat()
        }
        // A sum of 0 would mean that none is wanted.
        "udp" => [&ports()?[..], &((8 + inner) as u16).to_be_bytes(), &layer.u16("sum", 1)?].concat(),
        "sctp" => [&ports()?[..], &[0, 0, 0, 7, 0, 0, 0, 0]].concat(),
        "icmp" => vec![layer.u8("type", 8)?, layer.u8("code", 0)?, 0, 0, 0, 1, 0, 1],
        "icmp6" => vec![layer.u8("type", 128)?, layer.u8("code", 0)?, 0, 0, 0, 1, 0, 1],
        name => {
            let (kind, option, key) = if name == "ns" { (135, 1, "sll") } else { (136, 2, "tll") };
            let target: [u8; 16] = layer.address("target", Field::NdTarget, "fd00::2")?;
            let address: [u8; 6] = layer.address(key, Field::NdSll, "02:00:00:00:00:01")?;
            [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &target, &[option, 1], &address].concat()
        }
    })
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
