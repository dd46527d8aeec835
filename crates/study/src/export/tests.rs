use super::*;
use record::snapshot::{
    CpuTime, LinkSample, NodeSnapshot, QdiscSample, Snapshot, SocketSample, SoftnetRow, TC_ROOT,
};
use record::watch::{TcpSocket, WatchReading};
use std::collections::BTreeSet;

const LIMITS: Limits = Limits { sockets: 2 };

fn reading() -> WatchReading {
    let counters =
        |words: &[(&str, u64)]| words.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let node = NodeSnapshot {
        links: vec![LinkSample {
            name: "eth0".into(),
            up: true,
            carrier: true,
            counters: counters(&[
                ("rx_packets", 1 << 60),
                ("tx_packets", 5),
                ("rx_dropped", 7),
                ("rx_missed_errors", 2),
            ]),
            ..LinkSample::default()
        }],
        qdiscs: vec![
            QdiscSample { interface: "lo".into(), kind: "noqueue".into(), ..QdiscSample::default() },
            QdiscSample {
                interface: "eth0".into(),
                kind: "tbf".into(),
                handle: 0x8001_0000,
                parent: TC_ROOT,
                drops: 3,
                ..QdiscSample::default()
            },
        ],
        protocols: counters(&[
            ("Udp.RcvbufErrors", 4),
            ("Tcp.CurrEstab", 9),
            ("Ip.DefaultTTL", 64),
            ("New.Counter", 1),
        ]),
        sockets: (0..3)
            .map(|n| SocketSample {
                protocol: "udp".into(),
                local_port: 10 + n,
                drops: n.into(),
                ..SocketSample::default()
            })
            .collect(),
        ..NodeSnapshot::default()
    };
    let snapshot = Snapshot {
        cpus: vec![CpuTime { cpu: 3, user: 250, nice: 50, idle: 100, ..CpuTime::default() }],
        tick_hz: 100,
        softnet: vec![SoftnetRow { cpu: 3, dropped: 6, ..SoftnetRow::default() }],
        nodes: [("a \"b\\\n".to_owned(), node)].into(),
        missing: vec!["filters: no".into()],
        ..Snapshot::default()
    };
    let tcp = TcpSocket {
        node: "a".into(),
        local: "10.0.0.1:5".into(),
        remote: "10.0.0.2:6".into(),
        ..TcpSocket::default()
    };
    WatchReading { snapshot, tcp: vec![tcp], ..WatchReading::default() }
}

fn value(all: &Families, series: &Series, labels: &[&str]) -> Option<f64> {
    all.of(series)?
        .samples
        .get(&labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>())
        .map(|value| value.real())
}

#[test]
fn names_are_of_one_table_and_each_is_one_series() {
    let mut seen = BTreeSet::new();
    for one in series::SERIES {
        assert!(seen.insert(one.prometheus()), "{} twice", one.prometheus());
        let name = one.prometheus();
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        assert_eq!(name.ends_with("_total"), one.is_count, "{name}");
        for asked in [one.full_name(), one.opentelemetry(), one.prometheus()] {
            assert_eq!(series::named(&asked), Some(one), "{asked}");
        }
        // What it is is in the table of counters, or a sentence.
        assert!(one.counter().is_some() || one.help().ends_with('.'), "{name}: {}", one.help());
        assert!(one.help().len() > 4);
    }
    assert_eq!(series::RECEIVE_FRAMES.prometheus(), "pathlab_interface_receive_frames_total");
    assert_eq!(series::CPU_TIME.opentelemetry(), "pathlab.cpu.time.seconds");
}

#[test]
fn a_count_of_the_table_is_a_count_of_the_series() {
    use record::counter::CounterKind;
    for one in series::SERIES {
        if let Some(row) = one.counter() {
            assert_eq!(row.kind == CounterKind::Count, one.is_count, "{} is {}", one.name, row.full_name());
        }
    }
}

