//! Frames that wait for the thread that talks with the controllers.
//!
//! **What.** [`PacketIns`] has one queue for each port by which frames come in. [`PacketIns::offer`] puts a frame there, [`PacketIns::next`] takes
//! the oldest one of the port whose turn it is.
//!
//! **Why.** Anybody at a port can make packet-ins as fast as frames come, and no controller reads as fast. So packet-ins are what is dropped: they
//! wait here, bounded in bytes, and go into a connection only as fast as it reads. When there is no room, the port that holds the most loses
//! its youngest frame, so a port that sends a few is heard beside one that floods. Every loss is counted by port and reason.
//!
//! **Price.** Finding the fullest queue looks at all ports that have one; it is done only when a port that holds less than its share finds no room.

use flow::interpret::PacketIn;
use flow::port::{PortNo, Queue, QueueCounters};
use record::unit::amount;
use record::{Problem, Result};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of frames that wait at most, in all queues together.
pub const QUEUE_BYTES: usize = 8 << 20;
/// What a frame is taken to cost beside its bytes: the row that describes it, and what the allocator adds.
const ROW_BYTES: usize = 256;
/// One packet-in, in the unit of the credit: 10^9 of them a second are one for each nanosecond.
const ONE: u64 = 1_000_000_000;
/// The fastest rate that can be asked for, packet-ins a second.
const FASTEST: u64 = 1_000_000_000;

/// How many packet-ins go to the controllers in a second, and how many at once after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Packet-ins a second, over time.
    pub rate: u64,
    /// Packet-ins at once; as many wait at most.
    pub burst: u64,
}

impl Limit {
    /// Reads `rate=1000,burst=250`; a quarter of the rate when no burst is said. In a file a blank may stand for the comma.
    ///
    /// # Errors
    /// Input: what is wrong.
    pub fn parse(text: &str) -> Result<Limit> {
        let (mut rate, mut burst) = (None, None);
        for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
            let number = |text: &str| amount(text).ok().filter(|number| (1..=FASTEST).contains(number));
            let place = match part.split_once('=') {
                Some(("rate", text)) => (&mut rate, number(text)),
                Some(("burst", text)) => (&mut burst, number(text)),
                _ => return Err(bad(part, "is neither rate= nor burst=")),
            };
            *place.0 = Some(place.1.ok_or_else(|| bad(part, "has no number from 1 to 1000000000"))?);
        }
        let rate: u64 = rate.ok_or_else(|| bad(text, "has no rate="))?;
        Ok(Limit { rate, burst: burst.unwrap_or((rate / 4).max(1)) })
    }
}

fn bad(text: &str, what: &str) -> Problem {
    Problem::input(format!("'{text}' {what}"))
        .help("packet-ins a second, and at once after a pause: rate=1000,burst=250")
}

/// What becomes of a packet-in now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It goes to a connection.
    Send,
    /// All connections that want it have to read first.
    Wait,
    /// No connection wants it.
    Nobody,
}

/// Packet-ins by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketInCounts {
    /// Frames that went to at least one connection.
    pub sent: u64,
    /// Bytes of these frames.
    pub sent_bytes: u64,
    /// Dropped because no controller read fast enough: the queue was full.
    pub dropped_full: u64,
    /// Dropped because the rate that was set was exceeded.
    pub dropped_rate: u64,
    /// Dropped because no connection wanted them.
    pub dropped_nobody: u64,
}

impl PacketInCounts {
    /// All that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped_full + self.dropped_rate + self.dropped_nobody
    }

    fn add(self, other: PacketInCounts) -> PacketInCounts {
        PacketInCounts {
            sent: self.sent + other.sent,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            dropped_full: self.dropped_full + other.dropped_full,
            dropped_rate: self.dropped_rate + other.dropped_rate,
            dropped_nobody: self.dropped_nobody + other.dropped_nobody,
        }
    }
}

