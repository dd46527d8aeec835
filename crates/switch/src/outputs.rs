//! What an engine says becomes of a batch: which frame leaves by which port and queue.
//!
//! **What.** [`Outputs`] is a list of places where frames leave. Each names a frame of the batch (as it lies
//! there when the engine is done: unchanged, or edited in place) or a copy that was kept here because the
//! frame leaves in several forms.
//!
//! **Why.** The port that sends may take the memory of a frame of the batch, and need not copy it. All memory
//! here is used again for the next batch; nothing is allocated for a frame.
//!
//! **Price.** A copy of a frame that was changed is copied once more by a port that cannot send from foreign
//! memory.

use flow::carried::{FrameForm, LeavingFrame};
use flow::interpret::{FrameSink, PacketIn};
use flow::port::PortNo;
use linux::port::{Batch, Frames, Hand, MAX_BATCH, Meta};
use wire::offload::Offload;

/// The longest frame that is copied: a super-frame with its headers.
const LONGEST: usize = 65_535 + 14 + 8;
/// Bytes of an ordinary copy, and how many of them are allocated at once.
const SHORT: (usize, usize) = (2048, 64);
/// The same for copies of super-frames.
const LONG: (usize, usize) = (LONGEST, 8);
/// Memory for copies that is kept from batch to batch, in pieces of so many; more is given back.
const KEPT: usize = 8;

/// Where the bytes of a frame lie that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameMemory {
    /// In the batch.
    Batch,
    /// In a piece of the memory for copies.
    Short(u32),
    /// In a piece of that for long ones.
    Long(u32),
}

/// A frame and where it leaves.
#[derive(Debug, Clone, Copy)]
struct Output {
    port: PortNo,
    queue: Option<u32>,
    /// The frame of the batch that it comes from.
    arrival: u16,
    /// The order of what leaves of one arrival.
    order: u32,
    memory: FrameMemory,
    /// The number of the frame in that memory.
    index: u16,
}

/// What leaves, and what goes to the controllers.
pub struct Outputs {
    list: Vec<Output>,
    /// How often each frame of the batch is still to leave.
    uses: Vec<u32>,
    short: Copies,
    long: Copies,
    arrival: u16,
    /// The last copy and the form that it has.
    last: Option<(FrameForm, FrameMemory, u16)>,
    /// Frames for the controllers, in order.
    pub packet_ins: Vec<PacketIn>,
}

impl Default for Outputs {
    fn default() -> Self {
        Outputs {
            list: Vec::with_capacity(MAX_BATCH),
            uses: Vec::with_capacity(MAX_BATCH),
            short: Copies::new(SHORT),
            long: Copies::new(LONG),
            arrival: 0,
            last: None,
            packet_ins: vec![],
        }
    }
}

impl Outputs {
    /// Forgets what leaves, for the next batch of so many frames.
    pub fn clear(&mut self, frames: usize) {
        self.list.clear();
        self.uses.clear();
        self.uses.resize(frames, 0);
        self.short.clear();
        self.long.clear();
        self.last = None;
    }

    /// Whether nothing leaves.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What is said next is of this frame of the batch.
    pub fn begin(&mut self, arrival: u16) {
        (self.arrival, self.last) = (arrival, None);
    }

    /// The frame of the batch leaves as it lies there when the engine is done.
    pub fn forward(&mut self, port: PortNo, queue: Option<u32>) {
        self.add(port, queue, FrameMemory::Batch, self.arrival);
    }

    /// A frame leaves whose bytes are these now.
    pub fn copy(&mut self, port: PortNo, queue: Option<u32>, bytes: &[u8], offload: Offload) {
        let is_long = bytes.len() > SHORT.0;
        let copies = if is_long { &mut self.long } else { &mut self.short };
        let (piece, index) = copies.add(bytes, offload);
        let memory = if is_long { FrameMemory::Long(piece) } else { FrameMemory::Short(piece) };
        self.add(port, queue, memory, index);
    }

    fn add(&mut self, port: PortNo, queue: Option<u32>, memory: FrameMemory, index: u16) {
        let (arrival, order) = (self.arrival, self.list.len() as u32);
        *self.uses_of(memory, index) += 1;
        self.list.push(Output { port, queue, arrival, order, memory, index });
    }

    fn uses_of(&mut self, memory: FrameMemory, index: u16) -> &mut u32 {
        match memory {
            FrameMemory::Batch => &mut self.uses[usize::from(index)],
            FrameMemory::Short(piece) => self.short.uses_of(piece, index),
            FrameMemory::Long(piece) => self.long.uses_of(piece, index),
        }
    }
}

