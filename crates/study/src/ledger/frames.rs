//! Stations of raw frames: into the port of the sender, out of the port of the receiver.
//!
//! **The first.** A packet socket hands a frame to the queueing discipline (or, past it, to the driver) *inside* the send
//! call, and the call fails with `ENOBUFS` when the frame was dropped there, whatever dropped it. Such a frame has left
//! the application: the queueing discipline or the device counts it, and names it. All other refusals are the port's own.
//!
//! **Between**, when the two ends were two commands in two places: all that is not known is one station, from the one
//! interface's `tx_packets` to the other's `rx_packets`.
//!
//! **The last.** The path ends where the port takes the frame from the interface. What the receiving host then does
//! with the copy that it also sees is no part of it.

use super::Arrival;
use super::book::Book;
use super::chain::{Chain, Gap, Range, at};
use super::ends;
use super::forward;
use super::window::MOST;
use record::{DropSource, Hop, PortKind, StationKind, drop};

/// From what the application tried to send to what it handed to the kernel, which also counts what it dropped behind the send
/// call ([`record::drop::is_counted_below`]).
pub fn app_send(chain: &mut Chain, book: &Book) {
    let sender = book.input.sender;
    let (behind, refused): (Vec<_>, Vec<_>) =
        sender.port_drops.iter().partition(|drop| drop.is_counted_below());
    let behind = behind.iter().fold(0u64, |sum, drop| sum.saturating_add(drop.count));
    let left = sender.sent.saturating_add(behind);
    let mut gap = chain.gap(StationKind::AppSend, &book.input.spec.from, "app send", left, 0);
    for drop in refused {
        let evidence = format!("{} refused with {}", sender.settings.port, drop.name);
        gap.claim(&drop::send(&drop.name), drop.count, DropSource::Counter, evidence);
    }
    chain.close_exact(gap);
}

