//! What `pathlab drops` says to people.

use crate::output::{table, when_any};
use record::drops::{DeadFrameLine, DropRow, DropsReport, DropsSecond};
use record::unit::{count, many, time_ns};

/// A frame in a line.
pub fn frame(frame: &DeadFrameLine) -> String {
    let DeadFrameLine { reason, node, length, captured, frames, line, .. } = frame;
    let time = jiff::Timestamp::from_nanosecond(frame.at_ns.into())
        .map_or_else(|_| "unknown time".to_owned(), |time| time.strftime("%H:%M:%S%.6f").to_string());
    let (place, interface) = (unknown(&frame.place), frame.interface.as_deref().unwrap_or("-"));
    let cut = if captured < length { format!(" ({captured} kept)") } else { String::new() };
    let parts = if *frames > 1 { format!(" in {frames} frames") } else { String::new() };
    format!("{time} {node}:{interface} {reason} {place} {length} B{parts}{cut} {line}")
}

fn unknown(place: &Option<String>) -> &str {
    place.as_deref().unwrap_or("unknown")
}

/// The sums of an interval.
pub fn second(second: &DropsSecond) -> String {
    let DropsSecond { seconds, frames, total_frames, lost, rows, .. } = second;
    let lost = when_any(*lost, |lost| format!(", {} not shown", many(lost, "buffer")));
    let head = format!(
        "{seconds:>6.1} s  {} dropped, {} so far{lost}",
        many(*frames, "frame"),
        count(*total_frames)
    );
    if rows.is_empty() { head } else { format!("{head}\n{}", sums(rows)) }
}

fn sums(rows: &[DropRow]) -> String {
    let row = |row: &DropRow| {
        let DropRow { reason, node, frames, .. } = row;
        let interface = row.interface.clone().unwrap_or_else(|| "-".to_owned());
        let name = row.name.clone().unwrap_or_else(|| "-".to_owned());
        vec![reason.clone(), name, unknown(&row.place).to_owned(), interface, node.clone(), count(*frames)]
    };
    let heads = ["REASON", "NAME", "PLACE", "INTERFACE", "NODE", "FRAMES"];
    table(5, &heads, rows.iter().map(row).collect()).text().trim_end().to_owned()
}

/// The names that fit a sum which has none.
fn fitting(row: &DropRow) -> String {
    format!("{} at {} is one of {}.", row.reason, unknown(&row.place), row.may_be.join(", "))
}

/// All that is known at the end.
pub fn report(report: &DropsReport) -> String {
    let mut lines = vec![head(report)];
    if !report.rows.is_empty() {
        lines.push(sums(&report.rows));
    }
    lines.extend(report.rows.iter().filter(|row| !row.may_be.is_empty()).map(fitting));
    lines.extend(
        report.meanings.iter().map(|one| format!("{}: {} Advice: {}.", one.name, one.meaning, one.advice)),
    );
    for driver in &report.drivers {
        let (node, interface, counter) = (&driver.node, &driver.interface, &driver.counter);
        lines.push(format!("counted by the driver: {node}:{interface} {counter} {}", count(driver.count)));
    }
    lines.push(balance(report));
    lines.extend(left_out(report));
    lines.extend(report.missing.iter().map(|missing| format!("not watched: {missing}")));
    lines.extend(report.written.iter().map(|written| {
        format!("written: {}, {} B, {}", many(written.frames, "frame"), count(written.bytes), written.file)
    }));
    let by_driver = match report.drivers[..] {
        [] => "no counter of a driver moved that would tell it",
        _ => "only the counters of drivers above tell it",
    };
    lines.push(format!("XDP_DROP of what was no buffer yet has no event: {by_driver}."));
    lines.join("\n")
}

fn head(report: &DropsReport) -> String {
    let nodes = report.nodes.as_ref().map_or_else(|| "all of this host".to_owned(), |nodes| nodes.join(", "));
    let filter = report.filter.as_ref().map_or(String::new(), |filter| format!(", '{filter}'"));
    let (time, ended) = (time_ns(report.seconds * 1e9), &report.ended);
    let dropped = match report.frames {
        0 => "no frame was dropped".to_owned(),
        frames => format!("{} dropped", many(frames, "frame")),
    };
    format!("{nodes}{filter}: {dropped} in {time}; ended by {ended}")
}

/// What was shown of what was counted.
fn balance(report: &DropsReport) -> String {
    let DropsReport { seen, lost, cut, filtered, no_room, hidden, unaccounted, .. } = report;
    let unaccounted = match unaccounted {
        None => ", the rest was not waited for".to_owned(),
        Some(0) => String::new(),
        Some(left) => format!(", {left} unaccounted for"),
    };
    let mut text = format!(
        "{} shown ({} cut), {} lost because the buffer was full{unaccounted}",
        many(*seen, "buffer"),
        count(*cut),
        count(*lost)
    );
    text += &when_any(*filtered, |filtered| format!("; {} filtered", count(filtered)));
    text += &when_any(*no_room, |no_room| format!("; {} not in the sums: too many places", count(no_room)));
    text += &when_any(*hidden, |hidden| {
        format!("; {} of the host that the kernel did not show to programs", many(hidden, "event"))
    });
    text + &format!("; {} of CPU", time_ns(report.cpu_ns as f64))
}

fn left_out(report: &DropsReport) -> Option<String> {
    let all = report.left_out.iter().map(|one| left_out_words(&one.name, one.count));
    let all: Vec<String> = all.collect();
    (!all.is_empty()).then(|| format!("left out: {}", all.join(", ")))
}

fn left_out_words(name: &str, count: u64) -> String {
    match name {
        "parts" => many(count, "buffer") + " that counted already, or that the kernel only tried",
        _ => many(count, "buffer") + " of local sockets, no frames",
    }
}
