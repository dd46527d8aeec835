//! `mem:NAME`: a wire in memory. Whoever opens a name first has one end, who opens it second the other.
//!
//! **What.** Two ends over one [`Area`]; a frame crosses by the number of its chunk. What one end sends the other one
//! receives, in order. An end that is dropped ends the wire: its peer receives what is still there, then
//! [`PortError::Ended`].
//!
//! **Why.** Tests and twins need a port without a kernel under it, and the cost of the contract itself can only be
//! measured on a wire that costs nothing else.
//!
//! **Price.** Both ends live in one process. A full wire takes no more frames; nothing is dropped silently.

use super::area::{Area, Sharing, SharingClass};
use super::batch::{Batch, Home, MAX_BATCH, Meta, Slot};
use super::batch_builder::BatchBuilder;
use super::sending::{Outcome, refusing, send_each};
use super::told::setting;
use super::{
    FrameDirection, Hand, Port, PortError, PortOptions, PortResult, ReceiveCounters, Receiver, Stamp,
    StampSource, TransmitCounters, Transmitted, Transmitter, Uri, Wait,
};
use crate::sys::clock;
use record::{Problem, drop, unit};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// A frame under way: its chunk, where it begins there, how long it is, and what is known of it.
#[derive(Clone, Copy)]
struct Crossing {
    number: u32,
    offset: u32,
    length: u32,
    meta: Meta,
}

/// One direction of a wire.
#[derive(Default)]
struct Direction {
    state: Mutex<LaneState>,
    changed: Condvar,
}

#[derive(Default)]
struct LaneState {
    frames: VecDeque<Crossing>,
    closed: bool,
}

impl Direction {
    fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a lane when an end goes away, and gives back what nobody will receive.
struct DirectionEnd {
    lane: Arc<Direction>,
    area: Arc<Area>,
    receives: bool,
}

impl Drop for DirectionEnd {
    fn drop(&mut self) {
        let mut state = self.lane.lock();
        state.closed = true;
        if self.receives {
            let left: Vec<u32> = state.frames.drain(..).map(|frame| frame.number).collect();
            self.area.give(left);
        }
        drop(state);
        self.lane.changed.notify_all();
    }
}

/// A wire, as the end sees it that sends into the first lane.
#[derive(Clone)]
struct Wire {
    area: Arc<Area>,
    frames: usize,
    lanes: [Arc<Direction>; 2],
}

static WIRES: LazyLock<Mutex<HashMap<String, Wire>>> = LazyLock::new(Mutex::default);

/// Opens an end: `mem:NAME?frames=N&chunk=BYTES` (frames under way in each direction, 1024; bytes of a chunk, 2048). The
/// settings of the first end hold for both.
///
/// # Errors
/// Input: settings that cannot be used.
pub fn open(uri: &mut Uri, wish: &PortOptions) -> record::Result<Port> {
    let (frames, chunk) = asked(uri)?;
    let mut wires = WIRES.lock().unwrap_or_else(PoisonError::into_inner);
    // A wire whose first end is gone is no wire: the name starts anew. An end that was opened for one direction has
    // closed the other lane; one that is gone has closed both.
    let is_gone = |waiting: &Wire| waiting.lanes.iter().all(|lane| lane.lock().closed);
    let waiting = wires.remove(&uri.rest).filter(|waiting| !is_gone(waiting));
    let wire = match waiting {
        Some(Wire { lanes: [to, from], area, frames }) => Wire { lanes: [from, to], area, frames },
        None => {
            let area = wish.area.clone().map_or_else(|| Area::new(chunks(frames), chunk), Ok);
            let area = area
                .map_err(|e| Problem::host(format!("cannot map memory for the wire: {e}")).at(&uri.text))?;
            let wire = Wire { area, frames, lanes: Default::default() };
            wires.insert(uri.rest.clone(), wire.clone());
            wire
        }
    };
    drop(wires);
    ends(uri, wish, wire)
}

/// Frames under way in each direction, and bytes of a chunk.
fn asked(uri: &mut Uri) -> record::Result<(usize, u32)> {
    let frames = uri.take_number("frames", unit::amount, 1..=1 << 20)?.unwrap_or(1024);
    let chunk = uri.take_number("chunk", unit::bytes, 2048u32..=1 << 17)?.unwrap_or(2048);
    match chunk.is_power_of_two() {
        true => Ok((frames, chunk)),
        false => Err(uri.bad("chunk", &chunk.to_string(), "a power of two from 2048 to 131072")),
    }
}

/// Two full lanes, and a batch in the hands of each end.
fn chunks(frames: usize) -> u32 {
    (2 * frames + 2 * MAX_BATCH) as u32
}

/// What a wire of this name needs of memory that it shares.
///
/// # Errors
/// As [`open`].
pub(in crate::port) fn sharing(uri: &mut Uri) -> record::Result<Sharing> {
    let (frames, chunk_bytes) = asked(uri)?;
    Ok(Sharing { class: SharingClass::Wire(chunk_bytes), chunks: chunks(frames), chunk_bytes })
}

fn ends(uri: &Uri, wish: &PortOptions, wire: Wire) -> record::Result<Port> {
    let [to, from] = wire.lanes;
    let settings = vec![
        setting("frames", "", wire.frames.to_string(), ""),
        setting("chunk", "", format!("{} B", wire.area.chunk_bytes()), shared(wish, &wire.area)),
    ];
    let end = |lane, receives| DirectionEnd { lane, area: wire.area.clone(), receives };
    let receiver = MemReceiver {
        end: end(from, true),
        batch: BatchBuilder::new(wish),
        refused: Vec::with_capacity(MAX_BATCH),
    };
    let transmitter = MemTransmitter {
        end: end(to, false),
        frames: wire.frames,
        chunks: Vec::with_capacity(MAX_BATCH),
        counters: refusing(&[drop::OVERSIZE, drop::TAKEN]),
    };
    let (receiver, transmitter) = (Box::new(receiver), Box::new(transmitter));
    Port::with_ends(uri, wish, || Ok((receiver, settings.clone())), || Ok((transmitter, settings.clone())))
}

/// What is to be said of the wire's memory.
fn shared(wish: &PortOptions, own: &Arc<Area>) -> &'static str {
    let is_theirs = wish.area.as_ref().is_some_and(|area| Arc::ptr_eq(area, own));
    if is_theirs { "shared with other ports" } else { "" }
}

