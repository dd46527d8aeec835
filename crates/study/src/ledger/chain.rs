//! The chain of stations: each one's `in` is the `out` of the one before.
//!
//! A [`Gap`] is a station being settled: what entered, what an independent counter says left, and what is still to be
//! named. Names are claimed from it in the order of certainty. Because every number is bounded by
//! [`MOST`], sums over a path fit an `i64` with room to spare, whatever the counters said.

use super::window::MOST;
use record::{Drop, DropSource, Station, StationKind};
use std::collections::BTreeMap;

/// True where what comes or goes is counted in frames, whosever they are, and not by the test's own socket or application.
fn counts_frames(kind: StationKind) -> bool {
    use StationKind::{AppReceive, AppReply, AppSend, IcmpEcho, Socket, UdpIn};
    !matches!(kind, AppSend | AppReply | AppReceive | IcmpEcho | UdpIn | Socket)
}

/// What a station is called, and the interface that it is at.
#[derive(Debug, Clone)]
pub struct Label {
    name: String,
    interface: Option<String>,
}

impl From<&str> for Label {
    fn from(name: &str) -> Self {
        Label { name: name.into(), interface: None }
    }
}

/// `qdisc` at `eth0` is `qdisc eth0`.
pub fn at(what: &str, interface: &str) -> Label {
    let known = (interface != "?").then(|| interface.to_owned());
    Label { name: format!("{what} {interface}"), interface: known }
}

/// A station and what the record of it does not keep.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The node at the other end of the link, where a frame may already count as dropped.
    pub peer: Option<String>,
    /// Its counters count fragments, of which the witness recognises only the first.
    pub fragmented: bool,
    /// The witness cannot see or recognise what dies here.
    pub unseen: bool,
    /// What the witness alone named, by its reason.
    pub by_witness: Vec<(String, u64)>,
    pub station: Station,
}

impl Draft {
    /// `in − out − drops − queued`.
    pub fn settle(&mut self) {
        let station = &mut self.station;
        let drops: i128 = station.drops.iter().map(|drop| i128::from(drop.count)).sum();
        let residual =
            i128::from(station.entered) - i128::from(station.left) - drops - i128::from(station.queued);
        station.residual = i64::try_from(residual).expect("every term is bounded");
    }
}

/// What left a station, when its counter counts super-frames or fragments: as much as this is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub least: u64,
    pub most: u64,
    /// Fragments that were lost there.
    pub pieces: u64,
}

/// A station being settled.
pub struct Gap {
    pub kind: StationKind,
    pub node: String,
    pub label: Label,
    pub peer: Option<String>,
    pub entered: u64,
    /// What surely left.
    pub left: u64,
    /// How many more may have left: what no counter claims of them did.
    pub slack: u64,
    pub queued: i64,
    pub doubt: u64,
    pub drops: Vec<Drop>,
    /// Fragments of a datagram, at a station that counts them.
    pub fragments: u64,
    /// Fragments that were lost here.
    pub pieces: u64,
}

impl Gap {
    /// What is not named yet.
    pub fn open(&self) -> u64 {
        let named: u64 = self.drops.iter().map(|drop| drop.count).sum();
        let open =
            i128::from(self.entered) - i128::from(self.left) - i128::from(named) - i128::from(self.queued);
        open.clamp(0, i128::from(MOST)) as u64
    }

    /// What is not named yet and did not leave in any case.
    pub fn surely_open(&self) -> u64 {
        self.open().saturating_sub(self.slack)
    }

    /// What is not named yet and is more than noise.
    pub fn suspicious(&self) -> u64 {
        if self.surely_open() > self.doubt { self.surely_open() } else { 0 }
    }

    /// A station whose counters leave open what exactly left.
    pub fn between(mut self, range: Range, fragments: u64) -> Self {
        self.left = range.least.min(MOST);
        self.slack = range.most.min(MOST).saturating_sub(self.left);
        self.fragments = fragments;
        self.pieces = range.pieces;
        self
    }

    /// Decides what left, now that all counters have claimed theirs: the rest went on as far as it can have. Where
    /// fragments were dropped, each may have been of another datagram or all of the same ones.
    fn resolve(&mut self, disputed: &mut u64) {
        let most = self.left.saturating_add(self.slack);
        let went_on = self.open().min(self.slack);
        self.left += went_on;
        self.slack = 0;
        self.doubt = self.doubt.saturating_add(went_on).min(MOST);
        if self.fragments > 1 {
            let counted = self.drops.iter().filter(|drop| drop.source == DropSource::Counter);
            let named: u64 = counted.map(|drop| drop.count).sum();
            let least = named.div_ceil(self.fragments).max(self.entered.saturating_sub(most));
            let too_many = named.saturating_sub(least);
            let too_few = self.pieces.saturating_sub(named).min(*disputed);
            self.doubt = self.doubt.max(too_many).max(too_few);
            *disputed = disputed.saturating_add(too_many);
        }
    }

    /// Names drops that a counter proves, whether or not they fit.
    pub fn prove(&mut self, name: &str, count: u64, evidence: impl Into<String>) {
        self.add(name, count.min(MOST), DropSource::Counter, evidence.into());
    }

    /// Names up to `count` of what is open; without a counter, of what is surely open.
    pub fn claim(&mut self, name: &str, count: u64, source: DropSource, evidence: impl Into<String>) -> u64 {
        let open = if source == DropSource::Counter { self.open() } else { self.surely_open() };
        let count = count.min(open);
        self.add(name, count, source, evidence.into());
        count
    }

