//! Looks up counters for the stations: movement in the test, movement in the quiet window, and what is
//! shared.

use super::gap::{Gap, Left};
use super::pool::Pool;
use super::unit::{DISCOVERY, Discovery, Seen, Unit};
use super::visit::{Place, Spot, Visit};
use super::window::{LinkPair, MOST, Window, difference};
use super::{LedgerInput, by_family};
use crate::way::{self, Nodes, Section};
use record::delta::sum;
use record::snapshot::{FilterSample, QdiscSample};
use record::unit::{count, many};
use record::{DropSource, FlowObservation, Hop, NodeRole, drop};
use std::collections::BTreeMap;

/// Bytes beyond its MTU that a virtual link still takes, so that a VLAN tag fits (`__is_skb_forwardable`).
pub const VLAN_ROOM: u64 = 4;
/// A datagram of 64 KiB in the smallest fragments.
const MOST_FRAGMENTS: u64 = 8192;

/// All that the stations ask.
#[derive(Clone)]
pub struct Readings<'a> {
    pub input: &'a LedgerInput<'a>,
    pub test: Window<'a>,
    idle: Option<(Window<'a>, f64)>,
    /// What a datagram of this leg looks like.
    pub unit: Unit,
    pub shared: Shared,
    pub notes: Vec<String>,
    /// Datagrams of this leg that were put together at its end, when they travel in fragments: no station
    /// lost those.
    pub complete: u64,
    /// Fragments that were still there at the last station.
    pub pieces: u64,
    /// The flow itself was counted on this leg.
    pub counted: bool,
    /// What the witness saw of the flow and no station has claimed yet.
    pub pool: Pool<'a>,
    /// Frames that were still moving when the counters were read.
    pub unsettled: u64,
}

/// What a queueing discipline counted; drops and backlog in its own unit, be it a buffer or a segment.
pub struct Queue<'a> {
    pub sent: Seen,
    pub packets: u64,
    pub dropped: u64,
    /// How many of the dropped the queueing disciplines inside it had no room for.
    pub inside: u64,
    pub queued: i64,
    pub sample: &'a QdiscSample,
}

impl<'a> Readings<'a> {
    pub fn new(input: &'a LedgerInput<'a>) -> Self {
        let test = Window { before: input.before, after: input.after };
        let idle = input.idle.map(|(before, after)| {
            let window = Window { before, after };
            let scale = test.length_ns() as f64 / window.length_ns().max(1) as f64;
            (window, scale.clamp(0.0, 1e6))
        });
        let unit = Unit::forward(input.spec, input.sender, fragments(&test, input, "forward"));
        let unit = unit.beside(discovery(&test));
        let mut book = Readings {
            input,
            test,
            idle,
            unit,
            shared: Shared::default(),
            notes: vec![],
            complete: MOST,
            pieces: MOST,
            counted: false,
            pool: Pool::new(&input.witness),
            unsettled: unsettled(&test),
        };
        book.say_what_the_units_are();
        book
    }

    /// The way of a leg, where the flow itself was counted on all of it.
    pub fn sections(&self, leg: &str, from: &str, to: &str) -> Option<Vec<Section>> {
        let LedgerInput { spec, path, flow, .. } = *self.input;
        let flow = flow.filter(|flow| flow.absent.is_none() && flow.missing.is_empty())?;
        let is_asked = self.input.arrival.is_none();
        let (programs, emulated) = (way::programs(path), way::emulated(self.input.after));
        let nodes = Nodes { from, to, programs: &programs, emulated: &emulated };
        let mut sections = is_asked.then(|| way::sections(flow, leg, nodes)).flatten()?;
        if !way::are_seen(&sections, way::passed_by(spec, path)) {
            return None;
        }
        // Where no frame left, what was asked for says where they should have.
        let asked = if leg == "forward" { &path.forward } else { &path.back };
        for section in sections.iter_mut().filter(|section| !section.is_link && section.hop.egress.is_none())
        {
            let same = |hop: &&Hop| (&hop.node, &hop.bridge) == (&section.hop.node, &section.hop.bridge);
            section.hop.egress = asked.iter().find(same).and_then(|hop| hop.egress.clone());
        }
        (!sections.iter().any(|section| self.may_leave_uncounted(section))).then_some(sections)
    }

    /// No frame was counted out of a program, and its interface sent some: they may have left by a port that is not counted.
    fn may_leave_uncounted(&self, section: &Section) -> bool {
        let egress = section.hop.egress.as_deref().filter(|_| section.hop.role == NodeRole::Forwarder);
        let sent = egress.and_then(|egress| self.test.link_counter(&section.hop.node, egress, "tx_packets"));
        section.left == 0 && sent.is_some_and(|sent| sent >= section.entered.div_ceil(2))
    }