struct MemReceiver {
    end: DirectionEnd,
    batch: BatchBuilder,
    /// Chunks of frames that the filter does not want.
    refused: Vec<u32>,
}

impl Drop for MemReceiver {
    fn drop(&mut self) {
        self.end.area.give(self.batch.take_back());
    }
}

impl Receiver for MemReceiver {
    fn receive(&mut self, limit: usize, wait: Wait) -> PortResult<Batch<'_>> {
        self.end.area.give(self.batch.take_back());
        let mut state = self.end.lane.lock();
        if let (Wait::For(time), true) = (wait, state.frames.is_empty() && !state.closed) {
            let nothing = |state: &mut LaneState| state.frames.is_empty() && !state.closed;
            let waited = self.end.lane.changed.wait_timeout_while(state, time, nothing);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.frames.is_empty() && state.closed {
            return Err(PortError::Ended);
        }
        let count = state.frames.len().min(limit).min(MAX_BATCH);
        let area = &self.end.area;
        for frame in state.frames.drain(..count) {
            let slot = slot(area, frame);
            match self.batch.wanted(slot.bytes(), slot.meta.wire_length) {
                0 => self.refused.push(frame.number),
                limit => self.batch.add(slot, limit),
            }
        }
        drop(state);
        if !self.refused.is_empty() {
            area.give(self.refused.drain(..));
        }
        Ok(self.batch.lend())
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.batch.counters.clone()
    }
}

