//! `pathlab capture`: counts frames, writes them, accounts for those that were lost.

use super::half::HalfArgs;
use super::stamps;
use crate::output::{Notices, Output, table, when_any};
use clap::Args;
use linux::port::{StampSource, Uri};
use linux::sys::libpcap;
use linux::tune::stamps::{Side, Stamping};
use load::capture::watcher::interface_of;
use load::capture::writer::FileOptions;
use load::capture::{CaptureOptions, Listener, Outcome};
use record::capture::{
    CaptureReading, CaptureReport, CaptureSecond, CaptureSeen, QueueCount, Recorded, StreamCount, Talker,
    Written,
};
use record::half::Half;
use record::ledger::NamedCount;
use record::unit::{bits_per_s, bytes, count, duration, frames_per_s, many, time_ns};
use record::{PlaceDrop, PortSetting, Problem, Result};
use std::time::Duration;

/// Flags of `pathlab capture`.
#[derive(Args)]
pub struct CaptureArgs {
    /// The port: ring:IF, int:IF, xdp:IF, tap:NAME, pcap:FILE …
    uri: String,
    /// Only frames that match this expression (tcpdump's language, see `man pcap-filter`).
    #[arg(long, short, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// End after exactly N frames.
    #[arg(long, short, value_name = "N", value_parser = super::amounts::<u64>(1..=u64::MAX))]
    count: Option<u64>,
    /// End after TIME (5s, 500ms, 2m).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Write the frames to a file: .pcapng or .pcap, with .gz or .zst; - is standard output.
    #[arg(long, short, value_name = "FILE")]
    write: Option<String>,
    /// Replace files that exist already.
    #[arg(long, requires = "write")]
    overwrite: bool,
    /// Begin a new file when one has reached this size (10M); files are numbered.
    #[arg(long, value_name = "BYTES", value_parser = size, requires = "write")]
    rotate_size: Option<u64>,
    /// Begin a new file when one has reached this age; files are numbered.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "write")]
    rotate_time: Option<Duration>,
    /// Keep at most N files of this capture; the oldest is deleted.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "write")]
    files: Option<u32>,
    /// Keep at most this much of each frame.
    #[arg(long, value_name = "BYTES", value_parser = super::bytes::<u32>(14..=262_144))]
    snap: Option<u32>,
    /// Receive with N threads, which share the frames (int: and ring:).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Pin these threads to these CPUs (0,2).
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cpus: Vec<u32>,
    /// Memory for the queue between a receiving thread and the writer.
    #[arg(long, value_name = "BYTES", value_parser = size, default_value = "32Mi")]
    queue: u64,
    /// Only incoming frames, not those that this host sends.
    #[arg(long)]
    incoming: bool,
    /// Only frames for this host: the interface is not made promiscuous.
    #[arg(long)]
    own: bool,
    /// The clock of the timestamps: software, hardware, hardware-system.
    #[arg(long, value_name = "CLOCK", default_value = "software", value_parser = stamps::clock)]
    timestamps: StampSource,
    /// Only count frames, bytes and sizes, without reading headers: the cheapest way to capture.
    #[arg(long)]
    only_count: bool,
    /// Do not print a line every second.
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    half: HalfArgs,
}

/// Captures and reports.
pub fn run(args: CaptureArgs, output: &Output) -> Result<()> {
    if args.only_count && args.half.record.is_some() {
        let problem =
            Problem::input("a capture that only counts does not see the frames' numbers").at("--record");
        return Err(problem.help("leave --only-count out"));
    }
    let wish = wish(&args)?;
    experiment::interruptible()?;
    // When the frames go to standard output, the report does not.
    let stderr = args.write.as_deref() == Some("-");
    let mut teller = CaptureOutput {
        output: &Output { stderr, ..*output },
        quiet: args.quiet,
        keeps: args.write.is_some() || args.half.record.is_some(),
    };
    let interface = interface_of(&args.uri, true).map(|(interface, ..)| interface);
    let stamping = stamps::prepare(args.timestamps, interface.as_deref(), &args.uri, Side::Receive, output)?;
    let pending = args.half.begin()?;
    let Outcome { mut report, problem, seen } = load::capture::run(&wish, &mut teller)?;
    study::capturing::close(&mut report, &seen);
    let put_back = stamping.map_or(Ok(()), Stamping::put_back);
    let kept = pending.map_or(Ok(()), |pending| {
        pending.finish(|half| fill(half, interface.unwrap_or_default(), seen, &report))
    });
    teller.output.line(&report, people)?;
    put_back?;
    if let (Err(unkept), Some(_)) = (&kept, &problem) {
        output.note(&unkept.to_string());
    }
    problem.map_or(kept, Err)?;
    verdict(&args, &report)
}

