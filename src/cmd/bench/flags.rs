//! The flags that benchmarks of ports share, and how their words are read.

use crate::output::{refuse_foreign_page, write_page};
use clap::Args;
use experiment::bench::grid;
use record::unit::amount;
use record::{Problem, Result};
use std::path::PathBuf;

/// Flags about the record.
#[derive(Args)]
pub struct KeepArgs {
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

impl KeepArgs {
    /// Refuses before anything is built what could not be written at the end.
    pub fn check(&self) -> Result<()> {
        self.report.as_deref().map_or(Ok(()), refuse_foreign_page)
    }

    /// Where it is kept, and the two CPUs; a seed that was not given is one from the clock.
    pub fn kept(&self) -> Result<grid::Keep> {
        let &[a, b] = self.cpus.as_slice() else {
            return Err(Problem::input("--cpus needs two numbers").help("write --cpus 0,1"));
        };
        let seed = self.seed.unwrap_or_else(|| linux::sys::clock::realtime_ns() % 1_000_000);
        Ok(grid::Keep { resume: self.resume.clone(), dir: self.dir.clone(), seed, cpus: (a, b) })
    }

    /// Writes the page if it is wanted.
    pub fn report(&self, page: impl FnOnce() -> Result<String>) -> Result<()> {
        self.report.as_deref().map_or(Ok(()), |file| write_page(file, &page()?))
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
    match text {
        "max" => Ok(0),
        _ => amount(text).ok().filter(|&rate| rate > 0).ok_or_else(|| "write 50k, 1M, 150000 or max".into()),
    }
}

/// Reads seconds, gives milliseconds.
pub fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.05..=600.0).contains(seconds));
    seconds.map(|seconds| (seconds * 1000.0).round() as u64).ok_or_else(|| "write 0.05 to 600".into())
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
    }
}
