//! Links that go down for a moment when a knob is set: whoever changes one waits until all pass traffic again.
//!
//! **Why.** Many drivers start the interface anew for another number of queues or slots, and a link takes a second or more to come back.
//! What is measured in that time is the link, and not the change.
//!
//! **Price.** All links of the nodes are listed before and after each change.

use super::Tunable;
use linux::lab::LINK_DEADLINE;
use linux::sys::process::interrupted;
use record::{Problem, Result};
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Does something that may take links down, and waits until those that passed traffic do so again.
///
/// # Errors
/// As the work. Host: links cannot be listed, or one did not come back.
pub(super) fn back_after<T>(place: &dyn Tunable, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = place.passing()?;
    let done = work()?;
    let deadline = Instant::now() + LINK_DEADLINE;
    loop {
        let now = place.passing()?;
        let missing = before.iter().find(|link| !now.contains(link));
        // Whoever is interrupted measures no more.
        let Some((node, link)) = missing.filter(|_| !interrupted()) else { return Ok(done) };
        if Instant::now() > deadline {
            let seconds = LINK_DEADLINE.as_secs();
            let what = format!("{node}/{link} did not come up within {seconds} s after a change of a knob");
            return Err(Problem::host(what).help("see 'dmesg' for what the driver says of it"));
        }
        std::thread::sleep(LOOK);
    }
}
