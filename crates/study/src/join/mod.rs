//! Two halves of a path, made by two commands in two places, become one record.
//!
//! **What.** [`join`] takes what `pathlab send --record` and `pathlab capture --record` wrote, sees that they belong
//! together ([`belong`]), and makes the record of a run with one test of kind `frames` of them: the same ledger, the same
//! limit, the same findings, so everything that shows a run shows this one too.
//!
//! **Why not a ledger of its own.** A second reckoning would sooner or later say other words for the same loss. The only
//! thing that a join adds is one station: what is between the two interfaces is not known here, so it is one gap whose
//! loss has no name (`path to IF` in `docs/ledger.md`).
//!
//! **Price.** There is no witness and no quiet window before the test. Whether frames are missing is certain all the same,
//! for they are numbered; where they went is as certain as the counters of the two namespaces.

mod belong;

use crate::criteria::Criteria;
pub use crate::criteria::MostLoss;
use crate::findings;
use crate::ledger::{Arrival, Ports, WitnessInput};
use crate::test::{self, Evidence};
use crate::text::printable;
use belong::Ends;
use record::capture::{CaptureReport, StreamCount};
use record::delta::sum;
use record::half::{Half, JOIN_SCHEMA, JoinEnd, JoinReport, SentHalf};
use record::run::SCHEMA;
use record::traffic::Settings;
use record::unit::{count, many};
use record::{
    EndReport, Hop, Latency, NamedCount, NodeRole, Path, PortKind, Problem, Rate, Result, RunRecord,
    Snapshot, TestRecord, TestSpec, Through, TrafficKind, Witness, WitnessStatus,
};

/// Joins two halves, in either order, each with the name of its file. The record has no name and no end yet.
///
/// # Errors
/// Input: they do not belong together, in one sentence.
pub fn join(one: (&str, &Half), other: (&str, &Half), most: Option<MostLoss>) -> Result<JoinReport> {
    let ends = belong::ends(one, other).map_err(said)?;
    belong::stream(&ends).map_err(said)?;
    let mut notes = belong::covers(&ends).map_err(said)?;
    belong::interfaces(&ends).map_err(said)?;
    let (delay, delay_unknown) = delay(&ends);
    let order_known = ends.seen.iter().all(|stream| stream.reordered.is_some());
    if !order_known {
        notes.push("the capture's threads shared the stream, so reordering is unknown".into());
    }
    let test = the_test(&ends, delay.clone(), notes);
    let ledger = test.ledger.as_ref();
    // A copy that a fault: port made of a frame is not missing when the frame came.
    let missing = ledger.map_or(0, |ledger| ends.sent.report.frames.offered.saturating_sub(ledger.received));
    let why = verdict(&test, missing, most);
    let mut run = header(&ends, most);
    run.tests.push(test);
    run.findings = findings::findings(&run);
    let reordered = order_known.then(|| total(&ends, |stream| stream.reordered.unwrap_or(0)));
    let Ends { names: [from, to], captured, sent: SentHalf { report, .. }, .. } = &ends;
    Ok(JoinReport {
        schema: JOIN_SCHEMA.into(),
        sending: end(&ends.sending_file, ends.sending, from, &report.port, report.frames.offered),
        capturing: end(&ends.capturing_file, ends.capturing, to, &captured.port, captured.captured),
        numbering: ends.sent.numbering.clone(),
        flows: ends.seen.len() as u64,
        one_clock: ends.one_clock,
        missing,
        reordered,
        delay_ns: delay,
        delay_unknown,
        passed: why.is_empty(),
        why,
        record: String::new(),
        run,
    })
}

/// A sentence that quotes a file must not speak to the terminal.
fn said(problem: Problem) -> Problem {
    Problem { what: printable(&problem.what).replace('\n', " "), ..problem }
}

