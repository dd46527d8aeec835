//! From the text of a topology to [`Topology`].
//!
//! **What.** One statement a line (`docs/topology.md` has the grammar). The lines are read in six passes (nodes,
//! links, interfaces over others, bridges, options of interfaces, then routes and settings), so a file may say things in any order.
//!
//! **Why by hand.** The language is a dozen words; each wrong one is refused with its line, its column and what
//! would be right. No text makes it panic.
//!
//! **Price.** With several mistakes in a file, the first one reported is that of the earliest pass, not always that of
//! the earliest line.

mod machine;
mod route;
mod upper;

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use record::line::{self, Word};
use record::{PortKind, Problem, Result, unit};

use super::forwarder::{Forwarder, ForwarderKind};
use crate::netlink::{BOND_MODES, netem};

use super::topology::{
    BridgeSpec, DEFAULT_MTU, InterfaceSpec, LinkSpec, Mac, NodeSpec, OffloadFeature, Prefix, Shaper,
    SysctlSpec, Topology, UpperKind,
};

/// The longest interface name (`IFNAMSIZ` is 16 with the final zero).
const LONGEST_INTERFACE: usize = 15;
/// The longest name of a node or a lab.
pub(super) const LONGEST_NAME: usize = 32;
/// More than that does not fit a machine's patience; the kernel's own limits are higher.
const MOST_NODES: usize = 256;
/// A veth takes 68 to 65535 (`drivers/net/veth.c`, `ETH_MIN_MTU`, `ETH_MAX_MTU`).
const MTU: RangeInclusive<u32> = 68..=65535;
/// As of a `fault:` port.
const LONGEST_DELAY_NS: u64 = 60_000_000_000;
/// IPv6 needs so much (RFC 8200 section 5); below, the kernel switches it off on the interface.
const MTU_V6: u32 = 1280;

/// Statements that declare nodes.
const NODES: &[&str] = &["node", "router", "null", "switch", "ovs", "vm"];
/// Statements that make an interface over another one.
const UPPERS: &[&str] = &["vxlan", "macvlan", "ipvlan", "vlan"];
/// Statements that make one interface over several.
const BRIDGES: &[&str] = &["bridge", "bond"];
/// Statements about what was declared.
const REST: &[&str] = &["route", "policy", "sysctl", "ports", "engine", "fail", "scenario", "rule", "rules"];
/// What a controller of the lab can do (`pathlab controller`).
const SCENARIOS: [&str; 4] = ["iperf", "learning", "hub", "drop-all"];
/// What may carry out the rules of our switch; the table of the crate `switch` has the same names.
const ENGINES: [&str; 5] = ["interpreter", "native", "xdp", "tcx", "auto"];
/// Kinds of ports that Open vSwitch's datapath in user space has, by our names.
const OVS_PORTS: [&str; 2] = ["int", "xdp"];

/// One line being read.
struct Line<'a> {
    file: &'a str,
    line: line::Line<'a>,
    /// The word that comes next.
    next: usize,
}

/// What is known while the text is read.
struct Reader {
    topology: Topology,
    /// Options said with an `interface`, to refuse the second time: (node:interface, option).
    said: HashSet<(String, String)>,
}

impl Topology {
    /// Parses the text of a topology; `file` is what problems call it. Files of rules are not read.
    ///
    /// # Errors
    /// An input problem with `file:line:column` for the first thing that is wrong.
    pub fn parse(text: &str, file: &str) -> Result<Topology> {
        let mut lines: Vec<Line> = line::lines(text).map(|line| Line { file, line, next: 1 }).collect();
        let mut reader = Reader { topology: Topology::default(), said: HashSet::new() };
        for words in [NODES, &["link"], UPPERS, BRIDGES, &["interface"], REST] {
            for line in lines.iter_mut().filter(|line| words.contains(&line.first().text)) {
                reader.statement(line)?;
            }
            if words == NODES {
                lines.iter().try_for_each(Line::refuse_unknown)?;
            }
            if words == ["interface"] {
                let uppers = lines.iter().filter(|line| UPPERS.contains(&line.first().text));
                uppers.into_iter().try_for_each(|line| reader.check_upper(line))?;
            }
        }
        check_whole(&reader.topology).map_err(|problem| problem.at(file))?;
        Ok(reader.topology)
    }
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

    fn problem(&self, word: Word, what: impl Into<String>) -> Problem {
        word.problem(self.file, what)
    }

