//! `pathlab null PORT PORT`: the smallest forwarder.
//!
//! **What.** Every frame of one port goes to the other, untouched, both ways: one thread for each way. A thread of its
//! own lets each way sleep on its own receiver, so that an idle way costs nothing and a busy one is not held up by
//! looking at the other; the two ends of a port share no lock.
//!
//! **Why.** What a forwarder costs that does nothing is the floor under every switch, and the difference between two
//! kinds of ports is what the ports cost.
//!
//! **While it runs** whoever calls the socket of `--counters` gets the counters so far ([`counting`]).
//!
//! **Price.** A frame that the transmitter has no room for is dropped and counted (`full`): a forwarder that waited would
//! only move the loss to its receiver.

mod counting;

use crate::output::Output;
use clap::Args;
use counting::Counter;
pub use counting::{Desk, ask};
use linux::port::{
    Area, Direction, MAX_BATCH, Port, PortError, ReceiveCounters, Receiver, TransmitCounters, Transmitter,
    Uri, Wait, Wish, forward, open, xdp,
};
use linux::sys::{clock, process};
use record::unit::{self, count, frames_per_s, number, time_ns};
use record::{PlaceDrop, PortSetting, Problem, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The version of what `--json` prints.
const SCHEMA: &str = "pathlab/null/1";
/// How long a sleeping way waits before it looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long frames that are still under way at the end are waited for.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// Flags of `pathlab null`.
#[derive(Args)]
pub struct NullArgs {
    /// One end, e.g. xdp:eth0 (kinds: int, ring, xdp, tap, pcap, fault).
    from: String,
    /// The other end.
    to: String,
    /// Forward from the first port to the second only.
    #[arg(long)]
    one_way: bool,
    /// End after so long: 5s, 500ms, 2m.
    #[arg(long, value_name = "TIME", value_parser = record::unit::duration)]
    duration: Option<Duration>,
    /// Never sleep: a core for each way, for the shortest delay.
    #[arg(long)]
    spin: bool,
    /// Answer whoever calls this unix socket with the counters so far, as JSON.
    #[arg(long, value_name = "PATH")]
    counters: Option<PathBuf>,
}

/// What `--json` prints at the end, and callers get meanwhile.
#[derive(Debug, Serialize, Deserialize)]
pub struct Document {
    /// `pathlab/null/1`.
    pub schema: String,
    /// How long it has forwarded.
    pub duration_ns: u64,
    /// It never sleeps.
    pub spin: bool,
    /// The two ports.
    pub ports: Vec<Opened>,
    /// Each direction.
    pub ways: Vec<Way>,
}

/// A port and what took effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Opened {
    /// Its name as it was given.
    pub uri: String,
    /// What took effect.
    pub settings: Vec<PortSetting>,
}

/// One direction.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Way {
    /// Where its frames came from.
    pub from: String,
    /// Where they went.
    pub to: String,
    /// Frames received.
    pub received: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Frames that the other port accepted.
    pub sent: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// A million sent frames a second, over the whole time.
    pub sent_mfps: f64,
    /// How often this program copied a frame, by received frame; the kernel's own copies are not among them.
    pub copies_per_frame: f64,
    /// CPU time of the thread, the kernel's work in its system calls included, by received frame.
    pub cpu_ns_per_frame: f64,
    /// Frames that were received and dropped because the transmitter was full.
    pub full: u64,
    /// Frames that were in hand when the transmitter failed: its link was down, its interface gone, its other end closed.
    pub failed: u64,
    /// Frames whose checksum was completed on the way, in or out.
    pub completed_checksums: u64,
    /// Pieces made of super-frames.
    pub segments: u64,
    /// How often a link went down.
    pub link_downs: u64,
    /// Frames that were lost before they were received, by place and reason.
    pub lost_before: Vec<PlaceDrop>,
    /// Frames that the other port refused or lost, by place and reason.
    pub lost_after: Vec<PlaceDrop>,
}

