//! `live:IF`: the kernel's own generator sends the frames of a template.
//!
//! The kernel takes up to 512 frames and sends them in turn; number and time of a `stamp` layer are written into every
//! one. Values that vary over more frames than that repeat, and the report says after how many.

use super::build::Moment;
use super::engine::{EngineControl, Stopped, Tally};
use super::job::{Job, Outcome, SendContent};
use super::pace::frames_per_second;
use super::template::fields::Default as Unsaid;
use super::template::{LayerKind, Template};
use crate::traffic::schedule::{self, OpenLoopPlan};
use linux::port::live::{Live, LiveFrame, LiveOptions, Pace};
use linux::port::{StampSource, TransmitCounters};
use linux::sys::clock;
use record::unit::many;
use record::{Problem, Result};
use std::sync::atomic::Ordering::Relaxed;

/// The most frames that the kernel's program holds.
const MOST: u64 = 512;

/// True when every frame of the template is the same but for a stamp that the kernel writes.
fn is_constant(template: &Template) -> bool {
    let one_size = template.size.as_ref().is_none_or(|size| size.all().len() == 1);
    let constant = |layer: &super::template::Layer| {
        layer.fields.iter().all(|(_, value)| value.as_constant().is_some()) && layer.kind != LayerKind::Pktgen
    };
    one_size && template.layers.iter().all(constant)
}

/// How many different frames the kernel gets: as many as fit, in whole rounds of flows and sizes where that is possible.
fn frames_of(template: &Template) -> u64 {
    if is_constant(template) {
        return 1;
    }
    let sizes = template.size.as_ref().and_then(|size| size.round()).map_or(1, |round| round.len() as u64);
    let flows = template.flows.max(1);
    let (mut a, mut b) = (flows, sizes);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    let round = flows / a * sizes;
    if round > MOST { MOST } else { MOST - MOST % round }
}

/// Where the stamp begins whose number and time the kernel writes; none when there is none.
fn stamp_at(template: &Template) -> Option<usize> {
    let starts = super::build::starts(template);
    let index = template.layers.iter().position(|layer| layer.kind == LayerKind::Stamp)?;
    let layer = &template.layers[index];
    let field =
        |wanted: fn(&Unsaid) -> bool| layer.kind.facts().fields.iter().find(|field| wanted(&field.default));
    let free = [field(|d| matches!(d, Unsaid::Sequence(_))), field(|d| matches!(d, Unsaid::PlannedNs))];
    free.iter().flatten().all(|field| layer.get(field.name).is_none()).then_some(starts[index])
}

/// The template of a job for this module; none when another port sends it.
///
/// # Errors
/// Input: a live port, and what it cannot do.
pub(super) fn template(job: &Job) -> Result<Option<&Template>> {
    let refused = |what, advice| Err(Problem::input(what).at(&job.port).help(advice));
    match &job.what {
        _ if !is_live(&job.port) => Ok(None),
        _ if job.stamps != StampSource::None => {
            refused("live: does not tell when its frames left", "int:INTERFACE does")
        }
        _ if job.threads > 1 => refused("live: sends with one thread", "leave --threads out"),
        SendContent::Template(template) => Ok(Some(template)),
        SendContent::Recording(..) => {
            refused("live: cannot send the frames of a file", "use ring: or xdp: for that")
        }
    }
}

/// Sends a template by live frames.
///
/// # Errors
/// Host: this kernel, interface or user cannot; the sentence says what to use instead.
pub(super) fn send(job: &Job, template: &Template, watch: &EngineControl) -> Result<Outcome> {
    let mut notes = vec![];
    let message = stamp_at(template);
    let count = frames_of(template);
    let program = super::program::CompiledTemplate::new(template);
    let frame = |n| LiveFrame { bytes: program.frame(n, Moment::default()), message };
    let wish = LiveOptions { frames: (0..count).map(frame).collect(), ..LiveOptions::default() };
    if count > 1 {
        notes.push(format!("live frames vary over {} and then repeat", many(count, "frame")));
    }
    let mut live = Live::open_uri(&job.port, wish)?;
    let rate = job.rate.map(|rate| frames_per_second(rate, program.mean, job.on_the_wire));
    let start = clock::monotonic_ns();
    let grace = if rate.is_some() { schedule::GRACE_NS } else { 0 };
    let until = schedule::deadline_ns(start, job.duration_ms, job.count).saturating_add(grace);
    let in_time =
        rate.map(|rate| OpenLoopPlan::new(start, rate, job.duration_ms, job.count).total()).or(job.count);
    let asked = job.count.or(in_time);
    let pace = Pace { count: in_time, rate, until_ns: Some(until) };
    let mut tally = Tally::default();
    let result = live.pace(&pace, |burst| {
        if tally.begun_ns == 0 {
            tally.begun_ns = burst.begun_ns;
        }
        tally.ended_ns = burst.ended_ns;
        if rate.is_some() {
            let late = burst.begun_ns.saturating_sub(burst.planned_ns).max(1);
            (0..burst.frames).for_each(|_| tally.lateness.record(late));
        }
        watch.sent.store(burst.before + burst.frames, Relaxed);
        !watch.stop.load(Relaxed)
    });
    let sent = live
        .sent()
        .map_err(|e| Problem::host(format!("the program's count cannot be read: {e}")).at(&job.port))?;
    tally.offered = sent;
    if let Err(error) = result {
        tally.why = Some(Stopped::Port(error));
    } else if watch.stop.load(Relaxed) {
        tally.why = Some(Stopped::Asked);
    } else if asked.is_some_and(|asked| sent < asked) {
        tally.why = Some(Stopped::Time);
    }
    let bytes = (sent as f64 * program.mean) as u64;
    let counters = TransmitCounters { offered: sent, accepted: sent, bytes, ..TransmitCounters::default() };
    let plan = rate.map(|rate| OpenLoopPlan::new(start, rate, 0, Some(in_time.unwrap_or(sent))));
    Ok(Outcome { tally, counters, settings: live.settings().to_vec(), plan, asked, notes })
}

/// True for ports that this module serves.
pub fn is_live(port: &str) -> bool {
    port.starts_with("live:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Template {
        Template::parse(text, "t").unwrap()
    }

    #[test]
    fn rounds_fit_into_what_the_kernel_takes() {
        assert_eq!(frames_of(&read("size 64 / eth / ip / udp / stamp")), 1);
        assert_eq!(frames_of(&read("eth / ip src=10.0.0.1..10.0.0.9 / udp")), 512);
        assert_eq!(frames_of(&read("flows 100 / eth / ip src=10.0.0.1..10.0.0.250 / udp")), 500);
        assert_eq!(frames_of(&read("size imix / flows 8 / eth / ip src=10.0.0.1..10.0.0.250 / udp")), 504);
        assert_eq!(frames_of(&read("flows 1000 / eth / ip src=random / udp")), 512);
        assert_eq!(
            (stamp_at(&read("eth / ip / udp / stamp")), stamp_at(&read("eth / ip / udp / stamp seq=3"))),
            (Some(42), None)
        );
    }
}
