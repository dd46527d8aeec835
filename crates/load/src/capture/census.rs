//! What the frames are: sizes, protocols, talkers, streams, marks.
//!
//! **What.** [`Census::add`] looks at one frame and counts it in tables of fixed size; [`Census::report`] makes the words.
//! Frames are cut and damaged in every way, so nothing is taken for granted: a header that is not all there makes the
//! frame `malformed` and is followed no further. **Price.** About 60 ns for a frame, with what a block that is handed
//! over sooner costs (`docs/benchmarks.md`); nothing is allocated but for the first message of a test stream. A port
//! counts as a protocol when it is below 1024; the lower one of the two is taken.

use super::streams::{Flow, Streams};
use super::talkers::{Pair, Talkers};
use linux::port::{Meta, StampSource, Way};
use record::NamedCount;
use record::capture::{CaptureCensus, ProtocolCount, Talker};
use wire::frame;

/// The size classes of RFC 2819 (`etherStatsPkts…Octets`), by octets with FCS; frames here are without it.
const SIZES: [(&str, u32); 8] = [
    ("under_64", 63),
    ("64", 64),
    ("65_127", 127),
    ("128_255", 255),
    ("256_511", 511),
    ("512_1023", 1023),
    ("1024_1518", 1518),
    ("over_1518", u32::MAX),
];

/// The octets of the frame check sequence.
const FCS: u32 = 4;

/// Talkers that are reported.
const TOP: usize = 10;

/// Ports below this are protocols.
const PORTS: usize = 1024;

/// Ethertypes that are counted one by one; others go to `other`.
const ETHERTYPES: [(u16, &str); 10] = [
    (frame::IPV4, "ip"),
    (frame::IPV6, "ip6"),
    (frame::ARP, "arp"),
    (0x8035, "rarp"),
    (0x8847, "mpls"),
    (0x8863, "pppoe-discovery"),
    (0x8864, "pppoe"),
    (0x88cc, "lldp"),
    (0x88f7, "ptp"),
    (0x88b5, "experimental"),
];
/// Their place behind [`ETHERTYPES`]: length fields of 802.3, and everything else.
const LLC: usize = ETHERTYPES.len();
const OTHER: usize = LLC + 1;

/// IP protocols and ports with a name.
const IP_PROTOCOLS: [(u8, &str); 9] = [
    (1, "icmp"),
    (2, "igmp"),
    (6, "tcp"),
    (17, "udp"),
    (47, "gre"),
    (50, "esp"),
    (58, "icmp6"),
    (89, "ospf"),
    (132, "sctp"),
];

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    frames: u64,
    bytes: u64,
}

impl Count {
    #[inline]
    fn add(&mut self, bytes: u64) {
        self.frames += 1;
        self.bytes += bytes;
    }

    fn merge(&mut self, other: &Count) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }
}

/// What can be special about a frame.
#[derive(Debug, Clone, Copy)]
enum Mark {
    Outgoing,
    Cut,
    Vlan,
    Fragments,
    Malformed,
    TcpSyn,
    TcpFin,
    TcpReset,
    TestMessages,
    UnfinishedChecksum,
    SuperFrames,
    SuperFramePieces,
}

const MARKS: [&str; 12] = [
    "outgoing",
    "cut",
    "vlan",
    "fragments",
    "malformed",
    "tcp_syn",
    "tcp_fin",
    "tcp_reset",
    "test_messages",
    "unfinished_checksum",
    "super_frames",
    "super_frame_pieces",
];

const SOURCES: [StampSource; 6] = [
    StampSource::None,
    StampSource::User,
    StampSource::Software,
    StampSource::HardwareRaw,
    StampSource::HardwareSystem,
    StampSource::File,
];

/// The tables of one thread.
#[derive(Debug, Clone)]
pub struct Census {
    /// Frames.
    pub frames: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Frames begin with an Ethernet header; others are only counted and measured.
    pub ethernet: bool,
    /// Nothing is looked at but lengths and whose clock stamped.
    pub only_count: bool,
    sizes: [u64; SIZES.len()],
    ethertypes: [Count; OTHER + 1],
    /// IPv4 and IPv6.
    ip: Box<[[Count; 256]; 2]>,
    /// TCP and UDP.
    ports: Box<[[Count; PORTS]; 2]>,
    marks: [u64; MARKS.len()],
    stamps: [u64; SOURCES.len()],
    talkers: Talkers,
    streams: Streams,
}

