//! What is set to one flow on some nodes while it goes on: its counters and the witness of its drops.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use record::{FlowObservation, Problem, Result};

use super::flow::Flow;
use super::flow_counters::{FlowCounters, FlowLinks};
use super::witness::{Witness, WitnessCount};

/// How long no frame of the flow may move for it to be at rest.
pub const REST: Duration = Duration::from_millis(50);

/// The counters of a flow and the witness of its drops, each there or not.
#[derive(Debug)]
pub struct FlowWatch {
    counters: std::result::Result<FlowCounters, String>,
    /// And what it had counted before.
    witness: std::result::Result<(Witness, WitnessCount), record::Witness>,
}

/// What the witness saw, or why it saw nothing.
pub type Witnessed = std::result::Result<WitnessCount, record::Witness>;

impl FlowWatch {
    /// Begins to watch that flow at these nodes, with what the watch before left attached and with the witness of the same flow that
    /// counts already, if there is one; what is not permitted here is said at the end.
    pub fn start(
        nodes: &[(String, BorrowedFd<'_>)],
        flow: &Flow,
        links: FlowLinks,
        witness: Option<Witness>,
    ) -> FlowWatch {
        let counters = FlowCounters::start_at(nodes, flow, links);
        // One that counts already knows when it begins; to close it and to start another takes two periods of RCU.
        let running = witness.and_then(|witness| witness.read().ok().map(|before| (witness, before)));
        let witness = match running {
            Some(running) => Ok(running),
            None => Witness::start(nodes, flow).map(|witness| (witness, WitnessCount::default())),
        };
        FlowWatch { counters, witness }
    }

    /// Whether no frame of the flow itself moves any more, whatever others' do; false where it is not counted.
    ///
    /// # Errors
    /// A host problem when the counts cannot be read.
    pub fn rests(&self) -> Result<bool> {
        let Ok(counters) = &self.counters else { return Ok(false) };
        let before = counters.read()?;
        std::thread::sleep(REST);
        Ok(counters.read()? == before)
    }

    /// What was counted of the flow, what the kernel dropped of it, and what stays attached for the next watch.
    ///
    /// # Errors
    /// A host problem when the counts cannot be read.
    pub fn end(self) -> Result<(FlowObservation, Witnessed, FlowLinks)> {
        let (flow, links) = match self.counters {
            Ok(counters) => (counters.read()?, counters.into_links()),
            Err(why) => {
                (FlowObservation { absent: Some(why), ..FlowObservation::default() }, FlowLinks::default())
            }
        };
        let witnessed = match self.witness {
            Ok((witness, before)) => {
                let backwards = || Problem::host("the counts of the drop witness went backwards");
                Ok(witness.read()?.since(&before).ok_or_else(backwards)?)
            }
            Err(absent) => Err(absent),
        };
        Ok((flow, witnessed, links))
    }
}
