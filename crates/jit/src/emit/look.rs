//! The search of a table.
//!
//! Direct tables are compares and jumps, the tests of a rule in the order of its words. Probes keep the best rule in r8 (rank) and r9
//! (record); each begins with the question whether it, or any behind it, can hold a better one.

use super::{Emit, Search, TABLES, key};
use crate::hash::MULTIPLIER;
use crate::key::WordTest;
use crate::prune::Pruning;
use crate::table::{Compared, ENTRY, HEAD, Masks, Probe, TO_BLOCK, TableRule};
use dynasmrt::{DynamicLabel, DynasmApi, DynasmLabelApi, dynasm};

/// Bytes of a page, as a power of two, and the mask of a place in it.
const BYTES_SHIFT: i8 = 15;
const IN_PAGE: i32 = 0x7fff;

impl Emit<'_> {
    pub(super) fn table(&mut self, number: u8, search: &Search) {
        self.piece(format!("table {number}"));
        let label = self.tables[&number];
        dynasm!(self.asm ; .arch x64 ; =>label);
        match search {
            Search::Direct(rules) => rules.iter().for_each(|rule| self.direct(rule)),
            Search::Probes(probes, pruning, data) => self.probes(probes, pruning, *data),
        }
        self.miss(number);
    }

    fn direct(&mut self, rule: &TableRule) {
        let (next, hit) = (self.asm.new_dynamic_label(), self.hit);
        rule.tests.iter().for_each(|test| self.unless(test, next));
        dynasm!(self.asm ; .arch x64 ; mov eax, rule.record as i32 ; jmp =>hit ; =>next);
    }

    fn probes(&mut self, probes: &[Probe], pruning: &Pruning, data: usize) {
        let found = self.asm.new_dynamic_label();
        let hit = self.hit;
        let at = 8 * data as i32;
        dynasm!(self.asm
            ; .arch x64
            ; mov rax, [rbx + TABLES]
            ; mov r14, [rax + at]
            ; mov r10, [r14]
            ; xor r8d, r8d
            ; xor r9d, r9d
            ; mov r11, QWORD MULTIPLIER as i64
        );
        match pruning.parts.is_empty() {
            true => (0..probes.len()).for_each(|index| self.probe(index, &probes[index], found)),
            false => self.candidates(probes, pruning, found),
        }
        dynasm!(self.asm
            ; .arch x64
            ; =>found
            ; mov eax, r9d
            ; test eax, eax
            ; jnz =>hit
        );
    }

    /// Looks into a probe, unless what was found is better than all from it on.
    pub(super) fn probe(&mut self, index: usize, probe: &Probe, found: DynamicLabel) {
        let head = 8 * (HEAD * index) as i32;
        let next = self.asm.new_dynamic_label();
        dynasm!(self.asm ; .arch x64 ; cmp r8, [r10 + head] ; jae =>found);
        match probe {
            Probe::Hash { hashed, compared } => self.hash(head, hashed, compared, next),
            Probe::Trie { base, is_upper, word } => self.trie(head, base, *is_upper, *word, next),
        }
        dynasm!(self.asm ; .arch x64 ; =>next);
    }

    /// A chain, found by a hash; the first entry that is right is the best of the chain.
    fn hash(&mut self, head: i32, hashed: &Masks, compared: &Compared, next: DynamicLabel) {
        self.hash_of_key(hashed);
        dynasm!(self.asm
            ; .arch x64
            ; and rdx, [r10 + head + 16]
            ; mov rax, [r10 + head + 8]
            ; lea rax, [rax + rdx * 4]
        );
        self.cell();
        self.chain(compared, next);
    }

    /// Walks the chain whose first entry is in eax. An entry right behind the one before, which is how tables are made, is looked at without
    /// waiting for its number: that it is there is a jump that is predicted.
    fn chain(&mut self, compared: &Compared, next: DynamicLabel) {
        let [linked, entry, other] = [(); 3].map(|()| self.asm.new_dynamic_label());
        dynasm!(self.asm
            ; .arch x64
            ; test eax, eax
            ; jz =>next
            ; =>linked
            ; mov ecx, eax
            ; shr ecx, 12
            ; and eax, 0xfff
            ; mov rcx, [r14 + rcx * 8]
            ; lea rdi, [rcx + rax * 8]
            ; =>entry
            ; mov rdx, [rdi]
            ; cmp rdx, r8
            ; jbe =>next
        );
        self.compare(compared, other);
        dynasm!(self.asm
            ; .arch x64
            ; mov r8, rdx
            ; mov r9d, [rdi + 8]
            ; jmp =>next
            ; =>other
            ; mov eax, [rdi + 12]
            ; add rdi, 8 * compared.entry_words() as i32
            ; test eax, eax
            ; js =>entry
            ; jnz =>linked
            ; jmp =>next
        );
    }

    /// The hash of the masked key in rdx.
    fn hash_of_key(&mut self, hashed: &Masks) {
        dynasm!(self.asm ; .arch x64 ; xor edx, edx);
        for (word, mask) in hashed {
            self.masked(*word, *mask);
            dynasm!(self.asm
                ; .arch x64
                ; xor rdx, rax
                ; imul rdx, r11
                ; bswap rdx
            );
        }
    }

    /// A masked word of the key in rax.
    pub(super) fn masked(&mut self, word: u8, mask: u64) {
        let at = key(word);
        if mask == u64::MAX {
            dynasm!(self.asm ; .arch x64 ; mov rax, [rbx + at]);
        } else {
            dynasm!(self.asm ; .arch x64 ; mov rax, QWORD mask as i64 ; and rax, [rbx + at]);
        }
    }

    /// Turns the place of a cell in bytes, in rax, into the cell, in eax.
    fn cell(&mut self) {
        dynasm!(self.asm
            ; .arch x64
            ; mov rcx, rax
            ; shr rcx, BYTES_SHIFT
            ; and eax, IN_PAGE
            ; mov rcx, [r14 + rcx * 8]
            ; mov eax, [rcx + rax]
        );
    }

    /// Compares the entry at rdi with the key; keeps rdx. One jump for all words: which of them differs cannot be predicted, that one does can.
    fn compare(&mut self, compared: &Compared, other: DynamicLabel) {
        let values = 8 * ENTRY as i32;
        let own = values + 8 * compared.words() as i32;
        for (index, (word, mask)) in (0i32..).zip(compared.same_or_own()) {
            match mask {
                Some(mask) => self.masked(word, mask),
                None => {
                    dynasm!(self.asm ; .arch x64 ; mov rax, [rdi + own + 8 * index] ; and rax, [rbx + key(word)]);
                }
            }
            dynasm!(self.asm ; .arch x64 ; xor rax, [rdi + values + 8 * index]);
            if index > 0 {
                dynasm!(self.asm ; .arch x64 ; or rax, rcx);
            }
            if index + 1 < compared.words() as i32 {
                dynasm!(self.asm ; .arch x64 ; mov rcx, rax);
            }
        }
        if compared.words() > 0 {
            // The flags are those of the last operation.
            dynasm!(self.asm ; .arch x64 ; jnz =>other);
        }
    }

    /// Sixteen bits, then eight, then eight: a cell is a record, or leads to a block.
    fn trie(&mut self, head: i32, base: &[WordTest], is_upper: bool, word: u8, next: DynamicLabel) {
        base.iter().for_each(|test| self.unless(test, next));
        let at = key(word) + 4 * i32::from(is_upper);
        dynasm!(self.asm
            ; .arch x64
            ; mov esi, [rbx + at]
            ; mov edx, esi
            ; shr edx, 16
            ; mov rax, [r10 + head + 8]
            ; lea rax, [rax + rdx * 4]
        );
        self.cell();
        let leaf = self.asm.new_dynamic_label();
        self.step_into_block(8, leaf);
        self.step_into_block(0, leaf);
        dynasm!(self.asm
            ; .arch x64
            ; =>leaf
            ; test eax, eax
            ; jz =>next
            // The record knows its rank.
            ; mov edx, eax
            ; mov ecx, eax
            ; shr ecx, 12
            ; and edx, 0xfff
            ; mov rdi, [rbx + super::RECORDS]
            ; mov rcx, [rdi + rcx * 8]
            ; mov rdx, [rcx + rdx * 8 + 8]
            ; cmp rdx, r8
            ; jbe =>next
            ; mov r8, rdx
            ; mov r9d, eax
        );
    }

    /// If the cell in eax leads to a block, the cell in it that the address in esi, shifted, selects.
    fn step_into_block(&mut self, shift: i8, leaf: DynamicLabel) {
        let to_block = TO_BLOCK as i32;
        dynasm!(self.asm
            ; .arch x64
            ; test eax, to_block
            ; jz =>leaf
            ; and eax, !to_block
            ; shl rax, 10
            ; mov edx, esi
            ; shr edx, shift
            ; movzx edx, dl
            ; lea rax, [rax + rdx * 4]
        );
        self.cell();
    }
}
