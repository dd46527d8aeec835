//! Nodes that are virtual machines: what a topology says of them, and what such a topology can be.
//!
//! **What.** [`MachineSpec`] holds words for `pathlab vm`, which carries them out; here it is checked that machines with links between them are all that there is. What else
//! is said of a node, the machine makes itself ([`super::become_node`]).
//!
//! **Why no namespaces beside them.** All that looks at a lab looks at one kernel. Machines are hosts of their own, and what is between two of them is one link.
//!
//! **Price.** A value that no machine can have is found when that is started.

use std::fmt;
use std::path::Path;

use record::unit::many;
use record::{Problem, Result};

use super::topology::{InterfaceSpec, LinkSpec, NodeSpec, Prefix, Topology, UpperSpec};

/// What can be said of a machine: the flags of `pathlab vm` of the same names.
pub const WORDS: [&str; 6] = ["nic", "kernel", "modules", "cpus", "memory", "accel"];
/// Those that are files, whose names are relative to the topology's folder.
const FILES: [&str; 2] = ["kernel", "modules"];

/// What is said of a node that is a machine: words of [`WORDS`] with their values, each once, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineSpec(pub Vec<(&'static str, String)>);

impl MachineSpec {
    /// Its files are in that folder, unless they are named from the root.
    pub(super) fn find_files(&mut self, folder: &Path) {
        let files = self.0.iter_mut().filter(|(word, _)| FILES.contains(word));
        files.for_each(|(_, value)| *value = folder.join(&*value).display().to_string());
    }
}

impl fmt::Display for MachineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(word, value)| write!(f, " {word} {value}"))
    }
}

/// A node that is a machine, as it is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineNode<'a> {
    /// Its name.
    pub node: &'a str,
    /// What is said of it.
    pub spec: &'a MachineSpec,
    /// Its ends of links, each with the link's place in the topology.
    pub cards: Vec<(usize, &'a InterfaceSpec)>,
}

impl Topology {
    /// The node of a machine, as it is started; none: it is a namespace.
    pub fn machine(&self, node: &str) -> Option<MachineNode<'_>> {
        let found = self.node(node)?;
        let ends = self.links.iter().enumerate();
        let ends = ends.flat_map(|(link, LinkSpec { ends })| ends.iter().map(move |end| (link, end)));
        Some(MachineNode {
            node: &found.name,
            spec: found.machine.as_ref()?,
            cards: ends.filter(|(_, end)| end.node == node).collect(),
        })
    }

    /// The addresses of a node: those at a card and at what is over it first.
    pub fn addresses_by(&self, card: &InterfaceSpec) -> Vec<Prefix> {
        let mut over: Vec<&InterfaceSpec> = vec![];
        let mut names = vec![card.name.as_str()];
        while let Some(name) = names.pop() {
            let is_over = |one: &&InterfaceSpec| {
                let bridge = self.bridge(&one.node, &one.name);
                let upper = self.upper(&one.node, &one.name).and_then(|upper| upper.over.as_ref());
                bridge.is_some_and(|bridge| bridge.ports.iter().any(|port| port == name))
                    || upper.is_some_and(|(node, lower)| *node == card.node && lower == name)
            };
            over.extend(self.interfaces(&card.node).filter(|one| one.name == name));
            let above: Vec<&InterfaceSpec> = self.interfaces(&card.node).filter(is_over).collect();
            // A circle, which a topology is refused for, ends here, too.
            names.extend(above.into_iter().filter(|one| !over.contains(one)).map(|one| one.name.as_str()));
        }
        let rest = self.interfaces(&card.node).filter(|one| !over.contains(one));
        over.iter().copied().chain(rest).flat_map(|one| one.addresses.iter().copied()).collect()
    }

    /// The shortest way from one machine to another over links: the nodes behind the first one in turn, each with its card that looks back; none: there is no way.
    pub fn machines_to(&self, from: &str, to: &str) -> Option<Vec<(&str, &InterfaceSpec)>> {
        // Each with the one that it was found from.
        let mut found: Vec<(&str, Option<(usize, &InterfaceSpec)>)> =
            vec![(self.node(from)?.name.as_str(), None)];
        let mut next = 0;
        while let Some(&(node, _)) = found.get(next).filter(|(node, _)| *node != to) {
            for LinkSpec { ends: [a, b] } in &self.links {
                for (here, there) in [(a, b), (b, a)] {
                    if here.node == node && !found.iter().any(|(known, _)| *known == there.node) {
                        found.push((&there.node, Some((next, there))));
                    }
                }
            }
            next += 1;
        }
        let (mut way, mut at) = (vec![], next);
        while let Some((before, card)) = found.get(at)?.1 {
            way.push((found[at].0, card));
            at = before;
        }
        way.reverse();
        Some(way)
    }

    /// Whether its nodes are machines: all of them are, or none.
    pub fn has_machines(&self) -> bool {
        self.nodes.iter().any(|node| node.machine.is_some())
    }
}

