//! The ledger of somebody else's flow against frames whose fates are decided one by one: where it begins and ends nobody says.

use super::WitnessInput;
use super::counted_tests::{Fate, World, absent, fates};
use super::follow::{FollowInput, follow, witness};
use crate::criteria::followed;
use proptest::prelude::*;
use record::Snapshot;
use record::flow::{FlowCount, FlowInterface, FlowObservation, FlowPlace, Hook};
use record::follow::{FollowEnd, FollowLeg};
use record::ledger::{WitnessDrop, WitnessStatus};
use std::collections::BTreeMap;

fn close(world: &World, home: Option<&str>, witness: &WitnessInput) -> Option<FollowLeg> {
    close_flow(&world.observation(), home, witness)
}

fn close_flow(flow: &FlowObservation, home: Option<&str>, witness: &WitnessInput) -> Option<FollowLeg> {
    let nothing = Snapshot::default();
    follow(&FollowInput {
        flow,
        leg: "forward",
        home,
        family: 4,
        addressed: [true; 2],
        protocol: "tcp",
        before: &nothing,
        after: &nothing,
        witness,
        rests: true,
        doubt: 0,
    })
}

fn at(node: &str) -> Option<FollowEnd> {
    Some(FollowEnd { node: node.into(), beyond: None })
}

fn seen(node: &str, reason: &str, frames: u64) -> WitnessDrop {
    WitnessDrop {
        reason: reason.into(),
        node: node.into(),
        interface: Some("eth0".into()),
        location: Some("tcp_v4_rcv".into()),
        frames,
        skbs: frames,
    }
}

proptest! {
    #[test]
    fn every_loss_between_the_first_and_the_last_counter_is_where_it_was(fates in fates()) {
        let mut world = World::default();
        fates.iter().for_each(|fate| world.send(*fate));
        let lost_at = |node: &str, station: &str| world.truth.get(&(node.into(), station.into())).copied().unwrap_or(0);
        // Nobody counts in the sender before its link, nor in the receiver behind it.
        let sent = fates.len() as u64 - lost_at("a", "ip out") as u64;
        let came = world.arrived + lost_at("b", "udp in") as u64;
        let Some(leg) = close(&world, Some("b"), &absent()) else {
            prop_assert_eq!(sent, 0);
            return Ok(());
        };
        prop_assert_eq!((leg.sent, leg.received, &leg.from), (sent, came, &at("a")));
        prop_assert_eq!(leg.unexplained, (sent - came) as i64, "{:#?}", leg.stations);
        let residuals: BTreeMap<(String, String), i64> = leg
            .stations
            .iter()
            .filter(|station| station.residual != 0)
            .map(|station| ((station.node.clone(), station.station.clone()), station.residual))
            .collect();
        let is_between = |(place, _): &(&(String, String), &i64)| place.1 != "ip out" && place.1 != "udp in";
        let truth = world.truth.iter().filter(is_between).map(|(place, lost)| (place.clone(), *lost)).collect();
        prop_assert_eq!(residuals, truth, "{:#?}", leg.stations);
    }
}

fn hundred(lost: usize, first: usize) -> World {
    let mut world = World::default();
    let fate = |index| Fate { lost: if index < first { lost } else { 99 }, second: false, copied: false };
    (0..100).for_each(|index| world.send(fate(index)));
    world
}

#[test]
fn what_the_witness_saw_names_what_is_missing_and_what_died_in_the_two_ends() {
    let world = hundred(4, 30);
    let details = vec![
        seen("r1", "NETFILTER_DROP", 30),
        seen("a", "NETFILTER_DROP", 2),
        seen("b", "SOCKET_RCVBUFF", 5),
        seen("b", "TCP_OLD_DATA", 7),
        seen("b", "NOT_SPECIFIED", 1),
    ];
    let input = WitnessInput::Counted { details, lost: 0 };
    let leg = close(&world, None, &input).unwrap();
    assert_eq!((&leg.from, &leg.to, leg.unexplained), (&at("a"), &at("b"), 0));
    assert_eq!(
        (leg.sent, leg.received),
        (102, 65),
        "two died before the first counter, five behind the last"
    );
    let drops = leg.stations.iter().flat_map(|station| station.drops.iter().map(move |drop| (station, drop)));
    let drops: Vec<_> =
        drops.map(|(station, drop)| (station.node.as_str(), drop.name.as_str(), drop.count)).collect();
    assert_eq!(drops, [("a", "filter", 2), ("r1", "filter", 30), ("b", "socket_buffer_full", 5)]);
    assert_eq!(leg.notes.len(), 2, "what TCP throws away is no loss: {:?}", leg.notes);
    assert_eq!(witness(&[input], std::slice::from_ref(&leg)).status, WitnessStatus::Agrees);
    assert_eq!(followed(std::slice::from_ref(&leg), Some("37".parse().unwrap())), None);
    assert!(followed(&[leg], Some("36".parse().unwrap())).unwrap().contains("37 of 102"));
}

