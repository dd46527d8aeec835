//! The witness against the stations: the same losses, counted by two disjoint mechanisms.
//!
//! Every reason that the kernel gives for a drop belongs to some names of drops ([`drop::of_kernel`]). Per node the named
//! drops are taken out of the witness' count, reasons with few names first; what remains on either side beyond one per
//! cent is a disagreement, told in one sentence each. A loss that only the witness can name is taken from what remains
//! of it, and not counted as confirmed.

use super::WitnessInput;
use super::chain::Draft;
use super::gap::Gap;
use super::station::{Counts, Station};
use super::visit::{Spot, Visit};
use record::delta::sum;
use record::drop::{DropName, Fate};
use record::ledger::WitnessDrop;
use record::{Drop, DropSource, NamedCount, NodeRole, Witness, WitnessStatus, drop};
use std::collections::BTreeMap;

/// Frames that wait for a neighbour (`unres_qlen_bytes` of 212,992 B) and die only after the counters were read.
const HELD: u64 = 300;
/// Events that the witness may have missed before it is of no use, however few drops there are to confirm.
const BLIND: u64 = 1000;
/// Probes of the warm-up that may still wait for a neighbour when the test begins, and then die in it.
const PROBES: u64 = 5;

/// Drops that no socket buffer dies of; a damaged message has been read.
fn invisible(drop: &Drop) -> bool {
    drop::fate(&drop.name) != Fate::Dropped || drop.name == drop::DAMAGED
}

/// Takes out what a host did with its own copies of frames that a port took: behind the port where the path of a frames
/// test ends (`receiver`), and beside the ports of programs that hand frames on. Returns how many those were. In front of
/// a port are only the link and its backlog, and XDP; a program also has a queueing discipline behind it.
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
    let all = |details: &[WitnessDrop]| sum(details.iter().map(|seen| seen.frames));
    let before = all(details);
    details.retain(in_front);
    before.saturating_sub(all(details))
}

/// What the witness counted and no station has claimed yet.
struct Unclaimed<'a> {
    details: Vec<(&'a WitnessDrop, Vec<&'static DropName>, u64)>,
}

impl<'a> Unclaimed<'a> {
    fn new(details: &'a [WitnessDrop]) -> Self {
        let mut details: Vec<_> = details
            .iter()
            .map(|seen| (seen, drop::of_kernel(&seen.reason, seen.location.as_deref()), seen.frames))
            .collect();
        details.sort_by_key(|(_, names, _)| names.len());
        Unclaimed { details }
    }

    /// Takes what is known under this name at these nodes; returns what was not there.
    fn take(&mut self, nodes: [Option<&str>; 2], name: &str, mut count: u64) -> u64 {
        for node in nodes.into_iter().flatten() {
            for (seen, names, left) in &mut self.details {
                if seen.node == node && names.iter().any(|row| row.is(name)) {
                    let taken = count.min(*left);
                    *left -= taken;
                    count -= taken;
                }
            }
        }
        count
    }
}

/// What the witness counted of the flow, where every station is known to the frame: names are taken from it, so that a
/// counter which also counts others' drops cannot give its name to ours.
pub struct Pool<'a> {
    unclaimed: Unclaimed<'a>,
    /// Events that it could not count; none when it did not count at all.
    lost: Option<u64>,
}

impl<'a> Pool<'a> {
    pub fn new(input: &'a WitnessInput) -> Self {
        match input {
            WitnessInput::Absent(_) => Pool { unclaimed: Unclaimed::new(&[]), lost: None },
            WitnessInput::Counted { details, lost } => {
                Pool { unclaimed: Unclaimed::new(details), lost: Some(*lost) }
            }
        }
    }

    /// Takes back what a claim named beyond what was open before it, and beyond what the witness saw of that name here.
    pub fn confirm(&mut self, gap: &mut Gap, at: &Visit, open: u64, before: &[Drop]) {
        let mut open = open;
        for named in &mut gap.drops {
            let old = before.iter().find(|old| old.name == named.name && old.source == named.source);
            let new = named.count.saturating_sub(old.map_or(0, |old| old.count)).min(open);
            let seen = match self.lost {
                Some(lost) if is_seen(named) => new - self.take(at, &named.name, new).saturating_sub(lost),
                _ => new,
            };
            named.count = old.map_or(0, |old| old.count) + seen;
            open -= seen;
        }
        gap.drops.retain(|named| named.count > 0);
    }