#[test]
fn what_is_known_is_told_exactly_and_what_is_not_is_absent() {
    use record::drop::{BACKLOG_FULL, QDISC_FULL, RX_DROPPED, SOCKET_BUFFER_FULL};
    let all = gather(&reading(), LIMITS, "1");
    let node = "a \"b\\\n";
    let whole = all.of(&series::RECEIVE_FRAMES).unwrap().samples.values().next().copied();
    assert_eq!(whole, Some(SampleValue::Whole(1 << 60)), "no bit is lost");
    assert_eq!(all.of(&series::RECEIVE_BYTES), None, "not read, not 0");
    let lost = |name, counter, interface| value(&all, &series::DROPS, &[node, interface, name, counter]);
    assert_eq!(lost(RX_DROPPED, "rx_dropped", "eth0"), Some(7.0));
    assert_eq!(lost(QDISC_FULL, "qdisc:drops", "eth0"), Some(3.0));
    assert_eq!(lost(SOCKET_BUFFER_FULL, "Udp.RcvbufErrors", ""), Some(4.0));
    assert_eq!(value(&all, &series::DROPS, &["", "", BACKLOG_FULL, "softnet:dropped"]), Some(6.0));
    assert_eq!(value(&all, &series::CPU_TIME, &["3", "user"]), Some(2.0));
    assert_eq!(value(&all, &series::QDISC_DROPS, &[node, "eth0", "tbf", "8001:0", "root"]), Some(3.0));
    assert_eq!(value(&all, &series::MISSING, &["filters: no"]), Some(1.0));
    let protocols: Vec<&str> =
        all.of(&series::PROTOCOL).unwrap().samples.keys().map(|labels| labels[1].as_str()).collect();
    assert_eq!(
        protocols,
        ["Udp.RcvbufErrors"],
        "no state, nothing that falls, nothing of unknown meaning is a count"
    );
    assert_eq!(value(&all, &series::BUDGET_ENDS, &[]), None);
}

#[test]
fn sockets_are_limited_and_the_rest_is_counted() {
    let all = gather(&reading(), LIMITS, "1");
    let ports: Vec<&str> =
        all.of(&series::SOCKET_DROPS).unwrap().samples.keys().map(|labels| labels[2].as_str()).collect();
    assert_eq!(ports, [":11", ":12"]);
    assert_eq!(value(&all, &series::SOCKETS_LEFT_OUT, &["datagram"]), Some(1.0));
    let none = gather(&reading(), Limits { sockets: 0 }, "1");
    assert_eq!((none.of(&series::SOCKET_DROPS), none.of(&series::TCP_RTT)), (None, None));
}