impl FrameSink for Outputs {
    fn send(&mut self, port: PortNo, queue: Option<u32>, frame: LeavingFrame<'_>) {
        match self.last {
            _ if frame.form == 0 => self.forward(port, queue),
            Some((form, memory, index)) if form == frame.form => self.add(port, queue, memory, index),
            _ => {
                self.copy(port, queue, frame.bytes, *frame.offload);
                self.last = self.list.last().map(|one| (frame.form, one.memory, one.index));
            }
        }
    }

    fn packet_in(&mut self, packet_in: PacketIn) {
        self.packet_ins.push(packet_in);
    }
}

/// Frames that leave together: by one port and queue, from one memory, with the same hand.
pub(crate) struct Run {
    /// By this port.
    pub port: PortNo,
    /// By this queue of it.
    pub queue: Option<u32>,
    memory: FrameMemory,
    /// Whether they are needed again.
    pub hand: Hand,
    /// How many entries of the list were passed.
    passed: usize,
}

impl Outputs {
    /// Brings what leaves into the order in which it is sent: by port and queue, and for each of these as the
    /// frames came in.
    pub(crate) fn sort(&mut self) {
        self.list.sort_unstable_by_key(|one| (one.port, one.queue, one.arrival, one.order));
    }

    /// The next frames that leave together, at most so many, with their numbers in `which`. The list was
    /// sorted; `last` is what was returned before.
    pub(crate) fn next_run(&mut self, last: Option<&Run>, limit: usize, which: &mut Vec<u16>) -> Option<Run> {
        which.clear();
        let mut at = last.map_or(0, |run| run.passed);
        let first = *self.list.get(at)?;
        let hand = self.hand_of(&first);
        while let Some(&one) = self.list.get(at).filter(|_| which.len() < limit) {
            let is_same = (one.port, one.queue, one.memory) == (first.port, first.queue, first.memory);
            if !is_same || self.hand_of(&one) != hand {
                break;
            }
            *self.uses_of(one.memory, one.index) -= 1;
            which.push(one.index);
            at += 1;
        }
        Some(Run { port: first.port, queue: first.queue, memory: first.memory, hand, passed: at })
    }

    /// Who sends a frame for the last time may take its memory.
    fn hand_of(&mut self, one: &Output) -> Hand {
        if *self.uses_of(one.memory, one.index) == 1 { Hand::Over } else { Hand::Copy }
    }

    /// Does something with the memory in which the frames of a run lie.
    pub(crate) fn with_memory<T>(
        &mut self,
        run: &Run,
        batch: &mut Batch<'_>,
        act: impl FnOnce(&mut Batch<'_>) -> T,
    ) -> T {
        match run.memory {
            FrameMemory::Batch => act(batch),
            FrameMemory::Short(piece) => act(&mut self.short.batch(piece)),
            FrameMemory::Long(piece) => act(&mut self.long.batch(piece)),
        }
    }
}

/// Copies of frames, in pieces of memory that grow in number and not in size: a frame stays where it is.
struct Copies {
    /// Bytes of a frame, and frames of a piece.
    size: (usize, usize),
    pieces: Vec<Frames>,
    uses: Vec<u32>,
    /// Pieces that hold frames; the last of them has room, or not.
    used: usize,
}

impl Copies {
    fn new(size: (usize, usize)) -> Copies {
        Copies { size, pieces: vec![], uses: vec![], used: 0 }
    }

    fn clear(&mut self) {
        self.pieces.truncate(KEPT);
        self.pieces[..].iter_mut().take(self.used).for_each(Frames::clear);
        self.uses.clear();
        self.used = 0;
    }

    /// Keeps a copy: which piece it is in, and its number there.
    fn add(&mut self, bytes: &[u8], offload: Offload) -> (u32, u16) {
        let (capacity, count) = self.size;
        if self.used == 0 || self.pieces[self.used - 1].is_full() {
            if self.used == self.pieces.len() {
                self.pieces.push(Frames::new(count, capacity));
            }
            self.used += 1;
        }
        let piece = &mut self.pieces[self.used - 1];
        // No frame of this switch is longer; what were cut off would not be taken by any port.
        let fits = piece.push(&bytes[..bytes.len().min(capacity)], Meta { offload, ..Meta::default() });
        debug_assert!(fits, "a piece with room takes a frame of its size");
        self.uses.push(0);
        ((self.used - 1) as u32, (piece.len() - 1) as u16)
    }

    fn uses_of(&mut self, piece: u32, index: u16) -> &mut u32 {
        &mut self.uses[piece as usize * self.size.1 + usize::from(index)]
    }

    fn batch(&mut self, piece: u32) -> Batch<'_> {
        self.pieces[piece as usize].batch()
    }
}

#[cfg(test)]
#[path = "outputs_tests.rs"]
mod tests;
