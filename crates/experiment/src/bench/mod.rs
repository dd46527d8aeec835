//! Benchmarks: always A against B, interleaved in one run, at least five pairs, the median and its interval.

pub mod arena;
pub mod capture;
pub mod contest;
pub mod grid;
pub mod null;
pub mod pairing;
pub mod peers;
pub mod rivals;
pub mod send;
pub mod tools;
