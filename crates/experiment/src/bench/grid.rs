//! What benchmarks of ports share: the grid, what is kept, what is absent.

use super::arena::BenchLab;
use super::rivals;
use super::tools::Tool;
use crate::notices::Notices;
use record::bench::{BenchHead, Cell};
use record::{Problem, Result};
use std::path::PathBuf;
use study::bench::{Bench, BenchWriter, Measured, cell_name};

/// The sizes of RFC 2544, without FCS.
pub const SIZES: [u32; 6] = [60, 124, 252, 508, 1020, 1514];

/// What is varied.
pub struct Grid {
    /// Frame sizes without FCS; 0 is random.
    pub sizes: Vec<u32>,
    /// Ring sizes in frames; 0 is the default.
    pub rings: Vec<u32>,
    /// Frames a second; 0 is the maximum.
    pub rates: Vec<u64>,
    /// Repetitions.
    pub rounds: u32,
    /// Milliseconds for each cell.
    pub ms: u64,
}

/// What the flags say: instead of what the size of the benchmark says, where it is not empty.
#[derive(Default)]
pub struct Wanted {
    /// Every size, ring and rate, more rounds.
    pub full: bool,
    /// Our ports against those of other tools.
    pub peers: bool,
    /// Only these tools.
    pub only: Vec<String>,
    /// Frame sizes without FCS; 0 is random.
    pub sizes: Vec<u32>,
    /// Ring sizes in frames; 0 is the default.
    pub rings: Vec<u32>,
    /// Frames a second; 0 is the maximum.
    pub rates: Vec<u64>,
    /// Milliseconds of each cell.
    pub ms: Option<u64>,
    /// How often every cell is repeated.
    pub rounds: Option<u32>,
}

impl Grid {
    /// Sizes, rings, rates, rounds and milliseconds, as in the fields.
    pub fn new(sizes: &[u32], rings: &[u32], rates: &[u64], rounds: u32, ms: u64) -> Grid {
        Grid { sizes: sizes.into(), rings: rings.into(), rates: rates.into(), rounds, ms }
    }

    /// The grid with what the flags say instead.
    pub fn with(self, wanted: &Wanted) -> Grid {
        fn or<T: Clone>(flag: &[T], own: Vec<T>) -> Vec<T> {
            if flag.is_empty() { own } else { flag.to_vec() }
        }
        Grid {
            sizes: or(&wanted.sizes, self.sizes),
            rings: or(&wanted.rings, self.rings),
            rates: or(&wanted.rates, self.rates),
            rounds: wanted.rounds.unwrap_or(self.rounds),
            ms: wanted.ms.unwrap_or(self.ms),
        }
    }

    /// What is measured, round by round, each round shuffled; `cell` leaves out what there is not.
    pub fn cells(&self, tools: &[String], seed: u64, cell: impl Fn(Cell) -> Option<Cell>) -> Vec<Cell> {
        let mut random = study::stats::SplitMix64::new(seed);
        let mut round = |round| {
            let mut cells = vec![];
            for tool in tools {
                for &frame_bytes in &self.sizes {
                    for ring_frames in self.rings.iter().copied().map(Some) {
                        let full = |rate| Cell { tool: tool.clone(), frame_bytes, ring_frames, rate, round };
                        cells.extend(self.rates.iter().copied().map(full).filter_map(&cell));
                    }
                }
            }
            random.shuffle(&mut cells);
            cells
        };
        (1..=self.rounds).flat_map(&mut round).collect()
    }

    /// What all heads have.
    pub fn head(&self, schema: &str, seed: u64, arena: &BenchLab) -> BenchHead {
        BenchHead {
            schema: schema.into(),
            begun: crate::process::now(),
            command: std::env::args().collect(),
            host: linux::observe::host_facts(),
            offloads: arena.lab.offloads(),
            duration_ms: self.ms,
            rounds: self.rounds,
            seed,
            ..BenchHead::default()
        }
    }
}

