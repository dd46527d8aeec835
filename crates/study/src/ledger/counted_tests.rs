//! The ledger of a counted flow against frames whose fates are decided one by one, on a path with a bridge that may flood, and two links
//! between two routers. Nothing but the flow is counted, so every loss is a residual, and must be the true one.

use super::{LedgerInput, Ports, WitnessInput, close};
use crate::way::{Nodes, sections};
use proptest::prelude::*;
use record::flow::{FlowCount, FlowInterface, FlowObservation, FlowPlace, Hook, LateInterface};
use record::ledger::WitnessDrop;
use record::snapshot::{
    DirectionSample, FilterSample, LinkSample, NodeSnapshot, PacketSocketSample, QdiscSample, TC_ROOT,
};
use record::{
    EndReport, Hop, Ledger, NodeRole, Path, Snapshot, TestSpec, TrafficKind, Witness, WitnessStatus, drop,
};
use std::collections::BTreeMap;

/// Both ends of each link, and the bridge that the second one is a port of.
const LINKS: [([&str; 2], [&str; 2]); 6] = [
    (["a", "eth0"], ["s", "p1"]),
    (["s", "p2"], ["r1", "eth0"]),
    (["s", "p3"], ["c", "eth0"]),
    (["r1", "eth1"], ["r2", "eth1"]),
    (["r1", "eth2"], ["r2", "eth2"]),
    (["r2", "eth0"], ["b", "eth0"]),
];

const ENDS: Nodes<'_> = Nodes { from: "a", to: "b", programs: &[], emulated: &[] };

/// What happens to one frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fate {
    /// Where it is lost: the node or link of that number on its way; beyond the end nowhere.
    pub(super) lost: usize,
    /// By the second link between the routers.
    pub(super) second: bool,
    /// The bridge also sends it to `c`.
    pub(super) copied: bool,
}

#[derive(Default)]
pub(super) struct World {
    counts: BTreeMap<(String, String, bool), FlowCount>,
    now: u64,
    /// (node, station) → frames lost there.
    pub(super) truth: BTreeMap<(String, String), i64>,
    pub(super) copies: u64,
    pub(super) arrived: u64,
    /// How many of those came twice.
    doubled: u64,
    /// Where the first frames are not counted, because an interface is new: how many were not, and how many will not be.
    unseen: BTreeMap<(String, String, bool), (u64, u64)>,
}

impl World {
    fn pass(&mut self, [node, interface]: [&str; 2], hook: Hook) {
        self.now += 1;
        let key = (node.to_owned(), interface.to_owned(), hook == Hook::Egress);
        if let Some((missed, most)) = self.unseen.get_mut(&key)
            && missed < most
        {
            *missed += 1;
            return;
        }
        let first = FlowCount {
            hook,
            leg: "forward".into(),
            frames: 0,
            buffers: 0,
            bytes: 0,
            later_fragments: 0,
            first_ns: self.now,
        };
        let count = self.counts.entry(key).or_insert(first);
        (count.frames, count.buffers) = (count.frames + 1, count.buffers + 1);
    }

    fn lose(&mut self, node: &str, station: &str) {
        *self.truth.entry((node.into(), station.into())).or_default() += 1;
    }

    /// Over a link; false when it is lost there.
    fn cross(&mut self, link: usize, is_lost: bool) -> bool {
        let (from, to) = LINKS[link];
        self.pass(from, Hook::Egress);
        if is_lost {
            self.lose(from[0], &format!("link {}", from[1]));
        } else {
            self.pass(to, Hook::Ingress);
        }
        !is_lost
    }

    pub(super) fn send(&mut self, fate: Fate) {
        let way = [0, 1, if fate.second { 4 } else { 3 }, 5];
        let stations = ["ip out", "bridge br0", "ip forward", "ip forward"];
        for (index, link) in way.into_iter().enumerate() {
            if fate.lost == index * 2 {
                return self.lose(LINKS[link].0[0], stations[index]);
            }
            if index == 1 && fate.copied {
                self.cross(2, false);
                self.copies += 1;
            }
            if !self.cross(link, fate.lost == index * 2 + 1) {
                return;
            }
        }
        if fate.lost == 8 {
            return self.lose("b", "udp in");
        }
        self.arrived += 1;
    }

