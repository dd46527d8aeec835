//! Fates by chance: every named drop is found where it happened, and no counter whatever breaks the sum.

use super::*;

fn fate() -> impl Strategy<Value = Fate> {
    let at = 0usize..5;
    prop_oneof![
        6 => Just(Fate::Arrives),
        1 => Just(Fate::Refused),
        2 => at.clone().prop_map(Fate::QdiscFull),
        1 => at.clone().prop_map(Fate::Queued),
        2 => at.clone().prop_map(Fate::Backlog),
        2 => at.clone().prop_map(Fate::TxDropped),
        1 => at.clone().prop_map(Fate::Ttl),
        1 => at.clone().prop_map(Fate::ReversePath),
        2 => at.prop_map(Fate::Filtered),
        1 => Just(Fate::OtherHost),
        1 => Just(Fate::NoSocket),
        2 => Just(Fate::SocketFull),
        1 => Just(Fate::LeftInSocket),
    ]
}

fn kinds() -> impl Strategy<Value = TrafficKind> {
    prop_oneof![
        Just(TrafficKind::UdpStream),
        Just(TrafficKind::UdpRr),
        Just(TrafficKind::Ping),
        Just(TrafficKind::Frames)
    ]
}

/// A fate that cannot happen on this path means that the datagram arrives. Ping sockets of the twin have no queue.
fn possible(kind: TrafficKind, fate: Fate) -> Fate {
    match fate {
        Fate::LeftInSocket if kind == TrafficKind::Ping => Fate::Arrives,
        other => other,
    }
}

/// The twin's tx_dropped is only told from the backlog when the backlog did not drop elsewhere.
fn one_kind_of_link_drop(backlog: bool, fate: Fate) -> Fate {
    match fate {
        Fate::Backlog(at) | Fate::TxDropped(at) if backlog => Fate::Backlog(at),
        Fate::Backlog(at) | Fate::TxDropped(at) => Fate::TxDropped(at),
        other => other,
    }
}

proptest! {
    #[test]
    fn every_named_drop_is_found_where_it_happened(
        kind in kinds(), v6: bool, between in prop::collection::vec(any::<bool>(), 0..4), counted: bool, backlog: bool,
        fates in prop::collection::vec((fate(), fate()), 0..150), strangers in 0usize..3, bypass: bool,
    ) {
        let mut twin = Twin::new(kind, if v6 { 6 } else { 4 }, &between, counted);
        twin.sender.settings.bypasses_qdisc = bypass && kind == TrafficKind::Frames;
        for (there, back) in fates {
            let tame = |fate| one_kind_of_link_drop(backlog, possible(kind, fate));
            // A counter that both directions share does not tell the direction: the twin uses it on the way there only.
            let back = match back {
                Fate::Ttl(_) | Fate::ReversePath(_) => Fate::Arrives,
                Fate::Filtered(at) if at <= between.len() => Fate::Arrives,
                other => other,
            };
            twin.send(tame(there), tame(back));
        }
        (0..strangers).for_each(|_| twin.stranger());
        let ledger = twin.close();
        conserved(&ledger)?;
        prop_assert_eq!(found(&ledger), twin.truth);
        prop_assert!(ledger.stations.iter().all(|station| station.residual == 0), "{:#?}", ledger.stations);
        prop_assert_eq!(ledger.witness.status, WitnessStatus::Agrees, "{:?}", ledger.witness.disagreement);
    }

    #[test]
    fn a_loss_without_a_counter_is_the_residual_of_its_station(
        kind in kinds(), v6: bool, between in prop::collection::vec(any::<bool>(), 0..4), at in 0usize..5,
        hidden in 1u64..40, passed in 0u64..40,
    ) {
        let mut twin = Twin::new(kind, if v6 { 6 } else { 4 }, &between, true);
        let at = at.min(between.len() + 1);
        (0..hidden).for_each(|_| twin.send(Fate::Hidden(at), Fate::Arrives));
        (0..passed).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
        let ledger = twin.close();
        conserved(&ledger)?;
        let hop = &twin.path.forward[at];
        let name = match hop.role {
            NodeRole::Sender if kind == TrafficKind::Frames => "port eth0".to_owned(),
            NodeRole::Receiver if kind == TrafficKind::Frames => "tap eth0".into(),
            NodeRole::Sender => "ip out".into(),
            NodeRole::Bridge => "bridge br0".into(),
            NodeRole::Router => "ip forward".into(),
            NodeRole::Forwarder => "program".into(),
            NodeRole::Receiver => "ip in".into(),
        };
        for station in &ledger.stations {
            let here = station.node == hop.node && station.station == name && station.leg == "forward";
            prop_assert_eq!(station.residual, if here { hidden as i64 } else { 0 }, "{:?}", station);
        }
        prop_assert_eq!(ledger.unexplained, hidden as i64);
    }

    /// Whatever the counters say, nothing panics and nothing is lost from the books.
    #[test]
    fn garbage_is_conserved(
        kind in kinds(), v6: bool, between in prop::collection::vec(any::<bool>(), 0..3), gso in 0u32..70000, gro: bool,
        numbers in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..5000], 80), take in any::<[bool; 8]>(),
    ) {
        let mut twin = Twin::new(kind, if v6 { 6 } else { 4 }, &between, take[0]);
        (twin.spec.gso, twin.spec.gro) = (gso, gro);
        let mut next = numbers.into_iter().cycle();
        let mut number = || next.next().unwrap();
        for node in twin.nodes.values_mut() {
            node.protocols.values_mut().for_each(|value| *value = number());
            for link in &mut node.links {
                link.counters.values_mut().for_each(|value| *value = number());
                (link.mtu, link.up, link.carrier_changes) = (number() as u32, take[1], number());
            }
            for qdisc in &mut node.qdiscs {
                (qdisc.packets, qdisc.bytes, qdisc.drops, qdisc.qlen) = (number(), number(), number(), number());
            }
            for socket in &mut node.sockets {
                (socket.drops, socket.receive_queue_bytes) = (number(), number());
            }
            if take[2] {
                node.links.clear();
            }
            if take[3] {
                node.neighbours.push(NeighbourSample { interface: "eth0".into(), state: "failed".into(), ..NeighbourSample::default() });
            }
        }
        for end in [&mut twin.sender, &mut twin.receiver] {
            (end.attempted, end.sent, end.sent_bytes, end.received) = (number(), number(), number(), number());
            (end.unique, end.duplicates, end.foreign, end.responses) = (number(), number(), number(), number());
            end.damaged = number();
            end.socket_drops = take[4].then(&mut number);
            end.send_errors = vec![NamedCount { name: "EPERM".into(), count: number() }];
            for (place, name) in [("ring", "ring_full"), ("socket", "qdisc_full"), ("port", "oversize")] {
                end.port_drops.push(PlaceDrop { place: place.into(), name: name.into(), count: number() });
            }
        }
        twin.softnet_dropped = number() >> 1;
        twin.seen.insert(("a".into(), "NEIGH_FAILED"), number());
        if take[5] {
            twin.path.back.clear();
        }
        conserved(&twin.close())?;
    }
}
