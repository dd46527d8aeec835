//! The ledger of a flow that somebody else sends, of its counters alone.
//!
//! **What.** [`follow`] finds where a leg begins and ends, settles the sections between as the ledger of a test does, and names
//! what is missing by what the witness saw of the flow at that node. What it saw in the sender's node and in the receiver's and no
//! section misses died before the first counter and behind the last one: it belongs to the flow, too.
//!
//! **Why not by the applications.** They are not ours: nobody says how many messages there were. What entered the first link
//! and what came out of the last one is known to the frame.
//!
//! **Several senders and receivers.** Words that leave an end open (`udp > :53`) may fit flows of several pairs of nodes, and their frames are
//! summed. What came to a node on the way and did not go on ended there, if its programs got as many; what went on beyond what came it sent.
//!
//! **Price.** Counters that others move, too, name nothing here without the witness; they are told as candidates.

use super::book::Readings;
use super::chain::{Chain, Draft};
use super::pieces;
use super::pool::Pool;
use super::window::Window;
use super::witness::is_copy_of_raw_socket;
use super::{LedgerInput, Ports, STATIONS, WitnessInput};
use crate::way::{self, Identity, Leg, Section};
use record::delta::sum;
use record::drop;
use record::flow::{FlowInterface, FlowObservation, FlowPlace, Hook};
use record::follow::{FollowCandidate, FollowEnd, FollowLeg, FollowLink};
use record::ledger::WitnessDrop;
use record::unit::{count, many};
use record::{
    Drop, DropSource, EndReport, NamedCount, Path, Snapshot, Station, StationKind, TestSpec, TrafficKind,
    Witness, WitnessStatus,
};

/// Everything that is known of a leg.
#[derive(Debug, Clone)]
pub struct FollowInput<'a> {
    /// The flow, where it was counted.
    pub flow: &'a FlowObservation,
    /// `forward` or `back`.
    pub leg: &'a str,
    /// The node that has the address which frames of this leg go to.
    pub home: Option<&'a str>,
    /// Whether the words say from which address and to which frames of this leg go.
    pub addressed: [bool; 2],
    /// The protocol that carries the flow.
    pub protocol: &'a str,
    /// IP version of the addresses.
    pub family: u8,
    /// Counters of the nodes before.
    pub before: &'a Snapshot,
    /// Counters of the nodes now.
    pub after: &'a Snapshot,
    /// What the witness saw of this leg.
    pub witness: &'a WitnessInput,
    /// No frame moved any more.
    pub rests: bool,
    /// Frames that were on their way when the counters were read, at the beginning and now.
    pub doubt: u64,
}

/// Where every frame of a leg went; none when there was none.
pub fn follow(input: &FollowInput) -> Option<FollowLeg> {
    let leg = Leg::of(input.flow, input.leg);
    let (witness, own) = without_own(input, &leg);
    let input = &FollowInput { witness: &witness, ..input.clone() };
    let origin = leg.origin()?;
    // What came back and ended nowhere else ended where it began: the loopback interface, a translated address of one's own.
    let receiver = receiver(input, &leg).or_else(|| leg.reaches(&origin).then(|| origin.clone()));
    let found = leg.sections(&origin, receiver.as_ref());
    let way = Way { input, origin, receiver, found, sums: Sums::default() };
    let (mut settled, mut notes) = way.settle(&witness);
    let counts = matches!(witness, WitnessInput::Counted { .. });
    let is_unnamed = settled.iter().any(|station| station.residual > 0);
    let mut candidates = vec![];
    if !counts || is_unnamed {
        let absent = Witness::absent(WitnessStatus::Unavailable, "");
        let (guessed, _) = way.settle(&WitnessInput::Absent(absent));
        candidates = candidates_of(&guessed, &settled, counts);
    }
    if !counts {
        settled.iter_mut().for_each(forget_names);
    }
    notes.extend(own.iter().map(own_sentence));
    settled.iter_mut().for_each(one_filter);
    let way = Way { sums: way.open_ends(&mut settled, &mut notes), ..way };
    notes.extend(way.circle());
    notes.extend(way.translated(&settled));
    notes.extend(way.not_accepted());
    Some(way.told(settled, candidates, notes))
}

