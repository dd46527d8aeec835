use super::build::Build;
use super::write::{self, NewFrame};
use super::*;
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{PcapBlockOwned, PcapNGSlice};
use proptest::prelude::*;

/// Everything that a reader says of a file that it is fed `piece` bytes at a time: the items with the frames' bytes, and
/// how it ended.
#[derive(Debug, PartialEq)]
struct Told {
    items: Vec<Item>,
    frames: Vec<Vec<u8>>,
    comments: Vec<Option<Vec<u8>>>,
    interfaces: Vec<Interface>,
    end: Result<(), Damage>,
}

impl Told {
    fn one(&self, index: usize) -> &Frame {
        let mut frames = self.items.iter().filter_map(|item| match item {
            Item::Frame(frame) => Some(frame),
            _ => None,
        });
        frames.nth(index).unwrap()
    }
}

fn read(file: &[u8], piece: usize) -> Told {
    let mut reader = Reader::new();
    let (mut items, mut frames, mut comments) = (vec![], vec![], vec![]);
    let (mut start, mut end) = (0, 0);
    let end = loop {
        match reader.step(&file[start..end]) {
            Ok(Step::Need(need)) => {
                assert!(need > end - start, "what is there is not asked for");
                assert!(need <= MAX_BLOCK as usize, "no absurd wishes");
                if end == file.len() {
                    break reader.end(&file[start..]);
                }
                end = (end + piece).min(file.len());
            }
            Ok(Step::Item { length, item }) => {
                if let Item::Frame(frame) = &item {
                    frames.push(file[start..end][frame.bytes.clone()].to_vec());
                    comments.push(reader.comment(&file[start..end], frame).map(<[u8]>::to_vec));
                    assert!(frame.wire_length as usize >= frame.bytes.len());
                    assert!((frame.interface as usize) < reader.interfaces().len());
                }
                items.push(item);
                assert!(length > 0 && start + length <= end);
                start += length;
                assert_eq!(reader.offset(), start as u64);
            }
            Err(damage) => {
                assert_eq!(reader.step(&file[start..end]), Err(damage), "damage stays");
                break Err(damage);
            }
        }
    };
    assert_eq!(reader.frames(), frames.len() as u64);
    Told { items, frames, comments, interfaces: reader.interfaces().to_vec(), end }
}

fn all(file: &[u8]) -> Told {
    read(file, file.len().max(1))
}

#[test]
fn every_kind_of_old_file_is_read() {
    for big in [false, true] {
        for (magic, scale, more) in [
            (0xa1b2_c3d4, 1000, &[][..]),
            (0xa1b2_3c4d, 1, &[]),
            (0xa1b2_cd34, 1000, &[0, 0, 0, 2, 0, 8, 4, 0]),
        ] {
            let mut build = Build::new(big);
            build.pcap(magic, (2, 4), 65535, 1);
            build.record([1_700_000_000, 123_456, 3, 60], more, b"abc");
            build.record([1_700_000_001, 0, 0, 0], more, b"");
            let told = all(&build.bytes);
            assert_eq!(told.end, Ok(()));
            assert_eq!(told.frames, [&b"abc"[..], b""]);
            let frame = told.one(0);
            assert_eq!(frame.time_ns, Some(1_700_000_000_000_000_000 + 123_456 * scale));
            assert_eq!((frame.wire_length, told.interfaces[0].snap), (60, 65535));
            let out = if more.is_empty() { Direction::Unknown } else { Direction::Out };
            assert_eq!(frame.direction, out);
            let Item::Section(section) = &told.items[0] else { panic!() };
            assert_eq!((section.format, section.big_endian), (Format::Pcap, big));
        }
    }
}

#[test]
fn old_versions_have_their_lengths_the_other_way_round() {
    for (version, lengths) in
        [((2, 2), [60, 3]), ((543, 0), [60, 3]), ((2, 3), [60, 3]), ((2, 3), [3, 60]), ((2, 4), [3, 60])]
    {
        let mut build = Build::new(false);
        build.pcap(0xa1b2_c3d4, version, 65535, 1);
        build.record([0, 0, lengths[0], lengths[1]], &[], b"abc");
        let told = all(&build.bytes);
        assert_eq!((told.one(0).wire_length, &told.frames[0][..]), (60, &b"abc"[..]), "{version:?}");
    }
}

