//! Datagrams that leave: in bursts, over any socket that carries test messages, with their errors counted.
//!
//! A carrier says how a test message travels: as a UDP payload, or as the data of an ICMP echo. Everything else (the
//! batch, the schedule, the counting) does not know the difference.

use super::schedule;
use linux::sys::icmp::EchoSocket;
use linux::sys::udp::SendBatch;
use linux::sys::{notice, socket};
use record::Histogram;
use record::ledger::NamedCount;
use record::traffic::{EndReport, Schedule};
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use wire::icmp::{self, Echo};
use wire::message::{Flags, Message};

/// A socket and the way a test message travels over it: as it is, when nothing else is said.
pub trait Carrier: AsFd + Sync + Send {
    /// Bytes in front of the test message in the buffer that is sent.
    fn overhead(&self) -> usize {
        0
    }

    /// Writes a message over the start of a buffer.
    #[inline]
    fn write(&self, buffer: &mut [u8], message: &Message) {
        message.write(buffer);
    }

    /// The test's bytes in what was received; none when it is something else.
    #[inline]
    fn read<'a>(&self, received: &'a [u8]) -> Option<&'a [u8]> {
        Some(received)
    }
}

impl Carrier for UdpSocket {}

impl Carrier for EchoSocket {
    fn overhead(&self) -> usize {
        icmp::HEADER
    }

    #[inline]
    fn write(&self, buffer: &mut [u8], message: &Message) {
        let kind = if self.is_v6() { icmp::V6_REQUEST } else { icmp::V4_REQUEST };
        message.write(&mut buffer[icmp::HEADER..]);
        icmp::write_echo(buffer, kind, self.identifier, message.sequence as u16);
    }

    #[inline]
    fn read<'a>(&self, received: &'a [u8]) -> Option<&'a [u8]> {
        let kind = if self.is_v6() { icmp::V6_REPLY } else { icmp::V4_REPLY };
        let echo = Echo::parse(self.message(received)).ok()?;
        (echo.kind() == kind && echo.identifier() == self.identifier).then(|| echo.data())
    }
}

/// Errors by number, without allocation: the first 15 kinds have a place of their own, the rest share one.
#[derive(Debug, Clone, Default)]
pub struct Errors {
    kinds: [(i32, u64); 16],
    /// Refusals whose error the kernel did not tell.
    untold: u64,
}

impl Errors {
    /// Counts `times` errors.
    pub fn add(&mut self, error: &io::Error, times: u64) {
        self.add_errno(error.raw_os_error().unwrap_or(0), times);
    }

    /// Counts `times` refusals without an error: `sendmmsg` tells none for a message behind one that it sent.
    pub fn add_untold(&mut self, times: u64) {
        self.untold += times;
    }