#[test]
fn a_router_that_loses_everything_is_not_the_receiver() {
    let world = hundred(4, 100);
    let input = WitnessInput::Counted { details: vec![seen("r1", "NETFILTER_DROP", 100)], lost: 0 };
    for (home, input) in [(None, &input), (Some("b"), &input), (Some("b"), &absent())] {
        let leg = close(&world, home, input).unwrap();
        assert_eq!((leg.to, leg.sent, leg.received), (None, 100, 0));
        let guilty = leg.stations.iter().find(|station| station.left < station.entered).unwrap();
        assert_eq!((guilty.node.as_str(), guilty.station.as_str()), ("r1", "ip forward"));
    }
    let input = WitnessInput::Counted { details: vec![seen("r1", "NETFILTER_DROP", 150)], lost: 0 };
    let leg = close(&world, None, &input).unwrap();
    assert_eq!(witness(&[input], &[leg]).status, WitnessStatus::Disagrees, "it saw more than is missing");
}

#[test]
fn copies_are_no_loss_although_nothing_reached_the_receiver() {
    let mut world = World::default();
    world.send(Fate { lost: 3, second: false, copied: true });
    let leg = close(&world, Some("b"), &absent()).unwrap();
    assert_eq!((leg.to, leg.sent, leg.received, leg.unexplained), (None, 1, 0, 1));
    let guilty = leg.stations.iter().find(|station| station.residual != 0).unwrap();
    assert_eq!((guilty.node.as_str(), guilty.station.as_str()), ("s", "link p2"));
}

#[test]
fn what_nobody_sees_of_the_way_is_one_section() {
    let mut flow = hundred(4, 30).observation();
    flow.interfaces.retain(|at| at.node == "a" || at.node == "b");
    flow.interfaces.iter_mut().for_each(|at| at.other = None);
    let leg = close_flow(&flow, None, &absent()).unwrap();
    assert_eq!((leg.sent, leg.received, leg.unexplained), (100, 70, 30));
    let [link] = &leg.links[..] else { panic!("{:?}", leg.links) };
    let place = |place: &Option<FlowPlace>| place.as_ref().map(|at| at.node.clone());
    assert_eq!((place(&link.from), place(&link.to)), (Some("a".into()), Some("b".into())));
    // Only the node in the middle: both ends are outside.
    let mut flow = hundred(6, 30).observation();
    flow.interfaces.retain(|at| at.node == "r2");
    flow.interfaces.iter_mut().for_each(|at| at.other = None);
    let leg = close_flow(&flow, None, &absent()).unwrap();
    let beyond = |interface: &str| Some(FollowEnd { node: "r2".into(), beyond: Some(interface.into()) });
    assert_eq!((leg.from, leg.to), (beyond("eth1"), beyond("eth0")));
    assert_eq!((leg.sent, leg.received, leg.stations.len()), (100, 70, 1));
    assert_eq!((leg.stations[0].station.as_str(), leg.stations[0].residual), ("ip forward", 30));
}

/// An interface: its node, its name, its other end, and the frames that it counted, in and out.
type Counted<'a> = (&'a str, &'a str, (&'a str, &'a str), [u64; 2]);

