//! What every kind of port tells of itself: its settings, and the frames that it refused.

use record::{PlaceDrop, PortSetting};

use super::TransmitCounters;

/// One setting with what was asked, what took effect and what is to be known of it.
pub fn setting(
    name: &str,
    asked: impl Into<String>,
    effective: impl Into<String>,
    note: impl Into<String>,
) -> PortSetting {
    PortSetting { name: name.into(), asked: asked.into(), effective: effective.into(), note: note.into() }
}

/// Counters of a transmitter that may refuse frames for these reasons.
pub fn refusing(reasons: &[&str]) -> TransmitCounters {
    let drops = reasons.iter().map(|reason| PlaceDrop::new("port", reason, 0)).collect();
    TransmitCounters { drops, ..TransmitCounters::default() }
}

impl TransmitCounters {
    /// Counts a frame that was refused for one of the reasons of [`refusing`].
    pub(super) fn refuse(&mut self, reason: &str) {
        if let Some(drop) = self.drops.iter_mut().find(|drop| drop.name == reason) {
            drop.count += 1;
        }
    }
}
