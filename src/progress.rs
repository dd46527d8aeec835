//! A progress bar for what takes more than two seconds, on a terminal only.

use crate::output::Output;
use experiment::Notices;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use load::traffic::threads::joined;
use record::Problem;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Notices of a run: sentences on standard error, its tests as a bar that is gone when this value is.
pub struct Screen<'a> {
    output: &'a Output,
    bar: ProgressBar,
}

impl Screen<'_> {
    /// No bar yet: it comes with the first test, and not at all when there is no terminal.
    pub fn new(output: &Output) -> Screen<'_> {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3} %  {eta:>4} left  {msg}") {
            bar.set_style(style);
        }
        Screen { output, bar }
    }
}

/// How often progress is looked at.
const TURN: Duration = Duration::from_millis(20);

/// Runs `work` on a thread of its own and asks `look` meanwhile how much of `total` is done, and for the line beside it; a bar
/// shows both once the work has taken two seconds.
pub fn watched<T: Send>(
    output: &Output,
    total: u64,
    mut look: impl FnMut() -> (u64, String),
    work: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>();
        let worker = scope.spawn(move || {
            let _end = end;
            work()
        });
        let (begun, mut bar) = (Instant::now(), None);
        while ended.recv_timeout(TURN) == Err(mpsc::RecvTimeoutError::Timeout) {
            let (done, line) = look();
            if begun.elapsed() > Duration::from_secs(2) {
                bar.get_or_insert_with(|| Screen::new(output)).part(&line, done, total.max(2001));
            }
        }
        drop(bar);
        joined(worker)
    })
}

impl Notices for Screen<'_> {
    fn note(&self, line: &str) {
        self.bar.suspend(|| self.output.note(line));
    }

    fn warn(&self, problem: &Problem) {
        self.bar.suspend(|| Notices::warn(self.output, problem));
    }

    fn part(&self, line: &str, done_ms: u64, total_ms: u64) {
        if self.bar.length().is_none() {
            self.bar.set_length(total_ms);
            if self.output.progress && total_ms > 2000 {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
        }
        self.bar.set_position(done_ms);
        self.bar.set_message(line.to_owned());
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
