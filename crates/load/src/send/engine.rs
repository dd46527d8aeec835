//! The loop: render what is due, hand it to the port, wait for the next.
//!
//! **What.** One [`run`] is one sender on one thread: a [`Source`] puts frames into a batch, a transmitter takes it. It
//! never drops a frame by itself: a full port is waited for, a refused frame is counted by its port with a name, and
//! what was not offered in the end is said.
//!
//! **Why.** `sendmmsg` in a loop that ignores its return value is how generators come to claim frames that never left.
//!
//! **Price.** Frames of a batch leave together: at high rates the first frame of a batch waits for nothing, the last one
//! for the system call; the lateness histogram has it.

use super::build::Moment;
use super::departures::Departures;
use super::pace::Pace;
use crate::traffic::schedule::{self, Share};
use linux::port::{ALL, Frames, Hand, PortError, Transmitter};
use linux::sys::clock;
use record::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How long a full port is given before it is asked again.
const FULL_WAIT: Duration = Duration::from_micros(200);
/// How long frames that the port has accepted may take to leave at the end.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// A link that stays down is given up after so many looks, a hundredth of a second apart.
const DOWN_LOOKS: u32 = 500;

/// Where frames come from.
pub trait Source: Send + Sync {
    /// The longest frame.
    fn longest(&self) -> usize;
    /// Puts what never changes into every place of a batch, which is then empty again.
    fn prepare(&self, frames: &mut Frames);
    /// Adds frame `n` to a prepared batch; false when there is no room, or no such frame.
    fn add(&self, frames: &mut Frames, n: u64, moment: Moment) -> bool;
}

/// What others may look at and say while it runs.
#[derive(Debug, Default)]
pub struct EngineControl {
    /// Set to end it in order.
    pub stop: AtomicBool,
    /// Frames dealt with so far.
    pub sent: AtomicU64,
}

/// What one sender did.
#[derive(Debug, Default)]
pub struct Tally {
    /// Frames that the port dealt with (accepted or refused with a name).
    pub offered: u64,
    /// When the first was offered.
    pub begun_ns: u64,
    /// When the last was dealt with.
    pub ended_ns: u64,
    /// How late frames were offered against their plan.
    pub lateness: Histogram,
    /// How often the port was full.
    pub full_waits: u64,
    /// Frames that the port accepted and had not sent when it was closed.
    pub under_way: u64,
    /// CPU time of this thread.
    pub cpu_ns: u64,
    /// Why it ended before its time.
    pub why: Option<Stopped>,
    /// The link went down so often.
    pub downs: u64,
    /// When frames left, if the port tells.
    pub departures: Departures,
}

/// Why a sender ended early.
#[derive(Debug)]
pub enum Stopped {
    /// It was told to.
    Asked,
    /// The time was over.
    Time,
    /// The port cannot go on.
    Port(PortError),
}

impl Tally {
    /// Adds what another thread did at the same time.
    pub fn merge(&mut self, other: Tally) {
        self.offered += other.offered;
        self.begun_ns = schedule::earlier(self.begun_ns, other.begun_ns);
        self.ended_ns = self.ended_ns.max(other.ended_ns);
        self.lateness.merge(&other.lateness);
        self.full_waits += other.full_waits;
        self.under_way += other.under_way;
        self.cpu_ns += other.cpu_ns;
        self.downs += other.downs;
        self.departures.merge(&other.departures);
        self.why = self.why.take().or(other.why);
    }
}

/// Sends by the pace until all frames are dealt with, the time is over, or the port cannot go on. Frame `k` of this
/// sender is frame `share.index + k × share.of` of all.
pub fn run(
    to: &mut dyn Transmitter,
    source: &dyn Source,
    pace: &Pace,
    share: Share,
    batch: usize,
    watch: &EngineControl,
) -> Tally {
    clock::precise_timers();
    let cpu = clock::thread_cpu_ns();
    let mut frames = Frames::new(batch, source.longest());
    source.prepare(&mut frames);
    let mut tally = Tally::default();
    let utc_offset = clock::realtime_ns().wrapping_sub(clock::monotonic_ns());
    while pace.total().is_none_or(|total| tally.offered < total) {
        let Some(now) = next(pace, tally.offered, watch) else {
            tally.why = Some(Stopped::Asked);
            break;
        };
        let due = pace.due(now, tally.offered, batch as u64);
        if due == tally.offered || pace.is_over(now) {
            tally.why = Some(Stopped::Time);
            break;
        }
        frames.clear();
        for k in tally.offered..due {
            let planned_ns = pace.planned(k).unwrap_or(now);
            let moment = Moment { planned_ns, utc_ns: planned_ns.wrapping_add(utc_offset) };
            let n = u64::from(share.index) + k * u64::from(share.of);
            if !source.add(&mut frames, n, moment) {
                break;
            }
        }
        if frames.is_empty() {
            break;
        }
        let handed = hand_over(to, &mut frames, pace, &mut tally, watch);
        tally.departures.take(to, pace, utc_offset);
        if let Err(why) = handed {
            tally.why = Some(why);
            break;
        }
    }
    finish(to, &mut tally);
    tally.departures.take_last(to, pace, utc_offset);
    tally.cpu_ns = clock::thread_cpu_ns() - cpu;
    tally
}

