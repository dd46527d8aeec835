//! What one sending is asked for, and what comes of it.

use super::engine::Tally;
use super::fill;
use super::replay::Recording;
use super::template::Template;
use crate::traffic::schedule::OpenLoopPlan;
use linux::port::{StampSource, TransmitCounters, Uri};
use record::send::{SendReport, SendSeen};
use record::{PortKind, PortSetting, Rate, Result, Through};
use std::sync::Arc;

/// Frames of a batch when nothing else is said: enough to share a system call, few enough to stay in the cache.
pub const BATCH: usize = 64;

/// What is sent.
#[derive(Debug, Clone)]
pub enum SendContent {
    /// Frames of a template.
    Template(Template),
    /// Frames of a file, and its name; at its own times (so many times as fast) unless there is a rate.
    Recording(Arc<Recording>, String, Option<f64>),
}

/// Everything that shapes one sending.
#[derive(Debug, Clone)]
pub struct Job {
    /// The port.
    pub port: String,
    /// What is sent.
    pub what: SendContent,
    /// How fast; none for as fast as the port takes frames.
    pub rate: Option<Rate>,
    /// The rate as it was written.
    pub rate_text: String,
    /// Bits of a rate include FCS, preamble and gap.
    pub on_the_wire: bool,
    /// So many frames; none: by time alone.
    pub count: Option<u64>,
    /// How long at most, in milliseconds; 0 with a count: as long as that takes.
    pub duration_ms: u64,
    /// Frames that leave together.
    pub burst: u64,
    /// Frames of a batch.
    pub batch: usize,
    /// How many threads.
    pub threads: u32,
    /// Whose clock shall say when frames left; [`StampSource::None`]: nobody's.
    pub stamps: StampSource,
}

/// The interface behind a port, if there is one whose transmit counters tell what left.
pub fn interface_of(uri: &str) -> Option<String> {
    let parsed = Uri::parse(uri).ok()?;
    let kind = PortKind::named(&parsed.kind)?;
    match kind.through {
        Through::Port => interface_of(&parsed.rest),
        _ => kind.has_interface().then_some(parsed.rest),
    }
}

/// Fills in what the template does not say, from the interface of the port if it has one; what was filled in.
///
/// # Errors
/// As [`fill::facts`].
pub fn complete(template: &mut Template, port: &str) -> Result<Vec<String>> {
    let to = fill::destination(template);
    let facts = interface_of(port).map(|interface| fill::facts(&interface, to)).transpose()?;
    Ok(fill::fill(template, facts.as_ref()))
}

/// What all senders together did.
#[derive(Default)]
pub(super) struct Outcome {
    /// What they did.
    pub tally: Tally,
    /// What their ports counted.
    pub counters: TransmitCounters,
    /// What took effect.
    pub settings: Vec<PortSetting>,
    /// The plan of all as it is judged.
    pub plan: Option<OpenLoopPlan>,
    /// Frames that were asked for; none: as many as the time lets.
    pub asked: Option<u64>,
    /// What must be known.
    pub notes: Vec<String>,
}

/// A sending, and what was read around it.
#[derive(Debug, Default)]
pub struct Sending {
    /// The report, in which only `study::sending` says what became of the frames that the port accepted.
    pub report: SendReport,
    /// What that is reckoned from.
    pub seen: SendSeen,
    /// When the first frame was offered, `CLOCK_MONOTONIC`.
    pub begun_ns: u64,
    /// When the last was dealt with.
    pub ended_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_interfaces_or_not() {
        assert_eq!(interface_of("ring:a0?bypass=on").as_deref(), Some("a0"));
        assert_eq!(interface_of("fault:int:a0?lose=1%").as_deref(), Some("a0"));
        assert_eq!(interface_of("pcap:x.pcap"), None);
    }
}
