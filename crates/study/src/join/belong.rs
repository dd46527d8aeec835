//! Whether two halves belong together; each refusal is one sentence.
//!
//! Every frame carries its number and the sender's time. That tells more than any name: times of the sender's clock
//! within its own sending, and numbers below what it offered, cannot be another sending's. Whether the capture was there
//! from the first frame to the last is read from the clock where both share one; else from the first and the last number,
//! and only where these are missing from the two wall clocks.

use record::capture::{CaptureReport, StreamCount};
use record::half::{Half, SCHEMA, SentHalf};
use record::unit::many;
use record::{Problem, Result, Snapshot};

/// Two wall clocks are believed to this.
const WALL_NS: i128 = 1_000_000_000;
/// pktgen's time is cut to microseconds, and the wall clock may be corrected meanwhile.
const WALL_STEP_NS: u64 = 100_000_000;

/// The two halves, each in its place.
#[derive(Debug)]
pub struct Ends<'a> {
    pub sending_file: String,
    pub sending: &'a Half,
    pub sent: &'a SentHalf,
    pub capturing_file: String,
    pub capturing: &'a Half,
    pub captured: &'a CaptureReport,
    /// The nodes of the ledger: two names, whatever the halves call themselves.
    pub names: [String; 2],
    /// True when both ends share one clock.
    pub one_clock: bool,
    /// The messages of the sending that the capture saw, by flow.
    pub seen: Vec<&'a StreamCount>,
}

