//! Through a switch that counts for itself: into a port, through its tables, out of a port.
//!
//! **What.** Three stations where an OpenFlow switch was asked (port, table and rule counters before and after the test).
//! Our switch counts the segments of super-frames, with the headers of each; Open vSwitch counts super-frames. Bytes tell datagrams from
//! either, as everywhere.
//!
//! **Where a port counts.** A switch that takes its frames by a packet socket may count what it read (ours does), or tell what
//! the interface counted (Open vSwitch does), which is more by what the socket dropped. The counters themselves say
//! which ([`counts_before_socket`]); in both cases what the socket dropped is `socket_buffer_full` of `switch in`.
//!
//! **Price.** Table counters know no direction: what the way there does not need of them is left for the way back.

use super::book::Book;
use super::chain::{Chain, Range, at};
use super::forward;
use super::program;
use super::unit::Seen;
use super::window::{MOST, difference};
use record::snapshot::{SwitchPortSample, SwitchSample};
use record::{DropSource, Hop, StationKind, drop};

/// Both sides of a switch; none when it was not asked.
pub fn samples<'a>(book: &Book<'a>, node: &str) -> Option<(&'a SwitchSample, &'a SwitchSample)> {
    let (before, after) = book.test.node(node)?;
    Some((before.switch.as_ref()?, after.switch.as_ref()?))
}

/// What moved at a port: datagrams in, datagrams out, frames dropped on the way in and on the way out.
struct Port {
    /// Frames in, as they were counted.
    frames: u64,
    received: Seen,
    sent: Seen,
    dropped_in: u64,
    dropped_out: u64,
}

fn port(book: &Book, samples: (&SwitchSample, &SwitchSample), interface: &str) -> Option<Port> {
    let find =
        |sample: &'_ SwitchSample| sample.ports.iter().find(|port| port.interface == interface).cloned();
    let (before, after) = (find(samples.0)?, find(samples.1)?);
    let moved = |pick: fn(&SwitchPortSample) -> u64| difference(pick(&before), pick(&after));
    Some(Port {
        frames: moved(|p| p.rx_frames)?,
        received: book.unit.seen(moved(|p| p.rx_frames)?, moved(|p| p.rx_bytes))?,
        sent: book.unit.seen(moved(|p| p.tx_frames)?, moved(|p| p.tx_bytes))?,
        dropped_in: moved(|p| p.rx_dropped)?,
        dropped_out: moved(|p| p.tx_dropped)?,
    })
}

fn exactly(count: u64) -> Range {
    Range { least: count, most: count, pieces: 0 }
}

/// The three stations; false when the switch does not know the ports, and nothing was closed.
pub fn pass(chain: &mut Chain, book: &mut Book, hop: &Hop) -> bool {
    let node = hop.node.as_str();
    let Some((ingress, egress)) = hop.ingress.as_deref().zip(hop.egress.as_deref()) else { return false };
    let Some(both) = samples(book, node) else { return false };
    let Some((first, last)) = port(book, both, ingress).zip(port(book, both, egress)) else { return false };
    enter(chain, book, (node, ingress), &first, &last);
    tables(chain, book, node, both, &last);
    leave(chain, book, node, egress, &last);
    true
}

