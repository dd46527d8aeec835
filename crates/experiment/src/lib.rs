//! A plan carried out and recorded.
//!
//! **What.** [`plan`] reads an experiment that is written as text; [`session`] carries it out over one course or several: labs are
//! built with [`programs`] in their nodes, or two hosts are there ([`testbed`]); each test is made ([`measure`]) while counters and the witness are read around it
//! ([`watch`], [`hosts`]), and what came of it is written down. [`null`] is the smallest forwarder, [`bench`] are the benchmarks.
//!
//! **Why here.** This is the only crate that knows both the machine (`linux`, `load`, `switch`) and the conclusions (`study`). Words for
//! people and exit codes are the binary's: whatever is said while an experiment goes on is said through [`Notices`].
//!
//! **Price.** One process per end and per test (about 5 ms), so that CPU time and memory belong to one test only.

pub mod bench;
pub mod case;
pub mod change;
pub mod course;
pub mod doctor;
pub mod drops;
pub mod follow;
pub mod hosts;
pub mod machines;
pub mod measure;
mod notices;
pub mod null;
pub mod plan;
mod process;
mod processes;
pub mod programs;
pub mod prove;
pub mod session;
pub mod side;
pub mod tcp;
pub mod testbed;
pub mod trial;
mod unconnected;
pub mod watch;

pub use notices::{Notices, down};
pub use process::{interruptible, now};
