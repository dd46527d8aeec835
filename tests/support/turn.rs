//! Which tests of one program, and which cases of one test, run at the same time: those that measure one by one, after all others.
//!
//! A thread of its own for each test (`RUST_TEST_THREADS`, tests/all.sh) makes this the only place that decides.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// How many tests may run beside each other: each mostly waits.
const TOGETHER: usize = 6;

#[derive(Default)]
struct Turns {
    /// Tests that run beside each other.
    running: usize,
    /// Those that want to.
    waiting: usize,
    /// Whether a test is alone.
    is_alone: bool,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns { running: 0, waiting: 0, is_alone: false });
static ENDED: Condvar = Condvar::new();

/// The turn of a test. It ends when this goes.
pub struct Turn {
    is_alone: bool,
    began: Instant,
}

impl Turn {
    fn begin(is_alone: bool) -> Turn {
        Turn { is_alone, began: Instant::now() }
    }

    /// A line of the file that tests/all.sh names in `PATHLAB_TURNS`: seconds, how it ran, the test.
    fn note(&self) {
        let Some(path) = std::env::var_os("PATHLAB_TURNS") else { return };
        let how = if self.is_alone { "alone" } else { "beside" };
        let thread = std::thread::current();
        let line =
            format!("{:.1}\t{how}\t{}\n", self.began.elapsed().as_secs_f64(), thread.name().unwrap_or("?"));
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of turns can be written");
    }
}

fn turns() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(|broken| broken.into_inner())
}

fn until(ready: impl Fn(&Turns) -> bool) -> MutexGuard<'static, Turns> {
    ENDED.wait_while(turns(), |now| !ready(now)).unwrap_or_else(|broken| broken.into_inner())
}

/// What is measured here must have the machine to itself: two cores cannot be measured by two at once. So must what sends as fast as
/// it can, because all namespaces share each CPU's backlog (`net.core.netdev_max_backlog`), and what may not lose a single frame.
pub fn alone() -> Turn {
    until(|now| now.running + now.waiting == 0 && !now.is_alone).is_alone = true;
    Turn::begin(true)
}

/// What is counted here stays right however slowly it goes: it may run beside others of its kind, but beside no measurement. Such a
/// test mostly waits, for frames a few hundred a second and for labs that come and go.
pub fn beside() -> Turn {
    turns().waiting += 1;
    let mut now = until(|now| now.running < TOGETHER && !now.is_alone);
    now.waiting -= 1;
    now.running += 1;
    Turn::begin(false)
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.note();
        let mut now = turns();
        if self.is_alone {
            now.is_alone = false
        } else {
            now.running -= 1
        }
        drop(now);
        ENDED.notify_all();
    }
}

/// Plays the cases of one test, so many at once, begun in their order; what came of each, in that order. A case that panics fails the test
/// when the others have ended.
pub fn at_once<C: Sync, R: Send>(most: usize, cases: &[C], play: impl Fn(&C) -> R + Sync) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(vec![]));
    std::thread::scope(|scope| {
        for _ in 0..most {
            scope.spawn(|| {
                while let Some((number, case)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, cases.get(n)?)))
                {
                    let result = play(case);
                    results.lock().unwrap().push((number, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}
