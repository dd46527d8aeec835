//! What benchmarks of ports share: the grid, what is kept, what is absent.

use super::rivals;
use crate::notices::Notices;
use record::bench::{BenchHead, OfCell};
use record::{Problem, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use study::bench::{Bench, BenchWriter};

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

    /// All cells, round by round, each round shuffled.
    pub fn order<C>(&self, seed: u64, cells: impl Fn(u32) -> Vec<C>) -> Vec<C> {
        let mut random = study::stats::SplitMix64::new(seed);
        let mut shuffled = |round| {
            let mut cells = cells(round);
            random.shuffle(&mut cells);
            cells
        };
        (1..=self.rounds).flat_map(&mut shuffled).collect()
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

/// The tools that `--only` names, or all.
///
/// # Errors
/// Input: one of them is none of this benchmark.
pub fn choose(only: &[String], all: &[&str], known: &[&str]) -> Result<Vec<String>> {
    if only.is_empty() {
        return Ok(all.iter().map(|name| (*name).to_owned()).collect());
    }
    for name in only {
        if !known.contains(&name.as_str()) {
            return Err(Problem::input(format!("'{name}' is not a tool of this benchmark"))
                .at("--only")
                .help(format!("the tools are {}", known.join(", "))));
        }
    }
    Ok(only.to_vec())
}

/// The tools whose programs are installed, and what to say of the others.
pub fn present(
    wanted: &[String],
    program: impl Fn(&str) -> Option<&'static str>,
) -> (Vec<String>, Vec<String>) {
    let missing = |name: &str| program(name).filter(|program| !rivals::installed(program));
    let absent = wanted
        .iter()
        .filter_map(|name| Some(format!("{name}: {} is not installed", missing(name)?)))
        .collect();
    let there = wanted.iter().filter(|name| missing(name).is_none()).cloned().collect();
    (there, absent)
}

/// What all heads have.
pub fn head<C>(
    schema: &str,
    offloads: Vec<String>,
    grid: &Grid,
    seed: u64,
    absent: Vec<String>,
    cells: Vec<C>,
) -> BenchHead<C> {
    BenchHead {
        schema: schema.into(),
        id: String::new(),
        begun: crate::process::now(),
        command: std::env::args().collect(),
        host: linux::observe::host_facts(),
        offloads,
        placement: String::new(),
        other_end: String::new(),
        duration_ms: grid.ms,
        rounds: grid.rounds,
        seed,
        absent,
        cells,
    }
}

/// A benchmark that is being measured and written down.
pub struct Kept<R: OfCell> {
    writer: BenchWriter<R>,
    /// What was measured so far.
    pub bench: Bench<R>,
}

impl Keep {
    /// Begins a benchmark with this head, or goes on with one that did not end.
    ///
    /// # Errors
    /// What `head` refuses; input: there is none to go on with; host: the record cannot be made.
    pub fn begin<R: OfCell + Serialize + DeserializeOwned>(
        &self,
        schema: &str,
        head: impl FnOnce() -> Result<BenchHead<R::Cell>>,
        notices: &dyn Notices,
    ) -> Result<Kept<R>>
    where
        R::Cell: Serialize + DeserializeOwned,
    {
        let (writer, bench) = match &self.resume {
            Some(directory) => BenchWriter::<R>::resume(directory, schema)?,
            None => {
                let mut head = head()?;
                let writer = BenchWriter::create(&self.dir, &mut head)?;
                (writer, Bench { head, results: vec![] })
            }
        };
        notices.note(&format!("record: {}", writer.directory().display()));
        Ok(Kept { writer, bench })
    }
}

impl<R: OfCell + Serialize + DeserializeOwned> Kept<R>
where
    R::Cell: Serialize + DeserializeOwned,
{
    /// Measures every cell that is missing, and writes each down as it ends.
    ///
    /// # Errors
    /// What ends the benchmark, with how to go on.
    pub fn fill(
        &mut self,
        notices: &dyn Notices,
        name: impl Fn(&R::Cell) -> String,
        mut measure: impl FnMut(&R::Cell) -> Result<R>,
    ) -> Result<()> {
        let (missing, ms) = (self.bench.missing(), self.bench.head.duration_ms);
        let of = missing.len();
        for (number, cell) in missing.iter().enumerate() {
            let line = format!("cell {} of {of}: {}", number + 1, name(cell));
            notices.part(&line, number as u64 * ms, of as u64 * ms);
            let result = measure(cell).map_err(|problem| self.to_go_on(problem))?;
            self.writer.add(&result)?;
            self.bench.results.push(result);
        }
        Ok(())
    }

    /// The directory of the record, and what is in it.
    pub fn ended(self) -> (PathBuf, Bench<R>) {
        (self.writer.directory().to_owned(), self.bench)
    }

    /// A problem that ends a benchmark, with how to go on.
    fn to_go_on(&self, problem: Problem) -> Problem {
        let go_on = format!("go on with --resume {}", self.writer.directory().display());
        let advice = if problem.advice.is_empty() { go_on } else { format!("{}; {go_on}", problem.advice) };
        problem.help(advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_not_there_is_refused_with_those_that_are() {
        assert!(choose(&["nobody".into()], &[], &["int"]).unwrap_err().to_string().contains("int"));
    }
}
