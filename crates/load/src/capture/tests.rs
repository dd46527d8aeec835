use super::*;
use linux::port::{Frames, Hand, Meta, Stamp};
use std::path::Path;

impl Default for CaptureOptions {
    /// Everything from nowhere, without end.
    fn default() -> Self {
        CaptureOptions {
            uri: String::new(),
            threads: 1,
            cpus: vec![],
            filter: None,
            snap: None,
            promiscuous: true,
            outgoing: true,
            stamps: StampSource::Software,
            only_count: false,
            count: None,
            duration: None,
            queue_bytes: 32 << 20,
            file: None,
        }
    }
}

/// Hears everything.
#[derive(Default)]
struct Ear {
    seconds: Vec<CaptureSecond>,
    opened: Option<std::sync::mpsc::Sender<()>>,
}

impl Listener for Ear {
    fn opened(&mut self, _settings: &[PortSetting]) -> Result<()> {
        if let Some(opened) = self.opened.take() {
            let _ = opened.send(());
        }
        Ok(())
    }

    fn second(&mut self, second: &CaptureSecond) -> Result<bool> {
        self.seconds.push(second.clone());
        Ok(true)
    }
}

/// Captures what `frames` makes (bytes and wire length, by number), sent through a wire in memory.
fn capture(
    name: &str,
    wish: CaptureOptions,
    count: u64,
    mut frame: impl FnMut(u64, &mut Vec<u8>) -> u32 + Send,
) -> Outcome {
    let uri = format!("mem:capture-{name}?chunk=4096");
    let mut far = port::open(&uri, &PortOptions::default()).unwrap();
    let wish = CaptureOptions { uri, ..wish };
    std::thread::scope(|scope| {
        let (opened, is_open) = std::sync::mpsc::channel();
        let mut ear = Ear { opened: Some(opened), ..Ear::default() };
        let wish = &wish;
        let capture = scope.spawn(move || run(wish, &mut ear).unwrap());
        is_open.recv().expect("the capture opens its end of the wire");
        let to = far.transmitter.as_mut().unwrap();
        let (mut frames, mut bytes) = (Frames::new(256, 4096), vec![]);
        let mut number = 0;
        while number < count {
            frames.clear();
            while number < count && !frames.is_full() {
                let wire_length = frame(number, &mut bytes);
                let stamp = Stamp { ns: 1_000_000_000 + number, source: StampSource::Software };
                frames.push(&bytes, Meta { wire_length, stamp, ..Meta::default() });
                number += 1;
            }
            let mut batch = frames.batch();
            let (all, mut from) = (batch.all(), 0);
            while from < all.len() {
                match to.transmit(&mut batch, &all[from..], Hand::Copy) {
                    Ok(sent) => from += sent.dealt,
                    Err(_) => break,
                }
                if from < all.len() {
                    std::thread::yield_now();
                }
            }
        }
        drop(far);
        capture.join().unwrap()
    })
}

fn file(path: &Path) -> Option<FileOptions> {
    Some(FileOptions { path: path.display().to_string(), ..FileOptions::default() })
}

fn read(path: &str) -> (u64, u64) {
    let wish = CaptureOptions { uri: format!("pcap:{path}"), ..CaptureOptions::default() };
    let report = run(&wish, &mut Ear::default()).unwrap().report;
    (report.captured, report.bytes)
}

/// The only block of statistics of a file, which must be its last block.
fn statistics_of(path: &str) -> wire::pcap::Statistics {
    use wire::pcap::{Item, Reader, Step};
    let file = std::fs::read(path).unwrap();
    let (mut reader, mut at, mut found) = (Reader::new(), 0, None);
    while let Step::Item { length, item } = reader.step(&file[at..]).unwrap() {
        at += length;
        assert!(found.is_none(), "{path}: something stands behind the statistics");
        if let Item::Statistics(statistics) = item {
            found = Some(*statistics);
        }
    }
    assert_eq!(at, file.len());
    found.unwrap_or_else(|| panic!("{path} has no statistics"))
}

