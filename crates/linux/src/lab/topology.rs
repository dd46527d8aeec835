//! A lab as plain data: nodes, bridges, links, addresses, routes, policy rules, settings.
//!
//! **What.** [`Topology`] is what a `*.lab` file says, with every name resolved and every contradiction refused; it
//! prints back as canonical text that parses to the same value. The language is in `docs/topology.md`, the parser in
//! `parse.rs`, and where texts come from in `load.rs`.
//!
//! **Why.** Everything that touches the machine works on this value, so a file that cannot be built is refused
//! before the first namespace exists.
//!
//! **Price.** Pure: no namespace, no socket. What only the kernel can refuse (a sysctl that it does not have) is found
//! when the lab is built.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::forwarder::Forwarder;
use super::machine::MachineSpec;
use crate::netlink::NewLink;
pub use crate::netlink::{
    Emulation, Mark, Mode, NextHop, OffloadFeature, PolicyAction, PolicyRule, Prefix, RouteAction, RouteType,
    Shaper, StaticRoute, UpperKind, VlanTag, Vxlan,
};

/// The MTU of an interface that says none.
pub const DEFAULT_MTU: u32 = 1500;

/// Interfaces of a lab have indexes from here on, each its own: so the two ends of a link find each other by number
/// even when somebody renamed them.
const FIRST_INDEX: u32 = 10;

/// A hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// One interface of a node: the end of a link, a bridge, or one over another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceSpec {
    /// The node that it is in.
    pub node: String,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// MTU in bytes without the Ethernet header; none: [`DEFAULT_MTU`].
    pub mtu: Option<u32>,
    /// Transmit queue length in frames; none: as the kernel gives.
    pub tx_queue_len: Option<u32>,
    /// Transmit and receive queues each; none: one.
    pub queues: Option<u32>,
    /// Offloads that are switched; the others stay as the kernel gives.
    pub offloads: BTreeMap<OffloadFeature, bool>,
    /// Rate limit on what leaves.
    pub shaper: Option<Shaper>,
    /// Delay and faults of what leaves.
    pub emulation: Emulation,
    /// Addresses, v4 and v6, in the order of the file.
    pub addresses: Vec<Prefix>,
    /// Hardware address; none: as the kernel gives.
    pub mac: Option<Mac>,
}

impl InterfaceSpec {
    /// An interface with nothing said about it.
    pub fn new(node: &str, name: &str) -> Self {
        InterfaceSpec { node: node.into(), name: name.into(), ..Default::default() }
    }

    /// The same for the kernel, with the index that the interface gets.
    pub fn link(&self, index: u32) -> NewLink<'_> {
        let &InterfaceSpec { mtu, tx_queue_len, queues, .. } = self;
        NewLink { index, name: &self.name, mtu, tx_queue_len, queues, mac: self.mac.map(|mac| mac.0) }
    }

    /// `node:name`.
    pub fn place(&self) -> String {
        format!("{}:{}", self.node, self.name)
    }

    /// True when it has an address of the family (4 or 6).
    pub fn has_family(&self, family: u8) -> bool {
        self.addresses.iter().any(|prefix| prefix.version() == family)
    }
}

/// A host of the lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// True when it forwards IP, v4 and v6.
    pub router: bool,
    /// The program that hands its frames on, if the kernel does not.
    pub forwarder: Option<Forwarder>,
    /// The virtual machine that it is, if it is no namespace.
    pub machine: Option<MachineSpec>,
}

impl NodeSpec {
    /// The word that declares it.
    fn word(&self) -> &'static str {
        match &self.forwarder {
            Some(forwarder) => forwarder.kind.word(),
            None if self.machine.is_some() => "vm",
            None if self.router => "router",
            None => "node",
        }
    }
}

/// A kernel bridge or a bond inside a node: one interface over several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeSpec {
    /// The device itself; it may have addresses.
    pub interface: InterfaceSpec,
    /// Names of the interfaces of the same node that are its ports.
    pub ports: Vec<String>,
    /// How a bond chooses among its ports; none: it is a bridge.
    pub bond: Option<Mode>,
}

impl BridgeSpec {
    /// The word that declares it.
    pub fn word(&self) -> &'static str {
        if self.bond.is_some() { "bond" } else { "bridge" }
    }
}

/// An interface that sends through another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpperSpec {
    /// The interface itself.
    pub interface: InterfaceSpec,
    /// Node and name of the end of a link or the bridge that it sends through; a VXLAN may leave it to the routes.
    pub over: Option<(String, String)>,
    /// What it is.
    pub kind: UpperKind,
}

impl UpperSpec {
    /// The node that it is made in, whose addresses and routes a VXLAN uses.
    pub fn made_in(&self) -> &str {
        self.over.as_ref().map_or(&self.interface.node, |(node, _)| node)
    }
}

/// A virtual wire (veth) between two interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSpec {
    /// Its two ends.
    pub ends: [InterfaceSpec; 2],
}

/// A static route of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteSpec {
    /// The node that has the route.
    pub node: String,
    /// The route.
    pub route: StaticRoute,
}

