//! What either version of the ring tells of a frame, and the slot that is made of it.

use super::super::batch::{Home, Meta, Slot};
use super::super::packet::shared::{self, Finish};
use super::super::{ReceiveCounters, Stamp};
use crate::port::stamps;
use std::ptr::NonNull;
use wire::offload;

/// What the kernel wrote before a frame, the same for both versions.
#[derive(Debug)]
pub struct Found {
    /// First byte of the header.
    pub start: NonNull<u8>,
    /// Where the frame begins, from there.
    pub mac: u16,
    /// Bytes of the frame that are here.
    pub length: u32,
    /// Bytes that it had.
    pub wire_length: u32,
    /// `tp_status`.
    pub status: u32,
    /// When.
    pub seconds: u32,
    /// And nanoseconds.
    pub nanoseconds: u32,
    /// The tag, if the status says that there is one.
    pub tci: u16,
    /// Its ethertype.
    pub tpid: u16,
    /// Where `struct sockaddr_ll` begins.
    pub address: usize,
    /// Bytes from the header's first one to the end of what is ours; 0: not known.
    pub room: usize,
}

impl Found {
    /// Offset of `sll_pkttype` in `struct sockaddr_ll`.
    pub const KIND: usize = 10;

    /// `sll_pkttype`.
    pub fn kind(&self) -> u8 {
        // SAFETY: the address follows the header; whoever made `self` owns both.
        unsafe { self.start.add(self.address + Self::KIND).read() }
    }
}

/// Makes slots of what was found, and counts.
#[derive(Debug)]
pub struct Maker {
    pub finish: Finish,
    pub vnet: bool,
    pub counters: ReceiveCounters,
}

impl Maker {
    /// Bytes of virtio header before each frame.
    pub fn before(&self) -> usize {
        if self.vnet { offload::HEADER } else { 0 }
    }

    /// The slot for a frame; none when the filter does not want it.
    #[inline]
    pub fn slot(&mut self, found: &Found) -> Option<Slot> {
        // SAFETY: the kernel says that the frame begins there; header, virtio header and frame are ours.
        let data = unsafe { found.start.add(usize::from(found.mac)) };
        let meta = Meta {
            wire_length: found.wire_length,
            stamp: Stamp {
                ns: u64::from(found.seconds) * 1_000_000_000 + u64::from(found.nanoseconds),
                source: stamps::source_of(found.status),
            },
            way: shared::way(found.kind()),
            // SAFETY: as above.
            offload: unsafe { shared::offload_of(data, found.length, self.vnet, found.status) },
            ..Meta::default()
        };
        let used = u32::from(found.mac) + found.length;
        let mut slot = Slot {
            data,
            length: found.length,
            // What was before the frame has been read; all of it may be overwritten.
            headroom: u32::from(found.mac),
            tailroom: (found.room as u32).saturating_sub(used),
            home: Home::Lent,
            meta,
        };
        let tag = shared::tag(found.status, found.tci, found.tpid);
        // SAFETY: as above.
        if !unsafe { self.finish.apply(&mut slot, tag) } {
            return None;
        }
        self.counters.bytes += u64::from(slot.meta.wire_length);
        self.counters.cut += u64::from(slot.meta.wire_length > slot.length);
        Some(slot)
    }
}
