//! The witness against the stations: the same losses, counted by two disjoint mechanisms.
//!
//! Every reason that the kernel gives for a drop belongs to some names of drops ([`drop::of_kernel`]). Per node the named
//! drops are taken out of the witness' count, reasons with few names first; what remains on either side beyond one per
//! cent is a disagreement, told in one sentence each. A loss that only the witness can name is taken from what remains
//! of it, and not counted as confirmed.

use super::WitnessInput;
use super::chain::Draft;
use super::pool::{Unclaimed, is_invisible};
use super::station::Counts;
use record::delta::sum;
use record::ledger::WitnessDrop;
use record::{Delta, Drop, DropSource, NamedCount, Snapshot, StationKind, Witness, WitnessStatus, drop};
use std::collections::BTreeMap;

/// Frames that wait for a neighbour (`unres_qlen_bytes` of 212,992 B) and die only after the counters were read.
const HELD: u64 = 300;
/// Events that the witness may have missed before it is of no use, however few drops there are to confirm.
const BLIND: u64 = 1000;
/// Probes of the warm-up that may still wait for a neighbour when the test begins, and then die in it.
const PROBES: u64 = 5;

/// Takes out what a host did with its own copies of frames that a port took: behind the port where the path of a frames
/// test ends (`receiver`), and beside the ports of programs that hand frames on. Returns how many those behind the
/// path's end were. In front of a port are only the link and its backlog, and XDP; a program also has a queueing discipline behind it.
pub fn leave_out_copies(details: &mut Vec<WitnessDrop>, receiver: Option<&str>, programs: &[&str]) -> u64 {
    let in_front = |seen: &WitnessDrop| {
        let names = drop::of_kernel(&seen.reason, seen.location.as_deref());
        let is = |some: &[&str]| names.iter().any(|row| some.contains(&row.name));
        let of_link =
            is(&[drop::BACKLOG_FULL, drop::TX_DROPPED, drop::RING_FULL]) || seen.reason.starts_with("XDP");
        let ends_here = receiver == Some(seen.node.as_str());
        let passes_here = programs.contains(&seen.node.as_str());
        (!ends_here && !passes_here) || of_link || (passes_here && is(&[drop::QDISC_FULL]))
    };
    let is_behind = |seen: &&WitnessDrop| receiver == Some(seen.node.as_str()) && !in_front(seen);
    let behind = sum(details.iter().filter(is_behind).map(|seen| seen.frames));
    details.retain(in_front);
    behind
}

/// What the filter of a raw socket refused: each of them, a stranger's `ping` for one, is offered a copy of every packet of its protocol.
pub fn is_copy_of_raw_socket(seen: &WitnessDrop) -> bool {
    let is_raw = |at: &str| ["raw_rcv", "rawv6_rcv"].iter().any(|function| at.starts_with(function));
    seen.reason == "SOCKET_FILTER" && seen.location.as_deref().is_some_and(is_raw)
}

fn nodes(draft: &Draft) -> [Option<&str>; 2] {
    [Some(draft.station.node.as_str()), draft.peer.as_deref()]
}

/// Where the witness saw a drop of this name: in a backlog a frame belongs to the node that it is going to.
fn seen_at<'d>(draft: &'d Draft, name: &str) -> [Option<&'d str>; 2] {
    match draft.peer.as_deref() {
        Some(peer) if name == drop::BACKLOG_FULL => [Some(peer), None],
        _ => nodes(draft),
    }
}

/// Names residuals that counters located and only the witness knows.
pub fn name_residuals(drafts: &mut [Draft], details: &[WitnessDrop], snapshots: [&Snapshot; 2]) {
    let mut unclaimed = Unclaimed::new(details);
    for draft in drafts.iter() {
        for drop in draft.station.drops.iter().filter(|drop| !is_invisible(drop)) {
            unclaimed.take(seen_at(draft, &drop.name), &drop.name, drop.count);
        }
    }
    for draft in drafts.iter_mut() {
        let noise = i64::try_from(draft.station.uncertainty).unwrap_or(i64::MAX);
        if draft.station.residual <= noise {
            continue;
        }
        let mut open = u64::try_from(draft.station.residual).unwrap_or(0);
        for (seen, names, left) in &mut unclaimed.details {
            let here = nodes(draft).contains(&Some(seen.node.as_str()));
            let name = names.iter().find(|row| draft.row.witness.contains(&row.name));
            let name = name.map(|row| of_queue(seen, snapshots).unwrap_or(row.name));
            let unnamed = names.is_empty() && draft.row.counts != Counts::Own;
            let count = open.min(*left);
            if !here || count == 0 || (name.is_none() && !unnamed) {
                continue;
            }
            let at = seen.location.as_deref().unwrap_or("an unknown function");
            draft.station.drops.push(Drop {
                name: name.map_or_else(|| seen.reason.to_lowercase(), str::to_owned),
                count,
                source: DropSource::Witness,
                evidence: format!("{} at {at}", seen.reason),
            });
            draft.by_witness.push((seen.reason.clone(), count));
            *left -= count;
            open -= count;
        }
        draft.settle();
    }
}

