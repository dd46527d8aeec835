//! Who waited for a CPU, how long, and who had it meanwhile: counted at the scheduler's own events.
//!
//! **What.** [`SchedulerPrograms`] has a program at each of eight raw tracepoints ([`program`]) and reads what they counted of some
//! processes, of polls and of themselves. **Why.** `/proc/PID/schedstat` has the sum of all waits, not their distribution and not
//! who ran.
//!
//! **What it cannot see.** Task switches that were not shown to the program are counted by it: the task that gives a CPU up is then not the
//! one that had got it.
//!
//! **Price.** The kernel measures the first [`ENOUGH_RUNS`] runs, and that is part of the result; `docs/profile.md` has the cost for a
//! whole path. Needs `CAP_BPF` and `CAP_PERFMON`. Nothing is pinned: all ends with the process.

mod layout;
pub mod program;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use record::buckets::{BUCKETS, Buckets};
use record::delta::sum;
use record::time::{SchedulerCounts, SeenWait, Taker};

use self::layout::{Cell, Group, Layout, Polls, SchedulerEvent, TURN_BYTES, TURNS, Thread};
use self::program::{FORGOTTEN, MapFds, assemble};
use super::btf;
use super::tracepoints::{attach, refused};
use crate::netlink::{u32_at, u64_at};
use crate::sys::bpf;

/// So many runs are measured, and no more: the measurement costs more than most programs.
const ENOUGH_RUNS: u64 = 20_000;
/// Threads of the test's processes.
const MOST_THREADS: u32 = 1024;
/// Pairs of who waited and who ran.
const MOST_TAKERS: u32 = 2048;
/// Interfaces that are polled.
const MOST_POLLED: u32 = 256;
/// Bytes of a taker's value: its time and its name.
const TAKER_BYTES: u32 = 24;
/// The namespace of process ids that the kernel's own numbers are of (`PROC_PID_INIT_INO`).
const FIRST_PIDS: &str = "pid:[4026531836]";

/// Running programs and what they count.
#[derive(Debug)]
pub struct SchedulerPrograms {
    running: Vec<Running>,
    maps: Maps,
    /// While it is open the kernel measures the programs.
    measuring: Option<OwnedFd>,
}

#[derive(Debug)]
struct Running {
    event: SchedulerEvent,
    // The order of fields is the order of release: first the event, then the program.
    _link: OwnedFd,
    program: OwnedFd,
}

#[derive(Debug)]
struct Maps {
    cell: bpf::Map,
    turns: bpf::Map,
    places: bpf::Map,
    groups: bpf::Map,
    threads: bpf::Map,
    buckets: bpf::Map,
    takers: bpf::Map,
    polls: bpf::Map,
}

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SchedulerReading {
    /// Of each process, in the order in which they were given.
    pub waits: Vec<SeenWait>,
    /// Of the whole host; `polls` is empty.
    pub counts: SchedulerCounts,
    /// Polls, frames and nanoseconds by the number of a namespace and that of an interface in it; both 0 for the backlog.
    pub polls: Vec<([u32; 2], [u64; 3])>,
}

impl Maps {
    fn create(pids: &[u32]) -> io::Result<Maps> {
        use bpf::{MAP_HASH, MAP_PERCPU_ARRAY, MAP_PERCPU_HASH};
        let words = |count: usize| count as u32 * 8;
        let places = pids.len().max(1) as u32;
        let maps = Maps {
            cell: bpf::Map::create(MAP_PERCPU_ARRAY, 4, words(Cell::COUNT), 1, "pathlab_cell")?,
            turns: bpf::Map::create(MAP_PERCPU_ARRAY, 4, TURNS * TURN_BYTES, 1, "pathlab_turns")?,
            places: bpf::Map::create(MAP_HASH, 4, 4, places, "pathlab_places")?,
            groups: bpf::Map::create(MAP_PERCPU_ARRAY, 4, words(Group::COUNT), places, "pathlab_groups")?,
            threads: bpf::Map::create(MAP_HASH, 4, words(Thread::COUNT), MOST_THREADS, "pathlab_threads")?,
            buckets: bpf::Map::create(MAP_PERCPU_ARRAY, 4, 8, places * 2 * BUCKETS as u32, "pathlab_waits")?,
            takers: bpf::Map::create(MAP_PERCPU_HASH, 8, TAKER_BYTES, MOST_TAKERS, "pathlab_takers")?,
            polls: bpf::Map::create(MAP_PERCPU_HASH, 8, words(Polls::COUNT), MOST_POLLED, "pathlab_polls")?,
        };
        for (place, pid) in (0u32..).zip(pids) {
            maps.places.update(&pid.to_ne_bytes(), &place.to_ne_bytes())?;
        }
        Ok(maps)
    }

