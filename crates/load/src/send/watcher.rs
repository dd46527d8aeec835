//! Reads the counters around a sending: before the first frame, and when the queues are quiet.
//!
//! What they mean is not reckoned here: [`record::send::SendSeen`] carries them to `study`, which closes the books.

use linux::observe::Observer;
use record::{Result, Snapshot};
use std::time::{Duration, Instant};

/// Between two looks at the end.
const PAUSE: Duration = Duration::from_millis(15);

/// Reads the counters of one namespace, and knows when one interface of it is quiet.
#[derive(Debug)]
pub struct Watcher {
    observer: Observer,
    interface: String,
}

impl Watcher {
    /// Opens the sources, in the namespace of the calling thread.
    ///
    /// # Errors
    /// Host: the kernel cannot be asked.
    pub fn new(interface: &str) -> Result<Watcher> {
        Ok(Watcher { observer: Observer::host()?, interface: interface.into() })
    }

    /// Reads once.
    ///
    /// # Errors
    /// Host: the counters cannot be read.
    pub fn look(&mut self) -> Result<Snapshot> {
        self.observer.snapshot(&[])
    }

    /// Reads until nothing moves and no frame is queued, at most so long.
    ///
    /// # Errors
    /// As [`Watcher::look`].
    pub fn settled(&mut self, patience: Duration) -> Result<Snapshot> {
        let until = Instant::now() + patience;
        let mut before = self.look()?;
        loop {
            std::thread::sleep(PAUSE);
            let now = self.look()?;
            let same = self.transmitted(&now) == self.transmitted(&before);
            let gone = self.transmitted(&now).is_none();
            if (same && self.queued(&now) == 0) || gone || Instant::now() > until {
                return Ok(now);
            }
            before = now;
        }
    }

    fn transmitted(&self, seen: &Snapshot) -> Option<u64> {
        let link = seen.nodes.values().next()?.link(&self.interface)?;
        link.counters.get("tx_packets").copied()
    }

    fn queued(&self, seen: &Snapshot) -> u64 {
        let node = seen.nodes.values().next();
        node.and_then(|node| node.root_qdisc(&self.interface)).map_or(0, |qdisc| qdisc.qlen)
    }
}
