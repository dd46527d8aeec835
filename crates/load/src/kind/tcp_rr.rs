//! One request, one response, over one TCP connection.
//!
//! Closed loop: blocking send, blocking receive, two looks at the clock. Open loop: requests leave by plan and wait in
//! line behind each other (TCP keeps the order, so the n-th response answers the n-th request); a second thread reads
//! the responses. Latency counts from the planned time, and next to it from the time of the `write`.

use crate::protocol::setup::Setup;
use crate::traffic::datagram::Sent;
use crate::traffic::end::End;
use crate::traffic::intervals::Intervals;
use crate::traffic::samples::{Registry, with_samples};
use crate::traffic::schedule::{self, Plan, Share};
use crate::traffic::sent_times::SentTimes;
use crate::traffic::tcp::{self, Listener, read_whole, write_whole};
use linux::sys::clock;
use record::spec::TestSpec;
use record::traffic::{EndReport, Settings};
use record::{Histogram, Result};
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// How long the last responses may take, in nanoseconds: longer than the smallest retransmission time-out.
const LAST_NS: u64 = 1_000_000_000;

/// Bytes per `read` of many small messages.
const BUFFER: usize = 64 * 1024;

/// The end that asks.
pub struct Sender {
    stream: TcpStream,
    registry: Registry,
    spec: TestSpec,
    token: u8,
    settings: Settings,
}

impl Sender {
    /// Connects.
    pub fn prepare(setup: &Setup) -> Result<Box<dyn End>> {
        let (mut streams, mut settings) = tcp::connect(setup)?;
        let stream = streams.remove(0);
        let registry = Registry::new(1);
        registry.add(0, &stream);
        settings.method = format!("write {}, read {}", setup.spec.size, setup.spec.response_size());
        let spec = setup.spec.clone();
        Ok(Box::new(Sender { stream, registry, spec, token: setup.token, settings }))
    }
}

/// What the sender knows about the responses.
struct Responses {
    many: u64,
    bytes: u64,
    latency: Histogram,
    from_send: Histogram,
    intervals: Intervals,
    ended_ns: u64,
    longest_gap_ns: u64,
    error: Option<io::Error>,
    cpu_ns: u64,
}

impl Responses {
    fn new(spec: &TestSpec) -> Self {
        Responses {
            many: 0,
            bytes: 0,
            latency: Histogram::new(),
            from_send: Histogram::new(),
            intervals: Intervals::for_duration(spec.duration_ms),
            ended_ns: 0,
            longest_gap_ns: 0,
            error: None,
            cpu_ns: 0,
        }
    }

    #[inline]
    fn came(&mut self, now: u64, size: usize, latency_ns: u64) {
        if self.many > 0 {
            self.longest_gap_ns = self.longest_gap_ns.max(now - self.ended_ns);
        }
        self.many += 1;
        self.bytes += size as u64;
        self.ended_ns = now;
        self.latency.record(latency_ns);
        self.intervals.add_timed(now, size as u64, latency_ns);
    }

    fn report(self, report: &mut EndReport) {
        report.received = self.many;
        report.unique = self.many;
        report.received_bytes = self.bytes;
        report.latency = self.latency.summary();
        report.latency_from_send = self.from_send.summary();
        report.longest_read_gap_ns = self.longest_gap_ns;
        report.intervals = self.intervals.finish();
        report.notes.extend(self.error.map(|error| format!("the connection failed while reading: {error}")));
    }
}

fn closed_loop(mut stream: &TcpStream, spec: &TestSpec, stop: &AtomicBool) -> EndReport {
    let request = vec![0x5a; spec.size as usize];
    let mut response = vec![0; spec.response_size()];
    let mut responses = Responses::new(spec);
    let cpu = clock::thread_cpu_ns();
    let mut sent = Sent { begun_ns: clock::monotonic_ns(), ..Sent::default() };
    let end = schedule::deadline_of(spec, sent.begun_ns);
    let total = spec.count.unwrap_or(u64::MAX);
    let mut now = sent.begun_ns;
    while sent.attempted < total && now < end && !stop.load(Relaxed) {
        let goes_on = || clock::monotonic_ns() < end.saturating_add(LAST_NS) && !stop.load(Relaxed);
        let begun = clock::monotonic_ns();
        sent.attempted += 1;
        match write_whole(&mut stream, &request, goes_on) {
            Ok(calls) => sent.calls += calls,
            Err((error, _)) => {
                sent.errors.add(&error, 1);
                break;
            }
        }
        sent.sent += 1;
        sent.bytes += request.len() as u64;
        sent.ended_ns = begun;
        if let Err(error) = read_whole(&mut stream, &mut response, goes_on) {
            responses.error = Some(error);
            break;
        }
        now = clock::monotonic_ns();
        responses.came(now, response.len(), now - begun);
    }
    let mut report = EndReport { thread_cpu_ns: clock::thread_cpu_ns() - cpu, ..EndReport::default() };
    sent.report(&mut report);
    report.schedule = Some(schedule::without_plan(sent.attempted, sent.begun_ns, sent.ended_ns));
    responses.report(&mut report);
    report
}

