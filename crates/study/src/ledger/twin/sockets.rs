//! What packet sockets lost: named where a program took its frames by them, and nobody else's.

use super::*;
use record::snapshot::PacketSocketSample;

fn socket(interface: &str, owner: &str, inode: u64, drops: u32) -> PacketSocketSample {
    let (interface, owner) = (interface.into(), owner.into());
    PacketSocketSample { interface, owner, inode, drops, ..PacketSocketSample::default() }
}

/// The node in the middle has these packet sockets.
fn with(twin: &mut Twin, sockets: &[PacketSocketSample]) -> Ledger {
    twin.nodes.get_mut("n0").unwrap().packet_sockets = sockets.to_vec();
    twin.close()
}

/// What the switch in the middle counts: frames in by its port, dropped there.
fn ask_switch(twin: &mut Twin, received: u64, dropped: u64) {
    let length = twin.length();
    let mut ports = vec![switch_port("left", received, 0, length), switch_port("right", 0, 100, length)];
    ports[0].rx_dropped = dropped;
    twin.nodes.get_mut("n0").unwrap().switch = Some(SwitchSample { ports, ..SwitchSample::default() });
}

#[test]
fn what_a_programs_packet_socket_dropped_is_no_residual() {
    let mut twin = Twin::through_a_program();
    let ledger = with(&mut twin, &[socket("left", "ovs", 7, 40)]);
    assert_eq!(named(&ledger), ["program socket_buffer_full 40"], "{ledger:#?}");
    assert_eq!(ledger.unexplained, 0);
    // A capture beside the program lost as many; the program's other port too.
    for stranger in
        [socket("left", "", 8, 40), socket("right", "ovs", 8, 40), socket("left", "receiver", 8, 40)]
    {
        let ledger = with(&mut twin, &[stranger]);
        assert_eq!((named(&ledger), ledger.unexplained), (vec![], 40), "{ledger:#?}");
    }
    // It also lost what was not of the test: never more than is missing.
    let ledger = with(&mut twin, &[socket("left", "ovs", 7, 25), socket("", "ovs", 9, 400)]);
    assert_eq!((named(&ledger), ledger.unexplained), (vec!["program socket_buffer_full 40".into()], 0));
}

#[test]
fn a_switch_that_tells_the_interfaces_counter_lost_them_behind_it() {
    let mut twin = Twin::through_a_program();
    // As Open vSwitch does: 140 came in as the interface says, of which the socket dropped 40.
    ask_switch(&mut twin, 140, 0);
    let ledger = with(&mut twin, &[socket("left", "ovs", 7, 40), socket("left", "", 8, 90)]);
    assert_eq!(named(&ledger), ["switch in left socket_buffer_full 40"], "{ledger:#?}");
    assert_eq!(ledger.unexplained, 0);
    let place = |name: &str| ledger.stations.iter().find(|station| station.station == name).unwrap();
    assert_eq!((place("switch in left").left, place("switch tables").entered), (100, 100));
    // 30 of them were others' frames: what is still missing is said where it is.
    let ledger = with(&mut twin, &[socket("left", "ovs", 7, 30)]);
    assert_eq!(named(&ledger), ["switch in left socket_buffer_full 30"], "{ledger:#?}");
    let tables = ledger.stations.iter().find(|station| station.station == "switch tables").unwrap();
    assert_eq!((tables.residual, ledger.unexplained), (10, 10));
    let ledger = with(&mut twin, &[socket("left", "ovs", 7, 130)]);
    assert_eq!((ledger.unexplained, ledger.stations.iter().all(|station| station.residual == 0)), (0, true));
}

#[test]
fn a_switch_that_counts_what_it_read_names_each_loss_once() {
    let mut twin = Twin::through_a_program();
    // As ours does: 100 read, and the port tells itself what its socket dropped.
    ask_switch(&mut twin, 100, 40);
    let ledger = with(&mut twin, &[socket("left", "switch", 7, 40)]);
    assert_eq!(named(&ledger), ["switch in left switch_port_full 40"], "{ledger:#?}");
    assert_eq!(ledger.unexplained, 0);
    // One that does not tell it.
    ask_switch(&mut twin, 100, 0);
    let ledger = with(&mut twin, &[socket("left", "switch", 7, 40)]);
    assert_eq!(named(&ledger), ["switch in left socket_buffer_full 40"], "{ledger:#?}");
    assert_eq!(ledger.unexplained, 0);
}

#[test]
fn what_comes_when_the_receiver_has_ended_is_a_line_of_its_own() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[false], true);
    (0..100).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
    (0..40).for_each(|_| twin.send(Fate::SocketFull, Fate::Arrives));
    // It told its count when ten had been dropped; its socket was open for longer.
    twin.receiver.socket_drops = Some(10);
    let ledger = twin.close();
    assert_eq!(named(&ledger), ["socket socket_buffer_full 10", "socket after_end 30"], "{ledger:#?}");
    assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees), "{ledger:#?}");
}

#[test]
fn what_a_program_has_not_read_is_queued() {
    let mut twin = Twin::through_a_program();
    let waiting = 40 * (20 + 8 + PAYLOAD + 256);
    let held = PacketSocketSample { receive_queue_bytes: waiting, ..socket("left", "null", 7, 0) };
    let ledger = with(&mut twin, std::slice::from_ref(&held));
    let station = ledger.stations.iter().find(|station| station.station == "program").unwrap();
    assert_eq!((station.queued, station.residual, ledger.unexplained), (40, 0, 0), "{ledger:#?}");
    ask_switch(&mut twin, 140, 0);
    let ledger = with(&mut twin, &[PacketSocketSample { drops: 15, ..held }]);
    let station = ledger.stations.iter().find(|station| station.station == "switch in left").unwrap();
    assert_eq!((station.queued, station.residual, ledger.unexplained), (25, 0, 0), "{ledger:#?}");
}