/// Why it did not pass; empty when it did.
fn verdict(test: &TestRecord, missing: u64, most: Option<MostLoss>) -> String {
    let Some(ledger) = &test.ledger else { return String::new() };
    let mut why = vec![];
    let sure = count(ledger.uncertainty);
    match ledger.unexplained {
        0 => {}
        1.. => why.push(format!(
            "{} of {} are missing and nothing names them (± {sure})",
            count(ledger.unexplained.unsigned_abs()),
            many(ledger.sent, "frame")
        )),
        _ => why.push(format!(
            "the stations count {} more than were sent (± {sure})",
            many(ledger.unexplained.unsigned_abs(), "frame")
        )),
    }
    if let Some(most) = most.filter(|most| missing > most.of(ledger.sent)) {
        let (missing, sent) = (count(missing), many(ledger.sent, "frame"));
        why.push(format!("{missing} of {sent} are missing, and at most {most} may be"));
    }
    why.join("; ")
}

fn end(file: &str, half: &Half, node: &str, port: &str, frames: u64) -> JoinEnd {
    JoinEnd {
        file: file.into(),
        node: node.into(),
        interface: half.interface.clone(),
        port: port.into(),
        boot_id: half.identity.boot_id.clone(),
        frames,
    }
}

/// The delay of the stream, or why it is unknown.
fn delay(ends: &Ends) -> (Option<Latency>, String) {
    let unknown = |why: &str| (None, why.to_owned());
    match ends.seen.as_slice() {
        [] => unknown("no frame arrived"),
        _ if !ends.one_clock => unknown("the two ends have two clocks"),
        [one] => match &one.delay_ns {
            Some(delay) => (Some(delay.clone()), String::new()),
            None => unknown("the capture's times are not of the clock that the frames carry"),
        },
        flows => unknown(&format!(
            "the frames were of {} flows, which the capture timed each by itself",
            flows.len()
        )),
    }
}

fn header(ends: &Ends, most: Option<MostLoss>) -> RunRecord {
    let half = ends.sending;
    let most = most.map_or(String::new(), |most| format!(" --max-loss {most}"));
    RunRecord {
        schema: SCHEMA.into(),
        begun: half.begun.clone(),
        plan_name: "join".into(),
        host: half.host.clone(),
        plan: format!(
            "# two halves joined: pathlab join {} {}{most}",
            ends.sending_file, ends.capturing_file
        ),
        topology: format!(
            "# {}: {}, then {}: {}; what is between them is not known",
            half.node, half.interface, ends.capturing.node, ends.capturing.interface
        ),
        command: half.command.clone(),
        ..RunRecord::default()
    }
}

fn the_test(ends: &Ends, delay: Option<Latency>, notes: Vec<String>) -> TestRecord {
    let mut receiver = receiver(ends, delay);
    receiver.notes.extend(notes);
    let (spec, sender) = (spec(ends), sender(ends));
    let notes: Vec<String> = sender.notes.iter().chain(&receiver.notes).cloned().collect();
    // The CPUs of two ends on two hosts are not one host's.
    let mut test = TestRecord {
        name: if spec.size > 0 { format!("frames {} B", spec.size) } else { "frames".into() },
        repetition: 1,
        order: 1,
        place: 1,
        begun: ends.sending.begun.clone(),
        spec,
        path: path(ends),
        sender,
        receiver,
        before: snapshot(ends, |half| &half.before),
        after: snapshot(ends, |half| &half.after),
        ..TestRecord::default()
    };
    conclude(&mut test, ends);
    if let Some(ledger) = &mut test.ledger {
        ledger.notes.extend(notes);
    }
    test
}

fn conclude(test: &mut TestRecord, ends: &Ends) {
    let report = &ends.sent.report;
    let why = "two commands in two places have none in common";
    let evidence = Evidence {
        idle: None,
        witness: WitnessInput::Absent(Witness::absent(WitnessStatus::Unavailable, why)),
        ports: Ports::default(),
        arrival: Some(&arrival(ends)),
        planned: report.schedule.requested_per_second.map(|_| report.frames.asked),
        // The halves' windows are wider than the traffic.
        seconds: Some(report.seconds),
        criteria: Criteria::default(),
    };
    test::conclude(test, evidence);
}