/// Which half is which.
pub fn ends<'a>(one: (&str, &'a Half), other: (&str, &'a Half)) -> Result<Ends<'a>> {
    for (file, half) in [one, other] {
        if half.schema != SCHEMA {
            let what = format!("this is not a half of a path, but '{}'", half.schema);
            return Err(Problem::input(what).at(file).help(format!("give what --record wrote ({SCHEMA})")));
        }
    }
    let ((sending_file, sending), (capturing_file, capturing)) =
        if one.1.sent.is_some() { (one, other) } else { (other, one) };
    let (Some(sent), Some(captured)) = (&sending.sent, &capturing.captured) else {
        let what =
            if one.1.sent.is_some() { "both halves are of senders" } else { "both halves are of captures" };
        return Err(Problem::input(what)
            .at(format!("{} and {}", one.0, other.0))
            .help("give one that pathlab send --record wrote and one that pathlab capture --record wrote"));
    };
    let (here, there) = (&sending.identity, &capturing.identity);
    let one_clock = here.shares_clock(there);
    let same_place = one_clock
        && here.network_namespace == there.network_namespace
        && sending.interface == capturing.interface;
    if same_place && !sending.interface.is_empty() && sending.interface != "lo" {
        let what = format!("both halves are of the same interface, {}", sending.interface);
        return Err(Problem::input(what).help("capture where the frames should arrive"));
    }
    let numbering = &sent.numbering;
    let ours = |stream: &&StreamCount| stream.header == numbering.header && stream.stream == numbering.stream;
    let seen = captured.census.streams.iter().filter(ours).collect();
    let names = names(&sending.node, &capturing.node);
    let (sending_file, capturing_file) = (sending_file.to_owned(), capturing_file.to_owned());
    Ok(Ends { sending_file, sending, sent, capturing_file, capturing, captured, names, one_clock, seen })
}

fn names(from: &str, to: &str) -> [String; 2] {
    if from == to {
        [format!("{from} (sending)"), format!("{to} (capturing)")]
    } else {
        [from.into(), to.into()]
    }
}

/// Whether what the capture saw can be what was sent.
pub fn stream(ends: &Ends) -> Result<()> {
    let refused = |(what, advice)| Err(Problem::input(what).at(&ends.capturing_file).help(advice));
    unlike(ends).map_or(Ok(()), refused)
}

/// Why what the capture saw cannot be what was sent, and what to do; none when it can.
fn unlike(ends: &Ends) -> Option<(String, &'static str)> {
    let numbering = &ends.sent.numbering;
    let streams = &ends.captured.census.streams;
    if ends.captured.census.unfollowed_messages > 0 {
        let (followed, others) = (streams.len(), ends.captured.census.unfollowed_messages);
        let what =
            format!("the capture followed {followed} flows and left {others} messages of others uncounted");
        return Some((what, "send fewer flows, or capture with a filter that leaves the others out"));
    }
    if ends.seen.is_empty() && !streams.is_empty() {
        let found: Vec<String> = streams.iter().map(|s| format!("{} {}", s.header, s.stream)).collect();
        let (found, header, stream) = (found.join(", "), &numbering.header, numbering.stream);
        let what = format!("the capture saw streams {found}, none of them {header} {stream}");
        return Some((what, "join the capture of this sending"));
    }
    let cut = ends.captured.cut;
    if ends.seen.is_empty() && cut > 0 {
        let what = format!("the capture cut {}, and no number is left in them", many(cut, "frame"));
        return Some((what, "capture with a longer --snap, or without"));
    }
    let (from, to) = when(ends);
    let is_outside = |stream: &&&StreamCount| {
        let first = stream.sent_first_ns.is_some_and(|first| first < from);
        first || stream.sent_last_ns.is_some_and(|last| last > to)
    };
    if let Some(stream) = ends.seen.iter().find(is_outside) {
        let what = format!("messages of {} were sent when this sender did not send", stream.flow);
        return Some((
            what,
            "join halves of the same sending; sendings at one time need 'stamp stream=N' of their own",
        ));
    }
    let (begin, end) = (numbering.first, numbering.first.saturating_add(ends.sent.report.frames.offered));
    let stream = ends.seen.iter().find(|stream| stream.last >= end || stream.first < begin)?;
    let StreamCount { first, last, flow, .. } = stream;
    let (sent, what) = (end.saturating_sub(1), format!("the capture saw numbers {first}…{last} of {flow}"));
    Some((format!("{what}, but {begin}…{sent} were sent"), "join halves of the same sending"))
}

/// From when to when the times in the headers can be, on the clock that they are of.
fn when(ends: &Ends) -> (u64, u64) {
    let half = ends.sending;
    let (from, to) = match (half.before.ended_ns, half.after.begun_ns) {
        (0, _) | (_, 0) => {
            (half.begun_ns.saturating_sub(WALL_NS as u64), half.ended_ns.saturating_add(WALL_NS as u64))
        }
        around => around,
    };
    if ends.sent.numbering.header != "pktgen" {
        return (from, to);
    }
    let wall = |ns: u64| ns.saturating_add(half.identity.realtime_offset_ns);
    (wall(from).saturating_sub(WALL_STEP_NS), wall(to).saturating_add(WALL_STEP_NS))
}

/// Whether the capture was there from the first frame to the last; what must be known about how that is known.
pub fn covers(ends: &Ends) -> Result<Vec<String>> {
    let Ends { sending, capturing, one_clock, .. } = *ends;
    let numbering = &ends.sent.numbering;
    let last = numbering.first.saturating_add(ends.sent.report.frames.offered).saturating_sub(1);
    let first_seen = ends.seen.iter().any(|stream| stream.first == numbering.first);
    let last_seen = ends.seen.iter().any(|stream| stream.last == last);
    if ends.captured.port.contains("pcap:") {
        // A file was captured by somebody else, and nobody knows when.
        let sure = first_seen && last_seen;
        let note = "it is not known whether the captured file covers the sending: the first or the last frame is not in it";
        return Ok(if sure { vec![] } else { vec![note.into()] });
    }
    let on = |half: &Half, ns: u64| {
        i128::from(ns) + if one_clock { 0 } else { i128::from(half.identity.realtime_offset_ns) }
    };
    let slack = if one_clock { 0 } else { WALL_NS };
    let late = on(capturing, capturing.begun_ns) - on(sending, sending.begun_ns);
    let early = on(sending, sending.ended_ns) - on(capturing, capturing.ended_ns);
    let ms = |ns: i128| ns as f64 / 1e6;
    let refused = |what: String| {
        let problem = Problem::input(what).at(&ends.capturing_file);
        Err(problem.help("begin the capture before the sending, and end it after"))
    };
    if !first_seen && late > slack {
        return refused(format!("the capture began {:.1} ms after the first frame was sent", ms(late)));
    }
    if !last_seen && early > slack {
        return refused(format!("the capture ended {:.1} ms before the last frame was sent", ms(early)));
    }
    let both_seen = first_seen && last_seen;
    let note = "that the capture covers the sending is known from the two wall clocks only";
    Ok(if one_clock || both_seen { vec![] } else { vec![note.into()] })
}

/// Whether the counters of both interfaces count from the same beginning, before and after.
pub fn interfaces(ends: &Ends) -> Result<()> {
    for (file, half) in [(&ends.sending_file, ends.sending), (&ends.capturing_file, ends.capturing)] {
        if half.interface.is_empty() {
            continue;
        }
        if let Some(what) = made_anew(half) {
            let advice = "repeat it while nobody touches the interface";
            return Err(Problem::input(what).at(file).help(advice));
        }
    }
    Ok(())
}

/// What happened to the interface of a half meanwhile; none when it is the same one.
fn made_anew(half: &Half) -> Option<String> {
    let name = &half.interface;
    let of = |snapshot: &Snapshot| snapshot.nodes.values().next().and_then(|node| node.link(name)).cloned();
    let (Some(before), Some(after)) = (of(&half.before), of(&half.after)) else {
        return Some(format!("interface {name} was not there all the time"));
    };
    if before.index != after.index {
        return Some(format!("interface {name} was made anew meanwhile"));
    }
    let back = |(counter, was): &(&String, &u64)| after.counters.get(*counter).is_some_and(|now| now < *was);
    let found = before.counters.iter().find(back);
    found.map(|(counter, _)| format!("{counter} of interface {name} went backwards meanwhile"))
}
