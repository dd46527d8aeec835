//! What the witness counted of a flow, as the source of names where the flow itself was counted.
//!
//! **Why.** There a loss is known to the frame, and only its name is open. The kernel's reason gives it; where the kernel tells none, the
//! function where the frame died narrows it down, and the state of the section decides. What still fits several names has none: it keeps
//! the kernel's word, with the candidates beside it.

use super::WitnessInput;
use super::gap::Gap;
use super::visit::{Spot, Visit};
use record::delta::sum;
use record::drop::{DropName, Fate};
use record::ledger::WitnessDrop;
use record::{Drop, DropSource, NodeRole, drop};

/// Drops that no socket buffer dies of; a damaged message has been read.
pub fn is_invisible(drop: &Drop) -> bool {
    drop::fate(&drop.name) != Fate::Dropped || drop.name == drop::DAMAGED
}

/// What the witness counted and no station has claimed yet.
#[derive(Clone)]
pub struct Unclaimed<'a> {
    pub details: Vec<(&'a WitnessDrop, Vec<&'static DropName>, u64)>,
}

impl<'a> Unclaimed<'a> {
    pub fn new(details: &'a [WitnessDrop]) -> Self {
        let mut details: Vec<_> = details
            .iter()
            .map(|seen| (seen, drop::of_kernel(&seen.reason, seen.location.as_deref()), seen.frames))
            .collect();
        details.sort_by_key(|(_, names, _)| names.len());
        Unclaimed { details }
    }

