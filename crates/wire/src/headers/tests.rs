use super::*;
use crate::field::{Row, TABLE};
use crate::layers::extension;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::collections::BTreeMap;

/// Frames of every kind that is known here, with right checksums wherever there are any.
pub(crate) mod any_frame {
    use super::*;
    use crate::repair::repair;

    fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame: Vec<u8> = (1..=12).collect();
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame
    }

    /// IP protocol and the bytes of a transport, its lengths right, its checksum not there.
    fn transport(v6: bool) -> BoxedStrategy<(u8, Vec<u8>)> {
        let bytes = |least| vec(any::<u8>(), least..least + 40);
        let tcp = bytes(20).prop_map(|mut bytes| {
            bytes[12] = 0x50;
            (6, bytes)
        });
        let udp = (bytes(8), any::<bool>()).prop_map(move |(mut bytes, summed)| {
            let length = bytes.len() as u16;
            bytes[4..6].copy_from_slice(&length.to_be_bytes());
            // Anything but zero is repaired; zero stays, over IPv4.
            bytes[6..8].copy_from_slice(if summed || v6 { &[0x12, 0x34] } else { &[0, 0] });
            (17, bytes)
        });
        let sctp = bytes(12).prop_map(|bytes| (132, bytes));
        let message = bytes(8).prop_map(move |bytes| (if v6 { 58 } else { 1 }, bytes));
        let neighbour = (
            bytes(24),
            any::<bool>(),
            vec((1u8..4, prop::sample::select(vec![1u8, 1, 1, 1, 0, 2])), 0..4),
            any::<[u8; 6]>(),
        );
        let neighbour = neighbour.prop_map(move |(mut bytes, is_advertisement, options, address)| {
            bytes.truncate(24);
            bytes[0] = 135 + u8::from(is_advertisement);
            for (kind, length) in options {
                bytes.extend([kind, length]);
                bytes.extend(address);
                bytes.extend(vec![0; 8 * usize::from(length.saturating_sub(1))]);
            }
            (if v6 { 58 } else { 1 }, bytes)
        });
        // IP in IP would need a real packet inside.
        let other = (any::<u8>(), bytes(0)).prop_map(|(protocol, bytes)| match protocol {
            4 | 41 => (protocol + 1, bytes),
            _ => (protocol, bytes),
        });
        prop_oneof![tcp, udp, sctp, message, neighbour, other].boxed()
    }

    fn ipv4() -> impl Strategy<Value = (u16, Vec<u8>)> {
        let fragment = prop_oneof![4 => Just(0x4000u16), 1 => Just(0x2000), 1 => Just(0x0123)];
        let header = (any::<[u8; 20]>(), 0usize..4, fragment);
        (header, transport(false)).prop_map(|((mut header, options, fragment), (protocol, bytes))| {
            header[0] = 0x45 + options as u8;
            header[2..4].copy_from_slice(&((20 + 4 * options + bytes.len()) as u16).to_be_bytes());
            header[6..8].copy_from_slice(&fragment.to_be_bytes());
            header[9] = protocol;
            let mut packet = header.to_vec();
            packet.extend(vec![1; 4 * options]);
            packet.extend(bytes);
            (0x0800, packet)
        })
    }

    /// Extension headers: next header of the one in front, and bytes.
    fn extensions() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
        let kind = prop::sample::select(vec![0u8, 60, 43, 44, 51]);
        vec((kind, 0usize..3, any::<[u8; 2]>()), 0..5).prop_map(|kinds| {
            let one = |(kind, more, noise): (u8, usize, [u8; 2])| match kind {
                // Mostly whole packets, sometimes fragments.
                44 => (44, vec![0, 0, 0, noise[0] & noise[1] & 9, 1, 2, 3, 4]),
                51 => (51, [&[0, more as u8][..], &vec![7; 6 + 4 * more]].concat()),
                43 => {
                    let addresses = vec![noise[1]; 4 + 16 * more];
                    let left = noise[0] & 1;
                    (43, [&[0, 2 * more as u8, noise[1] & 4, left][..], &addresses].concat())
                }
                _ => (kind, [&[0, more as u8][..], &vec![0; 6 + 8 * more]].concat()),
            };
            kinds.into_iter().map(one).collect()
        })
    }

    /// "No next header" of IPv6 (RFC 8200, section 4.7).
    const NOTHING: u8 = 59;

    fn ipv6() -> impl Strategy<Value = (u16, Vec<u8>)> {
        let header = (any::<[u8; 40]>(), extensions());
        (header, transport(true)).prop_map(|((mut header, mut extensions), (protocol, bytes))| {
            let mut next = protocol;
            for (kind, bytes) in extensions.iter_mut().rev() {
                bytes[0] = next;
                next = *kind;
            }
            let rest: Vec<u8> = extensions.into_iter().flat_map(|(_, bytes)| bytes).chain(bytes).collect();
            header[0] = 0x60 | header[0] & 15;
            header[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
            // A length of 0 is that of a jumbogram: padding behind it is read as what was announced, so that is nothing.
            header[6] = if rest.is_empty() { NOTHING } else { next };
            (0x86dd, [&header[..], &rest].concat())
        })
    }

    fn arp() -> impl Strategy<Value = (u16, Vec<u8>)> {
        any::<[u8; 28]>().prop_map(|mut message| {
            message[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
            (0x0806, message.to_vec())
        })
    }

    /// Ethertype and payload without tags; sums are right.
    pub(crate) fn plain() -> BoxedStrategy<(u16, Vec<u8>)> {
        let ip = prop_oneof![ipv4(), ipv6()].prop_map(|(ethertype, packet)| {
            let mut frame = ethernet(ethertype, &packet);
            repair(&mut frame);
            (ethertype, frame[14..].to_vec())
        });
        let other = (prop::sample::select(vec![0x40u16, 0x9100, 0x88cc]), vec(any::<u8>(), 0..50));
        // Behind MPLS this must not look like IP.
        let other = other.prop_map(|(ethertype, mut bytes)| {
            bytes.iter_mut().take(1).for_each(|byte| *byte |= 0x80);
            (ethertype, bytes)
        });
        prop_oneof![8 => ip, 1 => arp(), 1 => other].boxed()
    }

    fn stacked() -> impl Strategy<Value = (u16, Vec<u8>)> {
        (vec(any::<[u8; 4]>(), 1..4), plain(), any::<bool>()).prop_map(
            |(mut entries, (_, rest), multicast)| {
                let last = entries.len() - 1;
                entries
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, entry)| entry[2] = entry[2] & 0xfe | u8::from(i == last));
                (0x8847 + u16::from(multicast), [entries.concat(), rest].concat())
            },
        )
    }

    fn tagged(inner: impl Strategy<Value = (u16, Vec<u8>)>) -> impl Strategy<Value = (u16, Vec<u8>)> {
        let tags = vec((any::<bool>(), any::<u16>()), 0..4);
        (tags, inner).prop_map(|(tags, (mut ethertype, mut payload))| {
            for (service, tci) in tags.into_iter().take(2) {
                payload = [&tci.to_be_bytes()[..], &ethertype.to_be_bytes(), &payload].concat();
                ethertype = if service { 0x88a8 } else { 0x8100 };
            }
            (ethertype, payload)
        })
    }

    /// A whole frame.
    pub(crate) fn whole() -> impl Strategy<Value = Vec<u8>> {
        let inside = (any::<[u8; 4]>(), any::<[u8; 12]>(), tagged(plain()));
        let backbone = inside.prop_map(|(tag, macs, (ethertype, payload))| {
            (0x88e7, [&tag[..], &macs, &ethertype.to_be_bytes(), &payload].concat())
        });
        let payload = prop_oneof![6 => plain().boxed(), 1 => stacked().boxed(), 1 => backbone.boxed()];
        (any::<[u8; 12]>(), tagged(payload), 0usize..8).prop_map(|(macs, (ethertype, payload), padding)| {
            [&macs[..], &ethertype.to_be_bytes(), &payload, &vec![0; padding]].concat()
        })
    }
}