    fn late(&self, at: [&str; 2]) -> Option<LateInterface> {
        let missed = |egress| Some(self.unseen.get(&(at[0].into(), at[1].into(), egress))?.0);
        let (received, sent) = (missed(false), missed(true));
        received.or(sent)?;
        let [received, sent] = [received, sent].map(Option::unwrap_or_default);
        Some(LateInterface { after_ns: 5_000_000, received, sent })
    }

    pub(super) fn observation(&self) -> FlowObservation {
        let interface = |at: [&str; 2], other: [&str; 2]| FlowInterface {
            node: at[0].into(),
            interface: at[1].into(),
            kind: "veth".into(),
            master: (at[0] == "s").then(|| "br0".into()),
            other: Some(FlowPlace { node: other[0].into(), interface: other[1].into() }),
            late: self.late(at),
            counts: [false, true]
                .into_iter()
                .filter_map(|egress| self.counts.get(&(at[0].into(), at[1].into(), egress)).cloned())
                .collect(),
        };
        let both = |(one, other)| [interface(one, other), interface(other, one)];
        FlowObservation { interfaces: LINKS.into_iter().flat_map(both).collect(), ..Default::default() }
    }

    fn close(&self, sent: u64, witness: WitnessInput) -> Ledger {
        let node = |name: &str| (name.to_owned(), NodeSnapshot::default());
        let nodes = ["a", "s", "r1", "r2", "b", "c"].map(node).into_iter().collect();
        let snapshot = Snapshot { nodes, ..Snapshot::default() };
        self.close_between(sent, witness, [&snapshot, &snapshot])
    }

    fn close_between(&self, sent: u64, witness: WitnessInput, [before, after]: [&Snapshot; 2]) -> Ledger {
        let spec = TestSpec { kind: TrafficKind::UdpStream, size: 100, ..TestSpec::default() };
        self.close_of(&spec, sent, witness, [before, after])
    }

    fn close_of(
        &self,
        spec: &TestSpec,
        sent: u64,
        witness: WitnessInput,
        [before, after]: [&Snapshot; 2],
    ) -> Ledger {
        let hop = Hop { node: "a".into(), role: NodeRole::Sender, ingress: None, egress: None, bridge: None };
        let path = Path { forward: vec![hop], ..Path::default() };
        close(&LedgerInput {
            spec,
            path: &path,
            sender: &EndReport { attempted: sent, sent, ..EndReport::default() },
            receiver: &EndReport {
                received: self.arrived,
                unique: self.arrived - self.doubled,
                duplicates: self.doubled,
                ..EndReport::default()
            },
            before,
            after,
            idle: None,
            witness,
            ports: Ports::default(),
            flow: Some(&self.observation()),
            arrival: None,
        })
    }
}

pub(super) fn absent() -> WitnessInput {
    WitnessInput::Absent(Witness::absent(WitnessStatus::Unavailable, "a test"))
}

pub(super) fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = (prop_oneof![1 => 0..9usize, 3 => Just(99)], any::<bool>());
    (prop::collection::vec(fate, 0..200), any::<bool>()).prop_map(|(fates, floods)| {
        let fate = |(index, (lost, second)): (usize, (usize, bool))| {
            // What a bridge both lost and made nobody can tell apart by counting.
            let lost = if floods && lost == 2 { 99 } else { lost };
            Fate { lost, second, copied: floods && index % 3 == 0 }
        };
        fates.into_iter().enumerate().map(fate).collect()
    })
}

proptest! {
    #[test]
    fn every_loss_is_where_it_was_and_no_copy_is_one(fates in fates()) {
        let mut world = World::default();
        fates.iter().for_each(|fate| world.send(*fate));
        let ledger = world.close(fates.len() as u64, absent());
        let residuals: BTreeMap<(String, String), i64> = ledger
            .stations
            .iter()
            .filter(|station| station.residual != 0)
            .map(|station| ((station.node.clone(), station.station.clone()), station.residual))
            .collect();
        // A loss in the last node lies between its counter and its socket, and nothing tells the station.
        let truth = world.truth.clone();
        prop_assert_eq!(&residuals, &truth, "{:#?}", ledger.stations);
        let made: u64 = ledger.stations.iter().map(|station| station.made).sum();
        let copies: u64 = ledger
            .stations
            .iter()
            .flat_map(|station| &station.drops)
            .filter(|drop| drop.name == record::drop::COPY)
            .map(|drop| drop.count)
            .sum();
        prop_assert_eq!((made, copies), (world.copies, world.copies));
        prop_assert_eq!(ledger.uncertainty, 0);
        prop_assert_eq!(ledger.unexplained, (fates.len() as i64) - world.arrived as i64);
    }
}

