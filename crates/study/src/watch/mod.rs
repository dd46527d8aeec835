//! From two readings of nodes and a host to what `pathlab watch` shows.
//!
//! **What.** [`report`] makes an interval: interfaces, queues, CPUs, interrupts, sockets, and the places of a path with what was lost
//! between them; [`text`] lays it out for a screen of a given width. **Why here.** Both are pure: fixtures test them.
//!
//! **Price.** What is lost between two places of a path is a difference of counters that everybody's frames move; exact losses
//! of one flow are `pathlab follow`'s.

pub mod text;

use crate::llstat::throughput;
use record::llstat::Throughput;
use record::path::Hop;
use record::snapshot::{Counters, LinkSample, NodeSnapshot, SoftnetRow};
use record::unit::{count, frames_per_s, number};
use record::watch::{
    TcpSocket, WatchCpu, WatchHop, WatchInterface, WatchInterrupt, WatchQueue, WatchReading, WatchReport,
    WatchSocket,
};
use record::{Delta, delta, drop};
use std::collections::BTreeMap;

/// Preamble and gap of a frame on a wire, and its FCS, which counters of bytes leave out.
const WIRE_BYTES: f64 = 20.0 + 4.0;
/// Counters of an interface that say what was lost; the table of drops has them.
pub(crate) const DROPS: [&str; 13] = [
    drop::RX_DROPPED,
    drop::RX_MISSED_ERRORS,
    drop::RX_OVER_ERRORS,
    drop::RX_FIFO_ERRORS,
    drop::RX_CRC_ERRORS,
    drop::RX_FRAME_ERRORS,
    drop::RX_LENGTH_ERRORS,
    drop::RX_ERRORS,
    drop::RX_NOHANDLER,
    drop::TX_DROPPED,
    drop::TX_ERRORS,
    "tx_carrier_errors",
    "collisions",
];
/// Counters of a node's protocols that say what was lost, by the names of the table of drops.
pub(crate) const PROTOCOL_DROPS: [(&str, &str); 10] = [
    ("Udp.RcvbufErrors", drop::SOCKET_BUFFER_FULL),
    ("Ip6.Udp6RcvbufErrors", drop::SOCKET_BUFFER_FULL),
    ("Udp.NoPorts", drop::NO_SOCKET),
    ("Ip6.Udp6NoPorts", drop::NO_SOCKET),
    ("Ip.OutNoRoutes", drop::NO_ROUTE),
    ("Ip6.Ip6OutNoRoutes", drop::NO_ROUTE),
    ("Ip.InHdrErrors", drop::HEADER_ERROR),
    ("Ip.InAddrErrors", drop::ADDRESS_ERROR),
    ("Ip.InDiscards", drop::IP_DISCARD),
    ("TcpExt.IPReversePathFilter", drop::RP_FILTER),
];
/// How many sockets are listed.
const MOST_SOCKETS: usize = 64;

/// What happened between two readings; `path` are the nodes of the path that was asked for.
pub fn report(before: &WatchReading, after: &WatchReading, begun_ns: u64, path: &[Hop]) -> WatchReport {
    let (then, now) = (&before.snapshot, &after.snapshot);
    let lasted_s = now.ended_ns.saturating_sub(then.ended_ns) as f64 / 1e9;
    let pair = Pair { before, after, lasted_s };
    let squeezed = (squeezed(before, after), budget_ends(before, after));
    let budget = squeezed.0.zip(squeezed.1).map(|(all, budget)| budget.min(all));
    let hops = hops(&pair, path);
    let uncertainty = uncertainty(&pair, &hops);
    WatchReport {
        schema: "pathlab/watch/1".into(),
        seconds: now.ended_ns.saturating_sub(begun_ns) as f64 / 1e9,
        lasted_s,
        interfaces: interfaces(&pair),
        queues: queues(&pair),
        cpus: cpus(&pair),
        squeezed_budget: budget,
        squeezed_time: squeezed.0.zip(budget).map(|(all, budget)| all - budget),
        interrupts: interrupts(&pair),
        sockets: sockets(&pair),
        said: said(&hops, uncertainty, lasted_s),
        uncertainty,
        path: hops,
        cost_cpu_ns: now.cost_cpu_ns,
        missing: now.missing.clone(),
    }
}

