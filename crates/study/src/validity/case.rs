//! A test as the rows see it: its record, and what is on its path.

use record::conditions::{Conditions, ConfigChange};
use record::validity::Unwatched;
use record::{Hop, Prefix, TestRecord};
use std::collections::BTreeSet;

/// A test with the interfaces and nodes of its path.
pub struct Case<'a> {
    pub test: &'a TestRecord,
    interfaces: BTreeSet<(&'a str, &'a str)>,
    nodes: BTreeSet<&'a str>,
}

impl<'a> Case<'a> {
    /// The path is where its frames were counted, and what the routes say.
    pub fn of(test: &'a TestRecord) -> Case<'a> {
        let hops = || test.path.forward.iter().chain(&test.path.back);
        let mut interfaces: BTreeSet<(&str, &str)> = hops().flat_map(interfaces_of).collect();
        let counted = test.flow.iter().flat_map(|flow| &flow.interfaces).filter(|one| !one.counts.is_empty());
        interfaces.extend(counted.map(|one| (one.node.as_str(), one.interface.as_str())));
        let nodes =
            hops().map(|hop| hop.node.as_str()).chain(interfaces.iter().map(|(node, _)| *node)).collect();
        Case { test, interfaces, nodes }
    }

    /// The conditions of every host that was watched.
    pub fn hosts(&self) -> impl Iterator<Item = &'a Conditions> {
        self.test.conditions.iter()
    }

    /// The interfaces of the path with their nodes.
    pub fn interfaces(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.interfaces.iter().copied()
    }

    /// Frames of the test pass here.
    pub fn is_on_path(&self, node: &str, interface: &str) -> bool {
        self.interfaces.contains(&(node, interface))
    }

    /// Frames of the test pass here, or anywhere in the node for what is of no interface.
    pub fn touches(&self, node: &str, interface: &str) -> bool {
        if interface.is_empty() { self.nodes.contains(node) } else { self.is_on_path(node, interface) }
    }

    /// Changes with such messages in nodes of the path.
    pub fn changes(
        &self,
        messages: &'static [&'static str],
    ) -> impl Iterator<Item = (&'a Conditions, &'a ConfigChange)> {
        let of_host = move |host: &'a Conditions| {
            let named = host
                .changes
                .iter()
                .filter(move |change| messages.iter().any(|message| change.message.starts_with(message)));
            named.map(move |change| (host, change))
        };
        self.hosts().flat_map(of_host).filter(|(_, change)| self.nodes.contains(change.node.as_str()))
    }

    /// What could not be watched, and the nodes of the path that nobody did.
    pub fn missing(&self) -> impl Iterator<Item = Unwatched> {
        let of = move |host: &'a Conditions| {
            let named = move |one: &Unwatched| {
                let place = one.at.as_ref().map(|at| format!("{}: ", place(&at.node, &at.interface)));
                let why = of_host(host, &format!("{}{}", place.unwrap_or_default(), one.why));
                Unwatched { why, ..one.clone() }
            };
            // What is read of every card says something where frames of the test passed.
            let is_meant =
                |one: &&Unwatched| one.at.as_ref().is_none_or(|at| self.is_on_path(&at.node, &at.interface));
            host.missing.iter().filter(is_meant).map(named)
        };
        let is_watched = |node: &str| self.hosts().any(|host| host.nodes.iter().any(|one| one == node));
        let left_out = |node: &&str| self.hosts().next().is_some() && !is_watched(node);
        let nodes = self.nodes.iter().copied().filter(left_out);
        let unwatched = nodes.map(|node| (super::CONDITIONS, format!("node {node} was not watched")));
        let unwatched: Vec<Unwatched> =
            unwatched.map(|(what, why)| Unwatched { what: what.to_owned(), why, at: None }).collect();
        self.hosts().flat_map(of).chain(unwatched)
    }
}

fn interfaces_of(hop: &Hop) -> impl Iterator<Item = (&str, &str)> {
    let names = [&hop.ingress, &hop.egress, &hop.bridge].into_iter().flatten();
    names.map(|interface| (hop.node.as_str(), interface.as_str()))
}

/// A clause with the host that it is of, where there are several.
pub fn of_host(host: &Conditions, clause: &str) -> String {
    if host.host.is_empty() { clause.to_owned() } else { format!("{}: {clause}", host.host) }
}

/// The host, as a place.
pub fn host_place(host: &Conditions) -> String {
    if host.host.is_empty() { "host".to_owned() } else { format!("host {}", host.host) }
}

/// `node b, eth0`; the node alone for what is of no interface.
pub fn place(node: &str, interface: &str) -> String {
    if interface.is_empty() { format!("node {node}") } else { format!("node {node}, {interface}") }
}

/// Whether a prefix (`10.0.0.0/24`) or an address holds one of these addresses.
pub fn holds(prefix: &str, addresses: &[String]) -> bool {
    let alone = || prefix.parse().ok().map(Prefix::host);
    let Some(prefix) = Prefix::parse(prefix).or_else(alone) else { return false };
    addresses.iter().any(|address| address.parse().is_ok_and(|address| prefix.contains(address)))
}
