//! What differs between the arms of a test beside its figure.
//!
//! **What.** Of each measurement of a trial a few numbers are kept ([`Observed`]): how long a message is in each layer, how many segments a frame carries at
//! each interface, what CPU time a message costs each process, what was lost, sent again and waited for, and what limited it. Where the arms differ, those
//! numbers that differ, too, are told with an interval each ([`explain`]).
//!
//! **Why.** That B is worse does not say why. A VLAN that cuts super-frames before its bond shows one segment per frame where A has forty, a shaper shows as the limit of
//! one arm alone. Both arms are measured in the same pairs, so what changed on the machine meanwhile is in neither.
//!
//! **Price.** Nothing is measured for it. Each difference has its own 5 %, so of twenty that mean nothing one is told; those of less than a tenth are none. What differs need
//! not be the cause: it moved with it.

use super::{logs, ranks};
use crate::stats::{CONFIDENCE, median};
use record::flow::Hook;
use record::trial::{ArmDifference, ArmLayer, ArmLimit, Effect, TrialPair, TrialTest, TrialVerdict};
use record::{ActorUsage, FlowInterface, TestRecord};
use std::collections::{BTreeMap, BTreeSet};

/// A smaller effect is told of no aspect.
const LEAST: f64 = 1.1;
/// A layer with a smaller part of the difference is not named.
const MOST_OF: f64 = 0.5;
/// An aspect by its number, and a place.
type Key = (usize, String);

/// Something that is observed of a test at some places.
struct Aspect {
    name: &'static str,
    unit: &'static str,
    /// What an arm does not have at a place is nothing there, and not unknown.
    adds_up: bool,
    of: fn(&TestRecord) -> Vec<(String, f64)>,
}

/// All of them, what says most first.
const ASPECTS: [Aspect; 8] = [
    Aspect { name: "time in a layer", unit: "ns", adds_up: true, of: layers },
    Aspect { name: "lost", unit: "%", adds_up: true, of: lost },
    Aspect { name: "segments per frame", unit: "", adds_up: false, of: segments },
    Aspect { name: "sent again", unit: "%", adds_up: false, of: sent_again },
    Aspect { name: "held back by", unit: "%", adds_up: false, of: held_back },
    Aspect { name: "wait for a CPU", unit: "%", adds_up: false, of: waits },
    Aspect { name: "CPU time per message", unit: "ns", adds_up: false, of: |test| cpu_time(test, false) },
    Aspect { name: "CPU time per KiB", unit: "ns", adds_up: false, of: |test| cpu_time(test, true) },
];
/// The number of the layers among them.
const LAYERS: usize = 0;

/// What is kept of one measurement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    values: BTreeMap<Key, f64>,
    limit: String,
    /// It is a stream of bytes, which wait in front of the layer that is slow.
    is_stream: bool,
}

impl Observed {
    /// What a test shows.
    pub fn of(test: &TestRecord) -> Observed {
        let of = |(number, aspect): (usize, &Aspect)| {
            (aspect.of)(test).into_iter().map(move |(place, value)| ((number, place), value))
        };
        let values = ASPECTS.iter().enumerate().flat_map(of).collect();
        Observed { values, limit: limit(test), is_stream: test.spec.kind.is_bytes() }
    }
}

impl Observed {
    /// What was observed; of what adds up, nothing is a value.
    fn value(&self, key: &Key) -> Option<f64> {
        self.values.get(key).copied().or_else(|| ASPECTS[key.0].adds_up.then_some(0.0))
    }

    /// Each layer and its time, in nanoseconds.
    fn layers(&self) -> impl Iterator<Item = (&str, f64)> {
        self.values
            .iter()
            .filter(|((aspect, _), _)| *aspect == LAYERS)
            .map(|((_, place), ns)| (&**place, *ns))
    }
}

