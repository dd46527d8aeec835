//! The slow twin: a path where every frame's fate is decided one by one, and counters move as the kernel moves them.

mod flap;
mod sockets;

use super::*;
use proptest::prelude::*;
use record::snapshot::{
    FilterSample, LinkSample, NeighbourSample, NodeSnapshot, QdiscSample, SocketSample, SoftnetRow,
    SwitchPortSample, SwitchSample, TC_ROOT, WaySample,
};
use record::{DropSource, PlaceDrop, WitnessStatus};
use std::collections::BTreeMap;

/// What happens to one datagram, at the `usize`-th hop of its leg where that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Arrives,
    Refused,
    QdiscFull(usize),
    Queued(usize),
    Backlog(usize),
    TxDropped(usize),
    Ttl(usize),
    ReversePath(usize),
    Filtered(usize),
    OtherHost,
    NoSocket,
    SocketFull,
    LeftInSocket,
    /// Vanishes without any counter while it is forwarded (or, at the last hop, taken in).
    Hidden(usize),
}

struct Twin {
    spec: TestSpec,
    path: Path,
    sender: EndReport,
    receiver: EndReport,
    nodes: BTreeMap<String, NodeSnapshot>,
    softnet_dropped: u64,
    /// (leg, node, station, name) → frames.
    truth: BTreeMap<(String, String, String, String), u64>,
    seen: BTreeMap<(String, &'static str), u64>,
    /// Filters have counters of their own.
    counted: bool,
}

const PAYLOAD: u64 = 100;

impl Twin {
    /// a, some nodes in between (true: a router), b. Every second egress has a counting qdisc.
    fn new(kind: Kind, family: u8, between: &[bool], counted: bool) -> Self {
        let mut names = vec![("a".to_owned(), Role::Sender)];
        let role = |router| if router { Role::Router } else { Role::Bridge };
        names.extend(between.iter().enumerate().map(|(i, &router)| (format!("n{i}"), role(router))));
        names.push(("b".to_owned(), Role::Receiver));
        let headers = if kind == Kind::Frames { if family == 6 { 62 } else { 42 } } else { 0 };
        let size = PAYLOAD as u32 + headers;
        let spec = TestSpec { kind, family, size, response: 0, ..TestSpec::default() };
        let path = Path { forward: hops(&names), back: hops(&turned(&names)), source: "topology".into() };
        let mut twin = Twin {
            spec,
            path,
            sender: EndReport::default(),
            receiver: EndReport::default(),
            nodes: BTreeMap::new(),
            softnet_dropped: 0,
            truth: BTreeMap::new(),
            seen: BTreeMap::new(),
            counted,
        };
        for (index, (name, _)) in names.iter().enumerate() {
            twin.nodes.insert(name.clone(), node(index, counted));
        }
        twin
    }

    fn v6(&self) -> bool {
        self.spec.family == 6
    }

    fn bump(&mut self, node: &str, v4: &str, v6: &str) {
        let name = if self.v6() { v6 } else { v4 };
        if let Some(counter) = self.nodes.get_mut(node).unwrap().protocols.get_mut(name) {
            *counter += 1;
        }
    }

    fn truth(&mut self, leg: &str, node: &str, station: &str, name: &str) {
        *self.truth.entry((leg.into(), node.into(), station.into(), name.into())).or_default() += 1;
    }

    fn witness(&mut self, node: &str, reason: &'static str) {
        *self.seen.entry((node.into(), reason)).or_default() += 1;
    }

    fn length(&self) -> u64 {
        14 + if self.v6() { 40 } else { 20 } + 8 + PAYLOAD
    }

    /// A frame of this length leaves by an interface; false when it does not arrive at the peer.
    fn cross(&mut self, leg: &str, index: usize, hop: &Hop, next: &Hop, fate: Fate) -> bool {
        let (interface, length) = (hop.egress.clone().unwrap(), self.length());
        let passed_by = hop.role == Role::Sender && self.sender.settings.bypasses_qdisc;
        let node = self.nodes.get_mut(&hop.node).unwrap();
        let qdisc = node.qdiscs.iter_mut().find(|qdisc| qdisc.interface == interface);
        if let Some(qdisc) = qdisc.filter(|_| !passed_by) {
            if fate == Fate::QdiscFull(index) {
                qdisc.drops += 1;
                self.truth(leg, &hop.node, &format!("qdisc {interface}"), "qdisc_full");
                self.witness(&hop.node, "QDISC_DROP");
                return false;
            }
            if fate == Fate::Queued(index) {
                qdisc.qlen += 1;
                self.truth(leg, &hop.node, &format!("qdisc {interface}"), "queued");
                return false;
            }
            qdisc.packets += 1;
            qdisc.bytes += length;
        }
        let link = node.links.iter_mut().find(|link| link.name == interface).unwrap();
        if fate == Fate::Backlog(index) || fate == Fate::TxDropped(index) {
            *link.counters.get_mut("tx_dropped").unwrap() += 1;
            let backlog = fate == Fate::Backlog(index);
            self.softnet_dropped += u64::from(backlog);
            let name = if backlog { "backlog_full" } else { "tx_dropped" };
            self.truth(leg, &hop.node, &format!("link {interface}"), name);
            self.witness(
                if backlog { &next.node } else { &hop.node },
                if backlog { "CPU_BACKLOG" } else { "DEV_READY" },
            );
            return false;
        }
        self.carry(&hop.node, &interface, &next.node, next.ingress.as_deref().unwrap(), length);
        true
    }

    fn carry(&mut self, from: &str, egress: &str, to: &str, ingress: &str, length: u64) {
        for (node, interface, direction) in [(from, egress, "tx"), (to, ingress, "rx")] {
            let link = self
                .nodes
                .get_mut(node)
                .unwrap()
                .links
                .iter_mut()
                .find(|link| link.name == interface)
                .unwrap();
            *link.counters.get_mut(&format!("{direction}_packets")).unwrap() += 1;
            *link.counters.get_mut(&format!("{direction}_bytes")).unwrap() += length;
        }
    }

    /// Somebody else's frame on every link of the way there.
    fn stranger(&mut self) {
        let hops = self.path.forward.clone();
        let length = if self.v6() { 86 } else { 42 };
        for (hop, next) in hops.iter().zip(&hops[1..]) {
            let interface = hop.egress.clone().unwrap();
            let node = self.nodes.get_mut(&hop.node).unwrap();
            if let Some(qdisc) = node.qdiscs.iter_mut().find(|qdisc| qdisc.interface == interface) {
                qdisc.packets += 1;
                qdisc.bytes += length;
            }
            self.carry(&hop.node, &interface, &next.node, next.ingress.as_deref().unwrap(), length);
        }
        if self.v6() {
            for counter in ["Ip6.Ip6InReceives", "Ip6.Ip6InDelivers", "Ip6.Icmp6InMsgs"] {
                self.bump("b", "", counter);
            }
        }
    }

    fn filtered(&mut self, leg: &str, node: &str, station: &str, hook: &str, witnessed: bool) {
        if self.counted {
            let filters = &mut self.nodes.get_mut(node).unwrap().filters;
            *filters.iter_mut().find(|filter| filter.hook == hook).unwrap().counted.as_mut().unwrap() += 1;
        }
        self.truth(leg, node, station, &format!("filter_{hook}"));
        if witnessed {
            self.witness(node, "NETFILTER_DROP");
        }
    }

