//! The way out of a port, or of a queue of it.
//!
//! **What.** An [`OutputPort`] is a transmitter behind a lock, with the count of what was to leave and did
//! not. [`OutputPort::send`] sends the frames of one run where they lie.
//!
//! **Why.** Several ports' threads send by one port. The port itself knows what it took, so what is lost is a
//! difference and not a second count.
//!
//! **Price.** A frame that finds its port full waits a little and is then dropped and counted.

use crate::shared::locked;
use linux::port::{Batch, Hand, TransmitCounters, Transmitter};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::offload::Pieces;

/// How often a full port is asked again, and how long it is given each time.
pub(crate) const FULL_LOOKS: u32 = 5;
const FULL_WAIT: Duration = Duration::from_micros(200);

/// One port, on its way out.
pub(crate) struct OutputPort {
    out: Mutex<Out>,
    /// Frames dropped because the port was full or broken, or refused them.
    pub(crate) dropped: AtomicU64,
    /// It leads to an interface that is no longer there.
    pub(crate) is_dead: AtomicBool,
    /// The thread that receives here is to end: another one was opened instead.
    is_over: Mutex<Arc<AtomicBool>>,
}

/// Frames and bytes.
pub(crate) type Count = (u64, u64);

struct Out {
    /// None once it was closed.
    transmitter: Option<Box<dyn Transmitter>>,
    /// How often it is asked again when it is full.
    looks: u32,
    /// What was to leave, and of these what is known to be lost.
    wanted: Count,
    lost: Count,
    /// What the segments of super-frames that were not taken are more than these: ports count a super-frame
    /// as one.
    more: Count,
}

impl OutputPort {
    /// By this transmitter, which is asked so many times again when it is full.
    pub(crate) fn new(transmitter: Box<dyn Transmitter>, looks: u32) -> OutputPort {
        OutputPort {
            out: Mutex::new(Out::new(Some(transmitter), looks)),
            dropped: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
            is_over: Mutex::default(),
        }
    }

    /// What tells the thread that receives here to end.
    pub(crate) fn is_over(&self) -> Arc<AtomicBool> {
        locked(&self.is_over).clone()
    }

    /// Goes on with another transmitter; the thread that received here is told to end, and the next one is
    /// told by what is returned.
    pub(crate) fn replace(&self, transmitter: Box<dyn Transmitter>) -> Arc<AtomicBool> {
        *locked(&self.out) = Out::new(Some(transmitter), FULL_LOOKS);
        let is_over = Arc::default();
        std::mem::replace(&mut *locked(&self.is_over), Arc::clone(&is_over)).store(true, Relaxed);
        is_over
    }

    /// Lets go of an interface that is gone, both ways: a socket that is still there can be in the way of the next one. What is to leave is lost
    /// until there is another transmitter.
    pub(crate) fn close(&self) {
        *locked(&self.out) = Out::new(None, FULL_LOOKS);
        locked(&self.is_over).store(true, Relaxed);
    }

    /// What the transmitter counted.
    #[cfg(test)]
    pub(crate) fn counters(&self) -> TransmitCounters {
        locked(&self.out).counters()
    }

    /// Sends frames of a batch, in order; what was lost, if anything was.
    pub(crate) fn send(&self, batch: &mut Batch<'_>, which: &[u16], hand: Hand) -> Option<Count> {
        let mut out = locked(&self.out);
        if out.push(batch, which, hand) {
            return None;
        }
        let lost = out.newly_lost();
        self.dropped.fetch_add(lost.0, Relaxed);
        Some(lost)
    }
}

impl Out {
    fn new(transmitter: Option<Box<dyn Transmitter>>, looks: u32) -> Out {
        Out { transmitter, looks, wanted: (0, 0), lost: (0, 0), more: (0, 0) }
    }

    /// What the transmitter counted.
    fn counters(&mut self) -> TransmitCounters {
        self.transmitter.as_mut().map(|transmitter| transmitter.counters()).unwrap_or_default()
    }

    /// True when all of the frames were taken.
    fn push(&mut self, batch: &mut Batch<'_>, which: &[u16], hand: Hand) -> bool {
        let bytes = which.iter().map(|&index| batch.bytes(index.into()).len() as u64);
        self.wanted = (self.wanted.0 + which.len() as u64, self.wanted.1 + bytes.sum::<u64>());
        let (mut all, mut done, mut looks) = (true, 0, 0);
        while done < which.len() {
            let Some(transmitter) = &mut self.transmitter else { break };
            let Ok(sent) = transmitter.transmit(batch, &which[done..], hand) else { break };
            done += sent.dealt;
            all &= sent.refused == 0;
            if done < which.len() {
                looks += 1;
                if looks > self.looks || transmitter.flush(FULL_WAIT).is_err() {
                    break;
                }
            }
        }
        self.count_segments(batch, &which[done..]);
        all && done == which.len()
    }

    /// Counts the segments of what was not taken. Which of the others a port refused it does not say; it
    /// refuses super-frames before all, and these are counted as one each.
    fn count_segments(&mut self, batch: &Batch<'_>, left: &[u16]) {
        for &index in left {
            let (bytes, meta) = (batch.bytes(index.into()), batch.meta(index.into()));
            let pieces = Pieces::of(bytes, &meta.offload);
            self.more.0 += pieces.count - 1;
            self.more.1 += pieces.bytes(bytes.len()) - bytes.len() as u64;
        }
    }

    /// What was to leave and did not, since this was asked last. The port itself knows what it took.
    fn newly_lost(&mut self) -> Count {
        let taken = self.counters();
        let lost = (self.wanted.0.saturating_sub(taken.accepted), self.wanted.1.saturating_sub(taken.bytes));
        let before = std::mem::replace(&mut self.lost, lost);
        let more = std::mem::take(&mut self.more);
        (lost.0.saturating_sub(before.0) + more.0, lost.1.saturating_sub(before.1) + more.1)
    }
}