/// A policy rule of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySpec {
    /// The node that has the rule.
    pub node: String,
    /// The rule; one without addresses holds for both versions of IP.
    pub rule: PolicyRule,
}

/// A kernel setting of a node's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysctlSpec {
    /// The node that has the setting.
    pub node: String,
    /// Its name, always under `net`; with `/` between its parts if a part holds a dot.
    pub key: String,
    /// Its value; several numbers are separated by one space.
    pub value: String,
}

/// A whole lab as data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// The nodes in the order of the file.
    pub nodes: Vec<NodeSpec>,
    /// The links in the order of the file.
    pub links: Vec<LinkSpec>,
    /// The bridges and bonds in the order of the file.
    pub bridges: Vec<BridgeSpec>,
    /// The interfaces over others in the order of the file.
    pub uppers: Vec<UpperSpec>,
    /// The routes in the order of the file.
    pub routes: Vec<RouteSpec>,
    /// The policy rules in the order of the file.
    pub policies: Vec<PolicySpec>,
    /// The settings in the order of the file.
    pub sysctls: Vec<SysctlSpec>,
}

impl Topology {
    /// What hands on the frames of a node, if that is a program.
    pub fn forwarder(&self, node: &str) -> Option<&Forwarder> {
        self.node(node)?.forwarder.as_ref()
    }

    /// The node of that name.
    pub fn node(&self, name: &str) -> Option<&NodeSpec> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Both ends of every link, in the order of the file.
    pub fn ends(&self) -> impl Iterator<Item = &InterfaceSpec> {
        self.links.iter().flat_map(|link| &link.ends)
    }

    /// Every interface: the ends of the links, then the bridges, then those over others.
    pub fn all_interfaces(&self) -> impl Iterator<Item = &InterfaceSpec> {
        let bridges = self.bridges.iter().map(|bridge| &bridge.interface);
        self.ends().chain(bridges).chain(self.uppers.iter().map(|upper| &upper.interface))
    }

    /// The bridge or bond of that name.
    pub fn bridge(&self, node: &str, name: &str) -> Option<&BridgeSpec> {
        self.bridges.iter().find(|bridge| bridge.interface.node == node && bridge.interface.name == name)
    }

    /// What an interface over another one is.
    pub fn upper(&self, node: &str, name: &str) -> Option<&UpperSpec> {
        self.uppers.iter().find(|upper| upper.interface.node == node && upper.interface.name == name)
    }

    /// Whether this interface is the other one or lies over it, at any depth.
    pub(super) fn lies_over(&self, (node, name): (&str, &str), other: &InterfaceSpec) -> bool {
        let (mut known, mut next) = (BTreeSet::new(), vec![(node, name)]);
        while let Some((node, name)) = next.pop() {
            if node == other.node && name == other.name {
                return true;
            }
            if known.insert((node, name)) {
                let over = self.upper(node, name).and_then(|upper| upper.over.as_ref());
                let ports = self.bridge(node, name).into_iter().flat_map(|bridge| &bridge.ports);
                next.extend(over.map(|(node, name)| (node.as_str(), name.as_str())));
                next.extend(ports.map(|port| (node, port.as_str())));
            }
        }
        false
    }

    /// Every interface of a node: the ends of its links, then its bridges, then those over others.
    pub fn interfaces<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a InterfaceSpec> {
        self.all_interfaces().filter(move |i| i.node == node)
    }

    /// The index that an interface gets; none when there is no such interface.
    pub(super) fn index_of(&self, node: &str, interface: &str) -> Option<u32> {
        let place = self.all_interfaces().position(|one| one.node == node && one.name == interface)?;
        Some(FIRST_INDEX + place as u32)
    }

    /// The other end of the link that this interface is an end of.
    pub fn peer(&self, node: &str, interface: &str) -> Option<&InterfaceSpec> {
        let is_it = |end: &InterfaceSpec| end.node == node && end.name == interface;
        self.links.iter().find_map(|link| match &link.ends {
            [a, b] if is_it(a) => Some(b),
            [a, b] if is_it(b) => Some(a),
            _ => None,
        })
    }

    /// The bridge or bond that this interface is a port of.
    pub fn bridge_of(&self, node: &str, port: &str) -> Option<&BridgeSpec> {
        self.bridges.iter().find(|b| b.interface.node == node && b.ports.iter().any(|name| name == port))
    }

    /// True when any interface has an address of the family (4 or 6).
    pub fn has_family(&self, family: u8) -> bool {
        self.all_interfaces().any(|interface| interface.has_family(family))
    }
}

