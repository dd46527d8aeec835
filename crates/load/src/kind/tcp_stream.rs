//! Bulk bytes over TCP, one direction.
//!
//! One plain blocking thread per connection and nothing in the loop but the call, the counters and one look at the
//! clock: at 128 KiB per call the clock costs less than a thousandth. The receiver's count is the result; it ends when
//! the sender closes. A second thread reads `TCP_INFO` every 50 ms.

use crate::protocol::setup::Setup;
use crate::traffic::datagram::{Errors, Sent};
use crate::traffic::end::{DRAIN_NS, End, receive_errors_note, settings_of};
use crate::traffic::intervals::Intervals;
use crate::traffic::samples::{Registry, with_samples};
use crate::traffic::schedule::{self, Plan, Share};
use crate::traffic::tcp::{self, Listener, write_whole};
use linux::sys::clock;
use record::spec::TestSpec;
use record::traffic::{EndReport, Schedule, Settings};
use record::{Histogram, Result};
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Bytes per `read`, and per `write` when the test does not say.
const BUFFER: usize = TestSpec::WRITE as usize;

/// How long a sender waits until the receiver has everything, in nanoseconds.
const DELIVERY_NS: u64 = 2_000_000_000;

/// The end that sends.
pub struct Sender {
    streams: Vec<TcpStream>,
    registry: Registry,
    spec: TestSpec,
    token: u8,
    buffer: Vec<u8>,
    settings: Settings,
}

