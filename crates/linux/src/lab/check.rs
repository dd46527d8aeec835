//! A running lab against its text: what somebody changed, link end by link end.

use std::collections::BTreeMap;
use std::fmt::Display;

use record::Result;
use serde::{Deserialize, Serialize};

use super::live::Lab;
use super::node::Node;
use super::routing;
use super::topology::{
    DEFAULT_MTU, Emulation, InterfaceSpec, OffloadFeature, Prefix, Shaper, Topology, emulated, on_or_off,
};
use crate::netlink::{LinkState, Mode, Netlink, Refusal, UpperState};

/// What a card has at its root if nobody said anything (`net.core.default_qdisc`).
const OF_CARDS: [&str; 4] = ["mq", "pfifo_fast", "fq_codel", "fq"];

/// One interface as it is, and in what it differs from the topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckLine {
    /// The node.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// Administratively up.
    pub up: bool,
    /// Carrier present.
    pub carrier: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// Transmit queue length in frames.
    pub tx_queue_len: u32,
    /// Root qdisc.
    pub qdisc: String,
    /// Receive queues in use, if the device tells.
    pub rx_queues: Option<u32>,
    /// Transmit queues in use, if the device tells.
    pub tx_queues: Option<u32>,
    /// Offloads by their word: `tso`, `gso`, `gro`, `tx`, `rx`, `sg`, `uso`.
    pub offloads: BTreeMap<String, bool>,
    /// What differs from the topology, one clause each; empty if nothing does.
    pub differences: Vec<String>,
}

/// Everything that is asked of one node.
struct Facts {
    links: Vec<LinkState>,
    addresses: Vec<(u32, Prefix)>,
    shapers: BTreeMap<u32, Shaper>,
    emulations: BTreeMap<u32, Emulation>,
    offloads: BTreeMap<u32, BTreeMap<OffloadFeature, bool>>,
    queues: BTreeMap<u32, (u32, u32)>,
    uppers: Vec<UpperState>,
    bonds: BTreeMap<u32, Mode>,
}

/// One node's routing as it is, against its topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutingCheck {
    /// The node.
    pub node: String,
    /// What differs from the topology, one clause each; empty if nothing does.
    pub differences: Vec<String>,
}

impl Lab {
    /// Compares every interface with the topology.
    ///
    /// # Errors
    /// A host problem when a node's kernel cannot be asked.
    pub fn check(&self) -> Result<Vec<CheckLine>> {
        let mut lines = vec![];
        for node in self.nodes() {
            let facts = node.ask(facts)?;
            for spec in self.topology().interfaces(node.name()) {
                let is_port =
                    self.topology().bridge_of(node.name(), &spec.name).map(|b| b.interface.name.as_str());
                lines.push(compare(self, spec, is_port, &facts));
            }
        }
        Ok(lines)
    }

    /// Compares the routes and policy rules of every node with the topology. What the kernel set by itself does not count.
    ///
    /// # Errors
    /// A host problem when a node's kernel cannot be asked.
    pub fn check_routing(&self) -> Result<Vec<RoutingCheck>> {
        let check = |node: &Node| {
            let differences =
                node.ask(|netlink| routing::differences(self.topology(), node.name(), netlink))?;
            Ok(RoutingCheck { node: node.name().into(), differences })
        };
        self.nodes().iter().map(check).collect()
    }

    /// The offloads of every interface, one line each: `a:eth0 tso on, gso on, gro off, tx-checksum on, rx-checksum on`.
    /// An interface that cannot be asked is left out.
    pub fn offloads(&self) -> Vec<String> {
        self.nodes().iter().flat_map(|node| offload_lines(node, self)).collect()
    }
}

fn offload_lines(node: &Node, lab: &Lab) -> Vec<String> {
    let Ok(facts) = node.ask(facts) else { return vec![] };
    let line = |spec: &InterfaceSpec| {
        let link = facts.links.iter().find(|link| link.name == spec.name)?;
        let on = facts.offloads.get(&link.index)?;
        Some(format!("{} {}", spec.place(), OffloadFeature::states(on).join(", ")))
    };
    lab.topology().interfaces(node.name()).filter_map(line).collect()
}

fn facts(netlink: &mut Netlink) -> Result<Facts, Refusal> {
    let links = netlink.links()?;
    let mut facts = Facts {
        addresses: netlink.addresses()?,
        shapers: netlink.shapers()?,
        emulations: netlink.emulations()?,
        offloads: BTreeMap::new(),
        queues: BTreeMap::new(),
        uppers: netlink.uppers()?,
        bonds: netlink.bonds()?,
        links,
    };
    for link in &facts.links {
        facts.offloads.insert(link.index, netlink.offloads(link.index)?);
        facts.queues.extend(netlink.queues(link.index)?.map(|queues| (link.index, queues)));
    }
    Ok(facts)
}

