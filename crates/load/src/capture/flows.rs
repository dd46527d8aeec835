//! Flows that are being seen just now, each counted in one place.
//!
//! **What.** A small table, one place for each hash: a frame of the flow that has the place adds to two numbers there. A flow
//! that finds another one in its place sends that one away with what it counted, and whoever called puts this into the
//! tables of protocols, ports and talkers. **Why.** Frames come in trains and a host talks to few at a time: most frames
//! are counted by one comparison and two additions, and the search for their talker is made once for a train.
//! **Price.** Those tables are late; who reads them takes what is here first ([`Flows::take`]). 64 KiB. Traffic in which
//! every frame is another flow pays some 15 ns for each, to send the one before away.

use super::talkers::{Pair, fold, unlike};

const PLACES: usize = 1024;

/// Between whom, above IP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Key {
    from: u128,
    to: u128,
    /// The kind of the addresses, the transport and both ports in one word, so that a flow and its counts are one line.
    rest: u64,
}

impl Key {
    /// Of a pair of IP addresses.
    #[inline]
    pub fn new(pair: &Pair, protocol: u8, ports: (u16, u16)) -> Key {
        let (from, to) = (u64::from(ports.0) << 16, u64::from(ports.1) << 32);
        Key {
            from: pair.from,
            to: pair.to,
            rest: u64::from(pair.kind) | u64::from(protocol) << 8 | from | to,
        }
    }

    /// The addresses.
    pub fn pair(&self) -> Pair {
        Pair { kind: self.rest as u8, from: self.from, to: self.to }
    }

    /// The transport's number.
    pub fn protocol(&self) -> u8 {
        (self.rest >> 8) as u8
    }

    /// Both ports.
    pub fn ports(&self) -> (u16, u16) {
        ((self.rest >> 16) as u16, (self.rest >> 32) as u16)
    }

    /// `==` in registers: comparing as memory what was just written as words stalls the processor.
    #[inline]
    fn is(&self, other: &Key) -> bool {
        unlike(self.from, other.from) | unlike(self.to, other.to) | (self.rest ^ other.rest) == 0
    }

    #[inline]
    fn place(&self) -> usize {
        let addresses = fold(self.from) ^ fold(self.to).rotate_left(29);
        let mixed = (addresses ^ self.rest.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 48) as usize % PLACES
    }
}

/// What was counted of a flow since it got its place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(align(64))]
pub struct Counted {
    /// Which flow.
    pub key: Key,
    /// Its frames; 0 in a place that is free.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The table.
#[derive(Debug, Clone)]
pub struct Flows {
    places: Box<[Counted]>,
}

impl Default for Flows {
    fn default() -> Self {
        Flows { places: vec![Counted::default(); PLACES].into_boxed_slice() }
    }
}

impl Flows {
    /// Counts a frame; whoever had to make room for it comes back.
    #[inline]
    pub fn add(&mut self, key: &Key, bytes: u64) -> Option<Counted> {
        let place = &mut self.places[key.place()];
        if place.key.is(key) {
            place.frames += 1;
            place.bytes += bytes;
            return None;
        }
        let before = std::mem::replace(place, Counted { key: *key, frames: 1, bytes });
        (before.frames > 0).then_some(before)
    }

    /// Everything that is here; nothing is left.
    pub fn take(&mut self) -> impl Iterator<Item = Counted> + use<> {
        let places = std::mem::take(&mut self.places);
        *self = Flows::default();
        places.into_iter().filter(|counted| counted.frames > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// The slow twin is a map.
        #[test]
        fn nothing_is_lost_or_counted_twice(
            frames in prop::collection::vec((0u128..3, 0u128..2000, 0u16..3, 0u64..100), 0..3000)
        ) {
            let (mut flows, mut sums, mut exact) = (Flows::default(), HashMap::new(), HashMap::new());
            let mut settle = |counted: Counted| {
                let (frames, bytes) = sums.entry(format!("{:?}", counted.key)).or_insert((0, 0));
                *frames += counted.frames;
                *bytes += counted.bytes;
            };
            for (from, to, port, bytes) in frames {
                let pair = Pair { kind: if port == 1 { 6 } else { 4 }, from, to };
                let key = Key::new(&pair, 17 - port as u8, (port, 9));
                prop_assert_eq!((key.pair(), key.protocol(), key.ports()), (pair, 17 - port as u8, (port, 9)));
                let (frames, sum) = exact.entry(format!("{key:?}")).or_insert((0, 0));
                *frames += 1;
                *sum += bytes;
                flows.add(&key, bytes).into_iter().for_each(&mut settle);
            }
            flows.take().for_each(&mut settle);
            prop_assert_eq!(sums, exact);
            prop_assert_eq!(flows.take().count(), 0);
        }
    }
}
