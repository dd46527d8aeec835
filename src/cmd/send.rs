//! `pathlab send`: frames from a template or a capture file through any port.
//!
//! The order of events: read what is to be sent, send it on threads of its own while this one watches the clock and
//! interrupts, print where every frame went, and end with code 1 when fewer left than were asked for.

use super::half::HalfArgs;
use super::timing::{punctuality, spread};
use super::{read_text, stamps};
use crate::output::{Notices, Output, object, when_any};
use crate::progress;
use clap::Args;
use linux::port::StampSource;
use linux::tune::stamps::{Side, Stamping};
use load::send::engine::EngineControl;
use load::send::pace::{AskedRate, read_rate};
use load::send::replay::Recording;
use load::send::template::{Size, Template};
use load::send::{Job, SendContent, Sending, build, calibrate, half, job};
use record::half::{Half, Numbering};
use record::send::{Calibration, SendLedger, SendReport, SentStampSource, SentStamps};
use record::unit::{bits_per_s, count, duration_ms, frames_per_s, many, signed, time_ns};
use record::{PlaceDrop, Problem, Result, drop};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use study::table::facts;

/// What is sent by default.
const DEFAULT: &str = "size 60 / eth / ip / udp / stamp";

/// How long a calibration sends, each time.
const CALIBRATION_MS: u64 = 1000;

/// Flags of `pathlab send`.
#[derive(Args)]
pub struct SendArgs {
    /// Where frames go: int:IF, ring:IF, xdp:IF, live:IF, tap:NAME, pcap:FILE, with settings after '?'.
    port: String,
    /// A file with a template (docs/send.md has the language).
    #[arg(value_name = "TEMPLATE", conflicts_with_all = ["frame", "from"])]
    template: Option<String>,
    /// The template itself: 'eth / ip dst=10.0.0.2 / udp dport=9' [default: 'eth / ip / udp / stamp'].
    #[arg(long, value_name = "TEXT", conflicts_with = "from")]
    frame: Option<String>,
    /// Send the frames of a capture file: pcap or pcapng, also gz or zst; '-' is standard input.
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
    /// How fast: 100kpps, 1gbit (bits without FCS, preamble and gap), max [default: max; a file's own times].
    #[arg(long, value_parser = read_rate)]
    rate: Option<AskedRate>,
    /// Count FCS, preamble and gap (24 bytes a frame) in a rate of bits.
    #[arg(long)]
    wire: bool,
    /// Send N frames, unless the duration ends first [default: 1; a file once].
    #[arg(long, value_parser = super::amounts::<u64>(0..=u64::MAX))]
    count: Option<u64>,
    /// Send for at most this time: 5s, 500ms, 2m.
    #[arg(long, value_parser = duration_ms)]
    duration: Option<u64>,
    /// Sizes of the frames without FCS: 60, 60..1514, imix, 'random(60..1514)', '{60:7,1514:1}'; '64 fcs' counts the FCS.
    #[arg(long, conflicts_with = "from")]
    size: Option<String>,
    /// Frames that leave together when a rate is set.
    #[arg(long, default_value_t = 1, value_parser = super::amounts::<u64>(1..=1_000_000))]
    burst: u64,
    /// Frames handed to the port at once.
    #[arg(long, default_value_t = job::BATCH as u64, value_parser = super::amounts::<u64>(1..=512))]
    batch: u64,
    /// Threads, each with its own end of the port.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Replay a file N times as fast as it was captured: 1, 10, 0.5, max.
    #[arg(long, requires = "from", conflicts_with_all = ["template", "frame", "size", "rate"])]
    speed: Option<String>,
    /// Replay the file N times.
    #[arg(long = "loop", value_name = "TIMES", requires = "from", value_parser = super::amounts::<u64>(1..=u64::MAX),
        conflicts_with_all = ["template", "frame", "size", "count", "duration"])]
    loops: Option<u64>,
    /// Repair wrong checksums in a file.
    #[arg(long, requires = "from", conflicts_with_all = ["template", "frame", "size"])]
    fix_checksums: bool,
    /// Only print the first frames, one line each and in hexadecimal; send nothing.
    #[arg(long, value_name = "FRAMES", value_parser = super::amounts::<u64>(0..=u64::MAX))]
    print: Option<u64>,
    /// Find the generator's own ceiling for this kind of port; the interface does not matter (write 'ring:').
    #[arg(long, conflicts_with_all = ["from", "print"])]
    calibrate: bool,
    /// Have every frame timestamped when it leaves (int: only), by this clock: software, hardware, hardware-system.
    #[arg(long, value_name = "CLOCK", value_parser = stamps::clock, conflicts_with_all = ["calibrate", "print"])]
    timestamps: Option<StampSource>,
    #[command(flatten)]
    half: HalfArgs,
}

