//! A receiving thread: receive, look, copy to the writer, and nothing else.
//!
//! The hot loop allocates nothing: a batch is looked at where it lies ([`Census::add`]) and, when it shall be written,
//! copied once ([`ReceiverSide::push`]). Counters go out by relaxed stores once a batch; what the port lost is asked for a few
//! times a second, by this thread alone, because the kernel forgets such a counter when it is read.

use super::census::Census;
use super::queue::ReceiverSide;
use super::writer::{self, Lost};
use linux::port::{Batch, MAX_BATCH, Meta, PortError, ReceiveCounters, Receiver, StampSource, Wait};
use linux::sys::{clock, cpu};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::filter::Program;

/// How long a receiver waits for frames before it looks whether it shall end.
const TICK: Duration = Duration::from_millis(100);

/// Frames that are received at once: so many that a batch's own cost is nothing for each of them, and so few that the
/// frames and what is known about them are still in the processor's first cache when they are looked at.
const BATCH: usize = MAX_BATCH / 4;

/// Between two looks at what the port lost, and the longest that a frame waits for others on its way to the writer.
const PUBLISH_NS: u64 = 200_000_000;

/// How long a ring may keep frames back after the end (a block's retire time).
const DRAIN_WAIT: Duration = Duration::from_millis(150);
/// How long the end may take when frames go on coming, and how long when a backlog from before it is still being read.
const DRAIN_NS: u64 = 500_000_000;
const BACKLOG_NS: u64 = 10_000_000_000;

/// What one thread shows while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Frames captured.
    pub frames: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Frames that found no room in the queue.
    pub queue_drops: AtomicU64,
    /// What the port counted, a moment ago.
    port: Mutex<ReceiveCounters>,
}

impl Progress {
    /// What the port counted, to be looked at or written.
    pub fn counted(&self) -> MutexGuard<'_, ReceiveCounters> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What all threads share.
#[derive(Debug, Default)]
pub struct Shared {
    stop: AtomicBool,
    /// `CLOCK_REALTIME` of the end.
    end_ns: AtomicU64,
    /// `CLOCK_MONOTONIC` when the count was full, or a port had no more; never, where somebody else ended it.
    pub over_ns: AtomicU64,
    /// Frames that may still be captured; more than enough when there is no limit.
    remaining: AtomicU64,
    /// Threads that have ended.
    pub ended: AtomicU64,
    /// Times that a thread found the link down.
    pub downs: AtomicU64,
    /// One for each thread.
    pub threads: Vec<Progress>,
    /// What the writer knows.
    pub writer: writer::Shared,
}

impl Shared {
    /// For so many threads and frames.
    pub fn new(threads: usize, count: Option<u64>) -> Self {
        Shared {
            end_ns: AtomicU64::new(u64::MAX),
            over_ns: AtomicU64::new(u64::MAX),
            remaining: AtomicU64::new(count.unwrap_or(u64::MAX)),
            threads: (0..threads).map(|_| Progress::default()).collect(),
            ..Shared::default()
        }
    }

    /// Ends the capture now: later frames do not belong to it.
    pub fn stop(&self) {
        let now = clock::realtime_ns();
        let _ = self.end_ns.compare_exchange(u64::MAX, now, Release, Relaxed);
        self.stop.store(true, Release);
    }

    /// True once it shall end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Acquire)
    }

    /// True when as many frames were captured as were wanted.
    pub fn is_full(&self) -> bool {
        self.remaining.load(Relaxed) == 0
    }

    /// What the receivers lost, as far as they have shown it.
    pub fn lost(&self) -> Lost {
        self.threads.iter().fold(Lost::default(), |sum, thread| {
            let port = lost(&thread.counted());
            Lost { port: sum.port + port, queue: sum.queue + thread.queue_drops.load(Relaxed) }
        })
    }

    /// Takes up to `wanted` from what remains.
    fn claim(&self, wanted: u64) -> u64 {
        let before = self.remaining.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(wanted)));
        before.unwrap_or(0).min(wanted)
    }

    fn give_back(&self, unused: u64) {
        if unused > 0 {
            self.remaining.fetch_add(unused, Relaxed);
        }
    }
}

/// What a port lost.
fn lost(counters: &ReceiveCounters) -> u64 {
    counters.drops.iter().map(|drop| drop.count).sum()
}

/// What one thread counts.
#[derive(Debug)]
pub struct Counts {
    /// What frames are.
    pub census: Census,
    /// Frames that the filter refused here.
    pub filtered: u64,
    /// Frames after the end.
    pub after: u64,
    /// The earliest and the latest time that a capture file gives its frames.
    pub recorded: Option<(u64, u64)>,
}

/// What one thread brings home.
#[derive(Debug)]
pub struct WorkerResult {
    /// What it counted.
    pub counts: Counts,
    /// What its port counted in all.
    pub port: ReceiveCounters,
    /// Frames that found no room in the queue.
    pub queue_drops: u64,
    /// Why it ended by itself.
    pub ended: Option<PortError>,
    /// What the port says must be known.
    pub notes: Vec<String>,
}

/// A thread that is ready.
pub struct Worker<'a> {
    /// Where frames come from.
    pub receiver: Box<dyn Receiver>,
    /// Its number.
    pub number: usize,
    /// The CPU that it shall stay on.
    pub cpu: Option<u32>,
    /// After the end, take what the kernel still has, so that the account can be closed.
    pub drains: bool,
    /// The rest.
    pub tally: Tally<'a>,
}

