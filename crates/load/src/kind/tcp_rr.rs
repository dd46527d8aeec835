//! One request, one response, over one TCP connection.
//!
//! Closed loop: blocking send, blocking receive, two looks at the clock. Open loop: requests leave by plan and wait in
//! line behind each other (TCP keeps the order, so the n-th response answers the n-th request); a second thread reads
//! the responses. Latency counts from the planned time, and next to it from the time of the `write`.

use crate::protocol::setup::Setup;
use crate::traffic::arrivals::Received;
use crate::traffic::datagram::{Outgoing, SenderCounts};
use crate::traffic::end::{End, Ready};
use crate::traffic::paced;
use crate::traffic::samples::with_samples;
use crate::traffic::schedule::{self, OpenLoopPlan, Share};
use crate::traffic::sent_times::SentTimes;
use crate::traffic::tcp::{self, Connections, read_whole, write_whole};
use linux::sys::clock;
use record::spec::TestSpec;
use record::traffic::EndReport;
use std::io::{self, Read};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::Release};

/// How long the last responses may take, in nanoseconds: longer than the smallest retransmission time-out.
const LAST_NS: u64 = 1_000_000_000;

/// Bytes per `read` of many small messages.
const BUFFER: usize = 64 * 1024;

/// The end that asks.
struct Sender {
    connections: Connections,
    spec: TestSpec,
}

/// Connects.
pub fn sender(setup: &Setup) -> Ready {
    let method = format!("write {}, read {}", setup.spec.size, setup.spec.response_size());
    let (connections, prepared) = tcp::connect(setup, method)?;
    Ok((prepared, Box::new(Sender { connections, spec: setup.spec.clone() })))
}

/// Requests as they leave: those of a burst in one `write`.
struct Requests<'a, F> {
    stream: &'a TcpStream,
    bytes: Vec<u8>,
    size: usize,
    /// False when a `write` that waits is to be given up.
    goes_on: F,
    failed: bool,
}

impl<F: Fn() -> bool> Outgoing for Requests<'_, F> {
    fn capacity(&self) -> u64 {
        (self.bytes.len() / self.size) as u64
    }

    fn send(&mut self, numbers: Range<u64>, _planned: impl Fn(u64) -> u64, sent: &mut SenderCounts) {
        let many = numbers.end - numbers.start;
        let bytes = many as usize * self.size;
        sent.attempted = numbers.end;
        let (calls, part, error) = match write_whole(&mut self.stream, &self.bytes[..bytes], &self.goes_on) {
            Ok(calls) => (calls, bytes, None),
            Err((error, part)) => (1, part, Some(error)),
        };
        let whole = (part / self.size) as u64;
        sent.calls += calls;
        sent.bytes += part as u64;
        sent.sent += whole;
        if let Some(error) = error {
            sent.errors.add(&error, many - whole);
            self.failed = true;
        }
    }

    fn is_closed(&self) -> bool {
        self.failed
    }
}

/// What came, and why no more could be read.
type Responses = (Received, Option<io::Error>);

/// Writes the receiving half of a report.
fn report_responses((received, error): Responses, report: &mut EndReport) {
    received.report(report);
    report.notes.extend(error.map(|error| format!("the connection failed while reading: {error}")));
}

fn closed_loop(mut stream: &TcpStream, spec: &TestSpec, stop: &AtomicBool) -> EndReport {
    let (size, bytes) = (spec.size as usize, vec![0x5a; spec.size as usize]);
    let mut response = vec![0; spec.response_size()];
    let mut responses: Responses = (Received::new(spec.duration_ms), None);
    let cpu = clock::thread_cpu_ns();
    let mut sent = SenderCounts { begun_ns: clock::monotonic_ns(), ..SenderCounts::default() };
    let end = schedule::deadline_of(spec, sent.begun_ns);
    let total = spec.count.unwrap_or(u64::MAX);
    let goes_on = || clock::monotonic_ns() < end.saturating_add(LAST_NS) && !stop.load(Relaxed);
    let mut out = Requests { stream, bytes, size, goes_on, failed: false };
    let mut now = sent.begun_ns;
    while sent.attempted < total && now < end && !stop.load(Relaxed) {
        let begun = clock::monotonic_ns();
        let number = sent.attempted;
        out.send(number..number + 1, |_| begun, &mut sent);
        if out.failed {
            break;
        }
        sent.ended_ns = begun;
        if let Err(error) = read_whole(&mut stream, &mut response, goes_on) {
            responses.1 = Some(error);
            break;
        }
        now = clock::monotonic_ns();
        came(&mut responses.0, now, response.len(), now - begun);
    }
    let mut report = EndReport { thread_cpu_ns: clock::thread_cpu_ns() - cpu, ..EndReport::default() };
    sent.report(sent.schedule(None), &mut report);
    report_responses(responses, &mut report);
    report
}

