//! Closes the ledger of a test: where every frame went.
//!
//! **What.** [`close`] walks the path of a test, station by station. What enters a station is what left the one
//! before; what leaves it comes from a counter that does not know the first one; drops are named by counters of exactly
//! that meaning, else by the state of the node, else by the witness. What then remains is the residual, and it is
//! never hidden: `sent − received = Σ drops + Σ queued + Σ residual`, exactly and always.
//!
//! **Why chained.** One wrong counter in the middle shows as two residuals of opposite sign beside each other, and
//! leaves the sum right. A loss between two right counters shows exactly there.
//!
//! **Price.** Counters of a namespace count all traffic in it. What is not of the test is recognised by bytes
//! ([`unit`]), by a quiet window before the test, or by being too many, and widens the uncertainty. The stations and
//! names are documented in `docs/ledger.md`.

mod book;
mod chain;
#[cfg(test)]
mod counted_tests;
mod doubt;
mod ends;
pub mod follow;
#[cfg(test)]
mod follow_tests;
mod forward;
mod frames;
mod gap;
mod pieces;
mod pool;
mod program;
mod sockets;
mod station;
mod switch;
#[cfg(test)]
mod twin;
mod unit;
mod visit;
mod window;
mod witness;

use crate::way::{self, Section};
use book::Readings;
use chain::Chain;
pub(crate) use frames::NIC;
use record::delta::sum;
use record::ledger::WitnessDrop;
use record::unit::count;
use record::{
    EndReport, FlowObservation, Hop, Ledger, NamedCount, NodeRole, Path, Snapshot, TestRecord, TestSpec,
    Witness,
};
use station::Station;
pub use switch::misses as table_misses;
use visit::{Spot, Visit};
use window::MOST;
pub(crate) use window::Window;

/// The ports of a test, by which its sockets are found in a snapshot; 0 is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ports {
    /// Local port of the sender (the ICMP id for `ping`).
    pub sender: u16,
    /// Local port of the receiver.
    pub receiver: u16,
}

/// What the witness has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WitnessInput {
    /// It did not count; the record says why and is passed on as it is.
    Absent(Witness),
    /// It counted.
    Counted {
        /// Every reason at every place.
        details: Vec<WitnessDrop>,
        /// Events that it could not count.
        lost: u64,
    },
}

/// Everything that the ledger is made of.
#[derive(Debug, Clone)]
pub struct LedgerInput<'a> {
    /// What was asked.
    pub spec: &'a TestSpec,
    /// The way of the frames.
    pub path: &'a Path,
    /// What the sending end saw.
    pub sender: &'a EndReport,
    /// What the receiving end saw.
    pub receiver: &'a EndReport,
    /// Counters before the test.
    pub before: &'a Snapshot,
    /// Counters after the test.
    pub after: &'a Snapshot,
    /// A quiet window before the test: what moves without it.
    pub idle: Option<(&'a Snapshot, &'a Snapshot)>,
    /// The independent count.
    pub witness: WitnessInput,
    /// The sockets of the test.
    pub ports: Ports,
    /// The flow itself, where it was counted.
    pub flow: Option<&'a FlowObservation>,
    /// What arrived at the last interface, when the two ends were started by hand and nobody knows the nodes between
    /// them; none where the path says all.
    pub arrival: Option<&'a Arrival>,
}

/// What a capture by hand knows of its interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The frames of the test that the interface received: at least and at most; or why that is not known.
    pub arrived: std::result::Result<(u64, u64), String>,
    /// Frames that passed the interface while its counters were read, or may have been others'.
    pub doubt: u64,
    /// Frames that came after the capture's end.
    pub after: u64,
}

/// The stations, as a path may have them: at each node in this order. A station more is a row more.
const STATIONS: &[&Station] = &[
    &ends::APP_SEND,
    &frames::APP_SEND,
    &frames::PATH_TO,
    &frames::PORT,
    &forward::IP_OUT,
    &forward::BRIDGE,
    &program::IN,
    &program::OUT,
    &program::THROUGH,
    &switch::IN,
    &switch::TABLES,
    &switch::OUT,
    &forward::IP_FORWARD,
    &forward::QDISC,
    &forward::LINK,
    &frames::TAP,
    &ends::IP_IN,
    &ends::UDP_IN,
    &ends::SOCKET,
    &ends::ICMP_ECHO,
    &ends::APP_REPLY,
    &ends::APP_RECEIVE,
];

/// Settles all stations of a spot on the path.
fn pass(chain: &mut Chain, book: &mut Readings, at: &Visit) {
    STATIONS.iter().for_each(|station| chain.settle(book, station, at));
}

