//! `pathlab report`: runs as one HTML page.

use crate::output::{Output, object, refuse_foreign_page, write_page};
use clap::Args;
use record::Result;
use record::bench::{CaptureResult, SendResult};
use std::path::{Path, PathBuf};

/// Flags of `pathlab report`.
#[derive(Args)]
pub struct ReportArgs {
    /// The runs, side by side in this order: names, beginnings of names, `latest`, or paths; or the directory of one benchmark.
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<String>,
    /// Write the page to this file. An existing file is replaced only if pathlab wrote it.
    #[arg(short, long, value_name = "FILE.html")]
    pub output: PathBuf,
    /// The directory of runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
}

/// Reads the runs, makes the page, and writes it whole or not at all.
pub fn run(args: ReportArgs, output: &Output) -> Result<()> {
    refuse_foreign_page(&args.output)?;
    let one = if let [one] = args.runs.as_slice() { Some(Path::new(one)) } else { None };
    let benchmark = one.and_then(|one| Some((one, study::bench::store::schema(one)?)));
    let (page, runs, what) = match benchmark {
        Some((directory, schema)) => (benchmark_page(directory, &schema)?, args.runs, ""),
        None => {
            let runs = args.runs.iter().map(|name| study::store::open(&args.dir, name));
            let runs = runs.collect::<Result<Vec<_>>>()?;
            (study::report::html(&runs)?, runs.into_iter().map(|run| run.id).collect(), "runs ")
        }
    };
    write_page(&args.output, &page)?;
    let document = object! { schema: "pathlab/report/1", file: &args.output, bytes: page.len(), runs };
    output.result(&document, |document| {
        let (file, runs) = (args.output.display(), document.runs.join(", "));
        format!("{file} ({} kB, {what}{runs})", page.len() / 1000)
    })
}

/// The page of a benchmark of ports, whether or not it has ended.
fn benchmark_page(directory: &Path, schema: &str) -> Result<String> {
    use study::{bench::store::open, report::bench};
    match schema {
        record::bench::CAPTURE => bench::html::<CaptureResult>(&open(directory, schema)?),
        _ => bench::html::<SendResult>(&open(directory, record::bench::SEND)?),
    }
}