/// Splits off what the receiver threw away of what had arrived: TCP what it has already and what comes for a connection that
/// is over, and the kernel its own copy of an echo that a raw socket has read. A node where nobody took anything refused it.
fn without_own(input: &FollowInput, leg: &Leg) -> (WitnessInput, Vec<WitnessDrop>) {
    let WitnessInput::Counted { details, lost } = input.witness else {
        return (input.witness.clone(), vec![]);
    };
    let is_own = |seen: &WitnessDrop| {
        let location = seen.location.as_deref().unwrap_or_default();
        let by_tcp =
            seen.reason.starts_with("TCP_") || seen.reason == "QUEUE_PURGE" || location.starts_with("tcp_");
        let has_name = !drop::of_kernel(&seen.reason, seen.location.as_deref()).is_empty();
        let is_after_end = seen.reason == "NO_SOCKET" && seen.frames < leg.came_to(&seen.node);
        let is_tcps = input.protocol == "tcp" && by_tcp && (!has_name || is_after_end);
        is_tcps || seen.is_at("ping_rcv") || is_copy_of_raw_socket(seen)
    };
    let (own, details) = details.iter().cloned().partition(is_own);
    (WitnessInput::Counted { details, lost: *lost }, own)
}

fn own_sentence(seen: &WitnessDrop) -> String {
    let WitnessDrop { reason, node, location, frames, .. } = seen;
    let at = location.as_deref().unwrap_or("an unknown function");
    let (frames, word) = (many(*frames, "frame"), if *frames == 1 { "it" } else { "they" });
    format!("{node} threw away {frames} after {word} had arrived ({reason} at {at}): no loss of the path")
}

/// The end of a leg: where the other one begins, the node that has the address, else where most frames stayed without dying.
fn receiver(input: &FollowInput, leg: &Leg) -> Option<Identity> {
    let other = if input.leg == "forward" { "back" } else { "forward" };
    let answers = Leg::of(input.flow, other).origin();
    if let Some(answers) = answers.filter(|section| leg.reaches(section)) {
        return Some(answers);
    }
    let mut sinks = leg.sinks();
    // What went outside and came in again did not end there.
    let is_inside = |(sink, _): &(Identity, u64)| sink.stack().is_some();
    if leg.sources().len() > 1 && sinks.iter().any(is_inside) {
        sinks.retain(is_inside);
    }
    let home = input.home.map(|node| Identity::Stack(node.to_owned()));
    if let Some(home) = home {
        if !leg.reaches(&home) {
            return sinks.into_iter().map(|(sink, _)| sink).find(|sink| sink.stack().is_none());
        }
        if sinks.iter().any(|(sink, _)| *sink == home) {
            return Some(home);
        }
    }
    let alive = |(sink, came): &(Identity, u64)| came.saturating_sub(died(input.witness, sink));
    let best = sinks.iter().rev().max_by_key(|sink| alive(sink)).filter(|sink| alive(sink) > 0);
    let at_socket = || sinks.iter().find(|(sink, _)| died_at_a_socket(input.witness, sink));
    best.or_else(at_socket).map(|(sink, _)| sink.clone())
}

/// Whether frames died there where only those do that are for this node.
fn died_at_a_socket(witness: &WitnessInput, section: &Identity) -> bool {
    let (WitnessInput::Counted { details, .. }, Some(node)) = (witness, section.stack()) else {
        return false;
    };
    let is_of_socket = |seen: &WitnessDrop| {
        let name = drop::one_of_kernel(&seen.reason, seen.location.as_deref());
        seen.node == node
            && name.is_some_and(|row| row.place.contains("`udp in`") || row.place.contains("`socket`"))
    };
    details.iter().any(is_of_socket)
}

fn died(witness: &WitnessInput, section: &Identity) -> u64 {
    match (witness, section.stack()) {
        (WitnessInput::Counted { details, .. }, Some(node)) => {
            sum(details.iter().filter(|seen| seen.node == node).map(|seen| seen.frames))
        }
        _ => 0,
    }
}

struct Way<'a> {
    input: &'a FollowInput<'a>,
    origin: Identity,
    receiver: Option<Identity>,
    found: Vec<(Identity, Section)>,
    sums: Sums,
}

/// Frames beyond those of the first sender and the last receiver.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    sent: u64,
    received: u64,
}

