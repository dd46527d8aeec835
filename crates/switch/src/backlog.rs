//! How much may wait for a peer that does not read.
//!
//! **What.** [`Backlog`] looks at the bytes that wait for one connection and says when to stop answering it, and when to give it up.
//!
//! **Why.** A peer that asks and does not read makes bytes here: 64 KiB of questions can be answered by gigabytes. And a peer that reads as fast
//! as it can may ask one question whose answer (a million rules) is longer than any sensible limit. So one answer is excused, however
//! long it is, but the next question waits until it was read: above [`BACKLOG`] nothing more is read or answered. What comes without
//! being asked for (packet-ins, rules that went away) cannot wait, so it is bounded by another [`BACKLOG`] behind that answer.
//!
//! **Price.** A connection costs at most twice [`BACKLOG`] and one answer, and as long as the peer reads a byte in [`STALL_NS`] it may.

/// Bytes that wait for a peer before its next question does, and unrequested bytes before it is disconnected.
pub(crate) const BACKLOG: usize = 64 << 20;
/// A peer that has as much to read and reads nothing for this time is disconnected.
pub(crate) const STALL_NS: u64 = 5_000_000_000;

/// What waits for one connection, over time.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Bytes of those that wait which were asked for, in one answer too long.
    excused: usize,
    /// When it was full and the peer last read something.
    since: Option<u64>,
}

impl Backlog {
    /// Whether no question is to be answered now.
    pub(crate) fn is_full(waiting: usize) -> bool {
        waiting > BACKLOG
    }

    /// An answer was put after what waited.
    pub(crate) fn answered(&mut self, waiting: usize) {
        if Backlog::is_full(waiting) {
            self.excused = waiting;
        }
    }

    /// After a try to write: why the peer is to be given up, if it is.
    pub(crate) fn wrote(&mut self, now: u64, written: usize, waiting: usize) -> Option<String> {
        self.excused = self.excused.saturating_sub(written);
        if !Backlog::is_full(waiting) {
            *self = Backlog::default();
            return None;
        }
        if written > 0 || self.since.is_none() {
            self.since = Some(now);
        }
        let stalls = self.since.is_some_and(|since| now.saturating_sub(since) >= STALL_NS);
        (stalls || waiting > self.excused.saturating_add(BACKLOG))
            .then(|| format!("it left {waiting} bytes unread"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_asked_for_is_bounded_at_once() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.wrote(0, 0, BACKLOG), None);
        assert!(backlog.wrote(0, 0, BACKLOG + 1).is_some());
    }

    #[test]
    fn one_answer_may_be_longer_as_long_as_it_is_read() {
        let mut backlog = Backlog::default();
        let mut waiting = 3 * BACKLOG;
        assert!(Backlog::is_full(waiting));
        backlog.answered(waiting);
        for second in 0..9 {
            waiting -= BACKLOG / 8;
            assert_eq!(backlog.wrote(second * (STALL_NS - 1), BACKLOG / 8, waiting), None, "{second}");
        }
        // Packet-ins behind it: as many bytes as ever.
        let now = 8 * (STALL_NS - 1);
        assert_eq!(backlog.wrote(now, 0, waiting + BACKLOG), None);
        assert!(backlog.wrote(now, 0, waiting + BACKLOG + 1).is_some());
        // Nothing is read any more.
        assert_eq!(backlog.wrote(now + STALL_NS - 1, 0, waiting), None);
        assert!(backlog.wrote(now + STALL_NS, 0, waiting).is_some());
        // All was read: it begins anew.
        assert_eq!(backlog.wrote(now + STALL_NS, waiting - 7, 7), None);
        assert_eq!((backlog.excused, backlog.since), (0, None));
    }
}