/// A topology with machines is machines with links between them, each with an address.
pub(super) fn check(topology: &Topology) -> Result<()> {
    let refuse = |what: String, help: &str| Err(Problem::input(what).help(help));
    if !topology.has_machines() {
        return Ok(());
    }
    let Topology { nodes, links, uppers, .. } = topology;
    if let Some(other) = nodes.iter().find(|node| node.machine.is_none()) {
        let what =
            format!("node '{}' is a namespace of this host, and others are virtual machines", other.name);
        return refuse(what, "machines are linked to machines: say 'vm' of all nodes, or of none");
    }
    let joins = |LinkSpec { ends: [a, b] }: &LinkSpec| a.node != b.node;
    if nodes.len() < 2 || !links.iter().all(joins) {
        let counts = [many(nodes.len() as u64, "node"), many(links.len() as u64, "link")].join(" and ");
        return refuse(
            format!("with virtual machines it has {counts}"),
            "declare at least two machines and links between them; labs fit into one machine, too ('pathlab vm run')",
        );
    }
    let first = &nodes[0].name;
    if let Some(alone) = nodes.iter().find(|node| topology.machines_to(first, &node.name).is_none()) {
        let what = format!("no link leads from '{first}' to '{}'", alone.name);
        return refuse(what, "link all virtual machines with each other");
    }
    let is_apart = |upper: &&UpperSpec| {
        let own = &upper.interface.node;
        upper.over.as_ref().is_some_and(|(node, _)| node != own)
    };
    if let Some(upper) = uppers.iter().find(is_apart) {
        let what = format!("{} is over an interface of another virtual machine", upper.interface.place());
        return refuse(what, "say 'over' an interface of its own node");
    }
    if let Some(end) = topology.ends().find(|end| end.queues.is_some()) {
        let what = format!("'queues' belong to a veth, and {} is a card of a virtual machine", end.place());
        return refuse(what, "say 'set a/eth0:channels.combined=2' in the plan");
    }
    let is_silent = |node: &&NodeSpec| topology.interfaces(&node.name).all(|one| one.addresses.is_empty());
    if let Some(node) = nodes.iter().find(is_silent) {
        let what = format!("node '{}' has no address", node.name);
        return refuse(what, "each virtual machine needs one to be reached");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "vm a nic virtio cpus 1\nvm b kernel k/vmlinuz memory 512Mi\nlink a:eth0 -- b:eth0\n\
        interface a:eth0 address 10.0.0.1/24 fd00::1/64\ninterface b:eth0 address 10.0.0.2/24\n";

    #[test]
    fn two_machines_are_read_and_written() {
        let topology = Topology::parse(TWO, "x.lab").unwrap();
        assert!(topology.has_machines());
        let a = topology.machine("a").unwrap();
        assert_eq!(a.spec.0, [("nic", "virtio".to_owned()), ("cpus", "1".to_owned())]);
        let cards: Vec<_> =
            a.cards.iter().map(|(link, card)| (*link, card.name.as_str(), card.addresses.len())).collect();
        assert_eq!(cards, [(0, "eth0", 2)]);
        let text = topology.to_string();
        assert!(text.starts_with("vm a nic virtio cpus 1\nvm b kernel k/vmlinuz memory 512Mi\n"), "{text}");
        assert_eq!(Topology::parse(&text, "x.lab").unwrap(), topology);
        assert!(Topology::load("pair").unwrap().machine("a").is_none());
    }

    const LINE: &str = "vm a\nvm r\nvm b\nvm c\nlink b:eth0 -- r:eth1\nlink a:eth0 -- r:eth0\nlink r:eth2 -- c:eth0\n\
        interface a:eth0 address 10.0.1.2/24\ninterface r:eth0 address 10.0.1.1/24\n\
        interface r:eth1 address 10.0.2.1/24\ninterface b:eth0 address 10.0.2.2/24\n\
        interface r:eth2 address 10.0.3.1/24\ninterface c:eth0 address 10.0.3.2/24\n\
        route on a default via 10.0.1.1\nroute on b default via 10.0.2.1\nsysctl on r net.ipv4.ip_forward=1\n";

    #[test]
    fn machines_stand_in_the_order_of_the_way() {
        let topology = Topology::parse(LINE, "x.lab").unwrap();
        let r = topology.machine("r").unwrap();
        let cards: Vec<_> = r.cards.iter().map(|(link, card)| (*link, card.name.as_str())).collect();
        assert_eq!(cards, [(0, "eth1"), (1, "eth0"), (2, "eth2")]);
        let way = |from, to| -> Vec<(&str, String)> {
            let way = topology.machines_to(from, to).unwrap();
            way.into_iter().map(|(node, card)| (node, card.place())).collect()
        };
        assert_eq!(way("b", "a"), [("r", "r:eth1".to_owned()), ("a", "a:eth0".to_owned())]);
        assert_eq!(way("a", "c"), [("r", "r:eth0".to_owned()), ("c", "c:eth0".to_owned())]);
        assert_eq!((way("a", "a"), topology.machines_to("a", "x")), (vec![], None));
        assert_eq!(Topology::parse(&topology.to_string(), "x.lab").unwrap(), topology);
    }

    #[test]
    fn a_machine_is_reached_at_what_is_over_its_card() {
        let text = "vm a\nvm b\nlink a:eth0 -- b:eth0\nlink a:eth1 -- b:eth1\nlink a:lan -- b:lan\n\
            bond bond0 on a ports eth0 eth1 mode balance-rr\nvlan bond0.5 on a over bond0 id 5\n\
            interface a:bond0.5 address 10.0.5.1/24\ninterface a:lan address 10.0.9.1/24 mtu 9000\n\
            interface b:eth0 address 10.0.5.2/24\npolicy on a from 10.0.5.0/24 table 100 priority 1000\n\
            route on a default via 10.0.5.2 table 100\nroute on a 10.7.0.0/16 blackhole\n";
        let topology = Topology::parse(text, "x.lab").unwrap();
        let by = |card: usize| -> Vec<String> {
            let card = topology.machine("a").unwrap().cards[card].1;
            topology.addresses_by(card).iter().map(ToString::to_string).collect()
        };
        assert_eq!(by(1), ["10.0.5.1/24", "10.0.9.1/24"]);
        assert_eq!(by(2), ["10.0.9.1/24", "10.0.5.1/24"]);
        let circle = "vm a\nvm b\nlink a:eth0 -- b:eth0\nbridge br0 on a ports eth0\nvlan v1 on a over br0 id 1\n\
            bridge br1 on a ports v1\ninterface a:br1 address 10.0.5.1/24\ninterface b:eth0 address 10.0.5.2/24\n";
        let mut circle = Topology::parse(circle, "x.lab").unwrap();
        circle.bridges[0].ports.push("br1".into());
        assert_eq!(circle.addresses_by(circle.machine("a").unwrap().cards[0].1).len(), 1);
        assert_eq!(Topology::parse(&topology.to_string(), "x.lab").unwrap(), topology);
    }

    #[test]
    fn files_are_in_the_folder_of_the_topology() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("two.lab");
        std::fs::write(&file, TWO.replace("cpus 1", "modules /lib/x")).unwrap();
        let topology = Topology::load(&file.display().to_string()).unwrap();
        let value = |node: &str, at: usize| topology.machine(node).unwrap().spec.0[at].1.clone();
        assert_eq!(value("b", 0), folder.path().join("k/vmlinuz").display().to_string());
        assert_eq!(value("a", 1), "/lib/x");
    }

    #[test]
    fn what_machines_cannot_be_is_one_sentence() {
        for (text, said) in [
            ("vm a nic\n", "x.lab:1:9: "),
            ("vm a speed 3\n", "x.lab:1:6: unknown option 'speed'"),
            ("vm a nic igb nic igb\n", "x.lab:1:14: 'nic' is said twice"),
            ("vm a\nvm a\n", "there is already a node 'a'"),
            ("vm a\nnode b\nlink a:x -- b:x\n", "node 'b' is a namespace of this host"),
            ("vm a\nvm b\n", "no link leads from 'a' to 'b'"),
            ("vm a\nvm b\nvm c\nlink a:x -- b:x\n", "no link leads from 'a' to 'c'"),
            ("vm a\n", "it has 1 node and 0 links"),
            ("vm a\nvm b\nlink a:x -- a:y\n", "it has 2 nodes and 1 link"),
            ("vm a\nvm b\nlink a:x -- b:x\n", "node 'a' has no address"),
        ] {
            let refused = Topology::parse(text, "x.lab").unwrap_err().to_string();
            assert!(refused.contains(said), "{text}: {refused}");
        }
        for (more, said) in [
            ("interface a:eth0 queues 2\n", "'queues' belong to a veth, and a:eth0 is a card"),
            ("macvlan m0 on a over b:eth0\n", "a:m0 is over an interface of another virtual machine"),
        ] {
            let refused = Topology::parse(&format!("{TWO}{more}"), "x.lab").unwrap_err().to_string();
            assert!(refused.contains(said), "{more}: {refused}");
        }
    }
}