/// Where a transport header lies, and between whom.
struct Inner<'a> {
    v6: bool,
    protocol: u8,
    addresses: (u128, u128),
    payload: &'a [u8],
    later_fragment: bool,
}

impl Census {
    /// Nothing counted. See [`Streams::new`] for the offset.
    pub fn new(realtime_offset_ns: u64) -> Self {
        Census {
            frames: 0,
            bytes: 0,
            ethernet: true,
            only_count: false,
            sizes: [0; SIZES.len()],
            ethertypes: [Count::default(); OTHER + 1],
            ip: Box::new([[Count::default(); 256]; 2]),
            ports: Box::new([[Count::default(); PORTS]; 2]),
            marks: [0; MARKS.len()],
            stamps: [0; SOURCES.len()],
            talkers: Talkers::default(),
            streams: Streams::new(realtime_offset_ns),
        }
    }

    /// Counts one frame.
    #[inline]
    pub fn add(&mut self, bytes: &[u8], meta: &Meta) {
        let length = meta.wire_length.max(bytes.len() as u32);
        self.frames += 1;
        self.bytes += u64::from(length);
        let octets = length.saturating_add(FCS);
        self.sizes[SIZES.iter().position(|&(_, most)| octets <= most).unwrap_or(SIZES.len() - 1)] += 1;
        self.stamps[SOURCES.iter().position(|&source| source == meta.stamp.source).unwrap_or(0)] += 1;
        if self.only_count {
            return;
        }
        if meta.way == Way::Out {
            self.mark(Mark::Outgoing);
        }
        if (bytes.len() as u32) < length {
            self.mark(Mark::Cut);
        }
        self.offloads(bytes, length, meta);
        if !self.ethernet {
            self.ethertypes[OTHER].add(length.into());
        } else if self.headers(bytes, length.into(), meta).is_none() && bytes.len() as u32 == length {
            self.mark(Mark::Malformed);
        }
    }

    #[inline]
    fn mark(&mut self, mark: Mark) {
        self.marks[mark as usize] += 1;
    }

    /// Checksums and segments that were left to the hardware.
    #[inline]
    fn offloads(&mut self, bytes: &[u8], length: u32, meta: &Meta) {
        if meta.offload.partial.is_some() {
            self.mark(Mark::UnfinishedChecksum);
        }
        if let Some(segments) = meta.offload.segments {
            self.mark(Mark::SuperFrames);
            let headers = u32::from(segments.header).min(bytes.len() as u32);
            let pieces = (length - headers).div_ceil(u32::from(segments.size).max(1)).max(1);
            self.marks[Mark::SuperFramePieces as usize] += u64::from(pieces);
        }
    }

    /// Follows the headers; none when one is not all there (and the frame was not cut by the capture).
    #[inline]
    fn headers(&mut self, bytes: &[u8], length: u64, meta: &Meta) -> Option<()> {
        let addresses: &[u8; 12] = bytes.first_chunk()?;
        let mut at = 12;
        let mut ethertype = be16(bytes, at)?;
        while matches!(ethertype, 0x8100 | 0x88a8 | 0x9100) && at < 12 + 4 * 4 {
            if at == 12 {
                self.mark(Mark::Vlan);
            }
            at += 4;
            ethertype = be16(bytes, at)?;
        }
        let known = ETHERTYPES.iter().position(|&(number, _)| number == ethertype);
        let place = known.unwrap_or(if ethertype < 0x600 { LLC } else { OTHER });
        self.ethertypes[place].add(length);
        let rest = bytes.get(at + 2..)?;
        let inner = match ethertype {
            frame::IPV4 => ipv4(rest),
            frame::IPV6 => ipv6(rest),
            _ => {
                self.talkers.add(hardware(addresses), length);
                return Some(());
            }
        };
        let Some(inner) = inner else {
            self.talkers.add(hardware(addresses), length);
            return None;
        };
        let kind = if inner.v6 { 6 } else { 4 };
        self.talkers.add(Pair { kind, from: inner.addresses.0, to: inner.addresses.1 }, length);
        self.ip[usize::from(inner.v6)][usize::from(inner.protocol)].add(length);
        if inner.later_fragment {
            self.mark(Mark::Fragments);
            return Some(());
        }
        self.transport(&inner, length, meta)
    }