/// The verdict of a test. Which CPU it was is chance.
fn limit(test: &TestRecord) -> String {
    let (what, place) = (test.limit.what.replace('_', " "), &test.limit.place);
    let is_anywhere = place.is_empty() || place == "the host" || place.starts_with("CPU ");
    if is_anywhere { what } else { format!("{what} at {place}") }
}

fn layers(test: &TestRecord) -> Vec<(String, f64)> {
    let split = test.layers.as_ref().and_then(|seen| seen.split.as_ref());
    let parts = split.iter().flat_map(|split| &split.parts);
    parts.map(|part| (format!("{} {}", part.layer, part.place), part.mean_ns)).collect()
}

/// Segments of each frame, where there are super-frames or could be.
fn segments(test: &TestRecord) -> Vec<(String, f64)> {
    let interfaces = test.flow.iter().flat_map(|flow| &flow.interfaces);
    let of = |interface: &FlowInterface| {
        let place = format!("{}:{}", interface.node, interface.interface);
        let hooks = [(Hook::Ingress, "in"), (Hook::Egress, "out")];
        let counted = hooks.map(|(hook, word)| {
            let count = interface.count(hook, "forward").filter(|count| count.buffers > 0)?;
            Some((format!("{place} {word}"), count.frames as f64 / count.buffers as f64))
        });
        counted.into_iter().flatten().collect::<Vec<_>>()
    };
    interfaces.flat_map(of).collect()
}

/// Messages that were lost, of those that were offered.
fn lost(test: &TestRecord) -> Vec<(String, f64)> {
    let (Some(ledger), offered) = (&test.ledger, test.offered.datagrams) else { return vec![] };
    if offered == 0 {
        return vec![];
    }
    let mut all: BTreeMap<String, f64> = BTreeMap::new();
    for station in &ledger.stations {
        for drop in &station.drops {
            let place = format!("{} at {} {}", drop.name, station.node, station.station);
            *all.entry(place).or_default() += 100.0 * drop.count as f64 / offered as f64;
        }
    }
    all.into_iter().collect()
}

fn sent_again(test: &TestRecord) -> Vec<(String, f64)> {
    let Some(tcp) = test.tcp.as_ref().filter(|_| test.received.bytes > 0) else { return vec![] };
    vec![(String::new(), 100.0 * tcp.retransmitted_bytes as f64 / test.received.bytes as f64)]
}

/// What a sending TCP waited for, as shares of its time.
fn held_back(test: &TestRecord) -> Vec<(String, f64)> {
    let Some(tcp) = test.tcp.as_ref().filter(|tcp| tcp.wall_us > 0) else { return vec![] };
    let parts = [
        ("the application", tcp.application_us),
        ("the receiver's window", tcp.receiver_window_us),
        ("the send buffer", tcp.send_buffer_us),
        ("the network", tcp.network_us),
    ];
    parts.map(|(name, us)| (name.into(), 100.0 * us as f64 / tcp.wall_us as f64)).into()
}

fn waits(test: &TestRecord) -> Vec<(String, f64)> {
    test.actors.iter().map(|actor| (format!("{} {}", actor.role, actor.node), actor.wait_percent)).collect()
}

/// CPU time of each process of the test for what arrived.
fn cpu_time(test: &TestRecord, of_bytes: bool) -> Vec<(String, f64)> {
    let arrived = match of_bytes {
        true => test.received.bytes as f64 / 1024.0,
        false => test.received.unique as f64,
    };
    if arrived < 1.0 || of_bytes != test.kind.is_bytes() {
        return vec![];
    }
    let of = |actor: &ActorUsage| {
        let ns = actor.cpu_percent / 100.0 * test.seconds * 1e9;
        (format!("{} {}", actor.role, actor.node), ns / arrived)
    };
    test.actors.iter().map(of).collect()
}