    /// One datagram over the hops of a leg; true when it reached the last node's transport.
    fn travel(&mut self, leg: &str, fate: Fate) -> bool {
        let hops = if leg == "forward" { self.path.forward.clone() } else { self.path.back.clone() };
        for (index, hop) in hops.iter().enumerate() {
            let node = hop.node.as_str();
            match hop.role {
                Role::Sender if self.raw() => {}
                Role::Receiver if self.raw() => return self.tap(node, index, fate),
                Role::Sender => self.bump(node, "Ip.OutTransmits", "Ip6.Ip6OutTransmits"),
                Role::Bridge if fate == Fate::Filtered(index) => {
                    self.filtered(leg, node, "bridge br0", "forward", true);
                    return false;
                }
                Role::Router if !self.forward(leg, node, index, fate) => return false,
                Role::Receiver => return self.take_in(leg, node, index, fate),
                _ => {}
            }
            if fate == Fate::Hidden(index) {
                return false;
            }
            if !self.cross(leg, index, hop, &hops[index + 1], fate) {
                return false;
            }
        }
        unreachable!("the last hop takes in")
    }

    fn forward(&mut self, leg: &str, node: &str, index: usize, fate: Fate) -> bool {
        self.bump(node, "Ip.InReceives", "Ip6.Ip6InReceives");
        if fate == Fate::Ttl(index) {
            self.bump(node, "Ip.InHdrErrors", "Ip6.Ip6InHdrErrors");
            self.truth(leg, node, "ip forward", "header_error");
            self.witness(node, "IP_INHDR");
            return false;
        }
        if fate == Fate::ReversePath(index) && !self.v6() {
            self.bump(node, "TcpExt.IPReversePathFilter", "");
            self.truth(leg, node, "ip forward", "rp_filter");
            self.witness(node, "IP_RPFILTER");
            return false;
        }
        self.bump(node, "Ip.ForwDatagrams", "Ip6.Ip6OutForwDatagrams");
        if fate == Fate::Filtered(index) {
            self.filtered(leg, node, "ip forward", "forward", true);
            return false;
        }
        self.bump(node, "Ip.OutTransmits", "Ip6.Ip6OutTransmits");
        true
    }

    fn take_in(&mut self, leg: &str, node: &str, index: usize, fate: Fate) -> bool {
        if fate == Fate::OtherHost {
            let ingress = &mut self.nodes.get_mut(node).unwrap().links[0];
            *ingress.counters.get_mut("rx_otherhost_dropped").unwrap() += 1;
            self.truth(leg, node, "ip in", "otherhost");
            self.witness(node, "OTHERHOST");
            return false;
        }
        self.bump(node, "Ip.InReceives", "Ip6.Ip6InReceives");
        if fate == Fate::Filtered(index) {
            self.filtered(leg, node, "ip in", "input", true);
            return false;
        }
        if fate == Fate::Hidden(index) {
            return false;
        }
        self.bump(node, "Ip.InDelivers", "Ip6.Ip6InDelivers");
        true
    }

    fn raw(&self) -> bool {
        self.spec.kind == Kind::Frames
    }

    /// The port at the receiver; the kernel there goes on with its copy whatever the port does, and throws it away.
    fn tap(&mut self, node: &str, index: usize, fate: Fate) -> bool {
        if fate == Fate::Hidden(index) {
            return false;
        }
        for (v4, v6) in [
            ("Ip.InReceives", "Ip6.Ip6InReceives"),
            ("Ip.InDelivers", "Ip6.Ip6InDelivers"),
            ("Udp.InErrors", "Ip6.Udp6InErrors"),
        ] {
            self.bump(node, v4, v6);
        }
        self.witness(node, "SOCKET_FILTER");
        if fate == Fate::SocketFull {
            port_drop(&mut self.receiver, "ring", "ring_full");
            self.truth("forward", node, "tap eth0", "ring_full");
            return false;
        }
        true
    }

    /// A raw frame: what the kernel drops inside the send call fails that call too.
    fn send_raw(&mut self, fate: Fate) {
        if fate == Fate::Refused {
            port_drop(&mut self.sender, "port", "oversize");
            self.truth("forward", "a", "app send", "send_oversize");
            return;
        }
        let full = !self.sender.settings.bypasses_qdisc && fate == Fate::QdiscFull(0);
        let dropped = |twin: &Self| twin.truth.values().sum::<u64>();
        let before = dropped(self);
        let arrived = self.travel("forward", fate);
        let inside = matches!(fate, Fate::Backlog(0) | Fate::TxDropped(0)) || full;
        if inside && dropped(self) > before {
            port_drop(&mut self.sender, "socket", "qdisc_full");
        } else {
            self.sender.sent += 1;
            self.sender.sent_bytes += self.length();
        }
        self.receiver.received += u64::from(arrived);
        self.receiver.unique += u64::from(arrived);
    }

    fn socket(&mut self, node: &str) -> &mut SocketSample {
        &mut self.nodes.get_mut(node).unwrap().sockets[0]
    }

    /// Transport and socket; true when the application reads it.
    fn read(&mut self, leg: &str, node: &str, fate: Fate) -> bool {
        match fate {
            Fate::NoSocket if self.spec.kind != Kind::Ping => {
                self.bump(node, "Udp.NoPorts", "Ip6.Udp6NoPorts");
                self.truth(leg, node, "udp in", "no_socket");
                self.witness(node, "NO_SOCKET");
                false
            }
            Fate::SocketFull => {
                self.bump(node, "Udp.RcvbufErrors", "Ip6.Udp6RcvbufErrors");
                self.bump(node, "Udp.InErrors", "Ip6.Udp6InErrors");
                self.socket(node).drops += 1;
                self.truth(leg, node, "socket", "socket_buffer_full");
                self.witness(node, "SOCKET_RCVBUFF");
                false
            }
            Fate::LeftInSocket => {
                self.socket(node).receive_queue_bytes += 768;
                self.truth(leg, node, "socket", "queued");
                false
            }
            _ => {
                self.bump(node, "Udp.InDatagrams", "Ip6.Udp6InDatagrams");
                true
            }
        }
    }

    /// Sends one message and follows it, and its response if there is one.
    fn send(&mut self, there: Fate, back: Fate) {
        self.sender.attempted += 1;
        if self.raw() {
            return self.send_raw(there);
        }
        if there == Fate::Refused {
            self.truth("forward", "a", "app send", "send_ENOBUFS");
            self.sender.send_errors = vec![NamedCount {
                name: "ENOBUFS".into(),
                count: self.sender.send_errors.first().map_or(0, |error| error.count) + 1,
            }];
            return;
        }
        self.sender.sent += 1;
        self.sender.sent_bytes += PAYLOAD;
        if !self.travel("forward", there) {
            return;
        }
        let ping = self.spec.kind == Kind::Ping;
        if ping {
            self.bump("b", "Icmp.InEchos", "Ip6.Icmp6InEchos");
            self.bump("b", "Icmp.OutEchoReps", "Ip6.Icmp6OutEchoReplies");
        } else if !self.read("forward", "b", there) {
            return;
        }
        if !self.spec.kind.is_round_trip() {
            self.receiver.received += 1;
            self.receiver.unique += 1;
            return;
        }
        self.receiver.responses += 1;
        if !self.travel("back", back) {
            return;
        }
        if ping {
            self.bump("a", "Icmp.InEchoReps", "Ip6.Icmp6InEchoReplies");
        }
        if self.read("back", "a", back) {
            self.sender.received += 1;
            self.sender.unique += 1;
        }
    }