/// Waits for the next frame; the time it then is, none when it shall stop.
#[inline]
fn next(pace: &Pace, sent: u64, watch: &EngineControl) -> Option<u64> {
    match pace.planned(sent) {
        Some(at) => {
            schedule::wait_until(at, || watch.stop.load(Relaxed)).filter(|_| !watch.stop.load(Relaxed))
        }
        None => (!watch.stop.load(Relaxed)).then(clock::monotonic_ns),
    }
}

/// Gives a batch to the port until every frame is dealt with.
fn hand_over(
    to: &mut dyn Transmitter,
    frames: &mut Frames,
    pace: &Pace,
    tally: &mut Tally,
    watch: &EngineControl,
) -> Result<(), Stopped> {
    let mut done = 0;
    let mut looks = 0;
    let mut batch = frames.batch();
    while done < batch.len() {
        let now = clock::monotonic_ns();
        if tally.begun_ns == 0 {
            tally.begun_ns = now;
        }
        let given = &ALL[done..batch.len()];
        let sent = match to.transmit(&mut batch, given, Hand::Copy) {
            Ok(sent) => sent,
            Err(PortError::Down) => {
                looks += 1;
                tally.downs += u64::from(looks == 1);
                if looks > DOWN_LOOKS {
                    return Err(Stopped::Port(PortError::Down));
                }
                std::thread::sleep(Duration::from_millis(10));
                Default::default()
            }
            Err(error) => return Err(Stopped::Port(error)),
        };
        for k in tally.offered..tally.offered + sent.dealt as u64 {
            if let Some(at) = pace.planned(k) {
                tally.lateness.record(now.saturating_sub(at).max(1));
            }
        }
        done += sent.dealt;
        tally.offered += sent.dealt as u64;
        watch.sent.fetch_add(sent.dealt as u64, Relaxed);
        if sent.dealt > 0 {
            tally.ended_ns = clock::monotonic_ns();
        }
        if done < batch.len() {
            tally.full_waits += 1;
            if watch.stop.load(Relaxed) {
                return Err(Stopped::Asked);
            }
            if pace.is_over(now) {
                return Err(Stopped::Time);
            }
            match to.flush(FULL_WAIT) {
                Ok(_) if sent.dealt == 0 => std::thread::yield_now(),
                Ok(_) | Err(PortError::Down) => {}
                Err(error) => return Err(Stopped::Port(error)),
            }
        }
    }
    Ok(())
}

