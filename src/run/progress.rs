//! A progress bar for runs of more than two seconds, on a terminal only.

use crate::output::Output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar; nothing at all when there is no terminal.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over so many milliseconds of traffic.
    pub fn new(output: &Output, total_ms: u64) -> Progress {
        let bar = ProgressBar::new(total_ms);
        let hidden = !output.progress || total_ms <= 2000;
        bar.set_draw_target(if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() });
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3} %  {eta:>4} left  {msg}") {
            bar.set_style(style);
        }
        Progress { bar }
    }

    /// Says which test runs now.
    pub fn test(&mut self, name: &str, repetition: u32, place: usize, of: usize) {
        self.bar.set_message(format!("{place}/{of}  {name} #{repetition}"));
    }

    /// A test of that length is done.
    pub fn done(&mut self, ms: u64) {
        self.bar.inc(ms);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