proptest! {
    /// The second link between the routers comes during the test, and its first frames are not counted at one end or both.
    #[test]
    fn an_interface_that_came_late_is_the_uncertainty_and_accuses_nobody(
        fates in fates(),
        here in 0..9u64,
        there in 0..9u64,
    ) {
        late(&fates, here, there)?;
    }
}

/// The first frames over the second link between the routers, so many, are not counted here and there.
fn late(fates: &[Fate], here: u64, there: u64) -> Result<(), TestCaseError> {
    let mut world = World::default();
    world.unseen.insert(("r1".into(), "eth2".into(), true), (0, here));
    world.unseen.insert(("r2".into(), "eth2".into(), false), (0, there));
    fates.iter().for_each(|fate| world.send(*fate));
    let missed = |key: (&str, bool)| world.unseen[&(key.0.to_owned(), "eth2".to_owned(), key.1)].0;
    let (here, there) = (missed(("r1", true)), missed(("r2", false)));
    let ledger = world.close(fates.len() as u64, absent());
    // Where no frame was counted at either end, nobody knows that there is a way.
    let is_seen = ["r1", "r2"]
        .iter()
        .any(|node| world.counts.keys().any(|(at, interface, _)| at == node && interface == "eth2"));
    prop_assume!(is_seen || here + there == 0);
    for station in &ledger.stations {
        let truth = world.truth.get(&(station.node.clone(), station.station.clone())).copied().unwrap_or(0);
        let is_near = ["r1", "r2"].contains(&station.node.as_str());
        prop_assert!(is_near || station.uncertainty == 0, "{station:?}");
        prop_assert!(station.uncertainty <= here + there, "{station:?}");
        prop_assert!(truth.abs_diff(station.residual) <= station.uncertainty, "{truth} {station:?}");
    }
    let made: u64 = ledger.stations.iter().map(|station| station.made).sum();
    prop_assert_eq!(made, world.copies);
    Ok(())
}

/// None of the two frames of the second way was counted behind its link, whose other end therefore was no way to the receiver: the
/// copy for a third node was taken for a loss there.
#[test]
fn a_way_of_which_one_end_was_never_counted_is_a_way() {
    let fate = |lost, second, copied| Fate { lost, second, copied };
    let fates = [fate(0, false, true), fate(99, true, false), fate(99, true, false), fate(3, false, true)];
    late(&fates, 1, 2).unwrap();
}

#[test]
fn a_name_is_given_only_as_far_as_the_witness_saw_the_flow_die() {
    let mut world = World::default();
    (0..100)
        .for_each(|i| world.send(Fate { lost: if i < 30 { 4 } else { 99 }, second: false, copied: false }));
    let seen = |frames: u64| WitnessDrop {
        reason: "NETFILTER_DROP".into(),
        node: "r1".into(),
        interface: Some("eth0".into()),
        location: None,
        frames,
        skbs: frames,
    };
    let ledger = world.close(100, WitnessInput::Counted { details: vec![seen(30)], lost: 0 });
    let guilty = ledger.stations.iter().find(|station| !station.drops.is_empty()).unwrap();
    assert_eq!((guilty.node.as_str(), guilty.station.as_str()), ("r1", "ip forward"));
    assert_eq!((guilty.drops[0].name.as_str(), guilty.drops[0].count), ("filter", 30));
    assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
    let ledger = world.close(100, WitnessInput::Counted { details: vec![seen(10)], lost: 0 });
    assert_eq!(ledger.unexplained, 20, "what it did not see has no name");
}

