//! One sending from begin to end: open the port, look at the counters, send, look again.
//!
//! What became of the frames behind the port is not reckoned here: [`send`] tells what was done and what was seen, and
//! `study::sending` closes the books.

use super::engine::{self, EngineControl, Source, Stopped, Tally};
use super::job::{Job, Outcome, SendContent, Sending, complete, interface_of};
use super::live;
use super::pace::{self, Pace};
use super::program::CompiledTemplate;
use super::watcher::Watcher;
use crate::traffic::ports::{add_drops, bypasses_qdisc};
use crate::traffic::schedule::{self, OpenLoopPlan, Share};
use crate::traffic::threads::joined;
use linux::port::{Direction, PortError, PortOptions, StampSource, TransmitCounters, Transmitter};
use linux::sys::clock;
use record::send::{SCHEMA, SendLedger, SendReport, SendSeen};
use record::unit::many;
use record::{PortSetting, Problem, Result, drop};
use std::sync::Arc;
use std::time::Duration;

/// A plan begins so long after the threads are started, so that the first frame is not late.
const HEAD_START_NS: u64 = 2_000_000;
/// How long a queue may take to run empty at the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Does it.
///
/// # Errors
/// Input or host: the port cannot be opened, the interface is not there. What happens to single frames is no error but
/// in the report.
pub fn send(job: &Job, watch: &EngineControl) -> Result<Sending> {
    let mut job = job.clone();
    let mut filled = vec![];
    if let SendContent::Template(template) = &mut job.what {
        filled = complete(template, &job.port)?;
    }
    let interface = interface_of(&job.port);
    let mut watcher = interface.as_deref().map(Watcher::new).transpose()?;
    let mut seen = SendSeen { interface: interface.unwrap_or_default(), ..SendSeen::default() };
    let template = live::template(&job)?;
    let ports = if template.is_some() { vec![] } else { open(&job)? };
    if let Some(watcher) = &mut watcher {
        seen.before = watcher.look()?;
    }
    let mut outcome = match template {
        Some(template) => live::send(&job, template, watch)?,
        None => drive(&job, ports, watch)?,
    };
    if let Some(watcher) = &mut watcher {
        seen.after = watcher.settled(PATIENCE)?;
    }
    seen.bypasses_qdisc = bypasses_qdisc(&job.port, &outcome.settings);
    seen.not_offered = why(&outcome.tally).into();
    seen.under_way = outcome.tally.under_way;
    seen.port_drops = outcome.counters.drops.iter().filter(|drop| drop.count > 0).cloned().collect();
    let (begun_ns, ended_ns) = (outcome.tally.begun_ns, outcome.tally.ended_ns);
    Ok(Sending { report: report(&job, filled, &mut outcome), seen, begun_ns, ended_ns })
}

/// One word for why frames were not even offered.
fn why(tally: &Tally) -> &'static str {
    match tally.why {
        None => drop::NOT_OFFERED,
        Some(Stopped::Asked) => drop::INTERRUPTED,
        Some(Stopped::Time) => drop::TIME_OVER,
        Some(Stopped::Port(PortError::Down)) => drop::LINK_DOWN,
        Some(Stopped::Port(PortError::Gone)) => drop::INTERFACE_GONE,
        Some(Stopped::Port(PortError::Ended)) => drop::PORT_ENDED,
        Some(Stopped::Port(_)) => drop::PORT_FAILED,
    }
}

/// Where frames go, and what took effect there.
type Opened = (Box<dyn Transmitter>, Vec<PortSetting>);

fn open(job: &Job) -> Result<Vec<Opened>> {
    let wish = PortOptions { direction: Direction::Transmit, stamps: job.stamps, ..PortOptions::default() };
    let one = |_| {
        let port = linux::port::open(&job.port, &wish)?;
        let nowhere = || Problem::input("frames cannot be sent there").at(&job.port);
        Ok((port.transmitter.ok_or_else(nowhere)?, port.settings))
    };
    (0..job.threads.max(1)).map(one).collect()
}

