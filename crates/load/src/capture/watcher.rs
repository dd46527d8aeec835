//! Reads the counters around a capture: before its port is opened, when it is open, when it is to end, when it has ended.
//!
//! What they mean is not reckoned here: [`record::capture::CaptureSeen`] carries them to `study`, which closes the account.

use linux::observe::Observer;
use linux::observe::queues::Queues;
use linux::port::Uri;
use record::capture::{CaptureReading, CaptureSeen};
use record::{PortKind, Through};

/// Reads the interface of a port, and everything else in its namespace.
pub struct Watcher {
    observer: Observer,
    queues: Result<Queues, String>,
    interface: String,
    received: bool,
    sent: bool,
    /// Why a reading failed, the first time.
    trouble: String,
}

/// Which interface a port takes its frames from, and which of its counters count them: received, sent.
pub fn interface_of(uri: &str, outgoing: bool) -> Option<(String, bool, bool)> {
    let uri = Uri::parse(uri).ok()?;
    let kind = PortKind::named(&uri.kind).filter(|kind| kind.receives)?;
    match kind.through {
        Through::PacketSocket => Some((uri.rest, true, outgoing)),
        Through::Driver => Some((uri.rest, true, false)),
        // What the kernel sends through a tap is what its reader receives.
        Through::Tap => Some((uri.rest, false, true)),
        Through::File | Through::Memory | Through::Port => None,
    }
}

impl Watcher {
    /// Watches the interface of a port in the namespace of the calling thread; none for a port without one, or when
    /// counters cannot be read here.
    pub fn open(uri: &str, outgoing: bool) -> Option<Watcher> {
        let (interface, received, sent) = interface_of(uri, outgoing)?;
        let (observer, queues) = (Observer::host().ok()?, Queues::open());
        Some(Watcher { observer, queues, interface, received, sent, trouble: String::new() })
    }

    /// Reads once; none when nothing can be read now: what [`Watcher::seen`] gives says why.
    pub fn read(&mut self) -> Option<CaptureReading> {
        let read = self.observer.snapshot(&[]);
        if let (Err(problem), true) = (&read, self.trouble.is_empty()) {
            self.trouble = problem.to_string();
        }
        let counters = read.ok()?;
        let link = counters.nodes.values().next().and_then(|node| node.link(&self.interface));
        let index = link.map(|link| link.index);
        Some(self.with_queues(CaptureReading { counters, ..CaptureReading::default() }, index))
    }

    fn with_queues(&mut self, mut reading: CaptureReading, index: Option<u32>) -> CaptureReading {
        // Without the interface it is the counters that say so.
        let Some(index) = index else { return reading };
        match self.queues.as_mut().map(|queues| queues.read(index)) {
            Ok(Ok(queues)) => {
                reading.queues = queues.into_iter().map(|queue| (queue.number, queue.counters)).collect();
            }
            Ok(Err(why)) => reading.queues_unknown = why,
            Err(why) => reading.queues_unknown.clone_from(why),
        }
        reading
    }

    /// Which interface it was, and what went wrong.
    pub fn seen(self) -> CaptureSeen {
        let Watcher { interface, received, sent, trouble, .. } = self;
        CaptureSeen { interface, received, sent, trouble, ..CaptureSeen::default() }
    }
}
