//! Network cards of this machine that are linked to each other, as the links of a lab.
//!
//! **What.** `PATHLAB_CABLES=eth1:eth2,eth3:eth4` names pairs of interfaces of this namespace with a cable between them. A lab that is built
//! then has no veth: each of its links takes the next free pair, in the order of the file, and its ends are moved into the nodes.
//!
//! **Why.** The same topology over a real driver: a card has rings, interrupts, queues and an offload engine, a veth has none of them.
//!
//! **Price.** A card that is on is not taken. When the lab goes, each card is moved back under its own name, with its own address, MTU, queue
//! length and offloads, and stays off.

use std::collections::BTreeMap;
use std::path::PathBuf;

use record::unit::many;
use record::{Problem, Result};

use super::node::{Node, refused};
use super::step::{CardState, LabStep};
use super::topology::{InterfaceSpec, LinkSpec, Topology};
use crate::netlink::{LinkState, Netlink};

/// The variable that names the pairs.
pub const CABLES: &str = "PATHLAB_CABLES";

/// Both ends of a cable as they are before the lab is built.
pub(super) type Cable = [LinkState; 2];

/// The cable of each link of the topology; none when this machine names none.
///
/// # Errors
/// Input: the variable cannot be read, or asks for what a card cannot do. Host: there are not enough free pairs.
pub(super) fn choose(topology: &Topology) -> Result<Vec<Cable>> {
    let Some(text) = std::env::var(CABLES).ok().filter(|text| !text.is_empty()) else { return Ok(vec![]) };
    let pairs = parse(&text)
        .map_err(|what| Problem::input(what).at(CABLES).help("write for example eth1:eth2,eth3:eth4"))?;
    let links = Netlink::open().links().map_err(|refusal| {
        Problem::host(format!("cannot ask for the interfaces of this machine: {refusal}"))
    })?;
    let links: BTreeMap<&str, &LinkState> = links.iter().map(|link| (link.name.as_str(), link)).collect();
    if let Some(end) = topology.ends().find(|end| end.queues.is_some()) {
        let help = "leave it out, and set the channels of the card: pathlab tune set IF channels.combined=N";
        return Err(Problem::input("'queues' belong to a veth, and this link is a cable")
            .at(end.place())
            .help(help));
    }
    let (mut free, mut taken): (Vec<Cable>, Vec<String>) = (vec![], vec![]);
    for [a, b] in &pairs {
        match (card(&links, a), card(&links, b)) {
            (Ok(a), Ok(b)) => free.push([a, b]),
            (Err(why), _) | (_, Err(why)) => taken.push(why),
        }
    }
    let (wanted, there) = (topology.links.len(), free.len());
    if wanted > there {
        let why = if taken.is_empty() { String::new() } else { format!(": {}", taken.join(", ")) };
        let (links, all) = (many(wanted as u64, "link"), pairs.len());
        let what =
            format!("the topology has {links}, and {there} of this machine's {all} cables are free{why}");
        return Err(Problem::host(what).at(CABLES).help("take a smaller topology, or more cables"));
    }
    Ok(free.into_iter().take(wanted).collect())
}

/// A card that can be taken, or why it cannot.
fn card(links: &BTreeMap<&str, &LinkState>, name: &str) -> Result<LinkState, String> {
    match links.get(name) {
        None => Err(format!("{name} is not here")),
        Some(link) if link.up => Err(format!("{name} is switched on")),
        Some(link) => Ok((*link).clone()),
    }
}

/// `A:B,C:D`.
fn parse(text: &str) -> Result<Vec<[String; 2]>, String> {
    let mut seen: Vec<String> = vec![];
    let mut pair = |part: &str| {
        let (a, b) = part.split_once(':').ok_or_else(|| format!("'{part}' is not a pair of interfaces"))?;
        for name in [a, b] {
            if name.is_empty() || seen.iter().any(|known| known == name) {
                return Err(format!("'{part}' names an interface twice, or none"));
            }
            seen.push(name.to_owned());
        }
        Ok([a.to_owned(), b.to_owned()])
    };
    text.split(',').map(|part| pair(part.trim())).collect()
}

/// The ends of the links with their cards.
fn ends<'a>(
    topology: &'a Topology,
    cables: &'a [Cable],
) -> impl Iterator<Item = (&'a InterfaceSpec, &'a LinkState)> {
    let links = topology.links.iter().zip(cables);
    links.flat_map(|(LinkSpec { ends }, cards)| ends.iter().zip(cards))
}

/// What moves each card back. `handle` is the file that a node's namespace is pinned to.
pub(super) fn steps(
    topology: &Topology,
    nodes: &[Node],
    cables: &[Cable],
    handle: impl Fn(&Node) -> PathBuf,
) -> Vec<LabStep> {
    let step = |(end, card): (&InterfaceSpec, &LinkState)| {
        let node = Node::named(nodes, &end.node)?;
        let offloads = Netlink::open().offloads(card.index).unwrap_or_default();
        let card = CardState {
            name: card.name.clone(),
            address: card.address,
            mtu: card.mtu,
            tx_queue_len: card.tx_queue_len,
            offloads: offloads.into_iter().map(|(offload, on)| (offload.word().to_owned(), on)).collect(),
        };
        let index = topology.index_of(&end.node, &end.name)?;
        Some(LabStep::Card { file: handle(node), netns: node.inode(), index, card })
    };
    ends(topology, cables).filter_map(step).collect()
}

/// Moves the cards into the nodes.
///
/// # Errors
/// A host problem when the kernel refuses.
pub(super) fn lay(topology: &Topology, nodes: &[Node], cables: &[Cable]) -> Result<()> {
    for (end, card) in ends(topology, cables) {
        let node = Node::named(nodes, &end.node)
            .ok_or_else(|| Problem::host("the link's node is gone").at(end.place()))?;
        let index = topology.index_of(&end.node, &end.name).unwrap_or(0);
        let moved = Netlink::open().move_link(card.index, &end.link(index), node.netns());
        moved.map_err(|refusal| refused(&format!("card {} as {}", card.name, end.place()), refusal))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_and_each_interface_is_named_once() {
        let pairs = parse("eth1:eth2, eth3:eth4").unwrap();
        assert_eq!(pairs, [["eth1", "eth2"], ["eth3", "eth4"]].map(|pair| pair.map(str::to_owned)));
        for wrong in ["eth1", "eth1:", "eth1:eth1", "a:b,b:c", ":", "a:b,"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