#[test]
fn the_frame_check_sequence_is_no_part_of_the_frame() {
    let mut build = Build::new(false);
    build.pcap(0xa1b2_c3d4, (2, 4), 65535, 0x2400_0001);
    build.record([0, 0, 64, 64], &[], &[7; 64]);
    build.record([0, 0, 50, 64], &[], &[7; 50]);
    build.record([0, 0, 62, 64], &[], &[7; 62]);
    build.record([0, 0, 2, 2], &[], &[7; 2]);
    let told = all(&build.bytes);
    let lengths: Vec<_> = (0..4).map(|i| (told.frames[i].len(), told.one(i).wire_length)).collect();
    assert_eq!(lengths, [(60, 60), (50, 60), (60, 60), (0, 0)]);
    assert_eq!((told.interfaces[0].fcs, told.interfaces[0].link), (4, Link::ETHERNET));

    let mut build = Build::new(true);
    build.section();
    for fcs in [4, 32] {
        let option = build.option(13, &[fcs]);
        build.interface(1, 0, &[option]);
    }
    build.enhanced(0, 0, &[7; 64], 64, &[]);
    build.enhanced(1, 0, &[7; 64], 64, &[]);
    // Two bytes, as the flags of this frame say.
    let flags = build.option(2, &build.n32(2 << 5));
    build.enhanced(1, 0, &[7; 64], 64, &[flags]);
    let told = all(&build.bytes);
    assert_eq!(told.frames.iter().map(Vec::len).collect::<Vec<_>>(), [60, 60, 62]);
}

#[test]
fn sections_interfaces_and_resolutions_are_kept_apart() {
    let mut file = vec![];
    for big in [false, true] {
        let mut build = Build::new(big);
        build.section();
        let resolutions =
            [vec![], vec![9], vec![3], vec![0x80 | 10], vec![12], vec![0xff], vec![127], vec![0]];
        for resolution in &resolutions {
            let options: Vec<_> = resolution.iter().map(|r| build.option(9, &[*r])).collect();
            build.interface(1, 0, &options);
        }
        let offset = build.option(14, &build.n64(-5i64 as u64));
        build.interface(113, 0, &[offset]);
        for (interface, ticks) in
            [7_000_001, 7_000_001, 7, 1024 * 7 + 512, 7_000_000_001_999, u64::MAX, 3, 7, 7_000_000]
                .into_iter()
                .enumerate()
        {
            build.enhanced(interface as u32, ticks, &[big as u8], 1, &[]);
        }
        file.extend(build.bytes);
    }
    let told = all(&file);
    assert_eq!(told.end, Ok(()));
    for (section, first) in [(0, 0), (1, 9)] {
        let times: Vec<_> = (0..9).map(|i| told.one(first + i).time_ns).collect();
        let expected = [
            7_000_001_000,
            7_000_001,
            7_000_000,
            7_500_000_000,
            7_000_000_001,
            0,
            0,
            7_000_000_000,
            2_000_000_000,
        ];
        assert_eq!(times, expected.map(Some), "section {section}");
        assert_eq!(told.one(first + 8).interface, first as u32 + 8);
        assert_eq!(told.frames[first], [section]);
    }
    assert_eq!(told.interfaces[8].link, Link::LINUX_SLL);
}

#[test]
fn times_that_64_bits_do_not_hold_are_not_told() {
    assert_eq!(Resolution::NANO.to_ns(5, -1), None);
    assert_eq!(Resolution(0).to_ns(u64::MAX, 0), None);
    assert_eq!(Resolution::NANO.to_ns(u64::MAX, 1), None);
    assert_eq!(Resolution::NANO.to_ns(u64::MAX, i64::MIN), None);
    assert_eq!(Resolution::MICRO.from_ns(1_999), 1);
    assert_eq!(Resolution(0x80 | 127).from_ns(u64::MAX), u64::MAX);
    assert_eq!(Resolution(127).from_ns(u64::MAX), u64::MAX);
}

