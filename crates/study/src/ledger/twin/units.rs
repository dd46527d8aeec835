//! Counters that count something else than datagrams: super-frames, bursts, segments, fragments, and frames of others.

use super::*;

/// 100 super-frames of 10 datagrams: the qdisc drops 6 buffers, devices count buffers.
#[test]
fn super_frames_are_counted_in_datagrams() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[], true);
    twin.spec.gso = 10;
    (twin.sender.attempted, twin.sender.sent, twin.sender.sent_bytes) = (1000, 1000, 1000 * PAYLOAD);
    (twin.receiver.received, twin.receiver.unique) = (940, 940);
    let bytes = 94 * 42 + 940 * PAYLOAD;
    let qdisc = &mut twin.nodes.get_mut("a").unwrap().qdiscs[0];
    // A qdisc counts segments, and the headers that each of them will have (`qdisc_pkt_len_init`).
    (qdisc.packets, qdisc.bytes, qdisc.drops) = (5 + 940, 5000 + 940 * (42 + PAYLOAD), 6);
    for (node, direction) in [("a", "tx"), ("b", "rx")] {
        let counters = &mut link(&mut twin, node, "eth0").counters;
        *counters.get_mut(&format!("{direction}_packets")).unwrap() += 94;
        *counters.get_mut(&format!("{direction}_bytes")).unwrap() += bytes;
    }
    for (node, counter, count) in [
        ("a", "Ip.OutTransmits", 100),
        ("b", "Ip.InReceives", 94),
        ("b", "Ip.InDelivers", 94),
        ("b", "Udp.InDatagrams", 940),
    ] {
        *twin.nodes.get_mut(node).unwrap().protocols.get_mut(counter).unwrap() += count;
    }
    let ledger = twin.close();
    assert_eq!(named(&ledger), ["qdisc eth0 qdisc_full 60"]);
    assert!(ledger.stations.iter().all(|station| station.residual == 0), "{ledger:#?}");
    assert!(ledger.notes[0].contains("super-frames"));
}

/// Frames of another make than the twin's: so many datagrams of so many bytes were sent and received.
fn bulk(twin: &mut Twin, size: u32, sent: u64, received: u64) {
    twin.spec.size = size;
    (twin.sender.attempted, twin.sender.sent) = (sent, sent);
    twin.sender.sent_bytes = sent * u64::from(size);
    (twin.receiver.received, twin.receiver.unique) = (received, received);
}

fn count(twin: &mut Twin, node: &str, counter: &str, count: u64) {
    *twin.nodes.get_mut(node).unwrap().protocols.get_mut(counter).unwrap() += count;
}

/// So many buffers with so many bytes left by an interface.
fn transmit(twin: &mut Twin, node: &str, interface: &str, buffers: u64, bytes: u64) {
    let counters = &mut link(twin, node, interface).counters;
    *counters.get_mut("tx_packets").unwrap() += buffers;
    *counters.get_mut("tx_bytes").unwrap() += bytes;
}

fn queue(twin: &mut Twin, buffers: u64, bytes: u64, drops: u64) {
    let qdisc = &mut twin.nodes.get_mut("a").unwrap().qdiscs[0];
    (qdisc.packets, qdisc.bytes, qdisc.drops) = (5 + buffers, 5000 + bytes, drops);
}

/// Seen with a filter at hook output and one at egress: the first had refused 92 calls, and the 74 frames of the second had its name, too.
#[test]
fn a_filter_that_refused_calls_does_not_name_what_died_behind_them() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[], true);
    bulk(&mut twin, 100, 1108, 1034);
    twin.sender.attempted = 1200;
    twin.sender.send_errors = vec![NamedCount { name: "EPERM".into(), count: 92 }];
    queue(&mut twin, 1034, 1034 * 142, 0);
    transmit(&mut twin, "a", "eth0", 1034, 1034 * 142);
    for counter in ["Ip.InReceives", "Ip.InDelivers", "Udp.InDatagrams"] {
        count(&mut twin, "b", counter, 1034);
    }
    for (family, hook, dropped) in [("inet", "output", 92), ("netdev", "egress", 74)] {
        twin.nodes.get_mut("a").unwrap().filters.push(FilterSample {
            family: family.into(),
            hook: hook.into(),
            chain: format!("t/{hook}"),
            drops: true,
            counted: Some(dropped),
        });
    }
    twin.seen.insert(("a".into(), "NETFILTER_DROP"), 166);
    let ledger = twin.close();
    assert_eq!(named(&ledger), ["app send send_EPERM 92", "ip out filter_egress 74"], "{ledger:#?}");
    assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
}

