//! What code and Rust share while a frame is on its way.
//!
//! **What.** A [`Context`] per thread: the key, the frame's place, the path so far, and the addresses of the program's data. Code
//! finds its fields by their offsets.
//!
//! **Why.** One register leads to all of it, and Rust reads the result where code left it.
//!
//! **Price.** 18 KiB per thread, most of it for outputs that hardly any frame has.

use crate::frame::Outputs;
use crate::key::{Key, WORDS};
use crate::path::{Asked, OUTPUTS, Passed};
use crate::prune::{Candidates, SET};
use flow::action::Action;
use std::ops::Range;
use std::ptr;
use wire::edit::FrameBuf;
use wire::offload::Offload;

/// The edits of this frame are made by `wire`: it has headers that code does not know, or a checksum that was left to the hardware.
pub const CALLS: u64 = 1;
/// Tables that a frame can go through.
pub const TABLES: usize = 256;

/// What code and Rust share. The addresses are valid while code runs.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    /// What rules ask.
    pub key: Key,
    /// The first byte of the frame.
    pub start: *mut u8,
    /// Its length.
    pub length: u64,
    /// Behind the Ethernet header, its tags and SNAP.
    pub network: *mut u8,
    /// The transport, when there is IP.
    pub transport: *mut u8,
    /// The number of the action set.
    pub set: u64,
    /// The queue, or `NO_QUEUE`.
    pub queue: u64,
    /// [`CALLS`].
    pub flags: u64,
    /// How many tables were passed.
    pub passed: u64,
    /// How many outputs were asked for.
    pub asked: u64,
    /// How many of these have a copy of their own, because the frame was changed afterwards.
    pub kept: u64,
    /// For each table with data the addresses of its pages.
    pub tables: *const *const usize,
    /// The addresses of the pages of the records.
    pub records: *const usize,
    /// The addresses of the shapes' code.
    pub shapes: *const usize,
    /// The record of each action set.
    pub sets: *const u32,
    /// The rows of action sets.
    pub maps: *const u32,
    /// In a search: the probes that are worth a look.
    pub candidates: Candidates,
    /// What only Rust knows.
    pub aside: *mut Aside,
    /// The tables.
    pub passed_list: [Passed; TABLES],
    /// The outputs.
    pub asked_list: [Asked; OUTPUTS],
}

/// What Rust needs while code runs.
#[derive(Debug)]
pub struct Aside {
    pub(crate) buffer: FrameBuf,
    pub(crate) offload: Offload,
    pub(crate) edits: (*const Action, usize),
    pub(crate) outputs: *mut Outputs,
    /// The outputs before this index send that copy.
    pub(crate) kept: Vec<(usize, usize)>,
    /// The memory around the frame, and where in it the frame was.
    pub(crate) room: (*mut u8, usize),
    pub(crate) came: Range<usize>,
    pub(crate) restores: bool,
    /// What the frame began with; all of it once `wire` has made an edit.
    pub(crate) saved: Vec<u8>,
}

impl Default for Aside {
    fn default() -> Aside {
        Aside {
            buffer: FrameBuf::new(),
            offload: Offload::NONE,
            edits: (ptr::null(), 0),
            outputs: ptr::null_mut(),
            kept: vec![],
            room: (ptr::null_mut(), 0),
            came: 0..0,
            restores: false,
            saved: vec![],
        }
    }
}

impl Context {
    /// One in which nothing stands.
    pub fn new() -> Box<Context> {
        Box::new(Context {
            key: [0; WORDS],
            start: ptr::null_mut(),
            length: 0,
            network: ptr::null_mut(),
            transport: ptr::null_mut(),
            set: 0,
            queue: 0,
            flags: 0,
            passed: 0,
            asked: 0,
            kept: 0,
            tables: ptr::null(),
            records: ptr::null(),
            shapes: ptr::null(),
            sets: ptr::null(),
            maps: ptr::null(),
            candidates: [0; SET],
            aside: ptr::null_mut(),
            passed_list: [Passed::default(); TABLES],
            asked_list: [Asked::default(); OUTPUTS],
        })
    }
}
