//! Which counter of a reading is which sample.

use super::series as s;
use super::{Families, Limits, SampleValue, Series};
use crate::watch::{DROPS, PROTOCOL_DROPS};
use record::counter::{self, CounterKind};
use record::snapshot::{
    CpuTime, LinkSample, NodeSnapshot, QdiscSample, Snapshot, SocketSample, TC_INGRESS, TC_ROOT,
};
use record::watch::{TcpSocket, WatchReading};
use record::{delta, drop};
use std::collections::HashSet;
use std::sync::LazyLock;

/// The queueing discipline that counts nothing.
const NO_COUNTERS: &str = "noqueue";

/// Everything of a reading.
pub fn gather(reading: &WatchReading, limits: Limits, version: &str) -> Families {
    let mut all = Families::default();
    for (node, found) in &reading.snapshot.nodes {
        of_node(&mut all, node, found);
    }
    of_queues(&mut all, reading);
    of_host(&mut all, &reading.snapshot);
    if let Some(polls) = &reading.polls {
        all.whole(&s::BUDGET_ENDS, &[], polls.words.get("budget_ends").copied());
    }
    for one in &reading.interrupts {
        all.whole(
            &s::INTERRUPTS,
            &[&one.irq.to_string(), &one.name],
            Some(delta::sum(one.cpus.iter().copied())),
        );
    }
    of_tcp(&mut all, &reading.tcp, limits);
    of_sockets(&mut all, &reading.snapshot, limits);
    of_reading(&mut all, &reading.snapshot);
    all.whole(&s::BUILD, &[version], Some(1));
    all.in_order()
}

impl Families {
    /// A whole number; nothing when it is unknown.
    fn whole(&mut self, series: &'static Series, labels: &[&str], value: Option<u64>) {
        if let Some(value) = value {
            self.add(series, labels, SampleValue::Whole(value));
        }
    }

    pub(super) fn in_order(mut self) -> Families {
        self.0.sort_by_key(|family| s::SERIES.iter().position(|series| series == family.series));
        self
    }
}

/// Names that the table of counters has whole, and calls counts.
static COUNTS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let rows = counter::all().iter().filter(|row| row.kind == CounterKind::Count);
    rows.map(|row| row.name).collect()
});

/// Whether that counter of a protocol only grows; one that has no row is not known to.
fn is_count(name: &str) -> bool {
    COUNTS.contains(name) || counter::named(name).iter().any(|row| row.kind == CounterKind::Count)
}

fn of_node(all: &mut Families, node: &str, found: &NodeSnapshot) {
    for link in &found.links {
        of_link(all, node, link);
    }
    // noqueue has no counters: its 0 is none.
    for qdisc in found.qdiscs.iter().filter(|qdisc| qdisc.kind != NO_COUNTERS) {
        of_qdisc(all, node, qdisc);
    }
    for (name, value) in &found.protocols {
        if is_count(name) {
            all.whole(&s::PROTOCOL, &[node, name], Some(*value));
        }
    }
    for (name, drop) in PROTOCOL_DROPS {
        all.whole(&s::DROPS, &[node, "", drop, name], found.protocol(name));
    }
    for one in &found.packet_sockets {
        let labels = [node, &one.interface, &one.inode.to_string()];
        all.whole(&s::PACKET_SOCKET_DROPS, &labels, Some(one.drops.into()));
    }
}

fn of_link(all: &mut Families, node: &str, link: &LinkSample) {
    let labels = [node, &link.name];
    let counter = |name: &str| link.counters.get(name).copied();
    all.whole(&s::RECEIVE_FRAMES, &labels, counter("rx_packets"));
    all.whole(&s::RECEIVE_BYTES, &labels, counter("rx_bytes"));
    all.whole(&s::TRANSMIT_FRAMES, &labels, counter("tx_packets"));
    all.whole(&s::TRANSMIT_BYTES, &labels, counter("tx_bytes"));
    all.whole(&s::INTERFACE_UP, &labels, Some(u64::from(link.up && link.carrier)));
    all.whole(&s::CARRIER_CHANGES, &labels, Some(link.carrier_changes));
    for name in DROPS {
        all.whole(&s::DROPS, &[node, &link.name, name, name], counter(name));
    }
}