    fn fds(&self) -> MapFds {
        MapFds {
            cell: self.cell.raw_fd(),
            turns: self.turns.raw_fd(),
            places: self.places.raw_fd(),
            groups: self.groups.raw_fd(),
            threads: self.threads.raw_fd(),
            buckets: self.buckets.raw_fd(),
            takers: self.takers.raw_fd(),
            polls: self.polls.raw_fd(),
        }
    }
}

impl SchedulerPrograms {
    /// Begins to count those processes.
    ///
    /// # Errors
    /// The sentence why nothing can be counted here.
    pub fn start(pids: &[u32]) -> Result<SchedulerPrograms, String> {
        let own = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        if own.as_os_str() != FIRST_PIDS {
            return Err(
                "process ids here are not those of the kernel's events (a namespace of processes)".into()
            );
        }
        let layout = Layout::find(btf::of_kernel()?)?;
        let maps = Maps::create(pids).map_err(|error| refused("bpf(BPF_MAP_CREATE)", &error))?;
        let measuring = bpf::measure_programs().ok();
        let mut running = vec![];
        for event in SchedulerEvent::ALL {
            match run(event, &layout, &maps.fds()) {
                Ok(one) => running.push(one),
                Err(why) if event.is_needed() => return Err(why),
                // A kernel without that event has less to say.
                Err(_) => {}
            }
        }
        Ok(SchedulerPrograms { running, maps, measuring })
    }

    /// To be called now and then: ends the kernel's measurement of the programs once it has seen enough runs.
    pub fn turn(&mut self) {
        let runs = |one: &Running| measured(one).map_or(0, |(_, runs)| runs);
        if self.measuring.is_some() && sum(self.running.iter().map(runs)) >= ENOUGH_RUNS {
            self.measuring = None;
        }
    }

