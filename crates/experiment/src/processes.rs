//! What the CPUs did beside the test: which processes ran, and whether the two ends were stopped.
//!
//! **Why.** Counters tell that a CPU was full, not who filled it; and an end that was stopped for nine tenths of a test looks, to TCP,
//! like a slow network.
//!
//! **Price.** One pass over `/proc` before and one after a test (some 20 µs for each process of the host), and meanwhile one short file for
//! each end, at first every [`SHORTEST`], then after an eighth of the time that has passed, at last every [`LONGEST`]. It is the waking of this
//! thread that costs: at 10 ms all the time a stream of small datagrams on two CPUs lost 5 % of its rate.

use linux::observe::Actor;
use linux::observe::processes::{HostProcess, host_processes, state};
use linux::sys::clock;
use record::run::OtherWork;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// The shortest and the longest time between two looks at the state of the ends.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(100);
/// Use of one CPU, in percent, from which a process is mentioned.
const MENTIONED: f64 = 5.0;

/// For how long an end was looked at, and for how long it was stopped: a look stands for the time since the one before.
#[derive(Debug, Clone, Copy, Default)]
struct Looks {
    all_ns: u64,
    stopped_ns: u64,
}

impl Looks {
    fn add(&mut self, since_ns: u64, is_stopped: bool) {
        self.all_ns += since_ns;
        self.stopped_ns += if is_stopped { since_ns } else { 0 };
    }

    fn stopped_percent(self) -> f64 {
        self.stopped_ns as f64 * 100.0 / self.all_ns.max(1) as f64
    }
}

/// How long to wait for the next look when so much has passed.
fn pause(passed: Duration) -> Duration {
    (passed / 8).clamp(SHORTEST, LONGEST)
}

/// Watches the host while a test runs.
pub struct ProcessWatch {
    begun_ns: u64,
    before: Vec<HostProcess>,
    actors: Vec<Actor>,
    done: Arc<AtomicBool>,
    looks: Option<JoinHandle<Vec<Looks>>>,
}

/// What was seen.
#[derive(Default)]
pub struct Seen {
    /// Processes that are not of the test, most CPU time first.
    pub others: Vec<OtherWork>,
    /// Process id, and the share of the time that it was stopped, in percent.
    pub stopped: Vec<(u32, f64)>,
}

impl ProcessWatch {
    /// From now on; the actors are those of the test.
    pub fn watch(actors: &[Actor]) -> ProcessWatch {
        let done = Arc::new(AtomicBool::new(false));
        let pids: Vec<u32> = actors.iter().map(|actor| actor.pid).collect();
        let ends = Arc::clone(&done);
        let looks = std::thread::Builder::new().spawn(move || look_at(&pids, &ends)).ok();
        ProcessWatch {
            begun_ns: clock::monotonic_ns(),
            before: host_processes(),
            actors: actors.to_vec(),
            done,
            looks,
        }
    }

    /// The states of the ends are no longer of interest: the sender is done.
    pub fn settle(&self) {
        self.done.store(true, Relaxed);
        self.looks.iter().for_each(|looks| looks.thread().unpark());
    }

    /// Ends it; a tick of process times is `1 / tick_hz` seconds.
    pub fn end(mut self, tick_hz: u64) -> Seen {
        self.settle();
        let looks = self.looks.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let stopped =
            self.actors.iter().zip(looks).map(|(actor, looks)| (actor.pid, looks.stopped_percent()));
        let ticks = (clock::monotonic_ns() - self.begun_ns) as f64 / 1e9 * tick_hz as f64;
        Seen {
            stopped: stopped.collect(),
            others: others(&self.before, &host_processes(), &self.is_own(), ticks),
        }
    }

    fn is_own(&self) -> impl Fn(u32) -> bool {
        let own = std::process::id();
        move |pid| pid == own || self.actors.iter().any(|actor| actor.pid == pid)
    }
}

impl Drop for ProcessWatch {
    fn drop(&mut self) {
        self.settle();
    }
}

fn look_at(pids: &[u32], done: &AtomicBool) -> Vec<Looks> {
    let mut looks = vec![Looks::default(); pids.len()];
    let begun_ns = clock::monotonic_ns();
    let mut last_ns = begun_ns;
    while !done.load(Relaxed) {
        std::thread::park_timeout(pause(Duration::from_nanos(last_ns - begun_ns)));
        let now_ns = clock::monotonic_ns();
        for (&pid, looks) in pids.iter().zip(&mut looks) {
            looks.add(now_ns - last_ns, matches!(state(pid), Some('T' | 't')));
        }
        last_ns = now_ns;
    }
    looks
}

/// Who used how much between two readings that lie so many ticks apart.
fn others(
    before: &[HostProcess],
    after: &[HostProcess],
    is_own: &impl Fn(u32) -> bool,
    ticks: f64,
) -> Vec<OtherWork> {
    let used = |now: &HostProcess| {
        let then = before.iter().find(|then| then.pid == now.pid && then.name == now.name)?;
        let cpu_percent = now.ticks.checked_sub(then.ticks)? as f64 * 100.0 / ticks.max(1.0);
        let HostProcess { pid, ref name, nice, cpu, .. } = *now;
        Some(OtherWork { pid, name: name.clone(), nice, cpu, cpu_percent })
    };
    let mut found: Vec<OtherWork> = after.iter().filter(|one| !is_own(one.pid)).filter_map(used).collect();
    found.retain(|one| one.cpu_percent >= MENTIONED);
    found.sort_by(|one, other| other.cpu_percent.total_cmp(&one.cpu_percent));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rare_and_stand_for_the_time_between_them() {
        let (mut passed, mut looks, mut count) = (Duration::ZERO, Looks::default(), 0);
        while passed < Duration::from_secs(3) {
            let pause = pause(passed);
            passed += pause;
            count += 1;
            // It is stopped for the last second.
            looks.add(pause.as_nanos() as u64, passed > Duration::from_secs(2));
        }
        assert!((35..60).contains(&count), "{count}");
        assert!((looks.stopped_percent() - 100.0 / 3.0).abs() < 4.0, "{looks:?}");
        assert_eq!(Looks::default().stopped_percent(), 0.0);
    }

    #[test]
    fn who_used_a_cpu_is_told_and_the_ends_are_not() {
        let at = |pid, name: &str, ticks| HostProcess { pid, name: name.into(), ticks, nice: 0, cpu: 1 };
        let before = [at(1, "hog", 5), at(2, "end", 0), at(3, "idle", 9), at(4, "old", 7)];
        let after =
            [at(1, "hog", 85), at(2, "end", 90), at(3, "idle", 10), at(4, "new", 90), at(5, "late", 90)];
        let seen = others(&before, &after, &|pid| pid == 2, 100.0);
        assert_eq!(seen.iter().map(|one| (one.pid, one.cpu_percent)).collect::<Vec<_>>(), [(1, 80.0)]);
    }
}
