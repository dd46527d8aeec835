//! Frames of one flow leave `int:` as super-frames (`?join=N`).
//!
//! **What.** Before the system call, neighbours in a batch that differ in nothing but what cutting restores
//! ([`wire::offload::Join`]) are copied into one super-frame; everything else is sent as it is. What the receiver gets
//! is the same, frame by frame.
//!
//! **Why.** One trip through the kernel's transmit path for up to 64 frames.
//!
//! **Price.** Every byte is copied and summed once. A full qdisc drops a whole super-frame; each of its frames is counted.

use super::super::batch::{Home, MAX_BATCH, Meta, Slot};
use std::ptr::NonNull;
use wire::offload::{Join, Offload};

/// What a batch became.
#[derive(Debug)]
pub(super) struct Joiner {
    most: usize,
    memory: Vec<u8>,
    /// Frames and super-frames; those of more than one frame lie in `memory`.
    pub slots: Vec<Slot>,
    /// How many frames each slot stands for.
    pub weights: Vec<u16>,
}

/// A run of frames that belong together.
struct Run {
    join: Join,
    /// Where the super-frame begins in the memory.
    from: usize,
}

impl Joiner {
    /// Joins up to `most` frames at a time.
    pub fn new(most: usize) -> Joiner {
        Joiner {
            most,
            memory: vec![],
            slots: Vec::with_capacity(MAX_BATCH),
            weights: Vec::with_capacity(MAX_BATCH),
        }
    }

    /// Joins what belongs together of these frames of a batch, in their order.
    pub fn fill(&mut self, slots: &[Slot], which: &[u16]) {
        self.memory.clear();
        self.slots.clear();
        self.weights.clear();
        let mut run: Option<(Run, &Slot)> = None;
        for &index in which {
            let slot = &slots[usize::from(index)];
            let bytes = slot.bytes();
            if let Some((run, first)) = &mut run
                && let Some(payload) =
                    joinable(slot, bytes).then(|| run.join.add(first.bytes(), bytes, self.most)).flatten()
            {
                self.memory.extend_from_slice(payload);
                continue;
            }
            if let Some((run, first)) = run.take() {
                self.close(run, first);
            }
            run = joinable(slot, bytes).then(|| Join::begin(bytes)).flatten().map(|join| {
                let from = self.memory.len();
                self.memory.extend_from_slice(bytes);
                (Run { join, from }, slot)
            });
            if run.is_none() {
                self.add(slot, slot.data, slot.length, slot.meta.offload, 1);
            }
        }
        if let Some((run, first)) = run {
            self.close(run, first);
        }
        self.aim();
    }

    fn close(&mut self, run: Run, first: &Slot) {
        let count = run.join.count();
        if count == 1 {
            self.memory.truncate(run.from);
            return self.add(first, first.data, first.length, first.meta.offload, 1);
        }
        let frame = &mut self.memory[run.from..];
        let offload = run.join.finish(frame);
        let length = frame.len() as u32;
        // The memory may still move: `aim` sets the pointer.
        self.add(first, NonNull::dangling(), length, offload, count as u16);
    }

    fn add(&mut self, first: &Slot, data: NonNull<u8>, length: u32, offload: Offload, weight: u16) {
        let meta = Meta { offload, ..first.meta };
        let home = if first.home == Home::Taken { Home::Taken } else { Home::Lent };
        self.slots.push(Slot { data, length, headroom: 0, tailroom: 0, home, meta });
        self.weights.push(weight);
    }

    /// Points the super-frames to their bytes.
    fn aim(&mut self) {
        let mut rest = &mut self.memory[..];
        for (slot, _) in self.slots.iter_mut().zip(&self.weights).filter(|(_, weight)| **weight > 1) {
            let (frame, behind) = rest.split_at_mut(slot.length as usize);
            slot.data = NonNull::from(frame).cast();
            rest = behind;
        }
    }
}

/// True for a frame that is here, whole, with nothing left to do.
fn joinable(slot: &Slot, bytes: &[u8]) -> bool {
    !bytes.is_empty() && slot.meta.offload.is_complete() && slot.meta.wire_length <= slot.length
}
