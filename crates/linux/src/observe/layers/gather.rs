//! From stamps as they come out of the ring to messages with all of theirs.
//!
//! **What.** [`Gathered`] takes stamps in any number and keeps a bounded number of messages: when there are too many, about every second one is thrown away
//! and from then on not taken. **Why here and not in the kernel.** The way of a message is not known before it ends, and a place is a number until somebody
//! has names.
//!
//! **Price.** A look-up in a tree for each stamp.

use std::collections::BTreeMap;

use record::layers::{MOST_MESSAGES, StampPlace, StampPoint, StampedMessage, is_chosen};

use super::layout::{
    AT_CALLED, AT_IDS, AT_INTERFACE, AT_NAMESPACE, AT_PLANNED, AT_POINT, AT_SEQUENCE, AT_TIME,
};
use crate::netlink::{u32_at, u64_at};

/// One stamp as a program took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// When, on `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Where.
    pub place: RawPlace,
    /// The message's number.
    pub sequence: u64,
    /// When it was to leave; 0: not known.
    pub planned_ns: u64,
    /// When the thread began to send; 0: not known.
    pub called_ns: u64,
}

/// A place in the kernel's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RawPlace {
    /// The point.
    pub point: StampPoint,
    /// The namespace; 0 where the process tells the node.
    pub namespace: u32,
    /// The interface; 0: none.
    pub interface: u32,
    /// The process; 0 where the namespace tells the node.
    pub process: u32,
}

const POINTS: [StampPoint; 7] = [
    StampPoint::Called,
    StampPoint::Queued,
    StampPoint::Started,
    StampPoint::Arrived,
    StampPoint::Polled,
    StampPoint::Delivered,
    StampPoint::Returned,
];

impl Stamp {
    /// What the times of its message are counted from, if it is the first one: the plan, else the call that sends it.
    fn origin_ns(&self) -> u64 {
        [self.planned_ns, self.called_ns].into_iter().find(|&ns| ns > 0).unwrap_or(self.at_ns)
    }

    /// Reads a stamp; none if it is cut or no point has its number.
    pub fn decode(bytes: &[u8]) -> Option<Stamp> {
        let long = |at: i16| u64_at(bytes, at as usize);
        let word = |at: i16| u32_at(bytes, at as usize);
        let point = *POINTS.get(word(AT_POINT)? as usize)?;
        let ids = long(AT_IDS)?;
        let by_process = matches!(point, StampPoint::Called | StampPoint::Returned);
        let of_interface = !by_process && point != StampPoint::Delivered;
        Some(Stamp {
            at_ns: long(AT_TIME)?,
            place: RawPlace {
                point,
                namespace: if by_process { 0 } else { word(AT_NAMESPACE)? },
                interface: if of_interface { word(AT_INTERFACE)? } else { 0 },
                process: if by_process { (ids >> 32) as u32 } else { 0 },
            },
            sequence: long(AT_SEQUENCE)?,
            planned_ns: long(AT_PLANNED)?,
            called_ns: long(AT_CALLED)?,
        })
    }
}

/// What was gathered so far.
#[derive(Debug, Default)]
pub struct Gathered {
    /// One of so many messages is kept.
    pub every: u64,
    places: BTreeMap<RawPlace, u32>,
    messages: BTreeMap<u64, StampedMessage>,
}

impl Gathered {
    /// Nothing yet, of one in so many messages.
    pub fn new(every: u64) -> Gathered {
        Gathered { every: every.max(1), ..Gathered::default() }
    }

    /// Takes a stamp.
    pub fn take(&mut self, stamp: Stamp) {
        let place = self.place(stamp.place);
        if !is_chosen(stamp.sequence, self.every) {
            return;
        }
        let empty = || StampedMessage {
            sequence: stamp.sequence,
            planned_ns: stamp.origin_ns(),
            ..StampedMessage::default()
        };
        let message = self.messages.entry(stamp.sequence).or_insert_with(empty);
        if stamp.place.point == StampPoint::Called {
            begin(message, stamp.at_ns);
        }
        if stamp.place.point == StampPoint::Queued && stamp.called_ns > 0 {
            self.call(&stamp);
        }
        self.put(stamp.sequence, place, stamp.at_ns);
        self.thin();
    }

    /// The call that sent it began in front of its first way into a queue. A thread that is interrupted runs soft interrupts that send other
    /// frames, or this frame on: they have nothing to do with its call.
    fn call(&mut self, stamp: &Stamp) {
        let Some(message) = self.messages.get(&stamp.sequence) else { return };
        let since = stamp.called_ns.checked_sub(message.planned_ns).map_or(i64::MIN, |ns| ns as i64);
        let last = message.stamps.last().copied();
        let was_taken = last.is_none_or(|(place, at)| at <= since && self.is_taken(place));
        if since != i64::MIN && was_taken {
            let place = RawPlace { point: StampPoint::Called, interface: 0, ..stamp.place };
            let place = self.place(place);
            self.put(stamp.sequence, place, stamp.called_ns);
        }
    }

    /// Whether that is a place where an application has the message.
    fn is_taken(&self, place: u32) -> bool {
        let found = self.places.iter().find(|(_, number)| **number == place);
        found.is_some_and(|(place, _)| place.point == StampPoint::Returned)
    }

    fn place(&mut self, place: RawPlace) -> u32 {
        let next = self.places.len() as u32;
        *self.places.entry(place).or_insert(next)
    }

    fn put(&mut self, sequence: u64, place: u32, at_ns: u64) {
        if let Some(message) = self.messages.get_mut(&sequence) {
            message.stamps.push((place, at_ns.wrapping_sub(message.planned_ns) as i64));
        }
    }

    fn thin(&mut self) {
        while self.messages.len() > MOST_MESSAGES {
            self.every = self.every.saturating_mul(2);
            let every = self.every;
            self.messages.retain(|sequence, _| is_chosen(*sequence, every));
        }
    }

    /// Places with their names, and messages with their stamps in the order of time.
    pub fn named(self, name: impl Fn(&RawPlace) -> StampPlace) -> (Vec<StampPlace>, Vec<StampedMessage>) {
        let mut places: Vec<(RawPlace, u32)> = self.places.into_iter().collect();
        places.sort_by_key(|(_, number)| *number);
        let places = places.iter().map(|(place, _)| name(place)).collect();
        let mut messages: Vec<StampedMessage> = self.messages.into_values().collect();
        messages.iter_mut().for_each(|message| message.stamps.sort_by_key(|(_, at)| *at));
        (places, messages)
    }
}

/// The call that sends it is known last of all, when it returns, and is what its times are counted from.
fn begin(message: &mut StampedMessage, called_ns: u64) {
    let later = message.planned_ns.wrapping_sub(called_ns) as i64;
    message.planned_ns = called_ns;
    message.stamps.iter_mut().for_each(|(_, at)| *at = at.wrapping_add(later));
}

#[cfg(test)]
#[path = "gather_tests.rs"]
mod tests;
