//! Two readings as facts: what moved, what changed, and what only both together tell.

use std::collections::BTreeMap;

use record::Delta;
use record::facts::{Fact, Facts, Known, NodeFacts, SCHEMA, joined, stale};

use super::{FactReading, NodeReading};
use crate::observe::facts::tick_hz;
use crate::observe::processes;

/// A thread that used less of a CPU is not told.
const BUSY_SHARE: f64 = 0.05;
/// So many datagrams of UDP may pass before flows are more than connections of TCP.
const FEW_DATAGRAMS: u64 = 100;
/// Names of the window that are no settings.
const VOLATILE: [&str; 9] =
    ["tcp.", "thread.", "clock.", "qdisc.backlog", "bql.", "neighbours", "sockstat.", "conntrack.", "phc."];

/// The facts.
pub(super) fn facts(before: FactReading, mut after: FactReading) -> Facts {
    let lasted_ns = after.at_ns.saturating_sub(before.at_ns);
    let seconds = lasted_ns as f64 / 1e9;
    let mut host = window(&before.host, &after.host);
    busy_threads(&mut host, seconds);
    host.insert("thread.netns".into(), namespaces(&host));
    clocks(&mut host, &before.host, &after.host, lasted_ns);
    let mut nodes = BTreeMap::new();
    for (name, old) in &before.nodes {
        if let Some(new) = after.nodes.remove(name) {
            nodes.insert(name.clone(), node(old, new));
        }
    }
    other_ends(&mut nodes);
    Facts {
        schema: SCHEMA.into(),
        pathlab: env!("CARGO_PKG_VERSION").into(),
        seconds,
        host,
        nodes,
        cost_cpu_ns: before.cost_ns.saturating_add(after.cost_ns),
    }
}

/// Both readings; what changes by itself is no change of a setting.
fn window(before: &Known, after: &Known) -> Known {
    let mut known = joined(before, after);
    if let Some(Fact::Each { each }) = known.get_mut("changed") {
        each.retain(|name, _| {
            name.starts_with("tcp.sndbuf") || !VOLATILE.iter().any(|begin| name.starts_with(begin))
        });
    }
    known
}

fn node(old: &NodeReading, new: NodeReading) -> NodeFacts {
    let mut known = window(&old.known, &new.known);
    only_moving(&mut known);
    known.insert("tcp.connections".into(), some_moved(&known));
    known.insert("flows.active".into(), flows(&known));
    let mut interfaces = BTreeMap::new();
    for (name, then) in &old.interfaces {
        interfaces
            .insert(name.clone(), stale(then, "the interface was down or gone at the end of the window"));
    }
    // One that was made again under its name has another index, and its counters began anew.
    let index = |known: &Known| known.get("link.index").cloned();
    for (name, now) in &new.interfaces {
        let then = old.interfaces.get(name).filter(|then| index(then) == index(now));
        let mut known = window(&then.cloned().unwrap_or_default(), now);
        known.insert("counters.backwards".into(), backwards(&known));
        interfaces.insert(name.clone(), known);
    }
    let both = |(name, after): (String, String)| {
        let before = old.texts.get(&name).cloned().unwrap_or_default();
        (name, [before, after])
    };
    NodeFacts { known, interfaces, texts: new.texts.into_iter().map(both).collect(), ..NodeFacts::default() }
}

fn moved(fact: Option<&Fact>) -> Option<u64> {
    match fact? {
        Fact::Counter { before, after } => Delta::of(*before, *after).known(),
        _ => None,
    }
}

/// Connections on which nothing moved are left out: nothing can be said of them.
fn only_moving(known: &mut Known) {
    let Some(Fact::Each { each }) = known.get("tcp.segs_out").cloned() else { return };
    let incoming = match known.get("tcp.segs_in") {
        Some(Fact::Each { each }) => each.clone(),
        _ => BTreeMap::new(),
    };
    let is_moving = |place: &String| {
        let one = |all: &BTreeMap<String, Fact>| moved(all.get(place)).is_some_and(|moved| moved > 0);
        one(&each) || one(&incoming)
    };
    for (_, fact) in known.iter_mut().filter(|(name, _)| name.starts_with("tcp.")) {
        if let Fact::Each { each } = fact {
            each.retain(|place, _| is_moving(place));
        }
    }
}

/// Whether segments came or went on any connection.
fn some_moved(known: &Known) -> Fact {
    match known.get("tcp.segs_out") {
        Some(Fact::Each { each }) => Fact::Text(if each.is_empty() { "none" } else { "some" }.into()),
        Some(other) => other.clone(),
        None => Fact::unknown("connections were not listed"),
    }
}

