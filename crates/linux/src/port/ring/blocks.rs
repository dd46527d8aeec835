//! TPACKET_V3: the kernel fills blocks; a block that it handed over holds frames one behind the other.

use super::super::batch::Slot;
use super::found::{Found, Maker};
use crate::sys::packet::Mapping;
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
    pub fn new(map: Mapping, block: usize, blocks: usize) -> Blocks {
        Blocks { map, block, blocks, current: 0, left: 0, next: 0, ours: false }
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
    pub fn give_back(&mut self) {
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

    /// Appends up to `limit` frames of one block to `slots`; false: the kernel has handed over no more. No batch may
    /// be out.
    pub fn lend(&mut self, limit: usize, maker: &mut Maker, slots: &mut Vec<Slot>) -> bool {
        self.give_back();
        if !self.open() {
            // A block can be handed over without a frame in it.
            let empty = self.ours;
            self.give_back();
            return empty;
        }
        while self.left > 0 && slots.len() < limit {
            // SAFETY: the kernel says that a frame begins here; the block is ours.
            let (start, header) = unsafe {
                let start = self.start().add(self.next);
                (start, start.cast::<libc::tpacket3_hdr>().read())
            };
            let end = header.tp_next_offset as usize;
            self.left -= 1;
            self.next += end;
            let found = Found {
                start,
                mac: header.tp_mac,
                length: header.tp_snaplen,
                wire_length: header.tp_len,
                status: header.tp_status,
                seconds: header.tp_sec,
                nanoseconds: header.tp_nsec,
                tci: header.hv1.tp_vlan_tci as u16,
                tpid: header.hv1.tp_vlan_tpid,
                // `struct sockaddr_ll` follows the header, both aligned to 16.
                address: size_of::<libc::tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT),
                room: end,
            };
            if let Some(slot) = maker.slot(&found) {
                slots.push(slot);
            }
        }
        true
    }
}
