//! When the frames of a sending left, by the clock of whoever sent them out last.
//!
//! **What.** [`Departures`] takes the stamps that a port tells ([`linux::port::Transmitter::departures`]) and keeps, for
//! each clock on its own, three distributions: from the system call to the stamp, from the plan to the stamp, and from
//! one stamp to the next.
//!
//! **Why.** The lateness that a generator knows itself ends at its system call. What the queue and the driver add, and
//! how evenly frames really left, is only in these stamps.
//!
//! **Price.** A clock that is not the system's (`hardware_raw`) can be compared with itself alone: it has gaps and no
//! lateness.

use super::pace::Pace;
use linux::port::{Departure, StampSource, Transmitter};
use linux::sys::clock;
use record::Histogram;
use record::send::{SentStampSource, SentStamps};
use std::time::Duration;

/// How long stamps may come after the last frame has left.
const PATIENCE: Duration = Duration::from_millis(100);

/// The stamps of one clock.
#[derive(Debug, Default)]
struct OfSource {
    source: StampSource,
    since_call: Histogram,
    lateness: Histogram,
    gap: Histogram,
    count: u64,
    /// Number and time of the last one.
    last: Option<(u64, u64)>,
}

impl OfSource {
    fn add(&mut self, departure: &Departure, planned_ns: Option<u64>) {
        let Departure { number, handed_ns, stamp } = *departure;
        self.count += 1;
        // 1 ns is the least that the distribution has.
        let after = |begin: u64| stamp.ns.saturating_sub(begin).max(1);
        if self.source != StampSource::HardwareRaw {
            self.since_call.record(after(handed_ns));
            if let Some(planned) = planned_ns {
                self.lateness.record(after(planned));
            }
        }
        if let Some((before, at)) = self.last
            && before + 1 == number
        {
            self.gap.record(after(at));
        }
        self.last = Some((number, stamp.ns));
    }

    fn report(&self) -> SentStampSource {
        SentStampSource {
            source: self.source.name().into(),
            count: self.count,
            since_call: self.since_call.summary(),
            lateness: self.lateness.summary(),
            gap: self.gap.summary(),
        }
    }
}

/// The stamps of a sending.
#[derive(Debug, Default)]
pub struct Departures {
    sources: Vec<OfSource>,
    /// What was just read; kept for its memory.
    read: Vec<Departure>,
}

impl Departures {
    /// Takes what the port has to tell now; false when it never tells. `utc_offset` turns a planned time into
    /// `CLOCK_REALTIME`.
    pub fn take(&mut self, from: &mut dyn Transmitter, pace: &Pace, utc_offset: u64) -> bool {
        if !from.departures(&mut self.read) {
            return false;
        }
        let read = std::mem::take(&mut self.read);
        for departure in &read {
            let planned = pace.planned(departure.number).map(|at| at.wrapping_add(utc_offset));
            self.of(departure.stamp.source).add(departure, planned);
        }
        self.read = read;
        self.read.clear();
        true
    }

    /// Takes what comes after the last frame, until every accepted frame has its stamp or it takes too long.
    pub fn take_last(&mut self, from: &mut dyn Transmitter, pace: &Pace, utc_offset: u64) {
        let until = clock::monotonic_ns() + PATIENCE.as_nanos() as u64;
        while self.take(from, pace, utc_offset)
            && self.count() < from.counters().accepted
            && clock::monotonic_ns() < until
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Frames with a stamp.
    pub fn count(&self) -> u64 {
        self.sources.iter().map(|source| source.count).sum()
    }

    /// Adds those of another sender.
    pub fn merge(&mut self, other: &Departures) {
        for theirs in &other.sources {
            let ours = self.of(theirs.source);
            ours.count += theirs.count;
            ours.since_call.merge(&theirs.since_call);
            ours.lateness.merge(&theirs.lateness);
            ours.gap.merge(&theirs.gap);
        }
    }

    /// What is told of them.
    pub fn report(&self, wanted: StampSource, expected: u64) -> SentStamps {
        SentStamps {
            wanted: wanted.name().into(),
            expected,
            missing: expected.saturating_sub(self.count()),
            sources: self.sources.iter().map(OfSource::report).collect(),
        }
    }

    fn of(&mut self, source: StampSource) -> &mut OfSource {
        let at = self.sources.iter().position(|known| known.source == source).unwrap_or_else(|| {
            self.sources.push(OfSource { source, ..OfSource::default() });
            self.sources.len() - 1
        });
        &mut self.sources[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::port::Stamp;

    fn departure(number: u64, handed_ns: u64, ns: u64, source: StampSource) -> Departure {
        Departure { number, handed_ns, stamp: Stamp { ns, source } }
    }

    #[test]
    fn clocks_are_never_mixed_and_a_foreign_clock_is_compared_with_itself_alone() {
        use StampSource::{HardwareRaw, Software};
        let mut all = Departures::default();
        for (number, ns, source) in [
            (0, 1500, Software),
            (1, 9_000_000, HardwareRaw),
            (2, 9_000_700, HardwareRaw),
            (3, 2600, Software),
        ] {
            all.of(source).add(&departure(number, 1000, ns, source), Some(900));
        }
        let report = all.report(HardwareRaw, 6);
        assert_eq!((report.expected, report.missing, report.sources.len()), (6, 2, 2));
        let [software, raw] = &report.sources[..] else { panic!() };
        assert_eq!((software.source.as_str(), software.count), ("software", 2));
        assert_eq!(software.since_call.as_ref().map(|times| (times.min, times.max)), Some((500, 1600)));
        assert_eq!(software.lateness.as_ref().map(|times| (times.min, times.max)), Some((600, 1700)));
        assert_eq!(software.gap, None, "frames 0 and 3 do not follow each other");
        assert_eq!((raw.source.as_str(), raw.count), ("hardware_raw", 2));
        assert_eq!((&raw.since_call, &raw.lateness), (&None, &None));
        assert_eq!(raw.gap.as_ref().map(|times| (times.count, times.max)), Some((1, 700)));
        let mut sum = Departures::default();
        sum.merge(&all);
        sum.merge(&all);
        assert_eq!((sum.count(), sum.report(HardwareRaw, 8).missing), (8, 0));
    }
}
