//! Facts of a host or of nodes over a window, for `pathlab doctor` and `pathlab facts`.
//!
//! **What.** [`take`] reads all facts, waits for the window while cards' interrupts and polls are timed, reads again, and puts both together. How
//! long a card waited from interrupt to poll is what a ring has to hold.
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
use record::facts::{Fact, Facts, Known};
use record::llstat::Reading;
use record::{Problem, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Cards of which interrupts are timed.
const MOST_CARDS: usize = 4;
/// How often interrupts of the user are looked for.
const TURN: Duration = Duration::from_millis(20);
/// The distribution of `pathlab llstat` that is a stall.
const STALL: &str = "interrupt_to_poll_ns";

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

fn of_nodes(nodes: &Nodes, window: Duration) -> Result<Facts> {
    // Nobody needs a permission to look into the namespace that he is in.
    let others = nodes.len() > 1;
    let nodes = others.then(|| nodes.iter().map(kept).collect::<Result<_>>()).transpose()?;
    take(&FactWish { nodes, interface: None, window }, |_| {})
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
/// Host: a namespace cannot be read; input: there is no such interface; measured: it was interrupted.
pub fn take(wish: &FactWish, mut progress: impl FnMut(Duration)) -> Result<Facts> {
    let sources = sources(wish)?;
    let before = sources.read()?;
    let mut timed = timed(wish, &before);
    let functions = FunctionShares::start(wish.window);
    wait(wish.window, &mut timed, &mut progress)?;
    let functions = functions.stop();
    // The programs are read before the second reading makes frames of its own.
    let stalls: Vec<_> = timed.into_iter().map(stall).collect();
    let mut facts = sources.window(before, sources.read()?);
    let begun = clock::thread_cpu_ns();
    facts.host.extend(functions.known());
    facts.cost_cpu_ns += clock::thread_cpu_ns() - begun;
    for (node, interface, known) in stalls {
        if let Some(own) = facts.nodes.get_mut(&node).and_then(|node| node.interfaces.get_mut(&interface)) {
            own.extend(known);
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

/// How long the card waited from interrupt to poll.
fn stall(mut timed: Timed) -> (String, String, Known) {
    let last = timed.llstat.read().ok().flatten();
    let report = timed.first.zip(last).map(|(first, last)| {
        study::llstat::report(&timed.llstat.facts, &first, &last, first.at_ns, "duration")
    });
    let times = report.as_ref().and_then(|report| report.distributions.get(STALL));
    let why = || {
        let absent = report.as_ref().and_then(|report| report.absent.get(STALL));
        let no_programs = timed.llstat.facts.no_programs.as_ref();
        let why = no_programs.or(absent).cloned();
        Fact::unknown(why.unwrap_or_else(|| "no interrupt with a poll came in the window".into()))
    };
    let us = |ns: Option<u64>| ns.map_or_else(why, |ns| Fact::Number(ns as f64 / 1000.0));
    let known = Known::from([
        ("stall.p99_us".into(), us(times.map(|times| times.p99))),
        ("stall.most_us".into(), us(times.map(|times| times.max))),
    ]);
    (timed.node, timed.interface, known)
}
