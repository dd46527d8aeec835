//! Through a switch that counts for itself: into a port, through its tables, out of a port.
//!
//! **What.** Three stations where an OpenFlow switch was asked (port, table and rule counters before and
//! after the test). Our switch counts the segments of super-frames, with the headers of each; Open vSwitch
//! counts super-frames. Bytes tell datagrams from either, as everywhere.
//!
//! **Where a port counts.** A switch that takes its frames by a packet socket may count what it read (ours
//! does), or tell what the interface counted (Open vSwitch does), which is more by what the socket dropped.
//! The counters themselves say which ([`counts_before_socket`]); in both cases what the socket dropped is
//! `socket_buffer_full` of `switch in`.
//!
//! **Price.** Table counters know no direction: what the way there does not need of them is left for the way
//! back.

use super::book::Readings;
use super::forward;
use super::gap::{Gap, Left};
use super::sockets::{at_sockets, packet_sockets};
use super::station::{Claim, IN_A_PROGRAM, OUT_OF_A_PROGRAM, Station};
use super::unit::Seen;
use super::visit::{Place, Spot, Visit};
use super::window::{MOST, difference};
use record::snapshot::{SwitchDropSample, SwitchPortSample, SwitchSample};
use record::unit::{count, many};
use record::{DropSource, NodeRole, StationKind, drop};

/// What a switch counted of a test.
struct Switch<'a> {
    before: &'a SwitchSample,
    after: &'a SwitchSample,
    /// The port that frames come in by, and the one that they leave by.
    ingress: Port,
    egress: Port,
}

/// What moved at a port: datagrams in, datagrams out, frames dropped on the way in and on the way out.
struct Port {
    /// Frames in, as they were counted.
    frames: u64,
    received: Seen,
    sent: Seen,
    dropped_in: u64,
    dropped_out: u64,
    /// By reason, where the switch tells it; what the port did not receive or send is not in the two above.
    reasons: Vec<(String, u64)>,
}

impl Port {
    /// Frames that ended for this reason.
    fn ended(&self, reason: &str) -> u64 {
        of_reason(&self.reasons, reason)
    }
}

fn of_reason(reasons: &[(String, u64)], reason: &str) -> u64 {
    reasons.iter().find(|(name, _)| name == reason).map_or(0, |(_, frames)| *frames)
}

/// What of a port's frames ended in the pipeline meanwhile, by reason.
fn ended(before: &SwitchSample, after: &SwitchSample, port: u32) -> Vec<(String, u64)> {
    let of = |sample: &'_ SwitchSample, reason: &str| {
        let mut rows = sample.drops.iter().flatten();
        rows.find(|row| row.port == port && row.reason == reason).map_or(0, |row| row.frames)
    };
    let rows = after.drops.iter().flatten().filter(|row| row.port == port);
    let moved =
        |row: &SwitchDropSample| Some((row.reason.clone(), difference(of(before, &row.reason), row.frames)?));
    rows.filter_map(moved).collect()
}

/// None when the switch was not asked, or does not know the ports.
fn switch<'a>(book: &Readings<'a>, at: &Visit) -> Option<Switch<'a>> {
    let (before, after) = book.test.node(at.node)?;
    let (before, after) = (before.switch.as_ref()?, after.switch.as_ref()?);
    let samples = (before, after);
    let port = |interface: &str| {
        let find = |sample: &'a SwitchSample| sample.ports.iter().find(|port| port.interface == interface);
        let (before, after) = (find(before)?, find(after)?);
        let moved = |pick: fn(&SwitchPortSample) -> u64| difference(pick(before), pick(after));
        let reasons = ended(samples.0, samples.1, after.port);
        let (closed_in, closed_out) = (of_reason(&reasons, "not_received"), of_reason(&reasons, "not_sent"));
        Some(Port {
            frames: moved(|p| p.rx_frames)?,
            received: book.unit.seen(moved(|p| p.rx_frames)?, moved(|p| p.rx_bytes))?,
            sent: book.unit.seen(moved(|p| p.tx_frames)?, moved(|p| p.tx_bytes))?,
            dropped_in: moved(|p| p.rx_dropped)?.saturating_sub(closed_in),
            dropped_out: moved(|p| p.tx_dropped)?.saturating_sub(closed_out),
            reasons,
        })
    };
    Some(Switch { before, after, ingress: port(at.ingress?)?, egress: port(at.egress?)? })
}

/// True where a switch tells what it did with the frames.
pub fn is_known(book: &Readings, at: &Visit) -> bool {
    switch(book, at).is_some()
}

const NOT_ASKED: &str = "the switch was not asked";

