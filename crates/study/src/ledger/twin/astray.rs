//! Frames that took another way than the routes say, with nothing lost: no station may be accused of them.

use super::*;

/// Takes frames off the first router's way out and gives them to its interface that is not on the path; the second
/// router takes them in by one that is not either.
fn lead_astray(twin: &mut Twin, frames: u64) {
    let length = twin.length();
    for (node, from, to, direction) in [("n0", "right", "eth0", "tx"), ("n1", "left", "eth0", "rx")] {
        let links = &mut twin.nodes.get_mut(node).unwrap().links;
        for (counter, size) in [("packets", 1), ("bytes", length)] {
            let counter = format!("{direction}_{counter}");
            for (interface, is_more) in [(from, false), (to, true)] {
                let link = links.iter_mut().find(|link| link.name == interface).unwrap();
                let count = link.counters.get_mut(&counter).unwrap();
                *count = if is_more { *count + frames * size } else { *count - frames * size };
            }
        }
    }
}

fn accused(ledger: &Ledger) -> Vec<&record::Station> {
    ledger.stations.iter().filter(|one| one.residual.unsigned_abs() > one.uncertainty).collect()
}

proptest! {
    #[test]
    fn frames_by_another_way_accuse_nobody(arrived in 50u64..300, astray in 20u64..50, lost in 0u64..10) {
        let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[true, true], true);
        (0..arrived).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
        (0..lost).for_each(|_| twin.send(Fate::Ttl(2), Fate::Arrives));
        lead_astray(&mut twin, astray);
        let ledger = twin.close();
        conserved(&ledger)?;
        // A counter that names a loss may stand where more frames appeared than were lost: then it stays without a name.
        prop_assert!((0..=lost as i64).contains(&ledger.unexplained), "{}", ledger.unexplained);
        prop_assert!(accused(&ledger).is_empty(), "{:#?}", accused(&ledger));
        prop_assert!(ledger.uncertainty >= astray && !ledger.notes.is_empty());
    }

    #[test]
    fn what_went_astray_and_was_lost_there_is_not_lost_here(arrived in 50u64..300, astray in 20u64..50) {
        let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[true, true], true);
        (0..arrived).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
        // They came to the first router, left it by another interface, and were never seen again.
        (0..astray).for_each(|_| twin.send(Fate::Hidden(1), Fate::Arrives));
        let surely = twin.close();
        prop_assert_eq!(accused(&surely).len(), 1, "without another way out it is this router");
        let links = &mut twin.nodes.get_mut("n0").unwrap().links;
        let aside = links.iter_mut().find(|link| link.name == "eth0").unwrap();
        *aside.counters.get_mut("tx_packets").unwrap() += astray;
        let length = 14 + 20 + 8 + PAYLOAD;
        *aside.counters.get_mut("tx_bytes").unwrap() += astray * length;
        let ledger = twin.close();
        prop_assert_eq!(ledger.unexplained, astray as i64);
        prop_assert!(accused(&ledger).is_empty(), "{:#?}", accused(&ledger));
    }
}
