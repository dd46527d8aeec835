//! The cheap subset of a snapshot that tells whether anything still moves.
//!
//! **What.** Frames and drops of interfaces and qdiscs, what waits in qdiscs, sockets and the softnet backlog, UDP and
//! ICMP counters, neighbours that are being asked for. Two reads that agree and find nothing waiting mean *quiet*.
//!
//! **Why not only compare.** A slow shaper can send less than one frame between two reads, and an unresolved neighbour
//! holds frames for three seconds while no counter moves: so a frame that waits where it will leave by itself is
//! movement, and so is one in the packet socket of a program that hands frames on, for such a program may be without a CPU
//! for as long as it takes to read twice. A frame in the socket of an end is not: only the application can take it.

use std::collections::BTreeMap;

use record::snapshot::{
    Counters, LinkSample, NeighbourSample, NodeSnapshot, PacketSocketSample, QdiscSample, SocketSample,
    SoftnetRow,
};

use super::packet_sockets::Owners;

/// What is compared between two reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quick {
    /// Counters and queue lengths by place, e.g. `a: eth0 tx_packets`.
    values: BTreeMap<String, u64>,
    /// Frames that will move by themselves, by place.
    waiting: BTreeMap<String, u64>,
    /// Backlog by CPU. It belongs to the whole host, so it counts only when it is there in both reads.
    backlog: BTreeMap<u32, u64>,
}

impl Quick {
    /// What may move in a node.
    pub(super) fn add_node(&mut self, node: &str, found: &NodeSnapshot, owners: &Owners) {
        self.add_protocols(node, &found.protocols);
        found.sockets.iter().for_each(|socket| self.add_socket(node, socket));
        found.links.iter().for_each(|link| self.add_link(node, link));
        found.qdiscs.iter().for_each(|qdisc| self.add_qdisc(node, qdisc));
        let of_programs = found.packet_sockets.iter().filter(|socket| owners.is_of_a_program(socket));
        of_programs.for_each(|socket| self.add_packet_socket(node, socket));
        found.neighbours.iter().for_each(|neighbour| self.add_neighbour(node, neighbour));
    }

    fn add_link(&mut self, node: &str, link: &LinkSample) {
        for counter in ["rx_packets", "tx_packets", "rx_dropped", "tx_dropped"] {
            if let Some(&value) = link.counters.get(counter) {
                self.values.insert(format!("{node}: {} {counter}", link.name), value);
            }
        }
    }

    fn add_qdisc(&mut self, node: &str, qdisc: &QdiscSample) {
        let place = format!("{node}: {} {:#x} on {}", qdisc.kind, qdisc.handle, qdisc.interface);
        self.values.insert(format!("{place} packets"), qdisc.packets);
        self.values.insert(format!("{place} drops"), qdisc.drops);
        if qdisc.qlen > 0 {
            self.waiting.insert(format!("{place} holds frames"), qdisc.qlen);
        }
    }

    fn add_protocols(&mut self, node: &str, counters: &Counters) {
        let groups = ["Udp.", "Icmp.", "Ip6.Udp6", "Ip6.Icmp6"];
        let ours = counters.iter().filter(|(name, _)| groups.iter().any(|group| name.starts_with(group)));
        self.values.extend(ours.map(|(name, &value)| (format!("{node}: {name}"), value)));
    }

    fn add_socket(&mut self, node: &str, socket: &SocketSample) {
        let place = format!("{node}: {} port {} inode {}", socket.protocol, socket.local_port, socket.inode);
        self.values.insert(format!("{place} receive queue"), socket.receive_queue_bytes);
        self.values.insert(format!("{place} send queue"), socket.send_queue_bytes);
    }

    /// A packet socket of a program that hands frames on: it will take what waits there, as soon as it gets a CPU.
    fn add_packet_socket(&mut self, node: &str, socket: &PacketSocketSample) {
        let place = format!("{node}: packet socket on {} inode {}", or_all(&socket.interface), socket.inode);
        self.values.insert(format!("{place} drops"), u64::from(socket.drops));
        if socket.receive_queue_bytes > 0 {
            self.waiting.insert(format!("{place} holds bytes"), socket.receive_queue_bytes);
        }
    }

