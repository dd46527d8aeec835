//! Stations of raw frames: into the port of the sender, out of the port of the receiver.
//!
//! **The first.** A packet socket hands a frame to the queueing discipline (or, past it, to the driver)
//! *inside* the send call, and the call fails with `ENOBUFS` when the frame was dropped there, whatever
//! dropped it. Such a frame has left the application: the queueing discipline or the device counts it, and
//! names it. All other refusals are the port's own.
//!
//! **Between**, when the two ends were two commands in two places: all that is not known is one station, from
//! the one interface's `tx_packets` to the other's `rx_packets`.
//!
//! **The last.** The path ends where the port takes the frame from the interface. What the receiving host
//! then does with the copy that it also sees is no part of it.

use super::book::Readings;
use super::chain::Chain;
use super::forward::{self, RX_DROPPED};
use super::gap::{Gap, Left};
use super::sockets::waiting;
use super::station::{Claim, Counts, Station, suspicious};
use super::visit::{Place, Spot, Visit};
use super::window::MOST;
use record::delta::sum;
use record::unit::count;
use record::{DropSource, NodeRole, PortKind, StationKind, drop};

/// From what the application tried to send to what it handed to the kernel, which also counts what it dropped
/// behind the send call ([`record::drop::is_counted_below`]).
pub const APP_SEND: Station = Station {
    on: &[Spot::Start],
    when: |book, _| book.input.spec.kind.is_by_port(),
    left: |_, at, _| {
        let behind = at.end.port_drops.iter().filter(|drop| drop.is_counted_below());
        let accepted = sum(behind.map(|drop| drop.count).chain([at.end.sent]));
        Ok(Left::exactly(accepted, 0))
    },
    claims: &[Claim::By(&[drop::SEND], |_, gap, at| {
        gap.made = at.end.made.min(MOST);
        for drop in at.end.port_drops.iter().filter(|drop| !drop.is_counted_below()) {
            let evidence = format!("{} refused with {}", at.end.settings.port, drop.name);
            gap.claim(&drop::send(&drop.name), drop.count, DropSource::Counter, evidence);
        }
    })],
    counts: Counts::Own,
    says: [
        "frames that were tried",
        "what the port accepted, and what the kernel dropped behind the call (`ENOBUFS`, `EBUSY`): the next stations name it",
        "The port's own refusals, e.g. `send_oversize`, `send_link_down`. The copies that a `fault:` port makes are made here",
    ],
    ..Station::new(StationKind::AppSend, "app send", Place::Node)
};

/// From the port to the queueing discipline, or to the device when the port passes it by.
pub const PORT: Station = Station {
    on: &[Spot::Hop(NodeRole::Sender)],
    when: |book, _| book.input.spec.kind.is_by_port(),
    left: forward::offered,
    claims: &[
        Claim::Filter(&["egress"], &["netdev"]),
        // What the kernel refused and no interface counted: the driver was only busy.
        Claim::By(&[drop::QDISC_FULL, drop::DRIVER_BUSY, drop::DRIVER_DROPPED], |book, gap, _| {
            let sender = book.input.sender;
            for drop in sender.port_drops.iter().filter(|drop| drop.is_counted_below()) {
                let evidence = format!("{} counted {}", sender.settings.port, count(drop.count));
                gap.claim(&drop.name, drop.count, DropSource::Counter, evidence);
            }
        }),
        Claim::Down(Place::Egress),
    ],
    witness: &[drop::LINK_DOWN, drop::FILTER, drop::TC],
    says: [
        "accepted",
        "offered to the root qdisc, or to the device when there is none or the port bypasses it",
        "What the port itself saw dropped behind its call ([told twice](#told-twice)) counts as accepted and is named where \
         the kernel counted it, else here",
    ],
    ..Station::new(StationKind::Port, "port", Place::Egress)
};

/// Counters of frames that an interface lost before it counted them as received
/// (`include/uapi/linux/if_link.h`); their names are those of the drops. The last one may contain the others.
pub const NIC: [&str; 7] = [
    drop::RX_MISSED_ERRORS,
    drop::RX_OVER_ERRORS,
    drop::RX_FIFO_ERRORS,
    drop::RX_CRC_ERRORS,
    drop::RX_FRAME_ERRORS,
    drop::RX_LENGTH_ERRORS,
    drop::RX_ERRORS,
];

