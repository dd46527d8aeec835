//! `fault:PORT`: any port, with faults that were asked for.
//!
//! **What.** `lose`, `duplicate`, `reorder` and `corrupt` are chances (`1%` or `0.01`) that hit each frame on its own;
//! `delay` holds every frame for at least so long. `side=rx` works on what is received, `side=tx` on what is sent,
//! `both` (the default) on each way by itself, so a delay counts twice there and back. In this order: a lost frame is
//! gone; one bit of a corrupted one is turned; a duplicate follows its twin at once; a reordered frame goes behind the
//! next one (or 10 ms later, if none comes).
//!
//! **Exact.** Chance is drawn from `seed`, five numbers for each frame whatever its fate, so the n-th frame of a way
//! meets the same fate in every run, and also when another chance is changed. Each fault is counted: what entered and
//! what was duplicated is what left, was lost, or is still held.
//!
//! **Price.** Frames that are held, doubled or (on the way out) corrupted are copied and counted; the others pass where
//! they lie, but a transmitter behind cannot take their memory. There is no thread: what is held on the way out leaves
//! with the next call of `transmit` or `flush`, what is held on the way in is there when `receive` waits long enough.

use super::batch::{Batch, Home, MAX_BATCH, Meta, Slot};
use super::batch_builder::BatchBuilder;
use super::{
    Hand, Port, PortError, PortOptions, PortResult, ReceiveCounters, Receiver, TransmitCounters, Transmitted,
    Transmitter, Uri, Wait,
};
use crate::port::sending::push_all;
use crate::port::told::setting;
use crate::sys::clock;
use record::{PlaceDrop, Result, drop, unit};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The longest delay.
const LONGEST_DELAY_NS: u64 = 60_000_000_000;
/// How long a reordered frame waits for one that overtakes it.
const REORDER_LIMIT_NS: u64 = 10_000_000;
/// Frames that one way holds; then it is full.
const MAX_HELD: usize = 1 << 16;
/// How long an end that is closed tries to send what it holds, beyond the delay.
const CLOSING: Duration = Duration::from_millis(100);

/// Opens `fault:PORT?lose=P&duplicate=P&reorder=P&corrupt=P&delay=TIME&seed=N&side=rx|tx|both`; all other settings are
/// those of the port inside.
///
/// # Errors
/// Input: settings that cannot be used, or what the port inside says.
pub fn open(uri: &mut Uri, wish: &PortOptions) -> Result<Port> {
    let text = uri.text.clone();
    let plan = Plan::take(uri)?;
    let sides = [("rx", (true, false)), ("tx", (false, true)), ("both", (true, true))];
    let (rx, tx) = uri.take_word("side", &sides)?.unwrap_or((true, true));
    let inside = super::open(&uri.remaining(), wish).map_err(|problem| problem.at(&text))?;
    let hit = if inside.receiver.is_some() { rx } else { tx };
    let effective = if hit { plan.text() } else { "none on this side".into() };
    let mut settings = inside.settings;
    settings.push(setting("faults", "", effective, ""));
    let receiver = inside
        .receiver
        .map(|inner| Box::new(FaultReceiver::new(inner, plan.only_if(rx), plan.seed)) as Box<dyn Receiver>);
    let transmitter = inside.transmitter.map(|inner| {
        let seed = plan.seed ^ 0x9e37_79b9_7f4a_7c15; // the two ways draw different numbers
        Box::new(FaultTransmitter::new(inner, plan.only_if(tx), seed)) as Box<dyn Transmitter>
    });
    Ok(Port { uri: text, receiver, transmitter, settings })
}

/// What shall happen how often.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Plan {
    lose: f64,
    duplicate: f64,
    reorder: f64,
    corrupt: f64,
    delay_ns: u64,
    seed: u64,
}

impl Plan {
    fn take(uri: &mut Uri) -> Result<Plan> {
        let delay = |text: &str| Ok(Some(unit::nanoseconds(text)?).filter(|ns| *ns <= LONGEST_DELAY_NS));
        Ok(Plan {
            lose: chance(uri, "lose")?,
            duplicate: chance(uri, "duplicate")?,
            reorder: chance(uri, "reorder")?,
            corrupt: chance(uri, "corrupt")?,
            delay_ns: uri.take_as("delay", delay, "60s at most")?.unwrap_or(0),
            seed: uri.take_as("seed", |text| Ok(text.parse().ok()), "a number")?.unwrap_or(0),
        })
    }