    /// What a word means, or why it is refused; the help may be empty.
    fn meaning<T>(&self, it: Option<T>, word: Word, what: impl Into<String>, help: &str) -> Result<T> {
        it.ok_or_else(|| self.problem(word, what).help(help))
    }

    /// Refuses a word that is wrong; the help may be empty.
    fn refuse_if(&self, wrong: bool, word: Word, what: impl Into<String>, help: &str) -> Result<()> {
        self.meaning((!wrong).then_some(()), word, what, help)
    }

    fn want(&mut self, what: &str) -> Result<Word<'a>> {
        self.take().ok_or_else(|| {
            let place = format!("{}:{}:{}", self.file, self.line.number, self.line.end_column());
            Problem::input(format!("{what} is missing")).at(place)
        })
    }

    /// All words that are left, one at least.
    fn rest(&mut self, what: &str) -> Result<Vec<Word<'a>>> {
        let first = self.want(what)?;
        Ok([first].into_iter().chain(std::iter::from_fn(|| self.take())).collect())
    }

    /// A text and all words that are left, with one space between them.
    fn joined(&mut self, first: &str) -> String {
        let more = std::iter::from_fn(|| self.take()).map(|word| word.text);
        [first].into_iter().chain(more).collect::<Vec<_>>().join(" ")
    }

    fn keyword(&mut self, keyword: &str) -> Result<()> {
        let word = self.want(&format!("'{keyword}'"))?;
        let what = format!("expected '{keyword}', found '{}'", word.text);
        self.refuse_if(word.text != keyword, word, what, "")
    }

    fn refuse_unknown(&self) -> Result<()> {
        let known: Vec<&str> = [NODES, &["link"], UPPERS, BRIDGES, &["interface"], REST].concat();
        let (first, help) = (self.first(), format!("a line begins with one of {}", known.join(", ")));
        let unknown = !known.contains(&first.text);
        self.refuse_if(unknown, first, format!("unknown statement '{}'", first.text), &help)
    }

    fn number(&mut self, what: &str, range: RangeInclusive<u32>) -> Result<Option<u32>> {
        let word = self.want(what)?;
        let digits = word.text.bytes().all(|byte| byte.is_ascii_digit());
        let value = word.text.parse().ok().filter(|value| digits && range.contains(value));
        let (from, to) = range.into_inner();
        let what = format!("{what} is a number from {from} to {to}, not '{}'", word.text);
        self.meaning(value, word, what, "").map(Some)
    }

    fn switch(&mut self) -> Result<bool> {
        let word = self.want("'on' or 'off'")?;
        let on = ["off", "on"].iter().position(|known| *known == word.text);
        let what = format!("expected 'on' or 'off', found '{}'", word.text);
        self.meaning(on, word, what, "").map(|on| on == 1)
    }

    /// `RATE limit BYTES burst BYTES`.
    fn shaper(&mut self) -> Result<Shaper> {
        const EXAMPLE: &str = "write for example 'rate 100mbit limit 30kB burst 5kB'";
        let word = self.want("the rate").map_err(|problem| problem.help(EXAMPLE))?;
        let rate_bps = unit::bit_rate(word.text).map_err(|what| self.problem(word, what).help(EXAMPLE))?;
        let broken = rate_bps < 8 || !rate_bps.is_multiple_of(8);
        self.refuse_if(broken, word, "the rate must be a whole number of bytes each second, above 0", "")?;
        let mut size = |keyword: &str| -> Result<u32> {
            self.keyword(keyword).map_err(|problem| problem.help(EXAMPLE))?;
            let word = self.want("a number of bytes")?;
            let bytes = unit::bytes(word.text).ok().and_then(|bytes| u32::try_from(bytes).ok());
            let what = format!("'{}' is not a number of bytes from 1B to 4294MB", word.text);
            self.meaning(bytes.filter(|&bytes| bytes > 0), word, what, EXAMPLE)
        };
        Ok(Shaper { rate_bps, limit_bytes: size("limit")?, burst_bytes: size("burst")? })
    }

    /// How long a frame is held.
    fn time(&mut self, what: &str) -> Result<u64> {
        let word = self.want(what)?;
        let ns = unit::nanoseconds(word.text).map_err(|why| self.problem(word, why))?;
        let long = format!("{what} is at most {}", unit::time_ns(LONGEST_DELAY_NS as f64));
        self.refuse_if(ns > LONGEST_DELAY_NS, word, long, "")?;
        Ok(ns)
    }

    /// A chance, in parts of a million.
    fn chance(&mut self) -> Result<u32> {
        let word = self.want("a chance, for example 1%,")?;
        let chance = unit::chance(word.text).map_err(|why| self.problem(word, why))?;
        let parts = (chance * f64::from(netem::WHOLE)).round() as u32;
        let what = format!("'{}' is less than one in a million", word.text);
        self.refuse_if(chance > 0.0 && parts == 0, word, what, "")?;
        Ok(parts)
    }

    fn mac(&mut self) -> Result<Mac> {
        let word = self.want("the hardware address")?;
        let byte = |part: &str| match part.len() {
            2 if !part.starts_with('+') => u8::from_str_radix(part, 16).ok(),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = word.text.split(':').map(byte).collect();
        let mac = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        let mac = mac.filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6]).map(Mac);
        let what = format!("'{}' is not the hardware address of one interface", word.text);
        self.meaning(mac, word, what, "write six bytes, the first even, for example 02:00:00:00:00:01")
    }

    fn prefix(&self, word: Word) -> Result<Prefix> {
        let what = format!("'{}' is not an address with a prefix length", word.text);
        self.meaning(Prefix::parse(word.text), word, what, "write for example 10.0.0.1/24 or fd00::1/64")
    }
}

