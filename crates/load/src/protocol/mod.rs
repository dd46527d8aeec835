//! The control protocol: one controller, two agents, one test at a time on each connection.
//!
//! Pure: no socket and no clock. [`codec`] turns bytes into messages, [`message`] is what is said, [`setup`] what it is
//! about, [`agent`] and [`controller`] are the two state machines; time and input are their arguments, what to do is their
//! result.
//! `docs/protocol.md` describes it for people.

pub mod agent;
pub mod codec;
pub mod controller;
pub mod message;
pub mod setup;

#[cfg(test)]
mod simulation;
