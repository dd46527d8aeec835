//! Halves as two hosts would write them, and all that can be wrong with a pair of them.

use super::*;
use proptest::prelude::*;
use record::PlaceDrop;
use record::capture::{CaptureAccount, CaptureReport};
use record::half::{Identity, Numbering, SCHEMA as HALF};
use record::send::{SendLedger, SendReport};
use record::snapshot::{LinkSample, NodeSnapshot};
use record::traffic::Schedule;

/// The sending is from 1000 to 2000 on the sender's clock, the capture from 500 to 2500 on its own.
const SENDING: (u64, u64) = (1_000_000, 2_000_000);
const CAPTURING: (u64, u64) = (500_000, 2_500_000);

fn counted(at: u64, interface: &str, index: u32, counters: &[(&str, u64)]) -> Snapshot {
    let counters = counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let link = LinkSample {
        name: interface.into(),
        index,
        mtu: 1500,
        up: true,
        carrier: true,
        counters,
        ..LinkSample::default()
    };
    let node = NodeSnapshot { links: vec![link], ..NodeSnapshot::default() };
    Snapshot { begun_ns: at, ended_ns: at, nodes: [("host".into(), node)].into(), ..Snapshot::default() }
}

fn half(node: &str, interface: &str, namespace: u64, (begun_ns, ended_ns): (u64, u64)) -> Half {
    Half {
        schema: HALF.into(),
        node: node.into(),
        identity: Identity {
            boot_id: "boot".into(),
            time_namespace: 1,
            network_namespace: namespace,
            realtime_offset_ns: 7_000_000_000,
        },
        interface: interface.into(),
        begun_ns,
        ended_ns,
        ..Half::default()
    }
}

/// A sender that offered so many frames, all of which its interface transmitted.
fn sending(frames: u64) -> Half {
    let report = SendReport {
        port: "int:a0".into(),
        frames: SendLedger {
            asked: frames,
            offered: frames,
            accepted: frames,
            transmitted: frames,
            ..SendLedger::default()
        },
        bytes: frames * 60,
        seconds: 1.0,
        schedule: Schedule { requested_per_second: Some(frames as f64), ..Schedule::default() },
        ..SendReport::default()
    };
    let numbering = Numbering { header: "message".into(), stream: 3, first: 0 };
    let sent = SentHalf { report, numbering, frame_bytes: 60, family: 4, ..SentHalf::default() };
    let counters = |frames| [("tx_packets", frames), ("tx_bytes", frames * 60), ("tx_dropped", 0)];
    Half {
        before: counted(SENDING.0 - 10, "a0", 2, &counters(40)),
        after: counted(SENDING.1 + 10, "a0", 2, &counters(40 + frames)),
        sent: Some(sent),
        ..half("a", "a0", 11, SENDING)
    }
}

fn latency() -> Option<Latency> {
    crate::sample::latency(1000, 90)
}

/// A capture of these numbers among frames of others.
fn capturing(first: u64, last: u64, unique: u64, others: u64) -> Half {
    let stream = StreamCount {
        header: "message".into(),
        flow: "10.0.0.1:1 > 10.0.0.2:9".into(),
        stream: 3,
        seen: unique,
        bytes: unique * 60,
        unique,
        first,
        last,
        missing: last + 1 - first - unique,
        reordered: Some(0),
        sent_first_ns: Some(SENDING.0),
        sent_last_ns: Some(SENDING.1),
        delay_ns: latency(),
        ..StreamCount::default()
    };
    let received = unique + others;
    let mut captured = CaptureReport {
        port: "ring:b0".into(),
        captured: received,
        filtered: Some(0),
        account: Some(CaptureAccount {
            interface: "b0".into(),
            received: Some(received),
            sent: Some(0),
            captured: received,
            filtered: Some(0),
            residual: Some(0),
            ..CaptureAccount::default()
        }),
        ..CaptureReport::default()
    };
    captured.census.streams = vec![stream];
    Half {
        before: counted(CAPTURING.0, "b0", 5, &[("rx_packets", 9), ("rx_missed_errors", 1)]),
        after: counted(CAPTURING.1, "b0", 5, &[("rx_packets", 9 + received), ("rx_missed_errors", 1)]),
        captured: Some(captured),
        ..half("b", "b0", 12, CAPTURING)
    }
}