/// Runs the command.
pub fn run(args: NullArgs, output: &Output) -> Result<()> {
    crate::interruptible()?;
    if let Some(why) = linux::port::circle(&args.from, &args.to, args.one_way)? {
        return Err(Problem::input(format!("{why}: every frame would come back and be sent again for ever"))
            .at(format!("{} {}", args.from, args.to))
            .help("name two ports that are not joined"));
    }
    let (mut left, mut right) = open_both(&args)?;
    let counter = args.counters.clone().map(Counter::open).transpose()?;
    let ports = vec![opened(&left), opened(&right)];
    if !output.json {
        output.text(&ports.iter().map(settings_text).collect::<String>())?;
    }
    output.note(&format!(
        "forwarding {} {} {}; end it with Ctrl-C",
        args.from,
        if args.one_way { "to" } else { "from and to" },
        args.to
    ));
    let begun = clock::monotonic_ns();
    let document = |ways: Vec<Way>| {
        let duration_ns = clock::monotonic_ns() - begun;
        let ways = ways.into_iter().map(|way| way.over(duration_ns)).collect();
        Document { schema: SCHEMA.into(), duration_ns, spin: args.spin, ports: ports.clone(), ways }
    };
    let answer = |desks: &[Desk]| {
        if let Some(counter) = &counter {
            counter.answer(desks, document);
        }
    };
    let (ways, problem) = forward_all(&mut left, &mut right, &args, &answer, output);
    let document = document(ways);
    output.result(&document, |document| document.ways.iter().map(way_text).collect())?;
    // A port that broke off is told after the numbers: they say what went down with it.
    problem.map_or(Ok(()), Err)
}

/// Opens both ports, over one area where both can use one.
fn open_both(args: &NullArgs) -> Result<(Port, Port)> {
    let area = shared_area(&[&args.from, &args.to])?;
    let wish = |direction| Wish { direction, promiscuous: true, area: area.clone(), ..Wish::default() };
    let (first, second) = match args.one_way {
        true => (Direction::Receive, Direction::Transmit),
        false => (Direction::Both, Direction::Both),
    };
    let left = open(&args.from, &wish(first))?;
    let right = open(&args.to, &wish(second))?;
    let lacks = |uri: &str, what: &str| Problem::input(format!("this port cannot {what}")).at(uri);
    if left.receiver.is_none() || !args.one_way && right.receiver.is_none() {
        let uri = if left.receiver.is_none() { &args.from } else { &args.to };
        return Err(lacks(uri, "receive").help("use --one-way, with the port that receives first"));
    }
    if right.transmitter.is_none() || !args.one_way && left.transmitter.is_none() {
        let uri = if right.transmitter.is_none() { &args.to } else { &args.from };
        return Err(lacks(uri, "transmit").help("use --one-way, with the port that transmits second"));
    }
    Ok((left, right))
}

/// Memory for both ports, if both are of a kind that can share it.
pub fn shared_area(uris: &[&str]) -> Result<Option<Arc<Area>>> {
    // `fault:` hands the wish on to the port inside.
    let inside = |uri: &&str| {
        let mut uri = *uri;
        while let Some(rest) = uri.strip_prefix("fault:") {
            uri = rest;
        }
        uri.to_owned()
    };
    let uris: Vec<String> = uris.iter().map(inside).collect();
    if uris.iter().all(|uri| uri.starts_with("xdp:")) {
        return xdp::area_for(&uris).map(Some);
    }
    if uris.iter().all(|uri| uri.starts_with("mem:")) {
        let mut chunks = 0;
        for uri in &uris {
            let frames = Uri::parse(uri)?.take_size("frames")?.unwrap_or(1024).min(1 << 20);
            chunks += 2 * frames as u32 + 2 * MAX_BATCH as u32;
        }
        let area = Area::new(chunks, 2048);
        return area.map(Some).map_err(|e| Problem::host(format!("cannot map memory for frames: {e}")));
    }
    Ok(None)
}

fn opened(port: &Port) -> Opened {
    let receiver = port.receiver.as_ref().map(|receiver| receiver.settings());
    let settings = receiver.or(port.transmitter.as_ref().map(|transmitter| transmitter.settings()));
    Opened { uri: port.uri.clone(), settings: settings.unwrap_or_default().to_vec() }
}

/// Runs the ways until an end is asked for or a port breaks off; what each did, and the first trouble.
fn forward_all(
    left: &mut Port,
    right: &mut Port,
    args: &NullArgs,
    answer: &dyn Fn(&[Desk]),
    output: &Output,
) -> (Vec<Way>, Option<Problem>) {
    let (mut pairs, mut desks, stop) = (vec![], vec![], &AtomicBool::new(false));
    if let (Some(from), Some(to)) = (left.receiver.as_mut(), right.transmitter.as_mut()) {
        desks.push(Desk::of(&left.uri, &right.uri));
        pairs.push((from, to));
    }
    if let (false, Some(from), Some(to)) = (args.one_way, right.receiver.as_mut(), left.transmitter.as_mut())
    {
        desks.push(Desk::of(&right.uri, &left.uri));
        pairs.push((from, to));
    }
    let wait = if args.spin { Wait::Poll } else { Wait::For(PATIENCE) };
    std::thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .into_iter()
            .zip(&desks)
            .map(|((from, to), desk)| {
                scope.spawn(move || one_way(from.as_mut(), to.as_mut(), wait, stop, desk))
            })
            .collect();
        watch(&desks, args, answer, output, || threads.iter().any(|thread| thread.is_finished()));
        stop.store(true, Relaxed);
        let (mut ways, mut problem) = (vec![], None);
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            if let Some(error) = ended.error {
                let at = format!("{} -> {}", ended.way.from, ended.way.to);
                problem.get_or_insert(Problem::from(error).at(at));
            }
            ways.push(ended.way);
        }
        (ways, problem)
    })
}

