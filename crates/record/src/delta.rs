//! How far a counter moved between two readings.
//!
//! **What.** The one difference of counters: a number, or why there is none. **Why a type.** A counter that was not read and a
//! counter that did not move are two things, and `0` says only the second: a conclusion that rests on a counter must be
//! able to tell them apart. **Price.** Whoever wants a number says what an unknown one means there.

use crate::snapshot::{CpuTime, Snapshot};
use std::fmt;

/// The largest count that is believed: 2^50 frames are a year at 35 million per second.
pub const MOST: u64 = 1 << 50;

/// The movement of a counter from one reading to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta {
    /// It moved so far.
    Known(u64),
    /// It is not known how far, and this is why.
    Unknown(&'static str),
    /// It ran backwards: whatever it belongs to was made anew.
    Backwards,
}

impl Delta {
    /// From one reading to the next. What no network does in the time of a test is not believed, so that nothing that follows
    /// can overflow.
    pub fn of(before: u64, after: u64) -> Delta {
        match after.checked_sub(before) {
            Some(moved) if moved <= MOST => Delta::Known(moved),
            Some(_) => Delta::Unknown("it moved further than a counter can"),
            None => Delta::Backwards,
        }
    }

    /// Between two readings, each of which may not have been made.
    pub fn between(before: Option<u64>, after: Option<u64>) -> Delta {
        match (before, after) {
            (Some(before), Some(after)) => Delta::of(before, after),
            (None, Some(_)) => Delta::Unknown("it was not read before"),
            (Some(_), None) => Delta::Unknown("it was not read after"),
            (None, None) => Delta::Unknown("it was not read"),
        }
    }

    /// A counter of a node's protocols, such as `TcpExt.ListenDrops`.
    pub fn of_protocol(before: &Snapshot, after: &Snapshot, node: &str, counter: &str) -> Delta {
        let read = |snapshot: &Snapshot| snapshot.nodes.get(node)?.protocol(counter);
        Delta::between(read(before), read(after))
    }

    /// The number, if there is one.
    pub fn known(self) -> Option<u64> {
        match self {
            Delta::Known(moved) => Some(moved),
            Delta::Unknown(_) | Delta::Backwards => None,
        }
    }
}

impl fmt::Display for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Delta::Known(moved) => write!(f, "{moved}"),
            Delta::Unknown(why) => write!(f, "unknown ({why})"),
            Delta::Backwards => f.write_str("unknown (it ran backwards)"),
        }
    }
}

/// The sum of counts; what would overflow stays at the largest number, for a record may say anything.
pub fn sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

impl Snapshot {
    /// What all CPUs did since an earlier snapshot; nothing when the time of one of them is unknown, for the sum would be, too.
    pub fn cpus_since(&self, before: &Snapshot) -> Vec<CpuTime> {
        let since = |now: &CpuTime| now.since(before.cpus.iter().find(|row| row.cpu == now.cpu)?);
        self.cpus.iter().map(since).collect::<Option<_>>().unwrap_or_default()
    }
}

impl CpuTime {
    /// Ticks in which it did something.
    pub fn busy(&self) -> u64 {
        sum([self.user, self.system, self.irq, self.softirq])
    }

    /// All its ticks, those that the hypervisor gave to others included.
    pub fn total(&self) -> u64 {
        sum([self.busy(), self.steal, self.idle])
    }

    /// What a CPU did since an earlier reading; none when one of its times is unknown.
    pub fn since(&self, before: &CpuTime) -> Option<CpuTime> {
        let moved = |part: fn(&CpuTime) -> u64| Delta::of(part(before), part(self));
        Some(CpuTime {
            cpu: self.cpu,
            user: moved(|time| time.user).known()?,
            nice: moved(|time| time.nice).known()?,
            system: moved(|time| time.system).known()?,
            irq: moved(|time| time.irq).known()?,
            softirq: moved(|time| time.softirq).known()?,
            steal: moved(|time| time.steal).known()?,
            // Waiting for I/O is part of it and may decrease by itself (proc(5)): then the CPU was not idle.
            idle: match moved(|time| time.idle) {
                Delta::Backwards => 0,
                idle => idle.known()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_not_zero() {
        assert_eq!(Delta::of(5, 5), Delta::Known(0));
        assert_eq!(Delta::of(5, 4), Delta::Backwards);
        assert_eq!(Delta::between(Some(1), Some(8)).known(), Some(7));
        for (before, after) in [(None, Some(0)), (Some(0), None), (None, None), (Some(0), Some(MOST + 1))] {
            let delta = Delta::between(before, after);
            assert!(matches!(delta, Delta::Unknown(_)) && delta.known().is_none(), "{delta}");
            assert!(delta.to_string().starts_with("unknown ("), "{delta}");
        }
        assert_eq!(Delta::of(0, MOST).known(), Some(MOST));
        let nodes = Snapshot::default();
        assert_eq!(Delta::of_protocol(&nodes, &nodes, "b", "Udp.InErrors").known(), None);
    }

    #[test]
    fn a_cpu_without_a_reading_before_makes_all_unknown() {
        let at = |cpus: &[u32]| {
            let cpus = cpus.iter().map(|&cpu| CpuTime { cpu, user: 2, steal: 3, ..CpuTime::default() });
            Snapshot { cpus: cpus.collect(), ..Snapshot::default() }
        };
        assert_eq!(at(&[0, 1]).cpus_since(&at(&[0, 1])).len(), 2);
        assert!(at(&[0, 1]).cpus_since(&at(&[0])).is_empty());
        let cpu = at(&[0]).cpus[0];
        assert_eq!((cpu.busy(), cpu.total(), sum([u64::MAX, 1])), (2, 5, u64::MAX));
    }

    #[test]
    fn a_cpu_that_ran_backwards_is_unknown_and_its_waiting_is_not() {
        let at = |user, idle| CpuTime { cpu: 3, user, idle, ..CpuTime::default() };
        assert_eq!(at(7, 9).since(&at(5, 4)), Some(at(2, 5)));
        assert_eq!(at(7, 3).since(&at(5, 4)), Some(at(2, 0)));
        assert_eq!(at(4, 9).since(&at(5, 4)), None);
    }
}