/// Into the switch. Where the port counts what its socket then dropped, as much of that is lost as the tables did not get.
fn enter(chain: &mut Chain, book: &mut Book, (node, ingress): (&str, &str), port: &Port, last: &Port) {
    let (dropped, waiting) = program::at_sockets(book, node, ingress);
    let kept_back = book.unit.at_most(dropped).saturating_add(waiting);
    let received = port.received.count;
    let before_socket =
        counts_before_socket(book, (node, ingress), port.frames, dropped.saturating_add(waiting));
    let lost = match before_socket {
        true => received.saturating_sub(given_away(book, last)).min(kept_back),
        false => 0,
    };
    let left = received.saturating_sub(lost);
    let name = at("switch in", ingress);
    let gap = chain.gap(StationKind::Program, node, name, left, port.received.doubt);
    let mut gap = gap.between(exactly(left), book.unit.fragments);
    if before_socket {
        program::packet_sockets(book, &mut gap, node, ingress, 0);
    }
    let dropped = book.unit.at_most(port.dropped_in);
    let evidence = format!("the switch's port {ingress} dropped {} on the way in", port.dropped_in);
    gap.claim(drop::SWITCH_PORT_FULL, dropped, DropSource::Counter, evidence);
    if !before_socket {
        program::packet_sockets(book, &mut gap, node, ingress, port.dropped_in);
    }
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

/// Whether a port's counter of received frames stands in front of the socket that dropped some of them: it is then that
/// of the interface, else it is smaller by what was dropped.
fn counts_before_socket(book: &Book, (node, ingress): (&str, &str), frames: u64, dropped: u64) -> bool {
    let by_interface = book.test.link_counter(node, ingress, "rx_packets");
    by_interface.is_some_and(|by_interface| dropped > 0 && frames.saturating_add(dropped / 2) > by_interface)
}

/// What the tables gave to the port that leads on, at the most.
fn given_away(book: &Book, port: &Port) -> u64 {
    port.sent.count.saturating_add(book.unit.at_most(port.dropped_out)).min(MOST)
}

fn tables(
    chain: &mut Chain,
    book: &mut Book,
    node: &str,
    (before, after): (&SwitchSample, &SwitchSample),
    port: &Port,
) {
    let offered = given_away(book, port);
    let gap = chain.gap(StationKind::Program, node, "switch tables", port.sent.count, port.sent.doubt);
    let range = Range {
        least: port.sent.count.saturating_add(port.dropped_out).min(offered),
        most: offered,
        pieces: 0,
    };
    let mut gap = gap.between(range, book.unit.fragments);
    let mut claim = |gap: &mut super::chain::Gap, name: &str, key: &str, delta: u64, evidence: String| {
        let rest = book.unit.at_most(book.shared.rest(node, key, delta));
        let given = gap.claim(name, rest, DropSource::Counter, evidence);
        book.shared.draw(node, key, given.div_ceil(book.unit.per_buffer));
    };
    for (table, missed) in misses(before, after) {
        let evidence = format!("{missed} frames matched no rule of table {table}, which drops them");
        claim(&mut gap, drop::TABLE_MISS, &format!("table {table}"), missed, evidence);
    }
    let to_controller = [
        ("rules", before.to_controller, after.to_controller),
        ("buckets", before.buckets_to_controller, after.buckets_to_controller),
    ];
    let told = before.packet_ins_dropped.zip(after.packet_ins_dropped);
    let mut dropped = told.and_then(|(before, after)| difference(before, after)).unwrap_or(0);
    for (who, before, after) in to_controller {
        let Some(count) = difference(before, after).filter(|&count| count > 0) else { continue };
        let lost = dropped.min(count);
        dropped -= lost;
        if lost > 0 {
            let evidence = format!(
                "{lost} of {count} packet-ins of {who} found no room: the controllers read too slowly, or a rate is set"
            );
            claim(&mut gap, drop::PACKET_IN_DROPPED, &format!("{who}, dropped"), lost, evidence);
        }
        if count > lost {
            let evidence = format!("{who} that send to the controller counted {count} frames");
            claim(&mut gap, drop::TO_CONTROLLER, who, count - lost, evidence);
        }
    }
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

fn leave(chain: &mut Chain, book: &mut Book, node: &str, egress: &str, port: &Port) {
    let name = at("switch out", egress);
    let (offered, doubt) = match forward::offered(book, chain.at, node, egress) {
        Ok(offered) => offered,
        Err(why) => return chain.unknown(StationKind::Program, node, name, why),
    };
    let doubt = doubt.saturating_add(forward::background(book, node, egress));
    let mut gap = chain
        .gap(StationKind::Program, node, name, offered.least, doubt)
        .between(offered, book.unit.fragments);
    let dropped = book.unit.at_most(port.dropped_out);
    let evidence = format!("the switch's port {egress} dropped {} on the way out", port.dropped_out);
    gap.claim(drop::SWITCH_PORT_FULL, dropped, DropSource::Counter, evidence);
    let others = book.others(gap.entered, gap.doubt);
    chain.close(gap, others);
}

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