impl Way<'_> {
    fn section(&self, wanted: Option<&Identity>) -> Option<&Section> {
        self.found.iter().find(|(identity, _)| Some(identity) == wanted).map(|(_, section)| section)
    }

    /// The stations in the order of the way, and what the witness saw and nobody misses.
    fn settle(&self, witness: &WitnessInput) -> (Vec<Station>, Vec<String>) {
        let end =
            |identity: Option<&Identity>| identity.and_then(Identity::stack).unwrap_or_default().to_owned();
        let spec = TestSpec {
            kind: TrafficKind::UdpStream,
            from: end(Some(&self.origin)),
            to: end(self.receiver.as_ref()),
            family: self.input.family,
            // Frames are counted, not computed of bytes; whether they are too long for a link is told by their mean length.
            size: payload(self.input),
            gso: per_buffer(self.input.flow),
            ..TestSpec::default()
        };
        let (path, report) = (Path::default(), EndReport::default());
        let input = LedgerInput {
            spec: &spec,
            path: &path,
            sender: &report,
            receiver: &report,
            before: self.input.before,
            after: self.input.after,
            idle: None,
            witness: witness.clone(),
            ports: Ports::default(),
            flow: Some(self.input.flow),
            arrival: None,
        };
        let mut book = Readings::new(&input);
        book.counted = true;
        let mut chain = Chain::new(0);
        if self.input.leg == "back" {
            chain.turn();
        }
        for (identity, section) in &self.found {
            if *identity != self.origin && Some(identity) != self.receiver.as_ref() {
                let known = chain.stations.len();
                chain.cross(&mut book, section, STATIONS);
                if let Some(draft) = chain.stations[known..].last_mut() {
                    draft.station.left = draft.station.left.saturating_sub(self.broken(identity, section));
                    draft.settle();
                }
            }
        }
        let mut drafts = chain.stations;
        drafts.iter_mut().for_each(|draft| name_rest(draft, &mut book.pool));
        let mut stations: Vec<Station> = drafts.into_iter().map(|draft| draft.station).collect();
        let last = self.last_station(&mut book.pool);
        let first = self.first_stations(&mut book.pool);
        stations.splice(0..0, first);
        stations.extend(last);
        (stations, self.not_missed(&book.pool))
    }

    /// The sender's node: what went out, and what the witness saw die before. Of frames that had come back as many died there, which are copies,
    /// and only the others may have left it again.
    fn first_stations(&self, pool: &mut Pool) -> Vec<Station> {
        let (Some(node), Some(section)) = (self.origin.stack(), self.section(Some(&self.origin))) else {
            return vec![];
        };
        let returned = self.returned(section);
        let back = pool.rest(node, returned);
        let ended = sum(back.iter().map(|(_, count)| *count));
        let drops = named(pool.rest(node, u64::MAX));
        let dropped = sum(drops.iter().map(|drop| drop.count));
        let sent = section.left.saturating_sub(returned - ended);
        let out = self.station(node, StationKind::IpOut, "ip out", sent.saturating_add(dropped), sent);
        let died: Vec<String> =
            back.iter().map(|(seen, count)| format!("{count} of {}", seen.reason)).collect();
        let evidence = format!("they came back to {node}; {}", died.join(", "));
        let copies = Drop { name: drop::COPY.into(), count: ended, source: DropSource::Counter, evidence };
        let ends = Station {
            drops: vec![copies],
            ..self.station(node, StationKind::IpForward, "ip forward", ended, 0)
        };
        let ends = Some(ends).filter(|_| ended > 0);
        std::iter::once(Station { drops, ..out }).chain(ends).collect()
    }

    /// The receiver's node: what came in, and what the witness saw die behind.
    fn last_station(&self, pool: &mut Pool) -> Option<Station> {
        let receiver = self.receiver.as_ref();
        let (node, section) = (receiver?.stack()?, self.section(receiver)?);
        let entered = self.came(section);
        let drops = named(pool.rest(node, entered));
        let dropped = sum(drops.iter().map(|drop| drop.count));
        let packed = entered.saturating_sub(self.unpacked(node, section).unwrap_or(entered));
        let left = entered.saturating_sub(dropped).saturating_sub(packed);
        let residual =
            i64::try_from(entered.saturating_sub(dropped).saturating_sub(left)).unwrap_or(i64::MAX);
        Some(Station { drops, residual, ..self.station(node, StationKind::IpIn, "node in", entered, left) })
    }

    /// What came out of the tunnels of the receiver's node, where all that it got had gone into tunnels of the sender's. The frames around them
    /// are no frames of the flow: what dies of them before has no other trace.
    fn unpacked(&self, node: &str, section: &Section) -> Option<u64> {
        let of_tunnels = |node: &str, hook: Hook| {
            let here = self.input.flow.interfaces.iter().filter(|at| at.node == node && way::is_tunnel(at));
            let counts = here.flat_map(|at| &at.counts);
            sum(counts.filter(|one| one.hook == hook && one.leg == self.input.leg).map(|one| one.frames))
        };
        let (origin, begun) = (self.origin.stack()?, self.section(Some(&self.origin))?);
        let packed = of_tunnels(origin, Hook::Egress);
        let is_all = packed > 0 && packed >= begun.left && self.receiver.as_ref() != Some(&self.origin);
        let elsewhere = |at: &&FlowInterface| at.node != node && at.node != origin && way::is_tunnel(at);
        let is_elsewhere =
            self.input.flow.interfaces.iter().filter(elsewhere).any(|at| !at.counts.is_empty());
        (is_all && !is_elsewhere).then(|| of_tunnels(node, Hook::Ingress).min(self.came(section)))
    }

    /// What the first sender sent came back to it, by way of others.
    fn circle(&self) -> Option<String> {
        let origin = self.origin.stack().filter(|_| self.receiver.as_ref() == Some(&self.origin))?;
        let others =
            self.found.iter().any(|(identity, _)| identity.stack().is_some_and(|node| node != origin));
        (others && self.input.addressed != [true; 2]).then(|| {
            format!(
                "{origin} sent such frames and got some: either they came back, or others send them, too, and the sums are no one's; name \
                 both ends to have each way by itself"
            )
        })
    }

    /// Frames with addresses that are known are seen no further than where one of them is translated.
    fn translated(&self, stations: &[Station]) -> Option<String> {
        let is_lost = |station: &&Station| station.kind == StationKind::IpForward && station.residual > 0;
        let station =
            stations.iter().find(is_lost).filter(|_| self.receiver.is_none() && self.input.rests)?;
        (self.input.addressed != [false; 2]).then(|| {
            format!(
                "if {} translates an address of theirs, they are others behind it: leave out what changes",
                station.node
            )
        })
    }

    /// Connections that a full queue did not take: no drop, for the kernel.
    fn not_accepted(&self) -> Option<String> {
        let node = self.receiver.as_ref().and_then(Identity::stack)?;
        let is_there = self.input.protocol == "tcp" && self.input.leg == "forward";
        let drops = self.moved(node, &["TcpExt.ListenDrops"]);
        (is_there && drops > 0).then(|| {
            format!(
                "{node} did not take {} to connect, of any flow: a queue of connections was full (TcpExt.ListenDrops), which the kernel tells \
                 as no drop",
                many(drops, "request")
            )
        })
    }

    /// Later fragments that did not come out of a section although their first one did: as many of its datagrams, at the most, are no longer whole.
    /// A node that put datagrams together lost none. What the receiver read, by which a test bounds them closer ([`super::pieces`]), is not known here.
    fn broken(&self, identity: &Identity, section: &Section) -> u64 {
        let left = section.later[1];
        let is_end = *identity == self.origin || Some(identity) == self.receiver.as_ref();
        let put_together = |node: &str| self.moved(node, &["Ip.ReasmOKs", "Ip6.Ip6ReasmOKs"]) > 0;
        if is_end || (left == 0 && identity.stack().is_some_and(put_together)) {
            return 0;
        }
        pieces::missing(section).min(section.left)
    }

    /// What these counters of a node moved by.
    fn moved(&self, node: &str, names: &[&str]) -> u64 {
        let window = Window { before: self.input.before, after: self.input.after };
        sum(names.iter().filter_map(|name| window.protocol(node, name)))
    }

    /// Where words leave an end open, others may have the other one: what ended at a node on the way, and what it sent itself, if its programs got and
    /// gave as many.
    fn open_ends(&self, stations: &mut [Station], notes: &mut Vec<String>) -> Sums {
        let mut sums = Sums::default();
        let row = COUNTERS.iter().find(|row| row.0 == self.input.protocol);
        let [taken, given]: [&[&str]; 2] = row.map_or([&[]; 2], |row| row.1);
        let [has_source, has_destination] = self.input.addressed;
        let on_the_way =
            stations.iter_mut().filter(|one| one.kind == StationKind::IpForward && self.input.rests);
        for station in on_the_way {
            let open = u64::try_from(station.residual).unwrap_or(0);
            if open > 0 && !has_destination && self.moved(&station.node, taken) >= open {
                station.left = station.left.saturating_add(open);
                station.residual = 0;
                sums.received += open;
                notes.push(format!(
                    "{} of the frames received ended at {}, on the way",
                    count(open),
                    station.node
                ));
            }
            if station.made > 0 && !has_source && self.moved(&station.node, given) >= station.made {
                let made = std::mem::take(&mut station.made);
                station.entered = station.entered.saturating_add(made);
                sums.sent += made;
                notes.push(format!(
                    "{} of the frames sent were sent by {}, on the way",
                    count(made),
                    station.node
                ));
            }
        }
        sums
    }

    fn station(&self, node: &str, kind: StationKind, name: &str, entered: u64, left: u64) -> Station {
        Station {
            node: node.into(),
            kind,
            station: name.into(),
            leg: self.input.leg.into(),
            entered,
            left,
            ..Station::default()
        }
    }

    fn not_missed(&self, pool: &Pool) -> Vec<String> {
        let sentence = |(seen, frames): (&WitnessDrop, u64)| {
            let WitnessDrop { reason, node, location, .. } = seen;
            let at = location.as_deref().unwrap_or("an unknown function");
            format!("the witness saw {frames} more of {reason} at {at} of node {node} than are missing")
        };
        let all = pool.unclaimed().map(sentence);
        if self.input.rests { all.collect() } else { vec![] }
    }

    /// On a way in a circle all that went out was sent, else what had come back was not sent again.
    fn sent(&self, section: &Section) -> u64 {
        section.left.saturating_sub(self.returned(section))
    }

    /// What came back to the sender.
    fn returned(&self, section: &Section) -> u64 {
        if self.receiver.as_ref() == Some(&self.origin) { 0 } else { section.entered }
    }

    /// The same for what came to the receiver.
    fn came(&self, section: &Section) -> u64 {
        let went_on = if self.receiver.as_ref() == Some(&self.origin) { 0 } else { section.left };
        let broken = self.found.iter().map(|(identity, section)| self.broken(identity, section));
        section.entered.saturating_sub(went_on).saturating_sub(sum(broken))
    }

    fn told(
        self,
        stations: Vec<Station>,
        candidates: Vec<FollowCandidate>,
        mut notes: Vec<String>,
    ) -> FollowLeg {
        let by_stations = |kind: StationKind, count: fn(&Station) -> u64| {
            stations.iter().find(|station| station.kind == kind).map(count)
        };
        let outside = |identity: Option<&Identity>, count: &dyn Fn(&Section) -> u64| {
            self.section(identity).map_or(0, count)
        };
        let sent = by_stations(StationKind::IpOut, |station| station.entered);
        let received = by_stations(StationKind::IpIn, |station| station.left);
        let mut sent = sent.unwrap_or_else(|| outside(Some(&self.origin), &|section| self.sent(section)));
        let mut received =
            received.unwrap_or_else(|| outside(self.receiver.as_ref(), &|section| self.came(section)));
        sent = sent.saturating_add(self.sums.sent);
        received = received.saturating_add(self.sums.received);
        notes
            .extend(self.found.iter().filter_map(|(identity, section)| self.broken_words(identity, section)));
        notes.extend(self.found.iter().filter_map(|(identity, section)| self.passed_by(identity, section)));
        notes.extend(way::late_words(self.input.flow, self.input.leg));
        FollowLeg {
            leg: self.input.leg.into(),
            from: Some(end_of(&self.origin)),
            to: self.receiver.as_ref().map(end_of),
            sent,
            received,
            links: self.found.iter().filter_map(|(identity, section)| self.link(identity, section)).collect(),
            unexplained: stations.iter().map(|station| station.residual).sum(),
            uncertainty: self.doubt(),
            stations,
            candidates,
            notes,
        }
    }

    /// Frames that may not have been counted everywhere: those that moved at a reading, those that an interface took before it was counted.
    fn doubt(&self) -> u64 {
        let late = self.found.iter().map(|(_, section)| section.uncounted).max();
        self.input.doubt.saturating_add(late.unwrap_or(0))
    }

    /// More came out of a link than was counted into it.
    fn passed_by(&self, identity: &Identity, section: &Section) -> Option<String> {
        let more = section.left.saturating_sub(section.entered);
        let is_more = section.is_link && *identity != self.origin && more > self.doubt();
        is_more.then(|| {
            let (node, interface) = (&section.hop.node, section.hop.egress.as_deref().unwrap_or("?"));
            format!(
                "{} more came out of the link at {node}:{interface} than were counted into it: a program sends past the \
                 counters (AF_XDP, PACKET_QDISC_BYPASS), or copies were made there",
                many(more, "frame")
            )
        })
    }

    /// Datagrams lost parts on a section.
    fn broken_words(&self, identity: &Identity, section: &Section) -> Option<String> {
        let broken = self.broken(identity, section);
        let missing = pieces::missing(section);
        (broken > 0).then(|| {
            let at =
                section.hop.egress.as_deref().map(|interface| format!(":{interface}")).unwrap_or_default();
            format!(
                "{} did not come through {}{at}: up to {} are no longer whole and count as lost there",
                many(missing, "later fragment"),
                section.hop.node,
                many(broken, "datagram")
            )
        })
    }

    fn link(&self, identity: &Identity, section: &Section) -> Option<FollowLink> {
        let from = section.hop.egress.as_ref();
        let from =
            from.map(|interface| FlowPlace { node: section.hop.node.clone(), interface: interface.clone() });
        let to = section
            .next
            .as_ref()
            .and_then(|next| Some(FlowPlace { node: next.node.clone(), interface: next.ingress.clone()? }));
        let is_origin = *identity == self.origin;
        let is_end = Some(identity) == self.receiver.as_ref();
        section.is_link.then(|| FollowLink {
            from: from.filter(|_| !is_origin),
            to: to.filter(|_| !is_end),
            entered: if is_origin { section.left } else { section.entered },
            left: if is_end { section.entered } else { section.left },
            is_off_the_way: section.is_off_the_way,
        })
    }
}