/// The half of a path that this capture is.
fn fill(half: &mut Half, interface: String, seen: CaptureSeen, report: &CaptureReport) {
    (half.begun_ns, half.ended_ns) = (seen.begun_ns, seen.ended_ns);
    half.interface = interface;
    let counters = |reading: Option<CaptureReading>| reading.unwrap_or_default().counters;
    (half.before, half.after) = (counters(seen.before), counters(seen.after));
    half.captured = Some(report.clone());
}

/// Code 1 when it was interrupted before its end.
fn verdict(args: &CaptureArgs, report: &CaptureReport) -> Result<()> {
    let unfinished = args.count.is_some_and(|wanted| report.captured < wanted) || args.duration.is_some();
    if report.ended == "interrupted" && unfinished {
        return Err(Problem::measured("interrupted before the count or the time was reached"));
    }
    Ok(())
}

/// The flags as a wish, checked.
fn wish(args: &CaptureArgs) -> Result<CaptureOptions> {
    check(args)?;
    let snap = args.snap.unwrap_or(wire::pcap::MAX_FRAME);
    let compile = |text: &String| linux::filter::compile(text, libpcap::ETHERNET, snap);
    let filter = args.filter.as_ref().map(compile).transpose()?;
    Ok(CaptureOptions {
        uri: args.uri.clone(),
        threads: args.threads,
        cpus: args.cpus.clone(),
        filter: args.filter.clone().zip(filter),
        snap: args.snap,
        promiscuous: !args.own,
        outgoing: !args.incoming,
        stamps: args.timestamps,
        only_count: args.only_count,
        count: args.count,
        duration: args.duration,
        queue_bytes: args.queue as usize,
        file: args.write.as_ref().map(|path| file(args, path)),
    })
}

fn check(args: &CaptureArgs) -> Result<()> {
    let rotates = args.rotate_size.is_some() || args.rotate_time.is_some();
    if args.files.is_some() && !rotates {
        return Err(Problem::input("--files needs --rotate-size or --rotate-time"));
    }
    if args.write.as_deref() == Some("-") && rotates {
        return Err(Problem::input("standard output cannot be rotated").help("give a file name"));
    }
    let online = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    match args.cpus.iter().find(|&&cpu| cpu >= online.max(1)) {
        None => Ok(()),
        Some(cpu) => Err(Problem::input(format!("there is no CPU {cpu}"))
            .help(format!("the CPUs are 0 to {}", online - 1))),
    }
}

fn file(args: &CaptureArgs, path: &str) -> FileOptions {
    let name = Uri::parse(&args.uri).map(|uri| uri.rest).unwrap_or_default();
    let interface = wire::pcap::Interface {
        snap: args.snap.unwrap_or(0),
        name,
        description: format!("{} captured by pathlab, times by {}", args.uri, args.timestamps.name()),
        filter: args.filter.clone().unwrap_or_default(),
        ..wire::pcap::Interface::default()
    };
    FileOptions {
        path: path.to_owned(),
        rotate_bytes: args.rotate_size,
        rotate_time: args.rotate_time,
        keep: args.files.map(|files| files as usize),
        overwrite: args.overwrite,
        interface,
        directions: true,
        ..FileOptions::default()
    }
}

/// Reports while it captures.
struct CaptureOutput<'a> {
    output: &'a Output,
    quiet: bool,
    /// Frames are written, or what was seen of them: somebody wants the rest although nobody reads the lines any more.
    keeps: bool,
}

impl Listener for CaptureOutput<'_> {
    fn opened(&mut self, settings: &[PortSetting]) -> Result<()> {
        // From now on every frame is seen: scripts wait for this line before they start traffic.
        self.output.note("capturing");
        if !self.output.json && !self.quiet {
            settings.iter().for_each(|setting| self.output.note(&setting_line(setting)));
        }
        Ok(())
    }

    fn second(&mut self, second: &CaptureSecond) -> Result<bool> {
        Ok(self.quiet || self.output.line(second, second_line)? || self.keeps)
    }
}

