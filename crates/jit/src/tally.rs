//! What one thread counted, and how it comes back to the pipeline.
//!
//! **What.** A [`Tally`] has counters by *slot*, the number of a rule that [`Slots`] gives once and never again, misses by table, and
//! the counters of ports; [`SlotPlaces`] knows which rule each slot is of. [`Tally::credit`] adds all of it to the pipeline and begins anew.
//!
//! **Why.** Threads count without a lock. A rule that frames did not touch costs nothing when the counters are read: the slots that
//! were touched are in a list.
//!
//! **Price.** Who reads counters, lets rules expire, or removes rules, credits all tallies first; until then the pipeline knows too
//! little. What was counted for a rule that is gone is the table's only.

use flow::port::PortCounters;
use flow::rule::RulePosition;
use flow::{Pipeline, PortNo};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Places of a part of the slots.
const PART: usize = 1024;

/// A table and a place in it.
type RulePlace = (u8, RulePosition);

/// Which rule each slot is of. A clone shares all full parts: every program has one.
#[derive(Debug, Clone, Default)]
pub struct SlotPlaces {
    parts: Vec<Arc<Vec<RulePlace>>>,
}

impl SlotPlaces {
    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.parts.last().map_or(0, |last| (self.parts.len() - 1) * PART + last.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn get(&self, slot: usize) -> Option<&RulePlace> {
        self.parts.get(slot / PART)?.get(slot % PART)
    }

    fn push(&mut self, place: RulePlace) {
        if self.len() == self.parts.len() * PART {
            self.parts.push(Arc::new(Vec::with_capacity(PART)));
        }
        if let Some(last) = self.parts.last_mut() {
            Arc::make_mut(last).push(place);
        }
    }
}

/// Gives slots: each rule has one, and none is given twice.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    /// Which rule each is of.
    pub places: SlotPlaces,
    numbers: HashMap<RulePlace, u32>,
}

impl Slots {
    /// The slot of the rule at this place of this table; a new one for a new place.
    pub fn of(&mut self, table: u8, at: RulePosition) -> u32 {
        let next = self.places.len() as u32;
        *self.numbers.entry((table, at)).or_insert_with(|| {
            self.places.push((table, at));
            next
        })
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct RuleCount {
    frames: u64,
    bytes: u64,
    used_ns: u64,
}

/// The counters of one thread.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    rules: Vec<RuleCount>,
    touched: Vec<u32>,
    misses: BTreeMap<u8, u64>,
    ports: Vec<PortCounters>,
    /// Ports with a number up to [`PORTS`] are found by it.
    others: BTreeMap<u32, PortCounters>,
    /// Frames that code dealt with, and frames that it handed to the interpreter.
    pub done: u64,
    /// Frames that the interpreter has to take.
    pub exits: u64,
}

/// The largest number of a port whose counters stand in a list.
const PORTS: usize = 1024;

impl Tally {
    /// So many frames with so many bytes matched the rule of this slot.
    pub fn rule(&mut self, slot: u32, now: u64, frames: u64, bytes: u64) {
        let at = slot as usize;
        if at >= self.rules.len() {
            self.rules.resize((at + 1).next_multiple_of(1024), RuleCount::default());
        }
        let count = &mut self.rules[at];
        if count.frames == 0 {
            self.touched.push(slot);
        }
        count.frames += frames;
        count.bytes += bytes;
        count.used_ns = count.used_ns.max(now);
    }

    /// So many frames matched no rule of the table.
    pub fn miss(&mut self, table: u8, frames: u64) {
        *self.misses.entry(table).or_default() += frames;
    }

    /// The counters of a port.
    pub fn port(&mut self, port: PortNo) -> &mut PortCounters {
        let at = port.0 as usize;
        if at >= PORTS {
            return self.others.entry(port.0).or_default();
        }
        if at >= self.ports.len() {
            self.ports.resize(at + 1, PortCounters::default());
        }
        &mut self.ports[at]
    }

    /// Begins anew.
    pub fn forget(&mut self) {
        self.touched.drain(..).for_each(|slot| self.rules[slot as usize] = RuleCount::default());
        self.misses.clear();
        self.ports.clear();
        self.others.clear();
    }

    /// Adds everything to the pipeline, and begins anew.
    pub fn credit(&mut self, places: &SlotPlaces, pipeline: &mut Pipeline) {
        for slot in self.touched.drain(..) {
            let count = std::mem::take(&mut self.rules[slot as usize]);
            let Some((table, at)) = places.get(slot as usize) else { continue };
            pipeline.credit_rule(*table, *at, count.used_ns, count.frames, count.bytes);
        }
        for (table, frames) in std::mem::take(&mut self.misses) {
            pipeline.credit_misses(table, frames);
        }
        let listed = (0u32..).zip(self.ports.drain(..));
        for (number, counters) in listed.chain(std::mem::take(&mut self.others)) {
            pipeline.credit_port(PortNo(number), &counters);
        }
    }
}
