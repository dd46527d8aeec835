//! All clocks of the host at one instant.
//!
//! **Why.** Durations are those of `CLOCK_MONOTONIC`. Whether that ran at its rate, whether somebody set the time of day, and whether the
//! host slept is seen by reading the others beside it, twice.
//!
//! **Price.** Five readings without a system call, again while the thread was interrupted between them.

use record::conditions::ClockReading;

use crate::sys::clock;

/// How often the clocks are read for readings that lie close together.
const TRIES: u32 = 16;
/// Close together, in nanoseconds.
const CLOSE_NS: u64 = 2_000;

/// The clocks now; of several readings the one in which they were read closest together.
pub fn read() -> ClockReading {
    let mut best = once();
    for _ in 1..TRIES {
        if best.width_ns <= CLOSE_NS {
            break;
        }
        let again = once();
        if again.width_ns < best.width_ns {
            best = again;
        }
    }
    best
}

fn once() -> ClockReading {
    let before = clock::monotonic_ns();
    let (raw_ns, realtime_ns, boot_ns) = (clock::monotonic_raw_ns(), clock::realtime_ns(), clock::boot_ns());
    let width_ns = clock::monotonic_ns() - before;
    ClockReading { monotonic_ns: before + width_ns / 2, raw_ns, realtime_ns, boot_ns, width_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_this_host_go_on_together() {
        let (one, other) = (read(), read());
        assert!(other.monotonic_ns >= one.monotonic_ns && other.raw_ns >= one.raw_ns);
        assert!(one.boot_ns + one.width_ns >= one.monotonic_ns && one.realtime_ns > 0);
    }
}
