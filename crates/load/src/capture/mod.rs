//! Capturing frames: counting them, writing them, accounting for those that were lost.
//!
//! **What.** [`run`] opens a port (or several, which share its frames), counts what comes ([`census`]), writes it if asked
//! ([`queue`], [`writer`]), says every second how it goes, and reads the counters of its interface around it ([`watcher`]).
//! The account of both is closed by `study::capturing`.
//!
//! **Why so.** A capture that does not say what it lost is worth little, and "dropped" without a place is worth hardly more.
//! Every place has its own counter: the interface (`nic`), the kernel, the `ring` or `socket`, our own `queue`, the `disk`.
//! One thread receives for each port and does nothing else; one thread writes; the caller's thread watches.
//!
//! **Price.** One copy for a frame that is written, none for one that is counted.

pub mod census;
pub mod delays;
pub mod flows;
pub mod queue;
pub mod streams;
pub mod talkers;
pub mod watcher;
pub mod worker;
pub mod writer;

use crate::traffic::ports::{add_drops, drops_since, with_setting};
use census::Census;
use linux::port::{
    self, Direction, Member, PortError, PortOptions, ReceiveCounters, Receiver, StampSource, Uri,
};
use linux::sys::{clock, process};
use queue::ReceiverSide;
use record::capture::{CaptureReport, CaptureSecond, CaptureSeen, Recorded, SCHEMA, SECOND, Written};
use record::unit::many;
use record::{PlaceDrop, PortKind, PortSetting, Problem, Result, Through, drop};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;
use watcher::Watcher;
use wire::filter::Program;
use wire::pcap::Link;
use worker::{Counts, Shared, Tally, Worker, WorkerResult};
use writer::FileOptions;

/// How long a ring may keep a frame back, or up to twice as long, when traffic is thin. Nobody looks at a capture more
/// often, and each block that is handed over before it is full costs a wake-up, some 10 µs; twice this is still within
/// what [`worker`] waits for at the end.
const LATE_MS: u64 = 32;

/// What to capture, how, and until when.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// The port.
    pub uri: String,
    /// Threads that receive, each with a port of its own.
    pub threads: u32,
    /// The CPUs that the threads stay on, in turn; none: where the kernel puts them.
    pub cpus: Vec<u32>,
    /// The filter, as it was written and compiled.
    pub filter: Option<(String, Program)>,
    /// Bytes that are kept of each frame.
    pub snap: Option<u32>,
    /// See frames for other stations too.
    pub promiscuous: bool,
    /// See frames that this host sends too.
    pub outgoing: bool,
    /// Whose clock shall stamp the frames.
    pub stamps: StampSource,
    /// Count frames, bytes and times' sources only: the cheapest.
    pub only_count: bool,
    /// End after so many frames.
    pub count: Option<u64>,
    /// End after so long.
    pub duration: Option<Duration>,
    /// Memory of the queue to the writer, for each thread.
    pub queue_bytes: usize,
    /// Where frames are written to.
    pub file: Option<FileOptions>,
}

impl CaptureOptions {
    /// The filter, if the kernel is to run it; for false, if this program is.
    fn filter_run_by_kernel(&self, kernel: bool) -> Option<Program> {
        let (_, program) = self.filter.as_ref().filter(|_| kernel_filters(&self.uri) == kernel)?;
        Some(program.clone())
    }
}

/// Who is told what happens.
pub trait Listener {
    /// The ports are open; this took effect.
    ///
    /// # Errors
    /// Whatever shall end the capture before it begins.
    fn opened(&mut self, settings: &[PortSetting]) -> Result<()>;

    /// A second went by; false when nobody wants to know any more, which ends the capture.
    ///
    /// # Errors
    /// Whatever shall end the capture.
    fn second(&mut self, second: &CaptureSecond) -> Result<bool>;
}

/// How it went, and what ended it before its time.
#[derive(Debug)]
pub struct Outcome {
    /// The numbers, without the account.
    pub report: CaptureReport,
    /// What went wrong; the numbers hold all the same.
    pub problem: Option<Problem>,
    /// What was seen around it: the account is closed with it.
    pub seen: CaptureSeen,
}