impl Reader {
    fn statement(&mut self, line: &mut Line) -> Result<()> {
        match line.first().text {
            "vm" => self.machine(line)?,
            word if NODES.contains(&word) => self.nodes(line, word)?,
            "link" => self.link(line)?,
            word if UPPERS.contains(&word) => self.upper(line, word)?,
            word if BRIDGES.contains(&word) => self.bridge(line, word)?,
            "interface" => self.interface(line)?,
            "route" => self.route(line)?,
            "policy" => self.policy(line)?,
            "sysctl" => self.sysctl(line)?,
            word => self.forwarder(line, word)?,
        }
        let more = line.peek().map(|word| line.problem(word, format!("unexpected '{}'", word.text)));
        more.map_or(Ok(()), Err)
    }

    /// `node NAME…`, `router NAME…`, `switch NAME…` and the like.
    fn nodes(&mut self, line: &mut Line, kind: &str) -> Result<()> {
        for word in line.rest("the node's name")? {
            self.declare(line, word, kind)?;
        }
        Ok(())
    }

    /// A node that was not there before.
    fn declare(&mut self, line: &Line, word: Word, kind: &str) -> Result<()> {
        node_name(word.text).map_err(|why| line.problem(word, why))?;
        let known = self.topology.node(word.text).is_some();
        line.refuse_if(known, word, format!("there is already a node '{}'", word.text), "")?;
        let full = self.topology.nodes.len() == MOST_NODES;
        line.refuse_if(full, word, format!("a lab has at most {MOST_NODES} nodes"), "")?;
        let forwarder = ForwarderKind::of(kind).map(Forwarder::new);
        let router = kind == "router";
        self.topology.nodes.push(NodeSpec { name: word.text.into(), router, forwarder, machine: None });
        Ok(())
    }

