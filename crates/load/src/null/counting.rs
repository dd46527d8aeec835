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

use linux::sys::clock;
use record::{PlaceDrop, PortSetting, Problem, Result};
use serde::{Deserialize, Serialize};
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

/// What `pathlab null --json` prints at the end, and callers get meanwhile.
#[derive(Debug, Serialize, Deserialize)]
pub struct NullDocument {
    /// `pathlab/null/1`.
    pub schema: String,
    /// How long it has forwarded.
    pub duration_ns: u64,
    /// It never sleeps.
    pub spin: bool,
    /// The two ports.
    pub ports: Vec<Opened>,
    /// Each direction.
    pub ways: Vec<NullDirection>,
}

/// A port and what took effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Opened {
    /// Its name as it was given.
    pub uri: String,
    /// What took effect.
    pub settings: Vec<PortSetting>,
}

/// One direction.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct NullDirection {
    /// Where its frames came from.
    pub from: String,
    /// Where they went.
    pub to: String,
    /// Frames received.
    pub received: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Frames that the other port accepted.
    pub sent: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// A million sent frames a second, over the whole time.
    pub sent_mfps: f64,
    /// How often this program copied a frame, by received frame; the kernel's own copies are not among them.
    pub copies_per_frame: f64,
    /// CPU time of the thread, the kernel's work in its system calls included, by received frame.
    pub cpu_ns_per_frame: f64,
    /// Frames that were received and dropped because the transmitter was full.
    pub full: u64,
    /// Frames that were in hand when the transmitter failed: its link was down, its interface gone, its other end closed.
    pub failed: u64,
    /// Frames whose checksum was completed on the way, in or out.
    pub completed_checksums: u64,
    /// Pieces made of super-frames.
    pub segments: u64,
    /// How often a link went down.
    pub link_downs: u64,
    /// Frames that were lost before they were received, by place and reason.
    pub lost_before: Vec<PlaceDrop>,
    /// Frames that the other port refused or lost, by place and reason.
    pub lost_after: Vec<PlaceDrop>,
}

impl NullDirection {
    /// With the rate of its frames over this time.
    #[must_use]
    pub fn over(mut self, duration_ns: u64) -> Self {
        self.sent_mfps = self.sent as f64 * 1e3 / duration_ns.max(1) as f64;
        self
    }
}

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
    answer: Mutex<(u64, NullDirection)>,
}

impl RunningCounters {
    /// Of the way from one port to another.
    pub fn of(from: &str, to: &str) -> RunningCounters {
        RunningCounters { from: from.into(), to: to.into(), ..RunningCounters::default() }
    }

    /// The way looks here between two batches. `answered` is the number of the last question that it answered.
    #[inline]
    pub fn look(&self, answered: &mut u64, count: impl FnOnce() -> NullDirection) {
        let asked = self.asked.load(Relaxed);
        if asked != *answered {
            *answered = asked;
            *self.lock() = (asked, count());
        }
    }

    /// The way has ended: this answers every question that is still to come.
    pub fn leave(&self, way: NullDirection) {
        *self.lock() = (u64::MAX, way);
    }

    /// A new question; its number.
    fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Relaxed) + 1
    }

    /// The answer to this question or a later one, if it is there.
    fn take(&self, question: u64) -> Option<NullDirection> {
        let answer = self.lock();
        let named = || NullDirection { from: self.from.clone(), to: self.to.clone(), ..answer.1.clone() };
        (answer.0 >= question).then(named)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (u64, NullDirection)> {
        // What a panicking way left is whole: it is written by one assignment.
        self.answer.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// What every way counted, asked now; none when one of them does not answer.
pub fn ways(running: &[RunningCounters]) -> Option<Vec<NullDirection>> {
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
pub fn ask(path: &Path) -> Result<NullDocument> {
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