/// Waits for the end, with an answer for whoever calls and a line for people every second.
fn watch(
    desks: &[Desk],
    args: &NullArgs,
    answer: &dyn Fn(&[Desk]),
    output: &Output,
    ended: impl Fn() -> bool,
) {
    let begin = clock::monotonic_ns();
    let mut before: Vec<u64> = vec![0; desks.len()];
    let mut next = begin + 1_000_000_000;
    let until = args.duration.map(|time| begin + time.as_nanos() as u64);
    while !process::interrupted() && !ended() {
        answer(desks);
        let now = clock::monotonic_ns();
        if until.is_some_and(|until| now >= until) {
            return;
        }
        let wake = (now + 20_000_000).min(until.unwrap_or(u64::MAX));
        clock::sleep_until(wake);
        if output.progress && wake >= next {
            let rates = desks.iter().zip(&mut before).map(|(desk, before)| {
                let now = desk.moved.load(Relaxed);
                frames_per_s((now - std::mem::replace(before, now)) as f64)
            });
            output.note(&rates.collect::<Vec<_>>().join(" there, back "));
            next += 1_000_000_000;
        }
    }
}

/// How a way ended.
pub struct Ended {
    /// What it did.
    pub way: Way,
    /// Why it ended before it was told to, if so.
    pub error: Option<PortError>,
}

/// Forwards until told to stop, or the frames end. The desk shows how far it is.
pub fn one_way(
    from: &mut dyn Receiver,
    to: &mut dyn Transmitter,
    wait: Wait,
    stop: &AtomicBool,
    desk: &Desk,
) -> Ended {
    let (cpu, mut link_downs, mut full, mut error) = (clock::thread_cpu_ns(), 0, 0, None);
    let (before, mut answered) = ((from.counters(), to.counters()), 0);
    while !stop.load(Relaxed) {
        match forward(from, to, wait) {
            Ok(batch) if batch.came == 0 => {}
            Ok(batch) => {
                full += batch.full as u64;
                desk.moved.fetch_add(batch.sent() as u64, Relaxed);
            }
            Err(broken) => match broken.error {
                PortError::Down => link_downs += 1,
                PortError::Ended => break,
                other => {
                    error = Some(other);
                    break;
                }
            },
        }
        desk.look(&mut answered, || {
            let counted = (from.counters(), to.counters());
            Way { link_downs, ..way(&before, &counted, full, clock::thread_cpu_ns() - cpu) }
        });
    }
    let _ = to.flush(LAST_FLUSH);
    let cpu_ns = clock::thread_cpu_ns() - cpu;
    let way = way(&before, &(from.counters(), to.counters()), full, cpu_ns);
    let way = Way { from: desk.from.clone(), to: desk.to.clone(), link_downs, ..way };
    desk.leave(way.clone());
    Ended { way, error }
}

type Both = (ReceiveCounters, TransmitCounters);

fn way(before: &Both, after: &Both, full: u64, cpu_ns: u64) -> Way {
    let (received, offered) = (after.0.frames - before.0.frames, after.1.offered - before.1.offered);
    let copies = after.0.copied - before.0.copied + after.1.copied - before.1.copied;
    let each = |value: u64| if received == 0 { 0.0 } else { value as f64 / received as f64 };
    Way {
        received,
        received_bytes: after.0.bytes - before.0.bytes,
        sent: after.1.accepted - before.1.accepted,
        sent_bytes: after.1.bytes - before.1.bytes,
        copies_per_frame: each(copies),
        cpu_ns_per_frame: each(cpu_ns),
        full,
        // What came and was neither dropped nor dealt with went down with a transmitter that failed.
        failed: received.saturating_sub(offered + full),
        completed_checksums: completed(after) - completed(before),
        segments: after.1.segments - before.1.segments,
        lost_before: after.0.drops.clone(),
        lost_after: after.1.drops.clone(),
        ..Way::default()
    }
}

fn completed(counters: &Both) -> u64 {
    let inward = counters.0.extra.iter().filter(|(name, _)| *name == "completed_checksums");
    counters.1.completed_checksums + inward.map(|(_, count)| count).sum::<u64>()
}

