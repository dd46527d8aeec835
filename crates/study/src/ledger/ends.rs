//! Stations inside the two ends: the sending application, the receiving IP and UDP layers, the socket, the
//! reader.

use super::book::Readings;
use super::forward::{IP_AND_INET, IP_RECEIVE_DROPS, RX_DROPPED};
use super::gap::{Gap, Left};
use super::is_ping;
use super::sockets::most_waiting;
use super::station::{Claim, Counts, Station, suspicious};
use super::visit::{Place, SocketView, Spot, Visit};
use super::window::{MOST, difference};
use record::delta::sum;
use record::unit::{count, many};
use record::{DropSource, EndReport, NodeRole, StationKind, drop};

/// Datagrams that receive offload may merge into one buffer.
const MOST_MERGED: u64 = 64;

/// From what the application tried to send to what the kernel accepted.
pub const APP_SEND: Station = Station {
    on: &[Spot::Start],
    when: |book, _| !book.input.spec.kind.is_by_port(),
    left: |_, at, _| Ok(Left::exactly(at.end.sent, 0)),
    claims: &[Claim::By(&[drop::SEND], refused_calls)],
    counts: Counts::Own,
    says: [
        "what the application tried to send",
        "what the kernel accepted (application)",
        "NAME is the error, e.g. `send_EPERM`: a filter at hook output refuses the call",
    ],
    ..Station::new(StationKind::AppSend, "app send", Place::Node)
};

fn refused_calls(book: &mut Readings, gap: &mut Gap, at: &Visit) {
    for error in &at.end.send_errors {
        let evidence = format!("the kernel refused with {}", error.name);
        let refused = gap.claim(&drop::send(&error.name), error.count, DropSource::Counter, evidence);
        if error.name == "EPERM" {
            book.spend_refused(at.node, &["output", "postrouting"], IP_AND_INET, refused);
        }
    }
}

fn not_of_test(_: &mut Readings, gap: &mut Gap, at: &Visit) {
    gap.claim(drop::FOREIGN, at.end.foreign, DropSource::Counter, "messages that are not of the test");
    let evidence = "their number cannot be the test's, or their checksum is wrong";
    gap.claim(drop::DAMAGED, at.end.damaged, DropSource::Counter, evidence);
}

/// From the link to the transport protocol.
pub const IP_IN: Station = Station {
    on: &[Spot::Hop(NodeRole::Receiver)],
    when: |book, _| !book.input.spec.kind.is_by_port(),
    left: |book, at, entered| {
        let why = || format!("the IP counters of {} are not in both snapshots", at.node);
        let (count, doubt) = delivered(book, entered, at.node).ok_or_else(why)?;
        Ok(Left::exactly(count, doubt).of_fragments(book.unit.fragments))
    },
    shares: true,
    claims: &[
        IP_RECEIVE_DROPS,
        Claim::Filter(&["ingress"], &["netdev"]),
        Claim::Filter(&["input", "prerouting"], IP_AND_INET),
        Claim::When(
            suspicious,
            &[Claim::Interface(Place::Ingress, drop::RX_NOHANDLER, drop::RX_NOHANDLER), RX_DROPPED],
        ),
    ],
    witness: &[
        drop::OTHERHOST,
        drop::RP_FILTER,
        drop::CHECKSUM,
        drop::HEADER_ERROR,
        drop::NO_ROUTE,
        drop::ADDRESS_ERROR,
        drop::TRUNCATED,
        drop::REASSEMBLY_FAILED,
        drop::FILTER,
        drop::TC,
        drop::RX_DROPPED,
    ],
    says: [
        "from the link before",
        "`InDelivers` less what TCP and ICMP took; for ping `InEchos` / `InEchoReps`",
        "",
    ],
    ..Station::new(StationKind::IpIn, "ip in", Place::Node)
};