/// An event that the witness could not count may be anybody's: it lends no name to what it did see die of something else.
#[test]
fn an_event_that_was_not_counted_gives_no_name_to_a_frame_that_was() {
    let mut world = World::default();
    (0..100)
        .for_each(|i| world.send(Fate { lost: if i < 30 { 0 } else { 99 }, second: false, copied: false }));
    let strangers = |count| {
        let protocols = [("Ip.OutNoRoutes".to_owned(), count)].into_iter().collect();
        let node = NodeSnapshot { protocols, ..NodeSnapshot::default() };
        Snapshot { nodes: [("a".to_owned(), node)].into_iter().collect(), ..Snapshot::default() }
    };
    let names = |frames| {
        let seen = WitnessDrop {
            reason: "NEIGH_QUEUEFULL".into(),
            node: "a".into(),
            interface: Some("eth0".into()),
            location: Some("__neigh_event_send".into()),
            frames,
            skbs: frames,
        };
        let witness = WitnessInput::Counted { details: vec![seen], lost: 1 };
        let ledger = world.close_between(100, witness, [&strangers(0), &strangers(2000)]);
        assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
        let drops = ledger.stations.into_iter().flat_map(|station| station.drops);
        drops.map(|drop| (drop.name, drop.count)).collect::<BTreeMap<_, _>>()
    };
    let unresolved = record::drop::NEIGHBOUR_UNRESOLVED.to_owned();
    assert_eq!(names(30), BTreeMap::from([(unresolved.clone(), 30)]));
    let no_route = record::drop::NO_ROUTE.to_owned();
    assert_eq!(names(29), BTreeMap::from([(unresolved, 29), (no_route, 1)]), "it may be the one");
}

/// The kernel disables a port before it takes it from its bridge: frames that come in between die without a reason.
#[test]
fn frames_for_a_port_that_left_its_bridge_have_one_name() {
    let mut world = World::default();
    (0..100)
        .for_each(|i| world.send(Fate { lost: if i < 30 { 2 } else { 99 }, second: false, copied: false }));
    let seen = |reason: &str, frames| WitnessDrop {
        reason: reason.into(),
        node: "s".into(),
        interface: Some("p1".into()),
        location: Some("br_handle_frame_finish".into()),
        frames,
        skbs: frames,
    };
    let with = |bridge_state| {
        let link = LinkSample {
            name: "p2".into(),
            index: 2,
            mtu: 1500,
            up: true,
            carrier: true,
            bridge_state,
            ..LinkSample::default()
        };
        let node = NodeSnapshot { links: vec![link], ..NodeSnapshot::default() };
        Snapshot { nodes: [("s".to_owned(), node)].into_iter().collect(), ..Snapshot::default() }
    };
    let names = |after| {
        let details = vec![seen("NOT_SPECIFIED", 4), seen("NO_TX_TARGET", 26)];
        let witness = WitnessInput::Counted { details, lost: 0 };
        let ledger = world.close_between(100, witness, [&with(Some(3)), &with(after)]);
        assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
        let mut names = BTreeMap::<String, u64>::new();
        for drop in ledger.stations.iter().flat_map(|station| &station.drops) {
            *names.entry(drop.name.clone()).or_default() += drop.count;
        }
        names
    };
    let closed = record::drop::PORT_NOT_FORWARDING.to_owned();
    assert_eq!(names(None), BTreeMap::from([(closed.clone(), 30)]));
    // One that stayed says nothing of those without a reason.
    assert_eq!(names(Some(3)), BTreeMap::from([(closed, 26), ("not_specified".into(), 4)]));
}

#[test]
fn frames_that_went_to_a_third_node_and_not_to_the_receiver_are_lost() {
    let mut world = World::default();
    for index in 0..50 {
        world.cross(0, false);
        world.cross(if index < 10 { 2 } else { 1 }, false);
        if index >= 10 {
            world.cross(3, false);
            world.cross(5, false);
            world.arrived += 1;
        }
    }
    let ledger = world.close(50, absent());
    let astray: Vec<_> = ledger.stations.iter().filter(|station| station.residual != 0).collect();
    assert_eq!(astray.len(), 1);
    assert_eq!((astray[0].node.as_str(), astray[0].residual), ("c", 10));
}