/// Closes the ledger. Never fails: what cannot be known is a station marked `unknown`.
pub fn close(input: &LedgerInput) -> Ledger {
    let LedgerInput { spec, path, sender, receiver, .. } = *input;
    let mut book = Readings::new(input);
    let mut chain = Chain::new(sender.attempted);
    chain.suspect(book.unit.disguised(0));
    pass(&mut chain, &mut book, &Visit::end(Spot::Start, &spec.from, sender, None));
    let answers = answers(&book);
    let last = (spec.to.as_str(), receiver, input.ports.receiver);
    leg(&mut chain, &mut book, &path.forward, [&spec.from, &spec.to], |book, at| match answers {
        Some(answers) => asked(book, answers).min(at),
        None => taken(book, last, at),
    });
    let mut last = last;
    let mut hops = &path.forward;
    if spec.kind.is_round_trip() {
        let socket = (!is_ping(spec)).then(|| ends::socket_view(&book, last, chain.at));
        let turn = Visit { counted: answers, ..Visit::end(Spot::Turn, &spec.to, receiver, socket) };
        pass(&mut chain, &mut book, &turn);
        chain.turn();
        book.turn();
        chain.suspect(book.unit.disguised(0));
        last = (spec.from.as_str(), sender, input.ports.sender);
        leg(&mut chain, &mut book, &path.back, [&spec.to, &spec.from], |book, at| taken(book, last, at));
        hops = &path.back;
    }
    let by_socket = !spec.kind.is_by_port()
        && (book.counted || hops.last().is_some_and(|hop| hop.role == NodeRole::Receiver));
    let socket = by_socket.then(|| ends::socket_view(&book, last, chain.at));
    pass(&mut chain, &mut book, &Visit::end(Spot::End, last.0, last.1, socket));
    let mut seen = input.witness.clone();
    if let WitnessInput::Counted { details, .. } = &mut seen {
        leave_out_copies(&mut book, details);
        if spec.kind.is_by_port() {
            frames::mark_unseen(&mut chain, &mut book);
        }
        witness::name_residuals(&mut chain.stations, details, [input.before, input.after]);
    }
    doubt::of_the_path(&mut chain.stations, &mut book);
    let witness = witness::judge(&chain.stations, &seen);
    let unexplained = chain.stations.iter().map(|draft| draft.station.residual).sum();
    let uncertainty = chain.stations.iter().map(|draft| draft.station.uncertainty).max().unwrap_or(0);
    Ledger {
        sent: sender.attempted.min(MOST),
        received: chain.at,
        stations: chain.stations.into_iter().map(|draft| draft.station).collect(),
        unexplained,
        uncertainty,
        witness,
        notes: book.notes,
    }
}

fn leave_out_copies(book: &mut Readings, details: &mut Vec<WitnessDrop>) {
    let input = book.input;
    if is_ping(input.spec) {
        details.retain(|seen| !witness::is_copy_of_raw_socket(seen));
        // Of an echo that a raw socket has read the kernel still has its own copy, which nobody wants.
        let mut read = input.sender.read();
        let copies = details.iter_mut().filter(|seen| seen.node == input.spec.from && seen.is_at("ping_rcv"));
        copies.for_each(|seen| {
            let copy = seen.frames.min(read);
            (seen.frames, read) = (seen.frames - copy, read - copy);
        });
        details.retain(|seen| seen.frames > 0);
    }
    let receiver = (input.spec.kind.is_by_port()).then_some(input.spec.to.as_str());
    let copies = witness::leave_out_copies(details, receiver, &way::programs(input.path));
    if let (1.., Some(receiver)) = (copies, receiver) {
        book.note(format!(
            "the kernel of {receiver} threw away {} copies of frames behind the port, which ends the path; they are no loss",
            count(copies)
        ));
    }
}

/// How many drops of a test were a host's own copies of frames that a port took: the frames went on, or had arrived.
pub fn copies(test: &TestRecord, drops: &[WitnessDrop]) -> u64 {
    let frames = |drops: &[WitnessDrop]| sum(drops.iter().map(|seen| seen.frames));
    let mut others = drops.to_vec();
    let receiver = test.spec.kind.is_by_port().then_some(test.spec.to.as_str());
    witness::leave_out_copies(&mut others, receiver, &way::programs(&test.path));
    frames(drops) - frames(&others)
}

/// Drops of a test, without those of copies that a forwarder's own host saw beside the program's port.
pub fn without_copies(path: &Path, details: &[WitnessDrop]) -> Vec<WitnessDrop> {
    let mut details = details.to_vec();
    witness::leave_out_copies(&mut details, None, &way::programs(path));
    details
}

