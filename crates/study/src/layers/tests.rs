use super::*;
use crate::sample;
use proptest::prelude::*;
use record::TrafficKind;

fn at(point: StampPoint, node: &str, interface: &str) -> StampPlace {
    StampPlace { point, node: node.into(), interface: interface.into() }
}

/// The places of a one-way message from `a` over a bridge `s` to `b`.
fn places() -> Vec<StampPlace> {
    use StampPoint::*;
    vec![
        at(Called, "a", ""),
        at(Queued, "a", "eth0"),
        at(Started, "a", "eth0"),
        at(Arrived, "s", "p1"),
        at(Polled, "s", "p1"),
        at(Queued, "s", "p2"),
        at(Started, "s", "p2"),
        at(Arrived, "b", "eth0"),
        at(Polled, "b", "eth0"),
        at(Delivered, "b", ""),
        at(Returned, "b", ""),
    ]
}

fn message(sequence: u64, stamps: &[(u32, i64)]) -> StampedMessage {
    StampedMessage { sequence, planned_ns: 1_000_000 + sequence * 50_000, stamps: stamps.to_vec() }
}

fn observation(messages: Vec<StampedMessage>) -> LayerObservation {
    LayerObservation { every: 1, places: places(), messages, ..LayerObservation::default() }
}

/// A message whose parts take 1, 2, … microseconds, later by so much in front of stamp `late`.
fn whole(sequence: u64, late: usize, by: i64) -> StampedMessage {
    let mut ns = 0;
    let stamps = (0..places().len()).map(|place| {
        ns += 1000 * (place as i64 + 1) + if place == late { by } else { 0 };
        (place as u32, ns)
    });
    message(sequence, &stamps.collect::<Vec<_>>())
}

fn latency(mean: f64) -> Latency {
    let mut histogram = record::Histogram::new();
    histogram.record(mean as u64);
    Latency { mean, ..histogram.summary().unwrap() }
}

#[test]
fn a_delay_is_in_the_part_where_it_was_and_in_no_other() {
    for late in 0..places().len() {
        let messages = (0..20).map(|n| whole(n, late, if n % 2 == 0 { 0 } else { 40_000 })).collect();
        let split = split(&observation(messages), Some(&latency(66_000.0 + 20_000.0 + 1_200.0))).unwrap();
        for (number, part) in split.parts.iter().enumerate() {
            let own = 1000 * (number as u64 + 1);
            let late = number == late;
            assert_eq!(part.p50_ns, own);
            assert_eq!(part.max_ns, own + if late { 40_000 } else { 0 }, "{part:?}");
            assert_eq!(part.mean_ns, own as f64 + if late { 20_000.0 } else { 0.0 });
        }
        assert_eq!((split.complete, split.incomplete, split.sum_ns), (20, 0, 86_000.0));
        assert_eq!(split.adds_up(), Some(true), "{split:?}");
    }
}

#[test]
fn parts_have_the_names_of_layers_and_places() {
    let split = split(&observation(vec![whole(0, 0, 0)]), None).unwrap();
    let names: Vec<_> = split.parts.iter().map(|part| format!("{} {}", part.layer, part.place)).collect();
    assert_eq!(
        names,
        [
            "application a",
            "send a",
            "qdisc a:eth0",
            "driver a:eth0 → s:p1",
            "softirq s:p1",
            "forwarding s:p1 → p2",
            "qdisc s:p2",
            "driver s:p2 → b:eth0",
            "softirq b:eth0",
            "protocols b",
            "socket b",
        ]
    );
}

/// On a connection times begin with the call: no part lies in front of it, in the trace neither, and a message whose call has no stamp is not whole.
#[test]
fn without_a_plan_the_parts_begin_with_the_call() {
    let unplanned = |n| {
        let mut message = whole(n, 0, 0);
        message.stamps.iter_mut().for_each(|(_, at)| *at -= 1000);
        message
    };
    let mut messages: Vec<_> = (0..6).map(unplanned).collect();
    for message in &mut messages[3..] {
        message.stamps.remove(0);
        let first = message.stamps[0].1;
        message.stamps.iter_mut().for_each(|(_, at)| *at -= first);
    }
    let seen = observation(messages);
    let split = split(&seen, None).unwrap();
    assert_eq!((split.complete, split.incomplete, split.parts.len()), (3, 3, 10));
    assert_eq!((split.parts[0].layer.as_str(), split.parts[0].p50_ns), ("send", 2000));
    let sum: f64 = split.parts.iter().map(|part| part.mean_ns).sum();
    assert_eq!(sum, split.sum_ns);
    let mut run = sample::run("r");
    run.tests.truncate(1);
    run.tests[0].layers = Some(seen);
    let events = trace::events(&run);
    assert!(events.iter().any(|event| event["name"] == "message 1"));
    run.tests[0].spec.kind = record::TrafficKind::TcpStream;
    run.tests[0].spec.streams = 3;
    let message = &mut run.tests[0].layers.as_mut().unwrap().messages[1];
    message.sequence = 44_963 << 32 | 7;
    let of_stream = trace::events(&run);
    assert!(of_stream.iter().any(|event| event["name"] == "message 7 from port 44963"));
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert_eq!(named("application a"), 0);
    assert_eq!(named("send a"), 6); // in the row of its message and in that of the layer
}

