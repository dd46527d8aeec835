//! The ring in which programs of the kernel leave records for this process (`BPF_MAP_TYPE_RINGBUF`, Linux 5.8).
//!
//! **What.** [`EventRing::read`] lends every record that is complete, in the order of all CPUs, and gives its room back behind it.
//! The layout is that of `Documentation/bpf/ringbuf.rst` and `kernel/bpf/ringbuf.c`: a page with the reader's position, a page with the
//! writers', then the bytes, mapped twice one behind the other so that no record is broken by the end.
//!
//! **Why.** One ring for all CPUs keeps the order of events, and a record that finds no room is refused to the program, which counts it.
//!
//! **Price.** Its bytes are kernel memory from the start.

use super::bpf::{MAP_RING, Map};
use super::packet::Mapping;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A record is being written (`BPF_RINGBUF_BUSY_BIT`).
const BUSY: u32 = 1 << 31;
/// A record was given up by its writer (`BPF_RINGBUF_DISCARD_BIT`).
const DISCARDED: u32 = 1 << 30;
/// What stands in front of each record (`BPF_RINGBUF_HDR_SZ`).
const HEADER: u64 = 8;

/// A ring and our place in it.
#[derive(Debug)]
pub struct EventRing {
    map: Map,
    consumer: Mapping,
    shown: Mapping,
    page: usize,
    bytes: u64,
    position: u64,
}

impl EventRing {
    /// Makes a ring of so many bytes, rounded up to a power of two of whole pages.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `EINVAL` before Linux 5.8, `ENOMEM`.
    pub fn create(bytes: u32, name: &str) -> io::Result<EventRing> {
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(4096) as usize;
        let bytes = bytes.max(page as u32).checked_next_power_of_two().unwrap_or(1 << 31);
        let map = Map::create(MAP_RING, 0, 0, bytes, name)?;
        let consumer = Mapping::ring(map.fd(), page, 0)?;
        let shown = Mapping::shown(map.fd(), page + 2 * bytes as usize, page as libc::off_t)?;
        Ok(EventRing { map, consumer, shown, page, bytes: bytes.into(), position: 0 })
    }

    /// The descriptor, to be named in a program.
    pub fn raw_fd(&self) -> RawFd {
        self.map.raw_fd()
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Lends every record that is there, `most` of them at most, while `take` says so; how many there were.
    pub fn read(&mut self, most: usize, mut take: impl FnMut(&[u8]) -> bool) -> usize {
        // SAFETY: the writers' position is the first word of its page, which is mapped as long as this value lives, and aligned.
        let written = unsafe { self.shown.base().cast::<AtomicU64>().as_ref() }.load(Ordering::Acquire);
        let (mut taken, mut goes_on) = (0, true);
        while goes_on && taken < most && self.position < written {
            let Some((record, discarded)) = self.record() else { break };
            let length = record.len() as u64;
            if !discarded {
                goes_on = take(record);
                taken += 1;
            }
            self.position += (HEADER + length).next_multiple_of(8);
            // SAFETY: the reader's position is the first word of its page, which is mapped for writing and ours alone.
            unsafe { self.consumer.base().cast::<AtomicU64>().as_ref() }
                .store(self.position, Ordering::Release);
        }
        taken
    }

    /// The record at our place and whether its writer gave it up; none while it is being written.
    fn record(&self) -> Option<(&[u8], bool)> {
        let at = self.page + (self.position & (self.bytes - 1)) as usize;
        // SAFETY: the place is masked to the ring's bytes and aligned to 8, as all records are.
        let (header, data) = unsafe {
            let header: NonNull<AtomicU32> = self.shown.base().add(at).cast();
            (header.as_ref().load(Ordering::Acquire), self.shown.base().add(at + HEADER as usize))
        };
        if header & BUSY != 0 {
            return None;
        }
        let length = u64::from(header & !(BUSY | DISCARDED)).min(self.bytes - HEADER) as usize;
        // SAFETY: a record is no longer than the ring, the bytes are mapped twice, and the writers leave them alone until our
        // position is behind it.
        Some((unsafe { std::slice::from_raw_parts(data.as_ptr(), length) }, header & DISCARDED != 0))
    }
}