/// One direction of the path, from leaving the first node to entering the last; `taken` says what the last one's socket was
/// given, of so much that came to the node.
fn leg(
    chain: &mut Chain,
    book: &mut Readings,
    hops: &[Hop],
    [from, to]: [&str; 2],
    taken: impl Fn(&Readings, u64) -> u64,
) {
    let sections = book.sections(chain.leg(), from, to);
    book.counted = sections.is_some();
    if let Some(sections) = sections {
        return by_sections(chain, book, sections, taken);
    }
    if hops.is_empty() {
        book.note("the path is not known, so a loss is located between the two applications only".into());
    }
    book.say_what_fragments_are();
    fragments(chain, book, hops);
    for (index, hop) in hops.iter().enumerate() {
        // Ends by hand need not be the two ends of one wire.
        let next = hops.get(index + 1).filter(|_| book.input.arrival.is_none());
        pass(chain, book, &Visit::hop(hop, next, book.input.receiver));
    }
}

/// The same where the flow itself was counted.
fn by_sections(
    chain: &mut Chain,
    book: &mut Readings,
    mut sections: Vec<Section>,
    taken: impl Fn(&Readings, u64) -> u64,
) {
    let is_receiver = |section: &Section| !section.is_link && section.hop.role == NodeRole::Receiver;
    for section in sections.iter_mut().filter(|section| is_receiver(section)) {
        // What went on from here was not for its socket.
        section.entered = section.entered.saturating_sub(section.left);
        section.left = taken(book, section.entered);
    }
    end_what_came_back(&mut sections, chain.at);
    book.say_what_is_incomplete(pieces::charge(&mut sections, book.unit.fragments));
    let mut arrived = 0;
    for section in &sections {
        chain.cross(book, section, STATIONS);
        if is_receiver(section) {
            arrived = chain.at;
        }
    }
    chain.at = arrived;
}

/// What came back to the sender, and did not leave it again (no more left than it sent), ended there, as at any node that is not on the way:
/// a section of its own, behind the link that it came by.
fn end_what_came_back(sections: &mut Vec<Section>, sent: u64) {
    let is_sender = |section: &Section| !section.is_link && section.hop.role == NodeRole::Sender;
    let Some(sender) = sections.iter_mut().find(|section| is_sender(section)) else { return };
    if sender.entered == 0 || sender.left > sent {
        return;
    }
    let hop = Hop { role: NodeRole::Router, egress: None, ..sender.hop.clone() };
    let back = Section { hop, left: 0, is_off_the_way: true, later: [sender.later[0], 0], ..sender.clone() };
    (sender.entered, sender.later[0]) = (0, 0);
    let leads_back = |section: &Section| {
        section.is_link && section.next.as_ref().is_some_and(|next| next.node == back.hop.node)
    };
    let at = sections.iter().rposition(leads_back).map_or(sections.len(), |link| link + 1);
    sections.insert(at, back);
}

/// Of so many datagrams that came to a node, those that its socket, or its port, was given.
fn taken(book: &Readings, end: (&str, &EndReport, u16), entered: u64) -> u64 {
    if book.input.spec.kind.is_by_port() {
        return end.1.read().saturating_sub(end.1.foreign);
    }
    let socket = ends::socket_view(book, end, entered);
    let known = sum([socket.reads, socket.full, socket.late]);
    known.saturating_add(socket.room).min(entered).max(known)
}

/// Echo requests that came to the kernel that answered so many; others' may be among them.
fn asked(book: &Readings, answers: u64) -> u64 {
    let spec = book.input.spec;
    book.protocol(&spec.to, "Icmp.InEchos", "Ip6.Icmp6InEchos").unwrap_or(answers).max(answers)
}

/// Echoes that the kernel answered, where the answers were counted.
fn answers(book: &Readings) -> Option<u64> {
    let spec = book.input.spec;
    let sections = book.sections("back", &spec.to, &spec.from).filter(|_| is_ping(spec))?;
    sections.first().map(|section| section.left)
}

/// With fragments, what was put together at the end of the leg bounds what any station can have lost.
fn fragments(chain: &Chain, book: &mut Readings, hops: &[Hop]) {
    let last = hops.last().filter(|hop| hop.role == NodeRole::Receiver && book.unit.is_fragmented());
    let complete = last.and_then(|hop| ends::delivered(book, chain.at, &hop.node));
    book.complete = complete.map_or(0, |(count, _)| count);
    book.pieces = chain.at.saturating_mul(book.unit.fragments).min(MOST);
}

/// The name of a counter in the family of the test.
fn by_family<'n>(spec: &TestSpec, v4: &'n str, v6: &'n str) -> &'n str {
    if spec.family == 6 { v6 } else { v4 }
}

/// Sum of named counts.
fn total(counts: &[NamedCount]) -> u64 {
    sum(counts.iter().map(|named| named.count)).min(MOST)
}

/// True for kinds whose frames are ICMP echo.
fn is_ping(spec: &TestSpec) -> bool {
    spec.kind.is_echo()
}