    fn add(&mut self, name: &str, count: u64, source: DropSource, evidence: String) {
        if count == 0 {
            return;
        }
        match self.drops.iter_mut().find(|drop| drop.name == name && drop.source == source) {
            Some(drop) => {
                drop.count = (drop.count + count).min(MOST);
                if !drop.evidence.contains(&evidence) {
                    drop.evidence = format!("{}; {evidence}", drop.evidence);
                }
            }
            None => self.drops.push(Drop { name: name.into(), count, source, evidence }),
        }
    }
}

/// Counters that more than one station may draw on, and what was drawn already.
#[derive(Default)]
pub struct Shared {
    drawn: BTreeMap<(String, String), u64>,
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

/// The stations so far.
pub struct Chain {
    pub stations: Vec<Draft>,
    /// `out` of the last one.
    pub at: u64,
    /// Somebody else's frames that were noticed on this leg so far: one may hide a loss that shows only later.
    strangers: u64,
    /// How many others may not have been noticed at any one station.
    disguised: u64,
    /// Datagrams of this leg whose loss was blamed on one fragment and may be that of a later one.
    disputed: u64,
    leg: &'static str,
}

impl Chain {
    /// Begins with what the application tried to send.
    pub fn new(sent: u64) -> Self {
        Chain {
            stations: vec![],
            at: sent.min(MOST),
            strangers: 0,
            disguised: 0,
            disputed: 0,
            leg: "forward",
        }
    }

    /// From here on frames are on their way back.
    pub fn turn(&mut self) {
        self.leg = "back";
        (self.strangers, self.disputed) = (0, 0);
    }

    /// From here on as many frames of others may pass for the test's wherever frames are counted.
    pub fn suspect(&mut self, others: u64) {
        self.disguised = others.min(MOST);
    }

    /// A station whose counter says that `left` went on (more than entered: see [`Chain::close`]).
    pub fn gap(&self, kind: StationKind, node: &str, label: impl Into<Label>, left: u64, doubt: u64) -> Gap {
        Gap {
            kind,
            node: node.into(),
            label: label.into(),
            peer: None,
            entered: self.at,
            left: left.min(MOST),
            slack: 0,
            queued: 0,
            doubt: doubt.max(if counts_frames(kind) { self.disguised } else { 0 }).min(MOST),
            drops: vec![],
            fragments: 1,
            pieces: 0,
        }
    }

    /// Ends a station. Frames of the test do not multiply, so up to `others` frames too many are somebody else's:
    /// they are taken out of `out` (or, if all went on, out of the drops), and the uncertainty says how many. As many may
    /// have hidden a loss before, which a later station then shows: that one is no surer than this.
    pub fn close(&mut self, mut gap: Gap, others: u64) {
        gap.resolve(&mut self.disputed);
        let excess = gap.left.saturating_sub(gap.entered);
        if excess > 0 && excess <= others {
            gap.left = gap.entered;
            gap.doubt = gap.doubt.max(excess);
            self.strangers = self.strangers.max(excess);
        }
        let accounted = gap.drops.iter().map(|drop| i128::from(drop.count)).sum::<i128>()
            + i128::from(gap.left)
            + i128::from(gap.queued);
        let over = (accounted - i128::from(gap.entered)).clamp(0, i128::from(MOST)) as u64;
        if over > 0 && over <= others {
            trim(&mut gap.drops, over);
            gap.doubt = gap.doubt.max(over);
            self.strangers = self.strangers.max(over);
        }
        if gap.open() <= self.strangers {
            gap.doubt = gap.doubt.max(gap.open());
        }
        self.push(gap, None);
    }

    /// A station that the application itself counted: nothing to correct.
    pub fn close_exact(&mut self, gap: Gap) {
        self.push(gap, None);
    }

    /// A station whose counters could not be read: what entered is taken as what left.
    pub fn unknown(
        &mut self,
        kind: StationKind,
        node: &str,
        label: impl Into<Label>,
        why: impl Into<String>,
    ) {
        let gap = self.gap(kind, node, label, self.at, 0);
        self.push(gap, Some(why.into()));
    }

    fn push(&mut self, gap: Gap, unknown: Option<String>) {
        self.at = gap.left;
        let station = Station {
            node: gap.node,
            kind: gap.kind,
            interface: gap.label.interface,
            station: gap.label.name,
            leg: self.leg.into(),
            entered: gap.entered,
            left: gap.left,
            drops: gap.drops,
            queued: gap.queued,
            residual: 0,
            uncertainty: gap.doubt,
            unknown,
        };
        let fragmented = gap.fragments > 1;
        // What a program drops is no death of a buffer.
        let unseen = gap.kind == StationKind::Program;
        let mut draft = Draft { peer: gap.peer, fragmented, unseen, by_witness: vec![], station };
        draft.settle();
        self.stations.push(draft);
    }
}

/// Takes so many frames out of the largest drops.
fn trim(drops: &mut Vec<Drop>, mut over: u64) {
    while over > 0 {
        let Some(largest) = drops.iter_mut().max_by_key(|drop| drop.count).filter(|drop| drop.count > 0)
        else {
            break;
        };
        let taken = over.min(largest.count);
        largest.count -= taken;
        over -= taken;
    }
    drops.retain(|drop| drop.count > 0);
}
