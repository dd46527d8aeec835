use super::*;
use linux::port::{Frames, Hand, Meta, Stamp};
use std::path::Path;

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

    fn second(&mut self, second: &CaptureSecond) -> Result<()> {
        self.seconds.push(second.clone());
        Ok(())
    }
}

/// Captures what `frames` makes (bytes and wire length, by number), sent through a wire in memory.
fn capture(
    name: &str,
    wish: CaptureWish,
    count: u64,
    mut frame: impl FnMut(u64, &mut Vec<u8>) -> u32 + Send,
) -> Outcome {
    let uri = format!("mem:capture-{name}?chunk=4096");
    let mut far = port::open(&uri, &Wish::default()).unwrap();
    let wish = CaptureWish { uri, ..wish };
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

fn file(path: &Path) -> Option<FileWish> {
    Some(FileWish { path: path.display().to_string(), ..FileWish::default() })
}

fn read(path: &str) -> (u64, u64) {
    let wish = CaptureWish { uri: format!("pcap:{path}"), ..CaptureWish::default() };
    let report = run(&wish, &mut Ear::default()).unwrap().report;
    (report.captured, report.bytes)
}

#[test]
fn a_million_random_and_cut_frames_are_counted_exactly() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut expected = 0;
    let outcome = capture("million", CaptureWish::default(), 1_000_000, |_, bytes| {
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
    let wish = CaptureWish { count: Some(1234), file: file(&path), ..CaptureWish::default() };
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
    let instructions =
        program.map(|(code, if_true, if_false, k)| wire::filter::Instruction { code, if_true, if_false, k });
    let filter = Some(("even".to_owned(), Program::new(instructions.to_vec()).unwrap()));
    let report = capture("filter", CaptureWish { filter, ..CaptureWish::default() }, 5001, even).report;
    assert_eq!((report.captured, report.filtered), (2501, Some(2500)));
}

#[test]
fn files_rotate_and_only_the_newest_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("other-00001.pcapng"), "not ours").unwrap();
    let path = folder.path().join("ring.pcapng");
    let mut all = file(&path).unwrap();
    all.rotate_bytes = Some(100_000);
    let wish = CaptureWish { file: Some(all.clone()), ..CaptureWish::default() };
    let frame = |_, bytes: &mut Vec<u8>| {
        *bytes = vec![7; 500];
        500
    };
    let written = capture("rotate", wish.clone(), 1000, frame).report.written.unwrap();
    let (files, frames) = (written.files.clone(), written.files.iter().map(|f| read(f).0).sum::<u64>());
    assert!(files.len() >= 5 && files[0].ends_with("ring-00001.pcapng"), "{files:?}");
    assert_eq!((written.frames, frames), (1000, 1000));
    assert!(files.iter().all(|file| std::fs::metadata(file).unwrap().len() <= 101_000));

    // The names are taken now: nothing is overwritten.
    let problem = run(&CaptureWish { uri: "mem:nobody".into(), ..wish }, &mut Ear::default()).unwrap_err();
    assert!(problem.to_string().contains("ring-00001.pcapng"), "{problem}");

    all.path = folder.path().join("few.pcap").display().to_string();
    all.keep = Some(2);
    let wish = CaptureWish { file: Some(all), ..CaptureWish::default() };
    let written = capture("keep", wish, 1000, frame).report.written.unwrap();
    assert_eq!((written.files.len(), written.frames), (2, 1000));
    assert!(written.removed >= 3);
    assert!(folder.path().join("other-00001.pcapng").exists());
}

#[test]
fn a_disk_that_is_full_loses_nothing_silently() {
    if !Path::new("/dev/full").exists() {
        return eprintln!("SKIP: a full disk: there is no /dev/full");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.pcapng");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let wish = CaptureWish { uri: "mem:full".into(), file: file(&path), ..CaptureWish::default() };
    assert!(run(&wish, &mut Ear::default()).is_err(), "not even the header can be written, or it exists");
}

#[test]
fn the_end_of_time_ends_it() {
    let wish = CaptureWish {
        uri: "mem:capture-time".into(),
        duration: Some(Duration::from_millis(1300)),
        ..CaptureWish::default()
    };
    let mut ear = Ear::default();
    let report = run(&wish, &mut ear).unwrap().report;
    assert_eq!((report.ended.as_str(), report.captured, ear.seconds.len()), ("duration", 0, 1));
    assert!(report.duration_ns >= 1_300_000_000);
}

#[test]
fn several_threads_need_a_port_that_can_be_shared() {
    let wish = CaptureWish { uri: "mem:shared".into(), threads: 2, ..CaptureWish::default() };
    let problem = run(&wish, &mut Ear::default()).unwrap_err().to_string();
    assert!(problem.contains("cannot be shared by 2 threads"), "{problem}");
}

/// A report in which nothing is empty.
fn full() -> CaptureReport {
    use record::capture::{CaptureAccount, StreamCount, Talker};
    let mut report =
        CaptureReport { filter: Some("ip".into()), notes: vec!["x".into()], ..CaptureReport::default() };
    report.account = Some(CaptureAccount { unknown: "x".into(), ..CaptureAccount::default() });
    report.written = Some(Written::default());
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
