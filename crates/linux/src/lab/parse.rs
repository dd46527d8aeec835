//! From the text of a topology to [`Topology`].
//!
//! **What.** One statement a line (`docs/topology.md` has the grammar). The lines are read in five passes (nodes,
//! links, bridges, interfaces, then routes and settings), so a file may say things in any order.
//!
//! **Why by hand.** The language is a dozen words; each wrong one is refused with its line, its column and what
//! would be right. No text makes it panic.
//!
//! **Price.** With several mistakes in a file, the first one reported is that of the earliest pass, not always that of
//! the earliest line.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use record::line::{self, Word};
use record::{PortKind, Problem, Result, unit};

use super::forwarder::{Forwarder, ForwarderKind};
use super::topology::{
    BridgeSpec, InterfaceSpec, LinkSpec, Mac, NodeSpec, OffloadFeature, Prefix, RouteSpec, Shaper,
    SysctlSpec, Topology,
};

/// The longest interface name (`IFNAMSIZ` is 16 with the final zero).
const LONGEST_INTERFACE: usize = 15;
/// The longest name of a node or a lab.
pub(super) const LONGEST_NAME: usize = 32;
/// More than that does not fit a machine's patience; the kernel's own limits are higher.
const MOST_NODES: usize = 256;
/// A veth takes 68 to 65535 (`drivers/net/veth.c`, `ETH_MIN_MTU`, `ETH_MAX_MTU`).
const MTU: std::ops::RangeInclusive<u32> = 68..=65535;
/// IPv6 needs so much (RFC 8200 section 5); below, the kernel switches it off on the interface.
const MTU_V6: u32 = 1280;

/// Statements that declare nodes.
const NODES: &[&str] = &["node", "router", "null", "switch", "ovs"];
/// Statements about what was declared.
const REST: &[&str] = &["route", "sysctl", "ports", "fail", "scenario", "rule", "rules"];
/// What a controller of the lab can do (`pathlab controller`).
const SCENARIOS: [&str; 4] = ["iperf", "learning", "hub", "drop-all"];

/// One line being read.
struct Line<'a> {
    line: line::Line<'a>,
    /// The word that comes next.
    next: usize,
}

/// What is known while the text is read.
struct Reader<'a> {
    file: &'a str,
    topology: Topology,
    /// Options said with an `interface`, to refuse the second time: (node:interface, option).
    said: HashSet<(String, String)>,
}

/// Parses the text of a topology.
pub(super) fn topology(text: &str, file: &str) -> Result<Topology> {
    let mut lines: Vec<Line> = line::lines(text).map(|line| Line { line, next: 1 }).collect();
    let mut reader = Reader { file, topology: Topology::default(), said: HashSet::new() };
    for words in [NODES, &["link"], &["bridge"], &["interface"], REST] {
        for line in lines.iter_mut().filter(|line| words.contains(&line.first().text)) {
            reader.statement(line)?;
        }
        if words == NODES {
            reader.refuse_unknown(&lines)?;
        }
    }
    reader.check_whole()?;
    Ok(reader.topology)
}

impl<'a> Line<'a> {
    fn first(&self) -> Word<'a> {
        self.line.words[0]
    }

    fn peek(&self) -> Option<Word<'a>> {
        self.line.words.get(self.next).copied()
    }

    fn take(&mut self) -> Option<Word<'a>> {
        let word = self.peek();
        self.next += usize::from(word.is_some());
        word
    }
}

impl<'a> Reader<'a> {
    fn problem(&self, word: Word, what: impl Into<String>) -> Problem {
        word.problem(self.file, what)
    }