    /// A node that was declared.
    fn known_node<'a>(&self, line: &Line, word: Word, name: &'a str) -> Result<&'a str> {
        let names: Vec<_> = self.topology.nodes.iter().map(|node| node.name.as_str()).collect();
        let help = match names.is_empty() {
            true => format!("declare it with 'node {name}'"),
            false => format!("the nodes are {}", unit::some_names(&names)),
        };
        line.refuse_if(!names.contains(&name), word, format!("unknown node '{name}'"), &help)?;
        Ok(name)
    }

    /// `on NODE`.
    fn on_node<'a>(&self, line: &mut Line<'a>) -> Result<&'a str> {
        line.keyword("on")?;
        let word = line.want("the node's name")?;
        self.known_node(line, word, word.text)
    }

    /// `NODE:INTERFACE`, with the node known and the name possible.
    fn place<'a>(&self, line: &Line<'a>, word: Word<'a>) -> Result<(&'a str, &'a str)> {
        let what = format!("'{}' is not an interface of a node", word.text);
        let help = "write NODE:INTERFACE, for example a:eth0";
        let (node, interface) = line.meaning(word.text.split_once(':'), word, what, help)?;
        self.known_node(line, word, node)?;
        interface_name(interface).map_err(|why| line.problem(word, why))?;
        Ok((node, interface))
    }

    fn refuse_used(&self, line: &Line, word: Word, node: &str, interface: &str) -> Result<()> {
        let used = self.topology.interfaces(node).any(|known| known.name == interface);
        let what = format!("there is already an interface {node}:{interface}");
        line.refuse_if(used, word, what, "give each end of a link a name of its own")
    }

    /// `link A:IF -- B:IF OPTION…`.
    fn link(&mut self, line: &mut Line) -> Result<()> {
        let left = line.want("the first end")?;
        let (a_node, a_name) = self.place(line, left)?;
        line.keyword("--")?;
        let right = line.want("the second end")?;
        let (b_node, b_name) = self.place(line, right)?;
        self.refuse_used(line, left, a_node, a_name)?;
        self.refuse_used(line, right, b_node, b_name)?;
        let same = (a_node, a_name) == (b_node, b_name);
        line.refuse_if(same, right, format!("both ends of the link are {}", right.text), "")?;
        let mut shared = InterfaceSpec::new("", "");
        let mut said = HashSet::new();
        while let Some(word) = line.take() {
            let one_ends = ["address", "mac"].contains(&word.text);
            let what = format!("'{}' belongs to one end and not to a link", word.text);
            line.refuse_if(
                one_ends,
                word,
                what,
                &format!("write 'interface {} {} …'", left.text, word.text),
            )?;
            let twice = !said.insert(word.text);
            line.refuse_if(twice, word, format!("'{}' is said twice", word.text), "")?;
            self.option(line, word, &mut shared)?;
        }
        let end =
            |node: &str, name: &str| InterfaceSpec { node: node.into(), name: name.into(), ..shared.clone() };
        self.topology.links.push(LinkSpec { ends: [end(a_node, a_name), end(b_node, b_name)] });
        Ok(())
    }

    /// `bridge NAME on NODE ports IF…`, `bond NAME on NODE ports IF… [mode M]`.
    fn bridge(&mut self, line: &mut Line, statement: &str) -> Result<()> {
        let name = line.want(&format!("the {statement}'s name"))?;
        interface_name(name.text).map_err(|why| line.problem(name, why))?;
        let node = self.on_node(line)?;
        self.refuse_used(line, name, node, name.text)?;
        line.keyword("ports")?;
        let (mut ports, mut bond): (Vec<String>, _) =
            (vec![], (statement == "bond").then_some(BOND_MODES[0]));
        let mut next = Some(line.want("the first port")?);
        while let Some(word) = next {
            if word.text == "mode" && bond.is_some() && !ports.is_empty() {
                bond = Some(line.mode(statement)?);
                break;
            }
            next = line.take();
            let names: Vec<_> = self.topology.interfaces(node).map(|end| end.name.as_str()).collect();
            let own = self.topology.interfaces(node).any(|known| known.name == word.text);
            let unknown = !own || self.topology.bridge(node, word.text).is_some();
            let what = format!("node '{node}' has no link with an end '{}'", word.text);
            line.refuse_if(unknown, word, what, &format!("its ends are: {}", names.join(", ")))?;
            let kind = self.topology.upper(node, word.text).map(|upper| upper.kind);
            let lent = matches!(kind, Some(UpperKind::Ipvlan(_)));
            let what_of_lent =
                format!("{node}:{} is an ipvlan, which has no hardware address of its own", word.text);
            line.refuse_if(lent, word, what_of_lent, "use a macvlan, or make the interface below a port")?;
            let is_end = kind.is_none();
            let what = format!("{node}:{} is no end of a link", word.text);
            line.refuse_if(bond.is_some() && !is_end, word, what, "a bond is over ends of links")?;
            let again = ports.iter().any(|port| port == word.text)
                || self.topology.bridge_of(node, word.text).is_some();
            line.refuse_if(
                again,
                word,
                format!("{node}:{} is already a port of a bridge or bond", word.text),
                "",
            )?;
            ports.push(word.text.into());
        }
        let interface = InterfaceSpec::new(node, name.text);
        self.topology.bridges.push(BridgeSpec { interface, ports, bond });
        Ok(())
    }

    /// `interface NODE:IF OPTION…`.
    fn interface(&mut self, line: &mut Line) -> Result<()> {
        let word = line.want("the interface")?;
        let (node, name) = self.place(line, word)?;
        let names: Vec<_> = self.topology.interfaces(node).map(InterfaceSpec::place).collect();
        let help = match names.is_empty() {
            true => format!("node '{node}' has none; make one with 'link {} -- …'", word.text),
            false => format!("the interfaces of node '{node}' are {}", names.join(", ")),
        };
        let known = self.topology.interfaces(node).find(|interface| interface.name == name);
        let known = line.meaning(known, word, format!("unknown interface '{}'", word.text), &help)?;
        let mut spec = known.clone();
        let kind = self.kind_of(known);
        let mut next = Some(line.want("an option")?);
        while let Some(option) = next {
            let article = if kind == "ipvlan" { "an" } else { "a" };
            let what = format!("'{}' cannot be said of {article} {kind}", option.text);
            line.refuse_if(!may_be_said(kind, option.text), option, what, "say it of the interface below")?;
            let twice = !self.said.insert((spec.place(), option.text.into())) && option.text != "address";
            line.refuse_if(twice, option, format!("'{}' is said twice of {}", option.text, word.text), "")?;
            self.option(line, option, &mut spec)?;
            next = line.take();
        }
        self.check_interface(line, word, &spec)?;
        self.replace(spec);
        Ok(())
    }

    /// `link`, `bridge`, `bond`, `vxlan`, `macvlan`, `ipvlan` or `vlan`.
    fn kind_of(&self, spec: &InterfaceSpec) -> &'static str {
        match self.topology.upper(&spec.node, &spec.name) {
            Some(upper) => upper.kind.word(),
            None => self.topology.bridge(&spec.node, &spec.name).map_or("link", BridgeSpec::word),
        }
    }

    fn replace(&mut self, spec: InterfaceSpec) {
        let links = self.topology.links.iter_mut().flat_map(|link| &mut link.ends);
        let bridges = self.topology.bridges.iter_mut().map(|bridge| &mut bridge.interface);
        let uppers = self.topology.uppers.iter_mut().map(|upper| &mut upper.interface);
        for known in links.chain(bridges).chain(uppers).filter(|known| known.place() == spec.place()) {
            known.clone_from(&spec);
        }
    }

    /// One option with what follows it.
    fn option(&self, line: &mut Line, word: Word, spec: &mut InterfaceSpec) -> Result<()> {
        match word.text {
            "mtu" => spec.mtu = line.number("the MTU", MTU)?,
            "txqueuelen" => spec.tx_queue_len = line.number("the queue length", 0..=1_000_000)?,
            "queues" => spec.queues = line.number("the number of queues", 1..=64)?,
            "rate" => spec.shaper = Some(line.shaper()?),
            "delay" => spec.emulation.delay_ns = line.time("the delay")?,
            "jitter" => spec.emulation.jitter_ns = line.time("the jitter")?,
            "lose" => spec.emulation.lose = line.chance()?,
            "duplicate" => spec.emulation.duplicate = line.chance()?,
            "reorder" => spec.emulation.reorder = line.chance()?,
            "corrupt" => spec.emulation.corrupt = line.chance()?,
            "mac" => spec.mac = Some(line.mac()?),
            "address" => self.addresses(line, spec)?,
            "offload" => {
                let on = line.switch()?;
                spec.offloads.extend(OffloadFeature::ALL.map(|offload| (offload, on)));
            }
            text => {
                let words = OffloadFeature::ALL.map(OffloadFeature::word);
                let known = OffloadFeature::ALL.into_iter().find(|offload| offload.word() == text);
                let help = "the options are mtu, txqueuelen, queues, rate, delay, jitter, lose, duplicate, reorder, corrupt, address, mac, offload, ";
                let help = format!("{help}{}", words.join(", "));
                let offload = line.meaning(known, word, format!("unknown option '{text}'"), &help)?;
                spec.offloads.insert(offload, line.switch()?);
            }
        }
        Ok(())
    }

    /// `ADDRESS/LENGTH…`: every following word with a slash.
    fn addresses(&self, line: &mut Line, spec: &mut InterfaceSpec) -> Result<()> {
        let mut next = Some(line.want("the address")?);
        while let Some(word) = next {
            let prefix = line.prefix(word)?;
            host_address(prefix).map_err(|why| line.problem(word, why))?;
            let has = |known: &&InterfaceSpec| known.addresses.iter().any(|p| p.address == prefix.address);
            let owner = self.topology.all_interfaces().chain([&*spec]).find(has);
            let owner = owner.map(InterfaceSpec::place);
            let what =
                format!("{} already has the address {}", owner.as_deref().unwrap_or(""), prefix.address);
            line.refuse_if(owner.is_some(), word, what, "")?;
            spec.addresses.push(prefix);
            next = line.peek().filter(|word| word.text.contains('/'));
            line.next += usize::from(next.is_some());
        }
        Ok(())
    }

    /// `sysctl on NODE KEY=VALUE`.
    fn sysctl(&mut self, line: &mut Line) -> Result<()> {
        let node = self.on_node(line)?;
        let word = line.want("the setting")?;
        let help = "write for example net.ipv4.ip_forward=1, without spaces around '='";
        let what = format!("'{}' has no value", word.text);
        let (key, first) = line.meaning(word.text.split_once('='), word, what, help)?;
        sysctl_key(key).map_err(|why| line.problem(word, why))?;
        line.refuse_if(first.is_empty(), word, format!("'{key}' has no value"), "")?;
        let again = self.topology.sysctls.iter().any(|known| known.node == node && known.key == key);
        line.refuse_if(again, word, format!("'{key}' is said twice of node '{node}'"), "")?;
        let value = line.joined(first);
        self.topology.sysctls.push(SysctlSpec { node: node.into(), key: key.into(), value });
        Ok(())
    }

    /// `ports on NODE KIND`, `engine on NODE NAME`, `fail on NODE secure|standalone`, `scenario on NODE NAME`, `rule on NODE RULE`,
    /// `rules on NODE FILE`.
    fn forwarder(&mut self, line: &mut Line, statement: &str) -> Result<()> {
        let node = self.on_node(line)?;
        let about = line.line.words[2];
        let known = self.topology.nodes.iter_mut().find(|known| known.name == node);
        let Some(forwarder) = known.and_then(|known| known.forwarder.as_mut()) else {
            let what = format!("'{statement}' is said of '{node}', where no program hands frames on");
            return Err(line.problem(about, what).help("declare it with 'switch', 'ovs' or 'null'"));
        };
        let kind = forwarder.kind;
        let possible = match statement {
            "ports" => true,
            "engine" => kind == ForwarderKind::Switch,
            _ => kind.has_rules(),
        };
        let what = format!("'{statement}' cannot be said of a node of kind '{}'", kind.word());
        line.refuse_if(!possible, about, what, "")?;
        // What is said once has one of these values.
        let (what, values) = match statement {
            "ports" if kind == ForwarderKind::Ovs => ("kind of ports", OVS_PORTS.to_vec()),
            "ports" => ("kind of ports", PortKind::names(PortKind::carries_links)),
            "engine" => ("engine", ENGINES.to_vec()),
            "fail" => ("way to fail", vec!["secure", "standalone"]),
            "scenario" => ("scenario", SCENARIOS.to_vec()),
            _ => ("", vec![]),
        };
        let twice = !values.is_empty() && !self.said.insert((node.into(), statement.into()));
        line.refuse_if(twice, about, format!("'{statement}' is said twice of node '{node}'"), "")?;
        let word = line.want("the value")?;
        let name = word.text.split('?').next().unwrap_or_default();
        let unknown = !values.is_empty() && !values.contains(&name);
        line.refuse_if(unknown, word, format!("unknown {what} '{}'", word.text), &values.join(", "))?;
        match statement {
            "ports" => forwarder.ports = word.text.into(),
            "engine" => forwarder.engine = Some(word.text.into()),
            "fail" => forwarder.standalone = word.text == "standalone",
            "scenario" => forwarder.scenario = Some(word.text.into()),
            "rules" => forwarder.files.push(word.text.into()),
            _ => forwarder.rules.push(line.joined(word.text)),
        }
        Ok(())
    }

    /// What can be judged only when all options of an interface are known.
    fn check_interface(&self, line: &Line, word: Word, spec: &InterfaceSpec) -> Result<()> {
        let small = spec.has_family(6) && spec.mtu.is_some_and(|mtu| mtu < MTU_V6);
        let what = format!("{} has an IPv6 address, which needs an MTU of {MTU_V6} or more", spec.place());
        line.refuse_if(small, word, what, "")?;
        let port = !spec.addresses.is_empty() && self.topology.bridge_of(&spec.node, &spec.name).is_some();
        let what = format!("{} is a port of a bridge and cannot have an address", spec.place());
        line.refuse_if(port, word, what, "give the address to the bridge")
    }
}