    /// Takes what is known under this name at these nodes; returns what was not there.
    pub fn take(&mut self, nodes: [Option<&str>; 2], name: &str, mut count: u64) -> u64 {
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
#[derive(Clone)]
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

    /// How many of what is open here may be events that it could not count, or so many later fragments, which it does not recognise: no more
    /// than it does not see here already. None when it did not count at all.
    pub fn unseen(&self, open: u64, later: u64, may: &[&str], at: &Visit, holding: &[&str]) -> Option<u64> {
        Some(self.lost?.saturating_add(later).min(open.saturating_sub(self.here(may, at, holding))))
    }

    /// Takes back what a claim named beyond what was open before it, and beyond what the witness saw of that name here, or may not
    /// have seen.
    pub fn confirm(
        &mut self,
        gap: &mut Gap,
        at: &Visit,
        (open, unseen): (u64, Option<u64>),
        before: &[Drop],
    ) {
        let mut open = open;
        for named in &mut gap.drops {
            let old = before.iter().find(|old| old.name == named.name && old.source == named.source);
            let new = named.count.saturating_sub(old.map_or(0, |old| old.count)).min(open);
            let seen = match unseen {
                Some(unseen) if is_seen(named) => {
                    new - self.take(at, &named.name, new).saturating_sub(unseen)
                }
                _ => new,
            };
            named.count = old.map_or(0, |old| old.count) + seen;
            open -= seen;
        }
        gap.drops.retain(|named| named.count > 0);
    }

    /// Names what is still open by what the witness saw here, which may have the names `may`; what it was given for, by reason.
    pub fn name(&mut self, gap: &mut Gap, may: &[&str], at: &Visit, holding: &[&str]) -> Vec<(String, u64)> {
        let mut given = vec![];
        for (seen, names, left) in &mut self.unclaimed.details {
            let Some((name, or)) = name_here(seen, names, may, at, holding) else { continue };
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
    pub fn seen_here(&self, may: &[&str], at: &Visit, holding: &[&str]) -> Vec<(String, u64)> {
        let details = self.unclaimed.details.iter();
        let here = details.filter(|(seen, names, _)| name_here(seen, names, may, at, holding).is_some());
        here.map(|(seen, _, _)| (seen.reason.clone(), seen.frames)).collect()
    }

    /// How many it saw die here that no station has claimed.
    pub fn here(&self, may: &[&str], at: &Visit, holding: &[&str]) -> u64 {
        let details = self.unclaimed.details.iter();
        let here = details.filter(|(seen, names, _)| name_here(seen, names, may, at, holding).is_some());
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
    !is_invisible(named) && named.name != drop::NEIGHBOUR_UNRESOLVED
}

/// Parts of functions behind the counter of an interface that frames leave by, or before the one of the interface that they enter by.
const OF_LINKS: &[&str] = &[
    "forward_skb",
    "veth",
    "xdp_generic",
    "dev_hard_start_xmit",
    "enqueue_to_backlog",
    "_enqueue",
    "_dequeue",
    "qdisc_",
    "kfree_skb_list",
    "rtnl_kfree_skbs",
];
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
    may: &[&str],
    at: &Visit,
    holding: &[&str],
) -> Option<(String, String)> {
    // A bridge and a router are one station each.
    let is_alone = matches!(at.spot, Spot::Hop(NodeRole::Bridge | NodeRole::Router));
    let is_known = |name: &&&DropName| may.contains(&name.name);
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
    // Where nothing else fits, it is that one, whatever counters and states say: those of the node may be of another datagram (a tunnel's).
    let single = || here.first().filter(|_| names.len() == 1);
    let name = told.or_else(by_state).or_else(by_function).or_else(only).or_else(single);
    let or = || here.iter().filter(|name| !OF_COUNTERS.contains(&name.name)).map(|name| name.name);
    Some(match name {
        Some(name) => (name.name.to_owned(), String::new()),
        None if here.is_empty() => (seen.reason.to_lowercase(), String::new()),
        None => (seen.reason.to_lowercase(), format!(", one of {}", or().collect::<Vec<_>>().join(", "))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Hop;

    /// What a drop at a bridge of `s` is called.
    fn at_bridge(
        reason: &str,
        function: &str,
        interface: &str,
        holding: &[&str],
    ) -> Option<(String, String)> {
        let seen = WitnessDrop {
            reason: reason.into(),
            node: "s".into(),
            interface: Some(interface.into()),
            location: Some(function.into()),
            frames: 9,
            skbs: 9,
        };
        let hop = Hop {
            node: "s".into(),
            role: NodeRole::Bridge,
            ingress: Some("p1".into()),
            egress: Some("p2".into()),
            bridge: Some("br0".into()),
        };
        let receiver = record::EndReport::default();
        let names = drop::of_kernel(reason, Some(function));
        let may = [drop::MTU_EXCEEDED, drop::PORT_ISOLATED, drop::PORT_LOCKED, drop::FILTER];
        name_here(&seen, &names, &may, &Visit::hop(&hop, None, &receiver), holding)
    }

    fn named(name: &str) -> Option<(String, String)> {
        Some((name.to_owned(), String::new()))
    }

    #[test]
    fn a_reason_names_whatever_the_state_is() {
        let name = at_bridge("NETFILTER_DROP", "nft_do_chain", "p1", &[drop::PORT_LOCKED]);
        assert_eq!(name, named(drop::FILTER));
        assert_eq!(
            at_bridge("OTHERHOST", "ip_rcv_core", "p1", &[]),
            named(drop::OTHERHOST),
            "a port that left"
        );
    }

    #[test]
    fn without_a_reason_the_state_decides_and_else_nobody() {
        let at = |holding: &[&str]| at_bridge("NOT_SPECIFIED", "br_handle_frame_finish", "p1", holding);
        assert_eq!(at(&[drop::PORT_ISOLATED]), named(drop::PORT_ISOLATED));
        assert_eq!(at(&[drop::MTU_EXCEEDED]), named(drop::MTU_EXCEEDED));
        let (name, or) = at(&[]).unwrap();
        assert_eq!(name, "not_specified");
        assert!(or.contains(drop::MTU_EXCEEDED) && or.contains(drop::PORT_LOCKED), "{or}");
        // A VXLAN over IPv6 whose datagrams are too long for the link below; the test's own are of IPv4, whose counters say nothing.
        assert_eq!(at_bridge("NOT_SPECIFIED", "ip6_fragment", "p2", &[]), named(drop::MTU_EXCEEDED));
    }

    #[test]
    fn what_dies_on_a_link_or_in_the_bridges_own_host_is_not_the_bridges() {
        assert_eq!(at_bridge("QDISC_DROP", "__dev_queue_xmit", "p2", &[]), None);
        assert_eq!(at_bridge("NOT_SPECIFIED", "__dev_forward_skb2", "p2", &[drop::MTU_EXCEEDED]), None);
        assert_eq!(at_bridge("OTHERHOST", "ip_rcv_core", "br0", &[]), None);
    }
}