/// The slow twin: reads a frame from front to back as the standards draw it, and writes down every field it meets. It
/// shares no line with the parser.
#[derive(Default)]
struct Reader<'a> {
    rest: &'a [u8],
    found: BTreeMap<Field, u128>,
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number * 256 + u128::from(*byte))
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    fn note(&mut self, field: Field, value: u128) {
        self.found.insert(field, value);
    }

    fn frame(&mut self) -> Option<()> {
        let header = self.take(14)?;
        self.note(Field::EthDst, number(&header[..6]));
        self.note(Field::EthSrc, number(&header[6..12]));
        self.note(Field::VlanVid, 0);
        let mut ethertype = number(&header[12..]);
        let mut outermost = true;
        while ethertype == 0x8100 || ethertype == 0x88a8 {
            let Some(tag) = self.take(4) else { break };
            if std::mem::take(&mut outermost) {
                self.note(Field::VlanVid, 4096 + number(&tag[..2]) % 4096);
                self.note(Field::VlanPcp, number(&tag[..1]) / 32);
            }
            ethertype = number(&tag[2..]);
        }
        let mut is_snap = false;
        if ethertype < 0x600 {
            let llc = self.rest.get(..8).map(number);
            match llc {
                Some(llc) if llc >> 16 == 0xaaaa_0300_0000 && llc & 0xffff >= 0x600 => {
                    (ethertype, is_snap) = (llc & 0xffff, true);
                    self.take(8);
                }
                _ => ethertype = 0x5ff,
            }
        }
        self.note(Field::EthType, ethertype);
        match ethertype {
            0x8847 | 0x8848 | 0x88e7 if is_snap => {}
            0x8847 | 0x8848 => {
                let entry = number(self.take(4)?);
                self.note(Field::MplsLabel, entry / 4096);
                self.note(Field::MplsTc, entry / 512 % 8);
                self.note(Field::MplsBos, entry / 256 % 2);
            }
            0x88e7 => {
                let tag = number(self.take(4)?);
                self.note(Field::PbbIsid, tag % (1 << 24));
                self.note(Field::PbbUca, tag >> 27 & 1);
            }
            0x0806 => self.arp()?,
            0x0800 => self.ipv4()?,
            0x86dd => self.ipv6()?,
            _ => {}
        }
        Some(())
    }

    fn arp(&mut self) -> Option<()> {
        let start = self.take(8)?;
        self.note(Field::ArpOp, number(&start[6..]));
        let addresses = self.take(20)?;
        if start[2..6] == [8, 0, 6, 4] {
            self.note(Field::ArpSha, number(&addresses[..6]));
            self.note(Field::ArpSpa, number(&addresses[6..10]));
            self.note(Field::ArpTha, number(&addresses[10..16]));
            self.note(Field::ArpTpa, number(&addresses[16..]));
        }
        Some(())
    }

    fn ipv4(&mut self) -> Option<()> {
        let header = self.take(20)?;
        let options = (usize::from(header[0]) % 16).checked_sub(5)?;
        self.take(4 * options)?;
        let total = number(&header[2..4]) as usize;
        if header[0] / 16 != 4 || (total != 0 && total < 20 + 4 * options) {
            return None;
        }
        if total != 0 {
            self.rest = &self.rest[..self.rest.len().min(total - 20 - 4 * options)];
        }
        self.note(Field::IpDscp, u128::from(header[1] / 4));
        self.note(Field::IpEcn, u128::from(header[1] % 4));
        self.note(Field::IpProto, u128::from(header[9]));
        self.note(Field::Ipv4Src, number(&header[12..16]));
        self.note(Field::Ipv4Dst, number(&header[16..]));
        if number(&header[6..8]) & 0x1fff == 0 {
            self.transport(header[9], false)?;
        }
        Some(())
    }

    fn ipv6(&mut self) -> Option<()> {
        let header = self.take(40)?;
        let first = number(&header[..4]);
        if first >> 28 != 6 {
            return None;
        }
        self.note(Field::IpDscp, first >> 22 & 63);
        self.note(Field::IpEcn, first >> 20 & 3);
        self.note(Field::Ipv6Flabel, first % (1 << 20));
        self.note(Field::Ipv6Src, number(&header[8..24]));
        self.note(Field::Ipv6Dst, number(&header[24..]));
        let payload = number(&header[4..6]) as usize;
        if payload != 0 {
            self.rest = &self.rest[..self.rest.len().min(payload)];
        }
        let (mut next, mut chain, mut is_later) = (header[6], vec![], false);
        while [0, 60, 43, 44, 51].contains(&next) && !is_later {
            let start = self.take(8)?;
            let more = usize::from(start[1]);
            self.take(if next == 44 {
                0
            } else if next == 51 {
                4 * more
            } else {
                8 * more
            })?;
            is_later = next == 44 && number(&start[2..4]) >= 8;
            chain.push(next);
            next = start[0];
        }
        self.note(Field::IpProto, u128::from(next));
        self.note(Field::Ipv6Exthdr, u128::from(bits_of(&chain, next)));
        if !is_later {
            self.transport(next, true)?;
        }
        Some(())
    }

    fn transport(&mut self, protocol: u8, v6: bool) -> Option<()> {
        let (length, source, destination) = match protocol {
            6 => (20, Field::TcpSrc, Field::TcpDst),
            17 => (8, Field::UdpSrc, Field::UdpDst),
            132 => (12, Field::SctpSrc, Field::SctpDst),
            1 if !v6 => (4, Field::Icmpv4Type, Field::Icmpv4Code),
            58 if v6 => (4, Field::Icmpv6Type, Field::Icmpv6Code),
            _ => return None,
        };
        let header = self.take(length)?;
        let width = if length == 4 { 1 } else { 2 };
        self.note(source, number(&header[..width]));
        self.note(destination, number(&header[width..2 * width]));
        if protocol == 58 && (header[0] == 135 || header[0] == 136) {
            self.take(4)?;
            let target = self.take(16)?;
            self.note(Field::NdTarget, number(target));
            let (wanted, field) = if header[0] == 135 { (1, Field::NdSll) } else { (2, Field::NdTll) };
            while let Some(start) = self.take(2) {
                let option = self.take((8 * usize::from(start[1])).checked_sub(2)?)?;
                if start[0] == wanted {
                    if option.len() == 6 {
                        self.note(field, number(option));
                    }
                    break;
                }
            }
        }
        Some(())
    }
}