    fn add_errno(&mut self, errno: i32, times: u64) {
        let last = self.kinds.len() - 1;
        let place = self.kinds[..last].iter().position(|&(kind, count)| kind == errno || count == 0);
        let place = &mut self.kinds[place.unwrap_or(last)];
        *place = (errno, place.1 + times);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Errors) {
        self.untold += other.untold;
        for &(errno, count) in other.kinds.iter().filter(|(_, count)| *count > 0) {
            self.add_errno(errno, count);
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.kinds.iter().map(|(_, count)| count).sum::<u64>() + self.untold
    }

    /// The counts by errno name. What was refused without an error is taken for the error that was told most often.
    pub fn named(&self) -> Vec<NamedCount> {
        let mut kinds = self.kinds;
        let most = kinds.iter_mut().max_by_key(|(_, count)| *count);
        if let Some((_, count)) = most.filter(|(_, count)| *count > 0) {
            *count += self.untold;
        }
        let some = kinds.iter().filter(|(_, count)| *count > 0);
        let mut named: Vec<_> =
            some.map(|&(errno, count)| NamedCount { name: socket::errno_name(errno), count }).collect();
        if named.is_empty() && self.untold > 0 {
            named.push(NamedCount { name: "UNTOLD".into(), count: self.untold });
        }
        named
    }
}

/// What a sender counts.
#[derive(Debug, Clone, Default)]
pub struct SenderCounts {
    /// The sending half of the report as far as it is counted: messages, bytes, calls, CPU time, and when the first and the last
    /// burst were given out (whoever knows when the last one had left, or was answered, says that).
    pub report: EndReport,
    /// Messages that the kernel did not take, by error.
    pub errors: Errors,
    /// How late they left against their plan.
    pub lateness: Histogram,
    /// Times that the kernel held the sender back until the send time-out: the send buffer stayed full.
    pub blocked: u64,
}

impl SenderCounts {
    /// Adds what another connection sent at the same time.
    pub fn merge(&mut self, other: &SenderCounts) {
        let (sum, more) = (&mut self.report, &other.report);
        sum.attempted += more.attempted;
        sum.sent += more.sent;
        sum.sent_bytes += more.sent_bytes;
        sum.send_calls += more.send_calls;
        sum.thread_cpu_ns += more.thread_cpu_ns;
        sum.thread_wait_ns += more.thread_wait_ns;
        sum.begun_ns = schedule::earlier(sum.begun_ns, more.begun_ns);
        sum.ended_ns = sum.ended_ns.max(more.ended_ns);
        self.errors.merge(&other.errors);
        self.lateness.merge(&other.lateness);
    }

    /// The sending half of a report.
    pub fn into_report(self, schedule: Schedule) -> EndReport {
        let mut report = self.report;
        report.notes.extend(schedule::lateness_note(schedule.lateness.as_ref()));
        report.schedule = Some(schedule);
        report.send_errors = self.errors.named();
        if self.blocked > 0 {
            let what = "the send buffer stayed full: the kernel held the sender back";
            report.notes.push(format!(
                "{what} {} for a quarter of a second",
                record::unit::many(self.blocked, "time")
            ));
        }
        report
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
    fn capacity(&self) -> u64 {
        1
    }

    /// Sends the messages `numbers` (at most [`Self::capacity`]), each with its planned time. What is refused is
    /// counted and not tried again; when the way out stays full, the rest is not attempted, and the caller goes on at
    /// `sent.report.attempted`.
    fn send(&mut self, numbers: std::ops::Range<u64>, planned: impl Fn(u64) -> u64, sent: &mut SenderCounts);

    /// True when nothing can leave any more.
    fn is_closed(&self) -> bool {
        false
    }
}

/// Datagrams that leave in one system call.
pub struct Burst<'a, C> {
    carrier: &'a C,
    batch: SendBatch,
    form: Form,
    /// Bytes of one datagram in a buffer, with what the carrier puts in front.
    step: usize,
}

impl<'a, C: Carrier> Burst<'a, C> {
    /// Room for one burst.
    pub fn new(carrier: &'a C, form: Form) -> Self {
        let step = form.size + carrier.overhead();
        Burst { carrier, batch: SendBatch::new(form.buffers, step * form.merged), form, step }
    }
}

impl<C: Carrier> Outgoing for Burst<'_, C> {
    fn capacity(&self) -> u64 {
        (self.form.buffers * self.form.merged) as u64
    }

    /// When the send buffer stays full until the send time-out, nothing was refused and nothing was lost.
    #[inline]
    fn send(&mut self, numbers: std::ops::Range<u64>, planned: impl Fn(u64) -> u64, sent: &mut SenderCounts) {
        let merged = self.form.merged as u64;
        let many = (numbers.end - numbers.start).min(self.capacity());
        let mut message =
            Message { stream: self.form.stream, flags: self.form.flags, sequence: 0, planned_ns: 0 };
        for index in 0..many.div_ceil(merged) {
            let first = numbers.start + index * merged;
            let inside = merged.min(many - index * merged);
            let buffer = self.batch.buffer(index as usize);
            for (sequence, place) in (first..first + inside).zip(buffer.chunks_mut(self.step)) {
                message.sequence = sequence;
                message.planned_ns = planned(sequence);
                self.carrier.write(place, &message);
            }
            self.batch.set_length(index as usize, inside as usize * self.step);
        }
        push(&mut self.batch, self.carrier.as_fd(), many, &self.form, sent);
    }
}