fn setting_line(setting: &PortSetting) -> String {
    let PortSetting { name, asked, effective, note, .. } = setting;
    let asked = match asked.as_str() {
        asked if asked.is_empty() || asked == effective => String::new(),
        asked => format!(" (asked for {asked})"),
    };
    let note = if note.is_empty() { String::new() } else { format!(": {note}") };
    format!("{name} {effective}{asked}{note}")
}

fn second_line(second: &CaptureSecond) -> String {
    let drops = drop_words(&second.drops);
    let freezes = when_any(second.freezes, |freezes| format!(", {}", many(freezes, "freeze")));
    let (rate, bits) = (frames_per_s(second.frames_per_s), bits_per_s(second.rate_bps));
    let (second, total) = (second.second, count(second.total_frames));
    format!("{second:>4} s  {rate:>13}  {bits:>11}  {total:>13} captured  {drops}{freezes}")
}

/// What was counted, with its name; what never was is left out.
fn named<'a>(counts: impl Iterator<Item = (String, &'a u64)>) -> Option<String> {
    let seen = counts.filter(|(_, times)| **times > 0);
    let words: Vec<String> = seen.map(|(name, times)| format!("{name} {}", count(*times))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn drop_words(drops: &[PlaceDrop]) -> String {
    let lost = named(drops.iter().map(|drop| (format!("{} {}", drop.place, drop.name), &drop.count)));
    lost.map_or("no drops".to_owned(), |lost| format!("dropped: {lost}"))
}

/// The report for people.
fn people(report: &CaptureReport) -> String {
    let mut parts = vec![heading(report), places(report)];
    parts.extend(equation(report));
    parts.extend(report.written.as_ref().map(written_line));
    parts.push(census(report));
    parts.extend(report.notes.iter().map(|note| format!("note: {note}")));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn written_line(written: &Written) -> String {
    let (frames, bytes) = (many(written.frames, "frame"), count(written.bytes));
    let removed = when_any(written.removed, |files| format!(" ({} removed)", many(files, "older file")));
    format!("written: {frames}, {bytes} B, {}{removed}", written.files.join(", "))
}

fn heading(report: &CaptureReport) -> String {
    let all = format!("{}: {}, {} B", report.port, many(report.captured, "frame"), count(report.bytes));
    let (lasted, ended) = (time_ns(report.duration_ns as f64), &report.ended);
    match &report.recorded {
        Some(recorded) => format!("{all}, {}; read in {lasted}; ended by {ended}", recorded_words(recorded)),
        None => {
            let rates = rates(report.frames_per_s, report.rate_bps);
            format!("{all} in {lasted} ({rates}); ended by {ended}")
        }
    }
}

fn rates(frames: f64, bits: f64) -> String {
    format!("{}, {}", frames_per_s(frames), bits_per_s(bits))
}

/// When the frames of a file were captured: the speed of reading it says nothing about the traffic in it.
fn recorded_words(recorded: &Recorded) -> String {
    let span = time_ns(recorded.last_ns.saturating_sub(recorded.first_ns) as f64);
    let both = recorded.frames_per_s.zip(recorded.rate_bps);
    let rates = both.map_or(String::new(), |(frames, bits)| format!(" ({})", rates(frames, bits)));
    let begun = jiff::Timestamp::from_nanosecond(recorded.first_ns.into())
        .map_or_else(|_| "an unknown time".to_owned(), |time| time.to_string());
    format!("recorded from {begun} on in {span}{rates}")
}

/// Every place where frames can be lost, with its counters.
fn places(report: &CaptureReport) -> String {
    let own = report.drops.iter().map(|drop| (drop, ""));
    let account = report.account.iter();
    let beside = account.clone().flat_map(|account| &account.beside).map(|drop| (drop, "the interface says"));
    let host = account.flat_map(|account| &account.host_wide).map(|drop| (drop, "of the whole host"));
    let rows = own.chain(beside).chain(host).filter(|(drop, whose)| drop.count > 0 || whose.is_empty());
    let rows: Vec<Vec<String>> = rows
        .map(|(drop, whose)| vec![drop.place.clone(), drop.name.clone(), count(drop.count), whose.to_owned()])
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = table(2, &["place", "dropped because", "frames", ""], rows).text().trim_end().to_owned();
    if report.freezes > 0 {
        text.push_str(&format!("\nthe ring was full {}", many(report.freezes, "time")));
    }
    text
}

/// The account in one line, and what it means.
fn equation(report: &CaptureReport) -> Option<String> {
    let account = report.account.as_ref()?;
    let sides = [("received", account.received), ("sent", account.sent)];
    let left = sides.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", count(value?))));
    let left: Vec<String> = left.collect();
    let mut text = format!(
        "{}: {} = captured {} + filtered {} + lost {} + after the end {} + residual {} (±{})",
        account.interface,
        unknown((!left.is_empty()).then(|| left.join(" + "))),
        count(account.captured),
        unknown(account.filtered.map(count)),
        count(account.lost),
        count(account.after),
        unknown(account.residual.map(|residual| residual.to_string())),
        count(account.uncertainty),
    );
    text.extend(account.queues.iter().filter_map(queue_line));
    if !account.unknown.is_empty() {
        text.push_str(&format!("\nthe account is open: {}", account.unknown));
    }
    Some(text)
}

fn unknown(value: Option<String>) -> String {
    value.unwrap_or("unknown".to_owned())
}

/// A queue of the interface that lost frames.
fn queue_line(queue: &QueueCount) -> Option<String> {
    let lost = named(queue.drops.iter().map(|drop| (drop.name.clone(), &drop.count)))?;
    let (number, received) = (queue.queue, unknown(queue.received.map(count)));
    Some(format!(
        "\nqueue {number}: received {received}, {lost} (the driver may have counted these above, too)"
    ))
}

/// What kinds of frames there were.
fn census(report: &CaptureReport) -> String {
    let census = &report.census;
    let list = |counts: &[NamedCount]| named(counts.iter().map(|one| (one.name.clone(), &one.count)));
    let protocols = census.protocols.iter().take(12).map(|one| (one.protocol.clone(), &one.frames));
    let counts = [
        ("sizes", list(&census.sizes)),
        ("marks", list(&census.marks)),
        ("times by", list(&census.stamps)),
        ("protocols", named(protocols)),
    ];
    let counts = counts.into_iter().filter_map(|(name, words)| Some(format!("{name}: {}", words?)));
    let talkers = census.talkers.iter().take(5).map(talker_line);
    let lines: Vec<String> = counts.chain(talkers).chain(census.streams.iter().map(stream_line)).collect();
    lines.join("\n")
}

fn talker_line(talker: &Talker) -> String {
    let error = when_any(talker.error_bytes, |bytes| format!(" (at most {bytes} too many)"));
    let (frames, bytes) = (many(talker.frames, "frame"), count(talker.bytes));
    format!("talker: {} > {}: {frames}, {bytes} B{error}", talker.from, talker.to)
}

fn stream_line(stream: &StreamCount) -> String {
    let delay = stream.delay_ns.as_ref().map_or(String::new(), |delay| {
        format!(", delay p50 {}, p99 {}", time_ns(delay.p50 as f64), time_ns(delay.p99 as f64))
    });
    let damaged = when_any(stream.damaged, |damaged| format!(", damaged {}", count(damaged)));
    format!(
        "stream: {} {} #{}: {} seen, {}…{}, missing {}, duplicates {}, reordered {}{damaged}{delay}",
        stream.header,
        stream.flow,
        stream.stream,
        count(stream.seen),
        stream.first,
        stream.last,
        count(stream.missing),
        count(stream.duplicates),
        stream.reordered.map_or("unknown".to_owned(), count),
    )
}

/// Bytes, one at least.
fn size(text: &str) -> std::result::Result<u64, String> {
    match bytes(text)? {
        0 => Err(format!("'{text}' is not a size: one byte at least")),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_wrong_ones_explained() {
        assert_eq!((size("10M"), size("1Ki"), size("7")), (Ok(10_000_000), Ok(1024), Ok(7)));
        assert!(size("0").unwrap_err().contains("one byte") && size("x").unwrap_err().contains("examples"));
    }
}