    #[inline]
    fn transport(&mut self, inner: &Inner<'_>, length: u64, meta: &Meta) -> Option<()> {
        let payload = inner.payload;
        let table = match inner.protocol {
            frame::TCP => 0,
            frame::UDP => 1,
            _ => return Some(()),
        };
        let ports = (be16(payload, 0)?, be16(payload, 2)?);
        let port = usize::from(ports.0.min(ports.1));
        if port < PORTS {
            self.ports[table][port].add(length);
        }
        if table == 0 {
            let flags = *payload.get(13)?;
            for (bit, mark) in [(2, Mark::TcpSyn), (1, Mark::TcpFin), (4, Mark::TcpReset)] {
                if flags & bit != 0 {
                    self.mark(mark);
                }
            }
            return Some(());
        }
        let flow = || Flow { v6: inner.v6, addresses: inner.addresses, ports };
        if self.streams.look(flow, payload.get(8..)?, meta) {
            self.mark(Mark::TestMessages);
        }
        Some(())
    }

    /// Adds what another thread counted; talkers stay with [`Census::report`].
    fn merge(&mut self, other: &Census) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        let add = |ours: &mut [u64], theirs: &[u64]| ours.iter_mut().zip(theirs).for_each(|(a, b)| *a += b);
        add(&mut self.sizes, &other.sizes);
        add(&mut self.marks, &other.marks);
        add(&mut self.stamps, &other.stamps);
        let join = |ours: &mut [Count], theirs: &[Count]| {
            ours.iter_mut().zip(theirs).for_each(|(a, b)| a.merge(b));
        };
        join(&mut self.ethertypes, &other.ethertypes);
        join(self.ip.as_flattened_mut(), other.ip.as_flattened());
        join(self.ports.as_flattened_mut(), other.ports.as_flattened());
        self.streams.merge(other.streams.clone());
    }

    /// Puts the tables of all threads together and makes the words.
    pub fn report(censuses: Vec<Census>) -> (CaptureCensus, Census) {
        let tables: Vec<&Talkers> = censuses.iter().map(|census| &census.talkers).collect();
        let talkers = Talkers::top(&tables, TOP);
        let mut all = Census::new(0);
        censuses.iter().for_each(|census| all.merge(census));
        let talker = |entry: super::talkers::Entry| {
            let (from, to) = entry.pair.texts();
            Talker { from, to, frames: entry.frames, bytes: entry.bytes, error_bytes: entry.error }
        };
        let (streams, unfollowed_messages) = all.streams.report();
        let words = CaptureCensus {
            sizes: named(SIZES.iter().map(|&(name, _)| name), &all.sizes),
            protocols: all.protocols(),
            talkers: talkers.into_iter().map(talker).collect(),
            streams,
            unfollowed_messages,
            marks: some(named(MARKS.into_iter(), &all.marks)),
            stamps: some(named(SOURCES.iter().map(|source| source.name()), &all.stamps)),
        };
        (words, all)
    }

    /// How many frames the super-frames stand for, beyond themselves.
    pub fn hidden_pieces(&self) -> u64 {
        let marks = |mark: Mark| self.marks[mark as usize];
        marks(Mark::SuperFramePieces).saturating_sub(marks(Mark::SuperFrames))
    }

    /// The tree of protocols as paths, parents before children, the biggest first among siblings.
    fn protocols(&self) -> Vec<ProtocolCount> {
        let mut list = vec![];
        let names = ETHERTYPES.iter().map(|&(_, name)| name).chain(["llc", "other"]);
        for (name, count) in by_size(names.map(str::to_owned).zip(self.ethertypes)) {
            list.push(protocol(&name, &count));
            let Some(family) = ["ip", "ip6"].iter().position(|ip| **ip == name) else { continue };
            let inner = self.ip[family].iter().enumerate();
            for (number, count) in by_size(inner.map(|(number, count)| (number as u8, *count))) {
                let known = IP_PROTOCOLS.iter().find(|(known, _)| *known == number);
                let inner = known.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned());
                list.push(protocol(&format!("{name}/{inner}"), &count));
            }
        }
        for (table, name) in [(0, "tcp"), (1, "udp")] {
            let ports = self.ports[table].iter().enumerate().map(|(port, count)| (port, *count));
            list.extend(
                by_size(ports).into_iter().map(|(port, count)| protocol(&format!("{name}/{port}"), &count)),
            );
        }
        list
    }
}

