//! Capture files on disk: what other programs write is read, what is written is read by them, damage and full disks
//! are told.

mod peers;
#[path = "../support/mod.rs"]
mod support;

use linux::port::pcap::{Options, Writer};
use linux::port::{
    self, Direction, FrameDirection, Frames, Hand, Meta, Port, PortError, PortOptions, Receiver, Stamp,
    StampSource, Wait,
};
use std::path::Path;
use std::time::Duration;
use wire::filter::{FilterInstruction, Program};
use wire::pcap::{Interface, Statistics};

fn wish(direction: Direction) -> PortOptions {
    PortOptions { direction, ..PortOptions::default() }
}

fn open(path: &Path, direction: Direction) -> record::Result<Port> {
    port::open(&format!("pcap:{}", path.display()), &wish(direction))
}

fn reader(path: &Path) -> Box<dyn Receiver> {
    open(path, Direction::Receive).unwrap().receiver.unwrap()
}

/// Every frame of a file.
fn frames_of(receiver: &mut dyn Receiver) -> Vec<(Vec<u8>, Meta)> {
    let mut all = vec![];
    loop {
        match receiver.receive(port::MAX_BATCH, Wait::For(Duration::from_secs(60))) {
            Ok(batch) => {
                assert!(!batch.is_empty(), "a file has frames or an end");
                all.extend((0..batch.len()).map(|i| (batch.bytes(i).to_vec(), *batch.meta(i))));
            }
            Err(PortError::Ended) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

fn meta(ns: u64, way: FrameDirection) -> Meta {
    Meta { stamp: Stamp { ns, source: StampSource::Software }, way, ..Meta::default() }
}

#[test]
fn what_a_transmitter_wrote_a_receiver_reads() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.pcap", "a.pcapng", "a.pcap.gz", "a.pcapng.gz", "a.pcap.zst", "a.pcapng.zst"] {
        let path = folder.path().join(name);
        let mut port = open(&path, Direction::Transmit).unwrap();
        let to = port.transmitter.as_mut().unwrap();
        let mut expected = vec![];
        for round in 0..20u64 {
            let mut frames = Frames::new(100, 2000);
            for i in 0..100u64 {
                let number = round * 100 + i;
                let bytes = vec![number as u8; (number as usize * 7) % 1500];
                let meta = Meta {
                    wire_length: bytes.len() as u32 + 3,
                    ..meta(1_700_000_000_000_000_001 + number, FrameDirection::In)
                };
                assert!(frames.push(&bytes, meta));
                expected.push((bytes, meta.wire_length, meta.stamp.ns));
            }
            let mut batch = frames.batch();
            let all = batch.all();
            assert_eq!(to.transmit(&mut batch, all, Hand::Over).unwrap().dealt, 100);
        }
        to.flush(Duration::ZERO).unwrap();
        let counters = to.counters();
        assert_eq!((counters.offered, counters.accepted, counters.completed), (2000, 2000, Some(2000)));
        // What was flushed is readable while the writer still lives, as after a kill.
        let mut early = reader(&path);
        let mut seen = 0;
        while let Ok(batch) = early.receive(port::MAX_BATCH, Wait::Poll) {
            seen += batch.len();
        }
        assert_eq!(seen, 2000, "{name}");
        drop(port);
        let mut receiver = reader(&path);
        let found = frames_of(receiver.as_mut());
        let found: Vec<_> = found.into_iter().map(|(b, m)| (b, m.wire_length, m.stamp.ns)).collect();
        assert!(found == expected, "{name}");
        let counters = receiver.counters();
        assert_eq!((counters.frames, counters.cut), (2000, 2000));
        let refused = open(&path, Direction::Transmit).unwrap_err();
        assert!(refused.to_string().contains("exists already"), "{refused}");
    }
}

#[test]
fn a_writer_keeps_interfaces_statistics_and_directions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two.pcapng");
    let name = |name: &str| Interface { name: name.into(), ..Interface::default() };
    let options = Options { interfaces: vec![name("eth7")], ..Options::default() };
    let mut writer = Writer::create(path.to_str().unwrap(), options).unwrap();
    assert_eq!(writer.interface(name("eth8")).unwrap(), 1);
    writer.write(&[1; 60], &meta(5, FrameDirection::In)).unwrap();
    writer.write(&[2; 61], &Meta { interface: 1, ..meta(6, FrameDirection::Out) }).unwrap();
    let unknown = writer.write(&[3; 60], &Meta { interface: 2, ..meta(7, FrameDirection::In) }).unwrap_err();
    assert!(unknown.to_string().contains("no interface 2"), "{unknown}");
    let statistics =
        Statistics { interface: 1, dropped: Some(3), os_dropped: Some(4), ..Statistics::default() };
    writer.interface_statistics(&statistics).unwrap();
    let written = writer.bytes_written();
    let summary = writer.finish().unwrap();
    assert_eq!((summary.frames, summary.bytes), (2, written));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), written);

    let mut receiver = reader(&path);
    let found = frames_of(receiver.as_mut());
    assert_eq!(
        found.iter().map(|(_, m)| (m.interface, m.way)).collect::<Vec<_>>(),
        [(0, FrameDirection::In), (1, FrameDirection::Out)]
    );
    let names: Vec<_> = receiver.interfaces().iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["eth7", "eth8"]);
    let drops: Vec<_> = receiver.counters().drops.into_iter().map(|d| (d.name, d.count)).collect();
    assert_eq!(drops, [("recorded_ifdrop".to_owned(), 3), ("recorded_osdrop".to_owned(), 4)]);
}