#[test]
fn the_text_has_help_type_unit_and_escaped_labels() {
    let text = prometheus::text(gather(&reading(), LIMITS, "1.2"));
    let has = |line: &str| assert!(text.lines().any(|found| found == line), "no line '{line}' in\n{text}");
    has("# TYPE pathlab_interface_receive_frames counter");
    has("# UNIT pathlab_interface_receive_frames frames");
    has(r#"pathlab_interface_receive_frames_total{node="a \"b\\\n",interface="eth0"} 1152921504606846976"#);
    has(r#"pathlab_cpu_time_seconds_total{cpu="3",role="user"} 2.0"#);
    has(r#"pathlab_build{version="1.2"} 1"#);
    has("# TYPE pathlab_build gauge");
    assert!(text.contains("# HELP pathlab_softnet_dropped_frames Column 1:"));
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn the_message_is_a_cumulative_sum_with_whole_numbers_as_strings() {
    let message = otlp::message(&gather(&reading(), LIMITS, "1"), 1_700_000_000_000_000_000, "here", "1");
    let scope = &message["resourceMetrics"][0]["scopeMetrics"][0];
    let metrics = scope["metrics"].as_array().unwrap();
    let of = |name: &str| metrics.iter().find(|one| one["name"] == name).unwrap();
    let frames = of("pathlab.interface.receive.frames");
    assert_eq!(
        (frames["unit"].as_str(), frames["sum"]["isMonotonic"].as_bool()),
        (Some("{frame}"), Some(true))
    );
    let point = &frames["sum"]["dataPoints"][0];
    assert_eq!(
        (point["asInt"].as_str(), point["timeUnixNano"].as_str()),
        (Some("1152921504606846976"), Some("1700000000000000000"))
    );
    assert_eq!(point["attributes"][1]["value"]["stringValue"], "eth0");
    assert!(of("pathlab.interface.up")["gauge"]["dataPoints"][0]["asInt"] == "1");
    assert_eq!(of("pathlab.cpu.time.seconds")["sum"]["dataPoints"].as_array().unwrap().len(), 7);
}

#[test]
fn answers_of_collectors_are_read_whatever_they_are() {
    assert_eq!(otlp::answer("{}"), otlp::Answer::default());
    assert_eq!(otlp::answer("<html>").rejected, 0);
    let partial = otlp::answer(r#"{"partialSuccess":{"rejectedDataPoints":"5","errorMessage":"no"}}"#);
    assert_eq!((partial.rejected, partial.message.as_str()), (5, "no"));
    assert_eq!(otlp::answer(r#"{"partialSuccess":{"rejectedDataPoints":6}}"#).rejected, 6);
}

/// Counts are differences, states are the last ones; what went back or was not there before is absent.
#[test]
fn a_run_has_what_moved_during_each_test() {
    use record::{RunRecord, TestRecord};
    let node = |frames, drops| NodeSnapshot {
        links: vec![LinkSample {
            name: "eth0".into(),
            counters: [("rx_packets".into(), frames), ("rx_dropped".into(), drops)].into(),
            ..LinkSample::default()
        }],
        ..NodeSnapshot::default()
    };
    let at = |nodes: &[(&str, u64, u64)]| Snapshot {
        nodes: nodes
            .iter()
            .map(|(name, frames, drops)| ((*name).to_owned(), node(*frames, *drops)))
            .collect(),
        tick_hz: 100,
        ..Snapshot::default()
    };
    let test = |repetition| TestRecord {
        name: "ping".into(),
        kind: record::TrafficKind::Ping,
        repetition,
        begun: "2026-01-02T03:04:05Z".into(),
        seconds: 2.0,
        before: at(&[("a", 10, 5)]),
        after: at(&[("a", 10 + u64::from(repetition), 3), ("b", 7, 0)]),
        ..TestRecord::default()
    };
    let bytes = TestRecord { kind: record::TrafficKind::TcpStream, ..test(1) };
    for (test, told) in [(test(1), true), (bytes, false)] {
        let run = RunRecord { tests: vec![test], ..RunRecord::default() };
        let all = run::together(run::of_run(&run, LIMITS, "1"));
        assert_eq!(all.of(&series::TEST_SENT).is_some(), told, "a stream of bytes has no messages");
    }
    let run = RunRecord { id: "r".into(), tests: vec![test(1), test(2)], ..RunRecord::default() };
    let tests = run::of_run(&run, LIMITS, "1");
    assert_eq!(
        (tests[0].begun_ns, tests[0].ended_ns),
        (1_767_323_045_000_000_000, 1_767_323_047_000_000_000)
    );
    let time =
        |test: &run::TestFamilies| otlp::SampleTime { since_ns: Some(test.begun_ns), at_ns: test.ended_ns };
    let readings: Vec<_> = tests.iter().map(|test| (time(test), &test.families)).collect();
    let message = otlp::message_of(&readings, "here", "1").to_string();
    assert_eq!(message.matches("pathlab.test.duration").count(), 1, "one metric, two points");
    assert!(message.contains(r#""startTimeUnixNano":"1767323045000000000""#), "{message}");
    let all = run::together(tests);
    let frames =
        |node, repetition| value(&all, &series::RECEIVE_FRAMES, &["r", "ping", repetition, node, "eth0"]);
    assert_eq!((frames("a", "1"), frames("a", "2"), frames("b", "1")), (Some(1.0), Some(2.0), None));
    assert_eq!(value(&all, &series::INTERFACE_UP, &["r", "ping", "1", "b", "eth0"]), Some(0.0));
    let drops = all.of(&series::DROPS).map(|family| family.samples.len());
    assert_eq!(drops, None, "a counter that went back moved by nothing that is known");
    let text = prometheus::text(all);
    assert!(
        text.contains(r#"pathlab_test_duration_seconds{run="r",test="ping",repetition="2"} 2.0"#),
        "{text}"
    );
}