/// Two readings and the time between them.
struct Pair<'a> {
    before: &'a WatchReading,
    after: &'a WatchReading,
    lasted_s: f64,
}

impl Pair<'_> {
    /// The nodes that are in both.
    fn nodes(&self) -> impl Iterator<Item = (&String, &NodeSnapshot, &NodeSnapshot)> {
        let before = &self.before.snapshot.nodes;
        self.after.snapshot.nodes.iter().filter_map(|(name, now)| Some((name, before.get(name)?, now)))
    }

    fn per_s(&self, delta: Delta) -> Option<f64> {
        delta.known().filter(|_| self.lasted_s > 0.0).map(|moved| moved as f64 / self.lasted_s)
    }
}

fn moved(before: &Counters, after: &Counters, name: &str) -> Delta {
    Delta::between(before.get(name).copied(), after.get(name).copied())
}

fn ways(before: &LinkSample, after: &LinkSample, lasted_s: f64) -> [Throughput; 2] {
    let of = |name: String| moved(&before.counters, &after.counters, &name);
    ["rx", "tx"].map(|way| throughput(of(format!("{way}_packets")), of(format!("{way}_bytes")), lasted_s))
}

/// The part of a line rate that frames take, with what each has on the wire beside its counted bytes.
pub fn share(way: &Throughput, line_rate_bps: u64) -> Option<f64> {
    let (frames, bits) = (way.frames_per_s?, way.rate_bps?);
    (line_rate_bps > 0).then(|| (bits + frames * WIRE_BYTES * 8.0) / line_rate_bps as f64)
}

/// Those with most frames first, in the order of nodes and indices where they are alike.
fn interfaces(pair: &Pair<'_>) -> Vec<WatchInterface> {
    let mut found = vec![];
    for (node, before, now) in pair.nodes() {
        for link in &now.links {
            let Some(then) = before.links.iter().find(|one| one.index == link.index) else { continue };
            found.push(interface(pair, node, (then, link), (before, now)));
        }
    }
    let frames = |one: &WatchInterface| {
        delta::sum([one.receive.frames.unwrap_or(0), one.transmit.frames.unwrap_or(0)])
    };
    found.sort_by_key(|one| std::cmp::Reverse(frames(one)));
    found
}

fn interface(
    pair: &Pair<'_>,
    node: &str,
    (then, link): (&LinkSample, &LinkSample),
    (before, now): (&NodeSnapshot, &NodeSnapshot),
) -> WatchInterface {
    let [receive, transmit] = ways(then, link, pair.lasted_s);
    let mut rates = pair.after.line_rates.iter();
    let line_rate_bps =
        rates.find(|one| one.node == node && one.interface == link.name).map(|one| one.rate_bps);
    let roots = now.qdiscs.iter().filter(|one| one.interface == link.name);
    let (mut frames, mut bytes) = (0, 0);
    for root in roots.filter(|one| one.parent == record::snapshot::TC_ROOT) {
        (frames, bytes) = (delta::sum([frames, root.qlen]), delta::sum([bytes, root.backlog_bytes]));
    }
    WatchInterface {
        node: node.to_owned(),
        interface: link.name.clone(),
        kind: link.kind.clone(),
        up: link.up && link.carrier,
        line_rate_bps,
        receive_share: line_rate_bps.and_then(|rate| share(&receive, rate)),
        transmit_share: line_rate_bps.and_then(|rate| share(&transmit, rate)),
        drops: link_drops(then, link, before, now),
        receive,
        transmit,
        backlog_frames: frames,
        backlog_bytes: bytes,
    }
}

/// Drops of an interface and of its qdisc.
fn link_drops(then: &LinkSample, link: &LinkSample, before: &NodeSnapshot, now: &NodeSnapshot) -> Counters {
    let mut drops = Counters::new();
    for name in DROPS {
        if let Some(lost) = moved(&then.counters, &link.counters, name).known().filter(|lost| *lost > 0) {
            drops.insert(name.to_owned(), lost);
        }
    }
    let (then, root) = (before.root_qdisc(&link.name), now.root_qdisc(&link.name));
    let lost = Delta::between(then.map(|root| root.drops), root.map(|root| root.drops)).known();
    if let (Some(lost), Some(root)) = (lost.filter(|lost| *lost > 0), root) {
        drops.insert(root.drop_name().to_owned(), lost);
    }
    drops
}