#[test]
fn old_packet_and_simple_blocks_statistics_and_comments_are_read() {
    for big in [false, true] {
        let mut build = Build::new(big);
        build.section();
        let options = [
            build.option(2, b"eth0"),
            build.option(3, b"the first"),
            build.option(11, b"\0tcp port 80"),
            build.option(12, b"Linux"),
            build.option(4711, b"unknown"),
        ];
        build.interface(1, 4, &options);
        let simple = [build.n32(60), b"wxyz".to_vec()];
        build.block(3, &simple);
        let old = [
            build.n16(0),
            build.n16(9),
            build.time(1 << 33),
            build.n32(3),
            build.n32(70),
            b"abc\0".to_vec(),
            build.option(1, b"an old one"),
        ];
        build.block(2, &old);
        let options = [
            build.option(2, &build.n32(2)),
            build.option(4, &build.n64(1 << 40)),
            build.option(1, b"hello"),
            build.n32(0),
        ];
        build.enhanced(0, 0, b"abcde", 5, &options);
        let statistics = [
            build.n32(0),
            build.time(1_000_000),
            build.option(1, b"counted"),
            build.option(2, &build.time(1)),
            build.option(3, &build.time(2)),
            build.option(4, &build.n64(u64::MAX)),
            build.option(5, &build.n64(5)),
            build.option(6, &build.n64(6)),
            build.option(7, &build.n64(7)),
            build.option(8, &build.n64(8)),
        ];
        build.block(5, &statistics);
        build.block(4, &[build.n32(0)]);
        build.block(0x0bad, &[build.n32(32473), b"anything".to_vec()]);
        let told = all(&build.bytes);
        assert_eq!(told.end, Ok(()));
        assert_eq!(told.frames, [&b"wxyz"[..], b"abc", b"abcde"]);
        assert_eq!(told.comments[1].as_deref(), Some(&b"an old one"[..]));
        assert_eq!(told.comments[2].as_deref(), Some(&b"hello"[..]));
        assert_eq!((told.one(0).time_ns, told.one(0).wire_length), (None, 60));
        assert_eq!((told.one(1).lost, told.one(1).time_ns), (Some(9), Some(8_589_934_592_000)));
        assert_eq!((told.one(2).lost, told.one(2).direction), (Some(1 << 40), Direction::Out));
        let Item::Statistics(found) = &told.items[5] else { panic!("{:?}", told.items[5]) };
        let expected = Statistics {
            interface: 0,
            time_ns: Some(1_000_000_000),
            start_ns: Some(1000),
            end_ns: Some(2000),
            received: Some(u64::MAX),
            dropped: Some(5),
            accepted: Some(6),
            os_dropped: Some(7),
            delivered: Some(8),
            comment: "counted".into(),
        };
        assert_eq!(**found, expected);
        assert_eq!(told.items[6..], [Item::Skipped(4), Item::Skipped(0x0bad)]);
        let interface = &told.interfaces[0];
        assert_eq!((&interface.name[..], &interface.filter[..]), ("eth0", "tcp port 80"));
    }
}

/// Damages, each with the words that must be in what is said of it.
#[test]
fn damage_is_told_with_its_place() {
    let good = || {
        let mut build = Build::new(false);
        build.section(); // 28 bytes
        build.interface(1, 0, &[]); // 20 bytes
        build.enhanced(0, 0, b"abcd", 4, &[]); // 36 bytes, from byte 48
        build.bytes
    };
    let with = |at: usize, word: u32| {
        let mut file = good();
        file[at..at + 4].copy_from_slice(&word.to_le_bytes());
        file
    };
    let cases = [
        (vec![], "the file ends within the file header at byte 0: 0 of at least 4 bytes are there"),
        (b"PK\x03\x04 zip".to_vec(), "magic number is 0x504b0304, not that of a pcap or pcapng file"),
        (good()[..80].to_vec(), "ends within the last record at byte 48: 32 of at least 36 bytes are there"),
        (with(52, 35), "the enhanced packet block at byte 48 is damaged: its length is 0x23"),
        (with(52, 1 << 30), "its length is 1073741824, more than 16777216"),
        (with(80, 40), "its length at its end is 0x28, not the length at its beginning"),
        (with(56, 1), "its interface is 0x1, not one of the section's interfaces"),
        (with(68, 5), "its captured length is 5, more than 4"),
        (with(68, u32::MAX), "its captured length is 4294967295, more than 4"),
        (with(8, 7), "the section header block at byte 0 is damaged: its byte order is 0x7"),
        (with(12, 2), "its version is 0x2, not 1"),
        (with(32, 16), "the interface description block at byte 28 is damaged: its length is 0x10"),
    ];
    for (file, words) in cases {
        let told = all(&file);
        let said = told.end.expect_err(words).to_string();
        assert!(said.contains(words), "'{said}' without '{words}'");
    }
    let mut build = Build::new(true);
    build.pcap(0xa1b2_c3d4, (2, 4), 65535, 1);
    build.record([0, 0, 300_000, 300_000], &[], &[]);
    let said = all(&build.bytes).end.unwrap_err().to_string();
    assert_eq!(said, "the record at byte 24 is damaged: its captured length is 300000, more than 262144");
    let mut build = Build::new(false);
    build.section();
    build.interface(1, 0, &[]);
    let options = [build.n16(1), build.n16(100)];
    build.enhanced(0, 0, b"abcd", 4, &options);
    let said = all(&build.bytes).end.unwrap_err().to_string();
    assert!(said.contains("its option's length is 100, more than 0"), "{said}");
}