    fn close(&self) -> Ledger {
        let before = snapshot(self.nodes.keys().map(|name| (name.clone(), self.blank(name))), 0);
        let after = snapshot(
            self.nodes.iter().map(|(name, node)| (name.clone(), node.clone())),
            self.softnet_dropped,
        );
        let details = self.seen.iter().map(|((node, reason), &frames)| WitnessDrop {
            reason: (*reason).into(),
            node: node.clone(),
            interface: None,
            location: None,
            frames,
            skbs: frames,
        });
        close(&LedgerInput {
            spec: &self.spec,
            path: &self.path,
            sender: &self.sender,
            receiver: &self.receiver,
            before: &before,
            after: &after,
            idle: None,
            witness: WitnessInput::Counted { details: details.collect(), lost: 0 },
            ports: Ports { sender: 7, receiver: 7 },
            arrival: None,
        })
    }

    fn blank(&self, name: &str) -> NodeSnapshot {
        let index = self.path.forward.iter().position(|hop| hop.node == name).unwrap();
        let mut blank = node(index, self.counted);
        let way =
            |way: &WaySample| WaySample { from: way.from.clone(), to: way.to.clone(), ..Default::default() };
        blank.ways = self.nodes[name].ways.iter().map(way).collect();
        blank.switch = self.nodes[name].switch.as_ref().map(|switch| SwitchSample {
            ports: switch.ports.iter().map(|port| switch_port(&port.interface, 0, 0, 0)).collect(),
            packet_ins_dropped: switch.packet_ins_dropped.map(|_| 0),
            ..SwitchSample::default()
        });
        blank
    }

    /// The node between the hosts is a program: 100 frames arrive, 40 do not leave it.
    fn through_a_program() -> Twin {
        let mut twin = Twin::new(Kind::UdpStream, 4, &[false], true);
        twin.path.forward[1].role = Role::Forwarder;
        (0..100).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
        (0..40).for_each(|_| twin.send(Fate::Hidden(1), Fate::Arrives));
        twin
    }
}

fn switch_port(interface: &str, rx_frames: u64, tx_frames: u64, length: u64) -> SwitchPortSample {
    let (rx_bytes, tx_bytes) = (rx_frames * length, tx_frames * length);
    SwitchPortSample {
        interface: interface.into(),
        rx_frames,
        rx_bytes,
        tx_frames,
        tx_bytes,
        ..Default::default()
    }
}

fn port_drop(end: &mut EndReport, place: &str, name: &str) {
    match end.port_drops.iter_mut().find(|drop| drop.name == name) {
        Some(drop) => drop.count += 1,
        None => end.port_drops.push(PlaceDrop { place: place.into(), name: name.into(), count: 1 }),
    }
}

fn turned(names: &[(String, Role)]) -> Vec<(String, Role)> {
    let mut turned: Vec<_> = names.iter().rev().cloned().collect();
    let last = turned.len() - 1;
    (turned[0].1, turned[last].1) = (Role::Sender, Role::Receiver);
    turned
}

fn hops(names: &[(String, Role)]) -> Vec<Hop> {
    let last = names.len() - 1;
    // Towards higher letters a node leaves by `right`, back by `left`.
    let forward = names[0].0 == "a";
    let (entry, exit) = if forward { ("left", "right") } else { ("right", "left") };
    let ends = |index: usize, interface: &str| {
        if index == 0 || index == last { "eth0".to_owned() } else { interface.to_owned() }
    };
    names
        .iter()
        .enumerate()
        .map(|(index, (node, role))| Hop {
            node: node.clone(),
            role: *role,
            ingress: (index > 0).then(|| ends(index, entry)),
            egress: (index < last).then(|| ends(index, exit)),
            bridge: (*role == Role::Bridge).then(|| "br0".into()),
        })
        .collect()
}

const PROTOCOLS: &[&str] = &[
    "Ip6.Icmp6OutMLDv2Reports",
    "Ip.OutTransmits",
    "Ip.InReceives",
    "Ip.InDelivers",
    "Ip.ForwDatagrams",
    "Ip.InHdrErrors",
    "Udp.InDatagrams",
    "Udp.NoPorts",
    "Udp.RcvbufErrors",
    "Udp.InErrors",
    "Icmp.InEchos",
    "Icmp.OutEchoReps",
    "Icmp.InEchoReps",
    "TcpExt.IPReversePathFilter",
    "Ip6.Ip6OutTransmits",
    "Ip6.Ip6InReceives",
    "Ip6.Ip6InDelivers",
    "Ip6.Ip6OutForwDatagrams",
    "Ip6.Ip6InHdrErrors",
    "Ip6.Udp6InDatagrams",
    "Ip6.Udp6NoPorts",
    "Ip6.Udp6RcvbufErrors",
    "Ip6.Udp6InErrors",
    "Ip6.Icmp6InEchos",
    "Ip6.Icmp6OutEchoReplies",
    "Ip6.Icmp6InEchoReplies",
    "Ip6.Icmp6InMsgs",
    "Ip6.Ip6InNoRoutes",
    "Ip6.Ip6FragCreates",
    "Ip6.Ip6FragOKs",
    "Ip6.Ip6ReasmFails",
];

fn node(index: usize, counted: bool) -> NodeSnapshot {
    let names = if index == 0 { vec!["eth0"] } else { vec!["eth0", "left", "right"] };
    let mut node = NodeSnapshot::default();
    let counters = [
        "tx_packets",
        "tx_bytes",
        "tx_dropped",
        "rx_packets",
        "rx_bytes",
        "rx_dropped",
        "rx_otherhost_dropped",
    ];
    for (place, name) in names.iter().enumerate() {
        node.links.push(LinkSample {
            name: (*name).into(),
            index: place as u32 + 2,
            mtu: 1500,
            up: true,
            carrier: true,
            bridge_state: Some(3),
            counters: counters.iter().map(|name| ((*name).to_owned(), 1000)).collect(),
            ..LinkSample::default()
        });
        if (index + place).is_multiple_of(2) {
            node.qdiscs.push(QdiscSample {
                interface: (*name).into(),
                kind: "pfifo".into(),
                handle: 0x10000,
                parent: TC_ROOT,
                packets: 5,
                bytes: 5000,
                ..QdiscSample::default()
            });
        }
    }
    node.protocols = PROTOCOLS.iter().map(|name| ((*name).to_owned(), 100)).collect();
    node.sockets.push(SocketSample {
        protocol: "udp".into(),
        local_port: 7,
        inode: 1,
        ..SocketSample::default()
    });
    for (family, hook) in [("bridge", "forward"), ("inet", "forward"), ("inet", "input")] {
        let chain = format!("t/{hook}");
        let counted = counted.then_some(3);
        if counted.is_some() && family == "bridge" {
            continue; // one rule per hook, so that the twin knows which one counts
        }
        node.filters.push(FilterSample {
            family: family.into(),
            hook: hook.into(),
            chain,
            drops: true,
            counted,
        });
    }
    node
}

fn snapshot(nodes: impl Iterator<Item = (String, NodeSnapshot)>, dropped: u64) -> Snapshot {
    Snapshot {
        begun_ns: 1,
        ended_ns: 2,
        softnet: vec![SoftnetRow { cpu: 1, dropped: 50 + dropped, ..SoftnetRow::default() }],
        nodes: nodes.collect(),
        ..Snapshot::default()
    }
}

fn conserved(ledger: &Ledger) -> Result<(), TestCaseError> {
    let mut at = ledger.sent;
    let mut sum = 0i128;
    for station in &ledger.stations {
        prop_assert_eq!(station.entered, at, "in of {} is not the out before", &station.station);
        let drops: i128 = station.drops.iter().map(|drop| i128::from(drop.count)).sum();
        prop_assert_eq!(
            i128::from(station.entered),
            i128::from(station.left) + drops + i128::from(station.queued) + i128::from(station.residual)
        );
        sum += drops + i128::from(station.queued) + i128::from(station.residual);
        at = station.left;
    }
    prop_assert_eq!(i128::from(ledger.sent) - i128::from(ledger.received), sum);
    let residuals: i64 = ledger.stations.iter().map(|station| station.residual).sum();
    prop_assert_eq!(ledger.unexplained, residuals);
    Ok(())
}

fn found(ledger: &Ledger) -> BTreeMap<(String, String, String, String), u64> {
    let mut found = BTreeMap::new();
    for station in &ledger.stations {
        let key = |name: &str| {
            (station.leg.clone(), station.node.clone(), station.station.clone(), name.to_owned())
        };
        for drop in &station.drops {
            *found.entry(key(&drop.name)).or_default() += drop.count;
        }
        if station.queued != 0 {
            found.insert(key("queued"), station.queued as u64);
        }
    }
    found
}

fn fate() -> impl Strategy<Value = Fate> {
    let at = 0usize..5;
    prop_oneof![
        6 => Just(Fate::Arrives),
        1 => Just(Fate::Refused),
        2 => at.clone().prop_map(Fate::QdiscFull),
        1 => at.clone().prop_map(Fate::Queued),
        2 => at.clone().prop_map(Fate::Backlog),
        2 => at.clone().prop_map(Fate::TxDropped),
        1 => at.clone().prop_map(Fate::Ttl),
        1 => at.clone().prop_map(Fate::ReversePath),
        2 => at.prop_map(Fate::Filtered),
        1 => Just(Fate::OtherHost),
        1 => Just(Fate::NoSocket),
        2 => Just(Fate::SocketFull),
        1 => Just(Fate::LeftInSocket),
    ]
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::UdpStream), Just(Kind::UdpRr), Just(Kind::Ping), Just(Kind::Frames)]
}

