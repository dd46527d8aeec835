//! Facts of a host or of nodes over a window, for `pathlab doctor` and `pathlab facts`.
//!
//! **What.** [`take`] reads all facts, waits for the window while cards' interrupts and polls are timed, reads again, and puts both together. How
//! long a card waited from interrupt to poll is what a ring has to hold; as many full polls in a row as empty it say that it was full; and
//! times between arrivals tell whether they are those of the frames or of the card's moderation.
//!
//! **Price.** Two readings, and in the window the programs of `pathlab llstat` for each card, at most [`MOST_CARDS`], and a thousand samples of each
//! CPU. Nothing is changed.

pub mod beside;

use linux::observe::function_shares::FunctionShares;
use linux::observe::known::{FactReading, FactSources};
use linux::observe::llstat::Llstat;
use linux::sys::{clock, process};
use load::conversation::facts::Host;
use load::conversation::observation::Nodes;
use record::buckets::Buckets;
use record::facts::{Fact, Facts, Known};
use record::llstat::{LlstatReport, Reading};
use record::{Distribution, Problem, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Cards of which interrupts are timed.
const MOST_CARDS: usize = 4;
/// How often interrupts of the user are looked for.
const TURN: Duration = Duration::from_millis(20);
/// Distributions of `pathlab llstat`: a stall, full polls, frames of polls, and times between arrivals.
const STALL: &str = "interrupt_to_poll_ns";
const FULL: &str = "full_polls_in_a_row";
const POLLS: &str = "poll_frames";
const ARRIVALS: &str = "arrival_period_ns";
/// Frames that came nearer to each other than this came at once; in nanoseconds.
const AT_ONCE_NS: u64 = 999;

/// Facts are watched for half of a test, but neither shorter nor longer than this, in milliseconds.
const WINDOW_MS: (u64, u64) = (100, 2_000);

/// How long facts are watched in a test of that length, in milliseconds.
pub fn window_ms(length_ms: u64) -> u64 {
    (length_ms / 2).clamp(WINDOW_MS.0, WINDOW_MS.1)
}

/// A host that tells what it sees of a test between two hosts, also what the doctor judges.
pub fn host(nodes: Nodes) -> Host {
    Host { nodes, facts: of_nodes, knobs: None }
}

fn of_nodes(nodes: &Nodes, window: Duration, ready: &dyn Fn() -> Result<()>) -> Result<Facts> {
    // Nobody needs a permission to look into the namespace that he is in.
    let others = nodes.len() > 1;
    let nodes = others.then(|| nodes.iter().map(kept).collect::<Result<_>>()).transpose()?;
    take_when(&FactWish { nodes, interface: None, window }, ready, |_| {})
}

fn kept((name, space): &(String, OwnedFd)) -> Result<(String, OwnedFd)> {
    let lost = |error| Problem::host(format!("the namespace of {name} cannot be kept: {error}"));
    Ok((name.clone(), space.try_clone().map_err(lost)?))
}

/// What is to be looked at.
pub struct FactWish {
    /// Namespaces by name; none is our own, called `host`.
    pub nodes: Option<Vec<(String, OwnedFd)>>,
    /// The only interface.
    pub interface: Option<String>,
    /// Length of the window.
    pub window: Duration,
}

/// A card whose interrupts are timed.
struct Timed {
    node: String,
    interface: String,
    llstat: Llstat,
    first: Option<Reading>,
}

/// Takes the facts; `progress` is told how much of the window is over.
///
/// # Errors
/// Host: a namespace cannot be read, or the interface went away; input: there is no such interface; measured: it was interrupted.
pub fn take(wish: &FactWish, progress: impl FnMut(Duration)) -> Result<Facts> {
    take_when(wish, || Ok(()), progress)
}

/// The same over a window that begins when a function returns; it is called once the programs that count for the host and its namespaces are there, which
/// takes a while.
///
/// # Errors
/// As [`take`], and those of the function.
pub fn take_when(
    wish: &FactWish,
    ready: impl FnOnce() -> Result<()>,
    mut progress: impl FnMut(Duration),
) -> Result<Facts> {
    let sources = sources(wish)?;
    ready()?;
    let before = sources.read()?;
    let lacks = |reading: &FactReading, problem: Problem| match sources.lacks(reading) {
        Some(place) => Err(problem.at(place)),
        None => Ok(()),
    };
    lacks(&before, Problem::input("there is no such interface"))?;
    let mut timed = timed(wish, &before);
    let functions = FunctionShares::start(wish.window);
    wait(wish.window, &mut timed, &mut progress)?;
    let functions = functions.stop();
    // The programs are read before the second reading makes frames of its own.
    let timed: Vec<_> = timed.into_iter().map(Timed::end).collect();
    let after = sources.read()?;
    lacks(&after, Problem::host("the interface went away while it was watched"))?;
    let mut facts = sources.window(before, after);
    let begun = clock::thread_cpu_ns();
    facts.host.extend(functions.known());
    facts.cost_cpu_ns += clock::thread_cpu_ns() - begun;
    for one in timed {
        let node = facts.nodes.get_mut(&one.node);
        if let Some(own) = node.and_then(|node| node.interfaces.get_mut(&one.interface)) {
            own.extend(one.known(own));
        }
    }
    Ok(facts)
}

fn sources(wish: &FactWish) -> Result<FactSources> {
    let only = wish.interface.as_deref();
    let Some(nodes) = &wish.nodes else { return Ok(FactSources::here(only)) };
    Ok(FactSources::open(nodes.iter().map(kept).collect::<Result<_>>()?, only))
}

fn timed(wish: &FactWish, before: &FactReading) -> Vec<Timed> {
    let begin = |(node, interface): (String, String)| {
        let space = wish.nodes.iter().flatten().find(|(name, _)| *name == node);
        let opened = match space {
            Some((_, space)) => Llstat::open(&node, space.as_fd(), &interface),
            None => Llstat::here(&interface),
        };
        let mut llstat = opened.ok()?;
        let first = llstat.read().ok().flatten();
        Some(Timed { node, interface, llstat, first })
    };
    before.cards().into_iter().take(MOST_CARDS).filter_map(begin).collect()
}

fn wait(window: Duration, timed: &mut [Timed], progress: &mut dyn FnMut(Duration)) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < window {
        if process::interrupted() {
            return Err(Problem::measured("interrupted before the window was over"));
        }
        progress(begun.elapsed());
        timed.iter_mut().for_each(|one| one.llstat.turn());
        std::thread::sleep(TURN.min(window.saturating_sub(begun.elapsed())));
    }
    Ok(())
}