/// Captures until the count, the time, an interrupt, the end of the port, or trouble.
///
/// # Errors
/// What kept it from beginning; trouble on the way is in the [`Outcome`].
pub fn run(wish: &CaptureOptions, listener: &mut dyn Listener) -> Result<Outcome> {
    let mut watcher = Watcher::open(&wish.uri, wish.outgoing);
    let read = |watcher: &mut Option<Watcher>| watcher.as_mut().and_then(Watcher::read);
    let opening = read(&mut watcher);
    let (receivers, settings) = open(wish)?;
    let shared = Shared::new(receivers.len(), wish.count);
    let link = link_of(wish, &*receivers[0]);
    let (lanes, ready) = prepare_writer(wish, receivers.len(), link)?.unzip();
    let before = read(&mut watcher);
    listener.opened(&settings)?;
    let begun = (clock::realtime_ns(), clock::monotonic_ns());
    let workers = workers(wish, receivers, lanes.unwrap_or_default(), &shared, watcher.is_some());

    let (got, written, ending, told) = std::thread::scope(|scope| {
        let writer = ready.map(|ready| scope.spawn(|| writer::run(ready, &shared.writer, &|| shared.lost())));
        let threads: Vec<_> = workers.into_iter().map(|worker| scope.spawn(move || worker.run())).collect();
        let told = watch_over(wish, &shared, listener);
        shared.stop();
        let ending = (read(&mut watcher), clock::monotonic_ns());
        let got: Vec<WorkerResult> = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        let written = writer.and_then(|writer| writer.join().ok());
        (got, written, ending, told)
    });
    let whole = got.len() == shared.threads.len() && wish.file.is_some() == written.is_some();
    if !whole {
        return Err(Problem::host("a thread of the capture broke off; this is a fault of pathlab"));
    }
    let after = read(&mut watcher);
    let (begun_ns, ended_ns) = (begun.1, ending.1);
    let seen = watcher.map(Watcher::seen).unwrap_or_default();
    let seen = CaptureSeen { begun_ns, ended_ns, opening, before, ending: ending.0, after, ..seen };
    let end = End { wish, settings, begun_ns: begun.0, seen, told, shared: &shared };
    Ok(end.report(got, written))
}

/// Where frames come from, and what took effect at the first.
type Opened = (Vec<Box<dyn Receiver>>, Vec<PortSetting>);

/// The ends of the receiving threads, and the writer of what comes from them.
type Writing = (Vec<ReceiverSide>, writer::Ready);

/// Opens one port for each thread.
fn open(wish: &CaptureOptions) -> Result<Opened> {
    let count = wish.threads.max(1);
    let kind = Uri::parse(&wish.uri)?.kind;
    if count > 1 && !kernel_filters(&wish.uri) {
        return Err(Problem::input(format!("port kind '{kind}' cannot be shared by {count} threads"))
            .at(&wish.uri)
            .help("use int: or ring:, or one thread"));
    }
    // Fan-out groups have numbers of 16 bits; those of different processes should differ.
    let group = (std::process::id() as u16) ^ (clock::monotonic_ns() >> 20) as u16;
    let filter = wish.filter_run_by_kernel(true);
    let open = |index| {
        let wish_of_port = PortOptions {
            direction: Direction::Receive,
            snap: wish.snap,
            promiscuous: wish.promiscuous,
            outgoing: wish.outgoing,
            filter: filter.clone(),
            stamps: wish.stamps,
            member: (count > 1).then_some(Member { index, count, group }),
            // Filters are compiled for Ethernet.
            any_link: wish.filter.is_none(),
            ..PortOptions::default()
        };
        let asked = patient(&wish.uri);
        // What is wrong is wrong with the port as its user wrote it.
        let as_written = |problem: Problem| match problem.place == asked {
            true => Problem { place: wish.uri.clone(), ..problem },
            false => problem,
        };
        let port = port::open(&asked, &wish_of_port).map_err(as_written)?;
        let nothing = || Problem::input("nothing can be received from this port").at(&wish.uri);
        Ok((port.receiver.ok_or_else(nothing)?, port.settings))
    };
    let (receivers, mut settings) = (0..count).map(open).collect::<Result<(Vec<_>, Vec<_>)>>()?;
    Ok((receivers, settings.swap_remove(0)))
}

/// The port with [`LATE_MS`], if it is a ring of blocks and nothing else was asked.
fn patient(uri: &str) -> String {
    let Ok(mut asked) = Uri::parse(uri) else { return uri.to_owned() };
    let is_ring = PortKind::named(&asked.kind).is_some_and(|kind| kind.in_pages);
    let says =
        asked.take("retire_ms").is_some() || asked.take("version").is_some_and(|version| version == "2");
    if is_ring && !says { with_setting(uri, &format!("retire_ms={LATE_MS}")) } else { uri.to_owned() }
}

/// True for the kinds whose filter runs in the kernel; everywhere else it runs here, where its refusals are counted.
fn kernel_filters(uri: &str) -> bool {
    let kind = Uri::parse(uri).ok().and_then(|uri| PortKind::named(&uri.kind));
    kind.is_some_and(|kind| kind.through == Through::PacketSocket)
}

/// The capture file that is read, also behind `fault:`. It waits for whoever reads it.
fn file_of(uri: &str) -> Option<String> {
    let uri = Uri::parse(uri).ok()?;
    match PortKind::named(&uri.kind)?.through {
        Through::File => Some(uri.rest),
        Through::Port => file_of(&uri.rest),
        _ => None,
    }
}

