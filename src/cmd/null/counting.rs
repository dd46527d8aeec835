//! The counters of a forwarder that is at work.
//!
//! **What.** With `--counters PATH` there is a unix socket. Whoever calls it gets one JSON document, the same as at the end
//! of `pathlab null --json`, with the counters so far, and the connection is closed. [`ask`] is the caller.
//!
//! **Why the way is asked.** Counters of a port belong to the thread that has it; some of the kernel's are cleared when they
//! are read. So nobody reads them from outside: a [`Desk`] holds a number that goes up with each question, the way looks at it
//! between two batches, and when it went up the way writes down what it counted. That is also why an answer is whole: it is
//! from between two batches, when every frame that came has been dealt with.
//!
//! **Price.** One load for each batch, of a number that nobody writes until somebody asks. An answer takes until the way looks
//! next: at once under load, up to [`super::PATIENCE`] when its receiver sleeps.

use super::{Document, Way};
use linux::sys::clock;
use record::{Problem, Result};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use switch::config::Listen;
use switch::stream::{Listener, Stream};

/// How long a way may take to answer, and a caller waits for the document. A way that waits for room in a queue looks
/// again within milliseconds.
const LIMIT: Duration = Duration::from_secs(2);
/// How often it is looked whether all have answered.
const LOOK_NS: u64 = 1_000_000;

/// Where a way shows how far it is.
#[derive(Debug, Default)]
pub struct Desk {
    /// The port that its frames come from.
    pub from: String,
    /// The port that they go to.
    pub to: String,
    /// Frames that went on.
    pub moved: AtomicU64,
    asked: AtomicU64,
    answer: Mutex<(u64, Way)>,
}

impl Desk {
    /// Of the way from one port to another.
    pub fn of(from: &str, to: &str) -> Desk {
        Desk { from: from.into(), to: to.into(), ..Desk::default() }
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

/// The socket that is called.
pub struct Counter(Listener);

impl Counter {
    /// Opens it.
    ///
    /// # Errors
    /// Input: there cannot be a socket at this path.
    pub fn open(path: PathBuf) -> Result<Counter> {
        Listener::open(&Listen::Unix(path), None).map(Counter)
    }

    /// Answers everybody who called meanwhile; `document` makes the answer of the ways. A caller who is gone, or ways that
    /// do not answer because they are ending, are not this program's trouble: the caller sees that nothing came.
    pub fn answer(&self, desks: &[Desk], document: impl Fn(Vec<Way>) -> Document) {
        while let Some(caller) = self.0.take() {
            let Some(ways) = ways(desks) else { continue };
            let Ok(text) = serde_json::to_vec(&document(ways)) else { continue };
            if let Stream::Unix(mut stream) = caller {
                // A fresh socket's buffer holds many such documents, so this is one write and cannot wait.
                let _ = stream.write_all(&text);
            }
        }
    }
}

/// What every way counted, asked now; none when one of them does not answer.
fn ways(desks: &[Desk]) -> Option<Vec<Way>> {
    let questions: Vec<u64> = desks.iter().map(Desk::ask).collect();
    let until = clock::monotonic_ns() + LIMIT.as_nanos() as u64;
    loop {
        let answers = desks.iter().zip(&questions).map(|(desk, &question)| desk.take(question));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn document(ways: Vec<Way>) -> Document {
        Document { schema: "x".into(), duration_ns: 7, spin: false, ports: vec![], ways }
    }

    #[test]
    fn each_caller_gets_what_was_counted_by_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        let (desks, stop) = ([Desk::default(), Desk::default()], AtomicBool::new(false));
        let counter = Counter::open(path.clone()).unwrap();
        std::thread::scope(|scope| {
            for (number, desk) in desks.iter().enumerate() {
                let stop = &stop;
                scope.spawn(move || {
                    let (mut answered, mut received) = (0, 0);
                    while !stop.load(Relaxed) {
                        received += 1;
                        desk.look(&mut answered, || Way { received, full: number as u64, ..Way::default() });
                        std::thread::yield_now();
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    counter.answer(&desks, document);
                    clock::sleep_until(clock::monotonic_ns() + LOOK_NS);
                }
            });
            let mut before = 0;
            for _ in 0..20 {
                let told = ask(&path).unwrap();
                assert_eq!((told.duration_ns, told.ways.len(), told.ways[1].full), (7, 2, 1));
                assert!(told.ways[0].received > before, "{} after {before}", told.ways[0].received);
                before = told.ways[0].received;
            }
            stop.store(true, Relaxed);
        });
        drop(counter);
        let words = ask(&path).unwrap_err().to_string();
        assert!(words.contains("does not tell its counters"), "{words}");
        assert!(!path.exists(), "the socket is gone with its program");
    }
}
