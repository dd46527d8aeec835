//! `pathlab bench capture` (the libtrace diary's experiment of 2012 as one command) and `pathlab bench send` (frames that were really
//! transmitted): the flags that they share, and how their words are read.

use crate::cmd::amounts;
use crate::output::{Output, object, refuse_foreign_page, write_whole};
use clap::Args;
use experiment::bench::grid::{self, Wanted};
use experiment::bench::{capture, send};
use record::bench::{CAPTURE, SEND};
use record::unit::amount;
use record::{Problem, Result};
use std::path::PathBuf;
use study::bench::Bench;
use study::report::bench::Plotted;

/// Flags about what is measured.
#[derive(Args)]
struct GridArgs {
    /// Measure everything: every size (capture: also every ring and rate, which takes more than an hour).
    #[arg(long, conflicts_with = "peers")]
    full: bool,
    /// Our ports against other tools, interleaved: tcpdump, tracestats and netsniff-ng with their own rings, or trafgen.
    #[arg(long)]
    peers: bool,
    /// Frame sizes as they are usually named, with FCS: 64 to 1518, or random (capture).
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    sizes: Vec<u32>,
    /// Frames per second: 50k, 1M, max. With a rate, send also measures how late frames leave.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = rate)]
    rates: Vec<u64>,
    /// How long each cell sends.
    #[arg(long, value_parser = seconds)]
    seconds: Option<u64>,
    /// Repetitions of every cell.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
}

/// Flags about the record.
#[derive(Args)]
struct KeepArgs {
    /// Resume a benchmark that did not finish: only its missing cells are measured, with its own parameters.
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Where records are kept.
    #[arg(long, value_name = "DIR", default_value = "bench")]
    dir: PathBuf,
    /// Also write the page with the plots. An existing file is replaced only if pathlab wrote it.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Seed of the random order (recorded).
    #[arg(long)]
    seed: Option<u64>,
    /// The CPUs of the sender and of the receiver.
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "0,1")]
    cpus: Vec<u32>,
}

/// Flags of `pathlab bench capture`.
#[derive(Args)]
pub struct CaptureArgs {
    #[command(flatten)]
    grid: GridArgs,
    /// Only these tools: int, ring, ring-count (blocks wait as with libpcap, frames are only counted), ring-v2, xdp, or rivals by name.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Frames that the ring holds; 0 leaves each port's own default.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = amounts::<u32>(0..=u32::MAX.into()))]
    rings: Vec<u32>,
    /// What sends the frames in node a: a port of 'pathlab send'.
    #[arg(long, value_name = "PORT", default_value = "ring:eth0?bypass=on")]
    generator: String,
    #[command(flatten)]
    keep: KeepArgs,
}

/// Flags of `pathlab bench send`.
#[derive(Args)]
pub struct SendArgs {
    #[command(flatten)]
    grid: GridArgs,
    /// Only these: int, int-bypass, int-join, ring, ring-bypass, xdp, xdp-stamp, live, live-stamp, or rivals by name.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// What drops the frames at the far end: an XDP program (xdp), or its kernel, as frames for another host (plain; live
    /// frames do not arrive there).
    #[arg(long, default_value = "xdp", value_parser = ["xdp", "plain"])]
    sink: String,
    #[command(flatten)]
    keep: KeepArgs,
}

/// Measures captures.
pub fn capture(args: CaptureArgs, output: &Output) -> Result<()> {
    let wanted = args.grid.wanted(args.only, args.rings);
    let kept = capture::run(&wanted, &args.generator, &args.keep.kept()?, output)?;
    args.keep.finish(kept, CAPTURE, output)
}

/// Measures senders.
pub fn send(args: SendArgs, output: &Output) -> Result<()> {
    let wanted = args.grid.wanted(args.only, vec![]);
    let kept = send::run(&wanted, args.sink == "xdp", &args.keep.kept()?, output)?;
    args.keep.finish(kept, SEND, output)
}

impl GridArgs {
    fn wanted(self, only: Vec<String>, rings: Vec<u32>) -> Wanted {
        let GridArgs { full, peers, sizes, rates, seconds: ms, rounds } = self;
        Wanted { full, peers, only, sizes, rings, rates, ms, rounds }
    }
}

impl KeepArgs {
    /// Where it is kept, and the two CPUs; a seed that was not given is one from the clock.
    ///
    /// # Errors
    /// Input: the page could not be written at the end, or there are not two CPUs.
    fn kept(&self) -> Result<grid::Keep> {
        self.report.as_deref().map_or(Ok(()), refuse_foreign_page)?;
        let &[a, b] = self.cpus.as_slice() else {
            return Err(Problem::input("--cpus needs two numbers").help("write --cpus 0,1"));
        };
        let seed = self.seed.unwrap_or_else(|| linux::sys::clock::realtime_ns() % 1_000_000);
        Ok(grid::Keep { resume: self.resume.clone(), dir: self.dir.clone(), seed, cpus: (a, b) })
    }

    /// Writes the page if it is wanted, and prints the result.
    fn finish<R: Plotted>(&self, kept: (PathBuf, Bench<R>), schema: &str, output: &Output) -> Result<()> {
        let (directory, bench) = kept;
        if let Some(file) = &self.report {
            write_whole(file, &study::report::bench::html(&bench)?)?;
        }
        let versus = study::bench::versus(&bench);
        let Bench { head, results } = &bench;
        output
            .result(&object! { schema, directory, head, results, versus }, |_| study::bench::text(&bench))?;
        measured(results)
    }
}

/// Code 3 when no cell could be measured.
fn measured<R: Plotted>(results: &[R]) -> Result<()> {
    match results.iter().map(R::problem).collect::<Option<Vec<_>>>().as_deref() {
        Some(&[why, ..]) => Err(Problem::host(format!("nothing could be measured: {why}"))),
        _ => Ok(()),
    }
}

/// Reads a frame size with FCS, or `random`; gives it without FCS, 0 for random.
fn size(text: &str) -> Result<u32, String> {
    if text == "random" {
        return Ok(0);
    }
    let size: u32 = text.parse().map_err(|_| "write 64 to 1518, or random".to_owned())?;
    if (64..=1518).contains(&size) { Ok(size - 4) } else { Err("write 64 to 1518, or random".into()) }
}

/// Reads a rate: `50k`, `1M`, `150000`; `max` is 0.
fn rate(text: &str) -> Result<u64, String> {
    match text {
        "max" => Ok(0),
        _ => amount(text).ok().filter(|&rate| rate > 0).ok_or_else(|| "write 50k, 1M, 150000 or max".into()),
    }
}

/// Reads seconds, gives milliseconds.
fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.05..=600.0).contains(seconds));
    seconds.map(|seconds| (seconds * 1000.0).round() as u64).ok_or_else(|| "write 0.05 to 600".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_benchmark_of_which_nothing_was_measured_says_why() {
        use record::bench::SendResult;
        let failed = |why: &str| SendResult { problem: Some(why.into()), ..SendResult::default() };
        let refusal = measured(&[failed("no port"), failed("it died")]).unwrap_err();
        assert_eq!(refusal.to_string(), "nothing could be measured: no port");
        assert!(
            measured(&[failed("no port"), SendResult::default()]).is_ok()
                && measured::<SendResult>(&[]).is_ok()
        );
    }

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
