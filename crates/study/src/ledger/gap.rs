//! A station while it is settled: what entered, what an independent counter says left, and what is still to
//! be named.
//!
//! Names are claimed from a [`Gap`] in the order of certainty. Because every number is bounded by [`MOST`],
//! sums over a path fit an `i64` with room to spare, whatever the counters said.

use super::window::MOST;
use record::{Drop, DropSource, drop};

/// What left a station: when its counter counts super-frames or fragments, that much is not known.
pub struct Left {
    pub least: u64,
    pub most: u64,
    /// How far the counter may be off.
    pub doubt: u64,
    /// In how many buffers each datagram was counted.
    pub fragments: u64,
    /// Fragments that were lost there.
    pub pieces: u64,
}

impl Left {
    /// A count of datagrams.
    pub fn exactly(count: u64, doubt: u64) -> Self {
        Left::between(count, count, doubt)
    }

    /// A count of datagrams that is known within bounds.
    pub fn between(least: u64, most: u64, doubt: u64) -> Self {
        Left { least, most, doubt, fragments: 1, pieces: 0 }
    }

    /// The same, from a counter that counts fragments.
    pub fn of_fragments(self, fragments: u64) -> Self {
        Left { fragments, ..self }
    }
}

/// A station being settled.
pub struct Gap {
    pub node: String,
    pub entered: u64,
    /// What left it by the counter, at the least.
    pub offered: u64,
    /// What surely left.
    pub left: u64,
    /// How many more may have left: what no counter claims of them did.
    pub slack: u64,
    pub queued: i64,
    /// Copies that were made here.
    pub made: u64,
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
        (self.open_with_the_queue() - i128::from(self.queued)).clamp(0, i128::from(MOST)) as u64
    }

    /// The same as if nothing were queued: a queue holds others' frames, too.
    pub fn open_but_for_the_queue(&self) -> u64 {
        self.open_with_the_queue().clamp(0, i128::from(MOST)) as u64
    }

    /// What neither left nor is named a drop; below zero when more is.
    fn open_with_the_queue(&self) -> i128 {
        let named: u64 = self.drops.iter().map(|drop| drop.count).sum();
        i128::from(self.entered) + i128::from(self.made) - i128::from(self.left) - i128::from(named)
    }

    /// What is not named yet and did not leave in any case.
    pub fn surely_open(&self) -> u64 {
        self.open().saturating_sub(self.slack)
    }

    /// What is not named yet and is more than noise.
    pub fn suspicious(&self) -> u64 {
        if self.surely_open() > self.doubt { self.surely_open() } else { 0 }
    }

    /// Decides what left, now that all counters have claimed theirs: the rest went on as far as it can have.
    /// Where fragments were dropped, each may have been of another datagram or all of the same ones.
    pub fn resolve(&mut self, disputed: &mut u64) {
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

    /// Frames that were not on their way to the receiver ended here: as many as were made on the way are copies, whatever
    /// they died of, and no loss. Says how many.
    pub fn end_of_copies(&mut self, made: u64) -> u64 {
        let ended = self.entered.saturating_sub(self.left).min(made);
        if ended == 0 {
            return 0;
        }
        let died: Vec<String> =
            self.drops.iter().map(|drop| format!("{} of {}", drop.count, drop.name)).collect();
        trim(&mut self.drops, ended);
        let evidence = format!("{} is not on the way to the receiver; {}", self.node, died.join(", "));
        self.add(drop::COPY, ended, DropSource::Counter, evidence.trim_end_matches("; ").to_owned());
        ended
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

/// Takes so many frames out of the largest drops.
pub fn trim(drops: &mut Vec<Drop>, mut over: u64) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_a_drop_did_not_wait_in_the_queue() {
        let drops = |count| {
            let evidence = String::new();
            vec![Drop { name: "qdisc_full".into(), count, source: DropSource::Witness, evidence }]
        };
        let gap = |named| Gap {
            node: "s".into(),
            entered: 6000,
            offered: 1936,
            left: 1936,
            slack: 0,
            queued: 1,
            made: 0,
            doubt: 0,
            drops: drops(named),
            fragments: 0,
            pieces: 0,
        };
        let both = |named| (gap(named).open(), gap(named).open_but_for_the_queue());
        assert_eq!([both(4062), both(4063), both(4064), both(4065)], [(1, 2), (0, 1), (0, 0), (0, 0)]);
    }
}
