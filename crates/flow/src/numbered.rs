//! What groups and meters have in common: a number each, and counters.
//!
//! **What.** [`Numbered`] holds groups or meters by their numbers, a [`ModCommand`] says what to do with one; [`Counters`] is what one of them, a bucket or a band
//! counts (§5.8).
//!
//! **Why.** The standard describes both in the same words.
//!
//! **Price.** What may be changed is the business of [`crate::group`] and [`crate::meter`].

use std::collections::BTreeMap;

/// What a group-mod or a meter-mod does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ModCommand {
    /// Add one that does not exist.
    Add = 0,
    /// Change one that does.
    Modify = 1,
    /// Delete it, or all.
    Delete = 2,
}

/// What came to a group, a bucket, a meter or a band.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Counters {
    /// Counts this many frames with this many bytes altogether.
    pub fn count(&mut self, frames: u64, bytes: u64) {
        self.frames += frames;
        self.bytes += bytes;
    }
}

/// Groups or meters by their numbers.
#[derive(Debug, Clone)]
pub struct Numbered<T>(pub(crate) BTreeMap<u32, T>);

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Numbered(BTreeMap::new())
    }
}

impl<T> Numbered<T> {
    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }

    /// One.
    pub fn get(&self, id: u32) -> Option<&T> {
        self.0.get(&id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
