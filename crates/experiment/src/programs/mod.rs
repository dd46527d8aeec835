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

use flow::rule::FlowModCommand;
use linux::lab::{Forwarder, ForwarderKind, Lab, Lifetime, Topology};
use record::{Problem, Result};

use ovs::Installed;
pub use sample::{Sample, asked, lag, sample};

/// Builds a lab whose nodes may be forwarders.
///
/// # Errors
/// As [`Lab::up`]; input for a rule that cannot be read or that its switch refuses; host when Open vSwitch is not there or a
/// program ends early.
pub fn up(topology: &Topology, name: &str, lifetime: Lifetime) -> Result<Lab> {
    check(topology)?;
    let ovs = match forwarders(topology).any(|(_, forwarder)| forwarder.kind == ForwarderKind::Ovs) {
        true => Some(Installed::find()?),
        false => None,
    };
    Lab::up_with(&linux::undo::journals()?, topology, name, lifetime, &mut |house| {
        let nodes = house.topology().nodes.clone();
        let numbered = nodes.iter().enumerate();
        for (index, node) in numbered {
            let Some(forwarder) = &node.forwarder else { continue };
            let dpid = index as u64 + 1;
            let started = match (forwarder.kind, &ovs) {
                (ForwarderKind::Null, _) => null::start(house, node, forwarder),
                (ForwarderKind::Switch, _) => switch::switch(house, node, forwarder, dpid),
                (ForwarderKind::Ovs, Some(ovs)) => ovs.start(house, node, forwarder, dpid),
                (ForwarderKind::Ovs, None) => Ok(()),
            };
            started.map_err(|problem| match problem.place.is_empty() {
                true => problem.at(format!("node {}", node.name)),
                false => problem,
            })?;
        }
        Ok(())
    })
}

/// Reads every rule of a topology.
///
/// # Errors
/// Input: the first rule that is none.
pub fn check(topology: &Topology) -> Result<()> {
    for (node, forwarder) in forwarders(topology) {
        for text in &forwarder.rules {
            let read = flow::text::rule::flow_mod(FlowModCommand::Add, text);
            read.map_err(|error| Problem::input(format!("{error} in '{text}'")).at(format!("node {node}")))?;
        }
    }
    Ok(())
}

fn forwarders(topology: &Topology) -> impl Iterator<Item = (&str, &Forwarder)> {
    topology.nodes.iter().filter_map(|node| Some((node.name.as_str(), node.forwarder.as_ref()?)))
}
