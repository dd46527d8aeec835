//! What of a node's configuration changed, from the kernel's notices.
//!
//! **What.** [`NodeConfig`] knows the links and neighbours of a node; [`NodeConfig::read`] compares a notice with them and says in words what is
//! different. **Why compare.** The kernel tells also what did not change: a neighbour that was asked for again, a link whose counters somebody
//! read. Only a difference, or an event that is one by itself (a route, a qdisc, a setting of a driver), is a change.
//!
//! **What is left out.** A port's forwarding table learns by the traffic itself; routes that the kernel keeps for one flow (`RTM_F_CLONED`);
//! XDP programs and packet sockets, which are looked for by themselves. **Price.** Nothing while nothing changes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::links::name_of;
use crate::netlink::{
    Attributes, ConfigNotice, Dump, Family, LinkState, NoticeOf, Prefix, after, u16_at, u32_at,
};

/// `AF_BRIDGE`: what a bridge says of its ports and of what it learned.
const AF_BRIDGE: u8 = 7;
/// Bytes of `struct ndmsg`.
const NEIGHBOUR_HEADER: usize = 12;
/// `NUD_FAILED` (`neighbour.h`).
const FAILED: u16 = 0x20;
/// `RTM_F_CLONED` (`rtnetlink.h`).
const CLONED: u32 = 0x200;

/// `RTM_GETNEIGH` of every family and interface.
pub const NEIGHBOURS: Dump<'static> = Dump { family: Family::Route, kind: 30, body: &[0; NEIGHBOUR_HEADER] };

/// The messages of rtnetlink that are read, as `rtnetlink.h` numbers them.
const MESSAGES: [(u16, &str); 16] = [
    (16, "RTM_NEWLINK"),
    (17, "RTM_DELLINK"),
    (20, "RTM_NEWADDR"),
    (21, "RTM_DELADDR"),
    (24, "RTM_NEWROUTE"),
    (25, "RTM_DELROUTE"),
    (28, "RTM_NEWNEIGH"),
    (29, "RTM_DELNEIGH"),
    (32, "RTM_NEWRULE"),
    (33, "RTM_DELRULE"),
    (36, "RTM_NEWQDISC"),
    (37, "RTM_DELQDISC"),
    (40, "RTM_NEWTCLASS"),
    (41, "RTM_DELTCLASS"),
    (44, "RTM_NEWTFILTER"),
    (45, "RTM_DELTFILTER"),
];

/// The notifications of ethtool that a driver's settings cause, as `ethtool_netlink.h` numbers them, and what they are about.
const NOTIFICATIONS: [(u16, &str, &str); 12] = [
    (3, "ETHTOOL_MSG_LINKINFO_NTF", "the port"),
    (5, "ETHTOOL_MSG_LINKMODES_NTF", "speed, duplex or negotiation"),
    (8, "ETHTOOL_MSG_DEBUG_NTF", "the message level"),
    (10, "ETHTOOL_MSG_WOL_NTF", "wake-on-LAN"),
    (13, "ETHTOOL_MSG_FEATURES_NTF", "offloads"),
    (15, "ETHTOOL_MSG_PRIVFLAGS_NTF", "the driver's private flags"),
    (17, "ETHTOOL_MSG_RINGS_NTF", "ring sizes"),
    (19, "ETHTOOL_MSG_CHANNELS_NTF", "the number of queues"),
    (21, "ETHTOOL_MSG_COALESCE_NTF", "interrupt coalescing"),
    (23, "ETHTOOL_MSG_PAUSE_NTF", "pause frames"),
    (25, "ETHTOOL_MSG_EEE_NTF", "energy-efficient Ethernet"),
    (31, "ETHTOOL_MSG_FEC_NTF", "forward error correction"),
];

/// One change, before it has a node and a time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The interface; empty for what belongs to none.
    pub interface: String,
    /// The name of the message.
    pub message: &'static str,
    /// Which prefix or address it is about.
    pub about: Option<String>,
    /// What changed.
    pub what: String,
}

