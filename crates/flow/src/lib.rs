//! What an OpenFlow switch means.
//!
//! **What.** The words of the standard as types: the fields of a frame ([`field`]), matches ([`matching`]), actions and
//! instructions ([`action`]), rules and what changes them ([`rule`]), groups ([`group`]), meters ([`meter`]), ports
//! ([`port`]) and the errors that a switch answers ([`error`]).
//!
//! **Why.** One meaning for every engine. The interpreter here is linear and obvious and cites the standard; whatever
//! is faster has to do the same. "§" in this crate is a section of OpenFlow Switch Specification 1.3.5, "1.4 §" one of
//! 1.4.1.
//!
//! **Price.** No clock and no socket: time is an argument, in nanoseconds of any monotonic clock, and what should leave
//! the switch is returned. The model does not know OpenFlow's bytes; a codec maps them onto these types, of which the flags are
//! the standard's bits already.

pub mod action;
pub mod action_set;
pub mod agent;
#[cfg(test)]
mod agent_tests;
pub mod bridge;
pub mod carried;
pub mod changed;
pub mod check;
pub mod client;
mod deadlines;
pub mod drop;
pub mod edits;
pub mod entry;
pub mod error;
pub mod event;
pub mod flags;
pub mod group;
pub mod interpret;
pub mod matching;
pub mod meter;
pub mod numbered;
pub mod openflow;
pub mod pipeline;
pub mod port;
pub mod rule;
pub mod selection;
mod shapes;
pub mod table;
pub mod text;
pub mod trace;

pub use action::{Action, Instruction};
pub use error::Error;
pub use matching::Match;
pub use pipeline::Pipeline;
pub use port::PortNo;
pub use wire::field::{self, Field};