/// Into the switch.
pub const IN: Station = Station {
    on: &[Spot::Hop(NodeRole::Forwarder)],
    when: is_known,
    left: |book, at, _| {
        let switch = switch(book, at).ok_or(NOT_ASKED)?;
        let lost = lost_behind_port(book, at, &switch).unwrap_or(0);
        let Seen { count, doubt } = switch.ingress.received;
        Ok(Left::exactly(count.saturating_sub(lost), doubt).of_fragments(book.unit.fragments))
    },
    claims: &[Claim::By(
        &[drop::PORT_NOT_RECEIVING, drop::SWITCH_PORT_FULL, drop::SOCKET_BUFFER_FULL],
        before_the_tables,
    )],
    shares: true,
    witness: IN_A_PROGRAM,
    says: [
        "from the link before",
        "frames that came in by the port of an OpenFlow switch (port counters), less what its packet socket dropped where the \
         port counts before it",
        "`port_not_receiving`: [below](#what-our-switch-tells). The others are the port's `rx_dropped`, and [this](#packet-sockets)",
    ],
    ..Station::new(StationKind::Program, "switch in", Place::Ingress)
};

/// Where the port's counter of received frames stands in front of the socket that dropped some of them, as
/// much is lost as the tables did not get. The counter is then that of the interface, else it is smaller by
/// what was dropped: none.
fn lost_behind_port(book: &Readings, at: &Visit, switch: &Switch) -> Option<u64> {
    let (dropped, waiting) = at_sockets(book, at);
    let by_interface = book.test.link_counter(at.node, at.ingress?, "rx_packets")?;
    let held = dropped.saturating_add(waiting);
    let kept_back = book.unit.at_most(dropped).saturating_add(waiting);
    let Switch { ingress, egress, .. } = switch;
    let missing = ingress.received.count.saturating_sub(given_away(book, egress));
    let is_before_socket = held > 0 && ingress.frames.saturating_add(held / 2) > by_interface;
    is_before_socket.then_some(missing.min(kept_back))
}

fn before_the_tables(book: &mut Readings, gap: &mut Gap, at: &Visit) {
    let Some(switch) = switch(book, at) else { return };
    let dropped_in = switch.ingress.dropped_in;
    of_port(book, gap, at.ingress, &switch.ingress, "not_received", drop::PORT_NOT_RECEIVING);
    let counts_before_socket = lost_behind_port(book, at, &switch).is_some();
    if counts_before_socket {
        packet_sockets(book, gap, at, 0);
    }
    port_full(book, gap, at.ingress, dropped_in, "in");
    if !counts_before_socket {
        packet_sockets(book, gap, at, dropped_in);
    }
}

fn port_full(book: &Readings, gap: &mut Gap, port: Option<&str>, dropped: u64, way: &str) {
    let evidence =
        format!("the switch's port {} dropped {dropped} on the way {way}", port.unwrap_or_default());
    gap.claim(drop::SWITCH_PORT_FULL, book.unit.at_most(dropped), DropSource::Counter, evidence);
}

/// What the tables gave to the port that leads on, at the most.
fn given_away(book: &Readings, port: &Port) -> u64 {
    port.sent.count.saturating_add(book.unit.at_most(port.dropped_out)).min(MOST)
}

/// Through its tables.
pub const TABLES: Station = Station {
    on: &[Spot::Hop(NodeRole::Forwarder)],
    when: is_known,
    left: |book, at, _| {
        let port = switch(book, at).ok_or(NOT_ASKED)?.egress;
        let most = given_away(book, &port);
        let least = port.sent.count.saturating_add(port.dropped_out).min(most);
        Ok(Left::between(least, most, port.sent.doubt).of_fragments(book.unit.fragments))
    },
    claims: &[
        Claim::By(&[drop::TABLE_MISS], missed),
        Claim::By(
            &[
                drop::TTL_EXPIRED,
                drop::TO_IN_PORT,
                drop::PORT_MISSING,
                drop::PORT_CLOSED,
                drop::FRAGMENTS_REFUSED,
                drop::NOT_BRIDGED,
                drop::NO_LIVE_BUCKET,
            ],
            told,
        ),
        Claim::By(&[drop::METER, drop::RULE_DROPS], by_rules),
        Claim::By(&[drop::PACKET_IN_DROPPED, drop::TO_CONTROLLER], to_controller),
    ],
    shares: true,
    witness: IN_A_PROGRAM,
    says: [
        "from its port",
        "frames that left or should have left by the port to the next node",
        "`table_miss`: lookups less matches of a table. `ttl_expired` to `no_live_bucket`: [what our switch \
         tells](#what-our-switch-tells). `meter`: counters of bands that drop. `rule_drops`: counters of rules without \
         an output, a group and a next table. `packet_in_dropped`: of those for the controller, the ones that the switch says it \
         dropped. `to_controller`: counters of the rules and of the groups' buckets that send there, without these",
    ],
    ..Station::new(StationKind::Program, "switch tables", Place::Node)
};