/// What waits of one port.
#[derive(Debug, Default)]
struct OfPort {
    frames: VecDeque<PacketIn>,
    bytes: usize,
    counts: PacketInCounts,
}

/// Packet-ins that wait, by port.
#[derive(Debug, Default)]
pub struct PacketIns {
    ports: BTreeMap<PortNo, OfPort>,
    /// Of all ports.
    frames: usize,
    bytes: usize,
    /// The port that was served last.
    last: PortNo,
    limit: Option<Limit>,
    /// What may be sent at once, in parts of [`ONE`], and when that was so.
    credit: u64,
    since_ns: u64,
    began_ns: u64,
}

fn cost(packet_in: &PacketIn) -> usize {
    packet_in.frame.capacity() + ROW_BYTES
}

impl PacketIns {
    /// Nothing waits.
    pub fn new(limit: Option<Limit>, now: u64) -> PacketIns {
        let credit = limit.map_or(0, |limit| limit.burst.saturating_mul(ONE));
        PacketIns { limit, credit, since_ns: now, began_ns: now, ..PacketIns::default() }
    }

    /// Queues a frame after those of its port, or drops one. True when nothing of this port waited before: the server has to be woken.
    pub fn offer(&mut self, packet_in: PacketIn) -> bool {
        let (port, cost) = (packet_in.in_port, cost(&packet_in));
        while let Some(is_rate) = self.is_full(cost) {
            let fullest = self.fullest(port, cost);
            if fullest == port {
                self.count_lost(port, is_rate);
                return false;
            }
            self.drop_youngest(fullest, is_rate);
        }
        let queue = self.ports.entry(port).or_default();
        queue.frames.push_back(packet_in);
        queue.bytes += cost;
        (self.frames, self.bytes) = (self.frames + 1, self.bytes + cost);
        queue.frames.len() == 1
    }

    /// Whether one more of this cost has no room; and if so, whether that is because of the rate.
    fn is_full(&self, cost: usize) -> Option<bool> {
        let waits_for_rate = self.limit.is_some_and(|limit| self.frames as u64 >= limit.burst);
        let is_full = self.bytes + cost > QUEUE_BYTES;
        (waits_for_rate || is_full).then_some(waits_for_rate)
    }

    /// The port that holds the most; this one, when it would hold as much as its share with one more.
    fn fullest(&self, port: PortNo, cost: usize) -> PortNo {
        let own = self.ports.get(&port).map_or(0, |queue| queue.bytes) + cost;
        let holding = self.ports.iter().filter(|(_, queue)| queue.bytes > 0);
        let most = holding.max_by_key(|(_, queue)| queue.bytes);
        most.filter(|(_, queue)| queue.bytes > own).map_or(port, |(port, _)| *port)
    }

    fn drop_youngest(&mut self, port: PortNo, is_rate: bool) {
        let Some(queue) = self.ports.get_mut(&port) else { return };
        if let Some(lost) = queue.frames.pop_back() {
            let cost = cost(&lost);
            queue.bytes -= cost;
            (self.frames, self.bytes) = (self.frames - 1, self.bytes - cost);
            self.count_lost(port, is_rate);
        }
    }

    fn count_lost(&mut self, port: PortNo, is_rate: bool) {
        let counts = &mut self.ports.entry(port).or_default().counts;
        *(if is_rate { &mut counts.dropped_rate } else { &mut counts.dropped_full }) += 1;
    }

    /// The next packet-in that may go, the ports in turn; `turn` says of the oldest one of a port what becomes of it. What no controller wants is dropped here.
    pub fn next(&mut self, now: u64, mut turn: impl FnMut(&PacketIn) -> Turn) -> Option<PacketIn> {
        self.earn(now);
        while let Some((port, what)) = self.due(&mut turn) {
            let queue = self.ports.get_mut(&port)?;
            let packet_in = queue.frames.pop_front()?;
            let cost = cost(&packet_in);
            queue.bytes -= cost;
            (self.frames, self.bytes, self.last) = (self.frames - 1, self.bytes - cost, port);
            if what == Turn::Nobody {
                queue.counts.dropped_nobody += 1;
                continue;
            }
            queue.counts.sent += 1;
            queue.counts.sent_bytes += packet_in.frame.len() as u64;
            self.credit = self.credit.saturating_sub(ONE);
            return Some(packet_in);
        }
        None
    }

