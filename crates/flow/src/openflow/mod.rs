//! OpenFlow 1.3 and 1.4 as bytes.
//!
//! **What.** [`message::Message`] is any message of both versions, in both directions; [`Message::decode`](message::Message::decode)
//! reads one strictly and says with which error to refuse it, [`encode`](message::Message::encode) writes it, and its `Display` is
//! one line for people. The layouts are tables ([`bytes`]); the types have 1.4's shape, and what 1.3 does otherwise stands there as
//! `in 1.3`.
//!
//! **Why.** A switch, its clients and the tests against other implementations need the same bytes in both directions; what is
//! written as one table cannot disagree with itself.
//!
//! **Price.** These are the types of the wire, not of the switch: a field list here may be nonsense that only the model refuses.

pub mod action;
pub mod bytes;
pub mod channel;
pub mod drops;
pub(crate) mod extension;
pub mod fault;
pub(crate) mod forms;
pub mod group;
pub mod message;
pub mod misc;
pub mod multipart;
pub(crate) mod names;
pub mod oxm;
pub mod port;
pub mod roles;
pub mod rule;
pub mod tree;
pub mod version;

#[cfg(test)]
mod channel_tests;
#[cfg(test)]
mod osken;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