/// Connections that moved, where there was little else.
fn flows(known: &Known) -> Fact {
    let datagrams = ["Udp.InDatagrams", "Udp.OutDatagrams"].map(|name| moved(known.get(name)));
    match (datagrams, known.get("tcp.segs_out")) {
        ([Some(read), Some(sent)], Some(Fact::Each { each })) if read.max(sent) <= FEW_DATAGRAMS => {
            Fact::Number(each.len() as f64)
        }
        ([Some(_), Some(_)], _) => Fact::unknown("flows of UDP are not counted"),
        _ => Fact::unknown("it is not known whether there were datagrams"),
    }
}

/// Counters of the interface that are smaller at the end.
fn backwards(known: &Known) -> Fact {
    let back = |(name, fact): (&String, &Fact)| match fact {
        Fact::Counter { before, after } if after < before => {
            Some((name.clone(), Fact::Text(format!("{before} → {after}"))))
        }
        _ => None,
    };
    Fact::each(known.iter().filter_map(back).collect::<Vec<_>>())
}

/// What part of a CPU the busy threads used, and where they ran.
fn busy_threads(host: &mut Known, seconds: f64) {
    let ticks = host.remove("thread.ticks");
    let share = |(place, fact): (String, Fact)| {
        let share = moved(Some(&fact))? as f64 / tick_hz() as f64 / seconds.max(1e-9);
        (share >= BUSY_SHARE).then_some((place, Fact::Number(share)))
    };
    let busy: BTreeMap<String, Fact> = match ticks {
        Some(Fact::Each { each }) => each.into_iter().filter_map(share).collect(),
        _ => BTreeMap::new(),
    };
    if let Some(Fact::Each { each }) = host.get_mut("thread.cpu") {
        each.retain(|place, _| busy.contains_key(place));
    }
    host.insert("thread.busy_share".into(), Fact::Each { each: busy });
}