/// What a queueing discipline that no station is about has dropped, that of a VLAN or bond over the interface of the path, where its own
/// counter moved.
fn of_queue(seen: &WitnessDrop, snapshots: [&Snapshot; 2]) -> Option<&'static str> {
    let is_of_queue = drop::find(drop::QDISC_FULL).is_some_and(|row| row.means(&seen.reason));
    let interface = seen.interface.as_deref().filter(|_| is_of_queue)?;
    let [before, after] = snapshots.map(|all| all.nodes.get(&seen.node)?.root_qdisc(interface));
    let dropped = Delta::of(before?.drops, after?.drops).known()?;
    (dropped > 0).then_some(after?.drop_name())
}

/// Sums by reason and compares.
pub fn judge(drafts: &[Draft], input: &WitnessInput) -> Witness {
    let (details, lost) = match input {
        WitnessInput::Absent(witness) => return witness.clone(),
        WitnessInput::Counted { details, lost } => (details, *lost),
    };
    let mut by_reason: BTreeMap<&str, u64> = BTreeMap::new();
    for seen in details {
        let all = by_reason.entry(&seen.reason).or_default();
        *all = all.saturating_add(seen.frames);
    }
    let disagreement = disagreements(drafts, details, lost);
    let named: u64 = drafts.iter().flat_map(|draft| &draft.station.drops).map(|drop| drop.count).sum();
    let status = if lost > BLIND.max(named / 2) {
        WitnessStatus::Unavailable
    } else if disagreement.is_empty() {
        WitnessStatus::Agrees
    } else {
        WitnessStatus::Disagrees
    };
    let why = match (lost, status) {
        (0, _) => String::new(),
        (_, WitnessStatus::Unavailable) => {
            format!(
                "the kernel did not show it {lost} drops of this host, too many against {named} to compare"
            )
        }
        _ => format!("but for {lost} drops of this host that the kernel did not show it"),
    };
    Witness {
        status,
        why,
        by_reason: by_reason
            .into_iter()
            .map(|(name, count)| NamedCount { name: name.into(), count })
            .collect(),
        details: details.clone(),
        disagreement,
        lost,
    }
}

fn disagreements(drafts: &[Draft], details: &[WitnessDrop], lost: u64) -> Vec<String> {
    let mut unclaimed = Unclaimed::new(details);
    let noise = |node: &str, count: u64| {
        let uncertain = drafts.iter().filter(|draft| draft.station.node == node);
        let uncertain = uncertain.map(|draft| draft.station.uncertainty).max().unwrap_or(0);
        sum([uncertain.max(count / 100), lost])
    };
    let mut sentences = not_seen(drafts, &mut unclaimed, &noise);
    sentences.extend(not_named(drafts, &unclaimed, &noise));
    sentences
}

/// Takes what the stations name out of what the witness counted; what it did not see of it.
fn not_seen(drafts: &[Draft], unclaimed: &mut Unclaimed, noise: &dyn Fn(&str, u64) -> u64) -> Vec<String> {
    let mut sentences = vec![];
    for draft in drafts {
        let station = &draft.station;
        let visible = station.drops.iter().filter(|drop| !is_invisible(drop));
        for drop in visible.filter(|drop| drop.source != DropSource::Witness) {
            let held = if drop.name == drop::NEIGHBOUR_UNRESOLVED { HELD } else { 0 };
            // A checksum that is looked at when the datagram is read ends one without an interface and without a socket.
            let held = if drop.name == drop::CHECKSUM && station.kind == StationKind::UdpIn {
                drop.count
            } else {
                held
            };
            let later = if draft.fragmented { drop.count } else { 0 }; // all may have been later fragments
            let unseen = unclaimed.take(seen_at(draft, &drop.name), &drop.name, drop.count);
            if !draft.unseen && unseen > sum([noise(&station.node, drop.count), held, later]) {
                sentences.push(format!(
                    "{unseen} of {} at {} of node {} were not seen by the witness",
                    drop.name, station.station, station.node
                ));
            }
        }
    }
    sentences
}

