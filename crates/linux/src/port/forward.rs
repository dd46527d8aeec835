//! The smallest forwarder, the journal's *nullx*: every frame of one port goes to another, untouched.

use super::{ALL, Hand, PortError, Receiver, Transmitter, Wait};

/// Moves one batch; how many frames came and how many of them were not sent (refused, or the transmitter was full:
/// a forwarder that waited would only move the loss to its own receiver, unseen).
///
/// # Errors
/// [`PortError`] of either port.
pub fn forward(
    from: &mut dyn Receiver,
    to: &mut dyn Transmitter,
    wait: Wait,
) -> Result<(usize, usize), PortError> {
    let mut batch = from.receive(super::MAX_BATCH, wait)?;
    let came = batch.len();
    if came == 0 {
        return Ok((0, 0));
    }
    let sent = to.transmit(&mut batch, &ALL[..came], Hand::Over)?;
    Ok((came, came - sent.dealt + sent.refused))
}
