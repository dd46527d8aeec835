//! How long programs stay in the kernel, and when the next one is worth making.

use super::LoadedProgram;
use record::unit;
use std::time::{Duration, Instant};

/// How long programs stay in the kernel, and what was said of them.
#[derive(Default)]
pub(crate) struct Residence {
    /// How long rules must not have changed.
    pause: Duration,
    /// When the last program came there, and what making it took.
    last: Option<(Instant, Duration)>,
    /// What was said last: why there is none, or why user space does a part.
    said: Option<String>,
}

impl Residence {
    /// The shortest and the longest pause.
    const SHORTEST: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_secs(1);
    /// A program is worth it when it stays so many times as long as making it took.
    const WORTH: u32 = 20;

    /// How long rules must not have changed before the next one.
    pub(crate) fn pause(&self) -> Duration {
        self.pause
    }

    /// One more is there, which took so long to make; what is to be said of it.
    pub(crate) fn begun(&mut self, took: Duration, program: &LoadedProgram) -> Option<String> {
        let now = Instant::now();
        let is_short =
            self.last.is_some_and(|(since, took)| now - since < Self::WORTH * (took + Self::SHORTEST));
        self.pause = if is_short {
            (2 * self.pause).clamp(Self::SHORTEST, Self::LONGEST)
        } else {
            Self::SHORTEST.max(2 * took)
        };
        self.last = Some((now, took));
        let (kernel, user) = program.rules();
        if kernel + user == 0 {
            // A controller that starts afresh deletes all rules first; of the next ones it is said where they are.
            return None;
        }
        let reasons = program.reasons().join("; ");
        let is_new = self.said.as_ref() != Some(&reasons);
        self.said = Some(reasons.clone());
        is_new.then(|| {
            let rest = if user > 0 { format!(", {user} by user space: {reasons}") } else { String::new() };
            format!(
                "{} carried out in the kernel ({}){rest}; {}",
                unit::many(kernel as u64, "rule"),
                program.hook(),
                program.compared()
            )
        })
    }

    /// There is none; what is to be said of it, which is not said twice in a row.
    pub(crate) fn refused(&mut self, what: String) -> Option<String> {
        self.pause = (2 * self.pause).clamp(Self::SHORTEST, Self::LONGEST);
        (self.said.as_ref() != Some(&what)).then(|| {
            self.said = Some(what.clone());
            format!("user space carries all rules out: {what}")
        })
    }
}