    /// The same, or nothing at all.
    fn only_if(self, hit: bool) -> Plan {
        if hit { self } else { Plan { seed: self.seed, ..Plan::default() } }
    }

    fn text(&self) -> String {
        let percent = |chance: f64| format!("{}%", (chance * 1e8).round() / 1e6);
        format!(
            "lose {} duplicate {} reorder {} corrupt {} delay {} us seed {}",
            percent(self.lose),
            percent(self.duplicate),
            percent(self.reorder),
            percent(self.corrupt),
            self.delay_ns as f64 / 1e3,
            self.seed
        )
    }
}

fn chance(uri: &mut Uri, key: &'static str) -> Result<f64> {
    let read = |text: &str| Ok(unit::chance(text).ok());
    Ok(uri.take_as(key, read, "a chance, such as 1% or 0.01")?.unwrap_or(0.0))
}

/// What becomes of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fate {
    lost: bool,
    duplicated: bool,
    reordered: bool,
    /// Which bit is turned, of a frame of any length.
    corrupted: Option<u64>,
}

impl Fate {
    fn is_plain(&self) -> bool {
        !self.lost && !self.duplicated && !self.reordered && self.corrupted.is_none()
    }
}

/// A frame kept in memory of its own.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    meta: Meta,
    due_ns: u64,
}

impl Held {
    fn slot(&mut self) -> Slot {
        Slot::lent(&mut self.bytes, 0, self.meta)
    }
}

/// What happened on one way.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    entered: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    copied: u64,
}

/// One way: draws fates, holds frames in the order in which they shall leave.
#[derive(Debug)]
struct Faults {
    plan: Plan,
    random: fastrand::Rng,
    queue: VecDeque<Held>,
    /// A frame that shall go behind the next one.
    late: Option<Held>,
    /// Memory that can be used again.
    spare: Vec<Vec<u8>>,
    counts: Counts,
}

impl Faults {
    fn new(plan: Plan, seed: u64) -> Faults {
        Faults {
            plan,
            random: fastrand::Rng::with_seed(seed),
            queue: VecDeque::new(),
            late: None,
            spare: vec![],
            counts: Counts::default(),
        }
    }

    /// The fate of the next frame: always five numbers.
    fn draw(&mut self) -> Fate {
        let mut hits = |chance: f64| self.random.f64() < chance;
        let (lost, duplicated) = (hits(self.plan.lose), hits(self.plan.duplicate));
        let (reordered, corrupted) = (hits(self.plan.reorder), hits(self.plan.corrupt));
        let bit = self.random.u64(..);
        Fate { lost, duplicated, reordered, corrupted: corrupted.then_some(bit) }
    }

    /// True when a frame of this fate may pass where it lies.
    fn passes(&self, fate: &Fate) -> bool {
        fate.is_plain() && self.plan.delay_ns == 0 && self.late.is_none() && self.queue.is_empty()
    }

    fn copy(&mut self, bytes: &[u8], meta: &Meta, now_ns: u64) -> Held {
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(bytes);
        self.counts.copied += 1;
        Held { bytes: memory, meta: *meta, due_ns: now_ns + self.plan.delay_ns }
    }

    /// Takes a copy of a frame in and does to it what its fate says.
    fn enter(&mut self, fate: &Fate, bytes: &[u8], meta: &Meta, now_ns: u64) {
        self.counts.entered += 1;
        if fate.lost {
            self.counts.lost += 1;
            return;
        }
        let mut held = self.copy(bytes, meta, now_ns);
        if let (Some(bit), false) = (fate.corrupted, held.bytes.is_empty()) {
            let bit = bit % (8 * held.bytes.len() as u64);
            held.bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            self.counts.corrupted += 1;
        }
        let twin = fate.duplicated.then(|| self.copy(&held.bytes, meta, now_ns));
        self.counts.duplicated += u64::from(fate.duplicated);
        let overtaken = self.late.take();
        if fate.reordered && overtaken.is_none() {
            held.due_ns = held.due_ns.max(now_ns + REORDER_LIMIT_NS);
            self.late = Some(held);
            self.queue.extend(twin);
            return;
        }
        self.queue.push_back(held);
        self.queue.extend(twin);
        self.release(overtaken, now_ns, true);
    }

