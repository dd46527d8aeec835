//! Whether the programs that hand frames on have anything left to do.
//!
//! **What.** A thread that sleeps would be awake if frames waited for it; one that never sleeps (it polls) has looked when it
//! has run since. A program of which every thread sleeps or has run holds nothing back that it would still hand on by itself, and
//! when no counter moved meanwhile, nothing is on its way.
//!
//! **Why not the counters alone.** A forwarder that gets no CPU moves no counter: two readings agree while its socket or ring
//! holds thousands of frames, and a test that ends then has its receiver stop before they come.
//!
//! **Price.** Two short files of each thread, only while a test ends.

use std::collections::BTreeMap;
use std::fs;

use super::Actor;
use super::processes::parse_stat;
use crate::sys::clock::parse_schedstat;

/// A thread that never sleeps has looked at all its ports when it has run for so long, in nanoseconds.
const A_LOOK_NS: u64 = 1_000_000;

/// One thread: its state and how long it has run, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thread {
    state: char,
    ran_ns: u64,
}

/// The threads of programs at one instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Threads {
    /// By program and number, e.g. `null of node s`.
    all: BTreeMap<(String, u32), Thread>,
}

impl Threads {
    /// Those of the actors that hand frames on; the ends of a test do not.
    pub fn read(actors: &[Actor]) -> Threads {
        let mut all = BTreeMap::new();
        for actor in actors.iter().filter(|actor| actor.is_program()) {
            let name = format!("{} of node {}", actor.role, actor.node);
            let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", actor.pid)) else { continue };
            for (number, thread) in tasks.flatten().filter_map(|entry| thread(&entry)) {
                all.insert((name.clone(), number), thread);
            }
        }
        Threads { all }
    }

    /// True when some thread does not sleep.
    pub fn is_awake(&self) -> bool {
        self.all.values().any(|thread| thread.state != 'S')
    }

    /// Programs that may not have looked since `before`, one short line each.
    pub fn unseen(&self, before: &Threads) -> Vec<String> {
        let mut lines: Vec<String> = vec![];
        for (key, now) in &self.all {
            let ran = before.all.get(key).map_or(0, |then| now.ran_ns.saturating_sub(then.ran_ns));
            if now.state == 'S' || ran >= A_LOOK_NS {
                continue;
            }
            let line = match now.state {
                'T' | 't' => format!("{} is stopped (state {})", key.0, now.state),
                state => format!("{} waits for a CPU (state {state})", key.0),
            };
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }
}

fn thread(entry: &fs::DirEntry) -> Option<(u32, Thread)> {
    let number = entry.file_name().to_str()?.parse().ok()?;
    let read = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
    let (state, ..) = parse_stat(&read("stat")?)?;
    // Without the file every thread that does not sleep is taken as one that has not looked.
    let ran_ns = read("schedstat").and_then(|text| parse_schedstat(&text)).map_or(0, |(ran, _)| ran);
    Some((number, Thread { state, ran_ns }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(states: &[(char, u64)]) -> Threads {
        let numbered = (1..).zip(states);
        let thread = |(number, &(state, ran_ns)): (u32, &(char, u64))| {
            (("null of node s".to_owned(), number), Thread { state, ran_ns })
        };
        Threads { all: numbered.map(thread).collect() }
    }

    #[test]
    fn a_program_has_looked_when_every_thread_sleeps_or_has_run() {
        let before = threads(&[('S', 5), ('R', 7_000_000)]);
        assert!(threads(&[('S', 5), ('R', 8_000_000)]).unseen(&before).is_empty());
        let starved = threads(&[('S', 5), ('R', 7_900_000)]);
        assert_eq!(starved.unseen(&before), ["null of node s waits for a CPU (state R)"]);
        let stopped = threads(&[('T', 5), ('T', 9_999_999_999)]);
        assert_eq!(stopped.unseen(&stopped), ["null of node s is stopped (state T)"]);
        assert!(starved.is_awake() && !threads(&[('S', 1)]).is_awake());
        assert!(threads(&[]).unseen(&before).is_empty(), "it has ended");
    }

    #[test]
    fn the_ends_of_a_test_are_no_programs() {
        let actor = |role: &str| Actor { pid: std::process::id(), role: role.into(), node: "s".into() };
        assert!(Threads::read(&[actor("sender"), actor("receiver")]).all.is_empty());
        assert!(Threads::read(&[actor("switch")]).is_awake(), "this thread runs");
    }
}