/// Runs the command.
pub fn run(args: SendArgs, output: &Output) -> Result<()> {
    experiment::interruptible()?;
    let job = job_of(&args)?;
    if args.half.record.is_some() && (args.calibrate || args.print.is_some()) {
        return Err(Problem::input("nothing is sent, so nothing can be recorded").at("--record"));
    }
    if let Some(count) = args.print {
        return print(&job, count, output);
    }
    if args.calibrate {
        let found = watched(output, &job, |watch| calibrate::calibrate(&job, watch))?;
        return output.result(&found, calibration_table);
    }
    let numbering = args.half.record.as_ref().map(|_| half::numbering(&job)).transpose()?;
    let pending = args.half.begin()?;
    let interface = job::interface_of(&job.port);
    let stamping = stamps::prepare(job.stamps, interface.as_deref(), &job.port, Side::Transmit, output)?;
    let mut sending = watched(output, &job, |watch| load::send::send(&job, watch))?;
    study::sending::close(&mut sending.report, &sending.seen);
    let put_back = stamping.map_or(Ok(()), Stamping::put_back);
    let kept = pending
        .zip(numbering)
        .map_or(Ok(()), |(pending, numbering)| pending.finish(|half| fill(half, &job, numbering, &sending)));
    output.result(&sending.report, table)?;
    put_back?;
    kept?;
    verdict(&sending.report)
}

/// The half of a path that this sending is.
fn fill(half: &mut Half, job: &Job, numbering: Numbering, sending: &Sending) {
    (half.begun_ns, half.ended_ns) = (sending.begun_ns, sending.ended_ns);
    half.interface.clone_from(&sending.seen.interface);
    (half.before, half.after) = (sending.seen.before.clone(), sending.seen.after.clone());
    half.sent = Some(half::sent(job, numbering, sending));
}

/// Code 1 when fewer frames left than were asked for, or when it was interrupted.
fn verdict(report: &SendReport) -> Result<()> {
    let frames = &report.frames;
    if frames.transmitted >= frames.asked + frames.duplicated && !report.interrupted {
        return Ok(());
    }
    let first = frames.drops.iter().max_by_key(|drop| drop.count);
    let why = first.map_or_else(String::new, |drop| match (drop.place.as_str(), drop.name.as_str()) {
        ("program", drop::TIME_OVER) => ", the time was over before the others".to_owned(),
        (place, name) => format!(", most of the others {name} at {place}"),
    });
    let (left, asked) = (count(frames.transmitted), count(frames.asked));
    let made = copies(frames, " and ");
    Err(Problem::measured(format!("{left} of {asked} frames{made} were transmitted{why}")))
}

fn job_of(args: &SendArgs) -> Result<Job> {
    let what = match &args.from {
        Some(file) => {
            // More frames than are wanted need not fit into memory.
            let most = args.print.or(args.count);
            let recording = Arc::new(Recording::read(file, args.fix_checksums, most)?);
            SendContent::Recording(recording, file.clone(), speed(args)?)
        }
        None => SendContent::Template(template(args)?),
    };
    let rate = args.rate.flatten().filter(|_| !args.calibrate);
    let count = match (&what, args.count, args.duration) {
        _ if args.calibrate => None,
        (_, Some(0), _) => return Err(Problem::input("--count must be at least 1")),
        (_, Some(count), _) => Some(count),
        (_, None, Some(_)) => None,
        (SendContent::Recording(recording, ..), ..) => {
            Some(recording.len().saturating_mul(args.loops.unwrap_or(1)))
        }
        (SendContent::Template(_), ..) if args.rate.flatten().is_some() => {
            return Err(
                Problem::input("neither a count nor a duration is given").help("add --count or --duration")
            );
        }
        (SendContent::Template(_), ..) => Some(1),
    };
    let duration_ms = if args.calibrate { CALIBRATION_MS } else { args.duration.unwrap_or(0) };
    Ok(Job {
        port: args.port.clone(),
        rate,
        rate_text: rate_text(args, &what),
        what,
        on_the_wire: args.wire,
        count,
        duration_ms,
        burst: args.burst,
        batch: args.batch as usize,
        threads: args.threads,
        stamps: args.timestamps.unwrap_or_default(),
    })
}