/// A leg between interfaces.
fn flow_of(interfaces: &[Counted]) -> FlowObservation {
    let one = |(node, interface, other, counts): &Counted| {
        let at = |hook, frames, first_ns| FlowCount {
            hook,
            leg: "forward".into(),
            frames,
            buffers: frames,
            bytes: frames * 142,
            later_fragments: 0,
            first_ns,
        };
        let (into, out) = (at(Hook::Ingress, counts[0], 2), at(Hook::Egress, counts[1], 1));
        FlowInterface {
            node: (*node).into(),
            interface: (*interface).into(),
            kind: "veth".into(),
            other: Some(FlowPlace { node: other.0.into(), interface: other.1.into() }),
            counts: [into, out].into_iter().filter(|count| count.frames > 0).collect(),
            ..FlowInterface::default()
        }
    };
    FlowObservation { interfaces: interfaces.iter().map(one).collect(), ..FlowObservation::default() }
}

/// The leg of words without addresses, beside counters of the nodes.
fn open_leg(flow: &FlowObservation, moved: &[(&str, &str, u64)], witness: &WitnessInput) -> FollowLeg {
    let snapshot = |is_after: bool| {
        let mut snapshot = Snapshot::default();
        for (node, name, count) in moved {
            let counters = &mut snapshot.nodes.entry((*node).into()).or_default().protocols;
            counters.insert((*name).into(), if is_after { *count } else { 0 });
        }
        snapshot
    };
    let (before, after) = (snapshot(false), snapshot(true));
    let input = FollowInput {
        flow,
        leg: "forward",
        home: None,
        addressed: [false; 2],
        family: 4,
        protocol: "udp",
        before: &before,
        after: &after,
        witness,
        rests: true,
        doubt: 0,
    };
    follow(&input).unwrap()
}

#[test]
fn what_comes_back_over_the_loopback_interface_has_arrived() {
    let flow = flow_of(&[("a", "lo", ("a", "lo"), [30, 30])]);
    let none = WitnessInput::Counted { details: vec![], lost: 0 };
    let leg = open_leg(&flow, &[], &none);
    assert_eq!(
        (leg.sent, leg.received, leg.unexplained, &leg.to),
        (30, 30, 0, &at("a")),
        "{:#?}",
        leg.stations
    );
    let filtered = WitnessInput::Counted { details: vec![seen("a", "NETFILTER_DROP", 10)], lost: 0 };
    let leg = open_leg(&flow, &[], &filtered);
    assert_eq!((leg.sent, leg.received, leg.unexplained), (30, 20, 0), "{:#?}", leg.stations);
}

/// Seen with multicast over a port of a bridge that reflects it: the sender's node threw away what came back, and that was said to have died
/// before it was sent.
#[test]
fn what_came_back_to_its_sender_and_died_there_had_left_it() {
    let flow = flow_of(&[
        ("a", "eth0", ("s", "p1"), [50, 50]),
        ("s", "p1", ("a", "eth0"), [50, 50]),
        ("s", "p2", ("b", "eth0"), [0, 50]),
        ("b", "eth0", ("s", "p2"), [50, 0]),
    ]);
    let died = WitnessInput::Counted { details: vec![seen("a", "IP_RPFILTER", 50)], lost: 0 };
    let leg = open_leg(&flow, &[], &died);
    assert_eq!((leg.sent, leg.received, leg.unexplained), (50, 50, 0), "{:#?}", leg.stations);
    let drops = leg.stations.iter().flat_map(|one| one.drops.iter().map(move |drop| (&one.station, drop)));
    let drops: Vec<_> = drops.map(|(at, drop)| (at.as_str(), drop.name.as_str(), drop.count)).collect();
    assert_eq!(drops, [("ip forward", "copy", 50)], "{:#?}", leg.stations);
}

/// a → r → b, of which some end at r and some begin there.
fn over_a_router(into: u64, out: u64) -> FlowObservation {
    flow_of(&[
        ("a", "eth0", ("r", "eth0"), [0, into]),
        ("r", "eth0", ("a", "eth0"), [into, 0]),
        ("r", "eth1", ("b", "eth0"), [0, out]),
        ("b", "eth0", ("r", "eth1"), [out, 0]),
    ])
}