/// A fate that cannot happen on this path means that the datagram arrives. Ping sockets of the twin have no queue.
fn possible(kind: Kind, fate: Fate) -> Fate {
    match fate {
        Fate::LeftInSocket if kind == Kind::Ping => Fate::Arrives,
        other => other,
    }
}

/// The twin's tx_dropped is only told from the backlog when the backlog did not drop elsewhere.
fn one_kind_of_link_drop(backlog: bool, fate: Fate) -> Fate {
    match fate {
        Fate::Backlog(at) | Fate::TxDropped(at) if backlog => Fate::Backlog(at),
        Fate::Backlog(at) | Fate::TxDropped(at) => Fate::TxDropped(at),
        other => other,
    }
}

proptest! {
    #[test]
    fn every_named_drop_is_found_where_it_happened(
        kind in kinds(), v6: bool, between in prop::collection::vec(any::<bool>(), 0..4), counted: bool, backlog: bool,
        fates in prop::collection::vec((fate(), fate()), 0..150), strangers in 0usize..3, bypass: bool,
    ) {
        let mut twin = Twin::new(kind, if v6 { 6 } else { 4 }, &between, counted);
        twin.sender.settings.bypasses_qdisc = bypass && kind == Kind::Frames;
        for (there, back) in fates {
            let tame = |fate| one_kind_of_link_drop(backlog, possible(kind, fate));
            // A counter that both directions share does not tell the direction: the twin uses it on the way there only.
            let back = match back {
                Fate::Ttl(_) | Fate::ReversePath(_) => Fate::Arrives,
                Fate::Filtered(at) if at <= between.len() => Fate::Arrives,
                other => other,
            };
            twin.send(tame(there), tame(back));
        }
        (0..strangers).for_each(|_| twin.stranger());
        let ledger = twin.close();
        conserved(&ledger)?;
        prop_assert_eq!(found(&ledger), twin.truth);
        prop_assert!(ledger.stations.iter().all(|station| station.residual == 0), "{:#?}", ledger.stations);
        prop_assert_eq!(ledger.witness.status, WitnessStatus::Agrees, "{:?}", ledger.witness.disagreement);
    }

    #[test]
    fn a_loss_without_a_counter_is_the_residual_of_its_station(
        kind in kinds(), v6: bool, between in prop::collection::vec(any::<bool>(), 0..4), at in 0usize..5,
        hidden in 1u64..40, passed in 0u64..40,
    ) {
        let mut twin = Twin::new(kind, if v6 { 6 } else { 4 }, &between, true);
        let at = at.min(between.len() + 1);
        (0..hidden).for_each(|_| twin.send(Fate::Hidden(at), Fate::Arrives));
        (0..passed).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
        let ledger = twin.close();
        conserved(&ledger)?;
        let hop = &twin.path.forward[at];
        let name = match hop.role {
            Role::Sender if kind == Kind::Frames => "port eth0".to_owned(),
            Role::Receiver if kind == Kind::Frames => "tap eth0".into(),
            Role::Sender => "ip out".into(),
            Role::Bridge => "bridge br0".into(),
            Role::Router => "ip forward".into(),
            Role::Forwarder => "program".into(),
            Role::Receiver => "ip in".into(),
        };
        for station in &ledger.stations {
            let here = station.node == hop.node && station.station == name && station.leg == "forward";
            prop_assert_eq!(station.residual, if here { hidden as i64 } else { 0 }, "{:?}", station);
        }
        prop_assert_eq!(ledger.unexplained, hidden as i64);
    }

    /// Whatever the counters say, nothing panics and nothing is lost from the books.
    #[test]
    fn garbage_is_conserved(
        kind in kinds(), v6: bool, between in prop::collection::vec(any::<bool>(), 0..3), gso in 0u32..70000, gro: bool,
        numbers in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..5000], 80), take in any::<[bool; 8]>(),
    ) {
        let mut twin = Twin::new(kind, if v6 { 6 } else { 4 }, &between, take[0]);
        (twin.spec.gso, twin.spec.gro) = (gso, gro);
        let mut next = numbers.into_iter().cycle();
        let mut number = || next.next().unwrap();
        for node in twin.nodes.values_mut() {
            node.protocols.values_mut().for_each(|value| *value = number());
            for link in &mut node.links {
                link.counters.values_mut().for_each(|value| *value = number());
                (link.mtu, link.up, link.carrier_changes) = (number() as u32, take[1], number());
            }
            for qdisc in &mut node.qdiscs {
                (qdisc.packets, qdisc.bytes, qdisc.drops, qdisc.qlen) = (number(), number(), number(), number());
            }
            for socket in &mut node.sockets {
                (socket.drops, socket.receive_queue_bytes) = (number(), number());
            }
            if take[2] {
                node.links.clear();
            }
            if take[3] {
                node.neighbours.push(NeighbourSample { interface: "eth0".into(), state: "failed".into(), ..NeighbourSample::default() });
            }
        }
        for end in [&mut twin.sender, &mut twin.receiver] {
            (end.attempted, end.sent, end.sent_bytes, end.received) = (number(), number(), number(), number());
            (end.unique, end.duplicates, end.foreign, end.responses) = (number(), number(), number(), number());
            end.socket_drops = take[4].then(&mut number);
            end.send_errors = vec![NamedCount { name: "EPERM".into(), count: number() }];
            for (place, name) in [("ring", "ring_full"), ("socket", "qdisc_full"), ("port", "oversize")] {
                end.port_drops.push(PlaceDrop { place: place.into(), name: name.into(), count: number() });
            }
        }
        twin.softnet_dropped = number() >> 1;
        twin.seen.insert(("a".into(), "NEIGH_FAILED"), number());
        if take[5] {
            twin.path.back.clear();
        }
        conserved(&twin.close())?;
    }
}