fn joined(sending: &Half, capturing: &Half) -> JoinReport {
    join(("s.json", sending), ("c.json", capturing), None).unwrap()
}

fn refused(sending: &Half, capturing: &Half) -> String {
    join(("s.json", sending), ("c.json", capturing), None).unwrap_err().to_string()
}

/// `station residual name=count…` of every station.
fn stations(report: &JoinReport) -> Vec<String> {
    let ledger = report.run.tests[0].ledger.as_ref().unwrap();
    let one = |station: &record::Station| {
        let drops: Vec<_> = station.drops.iter().map(|d| format!(" {}={}", d.name, d.count)).collect();
        format!("{} {}{}", station.station, station.residual, drops.concat())
    };
    ledger.stations.iter().map(one).collect()
}

#[test]
fn copies_that_the_sender_made_are_duplicates_at_the_capture_and_not_missing() {
    // 1,000 were offered and 10 copies made of them; on the way two frames are lost that were not copied.
    let mut sending = sending(1010);
    let frames = &mut sending.sent.as_mut().unwrap().report.frames;
    (frames.asked, frames.offered, frames.duplicated) = (1000, 1000, 10);
    let mut capturing = capturing(0, 999, 998, 10);
    let stream = &mut capturing.captured.as_mut().unwrap().census.streams[0];
    (stream.seen, stream.duplicates) = (1008, 10);
    let report = joined(&sending, &capturing);
    assert_eq!(
        stations(&report),
        ["app send 0", "port a0 0", "link a0 0", "path to b0 2", "tap b0 0", "app receive 0 duplicate=10"]
    );
    assert_eq!(report.missing, 2);
    let test = &report.run.tests[0];
    let notes = test.sender.notes.concat();
    assert!(notes.contains("10 frames more were sent: copies that fault: made"), "{notes}");
    let ledger = test.ledger.as_ref().unwrap();
    assert_eq!((ledger.sent, ledger.received, ledger.stations[0].made), (1000, 998, 10));
    assert_eq!(crate::table::loss_percent(test), Some(0.2), "a copy is neither sent nor lost");
    assert!(report.why.contains("2 of 1,000 frames are missing"), "{}", report.why);
}

#[test]
fn messages_with_a_wrong_checksum_are_damaged_and_none_of_others() {
    // Of 1,000 frames came 997 as they were sent; of three a bit was wrong, in one case a bit of its port.
    let mut capturing = capturing(0, 999, 997, 500);
    let captured = capturing.captured.as_mut().unwrap();
    captured.census.streams[0].damaged = 2;
    captured.census.marks = vec![NamedCount { name: "damaged_messages".into(), count: 3 }];
    let received = captured.captured + 3;
    captured.captured = received;
    let account = captured.account.as_mut().unwrap();
    (account.captured, account.received) = (received, Some(received));
    capturing.after = counted(CAPTURING.1, "b0", 5, &[("rx_packets", 9 + received), ("rx_missed_errors", 1)]);
    let report = joined(&sending(1000), &capturing);
    assert_eq!(
        stations(&report),
        ["app send 0", "port a0 0", "link a0 0", "path to b0 1", "tap b0 0", "app receive 0 damaged=2"]
    );
    let notes = report.run.tests[0].receiver.notes.concat();
    assert!(notes.contains("1 message with a wrong checksum"), "{notes}");
}

#[test]
fn frames_that_were_cut_before_their_numbers_are_not_missing() {
    let mut capturing = capturing(0, 999, 1000, 0);
    let captured = capturing.captured.as_mut().unwrap();
    captured.cut = 1000;
    joined(&sending(1000), &capturing);
    capturing.captured.as_mut().unwrap().census.streams.clear();
    let why = join(("a", &sending(1000)), ("b", &capturing), None).unwrap_err().to_string();
    assert!(why.contains("cut 1,000 frames") && why.contains("--snap"), "{why}");
}

#[test]
fn a_clean_path_closes_from_offered_to_captured_among_frames_of_others() {
    let report = joined(&sending(1000), &capturing(0, 999, 1000, 5000));
    assert_eq!(
        stations(&report),
        ["app send 0", "port a0 0", "link a0 0", "path to b0 0", "tap b0 0", "app receive 0"]
    );
    assert!(report.passed && report.one_clock && report.missing == 0, "{}", report.why);
    assert_eq!((report.delay_ns.map(|delay| delay.count), report.reordered), (Some(90), Some(0)));
    let test = &report.run.tests[0];
    assert_eq!((test.name.as_str(), test.received.bytes), ("frames 60 B", 60_000));
    assert_eq!(test.ledger.as_ref().unwrap().uncertainty, 0);
    // The order of the two files does not matter.
    let (s, c) = (sending(1000), capturing(0, 999, 1000, 5000));
    assert!(join(("c", &c), ("s", &s), None).unwrap().sending.file == "s");
}

