//! The statements that make an interface over another one: `vxlan`, `macvlan`, `ipvlan`, `vlan`; and the modes of `bond`.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use record::Result;
use record::line::Word;

use super::super::topology::{InterfaceSpec, UpperKind, UpperSpec, VlanTag, Vxlan};
use super::{Line, Reader, interface_name};
use crate::netlink::{BOND_MODES, IPVLAN_MODES, MACVLAN_MODES, Mode};

/// The numbers of VXLAN networks have 24 bits (RFC 7348 section 5).
const VXLAN_ID: RangeInclusive<u32> = 0..=0xff_ffff;
/// The ids of VLANs; 0 and 4095 have another meaning (IEEE 802.1Q, table 9-2).
const VLAN_ID: RangeInclusive<u32> = 1..=4094;
/// The port of VXLAN (RFC 7348 section 5).
const VXLAN_PORT: u16 = 4789;

/// What is said of each, besides `over`.
fn words(statement: &str) -> &'static [&'static str] {
    match statement {
        "vxlan" => &["over", "id", "local", "remote", "port"],
        "vlan" => &["over", "id", "proto"],
        _ => &["over", "mode"],
    }
}

fn modes(statement: &str) -> &'static [Mode] {
    match statement {
        "ipvlan" => IPVLAN_MODES,
        "bond" => BOND_MODES,
        _ => MACVLAN_MODES,
    }
}

/// An interface while it is read.
#[derive(Default)]
struct Draft {
    over: Option<(String, String)>,
    mode: Option<Mode>,
    id: Option<u32>,
    is_service: bool,
    local: Option<IpAddr>,
    remote: Option<IpAddr>,
    port: Option<u32>,
}

impl Draft {
    fn kind(&self, line: &Line, statement: &str) -> Result<UpperKind> {
        let mode = self.mode.unwrap_or(modes(statement)[0]);
        match statement {
            "macvlan" => return Ok(UpperKind::Macvlan(mode)),
            "ipvlan" => return Ok(UpperKind::Ipvlan(mode)),
            "vlan" => {
                let help = "write for example 'vlan eth0.5 on a over eth0 id 5'";
                let id = self.id.and_then(|id| u16::try_from(id).ok());
                let id = line.meaning(id, line.first(), "the VLAN has no id", help)?;
                return Ok(UpperKind::Vlan(VlanTag { id, is_service: self.is_service }));
            }
            _ => {}
        }
        let help = "write for example 'vxlan vx0 on a id 42 remote 10.0.2.2'";
        let id = line.meaning(self.id, line.first(), "the VXLAN has no id", help)?;
        let remote = line.meaning(self.remote, line.first(), "the VXLAN has no remote", help)?;
        let mixed = self.local.is_some_and(|local| local.is_ipv4() != remote.is_ipv4());
        let what = "'local' and 'remote' are of different versions of IP";
        line.refuse_if(mixed, line.first(), what, "a tunnel has both ends in one")?;
        let port = self.port.and_then(|port| u16::try_from(port).ok()).unwrap_or(VXLAN_PORT);
        Ok(UpperKind::Vxlan(Vxlan { id, local: self.local, remote, port }))
    }
}

impl Line<'_> {
    /// The address of one host.
    fn host(&mut self, what: &str) -> Result<IpAddr> {
        let word = self.want(what)?;
        let address: Option<IpAddr> = word.text.parse().ok();
        let one = address.filter(|address| !address.is_multicast() && !address.is_unspecified());
        self.meaning(one, word, format!("'{}' is not the address of a host", word.text), "")
    }

    pub(super) fn mode(&mut self, statement: &str) -> Result<Mode> {
        let word = self.want("the mode")?;
        let known = modes(statement).iter().find(|mode| mode.word == word.text).copied();
        let words: Vec<&str> = modes(statement).iter().map(|mode| mode.word).collect();
        self.meaning(known, word, format!("'{}' is not a mode of {statement}", word.text), &words.join(", "))
    }
}

impl Reader {
    /// `vxlan NAME on NODE id N remote ADDRESS …`, `macvlan NAME on NODE over IF [mode M]`, `ipvlan …`.
    pub(super) fn upper(&mut self, line: &mut Line, statement: &str) -> Result<()> {
        let name = line.want("the interface's name")?;
        interface_name(name.text).map_err(|why| line.problem(name, why))?;
        let node = self.on_node(line)?;
        self.refuse_used(line, name, node, name.text)?;
        let (mut draft, mut said) = (Draft::default(), vec![]);
        while let Some(word) = line.take() {
            let twice = said.contains(&word.text);
            line.refuse_if(twice, word, format!("'{}' is said twice", word.text), "")?;
            said.push(word.text);
            let help = format!("the words are {}", words(statement).join(", "));
            let unknown = !words(statement).contains(&word.text);
            let what = format!("unknown word '{}' of a {statement}", word.text);
            line.refuse_if(unknown, word, what, &help)?;
            self.upper_word(line, (statement, node), word.text, &mut draft)?;
        }
        let help = format!("write '{statement} {} on {node} over IF', or 'over NODE:IF'", name.text);
        let nowhere = draft.over.is_none() && statement != "vxlan";
        line.refuse_if(nowhere, line.first(), format!("the {statement} is over no interface"), &help)?;
        let kind = draft.kind(line, statement)?;
        let interface = InterfaceSpec::new(node, name.text);
        self.topology.uppers.push(UpperSpec { interface, over: draft.over, kind });
        Ok(())
    }