fn of_qdisc(all: &mut Families, node: &str, qdisc: &QdiscSample) {
    let (handle, parent) = (handle(qdisc.handle), handle(qdisc.parent));
    let labels = [node, &qdisc.interface, &qdisc.kind, &handle, &parent];
    for (series, value) in [
        (&s::QDISC_FRAMES, qdisc.packets),
        (&s::QDISC_BYTES, qdisc.bytes),
        (&s::QDISC_DROPS, qdisc.drops),
        (&s::QDISC_OVERLIMITS, qdisc.overlimits),
        (&s::QDISC_REQUEUES, qdisc.requeues),
        (&s::QDISC_WAITING_FRAMES, qdisc.qlen),
        (&s::QDISC_WAITING_BYTES, qdisc.backlog_bytes),
    ] {
        all.whole(series, &labels, Some(value));
    }
    // A parent repeats its children: the root has all.
    if qdisc.parent == TC_ROOT {
        all.whole(&s::DROPS, &[node, &qdisc.interface, qdisc.drop_name(), "qdisc:drops"], Some(qdisc.drops));
    }
}

/// A handle as tc writes it.
fn handle(handle: u32) -> String {
    match handle {
        TC_ROOT => "root".into(),
        TC_INGRESS => "ingress".into(),
        _ => format!("{:x}:{:x}", handle >> 16, handle & 0xffff),
    }
}

fn of_queues(all: &mut Families, reading: &WatchReading) {
    for one in &reading.line_rates {
        all.whole(&s::LINE_RATE, &[&one.node, &one.interface], Some(one.rate_bps));
    }
    for one in &reading.receive_queues {
        let queue = one.queue.to_string();
        for (name, value) in &one.counters {
            let labels = [one.node.as_str(), &one.interface, &queue, name];
            match name.as_str() {
                "rx_packets" => all.whole(&s::QUEUE_RECEIVE, &labels[..3], Some(*value)),
                _ => all.whole(&s::QUEUE_LOST, &labels, Some(*value)),
            }
        }
    }
    for one in &reading.transmit_queues {
        let labels = [one.node.as_str(), &one.interface, &one.limit.queue.to_string()];
        all.whole(&s::QUEUE_INFLIGHT, &labels, Some(one.limit.inflight_bytes));
        all.whole(&s::QUEUE_LIMIT, &labels, Some(one.limit.limit_bytes));
    }
}

fn of_host(all: &mut Families, snapshot: &Snapshot) {
    for cpu in &snapshot.cpus {
        of_cpu(all, cpu, snapshot.tick_hz);
    }
    for row in &snapshot.softnet {
        let cpu = row.cpu.to_string();
        for (series, value) in [
            (&s::SOFTNET_PROCESSED, row.processed),
            (&s::SOFTNET_DROPPED, row.dropped),
            (&s::SOFTNET_SQUEEZED, row.time_squeeze),
            (&s::SOFTNET_RPS, row.received_rps),
            (&s::SOFTNET_FLOW_LIMIT, row.flow_limit),
            (&s::SOFTNET_BACKLOG, row.backlog),
        ] {
            all.whole(series, &[&cpu], Some(value));
        }
        // Softnet is the host's, whatever nodes are read; CPUs are added up.
        all.whole(&s::DROPS, &["", "", drop::BACKLOG_FULL, "softnet:dropped"], Some(row.dropped));
    }
}

