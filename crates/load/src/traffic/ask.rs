//! Requests and their replies over datagrams: the loops that UDP request/response and ping share.
//!
//! Closed loop: one request in flight; the next leaves when its reply came or after a time-out. A reply that comes
//! after its time-out is counted as late and never taken for the answer to a later request. Open loop: requests leave
//! by plan whatever happens to the replies, which a second thread reads; latency counts from the planned time, and
//! next to it from the time that the request really left. The sent times are kept in a ring
//! ([`super::sent_times`]): of more requests in flight than it has entries only the first kind of latency is known.

use super::arrivals::{Arrivals, Known};
use super::datagram::{Burst, Carrier, Form, Outgoing, SenderCounts};
use super::end::{End, LINGER_NS, POLL};
use super::paced;
use super::sent_times::SentTimes;
use crate::protocol::setup::ClockRelation;
use linux::sys::clock;
use linux::sys::socket::{self, Direction};
use linux::sys::udp::{ReceiveBatch, Wait};
use record::spec::TestSpec;
use record::traffic::EndReport;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use wire::message::{self, Flags};

/// What a test of this kind asks for.
#[derive(Debug, Clone)]
pub struct Question {
    /// The test.
    pub spec: TestSpec,
    /// The form of the requests.
    pub form: Form,
    /// What replies are marked with.
    pub reply_flags: Flags,
    /// Payload bytes of a reply.
    pub reply_size: usize,
    /// How long the closed loop waits for a reply.
    pub timeout: Duration,
    /// Whether a reply after that time counts as late.
    pub counts_late: bool,
}

/// Probes of a warm-up, and how long each waits for its reply.
const PROBES: u64 = 5;
const PROBE_TIMEOUT: Duration = Duration::from_millis(200);

/// How long a refused request waits: it has no reply, and an error that stays must not take the CPU.
const REFUSED_NS: u64 = 1_000_000;

/// Messages that one system call sends or takes.
pub fn buffers(spec: &TestSpec) -> usize {
    if spec.rate.is_some() { spec.batch.max(1) as usize } else { 1 }
}

/// The end that asks.
pub struct Asker<C> {
    /// Carries the requests and the replies.
    pub carrier: C,
    /// What is asked.
    pub question: Question,
}

impl<C: Carrier> End for Asker<C> {
    fn warm_up(&mut self) -> bool {
        probe(&self.carrier, self.question.form.stream, self.question.reply_flags)
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        let (carrier, question) = (&self.carrier, &self.question);
        let mut report = match question.spec.rate {
            Some(_) => open_loop(carrier, question, stop),
            None => closed_loop(carrier, question, stop),
        };
        report.socket_drops = socket::drops(carrier.fd()).ok();
        report
    }
}

/// Makes receive calls on the carrier's socket end after `timeout`; those that cannot be made to do so wait for longer.
fn set_timeout<C: Carrier>(carrier: &C, timeout: Duration) {
    let _ = socket::set_timeout(carrier.fd(), Direction::Receive, Some(timeout))
        .and_then(|()| socket::set_timeout(carrier.fd(), Direction::Send, Some(Duration::from_millis(250))));
}

fn arrivals(question: &Question) -> Arrivals {
    let Question { spec, form, reply_flags, reply_size, .. } = question;
    Arrivals::new(form.stream, *reply_flags, *reply_size, ClockRelation::Shared, spec.duration_ms)
}

fn receive_batch(question: &Question, buffers: usize) -> ReceiveBatch {
    // Room for the longest IPv4 header, the ICMP header and one byte that shows a reply that is too long.
    ReceiveBatch::new(buffers, question.reply_size + 60 + 8 + 1)
}

/// Waits for what comes and takes it in; calls `each` for every reply of the test. Returns the time at the end of the wait.
#[inline]
fn take_in<C: Carrier>(
    carrier: &C,
    batch: &mut ReceiveBatch,
    replies: &mut Arrivals,
    mut each: impl FnMut(&mut Arrivals, &Known, u64),
) -> u64 {
    let received = batch.receive(carrier.fd(), Wait::ForOne);
    let now = clock::monotonic_ns();
    match received {
        Ok(many) => {
            replies.received.read_at(now);
            for index in 0..many {
                match carrier.read(batch.bytes(index)).map(|bytes| replies.datagram(now, bytes)) {
                    Some(Some(known)) => each(replies, &known, now),
                    Some(None) => {}
                    None => replies.foreign(1),
                }
            }
        }
        Err(error) => replies.received.failed(&error),
    }
    now
}

/// Requests of which each waits for the reply to the one before.
struct ClosedLoop<'a, C> {
    carrier: &'a C,
    burst: Burst<'a, C>,
    batch: ReceiveBatch,
    replies: Arrivals,
    timeout_ns: u64,
    refused_ns: u64,
    late: u64,
}

