//! The batch that a receiver lends: which frames are wanted, how much of each, and the count of both.

use super::batch::{Batch, Home, MAX_BATCH, Slot};
use super::{PortOptions, ReceiveCounters};
use wire::filter::Program;

/// The frames of a batch while they are received.
#[derive(Debug)]
pub(in crate::port) struct BatchBuilder {
    filter: Option<Program>,
    snap: u32,
    pub slots: Vec<Slot>,
    pub counters: ReceiveCounters,
}

impl BatchBuilder {
    /// By what was wished.
    pub fn new(wish: &PortOptions) -> BatchBuilder {
        BatchBuilder {
            filter: wish.filter.clone(),
            snap: wish.snap.unwrap_or(u32::MAX),
            slots: Vec::with_capacity(MAX_BATCH),
            counters: ReceiveCounters::default(),
        }
    }

    /// How many bytes of a frame are wanted at most where the filter has run already.
    pub fn snap(&self) -> u32 {
        self.snap
    }

    /// How many bytes of the frame are wanted at most; 0: none of it.
    #[inline]
    pub fn wanted(&self, bytes: &[u8], wire_length: u32) -> u32 {
        self.filter.as_ref().map_or(self.snap, |filter| filter.run(bytes, wire_length).min(self.snap))
    }

    /// Adds a frame, cut to so many bytes, and counts it.
    #[inline]
    pub fn add(&mut self, mut slot: Slot, limit: u32) {
        if slot.length > limit {
            slot.tailroom += slot.length - limit;
            slot.length = limit;
        }
        self.counters.frames += 1;
        self.counters.bytes += u64::from(slot.meta.wire_length);
        self.counters.cut += u64::from(slot.meta.wire_length > slot.length);
        self.slots.push(slot);
    }

    /// Empties the batch: the chunks that no transmitter took.
    pub fn take_back(&mut self) -> impl Iterator<Item = u32> {
        self.slots.drain(..).filter_map(|slot| match slot.home {
            Home::Chunk { number, .. } => Some(number),
            _ => None,
        })
    }

    /// Lends what was added.
    pub fn lend(&mut self) -> Batch<'_> {
        Batch::new(&mut self.slots)
    }
}