/// The order itself has a twin beside it.
fn bits_of(chain: &[u8], end: u8) -> u16 {
    let mut extensions = extension::Extensions::default();
    chain.iter().for_each(|protocol| extensions.add(*protocol));
    extensions.end(end);
    extensions.bits()
}

fn slow(frame: &[u8]) -> BTreeMap<Field, u128> {
    let mut reader = Reader { rest: frame, ..Reader::default() };
    reader.frame();
    reader.found
}

fn fast(frame: &[u8]) -> BTreeMap<Field, u128> {
    let headers = Headers::parse(frame);
    let fields = TABLE.iter().map(|row| row.field);
    fields.filter_map(|field| Some((field, headers.get(frame, field)?))).collect()
}

#[test]
fn llc_has_no_ethertype_and_snap_has_its_own() {
    let ip = &any_ip()[..];
    let parts = |length: u16, rest: &[&[u8]]| {
        let mut frame = vec![2; 12];
        frame.extend(length.to_be_bytes());
        rest.iter().for_each(|part| frame.extend_from_slice(part));
        frame
    };
    let eth_type = |frame: &[u8]| Headers::parse(frame).get(frame, Field::EthType);
    // A bridge protocol data unit: LLC with the service access point 0x42.
    let bpdu = parts(38, &[&[0x42, 0x42, 3], &[0; 35]]);
    assert_eq!(eth_type(&bpdu), Some(0x5ff));
    assert_eq!(Headers::parse(&bpdu).spot(Field::EthType), None, "nothing to write");
    let snap = parts(8 + ip.len() as u16, &[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], ip]);
    assert_eq!(eth_type(&snap), Some(0x800));
    assert_eq!(Headers::parse(&snap).get(&snap, Field::Ipv4Dst), Some(0x0a00_0002));
    let tagged = parts(0x8100, &[&[0, 7], &snap[12..]]);
    assert_eq!((eth_type(&tagged), Headers::parse(&tagged).tags()), (Some(0x800), 1));
    // Another organisation, or a SNAP type that is a length: no ethertype.
    assert_eq!(eth_type(&parts(60, &[&[0xaa, 0xaa, 3, 0, 0, 0xc, 8, 0], ip])), Some(0x5ff));
    assert_eq!(eth_type(&parts(60, &[&[0xaa, 0xaa, 3, 0, 0, 0, 0, 8], ip])), Some(0x5ff));
    assert_eq!(eth_type(&snap[..20]), Some(0x5ff), "cut");
    assert_eq!(eth_type(&parts(0x600, &[ip])), Some(0x600));
}

