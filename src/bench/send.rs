//! `pathlab bench send`: port kind × frame size, frames that were really transmitted.
//!
//! **What.** Every sender runs in node a on one CPU, into the same far end: an XDP program that drops everything (or,
//! with `--sink plain`, an interface whose kernel drops frames for somebody else). `--peers` adds trafgen, interleaved.
//!
//! **Why counters.** What a tool claims is compared with what its interface transmitted; only the latter is a rate.

use super::arena::Arena;
use super::grid::{self, Grid};
use super::tools::{OUR_SENDERS, RIVAL_SENDERS, Sender};
use crate::output::Output;
use clap::{Args, ValueEnum};
use record::Result;
use record::bench::{BenchHead, SEND, SendCell, SendResult};
use serde::Serialize;
use std::path::PathBuf;
use study::bench::{Bench, BenchWriter, Versus};

/// Flags of `pathlab bench send`.
#[derive(Args)]
pub struct SendArgs {
    /// Every size, five rounds.
    #[arg(long, conflicts_with = "peers")]
    full: bool,
    /// Against trafgen, interleaved.
    #[arg(long)]
    peers: bool,
    /// Only these: int, int-bypass, int-join, ring, ring-bypass, xdp, xdp-stamp, live, live-stamp, or rivals by name.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Frame sizes as the field names them, with FCS: 64 to 1518.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = grid::size)]
    sizes: Vec<u32>,
    /// Frames per second: 50k, 1M, max. With a rate the lateness counts.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = grid::rate)]
    rates: Vec<u64>,
    /// For how long each cell sends.
    #[arg(long, value_parser = grid::seconds)]
    seconds: Option<u64>,
    /// How often every cell is repeated.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// What is at the far end; the same for every sender.
    #[arg(long, value_enum, default_value_t = Far::Xdp)]
    sink: Far,
    #[command(flatten)]
    keep: grid::Keep,
}

/// What drops the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Far {
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

/// The document that `--json` prints.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    directory: PathBuf,
    head: BenchHead<SendCell>,
    results: Vec<SendResult>,
    versus: Vec<Versus>,
}

/// Runs the command.
pub fn run(args: SendArgs, output: &Output) -> Result<()> {
    args.keep.check()?;
    let mut arena = Arena::build(args.keep.cpus()?)?;
    let (mut writer, mut bench) = match &args.keep.resume {
        Some(directory) => BenchWriter::<SendResult>::resume(directory, SEND)?,
        None => {
            let mut head = head(&args, &arena)?;
            let writer = BenchWriter::create(&args.keep.dir, &mut head)?;
            (writer, Bench { head, results: vec![] })
        }
    };
    output.note(&format!("record: {}", writer.directory().display()));
    // A benchmark that goes on has the far end with which it began.
    let sink = if bench.head.other_end == Far::Xdp.words() { Some(arena.sink()?) } else { None };
    let missing = bench.missing();
    for (number, cell) in missing.iter().enumerate() {
        grid::progress(output, number, missing.len(), || study::bench::send_cell_name(cell));
        let sent = arena.send(cell, bench.head.duration_ms);
        let result = sent.map_err(|problem| grid::kept(problem, writer.directory()))?;
        writer.add(&result)?;
        bench.results.push(result);
    }
    drop(sink);
    output.warn(arena.down());
    args.keep.report(|| study::report::bench::send_html(&bench))?;
    let versus = study::bench::send_versus(&bench);
    let directory = writer.directory().to_owned();
    let Bench { head, results } = bench;
    let document = Document { schema: SEND, directory, head, results, versus };
    output.result(&document, |document| {
        let (head, results) = (document.head.clone(), document.results.clone());
        study::bench::send_text(&Bench { head, results })
    })
}

/// Which cells, and everything that is known before the first one.
fn head(args: &SendArgs, arena: &Arena) -> Result<BenchHead<SendCell>> {
    let (sizes, rounds) = match (args.full, args.peers) {
        (true, _) => (grid::SIZES.to_vec(), 5),
        (_, true) => (vec![60], 5),
        _ => (vec![60, 508, 1514], 1),
    };
    let grid = Grid { sizes, rings: vec![], rates: vec![0], rounds, ms: 1000 };
    let grid = grid.with(&args.sizes, &[], &args.rates, args.rounds, args.seconds);
    if grid.sizes.contains(&0) {
        return Err(record::Problem::input("a sender's benchmark needs frames of one size").at("--sizes"));
    }
    let rivals = RIVAL_SENDERS.map(|(name, _)| name);
    let known: Vec<&str> = OUR_SENDERS.into_iter().chain(rivals).collect();
    let all = if args.peers { known.clone() } else { OUR_SENDERS.to_vec() };
    let wanted = grid::choose(&args.only, &all, &known)?;
    let (tools, absent) = grid::present(&wanted, |name| Sender::named(name).and_then(Sender::program));
    let seed = args.keep.seed();
    let cells = order(&grid, &tools, seed);
    Ok(BenchHead {
        placement: arena.placement("nothing on CPU"),
        other_end: args.sink.words().into(),
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
