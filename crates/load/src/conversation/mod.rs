//! The conversation of [`crate::protocol`] over sockets: the link to an agent, the agent itself, and the controller of one
//! test.

pub mod agent;
pub mod controller;
pub mod facts;
pub mod knobs;
mod link;
pub mod observation;

pub use link::{AgentLink, ByteStream, spawn};
