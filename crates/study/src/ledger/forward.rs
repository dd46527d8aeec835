//! Stations between the two ends: leaving a node, crossing a link, being forwarded.

use super::book::{Book, Qdisc, Queue};
use super::by_family;
use super::chain::{Chain, Gap, Range, at};
use super::program;
use super::window::{LinkPair, MOST};
use record::snapshot::QdiscSample;
use record::{DropSource, Hop, StationKind, drop, unit};

/// Bytes beyond its MTU that a virtual link still takes, so that a VLAN tag fits (`__is_skb_forwardable`).
const VLAN_ROOM: u64 = 4;
const IP_AND_INET: &[&str] = &["ip", "ip6", "inet"];

/// What was offered to the first counter behind a node's forwarding: its qdisc, or its device if the qdisc has no
/// counters. A drop there may have been a whole super-frame, or a segment of one.
pub fn offered(book: &mut Book, entered: u64, node: &str, interface: &str) -> Result<(Range, u64), String> {
    let qdisc = book.qdisc(node, interface);
    offered_to(book, entered, node, interface, qdisc)
}

/// The same, where it is known whether frames pass the qdisc.
pub fn offered_to(
    book: &mut Book,
    entered: u64,
    node: &str,
    interface: &str,
    qdisc: Qdisc,
) -> Result<(Range, u64), String> {
    let (sent, buffers, dropped, queued) = match qdisc {
        Qdisc::Counted(Queue { sent, packets, dropped, queued, .. }) => (sent, packets, dropped, queued),
        Qdisc::None => {
            let link = book.link(node, interface).ok_or_else(|| missing(node, interface))?;
            let sent = book.transmitted(&link).ok_or_else(|| no_counters(interface))?;
            let buffers = link.counter("tx_packets").unwrap_or(0);
            (sent, buffers, link.counter("tx_dropped").unwrap_or(0), 0)
        }
        Qdisc::Unknown(why) => return Err(why),
    };
    let sum = |of: u64, dropped: u64, queued: i128| {
        (i128::from(of) + i128::from(dropped) + queued).clamp(0, i128::from(MOST)) as u64
    };
    let (queued, in_buffers) = (i128::from(queued), i128::from(queued) * i128::from(book.unit.per_buffer));
    let least = sum(sent.count, dropped, queued.min(in_buffers));
    let most = sum(sent.count, book.unit.at_most(dropped), queued.max(in_buffers));
    let range = if book.unit.is_fragmented() {
        book.in_fragments(entered, sum(buffers, dropped, queued), most)
    } else {
        Range { least, most, pieces: 0 }
    };
    Ok((range, sent.doubt))
}

/// What a qdisc or a device let through, in so many buffers.
fn passed(book: &mut Book, entered: u64, count: u64, buffers: u64) -> Range {
    if book.unit.is_fragmented() {
        book.in_fragments(entered, buffers, count)
    } else {
        Range { least: count, most: count, pieces: 0 }
    }
}

fn missing(node: &str, interface: &str) -> String {
    format!("{interface} of {node} is not in both snapshots")
}

fn no_counters(interface: &str) -> String {
    format!("{interface} has no usable counters")
}

/// Background of whatever [`offered`] counts.
pub fn background(book: &Book, node: &str, interface: &str) -> u64 {
    book.background(|window| window.link_counter(node, interface, "tx_packets"))
}

