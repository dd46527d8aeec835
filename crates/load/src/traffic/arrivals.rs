//! Messages that arrive: whose they are, whether each is new, when it came and how late.
//!
//! Whoever reads counts into [`Received`]: a receiver the messages, the sender of requests the replies. Datagrams are first
//! judged by [`Arrivals`]; what a connection brings is in order and the test's by itself.

use super::datagram::{Errors, SenderCounts};
use super::end::{DRAIN_CPU_NS, DRAIN_WAITING_NS};
use super::intervals::Intervals;
use super::schedule::Ending;
use super::schedule::earlier;
use super::sequence::{self, Sequence, SequenceKind};
use crate::protocol::setup::{ClockRelation, Setup};
use linux::sys::clock::{self, ThreadTime};
use record::Histogram;
use record::traffic::EndReport;
use std::io;
use wire::message::{Flags, Message};

/// What a reader counts.
#[derive(Default)]
pub struct Received {
    /// Messages of the test, duplicates included.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The test has ended: what is read now was left in the socket.
    pub is_late: bool,
    /// When the first was read.
    pub begun_ns: u64,
    /// Time since a request really left.
    pub from_send: Histogram,
    /// Traffic over time.
    pub intervals: Intervals,
    /// What the reading thread had of the CPUs, once it has ended.
    pub thread_time: ThreadTime,
    /// Errors met while reading.
    pub errors: Errors,
    /// What was answered, by an end that answers.
    pub answers: SenderCounts,
    left: u64,
    ended_ns: u64,
    begun_time: ThreadTime,
    /// What the thread had from the first message until it found nothing more to read, if that was so.
    rested: Option<ThreadTime>,
    longest_gap_ns: u64,
    latency: Histogram,
}

impl Received {
    /// Nothing yet, in intervals for a test of that length.
    pub fn new(duration_ms: u64) -> Self {
        Received { intervals: Intervals::for_duration(duration_ms), ..Received::default() }
    }

    /// Takes note of a read that brought something at `now_ns`.
    #[inline]
    pub fn read_at(&mut self, now_ns: u64) {
        if self.begun_ns > 0 {
            self.longest_gap_ns = self.longest_gap_ns.max(now_ns - self.ended_ns.min(now_ns));
        }
    }

    /// Counts messages that were read at `now_ns`.
    #[inline]
    pub fn count(&mut self, now_ns: u64, messages: u64, bytes: u64) {
        if self.begun_ns == 0 {
            (self.begun_ns, self.begun_time) = (now_ns, ThreadTime::now());
        }
        self.rested = None;
        self.messages += messages;
        self.left += if self.is_late { messages } else { 0 };
        self.bytes += bytes;
        self.ended_ns = now_ns;
    }

    /// Takes the time of a message that was counted.
    #[inline]
    pub fn time(&mut self, now_ns: u64, bytes: u64, latency_ns: u64) {
        self.latency.record(latency_ns);
        self.intervals.add_timed(now_ns, bytes, latency_ns);
    }