    /// Names what is still open by what the witness saw here; what it was given for, by reason.
    pub fn name(&mut self, gap: &mut Gap, row: &Station, at: &Visit, holding: &[&str]) -> Vec<(String, u64)> {
        let mut given = vec![];
        for (seen, names, left) in &mut self.unclaimed.details {
            let Some((name, or)) = name_here(seen, names, row, at, holding) else { continue };
            let at = seen.location.as_deref().unwrap_or("an unknown function");
            let evidence = format!("{} at {at}{or}", seen.reason);
            let count = gap.claim(&name, *left, DropSource::Witness, evidence);
            *left -= count;
            if count > 0 {
                given.push((seen.reason.clone(), count));
            }
        }
        given
    }

    /// All that it saw die here, by reason, whoever claimed it.
    pub fn seen_here(&self, row: &Station, at: &Visit, holding: &[&str]) -> Vec<(String, u64)> {
        let details = self.unclaimed.details.iter();
        let here = details.filter(|(seen, names, _)| name_here(seen, names, row, at, holding).is_some());
        here.map(|(seen, _, _)| (seen.reason.clone(), seen.frames)).collect()
    }

    /// How many it saw die here that no station has claimed.
    pub fn here(&self, row: &Station, at: &Visit, holding: &[&str]) -> u64 {
        let details = self.unclaimed.details.iter();
        let here = details.filter(|(seen, names, _)| name_here(seen, names, row, at, holding).is_some());
        sum(here.map(|(_, _, left)| *left))
    }

    /// Takes up to so many of what nobody has claimed at this node.
    pub fn rest(&mut self, node: &str, most: u64) -> Vec<(&'a WitnessDrop, u64)> {
        let (mut found, mut most) = (vec![], most);
        for (seen, _, left) in &mut self.unclaimed.details {
            let count = most.min(*left);
            if seen.node == node && count > 0 {
                *left -= count;
                most -= count;
                found.push((*seen, count));
            }
        }
        found
    }