    /// What was counted since the start of these many processes. Counting goes on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read(&self, processes: usize) -> io::Result<SchedulerReading> {
        let cell = self.maps.cell.lookup(&0u32.to_ne_bytes())?.unwrap_or_default();
        let cell = summed(&cell, Cell::COUNT);
        let buckets = self.buckets(processes)?;
        let mut takers = self.takers()?;
        let one = |(place, waits): (usize, [Buckets; 2])| self.group(place, waits, &mut takers);
        let waits = buckets.into_iter().enumerate().map(one).collect::<io::Result<_>>()?;
        let polls = self.maps.polls.entries()?.into_iter().map(|(key, value)| {
            let words = summed(&value, Polls::COUNT);
            let key = [0, 4].map(|at| u32_at(&key, at).unwrap_or(0));
            (key, [Polls::Count, Polls::Frames, Polls::Ns].map(|word| words[word as usize]))
        });
        Ok(SchedulerReading { waits, counts: self.counts(&cell), polls: polls.collect() })
    }

    fn counts(&self, cell: &[u64]) -> SchedulerCounts {
        let runs = |event: SchedulerEvent| {
            let place = SchedulerEvent::ALL.iter().position(|&one| one == event).unwrap_or(0);
            cell[Cell::Runs0 as usize + place]
        };
        let cost = |one: &Running| {
            let (ns, seen) = measured(one).filter(|(_, seen)| *seen > 0)?;
            Some((ns as f64 / seen as f64 * runs(one.event) as f64) as u64)
        };
        let costs: Vec<u64> = self.running.iter().filter_map(cost).collect();
        SchedulerCounts {
            switches: runs(SchedulerEvent::Switch),
            missed_switches: cell[Cell::Missed as usize],
            unseen_begins: cell[Cell::Unseen as usize],
            no_room: cell[Cell::NoRoom as usize],
            net_rx_ns: cell[Cell::NetRxNs as usize],
            polls: vec![],
            cost_ns: (!costs.is_empty()).then(|| sum(costs)),
            runs: sum(SchedulerEvent::ALL.into_iter().map(runs)),
        }
    }

    fn group(
        &self,
        place: usize,
        [mut woken, mut preempted]: [Buckets; 2],
        takers: &mut BTreeMap<u32, Vec<Taker>>,
    ) -> io::Result<SeenWait> {
        let place = place as u32;
        let value = self.maps.groups.lookup(&place.to_ne_bytes())?.unwrap_or_default();
        let words = summed(&value, Group::COUNT);
        let word = |word: Group| words[word as usize];
        (woken.sum, woken.summed) = (word(Group::WokenNs), word(Group::Woken));
        (preempted.sum, preempted.summed) = (word(Group::PreemptedNs), word(Group::Preempted));
        Ok(SeenWait {
            ran_ns: word(Group::RanNs),
            waited_ns: word(Group::WokenNs).saturating_add(word(Group::PreemptedNs)),
            woken: woken.summary(),
            preempted: preempted.summary(),
            takers: takers.remove(&place).unwrap_or_default(),
            lock_ns: word(Group::LockNs),
            locks: word(Group::Locks),
        })
    }

    /// Waits after being woken and after being preempted, by place.
    fn buckets(&self, processes: usize) -> io::Result<Vec<[Buckets; 2]>> {
        let empty = || Buckets { counts: vec![0; BUCKETS], sum: 0, summed: 0 };
        let mut found: Vec<[Buckets; 2]> = (0..processes).map(|_| [empty(), empty()]).collect();
        for (key, value) in self.maps.buckets.entries()? {
            let key = u32_at(&key, 0).unwrap_or(u32::MAX) as usize;
            if let Some(place) = found.get_mut(key / (2 * BUCKETS)) {
                place[key / BUCKETS % 2].counts[key % BUCKETS] = summed(&value, 1)[0];
            }
        }
        Ok(found)
    }

    /// Who ran while a process waited, by its place; most time first.
    fn takers(&self) -> io::Result<BTreeMap<u32, Vec<Taker>>> {
        let mut found: BTreeMap<u32, Vec<Taker>> = BTreeMap::new();
        for (key, value) in self.maps.takers.entries()? {
            let [place, pid] = [0, 4].map(|at| u32_at(&key, at).unwrap_or(0));
            found.entry(place).or_default().push(taker(pid, &value));
        }
        found.values_mut().for_each(|takers| takers.sort_by_key(|one| std::cmp::Reverse(one.ns)));
        Ok(found)
    }
}

/// A taker from its values on all CPUs.
fn taker(pid: u32, value: &[u8]) -> Taker {
    let of_cpus = value.chunks_exact(TAKER_BYTES as usize);
    let times: Vec<u64> = of_cpus.clone().map(|value| u64_at(value, 0).unwrap_or(0)).collect();
    let cpu = (0..).zip(&times).max_by_key(|(_, ns)| **ns).map_or(0, |(cpu, _)| cpu);
    let names = of_cpus.map(|value| name(&value[8..]));
    let named = match pid {
        0 => "idle".into(),
        FORGOTTEN => String::new(),
        _ => names.max_by_key(String::len).unwrap_or_default(),
    };
    Taker { pid: (pid != FORGOTTEN).then_some(pid), name: named, cpu, ns: sum(times) }
}

