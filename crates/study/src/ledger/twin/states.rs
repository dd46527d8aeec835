//! Losses that the state of a node, its programs or its switch name, and what cannot be read.

use super::*;

/// As measured: the device sends only ARP requests, IP counts every datagram, the entry is `failed`.
#[test]
fn an_unresolved_neighbour_is_found_by_its_state() {
    for name in ["ip out", "ip forward"] {
        let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[true], true);
        let (node, interface, at) = if name == "ip out" { ("a", "eth0", 0) } else { ("n0", "right", 1) };
        (0..500).for_each(|_| twin.send(Fate::Hidden(at), Fate::Arrives));
        (0..3).for_each(|_| twin.stranger());
        let failed = NeighbourSample {
            interface: interface.into(),
            address: "10.0.0.2".into(),
            state: "failed".into(),
        };
        twin.nodes.get_mut(node).unwrap().neighbours.push(failed);
        let ledger = twin.close();
        assert_eq!(named(&ledger), [format!("{name} neighbour_unresolved 500")], "{ledger:#?}");
        assert_eq!(ledger.unexplained, 0);
    }
}

#[test]
fn an_mtu_hole_is_found_at_the_link_and_in_the_bridge() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[false], true);
    (0..200).for_each(|_| twin.send(Fate::TxDropped(0), Fate::Arrives));
    link(&mut twin, "n0", "left").mtu = 120;
    assert_eq!(named(&twin.close()), ["link eth0 mtu_exceeded 200"]);
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[false], true);
    (0..200).for_each(|_| twin.send(Fate::Hidden(1), Fate::Arrives));
    link(&mut twin, "n0", "right").mtu = 120;
    assert_eq!(named(&twin.close()), ["bridge br0 mtu_exceeded 200"]);
}

#[test]
fn a_link_that_goes_down_is_found_where_frames_end() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[false], true);
    (0..70).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
    (0..30).for_each(|_| twin.send(Fate::Hidden(1), Fate::Arrives));
    link(&mut twin, "n0", "right").carrier_changes = 1;
    assert_eq!(named(&twin.close()), ["bridge br0 link_down 30"]);
    // At the sender: IP counted the datagrams, the device never saw them.
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[false], true);
    (0..70).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
    (0..30).for_each(|_| twin.send(Fate::Hidden(0), Fate::Arrives));
    (link(&mut twin, "a", "eth0").carrier, link(&mut twin, "a", "eth0").carrier_changes) = (false, 1);
    assert_eq!(named(&twin.close()), ["link eth0 link_down 30"]);
}

#[test]
fn what_a_program_counts_names_what_it_dropped() {
    let mut twin = Twin::through_a_program();
    // Nobody could ask it: the loss is located, and has no name.
    let ledger = twin.close();
    assert_eq!((named(&ledger), ledger.unexplained), (vec![], 40), "{ledger:#?}");
    let lost = |place: &str, name: &str, count| PlaceDrop { place: place.into(), name: name.into(), count };
    let way = DirectionSample {
        from: "left".into(),
        to: "right".into(),
        received: 130,
        received_bytes: 130 * twin.length(),
        full: 20,
        failed: 2,
        lost_before: vec![lost("ring", "ring_full", 9), lost("socket", "buffer_full", 1)],
        lost_after: vec![
            lost("port", "oversize", 5),
            lost("kernel", "qdisc_full", 3),
            lost("port", "runt", 0),
        ],
    };
    let back = DirectionSample { from: "right".into(), to: "left".into(), ..DirectionSample::default() };
    twin.nodes.get_mut("n0").unwrap().ways = vec![back, way];
    let ledger = twin.close();
    let expected = [
        "program in left ring_full 9",
        "program in left socket_buffer_full 1",
        "program out right transmitter_full 20",
        "program out right transmitter_failed 2",
        "program out right port_oversize 5",
        "program out right qdisc_full 3",
    ];
    assert_eq!(
        (&named(&ledger)[..], ledger.unexplained),
        (&expected.map(String::from)[..], 0),
        "{ledger:#?}"
    );
    // What it does not explain stays a residual, where it is; what it counts beyond the gap is not taken.
    let ways = &mut twin.nodes.get_mut("n0").unwrap().ways;
    (ways[1].lost_after[0].count, ways[1].full) = (0, 0);
    ways[1].lost_before[0].count = 1000;
    let ledger = twin.close();
    assert_eq!(ledger.unexplained, 25, "{ledger:#?}");
    let residual = ledger.stations.iter().find(|station| station.residual != 0).unwrap();
    assert_eq!((residual.station.as_str(), residual.residual), ("program out right", 25));
    // In hand when the link went down.
    link(&mut twin, "n0", "right").carrier_changes = 1;
    let ledger = twin.close();
    assert!(named(&ledger).contains(&"program out right link_down 2".to_owned()), "{ledger:#?}");
    assert_eq!(ledger.unexplained, 0);
}