    /// Counts an error of a receive call, except a time-out and a signal; waits a little so that an error that stays does
    /// not take the CPU.
    pub fn failed(&mut self, error: &io::Error) {
        self.rest();
        if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
            self.errors.add(error, 1);
            clock::sleep_until(clock::monotonic_ns() + 1_000_000);
        }
    }

    /// Takes note that there is nothing to read: what the thread has of the CPUs until the next message is not the traffic's. An end
    /// that looks for more every few milliseconds, until it is stopped, had more CPU time than a short test took.
    pub fn rest(&mut self) {
        if self.begun_ns > 0 && self.rested.is_none() {
            self.rested = Some(ThreadTime::since(self.begun_time));
        }
    }

    /// The calling thread has read everything: its CPU time counts from the first message to the last.
    pub fn end(&mut self) {
        self.rest();
        self.thread_time = self.rested.unwrap_or_default();
    }

    /// Adds what another connection brought in the same time.
    pub fn merge(&mut self, other: Received) {
        self.messages += other.messages;
        self.left += other.left;
        self.bytes += other.bytes;
        self.begun_ns = earlier(self.begun_ns, other.begun_ns);
        self.ended_ns = self.ended_ns.max(other.ended_ns);
        self.longest_gap_ns = self.longest_gap_ns.max(other.longest_gap_ns);
        self.thread_time += other.thread_time;
        self.intervals.merge(other.intervals);
        self.errors.merge(&other.errors);
    }

    /// Writes the receiving half of a report; its times only if nothing was sent.
    pub fn report(self, report: &mut EndReport) {
        report.received = self.messages;
        report.unique = self.messages;
        report.received_bytes = self.bytes;
        report.left_in_socket = self.left;
        report.longest_read_gap_ns = self.longest_gap_ns;
        report.latency = self.latency.summary();
        report.latency_from_send = self.from_send.summary();
        report.intervals = self.intervals.finish();
        report.thread_cpu_ns += self.thread_time.cpu_ns;
        report.thread_wait_ns += self.thread_time.wait_ns;
        report.responses = self.answers.report.sent;
        report.send_calls += self.answers.report.send_calls;
        report.send_errors.extend(self.answers.errors.named());
        if report.attempted == 0 {
            (report.begun_ns, report.ended_ns) = (self.begun_ns, self.ended_ns);
        }
        let named: Vec<_> = self.errors.named().iter().map(|e| format!("{} × {}", e.count, e.name)).collect();
        if !named.is_empty() {
            report.notes.push(format!("errors while receiving: {}", named.join(", ")));
        }
    }
}

/// What a reader of datagrams counts, and which of them belong to the test.
pub struct Arrivals {
    stream: u8,
    flags: Flags,
    size: usize,
    /// Bytes that one message counts.
    counted: u64,
    sequence: Sequence,
    /// How the sender's clock reads on ours.
    clock: ClockRelation,
    foreign: u64,
    damaged: u64,
    /// What they come to.
    pub received: Received,
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
    pub fn new(stream: u8, flags: Flags, size: usize, clock: ClockRelation, duration_ms: u64) -> Self {
        Arrivals {
            stream,
            flags,
            size,
            counted: size as u64,
            sequence: Sequence::from_zero(),
            clock,
            foreign: 0,
            damaged: 0,
            received: Received::new(duration_ms),
        }
    }

    /// Nothing yet, at the receiver of a test.
    pub fn of(setup: &Setup, flags: Flags, size: usize) -> Self {
        Arrivals::new(setup.token, flags, size, setup.clock, setup.spec.duration_ms)
    }

    /// Every message counts so many bytes, instead of its own.
    #[must_use]
    pub fn counting(mut self, bytes: u64) -> Self {
        self.counted = bytes;
        self
    }

    /// Different messages so far.
    pub fn unique(&self) -> u64 {
        self.sequence.unique
    }

    /// Judges one datagram that was read at `now_ns`; none when it is foreign, damaged or a probe (which is never counted).
    #[inline]
    pub fn datagram(&mut self, now_ns: u64, bytes: &[u8]) -> Option<Known> {
        self.datagram_if(now_ns, bytes, || true)
    }

    /// The same for a datagram whose checksum nobody has looked at; `is_intact` is asked when its number is not the next one.
    #[inline]
    pub fn datagram_if(&mut self, now: u64, bytes: &[u8], is_intact: impl FnOnce() -> bool) -> Option<Known> {
        let of_test = Message::read(bytes).filter(|message| message.stream == self.stream);
        let message = match of_test {
            Some(message) if message.flags == self.flags && bytes.len() == self.size => message,
            Some(message) if message.flags.has(Flags::PROBE) => return None,
            _ => {
                self.foreign += 1;
                return None;
            }
        };
        if !self.sequence.is_next(message.sequence) && !is_intact() {
            self.damaged += 1;
            return None;
        }
        let before = self.sequence.unique;
        let arrival = self.sequence.see(message.sequence);
        self.foreign += u64::from(arrival == SequenceKind::TooOld);
        if matches!(arrival, SequenceKind::TooOld | SequenceKind::Damaged) {
            return None;
        }
        // Two are new when this one shows that the one before it was not damaged.
        let messages = (self.sequence.unique - before).max(1);
        self.received.count(now, messages, messages * self.counted);
        let planned_ns = message.planned_ns.saturating_add_signed(self.clock.offset_ns());
        let latency_ns = now.saturating_sub(planned_ns);
        let is_new = arrival != SequenceKind::Duplicate;
        if is_new {
            self.received.time(now, self.counted, latency_ns);
        }
        Some(Known { message, latency_ns, is_new })
    }

