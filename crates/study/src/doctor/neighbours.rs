//! Which interfaces of hosts are neighbours, and what each then knows of the other.
//!
//! **What.** [`with_other_ends`] gives each interface that shares a network with exactly one interface of other hosts that one's MTU.
//!
//! **Why.** What both ends of a link have to agree on can be compared where both told; behind a router they may differ.
//!
//! **Price.** Two hosts may give the same network to two links. Addresses that every host has for itself (loopback, link-local, those that
//! both hosts have, as bridges of containers do) say nothing.

use record::Prefix;
use record::facts::{Fact, Facts, Known};
use std::net::IpAddr;

/// These facts, with the MTU of the other end of each link (`mtu.other`) that leads to an interface of these others.
pub(super) fn with_other_ends(facts: &Facts, others: &[&Facts]) -> Facts {
    let mut facts = facts.clone();
    let nodes = others.iter().flat_map(|other| other.nodes.values());
    let theirs: Vec<&Known> = nodes.flat_map(|node| node.interfaces.values()).collect();
    for known in facts.nodes.values_mut().flat_map(|node| node.interfaces.values_mut()) {
        let is_known = known.get("mtu.other").is_some_and(|fact| fact.why_unknown().is_none());
        let ours = networks(known);
        let mut others = theirs.iter().filter(|their| meet(&ours, &networks(their)));
        if let (false, Some(other), None) = (is_known, others.next(), others.next()) {
            known.extend(other.get("mtu").map(|mtu| ("mtu.other".to_owned(), mtu.clone())));
        }
    }
    facts
}

/// Its addresses in networks of one link between hosts.
fn networks(known: &Known) -> Vec<Prefix> {
    let Some(Fact::Text(text)) = known.get("addresses") else { return vec![] };
    let is_own = |address| match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_loopback(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_loopback(),
    };
    let is_shared = |prefix: &Prefix| {
        !is_own(prefix.address) && prefix.length > 0 && *prefix != Prefix::host(prefix.address)
    };
    text.split_whitespace().filter_map(Prefix::parse).filter(is_shared).collect()
}

fn meet(ours: &[Prefix], theirs: &[Prefix]) -> bool {
    let same = |one: &Prefix, other: &Prefix| one.address != other.address && one.whole() == other.whole();
    ours.iter().any(|one| theirs.iter().any(|other| same(one, other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::facts::NodeFacts;

    fn host(interfaces: &[(&str, &str, f64)]) -> Facts {
        let interface = |(name, addresses, mtu): &(&str, &str, f64)| {
            let known = [("addresses", Fact::Text((*addresses).into())), ("mtu", Fact::Number(*mtu))];
            ((*name).to_owned(), known.map(|(name, fact)| (name.to_owned(), fact)).into())
        };
        let node =
            NodeFacts { interfaces: interfaces.iter().map(interface).collect(), ..NodeFacts::default() };
        Facts { nodes: [("host".to_owned(), node)].into(), ..Facts::default() }
    }

    #[test]
    fn neighbours_share_a_network_and_nothing_else_makes_one() {
        let other = |ours: &str, theirs: &[(&str, &str, f64)]| {
            let facts = with_other_ends(&host(&[("eth0", ours, 9000.0)]), &[&host(theirs)]);
            facts.nodes["host"].interfaces["eth0"].get("mtu.other").cloned()
        };
        let one = |theirs: &'static str| [("e", theirs, 1500.0)];
        let found = Some(Fact::Number(1500.0));
        assert_eq!(other("10.9.0.1/24", &one("10.9.0.2/24")), found);
        assert_eq!(other("192.0.2.1/25 2001:db8::1/64", &one("2001:db8::2/64")), found);
        for (ours, theirs, why) in [
            ("10.9.0.1/24", "10.9.1.2/24", "another network: a router is between"),
            ("10.9.0.1/24", "10.9.0.2/16", "the two do not agree what the network is"),
            ("172.17.0.1/16", "172.17.0.1/16", "a bridge that each host has for itself"),
            ("fe80::1/64", "fe80::2/64", "every link has it"),
            ("169.254.0.1/16", "169.254.0.2/16", "every link may have it"),
            ("10.9.0.1/32", "10.9.0.1/32", "a host, no network"),
            ("0.0.0.1/0", "0.0.0.2/0", "no network"),
            ("", "", "no address"),
        ] {
            assert_eq!(other(ours, &one(theirs)), None, "{why}");
        }
        let two = [("e", "10.9.0.2/24", 1500.0), ("f", "10.9.0.3/24", 1400.0)];
        assert_eq!(other("10.9.0.1/24", &two), None, "which of them nobody knows");
        // A router between two hosts is the neighbour of each.
        let router = host(&[("left", "10.9.0.9/24", 1500.0), ("right", "10.9.1.9/24", 9000.0)]);
        let facts = with_other_ends(&router, &[&host(&one("10.9.0.1/24")), &host(&one("10.9.1.2/24"))]);
        let known =
            ["left", "right"].map(|name| facts.nodes["host"].interfaces[name].get("mtu.other").cloned());
        assert_eq!(known, [Some(Fact::Number(1500.0)), Some(Fact::Number(1500.0))]);
        // What is known better stays.
        let mut facts = host(&[("eth0", "10.9.0.1/24", 9000.0)]);
        let known = facts.nodes.get_mut("host").unwrap().interfaces.get_mut("eth0").unwrap();
        known.insert("mtu.other".into(), Fact::Number(1400.0));
        let facts = with_other_ends(&facts, &[&host(&one("10.9.0.2/24"))]);
        assert_eq!(facts.nodes["host"].interfaces["eth0"]["mtu.other"], Fact::Number(1400.0));
    }
}
