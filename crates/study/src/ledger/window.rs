//! What counters did between two snapshots.
//!
//! A counter that is missing on either side, or that went backwards (an interface or a qdisc was made anew), has no
//! difference: it is *unknown*, never zero. Differences that no network could make in the time of a test are garbage
//! and unknown too, so that nothing that follows can overflow.

use record::Snapshot;
use record::delta::sum;
use record::snapshot::{
    Counters, FilterSample, LinkSample, NodeSnapshot, PacketSocketSample, QdiscSample, SocketSample,
    SoftnetRow,
};

/// The largest count that is believed.
pub const MOST: u64 = record::delta::MOST;

/// Two snapshots and the time between them.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    pub before: &'a Snapshot,
    pub after: &'a Snapshot,
}

/// One interface on both sides of a window.
#[derive(Clone, Copy)]
pub struct LinkPair<'a> {
    pub before: &'a LinkSample,
    pub after: &'a LinkSample,
}

/// `after − before`, if that means something.
pub fn difference(before: u64, after: u64) -> Option<u64> {
    record::Delta::of(before, after).known()
}

fn moved(before: &Counters, after: &Counters, name: &str) -> Option<u64> {
    difference(*before.get(name)?, *after.get(name)?)
}

impl<'a> Window<'a> {
    /// Length in nanoseconds, from the end of the first snapshot to the begin of the second.
    pub fn length_ns(&self) -> u64 {
        self.after.begun_ns.saturating_sub(self.before.ended_ns)
    }

    /// Both sides of a node.
    pub fn node(&self, node: &str) -> Option<(&'a NodeSnapshot, &'a NodeSnapshot)> {
        Some((self.before.nodes.get(node)?, self.after.nodes.get(node)?))
    }

    /// Movement of a protocol counter.
    pub fn protocol(&self, node: &str, name: &str) -> Option<u64> {
        let (before, after) = self.node(node)?;
        moved(&before.protocols, &after.protocols, name)
    }

