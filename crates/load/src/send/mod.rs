//! Sending frames: from templates, from capture files, by plan or as fast as possible.
//!
//! **What.** A template ([`template`]) is compiled ([`program`]); an engine ([`engine`]) renders frames into batches and
//! hands them to any port's transmitter, by a plan ([`pace`]); the report tells where every frame that was asked for
//! went, as `study` reckons it.
//!
//! **Why.** A generator that sends fewer frames than it was asked to, or sends them late, must say so itself.
//!
//! **Price.** One thread for each end of a port; a planned sender spins for the last part of each wait.

pub mod build;
pub mod calibrate;
mod departures;
pub mod engine;
pub mod fill;
pub mod half;
pub mod job;
pub mod live;
pub mod pace;
pub mod program;
pub mod replay;
mod sending;
pub mod template;
mod watcher;

pub use job::{Job, SendContent, Sending};
pub use sending::send;
