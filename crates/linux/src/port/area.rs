//! Memory that ports share: equal chunks in one mapping, each with one frame in it or none.
//!
//! **Why.** Two ports over one area hand a frame on by handing on the number of its chunk; not a byte is copied. AF_XDP
//! asks for exactly this (its UMEM), and the memory port works the same way.
//!
//! **Price.** A frame cannot be longer than a chunk, and who takes a chunk must give it back: a leak shows in
//! [`Area::free`]. The list of free chunks is locked once for a batch, never once for a frame.

use super::batch::{Home, Slot};
use crate::sys::packet::Mapping;
use nix::sys::mman::MapFlags;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// How a port would use memory that it shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::port) struct Sharing {
    /// Ports that differ in this cannot share: the kind, and what it asks for.
    pub class: SharingClass,
    /// Chunks that it needs for itself.
    pub chunks: u32,
    /// Bytes of a chunk that hold its frames.
    pub chunk_bytes: u32,
}

/// What ports over one area have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::port) enum SharingClass {
    /// AF_XDP: bytes of a chunk if they were asked for, who copies (`sxdp_flags`), whether the kernel may
    /// sleep.
    Driver(Option<u32>, u16, bool),
    /// Wires in memory: bytes of a chunk.
    Wire(u32),
}

/// A mapping of `chunks` × `chunk_bytes` bytes and the list of chunks that hold no frame.
#[derive(Debug)]
pub struct Area {
    memory: Mapping,
    chunk_bytes: u32,
    chunks: u32,
    free: Mutex<Vec<u32>>,
}

// SAFETY: the mapping belongs to the area and lives as long as it; a chunk's bytes are touched only by the one who took
// its number from the free list (see `take` and `give`), which is behind the lock.
unsafe impl Sync for Area {}

impl Area {
    /// Bytes left free before a frame that is put into an empty chunk, so that headers can be added.
    pub const HEADROOM: u32 = 256;

    /// Maps a new area. `chunk_bytes` must be a power of two of at least 2048 (what AF_XDP takes on every kernel is
    /// 2048 and the page size).
    ///
    /// # Errors
    /// `InvalidInput` for such sizes, `ENOMEM` when there is no memory for it.
    pub fn new(chunks: u32, chunk_bytes: u32) -> io::Result<Arc<Area>> {
        let bytes = (chunks as usize).checked_mul(chunk_bytes as usize);
        let (true, Some(bytes)) = (chunk_bytes.is_power_of_two() && chunk_bytes >= 2048, bytes) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let memory = Mapping::anonymous(bytes, MapFlags::MAP_POPULATE)?;
        let free = Mutex::new((0..chunks).rev().collect());
        Ok(Arc::new(Area { memory, chunk_bytes, chunks, free }))
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// How many chunks there are.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// How many chunks hold no frame now.
    pub fn free(&self) -> usize {
        self.list().len()
    }

    /// The first byte of the mapping, for a system call that takes the whole.
    pub(in crate::port) fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    /// Bytes of the whole mapping.
    pub(in crate::port) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// The first byte of a chunk. Only who took the chunk may read or write there.
    pub(in crate::port) fn chunk(&self, number: u32) -> NonNull<u8> {
        assert!(number < self.chunks, "chunk {number} of {}", self.chunks);
        // SAFETY: the offset is within the mapping.
        unsafe { self.memory.base().add(number as usize * self.chunk_bytes as usize) }
    }

    /// The chunk of this area that a frame lies in, and where it begins there; none when it lies elsewhere.
    pub(in crate::port) fn place_of(&self, slot: &Slot) -> Option<(u32, u32)> {
        match slot.home {
            Home::Chunk { area, number } if std::ptr::addr_eq(area, self) => {
                Some((number, (slot.data.as_ptr() as usize - self.chunk(number).as_ptr() as usize) as u32))
            }
            _ => None,
        }
    }

    /// Copies a frame into a chunk: where it begins there.
    ///
    /// # Safety
    /// The chunk is the caller's and not lent to anyone; it has room for the frame, whose bytes are valid.
    pub(in crate::port) unsafe fn copy(&self, number: u32, slot: &Slot) -> u32 {
        let offset = Area::HEADROOM.min(self.chunk_bytes - slot.length);
        // SAFETY: as promised by the caller; the frame ends with the chunk at the latest.
        unsafe {
            let to = self.chunk(number).add(offset as usize);
            std::ptr::copy_nonoverlapping(slot.data.as_ptr(), to.as_ptr(), slot.length as usize);
        }
        offset
    }

    /// Takes up to `count` free chunks and appends their numbers.
    pub(in crate::port) fn take(&self, count: usize, taken: &mut Vec<u32>) {
        let mut free = self.list();
        let rest = free.len().saturating_sub(count);
        taken.extend(free.drain(rest..).rev());
    }

    /// Gives chunks back.
    pub(in crate::port) fn give(&self, chunks: impl IntoIterator<Item = u32>) {
        self.list().extend(chunks);
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_taken_once_and_given_back() {
        let area = Area::new(8, 2048).unwrap();
        let mut taken = vec![];
        area.take(5, &mut taken);
        area.take(5, &mut taken);
        assert_eq!((taken.len(), area.free()), (8, 0));
        let mut sorted = taken.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..8).collect::<Vec<_>>(), "every chunk once");
        area.give(taken);
        assert_eq!(area.free(), 8);
        assert!(Area::new(8, 3000).is_err() && Area::new(0, 2048).is_err());
    }
}
