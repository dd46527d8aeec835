//! The chain of stations: each one's `in` is the `out` of the one before.

use super::book::Readings;
use super::gap::{Gap, Left, trim};
use super::station::{Counts, Station as Row};
use super::visit::{Place, Visit};
use super::window::MOST;
use crate::way::Section;
use record::{NodeRole, Station, StationKind};

/// A station and what the record of it does not keep.
#[derive(Clone)]
pub struct Draft {
    /// What it is a station of.
    pub row: &'static Row,
    /// The node at the other end of the link, where a frame may already count as dropped.
    pub peer: Option<String>,
    /// Fragments are counted or were lost here, of which the witness recognises only the first.
    pub fragmented: bool,
    /// The witness cannot see or recognise what dies here.
    pub unseen: bool,
    /// What entered and left was counted by the flow's own counters.
    pub is_counted: bool,
    /// What the witness alone named, by its reason.
    pub by_witness: Vec<(String, u64)>,
    pub station: Station,
}

impl Draft {
    /// `in + made − out − drops − queued`.
    pub fn settle(&mut self) {
        let station = &mut self.station;
        let drops: i128 = station.drops.iter().map(|drop| i128::from(drop.count)).sum();
        let residual = i128::from(station.entered) + i128::from(station.made)
            - i128::from(station.left)
            - drops
            - i128::from(station.queued);
        station.residual = i64::try_from(residual).expect("every term is bounded");
    }
}

/// The stations so far.
#[derive(Clone)]
pub struct Chain {
    pub stations: Vec<Draft>,
    /// `out` of the last one.
    pub at: u64,
    /// Somebody else's frames that were noticed on this leg so far: one may hide a loss that shows only
    /// later.
    strangers: u64,
    /// How many others may not have been noticed at any one station.
    disguised: u64,
    /// Datagrams of this leg whose loss was blamed on one fragment and may be that of a later one.
    disputed: u64,
    leg: &'static str,
    /// Copies that were made so far and have not ended elsewhere.
    made: u64,
    /// The most that can be queued in the section: its queues hold others' frames, too.
    queued: u64,
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
            made: 0,
            queued: MOST,
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

    /// Settles a station, if the path has it there: what left by its counter, what claims the rest, what is
    /// others'.
    pub fn settle(&mut self, book: &mut Readings, row: &'static Row, at: &Visit) {
        if !row.on.contains(&at.spot) || !(row.when)(book, at) {
            return;
        }
        let (places, why) = row.needs;
        let left = match places.iter().all(|place| at.interface(*place).is_some()) {
            true => (row.left)(book, at, self.at),
            false => Err(why.to_owned()),
        };
        match left {
            // What entered is taken as what left.
            Err(why) => self.push(row, at, self.gap(row, at, Left::exactly(self.at, 0)), Some(why)),
            Ok(left) => {
                let mut gap = self.gap(row, at, left);
                row.claims.iter().for_each(|claim| claim.make(book, &mut gap, at));
                if row.counts != Counts::Own {
                    let others = book.others(gap.entered, gap.doubt).saturating_add((row.strangers)(at));
                    self.close(&mut gap, others.min(MOST));
                }
                self.push(row, at, gap, None);
            }
        }
    }

