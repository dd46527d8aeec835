//! A node that is a virtual machine: what a topology says of it, and what such a topology can be.
//!
//! **What.** [`MachineSpec`] holds words for `pathlab vm`, which carries them out; here it is checked that the two ends of one link are all that there is.
//!
//! **Why no more than that.** All that looks at a lab looks at one kernel. Two machines are two hosts, and what is between two hosts is one link.
//!
//! **Price.** A value that no machine can have is found before the two are started, and not when the file is read.

use std::fmt;
use std::path::Path;

use record::unit::many;
use record::{Problem, Result};

use super::topology::{InterfaceSpec, LinkSpec, Topology};

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
pub struct MachineEnd<'a> {
    /// What is said of it.
    pub machine: &'a MachineSpec,
    /// Its end of the link.
    pub interface: &'a InterfaceSpec,
}

impl Topology {
    /// The node of a machine, as it is started; none: it is a namespace.
    pub fn machine(&self, node: &str) -> Option<MachineEnd<'_>> {
        let machine = self.node(node)?.machine.as_ref()?;
        Some(MachineEnd { machine, interface: self.ends().find(|end| end.node == node)? })
    }

    /// Whether its nodes are machines: all of them are, or none.
    pub fn has_machines(&self) -> bool {
        self.nodes.iter().any(|node| node.machine.is_some())
    }
}

/// A topology with machines is one link between two of them, whose ends have addresses and nothing else.
pub(super) fn check(topology: &Topology) -> Result<()> {
    let refuse = |what: String, help: &str| Err(Problem::input(what).help(help));
    if !topology.has_machines() {
        return Ok(());
    }
    let Topology { nodes, links, bridges, uppers, routes, policies, sysctls } = topology;
    if let Some(other) = nodes.iter().find(|node| node.machine.is_none()) {
        let what =
            format!("node '{}' is a namespace of this host, and others are virtual machines", other.name);
        return refuse(what, "machines are linked to machines: say 'vm' of both nodes, or of none");
    }
    let joins = |LinkSpec { ends: [a, b] }: &LinkSpec| a.node != b.node;
    if nodes.len() != 2 || links.len() != 1 || !links.iter().all(joins) {
        let counts = [many(nodes.len() as u64, "node"), many(links.len() as u64, "link")].join(" and ");
        return refuse(
            format!("with virtual machines it has {counts}"),
            "declare two machines and one link between them; more nodes fit into one machine ('pathlab vm run')",
        );
    }
    let more = [
        ("bridge or bond", bridges.is_empty()),
        ("interface over another", uppers.is_empty()),
        ("route", routes.is_empty()),
        ("policy rule", policies.is_empty()),
        ("sysctl", sysctls.is_empty()),
    ];
    if let Some((what, _)) = more.iter().find(|(_, none)| !none) {
        let what = format!("a virtual machine has no {what} in a topology");
        return refuse(what, "say knobs in the plan, as 'set a/net.ipv4.tcp_congestion_control=reno'");
    }
    for end in topology.ends() {
        let plain =
            InterfaceSpec { addresses: end.addresses.clone(), ..InterfaceSpec::new(&end.node, &end.name) };
        if *end != plain {
            let what =
                format!("{} is a card of a virtual machine, of which only addresses are said", end.place());
            return refuse(what, "say the rest in the plan, as 'set a/eth0:mtu=9000'");
        }
        if end.addresses.is_empty() {
            return refuse(format!("{} has no address", end.place()), "each machine needs one to be reached");
        }
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
        assert_eq!(a.machine.0, [("nic", "virtio".to_owned()), ("cpus", "1".to_owned())]);
        assert_eq!((a.interface.name.as_str(), a.interface.addresses.len()), ("eth0", 2));
        let text = topology.to_string();
        assert!(text.starts_with("vm a nic virtio cpus 1\nvm b kernel k/vmlinuz memory 512Mi\n"), "{text}");
        assert_eq!(Topology::parse(&text, "x.lab").unwrap(), topology);
        assert!(Topology::load("pair").unwrap().machine("a").is_none());
    }

    #[test]
    fn files_are_in_the_folder_of_the_topology() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("two.lab");
        std::fs::write(&file, TWO.replace("cpus 1", "modules /lib/x")).unwrap();
        let topology = Topology::load(&file.display().to_string()).unwrap();
        let value = |node: &str, at: usize| topology.machine(node).unwrap().machine.0[at].1.clone();
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
            ("vm a\nvm b\n", "it has 2 nodes and 0 links"),
            ("vm a\nvm b\nvm c\nlink a:x -- b:x\n", "it has 3 nodes and 1 link"),
            ("vm a\nvm b\nlink a:x -- a:y\n", "it has 2 nodes and 1 link"),
            ("vm a\nvm b\nlink a:x -- b:x\n", "a:x has no address"),
        ] {
            let refused = Topology::parse(text, "x.lab").unwrap_err().to_string();
            assert!(refused.contains(said), "{text}: {refused}");
        }
        for (more, said) in [
            ("interface a:eth0 mtu 9000\n", "a:eth0 is a card of a virtual machine"),
            ("sysctl on a net.ipv4.ip_forward=1\n", "no sysctl in a topology"),
            ("route on a default via 10.0.0.2\n", "no route in a topology"),
            ("bridge br0 on a ports eth0\n", "a:eth0 is a port of a bridge"),
        ] {
            let refused = Topology::parse(&format!("{TWO}{more}"), "x.lab").unwrap_err().to_string();
            assert!(refused.contains(said), "{more}: {refused}");
        }
    }
}