fn queues(pair: &Pair<'_>) -> Vec<WatchQueue> {
    let mut found = vec![];
    for one in &pair.after.receive_queues {
        let same = |other: &&record::watch::ReceiveQueueCount| {
            (&other.node, &other.interface, other.queue) == (&one.node, &one.interface, one.queue)
        };
        let Some(before) = pair.before.receive_queues.iter().find(same) else { continue };
        let lost = one.counters.keys().filter(|name| *name != "rx_packets");
        let lost: Option<Vec<u64>> =
            lost.map(|name| moved(&before.counters, &one.counters, name).known()).collect();
        found.push(WatchQueue {
            node: one.node.clone(),
            interface: one.interface.clone(),
            queue: format!("rx{}", one.queue),
            frames_per_s: pair.per_s(moved(&before.counters, &one.counters, "rx_packets")),
            drops: lost.filter(|lost| !lost.is_empty()).map(delta::sum),
            inflight_bytes: None,
            limit_bytes: None,
        });
    }
    found.extend(pair.after.transmit_queues.iter().map(|one| WatchQueue {
        node: one.node.clone(),
        interface: one.interface.clone(),
        queue: format!("tx{}", one.limit.queue),
        frames_per_s: None,
        drops: None,
        inflight_bytes: Some(one.limit.inflight_bytes),
        limit_bytes: Some(one.limit.limit_bytes),
    }));
    found
}

/// Softnet's counters have 32 bits, whatever the machine (`struct softnet_data`).
fn softnet(before: &WatchReading, row: &SoftnetRow, of: fn(&SoftnetRow) -> u64) -> Option<u64> {
    let then = before.snapshot.softnet.iter().find(|one| one.cpu == row.cpu)?;
    Some(u64::from((of(row) as u32).wrapping_sub(of(then) as u32)))
}

fn squeezed(before: &WatchReading, after: &WatchReading) -> Option<u64> {
    let rows = after.snapshot.softnet.iter();
    let all: Option<Vec<u64>> = rows.map(|row| softnet(before, row, |row| row.time_squeeze)).collect();
    all.filter(|all| !all.is_empty()).map(delta::sum)
}

fn budget_ends(before: &WatchReading, after: &WatchReading) -> Option<u64> {
    let (then, now) = (before.polls.as_ref()?, after.polls.as_ref()?);
    moved(&then.words, &now.words, "budget_ends").known()
}

/// A CPU of which no tick passed, or of which a time is unknown, is left out.
fn cpus(pair: &Pair<'_>) -> Vec<WatchCpu> {
    let (then, now) = (&pair.before.snapshot, &pair.after.snapshot);
    let one = |time: &record::snapshot::CpuTime| {
        let passed = time.since(then.cpus.iter().find(|one| one.cpu == time.cpu)?)?;
        let total = passed.total();
        let part = |ticks: u64| ticks as f64 * 100.0 / total as f64;
        let row = now.softnet.iter().find(|row| row.cpu == time.cpu);
        let of = |of: fn(&SoftnetRow) -> u64| row.and_then(|row| softnet(pair.before, row, of));
        (total > 0).then(|| WatchCpu {
            cpu: time.cpu,
            user: part(passed.user.saturating_sub(passed.nice)),
            nice: part(passed.nice.min(passed.user)),
            system: part(passed.system),
            irq: part(passed.irq),
            softirq: part(passed.softirq),
            steal: part(passed.steal),
            idle: part(passed.idle),
            processed: of(|row| row.processed),
            dropped: of(|row| row.dropped),
            squeezed: of(|row| row.time_squeeze),
            backlog: row.map(|row| row.backlog),
        })
    };
    now.cpus.iter().filter_map(one).collect()
}

