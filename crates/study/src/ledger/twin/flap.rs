//! A link that goes and comes again: what its ends then say by themselves must not make a loss look certain.

use super::*;

/// As measured: 30 of 1,030 datagrams of 100 B die with the carrier, and when it is back the link carries one ARP request and
/// two reports of multicast listeners, each with so many bytes beyond its headers.
fn flap(beyond: u64) -> Ledger {
    let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[], false);
    (0..1000).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
    (0..30).for_each(|_| twin.send(Fate::Hidden(0), Fate::Arrives));
    for (node, direction) in [("a", "tx"), ("b", "rx")] {
        let counters = &mut link(&mut twin, node, "eth0").counters;
        *counters.get_mut(&format!("{direction}_packets")).unwrap() += 3;
        *counters.get_mut(&format!("{direction}_bytes")).unwrap() += 42 + 2 * (42 + beyond);
    }
    link(&mut twin, "a", "eth0").carrier_changes = 2;
    twin.nodes.get_mut("a").unwrap().protocols.insert("Ip6.Icmp6OutMLDv2Reports".into(), 102);
    twin.close()
}

#[test]
fn what_a_link_says_when_it_comes_back_makes_no_certain_residual() {
    // 136 bytes pass for one datagram of 100 B: at the link one loss is hidden, which IP then shows.
    let ledger = flap(68);
    assert_eq!((named(&ledger), ledger.unexplained), (vec!["link eth0 link_down 29".to_owned()], 1));
    assert!(ledger.uncertainty >= 1, "{ledger:#?}");
    let sure = |station: &record::Station| station.residual.unsigned_abs() <= station.uncertainty;
    assert!(ledger.stations.iter().all(sure), "{ledger:#?}");
    // Reports of one group each pass for none.
    let ledger = flap(48);
    assert_eq!((named(&ledger), ledger.unexplained), (vec!["link eth0 link_down 30".to_owned()], 0));
}
