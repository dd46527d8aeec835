//! Closes the books of `pathlab send`: where every frame went that was asked for.
//!
//! **What.** [`close`] takes what a sending saw ([`SendSeen`]) and what it did, walks the stations of the ledger as
//! far as one host has them (`app send`, `port`, `qdisc`, `link`), and writes the sums by place and name.
//!
//! **Why with the stations.** A frame that the kernel dropped behind the send call is counted by the queueing
//! discipline or the interface, and by the port whose call failed. One reckoning knows which is which; a second one
//! would sooner or later say other words for the same loss.
//!
//! **Price.** Frames of other traffic at the interface are known only by being too many: they are taken off, and as many of ours may
//! be lost behind them, which is the uncertainty.

use crate::ledger::{self, LedgerInput, Ports, WitnessInput};
use record::delta::sum;
use record::send::{SendLedger, SendReport, SendSeen};
use record::snapshot::{LinkSample, QdiscSample};
use record::traffic::Settings;
use record::{
    DropSource, EndReport, Hop, NodeRole, Path, PlaceDrop, Snapshot, Station, StationKind, TestSpec,
    TrafficKind, Witness, WitnessStatus, drop,
};

/// Fills in what became of the frames, and the rate that follows from it. What was asked for, offered and accepted the
/// report has already.
pub fn close(report: &mut SendReport, seen: &SendSeen) {
    let renamed = as_it_was_called(seen);
    let seen = renamed.as_ref().map_or(seen, |(seen, _)| seen);
    let SendReport { frames, notes, .. } = report;
    notes.extend(
        renamed
            .as_ref()
            .map(|(seen, name)| format!("{} was renamed to {name} while frames were sent", seen.interface)),
    );
    frames.asked = frames.asked.max(frames.offered);
    frames.drops = vec![PlaceDrop::new("program", &seen.not_offered, frames.asked - frames.offered)];
    match transmitted(seen) {
        Some(counted) => by_interface(frames, seen, counted, notes),
        None => {
            if !seen.interface.is_empty() {
                notes.push("the interface's counters are gone: what left is what the port says".into());
            }
            by_port(frames, seen);
        }
    }
    frames.drops.retain(|drop| drop.count > 0);
    let dropped = sum(frames.drops.iter().map(|drop| drop.count));
    let booked = sum([frames.transmitted, frames.queued, dropped]);
    frames.residual = sum([frames.asked, frames.duplicated]).wrapping_sub(booked) as i64;
    if frames.residual < 0 {
        notes.push(others(frames.residual.unsigned_abs()));
        take_off_others(frames);
    }
    let seconds = report.seconds;
    report.frames_per_second = if seconds > 0.0 { frames.transmitted as f64 / seconds } else { 0.0 };
    let accepted = report.frames.accepted.max(1) as f64;
    report.bits_per_second = report.frames_per_second * report.bytes as f64 / accepted * 8.0;
}

/// The same with the interface under its old name at the end, and the new one, if somebody renamed it: its number stays.
fn as_it_was_called(seen: &SendSeen) -> Option<(SendSeen, String)> {
    let index = link(&seen.before, &seen.interface)?.index;
    let is_it = |link: &LinkSample| link.index == index;
    let name = seen.after.nodes.values().next()?.links.iter().find(|link| is_it(link))?.name.clone();
    if name == seen.interface {
        return None;
    }
    let mut seen = seen.clone();
    let node = seen.after.nodes.values_mut().next()?;
    // Another one may have its name now.
    node.links.retain(|link| link.name != seen.interface);
    node.qdiscs.retain(|qdisc| qdisc.interface != seen.interface);
    let links = node.links.iter_mut().filter(|link| is_it(link)).map(|link| &mut link.name);
    let qdiscs = node.qdiscs.iter_mut().map(|qdisc| &mut qdisc.interface);
    links.chain(qdiscs.filter(|of| **of == name)).for_each(|of| of.clone_from(&seen.interface));
    Some((seen, name))
}

/// No more can have left than was asked for and is nowhere else; the rest is others', who may hide as many lost ones as they are.
fn take_off_others(frames: &mut SendLedger) {
    let others = frames.residual.unsigned_abs().min(frames.transmitted);
    frames.transmitted -= others;
    frames.residual = frames.residual.saturating_add_unsigned(others);
    frames.uncertainty = frames.uncertainty.max(others.min(frames.transmitted));
}

