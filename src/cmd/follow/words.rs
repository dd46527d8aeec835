//! What `pathlab follow` says to people.

use crate::output::when_any;
use record::Station;
use record::flow::FlowPlace;
use record::follow::{
    FollowCandidate, FollowChange, FollowCount, FollowEnd, FollowLeg, FollowLink, FollowReport, FollowSecond,
};
use record::ledger::{Drop, Witness, WitnessStatus};
use record::unit::{count, frames_per_s, many, signed, time_ns};

/// A line while it goes on.
pub fn second(line: &FollowSecond) -> String {
    let legs: Vec<String> = line.legs.iter().map(leg_of_second).collect();
    let legs = if legs.is_empty() { "no frame yet".to_owned() } else { legs.join("   ") };
    format!("{:>6.1} s  {legs}", line.seconds)
}

fn leg_of_second(leg: &FollowCount) -> String {
    let FollowCount { leg, sent, received, dropped, open, frames_per_s: rate } = leg;
    let dropped = when_any(*dropped, |dropped| format!(", {} dropped", count(dropped)));
    let open = when_any(*open, |open| format!(", {} on their way or not named", signed(open)));
    format!(
        "{leg}: {} sent ({}), {} received{dropped}{open}",
        count(*sent),
        frames_per_s(*rate),
        count(*received)
    )
}

/// All that is known at the end.
pub fn report(report: &FollowReport) -> String {
    let mut lines = vec![format!(
        "{}: followed for {} in {}; ended by {}",
        report.flow,
        time_ns(report.seconds * 1e9),
        nodes(report),
        report.ended
    )];
    if report.legs.is_empty() {
        lines.push("no frame of the flow was seen".into());
    }
    if !report.rests {
        lines.push(
            "the flow went on while the counters were read: what is unexplained may still be on its way"
                .into(),
        );
    }
    lines.extend(report.legs.iter().flat_map(leg));
    lines.push(witness(&report.witness));
    lines.extend(report.missing.iter().map(|missing| format!("not counted: {missing}")));
    lines.extend(
        report.program_ns.map(|ns| format!("Counting the flow: {ns} ns for a frame at each interface.")),
    );
    lines.join("\n")
}

/// The namespaces, with when they came and went.
fn nodes(report: &FollowReport) -> String {
    let change = |change: &FollowChange| {
        format!("{} {:.1} s", if change.came { "from" } else { "until" }, change.seconds)
    };
    let node = |node: &String| {
        let changes = report.changes.iter().filter(|change| change.node == *node).map(change);
        let changes: Vec<String> = changes.collect();
        if changes.is_empty() { node.clone() } else { format!("{node} ({})", changes.join(", ")) }
    };
    report.nodes.iter().map(node).collect::<Vec<_>>().join(", ")
}

fn leg(leg: &FollowLeg) -> Vec<String> {
    let FollowLeg { leg: name, from, to, sent, received, unexplained, uncertainty, .. } = leg;
    let end = |end: &Option<FollowEnd>| match end {
        None => "nowhere".to_owned(),
        Some(FollowEnd { node, beyond: None }) => node.clone(),
        Some(FollowEnd { node, beyond: Some(interface) }) => format!("beyond {node}:{interface}"),
    };
    let mut lines = vec![format!(
        "{name}: {} → {}: {} sent, {} received, {} lost",
        end(from),
        end(to),
        many(*sent, "frame"),
        count(*received),
        count(leg.lost())
    )];
    let links: Vec<String> = leg.links.iter().map(link).collect();
    if !links.is_empty() {
        lines.push(format!("  way: {}", links.join("; ")));
    }
    let stations = || leg.stations.iter();
    lines.extend(stations().flat_map(|station| station.drops.iter().map(|drop| dropped(station, drop))));
    lines.extend(stations().filter(|station| station.residual != 0).map(open));
    lines.extend(leg.candidates.iter().map(candidate));
    lines.push(format!(
        "  {} sent = {} received + {} dropped{}{} + {} unexplained (±{})",
        count(*sent),
        count(*received),
        count(stations().flat_map(|station| &station.drops).map(|drop| drop.count).sum()),
        when_any(stations().map(|station| station.queued).sum::<i64>(), |queued| format!(
            " + {} queued",
            signed(queued)
        )),
        when_any(stations().map(|station| station.made).sum::<u64>(), |made| format!(
            " − {} that nobody was seen to send",
            count(made)
        )),
        signed(*unexplained),
        count(*uncertainty)
    ));
    lines.extend(leg.notes.iter().map(|note| format!("  note: {note}")));
    lines
}

fn link(link: &FollowLink) -> String {
    let place = |place: &Option<FlowPlace>| match place {
        Some(FlowPlace { node, interface }) => format!("{node}:{interface}"),
        None => "outside".to_owned(),
    };
    let of = if link.entered == link.left { String::new() } else { format!(" of {}", count(link.entered)) };
    let off = if link.is_off_the_way { ", not to the receiver" } else { "" };
    format!("{} → {} {}{of}{off}", place(&link.from), place(&link.to), count(link.left))
}

fn dropped(station: &Station, drop: &Drop) -> String {
    let evidence = if drop.evidence.is_empty() { String::new() } else { format!(": {}", drop.evidence) };
    let (source, node, name) = (drop.source.word(), &station.node, &station.station);
    format!("  {} dropped at {node}, {name}: {} ({source}{evidence})", count(drop.count), drop.name)
}

fn open(station: &Station) -> String {
    format!("  {} at {}, {}: nothing names them", signed(station.residual), station.node, station.station)
}

fn candidate(candidate: &FollowCandidate) -> String {
    let FollowCandidate { node, station, drop } = candidate;
    let evidence = if drop.evidence.is_empty() { String::new() } else { format!(": {}", drop.evidence) };
    format!("  candidate at {node}, {station}: {}{evidence}; others' frames count there, too", drop.name)
}

fn witness(witness: &Witness) -> String {
    let why = when_any(witness.why.len(), |_| format!(" ({})", witness.why));
    match witness.status {
        WitnessStatus::Agrees => format!("The witness agrees{why}."),
        WitnessStatus::Disagrees => {
            format!("The witness disagrees{why}: {}.", witness.disagreement.join("; "))
        }
        WitnessStatus::NotPermitted => format!("The witness is not permitted{why}."),
        WitnessStatus::Unavailable => format!("There is no witness{why}."),
    }
}
