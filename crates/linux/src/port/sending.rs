//! What transmitters share: the frames of a call one after the other, and the count of what became of each.

use super::{PortResult, TransmitCounters, Transmitted};
use record::PlaceDrop;

/// What became of one frame.
pub(in crate::port) enum Outcome {
    Sent,
    /// For one of the reasons of [`refusing`].
    Refused(&'static str),
    /// It was not tried: there is no room.
    Full,
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