#[test]
fn what_is_lost_between_the_interfaces_has_no_name_and_fails() {
    let report = joined(&sending(1000), &capturing(0, 999, 993, 200));
    assert_eq!(stations(&report)[3], "path to b0 7");
    assert_eq!((report.missing, report.passed), (7, false));
    assert!(
        report.why.contains("7 of 1,000 frames are missing and nothing names them (± 0)"),
        "{}",
        report.why
    );
    assert!(report.run.findings.iter().any(|f| f.claim == "frames are missing that nothing names"));
}

#[test]
fn what_the_interface_or_the_ring_lost_has_its_name() {
    let mut capture = capturing(0, 999, 990, 0);
    let node = capture.after.nodes.get_mut("host").unwrap();
    *node.links[0].counters.get_mut("rx_missed_errors").unwrap() += 4;
    let report = capture.captured.as_mut().unwrap();
    let drop = |place: &str, count| PlaceDrop { place: place.into(), name: "ring_full".into(), count };
    report.drops = vec![drop("ring", 6), drop("disk", 50)];
    let account = report.account.as_mut().unwrap();
    (account.received, account.lost) = (Some(996), 6);
    let report = joined(&sending(1000), &capture);
    assert_eq!(
        stations(&report)[3..],
        ["path to b0 0 rx_missed_errors=4", "tap b0 0 ring_full=6", "app receive 0"]
    );
    assert!(report.passed, "named losses pass without a criterion");
    // A capture and a join have the same words for it: the interface's sum comes after what it sums up.
    let mut broken = capture.clone();
    let counters = &mut broken.after.nodes.get_mut("host").unwrap().links[0].counters;
    counters.insert("rx_missed_errors".into(), 1);
    for name in ["rx_crc_errors", "rx_errors"] {
        broken.before.nodes.get_mut("host").unwrap().links[0].counters.insert(name.into(), 2);
        counters.insert(name.into(), 6);
    }
    assert_eq!(stations(&joined(&sending(1000), &broken))[3], "path to b0 0 rx_crc_errors=4");
    let strict = |most: &str| {
        join(("s", &sending(1000)), ("c", &capture), Some(most.parse().unwrap())).unwrap().passed
    };
    assert_eq!((strict("9"), strict("10"), strict("0.9%"), strict("1%")), (false, true, false, true));
    assert!("1.5".parse::<MostLoss>().is_err() && "101%".parse::<MostLoss>().is_err());
}

#[test]
fn a_capture_that_heard_nothing_is_a_total_loss() {
    let mut capture = capturing(0, 0, 1, 30);
    let captured = capture.captured.as_mut().unwrap();
    captured.census.streams.clear();
    let report = joined(&sending(50), &capture);
    assert_eq!((report.missing, report.passed), (50, false));
    assert_eq!((report.delay_ns, report.delay_unknown.as_str()), (None, "no frame arrived"));
}

#[test]
fn the_kernels_filter_leaves_open_where_but_not_how_many() {
    let mut capture = capturing(0, 999, 990, 0);
    let account = capture.captured.as_mut().unwrap().account.as_mut().unwrap();
    (account.received, account.filtered, account.residual) = (Some(994), None, None);
    let report = joined(&sending(1000), &capture);
    assert_eq!((report.missing, report.passed), (10, false));
    assert_eq!(stations(&report)[3..5], ["path to b0 6", "tap b0 4"]);
    assert_eq!(report.run.tests[0].ledger.as_ref().unwrap().uncertainty, 4);
}

