use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use wire::build::{Ends, build_udp};
use wire::message::{Flags, Message};
use wire::offload::{Offload, Partial};

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

#[test]
fn a_message_is_damaged_by_the_checksum_of_its_frame_unless_that_is_unfinished_or_cut() {
    let message = |sequence| {
        let mut payload = [0; 40];
        Message { stream: 3, flags: Flags::DATA, sequence, planned_ns: sequence }.write(&mut payload);
        build_udp(&ends(false, (4000, 5000)), &payload).unwrap()
    };
    let mut census = Census::new(0);
    census.add(&message(0), &meta(82));
    let mut wrong = message(1);
    *wrong.last_mut().unwrap() ^= 1;
    census.add(&wrong, &meta(82));
    let mut far = message(1 << 40);
    far[40] ^= 1;
    census.add(&far, &meta(82));
    census.add(&far[..70], &meta(82));
    let partial = Some(Partial { start: 34, offset: 6 });
    census.add(&far, &Meta { offload: Offload { partial, ..Offload::default() }, ..meta(82) });
    let words = Census::report(vec![census]).0;
    let mark = |name: &str| words.marks.iter().find(|m| m.name == name).map_or(0, |m| m.count);
    assert_eq!((mark("test_messages"), mark("damaged_messages")), (3, 2), "what nobody can judge passes");
    assert_eq!((words.streams[0].seen, words.streams[0].damaged), (3, 2));
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

/// The slow twin: each frame for itself, in maps, in the order of the standards.
#[derive(Default)]
struct Slow {
    protocols: BTreeMap<String, (u64, u64)>,
    talkers: BTreeMap<(String, String), (u64, u64)>,
    marks: BTreeMap<&'static str, u64>,
    sizes: BTreeMap<&'static str, u64>,
}

impl Slow {
    fn protocol(&mut self, name: impl Into<String>, bytes: u64) {
        let count = self.protocols.entry(name.into()).or_default();
        *count = (count.0 + 1, count.1 + bytes);
    }

    fn talker(&mut self, from: String, to: String, bytes: u64) {
        let count = self.talkers.entry((from, to)).or_default();
        *count = (count.0 + 1, count.1 + bytes);
    }

    fn mark(&mut self, name: &'static str) {
        *self.marks.entry(name).or_default() += 1;
    }

    fn add(&mut self, frame: &[u8], wire_length: u32) {
        let octets = wire_length + 4;
        *self.sizes.entry(SIZES.iter().find(|class| octets <= class.1).unwrap().0).or_default() += 1;
        let cut = (frame.len() as u32) < wire_length;
        if cut {
            self.mark("cut");
        }
        if self.headers(frame, wire_length.into()).is_none() && !cut {
            self.mark("malformed");
        }
    }

    fn headers(&mut self, frame: &[u8], bytes: u64) -> Option<()> {
        frame.get(..12)?;
        let mac = |at: &[u8]| at.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
        let (mut rest, mut tags) = (&frame[12..], 0);
        while tags < 4 && matches!(be16(rest, 0)?, 0x8100 | 0x88a8 | 0x9100) {
            rest = &rest[2..];
            tags += 1;
            if tags == 1 {
                self.mark("vlan");
            }
            rest = rest.get(2..)?;
        }
        let ethertype = be16(rest, 0)?;
        let name = ETHERTYPES.iter().find(|known| known.0 == ethertype).map(|known| known.1);
        self.protocol(name.unwrap_or(if ethertype < 0x600 { "llc" } else { "other" }), bytes);
        let ip = &rest[2..];
        let inner = match ethertype {
            0x0800 => Self::ipv4(ip),
            0x86dd => Layers::of(frame).map(|layers| {
                let (pair, text) = (pair_of(frame, &layers), |address| Ipv6Addr::from(address).to_string());
                let payload = &frame[layers.transport..layers.end.min(frame.len())];
                (layers.protocol, text(pair.from), text(pair.to), payload, layers.is_later_fragment())
            }),
            _ => {
                self.talker(mac(&frame[6..12]), mac(&frame[..6]), bytes);
                return Some(());
            }
        };
        let Some((protocol, from, to, payload, fragment)) = inner else {
            self.talker(mac(&frame[6..12]), mac(&frame[..6]), bytes);
            return None;
        };
        self.talker(from, to, bytes);
        let known = IP_PROTOCOLS.iter().find(|known| known.0 == protocol);
        let known = known.map_or(protocol.to_string(), |known| known.1.to_owned());
        self.protocol(format!("{}/{known}", name.unwrap()), bytes);
        if fragment {
            self.mark("fragments");
            return Some(());
        }
        if !["tcp", "udp"].contains(&known.as_str()) {
            return Some(());
        }
        let port = be16(payload, 0)?.min(be16(payload, 2)?);
        if port < 1024 {
            self.protocol(format!("{known}/{port}"), bytes);
        }
        if known == "udp" {
            return payload.get(8..).map(drop);
        }
        let flags = *payload.get(13)?;
        for (bit, name) in [(1, "tcp_fin"), (2, "tcp_syn"), (4, "tcp_reset")] {
            if flags & bit != 0 {
                self.mark(name);
            }
        }
        Some(())
    }

    /// RFC 791: protocol, addresses, payload, and whether it is a later fragment.
    fn ipv4(ip: &[u8]) -> Option<(u8, String, String, &[u8], bool)> {
        let words = usize::from(ip.first()? & 15);
        if ip[0] >> 4 != 4 || words < 5 || ip.len() < words * 4 {
            return None;
        }
        let address = |at: usize| format!("{}.{}.{}.{}", ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
        let total = usize::from(be16(ip, 2)?);
        if total != 0 && total < words * 4 {
            return None;
        }
        let end = if total == 0 { ip.len() } else { total.min(ip.len()) };
        let fragment = be16(ip, 6)? & 0x1fff != 0;
        Some((ip[9], address(12), address(16), &ip[words * 4..end], fragment))
    }
}

/// A frame that is right, and what is done to it: bytes overwritten, a tag, a length cut off, more on the wire.
fn frames() -> impl Strategy<Value = Vec<(Vec<u8>, u32)>> {
    let ports = prop::sample::select(vec![(9, 53), (4000, 5000), (80, 40_000), (1023, 1024)]);
    let harm = prop::collection::vec(
        (12usize..62, prop::sample::select(vec![0u8, 1, 5, 6, 17, 0x45, 0x46, 255])),
        0..3,
    );
    let one = (any::<bool>(), ports, 0u8..3, any::<bool>(), harm, 0usize..160, 0u32..2, 0usize..1500);
    let made = one.prop_map(|(v6, ports, host, tcp, harm, cut, more, payload)| {
        let mut frame = build_udp(&ends(v6, ports), &vec![host; payload]).unwrap();
        let ip = if v6 { 14 + 39 } else { 14 + 19 };
        frame[ip] = host;
        if tcp {
            frame[if v6 { 20 } else { 23 }] = 6;
        }
        if host == 2 {
            frame.splice(12..12, [0x81, 0, 0, 5]);
        }
        for (at, byte) in harm {
            if let Some(there) = frame.get_mut(at) {
                *there = byte;
            }
        }
        if cut < 80 {
            frame.truncate(cut);
        }
        let wire_length = frame.len() as u32 + more * 700;
        (frame, wire_length)
    });
    prop::collection::vec(made, 0..200)
}

proptest! {
    #[test]
    fn it_says_what_the_slow_twin_says(frames in frames()) {
        let (mut slow, mut census) = (Slow::default(), Census::new(0));
        for (frame, wire_length) in &frames {
            slow.add(frame, *wire_length);
            census.add(frame, &meta(*wire_length as usize));
        }
        let (words, _) = Census::report(vec![census]);
        let protocols = words.protocols.iter().map(|p| (p.protocol.clone(), (p.frames, p.bytes)));
        prop_assert_eq!(protocols.collect::<BTreeMap<_, _>>(), slow.protocols);
        let seen = |list: &[NamedCount]| -> BTreeMap<String, u64> {
            list.iter().filter(|n| n.count > 0).map(|n| (n.name.clone(), n.count)).collect()
        };
        let named = |map: BTreeMap<&str, u64>| -> BTreeMap<String, u64> {
            map.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
        };
        prop_assert_eq!(seen(&words.sizes), named(slow.sizes));
        prop_assert_eq!(seen(&words.marks), named(slow.marks));
        let most = slow.talkers.len().min(TOP);
        prop_assert_eq!(words.talkers.len(), most);
        for talker in &words.talkers {
            let exact = slow.talkers[&(talker.from.clone(), talker.to.clone())];
            prop_assert!(talker.bytes >= exact.1 && talker.bytes - talker.error_bytes <= exact.1);
            prop_assert!(talker.error_bytes > 0 || (talker.frames, talker.bytes) == exact);
        }
    }
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