#[test]
fn what_cannot_be_read_or_written_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let said = |path: &Path, direction| match open(path, direction) {
        Ok(port) => panic!("{port:?}"),
        Err(problem) => (problem.to_string(), problem.kind.exit_code()),
    };
    std::fs::write(path("text"), "this is no capture file").unwrap();
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("gz"), b"\x1f\x8b\x08\0\0\0\0\0\0\x03 and then nonsense").unwrap();
    std::fs::write(path("zst"), b"\x28\xb5\x2f\xfd\xff\xff\xff nonsense").unwrap();
    for (name, words) in [
        ("missing", "cannot be opened"),
        ("text", "magic number is 0x74686973, not that of a pcap or pcapng file"),
        ("empty", "the file ends within the file header at byte 0"),
        ("gz", "the compressed file is"),
        ("zst", "the compressed file is"),
    ] {
        let (what, code) = said(&path(name), Direction::Receive);
        assert!(what.contains(words) && what.contains(name) && code == 2, "{name}: {what} ({code})");
    }
    for (file, words) in [
        ("text", "exists already"),
        ("no/folder", "cannot be made"),
        ("a?format=erf", "format=erf cannot be used; it must be pcap or pcapng"),
        ("a?resolution=ps", "it must be ns or us"),
        ("a?compress=xz", "it must be gz, zst or none"),
        ("a?overwrite=1", "it must be yes or no"),
        ("a?colour=red", "no setting 'colour'"),
    ] {
        let (what, code) = said(&path(file), Direction::Transmit);
        assert!(what.contains(words) && code == 2, "{file}: {what}");
    }
    assert!(said(&path("text"), Direction::Both).0.contains("not both at once"));
    assert!(!path("a").exists(), "a setting that is wrong makes no file");
    let replaced = format!("{}?overwrite=yes", path("text").display());
    drop(open(Path::new(&replaced), Direction::Transmit).unwrap());
    assert_eq!(frames_of(reader(&path("text")).as_mut()), [], "replaced because that was asked for");
}

#[test]
fn snap_and_filter_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcapng");
    let options = Options { interfaces: vec![Interface::default()], ..Options::default() };
    let mut writer = Writer::create(path.to_str().unwrap(), options).unwrap();
    for length in [10, 64, 65, 1500] {
        writer.write(&vec![1; length], &meta(7, FrameDirection::In)).unwrap();
    }
    writer.finish().unwrap();
    let wish = PortOptions { snap: Some(64), ..wish(Direction::Receive) };
    let mut receiver = port::open(&format!("pcap:{}", path.display()), &wish).unwrap().receiver.unwrap();
    let found = frames_of(receiver.as_mut());
    let lengths: Vec<_> = found.iter().map(|(bytes, meta)| (bytes.len(), meta.wire_length)).collect();
    assert_eq!(lengths, [(10, 10), (64, 64), (64, 65), (64, 1500)]);
    let counters = receiver.counters();
    assert_eq!((counters.frames, counters.cut, counters.bytes), (4, 2, 10 + 64 + 65 + 1500));

    // Load the length; at least 65: take all, else nothing.
    let instruction = |code, if_false, k| FilterInstruction { code, if_true: 0, if_false, k };
    let program = [
        instruction(0x80, 0, 0),
        instruction(0x35, 1, 65),
        instruction(6, 0, u32::MAX),
        instruction(6, 0, 0),
    ];
    let wish = PortOptions { filter: Some(Program::new(program.into()).unwrap()), ..wish };
    let mut receiver = port::open(&format!("pcap:{}", path.display()), &wish).unwrap().receiver.unwrap();
    let lengths: Vec<_> = frames_of(receiver.as_mut()).iter().map(|(_, meta)| meta.wire_length).collect();
    assert_eq!((lengths, receiver.counters().frames), (vec![65, 1500], 2));
}