/// The links and neighbours of a node as they were told last.
#[derive(Debug, Default)]
pub struct NodeConfig {
    links: BTreeMap<u32, LinkState>,
    neighbours: BTreeMap<(u32, IpAddr), Vec<u8>>,
}

impl NodeConfig {
    /// From the replies to dumps of links and of neighbours.
    pub fn new(links: Vec<LinkState>, neighbours: Vec<Neighbour>) -> NodeConfig {
        NodeConfig {
            links: links.into_iter().map(|link| (link.index, link)).collect(),
            neighbours: neighbours
                .into_iter()
                .map(|one| ((one.interface, one.address), one.hardware))
                .collect(),
        }
    }

    /// The links, in the order of their indices.
    pub fn links(&self) -> impl Iterator<Item = &LinkState> {
        self.links.values()
    }

    /// The names of the links by their indices.
    pub fn names(&self) -> BTreeMap<u32, String> {
        self.links.iter().map(|(index, link)| (*index, link.name.clone())).collect()
    }

    fn name(&self, index: u32) -> String {
        self.links.get(&index).map_or_else(|| name_of(index, &BTreeMap::new()), |link| link.name.clone())
    }

    /// What the notice changed; nothing for one that says what was known.
    pub fn read(&mut self, notice: ConfigNotice<'_>) -> Vec<Change> {
        match notice.of {
            NoticeOf::Route => {
                let Some((kind, message)) = MESSAGES.iter().find(|(kind, _)| *kind == notice.kind) else {
                    return vec![];
                };
                let changes = self.route(*kind, notice.body).unwrap_or_default();
                changes.into_iter().map(|change| Change { message, ..change }).collect()
            }
            NoticeOf::Ethtool => self.ethtool(notice.kind, notice.body).into_iter().collect(),
        }
    }

    fn route(&mut self, kind: u16, body: &[u8]) -> Option<Vec<Change>> {
        let is_new = kind.is_multiple_of(4);
        match kind {
            16 | 17 => self.link(is_new, body),
            20 | 21 => self.address(is_new, body).map(|one| vec![one]),
            24 | 25 => self.way(is_new, body).map(|one| vec![one]),
            28 | 29 => self.neighbour(is_new, body).map(|one| vec![one]),
            32 | 33 => Some(vec![rule(is_new, body)]),
            _ => self.traffic_control(kind, is_new, body).map(|one| vec![one]),
        }
    }

    fn link(&mut self, is_new: bool, body: &[u8]) -> Option<Vec<Change>> {
        if body.len() < 16 || body[0] == AF_BRIDGE {
            return None;
        }
        let now = LinkState::parse(body);
        let interface = now.name.clone();
        let change = |what: String| Change { interface: interface.clone(), what, ..Change::default() };
        if !is_new {
            self.links.remove(&now.index)?;
            return Some(vec![change("it was deleted, or moved away".into())]);
        }
        let Some(before) = self.links.insert(now.index, now.clone()) else {
            return Some(vec![change("it was made, or moved here".into())]);
        };
        Some(differences(&before, &now).into_iter().map(change).collect())
    }

    fn address(&self, is_new: bool, body: &[u8]) -> Option<Change> {
        let attributes = after(body, 8);
        let address = attributes.get(2).or(attributes.get(1)).and_then(ip)?;
        let what = if is_new { "it was added, or changed" } else { "it was removed" };
        let interface = self.name(u32_at(body, 4)?);
        Some(Change { interface, about: Some(address.to_string()), what: what.into(), ..Change::default() })
    }

