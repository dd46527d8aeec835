//! What the frames are: sizes, protocols, talkers, streams, marks.
//!
//! **What.** [`Census::add`] looks at one frame and counts it in tables of fixed size; [`Census::report`] makes the words.
//! Frames are cut and damaged in every way, so nothing is taken for granted: a header that is not all there makes the
//! frame `malformed` and is followed no further. **How.** What nearly all frames are (TCP or UDP in IPv4, whole) is
//! recognised by a few comparisons and counted with its flow ([`super::flows`]); only what is left follows the headers one by
//! one. **Price.** About 15 ns for a frame, as much again for a message of a test, 50 where every frame is another flow
//! (`docs/benchmarks.md`); nothing is allocated but for the first message of a test stream. A port counts as a protocol
//! when it is below 1024; the lower one of the two is taken.

use super::flows::{Counted, Flows, Key};
use super::streams::{Flow, Found, Streams};
use super::talkers::{HARDWARE, Pair, Talkers, V4, V6};
use linux::port::{FrameDirection, Meta, StampSource};
use record::NamedCount;
use record::capture::{CaptureCensus, ProtocolCount, Talker};
use wire::frame;
use wire::layers::{Layers, VLAN_TAGS};
use wire::pcap::Link;
use wire::repair::is_intact;

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

/// The first octets that are in the last class, and the class of fewer.
const LONG: usize = 1519;
const CLASS: [u8; LONG + 1] = {
    let mut class = [0; LONG + 1];
    let mut octets = 1;
    while octets <= LONG {
        // Classes come in order, so each is that of one octet less, or the next.
        let before = class[octets - 1];
        class[octets] = before + (octets as u32 > SIZES[before as usize].1) as u8;
        octets += 1;
    }
    class
};

/// The octets of the frame check sequence.
const FCS: u32 = 4;

/// Talkers that are reported.
const TOP: usize = 10;

/// Ports below this are protocols.
const PORTS: usize = 1024;

/// Bytes of an Ethernet header without tag.
const ETHERNET: usize = 14;

/// With a header of IPv4 and what is looked at of TCP's (its flags), or more than UDP's.
const PLAIN: usize = ETHERNET + 20 + 14;

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
        self.merge(&Count { frames: 1, bytes });
    }

    #[inline]
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
    DamagedMessages,
    UnfinishedChecksum,
    SuperFrames,
    SuperFramePieces,
}

