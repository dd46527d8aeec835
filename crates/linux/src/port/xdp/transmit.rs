//! Sending through an AF_XDP socket: a frame of the same area goes by its chunk's number, any other is copied once.

use super::receive::complete;
use super::socket::{Held, Outward, Socket};
use crate::port::area::Area;
use crate::port::batch::{Batch, Home, Slot};
use crate::port::interface::{Health, Probe};
use crate::port::sending::{Outcome, push_all};
use crate::port::{Hand, PortError, PortResult, TransmitCounters, Transmitted, Transmitter};
use record::{PlaceDrop, drop};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::offload::Cut;

/// How long a flush sleeps between two looks at the rings.
const NAP: Duration = Duration::from_micros(50);

/// Why a frame is refused.
pub(super) const REFUSALS: [&str; 6] =
    [drop::OVERSIZE, drop::RUNT, drop::TAKEN, drop::SUPER_FRAME, drop::CHECKSUM, drop::LINK_DOWN];

/// What an open transmitter works with.
pub struct XdpTransmitter {
    // The rings are unmapped first: a mapping keeps the socket open.
    pub(super) rings: Outward,
    /// In the kernel's hands: in the transmit ring, and not reported complete.
    pub(super) held: Held,
    pub(super) under_way: u32,
    pub(super) frames: u32,
    /// The longest frame without a tag.
    pub(super) longest: u32,
    /// Empty chunks for copies.
    pub(super) stash: Vec<u32>,
    pub(super) counters: TransmitCounters,
    pub(super) completed: u64,
    /// Frames that the driver dropped.
    pub(super) driver_dropped: u64,
    /// Kick the kernel only when it says that it waits.
    pub(super) wakeup: bool,
    pub(super) probe: Probe,
    /// Found by a system call after frames were dealt with; said by the next call.
    pub(super) to_say: Option<PortError>,
    pub(super) socket: Arc<Socket>,
}

impl XdpTransmitter {
    /// Takes back what the kernel has sent; chunks beyond those needed for copies go back to the area.
    fn reclaim(&mut self) {
        let count = self.rings.completion.available();
        if count == 0 {
            return;
        }
        let bytes = u64::from(self.socket.area.chunk_bytes());
        for _ in 0..count {
            let number = (self.rings.completion.read() / bytes) as u32;
            if self.held.remove(number) {
                self.under_way -= 1;
                self.completed += 1;
                self.stash.push(number);
            }
        }
        self.rings.completion.release();
        let area = &self.socket.area;
        area.give(self.stash.drain(..));
    }

    /// An empty chunk for a copy, with some more taken at the same time.
    fn chunk(&mut self, wanted: usize) -> Option<u32> {
        if self.stash.is_empty() {
            self.socket.area.take(wanted.max(1), &mut self.stash);
        }
        self.stash.pop()
    }

    fn room(&mut self) -> u32 {
        let free = self.frames - self.under_way;
        self.rings.frames.room(free).min(free)
    }

    fn submit(&mut self, number: u32, offset: u32, length: u32) {
        let addr = u64::from(number) * u64::from(self.socket.area.chunk_bytes()) + u64::from(offset);
        self.held.add(number);
        self.rings.frames.write(libc::xdp_desc { addr, len: length, options: 0 });
        self.under_way += 1;
    }

