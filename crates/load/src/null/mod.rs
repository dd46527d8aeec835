//! The smallest forwarder: every frame of one port goes to the other, untouched, both ways.
//!
//! **What.** One thread for each way. A thread of its own lets each way sleep on its own receiver, so that an idle way costs
//! nothing and a busy one is not held up by looking at the other; the two ends of a port share no lock.
//!
//! **Why.** What a forwarder costs that does nothing is the floor under every switch, and the difference between two
//! kinds of ports is what the ports cost.
//!
//! **Price.** A frame that the transmitter has no room for is dropped and counted (`full`): a forwarder that waited would
//! only move the loss to its receiver.

mod counting;

pub use counting::{LIMIT, NullDirection, NullDocument, Opened, RunningCounters, ask, ways};

use crate::traffic::threads::joined;
use linux::port::{
    Area, Port, PortError, ReceiveCounters, Receiver, TransmitCounters, Transmitter, Wait, areas, forward,
};
use linux::sys::clock;
use record::{Problem, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long a sleeping way waits before it looks whether it is to end.
pub const PATIENCE: Duration = Duration::from_millis(50);
/// How long frames that are still under way at the end are waited for.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// Memory for both ports, if both are of a kind that can share it.
///
/// # Errors
/// As [`linux::port::areas`].
pub fn shared_area(uris: &[&str]) -> Result<Option<Arc<Area>>> {
    Ok(areas(uris)?.into_iter().next().flatten())
}

/// Forwards from the first port to the second, and back unless `only_there`, until `watch` returns or a port breaks off;
/// what each way did, and the first trouble. `watch` gets the counters so far, and a question whether a way has ended.
pub fn forward_all(
    left: &mut Port,
    right: &mut Port,
    only_there: bool,
    wait: Wait,
    watch: impl FnOnce(&[RunningCounters], &dyn Fn() -> bool),
) -> (Vec<NullDirection>, Option<Problem>) {
    let (mut pairs, mut running, stop) = (vec![], vec![], &AtomicBool::new(false));
    if let (Some(from), Some(to)) = (left.receiver.as_mut(), right.transmitter.as_mut()) {
        running.push(RunningCounters::of(&left.uri, &right.uri));
        pairs.push((from, to));
    }
    if let (false, Some(from), Some(to)) = (only_there, right.receiver.as_mut(), left.transmitter.as_mut()) {
        running.push(RunningCounters::of(&right.uri, &left.uri));
        pairs.push((from, to));
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .into_iter()
            .zip(&running)
            .map(|((from, to), shown)| {
                scope.spawn(move || one_way(from.as_mut(), to.as_mut(), wait, stop, shown))
            })
            .collect();
        watch(&running, &|| threads.iter().any(|thread| thread.is_finished()));
        stop.store(true, Relaxed);
        let (mut ways, mut problem) = (vec![], None);
        for thread in threads {
            let ended = joined(thread);
            if let Some(error) = ended.error {
                let at = format!("{} -> {}", ended.way.from, ended.way.to);
                problem.get_or_insert(Problem::from(error).at(at));
            }
            ways.push(ended.way);
        }
        (ways, problem)
    })
}

/// How a way ended.
pub struct Ended {
    /// What it did.
    pub way: NullDirection,
    /// Why it ended before it was told to, if so.
    pub error: Option<PortError>,
}

/// Forwards until told to stop, or the frames end. `running` shows how far it is.
pub fn one_way(
    from: &mut dyn Receiver,
    to: &mut dyn Transmitter,
    wait: Wait,
    stop: &AtomicBool,
    running: &RunningCounters,
) -> Ended {
    let (cpu, mut link_downs, mut full, mut error) = (clock::thread_cpu_ns(), 0, 0, None);
    let (before, mut answered) = ((from.counters(), to.counters()), 0);
    while !stop.load(Relaxed) {
        match forward(from, to, wait) {
            Ok(batch) if batch.came == 0 => {}
            Ok(batch) => {
                full += batch.full as u64;
                running.moved.fetch_add(batch.sent() as u64, Relaxed);
            }
            Err(broken) => match broken.error {
                PortError::Down => link_downs += 1,
                PortError::Ended => break,
                other => {
                    error = Some(other);
                    break;
                }
            },
        }
        running.look(&mut answered, || {
            let counted = (from.counters(), to.counters());
            NullDirection { link_downs, ..way(&before, &counted, full, clock::thread_cpu_ns() - cpu) }
        });
    }
    let _ = to.flush(LAST_FLUSH);
    let way = way(&before, &(from.counters(), to.counters()), full, clock::thread_cpu_ns() - cpu);
    let way = NullDirection { from: running.from.clone(), to: running.to.clone(), link_downs, ..way };
    running.leave(way.clone());
    Ended { way, error }
}

