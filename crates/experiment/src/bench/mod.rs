//! Benchmarks: always A against B, interleaved in one run, at least five pairs, the median and its interval.

pub mod arena;
pub mod capture;
pub mod contest;
pub mod flow;
pub mod grid;
mod job;
pub mod null;
pub mod pairing;
pub mod peers;
pub mod rivals;
pub mod send;
pub mod switch;
pub mod tools;
pub mod trials;
pub mod updates;

use linux::lab::{Lab, Lifetime, Topology};
use record::Result;

/// Builds a lab for the time of a benchmark; `what` tells it from others of the same benchmark.
fn lab(topology: &Topology, what: &str) -> Result<Lab> {
    let name = format!("bench-{what}{}", std::process::id());
    Lab::up(&linux::undo::journals()?, topology, &name, Lifetime::Ephemeral)
}