impl Sender {
    /// Makes the connections.
    pub fn prepare(setup: &Setup) -> Result<Box<dyn End>> {
        let spec = setup.spec.clone();
        let (streams, mut settings) = tcp::connect(setup)?;
        let registry = Registry::new(spec.streams);
        for (index, stream) in (0..).zip(&streams) {
            registry.add(index, stream);
        }
        let size = spec.message_size() as usize;
        settings.method = match spec.streams {
            1 => format!("write {size}"),
            many => format!("write {size}, {many} connections"),
        };
        // Not zeros: nothing on the path may find them easy to compress.
        let buffer = (0..size as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        Ok(Box::new(Sender { streams, registry, spec, token: setup.token, buffer, settings }))
    }
}

/// What one connection of the sender did.
struct Pushed {
    sent: Sent,
    lateness: Histogram,
    intervals: Intervals,
    plan: Option<Plan>,
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
    let plan = Plan::of(spec, start_ns, buffer.len() as u32, share);
    let total = match &plan {
        Some(plan) => plan.total(),
        None => share.count(spec.count).unwrap_or(u64::MAX),
    };
    let end = schedule::deadline_of(spec, start_ns);
    let mut intervals = Intervals::for_duration(spec.duration_ms);
    intervals.begin(start_ns);
    let (mut sent, mut lateness) = (Sent { begun_ns: start_ns, ..Sent::default() }, Histogram::new());
    let mut now = clock::monotonic_ns();
    while sent.attempted < total && now < end && !stop.load(Relaxed) {
        if let Some(plan) = &plan {
            let at = plan.planned(sent.attempted);
            match schedule::wait_until(at, stop) {
                Some(time) if !plan.is_over(time) => lateness.record(time - at),
                _ => break,
            }
        }
        sent.attempted += 1;
        let goes_on = || clock::monotonic_ns() < end && !stop.load(Relaxed);
        let written = write_whole(&mut stream, buffer, goes_on);
        now = clock::monotonic_ns();
        match written {
            Ok(calls) => {
                sent.calls += calls;
                sent.sent += 1;
                sent.bytes += buffer.len() as u64;
                sent.ended_ns = now;
                intervals.add(now, 1, buffer.len() as u64);
            }
            Err((error, part)) => {
                sent.calls += 1;
                sent.bytes += part as u64;
                sent.ended_ns = now;
                intervals.add(now, 0, part as u64);
                if error.kind() == io::ErrorKind::WouldBlock {
                    sent.attempted -= 1; // cut off by the end of the test, not refused
                } else {
                    sent.errors.add(&error, 1);
                }
                break;
            }
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    Pushed { sent, lateness, intervals, plan, cpu_ns: clock::thread_cpu_ns() - cpu }
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
fn merge_pushed(pushed: Vec<Pushed>) -> EndReport {
    let mut report = EndReport::default();
    let (mut sent, mut lateness) = (Sent::default(), Histogram::new());
    let mut intervals: Option<Intervals> = None;
    let mut schedule = Schedule::default();
    for one in pushed {
        sent.attempted += one.sent.attempted;
        sent.sent += one.sent.sent;
        sent.bytes += one.sent.bytes;
        sent.calls += one.sent.calls;
        sent.errors.merge(&one.sent.errors);
        sent.begun_ns = one.sent.begun_ns;
        sent.ended_ns = sent.ended_ns.max(one.sent.ended_ns);
        lateness.merge(&one.lateness);
        report.thread_cpu_ns += one.cpu_ns;
        let own = match &one.plan {
            Some(plan) => {
                plan.outcome(one.sent.attempted, one.sent.begun_ns, one.sent.ended_ns, &one.lateness)
            }
            None => schedule::without_plan(one.sent.attempted, one.sent.begun_ns, one.sent.ended_ns),
        };
        schedule.achieved_per_second += own.achieved_per_second;
        schedule.generator_limited |= own.generator_limited;
        if let Some(requested) = own.requested_per_second {
            *schedule.requested_per_second.get_or_insert(0.0) += requested;
        }
        match &mut intervals {
            Some(all) => all.merge(one.intervals),
            None => intervals = Some(one.intervals),
        }
    }
    schedule.lateness = lateness.summary();
    report.notes.extend(schedule::lateness_note(schedule.lateness.as_ref()));
    sent.report(&mut report);
    report.schedule = Some(schedule);
    report.intervals = intervals.map(Intervals::finish).unwrap_or_default();
    report
}

impl End for Sender {
    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn ports(&self) -> Vec<u16> {
        self.streams.iter().filter_map(|stream| Some(stream.local_addr().ok()?.port())).collect()
    }

    fn warm_up(&mut self) -> bool {
        tcp::are_answered(&self.streams, self.token)
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        let start = clock::monotonic_ns();
        let of = self.streams.len() as u32;
        let (spec, buffer) = (&self.spec, &self.buffer[..]);
        let first = AtomicU64::new(start);
        let ((mut report, delivered), samples) = with_samples(&self.registry, &first, || {
            let pushed = std::thread::scope(|scope| {
                let pushers: Vec<_> = (0..)
                    .zip(&self.streams)
                    .map(|(index, stream)| {
                        scope.spawn(move || push(stream, buffer, spec, start, Share { index, of }, stop))
                    })
                    .collect();
                pushers
                    .into_iter()
                    .map(|pusher| pusher.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
                    .collect()
            });
            (merge_pushed(pushed), self.streams.iter().filter(|stream| !wait_delivered(stream, stop)).count())
        });
        if delivered > 0 {
            report.notes.push(format!(
                "{delivered} of {of} connections were not read to their end within {} s of the last write",
                DELIVERY_NS / 1_000_000_000
            ));
        }
        report.tcp = samples;
        let now =
            self.streams.first().map(|stream| settings_of(stream, stream.local_addr(), stream.peer_addr()));
        if let Some(now) = now {
            // The kernel tunes buffers while it sends; the record has what they grew to.
            report.settings = Settings {
                send_buffer: now.send_buffer,
                receive_buffer: now.receive_buffer,
                ..self.settings.clone()
            };
        }
        report
    }
}

/// The end that receives.
pub struct Receiver {
    listener: Listener,
    registry: Registry,
    spec: TestSpec,
}

impl Receiver {
    /// Listens.
    pub fn prepare(setup: &Setup) -> Result<Box<dyn End>> {
        let mut listener = Listener::open(setup)?;
        listener.settings.method = format!("read {BUFFER}");
        let registry = Registry::new(setup.spec.streams);
        Ok(Box::new(Receiver { listener, registry, spec: setup.spec.clone() }))
    }
}

/// What one connection of the receiver saw.
struct Pulled {
    reads: u64,
    left: u64,
    bytes: u64,
    begun_ns: u64,
    ended_ns: u64,
    longest_gap_ns: u64,
    intervals: Intervals,
    errors: Errors,
    cpu_ns: u64,
}

/// Reads until the sender closes, or what is left when the test is stopped.
fn pull(mut stream: TcpStream, spec: &TestSpec, first_ns: &AtomicU64, stop: &AtomicBool) -> Pulled {
    let mut buffer = vec![0; BUFFER];
    let mut pulled = Pulled {
        reads: 0,
        left: 0,
        bytes: 0,
        begun_ns: 0,
        ended_ns: 0,
        longest_gap_ns: 0,
        intervals: Intervals::for_duration(spec.duration_ms),
        errors: Errors::default(),
        cpu_ns: 0,
    };
    let (mut cpu, mut is_late, mut give_up) = (0, false, u64::MAX);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(many) => {
                let now = clock::monotonic_ns();
                if pulled.reads == 0 {
                    let first =
                        first_ns.compare_exchange(0, now, AcqRel, Acquire).unwrap_or_else(|first| first);
                    pulled.intervals.begin(if first == 0 { now } else { first });
                    (pulled.begun_ns, pulled.ended_ns, cpu) = (now, now, clock::thread_cpu_ns());
                }
                pulled.longest_gap_ns = pulled.longest_gap_ns.max(now - pulled.ended_ns);
                pulled.reads += 1;
                pulled.left += u64::from(is_late);
                pulled.bytes += many as u64;
                pulled.ended_ns = now;
                pulled.intervals.add(now, 1, many as u64);
                if now > give_up {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_late => break,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                pulled.errors.add(&error, 1);
                break;
            }
        }
        if !is_late && stop.load(Relaxed) {
            is_late = true;
            give_up = clock::monotonic_ns() + DRAIN_NS;
            let _ = stream.set_nonblocking(true);
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    pulled.cpu_ns = if pulled.reads > 0 { clock::thread_cpu_ns() - cpu } else { 0 };
    pulled
}

/// All connections of the receiver as one report.
fn merge_pulled(pulled: Vec<Pulled>, first_ns: u64, spec: &TestSpec) -> EndReport {
    let mut report = EndReport::default();
    let mut intervals = Intervals::for_duration(spec.duration_ms);
    intervals.begin(first_ns);
    let mut errors = Errors::default();
    for one in pulled.into_iter().filter(|one| one.reads > 0 || one.errors.total() > 0) {
        errors.merge(&one.errors);
        if one.reads == 0 {
            continue;
        }
        report.received += one.reads;
        report.left_in_socket += one.left;
        report.received_bytes += one.bytes;
        report.begun_ns = if report.begun_ns == 0 { one.begun_ns } else { report.begun_ns.min(one.begun_ns) };
        report.ended_ns = report.ended_ns.max(one.ended_ns);
        report.longest_read_gap_ns = report.longest_read_gap_ns.max(one.longest_gap_ns);
        report.thread_cpu_ns += one.cpu_ns;
        intervals.merge(one.intervals);
    }
    report.unique = report.received;
    report.intervals = intervals.finish();
    report.notes.extend(receive_errors_note(&errors));
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
        let ((pulled, strangers), samples) = with_samples(registry, first_ns, || {
            std::thread::scope(|scope| {
                listener.serve(scope, registry, stop, move |stream, _| pull(stream, spec, first_ns, stop))
            })
        });
        let mut report = merge_pulled(pulled, first.load(Acquire), spec);
        report.foreign = strangers;
        report.tcp = samples;
        report
    }
}
