//! The smallest forwarder: every frame of one port goes to the other, untouched.
//!
//! **What.** One thread for each direction. A thread of its own lets each direction sleep on its own receiver, so that an idle
//! one costs nothing and a busy one is not held up by looking at the other; the two ends of a port share no lock.
//!
//! **Why here.** The loop is [`load::null`]; the socket of its counters is one of the switch's, and `load` and `switch` do not see each
//! other.
//!
//! **While it runs** whoever calls the socket of its counters gets the counters so far ([`load::null::ask`] is the caller).
//!
//! **Price.** A frame that the transmitter has no room for is dropped and counted (`full`): a forwarder that waited would
//! only move the loss to its receiver.

use crate::notices::Notices;
use linux::port::{Direction, Port, PortOptions, Wait, open};
use linux::sys::{clock, process};
pub use load::null::{NullDirection, Opened};
use load::null::{NullDocument, PATIENCE, RunningCounters, forward_all, shared_area, ways};
use record::unit::frames_per_s;
use record::{Problem, Result};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use switch::config::Listen;
use switch::stream::Listener;

/// The version of the document.
const SCHEMA: &str = "pathlab/null/1";

/// Between which ports, and how.
#[derive(Debug, Clone)]
pub struct Pair {
    /// One end.
    pub from: String,
    /// The other end.
    pub to: String,
    /// From the first port to the second only.
    pub one_way: bool,
    /// For how long; none: until an interrupt.
    pub duration: Option<Duration>,
    /// Never sleep.
    pub spin: bool,
    /// The socket that answers with the counters so far.
    pub counters: Option<PathBuf>,
}

/// A forwarder whose ports are open.
pub struct Forwarder {
    pair: Pair,
    left: Port,
    right: Port,
    counter: Option<Listener>,
    /// The two ports and what took effect.
    pub ports: Vec<Opened>,
}

impl Forwarder {
    /// Opens both ports, and the socket of the counters if one is wanted.
    ///
    /// # Errors
    /// Input: a port lacks an end, the ports are joined, there cannot be a socket; host: a port cannot be opened.
    pub fn open(pair: Pair) -> Result<Forwarder> {
        if let Some(why) = linux::port::circle(&pair.from, &pair.to, pair.one_way)? {
            return Err(Problem::input(format!(
                "{why}: every frame would come back and be sent again for ever"
            ))
            .at(format!("{} {}", pair.from, pair.to))
            .help("name two ports that are not joined"));
        }
        let (left, right) = open_both(&pair)?;
        let counter =
            pair.counters.clone().map(|path| Listener::open(&Listen::Unix(path), None)).transpose()?;
        let ports = vec![opened(&left), opened(&right)];
        Ok(Forwarder { pair, left, right, counter, ports })
    }

    /// Forwards until an end is asked for, the time is over or a port breaks off; what was counted, and the first trouble.
    pub fn run(mut self, notices: &dyn Notices) -> (NullDocument, Option<Problem>) {
        let begun = clock::monotonic_ns();
        let (spin, ports, counter) = (self.pair.spin, self.ports, self.counter);
        let document = |ways: Vec<NullDirection>| {
            let duration_ns = clock::monotonic_ns() - begun;
            let ways = ways.into_iter().map(|way| way.over(duration_ns)).collect();
            NullDocument { schema: SCHEMA.into(), duration_ns, spin, ports: ports.clone(), ways }
        };
        let answer =
            |running: &[RunningCounters]| counter.iter().for_each(|socket| answer(socket, running, document));
        let wait = if spin { Wait::Poll } else { Wait::For(PATIENCE) };
        let pair = &self.pair;
        let (ways, problem) =
            forward_all(&mut self.left, &mut self.right, pair.one_way, wait, |running, ended| {
                watch(running, pair.duration, &answer, notices, ended);
            });
        (document(ways), problem)
    }
}