fn interrupts(pair: &Pair<'_>) -> Vec<WatchInterrupt> {
    let one = |irq: &record::llstat::InterruptCount| {
        let then = pair.before.interrupts.iter().find(|other| other.irq == irq.irq)?;
        let of_cpu =
            |(cpu, now): (usize, &u64)| Delta::between(then.cpus.get(cpu).copied(), Some(*now)).known();
        let counts: Vec<u64> = irq.cpus.iter().enumerate().map(of_cpu).collect::<Option<_>>()?;
        let all = delta::sum(counts.iter().copied());
        let most = counts.iter().enumerate().max_by_key(|(_, count)| **count);
        Some(WatchInterrupt {
            irq: irq.irq,
            name: irq.name.clone(),
            per_s: pair.per_s(Delta::Known(all))?,
            cpu: most.filter(|(_, count)| **count > 0).map(|(cpu, _)| cpu as u32),
        })
    };
    let mut found: Vec<WatchInterrupt> = pair.after.interrupts.iter().filter_map(one).collect();
    found.retain(|one| one.per_s > 0.0);
    found.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
    found
}

/// Those with most bytes first, then those with most waiting; a socket that neither moved nor holds nor lost anything is left out.
fn sockets(pair: &Pair<'_>) -> Vec<WatchSocket> {
    let mut found: Vec<WatchSocket> = pair.after.tcp.iter().map(|socket| tcp_socket(pair, socket)).collect();
    for (node, before, now) in pair.nodes() {
        for socket in &now.sockets {
            let then = before.sockets.iter().find(|other| other.inode == socket.inode);
            let drops = Delta::between(then.map(|then| then.drops), Some(socket.drops)).known();
            let limit = if drops > Some(0) { drop::SOCKET_BUFFER_FULL } else { "" };
            found.push(WatchSocket {
                node: node.clone(),
                protocol: socket.protocol.clone(),
                local: format!(":{}", socket.local_port),
                remote: if socket.remote_port == 0 {
                    String::new()
                } else {
                    format!(":{}", socket.remote_port)
                },
                send_bps: None,
                receive_bps: None,
                receive_queue_bytes: socket.receive_queue_bytes,
                send_queue_bytes: socket.send_queue_bytes,
                drops,
                limit: limit.into(),
            });
        }
    }
    let rate = |one: &WatchSocket| one.send_bps.unwrap_or(0.0) + one.receive_bps.unwrap_or(0.0);
    let held = |one: &WatchSocket| {
        delta::sum([one.receive_queue_bytes, one.send_queue_bytes, one.drops.unwrap_or(0)])
    };
    found.retain(|one| rate(one) > 0.0 || held(one) > 0);
    found.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then(held(b).cmp(&held(a))));
    found.truncate(MOST_SOCKETS);
    found
}

fn tcp_socket(pair: &Pair<'_>, socket: &TcpSocket) -> WatchSocket {
    let same = |other: &&TcpSocket| other.node == socket.node && other.inode == socket.inode;
    let then = pair.before.tcp.iter().find(same);
    let moved = |of: fn(&TcpSocket) -> u64| Delta::between(then.map(of), Some(of(socket)));
    let bits = |of: fn(&TcpSocket) -> u64| pair.per_s(moved(of)).map(|bytes| bytes * 8.0);
    WatchSocket {
        node: socket.node.clone(),
        protocol: "tcp".into(),
        local: socket.local.clone(),
        remote: socket.remote.clone(),
        send_bps: bits(|one| one.info.bytes_acked),
        receive_bps: bits(|one| one.info.bytes_received),
        receive_queue_bytes: socket.unread_bytes.into(),
        send_queue_bytes: socket.unacknowledged_bytes.into(),
        drops: None,
        limit: tcp_limit(pair, socket, moved),
    }
}

