//! Routes and policy rules of a node: added, and compared with the topology.

use record::Result;

use super::node::{Node, lacking, refused};
use super::topology::{PolicyRule, PolicySpec, RouteAction, RouteSpec, StaticRoute, Topology};
use crate::netlink::{Netlink, Refusal};

/// Gives a node its routes of one version of IP.
pub(super) fn routes<const VERSION: u8>(
    topology: &Topology,
    _: &[Node],
    node: &Node,
    netlink: &mut Netlink,
) -> Result<()> {
    let is_mine = |one: &&RouteSpec| one.node == node.name() && one.route.to.version() == VERSION;
    let mut mine = topology.routes.iter().filter(is_mine);
    mine.try_for_each(|RouteSpec { node, route }| {
        let added = netlink.add_route(route);
        added.map_err(|refusal| refused(&format!("route on {node} to {}", route.to), refusal))
    })
}

/// Gives a node its policy rules.
pub(super) fn policies(topology: &Topology, _: &[Node], node: &Node, netlink: &mut Netlink) -> Result<()> {
    policies_of(topology, node.name()).iter().try_for_each(|(version, rule)| {
        let added = netlink.add_policy(*version, rule);
        let part = "policy rules (CONFIG_IP_MULTIPLE_TABLES)";
        added.map_err(|refusal| lacking(&format!("policy on {} {rule}", node.name()), refusal, part))
    })
}

/// The policy rules of a node, each with its version of IP.
fn policies_of(topology: &Topology, node: &str) -> Vec<(u8, PolicyRule)> {
    let six = topology.has_family(6);
    let each = |PolicySpec { rule, .. }: &PolicySpec| match rule.version() {
        Some(version) => vec![(version, rule.clone())],
        None if six => vec![(4, rule.clone()), (6, rule.clone())],
        None => vec![(4, rule.clone())],
    };
    topology.policies.iter().filter(|known| known.node == node).flat_map(each).collect()
}

/// What differs from the topology in the routing of a node, one clause each.
pub(super) fn differences(
    topology: &Topology,
    node: &str,
    netlink: &mut Netlink,
) -> Result<Vec<String>, Refusal> {
    let routes = topology.routes.iter().filter(|known| known.node == node).map(|known| sorted(&known.route));
    let now: Vec<StaticRoute> = netlink.static_routes()?.iter().map(sorted).collect();
    let mut found = unequal("route", &routes.collect::<Vec<_>>(), &now);
    let now = netlink.policies()?;
    for version in [4, 6] {
        let of_it = |rules: &[(u8, PolicyRule)]| -> Vec<PolicyRule> {
            rules.iter().filter(|(known, _)| *known == version).map(|(_, rule)| rule.clone()).collect()
        };
        let what = format!("IPv{version} policy");
        found.extend(unequal(&what, &of_it(&policies_of(topology, node)), &of_it(&now)));
    }
    Ok(found)
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
