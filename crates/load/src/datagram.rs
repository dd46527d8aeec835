//! What all datagram tests share: bursts that leave, arrivals that are judged, errors that are counted.
//!
//! A carrier says how a test message travels: as a UDP payload, or as the data of an ICMP echo. Everything else (the
//! batch, the schedule, the counting) does not know the difference.

use crate::intervals::Intervals;
use crate::sequence::{Arrival, Sequence};
use linux::sys::clock;
use linux::sys::icmp::EchoSocket;
use linux::sys::socket;
use linux::sys::udp::SendBatch;
use record::Histogram;
use record::ledger::NamedCount;
use record::traffic::EndReport;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use wire::icmp::{self, Echo};
use wire::message::{Flags, Message};

/// A socket and the way a test message travels over it.
pub trait Carrier: Sync + Send {
    /// The socket.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Bytes in front of the test message in the buffer that is sent.
    fn overhead(&self) -> usize;

    /// Writes a message over the start of a buffer.
    fn write(&self, buffer: &mut [u8], message: &Message);

    /// The test's bytes in what was received; none when it is something else.
    fn read<'a>(&self, received: &'a [u8]) -> Option<&'a [u8]>;
}

impl Carrier for UdpSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn overhead(&self) -> usize {
        0
    }

    #[inline]
    fn write(&self, buffer: &mut [u8], message: &Message) {
        message.write(buffer);
    }

    #[inline]
    fn read<'a>(&self, received: &'a [u8]) -> Option<&'a [u8]> {
        Some(received)
    }
}

impl Carrier for EchoSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn overhead(&self) -> usize {
        icmp::HEADER
    }

    #[inline]
    fn write(&self, buffer: &mut [u8], message: &Message) {
        let kind = if self.is_v6() { icmp::V6_REQUEST } else { icmp::V4_REQUEST };
        message.write(&mut buffer[icmp::HEADER..]);
        icmp::write_echo(buffer, kind, self.identifier(), message.sequence as u16);
    }

    #[inline]
    fn read<'a>(&self, received: &'a [u8]) -> Option<&'a [u8]> {
        let kind = if self.is_v6() { icmp::V6_REPLY } else { icmp::V4_REPLY };
        let echo = Echo::parse(self.message(received)).ok()?;
        (echo.kind() == kind && echo.identifier() == self.identifier()).then(|| echo.data())
    }
}

/// Errors by number, without allocation: the first 15 kinds have a place of their own, the rest share one.
#[derive(Debug, Clone, Default)]
pub struct Errors {
    kinds: [(i32, u64); 16],
}

impl Errors {
    /// Counts `times` errors.
    pub fn add(&mut self, error: &io::Error, times: u64) {
        self.add_errno(error.raw_os_error().unwrap_or(0), times);
    }

    fn add_errno(&mut self, errno: i32, times: u64) {
        let last = self.kinds.len() - 1;
        let place = self.kinds[..last].iter().position(|&(kind, count)| kind == errno || count == 0);
        let place = &mut self.kinds[place.unwrap_or(last)];
        *place = (errno, place.1 + times);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Errors) {
        for &(errno, count) in other.kinds.iter().filter(|(_, count)| *count > 0) {
            self.add_errno(errno, count);
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.kinds.iter().map(|(_, count)| count).sum()
    }

    /// The counts by errno name.
    pub fn named(&self) -> Vec<NamedCount> {
        let some = self.kinds.iter().filter(|(_, count)| *count > 0);
        some.map(|&(errno, count)| NamedCount { name: socket::errno_name(errno), count }).collect()
    }
}

/// What a sender counts.
#[derive(Debug, Clone, Default)]
pub struct Sent {
    /// Messages tried.
    pub attempted: u64,
    /// Messages that the kernel took.
    pub sent: u64,
    /// Payload bytes that the kernel took.
    pub bytes: u64,
    /// System calls.
    pub calls: u64,
    /// Messages that it did not take, by error.
    pub errors: Errors,
    /// Times that the kernel held the sender back until the send time-out: the send buffer stayed full.
    pub blocked: u64,
    /// When the first left.
    pub begun_ns: u64,
    /// When the last left.
    pub ended_ns: u64,
}

impl Sent {
    /// Writes the sending half of a report.
    pub fn report(&self, report: &mut EndReport) {
        report.attempted = self.attempted;
        report.sent = self.sent;
        report.sent_bytes = self.bytes;
        report.send_calls = self.calls;
        report.send_errors = self.errors.named();
        report.begun_ns = self.begun_ns;
        report.ended_ns = self.ended_ns;
        if self.blocked > 0 {
            let what = "the send buffer stayed full: the kernel held the sender back";
            report.notes.push(format!(
                "{what} {} for a quarter of a second",
                record::unit::many(self.blocked, "time")
            ));
        }
    }
}

/// The form of the datagrams of one test.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// The token of the test.
    pub stream: u8,
    /// What they are.
    pub flags: Flags,
    /// Payload bytes of each.
    pub size: usize,
    /// Datagrams per buffer: more than 1 with `UDP_SEGMENT`.
    pub merged: usize,
    /// Buffers per system call.
    pub buffers: usize,
}

