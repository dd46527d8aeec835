//! Requests and their replies over datagrams: the loops that UDP request/response and ping share.
//!
//! Closed loop: one request in flight; the next leaves when its reply came or after a time-out. A reply that comes
//! after its time-out is counted as late and never taken for the answer to a later request. It ends with its last wait, so that n requests
//! take n round trips. Open loop: requests leave
//! by plan whatever happens to the replies, which a second thread reads; latency counts from the planned time, and
//! next to it from the time that the request really left. The sent times are kept in a ring
//! ([`super::sent_times`]): of more requests in flight than it has entries only the first kind of latency is known.

use super::arrivals::{Arrivals, Known};
use super::datagram::{Burst, Carrier, Form, Outgoing, SenderCounts};
use super::end::{End, LINGER_NS, POLL};
use super::paced;
use super::schedule::{Ending, Running};
use super::sent_times::SentTimes;
use crate::protocol::setup::ClockRelation;
use linux::sys::clock::{self, ThreadTime};
use linux::sys::socket::{self, Direction};
use linux::sys::udp::{ReceiveBatch, Wait};
use record::spec::TestSpec;
use record::traffic::EndReport;
use std::ops::Range;
use std::time::Duration;
use wire::message::{self, Flags};

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

impl<C: Carrier> End for Asker<C> {
    fn warm_up(&mut self) -> bool {
        probe(&self.carrier, self.form.stream, self.reply_flags)
    }

    fn run(&mut self, stop: &Ending) -> EndReport {
        let report = if self.spec.rate.is_some() { self.open_loop(stop) } else { self.closed_loop(stop) };
        EndReport { socket_drops: socket::drops(&self.carrier).ok(), ..report }
    }
}

impl<C: Carrier> Asker<C> {
    fn replies(&self) -> Arrivals {
        let duration_ms = self.spec.duration_ms;
        Arrivals::new(self.form.stream, self.reply_flags, self.reply_size, ClockRelation::Shared, duration_ms)
    }

    fn batch(&self, buffers: usize) -> ReceiveBatch {
        // Room for the longest IPv4 header, the ICMP header and one byte that shows a reply that is too long.
        ReceiveBatch::new(buffers, self.reply_size + 60 + 8 + 1)
    }

    fn closed_loop(&self, stop: &Ending) -> EndReport {
        let form = Form { buffers: 1, ..self.form };
        let mut loops = ClosedLoop::new(&self.carrier, form, self.batch(1), self.replies(), self.timeout);
        let mut report = paced::send(&mut loops, &self.spec, stop);
        loops.linger(report.sent);
        loops.replies.report(&mut report);
        if self.counts_late && loops.late > 0 {
            report.late = loops.late;
            let (ms, replies) = (self.timeout.as_millis(), record::unit::count(loops.late));
            report.notes.push(format!("later than {ms} ms after their request: {replies} replies"));
        }
        report
    }

    fn open_loop(&self, stop: &Ending) -> EndReport {
        // Replies are looked for often enough to notice the end, whatever the time-out of the closed loop is.
        set_timeout(&self.carrier, POLL);
        let mut burst = Burst::new(&self.carrier, self.form);
        let (batch, replies) = (self.batch(self.spec.batch.max(1) as usize), self.replies());
        let test = Running { spec: &self.spec, start_ns: clock::monotonic_ns(), stop };
        let (mut report, replies) =
            paced::ask(&mut burst, test, |sent| read_replies(&self.carrier, batch, replies, sent));
        replies.report(&mut report);
        report
    }
}

/// Makes receive calls on the carrier's socket end after `timeout`; those that cannot be made to do so wait for longer.
fn set_timeout<C: Carrier>(carrier: &C, timeout: Duration) {
    let _ = socket::set_timeout(carrier, Direction::Receive, Some(timeout))
        .and_then(|()| socket::set_timeout(carrier, Direction::Send, Some(Duration::from_millis(250))));
}

/// Waits for what comes and takes it in; calls `each` for every reply of the test. Returns the time at the end of the wait.
#[inline]
fn take_in<C: Carrier>(
    carrier: &C,
    batch: &mut ReceiveBatch,
    replies: &mut Arrivals,
    mut each: impl FnMut(&mut Arrivals, &Known, u64),
) -> u64 {
    let received = batch.receive(carrier, Wait::ForOne);
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
    #[inline]
    fn send(&mut self, numbers: Range<u64>, planned: impl Fn(u64) -> u64, sent: &mut SenderCounts) {
        let (number, accepted) = (numbers.start, sent.report.sent);
        let now = planned(number);
        self.burst.send(numbers, planned, sent);
        if sent.report.sent > accepted {
            sent.report.ended_ns = self.wait_for(number, now);
        } else {
            clock::sleep_until(now + self.refused_ns);
        }
    }
}

impl<'a, C: Carrier> ClosedLoop<'a, C> {
    fn new(carrier: &'a C, form: Form, batch: ReceiveBatch, replies: Arrivals, timeout: Duration) -> Self {
        set_timeout(carrier, timeout);
        let (burst, timeout_ns) = (Burst::new(carrier, form), timeout.as_nanos() as u64);
        ClosedLoop { carrier, burst, batch, replies, timeout_ns, refused_ns: REFUSED_NS, late: 0 }
    }

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
    let form = Form { stream, flags, size, merged: 1, buffers: 1 };
    let replies = Arrivals::new(stream, Flags::PROBE.with(reply_flags), size, ClockRelation::Shared, 0);
    let mut loops = ClosedLoop::new(carrier, form, ReceiveBatch::new(1, 2048), replies, PROBE_TIMEOUT);
    loops.refused_ns = loops.timeout_ns;
    for number in 0..PROBES {
        let now = clock::monotonic_ns();
        loops.send(number..number + 1, |_| now, &mut SenderCounts::default());
        if loops.replies.unique() == number + 1 {
            return true;
        }
    }
    loops.replies.unique() > 0
}

fn read_replies<C: Carrier>(
    carrier: &C,
    mut batch: ReceiveBatch,
    mut replies: Arrivals,
    sent: &SentTimes,
) -> Arrivals {
    let begun = ThreadTime::now();
    let mut give_up = u64::MAX;
    loop {
        let now = take_in(carrier, &mut batch, &mut replies, |replies, known, now| {
            if let Some(left) = sent.of(known.message.sequence).filter(|_| known.is_new) {
                replies.received.from_send.record(now.saturating_sub(left));
            }
        });
        if sent.is_over(replies.unique(), now, LINGER_NS, &mut give_up) {
            replies.received.thread_time = ThreadTime::since(begun);
            return replies;
        }
    }
}
