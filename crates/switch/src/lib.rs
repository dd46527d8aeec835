//! The OpenFlow switch as a library.
//!
//! **What.** [`config`] describes a switch, [`datapath`] opens its ports and moves frames through the pipeline of
//! the crate `flow`, [`control`] talks with controllers and clients. The meaning is all in `flow`; here are only threads,
//! sockets and ports.
//!
//! **Why.** What decides has no clock and no socket, so it can be tested alone; what has them decides nothing.
//!
//! **Price.** Each port has a thread. What becomes of frames is an [`engine`]'s business; the interpreter is one, and takes them in turn.

mod backlog;
pub mod client;
pub mod config;
mod connection;
pub mod control;
pub mod datapath;
pub mod engine;
pub mod engines;
mod flow_hash;
pub mod kernel;
mod listeners;
mod native;
mod notice;
mod output_port;
pub mod outputs;
pub mod packet_ins;
mod ports;
pub mod programs;
pub mod queue_config;
pub mod queues;
pub mod relay;
pub mod scenario;
pub mod shadow;
pub mod shared;
pub mod stream;
pub mod tls;
pub mod transport;
