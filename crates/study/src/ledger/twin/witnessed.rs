//! What the witness saw and did not see, beside what counters say.

use super::*;

#[test]
fn a_drop_that_only_the_witness_knows_is_named_by_it() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[true], true);
    (0..30).for_each(|_| twin.send(Fate::Hidden(1), Fate::Arrives));
    twin.seen.insert(("n0".into(), "NEIGH_FAILED"), 30);
    let ledger = twin.close();
    let drop = ledger.stations.iter().flat_map(|station| &station.drops).next().unwrap();
    assert_eq!(
        (drop.name.as_str(), drop.count, drop.source),
        ("neighbour_unresolved", 30, DropSource::Witness)
    );
    assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
}

/// The copies that the receiving host sees behind the port are not the path's: neither as counters nor as deaths.
#[test]
fn copies_behind_the_port_are_no_loss_and_are_said() {
    let mut twin = Twin::new(TrafficKind::Frames, 4, &[false], true);
    (0..500).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
    (0..20).for_each(|_| twin.send(Fate::SocketFull, Fate::Arrives));
    let ledger = twin.close();
    assert_eq!(named(&ledger), ["tap eth0 ring_full 20"]);
    assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
    assert!(ledger.witness.by_reason.is_empty(), "{:?}", ledger.witness);
    assert!(ledger.notes.iter().any(|note| note.contains("520 copies")), "{:?}", ledger.notes);
    let names: Vec<_> = ledger.stations.iter().map(|station| station.station.as_str()).collect();
    let expected = [
        "app send",
        "port eth0",
        "qdisc eth0",
        "link eth0",
        "bridge br0",
        "link right",
        "tap eth0",
        "app receive",
    ];
    assert_eq!(names, expected);
}

/// Policy routes led the frames to a second interface of the receiver; nothing said why none was read.
#[test]
fn frames_that_came_by_another_interface_than_the_port_listens_at_are_explained() {
    let ports = [("ring:eth1?frames=8", true), ("int:eth0", false), ("fault:int:eth0?lose=1%", false)];
    for (port, is_elsewhere) in ports {
        let mut twin = Twin::new(TrafficKind::Frames, 4, &[false], true);
        (0..50).for_each(|_| twin.send(Fate::SocketFull, Fate::Arrives));
        twin.receiver.port_drops.clear();
        twin.receiver.settings.port = port.into();
        let ledger = twin.close();
        let said =
            ledger.notes.iter().any(|note| note.contains("by eth0, and the receiver's port listens at eth1"));
        assert_eq!((ledger.unexplained, said), (50, is_elsewhere), "{:?}", ledger.notes);
    }
}

/// A transmit ring's frames have their headers where the witness does not look, until a router has read them.
#[test]
fn drops_of_ring_frames_in_front_of_a_router_are_not_expected_of_the_witness() {
    for (between, at, unseen) in [(false, 1, true), (true, 1, false), (false, 0, true), (true, 0, true)] {
        let mut twin = Twin::new(TrafficKind::Frames, 4, &[between], true);
        twin.sender.settings.port = "ring:eth0".into();
        (0..500).for_each(|_| twin.send(Fate::TxDropped(at), Fate::Arrives));
        twin.seen.clear();
        let ledger = twin.close();
        let expected = if unseen { WitnessStatus::Agrees } else { WitnessStatus::Disagrees };
        assert_eq!((ledger.unexplained, ledger.witness.status), (0, expected), "{ledger:#?}");
        assert_eq!(ledger.notes.iter().any(|note| note.contains("cannot confirm 500")), unseen);
    }
}

#[test]
fn a_drop_that_the_witness_did_not_see_is_a_disagreement() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[], true);
    (0..300).for_each(|_| twin.send(Fate::SocketFull, Fate::Arrives));
    twin.seen.insert(("b".into(), "SOCKET_RCVBUFF"), 200);
    let ledger = twin.close();
    assert_eq!(ledger.witness.status, WitnessStatus::Disagrees);
    assert_eq!(
        ledger.witness.disagreement,
        ["100 of socket_buffer_full at socket of node b were not seen by the witness"]
    );
}

/// A carrier that goes leaves the qdisc that drops everything, whose reason is that of a full one.
#[test]
fn a_link_that_went_down_may_drop_like_a_full_qdisc() {
    let confirmed =
        |name| record::drop::of_kernel("QDISC_DROP", Some("__dev_queue_xmit")).iter().any(|row| row.is(name));
    assert!(confirmed("qdisc_full") && confirmed("link_down"));
    assert!(!confirmed("socket_buffer_full"));
}