/// Says in the record of a test what differs between its arms, of all of its pairs; nothing where they do not differ.
pub fn explain(test: &mut TrialTest, pairs: &[[Observed; 2]]) {
    if test.verdict != Some(TrialVerdict::Changed) {
        return;
    }
    test.limits = limits(pairs);
    test.differences = differences(pairs);
    test.layer = layer(pairs);
}

fn limits(pairs: &[[Observed; 2]]) -> Vec<ArmLimit> {
    let mut all: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for pair in pairs {
        for (side, observed) in pair.iter().enumerate() {
            all.entry(&observed.limit).or_default()[side] += 1;
        }
    }
    // Two that are alike have their limits now and then the other way round.
    let apart: u64 = all.values().map(|[a, b]| a.abs_diff(*b)).sum();
    if apart < pairs.len() as u64 {
        return vec![];
    }
    let mut limits: Vec<ArmLimit> =
        all.into_iter().map(|(limit, [a, b])| ArmLimit { limit: limit.into(), a, b }).collect();
    limits.sort_by_key(|limit| std::cmp::Reverse(limit.a.max(limit.b)));
    limits
}

fn keys(pairs: &[[Observed; 2]]) -> BTreeSet<&Key> {
    pairs.iter().flatten().flat_map(|observed| observed.values.keys()).collect()
}

/// Those of every aspect and place, in the order of the aspects, the largest first: of what adds up by its size, of all else by its multiple.
fn differences(pairs: &[[Observed; 2]]) -> Vec<ArmDifference> {
    let mut all: Vec<(usize, ArmDifference)> =
        keys(pairs).into_iter().filter_map(|key| Some((key.0, difference(key, pairs)?))).collect();
    let size = |aspect: usize, one: &ArmDifference| match ASPECTS[aspect].adds_up {
        true => (one.b - one.a).abs(),
        false => one.effect.value.ln().abs(),
    };
    all.sort_by(|(aspect, a), (other, b)| {
        aspect.cmp(other).then(size(*other, b).total_cmp(&size(*aspect, a)))
    });
    all.into_iter().map(|(_, one)| one).collect()
}

fn difference(key: &Key, pairs: &[[Observed; 2]]) -> Option<ArmDifference> {
    let aspect = &ASPECTS[key.0];
    let both: Vec<TrialPair> = pairs
        .iter()
        .filter_map(|[a, b]| Some(TrialPair { a: a.value(key)?, b: b.value(key)?, ..TrialPair::default() }))
        .collect();
    let (low, value, high) = ranks::centre(&logs(&both), 1.0 - CONFIDENCE)?;
    let is_shown = (low > 0.0 || high < 0.0) && value.abs() >= LEAST.ln();
    let bound = |log: f64| log.is_finite().then(|| log.exp());
    is_shown.then_some(ArmDifference {
        what: aspect.name.into(),
        place: key.1.clone(),
        unit: aspect.unit.into(),
        a: median(&both.iter().map(|pair| pair.a).collect::<Vec<_>>())?,
        b: median(&both.iter().map(|pair| pair.b).collect::<Vec<_>>())?,
        effect: Effect { value: value.exp(), low: bound(low), high: bound(high) },
    })
}