/// What can be said of a kind of interface.
fn may_be_said(kind: &str, option: &str) -> bool {
    match kind {
        "bridge" | "bond" => ["mtu", "txqueuelen", "address", "mac"].contains(&option),
        // It has one queue, and sends under the hardware address of the interface below.
        "ipvlan" => !["queues", "mac"].contains(&option),
        "vxlan" | "macvlan" | "vlan" => option != "queues",
        _ => true,
    }
}

/// A program takes all frames of its node's links: the kernel there must not answer, too.
fn check_forwarder(topology: &Topology, spec: &NodeSpec) -> Result<()> {
    let Some(forwarder) = &spec.forwarder else { return Ok(()) };
    let (name, kind) = (&spec.name, forwarder.kind.word());
    let ends: Vec<&InterfaceSpec> = topology.interfaces(name).collect();
    let problem = |what: String, help: &str| Err(Problem::input(what).help(help));
    if topology.bridges.iter().any(|bridge| bridge.interface.node == *name) {
        return problem(format!("node '{name}' of kind '{kind}' has a bridge"), "put it into another node");
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

/// Delay and faults of an interface make sense together.
fn check_emulation(spec: &InterfaceSpec) -> Result<()> {
    let emulation = &spec.emulation;
    let refuse =
        |what: &str, help: &str| Err(Problem::input(format!("interface {} {what}", spec.place())).help(help));
    if emulation.jitter_ns > emulation.delay_ns {
        return refuse("has more jitter than delay", "a frame cannot be held for less than no time");
    }
    if emulation.reorder > 0 && emulation.delay_ns == 0 {
        return refuse("reorders without a delay", "a frame overtakes those that are held: say 'delay' too");
    }
    Ok(())
}

/// What can be judged only when everything is known.
fn check_whole(topology: &Topology) -> Result<()> {
    if topology.nodes.is_empty() {
        return Err(Problem::input("it has no nodes").help("begin with 'node a b'"));
    }
    topology.nodes.iter().try_for_each(|node| check_forwarder(topology, node))?;
    topology.all_interfaces().try_for_each(check_emulation)?;
    super::machine::check(topology)?;
    for end in topology.ends() {
        let frame = end.mtu.unwrap_or(DEFAULT_MTU) + 14;
        let Some(Shaper { limit_bytes: limit, burst_bytes: burst, .. }) = end.shaper else { continue };
        if burst.min(limit) < frame {
            return Err(Problem::input(format!(
                "the rate limit of {} has a limit of {limit} B and a burst of {burst} B, but a full frame is {frame} B \
                 and would never leave",
                end.place()
            ))
            .help("make limit and burst larger, or the MTU smaller"));
        }
    }
    Ok(())
}

/// It has ASCII letters, digits and these other characters only.
fn is_plain(name: &str, others: &[u8]) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
}

/// It can be the name of a file: plain, and a letter or digit first.
pub(super) fn is_file_name(name: &str) -> bool {
    is_plain(name, b"_-.") && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// A name that can be a part of a path and of `pathlab-LAB-NODE` without doubt: no `-` in a node's name.
fn node_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > LONGEST_NAME || !is_plain(name, b"_") {
        return Err(format!(
            "'{name}' cannot be a node's name: use 1 to {LONGEST_NAME} letters, digits and '_'"
        ));
    }
    Ok(())
}

fn interface_name(name: &str) -> Result<(), String> {
    if name.len() > LONGEST_INTERFACE {
        return Err(format!(
            "the interface name '{name}' has {} bytes, the kernel takes {LONGEST_INTERFACE}",
            name.len()
        ));
    }
    if !is_file_name(name) {
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
///
/// # Errors
/// A sentence: it is none.
pub fn sysctl_key(key: &str) -> Result<(), String> {
    let separator = if key.contains('/') { '/' } else { '.' };
    let parts: Vec<_> = key.split(separator).collect();
    let sound = |part: &&str| !["", ".", ".."].contains(part) && is_plain(part, b"_-.");
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
    let odd = match address {
        IpAddr::V4(v4) => {
            let last = u32::from(v4) | u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
            let edge = length < 31 && (prefix.network() == address || u32::from(v4) == last);
            v4.is_broadcast() || edge
        }
        IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
    };
    let bad = odd || address.is_unspecified() || address.is_multicast() || address.is_loopback();
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