#[test]
fn what_a_router_got_itself_is_no_loss_and_what_it_sent_was_not_made() {
    let none = WitnessInput::Counted { details: vec![], lost: 0 };
    let leg = open_leg(&over_a_router(70, 30), &[("r", "Udp.InDatagrams", 40)], &none);
    assert_eq!((leg.sent, leg.received, leg.unexplained), (70, 70, 0), "{:#?}", leg.stations);
    assert!(
        leg.notes.iter().any(|note| note.contains("40 of the frames received ended at r")),
        "{:?}",
        leg.notes
    );
    // Its programs got too few: they are missing.
    let leg = open_leg(&over_a_router(70, 30), &[("r", "Udp.InDatagrams", 39)], &none);
    assert_eq!((leg.sent, leg.received, leg.unexplained), (70, 30, 40), "{:#?}", leg.stations);
    let leg = open_leg(&over_a_router(30, 70), &[("r", "Udp.OutDatagrams", 40)], &none);
    assert_eq!((leg.sent, leg.received, leg.unexplained), (70, 70, 0), "{:#?}", leg.stations);
    assert!(leg.stations.iter().all(|station| station.made == 0), "{:#?}", leg.stations);
}

#[test]
fn a_datagram_that_lost_a_later_fragment_has_not_arrived() {
    let mut flow = over_a_router(30, 30);
    for one in &mut flow.interfaces {
        let later = if one.node == "b" || (one.node == "r" && one.interface == "eth1") { 30 } else { 60 };
        one.counts.iter_mut().for_each(|count| count.later_fragments = later);
    }
    let none = WitnessInput::Counted { details: vec![], lost: 0 };
    let leg = open_leg(&flow, &[], &none);
    assert_eq!((leg.sent, leg.received, leg.unexplained), (30, 0, 30), "{:#?}", leg.stations);
    let guilty = leg.stations.iter().find(|station| station.residual != 0).unwrap();
    assert_eq!((guilty.node.as_str(), guilty.station.as_str()), ("r", "ip forward"));
}

#[test]
fn a_datagram_that_was_lost_with_its_first_fragment_is_lost_once() {
    // Three of 31 datagrams, one of which is whole: behind the router nobody knows their later fragments, whether they came or not.
    let mut flow = over_a_router(31, 28);
    for one in &mut flow.interfaces {
        let later = if one.node == "b" || (one.node == "r" && one.interface == "eth1") { 54 } else { 60 };
        one.counts.iter_mut().for_each(|count| count.later_fragments = later);
    }
    let filtered = WitnessInput::Counted { details: vec![seen("r", "NETFILTER_DROP", 3)], lost: 0 };
    let leg = open_leg(&flow, &[], &filtered);
    assert_eq!((leg.sent, leg.received, leg.unexplained), (31, 28, 0), "{:#?}", leg.stations);
    assert!(leg.notes.is_empty(), "{:?}", leg.notes);
}

#[test]
fn what_reaches_a_tcp_behind_its_end_is_no_loss_and_a_refused_connection_is_one() {
    let world = hundred(4, 0);
    let after_end = WitnessInput::Counted { details: vec![seen("b", "NO_SOCKET", 7)], lost: 0 };
    let leg = close(&world, Some("b"), &after_end).unwrap();
    assert_eq!((leg.sent, leg.received, leg.notes.len()), (100, 100, 1), "{:?}", leg.notes);
    let refused = WitnessInput::Counted { details: vec![seen("b", "NO_SOCKET", 100)], lost: 0 };
    let leg = close(&world, Some("b"), &refused).unwrap();
    assert_eq!((leg.sent, leg.received), (100, 0), "{:?}", leg.notes);
}

#[test]
fn a_node_whose_sockets_refused_everything_is_the_receiver() {
    let refused = WitnessInput::Counted { details: vec![seen("b", "NO_SOCKET", 30)], lost: 0 };
    let leg = open_leg(&over_a_router(30, 30), &[], &refused);
    assert_eq!((leg.sent, leg.received, &leg.to), (30, 0, &at("b")), "{:#?}", leg.stations);
    let guilty = leg.stations.iter().find(|station| !station.drops.is_empty()).unwrap();
    assert_eq!((guilty.node.as_str(), guilty.station.as_str()), ("b", "node in"));
}
