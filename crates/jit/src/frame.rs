//! A frame with room around it, and what leaves.
//!
//! **What.** A [`Frame`] is a piece of a worker's memory: code changes it where it lies, in front of it tags are pushed. [`Outputs`] says
//! by which ports it leaves; a frame that leaves and is changed afterwards was copied there before.
//!
//! **Why.** A switch between ports that share memory hands the frame on without a copy; only who says "send, change, send" pays.
//!
//! **Price.** Frames without room in front go to the interpreter when the pipeline may push more than there is room for.

use flow::PortNo;
use std::ops::Range;
use wire::offload::Offload;

/// A frame where it lies.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The memory that belongs to the frame, before and behind it, too.
    pub room: &'a mut [u8],
    /// Its first byte.
    pub start: usize,
    /// Behind its last byte.
    pub end: usize,
    /// What its sender left to the hardware; code keeps it true.
    pub offload: Offload,
}

impl Frame<'_> {
    /// The frame.
    pub fn bytes(&self) -> &[u8] {
        &self.room[self.start..self.end]
    }

    /// Takes the bytes of an edited frame; false when there is no room.
    pub(crate) fn take(&mut self, bytes: &[u8], offload: Offload) -> bool {
        let grown = bytes.len() as isize - self.bytes().len() as isize;
        // Pushes use the room in front; what is filled up at the end uses the room behind.
        let start = (self.start as isize - grown).max(0) as usize;
        let Some(room) = self.room.get_mut(start..start + bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        (self.start, self.end, self.offload) = (start, start + bytes.len(), offload);
        true
    }
}

/// One way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// By this port.
    pub port: PortNo,
    /// By this queue of it.
    pub queue: Option<u32>,
    /// The copy that leaves; none for the frame as it lies there now.
    pub copy: Option<usize>,
}

/// What leaves, in order.
#[derive(Debug, Clone, Default)]
pub struct Outputs {
    /// The ways out.
    pub list: Vec<Departure>,
    bytes: Vec<u8>,
    copies: Vec<(Range<usize>, Offload)>,
}

impl Outputs {
    /// Forgets all, and keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
        self.copies.clear();
    }

    /// The bytes of a copy, and what is left to the hardware.
    pub fn copy(&self, number: usize) -> Option<(&[u8], Offload)> {
        let (range, offload) = self.copies.get(number)?;
        Some((self.bytes.get(range.clone())?, *offload))
    }

    /// Keeps a copy; its number.
    pub(crate) fn keep(&mut self, bytes: &[u8], offload: Offload) -> usize {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.copies.push((from..self.bytes.len(), offload));
        self.copies.len() - 1
    }

    /// The frames that leave: port, queue, bytes, what is left to the hardware.
    pub fn frames<'a>(
        &'a self,
        own: &'a Frame<'_>,
    ) -> impl Iterator<Item = (PortNo, Option<u32>, &'a [u8], Offload)> {
        self.list.iter().filter_map(|output| {
            let (bytes, offload) = match output.copy {
                Some(number) => self.copy(number)?,
                None => (own.bytes(), own.offload),
            };
            Some((output.port, output.queue, bytes, offload))
        })
    }
}