/// An IPv4 packet to 10.0.0.2.
fn any_ip() -> [u8; 20] {
    [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 99, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]
}

#[test]
fn a_tagged_datagram_shows_its_fields_and_no_others() {
    let mut frame = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x88, 0xa8, 0xb0, 0x64, 0x81, 0, 0, 7, 8, 0];
    frame.extend([0x45, 0xb9, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x2b, 0x67, 0x08, 0xae, 0, 8, 0, 0]);
    let headers = Headers::parse(&frame);
    let get = |field| headers.get(&frame, field);
    assert_eq!(get(Field::EthDst), Some(0x0102_0304_0506));
    assert_eq!(get(Field::EthType), Some(0x0800));
    assert_eq!((get(Field::VlanVid), get(Field::VlanPcp)), (Some(0x1064), Some(5)));
    assert_eq!((get(Field::IpDscp), get(Field::IpEcn)), (Some(0x2e), Some(1)));
    assert_eq!((get(Field::UdpSrc), get(Field::UdpDst)), (Some(11111), Some(2222)));
    assert_eq!((get(Field::TcpSrc), get(Field::Ipv6Src), get(Field::Ipv6Exthdr)), (None, None, None));
    assert_eq!((headers.tags(), headers.payload()), (2, 22));
    assert_eq!(headers.transport(), Some((Protocol::Udp, 42)));
}

