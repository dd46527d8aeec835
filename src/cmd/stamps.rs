//! `--timestamps`, for the commands that receive and send frames.
//!
//! **What.** Reads the flag ([`clock`]), switches an interface's timestamps on where that is needed and reports what the
//! interface really delivers, found out by trying ([`prepare`]).
//!
//! **Why.** The kernel accepts every request, so its acceptance proves nothing.

use crate::output::{Notices, Output};
use linux::port::{StampSource, stamps};
use linux::tune::stamps::{self as tuned, Side, Stamping};
use record::{Problem, Result, StampReport, StampSeen};

/// Reads the flag.
pub fn clock(text: &str) -> std::result::Result<StampSource, String> {
    match text {
        "software" => Ok(StampSource::Software),
        "hardware" => Ok(StampSource::HardwareRaw),
        "hardware-system" => Ok(StampSource::HardwareSystem),
        _ => Err("the clocks are software, hardware, hardware-system".into()),
    }
}

/// Switches the interface's timestamps on when more than software was asked for, and reports what it really delivers; the
/// guard restores the setting. Software timestamps need nothing.
///
/// # Errors
/// Input: the port has no interface. Host: the interface cannot be asked.
pub fn prepare(
    wanted: StampSource,
    interface: Option<&str>,
    uri: &str,
    side: Side,
    output: &Output,
) -> Result<Option<Stamping>> {
    if matches!(wanted, StampSource::Software | StampSource::None) {
        return Ok(None);
    }
    let Some(interface) = interface else {
        return Err(Problem::input("this port has no interface with a clock")
            .at(uri)
            .help("leave --timestamps out"));
    };
    let stamping = linux::undo::journals().and_then(|journals| tuned::switch_on(&journals, interface, side));
    let report = stamps::probe(interface, wanted)?;
    match &stamping {
        Ok(stamping) => output.note(&stamping.said),
        Err(problem) => output.note(&problem.to_string()),
    }
    output.note(&format!("{interface}: {}", delivered(&report, wanted, side)));
    report.notes.iter().for_each(|note| output.note(note));
    Ok(stamping.ok())
}

/// What the interface delivered of the stamps that were wanted.
fn delivered(report: &StampReport, wanted: StampSource, side: Side) -> String {
    let (is_delivered, seen) = match side {
        Side::Receive if report.receive.is_empty() => (report.delivered, "none came in".to_owned()),
        Side::Receive => (report.delivered, format!("stamps that came in: {}", list(&report.receive))),
        Side::Transmit => {
            let wanted = report.transmit.iter().any(|seen| seen.source == wanted.name());
            (wanted, format!("their stamps: {}", list(&report.transmit)))
        }
    };
    let is = if is_delivered { "is delivered" } else { "is NOT delivered" };
    let resolution = report.resolution_ns.map_or("unknown".to_owned(), |ns| format!("{ns} ns"));
    let (name, probes, clock) = (&report.wanted, report.probes, &report.clock);
    format!("{name} {is}; {probes} probes sent, {seen}; clock {clock}, resolution {resolution}")
}

fn list(seen: &[StampSeen]) -> String {
    let seen: Vec<String> = seen.iter().map(|seen| format!("{} {}", seen.source, seen.count)).collect();
    seen.join(", ")
}
