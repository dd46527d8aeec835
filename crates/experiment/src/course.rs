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
use record::{PathVariant, Problem, ProblemKind, Result};

/// A way that is to be measured, and how it is built.
pub type Chosen = (PathVariant, Topology);

/// The ways of these names, each with every of these states of all offloads of the two hosts' interfaces: `on`, `off`; none leaves
/// them as the kernel gives them. `group` is what they have in common.
///
/// # Errors
/// Input: there is no such way, or it is given twice.
pub fn choose(ways: &[String], offloads: &[Option<&str>], group: &str) -> Result<Vec<Chosen>> {
    if let Some(twice) = ways.iter().enumerate().find(|(index, way)| ways[..*index].contains(way)) {
        return Err(Problem::input(format!("'{}' is given twice", twice.1)).at("--path"));
    }
    let choose = |(name, offload): (&String, Option<&str>)| {
        let topology = topology(name, offload)?;
        Ok((
            PathVariant { name: name.clone(), group: group.into(), offload: offload.map(Into::into) },
            topology,
        ))
    };
    ways.iter().flat_map(|way| offloads.iter().map(move |state| (way, *state))).map(choose).collect()
}

/// What a way can be.
pub const WAYS: &str =
    "direct, bridge, null, switch, ovs; null and switch also with a kind of ports: switch:xdp";

/// The topology of a way: `direct`, `bridge`, or a forwarder with the kind of its ports behind a colon. The two hosts of all
/// these are `a` and `b`, with one interface `eth0` each.
///
/// # Errors
/// Input: there is no such way.
fn topology(way: &str, offload: Option<&str>) -> Result<Topology> {
    let (name, ports) = way.split_once(':').map_or((way, None), |(name, ports)| (name, Some(ports)));
    let unknown = || Problem::input(format!("there is no way '{way}'")).at("--path").help(WAYS);
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

/// Builds a lab for every way; one that this host cannot build has the reason instead.
///
/// # Errors
/// What is wrong with a way, other than that this host cannot; an interrupt.
pub fn build(ways: Vec<Chosen>) -> Result<Vec<(PathVariant, Result<Lab>)>> {
    let build = |(number, (way, topology)): (usize, Chosen)| {
        let name = format!("run-{}-{number}", std::process::id());
        match programs::up(&topology, &name, Lifetime::Ephemeral) {
            // What this host cannot is said in the table; what is wrong is wrong.
            Err(problem) if problem.kind != ProblemKind::Host || linux::sys::process::interrupted() => {
                Err(problem)
            }
            built => Ok((way, built)),
        }
    };
    ways.into_iter().enumerate().map(build).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_has_a_topology_or_is_refused() {
        for way in ["direct", "bridge", "null", "null:ring", "switch", "switch:xdp?queue=0", "ovs", "ovs:xdp"]
        {
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
        for way in ["", "router", "direct:int", "switch:pcap", "ovs:ring", "switch:", "null:int int"] {
            assert_eq!(topology(way, Some("off")).unwrap_err().kind, ProblemKind::Input, "{way}");
        }
    }

    #[test]
    fn both_is_every_way_twice() {
        let ways = ["direct".to_owned(), "null".to_owned()];
        let titles = |offloads: &[Option<&str>]| -> Vec<String> {
            let chosen = choose(&ways, offloads, "now").unwrap();
            chosen.iter().map(|(way, _)| study::ways::title(&way.name, way.offload.as_deref())).collect()
        };
        assert_eq!(titles(&[None]), ["direct", "null"]);
        assert_eq!(titles(&[Some("off")]), ["direct, offload off", "null, offload off"]);
        let both = ["direct, offload on", "direct, offload off", "null, offload on", "null, offload off"];
        assert_eq!(titles(&[Some("on"), Some("off")]), both);
        let twice = choose(&["null".to_owned(), "null".to_owned()], &[None], "now").unwrap_err();
        assert!(twice.kind == ProblemKind::Input && twice.to_string().contains("twice"));
    }
}