fn slot(area: &Arc<Area>, frame: Crossing) -> Slot {
    // SAFETY: the transmitter put the frame inside this chunk.
    let data = unsafe { area.chunk(frame.number).add(frame.offset as usize) };
    Slot {
        data,
        length: frame.length,
        headroom: frame.offset,
        tailroom: area.chunk_bytes() - frame.offset - frame.length,
        home: Home::Chunk { area: Arc::as_ptr(area).cast(), number: frame.number },
        meta: frame.meta,
    }
}

struct MemTransmitter {
    end: DirectionEnd,
    frames: usize,
    chunks: Vec<u32>,
    counters: TransmitCounters,
}

impl MemTransmitter {
    /// The chunk that will carry the frame: its own where it may be taken, else a free one with a copy. None: no chunk.
    fn carry(&mut self, slot: &mut Slot, hand: Hand) -> Option<(u32, u32)> {
        let area = &self.end.area;
        if let (Some(place), Hand::Over) = (area.place_of(slot), hand) {
            slot.home = Home::Taken;
            return Some(place);
        }
        let number = self.chunks.pop()?;
        // SAFETY: the chunk is ours, was not lent to anyone, and has room for the frame.
        let offset = unsafe { area.copy(number, slot) };
        self.counters.copied += 1;
        Some((number, offset))
    }

    fn send(&mut self, slot: &mut Slot, hand: Hand, now: Stamp, to: &mut VecDeque<Crossing>) -> Outcome {
        if to.len() >= self.frames {
            return Outcome::Full;
        }
        if slot.length > self.end.area.chunk_bytes() {
            return Outcome::Refused(drop::OVERSIZE);
        }
        if slot.home == Home::Taken {
            return Outcome::Refused(drop::TAKEN);
        }
        let Some((number, offset)) = self.carry(slot, hand) else { return Outcome::Full };
        let stamp = if slot.meta.stamp.source == StampSource::None { now } else { slot.meta.stamp };
        let meta = Meta { way: FrameDirection::In, stamp, ..slot.meta };
        to.push_back(Crossing { number, offset, length: slot.length, meta });
        Outcome::Sent
    }
}

impl Transmitter for MemTransmitter {
    fn transmit(&mut self, batch: &mut Batch<'_>, which: &[u16], hand: Hand) -> PortResult<Transmitted> {
        let lane = self.end.lane.clone();
        let mut state = lane.lock();
        if state.closed {
            return Err(PortError::Ended);
        }
        let now = Stamp { ns: clock::realtime_ns(), source: StampSource::User };
        if self.chunks.len() < which.len() {
            self.end.area.take(which.len() - self.chunks.len(), &mut self.chunks);
        }
        let send = |end: &mut Self, slot: &mut Slot| Ok(end.send(slot, hand, now, &mut state.frames));
        let sent = send_each(self, (batch, which), |end| &mut end.counters, send);
        drop(state);
        lane.changed.notify_all();
        sent
    }

    fn counters(&mut self) -> TransmitCounters {
        TransmitCounters { completed: Some(self.counters.accepted), ..self.counters.clone() }
    }

    fn longest(&self) -> usize {
        self.end.area.chunk_bytes() as usize
    }
}

impl Drop for MemTransmitter {
    fn drop(&mut self) {
        self.end.area.give(self.chunks.drain(..));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frames, MAX_BATCH, forward, open};
    use super::*;
    use std::time::Duration;

    fn wire(name: &str, settings: &str) -> (Port, Port) {
        let uri = format!("mem:{name}{settings}");
        let wish = PortOptions::default();
        (open(&uri, &wish).unwrap(), open(&uri, &wish).unwrap())
    }

