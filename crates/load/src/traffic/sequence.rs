//! Which messages arrived: different ones, duplicates, late ones, in bounded memory.
//!
//! A ring of bits remembers the last [`WINDOW`] sequence numbers below the highest one seen, as in RFC 6479. A number
//! above the highest moves the window; a number inside it is new (then it is reordered) or a duplicate; a number below
//! it can no longer be judged and is counted as too old.
//!
//! **A number that is farther above the highest than the window is long** is damaged unless the very next one stands near it
//! (the probation of RFC 3550, appendix A.1): one flipped bit, or one lie, must not make everything that follows too old.
//!
//! **Price.** 128 KiB per receiver, and that a jump costs one pass over it. The slow twin in the tests is a set of all numbers.

/// How many numbers below the highest are remembered.
pub const WINDOW: u64 = 1 << 20;

const WORDS: usize = (WINDOW / 64) as usize;

/// What a sequence number turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceKind {
    /// New, and the highest so far.
    InOrder,
    /// New, but a higher one came before.
    Reordered,
    /// Seen before.
    Duplicate,
    /// So far below the highest that nobody remembers.
    TooOld,
    /// So far above the highest that it is damaged, unless the next one stands near it.
    Damaged,
}

/// The memory of one receiver.
#[derive(Debug, Clone)]
pub struct Sequence {
    bits: Box<[u64]>,
    /// The highest number seen, plus one; 0 when none was.
    next: u64,
    /// Different numbers.
    pub unique: u64,
    /// Numbers seen again.
    pub duplicates: u64,
    /// New numbers that came after a higher one.
    pub reordered: u64,
    /// Numbers that could not be judged.
    pub too_old: u64,
    /// Numbers that are none of the stream's.
    pub damaged: u64,
    /// The last number, if it was taken for a damaged one.
    far: Option<u64>,
    /// Where the stream begins is known: at 0.
    is_whole: bool,
}

impl Default for Sequence {
    /// Nothing seen yet, of a stream that may have begun long ago.
    fn default() -> Self {
        let bits = vec![0; WORDS].into_boxed_slice();
        let (next, unique, duplicates, reordered, too_old, damaged) = Default::default();
        Sequence { bits, next, unique, duplicates, reordered, too_old, damaged, far: None, is_whole: false }
    }
}

impl Sequence {
    /// Nothing seen yet, of a stream that begins with 0.
    pub fn from_zero() -> Self {
        Sequence { is_whole: true, ..Sequence::default() }
    }

    /// Takes note of one number. One that proves that the last was not damaged makes two unique ones.
    #[inline]
    pub fn see(&mut self, number: u64) -> SequenceKind {
        if number >= self.next {
            let is_far = number - self.next >= WINDOW && (self.is_whole || self.next > 0);
            if is_far && !self.is_confirmed(number) {
                return SequenceKind::Damaged;
            }
            self.far = None;
            self.advance(number);
            self.unique += 1;
            return SequenceKind::InOrder;
        }
        self.far = None;
        if self.next - 1 - number >= WINDOW {
            self.too_old += 1;
            return SequenceKind::TooOld;
        }
        let (word, bit) = Self::place(number);
        if self.bits[word] & bit != 0 {
            self.duplicates += 1;
            return SequenceKind::Duplicate;
        }
        self.bits[word] |= bit;
        self.unique += 1;
        self.reordered += 1;
        SequenceKind::Reordered
    }

    /// Whether a number is the one after the highest.
    #[inline]
    pub fn is_next(&self, number: u64) -> bool {
        number == self.next
    }

    /// Whether the number before this one was as far above all others, and near this one; it counts then.
    #[cold]
    fn is_confirmed(&mut self, number: u64) -> bool {
        let Some(far) = self.far.take().filter(|far| *far < number && number - far < WINDOW) else {
            self.damaged += 1;
            self.far = Some(number);
            return false;
        };
        self.damaged -= 1;
        self.advance(far);
        self.unique += 1;
        true
    }

    #[inline]
    fn place(number: u64) -> (usize, u64) {
        ((number / 64) as usize % WORDS, 1 << (number % 64))
    }

    /// Makes `number` the highest; the numbers between are not seen yet.
    #[inline]
    fn advance(&mut self, number: u64) {
        // Forget the bits of the window's length ago, word by word where a whole word is new.
        if number - self.next >= WINDOW {
            self.bits.fill(0);
        } else {
            let mut at = self.next;
            while at <= number {
                let (word, bit) = Self::place(at);
                if at.is_multiple_of(64) && at + 63 <= number {
                    self.bits[word] = 0;
                    at += 64;
                } else {
                    self.bits[word] &= !bit;
                    at += 1;
                }
            }
        }
        let (word, bit) = Self::place(number);
        self.bits[word] |= bit;
        self.next = number.saturating_add(1);
    }
}

/// Turns 32-bit numbers that wrap, such as pktgen's ([`wire::pktgen`]), into numbers that do not, for [`Sequence::see`].
///
/// A number is taken as the one nearest to the highest so far, so the stream may jump by 2³¹ − 1 and be as late as that.
/// The first number gets room below it: what comes late before it is not lost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwrap {
    /// The highest number so far; 0 when there was none.
    highest: u64,
}

impl Unwrap {
    /// What the first number is above: one whole turn.
    pub const BASE: u64 = 1 << 32;

