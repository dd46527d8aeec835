//! The slow twin: a path where every frame's fate is decided one by one, and counters move as the kernel moves them.

mod astray;
mod fates;
mod flap;
mod sockets;
mod states;
mod units;
mod witnessed;

use super::*;
use proptest::prelude::*;
use record::TrafficKind;
use record::snapshot::{
    DirectionSample, FilterSample, LinkSample, NeighbourSample, NodeSnapshot, QdiscSample, SocketSample,
    SoftnetRow, SwitchDropSample, SwitchPortSample, SwitchSample, TC_ROOT,
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
    fn new(kind: TrafficKind, family: u8, between: &[bool], counted: bool) -> Self {
        let mut names = vec![("a".to_owned(), NodeRole::Sender)];
        let role = |router| if router { NodeRole::Router } else { NodeRole::Bridge };
        names.extend(between.iter().enumerate().map(|(i, &router)| (format!("n{i}"), role(router))));
        names.push(("b".to_owned(), NodeRole::Receiver));
        let headers = if kind == TrafficKind::Frames { if family == 6 { 62 } else { 42 } } else { 0 };
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
        let passed_by = hop.role == NodeRole::Sender && self.sender.settings.bypasses_qdisc;
        let node = self.nodes.get_mut(&hop.node).unwrap();
        let qdisc = node.qdiscs.iter_mut().find(|qdisc| qdisc.interface == interface);
        if let Some(qdisc) = qdisc.filter(|_| !passed_by) {
            if fate == Fate::QdiscFull(index) {
                qdisc.drops += 1;
                let name = qdisc.drop_name();
                self.truth(leg, &hop.node, &format!("qdisc {interface}"), name);
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
                NodeRole::Sender if self.raw() => {}
                NodeRole::Receiver if self.raw() => return self.tap(node, index, fate),
                NodeRole::Sender => self.bump(node, "Ip.OutTransmits", "Ip6.Ip6OutTransmits"),
                NodeRole::Bridge if fate == Fate::Filtered(index) => {
                    self.filtered(leg, node, "bridge br0", "forward", true);
                    return false;
                }
                NodeRole::Router if !self.forward(leg, node, index, fate) => return false,
                NodeRole::Receiver => return self.take_in(leg, node, index, fate),
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
        self.spec.kind == TrafficKind::Frames
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
            Fate::NoSocket if self.spec.kind != TrafficKind::Ping => {
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
        let ping = self.spec.kind == TrafficKind::Ping;
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
            flow: None,
            arrival: None,
        })
    }

    fn blank(&self, name: &str) -> NodeSnapshot {
        let index = self.path.forward.iter().position(|hop| hop.node == name).unwrap();
        let mut blank = node(index, self.counted);
        let way = |way: &DirectionSample| DirectionSample {
            from: way.from.clone(),
            to: way.to.clone(),
            ..Default::default()
        };
        blank.ways = self.nodes[name].ways.iter().map(way).collect();
        blank.switch = self.nodes[name].switch.as_ref().map(|switch| SwitchSample {
            ports: switch.ports.iter().map(|port| switch_port(&port.interface, 0, 0, 0)).collect(),
            packet_ins_dropped: switch.packet_ins_dropped.map(|_| 0),
            drops: switch.drops.as_ref().map(|_| vec![]),
            ..SwitchSample::default()
        });
        blank
    }

    /// The node between the hosts is a program: 100 frames arrive, 40 do not leave it.
    fn through_a_program() -> Twin {
        let mut twin = Twin::new(TrafficKind::UdpStream, 4, &[false], true);
        twin.path.forward[1].role = NodeRole::Forwarder;
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

fn turned(names: &[(String, NodeRole)]) -> Vec<(String, NodeRole)> {
    let mut turned: Vec<_> = names.iter().rev().cloned().collect();
    let last = turned.len() - 1;
    (turned[0].1, turned[last].1) = (NodeRole::Sender, NodeRole::Receiver);
    turned
}

fn hops(names: &[(String, NodeRole)]) -> Vec<Hop> {
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
            bridge: (*role == NodeRole::Bridge).then(|| "br0".into()),
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
                kind: if index % 2 == 1 { "netem" } else { "pfifo" }.into(),
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