/// What held a connection back, as far as it sent: the largest part of the interval. The kernel counts in jiffies.
fn tcp_limit(pair: &Pair<'_>, socket: &TcpSocket, moved: impl Fn(fn(&TcpSocket) -> u64) -> Delta) -> String {
    let share = |us: u64| us as f64 / 1e6 / pair.lasted_s;
    let part = |of: fn(&TcpSocket) -> u64| moved(of).known();
    let (busy, window, buffer) = (
        part(|one| one.info.busy_us),
        part(|one| one.info.rwnd_limited_us),
        part(|one| one.info.sndbuf_limited_us),
    );
    let (Some(busy), Some(window), Some(buffer)) = (busy, window, buffer) else { return String::new() };
    let sent = part(|one| one.info.bytes_sent).unwrap_or(0);
    let again = part(|one| u64::from(one.info.total_retrans)).unwrap_or(0);
    let network = busy.saturating_sub(window).saturating_sub(buffer);
    let most = [(window, "receiver window"), (buffer, "send buffer"), (network, "network")];
    let (time, name) = most.into_iter().max_by_key(|(time, _)| *time).unwrap_or((0, ""));
    let name = if sent == 0 {
        String::new()
    } else if share(busy) < 0.5 || pair.lasted_s <= 0.0 {
        "application".into()
    } else {
        format!("{name} {} %", number((share(time) * 100.0).min(100.0)))
    };
    let info = &socket.info;
    let state = match (sent, again) {
        (0, 0) => String::new(),
        (_, 0) => format!(", cwnd {}, rtt {} µs", info.cwnd, info.rtt_us),
        (_, again) => format!(", cwnd {}, rtt {} µs, sent again {}", info.cwnd, info.rtt_us, count(again)),
    };
    format!("{name}{state}")
}

/// Bytes that a tunnel adds to a frame at most; where frames grow by more they are merged.
const TUNNEL_BYTES: f64 = 70.0;
/// Bytes of the headers that a frame gives up when it is merged, at most: Ethernet with a tag, IPv6, TCP with times.
const HEADER_BYTES: u64 = 90;

/// What went by a place.
#[derive(Clone, Copy, Default)]
struct Passed {
    frames: u64,
    bytes: u64,
}