/// The layer in which the slower arm is longer by most of the difference; none of a stream, whose figure is no time.
fn layer(pairs: &[[Observed; 2]]) -> Option<ArmLayer> {
    let split: Vec<&[Observed; 2]> = pairs
        .iter()
        .filter(|pair| pair.iter().all(|one| !one.is_stream && one.layers().next().is_some()))
        .collect();
    let longer = |of: &dyn Fn(&Observed) -> f64| -> Option<f64> {
        median(&split.iter().map(|[a, b]| of(b) - of(a)).collect::<Vec<_>>())
    };
    let all = longer(&|one| one.layers().map(|(_, ns)| ns).sum())?;
    let of_layers = keys(pairs).into_iter().filter(|key| key.0 == LAYERS);
    let parts = of_layers
        .filter_map(|key| Some((&key.1, longer(&|one| one.value(key).unwrap_or(0.0))? * all.signum())));
    let (layer, longer_ns) = parts.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let is_most = longer_ns > 0.0 && longer_ns >= MOST_OF * all.abs();
    is_most.then(|| ArmLayer { layer: layer.clone(), longer_ns, of_ns: all.abs(), in_b: all > 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::TrafficKind;
    use record::flow::FlowCount;
    use record::layers::{LayerObservation, LayerPart, LayerSplit};
    use record::ledger::{Drop, DropSource, Ledger, Station, Witness, WitnessStatus};

    fn limited(what: &str, place: &str) -> TestRecord {
        let mut test = TestRecord { seconds: 1.0, ..TestRecord::default() };
        (test.limit.what, test.limit.place) = (what.into(), place.into());
        test.received.bytes = 1024 * 1000;
        test.received.unique = 1000;
        test.offered.datagrams = 1000;
        test
    }

    fn with_layers(parts: &[(&str, &str, f64)]) -> TestRecord {
        let part = |(layer, place, mean_ns): &(&str, &str, f64)| LayerPart {
            layer: (*layer).into(),
            place: (*place).into(),
            mean_ns: *mean_ns,
            ..LayerPart::default()
        };
        let split = LayerSplit { parts: parts.iter().map(part).collect(), ..LayerSplit::default() };
        let layers = LayerObservation { split: Some(split), ..LayerObservation::default() };
        let mut test = TestRecord { layers: Some(layers), ..limited("round_trip", "") };
        test.spec.kind = TrafficKind::UdpRr;
        test
    }

    /// A test that changed, of eight pairs that are all alike but for a noise of one in a thousand.
    fn explained(a: &TestRecord, b: &TestRecord) -> TrialTest {
        let mut test = TrialTest { verdict: Some(TrialVerdict::Changed), ..TrialTest::default() };
        let pairs: Vec<[Observed; 2]> = (0..8)
            .map(|number| {
                let mut pair = [a, b].map(Observed::of);
                pair[number % 2].values.values_mut().for_each(|value| *value *= 1.0 + number as f64 / 1000.0);
                pair
            })
            .collect();
        explain(&mut test, &pairs);
        test
    }

    fn told(test: &TrialTest) -> Vec<(&str, &str, f64, f64)> {
        test.differences.iter().map(|one| (&*one.what, &*one.place, one.a.round(), one.b.round())).collect()
    }

    #[test]
    fn what_limits_one_arm_alone_is_told_whichever_cpu_it_was() {
        let [a, b] = [limited("receiver_cpu", "CPU 1"), limited("shaper", "node r, qdisc eth1")];
        let test = explained(&a, &b);
        let limits: Vec<_> = test.limits.iter().map(|one| (&*one.limit, one.a, one.b)).collect();
        assert_eq!(limits, [("receiver cpu", 8, 0), ("shaper at node r, qdisc eth1", 0, 8)]);
        let same = [limited("receiver_cpu", "CPU 1"), limited("receiver_cpu", "CPU 0")];
        assert_eq!(explained(&same[0], &same[1]).limits, []);
    }

    #[test]
    fn a_tunnel_that_cuts_frames_shows_at_the_interface_below_it() {
        let of = |frames, buffers| {
            let count = |hook| FlowCount {
                hook,
                leg: "forward".into(),
                frames,
                buffers,
                bytes: 1,
                later_fragments: 0,
                first_ns: 0,
            };
            let place = FlowInterface {
                node: "a".into(),
                interface: "eth0".into(),
                counts: vec![count(Hook::Egress)],
                ..FlowInterface::default()
            };
            let flow = record::FlowObservation { interfaces: vec![place], ..Default::default() };
            TestRecord { flow: Some(flow), ..limited("host_cpu", "") }
        };
        let test = explained(&of(4000, 100), &of(4000, 4000));
        assert_eq!(told(&test), [("segments per frame", "a:eth0 out", 40.0, 1.0)]);
        let effect = test.differences[0].effect;
        assert!((0.0249..0.0251).contains(&effect.value) && effect.high.is_some_and(|high| high < 0.03));
        assert_eq!(explained(&of(4000, 100), &of(3900, 100)).differences, [], "less than a tenth");
    }

    #[test]
    fn a_loss_that_only_one_arm_has_is_from_nothing() {
        let of = |drops: &[(&str, u64)]| {
            let one = |(name, count): &(&str, u64)| Drop {
                name: (*name).into(),
                count: *count,
                source: DropSource::Counter,
                evidence: String::new(),
            };
            let station = Station {
                node: "r".into(),
                station: "qdisc eth1".into(),
                drops: drops.iter().map(one).collect(),
                ..Station::default()
            };
            let ledger = Ledger {
                sent: 1000,
                received: 750,
                stations: vec![station],
                unexplained: 0,
                uncertainty: 0,
                witness: Witness::absent(WitnessStatus::NotPermitted, ""),
                notes: vec![],
            };
            TestRecord { ledger: Some(ledger), ..limited("qdisc", "") }
        };
        let test = explained(&of(&[]), &of(&[("qdisc_full", 250)]));
        assert_eq!(told(&test), [("lost", "qdisc_full at r qdisc eth1", 0.0, 25.0)]);
        assert!(test.differences[0].effect.value > 1e8);
    }

    #[test]
    fn the_layer_that_is_longer_is_named_also_where_one_arm_has_none_of_it() {
        let a = with_layers(&[("send", "a", 2000.0), ("qdisc", "a:eth0", 500.0), ("socket", "b", 4000.0)]);
        let b = with_layers(&[
            ("send", "a", 2100.0),
            ("qdisc", "a:eth0", 3_000_000.0),
            ("forwarding", "s", 900.0),
            ("socket", "b", 4000.0),
        ]);
        let test = explained(&a, &b);
        let layer = test.layer.as_ref().unwrap();
        assert_eq!((&*layer.layer, layer.in_b), ("qdisc a:eth0", true));
        assert!((2.9e6..3.1e6).contains(&layer.longer_ns) && layer.of_ns > layer.longer_ns, "{layer:?}");
        let of = |test: &TrialTest| -> Vec<String> { told(test).iter().map(|one| one.1.into()).collect() };
        assert_eq!(of(&test), ["qdisc a:eth0", "forwarding s"]);
        let back = explained(&b, &a);
        assert!(back.layer.as_ref().is_some_and(|layer| !layer.in_b && layer.layer == "qdisc a:eth0"));
        // Where it is a little of many, none is named.
        let spread =
            with_layers(&[("send", "a", 3000.0), ("qdisc", "a:eth0", 1400.0), ("socket", "b", 4900.0)]);
        assert_eq!(explained(&a, &spread).layer, None);
        let stream = |test: &TestRecord| {
            let mut test = test.clone();
            test.spec.kind = TrafficKind::TcpStream;
            test
        };
        let of_stream = explained(&stream(&a), &stream(&b));
        assert_eq!(of_stream.layer, None, "bytes wait in front of what is slow");
        assert!(of_stream.differences.iter().any(|one| one.what == "time in a layer"));
        assert_eq!(explained(&limited("cpu", ""), &b).layer, None, "one arm has no layers");
    }

    #[test]
    fn arms_that_do_not_differ_are_not_explained() {
        let [a, b] = [limited("receiver_cpu", ""), limited("shaper", "")];
        let pairs = vec![[&a, &b].map(Observed::of); 8];
        for verdict in [None, Some(TrialVerdict::Same), Some(TrialVerdict::CannotTell { more_pairs: None })] {
            let mut test = TrialTest { verdict, ..TrialTest::default() };
            explain(&mut test, &pairs);
            assert!(test.limits.is_empty() && test.differences.is_empty() && test.layer.is_none());
        }
    }
}