/// The counters that say how many messages the programs of a node got, and gave, by protocol; IPv4 and IPv6.
const COUNTERS: [(&str, [&[&str]; 2]); 4] = [
    ("udp", [&["Udp.InDatagrams", "Ip6.Udp6InDatagrams"], &["Udp.OutDatagrams", "Ip6.Udp6OutDatagrams"]]),
    ("tcp", [&["Tcp.InSegs"], &["Tcp.OutSegs"]]),
    ("icmp", [&["Icmp.InMsgs"], &["Icmp.OutMsgs"]]),
    ("icmp6", [&["Ip6.Icmp6InMsgs"], &["Ip6.Icmp6OutMsgs"]]),
];

/// The bytes of a message of UDP whose frames have the mean length of those of the leg, where it was longest.
fn payload(input: &FollowInput) -> u32 {
    let counts = input.flow.interfaces.iter().flat_map(|interface| &interface.counts);
    let counts = counts.filter(|count| count.leg == input.leg);
    let longest = counts.map(|count| count.bytes / count.frames.max(1)).max().unwrap_or(0);
    let headers = if input.family == 6 { 14 + 40 + 8 } else { 14 + 20 + 8 };
    u32::try_from(longest.saturating_sub(headers)).unwrap_or(u32::MAX).clamp(1, 65_000)
}

