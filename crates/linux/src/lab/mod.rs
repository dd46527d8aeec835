//! Labs: topology as data, built and taken down.

pub mod link;
mod parse;
pub mod topology;

pub use topology::Topology;
