//! What a program reports while it serves others: nobody has to read it.
//!
//! **What.** A thread writes the lines to standard error; up to [`KEPT`] of them wait for it. What comes then is left out, and
//! counted: one line says how many, as soon as there is room again.
//!
//! **Why.** A terminal that was stopped (Ctrl-S) or a pipe whose reader sleeps takes no line, and whoever writes one waits. A switch that waited
//! there answered no controller, and Ctrl-C did not end it.

use crate::output::tell;
use record::unit::many;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines that wait to be written.
const KEPT: usize = 1000;
/// How long the end waits for a reader.
const PATIENCE: Duration = Duration::from_secs(1);

/// Lines on standard error that nobody waits for.
pub struct Log {
    lines: SyncSender<String>,
    writer: JoinHandle<()>,
    left_out: AtomicU64,
}

impl Log {
    /// Begins to write.
    pub fn begin() -> Log {
        Log::to(tell)
    }

    fn to(write: impl Fn(&str) + Send + 'static) -> Log {
        let (lines, waiting) = sync_channel::<String>(KEPT);
        let writer = std::thread::spawn(move || waiting.into_iter().for_each(|line| write(&line)));
        Log { lines, writer, left_out: AtomicU64::new(0) }
    }

    /// One line, in its turn.
    pub fn note(&self, line: &str) {
        self.tell_left_out();
        if self.lines.try_send(format!("pathlab: {line}")).is_err() {
            self.left_out.fetch_add(1, Relaxed);
        }
    }

    fn tell_left_out(&self) {
        let lines = self.left_out.swap(0, Relaxed);
        let words = || format!("pathlab: {} left out here: nobody read what is written", many(lines, "line"));
        if lines > 0 && self.lines.try_send(words()).is_err() {
            self.left_out.fetch_add(lines, Relaxed);
        }
    }

    /// Waits until all is written, not for ever.
    pub fn end(self) {
        self.tell_left_out();
        drop(self.lines);
        let until = Instant::now() + PATIENCE;
        while !self.writer.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn nobody_waits_for_a_reader_and_what_is_left_out_is_counted() {
        let (read, gate) = (Arc::new(Mutex::new(vec![])), Arc::new(Mutex::new(())));
        let stopped = gate.lock().unwrap();
        let (to, at) = (read.clone(), gate.clone());
        let log = Log::to(move |line| {
            drop(at.lock().unwrap());
            to.lock().unwrap().push(line.to_owned());
        });
        // One line is with the writer, who waits, or about to be.
        log.note("0");
        (1..=KEPT + 5).for_each(|line| log.note(&line.to_string()));
        drop(stopped);
        while read.lock().unwrap().len() < KEPT {
            std::thread::yield_now();
        }
        log.note("after");
        log.end();
        let read = read.lock().unwrap();
        let said = read.iter().position(|line| line.contains(" lines left out here")).unwrap();
        let left_out: usize = read[said]["pathlab: ".len()..].split(' ').next().unwrap().parse().unwrap();
        assert_eq!(said + left_out, KEPT + 6, "{:?}", &read[said..]);
        assert_eq!(read[said + 1..], ["pathlab: after"]);
    }
}