    /// Whether [`PacketIns::next`] would do something.
    pub fn goes_on(&mut self, now: u64, mut turn: impl FnMut(&PacketIn) -> Turn) -> bool {
        self.earn(now);
        self.due(&mut turn).is_some()
    }

    /// The port whose turn it is.
    fn due(&self, turn: &mut impl FnMut(&PacketIn) -> Turn) -> Option<(PortNo, Turn)> {
        if self.frames == 0 {
            return None;
        }
        let has_credit = self.limit.is_none() || self.credit >= ONE;
        let behind = self.ports.range((std::ops::Bound::Excluded(self.last), std::ops::Bound::Unbounded));
        let mut fronts = behind
            .chain(self.ports.range(..=self.last))
            .filter_map(|(port, queue)| Some((*port, queue.frames.front()?)));
        fronts.find_map(|(port, packet_in)| match turn(packet_in) {
            Turn::Send if has_credit => Some((port, Turn::Send)),
            Turn::Nobody => Some((port, Turn::Nobody)),
            _ => None,
        })
    }

    /// Credit for the time that passed.
    fn earn(&mut self, now: u64) {
        let Some(limit) = self.limit else { return };
        let passed = now.saturating_sub(self.since_ns);
        let most = limit.burst.saturating_mul(ONE);
        self.credit = self.credit.saturating_add(passed.saturating_mul(limit.rate)).min(most);
        self.since_ns = self.since_ns.max(now);
    }

    /// When the rate lets the next one go, if it is the rate that one waits for.
    pub fn deadline(&self) -> Option<u64> {
        let limit = self.limit.filter(|_| self.frames > 0 && self.credit < ONE)?;
        Some(self.since_ns.saturating_add((ONE - self.credit).div_ceil(limit.rate)))
    }

    /// What became of all of them.
    pub fn counts(&self) -> PacketInCounts {
        self.ports.values().fold(PacketInCounts::default(), |sum, queue| sum.add(queue.counts))
    }