/// A bridge, or a rule of a switch, sends frames back by the port that they came by: beside their way they are copies, else they are lost at the sender.
#[test]
fn frames_that_come_back_to_the_sender_end_there() {
    for (arrive, drop, residual) in [(true, Some(("copy", 50)), 0), (false, None, 50)] {
        let mut world = World::default();
        for _ in 0..50 {
            world.cross(0, false);
            let (there, back) = LINKS[0];
            world.pass(back, Hook::Egress);
            world.pass(there, Hook::Ingress);
            if arrive {
                [1, 3, 5].into_iter().for_each(|link| assert!(world.cross(link, false)));
                world.arrived += 1;
            }
        }
        let ledger = world.close(50, absent());
        let out = ledger.stations.iter().find(|station| station.station == "ip out").unwrap();
        assert_eq!((out.entered, out.left), (50, 50));
        let back = ledger.stations.iter().rfind(|station| station.node == "a").unwrap();
        let named = back.drops.first().map(|drop| (drop.name.as_str(), drop.count));
        assert_eq!((back.station.as_str(), named, back.residual), ("ip forward", drop, residual));
        assert_eq!(ledger.unexplained, residual);
    }
}

#[test]
fn frames_that_passed_the_counters_by_leave_the_way_unknown() {
    let mut world = World::default();
    world.pass(["s", "p1"], Hook::Ingress);
    assert_eq!(sections(&world.observation(), "forward", ENDS), None);
    assert_eq!(
        sections(&FlowObservation::default(), "forward", ENDS).map(|sections| sections.len()),
        Some(1)
    );
}

/// A network emulation behind the counter of the last link loses frames and doubles others.
fn emulated(fates: &[u8], has_rate: bool) -> Result<(), TestCaseError> {
    const LAST: usize = 7;
    let mut world = World::default();
    let [mut lost, mut full] = [0, 0];
    for fate in fates {
        let is_full = has_rate && *fate == 1;
        let is_lost = *fate == 0 || is_full;
        world.send(Fate { lost: if is_lost { LAST } else { 99 }, second: false, copied: false });
        if *fate == 2 {
            world.pass(["b", "eth0"], Hook::Ingress);
            (world.arrived, world.doubled) = (world.arrived + 1, world.doubled + 1);
        }
        (lost, full) = (lost + u64::from(*fate == 0), full + u64::from(is_full));
    }
    let qdisc = |kind: &str, handle, parent, drops, packets| QdiscSample {
        interface: "eth0".into(),
        kind: kind.into(),
        handle,
        parent,
        drops,
        packets,
        bytes: packets * 142,
        ..QdiscSample::default()
    };
    let snapshot = |lost, full, sent| {
        let mut qdiscs = vec![qdisc("netem", 0x1_0000, TC_ROOT, lost + full, sent)];
        qdiscs.extend(has_rate.then(|| qdisc("tbf", 0x2_0000, 0x1_0001, full, sent)));
        let node = |name: &str| (name.to_owned(), NodeSnapshot::default());
        let mut nodes: BTreeMap<_, _> = ["a", "s", "r1", "r2", "b", "c"].map(node).into_iter().collect();
        nodes.get_mut("r2").expect("r2").qdiscs = qdiscs;
        Snapshot { nodes, ..Snapshot::default() }
    };
    let dropped = |reason: &str, location: &str, frames| WitnessDrop {
        reason: reason.into(),
        node: "r2".into(),
        interface: Some("eth0".into()),
        location: Some(location.into()),
        frames,
        skbs: frames,
    };
    let details = vec![
        dropped("QDISC_DROP", "__dev_queue_xmit", lost),
        dropped("NOT_SPECIFIED", "netem_dequeue", full),
    ];
    let details = details.into_iter().filter(|seen| seen.frames > 0).collect();
    let witness = WitnessInput::Counted { details, lost: 0 };
    let (before, after) = (snapshot(3, 2, 9), snapshot(3 + lost, 2 + full, 9 + world.arrived));
    let ledger = world.close_between(fates.len() as u64, witness, [&before, &after]);
    let of = |name: &str| -> u64 {
        let all = ledger.stations.iter().flat_map(|station| &station.drops);
        all.filter(|drop| drop.name == name).map(|drop| drop.count).sum()
    };
    let residuals: Vec<i64> = ledger.stations.iter().map(|station| station.residual).collect();
    prop_assert!(residuals.iter().all(|residual| *residual == 0), "{:#?}", ledger.stations);
    prop_assert_eq!((of(drop::NETEM_DROP), of(drop::QDISC_FULL)), (lost, full), "{:#?}", ledger.stations);
    let made: u64 = ledger.stations.iter().map(|station| station.made).sum();
    prop_assert_eq!((made, of(drop::DUPLICATE)), (world.doubled, world.doubled), "{:#?}", ledger.stations);
    prop_assert_eq!(ledger.witness.status, WitnessStatus::Agrees, "{:?}", ledger.witness);
    Ok(())
}

