//! Rules become machine code.
//!
//! **What.** [`Compiler`] turns a [`flow::Pipeline`] into a [`Program`]: pipeline → [`ir`] → [`pass`]es, each behind the verifier → a strategy
//! per table ([`plan`]) → x86-64 ([`emit`]). A [`Worker`] per thread takes frames through it, in place, and counts without a lock.
//!
//! **Why.** The interpreter is the meaning and walks rule by rule; here a table of 10,000 rules costs a few hashes. There is no flow cache, so
//! neither the number of flows nor who sends them changes what a frame costs (ESwitch, SIGCOMM 2016, argues why).
//!
//! **Price.** What code cannot do for a frame is an exit, taken before the frame counts and with the frame as it came: the caller lets
//! the interpreter do it. Counters reach the pipeline by [`tally::Tally::credit`]. On other machines than x86-64 the [`eval`]uator of the IR runs.

pub mod compile;
pub mod context;
pub mod emit;
pub mod eval;
pub mod exec;
pub mod explain;
pub mod frame;
pub mod hash;
pub mod ir;
pub mod kernel;
pub mod key;
pub mod lower;
pub mod needs;
pub mod pages;
pub mod pass;
pub mod path;
pub mod plan;
pub mod program;
pub mod prune;
pub mod record;
pub mod table;
pub mod tally;
pub mod verify;

pub use compile::{Compiler, Refused, Updated};
pub use frame::{Departure, Frame, Outputs};
pub use path::Ingress;
pub use program::{Outcome, Program, Worker};
pub use tally::{SlotPlaces, Slots, Tally};
