//! A station is a row; one driver settles them all.
//!
//! **What.** A [`Station`] says where it stands, what left it by an independent counter ([`Station::left`]),
//! and what may claim the rest, in the order of certainty ([`Station::claims`]).
//! [`Chain::settle`](super::chain::Chain::settle) makes the record of it. What the witness alone may name,
//! and the tables in `docs/ledger.md`, are in the same rows.
//!
//! **Price.** What no [`Claim`] can say is a function in a row ([`Claim::By`]), with the names that it gives
//! beside it.

use super::book::Readings;
use super::gap::{Gap, Left};
use super::visit::{Place, Spot, Visit};
use super::window::MOST;
use record::{DropSource, StationKind, drop};

/// What the counter behind a station counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// The test's own messages, by the application itself: there is nothing to correct.
    Own,
    /// Messages of a protocol, whosever they are.
    Messages,
    /// Frames, whosever they are.
    Frames,
}

/// What may have a part of what did not leave a station.
#[derive(Clone, Copy)]
pub enum Claim {
    /// A counter of IP over IPv4 and over IPv6, and the name that it gives.
    Counter(&'static str, &'static str, &'static str),
    /// A counter of the interface at a place, and the name.
    Interface(Place, &'static str, &'static str),
    /// A filter that drops at one of these hooks, in one of these families.
    Filter(&'static [&'static str], &'static [&'static str]),
    /// A neighbour that does not answer; frames that came back by the ingress were counted with those that
    /// left, or not.
    Neighbour { with_returned: bool },
    /// The state of the interface at a place: it is down.
    Down(Place),
    /// The states of the interfaces at these places: down, too small an MTU, a bridge's port that does not
    /// forward.
    Ports(&'static [Place]),
    /// All of these.
    All(&'static [Claim]),
    /// All of these, where something holds.
    When(Condition, &'static [Claim]),
    /// What needs a reckoning of its own, and the names that it may give.
    By(
        #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is compared with it"))]
        &'static [&'static str],
        fn(&mut Readings, &mut Gap, &Visit),
    ),
}

type Condition = fn(&Readings, &Gap, &Visit) -> bool;

/// More is missing than noise.
pub fn suspicious(_: &Readings, gap: &Gap, _: &Visit) -> bool {
    gap.suspicious() > 0
}

impl Claim {
    pub fn make(&self, book: &mut Readings, gap: &mut Gap, at: &Visit) {
        match *self {
            Claim::Counter(v4, v6, name) => book.draw(gap, v4, v6, name),
            Claim::Interface(place, counter, name) => {
                if let Some(interface) = at.interface(place) {
                    book.draw_link(gap, interface, counter, name);
                }
            }
            Claim::Filter(hooks, families) => book.blame_filter(gap, hooks, families),
            Claim::Neighbour { with_returned } => book.blame_neighbour(gap, at, with_returned),
            Claim::Down(place) => {
                if let Some(trouble) = book.trouble(at, place).filter(|_| gap.suspicious() > 0) {
                    gap.claim(drop::LINK_DOWN, MOST, DropSource::State, trouble);
                }
            }
            Claim::Ports(places) => book.blame_ports(gap, at, places),
            Claim::All(claims) => claims.iter().for_each(|claim| claim.make(book, gap, at)),
            Claim::When(holds, claims) => {
                if holds(book, gap, at) {
                    claims.iter().for_each(|claim| claim.make(book, gap, at));
                }
            }
            Claim::By(_, reckon) => reckon(book, gap, at),
        }
    }
}

/// What the witness alone may name in a program.
pub const IN_A_PROGRAM: &[&str] =
    &[drop::QDISC_FULL, drop::LINK_DOWN, drop::SOCKET_BUFFER_FULL, drop::RING_FULL];

/// The same at its way out, where a filter may stand.
pub const OUT_OF_A_PROGRAM: &[&str] =
    &[drop::FILTER, drop::QDISC_FULL, drop::LINK_DOWN, drop::SOCKET_BUFFER_FULL, drop::RING_FULL];

/// A row of the ledger.
#[derive(Clone, Copy)]
pub struct Station {
    pub kind: StationKind,
    /// What it is called, without its interface.
    pub word: &'static str,
    pub place: Place,
    /// Where on the path it stands.
    pub on: &'static [Spot],
    /// Whether the frames of this test pass it there.
    pub when: fn(&Readings, &Visit) -> bool,
    /// The places whose interfaces must be known, and what is said where one is not.
    pub needs: (&'static [Place], &'static str),
    /// What left it, of so much that entered; or why that is not known.
    pub left: fn(&mut Readings, &Visit, u64) -> Result<Left, String>,
    pub claims: &'static [Claim],
    pub counts: Counts,
    /// Where the flow itself was counted, it was counted behind the next station: here stays what is named here.
    pub shares: bool,
    /// Others' frames that it counts and that are known to be that.
    pub strangers: fn(&Visit) -> u64,
    /// What the witness alone may name here.
    pub witness: &'static [&'static str],
    /// For the documentation: what enters, what leaves, and what is to be known of its drops.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is compared with it"))]
    pub says: [&'static str; 3],
}

impl Station {
    /// A row that has only its place.
    pub const fn new(kind: StationKind, word: &'static str, place: Place) -> Self {
        Station {
            kind,
            word,
            place,
            on: &[],
            when: |_, _| true,
            needs: (&[], ""),
            left: |_, _, entered| Ok(Left::exactly(entered, 0)),
            claims: &[],
            counts: Counts::Frames,
            shares: false,
            strangers: |_| 0,
            witness: &[],
            says: [""; 3],
        }
    }

    /// `qdisc` at `eth0` is `qdisc eth0`.
    pub fn name(&self, at: &Visit) -> String {
        match (self.place, at.interface(self.place)) {
            (Place::Ingress | Place::Bridge, None) => format!("{} ?", self.word),
            (_, None) => self.word.to_owned(),
            (_, Some(interface)) => format!("{} {interface}", self.word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{STATIONS, frames};
    use super::*;

    const DOCS: &str = include_str!("../../../../docs/ledger.md");

    /// The names that it may give.
    fn names(claim: &Claim) -> Vec<String> {
        let of_all = |claims: &[Claim]| claims.iter().flat_map(names).collect();
        let known = |known: &[&str]| known.iter().map(|name| label(name)).collect();
        match *claim {
            Claim::Counter(_, _, name) | Claim::Interface(_, _, name) => known(&[name]),
            Claim::Filter(hooks, _) => hooks.iter().map(|hook| format!("`{}`", drop::filter(hook))).collect(),
            Claim::Neighbour { .. } => known(&[drop::NEIGHBOUR_UNRESOLVED]),
            Claim::Down(_) => known(&[drop::LINK_DOWN]),
            Claim::Ports(places) if places.contains(&Place::Bridge) => {
                let of_bridge = [drop::PORT_NOT_FORWARDING, drop::PORT_ISOLATED, drop::PORT_LOCKED];
                known(&[&[drop::LINK_DOWN, drop::MTU_EXCEEDED], &of_bridge[..]].concat())
            }
            Claim::Ports(_) => known(&[drop::LINK_DOWN, drop::MTU_EXCEEDED]),
            Claim::All(claims) | Claim::When(_, claims) => of_all(claims),
            Claim::By(names, _) => known(names),
        }
    }

    /// Its row in the documentation.
    fn documented(station: &Station) -> String {
        let place = match station.place {
            Place::Node => "",
            Place::Bridge => " BR",
            Place::Ingress | Place::Egress | Place::Wire => " IF",
        };
        let mut drops: Vec<String> = vec![];
        for name in station.claims.iter().flat_map(names) {
            if !drops.contains(&name) {
                drops.push(name);
            }
        }
        let [entered, left, more] = station.says;
        let drops = [drops.join(", "), more.to_owned()];
        let drops = drops.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(". ");
        format!("| `{}{place}` | {entered} | {left} | {drops} |\n", station.word)
    }

    /// The name of a drop as the documentation has it.
    fn label(name: &str) -> String {
        match drop::find(name) {
            Some(row) if row.is_family && row.name == name => {
                format!("`{name}_{}`", if name == drop::FILTER { "HOOK" } else { "NAME" })
            }
            _ => format!("`{name}`"),
        }
    }

    /// The table of stations in the documentation.
    fn table(stations: &[&Station]) -> String {
        let head = "| station | in | out (counter) | drops it may name |\n|---|---|---|---|\n";
        head.to_owned() + &stations.iter().map(|station| documented(station)).collect::<String>()
    }

    /// The table of what the witness alone may name, in the documentation.
    fn witness_table(stations: &[&'static Station]) -> String {
        let mut rows: Vec<(Vec<String>, &[&str])> = vec![];
        for station in stations.iter().filter(|station| !station.witness.is_empty()) {
            let word = format!("`{}`", station.word);
            match rows.iter_mut().find(|(_, names)| *names == station.witness) {
                Some((words, _)) if words.contains(&word) => {}
                Some((words, _)) => words.push(word),
                None => rows.push((vec![word], station.witness)),
            }
        }
        let row = |(words, names): (Vec<String>, &[&str])| {
            let names: Vec<String> = names.iter().map(|name| label(name)).collect();
            format!("| {} | {} |\n", words.join(", "), names.join(", "))
        };
        let head = "| station | what the witness alone may name |\n|---|---|\n";
        head.to_owned() + &rows.into_iter().map(row).collect::<String>()
    }

    #[test]
    fn the_documentation_has_the_tables() {
        // Some stations only raw frames pass; they have a table of their own.
        let of_frames = [&frames::APP_SEND, &frames::PATH_TO, &frames::PORT, &frames::TAP];
        let is_of_frames = |station: &&&Station| of_frames.iter().any(|only| only.says == station.says);
        let (frames, datagrams): (Vec<&Station>, Vec<&Station>) = STATIONS.iter().partition(is_of_frames);
        let tables = [table(&datagrams), table(&frames), witness_table(STATIONS)];
        let missing: Vec<String> = tables.into_iter().filter(|table| !DOCS.contains(table)).collect();
        assert!(missing.is_empty(), "docs/ledger.md must have these tables:\n\n{}", missing.join("\n"));
    }

    #[test]
    fn every_name_of_a_station_has_a_row_that_tells_the_station() {
        let mut untold = vec![];
        for station in STATIONS {
            let place = documented(station);
            let place = place.split('`').nth(1).unwrap();
            for name in station.claims.iter().flat_map(names) {
                let name = name.trim_matches('`').trim_end_matches("_NAME");
                let row = drop::find(name).unwrap_or_else(|| panic!("{name} of {place}"));
                let told =
                    row.place.contains(&format!("`{place}`")) || row.place.starts_with("every station");
                if !told {
                    untold.push(format!("{name} at {place}"));
                }
            }
            assert!(station.witness.iter().all(|name| drop::find(name).is_some()), "{place}");
        }
        assert!(untold.is_empty(), "the rows of record::drop do not tell: {untold:?}");
    }
}
