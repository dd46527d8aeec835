//! Machine code for x86-64.
//!
//! **What.** [`emit`] writes one function for a whole pipeline: parse ([`parse`](self)), the search of each table, and one piece
//! of code per shape; a goto is a jump. Offsets of the pieces are in [`Code`].
//!
//! **Why.** What is known when the pipeline is compiled stands in the code: which headers are asked, masks, which words are compared, what
//! comes next. What changes with every rule (values, addresses, slots) stands in data.
//!
//! **Registers.** rbx the [`Context`], r12 the frame's first byte, r13 its length, r15 the record that matched; in a search r14 the
//! table's pages, r10 its first page, r8 the best rank and r9 its record so far, r11 the hash's multiplier,
//! rbp a bit for each probe that is still worth a look, of 64.
//!
//! **Price.** Written by hand, 700 lines; the evaluator and the interpreter watch over it in the random trials.

mod look;
mod parse;
mod prune;
mod shape;

use crate::context::Context;
use crate::ir::Ir;
use crate::key::{FRAGMENT, SUMMARY, WordTest};
use crate::needs::Needs;
use crate::pages::PAGE_SHIFT;
use crate::path::{MISS, Passed};
use crate::prune::Pruning;
use crate::record::BodyShape;
use crate::table::{Probe, TableRule};
use dynasmrt::x64::X64Relocation;
use dynasmrt::{AssemblyOffset, DynamicLabel, DynasmApi, DynasmLabelApi, VecAssembler, dynasm};
use std::collections::HashMap;
use std::mem::{offset_of, size_of};

/// What a table's search is to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Search {
    /// These rules one after the other.
    Direct(Vec<TableRule>),
    /// These probes, those that are left after pruning, over the data with this number.
    Probes(Vec<Probe>, Pruning, usize),
}

/// The functions in Rust that code calls, by address.
#[derive(Debug, Clone, Copy)]
pub struct Calls {
    /// Fills the key of a frame that code cannot parse.
    pub parse: usize,
    /// Makes an edit by number; not 0 for "exit".
    pub edit: usize,
    /// Keeps a copy of the frame for the outputs so far.
    pub keep: usize,
}

/// Bytes of machine code, and where in them what is.
#[derive(Debug, Clone)]
pub struct Code {
    /// The bytes; they may stand anywhere.
    pub bytes: Vec<u8>,
    /// Where the function begins.
    pub entry: usize,
    /// Where each shape begins.
    pub shapes: Vec<usize>,
    /// Names of pieces and where they begin, in order.
    pub pieces: Vec<(String, usize)>,
}

/// What is to become code.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The pipeline.
    pub ir: &'a Ir,
    /// What has to be parsed.
    pub needs: Needs,
    /// The searches of the tables of the IR, in their order.
    pub searches: &'a [Search],
    /// The shapes.
    pub shapes: &'a [BodyShape],
    /// What code calls.
    pub calls: Calls,
}

struct Emit<'a> {
    asm: VecAssembler<X64Relocation>,
    source: Source<'a>,
    tables: HashMap<u8, DynamicLabel>,
    parse: DynamicLabel,
    hit: DynamicLabel,
    jump: DynamicLabel,
    done: DynamicLabel,
    exit: DynamicLabel,
    pieces: Vec<(String, usize)>,
}

const START: i32 = offset_of!(Context, start) as i32;
const LENGTH: i32 = offset_of!(Context, length) as i32;
const NETWORK: i32 = offset_of!(Context, network) as i32;
const TRANSPORT: i32 = offset_of!(Context, transport) as i32;
const SET: i32 = offset_of!(Context, set) as i32;
const QUEUE: i32 = offset_of!(Context, queue) as i32;
const FLAGS: i32 = offset_of!(Context, flags) as i32;
const PASSED: i32 = offset_of!(Context, passed) as i32;
const ASKED: i32 = offset_of!(Context, asked) as i32;
const KEPT: i32 = offset_of!(Context, kept) as i32;
const TABLES: i32 = offset_of!(Context, tables) as i32;
const RECORDS: i32 = offset_of!(Context, records) as i32;
const SHAPES: i32 = offset_of!(Context, shapes) as i32;
const SETS: i32 = offset_of!(Context, sets) as i32;
const MAPS: i32 = offset_of!(Context, maps) as i32;
const CANDIDATES: i32 = offset_of!(Context, candidates) as i32;
const PASSED_LIST: i32 = offset_of!(Context, passed_list) as i32;
const ASKED_LIST: i32 = offset_of!(Context, asked_list) as i32;

// Code computes with these sizes and places.
const _: () = assert!(size_of::<Passed>() == 8 && offset_of!(Passed, length) == 4);
const _: () = assert!(size_of::<crate::path::Asked>() == 16 && PAGE_SHIFT == 12);

/// The offset of a word of the key.
fn key(word: u8) -> i32 {
    offset_of!(Context, key) as i32 + 8 * i32::from(word)
}