/// One frame as both readers tell it: interface, ticks, captured bytes, length on the wire.
type Plain = (u32, u64, Vec<u8>, u32);

/// What pcap-parser says of a file of pcapng, section by section.
fn twin(file: &[u8]) -> Vec<Plain> {
    let (mut base, mut count) = (0, 0);
    let mut found = vec![];
    for block in PcapNGSlice::from_slice(file).unwrap() {
        let PcapBlockOwned::NG(block) = block.unwrap() else { panic!() };
        match block {
            pcap_parser::Block::SectionHeader(_) => base = count,
            pcap_parser::Block::InterfaceDescription(_) => count += 1,
            pcap_parser::Block::EnhancedPacket(epb) => found.push((
                base + epb.if_id,
                u64::from(epb.ts_high) << 32 | u64::from(epb.ts_low),
                epb.packet_data().to_vec(),
                epb.origlen,
            )),
            pcap_parser::Block::SimplePacket(spb) => {
                found.push((base, 0, spb.packet_data().to_vec(), spb.origlen))
            }
            _ => {}
        }
    }
    found
}

fn ours(file: &[u8]) -> Vec<Plain> {
    let told = all(file);
    assert_eq!(told.end, Ok(()));
    let frame = |i: usize| {
        let frame = told.one(i);
        (frame.interface, frame.time_ns.unwrap_or(0), told.frames[i].clone(), frame.wire_length)
    };
    (0..told.frames.len()).map(frame).collect()
}

#[derive(Debug, Clone)]
enum Part {
    Section(bool),
    Interface,
    Enhanced(u32, u64, Vec<u8>, u32, bool),
    Simple(Vec<u8>),
    Other(u32, Vec<u8>),
}

fn part() -> impl Strategy<Value = Part> {
    let data = || proptest::collection::vec(any::<u8>(), 0..80);
    prop_oneof![
        1 => any::<bool>().prop_map(Part::Section),
        2 => Just(Part::Interface),
        8 => (0..4u32, any::<u64>(), data(), 0..1000u32, any::<bool>())
            .prop_map(|(i, t, d, w, o)| Part::Enhanced(i, t, d, w, o)),
        2 => data().prop_map(Part::Simple),
        1 => (100..200u32, data()).prop_map(|(kind, data)| Part::Other(kind, data)),
    ]
}

/// A file of parts that makes sense: with a section first, an interface in each, no frame of an unknown interface.
/// Times are in nanoseconds.
fn file_of(parts: &[Part]) -> Vec<u8> {
    let mut build = Build::new(false);
    let mut interfaces = 0;
    let begin = [Part::Section(false)];
    for part in begin.iter().chain(parts) {
        match part {
            Part::Section(big) => {
                build.big = *big;
                build.section();
                interfaces = 0;
            }
            Part::Interface => {}
            Part::Enhanced(interface, ticks, data, cut, option) => {
                let options = if *option { vec![build.option(1, b"note"), build.n32(0)] } else { vec![] };
                build.enhanced(interface % interfaces, *ticks, data, data.len() as u32 + cut, &options);
            }
            Part::Simple(data) => {
                let fields = [build.n32(data.len() as u32), data.clone()];
                build.block(3, &fields);
            }
            Part::Other(kind, data) => build.block(*kind, std::slice::from_ref(data)),
        }
        if matches!(part, Part::Section(_) | Part::Interface) {
            let resolution = build.option(9, &[9]);
            build.interface(1, 0, &[resolution]);
            interfaces += 1;
        }
    }
    build.bytes
}

