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
mod switch;

use flow::rule::FlowModCommand;
use linux::lab::{Forwarder, ForwarderKind, House, Lab, Lifetime, Program, Tenant, Topology};
use linux::sys::process;
use record::{Problem, Result};
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ovs::Installed;
pub use sample::{Asked, Sample, asked};

/// How long a program may take until it forwards.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(5);

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
    Lab::up_with(&linux::undo::door()?, topology, name, lifetime, &mut |house| {
        let nodes = house.topology.nodes.clone();
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

/// The interfaces of a node's links, in the order of the file: ports 1, 2, ….
fn interfaces(house: &House<'_>, node: &str) -> Vec<String> {
    house.topology.interfaces(node).map(|interface| interface.name.clone()).collect()
}

/// This very program with these words.
fn this_program(words: Vec<OsString>) -> Result<Program> {
    Ok(Program { file: crate::this_program()?.into(), arguments: words, ..Program::default() })
}

/// Waits until a tenant is ready; one that has ended says why.
fn wait_for(tenant: &Tenant, what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        if process::interrupted() {
            return Err(Problem::host("interrupted while the lab was built; it is taken down again"));
        }
        let problem = |what: String| Problem::host(what).at(format!("node {}", tenant.node));
        if !tenant.alive() {
            let words = tenant.last_words();
            return Err(problem(format!("{} ended while it was started: {words}", tenant.role)));
        }
        if Instant::now() > deadline {
            let waited = PATIENCE.as_secs();
            return Err(problem(format!("{}: not ready ({what}) within {waited} s", tenant.role)));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Waits until a socket or file of a tenant is there.
fn wait_for_file(tenant: &Tenant, path: &Path) -> Result<()> {
    wait_for(tenant, "its socket is there", || path.exists())
}

/// Waits until a tenant answers at a socket: its name is there a moment before anybody listens. Whoever is called hears a
/// caller that hangs up.
fn wait_for_answer(tenant: &Tenant, path: &Path) -> Result<()> {
    wait_for(tenant, "it listens at its socket", || UnixStream::connect(path).is_ok())
}
