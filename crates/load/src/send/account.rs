//! The books: where every frame went that was asked for.
//!
//! Three sources that know nothing of each other: what the engine offered, what the port counted, what the kernel
//! counted at the interface and its qdisc. A frame that the kernel dropped behind the send call is counted twice, by the
//! qdisc or the interface and by the port whose call returned an error; it is booked once, where the kernel counted it
//! ([`record::port::COUNTED_BELOW`]). Copies that `fault:` made of frames leave and are lost like those that were asked for,
//! so they stand on the side of what was to leave.

use super::engine::{Stopped, Tally};
use linux::observe::Observer;
use linux::port::TransmitCounters;
use record::send::SendLedger;
use record::snapshot::{LinkSample, QdiscSample};
use record::{PlaceDrop, Result, Snapshot};
use std::time::Duration;

/// Counters of one interface at one instant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// The interface; none when it is not there (any more).
    pub link: Option<LinkSample>,
    /// Its root qdisc; none when it has none that counts.
    pub qdisc: Option<QdiscSample>,
}

impl Look {
    fn counter(&self, name: &str) -> Option<u64> {
        self.link.as_ref()?.counters.get(name).copied()
    }
}

/// Reads the counters of one interface in the namespace of the thread that made it.
#[derive(Debug)]
pub struct Watcher {
    observer: Observer,
    interface: String,
    /// Everything that the last look saw.
    pub last: Snapshot,
}

impl Watcher {
    /// Opens the sources.
    ///
    /// # Errors
    /// Host: the kernel cannot be asked.
    pub fn new(interface: &str) -> Result<Watcher> {
        Ok(Watcher { observer: Observer::host()?, interface: interface.into(), last: Snapshot::default() })
    }

    /// Reads once.
    ///
    /// # Errors
    /// Host: the counters cannot be read.
    pub fn look(&mut self) -> Result<Look> {
        self.last = self.observer.snapshot(&[])?;
        let node = self.last.nodes.get("host");
        Ok(Look {
            link: node.and_then(|node| node.link(&self.interface)).cloned(),
            qdisc: node.and_then(|node| node.root_qdisc(&self.interface)).cloned(),
        })
    }

    /// Reads until nothing moves and no frame is queued, at most so long.
    ///
    /// # Errors
    /// As [`Watcher::look`].
    pub fn settled(&mut self, patience: Duration) -> Result<Look> {
        let until = std::time::Instant::now() + patience;
        let mut before = self.look()?;
        loop {
            std::thread::sleep(Duration::from_millis(15));
            let now = self.look()?;
            let queued = now.qdisc.as_ref().map_or(0, |qdisc| qdisc.qlen);
            let same = now.counter("tx_packets") == before.counter("tx_packets");
            if (same && queued == 0) || now.link.is_none() || std::time::Instant::now() > until {
                return Ok(now);
            }
            before = now;
        }
    }
}

/// Closes the books. `asked` is none when only the time ended it.
pub fn close(
    asked: Option<u64>,
    tally: &Tally,
    port: &TransmitCounters,
    interface: Option<(&Look, &Look)>,
    notes: &mut Vec<String>,
) -> SendLedger {
    let asked = asked.unwrap_or(tally.offered);
    let mut ledger = SendLedger {
        asked,
        offered: tally.offered,
        accepted: port.accepted,
        completed: port.completed,
        duplicated: port.duplicated(),
        ..SendLedger::default()
    };
    let unoffered = asked.saturating_sub(tally.offered);
    ledger.drops.push(place_drop("program", why(tally), unoffered));
    let both = interface.and_then(|(before, after)| {
        Some((before, after, after.counter("tx_packets")?.checked_sub(before.counter("tx_packets")?)?))
    });
    match both {
        Some((before, after, left)) => below(&mut ledger, port, before, after, left, notes),
        None => {
            if interface.is_some() {
                notes.push("the interface's counters are gone: what left is what the port says".into());
            }
            // What was dropped behind the call is reported complete as well.
            let left = port.completed.map_or(port.accepted, |completed| completed.min(port.accepted));
            ledger.transmitted = left.saturating_sub(tally.under_way);
            ledger.counted_by = "the port".into();
            ledger.queued = tally.under_way;
            ledger.drops.extend(port.drops.iter().cloned());
        }
    }
    ledger.drops.retain(|drop| drop.count > 0);
    let booked = ledger.transmitted + ledger.dropped() + ledger.queued;
    ledger.residual = (asked + ledger.duplicated) as i64 - booked as i64;
    last_words(&mut ledger, interface, notes);
    ledger
}

