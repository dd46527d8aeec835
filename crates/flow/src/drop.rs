//! Why frames end in a pipeline, and how many did.
//!
//! **What.** A [`Drop`] is the reason that the interpreter gives; a port counts its frames by reason ([`DropCounters`]).
//!
//! **Why.** OpenFlow has no counter of a TTL that ran out, nor of an output that led back. A frame that is lost there is in the counters of its
//! rule, as if it had left.
//!
//! **Price.** An action set without an output ([`Drop::NoOutput`]) is not counted: compiled rules do not keep what such a set was. The rule's own
//! counters say how many frames came to it.

/// Why a frame, or a copy of it, ends. The numbers are those on the wire ([`crate::openflow::drops`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drop {
    /// The port by which it came in does not receive.
    NotReceived = 1,
    /// It is a fragment, and those are to be dropped.
    Fragment,
    /// A meter dropped it.
    Meter,
    /// A TTL that cannot be decremented.
    InvalidTtl,
    /// The output is the port by which it came in, which needs the name IN_PORT.
    InPort,
    /// There is no such port.
    NoPort,
    /// The port by which it should leave does not send.
    NotSent,
    /// The bridge does not forward it.
    Bridge,
    /// Too many copies of one frame.
    TooManyCopies,
    /// The controllers want no packet-in for misses on this port, or their meter dropped it.
    NoPacketIn,
    /// No bucket of the group is live, or it has none.
    NoBucket,
    /// Neither a group nor an output is in the action set.
    NoOutput,
}

/// How many reasons are counted.
const COUNTED: usize = 11;

impl Drop {
    /// The reasons that are counted, in the order of their numbers.
    pub const COUNTED: [Drop; COUNTED] = [
        Drop::NotReceived,
        Drop::Fragment,
        Drop::Meter,
        Drop::InvalidTtl,
        Drop::InPort,
        Drop::NoPort,
        Drop::NotSent,
        Drop::Bridge,
        Drop::TooManyCopies,
        Drop::NoPacketIn,
        Drop::NoBucket,
    ];

    /// One word for it, as `pathlab flow dump` and the record have it.
    pub fn name(self) -> &'static str {
        match self {
            Drop::NotReceived => "not_received",
            Drop::Fragment => "fragment",
            Drop::Meter => "meter",
            Drop::InvalidTtl => "invalid_ttl",
            Drop::InPort => "in_port",
            Drop::NoPort => "no_port",
            Drop::NotSent => "not_sent",
            Drop::Bridge => "bridge",
            Drop::TooManyCopies => "too_many_copies",
            Drop::NoPacketIn => "no_packet_in",
            Drop::NoBucket => "no_bucket",
            Drop::NoOutput => "no_output",
        }
    }

    /// The reason with this number, if it is one that is counted.
    pub fn of(number: u16) -> Option<Drop> {
        Drop::COUNTED.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Frames by the reason why they ended; a super-frame counts as its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DropCounters([u64; COUNTED]);

impl DropCounters {
    /// So many frames ended for this reason.
    pub fn count(&mut self, why: Drop, frames: u64) {
        if let Some(counter) = self.0.get_mut(why as usize - 1) {
            *counter += frames;
        }
    }

    /// How many ended for this reason.
    pub fn of(&self, why: Drop) -> u64 {
        self.0.get(why as usize - 1).copied().unwrap_or(0)
    }

    /// The reasons for which any ended, with how many.
    pub fn moved(&self) -> impl Iterator<Item = (Drop, u64)> + '_ {
        Drop::COUNTED.into_iter().map(|why| (why, self.of(why))).filter(|(_, frames)| *frames > 0)
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &DropCounters) {
        self.0.iter_mut().zip(other.0).for_each(|(counter, more)| *counter += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counted_reason_is_found_by_its_number_and_no_other_is() {
        for why in Drop::COUNTED {
            assert_eq!(Drop::of(why as u16), Some(why));
        }
        assert_eq!((Drop::of(0), Drop::of(Drop::NoOutput as u16), Drop::of(u16::MAX)), (None, None, None));
    }

    #[test]
    fn what_is_not_counted_moves_nothing() {
        let mut counters = DropCounters::default();
        counters.count(Drop::NoOutput, 3);
        assert_eq!(counters, DropCounters::default());
        counters.count(Drop::InPort, 2);
        let other = counters;
        counters.add(&other);
        assert_eq!(counters.moved().collect::<Vec<_>>(), [(Drop::InPort, 4)]);
    }
}