/// Whatever sends messages by their numbers, a burst at a time.
pub trait Outgoing {
    /// The most messages of one burst.
    fn capacity(&self) -> u64;

    /// Sends the messages `numbers` (at most [`Self::capacity`]), each with its planned time. What is refused is
    /// counted and not tried again; when the way out stays full, the rest is not attempted, and the caller goes on at
    /// `sent.attempted`.
    fn send(&mut self, numbers: std::ops::Range<u64>, planned: impl Fn(u64) -> u64, sent: &mut Sent);
}

/// A burst and the socket that it leaves by.
pub struct Through<'a, C: ?Sized> {
    /// The socket.
    pub carrier: &'a C,
    /// The burst.
    pub burst: &'a mut Burst,
}

impl<C: Carrier + ?Sized> Outgoing for Through<'_, C> {
    fn capacity(&self) -> u64 {
        self.burst.capacity()
    }

    #[inline]
    fn send(&mut self, numbers: std::ops::Range<u64>, planned: impl Fn(u64) -> u64, sent: &mut Sent) {
        self.burst.send(self.carrier, numbers, planned, sent);
    }
}

/// Datagrams that leave in one system call.
pub struct Burst {
    batch: SendBatch,
    form: Form,
    /// Bytes of one datagram in a buffer, with what the carrier puts in front.
    step: usize,
}

impl Burst {
    /// Room for one burst.
    pub fn new(carrier: &dyn Carrier, form: Form) -> Self {
        let step = form.size + carrier.overhead();
        Burst { batch: SendBatch::new(form.buffers, step * form.merged), form, step }
    }

    /// The most datagrams in one burst.
    pub fn capacity(&self) -> u64 {
        (self.form.buffers * self.form.merged) as u64
    }

    /// Sends the messages `numbers` (at most [`Self::capacity`]), each with its planned time. Whatever the kernel
    /// refuses is counted and not tried again; the rest goes on. When the send buffer stays full until the send time-out,
    /// nothing was refused and nothing was lost: the rest is not attempted, and the caller goes on at `sent.attempted`.
    #[inline]
    pub fn send<C: Carrier + ?Sized>(
        &mut self,
        carrier: &C,
        numbers: std::ops::Range<u64>,
        planned: impl Fn(u64) -> u64,
        sent: &mut Sent,
    ) {
        let merged = self.form.merged as u64;
        let many = (numbers.end - numbers.start).min(self.capacity());
        let mut message =
            Message { stream: self.form.stream, flags: self.form.flags, sequence: 0, planned_ns: 0 };
        let buffers = many.div_ceil(merged);
        for index in 0..buffers {
            let first = numbers.start + index * merged;
            let inside = merged.min(many - index * merged);
            let buffer = self.batch.buffer(index as usize);
            for (sequence, place) in (first..first + inside).zip(buffer.chunks_mut(self.step)) {
                message.sequence = sequence;
                message.planned_ns = planned(sequence);
                carrier.write(place, &message);
            }
            self.batch.set_length(index as usize, inside as usize * self.step);
        }
        self.push(carrier, many, sent);
    }

