//! Labs: topology as data, built and taken down.

mod parse;
pub mod topology;

pub use topology::Topology;