/// From the application's accepted messages to what IP hands to the interface.
pub fn ip_out(chain: &mut Chain, book: &mut Book, hop: &Hop) {
    let Some(interface) = hop.egress.as_deref() else {
        return chain.unknown(
            StationKind::IpOut,
            &hop.node,
            "ip out",
            "the interface to leave by is not known",
        );
    };
    let (offered, doubt) = match offered(book, chain.at, &hop.node, interface) {
        Ok(offered) => offered,
        Err(why) => return chain.unknown(StationKind::IpOut, &hop.node, "ip out", why),
    };
    let doubt = doubt.saturating_add(background(book, &hop.node, interface));
    let mut gap = chain
        .gap(StationKind::IpOut, &hop.node, "ip out", offered.least, doubt)
        .between(offered, book.unit.fragments);
    let transmits = book.transmits(&hop.node);
    let trouble = book.link(&hop.node, interface).and_then(|link| link.trouble());
    if let (Some(transmits), Some(_)) = (transmits.filter(|_| book.unit.is_plain()), &trouble) {
        gap.left = gap.left.max(transmits.min(gap.entered)); // lost behind IP, at an interface that was down
    }
    let at_most =
        transmits.map_or(MOST, |transmits| book.unit.at_most(transmits).saturating_sub(offered.least));
    let node = hop.node.as_str();
    for (v4, v6, name) in [
        ("Ip.OutNoRoutes", "Ip6.Ip6OutNoRoutes", drop::NO_ROUTE),
        ("Ip.FragFails", "Ip6.Ip6FragFails", drop::MTU_EXCEEDED),
    ] {
        let failed_calls = super::total(&book.input.sender.send_errors) > 0 && node == book.input.spec.from;
        if !failed_calls {
            book.draw(&mut gap, node, by_family(book.input.spec, v4, v6), name);
        }
    }
    book.blame_neighbour(&mut gap, node, interface, at_most);
    book.blame_filter(&mut gap, node, &["output", "postrouting"], IP_AND_INET);
    book.blame_filter(&mut gap, node, &["egress"], &["netdev"]);
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

/// The qdisc of an interface, and the link to its peer.
pub fn egress(chain: &mut Chain, book: &mut Book, hop: &Hop, next: Option<&Hop>) {
    let node = hop.node.as_str();
    let Some(interface) = hop.egress.as_deref() else {
        return chain.unknown(StationKind::Link, node, "link", "the interface to leave by is not known");
    };
    match book.qdisc_on_path(hop) {
        Qdisc::None => {}
        Qdisc::Unknown(why) => chain.unknown(StationKind::Qdisc, node, at("qdisc", interface), why),
        Qdisc::Counted(queue) => qdisc(chain, book, node, interface, &queue),
    }
    link(chain, book, node, interface, next);
}

fn qdisc(chain: &mut Chain, book: &mut Book, node: &str, interface: &str, queue: &Queue) {
    let &Queue { sent, packets, dropped, queued, sample } = queue;
    let doubt = sent.doubt.saturating_add(background(book, node, interface));
    let range = passed(book, chain.at, sent.count, packets);
    let gap = chain.gap(StationKind::Qdisc, node, at("qdisc", interface), range.least, doubt);
    let mut gap = gap.between(range, book.unit.fragments);
    let evidence = describe_qdisc(book, node, sample);
    if book.unit.is_plain() {
        gap.queued = queued;
        gap.prove(drop::QDISC_FULL, dropped, evidence);
    } else {
        let most = i64::try_from(book.unit.per_buffer).map_or(i64::MAX, |each| queued.saturating_mul(each));
        gap.queued = most.max(-(MOST as i64)).min(i64::try_from(gap.open()).unwrap_or(i64::MAX));
        gap.claim(drop::QDISC_FULL, book.unit.at_most(dropped), DropSource::Counter, evidence);
    }
    let trouble = book.link(node, interface).and_then(|link| link.trouble());
    if trouble.is_some() {
        gap.left = gap.left.saturating_add(gap.open()); // thrown away with the carrier: counted at the link
    }
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

/// `tbf limit 3,000 B on s:eth1`, with the children that have a limit of their own.
fn describe_qdisc(book: &Book, node: &str, root: &QdiscSample) -> String {
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

fn link(chain: &mut Chain, book: &mut Book, node: &str, interface: &str, next: Option<&Hop>) {
    let name = at("link", interface);
    let Some(pair) = book.link(node, interface) else {
        return chain.unknown(StationKind::Link, node, name, missing(node, interface));
    };
    let Some(sent) = book.transmitted(&pair) else {
        return chain.unknown(StationKind::Link, node, name, no_counters(interface));
    };
    let doubt = sent.doubt.saturating_add(background(book, node, interface));
    let range = passed(book, chain.at, sent.count, pair.counter("tx_packets").unwrap_or(0));
    let gap = chain.gap(StationKind::Link, node, name, range.least, doubt);
    let mut gap = gap.between(range, book.unit.fragments);
    gap.peer = next.map(|next| next.node.clone());
    let peer = next.and_then(|next| book.link(&next.node, next.ingress.as_deref()?));
    let dropped = pair.counter("tx_dropped").unwrap_or(0);
    let dropped = if book.unit.is_plain() { dropped } else { book.unit.at_most(dropped).min(gap.open()) };
    name_device_drops(book, &mut gap, &pair, peer.as_ref(), dropped);
    if gap.suspicious() > 0 {
        book.draw_link(&mut gap, node, interface, "tx_errors", drop::TX_ERRORS);
    }
    let trouble = pair.trouble().or_else(|| peer.and_then(|peer| peer.trouble()));
    if let Some(trouble) = trouble.filter(|_| gap.suspicious() > 0) {
        gap.claim(drop::LINK_DOWN, MOST, DropSource::State, trouble);
    }
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

/// Splits what the device says it dropped by the reason.
fn name_device_drops(
    book: &mut Book,
    gap: &mut Gap,
    pair: &LinkPair,
    peer: Option<&LinkPair>,
    mut dropped: u64,
) {
    let device = &pair.after.name;
    let too_long =
        |peer: &&LinkPair| book.unit.is_plain() && book.unit.ip_length > u64::from(peer.mtu()) + VLAN_ROOM;
    if let Some(peer) = peer.filter(too_long) {
        let (length, mtu) = (book.unit.ip_length, peer.mtu());
        gap.prove(
            drop::MTU_EXCEEDED,
            dropped,
            format!("{length} B for an MTU of {mtu} at the other end of {device}"),
        );
        return;
    }
    let (lost, cpus) = book.test.backlog_drops();
    let rest = book.unit.at_most(book.shared.rest("", "softnet.dropped", lost));
    let backlog = rest.min(dropped);
    if backlog > 0 {
        let cpus: Vec<_> = cpus.iter().map(|(cpu, count)| format!("{count} on CPU {cpu}")).collect();
        gap.prove(drop::BACKLOG_FULL, backlog, format!("softnet dropped {}", cpus.join(", ")));
        book.shared.draw("", "softnet.dropped", backlog.div_ceil(book.unit.per_buffer));
    }
    dropped -= backlog;
    match pair.trouble().or_else(|| peer.and_then(LinkPair::trouble)) {
        Some(trouble) => gap.prove(drop::LINK_DOWN, dropped, trouble),
        None => gap.prove(drop::TX_DROPPED, dropped, format!("{device} tx_dropped")),
    }
}

/// Through a kernel bridge.
pub fn bridge(chain: &mut Chain, book: &mut Book, hop: &Hop) {
    let node = hop.node.as_str();
    let name = at("bridge", hop.bridge.as_deref().unwrap_or("?"));
    let Some((ingress, egress)) = hop.ingress.as_deref().zip(hop.egress.as_deref()) else {
        return chain.unknown(StationKind::Bridge, node, name, "the ports of the bridge are not known");
    };
    let (offered, doubt) = match offered(book, chain.at, node, egress) {
        Ok(offered) => offered,
        Err(why) => return chain.unknown(StationKind::Bridge, node, name, why),
    };
    let doubt = doubt.saturating_add(background(book, node, egress));
    let mut gap = chain
        .gap(StationKind::Bridge, node, name, offered.least, doubt)
        .between(offered, book.unit.fragments);
    book.blame_filter(&mut gap, node, &["ingress"], &["netdev"]);
    book.blame_filter(&mut gap, node, &["prerouting", "forward", "postrouting"], &["bridge"]);
    book.blame_filter(&mut gap, node, &["egress"], &["netdev"]);
    blame_ports(book, &mut gap, node, [ingress, egress, hop.bridge.as_deref().unwrap_or(egress)]);
    book.blame_filter(&mut gap, node, &["prerouting", "forward", "postrouting"], IP_AND_INET);
    if gap.suspicious() > 0 {
        book.draw_link(&mut gap, node, ingress, "rx_dropped", drop::RX_DROPPED);
    }
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

/// Through a program in user space.
pub fn program(chain: &mut Chain, book: &mut Book, hop: &Hop) {
    let node = hop.node.as_str();
    let Some((ingress, egress)) = hop.ingress.as_deref().zip(hop.egress.as_deref()) else {
        return chain.unknown(
            StationKind::Program,
            node,
            "program",
            "the interfaces of the program are not known",
        );
    };
    let (offered, doubt) = match offered(book, chain.at, node, egress) {
        Ok(offered) => offered,
        Err(why) => return chain.unknown(StationKind::Program, node, "program", why),
    };
    let doubt = doubt.saturating_add(background(book, node, egress));
    let mut gap = chain
        .gap(StationKind::Program, node, "program", offered.least, doubt)
        .between(offered, book.unit.fragments);
    program::packet_sockets(book, &mut gap, node, ingress, 0);
    blame_ports(book, &mut gap, node, [ingress, egress, egress]);
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

/// States of bridge ports that stop frames.
pub fn blame_ports(book: &Book, gap: &mut Gap, node: &str, ports: [&str; 3]) {
    for (port, leaving) in ports.into_iter().zip([false, true, false]) {
        let Some(pair) = book.link(node, port) else { continue };
        let mtu = u64::from(pair.mtu());
        if gap.suspicious() == 0 {
            return;
        }
        if let Some(trouble) = pair.trouble() {
            gap.claim(drop::LINK_DOWN, MOST, DropSource::State, trouble);
        } else if leaving && book.unit.is_plain() && book.unit.ip_length > mtu + VLAN_ROOM {
            let evidence = format!("{} B for an MTU of {mtu} at {port}", book.unit.ip_length);
            gap.claim(drop::MTU_EXCEEDED, MOST, DropSource::State, evidence);
        } else if [pair.before, pair.after]
            .iter()
            .any(|link| link.bridge_state.is_some_and(|state| state != 3))
        {
            let evidence = format!("{port} was in state {:?}", pair.after.bridge_state.unwrap_or(0));
            gap.claim(drop::PORT_NOT_FORWARDING, MOST, DropSource::State, evidence);
        }
    }
}

/// Reasons for which IP throws a received frame away, with the counter that says so.
pub const IP_RECEIVE_DROPS: &[(&str, &str, &str)] = &[
    ("TcpExt.IPReversePathFilter", "", drop::RP_FILTER),
    ("IpExt.InCsumErrors", "", drop::CHECKSUM),
    ("Ip.InHdrErrors", "Ip6.Ip6InHdrErrors", drop::HEADER_ERROR),
    ("Ip.InAddrErrors", "Ip6.Ip6InAddrErrors", drop::ADDRESS_ERROR),
    ("IpExt.InTruncatedPkts", "Ip6.Ip6InTruncatedPkts", drop::TRUNCATED),
    ("Ip.InDiscards", "Ip6.Ip6InDiscards", drop::IP_DISCARD),
    ("Ip.ReasmFails", "Ip6.Ip6ReasmFails", drop::REASSEMBLY_FAILED),
];

const NO_ROUTE: &[(&str, &str)] =
    &[("IpExt.InNoRoutes", "Ip6.Ip6InNoRoutes"), ("Ip.OutNoRoutes", "Ip6.Ip6OutNoRoutes")];

/// Through a router.
pub fn ip_forward(chain: &mut Chain, book: &mut Book, hop: &Hop) {
    let node = hop.node.as_str();
    let place = StationKind::IpForward;
    let Some((ingress, egress)) = hop.ingress.as_deref().zip(hop.egress.as_deref()) else {
        return chain.unknown(place, node, "ip forward", "the interfaces of the router are not known");
    };
    let (offered, doubt) = match offered(book, chain.at, node, egress) {
        Ok(offered) => offered,
        Err(why) => return chain.unknown(place, node, "ip forward", why),
    };
    let doubt = doubt.saturating_add(background(book, node, egress));
    let mut gap =
        chain.gap(place, node, "ip forward", offered.least, doubt).between(offered, book.unit.fragments);
    let spec = book.input.spec;
    let trouble = book.link(node, egress).and_then(|link| link.trouble());
    book.draw_link(&mut gap, node, ingress, "rx_otherhost_dropped", drop::OTHERHOST);
    for &(v4, v6, name) in IP_RECEIVE_DROPS {
        book.draw(&mut gap, node, by_family(spec, v4, v6), name);
    }
    for &(v4, v6) in NO_ROUTE {
        let name = if trouble.is_some() { drop::LINK_DOWN } else { drop::NO_ROUTE };
        book.draw(&mut gap, node, by_family(spec, v4, v6), name);
    }
    book.draw(&mut gap, node, by_family(spec, "Ip.FragFails", "Ip6.Ip6FragFails"), drop::MTU_EXCEEDED);
    if let Some(trouble) = trouble.filter(|_| gap.suspicious() > 0) {
        gap.claim(drop::LINK_DOWN, MOST, DropSource::State, trouble);
    }
    // What IP gave away (in both directions) and no interface saw. Forwarded frames are counted before the filter.
    let returned = book.test.link_counter(node, ingress, "tx_packets").unwrap_or(0);
    let seen = offered.least.saturating_add(returned);
    let behind =
        book.transmits(node).map_or(MOST, |transmits| book.unit.at_most(transmits).saturating_sub(seen));
    book.blame_neighbour(&mut gap, node, egress, behind);
    book.blame_filter(&mut gap, node, &["ingress"], &["netdev"]);
    book.blame_filter(&mut gap, node, &["forward", "prerouting", "postrouting"], IP_AND_INET);
    book.blame_filter(&mut gap, node, &["egress"], &["netdev"]);
    if gap.suspicious() > 0 {
        book.draw_link(&mut gap, node, ingress, "rx_dropped", drop::RX_DROPPED);
    }
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}