    fn want(&self, line: &mut Line<'a>, what: &str) -> Result<Word<'a>> {
        line.take().ok_or_else(|| {
            let place = format!("{}:{}:{}", self.file, line.line.number, line.line.end_column());
            Problem::input(format!("{what} is missing")).at(place)
        })
    }

    fn keyword(&self, line: &mut Line<'a>, keyword: &str) -> Result<()> {
        let word = self.want(line, &format!("'{keyword}'"))?;
        if word.text == keyword {
            return Ok(());
        }
        Err(self.problem(word, format!("expected '{keyword}', found '{}'", word.text)))
    }

    fn refuse_unknown(&self, lines: &[Line<'a>]) -> Result<()> {
        let known: Vec<&str> = [NODES, &["link", "bridge", "interface"], REST].concat();
        if let Some(line) = lines.iter().find(|line| !known.contains(&line.first().text)) {
            let problem = self.problem(line.first(), format!("unknown statement '{}'", line.first().text));
            return Err(problem.help(format!("a line begins with one of {}", known.join(", "))));
        }
        Ok(())
    }

    fn statement(&mut self, line: &mut Line<'a>) -> Result<()> {
        match line.first().text {
            word if NODES.contains(&word) => self.nodes(line, word)?,
            "link" => self.link(line)?,
            "bridge" => self.bridge(line)?,
            "interface" => self.interface(line)?,
            "route" => self.route(line)?,
            "sysctl" => self.sysctl(line)?,
            word => self.forwarder(line, word)?,
        }
        match line.peek() {
            Some(word) => Err(self.problem(word, format!("unexpected '{}'", word.text))),
            None => Ok(()),
        }
    }

    /// `node NAME…`, `router NAME…`, `switch NAME…` and the like.
    fn nodes(&mut self, line: &mut Line<'a>, kind: &str) -> Result<()> {
        let mut word = self.want(line, "the node's name")?;
        loop {
            if let Err(why) = node_name(word.text) {
                return Err(self.problem(word, why));
            }
            if self.topology.node(word.text).is_some() {
                return Err(self.problem(word, format!("there is already a node '{}'", word.text)));
            }
            if self.topology.nodes.len() == MOST_NODES {
                return Err(self.problem(word, format!("a lab has at most {MOST_NODES} nodes")));
            }
            let forwarder = ForwarderKind::of(kind).map(Forwarder::new);
            self.topology.nodes.push(NodeSpec {
                name: word.text.into(),
                router: kind == "router",
                forwarder,
            });
            match line.take() {
                Some(next) => word = next,
                None => return Ok(()),
            }
        }
    }

    /// A node that was declared.
    fn known_node(&self, word: Word<'a>, name: &'a str) -> Result<&'a str> {
        if self.topology.node(name).is_some() {
            return Ok(name);
        }
        let names: Vec<_> = self.topology.nodes.iter().map(|node| node.name.as_str()).collect();
        let problem = self.problem(word, format!("unknown node '{name}'"));
        Err(match names.is_empty() {
            true => problem.help(format!("declare it with 'node {name}'")),
            false => problem.help(format!("the nodes are {}", names.join(", "))),
        })
    }

    /// `on NODE`.
    fn on_node(&self, line: &mut Line<'a>) -> Result<&'a str> {
        self.keyword(line, "on")?;
        let word = self.want(line, "the node's name")?;
        self.known_node(word, word.text)
    }

    /// `NODE:INTERFACE`, with the node known and the name possible.
    fn place(&self, word: Word<'a>) -> Result<(&'a str, &'a str)> {
        let Some((node, interface)) = word.text.split_once(':') else {
            let problem = self.problem(word, format!("'{}' is not an interface of a node", word.text));
            return Err(problem.help("write NODE:INTERFACE, for example a:eth0"));
        };
        self.known_node(word, node)?;
        interface_name(interface).map_err(|why| self.problem(word, why))?;
        Ok((node, interface))
    }

    fn refuse_used(&self, word: Word, node: &str, interface: &str) -> Result<()> {
        if self.topology.interfaces(node).any(|known| known.name == interface) {
            let what = format!("there is already an interface {node}:{interface}");
            return Err(self.problem(word, what).help("give each end of a link a name of its own"));
        }
        Ok(())
    }

    /// `link A:IF -- B:IF OPTION…`.
    fn link(&mut self, line: &mut Line<'a>) -> Result<()> {
        let left = self.want(line, "the first end")?;
        let (a_node, a_name) = self.place(left)?;
        self.keyword(line, "--")?;
        let right = self.want(line, "the second end")?;
        let (b_node, b_name) = self.place(right)?;
        self.refuse_used(left, a_node, a_name)?;
        self.refuse_used(right, b_node, b_name)?;
        if (a_node, a_name) == (b_node, b_name) {
            return Err(self.problem(right, format!("both ends of the link are {}", right.text)));
        }
        let mut shared = InterfaceSpec::new("", "");
        let mut said = HashSet::new();
        while let Some(word) = line.take() {
            if ["address", "mac"].contains(&word.text) {
                let problem =
                    self.problem(word, format!("'{}' belongs to one end and not to a link", word.text));
                return Err(problem.help(format!("write 'interface {} {} …'", left.text, word.text)));
            }
            if !said.insert(word.text) {
                return Err(self.problem(word, format!("'{}' is said twice", word.text)));
            }
            self.option(line, word, &mut shared)?;
        }
        let end =
            |node: &str, name: &str| InterfaceSpec { node: node.into(), name: name.into(), ..shared.clone() };
        self.topology.links.push(LinkSpec { ends: [end(a_node, a_name), end(b_node, b_name)] });
        Ok(())
    }

    /// `bridge NAME on NODE ports IF…`.
    fn bridge(&mut self, line: &mut Line<'a>) -> Result<()> {
        let name = self.want(line, "the bridge's name")?;
        interface_name(name.text).map_err(|why| self.problem(name, why))?;
        let node = self.on_node(line)?;
        self.refuse_used(name, node, name.text)?;
        self.keyword(line, "ports")?;
        let mut ports: Vec<String> = vec![];
        let mut next = Some(self.want(line, "the first port")?);
        while let Some(word) = next {
            if !self.topology.ends().any(|end| end.node == node && end.name == word.text) {
                let names: Vec<_> = self.topology.interfaces(node).map(|end| end.name.as_str()).collect();
                let problem =
                    self.problem(word, format!("node '{node}' has no link with an end '{}'", word.text));
                return Err(problem.help(format!("its ends are: {}", names.join(", "))));
            }
            if ports.iter().any(|port| port == word.text)
                || self.topology.bridge_of(node, word.text).is_some()
            {
                return Err(self.problem(word, format!("{node}:{} is already a port of a bridge", word.text)));
            }
            ports.push(word.text.into());
            next = line.take();
        }
        self.topology.bridges.push(BridgeSpec { interface: InterfaceSpec::new(node, name.text), ports });
        Ok(())
    }

    /// `interface NODE:IF OPTION…`.
    fn interface(&mut self, line: &mut Line<'a>) -> Result<()> {
        let word = self.want(line, "the interface")?;
        let (node, name) = self.place(word)?;
        let Some(known) = self.topology.interfaces(node).find(|interface| interface.name == name) else {
            let names: Vec<_> = self.topology.interfaces(node).map(InterfaceSpec::place).collect();
            let problem = self.problem(word, format!("unknown interface '{}'", word.text));
            return Err(match names.is_empty() {
                true => {
                    problem.help(format!("node '{node}' has none; make one with 'link {} -- …'", word.text))
                }
                false => problem.help(format!("the interfaces of node '{node}' are {}", names.join(", "))),
            });
        };
        let mut spec = known.clone();
        let is_bridge = self.topology.bridges.iter().any(|bridge| bridge.interface == *known);
        let mut option = self.want(line, "an option")?;
        loop {
            if is_bridge && !["mtu", "txqueuelen", "address", "mac"].contains(&option.text) {
                let what = format!("'{}' cannot be said of a bridge", option.text);
                return Err(self.problem(option, what).help("say it of its ports"));
            }
            let twice = !self.said.insert((spec.place(), option.text.into()));
            if twice && option.text != "address" {
                return Err(self.problem(option, format!("'{}' is said twice of {}", option.text, word.text)));
            }
            self.option(line, option, &mut spec)?;
            match line.take() {
                Some(next) => option = next,
                None => break,
            }
        }
        self.check_interface(word, &spec)?;
        self.replace(spec);
        Ok(())
    }

    fn replace(&mut self, spec: InterfaceSpec) {
        let links = self.topology.links.iter_mut().flat_map(|link| &mut link.ends);
        let bridges = self.topology.bridges.iter_mut().map(|bridge| &mut bridge.interface);
        for known in links.chain(bridges).filter(|known| known.place() == spec.place()) {
            known.clone_from(&spec);
        }
    }

    /// One option with what follows it.
    fn option(&self, line: &mut Line<'a>, word: Word<'a>, spec: &mut InterfaceSpec) -> Result<()> {
        match word.text {
            "mtu" => spec.mtu = Some(self.number(line, "the MTU", *MTU.start(), *MTU.end())?),
            "txqueuelen" => spec.tx_queue_len = Some(self.number(line, "the queue length", 0, 1_000_000)?),
            "queues" => spec.queues = Some(self.number(line, "the number of queues", 1, 64)?),
            "rate" => spec.shaper = Some(self.shaper(line)?),
            "mac" => spec.mac = Some(self.mac(line)?),
            "address" => self.addresses(line, spec)?,
            "offload" => {
                let on = self.switch(line)?;
                spec.offloads = OffloadFeature::ALL.into_iter().map(|offload| (offload, on)).collect();
            }
            text => match OffloadFeature::ALL.into_iter().find(|offload| offload.word() == text) {
                Some(offload) => {
                    let on = self.switch(line)?;
                    spec.offloads.insert(offload, on);
                }
                None => {
                    let offloads: Vec<_> = OffloadFeature::ALL.iter().map(|offload| offload.word()).collect();
                    return Err(self.problem(word, format!("unknown option '{text}'")).help(format!(
                        "the options are mtu, txqueuelen, queues, rate, address, mac, offload, {}",
                        offloads.join(", ")
                    )));
                }
            },
        }
        Ok(())
    }

    fn number(&self, line: &mut Line<'a>, what: &str, from: u32, to: u32) -> Result<u32> {
        let word = self.want(line, what)?;
        let digits = word.text.bytes().all(|byte| byte.is_ascii_digit());
        match word.text.parse() {
            Ok(value) if digits && (from..=to).contains(&value) => Ok(value),
            _ => {
                Err(self
                    .problem(word, format!("{what} is a number from {from} to {to}, not '{}'", word.text)))
            }
        }
    }

    fn switch(&self, line: &mut Line<'a>) -> Result<bool> {
        let word = self.want(line, "'on' or 'off'")?;
        match word.text {
            "on" => Ok(true),
            "off" => Ok(false),
            other => Err(self.problem(word, format!("expected 'on' or 'off', found '{other}'"))),
        }
    }

    /// `RATE limit BYTES burst BYTES`.
    fn shaper(&self, line: &mut Line<'a>) -> Result<Shaper> {
        const EXAMPLE: &str = "write for example 'rate 100mbit limit 30kB burst 5kB'";
        let word = self.want(line, "the rate").map_err(|problem| problem.help(EXAMPLE))?;
        let rate_bps = match unit::bit_rate(word.text) {
            Ok(rate) if rate >= 8 && rate.is_multiple_of(8) => rate,
            Ok(_) => {
                return Err(
                    self.problem(word, "the rate must be a whole number of bytes each second, above 0")
                );
            }
            Err(what) => return Err(self.problem(word, what).help(EXAMPLE)),
        };
        let mut size = |keyword: &str| -> Result<u32> {
            self.keyword(line, keyword).map_err(|problem| problem.help(EXAMPLE))?;
            let word = self.want(line, "a number of bytes")?;
            let bytes = unit::bytes(word.text)
                .ok()
                .filter(|&bytes| bytes > 0)
                .and_then(|bytes| u32::try_from(bytes).ok());
            bytes.ok_or_else(|| {
                self.problem(word, format!("'{}' is not a number of bytes from 1B to 4294MB", word.text))
                    .help(EXAMPLE)
            })
        };
        Ok(Shaper { rate_bps, limit_bytes: size("limit")?, burst_bytes: size("burst")? })
    }

    fn mac(&self, line: &mut Line<'a>) -> Result<Mac> {
        let word = self.want(line, "the hardware address")?;
        let parts: Vec<_> = word.text.split(':').collect();
        let byte = |part: &&str| match part.len() {
            2 if part.bytes().all(|byte| byte.is_ascii_hexdigit()) => u8::from_str_radix(part, 16).ok(),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = parts.iter().map(byte).collect();
        match bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok()) {
            Some(mac) if mac[0] & 1 == 0 && mac != [0; 6] => Ok(Mac(mac)),
            _ => Err(self
                .problem(word, format!("'{}' is not the hardware address of one interface", word.text))
                .help("write six bytes, the first even, for example 02:00:00:00:00:01")),
        }
    }

    /// `ADDRESS/LENGTH…`: every following word with a slash.
    fn addresses(&self, line: &mut Line<'a>, spec: &mut InterfaceSpec) -> Result<()> {
        let first = self.want(line, "the address")?;
        let mut next = Some(first);
        while let Some(word) = next {
            let prefix = self.prefix(word)?;
            host_address(prefix).map_err(|why| self.problem(word, why))?;
            let nodes = self.topology.nodes.iter();
            let owner = nodes
                .flat_map(|node| self.topology.interfaces(&node.name))
                .chain([&*spec])
                .find(|known| known.addresses.iter().any(|other| other.address == prefix.address));
            if let Some(owner) = owner {
                return Err(self
                    .problem(word, format!("{} already has the address {}", owner.place(), prefix.address)));
            }
            spec.addresses.push(prefix);
            next = line.peek().filter(|word| word.text.contains('/'));
            line.next += usize::from(next.is_some());
        }
        Ok(())
    }

    fn prefix(&self, word: Word<'a>) -> Result<Prefix> {
        let bad = || {
            self.problem(word, format!("'{}' is not an address with a prefix length", word.text))
                .help("write for example 10.0.0.1/24 or fd00::1/64")
        };
        let (address, length) = word.text.split_once('/').ok_or_else(bad)?;
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        match length.parse() {
            Ok(length) if length <= most && word.text.bytes().all(|byte| byte != b'+') => {
                Ok(Prefix { address, length })
            }
            _ => Err(bad()),
        }
    }

    /// `route on NODE PREFIX via ADDRESS`, `route on NODE default via ADDRESS`.
    fn route(&mut self, line: &mut Line<'a>) -> Result<()> {
        let node = self.on_node(line)?;
        let to = self.want(line, "the network or 'default'")?;
        self.keyword(line, "via")?;
        let word = self.want(line, "the next node's address")?;
        let via: IpAddr = word
            .text
            .parse()
            .map_err(|_| self.problem(word, format!("'{}' is not an address", word.text)))?;
        let everywhere = match via {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        };
        let to_prefix = match to.text {
            "default" => Prefix { address: everywhere, length: 0 },
            _ => self.prefix(to)?,
        };
        if to_prefix.address != to_prefix.network() {
            let right = Prefix { address: to_prefix.network(), length: to_prefix.length };
            return Err(self
                .problem(to, format!("'{}' is an address and not a network", to.text))
                .help(format!("write {right}")));
        }
        if to_prefix.address.is_ipv4() != via.is_ipv4() {
            return Err(self
                .problem(word, format!("the way to {} cannot lead over {via}", to.text))
                .help("use two addresses of the same version of IP"));
        }
        let near = self.topology.interfaces(node).flat_map(|i| &i.addresses).any(|own| own.contains(via));
        if !near {
            return Err(self
                .problem(word, format!("{via} is in no network of node '{node}'"))
                .help("give a neighbour's address"));
        }
        if self.topology.routes.iter().any(|route| route.node == node && route.to == to_prefix) {
            return Err(self.problem(to, format!("node '{node}' already has a route to {}", to.text)));
        }
        self.topology.routes.push(RouteSpec { node: node.into(), to: to_prefix, via });
        Ok(())
    }

    /// `sysctl on NODE KEY=VALUE`.
    fn sysctl(&mut self, line: &mut Line<'a>) -> Result<()> {
        let node = self.on_node(line)?;
        let word = self.want(line, "the setting")?;
        let Some((key, first)) = word.text.split_once('=') else {
            return Err(self
                .problem(word, format!("'{}' has no value", word.text))
                .help("write for example net.ipv4.ip_forward=1, without spaces around '='"));
        };
        sysctl_key(key).map_err(|why| self.problem(word, why))?;
        let mut value = first.to_string();
        while let Some(more) = line.take() {
            value = format!("{value} {}", more.text);
        }
        if first.is_empty() {
            return Err(self.problem(word, format!("'{key}' has no value")));
        }
        if self.topology.sysctls.iter().any(|known| known.node == node && known.key == key) {
            return Err(self.problem(word, format!("'{key}' is said twice of node '{node}'")));
        }
        self.topology.sysctls.push(SysctlSpec { node: node.into(), key: key.into(), value });
        Ok(())
    }

    /// `ports on NODE KIND`, `fail on NODE secure|standalone`, `scenario on NODE NAME`, `rule on NODE RULE`,
    /// `rules on NODE FILE`.
    fn forwarder(&mut self, line: &mut Line<'a>, statement: &str) -> Result<()> {
        let node = self.on_node(line)?;
        let about = line.line.words[2];
        let Some(mut forwarder) = self.topology.forwarder(node).cloned() else {
            let what = format!("'{statement}' is said of '{node}', where no program hands frames on");
            return Err(self.problem(about, what).help("declare it with 'switch', 'ovs' or 'null'"));
        };
        let kind = forwarder.kind;
        let possible = match statement {
            "ports" => kind != ForwarderKind::Ovs,
            _ => kind.has_rules(),
        };
        if !possible {
            let what = format!("'{statement}' cannot be said of a node of kind '{}'", kind.word());
            return Err(self.problem(about, what));
        }
        let once = ["ports", "fail", "scenario"].contains(&statement);
        if once && !self.said.insert((node.into(), statement.into())) {
            return Err(self.problem(about, format!("'{statement}' is said twice of node '{node}'")));
        }
        let word = self.want(line, "the value")?;
        let one_of = |what: &str, known: &[&str]| -> Result<()> {
            let name = word.text.split('?').next().unwrap_or_default();
            if known.contains(&name) {
                return Ok(());
            }
            Err(self.problem(word, format!("unknown {what} '{}'", word.text)).help(known.join(", ")))
        };
        match statement {
            "ports" => {
                one_of("kind of ports", &PortKind::names(PortKind::carries_links))?;
                forwarder.ports = word.text.into();
            }
            "fail" => {
                one_of("way to fail", &["secure", "standalone"])?;
                forwarder.standalone = word.text == "standalone";
            }
            "scenario" => {
                one_of("scenario", &SCENARIOS)?;
                forwarder.scenario = Some(word.text.into());
            }
            "rules" => forwarder.files.push(word.text.into()),
            _ => {
                let more = std::iter::from_fn(|| line.take()).map(|word| word.text);
                forwarder.rules.push([word.text].into_iter().chain(more).collect::<Vec<_>>().join(" "));
            }
        }
        let known = self.topology.nodes.iter_mut().find(|known| known.name == node);
        known.into_iter().for_each(|known| known.forwarder = Some(forwarder.clone()));
        Ok(())
    }

    /// A program takes all frames of its node's links: the kernel there must not answer, too.
    fn check_forwarder(&self, spec: &NodeSpec, forwarder: &Forwarder) -> Result<()> {
        let (name, kind) = (&spec.name, forwarder.kind.word());
        let ends: Vec<&InterfaceSpec> = self.topology.interfaces(name).collect();
        let problem = |what: String, help: &str| Err(Problem::input(what).at(self.file).help(help));
        if self.topology.bridges.iter().any(|bridge| bridge.interface.node == *name) {
            return problem(
                format!("node '{name}' of kind '{kind}' has a bridge"),
                "put it into another node",
            );
        }
        if let Some(end) = ends.iter().find(|end| !end.addresses.is_empty()) {
            let what = format!("{} has an address, but a program takes its frames", end.place());
            return problem(what, "give the address to a host");
        }
        if forwarder.scenario.is_some() && !(forwarder.rules.is_empty() && forwarder.files.is_empty()) {
            let what = format!("node '{name}' has rules and a scenario, whose controller deletes all rules");
            return problem(what, "keep one of them");
        }
        match (forwarder.kind, ends.len()) {
            (ForwarderKind::Null, ends) if ends != 2 => {
                problem(format!("node '{name}' of kind 'null' has {ends} links"), "it needs exactly 2")
            }
            (_, 0) => problem(format!("node '{name}' of kind '{kind}' has no link"), "link it to something"),
            _ => Ok(()),
        }
    }

    /// What can be judged only when all options of an interface are known.
    fn check_interface(&self, word: Word, spec: &InterfaceSpec) -> Result<()> {
        if spec.has_family(6) && spec.mtu.is_some_and(|mtu| mtu < MTU_V6) {
            let what =
                format!("{} has an IPv6 address, which needs an MTU of {MTU_V6} or more", spec.place());
            return Err(self.problem(word, what));
        }
        if !spec.addresses.is_empty() && self.topology.bridge_of(&spec.node, &spec.name).is_some() {
            let what = format!("{} is a port of a bridge and cannot have an address", spec.place());
            return Err(self.problem(word, what).help("give the address to the bridge"));
        }
        Ok(())
    }

    fn check_whole(&self) -> Result<()> {
        if self.topology.nodes.is_empty() {
            return Err(Problem::input("it has no nodes").at(self.file).help("begin with 'node a b'"));
        }
        for node in &self.topology.nodes {
            node.forwarder.as_ref().map_or(Ok(()), |forwarder| self.check_forwarder(node, forwarder))?;
        }
        for end in self.topology.ends() {
            let frame = end.mtu.unwrap_or(super::topology::DEFAULT_MTU) + 14;
            if let Some(shaper) =
                end.shaper.filter(|shaper| shaper.burst_bytes.min(shaper.limit_bytes) < frame)
            {
                let (limit, burst) = (shaper.limit_bytes, shaper.burst_bytes);
                return Err(Problem::input(format!(
                    "the rate limit of {} has a limit of {limit} B and a burst of {burst} B, but a full frame is {frame} B \
                     and would never leave",
                    end.place()
                ))
                .at(self.file)
                .help("make limit and burst larger, or the MTU smaller"));
            }
        }
        Ok(())
    }
}

/// A name that can be a part of a path and of `pathlab-LAB-NODE` without doubt: no `-` in a node's name.
fn node_name(name: &str) -> Result<(), String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(good) {
        return Err(format!(
            "'{name}' cannot be a node's name: use 1 to {LONGEST_NAME} letters, digits and '_'"
        ));
    }
    Ok(())
}

fn interface_name(name: &str) -> Result<(), String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.len() > LONGEST_INTERFACE {
        return Err(format!(
            "the interface name '{name}' has {} bytes, the kernel takes {LONGEST_INTERFACE}",
            name.len()
        ));
    }
    if !name.bytes().all(good) || !name.starts_with(|char: char| char.is_ascii_alphanumeric()) {
        return Err(format!(
            "'{name}' cannot be an interface name: letters, digits, '_', '-' and '.', a letter first"
        ));
    }
    if ["lo", "all", "default"].contains(&name) {
        return Err(format!("'{name}' cannot be an interface name: the kernel uses it for something else"));
    }
    Ok(())
}

