//! The socket at which a forwarder answers whoever calls with its counters so far ([`load::null::ask`] is the caller).

use load::null::{NullDirection, NullDocument, RunningCounters, ways};
use record::Result;
use std::io::Write;
use std::path::PathBuf;
use switch::config::Listen;
use switch::stream::Listener;

/// The socket that is called.
pub struct CounterSocket(Listener);

impl CounterSocket {
    /// Opens it.
    ///
    /// # Errors
    /// Input: there cannot be a socket at this path.
    pub fn open(path: PathBuf) -> Result<CounterSocket> {
        Listener::open(&Listen::Unix(path), None).map(CounterSocket)
    }

    /// Answers everybody who called meanwhile; `document` makes the answer of the ways. A caller who is gone, or ways that
    /// do not answer because they are ending, are not this program's trouble: the caller sees that nothing came.
    pub fn answer(&self, running: &[RunningCounters], document: impl Fn(Vec<NullDirection>) -> NullDocument) {
        while let Some(mut caller) = self.0.take() {
            let Some(ways) = ways(running) else { continue };
            let Ok(text) = serde_json::to_vec(&document(ways)) else { continue };
            // A fresh socket's buffer holds many such documents, so this is one write and cannot wait.
            let _ = caller.write_all(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::sys::clock;
    use load::null::ask;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    fn document(ways: Vec<NullDirection>) -> NullDocument {
        NullDocument { schema: "x".into(), duration_ns: 7, spin: false, ports: vec![], ways }
    }

    #[test]
    fn each_caller_gets_what_was_counted_by_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        let (running, stop) =
            ([RunningCounters::default(), RunningCounters::default()], AtomicBool::new(false));
        let counter = CounterSocket::open(path.clone()).unwrap();
        std::thread::scope(|scope| {
            for (number, one) in running.iter().enumerate() {
                let stop = &stop;
                scope.spawn(move || {
                    let (mut answered, mut received) = (0, 0);
                    while !stop.load(Relaxed) {
                        received += 1;
                        one.look(&mut answered, || NullDirection {
                            received,
                            full: number as u64,
                            ..NullDirection::default()
                        });
                        std::thread::yield_now();
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    counter.answer(&running, document);
                    clock::sleep_until(clock::monotonic_ns() + 1_000_000);
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
