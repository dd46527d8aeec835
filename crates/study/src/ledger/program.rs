//! Through a program that counts for itself and has no rules: in by one port, out by the other.
//!
//! **What.** Two stations where `pathlab null` told its counters before and after the test. What came in is what its receiver
//! counted, what left is what the interface behind it was offered; between them nothing can hide, because every frame
//! that was received is sent, or finds no room, or is in hand when the other port fails, or is refused with a reason.
//!
//! **Why the names are the ports' own.** A port names a loss by place and reason, the same for captures, senders and here.
//! What the kernel refused behind a port keeps the name that it has everywhere.
//!
//! **The kernel's count.** What did not fit into the packet sockets of a program the kernel counts at the socket, whatever
//! the program is and whether or not it tells ([`packet_sockets`]). A capture beside it has such sockets, too; what those
//! lose is no loss of the path.
//!
//! **Price.** Ports count frames, not datagrams: a drop of super-frames takes as much of the gap as they can have held.

use super::book::Book;
use super::chain::{Chain, Gap, Range, at};
use super::ends;
use super::forward;
use super::window::{MOST, difference};
use record::snapshot::{PacketSocketSample, WaySample};
use record::unit::count;
use record::{DropSource, Hop, PlaceDrop, StationKind, drop};

/// Both stations; false when nobody was asked or the way is not known, and nothing was closed.
pub fn pass(chain: &mut Chain, book: &mut Book, hop: &Hop) -> bool {
    let Some((before, after)) = both(book, hop) else { return false };
    let moved = |pick: fn(&WaySample) -> u64| difference(pick(before), pick(after));
    let received =
        moved(|way| way.received).and_then(|frames| book.unit.seen(frames, moved(|way| way.received_bytes)));
    let Some(received) = received else { return false };
    let node = hop.node.as_str();

    let name = at("program in", &before.from);
    let exactly = Range { least: received.count, most: received.count, pieces: 0 };
    let mut gap = chain
        .gap(StationKind::Program, node, name, received.count, received.doubt)
        .between(exactly, book.unit.fragments);
    claim(book, &mut gap, &before.from, (&before.lost_before, &after.lost_before));
    let told = told_of_sockets(&before.lost_before, &after.lost_before);
    packet_sockets(book, &mut gap, node, &before.from, told);
    let trouble = book.link(node, &before.from).and_then(|link| link.trouble());
    if let Some(trouble) = trouble.filter(|_| gap.suspicious() > 0) {
        gap.claim(drop::LINK_DOWN, MOST, DropSource::State, trouble);
    }
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);

    leave(chain, book, node, before, after);
    true
}

/// The way from the interface that the path enters by to the one that it leaves by.
fn both<'a>(book: &Book<'a>, hop: &Hop) -> Option<(&'a WaySample, &'a WaySample)> {
    let (ingress, egress) = (hop.ingress.as_deref()?, hop.egress.as_deref()?);
    let (before, after) = book.test.node(&hop.node)?;
    let find = |ways: &'a [WaySample]| ways.iter().find(|way| way.from == ingress && way.to == egress);
    Some((find(&before.ways)?, find(&after.ways)?))
}