/// How many frames a buffer has at the most, on the average of a place: filters and queues may count buffers.
fn per_buffer(flow: &FlowObservation) -> u32 {
    let counts = flow.interfaces.iter().flat_map(|interface| &interface.counts);
    let most = counts.map(|count| count.frames.div_ceil(count.buffers.max(1))).max();
    most.unwrap_or(1).clamp(1, u64::from(u16::MAX)) as u32
}

fn end_of(identity: &Identity) -> FollowEnd {
    match identity {
        Identity::Stack(node) => FollowEnd { node: node.clone(), beyond: None },
        Identity::Bridge(node, interface)
        | Identity::Link(node, interface)
        | Identity::Outside(node, interface) => {
            FollowEnd { node: node.clone(), beyond: Some(interface.clone()) }
        }
    }
}

/// What is missing here gets the names of what the witness saw die in this node and nobody claimed.
fn name_rest(draft: &mut Draft, pool: &mut Pool) {
    let missing = u64::try_from(draft.station.residual).unwrap_or(0);
    let mut found = named(pool.rest(&draft.station.node, missing));
    draft.station.drops.append(&mut found);
    draft.settle();
}

/// Where one filter counted there, what the witness saw filters drop is its: it counts buffers, and super-frames are several frames each.
fn one_filter(station: &mut Station) {
    let is_hook = |drop: &Drop| {
        drop::find(&drop.name).is_some_and(|row| row.name == drop::FILTER) && drop.name != drop::FILTER
    };
    let hooks: Vec<usize> =
        (0..station.drops.len()).filter(|index| is_hook(&station.drops[*index])).collect();
    let seen =
        station.drops.iter().position(|drop| drop.name == drop::FILTER && drop.source == DropSource::Witness);
    if let ([hook], Some(seen)) = (&hooks[..], seen) {
        station.drops[*hook].count += station.drops[seen].count;
        station.drops.remove(seen);
    }
}

