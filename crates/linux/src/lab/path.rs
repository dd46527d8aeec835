//! Which way frames take from node to node.
//!
//! **What.** [`Lab::path`] starts at the sender, asks its kernel for the route to the receiver's address, crosses the
//! link, passes through bridges by looking for the port that leads to the next IP node, asks the next router, and so
//! on until a node says that the address is its own.
//!
//! **Why ask.** Somebody may have changed routes, addresses or ports in the running lab; the ledger must look at the
//! stations that frames really pass. Links are followed by interface index, so a renamed interface is still found.
//!
//! **Price.** One netlink dump for each node and one request for each IP hop. When the kernel's answers do not lead to
//! the receiver, the shortest way of the topology is taken instead and the path says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use record::{Hop, NodeRole, Path, Result};

use super::live::Lab;
use super::topology::Topology;
use crate::netlink::{LinkState, Netlink, Route, RouteType};

/// A station of IP or of a bridge: node by number, interface by index.
type Place = (usize, u32);

/// What the walk asks: nodes with their names, links and addresses, and routes.
struct Machine<'a> {
    nodes: Vec<Seen>,
    /// The route of a node to an address; none when it has none.
    route: &'a dyn Fn(usize, IpAddr) -> Option<Route>,
}

/// One node as the kernel shows it.
#[derive(Debug, Clone, Default)]
struct Seen {
    name: String,
    links: BTreeMap<u32, LinkState>,
    addresses: Vec<(u32, IpAddr)>,
    /// A program hands frames on from every link to every other.
    forwards: bool,
}

/// A node that does not know the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadEnd {
    /// Its name.
    pub node: String,
    /// The type of its route, if that refuses; none when it has no route.
    pub refuses: Option<RouteType>,
}

impl Lab {
    /// The way of frames from one node to another (`family` 4 or 6); only `forward` is filled. Ask again with the nodes
    /// exchanged for the way back.
    ///
    /// # Errors
    /// An input problem when a node is unknown, the two are the same, or the topology itself has no way.
    pub fn path(&self, from: &str, to: &str, family: u8) -> Result<Path> {
        let (start, end) = (self.node(from)?.name(), self.node(to)?.name());
        if start == end {
            return Err(record::Problem::input(format!("'{from}' is both ends of the path"))
                .help("name two different nodes"));
        }
        let asked = self.address_of(to, family).and_then(|address| {
            let route = |node: usize, to| self.nodes()[node].ask(|netlink| netlink.route(to)).ok().flatten();
            let machine = Machine { nodes: self.look(), route: &route };
            let number = |name: &str| self.nodes().iter().position(|node| node.name() == name);
            machine.walk(number(start)?, number(end)?, address)
        });
        if let Some(forward) = asked {
            return Ok(Path { forward, back: vec![], source: "routes".into() });
        }
        match shortest(self.topology(), start, end) {
            Some(forward) => Ok(Path { forward, back: vec![], source: "topology".into() }),
            // Through a tunnel, an interface that stands on another node's, or a program: only the frames will tell.
            None if !self.topology().uppers.is_empty() || is_linked(self.topology(), start, end) => {
                Ok(Path { forward: vec![], back: vec![], source: "unknown".into() })
            }
            None => Err(record::Problem::input(format!("no link leads from '{from}' to '{to}'"))
                .at(format!("lab {}", self.name()))
                .help("name two nodes that are connected")),
        }
    }

    /// The node whose routes do not lead on to an address, on the way that frames of a node take there; none when the kernels' routes
    /// lead to the address, in a circle, or out of the lab.
    pub fn dead_end(&self, from: &str, to: IpAddr) -> Option<DeadEnd> {
        let route = |node: usize, to| self.nodes()[node].ask(|netlink| netlink.route(to)).ok().flatten();
        let machine = Machine { nodes: self.look(), route: &route };
        let node = machine.dead_end(self.nodes().iter().position(|node| node.name() == from)?, to)?;
        let node = &self.nodes()[node];
        let refuses = node.ask(|netlink| netlink.refuses(to)).ok().flatten();
        Some(DeadEnd { node: node.name().into(), refuses })
    }

    fn look(&self) -> Vec<Seen> {
        let look = |node: &super::Node| {
            let links = node.links().unwrap_or_default();
            let addresses = node.ask(Netlink::addresses).unwrap_or_default();
            Seen {
                name: node.name().into(),
                links: links.into_iter().map(|link| (link.index, link)).collect(),
                addresses: addresses.into_iter().map(|(index, prefix)| (index, prefix.address)).collect(),
                forwards: self.topology().forwarder(node.name()).is_some(),
            }
        };
        self.nodes().iter().map(look).collect()
    }
}

