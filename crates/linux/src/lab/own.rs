//! A machine that is a node of a topology by itself: its cards are the node's ends of links.
//!
//! **What.** [`become_node`] gives the cards the names, numbers and settings of the ends, and makes all else that is said of the node, in the namespace
//! of the calling thread, by the steps that build a namespace of a lab ([`super::build`]).
//!
//! **Why.** A node is the same whether it is a namespace of one kernel or a kernel of its own.
//!
//! **Price.** Nothing is put back: the machine ends with its command. Nobody waits for the machines at the other ends, which may start later.

use record::{Problem, Result};
use std::os::fd::AsFd;

use super::build;
use super::node::{Node, refused};
use super::topology::{InterfaceSpec, Topology};
use crate::netlink::{LinkState, Netlink};
use crate::sys::netns;

/// Makes this machine the node of that name; `cards` are the names of its ends of links with the numbers that the cards have now.
///
/// # Errors
/// Input: there is no such node, or an end has no card. Host: the kernel refuses something.
pub fn become_node(topology: &Topology, name: &str, cards: &[(String, u32)]) -> Result<()> {
    let none = |what: String| Problem::input(what).at(format!("node {name}"));
    let spec = topology.node(name).ok_or_else(|| none("the topology has no such node".into()))?;
    let lost = |error: std::io::Error| Problem::host(format!("no namespace: {error}"));
    let node = Node::new(&spec.name, netns::current().map_err(lost)?, vec![]).map_err(lost)?;
    build::prepare_here(topology, &node)?;
    let aside = Node::new(&spec.name, netns::create().map_err(lost)?, vec![]).map_err(lost)?;
    let ends: Vec<&InterfaceSpec> = topology.ends().filter(|end| end.node == name).collect();
    let mut moved = vec![];
    for end in ends {
        let card = cards.iter().find(|(card, _)| *card == end.name);
        let (_, index) = card.ok_or_else(|| none(format!("{} has no card", end.name)))?;
        moved.push((end, *index));
    }
    // Names and numbers are free when all cards are away, and with them what drivers made when they were loaded, as 'bond0'.
    for (end, index) in &moved {
        let gone = Netlink::open().move_link(*index, &end.link(0), aside.netns().as_fd());
        gone.map_err(|refusal| refused(&format!("interface {}", end.place()), refusal))?;
    }
    free_names(topology, &node)?;
    for (end, _) in &moved {
        let index = topology.index_of(name, &end.name).unwrap_or(0);
        let back = |netlink: &mut Netlink| {
            let links = netlink.links()?;
            let now = links.iter().find(|link| link.name == end.name).map_or(0, |link| link.index);
            netlink.move_link(now, &end.link(index), node.netns().as_fd())
        };
        aside.ask(back)?;
    }
    build::furnish_here(topology, &node)
}

/// Deletes interfaces that have names or numbers of the node's.
fn free_names(topology: &Topology, node: &Node) -> Result<()> {
    let links = node.links()?;
    let is_taken = |link: &&LinkState| {
        let mut own = topology.interfaces(node.name());
        own.any(|one| one.name == link.name || topology.index_of(&one.node, &one.name) == Some(link.index))
    };
    let mut taken = links.iter().filter(is_taken);
    taken.try_for_each(|link| node.ask(|netlink| netlink.delete(link.index)))
}