/// Sends the first `many` datagrams that were written into the batch in that form.
#[inline]
pub fn push(batch: &mut SendBatch, socket: BorrowedFd<'_>, many: u64, form: &Form, sent: &mut SenderCounts) {
    let merged = form.merged as u64;
    let buffers = many.div_ceil(merged);
    let datagrams = |from: u64, to: u64| (to * merged).min(many) - from * merged;
    let mut at = 0;
    sent.report.attempted += many;
    while at < buffers {
        sent.report.send_calls += 1;
        match batch.send(socket, at as usize..buffers as usize) {
            Ok(accepted) => {
                let taken = datagrams(at, at + accepted as u64);
                sent.report.sent += taken;
                sent.report.sent_bytes += taken * form.size as u64;
                at += accepted as u64;
                // What stopped the call was tried and refused, unless it waits for room in the send buffer.
                if at < buffers && has_room(socket) {
                    sent.errors.add_untold(datagrams(at, at + 1));
                    at += 1;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sent.blocked += 1;
                sent.report.attempted -= datagrams(at, buffers);
                return;
            }
            Err(error) => {
                sent.errors.add(&error, datagrams(at, at + 1));
                at += 1;
            }
        }
    }
}

/// Whether a socket takes more.
#[cold]
fn has_room(socket: BorrowedFd<'_>) -> bool {
    notice::wait(&[(socket, true)], Duration::ZERO).is_ok_and(|ready| ready.iter().any(|one| one.write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_names_and_never_outgrow_their_room() {
        let mut errors = Errors::default();
        for errno in 1..40 {
            errors.add(&io::Error::from_raw_os_error(errno), 2);
        }
        errors.add(&io::Error::from_raw_os_error(1), 3);
        assert_eq!(errors.total(), 81);
        assert_eq!(errors.named()[0], NamedCount { name: "EPERM".into(), count: 5 });
        let mut untold = Errors::default();
        untold.add_untold(7);
        assert_eq!(untold.named(), [NamedCount { name: "UNTOLD".into(), count: 7 }]);
        untold.add(&io::Error::from_raw_os_error(1), 1);
        assert_eq!(
            (untold.total(), untold.named()),
            (8, vec![NamedCount { name: "EPERM".into(), count: 8 }])
        );
    }

    #[test]
    fn a_refused_datagram_is_counted_and_the_burst_goes_on() {
        // Segments that do not fit the loopback MTU cannot be sent; single datagrams can.
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(receiver.local_addr().unwrap()).unwrap();
        let form = Form { stream: 1, flags: Flags::DATA, size: 65_600, merged: 1, buffers: 3 };
        let (mut burst, mut sent) = (Burst::new(&socket, form), SenderCounts::default());
        burst.send(0..3, |n| n, &mut sent);
        assert_eq!((sent.report.attempted, sent.report.sent, sent.report.send_calls), (3, 0, 3));
        assert_eq!(sent.errors.named(), [NamedCount { name: "EMSGSIZE".into(), count: 3 }]);
    }

    /// `sendmmsg` hides the error of a message behind one that it sent.
    #[test]
    fn a_datagram_that_is_refused_inside_a_burst_is_counted_once_and_not_sent_again() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(receiver.local_addr().unwrap()).unwrap();
        let form = Form { stream: 1, flags: Flags::DATA, size: 65_600, merged: 1, buffers: 5 };
        let (mut batch, mut sent) = (SendBatch::new(5, form.size), SenderCounts::default());
        for index in [0, 2, 4] {
            batch.set_length(index, 64);
        }
        push(&mut batch, socket.as_fd(), 5, &form, &mut sent);
        assert_eq!((sent.report.attempted, sent.report.sent, sent.errors.total()), (5, 3, 2));
    }
}