/// Only settings that belong to a network namespace, and no way out of their directory.
fn sysctl_key(key: &str) -> Result<(), String> {
    let separator = if key.contains('/') { '/' } else { '.' };
    let parts: Vec<_> = key.split(separator).collect();
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let sound = |part: &&str| !part.is_empty() && *part != "." && *part != ".." && part.bytes().all(good);
    if parts.len() < 2 || parts[0] != "net" || !parts.iter().all(sound) {
        return Err(format!(
            "'{key}' is not a setting under 'net': others would change this machine and not a node"
        ));
    }
    Ok(())
}

/// An address that an interface can have.
fn host_address(prefix: Prefix) -> Result<(), String> {
    let Prefix { address, length } = prefix;
    let bad = match address {
        IpAddr::V4(v4) => {
            let last = u32::from(v4) | u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
            let edge = length < 31 && (prefix.network() == address || u32::from(v4) == last);
            v4.is_unspecified() || v4.is_multicast() || v4.is_loopback() || v4.is_broadcast() || edge
        }
        IpAddr::V6(v6) => {
            v6.is_unspecified() || v6.is_multicast() || v6.is_loopback() || v6.to_ipv4_mapped().is_some()
        }
    };
    if bad || length == 0 {
        return Err(format!("{prefix} cannot be the address of an interface"));
    }
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            Err("link-local addresses are given by pathlab itself; use another, for example fd00::1/64"
                .into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