fn protocol(name: &str, count: &Count) -> ProtocolCount {
    ProtocolCount { protocol: name.to_owned(), frames: count.frames, bytes: count.bytes }
}

/// Those that were seen, the biggest first.
fn by_size<T>(counts: impl Iterator<Item = (T, Count)>) -> Vec<(T, Count)> {
    let mut list: Vec<_> = counts.filter(|(_, count)| count.frames > 0).collect();
    list.sort_by_key(|(_, count)| std::cmp::Reverse(count.frames));
    list
}

fn named<'a>(names: impl Iterator<Item = &'a str>, counts: &[u64]) -> Vec<NamedCount> {
    names.zip(counts).map(|(name, &count)| NamedCount { name: name.to_owned(), count }).collect()
}

fn some(counts: Vec<NamedCount>) -> Vec<NamedCount> {
    counts.into_iter().filter(|named| named.count > 0).collect()
}

#[inline]
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn hardware(addresses: &[u8; 12]) -> Pair {
    let address = |bytes: &[u8]| bytes.iter().fold(0u128, |sum, &byte| sum << 8 | u128::from(byte));
    Pair { kind: 2, from: address(&addresses[6..]), to: address(&addresses[..6]) }
}

#[inline]
fn ipv4(bytes: &[u8]) -> Option<Inner<'_>> {
    let header: &[u8; 20] = bytes.first_chunk()?;
    let length = usize::from(header[0] & 15) * 4;
    if header[0] >> 4 != 4 || length < 20 {
        return None;
    }
    let address = |at: usize| {
        u128::from(u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]))
    };
    // What is behind the total length is padding. Segmentation may leave it 0 in a super-frame.
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let end = if total < length { bytes.len() } else { bytes.len().min(total) };
    Some(Inner {
        v6: false,
        protocol: header[9],
        addresses: (address(12), address(16)),
        payload: bytes.get(length..end)?,
        later_fragment: u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0,
    })
}

