//! The way of captured frames to the writer: copied into blocks, which go round.
//!
//! **What.** Every receiving thread has a [`ReceiverSide`] with a fixed number of blocks. It copies frames into one, hands it to
//! the writer, and gets it back empty. **Why.** A disk stalls for hundreds of milliseconds; a ring that is read in place
//! would overflow meanwhile, where nobody can say which frames. Here the frame that finds no block is counted: place
//! `queue`, name `full`. A capture file waits for its reader, and nothing of it may be lost: there the frame waits for a
//! block ([`ReceiverSide::waits`]). **Price.** One copy of every frame that is written, and the memory of the blocks.

use linux::port::Meta;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Bytes of frames in one block; the longest frame of a capture file fits into it.
pub const BLOCK: usize = 512 << 10;

/// Frames in one block.
const FRAMES: usize = 2048;

/// A block is handed over when it is so full, and at every pause.
const ENOUGH: usize = 64 << 10;

/// What is kept of a frame beside its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// Where its bytes begin in the block.
    pub start: u32,
    /// How many there are.
    pub length: u32,
    /// Frames that the capture lost between the one before and this one, as far as it is known.
    pub lost: u32,
    /// What was known of it.
    pub meta: Meta,
}

/// Copied frames of one thread, in their order.
#[derive(Debug)]
pub struct Block {
    /// Whose.
    pub lane: usize,
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// What is known of each.
    pub frames: Vec<Kept>,
    /// No later frame of this lane is older than this.
    pub watermark_ns: u64,
    /// The lane has ended.
    pub last: bool,
}

impl Block {
    fn new(lane: usize) -> Self {
        let (bytes, frames) = (Vec::with_capacity(BLOCK), Vec::with_capacity(FRAMES));
        Block { lane, bytes, frames, watermark_ns: 0, last: false }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
        self.last = false;
    }

    /// The bytes of a frame.
    pub fn frame(&self, kept: &Kept) -> &[u8] {
        &self.bytes[kept.start as usize..(kept.start + kept.length) as usize]
    }
}

/// The end of the receiving thread.
#[derive(Debug)]
pub struct ReceiverSide {
    full: SyncSender<Block>,
    empty: Receiver<Block>,
    now: Option<Block>,
    snap: usize,
    lost: u32,
    /// Where frames come from waits for us: one that finds no block waits for it.
    pub waits: bool,
    /// Frames that found no block.
    pub dropped: u64,
}

/// The end of the writer: blocks of all lanes, and the way back of each.
#[derive(Debug)]
pub struct Collector {
    /// Full blocks.
    pub full: Receiver<Block>,
    /// Where the empty ones go.
    back: Vec<SyncSender<Block>>,
    /// Blocks of one lane.
    pub blocks: usize,
}

impl Collector {
    /// Gives a block back.
    pub fn give_back(&self, mut block: Block) {
        block.clear();
        // A lane that has ended does not want it any more.
        let _ = self.back[block.lane].send(block);
    }
}

/// So many lanes with so many bytes of memory each; frames are cut to `snap` bytes.
pub fn lanes(count: usize, bytes: usize, snap: usize) -> (Vec<ReceiverSide>, Collector) {
    let blocks = (bytes / BLOCK).max(3);
    let (to_writer, full) = sync_channel(count * blocks + 1);
    let mut back = vec![];
    let make = |number| {
        let (to_lane, empty) = sync_channel(blocks + 1);
        for _ in 0..blocks {
            let _ = to_lane.send(Block::new(number));
        }
        back.push(to_lane);
        let full = to_writer.clone();
        ReceiverSide { full, empty, now: None, snap: snap.min(BLOCK), lost: 0, waits: false, dropped: 0 }
    };
    let lanes = (0..count).map(make).collect();
    (lanes, Collector { full, back, blocks })
}

impl ReceiverSide {
    /// Copies a frame; false when there is no room, and none was waited for.
    #[inline]
    pub fn push(&mut self, bytes: &[u8], meta: &Meta) -> bool {
        let bytes = &bytes[..bytes.len().min(self.snap)];
        let fits = |block: &Block| block.bytes.len() + bytes.len() <= BLOCK && block.frames.len() < FRAMES;
        if self.now.as_ref().is_some_and(|block| !fits(block)) {
            self.hand_over(meta.stamp.ns);
        }
        if self.now.is_none() {
            // The writer gives every block back, even when it can write no more.
            self.now = if self.waits { self.empty.recv().ok() } else { self.empty.try_recv().ok() };
            if self.now.is_none() {
                self.dropped += 1;
                self.lost = self.lost.saturating_add(1);
                return false;
            }
        }
        let Some(block) = &mut self.now else { return false };
        let (start, length) = (block.bytes.len() as u32, bytes.len() as u32);
        block.bytes.extend_from_slice(bytes);
        block.frames.push(Kept { start, length, lost: std::mem::take(&mut self.lost), meta: *meta });
        true
    }

    /// Frames that the port lost, to be told beside the next frame.
    pub fn lost(&mut self, frames: u64) {
        self.lost = self.lost.saturating_add(u32::try_from(frames).unwrap_or(u32::MAX));
    }

    /// Hands over what there is, if it is enough or if nothing comes at present.
    pub fn pause(&mut self, watermark_ns: u64, idle: bool) {
        let waiting = self.now.as_ref().map_or(0, |block| block.bytes.len());
        if waiting >= ENOUGH || idle {
            if self.now.is_none() {
                // An empty block tells the writer that nothing older will come.
                self.now = self.empty.try_recv().ok();
            }
            self.hand_over(watermark_ns);
        }
    }

    fn hand_over(&mut self, watermark_ns: u64) {
        if let Some(mut block) = self.now.take() {
            block.watermark_ns = watermark_ns;
            // The channel has room for every block there is.
            let _ = self.full.send(block);
        }
    }

    /// Hands over the last frames.
    pub fn finish(mut self) {
        if self.now.is_none() {
            self.now = self.empty.recv().ok();
        }
        if let Some(block) = &mut self.now {
            block.last = true;
        }
        self.hand_over(u64::MAX);
    }
}
