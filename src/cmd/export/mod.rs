//! `pathlab export`: the counters that `pathlab watch` reads, for Prometheus and OpenTelemetry, or once as text.
//!
//! The order of events: open all sources, listen, say where; read anew for each scrape and each push, until it is interrupted; say how many there
//! were. Readings are one after the other; nothing is read while nobody asks.

mod http;
mod push;
mod run;

use super::namespaces;
use crate::output::{Notices, Output, object};
use clap::Args;
use linux::observe::watch::Watch;
use linux::sys::{clock, process};
use push::Collector;
use record::unit::duration;
use record::{Problem, Result};
use serde::Serialize;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use study::export::{Families, Limits, SampleFamily, SampleValue, gather, prometheus};

/// How often interrupts are looked for.
const TURN: Duration = Duration::from_millis(50);

/// Flags of `pathlab export`.
#[derive(Args)]
pub struct ExportArgs {
    /// Export a finished run instead: its name, the beginning of its name, `latest`, or a path. Once, as text or with --otlp.
    #[arg(value_name = "RUN", conflicts_with_all = ["namespaces", "lab", "prometheus"])]
    run: Option<String>,
    /// The directory of runs.
    #[arg(long, value_name = "DIR", default_value = "runs", requires = "run", conflicts_with_all = ["namespaces", "lab", "prometheus"])]
    dir: PathBuf,
    /// Serve the counters for Prometheus at http://ADDRESS:PORT/metrics; a port alone is one of 127.0.0.1.
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    prometheus: Option<String>,
    /// Push the counters to an OpenTelemetry collector by OTLP over HTTP: http://HOST:4318.
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Push each TIME.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    interval: Duration,
    /// Push once and end.
    #[arg(long, requires = "otlp", conflicts_with = "prometheus")]
    once: bool,
    /// Export these network namespaces: a name of 'ip netns', a path, pid:N of a process, or . for our own [default: .].
    #[arg(long = "in", value_name = "NAMESPACE", num_args = 1.., conflicts_with = "lab")]
    namespaces: Vec<String>,
    /// Export the nodes of this lab.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// So many sockets of each kind have series of their own: those with most bytes, or drops.
    #[arg(long, value_name = "N", default_value_t = 20)]
    sockets: usize,
}

/// What is read, for whoever asks.
pub struct ExportSource {
    watch: Mutex<Watch>,
    limits: Limits,
}

impl ExportSource {
    fn open(args: &ExportArgs) -> Result<ExportSource> {
        Ok(ExportSource { watch: Mutex::new(open(args)?), limits: Limits { sockets: args.sockets } })
    }

    /// Everything, now.
    pub fn read(&self) -> Result<Families> {
        // A reading that panicked left nothing half done that the next one needs.
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reading = watch.read()?;
        reading.snapshot.missing.extend(watch.missing.iter().cloned());
        Ok(gather(&reading, self.limits, env!("CARGO_PKG_VERSION")))
    }
}

/// What happened so far.
#[derive(Default)]
pub struct ExportCounts {
    /// Scrapes that were answered.
    pub scrapes: AtomicU64,
    /// Connections that were refused or wanted something else.
    pub refused: AtomicU64,
    /// Pushes that the collector took.
    pub pushed: AtomicU64,
    /// Pushes that failed.
    pub failed: AtomicU64,
    /// Samples that the collector did not take.
    pub rejected: AtomicU64,
}

/// Exports.
pub fn run(args: ExportArgs, output: &Output) -> Result<()> {
    if args.interval.is_zero() {
        return Err(Problem::input("an interval of 0 has no end").at("--interval"));
    }
    let address = args.prometheus.as_deref().map(http::address).transpose()?;
    let collector = args.otlp.as_deref().map(Collector::new).transpose()?;
    if let Some(name) = &args.run {
        return run::export(&args, name, collector.as_ref(), output);
    }
    let source = Arc::new(ExportSource::open(&args)?);
    if address.is_none() && collector.is_none() {
        return once(&source.read()?, output);
    }
    experiment::interruptible()?;
    let counts = Arc::new(ExportCounts::default());
    let begun = Instant::now();
    if args.once {
        collector.iter().try_for_each(|collector| collector.push_once(&source, &counts))?;
        return told(begun, &counts, output);
    }
    let listener = address.map(http::listen).transpose()?;
    begin(listener.as_ref(), collector.as_ref(), output)?;
    if let Some(listener) = listener {
        http::start(listener, &source, &counts);
    }
    turn(&args, collector.as_ref(), (&source, &counts), output);
    told(begun, &counts, output)
}