/// A file with a frame of raw IP and an Ethernet frame, at interfaces of their own.
fn mixed(path: &Path) {
    use linux::port::pcap::{Options, Writer};
    use wire::pcap::Interface;
    let raw = Interface { link: Link(101), ..Interface::default() };
    let options = Options { interfaces: vec![raw, Interface::default()], ..Options::default() };
    let mut writer = Writer::create(path.to_str().unwrap(), options).unwrap();
    for interface in [0, 1] {
        let meta = Meta { wire_length: 60, interface, ..Meta::default() };
        writer.write(&[0x45; 60], &meta).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn frames_of_several_link_types_are_told_apart_and_stay_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to, pcap] = ["from.pcapng", "to.pcapng", "to.pcap"].map(|name| folder.path().join(name));
    mixed(&from);
    let of =
        |uri: &Path| CaptureOptions { uri: format!("pcap:{}", uri.display()), ..CaptureOptions::default() };
    let copy = run(&CaptureOptions { file: file(&to), ..of(&from) }, &mut Ear::default()).unwrap();
    assert_eq!(
        copy.report.census.talkers.len(),
        1,
        "raw IP has no hardware addresses: {:?}",
        copy.report.census
    );
    let wish = PortOptions { direction: Direction::Receive, any_link: true, ..PortOptions::default() };
    let mut copied = port::open(&of(&to).uri, &wish).unwrap().receiver.unwrap();
    let batch = copied.receive(9, port::Wait::Poll).unwrap();
    let links: Vec<Link> = (0..batch.len()).map(|i| batch.meta(i).link).collect();
    assert_eq!(links, [Link(101), Link::ETHERNET]);
    let refused = run(&CaptureOptions { file: file(&pcap), ..of(&from) }, &mut Ear::default()).unwrap();
    let why = refused.problem.unwrap().to_string();
    assert!(why.contains("one link type") && why.contains("write pcapng"), "{why}");
}

#[test]
fn a_file_is_not_written_over_while_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["from.pcapng", "same.pcapng"].map(|name| folder.path().join(name));
    mixed(&path);
    std::os::unix::fs::symlink(&path, &other).unwrap();
    let before = std::fs::read(&path).unwrap();
    let file = file(&other).map(|file| FileOptions { overwrite: true, ..file });
    let wish = CaptureOptions { uri: format!("pcap:{}", path.display()), file, ..CaptureOptions::default() };
    let refused = run(&wish, &mut Ear::default()).unwrap_err().to_string();
    assert!(refused.contains("read from this file"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn losses_count_in_the_file_that_was_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lossy.pcapng");
    let mut all = file(&path).unwrap();
    all.rotate_bytes = Some(40_000);
    let uri = "fault:mem:capture-lossy?lose=10%&seed=5".to_owned();
    let mut far = port::open("mem:capture-lossy", &PortOptions::default()).unwrap();
    let wish = CaptureOptions { uri, file: Some(all), ..CaptureOptions::default() };
    let report = std::thread::scope(|scope| {
        let (opened, is_open) = std::sync::mpsc::channel();
        let mut ear = Ear { opened: Some(opened), ..Ear::default() };
        let capture = scope.spawn(move || run(&wish, &mut ear).unwrap().report);
        is_open.recv().unwrap();
        let to = far.transmitter.as_mut().unwrap();
        let mut frames = Frames::new(100, 600);
        (0..100).for_each(|_| assert!(frames.push(&[3; 500], Meta::default())));
        for _ in 0..10 {
            let mut batch = frames.batch();
            let all = batch.all();
            assert_eq!(to.transmit(&mut batch, all, Hand::Copy).unwrap().dealt, 100);
            // The receiver shows what its port lost a few times a second.
            std::thread::sleep(Duration::from_millis(60));
        }
        drop(far);
        capture.join().unwrap()
    });
    let lost: u64 = report.drops.iter().map(|drop| drop.count).sum();
    assert_eq!((report.captured + lost, lost > 0), (1000, true), "{:?}", report.drops);
    let ends: Vec<_> = report.written.unwrap().files.iter().map(|file| statistics_of(file)).collect();
    let sum: u64 = ends.iter().map(|end| end.os_dropped.unwrap()).sum();
    assert!(ends.len() > 5 && sum == lost, "{lost} lost: {ends:?}");
    let with_loss = ends.iter().filter(|end| end.os_dropped > Some(0)).count();
    assert!(with_loss >= 2, "not all in the last file: {ends:?}");
}

#[test]
fn a_million_random_and_cut_frames_are_counted_exactly() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut expected = 0;
    let outcome = capture("million", CaptureOptions::default(), 1_000_000, |_, bytes| {
        bytes.resize(random.usize(..200), 0);
        if let Some(start) = bytes.get_mut(12..24) {
            random.fill(start);
        }
        let wire_length = bytes.len() as u32 + if random.bool() { random.u32(..100_000) } else { 0 };
        expected += u64::from(wire_length);
        wire_length
    });
    let report = outcome.report;
    assert_eq!((report.captured, report.after, report.filtered), (1_000_000, 0, Some(0)));
    assert_eq!(report.census.sizes.iter().map(|size| size.count).sum::<u64>(), 1_000_000);
    assert_eq!((report.bytes, report.ended.as_str()), (expected, "end of port"));
    assert!(outcome.problem.is_none() && report.account.is_none());
}