impl fmt::Display for Topology {
    /// The canonical text: one statement for each thing, options in a fixed order. What both ends of a link share is
    /// said once, with the link.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            let machine = node.machine.as_ref().map(MachineSpec::to_string).unwrap_or_default();
            writeln!(f, "{} {}{machine}", node.word(), node.name)?;
        }
        for LinkSpec { ends: [a, b] } in &self.links {
            let (a_own, b_own) = (shared_options(a), shared_options(b));
            let both: String =
                a_own.iter().filter(|option| b_own.contains(option)).map(String::as_str).collect();
            writeln!(f, "link {} -- {}{both}", a.place(), b.place())?;
        }
        for bridge in &self.bridges {
            let BridgeSpec { interface: InterfaceSpec { name, node, .. }, ports, bond } = bridge;
            let mode = bond.map(|mode| format!(" mode {}", mode.word)).unwrap_or_default();
            writeln!(f, "{} {name} on {node} ports {}{mode}", bridge.word(), ports.join(" "))?;
        }
        for UpperSpec { interface: InterfaceSpec { node, name, .. }, over, kind } in &self.uppers {
            let over = over.as_ref().map(|(node, name)| format!(" over {node}:{name}")).unwrap_or_default();
            writeln!(f, "{} {name} on {node}{over} {kind}", kind.word())?;
        }
        for LinkSpec { ends: [a, b] } in &self.links {
            write_interface(f, a, &shared_options(b))?;
            write_interface(f, b, &shared_options(a))?;
        }
        for bridge in &self.bridges {
            write_interface(f, &bridge.interface, &[])?;
        }
        for upper in &self.uppers {
            write_interface(f, &upper.interface, &[])?;
        }
        for RouteSpec { node, route } in &self.routes {
            writeln!(f, "route on {node} {route}")?;
        }
        for PolicySpec { node, rule } in &self.policies {
            writeln!(f, "policy on {node} {rule}")?;
        }
        for SysctlSpec { node, key, value } in &self.sysctls {
            writeln!(f, "sysctl on {node} {key}={value}")?;
        }
        for node in &self.nodes {
            node.forwarder.as_ref().map_or(Ok(()), |forwarder| forwarder.write(f, &node.name))?;
        }
        Ok(())
    }
}

/// How a switch is written.
pub(super) fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// The options of an end that may also stand with its link, each with a space before it.
fn shared_options(end: &InterfaceSpec) -> Vec<String> {
    let mut options = vec![];
    let mut number = |word: &str, value: Option<u32>| options.extend(value.map(|v| format!(" {word} {v}")));
    number("mtu", end.mtu);
    number("txqueuelen", end.tx_queue_len);
    number("queues", end.queues);
    match end.offloads.values().next() {
        Some(&first)
            if end.offloads.len() == OffloadFeature::ALL.len()
                && end.offloads.values().all(|&on| on == first) =>
        {
            options.push(format!(" offload {}", on_or_off(first)));
        }
        _ => options.extend(
            end.offloads.iter().map(|(offload, &on)| format!(" {} {}", offload.word(), on_or_off(on))),
        ),
    }
    if let Some(Shaper { rate_bps, limit_bytes, burst_bytes }) = end.shaper {
        let rate =
            scaled(rate_bps, &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)]);
        let size = |bytes: u32| scaled(u64::from(bytes), &[("MB", 1_000_000), ("kB", 1000), ("B", 1)]);
        options.push(format!(" rate {rate} limit {} burst {}", size(limit_bytes), size(burst_bytes)));
    }
    options.extend(emulated(&end.emulation));
    options
}

/// Delay and faults of an end, each with a space before it.
pub(super) fn emulated(emulation: &Emulation) -> Vec<String> {
    let time = |ns: u64| scaled(ns, &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)]);
    // In percent, four digits behind the point are parts of a million.
    let chance = |parts: u32| format!("{}%", f64::from(parts) / 10_000.0);
    let Emulation { delay_ns, jitter_ns, lose, duplicate, reorder, corrupt } = *emulation;
    let times = [("delay", delay_ns), ("jitter", jitter_ns)].into_iter().filter(|(_, ns)| *ns > 0);
    let chances = [("lose", lose), ("duplicate", duplicate), ("reorder", reorder), ("corrupt", corrupt)];
    let chances = chances.into_iter().filter(|(_, parts)| *parts > 0);
    let times = times.map(|(word, ns)| format!(" {word} {}", time(ns)));
    times.chain(chances.map(|(word, parts)| format!(" {word} {}", chance(parts)))).collect()
}

/// The `interface` line of an end: what the other end does not share, and addresses.
fn write_interface(f: &mut fmt::Formatter<'_>, end: &InterfaceSpec, shared: &[String]) -> fmt::Result {
    let mut options: Vec<String> = shared_options(end).into_iter().filter(|o| !shared.contains(o)).collect();
    options.extend(end.mac.map(|mac| format!(" mac {mac}")));
    if !end.addresses.is_empty() {
        let list: Vec<_> = end.addresses.iter().map(Prefix::to_string).collect();
        options.push(format!(" address {}", list.join(" ")));
    }
    if options.is_empty() { Ok(()) } else { writeln!(f, "interface {}{}", end.place(), options.concat()) }
}

/// The number in the largest unit that divides it.
fn scaled(value: u64, units: &[(&str, u64)]) -> String {
    let (word, unit) =
        units.iter().find(|(_, unit)| value.is_multiple_of(*unit)).expect("the last unit is 1");
    format!("{}{word}", value / unit)
}