proptest! {
    #[test]
    fn what_an_emulation_loses_and_doubles_is_told_apart(
        fates in prop::collection::vec(0..9u8, 1..200),
        has_rate: bool,
    ) {
        emulated(&fates, has_rate)?;
    }
}

/// Between two hosts with different MTUs "tap ?" of the receiver was to blame for what no counter there had seen.
#[test]
fn frames_that_never_came_to_a_packet_socket_are_lost_where_they_were() {
    let mut world = World::default();
    (0..50).for_each(|_| assert!(!world.cross(0, true)));
    let blamed = |port: &str| {
        let spec =
            TestSpec { kind: TrafficKind::Frames, port: port.into(), size: 100, ..TestSpec::default() };
        let ledger = world.close_of(&spec, 50, absent(), [&Snapshot::default(); 2]);
        let open = ledger.stations.into_iter().filter(|station| station.residual != 0);
        open.map(|station| (station.node, station.station)).collect::<Vec<_>>()
    };
    let link = [("a".to_owned(), "link eth0".to_owned())];
    assert_eq!([blamed(""), blamed("ring?frames=64")], [link.clone(), link.clone()]);
    assert_ne!(blamed("int/xdp"), link, "it may have taken them before they were counted");
}

/// Strangers' datagrams that the sender's kernel cuts, more of them than the test's own or fewer, are no fragments of the test.
#[test]
fn fragments_of_others_leave_the_flow_counted() {
    let mut world = World::default();
    (0..50).for_each(|index| {
        world.send(Fate { lost: if index < 3 { 4 } else { 99 }, second: false, copied: false })
    });
    let snapshot = |cut: u64| {
        let protocols = [("Ip.FragCreates", 2 * cut), ("Ip.FragOKs", cut)];
        let protocols = protocols.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        let node = |name: &str| (name.to_owned(), NodeSnapshot { protocols, ..NodeSnapshot::default() });
        Snapshot { nodes: [node("a")].into_iter().collect(), ..Snapshot::default() }
    };
    let silent = world.close_between(50, absent(), [&snapshot(0), &snapshot(0)]);
    assert_eq!(silent.stations.iter().filter(|station| station.residual == 3).count(), 1, "{silent:#?}");
    for cut in [6, 1000] {
        assert_eq!(world.close_between(50, absent(), [&snapshot(0), &snapshot(cut)]), silent, "{cut}");
    }
    // Its own, all of each datagram lost at once: the first fragments are counted.
    world.counts.values_mut().for_each(|count| count.later_fragments = count.frames);
    let fragmented = world.close_between(50, absent(), [&snapshot(0), &snapshot(50)]);
    assert_eq!(fragmented.stations, silent.stations);
}

/// The MTU falls in mid-run, and from then on datagrams travel in fragments: what is lost of them, and of those that were whole, is
/// where it was, and was all charged to the sender.
#[test]
fn a_few_datagrams_in_fragments_leave_the_flow_counted() {
    let mut world = World::default();
    (0..100)
        .for_each(|i| world.send(Fate { lost: if i < 10 { 4 } else { 99 }, second: false, copied: false }));
    // Of the last 30 each has a second fragment; four of these were lost on the link between the routers.
    for ((node, ..), count) in &mut world.counts {
        let is_behind = ["r2", "b"].contains(&node.as_str());
        count.later_fragments = if is_behind { 26 } else { 30 };
    }
    world.arrived -= 4;
    let snapshot = |cut: u64| {
        let protocols = [("Ip.FragCreates", 2 * cut), ("Ip.FragOKs", cut)];
        let protocols = protocols.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        let node = NodeSnapshot { protocols, ..NodeSnapshot::default() };
        Snapshot { nodes: [("a".to_owned(), node)].into_iter().collect(), ..Snapshot::default() }
    };
    let ledger = world.close_between(100, absent(), [&snapshot(0), &snapshot(30)]);
    let open = ledger.stations.iter().filter(|station| station.residual != 0);
    let open: Vec<_> =
        open.map(|one| (one.node.as_str(), one.station.as_str(), one.residual, one.uncertainty)).collect();
    assert_eq!(open, [("r1", "ip forward", 10, 0), ("r1", "link eth1", 4, 0)], "{ledger:#?}");
}

