//! `pathlab bench capture`: the libtrace diary's experiment of 2012 as one command.
//!
//! **What.** Every port kind × frame size × ring size × offered rate (or, with `--peers`, our ports against tcpdump,
//! tracestats and netsniff-ng), in a lab of its own, round by round in a random order with a seed that is recorded.
//!
//! **Why so.** Each cell is written down as it ends, so a benchmark that was killed goes on with `--resume`; and the
//! offered frames are those that the sender's interface counted, never those that were asked for.

use super::arena::{Arena, Generator};
use super::grid::{self, Grid};
use super::tools::{OUR_CAPTURERS, PATIENT, RIVAL_CAPTURERS};
use crate::output::Output;
use clap::Args;
use record::Result;
use record::bench::{BenchHead, CAPTURE, CaptureCell, CaptureResult};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use study::bench::{Bench, BenchWriter, Versus};

/// Smallest ring of an AF_XDP port.
const XDP_FRAMES: u32 = 64;
/// tcpdump hands a block over after a second at the latest.
const LINGER_PEERS: Duration = Duration::from_millis(1300);
/// Longer than any default of ours.
const LINGER: Duration = Duration::from_millis(120);

/// Flags of `pathlab bench capture`.
#[derive(Args)]
pub struct CaptureArgs {
    /// Every size, ring and rate, three rounds: more than an hour.
    #[arg(long, conflicts_with = "peers")]
    full: bool,
    /// Our ports against tcpdump, tracestats and netsniff-ng, with their own rings.
    #[arg(long)]
    peers: bool,
    /// Only these tools: int, ring, ring-count (blocks wait as with libpcap, frames are only counted), ring-v2, xdp, or rivals by name.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Frame sizes as the field names them, with FCS: 64 to 1518, or random.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = grid::size)]
    sizes: Vec<u32>,
    /// Frames that the ring shall hold; 0 leaves each port's own default.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    rings: Vec<u32>,
    /// Offered frames per second: 50k, 1M, max.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = grid::rate)]
    rates: Vec<u64>,
    /// For how long each cell sends.
    #[arg(long, value_parser = grid::seconds)]
    seconds: Option<u64>,
    /// How often every cell is repeated.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// What sends the frames in node a: a port of 'pathlab send'.
    #[arg(long, value_name = "PORT", default_value = "ring:eth0?bypass=on")]
    generator: String,
    #[command(flatten)]
    keep: grid::Keep,
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    directory: PathBuf,
    head: BenchHead<CaptureCell>,
    results: Vec<CaptureResult>,
    versus: Vec<Versus>,
}

/// Runs the command.
pub fn run(args: CaptureArgs, output: &Output) -> Result<()> {
    args.keep.check()?;
    let mut arena = Arena::build(args.keep.cpus()?)?;
    let (mut writer, mut bench) = match &args.keep.resume {
        Some(directory) => BenchWriter::<CaptureResult>::resume(directory, CAPTURE)?,
        None => {
            let mut head = head(&args, &arena)?;
            let writer = BenchWriter::create(&args.keep.dir, &mut head)?;
            (writer, Bench { head, results: vec![] })
        }
    };
    output.note(&format!("record: {}", writer.directory().display()));
    let peers = bench.head.cells.iter().any(|cell| !study::bench::is_ours(&cell.tool));
    let generator = Generator {
        uri: bench.head.other_end.rsplit(' ').next().unwrap_or_default().to_owned(),
        duration_ms: bench.head.duration_ms,
        linger: if peers { LINGER_PEERS } else { LINGER },
    };
    let missing = bench.missing();
    for (number, cell) in missing.iter().enumerate() {
        grid::progress(output, number, missing.len(), || study::bench::cell_name(cell));
        let result = arena.capture(cell, &generator).map_err(|p| grid::kept(p, writer.directory()))?;
        writer.add(&result)?;
        bench.results.push(result);
    }
    output.warn(arena.down());
    args.keep.report(|| study::report::bench::capture_html(&bench))?;
    let versus = study::bench::capture_versus(&bench);
    let directory = writer.directory().to_owned();
    let Bench { head, results } = bench;
    let document = Document { schema: CAPTURE, directory, head, results, versus };
    output.result(&document, |document| {
        let (head, results) = (document.head.clone(), document.results.clone());
        study::bench::capture_text(&Bench { head, results })
    })
}