/// Reads responses until every request has one, or for a while after the last request.
fn read_responses(
    mut stream: &TcpStream,
    spec: &TestSpec,
    plan: &Plan,
    times: &SentTimes,
    sent: &AtomicU64,
) -> Responses {
    let size = spec.response_size();
    let mut buffer = vec![0; BUFFER.max(size)];
    let mut responses = Responses::new(spec);
    let (mut have, mut give_up) = (0, u64::MAX);
    let cpu = clock::thread_cpu_ns();
    loop {
        let read = stream.read(&mut buffer);
        let now = clock::monotonic_ns();
        match read {
            Ok(0) => responses.error = Some(io::ErrorKind::UnexpectedEof.into()),
            Ok(many) => {
                have += many;
                while have >= size {
                    have -= size;
                    let number = responses.many;
                    responses.came(now, size, now.saturating_sub(plan.planned(number)));
                    if let Some(left) = times.of(number) {
                        responses.from_send.record(now.saturating_sub(left));
                    }
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => responses.error = Some(error),
        }
        if times.is_done() {
            give_up = give_up.min(now + LAST_NS);
        }
        let complete = times.is_done() && responses.many >= sent.load(Acquire);
        if complete || now >= give_up || responses.error.is_some() {
            responses.cpu_ns = clock::thread_cpu_ns() - cpu;
            return responses;
        }
    }
}

/// Writes requests by plan; what is due leaves in one `write`, at most a batch.
fn write_requests(
    mut stream: &TcpStream,
    spec: &TestSpec,
    plan: &Plan,
    times: &SentTimes,
    stop: &AtomicBool,
) -> (Sent, Histogram) {
    let size = spec.size as usize;
    let batch = (BUFFER / size).clamp(1, spec.batch.max(1) as usize) as u64;
    let requests = vec![0x5a; batch as usize * size];
    let (mut sent, mut lateness) = (Sent::default(), Histogram::new());
    while sent.attempted < plan.total() {
        let next = sent.attempted;
        let Some(now) = schedule::wait_until(plan.planned(next), stop) else { break };
        if plan.is_over(now) {
            break;
        }
        let until = plan.due(now).clamp(next + 1, next + batch);
        for number in next..until {
            lateness.record(now - plan.planned(number).min(now));
            times.leaves(number, now);
        }
        sent.attempted = until;
        sent.begun_ns = if sent.begun_ns == 0 { now } else { sent.begun_ns };
        sent.ended_ns = now;
        let goes_on = || !plan.is_over(clock::monotonic_ns()) && !stop.load(Relaxed);
        let bytes = (until - next) as usize * size;
        match write_whole(&mut stream, &requests[..bytes], goes_on) {
            Ok(calls) => {
                sent.calls += calls;
                sent.sent = until;
                sent.bytes += bytes as u64;
            }
            Err((error, part)) => {
                sent.calls += 1;
                sent.bytes += part as u64;
                sent.sent += (part / size) as u64;
                sent.errors.add(&error, until - next - (part / size) as u64);
                break;
            }
        }
    }
    (sent, lateness)
}

fn open_loop(stream: &TcpStream, spec: &TestSpec, plan: &Plan, stop: &AtomicBool) -> EndReport {
    let (times, accepted) = (SentTimes::new(), AtomicU64::new(u64::MAX));
    let cpu = clock::thread_cpu_ns();
    let (sent, lateness, responses) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_responses(stream, spec, plan, &times, &accepted));
        let (sent, lateness) = write_requests(stream, spec, plan, &times, stop);
        accepted.store(sent.sent, Release);
        times.finish();
        (sent, lateness, reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let mut report = EndReport::default();
    sent.report(&mut report);
    report.thread_cpu_ns = clock::thread_cpu_ns() - cpu + responses.cpu_ns;
    let schedule = plan.outcome(sent.attempted, sent.begun_ns, sent.ended_ns, &lateness);
    report.notes.extend(schedule::lateness_note(schedule.lateness.as_ref()));
    report.schedule = Some(schedule);
    responses.report(&mut report);
    report
}

impl End for Sender {
    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn ports(&self) -> Vec<u16> {
        self.stream.local_addr().map(|address| address.port()).into_iter().collect()
    }

    fn warm_up(&mut self) -> bool {
        tcp::are_answered(std::slice::from_ref(&self.stream), self.token)
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        clock::precise_timers();
        let start = clock::monotonic_ns();
        let first = AtomicU64::new(start);
        let (mut report, samples) = with_samples(&self.registry, &first, || {
            match Plan::of(&self.spec, start, self.spec.size, Share::ALL) {
                Some(plan) => open_loop(&self.stream, &self.spec, &plan, stop),
                None => closed_loop(&self.stream, &self.spec, stop),
            }
        });
        report.tcp = samples;
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        report
    }
}

/// The end that answers.
pub struct Receiver {
    listener: Listener,
    registry: Registry,
    spec: TestSpec,
}

impl Receiver {
    /// Listens.
    pub fn prepare(setup: &Setup) -> Result<Box<dyn End>> {
        let mut listener = Listener::open(setup)?;
        listener.settings.method = format!("read {}, write {}", setup.spec.size, setup.spec.response_size());
        Ok(Box::new(Receiver { listener, registry: Registry::new(1), spec: setup.spec.clone() }))
    }
}

/// Answers requests until the sender closes or the test is stopped.
fn answer(mut stream: TcpStream, spec: &TestSpec, first_ns: &AtomicU64, stop: &AtomicBool) -> EndReport {
    let (request, response) = (spec.size as usize, spec.response_size());
    let mut buffer = vec![0; BUFFER.max(request)];
    let at_once = (BUFFER / response).max(1);
    let replies = vec![0xa5; at_once * response];
    let mut intervals = Intervals::for_duration(spec.duration_ms);
    let mut report = EndReport::default();
    let (mut have, mut cpu) = (0, 0);
    let goes_on = || !stop.load(Relaxed);
    'connection: loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(many) => {
                let now = clock::monotonic_ns();
                if report.begun_ns == 0 {
                    first_ns.store(now, Release);
                    (report.begun_ns, report.ended_ns, cpu) = (now, now, clock::thread_cpu_ns());
                }
                report.longest_read_gap_ns = report.longest_read_gap_ns.max(now - report.ended_ns);
                report.ended_ns = now;
                report.received_bytes += many as u64;
                have += many;
                let mut whole = have / request;
                have %= request;
                report.received += whole as u64;
                intervals.add(now, whole as u64, many as u64);
                while whole > 0 {
                    let now = whole.min(at_once);
                    match write_whole(&mut stream, &replies[..now * response], goes_on) {
                        Ok(calls) => report.send_calls += calls,
                        Err((error, _)) => {
                            report.notes.push(format!("the connection failed while answering: {error}"));
                            break 'connection;
                        }
                    }
                    report.responses += now as u64;
                    whole -= now;
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                report.notes.push(format!("the connection failed while reading: {error}"));
                break;
            }
        }
        if stop.load(Relaxed) {
            break;
        }
    }
    report.unique = report.received;
    report.intervals = intervals.finish();
    report.thread_cpu_ns = if report.begun_ns == 0 { 0 } else { clock::thread_cpu_ns() - cpu };
    report
}

impl End for Receiver {
    fn settings(&self) -> Settings {
        self.listener.settings.clone()
    }

    fn ports(&self) -> Vec<u16> {
        self.listener.ports()
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        let first = AtomicU64::new(0);
        let (spec, registry, listener, first_ns) = (&self.spec, &self.registry, &self.listener, &first);
        let ((mut answered, strangers), samples) = with_samples(registry, first_ns, || {
            std::thread::scope(|scope| {
                listener.serve(scope, registry, stop, move |stream, _| answer(stream, spec, first_ns, stop))
            })
        });
        let mut report = answered.pop().unwrap_or_default();
        report.foreign = strangers;
        report.tcp = samples;
        report
    }
}
