//! What benchmarks of ports share: the grid and its flags, what is kept, what is absent.

use super::rivals;
use crate::output::Output;
use clap::Args;
use record::bench::BenchHead;
use record::{Problem, Result};
use std::path::{Path, PathBuf};

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

impl Grid {
    /// The grid with what the flags say instead.
    pub fn with(
        self,
        sizes: &[u32],
        rings: &[u32],
        rates: &[u64],
        rounds: Option<u32>,
        ms: Option<u64>,
    ) -> Grid {
        let or = |flag: &[u32], own: Vec<u32>| if flag.is_empty() { own } else { flag.to_vec() };
        Grid {
            sizes: or(sizes, self.sizes),
            rings: or(rings, self.rings),
            rates: if rates.is_empty() { self.rates } else { rates.to_vec() },
            rounds: rounds.unwrap_or(self.rounds),
            ms: ms.unwrap_or(self.ms),
        }
    }
}

/// Flags about the record.
#[derive(Args)]
pub struct Keep {
    /// Go on with a benchmark that did not end: only its missing cells are measured. Its own grid counts.
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// Where records are kept.
    #[arg(long, value_name = "DIR", default_value = "bench")]
    pub dir: PathBuf,
    /// Write the page with the plots, too. Only a page of pathlab is written over.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Seed of the random order (recorded).
    #[arg(long)]
    pub seed: Option<u64>,
    /// The CPUs of the sender and of the receiver.
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "0,1")]
    pub cpus: Vec<u32>,
}

impl Keep {
    /// Refuses before anything is built what could not be written at the end.
    pub fn check(&self) -> Result<()> {
        self.report.as_deref().map_or(Ok(()), crate::cmd::report::refuse_foreign)
    }

    /// The two CPUs.
    pub fn cpus(&self) -> Result<(u32, u32)> {
        match self.cpus.as_slice() {
            &[a, b] => Ok((a, b)),
            _ => Err(Problem::input("--cpus needs two numbers").help("write --cpus 0,1")),
        }
    }

    /// The seed that was given, or one from the clock.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| linux::sys::clock::realtime_ns() % 1_000_000)
    }

    /// Writes the page if it is wanted.
    pub fn report(&self, page: impl FnOnce() -> Result<String>) -> Result<()> {
        self.report.as_deref().map_or(Ok(()), |file| crate::cmd::report::write(file, &page()?))
    }
}

/// Reads a frame size with FCS, or `random`; gives it without FCS, 0 for random.
pub fn size(text: &str) -> Result<u32, String> {
    if text == "random" {
        return Ok(0);
    }
    let size: u32 = text.parse().map_err(|_| "write 64 to 1518, or random".to_owned())?;
    if (64..=1518).contains(&size) { Ok(size - 4) } else { Err("write 64 to 1518, or random".into()) }
}

/// Reads a rate: `50k`, `1M`, `150000`; `max` is 0.
pub fn rate(text: &str) -> Result<u64, String> {
    let (digits, scale) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).filter(|&n| n > 0);
    if text == "max" { Ok(0) } else { number.ok_or_else(|| "write 50k, 1M, 150000 or max".into()) }
}

/// Reads seconds, gives milliseconds.
pub fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.05..=600.0).contains(seconds));
    seconds.map(|seconds| (seconds * 1000.0).round() as u64).ok_or_else(|| "write 0.05 to 600".into())
}

/// The tools that `--only` names, or all.
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
        begun: super::now(),
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

/// A word on a terminal about the cell that begins.
pub fn progress(output: &Output, number: usize, of: usize, cell: impl FnOnce() -> String) {
    if output.progress {
        output.note(&format!("cell {} of {of}: {}", number + 1, cell()));
    }
}

/// A problem that ends a benchmark, with how to go on.
pub fn kept(problem: Problem, directory: &Path) -> Problem {
    let go_on = format!("go on with --resume {}", directory.display());
    let advice = if problem.advice.is_empty() { go_on } else { format!("{}; {go_on}", problem.advice) };
    problem.help(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_are_read_as_people_write_them() {
        assert_eq!((size("64"), size("1518"), size("random")), (Ok(60), Ok(1514), Ok(0)));
        assert!(size("63").is_err() && size("x").is_err());
        assert_eq!(
            (rate("50k"), rate("1M"), rate("max"), rate("7")),
            (Ok(50_000), Ok(1_000_000), Ok(0), Ok(7))
        );
        assert!(rate("0").is_err() && rate("k").is_err() && rate("").is_err() && rate("é").is_err());
        assert_eq!(seconds("0.5"), Ok(500));
        assert!(choose(&["nobody".into()], &[], &["int"]).unwrap_err().to_string().contains("int"));
    }
}
