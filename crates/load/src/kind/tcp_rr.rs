//! One request, one response, over one TCP connection.
//!
//! Closed loop: blocking send, blocking receive, two looks at the clock. Open loop: requests leave by plan and wait in
//! line behind each other (TCP keeps the order, so the n-th response answers the n-th request); a second thread reads
//! the responses. Latency counts from the planned time, and next to it from the time of the `write`.

use crate::protocol::setup::Setup;
use crate::traffic::arrivals::Received;
use crate::traffic::datagram::{Outgoing, SenderCounts};
use crate::traffic::end::Ready;
use crate::traffic::paced;
use crate::traffic::schedule::{Ending, OpenLoopPlan, Running, Share};
use crate::traffic::sent_times::SentTimes;
use crate::traffic::tcp::{self, Writes, read_whole, write_whole};
use linux::sys::clock::{self, ThreadTime};
use record::problem::system_words;
use record::spec::TestSpec;
use record::traffic::EndReport;
use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Release};

/// How long the last responses may take, in nanoseconds: longer than the smallest retransmission time-out.
const LAST_NS: u64 = 1_000_000_000;

/// Bytes per `read` of many small messages.
const BUFFER: usize = 64 * 1024;

/// Connects.
pub fn sender(setup: &Setup) -> Ready {
    let method = format!("write {}, read {}", setup.spec.size, setup.spec.response_size());
    tcp::connect(setup, method, |streams, test| {
        match OpenLoopPlan::of(test.spec, test.start_ns, Share::ALL) {
            Some(plan) => open_loop(&streams[0], test, &plan),
            None => closed_loop(&streams[0], test),
        }
    })
}

/// What came, and why no more could be read.
type Responses = (Received, Option<io::Error>);

/// Writes the receiving half of a report.
fn report_responses((received, error): Responses, report: &mut EndReport) {
    received.report(report);
    report
        .notes
        .extend(error.map(|error| format!("the connection failed while reading: {}", system_words(&error))));
}

/// Requests of which each waits for the response to the one before.
struct OneByOne<'a, F> {
    requests: Writes<'a, F>,
    response: Vec<u8>,
    responses: Responses,
}

impl<F: Fn() -> bool> Outgoing for OneByOne<'_, F> {
    fn send(&mut self, numbers: Range<u64>, planned: impl Fn(u64) -> u64, sent: &mut SenderCounts) {
        let begun = planned(numbers.start);
        self.requests.send(numbers, planned, sent);
        if self.requests.failed {
            return;
        }
        match read_whole(&mut self.requests.stream, &mut self.response, &self.requests.goes_on) {
            Ok(()) => {
                let now = clock::monotonic_ns();
                sent.report.ended_ns = now;
                came(&mut self.responses.0, now, self.response.len(), now - begun);
            }
            Err(error) => self.responses.1 = Some(error),
        }
    }

    fn is_closed(&self) -> bool {
        self.responses.1.is_some() || self.requests.failed
    }
}

fn closed_loop(stream: &TcpStream, test: Running<'_>) -> EndReport {
    let Running { spec, stop, .. } = test;
    let bytes = vec![0x5a; spec.size as usize];
    let give_up = test.deadline_ns().saturating_add(LAST_NS);
    let goes_on = || clock::monotonic_ns() < give_up && !stop.is_stopped();
    let mut out = OneByOne {
        requests: Writes { stream, bytes: &bytes, size: bytes.len(), goes_on, failed: false },
        response: vec![0; spec.response_size()],
        responses: (Received::new(spec.duration_ms), None),
    };
    let mut report = paced::send(&mut out, spec, stop);
    report_responses(out.responses, &mut report);
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
fn read_responses(stream: &TcpStream, spec: &TestSpec, plan: &OpenLoopPlan, sent: &SentTimes) -> Responses {
    let size = spec.response_size();
    let mut responses = Received::new(spec.duration_ms);
    let (mut have, mut give_up) = (0, u64::MAX);
    let begun = ThreadTime::now();
    let read = tcp::read_all(stream, BUFFER.max(size), |now, many| {
        have += many;
        while have >= size {
            have -= size;
            let number = responses.messages;
            came(&mut responses, now, size, now.saturating_sub(plan.planned(number)));
            if let Some(left) = sent.of(number) {
                responses.from_send.record(now.saturating_sub(left));
            }
        }
        Ok(!sent.is_over(responses.messages, now, LAST_NS, &mut give_up))
    });
    responses.thread_time = ThreadTime::since(begun);
    let closed = |closed: bool| closed.then(|| io::ErrorKind::UnexpectedEof.into());
    (responses, read.map_or_else(Some, closed))
}

fn open_loop(stream: &TcpStream, test: Running<'_>, plan: &OpenLoopPlan) -> EndReport {
    let Running { spec, stop, .. } = test;
    let size = spec.size as usize;
    let bytes = vec![0x5a; (BUFFER / size).clamp(1, spec.batch.max(1) as usize) * size];
    let goes_on = || !plan.is_over(clock::monotonic_ns()) && !stop.is_over();
    let mut out = Writes { stream, bytes: &bytes, size, goes_on, failed: false };
    let (mut report, responses) = paced::ask(&mut out, test, |sent| read_responses(stream, spec, plan, sent));
    report_responses(responses, &mut report);
    report
}

/// Listens.
pub fn receiver(setup: &Setup) -> Ready {
    let method = format!("read {}, write {}", setup.spec.size, setup.spec.response_size());
    tcp::listen(setup, method, answer, |mut answered, _, _| answered.pop().unwrap_or_default())
}

/// Answers requests until the sender closes or the test is stopped.
fn answer(stream: TcpStream, spec: &TestSpec, first_ns: &AtomicU64, stop: &Ending) -> EndReport {
    let (request, response) = (spec.size as usize, spec.response_size());
    let at_once = (BUFFER / response).max(1);
    let replies = vec![0xa5; at_once * response];
    let (mut requests, mut report) = (Received::new(spec.duration_ms), EndReport::default());
    let (mut have, mut doing) = (0, "reading");
    let goes_on = || !stop.is_stopped();
    let read = tcp::read_all(&stream, BUFFER.max(request), |now, many| {
        have += many;
        let mut whole = have / request;
        have %= request;
        if many > 0 {
            if requests.begun_ns == 0 {
                first_ns.store(now, Release);
            }
            requests.read_at(now);
            requests.count(now, whole as u64, many as u64);
            requests.intervals.add(now, whole as u64, many as u64);
        }
        while whole > 0 {
            let now = whole.min(at_once);
            let written = write_whole(&mut &stream, &replies[..now * response], goes_on);
            requests.answers.report.send_calls += written.map_err(|(error, _)| {
                doing = "answering";
                error
            })?;
            requests.answers.report.sent += now as u64;
            whole -= now;
        }
        Ok(goes_on())
    });
    requests.end();
    requests.report(&mut report);
    report.notes.extend(
        read.err().map(|error| format!("the connection failed while {doing}: {}", system_words(&error))),
    );
    report
}