fn spec(ends: &Ends) -> TestSpec {
    let [from, to] = &ends.names;
    let SentHalf { report, frame_bytes, family, .. } = ends.sent;
    let kind = |port: &str| port.split(':').next().unwrap_or_default().to_owned();
    TestSpec {
        kind: TrafficKind::Frames,
        from: from.clone(),
        to: to.clone(),
        family: *family,
        duration_ms: (report.seconds * 1000.0).ceil() as u64,
        size: *frame_bytes,
        rate: report.schedule.requested_per_second.filter(|rate| *rate > 0.0).map(Rate::MessagesPerSecond),
        count: Some(report.frames.asked),
        port: format!("{}/{}", kind(&report.port), kind(&ends.captured.port)),
        ..TestSpec::default()
    }
}

fn path(ends: &Ends) -> Path {
    let [from, to] = &ends.names;
    let some = |interface: &str| (!interface.is_empty()).then(|| interface.to_owned());
    let hop =
        |node: &str, role, ingress, egress| Hop { node: node.into(), role, ingress, egress, bridge: None };
    let forward = vec![
        hop(from, NodeRole::Sender, None, some(&ends.sending.interface)),
        hop(to, NodeRole::Receiver, some(&ends.capturing.interface), None),
    ];
    Path { forward, back: vec![], source: "two halves".into() }
}

/// The counters of both ends as if they were of one lab: host-wide ones are the sender's, where the frames are that
/// its own link may still lose.
fn snapshot(ends: &Ends, of: fn(&Half) -> &Snapshot) -> Snapshot {
    let (sending, capturing) = (of(ends.sending), of(ends.capturing));
    let mut both = Snapshot { nodes: Default::default(), ..sending.clone() };
    for (name, half) in ends.names.iter().zip([sending, capturing]) {
        both.nodes.extend(half.nodes.values().next().map(|node| (name.clone(), node.clone())));
    }
    both.missing.extend(capturing.missing.iter().filter(|line| !sending.missing.contains(line)).cloned());
    both
}

fn sender(ends: &Ends) -> EndReport {
    let SentHalf { report, port_drops, bypasses_qdisc, .. } = ends.sent;
    let errors = port_drops.iter().map(|drop| NamedCount { name: drop.name.clone(), count: drop.count });
    let mut notes = report.notes.clone();
    let unoffered = report.frames.asked.saturating_sub(report.frames.offered);
    if unoffered > 0 {
        notes.push(format!(
            "{} of {} asked for were never offered to the port",
            count(unoffered),
            many(report.frames.asked, "frame")
        ));
    }
    let copies = report.frames.duplicated;
    if copies > 0 {
        notes.push(format!("{} more were sent: copies that fault: made", many(copies, "frame")));
    }
    EndReport {
        begun_ns: ends.sending.begun_ns,
        ended_ns: ends.sending.ended_ns,
        attempted: report.frames.offered,
        made: copies,
        sent: report.frames.accepted,
        sent_bytes: report.bytes,
        send_errors: errors.collect(),
        port_drops: port_drops.clone(),
        schedule: Some(report.schedule.clone()),
        settings: Settings {
            method: format!("pathlab send, {} threads", report.threads),
            port: report.port.clone(),
            port_settings: report.settings.clone(),
            bypasses_qdisc: *bypasses_qdisc,
            ..Settings::default()
        },
        thread_cpu_ns: report.thread_cpu_ns,
        notes,
        ..EndReport::default()
    }
}