/// A paced sender: 90 full bursts of 10, then 100 single datagrams, of which the socket drops every one.
#[test]
fn bursts_need_not_be_full_to_be_dropped() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[], true);
    (twin.spec.gso, twin.spec.gro) = (10, true);
    bulk(&mut twin, 100, 1000, 900);
    queue(&mut twin, 1000, 1000 * 142, 0);
    transmit(&mut twin, "a", "eth0", 190, 190 * 42 + 1000 * 100);
    for counter in ["Ip.InReceives", "Ip.InDelivers"] {
        count(&mut twin, "b", counter, 190);
    }
    count(&mut twin, "b", "Udp.RcvbufErrors", 100);
    count(&mut twin, "b", "Udp.InErrors", 100);
    twin.nodes.get_mut("b").unwrap().sockets[0].drops = 100;
    twin.seen.insert(("b".into(), "SOCKET_RCVBUFF"), 100);
    let ledger = twin.close();
    assert_eq!(named(&ledger), ["socket socket_buffer_full 100"], "{ledger:#?}");
    assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
}

/// 1000 datagrams in bursts of 20, of which the qdisc dropped 960: counted as segments, or as pairs.
#[test]
fn a_qdisc_that_counts_segments_leaves_no_doubt() {
    for (drops, doubt) in [(960, 0), (480, 480)] {
        let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[], true);
        twin.spec.gso = 20;
        bulk(&mut twin, 100, 1000, 40);
        queue(&mut twin, 40, 40 * 142, drops);
        transmit(&mut twin, "a", "eth0", 40, 40 * 142);
        for counter in ["Ip.InReceives", "Ip.InDelivers", "Udp.InDatagrams"] {
            count(&mut twin, "b", counter, 40);
        }
        let ledger = twin.close();
        assert_eq!(named(&ledger), ["qdisc eth0 qdisc_full 960"]);
        assert_eq!((ledger.unexplained, ledger.uncertainty), (0, doubt), "{ledger:#?}");
    }
}

#[test]
fn a_counter_of_super_frames_is_one_entry_in_datagrams() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 6, &[true], true);
    twin.spec.gso = 30;
    bulk(&mut twin, 64, 1200, 0);
    queue(&mut twin, 1200, 1200 * 126, 0);
    transmit(&mut twin, "a", "eth0", 40, 40 * 62 + 1200 * 64);
    count(&mut twin, "n0", "Ip6.Ip6InNoRoutes", 40);
    twin.seen.insert(("n0".into(), "IP_INNOROUTES"), 1200);
    let ledger = twin.close();
    assert_eq!(named(&ledger), ["ip forward no_route 1200"], "{ledger:#?}");
    assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
}

/// 100 datagrams of 2000 B over IPv6 are fragments of 1448 and 560 B. Of 60 datagrams one fragment is lost: 50 times
/// the first, 10 times the second. The witness recognises only the first ones, and what is left of the others.
#[test]
fn a_lost_fragment_is_a_lost_datagram_where_it_was_lost() {
    for (station, reason) in
        [("qdisc eth0 qdisc_full 60", "QDISC_DROP"), ("ip forward filter_forward 60", "NETFILTER_DROP")]
    {
        let mut twin = Twin::new(TrafficKind::UdpStream, 6, &[true], true);
        bulk(&mut twin, 2000, 100, 40);
        let all = (200, 200 * 62 + 100 * 2008);
        let rest = (140, 140 * 62 + 50 * 1448 + 90 * 560);
        let at_sender = reason == "QDISC_DROP";
        let (buffers, bytes) = if at_sender { rest } else { all };
        queue(&mut twin, buffers, bytes, 200 - buffers);
        transmit(&mut twin, "a", "eth0", buffers, bytes);
        transmit(&mut twin, "n0", "right", rest.0, rest.1);
        if !at_sender {
            let filters = &mut twin.nodes.get_mut("n0").unwrap().filters;
            *filters.iter_mut().find(|filter| filter.hook == "forward").unwrap().counted.as_mut().unwrap() +=
                60;
        }
        count(&mut twin, "a", "Ip6.Ip6FragCreates", 200);
        count(&mut twin, "a", "Ip6.Ip6FragOKs", 100);
        count(&mut twin, "b", "Ip6.Ip6ReasmFails", 60);
        count(&mut twin, "b", "Ip6.Ip6InDelivers", 40);
        count(&mut twin, "b", "Ip6.Udp6InDatagrams", 40);
        twin.seen.insert((if at_sender { "a" } else { "n0" }.into(), reason), 50);
        twin.seen.insert(("b".into(), "FRAG_REASM_TIMEOUT"), 10);
        let ledger = twin.close();
        assert_eq!(named(&ledger), [station], "{ledger:#?}");
        assert_eq!((ledger.unexplained, ledger.uncertainty), (0, 21));
        assert_eq!(ledger.witness.status, WitnessStatus::Agrees, "{:?}", ledger.witness.disagreement);
        assert!(ledger.notes[0].contains("fragments are counted on the path, not datagrams"));
    }
}

