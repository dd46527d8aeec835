//! Benchmarks: always A against B, interleaved in one run, at least five pairs, the median and its interval.

pub mod arena;
pub mod capture;
pub mod contest;
pub mod grid;
pub mod null;
mod pairing;
pub mod peers;
pub mod rivals;
pub mod send;
pub mod tools;

/// The time, RFC 3339 in UTC.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
