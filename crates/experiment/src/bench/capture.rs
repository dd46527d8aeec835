//! `pathlab bench capture`: the libtrace diary's experiment of 2012 as one command.
//!
//! **What.** Every port kind × frame size × ring size × offered rate (or, with `--peers`, our ports against tcpdump,
//! tracestats and netsniff-ng), in a lab of its own, round by round in a random order with a seed that is recorded.
//!
//! **Why so.** Each cell is written down as it ends, so a benchmark that was killed goes on with `--resume`; and the
//! offered frames are those that the sender's interface counted, never those that were asked for.

use super::arena::{BenchLab, FrameGenerator};
use super::grid::{self, Grid, Keep, Wanted};
use super::tools::{CAPTURERS, PATIENT};
use crate::notices::{Notices, down};
use record::Result;
use record::bench::{BenchHead, CAPTURE, CaptureResult, Cell};
use std::path::PathBuf;
use std::time::Duration;
use study::bench::Bench;

/// Smallest ring of an AF_XDP port.
const XDP_FRAMES: u32 = 64;
/// tcpdump hands a block over after a second at the latest.
const LINGER_PEERS: Duration = Duration::from_millis(1300);
/// Longer than any default of ours.
const LINGER: Duration = Duration::from_millis(120);

/// Runs the benchmark, or the rest of one, with frames from this port of `pathlab send` in node a; the directory of its record, and
/// what is in it.
///
/// # Errors
/// Input: a tool or a CPU that there is not; host: the lab or the record cannot be made; an interrupt.
pub fn run(
    wanted: &Wanted,
    generator: &str,
    keep: &Keep,
    notices: &dyn Notices,
) -> Result<(PathBuf, Bench<CaptureResult>)> {
    let mut arena = BenchLab::build(keep.cpus)?;
    let kept =
        keep.begin::<CaptureResult>(CAPTURE, || head(wanted, generator, keep.seed, &arena), notices)?;
    let head = &kept.1.head;
    let peers = head.cells.iter().any(|cell| !study::bench::is_ours(&cell.tool));
    let generator = FrameGenerator {
        uri: head.other_end.rsplit(' ').next().unwrap_or_default().to_owned(),
        duration_ms: head.duration_ms,
        linger: if peers { LINGER_PEERS } else { LINGER },
    };
    let done = grid::fill(kept, notices, |cell| arena.capture(cell, &generator))?;
    down(arena.lab, notices);
    Ok(done)
}

/// Which cells, and everything that is known before the first one.
fn head(wanted: &Wanted, generator: &str, seed: u64, arena: &BenchLab) -> Result<BenchHead> {
    let usual = match (wanted.full, wanted.peers) {
        (true, _) => {
            let rings: Vec<u32> = (3..=12).map(|power| 1 << power).collect();
            Grid::new(&grid::SIZES, &rings, &[50_000, 150_000, 300_000, 0], 3, 1000)
        }
        (_, true) => Grid::new(&[60], &[0], &[50_000, 150_000, 300_000], 5, 2000),
        _ => Grid::new(&[60, 1514], &[8, 128, 4096], &[150_000, 0], 1, 1000),
    };
    let grid = usual.with(wanted);
    let ours: &[&str] =
        if wanted.peers { &["ring", PATIENT, "int"] } else { &["int", "ring", "ring-v2", "xdp"] };
    let (tools, mut absent) = grid::tools(CAPTURERS, ours, wanted)?;
    if tools.iter().any(|tool| tool == "xdp") && grid.rings.iter().any(|&ring| too_small("xdp", ring)) {
        absent
            .push(format!("xdp with a ring below {XDP_FRAMES} frames or not a power of two: there is none"));
    }
    Ok(BenchHead {
        placement: arena.placement("the capture in node b on CPU"),
        other_end: format!("frames by pathlab send {generator}"),
        cells: grid.cells(&tools, seed, cell),
        absent,
        ..grid.head(CAPTURE, seed, arena)
    })
}

fn too_small(tool: &str, ring: u32) -> bool {
    tool == "xdp" && ring > 0 && (ring < XDP_FRAMES || !ring.is_power_of_two())
}

fn cell(cell: Cell) -> Option<Cell> {
    (!too_small(&cell.tool, cell.ring_frames.unwrap_or(0))).then_some(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_cell_in_another_order() {
        let grid = Grid::new(&[60, 1514], &[8, 64], &[1, 0], 2, 1);
        let tools = ["ring".to_owned(), "xdp".to_owned()];
        let cells = grid.cells(&tools, 7, cell);
        assert_eq!(cells.len(), 2 * (8 + 4), "xdp has no ring of 8 frames");
        let round = |n: u32| -> Vec<Cell> {
            let of = cells.iter().filter(|cell| cell.round == n);
            of.map(|cell| Cell { round: 0, ..cell.clone() }).collect()
        };
        let (first, second) = (round(1), round(2));
        assert!(first != second && first.iter().all(|cell| second.contains(cell)));
        assert_eq!(cells, grid.cells(&tools, 7, cell), "the seed repeats it");
    }
}
