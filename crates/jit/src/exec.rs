//! Running machine code: the only unsafe code of the crate.
//!
//! **What.** A [`Machine`] holds code in memory that is either writable or executable, never both; [`Machine::run`] takes one frame
//! through it. The three functions that code calls are here, too.
//!
//! **Why it is sound.** Code reads and writes: the [`Context`]; the frame between its first and last byte, whose length it checks
//! before every header, and the room before it, of which [`Machine::run`] is promised enough; pages of tables and records, whose
//! indices Rust wrote. All of it is borrowed for the call. Code takes nothing from the frame as an address. What holds for the
//! IR was verified; what the emitter makes of it is held to the evaluator and to the interpreter by random trials.
//!
//! **Price.** The code of all programs together is bounded ([`CODE_LIMIT`]).

#![allow(unsafe_code)]

use crate::context::{Aside, CALLS, Context};
use crate::emit::{Calls, Code};
use crate::frame::{Frame, Outputs};
use crate::key;
use dynasmrt::ExecutableBuffer;
use dynasmrt::mmap::MutableBuffer;
use flow::action::Action;
use flow::edits;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::edit::Refused;
use wire::headers::Headers;

/// Bytes of code of all programs together.
pub const CODE_LIMIT: usize = 64 << 20;

static CODE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of a frame's head that are put back on an exit; code itself writes no others.
const HEAD: usize = 256;

// SAFETY: the addresses in both are used only while code runs, which is inside of one call of `Machine::run`, which sets them first.
unsafe impl Send for Aside {}
// SAFETY: as above.
unsafe impl Send for Context {}

/// Code that can be run.
#[derive(Debug)]
pub struct Machine {
    code: ExecutableBuffer,
    entry: usize,
    shapes: Vec<usize>,
}

/// Addresses of the data of a program, valid as long as the program is.
#[derive(Debug, Clone, Copy)]
pub struct Data<'a> {
    /// For each table with data the addresses of its pages.
    pub tables: &'a [usize],
    /// The addresses of the pages of records.
    pub records: &'a [usize],
    /// The record of each action set.
    pub sets: &'a [u32],
    /// Rows of action sets.
    pub maps: &'a [u32],
    /// The edits by number.
    pub edits: &'a [Action],
    /// A frame may have been changed when it exits.
    pub restores: bool,
}

/// What code calls.
pub fn calls() -> Calls {
    Calls {
        parse: parse as *const () as usize,
        edit: edit as *const () as usize,
        keep: keep as *const () as usize,
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        CODE_BYTES.fetch_sub(self.code.len(), Ordering::Relaxed);
    }
}

