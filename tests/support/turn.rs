//! Which tests of one program, and which cases of one test, run at the same time: those that measure one by one, after all others.
//!
//! A thread of its own for each test (`RUST_TEST_THREADS`, tests/all.sh) makes this the only place that decides.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// What a test may run beside: others of its kind only. Those of a kind begin when no test of a kind before it waits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Beside,
    Loud,
    Alone,
}

impl Kind {
    /// How many may run at the same time, and the word of `PATHLAB_TURNS`.
    fn row(self) -> (usize, &'static str) {
        match self {
            Kind::Beside => (8, "beside"),
            Kind::Loud => (4, "loud"),
            Kind::Alone => (1, "alone"),
        }
    }
}

/// A long test that begins last of its kind runs while nothing else does, so the long ones begin first.
#[derive(Clone, Copy)]
enum Length {
    Long,
    Short,
}

#[derive(Default)]
struct Turns {
    /// Tests that run.
    running: usize,
    /// Their kind.
    kind: Kind,
    /// Those of each kind that want to: the long ones, and the others.
    waiting: [[usize; 2]; 3],
}

static TURNS: Mutex<Turns> = Mutex::new(Turns { running: 0, kind: Kind::Beside, waiting: [[0; 2]; 3] });
static ENDED: Condvar = Condvar::new();
/// When the first test was begun.
static BEGAN: OnceLock<Instant> = OnceLock::new();
/// How long the harness takes at most to begin all tests that it begins at once. Until then nobody knows which of them are first.
const BEGUN: Duration = Duration::from_millis(300);

/// The turn of a test. It ends when this goes.
pub struct Turn {
    kind: Kind,
    began: Instant,
}

impl Turn {
    fn begin(kind: Kind, length: Length) -> Turn {
        let (row, column) = (kind as usize, length as usize);
        turns().waiting[row][column] += 1;
        std::thread::sleep(BEGUN.saturating_sub(BEGAN.get_or_init(Instant::now).elapsed()));
        let is_next = |now: &Turns| {
            let before = now.waiting[..row].iter().flatten().chain(&now.waiting[row][..column]);
            let is_first = before.sum::<usize>() == 0;
            is_first && (now.running == 0 || now.kind == kind) && now.running < kind.row().0
        };
        let now = ENDED.wait_while(turns(), |now| !is_next(now));
        let mut now = now.unwrap_or_else(|broken| broken.into_inner());
        now.waiting[row][column] -= 1;
        (now.running, now.kind) = (now.running + 1, kind);
        Turn { kind, began: Instant::now() }
    }

    /// A line of the file that tests/all.sh names in `PATHLAB_TURNS`: seconds, how it ran, the test.
    fn note(&self) {
        let Some(path) = std::env::var_os("PATHLAB_TURNS") else { return };
        let (thread, how) = (std::thread::current(), self.kind.row().1);
        let line =
            format!("{:.1}\t{how}\t{}\n", self.began.elapsed().as_secs_f64(), thread.name().unwrap_or("?"));
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of turns can be written");
    }
}

fn turns() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// What is counted here stays right however slowly it goes: it may run beside others of its kind, but beside no measurement. Such a
/// test mostly waits, for frames a few hundred a second and for labs that come and go.
pub fn beside() -> Turn {
    Turn::begin(Kind::Beside, Length::Short)
}

/// The same for one of the longest (`make test` prints them).
pub fn beside_for_long() -> Turn {
    Turn::begin(Kind::Beside, Length::Long)
}

/// What sends as fast as it can, while nothing that is asked of it depends on how fast that is or on what was lost: a benchmark that
/// only has to run to its end.
pub fn loud() -> Turn {
    Turn::begin(Kind::Loud, Length::Short)
}

/// The same for one of the longest (`make test` prints them).
pub fn loud_for_long() -> Turn {
    Turn::begin(Kind::Loud, Length::Long)
}

/// What is measured here must have the machine to itself: two cores cannot be measured by two at once. So must what sends as fast as
/// it can and may lose no frame, because all namespaces share each CPU's backlog (`net.core.netdev_max_backlog`).
pub fn alone() -> Turn {
    Turn::begin(Kind::Alone, Length::Short)
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.note();
        turns().running -= 1;
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