/// IPv6 with its extension headers (RFC 8200 section 4), at most eight.
#[inline]
fn ipv6(bytes: &[u8]) -> Option<Inner<'_>> {
    let header: &[u8; 40] = bytes.first_chunk()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let address =
        |at: usize| header[at..at + 16].iter().fold(0u128, |sum, &byte| sum << 8 | u128::from(byte));
    let (mut protocol, mut payload, mut later_fragment) = (header[6], &bytes[40..], false);
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if length > 0 {
        payload = &payload[..payload.len().min(length)];
    }
    for _ in 0..8 {
        let size = match protocol {
            0 | 43 | 60 => usize::from(*payload.get(1)?) * 8 + 8,
            44 => {
                later_fragment = be16(payload, 2)? & !7 != 0;
                8
            }
            _ => break,
        };
        protocol = *payload.first()?;
        payload = payload.get(size..)?;
        if later_fragment {
            break;
        }
    }
    Some(Inner { v6: true, protocol, addresses: (address(8), address(24)), payload, later_fragment })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::frame::{Ends, build_udp};
    use wire::message::{Flags, Message};

    fn ends(v6: bool, ports: (u16, u16)) -> Ends {
        let (a, b) = if v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
        Ends { macs: ([2; 6], [4; 6]), addresses: (a.parse().unwrap(), b.parse().unwrap()), ports }
    }

    fn meta(length: usize) -> Meta {
        Meta { wire_length: length as u32, ..Meta::default() }
    }

    fn count(list: &[ProtocolCount], name: &str) -> (u64, u64) {
        list.iter().find(|p| p.protocol == name).map_or((0, 0), |p| (p.frames, p.bytes))
    }

    #[test]
    fn known_frames_are_in_their_places() {
        let mut census = Census::new(0);
        let mut message = [0; 40];
        Message { stream: 3, flags: Flags::DATA, sequence: 1, planned_ns: 0 }.write(&mut message);
        let dns = build_udp(&ends(false, (4000, 53)), b"where").unwrap();
        let test = build_udp(&ends(true, (4000, 5000)), &message).unwrap();
        let mut tagged = dns.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        for frame in [&dns, &test, &tagged] {
            census.add(frame, &meta(frame.len()));
        }
        census.add(&dns[..20], &meta(20));
        census.add(&dns[..40], &Meta { wire_length: 1514, ..Meta::default() });
        let (words, all) = Census::report(vec![census]);
        assert_eq!((all.frames, all.bytes), (5, (dns.len() + test.len() + tagged.len() + 20 + 1514) as u64));
        assert_eq!(count(&words.protocols, "ip").0, 4);
        assert_eq!(count(&words.protocols, "udp/53").0, 3);
        assert_eq!(count(&words.protocols, "ip6/udp"), (1, test.len() as u64));
        let mark = |name: &str| words.marks.iter().find(|m| m.name == name).map_or(0, |m| m.count);
        assert_eq!((mark("vlan"), mark("malformed"), mark("cut"), mark("test_messages")), (1, 1, 1, 1));
        assert_eq!(words.sizes.iter().map(|s| s.count).sum::<u64>(), 5);
        assert_eq!(words.sizes[6].count, 1, "1514 without FCS is 1518 with it");
        assert_eq!((words.streams.len(), words.talkers[0].from.as_str()), (1, "10.0.0.1"));
    }

    /// A million frames that are noise, or were headers once.
    #[test]
    fn a_million_random_frames_are_counted_and_do_no_harm() {
        let mut random = fastrand::Rng::with_seed(7);
        let seeds = [
            build_udp(&ends(false, (9, 53)), &[0x70; 90]).unwrap(),
            build_udp(&ends(true, (9, 53)), &[0; 90]).unwrap(),
        ];
        let (mut census, mut bytes) = (Census::new(0), 0);
        let mut noise = vec![0u8; 2000];
        for i in 0..1_000_000u64 {
            let frame: &[u8];
            let mut damaged;
            if i % 3 != 0 {
                damaged = seeds[random.usize(..2)].clone();
                let at = random.usize(12..damaged.len());
                damaged[at] = random.u8(..);
                damaged.truncate(random.usize(..140));
                frame = &damaged;
            } else {
                let at = random.usize(..2000);
                noise[at] = random.u8(..);
                frame = &noise[at / 2..at];
            }
            let wire_length = frame.len() + if i % 5 == 0 { random.usize(..100_000) } else { 0 };
            bytes += wire_length as u64;
            census.add(frame, &meta(wire_length));
        }
        let (words, all) = Census::report(vec![census]);
        assert_eq!((all.frames, all.bytes), (1_000_000, bytes));
        assert_eq!(words.sizes.iter().map(|s| s.count).sum::<u64>(), 1_000_000);
    }

    proptest! {
        #[test]
        fn threads_together_count_what_one_would(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..60)
        ) {
            let mut one = Census::new(0);
            let mut two = vec![Census::new(0), Census::new(0)];
            for (i, frame) in frames.iter().enumerate() {
                let mut frame = frame.clone();
                if let Some(start) = frame.get_mut(12..15).filter(|_| i % 2 == 0) {
                    start.copy_from_slice(&[8, 0, 0x45]);
                }
                one.add(&frame, &meta(frame.len()));
                two[i % 2].add(&frame, &meta(frame.len()));
            }
            let (mut together, mut alone) = (Census::report(two).0, Census::report(vec![one]).0);
            // Siblings of one size have no order.
            for words in [&mut together, &mut alone] {
                words.protocols.sort_by(|a, b| a.protocol.cmp(&b.protocol));
            }
            prop_assert_eq!(together, alone);
        }
    }
}