#[test]
fn a_drop_that_only_the_witness_knows_is_named_by_it() {
    let mut twin = Twin::new(Kind::UdpStream, 4, &[true], true);
    (0..30).for_each(|_| twin.send(Fate::Hidden(1), Fate::Arrives));
    twin.seen.insert(("n0".into(), "NEIGH_FAILED"), 30);
    let ledger = twin.close();
    let drop = ledger.stations.iter().flat_map(|station| &station.drops).next().unwrap();
    assert_eq!(
        (drop.name.as_str(), drop.count, drop.source),
        ("neighbour_unresolved", 30, DropSource::Witness)
    );
    assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
}

/// The copies that the receiving host sees behind the port are not the path's: neither as counters nor as deaths.
#[test]
fn copies_behind_the_port_are_no_loss_and_are_said() {
    let mut twin = Twin::new(Kind::Frames, 4, &[false], true);
    (0..500).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
    (0..20).for_each(|_| twin.send(Fate::SocketFull, Fate::Arrives));
    let ledger = twin.close();
    assert_eq!(named(&ledger), ["tap eth0 ring_full 20"]);
    assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
    assert!(ledger.witness.by_reason.is_empty(), "{:?}", ledger.witness);
    assert!(ledger.notes.iter().any(|note| note.contains("520 copies")), "{:?}", ledger.notes);
    let names: Vec<_> = ledger.stations.iter().map(|station| station.station.as_str()).collect();
    let expected = [
        "app send",
        "port eth0",
        "qdisc eth0",
        "link eth0",
        "bridge br0",
        "link right",
        "tap eth0",
        "app receive",
    ];
    assert_eq!(names, expected);
}

/// A transmit ring's frames have their headers where the witness does not look, until a router has read them.
#[test]
fn drops_of_ring_frames_in_front_of_a_router_are_not_expected_of_the_witness() {
    for (between, at, unseen) in [(false, 1, true), (true, 1, false), (false, 0, true), (true, 0, true)] {
        let mut twin = Twin::new(Kind::Frames, 4, &[between], true);
        twin.sender.settings.port = "ring:eth0".into();
        (0..500).for_each(|_| twin.send(Fate::TxDropped(at), Fate::Arrives));
        twin.seen.clear();
        let ledger = twin.close();
        let expected = if unseen { WitnessStatus::Agrees } else { WitnessStatus::Disagrees };
        assert_eq!((ledger.unexplained, ledger.witness.status), (0, expected), "{ledger:#?}");
        assert_eq!(ledger.notes.iter().any(|note| note.contains("cannot confirm 500")), unseen);
    }
}

#[test]
fn a_drop_that_the_witness_did_not_see_is_a_disagreement() {
    let mut twin = Twin::new(Kind::UdpStream, 4, &[], true);
    (0..300).for_each(|_| twin.send(Fate::SocketFull, Fate::Arrives));
    twin.seen.insert(("b".into(), "SOCKET_RCVBUFF"), 200);
    let ledger = twin.close();
    assert_eq!(ledger.witness.status, WitnessStatus::Disagrees);
    assert_eq!(
        ledger.witness.disagreement,
        ["100 of socket_buffer_full at socket of node b were not seen by the witness"]
    );
}

/// A carrier that goes leaves the qdisc that drops everything, whose reason is that of a full one.
#[test]
fn a_link_that_went_down_may_drop_like_a_full_qdisc() {
    let confirmed =
        |name| crate::ledger::witness::names_of("QDISC_DROP", Some("__dev_queue_xmit")).contains(&name);
    assert!(confirmed("qdisc_full") && confirmed("link_down"));
    assert!(!confirmed("socket_buffer_full"));
}

/// What the ledger names, as `station name count` for short.
fn named(ledger: &Ledger) -> Vec<String> {
    let stations = ledger.stations.iter();
    let drops =
        stations.flat_map(|s| s.drops.iter().map(move |d| format!("{} {} {}", s.station, d.name, d.count)));
    drops.collect()
}

fn link<'t>(twin: &'t mut Twin, node: &str, name: &str) -> &'t mut LinkSample {
    twin.nodes.get_mut(node).unwrap().links.iter_mut().find(|link| link.name == name).unwrap()
}

/// As measured: the device sends only ARP requests, IP counts every datagram, the entry is `failed`.
#[test]
fn an_unresolved_neighbour_is_found_by_its_state() {
    for name in ["ip out", "ip forward"] {
        let mut twin = Twin::new(Kind::UdpStream, 4, &[true], true);
        let (node, interface, at) = if name == "ip out" { ("a", "eth0", 0) } else { ("n0", "right", 1) };
        (0..500).for_each(|_| twin.send(Fate::Hidden(at), Fate::Arrives));
        (0..3).for_each(|_| twin.stranger());
        let failed = NeighbourSample {
            interface: interface.into(),
            address: "10.0.0.2".into(),
            state: "failed".into(),
        };
        twin.nodes.get_mut(node).unwrap().neighbours.push(failed);
        let ledger = twin.close();
        assert_eq!(named(&ledger), [format!("{name} neighbour_unresolved 500")], "{ledger:#?}");
        assert_eq!(ledger.unexplained, 0);
    }
}

#[test]
fn an_mtu_hole_is_found_at_the_link_and_in_the_bridge() {
    let mut twin = Twin::new(Kind::UdpStream, 4, &[false], true);
    (0..200).for_each(|_| twin.send(Fate::TxDropped(0), Fate::Arrives));
    link(&mut twin, "n0", "left").mtu = 120;
    assert_eq!(named(&twin.close()), ["link eth0 mtu_exceeded 200"]);
    let mut twin = Twin::new(Kind::UdpStream, 4, &[false], true);
    (0..200).for_each(|_| twin.send(Fate::Hidden(1), Fate::Arrives));
    link(&mut twin, "n0", "right").mtu = 120;
    assert_eq!(named(&twin.close()), ["bridge br0 mtu_exceeded 200"]);
}

