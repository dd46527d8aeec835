//! TPACKET_V3: the kernel fills blocks; a block that it handed over holds frames one behind the other.

use super::super::batch_builder::BatchBuilder;
use super::super::packet::receiver::{Found, Source};
use super::super::packet::shared;
use super::{Asked, kind_of};
use crate::port::stamps;
use crate::sys::packet::Mapping;
use record::drop;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Offsets in `struct tpacket_block_desc` (linux/if_packet.h).
const STATUS: usize = 8;
const COUNT: usize = 12;
const FIRST: usize = 16;

/// The ring, and how far it was read.
#[derive(Debug)]
pub struct Blocks {
    map: Mapping,
    block: usize,
    blocks: usize,
    vnet: bool,
    current: usize,
    /// Frames of the current block that were not lent yet.
    left: u32,
    /// Where the next of them begins, in bytes from the block's beginning.
    next: usize,
    /// The current block is ours.
    ours: bool,
}

impl Blocks {
    /// A ring that was just mapped.
    pub fn new(map: Mapping, asked: &Asked) -> Blocks {
        let (block, blocks) = (asked.shape.block as usize, asked.shape.blocks as usize);
        Blocks { map, block, blocks, vnet: asked.vnet, current: 0, left: 0, next: 0, ours: false }
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: `current` is less than the number of blocks in the mapping.
        unsafe { self.map.base().add(self.current * self.block) }
    }

    /// Who owns the current block.
    fn status(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping and aligned; the kernel and we change it only as a whole word.
        unsafe { AtomicU32::from_ptr(self.start().add(STATUS).as_ptr().cast()) }
    }

    fn word(&self, at: usize) -> u32 {
        // SAFETY: inside the current block, which is ours; aligned to 4.
        unsafe { self.start().add(at).cast::<u32>().read() }
    }

    /// Gives the current block back if all of its frames were lent. Only called when no batch is out.
    fn give_back(&mut self) {
        if self.ours && self.left == 0 {
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.current = (self.current + 1) % self.blocks;
            self.ours = false;
        }
    }

    /// Looks whether the kernel has handed the current block over.
    fn open(&mut self) -> bool {
        if !self.ours {
            if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return false;
            }
            self.ours = true;
            self.left = self.word(COUNT);
            self.next = self.word(FIRST) as usize;
        }
        self.left > 0
    }
}

impl Source for Blocks {
    const LOSS: (&'static str, &'static str) = ("ring", drop::RING_FULL);
    const SEES_ERRORS: bool = false;

    /// Adds frames of one block.
    fn lend(&mut self, _fd: BorrowedFd<'_>, limit: usize, batch: &mut BatchBuilder) -> io::Result<bool> {
        self.give_back();
        if !self.open() {
            // A block can be handed over without a frame in it.
            let empty = self.ours;
            self.give_back();
            return Ok(empty);
        }
        while self.left > 0 && batch.slots.len() < limit {
            // SAFETY: the kernel says that a frame begins here; the block is ours. `struct sockaddr_ll` follows the
            // header, both aligned to 16.
            let (data, header, kind) = unsafe {
                let start = self.start().add(self.next);
                let header = start.cast::<libc::tpacket3_hdr>().read();
                (start.add(usize::from(header.tp_mac)), header, kind_of::<libc::tpacket3_hdr>(start))
            };
            self.left -= 1;
            self.next += header.tp_next_offset as usize;
            let used = u32::from(header.tp_mac) + header.tp_snaplen;
            let found = Found {
                data,
                length: header.tp_snaplen,
                wire_length: header.tp_len,
                // What was before the frame has been read; all of it may be overwritten.
                headroom: u32::from(header.tp_mac),
                // 0 is the last frame of the block.
                tailroom: header.tp_next_offset.saturating_sub(used),
                status: header.tp_status,
                tag: shared::tag(header.tp_status, header.hv1.tp_vlan_tci as u16, header.hv1.tp_vlan_tpid),
                stamp: stamps::of_ring(header.tp_sec, header.tp_nsec, header.tp_status),
                kind,
            };
            // SAFETY: header, virtio header and frame are ours.
            unsafe { found.lend(self.vnet, batch) };
        }
        Ok(true)
    }
}