/// Opens both ports, over one area where both can use one.
fn open_both(args: &Pair) -> Result<(Port, Port)> {
    let area = shared_area(&[&args.from, &args.to])?;
    let wish = |direction| PortOptions {
        direction,
        promiscuous: true,
        area: area.clone(),
        ..PortOptions::default()
    };
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

fn opened(port: &Port) -> Opened {
    Opened { uri: port.uri.clone(), settings: port.settings.clone() }
}

/// Waits for the end, with an answer for whoever calls and a line for people every second.
fn watch(
    running: &[RunningCounters],
    duration: Option<Duration>,
    answer: &dyn Fn(&[RunningCounters]),
    notices: &dyn Notices,
    ended: impl Fn() -> bool,
) {
    let begin = clock::monotonic_ns();
    let mut before: Vec<u64> = vec![0; running.len()];
    let mut next = begin + 1_000_000_000;
    let until = duration.map(|time| begin + time.as_nanos() as u64);
    while !process::interrupted() && !ended() {
        answer(running);
        let now = clock::monotonic_ns();
        if until.is_some_and(|until| now >= until) {
            return;
        }
        let wake = (now + 20_000_000).min(until.unwrap_or(u64::MAX));
        clock::sleep_until(wake);
        if wake >= next {
            let rates = running.iter().zip(&mut before).map(|(running, before)| {
                let now = running.moved.load(Relaxed);
                frames_per_s((now - std::mem::replace(before, now)) as f64)
            });
            let (done_ms, total_ms) =
                ((wake - begin) / 1_000_000, until.map_or(0, |until| (until - begin) / 1_000_000));
            notices.part(&rates.collect::<Vec<_>>().join(" there, back "), done_ms, total_ms);
            next += 1_000_000_000;
        }
    }
}

/// Answers everybody who called the socket meanwhile; `document` makes the answer of the ways. A caller who is gone, or ways that do
/// not answer because they are ending, are not this program's trouble: the caller sees that nothing came.
fn answer(
    socket: &Listener,
    running: &[RunningCounters],
    document: impl Fn(Vec<NullDirection>) -> NullDocument,
) {
    while let Some(mut caller) = socket.take() {
        let Some(ways) = ways(running) else { continue };
        let Ok(text) = serde_json::to_vec(&document(ways)) else { continue };
        // A fresh socket's buffer holds many such documents, so this is one write and cannot wait.
        let _ = caller.write_all(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::null::ask;
    use std::sync::atomic::AtomicBool;

    fn document(ways: Vec<NullDirection>) -> NullDocument {
        NullDocument { schema: "x".into(), duration_ns: 7, spin: false, ports: vec![], ways }
    }

    #[test]
    fn each_caller_gets_what_was_counted_by_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        let (running, stop) =
            ([RunningCounters::default(), RunningCounters::default()], AtomicBool::new(false));
        let counter = Listener::open(&Listen::Unix(path.clone()), None).unwrap();
        std::thread::scope(|scope| {
            for (number, one) in running.iter().enumerate() {
                let stop = &stop;
                scope.spawn(move || {
                    let (mut answered, mut received) = (0, 0);
                    while !stop.load(Relaxed) {
                        received += 1;
                        one.look(&mut answered, || NullDirection {
                            received,
                            full: number as u64,
                            ..NullDirection::default()
                        });
                        std::thread::yield_now();
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    answer(&counter, &running, document);
                    clock::sleep_until(clock::monotonic_ns() + 1_000_000);
                }
            });
            let mut before = 0;
            for _ in 0..20 {
                let told = ask(&path).unwrap();
                assert_eq!((told.duration_ns, told.ways.len(), told.ways[1].full), (7, 2, 1));
                assert!(told.ways[0].received > before, "{} after {before}", told.ways[0].received);
                before = told.ways[0].received;
            }
            stop.store(true, Relaxed);
        });
        drop(counter);
        let words = ask(&path).unwrap_err().to_string();
        assert!(words.contains("does not tell its counters"), "{words}");
        assert!(!path.exists(), "the socket is gone with its program");
    }
}
