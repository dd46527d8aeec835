//! Requests and their replies over datagrams: the loops that UDP request/response and ping share.
//!
//! Closed loop: one request in flight; the next leaves when its reply came or after a time-out. A reply that comes
//! after its time-out is counted as late and never taken for the answer to a later request. Open loop: requests leave
//! by plan whatever happens to the replies, which a second thread reads; latency counts from the planned time, and
//! next to it from the time that the request really left. The sent times are kept in a ring
//! ([`super::sent_times`]): of more requests in flight than it has entries only the first kind of latency is known.

use super::arrivals::{Arrivals, Known};
use super::datagram::{Burst, Carrier, Errors, Form, Sent, Through};
use super::end::{LINGER_NS, POLL, receive_errors_note};
use super::intervals::Intervals;
use super::paced::send_planned;
use super::schedule::{self, Plan, Share};
use super::sent_times::SentTimes;
use super::udp::note_error;
use linux::sys::clock;
use linux::sys::socket::{self, Direction};
use linux::sys::udp::{ReceiveBatch, Wait};
use record::spec::TestSpec;
use record::traffic::EndReport;
use record::{Histogram, Problem, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::Duration;
use wire::message::Flags;

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

/// Asks until the test is over.
pub fn run<C: Carrier>(carrier: &C, question: &Question, stop: &AtomicBool) -> EndReport {
    clock::precise_timers();
    let now = clock::monotonic_ns();
    let mut report = match Plan::of(&question.spec, now, question.spec.size, Share::ALL) {
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
    let intervals = Intervals::for_duration(question.spec.duration_ms);
    Arrivals::new(question.form.stream, question.reply_flags, question.reply_size, 0, intervals)
}

fn receive_batch(question: &Question, buffers: usize) -> ReceiveBatch {
    // Room for the longest IPv4 header, the ICMP header and one byte that shows a reply that is too long.
    ReceiveBatch::new(buffers, question.reply_size + 60 + 8 + 1)
}

/// Takes in one received batch; calls `each` for every reply of the test.
#[inline]
fn take_in<C: Carrier>(
    carrier: &C,
    batch: &ReceiveBatch,
    many: usize,
    now: u64,
    replies: &mut Arrivals,
    mut each: impl FnMut(&Known),
) {
    replies.read_at(now);
    for index in 0..many {
        match carrier.read(batch.bytes(index)) {
            Some(bytes) => {
                if let Some(known) = replies.datagram(now, bytes) {
                    each(&known);
                }
            }
            None => replies.foreign(1),
        }
    }
}

struct ClosedLoop<'a, C> {
    carrier: &'a C,
    batch: ReceiveBatch,
    replies: Arrivals,
    errors: Errors,
    timeout_ns: u64,
    late: u64,
}

impl<C: Carrier> ClosedLoop<'_, C> {
    /// Waits for the reply to request `number`, which left at `left_ns`; returns the time at the end of the wait.
    #[inline]
    fn wait_for(&mut self, number: u64, left_ns: u64) -> u64 {
        loop {
            let received = self.batch.receive(self.carrier.fd(), Wait::ForOne);
            let now = clock::monotonic_ns();
            let mut answered = false;
            match received {
                Ok(many) => {
                    let (late, timeout_ns) = (&mut self.late, self.timeout_ns);
                    take_in(self.carrier, &self.batch, many, now, &mut self.replies, |known| {
                        answered |= known.message.sequence == number;
                        *late += u64::from(known.is_new && known.latency_ns > timeout_ns);
                    });
                }
                Err(error) => note_error(&error, &mut self.errors),
            }
            if answered || now.saturating_sub(left_ns) >= self.timeout_ns {
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

fn closed_loop<C: Carrier>(carrier: &C, question: &Question, stop: &AtomicBool) -> EndReport {
    let spec = &question.spec;
    let mut burst = Burst::new(carrier, Form { buffers: 1, merged: 1, ..question.form });
    let mut loops = ClosedLoop {
        carrier,
        batch: receive_batch(question, 1),
        replies: arrivals(question),
        errors: Errors::default(),
        timeout_ns: question.timeout.as_nanos() as u64,
        late: 0,
    };
    let cpu = clock::thread_cpu_ns();
    let mut sent = Sent { begun_ns: clock::monotonic_ns(), ..Sent::default() };
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
    sent.report(&mut report);
    report.schedule = Some(schedule::without_plan(sent.attempted, sent.begun_ns, sent.ended_ns));
    report.notes.extend(receive_errors_note(&loops.errors));
    if question.counts_late && loops.late > 0 {
        report.late = loops.late;
        let ms = question.timeout.as_millis();
        report.notes.push(format!(
            "later than {ms} ms after their request: {} replies",
            record::unit::count(loops.late)
        ));
    }
    loops.replies.report(&mut report);
    report
}

/// What the reading thread of an open loop knows at its end.
struct Replies {
    arrivals: Arrivals,
    from_send: Histogram,
    errors: Errors,
    cpu_ns: u64,
}

fn read_replies<C: Carrier>(
    carrier: &C,
    mut batch: ReceiveBatch,
    mut arrivals: Arrivals,
    sent: &SentTimes,
    accepted: &AtomicU64,
) -> Replies {
    let (mut from_send, mut errors) = (Histogram::new(), Errors::default());
    let cpu = clock::thread_cpu_ns();
    let mut give_up = u64::MAX;
    loop {
        let received = batch.receive(carrier.fd(), Wait::ForOne);
        let now = clock::monotonic_ns();
        match received {
            Ok(many) => take_in(carrier, &batch, many, now, &mut arrivals, |known| {
                if let Some(left) = sent.of(known.message.sequence).filter(|_| known.is_new) {
                    from_send.record(now.saturating_sub(left));
                }
            }),
            Err(error) => note_error(&error, &mut errors),
        }
        if sent.is_done() {
            give_up = give_up.min(now + LINGER_NS);
            if arrivals.unique() >= accepted.load(Acquire) || now >= give_up {
                return Replies { arrivals, from_send, errors, cpu_ns: clock::thread_cpu_ns() - cpu };
            }
        }
    }
}

fn open_loop<C: Carrier>(carrier: &C, question: &Question, plan: &Plan, stop: &AtomicBool) -> EndReport {
    // Replies are looked for often enough to notice the end, whatever the time-out of the closed loop is.
    let _ = set_timeout(carrier, POLL);
    let mut burst = Burst::new(carrier, question.form);
    let (times, accepted) = (SentTimes::new(), AtomicU64::new(0));
    let batch = receive_batch(question, question.spec.batch.max(1) as usize);
    let waiting = arrivals(question);
    let cpu = clock::thread_cpu_ns();
    let (sent, lateness, replies) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_replies(carrier, batch, waiting, &times, &accepted));
        let mut out = Through { carrier, burst: &mut burst };
        let (sent, lateness) = send_planned(&mut out, plan, stop, |numbers, now| {
            numbers.for_each(|number| times.leaves(number, now));
        });
        accepted.store(sent.sent, Release);
        times.finish();
        let replies = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sent, lateness, replies)
    });
    let mut report = EndReport::default();
    sent.report(&mut report);
    report.thread_cpu_ns = clock::thread_cpu_ns() - cpu + replies.cpu_ns;
    let schedule = plan.outcome(sent.attempted, sent.begun_ns, sent.ended_ns, &lateness);
    report.notes.extend(schedule::lateness_note(schedule.lateness.as_ref()));
    report.notes.extend(receive_errors_note(&replies.errors));
    report.schedule = Some(schedule);
    report.latency_from_send = replies.from_send.summary();
    replies.arrivals.report(&mut report);
    report
}