    /// From here on the responses are counted.
    pub fn turn(&mut self) {
        let unit = Unit::back(self.input.spec, fragments(&self.test, self.input, "back"));
        self.unit = unit.beside(discovery(&self.test));
    }

    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn say_what_the_units_are(&mut self) {
        if let Some(why) = self.input.flow.and_then(|flow| flow.absent.as_ref()) {
            self.note(format!(
                "the flow itself was not counted ({why}): counters of interfaces and hosts decide, which count strangers' frames, too, \
                 on the path that the routes say"
            ));
        }
        let late = ["forward", "back"].map(|leg| Some(way::late_words(self.input.flow?, leg)));
        late.into_iter().flatten().flatten().for_each(|note| self.note(note));
        if self.unit.per_buffer > 1 {
            let up_to = self.unit.per_buffer;
            self.note(format!(
                "frames on the path may be super-frames of up to {up_to} datagrams; devices count them once, so \
                 datagrams are computed from bytes, and drops of super-frames are bounded by what is missing"
            ));
        }
        if self.unsettled > 0 {
            let frames = many(self.unsettled, "frame");
            self.note(format!("still waiting when the counters were read: {frames}"));
        }
    }

    pub fn say_what_is_incomplete(&mut self, datagrams: u64) {
        if datagrams > 0 {
            let datagrams = many(datagrams, "datagram");
            self.note(format!(
                "{datagrams} came to the receiver without a later fragment: they are lost where later fragments went missing, and how \
                 many datagrams these were is the uncertainty; the witness recognises only the first fragments"
            ));
        }
    }

    pub fn say_what_fragments_are(&mut self) {
        if self.unit.is_fragmented() {
            let pieces = self.unit.fragments;
            self.note(format!(
                "datagrams travel in {pieces} fragments, and fragments are counted on the path, not datagrams: a loss of \
                 {pieces} fragments is 1 to {pieces} datagrams, and the witness recognises only the first fragments"
            ));
        }
    }

    /// What left a station, by a counter that says between `least` and `most` datagrams in so many buffers. Where those are
    /// fragments, each that was lost may be of another datagram.
    pub fn left(&mut self, entered: u64, buffers: u64, least: u64, most: u64) -> Left {
        if !self.unit.is_fragmented() {
            return Left::between(least, most, 0);
        }
        let pieces = self.pieces.saturating_sub(buffers);
        self.pieces = self.pieces.min(buffers);
        let most = most.min(buffers.div_ceil(self.unit.fragments));
        let least = entered.saturating_sub(pieces).min(most).max(self.complete.min(entered));
        Left { pieces, ..Left::between(least, most.max(least), 0).of_fragments(self.unit.fragments) }
    }

    /// Movement of the protocol counter in the family of the test.
    pub fn protocol(&self, node: &str, v4: &str, v6: &str) -> Option<u64> {
        self.test.protocol(node, by_family(self.input.spec, v4, v6))
    }

    /// Frames that IP handed to its neighbour layer: it counts behind all filters and before everything else.
    /// Newer kernels have the counter in the group `Ip`, older ones in `IpExt`.
    pub fn transmits(&self, node: &str) -> Option<u64> {
        let newer = self.protocol(node, "Ip.OutTransmits", "Ip6.Ip6OutTransmits");
        newer.or_else(|| self.protocol(node, "IpExt.OutTransmits", "Ip6.Ip6OutTransmits"))
    }

    /// What the same counter moves without the test, scaled to its length, and what was still moving.
    pub fn background(&self, counter: impl Fn(&Window<'a>) -> Option<u64>) -> u64 {
        let idle = self.idle.as_ref().and_then(|(window, scale)| Some(counter(window)? as f64 * scale));
        (idle.unwrap_or(0.0).ceil() as u64).saturating_add(self.unsettled).min(MOST)
    }

    /// The same for the protocol counter in the family of the test.
    pub fn protocol_background(&self, node: &str, v4: &str, v6: &str) -> u64 {
        let name = by_family(self.input.spec, v4, v6);
        self.background(|window| window.protocol(node, name))
    }

    /// How many frames too many are believed to be somebody else's.
    pub fn others(&self, entered: u64, doubt: u64) -> u64 {
        16u64.saturating_add(entered / 1000).saturating_add(doubt.saturating_mul(2)).min(MOST)
    }

    /// Both sides of an interface.
    pub fn link(&self, node: &str, interface: &str) -> Option<LinkPair<'a>> {
        self.test.link(node, interface)
    }