    /// Which leg it is on.
    pub fn leg(&self) -> &'static str {
        self.leg
    }

    /// Settles the stations of a section between counters of the flow itself: what entered and what left is known to the
    /// frame, whoever else was there.
    pub fn cross(&mut self, book: &mut Readings, section: &Section, rows: &[&'static Row]) {
        self.queued = MOST;
        if section.hop.role == NodeRole::Forwarder && !section.is_link {
            self.queued = self.unexplained(book, section, rows);
        }
        self.cross_with_queues(book, section, rows);
    }

    /// What would be left of the section if nothing were queued in it. A program's socket holds others' frames, too, so what a later
    /// station of the section names is not what waits at the first.
    fn unexplained(&self, book: &Readings, section: &Section, rows: &[&'static Row]) -> u64 {
        let (mut trial, mut readings) = (Chain { queued: 0, ..self.clone() }, book.clone());
        trial.cross_with_queues(&mut readings, section, rows);
        let drafts = trial.stations.iter_mut().skip(self.stations.len());
        let residuals = drafts.map(|draft| {
            draft.settle();
            u64::try_from(draft.station.residual).unwrap_or(0)
        });
        residuals.sum::<u64>().min(MOST)
    }

    fn cross_with_queues(&mut self, book: &mut Readings, section: &Section, rows: &[&'static Row]) {
        self.at = match section.hop.role {
            NodeRole::Sender => self.at.saturating_add(section.entered),
            _ => section.entered,
        };
        let at = Visit::hop(&section.hop, section.next.as_ref(), book.input.receiver);
        for row in rows {
            let is_of_link = matches!(row.kind, StationKind::Qdisc | StationKind::Link);
            if is_of_link == section.is_link && row.on.contains(&at.spot) && (row.when)(book, &at) {
                self.settle_counted(book, row, &at, section);
            }
        }
    }

    fn settle_counted(&mut self, book: &mut Readings, row: &'static Row, at: &Visit, section: &Section) {
        let mut gap = self.gap(row, at, Left::exactly(section.left.min(MOST), 0));
        // What an interface that came during the test may not have counted.
        gap.doubt = section.uncounted.max(section.disputed).min(MOST);
        // What the witness saw of the flow died here although no less left: as much more was made.
        let excess = gap.left.saturating_sub(gap.entered).saturating_sub(section.uncounted.min(MOST));
        let died = book.pool.here(row.witness, at, &book.holding(at));
        if excess > 0 {
            gap.made = excess.saturating_add(died).min(MOST);
        } else if row.kind == StationKind::Qdisc && book.may_duplicate(at) {
            gap.made = gap.left.saturating_add(died).saturating_sub(gap.entered).min(MOST);
        }
        let (left, holding) = (gap.left, book.holding(at));
        for claim in row.claims {
            let (open, before) = (gap.open(), gap.drops.clone());
            let unseen = book.pool.unseen(open, section.incomplete, row.witness, at, &holding);
            claim.make(book, &mut gap, at);
            if !row.shares {
                gap.left = left; // it was counted, whatever others conclude
            }
            // What a program drops, or a port, is no death of a buffer.
            if !matches!(row.kind, StationKind::Program | StationKind::Tap) {
                book.pool.confirm(&mut gap, at, (open, unseen), &before);
            }
        }
        let most = gap.open_but_for_the_queue().min(self.queued);
        gap.queued = gap.queued.clamp(0, i64::try_from(most).unwrap_or(i64::MAX));
        let mut by_witness = book.pool.name(&mut gap, row.witness, at, &holding);
        if row.shares {
            gap.left = gap.left.saturating_add(gap.open());
        }
        if row.kind == StationKind::Link {
            gap.doubt = gap.doubt.max(gap.open().min(book.unsettled)); // may still wait for a CPU
        }
        self.made += gap.made;
        if section.is_off_the_way && !section.is_link {
            let ended = gap.end_of_copies(self.made);
            self.made -= ended;
            if ended > 0 {
                by_witness = book.pool.seen_here(row.witness, at, &holding);
            }
        }
        self.push(row, at, gap, None);
        let pushed = self.stations.last_mut().expect("it was just pushed");
        (pushed.is_counted, pushed.by_witness) = (true, by_witness);
        pushed.fragmented = section.incomplete > 0;
    }

    fn gap(&self, row: &Row, at: &Visit, left: Left) -> Gap {
        let Left { least: offered, most, doubt, fragments, pieces } = left;
        let least = offered.min(MOST);
        let disguised = if row.counts == Counts::Frames { self.disguised } else { 0 };
        Gap {
            node: at.node.into(),
            entered: self.at,
            offered,
            left: least,
            slack: most.min(MOST).saturating_sub(least),
            queued: 0,
            made: 0,
            doubt: doubt.max(disguised).min(MOST),
            drops: vec![],
            fragments,
            pieces,
        }
    }

    /// Ends a station. Frames of the test do not multiply, so up to `others` frames too many are somebody
    /// else's: they are taken out of `out` (or, if all went on, out of the drops), and the uncertainty says
    /// how many. As many may have hidden a loss before, which a later station then shows: that one is no
    /// surer than this.
    fn close(&mut self, gap: &mut Gap, others: u64) {
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
    }

    fn push(&mut self, row: &'static Row, at: &Visit, gap: Gap, unknown: Option<String>) {
        self.at = gap.left;
        let station = Station {
            node: gap.node,
            kind: row.kind,
            interface: at.interface(row.place).map(str::to_owned),
            station: row.name(at),
            leg: self.leg.into(),
            entered: gap.entered,
            left: gap.left,
            drops: gap.drops,
            queued: gap.queued,
            made: gap.made,
            residual: 0,
            uncertainty: gap.doubt,
            unknown,
        };
        let fragmented = gap.fragments > 1;
        // What a program drops is no death of a buffer.
        let unseen = row.kind == StationKind::Program;
        let peer = at.next.filter(|_| row.place == Place::Wire).map(|next| next.node.clone());
        let mut draft =
            Draft { row, peer, fragmented, unseen, is_counted: false, by_witness: vec![], station };
        draft.settle();
        self.stations.push(draft);
    }
}