/// Counts a response.
#[inline]
fn came(responses: &mut Received, now: u64, size: usize, latency_ns: u64) {
    responses.read_at(now);
    responses.count(now, 1, size as u64);
    responses.time(now, size as u64, latency_ns);
}

/// Reads responses until every request has one, or for a while after the last request.
fn read_responses(
    mut stream: &TcpStream,
    spec: &TestSpec,
    plan: &OpenLoopPlan,
    sent: &SentTimes,
) -> Responses {
    let size = spec.response_size();
    let mut buffer = vec![0; BUFFER.max(size)];
    let mut responses = Received::new(spec.duration_ms);
    let (mut have, mut give_up) = (0, u64::MAX);
    let cpu = clock::thread_cpu_ns();
    loop {
        let read = stream.read(&mut buffer);
        let now = clock::monotonic_ns();
        let error = match read {
            Ok(0) => Some(io::ErrorKind::UnexpectedEof.into()),
            Ok(many) => {
                have += many;
                while have >= size {
                    have -= size;
                    let number = responses.messages;
                    came(&mut responses, now, size, now.saturating_sub(plan.planned(number)));
                    if let Some(left) = sent.of(number) {
                        responses.from_send.record(now.saturating_sub(left));
                    }
                }
                None
            }
            Err(error) => Some(error).filter(|error| {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }),
        };
        if sent.is_over(responses.messages, now, LAST_NS, &mut give_up) || error.is_some() {
            responses.cpu_ns = clock::thread_cpu_ns() - cpu;
            return (responses, error);
        }
    }
}

fn open_loop(stream: &TcpStream, spec: &TestSpec, plan: &OpenLoopPlan, stop: &AtomicBool) -> EndReport {
    let size = spec.size as usize;
    let batch = (BUFFER / size).clamp(1, spec.batch.max(1) as usize);
    let goes_on = || !plan.is_over(clock::monotonic_ns()) && !stop.load(Relaxed);
    let mut out = Requests { stream, bytes: vec![0x5a; batch * size], size, goes_on, failed: false };
    let (mut report, responses) =
        paced::ask(&mut out, plan, stop, |sent| read_responses(stream, spec, plan, sent));
    report_responses(responses, &mut report);
    report
}

impl End for Sender {
    fn warm_up(&mut self) -> bool {
        self.connections.are_answered()
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        clock::precise_timers();
        let start = clock::monotonic_ns();
        let Connections { streams, registry, .. } = &self.connections;
        let stream = &streams[0];
        let (mut report, samples) =
            with_samples(registry, &AtomicU64::new(start), || {
                match OpenLoopPlan::of(&self.spec, start, self.spec.size, Share::ALL) {
                    Some(plan) => open_loop(stream, &self.spec, &plan, stop),
                    None => closed_loop(stream, &self.spec, stop),
                }
            });
        report.tcp = samples;
        let _ = stream.shutdown(std::net::Shutdown::Write);
        report
    }
}

/// Listens.
pub fn receiver(setup: &Setup) -> Ready {
    let method = format!("read {}, write {}", setup.spec.size, setup.spec.response_size());
    tcp::listen(setup, method, answer, |mut answered, _, _| answered.pop().unwrap_or_default())
}

/// Answers requests until the sender closes or the test is stopped.
fn answer(mut stream: TcpStream, spec: &TestSpec, first_ns: &AtomicU64, stop: &AtomicBool) -> EndReport {
    let (request, response) = (spec.size as usize, spec.response_size());
    let mut buffer = vec![0; BUFFER.max(request)];
    let at_once = (BUFFER / response).max(1);
    let replies = vec![0xa5; at_once * response];
    let (mut requests, mut report, mut have) = (Received::new(spec.duration_ms), EndReport::default(), 0);
    let goes_on = || !stop.load(Relaxed);
    let failed = 'connection: loop {
        match stream.read(&mut buffer) {
            Ok(0) => break None,
            Ok(many) => {
                let now = clock::monotonic_ns();
                if requests.begun_ns == 0 {
                    first_ns.store(now, Release);
                }
                have += many;
                let mut whole = have / request;
                have %= request;
                requests.read_at(now);
                requests.count(now, whole as u64, many as u64);
                requests.intervals.add(now, whole as u64, many as u64);
                while whole > 0 {
                    let now = whole.min(at_once);
                    match write_whole(&mut stream, &replies[..now * response], goes_on) {
                        Ok(calls) => report.send_calls += calls,
                        Err((error, _)) => break 'connection Some(("answering", error)),
                    }
                    report.responses += now as u64;
                    whole -= now;
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => break Some(("reading", error)),
        }
        if stop.load(Relaxed) {
            break None;
        }
    };
    requests.end();
    requests.report(&mut report);
    let note = failed.map(|(doing, error)| format!("the connection failed while {doing}: {error}"));
    report.notes.extend(note);
    report
}