/// Drops as the kernel told them; its reason where that has no name here.
fn named(seen: Vec<(&WitnessDrop, u64)>) -> Vec<Drop> {
    let name = |(seen, count): (&WitnessDrop, u64)| {
        let location = seen.location.as_deref();
        let known = drop::one_of_kernel(&seen.reason, location);
        let fitting: Vec<&str> = drop::of_kernel(&seen.reason, location).iter().map(|row| row.name).collect();
        let or = if known.is_some() || fitting.is_empty() {
            String::new()
        } else {
            format!(", one of {}", fitting.join(", "))
        };
        Drop {
            name: known.map_or_else(|| seen.reason.to_lowercase(), |name| name.name.to_owned()),
            count,
            source: DropSource::Witness,
            evidence: format!("{} at {}{or}", seen.reason, location.unwrap_or("an unknown function")),
        }
    };
    seen.into_iter().map(name).collect()
}

/// What counters say where frames are missing without a name: anywhere, where there was no witness to name any.
fn candidates_of(guessed: &[Station], settled: &[Station], counts: bool) -> Vec<FollowCandidate> {
    let same = |one: &Station, other: &Station| (&one.node, &one.station) == (&other.node, &other.station);
    let is_open = |guess: &&Station| {
        !counts || settled.iter().any(|station| same(station, guess) && station.residual > 0)
    };
    let of_station = |station: &Station| {
        let candidate = |drop: &Drop| FollowCandidate {
            node: station.node.clone(),
            station: station.station.clone(),
            drop: drop.clone(),
        };
        station.drops.iter().map(candidate).collect::<Vec<_>>()
    };
    guessed.iter().filter(is_open).flat_map(of_station).collect()
}

