//! `pathlab bench send`: port kind × frame size, frames that were really transmitted.
//!
//! **What.** Every sender runs in node a on one CPU, into the same far end: an XDP program that drops everything (or,
//! with `--sink plain`, an interface whose kernel drops frames for somebody else). `--peers` adds trafgen, interleaved.
//!
//! **Why counters.** What a tool claims is compared with what its interface transmitted; only the latter is a rate.

use super::arena::Arena;
use super::grid::{self, Grid, Keep, Kept};
use super::tools::{OUR_SENDERS, RIVAL_SENDERS, Sender};
use crate::Notices;
use record::Result;
use record::bench::{BenchHead, SEND, SendCell, SendResult};
use std::path::PathBuf;
use study::bench::Bench;

/// What is varied, instead of what the size of the benchmark says where it is not empty.
pub struct Parameters {
    /// Every size, five rounds.
    pub full: bool,
    /// Our ports against another tool.
    pub peers: bool,
    /// Only these tools.
    pub only: Vec<String>,
    /// Frame sizes without FCS.
    pub sizes: Vec<u32>,
    /// Frames a second; 0 is the maximum.
    pub rates: Vec<u64>,
    /// Milliseconds of each cell.
    pub ms: Option<u64>,
    /// How often every cell is repeated.
    pub rounds: Option<u32>,
    /// What is at the far end.
    pub far: Far,
}

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
    parameters: &Parameters,
    keep: &Keep,
    notices: &dyn Notices,
) -> Result<(PathBuf, Bench<SendResult>)> {
    let mut arena = Arena::build(keep.cpus)?;
    let mut kept: Kept<SendResult> = keep.begin(SEND, || head(parameters, keep.seed, &arena), notices)?;
    // A benchmark that goes on has the far end with which it began.
    let sink = if kept.bench.head.other_end == Far::Xdp.words() { Some(arena.sink()?) } else { None };
    let duration_ms = kept.bench.head.duration_ms;
    kept.fill(notices, study::bench::send_cell_name, |cell| arena.send(cell, duration_ms))?;
    drop(sink);
    arena.down(notices);
    Ok(kept.ended())
}

/// Which cells, and everything that is known before the first one.
fn head(parameters: &Parameters, seed: u64, arena: &Arena) -> Result<BenchHead<SendCell>> {
    let (sizes, rounds) = match (parameters.full, parameters.peers) {
        (true, _) => (grid::SIZES.to_vec(), 5),
        (_, true) => (vec![60], 5),
        _ => (vec![60, 508, 1514], 1),
    };
    let grid = Grid { sizes, rings: vec![], rates: vec![0], rounds, ms: 1000 };
    let grid = grid.with(&parameters.sizes, &[], &parameters.rates, parameters.rounds, parameters.ms);
    if grid.sizes.contains(&0) {
        return Err(record::Problem::input("a sender's benchmark needs frames of one size").at("--sizes"));
    }
    let rivals = RIVAL_SENDERS.map(|(name, _)| name);
    let known: Vec<&str> = OUR_SENDERS.into_iter().chain(rivals).collect();
    let all = if parameters.peers { known.clone() } else { OUR_SENDERS.to_vec() };
    let wanted = grid::choose(&parameters.only, &all, &known)?;
    let (tools, absent) = grid::present(&wanted, |name| Sender::named(name).and_then(Sender::program));
    let cells = order(&grid, &tools, seed);
    Ok(BenchHead {
        placement: arena.placement("nothing on CPU"),
        other_end: parameters.far.words().into(),
        ..grid::head(SEND, arena.offloads(), &grid, seed, absent, cells)
    })
}

/// All cells, round by round, each round shuffled.
fn order(grid: &Grid, tools: &[String], seed: u64) -> Vec<SendCell> {
    let mut random = study::stats::Generator::new(seed);
    let mut cells = vec![];
    for round in 1..=grid.rounds {
        let mut all = vec![];
        for tool in tools {
            for &frame_bytes in &grid.sizes {
                let cell = |&rate: &u64| SendCell { tool: tool.clone(), frame_bytes, rate, round };
                all.extend(grid.rates.iter().map(cell));
            }
        }
        random.shuffle(&mut all);
        cells.extend(all);
    }
    cells
}
