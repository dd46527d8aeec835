//! The receiving end of a packet socket, wherever its frames lie: in messages (`int:`) or in a ring (`ring:`).

use super::shared::{self, LinkWatch};
use crate::port::batch::{Batch, Home, MAX_BATCH, Meta, Slot};
use crate::port::batch_builder::BatchBuilder;
use crate::port::{PortOptions, PortResult, ReceiveCounters, Receiver, Stamp, Wait};
use crate::sys::packet::{InterfaceFacts, Losses};
use record::PlaceDrop;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Instant;

/// Where the frames of a socket lie.
pub(in crate::port) trait Source: Send {
    /// Where frames are lost that it has no room for, and the name of that.
    const LOSS: (&'static str, &'static str);
    /// A call that finds no frame has seen an error of the socket, if there was one.
    const SEES_ERRORS: bool;

    /// Adds up to `limit` frames, at least one, to the batch; false: there are none now. No batch may be out.
    fn lend(&mut self, fd: BorrowedFd<'_>, limit: usize, batch: &mut BatchBuilder) -> io::Result<bool>;
}

/// The receiving end.
pub(in crate::port) struct SocketReceiver<S> {
    /// Before the socket, so that a mapping goes first.
    source: S,
    fd: OwnedFd,
    watch: LinkWatch,
    batch: BatchBuilder,
    losses: Losses,
}

impl<S: Source> SocketReceiver<S> {
    /// The end of a socket that is listening.
    pub fn new(source: S, fd: OwnedFd, facts: &InterfaceFacts, wish: &PortOptions) -> Self {
        let (watch, batch) = (LinkWatch::new(facts), BatchBuilder::new(wish));
        SocketReceiver { source, fd, watch, batch, losses: Losses::default() }
    }
}

impl<S: Source> Receiver for SocketReceiver<S> {
    fn receive(&mut self, limit: usize, wait: Wait) -> PortResult<Batch<'_>> {
        self.batch.slots.clear();
        self.watch.check()?;
        let limit = limit.min(MAX_BATCH);
        if limit == 0 {
            return Ok(self.batch.lend());
        }
        let mut deadline = None;
        loop {
            let some = self.source.lend(self.fd.as_fd(), limit, &mut self.batch);
            let some = some.map_err(|error| self.watch.explain(&self.fd, error))?;
            // Frames do not say that the link is up: a ring hands over late what came before it went down, and of an
            // interface that left the namespace then nothing would be heard any more.
            if some && !self.batch.slots.is_empty() {
                break;
            }
            // The clock is read only when there is nothing to do.
            deadline = deadline.or_else(|| wait.deadline());
            let over = match some {
                // The filter may refuse everything for long.
                true => deadline.is_none_or(|deadline| Instant::now() >= deadline),
                false if S::SEES_ERRORS && deadline.is_none() && !self.watch.is_down() => true,
                false => !self.watch.wait(self.fd.as_fd(), deadline)?,
            };
            if over {
                break;
            }
        }
        self.losses.look(&self.fd, self.batch.counters.frames, self.batch.slots.len());
        Ok(self.batch.lend())
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.losses.read(&self.fd);
        ReceiveCounters {
            drops: vec![PlaceDrop::new(S::LOSS.0, S::LOSS.1, self.losses.drops)],
            freezes: self.losses.freezes,
            ..self.batch.counters.clone()
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

/// A frame that the kernel handed over, and what it tells of it.
#[derive(Debug)]
pub(in crate::port) struct Found {
    /// First byte of the frame.
    pub data: NonNull<u8>,
    /// Bytes of the frame that are here.
    pub length: u32,
    /// Bytes that it had.
    pub wire_length: u32,
    /// Bytes before it that are ours.
    pub headroom: u32,
    /// Bytes behind it that are ours.
    pub tailroom: u32,
    /// `tp_status`.
    pub status: u32,
    /// The tag that the kernel took out.
    pub tag: Option<[u8; 4]>,
    /// When.
    pub stamp: Stamp,
    /// `sll_pkttype`.
    pub kind: u8,
}

impl Found {
    /// Puts the tag back, runs the filter where the kernel could not, and adds the frame if it is wanted.
    ///
    /// # Safety
    /// The frame's bytes and both rooms are valid and ours; with `vnet` its virtio header ends where the frame begins.
    #[inline]
    pub unsafe fn lend(&self, vnet: bool, batch: &mut BatchBuilder) {
        let meta = Meta {
            wire_length: self.wire_length,
            stamp: self.stamp,
            way: shared::way(self.kind),
            // SAFETY: as promised by the caller.
            offload: unsafe { shared::offload_of(self.data, self.length, vnet, self.status) },
            ..Meta::default()
        };
        let &Found { data, length, headroom, tailroom, tag, .. } = self;
        let mut slot = Slot { data, length, headroom, tailroom, home: Home::Lent, meta };
        let mut limit = batch.snap();
        if let Some(tag) = tag {
            // SAFETY: as promised by the caller.
            unsafe { shared::put_back(&mut slot, tag) };
            limit = batch.wanted(slot.bytes(), slot.meta.wire_length);
        }
        if limit > 0 {
            batch.add(slot, limit);
        }
    }
}