/// A name that ends with a zero.
fn name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Nanoseconds and runs that the kernel measured.
fn measured(one: &Running) -> Option<(u64, u64)> {
    bpf::run_time(one.program.as_fd()).ok().flatten()
}

/// The words of a per-CPU value, added up over the CPUs.
fn summed(value: &[u8], words: usize) -> Vec<u64> {
    let word = |place: usize| {
        let of_cpus = value.chunks_exact(words * 8);
        sum(of_cpus.map(|of_cpu| u64_at(of_cpu, place * 8).unwrap_or(0)))
    };
    (0..words).map(word).collect()
}

fn run(event: SchedulerEvent, layout: &Layout, maps: &MapFds) -> Result<Running, String> {
    let (link, program) = attach(event.name(), assemble(event, layout, maps))?;
    Ok(Running { event, _link: link, program })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::waits::Account;
    use nix::sys::signal::Signal;
    use std::process::{Child, Command};
    use std::time::Duration;

    #[test]
    fn a_taker_is_named_wherever_it_ran() {
        let mut value = vec![0u8; 48];
        value[24..32].copy_from_slice(&7u64.to_ne_bytes());
        value[32..36].copy_from_slice(b"burn");
        let found = taker(12, &value);
        assert_eq!(found, Taker { pid: Some(12), name: "burn".into(), cpu: 1, ns: 7 });
        assert_eq!((taker(0, &value).name.as_str(), taker(FORGOTTEN, &value).pid), ("idle", None));
    }

    /// Two endless loops share a CPU: the programs must see what the kernel's own account has, and each of the loops must be
    /// what the other waited for. They are stopped while they are read: nobody waits between one reading and the other.
    #[test]
    fn the_programs_agree_with_schedstat_and_name_who_ran() {
        let hog =
            || Hog(Command::new("taskset").args(["1", "sh", "-c", "while :; do :; done"]).spawn().unwrap());
        let hogs = [hog(), hog()];
        let pids = [hogs[0].0.id(), hogs[1].0.id()];
        let programs = match SchedulerPrograms::start(&pids) {
            Ok(programs) => programs,
            Err(why) => return println!("SKIP: programs at the scheduler's events: {why}"),
        };
        let read = || {
            hogs.iter().for_each(Hog::stop);
            (programs.read(2).unwrap(), Account::read(pids[0]).unwrap())
        };
        // The begin of a wait that went on at the start is not known to the programs.
        std::thread::sleep(Duration::from_millis(50));
        let (seen, account) = read();
        hogs.iter().for_each(|hog| hog.signal(Signal::SIGCONT));
        let told_so_far = || Account::read(pids[0]).unwrap().waited_ns - account.waited_ns;
        let enough = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            told_so_far() > 200_000_000
        });
        assert!(enough, "two loops on one CPU: {} ns of waiting in ten seconds", told_so_far());
        let (later, account_later) = read();
        let waited = (later.waits[0].waited_ns - seen.waits[0].waited_ns) as f64;
        let told = (account_later.waited_ns - account.waited_ns) as f64;
        assert!((waited - told).abs() < 0.05 * told, "{waited} {told}");
        let wait = &later.waits[0];
        assert_eq!(sum(wait.takers.iter().map(|one| one.ns)), wait.waited_ns, "every wait has its takers");
        // A machine that others use may have given them more.
        assert!(wait.takers.iter().any(|one| one.pid == Some(pids[1]) && one.ns > 0), "{wait:?}");
        assert_eq!(later.counts.no_room, 0);
    }

    struct Hog(Child);

    impl Hog {
        fn signal(&self, signal: Signal) {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.0.id() as libc::pid_t), signal).unwrap();
        }

        /// Stops it, and returns when it has stopped: when it ran once more.
        fn stop(&self) {
            self.signal(Signal::SIGSTOP);
            let stat = format!("/proc/{}/stat", self.0.id());
            let stopped = (0..1000).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                std::fs::read_to_string(&stat).unwrap().contains(") T ")
            });
            assert!(stopped, "{stat}: it does not stop");
        }
    }

    impl Drop for Hog {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
