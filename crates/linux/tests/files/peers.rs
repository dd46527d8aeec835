//! Files of other programs are read, and ours are read by them: the same frames, lengths and times.

use super::{frames_of, meta, open, reader, wish};
use crate::support::skip;
use linux::port::pcap::{Options, Writer};
use linux::port::{self, Direction, FrameDirection, Meta};
use linux::sys::netns;
use std::fs;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use wire::pcap::{Format, Interface, Resolution, Statistics};

/// True when the programs are there and this user may make a namespace; else says why not.
fn may_run(test: &str, programs: &[&str]) -> bool {
    for program in programs {
        if Command::new(program).arg("--version").stdin(Stdio::null()).output().is_err() {
            skip(test, &format!("{program} is not installed"));
            return false;
        }
    }
    if !nix::unistd::geteuid().is_root() {
        skip(test, "needs root (network namespaces)");
        return false;
    }
    true
}

fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    output
}

/// Ends a program that a failed test left.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a capturing program on the loopback interface of a new namespace and gives it datagrams of many sizes until it
/// has enough.
fn capture(program: &str, arguments: &[&str]) {
    let home = netns::create().unwrap();
    netns::within(home.as_fd(), || {
        run("ip", &["link", "set", "lo", "up"]);
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = Ends(command.spawn().unwrap());
        let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let target = to.local_addr().unwrap();
        let begun = Instant::now();
        let mut size = 0;
        let status = loop {
            if let Some(status) = child.0.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{program} does not end");
            from.send_to(&vec![size as u8; size % 1400], target).unwrap();
            size += 37;
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(status.success(), "{program} {arguments:?}: {status}");
    })
    .unwrap();
}

/// One line of a file: time, length on the wire, captured length, interface.
type Line = (u64, u32, u32, u32);

/// What tshark says of a file.
fn tshark(path: &Path) -> Vec<Line> {
    let mut arguments = vec!["-n", "-r", path.to_str().unwrap(), "-T", "fields"];
    for field in ["frame.time_epoch", "frame.len", "frame.cap_len", "frame.interface_id"] {
        arguments.extend(["-e", field]);
    }
    lines(&run("tshark", &arguments))
}

fn lines(output: &Output) -> Vec<Line> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let line = |line: &str| {
        let mut words = line.split('\t');
        let (seconds, part) = words.next().unwrap().split_once('.').unwrap();
        let part = format!("{part:0<9}");
        let ns = seconds.parse::<u64>().unwrap() * 1_000_000_000 + part[..9].parse::<u64>().unwrap();
        let mut number =
            || words.next().filter(|word| !word.is_empty()).map_or(0, |word| word.parse().unwrap());
        (ns, number(), number(), number())
    };
    text.lines().map(line).collect()
}

/// The bytes of the frames as tcpdump prints them.
fn tcpdump(path: &Path) -> Vec<Vec<u8>> {
    let output = run("tcpdump", &["-n", "-t", "-xx", "-r", path.to_str().unwrap()]);
    let mut frames: Vec<Vec<u8>> = vec![];
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((_, words)) = line.strip_prefix("\t0x").and_then(|line| line.split_once(':')) else {
            frames.push(vec![]);
            continue;
        };
        let digits: Vec<u8> = words.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        frames.last_mut().unwrap().extend(digits.chunks(2).map(byte));
    }
    frames
}

fn ours(path: &Path) -> Vec<(Vec<u8>, Meta)> {
    frames_of(reader(path).as_mut())
}

fn as_lines(frames: &[(Vec<u8>, Meta)]) -> Vec<Line> {
    frames.iter().map(|(b, m)| (m.stamp.ns, m.wire_length, b.len() as u32, m.interface)).collect()
}

/// Reads a file with all programs; they must agree. How many frames it has.
fn agree(path: &Path) -> usize {
    let frames = ours(path);
    assert_eq!(as_lines(&frames), tshark(path), "{}", path.display());
    let bytes: Vec<_> = frames.into_iter().map(|(bytes, _)| bytes).collect();
    assert!(bytes == tcpdump(path), "{}: other bytes than tcpdump", path.display());
    bytes.len()
}

