//! TPACKET_V2: a ring of slots of one size, each with one frame; the kernel wakes the reader for the first one.
//!
//! A frame longer than its slot (a super-frame) is queued whole at the socket, too (`PACKET_COPY_THRESH`); its slot says
//! so, and it is fetched from there. Where that queue has no room the frame is cut, and counted as cut.

use super::super::batch_builder::BatchBuilder;
use super::super::packet::receiver::{Found, Source};
use super::super::packet::shared;
use super::{Asked, kind_of};
use crate::port::stamps;
use crate::sys::packet::Mapping;
use nix::sys::mman::MapFlags;
use record::drop;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use wire::offload;

/// Frames longer than a slot in one batch.
const COPIES: usize = 16;
/// Bytes for one of them: room for a header, virtio header, super-frame, tags.
const COPY: usize = 64 + 65_536 + 128;
/// Where the frame begins in such a buffer.
const COPY_START: usize = 64;
/// `TP_STATUS_COPY`.
const QUEUED: u32 = 1 << 1;

/// A ring of slots of one size, for either direction: the first word of each is its status.
#[derive(Debug)]
pub struct SlotRing {
    map: Mapping,
    pub slot: usize,
    pub count: usize,
}

impl SlotRing {
    /// A ring that was just mapped.
    pub fn new(map: Mapping, slot: usize) -> SlotRing {
        SlotRing { count: map.bytes() / slot, map, slot }
    }

    /// Where a slot begins.
    pub fn start(&self, index: usize) -> NonNull<u8> {
        // SAFETY: `index` is less than the number of slots in the mapping.
        unsafe { self.map.base().add(index * self.slot) }
    }

    /// Who has a slot.
    pub fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the first word of a slot is its status; the kernel and we change it only as a whole.
        unsafe { AtomicU32::from_ptr(self.start(index).as_ptr().cast()) }
    }
}

/// The ring, and how far it was read.
#[derive(Debug)]
pub struct Slots {
    ring: SlotRing,
    vnet: bool,
    head: usize,
    /// Slots before `head` whose frames are lent.
    lent: usize,
    copies: Mapping,
}

impl Slots {
    /// A ring that was just mapped.
    pub fn new(map: Mapping, asked: &Asked) -> io::Result<Slots> {
        let ring = SlotRing::new(map, asked.shape.slot as usize);
        let copies = Mapping::anonymous(COPIES * COPY, MapFlags::empty())?;
        Ok(Slots { ring, vnet: asked.vnet, head: 0, lent: 0, copies })
    }

    /// Gives back what was lent. Only called when no batch is out.
    fn give_back(&mut self) {
        for behind in (1..=self.lent).rev() {
            let index = (self.head + self.ring.count - behind) % self.ring.count;
            self.ring.status(index).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        self.lent = 0;
    }

    fn found(&self, index: usize) -> Found {
        let start = self.ring.start(index);
        // SAFETY: the slot is ours, and the kernel has written its header; `struct sockaddr_ll` follows.
        let (header, kind) =
            unsafe { (start.cast::<libc::tpacket2_hdr>().read(), kind_of::<libc::tpacket2_hdr>(start)) };
        let used = u32::from(header.tp_mac) + header.tp_snaplen;
        Found {
            // SAFETY: the kernel says that the frame begins there.
            data: unsafe { start.add(usize::from(header.tp_mac)) },
            length: header.tp_snaplen,
            wire_length: header.tp_len,
            // What was before the frame has been read; all of it may be overwritten.
            headroom: u32::from(header.tp_mac),
            tailroom: (self.ring.slot as u32).saturating_sub(used),
            status: header.tp_status,
            tag: shared::tag(header.tp_status, header.tp_vlan_tci, header.tp_vlan_tpid),
            stamp: stamps::of_ring(header.tp_sec, header.tp_nsec, header.tp_status),
            kind,
        }
    }

    /// Fetches the whole frame from the socket's queue, if it is there.
    fn fetch(&self, fd: BorrowedFd<'_>, copy: usize, found: &mut Found) -> bool {
        let before = if self.vnet { offload::HEADER } else { 0 };
        // SAFETY: `copy` is less than COPIES; the virtio header ends where the frame begins, and COPY bytes are ours.
        let (data, rc) = unsafe {
            let data = self.copies.base().add(copy * COPY + COPY_START);
            let (to, room) = (data.sub(before), COPY - COPY_START + before);
            (data, libc::recv(fd.as_raw_fd(), to.as_ptr().cast(), room, libc::MSG_DONTWAIT))
        };
        let Some(length) = usize::try_from(rc).ok().and_then(|length| length.checked_sub(before)) else {
            return false;
        };
        (found.data, found.headroom) = (data, COPY_START as u32);
        (found.length, found.tailroom) = (length as u32, (COPY - COPY_START).saturating_sub(length) as u32);
        true
    }
}

impl Source for Slots {
    const LOSS: (&'static str, &'static str) = ("ring", drop::RING_FULL);
    const SEES_ERRORS: bool = false;

    fn lend(&mut self, fd: BorrowedFd<'_>, limit: usize, batch: &mut BatchBuilder) -> io::Result<bool> {
        self.give_back();
        let mut copies = 0;
        while batch.slots.len() < limit && self.lent < self.ring.count && copies < COPIES {
            let status = self.ring.status(self.head).load(Ordering::Acquire);
            if status & libc::TP_STATUS_USER == 0 {
                break;
            }
            let mut found = self.found(self.head);
            self.head = (self.head + 1) % self.ring.count;
            self.lent += 1;
            if status & QUEUED != 0 && self.fetch(fd, copies, &mut found) {
                copies += 1;
            }
            // SAFETY: slot and copy are ours, and the kernel wrote a virtio header before the frame.
            unsafe { found.lend(self.vnet, batch) };
        }
        Ok(self.lent > 0)
    }
}