/// Waits until what the port has accepted has left.
fn finish(to: &mut dyn Transmitter, tally: &mut Tally) {
    let until = clock::monotonic_ns() + LAST_WAIT.as_nanos() as u64;
    loop {
        match to.flush(Duration::from_millis(100)) {
            Ok(0) => return tally.under_way = 0,
            Ok(left) => tally.under_way = left as u64,
            Err(_) => return,
        }
        if clock::monotonic_ns() >= until {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::build::build;
    use super::super::program::CompiledTemplate;
    use super::super::template::Template;
    use super::*;
    use crate::traffic::schedule::OpenLoopPlan;
    use linux::port::{MAX_BATCH, Port, PortOptions, Receiver, Wait, open};
    use std::sync::Arc;

    fn wire(name: &str, settings: &str) -> (Port, Port) {
        let uri = format!("mem:{name}{settings}");
        (open(&uri, &PortOptions::default()).unwrap(), open(&uri, &PortOptions::default()).unwrap())
    }

    fn drain(from: &mut dyn Receiver) -> Vec<Vec<u8>> {
        let mut all = vec![];
        while let Ok(batch) = from.receive(MAX_BATCH, Wait::For(Duration::from_secs(5))) {
            all.extend((0..batch.len()).map(|i| batch.bytes(i).to_vec()));
        }
        all
    }

    /// Everything that was asked for arrives, in order and equal to what the slow twin builds, over a wire that is
    /// often full.
    #[test]
    fn every_frame_arrives_once_whatever_the_pace() {
        let template =
            Template::parse("size 60..70 / flows 7 / eth / ip src=10.0.0.1..10.0.0.7 / udp", "t").unwrap();
        let program = CompiledTemplate::new(&template);
        let now = clock::monotonic_ns();
        let plan = OpenLoopPlan::new(now, 1e6, 0, Some(700));
        let offsets = Arc::new((0..100).map(|i| i * 1000).collect());
        let paces = [
            Pace::Max { total: Some(2000), until_ns: u64::MAX },
            Pace::Even { plan, burst: 3, total: 2000 },
            Pace::Times {
                start_ns: now,
                offsets,
                round_ns: 100_000,
                total: 2000,
                speed: 2.0,
                until_ns: u64::MAX,
            },
        ];
        for (i, pace) in paces.iter().enumerate() {
            let (a, mut b) = wire(&format!("pace{i}"), "?frames=40");
            let source = program.clone();
            let tally = std::thread::scope(|scope| {
                let sender = scope.spawn(move || {
                    let mut to = a.transmitter.unwrap();
                    run(to.as_mut(), &source, pace, Share::ALL, 64, &EngineControl::default())
                });
                let got = drain(b.receiver.as_mut().unwrap().as_mut());
                assert_eq!(got.len(), 2000);
                for (n, frame) in got.iter().enumerate() {
                    assert_eq!(*frame, build(&template, n as u64, Moment::default()), "frame {n}");
                }
                sender.join().unwrap()
            });
            assert_eq!((tally.offered, tally.why.is_none()), (2000, true));
            let timed = if i == 0 { 0 } else { 2000 };
            assert_eq!(tally.lateness.count(), timed, "pace {i}");
        }
    }

    #[test]
    fn threads_share_the_frames_and_together_send_each_once() {
        let template = Template::parse("eth / ip / udp / stamp", "t").unwrap();
        let program = CompiledTemplate::new(&template);
        let mut numbers = vec![];
        for index in 0..3 {
            let (mut a, mut b) = wire(&format!("share{index}"), "");
            let share = Share { index, of: 3 };
            let pace = Pace::Max { total: share.count(Some(100)), until_ns: u64::MAX };
            let to = a.transmitter.as_mut().unwrap().as_mut();
            run(to, &program, &pace, share, 64, &EngineControl::default());
            drop(a);
            let got = drain(b.receiver.as_mut().unwrap().as_mut());
            numbers
                .extend(got.iter().map(|frame| wire::message::Message::read(&frame[42..]).unwrap().sequence));
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn refused_frames_and_a_closed_end_are_not_forgotten() {
        let template = Template::parse("size {60,3000} / eth", "t").unwrap();
        let (mut a, b) = wire("refuse", "");
        let to = a.transmitter.as_mut().unwrap().as_mut();
        let pace = Pace::Max { total: Some(10), until_ns: u64::MAX };
        let source = CompiledTemplate::new(&template);
        let tally = run(to, &source, &pace, Share::ALL, 4, &EngineControl::default());
        let counters = to.counters();
        assert_eq!((tally.offered, counters.accepted), (10, 5));
        assert_eq!(counters.drops.iter().find(|drop| drop.name == "oversize").unwrap().count, 5);
        drop(b);
        let tally = run(to, &source, &pace, Share::ALL, 4, &EngineControl::default());
        assert!(matches!(tally.why, Some(Stopped::Port(PortError::Ended))));
        assert_eq!(tally.offered, 0);
    }

    #[test]
    fn a_stop_and_the_end_of_the_time_end_it() {
        let template = Template::parse("eth", "t").unwrap();
        let source = CompiledTemplate::new(&template);
        let (mut a, _b) = wire("stop", "?frames=2");
        let to = a.transmitter.as_mut().unwrap().as_mut();
        let pace = Pace::Max { total: Some(1000), until_ns: clock::monotonic_ns() + 30_000_000 };
        let tally = run(to, &source, &pace, Share::ALL, 64, &EngineControl::default());
        assert_eq!((tally.offered, matches!(tally.why, Some(Stopped::Time))), (2, true), "the wire is full");
        assert!(tally.full_waits > 0);
        // A plan that no machine can keep ends with its time, too, and the port is never full.
        let (mut a, b) = wire("over", "?frames=512");
        let plan = OpenLoopPlan::new(clock::monotonic_ns(), 1e9, 20, None);
        let pace = Pace::Even { plan, burst: 1, total: plan.total() };
        let tally = std::thread::scope(|scope| {
            let mut far = b;
            scope.spawn(move || drain(far.receiver.as_mut().unwrap().as_mut()));
            let mut to = a.transmitter.take().unwrap();
            run(to.as_mut(), &source, &pace, Share::ALL, 64, &EngineControl::default())
        });
        assert!(matches!(tally.why, Some(Stopped::Time)), "{tally:?}");
        assert!(tally.offered > 0 && tally.offered < plan.total(), "{tally:?}");
        let (mut a, _b) = wire("asked", "");
        let to = a.transmitter.as_mut().unwrap().as_mut();
        let pace = Pace::Max { total: Some(1000), until_ns: u64::MAX };
        let watch = EngineControl { stop: AtomicBool::new(true), ..EngineControl::default() };
        let tally = run(to, &source, &pace, Share::ALL, 64, &watch);
        assert!(matches!(tally.why, Some(Stopped::Asked)));
    }
}
