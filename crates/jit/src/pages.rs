//! Memory that many programs share: pages of words that are copied when they are written.
//!
//! **What.** [`Pages`] is a growing array of 64-bit words in pages of 32 KiB. A clone shares all pages; who writes a word of a shared page
//! copies that page first. Code finds a page through [`Pages::directory`].
//!
//! **Why.** A rule that comes or goes touches a few words of a table of megabytes. The program that threads run stays as it is, and the
//! next one shares all but the pages that changed: an update costs microseconds, and no reader ever sees half of it.
//!
//! **Price.** One more load, which is in the first cache, per look into a table.

use std::sync::Arc;

/// Words of a page.
pub const PAGE: usize = 4096;
/// The power of two that a page has words.
pub const PAGE_SHIFT: u32 = PAGE.trailing_zeros();

type Page = [u64; PAGE];

/// Words that clones share until one writes.
#[derive(Debug, Clone, Default)]
pub struct Pages {
    pages: Vec<Arc<Page>>,
    directory: Vec<usize>,
    used: usize,
}

impl Pages {
    /// The addresses of the pages, for code.
    pub fn directory(&self) -> &[usize] {
        &self.directory
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> usize {
        self.pages.len() * PAGE * 8
    }

    /// Takes so many words, none of them over the edge of a page unless they are more than a page: then they begin one. The index of the
    /// first; they are 0.
    pub fn take(&mut self, words: usize) -> usize {
        let room = PAGE - self.used % PAGE;
        if words > room && room < PAGE {
            self.used += room;
        }
        let at = self.used;
        self.used += words;
        while self.pages.len() * PAGE < self.used {
            let page: Arc<Page> = Arc::new([0; PAGE]);
            self.directory.push(page.as_ptr() as usize);
            self.pages.push(page);
        }
        at
    }

    /// A word.
    pub fn get(&self, at: usize) -> u64 {
        self.pages[at / PAGE][at % PAGE]
    }

    /// Writes a word.
    pub fn set(&mut self, at: usize, word: u64) {
        let page = &mut self.pages[at / PAGE];
        let own = Arc::make_mut(page);
        own[at % PAGE] = word;
        self.directory[at / PAGE] = own.as_ptr() as usize;
    }

    /// How many words were taken.
    pub fn used(&self) -> usize {
        self.used
    }

    /// All words, in order.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.iter().flat_map(|page| page.iter().copied()).take(self.used)
    }

    /// A half of a word, by its index among halves.
    pub fn half(&self, at: usize) -> u32 {
        (self.get(at / 2) >> (32 * (at % 2))) as u32
    }

    /// Writes a half of a word: the lower one first, as this machine has it in memory.
    pub fn set_half(&mut self, at: usize, half: u32) {
        let shift = 32 * (at % 2);
        let word = self.get(at / 2) & !(0xffff_ffff << shift);
        self.set(at / 2, word | u64::from(half) << shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_stays_as_it_was_and_shares_what_was_not_written() {
        let mut pages = Pages::default();
        let first = pages.take(10);
        let second = pages.take(PAGE + 1);
        assert_eq!((first, second % PAGE), (0, 0));
        pages.set(first, 7);
        let old = pages.clone();
        pages.set(first, 8);
        pages.set_half(2 * first + 3, 9);
        assert_eq!((old.get(first), pages.get(first), pages.get(first + 1)), (7, 8, 9 << 32));
        assert_ne!(old.directory()[0], pages.directory()[0]);
        assert_eq!(old.directory()[1..], pages.directory()[1..]);
    }

    #[test]
    fn a_record_never_stands_over_the_edge_of_a_page() {
        let mut pages = Pages::default();
        for words in [1, 4000, 200, 4096, 3, 4095] {
            let at = pages.take(words);
            assert_eq!(at / PAGE, (at + words - 1) / PAGE);
        }
    }
}
