//! Bulk bytes over TCP, one direction.
//!
//! One plain blocking thread per connection and nothing in the loop but the call, the counters and one look at the
//! clock: at 128 KiB per call the clock costs less than a thousandth. The receiver's count is the result; it ends when
//! the sender closes. A second thread reads `TCP_INFO` every 50 ms.

use crate::protocol::setup::Setup;
use crate::traffic::arrivals::Received;
use crate::traffic::datagram::SenderCounts;
use crate::traffic::end::{DRAIN_NS, End, Ready, prepared};
use crate::traffic::intervals::Intervals;
use crate::traffic::samples::with_samples;
use crate::traffic::schedule::{self, OpenLoopPlan, Share};
use crate::traffic::tcp::{self, Connections, write_whole};
use crate::traffic::threads::joined;
use linux::sys::clock;
use record::spec::TestSpec;
use record::traffic::{EndReport, Schedule};
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Bytes per `read`, and per `write` when the test does not say.
const BUFFER: usize = TestSpec::WRITE as usize;

/// How long a sender waits until the receiver has everything, in nanoseconds.
const DELIVERY_NS: u64 = 2_000_000_000;

/// The end that sends.
struct Sender {
    connections: Connections,
    spec: TestSpec,
    buffer: Vec<u8>,
}