#[test]
fn frames_that_are_not_finished_are_finished() {
    use wire::offload::{Offload, Partial, SegmentKind, Segments};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcapng");
    // Ethernet, IPv4 (20 bytes), UDP: 8 + 3000 bytes; the checksum field holds the pseudo header's sum.
    let mut frame = vec![0; 14 + 28 + 3000];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&3028u16.to_be_bytes());
    (frame[22], frame[23]) = (64, 17);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..42].copy_from_slice(&[0, 7, 0, 9, 0x0b, 0xc0, 0, 0]);
    let pseudo = 0x0a00 + 1 + 0x0a00 + 2 + 17 + 3008u16;
    frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
    let partial = Some(Partial { start: 34, offset: 6 });
    let segments = Some(Segments { kind: SegmentKind::Udp, size: 1000, header: 42, ecn: false });
    let offloads = [
        Offload { partial, ..Offload::NONE },
        Offload { partial, segments, verified: false },
        Offload { partial: Some(Partial { start: 9000, offset: 6 }), ..Offload::NONE },
    ];
    let mut frames = Frames::new(4, 4000);
    for offload in offloads {
        assert!(frames.push(&frame, Meta { offload, ..meta(1, FrameDirection::In) }));
    }
    // Cut short on the way here: nothing can be summed.
    let cut = Meta { offload: offloads[0], wire_length: 3042, ..meta(1, FrameDirection::In) };
    assert!(frames.push(&frame[..100], cut));
    let mut port = open(&path, Direction::Transmit).unwrap();
    let to = port.transmitter.as_mut().unwrap();
    let mut batch = frames.batch();
    let all = batch.all();
    let sent = to.transmit(&mut batch, all, Hand::Copy).unwrap();
    assert_eq!((sent.dealt, sent.refused), (4, 1));
    let counters = to.counters();
    assert_eq!(
        (counters.offered, counters.accepted, counters.completed_checksums, counters.segments),
        (4, 3, 1, 3)
    );
    assert_eq!(batch.bytes(0), &frame[..], "the caller's frame is as it was");
    drop(port);
    let found = frames_of(reader(&path).as_mut());
    let lengths: Vec<_> = found.iter().map(|(bytes, meta)| (bytes.len(), meta.wire_length)).collect();
    assert_eq!(lengths, [(3042, 3042), (1042, 1042), (1042, 1042), (1042, 1042), (100, 3042)]);
    for (bytes, _) in &found[..4] {
        let checks = wire::repair::check(bytes);
        assert_eq!(checks.transport.map(|(_, check)| check), Some(wire::repair::Check::Right));
    }
}

#[test]
fn a_pipe_is_waited_for_as_long_as_the_caller_says() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for name in ["plain", "pcap.gz", "pcapng.zst"] {
        // Both ends of the pipe open at once, so neither waits for the other; the writer opens an existing file.
        let held = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let compress = name.rsplit_once('.').map_or("none", |(_, ending)| ending);
        let uri = format!("{}?compress={compress}", pipe.display());
        let mut receiver = reader(&pipe);
        assert!(receiver.receive(9, Wait::Poll).unwrap().is_empty(), "nothing came");
        assert!(receiver.receive(9, Wait::For(Duration::from_millis(3))).unwrap().is_empty());
        let mut port = open(Path::new(&uri), Direction::Transmit).unwrap();
        let to = port.transmitter.as_mut().unwrap();
        for round in 0..3u8 {
            let mut frames = Frames::new(5, 100);
            for _ in 0..5 {
                assert!(frames.push(&[round; 80], meta(u64::from(round), FrameDirection::In)));
            }
            let mut batch = frames.batch();
            let all = batch.all();
            to.transmit(&mut batch, all, Hand::Over).unwrap();
            to.flush(Duration::ZERO).unwrap();
            let mut seen = 0;
            while seen < 5 {
                let lent = receiver.receive(9, Wait::For(Duration::from_secs(60))).unwrap();
                assert!(!lent.is_empty(), "{name}: flushed frames did not come");
                assert!((0..lent.len()).all(|i| lent.bytes(i) == [round; 80]));
                seen += lent.len();
            }
            assert!(receiver.receive(9, Wait::Poll).unwrap().is_empty());
        }
        drop((port, held));
        let over = receiver.receive(9, Wait::For(Duration::from_secs(60)));
        assert!(matches!(over, Err(PortError::Ended)), "{name}");
    }
}