#[test]
fn a_count_is_honoured_exactly_and_files_hold_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.pcapng");
    let wish = CaptureOptions { count: Some(1234), file: file(&path), ..CaptureOptions::default() };
    let outcome = capture("count", wish, 100_000, |number, bytes| {
        *bytes = number.to_be_bytes().repeat(10);
        80
    });
    let report = &outcome.report;
    assert_eq!((report.captured, report.ended.as_str()), (1234, "count"), "{:?}", outcome.problem);
    let written = report.written.as_ref().unwrap();
    assert_eq!((written.frames, written.disordered), (1234, 0));
    assert_eq!(read(&written.files[0]), (1234, 1234 * 80));
}

#[test]
fn a_filter_counts_what_it_refuses() {
    let even = |number: u64, bytes: &mut Vec<u8>| {
        *bytes = vec![(number % 2) as u8; 60];
        60
    };
    // ldb [0]; jeq #0: 65535, else 0
    let program = [(0x30, 0, 0, 0), (0x15, 0, 1, 0), (6, 0, 0, 65535), (6, 0, 0, 0)];
    let instructions = program.map(|(code, if_true, if_false, k)| wire::filter::FilterInstruction {
        code,
        if_true,
        if_false,
        k,
    });
    let filter = Some(("even".to_owned(), Program::new(instructions.to_vec()).unwrap()));
    let report = capture("filter", CaptureOptions { filter, ..CaptureOptions::default() }, 5001, even).report;
    assert_eq!((report.captured, report.filtered), (2501, Some(2500)));
}

#[test]
fn files_rotate_and_only_the_newest_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("other-00001.pcapng"), "not ours").unwrap();
    let path = folder.path().join("ring.pcapng");
    let mut all = file(&path).unwrap();
    all.rotate_bytes = Some(100_000);
    let wish = CaptureOptions { file: Some(all.clone()), ..CaptureOptions::default() };
    let frame = |_, bytes: &mut Vec<u8>| {
        *bytes = vec![7; 500];
        500
    };
    let written = capture("rotate", wish.clone(), 1000, frame).report.written.unwrap();
    let (files, frames) = (written.files.clone(), written.files.iter().map(|f| read(f).0).sum::<u64>());
    assert!(files.len() >= 5 && files[0].ends_with("ring-00001.pcapng"), "{files:?}");
    assert_eq!((written.frames, frames), (1000, 1000));
    assert!(files.iter().all(|file| std::fs::metadata(file).unwrap().len() <= 101_000));

    let ends: Vec<_> = files.iter().map(|file| statistics_of(file)).collect();
    let delivered: u64 = ends.iter().map(|end| end.delivered.unwrap()).sum();
    assert_eq!(delivered, 1000, "every file ends with its own count: {ends:?}");
    for (end, file) in ends.iter().zip(&files) {
        assert_eq!((end.delivered, end.os_dropped), (Some(read(file).0), Some(0)));
        assert!(end.start_ns < end.end_ns && end.comment == "drops by place: port 0, queue 0", "{end:?}");
    }

    // The names are taken now: nothing is overwritten.
    let problem = run(&CaptureOptions { uri: "mem:nobody".into(), ..wish }, &mut Ear::default()).unwrap_err();
    assert!(problem.to_string().contains("ring-00001.pcapng"), "{problem}");

    all.path = folder.path().join("few.pcap").display().to_string();
    all.keep = Some(2);
    let wish = CaptureOptions { file: Some(all), ..CaptureOptions::default() };
    let written = capture("keep", wish, 1000, frame).report.written.unwrap();
    assert_eq!((written.files.len(), written.frames), (2, 1000));
    assert!(written.removed >= 3);
    assert!(folder.path().join("other-00001.pcapng").exists());
}

/// Mounts a disk of so many bytes for this thread and those that it starts, in a mount namespace that ends with them.
fn small_disk(folder: &Path, bytes: u64) -> nix::Result<()> {
    use nix::mount::{MsFlags, mount};
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    let size = format!("size={bytes}");
    mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), Some(size.as_str()))
}

fn drop_at(report: &CaptureReport, place: &str) -> u64 {
    report.drops.iter().find(|drop| drop.place == place).expect(place).count
}