/// What frames of the port begin with; none for a pipe, which says so later.
fn link_of(wish: &CaptureOptions, receiver: &dyn Receiver) -> Option<Link> {
    let first = receiver.interfaces().first().map(|interface| interface.link);
    if file_of(&wish.uri).is_some() { first } else { Some(Link::ETHERNET) }
}

fn prepare_writer(wish: &CaptureOptions, threads: usize, link: Option<Link>) -> Result<Option<Writing>> {
    let Some(file) = &wish.file else { return Ok(None) };
    let snap = wish.snap.unwrap_or(u32::MAX).min(wire::pcap::MAX_FRAME) as usize;
    let (mut lanes, collector) = queue::lanes(threads, wish.queue_bytes, snap);
    let from = file_of(&wish.uri);
    lanes.iter_mut().for_each(|lane| lane.waits = from.is_some());
    let file = FileOptions { link, from, ..file.clone() };
    Ok(Some((lanes, writer::prepare(file, collector, threads)?)))
}

fn workers<'a>(
    wish: &CaptureOptions,
    receivers: Vec<Box<dyn Receiver>>,
    lanes: Vec<ReceiverSide>,
    shared: &'a Shared,
    drains: bool,
) -> Vec<Worker<'a>> {
    let filter = wish.filter_run_by_kernel(false);
    let offset_ns = clock::realtime_ns().wrapping_sub(clock::monotonic_ns());
    let make = |(number, (receiver, lane)): (usize, (Box<dyn Receiver>, Option<ReceiverSide>))| {
        let (mut census, filter) = (Census::new(offset_ns), filter.clone());
        census.only_count = wish.only_count;
        let tally =
            Tally { counts: Counts { census, filtered: 0, after: 0, recorded: None }, lane, filter, shared };
        let cpu = wish.cpus.get(number % wish.cpus.len().max(1)).copied();
        Worker { receiver, number, cpu, drains, tally }
    };
    let lanes = lanes.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    receivers.into_iter().zip(lanes).enumerate().map(make).collect()
}

/// What a capture says that ended because a thread did, unless the count was reached, or because writing failed.
const END_OF_PORT: &str = "end of port";

/// Tells the listener every second how it goes; returns why it is over, or the listener's problem.
fn watch_over(wish: &CaptureOptions, shared: &Shared, listener: &mut dyn Listener) -> Result<&'static str> {
    let begun = clock::monotonic_ns();
    let end = wish.duration.map(|time| begun + time.as_nanos() as u64);
    let mut seconds = Seconds { last_ns: begun, ..Seconds::default() };
    loop {
        let now = clock::monotonic_ns();
        if shared.is_full() {
            return Ok("count");
        }
        if shared.stopped() || shared.ended.load(Acquire) > 0 || shared.writer.failed.load(Relaxed) {
            return Ok(END_OF_PORT);
        }
        if process::interrupted() {
            return Ok("interrupted");
        }
        if end.is_some_and(|end| now >= end) {
            return Ok("duration");
        }
        if now - seconds.last_ns >= 1_000_000_000 && !listener.second(&seconds.next(shared, now))? {
            return Ok("reader_gone");
        }
        let next = (seconds.last_ns + 1_000_000_000).min(end.unwrap_or(u64::MAX)).min(now + 50_000_000);
        clock::sleep_until(next);
    }
}

/// What was told last.
#[derive(Default)]
struct Seconds {
    last_ns: u64,
    second: u64,
    frames: u64,
    bytes: u64,
    freezes: u64,
    drops: Vec<PlaceDrop>,
}

impl Seconds {
    fn next(&mut self, shared: &Shared, now: u64) -> CaptureSecond {
        let sum = |of: fn(&worker::Progress) -> u64| shared.threads.iter().map(of).sum::<u64>();
        let (frames, bytes) = (sum(|t| t.frames.load(Relaxed)), sum(|t| t.bytes.load(Relaxed)));
        let queue = sum(|t| t.queue_drops.load(Relaxed));
        let counted = |thread: &worker::Progress| thread.counted().clone();
        let ports: Vec<ReceiveCounters> = shared.threads.iter().map(counted).collect();
        let mut drops = add_up(ports.iter().flat_map(|port| &port.drops));
        drops.extend(lost_on_the_way(queue, shared));
        let freezes = ports.iter().map(|port| port.freezes).sum();
        let duration_ns = now - self.last_ns;
        let seconds = duration_ns as f64 / 1e9;
        let second = CaptureSecond {
            schema: SECOND.into(),
            second: self.second + 1,
            duration_ns,
            frames: frames - self.frames,
            bytes: bytes - self.bytes,
            frames_per_s: (frames - self.frames) as f64 / seconds,
            rate_bps: (bytes - self.bytes) as f64 * 8.0 / seconds,
            total_frames: frames,
            drops: drops_since(&self.drops, drops.clone()),
            freezes: freezes - self.freezes,
        };
        *self = Seconds { last_ns: now, second: second.second, frames, bytes, freezes, drops };
        second
    }
}

