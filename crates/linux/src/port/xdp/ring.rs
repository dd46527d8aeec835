//! The four rings that an AF_XDP socket shares with the kernel.
//!
//! Each has one producer and one consumer; an index is written by one side only and read by the other (acquire and
//! release order, as `Documentation/networking/af_xdp.rst` and libxdp's `xsk.h` have it). Indices are free-running and
//! wrap at 2³²; both sides look at them only when their own copy says that there is nothing to do.

use crate::sys::packet::Mapping;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// One mapped ring of descriptors (`xdp_desc`) or addresses (`u64`).
#[derive(Debug)]
pub struct Ring<T: Copy> {
    _map: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// Our index, which may be ahead of what the kernel can see.
    ours: u32,
    /// The kernel's index as it was when we last looked.
    theirs: u32,
}

// SAFETY: the mapping belongs to the ring, and whoever has the ring is its only user on this side.
unsafe impl<T: Copy> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `size` entries, which was made by `setsockopt` before; `place` is its `XDP_*PGOFF*`.
    pub fn map(
        fd: BorrowedFd<'_>,
        place: libc::off_t,
        at: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Ring<T>> {
        let bytes = at.desc as usize + size as usize * size_of::<T>();
        let map = Mapping::ring(fd, bytes, place)?;
        let base = map.base();
        // SAFETY: the kernel gave offsets inside the mapping, aligned for what lies there.
        unsafe {
            let mut ring = Ring {
                _map: map,
                producer: base.add(at.producer as usize).cast(),
                consumer: base.add(at.consumer as usize).cast(),
                flags: base.add(at.flags as usize).cast(),
                entries: base.add(at.desc as usize).cast(),
                size,
                ours: 0,
                theirs: 0,
            };
            // A new ring begins at 0, but nothing promises it.
            ring.ours = ring.producer.as_ref().load(Ordering::Acquire);
            ring.theirs = ring.ours;
            Ok(ring)
        }
    }

    /// True when the kernel waits for a system call before it looks at this ring again.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        // SAFETY: inside the mapping, which lives as long as the ring.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// As producer: how many entries may be written now; asks the kernel only when fewer than `wanted` are known.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> u32 {
        let known = self.size - self.ours.wrapping_sub(self.theirs);
        if known >= wanted {
            return known;
        }
        // SAFETY: as above.
        self.theirs = unsafe { self.consumer.as_ref() }.load(Ordering::Acquire);
        self.size - self.ours.wrapping_sub(self.theirs)
    }

    /// As producer: writes the next entry, for which there must be room. The kernel sees it after [`Ring::publish`].
    #[inline]
    pub fn write(&mut self, value: T) {
        // SAFETY: the index is masked to the ring's size, and the kernel does not read what is not published.
        unsafe { self.entries.add((self.ours & (self.size - 1)) as usize).write(value) };
        self.ours = self.ours.wrapping_add(1);
    }

    /// As producer: shows the kernel what was written.
    #[inline]
    pub fn publish(&mut self) {
        // SAFETY: as above.
        unsafe { self.producer.as_ref() }.store(self.ours, Ordering::Release);
    }

    /// As producer: how many published entries the kernel has not taken yet.
    #[inline]
    pub fn pending(&mut self) -> u32 {
        // SAFETY: as above.
        self.theirs = unsafe { self.consumer.as_ref() }.load(Ordering::Acquire);
        self.ours.wrapping_sub(self.theirs)
    }

    /// As consumer: how many entries may be read now; asks the kernel only when none is known.
    #[inline]
    pub fn available(&mut self) -> u32 {
        let known = self.theirs.wrapping_sub(self.ours);
        if known > 0 {
            return known;
        }
        // SAFETY: as above.
        self.theirs = unsafe { self.producer.as_ref() }.load(Ordering::Acquire);
        self.theirs.wrapping_sub(self.ours)
    }

    /// As consumer: reads the next entry, which must be available.
    #[inline]
    pub fn read(&mut self) -> T {
        // SAFETY: masked to the ring's size; the kernel wrote it before it moved its index (acquired above).
        let value = unsafe { self.entries.add((self.ours & (self.size - 1)) as usize).read() };
        self.ours = self.ours.wrapping_add(1);
        value
    }

    /// As consumer: gives the entries that were read back to the kernel.
    #[inline]
    pub fn release(&mut self) {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }.store(self.ours, Ordering::Release);
    }
}
