//! TPACKET_V2: a ring of slots of one size, each with one frame; the kernel wakes the reader for the first one.
//!
//! A frame longer than its slot (a super-frame) is queued whole at the socket, too (`PACKET_COPY_THRESH`); its slot says
//! so, and it is fetched from there. Where that queue has no room the frame is cut, and counted as cut.

use super::super::batch::Slot;
use super::found::{Found, Maker};
use crate::sys::packet::Mapping;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Frames longer than a slot in one batch.
const COPIES: usize = 16;
/// Bytes for one of them: room for a header, virtio header, super-frame, tags.
const COPY: usize = 64 + 65_536 + 128;
/// Where the frame begins in such a buffer.
const COPY_START: usize = 64;
/// `TP_STATUS_COPY`.
const QUEUED: u32 = 1 << 1;

/// The ring, and how far it was read.
#[derive(Debug)]
pub struct Slots {
    map: Mapping,
    slot: usize,
    count: usize,
    head: usize,
    /// Slots before `head` whose frames are lent.
    lent: usize,
    copies: Mapping,
}

impl Slots {
    /// A ring that was just mapped.
    pub fn new(map: Mapping, slot: usize) -> io::Result<Slots> {
        let count = map.bytes() / slot;
        Ok(Slots { map, slot, count, head: 0, lent: 0, copies: Mapping::anonymous(COPIES * COPY)? })
    }

    fn start(&self, index: usize) -> NonNull<u8> {
        // SAFETY: `index` is less than the number of slots in the mapping.
        unsafe { self.map.base().add(index * self.slot) }
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the first word of a slot is its status; the kernel and we change it only as a whole.
        unsafe { AtomicU32::from_ptr(self.start(index).as_ptr().cast()) }
    }

    /// Gives back what was lent. Only called when no batch is out.
    pub fn give_back(&mut self) {
        for behind in (1..=self.lent).rev() {
            let index = (self.head + self.count - behind) % self.count;
            self.status(index).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        self.lent = 0;
    }

    /// Appends up to `limit` frames to `slots`; false: there are no more. No batch may be out.
    pub fn lend(
        &mut self,
        fd: BorrowedFd<'_>,
        limit: usize,
        maker: &mut Maker,
        slots: &mut Vec<Slot>,
    ) -> bool {
        self.give_back();
        let mut copies = 0;
        while slots.len() < limit && self.lent < self.count && copies < COPIES {
            let status = self.status(self.head).load(Ordering::Acquire);
            if status & libc::TP_STATUS_USER == 0 {
                break;
            }
            let mut found = self.found(self.head);
            self.head = (self.head + 1) % self.count;
            self.lent += 1;
            if status & QUEUED != 0 && self.fetch(fd, copies, maker.before(), &mut found) {
                copies += 1;
            }
            if let Some(slot) = maker.slot(&found) {
                slots.push(slot);
            }
        }
        self.lent > 0
    }

    fn found(&self, index: usize) -> Found {
        let start = self.start(index);
        // SAFETY: the slot is ours, and the kernel has written its header.
        let header = unsafe { start.cast::<libc::tpacket2_hdr>().read() };
        Found {
            start,
            mac: header.tp_mac,
            length: header.tp_snaplen,
            wire_length: header.tp_len,
            status: header.tp_status,
            seconds: header.tp_sec,
            nanoseconds: header.tp_nsec,
            tci: header.tp_vlan_tci,
            tpid: header.tp_vlan_tpid,
            address: size_of::<libc::tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT),
            room: self.slot,
        }
    }

    /// Fetches the whole frame from the socket's queue: where it now is.
    fn fetch(&self, fd: BorrowedFd<'_>, copy: usize, before: usize, found: &mut Found) -> bool {
        // SAFETY: `copy` is less than COPIES.
        let start = unsafe { self.copies.base().add(copy * COPY) };
        // SAFETY: the virtio header ends where the frame begins; COPY bytes are ours from `start` on.
        let (rc, kind) = unsafe {
            let to = start.add(COPY_START - before);
            let room = COPY - COPY_START + before;
            let rc = libc::recv(fd.as_raw_fd(), to.as_ptr().cast(), room, libc::MSG_DONTWAIT);
            (rc, found.kind())
        };
        let Some(length) = usize::try_from(rc).ok().and_then(|length| length.checked_sub(before)) else {
            return false;
        };
        // The copy has no address before it: where the kind of frame stands is written by us.
        // SAFETY: the first bytes of the buffer are ours.
        unsafe { start.add(Found::KIND).write(kind) };
        (found.start, found.address, found.mac) = (start, 0, COPY_START as u16);
        (found.length, found.room) = (length as u32, COPY);
        true
    }
}