/// What was seen of a card in the window.
struct Seen {
    node: String,
    interface: String,
    report: Option<LlstatReport>,
    /// Times between arrivals.
    arrivals: Option<Buckets>,
    /// Why no program counted.
    no_programs: Option<String>,
}

impl Timed {
    fn end(mut self) -> Seen {
        let last = self.llstat.read().ok().flatten();
        let facts = &self.llstat.facts;
        let both = self.first.as_ref().zip(last.as_ref());
        let report =
            both.map(|(first, last)| study::llstat::report(facts, first, last, first.at_ns, "duration"));
        let of = |reading: &Reading| reading.polls.as_ref()?.buckets.get(ARRIVALS).cloned();
        let arrivals = both.and_then(|(first, last)| of(last)?.since(&of(first)?));
        let no_programs = facts.no_programs.clone();
        Seen { node: self.node, interface: self.interface, report, arrivals, no_programs }
    }
}

impl Seen {
    fn distribution(&self, name: &str) -> Option<&Distribution> {
        self.report.as_ref()?.distributions.get(name)
    }

    /// Why something was not seen.
    fn unseen(&self, name: &str, otherwise: &str) -> Fact {
        let absent = self.report.as_ref().and_then(|report| report.absent.get(name));
        let why = self.no_programs.as_ref().or(absent);
        Fact::unknown(why.map_or(otherwise, String::as_str))
    }

    /// As facts of the interface, of which others are known.
    fn known(&self, own: &Known) -> Known {
        let stall = |ns: fn(&Distribution) -> u64| match self.distribution(STALL) {
            Some(times) => Fact::Number(ns(times) as f64 / 1000.0),
            None => self.unseen(STALL, "no interrupt with a poll came in the window"),
        };
        Known::from([
            ("stall.p99_us".into(), stall(|times| times.p99)),
            ("stall.most_us".into(), stall(|times| times.max)),
            ("polls.full_run".into(), self.full_run()),
            ("arrivals.at_period_share".into(), self.at_period_share(own)),
        ])
    }

    /// How many polls in a row took as many frames as they may.
    fn full_run(&self) -> Fact {
        match (self.distribution(FULL), self.distribution(POLLS)) {
            (Some(runs), _) => Fact::Number(runs.max as f64),
            // There were polls, and none was full.
            (None, Some(_)) => Fact::Number(0.0),
            (None, None) => self.unseen(POLLS, "no poll came in the window"),
        }
    }

    /// The part of the times between arrivals that are none, or the time for which the card holds interrupts back (a tenth more or less).
    fn at_period_share(&self, own: &Known) -> Fact {
        let period_ns = match own.get("coalesce.rx-usecs") {
            Some(Fact::Number(usecs)) => (usecs * 1000.0) as u64,
            _ => 0,
        };
        let arrivals = self.arrivals.as_ref();
        let at_once = arrivals.and_then(|times| times.share_between(0, AT_ONCE_NS));
        let (low, high) = ((period_ns - period_ns / 10).max(AT_ONCE_NS + 1), period_ns + period_ns / 10);
        let at_period = arrivals.and_then(|times| times.share_between(low, high));
        match at_once.zip(at_period) {
            Some((at_once, at_period)) => Fact::Number(at_once + at_period),
            None => self.unseen(ARRIVALS, "no two frames came in the window"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_arrivals_that_are_the_cards_own_are_a_share_of_all() {
        let mut times = Buckets::default();
        [500, 600, 9_500, 10_400, 50_000].into_iter().for_each(|ns| times.record(ns));
        let seen = |arrivals| Seen {
            node: "a".into(),
            interface: "eth0".into(),
            report: None,
            arrivals,
            no_programs: Some("no permission".into()),
        };
        let share = |usecs: &[f64]| {
            let own = usecs.iter().map(|&usecs| ("coalesce.rx-usecs".into(), Fact::Number(usecs)));
            seen(Some(times.clone())).at_period_share(&own.collect())
        };
        assert_eq!(share(&[10.0]), Fact::Number(0.8));
        assert_eq!(share(&[50.0]), Fact::Number(0.4 + 0.2));
        assert_eq!([share(&[]), share(&[0.0])], [Fact::Number(0.4), Fact::Number(0.4)]);
        let known = seen(None).known(&Known::new());
        assert!(known.values().all(|fact| *fact == Fact::unknown("no permission")), "{known:?}");
        assert_eq!(known.len(), 4);
    }
}
