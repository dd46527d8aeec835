//! `pathlab watch`: interfaces, queues, CPUs, interrupts and sockets, now.
//!
//! The order of events: open all sources, read, and for every interval read again and show the difference: on a terminal as a
//! screen with keys, else as text or JSON.

mod screen;

use super::namespaces;
use crate::output::{Notices, Output, columns};
use clap::Args;
use linux::lab::Lab;
use linux::observe::watch::Watch;
use linux::sys::process;
use record::path::Hop;
use record::unit::duration;
use record::watch::{WatchReading, WatchReport};
use record::{Problem, Result};
use std::io::IsTerminal;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use study::watch::report;
use study::watch::text::{Sort, View, screen};

/// How often interrupts and the end of an interval are looked for.
const TURN: Duration = Duration::from_millis(20);
/// Columns of text that goes to no terminal.
const PLAIN_WIDTH: usize = 160;

/// Flags of `pathlab watch`.
#[derive(Args)]
pub struct WatchArgs {
    /// Watch these network namespaces: a name of 'ip netns', a path, pid:N of a process, or . for our own [default: .].
    #[arg(long = "in", value_name = "NAMESPACE", num_args = 1.., conflicts_with = "lab")]
    namespaces: Vec<String>,
    /// Watch the nodes of this lab.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// A row for each interface on the way from one node of the lab to another, and where frames are lost.
    #[arg(long, value_names = ["FROM", "TO"], num_args = 2, requires = "lab", conflicts_with = "namespaces")]
    path: Vec<String>,
    /// Show what happened in each TIME.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    interval: Duration,
    /// Show one interval and end.
    #[arg(long)]
    once: bool,
    /// Print text even on a terminal.
    #[arg(long)]
    plain: bool,
    /// Sort interfaces by frames, bits, drops or name.
    #[arg(long, value_name = "COLUMN", value_parser = sort, default_value = "frames")]
    sort: Sort,
    /// Show only rows with TEXT in their node, interface, name or address.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
}

fn sort(word: &str) -> std::result::Result<Sort, String> {
    let found = Sort::ALL.iter().find(|(_, known)| *known == word);
    found.map(|(sort, _)| *sort).ok_or_else(|| "interfaces are sorted by frames, bits, drops or name".into())
}

/// Everything that is watched.
struct Watching {
    watch: Watch,
    path: Vec<Hop>,
    begun_ns: u64,
    before: WatchReading,
}

impl Watching {
    fn begin(args: &WatchArgs) -> Result<Watching> {
        let (mut watch, path) = open(args)?;
        let before = watch.read()?;
        Ok(Watching { watch, path, begun_ns: before.snapshot.ended_ns, before })
    }

    /// What happened since it was last asked.
    fn look(&mut self) -> Result<WatchReport> {
        let now = self.watch.read()?;
        let mut found = report(&self.before, &now, self.begun_ns, &self.path);
        found.missing.extend(self.watch.missing.iter().cloned());
        self.before = now;
        Ok(found)
    }
}

/// Watches and shows.
pub fn run(args: WatchArgs, output: &Output) -> Result<()> {
    if args.interval.is_zero() {
        return Err(Problem::input("an interval of 0 has no end").at("--interval"));
    }
    let watching = Watching::begin(&args)?;
    let is_screen = !args.once && !args.plain && !output.json && std::io::stdout().is_terminal();
    let view = View { sort: args.sort, filter: args.filter.clone(), width: columns(PLAIN_WIDTH) };
    experiment::interruptible()?;
    if is_screen {
        return screen::run(watching, view, args.interval, output.colour);
    }
    // Scripts wait for this line before they start traffic.
    output.note("watching");
    tell(&args, watching, &view, output)
}

fn tell(args: &WatchArgs, mut watching: Watching, view: &View, output: &Output) -> Result<()> {
    let mut next = Instant::now() + args.interval;
    loop {
        while Instant::now() < next && !process::interrupted() {
            std::thread::sleep(next.saturating_duration_since(Instant::now()).min(TURN));
        }
        next += args.interval;
        // What was interrupted is told as far as it went.
        let goes_on = output.line(&watching.look()?, |report| screen(report, view))?;
        if process::interrupted() {
            process::forget_interrupt();
            return Ok(());
        }
        if args.once || !goes_on {
            return Ok(());
        }
    }
}

fn open(args: &WatchArgs) -> Result<(Watch, Vec<Hop>)> {
    if let Some(name) = &args.lab {
        let lab = namespaces::lab(name)?;
        let nodes: Vec<(String, BorrowedFd)> =
            lab.nodes().iter().map(|node| (node.name().to_owned(), node.netns())).collect();
        return Ok((Watch::open(&nodes)?, way(&lab, &args.path)?));
    }
    if args.namespaces.iter().all(|word| word == ".") {
        return Ok((Watch::here()?, vec![]));
    }
    Ok((Watch::of_namespaces(&namespaces::opened("--in", &args.namespaces)?)?, vec![]))
}

/// The way of frames from one node to another, by IPv4 or else by IPv6.
fn way(lab: &Lab, ends: &[String]) -> Result<Vec<Hop>> {
    let [from, to] = ends else { return Ok(vec![]) };
    let family = if lab.address_of(to, 4).is_some() { 4 } else { 6 };
    let untold = || Problem::input("the topology does not tell this way").at(format!("{from} to {to}"));
    Some(lab.path(from, to, family)?.forward).filter(|way| !way.is_empty()).ok_or_else(untold)
}