/// How many times as fast a file's own times go; none when they are not used.
fn speed(args: &SendArgs) -> Result<Option<f64>> {
    let text = match (args.speed.as_deref(), args.rate) {
        (_, Some(_)) | (Some("max"), None) => return Ok(None),
        (None, None) => return Ok(Some(1.0)),
        (Some(text), None) => text,
    };
    let wrong = || Problem::input(format!("'{text}' is not a speed")).at("--speed");
    let speed = text.parse().ok().filter(|speed: &f64| speed.is_finite() && *speed > 0.0);
    speed.map(Some).ok_or_else(|| wrong().help("write 1, 10, 0.5 or max"))
}

fn rate_text(args: &SendArgs, what: &SendContent) -> String {
    match (args.rate, what) {
        (Some(Some(rate)), _) => rate.to_string(),
        (None, SendContent::Recording(_, _, Some(speed))) => format!("the file's times × {speed}"),
        _ => "max".into(),
    }
}

fn template(args: &SendArgs) -> Result<Template> {
    let mut template = match (&args.template, &args.frame) {
        (Some(file), _) => Template::parse(&read_text(file, "cannot read the template")?, file)?,
        (None, text) => Template::parse(text.as_deref().unwrap_or(DEFAULT), "--frame")?,
    };
    if let Some(size) = &args.size {
        template.size = Some(size_of(size, &template)?);
    }
    Ok(template)
}

/// Reads `--size` as the template's `size` line, over the same layers.
fn size_of(size: &str, template: &Template) -> Result<Size> {
    let rest = Template { size: None, ..template.clone() };
    let whole = Template::parse(&format!("size {}\n{rest}", size.replace('\n', " ")), "--size")?;
    whole.size.ok_or_else(|| Problem::input("the size is missing").at("--size"))
}

/// Sends on a thread of its own; interrupts stop it in order, and a bar shows how far it is.
fn watched<T: Send>(output: &Output, job: &Job, work: impl FnOnce(&EngineControl) -> T + Send) -> T {
    let (watch, begun) = (EngineControl::default(), Instant::now());
    let look = || {
        if linux::sys::process::interrupted() {
            watch.stop.store(true, Relaxed);
        }
        let elapsed = begun.elapsed().as_millis() as u64;
        (job.count.map_or(elapsed, |_| watch.sent.load(Relaxed)), String::new())
    };
    progress::watched(output, job.count.unwrap_or(job.duration_ms), look, || work(&watch))
}

/// The first frames, a line and their bytes each.
fn print(job: &Job, count: u64, output: &Output) -> Result<()> {
    let frames: Vec<Vec<u8>> = match &job.what {
        SendContent::Template(template) => {
            let mut template = template.clone();
            for line in job::complete(&mut template, &job.port)? {
                output.note(&line);
            }
            (0..count).map(|n| build::build(&template, n, build::Moment::default())).collect()
        }
        SendContent::Recording(recording, ..) => {
            recording.warnings(usize::MAX).iter().for_each(|line| output.note(line));
            (0..count.min(recording.len())).map(|n| recording.frame(n).to_vec()).collect()
        }
    };
    for (number, frame) in (1u64..).zip(&frames) {
        let hex: Vec<String> = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = wire::text::line(frame);
        let printed = object! { schema: "pathlab/frame/1", number, line: &line, hex: hex.concat() };
        output.line(&printed, |_| {
            let rows = hex.chunks(32).map(|row| format!("\n    {}", row.concat()));
            format!("{number}: {} bytes, {line}{}", frame.len(), rows.collect::<String>())
        })?;
    }
    Ok(())
}