#[test]
fn a_link_that_goes_down_is_found_where_frames_end() {
    let mut twin = Twin::new(Kind::UdpStream, 4, &[false], true);
    (0..70).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
    (0..30).for_each(|_| twin.send(Fate::Hidden(1), Fate::Arrives));
    link(&mut twin, "n0", "right").carrier_changes = 1;
    assert_eq!(named(&twin.close()), ["bridge br0 link_down 30"]);
    // At the sender: IP counted the datagrams, the device never saw them.
    let mut twin = Twin::new(Kind::UdpStream, 4, &[false], true);
    (0..70).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
    (0..30).for_each(|_| twin.send(Fate::Hidden(0), Fate::Arrives));
    (link(&mut twin, "a", "eth0").carrier, link(&mut twin, "a", "eth0").carrier_changes) = (false, 1);
    assert_eq!(named(&twin.close()), ["link eth0 link_down 30"]);
}

#[test]
fn what_a_program_counts_names_what_it_dropped() {
    let mut twin = Twin::through_a_program();
    // Nobody could ask it: the loss is located, and has no name.
    let ledger = twin.close();
    assert_eq!((named(&ledger), ledger.unexplained), (vec![], 40), "{ledger:#?}");
    let lost = |place: &str, name: &str, count| PlaceDrop { place: place.into(), name: name.into(), count };
    let way = WaySample {
        from: "left".into(),
        to: "right".into(),
        received: 130,
        received_bytes: 130 * twin.length(),
        full: 20,
        failed: 2,
        lost_before: vec![lost("ring", "ring_full", 9), lost("socket", "buffer_full", 1)],
        lost_after: vec![
            lost("port", "oversize", 5),
            lost("kernel", "qdisc_full", 3),
            lost("port", "runt", 0),
        ],
    };
    let back = WaySample { from: "right".into(), to: "left".into(), ..WaySample::default() };
    twin.nodes.get_mut("n0").unwrap().ways = vec![back, way];
    let ledger = twin.close();
    let expected = [
        "program in left ring_full 9",
        "program in left socket_buffer_full 1",
        "program out right transmitter_full 20",
        "program out right transmitter_failed 2",
        "program out right port_oversize 5",
        "program out right qdisc_full 3",
    ];
    assert_eq!(
        (&named(&ledger)[..], ledger.unexplained),
        (&expected.map(String::from)[..], 0),
        "{ledger:#?}"
    );
    // What it does not explain stays a residual, where it is; what it counts beyond the gap is not taken.
    let ways = &mut twin.nodes.get_mut("n0").unwrap().ways;
    (ways[1].lost_after[0].count, ways[1].full) = (0, 0);
    ways[1].lost_before[0].count = 1000;
    let ledger = twin.close();
    assert_eq!(ledger.unexplained, 25, "{ledger:#?}");
    let residual = ledger.stations.iter().find(|station| station.residual != 0).unwrap();
    assert_eq!((residual.station.as_str(), residual.residual), ("program out right", 25));
    // In hand when the link went down.
    link(&mut twin, "n0", "right").carrier_changes = 1;
    let ledger = twin.close();
    assert!(named(&ledger).contains(&"program out right link_down 2".to_owned()), "{ledger:#?}");
    assert_eq!(ledger.unexplained, 0);
}

#[test]
fn packet_ins_that_the_switch_dropped_are_named_once() {
    let mut twin = Twin::through_a_program();
    let length = twin.length();
    for (by_rules, by_buckets, dropped, named) in [
        (40, 0, Some(0), (0, 40)),
        (40, 0, Some(25), (25, 15)),
        (30, 10, Some(35), (35, 5)),
        (40, 0, Some(90), (40, 0)),
        (10, 0, Some(10), (10, 0)),
        (40, 0, None, (0, 40)),
    ] {
        twin.nodes.get_mut("n0").unwrap().switch = Some(SwitchSample {
            ports: vec![switch_port("left", 140, 0, length), switch_port("right", 0, 100, length)],
            tables: vec![],
            to_controller: by_rules,
            buckets_to_controller: by_buckets,
            packet_ins_dropped: dropped,
        });
        let ledger = twin.close();
        let tables = ledger.stations.iter().find(|station| station.station == "switch tables").unwrap();
        let sum = |name: &str| {
            tables.drops.iter().filter(|drop| drop.name == name).map(|drop| drop.count).sum::<u64>()
        };
        assert_eq!((sum("packet_in_dropped"), sum("to_controller")), named, "{dropped:?}: {tables:?}");
        assert_eq!(ledger.unexplained, (40 - by_rules - by_buckets) as i64);
    }
}

#[test]
fn frames_that_rules_or_buckets_send_to_the_controller_are_named() {
    let mut twin = Twin::through_a_program();
    let length = twin.length();
    for (by_rules, by_buckets, unexplained) in [(0, 0, 40), (40, 0, 0), (0, 40, 0), (30, 10, 0), (0, 15, 25)]
    {
        twin.nodes.get_mut("n0").unwrap().switch = Some(SwitchSample {
            ports: vec![switch_port("left", 140, 0, length), switch_port("right", 0, 100, length)],
            tables: vec![],
            to_controller: by_rules,
            buckets_to_controller: by_buckets,
            packet_ins_dropped: None,
        });
        let ledger = twin.close();
        let tables = ledger.stations.iter().find(|station| station.station == "switch tables").unwrap();
        let sum: u64 = tables.drops.iter().map(|drop| drop.count).sum();
        assert!(tables.drops.iter().all(|drop| drop.name == "to_controller"), "{tables:?}");
        assert_eq!((sum, tables.residual), (by_rules + by_buckets, unexplained), "{tables:?}");
        assert_eq!(ledger.unexplained, unexplained);
        let evidence: String = tables.drops.iter().map(|drop| drop.evidence.as_str()).collect();
        assert_eq!(
            (evidence.contains("rules"), evidence.contains("buckets")),
            (by_rules > 0, by_buckets > 0)
        );
    }
}

/// 100 super-frames of 10 datagrams: the qdisc drops 6 buffers, devices count buffers.
#[test]
fn super_frames_are_counted_in_datagrams() {
    let mut twin = Twin::new(Kind::UdpStream, 4, &[], true);
    twin.spec.gso = 10;
    (twin.sender.attempted, twin.sender.sent, twin.sender.sent_bytes) = (1000, 1000, 1000 * PAYLOAD);
    (twin.receiver.received, twin.receiver.unique) = (940, 940);
    let bytes = 94 * 42 + 940 * PAYLOAD;
    let qdisc = &mut twin.nodes.get_mut("a").unwrap().qdiscs[0];
    // A qdisc counts segments, and the headers that each of them will have (`qdisc_pkt_len_init`).
    (qdisc.packets, qdisc.bytes, qdisc.drops) = (5 + 940, 5000 + 940 * (42 + PAYLOAD), 6);
    for (node, direction) in [("a", "tx"), ("b", "rx")] {
        let counters = &mut link(&mut twin, node, "eth0").counters;
        *counters.get_mut(&format!("{direction}_packets")).unwrap() += 94;
        *counters.get_mut(&format!("{direction}_bytes")).unwrap() += bytes;
    }
    for (node, counter, count) in [
        ("a", "Ip.OutTransmits", 100),
        ("b", "Ip.InReceives", 94),
        ("b", "Ip.InDelivers", 94),
        ("b", "Udp.InDatagrams", 940),
    ] {
        *twin.nodes.get_mut(node).unwrap().protocols.get_mut(counter).unwrap() += count;
    }
    let ledger = twin.close();
    assert_eq!(named(&ledger), ["qdisc eth0 qdisc_full 60"]);
    assert!(ledger.stations.iter().all(|station| station.residual == 0), "{ledger:#?}");
    assert!(ledger.notes[0].contains("super-frames"));
}

