//! Requests and their replies over datagrams: the loops that UDP request/response and ping share.
//!
//! Closed loop: one request in flight; the next leaves when its reply came or after a time-out. A reply that comes
//! after its time-out is counted as late and never taken for the answer to a later request. Open loop: requests leave
//! by plan whatever happens to the replies, which a second thread reads; latency counts from the planned time, and
//! next to it from the time that the request really left. The sent times are kept in a ring of [`RING`] entries: of
//! more requests in flight only the first kind of latency is known.

use crate::datagram::{Arrivals, Burst, Carrier, Errors, Form, Known, Sent, Through};
use crate::end::LINGER_NS;
use crate::intervals::Intervals;
use crate::schedule::{self, Plan, Share};
use crate::udp_stream::{note_error, send_planned};
use linux::sys::clock;
use linux::sys::socket::{self, Direction};
use linux::sys::udp::{ReceiveBatch, Wait};
use record::spec::TestSpec;
use record::traffic::EndReport;
use record::{Histogram, Problem, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::Duration;
use wire::message::Flags;

/// Requests in flight whose sent times are remembered.
pub const RING: usize = 1 << 16;

/// When each of the last requests left.
pub struct SentTimes {
    times: Box<[AtomicU64]>,
    /// Requests that left.
    many: AtomicU64,
    /// No more will leave.
    done: AtomicBool,
}

impl SentTimes {
    /// None yet.
    pub fn new() -> Self {
        let times = (0..RING).map(|_| AtomicU64::new(0)).collect();
        SentTimes { times, many: AtomicU64::new(0), done: AtomicBool::new(false) }
    }

    /// Request `number` leaves at `at_ns`.
    #[inline]
    pub fn leaves(&self, number: u64, at_ns: u64) {
        self.times[number as usize % RING].store(at_ns, Relaxed);
        self.many.store(number + 1, Release);
    }

    /// When request `number` left, if that is still known.
    #[inline]
    pub fn of(&self, number: u64) -> Option<u64> {
        let time = self.times[number as usize % RING].load(Relaxed);
        let many = self.many.load(Acquire);
        (number < many && many - number < RING as u64 && time != 0).then_some(time)
    }

    /// No more will leave.
    pub fn finish(&self) {
        self.done.store(true, Release);
    }

    /// True when no more will leave.
    pub fn is_done(&self) -> bool {
        self.done.load(Acquire)
    }
}

impl Default for SentTimes {
    fn default() -> Self {
        Self::new()
    }
}

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
    report.notes.extend(crate::end::receive_errors_note(&loops.errors));
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
    let _ = set_timeout(carrier, crate::end::POLL);
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
    report.notes.extend(crate::end::receive_errors_note(&replies.errors));
    report.schedule = Some(schedule);
    report.latency_from_send = replies.from_send.summary();
    replies.arrivals.report(&mut report);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_times_are_known_while_they_are_in_the_ring() {
        let times = SentTimes::new();
        assert_eq!(times.of(0), None);
        for number in 0..RING as u64 + 10 {
            times.leaves(number, number + 1);
        }
        assert_eq!(times.of(5), None, "overwritten");
        assert_eq!(times.of(RING as u64 + 9), Some(RING as u64 + 10));
        assert_eq!(times.of(RING as u64 + 10), None, "not yet");
    }
}
