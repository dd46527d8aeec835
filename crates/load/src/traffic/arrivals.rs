//! Messages that arrive: whose they are, whether each is new, when it came and how late.
//!
//! Both ends count by this: a receiver the messages, the sender of requests the replies.

use super::intervals::Intervals;
use super::sequence::{self, Arrival, Sequence};
use linux::sys::clock;
use record::Histogram;
use record::traffic::EndReport;
use wire::message::{Flags, Message};

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
                sequence::WINDOW
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
