//! The ways between the same two hosts that can be compared: the experiment of the switch journals.
//!
//! **What.** One lab for each way, all up from begin to end. Every way gets a record of its own, which `show` and `report` know
//! like any other; together they make the journal's table.
//!
//! **Offloads.** As the kernel gives them, TCP crosses a veth in super-frames of up to 64 KiB and no checksum is computed: what is
//! in the middle then sees a twentieth of the frames that a wire would bring. So a way can also be measured with all
//! offloads of the two hosts' interfaces off, or on, or both; what was asked and what was found is in every record.

use crate::programs;
use linux::lab::{ForwarderKind, Lab, Lifetime, Topology};
use record::{Problem, ProblemKind, Result};

/// A state of all offloads of the two hosts' interfaces: `on`, `off`; none leaves them as the kernel gives them.
pub type OffloadState = Option<&'static str>;

/// A way that is to be measured.
#[derive(Debug)]
pub struct Chosen {
    /// Its name.
    pub way: String,
    /// What is done with the offloads.
    pub offload: OffloadState,
    topology: Topology,
}

impl Chosen {
    /// Its name with the state of the offloads.
    pub fn title(&self) -> String {
        study::ways::title(&self.way, self.offload)
    }
}

/// The ways of these names, each with every of these states of the offloads.
///
/// # Errors
/// Input: there is no such way, or it is given twice.
pub fn choose(ways: &[String], offloads: &[OffloadState]) -> Result<Vec<Chosen>> {
    if let Some(twice) = ways.iter().enumerate().find(|(index, way)| ways[..*index].contains(way)) {
        return Err(Problem::input(format!("'{}' is given twice", twice.1)).at("--path"));
    }
    let states = |way| offloads.iter().map(move |state| (way, *state));
    let chosen = ways
        .iter()
        .flat_map(states)
        .map(|(way, offload)| Ok(Chosen { way: way.clone(), offload, topology: topology(way, offload)? }));
    chosen.collect()
}

/// The topology of a way: `direct`, `bridge`, or a forwarder with the kind of its ports behind a colon. The two hosts of all
/// these are `a` and `b`, with one interface `eth0` each.
///
/// # Errors
/// Input: there is no such way.
fn topology(way: &str, offload: Option<&str>) -> Result<Topology> {
    let (name, ports) = way.split_once(':').map_or((way, None), |(name, ports)| (name, Some(ports)));
    let unknown = || {
        Problem::input(format!("there is no way '{way}'"))
            .at("--path")
            .help("direct, bridge, null, switch, ovs; null and switch also with a kind of ports: switch:xdp")
    };
    let builtin = match (name, ports) {
        ("direct", None) => "pair",
        ("bridge", None) => "bridge",
        (name, _) if ForwarderKind::of(name).is_some() => name,
        _ => return Err(unknown()),
    };
    let mut text = Topology::builtin(builtin).ok_or_else(unknown)?.to_owned();
    if let Some(ports) = ports {
        text += &format!("ports on s {ports}\n");
    }
    for host in offload.iter().flat_map(|_| ["a", "b"]) {
        text += &format!("interface {host}:eth0 offload {}\n", offload.unwrap_or("on"));
    }
    Topology::parse(&text, way).map_err(|problem| match ports {
        Some(_) => unknown(),
        None => problem,
    })
}

/// The labs that are up, and the ways that this host cannot build.
pub struct Built<'a> {
    /// Each with its way.
    pub labs: Vec<(&'a Chosen, Lab)>,
    /// Each with the reason.
    pub absent: Vec<(&'a Chosen, Problem)>,
}

/// Builds a lab for every way.
///
/// # Errors
/// What is wrong with a way, other than that this host cannot; an interrupt.
pub fn build(ways: &[Chosen]) -> Result<Built<'_>> {
    let mut built = Built { labs: vec![], absent: vec![] };
    for (number, chosen) in ways.iter().enumerate() {
        let name = format!("run-{}-{number}", std::process::id());
        match programs::up(&chosen.topology, &name, Lifetime::Ephemeral) {
            Ok(lab) => built.labs.push((chosen, lab)),
            // What this host cannot is said in the table; what is wrong is wrong.
            Err(problem) if problem.kind == ProblemKind::Host && !linux::sys::process::interrupted() => {
                built.absent.push((chosen, problem));
            }
            Err(problem) => return Err(problem),
        }
    }
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_has_a_topology_or_is_refused() {
        for way in ["direct", "bridge", "null", "null:ring", "switch", "switch:xdp?queue=0", "ovs"] {
            for offload in [None, Some("on"), Some("off")] {
                let topology = topology(way, offload).unwrap_or_else(|e| panic!("{way}: {e}"));
                assert!(topology.node("a").is_some() && topology.node("b").is_some());
                let hosts = ["a", "b"].map(|node| topology.interfaces(node).next().unwrap().offloads.clone());
                for offloads in hosts {
                    assert_eq!(offloads.len(), if offload.is_some() { 7 } else { 0 }, "{way}");
                    assert!(offloads.values().all(|&on| Some(on) == offload.map(|state| state == "on")));
                }
                assert!(topology.interfaces("s").all(|between| between.offloads.is_empty()), "{way}");
            }
        }
        assert_eq!(topology("switch:xdp", None).unwrap().forwarder("s").unwrap().ports, "xdp");
        for way in ["", "router", "direct:int", "switch:pcap", "ovs:int", "switch:", "null:int int"] {
            assert_eq!(topology(way, Some("off")).unwrap_err().kind, ProblemKind::Input, "{way}");
        }
    }

    #[test]
    fn both_is_every_way_twice() {
        let ways = ["direct".to_owned(), "null".to_owned()];
        let titles = |offloads: &[OffloadState]| -> Vec<String> {
            choose(&ways, offloads).unwrap().iter().map(Chosen::title).collect()
        };
        assert_eq!(titles(&[None]), ["direct", "null"]);
        assert_eq!(titles(&[Some("off")]), ["direct, offload off", "null, offload off"]);
        let both = ["direct, offload on", "direct, offload off", "null, offload on", "null, offload off"];
        assert_eq!(titles(&[Some("on"), Some("off")]), both);
        let twice = choose(&["null".to_owned(), "null".to_owned()], &[None]).unwrap_err();
        assert!(twice.kind == ProblemKind::Input && twice.to_string().contains("twice"));
    }
}
