//! Pruning, and the way from one probe that is left to the next.
//!
//! The sets of a part come together in up to four registers, those of all parts in the context. Then each word of 64 probes is gone through by
//! its lowest bit: a jump into a list of jumps, one for each probe.

use super::{CANDIDATES, Emit, key};
use crate::pages::{PAGE, PAGE_SHIFT};
use crate::prune::{Part, PrefixTable, Pruning, bit};
use crate::table::Probe;
use dynasmrt::{DynamicLabel, DynasmApi, DynasmLabelApi, dynasm};

/// Where a word of a table is: where the address of its page stands in the directory, and its place in the page, in bytes.
fn place(word: usize) -> (i32, i32) {
    (8 * (word / PAGE) as i32, 8 * (word % PAGE) as i32)
}

/// `op` of a word of memory with the register that holds a word of the sets of a part.
macro_rules! with_set {
    ($self:ident, $op:ident, $word:expr, [$($memory:tt)*]) => {
        match $word {
            0 => dynasm!($self.asm ; .arch x64 ; $op rsi, [$($memory)*]),
            1 => dynasm!($self.asm ; .arch x64 ; $op rdi, [$($memory)*]),
            2 => dynasm!($self.asm ; .arch x64 ; $op rdx, [$($memory)*]),
            _ => dynasm!($self.asm ; .arch x64 ; $op r15, [$($memory)*]),
        }
    };
}

impl Emit<'_> {
    /// Looks into those of these probes that are left after pruning.
    pub(super) fn candidates(&mut self, probes: &[Probe], pruning: &Pruning, found: DynamicLabel) {
        for (index, part) in pruning.parts.iter().enumerate() {
            self.part(part, pruning.width);
            (0..pruning.width).for_each(|word| self.intersect(word, index == 0));
        }
        for word in 0..pruning.width {
            let all = probes.iter().enumerate();
            let of_word: Vec<_> = all.filter(|(probe, _)| bit(*probe, pruning.width).0 == word).collect();
            self.lowest_first(word, &of_word, found);
        }
        dynasm!(self.asm ; .arch x64 ; jmp =>found);
    }

    /// The sets of a part, united.
    fn part(&mut self, part: &Part, width: usize) {
        let (page, byte) = place(part.any);
        dynasm!(self.asm ; .arch x64 ; mov rcx, [r14 + page]);
        for word in 0..width {
            let at = byte + 8 * word as i32;
            with_set!(self, mov, word, [rcx + at]);
        }
        for table in &part.tables {
            self.prefix_place(part.word, table, width);
            for word in 0..width {
                let at = place(table.at).1 + 8 * word as i32;
                with_set!(self, or, word, [rcx + rax * 8 + at]);
            }
        }
    }

    /// The place of the key in a table: the address of its page in rcx, the word in rax.
    fn prefix_place(&mut self, word: u8, table: &PrefixTable, width: usize) {
        let shift = (64 - table.bits) as i8;
        if table.is_small() {
            let (right, left) = (table.mask.trailing_zeros() as i8, (1 << table.bits) - 1);
            dynasm!(self.asm ; .arch x64 ; mov rax, [rbx + key(word)] ; shr rax, right ; and eax, left);
        } else {
            self.masked(word, table.mask);
            dynasm!(self.asm ; .arch x64 ; imul rax, r11 ; shr rax, shift);
        }
        if width > 1 {
            dynasm!(self.asm ; .arch x64 ; shl eax, width.ilog2() as i8);
        }
        let (page, _) = place(table.at);
        if width << table.bits > PAGE {
            // It begins a page.
            dynasm!(self.asm
                ; .arch x64
                ; mov ecx, eax
                ; shr ecx, PAGE_SHIFT as i8
                ; and eax, (PAGE - 1) as i32
                ; mov rcx, [r14 + rcx * 8 + page]
            );
        } else {
            dynasm!(self.asm ; .arch x64 ; mov rcx, [r14 + page]);
        }
    }

    /// A word of the sets of a part with that of the parts before it.
    fn intersect(&mut self, word: usize, is_first: bool) {
        let at = CANDIDATES + 8 * word as i32;
        if !is_first {
            with_set!(self, and, word, [rbx + at]);
        }
        match word {
            0 => dynasm!(self.asm ; .arch x64 ; mov [rbx + at], rsi),
            1 => dynasm!(self.asm ; .arch x64 ; mov [rbx + at], rdi),
            2 => dynasm!(self.asm ; .arch x64 ; mov [rbx + at], rdx),
            _ => dynasm!(self.asm ; .arch x64 ; mov [rbx + at], r15),
        }
    }

    /// The probes of one word of the set, from the lowest bit on.
    fn lowest_first(&mut self, word: usize, probes: &[(usize, &Probe)], found: DynamicLabel) {
        /// Bytes of a jump to a label, which is always a long one.
        const JUMP: i32 = 5;
        let [next, jumps, none] = [(); 3].map(|()| self.asm.new_dynamic_label());
        dynasm!(self.asm
            ; .arch x64
            ; mov rbp, [rbx + CANDIDATES + 8 * word as i32]
            ; =>next
            ; bsf rcx, rbp
            ; jz =>none
            ; lea rax, [rbp - 1]
            ; and rbp, rax
            ; imul ecx, ecx, JUMP
            ; lea rax, [=>jumps]
            ; add rax, rcx
            ; jmp rax
            ; =>jumps
        );
        // Probes that share the last bit are looked into one after the other.
        let labels: Vec<DynamicLabel> = probes.iter().map(|_| self.asm.new_dynamic_label()).collect();
        labels.iter().take(64).for_each(|label| dynasm!(self.asm ; .arch x64 ; jmp =>*label));
        for (place, (label, (index, probe))) in labels.iter().zip(probes).enumerate() {
            dynasm!(self.asm ; .arch x64 ; =>*label);
            self.probe(*index, probe, found);
            if place < 63 || place + 1 == probes.len() {
                dynasm!(self.asm ; .arch x64 ; jmp =>next);
            }
        }
        dynasm!(self.asm ; .arch x64 ; =>none);
    }
}