/// Which cells, and everything that is known before the first one.
fn head(args: &CaptureArgs, arena: &Arena) -> Result<BenchHead<CaptureCell>> {
    let grid = if args.full {
        let rings = (3..=12).map(|power| 1 << power).collect();
        Grid {
            sizes: grid::SIZES.to_vec(),
            rings,
            rates: vec![50_000, 150_000, 300_000, 0],
            rounds: 3,
            ms: 1000,
        }
    } else if args.peers {
        Grid { sizes: vec![60], rings: vec![0], rates: vec![50_000, 150_000, 300_000], rounds: 5, ms: 2000 }
    } else {
        Grid {
            sizes: vec![60, 1514],
            rings: vec![8, 128, 4096],
            rates: vec![150_000, 0],
            rounds: 1,
            ms: 1000,
        }
    };
    let grid = grid.with(&args.sizes, &args.rings, &args.rates, args.rounds, args.seconds);
    let wanted = tools(args)?;
    let (tools, mut absent) = grid::present(&wanted, |name| {
        super::tools::Capturer::named(name).and_then(super::tools::Capturer::program)
    });
    if tools.iter().any(|tool| tool == "xdp") && grid.rings.iter().any(|&ring| too_small("xdp", ring)) {
        absent
            .push(format!("xdp with a ring below {XDP_FRAMES} frames or not a power of two: there is none"));
    }
    let seed = args.keep.seed();
    let cells = order(&grid, &tools, seed);
    Ok(BenchHead {
        placement: arena.placement("the capture in node b on CPU"),
        other_end: format!("frames by pathlab send {}", args.generator),
        ..grid::head(CAPTURE, arena.offloads(), &grid, seed, absent, cells)
    })
}

fn tools(args: &CaptureArgs) -> Result<Vec<String>> {
    let rivals = RIVAL_CAPTURERS.map(|(name, _)| name);
    let all: Vec<&str> = if args.peers {
        ["ring", PATIENT, "int"].into_iter().chain(rivals).collect()
    } else {
        OUR_CAPTURERS.to_vec()
    };
    let known: Vec<&str> = OUR_CAPTURERS.into_iter().chain([PATIENT]).chain(rivals).collect();
    grid::choose(&args.only, &all, &known)
}

fn too_small(tool: &str, ring: u32) -> bool {
    tool == "xdp" && ring > 0 && (ring < XDP_FRAMES || !ring.is_power_of_two())
}

/// All cells, round by round, each round shuffled.
fn order(grid: &Grid, tools: &[String], seed: u64) -> Vec<CaptureCell> {
    let mut random = study::stats::Generator::new(seed);
    let mut cells = vec![];
    for round in 1..=grid.rounds {
        let mut all = vec![];
        for tool in tools {
            for (&frame_bytes, &ring_frames) in
                grid.sizes.iter().flat_map(|size| grid.rings.iter().map(move |ring| (size, ring)))
            {
                let cell =
                    |&rate: &u64| CaptureCell { tool: tool.clone(), frame_bytes, ring_frames, rate, round };
                if !too_small(tool, ring_frames) {
                    all.extend(grid.rates.iter().map(cell));
                }
            }
        }
        random.shuffle(&mut all);
        cells.extend(all);
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_cell_in_another_order() {
        let grid = Grid { sizes: vec![60, 1514], rings: vec![8, 64], rates: vec![1, 0], rounds: 2, ms: 1 };
        let cells = order(&grid, &["ring".to_owned(), "xdp".to_owned()], 7);
        assert_eq!(cells.len(), 2 * (8 + 4), "xdp has no ring of 8 frames");
        let round = |n: u32| -> Vec<CaptureCell> {
            let of = cells.iter().filter(|cell| cell.round == n);
            of.map(|cell| CaptureCell { round: 0, ..cell.clone() }).collect()
        };
        let (first, second) = (round(1), round(2));
        assert!(first != second && first.iter().all(|cell| second.contains(cell)));
        assert_eq!(cells, order(&grid, &["ring".to_owned(), "xdp".to_owned()], 7), "the seed repeats it");
    }
}
