//! A lab as plain data: nodes, bridges, links, addresses, routes, settings.
//!
//! **What.** [`Topology`] is what a `*.lab` file says, with every name resolved and every contradiction refused; it
//! prints back as canonical text that parses to the same value. The language is in `docs/topology.md`, the parser in
//! `parse.rs`.
//!
//! **Why.** Everything that touches the machine works on this value, so a file that cannot be built is refused
//! before the first namespace exists.
//!
//! **Price.** Pure: no namespace, no socket. What only the kernel can refuse (a sysctl that it does not have) is found
//! when the lab is built.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use record::{Problem, Result};

use super::forwarder::{Forwarder, rule_lines};
use super::parse;

/// The labs that are part of the program: name and text.
const BUILTIN: [(&str, &str); 8] = [
    ("pair", include_str!("../../../../labs/pair.lab")),
    ("bridge", include_str!("../../../../labs/bridge.lab")),
    ("router", include_str!("../../../../labs/router.lab")),
    ("bottleneck", include_str!("../../../../labs/bottleneck.lab")),
    ("line3", include_str!("../../../../labs/line3.lab")),
    ("null", include_str!("../../../../labs/null.lab")),
    ("switch", include_str!("../../../../labs/switch.lab")),
    ("ovs", include_str!("../../../../labs/ovs.lab")),
];

/// The MTU of an interface that says none.
pub const DEFAULT_MTU: u32 = 1500;

/// A part of segmentation, merging or checksumming that the kernel does later, earlier or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Offload {
    /// TCP segmentation offload: TCP hands down super-frames.
    Tso,
    /// Generic segmentation offload: super-frames are cut just before the driver.
    Gso,
    /// Generic receive offload: frames are merged on arrival.
    Gro,
    /// Transmit checksum: the sender leaves it to the device (on a veth: nobody computes it).
    Tx,
    /// Receive checksum: the receiver trusts the device.
    Rx,
    /// Scatter/gather: a frame may lie in several pieces of memory.
    Sg,
    /// UDP segmentation offload.
    Uso,
}

impl Offload {
    /// Every offload, in the order in which they are printed.
    pub const ALL: [Offload; 7] =
        [Offload::Tso, Offload::Gso, Offload::Gro, Offload::Tx, Offload::Rx, Offload::Sg, Offload::Uso];

    /// The word in a topology.
    pub fn word(self) -> &'static str {
        match self {
            Offload::Tso => "tso",
            Offload::Gso => "gso",
            Offload::Gro => "gro",
            Offload::Tx => "tx",
            Offload::Rx => "rx",
            Offload::Sg => "sg",
            Offload::Uso => "uso",
        }
    }

    /// The kernel's feature bits that it stands for (`net/ethtool/common.c`, `netdev_features_strings`).
    pub fn features(self) -> &'static [&'static str] {
        match self {
            Offload::Tso => &[
                "tx-tcp-segmentation",
                "tx-tcp-ecn-segmentation",
                "tx-tcp-mangleid-segmentation",
                "tx-tcp6-segmentation",
            ],
            Offload::Gso => &["tx-generic-segmentation"],
            Offload::Gro => &["rx-gro"],
            Offload::Tx => {
                &["tx-checksum-ipv4", "tx-checksum-ip-generic", "tx-checksum-ipv6", "tx-checksum-sctp"]
            }
            Offload::Rx => &["rx-checksum"],
            Offload::Sg => &["tx-scatter-gather", "tx-scatter-gather-fraglist"],
            Offload::Uso => &["tx-udp-segmentation"],
        }
    }
}

/// An address with the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The address; of a route, the network.
    pub address: IpAddr,
    /// Bits that name the network.
    pub length: u8,
}

impl Prefix {
    /// The address with all bits after the prefix cleared.
    pub fn network(self) -> IpAddr {
        match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V4((u32::from(v4) & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V6((u128::from(v6) & mask).into())
            }
        }
    }

