//! The transmitting end of `ring:`: a TPACKET_V2 ring of slots; one call tells the kernel to send what is in them.
//!
//! **Exact counts.** Only the call sends, so after it every slot of this call is either taken by the kernel or still
//! asking. A slot that still asks after `ENOBUFS` was tried and dropped by the qdisc; one that the kernel found wrong
//! says so (`PACKET_LOSS` is off: with it such a frame would vanish without a word). Either is counted and its slot is
//! filled anew. Slots that were not tried, because the socket buffer was full, are taken back: the frames are still
//! the caller's.
//!
//! **Price.** One copy of each frame into its slot. The kernel lends the slot's page to the interface; an interface that
//! hands frames on to another receiver (veth) copies it once more.

use super::super::batch::{Batch, Slot};
use super::super::packet::PacketTransmitter;
use super::super::packet::shared::refused;
use super::super::packet::transmit::SendTarget;
use super::super::sending::push_all;
use super::super::told::setting;
use super::super::{Hand, PortResult, TransmitCounters, Transmitted, Transmitter, Uri};
use super::Asked;
use super::slots::SlotRing;
use crate::sys::packet::{self, Mapping};
use crate::sys::socket;
use record::{PortSetting, Problem, Result, drop};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::offload;

const AVAILABLE: u32 = 0;
const ASKING: u32 = 1;
const WRONG: u32 = 1 << 2;
/// The status without the bits that tell about time stamps.
const STATE: u32 = 0xff;
/// Where the bytes begin in a slot: behind `struct tpacket2_hdr`, aligned to 16.
const START: usize = 32;
/// Offset of `tp_len`.
const LENGTH: usize = 4;
/// Frames for one call: enough that the call costs little, few enough that the interface begins at once.
const CALL: usize = 128;

/// The transmitting end.
pub struct RingTransmitter {
    ring: SlotRing,
    way: SendTarget,
    /// For super-frames, which are longer than a slot, and frames that must be finished before they are sent; it counts all.
    side: PacketTransmitter,
    /// Slot of the next frame.
    head: usize,
    /// Slots behind `head` that are not known to be free again.
    pending: usize,
    completed: u64,
}

impl RingTransmitter {
    /// Opens it as asked.
    pub fn open(uri: &Uri, asked: &Asked) -> Result<(RingTransmitter, Vec<PortSetting>)> {
        let (way, mut settings) = SendTarget::open(uri, asked.vnet, asked.bypass)?;
        let slot = (START + offload::HEADER + way.longest() + 8).next_power_of_two().max(2048);
        let block = slot.max(64 << 10);
        let blocks = (asked.tx_frames as usize * slot).div_ceil(block);
        let count = blocks * (block / slot);
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        packet::set(&way.fd, libc::PACKET_VERSION, version)
            .map_err(refused(uri, "this version of the ring"))?;
        let wanted = libc::tpacket_req {
            tp_block_size: block as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot as u32,
            tp_frame_nr: count as u32,
        };
        let failed = |error: io::Error| {
            let what = format!("the kernel gave no transmit ring of {count} slots of {slot} B: {error}");
            Problem::host(what).at(&uri.text).help("ask for a smaller one with tx_frames=N")
        };
        socket::set(&way.fd, libc::SOL_PACKET, libc::PACKET_TX_RING, &wanted).map_err(failed)?;
        let map = Mapping::ring(&way.fd, blocks * block, 0).map_err(failed)?;
        let wrote = asked.tx_frames.to_string();
        settings.push(setting(
            "tx_ring",
            &wrote,
            format!("{count} slots of {slot} B"),
            "one copy for each frame",
        ));
        let (side, _) = PacketTransmitter::open(uri, asked.vnet, asked.bypass, 1)?;
        let ring = SlotRing::new(map, slot);
        Ok((RingTransmitter { ring, way, side, head: 0, pending: 0, completed: 0 }, settings))
    }

    /// Looks which slots are free again, from the oldest on.
    fn reap(&mut self) {
        while self.pending > 0 {
            let oldest = (self.head + self.ring.count - self.pending) % self.ring.count;
            if self.ring.status(oldest).load(Ordering::Acquire) & STATE != AVAILABLE {
                return;
            }
            self.pending -= 1;
            self.completed += 1;
        }
    }

    /// Copies a frame into a slot and lets it ask to be sent.
    fn fill(&mut self, index: usize, frame: &Slot) {
        let mut length = frame.length as usize;
        // SAFETY: the slot is free, hence ours; `room` has checked that header and frame fit into it.
        unsafe {
            let start = self.ring.start(index);
            let mut to = start.add(START);
            if self.way.vnet {
                to.cast::<[u8; offload::HEADER]>().write(frame.meta.offload.write());
                to = to.add(offload::HEADER);
                length += offload::HEADER;
            }
            std::ptr::copy_nonoverlapping(frame.data.as_ptr(), to.as_ptr(), frame.length as usize);
            start.add(LENGTH).cast::<u32>().write(length as u32);
        }
        self.ring.status(index).store(ASKING, Ordering::Release);
        self.side.counters.copied += 1;
    }

    /// The longest frame that fits into a slot.
    fn room(&self) -> usize {
        self.ring.slot - START - offload::HEADER
    }