    fn way(&self, is_new: bool, body: &[u8]) -> Option<Change> {
        let attributes = after(body, 12);
        let is_kept_for_one_flow = u32_at(body, 8)? & CLONED != 0;
        // Unicast, local and what refuses: the kernel adds broadcast and multicast by itself.
        if is_kept_for_one_flow || [3, 4, 5].contains(&body[7]) {
            return None;
        }
        let interface = attributes.get(4).and_then(|index| u32_at(index, 0)).map(|index| self.name(index));
        let via = attributes.get(5).and_then(ip).map_or(String::new(), |via| format!(" via {via}"));
        let verb = if is_new { "added, or replaced" } else { "removed" };
        let table = attributes.get(15).and_then(|table| u32_at(table, 0)).unwrap_or(u32::from(body[4]));
        Some(Change {
            interface: interface.unwrap_or_default(),
            about: Some(destination(body[0], body[1], attributes.get(1)).to_string()),
            what: format!("the route{via} in table {table} was {verb}"),
            ..Change::default()
        })
    }

    fn neighbour(&mut self, is_new: bool, body: &[u8]) -> Option<Change> {
        let now = Neighbour::parse(body)?;
        let key = (now.interface, now.address);
        let failed = u16_at(body, 8)? & FAILED != 0;
        let known = match is_new && !failed {
            true => self.neighbours.insert(key, now.hardware.clone()),
            false => self.neighbours.remove(&key),
        };
        let what = match known.filter(|known| !known.is_empty())? {
            _ if failed && is_new => "it does not answer any more".to_owned(),
            _ if !is_new => "its entry was removed".to_owned(),
            known if known == now.hardware || now.hardware.is_empty() => return None,
            known => format!("Ethernet address {} → {}", hex(&known), hex(&now.hardware)),
        };
        let interface = self.name(now.interface);
        Some(Change { interface, about: Some(now.address.to_string()), what, ..Change::default() })
    }

    fn traffic_control(&self, kind: u16, is_new: bool, body: &[u8]) -> Option<Change> {
        let name = after(body, 20).get(1).map(text)?;
        let thing = match kind {
            36 | 37 => "qdisc",
            40 | 41 => "class",
            _ => "filter",
        };
        // What a link has that is down, and one without a queue: what comes or goes in its place is told, too.
        if name == "noop" || name == "noqueue" {
            return None;
        }
        let verb = if is_new { "added, or changed" } else { "removed" };
        let interface = self.name(u32_at(body, 4)?);
        Some(Change { interface, what: format!("the {thing} {name} was {verb}"), ..Change::default() })
    }

    fn ethtool(&self, kind: u16, body: &[u8]) -> Option<Change> {
        let (_, message, about) = NOTIFICATIONS.iter().find(|(number, ..)| *number == kind)?;
        let header = Attributes(Attributes(body).get(1)?);
        let index = header.get(1).and_then(|index| u32_at(index, 0))?;
        Some(Change { interface: self.name(index), message, about: None, what: format!("{about} changed") })
    }
}

/// A neighbour with its Ethernet address, empty where it is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    interface: u32,
    address: IpAddr,
    hardware: Vec<u8>,
}

impl Neighbour {
    /// Decodes one message; none for what a bridge learned.
    pub fn parse(message: &[u8]) -> Option<Neighbour> {
        let attributes = after(message, NEIGHBOUR_HEADER);
        let interface = u32_at(message, 4).filter(|_| message[0] != AF_BRIDGE)?;
        let hardware = attributes.get(2).unwrap_or_default().to_vec();
        Some(Neighbour { interface, address: attributes.get(1).and_then(ip)?, hardware })
    }
}