    /// True when the address lies in this network (and is of the same family).
    pub fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Prefix { address, length: self.length }.network() == self.network()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// A hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A rate limit on what leaves an interface (`tbf`, `net/sched/sch_tbf.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shaper {
    /// Bits per second of whole frames (with the Ethernet header, without preamble and check sequence).
    pub rate_bps: u64,
    /// How many bytes may wait; more are dropped.
    pub limit_bytes: u32,
    /// How many bytes may leave at once.
    pub burst_bytes: u32,
}

/// One interface of a node: the end of a link, or a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    pub offloads: BTreeMap<Offload, bool>,
    /// Rate limit on what leaves.
    pub shaper: Option<Shaper>,
    /// Addresses, v4 and v6, in the order of the file.
    pub addresses: Vec<Prefix>,
    /// Hardware address; none: as the kernel gives.
    pub mac: Option<Mac>,
}

impl InterfaceSpec {
    /// An interface with nothing said about it.
    pub fn new(node: &str, name: &str) -> Self {
        InterfaceSpec {
            node: node.into(),
            name: name.into(),
            mtu: None,
            tx_queue_len: None,
            queues: None,
            offloads: BTreeMap::new(),
            shaper: None,
            addresses: vec![],
            mac: None,
        }
    }

    /// `node:name`.
    pub fn place(&self) -> String {
        format!("{}:{}", self.node, self.name)
    }

    /// True when it has an address of the family (4 or 6).
    pub fn has_family(&self, family: u8) -> bool {
        self.addresses.iter().any(|prefix| prefix.address.is_ipv4() == (family == 4))
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
}

impl NodeSpec {
    /// The word that declares it.
    fn word(&self) -> &'static str {
        match &self.forwarder {
            Some(forwarder) => forwarder.kind.word(),
            None if self.router => "router",
            None => "node",
        }
    }
}

/// A kernel bridge inside a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeSpec {
    /// The bridge device itself; it may have addresses.
    pub interface: InterfaceSpec,
    /// Names of the interfaces of the same node that are its ports.
    pub ports: Vec<String>,
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
    /// Where to; length 0 is the default route.
    pub to: Prefix,
    /// The neighbour that forwards.
    pub via: IpAddr,
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
    /// The bridges in the order of the file.
    pub bridges: Vec<BridgeSpec>,
    /// The routes in the order of the file.
    pub routes: Vec<RouteSpec>,
    /// The settings in the order of the file.
    pub sysctls: Vec<SysctlSpec>,
}

impl Topology {
    /// Reads a topology from a file, or a built-in one by its name (`pair`, `bridge`, `router`, `bottleneck`,
    /// `line3`, `null`, `switch`, `ovs`). A word without `/` and `.` that names a built-in lab means that; write `./pair` for a file.
    ///
    /// # Errors
    /// An input problem when there is no such file or its text is wrong, with file, line and column.
    pub fn load(file_or_builtin: &str) -> Result<Self> {
        if let Some(text) = Self::builtin(file_or_builtin) {
            return Self::parse(text, file_or_builtin);
        }
        let text = std::fs::read_to_string(file_or_builtin).map_err(|error| {
            let names: Vec<_> = Self::builtin_names().collect();
            Problem::input(format!("cannot read the topology: {error}"))
                .at(file_or_builtin)
                .help(format!("give a file, or one of the built-in labs {}", names.join(", ")))
        })?;
        let mut topology = Self::parse(&text, file_or_builtin)?;
        topology.read_rules(Path::new(file_or_builtin).parent().unwrap_or(Path::new("")))?;
        Ok(topology)
    }

    /// Puts the rules of files in the place of the files' names; these are relative to the topology's folder.
    fn read_rules(&mut self, folder: &Path) -> Result<()> {
        for forwarder in self.nodes.iter_mut().filter_map(|node| node.forwarder.as_mut()) {
            let mut rules = vec![];
            for file in std::mem::take(&mut forwarder.files) {
                let path = folder.join(&file);
                let text = std::fs::read_to_string(&path).map_err(|error| {
                    Problem::input(format!("cannot read the rules: {error}"))
                        .at(path.display().to_string())
                        .help("the name is relative to the folder of the topology")
                })?;
                rules.extend(rule_lines(&text));
            }
            rules.append(&mut forwarder.rules);
            forwarder.rules = rules;
        }
        Ok(())
    }

