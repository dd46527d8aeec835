//! What transmitters share: the frames of a call one after the other, and the count of what became of each.

use super::batch::{Batch, Home, Slot};
use super::{PortResult, TransmitCounters, Transmitted};
use record::{PlaceDrop, drop};

/// Bytes of an Ethernet header: less is no frame, and drivers do not check.
pub(in crate::port) const ETHERNET: usize = 14;
/// Bytes of a VLAN tag, which an MTU does not count.
pub(in crate::port) const TAG: usize = 4;

/// What became of one frame.
pub(in crate::port) enum Outcome {
    Sent,
    /// For one of the reasons of [`refusing`].
    Refused(&'static str),
    /// It was not tried: there is no room.
    Full,
}

impl Slot {
    /// Why the frame cannot be sent as it is, as far as every kind judges that: one that was taken already, one without a
    /// header, and one that is longer than `longest`, for which a tag does not count, or than `room`, for which it does. How
    /// long a super-frame may be is the kind's own business.
    pub fn refusal(&self, longest: usize, room: usize) -> Option<&'static str> {
        let tag = || matches!(self.bytes()[12..14], [0x81, 0x00] | [0x88, 0xa8]).then_some(TAG);
        match self.length as usize {
            _ if self.home == Home::Taken => Some(drop::TAKEN),
            0..ETHERNET => Some(drop::RUNT),
            length if length <= longest || self.meta.offload.segments.is_some() => None,
            length => (length > (longest + tag().unwrap_or(0)).min(room)).then_some(drop::OVERSIZE),
        }
    }
}

/// Counters of a transmitter that may refuse frames for these reasons.
pub(in crate::port) fn refusing(reasons: &[&str]) -> TransmitCounters {
    let drops = reasons.iter().map(|reason| PlaceDrop::new("port", reason, 0)).collect();
    TransmitCounters { drops, ..TransmitCounters::default() }
}

impl TransmitCounters {
    /// Counts frames that were refused for one of the reasons of [`refusing`].
    pub(in crate::port) fn refuse(&mut self, reason: &str, count: u64) {
        if let Some(drop) = self.drops.iter_mut().find(|drop| drop.name == reason) {
            drop.count += count;
        }
    }

    /// Notes what became of a frame of so many bytes; false: no further one can be dealt with. The frames of the call are
    /// counted at its end ([`TransmitCounters::count`]).
    #[inline]
    pub(in crate::port) fn settle(&mut self, outcome: Outcome, length: u32, sent: &mut Transmitted) -> bool {
        match outcome {
            Outcome::Sent => self.bytes += u64::from(length),
            Outcome::Refused(why) => {
                self.refuse(why, 1);
                sent.refused += 1;
            }
            Outcome::Full => return false,
        }
        sent.dealt += 1;
        true
    }

    /// Counts the frames of a call, each of which was settled.
    pub(in crate::port) fn count(&mut self, sent: Transmitted) -> Transmitted {
        self.offered += sent.dealt as u64;
        self.accepted += (sent.dealt - sent.refused) as u64;
        sent
    }
}

/// Gives the frames of a call to `send`, one by one, and counts what becomes of each in the counters of the port.
///
/// # Errors
/// As [`push_all`].
#[inline]
pub(in crate::port) fn send_each<P>(
    port: &mut P,
    (batch, which): (&mut Batch<'_>, &[u16]),
    counters: fn(&mut P) -> &mut TransmitCounters,
    mut send: impl FnMut(&mut P, &mut Slot) -> PortResult<Outcome>,
) -> PortResult<Transmitted> {
    let sent = push_all(which, |rest, sent| {
        let slot = &mut batch.slots()[usize::from(rest[0])];
        let (length, outcome) = (slot.length, send(port, slot)?);
        Ok(counters(port).settle(outcome, length, sent))
    })?;
    Ok(counters(port).count(sent))
}

/// Gives the frames that are left to `push` until all are dealt with, or it says false: no more can be sent now.
///
/// # Errors
/// What `push` says before a frame was dealt with. Behind one, what was dealt with is told first, and the next call meets
/// the error again.
#[inline]
pub(in crate::port) fn push_all(
    which: &[u16],
    mut push: impl FnMut(&[u16], &mut Transmitted) -> PortResult<bool>,
) -> PortResult<Transmitted> {
    let mut sent = Transmitted::default();
    while sent.dealt < which.len() {
        match push(&which[sent.dealt..], &mut sent) {
            Ok(true) => {}
            Err(error) if sent.dealt == 0 => return Err(error),
            Ok(false) | Err(_) => break,
        }
    }
    Ok(sent)
}