/// What of a link is different, in words. The root qdisc and XDP are told elsewhere.
fn differences(before: &LinkState, now: &LinkState) -> Vec<String> {
    let mut said = vec![];
    let mut say = |is_so: bool, words: String| said.extend(is_so.then_some(words));
    say(before.up != now.up, if now.up { "set up" } else { "set down" }.into());
    say(
        before.carrier != now.carrier,
        if now.carrier { "the carrier came" } else { "the carrier went" }.into(),
    );
    say(before.mtu != now.mtu, format!("MTU {} → {}", before.mtu, now.mtu));
    say(before.name != now.name, format!("name {} → {}", before.name, now.name));
    say(before.master != now.master, "it was put into or taken out of a bridge or bond".into());
    say(before.address != now.address, "its Ethernet address changed".into());
    say(before.port_state != now.port_state, "the state of the bridge port changed".into());
    say(before.port_flags != now.port_flags, "settings of the bridge port changed".into());
    say(
        before.tx_queue_len != now.tx_queue_len,
        format!("transmit queue {} → {} frames", before.tx_queue_len, now.tx_queue_len),
    );
    said
}

fn rule(is_new: bool, body: &[u8]) -> Change {
    let priority = after(body, 12).get(6).and_then(|value| u32_at(value, 0)).unwrap_or(0);
    let verb = if is_new { "added" } else { "removed" };
    Change { what: format!("the rule of priority {priority} was {verb}"), ..Change::default() }
}