fn others(more: u64) -> String {
    format!("{more} more frames left than were sent here: other traffic of the interface")
}

/// Nothing below the port counts.
fn by_port(frames: &mut SendLedger, seen: &SendSeen) {
    // What was dropped behind the call is reported complete as well.
    let left = frames.completed.map_or(frames.accepted, |completed| completed.min(frames.accepted));
    frames.transmitted = left.saturating_sub(seen.under_way);
    frames.counted_by = "the port".into();
    frames.queued = seen.under_way;
    frames.drops.extend(seen.port_drops.iter().cloned());
}

fn link<'a>(snapshot: &'a Snapshot, interface: &str) -> Option<&'a LinkSample> {
    snapshot.nodes.values().next()?.link(interface)
}

fn qdisc<'a>(snapshot: &'a Snapshot, interface: &str) -> Option<&'a QdiscSample> {
    snapshot.nodes.values().next()?.root_qdisc(interface)
}

/// What the interface transmitted, whosever it was; none when its counters are not there or ran backwards.
fn transmitted(seen: &SendSeen) -> Option<u64> {
    let (before, after) = (link(&seen.before, &seen.interface)?, link(&seen.after, &seen.interface)?);
    let of = |link: &LinkSample| link.counters.get("tx_packets").copied();
    of(after)?.checked_sub(of(before)?).filter(|_| before.index == after.index)
}

fn by_interface(frames: &mut SendLedger, seen: &SendSeen, counted: u64, notes: &mut Vec<String>) {
    let stations = stations(frames, seen);
    let at = |kind| stations.iter().find(|station| station.kind == kind);
    frames.counted_by = format!("tx_packets of {}", seen.interface);
    let left = at(StationKind::Link).filter(|station| station.unknown.is_none());
    frames.transmitted = left.map_or(counted, |station| station.left);
    frames.queued = at(StationKind::Qdisc).map_or(0, |station| u64::try_from(station.queued).unwrap_or(0));
    frames.uncertainty = stations.iter().map(|station| station.uncertainty).max().unwrap_or(0);
    let mut no_carrier = 0;
    // What the kernel counted first, then what is the port's own.
    for kind in [StationKind::Qdisc, StationKind::Link, StationKind::Port] {
        for drop in at(kind).iter().flat_map(|station| &station.drops) {
            match (&*drop.name, drop.source) {
                (drop::LINK_DOWN, DropSource::State) => no_carrier += drop.count,
                _ => book(frames, place(kind, &drop.name, seen), drop.count),
            }
        }
    }
    for drop in at(StationKind::AppSend).iter().flat_map(|station| &station.drops) {
        let of = seen.port_drops.iter().find(|refused| drop::send(&refused.name) == drop.name);
        book(frames, of.map_or(("port", &drop.name), |refused| (&refused.place, &refused.name)), drop.count);
    }
    unclaimed(frames, seen, &stations);
    book(frames, ("interface", drop::NO_CARRIER), no_carrier);
    if no_carrier > 0 {
        notes.push(
            "the interface lost its carrier: the kernel puts the noop qdisc there, which takes frames and drops them \
             without counting; no_carrier is what is missing, not what was counted"
                .into(),
        );
    }
    let more = counted.saturating_sub(frames.transmitted);
    if more > 0 {
        notes.push(others(more));
    }
    exchanged(seen, notes);
}

/// Where a drop behind the port was counted, and what it is called there.
fn place<'a>(kind: StationKind, name: &'a str, seen: &'a SendSeen) -> (&'a str, &'a str) {
    let told = seen.port_drops.iter().find(|told| told.name == name && told.is_counted_below());
    match (kind, told) {
        (StationKind::Qdisc, _) => ("qdisc", name),
        (StationKind::Port, Some(told)) => (&told.place, &told.name),
        // The device has one counter of what it dropped, for whatever reason.
        (StationKind::Link, _) if name != drop::TX_ERRORS => ("interface", drop::TX_DROPPED),
        _ => ("interface", name),
    }
}

fn book(frames: &mut SendLedger, (place, name): (&str, &str), count: u64) {
    match frames.drops.iter_mut().find(|known| known.place == place && known.name == name) {
        Some(known) => known.count = known.count.saturating_add(count),
        None => frames.drops.push(PlaceDrop::new(place, name, count)),
    }
}

