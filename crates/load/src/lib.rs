//! Traffic, and the control protocol that two ends of a test speak.
//!
//! **What.** Kinds of traffic ([`kind`]), each with an end that sends and an end that receives ([`traffic::end::End`]),
//! made of the same tools ([`traffic`]). Two ends are led by one controller: what is said is pure ([`protocol`]), who says
//! it has sockets ([`conversation`]). Frames by hand are sent ([`send`]), taken ([`capture`]) and handed on ([`null`]).
//!
//! **Why.** The sender says what it planned and what it did, the receiver says what came, and both on one time base:
//! a rate that nobody received is not a result, and a sender that could not keep its plan says so itself.
//!
//! **Price.** Plain blocking threads, one per connection and direction; a planned sender spins for the last part of
//! each wait. Nothing allocates or formats while a test runs.

pub mod capture;
pub mod conversation;
pub mod kind;
pub mod null;
pub mod protocol;
pub mod send;
pub mod traffic;

pub use conversation::AgentLink;
pub use conversation::controller::Observer;
pub use kind::{check_host, check_spec};
pub use protocol::setup::{DataPorts, Outcome, length_ms};