fn place_drop(place: &str, name: &str, count: u64) -> PlaceDrop {
    PlaceDrop { place: place.into(), name: name.into(), count }
}

/// What happened behind the port, as the kernel counts it.
fn below(
    ledger: &mut SendLedger,
    port: &TransmitCounters,
    before: &Look,
    after: &Look,
    left: u64,
    notes: &mut Vec<String>,
) {
    let name = after.link.as_ref().map_or("", |link| link.name.as_str());
    ledger.transmitted = left;
    ledger.counted_by = format!("tx_packets of {name}");
    let growth = |counter: &str| {
        after.counter(counter).unwrap_or(0).saturating_sub(before.counter(counter).unwrap_or(0))
    };
    let qdisc = match (&before.qdisc, &after.qdisc) {
        (Some(before), Some(after)) if before.handle == after.handle && before.kind == after.kind => {
            ledger.queued = after.qlen;
            after.drops.saturating_sub(before.drops)
        }
        (_, Some(after)) if before.qdisc.is_some() => {
            notes.push(format!(
                "the qdisc of {name} was exchanged while frames were sent; it is now {}",
                after.kind
            ));
            after.drops
        }
        _ => 0,
    };
    let driver = growth("tx_dropped");
    ledger.drops.push(place_drop("qdisc", "qdisc_full", qdisc));
    ledger.drops.push(place_drop("interface", "tx_dropped", driver));
    ledger.drops.push(place_drop("interface", "tx_errors", growth("tx_errors")));
    // Whose call failed because of a drop below has told it once more.
    let mut told_twice = qdisc + driver;
    for drop in &port.drops {
        let mut drop = drop.clone();
        if drop.is_counted_below() {
            let same = drop.count.min(told_twice);
            (drop.count, told_twice) = (drop.count - same, told_twice - same);
        }
        ledger.drops.push(drop);
    }
}

fn last_words(ledger: &mut SendLedger, interface: Option<(&Look, &Look)>, notes: &mut Vec<String>) {
    let carrier = interface.and_then(|(_, after)| after.link.as_ref()).is_none_or(|link| link.carrier);
    if ledger.residual > 0 && !carrier {
        notes.push(
            "the interface lost its carrier: the kernel puts the noop qdisc there, which takes frames and drops them \
             without counting; no_carrier is what is missing, not what was counted"
                .into(),
        );
        ledger.drops.push(place_drop("interface", "no_carrier", ledger.residual as u64));
        ledger.residual = 0;
    }
    if ledger.residual < 0 {
        let more = ledger.residual.unsigned_abs();
        notes.push(format!("{more} more frames left than were sent here: other traffic of the interface"));
    }
}