    /// The queues by port, as a controller sees them: what was sent, and as errors what there was no room for.
    pub fn rows(&self) -> BTreeMap<u32, Queue> {
        let row = |(port, queue): (&PortNo, &OfPort)| {
            let PacketInCounts { sent, sent_bytes, dropped_full, dropped_rate, .. } = queue.counts;
            let counters = QueueCounters {
                tx_frames: sent,
                tx_bytes: sent_bytes,
                tx_errors: dropped_full + dropped_rate,
            };
            (port.0, Queue { counters, created_ns: self.began_ns, ..Queue::default() })
        };
        self.ports.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::rule::PacketInReason;

    fn frame(port: u32, bytes: usize) -> PacketIn {
        PacketIn {
            reason: PacketInReason::Action,
            table: 0,
            cookie: 0,
            in_port: PortNo(port),
            phy_port: None,
            metadata: 0,
            tunnel_id: 0,
            total_len: bytes,
            frame: vec![port as u8; bytes],
        }
    }

    fn send(_: &PacketIn) -> Turn {
        Turn::Send
    }

    #[test]
    fn a_flood_is_bounded_in_bytes_and_every_loss_is_counted() {
        for bytes in [0, 60, 1464, 65_535] {
            let mut queue = PacketIns::new(None, 0);
            let offered = 2 * QUEUE_BYTES / (bytes + ROW_BYTES);
            for _ in 0..offered {
                queue.offer(frame(1, bytes));
            }
            assert!(queue.bytes <= QUEUE_BYTES, "{bytes}: {}", queue.bytes);
            let mut sent = 0;
            while queue.next(0, send).is_some() {
                sent += 1;
            }
            let counts = queue.counts();
            assert_eq!((counts.sent, counts.sent + counts.dropped_full), (sent, offered as u64));
            assert!(counts.dropped_full > 0 && (queue.frames, queue.bytes) == (0, 0));
        }
    }

    #[test]
    fn a_port_that_sends_little_loses_nothing_beside_one_that_floods() {
        let mut queue = PacketIns::new(None, 0);
        for round in 0..40_000 {
            queue.offer(frame(1, 1464));
            if round % 40 == 0 {
                queue.offer(frame(2, 1464));
            }
        }
        assert_eq!(queue.ports[&PortNo(2)].counts.dropped(), 0);
        assert!(queue.ports[&PortNo(1)].counts.dropped_full > 30_000);
        // Two that flood share the room, and are served in turn.
        for _ in 0..40_000 {
            queue.offer(frame(2, 1464));
        }
        let [one, two] = [1, 2].map(|port| queue.ports[&PortNo(port)].bytes);
        assert!(one.abs_diff(two) <= 2 * (1464 + ROW_BYTES), "{one} {two}");
        let first: Vec<u32> = (0..6).map(|_| queue.next(0, send).unwrap().in_port.0).collect();
        assert_eq!(first.iter().filter(|port| **port == 1).count(), 3, "{first:?}");
    }

    #[test]
    fn who_does_not_read_does_not_hold_back_what_others_want() {
        let mut queue = PacketIns::new(None, 0);
        assert!(queue.offer(frame(1, 60)) && !queue.offer(frame(1, 60)) && queue.offer(frame(2, 60)));
        let turn = |one: &PacketIn| if one.in_port.0 == 1 { Turn::Wait } else { Turn::Send };
        assert_eq!(queue.next(0, turn).unwrap().in_port.0, 2);
        assert!(queue.next(0, turn).is_none() && !queue.goes_on(0, turn));
        assert!(queue.goes_on(0, |_| Turn::Nobody));
        assert!(queue.next(0, |_| Turn::Nobody).is_none());
        assert_eq!((queue.counts().dropped_nobody, queue.counts().sent, queue.frames), (2, 1, 0));
    }

    #[test]
    fn a_rate_is_kept_over_time_and_a_burst_at_once() {
        let mut queue = PacketIns::new(Some(Limit::parse("rate=1000 burst=10").unwrap()), 0);
        let mut sent = 0;
        for now in (0..1_000_000_000).step_by(100_000) {
            queue.offer(frame(1, 60));
            while queue.next(now, send).is_some() {
                sent += 1;
            }
            if let Some(deadline) = queue.deadline() {
                assert!(deadline > now && deadline <= now + 1_000_000, "{now} {deadline}");
            }
        }
        assert!((1000..=1010).contains(&sent), "{sent}");
        let counts = queue.counts();
        assert_eq!(counts.sent + counts.dropped_rate + queue.frames as u64, 10_000);
        assert_eq!((counts.dropped_full, queue.frames <= 10), (0, true));
        assert_eq!(queue.rows()[&1].counters.tx_errors, counts.dropped_rate);
    }

    #[test]
    fn a_limit_is_read_or_refused_with_a_sentence() {
        assert_eq!(Limit::parse("rate=1000,burst=5").unwrap(), Limit { rate: 1000, burst: 5 });
        assert_eq!(Limit::parse("rate=3").unwrap(), Limit { rate: 3, burst: 1 });
        assert_eq!(Limit::parse("rate=1M,burst=1Ki").unwrap(), Limit { rate: 1_000_000, burst: 1024 });
        for (text, expected) in [
            ("", "has no rate="),
            ("burst=5", "has no rate="),
            ("rate=0", "has no number"),
            ("rate=x", "has no number"),
            ("rate=9999999999", "has no number"),
            ("1000", "neither"),
        ] {
            let problem = Limit::parse(text).unwrap_err().to_string();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }
}