/// Where a search ended, and the bridges on the way, last first.
type Found = (Place, Vec<Hop>);

impl Machine<'_> {
    /// Follows the kernels' routes; none when they lead nowhere, in a circle, or to another node.
    fn walk(&self, from: usize, to: usize, address: IpAddr) -> Option<Vec<Hop>> {
        let mut hops = vec![];
        let (mut node, mut ingress): (usize, Option<u32>) = (from, None);
        let mut visited = BTreeSet::new();
        while visited.insert(node) {
            let route = (self.route)(node, address)?;
            if route.local {
                hops.push(self.hop(node, NodeRole::Receiver, [ingress, None, None])?);
                return (node == to && node != from).then_some(hops);
            }
            let role = if node == from { NodeRole::Sender } else { NodeRole::Router };
            hops.push(self.hop(node, role, [ingress, Some(route.interface), None])?);
            let target = self.owner(route.via.unwrap_or(address), node)?;
            let arrival = self.cross((node, route.interface), target, &mut hops)?;
            (node, ingress) = (arrival.0, Some(arrival.1));
        }
        None
    }

    /// The node without a route to the address.
    fn dead_end(&self, from: usize, address: IpAddr) -> Option<usize> {
        let (mut node, mut visited) = (from, BTreeSet::new());
        while visited.insert(node) {
            let Some(route) = (self.route)(node, address) else { return Some(node) };
            if route.local {
                return None;
            }
            node = self.owner(route.via.unwrap_or(address), node)?;
        }
        None
    }

    /// A station with the names of its interfaces: ingress, egress and bridge.
    fn hop(&self, node: usize, role: NodeRole, interfaces: [Option<u32>; 3]) -> Option<Hop> {
        let seen = &self.nodes[node];
        let named = |index| seen.links.get(&index).map(|link| link.name.clone());
        if interfaces.into_iter().flatten().any(|index| named(index).is_none()) {
            return None;
        }
        let [ingress, egress, bridge] = interfaces.map(|index| index.and_then(named));
        Some(Hop { node: seen.name.clone(), role, ingress, egress, bridge })
    }

    /// The node that has an address, other than the one that asks. Neighbours answer for addresses of all their interfaces,
    /// so the interface does not matter.
    fn owner(&self, address: IpAddr, asker: usize) -> Option<usize> {
        let has = |seen: &Seen| {
            seen.addresses.iter().any(|(_, own)| *own == address) || is_link_local_of(seen, address)
        };
        self.nodes.iter().enumerate().position(|(number, seen)| number != asker && has(seen))
    }

    /// From an IP interface over links and bridges to the interface where the target node takes frames; adds the bridges
    /// on the way to `hops`. A depth-first search over ports, each bridge once.
    fn cross(&self, from: Place, target: usize, hops: &mut Vec<Hop>) -> Option<Place> {
        let mut passed = BTreeSet::new();
        let is_bridge = self.nodes[from.0].links.get(&from.1)?.kind == "bridge";
        let (found, way) = match is_bridge {
            true => self.through(from, Some(from.1), target, &mut passed)?,
            false => self.over_link(from, target, &mut passed)?,
        };
        hops.extend(way.into_iter().rev());
        Some(found)
    }

    fn over_link(&self, out: Place, target: usize, passed: &mut BTreeSet<Place>) -> Option<Found> {
        let into = self.other_end(out)?;
        let seen = &self.nodes[into.0];
        match seen.links.get(&into.1)?.master {
            0 if seen.forwards => self.through(into, None, target, passed),
            0 => (into.0 == target).then_some((into, vec![])),
            bridge => self.through(into, Some(bridge), target, passed),
        }
    }

    /// On from where a frame came in: by a bridge, which is the entry itself when its own node sends, or by a program (none).
    /// What a program does with a frame nobody can ask the kernel; what it can do is to hand it to any of its other links.
    fn through(
        &self,
        entry: Place,
        bridge: Option<u32>,
        target: usize,
        passed: &mut BTreeSet<Place>,
    ) -> Option<Found> {
        let (node, ingress) = entry;
        // No interface has the index 0: it stands for the program.
        if !passed.insert((node, bridge.unwrap_or(0))) {
            return None;
        }
        let seen = &self.nodes[node];
        let role = bridge.map_or(NodeRole::Forwarder, |_| NodeRole::Bridge);
        let hop = |egress: u32| self.hop(node, role, [Some(ingress), Some(egress), bridge]);
        // The bridge's own node may be the target: the frame goes up into its IP stack.
        let own = bridge.filter(|own| seen.addresses.iter().any(|(index, _)| index == own));
        if let Some(own) = own.filter(|own| node == target && ingress != *own) {
            return Some(((node, own), vec![hop(own)?]));
        }
        let leads_on = |link: &&LinkState| match bridge {
            Some(bridge) => link.master == bridge && link.port_state.is_none_or(|state| state == 3),
            None => link.kind == "veth",
        };
        for port in seen.links.values().filter(|link| link.index != ingress).filter(leads_on) {
            if let Some((found, mut way)) = self.over_link((node, port.index), target, passed) {
                way.push(hop(port.index)?);
                return Some((found, way));
            }
        }
        None
    }

    /// The other end of a veth: each end names the other's index, and indexes of a lab are different.
    fn other_end(&self, (node, index): Place) -> Option<Place> {
        let link = self.nodes[node].links.get(&index)?;
        if link.peer == 0 || link.kind != "veth" {
            return None;
        }
        self.nodes.iter().enumerate().find_map(|(number, seen)| {
            let peer = seen.links.get(&link.peer)?;
            (peer.kind == "veth" && peer.peer == index).then_some((number, peer.index))
        })
    }
}