/// What the port was refused and no station had a counter for (the queueing discipline was exchanged) is lost at the port.
fn unclaimed(frames: &mut SendLedger, seen: &SendSeen, stations: &[Station]) {
    let below = stations.iter().filter(|station| station.kind != StationKind::AppSend);
    let named = sum(below.flat_map(|station| &station.drops).map(|drop| drop.count));
    let residual = stations.iter().fold(0i64, |sum, station| sum.saturating_add(station.residual));
    let mut open = u64::try_from(residual).unwrap_or(0);
    let told = seen.port_drops.iter().filter(|told| told.is_counted_below());
    let mut rest = sum(told.clone().map(|told| told.count)).saturating_sub(named);
    for told in told {
        let count = told.count.min(open).min(rest);
        (open, rest) = (open - count, rest - count);
        book(frames, (&told.place, &told.name), count);
    }
}

fn exchanged(seen: &SendSeen, notes: &mut Vec<String>) {
    let (before, after) = (qdisc(&seen.before, &seen.interface), qdisc(&seen.after, &seen.interface));
    if let (Some(before), Some(after)) = (before, after)
        && (before.handle != after.handle || before.kind != after.kind)
    {
        notes.push(format!(
            "the qdisc of {} was exchanged while frames were sent; it is now {}",
            seen.interface, after.kind
        ));
    }
}