    /// Tells the kernel to send; it does so before it returns.
    fn kick(&self) -> io::Result<()> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        loop {
            // SAFETY: no bytes and no address are given.
            let rc = unsafe {
                libc::sendto(self.way.fd.as_raw_fd(), std::ptr::null(), 0, flags, std::ptr::null(), 0)
            };
            if rc >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Fills slots until one call is full, the ring is full, or a frame must be treated on its own. How many, and why
    /// the next one is refused if it is.
    fn prepare(&mut self, slots: &[Slot], which: &[u16]) -> (usize, Option<&'static str>) {
        let free = (self.ring.count - self.pending).min(CALL);
        for (filled, &index) in which.iter().take(free).enumerate() {
            let frame = &slots[usize::from(index)];
            if let Some(reason) = self.way.refusal(frame) {
                return (filled, Some(reason));
            }
            if frame.length as usize > self.room() {
                return (filled, None);
            }
            self.fill((self.head + filled) % self.ring.count, frame);
        }
        (which.len().min(free), None)
    }

    /// How many of the slots just filled the kernel has taken; the others are taken back. True beside it: the first of
    /// these was found wrong.
    fn taken(&mut self, filled: usize) -> (usize, bool) {
        let state =
            |at: usize| self.ring.status((self.head + at) % self.ring.count).load(Ordering::Acquire) & STATE;
        let taken = (0..filled).take_while(|&at| !matches!(state(at), ASKING | WRONG)).count();
        let wrong = taken < filled && state(taken) == WRONG;
        for at in taken..filled {
            self.ring.status((self.head + at) % self.ring.count).store(AVAILABLE, Ordering::Release);
        }
        self.head = (self.head + taken) % self.ring.count;
        self.pending += taken;
        (taken, wrong)
    }

    fn refuse(&mut self, reason: &'static str, sent: &mut Transmitted) {
        self.side.counters.refuse(reason, 1);
        sent.dealt += 1;
        sent.refused += 1;
    }

    /// Sends some; false: no more can be sent now.
    fn push(&mut self, batch: &mut Batch<'_>, which: &[u16], sent: &mut Transmitted) -> PortResult<bool> {
        self.reap();
        let (filled, reason) = self.prepare(batch.slots(), which);
        if filled == 0 {
            return match reason {
                Some(drop::OFFLOAD) => self.aside(batch.slots(), which[0], sent),
                Some(reason) => {
                    self.refuse(reason, sent);
                    Ok(true)
                }
                None if self.pending == self.ring.count => Ok(false),
                None => self.aside(batch.slots(), which[0], sent),
            };
        }
        let said = self.kick();
        let (taken, wrong) = self.taken(filled);
        if taken > 0 {
            self.way.watch.passes();
        }
        let length = |&index: &u16| u64::from(batch.bytes(usize::from(index)).len() as u32);
        self.side.counters.accepted += taken as u64;
        self.side.counters.bytes += which[..taken].iter().map(length).sum::<u64>();
        sent.dealt += taken;
        if wrong {
            // The call tells what was wrong with that slot: an MTU that became smaller meanwhile, or what is told of its
            // checksum and segments.
            let reason = said.err().map_or(Ok(None), |error| self.way.judge(error))?;
            self.refuse(reason.unwrap_or(drop::INVALID_OFFLOAD), sent);
            return Ok(true);
        }
        match said {
            Ok(()) => Ok(taken == filled),
            Err(_) if taken == filled => Ok(true),
            Err(error) => match self.way.judge(error)? {
                Some(reason) => {
                    self.refuse(reason, sent);
                    Ok(true)
                }
                None => Ok(false),
            },
        }
    }

    /// Sends a super-frame, or a frame that must be finished first, by the other socket. The order is kept: what is in the
    /// ring has been sent. Nothing is reported of it; it is few, and complete when it is accepted.
    fn aside(&mut self, slots: &mut [Slot], index: u16, sent: &mut Transmitted) -> PortResult<bool> {
        let before = self.side.counters.accepted;
        let some = self.side.push(slots, &[index], sent)?;
        self.completed += self.side.counters.accepted - before;
        // It may have found the link down.
        self.side.way.watch.check().map(|()| some)
    }
}

impl Transmitter for RingTransmitter {
    fn transmit(&mut self, batch: &mut Batch<'_>, which: &[u16], _hand: Hand) -> PortResult<Transmitted> {
        self.way.watch.check()?;
        let sent = push_all(which, |rest, sent| self.push(batch, rest, sent))?;
        self.side.counters.offered += sent.dealt as u64;
        self.way.watch.answer(sent)
    }

    fn flush(&mut self, wait: Duration) -> PortResult<usize> {
        let until = Instant::now() + wait;
        loop {
            self.reap();
            if self.pending == 0 {
                return self.side.flush(until.saturating_duration_since(Instant::now()));
            }
            if Instant::now() >= until {
                return Ok(self.pending);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn counters(&mut self) -> TransmitCounters {
        self.reap();
        TransmitCounters { completed: Some(self.completed), ..self.side.counters() }
    }

    fn longest(&self) -> usize {
        self.way.longest()
    }
}
