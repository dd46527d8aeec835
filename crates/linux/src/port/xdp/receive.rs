//! Receiving from an AF_XDP socket: the frames are lent where the kernel put them.

use super::redirect::Redirect;
use super::socket::{Held, Inward, Socket};
use crate::port::batch::{Batch, Home, MAX_BATCH, Meta, Slot};
use crate::port::batch_builder::BatchBuilder;
use crate::port::interface::{Health, Probe};
use crate::port::{
    FrameDirection, PortError, PortResult, ReceiveCounters, Receiver, Stamp, StampSource, Wait,
};
use crate::sys::{clock, notice};
use nix::poll::{PollFd, PollFlags};
use record::{PlaceDrop, drop};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::layers::Layers;
use wire::offload;

/// How often a receiver that never waits asks after the interface.
const POLLS_BETWEEN_CHECKS: u32 = 4096;

/// What becomes of frames whose checksum holds only the pseudo header's sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksums {
    /// They are completed.
    Complete,
    /// They are left as they are, and described in [`Meta::offload`].
    Keep,
}

impl Checksums {
    /// Both, with the words for them.
    pub const NAMES: [(&'static str, Checksums); 2] =
        [("complete", Checksums::Complete), ("keep", Checksums::Keep)];
}

/// What an open receiver works with.
pub struct XdpReceiver {
    // The rings are unmapped first: a mapping keeps the socket open.
    pub(super) rings: Inward,
    /// In the kernel's hands: posted to fill, and not received yet.
    pub(super) held: Held,
    pub(super) posted: u32,
    /// The most that may be.
    pub(super) frames: u32,
    /// Free chunks of ours.
    pub(super) spare: Vec<u32>,
    pub(super) batch: BatchBuilder,
    pub(super) completed_checksums: u64,
    pub(super) checksums: Checksums,
    pub(super) probe: Probe,
    pub(super) polls: u32,
    /// Holds promiscuous mode.
    pub(super) _promiscuous: Option<OwnedFd>,
    pub(super) socket: Arc<Socket>,
    pub(super) _redirect: Arc<Redirect>,
}

// SAFETY: slots point into the area, which the socket holds; whoever has the receiver is the only one who uses them.
unsafe impl Send for XdpReceiver {}

impl XdpReceiver {
    /// Gives the kernel chunks to fill.
    pub(super) fn refill(&mut self) {
        let wanted = (self.frames - self.posted) as usize;
        if self.spare.len() < wanted {
            self.socket.area.take(wanted - self.spare.len(), &mut self.spare);
        }
        let count = self.spare.len().min(wanted).min(self.rings.fill.room(wanted as u32) as usize);
        let bytes = u64::from(self.socket.area.chunk_bytes());
        for chunk in self.spare.drain(self.spare.len() - count..) {
            self.held.add(chunk);
            self.rings.fill.write(u64::from(chunk) * bytes);
        }
        if count > 0 {
            self.rings.fill.publish();
            self.posted += count as u32;
        }
        // What another receiver of the area may need is not kept here.
        if !self.spare.is_empty() {
            self.socket.area.give(self.spare.drain(..));
        }
    }

    /// Waits for frames; false when none came in time, or a signal did.
    fn wait(&mut self, until: Option<Instant>) -> PortResult<bool> {
        if self.rings.fill.needs_wakeup() {
            self.socket.wake_receive();
        }
        let Some(until) = until else {
            self.polls = self.polls.wrapping_add(1);
            if self.polls.is_multiple_of(POLLS_BETWEEN_CHECKS) {
                self.probe.check()?;
            }
            return Ok(self.rings.frames.available() > 0);
        };
        let left = until.saturating_duration_since(Instant::now());
        let mut poll = [PollFd::new(self.socket.fd(), PollFlags::POLLIN)];
        notice::poll(&mut poll, Some(left)).map_err(PortError::Io)?;
        let trouble =
            poll[0].revents().is_some_and(|flags| flags.intersects(PollFlags::POLLERR | PollFlags::POLLHUP));
        let some = self.rings.frames.available() > 0;
        if !some {
            self.probe.check()?;
            if trouble {
                // The socket lost its interface, or reports something that does not go away by waiting: no busy loop.
                std::thread::sleep(
                    until.saturating_duration_since(Instant::now()).min(Duration::from_millis(1)),
                );
            }
        }
        Ok(some)
    }

    /// Makes slots of up to `limit` frames; those that the filter does not want are left out.
    fn collect(&mut self, limit: usize) {
        let area = self.socket.area.clone();
        let chunk_bytes = area.chunk_bytes();
        let stamp = Stamp { ns: clock::realtime_ns(), source: StampSource::User };
        let count = (self.rings.frames.available() as usize).min(limit);
        for _ in 0..count {
            let frame = self.rings.frames.read();
            let number = (frame.addr / u64::from(chunk_bytes)) as u32;
            let offset = (frame.addr % u64::from(chunk_bytes)) as u32;
            if !self.held.remove(number) {
                continue;
            }
            self.posted -= 1;
            let length = frame.len.min(chunk_bytes - offset);
            // SAFETY: the kernel wrote the frame into this chunk, which is ours again now.
            let data = unsafe { area.chunk(number).add(offset as usize) };
            let mut slot = Slot {
                data,
                length,
                headroom: offset,
                tailroom: chunk_bytes - offset - length,
                home: Home::Chunk { area: Arc::as_ptr(&area).cast(), number },
                meta: Meta { wire_length: length, stamp, way: FrameDirection::In, ..Meta::default() },
            };
            let wanted = self.batch.wanted(slot.bytes(), length);
            if wanted == 0 {
                self.spare.push(number);
                continue;
            }
            self.settle_checksum(&mut slot);
            self.batch.add(slot, wanted);
        }
        self.rings.frames.release();
    }

    /// AF_XDP does not say when a checksum was left to the hardware: it shows in the field itself.
    fn settle_checksum(&mut self, slot: &mut Slot) {
        let Some(partial) = offload::pseudo_only(slot.bytes()) else { return };
        match self.checksums {
            Checksums::Keep => slot.meta.offload.partial = Some(partial),
            Checksums::Complete => {
                self.completed_checksums += u64::from(complete(slot.bytes_mut(), partial));
            }
        }
    }
}

/// Completes a checksum that holds the pseudo header's sum, over the IP packet and not what may be padded behind it.
pub(super) fn complete(bytes: &mut [u8], partial: offload::Partial) -> bool {
    let end = Layers::of(bytes).map_or(bytes.len(), |layers| layers.end.min(bytes.len()));
    offload::complete(&mut bytes[..end], partial).is_ok()
}

impl Receiver for XdpReceiver {
    fn receive(&mut self, limit: usize, wait: Wait) -> PortResult<Batch<'_>> {
        self.spare.extend(self.batch.take_back());
        if self.probe.last() == Health::Gone {
            return Err(PortError::Gone);
        }
        let limit = limit.min(MAX_BATCH);
        let mut until = None;
        loop {
            self.refill();
            if self.rings.frames.available() == 0 {
                until = until.or_else(|| wait.deadline());
                if !self.wait(until)? {
                    break;
                }
            }
            self.collect(limit);
            // Frames that the filter refused are no reason to come back early.
            let time_is_up = until.is_none_or(|until| Instant::now() >= until) && wait == Wait::Poll;
            if !self.batch.slots.is_empty() || limit == 0 || time_is_up {
                break;
            }
        }
        Ok(self.batch.lend())
    }

    fn counters(&mut self) -> ReceiveCounters {
        let kernel = self.socket.statistics();
        let mut counters = self.batch.counters.clone();
        counters.drops = vec![
            PlaceDrop::new("ring", drop::DROPPED, kernel.rx_dropped),
            PlaceDrop::new("ring", drop::RING_FULL, kernel.rx_ring_full),
            PlaceDrop::new("ring", drop::INVALID_CHUNK, kernel.rx_invalid_descs),
        ];
        counters.extra = vec![
            ("completed_checksums", self.completed_checksums),
            ("fill_ring_empty", kernel.rx_fill_ring_empty_descs),
        ];
        counters
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
    }
}

impl Drop for XdpReceiver {
    fn drop(&mut self) {
        self.spare.extend(self.batch.take_back());
        self.socket.area.give(self.spare.drain(..));
        self.socket.leave(self.held.all());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::build::{Ends, build_udp};

    fn frame(v6: bool, payload: &[u8]) -> Vec<u8> {
        let address = |host: u8| match v6 {
            false => std::net::IpAddr::from([10, 0, 0, host]),
            true => std::net::IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)]),
        };
        let ends = Ends {
            macs: ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]),
            addresses: (address(1), address(2)),
            ports: (1, 2),
        };
        build_udp(&ends, payload).unwrap()
    }

    /// What the port does with a frame.
    fn settle(bytes: &mut [u8]) -> bool {
        offload::pseudo_only(bytes).is_some_and(|partial| complete(bytes, partial))
    }

    proptest! {
        #[test]
        fn a_right_checksum_is_never_changed(
            v6: bool,
            payload in prop::collection::vec(any::<u8>(), 2..200),
            padding in prop::collection::vec(any::<u8>(), 0..20),
            collide: bool,
        ) {
            let mut payload = payload;
            if collide {
                // The last word is chosen so that the right checksum equals the sum of the pseudo header.
                payload.truncate(payload.len() & !1);
                let end = payload.len();
                payload[end - 2..].fill(0);
                let bytes = frame(v6, &payload);
                let layers = Layers::of(&bytes).unwrap();
                let pseudo = !layers.pseudo(&bytes, 17, layers.end - layers.transport).finish();
                let field = layers.transport + 6;
                let has = u16::from_be_bytes([bytes[field], bytes[field + 1]]);
                // has − word ≡ pseudo (mod 2¹⁶ − 1)
                let word = (u32::from(has) + 0xffff - u32::from(pseudo)) % 0xffff;
                payload[end - 2..].copy_from_slice(&(word as u16).to_be_bytes());
            }
            let mut bytes = frame(v6, &payload);
            if collide {
                prop_assert!(offload::pseudo_only(&bytes).is_some(), "meant to look unfinished");
            }
            bytes.extend(padding);
            let before = bytes.clone();
            settle(&mut bytes);
            prop_assert_eq!(bytes, before);
        }

        #[test]
        fn an_unfinished_one_is_completed(v6: bool, payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let right = frame(v6, &payload);
            let mut bytes = right.clone();
            let layers = Layers::of(&bytes).unwrap();
            let pseudo = !layers.pseudo(&bytes, 17, layers.end - layers.transport).finish();
            let field = layers.transport + 6;
            bytes[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
            prop_assert!(settle(&mut bytes));
            prop_assert_eq!(bytes, right);
        }

        #[test]
        fn any_bytes_do_no_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            settle(&mut bytes);
        }
    }
}
