//! When each of the last requests left, shared by the thread that sends and the one that reads the replies.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Requests in flight whose sent times are remembered.
pub const RING: usize = 1 << 16;

/// When each of the last requests left.
pub struct SentTimes {
    times: Box<[AtomicU64]>,
    /// Requests that left.
    many: AtomicU64,
    /// How many the kernel took, once no more will leave.
    accepted: AtomicU64,
}

impl Default for SentTimes {
    /// None yet.
    fn default() -> Self {
        let times = (0..RING).map(|_| AtomicU64::new(0)).collect();
        SentTimes { times, many: AtomicU64::new(0), accepted: AtomicU64::new(u64::MAX) }
    }
}

impl SentTimes {
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

    /// No more will leave than those `accepted`.
    pub fn finish(&self, accepted: u64) {
        self.accepted.store(accepted, Release);
    }

    /// True at `now_ns` when no more will leave and each has its response, or the last ones took longer than `patience_ns`
    /// since the reader knew of the end, which it keeps in `give_up_ns` (first [`u64::MAX`]).
    pub fn is_over(&self, responses: u64, now_ns: u64, patience_ns: u64, give_up_ns: &mut u64) -> bool {
        let accepted = self.accepted.load(Acquire);
        if accepted == u64::MAX {
            return false;
        }
        *give_up_ns = (*give_up_ns).min(now_ns + patience_ns);
        responses >= accepted || now_ns >= *give_up_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_times_are_known_while_they_are_in_the_ring() {
        let times = SentTimes::default();
        assert_eq!(times.of(0), None);
        for number in 0..RING as u64 + 10 {
            times.leaves(number, number + 1);
        }
        assert_eq!(times.of(5), None, "overwritten");
        assert_eq!(times.of(RING as u64 + 9), Some(RING as u64 + 10));
        assert_eq!(times.of(RING as u64 + 10), None, "not yet");
    }
}