fn leave(chain: &mut Chain, book: &mut Book, node: &str, before: &WaySample, after: &WaySample) {
    let egress = before.to.as_str();
    let name = at("program out", egress);
    let (offered, doubt) = match forward::offered(book, chain.at, node, egress) {
        Ok(offered) => offered,
        Err(why) => return chain.unknown(StationKind::Program, node, name, why),
    };
    let doubt = doubt.saturating_add(forward::background(book, node, egress));
    let mut gap = chain
        .gap(StationKind::Program, node, name, offered.least, doubt)
        .between(offered, book.unit.fragments);
    let down = book.link(node, egress).and_then(|link| link.trouble());
    let own = [
        (drop::TRANSMITTER_FULL, difference(before.full, after.full), "found no room in"),
        // A transmitter fails when its link goes down, and then says so once.
        (
            if down.is_some() { drop::LINK_DOWN } else { drop::TRANSMITTER_FAILED },
            difference(before.failed, after.failed),
            "were in hand for",
        ),
    ];
    for (name, frames, what) in own {
        let frames = frames.unwrap_or(0);
        let evidence = format!("{frames} frames {what} the port {egress}");
        gap.claim(name, book.unit.at_most(frames), DropSource::Counter, evidence);
    }
    claim(book, &mut gap, egress, (&before.lost_after, &after.lost_after));
    forward::blame_ports(book, &mut gap, node, [egress; 3]);
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

/// Gives the losses that a port named to the gap, as far as it needs them.
fn claim(book: &Book, gap: &mut Gap, interface: &str, (before, after): (&[PlaceDrop], &[PlaceDrop])) {
    for now in after {
        let then = before.iter().find(|then| then.place == now.place && then.name == now.name);
        let Some(frames) = difference(then.map_or(0, |then| then.count), now.count) else { continue };
        let evidence = format!("the port {interface} counted {frames} {} {}", now.place, now.name);
        gap.claim(&name(now), book.unit.at_most(frames), DropSource::Counter, evidence);
    }
}

/// Buffers that did not fit into the sockets of a port, as the port says.
fn told_of_sockets(before: &[PlaceDrop], after: &[PlaceDrop]) -> u64 {
    let of_sockets = |drops: &[PlaceDrop]| {
        let drops = drops.iter().filter(|drop| drop.place == "socket");
        drops.fold(0u64, |sum, drop| sum.saturating_add(drop.count))
    };
    difference(of_sockets(before), of_sockets(after)).unwrap_or(0)
}

/// Buffers that the kernel dropped at the packet sockets by which the programs of a node take frames from an interface, and
/// datagrams that may still wait there.
pub fn at_sockets(book: &Book, node: &str, interface: &str) -> (u64, u64) {
    let sockets = book.test.packet_sockets(node, interface, hands_on);
    let dropped = sockets.iter().fold(0u64, |sum, (_, drops)| sum.saturating_add(*drops));
    (dropped.min(MOST), waiting(book, &sockets))
}

fn waiting(book: &Book, sockets: &[(&PacketSocketSample, u64)]) -> u64 {
    let waiting = |socket: &PacketSocketSample| ends::most_waiting(book, socket.receive_queue_bytes);
    sockets.iter().fold(0u64, |sum, (socket, _)| sum.saturating_add(waiting(socket))).min(MOST)
}

/// Gives both to the gap, as far as it needs them; `told` of the drops have a name already, from the program itself.
pub fn packet_sockets(book: &mut Book, gap: &mut Gap, node: &str, interface: &str, mut told: u64) {
    let sockets = book.test.packet_sockets(node, interface, hands_on);
    let waiting = waiting(book, &sockets);
    for (socket, drops) in sockets {
        let twice = told.min(drops);
        told -= twice;
        let key = format!("packet socket {}", socket.inode);
        let rest = book.unit.at_most(book.shared.rest(node, &key, drops - twice));
        let evidence = format!(
            "the packet socket of {} on {interface} dropped {} with SO_RCVBUF {}",
            socket.owner,
            count(drops),
            count(socket.receive_buffer_bytes)
        );
        let given = gap.claim(drop::SOCKET_BUFFER_FULL, rest, DropSource::Counter, evidence);
        book.shared.draw(node, &key, given.div_ceil(book.unit.per_buffer));
    }
    gap.queued = i64::try_from(gap.surely_open().min(waiting)).unwrap_or(0);
}

/// The ends of the test have packet sockets of their own, and so have captures, which nobody knows.
fn hands_on(owner: &str) -> bool {
    !matches!(owner, "" | "sender" | "receiver")
}

/// What the kernel refused has its own name; everything else is known by its place: `port_oversize`, `ring_full`.
fn name(drop: &PlaceDrop) -> String {
    match drop.place == "kernel" || drop.name == drop::LINK_DOWN {
        true => drop.name.clone(),
        false => drop.at_station(),
    }
}