    /// All that nobody has claimed.
    pub fn unclaimed(&self) -> impl Iterator<Item = (&'a WitnessDrop, u64)> + '_ {
        self.unclaimed.details.iter().filter(|(_, _, left)| *left > 0).map(|(seen, _, left)| (*seen, *left))
    }

    /// Takes what is known under this name here; returns what was not there.
    fn take(&mut self, at: &Visit, name: &str, mut count: u64) -> u64 {
        for (seen, names, left) in &mut self.unclaimed.details {
            if is_here(seen, at) && names.iter().any(|row| row.is(name)) {
                let taken = count.min(*left);
                *left -= taken;
                count -= taken;
            }
        }
        count
    }
}

/// Frames that wait for a neighbour die after the counters were read; what has no buffer the witness cannot see.
fn is_seen(named: &Drop) -> bool {
    !invisible(named) && named.name != drop::NEIGHBOUR_UNRESOLVED
}

/// Parts of functions behind the counter of an interface that frames leave by, or before the one of the interface that they enter by.
const OF_LINKS: &[&str] =
    &["forward_skb", "veth", "xdp_generic", "dev_hard_start_xmit", "enqueue_to_backlog", "_enqueue"];
/// Beginnings of reasons that a frame has there.
const REASONS_OF_LINKS: &[&str] = &["QDISC_", "CPU_BACKLOG", "XDP", "DEV_"];
/// Names that only a counter or a state can give: no function tells them.
const OF_COUNTERS: &[&str] = &[drop::RX_DROPPED, drop::TX_DROPPED];
const OF_STATES: &[&str] = &[
    drop::MTU_EXCEEDED,
    drop::LINK_DOWN,
    drop::PORT_NOT_FORWARDING,
    drop::PORT_ISOLATED,
    drop::PORT_LOCKED,
    drop::FILTER,
];

/// Whether the witness saw it at this section: at the link's two interfaces, or anywhere in the node but at its links.
fn is_here(seen: &WitnessDrop, at: &Visit) -> bool {
    let is = |interface: Option<&str>| seen.interface.is_none() || seen.interface.as_deref() == interface;
    let function = seen.location.as_deref().unwrap_or_default();
    let is_of_link = OF_LINKS.iter().any(|part| function.contains(part))
        || REASONS_OF_LINKS.iter().any(|begin| seen.reason.starts_with(begin));
    match at.next {
        _ if is_of_link != at.next.is_some() => false,
        Some(next) => {
            (seen.node == at.node && is(at.egress)) || (seen.node == next.node && is(next.ingress.as_deref()))
        }
        // What a bridge gives to its own host is no longer on the bridge.
        None => seen.node == at.node && (at.bridge.is_none() || seen.interface.as_deref() != at.bridge),
    }
}

/// The name of what the witness saw, if it can have been at this station, and what else it may have been. `holding` are the names
/// that the state of the section speaks for.
fn name_here(
    seen: &WitnessDrop,
    names: &[&'static DropName],
    row: &Station,
    at: &Visit,
    holding: &[&str],
) -> Option<(String, String)> {
    // A bridge and a router are one station each.
    let is_alone = matches!(at.spot, Spot::Hop(NodeRole::Bridge | NodeRole::Router));
    let is_known = |name: &&&DropName| row.witness.contains(&name.name);
    let here: Vec<&&DropName> = names.iter().filter(is_known).collect();
    if !is_here(seen, at) || (here.is_empty() && !names.is_empty() && !is_alone) {
        return None;
    }
    let here = if here.is_empty() { names.iter().collect() } else { here };
    let told = here.iter().find(|name| name.means(&seen.reason));
    let by_state = || here.iter().find(|name| holding.contains(&name.name));
    let function = seen.location.as_deref().unwrap_or_default();
    let open = |name: &&&&DropName| !OF_STATES.contains(&name.name) && !OF_COUNTERS.contains(&name.name);
    let by_function =
        || here.iter().filter(open).find(|name| name.kernel.iter().any(|part| function.contains(part)));
    let only = || Some(here.iter().filter(open)).filter(|open| open.clone().count() == 1)?.next();
    let name = told.or_else(by_state).or_else(by_function).or_else(only);
    let or = || here.iter().filter(|name| !OF_COUNTERS.contains(&name.name)).map(|name| name.name);
    Some(match name {
        Some(name) => (name.name.to_owned(), String::new()),
        None if here.is_empty() => (seen.reason.to_lowercase(), String::new()),
        None => (seen.reason.to_lowercase(), format!(", one of {}", or().collect::<Vec<_>>().join(", "))),
    })
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
pub fn name_residuals(drafts: &mut [Draft], details: &[WitnessDrop]) {
    let mut purse = Unclaimed::new(details);
    for draft in drafts.iter() {
        for drop in draft.station.drops.iter().filter(|drop| !invisible(drop)) {
            purse.take(seen_at(draft, &drop.name), &drop.name, drop.count);
        }
    }
    for draft in drafts.iter_mut() {
        let noise = i64::try_from(draft.station.uncertainty).unwrap_or(i64::MAX);
        if draft.station.residual <= noise {
            continue;
        }
        let mut open = u64::try_from(draft.station.residual).unwrap_or(0);
        for (seen, names, left) in &mut purse.details {
            let here = nodes(draft).contains(&Some(seen.node.as_str()));
            let name = names.iter().find(|row| draft.row.witness.contains(&row.name)).map(|row| row.name);
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
    let mut purse = Unclaimed::new(details);
    let noise = |node: &str, count: u64| {
        let uncertain = drafts.iter().filter(|draft| draft.station.node == node);
        let uncertain = uncertain.map(|draft| draft.station.uncertainty).max().unwrap_or(0);
        sum([uncertain.max(count / 100), lost])
    };
    let mut sentences = not_seen(drafts, &mut purse, &noise);
    sentences.extend(not_named(drafts, &purse, &noise));
    sentences
}

/// Takes what the stations name out of what the witness counted; what it did not see of it.
fn not_seen(drafts: &[Draft], purse: &mut Unclaimed, noise: &dyn Fn(&str, u64) -> u64) -> Vec<String> {
    let mut sentences = vec![];
    for draft in drafts {
        let station = &draft.station;
        let visible = station.drops.iter().filter(|drop| !invisible(drop));
        for drop in visible.filter(|drop| drop.source != DropSource::Witness) {
            let held = if drop.name == drop::NEIGHBOUR_UNRESOLVED { HELD } else { 0 };
            let later = if draft.fragmented { drop.count } else { 0 }; // all may have been later fragments
            let unseen = purse.take(seen_at(draft, &drop.name), &drop.name, drop.count);
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
fn not_named(drafts: &[Draft], purse: &Unclaimed, noise: &dyn Fn(&str, u64) -> u64) -> Vec<String> {
    let mut more: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for (seen, _, left) in &purse.details {
        let sums = more.entry((&seen.node, &seen.reason)).or_default();
        *sums = (sum([sums.0, *left]), sum([sums.1, seen.frames]));
    }
    // What is left of a datagram that lost a fragment elsewhere dies later, or at the end, and is named where it lost that.
    let orphans = |node: &str| {
        let elsewhere = drafts.iter().filter(|draft| draft.fragmented && draft.station.node != node);
        sum(elsewhere.flat_map(|draft| &draft.station.drops).map(|drop| drop.count))
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
