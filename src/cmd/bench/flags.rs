//! The flags that benchmarks of ports share, and how their words are read.

use crate::output::{Output, object, refuse_foreign_page, write_page};
use clap::Args;
use experiment::bench::grid;
use record::unit::amount;
use record::{Problem, Result};
use std::path::PathBuf;
use study::bench::Bench;
use study::report::bench::Plotted;

/// Flags about what is measured.
#[derive(Args)]
pub struct GridArgs {
    /// Measure everything: every size (capture: also every ring and rate, which takes more than an hour).
    #[arg(long, conflicts_with = "peers")]
    pub full: bool,
    /// Our ports against other tools, interleaved: tcpdump, tracestats and netsniff-ng with their own rings, or trafgen.
    #[arg(long)]
    pub peers: bool,
    /// Frame sizes as they are usually named, with FCS: 64 to 1518, or random (capture).
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub sizes: Vec<u32>,
    /// Frames per second: 50k, 1M, max. With a rate, send also measures how late frames leave.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = rate)]
    pub rates: Vec<u64>,
    /// How long each cell sends.
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<u64>,
    /// Repetitions of every cell.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,
}

/// Flags about the record.
#[derive(Args)]
pub struct KeepArgs {
    /// Resume a benchmark that did not finish: only its missing cells are measured, with its own parameters.
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// Where records are kept.
    #[arg(long, value_name = "DIR", default_value = "bench")]
    pub dir: PathBuf,
    /// Also write the page with the plots. An existing file is replaced only if pathlab wrote it.
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
    /// Where it is kept, and the two CPUs; a seed that was not given is one from the clock.
    ///
    /// # Errors
    /// Input: the page could not be written at the end, or there are not two CPUs.
    pub fn kept(&self) -> Result<grid::Keep> {
        self.report.as_deref().map_or(Ok(()), refuse_foreign_page)?;
        let &[a, b] = self.cpus.as_slice() else {
            return Err(Problem::input("--cpus needs two numbers").help("write --cpus 0,1"));
        };
        let seed = self.seed.unwrap_or_else(|| linux::sys::clock::realtime_ns() % 1_000_000);
        Ok(grid::Keep { resume: self.resume.clone(), dir: self.dir.clone(), seed, cpus: (a, b) })
    }

    /// Writes the page if it is wanted, and prints the result.
    pub fn finish<R: Plotted>(
        &self,
        kept: (PathBuf, Bench<R>),
        schema: &'static str,
        output: &Output,
    ) -> Result<()> {
        let (directory, bench) = kept;
        if let Some(file) = &self.report {
            write_page(file, &study::report::bench::html(&bench)?)?;
        }
        let versus = study::bench::versus(&bench);
        let Bench { head, results } = &bench;
        output.result(&object! { schema, directory, head, results, versus }, |_| study::bench::text(&bench))
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