/// From the sender's interface to the receiver's, when nobody knows what is between: one station, whose loss
/// nothing names but the receiving interface.
pub const PATH_TO: Station = Station {
    on: &[Spot::Hop(NodeRole::Receiver)],
    when: |book, _| book.input.arrival.is_some(),
    left: |book, _, _| {
        let arrival = book.input.arrival.ok_or("nobody took the frames")?;
        let (least, most) = arrival.arrived.clone()?;
        Ok(Left::between(least, most, arrival.doubt))
    },
    claims: &[
        Claim::By(&NIC, |book, gap, at| {
            let Some(ingress) = at.ingress else { return };
            NIC.iter().for_each(|name| book.draw_link(gap, ingress, name, name));
        }),
        Claim::Down(Place::Ingress),
    ],
    says: [
        "`tx_packets` of the sending interface",
        "`rx_packets` of the receiving interface less the frames that its capture saw to be others'; only where two halves are \
         joined ([below](#two-halves))",
        "The interface lost them before it counted them",
    ],
    ..Station::new(StationKind::Between, "path to", Place::Ingress)
};

/// From the last link to what was read from the port.
pub const TAP: Station = Station {
    on: &[Spot::Hop(NodeRole::Receiver)],
    when: |book, _| book.input.spec.kind.is_by_port(),
    left: |book, at, _| {
        Ok(Left::exactly(at.end.read(), book.input.arrival.map_or(0, |arrival| arrival.doubt)))
    },
    claims: &[
        Claim::By(&[drop::RING_FULL, drop::SOCKET_BUFFER_FULL, drop::PORT], |_, gap, at| {
            for drop in &at.end.port_drops {
                let evidence = format!("{} counted {}", at.end.settings.port, count(drop.count));
                gap.prove(&drop.at_station(), drop.count, evidence);
            }
        }),
        Claim::By(&[drop::AFTER_END], after_end),
        Claim::By(&[], elsewhere),
        Claim::When(suspicious, &[RX_DROPPED]),
    ],
    strangers: |at| at.strangers(),
    witness: &[drop::FILTER, drop::TC, drop::RX_DROPPED],
    says: [
        "from the last link",
        "what was read from the port",
        "The port's own counter: `PLACE_NAME` of its drops. `after_end`: came when the receiver or a capture by hand was over",
    ],
    ..Station::new(StationKind::Tap, "tap", Place::Ingress)
};

/// What came to the port of an end that had told its counters already: a capture by hand saw it, else the
/// kernel still counts at its socket.
fn after_end(book: &mut Readings, gap: &mut Gap, at: &Visit) {
    if let Some(arrival) = book.input.arrival {
        gap.claim(drop::AFTER_END, arrival.after, DropSource::Counter, "came when the capture was over");
        return;
    }
    let ingress = at.ingress.unwrap_or_default();
    let told = at.end.port_drops.iter().filter(|drop| drop.place == "socket");
    let told = sum(told.map(|drop| drop.count));
    let sockets = book.test.packet_sockets(at.node, ingress, |owner| owner == "receiver");
    let in_all = sum(sockets.iter().map(|(_, drops)| *drops));
    let late = in_all.saturating_sub(told).min(MOST);
    let evidence = "the socket counted them when its reader had ended";
    gap.claim(drop::AFTER_END, late, DropSource::Counter, evidence);
    gap.queued = i64::try_from(gap.open().min(waiting(book, &sockets))).unwrap_or(0);
}

/// Says where the port listens when all came in by another interface: a host with several, whose routes do not lead to the one that has the
/// address.
fn elsewhere(book: &mut Readings, gap: &mut Gap, at: &Visit) {
    let Some(listens) = PortKind::interface_of(&at.end.settings.port) else { return };
    let Some(came) = at.ingress.filter(|came| *came != listens) else { return };
    if gap.open() > 0 && at.end.read() == 0 && at.bridge != Some(listens) {
        book.note(format!(
            "frames came in at {} by {came}, and the receiver's port listens at {listens}, which has the address: test to an \
             address of {came}, or change the route that leads by {came}",
            at.node
        ));
    }
}

/// Marks the stations whose drops the witness cannot confirm. At the tap the receiving host goes on with its
/// copy, so no buffer dies. And a frame from a transmit ring has its headers in the ring's pages, where the
/// witness does not look; the first router moves them to the buffer.
pub fn mark_unseen(chain: &mut Chain, book: &mut Readings) {
    let mut in_pages = PortKind::of(&book.input.sender.settings.port).is_some_and(|kind| kind.in_pages);
    let mut unconfirmed = 0;
    for draft in &mut chain.stations {
        in_pages &= draft.station.kind != StationKind::IpForward;
        let own = matches!(draft.station.kind, StationKind::AppSend | StationKind::AppReceive);
        draft.unseen |= draft.station.kind == StationKind::Tap || (in_pages && !own);
        let drops = sum(draft.station.drops.iter().map(|drop| drop.count));
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