/// A lab's link-local addresses end with the index of their interface.
fn is_link_local_of(seen: &Seen, address: IpAddr) -> bool {
    seen.links.keys().any(|&index| crate::netlink::link_local(index).address == address)
}

/// The way with the fewest links as the topology says: through bridges, and through nodes that forward.
fn shortest(topology: &Topology, from: &str, to: &str) -> Option<Vec<Hop>> {
    let hop = |node: &str, role, ingress: Option<&str>, egress: Option<&str>, bridge: Option<&str>| Hop {
        node: node.into(),
        role,
        ingress: ingress.map(Into::into),
        egress: egress.map(Into::into),
        bridge: bridge.map(Into::into),
    };
    let mut queue = VecDeque::new();
    let mut visited: BTreeSet<(String, String)> = BTreeSet::new();
    for end in topology.ends().filter(|end| end.node == from && topology.bridge_of(from, &end.name).is_none())
    {
        visited.insert((end.node.clone(), end.name.clone()));
        queue.push_back((end, vec![hop(from, NodeRole::Sender, None, Some(&end.name), None)]));
    }
    while let Some((out, way)) = queue.pop_front() {
        let Some(into) = topology.peer(&out.node, &out.name) else { continue };
        let bridge = topology.bridge_of(&into.node, &into.name);
        if into.node == to && bridge.is_none_or(|bridge| !bridge.interface.addresses.is_empty()) {
            let mut way = way;
            way.push(hop(to, NodeRole::Receiver, Some(&into.name), None, None));
            return Some(way);
        }
        let router = topology.node(&into.node).is_some_and(|node| node.router);
        let (role, bridge_name) = match bridge {
            Some(bridge) => (NodeRole::Bridge, Some(bridge.interface.name.as_str())),
            None if topology.forwarder(&into.node).is_some() => (NodeRole::Forwarder, None),
            None if router => (NodeRole::Router, None),
            None => continue,
        };
        for next in topology.ends().filter(|end| end.node == into.node && end.name != into.name) {
            let same_bridge = topology.bridge_of(&next.node, &next.name).map(|b| b.interface.name.as_str());
            if same_bridge == bridge_name && visited.insert((next.node.clone(), next.name.clone())) {
                let mut way = way.clone();
                way.push(hop(&into.node, role, Some(&into.name), Some(&next.name), bridge_name));
                queue.push_back((next, way));
            }
        }
    }
    None
}

/// Whether any chain of links leads from one node to the other, whatever the nodes between them do.
fn is_linked(topology: &Topology, from: &str, to: &str) -> bool {
    let mut known = BTreeSet::from([from]);
    loop {
        let of_known =
            |ends: &&super::topology::LinkSpec| ends.ends.iter().any(|end| known.contains(&*end.node));
        let more: Vec<&str> = topology
            .links
            .iter()
            .filter(of_known)
            .flat_map(|link| &link.ends)
            .map(|end| &*end.node)
            .collect();
        let before = known.len();
        known.extend(more);
        if known.contains(to) || known.len() == before {
            return known.contains(to);
        }
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