fn compare(lab: &Lab, spec: &InterfaceSpec, bridge: Option<&str>, facts: &Facts) -> CheckLine {
    let absent = LinkState::default();
    let link = facts.links.iter().find(|link| link.name == spec.name).unwrap_or(&absent);
    let offloads = facts.offloads.get(&link.index).cloned().unwrap_or_default();
    let queues = facts.queues.get(&link.index).copied();
    CheckLine {
        node: spec.node.clone(),
        interface: spec.name.clone(),
        up: link.up,
        carrier: link.carrier,
        mtu: link.mtu,
        tx_queue_len: link.tx_queue_len,
        qdisc: link.qdisc.clone(),
        rx_queues: queues.map(|(rx, _)| rx),
        tx_queues: queues.map(|(_, tx)| tx),
        differences: match link.index {
            0 => vec!["the interface is gone".into()],
            _ => differences(lab, spec, bridge, facts, link),
        },
        offloads: offloads.into_iter().map(|(offload, on)| (offload.word().into(), on)).collect(),
    }
}

/// A clause when something is not as the topology says.
fn unequal<T: PartialEq + Display>(what: &str, now: T, wanted: T) -> Option<String> {
    (now != wanted).then(|| format!("{what} is {now}, the topology says {wanted}"))
}

fn differences(
    lab: &Lab,
    spec: &InterfaceSpec,
    bridge: Option<&str>,
    facts: &Facts,
    link: &LinkState,
) -> Vec<String> {
    // A bridge without an MTU of its own follows its ports, one over another interface follows that.
    let is_end = lab.topology().ends().any(|end| end == spec);
    let mtu = spec.mtu.or(is_end.then_some(DEFAULT_MTU));
    let queues = spec.queues.zip(facts.queues.get(&link.index));
    let queues = queues.filter(|(wanted, (rx, tx))| rx != wanted || tx != wanted);
    let offload = |(offload, &wanted): (&OffloadFeature, &bool)| {
        let on = facts.offloads.get(&link.index).is_some_and(|on| on.get(offload) == Some(&true));
        unequal(offload.word(), on_or_off(on), on_or_off(wanted))
    };
    let master = facts.links.iter().find(|master| link.master != 0 && master.index == link.master);
    let master = master.map(|master| master.name.as_str());
    let port = (master != bridge).then(|| match (master, bridge) {
        (Some(now), _) => format!("it is a port of {now}"),
        (None, wanted) => format!("it is not a port of {}", wanted.unwrap_or_default()),
    });
    let is_stuck = bridge.is_some() && link.up && link.port_state.is_some_and(|state| state != 3);
    let first = [
        (!link.up).then(|| "it is switched off".into()),
        (link.up && !link.carrier).then(|| "it has no carrier".into()),
        mtu.and_then(|wanted| unequal("mtu", link.mtu, wanted)),
        spec.tx_queue_len.and_then(|wanted| unequal("txqueuelen", link.tx_queue_len, wanted)),
        queues
            .map(|(wanted, (rx, tx))| format!("queues are {rx} rx and {tx} tx, the topology says {wanted}")),
    ];
    let rest = [
        port,
        is_stuck.then(|| "the bridge port does not forward".into()),
        bridging(lab.topology(), spec, &link.kind, facts.bonds.get(&link.index)),
        shaping(spec, link, facts.shapers.get(&link.index)),
        emulation(spec, facts.emulations.get(&link.index)),
        stacking(lab.topology(), spec, facts.uppers.iter().find(|upper| upper.index == link.index)),
    ];
    let some = first.into_iter().chain(spec.offloads.iter().map(offload)).chain(rest).flatten();
    some.chain(addressing(spec, link, &facts.addresses)).collect()
}

/// What stands over its ports: a bridge, or a bond and its mode.
fn bridging(topology: &Topology, spec: &InterfaceSpec, kind: &str, now: Option<&Mode>) -> Option<String> {
    let bridge = topology.bridge(&spec.node, &spec.name)?;
    let words = |kind: &str, mode: Option<&Mode>| match mode {
        Some(mode) => format!("{kind} mode {}", mode.word),
        None => kind.to_owned(),
    };
    unequal("it", words(kind, now), words(bridge.word(), bridge.bond.as_ref()))
}

