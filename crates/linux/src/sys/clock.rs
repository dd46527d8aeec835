//! Clocks, in nanoseconds. The only place of the project where time is read.

use nix::time::{ClockId, clock_gettime};

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

/// CPU time of the calling thread.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process.
pub fn process_cpu_ns() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}
