//! Stations between the two ends: leaving a node, crossing a link, being forwarded.

use super::book::{Readings, VLAN_ROOM};
use super::gap::{Gap, Left};
use super::station::{Claim, Station, suspicious};
use super::unit::Seen;
use super::visit::{LEFT_AGAIN, Place, Spot, Visit};
use super::window::MOST;
use record::snapshot::QdiscSample;
use record::{DropSource, NodeRole, StationKind, drop, unit};

pub const IP_AND_INET: &[&str] = &["ip", "ip6", "inet"];
pub const RX_DROPPED: Claim = Claim::Interface(Place::Ingress, drop::RX_DROPPED, drop::RX_DROPPED);
const THROUGH: &[Place] = &[Place::Ingress, Place::Egress];

/// What was offered to the first counter behind a node's forwarding: its qdisc, or its device if the qdisc
/// has no counters. A drop there may have been a whole super-frame, or a segment of one.
pub fn offered(book: &mut Readings, at: &Visit, entered: u64) -> Result<Left, String> {
    let interface = at.egress.ok_or("the interface to leave by is not known")?;
    let (sent, buffers, dropped, queued) = match book.qdisc(at)? {
        Some(queue) => (queue.sent, queue.packets, queue.dropped, queue.queued),
        None => {
            let link = book.link(at.node, interface).ok_or_else(|| missing(at.node, interface))?;
            let sent = book.transmitted(&link).ok_or_else(|| no_counters(interface))?;
            let buffers = link.counter("tx_packets").unwrap_or(0);
            (sent, buffers, link.counter("tx_dropped").unwrap_or(0), 0)
        }
    };
    let sum = |of: u64, dropped: u64, queued: i128| {
        (i128::from(of) + i128::from(dropped) + queued).clamp(0, i128::from(MOST)) as u64
    };
    let (queued, in_buffers) = (i128::from(queued), i128::from(queued) * i128::from(book.unit.per_buffer));
    let least = sum(sent.count, dropped, queued.min(in_buffers));
    let most = sum(sent.count, book.unit.at_most(dropped), queued.max(in_buffers));
    let left = book.left(entered, sum(buffers, dropped, queued), least, most);
    Ok(beside_others(book, at, left, sent.doubt))
}

/// What a qdisc or a device let through, in so many buffers.
fn passed(book: &mut Readings, at: &Visit, entered: u64, sent: Seen, buffers: u64) -> Left {
    let left = book.left(entered, buffers, sent.count, sent.count);
    beside_others(book, at, left, sent.doubt)
}

/// With the doubt of what moves at the egress interface without the test.
fn beside_others(book: &Readings, at: &Visit, left: Left, doubt: u64) -> Left {
    let interface = at.egress.unwrap_or_default();
    let background = book.background(|window| window.link_counter(at.node, interface, "tx_packets"));
    Left { doubt: doubt.saturating_add(background), ..left }
}

fn missing(node: &str, interface: &str) -> String {
    format!("{interface} of {node} is not in both snapshots")
}

fn no_counters(interface: &str) -> String {
    format!("{interface} has no usable counters")
}

/// From the application's accepted messages to what IP hands to the interface.
pub const IP_OUT: Station = Station {
    on: &[Spot::Hop(NodeRole::Sender)],
    when: |book, _| !book.input.spec.kind.is_by_port(),
    left: offered,
    claims: &[
        Claim::By(&[], lost_behind_ip),
        Claim::When(
            no_call_failed,
            &[
                Claim::Counter("Ip.OutNoRoutes", "Ip6.Ip6OutNoRoutes", drop::NO_ROUTE),
                Claim::Counter("Ip.FragFails", "Ip6.Ip6FragFails", drop::MTU_EXCEEDED),
            ],
        ),
        Claim::When(|book, _, _| book.counted, &[Claim::Down(Place::Egress)]),
        Claim::Neighbour { with_returned: false },
        Claim::Filter(&["output", "postrouting"], IP_AND_INET),
        Claim::Filter(&["egress"], &["netdev"]),
    ],
    witness: &[
        drop::NEIGHBOUR_UNRESOLVED,
        drop::MTU_EXCEEDED,
        drop::LINK_DOWN,
        drop::NO_ROUTE,
        drop::FILTER,
        drop::IPSEC_POLICY,
        drop::TC,
    ],
    says: [
        "accepted",
        "offered to the root qdisc (`sent + drops + Δqlen`), or to the device when the qdisc has no counters \
         (`tx_packets + tx_dropped`)",
        "",
    ],
    ..Station::new(StationKind::IpOut, "ip out", Place::Node)
};

