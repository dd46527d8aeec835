//! Closes the account of `pathlab capture` against its interface.
//!
//! **What.** Counters of the interface were read before and after ([`CaptureSeen`]); what it received (and sent, where that
//! is captured) must be what was captured, came after the end, was filtered, or was lost at a named place. What is left is
//! the residual. [`close`] reckons with the differences and names of the ledger, so that a join finds the same frames
//! under the same names; its stations have one direction, and this equation has both.
//!
//! **Why so.** Each place has one source, and sources are never added into each other: `rx_missed_errors` and its kind are
//! frames that the interface never counted as received (`nic`); `rx_dropped` is beside the account, because the kernel
//! counts there frames before *and* after the point where a capture sees them; softnet's drops belong to the whole host.
//!
//! **Uncertainty.** Frames that passed between opening the port and the first reading, and while the last frames were
//! taken; 0 when nothing moved then. Super-frames add the pieces that an interface may have counted instead of them.

use crate::ledger::{NIC, Window};
use record::capture::{CaptureAccount, CaptureReading, CaptureReport, CaptureSeen, QueueCount};
use record::delta::sum;
use record::snapshot::{Counters, LinkSample};
use record::{Delta, NamedCount, PlaceDrop, drop};

/// Counters of frames lost in the kernel, before or behind the point where a capture sees them.
const KERNEL: [&str; 3] = [drop::RX_DROPPED, drop::RX_NOHANDLER, drop::RX_OTHERHOST_DROPPED];

/// Fills in the account, if the capture's port has an interface that counts. What was captured, came after the end and
/// was filtered the report has already.
pub fn close(report: &mut CaptureReport, seen: &CaptureSeen) {
    report.account = (!seen.interface.is_empty()).then(|| account(report, seen));
    report.notes.extend(renamed(seen));
}

/// What the interface is called at the end, if somebody renamed it.
fn renamed(seen: &CaptureSeen) -> Option<String> {
    let index = index_of(seen)?;
    let name = &numbered(seen.after.as_ref()?, index)?.name;
    (*name != seen.interface)
        .then(|| format!("{} was renamed to {name} while frames were captured", seen.interface))
}

/// The number of the interface when the port was about to be opened: it stays when the name does not.
fn index_of(seen: &CaptureSeen) -> Option<u32> {
    Some(seen.opening.as_ref()?.counters.nodes.values().next()?.link(&seen.interface)?.index)
}

/// The interface with this number.
fn numbered(reading: &CaptureReading, index: u32) -> Option<&LinkSample> {
    reading.counters.nodes.values().next()?.links.iter().find(|link| link.index == index)
}

fn account(report: &CaptureReport, seen: &CaptureSeen) -> CaptureAccount {
    let mut account = CaptureAccount {
        interface: seen.interface.clone(),
        captured: report.captured,
        after: report.after,
        filtered: report.filtered,
        lost: sum(seen.port_drops.iter().map(|drop| drop.count)),
        ..CaptureAccount::default()
    };
    account.unknown = match readings(seen).and_then(|readings| count(&mut account, seen, readings)) {
        Err(why) => why,
        Ok(_) if report.filtered.is_none() => {
            "the kernel ran the filter and does not count what it refused; the rest of \
                                               the interface's frames are filtered or lost before the socket"
                .into()
        }
        Ok(total) => {
            let explained = [report.captured, report.after, report.filtered.unwrap_or(0), account.lost];
            account.residual = Some((total as i64).saturating_sub_unsigned(sum(explained)));
            String::new()
        }
    };
    account
}

/// The four readings in their order, or why one of them says nothing of the interface.
fn readings(seen: &CaptureSeen) -> Result<[&CaptureReading; 4], String> {
    let index = index_of(seen);
    let read = |reading: &'_ Option<CaptureReading>| -> Result<(), String> {
        let trouble = if seen.trouble.is_empty() { "it was not read" } else { &seen.trouble };
        let reading = reading.as_ref().ok_or(trouble)?;
        let named = reading.counters.nodes.values().next().and_then(|node| node.link(&seen.interface));
        let is_there = named.is_some() || index.is_some_and(|index| numbered(reading, index).is_some());
        let missing = reading.counters.missing.first().map(|why| format!(" ({why})")).unwrap_or_default();
        let gone = || format!("{} is not among the interfaces{missing}", seen.interface);
        is_there.then_some(()).ok_or_else(gone)
    };
    let all = [&seen.opening, &seen.before, &seen.ending, &seen.after];
    let closed = |why| format!("the counters of the interface could not be read to the end: {why}");
    all.into_iter().try_for_each(read).map_err(closed)?;
    let [Some(opening), Some(before), Some(ending), Some(after)] = all.map(Option::as_ref) else {
        return Err(closed("it was not read".into()));
    };
    Ok([opening, before, ending, after])
}