    #[inline]
    fn push<C: Carrier + ?Sized>(&mut self, carrier: &C, many: u64, sent: &mut Sent) {
        let merged = self.form.merged as u64;
        let buffers = many.div_ceil(merged);
        let datagrams = |from: u64, to: u64| (to * merged).min(many) - from * merged;
        let mut at = 0;
        sent.attempted += many;
        while at < buffers {
            sent.calls += 1;
            match self.batch.send(carrier.fd(), at as usize..buffers as usize) {
                Ok(accepted) => {
                    let taken = datagrams(at, at + accepted as u64);
                    sent.sent += taken;
                    sent.bytes += taken * self.form.size as u64;
                    at += accepted as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sent.blocked += 1;
                    sent.attempted -= datagrams(at, buffers);
                    return;
                }
                Err(error) => {
                    sent.errors.add(&error, datagrams(at, at + 1));
                    at += 1;
                }
            }
        }
    }
}

/// What a receiver (or the sender of requests, for the replies) counts.
pub struct Arrivals {
    stream: u8,
    flags: Flags,
    size: usize,
    /// Bytes that one message counts.
    counted: u64,
    sequence: Sequence,
    latency: Histogram,
    intervals: Intervals,
    /// Added to the sender's clock to get ours.
    offset_ns: i64,
    received: u64,
    bytes: u64,
    foreign: u64,
    begun_ns: u64,
    ended_ns: u64,
    begun_cpu_ns: u64,
    longest_gap_ns: u64,
}

/// A message that belongs to the test.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Its header.
    pub message: Message,
    /// Nanoseconds from its planned time to now.
    pub latency_ns: u64,
    /// False for a duplicate and for one too old to judge.
    pub is_new: bool,
}

impl Arrivals {
    /// Nothing yet. Only messages of this stream, these flags and this size belong to the test.
    pub fn new(stream: u8, flags: Flags, size: usize, offset_ns: i64, intervals: Intervals) -> Self {
        Arrivals {
            stream,
            flags,
            size,
            counted: size as u64,
            sequence: Sequence::new(),
            latency: Histogram::new(),
            intervals,
            offset_ns,
            received: 0,
            bytes: 0,
            foreign: 0,
            begun_ns: 0,
            ended_ns: 0,
            begun_cpu_ns: 0,
            longest_gap_ns: 0,
        }
    }

    /// Every message counts so many bytes, instead of its own.
    #[must_use]
    pub fn counting(mut self, bytes: u64) -> Self {
        self.counted = bytes;
        self
    }

    /// Messages of the test so far, duplicates included.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Different messages so far.
    pub fn unique(&self) -> u64 {
        self.sequence.unique
    }

    /// Takes note of a read that brought something at `now_ns`.
    #[inline]
    pub fn read_at(&mut self, now_ns: u64) {
        if self.received > 0 {
            self.longest_gap_ns = self.longest_gap_ns.max(now_ns - self.ended_ns.min(now_ns));
        }
    }

    /// Judges one datagram that was read at `now_ns`; none when it is foreign or a probe (which is never counted).
    #[inline]
    pub fn datagram(&mut self, now_ns: u64, bytes: &[u8]) -> Option<Known> {
        let message = match Message::read(bytes) {
            Some(message) if message.stream == self.stream && message.flags == self.flags => message,
            Some(message) if message.stream == self.stream && message.flags.has(Flags::PROBE) => return None,
            _ => {
                self.foreign += 1;
                return None;
            }
        };
        if bytes.len() != self.size {
            self.foreign += 1;
            return None;
        }
        let arrival = self.sequence.see(message.sequence);
        if arrival == Arrival::TooOld {
            self.foreign += 1;
            return None;
        }
        if self.received == 0 {
            self.begun_ns = now_ns;
            self.begun_cpu_ns = clock::thread_cpu_ns();
        }
        self.received += 1;
        self.bytes += self.counted;
        self.ended_ns = now_ns;
        let latency_ns = now_ns.saturating_sub(message.planned_ns.saturating_add_signed(self.offset_ns));
        let is_new = arrival != Arrival::Duplicate;
        if is_new {
            self.latency.record(latency_ns);
            self.intervals.add_timed(now_ns, self.counted, latency_ns);
        }
        Some(Known { message, latency_ns, is_new })
    }

    /// Counts what cannot be a message of the test.
    pub fn foreign(&mut self, many: u64) {
        self.foreign += many;
    }

