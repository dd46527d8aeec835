//! The OpenFlow switch as a library.
//!
//! **What.** [`config`] describes a switch, [`datapath`] opens its ports and moves frames through the pipeline of
//! the crate `flow`, [`control`] talks with controllers and clients. The meaning is all in `flow`; here are only threads,
//! sockets and ports.
//!
//! **Why.** What decides has no clock and no socket, so it can be tested alone; what has them decides nothing.
//!
//! **Price.** Each port has a thread, and one lock is between them: see [`datapath`].

mod backlog;
pub mod client;
pub mod config;
mod connection;
pub mod control;
pub mod datapath;
mod flow_hash;
mod listeners;
mod notice;
pub mod packet_ins;
mod ports;
pub mod queue_config;
pub mod queues;
pub mod relay;
pub mod scenario;
pub mod stream;
pub mod tls;
pub mod transport;
