//! Streams of test messages that a capture meets: what came, what is missing, how late.
//!
//! Recognised are pathlab's own header ([`wire::message`]) and that of the kernel's packet generator
//! ([`wire::pktgen`]) at the beginning of a UDP payload. Up to [`MOST`] streams are followed, each with the window of
//! [`crate::traffic::sequence`]; a first message of a stream allocates its memory, nothing else does.
//!
//! A message whose checksum is wrong is damaged: one bit would make a number or a time that nobody sent, or a stream. The
//! checksum is looked at where a message is not the one to be expected, which costs nothing where all is well.

use super::delays::Delays;
use super::talkers::Pair;
use crate::traffic::sequence::{Sequence, Unwrap};
use linux::port::{Meta, StampSource};
use record::capture::StreamCount;
use std::net::SocketAddr;
use wire::message::{self, Flags, Message};
use wire::pktgen::{self, Pktgen};

/// A message that is sent so soon after the one before is what was to be expected, and so is one whose plan is as regular as this.
const SOON_NS: u64 = 1_000_000;
const REGULAR_NS: u64 = 4;

/// The most streams that are followed.
pub const MOST: usize = 64;

/// Who sends to whom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flow {
    /// Addresses.
    pub pair: Pair,
    /// Ports.
    pub ports: (u16, u16),
}

impl Flow {
    /// `==` in registers; see [`Pair::is`].
    #[inline]
    fn is(&self, other: &Flow) -> bool {
        let ports = (self.ports.0 ^ other.ports.0) | (self.ports.1 ^ other.ports.1);
        ports == 0 && self.pair.is(&other.pair)
    }

    fn text(&self) -> String {
        let end = |address: u128, port| SocketAddr::new(self.pair.ip(address), port);
        format!("{} > {}", end(self.pair.from, self.ports.0), end(self.pair.to, self.ports.1))
    }
}

/// The time in a header, and what makes it one of `CLOCK_REALTIME`, if sender and capture share a host.
#[derive(Debug, Clone, Copy)]
struct Sent {
    ns: u64,
    offset_ns: u64,
}

/// What a UDP payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// No message of a test.
    Nothing,
    /// A message of a test.
    Message,
    /// A message with a wrong checksum.
    Damaged,
}

#[derive(Debug, Clone, Default)]
struct Stream {
    flow: Flow,
    /// The stream number of a message; none for pktgen.
    number: Option<u8>,
    /// pktgen's 32 bits wrap.
    unwrap: Unwrap,
    sequence: Sequence,
    /// Number and time of the last message.
    latest: [u64; 2],
    /// How far they were from those before: the messages of several flows are numbered together.
    stride: [u64; 2],
    seen: u64,
    damaged: u64,
    bytes: u64,
    first: u64,
    last: u64,
    /// The earliest and the latest time in a header, on the sender's clock.
    sent: Option<(u64, u64)>,
    delay: Delays,
    untimed: u64,
    /// It was met by more than one thread.
    shared: bool,
}

/// All streams of one thread.
#[derive(Debug, Clone)]
pub struct Streams {
    streams: Vec<Stream>,
    /// The stream of the message before.
    last: usize,
    unfollowed: u64,
    /// What `CLOCK_REALTIME` shows more than `CLOCK_MONOTONIC`, on this host.
    realtime_offset_ns: u64,
}

impl Streams {
    /// None yet.
    pub fn new(realtime_offset_ns: u64) -> Self {
        Streams { streams: Vec::with_capacity(MOST), last: 0, unfollowed: 0, realtime_offset_ns }
    }

    /// False for a UDP payload that is no test message; true for one that may be.
    #[inline]
    pub fn knows(payload: &[u8]) -> bool {
        payload.starts_with(&message::MAGIC.to_be_bytes())
            || payload.starts_with(&pktgen::MAGIC.to_be_bytes())
    }

    /// Looks into a UDP payload; `is_intact` tells of the frame's checksum.
    #[inline]
    pub fn look(
        &mut self,
        flow: &Flow,
        payload: &[u8],
        meta: &Meta,
        is_intact: impl FnOnce() -> bool,
    ) -> Found {
        let (number, sequence, sent) = match Message::read(payload) {
            Some(message) if message.flags.bits() & !7 != 0 || message.flags.has(Flags::PROBE) => {
                return Found::Nothing;
            }
            Some(message) => {
                let sent = Sent { ns: message.planned_ns, offset_ns: self.realtime_offset_ns };
                (Some(message.stream), message.sequence, Some(sent))
            }
            None => {
                let Some(header) = Pktgen::read(payload) else { return Found::Nothing };
                (None, header.sequence.into(), header.time_ns().map(|ns| Sent { ns, offset_ns: 0 }))
            }
        };
        let is_it = |stream: &Stream| stream.number == number && stream.flow.is(flow);
        if !self.streams.get(self.last).is_some_and(is_it) {
            match self.streams.iter().position(is_it) {
                Some(at) => self.last = at,
                None if !is_intact() => return Found::Damaged,
                None if self.streams.len() == MOST => {
                    self.unfollowed += 1;
                    return Found::Message;
                }
                None => {
                    self.last = self.streams.len();
                    let new = Stream { flow: *flow, number, first: u64::MAX, ..Stream::default() };
                    self.streams.push(new);
                    return self.streams[self.last].see(sequence, sent, meta, || true);
                }
            }
        }
        self.streams[self.last].see(sequence, sent, meta, is_intact)
    }