impl Passed {
    fn and(self, other: Passed) -> Passed {
        Passed {
            frames: self.frames.saturating_add(other.frames),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn size(self) -> f64 {
        self.bytes as f64 / self.frames.max(1) as f64
    }

    /// What of it did not come to the next place, which may have merged frames, by the bytes that are missing.
    fn missing(self, next: Passed) -> u64 {
        let missing = self.frames.saturating_sub(next.frames);
        if next.size() <= self.size() + TUNNEL_BYTES {
            return missing;
        }
        let headers = missing.saturating_mul(HEADER_BYTES);
        let bytes = self.bytes.saturating_sub(next.bytes).saturating_sub(headers);
        missing.min((bytes as f64 / self.size()) as u64)
    }
}

/// What went by an interface of a node, `in` or `out`.
fn passed(pair: &Pair<'_>, node: &str, interface: &str, way: &str) -> Option<Passed> {
    let [frames, bytes] = if way == "in" { ["rx_packets", "rx_bytes"] } else { ["tx_packets", "tx_bytes"] };
    let [before, after] = [pair.before, pair.after].map(|reading| {
        let node = reading.snapshot.nodes.get(node)?;
        let link = node.links.iter().find(|link| link.name == interface)?;
        Some([frames, bytes].map(|counter| link.counters.get(counter).copied()))
    });
    let of = |at: usize| Delta::between(before?[at], after?[at]).known();
    Some(Passed { frames: of(0)?, bytes: of(1).unwrap_or(0) })
}

/// What left a node by interfaces that are not on the path: another way of the same frames, or others'.
fn elsewhere(pair: &Pair<'_>, hop: &Hop) -> Passed {
    let on_path = [&hop.ingress, &hop.egress, &hop.bridge];
    let is_off = |name: &&str| *name != "lo" && on_path.iter().all(|own| own.as_deref() != Some(*name));
    let links = pair.after.snapshot.nodes.get(&hop.node).map_or(&[][..], |node| &node.links);
    let names = links.iter().map(|link| link.name.as_str()).filter(is_off);
    let all = names.filter_map(|name| passed(pair, &hop.node, name, "out"));
    all.fold(Passed::default(), Passed::and)
}

/// A row for each interface on the way, with what is missing against the row before.
fn hops(pair: &Pair<'_>, path: &[Hop]) -> Vec<WatchHop> {
    let (mut rows, mut last): (Vec<WatchHop>, Option<Passed>) = (vec![], None);
    let places = path.iter().flat_map(|hop| {
        let into = hop.ingress.iter().map(move |interface| (hop, interface, "in"));
        into.chain(hop.egress.iter().map(move |interface| (hop, interface, "out")))
    });
    for (hop, interface, way) in places {
        let now = passed(pair, &hop.node, interface, way);
        let between = last.zip(now);
        let drops = hop_drops(pair, hop, interface, way == "out");
        let gone = between.map_or(0, |(last, now)| {
            let others = if way == "out" { elsewhere(pair, hop) } else { Passed::default() };
            let named = drops.values().sum::<u64>().min(last.frames.saturating_sub(now.frames));
            last.missing(now.and(others)).max(named)
        });
        rows.push(WatchHop {
            node: hop.node.clone(),
            interface: interface.clone(),
            way: way.into(),
            frames: now.map(|now| now.frames),
            lost: between.map(|(last, now)| last.frames as i64 - now.frames as i64),
            gone,
            drops,
        });
        last = now;
    }
    rows
}

/// Counters that moved before a frame got to this place: of the interface; where it goes out, also of the node's protocols.
fn hop_drops(pair: &Pair<'_>, hop: &Hop, interface: &str, is_out: bool) -> Counters {
    let node = |reading: &WatchReading| reading.snapshot.nodes.get(&hop.node).cloned();
    let (Some(before), Some(now)) = (node(pair.before), node(pair.after)) else { return Counters::new() };
    let link = |node: &NodeSnapshot| node.links.iter().find(|link| link.name == interface).cloned();
    let (Some(then), Some(link)) = (link(&before), link(&now)) else { return Counters::new() };
    let mut drops = link_drops(&then, &link, &before, &now);
    drops.retain(|name, _| name.starts_with("rx_") != is_out);
    if is_out {
        for (counter, name) in PROTOCOL_DROPS {
            let lost = moved(&before.protocols, &now.protocols, counter).known().unwrap_or(0);
            if lost > 0 {
                *drops.entry(name.to_owned()).or_insert(0) += lost;
            }
        }
    }
    drops
}

/// What goes by a place while the places are read, at the beginning and at the end.
fn uncertainty(pair: &Pair<'_>, hops: &[WatchHop]) -> u64 {
    let skew = |one: &WatchReading| one.snapshot.ended_ns.saturating_sub(one.snapshot.begun_ns) as f64 / 1e9;
    let most = hops.iter().filter_map(|hop| hop.frames).max().unwrap_or(0) as f64;
    if pair.lasted_s <= 0.0 {
        return 0;
    }
    (most / pair.lasted_s * (skew(pair.before) + skew(pair.after))).ceil() as u64
}

/// Where most frames were lost, as a sentence.
fn said(hops: &[WatchHop], uncertainty: u64, lasted_s: f64) -> Option<String> {
    let first = hops.first()?.frames.filter(|_| lasted_s > 0.0)?;
    let all: u64 = hops.iter().map(|hop| hop.gone).sum();
    let place = |hop: &WatchHop| {
        let verb = if hop.way == "in" { "entering" } else { "leaving by" };
        format!("{verb} {}:{}", hop.node, hop.interface)
    };
    let Some(worst) = hops.iter().filter(|hop| hop.gone > uncertainty).max_by_key(|hop| hop.gone) else {
        let missing = hops.iter().filter(|hop| hop.lost > i64::try_from(uncertainty).ok());
        let WatchHop { node, .. } = missing.clone().next()?;
        let places: Vec<String> = missing.map(place).collect();
        return Some(format!(
            "What is missing before {} need not be lost: as many frames left {node} by interfaces off this way, or were merged.",
            places.join(", ")
        ));
    };
    let (place, lost) = (place(worst), worst.gone);
    let names: BTreeMap<&String, &u64> = worst.drops.iter().collect();
    let names: Vec<String> = names.iter().map(|(name, lost)| format!("{name} {}", count(**lost))).collect();
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    let share = |part: u64, whole: f64| number(part as f64 * 100.0 / whole.max(1.0));
    Some(format!(
        "Most frames are dropped before {place}: {} of {} lost on the way, {} % of those sent{names}.",
        frames_per_s(lost as f64 / lasted_s),
        frames_per_s(all as f64 / lasted_s),
        share(lost, first as f64),
    ))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