/// What the witness counted more than the stations name.
fn not_named(drafts: &[Draft], unclaimed: &Unclaimed, noise: &dyn Fn(&str, u64) -> u64) -> Vec<String> {
    let mut more: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for (seen, _, left) in &unclaimed.details {
        let sums = more.entry((&seen.node, &seen.reason)).or_default();
        *sums = (sum([sums.0, *left]), sum([sums.1, seen.frames]));
    }
    // What is left of a datagram that lost a fragment elsewhere dies later, or at the end, and is named where it lost that.
    let orphans = |node: &str| {
        let elsewhere = drafts.iter().filter(|draft| draft.fragmented && draft.station.node != node);
        sum(elsewhere.map(|draft| {
            let unnamed = if draft.is_counted { draft.station.residual.max(0).unsigned_abs() } else { 0 };
            sum(draft.station.drops.iter().map(|drop| drop.count)).saturating_add(unnamed)
        }))
    };
    let unnamed = |((node, reason), (left, seen)): ((&str, &str), (u64, u64))| {
        // What a witness-named drop took under another name is spent already.
        let here = drafts.iter().filter(|draft| nodes(draft).contains(&Some(node)));
        let spent = here.flat_map(|draft| &draft.by_witness).filter(|(named, _)| named == reason);
        let left = left.saturating_sub(spent.map(|(_, count)| count).sum());
        let probes = if reason.starts_with("NEIGH_") { PROBES } else { 0 };
        (left > sum([noise(node, seen), probes, orphans(node)]))
            .then(|| format!("the witness saw {left} more of {reason} at node {node} than the stations name"))
    };
    more.into_iter().filter_map(unnamed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::snapshot::{NodeSnapshot, QdiscSample, TC_ROOT};

    /// 'link_down at ip forward' was said of netem at a VLAN over the card of the path.
    #[test]
    fn what_a_queue_above_the_path_dropped_has_the_name_of_that_queue() {
        let snapshot = |kind: &str, drops: u64| {
            let queue = QdiscSample {
                interface: "eth0".into(),
                kind: kind.into(),
                parent: TC_ROOT,
                drops,
                ..QdiscSample::default()
            };
            let node = NodeSnapshot { qdiscs: vec![queue], ..NodeSnapshot::default() };
            Snapshot { nodes: [("r".to_owned(), node)].into(), ..Snapshot::default() }
        };
        let at = |reason, kind, drops| {
            of_queue(&seen("r", reason, "__dev_queue_xmit"), [&snapshot(kind, 5), &snapshot(kind, drops)])
        };
        assert_eq!(at("QDISC_DROP", "netem", 9), Some(drop::NETEM_DROP));
        assert_eq!(at("QDISC_DROP", "tbf", 9), Some(drop::QDISC_FULL));
        assert_eq!((at("QDISC_DROP", "netem", 5), at("TC_EGRESS", "netem", 9)), (None, None));
    }

    fn seen(node: &str, reason: &str, location: &str) -> WitnessDrop {
        WitnessDrop {
            reason: reason.into(),
            node: node.into(),
            interface: Some("eth0".into()),
            location: Some(location.into()),
            frames: 100,
            skbs: 100,
        }
    }

    /// Seen with a switch in the middle, whose own copies were told as the receiver's, too.
    #[test]
    fn copies_beside_a_program_are_left_out_and_not_counted_as_the_receivers() {
        let all = ["b", "s", "r"].map(|node| seen(node, "OTHERHOST", "ip_rcv_core"));
        let mut left = all.to_vec();
        assert_eq!(leave_out_copies(&mut left, Some("b"), &["s"]), 100);
        assert_eq!(left, all[2..]);
    }

    /// Seen with a stranger's `ping` beside a test: the filter of its raw socket refused 100 echoes of 100, none of which was lost.
    #[test]
    fn what_the_filter_of_a_raw_socket_refuses_is_a_copy() {
        let seen = |reason: &str, location: &str| seen("a", reason, location);
        assert!(is_copy_of_raw_socket(&seen("SOCKET_FILTER", "raw_rcv")));
        assert!(is_copy_of_raw_socket(&seen("SOCKET_FILTER", "rawv6_rcv")));
        // It may have been the test's own socket that was full, and UDP gives no copies.
        assert!(!is_copy_of_raw_socket(&seen("SOCKET_RCVBUFF", "raw_rcv")));
        assert!(!is_copy_of_raw_socket(&seen("SOCKET_FILTER", "udp_queue_rcv_one_skb")));
    }
}