    /// Adds what another thread saw.
    pub fn merge(&mut self, other: Streams) {
        self.unfollowed += other.unfollowed;
        for theirs in other.streams {
            let same = |ours: &&mut Stream| ours.flow == theirs.flow && ours.number == theirs.number;
            match self.streams.iter_mut().find(same) {
                Some(ours) => ours.merge(&theirs),
                None => self.streams.push(theirs),
            }
        }
    }

    /// What to say, and messages that nobody followed.
    pub fn report(&mut self) -> (Vec<StreamCount>, u64) {
        (self.streams.iter_mut().map(Stream::report).collect(), self.unfollowed)
    }
}

impl Stream {
    #[inline]
    fn see(
        &mut self,
        mut sequence: u64,
        sent: Option<Sent>,
        meta: &Meta,
        is_intact: impl FnOnce() -> bool,
    ) -> Found {
        let mut unwrap = self.unwrap;
        if self.number.is_none() {
            sequence = unwrap.number(sequence as u32);
        }
        let latest = [sequence, sent.map_or(0, |sent| sent.ns)];
        let stride = [0, 1].map(|of: usize| latest[of].wrapping_sub(self.latest[of]));
        if !self.expects(stride) && !is_intact() {
            self.damaged += 1;
            return Found::Damaged;
        }
        (self.unwrap, self.latest, self.stride) = (unwrap, latest, stride);
        self.seen += 1;
        self.bytes += u64::from(meta.wire_length);
        self.sequence.see(sequence);
        self.first = self.first.min(sequence);
        self.last = self.last.max(sequence);
        let on_our_clock = matches!(
            meta.stamp.source,
            StampSource::User | StampSource::Software | StampSource::HardwareSystem
        );
        if let Some(Sent { ns, .. }) = sent {
            self.sent = Some(self.sent.map_or((ns, ns), |(first, last)| (first.min(ns), last.max(ns))));
        }
        let shown = sent.map(|sent| sent.ns.wrapping_add(sent.offset_ns));
        match shown.and_then(|shown| meta.stamp.ns.checked_sub(shown)) {
            Some(delay) if on_our_clock && self.delay.record(delay) => {}
            _ => self.untimed += 1,
        }
        Found::Message
    }

    /// Whether a message that is so far from the one before is as far from it as that was from its own, and sent soon after it or as
    /// regularly.
    #[inline]
    fn expects(&self, [numbers, ns]: [u64; 2]) -> bool {
        numbers == self.stride[0] && (ns < SOON_NS || ns.abs_diff(self.stride[1]) < REGULAR_NS)
    }

    fn merge(&mut self, other: &Stream) {
        self.shared = true;
        self.seen += other.seen;
        self.damaged += other.damaged;
        self.bytes += other.bytes;
        self.sent = match (self.sent, other.sent) {
            (Some(ours), Some(theirs)) => Some((ours.0.min(theirs.0), ours.1.max(theirs.1))),
            (ours, theirs) => ours.or(theirs),
        };
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.sequence.unique += other.sequence.unique;
        self.sequence.duplicates += other.sequence.duplicates;
        self.sequence.too_old += other.sequence.too_old;
        self.delay.merge(&other.delay);
        self.untimed += other.untimed;
    }

