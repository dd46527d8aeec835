//! The slow twin: edits a vector as the standard tells it, then sums everything from scratch.

use super::*;

/// What a frame should look like; some bytes may be unknown to who sums from scratch.
#[derive(Debug)]
pub(super) struct Expected {
    bytes: Vec<u8>,
    unknown: Range<usize>,
}

impl Expected {
    fn known(bytes: Vec<u8>) -> Expected {
        Expected { bytes, unknown: 0..0 }
    }

    /// The first place where the frame is another one.
    pub(super) fn difference(&self, frame: &[u8]) -> Option<(usize, Vec<u8>, Vec<u8>)> {
        let differ = |at: &usize| self.bytes[*at] != frame[*at] && !self.unknown.contains(at);
        let at = if self.bytes.len() == frame.len() { (0..frame.len()).find(differ) } else { Some(0) };
        at.map(|at| (at, self.bytes.clone(), frame.to_vec()))
    }
}

/// Leaves out what makes other headers of the same bytes, whose checksums are then wrong from the start; gives a pop of
/// MPLS the ethertype of what is below.
pub(super) fn tame(edit: Edit, frame: &[u8], pushed: &mut Vec<u16>) -> Option<Edit> {
    match edit {
        Edit::Set(Field::EthType | Field::MplsBos, _) => None,
        // What a label of a pushed entry covers is known only here; other pops would come out of order.
        Edit::PopVlan if !pushed.is_empty() => None,
        Edit::PopPbb if !pushed.is_empty() => None,
        Edit::PushVlan(_) | Edit::PushPbb if !pushed.is_empty() => None,
        // Behind a label a tag (VLAN, PBB) may look like an IP header, and the byte of its TTL be one of the real header's length.
        Edit::CopyTtlIn if pushed.first().is_some_and(|below| !UNDER_LABELS.contains(below)) => None,
        // One that looks like IPv4 has a checksum that was never right.
        Edit::CopyTtlIn if ttls(frame).iter().any(|ttl| !ttl.is_intact(frame)) => None,
        Edit::PushMpls(_) => {
            pushed.push(be16(frame, 12));
            Some(edit)
        }
        Edit::PopMpls(_) => {
            let entry = Headers::parse(frame).mpls();
            let below = entry.map_or(0x0800, |entry| below(frame, entry));
            Some(Edit::PopMpls(pushed.pop().unwrap_or(below)))
        }
        _ => Some(edit),
    }
}

/// What a label covers that is what it looks like.
const UNDER_LABELS: [u16; 4] = [0x0800, 0x86dd, MPLS, MPLS_MULTICAST];

fn below(frame: &[u8], entry: usize) -> u16 {
    let next = frame.get(entry + 4).map_or(0, |byte| byte >> 4);
    match (frame[entry + 2] & 1, next) {
        (0, _) => MPLS,
        (_, 4) => 0x0800,
        (_, 6) => 0x86dd,
        _ => 0x88cc,
    }
}

pub(super) fn apply(edit: Edit, frame: &[u8]) -> Result<Expected, Refused> {
    let mut expected = apply_unfilled(edit, frame)?;
    if frame.len() >= 60 {
        expected.bytes.resize(expected.bytes.len().max(60), 0);
    }
    Ok(expected)
}

fn apply_unfilled(edit: Edit, frame: &[u8]) -> Result<Expected, Refused> {
    let headers = Headers::parse(frame);
    let value = |field| headers.get(frame, field);
    let splice = |at: usize, remove: usize, insert: &[u8]| {
        let mut bytes = frame.to_vec();
        bytes.splice(at..at + remove, insert.iter().copied());
        Ok(Expected::known(bytes))
    };
    match edit {
        Edit::Set(field, new) => set(frame, field, new),
        Edit::PushVlan(ethertype) => {
            let [a, b] = ethertype.to_be_bytes();
            let bits = value(Field::VlanPcp).unwrap_or(0) * 8192 + value(Field::VlanVid).unwrap() % 4096;
            splice(12, 0, &[a, b, (bits / 256) as u8, bits as u8])
        }
        Edit::PopVlan if value(Field::VlanPcp).is_some() => splice(12, 4, &[]),
        Edit::PushMpls(ethertype) => {
            let label = value(Field::MplsLabel).unwrap_or(0) as u32;
            let class = value(Field::MplsTc).unwrap_or(0) as u32;
            let is_first = ![MPLS, MPLS_MULTICAST].contains(&be16(frame, 12));
            let ttl = ttls(frame).first().map_or(0, |ttl| frame[ttl.at]);
            let entry = label * 4096 + class * 512 + u32::from(is_first) * 256 + u32::from(ttl);
            splice(12, 2, &[&ethertype.to_be_bytes()[..], &entry.to_be_bytes()].concat())
        }
        Edit::PopMpls(ethertype) if headers.mpls().is_some() => {
            splice(headers.payload() - 2, 6, &ethertype.to_be_bytes())
        }
        Edit::PushPbb => {
            let tag = value(Field::VlanPcp).unwrap_or(0) << 29 | value(Field::PbbIsid).unwrap_or(0);
            splice(0, 0, &[&frame[..12], &[0x88, 0xe7], &(tag as u32).to_be_bytes()].concat())
        }
        Edit::PopPbb => {
            let tag = headers.pbb().filter(|tag| frame.len() >= tag + 18).ok_or(Refused::Absent)?;
            let tags = &frame[12..tag - 2];
            let bytes = [&frame[tag + 4..tag + 16], tags, &frame[tag + 16..]].concat();
            Ok(Expected::known(bytes))
        }
        Edit::SetNwTtl(ttl) if headers.ip().is_some() => set_ttl(frame, ttls(frame)[0], ttl),
        Edit::SetMplsTtl(ttl) if headers.mpls().is_some() => set_ttl(frame, ttls(frame)[0], ttl),
        Edit::DecNwTtl if headers.ip().is_some() => decrement(frame),
        Edit::DecMplsTtl if headers.mpls().is_some() => decrement(frame),
        Edit::CopyTtlOut | Edit::CopyTtlIn => match ttls(frame)[..] {
            [outer, inner, ..] if matches!(edit, Edit::CopyTtlIn) => set_ttl(frame, inner, frame[outer.at]),
            [outer, inner, ..] => set_ttl(frame, outer, frame[inner.at]),
            _ => Err(Refused::Absent),
        },
        _ => Err(Refused::Absent),
    }
}