/// What IP gave to an interface that was down is lost at the interface.
fn lost_behind_ip(book: &mut Readings, gap: &mut Gap, at: &Visit) {
    let transmits = book.transmits(at.node).filter(|_| book.unit.is_plain());
    if let Some(transmits) = transmits.filter(|_| book.trouble(at, Place::Egress).is_some()) {
        gap.left = gap.left.max(transmits.min(gap.entered));
    }
}

/// A call that failed is a drop of the application's already.
fn no_call_failed(book: &Readings, _: &Gap, at: &Visit) -> bool {
    super::total(&book.input.sender.send_errors) == 0 || at.node != book.input.spec.from
}

/// The queueing discipline of an interface.
pub const QDISC: Station = Station {
    on: LEFT_AGAIN,
    when: |book, at| !matches!(book.qdisc(at), Ok(None)),
    left: |book, at, entered| {
        let queue = book.qdisc(at)?.ok_or("it does not count")?;
        Ok(passed(book, at, entered, queue.sent, queue.packets))
    },
    claims: &[Claim::By(&[drop::QDISC_FULL, drop::NETEM_DROP], in_the_queue)],
    shares: true,
    witness: &[drop::QDISC_FULL, drop::NETEM_DROP, drop::LINK_DOWN],
    says: [
        "offered",
        "`packets` of the root qdisc (a parent repeats its children)",
        "`queued` is Δqlen. Left out when the qdisc is `noqueue`, or when the port of raw frames bypasses it",
    ],
    ..Station::new(StationKind::Qdisc, "qdisc", Place::Egress)
};

fn in_the_queue(book: &mut Readings, gap: &mut Gap, at: &Visit) {
    let Ok(Some(queue)) = book.qdisc(at) else { return };
    let evidence = describe_qdisc(book, at.node, queue.sample);
    let own = queue.dropped - queue.inside;
    let named = [(drop::QDISC_FULL, queue.inside), (queue.sample.drop_name(), own)];
    let named = named.into_iter().filter(|(_, dropped)| *dropped > 0);
    if book.unit.is_plain() {
        gap.queued = queue.queued;
        for (name, dropped) in named {
            gap.prove(name, dropped, evidence.clone());
        }
    } else {
        let per_buffer = i64::try_from(book.unit.per_buffer);
        let most = per_buffer.map_or(i64::MAX, |each| queue.queued.saturating_mul(each));
        gap.queued = most.max(-(MOST as i64)).min(i64::try_from(gap.open()).unwrap_or(i64::MAX));
        for (name, dropped) in named {
            gap.claim(name, book.unit.at_most(dropped), DropSource::Counter, evidence.clone());
        }
    }
    if book.trouble(at, Place::Egress).is_some() {
        gap.left = gap.left.saturating_add(gap.open()); // thrown away with the carrier: counted at the link
    }
}

/// `tbf limit 3,000 B on s:eth1`, with the children that have a limit of their own.
fn describe_qdisc(book: &Readings, node: &str, root: &QdiscSample) -> String {
    let children = book.input.after.nodes.get(node).map_or(&[][..], |node| &node.qdiscs[..]);
    let one = |qdisc: &QdiscSample| {
        let noun = if matches!(qdisc.kind.as_str(), "tbf" | "bfifo") { "B" } else { "frames" };
        let rate =
            qdisc.rate_bytes_per_second.map(|rate| format!(" rate {}", unit::bits_per_s(rate as f64 * 8.0)));
        let limit = qdisc.limit.map(|limit| format!(" limit {} {noun}", unit::count(limit)));
        format!("{}{}{}", qdisc.kind, rate.unwrap_or_default(), limit.unwrap_or_default())
    };
    let inner = children
        .iter()
        .filter(|child| {
            child.interface == root.interface && child.handle != root.handle && child.limit.is_some()
        })
        .map(|child| format!(", inside it {}", one(child)));
    format!("{}{} on {node}:{}", one(root), inner.collect::<String>(), root.interface)
}