    /// Datagrams that a device says it sent.
    pub fn transmitted(&self, link: &LinkPair) -> Option<Seen> {
        self.unit.seen(link.counter("tx_packets")?, link.counter("tx_bytes"))
    }

    /// The queueing discipline that frames of the test pass when they leave a node, where there is one that
    /// counts: none where the sender's port goes straight to the driver.
    pub fn qdisc(&self, at: &Visit) -> Result<Option<Queue<'a>>, String> {
        let passed_by = at.spot == Spot::Hop(NodeRole::Sender) && self.input.sender.settings.bypasses_qdisc;
        let Some(interface) = at.egress.filter(|_| !passed_by) else { return Ok(None) };
        let (before, after) = match self.test.root_qdisc(at.node, interface) {
            (None, None) => return Ok(None),
            (Some(before), Some(after)) if (&before.kind, &before.handle) == (&after.kind, &after.handle) => {
                (before, after)
            }
            _ => return Err("the queueing discipline was exchanged during the test".into()),
        };
        let moved = || {
            let packets = difference(before.packets, after.packets)?;
            let sent = self.unit.seen(packets, difference(before.bytes, after.bytes))?;
            let dropped = difference(before.drops, after.drops)?;
            let queued = i128::from(after.qlen) - i128::from(before.qlen);
            let queued = queued.clamp(-i128::from(MOST), i128::from(MOST)) as i64;
            let inside = self.test.dropped_inside(at.node, after).min(dropped);
            Some(Queue { sent, packets, dropped, inside, queued, sample: after })
        };
        moved().map(Some).ok_or_else(|| "the counters of the queueing discipline went backwards".into())
    }

    /// Whether the queueing discipline may send a frame twice.
    pub fn may_duplicate(&self, at: &Visit) -> bool {
        matches!(self.qdisc(at), Ok(Some(queue)) if queue.sample.is_netem())
    }

    /// What about the state of the interface at a place explains that frames vanished there.
    pub fn trouble(&self, at: &Visit, place: Place) -> Option<String> {
        let here = at.interface(place).and_then(|interface| self.link(at.node, interface)?.trouble());
        here.or_else(|| self.peer(at).filter(|_| place == Place::Wire)?.trouble())
    }

    /// The other end of the link that frames leave by.
    pub fn peer(&self, at: &Visit) -> Option<LinkPair<'a>> {
        let next = at.next?;
        self.link(&next.node, next.ingress.as_deref()?)
    }

    /// Gives to the gap what is left of a counter, as far as the gap needs it: in datagrams, when the counter
    /// may count super-frames.
    pub fn give(&mut self, gap: &mut Gap, key: &str, delta: u64, name: &str, evidence: String) {
        let rest = self.unit.at_most(self.shared.rest(&gap.node, key, delta));
        let given = gap.claim(name, rest, DropSource::Counter, evidence);
        self.shared.draw(&gap.node, key, given.div_ceil(self.unit.per_buffer));
    }

    /// Gives a counter's movement to the gap, as far as the gap needs it and nobody had it before.
    pub fn draw(&mut self, gap: &mut Gap, v4: &str, v6: &str, name: &str) {
        let counter = by_family(self.input.spec, v4, v6);
        if let Some(delta) = self.test.protocol(&gap.node, counter) {
            self.give(gap, counter, delta, name, format!("{counter} moved by {delta}"));
        }
    }

    /// The same for a counter of an interface.
    pub fn draw_link(&mut self, gap: &mut Gap, interface: &str, counter: &str, name: &str) {
        if let Some(delta) = self.test.link_counter(&gap.node, interface, counter) {
            let evidence = format!("{interface} {counter} moved by {delta}");
            self.give(gap, &format!("{interface}.{counter}"), delta, name, evidence);
        }
    }

    /// Gives what a gap still hides to a filter that drops at one of these hooks, most specific family first.
    pub fn blame_filter(&mut self, gap: &mut Gap, hooks: &[&str], families: &[&str]) {
        let found = self.test.dropping_filters(&gap.node);
        for hook in hooks {
            for (filter, counted) in &found {
                let idle = if counted.is_some() { gap.open() <= gap.doubt } else { gap.suspicious() == 0 };
                if filter.hook != *hook || !families.contains(&filter.family.as_str()) || idle {
                    continue;
                }
                let key = filter_key(filter);
                let place = format!("{} {} at hook {hook}", filter.family, filter.chain);
                match counted {
                    Some(counted) => {
                        let evidence = format!("{place} counted {}", count(*counted));
                        self.give(gap, &key, *counted, &drop::filter(hook), evidence);
                    }
                    None => {
                        gap.claim(&drop::filter(hook), MOST, DropSource::State, format!("{place} drops"));
                    }
                }
            }
        }
    }

    /// Takes from filters what they counted of calls that the kernel refused for them: that has its name at the application.
    pub fn spend_refused(&mut self, node: &str, hooks: &[&str], families: &[&str], mut calls: u64) {
        for (filter, counted) in self.test.dropping_filters(node) {
            let refuses = hooks.contains(&filter.hook.as_str()) && families.contains(&filter.family.as_str());
            let Some(counted) = counted.filter(|_| refuses) else { continue };
            let key = filter_key(filter);
            let taken = self.shared.rest(node, &key, counted).min(calls);
            self.shared.draw(node, &key, taken);
            calls -= taken;
        }
    }

    /// Gives what a gap still hides to neighbours that do not answer: of what IP gave away (in both
    /// directions) no more than what no interface saw.
    pub fn blame_neighbour(&self, gap: &mut Gap, at: &Visit, with_returned: bool) {
        let Some(((before, after), interface)) = self.test.node(at.node).zip(at.egress) else { return };
        let returned = at.ingress.filter(|_| with_returned);
        let returned =
            returned.and_then(|ingress| self.test.link_counter(at.node, ingress, "tx_packets")).unwrap_or(0);
        let seen = gap.offered.saturating_add(returned);
        let at_most = self
            .transmits(at.node)
            .map_or(MOST, |transmits| self.unit.at_most(transmits).saturating_sub(seen));
        let bad = after.neighbours.iter().chain(&before.neighbours).find(|neighbour| {
            neighbour.interface == interface && matches!(neighbour.state.as_str(), "incomplete" | "failed")
        });
        if let Some(bad) = bad.filter(|_| gap.suspicious() > 0) {
            let trouble = self.trouble(at, Place::Egress).map(|trouble| format!("; {trouble}"));
            let evidence =
                format!("{} on {interface} is {}{}", bad.address, bad.state, trouble.unwrap_or_default());
            gap.claim(drop::NEIGHBOUR_UNRESOLVED, at_most, DropSource::State, evidence);
        }
    }

    /// Gives it to states of interfaces that stop frames.
    pub fn blame_ports(&self, gap: &mut Gap, at: &Visit, places: &[Place]) {
        for (name, evidence) in places.iter().flat_map(|place| self.states(at, *place)) {
            if gap.suspicious() == 0 {
                return;
            }
            gap.claim(name, MOST, DropSource::State, evidence);
        }
    }

    /// What stops frames at an interface, by its state before or after.
    fn states(&self, at: &Visit, place: Place) -> Vec<(&'static str, String)> {
        let Some(port) = at.interface(place) else { return vec![] };
        let Some(pair) = self.link(at.node, port) else { return vec![] };
        let state =
            [pair.before.bridge_state, pair.after.bridge_state].into_iter().flatten().find(|s| *s != 3);
        // What stops only some frames is no reason where it is not known which ones are missing.
        let is = |flag: &str| self.counted && pair.has_flag(flag);
        let entry = || at.ingress.and_then(|ingress| self.link(at.node, ingress));
        let is_egress = place == Place::Egress;
        // On its way out a port is disabled first. Frames that come in by one that left go to the host, which names them.
        let has_left =
            self.counted && pair.before.bridge_state.is_some() && pair.after.bridge_state.is_none();
        let states = [
            pair.trouble().map(|trouble| (drop::LINK_DOWN, trouble)),
            (is_egress && self.is_too_long(pair.mtu())).then(|| {
                let length = self.unit.ip_length;
                (drop::MTU_EXCEEDED, format!("{length} B for an MTU of {} at {port}", pair.mtu()))
            }),
            state.map(|state| (drop::PORT_NOT_FORWARDING, format!("{port} was in state {state}"))),
            (is_egress && has_left).then(|| (drop::PORT_NOT_FORWARDING, format!("{port} left its bridge"))),
            (is_egress && is("isolated") && entry().is_some_and(|entry| entry.has_flag("isolated")))
                .then(|| (drop::PORT_ISOLATED, format!("{port} and the port of entry are isolated"))),
            (place == Place::Ingress && is("locked"))
                .then(|| (drop::PORT_LOCKED, format!("{port} is locked"))),
            (is_egress && is("no_flood"))
                .then(|| (drop::PORT_NOT_FORWARDING, format!("nothing is flooded to {port}"))),
        ];
        states.into_iter().flatten().collect()
    }

    fn is_too_long(&self, mtu: u32) -> bool {
        self.unit.is_plain() && self.unit.ip_length > u64::from(mtu) + VLAN_ROOM
    }

    /// The names of drops that the state of a section speaks for.
    pub fn holding(&self, at: &Visit) -> Vec<&'static str> {
        let places = [Place::Ingress, Place::Egress, Place::Bridge];
        let here = places.iter().flat_map(|place| self.states(at, *place)).map(|(name, _)| name);
        let peer = self.peer(at);
        let beyond = [
            peer.as_ref().is_some_and(|peer| peer.trouble().is_some()).then_some(drop::LINK_DOWN),
            peer.is_some_and(|peer| self.is_too_long(peer.mtu())).then_some(drop::MTU_EXCEEDED),
            (!self.test.dropping_filters(at.node).is_empty()).then_some(drop::FILTER),
        ];
        here.chain(beyond.into_iter().flatten()).collect()
    }
}