/// What a batch is counted into.
pub struct Tally<'a> {
    /// What was counted.
    pub counts: Counts,
    /// The way to the writer.
    pub lane: Option<ReceiverSide>,
    /// The filter, where the port does not run it.
    pub filter: Option<Program>,
    /// What all threads share.
    pub shared: &'a Shared,
}

impl Tally<'_> {
    /// Counts and copies a batch. After the end (`end_ns`), only frames that passed before it.
    #[inline]
    fn take(&mut self, batch: &Batch<'_>, end_ns: Option<u64>) {
        let mut claim = self.shared.claim(batch.len() as u64);
        for i in 0..batch.len() {
            let (bytes, meta) = (batch.bytes(i), batch.meta(i));
            if let Some(filter) = &self.filter
                && filter.run(bytes, meta.wire_length) == 0
            {
                self.counts.filtered += 1;
                continue;
            }
            if claim == 0 || end_ns.is_some_and(|end| is_after(meta, end)) {
                self.counts.after += 1;
                continue;
            }
            claim -= 1;
            self.counts.census.add(bytes, meta);
            if meta.stamp.source == StampSource::File {
                let ns = meta.stamp.ns;
                let known = self.counts.recorded.unwrap_or((ns, ns));
                self.counts.recorded = Some((known.0.min(ns), known.1.max(ns)));
            }
            if let Some(lane) = &mut self.lane {
                lane.push(bytes, meta);
            }
        }
        self.shared.give_back(claim);
    }
}

/// True for a frame whose own time says that it came after the end.
fn is_after(meta: &Meta, end_ns: u64) -> bool {
    let comparable =
        matches!(meta.stamp.source, StampSource::User | StampSource::Software | StampSource::HardwareSystem);
    comparable && meta.stamp.ns > end_ns
}

impl Worker<'_> {
    /// Receives until the end.
    pub fn run(mut self) -> WorkerResult {
        if let Some(cpu) = self.cpu {
            // A CPU that is not there was refused before.
            let _ = cpu::pin_thread(cpu);
        }
        let mut published = 0;
        let ended = loop {
            if self.tally.shared.stopped() {
                break None;
            }
            if self.tally.shared.is_full() {
                self.tally.shared.stop();
                break None;
            }
            match self.receive(TICK, None) {
                Ok(count) => self.after_batch(count, &mut published),
                Err(PortError::Down) => {
                    self.tally.shared.downs.fetch_add(1, Relaxed);
                }
                Err(error) => break Some(error),
            }
        };
        if ended.is_some() || self.tally.shared.is_full() {
            self.tally.shared.over_ns.fetch_min(clock::monotonic_ns(), Relaxed);
        }
        if self.drains && ended.is_none() {
            self.drain();
        }
        self.finish(ended)
    }

    fn receive(&mut self, wait: Duration, end_ns: Option<u64>) -> Result<usize, PortError> {
        // With one thread nothing beyond the count is taken from the port.
        let left = self.tally.shared.remaining.load(Relaxed);
        let limit = if left == 0 { BATCH } else { left.min(BATCH as u64) as usize };
        let batch = self.receiver.receive(limit, Wait::For(wait))?;
        self.tally.take(&batch, end_ns);
        Ok(batch.len())
    }

    /// Shows the counters, and hands frames to the writer.
    fn after_batch(&mut self, count: usize, published: &mut u64) {
        self.show();
        let now = clock::monotonic_ns();
        let is_due = now - *published >= PUBLISH_NS;
        if let Some(lane) = &mut self.tally.lane {
            let watermark =
                if count > 0 { 0 } else { clock::realtime_ns().saturating_sub(writer::WINDOW_NS) };
            // Thin traffic without a pause neither fills a block nor leaves the port idle.
            lane.pause(watermark, count == 0 || is_due);
        }
        if is_due {
            *published = now;
            self.publish();
        }
    }

    /// Shows what was counted; returns the frames that found no room in the queue.
    fn show(&self) -> u64 {
        let progress = &self.tally.shared.threads[self.number];
        progress.frames.store(self.tally.counts.census.frames, Relaxed);
        progress.bytes.store(self.tally.counts.census.bytes, Relaxed);
        let queue_drops = self.tally.lane.as_ref().map_or(0, |lane| lane.dropped);
        progress.queue_drops.store(queue_drops, Relaxed);
        queue_drops
    }

    fn publish(&mut self) {
        let counters = self.receiver.counters();
        let mut shown = self.tally.shared.threads[self.number].counted();
        if let Some(lane) = &mut self.tally.lane {
            lane.lost(lost(&counters).saturating_sub(lost(&shown)));
        }
        *shown = counters;
    }

    /// Takes what the kernel already has: frames that passed before the end are captured, the others counted.
    fn drain(&mut self) {
        let end_ns = self.tally.shared.end_ns.load(Acquire);
        let begun_ns = clock::monotonic_ns();
        while self.receive(DRAIN_WAIT, Some(end_ns)).is_ok_and(|count| count > 0) {
            let took_ns = clock::monotonic_ns() - begun_ns;
            let is_past_the_end = self.tally.counts.after > 0;
            if took_ns > BACKLOG_NS || (took_ns > DRAIN_NS && is_past_the_end) {
                break;
            }
        }
    }

    fn finish(mut self, ended: Option<PortError>) -> WorkerResult {
        self.publish();
        let port = self.receiver.counters();
        // Shown before the last block is handed over: the writer asks for it when it has seen that block.
        let queue_drops = self.show();
        if let Some(lane) = self.tally.lane.take() {
            lane.finish();
        }
        self.tally.shared.ended.fetch_add(1, Release);
        let notes = self.receiver.notes().to_vec();
        WorkerResult { counts: self.tally.counts, port, queue_drops, ended, notes }
    }
}