#[test]
fn two_hosts_have_two_clocks_and_no_delay() {
    let mut capture = capturing(0, 999, 1000, 0);
    capture.identity.boot_id = "another".into();
    // Their clocks may be far from each other: the first and the last number say that nothing was missed.
    capture.begun_ns += 1 << 50;
    let report = joined(&sending(1000), &capture);
    assert!(report.passed && !report.one_clock);
    assert_eq!((report.delay_ns, report.delay_unknown.as_str()), (None, "the two ends have two clocks"));
    assert!(report.run.tests[0].latency_ns.is_none());
    // Without them the wall clocks decide, and that is said.
    capture = Half { begun_ns: CAPTURING.0, ..capture };
    capture.captured.as_mut().unwrap().census.streams[0].last = 998;
    let report = joined(&sending(1000), &capture);
    assert!(
        report.run.tests[0].ledger.as_ref().unwrap().notes.iter().any(|note| note.contains("wall clocks"))
    );
    capture.ended_ns = 1;
    capture.identity.realtime_offset_ns -= 3_000_000_000;
    assert!(refused(&sending(1000), &capture).contains("before the last frame was sent"));
}

#[test]
fn halves_that_do_not_belong_together_are_refused_in_one_sentence() {
    let (s, c) = (sending(1000), capturing(0, 999, 1000, 0));
    let refused_if = |word: &str, change: &dyn Fn(&mut Half, &mut Half)| {
        let (mut s, mut c) = (s.clone(), c.clone());
        change(&mut s, &mut c);
        let sentence = refused(&s, &c);
        assert!(sentence.contains(word) && !sentence.contains('\n'), "{word}: {sentence}");
    };
    let stream = |c: &mut Half, change: &dyn Fn(&mut StreamCount)| {
        change(&mut c.captured.as_mut().unwrap().census.streams[0]);
    };
    refused_if("this is not a half of a path", &|s, _| s.schema = "pathlab/run/1".into());
    refused_if("both halves are of senders", &|s, c| *c = s.clone());
    refused_if("both halves are of captures", &|s, c| *s = c.clone());
    refused_if("same interface, a0", &|s, c| {
        (c.interface, c.identity) = ("a0".into(), s.identity.clone());
    });
    refused_if("none of them message 3", &|_, c| stream(c, &|stream| stream.stream = 4));
    refused_if("none of them message 3", &|_, c| stream(c, &|stream| stream.header = "pktgen".into()));
    refused_if("this sender did not send", &|_, c| {
        stream(c, &|stream| stream.sent_first_ns = Some(SENDING.0 - 11));
    });
    refused_if("this sender did not send", &|_, c| {
        stream(c, &|stream| stream.sent_last_ns = Some(SENDING.1 + 11));
    });
    refused_if("saw numbers 0…1000", &|_, c| stream(c, &|stream| stream.last = 1000));
    refused_if("began 0.1 ms after the first frame", &|_, c| {
        c.begun_ns = SENDING.0 + 100_000;
        stream(c, &|stream| stream.first = 1);
    });
    refused_if("ended 0.1 ms before the last frame", &|_, c| {
        c.ended_ns = SENDING.1 - 100_000;
        stream(c, &|stream| stream.last = 998);
    });
    refused_if("made anew", &|_, c| c.after.nodes.get_mut("host").unwrap().links[0].index = 6);
    refused_if("not there all the time", &|s, _| s.after.nodes.get_mut("host").unwrap().links.clear());
    refused_if("rx_packets of interface b0 went backwards", &|_, c| {
        *c.after.nodes.get_mut("host").unwrap().links[0].counters.get_mut("rx_packets").unwrap() = 8;
    });
    refused_if("left 2 messages of others uncounted", &|_, c| {
        c.captured.as_mut().unwrap().census.unfollowed_messages = 2;
    });
    refused_if("\u{fffd}[2J", &|_, c| {
        stream(c, &|stream| (stream.stream, stream.header) = (4, "\x1b[2J\n".into()));
    });
    // A capture by count ends with the last frame, before its sender knows that it was the last.
    let c = Half { ended_ns: SENDING.1 - 5, ..c };
    assert!(joined(&s, &c).passed);
}

#[test]
fn pktgens_numbers_begin_at_1_and_its_time_is_utc() {
    let (mut s, mut c) = (sending(1000), capturing(1, 1000, 999, 0));
    s.sent.as_mut().unwrap().numbering = Numbering { header: "pktgen".into(), stream: 0, first: 1 };
    let stream = &mut c.captured.as_mut().unwrap().census.streams[0];
    (stream.header, stream.stream) = ("pktgen".into(), 0);
    assert!(refused(&s, &c).contains("did not send"), "times of another clock");
    let stream = &mut c.captured.as_mut().unwrap().census.streams[0];
    (stream.sent_first_ns, stream.sent_last_ns) = (Some(7_001_000_000), Some(7_002_000_000));
    let report = joined(&s, &c);
    assert_eq!((report.missing, report.passed), (1, false));
    assert!(report.delay_ns.is_some());
}