    /// Puts a late frame into the queue. It was overtaken, or nobody came.
    fn release(&mut self, late: Option<Held>, now_ns: u64, overtaken: bool) {
        let Some(mut late) = late else { return };
        late.due_ns = self.queue.back().map_or(now_ns, |last| last.due_ns);
        self.counts.reordered += u64::from(overtaken);
        self.queue.push_back(late);
    }

    /// Lets a late frame go that waited long enough, or (`all`) in any case.
    fn hurry(&mut self, now_ns: u64, all: bool) {
        if self.late.as_ref().is_some_and(|late| all || late.due_ns <= now_ns) {
            let late = self.late.take();
            self.release(late, now_ns, false);
        }
    }

    /// How many frames at the front of the queue may leave now.
    fn due(&self, now_ns: u64) -> usize {
        self.queue.iter().take(MAX_BATCH).take_while(|held| held.due_ns <= now_ns).count()
    }

    /// When something may leave that is held.
    fn next_due_ns(&self) -> Option<u64> {
        let dues = self.queue.front().into_iter().chain(&self.late);
        dues.map(|held| held.due_ns).min()
    }

    fn held(&self) -> usize {
        self.queue.len() + usize::from(self.late.is_some())
    }

    /// Adds what happened to the counters of the port inside.
    fn report(&self, copied: &mut u64, drops: &mut Vec<PlaceDrop>, extra: &mut Vec<(&'static str, u64)>) {
        *copied += self.counts.copied;
        drops.push(PlaceDrop::new("port", drop::FAULT_LOST, self.counts.lost));
        extra.extend([
            ("fault_entered", self.counts.entered),
            ("fault_duplicated", self.counts.duplicated),
            ("fault_reordered", self.counts.reordered),
            ("fault_corrupted", self.counts.corrupted),
            ("fault_held", self.held() as u64),
        ]);
    }
}

fn recycle(spare: &mut Vec<Vec<u8>>, memory: Vec<u8>) {
    if spare.len() < MAX_BATCH {
        spare.push(memory);
    }
}

fn saturating(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

struct FaultReceiver {
    inner: Box<dyn Receiver>,
    faults: Faults,
    batch: BatchBuilder,
    /// The memory of frames that were lent from the queue.
    lent: Vec<Held>,
    /// How the port inside ended, to be said when nothing is held any more: true when its interface is gone.
    ended: Option<bool>,
    /// What is to be said with the next call, because this one had frames to give.
    unsaid: Option<PortError>,
}

impl FaultReceiver {
    fn new(inner: Box<dyn Receiver>, plan: Plan, seed: u64) -> Self {
        FaultReceiver {
            inner,
            faults: Faults::new(plan, seed),
            batch: BatchBuilder::new(&PortOptions::default()),
            lent: Vec::with_capacity(MAX_BATCH),
            ended: None,
            unsaid: None,
        }
    }

    /// One round: what comes from inside meets its fate. Waits at most so long.
    fn take_in(&mut self, limit: usize, wait: Wait) -> PortResult<()> {
        let room = MAX_HELD.saturating_sub(self.faults.held()).min(limit - self.batch.slots.len());
        if room == 0 || self.ended.is_some() {
            if let (Wait::For(time), Some(_)) = (wait, self.ended) {
                clock::sleep_until(clock::monotonic_ns().saturating_add(saturating(time)));
            }
            return Ok(());
        }
        let mut batch = match self.inner.receive(room, wait) {
            Ok(batch) => batch,
            Err(error @ (PortError::Ended | PortError::Gone)) => {
                self.ended = Some(matches!(error, PortError::Gone));
                self.faults.hurry(clock::monotonic_ns(), true);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let now_ns = clock::monotonic_ns();
        for index in 0..batch.len() {
            let fate = self.faults.draw();
            if self.faults.passes(&fate) && self.batch.slots.len() < limit {
                self.faults.counts.entered += 1;
                let slot = &batch.slots()[index];
                // The frame stays where it lies; its memory stays with the port inside, which gets it back with our
                // next call of `receive`, and not before.
                self.batch.add(Slot { home: Home::Lent, ..*slot }, u32::MAX);
            } else {
                let meta = *batch.meta(index);
                self.faults.enter(&fate, batch.bytes(index), &meta, now_ns);
                hand_out(&mut self.faults, &mut self.batch, &mut self.lent, limit, now_ns);
            }
        }
        Ok(())
    }

    /// Lends what is due from the queue.
    fn hand_out(&mut self, limit: usize, now_ns: u64) {
        self.faults.hurry(now_ns, false);
        hand_out(&mut self.faults, &mut self.batch, &mut self.lent, limit, now_ns);
    }

    fn fill(&mut self, limit: usize, wait: Wait) -> PortResult<()> {
        let begun_ns = clock::monotonic_ns();
        let end_ns = match wait {
            Wait::Poll => begun_ns,
            Wait::For(time) => begun_ns.saturating_add(saturating(time)),
        };
        loop {
            let now_ns = clock::monotonic_ns();
            self.hand_out(limit, now_ns);
            if self.ended.is_some() && self.batch.slots.is_empty() && self.faults.held() == 0 {
                return Err(if self.ended == Some(true) { PortError::Gone } else { PortError::Ended });
            }
            if self.batch.slots.len() == limit {
                return Ok(());
            }
            let until_ns = self.faults.next_due_ns().unwrap_or(u64::MAX).min(end_ns);
            let left = until_ns.saturating_sub(now_ns);
            let patient = self.batch.slots.is_empty() && left > 0;
            let wait = if patient { Wait::For(Duration::from_nanos(left)) } else { Wait::Poll };
            self.take_in(limit, wait)?;
            let now_ns = clock::monotonic_ns();
            self.hand_out(limit, now_ns); // who woke late still gives what became due
            let over = now_ns >= end_ns && (self.ended.is_none() || self.faults.held() > 0);
            if !self.batch.slots.is_empty() || over {
                return Ok(());
            }
        }
    }
}

/// Lends what is due from the queue, up to so many frames in all.
fn hand_out(faults: &mut Faults, batch: &mut BatchBuilder, lent: &mut Vec<Held>, limit: usize, now_ns: u64) {
    let count = faults.due(now_ns).min(limit - batch.slots.len());
    for mut held in faults.queue.drain(..count) {
        // The memory of a vector stays where it is when the vector itself is moved.
        batch.add(held.slot(), u32::MAX);
        lent.push(held);
    }
}

impl Receiver for FaultReceiver {
    fn receive(&mut self, limit: usize, wait: Wait) -> PortResult<Batch<'_>> {
        self.batch.slots.clear();
        for held in self.lent.drain(..) {
            recycle(&mut self.faults.spare, held.bytes);
        }
        if let Some(error) = self.unsaid.take() {
            return Err(error);
        }
        if let Err(error) = self.fill(limit.min(MAX_BATCH), wait) {
            if self.batch.slots.is_empty() {
                return Err(error);
            }
            self.unsaid = Some(error);
        }
        Ok(self.batch.lend())
    }

    fn counters(&mut self) -> ReceiveCounters {
        let ReceiveCounters { frames, bytes, cut, .. } = self.batch.counters;
        let mut counters = ReceiveCounters { frames, bytes, cut, ..self.inner.counters() };
        self.faults.report(&mut counters.copied, &mut counters.drops, &mut counters.extra);
        counters
    }

    fn notes(&self) -> &[String] {
        self.inner.notes()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // A descriptor does not become readable when a time is over.
        let holds = self.faults.plan.delay_ns > 0 || self.faults.plan.reorder > 0.0;
        if holds { None } else { self.inner.descriptor() }
    }
}

struct FaultTransmitter {
    inner: Box<dyn Transmitter>,
    faults: Faults,
    /// Fates that were drawn for frames which the port inside could not take yet.
    fates: VecDeque<Fate>,
    slots: Vec<Slot>,
    offered: u64,
}

impl FaultTransmitter {
    fn new(inner: Box<dyn Transmitter>, plan: Plan, seed: u64) -> Self {
        FaultTransmitter {
            inner,
            faults: Faults::new(plan, seed),
            fates: VecDeque::with_capacity(MAX_BATCH),
            slots: Vec::with_capacity(MAX_BATCH),
            offered: 0,
        }
    }

    /// Sends what is due from the queue; false when the port inside is full.
    fn push_out(&mut self) -> PortResult<bool> {
        loop {
            let now_ns = clock::monotonic_ns();
            self.faults.hurry(now_ns, false);
            let count = self.faults.due(now_ns);
            if count == 0 {
                return Ok(true);
            }
            self.slots.clear();
            self.slots.extend(self.faults.queue.iter_mut().take(count).map(Held::slot));
            let mut batch = Batch::new(&mut self.slots);
            let all = batch.all();
            let sent = self.inner.transmit(&mut batch, all, Hand::Copy)?;
            for held in self.faults.queue.drain(..sent.dealt) {
                recycle(&mut self.faults.spare, held.bytes);
            }
            if sent.dealt < count {
                return Ok(false);
            }
        }
    }

    /// Sends frames from the first one on; how many were dealt with, and how many of them refused inside.
    fn go_on(&mut self, batch: &mut Batch<'_>, which: &[u16], hand: Hand) -> PortResult<Transmitted> {
        let plain = if self.faults.plan.delay_ns == 0 && self.faults.held() == 0 {
            self.fates.iter().take(which.len()).take_while(|fate| fate.is_plain()).count()
        } else {
            0
        };
        if plain > 0 {
            let sent = self.inner.transmit(batch, &which[..plain], hand)?;
            self.faults.counts.entered += sent.dealt as u64;
            self.fates.drain(..sent.dealt);
            return Ok(sent);
        }
        if self.faults.held() >= MAX_HELD || !self.push_out()? {
            return Ok(Transmitted::default());
        }
        let Some(fate) = self.fates.pop_front() else { return Ok(Transmitted::default()) };
        let index = usize::from(which[0]);
        let meta = *batch.meta(index);
        self.faults.enter(&fate, batch.bytes(index), &meta, clock::monotonic_ns());
        // Full is no matter here: the frame is ours now.
        self.push_out()?;
        Ok(Transmitted { dealt: 1, refused: 0 })
    }
}

impl Transmitter for FaultTransmitter {
    fn transmit(&mut self, batch: &mut Batch<'_>, which: &[u16], hand: Hand) -> PortResult<Transmitted> {
        while self.fates.len() < which.len() {
            let fate = self.faults.draw();
            self.fates.push_back(fate);
        }
        self.push_out()?;
        let sent = push_all(which, |rest, sent| {
            let step = self.go_on(batch, rest, hand)?;
            sent.dealt += step.dealt;
            sent.refused += step.refused;
            Ok(step.dealt > 0)
        })?;
        self.offered += sent.dealt as u64;
        Ok(sent)
    }

    fn flush(&mut self, wait: Duration) -> PortResult<usize> {
        let end_ns = clock::monotonic_ns().saturating_add(saturating(wait));
        self.faults.hurry(clock::monotonic_ns(), true);
        loop {
            let is_taking = self.push_out()?;
            let now_ns = clock::monotonic_ns();
            let left = end_ns.saturating_sub(now_ns);
            if self.faults.held() == 0 || left == 0 {
                let inside = self.inner.flush(Duration::from_nanos(left))?;
                return Ok(inside + self.faults.held());
            }
            if !is_taking {
                self.inner.flush(Duration::from_nanos(left.min(1_000_000)))?;
            }
            // Either for the next frame that is due, or for a place in the port inside.
            let pause_ns = if is_taking { u64::MAX } else { now_ns + 100_000 };
            let due_ns = self.faults.next_due_ns().unwrap_or(0).max(now_ns);
            clock::sleep_until(if is_taking { due_ns } else { pause_ns }.min(end_ns));
        }
    }

    fn counters(&mut self) -> TransmitCounters {
        let mut counters = self.inner.counters();
        counters.offered = self.offered;
        self.faults.report(&mut counters.copied, &mut counters.drops, &mut counters.extra);
        counters
    }

    fn longest(&self) -> usize {
        self.inner.longest()
    }
}

impl Drop for FaultTransmitter {
    fn drop(&mut self) {
        // No frame is forgotten because its sender is done.
        if self.faults.held() > 0 {
            let _ = self.flush(Duration::from_nanos(self.faults.plan.delay_ns) + CLOSING);
        }
    }
}

impl std::fmt::Debug for FaultReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultReceiver({:?})", self.faults.plan)
    }
}

#[cfg(test)]
mod tests;