/// Where a benchmark is kept and what it runs on.
pub struct Keep {
    /// Go on with the benchmark in this directory.
    pub resume: Option<PathBuf>,
    /// Where a new one is kept.
    pub dir: PathBuf,
    /// Seed of the random order.
    pub seed: u64,
    /// The CPUs of the sender and of the receiver.
    pub cpus: (u32, u32),
}

/// The tools that `--only` names, or `ours` and with `--peers` all rivals: those whose programs are installed, and what to say of
/// the others.
///
/// # Errors
/// Input: one of them is none of this benchmark.
pub fn tools<R>(all: &[Tool<R>], ours: &[&str], wanted: &Wanted) -> Result<(Vec<String>, Vec<String>)> {
    let rivals = all.iter().filter(|tool| wanted.peers && tool.rival().is_some()).map(|tool| tool.name);
    let names: Vec<&str> = match wanted.only.is_empty() {
        true => ours.iter().copied().chain(rivals).collect(),
        false => wanted.only.iter().map(String::as_str).collect(),
    };
    let (mut there, mut absent) = (vec![], vec![]);
    for name in names {
        let tool = all.iter().find(|tool| tool.name == name).ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|tool| tool.name).collect();
            Problem::input(format!("'{name}' is not a tool of this benchmark"))
                .at("--only")
                .help(format!("the tools are {}", known.join(", ")))
        })?;
        match tool.rival().filter(|program| !rivals::installed(program)) {
            None => there.push(name.to_owned()),
            Some(program) => absent.push(format!("{name}: {program} is not installed")),
        }
    }
    Ok((there, absent))
}

impl Keep {
    /// Begins a benchmark with this head, or goes on with one that did not end.
    ///
    /// # Errors
    /// What `head` refuses; input: there is none to go on with; host: the record cannot be made.
    pub fn begin<R: Measured>(
        &self,
        schema: &str,
        head: impl FnOnce() -> Result<BenchHead>,
        notices: &dyn Notices,
    ) -> Result<(BenchWriter<R>, Bench<R>)> {
        let (writer, bench) = match &self.resume {
            Some(directory) => BenchWriter::resume(directory, schema)?,
            None => {
                let mut head = head()?;
                let writer = BenchWriter::create(&self.dir, &mut head)?;
                (writer, Bench { head, results: vec![] })
            }
        };
        notices.note(&format!("record: {}", writer.directory().display()));
        Ok((writer, bench))
    }
}

/// Measures every cell that is missing, and writes each down as it ends; the directory of the record, and what is in it.
///
/// # Errors
/// What ends the benchmark, with how to go on.
pub fn fill<R: Measured>(
    (mut writer, mut bench): (BenchWriter<R>, Bench<R>),
    notices: &dyn Notices,
    mut measure: impl FnMut(&Cell) -> Result<R>,
) -> Result<(PathBuf, Bench<R>)> {
    let (missing, ms, directory) = (bench.missing(), bench.head.duration_ms, writer.directory().to_owned());
    let of = missing.len();
    for (number, cell) in missing.iter().enumerate() {
        let line = format!("cell {} of {of}: {}", number + 1, cell_name(cell));
        notices.part(&line, number as u64 * ms, of as u64 * ms);
        let result = measure(cell).map_err(|problem| {
            let go_on = format!("go on with --resume {}", directory.display());
            let advice =
                if problem.advice.is_empty() { go_on } else { format!("{}; {go_on}", problem.advice) };
            problem.help(advice)
        })?;
        writer.add(&result)?;
        bench.results.push(result);
    }
    Ok((directory, bench))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_not_there_is_refused_with_those_that_are() {
        let wanted = Wanted { only: vec!["nobody".into()], ..Wanted::default() };
        assert!(tools(crate::bench::tools::SENDERS, &[], &wanted).unwrap_err().to_string().contains("int"));
    }
}