/// Into how many fragments the sender of this leg cut each datagram. Its kernel counts those of others, too. Where the flow was counted, its
/// counters know its fragments; where not, they are taken for the test's if at least half as many datagrams were cut as it sent.
fn fragments(test: &Window, input: &LedgerInput, leg: &str) -> u64 {
    let hops = if leg == "forward" { &input.path.forward } else { &input.path.back };
    let created = by_family(input.spec, "Ip.FragCreates", "Ip6.Ip6FragCreates");
    let cut = by_family(input.spec, "Ip.FragOKs", "Ip6.Ip6FragOKs");
    let moved = |name| hops.first().and_then(|hop| test.protocol(&hop.node, name)).unwrap_or(0);
    let (created, cut) = (moved(created), moved(cut));
    let own = match input.flow.and_then(|flow| later_fragments(flow, leg)) {
        Some(later) => later > 0,
        None => cut.saturating_mul(2) >= input.sender.sent,
    };
    match created {
        1.. if own => created.div_ceil(cut.max(1)).clamp(2, MOST_FRAGMENTS),
        _ => 1,
    }
}

/// Fragments behind the first ones that were counted on this leg; none where no frame was.
fn later_fragments(flow: &FlowObservation, leg: &str) -> Option<u64> {
    let counts = flow.interfaces.iter().flat_map(|one| &one.counts).filter(|count| count.leg == leg);
    counts.map(|count| count.later_fragments).reduce(u64::saturating_add)
}