fn receiver(ends: &Ends, latency: Option<Latency>) -> EndReport {
    let report = ends.captured;
    let total = |of: fn(&StreamCount) -> u64| total(ends, of);
    let late = total(|stream| stream.too_old);
    let mut notes = report.notes.clone();
    if late > 0 {
        let late = many(late, "message");
        notes.push(format!("{late} came so late that nobody can tell whether they came before"));
    }
    let untimed = total(|stream| stream.untimed);
    if latency.is_some() && untimed > 0 {
        notes.push(format!("{} could not be timed", many(untimed, "message")));
    }
    let strays = marked(report, "damaged_messages").saturating_sub(damaged_of_streams(report));
    if strays > 0 {
        let strays = many(strays, "message");
        notes.push(format!(
            "{strays} with a wrong checksum: of no stream that the capture knew, maybe of this one"
        ));
    }
    // What was lost on the way to a file was captured all the same.
    let of_port =
        |drop: &&record::PlaceDrop| drop.count > 0 && !matches!(drop.place.as_str(), "queue" | "disk");
    EndReport {
        begun_ns: ends.sending.begun_ns,
        ended_ns: ends.sending.ended_ns,
        received: total(|stream| stream.seen),
        unique: total(|stream| stream.unique),
        received_bytes: total(|stream| stream.bytes),
        duplicates: total(|stream| stream.duplicates),
        damaged: total(|stream| stream.damaged),
        reordered: total(|stream| stream.reordered.unwrap_or(0)),
        port_drops: report.drops.iter().filter(of_port).cloned().collect(),
        latency,
        settings: Settings {
            method: format!("pathlab capture, {} threads", report.threads.len()),
            port: report.port.clone(),
            port_settings: report.settings.clone(),
            ..Settings::default()
        },
        notes,
        ..EndReport::default()
    }
}

/// A count of all flows of the stream. The halves come from files, so nothing is believed to be small.
fn total(ends: &Ends, of: fn(&StreamCount) -> u64) -> u64 {
    sum(ends.seen.iter().map(|count| of(count)))
}

/// Frames that the capture marked so.
fn marked(report: &CaptureReport, name: &str) -> u64 {
    report.census.marks.iter().find(|mark| mark.name == name).map_or(0, |mark| mark.count)
}

fn damaged_of_streams(report: &CaptureReport) -> u64 {
    sum(report.census.streams.iter().map(|stream| stream.damaged))
}

/// What of the interface's received frames were the test's: all that the capture did not see to be others'.
fn arrival(ends: &Ends) -> Arrival {
    let report = ends.captured;
    let unknown = |why: &str| Arrival { arrived: Err(why.into()), doubt: 0, after: report.after };
    let Some(account) = &report.account else {
        return unknown("the port of the capture has no interface that counts");
    };
    // What its reader receives from a tap is what the kernel sent through it.
    let through =
        account.sent.filter(|_| PortKind::of(&report.port).is_some_and(|kind| kind.through == Through::Tap));
    let Some(received) = account.received.or(through) else {
        return unknown(if account.unknown.is_empty() {
            "the interface was not counted"
        } else {
            &account.unknown
        });
    };
    let seen = total(ends, |stream| stream.seen.saturating_add(stream.damaged));
    let outgoing = account.received.map_or(0, |_| marked(report, "outgoing"));
    let others = report.captured.saturating_sub(outgoing).saturating_sub(seen);
    let (lost, after) = (account.lost, account.after);
    match account.filtered {
        // The kernel did not count what the filter refused: anything between what is known of ours and all of it arrived.
        None => {
            let least = seen.saturating_add(lost).min(received);
            Arrival { arrived: Ok((least, received)), doubt: account.uncertainty, after }
        }
        Some(filtered) => {
            let others = others.saturating_add(filtered);
            // Frames that nobody looked at may have been anybody's.
            let anybody = if others > 0 { lost.saturating_add(after) } else { 0 };
            let arrived = received.saturating_sub(others);
            Arrival { arrived: Ok((arrived, arrived)), doubt: sum([account.uncertainty, anybody]), after }
        }
    }
}

#[cfg(test)]
mod tests;