/// Runs one sender on each port.
fn drive(job: &Job, ports: Vec<Opened>, watch: &EngineControl) -> Result<Outcome> {
    let source: Arc<dyn Source> = match &job.what {
        SendContent::Template(template) => Arc::new(CompiledTemplate::new(template)),
        SendContent::Recording(recording, ..) => recording.clone(),
    };
    let of = ports.len() as u32;
    let start_ns = clock::monotonic_ns() + HEAD_START_NS;
    let (whole, plan) = pace_of(job, start_ns, Share::ALL);
    let asked = job.count.or(whole.total());
    let mut all = Outcome { plan, asked, ..Outcome::default() };
    std::thread::scope(|scope| {
        let mut senders = vec![];
        for (index, (mut to, settings)) in (0..of).zip(ports) {
            all.settings = settings;
            let share = Share { index, of };
            let (source, (pace, _)) = (source.clone(), pace_of(job, start_ns, share));
            if let (0, SendContent::Recording(recording, ..)) = (index, &job.what) {
                all.notes = recording.warnings(to.longest());
            }
            senders.push(scope.spawn(move || {
                let tally = engine::run(to.as_mut(), &*source, &pace, share, job.batch, watch);
                (tally, to.counters())
            }));
        }
        for sender in senders {
            let (tally, counters) = joined(sender);
            all.tally.merge(tally);
            add(&mut all.counters, counters);
        }
    });
    if matches!(all.tally.why, Some(Stopped::Asked)) {
        all.plan = all.plan.map(|plan| plan.until(clock::monotonic_ns()));
    }
    // Nothing was in the way, and yet frames are left: they were planned for later than the deadline.
    if all.tally.why.is_none() && whole.total().is_some_and(|in_time| asked > Some(in_time)) {
        all.tally.why = Some(Stopped::Time);
    }
    Ok(all)
}

/// Adds the counters of another port.
fn add(sum: &mut TransmitCounters, other: TransmitCounters) {
    let first = sum.offered == 0 && sum.drops.is_empty();
    sum.offered += other.offered;
    sum.accepted += other.accepted;
    sum.bytes += other.bytes;
    sum.completed = match (sum.completed, other.completed) {
        (None, completed) if first => completed,
        (a, b) => a.zip(b).map(|(a, b)| a + b),
    };
    sum.copied += other.copied;
    sum.extra.extend(other.extra);
    add_drops(&mut sum.drops, &other.drops);
}

/// The pace of one sender, and the plan of all as it is judged; without a plan there is none.
fn pace_of(job: &Job, start_ns: u64, share: Share) -> (Pace, Option<OpenLoopPlan>) {
    let mean = match &job.what {
        SendContent::Template(template) => template.size.as_ref().map_or(60.0, |size| size.mean()),
        SendContent::Recording(recording, ..) => recording.mean(),
    };
    let count = share.count(job.count);
    if let Some(rate) = job.rate {
        let rate = pace::frames_per_second(rate, mean, job.on_the_wire) / f64::from(share.of);
        let burst = job.burst.max(1);
        let bursts = count.map(|count| count.div_ceil(burst));
        let plan = OpenLoopPlan::new(start_ns, rate / burst as f64, job.duration_ms, bursts);
        let total = count.unwrap_or(u64::MAX).min(plan.total().saturating_mul(burst));
        let judged = OpenLoopPlan::new(start_ns, rate, 0, Some(total));
        return (Pace::Even { plan, burst, total }, Some(judged));
    }
    let until_ns = schedule::deadline_ns(start_ns, job.duration_ms, job.count);
    if let SendContent::Recording(recording, _, Some(speed)) = &job.what {
        let (offsets, round_ns) = (recording.offsets.clone(), recording.round_ns());
        let in_time = if job.duration_ms == 0 { u64::MAX } else { recording.within(job.duration_ms, *speed) };
        let total = count.unwrap_or(u64::MAX).min(in_time);
        let until_ns = until_ns.saturating_add(schedule::GRACE_NS);
        let pace = Pace::Times { start_ns, offsets, round_ns, total, speed: *speed, until_ns };
        let last = pace.planned(total.saturating_sub(1)).unwrap_or(start_ns) - start_ns;
        let per_second = (total.saturating_sub(1)) as f64 * 1e9 / last as f64;
        let judged = per_second.is_finite() && per_second > 0.0;
        return (pace, judged.then(|| OpenLoopPlan::new(start_ns, per_second, 0, Some(total))));
    }
    (Pace::Max { total: count, until_ns }, None)
}

