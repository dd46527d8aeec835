//! The batch that a receiver lends: which frames are wanted, how much of each, and the count of both.

use super::batch::{Batch, Home, MAX_BATCH, Meta, Slot};
use super::{PortOptions, ReceiveCounters, Stamp, StampSource};
use crate::sys::clock;
use std::io;
use wire::filter::Program;
use wire::offload::Offload;

/// Bytes left free before a frame that was read, so that headers can be added.
const HEADROOM: usize = 64;
/// Memory for the frames of one batch that are read: 512 ordinary ones, or 15 of the longest.
const ROOM: usize = 1 << 20;

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

/// A batch whose frames are read one by one into memory of the receiver's own.
pub(in crate::port) struct Reader {
    pub batch: BatchBuilder,
    memory: Vec<u8>,
    /// Bytes of the memory that hold frames of this batch.
    used: usize,
    longest: usize,
}

impl Reader {
    /// For frames of at most so many bytes.
    pub fn new(wish: &PortOptions, longest: usize) -> Reader {
        Reader { batch: BatchBuilder::new(wish), memory: vec![0; ROOM], used: 0, longest }
    }

    /// Begins the next batch.
    pub fn clear(&mut self) {
        (self.used, _) = (0, self.batch.slots.clear());
    }

    /// Reads the frames that are there and adds those that are wanted: `read` says how long one is and what is left to do to it, or
    /// `None` for one that shall not be lent. False: the batch is full.
    ///
    /// # Errors
    /// What `read` says, but for `EAGAIN` and `EINTR`.
    pub fn drain(
        &mut self,
        limit: usize,
        mut read: impl FnMut(&mut [u8]) -> io::Result<Option<(usize, Offload)>>,
    ) -> io::Result<bool> {
        while self.batch.slots.len() < limit && self.used + HEADROOM + self.longest <= ROOM {
            let start = self.used + HEADROOM;
            match read(&mut self.memory[start..]) {
                Ok(Some((length, offload))) => self.add(start, length, offload),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn add(&mut self, start: usize, length: usize, offload: Offload) {
        let frame = &mut self.memory[start..start + length];
        let wanted = self.batch.wanted(frame, length as u32);
        if wanted > 0 {
            let meta = Meta { wire_length: length as u32, offload, ..Meta::default() };
            self.batch.add(Slot::lent(frame, HEADROOM as u32, meta), wanted);
            self.used = (start + length).next_multiple_of(64);
        }
    }

    /// Lends what was read, with the time of now.
    pub fn lend(&mut self) -> Batch<'_> {
        let stamp = Stamp { ns: clock::realtime_ns(), source: StampSource::User };
        self.batch.slots.iter_mut().for_each(|slot| slot.meta.stamp = stamp);
        self.batch.lend()
    }
}
