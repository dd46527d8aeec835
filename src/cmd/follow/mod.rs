//! `pathlab follow`: the ledger of a flow that somebody else sends.
//!
//! The order of events: read the flow, open the namespaces, count, tell a line for every interval until the time is over or it is
//! interrupted, and say what became of every frame.

mod words;

use crate::output::{Notices, Output};
use clap::Args;
use experiment::follow::Following;
use linux::namespace::{self, NamespaceWatch};
use linux::observe::Flow;
use linux::sys::process;
use record::follow::{FollowCount, FollowLeg, FollowSecond};
use record::unit::duration;
use record::{Problem, Result};
use std::time::{Duration, Instant};
use study::criteria::MostLoss;

/// How often interrupts and the end of the time are looked for.
const TURN: Duration = Duration::from_millis(20);

/// Flags of `pathlab follow`.
#[derive(Args)]
pub struct FollowArgs {
    /// The flow, in quotes: 'tcp 10.0.0.1 > 10.0.1.2:5201', 'udp > :53', 'icmp6 [fd00::1] > *'.
    #[arg(value_name = "FLOW")]
    flow: Flow,
    /// Count in these network namespaces: a name of 'ip netns', a path, pid:N of a process, or . for our own.
    #[arg(long = "in", value_name = "NAMESPACE", num_args = 1.., required_unless_present = "all_namespaces")]
    namespaces: Vec<String>,
    /// Count in every namespace that can be found, and in those that come: our own, the named ones, those of processes.
    #[arg(long, conflicts_with = "namespaces")]
    all_namespaces: bool,
    /// End after TIME (5s, 2m); otherwise with Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Print a line each TIME.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    interval: Duration,
    /// Print only what is known at the end.
    #[arg(long, short)]
    quiet: bool,
    /// Fail when more frames than this are lost on a way: 25, 0, 0.1%.
    #[arg(long, value_name = "FRAMES")]
    max_loss: Option<MostLoss>,
}

/// Follows and reports.
pub fn run(args: FollowArgs, output: &Output) -> Result<()> {
    let (namespaces, watch) = if args.all_namespaces {
        let found = namespace::all();
        let watch = NamespaceWatch::all(&found);
        (found, watch)
    } else {
        let opened = super::namespaces::opened("--in", &args.namespaces)?;
        let watch = NamespaceWatch::given(&opened);
        (opened, watch)
    };
    experiment::interruptible()?;
    let mut following = Following::start(args.flow.clone(), namespaces, watch)?;
    // From now on every frame is counted: scripts wait for this line before they start traffic.
    output.note("following");
    let ended = tell(&args, &mut following, output)?;
    let report = following.report(ended, args.max_loss)?;
    output.line(&report, words::report)?;
    if report.passed { Ok(()) } else { Err(Problem::measured(report.why)) }
}

/// A line for each interval until the end; why it ended.
fn tell(args: &FollowArgs, following: &mut Following, output: &Output) -> Result<&'static str> {
    let begun = Instant::now();
    let until = args.duration.map(|time| begun + time);
    let (mut next, mut before) = (begun + args.interval, vec![]);
    loop {
        let now = Instant::now();
        if process::interrupted() {
            process::forget_interrupt();
            return Ok("interrupted");
        }
        if until.is_some_and(|until| now >= until) {
            return Ok("duration");
        }
        following.keep_up()?;
        if now >= next && !args.quiet {
            let legs = following.look()?;
            let line = second(following.seconds(), &legs, &before, args.interval);
            if !output.line(&line, words::second)? {
                return Ok("reader_gone");
            }
            before = legs;
        }
        while next <= now {
            next += args.interval;
        }
        let wake = until.map_or(next, |until| until.min(next));
        std::thread::sleep(wake.saturating_duration_since(now).min(TURN));
    }
}

/// What a line says.
fn second(seconds: f64, legs: &[FollowLeg], before: &[FollowLeg], interval: Duration) -> FollowSecond {
    let one = |leg: &FollowLeg| {
        let old = before.iter().find(|old| old.leg == leg.leg).map_or(0, |old| old.sent);
        let drops = leg.stations.iter().flat_map(|station| &station.drops);
        FollowCount {
            leg: leg.leg.clone(),
            sent: leg.sent,
            received: leg.received,
            dropped: drops.map(|drop| drop.count).sum(),
            open: leg.unexplained,
            frames_per_s: leg.sent.saturating_sub(old) as f64 / interval.as_secs_f64(),
        }
    };
    FollowSecond { schema: "pathlab/follow-second/1".into(), seconds, legs: legs.iter().map(one).collect() }
}