/// Pushes, if there is a collector, until it is interrupted.
fn turn(
    args: &ExportArgs,
    collector: Option<&Collector>,
    to: (&ExportSource, &ExportCounts),
    output: &Output,
) {
    let mut next = Instant::now();
    let mut was_broken = false;
    while !process::interrupted() {
        if let Some(collector) = collector.filter(|_| Instant::now() >= next) {
            next = Instant::now() + args.interval;
            let why = collector.push(to.0, to.1).err();
            notice(why.as_deref(), &mut was_broken, output);
        }
        std::thread::sleep(TURN.min(args.interval));
    }
    process::forget_interrupt();
}

/// Says that pushing fails, and that it works again, each once.
fn notice(why: Option<&str>, was_broken: &mut bool, output: &Output) {
    match (why, *was_broken) {
        (Some(why), false) => output.note(&format!("the collector did not take the counters: {why}")),
        (None, true) => output.note("the collector takes the counters again"),
        _ => {}
    }
    *was_broken = why.is_some();
}

fn begin(
    listener: Option<&http::ScrapeListener>,
    collector: Option<&Collector>,
    output: &Output,
) -> Result<()> {
    if let Some(warning) = listener.and_then(http::ScrapeListener::warning) {
        output.warn(&warning);
    }
    let (listening, otlp) =
        (listener.map(http::ScrapeListener::url), collector.map(|one| one.url().to_owned()));
    let document = object! { schema: "pathlab/export-begin/1", listening, otlp };
    let words = |serving: Option<&String>, pushing: Option<&String>| {
        let serving = serving.map(|url| format!("serving counters at {url}"));
        let pushing = pushing.map(|url| format!("pushing counters to {url}"));
        serving.into_iter().chain(pushing).collect::<Vec<_>>().join("\n")
    };
    output.line(&document, |document| words(document.listening.as_ref(), document.otlp.as_ref())).map(drop)
}

fn told(begun: Instant, counts: &ExportCounts, output: &Output) -> Result<()> {
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let document = object! {
        schema: "pathlab/export-end/1", seconds: begun.elapsed().as_secs_f64(), scrapes: of(&counts.scrapes),
        refused: of(&counts.refused), pushed: of(&counts.pushed), failed: of(&counts.failed), rejected: of(&counts.rejected),
    };
    let words = |scrapes: u64, refused: u64, pushed: u64, failed: u64, rejected: u64| {
        format!(
            "{scrapes} scrapes ({refused} refused), {pushed} pushes ({failed} failed, {rejected} samples rejected)"
        )
    };
    output.line(&document, |d| words(d.scrapes, d.refused, d.pushed, d.failed, d.rejected)).map(drop)
}

/// A series as JSON.
#[derive(Serialize)]
struct JsonSeries {
    name: String,
    prometheus: String,
    unit: String,
    kind: &'static str,
    counter: Option<String>,
    help: String,
    samples: Vec<JsonSample>,
}

#[derive(Serialize)]
struct JsonSample {
    labels: serde_json::Map<String, serde_json::Value>,
    value: serde_json::Value,
}

/// One reading, as the text that Prometheus reads or as JSON.
fn once(families: &Families, output: &Output) -> Result<()> {
    written(families, clock::realtime_ns(), output)
}

/// What was read at that time.
fn written(families: &Families, at_ns: u64, output: &Output) -> Result<()> {
    let series: Vec<JsonSeries> = families.0.iter().map(json).collect();
    let document = object! { schema: "pathlab/export/1", at_ns, series };
    output.result(&document, |_| prometheus::text(families.clone()))
}

fn json(family: &SampleFamily) -> JsonSeries {
    let series = family.series;
    JsonSeries {
        name: series.full_name(),
        prometheus: series.prometheus(),
        unit: series.unit.word().unwrap_or("number").to_owned(),
        kind: if series.is_count { "count" } else { "now" },
        counter: series.counter().map(record::counter::Counter::full_name),
        help: series.help(),
        samples: family
            .samples
            .iter()
            .map(|(labels, value)| sample(family.labels(), labels, *value))
            .collect(),
    }
}

fn sample(names: impl Iterator<Item = &'static str>, values: &[String], value: SampleValue) -> JsonSample {
    let labels = names.zip(values).map(|(name, value)| (name.to_owned(), value.as_str().into()));
    let value = match value {
        SampleValue::Whole(count) => count.into(),
        SampleValue::Real(real) => real.into(),
    };
    JsonSample { labels: labels.collect(), value }
}

fn open(args: &ExportArgs) -> Result<Watch> {
    if let Some(name) = &args.lab {
        let opened = namespaces::of_lab(name)?;
        let nodes: Vec<(String, BorrowedFd<'_>)> =
            opened.iter().map(|(name, file)| (name.clone(), file.as_fd())).collect();
        return Watch::open(&nodes);
    }
    if args.namespaces.iter().all(|word| word == ".") {
        return Watch::here();
    }
    Watch::of_namespaces(&namespaces::opened("--in", &args.namespaces)?)
}