fn missed(book: &mut Readings, gap: &mut Gap, at: &Visit) {
    let Some(Switch { before, after, .. }) = switch(book, at) else { return };
    for (table, missed) in misses(before, after) {
        let evidence =
            format!("{} matched no rule of table {table}, which drops them", many(missed, "frame"));
        book.give(gap, &format!("table {table}"), missed, drop::TABLE_MISS, evidence);
    }
}

/// Reasons of frames that came in by a port, and the names of the drops.
const OF_CAME: [(&str, &str); 6] = [
    ("invalid_ttl", drop::TTL_EXPIRED),
    ("in_port", drop::TO_IN_PORT),
    ("no_port", drop::PORT_MISSING),
    ("fragment", drop::FRAGMENTS_REFUSED),
    ("bridge", drop::NOT_BRIDGED),
    ("no_bucket", drop::NO_LIVE_BUCKET),
];

/// What the switch itself tells of frames that ended, where it does: those that came in by the port on the way, and those that should have
/// left by the next one.
fn told(book: &mut Readings, gap: &mut Gap, at: &Visit) {
    let Some(Switch { ingress, egress, .. }) = switch(book, at) else { return };
    for (reason, name) in OF_CAME {
        of_port(book, gap, at.ingress, &ingress, reason, name);
    }
    of_port(book, gap, at.egress, &egress, "not_sent", drop::PORT_CLOSED);
}

fn of_port(
    book: &mut Readings,
    gap: &mut Gap,
    interface: Option<&str>,
    port: &Port,
    reason: &str,
    name: &str,
) {
    let (frames, interface) = (port.ended(reason), interface.unwrap_or_default());
    let evidence =
        format!("the switch counted {} of its port {interface} as {reason}", many(frames, "frame"));
    book.give(gap, &format!("{interface} {reason}"), frames, name, evidence);
}

/// What rules say that they drop, by a meter or because they lead nowhere.
fn by_rules(book: &mut Readings, gap: &mut Gap, at: &Visit) {
    let Some(Switch { before, after, .. }) = switch(book, at) else { return };
    let moved = |pick: fn(&SwitchSample) -> u64| difference(pick(before), pick(after)).unwrap_or(0);
    let metered = moved(|sample| sample.metered);
    let evidence = format!("bands of meters that drop counted {}", many(metered, "frame"));
    book.give(gap, "meters", metered, drop::METER, evidence);
    let nowhere = moved(|sample| sample.led_nowhere);
    let evidence = format!("rules without an output counted {}", many(nowhere, "frame"));
    book.give(gap, "rules without an output", nowhere, drop::RULE_DROPS, evidence);
}

fn to_controller(book: &mut Readings, gap: &mut Gap, at: &Visit) {
    let Some(Switch { before, after, .. }) = switch(book, at) else { return };
    let told = before.packet_ins_dropped.zip(after.packet_ins_dropped);
    let mut dropped = told.and_then(|(before, after)| difference(before, after)).unwrap_or(0);
    for (who, before, after) in [
        ("rules", before.to_controller, after.to_controller),
        ("buckets", before.buckets_to_controller, after.buckets_to_controller),
    ] {
        let all = difference(before, after).unwrap_or(0);
        let lost = dropped.min(all);
        dropped -= lost;
        let evidence = format!(
            "{} of {} packet-ins of {who} found no room: the controllers read too slowly, or a rate is set",
            count(lost),
            count(all)
        );
        book.give(gap, &format!("{who}, dropped"), lost, drop::PACKET_IN_DROPPED, evidence);
        let evidence = format!("{who} that send to the controller counted {}", many(all, "frame"));
        book.give(gap, who, all - lost, drop::TO_CONTROLLER, evidence);
    }
}

/// Out of the switch.
pub const OUT: Station = Station {
    on: &[Spot::Hop(NodeRole::Forwarder)],
    when: is_known,
    left: forward::offered,
    claims: &[
        Claim::Filter(&["egress"], &["netdev"]),
        Claim::By(&[drop::SWITCH_PORT_FULL], |book, gap, at| {
            let dropped = switch(book, at).map_or(0, |switch| switch.egress.dropped_out);
            port_full(book, gap, at.egress, dropped, "out");
        }),
    ],
    witness: OUT_OF_A_PROGRAM,
    says: ["from the tables", "offered at the egress interface", "The port's `tx_dropped`"],
    ..Station::new(StationKind::Program, "switch out", Place::Egress)
};

/// Tables that looked frames up in vain, and how many.
pub fn misses(before: &SwitchSample, after: &SwitchSample) -> Vec<(u8, u64)> {
    let moved = after.tables.iter().filter_map(|now| {
        let then = before.tables.iter().find(|then| then.table == now.table)?;
        let looked_up = difference(then.lookups, now.lookups)?;
        let missed = looked_up.checked_sub(difference(then.matched, now.matched)?)?;
        Some((now.table, missed)).filter(|(_, missed)| *missed > 0)
    });
    moved.collect()
}
