//! What carries a pipeline out: the seam between the ports and the meaning of the rules.
//!
//! **What.** An [`Engine`] takes a batch of frames that came in by a port and writes into [`Outputs`] what
//! becomes of them. Each port's thread has one of its own. [`InterpretingEngine`] asks the interpreter of the
//! crate `flow`, under the lock of the pipeline.
//!
//! **Why.** Who receives and who sends need not know how it is decided; and what decides names frames of the
//! batch, so that nobody has to copy one that leaves as it came.
//!
//! **Price.** One virtual call for a batch.

use crate::outputs::Outputs;
use crate::shared::SharedPipeline;
use flow::action::Action;
use flow::interpret::{InputFrame, Interpreter, Verdict};
use flow::port::PortNo;
use linux::port::Batch;
use std::sync::Arc;

/// Decides what becomes of frames.
pub trait Engine: Send {
    /// Decides about a batch that came in by a port at this time, in nanoseconds of the monotonic clock.
    fn batch(&mut self, now: u64, port: PortNo, batch: &mut Batch<'_>, outputs: &mut Outputs);
}

/// The interpreter, which all ports take in turn.
pub struct InterpretingEngine {
    shared: Arc<SharedPipeline>,
    interpreter: Interpreter,
}

impl InterpretingEngine {
    /// For one port's thread.
    pub fn new(shared: Arc<SharedPipeline>) -> InterpretingEngine {
        InterpretingEngine { shared, interpreter: Interpreter::default() }
    }

    /// Decides about some frames of a batch.
    pub fn some(
        &mut self,
        now: u64,
        port: PortNo,
        batch: &Batch<'_>,
        which: impl Iterator<Item = u16>,
        outputs: &mut Outputs,
    ) {
        const NORMAL: [Action; 1] = [Action::Output { port: PortNo::NORMAL, max_len: 0 }];
        let mut pipeline = self.shared.lock_for_frames();
        let actions = self.shared.is_bridging().then_some(&NORMAL[..]);
        for index in which {
            outputs.begin(index);
            let (bytes, offload) = (batch.bytes(index.into()), batch.meta(index.into()).offload);
            let arrival = InputFrame { offload, ..InputFrame::new(port, bytes) };
            self.interpreter.carry(&mut pipeline, now, arrival, actions, outputs, &mut ());
        }
    }

    /// Decides about one frame.
    pub fn one(&mut self, now: u64, arrival: InputFrame<'_>, verdict: &mut Verdict) {
        verdict.clear();
        let mut pipeline = self.shared.lock_for_frames();
        self.interpreter.carry(&mut pipeline, now, arrival, None, verdict, &mut ());
    }
}

impl Engine for InterpretingEngine {
    fn batch(&mut self, now: u64, port: PortNo, batch: &mut Batch<'_>, outputs: &mut Outputs) {
        self.some(now, port, batch, batch.all().iter().copied(), outputs);
    }
}