/// What was lost between the ports and the file.
fn lost_on_the_way(queue: u64, shared: &Shared) -> [PlaceDrop; 2] {
    let disk = shared.writer.disk_drops.load(Relaxed);
    [PlaceDrop::new("queue", drop::FULL, queue), PlaceDrop::new("disk", drop::NOT_WRITTEN, disk)]
}

/// The same drops of several threads, added up.
fn add_up<'a>(drops: impl Iterator<Item = &'a PlaceDrop>) -> Vec<PlaceDrop> {
    let mut sums = vec![];
    add_drops(&mut sums, drops);
    sums
}

/// Everything that the report is made of.
struct End<'a> {
    wish: &'a CaptureOptions,
    settings: Vec<PortSetting>,
    begun_ns: u64,
    seen: CaptureSeen,
    told: Result<&'static str>,
    shared: &'a Shared,
}

impl End<'_> {
    fn report(mut self, mut got: Vec<WorkerResult>, written: Option<(Written, Option<Problem>)>) -> Outcome {
        let wish = self.wish;
        let threads: Vec<u64> = got.iter().map(|got| got.counts.census.frames).collect();
        let sum = |of: fn(&WorkerResult) -> u64| got.iter().map(of).sum::<u64>();
        let (after, freezes, cut) = (sum(|g| g.counts.after), sum(|g| g.port.freezes), sum(|g| g.port.cut));
        let mut drops = add_up(got.iter().flat_map(|got| &got.port.drops));
        self.seen.port_drops.clone_from(&drops);
        let unknown = wish.filter_run_by_kernel(true).is_some();
        let filtered = (!unknown).then_some(sum(|g| g.counts.filtered));
        if wish.file.is_some() {
            drops.extend(lost_on_the_way(sum(|g| g.queue_drops), self.shared));
        }
        let errors: Vec<PortError> = got.iter_mut().filter_map(|got| got.ended.take()).collect();
        let mut notes: Vec<String> = got.iter().flat_map(|got| got.notes.iter().cloned()).collect();
        let span =
            got.iter().filter_map(|got| got.counts.recorded).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (census, all) = Census::report(got.into_iter().map(|got| got.counts.census).collect());
        self.seen.pieces = all.hidden_pieces();
        let (written, not_written) = written.unzip();
        let (ended, problem) = self.ended(errors, not_written.flatten());
        let downs = self.shared.downs.load(Relaxed);
        if downs > 0 {
            notes.push(format!("the link went down {}", many(downs, "time")));
        }
        if all.hidden_pieces() > 0 {
            notes.push("super-frames count once here and perhaps as their pieces at the interface".into());
        }
        // Frames that ended it did so before the watching thread looked.
        let ended_ns = self.seen.ended_ns.min(self.shared.over_ns.load(Relaxed));
        let duration_ns = ended_ns.saturating_sub(self.seen.begun_ns);
        let seconds = (duration_ns as f64 / 1e9).max(1e-9);
        let report = CaptureReport {
            schema: SCHEMA.into(),
            port: wish.uri.clone(),
            filter: wish.filter.as_ref().map(|(text, _)| text.clone()),
            begun_ns: self.begun_ns,
            duration_ns,
            ended,
            captured: all.frames,
            bytes: all.bytes,
            frames_per_s: all.frames as f64 / seconds,
            rate_bps: all.bytes as f64 * 8.0 / seconds,
            cut,
            filtered,
            after,
            threads,
            drops,
            freezes,
            account: None,
            written,
            recorded: span.map(|(first, last)| Recorded::new(first, last, all.frames, all.bytes)),
            census,
            settings: self.settings,
            notes,
        };
        Outcome { report, problem, seen: self.seen }
    }

    /// Why it ended, in words, and what went wrong.
    fn ended(&self, errors: Vec<PortError>, not_written: Option<Problem>) -> (String, Option<Problem>) {
        if let Some(problem) = not_written {
            return ("the capture could not be written".into(), Some(problem));
        }
        if let Some(error) = errors.into_iter().find(|error| !matches!(error, PortError::Ended)) {
            return (error.to_string(), Some(Problem::from(error).at(&self.wish.uri)));
        }
        match &self.told {
            Ok(END_OF_PORT) if self.shared.is_full() => ("count".into(), None),
            Ok(why) => ((*why).into(), None),
            Err(problem) => ("its output broke off".into(), Some(problem.clone())),
        }
    }
}

#[cfg(test)]
mod tests;
