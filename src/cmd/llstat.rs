//! `pathlab llstat`: how the frames of an interface meet the CPUs.
//!
//! The order of events: find the interface, start the programs, read, tell a line for every interval until the time is over or it is
//! interrupted, and say what happened between the first reading and the last.

use super::namespaces;
use crate::output::{Notices, Output};
use clap::Args;
use linux::observe::llstat::Llstat;
use linux::sys::{clock, process};
use record::llstat::Reading;
use record::unit::duration;
use record::{Problem, Result};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use study::llstat::{report, text};

/// How often interrupts and the end of the time are looked for.
const TURN: Duration = Duration::from_millis(20);

/// Flags of `pathlab llstat`.
#[derive(Args)]
pub struct LlstatArgs {
    /// The interface; with --lab NODE:INTERFACE.
    #[arg(value_name = "INTERFACE")]
    interface: String,
    /// The interface is in this network namespace: a name of 'ip netns', a path, or pid:N of a process.
    #[arg(long = "in", value_name = "NAMESPACE", default_value = ".", hide_default_value = true)]
    namespace: String,
    /// The interface is in this lab.
    #[arg(long, value_name = "NAME", conflicts_with = "namespace")]
    lab: Option<String>,
    /// End after TIME (5s, 2m); otherwise with Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Print a line each TIME.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    interval: Duration,
    /// Print only what is known at the end.
    #[arg(long, short)]
    quiet: bool,
}

/// Counts and reports.
pub fn run(args: LlstatArgs, output: &Output) -> Result<()> {
    if args.interval.is_zero() {
        return Err(Problem::input("an interval of 0 has no end").at("--interval"));
    }
    let mut llstat = open(&args)?;
    experiment::interruptible()?;
    let first = llstat.read()?.ok_or_else(|| Problem::host("the interface is gone"))?;
    if let Some(why) = &llstat.facts.no_programs {
        output.note(&format!("only counters are shown, no polls and no times: {why}"));
    }
    // From now on everything is counted: scripts wait for this line before they start traffic.
    output.note("counting");
    let (last, ended) = tell(&args, &mut llstat, &first, output)?;
    let report = report(&llstat.facts, &first, &last, first.at_ns, ended);
    output.line(&report, text::report).map(drop)
}

fn open(args: &LlstatArgs) -> Result<Llstat> {
    let Some(name) = &args.lab else {
        if args.namespace == "." {
            return Llstat::here(&args.interface);
        }
        let opened = namespaces::opened("--in", std::slice::from_ref(&args.namespace))?;
        let (name, file) = opened.first().ok_or_else(|| Problem::input("no namespace").at("--in"))?;
        return Llstat::open(name, file.as_fd(), &args.interface);
    };
    let (node, interface) = args.interface.split_once(':').ok_or_else(|| {
        Problem::input("an interface of a lab is NODE:INTERFACE").at(args.interface.clone())
    })?;
    let lab = namespaces::lab(name)?;
    Llstat::open(node, lab.node(node)?.netns(), interface)
}

/// What is known of an interface that went: its own counters as they were last read, and what the programs counted until it went.
fn gone(llstat: &mut Llstat, last: Reading, first: &Reading) -> Result<(Reading, &'static str)> {
    let begun_ns = first.at_ns;
    let seconds = |ns: u64| ns.saturating_sub(begun_ns) as f64 / 1e9;
    let (from, to) = (seconds(last.at_ns), seconds(clock::monotonic_ns()));
    llstat.facts.missing.push(format!(
        "what the interface itself counted after second {from:.1}: it went before second {to:.1}; polls and their times are there until it went"
    ));
    Ok((Reading { polls: llstat.polls()?, ..last }, "gone"))
}

/// A line for each interval until the end; the last reading, and why it ended.
fn tell(
    args: &LlstatArgs,
    llstat: &mut Llstat,
    first: &Reading,
    output: &Output,
) -> Result<(Reading, &'static str)> {
    let begun = Instant::now();
    let until = args.duration.map(|time| begun + time);
    let (mut next, mut before) = (begun + args.interval, first.clone());
    loop {
        let now = Instant::now();
        let ended = if process::interrupted() {
            process::forget_interrupt();
            Some("interrupted")
        } else {
            until.filter(|until| now >= *until).map(|_| "duration")
        };
        if let Some(ended) = ended {
            let last = llstat.read()?;
            return last.map_or_else(|| gone(llstat, before, first), |last| Ok((last, ended)));
        }
        if now >= next {
            let Some(reading) = llstat.read()? else { return gone(llstat, before, first) };
            let line = report(&llstat.facts, &before, &reading, first.at_ns, "interval");
            if !args.quiet && !output.line(&line, text::interval)? {
                return Ok((reading, "interrupted"));
            }
            before = reading;
        }
        while next <= now {
            next += args.interval;
        }
        llstat.turn();
        let wake = until.map_or(next, |until| until.min(next));
        std::thread::sleep(wake.saturating_duration_since(now).min(TURN));
    }
}