/// A disk of so many bytes, in a mount namespace of the calling thread, which must end with the test.
fn small_disk(folder: &Path, bytes: u64) {
    use nix::mount::{MsFlags, mount};
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), Some(format!("size={bytes}").as_str()))
        .unwrap();
}

#[test]
fn a_full_disk_leaves_whole_frames_and_says_how_many() {
    if !nix::unistd::geteuid().is_root() {
        support::skip("a full disk", "needs root (mounts)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let fill = |name: &str| {
        small_disk(folder.path(), 1 << 20);
        let path = folder.path().join(name);
        let mut port = open(&path, Direction::Transmit).unwrap();
        let to = port.transmitter.as_mut().unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        let mut given = 0u64;
        let error = loop {
            let mut frames = Frames::new(64, 1000);
            while !frames.is_full() {
                let bytes: Vec<u8> = (0..random.usize(14..900)).map(|_| random.u8(..)).collect();
                frames.push(&bytes, meta(given, FrameDirection::In));
                given += 1;
            }
            let mut batch = frames.batch();
            let all = batch.all();
            match to.transmit(&mut batch, all, Hand::Over) {
                Ok(sent) => assert_eq!((sent.dealt, sent.refused), (64, 0)),
                Err(error) => break error.to_string(),
            }
            assert!(given < 100_000, "the disk never got full");
        };
        let counters = to.counters();
        let lost = counters.drops.iter().find(|drop| drop.place == "disk").unwrap().count;
        assert_eq!(counters.offered, counters.accepted + lost, "every frame is told");
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        let kept = format!("{} frames are safely in it", record::unit::count(counters.accepted));
        assert!(error.contains(&kept), "{error}");
        assert!(error.contains("No space left"), "{error}");
        assert!(to.flush(Duration::ZERO).is_err(), "it stays failed");
        drop(port);
        let mut receiver = reader(&path);
        let mut found = 0;
        let end = loop {
            match receiver.receive(port::MAX_BATCH, Wait::Poll) {
                Ok(batch) => found += batch.len() as u64,
                Err(end) => break end,
            }
        };
        (counters.accepted, found, matches!(end, PortError::Ended))
    };
    for name in ["full.pcapng", "full.pcap", "full.pcapng.gz", "full.pcap.zst"] {
        let (safe, found, whole) = std::thread::scope(|scope| scope.spawn(|| fill(name)).join())
            .unwrap_or_else(|panic| {
                std::panic::resume_unwind(panic);
            });
        if name.ends_with("pcap") || name.ends_with("pcapng") {
            assert!(
                whole && safe == found && safe > 1000,
                "{name}: {safe} safe, {found} found, whole: {whole}"
            );
        } else {
            assert!(safe <= found, "{name}: {safe} safe, {found} found");
        }
    }
}

/// Not a test of its own: what the next one starts and kills. It writes frames without end and flushes now and then.
#[test]
fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os("PATHLAB_TEST_WRITES_TO") else { return };
    let options = Options { interfaces: vec![Interface::default()], ..Options::default() };
    let mut writer = Writer::create(path.to_str().unwrap(), options).unwrap();
    for number in 0u64.. {
        writer.write(&number.to_be_bytes().repeat(10), &meta(number, FrameDirection::In)).unwrap();
        if number % 1000 == 999 {
            writer.flush().unwrap();
            println!("flushed {}", number + 1);
        }
    }
}