/// Fragments that the end could not put together although nobody lost any.
#[test]
fn what_no_lost_fragment_explains_failed_at_the_end() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 6, &[], true);
    bulk(&mut twin, 2000, 100, 40);
    let bytes = 200 * 62 + 100 * 2008;
    queue(&mut twin, 200, bytes, 0);
    transmit(&mut twin, "a", "eth0", 200, bytes);
    count(&mut twin, "a", "Ip6.Ip6FragCreates", 200);
    count(&mut twin, "a", "Ip6.Ip6FragOKs", 100);
    count(&mut twin, "b", "Ip6.Ip6ReasmFails", 60);
    count(&mut twin, "b", "Ip6.Ip6InDelivers", 40);
    count(&mut twin, "b", "Ip6.Udp6InDatagrams", 40);
    let ledger = twin.close();
    assert_eq!(named(&ledger), ["ip in reassembly_failed 60"], "{ledger:#?}");
    assert_eq!((ledger.unexplained, ledger.uncertainty), (0, 0));
}

/// A frame of somebody else's, as long as the test's, hides a loss at the router from the first counters.
#[test]
fn a_loss_that_a_stranger_may_have_hidden_before_is_not_certain() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[true], true);
    (0..100).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
    twin.send(Fate::Hidden(1), Fate::Arrives);
    queue(&mut twin, 102, 102 * 142, 0);
    transmit(&mut twin, "a", "eth0", 1, 142);
    let ledger = twin.close();
    let forward = ledger.stations.iter().find(|station| station.station == "ip forward").unwrap();
    assert_eq!((forward.residual, forward.uncertainty), (1, 1), "{ledger:#?}");
}