#[test]
fn without_a_tag_the_vlan_is_none_and_a_cut_tag_is_no_tag() {
    let frame = [0; 14];
    let headers = Headers::parse(&frame);
    assert_eq!(headers.get(&frame, Field::VlanVid), Some(0));
    assert_eq!(headers.get(&frame, Field::VlanPcp), None);
    assert_eq!(Headers::parse(&frame[..13]), Headers::default());
    assert_eq!(Headers::parse(&frame[..13]).get(&frame, Field::VlanVid), None);
    let mut cut = [0; 17];
    cut[12] = 0x81;
    let headers = Headers::parse(&cut);
    assert_eq!(headers.get(&cut, Field::EthType), Some(0x8100));
    assert_eq!(headers.get(&cut, Field::VlanVid), Some(0));
}

#[test]
fn behind_mpls_and_pbb_nothing_is_seen() {
    let mut frame = vec![0; 12];
    frame.extend([0x88, 0x47, 0x00, 0x06, 0x47, 64]);
    frame.extend([
        0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 8, 0, 0,
    ]);
    let found = fast(&frame);
    assert_eq!((found[&Field::MplsLabel], found[&Field::MplsTc], found[&Field::MplsBos]), (100, 3, 1));
    assert!(!found.contains_key(&Field::IpProto));
    frame[12..18].copy_from_slice(&[0x88, 0xe7, 0x08, 0, 0, 203]);
    let found = fast(&frame);
    assert_eq!((found[&Field::PbbIsid], found[&Field::PbbUca]), (203, 1));
    assert_eq!(found.len(), 6, "{found:?}");
}

