//! `pathlab report`: runs as one HTML page.

use crate::output::{Output, refuse_foreign_page, write_page};
use clap::Args;
use record::{Result, RunRecord};
use std::path::{Path, PathBuf};

/// Flags of `pathlab report`.
#[derive(Args)]
pub struct ReportArgs {
    /// The runs, side by side in this order: names, begins of names, `latest`, or paths; or the directory of one benchmark.
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<String>,
    /// Write the page to this file. Only a page of pathlab is written over.
    #[arg(short, long, value_name = "FILE.html")]
    pub output: PathBuf,
    /// The directory of runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
}

/// The version of what `--json` prints.
const SCHEMA: &str = "pathlab/report/1";

/// What was written, for `--json`.
#[derive(serde::Serialize)]
struct Written {
    schema: &'static str,
    file: PathBuf,
    bytes: usize,
    runs: Vec<String>,
}

/// Reads the runs, makes the page, and writes it whole or not at all.
pub fn run(args: ReportArgs, output: &Output) -> Result<()> {
    refuse_foreign_page(&args.output)?;
    if let [one] = args.runs.as_slice()
        && let Some(schema) = study::bench::store::schema(Path::new(one))
    {
        return benchmark(Path::new(one), &schema, &args.output, output);
    }
    let runs: Vec<RunRecord> =
        args.runs.iter().map(|run| study::store::open(&args.dir, run)).collect::<Result<_>>()?;
    let page = study::report::html(&runs)?;
    write_page(&args.output, &page)?;
    let runs = runs.into_iter().map(|run| run.id).collect();
    let written = Written { schema: SCHEMA, file: args.output, bytes: page.len(), runs };
    output.result(&written, |written| {
        format!("{} ({} kB, runs {})", written.file.display(), written.bytes / 1000, written.runs.join(", "))
    })
}

/// The page of a benchmark of ports, whether or not it has ended.
fn benchmark(directory: &Path, schema: &str, file: &Path, output: &Output) -> Result<()> {
    let page = match schema {
        record::bench::CAPTURE => {
            study::report::bench::capture_html(&study::bench::store::open(directory, schema)?)?
        }
        _ => study::report::bench::send_html(&study::bench::store::open(directory, record::bench::SEND)?)?,
    };
    write_page(file, &page)?;
    let runs = vec![directory.display().to_string()];
    let written = Written { schema: SCHEMA, file: file.to_owned(), bytes: page.len(), runs };
    output.result(&written, |written| {
        format!("{} ({} kB, {})", written.file.display(), written.bytes / 1000, written.runs.join(", "))
    })
}