proptest! {
    /// Fragments are lost one by one, at the sender's qdisc or at a filter behind it: what each place really lost is
    /// within its uncertainty.
    #[test]
    fn lost_fragments_are_found_within_the_uncertainty(
        fates in prop::collection::vec(prop::collection::vec(0u8..8, 3), 1..120), quiet_qdisc: bool, quiet_filter: bool,
    ) {
        let mut twin = Twin::new(TrafficKind::UdpStream, 6, &[true], true);
        let pieces = [1448u64, 1448, 112];
        let (mut sent, mut passed, mut complete) = ((0, 0), (0, 0), 0);
        let (mut lost, mut fragments, mut firsts) = ([0u64; 2], [0u64; 2], [0u64; 2]);
        for datagram in &fates {
            let mut first_loss = None;
            for (index, (fate, piece)) in datagram.iter().zip(pieces).enumerate() {
                let at = match fate {
                    0 if !quiet_qdisc => Some(0),
                    1 if !quiet_filter => Some(1),
                    _ => None,
                };
                first_loss = match (first_loss, at) {
                    (Some(a), Some(b)) => Some(std::cmp::min::<usize>(a, b)),
                    (a, b) => a.or(b),
                };
                if let Some(at) = at {
                    fragments[at] += 1;
                    firsts[at] += u64::from(index == 0);
                }
                if at != Some(0) {
                    sent = (sent.0 + 1, sent.1 + piece + 62);
                }
                if at.is_none() {
                    passed = (passed.0 + 1, passed.1 + piece + 62);
                }
            }
            first_loss.map_or_else(|| complete += 1, |at| lost[at] += 1);
        }
        let all = fates.len() as u64;
        bulk(&mut twin, 3000, all, complete);
        queue(&mut twin, sent.0, sent.1, fragments[0]);
        transmit(&mut twin, "a", "eth0", sent.0, sent.1);
        transmit(&mut twin, "n0", "right", passed.0, passed.1);
        let filters = &mut twin.nodes.get_mut("n0").unwrap().filters;
        *filters.iter_mut().find(|filter| filter.hook == "forward").unwrap().counted.as_mut().unwrap() += fragments[1];
        count(&mut twin, "a", "Ip6.Ip6FragCreates", 3 * all);
        count(&mut twin, "a", "Ip6.Ip6FragOKs", all);
        count(&mut twin, "b", "Ip6.Ip6InDelivers", complete);
        count(&mut twin, "b", "Ip6.Udp6InDatagrams", complete);
        twin.seen.insert(("a".into(), "QDISC_DROP"), firsts[0]);
        twin.seen.insert(("n0".into(), "NETFILTER_DROP"), firsts[1]);
        let ledger = twin.close();
        conserved(&ledger)?;
        prop_assert_eq!(ledger.unexplained, 0, "{:#?}", ledger.stations);
        for (station, truth) in [("qdisc eth0", lost[0]), ("ip forward", lost[1])] {
            let found = ledger.stations.iter().find(|found| found.station == station).unwrap();
            let named: u64 = found.drops.iter().map(|drop| drop.count).sum();
            prop_assert!(named.abs_diff(truth) <= found.uncertainty, "{} was {}: {:#?}", station, truth, ledger.stations);
        }
        prop_assert_eq!(ledger.witness.status, WitnessStatus::Agrees, "{:?}", ledger.witness.disagreement);
    }

    /// Bursts of any length lose buffers at a qdisc that counts them as buffers or as segments.
    #[test]
    fn bursts_of_any_length_close(bursts in prop::collection::vec((1u64..=20, any::<bool>()), 1..100), segments: bool) {
        let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[], true);
        twin.spec.gso = 20;
        let length = |passes| bursts.iter().filter(move |burst| burst.1 == passes).map(|burst| burst.0);
        let (passed, lost) = (length(true).sum::<u64>(), length(false).sum::<u64>());
        let buffers = length(true).count() as u64;
        bulk(&mut twin, 100, passed + lost, passed);
        queue(&mut twin, passed, passed * 142, if segments { lost } else { length(false).count() as u64 });
        transmit(&mut twin, "a", "eth0", buffers, buffers * 42 + passed * 100);
        for counter in ["Ip.InReceives", "Ip.InDelivers"] {
            count(&mut twin, "b", counter, buffers);
        }
        count(&mut twin, "b", "Udp.InDatagrams", passed);
        twin.seen.insert(("a".into(), "QDISC_DROP"), lost);
        let ledger = twin.close();
        conserved(&ledger)?;
        let expected: Vec<String> = (lost > 0).then(|| format!("qdisc eth0 qdisc_full {lost}")).into_iter().collect();
        prop_assert_eq!(named(&ledger), expected);
        prop_assert!(ledger.uncertainty <= if segments { 0 } else { lost }, "{:#?}", ledger.stations);
        prop_assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
    }
}

/// Defect B17 of other tools: `UdpInDatagrams` taken for arrivals, so that what an application has not read yet looks lost.
#[test]
fn b17_what_waits_to_be_read_is_queued_and_not_lost() {
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[], true);
    let before = twin.nodes["b"].protocols["Udp.InDatagrams"];
    (0..60).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
    (0..40).for_each(|_| twin.send(Fate::LeftInSocket, Fate::Arrives));
    let counted = twin.nodes["b"].protocols["Udp.InDatagrams"] - before;
    assert_eq!(counted, 60, "the counter has 60 of 100 only");
    let ledger = twin.close();
    let waiting: i64 = ledger.stations.iter().map(|station| station.queued).sum();
    assert_eq!((waiting, ledger.unexplained), (40, 0), "{ledger:#?}");
    assert!(named(&ledger).is_empty(), "{ledger:#?}");
}