    /// The number without the wrap.
    #[inline]
    pub fn number(&mut self, wrapped: u32) -> u64 {
        if self.highest == 0 {
            self.highest = Self::BASE + u64::from(wrapped);
        }
        let ahead = wrapped.wrapping_sub(self.highest as u32) as i32;
        let number = self.highest.saturating_add_signed(i64::from(ahead));
        self.highest = self.highest.max(number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// The slow twin: remembers everything.
    #[derive(Default)]
    struct Slow {
        seen: HashSet<u64>,
        highest: Option<u64>,
        before: Option<(u64, SequenceKind)>,
        damaged: u64,
        is_whole: bool,
    }

    impl Slow {
        fn see(&mut self, number: u64) -> SequenceKind {
            let kind = self.judge(number);
            self.before = Some((number, kind));
            kind
        }

        fn judge(&mut self, number: u64) -> SequenceKind {
            let next = self.highest.map_or(0, |highest| highest + 1);
            if (self.is_whole || self.highest.is_some()) && number >= next + WINDOW {
                match self.before {
                    Some((far, SequenceKind::Damaged)) if far < number && number - far < WINDOW => {
                        self.damaged -= 1;
                        self.seen.insert(far);
                    }
                    _ => {
                        self.damaged += 1;
                        return SequenceKind::Damaged;
                    }
                }
            }
            match self.highest {
                Some(highest) if number <= highest => {
                    if highest - number >= WINDOW {
                        SequenceKind::TooOld
                    } else if self.seen.insert(number) {
                        SequenceKind::Reordered
                    } else {
                        SequenceKind::Duplicate
                    }
                }
                _ => {
                    self.highest = Some(number);
                    self.seen.insert(number);
                    SequenceKind::InOrder
                }
            }
        }
    }

    /// Mostly near each other, sometimes jumping by about a window or anywhere.
    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        let step = prop_oneof![
            8 => (-70i64..200).prop_map(|step| (step, false)),
            1 => (-3i64..4).prop_map(|windows| (windows * WINDOW as i64 / 2 + windows, false)),
            1 => (0i64..1 << 48).prop_map(|number| (number, true)),
        ];
        prop::collection::vec(step, 1..150).prop_map(|steps| {
            let mut at = 0i64;
            let next = |(step, jump): (i64, bool)| {
                at = if jump { step } else { (at + step).max(0) };
                at as u64
            };
            steps.into_iter().map(next).collect()
        })
    }

    proptest! {
        /// The slow twin knows the numbers before they were cut to 32 bits.
        #[test]
        fn a_wrapping_stream_is_judged_as_one_that_does_not(start: u32, steps in prop::collection::vec(-300i64..2000, 1..200)) {
            let (mut unwrap, mut fast, mut slow) = (Unwrap::default(), Sequence::default(), Slow::default());
            let mut at = Unwrap::BASE + u64::from(start);
            for step in steps {
                prop_assert_eq!(unwrap.number(at as u32), at);
                prop_assert_eq!(fast.see(at), slow.see(at));
                at = at.saturating_add_signed(step);
            }
        }

        #[test]
        fn no_number_panics(numbers in prop::collection::vec(any::<u32>(), 0..50)) {
            let mut unwrap = Unwrap::default();
            let mut sequence = Sequence::default();
            for number in numbers {
                let _ = sequence.see(unwrap.number(number));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_window_judges_as_a_set_of_all_numbers(numbers in numbers(), is_whole: bool) {
            let mut fast = if is_whole { Sequence::from_zero() } else { Sequence::default() };
            let mut slow = Slow { is_whole, ..Slow::default() };
            for &number in &numbers {
                prop_assert_eq!(fast.see(number), slow.see(number), "number {}", number);
            }
            let sum = fast.unique + fast.duplicates + fast.too_old + fast.damaged;
            prop_assert_eq!((sum, fast.damaged), (numbers.len() as u64, slow.damaged));
        }
    }

    #[test]
    fn one_damaged_number_discards_nothing_else() {
        let mut sequence = Sequence::from_zero();
        assert_eq!(sequence.see(1 << 47), SequenceKind::Damaged, "the first one, too");
        for number in 0..1000 {
            let told = if number % 100 == 50 { number | 1 << 40 } else { number };
            let expected = if told == number { SequenceKind::InOrder } else { SequenceKind::Damaged };
            assert_eq!(sequence.see(told), expected);
        }
        assert_eq!((sequence.unique, sequence.damaged, sequence.too_old), (990, 11, 0));
    }

    #[test]
    fn a_stream_that_goes_on_far_above_is_believed() {
        let mut sequence = Sequence::from_zero();
        let numbers = [0, 1, 3 * WINDOW, 3 * WINDOW + 5, 3 * WINDOW + 1];
        let kinds = numbers.map(|number| sequence.see(number));
        use SequenceKind::{Damaged, InOrder, Reordered};
        assert_eq!(kinds, [InOrder, InOrder, Damaged, InOrder, Reordered]);
        assert_eq!((sequence.unique, sequence.damaged), (5, 0), "what proved it counts, too");
    }

    #[test]
    fn a_long_orderly_stream_wraps_the_ring() {
        let mut sequence = Sequence::default();
        for number in 0..3 * WINDOW {
            assert_eq!(sequence.see(number), SequenceKind::InOrder);
        }
        assert_eq!(sequence.see(3 * WINDOW - 5), SequenceKind::Duplicate);
        assert_eq!(sequence.see(2 * WINDOW - 1), SequenceKind::TooOld);
        assert_eq!((sequence.unique, sequence.reordered), (3 * WINDOW, 0));
    }
}