#[test]
fn a_chain_that_is_cut_hides_the_protocol_but_not_the_addresses() {
    let mut frame = vec![0; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 0, 64]);
    frame.extend([1; 32]);
    frame.extend([17, 1, 0, 0, 0, 0, 0]);
    let found = fast(&frame);
    assert!(found.contains_key(&Field::Ipv6Src) && found.contains_key(&Field::IpDscp));
    assert!(!found.contains_key(&Field::IpProto) && !found.contains_key(&Field::Ipv6Exthdr));
}

#[test]
fn an_option_that_ends_behind_the_packet_is_none() {
    let mut frame = vec![0; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255]);
    frame.extend([1; 32]);
    frame.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    frame.extend([2; 16]);
    frame.extend([1, 1, 3, 3, 3, 3, 3, 3]); // padding that looks like an option
    assert!(!fast(&frame).contains_key(&Field::NdSll));
    frame[19] = 28; // half of it
    assert!(!fast(&frame).contains_key(&Field::NdSll));
    assert_eq!(fast(&frame), slow(&frame));
    frame[19] = 32;
    assert_eq!(fast(&frame)[&Field::NdSll], 0x0303_0303_0303);
}

proptest! {
    #[test]
    fn fast_is_slow(frame in any_frame::whole(), cut: prop::sample::Index) {
        prop_assert_eq!(fast(&frame), slow(&frame));
        let cut = &frame[..cut.index(frame.len())];
        prop_assert_eq!(fast(cut), slow(cut));
    }

    #[test]
    fn fast_is_slow_on_damage(mut frame in any_frame::whole(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
        for (at, byte) in damage {
            let at = at.index(frame.len().min(80));
            frame[at] = byte;
        }
        prop_assert_eq!(fast(&frame), slow(&frame));
    }

    #[test]
    fn truncated_at_every_length(frame in any_frame::whole()) {
        for length in 0..frame.len() {
            prop_assert_eq!(fast(&frame[..length]), slow(&frame[..length]));
        }
    }

    #[test]
    fn no_bytes_panic_and_every_spot_is_inside(frame in vec(any::<u8>(), 0..120), other in vec(any::<u8>(), 0..120)) {
        let headers = Headers::parse(&frame);
        for &Row { field, bits, .. } in TABLE {
            if let Some(value) = headers.get(&frame, field) {
                prop_assert!(value >> bits == 0);
            }
            if let Some(spot) = headers.spot(field) {
                prop_assert!(spot.read(&frame).is_some());
            }
            let _ = headers.get(&other, field);
        }
    }
}

/// What the properties compare is only worth something if the frames have it.
#[test]
fn the_frames_of_the_properties_have_every_field() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut met = BTreeMap::new();
    for _ in 0..3000 {
        let frame = any_frame::whole().new_tree(&mut runner).unwrap().current();
        fast(&frame).into_keys().for_each(|field| *met.entry(field).or_insert(0) += 1);
    }
    for field in TABLE.iter().map(|row| row.field).filter(|field| field.is_in_frame()) {
        assert!(met.get(&field).is_some_and(|times| *times > 10), "{field:?}: {met:?}");
    }
}
