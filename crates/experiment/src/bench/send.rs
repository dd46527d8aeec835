//! `pathlab bench send`: port kind × frame size, frames that were really transmitted.
//!
//! **What.** Every sender runs in node a on one CPU, into the same far end: an XDP program that drops everything (or,
//! with `--sink plain`, an interface whose kernel drops frames for somebody else). `--peers` adds trafgen, interleaved.
//!
//! **Why counters.** What a tool claims is compared with what its interface transmitted; only the latter is a rate.

use super::arena::BenchLab;
use super::grid::{self, Grid, Keep, Wanted};
use super::tools::SENDERS;
use crate::notices::{Notices, down};
use record::bench::{BenchHead, Cell, SEND, SendResult};
use record::{Problem, Result};
use std::path::PathBuf;
use study::bench::Bench;

/// What drops the frames: an XDP program at the far end, or its kernel (where live frames do not arrive).
const XDP: &str = "into an XDP program that drops everything";
const PLAIN: &str = "into an interface whose kernel drops frames for another host";

/// Runs the benchmark, or the rest of one, into an XDP program or a plain interface; the directory of its record, and what is in it.
///
/// # Errors
/// Input: a tool or a CPU that there is not; host: the lab or the record cannot be made; an interrupt.
pub fn run(
    wanted: &Wanted,
    xdp: bool,
    keep: &Keep,
    notices: &dyn Notices,
) -> Result<(PathBuf, Bench<SendResult>)> {
    let mut arena = BenchLab::build(keep.cpus)?;
    let kept = keep.begin::<SendResult>(SEND, || head(wanted, xdp, keep.seed, &arena), notices)?;
    // A benchmark that goes on has the far end with which it began.
    let sink = if kept.1.head.other_end == XDP { Some(arena.sink()?) } else { None };
    let duration_ms = kept.1.head.duration_ms;
    let done = grid::fill(kept, notices, |cell| arena.send(cell, duration_ms))?;
    drop(sink);
    down(arena.lab, notices);
    Ok(done)
}

/// Which cells, and everything that is known before the first one.
fn head(wanted: &Wanted, xdp: bool, seed: u64, arena: &BenchLab) -> Result<BenchHead> {
    let usual = match (wanted.full, wanted.peers) {
        (true, _) => Grid::new(&grid::SIZES, &[0], &[0], 5, 1000),
        (_, true) => Grid::new(&[60], &[0], &[0], 5, 1000),
        _ => Grid::new(&[60, 508, 1514], &[0], &[0], 1, 1000),
    };
    let grid = usual.with(wanted);
    if grid.sizes.contains(&0) {
        return Err(Problem::input("a sender's benchmark needs frames of one size").at("--sizes"));
    }
    let ours: Vec<&str> =
        SENDERS.iter().filter(|tool| tool.rival().is_none()).map(|tool| tool.name).collect();
    let (tools, absent) = grid::tools(SENDERS, &ours, wanted)?;
    Ok(BenchHead {
        placement: arena.placement("nothing on CPU"),
        other_end: if xdp { XDP } else { PLAIN }.into(),
        cells: grid.cells(&tools, seed, |cell| Some(Cell { ring_frames: None, ..cell })),
        absent,
        ..grid.head(SEND, seed, arena)
    })
}