/// Fills in what the interface and the host counted; the frames that the capture should have seen, or why they are not
/// known.
fn count(
    account: &mut CaptureAccount,
    seen: &CaptureSeen,
    [opening, before, ending, after]: [&CaptureReading; 4],
) -> Result<u64, String> {
    let index = index_of(seen);
    let whole = Span::new(&seen.interface, index, before, after);
    let places = |place, names: &[&str]| -> Vec<PlaceDrop> {
        names.iter().filter_map(|name| Some(PlaceDrop::new(place, name, whole.moved(name).ok()?))).collect()
    };
    if seen.received {
        account.beside = [places("nic", &NIC), places("kernel", &KERNEL)].concat();
        match [before, after].map(|reading| reading.queues_unknown.as_str()) {
            ["", ""] => account.queues = by_queue(before, after),
            ["", why] | [why, _] => account.queues_unknown = why.into(),
        }
    }
    let host = [
        (drop::BACKLOG_FULL, whole.window.softnet(|row| row.dropped)),
        (drop::FLOW_LIMIT, whole.window.softnet(|row| row.flow_limit)),
    ];
    let host = host.into_iter().filter_map(|(name, count)| Some(PlaceDrop::new("kernel", name, count?)));
    account.host_wide = host.collect();
    let (received, sent) = whole.sides(seen);
    (account.received, account.sent) = (received.clone().ok().flatten(), sent.clone().ok().flatten());
    account.uncertainty = seen.pieces;
    for edge in [(opening, before), (ending, after)] {
        let edge = Span::new(&seen.interface, index, edge.0, edge.1);
        let (received, sent) = edge.sides(seen);
        let passed = [Some(account.uncertainty), received?, sent?];
        account.uncertainty = sum(passed.into_iter().flatten());
    }
    Ok(sum([received?, sent?].into_iter().flatten()))
}

/// From one reading to another.
struct Span<'a> {
    window: Window<'a>,
    interface: &'a str,
    /// What its counters were at both ends.
    link: Option<(&'a LinkSample, &'a LinkSample)>,
}

type Side = Result<Option<u64>, String>;

impl<'a> Span<'a> {
    fn new(
        interface: &'a str,
        index: Option<u32>,
        from: &'a CaptureReading,
        to: &'a CaptureReading,
    ) -> Span<'a> {
        let link = index.and_then(|index| numbered(from, index).zip(numbered(to, index)));
        Span { window: Window { before: &from.counters, after: &to.counters }, interface, link }
    }

    /// How far a counter of the interface moved, or why that is not known.
    fn moved(&self, name: &str) -> Result<u64, String> {
        let anew = || format!("{} was made anew while frames were captured", self.interface);
        let (before, after) = self.link.ok_or_else(anew)?;
        let read = |side: &LinkSample| side.counters.get(name).copied();
        match Delta::between(read(before), read(after)) {
            Delta::Known(moved) => Ok(moved),
            unknown => Err(format!("{name} of {} is {unknown}", self.interface)),
        }
    }

    /// Frames that the interface received and sent; none of a side that is not captured.
    fn sides(&self, seen: &CaptureSeen) -> (Side, Side) {
        let side = |is_captured: bool, name| is_captured.then(|| self.moved(name)).transpose();
        (side(seen.received, "rx_packets"), side(seen.sent, "tx_packets"))
    }
}

