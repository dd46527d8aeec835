//! Bulk bytes over TCP, one direction.
//!
//! One plain blocking thread per connection and nothing in the loop but the call, the counters and one look at the
//! clock: at 128 KiB per call the clock costs less than a thousandth. The receiver's count is the result; it ends when
//! the sender closes. A second thread reads `TCP_INFO` every 50 ms.

use crate::protocol::setup::Setup;
use crate::traffic::arrivals::Received;
use crate::traffic::end::{DRAIN_NS, Ready, prepared};
use crate::traffic::paced::{self, Paced};
use crate::traffic::schedule::{Ending, Running, Share};
use crate::traffic::tcp::{self, Writes};
use crate::traffic::threads::joined;
use linux::sys::clock;
use record::spec::TestSpec;
use record::traffic::EndReport;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};

/// Bytes per `read`, and per `write` when the test does not say.
const BUFFER: usize = TestSpec::WRITE as usize;

/// How long a sender waits until the receiver has everything, in nanoseconds.
const DELIVERY_NS: u64 = 2_000_000_000;

/// Makes the connections.
pub fn sender(setup: &Setup) -> Ready {
    let spec = &setup.spec;
    let size = spec.message_size() as usize;
    let method = match spec.streams {
        1 => format!("write {size}"),
        many => format!("write {size}, {many} connections"),
    };
    // Not zeros: nothing on the path may find them easy to compress.
    let buffer: Vec<u8> = (0..size as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    tcp::connect(setup, method, move |streams, test| push_all(streams, &buffer, test))
}

/// Writes on every connection until the end of the test, and waits until all was read.
fn push_all(streams: &[TcpStream], buffer: &[u8], test: Running<'_>) -> EndReport {
    let of = streams.len() as u32;
    let pushed: Vec<Paced> = std::thread::scope(|scope| {
        let pushers = (0..)
            .zip(streams)
            .map(|(index, stream)| scope.spawn(move || push(stream, buffer, test, Share { index, of })));
        let pushers: Vec<_> = pushers.collect();
        pushers.into_iter().map(joined).collect()
    });
    let undelivered = streams.iter().filter(|stream| !is_delivered(stream, test.stop)).count();
    let mut report = paced::report(pushed);
    if undelivered > 0 {
        report.notes.push(format!(
            "{undelivered} of {of} connections were not read to their end within {} s of the last write",
            DELIVERY_NS / 1_000_000_000
        ));
    }
    if let Some(first) = streams.first() {
        // The kernel tunes buffers while it sends; the record has what they grew to.
        report.settings = prepared(first, first.local_addr(), None, vec![]).settings;
    }
    report
}

/// Writes until the end of the test, then tells the receiver that it was all.
fn push(stream: &TcpStream, buffer: &[u8], test: Running<'_>, share: Share) -> Paced {
    let end = test.deadline_ns();
    let goes_on = || clock::monotonic_ns() < end && !test.stop.is_over();
    let mut out = Writes { stream, bytes: buffer, size: buffer.len(), goes_on, failed: false };
    let pushed = paced::send_share(&mut out, test, share, |_, _| {});
    let _ = stream.shutdown(Shutdown::Write);
    pushed
}

/// Waits until the receiver has closed its side: then it has read everything.
fn is_delivered(stream: &TcpStream, stop: &Ending) -> bool {
    let until = clock::monotonic_ns() + DELIVERY_NS;
    tcp::read_all(stream, 256, |now, _| Ok(now < until && !stop.is_stopped())).unwrap_or(false)
}

/// Listens.
pub fn receiver(setup: &Setup) -> Ready {
    tcp::listen(setup, format!("read {BUFFER}"), pull, merge_pulled)
}

/// Reads until the sender closes, or what is left when the test is stopped.
fn pull(stream: TcpStream, spec: &TestSpec, first_ns: &AtomicU64, stop: &Ending) -> Received {
    let mut pulled = Received::new(spec.duration_ms);
    let mut give_up = u64::MAX;
    let read = tcp::read_all(&stream, BUFFER, |now, many| {
        if many > 0 {
            if pulled.messages == 0 {
                let first = first_ns.compare_exchange(0, now, AcqRel, Acquire);
                pulled.intervals.begin(first.map_or_else(|first| first, |_| now));
            }
            pulled.read_at(now);
            pulled.count(now, 1, many as u64);
            pulled.intervals.add(now, 1, many as u64);
        }
        if pulled.is_late {
            return Ok(many > 0 && now <= give_up);
        }
        if stop.is_stopped() {
            pulled.is_late = true;
            give_up = now + DRAIN_NS;
            let _ = stream.set_nonblocking(true);
        }
        Ok(true)
    });
    if let Err(error) = read {
        pulled.errors.add(&error, 1);
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