    fn add_neighbour(&mut self, node: &str, neighbour: &NeighbourSample) {
        if neighbour.state == "incomplete" {
            let place = format!(
                "{node}: neighbour {} on {} is being asked for",
                neighbour.address, neighbour.interface
            );
            self.waiting.insert(place, 1);
        }
    }

    pub(super) fn add_softnet(&mut self, row: &SoftnetRow) {
        if row.backlog > 0 {
            self.backlog.insert(row.cpu, row.backlog);
        }
    }

    /// What moved between two reads or is about to move, one short line each; nothing means quiet.
    pub fn moving(&self, before: &Quick) -> Vec<String> {
        let changed =
            |(name, value): (&String, &u64)| (before.values.get(name) != Some(value)).then(|| name.clone());
        let mut moving: Vec<String> = self.values.iter().filter_map(changed).collect();
        moving.extend(before.values.keys().filter(|name| !self.values.contains_key(*name)).cloned());
        moving.extend(self.waiting.iter().map(|(name, count)| format!("{name} ({count})")));
        let both = self.backlog.iter().filter(|(cpu, _)| before.backlog.contains_key(cpu));
        moving.extend(both.map(|(cpu, count)| format!("the backlog of CPU {cpu} holds frames ({count})")));
        moving
    }
}

fn or_all(interface: &str) -> &str {
    if interface.is_empty() { "all interfaces" } else { interface }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(packets: u64, qlen: u64) -> Quick {
        let mut quick = Quick::default();
        let qdisc = QdiscSample {
            interface: "eth0".into(),
            kind: "tbf".into(),
            packets,
            qlen,
            ..QdiscSample::default()
        };
        quick.add_qdisc("a", &qdisc);
        quick
    }

    #[test]
    fn a_shaper_that_still_drains_keeps_it_moving() {
        assert!(with(5, 0).moving(&with(5, 0)).is_empty());
        assert_eq!(with(6, 0).moving(&with(5, 0)), ["a: tbf 0x0 on eth0 packets"]);
        assert_eq!(with(5, 2).moving(&with(5, 2)), ["a: tbf 0x0 on eth0 holds frames (2)"]);
        assert_eq!(with(5, 0), with(5, 0));
        assert_ne!(with(5, 0), with(6, 0));
    }

    #[test]
    fn what_vanished_moved_and_a_neighbour_that_is_asked_for_holds_frames() {
        assert_eq!(Quick::default().moving(&with(5, 0)).len(), 2);
        let mut asking = Quick::default();
        let mut neighbour = NeighbourSample { state: "incomplete".into(), ..NeighbourSample::default() };
        asking.add_neighbour("a", &neighbour);
        assert_eq!(asking.moving(&Quick::default()).len(), 1);
        neighbour.state = "failed".into();
        let mut failed = Quick::default();
        failed.add_neighbour("a", &neighbour);
        assert!(failed.moving(&Quick::default()).is_empty());
    }

    #[test]
    fn what_a_forwarder_has_not_read_keeps_it_moving() {
        let with = |receive_queue_bytes| {
            let mut quick = Quick::default();
            let interface = "p1".to_owned();
            let socket =
                PacketSocketSample { interface, receive_queue_bytes, ..PacketSocketSample::default() };
            quick.add_packet_socket("s", &socket);
            quick
        };
        assert_eq!(with(2304).moving(&with(2304)), ["s: packet socket on p1 inode 0 holds bytes (2304)"]);
        assert!(with(0).moving(&with(0)).is_empty());
    }

    #[test]
    fn the_hosts_backlog_counts_only_when_it_stays() {
        let with = |backlog| {
            let mut quick = Quick::default();
            quick.add_softnet(&SoftnetRow { cpu: 1, backlog, ..SoftnetRow::default() });
            quick
        };
        assert!(with(5).moving(&with(0)).is_empty());
        assert_eq!(with(5).moving(&with(3)), ["the backlog of CPU 1 holds frames (5)"]);
    }
}