fn decrement(frame: &[u8]) -> Result<Expected, Refused> {
    let place = ttls(frame)[0];
    if frame[place.at] < 2 { Err(Refused::Expired) } else { set_ttl(frame, place, frame[place.at] - 1) }
}

/// A TTL, and the IPv4 header around it.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    ipv4: Option<usize>,
}

impl Place {
    fn is_intact(&self, frame: &[u8]) -> bool {
        self.ipv4.is_none_or(|at| checksum(&frame[at..at + 4 * usize::from(frame[at] & 15)]) == 0)
    }
}

/// The TTLs from the outermost inwards, found by a walk of its own.
fn ttls(frame: &[u8]) -> Vec<Place> {
    let mut found = vec![];
    let mut at = 12;
    while at + 6 <= frame.len() && [0x8100, 0x88a8].contains(&be16(frame, at)) {
        at += 4;
    }
    let ethertype = be16(frame, at);
    at += 2;
    let mut version = match ethertype {
        0x0800 => 4,
        0x86dd => 6,
        MPLS | MPLS_MULTICAST => 0,
        _ => return found,
    };
    while version == 0 {
        if at + 4 > frame.len() {
            return found;
        }
        found.push(Place { at: at + 3, ipv4: None });
        at += 4;
        if frame[at - 2] & 1 != 0 {
            version = frame.get(at).map_or(15, |byte| (byte >> 4).max(1));
        }
    }
    let ethertype = if version == 4 { 0x0800 } else { 0x86dd };
    if (version == 4 || version == 6) && Layers::of_ip(frame, at, ethertype).is_some() {
        found.push(match version {
            4 => Place { at: at + 8, ipv4: Some(at) },
            _ => Place { at: at + 7, ipv4: None },
        });
    }
    found
}

fn set_ttl(frame: &[u8], place: Place, ttl: u8) -> Result<Expected, Refused> {
    let mut bytes = frame.to_vec();
    bytes[place.at] = ttl;
    if let Some(header) = place.ipv4 {
        resum_ipv4(&mut bytes, header);
    }
    Ok(Expected::known(bytes))
}

fn resum_ipv4(frame: &mut [u8], at: usize) {
    let end = at + 4 * usize::from(frame[at] & 15);
    frame[at + 10..at + 12].fill(0);
    let sum = checksum(&frame[at..end]);
    frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
}

/// Writes a field bit by bit, then sums.
fn set(frame: &[u8], field: Field, value: u128) -> Result<Expected, Refused> {
    if field == Field::Ipv6Exthdr {
        return Err(Refused::ReadOnly);
    }
    let headers = Headers::parse(frame);
    let spot = headers.spot(field).ok_or(Refused::Absent)?;
    let mut bytes = frame.to_vec();
    let last = 8 * (spot.at + usize::from(spot.bytes)) - usize::from(spot.shift);
    for bit in 0..usize::from(spot.bits) {
        let (place, one) = (last - 1 - bit, value >> bit & 1 != 0);
        let mask = 0x80 >> (place % 8);
        bytes[place / 8] = bytes[place / 8] & !mask | if one { mask } else { 0 };
    }
    let Some(ip) = headers.ip() else { return Ok(Expected::known(bytes)) };
    if !ip.is_v6 {
        resum_ipv4(&mut bytes, ip.network);
    }
    let Some((protocol, at)) = headers.transport() else { return Ok(Expected::known(bytes)) };
    let place = at + protocol.shape().1;
    let judgement = check(frame).transport.map(|(_, check)| check);
    match judgement {
        Some(Check::Unused) => {}
        Some(Check::Right) => resum_transport(&mut bytes, ip, protocol, place),
        // What is wrong stays so, as for all others.
        Some(Check::Wrong | Check::Missing) => return Ok(Expected { bytes, unknown: place..place + 4 }),
        _ if protocol == Protocol::Sctp && matches!(field, Field::SctpSrc | Field::SctpDst) => {
            return Err(Refused::Checksum);
        }
        _ => return Ok(Expected { bytes, unknown: place..place + 4 }),
    }
    Ok(Expected::known(bytes))
}

/// The checksum of the protocol that was there, with the pseudo header as it is now.
fn resum_transport(frame: &mut [u8], ip: &Layers, protocol: Protocol, place: usize) {
    let now = Layers { protocol: frame[ip.protocol_at], ..*ip };
    let (start, end) = (ip.transport, ip.end);
    if protocol == Protocol::Sctp {
        let crc = crc32c::sctp(&frame[start..end]);
        frame[place..place + 4].copy_from_slice(&crc);
        return;
    }
    frame[place..place + 2].fill(0);
    let pseudo = match protocol {
        Protocol::Icmp => Sum::new(),
        _ => now.pseudo(frame, now.protocol, end - start),
    };
    let sum = match pseudo.add_bytes(&frame[start..end]).finish() {
        0 if protocol == Protocol::Udp => 0xffff,
        sum => sum,
    };
    frame[place..place + 2].copy_from_slice(&sum.to_be_bytes());
}
