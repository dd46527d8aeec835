//! `pathlab drops`: every frame that dies, live.
//!
//! The order of events: find the namespaces, run the programs, tell frames and intervals until the time is over, the count is reached or it is
//! interrupted, and say the sums.

mod words;

use crate::output::{Notices, Output};
use clap::Args;
use experiment::drops::{DropsListener, DropsWish};
use record::drops::{DeadFrameLine, DropsSecond};
use record::unit::{bytes, duration};
use record::{Problem, Result};
use std::time::Duration;

/// Flags of `pathlab drops`.
#[derive(Args)]
pub struct DropsArgs {
    /// Only frames that match this expression (tcpdump's language, see `man pcap-filter`).
    #[arg(value_name = "EXPRESSION", num_args = 0..)]
    filter: Vec<String>,
    /// Watch only these network namespaces: a name of 'ip netns', a path, pid:N of a process, or . for our own.
    #[arg(long = "in", value_name = "NAMESPACE", num_args = 1.., conflicts_with = "lab")]
    namespaces: Vec<String>,
    /// Watch only the nodes of this lab.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Print a line for every frame.
    #[arg(long, short = 'f')]
    frames: bool,
    /// End after TIME (5s, 2m); otherwise with Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// End after exactly N buffers that match.
    #[arg(long, short, value_name = "N", value_parser = super::amounts::<u64>(1..=u64::MAX))]
    count: Option<u64>,
    /// Write the dead frames to a pcapng file, each with the reason and the place as its comment; - is standard output.
    #[arg(long, short, value_name = "FILE")]
    write: Option<String>,
    /// Replace a file that exists already.
    #[arg(long, requires = "write")]
    overwrite: bool,
    /// Print sums each TIME.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    interval: Duration,
    /// Print only what is known at the end.
    #[arg(long, short)]
    quiet: bool,
    /// Keep at most this much of each frame.
    #[arg(long, value_name = "BYTES", default_value_t = 16_384, value_parser = super::bytes::<u32>(64..=16_384))]
    snap: u32,
    /// Memory for frames that wait to be read.
    #[arg(long, value_name = "BYTES", value_parser = ring, default_value = "16Mi")]
    buffer: u32,
}

/// Watches and reports.
pub fn run(args: DropsArgs, output: &Output) -> Result<()> {
    experiment::interruptible()?;
    // When the frames go to standard output, the report does not.
    let stderr = args.write.as_deref() == Some("-");
    let mut teller = DropsOutput { output: &Output { stderr, ..*output }, names: args.frames };
    let (report, failed) = experiment::drops::run(wish(&args)?, &mut teller)?;
    teller.output.line(&report, words::report)?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    if report.ended == "interrupted" && (args.count.is_some() || args.duration.is_some()) {
        return Err(Problem::measured("interrupted before the count or the time was reached"));
    }
    Ok(())
}

fn wish(args: &DropsArgs) -> Result<DropsWish> {
    let scope = match &args.lab {
        Some(name) => Some(super::namespaces::of_lab(name)?),
        None if args.namespaces.is_empty() => None,
        None => Some(super::namespaces::opened("--in", &args.namespaces)?),
    };
    Ok(DropsWish {
        scope,
        filter: (!args.filter.is_empty()).then(|| args.filter.join(" ")),
        flow: None,
        snap: args.snap,
        ring_bytes: args.buffer,
        file: args.write.clone().map(|path| (path, args.overwrite)),
        count: args.count,
        duration: args.duration,
        interval: (!args.quiet).then_some(args.interval),
        frames: args.frames,
        over: None,
    })
}

/// Tells while it goes on.
struct DropsOutput<'a> {
    output: &'a Output,
    /// Frames are told one by one, so that the sums of an interval would only be in the way of people.
    names: bool,
}

impl DropsListener for DropsOutput<'_> {
    fn begun(&mut self) -> Result<()> {
        // From now on every frame is counted: scripts wait for this line before they start traffic.
        self.output.note("watching");
        Ok(())
    }

    fn frame(&mut self, frame: &DeadFrameLine) -> Result<bool> {
        self.output.line(frame, words::frame)
    }

    fn interval(&mut self, second: &DropsSecond) -> Result<bool> {
        if self.names && !self.output.json {
            return Ok(true);
        }
        self.output.line(second, words::second)
    }
}

/// Bytes of the ring: from a page to a gigabyte.
fn ring(text: &str) -> std::result::Result<u32, String> {
    match u32::try_from(bytes(text)?) {
        Ok(bytes @ 4096..=0x4000_0000) => Ok(bytes),
        _ => Err(format!("'{text}' is not between 4Ki and 1Gi")),
    }
}