/// A capture into a file that is there already in `folder`, on a disk that gets full; the report and what the file holds.
fn until_the_disk_is_full(folder: &Path, rotate_bytes: Option<u64>) -> Option<(Outcome, u64)> {
    std::thread::scope(|scope| {
        let alone = scope.spawn(|| {
            if let Err(why) = small_disk(folder, 256 << 10) {
                eprintln!("SKIP: a full disk: a small one cannot be mounted: {why}");
                return None;
            }
            let mut file = file(&folder.join("full.pcapng")).unwrap();
            file.rotate_bytes = rotate_bytes;
            let wish = CaptureOptions { file: Some(file), ..CaptureOptions::default() };
            let name = if rotate_bytes.is_some() { "full-rotate" } else { "full" };
            let outcome = capture(name, wish, 5000, |number, bytes| {
                *bytes = number.to_be_bytes().repeat(100);
                800
            });
            let files = outcome.report.written.as_ref().unwrap().files.clone();
            // The disk ends with this thread, so what it holds is read here. A file that was begun when nothing was left
            // may be empty.
            let full = |file: &&String| std::fs::metadata(file).is_ok_and(|meta| meta.len() > 0);
            let found = files.iter().filter(full).map(|file| read(file).0).sum();
            let bytes: u64 =
                files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|meta| meta.len()).sum();
            assert_eq!(outcome.report.written.as_ref().unwrap().bytes, bytes, "the length of what is kept");
            Some((outcome, found))
        });
        alone.join().unwrap()
    })
}

#[test]
fn a_disk_that_is_full_loses_nothing_silently() {
    for rotate in [None, Some(50_000)] {
        let folder = tempfile::tempdir().unwrap();
        let Some((outcome, found)) = until_the_disk_is_full(folder.path(), rotate) else { return };
        let report = &outcome.report;
        let problem = outcome.problem.expect("a full disk is trouble").to_string();
        assert!(problem.contains("No space left") && problem.contains("full"), "{problem}");
        assert_eq!(report.ended, "the capture could not be written");
        let written = report.written.as_ref().unwrap().frames;
        assert!(written > 100 && drop_at(report, "disk") > 0, "{report:?}");
        let sum = written + drop_at(report, "disk") + drop_at(report, "queue");
        assert_eq!(sum, report.captured, "every captured frame is written or lost at a named place");
        assert_eq!(found, written, "the disk holds what was said");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the host never saw that disk");
    }
}

#[test]
fn the_end_of_time_ends_it() {
    let wish = CaptureOptions {
        uri: "mem:capture-time".into(),
        duration: Some(Duration::from_millis(1300)),
        ..CaptureOptions::default()
    };
    let mut ear = Ear::default();
    let report = run(&wish, &mut ear).unwrap().report;
    assert_eq!((report.ended.as_str(), report.captured), ("duration", 0));
    assert!(!ear.seconds.is_empty());
    assert!(report.duration_ns >= 1_300_000_000);
}

#[test]
fn several_threads_need_a_port_that_can_be_shared() {
    let wish = CaptureOptions { uri: "mem:shared".into(), threads: 2, ..CaptureOptions::default() };
    let problem = run(&wish, &mut Ear::default()).unwrap_err().to_string();
    assert!(problem.contains("cannot be shared by 2 threads"), "{problem}");
}

/// A report in which nothing is empty.
fn full() -> CaptureReport {
    use record::capture::{CaptureAccount, StreamCount, Talker};
    let mut report =
        CaptureReport { filter: Some("ip".into()), notes: vec!["x".into()], ..CaptureReport::default() };
    report.account = Some(CaptureAccount {
        unknown: "x".into(),
        queues: vec![record::capture::QueueCount::default()],
        queues_unknown: "x".into(),
        ..CaptureAccount::default()
    });
    report.written = Some(Written::default());
    report.recorded = Some(Recorded::default());
    report.census.protocols = vec![record::capture::ProtocolCount::default()];
    report.census.talkers = vec![Talker::default()];
    report.census.streams = vec![StreamCount::default()];
    report
}

#[test]
fn every_field_is_documented() {
    fn names(value: &serde_json::Value, into: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => map.iter().for_each(|(name, value)| {
                into.push(name.clone());
                names(value, into);
            }),
            serde_json::Value::Array(items) => items.iter().for_each(|item| names(item, into)),
            _ => {}
        }
    }
    let documentation = include_str!("../../../../docs/json.md");
    let mut found = vec![];
    names(&serde_json::to_value(full()).unwrap(), &mut found);
    let mut seconds = Seconds::default();
    let second = seconds.next(&Shared::new(1, None), 1_000_000_000);
    names(&serde_json::to_value(second).unwrap(), &mut found);
    assert!(found.len() > 60, "{found:?}");
    let missing: Vec<_> = found.iter().filter(|name| !documentation.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/json.md does not mention {missing:?}");
}

#[test]
fn a_ring_of_blocks_may_be_late_unless_something_else_was_asked() {
    assert_eq!(patient("ring:eth0"), "ring:eth0?retire_ms=32");
    assert_eq!(patient("ring:eth0?vnet=off"), "ring:eth0?vnet=off&retire_ms=32");
    for as_it_is in ["ring:eth0?retire_ms=4", "ring:eth0?vnet=off&version=2", "int:eth0", "mem:ring:x", ""] {
        assert_eq!(patient(as_it_is), as_it_is);
    }
}