/// A program takes 120 frames and a filter behind it drops some; in its socket frames wait when the test is over, ours or strangers'.
fn through_a_program(dropped: u64) -> Ledger {
    let mut world = World::default();
    let places = [(["a", "eth0"], Hook::Egress, 120), (["s", "p1"], Hook::Ingress, 120)];
    let later = [(["s", "p2"], Hook::Egress, 80), (["r1", "eth0"], Hook::Ingress, 80)];
    for (place, hook, frames) in places.into_iter().chain(later) {
        (0..frames).for_each(|_| world.pass(place, hook));
    }
    let mut flow = world.observation();
    flow.interfaces.iter_mut().for_each(|interface| interface.master = None);
    let spec = TestSpec {
        kind: TrafficKind::UdpStream,
        from: "a".into(),
        to: "r1".into(),
        size: 100,
        ..TestSpec::default()
    };
    let hop = |node: &str, role, ingress: &str, egress: &str| Hop {
        node: node.into(),
        role,
        ingress: Some(ingress.into()).filter(|name: &String| !name.is_empty()),
        egress: Some(egress.into()).filter(|name: &String| !name.is_empty()),
        bridge: None,
    };
    let forward = vec![
        hop("a", NodeRole::Sender, "", "eth0"),
        hop("s", NodeRole::Forwarder, "p1", "p2"),
        hop("r1", NodeRole::Receiver, "eth0", ""),
    ];
    let snapshot = |received: u64, waiting: u64, dropped: u64| {
        let way = DirectionSample { from: "p1".into(), to: "p2".into(), received, ..Default::default() };
        let socket = PacketSocketSample {
            interface: "p1".into(),
            owner: "null".into(),
            inode: 7,
            receive_queue_bytes: waiting,
            ..Default::default()
        };
        let filter = FilterSample {
            family: "netdev".into(),
            hook: "egress".into(),
            chain: "t/c".into(),
            drops: true,
            counted: Some(dropped),
        };
        let middle = NodeSnapshot {
            ways: vec![way],
            packet_sockets: vec![socket],
            filters: vec![filter],
            ..NodeSnapshot::default()
        };
        let nodes = [("a", NodeSnapshot::default()), ("s", middle), ("r1", NodeSnapshot::default())];
        Snapshot { nodes: nodes.map(|(name, node)| (name.to_owned(), node)).into(), ..Snapshot::default() }
    };
    close(&LedgerInput {
        spec: &spec,
        path: &Path { forward, ..Path::default() },
        sender: &EndReport { attempted: 120, sent: 120, ..EndReport::default() },
        receiver: &EndReport { received: 80, unique: 80, ..EndReport::default() },
        before: &snapshot(0, 0, 0),
        after: &snapshot(120, 40_000, dropped),
        idle: None,
        witness: absent(),
        ports: Ports::default(),
        flow: Some(&flow),
        arrival: None,
    })
}

#[test]
fn what_waits_in_a_programs_socket_is_ours_only_as_far_as_nothing_behind_it_names_the_loss() {
    for (dropped, queued) in [(40, 0), (30, 10), (0, 40)] {
        let ledger = through_a_program(dropped);
        let named: u64 =
            ledger.stations.iter().flat_map(|station| &station.drops).map(|drop| drop.count).sum();
        let waiting: i64 = ledger.stations.iter().map(|station| station.queued).sum();
        assert_eq!((named, waiting, ledger.unexplained), (dropped, queued, 0), "{ledger:#?}");
    }
}