#[test]
fn files_of_tcpdump_and_dumpcap_are_read() {
    if !may_run("files of tcpdump and dumpcap", &["tcpdump", "dumpcap", "tshark", "ip"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let cases = [
        ("tcpdump", "micro.pcap", vec!["--micro"], Format::Pcap, 6, ""),
        ("tcpdump", "nano.pcap", vec!["--nano", "-s", "100"], Format::Pcap, 9, ""),
        ("dumpcap", "dump.pcapng", vec!["-f", "udp"], Format::Pcapng, 9, "udp"),
        ("dumpcap", "dump.pcap", vec!["-P"], Format::Pcap, 6, ""),
        ("tshark", "shark.pcapng", vec!["-s", "80"], Format::Pcapng, 9, ""),
    ];
    for (program, name, more, format, resolution, filter) in cases {
        let file = path(name);
        let count = "40";
        let mut arguments = vec!["-i", "lo", "-c", count, "-w", &file];
        arguments.extend(more);
        if program == "tcpdump" {
            arguments.extend(["--immediate-mode", "-Z", "root"]);
        }
        capture(program, &arguments);
        assert_eq!(agree(Path::new(&file)), 40, "{name}");
        let port = open(Path::new(&file), Direction::Receive).unwrap();
        let receiver = port.receiver.unwrap();
        let settings: Vec<_> = port.settings.iter().map(|s| s.effective.clone()).collect();
        assert_eq!(settings[..2], [format.name(), "none"], "{name}");
        let interface = &receiver.interfaces()[0];
        assert_eq!((interface.resolution, &interface.filter[..]), (Resolution(resolution), filter), "{name}");
        if format == Format::Pcapng {
            assert_eq!(interface.name, "lo");
            assert!(interface.os.starts_with("Linux"), "{interface:?}");
        }
    }
    let wide = ours(Path::new(&path("shark.pcapng")));
    assert!(
        wide.iter().any(|(bytes, meta)| bytes.len() == 80 && meta.wire_length > 80),
        "cut frames are told"
    );
    converted(folder.path(), &path("dump.pcapng"), &path("nano.pcap"));
}

/// What editcap and mergecap make of such files.
fn converted(folder: &Path, pcapng: &str, nano: &str) {
    let expected = as_lines(&ours(Path::new(pcapng)));
    for format in ["pcap", "nsecpcap", "modpcap", "pcapng"] {
        let path = folder.join(format!("edit.{format}"));
        run("editcap", &["-F", format, pcapng, path.to_str().unwrap()]);
        let tick = if ["pcap", "modpcap"].contains(&format) { 1000 } else { 1 };
        let rounded: Vec<_> =
            expected.iter().map(|&(ns, wire, len, i)| (ns / tick * tick, wire, len, i)).collect();
        assert_eq!(as_lines(&ours(&path)), rounded, "{format}");
        assert_eq!(agree(&path), expected.len());
    }

    let keys = folder.join("keys");
    fs::write(&keys, format!("CLIENT_RANDOM {} {}\n", "11".repeat(32), "22".repeat(48))).unwrap();
    let secret = format!("tls,{}", keys.display());
    let path = folder.join("said.pcapng");
    run(
        "editcap",
        &[
            "--inject-secrets",
            &secret,
            "-a",
            "2:look here",
            "--capture-comment",
            "mine",
            pcapng,
            path.to_str().unwrap(),
        ],
    );
    assert_eq!(agree(&path), expected.len());
    let mut codec = wire::pcap::Reader::new();
    let (file, mut at, mut said) = (fs::read(&path).unwrap(), 0, vec![]);
    while let wire::pcap::Step::Item { length, item } = codec.step(&file[at..]).unwrap() {
        match item {
            wire::pcap::Item::Section(section) => said.push(section.comment.into_bytes()),
            wire::pcap::Item::Frame(frame) => {
                said.extend(codec.comment(&file[at..], &frame).map(<[u8]>::to_vec))
            }
            wire::pcap::Item::Skipped(kind) => said.push(kind.to_string().into_bytes()),
            _ => {}
        }
        at += length;
    }
    assert_eq!(said, [&b"mine"[..], b"10", b"look here"], "the comments, and the block of secrets skipped");

    for (format, name) in [("pcapng", "merge.pcapng"), ("pcap", "merge.pcap"), ("nsecpcap", "mergens.pcap")] {
        let path = folder.join(name);
        // Only pcapng tells interfaces apart, and mergecap takes `-I` only for it.
        let apart: &[&str] = if format == "pcapng" { &["-I", "none"] } else { &[] };
        let files = ["-w", path.to_str().unwrap(), pcapng, nano];
        run("mergecap", &[&["-F", format][..], apart, &files].concat());
        // tcpdump 4.99 does not read a file whose interfaces have different snap lengths.
        assert_eq!(as_lines(&ours(&path)), tshark(&path), "{name}");
        assert_eq!(ours(&path).len(), 80, "{name}");
        // An interface is known when its block was read, at the latest with its first frame.
        let mut receiver = reader(&path);
        frames_of(receiver.as_mut());
        assert_eq!(receiver.interfaces().len(), if format == "pcapng" { 2 } else { 1 }, "{name}");
    }
    let twice = folder.join("sections.pcapng");
    fs::write(&twice, [fs::read(pcapng).unwrap(), fs::read(pcapng).unwrap()].concat()).unwrap();
    let both = ours(&twice);
    assert_eq!(as_lines(&both).len(), 80);
    assert_eq!((both[0].1.interface, both[79].1.interface), (0, 1), "one section behind the other");
}

#[test]
fn frames_that_are_not_ethernet_are_told() {
    if !may_run("frames that are not Ethernet", &["tcpdump", "tshark", "ip"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (kind, name) in [("LINUX_SLL", "Linux cooked (SLL)"), ("LINUX_SLL2", "Linux cooked (SLL2)")] {
        let path = folder.path().join(kind);
        let file = path.to_str().unwrap();
        let more = ["-y", kind, "--immediate-mode", "-Z", "root"];
        capture("tcpdump", &[&["-i", "any", "-c", "20", "-w", file], &more[..]].concat());
        let refused = open(&path, Direction::Receive).unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains("not Ethernet"), "{refused}");
        let any = port::PortOptions { any_link: true, ..wish(Direction::Receive) };
        let port = port::open(&format!("pcap:{file}"), &any).unwrap();
        let mut receiver = port.receiver.unwrap();
        let frames = frames_of(receiver.as_mut());
        assert_eq!(as_lines(&frames), tshark(&path));
        assert_eq!(receiver.interfaces()[0].link.to_string(), name);
    }
}

/// Writes a file with two interfaces (pcapng) and thirty frames.
fn write(path: &Path, format: Format, resolution: Resolution) {
    let name = |name: &str| Interface {
        name: name.into(),
        description: "stamps: software, CLOCK_REALTIME".into(),
        filter: "udp".into(),
        os: "Linux".into(),
        ..Interface::default()
    };
    let interfaces = vec![name("eth7"), name("eth8")];
    let options =
        Options { format: Some(format), resolution, interfaces, directions: true, ..Options::default() };
    let mut writer = Writer::create(path.to_str().unwrap(), options).unwrap();
    for i in 0..30u32 {
        let bytes = vec![i as u8; 14 + i as usize * 45];
        let way = if i % 3 == 0 { FrameDirection::Out } else { FrameDirection::In };
        let wire_length = bytes.len() as u32 + i % 2 * 100;
        let interface = if format == Format::Pcapng { i % 2 } else { 0 };
        let ns = 1_700_000_000_123_456_789 + u64::from(i) * 1_000_001;
        writer.write(&bytes, &Meta { wire_length, interface, ..meta(ns, way) }).unwrap();
    }
    for interface in 0..2 {
        let statistics = Statistics {
            interface,
            time_ns: Some(1_700_000_001_000_000_000),
            received: Some(20),
            dropped: Some(3),
            os_dropped: Some(2),
            delivered: Some(15),
            comment: "queue 1, disk 0".into(),
            ..Statistics::default()
        };
        writer.interface_statistics(&statistics).unwrap();
    }
    assert_eq!(writer.finish().unwrap().frames, 30);
}

#[test]
fn other_programs_read_what_is_written() {
    if !may_run("other programs read what is written", &["tcpdump", "tshark", "capinfos"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, format, resolution, digits) in [
        ("ns.pcapng", Format::Pcapng, Resolution::NANO, "nanoseconds (9)"),
        ("us.pcapng", Format::Pcapng, Resolution::MICRO, "microseconds (6)"),
        ("ns.pcap", Format::Pcap, Resolution::NANO, "nanoseconds (9)"),
        ("us.pcap", Format::Pcap, Resolution::MICRO, "microseconds (6)"),
    ] {
        let path = folder.path().join(name);
        write(&path, format, resolution);
        assert_eq!(agree(&path), 30, "{name}");
        let said = String::from_utf8(run("capinfos", &["-M", path.to_str().unwrap()]).stdout).unwrap();
        assert!(said.contains(&format!("File timestamp precision:  {digits}")), "{name}: {said}");
        if format == Format::Pcapng {
            for words in [
                concat!("Capture application: pathlab ", env!("CARGO_PKG_VERSION")),
                "Name = eth7",
                "Name = eth8",
                "Description = stamps: software, CLOCK_REALTIME",
                "Filter string = udp",
                "Number of stat entries = 1",
                "Number of packets = 15",
            ] {
                assert!(said.contains(words), "{name} without '{words}': {said}");
            }
            let ways =
                ["-n", "-r", path.to_str().unwrap(), "-T", "fields", "-e", "frame.packet_flags_direction"];
            let ways = String::from_utf8(run("tshark", &ways).stdout).unwrap();
            let out = |line: &str| line.ends_with('2');
            assert_eq!(ways.lines().filter(|line| out(line)).count(), 10, "{ways}");
        }
        for ending in ["gz", "zst"] {
            let path = folder.path().join(format!("{name}.{ending}"));
            write(&path, format, resolution);
            assert_eq!(as_lines(&ours(&path)), tshark(&path), "{name}.{ending}");
        }
    }
}

#[test]
fn a_last_block_that_was_half_written_costs_one_frame() {
    if !may_run("a half-written block", &["tshark"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (format, name) in [(Format::Pcapng, "whole.pcapng"), (Format::Pcap, "whole.pcap")] {
        let path: PathBuf = folder.path().join(name);
        let interfaces = vec![Interface::default()];
        let options = Options { format: Some(format), interfaces, ..Options::default() };
        let mut writer = Writer::create(path.to_str().unwrap(), options).unwrap();
        for i in 0..10 {
            writer.write(&[i; 100], &meta(1_700_000_000_000_000_000, FrameDirection::In)).unwrap();
        }
        writer.finish().unwrap();
        let file = fs::read(&path).unwrap();
        for less in [1, 3, 50, 99, 110] {
            let path = folder.path().join(format!("cut{less}.{name}"));
            fs::write(&path, &file[..file.len() - less]).unwrap();
            let mut receiver = reader(&path);
            assert_eq!(receiver.receive(port::MAX_BATCH, port::Wait::Poll).unwrap().len(), 9);
            // Whoever wrote it was killed: no error, and the notes tell.
            let end = receiver.receive(port::MAX_BATCH, port::Wait::Poll).err();
            assert!(matches!(end, Some(port::PortError::Ended)), "{end:?}");
            let notes = receiver.notes().concat();
            assert!(
                notes.contains("file ends within") && notes.contains("9 frames are good before it"),
                "{notes}"
            );
            // tshark complains, too, but shows what is there.
            let path = path.to_str().unwrap();
            let output = Command::new("tshark")
                .args(["-n", "-r", path, "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len"])
                .output()
                .unwrap();
            assert_eq!(lines(&output).len(), 9, "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
