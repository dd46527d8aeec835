//! Through a program that counts for itself and has no rules: in by one port, out by the other.
//!
//! **What.** Two stations where `pathlab null` told its counters before and after the test. What came in is
//! what its receiver counted, what left is what the interface behind it was offered; between them nothing can
//! hide, because every frame that was received is sent, or finds no room, or is in hand when the other port
//! fails, or is refused with a reason.
//!
//! **Why the names are the ports' own.** A port names a loss by place and reason, the same for captures,
//! senders and here. What the kernel refused behind a port keeps the name that it has everywhere.
//!
//! **Price.** Ports count frames, not datagrams: a drop of super-frames takes as much of the gap as they can
//! have held.

use super::book::Readings;
use super::forward;
use super::gap::{Gap, Left};
use super::sockets::packet_sockets;
use super::station::{Claim, IN_A_PROGRAM, OUT_OF_A_PROGRAM, Station};
use super::switch;
use super::unit::Seen;
use super::visit::{Place, Spot, Visit};
use super::window::difference;
use record::delta::sum;
use record::snapshot::DirectionSample;
use record::unit::{count, many};
use record::{DropSource, NodeRole, PlaceDrop, StationKind, drop};

/// What a program counted of a test.
struct Way<'a> {
    before: &'a DirectionSample,
    after: &'a DirectionSample,
    received: Seen,
}

/// The way from the interface that the path enters by to the one that it leaves by; none when nobody was
/// asked or the way is not known.
fn way<'a>(book: &Readings<'a>, at: &Visit) -> Option<Way<'a>> {
    let (before, after) = book.test.node(at.node)?;
    let find = |ways: &'a [DirectionSample]| {
        ways.iter().find(|way| Some(&*way.from) == at.ingress && Some(&*way.to) == at.egress)
    };
    let (before, after) = (find(&before.ways)?, find(&after.ways)?);
    let frames = difference(before.received, after.received)?;
    let received = book.unit.seen(frames, difference(before.received_bytes, after.received_bytes))?;
    Some(Way { before, after, received })
}

fn is_known(book: &Readings, at: &Visit) -> bool {
    !switch::is_known(book, at) && way(book, at).is_some()
}

/// In by one port.
pub const IN: Station = Station {
    on: &[Spot::Hop(NodeRole::Forwarder)],
    when: is_known,
    left: |book, at, _| {
        let Seen { count, doubt } = way(book, at).ok_or("the program was not asked")?.received;
        Ok(Left::exactly(count, doubt).of_fragments(book.unit.fragments))
    },
    claims: &[
        Claim::By(&[drop::RING_FULL, drop::SOCKET_BUFFER_FULL, drop::PORT], |book, gap, at| {
            let Some(Way { before, after, .. }) = way(book, at) else { return };
            port_losses(book, gap, at.ingress, &before.lost_before, &after.lost_before);
            let told = told_of_sockets(&before.lost_before, &after.lost_before);
            packet_sockets(book, gap, at, told);
        }),
        Claim::Down(Place::Ingress),
    ],
    shares: true,
    witness: IN_A_PROGRAM,
    says: [
        "from the link before",
        "frames that `pathlab null` received at its port",
        "The port's own counters: `PLACE_NAME`",
    ],
    ..Station::new(StationKind::Program, "program in", Place::Ingress)
};

/// Out by the other.
pub const OUT: Station = Station {
    on: &[Spot::Hop(NodeRole::Forwarder)],
    when: is_known,
    left: forward::offered,
    claims: &[
        Claim::Filter(&["egress"], &["netdev"]),
        Claim::By(
            &[
                drop::TRANSMITTER_FULL,
                drop::TRANSMITTER_FAILED,
                drop::PORT_OVERSIZE,
                drop::PORT,
                drop::QDISC_FULL,
                drop::DRIVER_BUSY,
                drop::DRIVER_DROPPED,
            ],
            not_sent,
        ),
        Claim::Ports(&[Place::Egress]),
    ],
    witness: OUT_OF_A_PROGRAM,
    says: [
        "what it received",
        "offered at the egress interface",
        "`transmitter_full`: the other port had no room. `transmitter_failed`: frames in hand when it failed; `link_down` where \
         the link went. `port_oversize` and other refusals of the port (`port_NAME`). The kernel's refusals, where no interface \
         counted them",
    ],
    ..Station::new(StationKind::Program, "program out", Place::Egress)
};

fn not_sent(book: &mut Readings, gap: &mut Gap, at: &Visit) {
    let Some(Way { before, after, .. }) = way(book, at) else { return };
    // A transmitter fails when its link goes down, and then says so once.
    let is_down = book.trouble(at, Place::Egress).is_some();
    let failed = if is_down { drop::LINK_DOWN } else { drop::TRANSMITTER_FAILED };
    for (name, frames, what) in [
        (drop::TRANSMITTER_FULL, difference(before.full, after.full), "found no room in"),
        (failed, difference(before.failed, after.failed), "were in hand for"),
    ] {
        let frames = frames.unwrap_or(0);
        let evidence = format!("{} {what} the port {}", many(frames, "frame"), before.to);
        gap.claim(name, book.unit.at_most(frames), DropSource::Counter, evidence);
    }
    port_losses(book, gap, at.egress, &before.lost_after, &after.lost_after);
}

/// Through a program whose counters could not be read.
pub const THROUGH: Station = Station {
    on: &[Spot::Hop(NodeRole::Forwarder)],
    when: |book, at| !switch::is_known(book, at) && !is_known(book, at),
    needs: (&[Place::Ingress, Place::Egress], "the interfaces of the program are not known"),
    left: forward::offered,
    claims: &[
        Claim::Filter(&["egress"], &["netdev"]),
        Claim::By(&[drop::SOCKET_BUFFER_FULL], |book, gap, at| packet_sockets(book, gap, at, 0)),
        Claim::Ports(&[Place::Ingress, Place::Egress]),
    ],
    witness: OUT_OF_A_PROGRAM,
    says: [
        "from the link before",
        "offered at the egress interface (a forwarder whose counters could not be read)",
        "`socket_buffer_full`: [below](#packet-sockets). What else it dropped itself is its residual",
    ],
    ..Station::new(StationKind::Program, "program", Place::Node)
};

/// Gives the losses that a port named to the gap, as far as it needs them.
fn port_losses(
    book: &Readings,
    gap: &mut Gap,
    interface: Option<&str>,
    before: &[PlaceDrop],
    after: &[PlaceDrop],
) {
    let interface = interface.unwrap_or_default();
    for now in after {
        let then = before.iter().find(|then| then.place == now.place && then.name == now.name);
        let Some(frames) = difference(then.map_or(0, |then| then.count), now.count) else { continue };
        let evidence = format!("the port {interface} counted {} {} {}", count(frames), now.place, now.name);
        gap.claim(&name(now), book.unit.at_most(frames), DropSource::Counter, evidence);
    }
}

/// Buffers that did not fit into the sockets of a port, as the port says.
fn told_of_sockets(before: &[PlaceDrop], after: &[PlaceDrop]) -> u64 {
    let of_sockets =
        |drops: &[PlaceDrop]| sum(drops.iter().filter(|drop| drop.place == "socket").map(|drop| drop.count));
    difference(of_sockets(before), of_sockets(after)).unwrap_or(0)
}

/// What the kernel refused has its own name; everything else is known by its place: `port_oversize`,
/// `ring_full`.
fn name(drop: &PlaceDrop) -> String {
    match drop.place == "kernel" || drop.name == drop::LINK_DOWN {
        true => drop.name.clone(),
        false => drop.at_station(),
    }
}