#[test]
fn what_lacks_a_stamp_is_named_by_all_layers_that_it_has() {
    use StampPoint::*;
    let named = |from: Option<StampPlace>, to| name(from.as_ref(), &to).0;
    assert_eq!(named(None, at(Queued, "a", "x")), "application+send");
    assert_eq!(named(Some(at(Polled, "b", "x")), at(Returned, "b", "")), "protocols+socket");
    assert_eq!(named(Some(at(Started, "a", "x")), at(Polled, "b", "y")), "driver+softirq");
    assert_eq!(named(Some(at(Returned, "b", "")), at(Called, "b", "")), "application");
    assert_eq!(named(Some(at(Returned, "b", "")), at(Returned, "b", "")).split('+').count(), 7);
    assert_eq!(named(Some(at(Arrived, "b", "x")), at(Arrived, "b", "y")), "unknown");
}

#[test]
fn an_interface_over_another_one_has_a_driver_too() {
    let (vlan, below) = (at(StampPoint::Started, "a", "eth0.100"), at(StampPoint::Queued, "a", "eth0"));
    assert_eq!(name(Some(&vlan), &below), ("driver".into(), "a:eth0.100 → eth0".into()));
    let started = at(StampPoint::Started, "a", "eth0");
    assert_eq!(name(Some(&vlan), &started).0, "driver+qdisc");
    let (port, bridge) = (at(StampPoint::Polled, "r", "p1"), at(StampPoint::Polled, "r", "br0"));
    assert_eq!(name(Some(&port), &bridge), ("forwarding".into(), "r:p1 → br0".into()));
}

#[test]
fn messages_without_a_stamp_or_of_another_way_are_counted_and_in_no_part() {
    let mut messages: Vec<_> = (0..10).map(|n| whole(n, 0, 0)).collect();
    messages[3].stamps.remove(2);
    messages[4].stamps.pop();
    messages[5].stamps.clear();
    let split = split(&observation(messages), None).unwrap();
    assert_eq!((split.complete, split.incomplete, split.parts.len()), (7, 3, 11));
    assert_eq!(split.adds_up(), None, "nothing was measured beside");
}

/// A forwarding node marks a frame that it never gives to a socket: the stamp is not the message's.
#[test]
fn a_socket_that_could_be_read_by_chance_is_not_believed() {
    let mut seen = observation(vec![whole(0, 0, 0), whole(1, 0, 0)]);
    seen.places.push(at(StampPoint::Delivered, "s", ""));
    seen.messages[1].stamps.insert(5, (11, 15_500));
    assert_eq!(split(&seen, None).unwrap().complete, 2);
}

