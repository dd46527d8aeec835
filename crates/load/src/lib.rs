//! Traffic, and the control protocol that two ends of a test speak.
//!
//! **What.** Six kinds of traffic ([`tcp_stream`], [`udp_stream`], [`tcp_rr`], [`udp_rr`], [`ping`], [`frames`]), each with
//! an end that sends and an end that receives ([`end::End`]); the agent that runs one end at the command of a controller
//! ([`agent`]); and the controller that runs one test between two agents ([`controller`]).
//!
//! **Why.** The sender says what it planned and what it did, the receiver says what came, and both on one time base:
//! a rate that nobody received is not a result, and a sender that could not keep its plan says so itself.
//!
//! **Price.** Plain blocking threads, one per connection and direction; a planned sender spins for the last part of
//! each wait. Nothing allocates or formats while a test runs.

pub mod agent;
mod ask;
pub mod capture;
mod connections;
pub mod control;
pub mod controller;
pub mod datagram;
pub mod end;
pub mod frames;
mod host;
pub mod intervals;
pub mod ping;
pub mod schedule;
pub mod send;
pub mod sequence;
mod spec;
pub mod tcp_rr;
pub mod tcp_stream;
pub mod udp_rr;
pub mod udp_stream;

pub use agent::AgentLink;
pub use controller::{DataPorts, Observer, Outcome};
pub use host::check_host;
pub use schedule::length_ms;
pub use spec::{check_spec, message_size, response_size};