impl<C: Carrier> Outgoing for ClosedLoop<'_, C> {
    fn capacity(&self) -> u64 {
        1
    }

    #[inline]
    fn send(&mut self, numbers: Range<u64>, planned: impl Fn(u64) -> u64, sent: &mut SenderCounts) {
        let (number, accepted) = (numbers.start, sent.sent);
        let now = planned(number);
        self.burst.send(numbers, planned, sent);
        if sent.sent > accepted {
            self.wait_for(number, now);
        } else {
            clock::sleep_until(now + self.refused_ns);
        }
    }
}

impl<C: Carrier> ClosedLoop<'_, C> {
    /// Waits for the reply to request `number`, which left at `left_ns`; returns the time at the end of the wait.
    #[inline]
    fn wait_for(&mut self, number: u64, left_ns: u64) -> u64 {
        let (mut answered, late, timeout_ns) = (false, &mut self.late, self.timeout_ns);
        loop {
            let now = take_in(self.carrier, &mut self.batch, &mut self.replies, |_, known, _| {
                answered |= known.message.sequence == number;
                *late += u64::from(known.is_new && known.latency_ns > timeout_ns);
            });
            if answered || now.saturating_sub(left_ns) >= timeout_ns {
                return now;
            }
        }
    }

    /// Reads replies that are still under way, for a while.
    fn linger(&mut self, sent: u64) {
        let until = clock::monotonic_ns() + LINGER_NS;
        while self.replies.unique() < sent && clock::monotonic_ns() < until {
            // A number that was never sent: any reply that comes now belongs to an earlier request.
            self.wait_for(u64::MAX, clock::monotonic_ns());
        }
    }
}

/// Sends probes, each when the one before was answered or took too long, until all of them were answered; true when one was.
pub fn probe<C: Carrier>(carrier: &C, stream: u8, reply_flags: Flags) -> bool {
    let (flags, size) = (Flags::PROBE.with(Flags::REQUEST), message::LENGTH);
    let timeout_ns = PROBE_TIMEOUT.as_nanos() as u64;
    let mut loops = ClosedLoop {
        carrier,
        burst: Burst::new(carrier, Form { stream, flags, size, merged: 1, buffers: 1 }),
        batch: ReceiveBatch::new(1, 2048),
        replies: Arrivals::new(stream, Flags::PROBE.with(reply_flags), size, ClockRelation::Shared, 0),
        timeout_ns,
        refused_ns: timeout_ns,
        late: 0,
    };
    set_timeout(carrier, PROBE_TIMEOUT);
    for number in 0..PROBES {
        let now = clock::monotonic_ns();
        loops.send(number..number + 1, |_| now, &mut SenderCounts::default());
        if loops.replies.unique() == number + 1 {
            return true;
        }
    }
    loops.replies.unique() > 0
}

fn closed_loop<C: Carrier>(carrier: &C, question: &Question, stop: &AtomicBool) -> EndReport {
    set_timeout(carrier, question.timeout);
    let mut loops = ClosedLoop {
        carrier,
        burst: Burst::new(carrier, Form { buffers: 1, ..question.form }),
        batch: receive_batch(question, 1),
        replies: arrivals(question),
        timeout_ns: question.timeout.as_nanos() as u64,
        refused_ns: REFUSED_NS,
        late: 0,
    };
    let mut report = paced::send(&mut loops, &question.spec, stop);
    loops.linger(report.sent);
    loops.replies.report(&mut report);
    if question.counts_late && loops.late > 0 {
        report.late = loops.late;
        let (ms, replies) = (question.timeout.as_millis(), record::unit::count(loops.late));
        report.notes.push(format!("later than {ms} ms after their request: {replies} replies"));
    }
    report
}

fn read_replies<C: Carrier>(
    carrier: &C,
    mut batch: ReceiveBatch,
    mut replies: Arrivals,
    sent: &SentTimes,
) -> Arrivals {
    let cpu = clock::thread_cpu_ns();
    let mut give_up = u64::MAX;
    loop {
        let now = take_in(carrier, &mut batch, &mut replies, |replies, known, now| {
            if let Some(left) = sent.of(known.message.sequence).filter(|_| known.is_new) {
                replies.received.from_send.record(now.saturating_sub(left));
            }
        });
        if sent.is_over(replies.unique(), now, LINGER_NS, &mut give_up) {
            replies.received.cpu_ns = clock::thread_cpu_ns() - cpu;
            return replies;
        }
    }
}

fn open_loop<C: Carrier>(carrier: &C, question: &Question, stop: &AtomicBool) -> EndReport {
    // Replies are looked for often enough to notice the end, whatever the time-out of the closed loop is.
    set_timeout(carrier, POLL);
    let mut burst = Burst::new(carrier, question.form);
    let batch = receive_batch(question, question.spec.batch.max(1) as usize);
    let (waiting, now) = (arrivals(question), clock::monotonic_ns());
    let (mut report, replies) =
        paced::ask(&mut burst, &question.spec, now, stop, |sent| read_replies(carrier, batch, waiting, sent));
    replies.report(&mut report);
    report
}
