//! Clocks, in nanoseconds. The only place of the project where time is read.

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("the standard clocks exist");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// `CLOCK_MONOTONIC`: the clock of every measurement; shared by all namespaces of one host.
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// `CLOCK_REALTIME`: for people and for names of records, never for differences.
pub fn realtime_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// `CLOCK_MONOTONIC_RAW`: the same counter without the corrections of NTP.
pub fn monotonic_raw_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC_RAW)
}

/// `CLOCK_BOOTTIME`: [`monotonic_ns`] with the time that the host slept.
pub fn boot_ns() -> u64 {
    read(ClockId::CLOCK_BOOTTIME)
}

/// CPU time of this process.
pub fn process_cpu_ns() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the calling thread.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// What a thread has had of the CPUs since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// Time running.
    pub cpu_ns: u64,
    /// Time runnable but waiting for a CPU (`/proc/thread-self/schedstat`); 0 where the kernel does not tell.
    pub wait_ns: u64,
}

impl ThreadTime {
    /// That of the calling thread until now.
    pub fn now() -> ThreadTime {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        ThreadTime { cpu_ns: thread_cpu_ns(), wait_ns: parse_schedstat(&text).map_or(0, |(_, wait)| wait) }
    }

    /// That of the calling thread since then, without what telling it takes.
    pub fn since(then: ThreadTime) -> ThreadTime {
        let cpu_ns = thread_cpu_ns().saturating_sub(then.cpu_ns);
        ThreadTime { cpu_ns, wait_ns: ThreadTime::now().wait_ns.saturating_sub(then.wait_ns) }
    }
}

impl std::ops::AddAssign for ThreadTime {
    fn add_assign(&mut self, other: ThreadTime) {
        self.cpu_ns += other.cpu_ns;
        self.wait_ns += other.wait_ns;
    }
}

/// Running and waiting time in nanoseconds from a `schedstat` file: running, waiting, slices.
pub fn parse_schedstat(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace().map(|word| word.parse().ok());
    Some((words.next()??, words.next()??))
}

/// Sleeps until `CLOCK_MONOTONIC` shows `at_ns`; returns at once when that is past. Wakes up late by the timer's
/// slack ([`precise_timers`]) and whatever the scheduler adds; a signal does not cut it short.
pub fn sleep_until(at_ns: u64) {
    let at = TimeSpec::new((at_ns / 1_000_000_000) as i64, (at_ns % 1_000_000_000) as i64);
    let sleep = || clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at);
    while sleep() == Err(Errno::EINTR) {}
}

/// Asks for timers of the calling thread that are not rounded up for the sake of power (`PR_SET_TIMERSLACK` 1 ns
/// instead of the usual 50 µs). Where that is refused, sleeps are only less exact.
pub fn precise_timers() {
    let _ = nix::sys::prctl::set_timerslack(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_never_ends_early() {
        precise_timers();
        let until = monotonic_ns() + 2_000_000;
        sleep_until(until);
        assert!(monotonic_ns() >= until);
        sleep_until(0);
    }
}
