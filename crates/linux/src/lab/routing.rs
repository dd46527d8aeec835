//! Routes of a node: added, and compared with the topology.

use record::Result;
use serde::{Deserialize, Serialize};

use super::build::refused;
use super::live::Lab;
use super::node::Node;
use super::topology::{RouteAction, RouteSpec, StaticRoute, Topology};
use crate::netlink::{Netlink, Refusal};

/// One node's routing as it is, against its topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutingCheck {
    /// The node.
    pub node: String,
    /// What differs from the topology, one clause each; empty if nothing does.
    pub differences: Vec<String>,
}

/// Gives a node its routes.
pub(super) fn routes(topology: &Topology, _: &[Node], node: &Node, netlink: &mut Netlink) -> Result<()> {
    let mut mine = topology.routes.iter().filter(|route| route.node == node.name());
    mine.try_for_each(|RouteSpec { node, route }| {
        let added = netlink.add_route(route);
        added.map_err(|refusal| refused(&format!("route on {node} to {}", route.to), refusal))
    })
}

impl Lab {
    /// Compares the routes of every node with the topology. What the kernel set by itself does not count.
    ///
    /// # Errors
    /// A host problem when a node's kernel cannot be asked.
    pub fn check_routing(&self) -> Result<Vec<RoutingCheck>> {
        let check = |node: &Node| {
            let differences = node.ask(|netlink| differences(self.topology(), node.name(), netlink))?;
            Ok(RoutingCheck { node: node.name().into(), differences })
        };
        self.nodes().iter().map(check).collect()
    }
}

fn differences(topology: &Topology, node: &str, netlink: &mut Netlink) -> Result<Vec<String>, Refusal> {
    let routes = topology.routes.iter().filter(|known| known.node == node).map(|known| sorted(&known.route));
    let now: Vec<StaticRoute> = netlink.static_routes()?.iter().map(sorted).collect();
    Ok(unequal("route", &routes.collect::<Vec<_>>(), &now))
}

/// The kernel may tell the next hops of a route in another order.
fn sorted(route: &StaticRoute) -> StaticRoute {
    let mut route = route.clone();
    if let RouteAction::Via(hops) = &mut route.action {
        hops.sort_unstable();
    }
    route
}

/// What is missing, then what was added.
fn unequal<T: PartialEq + ToString>(what: &str, wanted: &[T], now: &[T]) -> Vec<String> {
    let clauses = |some: &[T], others: &[T], how: &str| -> Vec<String> {
        let only = some.iter().filter(|one| !others.contains(one));
        only.map(|one| format!("{what} {} {how}", one.to_string())).collect()
    };
    [clauses(wanted, now, "is missing"), clauses(now, wanted, "was added")].concat()
}