    /// CPU time of the calling thread since the first message.
    pub fn cpu_ns(&self) -> u64 {
        if self.received == 0 { 0 } else { clock::thread_cpu_ns().saturating_sub(self.begun_cpu_ns) }
    }

    /// Writes the receiving half of a report. `begun_ns` and `ended_ns` are written only if nothing was sent.
    pub fn report(self, report: &mut EndReport) {
        report.received = self.received;
        report.unique = self.sequence.unique;
        report.received_bytes = self.bytes;
        report.duplicates = self.sequence.duplicates;
        report.reordered = self.sequence.reordered;
        report.foreign = self.foreign;
        report.longest_read_gap_ns = self.longest_gap_ns;
        report.latency = self.latency.summary();
        report.intervals = self.intervals.finish();
        if report.attempted == 0 {
            report.begun_ns = self.begun_ns;
            report.ended_ns = self.ended_ns;
        }
        if self.sequence.too_old > 0 {
            report.notes.push(format!(
                "{} messages came more than {} numbers late: nobody can tell whether they are new, so they are \
                 counted as foreign",
                self.sequence.too_old,
                crate::sequence::WINDOW
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(stream: u8, sequence: u64, flags: Flags) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        Message { stream, flags, sequence, planned_ns: 1_000 }.write(&mut bytes);
        bytes
    }

    #[test]
    fn every_datagram_is_judged_once() {
        let mut arrivals = Arrivals::new(7, Flags::DATA, 64, 500, Intervals::new(1_000));
        let now = 2_000;
        let known = arrivals.datagram(now, &message(7, 1, Flags::DATA)).unwrap();
        assert_eq!((known.latency_ns, known.is_new), (500, true));
        assert!(arrivals.datagram(now, &message(7, 0, Flags::DATA)).unwrap().is_new);
        assert!(!arrivals.datagram(now, &message(7, 1, Flags::DATA)).unwrap().is_new);
        assert!(arrivals.datagram(now, &message(7, 9, Flags::PROBE)).is_none());
        for foreign in [message(8, 2, Flags::DATA), message(7, 2, Flags::RESPONSE), vec![0; 64], vec![], {
            let mut long = message(7, 2, Flags::DATA);
            long.push(0);
            long
        }] {
            assert!(arrivals.datagram(now, &foreign).is_none());
        }
        let mut report = EndReport::default();
        arrivals.report(&mut report);
        let counted = (report.received, report.unique, report.duplicates, report.reordered, report.foreign);
        assert_eq!(counted, (3, 2, 1, 1, 5));
        assert_eq!(report.latency.unwrap().count, 2);
    }

    #[test]
    fn errors_have_names_and_never_outgrow_their_room() {
        let mut errors = Errors::default();
        for errno in 1..40 {
            errors.add(&io::Error::from_raw_os_error(errno), 2);
        }
        errors.add(&io::Error::from_raw_os_error(1), 3);
        assert_eq!(errors.total(), 81);
        assert_eq!(errors.named()[0], NamedCount { name: "EPERM".into(), count: 5 });
    }

    #[test]
    fn a_refused_datagram_is_counted_and_the_burst_goes_on() {
        // Segments that do not fit the loopback MTU cannot be sent; single datagrams can.
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(receiver.local_addr().unwrap()).unwrap();
        let form = Form { stream: 1, flags: Flags::DATA, size: 65_600, merged: 1, buffers: 3 };
        let (mut burst, mut sent) = (Burst::new(&socket, form), Sent::default());
        burst.send(&socket, 0..3, |n| n, &mut sent);
        assert_eq!((sent.attempted, sent.sent, sent.calls), (3, 0, 3));
        assert_eq!(sent.errors.named(), [NamedCount { name: "EMSGSIZE".into(), count: 3 }]);
    }

    proptest! {
        #[test]
        fn no_datagram_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), now: u64, offset: i64) {
            let mut arrivals = Arrivals::new(1, Flags::DATA, 64, offset, Intervals::new(1_000));
            let mut ours = message(1, 0, Flags::DATA);
            for (place, byte) in ours[4..].iter_mut().zip(&bytes) {
                *place = *byte;
            }
            arrivals.datagram(now, &bytes);
            arrivals.read_at(now / 2);
            arrivals.datagram(now, &ours);
        }
    }
}
