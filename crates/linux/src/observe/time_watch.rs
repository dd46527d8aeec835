//! Where the time of one test goes: all sources of `record::time`, begun and ended together.
//!
//! **What.** Accounts of waiting and stalls for every test ([`super::waits`]); programs at the scheduler's events ([`super::scheduler`])
//! and samples ([`super::profile`]) if a profile is asked for. **Why apart from a snapshot.** The window is the traffic: it ends before it is
//! waited until queues are empty, and names are looked up when nothing is measured any more.
//!
//! **Price.** Without a profile two small files for each thread. With one, a thread that empties the rings 20 times a second;
//! `docs/profile.md` has what it costs.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use record::snapshot::Snapshot;
use record::time::{PollTime, Stall, TimeObservation};
use record::{Problem, Result};

use super::Actor;
use super::profile::Collected;
use super::scheduler::{SchedulerPrograms, SchedulerReading};
use super::symbols::Symbols;
use super::waits::{self, Waiting};
use crate::sys::clock;
use crate::sys::netns;
use crate::sys::perf_samples::Samples;

/// How often rings are emptied; each holds what comes in a second.
const PERIOD: Duration = Duration::from_millis(50);

/// How deep is looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeDepth {
    /// The kernel's accounts.
    Accounts,
    /// And programs at the scheduler's events.
    Scheduler,
    /// And so many samples of each CPU in a second.
    Profile(u32),
}

/// Watches where the time goes.
#[derive(Debug)]
pub struct TimeWatch {
    begun_ns: u64,
    waiting: Vec<Waiting>,
    stalls: Vec<Stall>,
    deep: Option<Deep>,
    /// What was read at the end.
    ended: Option<Ended>,
}

/// What is there with a profile only.
#[derive(Debug)]
struct Deep {
    hz: Option<u32>,
    done: Arc<AtomicBool>,
    worker: Option<JoinHandle<Gathered>>,
}

/// What the worker has when it ends.
#[derive(Debug)]
struct Gathered {
    collected: Collected,
    cpus: u32,
    seen: std::result::Result<SchedulerReading, String>,
}

#[derive(Debug)]
struct Ended {
    observation: TimeObservation,
    gathered: Option<Gathered>,
}

/// Whether all CPUs can be looked at so many times a second.
///
/// # Errors
/// A host problem with what forbids it.
pub fn check_profile(hz: u32) -> Result<()> {
    Samples::start(hz).map(drop).map_err(|error| refused(&error))
}

fn refused(error: &std::io::Error) -> Problem {
    let setting = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/kernel/{name}"))
            .map_or("unknown".into(), |text| text.trim().to_owned())
    };
    let (why, advice) = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => (
            format!(
                "samples of all CPUs are not permitted ({error}; kernel.perf_event_paranoid is {})",
                setting("perf_event_paranoid")
            ),
            "run as root on the host (CAP_PERFMON), or without --profile",
        ),
        _ => (
            format!("samples of all CPUs cannot be taken: perf_event_open: {error}"),
            "run without --profile",
        ),
    };
    Problem::host(why).at("--profile").help(advice)
}

impl TimeWatch {
    /// From now on.
    ///
    /// # Errors
    /// A host problem when a profile is wanted and cannot be had.
    pub fn start(actors: &[Actor], depth: TimeDepth) -> Result<TimeWatch> {
        let mut waiting = waits::begin(actors);
        let deep = match depth {
            TimeDepth::Accounts => None,
            TimeDepth::Scheduler => Some(Deep::start(None, &waiting)?),
            TimeDepth::Profile(hz) => Some(Deep::start(Some(hz), &waiting)?),
        };
        // It takes a moment until the kernel has checked the programs.
        waiting.iter_mut().for_each(Waiting::restart);
        Ok(TimeWatch { begun_ns: clock::monotonic_ns(), waiting, stalls: waits::stalls(), deep, ended: None })
    }