    /// Parses the text of a topology; `file_name` is what problems call it. Files of rules are not read.
    ///
    /// # Errors
    /// An input problem with `file:line:column` for the first thing that is wrong.
    pub fn parse(text: &str, file_name: &str) -> Result<Self> {
        parse::topology(text, file_name)
    }

    /// The text of a built-in lab.
    pub fn builtin(name: &str) -> Option<&'static str> {
        BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// The names of the built-in labs.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// The name that a lab of this file gets when none is given: the file's stem.
    pub fn default_name(file_or_builtin: &str) -> String {
        let stem = Path::new(file_or_builtin).file_stem().and_then(|stem| stem.to_str());
        stem.unwrap_or(file_or_builtin).to_string()
    }

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

    /// Every interface of a node: the ends of its links, then its bridges.
    pub fn interfaces<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a InterfaceSpec> {
        self.ends().chain(self.bridges.iter().map(|bridge| &bridge.interface)).filter(move |i| i.node == node)
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

    /// The bridge that this interface is a port of.
    pub fn bridge_of(&self, node: &str, port: &str) -> Option<&BridgeSpec> {
        self.bridges.iter().find(|b| b.interface.node == node && b.ports.iter().any(|name| name == port))
    }

    /// True when any interface has an address of the family (4 or 6).
    pub fn has_family(&self, family: u8) -> bool {
        self.nodes.iter().any(|node| self.interfaces(&node.name).any(|i| i.has_family(family)))
    }
}

impl fmt::Display for Topology {
    /// The canonical text: one statement for each thing, options in a fixed order. What both ends of a link share is
    /// said once, with the link.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            writeln!(f, "{} {}", node.word(), node.name)?;
        }
        for LinkSpec { ends: [a, b] } in &self.links {
            let (a_own, b_own) = (shared_options(a), shared_options(b));
            let both: String =
                a_own.iter().filter(|option| b_own.contains(option)).map(String::as_str).collect();
            writeln!(f, "link {} -- {}{both}", a.place(), b.place())?;
        }
        for bridge in &self.bridges {
            let BridgeSpec { interface, ports } = bridge;
            writeln!(f, "bridge {} on {} ports {}", interface.name, interface.node, ports.join(" "))?;
        }
        for LinkSpec { ends: [a, b] } in &self.links {
            write_interface(f, a, &shared_options(b))?;
            write_interface(f, b, &shared_options(a))?;
        }
        for bridge in &self.bridges {
            write_interface(f, &bridge.interface, &[])?;
        }
        for RouteSpec { node, to, via } in &self.routes {
            match to.length {
                0 => writeln!(f, "route on {node} default via {via}")?,
                _ => writeln!(f, "route on {node} {to} via {via}")?,
            }
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

/// The options of an end that may also stand with its link, each with a space before it.
fn shared_options(end: &InterfaceSpec) -> Vec<String> {
    let mut options = vec![];
    let mut number = |word: &str, value: Option<u32>| options.extend(value.map(|v| format!(" {word} {v}")));
    number("mtu", end.mtu);
    number("txqueuelen", end.tx_queue_len);
    number("queues", end.queues);
    let switch = |on: bool| if on { "on" } else { "off" };
    match end.offloads.values().next() {
        Some(&first)
            if end.offloads.len() == Offload::ALL.len() && end.offloads.values().all(|&on| on == first) =>
        {
            options.push(format!(" offload {}", switch(first)));
        }
        _ => options
            .extend(end.offloads.iter().map(|(offload, &on)| format!(" {} {}", offload.word(), switch(on)))),
    }
    if let Some(Shaper { rate_bps, limit_bytes, burst_bytes }) = end.shaper {
        let rate =
            scaled(rate_bps, &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)]);
        let size = |bytes: u32| scaled(u64::from(bytes), &[("MB", 1_000_000), ("kB", 1000), ("B", 1)]);
        options.push(format!(" rate {rate} limit {} burst {}", size(limit_bytes), size(burst_bytes)));
    }
    options
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
