//! What the rules say of a test whose facts were taken while its frames flowed: of the nodes of a lab, or of each host between which and over which it went.
//!
//! **What.** [`of_test`] takes all from a record, [`of_hosts`] what the hosts of a test told. A host has the interfaces that the test used: what else it has is not
//! the test's. Whoever hands frames on is also judged by the rules for that goal.
//!
//! **Price.** A host on the way that saw no frame of the flow has all of its interfaces.

use super::{Beside, DoctorReport, Goal, OWN, examine_beside};
use record::facts::{Fact, Facts};
use record::{Hop, NodeRole, TestRecord};
use std::collections::BTreeSet;

/// What the rules say of the facts of a test: of all nodes of a lab, or of each host that told, with its name, in the order from the sender.
pub fn of_test(test: &TestRecord) -> Vec<(Option<String>, DoctorReport)> {
    let goal = Goal::of(test.spec.kind);
    // Facts of a lab have both ends.
    if let (Some(lab), None) = (&test.facts, &test.far_facts)
        && lab.nodes.contains_key(&test.spec.to)
    {
        let mut lab = lab.clone();
        without_own_port(&mut lab, test);
        let hops = test.path.forward.iter().chain(&test.path.back);
        let is_between = |hop: &&Hop| !matches!(hop.role, NodeRole::Sender | NodeRole::Receiver);
        let forwarding = hops.filter(is_between).map(|hop| hop.node.clone()).collect();
        let beside = Beside { forwarding, ..Beside::default() };
        return vec![(None, examine_beside(&lab, &beside, Some(goal)))];
    }
    let via = test.via.iter().map(|host| (host.name.as_str(), host.facts.as_ref()));
    let mut hosts: Vec<(&str, Option<&Facts>)> = vec![(&test.spec.from, test.facts.as_ref())];
    hosts.extend(via.chain([(test.spec.to.as_str(), test.far_facts.as_ref())]));
    let reports = of_hosts(&hosts, Some(test), goal);
    let named = hosts.iter().zip(reports).filter_map(|((name, _), report)| Some((name, report?)));
    named.map(|(name, report)| (Some((*name).to_owned()), report)).collect()
}

/// What the rules say of each host of a test, as far as facts of it are there: the sender's first, the receiver's last, those between them in the order of the
/// way, each with its name. Each end is the other one's peer, with the interface that the frames used there.
pub fn of_hosts(
    hosts: &[(&str, Option<&Facts>)],
    test: Option<&TestRecord>,
    goal: Goal,
) -> Vec<Option<DoctorReport>> {
    let way: &[Hop] = test.map_or(&[], |test| &test.path.forward);
    let used =
        [way.first().and_then(|hop| hop.egress.as_ref()), way.last().and_then(|hop| hop.ingress.as_ref())];
    let last = hosts.len().saturating_sub(1);
    let end = |host: usize| [0, last].iter().position(|&end| end == host);
    let ours = |host: usize| {
        let (name, facts) = hosts[host];
        let facts = facts?;
        Some(test.map_or_else(|| facts.clone(), |test| of_way(facts, test, name, host)))
    };
    let all: Vec<Option<Facts>> = (0..hosts.len()).map(ours).collect();
    let peer_of = |host: usize| {
        let other = 1 - end(host).filter(|_| last > 0)?;
        let (_, facts) = hosts[[0, last][other]];
        facts.map(|facts| only(facts, used[other]))
    };
    let of = |host: usize| {
        let mut facts = all[host].clone()?;
        let peer = peer_of(host);
        if let (Some(test), true) = (test, host == last) {
            without_own_port(&mut facts, test);
        }
        let others = all.iter().enumerate().filter(|(other, _)| *other != host);
        let others: Vec<&Facts> = others.filter_map(|(_, facts)| facts.as_ref()).collect();
        // All nodes of a host on the way, and what belongs to none of them.
        let nodes = facts.nodes.keys().cloned().chain([String::new()]);
        let forwarding = if end(host).is_none() { nodes.collect() } else { BTreeSet::new() };
        let beside = Beside { peer: peer.as_ref(), others: &others, forwarding };
        Some(examine_beside(&facts, &beside, Some(goal)))
    };
    (0..hosts.len()).map(of).collect()
}

/// Facts of a host, by its name and its place on the way, with the interfaces of each node that the frames of a test used; with all where that is not known.
fn of_way(facts: &Facts, test: &TestRecord, own: &str, place: usize) -> Facts {
    let mut facts = facts.clone();
    for (name, node) in &mut facts.nodes {
        let is_here = |at: &String| match name.as_str() {
            OWN => at == own,
            name => at == name || place > 0 && at.strip_prefix(own) == Some(&format!("/{name}")),
        };
        let counted = test.flow.iter().flat_map(|flow| &flow.interfaces);
        let counted = counted.filter(|at| is_here(&at.node) && !at.counts.is_empty()).map(|at| &at.interface);
        let hops = test.path.forward.iter().chain(&test.path.back).filter(|hop| is_here(&hop.node));
        let named = hops.flat_map(|hop| [&hop.ingress, &hop.egress, &hop.bridge]).flatten();
        let used: BTreeSet<&String> = counted.chain(named).collect();
        node.interfaces.retain(|interface, _| used.is_empty() || used.contains(interface));
    }
    facts
}

/// Facts of the receiver without the tap that is its own port in a test of frames: that observes nothing.
fn without_own_port(facts: &mut Facts, test: &TestRecord) {
    let is_tap = test.spec.kind.is_by_port()
        && !test.spec.port.rsplit('/').next().is_some_and(|port| port.starts_with("xdp"));
    let Some(into) = test.path.forward.last().and_then(|hop| hop.ingress.as_ref()).filter(|_| is_tap) else {
        return;
    };
    for name in [test.spec.to.as_str(), OWN] {
        let interface = facts.nodes.get_mut(name).and_then(|node| node.interfaces.get_mut(into));
        if let Some(Fact::Number(taps)) = interface.and_then(|interface| interface.get_mut("taps")) {
            *taps = (*taps - 1.0).max(0.0);
        }
    }
}

/// Facts with this interface alone.
fn only(facts: &Facts, interface: Option<&String>) -> Facts {
    let mut facts = facts.clone();
    if let Some(used) = interface {
        facts.nodes.values_mut().for_each(|node| node.interfaces.retain(|name, _| name == used));
    }
    facts
}