#[test]
fn a_sum_that_is_not_all_says_so() {
    let seen = observation((0..10).map(|n| whole(n, 0, 0)).collect());
    let split = split(&seen, Some(&latency(90_000.0))).unwrap();
    assert_eq!(split.adds_up(), Some(false));
    let test = TestRecord {
        layers: Some(LayerObservation { split: Some(split), lost: 2, ..seen }),
        ..sample::test(TrafficKind::UdpStream, "udp-stream", 1, false)
    };
    let text = text(&test);
    assert!(text.lines().all(|line| line.chars().count() <= crate::table::WIDTH), "{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["24.0 µs more: beyond the error of 7.00 µs", "10 messages with all stamps", "2 stamps found no room"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The slow twin: every message alone, and its parts by their names.
fn slow(seen: &LayerObservation, way: &[u32]) -> Vec<(String, Vec<i64>)> {
    let mut parts: Vec<(String, Vec<i64>)> = vec![];
    for message in &seen.messages {
        let stamps = sound(seen, message);
        if stamps.iter().map(|(place, _)| *place).ne(way.iter().copied()) {
            continue;
        }
        let mut before: (Option<&StampPlace>, i64) = (None, 0);
        for (number, (place, ns)) in stamps.into_iter().enumerate() {
            let to = &seen.places[place as usize];
            if parts.len() <= number {
                parts.push((name(before.0, to).0, vec![]));
            }
            parts[number].1.push(ns - before.1);
            before = (Some(to), ns);
        }
    }
    parts
}

prop_compose! {
    fn any_message()(sequence in 0u64..500, full in any::<bool>(), steps in prop::collection::vec((0u32..13, 0i64..90_000), 0..14))
        -> StampedMessage
    {
        let mut ns = 0;
        let stamps: Vec<(u32, i64)> = steps.iter().enumerate().map(|(number, (place, step))| {
            ns += step;
            (if full { number as u32 } else { *place }, ns)
        }).collect();
        message(sequence, &stamps)
    }
}

proptest! {
    /// Whatever stamps there are: the parts are those of the slow twin and add up to the whole, each message is complete or not, and
    /// the trace follows the rules of its format.
    #[test]
    fn parts_are_those_of_each_message_and_add_up(messages in prop::collection::vec(any_message(), 0..40)) {
        let seen = observation(messages);
        let found = split(&seen, None);
        if let Some(found) = &found {
            let ways = ways(&seen);
            let (way, _) = ways.iter().max_by_key(|(way, messages)| (messages.len(), way.len())).unwrap();
            let slow = slow(&seen, way);
            prop_assert_eq!(slow.len(), found.parts.len());
            for (part, (layer, mut took)) in found.parts.iter().zip(slow) {
                took.sort_unstable();
                prop_assert_eq!(&part.layer, &layer);
                prop_assert_eq!(part.max_ns as i64, *took.last().unwrap());
                prop_assert_eq!(part.p50_ns as i64, took[took.len().div_ceil(2) - 1]);
                prop_assert_eq!(took.len() as u64, found.complete);
            }
            let sum: f64 = found.parts.iter().map(|part| part.mean_ns).sum();
            prop_assert!((sum - found.sum_ns).abs() < 1e-3, "{sum} {}", found.sum_ns);
            prop_assert_eq!(found.complete + found.incomplete, seen.messages.len() as u64);
        }
        let test = TestRecord { layers: Some(seen), ..TestRecord::default() };
        check_trace(&trace::events(&RunRecord { tests: vec![test], ..RunRecord::default() }));
    }
}

use record::RunRecord;

/// The rules of the format: every event has its fields, rows have names, and events of a row lie inside each other or apart.
fn check_trace(events: &[serde_json::Value]) {
    let mut rows: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    let mut named = std::collections::BTreeSet::new();
    for event in events {
        let pid = event["pid"].as_u64().unwrap();
        match event["ph"].as_str().unwrap() {
            "M" => {
                assert!(event["args"].is_object(), "{event}");
                named.insert((pid, event["tid"].as_u64()));
            }
            "X" => {
                let [ts, dur] = ["ts", "dur"].map(|field| event[field].as_f64().unwrap());
                assert!(ts >= 0.0 && dur >= 0.0 && !event["name"].as_str().unwrap().is_empty(), "{event}");
                let tid = event["tid"].as_u64().unwrap();
                assert!(named.contains(&(pid, None)) && named.contains(&(pid, Some(tid))), "{event}");
                rows.entry((pid, tid)).or_default().push((ts, ts + dur));
            }
            other => panic!("{other}"),
        }
    }
    for row in rows.values() {
        let mut open: Vec<(f64, f64)> = vec![];
        for &(begin, end) in row {
            // To a nanosecond, which is what the viewer keeps.
            while open.last().is_some_and(|last| last.1 <= begin + 5e-4) {
                open.pop();
            }
            assert!(open.last().is_none_or(|last| end <= last.1 + 5e-4), "{begin} {end} in {open:?}");
            open.push((begin, end));
        }
    }
}

#[test]
fn a_trace_has_each_part_where_it_was() {
    // The second message begins before the first one ends.
    let mut seen = observation(vec![whole(0, 0, 0), whole(1, 0, 0)]);
    seen.every = 7;
    let test = TestRecord { layers: Some(seen), ..sample::test(TrafficKind::UdpStream, "udp", 2, false) };
    let run = RunRecord { tests: vec![test], ..RunRecord::default() };
    let text = trace::text(&run).unwrap();
    assert!(text.starts_with(trace::MARK));
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    check_trace(events);
    let slices: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(slices.len(), 2 * (1 + 11 + 11));
    let qdisc: Vec<_> = slices.iter().filter(|event| event["name"] == "qdisc s:p2").collect();
    assert_eq!(qdisc.len(), 4);
    assert_eq!((qdisc[0]["ts"].as_f64(), qdisc[0]["dur"].as_f64()), (Some(21.0), Some(7.0)));
    let rows = |name: &str| events.iter().filter(|event| event["args"]["name"] == name).count();
    assert_eq!(rows("messages"), 2, "messages that are on the way together have rows of their own");
    assert_eq!(rows("udp #2: node s"), 1);
}

#[test]
fn records_of_another_program_are_read_without_a_panic() {
    let strange = LayerObservation {
        messages: vec![
            message(0, &[(99, 5), (10, i64::MAX), (0, i64::MIN)]),
            message(u64::MAX >> 20, &[(10, -5)]),
        ],
        ..observation(vec![])
    };
    let found = split(&strange, None);
    assert_eq!(found.map(|found| found.complete), Some(1));
    let test = TestRecord { layers: Some(strange), ..TestRecord::default() };
    trace::events(&RunRecord { tests: vec![test], ..RunRecord::default() });
    assert_eq!(trace::text(&RunRecord { tests: vec![TestRecord::default()], ..RunRecord::default() }), None);
}