impl Way {
    fn over(mut self, duration_ns: u64) -> Self {
        self.sent_mfps = self.sent as f64 * 1e3 / duration_ns.max(1) as f64;
        self
    }
}

fn settings_text(port: &Opened) -> String {
    let mut text = format!("{}\n", port.uri);
    for setting in &port.settings {
        let note = if setting.note.is_empty() { String::new() } else { format!("  ({})", setting.note) };
        text.push_str(&format!("  {:<12} {}{note}\n", setting.name, setting.effective));
    }
    text
}

fn way_text(way: &Way) -> String {
    let mut text = format!(
        "{} -> {}\n  received {}, sent {} ({}, {} B), {} copies and {} of CPU for each frame\n",
        way.from,
        way.to,
        count(way.received),
        count(way.sent),
        frames_per_s(way.sent_mfps * 1e6),
        count(way.sent_bytes),
        number(way.copies_per_frame),
        time_ns(way.cpu_ns_per_frame)
    );
    let mut lost = |when: &str, place: &str, name: &str, count: u64| {
        if count > 0 {
            text.push_str(&format!("  lost {when}: {} {place} {name}\n", unit::count(count)));
        }
    };
    way.lost_before.iter().for_each(|drop| lost("before", &drop.place, &drop.name, drop.count));
    lost("between", "transmitter", "full", way.full);
    lost("between", "transmitter", "failed", way.failed);
    way.lost_after.iter().for_each(|drop| lost("after", &drop.place, &drop.name, drop.count));
    let mut also = |what: &str, count: u64| {
        if count > 0 {
            text.push_str(&format!("  {what}: {}\n", unit::count(count)));
        }
    };
    also("checksums completed", way.completed_checksums);
    also("pieces of super-frames", way.segments);
    also("times a link went down", way.link_downs);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::port::{Frames, Hand, Meta};

    #[test]
    fn what_is_not_sent_is_accounted_for() {
        let wish = Wish::default();
        let [mut a, mut b, mut c, d] = ["mem:null1", "mem:null1", "mem:null2?frames=10", "mem:null2"]
            .map(|uri| open(uri, &wish).unwrap());
        let mut frames = Frames::new(100, 64);
        (0..100).for_each(|_| assert!(frames.push(&[7; 60], Meta::default())));
        let mut batch = frames.batch();
        let all = batch.all();
        a.transmitter.as_mut().unwrap().transmit(&mut batch, all, Hand::Copy).unwrap();
        drop(a);
        let (stop, desk) = (AtomicBool::new(false), Desk::default());
        let (from, to) = (b.receiver.as_mut().unwrap(), c.transmitter.as_mut().unwrap());
        let ended = one_way(from.as_mut(), to.as_mut(), Wait::Poll, &stop, &desk);
        assert!(ended.error.is_none(), "the end of the frames is no error");
        let way = ended.way.over(1_000_000_000);
        assert_eq!((way.received, way.sent, way.full, desk.moved.load(Relaxed)), (100, 10, 90, 10));
        assert_eq!((way.sent_bytes, way.copies_per_frame, way.sent_mfps), (600, 0.1, 1e-5));
        assert!(way_text(&way).contains("lost between: 90 transmitter full"));
        drop(d);
    }

    #[test]
    fn frames_in_hand_when_the_other_port_ends_are_counted() {
        let wish = Wish::default();
        let [mut a, mut b, mut c, d] =
            ["mem:null3", "mem:null3", "mem:null4", "mem:null4"].map(|uri| open(uri, &wish).unwrap());
        let mut frames = Frames::new(100, 64);
        (0..100).for_each(|_| assert!(frames.push(&[7; 60], Meta::default())));
        let mut batch = frames.batch();
        let all = batch.all();
        a.transmitter.as_mut().unwrap().transmit(&mut batch, all, Hand::Copy).unwrap();
        drop(d);
        let (stop, desk) = (AtomicBool::new(false), Desk::default());
        let (from, to) = (b.receiver.as_mut().unwrap(), c.transmitter.as_mut().unwrap());
        let way = one_way(from.as_mut(), to.as_mut(), Wait::Poll, &stop, &desk).way;
        assert_eq!((way.received, way.sent, way.full, way.failed), (100, 0, 0, 100));
        assert!(way_text(&way).contains("lost between: 100 transmitter failed"), "{}", way_text(&way));
    }

    #[test]
    fn memory_is_shared_by_ports_that_can() {
        assert!(shared_area(&["mem:x", "fault:mem:y?lose=1%"]).unwrap().is_some());
        assert!(shared_area(&["mem:x", "tap:y"]).unwrap().is_none());
    }
}