fn destination(family: u8, length: u8, address: Option<&[u8]>) -> Prefix {
    let everything = if i32::from(family) == libc::AF_INET { [0; 4].into() } else { [0; 16].into() };
    Prefix { address: address.and_then(ip).unwrap_or(everything), length }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or(<[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    const UP: u32 = 1 | 1 << 16;

    fn link_message(index: u32, flags: u32, mtu: u32) -> Vec<u8> {
        let mut header = [0u8; 16];
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        header[8..12].copy_from_slice(&flags.to_ne_bytes());
        join(&[&header, &attribute(3, b"eth0\0"), &attribute(4, &mtu.to_ne_bytes())])
    }

    fn neighbour_message(state: u16, hardware: &[u8]) -> Vec<u8> {
        let mut header = [0u8; 12];
        header[0] = 2;
        header[4..8].copy_from_slice(&7u32.to_ne_bytes());
        header[8..10].copy_from_slice(&state.to_ne_bytes());
        join(&[&header, &attribute(1, &[10, 0, 0, 2]), &attribute(2, hardware)])
    }

    fn config() -> NodeConfig {
        let link = LinkState::parse(&link_message(7, UP, 1500));
        let neighbour = Neighbour::parse(&neighbour_message(2, &[2, 0, 0, 0, 0, 1])).unwrap();
        NodeConfig::new(vec![link], vec![neighbour])
    }

    fn told(config: &mut NodeConfig, kind: u16, body: &[u8]) -> Vec<String> {
        let changes = config.read(ConfigNotice { of: NoticeOf::Route, kind, body });
        let words = |one: Change| {
            format!("{} {} {}: {}", one.message, one.interface, one.about.unwrap_or_default(), one.what)
        };
        changes.into_iter().map(words).collect()
    }

    #[test]
    fn only_a_difference_of_a_link_is_a_change() {
        let mut config = config();
        assert_eq!(told(&mut config, 16, &link_message(7, UP, 1500)), Vec::<String>::new());
        assert_eq!(told(&mut config, 16, &link_message(7, UP, 1400)), ["RTM_NEWLINK eth0 : MTU 1500 → 1400"]);
        assert_eq!(
            told(&mut config, 16, &link_message(7, 0, 1400)),
            ["RTM_NEWLINK eth0 : set down", "RTM_NEWLINK eth0 : the carrier went"]
        );
        assert_eq!(told(&mut config, 16, &link_message(9, UP, 1500)).len(), 1, "a new one");
        assert_eq!(
            told(&mut config, 17, &link_message(7, 0, 1400)),
            ["RTM_DELLINK eth0 : it was deleted, or moved away"]
        );
        let mut of_bridge = link_message(7, UP, 9000);
        of_bridge[0] = AF_BRIDGE;
        assert!(told(&mut config, 16, &of_bridge).is_empty());
    }

    #[test]
    fn a_neighbour_that_is_asked_again_did_not_change() {
        let mut config = config();
        for state in [4, 8, 16, 2] {
            let same = neighbour_message(state, &[2, 0, 0, 0, 0, 1]);
            assert!(told(&mut config, 28, &same).is_empty(), "state {state}");
        }
        let moved = neighbour_message(2, &[2, 0, 0, 0, 0, 9]);
        assert_eq!(
            told(&mut config, 28, &moved),
            ["RTM_NEWNEIGH eth0 10.0.0.2: Ethernet address 02:00:00:00:00:01 → 02:00:00:00:00:09"]
        );
        let failed = neighbour_message(FAILED, &[]);
        assert_eq!(
            told(&mut config, 28, &failed),
            ["RTM_NEWNEIGH eth0 10.0.0.2: it does not answer any more"]
        );
        assert!(told(&mut config, 28, &failed).is_empty(), "once");
        told(&mut config, 28, &moved);
        assert_eq!(told(&mut config, 29, &moved), ["RTM_DELNEIGH eth0 10.0.0.2: its entry was removed"]);
    }

    #[test]
    fn routes_addresses_rules_and_qdiscs_are_events() {
        let mut config = config();
        let route = |flags: u32| {
            let header = [&[2, 24, 0, 0, 254, 4, 0, 1][..], &flags.to_ne_bytes()].concat();
            join(&[
                &header,
                &attribute(1, &[10, 1, 0, 0]),
                &attribute(4, &7u32.to_ne_bytes()),
                &attribute(5, &[10, 0, 0, 9]),
            ])
        };
        assert_eq!(
            told(&mut config, 25, &route(0)),
            ["RTM_DELROUTE eth0 10.1.0.0/24: the route via 10.0.0.9 in table 254 was removed"]
        );
        assert!(told(&mut config, 24, &route(CLONED)).is_empty());
        let header = [&[2, 24, 0, 0][..], &7u32.to_ne_bytes()].concat();
        let address = join(&[&header, &attribute(2, &[10, 0, 0, 1])]);
        assert_eq!(told(&mut config, 21, &address), ["RTM_DELADDR eth0 10.0.0.1: it was removed"]);
        let rule = join(&[&[0; 12], &attribute(6, &100u32.to_ne_bytes())]);
        assert_eq!(told(&mut config, 32, &rule), ["RTM_NEWRULE  : the rule of priority 100 was added"]);
        let qdisc = |kind: &[u8]| {
            let mut header = [0u8; 20];
            header[4..8].copy_from_slice(&7u32.to_ne_bytes());
            join(&[&header, &attribute(1, kind)])
        };
        assert_eq!(
            told(&mut config, 36, &qdisc(b"tbf\0")),
            ["RTM_NEWQDISC eth0 : the qdisc tbf was added, or changed"]
        );
        assert_eq!(
            told(&mut config, 45, &qdisc(b"bpf\0")),
            ["RTM_DELTFILTER eth0 : the filter bpf was removed"]
        );
        assert!(told(&mut config, 36, &qdisc(b"noop\0")).is_empty());
        assert!(told(&mut config, 90, &qdisc(b"tbf\0")).is_empty(), "another message");
    }

    #[test]
    fn a_notification_of_ethtool_names_what_was_set() {
        let header = attribute(1, &attribute(1, &7u32.to_ne_bytes()));
        let notice = ConfigNotice { of: NoticeOf::Ethtool, kind: 13, body: &header };
        let found = config().read(notice);
        assert_eq!((found[0].interface.as_str(), found[0].message), ("eth0", "ETHTOOL_MSG_FEATURES_NTF"));
        assert_eq!(found[0].what, "offloads changed");
        assert!(config().read(ConfigNotice { kind: 14, ..notice }).is_empty());
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200), kind in 0u16..60, ethtool: bool) {
            let of = if ethtool { NoticeOf::Ethtool } else { NoticeOf::Route };
            let _ = config().read(ConfigNotice { of, kind, body: &noise });
        }
    }
}