/// One word for why frames were not even offered.
fn why(tally: &Tally) -> &'static str {
    match tally.why {
        None => "not_offered",
        Some(Stopped::Asked) => "interrupted",
        Some(Stopped::Time) => "time_over",
        Some(Stopped::Port(linux::port::PortError::Down)) => "link_down",
        Some(Stopped::Port(linux::port::PortError::Gone)) => "interface_gone",
        Some(Stopped::Port(linux::port::PortError::Ended)) => "port_ended",
        Some(Stopped::Port(_)) => "port_failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(tx: u64, dropped: u64, qdisc: Option<(u64, u64)>) -> Look {
        let counters = [("tx_packets".to_owned(), tx), ("tx_dropped".to_owned(), dropped)].into();
        Look {
            link: Some(LinkSample { name: "a0".into(), carrier: true, counters, ..LinkSample::default() }),
            qdisc: qdisc.map(|(drops, qlen)| QdiscSample {
                kind: "tbf".into(),
                drops,
                qlen,
                ..QdiscSample::default()
            }),
        }
    }

    fn port(accepted: u64, drops: &[(&str, u64)]) -> TransmitCounters {
        let drops = drops.iter().map(|(name, count)| place_drop("port", name, *count)).collect();
        TransmitCounters { accepted, drops, ..TransmitCounters::default() }
    }

    fn tally(offered: u64) -> Tally {
        Tally { offered, ..Tally::default() }
    }

    #[test]
    fn a_drop_that_the_port_was_told_of_is_booked_once() {
        let mut notes = vec![];
        let (before, after) = (look(100, 0, Some((5, 0))), look(150, 2, Some((40, 3))));
        // 90 offered: 50 left, 35 the qdisc dropped (30 of them told), 2 the driver (told), 3 wait.
        let ledger = close(
            Some(90),
            &tally(90),
            &port(58, &[("qdisc_full", 32), ("oversize", 0)]),
            Some((&before, &after)),
            &mut notes,
        );
        assert_eq!(ledger.transmitted, 50);
        assert_eq!(
            ledger.drops,
            [place_drop("qdisc", "qdisc_full", 35), place_drop("interface", "tx_dropped", 2)]
        );
        assert_eq!((ledger.queued, ledger.residual), (3, 0));
        assert!(notes.is_empty());
    }

    /// As measured with `xdp:` towards a veth whose peer has a smaller MTU: each frame is EBUSY and `tx_dropped`.
    #[test]
    fn every_name_of_the_table_is_booked_once() {
        for (name, _) in record::port::COUNTED_BELOW {
            let (before, after) = (look(0, 7, None), look(60, 47, None));
            let port = port(60, &[(name, 43)]);
            let ledger = close(Some(103), &tally(103), &port, Some((&before, &after)), &mut vec![]);
            let expected = [place_drop("interface", "tx_dropped", 40), place_drop("port", name, 3)];
            assert_eq!((&ledger.drops[..], ledger.residual), (&expected[..], 0), "{name}");
        }
    }

    #[test]
    fn copies_that_a_fault_made_were_to_leave_too() {
        for (left, copies, residual) in [(12, 2, 0), (11, 2, 1), (13, 2, -1)] {
            let port = TransmitCounters { extra: vec![("fault_duplicated", copies)], ..port(10, &[]) };
            let looks = (look(0, 0, None), look(left, 0, None));
            let ledger = close(Some(10), &tally(10), &port, Some((&looks.0, &looks.1)), &mut vec![]);
            assert_eq!((ledger.asked, ledger.duplicated, ledger.residual), (10, copies, residual));
        }
    }

    #[test]
    fn what_nobody_below_counted_stays_at_the_port() {
        let mut notes = vec![];
        let (before, after) = (look(0, 0, None), look(60, 0, None));
        let ledger = close(
            Some(100),
            &tally(80),
            &port(60, &[("qdisc_full", 15), ("oversize", 5)]),
            Some((&before, &after)),
            &mut notes,
        );
        assert_eq!(ledger.dropped(), 40, "{ledger:?}");
        assert_eq!((ledger.drops[0].name.as_str(), ledger.drops[0].count), ("not_offered", 20));
        assert_eq!(ledger.residual, 0);
    }

    #[test]
    fn strangers_and_missing_frames_show_in_the_residual() {
        let mut notes = vec![];
        let ledger = close(
            Some(10),
            &tally(10),
            &port(10, &[]),
            Some((&look(0, 0, None), &look(12, 0, None))),
            &mut notes,
        );
        assert_eq!(ledger.residual, -2);
        assert!(notes[0].contains("other traffic"), "{notes:?}");
        let mut dark = look(4, 0, None);
        dark.link.as_mut().unwrap().carrier = false;
        let ledger =
            close(Some(10), &tally(10), &port(10, &[]), Some((&look(0, 0, None), &dark)), &mut notes);
        assert_eq!(
            (ledger.residual, ledger.drops[0].name.as_str(), ledger.drops[0].count),
            (0, "no_carrier", 6)
        );
        let ledger = close(None, &tally(7), &port(6, &[("oversize", 1)]), None, &mut notes);
        assert_eq!((ledger.asked, ledger.transmitted, ledger.residual), (7, 6, 0));
    }
}