/// Makes the connections.
pub fn sender(setup: &Setup) -> Ready {
    let spec = setup.spec.clone();
    let size = spec.message_size() as usize;
    let method = match spec.streams {
        1 => format!("write {size}"),
        many => format!("write {size}, {many} connections"),
    };
    let (connections, prepared) = tcp::connect(setup, method)?;
    // Not zeros: nothing on the path may find them easy to compress.
    let buffer = (0..size as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    Ok((prepared, Box::new(Sender { connections, spec, buffer })))
}

/// What one connection of the sender did.
struct Pushed {
    sent: SenderCounts,
    intervals: Intervals,
    plan: Option<OpenLoopPlan>,
    cpu_ns: u64,
}

/// Writes until the end of the test, then tells the receiver that it was all.
fn push(
    mut stream: &TcpStream,
    buffer: &[u8],
    spec: &TestSpec,
    start_ns: u64,
    share: Share,
    stop: &AtomicBool,
) -> Pushed {
    clock::precise_timers();
    let cpu = clock::thread_cpu_ns();
    let plan = OpenLoopPlan::of(spec, start_ns, buffer.len() as u32, share);
    let total = match &plan {
        Some(plan) => plan.total(),
        None => share.count(spec.count).unwrap_or(u64::MAX),
    };
    let end = schedule::deadline_of(spec, start_ns);
    let mut intervals = Intervals::for_duration(spec.duration_ms);
    intervals.begin(start_ns);
    let mut sent = SenderCounts { begun_ns: start_ns, ..SenderCounts::default() };
    let mut now = clock::monotonic_ns();
    while sent.attempted < total && now < end && !stop.load(Relaxed) {
        if let Some(plan) = &plan {
            let at = plan.planned(sent.attempted);
            match schedule::wait_until(at, stop) {
                Some(time) if !plan.is_over(time) => sent.lateness.record(time - at),
                _ => break,
            }
        }
        sent.attempted += 1;
        let goes_on = || clock::monotonic_ns() < end && !stop.load(Relaxed);
        let written = write_whole(&mut stream, buffer, goes_on);
        now = clock::monotonic_ns();
        let (whole, calls, bytes) = match &written {
            Ok(calls) => (1, *calls, buffer.len() as u64),
            Err((_, part)) => (0, 1, *part as u64),
        };
        sent.calls += calls;
        sent.sent += whole;
        sent.bytes += bytes;
        sent.ended_ns = now;
        intervals.add(now, whole, bytes);
        if let Err((error, _)) = written {
            if error.kind() == io::ErrorKind::WouldBlock {
                sent.attempted -= 1; // cut off by the end of the test, not refused
            } else {
                sent.errors.add(&error, 1);
            }
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    Pushed { sent, intervals, plan, cpu_ns: clock::thread_cpu_ns() - cpu }
}

/// Waits until the receiver has closed its side: then it has read everything.
fn wait_delivered(mut stream: &TcpStream, stop: &AtomicBool) -> bool {
    let until = clock::monotonic_ns() + DELIVERY_NS;
    let mut bytes = [0; 256];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
        if stop.load(Relaxed) || clock::monotonic_ns() >= until {
            return false;
        }
    }
}

/// All connections of the sender as one report.
fn merge_pushed(pushed: Vec<Pushed>, start_ns: u64, spec: &TestSpec) -> EndReport {
    let mut report = EndReport::default();
    let (mut sent, mut schedule) = (SenderCounts::default(), Schedule::default());
    let mut intervals = Intervals::for_duration(spec.duration_ms);
    intervals.begin(start_ns);
    for one in pushed {
        let own = one.sent.schedule(one.plan.as_ref());
        schedule.achieved_per_second += own.achieved_per_second;
        schedule.generator_limited |= own.generator_limited;
        if let Some(requested) = own.requested_per_second {
            *schedule.requested_per_second.get_or_insert(0.0) += requested;
        }
        sent.merge(&one.sent);
        intervals.merge(one.intervals);
        report.thread_cpu_ns += one.cpu_ns;
    }
    schedule.lateness = sent.lateness.summary();
    sent.report(schedule, &mut report);
    report.intervals = intervals.finish();
    report
}

impl End for Sender {
    fn warm_up(&mut self) -> bool {
        self.connections.are_answered()
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        let start = clock::monotonic_ns();
        let Connections { streams, registry, .. } = &self.connections;
        let of = streams.len() as u32;
        let (spec, buffer) = (&self.spec, &self.buffer[..]);
        let ((mut report, undelivered), samples) = with_samples(registry, &AtomicU64::new(start), || {
            let pushed = std::thread::scope(|scope| {
                let pushers = (0..).zip(streams).map(|(index, stream)| {
                    scope.spawn(move || push(stream, buffer, spec, start, Share { index, of }, stop))
                });
                let pushers: Vec<_> = pushers.collect();
                pushers.into_iter().map(joined).collect()
            });
            let undelivered = streams.iter().filter(|stream| !wait_delivered(stream, stop)).count();
            (merge_pushed(pushed, start, spec), undelivered)
        });
        if undelivered > 0 {
            report.notes.push(format!(
                "{undelivered} of {of} connections were not read to their end within {} s of the last write",
                DELIVERY_NS / 1_000_000_000
            ));
        }
        report.tcp = samples;
        if let Some(first) = streams.first() {
            // The kernel tunes buffers while it sends; the record has what they grew to.
            report.settings = prepared(first, first.local_addr(), None, vec![]).settings;
        }
        report
    }
}

/// Listens.
pub fn receiver(setup: &Setup) -> Ready {
    tcp::listen(setup, format!("read {BUFFER}"), pull, merge_pulled)
}

/// Reads until the sender closes, or what is left when the test is stopped.
fn pull(mut stream: TcpStream, spec: &TestSpec, first_ns: &AtomicU64, stop: &AtomicBool) -> Received {
    let mut buffer = vec![0; BUFFER];
    let mut pulled = Received::new(spec.duration_ms);
    let mut give_up = u64::MAX;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(many) => {
                let now = clock::monotonic_ns();
                if pulled.messages == 0 {
                    let first = first_ns
                        .compare_exchange(0, now, AcqRel, Acquire)
                        .map_or_else(|first| first, |_| now);
                    pulled.intervals.begin(first);
                }
                pulled.read_at(now);
                pulled.count(now, 1, many as u64);
                pulled.intervals.add(now, 1, many as u64);
                if now > give_up {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && pulled.is_late => break,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                pulled.errors.add(&error, 1);
                break;
            }
        }
        if !pulled.is_late && stop.load(Relaxed) {
            pulled.is_late = true;
            give_up = clock::monotonic_ns() + DRAIN_NS;
            let _ = stream.set_nonblocking(true);
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    pulled.end();
    pulled
}

/// All connections of the receiver as one report.
fn merge_pulled(pulled: Vec<Received>, first_ns: u64, spec: &TestSpec) -> EndReport {
    let mut all = Received::new(spec.duration_ms);
    all.intervals.begin(first_ns);
    pulled.into_iter().for_each(|one| all.merge(one));
    let mut report = EndReport::default();
    all.report(&mut report);
    report
}