#[test]
fn what_cannot_be_read_is_unknown_and_never_clean() {
    let mut twin = Twin::new(Kind::UdpStream, 4, &[false], true);
    (0..50).for_each(|_| twin.send(Fate::Hidden(1), Fate::Arrives));
    twin.nodes.get_mut("n0").unwrap().links.clear();
    let ledger = twin.close();
    let unknown: Vec<_> =
        ledger.stations.iter().filter(|s| s.unknown.is_some()).map(|s| s.station.as_str()).collect();
    assert!(unknown.contains(&"link right"), "{unknown:?}");
    assert_eq!(ledger.unexplained, 50);
}

/// Frames of another make than the twin's: so many datagrams of so many bytes were sent and received.
fn bulk(twin: &mut Twin, size: u32, sent: u64, received: u64) {
    twin.spec.size = size;
    (twin.sender.attempted, twin.sender.sent) = (sent, sent);
    twin.sender.sent_bytes = sent * u64::from(size);
    (twin.receiver.received, twin.receiver.unique) = (received, received);
}

fn count(twin: &mut Twin, node: &str, counter: &str, count: u64) {
    *twin.nodes.get_mut(node).unwrap().protocols.get_mut(counter).unwrap() += count;
}

/// So many buffers with so many bytes left by an interface.
fn transmit(twin: &mut Twin, node: &str, interface: &str, buffers: u64, bytes: u64) {
    let counters = &mut link(twin, node, interface).counters;
    *counters.get_mut("tx_packets").unwrap() += buffers;
    *counters.get_mut("tx_bytes").unwrap() += bytes;
}

fn queue(twin: &mut Twin, buffers: u64, bytes: u64, drops: u64) {
    let qdisc = &mut twin.nodes.get_mut("a").unwrap().qdiscs[0];
    (qdisc.packets, qdisc.bytes, qdisc.drops) = (5 + buffers, 5000 + bytes, drops);
}

/// A paced sender: 90 full bursts of 10, then 100 single datagrams, of which the socket drops every one.
#[test]
fn bursts_need_not_be_full_to_be_dropped() {
    let mut twin = Twin::new(Kind::UdpStream, 4, &[], true);
    (twin.spec.gso, twin.spec.gro) = (10, true);
    bulk(&mut twin, 100, 1000, 900);
    queue(&mut twin, 1000, 1000 * 142, 0);
    transmit(&mut twin, "a", "eth0", 190, 190 * 42 + 1000 * 100);
    for counter in ["Ip.InReceives", "Ip.InDelivers"] {
        count(&mut twin, "b", counter, 190);
    }
    count(&mut twin, "b", "Udp.RcvbufErrors", 100);
    count(&mut twin, "b", "Udp.InErrors", 100);
    twin.nodes.get_mut("b").unwrap().sockets[0].drops = 100;
    twin.seen.insert(("b".into(), "SOCKET_RCVBUFF"), 100);
    let ledger = twin.close();
    assert_eq!(named(&ledger), ["socket socket_buffer_full 100"], "{ledger:#?}");
    assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
}

/// 1000 datagrams in bursts of 20, of which the qdisc dropped 960: counted as segments, or as pairs.
#[test]
fn a_qdisc_that_counts_segments_leaves_no_doubt() {
    for (drops, doubt) in [(960, 0), (480, 480)] {
        let mut twin = Twin::new(Kind::UdpStream, 4, &[], true);
        twin.spec.gso = 20;
        bulk(&mut twin, 100, 1000, 40);
        queue(&mut twin, 40, 40 * 142, drops);
        transmit(&mut twin, "a", "eth0", 40, 40 * 142);
        for counter in ["Ip.InReceives", "Ip.InDelivers", "Udp.InDatagrams"] {
            count(&mut twin, "b", counter, 40);
        }
        let ledger = twin.close();
        assert_eq!(named(&ledger), ["qdisc eth0 qdisc_full 960"]);
        assert_eq!((ledger.unexplained, ledger.uncertainty), (0, doubt), "{ledger:#?}");
    }
}

#[test]
fn a_counter_of_super_frames_is_one_entry_in_datagrams() {
    let mut twin = Twin::new(Kind::UdpStream, 6, &[true], true);
    twin.spec.gso = 30;
    bulk(&mut twin, 64, 1200, 0);
    queue(&mut twin, 1200, 1200 * 126, 0);
    transmit(&mut twin, "a", "eth0", 40, 40 * 62 + 1200 * 64);
    count(&mut twin, "n0", "Ip6.Ip6InNoRoutes", 40);
    twin.seen.insert(("n0".into(), "IP_INNOROUTES"), 1200);
    let ledger = twin.close();
    assert_eq!(named(&ledger), ["ip forward no_route 1200"], "{ledger:#?}");
    assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
}

/// 100 datagrams of 2000 B over IPv6 are fragments of 1448 and 560 B. Of 60 datagrams one fragment is lost: 50 times
/// the first, 10 times the second. The witness recognises only the first ones, and what is left of the others.
#[test]
fn a_lost_fragment_is_a_lost_datagram_where_it_was_lost() {
    for (station, reason) in
        [("qdisc eth0 qdisc_full 60", "QDISC_DROP"), ("ip forward filter_forward 60", "NETFILTER_DROP")]
    {
        let mut twin = Twin::new(Kind::UdpStream, 6, &[true], true);
        bulk(&mut twin, 2000, 100, 40);
        let all = (200, 200 * 62 + 100 * 2008);
        let rest = (140, 140 * 62 + 50 * 1448 + 90 * 560);
        let at_sender = reason == "QDISC_DROP";
        let (buffers, bytes) = if at_sender { rest } else { all };
        queue(&mut twin, buffers, bytes, 200 - buffers);
        transmit(&mut twin, "a", "eth0", buffers, bytes);
        transmit(&mut twin, "n0", "right", rest.0, rest.1);
        if !at_sender {
            let filters = &mut twin.nodes.get_mut("n0").unwrap().filters;
            *filters.iter_mut().find(|filter| filter.hook == "forward").unwrap().counted.as_mut().unwrap() +=
                60;
        }
        count(&mut twin, "a", "Ip6.Ip6FragCreates", 200);
        count(&mut twin, "a", "Ip6.Ip6FragOKs", 100);
        count(&mut twin, "b", "Ip6.Ip6ReasmFails", 60);
        count(&mut twin, "b", "Ip6.Ip6InDelivers", 40);
        count(&mut twin, "b", "Ip6.Udp6InDatagrams", 40);
        twin.seen.insert((if at_sender { "a" } else { "n0" }.into(), reason), 50);
        twin.seen.insert(("b".into(), "FRAG_REASM_TIMEOUT"), 10);
        let ledger = twin.close();
        assert_eq!(named(&ledger), [station], "{ledger:#?}");
        assert_eq!((ledger.unexplained, ledger.uncertainty), (0, 21));
        assert_eq!(ledger.witness.status, WitnessStatus::Agrees, "{:?}", ledger.witness.disagreement);
        assert!(ledger.notes[0].contains("fragments are counted on the path, not datagrams"));
    }
}

