//! The smallest forwarder, the journal's *nullx*: every frame of one port goes to another, untouched.

use super::{ALL, Hand, PortError, Receiver, Transmitter, Wait};

/// What became of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Frames that came.
    pub came: usize,
    /// Of these, frames that the transmitter refused; it has counted each with its reason.
    pub refused: usize,
    /// Of these, frames that found the transmitter full and were dropped: a forwarder that waited would only move the
    /// loss to its own receiver, unseen.
    pub full: usize,
}

impl Moved {
    /// Frames that went on.
    pub fn sent(&self) -> usize {
        self.came - self.refused - self.full
    }
}

/// Why a batch was not moved.
#[derive(Debug)]
pub struct Broken {
    /// What the port said.
    pub error: PortError,
    /// Frames that were received and were in hand when the transmitter failed; 0 when it was the receiver. Those that the
    /// transmitter had dealt with before are in its counters, the others are lost.
    pub in_hand: usize,
}

/// Moves one batch.
///
/// # Errors
/// [`Broken`]: either port cannot go on, and how many frames that concerns.
pub fn forward(from: &mut dyn Receiver, to: &mut dyn Transmitter, wait: Wait) -> Result<Moved, Broken> {
    let broken = |in_hand| move |error| Broken { error, in_hand };
    let mut batch = from.receive(super::MAX_BATCH, wait).map_err(broken(0))?;
    let came = batch.len();
    if came == 0 {
        return Ok(Moved::default());
    }
    let sent = to.transmit(&mut batch, &ALL[..came], Hand::Over).map_err(broken(came))?;
    Ok(Moved { came, refused: sent.refused, full: came - sent.dealt })
}