/// The result for people.
fn table(report: &SendReport) -> String {
    let (frames, made) = (&report.frames, copies(&report.frames, " and "));
    let (left, asked) = (count(frames.transmitted), many(frames.asked, "frame"));
    let (rate, bits) = (frames_per_s(report.frames_per_second), bits_per_s(report.bits_per_second));
    let mut rows = vec![
        ("sent", format!("{left} of {asked}{made} through {}", report.port)),
        ("where", ledger_words(frames)),
        ("rate", format!("{rate}, {bits} in {}", time_ns(report.seconds * 1e9))),
        ("schedule", schedule_words(report)),
    ];
    rows.extend(report.stamps.iter().flat_map(stamp_words).map(|line| ("left", line)));
    let settings: Vec<String> =
        report.settings.iter().map(|s| format!("{} {}", s.name, s.effective)).collect();
    rows.extend((!settings.is_empty()).then(|| ("port", settings.join(", "))));
    let noted = report.settings.iter().filter(|s| !s.note.is_empty());
    rows.extend(noted.map(|s| ("", format!("{}: {}", s.name, s.note))));
    rows.extend(report.filled.iter().map(|line| ("filled in", line.clone())));
    rows.extend(report.notes.iter().map(|line| ("note", line.clone())));
    facts(&rows)
}

fn ledger_words(frames: &SendLedger) -> String {
    let drop = |drop: &PlaceDrop| format!(" + {} {} at {}", count(drop.count), drop.name, drop.place);
    let drops: String = frames.drops.iter().map(drop).collect();
    let queued = when_any(frames.queued, |queued| format!(" + {} still queued", count(queued)));
    let uncertainty = when_any(frames.uncertainty, |frames| format!(" ± {}", count(frames)));
    let completed = frames.completed.map(|frames| format!("; the port saw {} completed", count(frames)));
    format!(
        "asked {}{} = transmitted {} ({}){drops}{queued}, unexplained {}{uncertainty}{}",
        count(frames.asked),
        copies(frames, " + "),
        count(frames.transmitted),
        frames.counted_by,
        signed(frames.residual),
        completed.unwrap_or_default()
    )
}

/// The copies that `fault:` made, if there are any.
fn copies(frames: &SendLedger, before: &str) -> String {
    when_any(frames.duplicated, |made| format!("{before}{made} copies that fault: made"))
}

/// When frames left, a line for each clock.
fn stamp_words(stamps: &SentStamps) -> Vec<String> {
    let line = |source: &SentStampSource| {
        let spreads =
            [("after the call", &source.since_call), ("late by", &source.lateness), ("gap", &source.gap)];
        let spreads = spreads.into_iter().filter_map(|(name, times)| Some(spread(name, times.as_ref()?)));
        let spreads: String = spreads.collect();
        format!("{} stamps of {}{spreads}", source.source, many(source.count, "frame"))
    };
    let mut lines: Vec<String> = stamps.sources.iter().map(line).collect();
    if stamps.missing > 0 {
        let (missing, expected) = (count(stamps.missing), count(stamps.expected));
        lines.push(format!("{missing} of {expected} accepted frames have no stamp"));
    }
    lines
}

fn schedule_words(report: &SendReport) -> String {
    let schedule = &report.schedule;
    let Some(asked) = schedule.requested_per_second else {
        let full = many(report.full_waits, "time");
        return format!("as fast as the port takes frames; it was full {full}") + &punctuality(schedule);
    };
    // A rate asked for in frames is printed as it is; bits and a file's times are turned into frames here.
    let from = match report.rate.as_str() {
        rate if rate.ends_with("pps") => String::new(),
        rate => format!(" ({rate})"),
    };
    let (asked, offered) = (frames_per_s(asked), frames_per_s(schedule.achieved_per_second));
    format!("{asked} asked{from}, {offered} offered") + &punctuality(schedule)
}

fn calibration_table(found: &Calibration) -> String {
    format!(
        "program     {} into memory\nport        {} through {} into a far end that drops at once\nlimit       {}\n",
        frames_per_s(found.program_per_second),
        frames_per_s(found.port_per_second),
        found.port,
        found.limit
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_frames_than_asked_for_are_code_1_and_the_table_says_where_they_went() {
        let frames = SendLedger {
            asked: 10,
            offered: 10,
            transmitted: 7,
            counted_by: "tx_packets of a0".into(),
            drops: vec![PlaceDrop { place: "qdisc".into(), name: "qdisc_full".into(), count: 3 }],
            ..SendLedger::default()
        };
        let report = SendReport { frames, port: "int:a0".into(), ..SendReport::default() };
        let text = table(&report).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains(
                "asked 10 = transmitted 7 (tx_packets of a0) + 3 qdisc_full at qdisc, unexplained 0"
            ),
            "{text}"
        );
        let problem = verdict(&report).unwrap_err();
        assert_eq!((problem.kind.exit_code(), problem.what.contains("7 of 10 frames")), (1, true));
    }
}