/// From the port to the queueing discipline, or to the device when the port passes it by.
pub fn port_out(chain: &mut Chain, book: &mut Book, hop: &Hop) {
    let (node, place) = (hop.node.as_str(), StationKind::Port);
    let Some(interface) = hop.egress.as_deref() else {
        return chain.unknown(place, node, "port", "the interface to leave by is not known");
    };
    let name = at("port", interface);
    let qdisc = book.qdisc_on_path(hop);
    let (offered, doubt) = match forward::offered_to(book, chain.at, node, interface, qdisc) {
        Ok(offered) => offered,
        Err(why) => return chain.unknown(place, node, name, why),
    };
    let doubt = doubt.saturating_add(forward::background(book, node, interface));
    let mut gap = chain.gap(place, node, name, offered.least, doubt).between(offered, book.unit.fragments);
    book.blame_filter(&mut gap, node, &["egress"], &["netdev"]);
    // What the kernel refused and no interface counted: the driver was only busy.
    for drop in book.input.sender.port_drops.iter().filter(|drop| drop.is_counted_below()) {
        let evidence = format!("{} counted {}", book.input.sender.settings.port, drop.count);
        gap.claim(&drop.name, drop.count, DropSource::Counter, evidence);
    }
    let trouble = book.link(node, interface).and_then(|link| link.trouble());
    if let Some(trouble) = trouble.filter(|_| gap.suspicious() > 0) {
        gap.claim(drop::LINK_DOWN, MOST, DropSource::State, trouble);
    }
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

/// Counters of frames that an interface lost before it counted them as received (`include/uapi/linux/if_link.h`); their
/// names are those of the drops. The last one may contain the others.
pub const NIC: [&str; 7] = [
    drop::RX_MISSED_ERRORS,
    drop::RX_OVER_ERRORS,
    drop::RX_FIFO_ERRORS,
    drop::RX_CRC_ERRORS,
    drop::RX_FRAME_ERRORS,
    drop::RX_LENGTH_ERRORS,
    drop::RX_ERRORS,
];

/// From the sender's interface to the receiver's, when nobody knows what is between: one station, whose loss nothing
/// names but the receiving interface.
pub fn between(chain: &mut Chain, book: &mut Book, hop: &Hop, arrival: &Arrival) {
    let node = hop.node.as_str();
    let name = at("path to", hop.ingress.as_deref().unwrap_or("?"));
    let (least, most) = match &arrival.arrived {
        Ok(arrived) => *arrived,
        Err(why) => return chain.unknown(StationKind::Between, node, name, why),
    };
    let range = Range { least, most, pieces: 0 };
    let mut gap = chain.gap(StationKind::Between, node, name, least, arrival.doubt).between(range, 1);
    if let Some(ingress) = hop.ingress.as_deref() {
        for name in NIC {
            book.draw_link(&mut gap, node, ingress, name, name);
        }
        let trouble = book.link(node, ingress).and_then(|link| link.trouble());
        if let Some(trouble) = trouble.filter(|_| gap.suspicious() > 0) {
            gap.claim(drop::LINK_DOWN, MOST, DropSource::State, trouble);
        }
    }
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

/// From the last link to what was read from the port.
pub fn tap(chain: &mut Chain, book: &mut Book, hop: &Hop) {
    let node = hop.node.as_str();
    let name = at("tap", hop.ingress.as_deref().unwrap_or("?"));
    let end = book.input.receiver;
    let reads = end.received.saturating_add(end.foreign).min(MOST);
    let (doubt, after) = book.input.arrival.map_or((0, 0), |arrival| (arrival.doubt, arrival.after));
    let mut gap = chain.gap(StationKind::Tap, node, name, reads, doubt);
    for drop in &end.port_drops {
        gap.prove(&drop.at_station(), drop.count, format!("{} counted {}", end.settings.port, drop.count));
    }
    gap.claim(drop::AFTER_END, after, DropSource::Counter, "came when the capture was over");
    if book.input.arrival.is_none() {
        after_end(book, &mut gap, hop);
    }
    if let Some(ingress) = hop.ingress.as_deref().filter(|_| gap.suspicious() > 0) {
        book.draw_link(&mut gap, node, ingress, "rx_dropped", drop::RX_DROPPED);
    }
    let others = book.others(gap.entered, gap.doubt).saturating_add(end.foreign);
    chain.close(gap, others);
}

/// What came to the port of an end that had told its counters already: the kernel still counts at its socket.
fn after_end(book: &Book, gap: &mut Gap, hop: &Hop) {
    let ingress = hop.ingress.as_deref().unwrap_or_default();
    let told = book.input.receiver.port_drops.iter().filter(|drop| drop.place == "socket");
    let told = told.fold(0u64, |sum, drop| sum.saturating_add(drop.count));
    let sockets = book.test.packet_sockets(&hop.node, ingress, |owner| owner == "receiver");
    let in_all = sockets.iter().fold(0u64, |sum, (_, drops)| sum.saturating_add(*drops));
    let late = in_all.saturating_sub(told).min(MOST);
    gap.claim(
        drop::AFTER_END,
        late,
        DropSource::Counter,
        "the socket counted them when its reader had ended",
    );
    let waiting = |bytes: u64| ends::most_waiting(book, bytes);
    let room = sockets.iter().fold(0u64, |sum, (s, _)| sum.saturating_add(waiting(s.receive_queue_bytes)));
    gap.queued = i64::try_from(gap.open().min(room)).unwrap_or(0);
}

/// Marks the stations whose drops the witness cannot confirm. At the tap the receiving host goes on with its copy, so no
/// buffer dies. And a frame from a transmit ring has its headers in the ring's pages, where the witness does not look;
/// the first router moves them to the buffer.
pub fn mark_unseen(chain: &mut Chain, book: &mut Book) {
    let mut in_pages = PortKind::of(&book.input.sender.settings.port).is_some_and(|kind| kind.in_pages);
    let mut unconfirmed = 0;
    for draft in &mut chain.stations {
        in_pages &= draft.station.kind != StationKind::IpForward;
        let own = matches!(draft.station.kind, StationKind::AppSend | StationKind::AppReceive);
        draft.unseen |= draft.station.kind == StationKind::Tap || (in_pages && !own);
        let drops = draft.station.drops.iter().fold(0u64, |sum, drop| sum.saturating_add(drop.count));
        unconfirmed +=
            if draft.unseen && draft.station.kind != StationKind::Tap { drops.min(MOST) } else { 0 };
    }
    if unconfirmed > 0 {
        book.note(format!(
            "the witness cannot confirm {unconfirmed} drops in front of the first router: the headers of frames from a \
             transmit ring lie in the ring's pages, where it does not look"
        ));
    }
}