/// The device of an interface, and the link to its peer.
pub const LINK: Station = Station {
    on: LEFT_AGAIN,
    needs: (&[Place::Egress], "the interface to leave by is not known"),
    left: |book, at, entered| {
        let interface = at.egress.unwrap_or_default();
        let pair = book.link(at.node, interface).ok_or_else(|| missing(at.node, interface))?;
        let sent = book.transmitted(&pair).ok_or_else(|| no_counters(interface))?;
        Ok(passed(book, at, entered, sent, pair.counter("tx_packets").unwrap_or(0)))
    },
    claims: &[
        Claim::By(&[drop::MTU_EXCEEDED, drop::BACKLOG_FULL, drop::LINK_DOWN, drop::TX_DROPPED], device_drops),
        Claim::When(suspicious, &[Claim::Interface(Place::Egress, drop::TX_ERRORS, drop::TX_ERRORS)]),
        Claim::Down(Place::Wire),
    ],
    witness: &[drop::BACKLOG_FULL, drop::MTU_EXCEEDED, drop::LINK_DOWN, drop::TX_DROPPED, drop::TC],
    says: [
        "from the qdisc",
        "`tx_packets` of IF",
        "The first four are what `tx_dropped` counts: too long for the peer's MTU (with 4 bytes of room for a VLAN tag), \
         else as far as softnet `dropped` moved on some CPU, else an interface that was down, else without a reason",
    ],
    ..Station::new(StationKind::Link, "link", Place::Wire)
};

/// Splits what the device says it dropped by the reason.
fn device_drops(book: &mut Readings, gap: &mut Gap, at: &Visit) {
    let Some(pair) = at.egress.and_then(|interface| book.link(at.node, interface)) else { return };
    let device = &pair.after.name;
    let plain = book.unit.is_plain();
    let dropped = pair.counter("tx_dropped").unwrap_or(0);
    let dropped = if plain { dropped } else { book.unit.at_most(dropped).min(gap.open()) };
    let length = book.unit.ip_length;
    let mtu = book.peer(at).map(|peer| peer.mtu());
    if let Some(mtu) = mtu.filter(|mtu| plain && length > u64::from(*mtu) + VLAN_ROOM) {
        let evidence = format!("{length} B for an MTU of {mtu} at the other end of {device}");
        return gap.prove(drop::MTU_EXCEEDED, dropped, evidence);
    }
    let (lost, cpus) = book.test.backlog_drops();
    let backlog = book.unit.at_most(book.shared.rest("", "softnet.dropped", lost)).min(dropped);
    if backlog > 0 {
        let cpus: Vec<_> = cpus.iter().map(|(cpu, count)| format!("{count} on CPU {cpu}")).collect();
        gap.prove(drop::BACKLOG_FULL, backlog, format!("softnet dropped {}", cpus.join(", ")));
        book.shared.draw("", "softnet.dropped", backlog.div_ceil(book.unit.per_buffer));
    }
    match book.trouble(at, Place::Wire) {
        Some(trouble) => gap.prove(drop::LINK_DOWN, dropped - backlog, trouble),
        None => gap.prove(drop::TX_DROPPED, dropped - backlog, format!("{device} tx_dropped")),
    }
}

