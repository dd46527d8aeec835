//! `pathlab report`: runs as one HTML page, or the layers of one as a trace.

use super::doctor::GoalWord;
use super::facts::read;
use crate::output::{Output, object, refuse_foreign, refuse_foreign_page, write_whole};
use clap::Args;
use record::bench::{CaptureResult, SendResult};
use record::{Problem, Result};
use std::path::{Path, PathBuf};
use study::doctor::Goal;
use study::report::Examined;

/// Flags of `pathlab report`.
#[derive(Args)]
pub struct ReportArgs {
    /// The runs, side by side in this order: names, beginnings of names, `latest`, or paths; or the directory of one benchmark.
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<String>,
    /// Write the page to this file. An existing file is replaced only if pathlab wrote it.
    #[arg(short, long, value_name = "FILE.html")]
    pub output: PathBuf,
    /// Write no page, but when messages passed the layers of the path, as a trace (FILE.json) that ui.perfetto.dev opens: of one run with --layers.
    #[arg(long)]
    pub trace: bool,
    /// A section of what the doctor finds in the facts of FILE, which 'pathlab facts -o' wrote, of this host or of another; may be given
    /// several times.
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    pub facts: Vec<PathBuf>,
    /// Facts of the other end, for rules that compare both; of each --facts.
    #[arg(long, value_name = "FILE", requires = "facts", conflicts_with = "trace")]
    pub peer: Option<PathBuf>,
    /// What the hosts of --facts are to be good at [default: throughput, latency and measurement].
    #[arg(long, value_name = "GOAL", requires = "facts", conflicts_with = "trace")]
    pub goal: Option<GoalWord>,
    /// The directory of runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
}

/// Reads the runs, makes the page, and writes it whole or not at all.
pub fn run(args: ReportArgs, output: &Output) -> Result<()> {
    if args.trace {
        return trace(&args, output);
    }
    refuse_foreign_page(&args.output)?;
    let one = if let [one] = args.runs.as_slice() { Some(Path::new(one)) } else { None };
    let benchmark = one.and_then(|one| Some((one, study::bench::store::schema(one)?)));
    let (page, runs, what) = match benchmark {
        Some(_) if !args.facts.is_empty() => {
            let no_hosts =
                Problem::input("the page of a benchmark has no section of the doctor").at("--facts");
            return Err(no_hosts.help("name a run, or leave --facts out"));
        }
        Some((directory, schema)) => (benchmark_page(directory, &schema)?, args.runs, ""),
        None => {
            let runs = args.runs.iter().map(|name| study::store::open(&args.dir, name));
            let runs = runs.collect::<Result<Vec<_>>>()?;
            (
                study::report::html(&runs, &examined(&args)?)?,
                runs.into_iter().map(|run| run.id).collect(),
                "runs ",
            )
        }
    };
    written(&args.output, &page, runs, what, output)
}

/// What the doctor says of the facts in each file.
fn examined(args: &ReportArgs) -> Result<Vec<Examined>> {
    let (peer, goal) = (args.peer.as_deref().map(read).transpose()?, args.goal.map(Goal::from));
    let one = |file: &PathBuf| {
        let report = study::doctor::examine(&read(file)?, peer.as_ref(), goal);
        Ok(Examined { name: file.display().to_string(), report })
    };
    args.facts.iter().map(one).collect()
}

/// The layers of one run as a trace.
fn trace(args: &ReportArgs, output: &Output) -> Result<()> {
    use study::layers::trace;
    let [name] = args.runs.as_slice() else {
        return Err(Problem::input("a trace is of one run").at("--trace").help("name one run"));
    };
    refuse_foreign(&args.output, trace::MARK, "a trace")?;
    let run = study::store::open(&args.dir, name)?;
    let text = trace::text(&run).ok_or_else(|| {
        let none = Problem::input("no message of this run has stamps of the layers that it passed");
        none.at(run.id.clone()).help("measure with `pathlab run --layers`")
    })?;
    written(&args.output, &text, vec![run.id], "run ", output)
}

/// Writes the file, and says so.
fn written(file: &Path, text: &str, runs: Vec<String>, what: &str, output: &Output) -> Result<()> {
    write_whole(file, text)?;
    let document = object! { schema: "pathlab/report/1", file, bytes: text.len(), runs };
    output.result(&document, |document| {
        let (file, runs) = (file.display(), document.runs.join(", "));
        format!("{file} ({} kB, {what}{runs})", text.len() / 1000)
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