    /// Ends the window: the traffic is over.
    pub fn stop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let window_ns = clock::monotonic_ns() - self.begun_ns;
        let gathered = self.deep.as_mut().and_then(Deep::end);
        let mut missing = vec![];
        let waits = waits::end(&self.waiting, &mut missing);
        let stalls = waits::stalls_since(&self.stalls, &waits::stalls());
        if stalls.is_empty() {
            missing.push("stalls: this kernel has no /proc/pressure".into());
        }
        let observation = TimeObservation { window_ns, waits, stalls, missing, ..TimeObservation::default() };
        self.ended = Some(Ended { observation, gathered });
    }

    /// What was seen, with names. Nodes have their namespaces, and the snapshot their interfaces.
    pub fn end(mut self, nodes: &[(String, BorrowedFd<'_>)], snapshot: &Snapshot) -> TimeObservation {
        self.stop();
        let hz = self.deep.as_ref().and_then(|deep| deep.hz);
        let Some(Ended { mut observation, gathered }) = self.ended.take() else {
            return TimeObservation::default();
        };
        let Some(Gathered { collected, cpus, seen }) = gathered else { return observation };
        match seen {
            Ok(seen) => put_seen(&mut observation, &self.waiting, seen, &places(nodes, snapshot)),
            Err(why) => observation.missing.push(format!("who ran while others waited: {why}")),
        }
        if let Some(hz) = hz {
            let roles = observation.waits.iter().filter(|wait| wait.role != "kernel");
            let roles: Vec<(u32, String)> = roles.map(|wait| (wait.pid, wait.role.clone())).collect();
            // Programs of the kernel have names there only while they are loaded: it is read anew.
            let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
            observation.profile = Some(collected.named(hz, cpus, &roles, &Symbols::parse(&text)));
        }
        observation
    }
}

impl Deep {
    fn start(hz: Option<u32>, waiting: &[Waiting]) -> Result<Deep> {
        let pids: Vec<u32> = waiting.iter().map(|one| one.pid).collect();
        let programs = SchedulerPrograms::start(&pids);
        let samples = hz.map(Samples::start).transpose().map_err(|error| refused(&error))?;
        let done = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&done);
        let worker = std::thread::Builder::new()
            .name("profile".into())
            .spawn(move || gather(samples, programs, pids.len(), &ends))
            .map_err(|error| Problem::host(format!("no thread for the profile: {error}")))?;
        Ok(Deep { hz, done, worker: Some(worker) })
    }

    fn end(&mut self) -> Option<Gathered> {
        self.done.store(true, Relaxed);
        let worker = self.worker.take()?;
        worker.thread().unpark();
        worker.join().ok()
    }
}

impl Drop for Deep {
    fn drop(&mut self) {
        self.end();
    }
}

fn gather(
    mut samples: Option<Samples>,
    mut programs: std::result::Result<SchedulerPrograms, String>,
    processes: usize,
    done: &AtomicBool,
) -> Gathered {
    let mut collected = Collected::default();
    while !done.load(Relaxed) {
        samples.iter_mut().for_each(|samples| samples.read(|record| collected.take(record)));
        if let Ok(programs) = &mut programs {
            programs.turn();
        }
        std::thread::park_timeout(PERIOD);
    }
    let seen = programs.and_then(|programs| {
        programs.read(processes).map_err(|error| format!("what the programs counted cannot be read: {error}"))
    });
    samples.iter_mut().for_each(|samples| samples.read(|record| collected.take(record)));
    Gathered { collected, cpus: samples.map_or(0, |samples| samples.cpus()), seen }
}

/// Names of interfaces by the number of their namespace and their own.
fn places(nodes: &[(String, BorrowedFd<'_>)], snapshot: &Snapshot) -> BTreeMap<[u32; 2], String> {
    let mut names = BTreeMap::from([([0, 0], "backlog".to_owned())]);
    for (node, namespace) in nodes {
        let (Ok(inode), Some(found)) = (netns::inode(*namespace), snapshot.nodes.get(node)) else { continue };
        for link in &found.links {
            names.insert([inode as u32, link.index], format!("{node}:{}", link.name));
        }
    }
    names
}

fn put_seen(
    observation: &mut TimeObservation,
    waiting: &[Waiting],
    mut seen: SchedulerReading,
    places: &BTreeMap<[u32; 2], String>,
) {
    for (one, wait) in waiting.iter().zip(seen.waits) {
        if let Some(found) = observation.waits.iter_mut().find(|found| found.pid == one.pid) {
            found.seen = Some(wait);
        }
    }
    let place = |key: [u32; 2]| {
        let other = || format!("interface {} of another namespace", key[1]);
        places.get(&key).cloned().unwrap_or_else(other)
    };
    let poll =
        |(key, [polls, frames, ns]): ([u32; 2], [u64; 3])| PollTime { place: place(key), polls, frames, ns };
    seen.counts.polls = seen.polls.into_iter().map(poll).collect();
    seen.counts.polls.sort_by_key(|one| std::cmp::Reverse(one.ns));
    observation.scheduler = Some(seen.counts);
}
