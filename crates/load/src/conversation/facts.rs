//! What the doctor judges, taken at one end of a test while its traffic flows.
//!
//! **What.** A thread gets ready, waits until the test is under way, and takes the facts over a window; whoever can does that, this crate only says when.
//!
//! **Price.** Two readings of all facts beside the traffic, on the same CPUs.

use super::knobs::OpenKnobs;
use super::observation::Nodes;
use crate::protocol::message::FactsWindow;
use record::facts::Facts;
use record::{Problem, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked whether the test is over.
const LOOK: Duration = Duration::from_millis(20);
/// The longest window that a controller may ask for.
const LONGEST: Duration = Duration::from_secs(10);

/// Takes the facts of some nodes over a window that begins when the function returns, which is called when all is ready for it.
pub type TakeFacts = fn(&Nodes, Duration, &dyn Fn() -> Result<()>) -> Result<Facts>;

/// A host that tells what it sees of a test.
pub struct Host {
    /// What is looked at; the first is the process's own namespace.
    pub nodes: Nodes,
    /// How facts are taken.
    pub facts: TakeFacts,
    /// Who changes this host's knobs for a controller; none: nobody may.
    pub knobs: Option<OpenKnobs>,
}

/// Facts that are being taken.
pub struct FactsWatch {
    thread: JoinHandle<Result<Facts>>,
    over: Over,
}

/// Says that the test is over when it goes, so that nothing is begun any more.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl FactsWatch {
    /// Waits and watches on a thread of its own.
    ///
    /// # Errors
    /// A host problem when there can be none.
    pub fn start(host: &Arc<Host>, when: FactsWindow) -> Result<FactsWatch> {
        let over = Over(Arc::default());
        let (host, is_over) = (Arc::clone(host), Arc::clone(&over.0));
        let begun = Instant::now();
        let watch = move || {
            let ready = || wait(begun, Duration::from_millis(when.delay_ms), &is_over);
            (host.facts)(&host.nodes, Duration::from_millis(when.window_ms).min(LONGEST), &ready)
        };
        let thread = std::thread::Builder::new().name("facts".into()).spawn(watch);
        let cannot = |error| Problem::host(format!("cannot start a thread for facts: {error}"));
        Ok(FactsWatch { thread: thread.map_err(cannot)?, over })
    }

    /// The facts, when their window is over. The test is over.
    ///
    /// # Errors
    /// Measured: it ended before the window began. As whoever takes them.
    pub fn end(self) -> Result<Facts> {
        drop(self.over);
        self.thread
            .join()
            .unwrap_or_else(|_| Err(Problem::host("facts could not be taken; this is a bug in pathlab")))
    }
}

fn wait(begun: Instant, delay: Duration, is_over: &AtomicBool) -> Result<()> {
    while begun.elapsed() < delay {
        if is_over.load(Ordering::Relaxed) {
            return Err(
                Problem::measured("the test was over before facts could be taken").help("let it last longer")
            );
        }
        std::thread::sleep(LOOK.min(delay.saturating_sub(begun.elapsed())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Arc<Host> {
        let facts: TakeFacts = |_, window, ready| {
            ready()?;
            Ok(Facts { seconds: window.as_secs_f64(), ..Facts::default() })
        };
        Arc::new(Host { nodes: vec![], facts, knobs: None })
    }

    #[test]
    fn a_window_is_waited_for_and_bounded() {
        let begun = Instant::now();
        let watch = FactsWatch::start(&host(), FactsWindow { delay_ms: 0, window_ms: u64::MAX }).unwrap();
        assert_eq!(watch.end().unwrap().seconds, 10.0);
        let watch = FactsWatch::start(&host(), FactsWindow { delay_ms: 60, window_ms: 100 }).unwrap();
        while !watch.thread.is_finished() {
            std::thread::sleep(LOOK);
        }
        assert!(begun.elapsed() >= Duration::from_millis(60));
        assert_eq!(watch.end().unwrap().seconds, 0.1);
    }

    #[test]
    fn a_test_that_is_over_early_has_no_facts_and_is_not_waited_for() {
        let begun = Instant::now();
        let watch = FactsWatch::start(&host(), FactsWindow { delay_ms: u64::MAX, window_ms: 1 }).unwrap();
        let problem = watch.end().unwrap_err();
        assert!(problem.what.contains("over before"), "{problem}");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