type Both = (ReceiveCounters, TransmitCounters);

fn way(before: &Both, after: &Both, full: u64, cpu_ns: u64) -> NullDirection {
    let (received, offered) = (after.0.frames - before.0.frames, after.1.offered - before.1.offered);
    let copies = after.0.copied - before.0.copied + after.1.copied - before.1.copied;
    let each = |value: u64| if received == 0 { 0.0 } else { value as f64 / received as f64 };
    NullDirection {
        received,
        received_bytes: after.0.bytes - before.0.bytes,
        sent: after.1.accepted - before.1.accepted,
        sent_bytes: after.1.bytes - before.1.bytes,
        copies_per_frame: each(copies),
        cpu_ns_per_frame: each(cpu_ns),
        full,
        // What came and was neither dropped nor dealt with went down with a transmitter that failed.
        failed: received.saturating_sub(offered + full),
        completed_checksums: completed(after) - completed(before),
        segments: after.1.segments - before.1.segments,
        lost_before: after.0.drops.clone(),
        lost_after: after.1.drops.clone(),
        ..NullDirection::default()
    }
}

fn completed(counters: &Both) -> u64 {
    let inward = counters.0.extra.iter().filter(|(name, _)| *name == "completed_checksums");
    counters.1.completed_checksums + inward.map(|(_, count)| count).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::port::{Frames, Hand, Meta, PortOptions, open};

    #[test]
    fn what_is_not_sent_is_accounted_for() {
        let wish = PortOptions::default();
        let [mut a, mut b, mut c, d] = ["mem:null1", "mem:null1", "mem:null2?frames=10", "mem:null2"]
            .map(|uri| open(uri, &wish).unwrap());
        let mut frames = Frames::new(100, 64);
        (0..100).for_each(|_| assert!(frames.push(&[7; 60], Meta::default())));
        let mut batch = frames.batch();
        let all = batch.all();
        a.transmitter.as_mut().unwrap().transmit(&mut batch, all, Hand::Copy).unwrap();
        drop(a);
        let (stop, running) = (AtomicBool::new(false), RunningCounters::default());
        let (from, to) = (b.receiver.as_mut().unwrap(), c.transmitter.as_mut().unwrap());
        let ended = one_way(from.as_mut(), to.as_mut(), Wait::Poll, &stop, &running);
        assert!(ended.error.is_none(), "the end of the frames is no error");
        let way = ended.way.over(1_000_000_000);
        assert_eq!((way.received, way.sent, way.full, running.moved.load(Relaxed)), (100, 10, 90, 10));
        assert_eq!((way.sent_bytes, way.copies_per_frame, way.sent_mfps), (600, 0.1, 1e-5));
        drop(d);
    }

    #[test]
    fn frames_in_hand_when_the_other_port_ends_are_counted() {
        let wish = PortOptions::default();
        let [mut a, mut b, mut c, d] =
            ["mem:null3", "mem:null3", "mem:null4", "mem:null4"].map(|uri| open(uri, &wish).unwrap());
        let mut frames = Frames::new(100, 64);
        (0..100).for_each(|_| assert!(frames.push(&[7; 60], Meta::default())));
        let mut batch = frames.batch();
        let all = batch.all();
        a.transmitter.as_mut().unwrap().transmit(&mut batch, all, Hand::Copy).unwrap();
        drop(d);
        let (stop, running) = (AtomicBool::new(false), RunningCounters::default());
        let (from, to) = (b.receiver.as_mut().unwrap(), c.transmitter.as_mut().unwrap());
        let way = one_way(from.as_mut(), to.as_mut(), Wait::Poll, &stop, &running).way;
        assert_eq!((way.received, way.sent, way.full, way.failed), (100, 0, 0, 100));
    }

    #[test]
    fn memory_is_shared_by_ports_that_can() {
        assert!(shared_area(&["mem:x", "fault:mem:y?lose=1%"]).unwrap().is_some());
        assert!(shared_area(&["mem:x", "tap:y"]).unwrap().is_none());
    }
}