    /// Both sides of an interface; none when it was made anew in between.
    pub fn link(&self, node: &str, interface: &str) -> Option<LinkPair<'a>> {
        let (before, after) = self.node(node)?;
        let pair = LinkPair { before: before.link(interface)?, after: after.link(interface)? };
        (pair.before.index == pair.after.index).then_some(pair)
    }

    /// Movement of an interface's counter.
    pub fn link_counter(&self, node: &str, interface: &str, name: &str) -> Option<u64> {
        self.link(node, interface)?.counter(name)
    }

    /// The root qdisc of an interface on both sides, as far as there is one that counts.
    pub fn root_qdisc(
        &self,
        node: &str,
        interface: &str,
    ) -> (Option<&'a QdiscSample>, Option<&'a QdiscSample>) {
        let root = |snapshot: &'a Snapshot| {
            let found = snapshot.nodes.get(node)?.root_qdisc(interface)?;
            (!matches!(found.kind.as_str(), "noqueue" | "noop" | "")).then_some(found)
        };
        (root(self.before), root(self.after))
    }

    /// What the queueing disciplines right inside a root dropped; the root counts that, too.
    pub fn dropped_inside(&self, node: &str, root: &QdiscSample) -> u64 {
        let inside = |snapshot: &'a Snapshot| {
            let all = snapshot.nodes.get(node).map_or(&[][..], |node| &node.qdiscs[..]);
            all.iter().filter(|one| one.interface == root.interface && one.parent >> 16 == root.handle >> 16)
        };
        let drops = |after: &QdiscSample| {
            let before = inside(self.before).find(|before| before.handle == after.handle)?;
            difference(before.drops, after.drops)
        };
        sum(inside(self.after).filter_map(drops))
    }

    /// The receive loops of all CPUs that both sides know.
    fn softnet_rows(&self) -> impl Iterator<Item = (&'a SoftnetRow, &'a SoftnetRow)> {
        let earlier = &self.before.softnet;
        let pair = |after: &'a SoftnetRow| Some((earlier.iter().find(|row| row.cpu == after.cpu)?, after));
        self.after.softnet.iter().filter_map(pair)
    }

    /// Frames that the backlogs of all CPUs dropped, and how many on each CPU that dropped any.
    pub fn backlog_drops(&self) -> (u64, Vec<(u32, u64)>) {
        let dropped = |(before, after): (&SoftnetRow, &SoftnetRow)| {
            Some((after.cpu, difference(before.dropped, after.dropped).filter(|&n| n > 0)?))
        };
        let per_cpu: Vec<(u32, u64)> = self.softnet_rows().filter_map(dropped).collect();
        (sum(per_cpu.iter().map(|&(_, n)| n)).min(MOST), per_cpu)
    }

    /// What a counter of the receive loops moved by on all CPUs that both sides know; none where that is unknown.
    pub fn softnet(&self, of: fn(&SoftnetRow) -> u64) -> Option<u64> {
        let moved = self.softnet_rows().map(|(before, after)| difference(of(before), of(after)));
        let moved: Vec<u64> = moved.collect::<Option<_>>()?;
        (!moved.is_empty()).then(|| sum(moved).min(MOST))
    }

    /// Sockets of a node on a local port, on the later side with the earlier side where it existed.
    pub fn sockets(&self, node: &str, port: u16) -> Vec<(Option<&'a SocketSample>, &'a SocketSample)> {
        let Some(after) = self.after.nodes.get(node) else { return vec![] };
        let before = self.before.nodes.get(node);
        let earlier =
            |inode: u64| before.and_then(|node| node.sockets.iter().find(|socket| socket.inode == inode));
        after
            .sockets
            .iter()
            .filter(|socket| socket.local_port == port)
            .map(|socket| (earlier(socket.inode), socket))
            .collect()
    }

    /// Packet sockets through which a process of this kind takes frames from an interface, each with the buffers that it
    /// dropped. A socket of all interfaces is among those of each.
    pub fn packet_sockets(
        &self,
        node: &str,
        interface: &str,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<(&'a PacketSocketSample, u64)> {
        let of = |snapshot: &'a Snapshot| {
            snapshot.nodes.get(node).map_or(&[][..], |node| &node.packet_sockets[..])
        };
        let earlier = |inode: u64| of(self.before).iter().find(|socket| socket.inode == inode);
        let takes = |socket: &&PacketSocketSample| {
            (socket.interface == interface || socket.interface.is_empty()) && is_wanted(&socket.owner)
        };
        let dropped = |after: &'a PacketSocketSample| {
            // The kernel's counter has 32 bits and comes round.
            let before = earlier(after.inode).map_or(0, |before| before.drops);
            (after, u64::from(after.drops.wrapping_sub(before)))
        };
        of(self.after).iter().filter(takes).map(dropped).collect()
    }

    /// Chains with a dropping verdict that existed on either side, each with the movement of its counters.
    pub fn dropping_filters(&self, node: &str) -> Vec<(&'a FilterSample, Option<u64>)> {
        let of = |snapshot: &'a Snapshot| snapshot.nodes.get(node).map_or(&[][..], |node| &node.filters[..]);
        let (before, after) = (of(self.before), of(self.after));
        let same = |a: &FilterSample, b: &FilterSample| {
            (&a.family, &a.hook, &a.chain) == (&b.family, &b.hook, &b.chain)
        };
        let gone = before.iter().filter(|b| !after.iter().any(|a| same(a, b))).map(|b| (b, None));
        let kept = after.iter().map(|a| {
            let earlier = before.iter().find(|b| same(a, b)).and_then(|b| b.counted).unwrap_or(0);
            (a, a.counted.and_then(|counted| difference(earlier, counted)))
        });
        kept.chain(gone).filter(|(filter, _)| filter.drops).collect()
    }
}

impl LinkPair<'_> {
    /// Movement of one of its counters.
    pub fn counter(&self, name: &str) -> Option<u64> {
        moved(&self.before.counters, &self.after.counters, name)
    }

    /// Whether it was so as a port of a bridge ([`record::LinkSample::bridge_flags`]), before or after.
    pub fn has_flag(&self, flag: &str) -> bool {
        [&self.before, &self.after].iter().any(|sample| sample.bridge_flags.iter().any(|set| set == flag))
    }

    /// What about its state explains that frames vanished at it; none when it was up all the time.
    pub fn trouble(&self) -> Option<String> {
        let name = &self.after.name;
        let changes = self.after.carrier_changes.saturating_sub(self.before.carrier_changes);
        if !self.after.up {
            Some(format!("{name} is administratively down"))
        } else if !self.after.carrier {
            Some(format!("{name} has no carrier"))
        } else if !self.before.up || !self.before.carrier {
            Some(format!("{name} was down when the test began"))
        } else if changes > 0 {
            Some(format!("the carrier of {name} changed {changes} times"))
        } else {
            None
        }
    }

    /// The smallest MTU seen, in bytes.
    pub fn mtu(&self) -> u32 {
        self.before.mtu.min(self.after.mtu)
    }
}