/// The namespaces in which busy threads have sockets of the network; `none` of one without.
fn namespaces(host: &Known) -> Fact {
    let Some(Fact::Each { each }) = host.get("thread.busy_share") else { return Fact::each([]) };
    let of = |place: &String| {
        let number = place.split(' ').next().and_then(|number| number.parse().ok())?;
        Some(match processes::namespace_of_sockets(number) {
            Ok(Some(inode)) => Fact::Number(inode as f64),
            Ok(None) => Fact::Text("none".into()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Fact::Text("none".into()),
            Err(error) => Fact::unknown(format!("its sockets cannot be listed: {error}")),
        })
    };
    Fact::each(each.keys().filter_map(|place| Some((place.clone(), of(place)?))))
}

/// By how much the clock was set, and how fast it runs.
fn clocks(host: &mut Known, before: &Known, after: &Known, lasted_ns: u64) {
    let change = |name: &str| match (before.get(name), after.get(name)) {
        (Some(Fact::Number(before)), Some(Fact::Number(after))) => Some(after - before),
        _ => None,
    };
    let unknown = || Fact::unknown("the clocks were not read");
    let step = change("clock.wall_ahead_ns").map_or_else(unknown, Fact::Number);
    let slew = change("clock.raw_ahead_ns").map(|ns| Fact::Number(ns / lasted_ns.max(1) as f64 * 1e6));
    host.insert("clock.step_ns".into(), step);
    host.insert("clock.slew_ppm".into(), slew.unwrap_or_else(unknown));
}

/// An end of a veth pair: node, interface, its number, that of the other end, its MTU.
type End = (String, String, f64, f64, f64);

/// The MTU of the other end of each veth pair of which both ends are here, and which they are beyond doubt.
fn other_ends(nodes: &mut BTreeMap<String, NodeFacts>) {
    let number = |known: &Known, name: &str| match known.get(name) {
        Some(Fact::Number(number)) => Some(*number),
        _ => None,
    };
    let end = |node: &String, (name, known): (&String, &Known)| {
        let own = number(known, "link.index")?;
        Some((node.clone(), name.clone(), own, number(known, "link.other")?, number(known, "mtu")?))
    };
    let ends: Vec<End> = nodes
        .iter()
        .flat_map(|(node, facts)| facts.interfaces.iter().filter_map(move |one| end(node, one)))
        .collect();
    for (node, name, own, other, _) in &ends {
        let is_other = |end: &&End| end.0 != *node && end.2 == *other && end.3 == *own;
        let others: Vec<&End> = ends.iter().filter(is_other).collect();
        let known = nodes.get_mut(node).and_then(|facts| facts.interfaces.get_mut(name));
        if let (Some(known), [only]) = (known, &others[..]) {
            known.insert("mtu.other".into(), Fact::Number(only.4));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(before: u64, after: u64) -> Fact {
        Fact::Counter { before, after }
    }

    #[test]
    fn flows_are_known_only_when_there_was_no_udp() {
        let known = |datagrams| {
            Known::from([
                ("Udp.InDatagrams".into(), counter(0, datagrams)),
                ("Udp.OutDatagrams".into(), counter(5, 5)),
                ("tcp.segs_out".into(), Fact::each([("a".into(), counter(0, 9))])),
            ])
        };
        assert_eq!(flows(&known(3)), Fact::Number(1.0));
        assert!(flows(&known(9000)).why_unknown().is_some());
        assert!(flows(&Known::new()).why_unknown().is_some());
    }

    #[test]
    fn connections_that_did_nothing_are_left_out() {
        let each = |a, b| Fact::each([("a".to_owned(), a), ("b".to_owned(), b)]);
        let mut known = Known::from([
            ("tcp.segs_out".into(), each(counter(1, 1), counter(1, 4))),
            ("tcp.segs_in".into(), each(counter(1, 1), counter(0, 0))),
            ("tcp.rtt_us".into(), each(Fact::Number(1.0), Fact::Number(2.0))),
        ]);
        only_moving(&mut known);
        assert_eq!(known["tcp.rtt_us"].words(), "b: 2");
        assert_eq!(some_moved(&known), Fact::Text("some".into()));
        assert!(some_moved(&Known::new()).why_unknown().is_some());
    }

    #[test]
    fn the_other_end_of_a_veth_pair_is_found_when_there_is_one_only() {
        let end = |own: f64, other: f64, mtu: f64| {
            let known = [("link.index", own), ("link.other", other), ("mtu", mtu)];
            let known: Known = known.map(|(name, value)| (name.to_owned(), Fact::Number(value))).into();
            NodeFacts { interfaces: BTreeMap::from([("eth0".to_owned(), known)]), ..NodeFacts::default() }
        };
        let mut nodes = BTreeMap::from([
            ("a".to_owned(), end(2.0, 3.0, 1500.0)),
            ("b".to_owned(), end(3.0, 2.0, 1400.0)),
        ]);
        other_ends(&mut nodes);
        assert_eq!(nodes["a"].interfaces["eth0"]["mtu.other"], Fact::Number(1400.0));
        nodes.insert("c".to_owned(), end(3.0, 2.0, 1400.0));
        nodes.get_mut("a").unwrap().interfaces.get_mut("eth0").unwrap().remove("mtu.other");
        other_ends(&mut nodes);
        assert!(!nodes["a"].interfaces["eth0"].contains_key("mtu.other"), "two could be the other end");
    }

    #[test]
    fn an_interface_that_was_made_again_has_counters_of_its_own_and_one_that_went_is_unknown() {
        let reading = |interfaces: &[(&str, f64, u64)]| {
            let of = |(name, index, frames): &(&str, f64, u64)| {
                let known = [
                    ("link.index".to_owned(), Fact::Number(*index)),
                    ("stats.rx_packets".to_owned(), counter(*frames, *frames)),
                ];
                ((*name).to_owned(), known.into())
            };
            NodeReading { interfaces: interfaces.iter().map(of).collect(), ..NodeReading::default() }
        };
        let old = reading(&[("stays", 2.0, 10), ("again", 3.0, 10), ("went", 4.0, 10)]);
        let facts = node(&old, reading(&[("stays", 2.0, 15), ("again", 5.0, 15)]));
        let frames = |name: &str| facts.interfaces[name]["stats.rx_packets"].clone();
        assert_eq!(frames("stays"), counter(10, 15));
        assert!(frames("again").why_unknown().unwrap().contains("not there at the begin"));
        assert!(frames("went").why_unknown().unwrap().contains("down or gone at the end"));
        assert_eq!(facts.interfaces["went"]["link.index"], Fact::Number(4.0), "a setting is known");
    }

    #[test]
    fn a_counter_that_ran_backwards_is_told() {
        let known =
            Known::from([("stats.rx_packets".into(), counter(9, 2)), ("mtu".into(), Fact::Number(1.0))]);
        assert_eq!(backwards(&known).words(), "stats.rx_packets: 9 → 2");
    }
}
