//! `pathlab null PORT PORT`: the smallest forwarder.
//!
//! What it does is [`experiment::null`]. **Why.** What a forwarder costs that does nothing is the floor under every switch, and
//! the difference between two kinds of ports is what the ports cost.

use crate::output::{Notices, Output, when_any};
use clap::Args;
use experiment::null::{Forwarder, NullDirection, Opened, Pair};
use record::unit::{count, frames_per_s, number, time_ns};
use record::{PlaceDrop, Result};
use std::path::PathBuf;
use std::time::Duration;

/// Flags of `pathlab null`.
#[derive(Args)]
pub struct NullArgs {
    /// One end, e.g. xdp:eth0 (kinds: int, ring, xdp, tap, pcap, fault).
    from: String,
    /// The other end.
    to: String,
    /// Forward only from the first port to the second.
    #[arg(long)]
    one_way: bool,
    /// End after TIME: 5s, 500ms, 2m.
    #[arg(long, value_name = "TIME", value_parser = record::unit::duration)]
    duration: Option<Duration>,
    /// Never sleep: use one CPU per direction, for the shortest delay.
    #[arg(long)]
    spin: bool,
    /// Send the counters so far, as JSON, to every client of this Unix socket.
    #[arg(long, value_name = "PATH")]
    counters: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: NullArgs, output: &Output) -> Result<()> {
    experiment::interruptible()?;
    let NullArgs { from, to, one_way, duration, spin, counters } = args;
    let toward = if one_way { "to" } else { "from and to" };
    let forwarding = format!("forwarding {from} {toward} {to}; end it with Ctrl-C");
    let forwarder = Forwarder::open(Pair { from, to, one_way, duration, spin, counters })?;
    if !output.json {
        output.text(&forwarder.ports.iter().map(settings_text).collect::<String>())?;
    }
    output.note(&forwarding);
    let (document, problem) = forwarder.run(output);
    output.result(&document, |document| document.ways.iter().map(way_text).collect())?;
    // A port that failed is reported after the numbers, which say what was lost with it.
    problem.map_or(Ok(()), Err)
}

fn settings_text(port: &Opened) -> String {
    let mut text = format!("{}\n", port.uri);
    for setting in &port.settings {
        let note = if setting.note.is_empty() { String::new() } else { format!("  ({})", setting.note) };
        text.push_str(&format!("  {:<12} {}{note}\n", setting.name, setting.effective));
    }
    text
}

fn way_text(way: &NullDirection) -> String {
    let head = format!(
        "{} -> {}\n  received {}, sent {} ({}, {} B), {} copies and {} of CPU for each frame\n",
        way.from,
        way.to,
        count(way.received),
        count(way.sent),
        frames_per_s(way.sent_mfps * 1e6),
        count(way.sent_bytes),
        number(way.copies_per_frame),
        time_ns(way.cpu_ns_per_frame)
    );
    let lines = [
        drops("lost before", &way.lost_before),
        line("lost between", way.full, " transmitter full"),
        line("lost between", way.failed, " transmitter failed"),
        drops("lost after", &way.lost_after),
        line("checksums completed", way.completed_checksums, ""),
        line("pieces of super-frames", way.segments, ""),
        line("times a link went down", way.link_downs, ""),
    ];
    head + &lines.concat()
}

fn drops(what: &str, drops: &[PlaceDrop]) -> String {
    drops.iter().map(|drop| line(what, drop.count, &format!(" {} {}", drop.place, drop.name))).collect()
}

/// A line about a counter that is not zero.
fn line(what: &str, times: u64, where_: &str) -> String {
    when_any(times, |times| format!("  {what}: {}{where_}\n", count(times)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_sent_is_told() {
        let way = NullDirection { received: 190, full: 90, failed: 100, ..NullDirection::default() };
        let text = way_text(&way);
        assert!(text.contains("lost between: 90 transmitter full"), "{text}");
        assert!(text.contains("lost between: 100 transmitter failed"), "{text}");
    }
}