#[test]
fn packet_ins_that_the_switch_dropped_are_named_once() {
    let mut twin = Twin::through_a_program();
    let length = twin.length();
    for (by_rules, by_buckets, dropped, named) in [
        (40, 0, Some(0), (0, 40)),
        (40, 0, Some(25), (25, 15)),
        (30, 10, Some(35), (35, 5)),
        (40, 0, Some(90), (40, 0)),
        (10, 0, Some(10), (10, 0)),
        (40, 0, None, (0, 40)),
    ] {
        twin.nodes.get_mut("n0").unwrap().switch = Some(SwitchSample {
            ports: vec![switch_port("left", 140, 0, length), switch_port("right", 0, 100, length)],
            tables: vec![],
            to_controller: by_rules,
            buckets_to_controller: by_buckets,
            packet_ins_dropped: dropped,
            ..SwitchSample::default()
        });
        let ledger = twin.close();
        let tables = ledger.stations.iter().find(|station| station.station == "switch tables").unwrap();
        let sum = |name: &str| {
            tables.drops.iter().filter(|drop| drop.name == name).map(|drop| drop.count).sum::<u64>()
        };
        assert_eq!((sum("packet_in_dropped"), sum("to_controller")), named, "{dropped:?}: {tables:?}");
        assert_eq!(ledger.unexplained, (40 - by_rules - by_buckets) as i64);
    }
}

/// What the switch tells itself is named before what rules counted, each port's own, and a closed port is not called full.
#[test]
fn frames_that_ended_in_the_tables_are_named_by_their_reason() {
    let mut twin = Twin::through_a_program();
    let length = twin.length();
    let row = |port, reason: &str, frames| SwitchDropSample { port, reason: reason.into(), frames };
    for (rows, closed, led_nowhere, named) in [
        (vec![row(1, "invalid_ttl", 40)], 0, 40, vec!["ttl_expired 40"]),
        (vec![row(1, "in_port", 30), row(1, "no_port", 10)], 0, 0, vec!["to_in_port 30", "port_missing 10"]),
        (vec![row(2, "not_sent", 25)], 25, 15, vec!["port_closed 25", "rule_drops 15"]),
        // Those of the other port are the other way's.
        (vec![row(2, "invalid_ttl", 40), row(1, "not_sent", 40)], 0, 0, vec![]),
        (
            vec![row(1, "bridge", 4), row(1, "fragment", 6), row(1, "no_bucket", 5)],
            0,
            25,
            vec!["fragments_refused 6", "not_bridged 4", "no_live_bucket 5", "rule_drops 25"],
        ),
        (vec![row(1, "a reason of a later version", 40)], 0, 0, vec![]),
    ] {
        let mut ports = vec![switch_port("left", 140, 0, length), switch_port("right", 0, 100, length)];
        (ports[0].port, ports[1].port, ports[1].tx_dropped) = (1, 2, closed);
        twin.nodes.get_mut("n0").unwrap().switch =
            Some(SwitchSample { ports, led_nowhere, drops: Some(rows.clone()), ..SwitchSample::default() });
        let ledger = twin.close();
        let told: Vec<String> = ledger
            .stations
            .iter()
            .flat_map(|station| &station.drops)
            .map(|drop| format!("{} {}", drop.name, drop.count))
            .collect();
        assert_eq!(told, named, "{rows:?}");
        let sum: i64 =
            named.iter().map(|text| text.rsplit(' ').next().unwrap().parse::<i64>().unwrap()).sum();
        assert_eq!(ledger.unexplained, 40 - sum);
    }
}

#[test]
fn frames_that_rules_or_buckets_send_to_the_controller_are_named() {
    let mut twin = Twin::through_a_program();
    let length = twin.length();
    for (by_rules, by_buckets, unexplained) in [(0, 0, 40), (40, 0, 0), (0, 40, 0), (30, 10, 0), (0, 15, 25)]
    {
        twin.nodes.get_mut("n0").unwrap().switch = Some(SwitchSample {
            ports: vec![switch_port("left", 140, 0, length), switch_port("right", 0, 100, length)],
            tables: vec![],
            to_controller: by_rules,
            buckets_to_controller: by_buckets,
            packet_ins_dropped: None,
            ..SwitchSample::default()
        });
        let ledger = twin.close();
        let tables = ledger.stations.iter().find(|station| station.station == "switch tables").unwrap();
        let sum: u64 = tables.drops.iter().map(|drop| drop.count).sum();
        assert!(tables.drops.iter().all(|drop| drop.name == "to_controller"), "{tables:?}");
        assert_eq!((sum, tables.residual), (by_rules + by_buckets, unexplained), "{tables:?}");
        assert_eq!(ledger.unexplained, unexplained);
        let evidence: String = tables.drops.iter().map(|drop| drop.evidence.as_str()).collect();
        assert_eq!(
            (evidence.contains("rules"), evidence.contains("buckets")),
            (by_rules > 0, by_buckets > 0)
        );
    }
}

#[test]
fn what_cannot_be_read_is_unknown_and_never_clean() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[false], true);
    (0..50).for_each(|_| twin.send(Fate::Hidden(1), Fate::Arrives));
    twin.nodes.get_mut("n0").unwrap().links.clear();
    let ledger = twin.close();
    let unknown: Vec<_> =
        ledger.stations.iter().filter(|s| s.unknown.is_some()).map(|s| s.station.as_str()).collect();
    assert!(unknown.contains(&"link right"), "{unknown:?}");
    assert_eq!(ledger.unexplained, 50);
}
