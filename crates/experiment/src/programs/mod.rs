//! Labs with programs in their nodes: the switch, the smallest forwarder, Open vSwitch.
//!
//! **What.** [`up`] builds a lab from any topology. What the topology says of forwarders is checked first (rules are read,
//! Open vSwitch is found), then everything is built, each program is started in its node, and the lab counts as up
//! when every program forwards and has its rules.
//!
//! **Why this very program.** What is measured is what is installed: a node of kind `switch` runs the file that is running
//! now, as `pathlab switch`, not a thread inside the one who measures.
//!
//! **Price.** Building waits for the slowest program: some 100 ms for Open vSwitch, less for ours.

mod null;
mod ovs;
mod sample;
mod start;
mod switch;

use linux::lab::{Forwarder, ForwarderKind, Lab, Lifetime, Topology};
use record::{Problem, Result};

pub use sample::{asked, lag, sample};

/// Builds a lab whose nodes may be forwarders.
///
/// # Errors
/// As [`Lab::up`]; input for a rule that cannot be read or that its switch refuses; host when Open vSwitch is not there or a
/// program ends early.
pub fn up(topology: &Topology, name: &str, lifetime: Lifetime) -> Result<Lab> {
    namespaces_alone(topology)?;
    check(topology)?;
    if forwarders(topology).any(|(_, forwarder)| forwarder.kind == ForwarderKind::Ovs) {
        ovs::check()?;
    }
    Lab::up_with(&linux::undo::journals()?, topology, name, lifetime, &mut |lab| {
        let nodes = lab.topology().nodes.clone();
        for (dpid, node) in (1..).zip(&nodes) {
            let Some(forwarder) = &node.forwarder else { continue };
            let started = match forwarder.kind {
                ForwarderKind::Null => null::start(lab, node, forwarder),
                ForwarderKind::Switch => switch::switch(lab, node, forwarder, dpid),
                ForwarderKind::Ovs => ovs::start(lab, node, forwarder, dpid),
            };
            started.map_err(|problem| match problem.place.is_empty() {
                true => problem.at(format!("node {}", node.name)),
                false => problem,
            })?;
        }
        Ok(())
    })
}

/// The nodes of a lab are namespaces of this host.
fn namespaces_alone(topology: &Topology) -> Result<()> {
    let machine = topology.nodes.iter().find(|node| node.machine.is_some());
    machine.map_or(Ok(()), |node| {
        Err(Problem::input("it is a virtual machine, and the nodes of a lab are namespaces of this host").at(format!("node {}", node.name)).help(
            "machines are there as long as a command takes: 'pathlab run', 'prove' or 'tune search' with a plan of this topology",
        ))
    })
}

/// Reads every rule of a topology.
///
/// # Errors
/// Input: the first rule that is none.
pub fn check(topology: &Topology) -> Result<()> {
    for (node, forwarder) in forwarders(topology) {
        switch::rules(forwarder).map_err(|problem| problem.at(format!("node {node}")))?;
    }
    Ok(())
}

fn forwarders(topology: &Topology) -> impl Iterator<Item = (&str, &Forwarder)> {
    topology.nodes.iter().filter_map(|node| Some((node.name.as_str(), node.forwarder.as_ref()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_has_no_virtual_machines() {
        let machines = Topology::load("machines").unwrap();
        let refused = up(&machines, "none", Lifetime::Ephemeral).err().unwrap().to_string();
        assert!(refused.starts_with("node a: it is a virtual machine"), "{refused}");
        assert!(check(&machines).is_ok(), "it can be shown");
    }

    #[test]
    fn a_topology_knows_every_engine() {
        for engine in ::switch::engines::ENGINES {
            let text = format!("node a\nswitch s\nlink a:x -- s:x\nengine on s {}\n", engine.name);
            assert!(Topology::parse(&text, "x").is_ok(), "{text}");
        }
    }
}