    /// What follows one word.
    fn upper_word(
        &self,
        line: &mut Line,
        (statement, node): (&str, &str),
        word: &str,
        draft: &mut Draft,
    ) -> Result<()> {
        match word {
            "mode" => draft.mode = Some(line.mode(statement)?),
            "id" => {
                let range = if statement == "vlan" { VLAN_ID } else { VXLAN_ID };
                draft.id = line.number("the id", range)?;
            }
            "local" => draft.local = Some(line.host("the local address")?),
            "remote" => draft.remote = Some(line.host("the remote address")?),
            "proto" => {
                let word = line.want("the protocol")?;
                let known =
                    ["802.1q", "802.1ad"].iter().position(|name| word.text.eq_ignore_ascii_case(name));
                let what = format!("'{}' is not a protocol of vlan", word.text);
                draft.is_service = line.meaning(known, word, what, "802.1Q, 802.1ad")? == 1;
            }
            "port" => draft.port = line.number("the port", 1..=65535)?,
            _ => {
                let word = line.want("the interface below")?;
                let (node, name) = match word.text.contains(':') {
                    true => self.place(line, word)?,
                    false => (node, word.text),
                };
                draft.over = Some((node.into(), name.into()));
            }
        }
        Ok(())
    }

    /// What can be judged only when bridges and addresses are known.
    pub(super) fn check_upper(&self, line: &Line) -> Result<()> {
        let (first, [_, name, _, node, ..]) = (line.first(), &line.line.words[..]) else { return Ok(()) };
        let Some(upper) = self.topology.upper(node.text, name.text) else { return Ok(()) };
        let program =
            [node.text, upper.made_in()].into_iter().find(|name| self.topology.forwarder(name).is_some());
        let what = format!("a program takes all frames of node '{}'", program.unwrap_or_default());
        line.refuse_if(program.is_some(), first, what, "put it into another node")?;
        if let Some((node, name)) = &upper.over {
            let at = line.line.words.iter().position(|word| word.text == "over").unwrap_or(0);
            let word = line.line.words.get(at + 1).copied().unwrap_or(first);
            self.check_lower(line, word, upper, (node, name))?;
            self.check_beside(line, word, upper)?;
        }
        let UpperKind::Vxlan(Vxlan { local: Some(local), .. }) = upper.kind else { return Ok(()) };
        let mut own = self.topology.interfaces(upper.made_in()).flat_map(|known| &known.addresses);
        let foreign = !own.any(|prefix| prefix.address == local);
        let what = format!("{local} is no address of node '{}'", upper.made_in());
        line.refuse_if(foreign, first, what, "'local' is the address that the tunnel sends from")
    }

    /// The interface below is one that can be.
    fn check_lower(
        &self,
        line: &Line,
        word: Word,
        upper: &UpperSpec,
        (node, name): (&str, &str),
    ) -> Result<()> {
        let is_end = self.topology.ends().any(|end| end.node == node && end.name == name);
        let is_vlan = |upper: &UpperSpec| matches!(upper.kind, UpperKind::Vlan(_));
        let known = is_end
            || self.topology.bridge(node, name).is_some()
            || self.topology.upper(node, name).is_some_and(is_vlan);
        let what = format!("there is no end of a link, no bridge, no bond and no VLAN {node}:{name}");
        line.refuse_if(!known, word, what, "declare it with 'link', 'bridge', 'bond' or 'vlan'")?;
        let UpperSpec { interface: own, kind, .. } = upper;
        let bridge = self.topology.bridge_of(&own.node, &own.name).map(|bridge| &bridge.interface);
        let circle = bridge.is_some_and(|bridge| bridge.node == node && bridge.name == name);
        let what = format!("{} would be over the bridge that it is a port of", own.place());
        line.refuse_if(circle, word, what, "put it over the end of a link")?;
        let what = format!("{} would be over itself", own.place());
        line.refuse_if(
            self.topology.lies_over((node, name), own),
            word,
            what,
            "put it over the end of a link",
        )?;
        let Some(master) = self.topology.bridge_of(node, name) else { return Ok(()) };
        let taken = !matches!(kind, UpperKind::Vxlan(_));
        let what = format!("{node}:{name} is a port of {}, which takes its frames", master.interface.name);
        line.refuse_if(taken, word, what, &format!("write 'over {}'", master.interface.place()))
    }

    /// Those over the same interface bear each other.
    fn check_beside(&self, line: &Line, word: Word, upper: &UpperSpec) -> Result<()> {
        let beside = |known: &&UpperSpec| known.over == upper.over && known.interface != upper.interface;
        for other in self.topology.uppers.iter().filter(beside) {
            let place = other.interface.place();
            let (why, help) = match (upper.kind, other.kind) {
                (UpperKind::Vlan(a), UpperKind::Vlan(b)) if a == b => {
                    let what = format!("there is already {place} with the {a} over it");
                    return Err(line
                        .problem(word, what)
                        .help("each VLAN over an interface has an id of its own"));
                }
                (UpperKind::Vxlan(_) | UpperKind::Vlan(_), _)
                | (_, UpperKind::Vxlan(_) | UpperKind::Vlan(_)) => {
                    continue;
                }
                (UpperKind::Macvlan(a), UpperKind::Macvlan(b))
                    if a.word != "passthru" && b.word != "passthru" =>
                {
                    continue;
                }
                (UpperKind::Macvlan(_), UpperKind::Macvlan(_)) => {
                    ("", "a macvlan of mode passthru is alone over it")
                }
                (UpperKind::Ipvlan(a), UpperKind::Ipvlan(b)) if a == b => continue,
                (UpperKind::Ipvlan(_), UpperKind::Ipvlan(_)) => {
                    (" of another mode", "all over one interface have one mode")
                }
                _ => (" of another kind", "an interface has macvlans or ipvlans over it, not both"),
            };
            return Err(line.problem(word, format!("there is already {place}{why} over it")).help(help));
        }
        Ok(())
    }
}
