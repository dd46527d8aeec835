//! `pathlab bench send`: port kind × frame size, frames that were really transmitted.
//!
//! **What.** Every sender runs in node a on one CPU, into the same far end: an XDP program that drops everything (or,
//! with `--sink plain`, an interface whose kernel drops frames for somebody else). `--peers` adds trafgen, interleaved.
//!
//! **Why counters.** What a tool claims is compared with what its interface transmitted; only the latter is a rate.

use super::arena::BenchLab;
use super::grid::{self, Grid, Keep, Kept, Wanted};
use super::tools::{OUR_SENDERS, RIVAL_SENDERS, Sender};
use crate::notices::Notices;
use record::Result;
use record::bench::{BenchHead, SEND, SendCell, SendResult};
use std::path::PathBuf;
use study::bench::{Bench, Measured};

/// What drops the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Far {
    /// An XDP program at the far end.
    Xdp,
    /// The far end's kernel, as frames for another host (live frames do not arrive there).
    Plain,
}

impl Far {
    fn words(self) -> &'static str {
        match self {
            Far::Xdp => "into an XDP program that drops everything",
            Far::Plain => "into an interface whose kernel drops frames for another host",
        }
    }
}

/// Runs the benchmark, or the rest of one; the directory of its record, and what is in it.
///
/// # Errors
/// Input: a tool or a CPU that there is not; host: the lab or the record cannot be made; an interrupt.
pub fn run(
    wanted: &Wanted,
    far: Far,
    keep: &Keep,
    notices: &dyn Notices,
) -> Result<(PathBuf, Bench<SendResult>)> {
    let mut arena = BenchLab::build(keep.cpus)?;
    let mut kept: Kept<SendResult> = keep.begin(SEND, || head(wanted, far, keep.seed, &arena), notices)?;
    // A benchmark that goes on has the far end with which it began.
    let sink = if kept.bench.head.other_end == Far::Xdp.words() { Some(arena.sink()?) } else { None };
    let duration_ms = kept.bench.head.duration_ms;
    kept.fill(notices, SendResult::name, |cell| arena.send(cell, duration_ms))?;
    drop(sink);
    arena.down(notices);
    Ok(kept.ended())
}

/// Which cells, and everything that is known before the first one.
fn head(wanted: &Wanted, far: Far, seed: u64, arena: &BenchLab) -> Result<BenchHead<SendCell>> {
    let (sizes, rounds) = match (wanted.full, wanted.peers) {
        (true, _) => (grid::SIZES.to_vec(), 5),
        (_, true) => (vec![60], 5),
        _ => (vec![60, 508, 1514], 1),
    };
    let grid = Grid { sizes, rings: vec![], rates: vec![0], rounds, ms: 1000 }.with(wanted);
    if grid.sizes.contains(&0) {
        return Err(record::Problem::input("a sender's benchmark needs frames of one size").at("--sizes"));
    }
    let rivals = RIVAL_SENDERS.map(|(name, _)| name);
    let known: Vec<&str> = OUR_SENDERS.into_iter().chain(rivals).collect();
    let all = if wanted.peers { known.clone() } else { OUR_SENDERS.to_vec() };
    let chosen = grid::choose(&wanted.only, &all, &known)?;
    let (tools, absent) = grid::present(&chosen, |name| Sender::named(name).and_then(Sender::program));
    let cells = grid.order(seed, |round| {
        let mut all = vec![];
        for (tool, &frame_bytes) in
            tools.iter().flat_map(|tool| grid.sizes.iter().map(move |size| (tool, size)))
        {
            let cell = |&rate: &u64| SendCell { tool: tool.clone(), frame_bytes, rate, round };
            all.extend(grid.rates.iter().map(cell));
        }
        all
    });
    Ok(BenchHead {
        placement: arena.placement("nothing on CPU"),
        other_end: far.words().into(),
        ..grid::head(SEND, arena.offloads(), &grid, seed, absent, cells)
    })
}