/// Without the witness a counter that others move names nothing; copies are known by their number.
fn forget_names(station: &mut Station) {
    let is_copy = |drop: &Drop| drop.name == drop::COPY;
    let named: u64 = station.drops.iter().filter(|drop| !is_copy(drop)).map(|drop| drop.count).sum();
    station.drops.retain(is_copy);
    station.residual = station.residual.saturating_add_unsigned(named);
}

/// What the witness says of all legs together: it disagrees where it saw more than is missing.
pub fn witness(seen: &[WitnessInput], legs: &[FollowLeg]) -> Witness {
    let mut all = vec![];
    let mut missed = 0;
    for input in seen {
        match input {
            WitnessInput::Absent(witness) => return witness.clone(),
            WitnessInput::Counted { details, lost } => {
                all.extend(details.iter().cloned());
                missed = missed.max(*lost);
            }
        }
    }
    let more = |note: &&String| note.starts_with("the witness saw");
    let disagreement: Vec<String> = legs.iter().flat_map(|leg| &leg.notes).filter(more).cloned().collect();
    let status = if disagreement.is_empty() { WitnessStatus::Agrees } else { WitnessStatus::Disagrees };
    let mut by_reason: Vec<NamedCount> = vec![];
    for WitnessDrop { reason, frames, .. } in &all {
        match by_reason.iter_mut().find(|sum| sum.name == *reason) {
            Some(sum) => sum.count += frames,
            None => by_reason.push(NamedCount { name: reason.clone(), count: *frames }),
        }
    }
    let why = match missed {
        0 => String::new(),
        lost => format!("but for {lost} drops of this host that the kernel did not show it"),
    };
    Witness { status, why, by_reason, details: all, disagreement, lost: missed }
}