/// Writes the code.
///
/// # Errors
/// The assembler found a jump that does not reach: a mistake in this crate, or a pipeline of gigabytes.
pub fn emit(source: Source<'_>) -> Result<Code, String> {
    let mut asm = VecAssembler::new(0);
    let tables = source.ir.tables.iter().map(|table| (table.number, asm.new_dynamic_label())).collect();
    let (parse, hit, jump) = (asm.new_dynamic_label(), asm.new_dynamic_label(), asm.new_dynamic_label());
    let (done, exit) = (asm.new_dynamic_label(), asm.new_dynamic_label());
    let mut emit = Emit { asm, source, tables, parse, hit, jump, done, exit, pieces: vec![] };
    let entry = emit.entry();
    emit.parse();
    for (table, search) in source.ir.tables.iter().zip(source.searches) {
        emit.table(table.number, search);
    }
    emit.hit();
    let shapes = source.shapes.iter().enumerate().map(|(number, shape)| emit.shape(number, shape)).collect();
    emit.ends();
    let bytes = emit.asm.finalize().map_err(|error| format!("the assembler refused the code: {error}"))?;
    Ok(Code { bytes, entry, shapes, pieces: emit.pieces })
}

impl Emit<'_> {
    fn piece(&mut self, name: impl Into<String>) -> usize {
        let AssemblyOffset(at) = self.asm.offset();
        self.pieces.push((name.into(), at));
        at
    }

    fn entry(&mut self) -> usize {
        let at = self.piece("entry");
        let first = self.tables[&0];
        let (parse, exit) = (self.parse, self.exit);
        dynasm!(self.asm
            ; .arch x64
            ; push rbx
            ; push rbp
            ; push r12
            ; push r13
            ; push r14
            ; push r15
            ; sub rsp, 8
            ; mov rbx, rdi
            ; mov r12, [rbx + START]
            ; mov r13, [rbx + LENGTH]
            ; call =>parse
        );
        if self.source.ir.exits_fragments {
            let bit = FRAGMENT.trailing_zeros() as i8;
            dynasm!(self.asm ; .arch x64 ; bt QWORD [rbx + key(SUMMARY)], bit ; jc =>exit);
        }
        dynasm!(self.asm ; .arch x64 ; jmp =>first);
        at
    }

    /// The record in eax matched: note its slot, go to its shape.
    fn hit(&mut self) {
        self.piece("hit");
        let (hit, jump) = (self.hit, self.jump);
        dynasm!(self.asm
            ; .arch x64
            ; =>hit
            ; mov rdx, [rbx + RECORDS]
            ; mov ecx, eax
            ; shr ecx, PAGE_SHIFT as i8
            ; and eax, 0xfff
            ; mov rcx, [rdx + rcx * 8]
            ; lea r15, [rcx + rax * 8]
            ; mov rax, [rbx + PASSED]
            ; mov ecx, [r15]
            ; mov [rbx + rax * 8 + PASSED_LIST], ecx
            ; mov [rbx + rax * 8 + PASSED_LIST + 4], r13d
            ; inc QWORD [rbx + PASSED]
            ; =>jump
            ; mov ecx, [r15 + 4]
            ; mov rdx, [rbx + SHAPES]
            ; jmp QWORD [rdx + rcx * 8]
        );
    }

    fn miss(&mut self, table: u8) {
        let done = self.done;
        let slot = (MISS | u32::from(table)) as i32;
        dynasm!(self.asm
            ; .arch x64
            ; mov rax, [rbx + PASSED]
            ; mov DWORD [rbx + rax * 8 + PASSED_LIST], slot
            ; mov [rbx + rax * 8 + PASSED_LIST + 4], r13d
            ; inc QWORD [rbx + PASSED]
            ; jmp =>done
        );
    }

    fn ends(&mut self) {
        self.piece("ends");
        let (done, exit) = (self.done, self.exit);
        dynasm!(self.asm
            ; .arch x64
            ; =>exit
            ; mov eax, 1
            ; jmp >leave
            ; =>done
            ; xor eax, eax
            ; leave:
            ; mov [rbx + START], r12
            ; mov [rbx + LENGTH], r13
            ; add rsp, 8
            ; pop r15
            ; pop r14
            ; pop r13
            ; pop r12
            ; pop rbp
            ; pop rbx
            ; ret
        );
    }

    /// Goes to a label unless the key is as the test asks. Changes rax and rcx.
    fn unless(&mut self, test: &WordTest, otherwise: DynamicLabel) {
        let at = key(test.word);
        if test.mask == u64::MAX {
            dynasm!(self.asm ; .arch x64 ; mov rax, QWORD test.value as i64 ; cmp rax, [rbx + at] ; jne =>otherwise);
            return;
        }
        dynasm!(self.asm
            ; .arch x64
            ; mov rax, QWORD test.mask as i64
            ; mov rcx, QWORD test.value as i64
            ; and rax, [rbx + at]
            ; cmp rax, rcx
            ; jne =>otherwise
        );
    }
}