    fn report(&mut self) -> StreamCount {
        let numbers = (self.last - self.first).saturating_add(1);
        let base = if self.number.is_none() { Unwrap::BASE } else { 0 };
        StreamCount {
            header: if self.number.is_some() { "message" } else { "pktgen" }.into(),
            flow: self.flow.text(),
            stream: self.number.unwrap_or(0),
            seen: self.seen,
            bytes: self.bytes,
            unique: self.sequence.unique,
            first: self.first.saturating_sub(base),
            last: self.last.saturating_sub(base),
            // A number that is too old to be judged may be one of those that are missing.
            missing: numbers.saturating_sub(self.sequence.unique + self.sequence.too_old),
            duplicates: self.sequence.duplicates,
            reordered: (!self.shared).then_some(self.sequence.reordered),
            too_old: self.sequence.too_old,
            damaged: self.damaged,
            sent_first_ns: self.sent.map(|sent| sent.0),
            sent_last_ns: self.sent.map(|sent| sent.1),
            delay_ns: self.delay.summary(),
            untimed: self.untimed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::talkers::V4;
    use super::*;
    use linux::port::Stamp;

    fn flow() -> Flow {
        Flow { pair: Pair { kind: V4, from: 0x0a00_0001, to: 0x0a00_0002 }, ports: (1, 2) }
    }

    fn at(ns: u64) -> Meta {
        let stamp = Stamp { ns, source: StampSource::Software };
        Meta { stamp, wire_length: 60, ..Meta::default() }
    }

    #[test]
    fn missing_late_and_repeated_messages_are_told_apart() {
        let mut streams = Streams::new(1000);
        for sequence in [5u64, 6, 9, 8, 9, 12] {
            let mut payload = [0; 20];
            Message { stream: 7, flags: Flags::DATA, sequence, planned_ns: sequence * 100 }
                .write(&mut payload);
            let found = streams.look(&flow(), &payload, &at(1000 + sequence * 100 + 30), || true);
            assert_eq!(found, Found::Message);
        }
        assert_eq!(streams.look(&flow(), b"something else", &at(0), || true), Found::Nothing);
        let (report, unfollowed) = streams.report();
        let [stream] = &report[..] else { panic!("{report:?}") };
        assert_eq!((stream.seen, stream.unique, stream.first, stream.last), (6, 5, 5, 12));
        assert_eq!((stream.missing, stream.duplicates, stream.reordered), (3, 1, Some(1)));
        assert_eq!(stream.flow, "10.0.0.1:1 > 10.0.0.2:2");
        assert_eq!((stream.bytes, stream.sent_first_ns, stream.sent_last_ns), (360, Some(500), Some(1200)));
        assert_eq!((stream.delay_ns.as_ref().unwrap().p50, stream.untimed, unfollowed), (30, 0, 0));
    }

    #[test]
    fn pktgens_numbers_wrap() {
        let mut streams = Streams::new(0);
        for step in 0..10u32 {
            let mut payload = [0; 16];
            let sequence = (u32::MAX - 4).wrapping_add(step);
            Pktgen { sequence, seconds: 0, microseconds: 0 }.write(&mut payload);
            assert_eq!(streams.look(&flow(), &payload, &at(5), || true), Found::Message);
        }
        let (report, _) = streams.report();
        assert_eq!((report[0].unique, report[0].missing, report[0].reordered), (10, 0, Some(0)));
        assert_eq!(report[0].untimed, 10, "pktgen left the time out");
    }

    #[test]
    fn too_many_streams_are_counted_and_not_followed() {
        let mut streams = Streams::new(0);
        for port in 0..100u16 {
            let mut payload = [0; 18];
            Message { stream: 1, flags: Flags::DATA, sequence: 0, planned_ns: 0 }.write(&mut payload);
            streams.look(&Flow { ports: (port, 9), ..flow() }, &payload, &at(0), || true);
        }
        assert_eq!((streams.report().0.len(), streams.report().1), (MOST, 36));
    }

    #[test]
    fn a_message_with_a_wrong_checksum_moves_no_number_no_time_and_makes_no_stream() {
        let mut streams = Streams::new(0);
        let mut look = |port: u16, sequence: u64, planned_ns: u64, is_intact: bool| {
            let mut payload = [0; 18];
            Message { stream: 1, flags: Flags::DATA, sequence, planned_ns }.write(&mut payload);
            streams.look(&Flow { ports: (port, 9), ..flow() }, &payload, &at(planned_ns), || is_intact)
        };
        (0..10).for_each(|number| assert_eq!(look(1, number, number * 100, number < 2), Found::Message));
        assert_eq!(look(1, 1 << 44, 1000, false), Found::Damaged, "a bit of its number");
        assert_eq!(look(1, 10, 1000 | 1 << 50, false), Found::Damaged, "a bit of its time");
        assert_eq!(look(1, 10, 0, false), Found::Damaged, "a bit of its time");
        assert_eq!(look(1, 10, 1000 + (1 << 20), false), Found::Damaged, "a bit of its time");
        assert_eq!(look(3, 10, 1000, false), Found::Damaged, "a bit of its port");
        assert_eq!(look(1, 11, 5_000_000_000, true), Found::Message, "the sender paused");
        let (report, _) = streams.report();
        let [stream] = &report[..] else { panic!("{report:?}") };
        assert_eq!(
            (stream.seen, stream.damaged, stream.first, stream.last, stream.missing),
            (11, 4, 0, 11, 1)
        );
        assert_eq!((stream.sent_first_ns, stream.sent_last_ns), (Some(0), Some(5_000_000_000)));

        let mut streams = Streams::new(0);
        for (sequence, is_intact) in [(1, true), (2 | 1 << 31, false), (2, true)] {
            let mut payload = [0; 16];
            Pktgen { sequence, seconds: 0, microseconds: 0 }.write(&mut payload);
            streams.look(&flow(), &payload, &at(5), || is_intact);
        }
        let report = streams.report().0;
        assert_eq!((report[0].last, report[0].missing, report[0].damaged), (2, 0, 1));
    }
}