/// Fragments that the end could not put together although nobody lost any.
#[test]
fn what_no_lost_fragment_explains_failed_at_the_end() {
    let mut twin = Twin::new(Kind::UdpStream, 6, &[], true);
    bulk(&mut twin, 2000, 100, 40);
    let bytes = 200 * 62 + 100 * 2008;
    queue(&mut twin, 200, bytes, 0);
    transmit(&mut twin, "a", "eth0", 200, bytes);
    count(&mut twin, "a", "Ip6.Ip6FragCreates", 200);
    count(&mut twin, "a", "Ip6.Ip6FragOKs", 100);
    count(&mut twin, "b", "Ip6.Ip6ReasmFails", 60);
    count(&mut twin, "b", "Ip6.Ip6InDelivers", 40);
    count(&mut twin, "b", "Ip6.Udp6InDatagrams", 40);
    let ledger = twin.close();
    assert_eq!(named(&ledger), ["ip in reassembly_failed 60"], "{ledger:#?}");
    assert_eq!((ledger.unexplained, ledger.uncertainty), (0, 0));
}

/// A frame of somebody else's, as long as the test's, hides a loss at the router from the first counters.
#[test]
fn a_loss_that_a_stranger_may_have_hidden_before_is_not_certain() {
    let mut twin = Twin::new(Kind::UdpStream, 4, &[true], true);
    (0..100).for_each(|_| twin.send(Fate::Arrives, Fate::Arrives));
    twin.send(Fate::Hidden(1), Fate::Arrives);
    queue(&mut twin, 102, 102 * 142, 0);
    transmit(&mut twin, "a", "eth0", 1, 142);
    let ledger = twin.close();
    let forward = ledger.stations.iter().find(|station| station.station == "ip forward").unwrap();
    assert_eq!((forward.residual, forward.uncertainty), (1, 1), "{ledger:#?}");
}

proptest! {
    /// Fragments are lost one by one, at the sender's qdisc or at a filter behind it: what each place really lost is
    /// within its uncertainty.
    #[test]
    fn lost_fragments_are_found_within_the_uncertainty(
        fates in prop::collection::vec(prop::collection::vec(0u8..8, 3), 1..120), quiet_qdisc: bool, quiet_filter: bool,
    ) {
        let mut twin = Twin::new(Kind::UdpStream, 6, &[true], true);
        let pieces = [1448u64, 1448, 112];
        let (mut sent, mut passed, mut complete) = ((0, 0), (0, 0), 0);
        let (mut lost, mut fragments, mut firsts) = ([0u64; 2], [0u64; 2], [0u64; 2]);
        for datagram in &fates {
            let mut first_loss = None;
            for (index, (fate, piece)) in datagram.iter().zip(pieces).enumerate() {
                let at = match fate {
                    0 if !quiet_qdisc => Some(0),
                    1 if !quiet_filter => Some(1),
                    _ => None,
                };
                first_loss = match (first_loss, at) {
                    (Some(a), Some(b)) => Some(std::cmp::min::<usize>(a, b)),
                    (a, b) => a.or(b),
                };
                if let Some(at) = at {
                    fragments[at] += 1;
                    firsts[at] += u64::from(index == 0);
                }
                if at != Some(0) {
                    sent = (sent.0 + 1, sent.1 + piece + 62);
                }
                if at.is_none() {
                    passed = (passed.0 + 1, passed.1 + piece + 62);
                }
            }
            first_loss.map_or_else(|| complete += 1, |at| lost[at] += 1);
        }
        let all = fates.len() as u64;
        bulk(&mut twin, 3000, all, complete);
        queue(&mut twin, sent.0, sent.1, fragments[0]);
        transmit(&mut twin, "a", "eth0", sent.0, sent.1);
        transmit(&mut twin, "n0", "right", passed.0, passed.1);
        let filters = &mut twin.nodes.get_mut("n0").unwrap().filters;
        *filters.iter_mut().find(|filter| filter.hook == "forward").unwrap().counted.as_mut().unwrap() += fragments[1];
        count(&mut twin, "a", "Ip6.Ip6FragCreates", 3 * all);
        count(&mut twin, "a", "Ip6.Ip6FragOKs", all);
        count(&mut twin, "b", "Ip6.Ip6InDelivers", complete);
        count(&mut twin, "b", "Ip6.Udp6InDatagrams", complete);
        twin.seen.insert(("a".into(), "QDISC_DROP"), firsts[0]);
        twin.seen.insert(("n0".into(), "NETFILTER_DROP"), firsts[1]);
        let ledger = twin.close();
        conserved(&ledger)?;
        prop_assert_eq!(ledger.unexplained, 0, "{:#?}", ledger.stations);
        for (station, truth) in [("qdisc eth0", lost[0]), ("ip forward", lost[1])] {
            let found = ledger.stations.iter().find(|found| found.station == station).unwrap();
            let named: u64 = found.drops.iter().map(|drop| drop.count).sum();
            prop_assert!(named.abs_diff(truth) <= found.uncertainty, "{} was {}: {:#?}", station, truth, ledger.stations);
        }
        prop_assert_eq!(ledger.witness.status, WitnessStatus::Agrees, "{:?}", ledger.witness.disagreement);
    }

    /// Bursts of any length lose buffers at a qdisc that counts them as buffers or as segments.
    #[test]
    fn bursts_of_any_length_close(bursts in prop::collection::vec((1u64..=20, any::<bool>()), 1..100), segments: bool) {
        let mut twin = Twin::new(Kind::UdpStream, 4, &[], true);
        twin.spec.gso = 20;
        let length = |passes| bursts.iter().filter(move |burst| burst.1 == passes).map(|burst| burst.0);
        let (passed, lost) = (length(true).sum::<u64>(), length(false).sum::<u64>());
        let buffers = length(true).count() as u64;
        bulk(&mut twin, 100, passed + lost, passed);
        queue(&mut twin, passed, passed * 142, if segments { lost } else { length(false).count() as u64 });
        transmit(&mut twin, "a", "eth0", buffers, buffers * 42 + passed * 100);
        for counter in ["Ip.InReceives", "Ip.InDelivers"] {
            count(&mut twin, "b", counter, buffers);
        }
        count(&mut twin, "b", "Udp.InDatagrams", passed);
        twin.seen.insert(("a".into(), "QDISC_DROP"), lost);
        let ledger = twin.close();
        conserved(&ledger)?;
        let expected: Vec<String> = (lost > 0).then(|| format!("qdisc eth0 qdisc_full {lost}")).into_iter().collect();
        prop_assert_eq!(named(&ledger), expected);
        prop_assert!(ledger.uncertainty <= if segments { 0 } else { lost }, "{:#?}", ledger.stations);
        prop_assert_eq!((ledger.unexplained, ledger.witness.status), (0, WitnessStatus::Agrees));
    }
}
