//! Stations inside the two ends: the sending application, the receiving IP and UDP layers, the socket, the reader.

use super::book::Book;
use super::chain::{Chain, Gap};
use super::forward::IP_RECEIVE_DROPS;
use super::window::{MOST, difference};
use super::{by_family, is_ping};
use record::unit::count;
use record::{DropSource, EndReport, Hop, Role, StationKind, drop};

/// Memory that the kernel accounts for a queued datagram beyond its payload, at the very least.
const LEAST_OVERHEAD: u64 = 256;
/// Datagrams that receive offload may merge into one buffer.
const MOST_MERGED: u64 = 64;

/// From what the application tried to send to what the kernel accepted.
pub fn app_send(chain: &mut Chain, book: &Book) {
    let sender = book.input.sender;
    let mut gap = chain.gap(StationKind::AppSend, &book.input.spec.from, "app send", sender.sent, 0);
    for error in &sender.send_errors {
        let evidence = format!("the kernel refused with {}", error.name);
        gap.claim(&drop::send(&error.name), error.count, DropSource::Counter, evidence);
    }
    chain.close_exact(gap);
}

/// From the link to the transport protocol.
pub fn ip_in(chain: &mut Chain, book: &mut Book, hop: &Hop) {
    let node = hop.node.as_str();
    let Some((delivered, doubt)) = delivered(book, chain.at, node) else {
        return chain.unknown(
            StationKind::IpIn,
            node,
            "ip in",
            format!("the IP counters of {node} are not in both snapshots"),
        );
    };
    let mut gap = chain.gap(StationKind::IpIn, node, "ip in", delivered, doubt);
    gap.fragments = book.unit.fragments;
    if let Some(ingress) = hop.ingress.as_deref() {
        book.draw_link(&mut gap, node, ingress, "rx_otherhost_dropped", drop::OTHERHOST);
    }
    let spec = book.input.spec;
    for &(v4, v6, name) in IP_RECEIVE_DROPS {
        book.draw(&mut gap, node, by_family(spec, v4, v6), name);
    }
    book.blame_filter(&mut gap, node, &["ingress"], &["netdev"]);
    book.blame_filter(&mut gap, node, &["input", "prerouting"], &["ip", "ip6", "inet"]);
    if let Some(ingress) = hop.ingress.as_deref().filter(|_| gap.suspicious() > 0) {
        book.draw_link(&mut gap, node, ingress, "rx_nohandler", drop::RX_NOHANDLER);
        book.draw_link(&mut gap, node, ingress, "rx_dropped", drop::RX_DROPPED);
    }
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

/// How many datagrams of the test IP handed on, and the doubt.
pub fn delivered(book: &Book, entered: u64, node: &str) -> Option<(u64, u64)> {
    let spec = book.input.spec;
    if is_ping(spec) {
        let at_responder = node == spec.to;
        let (v4, v6) = if at_responder {
            ("Icmp.InEchos", "Ip6.Icmp6InEchos")
        } else {
            ("Icmp.InEchoReps", "Ip6.Icmp6InEchoReplies")
        };
        return Some((book.protocol(node, v4, v6)?, book.protocol_background(node, v4, v6)));
    }
    let (v4, v6) = ("Ip.InDelivers", "Ip6.Ip6InDelivers");
    let all = book.protocol(node, v4, v6)?;
    let background = book.protocol_background(node, v4, v6);
    if (book.unit.per_buffer > 1 || spec.gro) && !book.unit.is_fragmented() {
        let taken = book.protocol(node, "Ip.InReceives", "Ip6.Ip6InReceives")?;
        let merged = merged(book, node, taken);
        let lost = taken.saturating_sub(all).saturating_mul(merged).min(entered);
        return Some((entered - lost, background.saturating_add(lost - lost / merged)));
    }
    let (others, doubt) = other_protocols(book, node);
    Some((all.saturating_sub(others), background.saturating_add(doubt)))
}

/// How many datagrams a received buffer held: the counters of the ECN field count datagrams, the others buffers.
fn merged(book: &Book, node: &str, buffers: u64) -> u64 {
    let names = ["NoECTPkts", "ECT0Pkts", "ECT1Pkts"]
        .map(|name| (format!("IpExt.In{name}"), format!("Ip6.Ip6In{name}")));
    let count =
        names.iter().filter_map(|(v4, v6)| book.protocol(node, v4, v6)).fold(0u64, u64::saturating_add);
    let most = if book.input.spec.gro { book.unit.per_buffer.max(MOST_MERGED) } else { book.unit.per_buffer };
    if count == 0 || buffers == 0 { most } else { count.div_ceil(buffers).clamp(1, most) }
}

/// Deliveries to TCP and ICMP: those that are surely of this family, and those that may be.
fn other_protocols(book: &Book, node: &str) -> (u64, u64) {
    let moved = |name: &str| book.test.protocol(node, name).unwrap_or(0);
    let v6 = book.input.spec.family == 6;
    let (icmp4, icmp6) = (moved("Icmp.InMsgs"), moved("Ip6.Icmp6InMsgs"));
    let other_family = if v6 {
        moved("Ip.InDelivers").saturating_sub(icmp4)
    } else {
        moved("Ip6.Ip6InDelivers").saturating_sub(icmp6)
    };
    let icmp = if v6 { icmp6 } else { icmp4 };
    let tcp = moved("Tcp.InSegs");
    if other_family == 0 { (icmp.saturating_add(tcp), 0) } else { (icmp, tcp) }
}

/// What is known about the datagram socket at one end.
struct SocketView {
    /// Datagrams read, by the kernel's count (or the application's).
    reads: u64,
    /// Datagrams that did not fit while the application read.
    full: u64,
    /// Datagrams that did not fit when it had ended and nobody read any more, although its socket was still open.
    late: u64,
    /// The most that can be in its queue.
    room: u64,
    /// UDP's own errors: memory, checksum, socket filter.
    memory: u64,
    checksum: u64,
    refused: u64,
    /// Where `full` was read.
    evidence: String,
}

impl SocketView {
    /// With receive offload the socket counts a merged buffer once. How many datagrams were in those it dropped is known
    /// from how many are missing, within what the buffers can hold: each had one to as many as
    /// were sent in one call (a paced sender often sends less), or to [`MOST_MERGED`] when only the receiving device merged.
    fn in_datagrams(mut self, book: &Book, entered: u64) -> Self {
        if !book.input.spec.gro || self.full == 0 {
            return self;
        }
        let besides =
            self.reads.saturating_add(self.memory).saturating_add(self.checksum).saturating_add(self.refused);
        let missing = entered.saturating_sub(besides);
        let merged = if book.unit.per_buffer > 1 { book.unit.per_buffer } else { MOST_MERGED };
        let buffers = self.full;
        self.full = missing.clamp(buffers, buffers.saturating_mul(merged).min(MOST));
        self.evidence.push_str(&format!("; {} datagrams in {buffers} merged buffers", self.full));
        self
    }
}

/// The most datagrams that can wait in so many bytes of a socket's memory.
pub fn most_waiting(book: &Book, bytes: u64) -> u64 {
    let overhead = if book.unit.per_buffer > 1 { 0 } else { LEAST_OVERHEAD };
    (bytes / (book.unit.ip_length + overhead).max(1)).min(MOST)
}

fn socket_view(book: &Book, end: &EndReport, node: &str, port: u16) -> SocketView {
    let ping = is_ping(book.input.spec);
    let udp = |v4: &str, v6: &str| if ping { None } else { book.protocol(node, v4, v6) };
    let memory = udp("Udp.MemErrors", "Ip6.Udp6MemErrors").unwrap_or(0);
    let checksum = udp("Udp.InCsumErrors", "Ip6.Udp6InCsumErrors").unwrap_or(0);
    let rcvbuf = udp("Udp.RcvbufErrors", "Ip6.Udp6RcvbufErrors");
    let at_most = rcvbuf.unwrap_or(MOST);
    let errors = udp("Udp.InErrors", "Ip6.Udp6InErrors").unwrap_or(0);
    let known = rcvbuf.unwrap_or(0).saturating_add(memory).saturating_add(checksum);
    let refused = if rcvbuf.is_some() { errors.saturating_sub(known) } else { 0 };
    let sockets = if port == 0 { vec![] } else { book.test.sockets(node, port) };
    let sampled = sockets
        .iter()
        .filter_map(|(before, after)| difference(before.map_or(0, |before| before.drops), after.drops))
        .reduce(u64::saturating_add);
    let own = end.socket_drops.or(sampled);
    // The socket also counts memory and checksum errors, the protocol also counts other sockets.
    let (full, source) = match (own, rcvbuf) {
        (Some(own), Some(rcvbuf)) => (own.min(rcvbuf), "the socket and Udp RcvbufErrors counted"),
        (Some(own), None) => (own, "the socket counted"),
        (None, Some(rcvbuf)) => (rcvbuf, "Udp RcvbufErrors counted"),
        (None, None) => (0, "nothing counted"),
    };
    let room = sockets
        .iter()
        .fold(0u64, |sum, (_, after)| sum.saturating_add(most_waiting(book, after.receive_queue_bytes)));
    // The end told its count when it stopped reading; what the socket has counted since came too late.
    let in_all = sockets.iter().fold(0u64, |sum, (_, after)| sum.saturating_add(after.drops));
    let since = end.socket_drops.map_or(0, |own| in_all.saturating_sub(own));
    let by_application = end.received.saturating_add(end.foreign);
    let by_kernel = udp("Udp.InDatagrams", "Ip6.Udp6InDatagrams").filter(|_| !book.input.spec.gro);
    let evidence = format!("{source} {} with SO_RCVBUF {}", count(full), count(end.settings.receive_buffer));
    SocketView {
        reads: by_kernel.unwrap_or(by_application).min(MOST),
        full: full.min(MOST),
        late: since.min(at_most.saturating_sub(full)).min(MOST),
        room: room.min(MOST),
        memory,
        checksum,
        refused,
        evidence,
    }
}

/// From the transport protocol to the socket, and through the socket's queue.
fn into_socket(chain: &mut Chain, book: &mut Book, at_receiver: bool) {
    let (end, node, port) = book.end(at_receiver);
    let node = node.as_str();
    let view = socket_view(book, end, node, port).in_datagrams(book, chain.at);
    let reached = view.reads.saturating_add(view.full).saturating_add(view.late).min(MOST);
    if !is_ping(book.input.spec) {
        let no_ports = by_family(book.input.spec, "Udp.NoPorts", "Ip6.Udp6NoPorts");
        if book.test.node(node).is_none() {
            chain.unknown(StationKind::UdpIn, node, "udp in", format!("{node} is not in both snapshots"));
        } else {
            let mut gap = chain.gap(StationKind::UdpIn, node, "udp in", reached, 0);
            book.draw(&mut gap, node, no_ports, drop::NO_SOCKET);
            gap.claim(drop::CHECKSUM, view.checksum, DropSource::Counter, "Udp InCsumErrors");
            gap.claim(drop::UDP_MEMORY, view.memory, DropSource::Counter, "Udp MemErrors");
            gap.claim(
                drop::SOCKET_FILTER,
                view.refused,
                DropSource::Counter,
                "Udp InErrors without another name",
            );
            gap.left = gap.left.saturating_add(gap.open().min(view.room));
            let others = udp_strangers(book, &gap, end, view.reads);
            chain.close(gap, others);
        }
    }
    let mut gap = chain.gap(StationKind::Socket, node, "socket", view.reads, 0);
    gap.prove(drop::SOCKET_BUFFER_FULL, view.full, &view.evidence);
    gap.prove(drop::AFTER_END, view.late, "the socket counted them when its reader had ended");
    gap.queued = i64::try_from(gap.open().min(view.room)).unwrap_or(0);
    let others = udp_strangers(book, &gap, end, view.reads);
    chain.close(gap, others);
}

/// Datagrams of other sockets in the node: what the kernel handed out beyond what this application read.
fn udp_strangers(book: &Book, gap: &Gap, end: &EndReport, reads: u64) -> u64 {
    let mine = end.received.saturating_add(end.foreign);
    book.others(gap.entered, 0)
        .saturating_add(reads.saturating_sub(mine))
        .saturating_add(end.foreign)
        .min(MOST)
}

/// At the far end of a round trip: the kernel answers an echo, the application answers a request.
pub fn turn_around(chain: &mut Chain, book: &mut Book) {
    let node = book.input.spec.to.as_str();
    if is_ping(book.input.spec) {
        return icmp_echo(chain, book, node);
    }
    into_socket(chain, book, true);
    let receiver = book.input.receiver;
    let mut gap = chain.gap(StationKind::AppReply, node, "app reply", receiver.responses, 0);
    gap.claim(drop::FOREIGN, receiver.foreign, DropSource::Counter, "messages that are not of the test");
    for error in &receiver.send_errors {
        let evidence = format!("the kernel refused with {}", error.name);
        gap.claim(&drop::send(&error.name), error.count, DropSource::Counter, evidence);
    }
    chain.close_exact(gap);
}

fn icmp_echo(chain: &mut Chain, book: &mut Book, node: &str) {
    let (v4, v6) = ("Icmp.OutEchoReps", "Ip6.Icmp6OutEchoReplies");
    let Some(replies) = book.protocol(node, v4, v6) else {
        return chain.unknown(
            StationKind::IcmpEcho,
            node,
            "icmp echo",
            format!("the ICMP counters of {node} are not in both snapshots"),
        );
    };
    let doubt = book.protocol_background(node, v4, v6);
    let mut gap = chain.gap(StationKind::IcmpEcho, node, "icmp echo", replies, doubt);
    for counter in ["Icmp.OutRateLimitGlobal", "Icmp.OutRateLimitHost", "Ip6.Icmp6OutRateLimitHost"] {
        if counter.starts_with("Ip6") == (book.input.spec.family == 6) {
            book.draw(&mut gap, node, counter, drop::ICMP_RATE_LIMIT);
        }
    }
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

/// The last stations: into the socket and out of it. Returns what the last application got.
pub fn app_receive(chain: &mut Chain, book: &mut Book) -> u64 {
    let spec = book.input.spec;
    let at_receiver = !spec.kind.is_round_trip();
    let (end, node, _) = book.end(at_receiver);
    let hops = if at_receiver { &book.input.path.forward } else { &book.input.path.back };
    let by_socket = !spec.kind.is_by_port();
    if hops.last().is_some_and(|hop| hop.role == Role::Receiver) && by_socket {
        into_socket(chain, book, at_receiver);
    }
    let received = end.unique.min(MOST);
    let mut gap = chain.gap(StationKind::AppReceive, &node, "app receive", received, 0);
    gap.claim(drop::DUPLICATE, end.duplicates, DropSource::Counter, "read more than once");
    gap.claim(
        drop::FOREIGN,
        end.foreign,
        DropSource::Counter,
        "messages that are not of the test, or damaged",
    );
    chain.close_exact(gap);
    received
}