fn of_cpu(all: &mut Families, cpu: &CpuTime, tick_hz: u64) {
    let name = cpu.cpu.to_string();
    for (role, ticks) in [
        ("user", cpu.user.saturating_sub(cpu.nice)),
        ("nice", cpu.nice),
        ("system", cpu.system),
        ("irq", cpu.irq),
        ("softirq", cpu.softirq),
        ("steal", cpu.steal),
        ("idle", cpu.idle),
    ] {
        all.add(&s::CPU_TIME, &[&name, role], SampleValue::Real(ticks as f64 / tick_hz.max(1) as f64));
    }
}

/// The connections with most bytes since they began: the choice stays the same from one reading to the next.
fn of_tcp(all: &mut Families, sockets: &[TcpSocket], limits: Limits) {
    let mut sorted: Vec<&TcpSocket> = sockets.iter().collect();
    let bytes = |one: &&TcpSocket| delta::sum([one.info.bytes_acked, one.info.bytes_received]);
    sorted.sort_by_key(|one| (std::cmp::Reverse(bytes(one)), one.inode));
    for one in sorted.iter().take(limits.sockets) {
        let labels = [one.node.as_str(), &one.local, &one.remote];
        let info = &one.info;
        for (series, value) in [
            (&s::TCP_ACKNOWLEDGED, info.bytes_acked),
            (&s::TCP_RECEIVED, info.bytes_received),
            (&s::TCP_SENT_AGAIN, info.total_retrans.into()),
            (&s::TCP_CWND, info.cwnd.into()),
            (&s::TCP_UNREAD, one.unread_bytes.into()),
            (&s::TCP_UNACKNOWLEDGED, one.unacknowledged_bytes.into()),
        ] {
            all.whole(series, &labels, Some(value));
        }
        for (series, us) in [
            (&s::TCP_BUSY, info.busy_us),
            (&s::TCP_RECEIVER_WINDOW, info.rwnd_limited_us),
            (&s::TCP_SEND_BUFFER, info.sndbuf_limited_us),
            (&s::TCP_RTT, info.rtt_us.into()),
        ] {
            all.add(series, &labels, SampleValue::Real(us as f64 / 1e6));
        }
    }
    left_out(all, "tcp", sockets.len(), limits);
}

/// Datagram sockets with most drops, then with most that waits.
fn of_sockets(all: &mut Families, snapshot: &Snapshot, limits: Limits) {
    let nodes = snapshot.nodes.iter();
    let mut sockets: Vec<(&String, &SocketSample)> =
        nodes.flat_map(|(node, found)| found.sockets.iter().map(move |one| (node, one))).collect();
    let order = |one: &SocketSample| (std::cmp::Reverse((one.drops, one.receive_queue_bytes)), one.inode);
    sockets.sort_by_key(|(_, one)| order(one));
    for (node, one) in sockets.iter().take(limits.sockets) {
        let end = |port: u16| if port == 0 { String::new() } else { format!(":{port}") };
        let labels = [node.as_str(), &one.protocol, &end(one.local_port), &end(one.remote_port)];
        all.whole(&s::SOCKET_DROPS, &labels, Some(one.drops));
        all.whole(&s::SOCKET_RECEIVE_QUEUE, &labels, Some(one.receive_queue_bytes));
        all.whole(&s::SOCKET_SEND_QUEUE, &labels, Some(one.send_queue_bytes));
    }
    left_out(all, "datagram", sockets.len(), limits);
}

fn left_out(all: &mut Families, kind: &str, sockets: usize, limits: Limits) {
    all.whole(&s::SOCKETS_LEFT_OUT, &[kind], Some(sockets.saturating_sub(limits.sockets) as u64));
}

fn of_reading(all: &mut Families, snapshot: &Snapshot) {
    let seconds = |ns: u64| SampleValue::Real(ns as f64 / 1e9);
    all.add(&s::READING_CPU, &[], seconds(snapshot.cost_cpu_ns));
    all.add(&s::READING_SKEW, &[], seconds(snapshot.ended_ns.saturating_sub(snapshot.begun_ns)));
    for why in &snapshot.missing {
        all.add(&s::MISSING, &[why], SampleValue::Whole(1));
    }
}