proptest! {
    #[test]
    fn the_twin_reads_the_same_blocks(parts in proptest::collection::vec(part(), 0..40)) {
        let file = file_of(&parts);
        prop_assert_eq!(ours(&file), twin(&file));
    }

    #[test]
    fn the_twin_reads_the_same_records(
        big: bool,
        nano: bool,
        records in proptest::collection::vec((any::<[u32; 2]>(), proptest::collection::vec(any::<u8>(), 0..80), 0..99u32), 0..30),
    ) {
        let mut build = Build::new(big);
        build.pcap(if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }, (2, 4), 65535, 1);
        for ([seconds, part], data, cut) in &records {
            build.record([*seconds, *part, data.len() as u32, data.len() as u32 + cut], &[], data);
        }
        let (mut rest, header) = pcap_parser::parse_pcap_header(&build.bytes).unwrap();
        prop_assert_eq!(header.is_bigendian(), big);
        let parse = if big { pcap_parser::parse_pcap_frame_be } else { pcap_parser::parse_pcap_frame };
        let mut expected = vec![];
        while !rest.is_empty() {
            let (after, frame) = parse(rest).unwrap();
            let ns = u64::from(frame.ts_sec) * 1_000_000_000 + u64::from(frame.ts_usec) * if nano { 1 } else { 1000 };
            expected.push((0, ns, frame.data.to_vec(), frame.origlen));
            rest = after;
        }
        prop_assert_eq!(ours(&build.bytes), expected);
    }

    #[test]
    fn pieces_make_no_difference(parts in proptest::collection::vec(part(), 0..20), piece in 1..100usize) {
        let file = file_of(&parts);
        prop_assert_eq!(all(&file), read(&file, piece));
    }

    #[test]
    fn a_file_that_is_cut_off_gives_what_was_before(
        parts in proptest::collection::vec(part(), 0..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let file = file_of(&parts);
        let at = cut.index(file.len());
        let (whole, cut) = (all(&file), all(&file[..at]));
        prop_assert_eq!(&whole.frames[..cut.frames.len()], &cut.frames[..]);
        prop_assert_eq!(&whole.items[..cut.items.len()], &cut.items[..]);
        if let Err(damage) = cut.end {
            prop_assert!(matches!(damage.fault, Fault::Truncated { .. }), "{damage}");
        }
    }

    #[test]
    fn damaged_bytes_never_panic(
        parts in proptest::collection::vec(part(), 1..20),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut file = file_of(&parts);
        for (at, byte) in hits {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Err(damage) = all(&file).end {
            prop_assert!(damage.offset <= file.len() as u64 && !damage.to_string().is_empty());
        }
    }

    #[test]
    fn any_bytes_never_panic(magic in 0..8usize, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let magics: [&[u8]; 8] = [
            b"", b"\x0a\x0d\x0d\x0a", b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d",
            b"\x4d\x3c\xb2\xa1\x02\0\x04\0", b"\x34\xcd\xb2\xa1\x02\0\x04\0",
            b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x1c\0\0\0",
        ];
        let file = [magics[magic], &bytes].concat();
        let _ = all(&file);
    }

    #[test]
    fn what_was_written_is_read(
        frames in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..80), 0..99u32, any::<u64>(), 0..2u32, 0..3u8, any::<Option<u64>>(), "[a-zä]{0,9}"),
            0..30,
        ),
        binary: bool,
    ) {
        let resolution = if binary { Resolution::MICRO } else { Resolution::NANO };
        let section = Section {
            hardware: "x86".into(), os: "Linux".into(), application: "a test".into(), comment: "all".into(),
            ..Section::default()
        };
        let interface = |name: &str| Interface {
            name: name.into(), description: "stamps: kernel".into(), filter: "tcp".into(), os: "Linux 6".into(),
            hardware: "veth".into(), snap: 96, resolution, ..Interface::default()
        };
        let interfaces = vec![interface("eth0"), interface("eth1")];
        let mut file = vec![];
        write::section(&mut file, &section);
        for interface in &interfaces {
            write::interface(&mut file, interface);
        }
        let directions = [Direction::Unknown, Direction::In, Direction::Out];
        for (bytes, cut, time_ns, interface, way, lost, comment) in &frames {
            let new = NewFrame {
                bytes, wire_length: bytes.len() as u32 + cut, time_ns: *time_ns, interface: *interface,
                direction: directions[usize::from(*way)], lost: *lost, comment,
            };
            write::frame(&mut file, &new, resolution);
        }
        let statistics = Statistics {
            interface: 1, time_ns: Some(8000), end_ns: Some(9000), dropped: Some(1), comment: "c".into(),
            ..Statistics::default()
        };
        write::statistics(&mut file, &statistics, resolution);

        let told = all(&file);
        prop_assert_eq!(told.end, Ok(()));
        prop_assert_eq!(&told.items[0], &Item::Section(Box::new(section)));
        prop_assert_eq!(told.items.last().unwrap(), &Item::Statistics(Box::new(statistics)));
        prop_assert_eq!(&told.interfaces, &interfaces);
        for (i, (bytes, cut, time, interface, way, lost, comment)) in frames.iter().enumerate() {
            let frame = told.one(i);
            let tick = if binary { 1000 } else { 1 };
            prop_assert_eq!(frame.time_ns, Some(time / tick * tick));
            prop_assert_eq!((&told.frames[i], frame.wire_length), (bytes, bytes.len() as u32 + cut));
            prop_assert_eq!((frame.interface, frame.lost), (*interface, *lost));
            prop_assert_eq!(frame.direction, directions[usize::from(*way)]);
            let said = told.comments[i].as_deref().unwrap_or_default();
            prop_assert_eq!(said, comment.as_bytes());
        }
        prop_assert_eq!(twin(&file).len(), frames.len());
    }

    #[test]
    fn what_was_written_as_pcap_is_read(
        frames in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..80), 0..99u32, any::<u64>()), 0..30),
        nano: bool,
    ) {
        let mut file = vec![];
        write::pcap_header(&mut file, Link::LINUX_SLL2, 96, nano);
        for (bytes, cut, time_ns) in &frames {
            let new = NewFrame { bytes, wire_length: bytes.len() as u32 + cut, time_ns: *time_ns, ..NewFrame::default() };
            write::pcap_frame(&mut file, &new, nano);
        }
        let told = all(&file);
        prop_assert_eq!(told.end, Ok(()));
        prop_assert_eq!((told.interfaces[0].link, told.interfaces[0].snap), (Link::LINUX_SLL2, 96));
        for (i, (bytes, cut, time)) in frames.iter().enumerate() {
            let tick = if nano { 1 } else { 1000 };
            let latest = u64::from(u32::MAX) * 1_000_000_000 + 999_999_999;
            prop_assert_eq!(told.one(i).time_ns, Some((*time).min(latest) / tick * tick));
            prop_assert_eq!((&told.frames[i], told.one(i).wire_length), (bytes, bytes.len() as u32 + cut));
        }
    }

    #[test]
    fn ticks_and_nanoseconds_agree(power in 0..=18u8, binary: bool, ns in 0..1u64 << 61) {
        let resolution = Resolution(if binary { 0x80 | power } else { power });
        let back = resolution.to_ns(resolution.from_ns(ns), 0);
        // Coarser ticks round down, by less than a tick; finer ones that do not fit stop at the largest.
        let per_second = if binary { 1u128 << power } else { 10u128.pow(power.into()) };
        if u128::from(ns) * per_second / 1_000_000_000 < u128::from(u64::MAX) {
            let back = back.unwrap();
            let tick = (1_000_000_000 / per_second.min(1_000_000_000)) as u64 + 1;
            prop_assert!(back <= ns && ns - back <= tick, "{back} for {ns}");
        }
    }
}

#[test]
fn an_interface_about_which_nothing_is_said_is_ethernet() {
    assert_eq!(Interface::default().link, Link::ETHERNET);
    let mut file = vec![];
    write::interface(&mut file, &Interface::default());
    // Type and length of the block, then the link type (draft-ietf-opsawg-pcapng section 4.2).
    assert_eq!(file[8..10], 1u16.to_le_bytes());
}