const MARKS: [&str; 13] = [
    "outgoing",
    "cut",
    "vlan",
    "fragments",
    "malformed",
    "tcp_syn",
    "tcp_fin",
    "tcp_reset",
    "test_messages",
    "damaged_messages",
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

const _: () = {
    let mut place = 0;
    while place < SOURCES.len() {
        assert!(SOURCES[place] as usize == place, "every source stands at its number");
        place += 1;
    }
};

/// The place in [`ETHERTYPES`] or behind it; the first two are nearly all there is.
#[inline]
fn place_of_ethertype(ethertype: u16) -> usize {
    match ethertype {
        frame::IPV4 => 0,
        frame::IPV6 => 1,
        _ => {
            let known = ETHERTYPES.iter().position(|&(number, _)| number == ethertype);
            known.unwrap_or(if ethertype < 0x600 { LLC } else { OTHER })
        }
    }
}

/// The tables of one thread.
#[derive(Debug, Clone)]
pub struct Census {
    /// Frames.
    pub frames: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
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
    /// What is not yet in the tables above and in `talkers`.
    flows: Flows,
    talkers: Talkers,
    streams: Streams,
}

impl Census {
    /// Nothing counted. See [`Streams::new`] for the offset.
    pub fn new(realtime_offset_ns: u64) -> Self {
        Census {
            frames: 0,
            bytes: 0,
            only_count: false,
            sizes: [0; SIZES.len()],
            ethertypes: [Count::default(); OTHER + 1],
            ip: Box::new([[Count::default(); 256]; 2]),
            ports: Box::new([[Count::default(); PORTS]; 2]),
            marks: [0; MARKS.len()],
            stamps: [0; SOURCES.len()],
            flows: Flows::default(),
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
        self.sizes[usize::from(CLASS[(octets as usize).min(LONG)])] += 1;
        self.stamps[meta.stamp.source as usize] += 1;
        if self.only_count {
            return;
        }
        if meta.way == FrameDirection::Out {
            self.mark(Mark::Outgoing);
        }
        if (bytes.len() as u32) < length {
            self.mark(Mark::Cut);
        }
        if !meta.offload.is_complete() {
            self.offloads(bytes, length, meta);
        }
        // What does not begin with an Ethernet header is only counted and measured.
        if meta.link != Link::ETHERNET {
            self.ethertypes[OTHER].add(length.into());
        } else if !self.plain(bytes, length.into(), meta)
            && self.headers(bytes, length.into(), meta).is_none()
            && bytes.len() as u32 == length
        {
            self.mark(Mark::Malformed);
        }
    }

    /// Counts a frame that is what nearly all are: TCP or UDP in IPv4, without tag, options or anything missing. False,
    /// and nothing counted, for any other; [`Census::headers`] counts what this one counts, too, and it says the same.
    #[inline]
    fn plain(&mut self, bytes: &[u8], length: u64, meta: &Meta) -> bool {
        let Some(head) = bytes.first_chunk::<PLAIN>() else { return false };
        let protocol = head[23];
        let is_first = be16_at(head, 20) & 0x1fff == 0;
        let end = ETHERNET + usize::from(be16_at(head, 16));
        if be16_at(head, 12) != frame::IPV4
            || head[14] != 0x45
            || !matches!(protocol, frame::TCP | frame::UDP)
            || !is_first
            || end < PLAIN
        {
            return false;
        }
        let address =
            |at: usize| u128::from(u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        let pair = Pair { kind: V4, from: address(26), to: address(30) };
        let ports = (be16_at(head, 34), be16_at(head, 36));
        if let Some(counted) = self.flows.add(&Key::new(&pair, protocol, ports), length) {
            self.settle(&counted);
        }
        if protocol == frame::TCP {
            self.tcp_flags(head[47]);
        } else if Streams::knows(&bytes[42..]) {
            self.test_message(&Flow { pair, ports }, &bytes[42..end.min(bytes.len())], bytes, meta);
        }
        true
    }

    #[inline]
    fn tcp_flags(&mut self, flags: u8) {
        if flags & 7 != 0 {
            for (bit, mark) in [(2, Mark::TcpSyn), (1, Mark::TcpFin), (4, Mark::TcpReset)] {
                self.marks[mark as usize] += u64::from(flags & bit != 0);
            }
        }
    }

    /// Follows a UDP payload that looks like a message of a test.
    #[inline(never)]
    fn test_message(&mut self, flow: &Flow, payload: &[u8], frame: &[u8], meta: &Meta) {
        let is_intact = || !meta.offload.is_complete() || is_intact(frame);
        match self.streams.look(flow, payload, meta, is_intact) {
            Found::Nothing => {}
            Found::Message => self.mark(Mark::TestMessages),
            Found::Damaged => self.mark(Mark::DamagedMessages),
        }
    }

    #[inline]
    fn mark(&mut self, mark: Mark) {
        self.marks[mark as usize] += 1;
    }

    /// Checksums and segments that were left to the hardware.
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
    #[inline(never)]
    fn headers(&mut self, bytes: &[u8], length: u64, meta: &Meta) -> Option<()> {
        let addresses: &[u8; 12] = bytes.first_chunk()?;
        let mut at = 12;
        let mut ethertype = be16(bytes, at)?;
        while VLAN_TAGS.contains(&ethertype) {
            if at == 12 {
                self.mark(Mark::Vlan);
            }
            at += 4;
            ethertype = be16(bytes, at)?;
        }
        if let Some(layers) = Layers::of(bytes) {
            return self.inner(bytes, &layers, length, meta);
        }
        self.ethertypes[place_of_ethertype(ethertype)].add(length);
        self.talkers.add(&hardware(addresses), 1, length);
        (!matches!(ethertype, frame::IPV4 | frame::IPV6)).then_some(())
    }

    /// What is inside of IP.
    fn inner(&mut self, bytes: &[u8], layers: &Layers, length: u64, meta: &Meta) -> Option<()> {
        let (pair, protocol) = (pair_of(bytes, layers), layers.protocol);
        let payload = &bytes[layers.transport..layers.end.min(bytes.len())];
        let transport = matches!(protocol, frame::TCP | frame::UDP) && !layers.is_later_fragment();
        let Some(ports) = payload.first_chunk::<4>().filter(|_| transport) else {
            self.ip(&pair, protocol, &Count { frames: 1, bytes: length });
            if layers.is_later_fragment() {
                self.mark(Mark::Fragments);
            }
            return (!transport).then_some(());
        };
        let ports = (be16_at(ports, 0), be16_at(ports, 2));
        if let Some(counted) = self.flows.add(&Key::new(&pair, protocol, ports), length) {
            self.settle(&counted);
        }
        if protocol == frame::TCP {
            self.tcp_flags(*payload.get(13)?);
        } else {
            self.test_message(&Flow { pair, ports }, payload.get(8..)?, bytes, meta);
        }
        Some(())
    }

    /// Counts frames of IP.
    fn ip(&mut self, pair: &Pair, protocol: u8, count: &Count) {
        // The first two ethertypes are those of IP.
        let v6 = usize::from(pair.kind == V6);
        self.ethertypes[v6].merge(count);
        self.ip[v6][usize::from(protocol)].merge(count);
        self.talkers.add(pair, count.frames, count.bytes);
    }

    /// Puts a flow into the tables.
    #[inline(never)]
    fn settle(&mut self, counted: &Counted) {
        let Counted { key, frames, bytes } = *counted;
        let count = Count { frames, bytes };
        self.ip(&key.pair(), key.protocol(), &count);
        let (from, to) = key.ports();
        let ports = &mut self.ports[usize::from(key.protocol() == frame::UDP)];
        if let Some(port) = ports.get_mut(usize::from(from.min(to))) {
            port.merge(&count);
        }
    }

    /// Adds what another thread counted and settled; talkers stay with [`Census::report`].
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
    pub fn report(mut censuses: Vec<Census>) -> (CaptureCensus, Census) {
        for census in &mut censuses {
            census.flows.take().for_each(|counted| census.settle(&counted));
        }
        let tables: Vec<&Talkers> = censuses.iter().map(|census| &census.talkers).collect();
        let talkers = Talkers::top(&tables, TOP);
        let mut all = Census::new(0);
        censuses.iter().for_each(|census| all.merge(census));
        let talker = |entry: super::talkers::TalkerEntry| {
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

#[inline]
fn be16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn hardware(addresses: &[u8; 12]) -> Pair {
    let address = |bytes: &[u8]| bytes.iter().fold(0u128, |sum, &byte| sum << 8 | u128::from(byte));
    Pair { kind: HARDWARE, from: address(&addresses[6..]), to: address(&addresses[..6]) }
}

/// Between whom, with the headers that were found.
#[inline]
fn pair_of(bytes: &[u8], layers: &Layers) -> Pair {
    let n = layers.network;
    let half =
        |at: usize| u128::from(u64::from_be_bytes(*bytes[n + at..].first_chunk().expect("of 40 bytes")));
    let four =
        |at: usize| u128::from(u32::from_be_bytes(*bytes[n + at..].first_chunk().expect("of 20 bytes")));
    if layers.is_v6 {
        Pair { kind: V6, from: half(8) << 64 | half(16), to: half(24) << 64 | half(32) }
    } else {
        Pair { kind: V4, from: four(12), to: four(16) }
    }
}

#[cfg(test)]
#[path = "census_tests.rs"]
mod tests;
