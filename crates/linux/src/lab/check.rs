//! A running lab against its text: what somebody changed, link end by link end.

use std::collections::BTreeMap;

use record::Result;
use serde::{Deserialize, Serialize};

use super::live::Lab;
use super::node::Node;
use super::topology::{DEFAULT_MTU, InterfaceSpec, OffloadFeature, Prefix, Shaper};
use crate::netlink::{LinkState, Netlink, Refusal};

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
    offloads: BTreeMap<u32, BTreeMap<OffloadFeature, bool>>,
    queues: BTreeMap<u32, (u32, u32)>,
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
        let words = [
            (OffloadFeature::Tso, "tso"),
            (OffloadFeature::Gso, "gso"),
            (OffloadFeature::Gro, "gro"),
            (OffloadFeature::Tx, "tx-checksum"),
            (OffloadFeature::Rx, "rx-checksum"),
        ];
        let states =
            words.map(|(offload, word)| format!("{word} {}", switch(on.get(&offload) == Some(&true))));
        Some(format!("{} {}", spec.place(), states.join(", ")))
    };
    lab.topology().interfaces(node.name()).filter_map(line).collect()
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn facts(netlink: &mut Netlink) -> Result<Facts, Refusal> {
    let links = netlink.links()?;
    let mut facts = Facts {
        addresses: netlink.addresses()?,
        shapers: netlink.shapers()?,
        offloads: BTreeMap::new(),
        queues: BTreeMap::new(),
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
    let mut line = CheckLine {
        node: spec.node.clone(),
        interface: spec.name.clone(),
        up: link.up,
        carrier: link.carrier,
        mtu: link.mtu,
        tx_queue_len: link.tx_queue_len,
        qdisc: link.qdisc.clone(),
        rx_queues: queues.map(|(rx, _)| rx),
        tx_queues: queues.map(|(_, tx)| tx),
        offloads: offloads.iter().map(|(offload, &on)| (offload.word().to_string(), on)).collect(),
        differences: vec![],
    };
    if link.index == 0 {
        line.differences.push("the interface is gone".into());
        return line;
    }
    let mut differ = |differs: bool, what: String| line.differences.extend(differs.then_some(what));
    differ(!link.up, "it is switched off".into());
    differ(link.up && !link.carrier, "it has no carrier".into());
    // A bridge without an MTU of its own follows its ports.
    let is_bridge = lab.topology().bridges.iter().any(|bridge| bridge.interface == *spec);
    if let Some(wanted) = spec.mtu.or((!is_bridge).then_some(DEFAULT_MTU)) {
        differ(link.mtu != wanted, format!("mtu is {}, the topology says {wanted}", link.mtu));
    }
    if let Some(wanted) = spec.tx_queue_len {
        differ(
            link.tx_queue_len != wanted,
            format!("txqueuelen is {}, the topology says {wanted}", link.tx_queue_len),
        );
    }
    if let (Some(wanted), Some((rx, tx))) = (spec.queues, queues) {
        differ(
            rx != wanted || tx != wanted,
            format!("queues are {rx} rx and {tx} tx, the topology says {wanted}"),
        );
    }
    for (offload, &wanted) in &spec.offloads {
        let on = offloads.get(offload) == Some(&true);
        differ(
            on != wanted,
            format!("{} is {}, the topology says {}", offload.word(), switch(on), switch(wanted)),
        );
    }
    let master = facts.links.iter().find(|master| link.master != 0 && master.index == link.master);
    let master = master.map(|master| master.name.as_str());
    differ(
        master != bridge,
        match (master, bridge) {
            (None, Some(wanted)) => format!("it is not a port of {wanted}"),
            (Some(now), _) => format!("it is a port of {now}"),
            (None, None) => String::new(),
        },
    );
    let stuck = bridge.is_some() && link.up && link.port_state.is_some_and(|state| state != 3);
    differ(stuck, "the bridge port does not forward".into());
    line.differences.extend(shaping(spec, link, facts.shapers.get(&link.index)));
    line.differences.extend(addressing(spec, link, &facts.addresses));
    line
}

fn shaping(spec: &InterfaceSpec, link: &LinkState, now: Option<&Shaper>) -> Option<String> {
    let rate = |shaper: &Shaper| format!("{} bit/s limit {} B", shaper.rate_bps, shaper.limit_bytes);
    match (&spec.shaper, now) {
        (Some(wanted), Some(now)) => {
            // The kernel keeps the burst as ticks of 64 ns: it comes back a little smaller.
            let near = now.burst_bytes.abs_diff(wanted.burst_bytes) <= 1 + wanted.burst_bytes / 100;
            if (now.rate_bps, now.limit_bytes) != (wanted.rate_bps, wanted.limit_bytes) {
                return Some(format!("rate is {}, the topology says {}", rate(now), rate(wanted)));
            }
            let (now, wanted) = (now.burst_bytes, wanted.burst_bytes);
            (!near).then(|| format!("burst is {now} B, the topology says {wanted} B"))
        }
        (Some(wanted), None) => {
            Some(format!("qdisc is {}, the topology says rate {}", link.qdisc, rate(wanted)))
        }
        (None, Some(now)) => Some(format!("it has a rate limit of {}", rate(now))),
        (None, None) if ["noqueue", "noop", ""].contains(&link.qdisc.as_str()) => None,
        (None, None) => Some(format!("qdisc is {}, the topology says none", link.qdisc)),
    }
}

fn addressing(spec: &InterfaceSpec, link: &LinkState, now: &[(u32, Prefix)]) -> Vec<String> {
    let here: Vec<&Prefix> =
        now.iter().filter(|(index, _)| *index == link.index).map(|(_, prefix)| prefix).collect();
    let missing = spec.addresses.iter().filter(|prefix| !here.contains(prefix));
    let added = here.iter().filter(|prefix| !spec.addresses.contains(prefix));
    let missing = missing.map(|prefix| format!("address {prefix} is missing"));
    missing.chain(added.map(|prefix| format!("address {prefix} was added"))).collect()
}
