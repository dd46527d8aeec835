//! Benchmarks: always A against B, interleaved in one run, at least five pairs, the median and its interval.

pub mod contest;
pub mod peers;
pub mod rivals;