/// What an interface over another one is, and over which.
fn stacking(topology: &Topology, spec: &InterfaceSpec, now: Option<&UpperState>) -> Option<String> {
    let upper = topology.upper(&spec.node, &spec.name)?;
    let Some(now) = now else { return Some(format!("it is no {} any more", upper.kind.word())) };
    let lower = upper.over.as_ref().and_then(|(node, name)| topology.index_of(node, name));
    let words = |kind: crate::netlink::UpperKind| format!("{} {kind}", kind.word());
    let index = |lower: Option<u32>| lower.map_or("none".into(), |lower| lower.to_string());
    unequal("it", words(now.kind), words(upper.kind)).or(unequal(
        "the index of the interface below",
        index(now.lower),
        index(lower),
    ))
}

fn shaping(spec: &InterfaceSpec, link: &LinkState, now: Option<&Shaper>) -> Option<String> {
    let rate = |shaper: &Shaper| format!("{} bit/s limit {} B", shaper.rate_bps, shaper.limit_bytes);
    match (&spec.shaper, now) {
        (Some(wanted), Some(now)) => {
            // The kernel keeps the burst as ticks of 64 ns: it comes back a little smaller.
            let near = now.burst_bytes.abs_diff(wanted.burst_bytes) <= 1 + wanted.burst_bytes / 100;
            let burst = |shaper: &Shaper| format!("{} B", shaper.burst_bytes);
            let burst = || unequal("burst", burst(now), burst(wanted)).filter(|_| !near);
            unequal("rate", rate(now), rate(wanted)).or_else(burst)
        }
        (Some(wanted), None) => unequal("qdisc", link.qdisc.clone(), format!("rate {}", rate(wanted))),
        (None, Some(now)) => Some(format!("it has a rate limit of {}", rate(now))),
        (None, None) if !spec.emulation.is_nothing() && link.qdisc == "netem" => None,
        (None, None) if ["noqueue", "noop", ""].contains(&link.qdisc.as_str()) => None,
        // A card has a queue of its own.
        (None, None) if link.kind.is_empty() && OF_CARDS.contains(&link.qdisc.as_str()) => None,
        (None, None) => unequal("qdisc", link.qdisc.as_str(), "none"),
    }
}

fn emulation(spec: &InterfaceSpec, now: Option<&Emulation>) -> Option<String> {
    let words = |one: &Emulation| match emulated(one).concat() {
        none if none.is_empty() => "none".to_owned(),
        words => words.trim_start().to_owned(),
    };
    unequal("netem", now.map_or("none".into(), words), words(&spec.emulation))
}

fn addressing(spec: &InterfaceSpec, link: &LinkState, now: &[(u32, Prefix)]) -> Vec<String> {
    let here: Vec<&Prefix> =
        now.iter().filter(|(index, _)| *index == link.index).map(|(_, prefix)| prefix).collect();
    let missing = spec.addresses.iter().filter(|prefix| !here.contains(prefix));
    let added = here.iter().filter(|prefix| !spec.addresses.contains(prefix));
    let missing = missing.map(|prefix| format!("address {prefix} is missing"));
    missing.chain(added.map(|prefix| format!("address {prefix} was added"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::BOND_MODES;

    #[test]
    fn a_bond_of_another_mode_and_a_bridge_that_is_none_are_told() {
        let text = "node a b\nlink a:x -- b:x\nlink a:y -- b:y\nbond q on a ports x y mode 802.3ad\nbridge r on b ports x y\n";
        let topology = Topology::parse(text, "x.lab").unwrap();
        let told = |node: &str, name: &str, kind: &str, mode: Option<&Mode>| {
            let spec = topology.interfaces(node).find(|spec| spec.name == name).unwrap();
            bridging(&topology, spec, kind, mode)
        };
        let mode = |word: &str| BOND_MODES.iter().find(|mode| mode.word == word);
        assert_eq!(told("a", "q", "bond", mode("802.3ad")), None);
        assert_eq!(
            told("a", "q", "bond", mode("balance-rr")).unwrap(),
            "it is bond mode balance-rr, the topology says bond mode 802.3ad"
        );
        assert_eq!(
            told("a", "q", "bridge", None).unwrap(),
            "it is bridge, the topology says bond mode 802.3ad"
        );
        assert_eq!((told("b", "r", "bridge", None), told("b", "x", "veth", None)), (None, None));
        assert_eq!(told("b", "r", "dummy", None).unwrap(), "it is dummy, the topology says bridge");
    }
}
