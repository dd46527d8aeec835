//! Requests and their replies over datagrams: the loops that UDP request/response and ping share.
//!
//! Closed loop: one request in flight; the next leaves when its reply came or after a time-out. A reply that comes
//! after its time-out is counted as late and never taken for the answer to a later request. Open loop: requests leave
//! by plan whatever happens to the replies, which a second thread reads; latency counts from the planned time, and
//! next to it from the time that the request really left. The sent times are kept in a ring
//! ([`super::sent_times`]): of more requests in flight than it has entries only the first kind of latency is known.

use super::arrivals::{Arrivals, Known};
use super::datagram::{Burst, Carrier, Form, SenderCounts, Through};
use super::end::{LINGER_NS, POLL};
use super::paced;
use super::schedule::{self, OpenLoopPlan, Share};
use super::sent_times::SentTimes;
use crate::protocol::setup::ClockRelation;
use linux::sys::clock;
use linux::sys::socket::{self, Direction};
use linux::sys::udp::{ReceiveBatch, Wait};
use record::spec::TestSpec;
use record::traffic::EndReport;
use record::{Problem, Result};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
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

/// Messages that one system call sends or takes.
pub fn buffers(spec: &TestSpec) -> usize {
    if spec.rate.is_some() { spec.batch.max(1) as usize } else { 1 }
}

/// Asks until the test is over.
pub fn run<C: Carrier>(carrier: &C, question: &Question, stop: &AtomicBool) -> EndReport {
    clock::precise_timers();
    // Warming up used time-outs of its own.
    let _ = set_timeout(carrier, question.timeout);
    let now = clock::monotonic_ns();
    let mut report = match OpenLoopPlan::of(&question.spec, now, question.spec.size, Share::ALL) {
        Some(plan) => open_loop(carrier, question, &plan, stop),
        None => closed_loop(carrier, question, stop),
    };
    report.socket_drops = socket::drops(carrier.fd()).ok();
    report
}

/// Makes receive calls on the carrier's socket end after `timeout`.
pub fn set_timeout<C: Carrier>(carrier: &C, timeout: Duration) -> Result<()> {
    socket::set_timeout(carrier.fd(), Direction::Receive, Some(timeout))
        .and_then(|()| socket::set_timeout(carrier.fd(), Direction::Send, Some(Duration::from_millis(250))))
        .map_err(|error| Problem::host(format!("cannot set the time-out of a socket: {error}")))
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

struct ClosedLoop<'a, C> {
    carrier: &'a C,
    batch: ReceiveBatch,
    replies: Arrivals,
    timeout_ns: u64,
    late: u64,
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
pub fn probe<C: Carrier>(carrier: &C, stream: u8, probes: u64, timeout: Duration) -> bool {
    let form = Form { stream, flags: Flags::PROBE, size: message::LENGTH, merged: 1, buffers: 1 };
    let mut burst = Burst::new(carrier, form);
    let replies = Arrivals::new(stream, Flags::PROBE, message::LENGTH, ClockRelation::Shared, 0);
    let timeout_ns = timeout.as_nanos() as u64;
    let mut loops = ClosedLoop { carrier, batch: ReceiveBatch::new(1, 2048), replies, timeout_ns, late: 0 };
    let _ = set_timeout(carrier, timeout);
    for number in 0..probes {
        let (now, mut sent) = (clock::monotonic_ns(), SenderCounts::default());
        burst.send(carrier, number..number + 1, |_| 0, &mut sent);
        if sent.sent == 0 {
            clock::sleep_until(now + timeout_ns);
        } else {
            loops.wait_for(number, now);
        }
        if loops.replies.unique() == number + 1 {
            return true;
        }
    }
    loops.replies.unique() > 0
}

fn closed_loop<C: Carrier>(carrier: &C, question: &Question, stop: &AtomicBool) -> EndReport {
    let spec = &question.spec;
    let mut burst = Burst::new(carrier, Form { buffers: 1, merged: 1, ..question.form });
    let (batch, replies) = (receive_batch(question, 1), arrivals(question));
    let timeout_ns = question.timeout.as_nanos() as u64;
    let mut loops = ClosedLoop { carrier, batch, replies, timeout_ns, late: 0 };
    let cpu = clock::thread_cpu_ns();
    let mut sent = SenderCounts { begun_ns: clock::monotonic_ns(), ..SenderCounts::default() };
    let end = schedule::deadline_of(spec, sent.begun_ns);
    let total = spec.count.unwrap_or(u64::MAX);
    let mut now = sent.begun_ns;
    while sent.attempted < total && now < end && !stop.load(Relaxed) {
        let number = sent.attempted;
        let accepted = sent.sent;
        now = clock::monotonic_ns();
        burst.send(carrier, number..number + 1, |_| now, &mut sent);
        sent.ended_ns = now;
        if sent.sent > accepted {
            now = loops.wait_for(number, now);
        } else {
            // A refused request has no reply; an error that stays must not take the CPU.
            clock::sleep_until(now + 1_000_000);
        }
    }
    loops.linger(sent.sent);
    let mut report = EndReport { thread_cpu_ns: clock::thread_cpu_ns() - cpu, ..EndReport::default() };
    sent.report(sent.schedule(None), &mut report);
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

fn open_loop<C: Carrier>(
    carrier: &C,
    question: &Question,
    plan: &OpenLoopPlan,
    stop: &AtomicBool,
) -> EndReport {
    // Replies are looked for often enough to notice the end, whatever the time-out of the closed loop is.
    let _ = set_timeout(carrier, POLL);
    let mut burst = Burst::new(carrier, question.form);
    let batch = receive_batch(question, question.spec.batch.max(1) as usize);
    let waiting = arrivals(question);
    let mut out = Through { carrier, burst: &mut burst };
    let (mut report, replies) =
        paced::ask(&mut out, plan, stop, |sent| read_replies(carrier, batch, waiting, sent));
    replies.report(&mut report);
    report
}