/// What the queues that were there all the time counted between two readings.
fn by_queue(from: &CaptureReading, to: &CaptureReading) -> Vec<QueueCount> {
    let count = |(number, to): (&u32, &Counters)| {
        let from = from.queues.get(number)?;
        let moved = |name: &str| Delta::between(from.get(name).copied(), to.get(name).copied()).known();
        let drops = to.keys().filter(|name| *name != "rx_packets");
        Some(QueueCount {
            queue: *number,
            received: moved("rx_packets"),
            drops: drops
                .filter_map(|name| Some(NamedCount { name: name.clone(), count: moved(name)? }))
                .collect(),
        })
    };
    to.queues.iter().filter_map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Snapshot;
    use record::snapshot::{NodeSnapshot, SoftnetRow};

    fn reading(rx: u64, tx: u64, missed: u64) -> Option<CaptureReading> {
        let counters = [("rx_packets", rx), ("tx_packets", tx), ("rx_missed_errors", missed)];
        let counters = counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        let link = LinkSample { name: "a0".into(), index: 7, counters, ..LinkSample::default() };
        let node = NodeSnapshot { links: vec![link], ..NodeSnapshot::default() };
        let softnet = vec![SoftnetRow { cpu: 0, dropped: 5, ..SoftnetRow::default() }];
        let queue =
            |drops: u64| [("rx_packets".to_owned(), rx / 2), ("rx_hw_drops".to_owned(), drops)].into();
        Some(CaptureReading {
            counters: Snapshot { nodes: [("host".to_owned(), node)].into(), softnet, ..Snapshot::default() },
            queues: [(0, queue(7)), (1, queue(7 + missed))].into(),
            queues_unknown: String::new(),
        })
    }

    fn seen(readings: [Option<CaptureReading>; 4]) -> CaptureSeen {
        let [opening, before, ending, after] = readings;
        let interface = "a0".into();
        CaptureSeen {
            interface,
            received: true,
            sent: true,
            opening,
            before,
            ending,
            after,
            ..CaptureSeen::default()
        }
    }

    fn closed(captured: u64, after: u64, filtered: Option<u64>, seen: &CaptureSeen) -> CaptureAccount {
        let mut report = CaptureReport { captured, after, filtered, ..CaptureReport::default() };
        close(&mut report, seen);
        report.account.expect("an interface that was read")
    }

    fn link(reading: &mut Option<CaptureReading>) -> &mut LinkSample {
        &mut reading.as_mut().unwrap().counters.nodes.get_mut("host").unwrap().links[0]
    }

    #[test]
    fn the_account_closes_over_both_directions_and_says_how_sure_it_is() {
        let readings = [reading(10, 10, 0), reading(12, 10, 0), reading(100, 60, 3), reading(104, 60, 3)];
        let port_drops = vec![PlaceDrop::new("ring", drop::RING_FULL, 2)];
        let seen = CaptureSeen { port_drops, ..seen(readings) };
        let account = closed(130, 4, Some(5), &seen);
        assert_eq!((account.received, account.sent, account.lost), (Some(92), Some(50), 2));
        assert_eq!((account.residual, account.uncertainty), (Some(1), 6));
        assert_eq!(account.beside[0], PlaceDrop::new("nic", "rx_missed_errors", 3));
        let host: Vec<_> = account.host_wide.iter().map(|drop| (drop.name.as_str(), drop.count)).collect();
        assert_eq!(host, [("backlog_full", 0), ("flow_limit", 0)]);
        let told: Vec<_> = account.queues.iter().map(|q| (q.queue, q.received, q.drops[0].count)).collect();
        assert_eq!(told, [(0, Some(46), 0), (1, Some(46), 3)], "which queue was overrun");
        assert!(account.queues_unknown.is_empty() && account.unknown.is_empty());
        let more = closed(130, 4, Some(5), &CaptureSeen { pieces: 9, ..seen });
        assert_eq!((more.residual, more.uncertainty), (Some(1), 15));
    }

    /// Defects B11 and B20 of other tools: one number of drops from several sources, or only the socket's ("0.0 % dropped" beside an interface
    /// that dropped 12.9 M of 31.8 M).
    #[test]
    fn b11_b20_losses_of_the_interface_stand_beside_those_of_the_socket_each_at_its_place() {
        let readings = [
            reading(0, 0, 0),
            reading(0, 0, 0),
            reading(18_900_000, 0, 12_900_000),
            reading(18_900_000, 0, 12_900_000),
        ];
        let port_drops = vec![PlaceDrop::new("socket", drop::BUFFER_FULL, 0)];
        let account =
            closed(18_900_000, 0, Some(0), &CaptureSeen { sent: false, port_drops, ..seen(readings) });
        assert_eq!((account.lost, account.residual), (0, Some(0)), "the socket lost nothing");
        assert_eq!(
            account.beside[0],
            PlaceDrop::new("nic", "rx_missed_errors", 12_900_000),
            "the interface did"
        );
    }

    #[test]
    fn a_renamed_interface_is_the_same_and_another_of_its_name_is_not() {
        let mut readings = [reading(0, 0, 0), reading(0, 0, 0), reading(9, 7, 0), reading(9, 7, 0)];
        readings[2..].iter_mut().for_each(|reading| link(reading).name = "b9".into());
        let seen = seen(readings);
        let mut report = CaptureReport { captured: 16, filtered: Some(0), ..CaptureReport::default() };
        close(&mut report, &seen);
        let account = report.account.as_ref().unwrap();
        assert_eq!((account.residual, account.unknown.as_str()), (Some(0), ""));
        assert_eq!(report.notes, ["a0 was renamed to b9 while frames were captured"]);
        let mut other = seen;
        let impostor = LinkSample { name: "a0".into(), index: 8, ..LinkSample::default() };
        for reading in [&mut other.ending, &mut other.after] {
            reading.as_mut().unwrap().counters.nodes.get_mut("host").unwrap().links = vec![impostor.clone()];
        }
        assert!(closed(16, 0, Some(0), &other).unknown.contains("made anew"));
    }

    #[test]
    fn a_side_that_is_not_captured_is_not_in_the_account() {
        let readings = [reading(0, 0, 0), reading(0, 0, 0), reading(9, 7, 1), reading(9, 7, 1)];
        let seen = seen(readings);
        let incoming = closed(9, 0, Some(0), &CaptureSeen { sent: false, ..seen.clone() });
        assert_eq!((incoming.received, incoming.sent, incoming.residual), (Some(9), None, Some(0)));
        let tap = closed(7, 0, Some(0), &CaptureSeen { received: false, ..seen });
        assert_eq!((tap.received, tap.sent, tap.residual), (None, Some(7), Some(0)));
        assert!(tap.beside.is_empty() && tap.queues.is_empty(), "{tap:?}");
    }

    #[test]
    fn what_is_not_known_is_not_zero() {
        let mut seen = seen([reading(0, 0, 0), reading(0, 0, 0), reading(9, 9, 0), reading(9, 9, 0)]);
        let account = closed(3, 0, None, &seen);
        assert!(account.residual.is_none() && account.unknown.contains("filter"), "{account:?}");
        seen.before.as_mut().unwrap().queues_unknown = "the driver does not count by queue".into();
        let account = closed(0, 0, None, &seen);
        let told = (account.queues.len(), account.queues_unknown.as_str());
        assert_eq!(told, (0, "the driver does not count by queue"));
        let gone = CaptureSeen { after: None, trouble: "the kernel cannot be asked".into(), ..seen.clone() };
        let account = closed(0, 0, Some(0), &gone);
        assert!(account.residual.is_none() && account.received.is_none());
        assert!(account.unknown.ends_with("read to the end: the kernel cannot be asked"), "{account:?}");
        let ending = link(&mut seen.ending);
        (ending.name, ending.index) = ("b0".into(), 8);
        let account = closed(0, 0, Some(0), &seen);
        assert!(account.residual.is_none() && account.unknown.ends_with("a0 is not among the interfaces"));
        let mut report = CaptureReport::default();
        close(&mut report, &CaptureSeen::default());
        assert!(report.account.is_none(), "a port without an interface");
    }

    #[test]
    fn a_counter_that_ran_backwards_leaves_the_account_open() {
        let readings = [reading(50, 50, 0), reading(50, 50, 0), reading(9, 59, 0), reading(9, 59, 0)];
        let account = closed(30, 0, Some(0), &seen(readings));
        assert_eq!((account.received, account.sent, account.residual), (None, Some(9), None));
        assert_eq!(account.unknown, "rx_packets of a0 is unknown (it ran backwards)");
        // Nor does an interface that has only the same name go on with the other's counters.
        let mut seen = seen([reading(5, 5, 0), reading(5, 5, 0), reading(9, 9, 0), reading(9, 9, 0)]);
        (link(&mut seen.ending).index, link(&mut seen.after).index) = (8, 8);
        let account = closed(8, 0, Some(0), &seen);
        assert_eq!((account.received, account.residual), (None, None));
        assert!(account.unknown.contains("made anew") && account.beside.is_empty(), "{account:?}");
    }
}