/// Through a kernel bridge.
pub const BRIDGE: Station = Station {
    on: &[Spot::Hop(NodeRole::Bridge)],
    needs: (THROUGH, "the ports of the bridge are not known"),
    left: offered,
    claims: &[
        Claim::Filter(&["ingress"], &["netdev"]),
        Claim::Filter(&["prerouting", "forward", "postrouting"], &["bridge"]),
        Claim::Filter(&["egress"], &["netdev"]),
        Claim::Ports(&[Place::Ingress, Place::Egress, Place::Bridge]),
        Claim::Filter(&["prerouting", "forward", "postrouting"], IP_AND_INET),
        Claim::When(suspicious, &[RX_DROPPED]),
    ],
    witness: &[
        drop::MTU_EXCEEDED,
        drop::PORT_NOT_FORWARDING,
        drop::PORT_ISOLATED,
        drop::PORT_LOCKED,
        drop::LINK_DOWN,
        drop::FILTER,
        drop::TC,
        drop::RX_DROPPED,
    ],
    says: ["from the link before", "offered at the egress port", ""],
    ..Station::new(StationKind::Bridge, "bridge", Place::Bridge)
};

/// Reasons for which IP throws a received frame away, with the counter that says so.
pub const IP_RECEIVE_DROPS: Claim = Claim::All(&[
    Claim::Interface(Place::Ingress, drop::RX_OTHERHOST_DROPPED, drop::OTHERHOST),
    Claim::Counter("TcpExt.IPReversePathFilter", "", drop::RP_FILTER),
    Claim::Counter("IpExt.InCsumErrors", "", drop::CHECKSUM),
    Claim::Counter("Ip.InHdrErrors", "Ip6.Ip6InHdrErrors", drop::HEADER_ERROR),
    Claim::Counter("Ip.InAddrErrors", "Ip6.Ip6InAddrErrors", drop::ADDRESS_ERROR),
    Claim::Counter("IpExt.InTruncatedPkts", "Ip6.Ip6InTruncatedPkts", drop::TRUNCATED),
    Claim::Counter("Ip.InDiscards", "Ip6.Ip6InDiscards", drop::IP_DISCARD),
    Claim::Counter("Ip.ReasmFails", "Ip6.Ip6ReasmFails", drop::REASSEMBLY_FAILED),
]);

const fn no_route(name: &'static str) -> [Claim; 2] {
    [
        Claim::Counter("IpExt.InNoRoutes", "Ip6.Ip6InNoRoutes", name),
        Claim::Counter("Ip.OutNoRoutes", "Ip6.Ip6OutNoRoutes", name),
    ]
}

/// Through a router.
pub const IP_FORWARD: Station = Station {
    on: &[Spot::Hop(NodeRole::Router)],
    needs: (THROUGH, "the interfaces of the router are not known"),
    left: offered,
    claims: &[
        IP_RECEIVE_DROPS,
        Claim::When(
            |book, _, at| book.trouble(at, Place::Egress).is_some(),
            const { &no_route(drop::LINK_DOWN) },
        ),
        Claim::When(
            |book, _, at| book.trouble(at, Place::Egress).is_none(),
            const { &no_route(drop::NO_ROUTE) },
        ),
        Claim::Counter("Ip.FragFails", "Ip6.Ip6FragFails", drop::MTU_EXCEEDED),
        Claim::Down(Place::Egress),
        // Forwarded frames are counted before the filter.
        Claim::Neighbour { with_returned: true },
        Claim::Filter(&["ingress"], &["netdev"]),
        Claim::Filter(&["forward", "prerouting", "postrouting"], IP_AND_INET),
        Claim::Filter(&["egress"], &["netdev"]),
        Claim::When(suspicious, &[RX_DROPPED]),
    ],
    witness: &[
        drop::NEIGHBOUR_UNRESOLVED,
        drop::MTU_EXCEEDED,
        drop::PORT_NOT_FORWARDING,
        drop::LINK_DOWN,
        drop::TX_DROPPED,
        drop::OTHERHOST,
        drop::RP_FILTER,
        drop::CHECKSUM,
        drop::HEADER_ERROR,
        drop::NO_ROUTE,
        drop::ADDRESS_ERROR,
        drop::TRUNCATED,
        drop::REASSEMBLY_FAILED,
        drop::FILTER,
        drop::IPSEC_POLICY,
        drop::TC,
        drop::RX_DROPPED,
    ],
    says: ["from the link before", "offered at the egress interface", "`header_error` is also the TTL's end"],
    ..Station::new(StationKind::IpForward, "ip forward", Place::Node)
};