#[test]
fn what_was_flushed_survives_a_kill() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().unwrap();
    for name in ["k.pcapng", "k.pcap", "k.pcapng.gz", "k.pcap.zst"] {
        let path = folder.path().join(name);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writes_until_it_is_killed", "--nocapture"])
            .env("PATHLAB_TEST_WRITES_TO", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let flushed = lines.filter_map(|line| line.split("flushed ").nth(1)?.parse::<u64>().ok()).nth(20);
        child.kill().unwrap();
        child.wait().unwrap();
        let (mut receiver, mut found) = (reader(&path), 0u64);
        let end = loop {
            match receiver.receive(port::MAX_BATCH, Wait::Poll) {
                Ok(batch) => {
                    for i in 0..batch.len() {
                        assert_eq!(batch.bytes(i), found.to_be_bytes().repeat(10), "{name}");
                        found += 1;
                    }
                }
                Err(end) => break end,
            }
        };
        assert!(matches!(end, PortError::Ended), "{name}: {end}");
        assert!(flushed.is_some_and(|flushed| found >= flushed), "{name}: {found} of {flushed:?} flushed");
    }
}

#[test]
fn a_million_random_frames_are_counted_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("million.pcapng");
    let oversized = vec![0xee; wire::pcap::MAX_FRAME as usize + 1];
    let bytes: Vec<u8> = (0..4096u32).map(|i| ((i * 7919) >> 3) as u8).collect();
    // Length here, bytes cut off, and where in `bytes` it begins.
    let frame = |random: &mut fastrand::Rng| {
        let length = if random.u8(..) == 0 { random.usize(0..3000) } else { random.usize(0..80) };
        let cut = if random.bool() { 0 } else { random.u32(..2000) };
        (length, cut, random.usize(0..1000))
    };
    let mut random = fastrand::Rng::with_seed(20);
    let interfaces = vec![Interface::default(), Interface::default()];
    let mut writer =
        Writer::create(path.to_str().unwrap(), Options { interfaces, ..Options::default() }).unwrap();
    let (mut written, mut refused, mut cut_frames, mut wire_bytes) = (0u64, 0u64, 0u64, 0u64);
    for number in 0..1_000_000u64 {
        if number % 997 == 0 {
            assert!(writer.write(&oversized, &meta(number, FrameDirection::In)).is_err());
            refused += 1;
            continue;
        }
        let (length, cut, from) = frame(&mut random);
        let wire_length = length as u32 + cut;
        let meta = Meta { wire_length, interface: (number % 2) as u32, ..meta(number, FrameDirection::In) };
        writer.write(&bytes[from..from + length], &meta).unwrap();
        (written, cut_frames) = (written + 1, cut_frames + u64::from(cut > 0));
        wire_bytes += u64::from(wire_length);
    }
    assert_eq!((writer.frames(), written + refused), (written, 1_000_000));
    assert_eq!(writer.finish().unwrap().frames, written);

    let (mut random, mut number) = (fastrand::Rng::with_seed(20), 0u64);
    let mut receiver = reader(&path);
    loop {
        let limit = 1 + number as usize % 600;
        let lent = match receiver.receive(limit, Wait::Poll) {
            Ok(lent) => lent,
            Err(PortError::Ended) => break,
            Err(error) => panic!("{error}"),
        };
        assert!(!lent.is_empty() && lent.len() <= limit);
        for i in 0..lent.len() {
            number += u64::from(number % 997 == 0);
            let (length, cut, from) = frame(&mut random);
            let meta = lent.meta(i);
            assert_eq!(lent.bytes(i), &bytes[from..from + length], "frame {number}");
            assert_eq!((meta.wire_length, meta.stamp.ns), (length as u32 + cut, number));
            assert_eq!(u64::from(meta.interface), number % 2);
            number += 1;
        }
    }
    let counters = receiver.counters();
    assert_eq!((counters.frames, counters.cut, counters.bytes), (written, cut_frames, wire_bytes));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever a file holds, a receiver ends with an error or the end, and counts what it lent.
    #[test]
    fn any_file_is_read_or_refused(
        head in 0..5usize,
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
    ) {
        let heads: [&[u8]; 5] = [
            b"", b"\x1f\x8b\x08\0\0\0\0\0\0\x03", b"\x28\xb5\x2f\xfd",
            b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0",
            b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x1c\0\0\0\
              \x01\0\0\0\x14\0\0\0\x01\0\0\0\0\0\0\0\x14\0\0\0",
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("any");
        std::fs::write(&path, [heads[head], &bytes].concat()).unwrap();
        if let Ok(port) = open(&path, Direction::Receive) {
            let mut receiver = port.receiver.unwrap();
            let mut seen = 0;
            while let Ok(batch) = receiver.receive(3, Wait::Poll) {
                assert!(!batch.is_empty());
                seen += batch.len() as u64;
            }
            assert_eq!(receiver.counters().frames, seen);
        }
    }
}