    /// Reads until stopped, then what is left for a while: `read` takes in a batch and returns false when nothing is left.
    pub fn read_until_stopped(&mut self, stop: &Ending, mut read: impl FnMut(&mut Arrivals) -> bool) {
        let mut ends = None;
        loop {
            if !self.received.is_late && stop.is_stopped() {
                self.received.is_late = true;
                let (now, ran) = (clock::monotonic_ns(), clock::thread_cpu_ns());
                ends = Some((now + DRAIN_WAITING_NS, ran + DRAIN_CPU_NS));
            }
            let is_over = |(wait, run)| clock::monotonic_ns() > wait || clock::thread_cpu_ns() > run;
            if !read(self) || ends.is_some_and(is_over) {
                return;
            }
        }
    }

    /// Counts what cannot be a message of the test.
    pub fn foreign(&mut self, many: u64) {
        self.foreign += many;
    }

    /// Writes the receiving half of a report; see [`Received::report`].
    pub fn report(self, report: &mut EndReport) {
        report.notes.extend(self.clock.note());
        self.received.report(report);
        report.unique = self.sequence.unique;
        report.duplicates = self.sequence.duplicates;
        report.reordered = self.sequence.reordered;
        report.foreign = self.foreign;
        report.damaged = self.damaged + self.sequence.damaged;
        if self.sequence.too_old > 0 {
            report.notes.push(format!(
                "{} messages came more than {} numbers late: nobody can tell whether they are new, so they are \
                 counted as foreign",
                self.sequence.too_old,
                sequence::WINDOW
            ));
        }
    }

    /// The report of a receiver whose thread ends here.
    pub fn into_report(mut self) -> EndReport {
        let mut report = EndReport::default();
        self.received.end();
        self.report(&mut report);
        report
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

    fn behind(offset_ns: i64) -> ClockRelation {
        ClockRelation::Estimated { offset_ns, error_ns: 0 }
    }

    #[test]
    fn a_receiver_that_gets_no_cpu_reads_what_is_left_all_the_same() {
        let mut arrivals = Arrivals::new(7, Flags::DATA, 64, behind(0), 1_000);
        let mut reads = 0;
        let ended = Ending::default();
        ended.stop();
        arrivals.read_until_stopped(&ended, |_| {
            reads += 1;
            if reads == 1 {
                std::thread::sleep(std::time::Duration::from_nanos(DRAIN_CPU_NS + 100_000_000));
            }
            reads < 5
        });
        assert_eq!(reads, 5);
    }

    #[test]
    fn every_datagram_is_judged_once() {
        let mut arrivals = Arrivals::new(7, Flags::DATA, 64, behind(500), 1_000);
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
    fn what_a_reader_does_after_the_last_message_is_not_the_traffics() {
        let mut received = Received::new(1_000);
        received.failed(&io::ErrorKind::WouldBlock.into());
        received.count(1_000, 1, 64);
        let work = |ns: u64| {
            let until = ThreadTime::now().cpu_ns + ns;
            while ThreadTime::now().cpu_ns < until {}
        };
        work(2_000_000);
        received.failed(&io::ErrorKind::WouldBlock.into());
        work(30_000_000);
        received.end();
        let cpu_ns = received.thread_time.cpu_ns;
        assert!((2_000_000..30_000_000).contains(&cpu_ns), "{cpu_ns}");
    }

    proptest! {
        #[test]
        fn no_datagram_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), now: u64, offset: i64) {
            let mut arrivals = Arrivals::new(1, Flags::DATA, 64, behind(offset), 1_000);
            let mut ours = message(1, 0, Flags::DATA);
            for (place, byte) in ours[4..].iter_mut().zip(&bytes) {
                *place = *byte;
            }
            arrivals.datagram(now, &bytes);
            arrivals.received.read_at(now / 2);
            arrivals.datagram(now, &ours);
        }
    }
}