    #[test]
    fn frames_cross_in_order_and_a_full_wire_says_so() {
        let (mut a, mut b) = wire("order", "?frames=5");
        let (to, from) = (a.transmitter.as_mut().unwrap(), b.receiver.as_mut().unwrap());
        let mut frames = Frames::new(8, 64);
        for i in 0..8u8 {
            assert!(frames.push(&[i; 60], Meta::default()));
        }
        let mut batch = frames.batch();
        let all = batch.all();
        assert_eq!(to.transmit(&mut batch, all, Hand::Over).unwrap(), Transmitted { dealt: 5, refused: 0 });
        let lent = from.receive(3, Wait::Poll).unwrap();
        assert_eq!((lent.len(), lent.bytes(0), lent.bytes(2)), (3, &[0; 60][..], &[2; 60][..]));

        assert_eq!(to.transmit(&mut batch, &all[5..], Hand::Over).unwrap().dealt, 3);
        let lent = from.receive(MAX_BATCH, Wait::Poll).unwrap();
        assert_eq!((lent.len(), lent.bytes(4)), (5, &[7; 60][..]));

        assert!(from.receive(9, Wait::Poll).unwrap().is_empty());
        drop(a);
        assert!(matches!(from.receive(9, Wait::For(Duration::from_secs(5))), Err(PortError::Ended)));
    }

    #[test]
    fn ends_that_were_opened_for_one_direction_meet() {
        use super::super::Direction::{Both, Receive, Transmit};
        for (number, (first, second)) in
            [(Receive, Transmit), (Receive, Both), (Transmit, Receive), (Transmit, Both), (Both, Receive)]
                .into_iter()
                .enumerate()
        {
            let open = |direction| {
                let wish = PortOptions { direction, ..PortOptions::default() };
                open(&format!("mem:half{number}"), &wish).unwrap()
            };
            let (mut a, mut b) = (open(first), open(second));
            let (from, to) = if first == Receive { (&mut a, &mut b) } else { (&mut b, &mut a) };
            let mut frames = Frames::new(1, 64);
            frames.push(&[9; 60], Meta::default());
            let mut batch = frames.batch();
            let all = batch.all();
            let sent = to.transmitter.as_mut().unwrap().transmit(&mut batch, all, Hand::Over).unwrap();
            assert_eq!(sent.dealt, 1, "{first:?} and {second:?}");
            let lent = from.receiver.as_mut().unwrap().receive(9, Wait::Poll).unwrap();
            assert_eq!((lent.len(), lent.bytes(0)), (1, &[9; 60][..]), "{first:?} and {second:?}");
            // Where nobody listens, that is told.
            if let (Receive, Some(receiver)) = (first, b.receiver.as_mut()) {
                assert!(matches!(receiver.receive(9, Wait::Poll), Err(PortError::Ended)));
            }
        }
    }

    #[test]
    fn a_name_begins_anew_when_its_first_end_is_gone() {
        use super::super::Direction::{Receive, Transmit};
        for direction in [Receive, Transmit] {
            let wish = PortOptions { direction, ..PortOptions::default() };
            drop(open("mem:anew", &wish).unwrap());
            let (a, mut b) = wire("anew", "");
            assert!(b.receiver.as_mut().unwrap().receive(9, Wait::Poll).unwrap().is_empty(), "a wire again");
            drop(a);
        }
    }

    #[test]
    fn two_wires_over_one_area_copy_nothing() {
        let area = Area::new(4096, 2048).unwrap();
        let wish = PortOptions { area: Some(area.clone()), ..PortOptions::default() };
        let mut ends: Vec<Port> =
            ["mem:one", "mem:one", "mem:two", "mem:two"].map(|uri| open(uri, &wish).unwrap()).into();
        let mut frames = Frames::new(4, 64);
        for i in 0..4u8 {
            frames.push(&[i; 60], Meta::default());
        }
        let mut batch = frames.batch();
        let all = batch.all();
        ends[0].transmitter.as_mut().unwrap().transmit(&mut batch, all, Hand::Over).unwrap();
        let (left, right) = ends.split_at_mut(2);
        let (from, to) = (left[1].receiver.as_mut().unwrap(), right[0].transmitter.as_mut().unwrap());
        assert_eq!(forward(from.as_mut(), to.as_mut(), Wait::Poll).unwrap().sent(), 4);
        assert_eq!(to.counters().copied, 0, "only the first wire had to copy");
        assert_eq!(right[1].receiver.as_mut().unwrap().receive(9, Wait::Poll).unwrap().bytes(3), &[3; 60]);
        drop(ends);
        assert_eq!(area.free(), 4096, "every chunk came back");
    }
}
