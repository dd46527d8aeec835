//! `pathlab tcp`: what every TCP connection does, and what holds it back.
//!
//! The order of events: read the filter, find the namespaces, sample until the time is over or it is interrupted, and say what each did.

mod words;

use crate::output::{Notices, Output};
use clap::Args;
use experiment::tcp::{TcpListener, TcpWish};
use linux::namespace::{self, NamespaceWatch};
use record::connection::{ConnectionFilter, TcpSampleLine};
use record::unit::duration;
use record::{Problem, Result};
use std::time::Duration;

/// The shortest interval. A sample may take longer, because the kernel walks its whole table of sockets; then samples are missed, and told.
const SHORTEST: Duration = Duration::from_micros(100);

/// Flags of `pathlab tcp`.
#[derive(Args)]
pub struct TcpArgs {
    /// Which connections: address, local, peer ADDRESS[/LENGTH]; port, local-port, peer-port N; state NAME.
    #[arg(value_name = "FILTER", num_args = 0..)]
    filter: Vec<String>,
    /// In these network namespaces: a name of 'ip netns', a path, pid:N of a process, or . for our own [default: .].
    #[arg(long = "in", value_name = "NAMESPACE", num_args = 1.., conflicts_with_all = ["lab", "all_namespaces"])]
    namespaces: Vec<String>,
    /// In the nodes of this lab.
    #[arg(long, value_name = "NAME", conflicts_with = "all_namespaces")]
    lab: Option<String>,
    /// In every namespace that can be found, and in those that come: our own, the named ones, those of processes.
    #[arg(long)]
    all_namespaces: bool,
    /// Read every connection once and end.
    #[arg(long, conflicts_with_all = ["interval", "duration"])]
    once: bool,
    /// Read every connection each TIME (10ms, 1s).
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "100ms")]
    interval: Duration,
    /// End after TIME (5s, 2m); otherwise with Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Print a line for every connection in every sample.
    #[arg(long, short)]
    samples: bool,
}

/// Samples and reports.
pub fn run(args: TcpArgs, output: &Output) -> Result<()> {
    experiment::interruptible()?;
    let wish = wish(&args)?;
    let report = experiment::tcp::run(wish, &mut TcpOutput { output })?;
    output.line(&report, words::report)?;
    if report.ended == "interrupted" && args.duration.is_some() {
        return Err(Problem::measured("interrupted before the time was over"));
    }
    Ok(())
}

fn wish(args: &TcpArgs) -> Result<TcpWish> {
    let filter = ConnectionFilter::parse(&args.filter.join(" "))?;
    let own = [".".to_owned()];
    let nodes = match &args.lab {
        Some(name) => super::namespaces::of_lab(name)?,
        None if args.all_namespaces => namespace::all(),
        None if args.namespaces.is_empty() => super::namespaces::opened("--in", &own)?,
        None => super::namespaces::opened("--in", &args.namespaces)?,
    };
    let namespaces = match &args.lab {
        Some(_) => None,
        None if args.all_namespaces => Some(NamespaceWatch::all(&nodes)),
        None => Some(NamespaceWatch::given(&nodes)),
    };
    let interval = (!args.once).then_some(args.interval);
    Ok(TcpWish { nodes, namespaces, filter, interval, duration: args.duration, samples: args.samples })
}

fn interval(text: &str) -> std::result::Result<Duration, String> {
    let found = duration(text)?;
    if found < SHORTEST { Err(format!("'{text}' is shorter than 100us")) } else { Ok(found) }
}

/// Tells while it goes on.
struct TcpOutput<'a> {
    output: &'a Output,
}

impl TcpListener for TcpOutput<'_> {
    fn begun(&mut self) -> Result<()> {
        // The first sample is taken: scripts wait for this line before they start traffic.
        self.output.note("sampling");
        Ok(())
    }

    fn sample(&mut self, line: &TcpSampleLine) -> Result<bool> {
        self.output.line(line, words::sample)
    }
}