#[test]
fn a_captured_file_gives_the_loss_without_the_interface() {
    let mut c = capturing(0, 998, 990, 0);
    c.interface.clear();
    (c.before, c.after) = (Snapshot::default(), Snapshot::default());
    (c.begun_ns, c.ended_ns) = (SENDING.1 * 2, SENDING.1 * 3);
    let captured = c.captured.as_mut().unwrap();
    (captured.account, captured.port) = (None, "pcap:x.pcap".into());
    let report = joined(&sending(1000), &c);
    let ledger = report.run.tests[0].ledger.as_ref().unwrap();
    assert!(ledger.stations[3].unknown.is_some());
    assert_eq!((report.missing, ledger.unexplained, report.passed), (10, 10, false));
    assert!(ledger.notes.iter().any(|note| note.contains("not known whether the captured file covers")));
}

proptest! {
    /// One frame after the other: offered, refused by the port, lost by the link, on the way, at the interface, in the
    /// ring, or captured among others.
    #[test]
    fn every_frame_is_where_its_fate_put_it(fates in prop::collection::vec(0u8..14, 1..400), others in 0u64..900) {
        let count = |fate: u8| fates.iter().filter(|&&other| other == fate).count() as u64;
        let (refused, dropped, vanished, missed) = (count(0), count(1), count(2), count(3));
        let offered = fates.len() as u64;
        let unique = offered - refused - dropped - vanished - missed;
        prop_assume!(unique > 0);
        let seen: Vec<u64> = fates.iter().enumerate().filter(|(_, fate)| **fate > 3).map(|(n, _)| n as u64).collect();
        let mut s = sending(offered);
        let sent = s.sent.as_mut().unwrap();
        sent.report.frames.accepted = offered - refused;
        sent.port_drops = vec![PlaceDrop { place: "port".into(), name: "oversize".into(), count: refused }];
        let left = offered - refused - dropped;
        s.after = counted(SENDING.1 + 10, "a0", 2,
            &[("tx_packets", 40 + left), ("tx_bytes", (40 + left) * 60), ("tx_dropped", dropped)]);
        let mut c = capturing(seen[0], seen[seen.len() - 1], unique, others);
        *c.after.nodes.get_mut("host").unwrap().links[0].counters.get_mut("rx_missed_errors").unwrap() += missed;
        let report = joined(&s, &c);
        let ledger = report.run.tests[0].ledger.as_ref().unwrap();
        let of = |name: &str| ledger.stations.iter().flat_map(|s| &s.drops).filter(|d| d.name == name).map(|d| d.count).sum::<u64>();
        prop_assert_eq!((of("send_oversize"), of("tx_dropped"), of("rx_missed_errors")), (refused, dropped, missed));
        prop_assert_eq!((ledger.unexplained, report.missing), (vanished as i64, offered - unique));
        prop_assert_eq!(report.passed, vanished == 0);
    }

    /// Files from elsewhere may say anything.
    #[test]
    fn no_numbers_panic(numbers in prop::collection::vec(any::<u64>(), 13), tap: bool) {
        let n = |at: usize| numbers[at];
        let (mut s, mut c) = (sending(1000), capturing(0, 999, 1000, 5));
        let report = &mut s.sent.as_mut().unwrap().report;
        (report.frames.offered, report.frames.accepted, report.frames.asked) = (n(0).max(1000), n(1), n(2));
        report.frames.duplicated = n(12);
        report.seconds = f64::from_bits(n(3));
        let captured = c.captured.as_mut().unwrap();
        (captured.captured, captured.after) = (n(4), n(5));
        if tap { captured.port = "tap:b0".into(); }
        let account = captured.account.as_mut().unwrap();
        (account.received, account.lost, account.uncertainty) = (Some(n(6)), n(7), n(8));
        let mut more = captured.census.streams[0].clone();
        (more.seen, more.unique, more.too_old, more.duplicates) = (n(9), n(10), n(11), n(0));
        captured.census.streams.push(more);
        let _ = join(("s", &s), ("c", &c), Some(MostLoss::Percent(1.0)));
    }
}