/// What the kernels of all nodes sent by themselves over IPv6.
fn discovery(test: &Window) -> Discovery {
    let of_node =
        |node: &String| DISCOVERY.map(|(name, bytes)| (test.protocol(node, name).unwrap_or(0), bytes));
    let sent: Vec<(u64, u64)> = test.after.nodes.keys().flat_map(of_node).collect();
    let bytes = sent.iter().map(|(frames, bytes)| frames.saturating_mul(*bytes));
    Discovery { frames: sum(sent.iter().map(|(frames, _)| *frames)).min(MOST), bytes: sum(bytes).min(MOST) }
}

/// Frames in queues and backlogs of the second snapshot, beyond those of the first.
fn unsettled(test: &Window) -> u64 {
    let backlog = |snapshot: &record::Snapshot| sum(snapshot.softnet.iter().map(|row| row.backlog));
    backlog(test.after).saturating_sub(backlog(test.before)).min(MOST)
}

/// Counters that more than one station may draw on, and what was drawn already.
#[derive(Default, Clone)]
pub struct Shared {
    drawn: BTreeMap<(String, String), u64>,
}

/// What the counter of a filter is called where it is shared.
fn filter_key(filter: &FilterSample) -> String {
    format!("filter {} {}", filter.family, filter.chain)
}

impl Shared {
    /// What is left of a counter of a node that moved by `delta`.
    pub fn rest(&self, node: &str, counter: &str, delta: u64) -> u64 {
        let drawn = self.drawn.get(&(node.to_owned(), counter.to_owned())).copied().unwrap_or(0);
        delta.saturating_sub(drawn)
    }

    /// Remembers that so much of it was given away.
    pub fn draw(&mut self, node: &str, counter: &str, count: u64) {
        let drawn = self.drawn.entry((node.to_owned(), counter.to_owned())).or_default();
        *drawn = drawn.saturating_add(count);
    }
}