/// How many datagrams of the test IP handed on, and the doubt.
pub fn delivered(book: &Readings, entered: u64, node: &str) -> Option<(u64, u64)> {
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

/// How many datagrams a received buffer held: the counters of the ECN field count datagrams, the others
/// buffers.
fn merged(book: &Readings, node: &str, buffers: u64) -> u64 {
    let names = ["NoECTPkts", "ECT0Pkts", "ECT1Pkts"]
        .map(|name| (format!("IpExt.In{name}"), format!("Ip6.Ip6In{name}")));
    let count = sum(names.iter().filter_map(|(v4, v6)| book.protocol(node, v4, v6)));
    let most = if book.input.spec.gro { book.unit.per_buffer.max(MOST_MERGED) } else { book.unit.per_buffer };
    if count == 0 || buffers == 0 { most } else { count.div_ceil(buffers).clamp(1, most) }
}

/// Deliveries to TCP and ICMP: those that are surely of this family, and those that may be.
fn other_protocols(book: &Readings, node: &str) -> (u64, u64) {
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

/// With receive offload the socket counts a merged buffer once. How many datagrams were in those it dropped
/// is known from how many are missing, within what the buffers can hold: each had one to as many as were sent
/// in one call (a paced sender often sends less), or to [`MOST_MERGED`] when only the receiving device
/// merged.
fn in_datagrams(mut socket: SocketView, book: &Readings, entered: u64) -> SocketView {
    if !book.input.spec.gro || socket.full == 0 {
        return socket;
    }
    let besides = sum([socket.reads, socket.memory, socket.checksum, socket.refused]);
    let missing = entered.saturating_sub(besides);
    let merged = if book.unit.per_buffer > 1 { book.unit.per_buffer } else { MOST_MERGED };
    let buffers = socket.full;
    socket.full = missing.clamp(buffers, buffers.saturating_mul(merged).min(MOST));
    let (datagrams, buffers) = (many(socket.full, "datagram"), many(buffers, "merged buffer"));
    socket.evidence.push_str(&format!("; {datagrams} in {buffers}"));
    socket
}

/// What is known of the socket of an end to which so many datagrams came.
pub fn socket_view(book: &Readings, (node, end, port): (&str, &EndReport, u16), entered: u64) -> SocketView {
    let ping = is_ping(book.input.spec);
    let udp = |v4: &str, v6: &str| if ping { None } else { book.protocol(node, v4, v6) };
    let memory = udp("Udp.MemErrors", "Ip6.Udp6MemErrors").unwrap_or(0);
    let checksum = udp("Udp.InCsumErrors", "Ip6.Udp6InCsumErrors").unwrap_or(0);
    let rcvbuf = udp("Udp.RcvbufErrors", "Ip6.Udp6RcvbufErrors");
    let at_most = rcvbuf.unwrap_or(MOST);
    let errors = udp("Udp.InErrors", "Ip6.Udp6InErrors").unwrap_or(0);
    let known = sum([rcvbuf.unwrap_or(0), memory, checksum]);
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
    let room = sum(sockets.iter().map(|(_, after)| most_waiting(book, after.receive_queue_bytes)));
    // The end told its count when it stopped reading; what the socket has counted since came too late.
    let in_all = sum(sockets.iter().map(|(_, after)| after.drops));
    let since = end.socket_drops.map_or(0, |own| in_all.saturating_sub(own));
    let by_application = end.read();
    let by_kernel =
        udp("Udp.InDatagrams", "Ip6.Udp6InDatagrams").filter(|_| !book.input.spec.gro && !book.counted);
    let evidence = format!("{source} {} with SO_RCVBUF {}", count(full), count(end.settings.receive_buffer));
    let socket = SocketView {
        reads: by_kernel.unwrap_or(by_application).min(MOST),
        full: full.min(MOST),
        late: since.min(at_most.saturating_sub(full)).min(MOST),
        room: room.min(MOST),
        memory,
        checksum,
        refused,
        evidence,
    };
    in_datagrams(socket, book, entered)
}

/// From the transport protocol to the socket.
pub const UDP_IN: Station = Station {
    on: &[Spot::Turn, Spot::End],
    when: |book, at| at.socket.is_some() && !is_ping(book.input.spec),
    left: |book, at, _| {
        let known = book.test.node(at.node).and(at.socket.as_ref());
        let socket = known.ok_or_else(|| format!("{} is not in both snapshots", at.node))?;
        let reached = sum([socket.reads, socket.full, socket.late]);
        Ok(Left::exactly(reached, 0))
    },
    claims: &[
        Claim::Counter("Udp.NoPorts", "Ip6.Udp6NoPorts", drop::NO_SOCKET),
        Claim::By(&[drop::CHECKSUM, drop::UDP_MEMORY, drop::SOCKET_FILTER], before_the_socket),
    ],
    counts: Counts::Messages,
    strangers: |at| at.strangers(),
    witness: &[drop::CHECKSUM, drop::FILTER, drop::NO_SOCKET, drop::UDP_MEMORY, drop::SOCKET_FILTER],
    says: ["delivered by IP", "reads + socket drops + what can be in the queue", ""],
    ..Station::new(StationKind::UdpIn, "udp in", Place::Node)
};

fn before_the_socket(_: &mut Readings, gap: &mut Gap, at: &Visit) {
    let Some(socket) = &at.socket else { return };
    for (name, count, evidence) in [
        (drop::CHECKSUM, socket.checksum, "Udp InCsumErrors"),
        (drop::UDP_MEMORY, socket.memory, "Udp MemErrors"),
        (drop::SOCKET_FILTER, socket.refused, "Udp InErrors without another name"),
    ] {
        gap.claim(name, count, DropSource::Counter, evidence);
    }
    gap.left = gap.left.saturating_add(gap.open().min(socket.room));
}

/// Through the socket's queue.
pub const SOCKET: Station = Station {
    on: &[Spot::Turn, Spot::End],
    when: |_, at| at.socket.is_some(),
    left: |_, at, _| Ok(Left::exactly(at.socket.as_ref().map_or(0, |socket| socket.reads), 0)),
    claims: &[Claim::By(&[drop::SOCKET_BUFFER_FULL, drop::AFTER_END], |_, gap, at| {
        let Some(socket) = &at.socket else { return };
        gap.prove(drop::SOCKET_BUFFER_FULL, socket.full, &socket.evidence);
        gap.prove(drop::AFTER_END, socket.late, "the socket counted them when its reader had ended");
        gap.queued = i64::try_from(gap.open().min(socket.room)).unwrap_or(0);
    })],
    counts: Counts::Messages,
    strangers: |at| at.strangers(),
    witness: &[drop::UDP_MEMORY, drop::SOCKET_FILTER, drop::SOCKET_BUFFER_FULL],
    says: [
        "from UDP (from ICMP for ping)",
        "reads (`Udp.InDatagrams` counts reads)",
        "`after_end`: dropped when its reader had ended; `queued` is what is still in it",
    ],
    ..Station::new(StationKind::Socket, "socket", Place::Node)
};

/// The kernel answers an echo.
pub const ICMP_ECHO: Station = Station {
    on: &[Spot::Turn],
    when: |book, _| is_ping(book.input.spec),
    left: |book, at, _| {
        if let Some(answers) = at.counted {
            return Ok(Left::exactly(answers, 0));
        }
        let (v4, v6) = ("Icmp.OutEchoReps", "Ip6.Icmp6OutEchoReplies");
        let why = || format!("the ICMP counters of {} are not in both snapshots", at.node);
        let replies = book.protocol(at.node, v4, v6).ok_or_else(why)?;
        Ok(Left::exactly(replies, book.protocol_background(at.node, v4, v6)))
    },
    claims: &[
        Claim::Counter("Icmp.OutRateLimitGlobal", "Ip6.Icmp6OutRateLimitHost", drop::ICMP_RATE_LIMIT),
        Claim::Counter("Icmp.OutRateLimitHost", "", drop::ICMP_RATE_LIMIT),
        Claim::Filter(&["output", "postrouting"], IP_AND_INET),
    ],
    witness: &[drop::FILTER, drop::NO_ROUTE],
    counts: Counts::Messages,
    says: ["echo requests", "`OutEchoReps`", "(ping: the kernel turns round)"],
    ..Station::new(StationKind::IcmpEcho, "icmp echo", Place::Node)
};

/// The application answers a request.
pub const APP_REPLY: Station = Station {
    on: &[Spot::Turn],
    when: |book, _| !is_ping(book.input.spec),
    left: |_, at, _| Ok(Left::exactly(at.end.responses, 0)),
    claims: &[
        Claim::By(&[drop::FOREIGN, drop::DAMAGED], not_of_test),
        Claim::By(&[drop::SEND], refused_calls),
    ],
    counts: Counts::Own,
    says: ["reads", "responses sent", "(udp-rr: the receiver turns round)"],
    ..Station::new(StationKind::AppReply, "app reply", Place::Node)
};

/// What the last application got.
pub const APP_RECEIVE: Station = Station {
    on: &[Spot::End],
    left: |_, at, _| Ok(Left::exactly(at.end.unique, 0)),
    claims: &[
        Claim::By(&[drop::DUPLICATE], |_, gap, at| {
            gap.claim(drop::DUPLICATE, at.end.duplicates, DropSource::Counter, "read more than once");
        }),
        Claim::By(&[drop::FOREIGN, drop::DAMAGED], not_of_test),
    ],
    counts: Counts::Own,
    says: ["reads", "different messages of the test", ""],
    ..Station::new(StationKind::AppReceive, "app receive", Place::Node)
};