fn report(job: &Job, filled: Vec<String>, outcome: &mut Outcome) -> SendReport {
    let Outcome { tally, counters, settings, plan, asked, notes } = outcome;
    let frames = SendLedger {
        asked: asked.unwrap_or(tally.offered),
        offered: tally.offered,
        accepted: counters.accepted,
        completed: counters.completed,
        duplicated: counters.duplicated(),
        ..SendLedger::default()
    };
    let span_ns = tally.ended_ns.saturating_sub(tally.begun_ns);
    let seconds = span_ns as f64 / 1e9;
    let times = (tally.begun_ns, tally.ended_ns);
    let schedule = schedule::outcome(plan.as_ref(), tally.offered, times, &tally.lateness);
    notes.extend(schedule::lateness_note(schedule.lateness.as_ref()));
    if tally.downs > 0 {
        notes.push(format!("the link went down {} while frames were sent", many(tally.downs, "time")));
    }
    if let Some(Stopped::Port(error)) = &tally.why {
        notes.push(format!("the port could not go on: {error}"));
    }
    let (source, replay) = match &job.what {
        SendContent::Template(template) => (template.to_string(), None),
        SendContent::Recording(recording, name, _) => (name.clone(), Some(recording.facts.clone())),
    };
    SendReport {
        schema: SCHEMA.into(),
        port: job.port.clone(),
        source,
        filled,
        replay,
        rate: job.rate_text.clone(),
        threads: job.threads,
        settings: std::mem::take(settings),
        bytes: counters.bytes,
        seconds,
        frames_per_second: 0.0,
        bits_per_second: 0.0,
        frames,
        schedule,
        full_waits: tally.full_waits,
        thread_cpu_ns: tally.cpu_ns,
        stamps: (job.stamps != StampSource::None)
            .then(|| tally.departures.report(job.stamps, counters.accepted)),
        interrupted: matches!(tally.why, Some(Stopped::Asked)),
        notes: std::mem::take(notes),
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::BATCH;
    use super::super::template::Template;
    use super::*;
    use linux::port::{MAX_BATCH, Wait, open};
    use record::Rate;

    fn job(port: &str, text: &str, count: u64) -> Job {
        Job {
            port: port.into(),
            what: SendContent::Template(Template::parse(text, "t").unwrap()),
            rate: None,
            rate_text: "max".into(),
            on_the_wire: false,
            count: Some(count),
            duration_ms: 0,
            burst: 1,
            batch: BATCH,
            threads: 1,
            stamps: StampSource::None,
        }
    }

    fn closed(job: &Job) -> SendReport {
        let Sending { mut report, seen, .. } = send(job, &EngineControl::default()).unwrap();
        study::sending::close(&mut report, &seen);
        report
    }

    #[test]
    fn a_report_over_memory_closes() {
        let mut far = open("mem:job", &PortOptions::default()).unwrap();
        let report = std::thread::scope(|scope| {
            let from = far.receiver.as_mut().unwrap();
            let drain = scope.spawn(move || {
                let mut got = 0;
                while let Ok(batch) = from.receive(MAX_BATCH, Wait::For(Duration::from_secs(5))) {
                    got += batch.len();
                }
                got
            });
            let job = Job {
                rate: Some(Rate::MessagesPerSecond(2e5)),
                burst: 4,
                ..job("mem:job", "size {60,2100} / eth", 3000)
            };
            let report = closed(&job);
            assert_eq!(drain.join().unwrap(), 1500);
            report
        });
        let frames = &report.frames;
        assert_eq!(
            (frames.asked, frames.offered, frames.accepted, frames.transmitted),
            (3000, 3000, 1500, 1500)
        );
        assert_eq!(
            (frames.drops[0].name.as_str(), frames.drops[0].count, frames.residual),
            ("oversize", 1500, 0)
        );
        assert_eq!(report.schedule.lateness.as_ref().unwrap().count, 3000);
        assert_eq!(report.filled.len(), 2, "{:?}", report.filled);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<SendReport>(&text).unwrap().frames, report.frames);
    }

    /// Sends into memory that somebody empties; what the report says.
    fn sent(job: &Job) -> SendReport {
        let mut far = open(&job.port, &PortOptions::default()).unwrap();
        std::thread::scope(|scope| {
            let from = far.receiver.as_mut().unwrap();
            scope.spawn(move || while from.receive(MAX_BATCH, Wait::For(Duration::from_secs(5))).is_ok() {});
            closed(job)
        })
    }

    #[test]
    fn what_the_time_did_not_suffice_for_is_reported_as_not_sent() {
        let template = "size 60 / eth";
        // More than any machine makes in 20 ms; and fewer than the count, however fast it is.
        let fast = Job {
            rate: Some(Rate::MessagesPerSecond(1e9)),
            count: None,
            duration_ms: 20,
            ..job("mem:late", template, 0)
        };
        let slow = Job {
            rate: Some(Rate::MessagesPerSecond(1e3)),
            duration_ms: 20,
            ..job("mem:slow", template, 100_000)
        };
        let free = Job { duration_ms: 20, ..job("mem:free", template, 1 << 40) };
        for (job, asked, most) in
            [(fast, 20_000_000, 19_999_999), (slow, 100_000, 20), (free, 1 << 40, (1 << 40) - 1)]
        {
            let frames = sent(&job).frames;
            assert_eq!((frames.asked, frames.residual), (asked, 0), "{frames:?}");
            assert!((1..=most).contains(&frames.transmitted), "{frames:?}");
            let late = frames.drops.iter().find(|drop| drop.name == "time_over").expect("a shortfall");
            assert_eq!(late.count, asked - frames.transmitted, "{frames:?}");
        }
    }
}
