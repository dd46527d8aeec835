//! The hash by which tables find chains and places.
//!
//! **What.** Multiplicative hashing (Knuth, TAOCP 3, 6.4), a multiplication for each word. **Why.** It is two instructions in machine code and in the
//! kernel's, and every engine looks into the same tables. **Price.** Rules can be chosen that collide; how long chains may be is the planner's business.

/// A hash over masked words. The bytes of each product are turned round: only its high bits depend on all bits of the word (the low ones
/// of a prefix are 0), and the low bits of the hash choose the chain. Rules choose the masks and the values, frames only which of the
/// chains they meet; chains are bounded when the table is built.
pub fn hash(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0, |hash, word| (hash ^ word).wrapping_mul(MULTIPLIER).swap_bytes())
}

/// The odd number of the hash (2^64 divided by the golden ratio).
pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
