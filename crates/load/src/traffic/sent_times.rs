//! When each of the last requests left, shared by the thread that sends and the one that reads the replies.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Requests in flight whose sent times are remembered.
pub const RING: usize = 1 << 16;

/// When each of the last requests left.
pub struct SentTimes {
    times: Box<[AtomicU64]>,
    /// Requests that left.
    many: AtomicU64,
    /// No more will leave.
    done: AtomicBool,
}

impl SentTimes {
    /// None yet.
    pub fn new() -> Self {
        let times = (0..RING).map(|_| AtomicU64::new(0)).collect();
        SentTimes { times, many: AtomicU64::new(0), done: AtomicBool::new(false) }
    }

    /// Request `number` leaves at `at_ns`.
    #[inline]
    pub fn leaves(&self, number: u64, at_ns: u64) {
        self.times[number as usize % RING].store(at_ns, Relaxed);
        self.many.store(number + 1, Release);
    }

    /// When request `number` left, if that is still known.
    #[inline]
    pub fn of(&self, number: u64) -> Option<u64> {
        let time = self.times[number as usize % RING].load(Relaxed);
        let many = self.many.load(Acquire);
        (number < many && many - number < RING as u64 && time != 0).then_some(time)
    }

    /// No more will leave.
    pub fn finish(&self) {
        self.done.store(true, Release);
    }

    /// True when no more will leave.
    pub fn is_done(&self) -> bool {
        self.done.load(Acquire)
    }
}

impl Default for SentTimes {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_times_are_known_while_they_are_in_the_ring() {
        let times = SentTimes::new();
        assert_eq!(times.of(0), None);
        for number in 0..RING as u64 + 10 {
            times.leaves(number, number + 1);
        }
        assert_eq!(times.of(5), None, "overwritten");
        assert_eq!(times.of(RING as u64 + 9), Some(RING as u64 + 10));
        assert_eq!(times.of(RING as u64 + 10), None, "not yet");
    }
}