    /// Why the frame cannot be sent, if so.
    fn refusal(&self, slot: &Slot) -> Option<&'static str> {
        if slot.home != Home::Taken && self.probe.last() == Health::Down {
            return Some(drop::LINK_DOWN);
        }
        slot.refusal(self.longest as usize, self.socket.area.chunk_bytes() as usize)
    }

    fn send(&mut self, slot: &mut Slot, hand: Hand, left: usize) -> Outcome {
        if let Some(why) = self.refusal(slot) {
            return Outcome::Refused(why);
        }
        if slot.meta.offload.segments.is_some() {
            return self.send_pieces(slot);
        }
        let area = self.socket.area.clone();
        let own = area.place_of(slot).filter(|_| hand == Hand::Over);
        let (number, offset) = match own {
            Some(place) => place,
            None => {
                let Some(number) = self.chunk(left) else { return Outcome::Full };
                self.counters.copied += 1;
                // SAFETY: the chunk is ours, was not lent to anyone, and has room for the frame.
                (number, unsafe { area.copy(number, slot) })
            }
        };
        if let Some(partial) = slot.meta.offload.partial {
            // SAFETY: the frame lies in this chunk, which nobody else touches now.
            let bytes = unsafe {
                let data = area.chunk(number).add(offset as usize);
                std::slice::from_raw_parts_mut(data.as_ptr(), slot.length as usize)
            };
            if !complete(bytes, partial) {
                if own.is_none() {
                    self.stash.push(number);
                }
                return Outcome::Refused(drop::CHECKSUM);
            }
            self.counters.completed_checksums += 1;
        }
        if own.is_some() {
            slot.home = Home::Taken;
        }
        self.submit(number, offset, slot.length);
        Outcome::Sent
    }

    /// Cuts a super-frame into chunks of its own, all of it or nothing.
    fn send_pieces(&mut self, slot: &Slot) -> Outcome {
        let area = self.socket.area.clone();
        let cut = match Cut::new(slot.bytes(), &slot.meta.offload) {
            Ok(cut) if cut.longest() <= self.longest as usize && cut.count() <= self.frames as usize => cut,
            _ => return Outcome::Refused(drop::SUPER_FRAME),
        };
        let count = cut.count();
        if (self.room() as usize) < count {
            return Outcome::Full;
        }
        if self.stash.len() < count {
            area.take(count - self.stash.len(), &mut self.stash);
        }
        if self.stash.len() < count {
            return Outcome::Full;
        }
        for piece in 0..count {
            let Some(number) = self.stash.pop() else { return Outcome::Full };
            let length = cut.length(piece);
            let offset = (Area::HEADROOM as usize).min(area.chunk_bytes() as usize - length);
            // SAFETY: the chunk is ours and has room for the piece behind the offset.
            let to = unsafe {
                let data = area.chunk(number).add(offset);
                std::slice::from_raw_parts_mut(data.as_ptr(), length)
            };
            cut.write(piece, to);
            self.submit(number, offset as u32, length as u32);
        }
        self.counters.copied += 1;
        self.counters.segments += count as u64;
        Outcome::Sent
    }

    /// Makes the kernel send. In copy mode one call sends a limited number and says `EAGAIN` when there is more; `EBUSY`
    /// says that the driver dropped a frame.
    fn kick(&mut self) {
        if self.wakeup && !self.rings.frames.needs_wakeup() {
            return;
        }
        let mut pending = self.rings.frames.pending();
        while pending > 0 {
            let refused = match self.socket.wake_transmit() {
                Ok(()) => None,
                Err(error) => error.raw_os_error(),
            };
            let left = self.rings.frames.pending();
            match refused {
                Some(libc::EBUSY) if left < pending => {
                    self.driver_dropped += 1;
                    if self.driver_dropped.is_multiple_of(64) || left == 0 {
                        self.look();
                    }
                }
                None | Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => {}
                Some(_) => return self.look(),
            }
            // Without progress the driver is busy: that is for the caller to wait for.
            if left == pending {
                return;
            }
            pending = left;
            if left >= self.frames / 2 {
                self.reclaim();
            }
        }
    }

    /// Looks after the interface.
    fn look(&mut self) {
        self.to_say = self.probe.check().err().or(self.to_say.take());
    }

    fn ready(&mut self) -> PortResult<()> {
        if let Some(error) = self.to_say.take() {
            return Err(error);
        }
        if self.probe.last() == Health::Up { Ok(()) } else { self.probe.check() }
    }
}

impl Transmitter for XdpTransmitter {
    fn transmit(&mut self, batch: &mut Batch<'_>, which: &[u16], hand: Hand) -> PortResult<Transmitted> {
        self.ready()?;
        self.reclaim();
        let sent = push_all(which, |rest, sent| {
            if self.room() == 0 {
                self.rings.frames.publish();
                self.kick();
                self.reclaim();
                if self.room() == 0 {
                    return Ok(false);
                }
            }
            let slot = &mut batch.slots()[usize::from(rest[0])];
            let outcome = self.send(slot, hand, rest.len());
            Ok(self.counters.settle(outcome, slot.length, sent))
        });
        self.rings.frames.publish();
        self.kick();
        if !self.stash.is_empty() {
            self.socket.area.give(self.stash.drain(..));
        }
        sent.map(|sent| self.counters.count(sent))
    }

    fn flush(&mut self, wait: Duration) -> PortResult<usize> {
        self.ready()?;
        let until = Instant::now() + wait;
        loop {
            self.kick();
            self.reclaim();
            if self.under_way == 0 || self.probe.last() != Health::Up || Instant::now() >= until {
                return Ok(self.under_way as usize);
            }
            std::thread::sleep(NAP);
        }
    }

    fn counters(&mut self) -> TransmitCounters {
        self.reclaim();
        let mut counters = self.counters.clone();
        counters.completed = Some(self.completed);
        // The kernel took these out of the ring and dropped them while it sent.
        counters.accepted = counters.accepted.saturating_sub(self.driver_dropped);
        let invalid = self.socket.statistics().tx_invalid_descs;
        counters.drops.push(PlaceDrop::new("kernel", drop::DRIVER_DROPPED, self.driver_dropped));
        counters.drops.push(PlaceDrop::new("ring", drop::INVALID_FRAME, invalid));
        counters
    }

    fn longest(&self) -> usize {
        self.longest as usize
    }
}

impl Drop for XdpTransmitter {
    fn drop(&mut self) {
        self.reclaim();
        self.socket.area.give(self.stash.drain(..));
        self.socket.leave(self.held.all());
    }
}