impl Machine {
    /// Puts code into memory of its own: written first, then made executable and never writable again.
    ///
    /// # Errors
    /// There is too much code already, or the kernel gives no such memory.
    pub fn new(code: &Code) -> Result<Machine, String> {
        let length = code.bytes.len();
        let all = CODE_BYTES.fetch_add(length, Ordering::Relaxed) + length;
        let made = if all > CODE_LIMIT {
            Err(format!("{all} bytes of machine code are more than {CODE_LIMIT}"))
        } else {
            executable(&code.bytes)
                .map_err(|error| format!("no memory for {length} bytes of machine code: {error}"))
        };
        match made {
            Ok(memory) => {
                let base = memory.as_ptr() as usize;
                let shapes = code.shapes.iter().map(|offset| base + offset).collect();
                Ok(Machine { code: memory, entry: code.entry, shapes })
            }
            Err(error) => {
                CODE_BYTES.fetch_sub(length, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Bytes of code.
    pub fn len(&self) -> usize {
        self.code.len()
    }

    /// Whether there is no code.
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }

    /// Takes a frame through the code; false when the interpreter has to do it. The key's words that stand in no frame were set by the caller,
    /// and the frame has as much room in front as the program pushes.
    pub(crate) fn run(
        &self,
        data: Data<'_>,
        context: &mut Context,
        aside: &mut Aside,
        frame: &mut Frame<'_>,
        outputs: &mut Outputs,
    ) -> bool {
        let bytes = frame.start..frame.end;
        aside.restores = data.restores;
        aside.saved.clear();
        if data.restores {
            let head = bytes.len().min(HEAD);
            aside.saved.extend_from_slice(&frame.room[bytes.start..bytes.start + head]);
        }
        aside.edits = (data.edits.as_ptr(), data.edits.len());
        (aside.offload, aside.came, aside.outputs) = (frame.offload, bytes.clone(), outputs);
        aside.kept.clear();
        let base = frame.room.as_mut_ptr();
        aside.room = (base, frame.room.len());
        context.tables = data.tables.as_ptr().cast();
        context.records = data.records.as_ptr();
        context.sets = data.sets.as_ptr();
        context.maps = data.maps.as_ptr();
        context.shapes = self.shapes.as_ptr();
        context.aside = aside;
        context.length = bytes.len() as u64;
        // SAFETY: `start` is inside of the room. The code was made by `emit` for data of this form, and the reasons at the head of this file
        // say what it touches; all of that is borrowed until it returns.
        let result = unsafe {
            context.start = base.add(bytes.start);
            let entry: extern "C" fn(*mut Context) -> u32 =
                std::mem::transmute(self.code.as_ptr().add(self.entry));
            entry(context)
        };
        if result != 0 {
            frame.room[bytes.start..bytes.start + aside.saved.len()].copy_from_slice(&aside.saved);
            return false;
        }
        frame.start = context.start as usize - base as usize;
        frame.end = frame.start + context.length as usize;
        frame.offload = aside.offload;
        true
    }
}

fn executable(bytes: &[u8]) -> std::io::Result<ExecutableBuffer> {
    let mut buffer = MutableBuffer::new(bytes.len())?;
    buffer.set_len(bytes.len());
    buffer.copy_from_slice(bytes);
    buffer.make_exec()
}

/// Fills the key of a frame that code cannot parse; edits of it are calls from now on.
extern "C" fn parse(context: *mut Context) {
    // SAFETY: code passes the context that `run` gave it, and in it where the frame is.
    let (context, frame) = unsafe {
        let context = &mut *context;
        let frame = slice::from_raw_parts(context.start, context.length as usize);
        (context, frame)
    };
    key::fill(&mut context.key, frame, &Headers::parse(frame));
    context.flags |= CALLS;
}

/// Makes the edit of this number; 1 for "exit".
extern "C" fn edit(context: *mut Context, number: u32) -> u32 {
    // SAFETY: as in `parse`; `aside` and what it points to are borrowed by `run`, and the number is one that Rust wrote into a record.
    let (context, aside, room, actions) = unsafe {
        let context = &mut *context;
        let aside = &mut *context.aside;
        let room = slice::from_raw_parts_mut(aside.room.0, aside.room.1);
        let actions = slice::from_raw_parts(aside.edits.0, aside.edits.1);
        (context, aside, room, actions)
    };
    let start = context.start as usize - aside.room.0 as usize;
    let bytes = start..start + context.length as usize;
    if aside.restores && aside.saved.len() < aside.came.len() {
        let head = aside.saved.len();
        aside.saved.extend_from_slice(&room[aside.came.start + head..aside.came.end]);
    }
    aside.buffer.load(&room[bytes.clone()], aside.offload);
    match edits::edit(&mut aside.buffer, &actions[number as usize]) {
        Err(Refused::Expired) => return 1,
        Err(_) => return 0,
        Ok(()) => {}
    }
    let mut frame = Frame { room, start: bytes.start, end: bytes.end, offload: aside.offload };
    if !frame.take(aside.buffer.bytes(), *aside.buffer.offload()) {
        return 1;
    }
    (context.start, context.length) = (aside.room.0.wrapping_add(frame.start), frame.bytes().len() as u64);
    aside.offload = frame.offload;
    0
}

/// Keeps a copy of the frame for the outputs that were asked for since the last one.
extern "C" fn keep(context: *mut Context) {
    // SAFETY: as in `edit`.
    let (context, aside, outputs, frame) = unsafe {
        let context = &mut *context;
        let aside = &mut *context.aside;
        let frame = slice::from_raw_parts(context.start, context.length as usize);
        let outputs = &mut *aside.outputs;
        (context, aside, outputs, frame)
    };
    let copy = outputs.keep(frame, aside.offload);
    context.kept = context.asked;
    aside.kept.push((context.asked as usize, copy));
}
