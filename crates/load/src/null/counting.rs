//! The counters of a forwarder that is at work.
//!
//! **What.** With `--counters PATH` there is a unix socket. Whoever calls it gets one JSON document, the same as at the end
//! of `pathlab null --json`, with the counters so far, and the connection is closed. [`ask`] is the caller.
//!
//! **Why the way is asked.** Counters of a port belong to the thread that has it; some of the kernel's are cleared when they
//! are read. So nobody reads them from outside: [`RunningCounters`] holds a number that goes up with each question, the way
//! looks at it between two batches, and when it went up the way writes down what it counted. That is also why an answer is
//! whole: it is from between two batches, when every frame that came has been dealt with.
//!
//! **Price.** One load for each batch, of a number that nobody writes until somebody asks. An answer takes until the way
//! looks next: at once under load, up to [`super::PATIENCE`] when its receiver sleeps.

use super::{Document, Way};
use linux::sys::clock;
use record::{Problem, Result};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How long a way may take to answer, and a caller waits for the document. A way that waits for room in a queue looks
/// again within milliseconds.
pub const LIMIT: Duration = Duration::from_secs(2);
/// How often it is looked whether all have answered.
const LOOK_NS: u64 = 1_000_000;

/// Where a way shows how far it is.
#[derive(Debug, Default)]
pub struct RunningCounters {
    /// The port that its frames come from.
    pub from: String,
    /// The port that they go to.
    pub to: String,
    /// Frames that went on.
    pub moved: AtomicU64,
    asked: AtomicU64,
    answer: Mutex<(u64, Way)>,
}

impl RunningCounters {
    /// Of the way from one port to another.
    pub fn of(from: &str, to: &str) -> RunningCounters {
        RunningCounters { from: from.into(), to: to.into(), ..RunningCounters::default() }
    }

    /// The way looks here between two batches. `answered` is the number of the last question that it answered.
    #[inline]
    pub fn look(&self, answered: &mut u64, count: impl FnOnce() -> Way) {
        let asked = self.asked.load(Relaxed);
        if asked != *answered {
            *answered = asked;
            *self.lock() = (asked, count());
        }
    }

    /// The way has ended: this answers every question that is still to come.
    pub fn leave(&self, way: Way) {
        *self.lock() = (u64::MAX, way);
    }

    /// A new question; its number.
    fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Relaxed) + 1
    }

    /// The answer to this question or a later one, if it is there.
    fn take(&self, question: u64) -> Option<Way> {
        let answer = self.lock();
        let named = || Way { from: self.from.clone(), to: self.to.clone(), ..answer.1.clone() };
        (answer.0 >= question).then(named)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (u64, Way)> {
        // What a panicking way left is whole: it is written by one assignment.
        self.answer.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// What every way counted, asked now; none when one of them does not answer.
pub fn ways(running: &[RunningCounters]) -> Option<Vec<Way>> {
    let questions: Vec<u64> = running.iter().map(RunningCounters::ask).collect();
    let until = clock::monotonic_ns() + LIMIT.as_nanos() as u64;
    loop {
        let answers = running.iter().zip(&questions).map(|(one, &question)| one.take(question));
        if let Some(all) = answers.collect() {
            return Some(all);
        }
        let now = clock::monotonic_ns();
        if now >= until || linux::sys::process::interrupted() {
            return None;
        }
        clock::sleep_until(now + LOOK_NS);
    }
}

/// Asks a forwarder at its socket.
///
/// # Errors
/// Host: it does not answer, or not with its counters.
pub fn ask(path: &Path) -> Result<Document> {
    let told = |what: String| Problem::host(what).at(format!("unix:{}", path.display()));
    let mut text = vec![];
    let mut call = || -> std::io::Result<()> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.read_to_end(&mut text).map(drop)
    };
    call().map_err(|e| told(format!("the forwarder does not tell its counters: {e}")))?;
    serde_json::from_slice(&text)
        .map_err(|e| told(format!("the forwarder's answer is not a document of counters: {e}")))
}