/// The stations from the application to the wire.
fn stations(frames: &SendLedger, seen: &SendSeen) -> Vec<Station> {
    let node = seen.before.nodes.keys().next().cloned().unwrap_or_default();
    let egress = Some(seen.interface.clone());
    let hop = Hop { node: node.clone(), role: NodeRole::Sender, ingress: None, egress, bridge: None };
    let path = Path { forward: vec![hop], ..Path::default() };
    let sender = EndReport {
        attempted: sum([frames.offered, frames.duplicated]),
        sent: frames.accepted,
        port_drops: seen.port_drops.clone(),
        settings: Settings { bypasses_qdisc: seen.bypasses_qdisc, ..Settings::default() },
        ..EndReport::default()
    };
    // Frames of every length: they are counted, not computed from bytes.
    let spec = TestSpec { kind: TrafficKind::Frames, from: node, size: 0, ..TestSpec::default() };
    let mut ledger = ledger::close(&LedgerInput {
        spec: &spec,
        path: &path,
        sender: &sender,
        receiver: &EndReport::default(),
        before: &seen.before,
        after: &seen.after,
        idle: None,
        witness: WitnessInput::Absent(Witness::absent(WitnessStatus::Unavailable, "one command sends")),
        ports: Ports::default(),
        flow: None,
        arrival: None,
    });
    ledger.stations.retain(|station| station.kind != StationKind::AppReceive);
    ledger.stations
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::snapshot::{NodeSnapshot, TC_ROOT};

    fn look(tx: u64, dropped: u64, qdisc: Option<(u64, u64, u64)>) -> Snapshot {
        let counters = [("tx_packets".to_owned(), tx), ("tx_dropped".to_owned(), dropped)].into();
        let link =
            LinkSample { name: "a0".into(), carrier: true, up: true, counters, ..LinkSample::default() };
        let qdisc = qdisc.map(|(packets, drops, qlen)| QdiscSample {
            interface: "a0".into(),
            parent: TC_ROOT,
            kind: "tbf".into(),
            packets,
            drops,
            qlen,
            ..QdiscSample::default()
        });
        let node = NodeSnapshot {
            links: vec![link],
            qdiscs: qdisc.into_iter().collect(),
            ..NodeSnapshot::default()
        };
        Snapshot { nodes: [("host".to_owned(), node)].into(), ..Snapshot::default() }
    }

    fn books(asked: u64, offered: u64, accepted: u64) -> SendReport {
        let frames = SendLedger { asked, offered, accepted, ..SendLedger::default() };
        SendReport { frames, ..SendReport::default() }
    }

    fn seen(looks: Option<(Snapshot, Snapshot)>, drops: &[(&str, u64)]) -> SendSeen {
        let interface = if looks.is_some() { "a0".to_owned() } else { String::new() };
        let (before, after) = looks.unwrap_or_default();
        let port_drops = drops.iter().map(|(name, count)| PlaceDrop::new("port", name, *count)).collect();
        SendSeen {
            interface,
            not_offered: "not_offered".into(),
            port_drops,
            before,
            after,
            ..SendSeen::default()
        }
    }

    fn closed(mut report: SendReport, seen: &SendSeen) -> SendReport {
        close(&mut report, seen);
        report
    }

    #[test]
    fn a_drop_that_the_port_was_told_of_is_booked_once() {
        // 90 offered: 50 left, 35 the qdisc dropped (30 of them told), 2 the driver (told), 3 wait.
        let looks = (look(100, 0, Some((100, 5, 0))), look(150, 2, Some((152, 40, 3))));
        let report = closed(books(90, 90, 58), &seen(Some(looks), &[("qdisc_full", 32), ("oversize", 0)]));
        assert_eq!(report.frames.transmitted, 50);
        let expected =
            [PlaceDrop::new("qdisc", "qdisc_full", 35), PlaceDrop::new("interface", "tx_dropped", 2)];
        assert_eq!(report.frames.drops, expected);
        assert_eq!((report.frames.queued, report.frames.residual), (3, 0));
        assert!(report.notes.is_empty(), "{:?}", report.notes);
    }

    /// As seen with `ring:` over a veth whose other end was down: all accepted, none transmitted, and 616 Mbit/s.
    #[test]
    fn both_rates_are_those_of_the_frames_that_left() {
        let sent = SendReport { bytes: 6000, seconds: 2.0, ..books(100, 100, 100) };
        let rates = |left, dropped| {
            let looks = (look(0, 0, None), look(left, dropped, None));
            let report = closed(sent.clone(), &seen(Some(looks), &[]));
            (report.frames_per_second, report.bits_per_second)
        };
        assert_eq!((rates(0, 100), rates(50, 50)), ((0.0, 0.0), (25.0, 12_000.0)));
    }

    #[test]
    fn an_interface_that_was_renamed_is_found_by_its_number() {
        let mut after = look(100, 0, Some((100, 0, 0)));
        let node = after.nodes.values_mut().next().unwrap();
        (node.links[0].name, node.qdiscs[0].interface) = ("b7".into(), "b7".into());
        node.links.push(LinkSample { name: "a0".into(), index: 9, ..LinkSample::default() });
        let report = closed(books(100, 100, 100), &seen(Some((look(0, 0, Some((0, 0, 0))), after)), &[]));
        assert_eq!((report.frames.transmitted, report.frames.residual), (100, 0), "{:?}", report.frames);
        assert_eq!(report.frames.counted_by, "tx_packets of a0");
        assert!(
            report.notes.iter().any(|note| note == "a0 was renamed to b7 while frames were sent"),
            "{:?}",
            report.notes
        );
    }

    /// As measured with `xdp:` towards a veth whose peer has a smaller MTU: each frame is EBUSY and `tx_dropped`.
    #[test]
    fn every_name_of_the_table_is_booked_once() {
        for name in drop::DROPS.iter().filter(|row| row.below.is_some()).map(|row| row.name) {
            let looks = (look(0, 7, None), look(60, 47, None));
            let frames = closed(books(103, 103, 60), &seen(Some(looks), &[(name, 43)])).frames;
            let expected = [PlaceDrop::new("interface", "tx_dropped", 40), PlaceDrop::new("port", name, 3)];
            assert_eq!((&frames.drops[..], frames.residual), (&expected[..], 0), "{name}");
        }
    }

    #[test]
    fn copies_that_a_fault_made_were_to_leave_too() {
        for (left, more, residual) in [(12, 0, 0), (11, 0, 1), (13, 1, 0), (63, 12, 0)] {
            let mut report = books(10, 10, 12);
            report.frames.duplicated = 2;
            let report = closed(report, &seen(Some((look(0, 0, None), look(left, 0, None))), &[]));
            assert_eq!(
                (report.frames.asked, report.frames.residual),
                (10, residual),
                "{left}: {:?}",
                report.frames
            );
            assert_eq!(report.frames.uncertainty, more);
            assert_eq!(report.notes.iter().any(|note| note.contains("other traffic")), left > 12);
        }
    }

    #[test]
    fn what_nobody_below_counted_stays_at_the_port() {
        let drops = [("qdisc_full", 15), ("oversize", 5)];
        let report = closed(books(100, 80, 60), &seen(Some((look(0, 0, None), look(60, 0, None))), &drops));
        let expected = [
            PlaceDrop::new("program", "not_offered", 20),
            PlaceDrop::new("port", "qdisc_full", 15),
            PlaceDrop::new("port", "oversize", 5),
        ];
        assert_eq!((&report.frames.drops[..], report.frames.residual), (&expected[..], 0));
        // Nor may an exchange of the queueing discipline lose what the port was told.
        let mut looks = (look(0, 0, Some((0, 0, 0))), look(60, 0, Some((60, 9, 0))));
        looks.1.nodes.get_mut("host").unwrap().qdiscs[0].handle = 7;
        let report = closed(books(80, 80, 60), &seen(Some(looks), &drops));
        assert_eq!((report.frames.dropped(), report.frames.residual), (20, 0), "{:?}", report.frames);
        assert!(report.notes.iter().any(|note| note.contains("exchanged")), "{:?}", report.notes);
    }

    /// Defect B13 of other tools: fewer frames than were asked for, and no word about it.
    #[test]
    fn b13_what_was_asked_for_and_did_not_leave_has_a_name_or_is_the_residual() {
        for (offered, accepted, left) in [(100, 100, 100), (100, 100, 93), (70, 70, 70), (0, 0, 0)] {
            let looks = (look(0, 0, None), look(left, 0, None));
            let frames = closed(books(100, offered, accepted), &seen(Some(looks), &[])).frames;
            let said = frames.transmitted + frames.dropped() + frames.queued;
            assert_eq!(said as i64 + frames.residual, 100, "{frames:?}");
            assert_eq!(frames.residual, (accepted - left) as i64, "{frames:?}");
        }
    }

    #[test]
    fn a_port_past_the_qdisc_has_no_part_in_its_drops() {
        let looks = (look(0, 0, Some((0, 0, 0))), look(60, 40, Some((60, 500, 0))));
        let seen = SendSeen { bypasses_qdisc: true, ..seen(Some(looks), &[("driver_dropped", 40)]) };
        let frames = closed(books(100, 100, 60), &seen).frames;
        assert_eq!(frames.drops, [PlaceDrop::new("interface", "tx_dropped", 40)]);
        assert_eq!((frames.transmitted, frames.residual), (60, 0));
    }

    #[test]
    fn strangers_and_missing_frames_are_told() {
        let report = closed(books(10, 10, 10), &seen(Some((look(0, 0, None), look(12, 0, None))), &[]));
        assert_eq!(
            (report.frames.transmitted, report.frames.residual, report.frames.uncertainty),
            (10, 0, 2)
        );
        assert!(
            report.notes[0].contains("2 more") && report.notes[0].contains("other traffic"),
            "{:?}",
            report.notes
        );
        // Seen beside a stranger's flood: "sent 77,716 of 3 frames", at 10 million in a second.
        let report = closed(books(3, 3, 3), &seen(Some((look(0, 0, None), look(77_716, 0, None))), &[]));
        let SendLedger { transmitted, residual, uncertainty, .. } = report.frames;
        assert_eq!((transmitted, residual, uncertainty), (3, 0, 3));
        assert!(report.notes[0].contains("77713 more frames left"), "{:?}", report.notes);
        let mut dark = look(4, 0, None);
        dark.nodes.get_mut("host").unwrap().links[0].carrier = false;
        let report = closed(books(10, 10, 10), &seen(Some((look(0, 0, None), dark)), &[]));
        assert_eq!(
            (report.frames.residual, &report.frames.drops[..]),
            (0, &[PlaceDrop::new("interface", "no_carrier", 6)][..])
        );
        let report = closed(books(0, 7, 6), &seen(None, &[("oversize", 1)]));
        assert_eq!((report.frames.asked, report.frames.transmitted, report.frames.residual), (7, 6, 0));
        let gone =
            closed(books(7, 7, 6), &seen(Some((look(0, 0, None), Snapshot::default())), &[("oversize", 1)]));
        assert!(
            (gone.frames.residual, gone.notes.len()) == (0, 1) && gone.notes[0].contains("gone"),
            "{gone:?}"
        );
    }
}
